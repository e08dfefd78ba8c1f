//! The latest refusals of each session, for the pages that its workload sees of itself.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::time::SystemTime;

use gateway_message::Origin;
use gateway_names::{ExchangeId, ReasonCode, SessionId};
use lru::LruCache;
use parking_lot::Mutex;

/// How many sessions are remembered. The one that was refused least recently is forgotten first.
const SESSIONS: NonZeroUsize = NonZeroUsize::new(256).expect("it is not zero");
/// How many refusals of a session are remembered.
const MOST: usize = 32;

/// One refusal.
#[derive(Clone, Debug)]
pub(super) struct RecentRefusal {
    pub(super) id: ExchangeId,
    pub(super) time: SystemTime,
    pub(super) reason: ReasonCode,
    /// The intended origin, if it was known.
    pub(super) to: Option<Origin>,
    /// The method and the path, as the audit log shows them, if they were read.
    pub(super) request: Option<(String, String)>,
}

/// The latest refusals, by session. Bounded, and lost with the process: the audit log keeps them.
pub struct RecentRefusals(Mutex<LruCache<SessionId, VecDeque<RecentRefusal>>>);

impl Default for RecentRefusals {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(SESSIONS)))
    }
}

impl RecentRefusals {
    /// Remembers a refusal, unless it is of an address of documentation (RFC 5737, RFC 3849). Such
    /// are those that `gateway sidecar check` tries, and no workload needs one.
    pub(super) fn add(&self, session: &SessionId, refusal: RecentRefusal) {
        let to = refusal.to.as_ref().and_then(|to| to.authority.host.ip());
        if to.is_some_and(is_of_documentation) {
            return;
        }
        let mut all = self.0.lock();
        let own = all.get_or_insert_mut(session.clone(), VecDeque::new);
        if own.len() >= MOST {
            own.pop_front();
        }
        own.push_back(refusal);
    }

    /// Forgets the refusals of a session.
    pub(super) fn forget(&self, session: &SessionId) {
        self.0.lock().pop(session);
    }

    /// Returns the refusals of a session, the latest first.
    pub(super) fn of(&self, session: &SessionId) -> Vec<RecentRefusal> {
        let all = self.0.lock();
        let own = all.peek(session).into_iter().flatten();
        own.rev().cloned().collect()
    }
}

fn is_of_documentation(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => matches!(ip.octets(), [192, 0, 2, _]),
        IpAddr::V6(ip) => matches!(ip.segments(), [0x2001, 0xdb8, ..]),
    }
}

#[cfg(test)]
mod tests {
    use gateway_message::{Authority, Scheme};

    use super::*;

    #[test]
    fn a_session_sees_its_own_latest_refusals_alone() {
        let (recent, id) = (RecentRefusals::default(), ExchangeId::from_bytes([1; 10]));
        let sessions = ["ours", "theirs"].map(|name| SessionId::new(name).unwrap());
        let origin = |host: &str| {
            let authority = Authority::parse(host.as_bytes(), Some(443)).unwrap();
            let scheme = Scheme::Https;
            Origin { scheme, authority }
        };
        let refusal = |host: String| RecentRefusal {
            id,
            time: SystemTime::now(),
            reason: ReasonCode::PolicyDefaultDeny,
            to: Some(origin(&host)),
            request: None,
        };
        for n in 0..100 {
            recent.add(&sessions[0], refusal(format!("h{n}.test")));
        }
        recent.add(&sessions[1], refusal(String::from("other.test")));
        let ours = recent.of(&sessions[0]);
        let latest = (ours.len(), ours[0].to.clone());
        assert_eq!(latest, (MOST, Some(origin("h99.test"))));
        let other = Some(origin("other.test"));
        assert!(ours.iter().all(|one| one.to != other));
        assert_eq!(recent.of(&sessions[1]).len(), 1);
        // What `sidecar check` tries is none of the workload's.
        for probe in ["192.0.2.1", "[2001:db8::1]"] {
            recent.add(&sessions[1], refusal(String::from(probe)));
        }
        assert_eq!(recent.of(&sessions[1]).len(), 1);
    }
}
