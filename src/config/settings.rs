//! The sections that occur once: CA, audit, policy, runtime, resolver, limits, phantoms.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gateway_audit::{self as audit, Allowance};
use gateway_body::Limit;
use gateway_credential::SecretRef;
use gateway_names::SessionId;
use gateway_origin::resolve::ResolverSettings;
use gateway_policy::{self as policy, Source};
use gateway_server::Limits;
use gateway_state::PostgresUrl;
use rustls::pki_types::CertificateDer;

use super::diagnostic::Hint;
use super::section::Section;
use super::{reference, units};

/// Settings of the session CA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ca {
    /// The file that the certificate is written to, for clients to trust; `{session}` stands for
    /// the session's name.
    pub certificate: Option<PathBuf>,
    /// How long a session of `gateway serve` lives without being renewed, and the longest life of
    /// the certificates of hosts.
    pub lifetime: Duration,
    /// The idle time after which a session of `gateway serve` ends; `None` for never.
    pub idle: Option<Duration>,
}

/// Where sessions are stored between two starts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StateSettings {
    /// The file of the state. Without it, a file in the user's state directory is used.
    pub path: Option<PathBuf>,
    /// The reference of the key that seals the state.
    pub key: Option<SecretRef>,
    /// Whether sessions get new phantoms and a new CA.
    pub fresh: bool,
    /// The server that keeps the state of several gateways.
    pub fleet: Option<FleetSettings>,
}

/// The server of a fleet's state, and this replica of the fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetSettings {
    /// Its address.
    pub url: PostgresUrl,
    /// The reference of its password, if it asks for one.
    pub password: Option<SecretRef>,
    /// Roots that its certificate may have beside the system's, and their files.
    pub roots: (Vec<PathBuf>, Vec<CertificateDer<'static>>),
    /// The name of this replica, which no other has.
    pub replica: String,
    /// How long it goes on without the server.
    pub stale_after: Duration,
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
    /// The amount that one session may write.
    pub allowance: Allowance,
}

/// Settings of the worker threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Runtime {
    /// The number of threads, each with a runtime of its own.
    pub threads: NonZeroUsize,
}

/// The file that `gateway serve` writes the workload's phantoms to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PhantomFile {
    /// The file of `NAME=phantom` lines, mode 0600; `{session}` stands for the session's name.
    pub env_file: Option<PathBuf>,
}

impl Ca {
    /// Returns the certificate file of one session.
    pub fn certificate_of(&self, session: &SessionId) -> Option<PathBuf> {
        of_session(self.certificate.as_deref()?, session)
    }

    /// Whether each session has a file of its own.
    pub fn per_session(&self) -> bool {
        self.certificate.as_deref().is_some_and(names_session)
    }
}

impl PhantomFile {
    /// Returns the phantom file of one session.
    pub fn file_of(&self, session: &SessionId) -> Option<PathBuf> {
        of_session(self.env_file.as_deref()?, session)
    }

    /// Whether each session has a file of its own.
    pub fn per_session(&self) -> bool {
        self.env_file.as_deref().is_some_and(names_session)
    }
}

/// Returns the path with the session's name in place of `{session}`.
fn of_session(file: &Path, session: &SessionId) -> Option<PathBuf> {
    // A session's name may contain `/`, which must not lead to another folder, and `:`, which ends
    // a path in `docker -v` and which not every file system takes. It never contains `%`.
    let name = session.as_str().replace('/', "%2F").replace(':', "%3A");
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
        let default = audit::Settings::at(Path::new(""));
        Self {
            path: None,
            sync: default.sync,
            rotate_bytes: default.rotate_bytes,
            allowance: default.allowance,
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
        certificate: section.path("certificate"),
        lifetime: within("lifetime").unwrap_or(DAY),
        idle: within("idle"),
    }
}

pub(super) fn state(section: &Section<'_, '_>) -> StateSettings {
    StateSettings {
        path: section.path("path"),
        key: reference::read(section, "key", ""),
        fresh: false,
        fleet: fleet(section),
    }
}

fn fleet(section: &Section<'_, '_>) -> Option<FleetSettings> {
    let url = section.get("url", |text| {
        PostgresUrl::parse(text).map_err(|(why, next)| hint!("{why}"; "{next}"))
    });
    let password = reference::local(section, "password");
    let roots = section.roots("roots");
    let replica = section.get("replica", |text| {
        let fits = |char: char| char.is_ascii_alphanumeric() || "._-".contains(char);
        if (1..=63).contains(&text.len()) && text.chars().all(fits) {
            Ok(text.to_owned())
        } else {
            refused!("it is no name of a replica"; "write 1 to 63 letters, digits, `.`, `_`, `-`")
        }
    });
    let stale_after = within(section, "stale_after", LONGEST_LEASE);
    if !section.has("url") {
        for key in ["password", "roots", "replica", "stale_after"] {
            if section.has(key) {
                mistake!(section, key, "`{key}` is about the server of a fleet's state";
                    "the state is in a file"; "add `url = \"postgres://…\"`, or leave it out");
            }
        }
        return None;
    }
    require!(section, "key"; "every replica seals and opens the state with one key";
        "make one: `openssl rand -base64 32`, and write `key = \"file:/path\"`");
    if section.has("path") {
        mistake!(section, "path", "`path` and `url` name two places of one state";
            "a state is kept once"; "leave `path` out");
    }
    let host = || {
        rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned()
    };
    Some(FleetSettings {
        url: url?,
        password,
        roots,
        replica: replica.unwrap_or_else(host),
        stale_after: stale_after.unwrap_or(Duration::from_secs(5)),
    })
}

/// How long a lease of a replica may be. A command that narrows may wait for one.
pub const LONGEST_LEASE: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(20);

pub(super) fn audit(section: &Section<'_, '_>) -> Audit {
    let default = Audit::default();
    let (batch, always) = (audit::Durability::Batch, audit::Durability::Always);
    let sync = section.choice("sync", &[("batch", batch), ("always", always)]);
    let least = |key, least: Limit, why: &'static str| {
        let size = section.get(key, |text| match units::size(text)? {
            size if size < least => refused!("{why}"; "write {least} or more"),
            size => Ok(size),
        });
        size.map(Limit::as_bytes)
    };
    let little = "a session could not be served on so little";
    let rotate = least(
        "rotate",
        Limit::mib(1),
        "files of less than 1MiB would be many",
    );
    let burst = least("session_burst", Limit::kib(64), little);
    let per_second = least("session_rate", Limit::kib(1), little);
    Audit {
        path: section.path("path"),
        sync: sync.unwrap_or(default.sync),
        rotate_bytes: rotate.unwrap_or(default.rotate_bytes),
        allowance: Allowance {
            burst: burst.unwrap_or(default.allowance.burst),
            per_second: per_second.unwrap_or(default.allowance.per_second),
        },
    }
}

/// Reads the path of a policy file, or a pattern of several, and checks that they can be read.
pub(super) fn policy_file(section: &Section<'_, '_>, text: &str) -> Result<PathBuf, Hint> {
    let path = section.document.path(text)?;
    Source::read(&path)?;
    Ok(path)
}

pub(super) fn policy(section: &Section<'_, '_>) -> policy::Settings {
    let name = format!("{} [policy] rules", section.document.file());
    let rules = section.text("rules");
    policy::Settings {
        files: section.all("files", |text| policy_file(section, text)),
        rules: rules.map(|text| Source::new(name, *text.get_ref())),
    }
}

pub(super) fn runtime(section: &Section<'_, '_>) -> Runtime {
    let threads = section
        .count("threads", 1..=256)
        .and_then(NonZeroUsize::new);
    threads.map_or_else(Runtime::default, |threads| Runtime { threads })
}

pub(super) fn resolver(section: &Section<'_, '_>) -> ResolverSettings {
    let servers = section.all("servers", |text| {
        let of_ip = |_| text.parse().map(|ip: IpAddr| SocketAddr::new(ip, 53));
        let server: SocketAddr = text
            .parse()
            .or_else(of_ip)
            .map_err(|_| hint!("it is no address"; "write for example `127.0.0.1:53`"))?;
        if server.ip().is_unspecified() || server.ip().is_multicast() || server.port() == 0 {
            return refused!("no name server has that address";
                "write the address of the name server");
        }
        Ok(server)
    });
    if section.has("servers") && servers.is_empty() {
        mistake!(section, "servers", "`servers` names no name server";
            "names could not be resolved"; "remove the key to ask the system's");
    }
    let default = ResolverSettings::default();
    ResolverSettings {
        servers,
        hosts_file: section.truth("hosts_file").unwrap_or(default.hosts_file),
        stale: within(section, "stale", Duration::ZERO..=DAY).unwrap_or(default.stale),
    }
}

/// Limits of callers' sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionSettings {
    /// The largest number of sessions.
    pub most: usize,
}

impl Default for SessionSettings {
    fn default() -> Self {
        Self { most: 1024 }
    }
}

pub(super) fn sessions(section: &Section<'_, '_>) -> SessionSettings {
    let most = section.count("most", 1..=10_000);
    most.map_or_else(SessionSettings::default, |most| SessionSettings { most })
}

pub(super) fn limits(section: &Section<'_, '_>) -> Limits {
    let mut limits = Limits::default();
    macro_rules! read {
        ($($key:ident)*, $read:expr) => {
            $(limits.$key = $read(stringify!($key)).unwrap_or(limits.$key);)*
        };
    }
    read!(streams_per_connection, |key| section.count(key, 1..=10_000));
    read!(
        connections_per_session connections exchanges_per_session,
        |key| section.count(key, 1..=1_000_000)
    );
    read!(cached_certificates, |key| section.count(key, 1..=100_000));
    read!(
        max_buffered_request max_buffered_total max_decoder_memory,
        |key| section.get(key, units::size)
    );
    read!(
        head_timeout handshake_timeout connect_timeout idle_timeout progress_timeout drain_timeout,
        |key| within(section, key, Duration::from_secs(1)..=DAY)
    );
    refuse_contradictions(&limits, section);
    limits
}

/// Refuses a limit that is less than the limit of its part.
fn refuse_contradictions(limits: &Limits, section: &Section<'_, '_>) {
    let (document, span) = (section.document, &section.span);
    if limits.connections < limits.connections_per_session {
        mistake!(document, span, "`connections` is less than `connections_per_session`";
            "one session could not reach its own limit";
            "raise `connections`, or lower `connections_per_session`");
    }
    if limits.max_buffered_total < limits.max_buffered_request {
        mistake!(document, span, "`max_buffered_total` is less than `max_buffered_request`";
            "one request could not reach its own limit";
            "raise `max_buffered_total`, or lower `max_buffered_request`");
    }
}

pub(super) fn phantoms(section: &Section<'_, '_>) -> PhantomFile {
    PhantomFile {
        env_file: section.path("env_file"),
    }
}

fn within(
    section: &Section<'_, '_>,
    key: &'static str,
    range: RangeInclusive<Duration>,
) -> Option<Duration> {
    section.get(key, |text| units::within(text, range))
}

const DAY: Duration = Duration::from_secs(86_400);
const SESSION_MARK: &str = "{session}";
