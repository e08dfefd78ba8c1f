//! `unix`: the user and group of the process that connected, as the kernel recorded them.

use std::sync::{Arc, LazyLock};

use gateway_names::User;

use crate::caller::{Caller, CallerRefused};
use crate::client_stream::ClientStream;

/// The users of this machine that may connect; any user, if none is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerUsers(pub Vec<u32>);

impl PeerUsers {
    /// Returns the caller at a Unix socket; `None` if the kernel does not show one.
    pub(super) fn caller(&self, stream: &ClientStream) -> Option<Result<Caller, CallerRefused>> {
        let ClientStream::Unix(stream) = stream.carrier() else {
            return None;
        };
        // SO_PEERCRED: the ids at the time of connect(2), whoever holds the descriptor now.
        let peer = stream.peer_cred().ok()?;
        let is_seen = *UNSEEN_USER != Some(peer.uid()) && *UNSEEN_GROUP != Some(peer.gid());
        Some(if is_seen {
            self.of(peer.uid(), peer.gid())
        } else {
            Err(CallerRefused::of(
                None,
                "its user is none of this namespace",
            ))
        })
    }

    fn of(&self, uid: u32, gid: u32) -> Result<Caller, CallerRefused> {
        let user = User::new(&format!("uid:{uid}"));
        if !self.0.is_empty() && !self.0.contains(&uid) {
            return Err(CallerRefused::of(user, ""));
        }
        Ok(Caller {
            user,
            groups: vec![Arc::from(format!("gid:{gid}"))],
            ..Caller::default()
        })
    }
}

/// The overflow id, which stands for every user or group without an id in this namespace.
static UNSEEN_USER: LazyLock<Option<u32>> = LazyLock::new(|| unseen("uid"));
static UNSEEN_GROUP: LazyLock<Option<u32>> = LazyLock::new(|| unseen("gid"));

fn unseen(kind: &str) -> Option<u32> {
    let read = |path: String| std::fs::read_to_string(path).unwrap_or_default();
    let map = read(format!("/proc/self/{kind}_map"));
    overflow(&map, &read(format!("/proc/sys/kernel/overflow{kind}")))
}

/// `None` if the map is the identity for every id: then no id stands for others.
fn overflow(map: &str, id: &str) -> Option<u32> {
    let is_whole = map.split_whitespace().eq(["0", "0", "4294967295"]);
    (!is_whole).then(|| id.trim().parse().unwrap_or(USUAL))
}

const USUAL: u32 = 65534;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_stands_for_others_is_nobodys() {
        for (map, id, found) in [
            ("         0          0 4294967295\n", "65534\n", None),
            ("         0       1000          1\n", "65534\n", Some(65534)),
            ("0 100000 65536\n65536 0 1\n", "99\n", Some(99)),
            ("0 0 4294967294\n", "65534\n", Some(65534)),
            ("", "", Some(65534)),
        ] {
            assert_eq!(overflow(map, id), found, "{map}");
        }
    }

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
