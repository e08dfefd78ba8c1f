//! Gathers what is known of one exchange, and writes it before the answer leaves.

use std::cell::RefCell;
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use http::Version;

use super::draft::{Draft, write_end, write_exchange};
use super::error::Error;
use super::log::Log;
use super::share::Account;
use crate::names::{CredentialName, ExchangeId, PolicyId, ReasonCode, SessionId};

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

/// What the log must know of a session: what must not stand in a record, its phantoms, and what it
/// has written.
///
/// The session's room implements it; each text that comes from the client passes through it before
/// it is written.
pub trait Conceal: Send + Sync {
    /// What the session has written; without an account it may write without bound.
    fn account(&self) -> Option<&Account> {
        None
    }

    /// Appends the places in `text` that must be concealed, in ascending order.
    fn conceal(&self, text: &[u8], places: &mut Vec<Range<usize>>);
}

/// Accumulates the record of one exchange; dropped unanswered, it writes that the exchange was
/// aborted.
pub struct Trail {
    log: Log,
    draft: Kept,
    stage: Stage,
    promised: u64,
}

/// A draft whose buffers the next exchange takes over, so that a steady gateway allocates nothing
/// for its trail.
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
        self.0
            .as_deref_mut()
            .expect("it is given back by drop alone")
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let Some(mut draft) = self.0.take() else {
            return;
        };
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
    /// Begins the trail of an exchange, now, at the listener's `entry` (`transparent`, `connect`,
    /// `socks5` …).
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

    /// Notes whose exchange it is, and what must not be written of it; to be called as early as the
    /// session is known.
    ///
    /// Works on everything noted before and after, since texts are concealed when the record is
    /// written.
    pub fn session(&mut self, session: &SessionId, conceal: Arc<dyn Conceal>) {
        self.draft.session = Some(session.clone());
        self.draft.conceal = Some(conceal);
    }

    /// Whether the session may have one more record; to be asked once its session is noted, before
    /// anything is done for it.
    ///
    /// Where it errs, the exchange is counted for the session, and this trail writes no record of
    /// it: refuse it.
    ///
    /// # Errors
    /// [`Error::OverRate`] and [`Error::OverShare`].
    pub fn admit(&mut self) -> Result<(), Error> {
        let Some(account) = self
            .draft
            .conceal
            .as_ref()
            .and_then(|session| session.account())
        else {
            return Ok(());
        };
        let admitted = self.log.admit(account);
        if admitted.is_err() {
            account.suppress(1);
            self.stage = Stage::Closed;
        }
        admitted
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

    /// Notes why the exchange is refused, and with it whose fault that is.
    pub fn refuse(&mut self, reason: ReasonCode) {
        self.draft.refusal = Some((reason.as_str(), reason.blame()));
    }

    /// Notes the request content's length, announced or counted.
    pub fn request_bytes(&mut self, bytes: u64) {
        self.draft.request_bytes = Some(bytes);
    }

    /// Notes how many echoes of secrets were replaced so far.
    pub fn scrubbed(&mut self, echoes: u64) {
        self.draft.scrubbed = echoes;
    }

    /// Makes sure that this exchange's record will find room: to be asked before the first byte
    /// goes to the origin.
    ///
    /// Where it errs, nothing may be sent: answer 503 `audit_unavailable`.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Write`] or [`Error::Unsynced`]: the log would not take a record
    /// now.
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
    /// Where it errs, the head must not be released: answer 503 `audit_unavailable`, whether or not
    /// a second call for that errs too; a trail without a record tries once more when it is
    /// dropped. The record is written at the first poll, and stays written where the future is
    /// dropped while it waits for the disk. Once it stands, a call does nothing.
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

    /// Ends the trail, with an `end` record where the answer's record does not already say
    /// everything.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Write`] or [`Error::Unsynced`]: the end is not recorded, and
    /// counted as lost.
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
                self.refuse(ReasonCode::AuditUnavailable);
                self.draft.response_bytes = None;
                self.write(Some(503), Outcome::Answered).map(drop)
            }
            Stage::Unsettled => self.write_end(
                Some(503),
                End {
                    outcome: Outcome::Aborted,
                    reason: Some(ReasonCode::AuditUnavailable.as_str()),
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
            self.append(fields)
        })
    }

    fn write_end(&mut self, status: Option<u16>, end: End) -> Result<(), Error> {
        FIELDS.with_borrow_mut(|fields| {
            fields.clear();
            write_end(fields, &self.draft, status, &end);
            self.append(fields).map(drop)
        })
    }

    fn append(&self, fields: &[u8]) -> Result<u64, Error> {
        let seq = self.log.append(fields)?;
        if let Some(account) = self
            .draft
            .conceal
            .as_ref()
            .and_then(|session| session.account())
        {
            self.log.charge(account, fields.len() as u64 + FRAME_BYTES);
        }
        Ok(seq)
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
/// What a line has beside its fields, about: version, number, two hashes.
const FRAME_BYTES: u64 = 176;

#[cfg(test)]
#[path = "trail_tests.rs"]
mod tests;
