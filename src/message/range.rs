//! Byte ranges (RFC 9110 §14). A range is requested with a margin around it, so that a secret
//! across its border is read whole.

use http::header::{CONTENT_LENGTH, CONTENT_RANGE};
use http::{HeaderMap, HeaderValue};

/// A single range of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteRange {
    /// From this byte on, to this one if it is given.
    From(u64, Option<u64>),
    /// The last bytes: this many.
    Last(u64),
}

/// The client's part of a response with a margin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RangePart {
    /// How many bytes come before the client's part.
    pub skip: u64,
    /// Its length in bytes; 0 if the content has no byte of the range.
    pub length: u64,
}

impl ByteRange {
    /// Reads a field's value. `None` if it is not one valid range of bytes.
    #[must_use]
    pub fn parse(value: &HeaderValue) -> Option<Self> {
        let (unit, range) = value.to_str().ok()?.split_once('=')?;
        let (first, last) = range.split_once('-')?;
        if !unit.eq_ignore_ascii_case("bytes") {
            return None;
        }
        match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => Some(Self::From(first, Some(last))),
            (Some(first), None) if last.is_empty() => Some(Self::From(first, None)),
            (None, Some(count)) if first.is_empty() && count > 0 => Some(Self::Last(count)),
            _ => None,
        }
    }

    /// The value of a `Range` field for the range with `margin` more bytes on both sides.
    #[must_use]
    pub fn with_margin(self, margin: u64) -> HeaderValue {
        let text = match self {
            Self::From(first, None) => format!("bytes={}-", first.saturating_sub(margin)),
            Self::From(first, Some(last)) => format!(
                "bytes={}-{}",
                first.saturating_sub(margin),
                last.saturating_add(margin)
            ),
            Self::Last(count) => format!("bytes=-{}", count.saturating_add(margin)),
        };
        HeaderValue::try_from(text).expect("digits are valid in a field")
    }

    /// Finds the range in a response with partial content, and rewrites the fields for it alone.
    ///
    /// `None` if the response does not say which bytes it has, or begins after the range does.
    pub fn of_answer(self, fields: &mut HeaderMap) -> Option<RangePart> {
        let (from, to, total) = content_range(fields)?;
        let (first, last) = match self {
            Self::From(first, last) => (first, last.map_or(to, |last| last.min(to))),
            Self::Last(count) => (number(&total)?.saturating_sub(count), to),
        };
        if from > first || from > to {
            return None;
        }
        let part = RangePart {
            skip: first - from,
            length: (last + 1).saturating_sub(first),
        };
        let given = match part.length {
            0 => format!("bytes */{total}"),
            _ => format!("bytes {first}-{last}/{total}"),
        };
        fields.insert(CONTENT_RANGE, HeaderValue::try_from(given).ok()?);
        fields.insert(CONTENT_LENGTH, HeaderValue::from(part.length));
        Some(part)
    }
}

/// Whether a response has a part of content whose whole length is unknown or at most `most`.
#[must_use]
pub fn is_part_of(fields: &HeaderMap, most: u64) -> bool {
    content_range(fields).is_some_and(|(from, to, total)| {
        let total = number(&total);
        let is_whole = from == 0 && total == Some(to + 1);
        !is_whole && total.is_none_or(|total| total <= most)
    })
}

/// The first and the last byte of the part that a response has, and the whole length as written.
fn content_range(fields: &HeaderMap) -> Option<(u64, u64, String)> {
    let mut ranges = fields.get_all(CONTENT_RANGE).iter();
    let (Some(given), None) = (ranges.next(), ranges.next()) else {
        return None;
    };
    let given = given.to_str().ok()?.strip_prefix("bytes ")?;
    let (range, total) = given.split_once('/')?;
    let (from, to) = range.split_once('-')?;
    let to = number(to).filter(|to| *to < u64::MAX)?;
    Some((number(from)?, to, total.to_owned()))
}

/// Reads digits alone: no sign, no blank.
fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> Option<ByteRange> {
        ByteRange::parse(&HeaderValue::from_str(text).unwrap())
    }

    /// The part of a response with this `Content-Range`, and the one that the client gets.
    fn part(asked: &str, given: &str) -> Option<(u64, u64, String)> {
        let given = HeaderValue::from_str(given).unwrap();
        let mut fields = HeaderMap::from_iter([(CONTENT_RANGE, given)]);
        let part = range(asked).unwrap().of_answer(&mut fields)?;
        assert_eq!(fields[CONTENT_LENGTH], part.length.to_string());
        let told = fields[CONTENT_RANGE].to_str().unwrap().to_owned();
        Some((part.skip, part.length, told))
    }

    #[test]
    fn one_range_is_asked_for_with_its_margin() {
        for (asked, wide) in [
            ("bytes=100-199", "bytes=90-209"),
            ("Bytes=5-", "bytes=0-"),
            ("bytes=-7", "bytes=-17"),
            (
                "bytes=0-18446744073709551615",
                "bytes=0-18446744073709551615",
            ),
        ] {
            assert_eq!(range(asked).unwrap().with_margin(10), wide, "{asked}");
        }
        for none in [
            "bytes=0-1,3-4",
            "bytes=2-1",
            "bytes=-0",
            "bytes=-",
            "bytes=+1-2",
            "bytes= 1-2",
            "lines=1-2",
            "bytes 1-2",
            "bytes=1-99999999999999999999",
        ] {
            assert_eq!(range(none), None, "{none}");
        }
    }

    #[test]
    fn a_part_of_little_is_known() {
        for (given, is_part) in [
            ("bytes 0-9/10", false),
            ("bytes 1-9/10", true),
            ("bytes 0-8/10", true),
            ("bytes 0-9/*", true),
            ("bytes 0-9/101", false),
            ("lines 1-9/10", false),
        ] {
            let given = HeaderValue::from_static(given);
            let fields = HeaderMap::from_iter([(CONTENT_RANGE, given.clone())]);
            assert_eq!(is_part_of(&fields, 100), is_part, "{given:?}");
        }
    }

    #[test]
    fn a_client_is_told_of_its_own_bytes_alone() {
        for (asked, given, skip, length, told) in [
            (
                "bytes=100-199",
                "bytes 90-209/500",
                10,
                100,
                "bytes 100-199/500",
            ),
            (
                "bytes=100-199",
                "bytes 90-149/150",
                10,
                50,
                "bytes 100-149/150",
            ),
            ("bytes=100-199", "bytes 90-99/100", 10, 0, "bytes */100"),
            (
                "bytes=100-",
                "bytes 90-499/500",
                10,
                400,
                "bytes 100-499/500",
            ),
            ("bytes=5-", "bytes 0-9/*", 5, 5, "bytes 5-9/*"),
            ("bytes=-7", "bytes 483-499/500", 10, 7, "bytes 493-499/500"),
            ("bytes=-7", "bytes 0-3/4", 0, 4, "bytes 0-3/4"),
        ] {
            let found = part(asked, given);
            assert_eq!(
                found,
                Some((skip, length, told.to_owned())),
                "{asked} {given}"
            );
        }
        for (asked, given) in [
            ("bytes=100-199", "bytes 101-209/500"),
            ("bytes=100-199", "bytes */500"),
            ("bytes=100-199", "lines 90-209/500"),
            ("bytes=100-199", "bytes 209-90/500"),
            ("bytes=-7", "bytes 483-499/*"),
            ("bytes=5-", "bytes 0-18446744073709551615/*"),
        ] {
            assert_eq!(part(asked, given), None, "{asked} {given}");
        }
    }
}
