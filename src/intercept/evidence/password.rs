//! `password`: the user and the password that the client of a proxy presents.

use std::sync::Arc;

use arc_swap::ArcSwap;
use gateway_names::User;

use super::presented::Presented;
use crate::caller::Caller;

/// A user and its password, with the caller of all connections that present them.
pub struct UserPassword(Arc<Caller>);

impl UserPassword {
    /// Creates the caller `user:` and the name.
    #[must_use]
    pub fn new(user: &str, password: &[u8]) -> Self {
        Self(Arc::new(Caller {
            user: User::new(&format!("user:{user}")),
            presented: Some(Presented::login(user.as_bytes(), password)),
            ..Caller::default()
        }))
    }

    fn is(&self, presented: &Presented) -> bool {
        let own = self.0.presented.as_ref();
        own.is_some_and(|own| own.is(presented))
    }
}

/// The users of a listener, and their current passwords.
pub struct Passwords(ArcSwap<Vec<UserPassword>>);

impl Passwords {
    /// Creates the list.
    #[must_use]
    pub fn new(all: Vec<UserPassword>) -> Self {
        Self(ArcSwap::from_pointee(all))
    }

    /// Returns the caller with this password. All are compared, so that the time does not show
    /// which users exist.
    pub(super) fn caller(&self, presented: &Presented) -> Option<Arc<Caller>> {
        let all = self.0.load();
        let mut found = None;
        for one in all.iter().filter(|one| one.is(presented)) {
            found = Some(one.0.clone());
        }
        found
    }

    /// Replaces the passwords. Connections whose password was removed or changed end.
    pub fn replace(&self, mut next: Vec<UserPassword>) {
        let before = self.0.load_full();
        for one in &mut next {
            let is_same =
                |before: &&UserPassword| before.0.presented.as_ref().is_some_and(|own| one.is(own));
            if let Some(same) = before.iter().find(is_same) {
                one.0 = same.0.clone();
            }
        }
        let next = Arc::new(next);
        self.0.store(next.clone());
        for one in before.iter() {
            if !next.iter().any(|now| Arc::ptr_eq(&now.0, &one.0)) {
                one.0.end();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_user_and_password_count_and_what_is_replaced_ends() {
        let both = |password: &[u8]| {
            vec![
                UserPassword::new("agent", password),
                UserPassword::new("other", b"pass:word"),
            ]
        };
        let known = Passwords::new(both(b"first"));
        let caller = |user: &str, password: &str| {
            known.caller(&Presented::login(user.as_bytes(), password.as_bytes()))
        };
        let agent = caller("agent", "first").unwrap();
        let other = caller("other", "pass:word").unwrap();
        assert_eq!(other.user.as_ref().unwrap().as_str(), "user:other");
        for (user, wrong) in [
            ("other", "pass"),
            ("other", ""),
            ("other", "pass:wordX"),
            ("agent", "pass:word"),
            ("agentX", "first"),
            ("user:agent", "first"),
            ("", ""),
        ] {
            assert!(caller(user, wrong).is_none(), "{user}");
        }
        known.replace(both(b"second"));
        assert!(caller("agent", "first").is_none());
        assert!(caller("agent", "second").is_some());
        let still = caller("other", "pass:word").unwrap();
        assert!(Arc::ptr_eq(&other, &still));
        assert_eq!((agent.is_over(), other.is_over()), (true, false));
    }
}
