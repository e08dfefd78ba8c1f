//! Multipart forms: `multipart/*` (RFC 7578).

use memchr::{memchr, memchr2};
use percent_encoding::percent_decode;

use super::search::{FormFault, Member, MemberSearch};

/// The parts with a name that is asked for, in the reading of any origin. Values are not read.
///
/// # Errors
/// [`FormFault::Name`]
pub(crate) fn members_of_parts(
    content: &[u8],
    is_asked: &dyn Fn(&str) -> bool,
) -> Result<Vec<Member>, FormFault> {
    let (mut heads, members) = (Heads::default(), Vec::new());
    let mut found = MemberSearch { is_asked, members };
    heads.push(content, &mut found)?;
    heads.end(&mut found)?;
    Ok(found.members)
}

/// Reads every line that may belong to the head of a part, wherever the boundaries are: readers
/// disagree about boundaries. Content may come in pieces.
#[derive(Default)]
pub(crate) struct Heads {
    /// The beginning of the line that is not over.
    line: Vec<u8>,
    /// The value of a head's field, which the next line may continue (RFC 5322 §2.2.3), and whether
    /// it is a disposition.
    value: Option<(Vec<u8>, bool)>,
    /// Whether `value` has more than was read.
    is_fresh: bool,
}

impl Heads {
    /// Takes more of the content.
    pub(super) fn push(
        &mut self,
        mut piece: &[u8],
        found: &mut MemberSearch<'_>,
    ) -> Result<(), FormFault> {
        while let Some(end) = memchr2(b'\r', b'\n', piece) {
            if self.line.is_empty() {
                self.read(&piece[..end], found)?;
            } else {
                self.begin(&piece[..end])?;
                let line = std::mem::take(&mut self.line);
                self.read(&line, found)?;
            }
            piece = &piece[end + 1..];
        }
        self.begin(piece)
    }

    /// Takes the end of the content.
    pub(super) fn end(&mut self, found: &mut MemberSearch<'_>) -> Result<(), FormFault> {
        let line = std::mem::take(&mut self.line);
        self.read(&line, found)?;
        self.value_ends(found)
    }

    /// Takes more of the content. Whether it names a member that is asked for.
    pub(crate) fn pass(
        &mut self,
        piece: &[u8],
        is_asked: &dyn Fn(&str) -> bool,
    ) -> Result<bool, FormFault> {
        let members = Vec::new();
        let mut found = MemberSearch { is_asked, members };
        self.push(piece, &mut found)?;
        // A reader may not wait for a line that continues it.
        if let Some((value, is_disposition)) = &self.value
            && std::mem::take(&mut self.is_fresh)
        {
            read_value(value, *is_disposition, &mut found)?;
        }
        Ok(!found.members.is_empty())
    }

    /// Keeps the beginning of a line, and all of one that matters.
    fn begin(&mut self, piece: &[u8]) -> Result<(), FormFault> {
        let free = LONGEST_LINE - self.line.len();
        self.line.extend_from_slice(&piece[..piece.len().min(free)]);
        let matters = || self.continues(&self.line) || field(&self.line).is_some();
        match piece.len() > free && matters() {
            true => Err(FormFault::Name),
            false => Ok(()),
        }
    }

    fn continues(&self, line: &[u8]) -> bool {
        self.value.is_some() && matches!(line.first(), Some(b' ' | b'\t'))
    }

    /// Reads a line without its end.
    fn read(&mut self, line: &[u8], found: &mut MemberSearch<'_>) -> Result<(), FormFault> {
        if line.is_empty() {
            return Ok(());
        }
        if self.continues(line)
            && let Some((value, _)) = &mut self.value
        {
            value.extend_from_slice(line);
            self.is_fresh = true;
            return match value.len() > LONGEST_LINE {
                true => Err(FormFault::Name),
                false => Ok(()),
            };
        }
        self.value_ends(found)?;
        self.is_fresh = true;
        self.value = match field(line) {
            Some(_) if line.len() > LONGEST_LINE => return Err(FormFault::Name),
            field => field.map(|(value, is_disposition)| (value.to_vec(), is_disposition)),
        };
        Ok(())
    }

    fn value_ends(&mut self, found: &mut MemberSearch<'_>) -> Result<(), FormFault> {
        match self.value.take() {
            Some((value, is_disposition)) => read_value(&value, is_disposition, found),
            None => Ok(()),
        }
    }
}

/// The value of a head's field that may name the part, and whether it is a disposition.
fn field(line: &[u8]) -> Option<(&[u8], bool)> {
    let colon = memchr(b':', &line[..line.len().min(LONGEST_NAME)])?;
    let name = line[..colon].trim_ascii();
    let is_disposition = name.eq_ignore_ascii_case(b"content-disposition");
    // Some readers use this as the name of a part that has none.
    let is_name = is_disposition || name.eq_ignore_ascii_case(b"content-id");
    is_name.then(|| (&line[colon + 1..], is_disposition))
}

fn read_value(
    value: &[u8],
    is_disposition: bool,
    found: &mut MemberSearch<'_>,
) -> Result<(), FormFault> {
    let value = String::from_utf8_lossy(value);
    if is_disposition {
        return parameters(&value, found);
    }
    found.part(&[value.trim().trim_matches(['<', '>'])]);
    Ok(())
}

/// Finds each `name` and `filename` of a disposition. Some readers use the file name if there is no
/// name.
fn parameters(value: &str, found: &mut MemberSearch<'_>) -> Result<(), FormFault> {
    let lower = value.to_ascii_lowercase();
    for (nth, (at, word)) in lower.match_indices("name").enumerate() {
        if nth == MOST_NAMES {
            return Err(FormFault::Name);
        }
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
        if bare.contains("=?") {
            return Err(FormFault::Name);
        }
        // RFC 8187 §3.2.1: `UTF-8'en'name`. Some readers know many more charsets.
        let charset = bare.split('\'').next().unwrap_or_default();
        let known = ["utf-8", "us-ascii", "iso-8859-1"];
        if extended && !known.iter().any(|one| charset.eq_ignore_ascii_case(one)) {
            return Err(FormFault::Name);
        }
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

/// The most names in one value.
const MOST_NAMES: usize = 32;
/// Enough for `Content-Disposition` and white space.
const LONGEST_NAME: usize = 32;
/// The longest line that names a part, with those that continue it.
const LONGEST_LINE: usize = 16 << 10;
