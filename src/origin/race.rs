//! A race of connections to the addresses of one name: Happy Eyeballs (RFC 8305).
//!
//! Connecting begins once IPv6 addresses are known, or both answers have arrived, or 50 ms after
//! the IPv4 addresses. Attempts start 250 ms apart, or at once after a failure, and the families
//! take turns. The first connection wins, and the others are closed.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};

use super::Error;
use super::resolve::Unresolved;
use super::vet::{Prohibited, vet};

/// How long IPv4 addresses wait for the IPv6 answer (RFC 8305 §3).
pub(super) const RESOLUTION_DELAY: Duration = Duration::from_millis(50);
/// How long to wait before the next address is tried as well (RFC 8305 §5).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// How many addresses of one name are tried.
const MOST_ATTEMPTS: usize = 8;

/// The addresses that are known so far, and the attempts under way.
pub(super) struct Race<'a> {
    port: u16,
    exceptions: &'a [IpNet],
    connect_timeout: Duration,
    six: VecDeque<SocketAddr>,
    four: VecDeque<SocketAddr>,
    attempts: JoinSet<io::Result<TcpStream>>,
    started: usize,
    last_was_six: bool,
    next_at: Option<Instant>,
    deadline: Option<Instant>,
    /// The reasons for a failure, the strongest first.
    failed: Option<io::Error>,
    refused: Option<(Prohibited, IpAddr)>,
    unresolved: Option<Unresolved>,
}

impl<'a> Race<'a> {
    /// Returns a race to a port, with the operator's exceptions. The first attempt starts the time.
    pub(super) fn new(port: u16, exceptions: &'a [IpNet], connect_timeout: Duration) -> Self {
        Self {
            port,
            exceptions,
            connect_timeout,
            six: VecDeque::new(),
            four: VecDeque::new(),
            attempts: JoinSet::new(),
            started: 0,
            last_was_six: false,
            next_at: None,
            deadline: None,
            failed: None,
            refused: None,
            unresolved: None,
        }
    }

    /// Adds the result of a lookup. `more` says whether another lookup is still under way.
    ///
    /// Each address is vetted here. A prohibited one among public ones is dropped, never tried
    /// (C03).
    pub(super) fn found(&mut self, found: Result<Vec<IpAddr>, Unresolved>, more: bool) {
        match found {
            Ok(addresses) => addresses.into_iter().for_each(|address| self.add(address)),
            Err(why) => self.unresolved = Some(why),
        }
        if self.started > 0 || !self.has_next() {
            return;
        }
        let now = Instant::now();
        if !more || !self.six.is_empty() {
            self.next_at = Some(now);
        } else if self.next_at.is_none() {
            self.next_at = Some(now + RESOLUTION_DELAY);
        }
    }

    fn add(&mut self, address: IpAddr) {
        let family = match address {
            IpAddr::V6(_) => &mut self.six,
            IpAddr::V4(_) => &mut self.four,
        };
        match vet(address, self.port, self.exceptions) {
            Ok(()) => family.push_back(SocketAddr::new(address, self.port)),
            Err(why) => self.refused = self.refused.or(Some((why, address))),
        }
    }

    fn has_next(&self) -> bool {
        self.started < MOST_ATTEMPTS && !(self.six.is_empty() && self.four.is_empty())
    }

    /// Whether no attempt is under way and no address is left.
    pub(super) fn is_idle(&self) -> bool {
        self.attempts.is_empty() && !self.has_next()
    }

    /// Whether an address was prohibited or could not be connected to.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.is_some() || self.refused.is_some()
    }

    /// Waits for the next event, and returns the result if it ends the race. Dropping the future
    /// loses nothing. Without any address the future never completes.
    pub(super) async fn step(&mut self) -> Option<Result<TcpStream, Error>> {
        let now = Instant::now();
        let (under_way, has_next) = (!self.attempts.is_empty(), self.has_next());
        tokio::select! {
            Some(ended) = self.attempts.join_next(), if under_way => self.ended(ended),
            () = sleep_until(self.next_at.unwrap_or(now)), if has_next => {
                self.start();
                None
            }
            () = sleep_until(self.deadline.unwrap_or(now)), if self.deadline.is_some() => {
                Some(Err(Error::ConnectTimeout))
            }
            else => std::future::pending().await,
        }
    }

    /// Starts the next attempt: the families take turns, IPv6 first.
    fn start(&mut self) {
        let next = if self.last_was_six {
            self.four.pop_front().or_else(|| self.six.pop_front())
        } else {
            self.six.pop_front().or_else(|| self.four.pop_front())
        };
        let Some(address) = next else { return };
        let now = Instant::now();
        self.last_was_six = address.is_ipv6();
        self.started += 1;
        self.attempts.spawn(attempt(address));
        self.next_at = Some(now + ATTEMPT_DELAY);
        self.deadline.get_or_insert(now + self.connect_timeout);
    }

    fn ended(
        &mut self,
        ended: Result<io::Result<TcpStream>, JoinError>,
    ) -> Option<Result<TcpStream, Error>> {
        match ended {
            Ok(Ok(stream)) => return Some(Ok(stream)),
            Ok(Err(error)) => self.failed = Some(error),
            Err(error) => self.failed = Some(error.into()),
        }
        // After a failure, the next address is tried at once.
        self.next_at = Some(Instant::now());
        None
    }

    /// Returns why no connection was made.
    pub(super) fn error(self) -> Error {
        match (self.failed, self.refused, self.unresolved) {
            (Some(failed), ..) => Error::Unreachable(Some(failed)),
            (None, Some((why, address)), _) => Error::Prohibited(why, address),
            (None, None, Some(why)) => Error::Unresolved(why),
            (None, None, None) => Error::Unresolved(Unresolved::without_address()),
        }
    }
}

async fn attempt(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    let stream = socket.connect(address).await?;
    // Otherwise Nagle's algorithm meets delayed acknowledgements: 40 ms per request
    // (performance.md).
    stream.set_nodelay(true)?;
    Ok(stream)
}
