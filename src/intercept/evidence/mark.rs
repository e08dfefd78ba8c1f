//! `mark`: the interface through which a captured connection arrived. The kernel notes it on each
//! accepted socket, whatever the client's address, and this needs no rule and no privilege.

use std::os::fd::AsFd;
use std::sync::LazyLock;

use gateway_names::User;
use rustix::net::netdevice::index_to_name;
use socket2::{Domain, SockRef, Socket, Type};

use super::live_evidence::LiveEvidence;
use crate::client_stream::ClientStream;

/// An interface through which a connection arrived.
#[derive(Debug, PartialEq, Eq)]
pub struct HeldInterface {
    index: u32,
    name: String,
}

impl HeldInterface {
    /// Returns the interface through which a captured connection arrived.
    ///
    /// # Errors
    /// As [`HeldInterface::numbered`].
    pub(super) fn of(stream: &ClientStream) -> Result<Self, &'static str> {
        let ClientStream::Tcp(stream) = stream.carrier() else {
            return Err(UNTOLD);
        };
        // Linux has no option for it. But an IPv6 socket's default multicast interface is the one
        // it was opened through, also over IPv4 (`tcp_v6_syn_recv_sock`), until it is set.
        Self::numbered(SockRef::from(stream).multicast_if_v6().ok(), stream)
    }

    /// Returns the interface of this number, through which traffic arrived at a socket.
    ///
    /// # Errors
    /// Why it identifies no caller: it is gone, or it is the loopback.
    pub fn numbered(index: Option<u32>, at: impl AsFd) -> Result<Self, &'static str> {
        let index = index.filter(|index| *index != 0).ok_or(UNTOLD)?;
        if index == LOOPBACK {
            return Err("it came from this machine, and by no interface");
        }
        // Through the socket, whose network namespace has the interface.
        match index_to_name(at, index) {
            Ok(name) => Ok(Self { index, name }),
            Err(_) => Err("the interface that it came in by is gone"),
        }
    }

    /// Returns the user that the interface stands for.
    pub(super) fn user(&self) -> Option<User> {
        User::new(&format!("interface:{}", self.name))
    }
}

/// Whether the interface still exists. One with the same name or number alone is another interface.
impl LiveEvidence for HeldInterface {
    fn holds(&self) -> bool {
        let name = ASKS.as_ref().map(|at| index_to_name(at, self.index));
        name.is_some_and(|name| name.is_ok_and(|name| name == self.name))
    }
}

const UNTOLD: &str = "the kernel does not say how it came in";

/// A socket for asking the kernel about interfaces.
static ASKS: LazyLock<Option<Socket>> =
    LazyLock::new(|| Socket::new(Domain::UNIX, Type::DGRAM.cloexec(), None).ok());

/// The number of the loopback interface, in each network namespace.
const LOOPBACK: u32 = 1;

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[tokio::test]
    async fn nobody_comes_by_the_loopback_or_by_an_interface_that_is_gone() {
        for address in ["127.0.0.1", "::1"] {
            let listener = TcpListener::bind("[::]:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let _client = TcpStream::connect((address, port)).await.unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            let refused = HeldInterface::of(&ClientStream::Tcp(stream)).unwrap_err();
            assert!(refused.contains("this machine"), "{address}: {refused}");
        }
        let at = ASKS.as_ref().unwrap();
        for (index, told) in [
            (None, "does not say"),
            (Some(0), "does not say"),
            (Some(9_999_999), "gone"),
        ] {
            let refused = HeldInterface::numbered(index, at).unwrap_err();
            assert!(refused.contains(told), "{index:?}: {refused}");
        }
    }

    #[test]
    fn another_interface_of_the_name_or_number_is_not_the_one() {
        let holds = |index, name: &str| {
            let name = name.to_owned();
            HeldInterface { index, name }.holds()
        };
        assert!(holds(LOOPBACK, "lo"));
        assert!(!holds(LOOPBACK, "tap0") && !holds(9_999_999, "lo"));
    }
}
