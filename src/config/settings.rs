//! The sections that occur once: CA, audit, policy, runtime, resolver, limits, phantoms.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::Spanned;

use crate::audit::{self, Allowance};
use crate::body::Limit;
use crate::credential::SecretRef;
use crate::gateway::Limits;
use crate::names::SessionId;
use crate::origin::resolve::ResolverSettings;
use crate::policy::{self, Source};

use super::diagnostic::Hint;
use super::section::Section;
use super::{reference, units};

/// Settings of the session CA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ca {
    /// Where the certificate is written for clients to trust; `{session}` stands for the session's
    /// name.
    pub certificate: Option<PathBuf>,
    /// How long a session of `gateway serve` lives without being renewed, and the longest life of
    /// the certificates of hosts.
    pub lifetime: Duration,
    /// After how long without a request a session of `gateway serve` ends; `None` for never.
    pub idle: Option<Duration>,
}

/// Where sessions are kept between two starts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StateSettings {
    /// The file of the state. Without it, a file in the user's state directory is used.
    pub path: Option<PathBuf>,
    /// Where the key that seals the state is kept.
    pub key: Option<SecretRef>,
    /// Whether sessions get new phantoms and a new CA.
    pub fresh: bool,
}

/// Settings of the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audit {
    /// The log file. Without it, a file in the user's state directory is used.
    pub path: Option<PathBuf>,
    /// When a record is synced to disk.
    pub sync: audit::Durability,
    /// The size in bytes at which a new file continues the chain.
    pub rotate_bytes: u64,
    /// How much one session may write.
    pub allowance: Allowance,
}

/// Settings of the worker threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Runtime {
    /// The number of threads, each with a runtime of its own.
    pub threads: NonZeroUsize,
}

/// Where `gateway serve` writes the workload's phantoms.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PhantomFile {
    /// The file of `NAME=phantom` lines, mode 0600; `{session}` stands for the session's name.
    pub env_file: Option<PathBuf>,
}

impl Ca {
    /// Returns the certificate file of one session.
    #[must_use]
    pub fn certificate_of(&self, session: &SessionId) -> Option<PathBuf> {
        of_session(self.certificate.as_deref()?, session)
    }

    /// Whether each session has a file of its own.
    #[must_use]
    pub fn per_session(&self) -> bool {
        self.certificate.as_deref().is_some_and(names_session)
    }
}

impl PhantomFile {
    /// Returns the phantom file of one session.
    #[must_use]
    pub fn file_of(&self, session: &SessionId) -> Option<PathBuf> {
        of_session(self.env_file.as_deref()?, session)
    }

    /// Whether each session has a file of its own.
    #[must_use]
    pub fn per_session(&self) -> bool {
        self.env_file.as_deref().is_some_and(names_session)
    }
}

/// Returns the path with the session's name in place of `{session}`.
fn of_session(file: &Path, session: &SessionId) -> Option<PathBuf> {
    // A session's name may contain `/`, which must not lead to another folder. It never contains
    // `%`.
    let name = session.as_str().replace('/', "%2F");
    Some(PathBuf::from(file.to_str()?.replace(SESSION_MARK, &name)))
}

fn names_session(file: &Path) -> bool {
    file.to_string_lossy().contains(SESSION_MARK)
}

impl Default for Ca {
    fn default() -> Self {
        Self {
            certificate: None,
            lifetime: DAY,
            idle: None,
        }
    }
}

impl Default for Audit {
    fn default() -> Self {
        let audit::Settings {
            sync,
            rotate_bytes,
            allowance,
            ..
        } = audit::Settings::at(Path::new(""));
        Self {
            path: None,
            sync,
            rotate_bytes,
            allowance,
        }
    }
}

impl Default for Runtime {
    fn default() -> Self {
        Self {
            threads: NonZeroUsize::MIN,
        }
    }
}

pub(super) fn ca(section: &Section<'_, '_>) -> Ca {
    let within = |key| within(section, key, Duration::from_secs(60)..=200 * DAY);
    Ca {
        certificate: path(section, "certificate"),
        lifetime: within("lifetime").unwrap_or(Ca::default().lifetime),
        idle: within("idle"),
    }
}

pub(super) fn state(section: &Section<'_, '_>) -> StateSettings {
    StateSettings {
        path: path(section, "path"),
        key: reference::read(section, "key", ""),
        fresh: false,
    }
}

pub(super) fn audit(section: &Section<'_, '_>) -> Audit {
    let default = Audit::default();
    let sync = section.choice(
        "sync",
        &[
            ("batch", audit::Durability::Batch),
            ("always", audit::Durability::Always),
        ],
    );
    let least = |key, least: Limit, why: &'static str| {
        let size = section.parsed(key, |text| {
            let size = units::size(text)?;
            if size < least {
                return Err(Hint::new(why, format!("write {least} or more")));
            }
            Ok(size)
        });
        size.map(|size| size.into_inner().as_bytes())
    };
    let (many, little) = (
        "files of less than 1MiB would be many",
        "a session could not be served on so little",
    );
    Audit {
        path: path(section, "path"),
        sync: sync.unwrap_or(default.sync),
        rotate_bytes: least("rotate", Limit::mib(1), many).unwrap_or(default.rotate_bytes),
        allowance: Allowance {
            burst: least("session_burst", Limit::kib(64), little)
                .unwrap_or(default.allowance.burst),
            per_second: least("session_rate", Limit::kib(1), little)
                .unwrap_or(default.allowance.per_second),
        },
    }
}

pub(super) fn policy(section: &Section<'_, '_>) -> policy::Settings {
    let files = section.each("files", |text| {
        let path = section.document.path(text)?;
        Source::read(&path)?;
        Ok(path)
    });
    let rules = section.text("rules").map(|text| {
        let name = format!("{} [policy] rules", section.document.file());
        Source::new(name, *text.get_ref())
    });
    policy::Settings {
        files: files.into_iter().map(Spanned::into_inner).collect(),
        rules,
    }
}

pub(super) fn runtime(section: &Section<'_, '_>) -> Runtime {
    let threads = section
        .count("threads", 1..=256)
        .and_then(|count| usize::try_from(count).ok());
    threads
        .and_then(NonZeroUsize::new)
        .map_or_else(Runtime::default, |threads| Runtime { threads })
}

pub(super) fn resolver(section: &Section<'_, '_>) -> ResolverSettings {
    let servers = section.each("servers", |text| {
        let server = text
            .parse::<SocketAddr>()
            .or_else(|_| {
                text.parse::<IpAddr>()
                    .map(|address| SocketAddr::new(address, 53))
            })
            .map_err(|_| Hint::new("it is no address", "write for example `127.0.0.1:53`"))?;
        if server.ip().is_unspecified() || server.ip().is_multicast() || server.port() == 0 {
            return Err(Hint::new(
                "no name server has that address",
                "write the address of the name server",
            ));
        }
        Ok(server)
    });
    if section.has("servers") && servers.is_empty() {
        section.error(
            "servers",
            "`servers` names no name server",
            Hint::new(
                "names could not be resolved",
                "remove the key to ask the system's",
            ),
        );
    }
    let default = ResolverSettings::default();
    ResolverSettings {
        servers: servers.into_iter().map(Spanned::into_inner).collect(),
        hosts_file: section.truth("hosts_file").unwrap_or(default.hosts_file),
        stale: within(section, "stale", Duration::ZERO..=DAY).unwrap_or(default.stale),
    }
}

pub(super) fn limits(section: &Section<'_, '_>) -> Limits {
    let mut limits = Limits::default();
    let long = Duration::from_secs(1)..=DAY;
    let count = |key, most: u64| {
        section
            .count(key, 1..=most)
            .and_then(|count| usize::try_from(count).ok())
    };
    limits.connections_per_session =
        count("connections_per_session", 1_000_000).unwrap_or(limits.connections_per_session);
    limits.connections = count("connections", 1_000_000).unwrap_or(limits.connections);
    limits.exchanges_per_session =
        count("exchanges_per_session", 1_000_000).unwrap_or(limits.exchanges_per_session);
    limits.cached_certificates =
        count("cached_certificates", 100_000).unwrap_or(limits.cached_certificates);
    for (key, place) in [
        ("max_buffered_request", &mut limits.max_buffered_request),
        ("max_buffered_total", &mut limits.max_buffered_total),
        ("max_decoder_memory", &mut limits.max_decoder_memory),
    ] {
        if let Some(size) = section.parsed(key, units::size) {
            *place = size.into_inner();
        }
    }
    let streams = section
        .count("streams_per_connection", 1..=10_000)
        .and_then(|count| u32::try_from(count).ok());
    limits.streams_per_connection = streams.unwrap_or(limits.streams_per_connection);
    for (key, place) in [
        ("head_timeout", &mut limits.head_timeout),
        ("handshake_timeout", &mut limits.handshake_timeout),
        ("connect_timeout", &mut limits.connect_timeout),
        ("idle_timeout", &mut limits.idle_timeout),
        ("progress_timeout", &mut limits.progress_timeout),
        ("drain_timeout", &mut limits.drain_timeout),
    ] {
        *place = within(section, key, long.clone()).unwrap_or(*place);
    }
    refuse_contradictions(&limits, section);
    limits
}

/// Refuses a limit of the whole that is less than that of a part.
fn refuse_contradictions(limits: &Limits, section: &Section<'_, '_>) {
    if limits.connections < limits.connections_per_session {
        let why = "one session could not reach its own limit";
        let remedy = "raise `connections`, or lower `connections_per_session`";
        section.document.error(
            &section.span,
            "`connections` is less than `connections_per_session`",
            Hint::new(why, remedy),
        );
    }
    if limits.max_buffered_total < limits.max_buffered_request {
        let why = "one request could not reach its own limit";
        let remedy = "raise `max_buffered_total`, or lower `max_buffered_request`";
        section.document.error(
            &section.span,
            "`max_buffered_total` is less than `max_buffered_request`",
            Hint::new(why, remedy),
        );
    }
}

pub(super) fn phantoms(section: &Section<'_, '_>) -> PhantomFile {
    PhantomFile {
        env_file: path(section, "env_file"),
    }
}

pub(super) fn path(section: &Section<'_, '_>, key: &'static str) -> Option<PathBuf> {
    section
        .parsed(key, |text| section.document.path(text))
        .map(Spanned::into_inner)
}

fn within(
    section: &Section<'_, '_>,
    key: &'static str,
    range: std::ops::RangeInclusive<Duration>,
) -> Option<Duration> {
    let duration = section.parsed(key, |text| {
        let duration = units::duration(text)?;
        if range.contains(&duration) {
            return Ok(duration);
        }
        let (least, most) = (
            units::show_duration(*range.start()),
            units::show_duration(*range.end()),
        );
        Err(Hint::new(
            format!("it is outside {least} to {most}"),
            "write a duration within that range",
        ))
    });
    duration.map(Spanned::into_inner)
}

const DAY: Duration = Duration::from_secs(86_400);
const SESSION_MARK: &str = "{session}";
