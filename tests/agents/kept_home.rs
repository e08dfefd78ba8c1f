//! What outlives a sandbox of an agent, and what does not: over new phantoms, over other variables,
//! over files that the user showed once, and over two sandboxes at the same time.

use std::fs;
use std::process::Command;

use crate::desk::{Desk, LOGIN, until};

#[test]
fn what_an_agent_wrote_with_a_former_phantom_is_kept() {
    let desk = Desk::bare();
    let lent = ["-q", "--secret", "GITHUB_TOKEN"];
    desk.agent("one", &lent, "printenv GITHUB_TOKEN > ~/.claude/log");
    let former = fs::read_to_string(desk.kept(".claude/log")).unwrap();
    let second = desk.agent(
        "one",
        &["-q", "--fresh", "--secret", "GITHUB_TOKEN"],
        "cat ~/.claude/log; printenv GITHUB_TOKEN",
    );
    let lines: Vec<&str> = second.lines().collect();
    assert_eq!(lines[0], former.trim());
    assert_ne!(lines[0], lines[1], "the phantom is another");
    // Neither a run that has no token at all nor the one after it takes the file for a login.
    let mut without = desk.claude(&["-q"], "cat ~/.claude/log");
    let without = without.env_remove("GITHUB_TOKEN").output().unwrap();
    assert_eq!(without.stdout, former.as_bytes(), "{without:?}");
    assert_eq!(desk.agent("one", &["-q"], "cat ~/.claude/log"), former);
    desk.agent("one", &["-q"], &format!("echo {LOGIN} >> ~/.claude/log"));
    assert!(!desk.kept(".claude/log").exists(), "a login is no phantom");
}

#[test]
fn a_file_that_the_user_showed_once_is_not_kept() {
    let desk = Desk::bare();
    desk.write("home/.claude/settings.json", "as the user wrote");
    let show = ["-q", "--see-home", ".claude/settings.json"];
    let change = "cat ~/.claude/settings.json; echo mine > ~/.claude/settings.json; echo own > ~/.claude/own";
    let first = desk.agent("one", &show, change);
    assert!(first.starts_with("as the user wrote"), "{first}");
    assert!(!desk.kept(".claude/settings.json").exists());
    let look = "ls -A ~/.claude";
    assert_eq!(desk.agent("one", &["-q"], look), "own\n");
    // Nor when the gateway was killed before it could remove its copy.
    let wait = "echo > up; sleep 60";
    let mut running = desk.claude(&show, wait).spawn().unwrap();
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
    assert_eq!(desk.agent("one", &["-q"], look), "own\n");
    let state = fs::read_to_string(desk.at("home/.claude/settings.json")).unwrap();
    assert_eq!(state, "as the user wrote");
}

#[test]
fn the_last_of_two_sandboxes_looks_for_both() {
    let desk = Desk::bare();
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
fn git_runs_nothing_of_a_kept_home() {
    let desk = Desk::bare();
    let script = "cd ~/.claude; git init -q .; git config core.fsmonitor 'touch '$PWD/ran; git init -q --bare bare; git -C bare config core.bare false
        git -C bare config core.worktree .; git -C bare config core.fsmonitor 'touch '$PWD/ran; touch .git/kept-message; rm ran";
    for _ in 0..2 {
        desk.agent("one", &["-q"], script);
        for folder in ["", "bare"] {
            let folder = desk.kept(".claude").join(folder);
            let status = Command::new("git")
                .arg("-C")
                .arg(&folder)
                .args(["-c", "safe.directory=*", "status"])
                .output();
            assert!(status.is_ok(), "{folder:?}");
        }
        let left = desk.agent(
            "one",
            &["-q"],
            "ls -A ~/.claude ~/.claude/.git; cat ~/.claude/.git/config",
        );
        assert!(
            !left.contains("ran\n") && !left.contains("fsmonitor"),
            "{left}"
        );
        assert!(
            left.contains(".git.off-") && !left.contains(".git\n"),
            "{left}"
        );
    }
}

#[test]
fn a_forgotten_home_is_gone_however_deep_it_was() {
    let desk = Desk::bare();
    let deep = "cd ~/.claude; for i in $(seq 300); do mkdir d; cd d; done";
    let said = desk.agent("one", &[], deep);
    assert!(said.contains("not kept the agent's whole home"), "{said}");
    let second = desk.agent("one", &["-q"], "ls -A ~/.claude");
    assert_eq!(second, "");
    let project = desk.kept("").parent().unwrap().to_owned();
    until(|| {
        // What one run has no time for is removed at the end of the next.
        assert_eq!(desk.agent("one", &["-q"], "ls -A ~/.claude"), "");
        let names = fs::read_dir(&project).unwrap();
        let mut names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        !names.any(|name| name.contains("forgotten"))
    });
}

#[test]
fn what_the_system_refuses_is_125_and_what_is_wrong_with_flags_and_files_is_2() {
    let desk = Desk::bare();
    let code = |mut command: Command| command.output().unwrap().status.code();
    assert_eq!(code(desk.claude(&["--write", "/nosuch"], "true")), Some(2));
    desk.write("home/bad.cedar", "permit(principal");
    let policy = desk.at("home/bad.cedar");
    for quiet in [&["-q"][..], &[]] {
        let flags = [quiet, &["--policy", policy.to_str().unwrap()]].concat();
        assert_eq!(code(desk.claude(&flags, "true")), Some(2), "{flags:?}");
    }
    // Another program keeps the project for itself.
    let project = fs::File::open(desk.at("one")).unwrap();
    project.lock().unwrap();
    let output = desk.claude(&["-q"], "true").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(
        said.contains("a project is locked by another program"),
        "{said}"
    );
}

#[test]
fn what_package_managers_download_is_kept_for_the_project_where_the_user_has_none() {
    let desk = Desk::bare();
    desk.write("home/.npm/_cacache/theirs", "as the user has it");
    let run = |project: &str, flags: &[&str], script: &str| {
        let mut command = desk.command(
            project,
            &[flags, &["-q", "--", "sh", "-c", script]].concat(),
        );
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let load = "for one in .cargo/registry .cache/pip .cache/uv .npm/_cacache; do echo piece > ~/$one/piece; done";
    assert_eq!(run("one", &[], load), "");
    let look = "cd; ls .cargo/registry .cache/pip .cache/uv .npm/_cacache";
    let kept = ".cache/pip:\npiece\n\n.cache/uv:\npiece\n\n.cargo/registry:\npiece\n\n.npm/_cacache:\ntheirs\n";
    assert_eq!(run("one", &[], look), kept);
    let none = kept.replace("piece\n", "");
    assert_eq!(run("two", &[], look), none);
    assert_eq!(run("one", &["--fresh-home"], look), none);
    // The user's own home has nothing of it, and what a command wrote there is never obeyed.
    assert!(!desk.at("home/.cargo").exists() && !desk.at("home/.npm/_cacache/piece").exists());
    let kept = desk.at("home/.local/state/gateway/sessions/user.db");
    let kept = rusqlite::Connection::open(kept).unwrap();
    let noted = "SELECT count(*) > 0 FROM kept WHERE kind = 'writable' AND CAST(name AS TEXT) LIKE '%/caches'";
    assert!(
        kept.query_row(noted, [], |row| row.get::<_, bool>(0))
            .unwrap()
    );
}
