//! Gathers what is known about one exchange, and records it before the answer leaves.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use http::Version;

use super::error::Error;
use super::log::Log;
use super::record::{Injection, Record, Text, Word};
use super::redact::Redact;
use super::seen_credentials::SeenCredentials;
use super::share::Usage;
use super::texts::{
    MOST_LISTED, MOST_METHOD, MOST_NAMES, MOST_PATH, is_trace, kept, listed, most_bytes, parameter,
    push, show, texts,
};
use super::words::{AuditDecision, ExchangeEnd, Length, Outcome, Phase, protocol_name};
use super::writer::QueuedRecord;
use gateway_names::{CredentialName, ExchangeId, PolicyId, ReasonCode, SessionId, User};

/// Builds the record of one exchange.
///
/// If dropped before the answer, it records that the exchange was aborted.
///
/// Client text is kept unchanged until the record is made, because only then is it certain what
/// must be redacted.
pub struct Trail {
    log: Log,
    id: ExchangeId,
    draft: Box<Draft>,
}

/// The state of a trail, boxed so that an exchange moves only a pointer.
struct Draft {
    record: Record,
    redact: Option<Arc<dyn Redact>>,
    noted: Option<Arc<SeenCredentials>>,
    phase: Phase,
    began: Instant,
    stage: Stage,
    promised: u64,
    /// Held until the exchange has a record.
    unrecorded: Option<Arc<()>>,
}

enum Stage {
    /// Nothing is written yet.
    Open,
    /// The record is written together with others that are ready at the same time.
    Queued(Length, QueuedRecord),
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
        let record = Record {
            id: std::str::from_utf8(&id.to_hex()).ok().map(Text::new),
            entry: Some(entry.into()),
            ..Record::now("exchange")
        };
        let draft = Draft {
            record,
            redact: None,
            noted: None,
            phase: Phase::Accept,
            began: Instant::now(),
            stage: Stage::Open,
            promised: 0,
            unrecorded: Some(log.unrecorded()),
        };
        Self {
            log: log.clone(),
            id,
            draft: Box::new(draft),
        }
    }

    /// The exchange's id.
    pub fn id(&self) -> ExchangeId {
        self.id
    }

    /// When it began.
    pub fn began(&self) -> Instant {
        self.draft.began
    }

    /// Records that a phase is reached now, and returns the time. An earlier phase than the current
    /// one is not recorded.
    pub fn reach(&mut self, phase: Phase) -> Instant {
        let now = Instant::now();
        if phase > self.draft.phase {
            self.draft.phase = phase;
            let after = self.us_until(now);
            if let Some(time) = self.draft.record.us.of(phase) {
                *time = Some(after);
            }
        }
        now
    }

    /// Sets the exchange's session, and what to redact for it. Call it as soon as the session is
    /// known.
    ///
    /// Also covers what was noted before, because texts are redacted when the record is written.
    pub fn session(&mut self, session: &SessionId, redact: Arc<dyn Redact>) {
        self.draft.record.session = Some(session.as_str().into());
        self.draft.redact = Some(redact);
    }

    /// Sets the user and groups that the connection's evidence shows, and the id of its token.
    pub fn caller(&mut self, user: Option<&User>, token: Option<String>, groups: &[Arc<str>]) {
        let record = &mut self.draft.record;
        record.token_id = token.map(Into::into);
        record.user = user.map(|user| user.as_str().into());
        (record.groups, record.groups_more) = listed(groups, |group| group);
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
        let admitted = self.log.admit(account, self.draft.began);
        if admitted.is_err() {
            account.suppress(1);
            self.draft.stage = Stage::Closed;
        }
        admitted
    }

    /// Notes where the client connected from.
    pub fn client(&mut self, address: Option<SocketAddr>) {
        self.draft.record.client = address;
    }

    /// Notes the client's protocol.
    pub fn protocol(&mut self, version: Version) {
        self.draft.record.protocol = Some(protocol_name(version).into());
    }

    /// Notes the client's trace, if the field is well-formed.
    pub fn traceparent(&mut self, field: impl AsRef<[u8]>) {
        let field = field.as_ref();
        self.draft.record.traceparent = kept(field).filter(|_| is_trace(field));
    }

    /// Notes the method, as bytes because a refused one may be anything.
    pub fn method(&mut self, method: impl AsRef<[u8]>) {
        self.draft.record.method = kept(method.as_ref());
    }

    /// Notes the target's scheme.
    pub fn scheme(&mut self, scheme: &'static str) {
        self.draft.record.scheme = Some(scheme.into());
    }

    /// Notes the canonical host and the port.
    pub fn authority(&mut self, host: impl AsRef<[u8]>, port: u16) {
        self.draft.record.host = kept(host.as_ref());
        self.draft.record.port = Some(port);
    }

    /// Notes the canonical path, without the query.
    pub fn path(&mut self, path: impl AsRef<[u8]>) {
        let path = path.as_ref();
        self.draft.record.path = kept(path);
        self.draft.record.path_bytes = (path.len() > MOST_PATH).then_some(path.len() as u64);
    }

    /// Returns the method and the path as the record shows them; `None` unless both were noted.
    pub fn request(&self) -> Option<(String, String)> {
        let shown = |text: &Option<Text>, most| {
            let mut text = text.clone()?;
            show(&mut text, most, self.draft.redact.as_deref());
            Some(text.into())
        };
        let method = shown(&self.draft.record.method, MOST_METHOD)?;
        Some((method, shown(&self.draft.record.path, MOST_PATH)?))
    }

    /// Notes the parameter names of a raw query (`a=1&b`), never a value.
    pub fn query(&mut self, query: impl AsRef<[u8]>) {
        let record = &mut self.draft.record;
        (record.query, record.query_more) = (Vec::new(), None);
        let pairs = query.as_ref().split(|&byte| byte == b'&');
        for pair in pairs.filter(|pair| !pair.is_empty()) {
            let more = &mut record.query_more;
            push(&mut record.query, more, MOST_NAMES, parameter(pair));
        }
    }

    /// Notes policy's decision, the policies behind it and their generation.
    pub fn decide(&mut self, decision: AuditDecision, policies: &Arc<[PolicyId]>, generation: u64) {
        self.draft.record.decision = Some(decision.as_str().into());
        self.draft.record.generation = Some(generation);
        (self.draft.record.policies, self.draft.record.policies_more) =
            listed(policies, PolicyId::as_str);
    }

    /// Notes the names of the content facts that the decision read, never a value.
    pub fn facts(&mut self, names: &[String]) {
        (self.draft.record.facts, self.draft.record.facts_more) = listed(names, String::as_str);
    }

    /// Notes that a credential was placed in the request.
    pub fn lend(&mut self, credential: &CredentialName, place: &Text) {
        let lent = Injection::new(credential, place.clone());
        let record = &mut self.draft.record;
        push(&mut record.lent, &mut record.lent_more, MOST_LISTED, lent);
    }

    /// Notes that no policy lent a credential to the request.
    pub fn withhold(&mut self, credential: &CredentialName, place: &str) {
        let place = kept(place.as_bytes()).unwrap_or_default();
        self.draft.record.unlent = Some(Injection::new(credential, place));
    }

    /// Notes a credential or its phantom, and the place where the request may not have it. The
    /// credential is `None` if it is none of the session's.
    pub fn misplace(&mut self, credential: Option<&CredentialName>, place: String) {
        let credential = credential.map_or("", CredentialName::as_str).into();
        let place = place.into();
        self.draft.record.misplaced = Some(Injection { credential, place });
    }

    /// Adds the noted credentials to each record, as far as they are known then.
    pub fn tell(&mut self, noted: Arc<SeenCredentials>) {
        self.draft.noted = Some(noted);
    }

    /// Notes the address of the connection to the origin, and its protocol.
    pub fn dialled(&mut self, address: SocketAddr, protocol: Version) {
        self.draft.record.dialled = Some(address);
        self.draft.record.origin_protocol = Some(protocol_name(protocol).into());
    }

    /// Notes the address of the connection that the answer came on: a second one, if the first
    /// failed before an answer.
    pub fn answered_by(&mut self, address: SocketAddr) {
        self.draft.record.dialled = Some(address);
    }

    /// Notes the origin's status, and that [`Phase::Answer`] is reached now. Returns the time.
    pub fn origin_answered(&mut self, status: u16) -> Instant {
        self.draft.record.origin_status = Some(status);
        self.reach(Phase::Answer)
    }

    /// Notes why the exchange is refused, and who is at fault.
    pub fn refuse(&mut self, reason: ReasonCode) {
        self.draft.record.reason = Some(reason.as_str().into());
        self.draft.record.blame = Some(reason.blame().as_str().into());
    }

    /// Notes in words what failed. The words must hold no text from the request or the origin.
    pub fn cause(&mut self, mut words: String) {
        words.truncate(words.floor_char_boundary(MOST_CAUSE));
        self.draft.record.cause = Some(words.into());
    }

    /// Notes the length of the request content, as announced or counted.
    pub fn request_bytes(&mut self, bytes: u64) {
        self.draft.record.request_bytes = Some(bytes);
    }

    /// Reserves room for this exchange's record. Call it before the first byte goes to the origin.
    ///
    /// On an error, send nothing and answer 503 `audit_unavailable`.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Write`] or [`Error::Unsynced`]: the log cannot take a record now.
    pub fn reserve(&mut self) -> Result<(), Error> {
        if self.draft.promised == 0 {
            let noted = self.draft.noted.as_ref().map_or(0, |noted| noted.most());
            let bytes = most_bytes(&mut self.draft.record, noted);
            self.log.promise(bytes)?;
            self.draft.promised = bytes;
        }
        Ok(())
    }

    /// Writes the record. Once this returns `Ok`, the answer's head may be released.
    ///
    /// If other exchanges have no record yet, it waits until the tasks that are ready have run: one
    /// write takes all their records.
    ///
    /// On an error, do not release the head: answer 503 `audit_unavailable`, even if a second call
    /// for that fails too. A trail without a record tries once more when dropped. Once the record
    /// is written, further calls do nothing.
    ///
    /// Cancel safety: the record is made at the first poll, and is written at the latest when the
    /// trail is dropped.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Write`] or [`Error::Unsynced`]: the record is not kept.
    pub async fn answer(&mut self, status: u16, length: Length) -> Result<(), Error> {
        if !matches!(self.draft.stage, Stage::Open | Stage::Refused) {
            return Ok(());
        }
        if let Length::Known(bytes) = length {
            self.draft.record.response_bytes = Some(bytes);
        }
        self.draft.stage = Stage::Refused;
        self.finish(Some(status), Outcome::Answered);
        let refuses = self.draft.record.reason.is_some();
        self.draft.stage = Stage::Queued(length, self.log.queue(&self.draft.record, refuses)?);
        let unrecorded = self.draft.unrecorded.take();
        // Two references are the log's and this exchange's.
        if unrecorded.is_some_and(|all| Arc::strong_count(&all) > 2) {
            tokio::task::yield_now().await;
        }
        let seq = self.written()?;
        self.log
            .settle(seq)
            .await
            .inspect_err(|_| self.draft.stage = Stage::Unsettled)
    }

    /// The number of a queued record, or 0. Writes all queued records if this one is not written.
    fn written(&mut self) -> Result<u64, Error> {
        let (length, queued) = match std::mem::replace(&mut self.draft.stage, Stage::Refused) {
            Stage::Queued(length, queued) => (length, queued),
            other => {
                self.draft.stage = other;
                return Ok(0);
            }
        };
        let flushed = self.log.flushed(&queued);
        if queued.place < flushed.kept {
            self.charge(queued.bytes);
            self.draft.stage = Stage::Unsettled;
        }
        if let Some(error) = &flushed.failed {
            return Err(error.clone());
        }
        self.draft.stage = Stage::Answered(length);
        Ok(flushed.first + queued.place)
    }

    /// Ends the trail. Writes an `end` record unless the answer's record already says everything.
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Write`] or [`Error::Unsynced`]: the end is not recorded, and is
    /// counted as lost.
    pub fn end(&mut self, end: ExchangeEnd) -> Result<(), Error> {
        // The outcome of a queued record decides what its `end` record must say.
        let _ = self.written();
        let stage = std::mem::replace(&mut self.draft.stage, Stage::Closed);
        let done = match stage {
            Stage::Closed => Ok(()),
            Stage::Open => {
                let record = &mut self.draft.record;
                record.request_bytes = end.request_bytes.or(record.request_bytes);
                record.reason = record.reason.take().or(end.reason.map(Word::Borrowed));
                self.write(None, Outcome::Aborted)
            }
            Stage::Refused => {
                self.refuse(ReasonCode::AuditUnavailable);
                self.draft.record.response_bytes = None;
                self.write(Some(503), Outcome::Answered)
            }
            Stage::Answered(length) if self.said_all(length, &end) => Ok(()),
            Stage::Answered(_) | Stage::Queued(..) => self.write_end(None, end),
            Stage::Unsettled => self.write_end(
                Some(503),
                ExchangeEnd {
                    outcome: Outcome::Aborted,
                    reason: Some(ReasonCode::AuditUnavailable.as_str()),
                    ..end
                },
            ),
        };
        if done.is_err() {
            self.log.lose();
        }
        done
    }

    fn write(&mut self, status: Option<u16>, outcome: Outcome) -> Result<(), Error> {
        self.finish(status, outcome);
        self.append(&self.draft.record, self.draft.record.reason.is_some())
    }

    /// Writes the `end` record. Unless the content was whole, it names the request.
    fn write_end(&self, status: Option<u16>, end: ExchangeEnd) -> Result<(), Error> {
        let known = &self.draft.record;
        let about = match end.outcome {
            Outcome::Whole => Record::now("end"),
            _ => Record {
                method: known.method.clone(),
                host: known.host.clone(),
                port: known.port,
                path: known.path.clone(),
                path_bytes: known.path_bytes,
                ..Record::now("end")
            },
        };
        let mut record = Record {
            id: known.id.clone(),
            session: known.session.clone(),
            traceparent: known.traceparent.clone(),
            outcome: Some(end.outcome.as_str().into()),
            status,
            reason: end.reason.map(Word::Borrowed),
            request_bytes: end.request_bytes,
            response_bytes: end.response_bytes,
            scrubbed: Some(end.scrubbed),
            ..about
        };
        record.us.total = Some(self.us_until(Instant::now()));
        if let Some(noted) = &self.draft.noted {
            noted.tell(&mut record.noted, &mut record.noted_more);
        }
        self.append(&record, end.reason.is_some())
    }

    fn append(&self, record: &Record, refuses: bool) -> Result<(), Error> {
        let bytes = self.log.append(record, refuses)?;
        self.charge(bytes);
        Ok(())
    }

    /// Completes the `exchange` record. Redacts each client text first, then cuts it.
    fn finish(&mut self, status: Option<u16>, outcome: Outcome) {
        for (text, most) in texts(&mut self.draft.record) {
            show(text, most, self.draft.redact.as_deref());
        }
        let total = self.us_until(Instant::now());
        let record = &mut self.draft.record;
        record.phase = Some(self.draft.phase.as_str().into());
        record.status = status;
        record.outcome = Some(outcome.as_str().into());
        record.us.total = Some(total);
        if let Some(noted) = &self.draft.noted {
            noted.tell(&mut record.noted, &mut record.noted_more);
        }
    }

    /// Whether the record made at the answer already describes this end.
    fn said_all(&self, length: Length, end: &ExchangeEnd) -> bool {
        let as_announced =
            |said: Option<u64>, counted: Option<u64>| counted.is_none() || counted == said;
        let record = &self.draft.record;
        matches!(length, Length::Known(_))
            && end.outcome == Outcome::Whole
            && end.scrubbed == 0
            && self
                .draft
                .noted
                .as_ref()
                .is_none_or(|noted| noted.is_told())
            && as_announced(record.response_bytes, end.response_bytes)
            && as_announced(record.request_bytes.or(Some(0)), end.request_bytes)
    }

    fn us_until(&self, at: Instant) -> u64 {
        u64::try_from((at - self.draft.began).as_micros()).unwrap_or(u64::MAX)
    }

    fn charge(&self, bytes: u64) {
        if let Some(account) = self.account() {
            self.log.charge(account, bytes + FRAME_BYTES);
        }
    }

    fn account(&self) -> Option<&Usage> {
        self.draft.redact.as_ref()?.account()
    }
}

impl Drop for Trail {
    fn drop(&mut self) {
        let outcome = match self.draft.stage {
            Stage::Answered(Length::Known(0)) => Outcome::Whole,
            _ => Outcome::Aborted,
        };
        let end = ExchangeEnd {
            outcome,
            reason: None,
            request_bytes: None,
            response_bytes: None,
            scrubbed: 0,
        };
        // If the record cannot be written now, the next one that can be written counts it.
        let _ = self.end(end);
        if self.draft.promised > 0 {
            self.log.release(self.draft.promised);
        }
    }
}

/// Approximate bytes of a line besides its members: version, number, two hashes.
const FRAME_BYTES: u64 = 176;
/// The cause of a refusal, in bytes.
const MOST_CAUSE: usize = 400;

#[cfg(test)]
#[path = "trail_tests.rs"]
mod tests;
