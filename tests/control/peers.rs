//! Who is heard on the socket, and what can stand in its place (threats O01 to O04).

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use gateway::control::ROUTES;

use crate::program::{self, CANARY, Program, command};
use crate::sandbox;

#[test]
fn another_user_is_not_heard_even_if_the_socket_stands_open() {
    let program = Program::start("");
    let ask = || {
        let output = Command::new("setpriv")
            .args(["--reuid=12345", "--regid=12345", "--clear-groups"])
            .args([
                "/usr/bin/python3",
                "-c",
                CALL,
                program.socket.to_str().unwrap(),
            ])
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(ask(), "kept out\n");
    for folder in program.socket.ancestors().skip(1).take(3) {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::set_permissions(&program.socket, fs::Permissions::from_mode(0o666)).unwrap();
    assert_eq!(ask(), "connected\nclosed\n");
    assert_eq!(program.call("GET", "/healthz", "").0, 200);
}

#[test]
fn root_operates_the_gateway_of_another_user_by_its_socket_and_enters_no_sandbox_of_his() {
    let folder = sandbox::folder(12345);
    let mut command = sandbox::user_command(folder.path(), 12345);
    command.args(["exec", "-q", "--", "sleep", "60"]);
    let mut child = sandbox::exec(folder.path(), command);
    let name = format!("run/gateway/exec-{}.sock", gateway_process(&child));
    let socket = folder.path().join(name).display().to_string();
    let elsewhere = tempfile::tempdir().unwrap();
    let root = |arguments: &[&str]| program::gateway(elsewhere.path(), arguments);
    let (code, said) = root(&["session", "list", "--gateway", &socket]);
    assert!(code == 0 && said.contains("exec"), "{said}");
    let (code, said) = root(&["session", "pause", "exec", "--gateway", &socket]);
    assert_eq!(code, 0, "{said}");
    let (code, said) = root(&["exec", "--into", "exec", "--gateway", &socket, "--", "true"]);
    assert_eq!(code, 125, "{said}");
    assert!(said.contains("belongs to user 12345"), "{said}");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn the_socket_that_a_gateway_makes_where_it_is_told_to_is_no_change_of_its_configuration() {
    let mut program = Program::start("");
    let config = fs::read_to_string(program.path("gateway.toml")).unwrap();
    program.configure(&format!(
        "[control]\npath = \"run/gateway/serve-1.sock\"\n{config}"
    ));
    // Files are looked at every second.
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(
        program.json(&["status"])["gateways"][0]["policies"]["generation"],
        1
    );
    let log = fs::read_to_string(program.path("log")).unwrap();
    assert!(!log.contains("reloaded"), "{log}");
}

/// The only child of the launcher that is no sandbox: its gateway process.
fn gateway_process(launcher: &Child) -> u32 {
    let children = format!("/proc/{0}/task/{0}/children", launcher.id());
    let children = fs::read_to_string(children).unwrap();
    let first = children.split_whitespace().next().unwrap();
    first.parse().unwrap()
}

/// Calls the socket, and tells what became of it.
const CALL: &str = r#"
import socket, sys
call = socket.socket(socket.AF_UNIX)
try:
    call.connect(sys.argv[1])
    print("connected")
except PermissionError:
    sys.exit(print("kept out"))
try:
    call.sendall(b"GET /healthz HTTP/1.1\r\nHost: gateway\r\n\r\n")
    print(call.recv(100) or "closed")
except OSError:
    print("closed")
"#;

#[test]
fn a_web_page_is_refused_by_its_origin_and_by_a_name_of_its_own() {
    let program = Program::start("");
    let status = |fields: &str| {
        let answer = program.raw(&format!("POST /v1/reload HTTP/1.1\r\n{fields}\r\n"));
        answer.get(9..12).unwrap_or_default().to_owned()
    };
    assert_eq!(status("Host: gateway\r\n"), "200");
    assert_eq!(status("Host: localhost\r\n"), "200");
    for fields in [
        "Host: gateway\r\nOrigin: https://evil.test\r\n",
        "Host: gateway\r\nOrigin: null\r\n",
        "Host: evil.test\r\n",
        "Host: gateway.evil.test\r\n",
        "Host: 127.0.0.1\r\n",
        "",
        "Host: gateway\r\nHost: gateway\r\n",
    ] {
        assert!(
            ["403", "400"].contains(&status(fields).as_str()),
            "{fields}"
        );
    }
    let form = "Host: gateway\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}";
    let answer = program.raw(&format!("POST /v1/policies/allow HTTP/1.1\r\n{form}"));
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    assert_eq!(program.records("act").len(), 2);
}

#[test]
fn a_call_with_two_lengths_or_for_another_host_is_refused() {
    let program = Program::start("");
    for (head, status) in [
        (
            "GET http://gateway/healthz HTTP/1.1\r\nHost: gateway\r\n\r\n",
            "200",
        ),
        (
            "GET http://elsewhere.test/healthz HTTP/1.1\r\nHost: gateway\r\n\r\n",
            "400",
        ),
        (
            "POST /v1/reload HTTP/1.1\r\nHost: gateway\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "400",
        ),
        (
            "POST /v1/reload HTTP/1.1\r\nHost: gateway\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
            "400",
        ),
    ] {
        let answer = program.raw(head);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{head}: {answer}"
        );
    }
}

#[test]
fn no_route_answers_with_a_secret_or_a_phantom_or_a_status_that_is_not_documented() {
    let program = Program::start("");
    let phantoms = fs::read_to_string(program.path("phantoms.env")).unwrap();
    let phantom = phantoms
        .trim()
        .split_once('=')
        .unwrap()
        .1
        .trim_matches('\'')
        .to_owned();
    assert!(phantom.len() > 10 && phantom != CANARY);
    for route in &ROUTES {
        for (session, content) in [
            ("agent-1", "{\"last\":true}"),
            ("nobody", "{"),
            ("a%2fb", ""),
        ] {
            if route.path == "/v1/events" {
                continue;
            }
            let path = route.path.replace("{id}", session).replace("{name}", "key");
            let path = path.replace("{token}", &"0".repeat(32));
            let (status, answer) = program.call(route.method.as_str(), &path, content);
            let known = route.statuses.contains(&status) || [400, 403, 405, 500].contains(&status);
            assert!(known, "{} {path}: {status} {answer}", route.method);
            // A client of the session needs its phantoms.
            let is_for_client = route.path.ends_with("/environment");
            assert!(!answer.contains(CANARY), "{answer}");
            assert!(is_for_client || !answer.contains(&phantom), "{answer}");
        }
        let path = route.path.replace("{id}", "x").replace("{name}", "x");
        let path = path.replace("{token}", &"0".repeat(32));
        let answer = program.raw(&format!("DELETE {path} HTTP/1.1\r\nHost: gateway\r\n\r\n"));
        assert!(
            answer.starts_with("HTTP/1.1 405 "),
            "{}: {answer}",
            route.path
        );
        let same = ROUTES.iter().filter(|one| one.path == route.path);
        let methods: Vec<&str> = same.map(|one| one.method.as_str()).collect();
        let allowed = format!("allow: {}\r\n", methods.join(", "));
        assert!(
            answer
                .to_ascii_lowercase()
                .contains(&allowed.to_ascii_lowercase()),
            "{answer}"
        );
    }
    for path in [
        "/",
        "/v1",
        "/v1/",
        "/debug/pprof",
        "/v1/sessions/a/b/end",
        "/v1/status?x=1",
    ] {
        let (status, _) = program.call("GET", path, "");
        assert!([400, 404].contains(&status), "{path}: {status}");
    }
}

#[test]
fn a_policy_for_operators_narrows_what_they_may_and_a_refused_act_is_recorded() {
    let rules = r#"permit(principal, action in Gateway::Action::"read", resource);"#;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("operators.cedar");
    fs::write(&file, rules).unwrap();
    let program = Program::start(&format!("[control]\npolicy = {file:?}\n"));
    assert_eq!(program.gateway(&["status"]).0, 0);
    for act in [
        &["session", "pause", "agent-1"][..],
        &["reload"],
        &["allow", "x.test", "-y"],
        &["revoke", "key"],
    ] {
        let (code, said) = program.gateway(act);
        assert_eq!(code, 1, "{said}");
        assert!(
            said.contains("may not do") && said.contains("[control] policy"),
            "{said}"
        );
    }
    let acts = program.records("act");
    assert_eq!(acts.len(), 4);
    assert_eq!(acts[3]["subject"], "key");
    assert!(acts.iter().all(|act| act["decision"] == "deny"));
    assert_eq!(program.ask("http://stream.test/").0, 200);
}

/// Starts a gateway with this socket, which must fail; returns what it says.
fn refused(program: &Program, socket: &str) -> String {
    let config = fs::read_to_string(program.path("gateway.toml")).unwrap();
    let config = config
        .replace(
            &program.proxy.to_string(),
            &crate::program::free().to_string(),
        )
        .replace("audit/log.jsonl", "audit/second.jsonl");
    let second = program.path("second.toml");
    fs::write(&second, format!("{config}[control]\npath = {socket:?}\n")).unwrap();
    let output = command(program.folder.path())
        .args(["serve", "--config", "second.toml"])
        .stdout(Stdio::null())
        .output()
        .unwrap();
    assert!(!output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_living_gateways_socket_is_never_taken_and_a_dead_ones_is() {
    let mut program = Program::start("");
    let path = program.socket.to_str().unwrap().to_owned();
    let said = refused(&program, &path);
    assert!(
        said.contains("another running gateway has the control socket"),
        "{said}"
    );
    assert_eq!(program.call("GET", "/healthz", "").0, 200);
    let dead = program.socket.clone();
    program.restart_after_a_crash();
    // The start of the next command, or the next gateway, removes what nobody serves.
    assert_eq!(program.gateway(&["status"]).0, 0);
    assert!(!dead.exists() && program.socket.exists());
}

#[test]
fn a_link_a_file_or_a_folder_of_others_in_its_place_is_refused_and_untouched() {
    let program = Program::start("");
    let private = program.path("private");
    fs::create_dir(&private).unwrap();
    fs::set_permissions(&private, fs::Permissions::from_mode(0o700)).unwrap();
    let (link, target) = (private.join("a.sock"), private.join("target"));
    symlink(&target, &link).unwrap();
    let said = refused(&program, link.to_str().unwrap());
    assert!(said.contains("is no socket"), "{said}");
    assert!(link.is_symlink() && !target.exists());
    let to_folder = program.path("by-link");
    symlink(&private, &to_folder).unwrap();
    let said = refused(&program, to_folder.join("b.sock").to_str().unwrap());
    assert!(said.contains("a link"), "{said}");
    fs::set_permissions(&private, fs::Permissions::from_mode(0o770)).unwrap();
    let said = refused(&program, private.join("c.sock").to_str().unwrap());
    assert!(said.contains("open to other users"), "{said}");
    std::os::unix::fs::chown(&private, Some(12345), None).unwrap();
    fs::set_permissions(&private, fs::Permissions::from_mode(0o700)).unwrap();
    let said = refused(&program, private.join("d.sock").to_str().unwrap());
    assert!(said.contains("another user's"), "{said}");
}
