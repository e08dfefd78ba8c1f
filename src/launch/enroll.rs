//! The launcher's protocol: what the launcher passes to the gateway, and what the gateway returns
//! for the sandbox.
//!
//! Two messages over one `SOCK_SEQPACKET` socket pair: the launcher's [`SandboxHello`], with the
//! listening sockets that it created inside the sandbox, and the gateway's answer, [`Ready`] or a
//! refusal. A packet is one JSON object; content that may be larger travels in a sealed memory file
//! with it. After that, the socket carries connections of callers that run a further command
//! (`join`), and at last the gateway's word that nobody need wait for it any longer. Its end of
//! file tells each side that the other has gone. All calls block.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType,
};
use rustix::process::{Pid, WaitOptions};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::home_files::{self, FileHead, HomeFile};
use super::wait::{FirstProcess, WaitStatus, is_reaped_by_init, timespec};
use super::{Exit, ports, sealed, syscall};

/// The version of this protocol; both ends must speak the same one.
pub const VERSION: u32 = 5;
/// How long the end of a gateway process that is done is waited for where no init reaps it.
const REAPED_WITHIN: Duration = Duration::from_millis(500);

/// Why an enrolment did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The other process closed its end, or died.
    #[error("the other end of the enrolment socket has gone")]
    Gone,
    /// A system call failed.
    #[error("cannot {doing}")]
    Io {
        /// The step.
        doing: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// A packet violates this protocol.
    #[error("malformed enrolment packet: {0}")]
    Malformed(&'static str),
    /// The two processes are of different versions of this program.
    #[error("the other end speaks enrolment version {theirs}, this one speaks {VERSION}")]
    Version {
        /// The version that the other end announced.
        theirs: u32,
    },
    /// The gateway will not serve this sandbox.
    #[error("the gateway refused the sandbox: {0}")]
    Refused(String),
}

/// How the sandbox's TCP connections reach the listener, and so where to find the original
/// destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Capture {
    /// nftables TPROXY: the original destination is the accepted socket's own local address
    /// (`getsockname`).
    Tproxy,
    /// nftables REDIRECT: the original destination is `SO_ORIGINAL_DST` of the accepted socket.
    Redirect,
}

/// The launcher's description of the sandbox that it has created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxHello {
    /// The protocol version of the launcher, see [`VERSION`].
    pub version: u32,
    /// The process number of the sandbox's first process in the launcher's PID namespace.
    pub pid: i32,
    /// The user, by number, that will run the command.
    pub uid: u32,
    /// How TCP is captured.
    pub capture: Capture,
    /// Whether the sockets are dual-stack IPv6 sockets. Otherwise the kernel has no IPv6, and they
    /// are IPv4 sockets.
    pub ipv6: bool,
    /// The ports of the host that the command reaches.
    pub host_ports: Vec<u16>,
}

/// The sockets that were created inside the sandbox's network namespace, ready for use.
#[derive(Debug)]
pub struct Listeners {
    /// Accepts every TCP connection of the sandbox, to any address and port.
    pub tcp: OwnedFd,
    /// Accepts TCP connections to port 53 of any loopback address, for DNS over TCP.
    pub dns_tcp: OwnedFd,
    /// Receives DNS queries for port 53 of any address. Packet-info is on, and a response must be
    /// sent from the address that was queried, with interface index 0.
    pub dns_udp: OwnedFd,
    /// Accept TCP connections to the ports of [`SandboxHello::host_ports`], in that order.
    pub host_ports: Vec<OwnedFd>,
    /// Unconnected TCP sockets, for connections to the command's servers.
    pub inward: Vec<OwnedFd>,
}

impl Listeners {
    /// Returns all sockets, in the order in which they are passed.
    pub(super) fn all(&self) -> Vec<BorrowedFd<'_>> {
        let own = [&self.tcp, &self.dns_tcp, &self.dns_udp].into_iter();
        let ports = self.host_ports.iter().chain(&self.inward);
        own.chain(ports).map(AsFd::as_fd).collect()
    }

    /// Sorts the sockets that were passed; `host_ports` of them are for ports of the host.
    pub(super) fn of(mut passed: Vec<OwnedFd>, host_ports: usize) -> Option<Self> {
        if passed.len() < 3 + host_ports {
            return None;
        }
        let inward = passed.split_off(3 + host_ports);
        let host_ports = passed.split_off(3);
        let [tcp, dns_tcp, dns_udp] = <[OwnedFd; 3]>::try_from(passed).ok()?;
        Some(Self {
            tcp,
            dns_tcp,
            dns_udp,
            host_ports,
            inward,
        })
    }
}

/// The gateway's files and variables for the inside of the sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// The system's CA certificates and the session's CA certificate, PEM.
    pub ca_bundle_pem: Vec<u8>,
    /// The session's CA certificate alone, PEM.
    pub ca_pem: Vec<u8>,
    /// The session's CA as an NSS certificate database; empty if there is none.
    pub ca_nss: Vec<u8>,
    /// Environment variables to set, above all phantoms.
    pub set: Vec<(String, String)>,
    /// Environment variables to remove.
    pub unset: Vec<String>,
    /// Files to write to the home directory, in place of whatever is there.
    pub files: Vec<HomeFile>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Ready,
    Refused { message: String },
    Done,
}

/// The launcher's end of the enrolment socket.
#[derive(Debug)]
pub struct LauncherEnd {
    socket: OwnedFd,
    /// The number of the gateway process, if it is a child of the launcher.
    process: Option<i32>,
}

/// The gateway's end of the enrolment socket.
#[derive(Debug)]
pub struct GatewayEnd(OwnedFd);

/// Creates both ends of an enrolment socket, close-on-exec.
///
/// # Errors
/// [`Error::Io`] if the kernel refuses the socket pair.
pub fn pair() -> Result<(LauncherEnd, GatewayEnd), Error> {
    let (launcher, gateway) = packet_pair()?;
    Ok((launcher.into(), GatewayEnd(gateway)))
}

impl LauncherEnd {
    /// Notes which child is the gateway process.
    #[must_use]
    pub fn of(self, process: i32) -> Self {
        let process = Some(process).filter(|process| *process > 0);
        Self { process, ..self }
    }

    /// Returns the number of the gateway process, if it is a child of the launcher.
    pub fn process(&self) -> Option<i32> {
        self.process
    }

    /// Sends the hello and the sandbox's sockets.
    ///
    /// # Errors
    /// [`Error::Gone`] if the gateway has gone, [`Error::Io`] otherwise.
    pub fn hello(&self, hello: &SandboxHello, listeners: &Listeners) -> Result<(), Error> {
        send_packet(self.socket.as_fd(), hello, &listeners.all())
    }

    /// Waits for the gateway's answer, and returns its files and variables, still in their sealed
    /// memory file.
    ///
    /// # Errors
    /// [`Error::Refused`] with the gateway's reason; [`Error::Gone`] if it died; the others if the
    /// answer violates this protocol.
    pub fn answer(&self) -> Result<SealedReady, Error> {
        let (answer, mut fds) = receive_packet::<Answer>(self.socket.as_fd())?;
        match answer {
            Answer::Refused { message } => Err(Error::Refused(message)),
            Answer::Ready if fds.len() == 1 => Ok(SealedReady(fds.remove(0))),
            Answer::Ready => Err(Error::Malformed("`ready` must carry one file")),
            Answer::Done => Err(Error::Malformed("`done` comes last")),
        }
    }

    /// Says no more, and waits for [`GatewayEnd::done`], for at most `within`.
    pub fn await_done(&self, within: Duration) -> WaitStatus {
        // The gateway has gone if this fails.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Write);
        let until = Instant::now() + within;
        loop {
            let left = timespec(until.saturating_duration_since(Instant::now()));
            match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&left)) {
                Ok(0) => return WaitStatus::Runs,
                Err(_) => continue,
                Ok(_) => {}
            }
            match receive_packet(self.socket.as_fd()) {
                Ok((Answer::Done, _)) if is_reaped_by_init() => return WaitStatus::Done,
                Ok((Answer::Done, _)) => {
                    // One that stands still leaves its zombie, and nobody waits for it.
                    let ended = self.process.and_then(|child| FirstProcess::of(child).ok());
                    let ended = ended.map(FirstProcess::event);
                    let within = timespec(REAPED_WITHIN);
                    if let Some(ended) = &ended
                        && poll(&mut [PollFd::new(ended, PollFlags::IN)], Some(&within)) == Ok(1)
                    {
                        let _ = self.ended();
                    }
                    return WaitStatus::Done;
                }
                // A packet that the launcher did not come to read.
                Ok(_) | Err(Error::Malformed(_)) => {}
                Err(_) => break,
            }
        }
        self.ended().map_or(WaitStatus::Unknown, WaitStatus::Ended)
    }

    /// Waits until the gateway process has ended, and returns how; `None` if it is no child.
    fn ended(&self) -> Option<Exit> {
        let child = self.process.and_then(Pid::from_raw)?;
        syscall::status_of(child, WaitOptions::empty()).map(Exit::from_status)
    }
}

impl GatewayEnd {
    /// Waits for the launcher's hello and the sandbox's sockets.
    ///
    /// The caller checks the sockets (their network namespace must not be its own) and then answers
    /// with [`GatewayEnd::ready`] or [`GatewayEnd::refuse`].
    ///
    /// # Errors
    /// [`Error::Gone`] if the launcher gave up, [`Error::Version`] if it has another version (which
    /// it has then been sent).
    pub fn hello(&self) -> Result<(SandboxHello, Listeners), Error> {
        let (hello, fds) = receive_packet::<SandboxHello>(self.0.as_fd())?;
        if hello.version != VERSION {
            self.refuse(&format!(
                "launcher speaks version {}, gateway {VERSION}",
                hello.version
            ))?;
            return Err(Error::Version {
                theirs: hello.version,
            });
        }
        let listeners = Listeners::of(fds, hello.host_ports.len())
            .ok_or(Error::Malformed("`hello` must carry its sockets"))?;
        Ok((hello, listeners))
    }

    /// Tells the launcher that its sandbox is served, and which files and variables to put inside.
    ///
    /// # Errors
    /// [`Error::Gone`] if the launcher has died, [`Error::Io`] otherwise.
    pub fn ready(&self, ready: &Ready) -> Result<(), Error> {
        let file = ready.seal()?;
        send_packet(self.0.as_fd(), &Answer::Ready, &[file.0.as_fd()])
    }

    /// Returns another handle of the socket.
    pub(super) fn copy(&self) -> Result<OwnedFd, Error> {
        let copied = self.0.try_clone();
        copied.map_err(|error| failed("copy the enrolment socket", error))
    }

    /// Tells the launcher that its sandbox will not be served. The message reaches the person at
    /// the terminal.
    ///
    /// # Errors
    /// [`Error::Gone`] if the launcher has died, [`Error::Io`] otherwise.
    pub fn refuse(&self, message: &str) -> Result<(), Error> {
        let message = message.to_owned();
        send_packet(self.0.as_fd(), &Answer::Refused { message }, &[])
    }

    /// Tells the launcher that nobody need wait for this process any longer.
    ///
    /// # Errors
    /// As [`GatewayEnd::refuse`].
    pub fn done(&self) -> Result<(), Error> {
        send_packet(self.0.as_fd(), &Answer::Done, &[])
    }

    /// Waits until the launcher says no more.
    pub fn ended(&self) {
        // If the sandbox was refused in advance, a hello may still arrive.
        while receive_bytes(self.0.as_fd()).is_ok() {}
    }
}

impl From<OwnedFd> for LauncherEnd {
    fn from(socket: OwnedFd) -> Self {
        Self {
            socket,
            process: None,
        }
    }
}

impl From<OwnedFd> for GatewayEnd {
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

impl From<LauncherEnd> for OwnedFd {
    fn from(end: LauncherEnd) -> Self {
        end.socket
    }
}

impl From<GatewayEnd> for OwnedFd {
    fn from(end: GatewayEnd) -> Self {
        end.0
    }
}

impl AsFd for LauncherEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsFd for GatewayEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A [`Ready`] in a memory file whose content can no longer change.
#[derive(Debug)]
pub struct SealedReady(OwnedFd);

impl SealedReady {
    /// Takes a file that another process sent; [`SealedReady::open`] checks its seals.
    pub fn from_fd(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// Reads the content.
    ///
    /// # Errors
    /// [`Error::Malformed`] if it is no sealed file of these parts.
    pub fn open(&self) -> Result<Ready, Error> {
        let file = self.0.try_clone();
        let [head, ca_bundle_pem, ca_pem, ca_nss, files] =
            file.and_then(sealed::parts)
                .map_err(|error| match error.kind() {
                    io::ErrorKind::InvalidData => {
                        Error::Malformed("the answer is no sealed file of its parts")
                    }
                    _ => failed("read the answer", error),
                })?;
        let (set, unset, heads) = serde_json::from_slice::<(_, _, Vec<FileHead>)>(&head)
            .map_err(|_| Error::Malformed("the answer's head is not of this protocol"))?;
        let files = home_files::parted(heads, &files);
        Ok(Ready {
            files: files.ok_or(Error::Malformed(
                "the answer's files are not those of its head",
            ))?,
            ca_bundle_pem,
            ca_pem,
            ca_nss,
            set,
            unset,
        })
    }
}

impl AsFd for SealedReady {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Ready {
    fn seal(&self) -> Result<SealedReady, Error> {
        let (heads, files) = home_files::joined(&self.files).ok_or(Error::Malformed(
            "the answer has more files than fit, or others",
        ))?;
        let head = serde_json::to_vec(&(&self.set, &self.unset, heads))
            .map_err(|_| Error::Malformed("the answer cannot be encoded"))?;
        let own = [&self.ca_bundle_pem, &self.ca_pem, &self.ca_nss, &files];
        let [bundle, ca, nss, files] = own.map(Vec::as_slice);
        let parts = [&head[..], bundle, ca, nss, files];
        let file = sealed::of("gateway-ready", parts);
        file.map(SealedReady)
            .map_err(|error| failed("write the answer", error))
    }
}

/// Creates a pair of connected packet sockets, close-on-exec.
///
/// # Errors
/// [`Error::Io`] if the kernel refuses.
pub fn packet_pair() -> Result<(OwnedFd, OwnedFd), Error> {
    rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(|e| failed("make a socket pair", e))
}

/// Sends one message and up to [`PACKET_FDS`] file descriptors as one packet, as `send_with`.
///
/// # Errors
/// As `send_with`.
pub fn send_packet<M: Serialize>(
    socket: BorrowedFd<'_>,
    message: &M,
    fds: &[BorrowedFd<'_>],
) -> Result<(), Error> {
    send_with(SendFlags::empty(), socket, message, fds)
}

/// Sends a packet with these flags: with `DONTWAIT` it fails where it would wait.
///
/// # Errors
/// [`Error::Gone`] if the peer has closed, [`Error::Malformed`] if it does not fit, [`Error::Io`]
/// otherwise.
pub(crate) fn send_with<M: Serialize>(
    flags: SendFlags,
    socket: BorrowedFd<'_>,
    message: &M,
    fds: &[BorrowedFd<'_>],
) -> Result<(), Error> {
    let bytes = serde_json::to_vec(message)
        .map_err(|_| Error::Malformed("the message cannot be encoded"))?;
    if bytes.len() > PACKET_BYTES {
        return Err(Error::Malformed("the message is larger than a packet"));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PACKET_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Error::Malformed("too many files for one packet"));
    }
    loop {
        match rustix::net::sendmsg(
            socket,
            &[IoSlice::new(&bytes)],
            &mut control,
            flags | SendFlags::NOSIGNAL,
        ) {
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::PIPE | rustix::io::Errno::CONNRESET) => return Err(Error::Gone),
            Err(error) => return Err(failed("send an enrolment packet", error)),
        }
    }
}

/// Receives one message and its file descriptors, close-on-exec.
///
/// # Errors
/// [`Error::Gone`] at end of file, [`Error::Malformed`] if the packet is truncated or not such a
/// message.
pub fn receive_packet<M: DeserializeOwned>(
    socket: BorrowedFd<'_>,
) -> Result<(M, Vec<OwnedFd>), Error> {
    let (bytes, fds) = receive_bytes(socket)?;
    let message = serde_json::from_slice(&bytes)
        .map_err(|_| Error::Malformed("not a message of this protocol"))?;
    Ok((message, fds))
}

fn receive_bytes(socket: BorrowedFd<'_>) -> Result<(Vec<u8>, Vec<OwnedFd>), Error> {
    let mut bytes = vec![0; PACKET_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PACKET_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut parts = [IoSliceMut::new(&mut bytes)];
        match rustix::net::recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::CONNRESET) => return Err(Error::Gone),
            Err(error) => return Err(failed("receive an enrolment packet", error)),
            Ok(received) => break received,
        }
    };
    let mut fds = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = part {
            fds.extend(passed);
        }
    }
    if received
        .flags
        .intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC)
    {
        return Err(Error::Malformed("the packet was cut"));
    }
    if received.bytes == 0 {
        return Err(Error::Gone);
    }
    bytes.truncate(received.bytes);
    Ok((bytes, fds))
}

fn failed(doing: &'static str, source: impl Into<io::Error>) -> Error {
    Error::Io {
        doing,
        source: source.into(),
    }
}

/// The largest number of file descriptors in one packet.
pub const PACKET_FDS: usize = 3 + ports::MOST_HOST + 2 * ports::INWARD;
const PACKET_BYTES: usize = 128 * 1024;

#[cfg(test)]
mod tests {
    use rustix::fs::MemfdFlags;

    use super::*;

    fn listeners() -> Listeners {
        let socket = || OwnedFd::from(std::net::TcpListener::bind("127.0.0.1:0").unwrap());
        Listeners {
            tcp: socket(),
            dns_tcp: socket(),
            dns_udp: socket(),
            host_ports: vec![socket()],
            inward: vec![socket(), socket()],
        }
    }

    fn hello() -> SandboxHello {
        SandboxHello {
            version: VERSION,
            pid: 7,
            uid: 1000,
            capture: Capture::Tproxy,
            ipv6: true,
            host_ports: vec![5432],
        }
    }

    #[test]
    fn a_hello_arrives_with_its_sockets() {
        let (launcher, gateway) = pair().unwrap();
        launcher.hello(&hello(), &listeners()).unwrap();
        let (received, listeners) = gateway.hello().unwrap();
        assert_eq!(received, hello());
        assert_eq!((listeners.host_ports.len(), listeners.inward.len()), (1, 2));
        assert!(
            std::net::TcpListener::from(listeners.tcp)
                .local_addr()
                .unwrap()
                .port()
                > 0
        );
    }

    #[test]
    fn an_answer_larger_than_a_packet_arrives_whole() {
        let (launcher, gateway) = pair().unwrap();
        let ready = Ready {
            ca_bundle_pem: vec![b'x'; 1_000_000],
            ca_pem: b"ca".to_vec(),
            ca_nss: vec![7; 9],
            set: vec![("GITHUB_TOKEN".into(), "ghp_phantom".into())],
            unset: vec!["OLD".into()],
            files: vec![HomeFile {
                path: ".a/b".into(),
                content: b"{}".to_vec(),
            }],
        };
        gateway.ready(&ready).unwrap();
        assert_eq!(launcher.answer().unwrap().open().unwrap(), ready);
    }

    #[test]
    fn a_refusal_carries_its_reason() {
        let (launcher, gateway) = pair().unwrap();
        gateway.refuse("no such policy").unwrap();
        assert!(
            matches!(launcher.answer(), Err(Error::Refused(reason)) if reason == "no such policy")
        );
    }

    #[test]
    fn another_version_is_refused_at_both_ends() {
        let (launcher, gateway) = pair().unwrap();
        launcher
            .hello(
                &SandboxHello {
                    version: 99,
                    ..hello()
                },
                &listeners(),
            )
            .unwrap();
        assert!(matches!(
            gateway.hello(),
            Err(Error::Version { theirs: 99 })
        ));
        assert!(matches!(launcher.answer(), Err(Error::Refused(_))));
    }

    #[test]
    fn a_hello_without_its_sockets_is_malformed() {
        let (launcher, gateway) = pair().unwrap();
        send_packet(launcher.as_fd(), &hello(), &[]).unwrap();
        assert!(matches!(gateway.hello(), Err(Error::Malformed(_))));
    }

    #[test]
    fn a_dead_peer_is_reported_as_gone_on_both_ends() {
        let (launcher, gateway) = pair().unwrap();
        drop(gateway);
        assert!(matches!(
            launcher.hello(&hello(), &listeners()),
            Err(Error::Gone)
        ));
        let (launcher, gateway) = pair().unwrap();
        drop(launcher);
        assert!(matches!(gateway.hello(), Err(Error::Gone)));
        gateway.ended();
    }

    #[test]
    fn an_answer_in_an_unsealed_file_is_refused() {
        let (launcher, gateway) = pair().unwrap();
        let file = rustix::fs::memfd_create("open", MemfdFlags::ALLOW_SEALING).unwrap();
        send_packet(gateway.as_fd(), &Answer::Ready, &[file.as_fd()]).unwrap();
        assert!(matches!(
            launcher.answer().unwrap().open(),
            Err(Error::Malformed(_))
        ));
    }
}
