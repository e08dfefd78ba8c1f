//! Callers that a door does not take: each id that leaves is found, and all are counted by address
//! and cause. Who is behind a session is shown wherever that is.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde_json::Value;
use socket2::{Domain, Socket, Type};

use super::program::{Program, free};
use super::{ASKED, listener, send, uid};

/// A program whose proxy on TCP takes a password.
fn guarded() -> (Program, SocketAddr) {
    let door = free();
    let program = Program::start("");
    let more = format!(
        "[[listener]]\nkind = \"proxy\"\naddress = \"{door}\"\nsession = \"agent-1\"\n\
         who = [\"password\"]\npasswords = {{ alice = \"env:KEY\" }}\n"
    );
    program.edit(|text| text.to_owned() + &more);
    program.reload();
    (program, door)
}

/// Asks from an address of loopback with a wrong password, and returns the id of the refusal.
fn wrong(door: SocketAddr, from: Ipv4Addr) -> String {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
    let within = Some(Duration::from_secs(20));
    socket.set_read_timeout(within).unwrap();
    socket.connect(&door.into()).unwrap();
    let mut stream: std::net::TcpStream = socket.into();
    let asked = b"CONNECT stream.test:80 HTTP/1.1\r\nHost: stream.test:80\r\n\
        Proxy-Authorization: Basic YWxpY2U6d3Jvbmc=\r\n\r\n";
    stream.write_all(asked).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 407 "), "{answer}");
    let lower = answer.to_ascii_lowercase();
    let (_, id) = lower.split_once("gateway-exchange: ").unwrap();
    id[..20].to_owned()
}

/// Ends a program in order. Its folder stays.
fn ended(mut program: Program) -> tempfile::TempDir {
    let other = tempfile::tempdir().unwrap();
    std::mem::replace(&mut program.folder, other)
}

const ADDRESSES: u8 = 50;
const EACH: usize = 200;

#[test]
fn ten_thousand_wrong_logins_are_counted_by_address_and_each_id_is_found_in_a_bounded_log() {
    let (program, door) = guarded();
    let asking: Vec<_> = (0..4_u8)
        .map(|nth| {
            std::thread::spawn(move || {
                let mut ids = BTreeSet::new();
                for from in (1..=ADDRESSES).filter(|from| from % 4 == nth) {
                    for _ in 0..EACH {
                        ids.insert(wrong(door, Ipv4Addr::new(127, 0, 1, from)));
                    }
                }
                ids
            })
        })
        .collect();
    let ids: BTreeSet<String> = asking
        .into_iter()
        .flat_map(|thread| thread.join().unwrap())
        .collect();
    assert_eq!(ids.len(), usize::from(ADDRESSES));
    // An operator asks while it runs.
    let one = ids.first().unwrap();
    let (code, why) = program.gateway(&["why", one, "--config", "gateway.toml"]);
    assert!(code == 0 && why.contains("stream.test:80"), "{why}");
    assert!(why.contains("by connect from 127.0.1."), "{why}");
    // With its end, all are told.
    let folder = ended(program);
    let log = fs::read_to_string(folder.path().join("audit/log.jsonl")).unwrap();
    assert!(log.len() < 500_000, "{} bytes", log.len());
    let mut counts = BTreeMap::<String, u64>::new();
    for line in log.lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        if record["reason"] != "proxy_authentication" {
            continue;
        }
        assert!(ids.contains(record["id"].as_str().unwrap()), "{record}");
        assert_eq!(record["host"], "stream.test", "{record}");
        let client: SocketAddr = record["client"].as_str().unwrap().parse().unwrap();
        let is_first = record["kind"] == "exchange";
        assert_eq!(is_first, record["count"].is_null(), "{record}");
        *counts.entry(client.ip().to_string()).or_default() +=
            record["count"].as_u64().unwrap_or(1);
    }
    assert_eq!(counts.len(), usize::from(ADDRESSES));
    for (address, count) in &counts {
        assert_eq!(*count, EACH as u64, "{address}");
    }
    for id in &ids {
        let asked = ["why", id, "--audit", "audit/log.jsonl"];
        let (code, why) = super::gateway(folder.path(), &asked);
        assert_eq!(code, 0, "{id}: {why}");
        let again = format!("{} more of this address and cause", EACH - 1);
        assert!(why.contains(&again), "{why}");
    }
}

#[test]
fn the_user_stands_beside_the_session_wherever_that_is_shown_and_a_rule_may_be_the_users() {
    let program = Program::start("");
    let door = free();
    let caller = "session = \"{caller}\"";
    let mut more = format!(
        "[[listener]]\nkind = \"proxy\"\naddress = \"{door}\"\n{caller}\n\
         who = [\"password\"]\npasswords = {{ alice = \"env:KEY\", bob = \"env:KEY\" }}\n"
    );
    let unix = format!(
        "session = \"agent-1\"\nwho = [\"unix\"]\nuids = [\"{}\"]",
        uid()
    );
    more += &listener("proxy", &program.path("agents.sock"), &unix);
    fs::write(program.path("rules.cedar"), "").unwrap();
    program.edit(|text| text.replace("phantoms.env", "phantoms-{session}.env") + &more);
    program.reload();
    let ask = |user: &str| {
        let mut curl = std::process::Command::new("curl");
        let proxy = format!("http://{user}:{}@{door}", super::program::CANARY);
        curl.args(["-sS", "-m", "20", "-x", &proxy, "http://stream.test/"]);
        let said = curl.output().unwrap().stdout;
        String::from_utf8_lossy(&said).into_owned()
    };
    let refused = ask("alice");
    let user = "user:alice";
    assert!(refused.contains(&format!("of user `{user}`")), "{refused}");
    assert!(ask("bob").contains("of user `user:bob`"));
    send(&program.path("agents.sock"), ASKED);
    let (_, sessions) = program.gateway(&["session", "list"]);
    assert!(sessions.contains("; for user:alice"), "{sessions}");
    let (_, log) = program.gateway(&["log", "--config", "gateway.toml"]);
    assert!(log.contains(&format!("({user})")), "{log}");
    assert!(log.contains(&format!("agent-1 (uid:{})", uid())), "{log}");
    let (_, log) = program.gateway(&["log", "--config", "gateway.toml", "--user", "user:bob"]);
    assert!(
        log.contains("(user:bob)") && !log.contains("(user:alice)"),
        "{log}"
    );
    let told = fs::read_to_string(program.path("log")).unwrap();
    assert!(told.contains("(user:alice)"), "{told}");
    // What one was refused is allowed to the user, in whatever session, and to nobody else.
    let (code, said) = program.gateway(&["allow", "stream.test:80", "--user", user, "--yes"]);
    assert_eq!(code, 0, "{said}");
    assert!(
        said.contains("principal in Gateway::User::\"user:alice\""),
        "{said}"
    );
    assert!(ask("alice").ends_with("ok") && !ask("bob").ends_with("ok"));
    let (_, grants) = program.gateway(&["grants"]);
    assert!(grants.contains("for user user:alice"), "{grants}");
    let refused = send(&program.path("agents.sock"), ASKED);
    assert!(refused.contains("policy_default_deny"), "{refused}");
    let group = format!("gid:{}", super::gid());
    let (code, said) = program.gateway(&["allow", "--last", "--group", &group, "--yes"]);
    assert_eq!(code, 0, "{said}");
    assert!(send(&program.path("agents.sock"), ASKED).ends_with("ok"));
}

#[test]
fn a_phantom_that_lost_its_letter_case_stands_in_no_record_of_who_is_refused() {
    let (program, door) = guarded();
    let held = fs::read_to_string(program.path("phantoms.env")).unwrap();
    let phantom = held
        .lines()
        .find_map(|line| line.split_once('='))
        .unwrap()
        .1;
    let phantom = phantom.trim_matches(['\'', '"']).to_owned();
    assert!(phantom.len() > 12, "{held}");
    let lower = phantom.to_lowercase();
    // Strangers at one door, and the session itself at the other.
    for (to, host) in [
        (door, format!("{lower}.test")),
        (program.proxy, format!("{lower}.test")),
        (program.proxy, format!("{phantom}.test")),
    ] {
        let mut stream = std::net::TcpStream::connect(to).unwrap();
        let asked = format!("CONNECT {host}:443 HTTP/1.1\r\nHost: {host}:443\r\n\r\n");
        stream.write_all(asked.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let _ = stream.read_to_string(&mut String::new());
    }
    let (code, said) = program.gateway(&["log", "--refused"]);
    assert_eq!(code, 0, "{said}");
    assert!(!said.to_lowercase().contains(&lower), "{said}");
    let folder = ended(program);
    let log = fs::read_to_string(folder.path().join("audit/log.jsonl")).unwrap();
    assert!(log.contains("proxy_authentication"), "{log}");
    assert!(!log.to_lowercase().contains(&lower), "{log}");
}
