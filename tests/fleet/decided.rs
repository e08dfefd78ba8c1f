//! What is decided at one replica holds at all of them.

use std::io::Read as _;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::replica::{CANARY, Fleet, Replica};

#[test]
fn a_session_made_at_one_serves_at_all_and_what_narrows_it_is_proven() {
    let fleet = Fleet::new();
    let all = fleet.start(["a", "b", "c"]);
    let [a, b, c] = &all;
    let token = a.session("agent");
    for replica in &all {
        assert_eq!(
            replica.ask(&token, "/"),
            (200, "ok".to_owned()),
            "{}",
            replica.log()
        );
    }
    assert_eq!(fleet.origin.count(), 3);
    let phantoms = |replica: &Replica| {
        let environment = "/v1/sessions/agent/environment";
        replica.get(environment)["variables"].to_string()
    };
    assert_eq!(phantoms(a), phantoms(b));
    assert!(phantoms(a).contains("API_KEY") && !phantoms(a).contains(CANARY));
    // Each command tells who knows of it.
    let told = b.json(&["session", "pause", "agent"]);
    let names = |told: &serde_json::Value| {
        let all = told["fleet"].as_array().unwrap().iter();
        let mut names: Vec<_> = all
            .map(|one| one["replica"].as_str().unwrap().to_owned())
            .collect();
        names.sort();
        names
    };
    assert_eq!(names(&told), ["a", "b", "c"], "{told}");
    for replica in &all {
        assert!(replica.ask(&token, "/").1.contains("session_paused"));
    }
    c.json(&["session", "resume", "agent"]);
    let until = Instant::now() + Duration::from_secs(5);
    while all.iter().any(|replica| replica.ask(&token, "/").0 != 200) {
        assert!(Instant::now() < until, "a pause is not taken back");
    }
    let (code, said) = c.gateway(&["revoke", "key"]);
    assert_eq!(code, 0, "{said}");
    for name in ["a", "b", "c"] {
        assert!(
            said.contains(&format!("replica {name}: applied after")),
            "{said}"
        );
    }
    let before = fleet.origin.count();
    for replica in &all {
        let (status, said) = replica.ask(&token, "/");
        assert!(
            status >= 400 && said.contains("credential_revoked"),
            "{status} {said}"
        );
    }
    assert_eq!(fleet.origin.count(), before);
    let (code, said) = a.gateway(&["restore", "key"]);
    assert_eq!(code, 0, "{said}");
    for replica in &all {
        assert_eq!(replica.ask(&token, "/").0, 200, "{}", replica.name);
    }
    // One that this replica has never seen.
    let asleep = a.session("asleep");
    let told = c.json(&["session", "end", "asleep"]);
    assert_eq!(names(&told), ["a", "b", "c"], "{told}");
    assert!(all.iter().all(|replica| replica.ask(&asleep, "/").0 != 200));
    let (code, said) = b.gateway(&["session", "end", "nobody"]);
    assert!(
        code == 1 && said.contains("no such session"),
        "{code} {said}"
    );
    let told = a.json(&["session", "end", "agent"]);
    assert_eq!(names(&told), ["a", "b", "c"], "{told}");
    for replica in &all {
        assert_ne!(replica.ask(&token, "/").0, 200);
    }
    let (code, said) = b.gateway(&["fleet", "status"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(said.matches("live").count(), 3, "{said}");
}

#[test]
fn a_replica_without_its_store_refuses_within_its_lease_and_comes_back() {
    let fleet = Fleet::new();
    let [a, b] = fleet.start(["a", "b"]);
    let token = a.session("agent");
    assert_eq!(b.ask(&token, "/").0, 200);
    let mut stream = b.begin(&token, "/stream").unwrap();
    let mut part = [0; 64];
    assert!(stream.read(&mut part).unwrap() > 0);
    let cut = Instant::now();
    b.way.cut();
    // What it is told meanwhile holds without it, once its lease is over.
    let (code, said) = a.gateway(&["revoke", "key"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("replica b: its lease is over"), "{said}");
    let took = cut.elapsed();
    assert!(took < Duration::from_millis(3_000), "{took:?}");
    let before = fleet.origin.count();
    let (status, said) = b.ask(&token, "/");
    assert!(
        status == 503 && said.contains("state_stale"),
        "{status} {said}"
    );
    assert_eq!(fleet.origin.count(), before);
    // The stream on which the secret was lent ends.
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(cut.elapsed() < Duration::from_secs(6));
    assert!(!b.is_ready());
    b.way.mend();
    let mended = Instant::now();
    while !b.is_ready() {
        assert!(mended.elapsed() < Duration::from_secs(5), "{}", b.log());
        std::thread::sleep(Duration::from_millis(10));
    }
    println!("came back after {:?}", mended.elapsed());
    assert!(b.ask(&token, "/").1.contains("credential_revoked"));
}

#[test]
fn a_revocation_while_the_store_is_away_says_so_and_reaches_the_others_later() {
    let fleet = Fleet::new();
    let [a, b] = fleet.start(["a", "b"]);
    let token = a.session("agent");
    assert_eq!(b.ask(&token, "/").0, 200);
    a.way.cut();
    let (code, said) = a.gateway(&["revoke", "key"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("the fleet was not reached"), "{said}");
    assert_eq!(b.ask(&token, "/").0, 200);
    a.way.mend();
    let until = Instant::now() + Duration::from_secs(10);
    while b.ask(&token, "/").0 == 200 {
        assert!(Instant::now() < until, "{}", a.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    while !a.ask(&token, "/").1.contains("credential_revoked") {
        assert!(Instant::now() < until, "{}", a.log());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_frozen_replica_lends_nothing_when_it_wakes() {
    let fleet = Fleet::new();
    let [a, b] = fleet.start(["a", "b"]);
    let token = a.session("agent");
    assert_eq!(b.ask(&token, "/").0, 200);
    b.signal(Signal::STOP);
    let waiting: Vec<_> = (0..8).map(|_| b.begin(&token, "/").unwrap()).collect();
    let (code, said) = a.gateway(&["revoke", "key"]);
    assert_eq!(code, 0, "{said}");
    let before = fleet.origin.count();
    b.signal(Signal::CONT);
    for mut one in waiting {
        let mut said = String::new();
        let _ = one.read_to_string(&mut said);
        assert!(!said.starts_with("HTTP/1.1 200"), "{said}");
    }
    assert_eq!(fleet.origin.count(), before);
}

#[test]
fn sessions_wake_where_they_are_asked_for() {
    let fleet = Fleet::new();
    let [a, b] = fleet.start(["a", "b"]);
    let tokens: Vec<String> = (0..200)
        .map(|n| a.session_soon(&format!("s-{n}")))
        .collect();
    let first = |replica: &Replica| {
        let began = Instant::now();
        for token in &tokens {
            assert_eq!(replica.ask(token, "/").0, 200, "{}", replica.log());
        }
        began.elapsed() / u32::try_from(tokens.len()).unwrap()
    };
    let (waking, awake) = (first(&b), first(&b));
    println!("a request that wakes its session: {waking:?}; one whose session is awake: {awake:?}");
    // Nothing is awake that nobody asked for.
    let [c] = fleet.start(["c"]);
    assert_eq!(c.get("/v1/status")["sessions"], 0);
}

#[test]
fn what_a_replica_could_not_apply_is_not_proven_by_it() {
    let fleet = Fleet::new();
    let [a, b] = fleet.start(["a", "b"]);
    let token = a.session("agent");
    assert_eq!(b.ask(&token, "/").0, 200);
    b.way.refuse("kind IN ('secret', 'token')", 3);
    let (code, said) = a.gateway(&["revoke", "key"]);
    assert_eq!(code, 0, "{said}");
    let (status, said) = b.ask(&token, "/");
    assert!(status >= 400, "{status} {said} {}", b.log());
}

#[test]
fn a_revocation_that_reached_nobody_outlives_a_kill() {
    let fleet = Fleet::new();
    let [mut a, b] = fleet.start(["a", "b"]);
    let token = a.session("agent");
    assert_eq!(b.ask(&token, "/").0, 200);
    a.way.cut();
    assert_eq!(a.gateway(&["revoke", "key"]).0, 1);
    a.crash();
    a.way.mend();
    let until = Instant::now() + Duration::from_secs(20);
    while b.ask(&token, "/").0 == 200 {
        assert!(Instant::now() < until, "{}", a.log());
        if let Ok(Some(_)) = a.child.try_wait() {
            // It could not reach its state when it started.
            a.again();
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_restore_that_did_not_reach_the_fleet_lends_nothing_again() {
    let fleet = Fleet::new();
    let [a, b] = fleet.start(["a", "b"]);
    let token = a.session("agent");
    assert_eq!(b.gateway(&["revoke", "key"]).0, 0);
    a.way.cut();
    let (code, said) = a.gateway(&["restore", "key"]);
    assert!(
        code != 0 && said.contains("fleet was not reached"),
        "{code} {said}"
    );
    a.way.mend();
    let until = Instant::now() + Duration::from_secs(4);
    while Instant::now() < until {
        let (status, said) = a.ask(&token, "/");
        assert_ne!(status, 200, "{said}");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(fleet.origin.count(), 0);
}
