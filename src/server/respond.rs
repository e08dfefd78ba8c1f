//! Begins an exchange, and ends it with the origin's response or a refusal. The audit log has the
//! record before the client gets the response.

use std::sync::Arc;
use std::time::SystemTime;

use gateway_audit::{ExchangeEnd, Length, Outcome, Trail};
use gateway_intercept::strict::ViolationHandle;
use gateway_intercept::{ConnectionContext, Rejected, SessionCa};
use gateway_message::{Authority, Origin};
use gateway_names::{ReasonCode, SessionId};
use http::{Request, Response, Version};
use hyper::body::Incoming;
use hyper::ext::ReasonPhrase;

use super::answer_body::AnswerBody;
use super::ending::Ending;
use super::error_format::ErrorFormat;
use super::exchange::Exchange;
use super::guard::{Abort, ConnectionGuard};
use super::origin_time::OriginTime;
use super::proposals::RequestedAccess;
use super::propose::after_refusal;
use super::recent::RecentRefusal;
use super::refusal::Refusal;
use super::route::LatestRoute;
use super::worker::Worker;

impl Exchange {
    /// Begins an exchange on a connection.
    pub(super) fn begin(
        worker: &Arc<Worker>,
        connection: &ConnectionContext,
        guard: &Arc<ConnectionGuard>,
        violations: Option<ViolationHandle>,
        ca: Arc<SessionCa>,
        latest: Arc<LatestRoute>,
    ) -> Box<Self> {
        let (log, id) = (&worker.shared.log, worker.shared.ids.next());
        let watched = worker.watchdog.exchange(guard);
        watched.counts_in(&worker.shared.metrics);
        let trail = Trail::begin(log, id, connection.entry.as_str());
        // Boxed because it moves from future to future.
        Box::new(Self {
            guard: watched,
            snapshot: worker.shared.current(),
            worker: worker.clone(),
            violations,
            error_format: ErrorFormat::default(),
            ca,
            latest,
            waited: OriginTime::begin(trail.began()),
            entry: connection.entry,
            trail,
            spending: None,
            is_quiet: false,
            to: connection.said_origin(),
        })
    }

    /// Answers the request in every case. With a `refusal`, the request goes no further.
    pub(super) async fn respond(
        mut self: Box<Self>,
        connection: Arc<ConnectionContext>,
        request: Request<Incoming>,
        refusal: Option<Refusal>,
    ) -> Response<AnswerBody> {
        let version = request.version();
        self.trail.protocol(version);
        self.trail.client(connection.client);
        let session = connection.session.clone();
        self.to = self
            .to
            .take()
            .or_else(|| named_by_itself(&connection, &request));
        let refusal = self.admit(&connection).err().or(refusal);
        let guard = self.guard.clone();
        let result = match refusal {
            // Nothing of the request was read.
            Some(refusal) => Err(Ending::Refused(refusal)),
            None => tokio::select! {
                // An aborted exchange takes no further step.
                biased;
                why = guard.aborted() => Err(why.into()),
                result = self.run(connection, request) => result,
            },
        };
        let ended = match result {
            Ok(response) => Ok(response),
            Err(Ending::Answered(response)) => Ok(*response),
            Err(Ending::Refused(refusal)) => Err(refusal),
        };
        let refusal = match ended {
            Ok(response) => {
                let (status, length) = (response.status().as_u16(), response.body().length());
                match (
                    self.trail.answer(status, length).await,
                    self.guard.abort_reason(),
                ) {
                    (Ok(()), None) => {
                        self.count(version, true);
                        return self.release(response, length);
                    }
                    (Ok(()), Some(why)) => self.withhold(why),
                    (Err(error), _) => Refusal::Audit(error),
                }
            }
            Err(refusal) => {
                // The origin of the request, or of its connection if the request was not read.
                if let Some(Origin { authority, .. }) = &self.to {
                    self.trail
                        .authority(authority.host.as_str(), authority.port);
                }
                self.heed(&session, self.blame(refusal))
            }
        };
        let recent = RecentRefusal {
            id: self.trail.id(),
            time: SystemTime::now(),
            reason: refusal.reason(),
            to: self.to.clone(),
            request: self.trail.request(),
        };
        if !self.is_quiet(&refusal) {
            self.worker.shared.recent.add(&session, recent);
        }
        self.refuse(refusal, version).await
    }

    /// Counts the exchange, and the time of an answered one.
    fn count(&self, version: Version, answered: bool) {
        let metrics = &self.worker.shared.metrics;
        metrics.exchange(self.entry, version, answered);
        if answered {
            self.waited.count(metrics);
        }
    }

    /// Takes a place among the session's exchanges, and in the log.
    fn admit(&mut self, connection: &ConnectionContext) -> Result<(), Refusal> {
        let shared = &self.worker.shared;
        let Some(session) = shared.sessions.get(&connection.session) else {
            return Ok(());
        };
        let place = session.exchange(self.snapshot.limits.exchanges_per_session);
        self.trail.session(&connection.session, session);
        if let Some(caller) = &connection.caller {
            let token = caller.token_id();
            self.trail
                .caller(caller.user.as_ref(), token, &caller.groups);
        }
        self.trail.admit()?;
        self.guard.holds(place.ok_or(Refusal::Busy)?);
        Ok(())
    }

    /// Ends the trail of a response that was recorded and is not released: the exchange was aborted
    /// while its record was written.
    fn withhold(&mut self, why: Abort) -> Refusal {
        let end = ExchangeEnd {
            outcome: Outcome::Cut,
            reason: Some(why.reason().as_str()),
            response_bytes: Some(0),
            ..END_OF_OUR_OWN
        };
        if let Err(error) = self.trail.end(end) {
            tracing::error!(exchange = %self.trail.id(), %error, "the end of an exchange was not recorded");
        }
        Refusal::Aborted(why)
    }

    /// Returns the response. The end of its content, or of its WebSocket, ends the exchange.
    fn release(
        self: Box<Self>,
        mut response: Response<AnswerBody>,
        length: Length,
    ) -> Response<AnswerBody> {
        if length == Length::Switched {
            self.guard.ends_with_it(self.trail);
        } else {
            response.body_mut().settle(self.trail, self.guard);
        }
        response
    }

    /// Blames the client instead of the origin, if the client's content is at fault.
    ///
    /// If that content is malformed, or is not what was signed, the request to the origin breaks
    /// off. Buffered content breaks off in the same way.
    fn blame(&self, refusal: Refusal) -> Refusal {
        if !refusal.is_broken_off() {
            return refusal;
        }
        // A revocation ends the connection to the origin, which may be noticed first.
        if let Some(why) = self.guard.abort_reason() {
            return Refusal::Aborted(why);
        }
        if let Some(malformed) = self
            .violations
            .as_ref()
            .and_then(ViolationHandle::in_content)
        {
            return Rejected::Wire(malformed).into();
        }
        match self.guard.meter.fault() {
            Some(fault) => Refusal::Content(fault.clone()),
            None => refusal,
        }
    }

    /// Replaces the hint how to allow the request by the refusal, if a person has refused it.
    fn heed(&self, session: &SessionId, mut refusal: Refusal) -> Refusal {
        if let Refusal::Denied(denied) = &mut refusal
            && denied.explanation.proposal.is_some()
            && let Some(request) = self.trail.request()
        {
            let asked = RequestedAccess {
                to: denied.origin.clone(),
                request: Some(request),
                refused: None,
            };
            let proposals = &self.worker.shared.proposals;
            if let Some(refused) = proposals.refusal(session, &asked) {
                denied.explanation.proposal = None;
                denied.explanation.next_step = after_refusal(&refused);
            }
        }
        refusal
    }

    /// Whether the workload is not to know why: a credential was revoked quietly.
    fn is_quiet(&self, refusal: &Refusal) -> bool {
        let is_quiet = self.is_quiet || self.guard.is_revoked_quietly();
        is_quiet && refusal.reason() == ReasonCode::CredentialRevoked
    }

    /// Records the refusal, then returns it.
    async fn refuse(
        mut self: Box<Self>,
        mut refusal: Refusal,
        version: Version,
    ) -> Response<AnswerBody> {
        let (id, reason) = (self.trail.id(), refusal.reason());
        self.count(version, false);
        let to = &shown(self.to.as_ref());
        let counts = &self.worker.shared.refused;
        counts.count_of(to, reason, id, refusal.is_grantable());
        self.trail.refuse(reason);
        if let Some(cause) = refusal.failure() {
            self.trail.cause(cause);
        }
        if let Some((credential, part)) = refusal.misplaced() {
            self.trail.misplace(credential, part.place());
        }
        refusal.log(id);
        let quiet = self.is_quiet(&refusal);
        let (status, fields, content) = match quiet {
            true => Refusal::quiet_answer(id, self.error_format),
            false => refusal.answer(id, version, self.error_format, to),
        };
        let length = Length::Known(content.len() as u64);
        // A gRPC call is refused with 200 and a status of its own (`ErrorFormat::Grpc`). The log
        // has the status that was meant.
        let recorded = self.trail.answer(reason.status().as_u16(), length).await;
        // The content is a few bytes of our own. Whether the client reads them is not worth a
        // second record.
        if let Err(error) = recorded.and_then(|()| self.trail.end(END_OF_OUR_OWN)) {
            // A refusal lets nothing through, so it is returned even if it cannot be recorded. The
            // trail counts the loss.
            tracing::error!(exchange = %id, %error, "a refusal was not recorded");
        }
        tokio::select! {
            () = refusal.settle() => {}
            _ = self.guard.aborted() => {}
        }
        let mut response = Response::new(AnswerBody::own(content));
        *response.status_mut() = status;
        *response.headers_mut() = fields;
        // HTTP/2 has no reason phrase.
        let phrase = ReasonPhrase::try_from(refusal.reason_phrase(to).into_bytes());
        if let (Ok(phrase), false) = (phrase, quiet) {
            response.extensions_mut().insert(phrase);
        }
        response
    }
}

/// Returns the origin that a request in absolute form names. It is only shown, and decides nothing.
fn named_by_itself(connection: &ConnectionContext, request: &Request<Incoming>) -> Option<Origin> {
    let (scheme, named) = (connection.scheme, request.uri().authority()?);
    let authority = Authority::parse(named.as_str().as_bytes(), Some(scheme.default_port()));
    let authority = authority.ok()?;
    Some(Origin { scheme, authority })
}

/// Returns the host and port that a request is for, as `gateway allow` takes them; empty if they
/// are not known.
pub(super) fn shown(to: Option<&Origin>) -> String {
    to.map_or_else(String::new, |to| to.authority.shown())
}

const END_OF_OUR_OWN: ExchangeEnd = ExchangeEnd {
    outcome: Outcome::Whole,
    reason: None,
    request_bytes: None,
    response_bytes: None,
    scrubbed: 0,
};
