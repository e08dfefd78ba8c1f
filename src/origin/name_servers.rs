//! Asks name servers: in their order, the next one as well when one takes its time.

use std::collections::BTreeMap;
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
use tokio::runtime::Handle;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};

use super::answers::{Family, FamilyAnswer};

/// How long a name server has before the next one is asked as well. With what else a request
/// takes, a dead one costs less than a tenth of a second.
const HEAD_START: Duration = Duration::from_millis(50);
/// How long a name server has before a denial of a later one counts instead, and before it is
/// checked whether it is there.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a silent name server comes last. After that it is tried again together with another, so
/// that the trial costs no time.
const LAST_FOR: Duration = Duration::from_secs(30);
/// How long a name server may take to answer. Until then it is asked by UDP several times.
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

    /// Asks for one family of an absolute name. The first server that knows addresses decides. A
    /// denial is an answer as well, but not while a server before it still has its second: with
    /// split DNS, only the first may know the name. A server that fails to answer makes way for
    /// the next at once.
    ///
    /// # Errors
    /// The last failure, if no server answered.
    pub(super) async fn ask(&self, name: &str, family: Family) -> Result<FamilyAnswer, NetError> {
        let mut plan = self.plan(Instant::now()).into_iter().enumerate();
        let mut asking = OpenQueries::default();
        let mut failure = NetError::NoConnections;
        let mut next_at = Instant::now();
        loop {
            if let Some(denial) = asking.settled(Instant::now()) {
                return Ok(denial);
            }
            if asking.queries.is_empty() && plan.len() == 0 {
                return Err(failure);
            }
            let is_denied = asking.denial.is_some();
            tokio::select! {
                () = sleep_until(next_at), if plan.len() > 0 && !is_denied => {
                    if let Some((place, (server, head_start))) = plan.next() {
                        asking.begin(place, head_start, server.ask(name.to_owned(), family));
                        next_at = Instant::now() + head_start;
                    }
                }
                () = sleep_until(asking.awaited_until().unwrap_or(next_at)), if is_denied => {}
                Some(ended) = asking.queries.join_next(), if !asking.queries.is_empty() => {
                    match asking.ended(ended) {
                        Some(Ok(answer)) => return Ok(answer),
                        Some(Err(error)) => { failure = error; next_at = Instant::now(); }
                        None => {}
                    }
                }
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
            let head_start = match standing {
                Standing::OnTrial => Duration::ZERO,
                Standing::Answers | Standing::Silent => HEAD_START,
            };
            list.push((Arc::clone(server), head_start));
        }
        plan.append(&mut silent);
        plan
    }
}

type ServerAnswer = Result<FamilyAnswer, NetError>;

/// The queries of one lookup.
#[derive(Default)]
struct OpenQueries {
    queries: JoinSet<(usize, ServerAnswer)>,
    /// Until when a denial of a later server waits for each server.
    awaited: BTreeMap<usize, Instant>,
    /// The denial of a server, with its place.
    denial: Option<(usize, FamilyAnswer)>,
}

impl OpenQueries {
    fn begin(
        &mut self,
        place: usize,
        head_start: Duration,
        query: impl Future<Output = ServerAnswer> + Send + 'static,
    ) {
        if !head_start.is_zero() {
            self.awaited.insert(place, Instant::now() + PATIENCE);
        }
        self.queries.spawn(async move { (place, query.await) });
    }

    /// Takes the end of a query. `None` for a denial, which [`OpenQueries::settled`] weighs.
    fn ended(&mut self, ended: Result<(usize, ServerAnswer), JoinError>) -> Option<ServerAnswer> {
        let Ok((place, asked)) = ended else {
            return Some(Err(NetError::NoConnections));
        };
        self.awaited.remove(&place);
        match asked {
            Ok(answer) if answer.addresses.is_empty() => {
                let before = self.denial.take().filter(|(other, _)| *other < place);
                self.denial = before.or(Some((place, answer)));
                None
            }
            asked => Some(asked),
        }
    }

    /// How long the denial must wait; `None` if no server before it is waited for.
    fn awaited_until(&self) -> Option<Instant> {
        let (place, _) = self.denial.as_ref()?;
        self.awaited.range(..place).map(|(_, until)| *until).max()
    }

    /// Takes the denial, if it counts by now.
    fn settled(&mut self, now: Instant) -> Option<FamilyAnswer> {
        let waits = self.awaited_until().is_some_and(|until| now < until);
        let denial = self.denial.take_if(|_| !waits);
        denial.map(|(_, denial)| denial)
    }
}

impl Drop for OpenQueries {
    /// Lets the queries that were not waited for go on for their second: a server that is silent
    /// is noticed although another one answered.
    fn drop(&mut self) {
        let mut queries = std::mem::take(&mut self.queries);
        if let (false, Ok(runtime)) = (queries.is_empty(), Handle::try_current()) {
            runtime.spawn(async move {
                let all = async { while queries.join_next().await.is_some() {} };
                let _ = timeout(PATIENCE, all).await;
            });
        }
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
    /// Whether it is being checked.
    suspected: bool,
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
            Err(NetError::Timeout) => drop(waiting),
            Err(NetError::Io(_) | NetError::NoConnections) => waiting.failed(),
            _ => waiting.heard(),
        }
        read(answered)
    }

    /// Finds out whether a server that left a question unanswered answers at all.
    ///
    /// Whoever runs the servers of a name can have its questions go unanswered. So the name says
    /// nothing, and the server is asked for the root, which every resolver knows.
    async fn check(self: Arc<Self>) {
        let waiting = Waiting::new(&self);
        let root = self.resolver.lookup(".", RecordType::NS);
        match timeout(PATIENCE, root).await {
            Ok(Err(NetError::Timeout | NetError::Io(_) | NetError::NoConnections)) | Err(_) => {
                waiting.failed();
            }
            Ok(_) => waiting.heard(),
        }
        self.history.lock().suspected = false;
    }

    /// Has the server checked, if that is not under way and it answered nothing since.
    fn suspect(self: &Arc<Self>, since: Instant) {
        let mut past = self.history.lock();
        if past.suspected || past.heard.is_some_and(|heard| heard >= since) {
            return;
        }
        if let Ok(runtime) = Handle::try_current() {
            past.suspected = true;
            runtime.spawn(Arc::clone(self).check());
        }
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

/// A query under way. If it is dropped after a while without an answer, the server is checked.
struct Waiting<'a> {
    server: &'a Arc<NameServer>,
    since: Instant,
    over: bool,
}

impl<'a> Waiting<'a> {
    fn new(server: &'a Arc<NameServer>) -> Self {
        Self {
            server,
            since: Instant::now(),
            over: false,
        }
    }

    fn heard(mut self) {
        self.over = true;
        let mut past = self.server.history.lock();
        (past.heard, past.silent) = (Some(Instant::now()), None);
    }

    /// Notes that the server is not there. One that answered something else is.
    fn failed(mut self) {
        self.over = true;
        let mut past = self.server.history.lock();
        if past.heard.is_none_or(|heard| heard < self.since) {
            past.silent = Some(Instant::now());
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.over && self.since.elapsed() >= PATIENCE {
            self.server.suspect(self.since);
        }
    }
}
