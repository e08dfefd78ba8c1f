//! Gathers what is known of one exchange, and writes it before the answer leaves.

use std::cell::RefCell;
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use http::Version;

use super::draft::{Draft, write_end, write_exchange};
use super::error::Error;
use super::log::Log;
use crate::names::{CredentialName, ExchangeId, PolicyId, SessionId};

/// How far an exchange came along its path.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub enum Phase {
    /// A connection or a head was taken in.
    #[default]
    Accept,
    /// It is known who asks.
    Identify,
    /// Policy was asked.
    Authorize,
    /// The origin was connected to.
    Open,
    /// Credentials were put in.
    Attach,
    /// The request was sent.
    Forward,
    /// The origin answered.
    Answer,
}

/// What policy said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// The exchange may go on.
    Allow,
    /// The exchange is refused.
    Deny,
}

/// The side at fault when an exchange is refused or cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Blame {
    /// The workload sent what cannot be taken.
    Client,
    /// A policy refused.
    Policy,
    /// A credential could not be had or used.
    Credential,
    /// The server failed or lied.
    Origin,
    /// The gateway itself could not.
    Gateway,
}

/// How an exchange, or its content, ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The answer's head was released to the client.
    Answered,
    /// The content went through to its end.
    Whole,
    /// The gateway cut the content short.
    Cut,
    /// A side went away, or the exchange was dropped.
    Aborted,
}

/// What the answer's head says of the content behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Length {
    /// So many bytes follow; 0 also where the method or the status has no content.
    Known(u64),
    /// The content ends when it ends.
    Open,
    /// The connection now carries something else: an upgrade or a tunnel.
    Switched,
}

/// The end of an exchange, for [`Trail::end`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct End {
    /// [`Outcome::Whole`], [`Outcome::Cut`] or [`Outcome::Aborted`].
    pub outcome: Outcome,
    /// Why it was cut or aborted, as a code.
    pub reason: Option<&'static str>,
    /// How many bytes of content came from the client, where that is known.
    pub request_bytes: Option<u64>,
    /// How many bytes of content went to the client, where that is known.
    pub response_bytes: Option<u64>,
    /// How many echoes of secrets were replaced in the response, fields and content.
    pub scrubbed: u64,
}

/// The address that was connected to.
pub type Dialled = std::net::SocketAddr;

/// Finds what must not stand in a record: the phantoms of a session.
///
/// The session's room implements it; each text that comes from the client passes through it before it is written.
pub trait Conceal: Send + Sync {
    /// Appends the places in `text` that must be concealed, in ascending order.
    fn conceal(&self, text: &[u8], places: &mut Vec<Range<usize>>);
}

/// Accumulates the record of one exchange; dropped unanswered, it writes that the exchange was aborted.
pub struct Trail {
    log: Log,
    draft: Kept,
    stage: Stage,
    promised: u64,
}

/// A draft whose buffers the next exchange takes over, so that a steady gateway allocates nothing for its trail.
struct Kept(Option<Box<Draft>>);

impl Kept {
    fn take() -> Self {
        Self(Some(SPARE.with_borrow_mut(Vec::pop).unwrap_or_default()))
    }
}

impl Deref for Kept {
    type Target = Draft;

    fn deref(&self) -> &Draft {
        self.0.as_deref().expect("it is given back by drop alone")
    }
}

impl DerefMut for Kept {
    fn deref_mut(&mut self) -> &mut Draft {
        self.0.as_deref_mut().expect("it is given back by drop alone")
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let Some(mut draft) = self.0.take() else { return };
        if draft.clear() {
            SPARE.with_borrow_mut(|spare| {
                if spare.len() < MOST_SPARE {
                    spare.push(draft);
                }
            });
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nothing is written yet.
    Open,
    /// The record stands; the content may still run.
    Answered(Length),
    /// The log did not take the record: the client gets 503.
    Refused,
    /// The record stands, but may not last: the client gets 503.
    Unsettled,
    /// Everything is written.
    Closed,
}

impl Trail {
    /// Begins the trail of an exchange, now, at the listener's `entry` (`transparent`, `connect`, `socks5` …).
    #[must_use]
    pub fn begin(log: &Log, id: ExchangeId, entry: &'static str) -> Self {
        let mut draft = Kept::take();
        draft.begin(id, entry);
        Self {
            log: log.clone(),
            draft,
            stage: Stage::Open,
            promised: 0,
        }
    }

    /// The exchange's id.
    #[must_use]
    pub fn id(&self) -> ExchangeId {
        self.draft.id
    }

    /// How far the exchange came.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.draft.phase
    }

    /// Notes that a phase was reached, and when; a phase behind the present one changes nothing.
    pub fn reach(&mut self, phase: Phase) {
        self.draft.reach(phase);
    }

    /// Notes whose exchange it is, and what must not be written of it; to be called as early as the session is known.
    ///
    /// Works on everything noted before and after, since texts are concealed when the record is written.
    pub fn session(&mut self, session: &SessionId, conceal: Arc<dyn Conceal>) {
        self.draft.session = Some(session.clone());
        self.draft.conceal = Some(conceal);
    }

    /// Notes the client's protocol.
    pub fn protocol(&mut self, version: Version) {
        self.draft.protocol = Some(version);
    }

    /// Notes the method; bytes, since a refused one may be anything.
    pub fn method(&mut self, method: impl AsRef<[u8]>) {
        self.draft.method = self.draft.keep(method.as_ref());
    }

    /// Notes the target's scheme.
    pub fn scheme(&mut self, scheme: &'static str) {
        self.draft.scheme = Some(scheme);
    }

    /// Notes the canonical host and the port.
    pub fn authority(&mut self, host: impl AsRef<[u8]>, port: u16) {
        self.draft.host = self.draft.keep(host.as_ref());
        self.draft.port = Some(port);
    }

    /// Notes the canonical path, without the query.
    pub fn path(&mut self, path: impl AsRef<[u8]>) {
        self.draft.path = self.draft.keep(path.as_ref());
    }

    /// Notes the names in a raw query (`a=1&b`), never a value.
    pub fn query(&mut self, query: impl AsRef<[u8]>) {
        self.draft.query(query.as_ref());
    }

    /// Notes what policy said, by which policies of which generation.
    pub fn decide(&mut self, decision: Decision, policies: &Arc<[PolicyId]>, generation: u64) {
        self.draft.decision = Some(decision);
        self.draft.generation = Some(generation);
        self.draft.policies = Some(policies.clone());
    }

    /// Notes that a credential was put in a place.
    pub fn lend(&mut self, credential: &CredentialName, place: &str) {
        let place = self.draft.keep(place.as_bytes());
        self.draft.lent.push((credential.clone(), place));
    }

    /// Notes something that decides nothing, such as a phantom in free text.
    pub fn note(
        &mut self,
        note: &'static str,
        credential: Option<&CredentialName>,
        place: Option<&dyn fmt::Display>,
    ) {
        let place = place.map(|place| self.draft.keep_shown(place));
        self.draft.notes.push((note, credential.cloned(), place));
    }

    /// Notes the address that was connected to, and the protocol spoken there.
    pub fn dialled(&mut self, address: Dialled, protocol: Version) {
        self.draft.dialled = Some((address, protocol));
    }

    /// Notes the origin's status, which is the phase [`Phase::Answer`].
    pub fn origin_answered(&mut self, status: u16) {
        self.draft.origin_status = Some(status);
        self.draft.reach(Phase::Answer);
    }

    /// Notes why the exchange is refused, as a code, and whose fault that is.
    pub fn refuse(&mut self, reason: &'static str, blame: Blame) {
        self.draft.refusal = Some((reason, blame));
    }

    /// Notes the request content's length, announced or counted.
    pub fn request_bytes(&mut self, bytes: u64) {
        self.draft.request_bytes = Some(bytes);
    }

    /// Notes how many echoes of secrets were replaced so far.
    pub fn scrubbed(&mut self, echoes: u64) {
        self.draft.scrubbed = echoes;
    }

    /// Makes sure that this exchange's record will find room: to be asked before the first byte goes to the origin.
    ///
    /// Where it errs, nothing may be sent: answer 503 `audit_unavailable`.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Write`] or [`Error::Unsynced`]: the log would not take a record now.
    pub fn reserve(&mut self) -> Result<(), Error> {
        if self.promised == 0 {
            let bytes = self.draft.most_bytes();
            self.log.promise(bytes)?;
            self.promised = bytes;
        }
        Ok(())
    }

    /// Writes the record; once this returns `Ok`, the answer's head may be released.
    ///
    /// Where it errs, the head must not be released: answer 503 `audit_unavailable`, whether or not a second call for that
    /// errs too; a trail without a record tries once more when it is dropped. The record is written at the first poll,
    /// and stays written where the future is dropped while it waits for the disk. Once it stands, a call does nothing.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Write`] or [`Error::Unsynced`]: the record is not kept.
    pub async fn answer(&mut self, status: u16, length: Length) -> Result<(), Error> {
        if !matches!(self.stage, Stage::Open | Stage::Refused) {
            return Ok(());
        }
        if let Length::Known(bytes) = length {
            self.draft.response_bytes = Some(bytes);
        }
        let seq = self
            .write(Some(status), Outcome::Answered)
            .inspect_err(|_| self.stage = Stage::Refused)?;
        self.stage = Stage::Answered(length);
        self.log
            .settle(seq)
            .await
            .inspect_err(|_| self.stage = Stage::Unsettled)
    }

    /// Ends the trail, with an `end` record where the answer's record does not already say everything.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Write`] or [`Error::Unsynced`]: the end is not recorded, and counted as lost.
    pub fn end(&mut self, end: End) -> Result<(), Error> {
        let stage = std::mem::replace(&mut self.stage, Stage::Closed);
        let done = match stage {
            Stage::Closed => Ok(()),
            Stage::Open => {
                self.draft.request_bytes = end.request_bytes.or(self.draft.request_bytes);
                self.draft.cut = end.reason;
                self.write(None, Outcome::Aborted).map(drop)
            }
            Stage::Refused => {
                self.refuse(UNAVAILABLE, Blame::Gateway);
                self.draft.response_bytes = None;
                self.write(Some(503), Outcome::Answered).map(drop)
            }
            Stage::Unsettled => self.write_end(
                Some(503),
                End {
                    outcome: Outcome::Aborted,
                    reason: Some(UNAVAILABLE),
                    ..end
                },
            ),
            Stage::Answered(length) if self.draft.said_all(length, &end) => Ok(()),
            Stage::Answered(_) => self.write_end(None, end),
        };
        if done.is_err() {
            self.log.lose();
        }
        done
    }

    fn write(&mut self, status: Option<u16>, outcome: Outcome) -> Result<u64, Error> {
        FIELDS.with_borrow_mut(|fields| {
            fields.clear();
            write_exchange(fields, &self.draft, status, outcome);
            self.log.append(fields)
        })
    }

    fn write_end(&mut self, status: Option<u16>, end: End) -> Result<(), Error> {
        FIELDS.with_borrow_mut(|fields| {
            fields.clear();
            write_end(fields, &self.draft, status, &end);
            self.log.append(fields).map(drop)
        })
    }
}

impl Drop for Trail {
    fn drop(&mut self) {
        let nothing_left = self.stage == Stage::Answered(Length::Known(0));
        let outcome = if nothing_left {
            Outcome::Whole
        } else {
            Outcome::Aborted
        };
        let end = End {
            outcome,
            reason: None,
            request_bytes: None,
            response_bytes: None,
            scrubbed: self.draft.scrubbed,
        };
        // A record that cannot be written now is counted in the next one that can.
        let _ = self.end(end);
        if self.promised > 0 {
            self.log.release(self.promised);
        }
    }
}

thread_local! {
    #[expect(clippy::vec_box, reason = "the boxes themselves are reused, so that a trail stays small and allocates none")]
    static SPARE: RefCell<Vec<Box<Draft>>> = const { RefCell::new(Vec::new()) };
    static FIELDS: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

const MOST_SPARE: usize = 64;
const UNAVAILABLE: &str = "audit_unavailable";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::{Memory, Record, Sync};
    use proptest::prelude::*;

    fn wait<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .expect("a runtime")
            .block_on(work)
    }

    fn log() -> (Log, Memory) {
        Log::memory(Sync::Batch).expect("a log in memory")
    }

    fn begin(log: &Log) -> Trail {
        Trail::begin(log, ExchangeId::from_bytes([7; 10]), "transparent")
    }

    fn end(response_bytes: u64) -> End {
        let counted = Some(response_bytes);
        End {
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

    impl Conceal for Hide {
        fn conceal(&self, text: &[u8], places: &mut Vec<Range<usize>>) {
            places.extend(memchr::memmem::find_iter(text, self.0).map(|at| at..at + self.0.len()));
        }
    }

    #[test]
    fn an_answer_writes_all_that_is_known() {
        let (log, memory) = log();
        let mut trail = begin(&log);
        trail.session(&SessionId::new("s1").expect("a name"), Arc::new(Hide(b"PHANTOM")));
        trail.protocol(Version::HTTP_2);
        trail.method("GET");
        trail.scheme("https");
        trail.authority("api.example.test", 443);
        trail.path("/v1/things");
        trail.query("page=2&&acl&key=VALUE");
        trail.reach(Phase::Identify);
        let policy = PolicyId::new("reads").expect("a name");
        trail.decide(Decision::Allow, &Arc::from([policy]), 4);
        trail.lend(&name("github"), "field authorization");
        trail.note("phantom_in_text", Some(&name("github")), Some(&"content"));
        trail.dialled(([192, 0, 2, 1], 443).into(), Version::HTTP_11);
        trail.origin_answered(201);
        trail.request_bytes(3);
        trail.scrubbed(2);
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
        let note = "[{\"note\":\"phantom_in_text\",\"credential\":\"github\",\"place\":\"content\"}]";
        assert_eq!(
            (told("notes"), told("dialled")),
            (note.into(), "\"192.0.2.1:443\"".into())
        );
        assert_eq!(
            (told("status"), told("origin_status")),
            ("201".into(), "201".into())
        );
        assert_eq!(
            (told("request_bytes"), told("response_bytes")),
            ("3".into(), "5".into())
        );
        assert_eq!(told("scrubbed"), "2");
        assert!(
            ["identify", "answer", "total"]
                .iter()
                .all(|phase| record.us.contains_key(*phase))
        );
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
        assert_eq!((of(&memory, "exchange").len(), of(&memory, "end").len()), (2, 0));
    }

    #[test]
    fn an_end_that_was_not_announced_is_recorded() {
        let (log, memory) = log();
        let cut = End {
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
                End {
                    scrubbed: 1,
                    ..end(5)
                },
                "whole",
            ),
            (
                Length::Known(5),
                End {
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
        assert_eq!((ends.len(), ends[0].outcome.as_deref()), (1, Some("aborted")));
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
        trail.decide(Decision::Deny, &Arc::from([policy]), 1);
        trail.refuse("denied", Blame::Policy);
        wait(trail.answer(403, Length::Known(10))).expect("room");
        let record = &of(&memory, "exchange")[0];
        assert_eq!(
            (record.decision.as_deref(), record.reason.as_deref()),
            (Some("deny"), Some("denied"))
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
        trail.note("phantom_in_text", None, Some(&"field x-PHANTOM"));
        trail.session(&SessionId::new("s1").expect("a name"), Arc::new(Hide(b"PHANTOM")));
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
        trail.decide(Decision::Allow, &policies.into(), u64::MAX);
        for _ in 0..999 {
            trail.lend(&name(&"c".repeat(128)), &"\u{7f}".repeat(9999));
            trail.note("x", Some(&name(&"c".repeat(128))), Some(&"\u{7f}".repeat(9999)));
        }
        wait(trail.answer(200, Length::Known(0))).expect("a record that fits");
        let record = &of(&memory, "exchange")[0];
        assert_eq!((record.policies.len(), record.policies_more), (16, Some(983)));
        assert_eq!((record.lent_more, record.notes_more), (Some(983), Some(983)));
        assert!(record.query_more.is_some() && record.path_bytes.is_some());
        assert!(memory.bytes().len() < crate::audit::MAX_LINE_BYTES);
    }

    #[test]
    fn a_full_disk_refuses_the_answer_and_recovers_by_itself() {
        let (log, memory) = log();
        for room in [0, 1, 100, 300] {
            memory.leave_room(Some(room));
            let mut trail = begin(&log);
            trail.path("/kept");
            assert!(
                matches!(wait(trail.answer(200, Length::Known(4))), Err(Error::Full(_))),
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
        assert_eq!(of(&memory, "recover").len(), 4);
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
            let expected = crate::audit::Expected {
                head: log.head(),
                base: None,
            };
            let report = crate::audit::verify(&paths, expected).expect("readable");
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
        let (log, memory) = Log::memory(Sync::Always).expect("a log");
        let before = memory.syncs();
        let mut trail = begin(&log);
        wait(trail.answer(200, Length::Known(0))).expect("room");
        assert!(memory.syncs() > before);
    }

    #[test]
    fn a_failed_sync_refuses_until_one_succeeds_and_is_accounted_for() {
        let (log, memory) = Log::memory(Sync::Always).expect("a log");
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
        let end = of(&memory, "end").pop().expect("the refused exchange's end");
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
            prop_assert_eq!(record.method.as_ref(), Some(&method));
            prop_assert_eq!(record.host.as_ref(), Some(&host));
            prop_assert_eq!(record.path.clone().unwrap_or_default(), path);
            let short = names.iter().map(|name| if name.len() > 64 { format!("[{} bytes]", name.len()) } else { name.clone() });
            prop_assert_eq!(&record.query, &short.collect::<Vec<_>>());
        }
    }
}
