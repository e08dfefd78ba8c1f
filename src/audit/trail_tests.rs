//! Tests of the trail: what each end writes, and what a failing disk does to it.

use std::ops::Range;

use super::*;
use crate::memory::Memory;
use crate::{Durability, Record};
use proptest::prelude::*;

fn wait<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime")
        .block_on(work)
}

fn log() -> (Log, Memory) {
    Log::memory(Durability::Batch).expect("a log in memory")
}

fn begin(log: &Log) -> Trail {
    Trail::begin(log, ExchangeId::from_bytes([7; 10]), "transparent")
}

fn end(response_bytes: u64) -> ExchangeEnd {
    let counted = Some(response_bytes);
    ExchangeEnd {
        outcome: Outcome::Whole,
        reason: None,
        request_bytes: None,
        response_bytes: counted,
        scrubbed: 0,
    }
}

fn of(memory: &Memory, kind: &str) -> Vec<Record> {
    memory
        .records()
        .into_iter()
        .filter(|record| record.kind == kind)
        .collect()
}

fn name(text: &str) -> CredentialName {
    CredentialName::new(text).expect("a name")
}

struct Hide(&'static [u8]);

impl Redact for Hide {
    fn redact(&self, text: &[u8], places: &mut Vec<Range<usize>>) {
        places.extend(memchr::memmem::find_iter(text, self.0).map(|at| at..at + self.0.len()));
    }
}

/// Two kinds of phantoms, each found from left to right.
struct HideBoth;

impl Redact for HideBoth {
    fn redact(&self, text: &[u8], places: &mut Vec<Range<usize>>) {
        Hide(b"SECOND").redact(text, places);
        Hide(b"FIRST").redact(text, places);
    }
}

#[test]
fn phantoms_are_concealed_in_whatever_order_they_are_found() {
    let (log, memory) = log();
    let mut trail = begin(&log);
    let session = SessionId::new("s1").expect("a name");
    trail.session(&session, Arc::new(HideBoth));
    trail.path("/a/FIRST/b/SECOND/c");
    wait(trail.answer(200, Length::Known(4))).expect("room");
    let record = of(&memory, "exchange").pop().expect("a record");
    assert_eq!(record.path.as_deref(), Some("/a/[phantom]/b/[phantom]/c"));
}

#[test]
fn an_answer_writes_all_that_is_known() {
    let (log, memory) = log();
    let mut trail = begin(&log);
    trail.session(
        &SessionId::new("s1").expect("a name"),
        Arc::new(Hide(b"PHANTOM")),
    );
    trail.protocol(Version::HTTP_2);
    trail.method("GET");
    trail.scheme("https");
    trail.authority("api.example.test", 443);
    trail.path("/v1/things");
    trail.query("page=2&&acl&key=VALUE");
    trail.reach(Phase::Identify);
    let policy = PolicyId::new("reads").expect("a name");
    trail.decide(AuditDecision::Allow, &Arc::from([policy]), 4);
    trail.lend(&name("github"), &"field authorization".into());
    trail.dialled(([192, 0, 2, 1], 443).into(), Version::HTTP_11);
    trail.client(Some(([198, 51, 100, 7], 50_000).into()));
    trail.origin_answered(201);
    trail.request_bytes(3);
    wait(trail.answer(201, Length::Known(5))).expect("room");
    let [record] = &of(&memory, "exchange")[..] else {
        panic!("one record")
    };
    let json = serde_json::to_value(record).expect("JSON");
    let told = |key: &str| json[key].to_string();
    assert_eq!(told("id"), "\"07070707070707070707\"");
    assert_eq!(
        (told("session"), told("entry")),
        ("\"s1\"".into(), "\"transparent\"".into())
    );
    assert_eq!(
        (told("protocol"), told("origin_protocol")),
        ("\"h2\"".into(), "\"http/1.1\"".into())
    );
    assert_eq!(
        (told("method"), told("scheme")),
        ("\"GET\"".into(), "\"https\"".into())
    );
    assert_eq!(
        (told("host"), told("port")),
        ("\"api.example.test\"".into(), "443".into())
    );
    assert_eq!(
        (told("path"), told("query")),
        ("\"/v1/things\"".into(), "[\"page\",\"acl\",\"key\"]".into())
    );
    assert_eq!(
        (told("phase"), told("outcome")),
        ("\"answer\"".into(), "\"answered\"".into())
    );
    assert_eq!(
        (told("decision"), told("policies")),
        ("\"allow\"".into(), "[\"reads\"]".into())
    );
    assert_eq!(told("generation"), "4");
    assert_eq!(
        told("lent"),
        "[{\"credential\":\"github\",\"place\":\"field authorization\"}]"
    );
    assert_eq!(told("dialled"), "\"192.0.2.1:443\"");
    assert_eq!(told("client"), "\"198.51.100.7:50000\"");
    assert_eq!(
        (told("status"), told("origin_status")),
        ("201".into(), "201".into())
    );
    assert_eq!(
        (told("request_bytes"), told("response_bytes")),
        ("3".into(), "5".into())
    );
    let us = &record.us;
    assert!(us.identify.is_some() && us.answer.is_some() && us.total.is_some());
    assert!(!String::from_utf8_lossy(&memory.bytes()).contains("VALUE"));
}

#[test]
fn an_end_that_was_announced_needs_no_record() {
    let (log, memory) = log();
    let mut trail = begin(&log);
    wait(trail.answer(200, Length::Known(5))).expect("room");
    trail.end(end(5)).expect("room");
    let mut empty = begin(&log);
    wait(empty.answer(204, Length::Known(0))).expect("room");
    drop(empty);
    assert_eq!(
        (of(&memory, "exchange").len(), of(&memory, "end").len()),
        (2, 0)
    );
}

#[test]
fn an_end_that_was_not_announced_is_recorded() {
    let (log, memory) = log();
    let cut = ExchangeEnd {
        outcome: Outcome::Cut,
        reason: Some("revoked"),
        ..end(3)
    };
    let cases = [
        (Length::Open, end(9), "whole"),
        (Length::Switched, end(9), "whole"),
        (Length::Known(5), cut, "cut"),
        (Length::Known(5), end(4), "whole"),
        (
            Length::Known(5),
            ExchangeEnd {
                scrubbed: 1,
                ..end(5)
            },
            "whole",
        ),
        (
            Length::Known(5),
            ExchangeEnd {
                request_bytes: Some(1),
                ..end(5)
            },
            "whole",
        ),
    ];
    for (length, end, outcome) in cases {
        let before = of(&memory, "end").len();
        let mut trail = begin(&log);
        wait(trail.answer(200, length)).expect("room");
        trail.end(end).expect("room");
        let ends = of(&memory, "end");
        assert_eq!(ends.len(), before + 1, "{length:?} {end:?}");
        assert_eq!(ends[before].outcome.as_deref(), Some(outcome));
        assert_eq!(ends[before].response_bytes, end.response_bytes);
        assert_eq!(ends[before].reason.as_deref(), end.reason);
    }
}

#[test]
fn what_is_noted_after_the_answer_is_in_the_end_record() {
    let (log, memory) = log();
    for (before, after) in [(&["a"][..], &["a"][..]), (&["a", "a"], &["b", "a"])] {
        let noted = Arc::new(SeenCredentials::of(2));
        let mut trail = begin(&log);
        trail.tell(noted.clone());
        before.iter().for_each(|one| noted.add(&name(one)));
        wait(trail.answer(200, Length::Known(3))).expect("recorded");
        after.iter().for_each(|one| noted.add(&name(one)));
        trail.end(end(3)).expect("recorded");
    }
    let told = |record: &Record| {
        let all = record.noted.iter();
        all.map(|one| format!("{} in {}", one.credential, one.place))
            .collect::<Vec<_>>()
    };
    let (answered, ended) = (of(&memory, "exchange"), of(&memory, "end"));
    assert!(answered.iter().all(|one| told(one) == ["a in content"]));
    assert_eq!(
        ended.iter().map(told).collect::<Vec<_>>(),
        [["b in content"]]
    );
}

#[test]
fn a_dropped_exchange_is_recorded_once_as_aborted() {
    let (log, memory) = log();
    let mut trail = begin(&log);
    trail.reach(Phase::Open);
    drop(trail);
    let mut answered = begin(&log);
    wait(answered.answer(200, Length::Known(5))).expect("room");
    drop(answered);
    let exchanges = of(&memory, "exchange");
    assert_eq!(exchanges.len(), 2);
    assert_eq!(exchanges[0].outcome.as_deref(), Some("aborted"));
    assert_eq!(
        (exchanges[0].phase.as_deref(), exchanges[0].status),
        (Some("open"), None)
    );
    let ends = of(&memory, "end");
    assert_eq!(
        (ends.len(), ends[0].outcome.as_deref()),
        (1, Some("aborted"))
    );
}

#[test]
fn a_second_answer_writes_nothing() {
    let (log, memory) = log();
    let mut trail = begin(&log);
    wait(trail.answer(200, Length::Known(0))).expect("room");
    wait(trail.answer(500, Length::Known(0))).expect("room");
    drop(trail);
    assert_eq!(of(&memory, "exchange").len(), 1);
}

#[test]
fn a_refusal_names_its_reason_and_the_side_at_fault() {
    let (log, memory) = log();
    let mut trail = begin(&log);
    let policy = PolicyId::new("no-deletes").expect("a name");
    trail.decide(AuditDecision::Deny, &Arc::from([policy]), 1);
    trail.refuse(ReasonCode::PolicyForbids);
    wait(trail.answer(403, Length::Known(10))).expect("room");
    let record = &of(&memory, "exchange")[0];
    assert_eq!(
        (record.decision.as_deref(), record.reason.as_deref()),
        (Some("deny"), Some("policy_forbids"))
    );
    assert_eq!(
        (record.blame.as_deref(), record.status),
        (Some("policy"), Some(403))
    );
}

#[test]
fn what_must_be_concealed_stands_in_no_text() {
    let (log, memory) = log();
    let mut trail = begin(&log);
    trail.method("GETPHANTOM");
    trail.authority("phantom.PHANTOM.test", 443);
    trail.path(format!(
        "/bot{}PHANTOM/send{}PHANTOM",
        "PHANTOM",
        "x".repeat(2022)
    ));
    trail.query("PHANTOM&a=PHANTOM&bPHANTOMc=1");
    trail.lend(&name("github"), &"field x-PHANTOM".into());
    trail.session(
        &SessionId::new("s1").expect("a name"),
        Arc::new(Hide(b"PHANTOM")),
    );
    wait(trail.answer(200, Length::Known(0))).expect("room");
    let text = String::from_utf8(memory.bytes()).expect("ASCII");
    assert!(!text.contains("PHANT"), "{text}");
    assert_eq!(
        of(&memory, "exchange")[0].query,
        ["[phantom]", "a", "b[phantom]c"]
    );
    assert_eq!(of(&memory, "exchange")[0].path_bytes, Some(2022 + 30));
}

#[test]
fn a_record_stays_bounded_however_much_is_noted() {
    let (log, memory) = log();
    let mut trail = begin(&log);
    trail.method([0xff; 9999]);
    trail.authority([0x1b; 9999], 1);
    trail.path([0u8; 99_999]);
    trail.query(
        "\u{202e}"
            .repeat(21)
            .as_bytes()
            .iter()
            .chain(b"&")
            .copied()
            .cycle()
            .take(99_999)
            .collect::<Vec<_>>(),
    );
    let policies: Vec<_> = (0..999)
        .map(|n| PolicyId::new(&format!("{n:0128}")).expect("a name"))
        .collect();
    trail.decide(AuditDecision::Allow, &policies.into(), u64::MAX);
    for _ in 0..999 {
        trail.lend(&name(&"c".repeat(128)), &"\u{7f}".repeat(9999).into());
    }
    wait(trail.answer(200, Length::Known(0))).expect("a record that fits");
    let record = &of(&memory, "exchange")[0];
    assert_eq!(
        (record.policies.len(), record.policies_more),
        (16, Some(983))
    );
    assert_eq!(record.lent_more, Some(983));
    assert!(record.query_more.is_some() && record.path_bytes.is_some());
    assert!(memory.bytes().len() < crate::MAX_LINE_BYTES);
}

#[test]
fn a_full_disk_refuses_the_answer_and_recovers_by_itself() {
    let (log, memory) = log();
    for room in [0, 1, 100, 300] {
        memory.leave_room(Some(room));
        let mut trail = begin(&log);
        trail.path("/kept");
        assert!(
            matches!(
                wait(trail.answer(200, Length::Known(4))),
                Err(Error::Full(_))
            ),
            "room {room}"
        );
        memory.leave_room(None);
        drop(trail);
        let record = of(&memory, "exchange").pop().expect("the refused exchange");
        assert_eq!(
            (record.status, record.reason.as_deref()),
            (Some(503), Some("audit_unavailable"))
        );
    }
    // The time that the first try recorded is not recorded twice.
    let text = String::from_utf8(memory.bytes()).expect("text");
    assert!(
        text.lines()
            .all(|line| line.matches("\"total\"").count() <= 1)
    );
    assert_eq!(of(&memory, "recover").len(), 4);
}

/// Six exchanges whose answers are ready in one turn of the loop, and the outcome of each.
fn turn(log: &Log, first: u8) -> Vec<(Trail, Result<(), Error>)> {
    let answers = (first..first + 6).map(|number| {
        let mut trail = Trail::begin(log, ExchangeId::from_bytes([number; 10]), "connect");
        async move {
            let done = trail.answer(200, Length::Known(4)).await;
            (trail, done)
        }
    });
    let answers: Vec<_> = answers.collect();
    wait(async {
        let tasks: tokio::task::JoinSet<_> = answers.into_iter().collect();
        tasks.join_all().await
    })
}

#[test]
fn records_that_are_ready_together_leave_in_one_write() {
    let (log, memory) = log();
    let before = memory.writes();
    let done = turn(&log, 0);
    assert!(done.iter().all(|(_, done)| done.is_ok()));
    assert_eq!(
        (memory.writes(), of(&memory, "exchange").len()),
        (before + 1, 6)
    );
    // A single exchange does not wait for others.
    let mut trail = begin(&log);
    let mut alone = std::pin::pin!(trail.answer(200, Length::Known(4)));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(alone.as_mut().poll(&mut context).is_ready());
    assert_eq!(of(&memory, "exchange").len(), 7);
}

#[test]
fn an_answer_that_nobody_waits_for_any_more_has_its_record() {
    let (log, memory) = log();
    let _another = begin(&log);
    let mut trail = begin(&log);
    {
        let mut answer = std::pin::pin!(trail.answer(200, Length::Known(4)));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(answer.as_mut().poll(&mut context).is_pending());
        assert_eq!(of(&memory, "exchange").len(), 0, "it waits for others");
    }
    drop(trail);
    let (records, ends) = (of(&memory, "exchange"), of(&memory, "end"));
    assert_eq!(records[0].outcome.as_deref(), Some("answered"));
    assert_eq!(ends[0].outcome.as_deref(), Some("aborted"));
}

#[test]
fn a_failed_write_refuses_all_of_its_turn() {
    let folder = tempfile::tempdir().expect("a folder");
    let paths = [folder.path().join("log")];
    for room in (0..2000).step_by(29) {
        let (log, memory) = log();
        memory.leave_room(Some(room));
        let done = turn(&log, 0);
        let is_refused =
            |(_, done): &(Trail, Result<(), Error>)| matches!(done, Err(Error::Full(_)));
        assert!(done.iter().all(is_refused), "room {room}");
        memory.leave_room(None);
        drop(done);
        // Exchanges with a complete record say in a second one that they were not answered.
        let records = memory.records().into_iter();
        let refused =
            records.filter(|record| record.reason.as_deref() == Some("audit_unavailable"));
        let ids: std::collections::BTreeSet<_> = refused.filter_map(|record| record.id).collect();
        assert_eq!(ids.len(), 6, "room {room}");
        assert!(turn(&log, 10).iter().all(|(_, done)| done.is_ok()));
        std::fs::write(&paths[0], memory.bytes()).expect("room");
        let expected = crate::ExpectedHeads {
            head: log.head(),
            base: None,
        };
        let report = crate::verify(&paths, expected).expect("readable");
        assert!(report.holds(), "room {room}: {:?}", report.problems);
    }
}

#[test]
fn a_write_torn_at_any_byte_heals_to_a_log_that_holds() {
    let folder = tempfile::tempdir().expect("a folder");
    let paths = [folder.path().join("log")];
    for first in 0..450 {
        let (log, memory) = log();
        memory.leave_room(Some(first));
        drop(begin(&log));
        memory.leave_room(Some(1 + first * 7 % 900));
        drop(begin(&log));
        memory.leave_room(None);
        drop(begin(&log));
        std::fs::write(&paths[0], memory.bytes()).expect("room");
        let expected = crate::ExpectedHeads {
            head: log.head(),
            base: None,
        };
        let report = crate::verify(&paths, expected).expect("readable");
        assert!(report.holds(), "torn at {first}: {:?}", report.problems);
        let lost: u64 = report.recoveries.iter().map(|recovery| recovery.lost).sum();
        assert_eq!(report.exchanges + lost, 3, "torn at {first}");
    }
}

#[test]
fn a_record_that_is_lost_is_counted_in_the_next() {
    let (log, memory) = log();
    memory.leave_room(Some(10));
    drop(begin(&log));
    drop(begin(&log));
    memory.leave_room(None);
    drop(begin(&log));
    let recover = of(&memory, "recover");
    assert_eq!(
        (recover.len(), recover[0].lost, recover[0].torn_bytes),
        (1, Some(2), Some(10))
    );
    assert_eq!(of(&memory, "exchange").len(), 1);
}

#[test]
fn no_room_is_known_before_anything_is_sent() {
    let (log, memory) = log();
    memory.leave_room(Some(1000));
    assert!(matches!(begin(&log).reserve(), Err(Error::Full(_))));
    memory.leave_room(Some(40_000));
    let (mut first, mut second) = (begin(&log), begin(&log));
    first.reserve().expect("room");
    second.reserve().expect("room");
    let mut many: Vec<_> = (0..20).map(|_| begin(&log)).collect();
    assert!(
        many.iter_mut().any(|trail| trail.reserve().is_err()),
        "what is promised to one is not promised again"
    );
    memory.leave_room(None);
    drop(many);
    begin(&log).reserve().expect("room again");
}

#[test]
fn an_answer_waits_for_the_disk_where_that_is_asked() {
    let (log, memory) = Log::memory(Durability::Always).expect("a log");
    let before = memory.syncs();
    let mut trail = begin(&log);
    wait(trail.answer(200, Length::Known(0))).expect("room");
    assert!(memory.syncs() > before);
}

#[test]
fn a_failed_sync_refuses_until_one_succeeds_and_is_accounted_for() {
    let (log, memory) = Log::memory(Durability::Always).expect("a log");
    let mut first = begin(&log);
    wait(first.answer(200, Length::Known(0))).expect("room");
    memory.break_sync(true);
    let mut trail = begin(&log);
    assert!(matches!(
        wait(trail.answer(200, Length::Known(0))),
        Err(Error::Unsynced)
    ));
    assert!(matches!(begin(&log).reserve(), Err(Error::Unsynced)));
    memory.break_sync(false);
    for _ in 0..500 {
        if begin(&log).reserve().is_ok() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    drop(trail);
    let mut after = begin(&log);
    wait(after.answer(200, Length::Known(0))).expect("the disk works again");
    assert!(
        of(&memory, "recover")
            .iter()
            .any(|record| record.cause.as_deref() == Some("unsynced"))
    );
    let end = of(&memory, "end")
        .pop()
        .expect("the refused exchange's end");
    assert_eq!(
        (end.status, end.reason.as_deref()),
        (Some(503), Some("audit_unavailable"))
    );
}

proptest! {
    #[test]
    fn any_text_of_a_client_reads_back(
        method in "\\PC{1,8}", host in "\\PC{1,40}", path in any::<String>(), names in prop::collection::vec("[^&=]{1,16}", 1..20)
    ) {
        let (log, memory) = log();
        let mut trail = begin(&log);
        trail.method(&method);
        trail.authority(&host, 1);
        trail.path(&path);
        trail.query(names.iter().map(|name| format!("{name}=secret-value")).collect::<Vec<_>>().join("&"));
        wait(trail.answer(200, Length::Known(0))).expect("room");
        let bytes = memory.bytes();
        prop_assert!(bytes.iter().all(|byte| (b' '..=b'~').contains(byte) || *byte == b'\n'));
        prop_assert!(memchr::memmem::find(&bytes, b"secret-value").is_none());
        let record = &of(&memory, "exchange")[0];
        prop_assert_eq!(record.method.as_deref(), Some(&*method));
        prop_assert_eq!(record.host.as_deref(), Some(&*host));
        prop_assert_eq!(record.path.clone().unwrap_or_default(), path);
        let short = names.iter().map(|name| if name.len() > 64 { format!("[{} bytes]", name.len()) } else { name.clone() });
        prop_assert_eq!(&record.query, &short.collect::<Vec<_>>());
    }
}
