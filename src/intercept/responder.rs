//! The DNS server of one session: the tasks that read queries from its sockets and send the
//! answers.

use std::io::{self, IoSliceMut};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gateway_message::Host;
use gateway_wire::dns::Transport;
use parking_lot::{Mutex, MutexGuard};
use quinn_udp::{RecvMeta, Transmit, UdpSocketState};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest};
use tokio::net::{TcpListener, UdpSocket};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::budget::Budget;
use super::caller::{Caller, CallerRefused};
use super::dns::{Answer, answer};
use super::evidence::{HeldInterface, by_interface};
use super::synthetic::AddressPool;

/// Whether a name gets an answer, since some policy could permit this caller a request to it.
pub type ResolveFilter = Box<dyn Fn(&Host, Option<&Caller>) -> bool + Send + Sync>;

/// Is called with each answer, for counters and audit. Must be fast.
pub type AnswerObserver = Box<dyn Fn(&Answer) + Send + Sync>;

/// The state of a session's DNS server, shared by its UDP and TCP tasks and by later connections.
pub struct Responder {
    allowed: ResolveFilter,
    observe: AnswerObserver,
    pool: Mutex<AddressPool>,
    budget: Mutex<Budget>,
    deadline: Duration,
}

impl Responder {
    /// Creates a server that answers the names that `allowed` accepts, from `pool`.
    #[must_use]
    pub fn new(pool: AddressPool, allowed: ResolveFilter, observe: AnswerObserver) -> Self {
        let budget = Budget::new(QUESTIONS_BURST, QUESTIONS_PER_SECOND, Instant::now());
        Self {
            allowed,
            observe,
            pool: Mutex::new(pool),
            budget: Mutex::new(budget),
            deadline: DEADLINE,
        }
    }

    /// Returns the name to which this session gave a synthetic address.
    #[must_use]
    pub fn name(&self, address: IpAddr) -> Option<Host> {
        self.pool().name(address).cloned()
    }

    fn answer(
        &self,
        query: &[u8],
        transport: Transport,
        caller: Option<&Caller>,
    ) -> Option<Vec<u8>> {
        let allowed = |host: &Host| (self.allowed)(host, caller);
        let answer = answer(query, transport, &allowed, &mut self.pool());
        (self.observe)(&answer);
        answer.reply
    }

    /// Waits until the session may query again. Meanwhile the kernel's queue fills and drops
    /// queries. Other sessions are not affected.
    async fn admit(&self) {
        loop {
            let taken = self.budget.lock().take(Instant::now());
            match taken {
                Ok(()) => return,
                Err(wait) => sleep(wait).await,
            }
        }
    }

    /// After a panic under the lock, at most one name lacks an address, so the pool stays in use.
    fn pool(&self) -> MutexGuard<'_, AddressPool> {
        self.pool.lock()
    }
}

/// Answers queries over UDP until the future is dropped.
///
/// # Errors
/// As [`UdpQuestions::next`].
pub async fn serve_udp(socket: std::net::UdpSocket, responder: Arc<Responder>) -> io::Result<()> {
    let mut questions = UdpQuestions::new(socket)?;
    loop {
        questions.next().await?;
        for query in questions.queries() {
            responder.admit().await;
            questions.answer(query, &responder, None);
        }
    }
}

/// The queries that arrive at a socket.
///
/// Each answer leaves from the address that was queried (`IPV6_PKTINFO`), since the client would
/// not accept it from another. The socket must be allowed to send from it (TRANSPARENT, FREEBIND or
/// AnyIP).
pub struct UdpQuestions {
    socket: UdpSocket,
    state: UdpSocketState,
    buffer: Vec<u8>,
    meta: RecvMeta,
}

impl UdpQuestions {
    /// Sets up a socket for queries.
    ///
    /// # Errors
    /// If the socket cannot be set up.
    pub fn new(socket: std::net::UdpSocket) -> io::Result<Self> {
        Ok(Self {
            state: UdpSocketState::new((&socket).into())?,
            socket: UdpSocket::from_std(socket)?,
            // As large as one receive can be: the kernel may join datagrams of one sender.
            buffer: vec![0; DATAGRAM_MAX],
            meta: RecvMeta::default(),
        })
    }

    /// Waits for the next queries, all of one sender.
    ///
    /// # Errors
    /// If the socket fails repeatedly.
    pub async fn next(&mut self) -> io::Result<()> {
        let mut failures = 0;
        loop {
            match receive(&self.socket, &self.state, &mut self.buffer).await {
                Ok(meta) => {
                    self.meta = meta;
                    return Ok(());
                }
                // ICMP errors of earlier answers surface here; a closed socket fails for ever.
                Err(error) if failures >= FAILURES_MAX => return Err(error),
                Err(_) => {
                    failures += 1;
                    sleep(Duration::from_millis(1)).await;
                }
            }
        }
    }

    /// Returns the caller of the latest queries, by the interface through which they arrived.
    ///
    /// # Errors
    /// [`CallerRefused`] if there is no such interface, or if it is the loopback.
    pub fn caller(&self) -> Result<Arc<Caller>, CallerRefused> {
        let index = self.meta.interface_index;
        by_interface(HeldInterface::numbered(index, &self.socket))
    }

    /// Answers the latest queries, except those beyond the session's rate.
    pub fn answer_admitted(&self, responder: &Responder, caller: Option<&Caller>) {
        let admitted = |_: &&[u8]| responder.budget.lock().take(Instant::now()).is_ok();
        for query in self.queries().take_while(admitted) {
            self.answer(query, responder, caller);
        }
    }

    fn queries(&self) -> impl Iterator<Item = &[u8]> {
        self.buffer[..self.meta.len].chunks(self.meta.stride.max(1))
    }

    fn answer(&self, query: &[u8], responder: &Responder, caller: Option<&Caller>) {
        if let Some(reply) = responder.answer(query, Transport::Udp, caller) {
            // An answer that cannot be sent is lost, as any datagram may be.
            let _ = send(&self.socket, &self.state, &self.meta, &reply);
        }
    }
}

async fn receive(
    socket: &UdpSocket,
    state: &UdpSocketState,
    buffer: &mut [u8],
) -> io::Result<RecvMeta> {
    socket
        .async_io(Interest::READABLE, || {
            let mut meta = [RecvMeta::default()];
            match state.recv(socket.into(), &mut [IoSliceMut::new(buffer)], &mut meta)? {
                0 => Err(io::ErrorKind::WouldBlock.into()),
                _ => Ok(meta[0]),
            }
        })
        .await
}

/// Never waits: a client that does not read its answers loses them.
fn send(
    socket: &UdpSocket,
    state: &UdpSocketState,
    meta: &RecvMeta,
    reply: &[u8],
) -> io::Result<()> {
    let transmit = Transmit {
        destination: meta.addr,
        ecn: None,
        contents: reply,
        segment_size: None,
        src_ip: meta.dst_ip,
    };
    socket.try_io(Interest::WRITABLE, || {
        state.try_send(socket.into(), &transmit)
    })
}

/// Answers queries over TCP (RFC 7766) until the listener fails or the future is dropped, which
/// ends all connections.
///
/// # Errors
/// If the listener fails repeatedly.
pub async fn serve_tcp(listener: TcpListener, responder: Arc<Responder>) -> io::Result<()> {
    let mut connections = JoinSet::new();
    let mut failures = 0;
    loop {
        // When full, a new connection waits until another ends. None outlives its deadline.
        while connections.len() >= CONNECTIONS_MAX {
            connections.join_next().await;
        }
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    failures = 0;
                    // Sends small answers at once. If this fails, they are only slower.
                    let _ = stream.set_nodelay(true);
                    connections.spawn(converse(stream, Arc::clone(&responder), None));
                }
                Err(error) if failures >= FAILURES_MAX => return Err(error),
                // No file descriptor left, or a client that had already gone.
                Err(_) => {
                    failures += 1;
                    sleep(Duration::from_millis(10)).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Serves one connection: many queries, each within the deadline. Ends at the first message that is
/// not a query.
///
/// # Errors
/// If it breaks, or the client is too slow.
pub async fn converse<IO: AsyncRead + AsyncWrite + Unpin>(
    mut stream: IO,
    responder: Arc<Responder>,
    caller: Option<Arc<Caller>>,
) -> io::Result<()> {
    let mut query = Vec::new();
    for _ in 0..QUESTIONS_PER_CONNECTION {
        timeout(responder.deadline, read_question(&mut stream, &mut query)).await??;
        responder.admit().await;
        let Some(reply) = responder.answer(&query, Transport::Tcp, caller.as_deref()) else {
            return Ok(());
        };
        let Ok(length) = u16::try_from(reply.len()) else {
            return Ok(());
        };
        let mut framed = Vec::with_capacity(2 + reply.len());
        framed.extend_from_slice(&length.to_be_bytes());
        framed.extend_from_slice(&reply);
        timeout(responder.deadline, stream.write_all(&framed)).await??;
    }
    Ok(())
}

async fn read_question<IO: AsyncRead + Unpin>(
    stream: &mut IO,
    query: &mut Vec<u8>,
) -> io::Result<()> {
    let length = usize::from(stream.read_u16().await?);
    if !(HEADER..=QUESTION_MAX).contains(&length) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    query.resize(length, 0);
    stream.read_exact(query).await.map(drop)
}

const DATAGRAM_MAX: usize = 65_535;
const HEADER: usize = 12;
const QUESTION_MAX: usize = 4_096;
const DEADLINE: Duration = Duration::from_secs(10);
const CONNECTIONS_MAX: usize = 32;
const QUESTIONS_PER_CONNECTION: usize = 10_000;
const QUESTIONS_BURST: u32 = 1_000;
const QUESTIONS_PER_SECOND: u32 = 2_000;
const FAILURES_MAX: u32 = 100;

#[cfg(test)]
mod tests;
