//! Writes JSON into a buffer: every text becomes printable ASCII, so that a record is one line on
//! any screen.

use std::io::Write as _;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Appends text as a JSON string of printable ASCII alone.
///
/// Everything else is escaped: line ends, escape sequences, bidi controls, any letter beyond ASCII.
/// What is not UTF-8 becomes U+FFFD. RFC 8259 §7.
pub(super) fn string(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    // Without an early end, so that many bytes are looked at at once: nearly every text is plain.
    if text
        .iter()
        .fold(true, |plain, &byte| plain & is_plain(byte))
    {
        out.extend_from_slice(text);
        out.push(b'"');
        return;
    }
    let mut rest = text;
    loop {
        let plain = rest
            .iter()
            .position(|&byte| !is_plain(byte))
            .unwrap_or(rest.len());
        out.extend_from_slice(&rest[..plain]);
        rest = &rest[plain..];
        if rest.is_empty() {
            break;
        }
        let odd = rest
            .iter()
            .position(|&byte| is_plain(byte))
            .unwrap_or(rest.len());
        escape(out, &rest[..odd]);
        rest = &rest[odd..];
    }
    out.push(b'"');
}

/// `,"name":` for a name that needs no escape, put together when it is compiled.
macro_rules! name {
    ($name:literal) => {
        concat!(",\"", $name, "\":").as_bytes()
    };
}
pub(super) use name;

/// Appends a [`name!`]. Inlined, as those below are: a copy of known length is a few stores, and a
/// record has some 30.
#[inline(always)]
pub(super) fn key(out: &mut Vec<u8>, name: &'static [u8]) {
    out.extend_from_slice(name);
}

/// Appends `,"name":"text"`.
pub(super) fn text(out: &mut Vec<u8>, name: &'static [u8], value: &[u8]) {
    key(out, name);
    string(out, value);
}

/// Appends `,"name":"word"`, for the words of this program and for checked names, which need no
/// escape.
#[inline(always)]
pub(super) fn word(out: &mut Vec<u8>, name: &'static [u8], value: &[u8]) {
    debug_assert!(value.iter().all(|&byte| is_plain(byte)), "only plain words");
    key(out, name);
    out.push(b'"');
    out.extend_from_slice(value);
    out.push(b'"');
}

/// Appends `,"name":"address:port"`.
pub(super) fn address(out: &mut Vec<u8>, name: &'static [u8], value: SocketAddr) {
    key(out, name);
    out.push(b'"');
    match value {
        SocketAddr::V4(v4) => {
            for (at, &byte) in v4.ip().octets().iter().enumerate() {
                if at > 0 {
                    out.push(b'.');
                }
                decimal(out, byte.into());
            }
            out.push(b':');
            decimal(out, v4.port().into());
        }
        // Writing into a Vec cannot fail.
        SocketAddr::V6(v6) => {
            let _ = write!(out, "{v6}");
        }
    }
    out.push(b'"');
}

/// Appends `,"name":number`.
#[inline(always)]
pub(super) fn number(out: &mut Vec<u8>, name: &'static [u8], value: u64) {
    key(out, name);
    decimal(out, value);
}

/// Appends a number in decimal digits.
pub(super) fn decimal(out: &mut Vec<u8>, mut value: u64) {
    if value < 1000 {
        // Most are; a digit is pushed, since a copy is dearer.
        if value >= 100 {
            out.push(b'0' + (value / 100) as u8);
        }
        if value >= 10 {
            out.push(b'0' + (value / 10 % 10) as u8);
        }
        return out.push(b'0' + (value % 10) as u8);
    }
    let mut digits = [0; 20];
    let mut at = digits.len();
    while value > 0 {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
    }
    out.extend_from_slice(&digits[at..]);
}

/// The 64 lower-case hexadecimal digits of 32 bytes.
pub(super) fn hex(bytes: &[u8; 32]) -> [u8; 64] {
    let mut out = [0; 64];
    for (pair, byte) in out.chunks_exact_mut(2).zip(bytes) {
        pair[0] = digit(byte >> 4);
        pair[1] = digit(byte & 15);
    }
    out
}

/// Reckoned and not looked up, so that many are made at once.
fn digit(value: u8) -> u8 {
    value + if value < 10 { b'0' } else { b'a' - 10 }
}

/// Appends `,"time":"2026-11-21T09:15:17.123456Z"`: UTC, microseconds. RFC 3339 §5.6.
///
/// A clock before 1970 reads as 1970, one after 9999 as 9999.
pub(super) fn time(out: &mut Vec<u8>, at: SystemTime) {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let (year, month, day) = civil(since.as_secs() / 86_400);
    let year = year.min(9999);
    let second = since.as_secs() % 86_400;
    let mut text = *b"0000-00-00T00:00:00.000000Z";
    for (at, value) in [
        (0, year / 100),
        (2, year % 100),
        (5, month),
        (8, day),
        (11, second / 3600),
        (14, second / 60 % 60),
        (17, second % 60),
        (20, u64::from(since.subsec_micros()) / 10_000),
        (22, u64::from(since.subsec_micros()) / 100 % 100),
        (24, u64::from(since.subsec_micros()) % 100),
    ] {
        text[at] = b'0' + (value / 10) as u8;
        text[at + 1] = b'0' + (value % 10) as u8;
    }
    word(out, name!("time"), &text);
}

/// Year, month and day of a day counted from 1970-01-01, in the Gregorian calendar.
///
/// The years begin in March, so that the leap day is a year's last.
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\'
}

#[cold]
fn escape(out: &mut Vec<u8>, odd: &[u8]) {
    for chunk in odd.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '"' | '\\' => out.extend_from_slice(&[b'\\', letter as u8]),
                _ => letter
                    .encode_utf16(&mut [0; 2])
                    .iter()
                    .for_each(|&unit| escape_unit(out, unit)),
            }
        }
        if !chunk.invalid().is_empty() {
            escape_unit(out, 0xfffd);
        }
    }
}

fn escape_unit(out: &mut Vec<u8>, unit: u16) {
    out.extend_from_slice(b"\\u");
    for shift in [12, 8, 4, 0] {
        out.push(DIGITS[usize::from(unit >> shift & 15)]);
    }
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(text: &[u8]) -> String {
        let mut out = Vec::new();
        string(&mut out, text);
        String::from_utf8(out).expect("a JSON string here is ASCII")
    }

    fn dated(seconds: u64) -> String {
        let mut out = Vec::new();
        time(&mut out, UNIX_EPOCH + Duration::new(seconds, 1_999));
        String::from_utf8(out).expect("a time is ASCII")
    }

    #[test]
    fn hostile_text_stays_on_one_printable_line() {
        let hostile = "a\r\n\u{1b}[31m\0\u{7f}\u{202e}\u{2066}\u{85}\u{9b}\u{2028}\u{feff}\"\\é😀";
        let line = written(hostile.as_bytes());
        assert!(
            line.bytes().all(|byte| (b' '..=b'~').contains(&byte)),
            "{line}"
        );
        assert_eq!(
            serde_json::from_str::<String>(&line).expect("JSON"),
            hostile
        );
        assert_eq!(written(b"a\xff\xc3(").as_str(), "\"a\\ufffd\\ufffd(\"");
    }

    #[test]
    fn time_is_rfc_3339_in_utc() {
        assert_eq!(dated(0), ",\"time\":\"1970-01-01T00:00:00.000001Z\"");
        assert_eq!(
            dated(951_827_696),
            ",\"time\":\"2000-02-29T12:34:56.000001Z\""
        );
        assert_eq!(
            dated(4_107_542_399),
            ",\"time\":\"2100-02-28T23:59:59.000001Z\""
        );
        assert_eq!(
            dated(1_795_252_517),
            ",\"time\":\"2026-11-21T09:15:17.000001Z\""
        );
    }

    proptest! {
        #[test]
        fn any_text_reads_back_as_it_was(text in any::<String>()) {
            let line = written(text.as_bytes());
            prop_assert!(line.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
            prop_assert_eq!(serde_json::from_str::<String>(&line).expect("JSON"), text);
        }

        #[test]
        fn any_bytes_read_back_as_the_standard_library_repairs_them(bytes in any::<Vec<u8>>()) {
            let back = serde_json::from_str::<String>(&written(&bytes)).expect("JSON");
            prop_assert_eq!(back, String::from_utf8_lossy(&bytes).into_owned());
        }

        #[test]
        fn any_number_reads_back(value in any::<u64>()) {
            let mut out = Vec::new();
            decimal(&mut out, value);
            prop_assert_eq!(out, value.to_string().into_bytes());
        }
    }
}
