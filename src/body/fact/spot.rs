//! Where credentials stand in content: found if every reader finds the same value there.

use std::ops::Range;

use gateway_message::pairs::ESCAPED;
use gateway_message::{Place, Pointer, folded};
use http::HeaderMap;
use memchr::memchr2;
use percent_encoding::utf8_percent_encode;

use super::form::FormReader;
use super::json::{JsonReader, is_in_query};
use super::kind::ContentKind;
use super::multipart::multipart_fields;
use super::plain::Plain;
use super::value::{FactType, FactValue};
use crate::form::begins_as_json;

/// A value that stands in a place of content.
pub struct Spot {
    /// Its bytes, still escaped: those of a string of JSON with its quotation marks.
    pub at: Range<usize>,
    /// What they say; `None` if that is no text.
    pub text: Option<String>,
    /// Whether its names are written as in the place.
    pub is_exact: bool,
}

/// Readers may disagree about JSON in which a credential has a place.
#[derive(Debug)]
pub struct Unclear;

/// Finds what stands in each of the places, which may be once in content of their kind.
///
/// A form or a form in parts that readers may disagree about has none.
///
/// # Errors
/// [`Unclear`] if a place is in JSON, and the content is JSON that readers may disagree about.
pub fn spots(
    fields: &HeaderMap,
    query: &str,
    plain: &Plain,
    places: &[&Place],
) -> Result<Vec<Option<Spot>>, Unclear> {
    let content = &*plain.bytes;
    let kind = ContentKind::of(fields);
    let names = places.iter().map(|place| match place {
        Place::Form(name) => (Some(name), FactType::String),
        _ => (None, FactType::String),
    });
    let form = (kind == Some(ContentKind::Form))
        .then(|| FormReader::new(names).read(query, content, b""))
        .flatten();
    let mut form = form.into_iter().flatten();
    let parts = multipart_fields(fields, content, plain.streams).unwrap_or_default();
    let in_json = places.iter().any(|place| matches!(place, Place::Json(_)));
    let is_json = in_json && is_json(kind, content)?;
    let mut spots = Vec::new();
    for place in places {
        let in_form = form.next().flatten();
        spots.push(match place {
            Place::Form(_) => in_form.and_then(of_form),
            Place::Multipart(name) => of_parts(&parts, name.as_str(), content),
            Place::Json(pointer) if is_json => of_json(content, pointer, query)?,
            _ => None,
        });
    }
    Ok(spots)
}

/// Finds what stands at the pointer of a text message, which may be JSON.
///
/// # Errors
/// [`Unclear`] if it begins as JSON does, and readers may disagree about it.
pub fn spot_in_message(text: &[u8], pointer: &Pointer) -> Result<Option<Spot>, Unclear> {
    if !begins_as_json(text) {
        return Ok(None);
    }
    is_json(Some(ContentKind::Json), text)?;
    of_json(text, pointer, "")
}

/// A secret as it is written at a [`Spot`] of the place.
pub fn escaped(place: &Place, secret: &str) -> String {
    match place {
        Place::Form(_) => utf8_percent_encode(secret, ESCAPED).to_string(),
        Place::Json(_) | Place::WebSocket(_) => serde_json::Value::from(secret).to_string(),
        _ => secret.to_owned(),
    }
}

fn of_form((value, at): (FactValue, Range<usize>)) -> Option<Spot> {
    match value {
        FactValue::String(text) => Some(Spot {
            at,
            text: Some(text),
            is_exact: true,
        }),
        _ => None,
    }
}

fn of_parts(parts: &[(String, Range<usize>)], name: &str, content: &[u8]) -> Option<Spot> {
    let mut named = parts.iter().filter(|(one, _)| one == name);
    let (Some((_, at)), None) = (named.next(), named.next()) else {
        return None;
    };
    Some(Spot {
        text: std::str::from_utf8(&content[at.clone()])
            .ok()
            .map(str::to_owned),
        at: at.clone(),
        is_exact: true,
    })
}

/// Whether it is JSON that all readers read alike.
fn is_json(kind: Option<ContentKind>, content: &[u8]) -> Result<bool, Unclear> {
    match kind {
        Some(ContentKind::Json) => match JsonReader::new("", &[]).read(content) {
            Some(_) => Ok(true),
            None => Err(Unclear),
        },
        // Some readers do not ask for the type.
        _ if begins_as_json(content) => Err(Unclear),
        _ => Ok(false),
    }
}

fn of_json(content: &[u8], pointer: &Pointer, query: &str) -> Result<Option<Spot>, Unclear> {
    let mut scan = Scan { content, at: 0 };
    scan.white();
    let mut is_exact = true;
    for token in pointer.tokens() {
        let Some((at, is_same)) = scan.below(token)? else {
            return Ok(None);
        };
        (scan.at, is_exact) = (at, is_exact && is_same);
    }
    let at = scan.value();
    match &content[at.clone()] {
        b"null" => Ok(None),
        _ if is_in_query(pointer, query) => Err(Unclear),
        raw => Ok(Some(Spot {
            text: serde_json::from_slice(raw).ok(),
            at,
            is_exact,
        })),
    }
}

/// Steps through one document, which was read before and is therefore well-formed.
struct Scan<'c> {
    content: &'c [u8],
    at: usize,
}

impl Scan<'_> {
    /// Where the value below this one begins that has the name or index, in any spelling, and
    /// whether it is in this one.
    fn below(&mut self, token: &str) -> Result<Option<(usize, bool)>, Unclear> {
        let (is_object, wanted) = (self.next() == Some(b'{'), folded(token));
        if !is_object && self.next() != Some(b'[') {
            return Ok(None);
        }
        self.at += 1;
        let mut found = None;
        for nth in 0_usize.. {
            self.white();
            if matches!(self.next(), None | Some(b'}' | b']')) {
                break;
            }
            let name = if is_object {
                let name = self.value();
                self.white();
                self.at += 1;
                self.white();
                serde_json::from_slice(&self.content[name]).map_err(|_| Unclear)?
            } else if wanted.len() <= MOST_DIGITS {
                nth.to_string()
            } else {
                String::new()
            };
            if folded(&name) == wanted && found.replace((self.at, name == token)).is_some() {
                return Err(Unclear);
            }
            if self.value().is_empty() {
                return Err(Unclear);
            }
            self.white();
            self.at += usize::from(self.next() == Some(b','));
        }
        Ok(found)
    }

    fn next(&self) -> Option<u8> {
        self.content.get(self.at).copied()
    }

    fn white(&mut self) {
        self.skip(|byte| byte.is_ascii_whitespace());
    }

    fn skip(&mut self, is_passed: impl Fn(u8) -> bool) {
        let rest = self.content.get(self.at..).unwrap_or_default();
        self.at += rest.iter().take_while(|byte| is_passed(**byte)).count();
    }

    /// Steps over the value that begins here.
    fn value(&mut self) -> Range<usize> {
        let (start, mut depth) = (self.at, 0_usize);
        while let Some(byte) = self.next() {
            match byte {
                b'"' => self.string(),
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                }
                b'}' | b']' if depth > 0 => {
                    depth -= 1;
                    self.at += 1;
                }
                _ if depth > 0 => self.skip(|byte| !b"\"{}[]".contains(&byte)),
                _ => self.skip(|byte| !byte.is_ascii_whitespace() && !b",:\"{}[]".contains(&byte)),
            }
            if depth == 0 {
                break;
            }
        }
        start..self.at
    }

    fn string(&mut self) {
        self.at += 1;
        while let Some(rest) = self.content.get(self.at..) {
            let next = memchr2(b'"', b'\\', rest);
            self.at += next.unwrap_or(rest.len());
            match self.next() {
                Some(b'\\') => self.at += 2,
                Some(_) => {
                    self.at += 1;
                    return;
                }
                None => return,
            }
        }
        self.at = self.content.len();
    }
}

/// No list has more elements than an index of so many digits tells.
const MOST_DIGITS: usize = 8;

#[cfg(test)]
#[path = "spot_tests.rs"]
mod tests;
