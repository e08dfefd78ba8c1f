//! The commands that find a running gateway, and what they say.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::program::{Program, command, gateway};

#[test]
fn without_a_gateway_each_command_says_that_none_runs_and_how_to_start_one() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [
        &["status"][..],
        &["session", "list"],
        &["reload"],
        &["session", "pause", "x"],
        &["allow", "--last"],
        &["log", "-f"],
    ] {
        let (code, said) = gateway(folder.path(), arguments);
        assert_eq!(code, 1, "{arguments:?}: {said}");
        assert!(said.contains("no gateway of yours runs"), "{said}");
        assert!(said.contains("gateway exec -- CMD"), "{said}");
        // It may have been a `serve`.
        assert!(said.contains("gateway serve --config FILE"), "{said}");
    }
}

#[test]
fn status_and_sessions_tell_a_person_and_a_machine() {
    let program = Program::start("");
    let state = program.json(&["status"]);
    let state = &state["gateways"][0];
    assert_eq!(state["pid"], program.child.id());
    assert_eq!(state["kind"], "serve");
    assert_eq!(state["listeners"][0]["address"], program.proxy.to_string());
    assert_eq!(state["policies"]["generation"], 1);
    let (code, said) = program.gateway(&["status"]);
    assert_eq!(code, 0);
    for part in [
        "serve-",
        "generation 1, 2 policies",
        "session agent-1",
        "audit/log.jsonl",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!said.contains('\u{1b}'));
    let (code, said) = program.gateway(&["session", "list"]);
    assert_eq!(code, 0);
    assert!(
        said.contains("agent-1") && said.contains("active"),
        "{said}"
    );
    let sessions = program.json(&["session", "list"]);
    assert_eq!(sessions["sessions"][0]["credentials"][0], "key");
}

#[test]
fn a_gateway_that_drains_says_so() {
    let program = Program::start("");
    let state = || program.json(&["status"])["gateways"][0]["state"].clone();
    assert_eq!(state(), "serving");
    let (status, _stream) = program.begin("http://stream.test/events");
    assert_eq!(status, 200);
    let pid = rustix::process::Pid::from_child(&program.child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let until = Instant::now() + Duration::from_secs(5);
    while state() != "draining" {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(20));
    }
    let (_, said) = program.gateway(&["status"]);
    assert!(said.contains("draining"), "{said}");
}

#[test]
fn a_reload_applies_changed_policies_or_says_what_is_wrong_with_them() {
    let program = Program::start("");
    assert_eq!(program.ask("http://later.test/").0, 403);
    let rules = program.path("rules.cedar");
    let with =
        |more: &str| std::fs::write(&rules, format!("{}{more}", crate::program::RULES)).unwrap();
    with("permit(principal, action, resource == Gateway::Host::\"later.test\");");
    // The files are watched too, so that it may be the second time.
    let generation = program.json(&["reload"])["generation"].as_u64().unwrap();
    assert!((2..=3).contains(&generation));
    assert_eq!(program.ask("http://later.test/").0, 200);
    with("permit(principal, action, resource == Gateway::Nothing::\"x\");");
    let (code, said) = program.gateway(&["reload"]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("rules.cedar:"), "{said}");
    let holds = format!("what held still holds (generation {generation})");
    let first = said.lines().next().unwrap();
    assert!(
        first.contains("the change is refused") && first.contains(&holds),
        "{said}"
    );
    let check = said.split_once("next: ").unwrap().1.trim_end();
    let file = program.path("gateway.toml");
    let wanted = format!("gateway policy check --config {}", file.display());
    assert_eq!(check, wanted);
    let words: Vec<&str> = check.split(' ').skip(1).collect();
    let (code, found) = program.gateway(&words);
    assert!(code == 1 && found.contains("rules.cedar:"), "{found}");
    // Also what the policies newly permit.
    let applied = "gateway: configuration reloaded, generation 2; newly allowed by `";
    let permitted = "DELETE GET HEAD OPTIONS OTHER PATCH POST PUT https://later.test:443/\n";
    crate::sandbox::wait_for("serve has no lines about them", || {
        let told = std::fs::read_to_string(program.path("log")).unwrap();
        told.contains(applied) && told.contains(permitted) && told.contains(&holds)
    });
    assert!(
        !said.contains("\\u{a}"),
        "each mistake has its line: {said}"
    );
    let (_, log) = program.gateway(&["log"]);
    let acts: Vec<&str> = log
        .lines()
        .filter(|line| line.contains(" reload"))
        .collect();
    let last = acts[acts.len() - 2..].join("\n");
    assert!(
        last.contains(" act ") && acts[acts.len() - 1].contains("failed "),
        "{log}"
    );
    let state = program.json(&["status"]);
    let in_force = &state["gateways"][0]["policies"]["generation"];
    assert_eq!(in_force.as_u64(), Some(generation));
}

#[test]
fn several_gateways_are_told_apart_and_one_of_them_is_named() {
    let one = Program::start("");
    let other = Program::start("");
    // The other one's socket, as if both were in one runtime directory.
    let socket = other.socket.to_str().unwrap();
    let state = one.json(&["status", "--gateway", socket]);
    assert_eq!(state["gateways"][0]["pid"], other.child.id());
    let mut third = command(one.folder.path());
    let third = third
        .args(["exec", "-q", "--", "sleep", "30"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let mut third = third.unwrap();
    let run = one.path("run/gateway");
    let count = || std::fs::read_dir(&run).unwrap().count();
    for _ in 0..500 {
        if count() == 2 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let (code, said) = one.gateway(&["reload"]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("several gateways run: exec-"), "{said}");
    let pid = one.child.id().to_string();
    assert_eq!(one.gateway(&["reload", "--gateway", &pid]).0, 0);
    let name = format!("serve-{pid}");
    assert_eq!(one.gateway(&["reload", "--gateway", &name]).0, 0);
    // Nothing is changed by the beginning of a name.
    assert_eq!(one.gateway(&["reload", "--gateway", "serve"]).0, 1);
    assert_eq!(one.gateway(&["session", "end", "agent"]).0, 1);
    // Only one of them has the session.
    assert_eq!(one.gateway(&["session", "pause", "agent-1"]).0, 0);
    let pid = rustix::process::Pid::from_child(&third);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    third.wait().unwrap();
    for _ in 0..500 {
        if count() == 1 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("the socket of an ended `exec` stays");
}

#[test]
fn following_ends_when_its_reader_has_gone_though_nothing_comes() {
    let program = Program::start("");
    for words in [&["log", "-f"][..], &["watch"]] {
        let (reader, out) = std::io::pipe().unwrap();
        let mut following = command(program.folder.path());
        let mut following = following.args(words).stdout(out).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(300));
        assert!(following.try_wait().unwrap().is_none(), "{words:?}");
        drop(reader);
        let begun = Instant::now();
        while following.try_wait().unwrap().is_none() {
            assert!(begun.elapsed() < Duration::from_secs(10), "{words:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The members that HTTP Archive 1.2 requires, each with its kind, below an entry.
const HAR: [(&str, &str); 31] = [
    ("/startedDateTime", "text"),
    ("/time", "number"),
    ("/request/method", "text"),
    ("/request/url", "text"),
    ("/request/httpVersion", "text"),
    ("/request/cookies", "list"),
    ("/request/headers", "list"),
    ("/request/queryString", "list"),
    ("/request/headersSize", "number"),
    ("/request/bodySize", "number"),
    ("/response/status", "number"),
    ("/response/statusText", "text"),
    ("/response/httpVersion", "text"),
    ("/response/cookies", "list"),
    ("/response/headers", "list"),
    ("/response/content", "object"),
    ("/response/content/size", "number"),
    ("/response/content/mimeType", "text"),
    ("/response/redirectURL", "text"),
    ("/response/headersSize", "number"),
    ("/response/bodySize", "number"),
    ("/cache", "object"),
    ("/timings/blocked", "number"),
    ("/timings/dns", "number"),
    ("/timings/connect", "number"),
    ("/timings/ssl", "number"),
    ("/timings/send", "number"),
    ("/timings/wait", "number"),
    ("/timings/receive", "number"),
    ("/_gateway/id", "text"),
    ("/_gateway/policies", "list"),
];

#[test]
fn the_log_is_an_http_archive_without_any_value() {
    let program = Program::start("");
    program.ask("http://evil.test/a?key=canary-query&b");
    program.ask("http://stream.test/");
    let archive = program.json(&["log", "--har"]);
    assert_eq!(archive["log"]["version"], "1.2");
    assert_eq!(archive["log"]["creator"]["name"], "gateway");
    let entries = archive["log"]["entries"].as_array().unwrap();
    assert_eq!(entries.len(), 2, "{archive}");
    for (entry, (at, wanted)) in entries.iter().flat_map(|one| HAR.map(|row| (one, row))) {
        let kind = match entry.pointer(at).unwrap_or(&serde_json::Value::Null) {
            serde_json::Value::String(_) => "text",
            serde_json::Value::Number(_) => "number",
            serde_json::Value::Array(_) => "list",
            serde_json::Value::Object(_) => "object",
            other => panic!("{at}: {other}"),
        };
        assert_eq!(kind, wanted, "{at}");
    }
    let refused = &entries[0];
    assert_eq!(refused["request"]["url"], "http://evil.test/a?key=&b=");
    assert_eq!(refused["response"]["status"], 403);
    assert_eq!(refused["_gateway"]["reason"], "policy_default_deny");
    assert_eq!(entries[1]["serverIPAddress"], "127.0.0.1");
    assert!(!archive.to_string().contains("canary"), "{archive}");
}

#[test]
fn the_log_is_read_with_and_without_a_gateway_and_followed() {
    let mut program = Program::start("");
    program.ask("http://evil.test/a");
    program.ask("http://stream.test/");
    let (code, said) = program.gateway(&["log"]);
    assert_eq!(code, 0, "{said}");
    assert!(
        said.contains("policy_default_deny") && said.contains("stream.test"),
        "{said}"
    );
    let (_, said) = program.gateway(&["log", "--refused"]);
    assert!(
        said.contains("evil.test") && !said.contains("stream.test"),
        "{said}"
    );
    for (chosen, has, lacks) in [
        (["--host", "evil.test"], "evil.test", "stream.test"),
        (["--host", "test"], "stream.test", "nobody"),
        (["--since", "1h"], "stream.test", "nobody"),
        (["--since", "2100-01-01"], "", "stream.test"),
        (["--secret", "key"], "", "stream.test"),
    ] {
        let (code, said) = program.gateway(&[&["log"], &chosen[..]].concat());
        assert!(code == 0 && said.contains(has), "{chosen:?}: {said}");
        assert!(!said.contains(lacks), "{chosen:?}: {said}");
    }
    let (code, said) = program.gateway(&["log", "--since", "yesterday"]);
    assert!(
        code == 2 && said.contains("write for example `30m`"),
        "{said}"
    );
    let (_, said) = program.gateway(&["log", "--session", "other"]);
    assert_eq!(said, "gateway: these logs have no such record of `other`\n");
    let mut following = command(program.folder.path())
        .args(["log", "-f", "--json", "--refused", "-n", "1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines();
    let mut next =
        || -> serde_json::Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    assert_eq!(next()["host"], "evil.test");
    program.ask("http://worse.test/");
    assert_eq!(next()["host"], "worse.test");
    program.child.kill().unwrap();
    program.child.wait().unwrap();
    let ended = following.wait_with_output().unwrap();
    assert!(ended.status.success());
    let told = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(
        told.starts_with("gateway: `serve-") && told.ends_with("` has ended\n"),
        "{told}"
    );
    let arguments = ["log", "--config", "gateway.toml", "--refused"];
    let (code, said) = program.gateway(&arguments);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("worse.test"), "{said}");
}

/// What bash proposes after these words, the last of which is being typed.
fn completed(program: &Program, words: &[&str]) -> Vec<String> {
    let binary = std::path::Path::new(env!("CARGO_BIN_EXE_gateway"));
    let typed = "eval \"$(gateway generate completions bash)\"; COMP_WORDS=(\"$@\"); \
                 COMP_CWORD=$(($# - 1)); _gateway gateway \"${COMP_WORDS[COMP_CWORD]}\" \
                 \"${COMP_WORDS[COMP_CWORD-1]}\"; printf '%s\\n' \"${COMPREPLY[@]}\"";
    let base = crate::program::command(program.folder.path());
    let variables = base
        .get_envs()
        .filter_map(|(name, value)| Some((name, value?)));
    let mut bash = std::process::Command::new("bash");
    bash.args(["-c", typed, "bash"])
        .args(words)
        .env_clear()
        .envs(variables);
    let path = format!("{}:/usr/bin:/bin", binary.parent().unwrap().display());
    let output = bash.env("PATH", path).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    said.lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_the_names_of_what_runs_and_of_presets() {
    let program = Program::start("");
    for (words, wanted) in [
        (&["gateway", "session", "end", "ag"][..], &["agent-1"][..]),
        (&["gateway", "token", "mint", "--session", ""], &["agent-1"]),
        (&["gateway", "revoke", "k"], &["key"]),
        (&["gateway", "exec", "--preset", "blo"], &["blocklist"]),
        (&["gateway", "secret", "presets", "npm"], &["npm"]),
    ] {
        assert_eq!(completed(&program, words), wanted, "{words:?}");
    }
}
