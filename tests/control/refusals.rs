//! Refusals as programs in the sandbox show them, and the way from a refusal to the request that
//! works: by the real program, with real clients.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::program::CANARY;
use crate::sandbox::{exec, folder, user_command, wait_for};

/// What each command meets. All run in a sandbox that may reach a few hosts, and has a credential
/// for one.
const MET: [(&str, &str); 40] = [
    ("policy_default_deny", "curl -sS https://unlisted.test/"),
    (
        "policy_default_deny",
        "curl -sS --http1.1 -i https://unlisted.test/ | head -1",
    ),
    (
        "policy_default_deny",
        "git ls-remote https://unlisted.test/a/b",
    ),
    ("policy_default_deny", "npm view left-pad"),
    (
        "policy_default_deny",
        "npm view @types/node --registry https://unlisted.test",
    ),
    ("policy_default_deny", "wget -nv -O- https://unlisted.test/"),
    (
        "policy_default_deny",
        "python3 -c \"import urllib.request as r; r.urlopen('https://unlisted.test/')\" 2>&1 | tail -1",
    ),
    (
        "policy_default_deny",
        "node -e \"fetch('https://unlisted.test/').then(async r => console.log(r.status, await r.text()))\"",
    ),
    (
        "policy_default_deny",
        "curl -sS https://api.openai.com/v1/models",
    ),
    (
        "policy_default_deny",
        "curl -sS https://api.anthropic.com/v1/models -H 'anthropic-version: 2023-06-01'",
    ),
    (
        "policy_default_deny",
        "curl -sS https://api.github.com/user",
    ),
    (
        "policy_default_deny",
        "curl -sS https://storage.googleapis.com/storage/v1/b",
    ),
    (
        "policy_default_deny",
        "curl -sS https://api.stripe.com/v1/charges",
    ),
    (
        "policy_default_deny",
        "curl -sS https://bucket.s3.eu-central-1.amazonaws.com/key",
    ),
    (
        "policy_default_deny",
        "curl -sS -i -H 'Content-Type: application/grpc' -X POST https://grpc.test/p.S/M | grep -a grpc-",
    ),
    ("policy_default_deny", "curl -sS https://registry.test/v2/"),
    (
        "policy_default_deny",
        "curl -sS http://169.254.169.254/latest/meta-data/",
    ),
    ("policy_default_deny", "curl -sS http://unlisted.test/"),
    ("policy_forbids", "curl -sS https://forbidden.test/"),
    ("clear_text", "curl -sS http://plain.test:443/"),
    ("ssrf_resolved_ip", "curl -sS https://10.1.2.3/"),
    ("path", "curl -sS --path-as-is https://allowed.test/a%2fb"),
    ("method", "curl -sS -X get https://allowed.test/"),
    (
        "method_prohibited",
        "curl -sS -X TRACE https://allowed.test/",
    ),
    (
        "method_override",
        "curl -sS 'https://allowed.test/?_method=DELETE'",
    ),
    (
        "expectation",
        "curl -sS -H 'Expect: 200-maybe' https://allowed.test/",
    ),
    (
        "authority_mismatch",
        "curl -sS -H 'Host: other.test' https://allowed.test/",
    ),
    (
        "target_length",
        "curl -sS https://allowed.test/$(printf %09000d 1)",
    ),
    (
        "fields_too_large",
        "curl -sS --http1.1 -H \"X-Long: $(printf %033000d 1)\" https://allowed.test/",
    ),
    (
        "upgrade",
        "curl -sS --http1.1 -H 'Connection: Upgrade' -H 'Upgrade: foo' https://allowed.test/",
    ),
    (
        "no_sni",
        "openssl s_client -connect allowed.test:443 -noservername </dev/null 2>&1 | grep -o 'tlsv1[a-z ]*'",
    ),
    (
        "alpn",
        "openssl s_client -connect allowed.test:443 -servername allowed.test -alpn imap </dev/null 2>&1 | grep -o 'tlsv1[a-z ]*'",
    ),
    (
        "sni_connect_mismatch",
        "curl -sS --connect-to allowed.test:443:other.test:443 https://allowed.test/",
    ),
    (
        "foreign_credential",
        "curl -sS -H 'Authorization: Bearer mine' https://api.test/",
    ),
    (
        "phantom_out_of_scope",
        "curl -sS -H \"Authorization: Bearer $TOKEN\" https://allowed.test/",
    ),
    (
        "phantom_position",
        "curl -sS -H \"X-Note: $TOKEN\" https://api.test/",
    ),
    (
        "protocol_ssh",
        "ssh -o StrictHostKeyChecking=no git@unlisted.test",
    ),
    ("protocol_postgres", "psql -h unlisted.test -c 'select 1'"),
    (
        "protocol_redis",
        "bash -c 'exec 3<>/dev/tcp/unlisted.test/6379; echo \"*1\" >&3; cat <&3'",
    ),
    (
        "unknown_protocol",
        "bash -c 'exec 3<>/dev/tcp/unlisted.test/7000; printf \"\\\\200\" >&3; cat <&3'",
    ),
];

/// No program is left to guess: it prints the code or what to do, or the summary at the end says
/// it. None takes longer than a moment, and none blames the network alone.
#[test]
fn every_refusal_is_told_where_it_is_met() {
    let folder = folder(0);
    let home = folder.path().join("home");
    fs::write(home.join("project/.keep"), "").unwrap();
    let forbid = "@id(\"never\")\nforbid(principal, action, resource == Gateway::Host::\"forbidden.test\");\n\
                  permit(principal, action in Gateway::Action::\"ask\", resource == Gateway::Host::\"forbidden.test\");\n";
    fs::write(home.join("forbid.cedar"), forbid).unwrap();
    let mut rows = String::new();
    for (code, script) in MET {
        let began = Instant::now();
        let output = user_command(folder.path(), 0)
            .args(["exec", "--policy", "../forbid.cedar"])
            .args([
                "--allow",
                "allowed.test",
                "--allow",
                "10.1.2.3",
                "--allow",
                "plain.test",
            ])
            .args([
                "--secret",
                "TOKEN@api.test=env:KEY",
                "--",
                "sh",
                "-c",
                script,
            ])
            .env("TERM", "dumb")
            .output()
            .unwrap();
        let took = began.elapsed();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let own = |line: &&str| !line.starts_with("gateway ") && !line.starts_with("gateway:");
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(said.contains(code), "{script}: {code}\n{said}");
        assert!(!said.contains(CANARY), "{script}");
        assert!(took < Duration::from_secs(20), "{script}: {took:?}");
        let inside: Vec<&str> = said.lines().filter(own).collect();
        let shown = plain(&inside.join(" "));
        let lower = shown.to_lowercase();
        assert!(!lower.contains("network error"), "{script}: {shown}");
        assert!(!lower.contains("could not resolve"), "{script}: {shown}");
        let command = script.replace('|', "\\|");
        rows += &format!("| `{code}` | `{command}` | {shown} |\n");
    }
    check_page(&rows);
}

/// The project, which the command may write to though it is another user.
fn writable_project(folder: &tempfile::TempDir) -> PathBuf {
    let project = folder.path().join("home/project");
    fs::set_permissions(&project, fs::Permissions::from_mode(0o777)).unwrap();
    project
}

/// What a program printed, as a cell of a table: without ids, and not too long.
fn plain(text: &str) -> String {
    let words = text.split(' ').filter(|word| !word.is_empty());
    let text: Vec<String> = words.map(without_id).collect();
    let mut text = text.join(" ");
    if let Some((at, _)) = text.char_indices().nth(420) {
        text.truncate(at);
        text += " …";
    }
    text.replace('|', "\\|").replace(['<', '\n', '\r'], " ")
}

/// Replaces 20 hexadecimal digits.
fn without_id(word: &str) -> String {
    let is_digit = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    let part = |part: &str| match part.len() == 20 && part.chars().all(is_digit) {
        true => String::from("ID"),
        false => part.to_owned(),
    };
    let mut out = String::new();
    let mut current = String::new();
    for c in word.chars() {
        if c.is_ascii_alphanumeric() {
            current.push(c);
        } else {
            out += &part(&std::mem::take(&mut current));
            out.push(c);
        }
    }
    out + &part(&current)
}

/// `GATEWAY_WRITE=1` writes what programs print into the page. Otherwise, the page must tell of the
/// same commands: what they print differs from version to version.
fn check_page(rows: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/refusals.md");
    let page = fs::read_to_string(&path).unwrap();
    let mark = "| met | command | it prints |\n|---|---|---|\n";
    let begin = page.find(mark).expect("the page has the table") + mark.len();
    if std::env::var_os("GATEWAY_WRITE").is_some() {
        fs::write(&path, format!("{}{rows}", &page[..begin])).unwrap();
        return;
    }
    let commands = |text: &str| -> Vec<String> {
        let cells = text
            .lines()
            .map(|line| line.split(" | ").take(2).collect::<Vec<_>>());
        cells.map(|cells| cells.join(" | ")).collect()
    };
    assert_eq!(
        commands(&page[begin..]),
        commands(rows),
        "GATEWAY_WRITE=1 writes the page"
    );
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
            "-q",
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
    fs::write(project.join("go"), "").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.stdout, b"ok", "{output:?}");
}

/// Threats H10, O01: the pages show the session's own facts, and neither a secret nor a phantom.
#[test]
fn a_workload_sees_its_own_session_and_nothing_else() {
    let folder = folder(0);
    let script = "curl -sS https://unlisted.test/ >/dev/null; curl -sS http://gateway.internal/; \
                  curl -sS -H 'Accept: application/json' https://gateway.internal/refused; \
                  curl -sS http://gateway.internal/ca.pem; \
                  curl -sS -X POST -w '%{http_code}' -o /dev/null http://gateway.internal/; \
                  curl -sS -w '%{http_code}' -o /dev/null http://gateway.internal/nothing; \
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
        "-----BEGIN CERTIFICATE-----",
        "405404",
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
    assert!(text.contains("\"proposal\":null"), "{text}");
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
    fs::write(project.join("go"), "").unwrap();
    child.wait_with_output().unwrap();
}
