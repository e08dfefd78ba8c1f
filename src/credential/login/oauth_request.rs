//! Finds requests for tokens before they are sent, and the tokens that they present.

use std::sync::Arc;

use bytes::Bytes;
use gateway_body::fact::PlainContent;
use gateway_body::{FormFault, FormKind, HeldBody, Limit};
use gateway_message::pairs::decoded;
use gateway_message::{Origin, RequestHead, RequestTarget, folded_parameter};
use gateway_names::SessionId;
use gateway_policy::Authorized;
use gateway_session::{CredentialRefusal, RequestPart, Revoked, Session};
use http::{HeaderMap, header};
use http_body::Body as _;
use serde_json::{Map, Value, json};

use super::known::{EndpointUse, KnownLogin, LoginHolder};
use super::token_answer::TokenTarget;
use super::token_request::{TokenRequest, seems_to_name_a_grant};
use super::{Issuer, Login, TokenEndpoint, TokenKind};
use crate::credentials::Credentials;
use crate::error::Error;

/// A request for tokens, or for their revocation.
pub struct OAuthRequest {
    /// The endpoint that it is sent to.
    pub endpoint: TokenEndpoint,
    /// The parameters of the request.
    pub request: TokenRequest,
    /// The logins with this endpoint that its session has or may make.
    pub known: Vec<Arc<KnownLogin>>,
    /// Whether it asks for the revocation of a token.
    pub revokes: bool,
    /// The target that its response names for the token.
    pub target: Option<TokenTarget>,
    /// Whether tokens were seen in its response, whatever it asked for.
    pub is_seen: bool,
}

/// The gateway's own response to a workload that renews tokens.
pub enum RenewalAnswer {
    /// The phantoms, as the members of an object.
    Renewed(Bytes),
    /// The login has ended. A new one is needed.
    Over(Bytes),
}

impl OAuthRequest {
    /// Describes a request that did not ask for tokens and got some: its query may name the
    /// resource that they are for.
    pub fn unasked(origin: &Origin, target: &RequestTarget) -> Self {
        let query = target.query().unwrap_or_default();
        let request = TokenRequest::read((&HeaderMap::new(), query), &Default::default(), true);
        Self {
            endpoint: TokenEndpoint {
                origin: origin.clone(),
                path: target.path().to_owned(),
            },
            request: request.ok().flatten().unwrap_or_default(),
            known: Vec::new(),
            revokes: false,
            target: None,
            is_seen: true,
        }
    }

    /// Whether the request is known to ask for tokens.
    pub fn names_a_grant(&self) -> bool {
        self.request.grant.is_some() || !self.known.is_empty()
    }

    /// Whether the request comes from an issuer's client, as far as both name one.
    pub fn is_by(&self, issuer: &Issuer) -> bool {
        let own = issuer.client.as_deref().zip(self.request.client.as_deref());
        own.is_none_or(|(own, client)| own == client)
    }

    /// Returns the logins that the request may concern: those of its client.
    pub fn logins(&self) -> impl Iterator<Item = &KnownLogin> {
        let known = self.known.iter().map(Arc::as_ref);
        known.filter(|known| {
            known
                .login
                .issuer
                .as_ref()
                .is_none_or(|one| self.is_by(one))
        })
    }
}

impl Credentials {
    /// Whether a request could be one for tokens, judging by its head.
    pub(crate) fn may_ask_for_tokens(&self, authorized: &Authorized) -> bool {
        let head = authorized.head();
        self.logins().are_at(&head.origin.authority.host)
            || head.target.query().is_some_and(may_name_a_grant)
            || is_read(authorized)
    }

    /// Reads a request that could ask for tokens, in any form that a common reader accepts. Content
    /// is held if it is short, or if it goes to a known endpoint.
    ///
    /// # Errors
    /// [`Error::Misplaced`] if servers could disagree about what it asks for, and [`Error::Held`].
    pub(crate) async fn asked(
        &self,
        authorized: Authorized,
    ) -> Result<(Authorized, Option<Box<OAuthRequest>>), Error> {
        let head = authorized.head();
        let endpoint = TokenEndpoint {
            origin: head.origin.clone(),
            path: head.target.path().to_owned(),
        };
        let known = self.logins().of(&endpoint, authorized.session().id());
        let budget = authorized.session().part_of(&self.holding().budget).clone();
        let is_read = is_read(&authorized);
        let authorized = match known {
            Some(_) => authorized.holding(LONGEST, &budget).await,
            None if is_read => authorized.holding_if_short(LONGEST, &budget).await,
            None => Ok(authorized),
        };
        let authorized = authorized.map_err(Error::Held)?;
        let head = authorized.head();
        let unreadable = |why| Error::Misplaced(CredentialRefusal::Unreadable { why });
        let held = authorized.content().held();
        let held = held.filter(|_| is_read || known.is_some());
        let content = PlainContent {
            bytes: held.map(HeldBody::whole).unwrap_or_default(),
            ..PlainContent::default()
        };
        let query = head.target.query().unwrap_or_default();
        let said = (&head.fields, query);
        let request = match TokenRequest::read(said, &content, known.is_some()) {
            Ok(Some(request)) => request,
            Ok(None) => return Ok((authorized, None)),
            Err(why) if known.is_some() || why == FormFault::Twice && is_form(&head.fields) => {
                return Err(unreadable(why));
            }
            // The response is read all the same: a server may understand what the gateway does not.
            Err(why) if may_hide_a_grant(head, why, &content.bytes) => TokenRequest::default(),
            Err(_) => return Ok((authorized, None)),
        };
        let (what, known) = known.unwrap_or((EndpointUse::Issues, Vec::new()));
        let asked = OAuthRequest {
            endpoint,
            request,
            known,
            revokes: what == EndpointUse::Revokes,
            target: None,
            is_seen: false,
        };
        Ok((authorized, Some(Box::new(asked))))
    }

    /// Returns the login of the session whose phantom a request for tokens presents, if any.
    /// `owner` returns the session of any phantom.
    ///
    /// # Errors
    /// [`Error::Misplaced`] if the phantom is not for this endpoint or client, or belongs to
    /// another session.
    pub fn presented_login<'a>(
        &self,
        asked: &'a OAuthRequest,
        session: &Session,
        owner: impl Fn(&[u8]) -> Option<SessionId>,
    ) -> Result<Option<&'a Login>, Error> {
        let Some(text) = asked.request.presented.as_deref() else {
            return Ok(None);
        };
        let (phantoms, part) = (session.phantoms(), RequestPart::Content);
        let refused = |why| Err(Error::Misplaced(why));
        let mut retired = phantoms.retired().iter();
        if let Some(one) = retired.find(|one| one.reveal() == text) {
            let credential = one.credential().clone();
            return refused(CredentialRefusal::Removed { credential, part });
        }
        let Some(phantom) = phantoms.all().iter().find(|one| one.reveal() == text) else {
            return match owner(text.as_bytes()) {
                Some(owner) => refused(CredentialRefusal::ForeignSession { owner, part }),
                None => Ok(None),
            };
        };
        let credential = phantom.credential();
        let kinds = if asked.revokes {
            &[TokenKind::Access, TokenKind::Refresh][..]
        } else {
            &[TokenKind::Refresh]
        };
        let mut logins = asked
            .logins()
            .filter(|one| one.holder != LoginHolder::Nobody);
        let is_of = |known: &&KnownLogin| {
            let mut names = kinds.iter().map(|kind| known.login.credential(*kind));
            names.any(|name| name == *credential)
        };
        match logins.find(is_of) {
            Some(known) => Ok(Some(&known.login)),
            None => refused(CredentialRefusal::OutOfScope {
                credential: credential.clone(),
                part,
            }),
        }
    }

    /// Answers a request to renew a login's tokens with the session's phantoms, once there is an
    /// access token that is valid and that its service has not refused.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if there is none now, or [`Error::Revoked`].
    pub async fn renewed(
        &self,
        session: &Session,
        login: &Login,
        camel_case: bool,
    ) -> Result<RenewalAnswer, Error> {
        let name = login.credential(TokenKind::Access);
        let index = self.bindings().index_of(&name).ok_or(Error::Unknown)?;
        if self.revoked().any(|revoked| *revoked == name) {
            return Err(Revoked.into());
        }
        let logins = self.stores().logins();
        let replaced = logins.replace_refused(session.id(), &login.name).await;
        let leased = match replaced {
            Ok(()) => self.lease(session.id(), index).await.map(drop),
            Err(cause) => Err(self.unavailable(index, cause)),
        };
        match leased {
            Ok(()) => {}
            Err(Error::Unavailable(why)) if why.cause.is_final() => {
                let told = format!(
                    "The login `{name}` has ended. Log in again, or ask your user to do so."
                );
                let answer = json!({ "error": "invalid_grant", "error_description": told });
                return Ok(RenewalAnswer::Over(answer.to_string().into()));
            }
            Err(why) => return Err(why),
        }
        let (phantoms, mut answer) = (session.phantoms(), Map::new());
        let mut add = |snake: &str, camel: &str, value: Value| {
            let name = if camel_case { camel } else { snake };
            answer.insert(name.to_owned(), value);
        };
        for kind in TokenKind::ALL {
            let phantom = phantoms.of(&login.credential(kind));
            let (snake, camel) = match kind {
                TokenKind::Access => ("access_token", "accessToken"),
                TokenKind::Refresh => ("refresh_token", "refreshToken"),
                TokenKind::Id => ("id_token", "idToken"),
            };
            if let Some(phantom) = phantom {
                add(snake, camel, phantom.reveal().into());
            }
        }
        add("token_type", "tokenType", "Bearer".into());
        add("expires_in", "expiresIn", SHOWN_LIFE.into());
        if let Some(scope) = logins.scope(session.id(), &login.name).await {
            add("scope", "scope", scope.into());
        }
        Ok(RenewalAnswer::Renewed(
            Value::Object(answer).to_string().into(),
        ))
    }
}

/// Whether content that cannot be read may ask for tokens: it is coded, or in a charset of wide
/// characters, or contains the name.
fn may_hide_a_grant(head: &RequestHead, why: FormFault, content: &[u8]) -> bool {
    why == FormFault::Coded
        || content.contains(&0)
        || may_name_a_grant(&String::from_utf8_lossy(content))
        || head.target.query().is_some_and(may_name_a_grant)
}

/// Whether the name of a grant is in a text, in any spelling, including after a NUL and in JSON
/// escapes.
fn may_name_a_grant(text: &str) -> bool {
    if !seems_to_name_a_grant(text.as_bytes()) {
        return false;
    }
    let text = unescaped(&decoded(text.as_bytes(), b' ').text).replace('\0', " ");
    memchr::memmem::find(folded_parameter(&text).as_bytes(), b"granttype").is_some()
}

/// Replaces the escapes `\uXXXX` of a text by their letters.
fn unescaped(text: &str) -> String {
    let mut pieces = text.split("\\u");
    let mut whole = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let code = piece
            .get(..4)
            .and_then(|code| u32::from_str_radix(code, 16).ok());
        match code.and_then(char::from_u32) {
            Some(letter) => whole.extend([letter].into_iter().chain(piece[4..].chars())),
            None => whole.push_str(piece),
        }
    }
    whole
}

/// Whether the content of a request to any server is read: a short form, or other content of known
/// length that a reader may take for one. Content of unknown length may be a conversation.
fn is_read(authorized: &Authorized) -> bool {
    let (fields, content) = (&authorized.head().fields, authorized.content());
    let length = content.size_hint();
    let is_short = !LONGEST.is_passed_by(length.lower());
    let is_whole = is_form(fields) || length.upper().is_some();
    is_short && is_whole && !content.is_empty() && !matches!(FormKind::of(fields), Ok(None))
}

fn is_form(fields: &HeaderMap) -> bool {
    let kind = fields.get(header::CONTENT_TYPE);
    kind.is_some_and(|kind| {
        let kind = kind.as_bytes();
        kind.len() >= FORM.len() && kind[..FORM.len()].eq_ignore_ascii_case(FORM)
    })
}

const FORM: &[u8] = b"application/x-www-form-urlencoded";
/// The longest request for tokens.
const LONGEST: Limit = Limit::kib(64);
/// The lifetime of its phantoms that the workload is shown, in seconds.
const SHOWN_LIFE: u32 = 3600;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_grant_is_found_in_what_the_strict_reader_refuses() {
        for text in [
            "a=%00&grant_type=client_credentials",
            r#"{"grant\u005ftype":"x","x":1,"x":1}"#,
            r#"{"a":"%00","grant_type":"x","x":1,"x":1}"#,
            "a=\0&Grant%5FType=x",
            r"\u0067rantType",
            r#"{"gr_ant-t.yPe":"x"}"#,
        ] {
            assert!(may_name_a_grant(text), "{text}");
            assert!(seems_to_name_a_grant(text.as_bytes()), "{text}");
        }
        for text in ["a=1&type=x", r"\u00", r"\u", "grant", "\\u00e9"] {
            assert!(!may_name_a_grant(text), "{text}");
        }
    }
}
