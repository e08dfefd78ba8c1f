//! `[[login]]`: an authorization server, and how the gateway gets tokens from it.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;
use zeroize::Zeroizing;

use crate::credential::login::{
    ClientAuthentication, ClientSecret, Issuer, KeyAlgorithm, Login, LoginPlace, LoginToken,
    RequestFormat, SignedAssertion, TokenEndpoint, TokenGrant, TokenKind,
};
use crate::credential::{SecretRef, Stored};
use crate::files;
use crate::message::{OriginPattern, Place, Scheme};
use crate::names::CredentialName;
use crate::session::phantom::Shape;

use super::credential::{place, shape};
use super::diagnostic::Hint;
use super::section::Section;
use super::variable::sandbox_variable;
use super::vault::{local, word};
use super::{network, reference};

/// A login of the configuration.
#[derive(Debug, Clone)]
pub struct ConfiguredLogin {
    /// What it is to a store.
    pub login: Login,
    /// Where a person's login begins at another device (RFC 8628).
    pub device: Option<TokenEndpoint>,
    /// The address at which it begins in a browser (RFC 6749 §3.1), maybe with a query.
    pub authorize: Option<String>,
    /// The variables of the workload that hold the access token's phantom.
    pub env: Vec<String>,
}

impl ConfiguredLogin {
    /// Returns what is lent of it; nothing, if it names no origins.
    #[must_use]
    pub fn stored(&self) -> Vec<Stored> {
        let mut stored = self.login.stored();
        stored.retain(|one| !one.binding.origins.is_empty());
        for one in &mut stored {
            one.binding.variables.clone_from(&self.env);
        }
        stored
    }

    /// Returns where each of its secrets is kept.
    pub fn references(&self) -> impl Iterator<Item = &SecretRef> {
        self.login.issuer.iter().flat_map(Issuer::references)
    }
}

/// The grants, each with the keys that it needs, and those that it may have.
const GRANTS: [(&str, &[&str], &[&str]); 5] = [
    (
        "refresh",
        &["token_url", "client_id"],
        &[
            "client_secret",
            "client_auth",
            "scopes",
            "revocation_url",
            "device_url",
            "authorize_url",
        ],
    ),
    (
        "client_credentials",
        &["token_url", "client_id", "client_secret"],
        &["client_auth", "scopes", "revocation_url"],
    ),
    (
        "jwt_bearer",
        &["token_url", "key", "issuer"],
        &[
            "algorithm",
            "key_id",
            "subject",
            "audience",
            "scopes",
            "revocation_url",
        ],
    ),
    (
        "service_account",
        &["file"],
        &["subject", "scopes", "revocation_url"],
    ),
    (
        "github_app",
        &["client_id", "installation", "key"],
        &["token_url"],
    ),
];

/// The values of a login's keys.
struct LoginKeys {
    token_url: Option<TokenEndpoint>,
    revocation_url: Option<TokenEndpoint>,
    device_url: Option<TokenEndpoint>,
    authorize_url: Option<String>,
    client_id: Option<String>,
    client_secret: Option<SecretRef>,
    client_auth: Option<ClientAuthentication>,
    key: Option<SecretRef>,
    algorithm: Option<KeyAlgorithm>,
    key_id: Option<String>,
    issuer: Option<String>,
    subject: Option<String>,
    audience: Option<String>,
    installation: Option<String>,
    file: Option<PathBuf>,
    scopes: Vec<String>,
}

pub(super) fn login(section: &Section<'_, '_>) -> Option<ConfiguredLogin> {
    let name = name(section);
    let keys = keys(section);
    let origins = values(section.each("origins", network::origin));
    let places = values(section.each("places", place));
    let env = env(section, name.as_ref());
    let written = section.parsed("shape", shape).map(Spanned::into_inner);
    let words = GRANTS.map(|(word, ..)| (word, word));
    let chosen = match section.has("grant") {
        true => section.choice("grant", &words)?,
        false => "refresh",
    };
    check_keys(section, chosen);
    let (device, authorize) = (keys.device_url.clone(), keys.authorize_url.clone());
    let issuer = issuer(section, chosen, keys)?;
    let access = LoginToken {
        origins,
        places: match places.is_empty() {
            true => usual_places(chosen),
            false => places,
        },
        shape: Shape::parse(written.as_deref().unwrap_or(SHAPE)).ok(),
        ..LoginToken::kept(TokenKind::Access)
    };
    Some(ConfiguredLogin {
        login: Login {
            name: name?,
            place: LoginPlace::State,
            issuer: Some(issuer),
            tokens: match chosen {
                "refresh" => vec![
                    access,
                    LoginToken::kept(TokenKind::Refresh),
                    LoginToken::kept(TokenKind::Id),
                ],
                _ => vec![access],
            },
        },
        device,
        authorize,
        env,
    })
}

fn name(section: &Section<'_, '_>) -> Option<CredentialName> {
    if !section.has("name") {
        let why = "policies, the audit log and `gateway login` call it by its name";
        section.missing("name", why, "add `name = \"crm\"`");
    }
    let name = section.parsed("name", |text| {
        CredentialName::new(text)
            .map_err(|malformed| Hint::new(malformed.to_string(), "write for example `crm`"))
    });
    name.map(Spanned::into_inner)
}

fn keys(section: &Section<'_, '_>) -> LoginKeys {
    let url = |key| section.parsed(key, endpoint).map(Spanned::into_inner);
    let text = |key| section.parsed(key, word).map(Spanned::into_inner);
    let ways = [
        ("basic", ClientAuthentication::Basic),
        ("post", ClientAuthentication::Post),
    ];
    let algorithms = [KeyAlgorithm::Rs256, KeyAlgorithm::Es256].map(|one| (one.as_str(), one));
    let file = section.parsed("file", |text| section.document.path(text));
    LoginKeys {
        token_url: url("token_url"),
        revocation_url: url("revocation_url"),
        device_url: url("device_url"),
        authorize_url: section
            .parsed("authorize_url", page)
            .map(Spanned::into_inner),
        client_id: text("client_id"),
        client_secret: local(section, "client_secret"),
        client_auth: section.choice("client_auth", &ways),
        key: local(section, "key"),
        algorithm: section.choice("algorithm", &algorithms),
        key_id: text("key_id"),
        issuer: text("issuer"),
        subject: text("subject"),
        audience: text("audience"),
        installation: section
            .parsed("installation", installation)
            .map(Spanned::into_inner),
        file: file.map(Spanned::into_inner),
        scopes: values(section.each("scopes", word)),
    }
}

/// Checks that the keys are those of the grant: another would have no effect.
fn check_keys(section: &Section<'_, '_>, chosen: &str) {
    let of = |(word, ..): &&(&str, &[&str], &[&str])| *word == chosen;
    let Some((_, needed, allowed)) = GRANTS.iter().find(of) else {
        return;
    };
    for key in needed.iter().filter(|key| !section.has(key)) {
        let why = format!("`grant = \"{chosen}\"` needs it");
        section.missing(key, &why, &format!("add `{key} = \"…\"`"));
    }
    let own = |key: &&str| needed.contains(key) || allowed.contains(key);
    for key in section.keys().filter(|key| !COMMON.contains(key)) {
        if !own(&key) {
            let what = format!("`{key}` does not belong to `grant = \"{chosen}\"`");
            let hint = Hint::new("the grant does not use it", format!("remove `{key}`"));
            section.error(key, what, hint);
        }
    }
}

fn issuer(section: &Section<'_, '_>, chosen: &str, keys: LoginKeys) -> Option<Issuer> {
    let shown = keys.client_auth.unwrap_or_default();
    let from = keys.client_secret;
    let (grant, endpoint) = match chosen {
        "refresh" => (TokenGrant::Refresh, keys.token_url?),
        "client_credentials" => (TokenGrant::ClientCredentials, keys.token_url?),
        "service_account" => service_account(section, &keys.file?, keys.subject)?,
        "jwt_bearer" => {
            let (endpoint, issuer) = (keys.token_url?, keys.issuer?);
            let algorithm = keys.algorithm.unwrap_or_default();
            let assertion = SignedAssertion {
                key: keys.key?.to_private_key(algorithm.signs()),
                algorithm,
                key_id: keys.key_id,
                subject: Some(keys.subject.unwrap_or_else(|| issuer.clone())),
                audience: keys.audience.unwrap_or_else(|| endpoint.to_string()),
                issuer,
            };
            (TokenGrant::JwtBearer(assertion), endpoint)
        }
        _ => {
            let (id, base) = (keys.installation?, keys.token_url);
            let base = base.or_else(|| TokenEndpoint::parse(GITHUB))?;
            let key = keys.key?.to_private_key(KeyAlgorithm::Rs256.signs());
            (TokenGrant::GithubApp(key), base.installation(&id))
        }
    };
    Some(Issuer {
        endpoint,
        revocation: keys.revocation_url,
        client: keys.client_id,
        secret: from.map(|from| ClientSecret::Kept { from, shown }),
        scopes: keys.scopes,
        grant,
        requests: RequestFormat::Form,
    })
}

/// What the key file of a service account of Google says beside its key.
#[derive(Deserialize)]
struct ServiceAccount {
    client_email: Option<String>,
    private_key_id: Option<String>,
    token_uri: Option<String>,
}

fn service_account(
    section: &Section<'_, '_>,
    path: &Path,
    subject: Option<String>,
) -> Option<(TokenGrant, TokenEndpoint)> {
    let refuse = |why: String, remedy: String| {
        let what = format!("`{}` is no key file of a service account", path.display());
        section.error("file", what, Hint::new(why, remedy));
    };
    let key = SecretRef::file(path).field("private_key");
    let key = key.to_private_key(KeyAlgorithm::Rs256.signs());
    reference::check(section.document, &section.span_of("file"), "file", &key);
    let text = files::read(path, 1).map(Zeroizing::new);
    let text = text
        .map_err(|unfit| refuse(unfit.to_string(), unfit.remedy(path)))
        .ok()?;
    let anew = "write the key file anew: `gcloud iam service-accounts keys create`";
    let read: ServiceAccount = serde_json::from_str(&text)
        .map_err(|error| {
            let (line, column) = (error.line(), error.column());
            let why = format!("it is no such JSON, or cut off, at line {line}, column {column}");
            refuse(why, anew.into());
        })
        .ok()?;
    let lacks = |member: &str| refuse(format!("it lacks the member `{member}`"), anew.into());
    let issuer = read.client_email.or_else(|| {
        lacks("client_email");
        None
    })?;
    let Some(endpoint) = read.token_uri.as_deref().and_then(TokenEndpoint::parse) else {
        refuse("its `token_uri` is no `https` address".into(), anew.into());
        return None;
    };
    let assertion = SignedAssertion {
        key,
        algorithm: KeyAlgorithm::Rs256,
        key_id: read.private_key_id,
        subject,
        audience: endpoint.to_string(),
        issuer,
    };
    Some((TokenGrant::JwtBearer(assertion), endpoint))
}

/// Returns the variables of the workload: those that are named, else the login's own name.
fn env(section: &Section<'_, '_>, name: Option<&CredentialName>) -> Vec<String> {
    match section.has("env") {
        true => values(section.each("env", sandbox_variable)),
        false => name
            .and_then(|name| sandbox_variable(name.as_str()).ok())
            .into_iter()
            .collect(),
    }
}

fn usual_places(grant: &str) -> Vec<Place> {
    let places: &[&str] = match grant {
        "github_app" => &[
            "header:authorization:Bearer",
            "header:authorization:token",
            "basic:password",
        ],
        _ => &["header:authorization:Bearer"],
    };
    places
        .iter()
        .filter_map(|place| place.parse().ok())
        .collect()
}

/// Reads the address of an endpoint.
fn endpoint(text: &str) -> Result<TokenEndpoint, Hint> {
    let example = "write for example `https://issuer.example/token`";
    let after = text.find("://").map(|at| at + 3);
    let after = after.ok_or_else(|| Hint::new("it has no scheme", example))?;
    let end = text[after..].find(['/', '?', '#']);
    let origin: OriginPattern = network::origin(end.map_or(text, |end| &text[..after + end]))?;
    if origin.scheme == Scheme::Http && !origin.is_loopback() {
        return Err(Hint::new(
            "tokens would travel in clear text; `http` is for loopback addresses alone",
            "write `https://`",
        ));
    }
    TokenEndpoint::parse(text)
        .ok_or_else(|| Hint::new("it is no address of one endpoint, without a query", example))
}

/// Reads the address of a page, which may have a query.
fn page(text: &str) -> Result<String, Hint> {
    let text = word(text)?;
    endpoint(text.split('?').next().unwrap_or(&text))?;
    Ok(text)
}

fn installation(text: &str) -> Result<String, Hint> {
    match (1..=20).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit()) {
        true => Ok(text.to_owned()),
        false => Err(Hint::new(
            "an installation has a number",
            "write it as a text, such as `\"12345678\"`; it is in the address of its settings",
        )),
    }
}

fn values<T>(items: Vec<Spanned<T>>) -> Vec<T> {
    items.into_iter().map(Spanned::into_inner).collect()
}

/// The keys of every grant.
const COMMON: [&str; 6] = ["name", "grant", "origins", "places", "env", "shape"];
/// The shape of the phantom where none is written, so that no start waits for a token.
const SHAPE: &str = "[40 alnum]";
const GITHUB: &str = "https://api.github.com";
