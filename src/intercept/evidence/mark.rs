//! `mark`: the interface that a captured connection came in by. The kernel notes it on each socket
//! that it accepts, whatever the client's address, and needs no rule and no privilege for it.

use std::os::fd::AsFd;
use std::sync::{Arc, LazyLock};

use rustix::net::netdevice::index_to_name;
use socket2::{Domain, SockRef, Socket, Type};

use crate::intercept::caller::{Caller, CallerRefused};
use crate::intercept::client_stream::ClientStream;
use crate::names::User;

/// An interface that somebody came in by.
#[derive(Debug, PartialEq, Eq)]
pub struct HeldInterface {
    index: u32,
    name: String,
}

impl HeldInterface {
    /// The caller of a captured connection.
    pub(super) fn of(stream: &ClientStream) -> Result<Arc<Caller>, CallerRefused> {
        let ClientStream::Tcp(stream) = stream.carrier() else {
            return Err(CallerRefused::of(None, ""));
        };
        // Linux has no option for it alone. Where a socket of IPv6 would send to groups by is where
        // its first packet came in by, also of IPv4 (`tcp_v6_syn_recv_sock`), until somebody sets it.
        let index = SockRef::from(stream).multicast_if_v6().ok();
        Self::caller(index, stream)
    }

    /// The caller of a packet that came in by the interface of this number, at a socket.
    ///
    /// # Errors
    /// [`CallerRefused`] if there is no such interface, or if it is the loopback.
    pub fn caller(index: Option<u32>, at: impl AsFd) -> Result<Arc<Caller>, CallerRefused> {
        let nobody = |cause| CallerRefused::of(None, cause);
        let index = index.filter(|index| *index != 0);
        let index = index.ok_or_else(|| nobody("the kernel does not say how it came in"))?;
        if index == LOOPBACK {
            return Err(nobody("it came from this machine, and by no interface"));
        }
        // By the socket, which has the interfaces of its own network namespace.
        let name = index_to_name(at, index);
        let name = name.map_err(|_| nobody("the interface that it came in by is gone"))?;
        let user = User::new(&format!("interface:{name}"));
        Ok(Arc::new(Caller {
            user: Some(user.ok_or_else(|| nobody("its interface has a name that is no user's"))?),
            interface: Some(Self { index, name }),
            ..Caller::default()
        }))
    }

    /// Whether the interface is still there. Another one of its name, or under its number, is not
    /// the one that somebody came in by.
    #[must_use]
    pub fn holds(&self) -> bool {
        let name = ASKS.as_ref().map(|at| index_to_name(at, self.index));
        name.is_some_and(|name| name.is_ok_and(|name| name == self.name))
    }
}

/// Asks the kernel of interfaces.
static ASKS: LazyLock<Option<Socket>> =
    LazyLock::new(|| Socket::new(Domain::UNIX, Type::DGRAM.cloexec(), None).ok());

/// The number of the loopback, in each network namespace.
const LOOPBACK: u32 = 1;

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[tokio::test]
    async fn nobody_comes_by_the_loopback_or_by_an_interface_that_is_gone() {
        let cause = |refused: Result<Arc<Caller>, CallerRefused>| refused.unwrap_err().cause;
        for address in ["127.0.0.1", "::1"] {
            let listener = TcpListener::bind("[::]:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let _client = TcpStream::connect((address, port)).await.unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            let refused = cause(HeldInterface::of(&ClientStream::Tcp(stream)));
            assert!(refused.contains("this machine"), "{address}: {refused}");
        }
        let at = ASKS.as_ref().unwrap();
        for (index, told) in [
            (None, "does not say"),
            (Some(0), "does not say"),
            (Some(9_999_999), "gone"),
        ] {
            let refused = cause(HeldInterface::caller(index, at));
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
