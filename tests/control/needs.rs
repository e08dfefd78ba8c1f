//! Whoever is lent a credential fetches what its clients need at its own door: proxy, CA, phantoms
//! and files of logins, in one line.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use serde_json::Value;

use crate::created::Made;
use crate::program::{CANARY, free};
use crate::sandbox::{folder, user_command};

/// Clients that know nothing but their variables ask an origin over TLS with a phantom. There is no
/// repository for git, and npm takes any answer.
const ASK: &str = r#"curl -sS -H "Authorization: Bearer $LENT" https://lent.test/curl
    git -c http.extraHeader="Authorization: Bearer $LENT" ls-remote https://lent.test/git >git.log 2>&1 || true
    npm ping --registry https://lent.test/npm/ "--//lent.test/npm/:_authToken=$LENT" \
        --no-update-notifier --fetch-retries 0 >npm.log 2>&1 || cat npm.log
    python3 -c "import os, urllib.request as r
asked = r.Request('https://lent.test/python', headers={'Authorization': 'Bearer ' + os.environ['LENT']})
print(r.urlopen(asked).read().decode())""#;

/// What they ask for.
const ASKED: [&str; 4] = ["/curl", "/git/info/refs", "/npm/-/ping", "/python"];

/// Java presents no login to a proxy: it asks where it needs none.
const JAVA: &str = r#"class Ask { public static void main(String[] a) throws Exception {
    var asked = new java.net.URL("https://lent.test/java").openConnection();
    asked.setRequestProperty("Authorization", "Bearer " + System.getenv("LENT"));
    System.out.write(asked.getInputStream().readAllBytes()); System.out.flush(); } }"#;

/// Checks that the origin got the real value from each of these clients, and nothing without it.
fn check_heads(heads: &str, asked: &[&str], how: &str) {
    let all: Vec<&str> = heads.split_inclusive("\r\n\r\n").collect();
    for path in asked {
        let is_it = |head: &&&str| head.starts_with(&format!("GET {path}"));
        assert!(
            all.iter().any(|head| is_it(&head)),
            "{how}: {path}: {heads}"
        );
    }
    assert!(
        all.iter().all(|head| head.contains(CANARY)),
        "{how}: {heads}"
    );
}

fn uid() -> u32 {
    rustix::process::getuid().as_raw()
}

/// A program with further doors: sockets for this user, TLS by SNI, base URLs.
fn doors() -> (Made, String) {
    let made = Made::start("");
    let (tls, open, asks) = (free(), free(), free());
    let uid = uid();
    let at = |name: &str| made.program.path(name).display().to_string();
    let own = format!("session = \"{{caller}}\"\nwho = [\"unix\"]\nuids = [\"{uid}\"]\n");
    let more = format!(
        "[[listener]]\nkind = \"proxy\"\naddress = \"unix:{}\"\n{own}\
         [[listener]]\nkind = \"base\"\naddress = \"unix:{}\"\n{own}aliases = {{ lent = \"https://lent.test\" }}\n\
         [[listener]]\nkind = \"tls\"\naddress = \"{tls}\"\nsession = \"agent-2\"\n\
         [[listener]]\nkind = \"proxy\"\naddress = \"{open}\"\nsession = \"agent-2\"\nany_user = true\n\
         [[listener]]\nkind = \"proxy\"\naddress = \"{asks}\"\nsession = \"agent-2\"\nwho = [\"password\"]\n\
         passwords = {{ alice = \"env:KEY\", \"$(id)\" = \"env:KEY\" }}\n",
        at("agents.sock"),
        at("base.sock")
    );
    let rule = format!("permit(principal in Gateway::User::\"uid:{uid}\", action, resource);");
    let rules = fs::read_to_string(made.program.path("rules.cedar")).unwrap();
    fs::write(made.program.path("rules.cedar"), rules + &rule).unwrap();
    made.program.edit(|text| text.to_owned() + &more);
    made.program.reload();
    (made, format!("TLS={tls}; ASKS={asks}; OPEN={open};"))
}

#[test]
fn one_line_makes_clients_use_a_session_that_was_made() {
    let made = Made::start("");
    let made_so = "session create ci-1 --user alice --lend lent --ends 8h --env";
    let page = "curl -sS -x http://gateway:$GATEWAY_TOKEN@$DOOR http://gateway.internal/env";
    let of_file = "gateway env --session ci-1 --into out --form sh 2>told; . ./out/env";
    for line in [
        &format!("eval \"$(gateway {made_so})\"; echo $GATEWAY_TOKEN >token"),
        &format!("export GATEWAY_TOKEN=$(cat token); eval \"$({page})\""),
        "export GATEWAY_TOKEN=$(cat token); eval \"$(gateway env --session ci-1)\"",
        &format!("export GATEWAY_TOKEN=$(cat token); {of_file}"),
    ] {
        let said = made.script(&format!("{line}; {ASK}"));
        assert_eq!(said, "okok\n", "{line}");
        let heads = std::mem::take(&mut *made.heads.lock().unwrap());
        check_heads(&heads, &ASKED, line);
    }
    let out = made.program.path("out");
    let mode = |path: &str| fs::metadata(out.join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(""), mode("env")), (0o700, 0o600));
    for file in ["ca.pem", "ca-bundle.pem", "ca.jks"] {
        assert!(out.join(file).exists(), "{file}");
    }
    // Nothing is replaced, and a container may see it elsewhere.
    let again = ["env", "--session", "ci-1", "--into", "out"];
    let (code, said) = made.program.gateway(&again);
    assert!(
        code != 0 && said.contains("`out` cannot be written"),
        "{said}"
    );
    let elsewhere = ["env", "--session", "ci-1", "--into", "box", "--at", "/lent"];
    let (code, said) = made.program.gateway(&elsewhere);
    assert!(code == 0 && said.contains("the proxy asks for"), "{said}");
    let file = fs::read_to_string(made.program.path("box/env")).unwrap();
    assert!(
        file.contains("\nSSL_CERT_FILE=/lent/ca-bundle.pem\n"),
        "{file}"
    );
    for written in ["log", "audit/log.jsonl"] {
        let written = fs::read_to_string(made.program.path(written)).unwrap();
        assert!(!written.contains("gwt1_"), "{written}");
    }
}

#[test]
fn each_door_gives_its_caller_what_clients_need_and_a_stranger_no_phantom() {
    let (made, at) = doors();
    let own = "curl -sS --unix-socket agents.sock --request-target http://gateway.internal";
    let base = "curl -sS --unix-socket base.sock http://localhost/gateway.internal";
    let tls = "curl -sSk --connect-to ::$TLS https://gateway.internal";
    let open = "curl -sS -x http://$OPEN http://gateway.internal";
    let page = |door: &str, page: &str| {
        let asked = match door.contains("--request-target") {
            true => format!("{at} {door}/{page} http://gateway.internal"),
            false => format!("{at} {door}/{page}"),
        };
        made.script(&asked)
    };
    for (door, is_known, is_trusting) in [
        (own, true, true),
        (base, true, false),
        (tls, false, true),
        (open, false, true),
    ] {
        let script = page(door, "env");
        assert_eq!(
            script.contains("export LENT='"),
            is_known,
            "{door}: {script}"
        );
        let trusts = script.contains("export CURL_CA_BUNDLE=");
        assert_eq!(trusts, is_trusting, "{door}: {script}");
        let is_proxy = script.contains("export HTTPS_PROXY=");
        assert_eq!(is_proxy, door == own || door == open, "{door}: {script}");
        let phantoms = page(door, "phantoms");
        let names: Option<Value> = serde_json::from_str(&phantoms).ok();
        assert_eq!(names.is_some(), is_known, "{door}: {phantoms}");
        assert!(
            is_known || phantoms.contains("Nothing shows here"),
            "{phantoms}"
        );
        // A shell takes each of them.
        let taken = made.script(&format!("eval {}; echo taken", quoted(&script)));
        assert!(taken.ends_with("taken\n"), "{door}: {taken}");
    }
    // What was presented is not repeated.
    let asks = format!("curl -sS -x http://alice:{CANARY}@$ASKS http://gateway.internal");
    let script = page(&asks, "env");
    let line = "export HTTPS_PROXY=\"http://alice:$GATEWAY_PASSWORD@127.0.0.1:";
    assert!(
        script.contains(line) && !script.contains(CANARY),
        "{script}"
    );
    // Nor does a shell run a user's name.
    let odd = format!("curl -sS -x http://%24%28id%29:{CANARY}@$ASKS http://gateway.internal");
    let script = page(&odd, "env");
    assert!(
        script.contains("http://%24%28id%29:$GATEWAY_PASSWORD@"),
        "{script}"
    );
    // The address is the one by which the client came.
    let (_, port) = at.rsplit_once("OPEN=").unwrap();
    let line = format!(
        "export HTTPS_PROXY=\"http://{}\"\n",
        port.trim_end_matches(';')
    );
    let script = page(open, "env");
    assert!(script.contains(&line), "{script}");
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[test]
fn the_command_of_a_sidecar_has_the_ca_and_phantoms_of_its_caller() {
    let (made, _) = doors();
    let to = "gateway sidecar --to unix:$PWD/agents.sock --listen 127.0.0.1:0 --";
    fs::write(made.program.path("Ask.java"), JAVA).unwrap();
    let all = format!("{ASK}; java Ask.java");
    let said = made.script(&format!(
        "{to} sh -c {}; ls -d /tmp/gateway-* || true",
        quoted(&all)
    ));
    assert!(said.contains("okok\nok"), "{said}");
    let heads = made.heads.lock().unwrap().clone();
    check_heads(&heads, &[&ASKED[..], &["/java"]].concat(), to);
    // What it wrote is gone, and one that gets nothing is told why.
    let said = made.script(&format!("{to} sh -c 'echo $SSL_CERT_FILE'"));
    let file = said.lines().find(|line| line.ends_with("ca-bundle.pem"));
    let file = file.unwrap_or_else(|| panic!("{said}"));
    assert!(!std::path::Path::new(file).exists(), "{file}");
    let id = format!("uid:{}", uid());
    assert_eq!(made.program.gateway(&["session", "pause", &id]).0, 0);
    let said = made.script(&format!("{to} echo ran"));
    assert!(said.contains("gets no CA and no phantoms"), "{said}");
    assert!(said.contains("ran\n"), "{said}");
}

#[test]
fn a_captured_workload_is_shown_its_phantoms() {
    let folder = folder(0);
    let mut command = user_command(folder.path(), 0);
    let script = "curl -sS http://gateway.internal/phantoms; echo $KEY; \
        eval \"$(curl -sS http://gateway.internal/env)\"; echo $SSL_CERT_FILE";
    command.args([
        "exec",
        "-q",
        "--secret",
        "KEY@api.test",
        "--",
        "sh",
        "-c",
        script,
    ]);
    let output = command.stderr(Stdio::piped()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<&str> = said.lines().collect();
    let shown: Value = serde_json::from_str(lines[0]).expect(&said);
    assert_eq!(shown["KEY"].as_str(), Some(lines[1]), "{said}");
    assert!(
        lines[2].contains("/gateway.") && !said.contains(CANARY),
        "{said}"
    );
}
