//! Builds requests for tokens.

use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use gateway_message::pairs::ESCAPED;
use gateway_state::unix;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::{HeaderValue, Request};
use percent_encoding::percent_encode;
use serde_json::json;
use zeroize::Zeroizing;

use super::super::secret::Secret;
use super::grant::{ClientAuthentication, ClientSecret, KeyAlgorithm, SignedAssertion, TokenGrant};
use super::{Issuer, RequestFormat, TokenEndpoint};

/// The members of a request.
pub type RequestMembers<'a> = Vec<(&'a str, Zeroizing<String>)>;

/// The secrets for a request to an issuer, from the places in [`Issuer::references`].
#[derive(Default, Clone, Copy)]
pub struct IssuerSecrets<'a> {
    /// The secret of the client.
    pub client: Option<&'a Secret>,
    /// The private key.
    pub key: Option<&'a Secret>,
}

impl Issuer {
    /// Returns the request for tokens that needs no refresh token; `None` if the grant is a refresh
    /// token, or if the key cannot sign.
    pub fn request(
        &self,
        secrets: IssuerSecrets<'_>,
        now: SystemTime,
    ) -> Option<Request<Zeroizing<Vec<u8>>>> {
        let mut members = match &self.grant {
            TokenGrant::Refresh => return None,
            TokenGrant::GithubApp(_) => return self.app_request(secrets.key?, now),
            TokenGrant::ClientCredentials => vec![said("grant_type", "client_credentials")],
            TokenGrant::JwtBearer(assertion) => vec![
                said("grant_type", JWT_BEARER),
                ("assertion", self.signed(assertion, secrets.key?, now)?),
            ],
        };
        members.extend(self.scope());
        self.asked(&self.endpoint, members, secrets.client)
    }

    /// Returns the same issuer with the client's secret itself, for places without a configuration
    /// that says where the secret is kept; or without a secret, if none is given.
    #[must_use]
    pub fn knowing(self, secret: Option<&Secret>) -> Self {
        let secret = match self.secret {
            Some(ClientSecret::Kept { .. }) => secret.map(|one| ClientSecret::Known(one.text())),
            known => known,
        };
        Self { secret, ..self }
    }

    /// Returns the member that names the scopes, if there are any.
    pub fn scope(&self) -> Option<(&'static str, Zeroizing<String>)> {
        let is_any = !self.scopes.is_empty();
        is_any.then(|| said("scope", &self.scopes.join(" ")))
    }

    /// Returns a request to an endpoint with these members and the client's authentication.
    pub fn asked(
        &self,
        at: &TokenEndpoint,
        mut members: RequestMembers<'_>,
        secret: Option<&Secret>,
    ) -> Option<Request<Zeroizing<Vec<u8>>>> {
        let client = self.client.as_deref();
        let (shown, text) = match &self.secret {
            Some(ClientSecret::Kept { shown, .. }) => (*shown, secret.map(Secret::text)),
            Some(ClientSecret::Known(text)) => (ClientAuthentication::Post, Some(text.clone())),
            None => (ClientAuthentication::Post, None),
        };
        let basic = client.filter(|_| shown == ClientAuthentication::Basic && text.is_some());
        if let (Some(client), None) = (client, basic) {
            members.push(said("client_id", client));
        }
        if let (Some(text), None) = (&text, basic) {
            members.push(("client_secret", text.clone()));
        }
        let mut request = posted(at, self.requests, &members)?;
        if let (Some(client), Some(text)) = (basic, text) {
            // RFC 6749 §2.3.1: both are form-encoded first.
            let secret = Zeroizing::new(coded(text.as_bytes()));
            let pair = Zeroizing::new(format!("{}:{}", coded(client.as_bytes()), &*secret));
            let field = Zeroizing::new(format!("Basic {}", STANDARD.encode(&*pair)));
            request.headers_mut().insert(AUTHORIZATION, hidden(&field)?);
        }
        Some(request)
    }

    /// Signs an assertion (RFC 7523 §3). Google reads the scope in it, other issuers next to it.
    fn signed(
        &self,
        assertion: &SignedAssertion,
        key: &Secret,
        now: SystemTime,
    ) -> Option<Zeroizing<String>> {
        let mut head = json!({ "alg": assertion.algorithm.as_str(), "typ": "JWT" });
        let mut claims = json!({
            "iss": assertion.issuer, "aud": assertion.audience,
            "iat": unix(now), "exp": unix(now + ASSERTED),
        });
        // Some issuers accept an assertion only once.
        claims["jti"] = random(16)?.as_str().into();
        if let Some(id) = &assertion.key_id {
            head["kid"] = id.as_str().into();
        }
        if let Some(subject) = &assertion.subject {
            claims["sub"] = subject.as_str().into();
        }
        if !self.scopes.is_empty() {
            claims["scope"] = self.scopes.join(" ").into();
        }
        token(&head, &claims, assertion.algorithm, key)
    }

    fn app_request(&self, key: &Secret, now: SystemTime) -> Option<Request<Zeroizing<Vec<u8>>>> {
        // GitHub accepts at most 10 minutes, and its clock may be behind.
        let claims = json!({
            "iss": self.client, "iat": unix(now - BEHIND), "exp": unix(now + ASSERTED),
        });
        let head = json!({ "alg": "RS256", "typ": "JWT" });
        let token = token(&head, &claims, KeyAlgorithm::Rs256, key)?;
        let mut request = posted(&self.endpoint, RequestFormat::Json, &[])?;
        let field = Zeroizing::new(format!("Bearer {}", &*token));
        request.headers_mut().insert(AUTHORIZATION, hidden(&field)?);
        Some(request)
    }
}

/// Draws this many random bytes, as base64url.
pub fn random(bytes: usize) -> Option<Zeroizing<String>> {
    let mut drawn = Zeroizing::new(vec![0; bytes]);
    getrandom::fill(&mut drawn).ok()?;
    Some(Zeroizing::new(URL_SAFE_NO_PAD.encode(&*drawn)))
}

/// Encodes a form (RFC 6749 appendix B).
pub fn form(members: &[(&str, Zeroizing<String>)]) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::new());
    for (name, value) in members {
        let value = Zeroizing::new(coded(value.as_bytes()));
        let between = if text.is_empty() { "" } else { "&" };
        // The full size is reserved at once: a growing text would leave copies behind.
        text.reserve_exact(between.len() + name.len() + 1 + value.len());
        text.extend([between, name, "=", &value]);
    }
    text
}

fn posted(
    at: &TokenEndpoint,
    format: RequestFormat,
    members: &[(&str, Zeroizing<String>)],
) -> Option<Request<Zeroizing<Vec<u8>>>> {
    let (kind, content) = match format {
        RequestFormat::Form => (FORM, form(members).as_bytes().to_vec()),
        RequestFormat::Json => {
            let texts = members.iter().map(|(name, value)| (*name, value.as_str()));
            let object: std::collections::BTreeMap<_, _> = texts.collect();
            ("application/json", serde_json::to_vec(&object).ok()?)
        }
    };
    Request::post(&at.path)
        .header(CONTENT_TYPE, kind)
        .header(ACCEPT, "application/json")
        // GitHub refuses requests without a user agent.
        .header(USER_AGENT, "gateway")
        .body(Zeroizing::new(content))
        .ok()
}

/// Returns a JSON Web Token signed with the key (RFC 7515 §7.1).
fn token(
    head: &serde_json::Value,
    claims: &serde_json::Value,
    algorithm: KeyAlgorithm,
    key: &Secret,
) -> Option<Zeroizing<String>> {
    let part = |value: &serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let text = format!("{}.{}", part(head), part(claims));
    let signature = algorithm.signs().signature(key.expose(), text.as_bytes())?;
    let signature = URL_SAFE_NO_PAD.encode(signature);
    Some(Zeroizing::new(format!("{text}.{signature}")))
}

fn said<'a>(name: &'a str, value: &str) -> (&'a str, Zeroizing<String>) {
    (name, Zeroizing::new(value.to_owned()))
}

fn coded(bytes: &[u8]) -> String {
    percent_encode(bytes, ESCAPED).to_string()
}

fn hidden(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

const FORM: &str = "application/x-www-form-urlencoded";
const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
const ASSERTED: Duration = Duration::from_secs(9 * 60);
const BEHIND: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{self, KeyPair as _, UnparsedPublicKey};

    use super::*;
    use crate::SecretRef;

    const NOW: SystemTime = SystemTime::UNIX_EPOCH;

    fn issuer(grant: TokenGrant, shown: Option<ClientAuthentication>) -> Issuer {
        let from = SecretRef::env("S");
        let kept = |shown| ClientSecret::Kept { from, shown };
        Issuer {
            endpoint: TokenEndpoint::parse("https://as.test/token").unwrap(),
            revocation: None,
            client: Some("an:id".into()),
            secret: shown.map(kept),
            scopes: vec!["read".into(), "write".into()],
            grant,
            requests: RequestFormat::Form,
        }
    }

    fn content(request: &Request<Zeroizing<Vec<u8>>>) -> String {
        String::from_utf8(request.body().to_vec()).unwrap()
    }

    #[test]
    fn a_client_shows_its_secret_in_the_way_that_is_configured() {
        let secret = Secret::new(Zeroizing::new(b"a+secret:of/it".to_vec()), false).unwrap();
        let secrets = IssuerSecrets {
            client: Some(&secret),
            key: None,
        };
        let asked = |shown| {
            let issuer = issuer(TokenGrant::ClientCredentials, Some(shown));
            issuer.request(secrets, NOW).unwrap()
        };
        let basic = asked(ClientAuthentication::Basic);
        let form = "grant_type=client_credentials&scope=read%20write";
        assert_eq!(content(&basic), form);
        let shown = STANDARD.encode("an%3Aid:a%2Bsecret%3Aof%2Fit");
        let field = &basic.headers()[AUTHORIZATION];
        assert_eq!(field, &format!("Basic {shown}"));
        assert!(field.is_sensitive() && !format!("{basic:?}").contains(&shown));
        let post = asked(ClientAuthentication::Post);
        let form = format!("{form}&client_id=an%3Aid&client_secret=a%2Bsecret%3Aof%2Fit");
        assert_eq!(content(&post), form);
        assert!(!post.headers().contains_key(AUTHORIZATION));
    }

    /// Returns the parts of a token, decoded.
    fn parts(token: &str) -> (Vec<serde_json::Value>, Vec<u8>, String) {
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).unwrap();
        let (text, signature) = token.rsplit_once('.').unwrap();
        let json = text
            .split('.')
            .map(|part| serde_json::from_slice(&decode(part)).unwrap());
        (json.collect(), decode(signature), text.to_owned())
    }

    #[test]
    fn an_assertion_is_signed_with_the_key_and_says_for_whom_it_is() {
        let pair = signature::EcdsaKeyPair::generate(&signature::ECDSA_P256_SHA256_FIXED_SIGNING);
        let pair = pair.unwrap();
        let der = pair.to_pkcs8v1().unwrap();
        let lines = STANDARD.encode(der.as_ref());
        let pem = format!("-----BEGIN PRIVATE KEY-----\n{lines}\n-----END PRIVATE KEY-----\n");
        let pem = Zeroizing::new(pem.into_bytes());
        let key = Secret::private_key(&pem, KeyAlgorithm::Es256.signs()).unwrap();
        let assertion = SignedAssertion {
            key: SecretRef::env("K"),
            algorithm: KeyAlgorithm::Es256,
            key_id: Some("k1".into()),
            issuer: "me".into(),
            subject: Some("you".into()),
            audience: "https://as.test/token".into(),
        };
        let secrets = IssuerSecrets {
            client: None,
            key: Some(&key),
        };
        let issuer = issuer(TokenGrant::JwtBearer(assertion), None);
        let form = content(&issuer.request(secrets, NOW).unwrap());
        let begin = format!("grant_type={}&assertion=", coded(JWT_BEARER.as_bytes()));
        let rest = form.strip_prefix(&begin).unwrap();
        let (token, rest) = rest.split_once('&').unwrap();
        assert_eq!(rest, "scope=read%20write&client_id=an%3Aid");
        let (json, signed, text) = parts(token);
        assert_eq!(
            json[0],
            json!({ "alg": "ES256", "typ": "JWT", "kid": "k1" })
        );
        let claims = ["iss", "sub", "aud", "scope"].map(|name| json[1][name].as_str().unwrap());
        assert_eq!(claims, ["me", "you", "https://as.test/token", "read write"]);
        assert_eq!(json[1]["exp"].as_u64().unwrap(), ASSERTED.as_secs());
        let public = pair.public_key().as_ref();
        let public = UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, public);
        public.verify(text.as_bytes(), &signed).unwrap();
    }
}
