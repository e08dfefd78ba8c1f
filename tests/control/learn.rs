//! `exec --learn` and `gateway init`: what a run needed, shown before anything is written.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{chown, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::program::{CANARY, origin};
use crate::sandbox::{exec, folder, user_command};

const USER: u32 = 12345;

/// A desk whose named configuration reaches a local origin by two hosts, and permits nothing.
fn desk() -> (tempfile::TempDir, String) {
    let folder = folder(USER);
    let at = origin();
    let origins: String = ["late.test", "more.test"]
        .map(|host| {
            format!(
                "[[origin]]\nmatch = \"http://{host}:8080\"\nconnect = \"{at}\"\ncleartext = true\n"
            )
        })
        .concat();
    fs::write(folder.path().join("home/named.toml"), &origins).unwrap();
    chown(
        folder.path().join("home/named.toml"),
        Some(USER),
        Some(USER),
    )
    .unwrap();
    (folder, origins)
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = user_command(folder, USER);
    command.args(arguments).stdin(Stdio::null());
    command.output().unwrap()
}

/// Runs a script with the file beside the project.
fn run_named(folder: &Path, flag: &str, script: &str) -> Output {
    let words = [
        "exec",
        flag,
        "--config",
        "../named.toml",
        "--",
        "sh",
        "-c",
        script,
    ];
    run(folder, &words)
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

fn file(folder: &Path) -> PathBuf {
    folder.join("home/project/gateway.toml")
}

/// Starts the program with a terminal of its own.
fn at_a_terminal(folder: &Path, line: &str) -> Child {
    let known = user_command(folder, USER);
    let line = format!("{} {line}", env!("CARGO_BIN_EXE_gateway"));
    Command::new("script")
        .env_clear()
        .envs(
            known
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .args(["-qec", &line, "/dev/null"])
        .current_dir(folder.join("home/project"))
        .uid(USER)
        .gid(USER)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Runs a line in a terminal, and answers the question that it ends with.
fn answered(folder: &Path, line: &str, answer: &str) -> (i32, String) {
    let mut child = at_a_terminal(folder, line);
    let mut keys = child.stdin.take().unwrap();
    let (mut shown, mut some) = (Vec::new(), [0; 4096]);
    let mut screen = child.stdout.take().unwrap();
    while !String::from_utf8_lossy(&shown).contains("[y/N]") {
        let read = screen.read(&mut some).unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&shown));
        shown.extend_from_slice(&some[..read]);
    }
    keys.write_all(answer.as_bytes()).unwrap();
    let _ = screen.read_to_end(&mut shown);
    let code = child.wait().unwrap().code().unwrap_or(-1);
    (code, String::from_utf8_lossy(&shown).into_owned())
}

const ASKS: &str =
    "curl -sS http://late.test:8080/ -o first; curl -sS -X PUT http://late.test:8080/two; exit 3";

/// An open sequence is ended, and letters are as usual again.
fn is_reset(text: &str) -> bool {
    let ended = text.find("\u{1b}\\");
    ended.is_some_and(|at| text[at..].contains("\u{1b}[!p"))
}

#[test]
fn what_a_command_did_to_the_terminal_does_not_hide_what_is_said_at_the_end() {
    let (folder, _origins) = desk();
    let script = "printf \"\\033[?1049h\\033[8m\\033]0;\"; curl -s http://unknown.test/ >/dev/null";
    let line = format!("exec --config ../named.toml -- sh -c '{script}'");
    let output = at_a_terminal(folder.path(), &line).wait_with_output();
    let shown = String::from_utf8_lossy(&output.unwrap().stdout).into_owned();
    let hidden = shown.split_once("\u{1b}[8m\u{1b}]0;");
    let (_, after) = hidden.expect("it was hidden");
    let (reset, _) = after.split_once("unknown.test").expect("it is told");
    assert!(is_reset(reset), "{shown}");
}

#[test]
fn a_run_that_is_learned_from_permits_nothing_and_proposes_the_least_policy_for_it() {
    let (folder, origins) = desk();
    let at = folder.path();
    let line = format!("exec --config ../named.toml --learn -- sh -c '{ASKS}'");
    // It leaves the terminal so that nothing of the question would be seen.
    let hidden = line.replace(
        ASKS,
        &format!("printf \"\\033[8m\\033]0;\"; stty raw -echo; {ASKS}"),
    );
    let (code, shown) = answered(at, &hidden, "n\n");
    assert_eq!(code, 3, "{shown}");
    let (_, after) = shown
        .split_once("\u{1b}[8m\u{1b}]0;")
        .expect("it was hidden");
    let (reset, asked) = after.split_once("proposed as").expect("it is asked");
    assert!(is_reset(reset), "{shown}");
    assert!(
        asked.contains("[y/N] n\r\n"),
        "the answer is not shown: {shown}"
    );
    assert!(
        !file(at).exists() && shown.contains("nothing was written"),
        "{shown}"
    );
    let first = fs::read_to_string(at.join("home/project/first")).unwrap();
    assert!(first.contains("policy_default_deny"), "{first}");
    let (code, shown) = answered(at, &line, "y\n");
    assert_eq!(code, 3, "{shown}");
    let text = fs::read_to_string(file(at)).unwrap();
    for rule in [
        "Gateway::Host::\"late.test\"",
        "action in [Gateway::Action::\"GET\"]",
        "context.path == \"/\"",
        "action in [Gateway::Action::\"PUT\"]",
        "context.port == 8080",
    ] {
        assert!(
            text.contains(rule) && shown.contains(rule),
            "{rule}: {text}\n{shown}"
        );
    }
    // The person who said yes has seen it: it is in force.
    let status = run(at, &["project", "status"]);
    assert!(said(&status).starts_with("allowed "), "{status:?}");
    assert!(said(&run(at, &["exec", "-v", "--", "true"])).contains("network  late.test"));
    // And it is what the run needed, and no more.
    fs::write(at.join("home/named.toml"), format!("{origins}{text}")).unwrap();
    let script = "curl -sS http://late.test:8080/; curl -sS http://late.test:8080/other | grep -o policy_default_deny";
    let again = run_named(at, "-q", script);
    assert_eq!(again.stdout, b"okpolicy_default_deny\n", "{again:?}");
}

#[test]
fn without_a_person_nothing_that_a_run_wanted_comes_into_force() {
    let (folder, _) = desk();
    let at = folder.path();
    let learn = |flags: &[&str]| {
        let flags = [&["exec", "--config", "../named.toml", "--learn"], flags].concat();
        run(at, &[&flags[..], &["--", "sh", "-c", ASKS]].concat())
    };
    let output = learn(&[]);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    assert!(
        said(&output).contains("nothing was written"),
        "{}",
        said(&output)
    );
    assert!(!file(at).exists());
    let output = learn(&["--yes"]);
    assert_eq!(output.status.code(), Some(3));
    // What the command printed is all that its output holds.
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!printed.contains("proposed as"), "{printed}");
    assert!(file(at).exists() && said(&output).contains("`gateway project allow`"));
    let next = run(at, &["exec", "-v", "--", "true"]);
    assert!(said(&next).contains("is not in force"), "{}", said(&next));
    assert!(said(&next).contains("network  nothing"), "{}", said(&next));
    let before = fs::read_to_string(file(at)).unwrap();
    let output = learn(&["--yes"]);
    assert!(
        said(&output).contains("is never overwritten"),
        "{}",
        said(&output)
    );
    assert_eq!(fs::read_to_string(file(at)).unwrap(), before);
}

#[test]
fn a_run_that_may_reach_any_host_does_so_alone_and_reaches_nothing_below_the_floor() {
    let (folder, _) = desk();
    let at = folder.path();
    let script = "curl -sS http://late.test:8080/; curl -sS http://more.test:8080/; \
                  curl -sS -H \"Authorization: Bearer $KEY\" http://more.test:8080/k; \
                  curl -sS http://169.254.169.254/";
    let flags = [
        "exec",
        "--config",
        "../named.toml",
        "--secret",
        "KEY@api.test",
    ];
    let permits = ["--learn=permit", "--yes", "--", "sh", "-c", script];
    let output = run(at, &[&flags[..], &permits].concat());
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(printed.starts_with("okok"), "{}", said(&output));
    assert!(
        !printed.contains(CANARY) && printed.contains("phantom_out_of_scope"),
        "{printed}"
    );
    assert!(
        said(&output).contains("may send anything to any host"),
        "{}",
        said(&output)
    );
    let text = fs::read_to_string(file(at)).unwrap();
    assert!(
        text.contains("more.test") && text.contains("name = \"KEY\""),
        "{text}"
    );
    let rules = text.lines().filter(|line| !line.starts_with("//"));
    assert!(
        rules.clone().all(|line| !line.contains("169.254")),
        "{text}"
    );
    let after = run(
        at,
        &["exec", "-v", "--config", "../named.toml", "--", "true"],
    );
    assert!(
        said(&after).contains("network  nothing"),
        "{}",
        said(&after)
    );
}

#[test]
fn init_proposes_by_the_folder_or_the_last_run_and_overwrites_nothing() {
    let (folder, _) = desk();
    let at = folder.path();
    fs::write(at.join("home/project/package.json"), "{}").unwrap();
    let output = run(at, &["init"]);
    assert!(
        !output.status.success() && !file(at).exists(),
        "{}",
        said(&output)
    );
    assert!(
        said(&output).contains("presets = [\"npm\"]"),
        "{}",
        said(&output)
    );
    let none = run(at, &["init", "--from-last-run", "--yes"]);
    assert!(
        said(&none).contains("no run in this project is known"),
        "{}",
        said(&none)
    );
    let (code, shown) = answered(at, "init", "y\n");
    assert_eq!(code, 0, "{shown}");
    let next = run(at, &["exec", "-v", "--", "true"]);
    assert!(
        said(&next).contains("registry.npmjs.org"),
        "{}",
        said(&next)
    );
    let output = run(at, &["init", "--yes"]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    fs::remove_file(file(at)).unwrap();
    symlink("/nowhere", file(at)).unwrap();
    let output = run(at, &["init", "--yes"]);
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    fs::remove_file(file(at)).unwrap();
    run_named(at, "-v", ASKS);
    let output = run(at, &["init", "--from-last-run", "--yes"]);
    assert!(output.status.success(), "{}", said(&output));
    assert!(fs::read_to_string(file(at)).unwrap().contains("late.test"));
}

#[test]
fn a_path_that_is_cut_in_the_log_is_learned_as_what_begins_alike() {
    let (folder, _) = desk();
    let at = folder.path();
    let ask = "curl -sS https://late.test/long$(printf %03000d 1) -o /dev/null";
    run_named(at, "-v", ask);
    let output = run(at, &["init", "--from-last-run", "--yes"]);
    assert!(output.status.success(), "{}", said(&output));
    let learned = fs::read_to_string(file(at)).unwrap();
    assert!(
        learned.contains("context.path like \"/long000"),
        "{learned}"
    );
}

#[test]
fn nothing_is_learned_from_a_log_that_does_not_hold() {
    let (folder, _) = desk();
    let at = folder.path();
    run_named(at, "-v", ASKS);
    let logs = fs::read_dir(at.join("home/.local/state/gateway/audit")).unwrap();
    let paths = logs.map(|entry| entry.unwrap().path());
    let log = paths.max_by_key(|path| path.metadata().unwrap().len());
    let log = log.unwrap();
    let text = fs::read_to_string(&log).unwrap();
    let added = text.replacen("late.test", "evil.test", 1);
    fs::write(&log, added).unwrap();
    let output = run(at, &["init", "--from-last-run", "--yes"]);
    assert!(!output.status.success() && !file(at).exists());
    for part in ["does not hold", ".jsonl:", "gateway log verify"] {
        assert!(said(&output).contains(part), "{}", said(&output));
    }
    assert!(!said(&output).contains("permit("), "{}", said(&output));
    fs::write(&log, text).unwrap();
    let output = run(at, &["init", "--from-last-run", "--yes"]);
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn a_run_that_is_learned_from_ends_with_its_signal() {
    let (folder, _) = desk();
    let at = folder.path();
    let mut command = user_command(at, USER);
    command.args(["exec", "-q", "--learn", "--", "sh", "-c"]);
    command.arg("trap 'exit 7' TERM; echo up; while :; do sleep 0.1; done");
    let mut child = exec(at, command);
    let pid = rustix::process::Pid::from_child(&child);
    let mut up = [0; 3];
    let mut said = child.stdout.take().unwrap();
    said.read_exact(&mut up).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(7), "{output:?}");
}
