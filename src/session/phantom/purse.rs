//! Phantoms of temporary credentials that a session was given while it lives, by the services' own
//! answers.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use super::{Issue, Phantom, PhantomFailure, PhantomKey, Shape};
use crate::names::CredentialName;

/// The phantoms of one set of temporary credentials, which sign as their parent does.
#[derive(Debug)]
pub struct Minted {
    parts: [Phantom; 3],
    expires: SystemTime,
}

/// All that a session was given; the oldest gives way.
#[derive(Default)]
pub(super) struct Purse(RwLock<Vec<Arc<Minted>>>);

impl Minted {
    /// Draws phantoms of the given shapes for access key id, secret key and session token. `taken`
    /// says of a candidate for a part whether it is the secret itself.
    ///
    /// # Errors
    /// [`PhantomFailure`], where a shape leaves too little to draw.
    pub fn draw(
        parent: &CredentialName,
        keys: &[PhantomKey; 3],
        shapes: [Shape; 3],
        expires: SystemTime,
        taken: impl Fn(usize, &[u8]) -> bool,
    ) -> Result<Minted, PhantomFailure> {
        // Each is issued by itself and from its own key: all three are the parent's, and one key
        // has one phantom of a name.
        let part =
            |at: usize| Issue::new(&keys[at]).issue(parent, &shapes[at], |text| taken(at, text));
        Ok(Minted {
            parts: [part(0)?, part(1)?, part(2)?],
            expires,
        })
    }

    /// The credential that they come from.
    #[must_use]
    pub fn parent(&self) -> &CredentialName {
        self.parts[0].credential()
    }

    /// Access key id, secret key and session token.
    #[must_use]
    pub fn parts(&self) -> &[Phantom; 3] {
        &self.parts
    }

    /// Whether their time is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        SystemTime::now() >= self.expires
    }
}

impl Purse {
    /// Keeps a set; gives those that had to go for it, or whose time was over.
    pub(super) fn keep(&self, minted: Arc<Minted>) -> Vec<Arc<Minted>> {
        let mut kept = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let mut gone: Vec<_> = kept.extract_if(.., |minted| minted.is_over()).collect();
        let surplus = (kept.len() + 1).saturating_sub(MOST);
        gone.extend(kept.drain(..surplus));
        kept.push(minted);
        gone
    }

    /// The set with this access key id.
    pub(super) fn of(&self, access_key: &str) -> Option<Arc<Minted>> {
        let kept = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let found = kept
            .iter()
            .find(|minted| minted.parts[0].reveal() == access_key);
        found.cloned()
    }
}

/// The most sets that a session holds at once; SDKs renew theirs, and a build makes a few.
const MOST: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const ID: &[u8] = b"ASIAIOSFODNN7EXAMPLE";

    fn draw(seconds: u64) -> Minted {
        let keys = [0, 1, 2].map(|_| PhantomKey::random().unwrap());
        let shapes = [
            Shape::of(ID),
            Shape::of(&[b'k'; 40]),
            Shape::of(&[b't'; 300]),
        ];
        let name = CredentialName::new("aws").unwrap();
        let expires = SystemTime::now() + Duration::from_secs(seconds);
        Minted::draw(&name, &keys, shapes, expires, |_, _| false).unwrap()
    }

    #[test]
    fn phantoms_of_a_set_look_like_what_they_stand_for() {
        let minted = draw(60);
        let [id, secret, token] = minted.parts();
        assert!(id.fits(ID) && id.reveal().starts_with("ASIA"));
        assert_eq!((secret.reveal().len(), token.reveal().len()), (40, 300));
        assert!(!minted.is_over());
        assert!(draw(0).is_over());
    }

    #[test]
    fn a_purse_keeps_so_many_and_the_oldest_goes_first() {
        let purse = Purse::default();
        let sets: Vec<_> = (0..MOST + 1).map(|_| Arc::new(draw(60))).collect();
        let gone: Vec<_> = sets
            .iter()
            .flat_map(|set| purse.keep(set.clone()))
            .collect();
        assert_eq!(gone.len(), 1);
        assert!(Arc::ptr_eq(&gone[0], &sets[0]));
        assert!(purse.of(sets[0].parts[0].reveal()).is_none());
        assert!(purse.of(sets[1].parts[0].reveal()).is_some());
        let over = Arc::new(draw(0));
        assert_eq!(purse.keep(over.clone()).len(), 1);
        assert!(
            purse
                .keep(Arc::new(draw(60)))
                .iter()
                .any(|gone| Arc::ptr_eq(gone, &over))
        );
    }
}
