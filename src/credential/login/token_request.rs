//! Reads a request to an authorization server.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gateway_body::fact::PlainContent;
use gateway_body::{Document, FormFault, FormKind, Questions};
use gateway_message::folded_parameters;
use gateway_message::json::begins_as_json;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use percent_encoding::percent_decode_str;
use zeroize::Zeroizing;

/// A request to a token endpoint (RFC 6749 §3.2) or a revocation endpoint (RFC 7009), as JSON, as a
/// form of either kind, or in the query.
#[derive(Default)]
pub struct TokenRequest {
    /// The grant by which tokens are requested.
    pub grant: Option<String>,
    /// The client that they are for.
    pub client: Option<String>,
    /// The resource that the tokens are for: a `resource` (RFC 8707), the `service` of a Docker
    /// registry, or the resource whose `/.default` scope is requested.
    pub resource: Option<String>,
    /// The refresh token to renew by, or the token to revoke.
    pub presented: Option<Zeroizing<String>>,
    /// The client's secret, if the request presents it.
    pub secret: Option<Zeroizing<String>>,
    /// Whether the request is JSON.
    pub is_json: bool,
    /// Whether its members are written like `refreshToken`.
    pub camel_case: bool,
}

impl TokenRequest {
    /// Reads a request from its fields, its query and its content.
    ///
    /// Members in other spellings count too, because some reader may accept them.
    ///
    /// `None` if it names no grant, unless its endpoint `is_known`.
    ///
    /// # Errors
    /// [`FormFault`] if readers could disagree about the request, or it cannot be read.
    pub fn read(
        (fields, query): (&HeaderMap, &str),
        content: &PlainContent,
        is_known: bool,
    ) -> Result<Option<Self>, FormFault> {
        let kind = FormKind::of(fields)?;
        let in_none = |all: [&[u8]; 2]| !all.into_iter().any(seems_to_name_a_grant);
        if !is_known && kind != Some(FormKind::Parts) && in_none([query.as_bytes(), &content.bytes])
        {
            return Ok(None);
        }
        let is_asked = |name: &str| {
            let names = folded_parameters(name);
            names.iter().any(|name| MEMBERS.contains(&&**name))
        };
        let mut questions = Questions::default();
        questions.members(&is_asked);
        let document = Document::read(fields, query, content, &questions);
        let mut members = document.members()?;
        members.extend(document.query_members());
        let values = |wanted: &str| {
            let named = members.iter().filter(|one| is_named(&one.name, wanted));
            named.map(|one| one.value.as_deref()).collect::<Vec<_>>()
        };
        let one = |wanted: &str| match values(wanted)[..] {
            [] => Ok(None),
            [Some(text)] => Ok(Some(text.to_owned()).filter(|text| !text.is_empty())),
            _ => Err(FormFault::Twice),
        };
        let grant = one("granttype")?;
        if grant.is_none() && !is_known {
            return Ok(None);
        }
        let first = |wanted: &str| values(wanted).into_iter().next().flatten();
        // Microsoft Entra ID: all scopes of a resource.
        let of_scope = first("scope").and_then(|scope| {
            let mut each = scope.split(' ').filter(|one| one.starts_with("https://"));
            each.find_map(|one| one.strip_suffix("/.default"))
        });
        let presented = one("refreshtoken")?.or(one("token")?);
        let (mut client, mut secret) = (one("clientid")?, one("clientsecret")?.map(Zeroizing::new));
        if let Some((id, text)) = basic(fields) {
            client.get_or_insert(id);
            secret.get_or_insert(text);
        }
        Ok(Some(Self {
            grant,
            client,
            secret,
            is_json: kind == Some(FormKind::Json) || begins_as_json(&content.bytes),
            resource: first("resource")
                .map(str::to_owned)
                .or(one("service")?.map(|service| of_registry(&service, &values("scope"))))
                .or(of_scope.map(str::to_owned)),
            presented: presented.map(Zeroizing::new),
            camel_case: members
                .iter()
                .any(|one| one.name.bytes().any(|byte| byte.is_ascii_uppercase())),
        }))
    }
}

/// Names a registry and the scope of a token: a registry issues one for each repository.
fn of_registry(service: &str, scopes: &[Option<&str>]) -> String {
    let scopes: Vec<&str> = scopes.iter().copied().flatten().collect();
    if scopes.is_empty() {
        service.to_owned()
    } else {
        format!("{service}?{}", scopes.join(" "))
    }
}

/// Whether the name of a grant may be in a form or in JSON. Looks at few of its bytes, and counts
/// each escape as the name.
pub(super) fn seems_to_name_a_grant(content: &[u8]) -> bool {
    let is_escaped = |at: usize| content[at] != b'\\' || content.get(at + 1) == Some(&b'u');
    let is_named = |at: usize| {
        let letters = |byte: &&u8| byte.is_ascii_alphanumeric();
        let mut before = content[..at].iter().rev().filter(letters);
        let mut after = content[at + 1..].iter().filter(letters);
        let is = |byte: Option<&u8>, letter| byte.is_some_and(|b| b.eq_ignore_ascii_case(letter));
        b"ttnarg".iter().all(|letter| is(before.next(), letter))
            && b"pe".iter().all(|letter| is(after.next(), letter))
    };
    memchr::memchr3_iter(b'%', b'\\', 0, content).any(is_escaped)
        || memchr::memchr2_iter(b'y', b'Y', content).any(is_named)
}

/// Whether some origin accepts a name as this one, which is folded.
fn is_named(name: &str, wanted: &str) -> bool {
    folded_parameters(name).iter().any(|one| one == wanted)
}

/// The members that are read, folded.
const MEMBERS: [&str; 8] = gateway_names::word_list(
    "granttype resource scope refreshtoken token clientid clientsecret service",
);

/// The client and its secret in `Authorization: Basic` (RFC 6749 §2.3.1).
fn basic(fields: &HeaderMap) -> Option<(String, Zeroizing<String>)> {
    let value = fields.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, encoded) = value.split_once(' ')?;
    let is_basic = scheme.eq_ignore_ascii_case("basic");
    let pair = Zeroizing::new(STANDARD.decode(encoded).ok().filter(|_| is_basic)?);
    let (id, secret) = std::str::from_utf8(&pair).ok()?.split_once(':')?;
    let plain = |text| percent_decode_str(text).decode_utf8().ok();
    let secret = Zeroizing::new(plain(secret)?.into_owned());
    Some((plain(id)?.into_owned(), secret))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http::header::CONTENT_TYPE;

    use super::*;

    fn read(kind: &'static str, content: &str) -> Result<TokenRequest, FormFault> {
        let kind = HeaderValue::from_static(kind);
        let fields = HeaderMap::from_iter([(CONTENT_TYPE, kind)]);
        let is_known = !content.starts_with("grant");
        TokenRequest::read((&fields, ""), &plain(content), is_known).map(Option::unwrap)
    }

    fn plain(content: &str) -> PlainContent {
        PlainContent {
            bytes: content.to_owned().into(),
            ..PlainContent::default()
        }
    }

    const FORM: &str = "application/x-www-form-urlencoded";
    const JSON: &str = "application/json";

    #[test]
    fn forms_and_json_are_read_in_every_spelling() {
        let form = "grant_type=refresh_token&client_id=a&refresh_token=r%2F1&resource=https%3A%2F%2Fm.test";
        let json = r#"{"grant_type":"refresh_token","client_id":"a","refresh_token":"r/1","resource":"https://m.test"}"#;
        let camel = r#"{"grantType":"refresh_token","clientId":"a","refreshToken":"r\u002f1","resource":"https://m.test"}"#;
        for (kind, content) in [(FORM, form), (JSON, json), (JSON, camel)] {
            let read = read(kind, content).unwrap();
            assert_eq!(read.grant.as_deref(), Some("refresh_token"));
            assert_eq!(read.client.as_deref(), Some("a"));
            assert_eq!(read.presented.as_ref().map(|one| one.as_str()), Some("r/1"));
            assert_eq!(read.resource.as_deref(), Some("https://m.test"));
            assert_eq!(read.camel_case, content == camel);
        }
        let docker = read(FORM, "grant_type=password&service=registry.test").unwrap();
        assert_eq!(docker.resource.as_deref(), Some("registry.test"));
        let entra =
            "grant_type=client_credentials&scope=https%3A%2F%2Fgraph.test%2F.default+openid";
        let entra = read(FORM, entra).unwrap();
        assert_eq!(entra.resource.as_deref(), Some("https://graph.test"));
        let google = "grant_type=x&scope=https%3A%2F%2Fwww.test%2Fauth%2Fdrive";
        assert_eq!(read(FORM, google).unwrap().resource, None);
        let revoked = read(FORM, "token=t&token_type_hint=refresh_token").unwrap();
        assert_eq!(
            revoked.presented.as_ref().map(|one| one.as_str()),
            Some("t")
        );
    }

    #[test]
    fn what_readers_disagree_about_is_not_read() {
        for (kind, content) in [
            (
                FORM,
                "grant_type=refresh_token&refresh_token=a&refresh_token=b",
            ),
            (FORM, "grant_type=a;grant_type=b"),
            (JSON, r#"{"refresh_token":"a","refreshToken":"b"}"#),
            (JSON, r#"{"grant_type":["refresh_token"]}"#),
            (JSON, r#"{"grant_type":"#),
        ] {
            assert!(read(kind, content).is_err(), "{content}");
        }
        let fields = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(FORM))]);
        let none = TokenRequest::read((&fields, ""), &plain("token=a&token=b"), false);
        assert!(none.unwrap().is_none(), "a form that asks for no token");
    }
}
