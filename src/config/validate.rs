//! Checks across sections: duplicates, contradictions, and settings that undo each other.

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::credential::{SecretRef, UpstreamLogin, VaultSettings};
use crate::message::Scheme;

use super::Config;
use super::bind;
use super::diagnostic::{Diagnostic, Hint, Position, Severity};
use super::document::Document;
use super::listener::ListenerKind;
use super::login::ConfiguredLogin;
use super::own_files::within;
use super::own_ports;
use crate::session::When;

/// Where each table is in the file, in the order of the configuration's lists.
#[derive(Default)]
pub(super) struct Spans {
    pub listeners: Vec<Range<usize>>,
    pub credentials: Vec<Range<usize>>,
    pub logins: Vec<Range<usize>>,
    pub origins: Vec<Range<usize>>,
    pub sandbox: Range<usize>,
    pub phantoms: Range<usize>,
    pub ca: Range<usize>,
}

pub(super) fn check(document: &Document<'_>, config: &Config, spans: &Spans) {
    duplicates(document, config, spans);
    sessions(document, config, spans);
    cleartext(document, config, spans);
    unproven(document, config, spans);
    bindings(document, config, spans);
    sandbox(document, config, spans);
    unreachable(document, config, spans);
    vaults(document, config, spans);
}

/// Checks that secrets kept in a vault have a `[vault]`, and that no listener's password is in it.
fn vaults(document: &Document<'_>, config: &Config, spans: &Spans) {
    for (credential, span) in config.credentials.iter().zip(&spans.credentials) {
        if config.vault.is_none() && credential.references().any(SecretRef::is_in_vault) {
            let what = format!("credential `{}` is kept in no vault", credential.name);
            let hint = Hint::new(
                "the configuration does not say where the vault is",
                "add a section [vault] with `addresses` and `login`",
            );
            document.error(span, what, hint);
        }
    }
    for (listener, span) in config.listeners.iter().zip(&spans.listeners) {
        if listener
            .login()
            .is_some_and(|login| login.password.is_in_vault())
        {
            let hint = Hint::new(
                "the listener must be able to start while the vault is away",
                "write `env:NAME`, `file:/path` or `keyring:gateway/NAME`",
            );
            document.error(span, "`password` is kept in the vault", hint);
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

fn duplicates(document: &Document<'_>, config: &Config, spans: &Spans) {
    let listeners = config.listeners.iter().zip(&spans.listeners);
    repeated(
        listeners,
        |listener| vec![listener.address],
        |address, span| {
            let hint = Hint::new("one address takes one listener", "choose another port");
            document.error(
                span,
                format!("a second listener listens on {address}"),
                hint,
            );
        },
    );
    let logins = config.logins.iter().zip(&spans.logins);
    repeated(
        logins,
        |own| vec![own.login.name.clone()],
        |name, span| {
            let hint = Hint::new("its tokens are kept by its name", "give one another name");
            document.error(span, format!("a second [[login]] is named `{name}`"), hint);
        },
    );
    let origins = config.origins.iter().zip(&spans.origins);
    repeated(
        origins,
        |origin| vec![origin.rule.matches.clone()],
        |matches, span| {
            let hint = Hint::new(
                "one of the two would not hold",
                "merge them into one [[origin]]",
            );
            document.error(span, format!("a second [[origin]] is for {matches}"), hint);
        },
    );
}

fn sessions(document: &Document<'_>, config: &Config, spans: &Spans) {
    let mut groups = HashMap::new();
    for (listener, span) in config.listeners.iter().zip(&spans.listeners) {
        let first = groups
            .entry(listener.session.clone())
            .or_insert(&listener.groups);
        if *first != &listener.groups {
            let hint = Hint::new(
                "a session is in the same groups whichever way it comes in",
                "write the same `groups`, or another `session`",
            );
            document.error(
                span,
                format!(
                    "the listeners of session `{}` differ in `groups`",
                    listener.session
                ),
                hint,
            );
        }
    }
    if groups.len() > 1 && config.phantoms.env_file.is_some() && !config.phantoms.per_session() {
        let why = "each session has phantoms of its own, and none may read another's";
        let hint = Hint::new(why, "write `{session}` into the file's name");
        document.error(
            &spans.phantoms,
            "one phantoms file stands for several sessions",
            hint,
        );
    }
    if groups.len() > 1 && config.ca.certificate.is_some() && !config.ca.per_session() {
        let why = "each session has a CA of its own, and none may trust another's";
        let hint = Hint::new(why, "write `{session}` into the file's name");
        document.error(
            &spans.ca,
            "one CA certificate file stands for several sessions",
            hint,
        );
    }
}

fn cleartext(document: &Document<'_>, config: &Config, spans: &Spans) {
    for (credential, span) in config.credentials.iter().zip(&spans.credentials) {
        for origin in credential
            .own_origins()
            .iter()
            .filter(|origin| origin.scheme == Scheme::Http)
        {
            let declared = config.origins.iter().any(|rule| {
                rule.rule.cleartext
                    && rule.rule.matches.hosts == origin.hosts
                    && rule.rule.matches.port == origin.port
            });
            // Beyond loopback the session refuses cleartext, declared or not.
            if declared || !origin.is_loopback() {
                continue;
            }
            let what = format!(
                "the credential `{}` would travel to {origin} in clear text",
                credential.name
            );
            let remedy = format!(
                "declare it: [[origin]] with `match = \"{origin}\"` and `cleartext = true`"
            );
            let why = "even on loopback, clear text is a decision of its own";
            document.error(span, what, Hint::new(why, remedy));
        }
    }
}

/// Refuses credentials that go with every request, where nothing shows whose request it is: neither
/// a phantom nor a password. Every user of the machine may connect to a port of it.
fn unproven(document: &Document<'_>, config: &Config, spans: &Spans) {
    let is_open = |kind: &ListenerKind| {
        let open = ListenerKind::Proxy {
            authentication: None,
        };
        *kind == open
    };
    let mut listeners = config.listeners.iter();
    let Some(open) = listeners.find(|one| is_open(&one.kind) && !one.any_user) else {
        return;
    };
    for (credential, span) in config.credentials.iter().zip(&spans.credentials) {
        if credential.when == When::Always {
            let name = &credential.name;
            let what = format!("every user of this machine could use the credential `{name}`");
            let why = format!(
                "it goes with every request, and the proxy at {} asks for no password",
                open.address
            );
            let remedy = "add `authentication = { user = \"agent\", password = \"env:PROXY_PASSWORD\" }` to that [[listener]], or `any_user = true` where there is one user alone; or write `inject = \"phantom\"`";
            document.error(span, what, Hint::new(why, remedy));
        }
    }
}

/// Refuses bindings that the session would refuse.
fn bindings(document: &Document<'_>, config: &Config, spans: &Spans) {
    let spans = spans.credentials.iter().chain(&spans.logins);
    let spans: Vec<_> = spans.collect();
    for (index, what, hint) in bind::mistakes(&config.credentials, &config.logins) {
        document.error(spans[index], what, hint);
    }
}

fn sandbox(document: &Document<'_>, config: &Config, spans: &Spans) {
    for (what, hint) in sandbox_contradictions(config) {
        document.error(&spans.sandbox, what, hint);
    }
}

/// Returns the sandbox settings, from a file or from flags, that undo other settings.
pub(super) fn sandbox_contradictions(config: &Config) -> Vec<(String, Hint)> {
    let sandbox = &config.sandbox;
    let names = sandbox.pass_env.iter();
    let passed = names.flat_map(|name| passed(config, name));
    let written = sandbox.write.iter().flat_map(|path| written(config, path));
    let ports = own_ports::contradictions(config);
    passed.chain(written).chain(ports).collect()
}

/// Returns what a variable would give away if it were passed to the workload.
fn passed(config: &Config, variable: &str) -> Vec<(String, Hint)> {
    let passes = |name: &str| match variable.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == variable,
    };
    let refused = |why: String| {
        let what = format!("`{variable}` is passed to the workload");
        (what, Hint::new(why, "do not pass it"))
    };
    let mut found = Vec::new();
    let login = config.vault.iter().flat_map(VaultSettings::references);
    if login.filter_map(SecretRef::env_name).any(passes) {
        found.push(refused("the gateway logs in to the vault with it".into()));
    }
    let exports = config.exports.iter().filter_map(|one| one.token.as_ref());
    if exports.filter_map(SecretRef::env_name).any(passes) {
        found.push(refused("the gateway exports its records with it".into()));
    }
    let logins = config.logins.iter().flat_map(ConfiguredLogin::references);
    if logins.filter_map(SecretRef::env_name).any(passes) {
        found.push(refused("the gateway gets tokens with it".into()));
    }
    let mut proxies = config.upstream_logins().map(UpstreamLogin::reference);
    if proxies.any(|login| login.env_name().is_some_and(passes)) {
        found.push(refused("the gateway logs in to a proxy with it".into()));
    }
    let holds = config.credentials.iter().find(|credential| {
        let mut kept = credential.references().filter_map(SecretRef::env_name);
        credential.env.iter().any(|name| passes(name)) || kept.any(passes)
    });
    if let Some(credential) = holds {
        found.push(refused(format!(
            "it belongs to the credential `{}`, whose secret the workload must not hold",
            credential.name
        )));
    }
    found
}

/// Returns what a workload could do with a path that it may change.
fn written(config: &Config, write: &Path) -> Vec<(String, Hint)> {
    let mut found = Vec::new();
    let mut hidden = config.sandbox.hide.iter();
    if let Some(hidden) = hidden.find(|hide| within(write, hide) || within(hide, write)) {
        let what = format!("`{}` is hidden and writable", hidden.display());
        let hint = Hint::new("a path is one or the other", "remove one of the two");
        found.push((what, hint));
    }
    let own = config.own_files().into_iter();
    let mut protected = own.chain(config.secret_files());
    if let Some(own) = protected.find(|own| within(own, write)) {
        let what = format!("the workload could change `{}`", own.display());
        let why = "the gateway's own rules, secrets and records are out of the workload's reach";
        found.push((what, Hint::new(why, "make a narrower path writable")));
    }
    let home = config.home.as_deref();
    if write.parent().is_none() || home.is_some_and(|home| within(home, write)) {
        let what = format!("all of `{}` is writable", write.display());
        let why = "what the workload writes there, the user's own shell runs next time";
        let remedy = "name the folder that is needed, such as `~/.cache/pip`";
        found.push((what, Hint::new(why, remedy)));
    }
    found
}

/// Returns the warning that nothing would be permitted, by the file and the flags together.
pub(super) fn permits_nothing(config: &Config) -> Option<Diagnostic> {
    let is_open = config.policy.decide()
        || !(config.allow.is_empty()
            && config.presets.is_empty()
            && config.logins.is_empty()
            && config.named_logins.is_empty()
            && config.credentials.is_empty());
    let source = config.file.clone().unwrap_or_default();
    (!config.listeners.is_empty() && !is_open).then(|| Diagnostic {
        position: Position::whole(&Arc::from(source.display().to_string())),
        severity: Severity::Warning,
        what: String::from("there are listeners, and nothing is permitted"),
        why: String::from("without a policy, a preset or an allowed host every request is denied"),
        remedy: String::from(
            "add `[policy]` with `files = [\"policies/*.cedar\"]` or `allow = [\"HOST\"]`, or a flag: `--allow HOST`, `--preset NAME`",
        ),
    })
}

/// Warns about what is allowed but can never happen.
fn unreachable(document: &Document<'_>, config: &Config, spans: &Spans) {
    if config.listeners.is_empty() {
        return;
    }
    for (credential, span) in config.credentials.iter().zip(&spans.credentials) {
        if credential.when == When::Phantom && config.phantoms.env_file.is_none() {
            let hint = Hint::new(
                "the workload could not learn its phantom",
                "add `[phantoms]` with `env_file = \"phantoms.env\"`",
            );
            document.warn(
                span,
                format!("nothing hands out the phantom of `{}`", credential.name),
                hint,
            );
        }
        for origin in credential.own_origins() {
            let carried = config.listeners.iter().any(|listener| match listener.kind {
                ListenerKind::Proxy { .. } => true,
                ListenerKind::Tls { port } => origin.scheme == Scheme::Https && origin.port == port,
            });
            if !carried {
                let hint = Hint::new(
                    "its requests have no way in",
                    "add a listener of that port, or correct `origins`",
                );
                document.warn(
                    span,
                    format!("no listener carries {origin} of `{}`", credential.name),
                    hint,
                );
            }
        }
    }
}
