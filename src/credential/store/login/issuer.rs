//! Asks authorization servers: for new tokens (RFC 6749 §6), and to end a grant (RFC 7009).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use http::{HeaderValue, Method, Request, StatusCode, header};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde::Deserialize;
use zeroize::Zeroizing;

use super::super::StoreError;
use super::super::http::{HttpAnswer, HttpClient};
use crate::credential::login::{Issuer, RequestFormat, TokenEndpoint, Tokens};

/// Why there are no new tokens.
pub(super) enum NotRenewed {
    /// The issuer says that it renews them no more, in this word.
    Refused(&'static str),
    /// It could not be asked, or did not answer as it should.
    Failed(StoreError),
}

/// The members of an answer (RFC 6749 §5.1). A doubled one is an error.
#[derive(Deserialize)]
struct Renewed<'a> {
    #[serde(borrow)]
    access_token: Cow<'a, str>,
    #[serde(borrow, default)]
    refresh_token: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    id_token: Option<Cow<'a, str>>,
    #[serde(default)]
    expires_in: Option<Life>,
    #[serde(borrow, default)]
    scope: Option<Cow<'a, str>>,
}

/// How long a token lives, in seconds. Some say it as a text.
#[derive(Deserialize)]
#[serde(untagged)]
enum Life {
    Seconds(f64),
    Text(String),
}

/// Asks for new tokens. What the answer does not have stays as it was.
pub(super) async fn renew(
    client: &dyn HttpClient,
    issuer: &Issuer,
    before: &Tokens,
    refresh: &str,
) -> Result<Tokens, NotRenewed> {
    let mut members = vec![("grant_type", "refresh_token"), ("refresh_token", refresh)];
    members.extend(of_client(issuer));
    let endpoint = &issuer.endpoint;
    let request = request(endpoint, issuer.requests, &members).map_err(NotRenewed::Failed)?;
    let sent = client.send(&endpoint.origin, request).await;
    let answer = sent.map_err(NotRenewed::Failed)?;
    match answer.status {
        StatusCode::OK | StatusCode::CREATED => {
            let read = read(&answer.content, before);
            read.ok_or(NotRenewed::Failed(StoreError::Illegible))
        }
        status => Err(refused(status, &answer)),
    }
}

/// Ends a grant at its issuer. Returns whether the issuer said that it did.
pub(super) async fn revoke(client: &dyn HttpClient, issuer: &Issuer, tokens: &Tokens) -> bool {
    let Some(endpoint) = &issuer.revocation else {
        return false;
    };
    let (token, hint) = match &tokens.refresh {
        Some(refresh) => (refresh, "refresh_token"),
        None => (&tokens.access, "access_token"),
    };
    let mut members = vec![("token", token.as_str()), ("token_type_hint", hint)];
    members.extend(of_client(issuer));
    let Ok(request) = request(endpoint, RequestFormat::Form, &members) else {
        return false;
    };
    let answer = client.send(&endpoint.origin, request).await;
    answer.is_ok_and(|answer| answer.status.is_success())
}

fn of_client(issuer: &Issuer) -> impl Iterator<Item = (&str, &str)> {
    let id = issuer.client.as_deref().map(|id| ("client_id", id));
    let secret = issuer.client_secret.as_ref();
    let secret = secret.map(|secret| ("client_secret", secret.0.as_str()));
    id.into_iter().chain(secret)
}

fn request(
    endpoint: &TokenEndpoint,
    format: RequestFormat,
    members: &[(&str, &str)],
) -> Result<Request<Zeroizing<Vec<u8>>>, StoreError> {
    let room: usize = members
        .iter()
        .map(|(name, text)| name.len() + text.len() * 3 + 8)
        .sum();
    let mut content = Zeroizing::new(Vec::with_capacity(room));
    let kind = match format {
        RequestFormat::Form => {
            for (name, text) in members {
                let before: &[u8] = if content.is_empty() { b"" } else { b"&" };
                content.extend_from_slice(before);
                content.extend_from_slice(name.as_bytes());
                content.push(b'=');
                content.extend(utf8_percent_encode(text, NON_ALPHANUMERIC).flat_map(str::bytes));
            }
            "application/x-www-form-urlencoded"
        }
        RequestFormat::Json => {
            let members: BTreeMap<_, _> = members.iter().copied().collect();
            // Texts can be written to memory.
            let _ = serde_json::to_writer(&mut *content, &members);
            "application/json"
        }
    };
    let length = content.len();
    let mut request = Request::new(content);
    *request.method_mut() = Method::POST;
    let path = endpoint.path.parse();
    *request.uri_mut() = path.map_err(|_| StoreError::Unreachable("the path is none"))?;
    let fields = request.headers_mut();
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    fields.insert(header::CONTENT_LENGTH, length.into());
    fields.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    let agent = HeaderValue::from_static(concat!("gateway/", env!("CARGO_PKG_VERSION")));
    fields.insert(header::USER_AGENT, agent);
    Ok(request)
}

/// Reads an answer, in JSON or as a form.
fn read(content: &[u8], before: &Tokens) -> Option<Tokens> {
    let text = std::str::from_utf8(content).ok()?.trim_start();
    if text.starts_with('{') {
        return kept(serde_json::from_str(text).ok()?, before);
    }
    let mut values = BTreeMap::new();
    for pair in text.trim_end().split('&') {
        let (name, value) = pair.split_once('=')?;
        let spaced = value.replace('+', " ");
        let value = percent_decode_str(&spaced).decode_utf8().ok()?;
        if values.insert(name, value.into_owned()).is_some() {
            return None;
        }
    }
    let mut take = |name| values.remove(name).map(Cow::<str>::Owned);
    let (access_token, refresh_token) = (take("access_token")?, take("refresh_token"));
    let (id_token, scope) = (take("id_token"), take("scope"));
    let life = take("expires_in").map(|text| Life::Text(text.into_owned()));
    let renewed = Renewed {
        access_token,
        refresh_token,
        id_token,
        expires_in: life,
        scope,
    };
    kept(renewed, before)
}

/// The tokens of an answer, and those of before that it does not have.
fn kept(answer: Renewed<'_>, before: &Tokens) -> Option<Tokens> {
    let text = |new: Option<Cow<'_, str>>, old: &Option<Zeroizing<String>>| {
        let new = new.filter(|new| !new.is_empty());
        new.map_or_else(|| old.clone(), |new| Some(Zeroizing::new(new.into_owned())))
    };
    let life = answer.expires_in.and_then(|life| match life {
        Life::Seconds(seconds) => Some(seconds),
        Life::Text(text) => text.parse().ok(),
    });
    let life = life.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let ends = |life| SystemTime::now().checked_add(life);
    Some(Tokens {
        access: text(Some(answer.access_token), &None)?,
        refresh: text(answer.refresh_token, &before.refresh),
        id: text(answer.id_token, &before.id),
        expires: life.and_then(ends),
        scope: answer
            .scope
            .map(Cow::into_owned)
            .or_else(|| before.scope.clone()),
    })
}

/// An answer refuses for good if it says an error of its own (RFC 6749 §5.2) that is none of the
/// moment. Its words may hold a token, so none is shown that is not written here.
fn refused(status: StatusCode, answer: &HttpAnswer) -> NotRenewed {
    let said = std::str::from_utf8(&answer.content).unwrap_or_default();
    let is_of_error = said.contains("\"error\"") || said.contains("error=");
    let word = FINAL.iter().find(|word| said.contains(*word)).copied();
    match (status.as_u16(), word) {
        (400 | 401 | 403, Some(word)) if is_of_error => NotRenewed::Refused(word),
        (status, _) => {
            let words = "";
            NotRenewed::Failed(StoreError::Refused { status, words })
        }
    }
}

/// What issuers say of tokens that they renew no more.
const FINAL: [&str; 8] = [
    "invalid_grant",
    "refresh_token_expired",
    "refresh_token_reused",
    "refresh_token_invalidated",
    "bad_refresh_token",
    "unauthorized_client",
    "invalid_client",
    "unsupported_grant_type",
];
