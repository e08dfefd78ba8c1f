//! `password`: the user and the password that the client of a proxy presents.

use std::sync::Arc;

use arc_swap::ArcSwap;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::intercept::caller::Caller;
use crate::names::User;

/// A user, its password, and the caller of all connections with it.
pub struct UserPassword {
    user: Box<[u8]>,
    password: Zeroizing<Box<[u8]>>,
    caller: Arc<Caller>,
}

impl UserPassword {
    /// The caller is `user:` and the name.
    #[must_use]
    pub fn new(user: &str, password: &[u8]) -> Self {
        Self {
            user: user.as_bytes().into(),
            password: Zeroizing::new(password.into()),
            caller: Arc::new(Caller {
                user: User::new(&format!("user:{user}")),
                is_presented: true,
                ..Caller::default()
            }),
        }
    }

    /// The time taken does not tell how much of them is right.
    fn is(&self, user: &[u8], password: &[u8]) -> bool {
        bool::from(self.user.ct_eq(user) & self.password.ct_eq(password))
    }
}

/// The users of a listener, and their passwords now.
pub struct Passwords(ArcSwap<Vec<UserPassword>>);

impl Passwords {
    /// Takes these.
    #[must_use]
    pub fn new(all: Vec<UserPassword>) -> Self {
        Self(ArcSwap::from_pointee(all))
    }

    /// The caller with this password. All are looked at, so that the time does not tell which users
    /// there are.
    pub(super) fn caller(&self, user: &[u8], password: &[u8]) -> Option<Arc<Caller>> {
        let all = self.0.load();
        let mut found = None;
        for one in all.iter().filter(|one| one.is(user, password)) {
            found = Some(one.caller.clone());
        }
        found
    }

    /// Takes other ones from now on. What came with one that is no more ends.
    pub fn replace(&self, mut next: Vec<UserPassword>) {
        let before = self.0.load_full();
        for one in &mut next {
            let mut before = before.iter();
            if let Some(same) = before.find(|before| before.is(&one.user, &one.password)) {
                one.caller = same.caller.clone();
            }
        }
        let next = Arc::new(next);
        self.0.store(next.clone());
        for one in before.iter() {
            if !next.iter().any(|now| Arc::ptr_eq(&now.caller, &one.caller)) {
                one.caller.end();
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
        let agent = known.caller(b"agent", b"first").unwrap();
        let other = known.caller(b"other", b"pass:word").unwrap();
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
            assert!(
                known.caller(user.as_bytes(), wrong.as_bytes()).is_none(),
                "{user}"
            );
        }
        known.replace(both(b"second"));
        assert!(known.caller(b"agent", b"first").is_none());
        assert!(known.caller(b"agent", b"second").is_some());
        let still = known.caller(b"other", b"pass:word").unwrap();
        assert!(Arc::ptr_eq(&other, &still));
        assert_eq!((agent.is_over(), other.is_over()), (true, false));
    }
}
