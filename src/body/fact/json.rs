//! Facts of a JSON document (RFC 8259), found by JSON Pointer (RFC 6901) in one pass.

use std::fmt;

use serde::Deserialize as _;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::form::is_named;
use super::location::Location;
use super::names::{Names, next_name};
use super::value::{FactType, FactValue, of_number, of_string};
use crate::form::begins_as_json;
use gateway_message::content_name::part;
use gateway_message::{Pointer, folded};

/// Reads the wanted values of one document.
pub(super) struct JsonReader {
    root: Node,
    reading: Reading,
}

/// The values wanted at one place of the document, and below it.
#[derive(Default)]
struct Node {
    /// The values wanted here: their index in the result, and their type.
    wanted: Vec<(usize, FactType)>,
    below: Vec<(String, Node)>,
}

struct Reading {
    values: Vec<Option<FactValue>>,
    /// How many names the currently open objects have.
    open_names: usize,
}

impl JsonReader {
    pub fn new(query: &str, wanted: &[(&Location, FactType)]) -> Self {
        let mut root = Node::default();
        for (nth, (location, kind)) in wanted.iter().enumerate() {
            if let Location::Json(pointer) = location
                && !is_in_query(pointer, query)
            {
                root.at(pointer.tokens()).wanted.push((nth, *kind));
            }
        }
        let reading = Reading {
            values: vec![None; wanted.len()],
            open_names: 0,
        };
        Self { root, reading }
    }

    /// The values. `None` unless the content is exactly one document that all readers read alike.
    pub fn read(mut self, content: &[u8]) -> Option<Vec<Option<FactValue>>> {
        let mut reader = serde_json::Deserializer::from_slice(content);
        let walk = Walk {
            node: Some(&self.root),
            list: None,
            reading: &mut self.reading,
        };
        walk.deserialize(&mut reader).ok()?;
        reader.end().ok()?;
        Some(self.reading.values)
    }
}

/// Whether the query has a parameter with the pointer's name. Rails, for one, prefers the query to
/// the document.
pub(super) fn is_in_query(pointer: &Pointer, query: &str) -> bool {
    let tokens = pointer.tokens().iter();
    let name: Vec<String> = tokens.map(|token| part(token)).collect();
    is_named(query, &name)
}

/// Whether some reader would read a whole document at the start of the content, whatever follows.
pub(super) fn begins_with_document(content: &[u8]) -> bool {
    let first = || IgnoredAny::deserialize(&mut serde_json::Deserializer::from_slice(content));
    begins_as_json(content) && first().is_ok()
}

impl Node {
    fn at(&mut self, tokens: &[String]) -> &mut Self {
        let Some((first, rest)) = tokens.split_first() else {
            return self;
        };
        let known = self.below.iter().position(|(name, _)| name == first);
        let nth = known.unwrap_or_else(|| {
            self.below.push((first.clone(), Self::default()));
            self.below.len() - 1
        });
        self.below[nth].1.at(rest)
    }

    fn below(&self, name: &str) -> Option<&Self> {
        let mut below = self.below.iter();
        below.find(|(one, _)| one == name).map(|(_, node)| node)
    }

    /// Discards the values read here and below.
    fn clear(&self, reading: &mut Reading) {
        for (nth, _) in &self.wanted {
            reading.values[*nth] = None;
        }
        for (_, node) in &self.below {
            node.clear(reading);
        }
    }
}

/// Reads one value of the document.
struct Walk<'a> {
    /// The values wanted from it.
    node: Option<&'a Node>,
    /// The strings of the list it belongs to, if they are wanted. Set to `None` once an element is
    /// not a string.
    list: Option<&'a mut Option<Vec<String>>>,
    reading: &'a mut Reading,
}

impl Walk<'_> {
    /// Stores the value wherever its type is wanted.
    fn keep<E>(self, value: impl Fn(FactType) -> Option<FactValue>) -> Result<(), E> {
        if let Some(list) = self.list {
            *list = match (list.take(), value(FactType::String)) {
                (Some(mut texts), Some(FactValue::String(text))) if texts.len() < MOST_TEXTS => {
                    texts.push(text);
                    Some(texts)
                }
                _ => None,
            };
        }
        for (nth, kind) in self.node.iter().flat_map(|node| &node.wanted) {
            self.reading.values[*nth] = value(*kind);
        }
        Ok(())
    }

    fn wants_texts(&self) -> bool {
        let mut wanted = self.node.iter().flat_map(|node| &node.wanted);
        wanted.any(|(_, kind)| *kind == FactType::Strings)
    }
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, flag: bool) -> Result<(), E> {
        self.keep(|kind| (kind == FactType::Bool).then_some(FactValue::Bool(flag)))
    }

    fn visit_i64<E>(self, number: i64) -> Result<(), E> {
        self.keep(|kind| match kind {
            FactType::Long => of_number(number),
            _ => None,
        })
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<(), E> {
        match i64::try_from(number) {
            Ok(number) => self.visit_i64(number),
            Err(_) => self.visit_unit(),
        }
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        self.visit_unit()
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.keep(|_| None)
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.keep(|kind| match kind {
            FactType::String => of_string(text),
            _ => None,
        })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let mut texts = self.wants_texts().then(Vec::new);
        for place in 0_usize.. {
            let walk = Walk {
                node: self.node.and_then(|node| node.below(&place.to_string())),
                list: Some(&mut texts),
                reading: &mut *self.reading,
            };
            if list.next_element_seed(walk)?.is_none() {
                break;
            }
        }
        self.keep(|kind| match kind {
            FactType::Strings => texts.clone().map(FactValue::Strings),
            _ => None,
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut names = Names::default();
        while let Some(name) = next_name(&mut map)? {
            if self.reading.open_names == MOST_OPEN_NAMES {
                return Err(A::Error::custom("too many names"));
            }
            map.next_value_seed(Walk {
                node: self.node.and_then(|node| node.below(&name)),
                list: None,
                reading: &mut *self.reading,
            })?;
            if !names.insert(name) {
                return Err(A::Error::custom("a name occurs twice"));
            }
            self.reading.open_names += 1;
        }
        self.reading.open_names -= names.len();
        for (wanted, node) in self.node.iter().flat_map(|node| &node.below) {
            let wanted = folded(wanted);
            let alike = names.iter().filter(|name| folded(name) == wanted);
            if alike.count() > 1 {
                node.clear(self.reading);
            }
        }
        self.keep(|_| None)
    }
}

/// The most names in all open objects together, which bounds memory whatever is sent.
const MOST_OPEN_NAMES: usize = 65_536;
/// The most strings read from one list.
const MOST_TEXTS: usize = 1_024;
