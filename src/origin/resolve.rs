//! Resolves names to addresses. The gateway does this itself, and only after authorization (R3).
//!
//! The hosts file comes first, and is final for every name in it, as with `hosts: files dns` in
//! nsswitch.conf. Other names are queried from the name servers.

use std::error::Error;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hickory_resolver::Hosts;
use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::{Name, RecordType};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use super::answer_cache::{AnswerCache, CachedAnswer};
use super::name_servers::NameServers;
use super::system_file::{FileError, SystemFile};

pub use super::answer_cache::Family;

/// A lookup in progress.
pub type Resolution<'a> =
    Pin<Box<dyn Future<Output = Result<Vec<IpAddr>, Unresolved>> + Send + 'a>>;

/// A name has no address, or no name server answered.
#[derive(Debug, thiserror::Error)]
#[error("the name could not be resolved")]
pub struct Unresolved(#[source] Option<Box<dyn Error + Send + Sync>>);

impl Unresolved {
    /// Returns the error for a name without an address.
    pub(super) fn without_address() -> Self {
        Self(None)
    }
}

/// Resolves a canonical host name to addresses.
pub trait Resolve: Send + Sync {
    /// Returns the addresses of one family; none if the name has none of it.
    fn resolve<'a>(&'a self, name: &'a str, family: Family) -> Resolution<'a>;

    /// Notes that a family's answer was late and not needed, because the other family connected.
    fn was_late(&self, name: &str, family: Family);
}

/// The settings of name resolution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolverSettings {
    /// The addresses of the name servers; if empty, the system's are used.
    pub servers: Vec<SocketAddr>,
    /// Whether the machine's hosts file is used.
    pub hosts_file: bool,
    /// How long an answer is used beyond its TTL, if no name server answers.
    pub stale: Duration,
}

impl Default for ResolverSettings {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            hosts_file: true,
            stale: Duration::from_secs(86_400),
        }
    }
}

/// The stub resolver with its cache. Each runtime thread has one, because its tasks run there.
pub struct StubResolver {
    hosts: Option<SystemFile<Hosts>>,
    servers: Servers,
    answers: Mutex<AnswerCache>,
}

enum Servers {
    Given(Arc<NameServers>),
    Systems(SystemFile<NameServers>),
}

/// The system's resolver configuration cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the resolver could not be set up; name servers can be given as `[resolver] servers`")]
pub struct ResolverUnusable(#[source] FileError);

impl StubResolver {
    /// Returns a resolver with these settings.
    ///
    /// # Errors
    /// [`ResolverUnusable`] if the system's configuration is unreadable or malformed. While it is
    /// missing, lookups fail.
    pub fn new(settings: &ResolverSettings) -> Result<Self, ResolverUnusable> {
        let servers = if settings.servers.is_empty() {
            SystemFile::open("/etc/resolv.conf", system_servers).map(Servers::Systems)
        } else {
            let servers = NameServers::at(&settings.servers);
            servers
                .map(|servers| Servers::Given(Arc::new(servers)))
                .map_err(FileError::from)
        };
        let hosts = settings.hosts_file.then_some("/etc/hosts");
        let hosts = hosts.map(|path| SystemFile::open(path, hosts_file));
        Ok(Self {
            hosts: hosts.transpose().map_err(ResolverUnusable)?,
            servers: servers.map_err(ResolverUnusable)?,
            answers: Mutex::new(AnswerCache::new(settings.stale)),
        })
    }

    /// Returns the addresses of a name in the hosts file; `None` if no line has the name.
    fn listed(&self, name: &str, family: Family) -> Option<Vec<IpAddr>> {
        let hosts = self.hosts.as_ref()?.current()?;
        let name = Name::from_ascii(name).ok()?;
        let of = |kind| {
            let found = hosts.lookup_static_host(&Query::query(name.clone(), kind))?;
            let addresses = found.answers().iter();
            Some(
                addresses
                    .filter_map(|record| record.data.ip_addr())
                    .collect(),
            )
        };
        let (six, four): (Option<Vec<IpAddr>>, Option<Vec<IpAddr>>) =
            (of(RecordType::AAAA), of(RecordType::A));
        if six.is_none() && four.is_none() {
            return None;
        }
        let wanted = match family {
            Family::V6 => six,
            Family::V4 => four,
        };
        Some(wanted.unwrap_or_default())
    }

    async fn lookup(&self, name: &str, family: Family) -> Result<Vec<IpAddr>, Unresolved> {
        if let Some(listed) = self.listed(name, family) {
            return Ok(listed);
        }
        let recalled = self.answers.lock().recall(name, family, Instant::now());
        let patience = match recalled {
            CachedAnswer::Addresses(addresses) => return Ok(addresses),
            CachedAnswer::Silence => return Err(Unresolved(Some(FileError::from(SILENT)))),
            CachedAnswer::Nothing { stale: true } => STALE_PATIENCE,
            CachedAnswer::Nothing { stale: false } => PATIENCE,
        };
        let error = match timeout(patience, self.ask(name, family)).await {
            Ok(Ok(addresses)) => return Ok(addresses),
            Ok(Err(error)) => error,
            Err(_) => FileError::from(SILENT),
        };
        let mut answers = self.answers.lock();
        let stale = answers.unanswered(name, family, SILENCE, Instant::now());
        stale.ok_or(Unresolved(Some(error)))
    }

    /// Queries the name servers, and keeps their answer.
    async fn ask(&self, name: &str, family: Family) -> Result<Vec<IpAddr>, FileError> {
        let servers = match &self.servers {
            Servers::Given(servers) => Arc::clone(servers),
            Servers::Systems(file) => file.current().ok_or(FileError::from(NO_SERVERS))?,
        };
        // The final dot disables the search list: a name is resolved as it was authorized, never
        // with a suffix.
        let answer = servers.ask(&format!("{name}."), family).await?;
        let mut answers = self.answers.lock();
        answers.keep(name, family, &answer, Instant::now());
        Ok(answer.addresses)
    }
}

impl Resolve for StubResolver {
    fn resolve<'a>(&'a self, name: &'a str, family: Family) -> Resolution<'a> {
        Box::pin(self.lookup(name, family))
    }

    fn was_late(&self, name: &str, family: Family) {
        self.answers
            .lock()
            .late(name, family, Instant::now() + LATE);
    }
}

fn system_servers(path: &Path) -> Result<NameServers, FileError> {
    Ok(NameServers::of_resolv_conf(&std::fs::read(path)?)?)
}

/// Reads a hosts file. A missing file lists no name.
fn hosts_file(path: &Path) -> Result<Hosts, FileError> {
    let mut hosts = Hosts::default();
    match std::fs::read(path) {
        // A comment may be in any encoding.
        Ok(text) => hosts.read_hosts_conf(String::from_utf8_lossy(&text).as_bytes())?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(error.into()),
    }
    Ok(hosts)
}

const NO_SERVERS: &str =
    "no /etc/resolv.conf names a server, and neither does `[resolver] servers`";
const SILENT: &str = "no name server answered in time";
/// How long all name servers together may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long they may take if there is an older answer (RFC 8767 §5).
const STALE_PATIENCE: Duration = Duration::from_millis(1800);
/// How long no server is queried after none answered (RFC 9520 §3.2).
const SILENCE: Duration = Duration::from_secs(1);
/// How long a late family is not waited for.
const LATE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: impl AsRef<[u8]>) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, text).unwrap();
        file
    }

    #[test]
    fn a_hosts_file_that_is_not_there_lists_nothing_and_odd_lines_are_passed_over() {
        assert!(hosts_file(Path::new("/nonexistent/hosts")).is_ok());
        let file = file(b"nonsense\n192.0.2.7 Here.Test there.test # not.test \xe9\n::1\n");
        let hosts = hosts_file(file.path()).unwrap();
        let has = |name: &str| {
            let name = Name::from_ascii(name).unwrap();
            hosts
                .lookup_static_host(&Query::query(name, RecordType::A))
                .is_some()
        };
        assert!(has("here.test") && has("there.test"));
        assert!(!has("not.test"));
    }

    #[test]
    fn a_resolv_conf_without_a_server_is_refused() {
        assert!(system_servers(file("search a.test\n").path()).is_err());
        assert!(system_servers(file("nameserver 192.0.2.1\n").path()).is_ok());
    }
}
