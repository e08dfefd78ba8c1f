//! Queries name servers in order, and the next one as well if one is slow.

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

use super::answer_cache::{Family, FamilyAnswer};

/// How long a name server has before the next one is queried as well. A dead server thus delays a
/// request by less than a tenth of a second in all.
const HEAD_START: Duration = Duration::from_millis(50);
/// How long a name server has before the denial of a later one is accepted, and before it is
/// checked whether the server is alive.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a silent name server is queried last. After that, it is tried again together with
/// another, so that the trial costs no time.
const LAST_FOR: Duration = Duration::from_secs(30);
/// How long a name server may take to answer. Until then the UDP query is sent several times.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Bounds the time for which a long TTL pins an old address.
const LONGEST_TTL: u32 = 300;
/// Bounds a denial: a name that did not exist may exist soon.
const LONGEST_NEGATIVE_TTL: u32 = 10;
/// How many addresses of an answer are kept.
const MOST_ADDRESSES: usize = 64;
/// The largest answer that fits every network path by UDP (DNS flag day 2020). A larger one comes
/// by TCP.
const UDP_PAYLOAD: u16 = 1232;

/// Name servers in the order in which they are queried.
pub(super) struct NameServers(Vec<Arc<NameServer>>);

impl NameServers {
    /// Returns the servers at these addresses, by UDP and TCP.
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

    /// Returns the servers of a `resolv.conf`.
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

    /// Queries one family of an absolute name. The first server with addresses decides. A denial is
    /// accepted only once each server before it has answered or had its second: with split DNS,
    /// only the first may know the name. If a server fails, the next is queried at once.
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

    /// Returns the servers, each with its head start over the next. Servers that answer come first,
    /// silent ones last.
    fn plan(&self, now: Instant) -> Vec<(Arc<NameServer>, Duration)> {
        let (mut plan, mut silent) = (Vec::new(), Vec::new());
        for server in &self.0 {
            let standing = server.standing(now);
            let list = match standing {
                ServerState::Silent => &mut silent,
                ServerState::Answers | ServerState::OnTrial => &mut plan,
            };
            let head_start = match standing {
                ServerState::OnTrial => Duration::ZERO,
                ServerState::Answers | ServerState::Silent => HEAD_START,
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
    /// How long a denial of a later server waits for each server.
    awaited: BTreeMap<usize, Instant>,
    /// The denial of the server with this index.
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

    /// Handles the end of a query. `None` for a denial, which [`OpenQueries::settled`] judges.
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

    /// The time until which the denial waits; `None` if no server before it is still awaited.
    fn awaited_until(&self) -> Option<Instant> {
        let (place, _) = self.denial.as_ref()?;
        self.awaited.range(..place).map(|(_, until)| *until).max()
    }

    /// Takes the denial, if it is accepted by now.
    fn settled(&mut self, now: Instant) -> Option<FamilyAnswer> {
        let waits = self.awaited_until().is_some_and(|until| now < until);
        let denial = self.denial.take_if(|_| !waits);
        denial.map(|(_, denial)| denial)
    }
}

impl Drop for OpenQueries {
    /// Lets the remaining queries run for their second, so that a silent server is noticed even if
    /// another one answered.
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

/// The recent behaviour of a name server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServerState {
    /// It was not silent recently.
    Answers,
    /// It was silent recently.
    Silent,
    /// It was silent, and may answer by now.
    OnTrial,
}

struct NameServer {
    resolver: TokioResolver,
    history: Mutex<ServerHistory>,
}

#[derive(Default)]
struct ServerHistory {
    heard: Option<Instant>,
    silent: Option<Instant>,
    /// Whether a check of the server is under way.
    suspected: bool,
}

impl NameServer {
    /// Returns a server without history. hickory speaks the protocol with it: retransmission by
    /// UDP, TCP for long answers, ids, ports, and CNAME records.
    fn new(server: NameServerConfig) -> Result<Self, NetError> {
        let config = ResolverConfig::from_parts(None, Vec::new(), vec![server]);
        let mut builder =
            TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        let options = builder.options_mut();
        options.timeout = TIMEOUT;
        options.attempts = 0;
        options.edns0 = true;
        options.edns_payload_len = UDP_PAYLOAD;
        // Hosts file and cache come before the servers (`resolve`), for all of them together.
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
        let waiting = PendingQuery::new(&self);
        let answered = self.resolver.lookup(name, kind).await;
        match &answered {
            Err(NetError::Timeout) => drop(waiting),
            Err(NetError::Io(_) | NetError::NoConnections) => waiting.failed(),
            _ => waiting.heard(),
        }
        read(answered)
    }

    /// Checks whether a server that left a query unanswered answers at all.
    ///
    /// The owner of a name can leave its queries unanswered, so a silent query for that name proves
    /// nothing. The check queries the root, which every resolver knows.
    async fn check(self: Arc<Self>) {
        let waiting = PendingQuery::new(&self);
        let root = self.resolver.lookup(".", RecordType::NS);
        match timeout(PATIENCE, root).await {
            Ok(Err(NetError::Timeout | NetError::Io(_) | NetError::NoConnections)) | Err(_) => {
                waiting.failed();
            }
            Ok(_) => waiting.heard(),
        }
        self.history.lock().suspected = false;
    }

    /// Starts a check of the server, unless one is under way or the server has answered since.
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

    fn standing(&self, now: Instant) -> ServerState {
        let mut past = self.history.lock();
        match past.silent {
            None => ServerState::Answers,
            Some(since) if now < since + LAST_FOR => ServerState::Silent,
            Some(_) => {
                // Only one query at a time tries the server.
                past.silent = Some(now);
                ServerState::OnTrial
            }
        }
    }
}

/// Reads a server's answer. A denial of the name or of the family is an answer too.
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

/// A query under way. If it is dropped unanswered after a while, the server is checked.
struct PendingQuery<'a> {
    server: &'a Arc<NameServer>,
    since: Instant,
    over: bool,
}

impl<'a> PendingQuery<'a> {
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

    /// Notes that the server is silent, unless it has answered another query meanwhile.
    fn failed(mut self) {
        self.over = true;
        let mut past = self.server.history.lock();
        if past.heard.is_none_or(|heard| heard < self.since) {
            past.silent = Some(Instant::now());
        }
    }
}

impl Drop for PendingQuery<'_> {
    fn drop(&mut self) {
        if !self.over && self.since.elapsed() >= PATIENCE {
            self.server.suspect(self.since);
        }
    }
}
