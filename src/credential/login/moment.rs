//! The end of a token, as programs write it into their files.

use std::time::{Duration, SystemTime};

use serde::Deserialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::tokens::claims;

/// The format of a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MomentFormat {
    /// Seconds since 1970.
    Seconds,
    /// Milliseconds since 1970.
    Milliseconds,
    /// RFC 3339, between quotes.
    Text,
}

/// Reads a moment: a number of seconds or milliseconds, or RFC 3339. `None` for any other text.
pub(super) fn read(text: &str) -> Option<(SystemTime, MomentFormat)> {
    if let Ok(time) = OffsetDateTime::parse(text, &Rfc3339) {
        let since = u64::try_from(time.unix_timestamp()).unwrap_or(0);
        return Some((
            SystemTime::UNIX_EPOCH + Duration::from_secs(since),
            MomentFormat::Text,
        ));
    }
    let number = text.split('.').next()?.parse::<u64>().ok()?;
    let (since, written) = if (FIRST_SECONDS..FIRST_MILLISECONDS).contains(&number) {
        (Duration::from_secs(number), MomentFormat::Seconds)
    } else {
        (Duration::from_millis(number), MomentFormat::Milliseconds)
    };
    Some((SystemTime::UNIX_EPOCH.checked_add(since)?, written))
}

/// Writes a moment as JSON.
pub(super) fn write(moment: SystemTime, written: MomentFormat) -> String {
    let since = moment
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    match written {
        MomentFormat::Seconds => since.as_secs().to_string(),
        MomentFormat::Milliseconds => since.as_millis().to_string(),
        MomentFormat::Text => {
            let whole = SystemTime::UNIX_EPOCH + Duration::from_secs(since.as_secs());
            let text = OffsetDateTime::from(whole).format(&Rfc3339);
            format!("\"{}\"", text.unwrap_or_default())
        }
    }
}

/// 2100: the end of tokens that programs in the sandbox see. The gateway renews the tokens.
pub(super) fn far() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(4_102_444_800)
}

/// Returns the end of an access token, if it is a JSON Web Token with an `exp` claim.
pub(super) fn of_token(token: &str) -> Option<SystemTime> {
    let Claims { exp } = claims(token)?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(exp))
}

#[derive(Deserialize)]
struct Claims {
    exp: u64,
}

/// The first number that counts seconds. A lower one would be before 2001 and counts milliseconds,
/// as in most programs.
const FIRST_SECONDS: u64 = 1_000_000_000;
/// The first number that counts milliseconds: in seconds, it would be after the year 5000.
const FIRST_MILLISECONDS: u64 = 100_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_is_too_small_to_tell_counts_milliseconds() {
        for (text, unit) in [
            ("1000", MomentFormat::Milliseconds),
            ("1763000000", MomentFormat::Seconds),
            ("1763000000000", MomentFormat::Milliseconds),
        ] {
            assert_eq!(read(text).unwrap().1, unit, "{text}");
        }
    }
}
