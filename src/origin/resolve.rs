//! Resolves names to addresses. The gateway does this itself, and only after authorization (R3).

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;

/// A resolution in progress.
pub type Resolution<'a> =
    Pin<Box<dyn Future<Output = Result<Vec<IpAddr>, Unresolved>> + Send + 'a>>;

/// A name has no address, or no name server answered.
#[derive(Debug, thiserror::Error)]
#[error("the name could not be resolved")]
pub struct Unresolved(#[source] Option<Box<dyn std::error::Error + Send + Sync>>);

/// Turns a canonical host name into addresses.
pub trait Resolve: Send + Sync {
    /// Every address of the name, in the order in which they should be tried.
    fn resolve<'a>(&'a self, name: &'a str) -> Resolution<'a>;
}

/// Where DNS queries go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolverSettings {
    /// Addresses of the name servers; if empty, those of the system.
    pub servers: Vec<SocketAddr>,
    /// Whether the machine's hosts file is used.
    pub hosts_file: bool,
}

impl Default for ResolverSettings {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            hosts_file: true,
        }
    }
}

/// The stub resolver of hickory with its cache. Each runtime thread has one, because its tasks run
/// there.
pub struct StubResolver(TokioResolver);

/// The system's resolver configuration cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the resolver could not be set up; name servers can be given as `[resolver] servers`")]
pub struct ResolverUnusable(#[source] Box<dyn std::error::Error + Send + Sync>);

impl StubResolver {
    /// A resolver with these settings.
    ///
    /// # Errors
    /// [`ResolverUnusable`] if the system's configuration is missing or malformed.
    pub fn new(settings: &ResolverSettings) -> Result<Self, ResolverUnusable> {
        let provider = TokioRuntimeProvider::default();
        let mut builder = if settings.servers.is_empty() {
            TokioResolver::builder(provider).map_err(|error| ResolverUnusable(Box::new(error)))?
        } else {
            let servers = settings.servers.iter().map(|server| {
                let mut config = NameServerConfig::udp_and_tcp(server.ip());
                for connection in &mut config.connections {
                    connection.port = server.port();
                }
                config
            });
            TokioResolver::builder_with_config(
                ResolverConfig::from_name_servers(servers.collect()),
                provider,
            )
        };
        let options = builder.options_mut();
        options.ip_strategy = LookupIpStrategy::Ipv6AndIpv4;
        options.use_hosts_file = if settings.hosts_file {
            ResolveHosts::Always
        } else {
            ResolveHosts::Never
        };
        // A long TTL must not pin a stale address, and a huge one must not keep cache entries
        // without bound.
        options.positive_max_ttl = Some(std::time::Duration::from_secs(300));
        options.negative_max_ttl = Some(std::time::Duration::from_secs(10));
        builder
            .build()
            .map(Self)
            .map_err(|error| ResolverUnusable(Box::new(error)))
    }
}

impl Resolve for StubResolver {
    fn resolve<'a>(&'a self, name: &'a str) -> Resolution<'a> {
        Box::pin(async move {
            // The final dot disables the search list: a name is resolved as it was judged, never
            // with a suffix.
            let absolute = format!("{name}.");
            let found = self
                .0
                .lookup_ip(absolute)
                .await
                .map_err(|error| Unresolved(Some(Box::new(error))))?;
            let addresses: Vec<IpAddr> = found.iter().collect();
            if addresses.is_empty() {
                Err(Unresolved(None))
            } else {
                Ok(interleaved(addresses))
            }
        })
    }
}

/// Orders addresses so that the families alternate, IPv6 first (RFC 8305 §4).
fn interleaved(addresses: Vec<IpAddr>) -> Vec<IpAddr> {
    let (six, four): (Vec<_>, Vec<_>) = addresses.into_iter().partition(IpAddr::is_ipv6);
    let (mut six, mut four) = (six.into_iter(), four.into_iter());
    let mut out = Vec::new();
    loop {
        let (a, b) = (six.next(), four.next());
        if a.is_none() && b.is_none() {
            return out;
        }
        out.extend(a);
        out.extend(b);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_alternate_with_ipv6_first() {
        let addresses = ["1.1.1.1", "1.1.1.2", "2001::1"].map(|text| text.parse().unwrap());
        let ordered: Vec<String> = interleaved(addresses.to_vec())
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(ordered, ["2001::1", "1.1.1.1", "1.1.1.2"]);
    }
}
