//! Gathers what is known about one exchange, and records it before the answer leaves.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use http::Version;

use super::builder::{RecordBuilder, kept};
use super::error::Error;
use super::log::Log;
use super::record::{Text, Word};
use super::redact::Redact;
use super::share::Account;
use super::words::{Decision, End, Length, Outcome, Phase, protocol_name};
use gateway_names::{CredentialName, ExchangeId, PolicyId, ReasonCode, SessionId};

/// Builds the record of one exchange.
///
/// If dropped before the answer, it records that the exchange was aborted.
pub struct Trail {
    log: Log,
    id: ExchangeId,
    builder: Box<RecordBuilder>,
    stage: Stage,
    promised: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nothing is written yet.
    Open,
    /// The record is written; the content may still be in transit.
    Answered(Length),
    /// The log rejected the record: the client gets 503.
    Refused,
    /// The record is written but may not survive a power loss: the client gets 503.
    Unsettled,
    /// Everything is written.
    Closed,
}

impl Trail {
    /// Begins the trail of an exchange now; `entry` is how the client connected (`transparent`,
    /// `connect`, `socks5` …).
    #[must_use]
    pub fn begin(log: &Log, id: ExchangeId, entry: &'static str) -> Self {
        Self {
            log: log.clone(),
            id,
            builder: Box::new(RecordBuilder::new(id, entry)),
            stage: Stage::Open,
            promised: 0,
        }
    }

    /// The exchange's id.
    #[must_use]
    pub fn id(&self) -> ExchangeId {
        self.id
    }

    /// When it began.
    #[must_use]
    pub fn began(&self) -> Instant {
        self.builder.began
    }

    /// Records that a phase is reached now, and returns the time. An earlier phase than the current
    /// one is not recorded.
    pub fn reach(&mut self, phase: Phase) -> Instant {
        self.builder.reach(phase)
    }

    /// Sets the exchange's session, and what to redact for it. Call it as soon as the session is
    /// known.
    ///
    /// Also covers what was noted before, because texts are redacted when the record is written.
    pub fn session(&mut self, session: &SessionId, redact: Arc<dyn Redact>) {
        self.builder.record.session = Some(session.as_str().into());
        self.builder.redact = Some(redact);
    }

    /// Checks that the session may write one more record. Call it once the session is set, before
    /// doing any work for it.
    ///
    /// On an error, refuse the exchange: it is counted for the session, and this trail writes no
    /// record.
    ///
    /// # Errors
    /// [`Error::OverRate`] and [`Error::OverShare`].
    pub fn admit(&mut self) -> Result<(), Error> {
        let Some(account) = self.account() else {
            return Ok(());
        };
        let admitted = self.log.admit(account, self.builder.began);
        if admitted.is_err() {
            account.suppress(1);
            self.stage = Stage::Closed;
        }
        admitted
    }

    /// Notes where the client connected from.
    pub fn client(&mut self, address: Option<SocketAddr>) {
        self.builder.record.client = address;
    }

    /// Notes the client's protocol.
    pub fn protocol(&mut self, version: Version) {
        self.builder.record.protocol = Some(protocol_name(version).into());
    }

    /// Notes the client's trace, if the field is well-formed.
    pub fn traceparent(&mut self, field: impl AsRef<[u8]>) {
        self.builder.traceparent(field.as_ref());
    }

    /// Notes the method, as bytes because a refused one may be anything.
    pub fn method(&mut self, method: impl AsRef<[u8]>) {
        self.builder.record.method = kept(method.as_ref());
    }

    /// Notes the target's scheme.
    pub fn scheme(&mut self, scheme: &'static str) {
        self.builder.record.scheme = Some(scheme.into());
    }

    /// Notes the canonical host and the port.
    pub fn authority(&mut self, host: impl AsRef<[u8]>, port: u16) {
        self.builder.record.host = kept(host.as_ref());
        self.builder.record.port = Some(port);
    }

    /// Notes the canonical path, without the query.
    pub fn path(&mut self, path: impl AsRef<[u8]>) {
        self.builder.path(path.as_ref());
    }

    /// Returns the method and the path as the record shows them; `None` unless both were noted.
    #[must_use]
    pub fn request(&self) -> Option<(String, String)> {
        self.builder.request()
    }

    /// Notes the parameter names of a raw query (`a=1&b`), never a value.
    pub fn query(&mut self, query: impl AsRef<[u8]>) {
        self.builder.query(query.as_ref());
    }

    /// Notes policy's decision, the policies behind it and their generation.
    pub fn decide(&mut self, decision: Decision, policies: &Arc<[PolicyId]>, generation: u64) {
        self.builder.record.decision = Some(decision.name().into());
        self.builder.record.generation = Some(generation);
        self.builder.policies(policies);
    }

    /// Notes the names of the content facts that the decision read, never a value.
    pub fn facts(&mut self, names: &[String]) {
        self.builder.facts(names);
    }

    /// Notes that a credential was placed in the request.
    pub fn lend(&mut self, credential: &CredentialName, place: &Text) {
        self.builder.lend(credential, place);
    }

    /// Notes that no policy lent a credential to the request.
    pub fn withhold(&mut self, credential: &CredentialName, place: &str) {
        self.builder.withhold(credential, place);
    }

    /// Notes the address of the connection to the origin, and its protocol.
    pub fn dialled(&mut self, address: SocketAddr, protocol: Version) {
        self.builder.record.dialled = Some(address);
        self.builder.record.origin_protocol = Some(protocol_name(protocol).into());
    }

    /// Notes the address of the connection that the answer came on: a second one, if the first
    /// failed before an answer.
    pub fn answered_by(&mut self, address: SocketAddr) {
        self.builder.record.dialled = Some(address);
    }

    /// Notes the origin's status, and that [`Phase::Answer`] is reached now. Returns the time.
    pub fn origin_answered(&mut self, status: u16) -> Instant {
        self.builder.record.origin_status = Some(status);
        self.builder.reach(Phase::Answer)
    }

    /// Notes why the exchange is refused, and who is at fault.
    pub fn refuse(&mut self, reason: ReasonCode) {
        self.builder.record.reason = Some(reason.as_str().into());
        self.builder.record.blame = Some(reason.blame().as_str().into());
    }

    /// Notes in words what failed. They hold no text from the request or the origin.
    pub fn cause(&mut self, words: String) {
        self.builder.cause(words);
    }

    /// Notes the length of the request content, as announced or counted.
    pub fn request_bytes(&mut self, bytes: u64) {
        self.builder.record.request_bytes = Some(bytes);
    }

    /// Reserves room for this exchange's record. Call it before the first byte goes to the origin.
    ///
    /// On an error, send nothing and answer 503 `audit_unavailable`.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Write`] or [`Error::Unsynced`]: the log cannot take a record now.
    pub fn reserve(&mut self) -> Result<(), Error> {
        if self.promised == 0 {
            let bytes = self.builder.most_bytes();
            self.log.promise(bytes)?;
            self.promised = bytes;
        }
        Ok(())
    }

    /// Writes the record. Once this returns `Ok`, the answer's head may be released.
    ///
    /// On an error, do not release the head: answer 503 `audit_unavailable`, even if a second call
    /// for that fails too. A trail without a record tries once more when dropped. Once the record
    /// is written, further calls do nothing.
    ///
    /// Cancel safety: the record is written at the first poll, and stays written if the future is
    /// dropped while it waits for the disk.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Write`] or [`Error::Unsynced`]: the record is not kept.
    pub async fn answer(&mut self, status: u16, length: Length) -> Result<(), Error> {
        if !matches!(self.stage, Stage::Open | Stage::Refused) {
            return Ok(());
        }
        if let Length::Known(bytes) = length {
            self.builder.record.response_bytes = Some(bytes);
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

    /// Ends the trail. Writes an `end` record unless the answer's record already says everything.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Write`] or [`Error::Unsynced`]: the end is not recorded, and is
    /// counted as lost.
    pub fn end(&mut self, end: End) -> Result<(), Error> {
        let stage = std::mem::replace(&mut self.stage, Stage::Closed);
        let done = match stage {
            Stage::Closed => Ok(()),
            Stage::Open => {
                let record = &mut self.builder.record;
                record.request_bytes = end.request_bytes.or(record.request_bytes);
                record.reason = record.reason.take().or(end.reason.map(Word::Borrowed));
                self.write(None, Outcome::Aborted).map(drop)
            }
            Stage::Refused => {
                self.refuse(ReasonCode::AuditUnavailable);
                self.builder.record.response_bytes = None;
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
            Stage::Answered(length) if self.builder.said_all(length, &end) => Ok(()),
            Stage::Answered(_) => self.write_end(None, end),
        };
        if done.is_err() {
            self.log.lose();
        }
        done
    }

    fn write(&mut self, status: Option<u16>, outcome: Outcome) -> Result<u64, Error> {
        let record = self.builder.exchange(status, outcome);
        self.append(&record, self.builder.record.reason.is_some())
    }

    fn write_end(&mut self, status: Option<u16>, end: End) -> Result<(), Error> {
        let record = self.builder.end(status, &end);
        self.append(&record, end.reason.is_some()).map(drop)
    }

    fn append(&self, record: &[u8], refuses: bool) -> Result<u64, Error> {
        let seq = self.log.append(record, refuses)?;
        if let Some(account) = self.account() {
            self.log.charge(account, record.len() as u64 + FRAME_BYTES);
        }
        Ok(seq)
    }

    fn account(&self) -> Option<&Account> {
        self.builder.redact.as_ref()?.account()
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
            scrubbed: 0,
        };
        // If the record cannot be written now, the next one that can be written counts it.
        let _ = self.end(end);
        if self.promised > 0 {
            self.log.release(self.promised);
        }
    }
}

/// Approximate bytes of a line beside its fields: version, number, two hashes.
const FRAME_BYTES: u64 = 176;

#[cfg(test)]
#[path = "trail_tests.rs"]
mod tests;
