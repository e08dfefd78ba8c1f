//! What outlives a sandbox of an agent, and what does not: over new phantoms, over other variables,
//! over files that the user showed once, and over two sandboxes at the same time.
//!
//! Run as an ordinary user, whom no system has.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const USER: u32 = 40966;
const REAL: &str = "ghp_C4n4ryC4n4ryC4n4ryC4n4ryC4n4ry0kPLHd";
/// Like what a login inside the sandbox leaves.
const LOGIN: &str = "sk-ant-oat01-Zx81kQmLpTnWc5RjYb3HvGs7DfKe9AqUoX2";

struct Desk {
    folder: tempfile::TempDir,
}

impl Desk {
    fn new() -> Self {
        let folder = tempfile::tempdir_in("/srv").unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let desk = Self { folder };
        desk.write("tools/claude", "#!/bin/sh\nexec sh -ec \"$1\"\n");
        desk.write("home/.claude/settings.json", "as the user wrote");
        desk.write("one/file", "one");
        desk
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, content: &str) {
        let path = self.at(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let below = |path: &&std::path::Path| *path != self.folder.path();
        for own in path.ancestors().take_while(below) {
            chown(own, Some(USER), Some(USER)).unwrap();
        }
    }

    /// Runs the agent with a script of its own.
    fn command(&self, flags: &[&str], script: &str) -> Command {
        let tools = self.at("tools");
        let mut command = Command::new(env!("CARGO_BIN_EXE_gateway"));
        command
            .arg("exec")
            .args(flags)
            .arg("--see")
            .arg(&tools)
            .args(["--", "claude", script])
            .current_dir(self.at("one"))
            .env_clear()
            .env("HOME", self.at("home"))
            .env("PATH", format!("{}:/usr/bin:/bin", tools.display()))
            .env("GITHUB_TOKEN", REAL)
            .stdin(Stdio::null())
            .uid(USER)
            .gid(USER);
        command
    }

    fn agent(&self, flags: &[&str], script: &str) -> String {
        said(self.command(flags, script))
    }

    /// A file of the agent's home, as it is kept.
    fn kept(&self, name: &str) -> PathBuf {
        let projects = fs::read_dir(self.at("home/.local/state/gateway/projects"));
        let mut homes = projects.unwrap().map(|one| one.unwrap().path());
        homes.next().unwrap().join("home").join(name)
    }

    /// Starts the agent, which waits until the file `one/go-NAME` is there.
    fn waiting(&self, name: &str, script: &str) -> Child {
        let wait =
            format!("{script}; echo > up-{name}; until [ -e go-{name} ]; do sleep 0.05; done");
        let child = self.command(&["-q"], &wait).spawn().unwrap();
        until(|| self.at(&format!("one/up-{name}")).exists());
        child
    }

    fn release(&self, name: &str, mut child: Child) {
        self.write(&format!("one/go-{name}"), "");
        assert!(child.wait().unwrap().success());
    }
}

fn said(mut command: Command) -> String {
    let output = command.output().unwrap();
    let all = [output.stdout, output.stderr].concat();
    let all = String::from_utf8_lossy(&all).into_owned();
    assert!(!all.contains(REAL), "{all}");
    all
}

fn until(holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(60), "it never held");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn what_an_agent_wrote_with_a_former_phantom_is_kept() {
    let desk = Desk::new();
    desk.agent(&["-q"], "printenv GITHUB_TOKEN > ~/.claude/log");
    let former = fs::read_to_string(desk.kept(".claude/log")).unwrap();
    let second = desk.agent(
        &["-q", "--fresh"],
        "cat ~/.claude/log; printenv GITHUB_TOKEN",
    );
    let lines: Vec<&str> = second.lines().collect();
    assert_eq!(lines[0], former.trim());
    assert_ne!(lines[0], lines[1], "the phantom is another");
    // Neither a run that has no token at all nor the one after it takes the file for a login.
    let mut without = desk.command(&["-q"], "cat ~/.claude/log");
    without.env_remove("GITHUB_TOKEN");
    assert_eq!(said(without), former);
    assert_eq!(desk.agent(&["-q"], "cat ~/.claude/log"), former);
    desk.agent(&["-q"], &format!("echo {LOGIN} >> ~/.claude/log"));
    assert!(!desk.kept(".claude/log").exists(), "a login is no phantom");
}

#[test]
fn a_file_that_the_user_showed_once_is_not_kept() {
    let desk = Desk::new();
    let show = ["-q", "--see-home", ".claude/settings.json"];
    let change = "cat ~/.claude/settings.json; echo mine > ~/.claude/settings.json; echo own > ~/.claude/own";
    let first = desk.agent(&show, change);
    assert!(first.starts_with("as the user wrote"), "{first}");
    assert!(!desk.kept(".claude/settings.json").exists());
    let look = "ls -A ~/.claude";
    assert_eq!(desk.agent(&["-q"], look), "own\n");
    // Nor when the gateway was killed before it could remove its copy.
    let wait = "echo > up; sleep 60";
    let mut running = desk.command(&show, wait).spawn().unwrap();
    until(|| desk.at("one/up").exists());
    assert!(desk.kept(".claude/settings.json").exists());
    let children = format!("/proc/{0}/task/{0}/children", running.id());
    let children = fs::read_to_string(children).unwrap();
    let own = running.id().to_string();
    for process in children.split_whitespace().chain([own.as_str()]) {
        let process = rustix::process::Pid::from_raw(process.parse().unwrap()).unwrap();
        rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
    }
    running.wait().unwrap();
    assert_eq!(desk.agent(&["-q"], look), "own\n");
    let state = fs::read_to_string(desk.at("home/.claude/settings.json")).unwrap();
    assert_eq!(state, "as the user wrote");
}

#[test]
fn the_last_of_two_sandboxes_looks_for_both() {
    let desk = Desk::new();
    let leave = |name: &str| format!("echo {LOGIN} > ~/.claude/{name}");
    let first = desk.waiting("first", &leave("first"));
    let second = desk.waiting("second", &leave("second"));
    desk.release("first", first);
    let kept = |name: &str| desk.kept(&format!(".claude/{name}"));
    assert!(kept("first").exists() && kept("second").exists());
    desk.release("second", second);
    until(|| !kept("first").exists() && !kept("second").exists());
    let beside = fs::read_dir(kept("first").ancestors().nth(3).unwrap()).unwrap();
    let names = beside.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let marks: Vec<String> = names.filter(|name| name.contains("in-use")).collect();
    assert!(marks.is_empty(), "{marks:?}");
}

#[test]
fn a_forgotten_home_is_gone_however_deep_it_was() {
    let desk = Desk::new();
    let deep = "cd ~/.claude; for i in $(seq 300); do mkdir d; cd d; done";
    let said = desk.agent(&[], deep);
    assert!(said.contains("not kept the agent's whole home"), "{said}");
    let second = desk.agent(&["-q"], "ls -A ~/.claude");
    assert_eq!(second, "");
    let project = desk.kept("").parent().unwrap().to_owned();
    until(|| {
        // What one run has no time for is removed at the end of the next.
        assert_eq!(desk.agent(&["-q"], "ls -A ~/.claude"), "");
        let names = fs::read_dir(&project).unwrap();
        let mut names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        !names.any(|name| name.contains("forgotten"))
    });
}

#[test]
fn what_the_system_refuses_is_125_and_what_is_wrong_with_flags_and_files_is_2() {
    let desk = Desk::new();
    let code = |mut command: Command| command.output().unwrap().status.code();
    assert_eq!(code(desk.command(&["--write", "/nosuch"], "true")), Some(2));
    desk.write("home/bad.cedar", "permit(principal");
    let policy = desk.at("home/bad.cedar");
    for quiet in [&["-q"][..], &[]] {
        let flags = [quiet, &["--policy", policy.to_str().unwrap()]].concat();
        assert_eq!(code(desk.command(&flags, "true")), Some(2), "{flags:?}");
    }
    // Another program keeps the project for itself.
    let project = fs::File::open(desk.at("one")).unwrap();
    project.lock().unwrap();
    let output = desk.command(&["-q"], "true").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(
        said.contains("a project is locked by another program"),
        "{said}"
    );
}
