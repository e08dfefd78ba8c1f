//! The result of a read: its named fields, and how long they may be used.

use std::time::Duration;

use zeroize::Zeroizing;

/// One read of a store; its fields belong together. Wiped on drop.
pub struct Material {
    fields: Vec<(Box<str>, Zeroizing<Vec<u8>>)>,
    /// The values that this read replaced without their being lent, by field.
    former: Vec<(Box<str>, Zeroizing<Vec<u8>>)>,
    /// How long it may be used; `None` means forever.
    pub lease: Option<Lease>,
}

impl Material {
    /// Creates a read without fields.
    pub fn new(lease: Option<Lease>) -> Self {
        Self {
            fields: Vec::new(),
            former: Vec::new(),
            lease,
        }
    }

    /// Creates a read of one unnamed value.
    pub fn single(value: Zeroizing<Vec<u8>>, lease: Option<Lease>) -> Self {
        Self::new(lease).with(Self::UNNAMED, value)
    }

    /// Adds a field.
    #[must_use]
    pub fn with(mut self, name: &str, value: Zeroizing<Vec<u8>>) -> Self {
        self.fields.push((name.into(), value));
        self
    }

    /// Returns the value of a field; `None` selects the unnamed one.
    pub fn field(&self, name: Option<&str>) -> Option<&Zeroizing<Vec<u8>>> {
        let name = name.unwrap_or(Self::UNNAMED);
        let mut named = self.fields.iter().filter(|(known, _)| **known == *name);
        named.next().map(|(_, value)| value)
    }

    /// Names the fields in words, for an error about one that is not there.
    pub(super) fn names(&self) -> String {
        let is_shown = |name: &&str| name.bytes().all(|byte| byte.is_ascii_graphic());
        let names = self.fields.iter().map(|(name, _)| &**name);
        let mut names: Vec<&str> = names
            .filter(|name| !name.is_empty())
            .filter(is_shown)
            .collect();
        names.truncate(MOST_NAMES);
        match names[..] {
            [] => String::from(": it has no fields"),
            _ => format!(": it has {}", names.join(", ")),
        }
    }

    /// Adds the value that a field had when it was read, before a renewal replaced it.
    #[must_use]
    pub fn with_former(mut self, name: &str, value: Zeroizing<Vec<u8>>) -> Self {
        self.former.push((name.into(), value));
        self
    }

    /// Returns the former value of a field.
    pub fn former(&self, name: Option<&str>) -> Option<&Zeroizing<Vec<u8>>> {
        let mut named = self
            .former
            .iter()
            .filter(|(known, _)| Some(&**known) == name);
        named.next().map(|(_, value)| value)
    }

    const UNNAMED: &'static str = "";
}

/// How long a read may be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// When the store is read again, while the read stays in use.
    pub refresh_after: Duration,
    /// When uses start to wait briefly for the new read.
    pub stale_after: Duration,
    /// When it may no longer be used.
    pub expires_after: Duration,
    /// The id by which the store renews and revokes it, if it does.
    pub id: Option<LeaseId>,
}

/// A store's id for a lease.
#[derive(Clone, PartialEq, Eq)]
pub struct LeaseId {
    /// The store's own text.
    pub text: Box<str>,
    /// Whether the store says that it can be renewed.
    pub renewable: bool,
    /// The number of the store's login that made the lease, which ends with that login.
    pub login: u64,
}

impl std::fmt::Debug for LeaseId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LeaseId")
    }
}

impl Lease {
    /// Returns a lease that expires after this time, and is refreshed at 80 per cent of it.
    pub fn of(expires_after: Duration) -> Self {
        Self {
            refresh_after: expires_after.saturating_mul(4) / 5,
            stale_after: expires_after,
            expires_after,
            id: None,
        }
    }

    /// Returns the lease of a secret for which the store gave none: it is read again after `ttl`,
    /// and stays usable `stale` longer.
    pub(super) fn kept(ttl: Duration, stale: Duration) -> Self {
        Self {
            expires_after: ttl + stale,
            ..Self::of(ttl)
        }
    }

    /// Whether the store may be able to renew the lease.
    pub(super) fn is_renewable(&self) -> bool {
        self.id.as_ref().is_some_and(|id| id.renewable)
    }
}

/// How many fields are named in an error.
const MOST_NAMES: usize = 16;
