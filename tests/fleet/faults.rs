//! What kills, stops, cuts and restored dumps do to a fleet.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::replica::{CANARY, Fleet, Replica};

const BUDGET: &str = r#"
[[budget]]
name = "calls"
unit = "requests"
most = 1000
per = "month"
"#;
const LIMITED: &str = "
permit(principal, action, resource);
@budget(\"calls\")
forbid(principal, action == Gateway::Action::\"GET\", resource);";

/// Asks from so many clients at once until `is_over` says so.
fn load(
    all: &[Replica],
    clients: usize,
    token: &str,
    each: impl Fn(usize, u16, &str) -> bool + Sync,
) {
    std::thread::scope(|scope| {
        for client in 0..clients {
            let each = &each;
            scope.spawn(move || {
                for turn in 0.. {
                    let replica = &all[(client + turn) % all.len()];
                    let (status, said) = replica.ask(token, "/");
                    if each((client + turn) % all.len(), status, &said) {
                        return;
                    }
                }
            });
        }
    });
}

#[test]
fn a_budget_is_never_over_and_all_of_it_is_usable() {
    let mut fleet = Fleet::new();
    (fleet.further, fleet.rules) = (BUDGET.to_owned(), LIMITED.to_owned());
    let all = fleet.start(["a", "b", "c"]);
    let token = all[0].session("agent");
    let (spent, served) = (AtomicU64::new(0), AtomicU64::new(0));
    load(&all, 64, &token, |_, status, said| {
        match status {
            200 => drop(served.fetch_add(1, Ordering::SeqCst)),
            402 => drop(spent.fetch_add(1, Ordering::SeqCst)),
            _ => panic!("{status} {said}"),
        }
        spent.load(Ordering::SeqCst) > 64
    });
    let (served, lent) = (served.into_inner(), fleet.origin.count());
    println!("without a fault: {served} of 1000 served");
    assert!(
        lent <= 1000 && (990..=1000).contains(&served),
        "{lent} {served}"
    );
}

#[test]
fn a_budget_is_never_over_with_a_kill_a_stop_and_a_store_that_is_cut_off() {
    let mut fleet = Fleet::new();
    (fleet.further, fleet.rules) = (BUDGET.to_owned(), LIMITED.to_owned());
    let mut all = fleet.start(["a", "b", "c"]);
    let token = all[0].session("agent");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let spending = scope.spawn(|| {
            load(&all, 64, &token, |_, status, _| {
                if status != 200 {
                    std::thread::sleep(Duration::from_millis(5));
                }
                is_over.load(Ordering::SeqCst)
            });
        });
        std::thread::sleep(Duration::from_millis(150));
        all[2].signal(Signal::KILL);
        all[1].signal(Signal::STOP);
        all[0].way.cut();
        std::thread::sleep(Duration::from_secs(3));
        all[0].way.mend();
        all[1].signal(Signal::CONT);
        std::thread::sleep(Duration::from_secs(5));
        is_over.store(true, Ordering::SeqCst);
        spending.join().unwrap();
    });
    let lent = fleet.origin.count();
    println!("with a kill, a stop and a cut: {lent} of 1000 reached the origin");
    assert!((900..=1000).contains(&lent), "{lent}");
    all[2].child.wait().unwrap();
}

#[test]
fn once_a_revocation_is_answered_no_byte_leaves_any_replica() {
    let fleet = Fleet::new();
    let all = fleet.start(["a", "b", "c"]);
    let token = all[0].session("agent");
    let is_over = AtomicBool::new(false);
    let rounds: usize = std::env::var("ROUNDS").map_or(20, |rounds| rounds.parse().unwrap());
    let mut took = Vec::new();
    std::thread::scope(|scope| {
        let asking =
            scope.spawn(|| load(&all, 8, &token, |_, _, _| is_over.load(Ordering::SeqCst)));
        for round in 0..rounds {
            let before = fleet.origin.count();
            let until = Instant::now() + Duration::from_secs(10);
            while fleet.origin.count() < before + 20 {
                assert!(Instant::now() < until, "{}", all[0].log());
                std::thread::sleep(Duration::from_millis(1));
            }
            let by = &all[round % 3];
            // One in three has a replica that is stopped.
            let frozen = (round % 3 == 2).then(|| &all[(round + 1) % 3]);
            if let Some(frozen) = frozen {
                frozen.signal(Signal::STOP);
            }
            let (code, said) = by.gateway(&["revoke", "key"]);
            let answered = Instant::now();
            assert_eq!(code, 0, "{said}");
            let at_answer = fleet.origin.count();
            if let Some(frozen) = frozen {
                frozen.signal(Signal::CONT);
            } else {
                let after = said.lines().filter_map(|line| {
                    line.split_once("applied after ")?
                        .1
                        .strip_suffix(" ms")?
                        .parse::<f64>()
                        .ok()
                });
                took.extend(after.reduce(f64::max));
            }
            std::thread::sleep(Duration::from_millis(100));
            let last = fleet.origin.last.lock().unwrap().unwrap();
            assert_eq!(
                fleet.origin.count(),
                at_answer,
                "round {round}: {:?}",
                last - answered
            );
            assert_eq!(by.gateway(&["restore", "key"]).0, 0);
        }
        is_over.store(true, Ordering::SeqCst);
        asking.join().unwrap();
    });
    took.sort_by(f64::total_cmp);
    let at = |part: usize| took[(took.len() - 1) * part / 100];
    println!(
        "until the last replica had applied it: p50 {} ms, p99 {} ms",
        at(50),
        at(99)
    );
}

#[test]
fn kills_lose_no_answered_decision_and_no_session() {
    let fleet = Fleet::new();
    let mut all = fleet.start(["a", "b", "c"]);
    let token = all[0].session("agent");
    let kills: usize = std::env::var("ROUNDS").map_or(6, |rounds| rounds.parse().unwrap());
    let mut ended = BTreeSet::new();
    let mut made = Vec::new();
    for kill in 0..kills {
        let (name, gone) = (format!("one-{kill}"), kill % 3);
        let by = (gone + 1) % 3;
        let own = all[gone].session(&name);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| {
                load(&all[..], 4, &token, |_, _, _| {
                    is_over.load(Ordering::SeqCst)
                });
            });
            std::thread::sleep(Duration::from_millis(30));
            if kill % 2 == 0 {
                all[gone].json(&["session", "end", &name]);
                ended.insert(name.clone());
            }
            all[gone].signal(Signal::KILL);
            is_over.store(true, Ordering::SeqCst);
            asking.join().unwrap();
        });
        made.push((name.clone(), own.clone()));
        let status = all[by].ask(&own, "/").0;
        assert_eq!(
            status == 200,
            !ended.contains(&name),
            "{name}: {status} {}",
            all[by].log()
        );
        all[gone].child.wait().unwrap();
        all[gone].again();
        all[gone].wait();
    }
    for (name, token) in &made {
        for replica in &all {
            let status = replica.ask(token, "/").0;
            assert_eq!(
                status == 200,
                !ended.contains(name),
                "{name} at {}",
                replica.name
            );
        }
    }
    for replica in &all {
        assert_eq!(replica.ask(&token, "/").0, 200);
        replica.verify();
    }
}

#[test]
fn a_store_that_went_back_is_told_again_and_revives_nothing() {
    let mut fleet = Fleet::new();
    (fleet.further, fleet.rules) = (BUDGET.to_owned(), LIMITED.to_owned());
    let [a, b] = fleet.start(["a", "b"]);
    let (token, other) = (a.session("agent"), a.session("other"));
    assert_eq!((a.ask(&token, "/").0, b.ask(&other, "/").0), (200, 200));
    // A revocation that was taken back before the dump, and made again after it.
    assert_eq!(b.gateway(&["revoke", "key"]).0, 0);
    assert_eq!(b.gateway(&["restore", "key"]).0, 0);
    let old = fleet.database.dump();
    // What was decided after the dump.
    a.json(&["session", "end", "other"]);
    assert_eq!(b.gateway(&["revoke", "key"]).0, 0);
    for _ in 0..50 {
        a.ask(&token, "/");
    }
    let taken = |fleet: &Fleet| -> u64 {
        let taken = fleet.database.sql("SELECT sum(taken) FROM gateway_budget");
        taken.parse().unwrap()
    };
    let spent = taken(&fleet);
    fleet.database.restore(&old);
    let until = Instant::now() + Duration::from_secs(15);
    let is_told =
        || a.log().contains("the store went back") || b.log().contains("the store went back");
    while !(is_told() && a.is_ready() && b.is_ready()) {
        assert!(Instant::now() < until, "{}\n{}", a.log(), b.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    let before = fleet.origin.count();
    for replica in [&a, &b] {
        assert!(replica.ask(&token, "/").1.contains("credential_revoked"));
        assert_ne!(replica.ask(&other, "/").0, 200);
    }
    assert_eq!(fleet.origin.count(), before);
    assert!(taken(&fleet) >= spent, "{} {spent}", taken(&fleet));
    // A third one knows it too, which saw nothing of it.
    let [c] = fleet.start(["c"]);
    assert!(c.ask(&token, "/").1.contains("credential_revoked"));
    assert_ne!(c.ask(&other, "/").0, 200);
}

#[test]
fn what_somebody_did_to_a_row_is_noticed() {
    let ways: [(&str, &str); 5] = [
        (
            "changed",
            "UPDATE gateway_row SET record = replace(record, '\"ended\":', '\"ended\": ') WHERE id = 'ended'",
        ),
        ("removed", "DELETE FROM gateway_row WHERE id = 'ended'"),
        (
            "moved",
            "UPDATE gateway_row SET id = 'moved' WHERE id = 'ended'",
        ),
        (
            "put back",
            "UPDATE gateway_row r SET record = k.record, proof = k.proof, version = k.version, sealed = k.sealed FROM kept k WHERE r.id = 'ended' AND k.id = 'ended'",
        ),
        (
            "put back with its decision",
            "UPDATE gateway_row r SET record = k.record, proof = k.proof, version = k.version, sealed = k.sealed FROM kept k WHERE r.id = 'ended' AND k.id = 'ended'; DELETE FROM gateway_decision WHERE id = 'ended' AND revision > (SELECT min(revision) FROM gateway_decision WHERE id = 'ended')",
        ),
    ];
    for (way, sql) in ways {
        let fleet = Fleet::new();
        let [a] = fleet.start(["a"]);
        let (token, other) = (a.session("agent"), a.session("ended"));
        fleet
            .database
            .sql("CREATE TABLE kept AS SELECT * FROM gateway_row");
        a.json(&["session", "end", "ended"]);
        fleet.database.sql(sql);
        // One that begins reads it, and one that runs compares it now and again.
        let mut b = fleet.spawn("b");
        let until = Instant::now() + Duration::from_secs(10);
        while !b.log().contains("not as a gateway wrote it") && !b.log().contains("was changed") {
            assert!(Instant::now() < until, "{way}: {}", b.log());
            assert!(b.ask(&other, "/").0 != 200, "{way}");
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_ne!(b.ask(&token, "/").0, 200, "{way}");
        let _ = b.child.kill();
    }
}

#[test]
fn neither_the_store_nor_its_dump_nor_a_log_holds_a_secret() {
    let fleet = Fleet::new();
    let [a, b] = fleet.start(["a", "b"]);
    let made = a.json(&["session", "create", "agent", "--ends", "8h"]);
    let token = made["token"].as_str().unwrap();
    let phantom = made["variables"]["API_KEY"].as_str().unwrap();
    assert_eq!(b.ask(token, "/").0, 200);
    assert_eq!(b.gateway(&["revoke", "key"]).0, 0);
    let seen = Arc::new(Mutex::new(fleet.database.dump()));
    for replica in [&a, &b] {
        let audit = std::fs::read(replica.path("audit/log.jsonl")).unwrap();
        seen.lock()
            .unwrap()
            .extend([replica.log().into_bytes(), audit].concat());
    }
    let seen = seen.lock().unwrap();
    let key = std::fs::read_to_string(a.path("key")).unwrap();
    for secret in [CANARY, token, phantom, &key, crate::server::SUPERUSER] {
        let is_seen = seen
            .windows(secret.len())
            .any(|part| part == secret.as_bytes());
        assert!(!is_seen && secret.len() > 8, "{secret}");
    }
    let heads = fleet.origin.heads.lock().unwrap();
    assert!(heads.contains(CANARY) && !heads.contains(token) && !heads.contains(phantom));
}

#[test]
fn an_older_state_put_back_under_a_running_replica_revives_nothing() {
    let tables = ["gateway_clock", "gateway_row", "gateway_decision"];
    let keep: String = tables
        .map(|table| format!("CREATE TABLE kept_{table} AS SELECT * FROM {table};"))
        .concat();
    let put_back: String = tables
        .map(|table| format!("TRUNCATE {table}; INSERT INTO {table} SELECT * FROM kept_{table};"))
        .concat();
    let ways = [
        (
            "one row",
            "DELETE FROM gateway_decision d WHERE NOT EXISTS \
            (SELECT 1 FROM kept_gateway_decision k WHERE k.revision = d.revision); \
            UPDATE gateway_row r SET record = k.record, proof = k.proof, sealed = k.sealed \
            FROM kept_gateway_row k WHERE r.id = k.id"
                .to_owned(),
        ),
        (
            "all, and the number of the clock",
            format!("BEGIN; {put_back} UPDATE gateway_clock SET n = N; COMMIT"),
        ),
    ];
    for (way, sql) in ways {
        let fleet = Fleet::new();
        let [a, b] = fleet.start(["a", "b"]);
        let token = a.session("agent");
        fleet.database.sql(&keep);
        a.json(&["session", "end", "agent"]);
        assert_eq!(a.gateway(&["revoke", "key"]).0, 0);
        let n = fleet.database.sql("SELECT n FROM gateway_clock");
        fleet.database.sql(&sql.replace("= N;", &format!("= {n};")));
        let [c] = [fleet.spawn("c")];
        let until = Instant::now() + Duration::from_secs(4);
        while Instant::now() < until {
            for replica in [&a, &b, &c] {
                let (status, said) = replica.ask(&token, "/");
                assert_ne!(status, 200, "{way}: {} {said}", replica.name);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(fleet.origin.count(), 0, "{way}");
    }
}

#[test]
fn nothing_leaves_a_replica_that_was_frozen_under_load() {
    let fleet = Fleet::new();
    let all = fleet.start(["a", "b"]);
    let token = all[0].session("agent");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            load(&all[1..], 16, &token, |_, _, _| {
                is_over.load(Ordering::SeqCst)
            })
        });
        for round in 0..5 {
            let before = fleet.origin.count();
            let until = Instant::now() + Duration::from_secs(10);
            while fleet.origin.count() < before + 50 {
                assert!(Instant::now() < until, "{}", all[1].log());
                std::thread::sleep(Duration::from_millis(1));
            }
            all[1].signal(Signal::STOP);
            let (code, said) = all[0].gateway(&["revoke", "key"]);
            assert_eq!(code, 0, "{said}");
            std::thread::sleep(Duration::from_millis(50));
            let at_answer = fleet.origin.count();
            all[1].signal(Signal::CONT);
            std::thread::sleep(Duration::from_millis(200));
            assert_eq!(fleet.origin.count(), at_answer, "round {round}");
            assert_eq!(all[0].gateway(&["restore", "key"]).0, 0);
        }
        is_over.store(true, Ordering::SeqCst);
        asking.join().unwrap();
    });
}
