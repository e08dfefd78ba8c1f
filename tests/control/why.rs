//! `gateway why` says what would allow a request as its gateway sees it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use serde_json::Value;

use crate::program::Program;
use crate::sandbox::{exec, folder, user_command, wait_for};

const USER: u32 = 12345;

/// A sandbox that asks, waits for a word, and asks again.
fn asks(folder: &std::path::Path, flags: &[&str], ask: &str) -> std::process::Child {
    let script = format!("{ask}; touch asked; while [ ! -e go ]; do sleep 0.05; done; {ask}");
    let mut command = user_command(folder, USER);
    command.args([&["exec", "-q"], flags, &["--", "sh", "-c", &script]].concat());
    let child = exec(folder, command);
    let asked = folder.join("home/project/asked");
    wait_for("nothing was asked", || asked.exists());
    child
}

fn gateway(folder: &std::path::Path, arguments: &[&str]) -> String {
    let mut command = user_command(folder, USER);
    let output = command
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

fn go(folder: &std::path::Path, child: std::process::Child) -> String {
    fs::write(folder.join("home/project/go"), "").unwrap();
    let output = child.wait_with_output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_loan_that_no_policy_gives_is_proposed_and_lent_by_the_command_that_the_refusal_names() {
    let folder = folder(USER);
    let at = folder.path();
    let ask = "permit(principal, action in Gateway::Action::\"any\", resource == Gateway::Host::\"api.test\");";
    // What a file names, its rules lend; a flag would lend it by itself.
    let file = "[policy]\nfiles = [\"ask.cedar\"]\n[[credential]]\nname = \"TOKEN\"\nfrom = \"env:KEY\"\n\
                env = [\"TOKEN\"]\norigins = [\"https://api.test\"]\nplaces = [\"header:authorization:Bearer\"]\n";
    for (name, text) in [("home/ask.cedar", ask), ("home/ask.toml", file)] {
        fs::write(at.join(name), text).unwrap();
        std::os::unix::fs::chown(at.join(name), Some(USER), Some(USER)).unwrap();
    }
    let flags = ["--config", "../ask.toml"];
    let curl = "curl -sS -H \"Authorization: Bearer $TOKEN\" https://api.test/user";
    let child = asks(at, &flags, curl);
    let why = gateway(at, &["why", "--last"]);
    assert!(why.contains("Gateway::Action::\"lend\""), "{why}");
    assert!(why.contains("no policy lends TOKEN in"), "{why}");
    assert!(!why.contains("Gateway::Action::\"GET\""), "{why}");
    let json: Value = serde_json::from_str(&gateway(at, &["--json", "why", "--last"])).unwrap();
    assert!(
        json["proposal"].as_str().unwrap().contains("lend"),
        "{json}"
    );
    assert!(json["next"].as_str().unwrap().contains("gateway"), "{json}");
    assert_eq!(json["exchange"]["unlent"]["credential"], "TOKEN", "{json}");
    let applied = gateway(at, &["allow", "--last", "--yes"]);
    assert!(applied.contains("applied"), "{applied}");
    let said = go(at, child);
    let why = gateway(at, &["why", json["exchange"]["id"].as_str().unwrap()]);
    assert!(
        why.contains("no longer runs: put the policy below into a file"),
        "{why}"
    );
    // No such host is there to be asked, but policy refuses it no more.
    assert_eq!(said.matches("policy_default_deny").count(), 1, "{said}");
    assert!(
        said.contains("`gateway allow ") && said.contains("lends `TOKEN`"),
        "{said}"
    );
}

#[test]
fn why_asks_the_running_gateway_and_without_it_says_what_it_cannot_know() {
    let folder = folder(USER);
    let at = folder.path();
    let config = "[[origin]]\nmatch = \"http://late.test:8080\"\nconnect = \"127.0.0.1:1\"\ncleartext = true\n";
    fs::write(at.join("home/named.toml"), config).unwrap();
    std::os::unix::fs::chown(at.join("home/named.toml"), Some(USER), Some(USER)).unwrap();
    let curl = "curl -sS http://late.test:8080/";
    let child = asks(at, &["--config", "../named.toml"], curl);
    let why = gateway(at, &["why", "--last"]);
    assert!(
        why.contains("permit(") && why.contains("late.test"),
        "{why}"
    );
    go(at, child);
    let why = gateway(at, &["why", "--last"]);
    assert!(
        !why.contains("permit(") && why.contains("`[[origin]]`"),
        "{why}"
    );
    let json: Value = serde_json::from_str(&gateway(at, &["--json", "why", "--last"])).unwrap();
    assert!(json["proposal"].is_null(), "{json}");
    assert!(
        json["no_proposal"].as_str().unwrap().contains("--config"),
        "{json}"
    );
    let why = gateway(at, &["why", "--last", "--config", "../named.toml"]);
    assert!(why.contains("permit("), "{why}");
}

#[test]
fn a_client_that_distrusts_the_ca_does_not_hide_that_no_policy_reaches_the_host() {
    let folder = folder(USER);
    let at = folder.path();
    let script = "openssl s_client -connect unlisted.test:443 -servername unlisted.test \
                  -no-CAfile -no-CApath -no-CAstore -verify_return_error </dev/null >/dev/null 2>&1; \
                  openssl s_client -connect listed.test:443 -servername listed.test \
                  -no-CAfile -no-CApath -no-CAstore -verify_return_error </dev/null >/dev/null 2>&1";
    let said = gateway(
        at,
        &["exec", "--allow", "listed.test", "--", "sh", "-c", script],
    );
    assert!(said.contains("unlisted.test: host_not_permitted"), "{said}");
    assert!(!said.contains(" listed.test: host_not_permitted"), "{said}");
    let why = gateway(at, &["why", &id(&said, "unlisted.test")]);
    assert!(why.contains("Gateway::Host::\"unlisted.test\""), "{why}");
    assert!(
        why.contains("no longer runs: `gateway allow unlisted.test` in its folder keeps a rule"),
        "{why}"
    );
}

/// The id that the summary names for a host.
fn id(summary: &str, host: &str) -> String {
    let line = summary
        .lines()
        .find(|line| line.contains(&format!(" {host}: ")));
    let rest = line.and_then(|line| line.split("gateway why ").nth(1));
    rest.expect("the summary names it").trim().to_owned()
}

#[test]
fn a_log_whose_folder_was_away_for_a_moment_goes_on() {
    let program = Program::start("");
    let (audit, away) = (program.path("audit"), program.path("away"));
    let kept = program.path(".local/state/gateway/audit");
    fs::create_dir_all(&kept).unwrap();
    fs::copy(audit.join("log.jsonl"), kept.join("other.jsonl")).unwrap();
    assert_eq!(program.gateway(&["log", "verify"]).0, 4);
    fs::rename(&audit, &away).unwrap();
    let (code, said) = program.gateway(&["log", "verify"]);
    assert!(code == 1 && said.contains("cannot be read"), "{said}");
    wait_for("the log was never missed", || {
        program.ask("http://stream.test/").0 == 503
    });
    fs::rename(&away, &audit).unwrap();
    wait_for("the log does not go on", || {
        program.ask("http://stream.test/").0 == 200
    });
    assert_eq!(program.ask("http://forbidden.test/later").0, 403);
    let (code, said) = program.gateway(&["log", "verify"]);
    assert_eq!(code, 4, "{said}");
    let (_, why) = program.gateway(&["why", "--last"]);
    assert!(why.contains("/later"), "{why}");
}

#[test]
fn the_command_that_serve_names_finds_the_log_of_the_gateway_that_runs() {
    let program = Program::start("");
    let (status, refusal) = program.ask("http://forbidden.test/x");
    assert_eq!(status, 403, "{refusal}");
    let log = || fs::read_to_string(program.path("log")).unwrap();
    wait_for("nothing was told", || log().contains("; gateway why "));
    let log = log();
    let (_, told) = log.split_once("; gateway why ").unwrap();
    let (id, _) = told.split_once('\n').unwrap();
    for asked in [id, &id[..6], "--last"] {
        let (code, why) = program.gateway(&["why", asked]);
        assert_eq!(code, 0, "{asked}: {why}");
        assert!(why.contains("http://forbidden.test:80/x"), "{why}");
    }
    let verified = program.gateway(&["log", "verify"]);
    assert_eq!(verified.0, 3, "{}", verified.1);
    assert!(verified.1.contains("log.jsonl"), "{}", verified.1);
}

#[test]
fn a_missing_secret_stops_nobody_who_reads_a_log_or_a_policy() {
    let mut program = Program::start("");
    let secret = program.path("secret");
    fs::write(&secret, "canary-of-a-file-123456").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let config = fs::read_to_string(program.path("gateway.toml")).unwrap();
    program.configure(&format!(
        "[control]\npath = \"run/gateway/serve-1.sock\"\n[ca]\ncertificate = \"ca.pem\"\n{config}\n[[credential]]\nname = \"file\"\n\
         from = \"file:secret\"\norigins = [\"https://of.file.test\"]\n"
    ));
    assert_eq!(program.ask("http://forbidden.test/x").0, 403);
    fs::remove_file(&secret).unwrap();
    for command in [
        "why --last",
        "log",
        "log verify",
        "session ca",
        "env",
        "policy check",
    ] {
        let words = command.split(' ').chain(["--config", "gateway.toml"]);
        let (code, said) = program.gateway(&words.collect::<Vec<_>>());
        // The log of a gateway that runs is open.
        let expected = if command == "log verify" { 3 } else { 0 };
        assert_eq!(code, expected, "{command}: {said}");
    }
    let (code, said) = program.gateway(&["doctor", "--config", "gateway.toml"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("`from` refers to no usable secret"), "{said}");
    assert!(said.contains("key") && said.contains("file:"), "{said}");
    let refused = program.refuse();
    assert!(
        refused.contains("`from` refers to no usable secret"),
        "{refused}"
    );
    let (code, said) = program.gateway(&["serve", "--config", "gateway.toml"]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("`from` refers to no usable secret"), "{said}");
}
