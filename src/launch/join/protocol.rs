//! The packets between the caller of a second command and the sandbox's first process.
//!
//! The caller listens on a socket of its own. The gateway connects to it and passes the connection
//! through the launcher to the first process. The gateway reads no packet of it.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use serde::{Deserialize, Serialize};

use crate::enroll::{self, GatewayEnd};
use crate::identity::User;

/// The command that the caller wants to run; its three standard streams are with the packet.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct JoinRequest {
    /// The command and its arguments.
    pub arguments: Vec<OsString>,
    /// The caller's working directory. It is used if it lies in a project.
    pub directory: Option<PathBuf>,
    /// The type of the caller's terminal.
    pub term: Option<OsString>,
    /// Whether standard input is a terminal made for the command.
    pub terminal: bool,
}

/// A signal for the command.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct ForwardedSignal {
    /// Its number.
    pub signal: i32,
    /// Whether it is for the whole process group.
    pub group: bool,
}

/// The first process's answer.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum JoinReply {
    /// The sandbox is ready for the command, and this user runs it.
    Welcome(User),
    /// The command was not started, for this reason.
    Refused(String),
    /// The command could not be executed, for this errno.
    NotExecuted(i32),
    /// The command has ended, with this raw status.
    Ended(i32),
}

/// Passes connections of callers from the gateway to the launcher of its sandbox.
#[derive(Debug)]
pub struct JoinSender(OwnedFd);

/// Why no connection was passed to the sandbox.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// No process listens at the caller's socket.
    #[error("the caller's socket cannot be reached")]
    Unreachable(#[source] std::io::Error),
    /// A process of another user listens there.
    #[error("the socket belongs to user {0}")]
    Stranger(u32),
    /// The launcher has gone, or reads nothing.
    #[error("the sandbox has ended, or is stopped")]
    Gone(#[source] enroll::Error),
}

impl JoinSender {
    /// Creates a sender over the gateway's end of the enrolment socket. The sandbox must be served
    /// over that already.
    ///
    /// # Errors
    /// [`enroll::Error::Io`] if there is no descriptor left.
    pub fn of(gateway: &GatewayEnd) -> Result<Self, enroll::Error> {
        gateway.copy().map(Self)
    }

    /// Connects to a caller of the same user, and passes the connection on.
    ///
    /// # Errors
    /// [`JoinError`] by cause.
    pub fn admit(&self, caller: &Path) -> Result<(), JoinError> {
        let unreachable = |error: rustix::io::Errno| JoinError::Unreachable(error.into());
        let socket = packet_socket(SocketFlags::NONBLOCK).map_err(unreachable)?;
        let address = SocketAddrUnix::new(caller).map_err(unreachable)?;
        rustix::net::connect(&socket, &address).map_err(unreachable)?;
        let peer = rustix::net::sockopt::socket_peercred(&socket).map_err(unreachable)?;
        if peer.uid != rustix::process::geteuid() {
            return Err(JoinError::Stranger(peer.uid.as_raw()));
        }
        rustix::io::ioctl_fionbio(&socket, false).map_err(unreachable)?;
        // A launcher that is stopped reads nothing: the gateway does not wait for it.
        enroll::send_with(
            SendFlags::DONTWAIT,
            self.0.as_fd(),
            &JoinPacket {},
            &[socket.as_fd()],
        )
        .map_err(JoinError::Gone)
    }
}

/// Receives a connection that [`JoinSender::admit`] passed; any error means that the gateway has
/// gone, or speaks out of turn.
pub(crate) fn receive(gateway: BorrowedFd<'_>) -> Option<OwnedFd> {
    let (_, mut files) = enroll::receive_packet::<JoinPacket>(gateway).ok()?;
    files.pop().filter(|_| files.is_empty())
}

/// Makes a packet socket, close-on-exec.
pub(crate) fn packet_socket(flags: SocketFlags) -> rustix::io::Result<OwnedFd> {
    let flags = flags | SocketFlags::CLOEXEC;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct JoinPacket {}
