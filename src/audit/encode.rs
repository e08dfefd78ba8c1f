//! Writes records as JSON in printable ASCII, so that each is one line on any terminal.

use std::borrow::Cow;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::Formatter;
use smol_str::SmolStr;
use time::OffsetDateTime;

/// A JSON object being written. Unset members are left out.
pub(super) struct Object<'a> {
    out: &'a mut Vec<u8>,
    /// Where the object begins.
    start: usize,
}

impl<'a> Object<'a> {
    pub(super) fn new(out: &'a mut Vec<u8>) -> Self {
        let start = out.len();
        Self { out, start }
    }

    /// Writes a member. `key` has the form `,"key":` of a key between two members, and must need no
    /// escapes.
    pub(super) fn member(&mut self, key: &'static str, value: &impl Value) {
        if !value.is_unset() {
            self.out.extend_from_slice(key.as_bytes());
            value.write(self.out);
        }
    }

    pub(super) fn end(self) {
        // The comma before the first member becomes the brace that opens the object.
        match self.out.get_mut(self.start) {
            Some(comma) => *comma = b'{',
            None => self.out.push(b'{'),
        }
        self.out.push(b'}');
    }
}

/// A value that a record's member can have.
///
/// Serde's derive is not used: it costs 14,000 instructions an exchange (docs/benchmarks.md).
pub(super) trait Value {
    fn is_unset(&self) -> bool;
    fn write(&self, out: &mut Vec<u8>);
}

macro_rules! number {
    ($($kind:ty)*) => {$(
        impl Value for $kind {
            fn is_unset(&self) -> bool {
                *self == 0
            }

            fn write(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(itoa::Buffer::new().format(*self).as_bytes());
            }
        }
    )*};
}

number!(u8 u16 u32 u64);

macro_rules! texts {
    ($($kind:ty)*) => {$(
        impl Value for $kind {
            fn is_unset(&self) -> bool {
                self.is_empty()
            }

            fn write(&self, out: &mut Vec<u8>) {
                text(self, out);
            }
        }
    )*};
}

texts!(String SmolStr);

impl Value for Cow<'static, str> {
    fn is_unset(&self) -> bool {
        self.is_empty()
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            // A word of this program's own needs no escapes.
            Self::Borrowed(word) => plain(word, out),
            Self::Owned(word) => text(word, out),
        }
    }
}

impl Value for SocketAddr {
    fn is_unset(&self) -> bool {
        false
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            // Most addresses are IPv4, and the formatter would take ten times as long.
            Self::V4(address) => {
                let mut before = b'"';
                for octet in address.ip().octets() {
                    out.push(std::mem::replace(&mut before, b'.'));
                    octet.write(out);
                }
                out.push(b':');
                address.port().write(out);
                out.push(b'"');
            }
            // Digits, colons and brackets.
            Self::V6(address) => {
                write!(out, "\"{address}\"").expect("a vector takes every byte");
            }
        }
    }
}

impl<T: Value> Value for Option<T> {
    fn is_unset(&self) -> bool {
        self.is_none()
    }

    fn write(&self, out: &mut Vec<u8>) {
        if let Some(value) = self {
            value.write(out);
        }
    }
}

impl<T: Value> Value for Vec<T> {
    fn is_unset(&self) -> bool {
        self.is_empty()
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.push(b'[');
        for (at, value) in self.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            value.write(out);
        }
        out.push(b']');
    }
}

/// Writes a JSON string, with `serde_json`'s escapes if it needs any.
fn text(text: &str, out: &mut Vec<u8>) {
    if is_plain(text) {
        plain(text, out);
    } else {
        text.serialize(&mut Serializer::with_formatter(out, Ascii))
            .expect("a vector takes every byte");
    }
}

/// Writes a JSON string that needs no escapes.
fn plain(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
}

/// Whether a text can appear unescaped in a JSON string. Eight bytes are looked at at once: most
/// texts have fewer than thirty.
fn is_plain(text: &str) -> bool {
    let (eights, rest) = text.as_bytes().as_chunks::<8>();
    let plain = |plain, byte: &u8| {
        plain & (b' '..=b'~').contains(byte) & (*byte != b'"') & (*byte != b'\\')
    };
    eights.iter().all(|eight| eight.iter().fold(true, plain)) && rest.iter().fold(true, plain)
}

/// `2026-11-21T09:15:17.123456Z`: UTC, microseconds. RFC 3339 §5.6.
///
/// A time before 1970 is written as 1970, one after 9999 as 9999.
pub(super) fn timestamp(at: SystemTime) -> String {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let since = time::Duration::try_from(since).unwrap_or(time::Duration::MAX);
    let at = OffsetDateTime::UNIX_EPOCH.saturating_add(since);
    let ((year, month, day), (hour, minute, second, micro)) =
        (at.to_calendar_date(), at.to_hms_micro());
    let year = u16::try_from(year).expect("a year from 1970 to 9999");
    let mut out = *b"0000-00-00T00:00:00.000000Z";
    for (place, value) in [
        (0, (year / 100) as u8),
        (2, (year % 100) as u8),
        (5, month.into()),
        (8, day),
        (11, hour),
        (14, minute),
        (17, second),
        (20, (micro / 10_000) as u8),
        (22, (micro / 100 % 100) as u8),
        (24, (micro % 100) as u8),
    ] {
        out[place] = b'0' + value / 10;
        out[place + 1] = b'0' + value % 10;
    }
    std::str::from_utf8(&out)
        .expect("digits and marks")
        .to_owned()
}

/// Escapes what `serde_json` does not: DEL and every non-ASCII character, such as bidi controls.
/// RFC 8259 §7.
struct Ascii;

impl Formatter for Ascii {
    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        out: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        for piece in fragment.split_inclusive(|letter| !(' '..='~').contains(&letter)) {
            let plain = piece.trim_end_matches(|letter| !(' '..='~').contains(&letter));
            out.write_all(plain.as_bytes())?;
            for unit in piece[plain.len()..].encode_utf16() {
                write!(out, "\\u{unit:04x}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::super::record::Record;
    use super::*;

    fn written(text: &str) -> String {
        let record = Record {
            path: Some(text.into()),
            ..Record::default()
        };
        let mut line = Vec::new();
        record.write(&mut line);
        String::from_utf8(line).expect("a record is ASCII")
    }

    fn read(line: &str) -> Option<SmolStr> {
        serde_json::from_str::<Record>(line).expect("JSON").path
    }

    #[test]
    fn hostile_text_stays_on_one_printable_line() {
        let hostile = "a\r\n\u{1b}[31m\0\u{7f}\u{202e}\u{2066}\u{85}\u{9b}\u{2028}\u{feff}\"\\é😀";
        let line = written(hostile);
        assert!(
            line.bytes().all(|byte| (b' '..=b'~').contains(&byte)),
            "{line}"
        );
        assert_eq!(read(&line).as_deref(), Some(hostile));
    }

    #[test]
    fn time_is_rfc_3339_in_utc() {
        for (seconds, wanted) in [
            (0, "1970-01-01T00:00:00.000001Z"),
            (951_827_696, "2000-02-29T12:34:56.000001Z"),
            (4_107_542_399, "2100-02-28T23:59:59.000001Z"),
            (1_795_252_517, "2026-11-21T09:15:17.000001Z"),
        ] {
            let at = UNIX_EPOCH + Duration::new(seconds, 1_999);
            assert_eq!(timestamp(at), wanted);
        }
        let before = UNIX_EPOCH - Duration::from_secs(1);
        assert_eq!(timestamp(before), "1970-01-01T00:00:00.000000Z");
        let beyond = UNIX_EPOCH + Duration::from_secs(1 << 60);
        assert!(timestamp(beyond).starts_with("9999-12-31T"));
    }

    #[test]
    fn a_phase_that_no_record_has_is_not_read() {
        let read = |us: &str| serde_json::from_str::<Record>(&format!("{{\"us\":{{{us}}}}}"));
        assert_eq!(read("\"total\":7").expect("known").us.total, Some(7));
        assert!(read("\"a\\n\":7").is_err());
    }

    proptest! {
        #[test]
        fn any_text_reads_back_as_it_was(text in any::<String>()) {
            let line = written(&text);
            prop_assert!(line.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
            prop_assert_eq!(read(&line), Some(text.into()));
        }
    }
}
