//! Decodes names and values of queries and forms.

/// A decoded name or value.
#[derive(Debug)]
pub struct Decoded {
    /// The text. Bytes that are not UTF-8 stay `%XX`, in upper case.
    pub text: String,
    /// Whether all decoders agree: each `%` starts an escape, and the bytes are UTF-8.
    pub clear: bool,
}

/// Percent-decodes a name or value. `plus` is the byte that `+` stands for.
#[must_use]
pub fn decoded(raw: &[u8], plus: u8) -> Decoded {
    let raw: Vec<u8> = raw
        .iter()
        .map(|byte| if *byte == b'+' { plus } else { *byte })
        .collect();
    let bytes: Vec<u8> = percent_encoding::percent_decode(&raw).collect();
    let is_escape =
        |rest: &[u8]| matches!(rest, [a, b, ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit());
    let whole = raw.split(|byte| *byte == b'%').skip(1).all(is_escape);
    Decoded {
        clear: whole && std::str::from_utf8(&bytes).is_ok(),
        text: as_text(&bytes),
    }
}

/// Converts bytes to text. Bytes that are not UTF-8 become `%XX`, so this cannot be reversed.
#[must_use]
pub fn as_text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            text.push_str(percent_encoding::percent_encode_byte(*byte));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_decoders_read_differently_is_not_clear() {
        for (raw, text, clear) in [
            (&b"a+b"[..], "a b", true),
            (b"%61", "a", true),
            (b"%6", "%6", false),
            (b"%zz", "%zz", false),
            (b"a%", "a%", false),
            (b"%FF", "%FF", false),
            (b"\xff", "%FF", false),
            (b"%25", "%", true),
        ] {
            let decoded = decoded(raw, b' ');
            assert_eq!((decoded.text.as_str(), decoded.clear), (text, clear));
        }
    }
}
