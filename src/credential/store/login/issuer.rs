//! Requests new tokens (RFC 6749) and the end of a grant (RFC 7009) from authorization servers.

use std::sync::Arc;
use std::time::SystemTime;

use gateway_message::{Host, Origin};
use http::Request;
use zeroize::Zeroizing;

use super::super::http::{HttpAnswer, HttpClient};
use super::super::{CachedSecret, SecretRef, SecretSource, StoreError};
use crate::login::{Issuer, IssuerSecrets, RequestMembers, TokenEndpoint, Tokens};

/// Why there are no new tokens.
pub(in super::super) enum RenewFault {
    /// The issuer no longer renews the tokens, and responds with this error code.
    Refused(&'static str),
    /// It accepts no requests now; until when, if it says so.
    Busy(Host, Option<SystemTime>),
    /// It could not be reached, or its response was not valid.
    Failed(StoreError),
}

/// The clients and secrets for requests to the issuers of logins.
#[derive(Default, Clone)]
pub(in super::super) struct IssuerClients {
    /// The client for each of their servers.
    pub(in super::super) clients: Vec<(Origin, Arc<dyn HttpClient>)>,
    /// The secrets for the requests: those of clients, and keys.
    pub(in super::super) secrets: Vec<SecretSource>,
}

impl IssuerClients {
    /// Returns the client for a server.
    pub(super) fn client(&self, server: &Origin) -> Option<&Arc<dyn HttpClient>> {
        let mut known = self.clients.iter().filter(|(known, _)| known == server);
        known.next().map(|(_, client)| client)
    }

    /// Requests new tokens with a refresh token. Members missing in the response stay unchanged.
    pub(super) async fn renew(
        &self,
        issuer: &Issuer,
        before: &Tokens,
        refresh: &Zeroizing<String>,
    ) -> Result<Tokens, RenewFault> {
        let kind = Zeroizing::new("refresh_token".to_owned());
        let mut members = vec![("grant_type", kind), ("refresh_token", refresh.clone())];
        members.extend(issuer.scope());
        let request = self.request(issuer, &issuer.endpoint, members).await?;
        let answer = self.send(&issuer.endpoint, request).await?;
        let tokens = Tokens::of_answer(&answer.content, Some(before));
        tokens.ok_or(RenewFault::Failed(StoreError::Illegible))
    }

    /// Requests tokens with a key or a client's secret alone.
    pub(in super::super) async fn make(&self, issuer: &Issuer) -> Result<Tokens, RenewFault> {
        let client = self.secret(issuer.kept_secret()).await?;
        let key = self.secret(issuer.grant.key()).await?;
        let secrets = IssuerSecrets {
            client: client.as_ref().map(|read| &*read.secret),
            key: key.as_ref().map(|read| &*read.secret),
        };
        let request = issuer.request(secrets, SystemTime::now());
        let request = request.ok_or(RenewFault::Failed(UNMADE))?;
        let answer = self.send(&issuer.endpoint, request).await?;
        let tokens = Tokens::of_answer(&answer.content, None);
        tokens.ok_or(RenewFault::Failed(StoreError::Illegible))
    }

    /// Ends a grant at its issuer. Returns whether the issuer confirmed it.
    pub(super) async fn revoke(&self, issuer: &Issuer, tokens: &Tokens) -> bool {
        let Some(at) = &issuer.revocation else {
            return false;
        };
        let (token, hint) = match &tokens.refresh {
            Some(refresh) => (refresh, "refresh_token"),
            None => (&tokens.access, "access_token"),
        };
        let hint = Zeroizing::new(hint.to_owned());
        let members = vec![("token", token.clone()), ("token_type_hint", hint)];
        match self.request(issuer, at, members).await {
            Ok(request) => self.send(at, request).await.is_ok(),
            Err(_) => false,
        }
    }

    async fn request(
        &self,
        issuer: &Issuer,
        at: &TokenEndpoint,
        members: RequestMembers<'_>,
    ) -> Result<TokenCall, RenewFault> {
        let secret = self.secret(issuer.kept_secret()).await?;
        let request = issuer.asked(at, members, secret.as_ref().map(|read| &*read.secret));
        request.ok_or(RenewFault::Failed(UNMADE))
    }

    async fn secret(&self, from: Option<&SecretRef>) -> Result<Option<CachedSecret>, RenewFault> {
        let Some(from) = from else {
            return Ok(None);
        };
        let source = self
            .secrets
            .iter()
            .find(|source| source.reference() == from);
        let source = source.ok_or(RenewFault::Failed(StoreError::Absent))?;
        let read = source.resolve(None).await;
        read.map(Some).map_err(|why| RenewFault::Failed(why.cause))
    }

    async fn send(&self, at: &TokenEndpoint, request: TokenCall) -> Result<HttpAnswer, RenewFault> {
        let client = self.client(&at.origin);
        let client = client.ok_or(RenewFault::Failed(StoreError::Unreachable(UNKNOWN)))?;
        let sent = client.send(&at.origin, request).await;
        let answer = sent.map_err(RenewFault::Failed)?;
        if answer.status.is_success() {
            Ok(answer)
        } else {
            Err(refused(&at.origin.authority.host, &answer))
        }
    }
}

type TokenCall = Request<Zeroizing<Vec<u8>>>;

/// A response refuses for good if it has a final error code of RFC 6749 §5.2. Its text may hold a
/// token, so only the codes listed here are shown.
fn refused(host: &Host, answer: &HttpAnswer) -> RenewFault {
    let said = std::str::from_utf8(&answer.content).unwrap_or_default();
    let is_of_error = said.contains("\"error\"") || said.contains("error=");
    let word = FINAL.iter().find(|word| said.contains(*word)).copied();
    match (answer.status.as_u16(), word) {
        (400 | 401 | 403, Some(word)) if is_of_error => RenewFault::Refused(word),
        (403 | 429 | 503, _) => RenewFault::Busy(host.clone(), answer.retry_after),
        (status, _) => {
            let words = "";
            RenewFault::Failed(StoreError::Refused { status, words })
        }
    }
}

const UNMADE: StoreError = StoreError::Unreachable("its request cannot be made");
const UNKNOWN: &str = "the server of the issuer is none of the configuration";
/// What issuers say of tokens that they renew no more.
const FINAL: [&str; 8] = gateway_names::word_list(
    "invalid_grant refresh_token_expired refresh_token_reused refresh_token_invalidated \
     bad_refresh_token unauthorized_client invalid_client unsupported_grant_type",
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_json_or_a_form_and_names_no_member_twice() {
        let before = Tokens {
            refresh: Some("OLD".to_owned().into()),
            ..Tokens::default()
        };
        for (answer, shown) in [
            (
                r#"{"access_token":"A","expires_in":60}"#,
                Some(("A", "OLD", true)),
            ),
            (
                r#" {"access_token":"A","refresh_token":"N","x":{}}"#,
                Some(("A", "N", false)),
            ),
            (
                "access_token=A%2F+b&refresh_token=N&expires_in=60",
                Some(("A/ b", "N", true)),
            ),
            (r#"{"access_token":"A","access_token":"B"}"#, None),
            ("access_token=A&access_token=B", None),
            (
                r#"{"token":"A\/B","expires_at":"1970-01-01T01:00:00Z"}"#,
                Some(("A/B", "OLD", true)),
            ),
            (r#"{"token":"a","token":"b"}"#, None),
            (r#"{"access_token":""}"#, None),
            (r#"{"access_token":"A"#, None),
            ("<html>", None),
        ] {
            let read = Tokens::of_answer(answer.as_bytes(), Some(&before));
            let read = read.as_ref().map(|tokens| {
                let refresh = tokens.refresh.as_ref().unwrap();
                (
                    tokens.access.as_str(),
                    refresh.as_str(),
                    tokens.expires.is_some(),
                )
            });
            assert_eq!(read, shown, "{answer}");
        }
    }

    #[test]
    fn an_issuer_refuses_for_good_in_words_that_are_known() {
        let host = Host::parse(b"issuer.test").unwrap();
        for (status, content, word) in [
            (400, r#"{"error":"invalid_grant"}"#, Some("invalid_grant")),
            (
                401,
                r#"{"error":{"code":"refresh_token_reused"}}"#,
                Some("refresh_token_reused"),
            ),
            (400, r#"{"error":"temporarily_unavailable"}"#, None),
            (503, r#"{"error":"invalid_grant"}"#, None),
            (403, "<html>blocked</html>", None),
        ] {
            let answer = HttpAnswer {
                status: http::StatusCode::from_u16(status).unwrap(),
                location: None,
                retry_after: None,
                content: Zeroizing::new(content.as_bytes().to_vec()),
            };
            match refused(&host, &answer) {
                RenewFault::Refused(said) => assert_eq!(Some(said), word, "{content}"),
                RenewFault::Busy(..) | RenewFault::Failed(_) => assert_eq!(word, None, "{content}"),
            }
        }
    }
}
