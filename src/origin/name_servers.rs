//! Asks name servers: in their order, the next one as well when one is silent.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{NameServerConfig, ResolveHosts, ResolverConfig};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::RecordType;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::answers::{Family, FamilyAnswer};

/// How long a name server may be silent before the next one is asked as well.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a silent name server comes last. After that it is tried again beside another, so that
/// the trial costs no time.
const LAST_FOR: Duration = Duration::from_secs(30);
/// How long a name server may take to answer. Meanwhile it is asked by UDP several times.
const TIMEOUT: Duration = Duration::from_secs(5);
/// A long TTL must not pin an old address.
const LONGEST_TTL: u32 = 300;
/// A name that did not exist may do so soon.
const LONGEST_NEGATIVE_TTL: u32 = 10;
/// How many addresses of an answer are kept.
const MOST_ADDRESSES: usize = 64;
/// The largest answer that fits every network path by UDP (DNS flag day 2020). A larger one comes
/// by TCP.
const UDP_PAYLOAD: u16 = 1232;

/// Name servers in the order in which they are asked.
pub(super) struct NameServers(Vec<Arc<NameServer>>);

impl NameServers {
    /// Servers at these addresses, by UDP and TCP.
    ///
    /// # Errors
    /// If the resolver cannot be built.
    pub(super) fn at(addresses: &[SocketAddr]) -> Result<Self, NetError> {
        let servers = addresses.iter().map(|address| {
            let mut config = NameServerConfig::udp_and_tcp(address.ip());
            for connection in &mut config.connections {
                connection.port = address.port();
            }
            config
        });
        Self::new(servers)
    }

    /// The servers of a `resolv.conf`.
    ///
    /// # Errors
    /// If it names none.
    pub(super) fn of_resolv_conf(text: &[u8]) -> Result<Self, NetError> {
        let (config, _) = hickory_resolver::system_conf::parse_resolv_conf(text)?;
        Self::new(config.name_servers().iter().cloned())
    }

    fn new(servers: impl Iterator<Item = NameServerConfig>) -> Result<Self, NetError> {
        let servers = servers.map(|server| NameServer::new(server).map(Arc::new));
        servers.collect::<Result<_, _>>().map(Self)
    }

    /// Asks for one family of an absolute name. The first server that answers decides, also if it
    /// says that there is none. One that fails to answer makes way for the next at once.
    ///
    /// # Errors
    /// The last failure, if no server answered.
    pub(super) async fn ask(&self, name: &str, family: Family) -> Result<FamilyAnswer, NetError> {
        let mut plan = self.plan(Instant::now()).into_iter();
        let mut asking = JoinSet::new();
        let mut failure = NetError::NoConnections;
        let mut next_at = Instant::now();
        loop {
            if asking.is_empty() && plan.len() == 0 {
                return Err(failure);
            }
            let waiting = !asking.is_empty();
            tokio::select! {
                () = sleep_until(next_at), if plan.len() > 0 => {
                    if let Some((server, patience)) = plan.next() {
                        asking.spawn(server.ask(name.to_owned(), family));
                        next_at = Instant::now() + patience;
                    }
                }
                Some(ended) = asking.join_next(), if waiting => match ended {
                    Ok(Ok(answer)) => return Ok(answer),
                    Ok(Err(error)) => { failure = error; next_at = Instant::now(); }
                    Err(_) => next_at = Instant::now(),
                },
            }
        }
    }

    /// The servers, each with how long to wait for it before the next is asked as well: those that
    /// answer first, those that were silent last.
    fn plan(&self, now: Instant) -> Vec<(Arc<NameServer>, Duration)> {
        let (mut plan, mut silent) = (Vec::new(), Vec::new());
        for server in &self.0 {
            let standing = server.standing(now);
            let list = match standing {
                Standing::Silent => &mut silent,
                Standing::Answers | Standing::OnTrial => &mut plan,
            };
            let patience = match standing {
                Standing::OnTrial => Duration::ZERO,
                Standing::Answers | Standing::Silent => PATIENCE,
            };
            list.push((Arc::clone(server), patience));
        }
        plan.append(&mut silent);
        plan
    }
}

/// What a name server's past says about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// It was not silent lately.
    Answers,
    /// It was silent lately.
    Silent,
    /// It was silent, and may answer by now.
    OnTrial,
}

struct NameServer {
    resolver: TokioResolver,
    history: Mutex<History>,
}

#[derive(Default)]
struct History {
    heard: Option<Instant>,
    silent: Option<Instant>,
}

impl NameServer {
    /// A server without a past. hickory speaks the protocol with it: retransmission by UDP, TCP
    /// for long answers, ids, ports, and CNAME records.
    fn new(server: NameServerConfig) -> Result<Self, NetError> {
        let config = ResolverConfig::from_parts(None, Vec::new(), vec![server]);
        let mut builder =
            TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        let options = builder.options_mut();
        options.timeout = TIMEOUT;
        options.attempts = 0;
        options.edns0 = true;
        options.edns_payload_len = UDP_PAYLOAD;
        // Hosts file and cache stand before the servers (`resolve`), for all of them together.
        options.use_hosts_file = ResolveHosts::Never;
        options.cache_size = 0;
        Ok(Self {
            resolver: builder.build()?,
            history: Mutex::default(),
        })
    }

    async fn ask(self: Arc<Self>, name: String, family: Family) -> Result<FamilyAnswer, NetError> {
        let kind = match family {
            Family::V6 => RecordType::AAAA,
            Family::V4 => RecordType::A,
        };
        let waiting = Waiting::new(&self);
        let answered = self.resolver.lookup(name, kind).await;
        match &answered {
            Err(NetError::Timeout | NetError::Io(_) | NetError::NoConnections) => {
                waiting.failed();
            }
            _ => waiting.heard(),
        }
        read(answered)
    }

    fn standing(&self, now: Instant) -> Standing {
        let mut past = self.history.lock();
        match past.silent {
            None => Standing::Answers,
            Some(since) if now < since + LAST_FOR => Standing::Silent,
            Some(_) => {
                // One query at a time tries it.
                past.silent = Some(now);
                Standing::OnTrial
            }
        }
    }
}

/// Reads a server's answer. That a name has no such address, or does not exist, is an answer.
fn read(answered: Result<Lookup, NetError>) -> Result<FamilyAnswer, NetError> {
    let seconds = |ttl: u32| Duration::from_secs(ttl.into());
    match answered {
        Ok(found) => {
            let records = found.answers().iter();
            let shortest = records.clone().map(|record| record.ttl).min();
            let addresses = records.filter_map(|record| record.data.ip_addr());
            Ok(FamilyAnswer {
                addresses: addresses.take(MOST_ADDRESSES).collect(),
                ttl: seconds(shortest.unwrap_or(0).min(LONGEST_TTL)),
                nonexistent: false,
            })
        }
        Err(NetError::Dns(DnsError::NoRecordsFound(none))) => Ok(FamilyAnswer {
            addresses: Vec::new(),
            ttl: seconds(none.negative_ttl.unwrap_or(0).min(LONGEST_NEGATIVE_TTL)),
            nonexistent: none.response_code == ResponseCode::NXDomain,
        }),
        Err(error) => Err(error),
    }
}

/// A query under way. If it is dropped after a while without an answer, the server was silent.
struct Waiting<'a> {
    server: &'a NameServer,
    since: Instant,
    over: bool,
}

impl<'a> Waiting<'a> {
    fn new(server: &'a NameServer) -> Self {
        Self {
            server,
            since: Instant::now(),
            over: false,
        }
    }

    fn heard(mut self) {
        self.over = true;
        *self.server.history.lock() = History {
            heard: Some(Instant::now()),
            silent: None,
        };
    }

    fn failed(mut self) {
        self.over = true;
        self.silent();
    }

    /// A server that answered something else meanwhile is not silent: the name is slow.
    fn silent(&self) {
        let mut past = self.server.history.lock();
        if past.heard.is_none_or(|heard| heard < self.since) {
            past.silent = Some(Instant::now());
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.over && self.since.elapsed() >= PATIENCE {
            self.silent();
        }
    }
}
