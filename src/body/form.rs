//! Forms: the members of content that an origin reads by name, whatever its format.

use std::fmt;

use http::{HeaderMap, HeaderValue, header};
use percent_encoding::percent_decode;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use gateway_message::pairs::decoded;

/// How content that an origin may read as a form is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FormKind {
    /// `application/x-www-form-urlencoded`, and every type that no other kind is for, or none:
    /// services take forms by them, and JSON that begins as such (Slack takes `text/plain`).
    Pairs,
    /// `multipart/*` (RFC 7578).
    Parts,
    /// A JSON object, a list of them, or several in a row.
    Json,
}

/// Why content cannot be read as the form that it says to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FormFault {
    /// It has a content coding.
    #[error("it has a content coding")]
    Coded,
    /// Its characters are neither UTF-8 nor ASCII.
    #[error("it has another charset than UTF-8")]
    Charset,
    /// It is no JSON.
    #[error("it is no JSON")]
    Json,
    /// A part's name is written in more than one piece, or in a charset of its own.
    #[error("the name of a part is written so that readers disagree about it")]
    Name,
}

impl FormKind {
    /// The format of the content that these fields announce; `None` for what is declared to be none
    /// that holds members.
    ///
    /// # Errors
    /// [`FormFault::Coded`] and [`FormFault::Charset`].
    pub fn of(fields: &HeaderMap) -> Result<Option<Self>, FormFault> {
        let value = fields
            .get(header::CONTENT_TYPE)
            .map_or(&b""[..], HeaderValue::as_bytes);
        let text = String::from_utf8_lossy(value).to_ascii_lowercase();
        let (kind, parameters) = text.split_once(';').unwrap_or((&text, ""));
        let kind = match kind.trim() {
            kind if kind.contains("form-urlencoded") => Self::Pairs,
            kind if kind.starts_with("multipart/") => Self::Parts,
            kind if kind.contains("json") => Self::Json,
            kind if is_binary(kind) => return Ok(None),
            _ => Self::Pairs,
        };
        let coded = |value: &HeaderValue| !value.as_bytes().eq_ignore_ascii_case(b"identity");
        if fields.get_all(header::CONTENT_ENCODING).iter().any(coded) {
            return Err(FormFault::Coded);
        }
        let mut charsets = parameters
            .split(';')
            .filter_map(|parameter| parameter.trim().strip_prefix("charset"))
            .filter_map(|rest| rest.trim_start().strip_prefix('='))
            .map(|charset| charset.trim().trim_matches('"'));
        if charsets.all(|charset| CHARSETS.contains(&charset)) {
            Ok(Some(kind))
        } else {
            Err(FormFault::Charset)
        }
    }

    /// The values of the members that are asked for by name; `None` for one that is no text, or is
    /// not read.
    ///
    /// Closed on doubt: a member that some reader may see is one, even if others do not see it.
    ///
    /// # Errors
    /// [`FormFault::Json`] and [`FormFault::Name`].
    pub fn values(
        self,
        content: &[u8],
        is_asked: impl Fn(&str) -> bool,
    ) -> Result<Vec<Option<String>>, FormFault> {
        let mut found = Found {
            is_asked: &is_asked,
            values: Vec::new(),
        };
        match self {
            Self::Pairs if begins_as_json(content) => {
                json(content, &mut found)?;
                pairs(content, &mut found);
            }
            Self::Pairs => pairs(content, &mut found),
            Self::Parts => parts(content, &mut found)?,
            Self::Json => json(content, &mut found)?,
        }
        Ok(found.values)
    }
}

/// What is looked for, and what was found of it.
struct Found<'a> {
    is_asked: &'a dyn Fn(&str) -> bool,
    values: Vec<Option<String>>,
}

impl Found<'_> {
    /// A value of what is looked for. What stands there more often than anybody writes it is no
    /// text.
    fn value(&mut self, value: Option<String>) {
        match self.values.len() {
            0..MOST_VALUES => self.values.push(value),
            MOST_VALUES => self.values.push(None),
            _ => {}
        }
    }

    /// A name of a part, whose value is not read.
    fn part(&mut self, name: &str) {
        if (self.is_asked)(name) {
            self.value(None);
        }
    }
}

/// Whether a type declares bytes in which no service looks for members.
fn is_binary(kind: &str) -> bool {
    // What one reader takes for a name another may take for two types.
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"/.+-_".contains(&b);
    let (top, sub) = kind.split_once('/').unwrap_or((kind, ""));
    let listed = match top {
        "image" | "audio" | "video" | "font" => true,
        "application" => {
            BINARY.contains(&sub)
                || BINARY_BEGINNINGS
                    .iter()
                    .any(|beginning| sub.starts_with(beginning))
        }
        _ => false,
    };
    listed && kind.bytes().all(plain)
}

/// Whether a reader that tells the format by the content would take it for JSON, in whatever
/// charset.
pub(super) fn begins_as_json(content: &[u8]) -> bool {
    let skipped = |b: &&u8| !(b.is_ascii_control() || b" \xef\xbb\xbf\xfe\xff".contains(b));
    matches!(content.iter().find(skipped), Some(b'{' | b'['))
}

fn pairs(content: &[u8], found: &mut Found<'_>) {
    for pair in split_pairs(content) {
        if (found.is_asked)(&decoded(pair.name, b' ').text) {
            let value = pair.value.unwrap_or_default();
            found.value(Some(decoded(value, b' ').text));
        }
    }
}

/// One pair of a form, as it stands there.
pub(super) struct Pair<'a> {
    pub name: &'a [u8],
    /// What follows `=`.
    pub value: Option<&'a [u8]>,
    /// Whether all readers see this pair here: between two `&`, where some also end one at `;` or
    /// at the end of a line.
    pub agreed: bool,
}

/// The pairs of a form, by the readers that see most of them.
pub(super) fn split_pairs(content: &[u8]) -> impl Iterator<Item = Pair<'_>> {
    let inner = |b: &u8| matches!(b, b';' | b'\r' | b'\n');
    content.split(|b| *b == b'&').flat_map(move |whole| {
        let agreed = !whole.iter().any(inner);
        whole.split(inner).map(move |pair| {
            let equals = memchr::memchr(b'=', pair);
            Pair {
                name: &pair[..equals.unwrap_or(pair.len())],
                value: equals.map(|at| &pair[at + 1..]),
                agreed,
            }
        })
    })
}

/// Every line that may be the head of a part, wherever the borders are: readers disagree about
/// those.
fn parts(content: &[u8], found: &mut Found<'_>) -> Result<(), FormFault> {
    let lines = content.split(|b| matches!(b, b'\r' | b'\n'));
    let mut lines = lines.filter(|line| !line.is_empty()).peekable();
    while let Some(line) = lines.next() {
        let Some(colon) = memchr::memchr(b':', &line[..line.len().min(LONGEST_NAME)]) else {
            continue;
        };
        let name = line[..colon].trim_ascii();
        let disposition = name.eq_ignore_ascii_case(b"content-disposition");
        // Some readers call a part by this where it has no name.
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
            found.part(value.trim().trim_matches(['<', '>']));
        }
    }
    Ok(())
}

/// Each `name` and `filename` of a disposition: some readers take the second where the first is
/// missing.
fn parameters(value: &str, found: &mut Found<'_>) -> Result<(), FormFault> {
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
        for reading in [&percent(&bare), &percent(tail), &unescaped, &bare] {
            found.part(reading);
        }
    }
    Ok(())
}

/// A parameter's value as it stands, and with its escapes undone.
///
/// No two values are read over the same text, so that all of a line take time in proportion to it:
/// what is quoted ends at the next value's quotation mark, and what is not quoted at its `=`, which
/// a token cannot hold (RFC 2045 §5.1).
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

fn json(content: &[u8], found: &mut Found<'_>) -> Result<(), FormFault> {
    let content = content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(content);
    // Where each document ends is found first: to ask the reader behind each whether it was the
    // last takes it over all before.
    let mut documents = serde_json::Deserializer::from_slice(content).into_iter::<IgnoredAny>();
    let mut from = 0;
    while let Some(document) = documents.next() {
        document.map_err(|_| FormFault::Json)?;
        let to = documents.byte_offset();
        let members = Members {
            found,
            lists: 1,
            asked: false,
        };
        let mut reader = serde_json::Deserializer::from_slice(&content[from..to]);
        members
            .deserialize(&mut reader)
            .map_err(|_| FormFault::Json)?;
        from = to;
    }
    Ok(())
}

/// The members of an object, or of those in a list.
struct Members<'f, 'a> {
    found: &'f mut Found<'a>,
    /// How many lists deep objects are looked for.
    lists: u8,
    /// Whether it is the value of a member that is asked for.
    asked: bool,
}

impl Members<'_, '_> {
    /// A value that is no object and no list.
    fn plain(self, value: Option<&str>) {
        if self.asked {
            self.found.value(value.map(str::to_owned));
        }
    }
}

impl<'de> DeserializeSeed<'de> for Members<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Members<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        if self.asked {
            self.found.value(None);
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(());
        }
        while let Some(name) = map.next_key::<String>()? {
            if !(self.found.is_asked)(&name) {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            map.next_value_seed(Members {
                found: &mut *self.found,
                lists: 0,
                asked: true,
            })?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        if self.asked {
            self.found.value(None);
        }
        if self.lists == 0 {
            while list.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(());
        }
        loop {
            let inner = Members {
                found: &mut *self.found,
                lists: self.lists - 1,
                asked: false,
            };
            if list.next_element_seed(inner)?.is_none() {
                return Ok(());
            }
        }
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        self.plain(None);
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        self.plain(None);
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        self.plain(None);
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        self.plain(None);
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.plain(Some(text));
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.plain(Some(""));
        Ok(())
    }
}

const CHARSETS: [&str; 5] = ["utf-8", "utf8", "us-ascii", "ascii", "iso-8859-1"];
/// Types of files, packages and messages that are read by no name of a member.
const BINARY: [&str; 23] = [
    "octet-stream",
    "cbor",
    "gzip",
    "java-archive",
    "msgpack",
    "ogg",
    "pdf",
    "protobuf",
    "vnd.debian.binary-package",
    "vnd.google.protobuf",
    "vnd.rar",
    "wasm",
    "x-7z-compressed",
    "x-bzip2",
    "x-compressed",
    "x-gzip",
    "x-msgpack",
    "x-protobuf",
    "x-rpm",
    "x-tar",
    "x-xz",
    "zip",
    "zstd",
];
/// The same, of families: gRPC streams, and what git sends.
const BINARY_BEGINNINGS: [&str; 2] = ["grpc", "x-git-"];
/// `Content-Disposition` and white space.
const LONGEST_NAME: usize = 32;
/// More values of what is looked for are not kept.
const MOST_VALUES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn found(kind: FormKind, content: &str) -> usize {
        let is_token = |name: &str| name == "token";
        kind.values(content.as_bytes(), is_token).unwrap().len()
    }

    fn kind(content_type: &str, coding: Option<&str>) -> Result<Option<FormKind>, FormFault> {
        let mut fields = HeaderMap::new();
        if !content_type.is_empty() {
            fields.insert(header::CONTENT_TYPE, content_type.parse().unwrap());
        }
        if let Some(coding) = coding {
            fields.insert(header::CONTENT_ENCODING, coding.parse().unwrap());
        }
        FormKind::of(&fields)
    }

    #[test]
    fn the_format_is_told_by_the_type_and_what_cannot_be_read_is_refused() {
        for (text, expected) in [
            ("", Some(FormKind::Pairs)),
            (
                "application/x-www-form-urlencoded; charset=UTF-8",
                Some(FormKind::Pairs),
            ),
            ("Multipart/Form-Data; boundary=x", Some(FormKind::Parts)),
            ("multipart/mixed", Some(FormKind::Parts)),
            ("application/vnd.api+json", Some(FormKind::Json)),
            ("application/octet-stream", None),
            ("Application/Octet-Stream; x=y", None),
            ("image/png", None),
            ("application/grpc+proto", None),
            ("text/plain", Some(FormKind::Pairs)),
            ("text/html;charset=UTF-8", Some(FormKind::Pairs)),
            ("application/graphql", Some(FormKind::Pairs)),
            ("x", Some(FormKind::Pairs)),
            (
                "application/octet-stream, text/plain",
                Some(FormKind::Pairs),
            ),
            ("image/png, application/json", Some(FormKind::Json)),
            ("application/octet-streams", Some(FormKind::Pairs)),
        ] {
            assert_eq!(kind(text, None), Ok(expected), "{text}");
        }
        assert_eq!(
            kind("application/json", Some("gzip")),
            Err(FormFault::Coded)
        );
        assert_eq!(kind("application/octet-stream", Some("gzip")), Ok(None));
        assert_eq!(
            kind("application/json;charset=utf-16", None),
            Err(FormFault::Charset)
        );
        assert_eq!(
            kind("text/x; charset=utf-16", None),
            Err(FormFault::Charset)
        );
        assert_eq!(kind("", Some("gzip")), Err(FormFault::Coded));
    }

    #[test]
    fn a_member_of_pairs_is_found_in_every_spelling() {
        for text in [
            "token=x",
            "a=b&token=x",
            "t%6Fken=x",
            "a=b;token=x",
            "a\r\ntoken=x",
            "token",
            "%74oken=&a",
            r#"{"token":"x"}"#,
            " \r\n[{\"token\":1}]",
            "\u{feff}{\"token\":1}",
            "{\"a\":\"&token=x\"}",
        ] {
            assert_eq!(found(FormKind::Pairs, text), 1, "{text}");
        }
        for text in [
            "",
            "a=token",
            "tokens=x",
            "a=%26token=x",
            r#"{"a":1}"#,
            "PK\u{3}{",
        ] {
            assert_eq!(found(FormKind::Pairs, text), 0, "{text}");
        }
        for text in [
            &b"{token:1}"[..],
            b"{\0\"\0t\0",
            b"\xff\xfe{\0\"\0t\0",
            b"\0\0\0{",
        ] {
            let refused = FormKind::Pairs.values(text, |_| false);
            assert_eq!(refused, Err(FormFault::Json), "{text:?}");
        }
    }

    #[test]
    fn a_part_is_found_by_its_name_in_every_spelling() {
        for name in [
            "name=\"token\"",
            "name=token",
            "NAME = \"token\"",
            "filename=\"token\"",
            "name*=UTF-8''t%6Fken",
            "name=\"t\\oken\"",
            "x=y;\r\n name=\"token\"",
            "name=\"a\"; name=\"token\"",
            "name=\"%74oken\"",
        ] {
            let text =
                format!("--b\r\nContent-Disposition: form-data; {name}\r\n\r\nx\r\n--b--\r\n");
            assert!(found(FormKind::Parts, &text) > 0, "{name}");
        }
        assert!(
            found(
                FormKind::Parts,
                "--b\ncontent-disposition : form-data; name=token\n\nx"
            ) > 0
        );
        assert!(found(FormKind::Parts, "--b\r\nContent-ID: <token>\r\n\r\nx") > 0);
        let is_token = |name: &str| name == "token";
        for name in ["name*0=to; name*1=ken", "name=\"=?utf-8?B?dG9rZW4=?=\""] {
            let text = format!("--b\r\nContent-Disposition: form-data; {name}\r\n\r\nx");
            let refused = FormKind::Parts.values(text.as_bytes(), is_token);
            assert_eq!(refused, Err(FormFault::Name), "{name}");
        }
        // The text of a file is none.
        let file = "--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n<input name=\"token\">\r\n--b--";
        assert_eq!(found(FormKind::Parts, file), 0);
    }

    #[test]
    fn a_value_that_readers_end_in_different_places_is_refused() {
        for name in ["name=a=b", "name=name=token", "name==?utf-8?B?dG9rZW4=?="] {
            let text = format!("--b\r\nContent-Disposition: form-data; {name}\r\n\r\nx");
            let refused = FormKind::Parts.values(text.as_bytes(), |_| false);
            assert_eq!(refused, Err(FormFault::Name), "{name}");
        }
    }

    #[test]
    fn content_is_looked_through_in_time_that_grows_as_it_does() {
        let begun = std::time::Instant::now();
        let is_token = |name: &str| name == "token";
        let line = |piece: &str| {
            let pieces = piece.repeat((1 << 20) / piece.len());
            format!("--b\r\nContent-Disposition: form-data; {pieces}\r\n\r\nx\r\n--b--\r\n")
        };
        for piece in [
            "name=",
            "name= ",
            "name=x",
            "name=x;",
            "name=\"",
            "name=\"\\\"",
            "name=\\\"",
            "name =\t",
            "name *",
            "name*='",
            "name",
            "name ",
            " ",
            "\\",
            "\"",
            "x\r\n ",
            "x\r\nContent-Disposition: name=",
            "x\r\nContent-ID: <",
        ] {
            let _either = FormKind::Parts.values(line(piece).as_bytes(), is_token);
            assert!(
                begun.elapsed().as_secs() < 60,
                "{piece:?} {:?}",
                begun.elapsed()
            );
        }
        for piece in [
            "{}",
            "1 ",
            "[] ",
            "[[",
            "{\"a\":",
            "{\"token\":1}\n",
            "{\"token\":[",
            "\"x\"",
            "\n",
        ] {
            let content = piece.repeat((1 << 20) / piece.len());
            let _either = FormKind::Json.values(content.as_bytes(), is_token);
            assert!(
                begun.elapsed().as_secs() < 60,
                "{piece:?} {:?}",
                begun.elapsed()
            );
        }
        for piece in ["token=x&", "token", "=", "&", "%", "+", "token[", "$"] {
            let content = piece.repeat((1 << 20) / piece.len());
            let _either = FormKind::Pairs.values(content.as_bytes(), is_token);
            assert!(
                begun.elapsed().as_secs() < 60,
                "{piece:?} {:?}",
                begun.elapsed()
            );
        }
    }

    #[test]
    fn a_member_that_stands_there_very_often_is_kept_a_few_times() {
        let often = FormKind::Pairs.values("token=x&".repeat(1 << 16).as_bytes(), |name| {
            name == "token"
        });
        let values = often.unwrap();
        assert_eq!(values.len(), MOST_VALUES + 1);
        assert_eq!(values.last(), Some(&None));
        let list = format!("{{\"token\":[{}1]}}", "1,".repeat(1 << 16));
        let values = FormKind::Json.values(list.as_bytes(), |name| name == "token");
        assert_eq!(values.unwrap(), [None]);
    }

    #[test]
    fn a_member_of_json_is_found_at_the_top_and_in_a_list() {
        for text in [
            r#"{"token":"x"}"#,
            r#"{"a":{"b":[1]},"t\u006fken":"x"}"#,
            r#"[1,{"token":"x"}]"#,
            r#"{"a":1} {"token":"x"}"#,
            "\u{feff}{\"token\":7}",
            r#"{"token":null}"#,
        ] {
            assert_eq!(found(FormKind::Json, text), 1, "{text}");
        }
        assert_eq!(found(FormKind::Json, r#"{"token":"x","token":"y"}"#), 2);
        for text in [
            "",
            " ",
            "7",
            r#""token""#,
            r#"{"a":{"token":"x"}}"#,
            r#"[[{"token":1}]]"#,
        ] {
            assert_eq!(found(FormKind::Json, text), 0, "{text}");
        }
        for text in ["{", "{'token':'x'}", "{}x", "// c\n{\"token\":1}"] {
            let refused = FormKind::Json.values(text.as_bytes(), |_| true);
            assert_eq!(refused, Err(FormFault::Json), "{text}");
        }
    }
}
