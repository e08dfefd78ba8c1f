//! The owner of each phantom, for every live session and those that ended recently.

use std::collections::VecDeque;
use std::sync::Arc;

use gateway_names::{Map, SessionId};
use parking_lot::{Mutex, MutexGuard};

use super::text::Phantom;

/// All phantoms of a gateway, by their full text.
///
/// It distinguishes another session's phantom from any other foreign credential.
///
/// Its size is bounded. If a session has too many phantoms, its oldest are forgotten, so that no
/// session displaces the phantoms of another; if there are too many in all, the oldest session is
/// forgotten. A forgotten phantom is still refused, as foreign.
#[derive(Default)]
pub struct Registry {
    known: Mutex<PhantomOwners>,
}

#[derive(Default)]
struct PhantomOwners {
    owners: Map<Arc<str>, SessionId>,
    /// The phantoms of each session, the oldest first.
    of: Map<SessionId, VecDeque<Arc<str>>>,
    /// The sessions, the oldest first.
    sessions: VecDeque<SessionId>,
}

impl PhantomOwners {
    fn enter(&mut self, session: &SessionId, text: &Arc<str>) {
        if self.owners.insert(text.clone(), session.clone()).is_some() {
            return;
        }
        let of_session = self.of.entry(session.clone()).or_insert_with(|| {
            self.sessions.push_back(session.clone());
            VecDeque::new()
        });
        of_session.push_back(text.clone());
        if of_session.len() > MOST_OF_SESSION
            && let Some(oldest) = of_session.pop_front()
        {
            self.owners.remove(&oldest);
        }
    }

    fn forget_oldest(&mut self) {
        let oldest = self.sessions.pop_front();
        let texts = oldest.and_then(|session| self.of.remove(&session));
        for text in texts.into_iter().flatten() {
            self.owners.remove(&text);
        }
    }
}

impl Registry {
    /// Adds a session's phantoms. They stay known after the session ends.
    pub fn enter(&self, session: &SessionId, phantoms: &[Phantom]) {
        let mut known = self.known();
        for phantom in phantoms {
            known.enter(session, &phantom.text);
        }
        while known.owners.len() > MAX_KNOWN {
            known.forget_oldest();
        }
    }

    /// Returns the session to which this text was issued as a phantom.
    pub fn owner(&self, text: &[u8]) -> Option<SessionId> {
        let text = std::str::from_utf8(text).ok()?;
        self.known().owners.get(text).cloned()
    }

    fn known(&self) -> MutexGuard<'_, PhantomOwners> {
        // Every change leaves the map complete, so it can still be used after a panic under the
        // lock.
        self.known.lock()
    }
}

/// Enough for 26 phantoms in each of 10,000 sessions.
const MAX_KNOWN: usize = 262_144;
/// Each set of temporary credentials has three phantoms.
const MOST_OF_SESSION: usize = 4_096;

#[cfg(test)]
mod tests {
    use gateway_names::CredentialName;

    use super::super::{Issue, PhantomKey, Phantoms, Shape};
    use super::*;

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

    #[test]
    fn ten_thousand_sessions_are_known_and_none_displaces_the_phantoms_of_another() {
        let texts = |from: usize, count: usize| -> Vec<Phantom> {
            let credential = CredentialName::new("github").unwrap();
            let one = |nth| Phantom {
                credential: credential.clone(),
                text: format!("phantom-{nth:010}").into(),
            };
            (from..from + count).map(one).collect()
        };
        let id = |nth: usize| SessionId::new(&format!("s{nth}")).unwrap();
        let registry = Registry::default();
        for nth in 0..10_000 {
            registry.enter(&id(nth), &texts(nth * 10, 10));
        }
        for nth in 0..20 {
            registry.enter(&id(9_999), &texts(1_000_000 + nth * 1_000, 1_000));
        }
        for nth in [0, 5_000, 9_998] {
            let owner = registry.owner(texts(nth * 10, 1)[0].reveal().as_bytes());
            assert_eq!(owner, Some(id(nth)));
        }
        let known = registry.known();
        assert_eq!(known.of[&id(9_999)].len(), MOST_OF_SESSION);
        assert_eq!(known.owners.len(), 9_999 * 10 + MOST_OF_SESSION);
    }
}
