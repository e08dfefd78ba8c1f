//! Presets: known properties of services, by name. The data is in `policies/services`, and tests
//! check it.

mod javascript;
mod logins;
mod mapping;
pub mod own;
mod packages;
mod parse;
mod python;
mod registry;
#[cfg(test)]
mod registry_tests;
mod request_pattern;
mod table;
mod user_config;

use std::sync::OnceLock;

use gateway_body::read::Protocol;
use gateway_message::{AcceptedCredential, Host, OriginPattern, PathPattern, Place, RequestTarget};
use gateway_names::CredentialName;
use gateway_session::Binding;
use gateway_session::phantom::Shape;
use serde::Deserialize;

use crate::login::TokenEndpoint;

use parse::{each, name, one, shapes};

pub use logins::PresetLogin;
pub use mapping::RegistryMapping;
pub use registry::{PackageClients, PackageRegistry};
pub use request_pattern::RequestPattern;
pub use user_config::{RegistryDoubt, UserConfig};

/// The known properties of one service.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preset {
    /// The name that configuration uses.
    pub name: String,
    /// The service's usual name.
    pub title: String,
    /// Origins that its clients need without a credential.
    #[serde(default, deserialize_with = "each")]
    pub allow: Vec<OriginPattern>,
    /// Sets of home files that the sandbox shows with it: the user's settings for its programs.
    #[serde(default)]
    pub home: Vec<String>,
    /// Its package registry. A credential without origins of its own is lent there.
    pub registry: Option<PackageRegistry>,
    /// Files that show that a project needs the service.
    #[serde(default)]
    pub projects: Vec<String>,
    /// Its origins to which its clients send `%2F` inside a path segment.
    #[serde(default, deserialize_with = "each")]
    pub encoded_slash: Vec<OriginPattern>,
    /// Endpoints that speak a protocol which policies read.
    #[serde(default, rename = "read")]
    pub endpoints: Vec<PresetEndpoint>,
    /// Requests that mint credentials which outlive the session.
    #[serde(default, deserialize_with = "each")]
    pub mints: Vec<RequestPattern>,
    /// The GraphQL mutations that do so at its endpoints.
    #[serde(default)]
    pub mint_mutations: Vec<String>,
    /// What it forbids, unless a session is in the group that lifts it by name.
    #[serde(default, rename = "block")]
    pub blocks: Vec<PresetBlock>,
    /// What `NAME:PERMISSION` leaves of it.
    #[serde(default, rename = "permission")]
    pub permissions: Vec<PresetPermission>,
    /// Its credentials.
    #[serde(default, rename = "credential")]
    pub credentials: Vec<PresetCredential>,
    /// The logins of its programs.
    #[serde(default, rename = "login")]
    pub logins: Vec<PresetLogin>,
}

/// One credential of a service.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PresetCredential {
    /// Its default name.
    #[serde(deserialize_with = "name")]
    pub name: CredentialName,
    /// The variables from which clients read it. A variable that the user has set gets the phantom.
    pub variables: Vec<String>,
    /// The origins to which it may be lent; empty if the user must name them.
    #[serde(rename = "hosts", deserialize_with = "each")]
    pub origins: Vec<OriginPattern>,
    /// An example of the user's own host, if the user must name the origins.
    pub your_host: Option<String>,
    /// Where it may be placed, the usual place first.
    #[serde(deserialize_with = "each")]
    pub places: Vec<Place>,
    /// The shapes in which the service issues it, for declaring one if the secret cannot be read.
    #[serde(default, deserialize_with = "shapes")]
    pub shapes: Vec<Shape>,
    /// Other places in which the service accepts credentials of any kind.
    #[serde(default, deserialize_with = "each")]
    pub takes: Vec<AcceptedCredential>,
    /// Cookies that identify no account.
    #[serde(default)]
    pub cookies: Vec<String>,
    /// Endpoints that accept many requests in one.
    #[serde(default, deserialize_with = "each")]
    pub batches: Vec<PathPattern>,
    /// The user name to pair with it, if it is a Basic password that is always injected.
    pub basic_user: Option<String>,
    /// The request that shows whether it works.
    pub verify: Option<KeyRequest>,
}

/// A request that reads something harmless with a credential in its usual place, and does nothing.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyRequest {
    /// The origin.
    #[serde(deserialize_with = "one")]
    pub host: OriginPattern,
    /// The path of the `GET`; `{}` stands for the credential if its place is in the path.
    pub path: String,
    /// Fields that the service wants, `name: value`.
    #[serde(default)]
    pub fields: Vec<String>,
    /// The statuses of a credential that the service does not, or no longer, know.
    #[serde(default = "unauthorized")]
    pub revoked: Vec<u16>,
}

fn unauthorized() -> Vec<u16> {
    vec![401]
}

/// An endpoint of a service that speaks a protocol.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PresetEndpoint {
    /// The protocol.
    #[serde(rename = "as", deserialize_with = "one")]
    pub protocol: Protocol,
    /// Its origins.
    #[serde(rename = "hosts", deserialize_with = "each")]
    pub origins: Vec<OriginPattern>,
    /// Its paths. Empty for all paths.
    #[serde(deserialize_with = "each")]
    pub paths: Vec<PathPattern>,
}

impl PresetEndpoint {
    /// Whether it is one of GraphQL.
    #[must_use]
    pub fn is_graphql(&self) -> bool {
        self.protocol == Protocol::Graphql
    }
}

/// Hosts that a preset forbids.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PresetBlock {
    /// What they are for.
    pub kind: String,
    /// The hosts, and all below each name.
    #[serde(deserialize_with = "each")]
    pub hosts: Vec<Host>,
    /// Media types that are forbidden at every host, in content and as answers.
    #[serde(default)]
    pub media_types: Vec<String>,
}

/// A named permission: what it leaves of a service's requests, besides those that read by their
/// method.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PresetPermission {
    /// Its name.
    pub name: String,
    /// The other requests.
    #[serde(default, deserialize_with = "each")]
    pub leaves: Vec<RequestPattern>,
    /// The requests that change something although they read by their method.
    #[serde(default, deserialize_with = "each")]
    pub but: Vec<RequestPattern>,
    /// The GraphQL mutations.
    #[serde(default)]
    pub mutations: Vec<String>,
}

/// A preset has no origins of its own, and none were given.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("credential `{credential}` needs `origins`: its host is your own, such as `{example}`")]
pub struct OriginMissing {
    /// The credential.
    pub credential: CredentialName,
    /// An example of such a host.
    pub example: String,
}

/// Returns all presets, sorted by name.
pub fn all() -> impl Iterator<Item = &'static Preset> {
    (0..READ.len()).map(at)
}

/// Returns the presets whose clients send `%2F` inside a path segment. Only these are parsed.
pub fn with_encoded_slash() -> impl Iterator<Item = &'static Preset> {
    let texts = table::SERVICES.iter().enumerate();
    let perhaps = texts.filter(|(_, (_, text))| text.contains("encoded_slash"));
    let found = perhaps.map(|(index, _)| at(index));
    found.filter(|preset| !preset.encoded_slash.is_empty())
}

/// Returns the endpoints of all presets. Only presets that have one are parsed.
pub fn endpoints() -> impl Iterator<Item = &'static PresetEndpoint> {
    let texts = table::SERVICES.iter().enumerate();
    let perhaps = texts.filter(|(_, (_, text))| text.contains("[[read]]"));
    perhaps.flat_map(|(index, _)| &at(index).endpoints)
}

/// Returns the presets of services that mint credentials and whose text names a host of these
/// origins. Only these are parsed.
pub fn minting_at(origins: &[&OriginPattern]) -> impl Iterator<Item = &'static Preset> {
    let names = |text: &str| {
        let mut hosts = origins.iter().map(|origin| origin.hosts.host().as_str());
        text.contains("\nmint") && hosts.any(|host| text.contains(host))
    };
    let texts = table::SERVICES.iter().enumerate();
    let found: Vec<usize> = texts
        .filter(|(_, (_, text))| names(text))
        .map(|(index, _)| index)
        .collect();
    found.into_iter().map(at)
}

/// Returns the preset of a login with this name, or of a login at a further host of its file.
pub fn of_login(name: &CredentialName) -> Option<&'static Preset> {
    let is_it = |login: &PresetLogin| is_login_of(name, login.name.as_str());
    let mut presets = with_logins();
    presets.find(|preset| preset.logins.iter().any(is_it))
}

/// Whether a login is that of a preset, or one at a further host of its file.
pub fn is_login_of(name: &CredentialName, preset: &str) -> bool {
    let rest = name.as_str().strip_prefix(preset);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// Returns the logins of all presets. Only presets that have one are parsed.
pub fn logins() -> impl Iterator<Item = &'static PresetLogin> {
    with_logins().flat_map(|preset| &preset.logins)
}

fn with_logins() -> impl Iterator<Item = &'static Preset> {
    let texts = table::SERVICES.iter().enumerate();
    let perhaps = texts.filter(|(_, (_, text))| text.contains("[[login]]"));
    perhaps.map(|(index, _)| at(index))
}

/// Returns the account whose tokens a response of this endpoint has, if a preset knows its member.
pub fn owner(endpoint: &TokenEndpoint, answer: &[u8]) -> Option<String> {
    logins().find_map(|login| login.owner(endpoint, answer))
}

/// Returns the login with this name.
pub fn login_named(name: &str) -> Option<&'static PresetLogin> {
    logins().find(|login| login.name.as_str() == name)
}

/// Returns the names of all presets, sorted.
pub fn names() -> impl Iterator<Item = &'static str> {
    table::SERVICES.iter().map(|(name, _)| *name)
}

/// Returns the preset with this name.
pub fn named(name: &str) -> Option<&'static Preset> {
    let found = table::SERVICES.binary_search_by_key(&name, |(known, _)| known);
    found.ok().map(at)
}

/// Returns the credential that clients read from a variable, and its preset.
pub fn of_variable(variable: &str) -> Option<(&'static Preset, &'static PresetCredential)> {
    let found = known_variables(|known| known == variable).next();
    found.map(|(_, preset, credential)| (preset, credential))
}

/// Returns the variables of presets that `asked` selects, each with its preset and credential.
///
/// Only presets that name such a variable are parsed.
pub fn known_variables(
    asked: impl Fn(&str) -> bool,
) -> impl Iterator<Item = (&'static str, &'static Preset, &'static PresetCredential)> {
    let mut found = Vec::new();
    for (index, (_, text)) in table::SERVICES.iter().enumerate() {
        if !perhaps_variables(text).any(&asked) {
            continue;
        }
        let preset = at(index);
        for credential in &preset.credentials {
            let variables = credential.variables.iter().map(String::as_str);
            found.extend(
                variables
                    .filter(|variable| asked(variable))
                    .map(|variable| (variable, preset, credential)),
            );
        }
    }
    found.into_iter()
}

/// Returns every variable that a preset's text names, and possibly other words of the text.
fn perhaps_variables(text: &str) -> impl Iterator<Item = &str> {
    let in_name = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    text.split('"')
        .filter(move |word| !word.is_empty() && word.bytes().all(in_name))
}

/// Whether a preset's service accepts batch requests with this target.
pub fn is_batch(host: &Host, target: &RequestTarget) -> bool {
    let mut credentials = all().flat_map(|preset| &preset.credentials);
    credentials.any(|one| {
        one.batches.iter().any(|route| route.holds(target.path()))
            && one.origins.iter().any(|origin| origin.hosts.matches(host))
    })
}

impl Preset {
    /// Returns its permission with this name.
    #[must_use]
    pub fn permission(&self, name: &str) -> Option<&PresetPermission> {
        self.permissions.iter().find(|known| known.name == name)
    }

    /// Whether one of its own credentials may be lent to an origin.
    pub fn is_at(&self, origin: &OriginPattern) -> bool {
        let mut all = self.lent();
        all.any(|own| own.hosts.overlaps(&origin.hosts))
    }

    /// The origins to which its own credentials may be lent.
    fn lent(&self) -> impl Iterator<Item = &OriginPattern> {
        let lent = self.credentials.iter().flat_map(|one| &one.origins);
        let logins = self.logins.iter().flat_map(|one| &one.origins);
        let registry = self.registry.iter().flat_map(|one| &one.public);
        lent.chain(logins).chain(registry)
    }

    /// All origins that it names.
    pub fn origins(&self) -> impl Iterator<Item = &OriginPattern> {
        let read = self.endpoints.iter().flat_map(|one| &one.origins);
        let downloads = self.registry.iter().flat_map(|one| &one.downloads);
        self.lent().chain(read).chain(downloads).chain(&self.allow)
    }
}

impl PresetCredential {
    /// Binds this credential to the given origins, or to its own if none are given.
    ///
    /// # Errors
    /// [`OriginMissing`] if there are neither.
    pub fn bind(
        &self,
        credential: CredentialName,
        origins: Vec<OriginPattern>,
    ) -> Result<Binding, OriginMissing> {
        let origins = if origins.is_empty() {
            self.origins.clone()
        } else {
            origins
        };
        if origins.is_empty() {
            let example = self
                .your_host
                .clone()
                .unwrap_or_else(|| "the registry of your configuration".to_owned());
            return Err(OriginMissing {
                credential,
                example,
            });
        }
        Ok(Binding {
            origins,
            places: self.places.clone(),
            takes: self.takes.clone(),
            cookies: self.cookies.clone(),
            batches: self.batches.clone(),
            basic_user: self.basic_user.clone(),
            variables: self.variables.clone(),
            ..Binding::of(credential)
        })
    }
}

/// The presets parsed so far, in the order of the table. A run needs only a few of them.
static READ: [OnceLock<Preset>; table::SERVICES.len()] =
    [const { OnceLock::new() }; table::SERVICES.len()];

fn at(index: usize) -> &'static Preset {
    READ[index].get_or_init(|| {
        // The texts are part of the program, and a test parses every one of them.
        let (_, text) = table::SERVICES[index];
        toml::from_str(text)
            .expect("the presets are part of the program and each is tested to read")
    })
}

#[cfg(test)]
mod presented_tests;
#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::path::Path;

    use gateway_message::HostPattern;
    use gateway_session::{Bindings, When};

    use super::*;
    use crate::login::LoginPlace;
    use crate::login::file::show_all;

    #[test]
    fn every_file_is_in_the_table_and_reads() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../policies/services");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .filter_map(|file| {
                Some(
                    file.unwrap()
                        .file_name()
                        .to_str()?
                        .strip_suffix(".toml")?
                        .to_owned(),
                )
            })
            .collect();
        files.sort();
        assert_eq!(
            files,
            table::SERVICES
                .iter()
                .map(|(name, _)| *name)
                .collect::<Vec<_>>()
        );
        for (name, text) in table::SERVICES {
            let preset: Preset =
                toml::from_str(text).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(preset.name, *name);
        }
    }

    #[test]
    fn a_variable_belongs_to_one_credential() {
        let mut seen = HashSet::new();
        for (variable, preset, _) in known_variables(|_| true) {
            assert!(seen.insert(variable), "{variable} of {}", preset.name);
        }
        let named = all().flat_map(|preset| &preset.credentials);
        let named = named.flat_map(|credential| &credential.variables).count();
        assert_eq!(
            seen.len(),
            named,
            "a variable that is not seen in its preset's text"
        );
        for (variable, preset, _) in known_variables(|_| true) {
            assert_eq!(of_variable(variable).unwrap().0.name, preset.name);
        }
        assert_eq!(of_variable("GITHUB_TOKEN").unwrap().0.name, "github");
        assert!(of_variable("PATH").is_none());
    }

    #[test]
    fn no_credential_is_bound_below_a_domain_where_anyone_may_have_a_name() {
        for credential in all().flat_map(|preset| &preset.credentials) {
            for origin in &credential.origins {
                assert!(
                    matches!(origin.hosts, HostPattern::Exact(_)),
                    "{} at {origin}",
                    credential.name
                );
            }
        }
    }

    #[test]
    fn every_preset_with_its_hosts_makes_a_binding_that_loads() {
        for preset in all() {
            for credential in &preset.credentials {
                let given = if credential.origins.is_empty() {
                    let host = credential
                        .your_host
                        .clone()
                        .unwrap_or_else(|| "registry.example".to_owned());
                    assert!(
                        credential.your_host.is_some() || preset.registry.is_some(),
                        "{}",
                        preset.name
                    );
                    vec![host.parse().unwrap()]
                } else {
                    vec![]
                };
                let bind = |origins| credential.bind(credential.name.clone(), origins);
                assert_eq!(bind(vec![]).is_err(), credential.origins.is_empty());
                let mut binding = bind(given).unwrap();
                binding.when = When::Always;
                let loads = Bindings::new(vec![binding.clone()]);
                let first = &binding.places[0];
                let bare_basic =
                    binding.basic_user.is_none() && first.to_string().starts_with("basic");
                let is_refused = bare_basic || first.is_made_by_the_client();
                assert_eq!(loads.is_err(), is_refused, "{}", credential.name);
            }
        }
    }

    #[test]
    fn every_login_reads_without_its_file_and_makes_bindings_that_load() {
        let home = tempfile::tempdir().unwrap();
        let mut seen = HashSet::new();
        for preset in logins() {
            assert!(seen.insert(&preset.name) && login_named(preset.name.as_str()).is_some());
            for login in preset.in_file(&home.path().join("none")).unwrap() {
                let stored = login.stored().into_iter().map(|one| one.binding);
                Bindings::new(stored.collect()).unwrap_or_else(|error| panic!("{error:?}"));
            }
        }
    }

    #[test]
    fn claude_code_is_logged_in_by_what_is_in_no_file() {
        let logins = login_named("claude").unwrap();
        let logins = logins.in_file(Path::new("/nonexistent/x.json")).unwrap();
        let LoginPlace::File(file) = &logins[0].place else {
            panic!("it has a file")
        };
        let shown = show_all([(file, |_| Some("P".to_owned()))], None);
        let shown = String::from_utf8(shown.unwrap().unwrap()).unwrap();
        assert!(shown.contains("\"user:inference\""), "{shown}");
    }

    #[test]
    fn an_answer_says_whose_its_tokens_are_at_its_own_endpoint_alone() {
        let answer = br#"{"access_token":"A","account":{"email_address":"ann@example.com"}}"#;
        let owner = |url: &str| super::owner(&TokenEndpoint::parse(url).unwrap(), answer);
        let ann = Some("ann@example.com".to_owned());
        assert_eq!(owner("https://platform.claude.com/v1/oauth/token"), ann);
        assert_eq!(owner("https://stranger.example/v1/oauth/token"), None);
    }

    #[test]
    fn each_other_host_of_a_file_is_a_login_of_its_own() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("hosts.yml");
        let names = || {
            let logins = login_named("gh").unwrap().in_file(&file)?;
            let names = logins
                .iter()
                .map(|one| (one.name.to_string(), one.issuer.is_some()));
            Ok::<_, crate::login::FileUnreadable>(names.collect::<Vec<_>>())
        };
        assert_eq!(names().unwrap(), [("gh".to_owned(), true)]);
        let text = "ghe.example:\n  oauth_token: a\ngithub.com:\n  oauth_token: b\n";
        std::fs::write(&file, text).unwrap();
        let both = [
            ("gh-ghe.example".to_owned(), false),
            ("gh".to_owned(), true),
        ];
        assert_eq!(names().unwrap(), both);
        let text = "ghe.example:\n  oauth_token: a\nghe.example:\n  oauth_token: b\n";
        std::fs::write(&file, text).unwrap();
        assert_eq!(names().unwrap()[1].0, "gh-ghe.example-2");
        std::fs::write(&file, "{}: CANARY").unwrap();
        assert_eq!(names().unwrap().len(), 1);
        std::fs::write(&file, "a b:\n  oauth_token: CANARY\n").unwrap();
        let refused = names().unwrap_err().to_string();
        assert!(
            refused.contains("member `a b`: it names no host"),
            "{refused}"
        );
    }

    #[test]
    fn a_client_that_the_file_names_renews_its_tokens() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join(".credentials.json");
        let client = || {
            let logins = login_named("claude").unwrap().in_file(&file).unwrap();
            logins[0].issuer.as_ref().unwrap().client.clone().unwrap()
        };
        assert!(client().starts_with("9d1c250a-"));
        std::fs::write(&file, r#"{"claudeAiOauth":{"clientId":"other"}}"#).unwrap();
        assert_eq!(client(), "other");
    }
}
