//! A length in bytes that content must not pass.

use std::fmt;

/// The most bytes that are read of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Limit(u64);

impl Limit {
    /// A limit of so many bytes; zero admits only emptiness.
    pub const fn bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// A limit of so many KiB; saturates.
    pub const fn kib(kib: u64) -> Self {
        Self(kib.saturating_mul(1 << 10))
    }

    /// A limit of so many MiB; saturates.
    pub const fn mib(mib: u64) -> Self {
        Self(mib.saturating_mul(1 << 20))
    }

    /// The limit in bytes.
    pub const fn as_bytes(self) -> u64 {
        self.0
    }

    /// Whether so many bytes pass the limit; exactly the limit does not.
    pub const fn is_passed_by(self, bytes: u64) -> bool {
        bytes > self.0
    }
}

/// Whole GiB, MiB or KiB where it is one, else bytes: `16MiB`.
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
