//! `unix`: the user and group of the process that connected, as the kernel kept them.

use std::sync::Arc;

use crate::intercept::caller::{Caller, CallerRefused};
use crate::intercept::client_stream::ClientStream;
use crate::names::User;

/// The users of this machine that may connect: all that can, if none is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerUsers(pub Vec<u32>);

impl PeerUsers {
    /// The caller of a Unix socket; `None` if the kernel does not say who it is.
    pub(super) fn caller(&self, stream: &ClientStream) -> Option<Result<Caller, CallerRefused>> {
        let ClientStream::Unix(stream) = stream.carrier() else {
            return None;
        };
        // SO_PEERCRED: those at the time of connect(2), whoever has the descriptor now.
        let peer = stream.peer_cred().ok()?;
        Some(self.of(peer.uid(), peer.gid()))
    }

    fn of(&self, uid: u32, gid: u32) -> Result<Caller, CallerRefused> {
        let user = User::new(&format!("uid:{uid}"));
        if !self.0.is_empty() && !self.0.contains(&uid) {
            let refused = CallerRefused::unseen();
            return Err(CallerRefused { user, ..refused });
        }
        Ok(Caller {
            user,
            groups: vec![Arc::from(format!("gid:{gid}"))],
            ..Caller::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_caller_of_a_unix_socket_is_whom_the_kernel_names() {
        let (near, _far) = tokio::net::UnixStream::pair().unwrap();
        let near = ClientStream::Unix(near);
        let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
        let caller = PeerUsers(Vec::new()).caller(&near).unwrap().unwrap();
        let user = caller.user.unwrap();
        assert_eq!(user.as_str(), format!("uid:{}", uid.as_raw()));
        assert_eq!(*caller.groups, [Arc::from(format!("gid:{}", gid.as_raw()))]);
    }

    #[test]
    fn only_listed_users_are_taken_if_any_are() {
        for (listed, uid, is_taken) in [
            (vec![], 7, true),
            (vec![7], 7, true),
            (vec![7], 0, false),
            (vec![1, 2], 7, false),
        ] {
            assert_eq!(
                PeerUsers(listed.clone()).of(uid, 7).is_ok(),
                is_taken,
                "{listed:?}"
            );
        }
    }
}
