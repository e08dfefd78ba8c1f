//! The path of one request, stage by stage. Start reading here.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use gateway_audit::{self as audit, Phase, Trail};
use gateway_credential::{Credentialed, Redactor, Settled, Verified};
use gateway_intercept::strict::ViolationHandle;
use gateway_intercept::{
    Accepted, Addressed, ConnectionContext, Entry, GATEWAY_NAME, SessionCa, answer_of,
};
use gateway_message::{Authority, Origin};
use gateway_origin::{self as origin, Channel, Forwarded, OriginBody};
use gateway_policy::{Authorized, Decision, GatherFailure, Gathered, JudgeInput, Requester};
use gateway_session::Identified;
use http::{HeaderName, Response, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;

use super::answer;
use super::answer_body::AnswerBody;
use super::ending::Ending;
use super::error_format::{ErrorFormat, FailedRequest};
use super::floor::floor;
use super::guard::ExchangeGuard;
use super::origin_time::OriginTime;
use super::proposals::{Spending, Unmet};
use super::refusal::Refusal;
use super::route::{LatestRoute, OriginRoute};
use super::snapshot::Snapshot;
use super::worker::Worker;
use super::{clock, upgrade};

/// One exchange: what its stages use, and the record that they leave however it ends.
pub(super) struct Exchange {
    pub(super) worker: Arc<Worker>,
    /// The generation that the whole exchange is judged by and served with.
    pub(super) snapshot: Arc<Snapshot>,
    /// Can abort the exchange from outside. The response's content keeps it alive.
    pub(super) guard: Arc<ExchangeGuard>,
    pub(super) trail: Trail,
    /// Violations of HTTP/1 in the request; `None` over HTTP/2.
    pub(super) violations: Option<ViolationHandle>,
    /// The format in which the client gets an error.
    pub(super) error_format: ErrorFormat,
    /// How the connection came in.
    pub(super) entry: Entry,
    /// The CA of the session's listener.
    pub(super) ca: Arc<SessionCa>,
    /// The route of the connection's latest request.
    pub(super) latest: Arc<LatestRoute>,
    /// How long the origin took.
    pub(super) waited: OriginTime,
    /// What the request has reserved of budgets, until its answer counts it.
    pub(super) spending: Option<Box<Spending>>,
    /// Whether a credential was revoked before the request was allowed, and the workload is not to
    /// know.
    pub(super) is_quiet: bool,
    /// The destination as the connection claims it, until its claims are checked; `None` if it
    /// names no host. Refusals are shown and counted under this origin.
    pub(super) to: Option<Origin>,
}

impl Exchange {
    /// Runs the stages, one per line. Each stage takes the value that only the previous one can
    /// make, so no stage can be skipped.
    pub(super) async fn run(
        &mut self,
        connection: Arc<ConnectionContext>,
        request: http::Request<Incoming>,
    ) -> Result<Response<AnswerBody>, Ending> {
        let (accepted, route) = self.accept(connection, request).await?;
        let route = self.bind_login(&accepted, route).await;
        let identified = self.identify(accepted, &route).await?;
        let identified = self.own_page(identified).await?;
        let gathered = self.gather(identified, &route).await?;
        let authorized = self.decide(gathered)?;
        let verified = self.verify(authorized).await?;
        let settled = self.settle(verified).await?;
        let settled = self.own_tokens(settled).await?;
        let channel = self.open(&settled).await?;
        let credentialed = self.attach(settled).await?;
        let forwarded = channel.forward(credentialed).await?;
        Ok(self.answer(forwarded).await?)
    }

    async fn accept(
        &mut self,
        connection: Arc<ConnectionContext>,
        request: http::Request<Incoming>,
    ) -> Result<(Accepted, Arc<OriginRoute>), Refusal> {
        // Records show none of the session's secrets, however early a request is refused.
        let session = self.worker.shared.sessions.get(&connection.session);
        if let Some(session) = session {
            self.snapshot.credentials.know(&session).await;
        }
        self.trail.method(request.method().as_str());
        self.trail.scheme(connection.scheme.as_str());
        let mut traces = request.headers().get_all(&TRACEPARENT).iter();
        if let (Some(trace), None) = (traces.next(), traces.next()) {
            self.trail.traceparent(trace);
        }
        let addressed = Addressed::read(connection.clone(), request)?;
        let to = addressed.origin().clone();
        self.trail.scheme(to.scheme.as_str());
        let route = self.latest.to(&to, &self.snapshot);
        self.error_format = ErrorFormat::of(route.bindings.signed_paths(), &asked(&addressed));
        let Authority { host, port } = &to.authority;
        self.trail.authority(host.as_str(), *port);
        self.to = Some(to.clone());
        let reading = route.reading(&addressed);
        let accepted =
            Accepted::read(addressed, reading, self.guard.meter.clone()).map_err(|why| {
                let unreachable = self.unreachable(&connection, &to);
                unreachable.unwrap_or(Refusal::Rejected(why))
            })?;
        let request = accepted.request();
        let target = &request.head.target;
        self.trail
            .path(route.bindings.shown(target.path()).as_bytes());
        self.trail.query(target.query().unwrap_or_default());
        if let Some(bytes) = request.content_length() {
            self.trail.request_bytes(bytes);
        }
        Ok((accepted, route))
    }

    /// Returns the refusal for a host that no policy reaches. The client is told of the host rather
    /// than of the path, since a setting for the host might allow the request.
    fn unreachable(&self, connection: &ConnectionContext, to: &Origin) -> Option<Refusal> {
        let session = self.worker.shared.sessions.get(&connection.session)?;
        let policies = self.snapshot.policies.generation();
        let host = &to.authority.host;
        let asker = Requester::of(&session, connection.caller.as_deref(), policies.number());
        let is_reached = policies.may_resolve(asker.principal(), host);
        let is_own = host.as_str() == GATEWAY_NAME;
        (!is_reached && !is_own).then(|| Refusal::Unreachable {
            floor: floor(to, &self.snapshot.origins),
            to: to.authority.clone(),
        })
    }

    async fn identify(
        &mut self,
        accepted: Accepted,
        route: &OriginRoute,
    ) -> Result<Identified, Refusal> {
        let snapshot = self.snapshot.clone();
        let credentials = &snapshot.credentials;
        let sessions = &self.worker.shared.sessions;
        let mut identified =
            sessions.identify(accepted, credentials.bindings(), &route.bindings)?;
        credentials.search_sent(&mut identified).await?;
        if let Some(noted) = identified.note_phantoms() {
            self.trail.tell(noted);
        }
        let caller = identified.request().connection.caller.as_ref();
        if let Some(caller) = caller {
            self.guard.is_of(caller);
        }
        // Judges that need no request: the gateway's own pages, too, are shown only if they agree.
        let case = JudgeInput {
            session: Some(identified.session()),
            caller: caller.map(|caller| &**caller),
            request: None,
            ruling: None,
        };
        case.hear()?;
        self.trail.reach(Phase::Identify);
        Ok(identified)
    }

    async fn gather(
        &self,
        identified: Identified,
        route: &OriginRoute,
    ) -> Result<Gathered, GatherFailure> {
        let budget = self.snapshot.credentials.holding().content_budget();
        let policies = &self.snapshot.policies;
        policies.gather(identified, &route.rules, budget).await
    }

    fn decide(&mut self, gathered: Gathered) -> Result<Authorized, Refusal> {
        let latest = self.worker.shared.look();
        let in_force = (
            latest.policies.generation(),
            &**latest.credentials.bindings(),
        );
        let labels = gathered.session().label_count();
        let decision = self.snapshot.policies.decide(gathered, in_force);
        self.trail.reach(Phase::Authorize);
        let (verdict, facts) = decision.grounds();
        let word = if verdict.allowed() {
            audit::AuditDecision::Allow
        } else {
            audit::AuditDecision::Deny
        };
        self.trail
            .decide(word, &verdict.deciding(), verdict.generation);
        self.trail.facts(facts);
        match decision {
            Decision::Allow(authorized) => {
                let judged = authorized.judged().clone();
                self.guard.allowed(judged, latest.number(), labels);
                Ok(authorized)
            }
            Decision::Object(objected) => {
                self.is_quiet = objected.is_quiet;
                Err(objected.objection.into())
            }
            Decision::Deny(mut denied) => {
                if let Some((credential, place)) = &denied.lend {
                    self.trail.withhold(credential, place);
                }
                if let Some(reason) = floor(&denied.origin, &self.snapshot.origins) {
                    denied.explanation.proposal = None;
                    let to = denied.origin.authority.to_string();
                    let next = reason.next_step_for(&to, "");
                    denied.explanation.next_step = format!("{} {next}", reason.meaning());
                }
                Err(denied.into())
            }
        }
    }

    async fn verify(&mut self, authorized: Authorized) -> Result<Verified, Refusal> {
        let verified = self.snapshot.credentials.verify(authorized).await?;
        self.trail.reserve()?;
        Ok(verified)
    }

    async fn open(&mut self, settled: &Settled) -> Result<Channel, origin::Error> {
        let asked = Instant::now();
        let channel = self.worker.origins(&self.snapshot)?.open(settled).await?;
        self.waited.connected(asked, self.trail.reach(Phase::Open));
        self.trail.dialled(channel.remote(), channel.version());
        Ok(channel)
    }

    async fn attach(&mut self, settled: Settled) -> Result<Credentialed, Refusal> {
        let credentialed = self.snapshot.credentials.attach(settled).await?;
        for (credential, place) in credentialed.lent_to() {
            self.trail.lend(credential, place);
        }
        self.waited.sends(self.trail.reach(Phase::Attach));
        if let Some(spending) = &mut self.spending {
            spending.sent();
        }
        Ok(credentialed)
    }

    async fn answer(&mut self, forwarded: Forwarded) -> Result<Response<AnswerBody>, Refusal> {
        self.trail.answered_by(forwarded.remote());
        let (mut response, switched, mut plan) = forwarded.into_parts();
        let answered = self.trail.origin_answered(response.status().as_u16());
        self.waited.answered(answered);
        if response.status() == StatusCode::UNAUTHORIZED {
            self.snapshot.credentials.refused(&plan);
        }
        if let Some(look) = self.may_have_tokens(&response, &plan) {
            plan.minting = self.unasked(&mut response, (&mut plan, look)).await?;
        }
        let lent = look_for(plan.lent, &response);
        let success = response.status().is_success();
        if let Some(minting) = plan.minting.filter(|one| one.is_in(success)) {
            // Boxed because it is large and rare.
            let with = (lent.as_ref(), plan.decoding);
            return Box::pin(self.minted(response, with, *minting)).await;
        }
        let response = answer::clean(
            response,
            (&plan.method, plan.range),
            lent.as_ref(),
            plan.decoding,
        );
        let mut response = response.await?;
        if let Some(spending) = self.spending.take() {
            // Boxed because it is rare.
            Box::pin(counted(&mut response, spending)).await?;
        }
        match (plan.upgrade, switched) {
            (Some(upgrade), Some(switched)) => upgrade::switch(
                response,
                *upgrade,
                switched,
                (lent, plan.messages),
                (self.guard.clone(), self.trail.id()),
            ),
            (None, Some(_)) => Err(origin::Error::BadUpgrade.into()),
            // RFC 8441 §5: any 2xx response to an extended CONNECT says that the stream is open.
            // Here it is not.
            (Some(upgrade), None) if upgrade.accept.is_none() && success => {
                Err(origin::Error::BadUpgrade.into())
            }
            (_, None) if self.entry == Entry::Base => {
                let mut response = response;
                if let Some(origin) = &self.to {
                    answer_of(origin, response.headers_mut());
                }
                Ok(response)
            }
            (_, None) => Ok(response),
        }
    }
}

/// Has the content of a response counted by what the request has reserved.
async fn counted(
    response: &mut Response<AnswerBody>,
    mut spending: Box<Spending>,
) -> Result<(), Unmet> {
    let head = (response.status(), response.headers());
    let length = response.body().size_hint().exact();
    spending.answered(head, length).await?;
    response.body_mut().counts(spending);
    Ok(())
}

/// The client's trace (W3C Trace Context §3.2).
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Returns what chooses the format of an error response.
fn asked(addressed: &Addressed) -> FailedRequest<'_> {
    let request = addressed.request();
    FailedRequest {
        method: request.method(),
        host: addressed.origin().authority.host.as_str(),
        path: request.uri().path(),
        query: request.uri().query().unwrap_or_default(),
        fields: request.headers(),
    }
}

/// Returns what to search this response for. In an error response, that includes signatures.
fn look_for(lent: Option<Redactor>, response: &Response<OriginBody>) -> Option<Redactor> {
    let status = response.status();
    if lent.as_ref().is_some_and(Redactor::is_signed) {
        clock::watch(status, response.headers(), SystemTime::now());
    }
    let failed = status.is_client_error() || status.is_server_error();
    match lent {
        Some(lent) if failed => Some(lent.of_failure()),
        lent => lent,
    }
}
