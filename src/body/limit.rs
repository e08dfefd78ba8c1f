//! A length in bytes that content must not pass.

use std::{fmt, str::FromStr};

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

/// Whole MiB or KiB where it is one, else bytes.
impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, unit) = match self.0 {
            n if n >= 1 << 20 && n.is_multiple_of(1 << 20) => (n >> 20, "MiB"),
            n if n >= 1 << 10 && n.is_multiple_of(1 << 10) => (n >> 10, "KiB"),
            n => (n, "bytes"),
        };
        write!(f, "{count} {unit}")
    }
}

/// Says that a text is not a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a size such as `65536`, `64 KiB`, `8 MiB` or `1 GiB`")]
pub struct LimitSyntax;

impl FromStr for Limit {
    type Err = LimitSyntax;

    /// Reads digits and an optional `KiB`, `MiB` or `GiB` (powers of two only, so that nobody has
    /// to guess).
    fn from_str(text: &str) -> Result<Self, LimitSyntax> {
        let split = text
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len());
        let (digits, unit) = text.split_at(split);
        let shift = match unit.trim_start_matches(' ') {
            "" | "B" | "bytes" => 0,
            "KiB" => 10,
            "MiB" => 20,
            "GiB" => 30,
            _ => return Err(LimitSyntax),
        };
        let count: u64 = digits.parse().map_err(|_| LimitSyntax)?;
        count.checked_mul(1 << shift).map(Self).ok_or(LimitSyntax)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_reads_what_it_shows() {
        for limit in [
            Limit::bytes(0),
            Limit::bytes(1025),
            Limit::kib(64),
            Limit::mib(8),
            Limit::mib(2048),
        ] {
            assert_eq!(limit.to_string().parse(), Ok(limit));
        }
        assert_eq!("1GiB".parse(), Ok(Limit::mib(1024)));
    }

    #[test]
    fn a_limit_with_a_guessable_unit_is_refused() {
        for text in [
            "",
            "MiB",
            "8M",
            "8 MB",
            "-1",
            "+1",
            "1.5 MiB",
            "99999999999 GiB",
            "8 MiB ",
        ] {
            assert_eq!(text.parse::<Limit>(), Err(LimitSyntax), "{text}");
        }
    }

    #[test]
    fn a_limit_is_passed_by_one_byte_more() {
        assert!(!Limit::kib(1).is_passed_by(1024));
        assert!(Limit::kib(1).is_passed_by(1025));
    }
}
