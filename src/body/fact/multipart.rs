//! The parts of a multipart form (`multipart/form-data`, RFC 7578), if all readers split it alike.

use std::ops::Range;

use gateway_message::FormName;
use gateway_message::content_name::parts;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use memchr::memmem;
use percent_encoding::percent_decode_str;

use super::form::{is_named, may_be};

/// A part of a form.
pub(crate) struct Part {
    /// Its name, as it is written.
    pub name: String,
    /// The range of its value, if it is a field that all readers see alike, and no file.
    pub value: Option<Range<usize>>,
    /// The name of its file, as it is written.
    pub file_name: Option<String>,
}

impl Part {
    /// Its name, in the reading that `is_asked` accepts. Some readers decode names.
    pub fn asked_as(&self, is_asked: impl Fn(&str) -> bool) -> Option<String> {
        let decoded = percent_decode_str(&self.name).decode_utf8_lossy();
        let mut readings = [&*self.name, &*decoded].into_iter();
        readings.find(|name| is_asked(name)).map(str::to_owned)
    }

    /// As [`Part::asked_as`], for a name that may hold a credential: readers that look for `name=`
    /// alone also find it in `filename=`.
    pub fn guarded_as(&self, is_asked: impl Fn(&str) -> bool) -> Option<String> {
        let in_file_name = || self.file_name.clone().filter(|name| is_asked(name));
        self.asked_as(&is_asked).or_else(in_file_name)
    }
}

/// The parts of a form. `None` if some reader may split the content differently. With `streams`, it
/// is only a beginning, and more follows.
pub(crate) fn multipart_parts(
    head: &HeaderMap,
    content: &[u8],
    streams: bool,
) -> Option<Vec<Part>> {
    let mut parts = Parts::of(head)?;
    let is_read = parts.push(content).is_ok() && (streams || parts.is_over());
    is_read.then_some(parts.seen)
}

/// Whether some reader may read a field named `seen` as `name`.
pub fn is_multipart_name(name: &FormName, seen: &str) -> bool {
    // Some readers take the charset of all fields from `_charset_` (RFC 7578 §4.6).
    may_be(name.parts(), &parts(seen)) || seen.trim().eq_ignore_ascii_case("_charset_")
}

/// The range of the value of a field that occurs once, counting every reading of a name.
pub(crate) fn multipart_fact(query: &str, name: &FormName, all: &[Part]) -> Option<Range<usize>> {
    let mut named = all.iter();
    let mut named = named.by_ref().filter(|part| {
        part.asked_as(|seen| is_multipart_name(name, seen))
            .is_some()
    });
    match (named.next(), named.next()) {
        (Some(one), None) if one.name == name.as_str() && !is_named(query, name.parts()) => {
            one.value.clone()
        }
        _ => None,
    }
}

/// Some reader may split the content differently.
#[derive(Debug)]
pub(crate) struct SplitFault;

/// Splits content as it arrives.
pub(crate) struct Parts {
    delimiter: String,
    /// The bytes that arrived and were not passed yet, and their offset in the content.
    rest: Vec<u8>,
    at: usize,
    state: State,
    count: usize,
    /// The parts whose heads arrived. The value of the last one may be incomplete.
    seen: Vec<Part>,
}

enum State {
    /// Before the first delimiter.
    Start,
    /// After a delimiter.
    Delimiter,
    /// In the head of a part.
    Head,
    /// In the value of a part, which begins at this offset.
    Value(Head, usize),
    /// After the last delimiter.
    End,
}

impl Parts {
    /// `None` if the content is no such form, or some reader may find another boundary.
    pub fn of(head: &HeaderMap) -> Option<Self> {
        Some(Self {
            delimiter: format!("--{}", boundary(head)?),
            rest: Vec::new(),
            at: 0,
            state: State::Start,
            count: 0,
            seen: Vec::new(),
        })
    }

    /// Takes more of the content.
    ///
    /// # Errors
    /// [`SplitFault`]. This cannot be used afterwards.
    pub fn push(&mut self, piece: &[u8]) -> Result<(), SplitFault> {
        for piece in piece.chunks(AT_ONCE) {
            self.rest.extend_from_slice(piece);
            while self.step()? {}
        }
        Ok(())
    }

    #[cfg(test)]
    pub fn is_forgotten(&self) -> bool {
        self.seen.is_empty()
    }

    /// Returns the parts whose heads arrived since the last call.
    pub fn take(&mut self) -> Vec<Part> {
        std::mem::take(&mut self.seen)
    }

    /// Whether the content may end here.
    pub fn is_over(&self) -> bool {
        matches!(self.state, State::End) && matches!(&*self.rest, b"" | b"\r\n")
    }

    /// Whether it is in a file, or in a field that is too long to be read.
    pub fn is_in_file(&self) -> bool {
        let far = |from: usize| self.at - from > LONGEST_FIELD;
        matches!(&self.state, State::Value(head, from) if !head.is_field || far(*from))
    }

    /// Advances to the next state. Returns whether these bytes may allow another step.
    fn step(&mut self) -> Result<bool, SplitFault> {
        let next = match &mut self.state {
            State::Start => match self.rest.get(..self.delimiter.len()) {
                Some(begin) if begin == self.delimiter.as_bytes() => {
                    Some((State::Delimiter, begin.len()))
                }
                Some(_) => return Err(SplitFault),
                None => None,
            },
            State::Delimiter => match self.rest.get(..2) {
                Some(b"\r\n") if self.count < MOST_PARTS => {
                    self.count += 1;
                    Some((State::Head, 2))
                }
                Some(b"--") => Some((State::End, 2)),
                Some(_) => return Err(SplitFault),
                None => None,
            },
            State::Head => self.head()?,
            State::Value(..) => self.value()?,
            State::End if b"\r\n".starts_with(&self.rest) => None,
            State::End => return Err(SplitFault),
        };
        let is_next = next.is_some();
        if let Some((state, taken)) = next {
            self.state = state;
            self.pass(taken);
        }
        Ok(is_next)
    }

    fn pass(&mut self, bytes: usize) {
        self.rest.drain(..bytes);
        self.at += bytes;
    }

    /// The state after the head of a part, and the head's length, if it is whole.
    fn head(&mut self) -> Result<Option<(State, usize)>, SplitFault> {
        let end = memmem::find(&self.rest, b"\r\n\r\n");
        let head = &self.rest[..end.unwrap_or(self.rest.len())];
        if head.len() > LONGEST_HEAD || memmem::find(head, self.delimiter.as_bytes()).is_some() {
            return Err(SplitFault);
        }
        let Some(end) = end else { return Ok(None) };
        let head = std::str::from_utf8(head).map_err(|_| SplitFault)?;
        let (part, head) = head_of(head).ok_or(SplitFault)?;
        self.seen.push(part);
        Ok(Some((State::Value(head, self.at + end + 4), end + 4)))
    }

    /// The state after the value of a part, and the number of passed bytes, if the value ends here.
    fn value(&mut self) -> Result<Option<(State, usize)>, SplitFault> {
        let State::Value(head, from) = &self.state else {
            return Ok(None);
        };
        let Some(start) = memmem::find(&self.rest, self.delimiter.as_bytes()) else {
            // The delimiter, with the line end before it, may have begun.
            let passed = self.rest.len().saturating_sub(self.delimiter.len() + 1);
            self.pass(passed);
            return Ok(None);
        };
        let end = start.checked_sub(2).ok_or(SplitFault)?;
        if &self.rest[end..start] != b"\r\n" {
            return Err(SplitFault);
        }
        let value = *from..self.at + end;
        if head.length.is_some_and(|length| length != value.len()) {
            return Err(SplitFault);
        }
        if let Some(part) = self.seen.last_mut() {
            part.value = Some(value).filter(|_| head.is_field);
        }
        Ok(Some((State::Delimiter, start + self.delimiter.len())))
    }
}

/// The boundary, if all readers find the same one.
fn boundary(head: &HeaderMap) -> Option<String> {
    let mut all = head.get_all(CONTENT_TYPE).iter();
    let (Some(value), None) = (all.next(), all.next()) else {
        return None;
    };
    let mut parts = value.to_str().ok()?.split(';').map(str::trim);
    let is_form = parts.next()?.eq_ignore_ascii_case("multipart/form-data");
    let (Some(parameter), None) = (parts.next(), parts.next()) else {
        return None;
    };
    let (name, value) = parameter.split_once('=')?;
    let value = unquoted(value);
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"'()+_-./:=?".contains(&b);
    let is_plain = (1..=70).contains(&value.len()) && value.bytes().all(plain);
    (is_form && is_plain && name.eq_ignore_ascii_case("boundary")).then(|| value.to_owned())
}

/// The head of a part.
struct Head {
    /// Whether it is a field that all readers see alike, and no file.
    is_field: bool,
    /// The length of the value, if the head states one.
    length: Option<usize>,
}

/// A part by its head, if all readers read that alike.
fn head_of(head: &str) -> Option<(Part, Head)> {
    let (mut part, mut is_plain, mut length) = (None, true, None);
    for line in head.split("\r\n") {
        let (field, value) = line.split_once(':')?;
        if value.contains(|c: char| c != '\t' && c.is_control()) {
            return None;
        }
        let value = value.trim_matches([' ', '\t']);
        match &*field.to_ascii_lowercase() {
            "content-disposition" if part.is_none() => part = Some(disposition(value)?),
            "content-type" => {
                let value = value.to_ascii_lowercase().replace(' ', "");
                is_plain &= matches!(&*value, "text/plain" | "text/plain;charset=utf-8");
            }
            // Some readers rely on this length.
            "content-length" if length.is_none() => {
                length = Some(value.parse().ok()?);
                is_plain = false;
            }
            "content-transfer-encoding" => is_plain = false,
            // Some readers find a name in other fields, or read a line as a part of the one before.
            _ => return None,
        }
    }
    let (part, is_field) = part?;
    let is_field = is_field && is_plain;
    Some((part, Head { is_field, length }))
}

/// The part that a disposition names, and whether the name is a plain one and no file's. `None` if
/// readers may find different ones.
fn disposition(value: &str) -> Option<(Part, bool)> {
    let (kind, mut rest) = value.split_once(';')?;
    let (mut name, mut file_name, mut is_file_again) = (None, None, false);
    loop {
        let (key, after) = rest.trim_start_matches([' ', '\t']).split_once('=')?;
        let (text, behind) = match after.strip_prefix('"') {
            Some(inner) => inner
                .split_once('"')
                .filter(|(text, _)| !text.contains('\\'))?,
            None => {
                let token = after.split_at(after.find(';').unwrap_or(after.len()));
                let is_token = |b: u8| b.is_ascii_graphic() && !b"\"\\,".contains(&b);
                Some(token).filter(|(text, _)| text.bytes().all(is_token))?
            }
        };
        let seen = match &*key.to_ascii_lowercase() {
            "name" => name.replace(text).is_some(),
            "filename" => file_name.replace(text).is_some(),
            "filename*" => std::mem::replace(&mut is_file_again, true),
            _ => return None,
        };
        if seen {
            return None;
        }
        let behind = behind.trim_start_matches([' ', '\t']);
        match behind.strip_prefix(';') {
            Some(more) => rest = more,
            None if behind.is_empty() => break,
            None => return None,
        }
    }
    let plain = |b: u8| b.is_ascii_graphic() && !b"\"\\%;,='".contains(&b);
    let is_plain = |name: &str| name.len() <= LONGEST_NAME && name.bytes().all(plain);
    let is_form = kind
        .trim_matches([' ', '\t'])
        .eq_ignore_ascii_case("form-data");
    // RFC 2047 §2.
    let name = name.filter(|name| is_form && !name.contains("=?"))?;
    let is_field = is_plain(name) && file_name.is_none() && !is_file_again;
    let part = Part {
        name: name.to_owned(),
        value: None,
        file_name: file_name.map(str::to_owned),
    };
    Some((part, is_field))
}

fn unquoted(text: &str) -> &str {
    let inner = text
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    inner.unwrap_or(text)
}

/// As many as frameworks read (Werkzeug's `max_form_parts`).
const MOST_PARTS: usize = 1_000;
/// The longest name of a field.
const LONGEST_NAME: usize = 256;
/// The longest head of a part.
const LONGEST_HEAD: usize = 16 << 10;
/// The longest field that is waited for.
const LONGEST_FIELD: usize = 64 << 10;
/// Content is taken in pieces of this size, so that little of it is copied at a time.
const AT_ONCE: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn fields(kind: &'static str, content: &str) -> Option<Vec<(String, String)>> {
        let head = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]);
        let found = multipart_parts(&head, content.as_bytes(), false)?;
        let value = |part: Part| Some((part.name, content[part.value?].to_owned()));
        Some(found.into_iter().filter_map(value).collect())
    }

    const KIND: &str = "multipart/form-data; boundary=b-1";

    #[test]
    fn fields_are_found_and_files_are_not() {
        let content = "--b-1\r\nContent-Disposition: form-data; name=\"token\"\r\n\r\nabc\r\n\
            --b-1\r\ncontent-disposition: form-data; name=\"file\"; filename=\"x\"\r\nContent-Type: image/png\r\n\r\n\r\n-b-1\r\n\
            --b-1\r\nContent-Disposition: form-data; name=empty\r\nContent-Type: text/plain; charset=UTF-8\r\n\r\n\r\n--b-1--\r\n";
        let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let expected = [("token", "abc"), ("empty", "")].map(own);
        assert_eq!(fields(KIND, content).unwrap(), expected);
        assert_eq!(
            fields("Multipart/Form-Data; boundary=\"b-1\"", content).unwrap(),
            expected
        );
    }

    #[test]
    fn a_form_that_splits_in_two_ways_is_not_read() {
        let part = "Content-Disposition: form-data; name=\"token\"\r\n\r\nabc";
        let whole = format!("--b-1\r\n{part}\r\n--b-1--\r\n");
        assert!(fields(KIND, &whole).is_some());
        for (kind, content) in [
            (KIND, format!("x\r\n{whole}")),
            (KIND, format!("{whole}x")),
            (KIND, whole.replace("abc\r\n", "abc\n")),
            (KIND, whole.replace("abc", "a--b-1c")),
            (KIND, whole.replace("--b-1--", "--b-1")),
            (KIND, whole.replace("--b-1\r\n", "--b-1 \r\n")),
            (KIND, whole.replace("\r\n\r\n", "\n\n")),
            (KIND, whole.replace("\r\n\r\n", "\r\nX: a\nb: c\r\n\r\n")),
            (KIND, whole.replace("\r\n\r\n", "\r\n folded\r\n\r\n")),
            (
                "multipart/form-data; boundary=b-1; boundary=c",
                whole.clone(),
            ),
            ("multipart/mixed; boundary=b-1", whole.clone()),
            ("multipart/form-data", whole.clone()),
        ] {
            assert!(fields(kind, &content).is_none(), "{kind} {content:?}");
        }
        for head in [
            "name=\"a%62\"",
            "name=\"a b\"",
            "name=\"token\"; filename=\"a;b\"; filename*=UTF-8''a%3bb",
            "name=\"token\"\r\nContent-Length: 3",
            "name=\"token\"\r\nContent-Transfer-Encoding: base64",
        ] {
            let content = whole.replace("name=\"token\"", head);
            assert_eq!(fields(KIND, &content).unwrap(), [], "{head}");
        }
        // Each is a second field to some framework, or has another value there.
        let disposition = "Content-Disposition: form-data; name=\"token\"";
        for head in [
            "Content-Disposition: form-data; name*=UTF-8''token",
            "Content-Disposition: form-data; name=\"a\"; x=y",
            "Content-Disposition: form-data; name=\"a\\\"b\"",
            "Content-Disposition: form-data; name=\"a\"; name=\"token\"",
            "Content-Disposition: form-data; name\u{1c}=\"token\"",
            "Content-Disposition: form-data",
            "Content-Disposition: fo\0rm-data; name=\"token\"",
            "Content-Disposition\t\t: form-data; name=\"token\"\r\nContent-Disposition: form-data; name=x",
            "\tContent-Disposition: form-data; name=\"token\"\r\nContent-Disposition: form-data; name=x",
            "Content-Disposition: form-data; name=x\r\n\u{b}Content-Disposition: form-data; name=\"token\"",
            "Content-Disposition: form-data; name=x;\r\n\u{c}name=\"token\";x:",
            "X-Content-Disposition: form-data; name=\"token\"\r\nContent-Disposition: form-data; name=x",
            "Content-ID: token\r\nContent-Disposition: form-data; name=x",
            "Content-Disposition: form-data; name=x\r\nContent-Length: 2",
            "Content-Disposition: form-data; name=x; filename=\"a\\\"; name=\"token\"",
        ] {
            let content = whole.replace(disposition, head);
            assert!(fields(KIND, &content).is_none(), "{head:?}");
        }
    }

    proptest! {
        #[test]
        fn a_form_that_is_written_is_read(
            parts in vec(("[a-z]{1,9}", "[a-z\r\n-]{0,30}", any::<bool>()), 0..5), is_ended: bool,
        ) {
            let mut content = String::new();
            for (name, value, is_quoted) in &parts {
                let mark = if *is_quoted { "\"" } else { "" };
                let head = format!("Content-Disposition: form-data; name={mark}{name}{mark}");
                content += &format!("--b-1\r\n{head}\r\n\r\n{value}\r\n");
            }
            content += if is_ended { "--b-1--\r\n" } else { "--b-1--" };
            let written = parts.into_iter().map(|(name, value, _)| (name, value)).collect();
            prop_assert_eq!(fields(KIND, &content), Some(written));
        }
    }
}
