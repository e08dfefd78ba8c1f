//! `gateway allow`: the narrowest rule for what was refused, in force at once and after a restart.

use std::os::unix::fs::PermissionsExt as _;

use std::fs;
use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use crate::program::{Program, free, origin};
use crate::sandbox::{folder, user_command, wait_for};

#[test]
fn what_was_refused_last_is_allowed_exactly_and_stays_so_after_a_restart() {
    let mut program = Program::start("");
    assert_eq!(program.ask("http://later.test/").0, 403);
    // Without a terminal, the rule is shown and nothing is applied.
    let (code, said) = program.gateway(&["allow", "--last"]);
    assert_eq!(code, 2, "{said}");
    assert!(
        said.contains("resource == Gateway::Host::\"later.test\""),
        "{said}"
    );
    assert!(said.contains("`--yes`"), "{said}");
    assert_eq!(program.ask("http://later.test/").0, 403);
    let (code, said) = program.gateway(&["allow", "--last", "--yes"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("applied as generation 2"), "{said}");
    assert_eq!(program.ask("http://later.test/").0, 200);
    assert_eq!(program.ask("http://later.test/other").0, 403);
    let act = program.records("act").pop().unwrap();
    assert_eq!(act["name"], "policy.allow");
    assert!(act["subject"].as_str().unwrap().contains("later.test"));
    let kept = std::fs::read_to_string(program.path("gateway.granted.cedar")).unwrap();
    assert!(
        kept.starts_with("// Rules that an operator granted"),
        "{kept}"
    );
    program.restart_after_a_crash();
    assert_eq!(program.ask("http://later.test/").0, 200);
    // Allowed once more, it is still one rule.
    let (_, host) = program.gateway(&["allow", "later.test:80", "--yes"]);
    assert!(host.contains("context.port == 80"), "{host}");
    assert_eq!(program.ask("http://later.test/other").0, 200);
    program.gateway(&["allow", "later.test:80", "--yes"]);
    let kept = std::fs::read_to_string(program.path("gateway.granted.cedar")).unwrap();
    assert_eq!(kept.matches("permit(").count(), 2, "{kept}");
}

#[test]
fn what_a_rule_would_have_lent_is_named_before_it_is_in_force() {
    let program = Program::start("");
    let lends = "permit(principal, action == Gateway::Action::\"lend\", \
                 resource == Gateway::Credential::\"key\");";
    let rules = format!("{}{lends}", crate::program::RULES);
    fs::write(program.path("rules.cedar"), rules).unwrap();
    program.reload();
    let (code, said) = program.gateway(&["allow", "api.test", "--yes"]);
    assert_eq!(code, 0, "{said}");
    let told = "careful  newly lent by `allow/api.test/443/agent-1`: `key` to api.test\n";
    assert!(said.contains(told), "{said}");
    // What is permitted already widens nothing.
    let (_, said) = program.gateway(&["allow", "stream.test:80", "--yes"]);
    assert!(!said.contains("careful"), "{said}");
}

#[test]
fn an_exchange_is_named_by_its_whole_id() {
    let program = Program::start("");
    program.ask("http://later.test/");
    program.ask("http://evil.test/");
    let refused = program.records("exchange");
    let id = refused.iter().find(|record| record["host"] == "later.test");
    let id = id.unwrap()["id"].as_str().unwrap().to_owned();
    let (code, said) = program.gateway(&["allow", &id[..19], "--yes"]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("write the whole id"), "{said}");
    let applied = program.json(&["allow", &id, "--yes"]);
    assert_eq!(applied["applied"], true);
    assert_eq!(program.ask("http://later.test/").0, 200);
    let (code, said) = program.gateway(&["allow", "00000000000000000000", "--yes"]);
    assert_eq!(code, 1);
    assert!(said.contains("no such exchange was refused"), "{said}");
}

#[test]
fn nothing_that_a_rule_cannot_or_must_not_allow_is_granted() {
    let program = Program::start("");
    for (host, why) in [
        ("*.com", "register"),
        ("169.254.169.254", "metadata"),
        ("*", ""),
        ("a.test\") || true; //", ""),
        ("", ""),
    ] {
        let (code, said) = program.gateway(&["allow", host, "--yes"]);
        assert_ne!(code, 0, "{host}: {said}");
        assert!(said.contains(why), "{host}: {said}");
    }
    program.ask("http://forbidden.test/");
    let (code, said) = program.gateway(&["allow", "--last", "--yes"]);
    assert_eq!(code, 1, "{said}");
    assert!(
        said.contains("policy_forbids") && said.contains("forbid"),
        "{said}"
    );
    let other = r#"{"host":"later.test","policy":"permit(principal, action, resource);"}"#;
    let (status, said) = program.call("POST", "/v1/policies/allow", other);
    assert_eq!(status, 409, "{said}");
    assert!(!program.path("gateway.granted.cedar").exists());
    let state = program.json(&["status"]);
    assert_eq!(state["gateways"][0]["policies"]["generation"], 1);
}

#[test]
fn a_request_whose_path_cannot_be_read_makes_no_rule_for_its_host() {
    let program = Program::start("");
    for path in ["v1/.;/models", "v1/models;a%2Fb", "%0a"] {
        let (status, said) = program.ask(&format!("http://later.test/{path}"));
        assert_eq!(status, 403, "{path}: {said}");
        let (code, said) = program.gateway(&["allow", "--last", "--yes"]);
        assert_eq!(code, 1, "{path}: {said}");
        assert!(
            said.contains("no rule is for it alone")
                && said.contains("`gateway allow later.test:80`"),
            "{path}: {said}"
        );
        let (_, why) = program.gateway(&["why", "--last"]);
        assert!(!why.contains("permit("), "{path}: {why}");
    }
    assert!(!program.path("gateway.granted.cedar").exists());
}

#[test]
fn a_rule_that_fills_the_screen_says_below_whom_it_is_for() {
    let program = Program::start("");
    let path = "a/".repeat(600);
    assert_eq!(program.ask(&format!("http://later.test/{path}")).0, 403);
    let (_, said) = program.gateway(&["allow", "--last"]);
    let (_, below) = said
        .split_once("the rule is long; it begins:")
        .expect(&said);
    let below = below.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in ["agent-1", "GET", "later.test"] {
        assert!(below.contains(part), "{below}");
    }
}

#[test]
fn of_several_sessions_a_host_is_allowed_to_the_one_that_was_refused_it() {
    let program = Program::start("");
    let second = "[[listener]]\nkind = \"proxy\"\nsession = \"agent-2\"\n";
    program.edit(|text| {
        let text = text.replace("phantoms.env", "phantoms-{session}.env");
        format!("{text}\n{second}address = \"{}\"\n", free())
    });
    program.reload();
    let (code, said) = program.gateway(&["allow", "later.test:80", "--yes"]);
    assert!(code == 2 && said.contains("--session NAME"), "{said}");
    assert_eq!(program.ask("http://later.test/").0, 403);
    let (code, said) = program.gateway(&["allow", "later.test:8443", "--yes"]);
    assert!(code == 2 && said.contains("--session NAME"), "{said}");
    let (code, said) = program.gateway(&["allow", "later.test:80", "--yes"]);
    assert_eq!(code, 0, "{said}");
    assert!(
        said.contains("agent-1") && !said.contains("agent-2"),
        "{said}"
    );
    assert_eq!(program.ask("http://later.test/").0, 200);
}

#[test]
fn advice_for_clear_text_names_the_port_and_the_address_as_a_url_has_them() {
    let program = Program::start("");
    for to in ["evil.test:8080", "[2606:4700::1111]:8080", "evil.test:443"] {
        assert_eq!(program.ask(&format!("http://{to}/")).0, 403);
        let (code, said) = program.gateway(&["allow", "--last", "--yes"]);
        assert_eq!(code, 1, "{said}");
        assert!(said.contains(&format!("--allow http://{to}`")), "{said}");
    }
}

/// A tunnel to an address, in which a request in clear text names its own host.
#[test]
fn what_is_advised_counted_and_granted_is_the_host_of_the_request_and_not_the_address() {
    let program = Program::start("");
    let said = program.through_socks(
        [93, 184, 216, 34],
        "GET / HTTP/1.1\r\nHost: later.test\r\n\r\n",
    );
    assert!(said.contains("`gateway allow later.test:80`"), "{said}");
    assert!(!said.contains("93.184.216.34"), "{said}");
    let (code, said) = program.gateway(&["allow", "--last", "--yes"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(program.ask("http://later.test/").0, 200);
}

#[test]
fn no_rule_is_made_from_a_log_that_does_not_hold() {
    let program = Program::start("");
    program.ask("http://later.test/");
    program.ask("http://evil.test/");
    let path = program.path("audit/log.jsonl");
    let log = std::fs::read_to_string(&path).unwrap();
    let id = program.records("exchange")[0]["id"].clone();
    // A record is put in, with another's hash; one is taken away; the first ones are changed.
    let lines: Vec<&str> = log.split_inclusive('\n').collect();
    let forged = lines[1].replace("later.test", "other.test");
    for changed in [
        [lines[0], &forged, lines[2]].concat(),
        [lines[0], lines[2]].concat(),
        lines[..2].concat(),
    ] {
        std::fs::write(&path, changed).unwrap();
        for named in ["--last", id.as_str().unwrap()] {
            let (code, said) = program.gateway(&["allow", named, "--yes"]);
            assert_eq!(code, 1, "{said}");
            assert!(said.contains("the audit log does not hold"), "{said}");
            assert!(said.contains("log.jsonl:"), "{said}");
        }
    }
    // A host that the operator names needs no log.
    assert_eq!(program.gateway(&["allow", "later.test:80", "--yes"]).0, 0);
    std::fs::write(&path, log).unwrap();
}

/// Another gateway of the same configuration adds a rule, while this one would.
#[test]
fn a_rule_that_another_gateway_grants_at_the_same_time_is_not_lost() {
    let program = Program::start("");
    // Who may read the folder can lock it, and keeps nobody waiting.
    let folder = std::fs::File::open(program.folder.path()).unwrap();
    folder.lock().unwrap();
    assert_eq!(program.gateway(&["allow", "first.test", "--yes"]).0, 0);
    let lock = program.path("gateway.granted.lock");
    let held = std::fs::File::open(&lock).unwrap();
    let mode = held.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    held.lock().unwrap();
    let mut allow = crate::program::command(program.folder.path());
    let mut allow = allow
        .args(["allow", "later.test:80", "--yes"])
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(allow.try_wait().unwrap().is_none());
    let rule = "permit(principal, action, resource == Gateway::Host::\"other.test\");\n";
    let file = program.path("gateway.granted.cedar");
    std::fs::write(&file, rule).unwrap();
    held.unlock().unwrap();
    assert!(allow.wait().unwrap().success());
    let kept = std::fs::read_to_string(&file).unwrap();
    assert!(kept.contains(rule) && kept.contains("later.test"), "{kept}");
    assert_eq!(program.ask("http://later.test/").0, 200);
}

#[test]
fn a_request_whose_path_is_cut_in_the_log_gets_no_rule_for_its_host() {
    let program = Program::start("");
    let long = format!("http://later.test/long{}", "x".repeat(3000));
    assert_eq!(program.ask(&long).0, 403);
    let record = program.records("exchange").pop().unwrap();
    assert!(record["path_bytes"].as_u64().unwrap() > 3000, "{record}");
    for named in ["--last", record["id"].as_str().unwrap()] {
        let (code, said) = program.gateway(&["allow", named, "--yes"]);
        assert_eq!(code, 1, "{said}");
        assert!(
            said.contains("does not hold the request's whole path"),
            "{said}"
        );
        assert!(said.contains("gateway allow later.test:80"), "{said}");
    }
    assert!(!program.path("gateway.granted.cedar").exists());
    assert_eq!(program.ask("http://later.test/").0, 403);
}

/// The number of the only grant of a listing.
fn number(said: &serde_json::Value) -> String {
    assert_eq!(said["grants"].as_array().unwrap().len(), 1, "{said}");
    said["grants"][0]["number"].to_string()
}

#[test]
fn a_grant_ends_by_itself_in_a_running_gateway_and_is_taken_back_by_its_number() {
    let program = Program::start("");
    let (code, said) = program.gateway(&["allow", "later.test:80", "--for", "4s", "--yes"]);
    assert!(code == 0 && said.contains(" until 2"), "{said}");
    let granted = Instant::now();
    assert_eq!(program.ask("http://later.test/").0, 200);
    let listed = program.json(&["grants"]);
    assert_eq!(listed["grants"][0]["what"], "later.test:80");
    assert!(listed["grants"][0]["until"].is_string(), "{listed}");
    wait_for("it ends", || program.ask("http://later.test/").0 == 403);
    assert!(
        granted.elapsed() > Duration::from_secs(1),
        "{:?}",
        granted.elapsed()
    );
    let kept = program.path("gateway.granted.cedar");
    wait_for("it is removed", || {
        !fs::read_to_string(&kept).unwrap().contains("later.test")
    });
    program.json(&["allow", "later.test:80", "--yes"]);
    assert_eq!(program.ask("http://later.test/").0, 200);
    let listed = program.json(&["grants"]);
    let (_, shown) = program.gateway(&["grants"]);
    assert!(
        shown.contains("later.test:80  for session agent-1  in ") && shown.contains("  since 2"),
        "{shown}"
    );
    program.json(&["grants", "remove", &number(&listed)]);
    assert_eq!(program.ask("http://later.test/").0, 403);
    assert_eq!(program.gateway(&["grants", "remove", "1"]).0, 1);
    for wrong in ["0s", "soon", "1"] {
        let (code, said) = program.gateway(&["allow", "later.test:80", "--for", wrong]);
        assert_eq!(code, 2, "{said}");
    }
}

#[test]
fn a_grant_ends_by_the_clock_while_every_reload_is_refused() {
    let program = Program::start("");
    let (code, said) = program.gateway(&["allow", "later.test:80", "--for", "3s", "--yes"]);
    assert_eq!(code, 0, "{said}");
    let granted = Instant::now();
    program.edit(|text| format!("{text}[["));
    program.refuse();
    assert_eq!(program.ask("http://later.test/").0, 200);
    wait_for("it ends", || program.ask("http://later.test/").0 == 403);
    let lived = granted.elapsed();
    println!("a grant for 3 s was over {lived:?} after it was told");
    assert!(lived < Duration::from_secs(8), "{lived:?}");
    assert_eq!(program.ask("http://stream.test/").0, 200);
}

#[test]
fn what_a_command_that_has_ended_was_refused_is_kept_for_its_folder_and_taken_back() {
    const USER: u32 = 12345;
    let (folder, at) = (folder(USER), origin());
    let named = folder.path().join("home/named.toml");
    let text = format!(
        "[[origin]]\nmatch = \"http://late.test:8080\"\nconnect = \"{at}\"\ncleartext = true\n"
    );
    fs::write(&named, text).unwrap();
    std::os::unix::fs::chown(&named, Some(USER), Some(USER)).unwrap();
    let says = |arguments: &[&str]| {
        let output = user_command(folder.path(), USER)
            .args(arguments)
            .output()
            .unwrap();
        String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
    };
    let run = || {
        says(&[
            "exec",
            "-q",
            "--config",
            "../named.toml",
            "--",
            "curl",
            "-s",
            "http://late.test:8080/",
        ])
    };
    let allowed = || run() == "ok";
    assert!(run().contains("policy_default_deny"));
    let said = says(&["allow", "--last"]);
    assert!(
        said.contains("late.test") && said.contains("`--yes`"),
        "{said}"
    );
    assert!(!allowed());
    let said = says(&["allow", "--last", "--yes"]);
    assert!(
        said.contains("kept for commands in") && said.contains("run it again"),
        "{said}"
    );
    assert!(allowed());
    let listed: serde_json::Value = serde_json::from_str(&says(&["--json", "grants"])).unwrap();
    assert_eq!(listed["grants"][0]["what"], "late.test:8080/");
    says(&["grants", "remove", &number(&listed)]);
    assert!(!allowed());
    let said = says(&["allow", "late.test:8080", "--for", "2s", "--yes"]);
    assert!(said.contains(" until 2"), "{said}");
    assert!(allowed());
    std::thread::sleep(Duration::from_secs(2));
    assert!(!allowed());
    assert_eq!(says(&["--json", "grants"]), "{\"grants\":[]}\n");
}

#[test]
fn no_policy_is_said_to_allow_a_stolen_phantom() {
    let program = Program::start("");
    let phantoms = fs::read_to_string(program.path("phantoms.env")).unwrap();
    let (_, phantom) = phantoms.trim().split_once('=').unwrap();
    let phantom = phantom.trim_matches('\'');
    let mut client = std::net::TcpStream::connect(program.proxy).unwrap();
    let head = format!(
        "GET http://stream.test/ HTTP/1.1\r\nHost: stream.test\r\nX-Key: {phantom}\r\n\
         Connection: close\r\n\r\n"
    );
    client.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("phantom_"), "{answer}");
    let (_, said) = program.gateway(&["policy", "why", "--last", "--config", "gateway.toml"]);
    assert!(said.contains("no policy changes `phantom_"), "{said}");
    assert!(
        !said.contains("now  allow") && !said.contains("permit("),
        "{said}"
    );
    let (_, said) = program.gateway(&["why", "--last"]);
    assert!(
        said.contains("phantom_") && !said.contains("permit("),
        "{said}"
    );
}
