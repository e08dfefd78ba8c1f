//! Lines of HTTP/1, and the bytes that tokens, targets and values may contain.

use super::malformed::WireMalformed;

/// Finds lines that end in CRLF in a growing prefix.
#[derive(Debug, Clone, Default)]
pub(super) struct Lines {
    /// Where the next line starts.
    pub(super) start: usize,
    looked: usize,
}

impl Lines {
    /// The next line without its CRLF, once it is complete.
    pub(super) fn next<'b>(&mut self, bytes: &'b [u8]) -> Result<Option<&'b [u8]>, WireMalformed> {
        let Some(found) = memchr::memchr2(b'\r', b'\n', &bytes[self.looked..]) else {
            self.looked = bytes.len();
            return Ok(None);
        };
        self.looked += found;
        match &bytes[self.looked..] {
            [b'\r', b'\n', ..] => {}
            [b'\r'] => return Ok(None),
            _ => return Err(WireMalformed::LineEnd),
        }
        let line = &bytes[self.start..self.looked];
        self.looked += 2;
        self.start = self.looked;
        Ok(Some(line))
    }
}

/// Splits a field line into name and value (RFC 9112 §5). White space before the colon and folding
/// are refused. [`has_control`] checks for controls.
pub(super) fn split_field(line: &[u8]) -> Result<(&[u8], &[u8]), WireMalformed> {
    match line.iter().position(|b| !is_token_byte(*b)) {
        Some(colon @ 1..) if line[colon] == b':' => Ok((&line[..colon], &line[colon + 1..])),
        _ => Err(WireMalformed::Field),
    }
}

/// Whether there is a control other than tab, CR and LF. Without an early exit, the loop processes
/// many bytes at once.
pub(super) fn has_control(bytes: &[u8]) -> bool {
    let control = |b: u8| ((b < 0x20) & (b != b'\t') & (b != b'\r') & (b != b'\n')) | (b == 0x7f);
    bytes.iter().fold(false, |found, &b| found | control(b))
}

/// Trims only the spaces around a framing field's value: parsers differ on tabs there.
pub(super) fn spaces_trimmed(mut value: &[u8]) -> &[u8] {
    while let [b' ', rest @ ..] | [rest @ .., b' '] = value {
        value = rest;
    }
    value
}

pub(super) fn is_token_byte(byte: u8) -> bool {
    BYTES[usize::from(byte)] & TOKEN != 0
}

pub(super) fn is_plain_target_byte(byte: u8) -> bool {
    BYTES[usize::from(byte)] & PLAIN != 0
}

const TOKEN: u8 = 1;
const PLAIN: u8 = 2;

/// RFC 9110 §5.6.2 tokens, and the bytes of RFC 3986 paths and queries.
static BYTES: [u8; 256] = {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 128 {
        let byte = at as u8;
        let alphanumeric = byte.is_ascii_alphanumeric();
        if alphanumeric || is_one_of(byte, b"!#$%&'*+-.^_`|~") {
            table[at] |= TOKEN;
        }
        if alphanumeric || is_one_of(byte, b"-._~%!$&'()*+,;=:@/?") {
            table[at] |= PLAIN;
        }
        at += 1;
    }
    table
};

const fn is_one_of(byte: u8, set: &[u8]) -> bool {
    let mut at = 0;
    while at < set.len() {
        if set[at] == byte {
            return true;
        }
        at += 1;
    }
    false
}
