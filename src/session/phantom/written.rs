//! Shapes as text, as stored in a session's record.
//!
//! Words between spaces: `=LITERAL` with percent-escapes, `COUNT` and an alphabet, `crc32:FROM-TO`
//! for a checksum over that range. A web token begins with `jwt`, its header and the length of its
//! signature.

use std::fmt::Write as _;

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, percent_encode};

use super::slots::{Alphabet, Crc32, Slot};

/// The alphabets and their names. A name never changes once it has been written.
const NAMES: [(&str, Alphabet); 9] = [
    ("upper", Alphabet::Upper),
    ("lower", Alphabet::Lower),
    ("digit", Alphabet::Digit),
    ("nonzero", Alphabet::NonZero),
    ("alpha", Alphabet::Alpha),
    ("alnum", Alphabet::Alnum),
    ("hex", Alphabet::HexLower),
    ("HEX", Alphabet::HexUpper),
    ("base32", Alphabet::Base32),
];

/// Writes positions, and the checksum over some of them.
pub(super) fn write(slots: &[Slot], check: Option<&Crc32>) -> String {
    let mut text = String::new();
    for run in slots.chunk_by(|one, other| match (one, other) {
        (Slot::Fixed(_), Slot::Fixed(_)) => true,
        (one, other) => one == other,
    }) {
        if !text.is_empty() {
            text.push(' ');
        }
        match run[0] {
            Slot::Draw(alphabet) => {
                let named = NAMES.iter().find(|(_, known)| *known == alphabet);
                let name = named.map_or("", |(name, _)| name);
                let _ = write!(text, "{}{name}", run.len());
            }
            Slot::Fixed(_) => {
                let bytes: Vec<u8> = run.iter().filter_map(Slot::fixed).collect();
                let _ = write!(text, "={}", percent_encode(&bytes, NON_ALPHANUMERIC));
            }
        }
    }
    if let Some(Crc32 { over }) = check {
        let _ = write!(text, " crc32:{}-{}", over.start, over.end);
    }
    text
}

/// Reads the text of `write`: at most `most` positions. `None` if the text is anything else.
pub(super) fn read<'t>(
    words: impl Iterator<Item = &'t str>,
    most: usize,
) -> Option<(Vec<Slot>, Option<Crc32>)> {
    let (mut slots, mut check) = (Vec::new(), None);
    for word in words {
        // A checksum ends the text.
        if check.is_some() {
            return None;
        }
        if let Some(literal) = word.strip_prefix('=') {
            slots.extend(percent_decode_str(literal).map(Slot::Fixed));
        } else if let Some(range) = word.strip_prefix("crc32:") {
            let (from, to) = range.split_once('-')?;
            check = Some(Crc32 {
                over: from.parse().ok()?..to.parse().ok()?,
            });
        } else {
            let digits = word.bytes().take_while(u8::is_ascii_digit).count();
            let (count, name) = word.split_at(digits);
            let count = count.parse().ok().filter(|count| *count <= most)?;
            let (_, alphabet) = NAMES.iter().find(|(known, _)| *known == name)?;
            slots.extend(std::iter::repeat_n(Slot::Draw(*alphabet), count));
        }
        if slots.len() > most {
            return None;
        }
    }
    Some((slots, check))
}

#[cfg(test)]
mod tests {
    use gateway_names::CredentialName;

    use super::super::{Issue, PhantomKey, Shape};

    fn phantom(shape: &Shape) -> String {
        let key = PhantomKey::from_bytes([9; 32]);
        let name = CredentialName::new("x").unwrap();
        let mut issue = Issue::new(&key);
        let phantom = issue.issue(&name, shape, |_| false).unwrap();
        phantom.reveal().to_owned()
    }

    #[test]
    fn a_shape_read_back_gives_the_same_phantom() {
        let token = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJ1c2VyLTEyMyIsImV4cCI6MTk5OX0.\
                     SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c";
        let secrets = [
            "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",
            "sk-ant-api03-CANARYcanary0123456789CANARYcanary0123456789AA",
            "Q0FOQVJZL2NhbmFyeSt4L3l6QUJDREVGR0hJSktMTU4=",
            "123e4567-e89b-12d3-a456-426614174000",
            "0123456789abcdef0123456789abcdef",
            "AKIAIOSFODNN7EXAMPLE",
            "p%ss=w[rd]-crc32:0-4-CANARYcanary01",
            token,
        ];
        for secret in secrets {
            let shape = Shape::of(secret.as_bytes());
            let written = shape.to_text();
            let read = Shape::from_text(&written).unwrap();
            assert!(read == shape, "{written}");
            assert_eq!(phantom(&read), phantom(&shape), "{written}");
        }
        let declared = Shape::parse("glpat-[20 alnum]-[uuid][6 digit]").unwrap();
        assert!(Shape::from_text(&declared.to_text()).unwrap() == declared);
        let known = Shape::of(secrets[0].as_bytes()).to_text();
        assert_eq!(known, "=ghp%5F 36alnum crc32:4-34");
    }

    #[test]
    fn the_text_of_a_shape_holds_nothing_that_is_drawn() {
        for secret in [
            "CANARYcanary0123456789",
            "ghp_CANARYcanary0123456789abcdefghijABCDEF",
        ] {
            let written = Shape::of(secret.as_bytes()).to_text();
            assert!(!written.to_lowercase().contains("canary"), "{written}");
        }
    }

    #[test]
    fn a_text_that_is_no_shape_is_refused() {
        for text in [
            "",
            "=",
            "7klingon",
            "alnum",
            "99999999alnum",
            "30alnum crc32:0-9",
            "30alnum crc32:20-10",
            "30alnum crc32:0-24 =x",
            "=%0A",
            "jwt",
            "jwt e30 x 4alnum",
        ] {
            assert!(Shape::from_text(text).is_err(), "{text}");
        }
    }
}
