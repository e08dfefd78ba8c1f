//! Makes generations of the configuration: the first one, and those that reloads put in force.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::Failure;
use crate::login::captured::CapturedLogin;
use crate::login::stores as login_stores;
use crate::reload::flag_policies as lending;
use crate::reload::source::LoadedConfig;
use crate::settings::resolve::ResolvedConfig;
use crate::settings::shell_secrets::ShellLoans;
use crate::store_clients;
pub use crate::store_clients::failed;
use crate::terminal::text::as_argument;
use gateway_config::{self as config, Config};
use gateway_credential::login::{Issuer, KnownLogin, KnownLogins, Login, LoginHolder};
use gateway_credential::preset::{self, PresetLogin};
use gateway_credential::{
    BufferLimits, ConfiguredCredential, Credentials, SecretRef, StoreSettings, Stores,
};
use gateway_grant as grant;
use gateway_message::{Origin, OriginPattern};
use gateway_origin::resolve::StubResolver;
use gateway_origin::{OriginRule, OriginSettings};
use gateway_policy::{Generation, Operators, Policies, Problems, Source, generate};
use gateway_server::{Snapshot, chain};
use gateway_session::{BindingMalformed, Bindings};
use gateway_spend::Prices;

/// Makes the first generation, with these origin rules before those of the configuration.
///
/// # Errors
/// Returns a [`Failure`] that says which setting is refused, why, and what to do.
pub fn first(
    config: &Config,
    resolved: &ResolvedConfig,
    (sources, rules): (&[Source], Vec<OriginRule>),
) -> Result<Snapshot, Failure> {
    let origins = Arc::new(origins(config, &resolved.encoded_slash, rules)?);
    let credentials = credentials(config, resolved.stored.clone(), &resolved.logins)?;
    let credentials = credentials.with_buffer_limits(config.limits.holding());
    let credentials = credentials.with_logins(known_logins(resolved, &[]));
    let policies = Policies::load(sources, config.declared());
    Ok(Snapshot {
        policies: policies.map_err(|problems| refused("the policies", config, &problems))?,
        credentials,
        limits: config.limits.clone(),
        origins,
        prices: Arc::new(Prices::shipped().with(config.prices.clone())),
        logins: resolved.logins.clone(),
    })
}

/// Makes the generation after `before`, which was made from `old`, with the logins that sessions
/// made. It is not in force yet.
///
/// # Errors
/// As [`first`].
pub fn next(
    before: &Snapshot,
    old: &Config,
    read: &LoadedConfig,
    captured: &[CapturedLogin],
) -> Result<Snapshot, Failure> {
    let origins = origins(&read.config, &read.resolved.encoded_slash, Vec::new())?;
    if origins.resolver != before.origins.resolver {
        StubResolver::new(&origins.resolver).map_err(|error| failed("the resolver", &error))?;
    }
    // Unchanged settings stay the same object, and so do the caches made for them.
    let origins = if origins == *before.origins {
        before.origins.clone()
    } else {
        Arc::new(origins)
    };
    following(before, old, read, (captured, origins))
}

/// Makes the generation after `before` from the same configuration, with new logins of sessions.
///
/// # Errors
/// As [`first`].
pub fn with_logins(
    before: &Snapshot,
    read: &LoadedConfig,
    captured: &[CapturedLogin],
) -> Result<Snapshot, Failure> {
    following(
        before,
        &read.config,
        read,
        (captured, before.origins.clone()),
    )
}

fn following(
    before: &Snapshot,
    old: &Config,
    read: &LoadedConfig,
    (captured, origins): (&[CapturedLogin], Arc<OriginSettings>),
) -> Result<Snapshot, Failure> {
    let config = &read.config;
    let mut stored = read.resolved.stored.clone();
    stored.extend(captured.iter().flat_map(CapturedLogin::stored));
    let logins = read.resolved.logins.iter();
    let logins = logins.chain(captured.iter().map(|one| &one.login)).cloned();
    let logins: Vec<Login> = logins.collect();
    let mut sources = read.sources.clone();
    sources.extend(captured.iter().map(CapturedLogin::policies));
    lending::guard(&mut sources, &read.resolved, &stored);
    let credentials = next_credentials(&before.credentials, old, config, (stored, &logins))?;
    let policies = before.policies.next(&sources, config.declared());
    let policies = policies.map_err(|problems| refused("the new policies", config, &problems))?;
    Ok(Snapshot {
        policies,
        credentials: credentials.with_logins(known_logins(&read.resolved, captured)),
        limits: config.limits.clone(),
        origins,
        prices: Arc::new(Prices::shipped().with(config.prices.clone())),
        logins: read.resolved.logins.clone(),
    })
}

/// Returns the logins whose endpoints are known: those of the configuration, of sessions and of
/// presets.
fn known_logins(resolved: &ResolvedConfig, captured: &[CapturedLogin]) -> KnownLogins {
    let known = |login: Login, holder| KnownLogin { login, holder };
    let configured = resolved.logins.iter().cloned();
    let configured = configured.map(|login| known(login, LoginHolder::Everyone));
    let captured = captured.iter().map(CapturedLogin::known);
    let presets = preset::logins().filter_map(PresetLogin::begun);
    let presets = presets.map(|login| known(login, LoginHolder::Nobody));
    KnownLogins::new(configured.chain(captured).chain(presets))
}

/// Returns the credentials of a configuration, with their stores.
///
/// # Errors
/// Returns a [`Failure`] if they are ambiguous, too wide or too open.
pub fn credentials(
    config: &Config,
    stored: Vec<ConfiguredCredential>,
    logins: &[Login],
) -> Result<Credentials, Failure> {
    let stores = stores(config, &stored, logins)?;
    let stores = stores.with_logins(login_stores::settings(config, logins, |_| None)?, None);
    Credentials::new(stored, &stores).map_err(|error| ambiguous(&error))
}

/// Returns the credentials that follow others, and reuse what those have read.
fn next_credentials(
    before: &Credentials,
    old: &Config,
    config: &Config,
    (stored, logins): (Vec<ConfiguredCredential>, &[Login]),
) -> Result<Credentials, Failure> {
    let is_same = |store: &&StoreSettings| {
        let servers = store.all_servers();
        old.stores.contains(store) && old.store_way(&servers) == config.store_way(&servers)
    };
    let (kept, new): (Vec<_>, Vec<_>) = config.stores.iter().partition(is_same);
    let kept: Vec<_> = kept.into_iter().map(|store| store.name.clone()).collect();
    let made = store_clients::stores(config, new)?;
    let made = Stores::with_stores(references(&stored, logins), made);
    // A client is kept if its way is unchanged, and so are the logins that it renews.
    let known = before.stores().logins();
    let same = |server: &Origin| {
        let (then, now) = (old, config);
        let way = |config: &Config| config.store_way(std::slice::from_ref(server));
        known.client(server).filter(|_| way(then) == way(now))
    };
    let settings = login_stores::settings(config, logins, same)?;
    let stores = made.after(before.stores(), references(&stored, logins), &kept);
    let stores = stores.with_logins(settings, Some(before.stores()));
    let next = before.next(stored, &stores);
    let holding = BufferLimits {
        limit: config.limits.max_buffered_request,
        ..before.holding().clone()
    };
    Ok(next
        .map_err(|error| ambiguous(&error))?
        .with_buffer_limits(holding))
}

/// Returns the references of credentials' secrets, and of the gateway's own at logins' issuers.
fn references<'r>(
    stored: &'r [ConfiguredCredential],
    logins: &'r [Login],
) -> impl Iterator<Item = &'r SecretRef> {
    let issuers = logins.iter().filter_map(|login| login.issuer.as_ref());
    let stored = stored.iter().map(|stored| &stored.from);
    stored.chain(issuers.flat_map(Issuer::references))
}

fn stores(
    config: &Config,
    stored: &[ConfiguredCredential],
    logins: &[Login],
) -> Result<Stores, Failure> {
    let made = store_clients::stores(config, &config.stores)?;
    Ok(Stores::with_stores(references(stored, logins), made))
}

fn ambiguous(error: &BindingMalformed) -> Failure {
    Failure::usage("the credentials are refused")
        .because(error.to_string())
        .next("see docs/config.md, `[[credential]]`")
}

fn refused(what: &str, config: &Config, problems: &Problems) -> Failure {
    let failure = Failure::usage(format!("{what} are refused")).because(problems.to_string());
    checked_by(failure, config)
}

/// Names the command that checks a configuration's policies, if they are in files.
fn checked_by(failure: Failure, config: &Config) -> Failure {
    let files = match config.file.as_ref().or(config.project.as_ref()) {
        Some(file) => format!("--config {}", as_argument(file)),
        None => {
            let files = config.policy.files.iter();
            let files: Vec<_> = files.map(|file| as_argument(file)).collect();
            files.join(" ")
        }
    };
    if files.is_empty() {
        failure
    } else {
        failure.next(format!("gateway policy check {files}"))
    }
}

/// The session name of `exec`.
pub const EXEC: &str = "exec";

/// Returns the policies of a run of `exec` with this configuration, to report what they permit.
///
/// # Errors
/// As [`first`].
pub fn of_exec(config: &Config, resolved: &ResolvedConfig) -> Result<Arc<Generation>, Failure> {
    let bindings = resolved.bindings().cloned().collect();
    Bindings::new(bindings).map_err(|error| ambiguous(&error))?;
    let sources = sources(config, resolved, &granted(config)?)?;
    let policies = Policies::load(&sources, config.declared());
    let policies = policies.map_err(|problems| refused("the policies", config, &problems))?;
    Ok(policies.current())
}

/// Returns the file of the rules that operators grant, next to the configuration:
/// `gateway.granted.cedar` for `gateway.toml`.
pub fn granted_beside(config: &Path) -> PathBuf {
    config.with_extension(gateway_policy::GRANTED)
}

/// Returns every policy of `serve` with this configuration.
///
/// # Errors
/// As [`first`].
pub fn served(config: &Config) -> Result<Vec<Source>, Failure> {
    let mut config = config.clone();
    config.granted = config.file.as_deref().map(granted_beside);
    let resolved = ResolvedConfig::of(&config, &ShellLoans::default())?;
    let bindings = resolved.bindings().cloned().collect();
    Bindings::new(bindings).map_err(|error| ambiguous(&error))?;
    sources(&config, &resolved, &granted(&config)?)
}

/// Returns the rules that operators granted.
///
/// # Errors
/// Returns a [`Failure`] if the file cannot be read.
pub fn granted(config: &Config) -> Result<Vec<Source>, Failure> {
    let is_listed = |path: &Path| config.policy.paths().iter().any(|one| one == path);
    let path = config.granted.as_deref();
    let Some(path) = path.filter(|path| path.exists() && !is_listed(path)) else {
        return Ok(Vec::new());
    };
    let read = Source::read(path).map_err(|problems| {
        Failure::usage("the granted rules are refused")
            .because(problems.to_string())
            .next(format!("gateway policy check {}", as_argument(path)))
    });
    let mut sources = read?;
    sources.iter_mut().for_each(grant::leave_out_ended);
    Ok(sources)
}

/// Returns the policies from files, those of flags and presets, and granted rules.
///
/// # Errors
/// Returns a [`Failure`] if the files cannot be read.
pub fn sources(
    config: &Config,
    resolved: &ResolvedConfig,
    granted: &[Source],
) -> Result<Vec<Source>, Failure> {
    let mut sources = config.policy.sources().map_err(|problems| {
        let failure = Failure::usage("the policies cannot be read");
        checked_by(failure.because(problems.to_string()), config)
    })?;
    let flags = lending::policies(config, resolved);
    if !flags.is_empty() {
        sources.push(Source::new("flags", flags));
    }
    if config.open {
        sources.push(Source::new("--learn", generate::permit_everything()));
    }
    sources.extend_from_slice(granted);
    lending::guard(&mut sources, resolved, &resolved.stored);
    Ok(sources)
}

/// Returns the origin settings, with these rules before those of the configuration.
pub fn origins(
    config: &Config,
    encoded_slash: &[OriginPattern],
    mut rules: Vec<OriginRule>,
) -> Result<OriginSettings, Failure> {
    let mut own = config.origins.clone();
    for origin in encoded_slash {
        config::Origin::keep_encoded_slash(&mut own, origin);
    }
    rules.extend(own.into_iter().map(|origin| origin.rule));
    let mut settings = config.limits.origins();
    settings.resolver = config.resolver.clone();
    settings.defaults = config.defaults.settings.clone();
    settings
        .with_rules(rules)
        .map_err(|error| Failure::new(error.to_string()).because(chain(&error)))
}

/// Reads the policies for operators.
///
/// # Errors
/// Returns a [`Failure`] with every problem.
pub fn operators(policy: Option<&PathBuf>) -> Result<Operators, Failure> {
    let Some(path) = policy else {
        return Ok(Operators::of_socket());
    };
    let refused = |problems: Problems| {
        Failure::usage("the policies for operators are refused")
            .because(problems.to_string())
            .next("see docs/control.md")
    };
    let read = Source::read(path).map_err(refused)?.into_iter();
    let text = gateway_names::join(read.map(|source| source.text), "\n");
    let source = Source::new(path.display().to_string(), text);
    Operators::load(&source).map_err(refused)
}
