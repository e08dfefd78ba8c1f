//! What a store gives: named fields of one reading, and for how long they may be used.

use std::time::Duration;

use zeroize::Zeroizing;

/// One reading of a store: its fields belong together. Wiped when it is dropped.
pub struct Material {
    fields: Vec<(Box<str>, Zeroizing<Vec<u8>>)>,
    /// How long it may be used; `None` is for ever.
    pub lease: Option<Lease>,
}

impl Material {
    /// A reading without fields yet.
    #[must_use]
    pub fn new(lease: Option<Lease>) -> Self {
        Self {
            fields: Vec::new(),
            lease,
        }
    }

    /// A reading of one value that has no name.
    #[must_use]
    pub fn single(value: Zeroizing<Vec<u8>>, lease: Option<Lease>) -> Self {
        Self::new(lease).with(Self::UNNAMED, value)
    }

    /// The same with a further field.
    #[must_use]
    pub fn with(mut self, name: &str, value: Zeroizing<Vec<u8>>) -> Self {
        self.fields.push((name.into(), value));
        self
    }

    /// The value of a field; the one without a name where none is given.
    #[must_use]
    pub fn field(&self, name: Option<&str>) -> Option<&Zeroizing<Vec<u8>>> {
        let name = name.unwrap_or(Self::UNNAMED);
        let mut named = self.fields.iter().filter(|(known, _)| **known == *name);
        named.next().map(|(_, value)| value)
    }

    const UNNAMED: &'static str = "";
}

/// How long a reading may be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// From when on the store is asked again while the reading still serves.
    pub refresh_after: Duration,
    /// From when on its use waits a moment for that answer.
    pub stale_after: Duration,
    /// When it serves no longer.
    pub expires_after: Duration,
    /// By which the store renews and revokes it, where it does.
    pub id: Option<LeaseId>,
}

/// A store's name for a lease.
#[derive(Clone, PartialEq, Eq)]
pub struct LeaseId {
    /// The store's own text.
    pub text: Box<str>,
    /// Whether the store says that it can be extended.
    pub renewable: bool,
    /// Which of the store's logins made it: the lease ends with that.
    pub login: u64,
}

impl std::fmt::Debug for LeaseId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LeaseId")
    }
}

impl Lease {
    /// A reading that expires after so long; it is refreshed at 80 per cent of that.
    #[must_use]
    pub fn of(expires_after: Duration) -> Self {
        Self {
            refresh_after: expires_after * 4 / 5,
            stale_after: expires_after,
            expires_after,
            id: None,
        }
    }

    /// Whether the store may be asked to extend it.
    pub(super) fn is_renewable(&self) -> bool {
        self.id.as_ref().is_some_and(|id| id.renewable)
    }
}
