//! Makes a target canonical: one decoding pass, then dot segments.

use super::target_form::{EncodedSlash, TargetMalformed};

/// Whether the bytes are certainly canonical, so that the slow path can be skipped: no escape, no
/// segment that starts with a dot, nothing to escape and no `;`.
pub(super) fn is_plain(bytes: &[u8]) -> bool {
    let mut previous = 0;
    for &byte in bytes {
        if CLASS[byte as usize] != Class::Plain || (byte == b'.' && previous == b'/') {
            return false;
        }
        previous = byte;
    }
    true
}

pub(super) fn canonical(bytes: &[u8], slashes: EncodedSlash) -> Result<Vec<u8>, TargetMalformed> {
    let (path, query) = match memchr::memchr(b'?', bytes) {
        Some(mark) => (&bytes[..mark], Some(&bytes[mark + 1..])),
        None => (bytes, None),
    };
    let mut out = Vec::with_capacity(bytes.len() + 16);
    match slashes {
        EncodedSlash::Key => out.extend(decode_once(path, Part::Key)?),
        EncodedSlash::Refuse | EncodedSlash::Keep => {
            let decoded = decode_once(path, Part::Path)?;
            if slashes == EncodedSlash::Refuse && has_hidden_separator(&decoded) {
                return Err(TargetMalformed::EncodedSlash);
            }
            resolve(&decoded, &mut out)?;
            check_deeper(&out)?;
        }
    }
    if let Some(query) = query {
        out.push(b'?');
        out.extend(decode_once(query, Part::Query)?);
    }
    Ok(out)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Path,
    /// A path in which every escape is data.
    Key,
    Query,
}

/// The single decoding pass. Decodes unreserved characters, and escapes everything else that is or
/// must be escaped.
fn decode_once(raw: &[u8], part: Part) -> Result<Vec<u8>, TargetMalformed> {
    let mut out = Vec::with_capacity(raw.len() + 8);
    let mut beyond_ascii = false;
    let mut at = 0;
    while at < raw.len() {
        let byte = raw[at];
        at += 1;
        match CLASS[byte as usize] {
            Class::Plain => out.push(byte),
            Class::Percent => {
                let value = escape(raw.get(at..at + 2))?;
                at += 2;
                beyond_ascii |= value >= 0x80;
                push_escaped(value, part, &mut out)?;
            }
            Class::Semicolon if part != Part::Query => out.push(byte),
            Class::Bracket if part == Part::Query => out.push(byte),
            Class::Backslash if part != Part::Path => push_hex(byte, &mut out),
            Class::Semicolon | Class::Bracket | Class::Escape => {
                beyond_ascii |= byte >= 0x80;
                push_hex(byte, &mut out);
            }
            Class::Backslash | Class::Refuse => return Err(TargetMalformed::Character),
        }
    }
    // Some decoders read invalid UTF-8 in escapes (`%c0%ae`) as a dot, others as garbage.
    if beyond_ascii
        && percent_encoding::percent_decode(&out)
            .decode_utf8()
            .is_err()
    {
        return Err(TargetMalformed::Escape);
    }
    Ok(out)
}

fn escape(digits: Option<&[u8]>) -> Result<u8, TargetMalformed> {
    let [high, low] = digits
        .and_then(|d| <[u8; 2]>::try_from(d).ok())
        .ok_or(TargetMalformed::Escape)?;
    let digit = |byte: u8| char::from(byte).to_digit(16).ok_or(TargetMalformed::Escape);
    // Two hexadecimal digits are at most 255.
    Ok((digit(high)? * 16 + digit(low)?) as u8)
}

fn push_escaped(value: u8, part: Part, out: &mut Vec<u8>) -> Result<(), TargetMalformed> {
    match value {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(value),
        // A query value may contain a line break or a backslash, but a path must not. NUL ends a
        // string in too many origins.
        0 => return Err(TargetMalformed::Character),
        b'/' if part == Part::Key => out.push(value),
        0x01..=0x1f | 0x7f | b'\\' if part == Part::Path => return Err(TargetMalformed::Character),
        _ => push_hex(value, out),
    }
    Ok(())
}

fn push_hex(value: u8, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.extend([
        b'%',
        DIGITS[usize::from(value >> 4)],
        DIGITS[usize::from(value & 15)],
    ]);
}

/// Whether the path contains `%2F`, or `%25` before the digits of a dot, slash or backslash,
/// however often the percent sign itself is escaped.
fn has_hidden_separator(path: &[u8]) -> bool {
    memchr::memmem::find_iter(path, b"%2").any(|at| match &path[at..] {
        [_, _, b'F', ..] => true,
        [_, _, b'5', rest @ ..] => {
            let mut rest = rest;
            while let Some(deeper) = rest.strip_prefix(b"25") {
                rest = deeper;
            }
            if let [b'u' | b'U', b'0', b'0', digits @ ..] = rest {
                rest = digits;
            }
            matches!(
                rest,
                [b'2', b'e' | b'E' | b'f' | b'F', ..] | [b'5', b'c' | b'C', ..]
            )
        }
        _ => false,
    })
}

/// Refuses a resolved path that becomes a different one if an origin decodes it again, however
/// often.
///
/// Bytes that the first decoding reveals are data within a segment, including a kept `%2F`, but
/// must not form a dot segment. Later decodings must not reveal a dot segment, separator or
/// control, nor a character that needs no escape (`%2561dmin`). A name with a percent sign
/// (`per%25cent`) may decode to bytes that are not text.
fn check_deeper(path: &[u8]) -> Result<(), TargetMalformed> {
    let mut separators = None;
    let mut text = path.to_vec();
    for _ in 0..MOST_DECODINGS {
        let decoded: Vec<u8> = percent_encoding::percent_decode(&text).collect();
        let reading = read_loosely(&decoded);
        if reading.split(SEPARATORS).any(is_dots) {
            return Err(TargetMalformed::DotSegment);
        }
        let found = reading
            .bytes()
            .filter(|b| matches!(b, b'/' | b'\\') || b.is_ascii_control())
            .count();
        if found > *separators.get_or_insert(found) {
            return Err(TargetMalformed::EncodedSlash);
        }
        if decoded == text {
            return Ok(());
        }
        if escapes_unreserved(&decoded) {
            return Err(TargetMalformed::EscapedTwice);
        }
        text = decoded;
    }
    Err(TargetMalformed::EncodedSlash)
}

/// Whether some escape stands for a character that needs none.
fn escapes_unreserved(bytes: &[u8]) -> bool {
    memchr::memchr_iter(b'%', bytes).any(|at| {
        let plain = escape(bytes.get(at + 1..at + 3)).map(char::from).ok();
        let letter = plain.or_else(|| Some(iis_escape(&bytes[at..])?.0));
        letter.is_some_and(|letter| letter.is_ascii_alphanumeric() || "-._~".contains(letter))
    })
}

/// Decodes bytes as the most lenient origin would: an overlong ASCII character counts as that
/// character (`%c0%ae` is a dot), and so does IIS's escape of any (`%u002e`).
fn read_loosely(bytes: &[u8]) -> String {
    let mut text = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let [first, after @ ..] = rest {
        if let Some((letter, behind)) = iis_escape(rest) {
            text.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
            rest = behind;
            continue;
        }
        let (byte, behind) = match rest {
            [0xc0 | 0xc1, last @ 0x80..=0xbf, behind @ ..] => (overlong(*first, *last), behind),
            [
                0xe0,
                middle @ (0x80 | 0x81),
                last @ 0x80..=0xbf,
                behind @ ..,
            ]
            | [
                0xf0,
                0x80,
                middle @ (0x80 | 0x81),
                last @ 0x80..=0xbf,
                behind @ ..,
            ] => (overlong(*middle, *last), behind),
            _ => (*first, after),
        };
        text.push(byte);
        rest = behind;
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// The character of an escape such as `%u002e`, and the text after it.
pub(super) fn iis_escape(bytes: &[u8]) -> Option<(char, &[u8])> {
    let [b'%', b'u' | b'U', rest @ ..] = bytes else {
        return None;
    };
    let (digits, behind) = rest.split_at_checked(4)?;
    let value = digits.iter().try_fold(0, |value, digit| {
        Some(value << 4 | char::from(*digit).to_digit(16)?)
    });
    Some((char::from_u32(value?)?, behind))
}

fn overlong(before: u8, last: u8) -> u8 {
    (before & 1) << 6 | last & 0x3f
}

/// Whether some origins read a segment, or its part before or after a parameter, as `.` or `..`.
/// They trim white space, and treat wide and small Unicode dots as plain ones (NFKC).
fn is_dots(piece: &str) -> bool {
    let dots = |c: char| match c {
        '.' | '\u{ff0e}' | '\u{fe52}' | '\u{2024}' => Some(1),
        '\u{2025}' => Some(2),
        _ => None,
    };
    let counted: Option<usize> = piece.trim().chars().map(dots).sum();
    matches!(counted, Some(1 | 2))
}

/// Resolves dot segments (RFC 3986 §5.2.4), but refuses a path that climbs above its root instead
/// of clipping it.
fn resolve(path: &[u8], out: &mut Vec<u8>) -> Result<(), TargetMalformed> {
    let mut starts = Vec::new();
    let mut segments = path[1..].split(|b| *b == b'/').peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        match segment {
            b"." => {}
            b".." => out.truncate(starts.pop().ok_or(TargetMalformed::DotSegment)?),
            segment if hides_dots(segment) => return Err(TargetMalformed::DotSegment),
            segment => {
                starts.push(out.len());
                out.push(b'/');
                out.extend_from_slice(segment);
                continue;
            }
        }
        // A final dot segment leaves the slash of its directory.
        if last {
            out.push(b'/');
        }
    }
    Ok(())
}

/// Matches `..;x`, `x;..` and `..%3Bx`, which are dot segments to origins that cut off parameters.
/// Also matches `..%2Fx`, where `%2F` is kept.
fn hides_dots(segment: &[u8]) -> bool {
    if !segment.contains(&b'.') {
        return false;
    }
    let Ok(segment) = std::str::from_utf8(segment) else {
        return true;
    };
    let pieces = || {
        segment
            .split("%3B")
            .flat_map(|piece| piece.split("%2F"))
            .flat_map(|piece| piece.split(';'))
    };
    pieces().count() > 1 && pieces().any(|piece| matches!(piece, "." | ".."))
}

/// Characters that separate segments, or a segment from its parameters, in some reading. NFKC and
/// similar mappings turn the last four into slashes.
const SEPARATORS: [char; 9] = [
    '/', '\\', ';', '?', '#', '\u{ff0f}', '\u{ff3c}', '\u{2215}', '\u{2044}',
];
/// No client encodes more often, and checking further would take quadratic time.
const MOST_DECODINGS: usize = 8;

/// Whether a canonical query may contain the byte. Brackets stay unescaped there.
pub(super) fn may_stand_in_query(byte: u8) -> bool {
    matches!(
        CLASS[usize::from(byte)],
        Class::Plain | Class::Percent | Class::Bracket
    )
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// Represents itself in path and query.
    Plain,
    Percent,
    Semicolon,
    Bracket,
    Backslash,
    /// Not allowed unescaped in a URI. Clients send it anyway, and its escape means the same.
    Escape,
    Refuse,
}

static CLASS: [Class; 256] = classes();

const fn classes() -> [Class; 256] {
    let mut table = [Class::Refuse; 256];
    let mut byte = 0x80;
    while byte < table.len() {
        table[byte] = Class::Escape;
        byte += 1;
    }
    byte = 0x21;
    while byte < 0x7f {
        table[byte] = match byte as u8 {
            b'%' => Class::Percent,
            b';' => Class::Semicolon,
            b'[' | b']' => Class::Bracket,
            b'\\' => Class::Backslash,
            b'"' | b'<' | b'>' | b'^' | b'`' | b'{' | b'|' | b'}' => Class::Escape,
            b'#' => Class::Refuse,
            _ => Class::Plain,
        };
        byte += 1;
    }
    table
}
