//! `gateway exec`: the operator outside reaches its control socket, and the command inside does not
//! (threats O01).

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::program::{command, gateway};

/// A user of the test: root runs the command as nobody, another user as themselves.
const USERS: [u32; 2] = [0, 12345];

/// A folder with a home, a project and a runtime directory of this user.
pub fn folder(uid: u32) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let all = ["", "home", "home/project", "run"].map(|name| folder.path().join(name));
    for path in &all {
        fs::create_dir_all(path).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        std::os::unix::fs::chown(path, Some(uid), Some(uid)).unwrap();
    }
    fs::set_permissions(&all[3], fs::Permissions::from_mode(0o700)).unwrap();
    folder
}

pub fn user_command(folder: &Path, uid: u32) -> Command {
    let mut command = command(folder);
    command
        .env("HOME", folder.join("home"))
        .current_dir(folder.join("home/project"));
    if uid != 0 {
        command.uid(uid).gid(uid);
    }
    command
}

pub fn wait_for(what: &str, mut found: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !found() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Runs a script in a sandbox, and waits for its control socket.
fn exec_script(folder: &Path, uid: u32, script: &str) -> Child {
    let mut command = user_command(folder, uid);
    command.args(["exec", "-v", "--", "sh", "-c", script]);
    exec(folder, command)
}

/// Starts a command that makes a control socket, and waits for it.
pub fn exec(folder: &Path, mut command: Command) -> Child {
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let run = folder.join("run/gateway");
    let is_socket = |entry: fs::DirEntry| entry.path().extension().is_some_and(|end| end == "sock");
    wait_for("no control socket", || {
        let mut entries = fs::read_dir(&run).into_iter().flatten().flatten();
        entries.any(is_socket)
    });
    child
}

#[test]
fn the_command_inside_finds_no_control_socket_by_any_way() {
    for uid in USERS {
        let folder = folder(uid);
        let run = folder.path().join("run/gateway").display().to_string();
        // Waits until the operator's side has seen the socket, then looks for it.
        let script = format!(
            "while [ ! -e go ]; do sleep 0.05; done; ls -la {run}/ 2>&1; find / -xdev -type s 2>/dev/null; \
             find / -name 'exec-*.sock' 2>/dev/null; cat /proc/net/unix | grep -a exec- ; \
             ls -l /proc/*/fd 2>/dev/null | grep -a socket; grep -a gateway /proc/self/mountinfo; echo looked"
        );
        let child = exec_script(folder.path(), uid, &script);
        let state = user_command(folder.path(), uid)
            .args(["status", "--json"])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&state.stdout).into_owned();
        assert!(said.contains(r#""kind":"exec""#), "{uid}: {said}");
        let go = folder.path().join("home/project/go");
        fs::write(&go, "").unwrap();
        let output = child.wait_with_output().unwrap();
        let found = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(found.ends_with("looked\n"), "{uid}: {found}");
        assert!(!found.contains("exec-"), "{uid}: {found}");
        wait_for("the socket stays after the end", || {
            fs::read_dir(folder.path().join("run/gateway"))
                .unwrap()
                .count()
                == 0
        });
    }
}

#[test]
fn an_ended_session_leaves_the_command_without_network_and_the_summary_says_so() {
    let folder = folder(0);
    let script = "while [ ! -e go ]; do sleep 0.05; done; echo still here; sleep 0.2";
    let child = exec_script(folder.path(), 0, script);
    let ended = user_command(folder.path(), 0)
        .args(["session", "end", "exec"])
        .output()
        .unwrap();
    assert!(ended.status.success(), "{ended:?}");
    fs::write(folder.path().join("home/project/go"), "").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(output.stdout, b"still here\n");
    let noted = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(noted.contains("an operator ended the session"), "{noted}");
}

#[test]
fn a_control_socket_in_the_commands_own_folder_is_refused() {
    let folder = folder(0);
    let project = folder.path().join("home/project");
    let config = format!("[control]\npath = \"{}/c/x.sock\"\n", project.display());
    fs::write(folder.path().join("home/gateway.toml"), config).unwrap();
    let refused = user_command(folder.path(), 0)
        .args(["exec", "--config", "../gateway.toml", "--", "true"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("is the command's, which could end"), "{said}");
}

#[test]
fn what_an_operator_grants_in_a_project_holds_in_its_next_run_and_in_no_other_project() {
    let folder = folder(0);
    let script = "while [ ! -e go ]; do sleep 0.05; done";
    let child = exec_script(folder.path(), 0, script);
    let granted = user_command(folder.path(), 0)
        .args(["allow", "api.example.com", "--yes", "--json"])
        .output()
        .unwrap();
    let said: serde_json::Value = serde_json::from_slice(&granted.stdout).unwrap();
    assert_eq!(said["applied"], true, "{granted:?}");
    let file = said["file"].as_str().unwrap();
    assert!(file.contains("/.local/state/gateway/projects/"), "{file}");
    fs::write(folder.path().join("home/project/go"), "").unwrap();
    child.wait_with_output().unwrap();
    // `go` is there: the next run resolves the name, and ends.
    let resolve = [
        "exec",
        "-q",
        "--dns",
        "strict",
        "--",
        "getent",
        "hosts",
        "api.example.com",
    ];
    let again = user_command(folder.path(), 0)
        .args(resolve.iter().filter(|word| **word != "-q"))
        .output()
        .unwrap();
    assert!(again.status.success(), "{again:?}");
    // It is told why it may, and where to take that back.
    let told = String::from_utf8_lossy(&again.stderr);
    let line = told.lines().find(|line| line.contains(" granted "));
    let back = "`gateway grants remove N` takes it back";
    assert!(line.is_some_and(|line| line.contains(back)), "{told}");
    let other = folder.path().join("home/other");
    fs::create_dir(&other).unwrap();
    let mut elsewhere = user_command(folder.path(), 0);
    let elsewhere = elsewhere
        .args(resolve)
        .current_dir(&other)
        .output()
        .unwrap();
    assert!(!elsewhere.status.success());
    let (code, _) = gateway(folder.path(), &["status"]);
    assert_eq!(code, 1);
}

/// Changes the configuration of a running `gateway exec`, once by each line, which must be refused.
pub fn refuses_to_reload(section: &str, lines: &[String]) {
    let folder = folder(0);
    let config = folder.path().join("gateway.toml");
    fs::write(&config, section).unwrap();
    let mut child = user_command(folder.path(), 0)
        .args([
            "exec",
            "--config",
            "../../gateway.toml",
            "--",
            "sleep",
            "60",
        ])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for("the command", || {
        let (code, said) = gateway(folder.path(), &["session", "list"]);
        code == 0 && said.contains("exec")
    });
    for line in lines {
        fs::write(&config, format!("{section}{line}\n")).unwrap();
        let (code, said) = gateway(folder.path(), &["reload"]);
        assert!(code != 0 && said.contains("`[sandbox]`"), "{line}: {said}");
    }
    fs::write(&config, section).unwrap();
    let (code, said) = gateway(folder.path(), &["reload"]);
    assert_eq!(code, 0, "{said}");
    child.kill().unwrap();
    child.wait().unwrap();
}
