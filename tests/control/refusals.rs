//! Refusals as programs in the sandbox show them, and the way from a refusal to the request that
//! works: by the real program, with real clients.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use crate::program::CANARY;
use crate::sandbox::{exec, folder, user_command, wait_for};

/// The project, which the command may write to though it is another user.
fn writable_project(folder: &tempfile::TempDir) -> PathBuf {
    let project = folder.path().join("home/project");
    fs::set_permissions(&project, fs::Permissions::from_mode(0o777)).unwrap();
    project
}

/// From the refusal's own text, by a person at a terminal, to the request that works.
#[test]
fn the_command_that_a_refusal_names_makes_the_next_request_work() {
    let folder = folder(0);
    let project = writable_project(&folder);
    let origin = crate::program::origin();
    let config = format!(
        "[[origin]]\nmatch = \"http://late.test:8080\"\nconnect = \"{origin}\"\ncleartext = true\n"
    );
    fs::write(folder.path().join("home/gateway.toml"), config).unwrap();
    let script = "curl -sS http://late.test:8080/ > first; touch asked; \
                  while [ ! -e go ]; do sleep 0.05; done; curl -sS http://late.test:8080/";
    let child = {
        let mut command = user_command(folder.path(), 0);
        command.args([
            "exec",
            "--config",
            "../gateway.toml",
            "--",
            "sh",
            "-c",
            script,
        ]);
        exec(folder.path(), command)
    };
    wait_for("no request was refused", || project.join("asked").exists());
    let first = fs::read_to_string(project.join("first")).unwrap();
    let told = first
        .split('`')
        .find(|part| part.starts_with("gateway allow "))
        .unwrap();
    assert_eq!(told, "gateway allow late.test:8080", "{first}");
    assert!(first.contains("\"retry\":false"), "{first}");
    // The very command, with a person who says yes.
    let program = env!("CARGO_BIN_EXE_gateway");
    let line = told.replacen("gateway", program, 1);
    let mut person = std::process::Command::new("script");
    let mut person = person
        .current_dir(&project)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", folder.path().join("home"))
        .env("XDG_RUNTIME_DIR", folder.path().join("run"))
        .args(["-qec", &line, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut keys = person.stdin.take().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    keys.write_all(b"y\n").unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    drop(keys);
    let said = person.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains("context.port == 8080"), "{said}");
    assert!(said.contains("as generation 2"), "{said}");
    // From then on nobody is told to allow it once more.
    for command in [&["why", "--last"][..], &["allow", "--last"]] {
        let mut again = user_command(folder.path(), 0);
        let again = again.args(command).output().unwrap();
        let said = [again.stdout, again.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(
            said.contains("it is allowed meanwhile"),
            "{command:?}: {said}"
        );
        assert!(said.contains("send it again"), "{command:?}: {said}");
    }
    fs::write(project.join("go"), "").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.stdout, b"ok", "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("it is allowed meanwhile"), "{said}");
    assert!(!said.contains("permits it"), "{said}");
}

/// Threats H10, O01: the pages show the session's own facts, and neither a secret nor a phantom.
#[test]
fn a_workload_sees_its_own_session_and_nothing_else() {
    let folder = folder(0);
    let script = "curl -sS https://unlisted.test/ >/dev/null; curl -sS http://gateway.internal/; \
                  curl -sS -H 'Accept: application/json' https://gateway.internal/refused; \
                  curl -sS http://gateway.internal/skill.md; \
                  curl -sS http://gateway.internal/ca.pem; \
                  curl -sS -X POST -w '%{http_code}' -o /dev/null http://gateway.internal/; \
                  curl -sS -w '%{http_code}' -o /dev/null http://gateway.internal/nothing; \
                  curl -sS -X PUT -D - -o /dev/null http://gateway.internal/env | grep -i ^allow; \
                  curl -sS -X PUT -D - -o /dev/null http://gateway.internal/proposals | grep -i ^allow; \
                  echo; echo phantom=$TOKEN";
    let output = user_command(folder.path(), 0)
        .args(["exec", "-q", "--secret", "TOKEN@api.test=env:KEY", "--"])
        .args(["sh", "-c", script])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    for part in [
        "You are in session `exec`",
        "Reached: api.test",
        "Lent: TOKEN (TOKEN) to api.test",
        "unlisted.test policy_default_deny",
        "`gateway allow ",
        "\"to\":\"unlisted.test\"",
        "---\nname: gateway\n",
        "- `policy_default_deny`: ",
        "-----BEGIN CERTIFICATE-----",
        "405404allow: GET, HEAD\r\nallow: GET, HEAD, POST\r\n",
    ] {
        assert!(said.contains(part), "{part}: {said}\n{output:?}");
    }
    let (pages, phantom) = said.split_once("phantom=").unwrap();
    assert!(!pages.contains(phantom.trim()), "{said}");
    assert!(!said.contains(CANARY), "{said}");
    assert!(!said.contains("PRIVATE KEY"), "{said}");
}

#[test]
fn nothing_is_proposed_or_granted_below_the_floor() {
    let folder = folder(0);
    let project = writable_project(&folder);
    let script = "curl -sS http://169.254.169.254/a%2fb http://plain.test/a%2fb > malformed; \
                  curl -sS http://169.254.169.254/latest/ > metadata; \
                  while [ ! -e go ]; do sleep 0.05; done";
    let mut command = user_command(folder.path(), 0);
    command.args(["exec", "-q", "--", "sh", "-c", script]);
    let child = exec(folder.path(), command);
    wait_for("no answer", || {
        fs::read(project.join("metadata")).is_ok_and(|text| !text.is_empty())
    });
    let text = fs::read_to_string(project.join("metadata")).unwrap();
    assert!(!text.contains("gateway allow"), "{text}");
    let malformed = fs::read_to_string(project.join("malformed")).unwrap();
    let codes = malformed.matches("policy_default_deny").count();
    assert!(
        codes == 2 && !malformed.contains("gateway allow"),
        "{malformed}"
    );
    for arguments in [
        &["allow", "--last", "--yes"][..],
        &["allow", "169.254.169.254", "--yes"],
        &["allow", "metadata.google.internal", "--yes"],
        &["allow", "gateway.internal", "--yes"],
        &["allow", "10.0.0.1", "--yes"],
    ] {
        let output = user_command(folder.path(), 0)
            .args(arguments)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{arguments:?}");
        assert!(!said.contains("permit("), "{arguments:?}: {said}");
    }
    let why = user_command(folder.path(), 0)
        .args(["why", "--last"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&why.stdout).into_owned();
    assert!(
        said.contains("no rule would allow `169.254.169.254`"),
        "{said}"
    );
    assert!(!said.contains("permit("), "{said}");
    // A URL says which host is meant.
    let url = ["allow", "https://api.example.com/v1/x?y=1", "--yes"];
    let output = user_command(folder.path(), 0).args(url).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        said.contains("Gateway::Host::\"api.example.com\""),
        "{output:?}"
    );
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("every path of the host"), "{told}");
    fs::write(project.join("go"), "").unwrap();
    child.wait_with_output().unwrap();
}

#[test]
fn a_request_for_another_host_than_its_connection_is_logged_with_that_of_the_connection() {
    let folder = folder(0);
    let mut command = user_command(folder.path(), 0);
    let ask = "curl -sS -H 'Host: other.test' https://unlisted.test/";
    command.args(["exec", "-v", "--", "sh", "-c", ask]);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("authority_mismatch"), "{said}");
    for (arguments, told) in [
        (&["log"][..], "GET unlisted.test  authority_mismatch"),
        (&["why", "--last"], "GET https://unlisted.test:443"),
    ] {
        let mut command = user_command(folder.path(), 0);
        let output = command.args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains(told), "{said}");
    }
}

#[test]
fn the_log_has_each_refusal_once_with_its_run_and_tells_projects_apart() {
    let folder = folder(0);
    let project = writable_project(&folder);
    let program = Path::new(env!("CARGO_BIN_EXE_gateway"));
    let script = format!(
        "curl -sS https://unlisted.test/secret-argument > answer; {} why --last 2> told",
        program.display()
    );
    let mut command = user_command(folder.path(), 0);
    command.args(["exec", "-q", "--see"]).arg(program);
    command.args(["--", "sh", "-c", &script]);
    let ran = command.output().unwrap();
    // What the model reads of it.
    let answer = fs::read_to_string(project.join("answer")).unwrap();
    assert!(answer.len() < 450, "{answer}");
    assert_eq!(
        answer.matches("gateway allow unlisted.test").count(),
        1,
        "{answer}"
    );
    let told = fs::read_to_string(project.join("told")).unwrap();
    assert!(
        told.contains("curl http://gateway.internal/refused"),
        "{told} {ran:?}"
    );
    let log = |arguments: &[&str], at: &Path| {
        let mut log = user_command(folder.path(), 0);
        let said = log
            .arg("log")
            .args(arguments)
            .current_dir(at)
            .output()
            .unwrap();
        String::from_utf8_lossy(&said.stdout).into_owned()
    };
    let heading = format!("sh in {}\n", project.display());
    let said = log(&["--refused", "--here"], &project);
    assert!(said.starts_with(&heading), "{said}");
    assert_eq!(said.matches("unlisted.test").count(), 1, "{said}");
    assert!(said.contains("policy_default_deny"), "{said}");
    // The machine's form has every record, the lookup's too.
    let all = log(&["--refused", "--json"], &project);
    assert_eq!(
        all.matches("\"host\":\"unlisted.test\"").count(),
        2,
        "{all}"
    );
    let elsewhere = folder.path().join("home");
    assert_eq!(log(&["--here"], &elsewhere), "");
    assert!(log(&[], &elsewhere).contains(&heading));
}
