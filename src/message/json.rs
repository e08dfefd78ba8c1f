//! A strict JSON parser (RFC 8259) that keeps only the wanted values, with their positions.
//!
//! Refuses what two parsers could read differently: a name that occurs twice in an object, bytes
//! after the document, a number without a finite value, half a surrogate pair.

mod wanted;

use std::borrow::Cow;
use std::ops::Range;

use memchr::memchr2;

use super::folded;
pub use wanted::{DeepNames, JsonParts, MOST_TEXTS};

/// A parsed document. Only the wanted values are kept.
#[derive(Debug)]
pub struct Json<'t> {
    text: &'t str,
    root: Node,
    is_seen: bool,
}

/// Why a document is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JsonFault {
    /// It is not one JSON document. Holds the offset of the first bad byte.
    #[error("it is not one JSON document, at byte {0}")]
    Malformed(usize),
    /// A name occurs twice in an object.
    #[error("a name occurs twice in one object")]
    Doubled,
    /// It has too many names in open objects, or too many wanted values.
    #[error("it has too many names")]
    Excess,
}

/// A kept value, with the kept values below it.
#[derive(Debug)]
struct Node {
    at: Range<usize>,
    members: Vec<(String, Node)>,
    elements: Vec<(usize, Node)>,
}

/// A value of a document.
#[derive(Debug, Clone, Copy)]
pub struct Value<'j> {
    text: &'j str,
    kept: &'j Node,
}

impl<'t> Json<'t> {
    /// Reads a text in one pass. Memory is bounded by what is wanted, not by the text.
    ///
    /// # Errors
    /// [`JsonFault`]
    pub fn read(text: &'t [u8], wanted: &JsonParts<'_>) -> Result<Self, JsonFault> {
        let text = std::str::from_utf8(text);
        let text = text.map_err(|error| JsonFault::Malformed(error.valid_up_to()))?;
        let mut walk = Walk {
            text,
            at: 0,
            depth: 0,
            open_names: 0,
            kept: 0,
            watch: wanted.watch(),
            is_seen: false,
        };
        walk.space();
        let root = walk.value(&[wanted], false)?;
        walk.space();
        match walk.next() {
            None => Ok(Self {
                text,
                root,
                is_seen: walk.is_seen,
            }),
            Some(_) => Err(walk.malformed()),
        }
    }

    /// The outermost value.
    pub fn root(&self) -> Value<'_> {
        Value {
            text: self.text,
            kept: &self.root,
        }
    }

    /// Whether a watched name occurs in the document.
    pub fn is_seen(&self) -> bool {
        self.is_seen
    }
}

impl<'j> Value<'j> {
    /// Its range in the document; that of a string includes the quotation marks.
    pub fn at(self) -> Range<usize> {
        self.kept.at.clone()
    }

    /// Its bytes in the document, unchanged.
    pub fn raw(self) -> &'j str {
        &self.text[self.at()]
    }

    /// Whether it is `null`.
    pub fn is_null(self) -> bool {
        self.raw() == "null"
    }

    /// Whether it is an object.
    pub fn is_object(self) -> bool {
        self.raw().starts_with('{')
    }

    /// Whether it is a list.
    pub fn is_list(self) -> bool {
        self.raw().starts_with('[')
    }

    /// Whether it is a number.
    pub fn is_number(self) -> bool {
        self.raw()
            .starts_with(|c: char| c == '-' || c.is_ascii_digit())
    }

    /// The unescaped text, if it is a string.
    pub fn text(self) -> Option<Cow<'j, str>> {
        let inner = self.raw().strip_prefix('"')?.strip_suffix('"')?;
        unescaped(inner)
    }

    /// The number, if it is an integer in its shortest form.
    pub fn number(self) -> Option<i64> {
        let raw = self.raw();
        raw.parse().ok().filter(|_| raw != "-0")
    }

    /// The boolean, if it is one.
    pub fn flag(self) -> Option<bool> {
        self.raw().parse().ok()
    }

    /// The members that were kept, in the order of the document.
    pub fn members(self) -> impl ExactSizeIterator<Item = (&'j str, Self)> + Clone {
        let text = self.text;
        let all = self.kept.members.iter();
        all.map(move |(name, kept)| (&**name, Self { text, kept }))
    }

    /// The elements that were kept, and their index.
    pub fn elements(self) -> impl ExactSizeIterator<Item = (usize, Self)> + Clone {
        let text = self.text;
        let all = self.kept.elements.iter();
        all.map(move |(nth, kept)| (*nth, Self { text, kept }))
    }

    /// The member with exactly this name, if it was kept.
    pub fn member(self, name: &str) -> Option<Self> {
        let mut all = self.members();
        all.find(|(one, _)| *one == name).map(|(_, value)| value)
    }
}

/// Whether a reader that detects the format from the content would read JSON, in any charset.
pub fn begins_as_json(content: &[u8]) -> bool {
    let skipped = |b: &&u8| !(b.is_ascii_control() || b" \xef\xbb\xbf\xfe\xff".contains(b));
    matches!(content.iter().find(skipped), Some(b'{' | b'['))
}

struct Walk<'w> {
    text: &'w str,
    at: usize,
    /// How many lists and objects are open, and how many names these have.
    depth: usize,
    open_names: usize,
    /// How many values and names are kept.
    kept: usize,
    watch: Option<&'w DeepNames>,
    is_seen: bool,
}

impl<'w> Walk<'w> {
    fn next(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn malformed(&self) -> JsonFault {
        JsonFault::Malformed(self.at)
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.next() {
            self.at += 1;
        }
    }

    /// Steps over a byte, if it comes next.
    fn takes(&mut self, byte: u8) -> bool {
        let is_next = self.next() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn expect(&mut self, text: &str) -> Result<(), JsonFault> {
        if self.text.as_bytes()[self.at..].starts_with(text.as_bytes()) {
            self.at += text.len()
        } else {
            return Err(self.malformed());
        }
        Ok(())
    }

    /// Reads the value that begins here. `is_watched` says whether it is below a watched name.
    fn value(&mut self, wanted: &[&JsonParts<'_>], is_watched: bool) -> Result<Node, JsonFault> {
        let start = self.at;
        let (mut members, mut elements) = (Vec::new(), Vec::new());
        match self.next() {
            Some(b'"') => drop(self.string()?),
            Some(b'{') => members = self.nested(|walk| walk.object(wanted, is_watched))?,
            Some(b'[') => elements = self.nested(|walk| walk.list(wanted, is_watched))?,
            Some(b't') => self.expect("true")?,
            Some(b'f') => self.expect("false")?,
            Some(b'n') => self.expect("null")?,
            _ => self.number()?,
        }
        Ok(Node {
            at: start..self.at,
            members,
            elements,
        })
    }

    fn nested<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, JsonFault>,
    ) -> Result<T, JsonFault> {
        if self.depth == DEEPEST {
            return Err(self.malformed());
        }
        self.depth += 1;
        self.at += 1;
        self.space();
        let read = read(self)?;
        self.depth -= 1;
        Ok(read)
    }

    /// Whether another member or element follows, up to the end of the object or list.
    fn goes_on(&mut self, end: u8) -> Result<bool, JsonFault> {
        self.space();
        if self.takes(end) {
            return Ok(false);
        }
        if !self.takes(b',') {
            return Err(self.malformed());
        }
        self.space();
        Ok(true)
    }

    fn list(
        &mut self,
        wanted: &[&JsonParts<'_>],
        is_watched: bool,
    ) -> Result<Vec<(usize, Node)>, JsonFault> {
        let mut kept = Vec::new();
        if self.takes(b']') {
            return Ok(kept);
        }
        for nth in 0_usize.. {
            let mut below = Vec::new();
            let mut is_kept = false;
            for one in wanted {
                is_kept |= one.element(nth, &mut below);
            }
            let value = self.value(&below, is_watched)?;
            if is_kept || !value.members.is_empty() {
                self.keep()?;
                kept.push((nth, value));
            }
            if !self.goes_on(b']')? {
                break;
            }
        }
        Ok(kept)
    }

    fn object(
        &mut self,
        wanted: &[&JsonParts<'_>],
        is_watched: bool,
    ) -> Result<Vec<(String, Node)>, JsonFault> {
        let (mut kept, mut names) = (Vec::new(), Vec::new());
        if self.takes(b'}') {
            return Ok(kept);
        }
        loop {
            let name = self.string()?;
            let name = unescaped(name).ok_or_else(|| self.malformed())?;
            self.space();
            if !self.takes(b':') {
                return Err(self.malformed());
            }
            self.space();
            let mut below = Vec::new();
            let mut is_kept = false;
            for one in wanted {
                is_kept |= one.member(&name, &mut below);
            }
            let is_watched = self.note(&name, is_watched);
            let value = self.value(&below, is_watched)?;
            if is_kept || !below.is_empty() {
                self.keep()?;
                kept.push((name.clone().into_owned(), value));
            }
            self.open_names += 1;
            if self.open_names > MOST_OPEN_NAMES {
                return Err(JsonFault::Excess);
            }
            names.push(name);
            if !self.goes_on(b'}')? {
                break;
            }
        }
        self.open_names -= names.len();
        names.sort_unstable();
        if names.windows(2).any(|two| two[0] == two[1]) {
            Err(JsonFault::Doubled)
        } else {
            Ok(kept)
        }
    }

    fn keep(&mut self) -> Result<(), JsonFault> {
        self.kept += 1;
        if self.kept > MOST_KEPT {
            Err(JsonFault::Excess)
        } else {
            Ok(())
        }
    }

    /// Checks a name against the watch. Returns whether the values below it are watched.
    fn note(&mut self, name: &str, is_watched: bool) -> bool {
        let Some(watch) = self.watch else {
            return false;
        };
        let spelt = folded(name);
        let is_one = |names: &[&str]| names.iter().any(|one| folded(one) == spelt);
        self.is_seen |= is_watched && is_one(watch.names);
        is_watched || is_one(watch.below)
    }

    /// The text of the string that begins here, still escaped.
    fn string(&mut self) -> Result<&'w str, JsonFault> {
        if !self.takes(b'"') {
            return Err(self.malformed());
        }
        let start = self.at;
        let bytes = self.text.as_bytes();
        loop {
            let rest = &bytes[self.at..];
            let end = memchr2(b'"', b'\\', rest).ok_or_else(|| self.malformed())?;
            // Without a branch for each byte.
            if rest[..end].iter().fold(false, |bad, b| bad | (*b < b' ')) {
                return Err(self.malformed());
            }
            self.at += end;
            if rest[end] == b'"' {
                break;
            }
            let (_, length) = escape(&rest[end..]).ok_or_else(|| self.malformed())?;
            self.at += length;
        }
        self.at += 1;
        Ok(&self.text[start..self.at - 1])
    }

    fn number(&mut self) -> Result<(), JsonFault> {
        let start = self.at;
        self.takes(b'-');
        if !self.takes(b'0') {
            self.digits()?;
        }
        if self.takes(b'.') {
            self.digits()?;
        }
        let has_exponent = self.takes(b'e') || self.takes(b'E');
        if has_exponent {
            let _sign = self.takes(b'+') || self.takes(b'-');
            self.digits()?;
        }
        let is_finite = || {
            let read = self.text[start..self.at].parse::<f64>();
            read.is_ok_and(f64::is_finite)
        };
        if (has_exponent || self.at - start > LARGE) && !is_finite() {
            Err(self.malformed())
        } else {
            Ok(())
        }
    }

    fn digits(&mut self) -> Result<(), JsonFault> {
        let rest = self.text.as_bytes()[self.at..].iter();
        let count = rest.take_while(|byte| byte.is_ascii_digit()).count();
        self.at += count;
        match count {
            0 => Err(self.malformed()),
            _ => Ok(()),
        }
    }
}

/// Unescapes a string. `None` if an escape is malformed.
fn unescaped(text: &str) -> Option<Cow<'_, str>> {
    let Some(mut at) = memchr::memchr(b'\\', text.as_bytes()) else {
        return Some(Cow::Borrowed(text));
    };
    let (mut out, mut from) = (String::with_capacity(text.len()), 0);
    loop {
        out.push_str(&text[from..at]);
        let (letter, length) = escape(&text.as_bytes()[at..])?;
        out.push(letter);
        from = at + length;
        match memchr::memchr(b'\\', &text.as_bytes()[from..]) {
            Some(next) => at = from + next,
            None => break,
        }
    }
    out.push_str(&text[from..]);
    Some(Cow::Owned(out))
}

/// The character of the escape at the start of the text, and the length of the escape.
fn escape(rest: &[u8]) -> Option<(char, usize)> {
    let hex = |at: usize| {
        let digits = rest.get(at..at + 4)?.iter();
        let mut digits = digits.map(|byte| char::from(*byte).to_digit(16));
        digits.try_fold(0, |number, digit| Some(number << 4 | digit?))
    };
    let letter = match rest.get(1)? {
        plain @ (b'"' | b'\\' | b'/') => char::from(*plain),
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => {
            let first = hex(2)?;
            if !(0xd800..0xdc00).contains(&first) {
                return Some((char::from_u32(first)?, 6));
            }
            let second = hex(8).filter(|_| rest[6..].starts_with(b"\\u"))?;
            let second = second.checked_sub(0xdc00).filter(|low| *low < 0x400)?;
            let letter = 0x1_0000 + ((first - 0xd800) << 10) + second;
            return Some((char::from_u32(letter)?, 12));
        }
        _ => return None,
    };
    Some((letter, 2))
}

/// The deepest nesting of lists and objects.
const DEEPEST: usize = 127;
/// The most names in all open objects together. Bounds memory for any document.
const MOST_OPEN_NAMES: usize = 65_536;
/// The most values that are kept.
const MOST_KEPT: usize = 16_384;
/// A number with fewer digits and without an exponent is finite.
const LARGE: usize = 300;

#[cfg(test)]
mod tests;
