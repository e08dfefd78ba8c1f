//! Where a service accepts credentials of any kind. A value there that is not a phantom is foreign.

use std::fmt;
use std::str::FromStr;

use gateway_names::word_list;
use http::HeaderName;

use super::fields::{Shapes, folded_name, is_one_of, shapes};
use super::parameter::folded_parameter;
use super::path_pattern::{PathPattern, PathPatternMalformed};

/// A place where a service accepts a credential, whether or not one of ours may go there.
///
/// Its text form is `header:deploy-token`, `query:token`, `cookie:d`, `form:token` or
/// `path:/api/webhooks/*/*`. `form` is a member of the content, which may be a form or a JSON
/// object. All except `path` may be limited to some paths:
/// `form:token@/api/v4/projects/*/trigger/pipeline`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcceptedCredential {
    /// The part of the request.
    pub part: AcceptedPart,
    /// The requests that it applies to. `None` means all.
    pub route: Option<PathPattern>,
}

/// Which part of a request contains a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AcceptedPart {
    /// A field with this name.
    Header(HeaderName),
    /// A query parameter with this name, in every reading ([`folded_parameter`]).
    Query(String),
    /// A cookie with this name.
    Cookie(String),
    /// A member of a form or of a JSON object. The name is read as for a query.
    Form(String),
    /// The path itself: every request to the route uses a credential that is not ours.
    Path,
}

/// Why a text does not name such a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AcceptedMalformed {
    /// The first word is unknown.
    #[error(
        "it is one of `header:NAME`, `query:NAME`, `cookie:NAME`, `form:NAME` (each with `@/PATH` or none) and `path:/PATH`"
    )]
    Kind,
    /// The name is empty, or has a character that is not allowed.
    #[error("it has an empty or impossible name")]
    Name,
    /// The path is malformed.
    #[error(transparent)]
    Route(#[from] PathPatternMalformed),
}

impl AcceptedCredential {
    /// Whether it applies to requests to this path.
    pub fn is_at(&self, path: &str) -> bool {
        self.route.as_ref().is_none_or(|route| route.holds(path))
    }
}

impl FromStr for AcceptedCredential {
    type Err = AcceptedMalformed;

    fn from_str(text: &str) -> Result<Self, AcceptedMalformed> {
        let (kind, rest) = text.split_once(':').ok_or(AcceptedMalformed::Kind)?;
        if kind == "path" {
            let route = Some(rest.parse()?);
            let part = AcceptedPart::Path;
            return Ok(Self { part, route });
        }
        let (name, route) = match rest.split_once("@/") {
            Some((name, path)) => (name, Some(format!("/{path}").parse()?)),
            None => (rest, None),
        };
        let plain = |b: u8| b.is_ascii_graphic() && !b"=;,@\"\\".contains(&b);
        if name.is_empty() || !name.bytes().all(plain) {
            return Err(AcceptedMalformed::Name);
        }
        let part = match kind {
            "header" => AcceptedPart::Header(name.parse().map_err(|_| AcceptedMalformed::Name)?),
            "query" => AcceptedPart::Query(folded_parameter(name)),
            "cookie" => AcceptedPart::Cookie(name.to_owned()),
            "form" => AcceptedPart::Form(folded_parameter(name)),
            _ => return Err(AcceptedMalformed::Kind),
        };
        if matches!(&part, AcceptedPart::Query(it) | AcceptedPart::Form(it) if it.is_empty()) {
            return Err(AcceptedMalformed::Name);
        }
        Ok(Self { part, route })
    }
}

impl fmt::Display for AcceptedCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, name) = match &self.part {
            AcceptedPart::Header(name) => ("header", name.as_str()),
            AcceptedPart::Query(name) => ("query", name.as_str()),
            AcceptedPart::Cookie(name) => ("cookie", name.as_str()),
            AcceptedPart::Form(name) => ("form", name.as_str()),
            AcceptedPart::Path => ("path", ""),
        };
        write!(f, "{kind}:{name}")?;
        match &self.route {
            Some(route) if self.part == AcceptedPart::Path => write!(f, "{route}"),
            Some(route) => write!(f, "@{route}"),
            None => Ok(()),
        }
    }
}

/// Whether a field's name suggests a credential, at any service.
///
/// No list of names is complete, so the last words of the name decide: `x-anything-token` suggests
/// one. Names with such an ending that are not credentials are listed.
pub fn sounds_like_credential(name: &str) -> bool {
    let start = name.bytes().rposition(|byte| !byte.is_ascii_alphanumeric());
    let last = &name[start.map_or(0, |at| at + 1)..];
    if !is_one_of(&LAST_WORDS, &LAST_SHAPES, last) && !matches!(last, "key" | "assertion" | "id") {
        return false;
    }
    let name = folded_name(name);
    let mut words = name.rsplit('-');
    let last = words.next().unwrap_or_default();
    let sounds = match last {
        "key" => KEY_WORDS.contains(&words.next().unwrap_or_default()),
        last => LAST_WORDS.contains(&last),
    };
    // AWS's own fields are judged together with the signature that covers them.
    let sounds = sounds && !name.starts_with("x-amz-") && !NO_CREDENTIALS.contains(&name.as_ref());
    sounds || CREDENTIALS.contains(&name.as_ref())
}

/// Whether a query parameter's name means a credential. `in_doubt` also counts names that mean
/// something else at some services.
pub fn is_credential_parameter(folded: &str, in_doubt: bool) -> bool {
    PARAMETERS.contains(&folded) || (in_doubt && DOUBTFUL_PARAMETERS.contains(&folded))
}

/// Finds the credential among WebSocket subprotocols. Browsers put it there because they cannot set
/// fields.
pub fn credential_protocol(protocols: &str) -> Option<&str> {
    let mut before = "";
    for protocol in protocols.split(',').map(str::trim) {
        let begins = |word: &&str| {
            let start = protocol.get(..word.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(word))
        };
        let follows = PROTOCOLS
            .iter()
            .any(|word| before.eq_ignore_ascii_case(word));
        if follows || PROTOCOL_BEGINNINGS.iter().any(begins) {
            return Some(protocol);
        }
        before = protocol;
    }
    None
}

/// A name that ends with one of these words suggests a credential.
const LAST_WORDS: [&str; 14] = word_list(
    "authorization authentication auth token tokens apikey secret password passwd passphrase jwt \
     bearer credential credentials",
);

static LAST_SHAPES: Shapes = shapes(&LAST_WORDS);

/// A name that ends with one of these words before `key` suggests a credential.
const KEY_WORDS: [&str; 14] = word_list(
    "api access app application auth account client functions license master private secret \
     service subscription",
);

/// Credentials whose names do not suggest it, and AWS fields that are accepted without a signature.
const CREDENTIALS: [&str; 5] = [
    "x-amz-security-token",
    "x-amz-s3session-token",
    "x-goog-iap-jwt-assertion",
    "x-ms-token-aad-access-token",
    "cf-access-client-id",
];

/// Names that suggest a credential but are not one: tokens against cross-site request forgery, and
/// pagination tokens.
const NO_CREDENTIALS: [&str; 12] = word_list(
    "x-csrf-token x-xsrf-token csrf-token xsrf-token x-csrftoken x-atlassian-token \
     x-ms-session-token x-ms-continuation-token continuation-token next-token page-token \
     x-next-page-token",
);

/// Names of parameters that mean a credential, folded by [`folded_parameter`].
const PARAMETERS: [&str; 26] = word_list(
    "accesskey accesstoken apikey apitoken appkey applicationkey authkey authtoken \
     awsaccesskeyid bearertoken clientassertion clientsecret googleaccessid idtoken jobtoken \
     oauthtoken personalaccesstoken privatetoken refreshtoken secretkey sessiontoken \
     subscriptionkey xamzsecuritytoken xamzsignature xapikey xgoogsignature",
);

/// Names that mean something else at some services, folded.
const DOUBTFUL_PARAMETERS: [&str; 8] =
    word_list("auth authorization jwt passwd password secret sig token");

/// Subprotocols that are followed by a credential.
const PROTOCOLS: [&str; 6] = word_list("access_token apikey authorization bearer jwt token");

/// Prefixes of subprotocols that are themselves a credential: OpenAI's, Kubernetes', AppSync's.
const PROTOCOL_BEGINNINGS: [&str; 3] = [
    "openai-insecure-api-key.",
    "base64url.bearer.authorization.",
    "header-",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_place_reads_back_what_it_writes() {
        for text in [
            "header:deploy-token",
            "query:token",
            "cookie:d",
            "form:token@/api/v4/projects/*/trigger/pipeline",
            "path:/api/webhooks/*/*",
        ] {
            assert_eq!(
                text.parse::<AcceptedCredential>().unwrap().to_string(),
                text
            );
        }
        for text in [
            "",
            "query:",
            "query:$",
            "body:x",
            "path:",
            "path:x",
            "cookie:a=b",
            "form:a@/b?c",
            "header:a b",
        ] {
            assert!(text.parse::<AcceptedCredential>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_subprotocol_that_is_a_credential_is_found() {
        for (text, found) in [
            (
                "realtime, openai-insecure-api-key.sk-x, openai-beta.realtime-v1",
                "openai-insecure-api-key.sk-x",
            ),
            (
                "v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.abc",
                "base64url.bearer.authorization.k8s.io.abc",
            ),
            ("Token, abc", "abc"),
            ("graphql-ws, header-eyJ", "header-eyJ"),
        ] {
            assert_eq!(credential_protocol(text), Some(found), "{text}");
        }
        for text in [
            "",
            "graphql-transport-ws",
            "realtime, openai-beta.realtime-v1",
        ] {
            assert_eq!(credential_protocol(text), None, "{text}");
        }
    }

    #[test]
    fn every_listed_name_ends_in_a_word_that_is_looked_for() {
        assert!(CREDENTIALS.iter().all(|name| sounds_like_credential(name)));
    }

    #[test]
    fn a_field_is_known_for_a_credential_by_its_last_words() {
        for name in [
            "authorization",
            "x-api-key",
            "api-key",
            "apikey",
            "x-vault-token",
            "deploy-token",
            "x-sentry-auth",
            "x-registry-auth",
            "dd-application-key",
            "ocp-apim-subscription-key",
            "x-ms-copy-source-authorization",
            "x_api_key",
            "x.api.key",
            "x-amz-security-token",
        ] {
            assert!(sounds_like_credential(name), "{name}");
        }
        for name in [
            "accept",
            "idempotency-key",
            "sec-websocket-key",
            "npm-auth-type",
            "x-csrf-token",
            "x-atlassian-token",
            "x-amz-bucket-object-lock-token",
            "x-stainless-lang",
            "mcp-session-id",
            "x-goog-user-project",
        ] {
            assert!(!sounds_like_credential(name), "{name}");
        }
    }
}
