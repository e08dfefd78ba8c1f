//! A limit on the length of content, in bytes.

use std::fmt;

/// The most bytes that may be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Limit(u64);

impl Limit {
    /// A limit in bytes. Zero allows only empty content.
    pub const fn bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// A limit in KiB. Saturates.
    pub const fn kib(kib: u64) -> Self {
        Self(kib.saturating_mul(1 << 10))
    }

    /// A limit in MiB. Saturates.
    pub const fn mib(mib: u64) -> Self {
        Self(mib.saturating_mul(1 << 20))
    }

    /// The limit in bytes.
    pub const fn as_bytes(self) -> u64 {
        self.0
    }

    /// Whether this many bytes exceed the limit. Exactly the limit does not.
    pub const fn is_passed_by(self, bytes: u64) -> bool {
        bytes > self.0
    }
}

/// Writes whole GiB, MiB or KiB if possible, otherwise bytes: `16MiB`.
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
            let factor = 1 << shift;
            if self.0 != 0 && self.0.is_multiple_of(factor) {
                return write!(f, "{}{unit}", self.0 / factor);
            }
        }
        write!(f, "{}B", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_passed_by_one_byte_more() {
        assert!(!Limit::kib(1).is_passed_by(1024));
        assert!(Limit::kib(1).is_passed_by(1025));
    }
}
