//! Tokens on the path: the answers in which authorization servers issue them, and the requests to
//! renew them, which the gateway answers.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};

use super::answer;
use super::answer_body::AnswerBody;
use super::ending::Ending;
use super::exchange::Exchange;
use super::refusal::Refusal;
use crate::audit::Event;
use crate::credential::login::{AskedTokens, Login, RenewalAnswer, TokenAnswer, UnmappedToken};
use crate::credential::{self, Minting, Redactor, Verified, preset};
use crate::origin::OriginBody;
use crate::session::Session;

impl Exchange {
    /// Answers a request to renew or revoke tokens that the session holds phantoms of. Nothing of
    /// it goes out.
    pub(super) async fn own_tokens(&mut self, verified: Verified) -> Result<Verified, Ending> {
        match verified.asked().is_some() {
            // Boxed because it is large and rare.
            true => Box::pin(self.answer_tokens(verified)).await,
            false => Ok(verified),
        }
    }

    async fn answer_tokens(&mut self, mut verified: Verified) -> Result<Verified, Ending> {
        let (credentials, shared) = (&self.snapshot.credentials, &self.worker.shared);
        let Some(asked) = verified.asked() else {
            return Ok(verified);
        };
        let (session, owner) = (verified.session(), |text: &[u8]| {
            shared.sessions.owner(text)
        });
        let Some(login) = credentials.presented_login(asked, session, owner)? else {
            let rule = self.snapshot.origins.rule(&asked.endpoint.origin);
            if rule.is_some_and(|rule| rule.passes_tokens) {
                verified.pass_tokens();
            }
            return Ok(verified);
        };
        let (status, content) = if asked.revokes {
            if let Some(captures) = shared.captures.get() {
                captures.end(session, login).await;
            }
            self.note("login_ended", session, login);
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

    /// Passes on an answer that may contain new credentials, with phantoms in their places.
    pub(super) async fn minted(
        &self,
        response: Response<OriginBody>,
        lent: Option<&Redactor>,
        minting: &Minting,
    ) -> Result<Response<AnswerBody>, Refusal> {
        let credentials = &self.snapshot.credentials;
        let unread = || minting.unread();
        let minted = match minting {
            Minting::Temporary {
                session,
                parent,
                revocations,
            } => {
                let keep = async |kind: &str, content: Bytes| {
                    let of = (session, parent, revocations);
                    let content = credentials.keep(of, kind, &content)?;
                    Ok((content, lent.cloned()))
                };
                answer::minted(response, keep, unread).await
            }
            Minting::Tokens { session, asked } => {
                let keep =
                    async |kind: &str, content: Bytes| match TokenAnswer::read(kind, &content)? {
                        Some(answer) => self.captured(session, asked, (&answer, &content)).await,
                        None => Ok((content, lent.cloned())),
                    };
                answer::minted(response, keep, unread).await
            }
        };
        Ok(minted?)
    }

    async fn captured(
        &self,
        session: &Arc<Session>,
        asked: &AskedTokens,
        (answer, content): (&TokenAnswer, &[u8]),
    ) -> Result<(Bytes, Option<Redactor>), credential::Error> {
        let shared = &self.worker.shared;
        let captures = shared.captures.get().ok_or(UnmappedToken::Unkept)?;
        let mut tokens = answer.tokens.clone();
        tokens.owner = preset::owner(&asked.endpoint, content);
        let login = captures.capture(session, asked, tokens).await?;
        self.note("login_captured", session, &login);
        let current = shared.current();
        let shown = current
            .credentials
            .shown(session, &login, (answer, content));
        shown.await
    }

    /// Records what became of a login.
    fn note(&self, name: &'static str, session: &Session, login: &Login) {
        let recorded = self.worker.shared.log.event(Event {
            name,
            session: Some(session.id()),
            subject: login.name.as_str().as_bytes(),
            reason: None,
            count: 1,
        });
        if let Err(error) = recorded {
            tracing::error!(%error, "what became of a login was not recorded");
        }
    }
}
