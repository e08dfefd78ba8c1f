//! Answers calls: who may make them, and their effects.

use std::collections::BTreeSet;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use gateway_audit::Follower;
use gateway_grant::{AllowRequest, ControlRefusal};
use gateway_names::SecretLabel;
use gateway_policy::Operation;
use gateway_server::chain;
use gateway_session::{EndReason, SessionEnded, SessionStatus};
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HOST, ORIGIN, TRANSFER_ENCODING};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::events::Events;
use super::exposition;
use super::operations::{EndRequest, EnterRequest, MintRequest, Operations, RevokeRequest};
use super::recording::OperatorAct;
use super::route::{self, Endpoint, RouteMatch};
use super::server::{Control, Peer};
use super::view::{GatewayView, SessionView};

/// A page of metrics, with its permit among the pages that are being read.
struct MetricsPage {
    text: String,
    _place: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for MetricsPage {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

/// The content of a response.
pub(super) enum Content {
    Whole(Full<Bytes>),
    Stream(Box<Events>),
}

pub(super) type ApiResult = Result<Response<Content>, ControlRefusal>;

impl<O: Operations> Control<O> {
    /// Answers one call.
    pub(super) async fn answer(
        &self,
        request: Request<Incoming>,
        peer: &Peer,
    ) -> Response<Content> {
        let allowed = route::methods(request.uri().path());
        let answered = self.call(request, peer).await;
        let mut response = answered.unwrap_or_else(|refused| refusal(&refused));
        let is_other_method = response.status() == StatusCode::METHOD_NOT_ALLOWED;
        let fields = response.headers_mut();
        if let (true, Ok(allowed)) = (is_other_method, HeaderValue::try_from(allowed)) {
            // RFC 9110 §15.5.6.
            fields.insert(ALLOW, allowed);
        }
        fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }

    async fn call(&self, request: Request<Incoming>, peer: &Peer) -> ApiResult {
        let (head, content) = request.into_parts();
        refuse_browsers(&head.headers, peer)?;
        let named = head.uri.authority();
        if named.is_some_and(|named| !is_own(named, peer)) {
            return Err(bad("the target is at another host"));
        }
        if head.uri.query().is_some() {
            return Err(bad("a query has no meaning here"));
        }
        // The server has already dropped any `Content-Length` that came with it.
        if head.headers.contains_key(TRANSFER_ENCODING) {
            return Err(bad("the content has no one length").next("send `Content-Length` alone"));
        }
        let called = route::find(&head.method, head.uri.path()).map_err(not_found)?;
        self.authorize(&called, peer).await?;
        let content = self.read(&head.headers, content).await?;
        if let Some(id) = &called.session
            && self.shared.sessions.get(id).is_none()
        {
            self.operations.learn(id).await?;
        }
        match called.route.endpoint {
            Endpoint::Health => Ok(document(&json!({ "status": "ok" }))),
            Endpoint::Ready => self.ready().await,
            Endpoint::Metrics => self.metrics().await,
            Endpoint::Gateway => Ok(self.gateway().await),
            Endpoint::Sessions => Ok(self.sessions()),
            Endpoint::Session => self.session(&called),
            Endpoint::CreateSession => self.create_session(&head.headers, &content, peer).await,
            Endpoint::ExtendSession => self.extend_session(&called, &content, peer).await,
            Endpoint::Environment => self.environment(&called),
            Endpoint::Pause | Endpoint::Resume | Endpoint::End => {
                self.change(&called, &content, peer).await
            }
            Endpoint::Enter => self.enter(&called, &content, peer).await,
            Endpoint::Reload => self.reload(peer).await,
            Endpoint::Revoke => self.revoke(&called, &content, peer).await,
            Endpoint::Restore => self.restore(&called, peer).await,
            Endpoint::MintToken => self.mint_token(&called, &content, peer).await,
            Endpoint::RevokeToken => self.revoke_token(&called, peer).await,
            Endpoint::Events => self.events().await,
            Endpoint::Allow => self.allow(&content, peer).await,
            Endpoint::Proposals => self.proposals().await,
            Endpoint::AllowAsked => self.allow_asked(&content, peer).await,
            Endpoint::Budgets => self.budgets().await,
            Endpoint::Fleet => self.fleet().await,
            Endpoint::DrainReplica => self.drain(&called, peer).await,
            Endpoint::AddToBudget => self.add_to_budget(&called, &content, peer).await,
            Endpoint::RefuseProposal => self.refuse_proposal(&content, peer).await,
        }
    }

    /// Returns the metrics. The page holds its permit until it is written.
    async fn metrics(&self) -> ApiResult {
        let place = self.pages.clone().try_acquire_owned();
        let place = place.map_err(|_| {
            let what = "too many read the metrics now";
            ControlRefusal::new(StatusCode::SERVICE_UNAVAILABLE, what).next("ask again later")
        })?;
        let shared = self.shared.clone();
        let made = self.beside(move || MetricsPage {
            text: exposition::metrics(&shared),
            _place: place,
        });
        let written = Bytes::from_owner(made.await?);
        Ok(page(exposition::MEDIA_TYPE, written))
    }

    /// Checks the policies for operators. Records a refused act.
    async fn authorize(&self, called: &RouteMatch, peer: &Peer) -> Result<(), ControlRefusal> {
        let (route, session) = (called.route, called.session.as_ref());
        let operation = match (route.operation, peer) {
            (_, Peer::Anyone) if !route.on_port => return Err(not_found(StatusCode::NOT_FOUND)),
            (Some(operation), Peer::User(_) | Peer::Certificate(..)) => operation,
            _ => return Ok(()),
        };
        let operators = self.operators.load();
        let may = |operator| operators.permit(operator, operation, session);
        if peer.operator().is_some_and(may) {
            return Ok(());
        }
        if http::Method::GET != route.method {
            // The act is refused whether or not the refusal can be recorded.
            let secret = called.secret.as_ref().map(ToString::to_string);
            let token = || called.token.map(|id| id.to_string());
            let subject = secret.or_else(token).or(called.named.clone());
            let subject = subject.unwrap_or_default();
            let act = OperatorAct::new(peer, operation, session, &subject);
            let _ = self.note(act.refused()).await;
        }
        let what = format!("`{peer}` may not do `{}`", operation.as_str());
        Err(ControlRefusal::new(StatusCode::FORBIDDEN, what)
            .because("no policy for operators permits it")
            .next("see `[control] policy` of the configuration"))
    }

    /// Reads the JSON content of a call.
    async fn read(&self, fields: &HeaderMap, content: Incoming) -> Result<Bytes, ControlRefusal> {
        let read = Limited::new(content, MOST_CONTENT).collect().await;
        let content = read
            .map_err(|_| bad("the content is too long, or broke off"))?
            .to_bytes();
        let is_json = fields
            .get(CONTENT_TYPE)
            .is_some_and(|kind| kind == "application/json");
        if content.is_empty() || is_json {
            Ok(content)
        } else {
            Err(bad("the content is no `application/json`"))
        }
    }

    async fn gateway(&self) -> Response<Content> {
        let listeners = self.operations.listeners().await;
        document(&GatewayView::of(&self.about, &self.shared, listeners))
    }

    async fn ready(&self) -> ApiResult {
        if self.shared.draining.is_cancelled() {
            let status = StatusCode::SERVICE_UNAVAILABLE;
            return Err(ControlRefusal::new(status, "the gateway stops"));
        }
        let log = self.shared.log.clone();
        let unavailable = |what: &str| ControlRefusal::new(StatusCode::SERVICE_UNAVAILABLE, what);
        if !self.beside(move || log.works()).await? {
            return Err(unavailable("the audit log takes no record").next("see its disk"));
        }
        match self.operations.unready().await {
            None => Ok(document(&json!({ "status": "ready" }))),
            Some((why, next)) => Err(unavailable(&why).next(next)),
        }
    }

    fn sessions(&self) -> Response<Content> {
        let all = self.shared.sessions.all();
        let views = all.iter().map(|one| SessionView::of(one, &self.shared));
        let views: Vec<SessionView> = views.collect();
        document(&json!({ "sessions": views }))
    }

    fn session(&self, called: &RouteMatch) -> ApiResult {
        let id = called.session.as_ref();
        let found = id.and_then(|id| self.shared.sessions.get(id));
        let session = found.ok_or_else(unknown_session)?;
        Ok(document(&SessionView::of(&session, &self.shared)))
    }

    fn environment(&self, called: &RouteMatch) -> ApiResult {
        let id = called.session.as_ref().ok_or_else(unknown_session)?;
        self.shared.sessions.get(id).ok_or_else(unknown_session)?;
        Ok(document(&self.operations.environment(id)?))
    }

    /// Pauses, resumes or ends a session, and stores its status for the next start. Pausing and
    /// ending take effect first, even if they cannot be recorded or stored.
    async fn change(&self, called: &RouteMatch, content: &Bytes, peer: &Peer) -> ApiResult {
        let asked: EndRequest = how(content)?;
        let end = if asked.for_good {
            EndReason::ForGood
        } else {
            EndReason::Operator
        };
        let id = called.session.as_ref().ok_or_else(unknown_session)?;
        let sessions = &self.shared.sessions;
        if sessions.get(id).is_none() {
            // Another gateway of the same state may have made it.
            self.operations.learn(id).await?;
        }
        let session = sessions.get(id).ok_or_else(unknown_session)?;
        let operation = called.route.operation.ok_or_else(unknown_session)?;
        let ended = |ended: SessionEnded| {
            let refusal = ControlRefusal::new(StatusCode::CONFLICT, ended.to_string());
            match ended {
                SessionEnded::Idle => refusal.next(format!("gateway session resume {id}")),
                SessionEnded::ForGood => refusal,
            }
        };
        let may_change = match called.route.endpoint {
            Endpoint::End => true,
            Endpoint::Resume => !session.is_over() || session.was_idle(),
            _ => !session.is_over(),
        };
        if !may_change {
            return Err(ended(session.has_ended()));
        }
        let act = OperatorAct::new(peer, operation, Some(id), "");
        match called.route.endpoint {
            Endpoint::Resume => {
                self.record(&act).await?;
                let kept = self.operations.keep_status(id, SessionStatus::Active).await;
                self.followed(&act, kept).await?;
                if session.was_idle() {
                    // Its leases were given back when it ended as idle.
                    self.shared.current().credentials.begin(id);
                }
                let resumed = session.resume().map_err(ended);
                self.followed(&act, resumed).await?;
            }
            narrows => {
                match narrows {
                    Endpoint::Pause => session.pause().map_err(ended)?,
                    _ => sessions.end(&session, end),
                }
                if let Err(why) = self.note(act).await {
                    tracing::warn!(what = why.what, session = %id, "it is {}", session.status().as_str());
                }
            }
        }
        let mut proven = Vec::new();
        if session.status() != SessionStatus::Active {
            let keeping = self.operations.keep_status(id, session.status());
            // The thread that stores it may wait for the log. It stores it afterwards.
            proven = self.in_time(keeping).await.map_err(|why| {
                let status = session.status().as_str();
                let what = format!(
                    "the session is {status}, and that could not be kept for the next start"
                );
                not_kept(what, why)
            })?;
        }
        let view = SessionView::of(&session, &self.shared);
        Ok(document(&view.proven(proven)))
    }

    /// Lets a further command into the session's sandbox.
    async fn enter(&self, called: &RouteMatch, content: &Bytes, peer: &Peer) -> ApiResult {
        let asked: EnterRequest = serde_json::from_slice(content).map_err(|error| {
            bad("the content does not name a socket").because(error.to_string())
        })?;
        let id = called.session.as_ref().ok_or_else(unknown_session)?;
        let session = self.shared.sessions.get(id).ok_or_else(unknown_session)?;
        let refused = |next| {
            let what = format!("the session is {}", session.status().as_str());
            ControlRefusal::new(StatusCode::CONFLICT, what).next(next)
        };
        match session.status() {
            SessionStatus::Active => {}
            SessionStatus::Paused => return Err(refused("gateway session resume SESSION")),
            SessionStatus::Ended(_) => return Err(refused("start another: `gateway exec`")),
        }
        if matches!(peer, Peer::Certificate(..)) {
            let what = "a sandbox is entered from its own machine alone";
            return Err(ControlRefusal::new(StatusCode::FORBIDDEN, what)
                .because("the command's streams are handed over by its socket"));
        }
        let act = OperatorAct::new(peer, Operation::SessionEnter, Some(id), "");
        self.record(&act).await?;
        let entered = self.operations.enter(id, &asked.socket).await;
        self.followed(&act, entered).await?;
        Ok(document(&json!({ "session": id.as_str() })))
    }

    async fn reload(&self, peer: &Peer) -> ApiResult {
        let act = OperatorAct::new(peer, Operation::Reload, None, "");
        self.record(&act).await?;
        let reloaded = self.operations.reload().await;
        Ok(document(&self.followed(&act, reloaded).await?))
    }

    /// Revokes a secret, and stores that. The revocation takes effect first, even if it cannot be
    /// recorded or stored.
    async fn revoke(&self, called: &RouteMatch, content: &Bytes, peer: &Peer) -> ApiResult {
        let RevokeRequest { quiet } = how(content)?;
        let label = called.secret.as_ref().ok_or_else(unknown_credential)?;
        let severed = self.shared.revoke(label);
        let hush = || quiet.then(|| self.shared.current().credentials.hush(label));
        hush();
        let name = label.as_str();
        let act = OperatorAct::new(peer, Operation::CredentialRevoke, None, name);
        if let Err(why) = self.note(act).await {
            tracing::warn!(what = why.what, credential = name, "it is revoked");
        }
        let keeping = self.operations.keep_revoked(label);
        // The thread that stores it may wait for the disk. It stores it afterwards.
        let kept = self.in_time(keeping).await;
        // What is known of the secret by now may hit more.
        hush();
        let hits = kept.map_err(|why| {
            let what = "the credential is revoked in this gateway until it ends, and nothing was \
                        revoked for other gateways";
            not_kept(what.to_owned(), why)
        })?;
        let proven = hits.fleet.map_err(|why| unreached("the credential", why))?;
        let own = hits.own.into_iter();
        let own = own.map(|(does, from)| json!({ "does": does, "from": from }));
        let lent = hits.lent.into_iter();
        let lent = lent.map(|(credential, from)| json!({ "credential": credential, "from": from }));
        Ok(document(&json!({
            "credential": name,
            "hit": lent.collect::<Vec<_>>(),
            "own": own.collect::<Vec<_>>(),
            "connections_severed": severed + hits.severed,
            "fleet": proven,
        })))
    }

    async fn restore(&self, called: &RouteMatch, peer: &Peer) -> ApiResult {
        let label = called.secret.as_ref().ok_or_else(unknown_credential)?;
        let name = label.as_str();
        let act = OperatorAct::new(peer, Operation::CredentialRestore, None, name);
        self.record(&act).await?;
        let kept = self.operations.restore(label).await;
        let restored = self.followed(&act, kept).await?;
        let restored: Vec<&str> = restored.iter().map(SecretLabel::as_str).collect();
        Ok(document(
            &json!({ "credential": name, "restored": restored }),
        ))
    }

    /// Mints a token, and records its id before the token is returned.
    async fn mint_token(&self, called: &RouteMatch, content: &Bytes, peer: &Peer) -> ApiResult {
        let asked: MintRequest = serde_json::from_slice(content).map_err(|error| {
            bad("the content does not say what the token is for").because(error.to_string())
        })?;
        let session = called.session.as_ref().ok_or_else(unknown_session)?;
        self.shared
            .sessions
            .get(session)
            .ok_or_else(unknown_session)?;
        let minted = self.operations.mint(session, &asked).await?;
        let id = minted.id.to_string();
        let act = OperatorAct::new(peer, Operation::TokenMint, Some(session), &id);
        self.record(&act).await?;
        Ok(document(&json!({
            "token": minted.token.as_str(),
            "id": id,
            "session": session.as_str(),
        })))
    }

    /// Revokes a token, and stores that. The revocation takes effect first, even if it cannot be
    /// recorded or stored.
    async fn revoke_token(&self, called: &RouteMatch, peer: &Peer) -> ApiResult {
        let none = || not_found(StatusCode::NOT_FOUND);
        let id = called.token.ok_or_else(none)?;
        self.shared.revoke_tokens(&BTreeSet::from([id]));
        let text = id.to_string();
        let act = OperatorAct::new(peer, Operation::TokenRevoke, None, &text);
        if let Err(why) = self.note(act).await {
            tracing::warn!(what = why.what, token = text, "it is revoked");
        }
        let keeping = self.operations.keep_revoked_token(id);
        let proven = self.in_time(keeping).await.map_err(|why| {
            let what = "the token is revoked in this gateway until it ends, and nothing was \
                        revoked for other gateways";
            not_kept(what.to_owned(), why)
        })?;
        let proven = proven.map_err(|why| unreached("the token", why))?;
        Ok(document(&json!({ "token": text, "fleet": proven })))
    }

    /// Waits until a change is kept. The thread that keeps it may wait for the disk or for other
    /// replicas, and goes on afterwards.
    async fn in_time<T>(
        &self,
        keeping: impl Future<Output = Result<T, ControlRefusal>>,
    ) -> Result<T, ControlRefusal> {
        let kept = timeout(self.operations.kept_within(), keeping).await;
        kept.unwrap_or_else(|_| {
            let status = StatusCode::SERVICE_UNAVAILABLE;
            Err(ControlRefusal::new(status, "it takes too long"))
        })
    }

    async fn fleet(&self) -> ApiResult {
        let replicas = self.operations.fleet().await?;
        Ok(document(&json!({ "replicas": replicas })))
    }

    async fn drain(&self, called: &RouteMatch, peer: &Peer) -> ApiResult {
        let name = called.named.as_deref().unwrap_or_default();
        let act = OperatorAct::new(peer, Operation::FleetDrain, None, name);
        self.record(&act).await?;
        let drained = self.operations.drain(name).await;
        self.followed(&act, drained).await?;
        Ok(document(&json!({ "replica": name })))
    }

    async fn allow(&self, content: &Bytes, peer: &Peer) -> ApiResult {
        let asked: AllowRequest = serde_json::from_slice(content).map_err(|error| {
            bad("the content does not say what to allow").because(error.to_string())
        })?;
        let seen = asked.policy.clone();
        let rule = self.operations.rule(asked).await?;
        let Some(seen) = seen else {
            return Ok(document(&rule));
        };
        if seen != rule.policy {
            let what = "the rule is not the one that was shown";
            let changed = ControlRefusal::new(StatusCode::CONFLICT, what);
            return Err(changed.next("ask again without `policy`"));
        }
        let act = OperatorAct::new(peer, Operation::PolicyAllow, None, &seen);
        self.record(&act).await?;
        let applied = self.operations.apply(rule).await;
        Ok(document(&self.followed(&act, applied).await?))
    }

    async fn events(&self) -> ApiResult {
        let unavailable = |why: String| {
            let status = StatusCode::SERVICE_UNAVAILABLE;
            ControlRefusal::new(status, "the records cannot be followed").because(why)
        };
        let place = self.streams.clone().try_acquire_owned();
        let place = place.map_err(|_| unavailable("too many follow them already".to_owned()))?;
        let log = self.shared.log.path().map(Path::to_owned);
        let log = log.ok_or_else(|| unavailable("they are in memory alone".to_owned()))?;
        let follower = self.beside(move || Follower::at_end(&log)).await?;
        let follower = follower.map_err(|error| unavailable(chain(&error)))?;
        let stream = Content::Stream(Box::new(Events::new(follower, place)));
        Ok(typed("application/x-ndjson", Response::new(stream)))
    }
}

/// Refuses requests of browsers: with an `Origin`, or for a foreign host. A web page could make a
/// browser send one (threats O02).
fn refuse_browsers(fields: &HeaderMap, peer: &Peer) -> Result<(), ControlRefusal> {
    let forbidden = |what| ControlRefusal::new(StatusCode::FORBIDDEN, what);
    if fields.contains_key(ORIGIN) {
        return Err(forbidden("calls of web pages are refused"));
    }
    let mut hosts = fields.get_all(HOST).iter();
    let (host, further) = (hosts.next(), hosts.next());
    let named = host.and_then(|host| host.to_str().ok()?.parse::<Authority>().ok());
    if named.is_some_and(|named| is_own(&named, peer)) && further.is_none() {
        Ok(())
    } else {
        Err(forbidden("the host is not the gateway").next("send `Host: gateway`"))
    }
}

/// Whether an authority names this server.
fn is_own(authority: &Authority, peer: &Peer) -> bool {
    let host = authority.host();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let is_this_port = match peer {
        Peer::User(_) => false,
        Peer::Certificate(_, port) => port.tls.load().is_for(bare),
        Peer::Anyone => bare.parse::<std::net::IpAddr>().is_ok(),
    };
    host == "localhost" || host == "gateway" || is_this_port
}

/// Returns the refusal for a revocation that holds on this machine alone.
fn unreached(what: &str, why: String) -> ControlRefusal {
    let what = format!("{what} is revoked on this machine; the fleet was not reached");
    ControlRefusal::new(StatusCode::SERVICE_UNAVAILABLE, what)
        .because(why)
        .next("the others are told as soon as the state answers; do it again to be sure of them")
}

/// Returns the refusal for a change that holds now, and that the next start will not know.
fn not_kept(what: String, why: ControlRefusal) -> ControlRefusal {
    let causes = [Some(why.what), why.why].into_iter().flatten();
    let causes: Vec<String> = causes.collect();
    ControlRefusal::new(StatusCode::SERVICE_UNAVAILABLE, what)
        .because(causes.join(": "))
        .next(
            why.next
                .unwrap_or_else(|| "do it again before the gateway is started anew".to_owned()),
        )
}

/// Reads how an act is done: as usual without content.
fn how<T: Default + DeserializeOwned>(content: &Bytes) -> Result<T, ControlRefusal> {
    if content.is_empty() {
        return Ok(T::default());
    }
    let read = serde_json::from_slice(content);
    read.map_err(|error| bad("the content does not say how").because(error.to_string()))
}

fn unknown_credential() -> ControlRefusal {
    ControlRefusal::new(StatusCode::NOT_FOUND, "there is no such credential")
        .next("gateway session list")
}

pub(super) fn unknown_session() -> ControlRefusal {
    ControlRefusal::new(StatusCode::NOT_FOUND, "no such session").next("gateway session list")
}

pub(super) fn bad(what: &str) -> ControlRefusal {
    ControlRefusal::new(StatusCode::BAD_REQUEST, what)
}

fn not_found(status: StatusCode) -> ControlRefusal {
    let what = match status {
        StatusCode::METHOD_NOT_ALLOWED => "the path takes another method",
        _ => "there is no such path",
    };
    ControlRefusal::new(status, what).next("docs/openapi.json has them all")
}

fn refusal(refused: &ControlRefusal) -> Response<Content> {
    let mut response = document(&json!({ "error": {
        "what": refused.what, "why": refused.why, "next": refused.next,
    }}));
    *response.status_mut() = refused.status;
    response
}

pub(super) fn document(value: &impl Serialize) -> Response<Content> {
    match serde_json::to_vec(value) {
        Ok(text) => page("application/json", text),
        Err(error) => {
            tracing::error!(%error, "an answer of the control socket cannot be written");
            let mut response = page("application/json", "{}");
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            response
        }
    }
}

fn page(kind: &'static str, text: impl Into<Bytes>) -> Response<Content> {
    typed(kind, Response::new(Content::Whole(Full::new(text.into()))))
}

fn typed(kind: &'static str, mut response: Response<Content>) -> Response<Content> {
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

impl Content {
    pub(super) fn is_stream(&self) -> bool {
        matches!(self, Self::Stream(_))
    }
}

impl Body for Content {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match &mut *self {
            Self::Whole(content) => Pin::new(content)
                .poll_frame(cx)
                .map_err(|never| match never {}),
            Self::Stream(events) => Pin::new(events.as_mut()).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(content) => content.is_end_stream(),
            Self::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(content) => content.size_hint(),
            Self::Stream(_) => SizeHint::default(),
        }
    }
}

const MOST_CONTENT: usize = 64 << 10;
