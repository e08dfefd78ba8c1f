//! Numbers with units: sizes in binary multiples of a byte, and durations.

use std::ops::RangeInclusive;
use std::time::Duration;

use gateway_body::Limit;

use super::diagnostic::Hint;

/// Reads a size, written as `100B`, `32KiB`, `256MiB` or `2GiB`.
///
/// # Errors
/// Returns a [`Hint`] if the number or the unit is missing or invalid, or the value is too large.
pub fn size(text: &str) -> Result<Limit, Hint> {
    let (number, unit) = split(text)?;
    let factor = match unit {
        "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "" => return refused!("a size needs its unit"; "write for example `32KiB` or `256MiB`"),
        _ => {
            return refused!("the unit of a size is B, KiB, MiB or GiB";
                "write for example `256MiB`");
        }
    };
    match u64::checked_mul(number, factor) {
        Some(bytes) => Ok(Limit::bytes(bytes)),
        None => refused!("the size is larger than can be counted"; "write a smaller size"),
    }
}

/// Reads a duration within a range.
///
/// # Errors
/// Returns a [`Hint`] if it is no duration, or outside that range.
pub(super) fn within(text: &str, range: RangeInclusive<Duration>) -> Result<Duration, Hint> {
    let duration = duration(text)?;
    if range.contains(&duration) {
        return Ok(duration);
    }
    let (least, most) = (show_duration(*range.start()), show_duration(*range.end()));
    refused!("it is outside {least} to {most}"; "write a duration within that range")
}

/// Reads a duration of at most a day and at least some seconds.
///
/// # Errors
/// As [`within`].
pub(super) fn within_a_day(text: &str, least: u64) -> Result<Duration, Hint> {
    within(
        text,
        Duration::from_secs(least)..=Duration::from_secs(86_400),
    )
}

/// Reads a duration: a whole number with one of `ms`, `s`, `m`, `h`, `d`.
///
/// # Errors
/// Returns a [`Hint`] if the number or the unit is missing or invalid, or the value is too large.
pub fn duration(text: &str) -> Result<Duration, Hint> {
    let (number, unit) = split(text)?;
    let factor = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        "" => {
            return refused!("a duration needs its unit"; "write for example `10s`, `5m` or `24h`");
        }
        _ => {
            return refused!("the unit of a duration is ms, s, m, h or d";
                "write for example `10s` or `24h`");
        }
    };
    match u64::checked_mul(number, factor) {
        Some(millis @ ..=LONGEST_MILLIS) => Ok(Duration::from_millis(millis)),
        _ => refused!("the duration is longer than ten years"; "write a shorter one"),
    }
}

/// Formats a duration as `duration` reads it, in its largest whole unit.
pub fn show_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    for (factor, unit) in [
        (86_400_000, "d"),
        (3_600_000, "h"),
        (60_000, "m"),
        (1_000, "s"),
    ] {
        if millis != 0 && millis.is_multiple_of(factor) {
            return format!("{}{unit}", millis / factor);
        }
    }
    format!("{millis}ms")
}

fn split(text: &str) -> Result<(u64, &str), Hint> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number = number.parse().map_err(|_| {
        hint!("it does not start with a whole number";
            "write a number and its unit, such as `10s` or `32KiB`")
    })?;
    Ok((number, unit))
}

const LONGEST_MILLIS: u64 = 10 * 366 * 86_400_000;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_number_without_a_unit_is_refused() {
        assert!(size("4096").unwrap_err().why.contains("unit"));
        assert!(duration("10").unwrap_err().why.contains("unit"));
    }

    #[test]
    fn a_size_or_duration_that_overflows_is_refused() {
        assert!(size("18446744073709551615KiB").is_err());
        assert!(size("99999999999999999999B").is_err());
        assert!(duration("18446744073709551615d").is_err());
        assert!(duration("3661d").is_err());
    }

    #[test]
    fn signs_spaces_fractions_and_decimal_units_are_refused() {
        for text in ["", "-1s", "+1s", " 1s", "1 s", "1.5h", "1S", "s"] {
            assert!(duration(text).is_err(), "{text:?}");
        }
        for text in ["", "1KB", "1MB", "1 MiB", "1.5MiB", "MiB", "-1B"] {
            assert!(size(text).is_err(), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_reads_back(bytes in 0u64.., millis in 0u64..LONGEST_MILLIS) {
            let limit = Limit::bytes(bytes);
            prop_assert_eq!(size(&limit.to_string()), Ok(limit));
            let time = Duration::from_millis(millis);
            prop_assert_eq!(duration(&show_duration(time)), Ok(time));
        }
    }
}
