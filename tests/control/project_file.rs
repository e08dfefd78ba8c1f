//! The project's own file: in force only as a person allowed it, and out of the command's reach.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::sandbox::{exec, folder, user_command, wait_for};

const USER: u32 = 12345;

/// Runs a command of the program in the project, and returns its exit code and what it said.
fn gateway(folder: &Path, arguments: &[&str]) -> (i32, String) {
    let output = user_command(folder, USER)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    (output.status.code().unwrap_or(-1), said(&output))
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// What a shell in the sandbox said, and the summary.
fn inside(folder: &Path, flags: &[&str], script: &str) -> (i32, String) {
    gateway(
        folder,
        &[&["exec", "-v"], flags, &["--", "sh", "-c", script]].concat(),
    )
}

/// Runs a command in a terminal, with what the person types.
fn typed(folder: &Path, line: &str, keys: &str) -> (i32, String) {
    typed_with(folder, &[], line, keys)
}

fn typed_with(folder: &Path, shell: &[(&str, &str)], line: &str, keys: &str) -> (i32, String) {
    let line = format!("{} {line}", env!("CARGO_BIN_EXE_gateway"));
    let known = user_command(folder, USER);
    let mut terminal = Command::new("script");
    terminal.env_clear();
    terminal.envs(
        known
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    let mut child = terminal
        .envs(shell.iter().copied())
        .args(["-qec", &line, "/dev/null"])
        .current_dir(folder.join("home/project"))
        .uid(USER)
        .gid(USER)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(keys.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    drop(input);
    (output.status.code().unwrap_or(-1), said(&output))
}

fn write(folder: &Path, name: &str, text: &str) {
    let path = folder.join("home/project").join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, text).unwrap();
    chown(path.parent().unwrap(), Some(USER), Some(USER)).unwrap();
    chown(&path, Some(USER), Some(USER)).unwrap();
}

fn read(folder: &Path, name: &str) -> String {
    fs::read_to_string(folder.join("home/project").join(name)).unwrap()
}

const ONE: &str = "[policy]\nallow = [\"one.test\"]\n";
const TWO: &str = "[policy]\nallow = [\"two.test\"]\n";

#[test]
fn a_projects_file_is_in_force_only_as_a_person_allowed_it() {
    let folder = folder(USER);
    let at = folder.path();
    write(at, "gateway.toml", ONE);
    let (_, said) = inside(at, &[], "true");
    assert!(said.contains("gateway.toml is not in force"), "{said}");
    assert!(said.contains("network  nothing"), "{said}");
    // It is shown, and nothing is allowed without an answer.
    let (code, said) = gateway(at, &["project", "allow"]);
    assert_eq!(code, 2, "{said}");
    for told in [
        "+ allow = [\"one.test\"]",
        "reaches  one.test",
        "lends    nothing",
    ] {
        assert!(said.contains(told), "{told}: {said}");
    }
    assert!(said.contains("nobody can be asked"), "{said}");
    assert!(inside(at, &[], "true").1.contains("network  nothing"));
    let (code, said) = typed(at, "project allow", "n\n");
    assert_eq!(code, 1, "{said}");
    let (code, said) = typed(at, "project allow", "y\n");
    assert_eq!(code, 0, "{said}");
    let (_, said) = inside(at, &[], "true");
    assert!(said.contains("network  one.test"), "{said}");
    assert!(said.contains("gateway.toml, as you allowed it"), "{said}");
    // In a folder below it, too; flags add to it, and `--no-project` leaves it out.
    write(at, "below/file", "");
    let below = user_command(at, USER)
        .args(["exec", "--allow", "more.test", "--", "true"])
        .current_dir(at.join("home/project/below"))
        .output()
        .unwrap();
    assert!(self::said(&below).contains("network  more.test, one.test"));
    let (_, said) = inside(at, &["--no-project"], "true");
    assert!(
        said.contains("network  nothing") && !said.contains("gateway.toml"),
        "{said}"
    );
    // A named configuration holds alone.
    fs::write(at.join("home/named.toml"), TWO).unwrap();
    chown(at.join("home/named.toml"), Some(USER), Some(USER)).unwrap();
    let (_, said) = inside(at, &["--config", "../named.toml"], "true");
    assert!(said.contains("network  two.test"), "{said}");
}

#[test]
fn a_changed_projects_file_stops_the_run_until_its_difference_is_allowed() {
    let folder = folder(USER);
    let at = folder.path();
    write(
        at,
        "gateway.toml",
        &format!("{ONE}[sandbox]\nhide = [\"keys\"]\n"),
    );
    assert_eq!(gateway(at, &["project", "allow", "--yes"]).0, 0);
    // Without it, `keys` would be seen. So nothing runs.
    write(at, "gateway.toml", TWO);
    let (code, said) = inside(at, &[], "echo ran");
    assert_eq!(code, 2, "{said}");
    assert!(
        said.contains("is not what you allowed") && !said.contains("ran"),
        "{said}"
    );
    assert!(said.contains("`gateway project allow`"), "{said}");
    assert!(
        gateway(at, &["project", "status"])
            .1
            .starts_with("changed ")
    );
    let (code, said) = gateway(at, &["project", "allow", "--yes"]);
    assert_eq!(code, 0, "{said}");
    for line in [
        "- allow = [\"one.test\"]",
        "+ allow = [\"two.test\"]",
        "- hide = [\"keys\"]",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert!(inside(at, &[], "true").1.contains("network  two.test"));
    // Nor does anything run where a file that nobody decided about took its place.
    write(at, "below/gateway.toml", ONE);
    let below = |arguments: &[&str]| {
        let mut command = user_command(at, USER);
        command.current_dir(at.join("home/project/below"));
        command
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .unwrap()
    };
    let output = below(&["exec", "-v", "--", "true"]);
    assert_eq!(output.status.code(), Some(2), "{}", self::said(&output));
    assert!(self::said(&output).contains("nobody decided about"));
    assert!(below(&["project", "deny"]).status.success());
    let output = below(&["exec", "-v", "--", "true"]);
    assert!(
        self::said(&output).contains("network  two.test"),
        "{}",
        self::said(&output)
    );
    // What was allowed once is not allowed again by itself.
    write(at, "gateway.toml", ONE);
    assert_eq!(inside(at, &[], "true").0, 2);
    assert_eq!(gateway(at, &["project", "deny"]).0, 0);
    let (code, said) = inside(at, &[], "true");
    assert_eq!(code, 0);
    assert!(
        said.contains("network  nothing") && !said.contains("careful"),
        "{said}"
    );
    assert_eq!(gateway(at, &["project", "forget"]).0, 0);
    assert!(inside(at, &[], "true").1.contains("is not in force"));
}

#[test]
fn a_file_that_a_command_could_replace_or_that_says_too_much_cannot_be_allowed() {
    let folder = folder(USER);
    let at = folder.path();
    let path = at.join("home/project/gateway.toml");
    let refused = |told: &str| {
        let (code, said) = gateway(at, &["project", "allow", "--yes"]);
        assert_eq!(code, 2, "{said}");
        assert!(said.contains(told), "{told}: {said}");
        assert!(inside(at, &[], "true").1.contains("network  nothing"));
    };
    write(at, "other", ONE);
    symlink("other", &path).unwrap();
    refused("it is a link");
    fs::remove_file(&path).unwrap();
    fs::hard_link(at.join("home/project/other"), &path).unwrap();
    refused("another name");
    fs::remove_file(&path).unwrap();
    write(at, "gateway.toml", ONE);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    refused("everyone on this machine can change");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    chown(&path, Some(54321), Some(54321)).unwrap();
    refused("belongs to user 54321");
    for (text, told) in [
        (
            "[sandbox]\nwrite = [\"/srv\"]\n",
            "2:1: error: `write` of [sandbox]",
        ),
        ("[policy]\nfiles = [\"x.cedar\"]\n", "files"),
        ("[control]\npath = \"/tmp/x\"\n", "`path` of [control]"),
        (
            "[[credential]]\nname = \"A\"\nfrom = { command = [\"/bin/cat\", \"k\"] }\norigins = [\"https://a.test\"]\n",
            "such a reference may not stand in a project's file",
        ),
    ] {
        fs::remove_file(&path).unwrap();
        write(at, "gateway.toml", text);
        refused(told);
    }
}

#[test]
fn the_command_can_neither_change_the_projects_file_nor_what_was_decided() {
    let folder = folder(USER);
    let at = folder.path();
    write(at, "gateway.toml", ONE);
    write(at, "sub/gateway.toml", ONE);
    for file in ["gateway.toml", "sub/gateway.toml"] {
        let (code, said) = gateway(at, &["project", "allow", "--yes", file]);
        assert_eq!(code, 0, "{said}");
    }
    let state = at.join("home/.local/state/gateway");
    let script = format!(
        "for file in gateway.toml sub/gateway.toml; do
           echo evil >> $file; rm -f $file; mv $file moved; echo evil > new; mv -f new $file
           ln -f new $file; ln -sf new $file; chmod 777 $file; truncate -s 0 $file
           cp -f new $file; ln $file linked && echo evil >> linked; cat $file
         done 2>/dev/null
         mv sub elsewhere && mkdir sub && echo evil > sub/gateway.toml
         find {} / -xdev -name user.db 2>/dev/null; echo tried",
        state.display()
    );
    let (code, said) = inside(at, &[], &script);
    assert_eq!(code, 0, "{said}");
    // It may be read.
    assert_eq!(said.matches("one.test\"]").count(), 2, "{said}");
    assert!(
        said.contains("tried") && !said.contains("user.db"),
        "{said}"
    );
    assert_eq!(read(at, "gateway.toml"), ONE);
    assert_eq!(read(at, "sub/gateway.toml"), ONE);
    let (code, said) = inside(at, &[], "true");
    assert!(code == 0 && said.contains("network  one.test"), "{said}");
}

#[test]
fn a_projects_file_that_the_command_makes_is_told_and_never_in_force() {
    for make in [
        "cat > gateway.toml",
        "cat > x; mv x gateway.toml",
        "cat > x; ln x gateway.toml",
        "cat > x; ln -s x gateway.toml",
    ] {
        let folder = folder(USER);
        let at = folder.path();
        let script = format!(
            "mkdir deep; echo '[policy]\nallow = [\"evil.test\"]' | tee deep/gateway.toml | (umask 022; {make})"
        );
        let (code, said) = inside(at, &[], &script);
        assert_eq!(code, 0, "{said}");
        assert!(
            said.contains("gateway.toml, which gateway reads by itself"),
            "{said}"
        );
        let below = user_command(at, USER)
            .args(["exec", "-v", "--", "true"])
            .current_dir(at.join("home/project/deep"))
            .output()
            .unwrap();
        let below = self::said(&below);
        assert!(
            below.contains("network  nothing") && below.contains("not in force"),
            "{below}"
        );
        let (_, said) = inside(at, &[], "true");
        assert!(said.contains("network  nothing"), "{said}");
    }
}

#[test]
fn a_running_gateway_takes_up_a_changed_projects_file_when_it_is_allowed() {
    let folder = folder(USER);
    let at = folder.path();
    write(at, "gateway.toml", ONE);
    assert_eq!(gateway(at, &["project", "allow", "--yes"]).0, 0);
    let script = "while [ ! -e go ]; do sleep 0.05; done";
    let mut command = user_command(at, USER);
    command.args(["exec", "-v", "--", "sh", "-c", script]);
    let child = exec(at, command);
    let generation = || {
        let (_, said) = gateway(at, &["status", "--json"]);
        let state: serde_json::Value = serde_json::from_str(&said).unwrap_or_default();
        state["gateways"][0]["policies"]["generation"].as_u64()
    };
    wait_for("the gateway does not answer", || generation() == Some(1));
    // As a person edits it, who works outside.
    write(at, "gateway.toml", TWO);
    let (code, said) = gateway(at, &["reload"]);
    assert_ne!(code, 0, "{said}");
    assert!(said.contains("is not what you allowed"), "{said}");
    assert_eq!(generation(), Some(1));
    assert_eq!(gateway(at, &["project", "allow", "--yes"]).0, 0);
    wait_for("the allowed file is not taken up", || {
        generation() == Some(2)
    });
    write(at, "go", "");
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", self::said(&output));
}

/// Pipes, devices, huge files, and files that change between one look and the next.
#[test]
fn an_allowed_file_that_is_gone_stops_the_next_run() {
    let folder = folder(USER);
    let at = folder.path();
    let text = "[sandbox]\nhide = [\"keys\"]\n";
    write(at, "keys/k", "canary");
    write(at, "gateway.toml", text);
    assert_eq!(gateway(at, &["project", "allow", "--yes"]).0, 0);
    let mut command = user_command(at, USER);
    let script = "while [ ! -e go ]; do sleep 0.05; done; rm gateway.toml";
    let (code, told) = inside(at, &[], "! cat keys/k");
    assert_eq!(code, 0, "{told}");
    command.args(["exec", "-v", "--", "sh", "-c", script]);
    let child = exec(at, command);
    // As an editor saves it: what guards the file is made anew for this one.
    write(at, "new", &format!("{text}# more\n"));
    fs::rename(
        at.join("home/project/new"),
        at.join("home/project/gateway.toml"),
    )
    .unwrap();
    assert_eq!(gateway(at, &["project", "allow", "--yes"]).0, 0);
    write(at, "go", "");
    let ended = said(&child.wait_with_output().unwrap());
    assert!(at.join("home/project/gateway.toml").exists(), "{ended}");
    fs::remove_file(at.join("home/project/gateway.toml")).unwrap();
    let (code, told) = inside(at, &[], "cat keys/k");
    assert_eq!(code, 2, "{told}");
    let (_, status) = gateway(at, &["project", "status"]);
    assert!(status.contains("gone"), "{status}");
    assert!(
        told.contains("is gone") && !told.contains("canary"),
        "{told}"
    );
    let file = at.join("home/project/gateway.toml").display().to_string();
    assert!(told.contains(&format!("gateway project forget {file}")));
    assert_eq!(inside(at, &["--no-project"], "cat keys/k").0, 0);
    assert_eq!(gateway(at, &["project", "forget", &file]).0, 0);
    assert_eq!(inside(at, &[], "cat keys/k").0, 0);
}

#[test]
fn a_run_takes_the_projects_file_up_as_a_whole_while_an_older_sandbox_changes_it() {
    let folder = folder(USER);
    let at = folder.path();
    let toggle = "while [ ! -e gateway.toml ]; do sleep 0.05; done; cp gateway.toml keep
        while [ ! -e stop ]; do mv gateway.toml x; sleep 0.02; cp keep x; mv x gateway.toml; \
        sleep 0.04; done";
    let mut command = user_command(at, USER);
    command.args(["exec", "-q", "--", "sh", "-c", toggle]);
    let older = exec(at, command);
    write(at, "new", "[policy]\nallow = [\"of.file.test\"]\n");
    let project = at.join("home/project");
    fs::rename(project.join("new"), project.join("gateway.toml")).unwrap();
    let file = project.join("gateway.toml").display().to_string();
    wait_for("the file was never there to allow", || {
        gateway(at, &["project", "allow", &file, "--yes"]).0 == 0
    });
    let ask = "curl -sS http://gateway.internal/";
    let (mut refused, mut whole) = (0, 0);
    for _ in 0..16 {
        let (code, told) = inside(at, &["--allow", "of.flag.test"], ask);
        let told_of = told.contains("gateway.toml");
        match code {
            2 => refused += 1,
            _ if told_of && told.contains("of.file.test, of.flag.test") => whole += 1,
            _ => panic!("{code}: {told}"),
        }
    }
    assert!(whole > 0, "{refused} runs refused, none whole");
    write(at, "stop", "");
    older.wait_with_output().unwrap();
}

#[test]
fn no_text_of_a_projects_file_looks_like_what_it_would_do() {
    let folder = folder(USER);
    let at = folder.path();
    let row = |text: &str| format!("{text:<80}");
    let rows = [row("reaches  nothing"), row("lends    nothing")].concat();
    // Whatever the first row begins with.
    let forged: Vec<String> = (0..80)
        .map(|pad| format!("\"{}{}{rows}x{pad}\"", "k", " ".repeat(pad)))
        .collect();
    let text = format!(
        "[policy]\nallow = [\"a.evil.test\"]\npresets = [\"github\"]\n[sandbox]\nhide = [{}]\n",
        forged.join(", ")
    );
    write(at, "gateway.toml", &text);
    let (_, shown) = typed(at, "project allow", "n\n");
    let whole = shown.replace("\u{1b}[1m", "").replace("\u{1b}[0m", "");
    let named = |name: &str| {
        let rows = whole.lines().filter(|row| row.starts_with(name));
        rows.map(str::to_owned).collect::<Vec<_>>()
    };
    let (reaches, lends) = (named("reaches"), named("lends"));
    assert_eq!(reaches.len(), 1, "{reaches:?}");
    assert!(reaches[0].contains("a.evil.test"), "{reaches:?}");
    assert_eq!(lends.len(), 1, "{lends:?}");
    // A preset lends once its variable is set.
    assert!(
        lends[0].contains("github to https://api.github.com"),
        "{lends:?}"
    );
}

#[test]
fn what_is_no_plain_file_or_never_stays_the_same_is_in_force_at_no_time() {
    let folder = folder(USER);
    let at = folder.path();
    let path = at.join("home/project/gateway.toml");
    let made = Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    let unfit = |told: &str| {
        let (code, said) = gateway(at, &["project", "allow", "--yes"]);
        assert!(code == 2 && said.contains(told), "{told}: {said}");
        let (code, said) = inside(at, &[], "true");
        assert!(code == 0 && said.contains("network  nothing"), "{said}");
    };
    unfit("no regular file");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    unfit("no regular file");
    fs::remove_dir(&path).unwrap();
    write(at, "gateway.toml", &"#".repeat(2 << 20));
    unfit("larger than 1MiB");
    write(at, "gateway.toml", ONE);
    assert_eq!(gateway(at, &["project", "allow", "--yes"]).0, 0);
    let evil = "[policy]\nallow = [\"evil.test\"]\n";
    let (stop, home) = (std::sync::atomic::AtomicBool::new(false), at.join("home"));
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let mut texts = [ONE, evil].into_iter().cycle();
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                fs::write(home.join("next"), texts.next().unwrap()).unwrap();
                chown(home.join("next"), Some(USER), Some(USER)).unwrap();
                fs::rename(home.join("next"), &path).unwrap();
            }
        });
        let runs: Vec<_> = (0..6).map(|_| inside(at, &[], "true")).collect();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        for (code, said) in runs {
            let is_refused = code == 2 && said.contains("is not what you allowed");
            let is_allowed = code == 0 && said.contains("network  one.test");
            assert!(is_refused || is_allowed, "{code} {said}");
            assert!(!said.contains("evil.test"), "{said}");
        }
    });
}

#[test]
fn a_decision_that_cannot_be_read_stops_the_run() {
    let folder = folder(USER);
    let at = folder.path();
    write(at, "gateway.toml", ONE);
    assert_eq!(gateway(at, &["project", "allow", "--yes"]).0, 0);
    let kept = at.join("home/.local/state/gateway/sessions/user.db");
    let database = rusqlite::Connection::open(&kept).unwrap();
    let damaged = "UPDATE kept SET content = x'7b' WHERE kind = 'consent'";
    assert_eq!(database.execute(damaged, []).unwrap(), 1);
    drop(database);
    let (code, said) = inside(at, &[], "echo ran");
    assert!(code != 0 && !said.contains("ran"), "{said}");
    assert!(
        said.contains("what you decided about a file cannot be read"),
        "{said}"
    );
    // A folder that cannot be searched hides a decision, and is no lack of one.
    let folder = kept.parent().unwrap();
    fs::set_permissions(folder, fs::Permissions::from_mode(0o000)).unwrap();
    let (code, said) = inside(at, &[], "echo ran");
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).unwrap();
    assert!(code != 0 && !said.contains("ran"), "{said}");
}

/// A home is a project like another; its state, with every decision, is out of sight. Of two
/// sandboxes in one project, the last to end sets aside what either made.
#[test]
fn a_home_may_be_a_project_and_two_sandboxes_may_share_one() {
    let folder = folder(USER);
    let at = folder.path();
    let home = |arguments: &[&str]| {
        let mut command = user_command(at, USER);
        command.current_dir(at.join("home")).stdin(Stdio::null());
        said(&command.args(arguments).output().unwrap())
    };
    fs::write(at.join("home/gateway.toml"), ONE).unwrap();
    chown(at.join("home/gateway.toml"), Some(USER), Some(USER)).unwrap();
    assert!(home(&["project", "allow", "--yes"]).contains("allowed"));
    let look = "find / -xdev -name user.db 2>/dev/null; echo evil >> gateway.toml; \
                mkdir -p .local/state/gateway/projects/x; echo looked";
    let told = home(&["exec", "-v", "--", "sh", "-c", look]);
    assert!(
        told.contains("looked") && !told.contains("user.db"),
        "{told}"
    );
    let read = fs::read_to_string(at.join("home/gateway.toml")).unwrap();
    assert_eq!(read, ONE);
    let state = at.join("home/.local/state/gateway/projects/x");
    assert!(!state.exists(), "the command reached the state");
    // It is none of the projects below.
    assert!(inside(at, &[], "true").1.contains("network  nothing"));
    let project = at.join("home/project");
    let mut first = user_command(at, USER);
    let first = first
        .args(["exec", "-q", "--", "sh", "-c"])
        .arg("echo '[policy]' > gateway.toml; touch up; while [ ! -e go ]; do sleep 0.05; done");
    let mut first = first.spawn().unwrap();
    wait_for("the first does not run", || project.join("up").exists());
    let (_, second) = inside(at, &[], "echo more >> gateway.toml; touch go");
    assert!(second.contains("network  nothing"), "{second}");
    assert!(first.wait().unwrap().success());
    let (_, third) = inside(at, &[], "true");
    assert!(third.contains("network  nothing"), "{third}");
}

const TOKEN: &str = "ghp_0123456789012345678901234567890123Ab";

/// Runs a command of the program with variables of the shell, and without a terminal.
fn in_shell(folder: &Path, shell: &[(&str, &str)], arguments: &[&str]) -> String {
    let mut command = user_command(folder, USER);
    command.args(arguments).envs(shell.iter().copied());
    said(&command.stdin(Stdio::null()).output().unwrap())
}

#[test]
fn known_secrets_are_lent_once_a_person_said_so_and_aws_by_a_word_of_its_own() {
    let folder = folder(USER);
    let at = folder.path();
    let mut shell = vec![
        ("GITHUB_TOKEN", TOKEN),
        ("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE"),
        (
            "AWS_SECRET_ACCESS_KEY",
            "kq7Zp2wJalrXUtnFEMIKbPxRfiCYEXAMPLEKEY12",
        ),
    ];
    let show = "exec -- sh -c 'echo got=$GITHUB_TOKEN, key=$AWS_ACCESS_KEY_ID,'";
    let script = "echo got=$GITHUB_TOKEN, key=$AWS_ACCESS_KEY_ID,";
    let unasked = in_shell(at, &shell, &["exec", "--", "sh", "-c", script]);
    assert!(unasked.contains("got=, key=,"), "{unasked}");
    for flag in ["GITHUB_TOKEN (`--secret GITHUB_TOKEN`)", "(`--aws`)"] {
        assert!(unasked.contains(flag), "{unasked}");
    }
    let (_, first) = typed_with(at, &shell, show, "what\n\n1\nno\n");
    for told in [
        "`what` is none of the answers",
        "an empty line is none of the answers",
        "GITHUB_TOKEN: opens https://api.github.com",
        "sign requests to AWS",
        "got=ghp_",
    ] {
        assert!(first.contains(told), "{told}: {first}");
    }
    assert!(first.contains("key=,") && !first.contains(TOKEN), "{first}");
    // What is known is not asked again; what is new is, alone.
    let (_, second) = typed_with(at, &shell, show, "");
    assert!(
        second.contains("got=ghp_") && !second.contains("`none`"),
        "{second}"
    );
    shell.push(("STRIPE_API_KEY", "sk_live_0123456789abcdefghij"));
    let (_, third) = typed_with(at, &shell, show, "none\n");
    assert!(
        third.contains("1  STRIPE_API_KEY") && third.contains("got=ghp_"),
        "{third}"
    );
    assert!(!third.contains("1  GITHUB_TOKEN"), "{third}");
    let told = in_shell(
        at,
        &shell,
        &[
            "project",
            "secrets",
            "--withhold",
            "GITHUB_TOKEN",
            "--lend",
            "aws",
        ],
    );
    assert_eq!(told, "lent aws\nwithheld github\nwithheld stripe\n");
    let after = in_shell(at, &shell, &["exec", "--", "sh", "-c", script]);
    assert!(
        after.contains("got=, key=AKIA") && !after.contains("AKIAIOSF"),
        "{after}"
    );
}

#[test]
fn ten_runs_in_a_project_print_few_lines_and_what_is_careful_each_time() {
    let folder = folder(USER);
    let at = folder.path();
    let shell = [("GITHUB_TOKEN", TOKEN), ("SOME_SETTING", "1")];
    let run = ["exec", "--secret", "GITHUB_TOKEN", "--", "true"];
    let said: String = (0..10).map(|_| in_shell(at, &shell, &run)).collect();
    let lines = said.lines().filter(|line| line.starts_with("gateway"));
    assert!(lines.count() <= 25, "{said}");
    let last = in_shell(at, &shell, &run);
    assert!(
        last.contains("api.github.com +") && last.contains("lends GITHUB_TOKEN"),
        "{last}"
    );
    write(at, ".env", "DB_PASSWORD=hunter2\n");
    for _ in 0..2 {
        let careful = in_shell(at, &shell, &run);
        assert!(
            careful.contains("careful  ") && careful.contains(".env (`DB_PASSWORD`) holds"),
            "{careful}"
        );
    }
    let whole = in_shell(at, &shell, &[&["exec", "-v"], &run[1..]].concat());
    assert!(
        whole.contains("network  api.github.com, ") && whole.contains("home  "),
        "{whole}"
    );
}

/// What follows a name at the beginning of a row, without what differs between the two screens.
fn told_of(said: &str, name: &str) -> Vec<String> {
    let rows = said.lines().filter_map(|row| {
        let row = row.strip_prefix("gateway  ").unwrap_or(row);
        row.strip_prefix(name)
    });
    let mut rows = rows.flat_map(|row| row.split(['(', ')', ';', ',', ' ']));
    let mut hosts: Vec<String> = rows
        .by_ref()
        .map(|word| word.trim_start_matches("https://").to_owned())
        .filter(|word| word.contains('.'))
        .collect();
    hosts.sort();
    hosts
}

#[test]
fn what_consent_shows_is_what_the_next_run_shows() {
    let lend = |host: &str| {
        format!(
            "permit(principal, action == Gateway::Action::\"lend\", resource == Gateway::Credential::\"github\") when {{ context.origin == Gateway::Host::\"{host}\" && context.method == \"GET\" }};"
        )
    };
    let reach = |host: &str| {
        format!(
            "permit(principal, action in Gateway::Action::\"any\", resource == Gateway::Host::\"{host}\");"
        )
    };
    let rules = |all: &[String]| format!("[policy]\nrules = '''\n{}\n'''\n", all.join("\n"));
    let (api, web) = ("api.github.com", "github.com");
    let files = [
        (rules(&[reach(api), lend(api)]), &["api.github.com"][..]),
        (rules(&[reach(api), lend(web)]), &[]),
        (rules(&[reach(api), reach(web), lend(web)]), &["github.com"]),
        ("[policy]\nallow = [\"a.test\"]\n".to_owned(), &[]),
        (
            "[[credential]]\nname = \"own\"\nfrom = \"env:GITHUB_TOKEN\"\norigins = [\"https://b.test\"]\n".to_owned(),
            &["b.test"],
        ),
    ];
    for (text, lends) in files {
        let folder = folder(USER);
        let at = folder.path();
        write(at, "gateway.toml", &text);
        let shell = [("GITHUB_TOKEN", TOKEN)];
        let shown = in_shell(at, &shell, &["project", "allow", "--yes"]);
        let run = in_shell(at, &shell, &["exec", "-v", "--", "true"]);
        assert_eq!(told_of(&shown, "lends"), lends, "{shown}");
        assert_eq!(told_of(&run, "lends"), lends, "{shown}{run}");
        assert_eq!(
            told_of(&shown, "reaches"),
            told_of(&run, "network"),
            "{shown}{run}"
        );
    }
}

/// The commands of a README, as a person types them: the lines of its blocks for a shell.
fn readme(example: &str) -> String {
    let path = format!(
        "{}/examples/{example}/README.md",
        env!("CARGO_MANIFEST_DIR")
    );
    let text = fs::read_to_string(path).unwrap();
    let blocks = text.split("```sh\n").skip(1);
    let blocks = blocks.map(|block| block.split("```").next().unwrap());
    // What a person puts in the place of `…`.
    blocks
        .collect::<String>()
        .replace('…', "zQWBuTSOoRi4A9spHcVY5ncnsDkxkJ0mLq17")
}

#[test]
fn the_readmes_of_examples_end_well_with_one_question_for_all_files_of_a_configuration() {
    let all = [
        ("github", 2),
        ("anthropic", 2),
        ("git-clone", 2),
        ("aws-s3", 2),
        ("stripe", 2),
    ];
    for (example, files) in all {
        let folder = folder(USER);
        let from = concat!(env!("CARGO_MANIFEST_DIR"));
        for part in [&format!("examples/{example}"), "policies"] {
            let to = folder.path().join("home/project").join(part);
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            let mut copy = Command::new("cp");
            let copied = copy
                .args(["-r", &format!("{from}/{part}")])
                .arg(&to)
                .status();
            assert!(copied.unwrap().success());
        }
        write(folder.path(), "agent.py", "");
        for program in ["gh", "claude", "git", "aws", "python"] {
            write(
                folder.path(),
                &format!("bin/{program}"),
                "#!/bin/sh\nexit 0\n",
            );
            let program = folder.path().join("home/project/bin").join(program);
            fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
        }
        write(
            folder.path(),
            "bin/gateway",
            &format!("#!/bin/sh\nexec {} \"$@\"\n", env!("CARGO_BIN_EXE_gateway")),
        );
        let shell = format!(
            "#!/bin/sh\nset -e\nPATH=$PWD/bin:$PATH\n{}",
            readme(example)
        );
        write(folder.path(), "typed.sh", &shell);
        for name in ["bin/gateway", "typed.sh"] {
            let path = folder.path().join("home/project").join(name);
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let mut own = Command::new("chown");
        let own = own
            .args(["-R", &format!("{USER}:{USER}")])
            .arg(folder.path().join("home"))
            .status();
        assert!(own.unwrap().success());
        let ran = |keys: &str| typed(folder.path(), "--version; ./typed.sh", keys);
        let (code, told) = ran("n\n");
        assert_eq!(code, 2, "{example}: {told}");
        let (code, told) = ran("y\n");
        let question = format!("Let the gateway obey these {} files", files + 1);
        assert_eq!(
            (code, told.matches("Let the gateway obey").count()),
            (0, 1),
            "{example}: {told}"
        );
        assert!(told.contains(&question), "{example}: {told}");
        // It is asked once.
        let (code, told) = ran("");
        assert_eq!(
            (code, told.contains("Let the gateway obey")),
            (0, false),
            "{example}: {told}"
        );
        // A file that changes since is asked about alone, with what changed.
        let policy = format!("examples/{example}/policy.cedar");
        let changed = read(folder.path(), &policy) + "// Changed.\n";
        write(folder.path(), &policy, &changed);
        let (code, told) = ran("y\n");
        assert!(
            code == 0 && told.contains("Let the gateway obey this file"),
            "{example}: {told}"
        );
        assert!(told.contains("+ // Changed."), "{example}: {told}");
    }
}

const ANTHROPIC: &str = "sk-ant-api03-kq7Zp2wJtnbPxRfiCY8dLr5vHs3mGe9aTu1oXy6cBjKzWnDQ4iVf0gNhSlEpUwMrCxAtJb8yRk2vFd5qHe7z-AA";

#[test]
fn what_a_person_withheld_is_withheld_from_known_agents_too() {
    let folder = folder(USER);
    let at = folder.path();
    let shell = [("ANTHROPIC_API_KEY", ANTHROPIC)];
    let run = |profile: &str| {
        let run = ["exec", "-v", "--profile", profile, "--", "sh", "-c"];
        in_shell(
            at,
            &shell,
            &[&run[..], &["echo key=$ANTHROPIC_API_KEY,"]].concat(),
        )
    };
    for profile in ["claude", "opencode"] {
        let lent = run(profile);
        assert!(
            lent.contains("key=sk-ant-") && !lent.contains(ANTHROPIC),
            "{lent}"
        );
    }
    in_shell(
        at,
        &shell,
        &["project", "secrets", "--withhold", "anthropic"],
    );
    for profile in ["claude", "opencode"] {
        let withheld = run(profile);
        assert!(withheld.contains("key=,"), "{withheld}");
        assert!(
            withheld.contains("`--secret ANTHROPIC_API_KEY`"),
            "{withheld}"
        );
        assert!(
            !withheld.contains("none of ANTHROPIC_API_KEY"),
            "{withheld}"
        );
    }
}

#[test]
fn a_profile_opens_the_host_of_a_model_provider_only_with_a_key_that_is_lent() {
    let folder = folder(USER);
    let at = folder.path();
    let key = "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";
    let run = |flags: &[&str], key: &str| {
        let run = [
            &["exec", "-v"],
            flags,
            &["--profile", "goose", "--", "true"],
        ]
        .concat();
        in_shell(at, &[("GROQ_API_KEY", key)], &run)
    };
    let lent = run(&[], key);
    assert!(lent.contains("network  api.groq.com"), "{lent}");
    for (flags, key) in [(&["--no-lend"][..], key), (&[], "x"), (&[], "a b")] {
        let closed = run(flags, key);
        assert!(closed.contains("network  "), "{closed}");
        assert!(!closed.contains("api.groq.com"), "{closed}");
        assert!(!closed.contains("GROQ_API_KEY is not set"), "{closed}");
    }
}
