//! Which session a phantom belongs to: for every live session and those that ended recently.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::text::Phantom;
use crate::names::{Map, SessionId};

/// All phantoms of a gateway, by their full text.
///
/// It distinguishes another session's phantom from any other foreign credential.
///
/// Its size is bounded, and it forgets the oldest first. A forgotten phantom is still refused, as
/// foreign.
#[derive(Default)]
pub struct Registry {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    owners: Map<Arc<str>, SessionId>,
    order: VecDeque<Arc<str>>,
}

impl Registry {
    /// Adds a session's phantoms. They stay known after the session ends.
    pub fn enter(&self, session: &SessionId, phantoms: &[Phantom]) {
        let mut known = self.known();
        for phantom in phantoms {
            if known
                .owners
                .insert(Arc::clone(&phantom.text), session.clone())
                .is_none()
            {
                known.order.push_back(Arc::clone(&phantom.text));
            }
        }
        while known.order.len() > MAX_KNOWN {
            if let Some(oldest) = known.order.pop_front() {
                known.owners.remove(&oldest);
            }
        }
    }

    /// The session to which this text was issued as a phantom.
    #[must_use]
    pub fn owner(&self, text: &[u8]) -> Option<SessionId> {
        let text = std::str::from_utf8(text).ok()?;
        self.known().owners.get(text).cloned()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // Every change leaves the map complete, so it can still be used after a panic under the
        // lock.
        self.known.lock()
    }
}

const MAX_KNOWN: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::super::{Issue, PhantomKey, Phantoms, Shape};
    use super::*;
    use crate::names::CredentialName;

    fn phantoms(key: u8) -> Phantoms {
        let key = PhantomKey::from_bytes([key; 32]);
        let mut issue = Issue::new(&key);
        let name = CredentialName::new("github").unwrap();
        issue
            .issue(
                &name,
                &Shape::parse("ghp_[30 alnum][6 crc32]").unwrap(),
                |_| false,
            )
            .unwrap();
        issue.finish()
    }

    #[test]
    fn a_phantom_is_known_by_the_session_that_it_was_issued_to() {
        let (a, b) = (phantoms(1), phantoms(2));
        let registry = Registry::default();
        registry.enter(&SessionId::new("a").unwrap(), a.all());
        registry.enter(&SessionId::new("b").unwrap(), b.all());
        assert_eq!(
            registry.owner(a.all()[0].reveal().as_bytes()),
            Some(SessionId::new("a").unwrap())
        );
        assert_eq!(
            registry.owner(b.all()[0].reveal().as_bytes()),
            Some(SessionId::new("b").unwrap())
        );
        assert_eq!(registry.owner(b"ghp_unknown"), None);
        assert_eq!(registry.owner(b"\xff"), None);
    }
}
