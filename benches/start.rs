//! What `gateway exec -- true` takes over a bare `true`, beside bubblewrap: interleaved rounds in a
//! small project and in one of 30,000 files. Programs named as arguments are measured as well, such
//! as one that was built before a change.
//!
//!     cargo bench --profile quick-release --bench start -- [PROGRAM ...]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const ROUNDS: usize = 40;
/// What a first run makes, and the caches of the kernel.
const WARM: usize = 3;

fn main() {
    let own = env!("CARGO_BIN_EXE_gateway").to_owned();
    let others = std::env::args().skip(1).filter(|one| !one.starts_with('-'));
    let programs: Vec<String> = std::iter::once(own).chain(others).collect();
    let home = tempfile::tempdir_in("/var/tmp").expect("a folder");
    println!("ms over bare `true`, of {ROUNDS} rounds: p10, median, p90");
    for (name, folders) in [("small", 1), ("30,000 files", 300)] {
        let project = home.path().join(name);
        plant(&project, folders);
        measure(name, home.path(), &project, &programs);
    }
}

/// A repository of folders with 100 files each.
fn plant(project: &Path, folders: usize) {
    for folder in 0..folders {
        let folder = project.join(format!("{}/{folder}", folder / 20));
        std::fs::create_dir_all(&folder).expect("a folder");
        for file in 0..100 {
            std::fs::write(folder.join(format!("{file}.py")), "pass\n").expect("a file");
        }
    }
    let script = "git init -q && git add -A && git -c user.name=a -c user.email=b commit -qm one";
    let mut made = Command::new("sh");
    let made = made.args(["-c", script]).current_dir(project);
    assert!(
        made.status().is_ok_and(|made| made.success()),
        "git is needed"
    );
}

fn measure(name: &str, home: &Path, project: &Path, programs: &[String]) {
    let shown = project.to_str().expect("text");
    let bwrap = [
        "--ro-bind",
        "/",
        "/",
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "--tmpfs",
        "/tmp",
        "--bind",
        shown,
        shown,
        "--unshare-all",
        "--die-with-parent",
        "true",
    ];
    let exec = |program: &String| (program.clone(), vec!["exec", "--", "true"]);
    let mut all = vec![
        ("true".to_owned(), Vec::new()),
        ("bwrap".to_owned(), bwrap.to_vec()),
    ];
    all.extend(programs.iter().map(exec));
    let mut taken = vec![Vec::new(); all.len()];
    for round in 0..WARM + ROUNDS {
        for turn in 0..all.len() {
            let at = (round + turn) % all.len();
            let (program, arguments) = &all[at];
            let mut command = Command::new(program);
            let command = command
                .args(arguments)
                .current_dir(project)
                .env("HOME", home);
            let command = command.stdin(Stdio::null()).stderr(Stdio::null());
            let begun = Instant::now();
            let ended = command.status().is_ok_and(|ended| ended.success());
            let took = begun.elapsed();
            assert!(ended, "{program} failed");
            if round >= WARM {
                taken[at].push(took);
            }
            // What is done after the answer is not another's.
            std::thread::sleep(Duration::from_millis(40));
        }
    }
    taken.iter_mut().for_each(|all| all.sort());
    let bare = taken[0][ROUNDS / 2].as_secs_f64();
    for ((program, _), taken) in all.iter().zip(&taken) {
        let over = [10, 50, 90].map(|part| (taken[ROUNDS * part / 100].as_secs_f64() - bare) * 1e3);
        println!(
            "{name:13} {:6.1} {:6.1} {:6.1}  {program}",
            over[0], over[1], over[2]
        );
    }
}
