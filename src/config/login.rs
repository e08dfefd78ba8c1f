//! `[[login]]`: an authorization server, and how the gateway gets tokens from it.

use std::path::Path;

use gateway_credential::login::{
    ClientAuthentication, ClientSecret, Issuer, KeyAlgorithm, Login, LoginPlace, LoginToken,
    RequestFormat, SignedAssertion, TokenEndpoint, TokenGrant, TokenKind,
};
use gateway_credential::{ConfiguredCredential, SecretRef};
use gateway_files as files;
use gateway_message::{Place, Scheme};
use gateway_names::CredentialName;
use gateway_session::phantom::Shape;
use serde::Deserialize;
use zeroize::Zeroizing;

use super::credential::{place, shape};
use super::diagnostic::{Hint, remedy};
use super::reference::local;
use super::section::word;
use super::section::{Section, Variant, characters};
use super::variable::sandbox_variable;
use super::{network, reference};

/// A login of the configuration.
#[derive(Debug, Clone)]
pub struct ConfiguredLogin {
    /// The login as a store knows it.
    pub login: Login,
    /// The endpoint that begins a login at another device (RFC 8628).
    pub device: Option<TokenEndpoint>,
    /// The endpoint that begins one in a browser (RFC 6749 §3.1), with an optional query.
    pub authorize: Option<String>,
    /// The variables of the workload that hold the access token's phantom.
    pub env: Vec<String>,
}

impl ConfiguredLogin {
    /// Returns the credentials that it lends; none if it names no origins.
    pub fn stored(&self) -> Vec<ConfiguredCredential> {
        let mut stored = self.login.stored();
        stored.retain(|one| !one.binding.origins.is_empty());
        for one in &mut stored {
            one.binding.variables.clone_from(&self.env);
        }
        stored
    }

    /// Returns the reference of each of its secrets.
    pub fn references(&self) -> impl Iterator<Item = &SecretRef> {
        self.login.issuer.iter().flat_map(Issuer::references)
    }
}

/// The grants, each with its required and its optional keys.
const GRANTS: [Variant; 5] = [
    (
        "refresh",
        "token_url client_id",
        "client_secret client_auth scopes revocation_url device_url authorize_url",
    ),
    (
        "client_credentials",
        "token_url client_id client_secret",
        "client_auth scopes revocation_url",
    ),
    (
        "jwt_bearer",
        "token_url key issuer",
        "algorithm key_id subject audience scopes revocation_url",
    ),
    ("service_account", "file", "subject scopes revocation_url"),
    ("github_app", "client_id installation key", "token_url"),
];

pub(super) fn login(section: &Section<'_, '_>) -> Option<ConfiguredLogin> {
    require!(section, "name"; "policies, the audit log and `gateway login` call it by its name";
        "add `name = \"crm\"`");
    let name = |text: &str| CredentialName::new(text).map_err(remedy("write for example `crm`"));
    let name = section.get("name", name);
    let origins = section.all("origins", network::origin);
    let mut places = section.all("places", place);
    let env = env(section, name.as_ref());
    let shape = section.get("shape", shape);
    let device = section.get("device_url", endpoint);
    let authorize = section.get("authorize_url", page);
    let grant = section.choice("grant", &GRANTS.map(|(word, ..)| (word, word)));
    let grant = grant.or((!section.has("grant")).then_some("refresh"));
    let issuer = issuer(section, grant);
    let grant = grant?;
    section.variant(("grant", grant), (&GRANTS, COMMON));
    if places.is_empty() {
        places = usual_places(grant);
    }
    let access = LoginToken {
        origins,
        places,
        shape: Shape::parse(shape.as_deref().unwrap_or(SHAPE)).ok(),
        ..LoginToken::kept(TokenKind::Access)
    };
    let mut tokens = vec![access];
    if grant == "refresh" {
        tokens.extend([TokenKind::Refresh, TokenKind::Id].map(LoginToken::kept));
    }
    Some(ConfiguredLogin {
        login: Login {
            name: name?,
            place: LoginPlace::State,
            issuer: Some(issuer?),
            tokens,
        },
        device,
        authorize,
        env,
    })
}

/// Reads every key of an issuer, to find each mistake, and builds it if the grant is known.
fn issuer(section: &Section<'_, '_>, grant: Option<&str>) -> Option<Issuer> {
    let url = |key| section.get(key, endpoint);
    let text = |key| section.get(key, word);
    let (token_url, revocation) = (url("token_url"), url("revocation_url"));
    let client = text("client_id");
    let (secret, key) = (local(section, "client_secret"), local(section, "key"));
    let (basic, post) = (ClientAuthentication::Basic, ClientAuthentication::Post);
    let shown = section.choice("client_auth", &[("basic", basic), ("post", post)]);
    let algorithms = [KeyAlgorithm::Rs256, KeyAlgorithm::Es256].map(|one| (one.as_str(), one));
    let algorithm = section.choice("algorithm", &algorithms).unwrap_or_default();
    let (key_id, issuer) = (text("key_id"), text("issuer"));
    let (subject, audience) = (text("subject"), text("audience"));
    let installation = section.get("installation", installation);
    let (file, scopes) = (section.path("file"), section.all("scopes", word));
    let (grant, endpoint) = match grant? {
        "refresh" => (TokenGrant::Refresh, token_url?),
        "client_credentials" => (TokenGrant::ClientCredentials, token_url?),
        "service_account" => service_account(section, &file?, subject)?,
        "jwt_bearer" => {
            let (endpoint, issuer) = (token_url?, issuer?);
            let assertion = SignedAssertion {
                key: key?.to_private_key(algorithm.signs()),
                algorithm,
                key_id,
                subject: Some(subject.unwrap_or_else(|| issuer.clone())),
                audience: audience.unwrap_or_else(|| endpoint.to_string()),
                issuer,
            };
            (TokenGrant::JwtBearer(assertion), endpoint)
        }
        _ => {
            let base = token_url.or_else(|| TokenEndpoint::parse(GITHUB))?;
            let key = key?.to_private_key(KeyAlgorithm::Rs256.signs());
            (
                TokenGrant::GithubApp(key),
                base.installation(&installation?),
            )
        }
    };
    let shown = shown.unwrap_or_default();
    Some(Issuer {
        endpoint,
        revocation,
        client,
        secret: secret.map(|from| ClientSecret::Kept { from, shown }),
        scopes,
        grant,
        requests: RequestFormat::Form,
    })
}

/// The members of a Google service account's key file, beside the key.
#[derive(Deserialize)]
struct ServiceAccount {
    client_email: Option<String>,
    private_key_id: Option<String>,
    token_uri: Option<String>,
}

pub(super) fn service_account(
    section: &Section<'_, '_>,
    path: &Path,
    subject: Option<String>,
) -> Option<(TokenGrant, TokenEndpoint)> {
    let refuse = |hint: Hint| {
        let what = format!("`{}` is no key file of a service account", path.display());
        section.error("file", what, hint);
    };
    let anew = |why: &str| {
        refuse(
            hint!("{why}"; "write the key file anew: `gcloud iam service-accounts keys create`"),
        );
    };
    let key = SecretRef::file(path).field("private_key");
    let key = key.to_private_key(KeyAlgorithm::Rs256.signs());
    reference::check(section.document, &section.span_of("file"), "file", &key);
    let text = files::read(path, 1).map(Zeroizing::new);
    let text = text.map_err(|unfit| refuse(Hint::of(&unfit, path))).ok()?;
    let read: ServiceAccount = serde_json::from_str(&text)
        .map_err(|error| {
            let (line, column) = (error.line(), error.column());
            anew(&format!(
                "it is no such JSON, or cut off, at line {line}, column {column}"
            ));
        })
        .ok()?;
    let Some(issuer) = read.client_email else {
        anew("it lacks the member `client_email`");
        return None;
    };
    let Some(endpoint) = read.token_uri.as_deref().and_then(TokenEndpoint::parse) else {
        anew("its `token_uri` is no `https` address");
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

/// Returns the variables of the workload: the named ones, else the login's own name.
fn env(section: &Section<'_, '_>, name: Option<&CredentialName>) -> Vec<String> {
    let own = || name.and_then(|name| sandbox_variable(name.as_str()).ok());
    if section.has("env") {
        section.all("env", sandbox_variable)
    } else {
        own().into_iter().collect()
    }
}

fn usual_places(grant: &str) -> Vec<Place> {
    let bearer = "header:authorization:Bearer";
    let places: &[&str] = match grant {
        "github_app" => &[bearer, "header:authorization:token", "basic:password"],
        _ => &[bearer],
    };
    places.iter().flat_map(|place| place.parse()).collect()
}

/// Reads the address of an endpoint.
pub(super) fn endpoint(text: &str) -> Result<TokenEndpoint, Hint> {
    if !text.contains("://") {
        return refused!("it has no scheme"; "write for example `https://issuer.example/token`");
    }
    let origin = network::origin(network::split(text).0)?;
    if origin.scheme == Scheme::Http && !origin.is_loopback() {
        return refused!("tokens would travel in clear text; `http` is for loopback addresses alone";
            "write `https://`");
    }
    TokenEndpoint::parse(text).ok_or_else(|| {
        hint!("it is no address of one endpoint, without a query";
            "write for example `https://issuer.example/token`")
    })
}

/// Reads the address of a page, which may have a query.
fn page(text: &str) -> Result<String, Hint> {
    let text = word(text)?;
    endpoint(text.split('?').next().unwrap_or(&text))?;
    Ok(text)
}

fn installation(text: &str) -> Result<String, Hint> {
    characters(text, 20, |byte| byte.is_ascii_digit()).ok_or_else(|| {
        hint!("an installation has a number";
            "write it as a text, such as `\"12345678\"`; it is in the address of its settings")
    })
}

/// The keys of every grant.
const COMMON: &str = "name grant origins places env shape";
/// The default shape of the phantom. With it, no start waits for a token.
const SHAPE: &str = "[40 alnum]";
const GITHUB: &str = "https://api.github.com";
