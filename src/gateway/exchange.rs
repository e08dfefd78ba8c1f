//! The path of one request: the first file to open.

use std::sync::Arc;
use std::time::SystemTime;

use http::{Request, Response};
use hyper::body::Incoming;

use super::Worker;
use super::answer::{self, AnswerBody};
use super::clock;
use super::live::{Connection, Watched};
use super::manner::Manner;
use super::refusal::Refusal;
use super::upgrade;
use crate::audit::{Decision, End, Length, Outcome, Phase, Trail};
use crate::body::RecodeFault;
use crate::credential::Lent;
use crate::intercept::strict::Violations;
use crate::intercept::{Accepted, Arrival, Rejected};
use crate::message::{EncodedSlash, Reading};

impl Worker {
    /// Answers one request, whatever happens: with the origin's answer, or with a refusal. Either
    /// is in the audit log before it is given.
    pub(super) async fn respond(
        self: Arc<Self>,
        arrival: Arc<Arrival>,
        connection: &Arc<Connection>,
        request: Request<Incoming>,
        refusal: Option<Refusal>,
        violations: Option<&Violations>,
    ) -> Response<AnswerBody> {
        let watched = self.live.watch(connection);
        let mut trail = Trail::begin(
            &self.shared.log,
            self.shared.ids.next(),
            arrival.entry.as_str(),
        );
        let version = request.version();
        // What the client says, for the person who reads what was refused; it decides nothing.
        let unnamed = arrival.said_host().is_empty();
        let said = if unnamed {
            request.uri().host().map(str::to_owned)
        } else {
            None
        };
        let connection_of = arrival.clone();
        trail.protocol(version);
        let mut refusal = refusal;
        let mut manner = None;
        if let Some(session) = self.shared.sessions.get(&arrival.session) {
            match session.exchange(self.shared.limits.exchanges_per_session) {
                Some(underway) => watched.holds(underway),
                None => refusal = Some(Refusal::Busy),
            }
            trail.session(&arrival.session, session);
            if let Err(over) = trail.admit() {
                refusal = Some(Refusal::Audit(over));
            }
        }
        let result = match refusal {
            Some(refusal) => Err(refusal),
            None => {
                tokio::select! {
                    biased;
                    result = self.exchange(arrival, request, &watched, &mut trail, &mut manner) => result,
                    cut = std::future::poll_fn(|cx| watched.poll_cut(cx)) => Err(Refusal::Cut(cut)),
                }
            }
        };
        let refusal = match result {
            Ok(mut response) => {
                let length = match response.status() {
                    http::StatusCode::SWITCHING_PROTOCOLS => Length::Switched,
                    _ => response.body().length(),
                };
                match trail.answer(response.status().as_u16(), length).await {
                    Ok(()) if length == Length::Switched => {
                        watched.ends_with_it(trail);
                        return response;
                    }
                    Ok(()) => {
                        response.body_mut().settle(trail, watched);
                        return response;
                    }
                    Err(error) => Refusal::Audit(error),
                }
            }
            Err(refusal) => blamed(refusal, violations),
        };
        let host = said.as_deref().unwrap_or(connection_of.said_host());
        self.shared
            .refused
            .count(host, refusal.reason(), trail.id());
        Box::pin(refuse(refusal, version, trail, manner)).await
    }

    /// The path, a line a stage: what one stage gives is what the next one takes, and nothing else
    /// can be had by it.
    async fn exchange(
        self: &Arc<Self>,
        arrival: Arc<Arrival>,
        request: Request<Incoming>,
        watched: &Arc<Watched>,
        trail: &mut Trail,
        manner: &mut Option<Manner>,
    ) -> Result<Response<AnswerBody>, Refusal> {
        let accepted = self.accept(arrival, request, watched, trail)?;
        *manner = self.manner(&accepted);
        let identified = self.shared.sessions.identify(accepted)?;
        trail.reach(Phase::Identify);
        let authorized = match self.shared.policies.authorize(identified) {
            Ok(authorized) => authorized,
            Err(denied) => {
                trail.reach(Phase::Authorize);
                trail.decide(
                    Decision::Deny,
                    &denied.verdict.policies,
                    denied.verdict.generation,
                );
                return Err(denied.into());
            }
        };
        trail.reach(Phase::Authorize);
        let verdict = authorized.verdict();
        trail.decide(Decision::Allow, &verdict.policies, verdict.generation);
        watched.authorized_under(verdict.generation);
        let verified = self.shared.credentials.verify(authorized).await?;
        trail.reserve()?;
        let channel = self.origins.open(&verified).await?;
        trail.reach(Phase::Open);
        trail.dialled(channel.remote(), channel.version());
        let mut credentialed = self.shared.credentials.attach(verified).await?;
        for (credential, place) in credentialed.lent_to() {
            trail.lend(credential, place);
        }
        trail.reach(Phase::Attach);
        let (lent, method, upgrade) = credentialed.for_the_answer();
        let minting = credentialed.minting();
        let decoding = credentialed.decoding();
        let forwarded = channel.forward(credentialed).await?;
        trail.origin_answered(forwarded.status().as_u16());
        let (response, switched) = forwarded.into_parts();
        if lent.as_ref().is_some_and(Lent::is_signed) {
            clock::watch(response.status(), response.headers(), SystemTime::now());
        }
        let lent = match lent {
            Some(lent)
                if response.status().is_client_error() || response.status().is_server_error() =>
            {
                Some(lent.of_failure())
            }
            lent => lent,
        };
        if let Some(minting) = minting.filter(|_| response.status().is_success()) {
            let keep =
                |kind: &str, content: &[u8]| self.shared.credentials.keep(&minting, kind, content);
            // Boxed, so that the usual exchange does not carry room for it.
            return Ok(Box::pin(answer::minted(response, lent.as_ref(), keep)).await?);
        }
        let response = answer::clean(response, &method, lent.as_ref(), decoding)?;
        match (upgrade, switched) {
            (Some(upgrade), Some(switched)) => {
                upgrade::switch(response, *upgrade, switched, lent, watched.clone())
            }
            (None, Some(_)) => Err(crate::origin::Error::BadUpgrade.into()),
            // RFC 8441 §5: to an extended CONNECT any 2xx says that the stream is open, and it is
            // not.
            (Some(upgrade), None) if upgrade.accept.is_none() && response.status().is_success() => {
                Err(crate::origin::Error::BadUpgrade.into())
            }
            (_, None) => Ok(response),
        }
    }

    /// How the client expects to be told of an error, where a credential signs for the origin.
    fn manner(&self, accepted: &Accepted) -> Option<Manner> {
        let head = accepted.head();
        let paths = self
            .shared
            .credentials
            .bindings()
            .signed_paths(&head.origin)?;
        Some(Manner::of(paths == EncodedSlash::Key, head))
    }

    fn accept(
        &self,
        arrival: Arc<Arrival>,
        request: Request<Incoming>,
        watched: &Watched,
        trail: &mut Trail,
    ) -> Result<Accepted, Rejected> {
        trail.method(request.method().as_str());
        trail.scheme(arrival.scheme.as_str());
        let rules = &self.shared.origin_settings;
        let bindings = self.shared.credentials.bindings();
        let accepted =
            Accepted::read(arrival, request, watched.meter.clone(), |origin, signed| {
                let signed = signed.then(|| bindings.signed_paths(origin)).flatten();
                let rule = rules.rule(origin).map(|index| &rules.rules[index]);
                let kept = match rule {
                    Some(rule) if rule.encoded_slash => EncodedSlash::Keep,
                    _ => EncodedSlash::Refuse,
                };
                Reading {
                    slashes: signed.unwrap_or(kept),
                    underscores: rule.is_some_and(|rule| rule.underscores),
                }
            })?;
        let head = accepted.head();
        trail.authority(
            head.origin.authority.host.as_str(),
            head.origin.authority.port,
        );
        trail.path(head.target.path());
        trail.query(head.target.query().unwrap_or_default());
        if let Some(bytes) = accepted.content_length() {
            trail.request_bytes(bytes);
        }
        Ok(accepted)
    }
}

/// Where the client's own content was malformed, or is not what was signed, the request to the
/// origin broke off for that, and the origin is not to blame.
fn blamed(refusal: Refusal, violations: Option<&Violations>) -> Refusal {
    match (&refusal, violations.and_then(Violations::in_content)) {
        (Refusal::Origin(_), Some(malformed)) => Rejected::Wire(malformed).into(),
        (Refusal::Origin(error), None) => match RecodeFault::behind(error) {
            Some(fault) => Refusal::Content(fault.clone()),
            None => refusal,
        },
        _ => refusal,
    }
}

/// An error with its causes, in one line; none of them holds text of the request's, the origin's or
/// a secret.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

const END_OF_OUR_OWN: End = End {
    outcome: Outcome::Whole,
    reason: None,
    request_bytes: None,
    response_bytes: None,
    scrubbed: 0,
};

/// Records the refusal, then gives it.
async fn refuse(
    refusal: Refusal,
    version: http::Version,
    mut trail: Trail,
    manner: Option<Manner>,
) -> Response<AnswerBody> {
    let id = trail.id();
    trail.refuse(refusal.reason(), refusal.blame());
    let (status, fields, content) = refusal.answer(id, version, manner);
    if let Refusal::Origin(error) = &refusal {
        tracing::info!(exchange = %id, cause = %chain(error), "an origin failed");
    }
    if let Refusal::Credential(error) = &refusal
        && refusal.status().is_server_error()
    {
        tracing::warn!(exchange = %id, cause = %chain(error), "a credential could not be lent");
    }
    let recorded = trail
        .answer(status.as_u16(), Length::Known(content.len() as u64))
        .await;
    // What follows is a few bytes of our own: whether the client still reads them is not worth a
    // second record.
    if let Err(error) = recorded.and_then(|()| trail.end(END_OF_OUR_OWN)) {
        // A refusal lets nothing through, so it is given even where it cannot be recorded; the
        // trail counts the loss.
        tracing::error!(exchange = %id, %error, "a refusal was not recorded");
    }
    let mut response = Response::new(AnswerBody::own(content));
    *response.status_mut() = status;
    *response.headers_mut() = fields;
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::{Log, Sync};
    use crate::names::ExchangeId;

    #[test]
    fn a_refusal_is_one_record() {
        let (log, memory) = Log::memory(Sync::Batch).unwrap();
        let trail = Trail::begin(&log, ExchangeId::from_bytes([7; 10]), "connect");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let refused = refuse(Refusal::Busy, http::Version::HTTP_11, trail, None);
        drop(runtime.block_on(refused));
        let kinds: Vec<String> = memory
            .records()
            .into_iter()
            .map(|record| record.kind)
            .collect();
        assert_eq!(kinds, ["start", "exchange"]);
    }
}
