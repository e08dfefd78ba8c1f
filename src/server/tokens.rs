//! Tokens on the path: the responses in which authorization servers issue them, and the requests to
//! renew them, which the gateway answers.

use std::collections::VecDeque;
use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use gateway_audit::Event;
use gateway_body::{Coding, Decoder, Share, Step};
use gateway_credential::login::{
    OAuthRequest, RenewalAnswer, TokenAnswer, TokenLook, UnmappedToken,
};
use gateway_credential::{self as credential, AnswerPlan, Minting, Redactor, Settled, preset};
use gateway_intercept::Accepted;
use gateway_message::is_part_of;
use gateway_names::CredentialName;
use gateway_origin::{self as origin, OriginBody};
use gateway_policy::Requester;
use gateway_session::Session;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Method, Response, StatusCode};
use http_body::{Body as _, Frame};
use http_body_util::BodyExt as _;
use tokio::time::Instant;

use super::answer;
use super::answer_body::AnswerBody;
use super::ending::Ending;
use super::exchange::Exchange;
use super::refusal::Refusal;
use super::route::OriginRoute;

impl Exchange {
    /// Binds a login without a host to the first host that its session presents it to, unless
    /// policy forbids the request. The exchange is then judged by the new generation.
    pub(super) async fn bind_login(
        &mut self,
        accepted: &Accepted,
        route: Arc<OriginRoute>,
    ) -> Arc<OriginRoute> {
        let (shared, request) = (&self.worker.shared, accepted.request());
        let captures = shared.captures.get();
        if captures.is_some_and(|all| !all.has_homeless()) {
            // Another request may have bound it since this one came.
            if shared.look().number() == self.snapshot.number() {
                return route;
            }
            self.snapshot = shared.current();
            return self.latest.to(&request.head.origin, &self.snapshot);
        }
        let session = shared.sessions.get(&request.connection.session);
        let (Some(captures), Some(session)) = (captures, session) else {
            return route;
        };
        let policies = self.snapshot.policies.generation();
        let caller = request.connection.caller.as_deref();
        let asker = Requester::of(&session, caller, policies.number());
        let is_permitted = || policies.may_permit(&asker, &request.head);
        // Boxed because it is large and rare.
        let settled = Box::pin(captures.settle(&session, &request.head, &is_permitted)).await;
        if let Some(name) = settled {
            self.note("login_settled", &session, &name);
        }
        self.snapshot = self.worker.shared.current();
        self.latest.to(&request.head.origin, &self.snapshot)
    }

    /// Answers a request to renew or revoke tokens that the session holds phantoms of. No part of
    /// it is sent on.
    pub(super) async fn own_tokens(&mut self, settled: Settled) -> Result<Settled, Ending> {
        if settled.asked().is_some() {
            // Boxed because it is large and rare.
            Box::pin(self.answer_tokens(settled)).await
        } else {
            Ok(settled)
        }
    }

    async fn answer_tokens(&mut self, mut settled: Settled) -> Result<Settled, Ending> {
        let (credentials, shared) = (&self.snapshot.credentials, &self.worker.shared);
        let Some(asked) = settled.asked() else {
            return Ok(settled);
        };
        let (session, owner) = (settled.session(), |text: &[u8]| shared.sessions.owner(text));
        let Some(login) = credentials.presented_login(asked, session, owner)? else {
            let rule = self.snapshot.origins.rule(&asked.endpoint.origin);
            if rule.is_some_and(|rule| rule.passes_tokens) {
                settled.pass_tokens();
            }
            return Ok(settled);
        };
        let (status, content) = if asked.revokes {
            if let Some(captures) = shared.captures.get() {
                captures.end(session, login).await;
            }
            self.note("login_ended", session, &login.name);
            (StatusCode::OK, Bytes::from_static(b"{}"))
        } else {
            let camel_case = asked.request.camel_case;
            match credentials.renewed(session, login, camel_case).await? {
                RenewalAnswer::Renewed(content) => (StatusCode::OK, content),
                RenewalAnswer::Over(content) => (StatusCode::BAD_REQUEST, content),
            }
        };
        let mut response = Response::new(AnswerBody::own(content));
        *response.status_mut() = status;
        let fields = response.headers_mut();
        fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        Err(Ending::Answered(Box::new(response)))
    }

    /// Returns a search for tokens that no request asked for, if the response may have any. A
    /// response to a signed request stays as it is, since the client may check a digest of it.
    pub(super) fn may_have_tokens(
        &self,
        response: &Response<OriginBody>,
        plan: &AnswerPlan,
    ) -> Option<TokenLook> {
        let is_signed = plan.lent.as_ref().is_some_and(Redactor::is_signed);
        let is_own = plan.minting.is_some() || plan.upgrade.is_some() || is_signed;
        let is_empty = plan.method == Method::HEAD || response.body().is_end_stream();
        let length = usize::try_from(response.body().size_hint().lower());
        let is_short = length.is_ok_and(|length| length <= TokenLook::LONGEST);
        (!is_own && !is_empty && is_short)
            .then(|| TokenLook::new(response.headers()))
            .flatten()
    }

    /// Searches a response for tokens that the request did not ask for. The response is unchanged.
    pub(super) async fn unasked(
        &self,
        response: &mut Response<OriginBody>,
        (plan, token_look): (&mut AnswerPlan, TokenLook),
    ) -> Result<Option<Box<Minting>>, Refusal> {
        let passes = |to| {
            let rule = self.snapshot.origins.rule(to);
            rule.is_some_and(|rule| rule.passes_tokens)
        };
        let Some(to) = self.to.as_ref().filter(|to| !passes(to)) else {
            return Ok(None);
        };
        // A part of a representation does not show whether it has tokens.
        let is_part = response.status() == StatusCode::PARTIAL_CONTENT
            && is_part_of(response.headers(), TokenLook::LONGEST as u64);
        if is_part && TokenLook::is_declared(response.headers()) {
            return Err(credential::Error::from(UnmappedToken::Unheld).into());
        }
        let has_token = look(response, token_look, &mut plan.decoding).await?;
        Ok(has_token.then(|| {
            let (session, asked) = (&plan.session, OAuthRequest::unasked(to, &plan.target));
            Box::new(Minting::Tokens {
                session: session.clone(),
                asked: Box::new(asked),
            })
        }))
    }

    /// Passes on a response that may contain new credentials, with phantoms in their places.
    pub(super) async fn minted(
        &self,
        response: Response<OriginBody>,
        (lent, decoding): (Option<&Redactor>, Share),
        minting: Minting,
    ) -> Result<Response<AnswerBody>, Refusal> {
        let credentials = &self.snapshot.credentials;
        let unread = minting.unread();
        let minted = match minting {
            Minting::Temporary {
                session,
                parent,
                revocations,
            } => {
                let keep = async |kind: &str, content: Bytes| {
                    let of = (&session, &parent, &revocations);
                    let (content, kept) = credentials.keep(of, kind, &content)?;
                    if let Some(captures) = self.worker.shared.captures.get() {
                        captures.keep(session.id(), kept).await;
                    }
                    Ok((content, lent.cloned()))
                };
                answer::minted(response, decoding, keep, unread).await
            }
            Minting::Tokens { session, asked } => {
                let keep =
                    async |kind: &str, content: Bytes| match TokenAnswer::read(kind, &content)? {
                        Some(answer)
                            if !asked.names_a_grant() && echoes(lent, &answer, &content)? =>
                        {
                            Ok((content, lent.cloned()))
                        }
                        Some(answer) => self.captured(&session, *asked, (&answer, &content)).await,
                        // The response has a token, in a form that cannot be read.
                        None if asked.is_seen => Err(UnmappedToken::Illegible.into()),
                        None => Ok((content, lent.cloned())),
                    };
                answer::minted(response, decoding, keep, unread).await
            }
        };
        Ok(minted?)
    }

    async fn captured(
        &self,
        session: &Arc<Session>,
        mut asked: OAuthRequest,
        (answer, content): (&TokenAnswer, &[u8]),
    ) -> Result<(Bytes, Option<Redactor>), credential::Error> {
        let shared = &self.worker.shared;
        let captures = shared.captures.get().ok_or(UnmappedToken::Unkept)?;
        let mut tokens = answer.tokens.clone();
        tokens.owner = preset::owner(&asked.endpoint, content);
        asked.target = answer.target.clone();
        let login = captures.capture(session, &asked, tokens).await?;
        self.note("login_captured", session, &login.name);
        let current = shared.current();
        let shown = current
            .credentials
            .shown(session, &login, (answer, content));
        shown.await
    }

    /// Records an event of a login.
    fn note(&self, name: &'static str, session: &Session, login: &CredentialName) {
        let recorded = self.worker.shared.log.event(Event {
            name,
            session: Some(session.id()),
            subject: login.as_str().as_bytes(),
            reason: None,
            count: 1,
        });
        if let Err(error) = recorded {
            tracing::error!(%error, "what became of a login was not recorded");
        }
    }
}

/// Reads the start of a response until it is known whether it has a token, and puts it back.
async fn look(
    response: &mut Response<OriginBody>,
    mut look: TokenLook,
    decoding: &mut Share,
) -> Result<bool, Refusal> {
    let Ok(codings) = Coding::parse_answer(response.headers()) else {
        return Ok(false);
    };
    let memory = codings.iter().map(|coding| coding.memory()).max();
    let has_room = decoding.set(memory.unwrap_or_default());
    has_room.map_err(|_| origin::Error::DecodingBudget)?;
    let decoder = (!codings.is_empty()).then(|| Decoder::new(&codings));
    let mut decoder = decoder.transpose().map_err(|_| origin::Error::Coding)?;
    let (body, mut read) = (response.body_mut(), VecDeque::new());
    let mut until = Instant::now() + LOOKED_WITHIN;
    let known = async {
        while let Some(frame) = next(body, until).await {
            let piece = frame.as_ref().ok().and_then(Frame::data_ref).cloned();
            let is_over = piece.is_none();
            read.push_back(frame);
            let known = match piece {
                Some(piece) => match &mut decoder {
                    Some(decoder) => decoded(decoder, piece, &mut look),
                    None => look.piece(&piece),
                },
                None => None,
            };
            if known.is_some() || is_over {
                return known;
            }
            if look.is_in_list() {
                until = until.min(Instant::now() + LIST_WITHIN);
            }
        }
        None
    };
    let known = known.await;
    body.put_back(read);
    Ok(known.unwrap_or_else(|| look.end()))
}

/// Returns the next frame, if it comes in time. Most are ready, and need no timer.
async fn next(body: &mut OriginBody, until: Instant) -> Option<Result<Frame<Bytes>, hyper::Error>> {
    let mut frame = pin!(body.frame());
    let ready = poll_fn(|cx| Poll::Ready(frame.as_mut().poll(cx))).await;
    match ready {
        Poll::Ready(frame) => frame,
        Poll::Pending => tokio::time::timeout_at(until, frame).await.ok().flatten(),
    }
}

/// Decodes and searches the next piece. Content that cannot be decoded has no token.
fn decoded(decoder: &mut Decoder, piece: Bytes, look: &mut TokenLook) -> Option<bool> {
    decoder.feed(piece);
    loop {
        match decoder.step() {
            Ok(Step::Piece(piece)) => match look.piece(&piece) {
                None => {}
                known => return known,
            },
            Ok(Step::Busy) => {}
            Ok(Step::Starved | Step::End) => return None,
            Err(_) => return Some(false),
        }
    }
}

/// Whether all tokens of a response are secrets that the session was lent.
fn echoes(
    lent: Option<&Redactor>,
    answer: &TokenAnswer,
    content: &Bytes,
) -> Result<bool, credential::Error> {
    let Some(lent) = lent else { return Ok(false) };
    let scrubbed = lent.scrub_whole(content.clone())?;
    let mut tokens = answer.kinds().filter_map(|kind| answer.tokens.of(kind));
    Ok(tokens.all(|token| memchr::memmem::find(&scrubbed, token.as_bytes()).is_none()))
}

/// How long the rest of a list may take after its first element. Some lists are streams.
const LIST_WITHIN: Duration = Duration::from_millis(500);
/// How long the start of a response may take. Only what arrives by then is searched.
const LOOKED_WITHIN: Duration = Duration::from_secs(10);
