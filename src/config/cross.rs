//! What no section can see alone: duplicates, contradictions between sections, settings that undo
//! each other.

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};

use crate::credential::{SecretRef, VaultSettings};
use crate::message::Scheme;

use super::Config;
use super::listener::ListenerKind;
use super::mistake::Doubt;
use super::page::Page;
use crate::session::When;

/// Where each table of a file stands, in the order of the configuration's lists.
#[derive(Default)]
pub(super) struct Spans {
    pub listeners: Vec<Range<usize>>,
    pub credentials: Vec<Range<usize>>,
    pub origins: Vec<Range<usize>>,
    pub sandbox: Range<usize>,
    pub phantoms: Range<usize>,
    pub ca: Range<usize>,
}

pub(super) fn check(page: &Page<'_>, config: &Config, spans: &Spans) {
    duplicates(page, config, spans);
    sessions(page, config, spans);
    cleartext(page, config, spans);
    same_place(page, config, spans);
    sandbox(page, config, spans);
    unreachable(page, config, spans);
    vaults(page, config, spans);
}

/// What a vault keeps needs one; what it issues is a session's own.
fn vaults(page: &Page<'_>, config: &Config, spans: &Spans) {
    for (credential, span) in config.credentials.iter().zip(&spans.credentials) {
        if config.vault.is_none() && credential.references().any(SecretRef::is_in_vault) {
            let what = format!("credential `{}` is kept in no vault", credential.name);
            let doubt = Doubt::new(
                "the configuration does not say where the vault is",
                "add a section [vault] with `addresses` and `login`",
            );
            page.error(span, what, doubt);
        }
    }
    for (listener, span) in config.listeners.iter().zip(&spans.listeners) {
        if let ListenerKind::Proxy {
            authentication: Some(asked),
        } = &listener.kind
            && asked.password.is_in_vault()
        {
            let doubt = Doubt::new(
                "the listener must be able to start while the vault is away",
                "write `env:NAME`, `file:/path` or `keyring:gateway/NAME`",
            );
            page.error(span, "`password` is kept in the vault", doubt);
        }
    }
}

fn repeated<'a, K: Eq + Hash, T: 'a>(
    items: impl Iterator<Item = (&'a T, &'a Range<usize>)>,
    keys: impl Fn(&'a T) -> Vec<K>,
    mut report: impl FnMut(&K, &Range<usize>),
) {
    let mut seen = HashMap::new();
    for (index, (item, span)) in items.enumerate() {
        for key in keys(item) {
            if seen.get(&key).is_some_and(|first| *first != index) {
                report(&key, span);
            }
            seen.entry(key).or_insert(index);
        }
    }
}

fn duplicates(page: &Page<'_>, config: &Config, spans: &Spans) {
    let credentials = || config.credentials.iter().zip(&spans.credentials);
    let names = |credential: &super::Credential| vec![credential.name.clone()];
    repeated(credentials(), names, |name, span| {
        let doubt = Doubt::new(
            "policies could not tell the two apart",
            "give each its own name",
        );
        page.error(
            span,
            format!("a second credential is called `{name}`"),
            doubt,
        );
    });
    let variables = |credential: &super::Credential| credential.env.clone();
    repeated(credentials(), variables, |variable, span| {
        let doubt = Doubt::new(
            "a variable holds one phantom",
            "name another variable in `env`",
        );
        page.error(
            span,
            format!("the phantoms of two credentials would stand in `{variable}`"),
            doubt,
        );
    });
    let listeners = config.listeners.iter().zip(&spans.listeners);
    repeated(
        listeners,
        |listener| vec![listener.address],
        |address, span| {
            let doubt = Doubt::new("one address takes one listener", "choose another port");
            page.error(
                span,
                format!("a second listener listens on {address}"),
                doubt,
            );
        },
    );
    let origins = config.origins.iter().zip(&spans.origins);
    repeated(
        origins,
        |rule| vec![rule.matches.clone()],
        |matches, span| {
            let doubt = Doubt::new(
                "one of the two would not hold",
                "merge them into one [[origin]]",
            );
            page.error(span, format!("a second [[origin]] is for {matches}"), doubt);
        },
    );
}

fn sessions(page: &Page<'_>, config: &Config, spans: &Spans) {
    let mut groups = HashMap::new();
    for (listener, span) in config.listeners.iter().zip(&spans.listeners) {
        let first = groups
            .entry(listener.session.clone())
            .or_insert(&listener.groups);
        if *first != &listener.groups {
            let doubt = Doubt::new(
                "a session is in the same groups whichever way it comes in",
                "write the same `groups`, or another `session`",
            );
            page.error(
                span,
                format!(
                    "the listeners of session `{}` differ in `groups`",
                    listener.session
                ),
                doubt,
            );
        }
    }
    if groups.len() > 1 && config.phantoms.file.is_some() && !config.phantoms.per_session() {
        let why = "each session has phantoms of its own, and none may read another's";
        let doubt = Doubt::new(why, "write `{session}` into the file's name");
        page.error(
            &spans.phantoms,
            "one phantoms file stands for several sessions",
            doubt,
        );
    }
    if groups.len() > 1 && config.ca.certificate.is_some() && !config.ca.per_session() {
        let why = "each session has a CA of its own, and none may trust another's";
        let doubt = Doubt::new(why, "write `{session}` into the file's name");
        page.error(
            &spans.ca,
            "one CA certificate file stands for several sessions",
            doubt,
        );
    }
}

fn cleartext(page: &Page<'_>, config: &Config, spans: &Spans) {
    for (credential, span) in config.credentials.iter().zip(&spans.credentials) {
        for origin in credential
            .own_origins()
            .iter()
            .filter(|origin| origin.scheme == Scheme::Http)
        {
            let declared = config.origins.iter().any(|rule| {
                rule.cleartext
                    && rule.matches.hosts == origin.hosts
                    && rule.matches.port == origin.port
            });
            if declared {
                continue;
            }
            let (why, remedy) = if origin.is_loopback() {
                let remedy = format!(
                    "declare it: [[origin]] with `match = \"{origin}\"` and `cleartext = true`"
                );
                (
                    "even on loopback, clear text is a decision of its own",
                    remedy,
                )
            } else {
                (
                    "everyone on the way could read the secret",
                    String::from("write `https://`"),
                )
            };
            let what = format!(
                "the credential `{}` would travel to {origin} in clear text",
                credential.name
            );
            page.error(span, what, Doubt::new(why, remedy));
        }
    }
}

/// Refuses two credentials that would both be put into one place of one request.
fn same_place(page: &Page<'_>, config: &Config, spans: &Spans) {
    for (index, (later, span)) in config
        .credentials
        .iter()
        .zip(&spans.credentials)
        .enumerate()
    {
        for earlier in &config.credentials[..index] {
            let unasked = [later, earlier]
                .iter()
                .any(|credential| credential.when == When::Always);
            let place = later
                .places
                .iter()
                .any(|place| earlier.places.contains(place));
            let origin = later
                .origins
                .iter()
                .any(|left| earlier.origins.iter().any(|right| left.overlaps(right)));
            let disjoint_methods = !later.methods.is_empty()
                && !earlier.methods.is_empty()
                && !later
                    .methods
                    .iter()
                    .any(|method| earlier.methods.contains(method));
            if unasked && place && origin && !disjoint_methods && later.path == earlier.path {
                let what = format!(
                    "`{}` and `{}` share a place, and one is put there always",
                    earlier.name, later.name
                );
                let doubt = Doubt::new(
                    "one would overwrite the other",
                    "narrow their `origins`, `methods` or `path`, or write `when = \"phantom\"`",
                );
                page.error(span, what, doubt);
            }
        }
    }
}

fn sandbox(page: &Page<'_>, config: &Config, spans: &Spans) {
    for (what, doubt) in sandbox_contradictions(config) {
        page.error(&spans.sandbox, what, doubt);
    }
}

/// What the sandbox's settings undo of the others, from a file or from flags.
pub(super) fn sandbox_contradictions(config: &Config) -> Vec<(String, Doubt)> {
    let mut found = Vec::new();
    for variable in &config.sandbox.pass_env {
        let passes = |name: &str| match variable.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == variable,
        };
        let holds = config.credentials.iter().find(|credential| {
            credential.env.iter().any(|name| passes(name))
                || credential
                    .references()
                    .any(|from| from.env_name().is_some_and(passes))
        });
        let login = config.vault.iter().flat_map(VaultSettings::references);
        if login.filter_map(SecretRef::env_name).any(passes) {
            found.push((
                format!("`{variable}` is passed to the workload"),
                Doubt::new("the gateway logs in to the vault with it", "do not pass it"),
            ));
        }
        if let Some(credential) = holds {
            let what = format!("`{variable}` is passed to the workload");
            let why = format!(
                "it belongs to the credential `{}`, whose secret the workload must not hold",
                credential.name
            );
            found.push((what, Doubt::new(why, "do not pass it")));
        }
    }
    for write in &config.sandbox.write {
        if let Some(hidden) = config
            .sandbox
            .hide
            .iter()
            .find(|hide| within(write, hide) || within(hide, write))
        {
            let what = format!("`{}` is hidden and writable", hidden.display());
            found.push((
                what,
                Doubt::new("a path is one or the other", "remove one of the two"),
            ));
        }
        if let Some(own) = protected(config).into_iter().find(|own| within(own, write)) {
            let what = format!("the workload could change `{}`", own.display());
            let why =
                "the gateway's own rules, secrets and records are out of the workload's reach";
            found.push((what, Doubt::new(why, "make a narrower path writable")));
        }
        if write.parent().is_none()
            || config
                .home
                .as_deref()
                .is_some_and(|home| within(home, write))
        {
            let what = format!("all of `{}` is writable", write.display());
            let why = "what the workload writes there, the user's own shell runs next time";
            found.push((
                what,
                Doubt::new(
                    why,
                    "name the folder that is needed, such as `~/.cache/pip`",
                ),
            ));
        }
    }
    found
}

/// The files that the gateway reads or writes for itself, and those in which secrets lie.
fn protected(config: &Config) -> Vec<PathBuf> {
    [own(config), secrets(config)].concat()
}

/// The files in which secrets lie.
pub(super) fn secrets(config: &Config) -> Vec<PathBuf> {
    let secrets = config
        .credentials
        .iter()
        .flat_map(super::Credential::references);
    let passwords = config
        .listeners
        .iter()
        .filter_map(|listener| match &listener.kind {
            ListenerKind::Proxy { authentication } => authentication
                .as_ref()
                .map(|authentication| &authentication.password),
            ListenerKind::Tls { .. } => None,
        });
    let keys = config
        .origins
        .iter()
        .filter_map(|rule| rule.identity.as_ref().map(|identity| &identity.key));
    secrets
        .chain(passwords)
        .chain(keys)
        .chain(config.vault.iter().flat_map(VaultSettings::references))
        .filter_map(|reference| reference.path().map(Path::to_owned))
        .chain(
            config
                .vault
                .iter()
                .flat_map(VaultSettings::secret_files)
                .cloned(),
        )
        .collect()
}

/// The files that the gateway reads or writes for itself, but for secrets.
pub(super) fn own(config: &Config) -> Vec<PathBuf> {
    let roots = config
        .origins
        .iter()
        .flat_map(|rule| rule.files().map(Path::to_owned));
    let single = [
        &config.file,
        &config.audit.path,
        &config.ca.certificate,
        &config.phantoms.file,
    ];
    single
        .into_iter()
        .flatten()
        .cloned()
        .chain(config.policy.paths())
        .chain(roots)
        .chain(config.vault.iter().flat_map(|vault| vault.roots.clone()))
        .collect()
}

fn within(path: &Path, folder: &Path) -> bool {
    real(path).starts_with(real(folder))
}

/// Where a path leads, links and `..` followed as far as there is something; what is not there yet
/// comes behind it.
pub(super) fn real(path: &Path) -> PathBuf {
    for there in path.ancestors() {
        if let Ok(found) = std::fs::canonicalize(there)
            && let Ok(rest) = path.strip_prefix(there)
        {
            return rest.components().fold(found, |mut at, part| {
                match part {
                    Component::ParentDir => drop(at.pop()),
                    part => at.push(part),
                }
                at
            });
        }
    }
    path.to_owned()
}

/// Warns of what is allowed and can never happen.
fn unreachable(page: &Page<'_>, config: &Config, spans: &Spans) {
    if config.listeners.is_empty() {
        return;
    }
    if config.policy.files.is_empty() {
        let doubt = Doubt::new(
            "without a policy every request is denied",
            "add `[policy]` with `files = [\"policies/*.cedar\"]`",
        );
        page.warn(&(0..0), "there are listeners and no policy", doubt);
    }
    for (credential, span) in config.credentials.iter().zip(&spans.credentials) {
        if credential.when == When::Phantom && config.phantoms.file.is_none() {
            let doubt = Doubt::new(
                "the workload could not learn its phantom",
                "add `[phantoms]` with `file = \"phantoms.env\"`",
            );
            page.warn(
                span,
                format!("nothing hands out the phantom of `{}`", credential.name),
                doubt,
            );
        }
        for origin in credential.own_origins() {
            let carried = config.listeners.iter().any(|listener| match listener.kind {
                ListenerKind::Proxy { .. } => true,
                ListenerKind::Tls { port } => origin.scheme == Scheme::Https && origin.port == port,
            });
            if !carried {
                let doubt = Doubt::new(
                    "its requests have no way in",
                    "add a listener of that port, or correct `origins`",
                );
                page.warn(
                    span,
                    format!("no listener carries {origin} of `{}`", credential.name),
                    doubt,
                );
            }
        }
    }
}
