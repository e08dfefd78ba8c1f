//! Checks across sections: duplicates, contradictions, and settings that undo each other.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use gateway_body::read::Protocol;
use gateway_credential::SecretRef;
use gateway_message::{OriginPattern, Scheme};
use gateway_names::SessionId;
use gateway_origin::{OriginRule, Via};
use gateway_session::When;
use gateway_spend::Sharing;

use super::bind;
use super::diagnostic::{Diagnostic, Hint, Position, Severity};
use super::document::Document;
use super::listener::{Listener, ListenerKind, ListenerSession};
use super::origin::is_local;
use super::own_files::within;
use super::own_ports;
use super::reference;
use super::{Config, NotifySettings, WebhookSettings};

/// Where each table is in the file, in the order of the configuration's lists.
#[derive(Default)]
pub(super) struct Spans {
    pub listeners: Vec<Range<usize>>,
    pub credentials: Vec<Range<usize>>,
    pub logins: Vec<Range<usize>>,
    pub origins: Vec<Range<usize>>,
    pub budgets: Vec<Range<usize>>,
    pub notify: Vec<Range<usize>>,
    /// Facts of a tool's arguments.
    pub tools: Vec<(Vec<OriginPattern>, Range<usize>)>,
    /// The names of stores, also of those with mistakes.
    pub stores: Vec<Box<str>>,
    pub sandbox: Range<usize>,
    pub phantoms: Range<usize>,
    pub ca: Range<usize>,
}

pub(super) fn check(document: &Document<'_>, config: &Config, spans: &Spans) {
    duplicates(document, config, spans);
    budgets(document, config, spans);
    issuers(document, config, spans);
    sessions(document, config, spans);
    cleartext(document, config, spans);
    unproven(document, config, spans);
    open_to_captured(document, config, spans);
    let bound: Vec<_> = spans.credentials.iter().chain(&spans.logins).collect();
    for (index, what, hint) in bind::mistakes(&config.credentials, &config.logins) {
        document.error(bound[index], what, hint);
    }
    for (what, hint) in sandbox_contradictions(config) {
        document.error(&spans.sandbox, what, hint);
    }
    unreachable(document, config, spans);
    stores(document, config, spans);
    webhooks(document, config, spans);
    operators(document, config, spans);
    tools(document, config, spans);
}

/// Checks that MCP is read at the origins of every fact about a tool's argument.
fn tools(document: &Document<'_>, config: &Config, spans: &Spans) {
    let declared = config.declared();
    for (origins, span) in &spans.tools {
        let mut origins = origins.iter();
        if let Some(origin) = origins.find(|origin| !declared.speaks(Protocol::Mcp, origin)) {
            mistake!(document, span, "`tool` is of MCP, which is not read from {origin}";
                "an argument is read where a call names its tool";
                "add a section [[read]] with `as = \"mcp\"` and this origin");
        }
    }
}

/// Checks that each reference to a store names a place that a store of the configuration can have,
/// and that no listener's password is in one.
fn stores(document: &Document<'_>, config: &Config, spans: &Spans) {
    for (span, key, reference) in document.in_stores() {
        // What has mistakes of its own is not there.
        let is_read = |store: &str| config.stores.iter().any(|one| *one.name == *store);
        let store = reference.store().unwrap_or_default();
        if !is_read(store) && spans.stores.iter().any(|name| **name == *store) {
            continue;
        }
        if let Err(hint) = config.check_store(&reference) {
            document.error(&span, reference::unusable(&key), hint);
        }
    }
    for (listener, span) in config.listeners.iter().zip(&spans.listeners) {
        let mut passwords = listener.passwords.iter();
        if passwords.any(|(_, password)| password.store().is_some()) {
            mistake!(document, span, "a password is kept in a store";
                "the listener must be able to start while the store is away";
                "write `env:NAME`, `file:/path` or `keyring:gateway/NAME`");
        }
    }
}

impl Config {
    /// Checks that a reference to a store names a place that a store of the configuration can have.
    /// Quotes nothing of the reference, which may be a secret written in the wrong place.
    pub(super) fn check_store(&self, reference: &SecretRef) -> Result<(), Hint> {
        let Some(name) = reference.store() else {
            return Ok(());
        };
        let Some(store) = self.stores.iter().find(|store| *store.name == *name) else {
            let names: Vec<&str> = self.stores.iter().map(|store| &*store.name).collect();
            let known = match names[..] {
                [] => String::from("the configuration has no store"),
                _ => format!("the stores of the configuration are {}", names.join(", ")),
            };
            return refused!("it names a store that there is not: {known}";
                "add a section [[store]] with its `kind` and `name`, or write for example `env:NAME`");
        };
        Ok(store.check(reference)?)
    }
}

/// Checks that no webhook is the gateway itself, or is asked elsewhere in clear text.
fn webhooks(document: &Document<'_>, config: &Config, spans: &Spans) {
    for (notice, span) in config.notify.iter().zip(&spans.notify) {
        let NotifySettings::Webhook(WebhookSettings { server, .. }) = notice else {
            continue;
        };
        let leads_away = |rule: &OriginRule| {
            let is_away = rule.connect.is_some_and(|address| !is_local(address));
            is_away || matches!(rule.via, Some(Via::Proxy(_)))
        };
        let mut rules = config.origins.iter().map(|one| &one.rule);
        let is_led = rules.any(|rule| rule.matches.matches(server) && leads_away(rule));
        if server.scheme == Scheme::Http && is_led {
            mistake!(document, span, "the answer could be changed on the way";
                "an [[origin]] leads it away from this machine, in clear text";
                "write `https://`, or an address that no `connect` or `via` is for");
        }
        let authority = &server.authority;
        let own = own_ports::listens(config, authority.port);
        if let Some(own) = own.filter(|_| authority.host.is_loopback()) {
            mistake!(document, span, "the gateway itself would be asked";
                "it has {own} at this port"; "write the port of the server that answers");
        }
    }
}

/// Checks that no origin of a session is the control port.
fn operators(document: &Document<'_>, config: &Config, spans: &Spans) {
    for (origin, span) in config.origins.iter().zip(&spans.origins) {
        if own_ports::opens_control(config, &origin.rule) {
            mistake!(document, span, "a session could reach the control port";
                "`connect` or `addresses` leads to `[control] address`, where operators are served";
                "narrow it, or choose another port for `[control] address`");
        }
    }
}

/// Returns each key that several tables share, although it must be unique, with every repetition.
fn repeated<'a, T, K: Eq + Hash + Clone>(
    items: &'a [T],
    spans: &'a [Range<usize>],
    key: impl Fn(&'a T) -> K,
) -> Vec<(K, &'a Range<usize>)> {
    let mut seen = HashSet::new();
    let all = items.iter().map(key).zip(spans);
    all.filter(|(key, _)| !seen.insert(key.clone())).collect()
}

fn duplicates(document: &Document<'_>, config: &Config, spans: &Spans) {
    let addresses = repeated(&config.listeners, &spans.listeners, |one| {
        one.address.to_string()
    });
    for (address, span) in addresses {
        mistake!(document, span, "a second listener listens on {address}";
            "one address takes one listener"; "choose another port");
    }
    for (name, span) in repeated(&config.logins, &spans.logins, |one| &one.login.name) {
        mistake!(document, span, "a second [[login]] is named `{name}`";
            "its tokens are kept by its name"; "give one another name");
    }
    for (name, span) in repeated(&config.budgets, &spans.budgets, |one| &one.name) {
        mistake!(document, span, "a second [[budget]] is named `{name}`";
            "policies name a budget by it"; "give one another name");
    }
    for (matches, span) in repeated(&config.origins, &spans.origins, |one| &one.rule.matches) {
        mistake!(document, span, "a second [[origin]] is for {matches}";
            "one of the two would not hold"; "merge them into one [[origin]]");
    }
}

/// Checks that a budget by user or group can have somebody's.
fn budgets(document: &Document<'_>, config: &Config, spans: &Spans) {
    let listeners = &config.listeners;
    let gives_user = listeners.iter().any(|one| one.gives_user());
    let gives_group = gives_user || listeners.iter().any(|one| !one.groups.is_empty());
    for (budget, span) in config.budgets.iter().zip(&spans.budgets) {
        let by = budget.by;
        // The groups of a command are flags.
        let lacks = match by {
            Sharing::User => !gives_user,
            Sharing::Group => !listeners.is_empty() && !gives_group,
            _ => false,
        };
        if lacks {
            let name = &budget.name;
            mistake!(document, span, "budget `{name}` is by {by}, and no caller has one";
                "no listener asks its clients who they are";
                "add `who = […]` to a [[listener]], or choose `by = \"session\"`");
        }
    }
}

/// The prefixes of the names of callers' sessions.
const OF_CALLERS: [&str; 3] = ["uid:", "interface:", "caller:"];

/// Refuses JWTs of several issuers: each could name the users of another.
fn issuers(document: &Document<'_>, config: &Config, spans: &Spans) {
    let mut known = None;
    for (listener, span) in config.listeners.iter().zip(&spans.listeners) {
        let Some(jwt) = &listener.jwt else { continue };
        let users = (&jwt.settings.issuer, &jwt.settings.user);
        if *known.get_or_insert(users) != users {
            mistake!(document, span, "its JWTs name users by another issuer or claim";
                "`jwt:NAME` is one user, in policies and as a session of its own";
                "write the same `issuer` and `user` at each listener, or run another gateway");
        }
    }
}

fn sessions(document: &Document<'_>, config: &Config, spans: &Spans) {
    let mut groups = HashMap::new();
    for (listener, span) in config.listeners.iter().zip(&spans.listeners) {
        let session = &listener.session;
        if *groups.entry(session).or_insert(&listener.groups) != &listener.groups {
            mistake!(document, span, "the listeners of session `{session}` differ in `groups`";
                "a session is in the same groups whichever way it comes in";
                "write the same `groups`, or another `session`");
        }
    }
    for (listener, span) in config.listeners.iter().zip(&spans.listeners) {
        let session = &listener.session;
        let captures =
            |one: &Listener| one.kind == ListenerKind::Transparent && one.session == *session;
        if listener.kind == ListenerKind::Dns && !config.listeners.iter().any(captures) {
            mistake!(document, span, "no listener takes what the answers for `{session}` lead to";
                "a name gets an address of the session's own, which only capture brings back";
                "add a [[listener]] with `kind = \"transparent\"` and `session = \"{session}\"`");
        }
    }
    let is_each = groups.contains_key(&ListenerSession::EachCaller);
    let is_several = groups.len() > 1 || is_each;
    for (listener, span) in config.listeners.iter().zip(&spans.listeners) {
        let own = listener.session.one().map_or("", SessionId::as_str);
        if is_each && OF_CALLERS.iter().any(|prefix| own.starts_with(prefix)) {
            mistake!(document, span, "the session `{own}` may be a caller's";
                "`{{caller}}` names sessions so"; "write another name");
        }
    }
    if is_several && config.phantoms.env_file.is_some() && !config.phantoms.per_session() {
        mistake!(document, &spans.phantoms, "one phantoms file stands for several sessions";
            "each session has phantoms of its own, and none may read another's";
            "write `{{session}}` into the file's name");
    }
    if is_several && config.ca.certificate.is_some() && !config.ca.per_session() {
        mistake!(document, &spans.ca, "one CA certificate file stands for several sessions";
            "each session has a CA of its own, and none may trust another's";
            "write `{{session}}` into the file's name");
    }
}

fn cleartext(document: &Document<'_>, config: &Config, spans: &Spans) {
    for (credential, span) in config.credentials.iter().zip(&spans.credentials) {
        let mut origins = credential.own_origins();
        // Beyond loopback the session refuses cleartext, declared or not.
        origins.retain(|origin| origin.scheme == Scheme::Http && origin.is_loopback());
        for origin in origins {
            let mut rules = config.origins.iter().map(|origin| &origin.rule);
            let is_for =
                |rule: &OriginPattern| (&rule.hosts, rule.port) == (&origin.hosts, origin.port);
            if !rules.any(|rule| rule.cleartext && is_for(&rule.matches)) {
                let name = &credential.name;
                mistake!(document, span, "the credential `{name}` would travel to {origin} in clear text";
                    "even on loopback, clear text is a decision of its own";
                    "declare it: [[origin]] with `match = \"{origin}\"` and `cleartext = true`");
            }
        }
    }
}

/// Refuses credentials that go with every request if neither a phantom nor a password ties the
/// request to a user. Every user of the machine may connect to such a port.
fn unproven(document: &Document<'_>, config: &Config, spans: &Spans) {
    let open = config.listeners.iter().find(|one| is_open(one));
    let Some(address) = open.map(|open| &open.address) else {
        return;
    };
    for (credential, span) in config.credentials.iter().zip(&spans.credentials) {
        if credential.when == When::Always {
            let name = &credential.name;
            mistake!(document, span, "every user of this machine could use the credential `{name}`";
                "it goes with every request, and the proxy at {address} asks nobody who it is";
                "add `who = [\"password\"]` and `passwords = {{ agent = \"env:PROXY_PASSWORD\" }}` to \
                 that [[listener]], or `any_user = true` where there is one user alone; or write \
                 `inject = \"phantom\"`");
        }
    }
}

/// Warns of a port whose connections belong to another session than the captured one.
fn open_to_captured(document: &Document<'_>, config: &Config, spans: &Spans) {
    let mut listeners = config.listeners.iter();
    let Some(captured) = listeners.find(|one| one.kind == ListenerKind::Transparent) else {
        return;
    };
    for (listener, span) in config.listeners.iter().zip(&spans.listeners) {
        if is_open(listener) && listener.session != captured.session {
            let (address, session) = (&listener.address, &listener.session);
            warning!(document, span, "a captured workload could use the proxy at {address}";
                "if it shares the gateway's network namespace, it reaches loopback, and would be \
                 the session `{session}` there";
                "add `who`, or `any_user = true` if the workload has a \
                 network namespace of its own");
        }
    }
}

/// Whether every user of the machine can act as its session.
fn is_open(listener: &Listener) -> bool {
    let is_of_tcp = listener.address.tcp().is_some();
    listener.is_open_to_users() && listener.who.is_empty() && !listener.any_user && is_of_tcp
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
    let mut uses: Vec<String> = config
        .own_references()
        .filter(|(_, reference)| reference.env_name().is_some_and(passes))
        .map(|(does, _)| format!("the gateway {does} with it"))
        .collect();
    uses.dedup();
    let holds = config.credentials.iter().find(|credential| {
        let mut kept = credential.references().filter_map(SecretRef::env_name);
        credential.env.iter().any(|name| passes(name)) || kept.any(passes)
    });
    uses.extend(holds.map(|credential| {
        let name = &credential.name;
        format!("it belongs to the credential `{name}`, whose secret the workload must not hold")
    }));
    let refused = |why| {
        (
            format!("`{variable}` is passed to the workload"),
            hint!("{why}"; "do not pass it"),
        )
    };
    uses.into_iter().map(refused).collect()
}

/// Returns what a workload could do with a path that it may change.
fn written(config: &Config, write: &Path) -> Vec<(String, Hint)> {
    let mut found = Vec::new();
    let mut hidden = config.sandbox.hide.iter();
    if let Some(hidden) = hidden.find(|hide| within(write, hide) || within(hide, write)) {
        let what = format!("`{}` is hidden and writable", hidden.display());
        let hint = hint!("a path is one or the other"; "remove one of the two");
        found.push((what, hint));
    }
    let own = config.own_files().into_iter();
    let mut protected = own.chain(config.secret_files());
    if let Some(own) = protected.find(|own| within(own, write)) {
        let what = format!("the workload could change `{}`", own.display());
        let hint = hint!("the gateway's own rules, secrets and records are out of the workload's reach";
            "make a narrower path writable");
        found.push((what, hint));
    }
    let home = config.home.as_deref();
    if write.parent().is_none() || home.is_some_and(|home| within(home, write)) {
        let what = format!("all of `{}` is writable", write.display());
        let hint = hint!("what the workload writes there, the user's own shell runs next time";
            "name the folder that is needed, such as `~/.cache/pip`");
        found.push((what, hint));
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
    let hint = hint!("without a policy, a preset or an allowed host every request is denied";
        "add `[policy]` with `files = [\"policies/*.cedar\"]` or `allow = [\"HOST\"]`, or a flag: \
         `--allow HOST`, `--preset NAME`");
    (!config.listeners.is_empty() && !is_open).then(|| Diagnostic {
        position: Position::whole(&Arc::from(source.display().to_string())),
        severity: Severity::Warning,
        what: String::from("there are listeners, and nothing is permitted"),
        why: hint.why,
        remedy: hint.remedy,
    })
}

/// Warns about settings that can never take effect.
fn unreachable(document: &Document<'_>, config: &Config, spans: &Spans) {
    if config.listeners.is_empty() {
        return;
    }
    // With evidence, a client gets its phantoms at `http://gateway.internal/phantoms`.
    let is_shown = config.listeners.iter().any(|one| !one.who.is_empty());
    let is_held = is_shown || config.phantoms.env_file.is_some();
    for (credential, span) in config.credentials.iter().zip(&spans.credentials) {
        let name = &credential.name;
        if credential.when == When::Phantom && !is_held {
            warning!(document, span, "nothing hands out the phantom of `{name}`";
                "the workload could not learn its phantom";
                "add `[phantoms]` with `env_file = \"phantoms.env\"`");
        }
        for origin in credential.own_origins() {
            let mut kinds = config.listeners.iter().map(|one| &one.kind);
            if !kinds.any(|kind| kind.carries(&origin)) {
                warning!(document, span, "no listener carries {origin} of `{name}`";
                    "its requests have no way in";
                    "add a listener of that port, or correct `origins`");
            }
        }
    }
}
