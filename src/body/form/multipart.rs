//! Multipart forms: `multipart/*` (RFC 7578).

use percent_encoding::percent_decode;

use super::search::{FormFault, MemberSearch};

/// Reads every line that may belong to the head of a part, wherever the boundaries are: readers
/// disagree about boundaries.
pub(super) fn find(content: &[u8], found: &mut MemberSearch<'_>) -> Result<(), FormFault> {
    let lines = content.split(|b| matches!(b, b'\r' | b'\n'));
    let mut lines = lines.filter(|line| !line.is_empty()).peekable();
    while let Some(line) = lines.next() {
        let Some(colon) = memchr::memchr(b':', &line[..line.len().min(LONGEST_NAME)]) else {
            continue;
        };
        let name = line[..colon].trim_ascii();
        let disposition = name.eq_ignore_ascii_case(b"content-disposition");
        // Some readers use this as the name of a part that has none.
        if !disposition && !name.eq_ignore_ascii_case(b"content-id") {
            continue;
        }
        let mut value = line[colon + 1..].to_vec();
        // RFC 5322 §2.2.3.
        while let Some(folded) = lines.next_if(|next| matches!(next[0], b' ' | b'\t')) {
            value.extend_from_slice(folded);
        }
        let value = String::from_utf8_lossy(&value);
        if disposition {
            parameters(&value, found)?;
        } else {
            found.part(&[value.trim().trim_matches(['<', '>'])]);
        }
    }
    Ok(())
}

/// Finds each `name` and `filename` of a disposition. Some readers use the file name if there is no
/// name.
fn parameters(value: &str, found: &mut MemberSearch<'_>) -> Result<(), FormFault> {
    let lower = value.to_ascii_lowercase();
    for (at, word) in lower.match_indices("name") {
        let rest = value[at + word.len()..].trim_start();
        let (extended, rest) = match rest.strip_prefix('*') {
            Some(rest) => (true, rest.trim_start()),
            None => (false, rest),
        };
        let Some(rest) = rest.strip_prefix('=').map(str::trim_start) else {
            // RFC 2231 §3: `name*0=`.
            if extended && rest.starts_with(|c: char| c.is_ascii_digit()) {
                return Err(FormFault::Name);
            }
            continue;
        };
        let (bare, unescaped) = written(rest)?;
        // RFC 2047 §2.
        if bare.starts_with("=?") {
            return Err(FormFault::Name);
        }
        // RFC 8187 §3.2.1: `UTF-8'en'name`.
        let tail = bare.rsplit('\'').next().unwrap_or_default();
        let percent = |text: &str| {
            percent_decode(text.as_bytes())
                .decode_utf8_lossy()
                .into_owned()
        };
        found.part(&[&percent(&bare), &percent(tail), &unescaped, &bare]);
    }
    Ok(())
}

/// A parameter's value, both as written and unescaped.
///
/// No text is read as part of two values, so reading a whole line takes linear time. A quoted value
/// ends at the next quotation mark. An unquoted value ends at an `=`, which a token cannot contain
/// (RFC 2045 §5.1).
fn written(text: &str) -> Result<(String, String), FormFault> {
    let Some(inner) = text.strip_prefix('"') else {
        let end = text.find([';', ' ', '\t', ',', '=']).unwrap_or(text.len());
        let token = &text[..end];
        return match text[end..].starts_with('=') {
            true => Err(FormFault::Name),
            false => Ok((token.to_owned(), token.to_owned())),
        };
    };
    let (mut bare, mut unescaped, mut escaped) = (String::new(), String::new(), false);
    for c in inner.chars() {
        if c == '"' && !escaped {
            break;
        }
        bare.push(c);
        escaped = c == '\\' && !escaped;
        if !escaped {
            unescaped.push(c);
        }
    }
    Ok((bare, unescaped))
}

/// Enough for `Content-Disposition` and white space.
const LONGEST_NAME: usize = 32;
