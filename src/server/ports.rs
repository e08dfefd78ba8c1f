//! Connections between a sandbox and the host's loopback, relayed unread: to a port of the host
//! that the workload may use, and to a server of the workload that the host may reach.
//!
//! Each has a record before its first byte passes, and another at its end. No secret is injected,
//! because nothing is read.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use gateway_audit::{ExchangeEnd, Length, Outcome, Trail};
use gateway_body::Meter;
use gateway_names::ReasonCode;
use gateway_session::{Session, SessionStatus};
use parking_lot::Mutex;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::listening_socket::is_of_one_connection;
use super::serve::ConnectionSlot;
use super::upgrade::{relay_down, relay_up};
use super::worker::Worker;

/// A port that the other side may reach, for one session: the host's, or the sandbox's.
pub struct OpenPort {
    /// The session of the sandbox.
    pub session: Arc<Session>,
    /// Where connections to the port arrive.
    pub listener: TcpListener,
    /// The loopback port that they lead to.
    pub port: u16,
}

/// A socket for each loopback address at which a server of the workload may listen.
type InwardPlace = Vec<(IpAddr, OwnedFd)>;

/// Sockets of a sandbox's network, from which connections to its servers are made. There is one
/// place for each concurrent connection; further connections wait.
pub struct InwardSockets {
    free: Mutex<Vec<InwardPlace>>,
    places: Arc<Semaphore>,
    /// How many connections wait for a place.
    waiting: AtomicUsize,
}

/// A place in use.
struct InwardConnection {
    of: Arc<InwardSockets>,
    sockets: InwardPlace,
    place: Option<OwnedSemaphorePermit>,
}

impl InwardSockets {
    /// Takes unconnected sockets of a sandbox.
    #[must_use]
    pub fn new(places: Vec<InwardPlace>) -> Arc<Self> {
        Arc::new(Self {
            places: Arc::new(Semaphore::new(places.len())),
            free: Mutex::new(places),
            waiting: AtomicUsize::new(0),
        })
    }

    /// Waits for a free place.
    async fn take(self: &Arc<Self>) -> Option<InwardConnection> {
        self.waiting.fetch_add(1, Relaxed);
        let _waits = WaitCount(&self.waiting);
        let place = self.places.clone().acquire_owned().await.ok()?;
        Some(InwardConnection {
            sockets: self.free.lock().pop()?,
            of: self.clone(),
            place: Some(place),
        })
    }
}

/// Counts one waiting connection until dropped.
struct WaitCount<'a>(&'a AtomicUsize);

impl Drop for WaitCount<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl InwardConnection {
    async fn connect(&self, port: u16) -> io::Result<TcpStream> {
        let mut refused = io::ErrorKind::NotConnected.into();
        for (address, socket) in &self.sockets {
            let attempt = std::net::TcpStream::from(socket.try_clone()?);
            attempt.set_nonblocking(true)?;
            let attempt = TcpSocket::from_std_stream(attempt);
            match attempt.connect((*address, port).into()).await {
                // Where nothing listens, a port can connect to itself by chance.
                Ok(stream) if stream.local_addr()? != stream.peer_addr()? => return Ok(stream),
                Ok(_) => {}
                Err(error) => refused = error,
            }
        }
        Err(refused)
    }

    /// Waits until the server has read all the data and closed. Returns whether it did.
    async fn settled(&self) -> bool {
        let begun = Instant::now();
        // A connection that is closed and confirmed on both sides has no peer.
        let is_closed =
            |(_, socket): &(IpAddr, OwnedFd)| SockRef::from(socket).peer_addr().is_err();
        while !self.sockets.iter().all(is_closed) {
            if begun.elapsed() > SETTLED_WITHIN {
                return false;
            }
            tokio::time::sleep(LOOKS_EVERY).await;
        }
        true
    }
}

impl Drop for InwardConnection {
    fn drop(&mut self) {
        // The sockets can connect again. Unsent data is dropped, since the connection is given up.
        let reset = |(_, socket): &(IpAddr, OwnedFd)| rustix::net::connect_unspec(socket);
        match self.sockets.iter().try_for_each(reset) {
            Ok(()) => self.of.free.lock().push(std::mem::take(&mut self.sockets)),
            Err(error) => {
                tracing::warn!(%error, "a socket of the sandbox cannot be used again");
                // A place without its sockets cannot be used again.
                if let Some(place) = self.place.take() {
                    place.forget();
                }
            }
        }
    }
}

/// When a refusal was last recorded for a port.
#[derive(Default)]
struct RecordPace(Mutex<Option<Instant>>);

impl RecordPace {
    /// Whether another refusal may be recorded now.
    fn admits(&self) -> bool {
        let mut last = self.0.lock();
        let is_due = last.is_none_or(|last| last.elapsed() >= RECORDED_EVERY);
        if is_due {
            *last = Some(Instant::now());
        }
        is_due
    }
}

/// The entry, port and client of a connection through an opened port.
#[derive(Clone, Copy)]
struct PortConnection {
    entry: &'static str,
    port: u16,
    /// The client's address; `None` if it is in the sandbox.
    client: Option<SocketAddr>,
}

/// The record of one connection. Its end is recorded on drop.
struct RawConnection {
    trail: Trail,
    meter: Meter,
    outcome: Outcome,
    reason: Option<ReasonCode>,
}

impl Drop for RawConnection {
    fn drop(&mut self) {
        // If the log cannot accept it now, it is counted as lost.
        let _ = self.trail.end(ExchangeEnd {
            outcome: self.outcome,
            reason: self.reason.map(ReasonCode::as_str),
            request_bytes: Some(self.meter.up()),
            response_bytes: Some(self.meter.down()),
            scrubbed: 0,
        });
    }
}

impl Worker {
    /// Connects the workload to a port of the host's loopback, until the gateway stops. Must be
    /// called on the worker's runtime.
    pub fn serve_host_port(self: &Arc<Self>, port: OpenPort) {
        let (worker, pace) = (self.clone(), Arc::<RecordPace>::default());
        tokio::spawn(async move {
            while let Some(stream) = worker.next(&port.listener).await {
                let (worker, session, port) = (worker.clone(), port.session.clone(), port.port);
                let pace = pace.clone();
                tokio::spawn(async move {
                    let host = host_service(port);
                    let opened = PortConnection {
                        entry: "host_port",
                        port,
                        client: None,
                    };
                    worker
                        .join((session, opened), &pace, stream, host, None)
                        .await;
                });
            }
        });
    }

    /// Connects the host to a server of the workload, until the gateway stops. Must be called on
    /// the worker's runtime.
    pub fn serve_published(self: &Arc<Self>, port: OpenPort, sockets: Arc<InwardSockets>) {
        let (worker, pace) = (self.clone(), Arc::<RecordPace>::default());
        tokio::spawn(async move {
            while let Some(stream) = worker.next(&port.listener).await {
                let taken = tokio::select! {
                    taken = sockets.take() => taken,
                    () = worker.shared.draining.cancelled() => return,
                };
                let Some(socket) = taken else { return };
                let (worker, session, port) = (worker.clone(), port.session.clone(), port.port);
                let pace = pace.clone();
                tokio::spawn(async move {
                    let server = socket.connect(port);
                    let opened = PortConnection {
                        entry: "publish",
                        port,
                        client: stream.peer_addr().ok(),
                    };
                    let inward = Some(&socket);
                    worker
                        .join((session, opened), &pace, stream, server, inward)
                        .await;
                });
            }
        });
    }

    /// Accepts the next connection; `None` once the gateway stops.
    async fn next(&self, listener: &TcpListener) -> Option<TcpStream> {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = self.shared.draining.cancelled() => return None,
            };
            match accepted {
                Ok((stream, _)) => {
                    // With keepalive, a peer that vanished does not keep its place.
                    let _ = SockRef::from(&stream).set_tcp_keepalive(&keepalive());
                    return Some(stream);
                }
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "a connection was not accepted");
                    tokio::time::sleep(ACCEPTED_AGAIN).await;
                }
            }
        }
    }

    /// Records a connection, connects to the other side, and relays between the two.
    async fn join(
        &self,
        (session, opened): (Arc<Session>, PortConnection),
        pace: &RecordPace,
        near: TcpStream,
        far: impl Future<Output = io::Result<TcpStream>>,
        inward: Option<&InwardConnection>,
    ) {
        let limits = self.shared.current().limits.clone();
        let open = ConnectionSlot::count(&self.shared.open, limits.connections);
        let place = open.zip(session.connect(limits.connections_per_session));
        let refused = match (session.status(), &place) {
            (SessionStatus::Ended(_), _) => Some(ReasonCode::SessionEnded),
            (SessionStatus::Paused, _) => Some(ReasonCode::SessionPaused),
            (SessionStatus::Active, None) => Some(ReasonCode::ConnectionLimit),
            (SessionStatus::Active, Some(_)) => None,
        };
        if let Some(reason) = refused {
            return self.turn_away(&session, opened, reason, pace);
        }
        let Some(mut connection) = self.begin(&session, opened) else {
            return;
        };
        let far = match tokio::time::timeout(CONNECTED_WITHIN, far).await {
            Ok(Ok(far)) => far,
            Ok(Err(_)) => {
                return self.refuse_raw(&mut connection, opened.port, ReasonCode::Unreachable);
            }
            Err(_) => {
                return self.refuse_raw(&mut connection, opened.port, ReasonCode::ConnectTimeout);
            }
        };
        // No byte passes without a record.
        if connection
            .trail
            .answer(200, Length::Switched)
            .await
            .is_err()
        {
            return;
        }
        self.relay(&session, &mut connection, (near, far), inward)
            .await;
        if let (Outcome::Whole, Some(inward)) = (connection.outcome, inward)
            && !inward.settled().await
        {
            connection.outcome = Outcome::Aborted;
        }
    }

    /// Refuses a connection. All refusals are counted, and one a second is recorded: a client that
    /// retries for ever must not use up the session's share of the log.
    fn turn_away(
        &self,
        session: &Arc<Session>,
        opened: PortConnection,
        reason: ReasonCode,
        pace: &RecordPace,
    ) {
        let is_limit = reason == ReasonCode::ConnectionLimit;
        match (!is_limit && pace.admits()).then(|| self.begin(session, opened)) {
            Some(Some(mut connection)) => self.refuse_raw(&mut connection, opened.port, reason),
            _ => {
                let to = format!("{LOOPBACK}:{}", opened.port);
                let id = self.shared.ids.next();
                self.shared.refused.count(&to, reason, id);
            }
        }
    }

    /// Begins a record; `None` if the session has used up its share of the log.
    fn begin(&self, session: &Arc<Session>, opened: PortConnection) -> Option<RawConnection> {
        let mut trail = Trail::begin(&self.shared.log, self.shared.ids.next(), opened.entry);
        trail.session(session.id(), session.clone());
        trail.client(opened.client);
        trail.admit().ok()?;
        trail.method("CONNECT");
        trail.authority(LOOPBACK, opened.port);
        Some(RawConnection {
            trail,
            meter: Meter::default(),
            outcome: Outcome::Aborted,
            reason: None,
        })
    }

    fn refuse_raw(&self, connection: &mut RawConnection, port: u16, reason: ReasonCode) {
        connection.trail.refuse(reason);
        let (to, id) = (format!("{LOOPBACK}:{port}"), connection.trail.id());
        self.shared.refused.count(&to, reason, id);
    }

    async fn relay(
        &self,
        session: &Session,
        connection: &mut RawConnection,
        (mut near, mut far): (TcpStream, TcpStream),
        inward: Option<&InwardConnection>,
    ) {
        // A connection whose options cannot be set is about to fail anyway.
        let _ = (near.set_nodelay(true), far.set_nodelay(true));
        // After a cut, neither side may mistake its part for the whole: both are reset.
        let linger = |near: &TcpStream, far: &TcpStream, how| {
            let _ = SockRef::from(near).set_linger(how);
            let _ = SockRef::from(far).set_linger(how);
        };
        linger(&near, &far, Some(Duration::ZERO));
        let (near_in, near_out) = near.split();
        let (far_in, far_out) = far.split();
        let meter = &connection.meter;
        let mut unread = None;
        let up = relay_up(near_in, far_out, &mut unread, meter);
        let mut unsearched = None;
        let down = relay_down(far_in, near_out, &mut unsearched, meter);
        let (outcome, reason) = tokio::select! {
            ended = async { tokio::try_join!(up, down) } => match ended {
                Ok(_) => (Outcome::Whole, None),
                Err(_) => (Outcome::Aborted, None),
            },
            () = self.over(session) => (Outcome::Cut, Some(ReasonCode::SessionEnded)),
            () = self.stopping() => (Outcome::Aborted, None),
            () = in_the_way(inward, meter) => (Outcome::Cut, None),
        };
        if outcome == Outcome::Whole {
            linger(&near, &far, None);
        }
        (connection.outcome, connection.reason) = (outcome, reason);
    }

    /// Waits until the gateway stops, and until data sent before then has had time to arrive.
    async fn stopping(&self) {
        self.shared.draining.cancelled().await;
        tokio::time::sleep(ARRIVES_WITHIN).await;
    }

    /// Waits for the end of a session.
    async fn over(&self, session: &Session) {
        let mut ends = self.shared.sessions.ends();
        while !session.is_over() {
            if ends.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }
}

/// Waits until a connection to a server of the workload has long been silent while another
/// connection waits for a place.
async fn in_the_way(inward: Option<&InwardConnection>, meter: &Meter) {
    let Some(inward) = inward else {
        return std::future::pending().await;
    };
    let passed = || (meter.up(), meter.down());
    let (mut seen, mut since) = (passed(), Instant::now());
    loop {
        tokio::time::sleep(LOOKS_FOR_IDLE_EVERY).await;
        if seen != passed() {
            (seen, since) = (passed(), Instant::now());
        }
        if inward.of.waiting.load(Relaxed) > 0 && since.elapsed() >= IDLE_FOR {
            return;
        }
    }
}

/// Connects to a service of the host.
async fn host_service(port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    // Where nothing listens, a port can connect to itself by chance.
    if stream.local_addr()? == stream.peer_addr()? {
        Err(io::ErrorKind::ConnectionRefused.into())
    } else {
        Ok(stream)
    }
}

fn keepalive() -> TcpKeepalive {
    TcpKeepalive::new()
        .with_time(Duration::from_secs(60))
        .with_interval(Duration::from_secs(10))
        .with_retries(3)
}

const LOOPBACK: &str = "127.0.0.1";
/// How long connecting to the other side may take.
const CONNECTED_WITHIN: Duration = Duration::from_secs(10);
/// How long data sent before the gateway stops may take to arrive.
const ARRIVES_WITHIN: Duration = Duration::from_secs(1);
/// How long a server of the workload may take to read the rest of the data and close.
const SETTLED_WITHIN: Duration = Duration::from_secs(60);
/// How often a closing connection is checked.
const LOOKS_EVERY: Duration = Duration::from_millis(20);
/// How often a refusal is recorded, for each port.
const RECORDED_EVERY: Duration = Duration::from_secs(1);
/// How long a connection may be silent while others wait for its place.
const IDLE_FOR: Duration = Duration::from_secs(60);
/// How often a connection is checked for silence.
const LOOKS_FOR_IDLE_EVERY: Duration = Duration::from_secs(5);
/// How long a listener waits when descriptors or memory run out.
const ACCEPTED_AGAIN: Duration = Duration::from_millis(50);
