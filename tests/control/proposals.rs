//! What a workload proposes from inside, and a person answers outside: by the real program.

use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::sandbox::{exec, folder, user_command, wait_for};

fn outside(folder: &Path, arguments: &[&str]) -> Output {
    let output = user_command(folder, 0).args(arguments).output();
    output.unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a script in a sandbox of a user, whose project it may write.
fn inside(folder: &tempfile::TempDir, script: &str) -> std::process::Child {
    let project = folder.path().join("home/project");
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(&project, everybody).unwrap();
    let mut command = user_command(folder.path(), 0);
    command.args(["exec", "--", "sh", "-c", script]);
    exec(folder.path(), command)
}

const PROPOSE: &str = "curl -sS -w '%{http_code}' http://gateway.internal/proposals";

#[test]
fn a_person_grants_or_refuses_what_the_workload_proposes_and_it_sees_which() {
    let folder = folder(0);
    let project = folder.path().join("home/project");
    let script = format!(
        "curl -sS http://unlisted.test/ >/dev/null; \
         {PROPOSE} -d 'host=api.example.com&method=GET&path=/v1/models&why=to+list+models'; \
         {PROPOSE} -H 'Content-Type: application/json' \
           -d '{{\"host\":\"other.example.com:8443\",\"method\":\"POST\",\"path\":\"/x\",\"why\":\"\\u202egnp\"}}'; \
         touch sent; while [ ! -e go ]; do sleep 0.05; done; \
         curl -sS http://gateway.internal/proposals"
    );
    let child = inside(&folder, &script);
    wait_for("no proposal", || project.join("sent").exists());
    let listed = outside(folder.path(), &["proposals", "--json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let all = listed["proposals"].as_array().unwrap();
    assert_eq!(all.len(), 2, "{listed}");
    let of = |wanted: &str| {
        let one = all.iter().find(|one| one["wanted"] == wanted).unwrap();
        one["id"].as_str().unwrap().to_owned()
    };
    let (get, post) = (
        of("GET api.example.com/v1/models"),
        of("POST other.example.com:8443/x"),
    );
    // Nothing was changed by proposing, and nothing in the words steers a terminal.
    let plain = text(&outside(folder.path(), &["proposals"]).stdout);
    assert!(plain.contains("\"to list models\""), "{plain}");
    assert!(plain.contains("\\u{202e}gnp"), "{plain}");
    let allowed = outside(folder.path(), &["allow", &get, "--yes"]);
    let rule = text(&allowed.stdout);
    for part in [
        "\"api.example.com\"",
        "\"GET\"",
        "\"/v1/models\"",
        "applied",
    ] {
        assert!(rule.contains(part), "{part}: {allowed:?}");
    }
    for too_short in ["", &post[..3]] {
        let unclear = outside(folder.path(), &["deny", too_short]);
        assert!(!unclear.status.success(), "{unclear:?}");
    }
    let denied = outside(folder.path(), &["deny", &post[..12]]);
    assert!(denied.status.success(), "{denied:?}");
    let again = outside(folder.path(), &["deny", &post]);
    assert!(!again.status.success(), "{again:?}");
    let log = text(&outside(folder.path(), &["log"]).stdout);
    assert!(log.contains(&format!("proposed  {get} GET")), "{log}");
    assert!(log.contains("proposal.refuse"), "{log}");
    assert!(!log.contains("to list models"), "{log}");
    fs::write(project.join("go"), "").unwrap();
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stdout);
    assert_eq!(said.matches("\n202{").count(), 1, "{said}");
    for part in [
        "granted GET api.example.com",
        "refused POST other.example.com",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn a_refusal_is_proposed_by_its_id_and_what_waits_at_the_end_is_told() {
    let folder = folder(0);
    let script = format!(
        "curl -sS https://unlisted.test/a >/dev/null; \
         id=$(curl -sS http://gateway.internal/refused | grep -o '[0-9a-f]\\{{20\\}}' | head -1); \
         {PROPOSE} -d \"id=$id&why=please\"; {PROPOSE} -d \"id=$id&why=please\"; \
         {PROPOSE} -d 'id=00000000000000000000&why=guessed'; curl -sS http://gateway.internal/proposals"
    );
    let output = inside(&folder, &script).wait_with_output().unwrap();
    let (said, noted) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(said.matches("\n202{").count(), 2, "{said}");
    assert!(said.contains("404"), "{said}");
    assert_eq!(said.matches(" waiting unlisted.test ").count(), 1, "{said}");
    assert!(noted.contains("nobody answered the proposal"), "{noted}");
    assert!(noted.contains("\"please\""), "{noted}");
}

#[test]
fn what_no_rule_would_allow_what_is_malformed_and_what_is_too_much_is_refused_at_once() {
    let folder = folder(0);
    let request = |host: &str, path: &str, why: &str| {
        format!("-d 'host={host}&method=GET&path={path}&why={why}'")
    };
    let refused = [
        (request("169.254.169.254", "/latest", ""), "409"),
        (request("metadata.google.internal", "/", ""), "409"),
        (request("10.0.0.1", "/", ""), "409"),
        (request("gateway.internal", "/", ""), "409"),
        (request("a.test\") || true; //", "/", ""), "400"),
        (request("a.test", "/a/../b", ""), "400"),
        (request("a.test", "/", "%1b[31m%0agateway: granted"), "400"),
        (request("a.test", "/", &"x".repeat(300)), "400"),
        (format!("-d 'host=a.test&why={}'", "x".repeat(5000)), "413"),
        (
            "-d 'host=a.test&method=GET&path=/&policy=permit'".to_owned(),
            "400",
        ),
    ];
    let lines: Vec<String> = refused
        .iter()
        .map(|(flags, _)| format!("{PROPOSE} {flags}; echo"))
        .collect();
    let script = format!(
        "{}; {PROPOSE} {}; echo; curl -sS http://gateway.internal/proposals",
        lines.join("; "),
        request("a.test", "/", "")
    );
    let output = inside(&folder, &script).wait_with_output().unwrap();
    let said = text(&output.stdout);
    // Each answer is a line of JSON, and its status.
    let codes: Vec<&str> = said.lines().filter(|line| line.len() == 3).collect();
    let wanted = refused.iter().map(|(_, code)| *code).chain(["429"]);
    assert_eq!(
        codes,
        wanted.collect::<Vec<_>>(),
        "{said}\n{}",
        text(&output.stderr)
    );
    assert!(said.contains("Nothing was proposed."), "{said}");
}

#[test]
fn a_web_page_and_bytes_that_break_off_propose_nothing() {
    let folder = folder(0);
    let form = "Content-Type: application/x-www-form-urlencoded";
    let raw = "import socket; s = socket.create_connection((\"gateway.internal\", 80)); \
               s.sendall(b\"POST /proposals HTTP/1.1\\r\\nHost: gateway.internal\\r\\n\
Content-Type: application/json\\r\\nContent-Length: 100\\r\\n\\r\\n{\"); \
               s.shutdown(1); print(s.recv(99)[9:12].decode())";
    let script = format!(
        "{PROPOSE} -H 'Origin: https://evil.test' -H '{form}' -d 'host=a.test&method=GET&path=/'; echo; \
         {PROPOSE} -H 'Content-Type: text/plain' -d 'host=a.test&method=GET&path=/'; echo; \
         python3 -c '{raw}'; curl -sS http://gateway.internal/proposals"
    );
    let output = inside(&folder, &script).wait_with_output().unwrap();
    let said = text(&output.stdout);
    assert!(said.contains("403") && said.contains("415"), "{said}");
    assert!(
        said.contains("Nothing was proposed."),
        "{said} {}",
        text(&output.stderr)
    );
}
