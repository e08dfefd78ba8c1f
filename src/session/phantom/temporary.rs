//! Phantoms of temporary credentials that a session receives in services' responses.

use std::time::SystemTime;

use gateway_names::CredentialName;

use super::draw::PhantomKey;
use super::issue::{Issue, PhantomFailure};
use super::shape::Shape;
use super::text::Phantom;
use crate::revocation::Revocations;

/// The phantoms of one set of temporary credentials, which sign as their parent does.
#[derive(Debug)]
pub struct TemporaryPhantoms {
    parts: [Phantom; 3],
    expires: SystemTime,
    /// The revocations of the key that requested them.
    revocations: Revocations,
}

impl TemporaryPhantoms {
    /// Draws phantoms of the given shapes for access key id, secret key and session token. `taken`
    /// returns whether a candidate for a part is the secret itself.
    ///
    /// # Errors
    /// [`PhantomFailure`], if a shape leaves too little to draw.
    pub fn draw(
        parent: &CredentialName,
        keys: &[PhantomKey; 3],
        shapes: [Shape; 3],
        expires: SystemTime,
        taken: impl Fn(usize, &[u8]) -> bool,
    ) -> Result<TemporaryPhantoms, PhantomFailure> {
        // Each part is issued separately, from its own key: all three carry the parent's name, and
        // one key gives one phantom per name.
        let part =
            |at: usize| Issue::new(&keys[at]).issue(parent, &shapes[at], |text| taken(at, text));
        Ok(TemporaryPhantoms {
            parts: [part(0)?, part(1)?, part(2)?],
            expires,
            revocations: Revocations::new(),
        })
    }

    /// Ties them to the revocations of the key that requested them.
    #[must_use]
    pub fn revoked_by(self, revocations: Revocations) -> Self {
        Self {
            revocations,
            ..self
        }
    }

    /// What revokes the key that asked for them.
    pub(crate) fn revocations(&self) -> &Revocations {
        &self.revocations
    }

    /// Returns the credential that they were derived from.
    pub fn parent(&self) -> &CredentialName {
        self.parts[0].credential()
    }

    /// Returns the phantoms of access key id, secret key and session token.
    pub fn parts(&self) -> &[Phantom; 3] {
        &self.parts
    }

    /// Whether they have expired.
    pub fn is_over(&self) -> bool {
        SystemTime::now() >= self.expires
    }
}

/// The most sets that a session holds at once. SDKs renew their own, and a build makes a few.
pub(super) const MOST: usize = 64;

#[cfg(test)]
mod tests {
    use super::super::{Form, Phantoms};
    use super::*;
    use std::sync::Arc;
    use std::time::Duration;

    const ID: &[u8] = b"ASIAIOSFODNN7EXAMPLE";

    fn draw(seconds: u64) -> TemporaryPhantoms {
        let keys = [0, 1, 2].map(|_| PhantomKey::random().unwrap());
        let shapes = [
            Shape::of(ID),
            Shape::of(&[b'k'; 40]),
            Shape::of(&[b't'; 300]),
        ];
        let name = CredentialName::new("aws").unwrap();
        let expires = SystemTime::now() + Duration::from_secs(seconds);
        TemporaryPhantoms::draw(&name, &keys, shapes, expires, |_, _| false).unwrap()
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
    fn so_many_sets_are_kept_and_the_oldest_goes_first() {
        let sets: Vec<_> = (0..MOST + 1).map(|_| Arc::new(draw(60))).collect();
        let (mut phantoms, mut all_gone) = (Phantoms::none(), Vec::new());
        for set in &sets {
            let (next, gone) = phantoms.with(set.clone());
            phantoms = next;
            all_gone.extend(gone);
        }
        assert_eq!(all_gone.len(), 1);
        assert!(Arc::ptr_eq(&all_gone[0], &sets[0]));
        assert!(phantoms.minted(sets[0].parts[0].reveal()).is_none());
        assert!(phantoms.minted(sets[1].parts[0].reveal()).is_some());
        let over = Arc::new(draw(0));
        let (phantoms, gone) = phantoms.with(over.clone());
        assert_eq!(gone.len(), 1);
        let (_, gone) = phantoms.with(Arc::new(draw(60)));
        assert!(gone.iter().any(|gone| Arc::ptr_eq(gone, &over)));
    }

    #[test]
    fn what_was_added_is_found_wherever_it_stands_and_what_was_removed_is_not() {
        let (first, second) = (Arc::new(draw(0)), Arc::new(draw(60)));
        let (with_first, _) = Phantoms::none().with(first.clone());
        let (with_second, gone) = with_first.with(second.clone());
        assert!(Arc::ptr_eq(&gone[0], &first));
        let shown = |set: &TemporaryPhantoms, at: usize| set.parts[at].reveal().to_owned();
        for at in 0..3 {
            let text = format!("x={};", shown(&second, at));
            let sighting = with_second.find(text.as_bytes()).next().unwrap();
            assert_eq!(sighting.form, Form::Plain);
            assert_eq!(
                with_second.at(&sighting).reveal(),
                second.parts[at].reveal()
            );
            assert!(
                with_second
                    .find_folded(text.to_uppercase().as_bytes())
                    .is_some()
            );
            let escape = |byte: &u8| format!("%{byte:02x}");
            let escaped: String = shown(&second, at).as_bytes().iter().map(escape).collect();
            assert!(with_second.find_unescaped(escaped.as_bytes()).is_some());
            let text = shown(&first, at);
            assert!(with_first.find(text.as_bytes()).next().is_some());
            assert!(with_second.find(text.as_bytes()).next().is_none());
        }
        let printed = format!("{with_second:?}");
        assert!(printed.contains("Phantom(for aws)") && !printed.contains(&shown(&second, 0)));
    }
}
