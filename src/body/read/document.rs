//! One JSON document, of which only the wanted members are kept.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::asked::{Asked, Unread};
use crate::fact::{
    ContentKind, FactValue, Names, is_named, kind_of, next_name, of_number, of_string,
};
use gateway_message::{folded, folded_parameter};

/// The members of an object that are kept, each with those of its own. A list is transparent: its
/// elements have the shape of the list.
#[derive(Clone, Copy)]
pub(super) struct Shape(pub &'static [(&'static str, Shape)]);

/// A value without members that are kept.
pub(super) const LEAF: Shape = Shape(&[]);

/// A value of a document.
pub(super) enum Json {
    Null,
    Number(i64),
    Text(String),
    List(Vec<Json>),
    /// All names of the object. The values of those that the shape does not have are `Other`.
    Object(Vec<(String, Json)>),
    /// Any other value, or one that is not kept.
    Other,
}

impl Json {
    /// The member with this name. `None` if it is missing or null.
    pub fn member(&self, name: &str) -> Option<&Self> {
        let found = self.members().find(|(one, _)| *one == name);
        found.map(|(_, value)| value)
    }

    /// The members that are not null.
    pub fn members(&self) -> impl Iterator<Item = (&str, &Self)> {
        let all: &[(String, Self)] = match self {
            Self::Object(members) => members,
            _ => &[],
        };
        let all = all.iter().map(|(name, value)| (name.as_str(), value));
        all.filter(|(_, value)| !matches!(value, Self::Null))
    }

    /// Whether it has a member with this name, be it null.
    pub fn has(&self, name: &str) -> bool {
        matches!(self, Self::Object(all) if all.iter().any(|(one, _)| one == name))
    }

    /// The text, if it is one.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// Reads the content as one document. The query must name no member that is wanted from it, since
/// many origins merge both.
pub(super) fn document(asked: &Asked<'_>, shape: Shape) -> Result<Json, Unread> {
    let nothing = Watch {
        below: &[],
        names: &[],
    };
    watched(asked, shape, nothing).map(|(json, _)| json)
}

/// Names that matter wherever they stand below some members, which are not kept.
pub(super) struct Watch {
    pub below: &'static [&'static str],
    pub names: &'static [&'static str],
}

/// The same, and whether one of the watched names is there.
pub(super) fn watched(
    asked: &Asked<'_>,
    shape: Shape,
    watch: Watch,
) -> Result<(Json, bool), Unread> {
    if kind_of(asked.fields, asked.content) != Some(ContentKind::Json) {
        return Err("the content is not declared as JSON in UTF-8, once");
    }
    if shape.0.iter().any(|(name, _)| in_query(asked, name)) {
        return Err("the query says something that the content says too");
    }
    let mut reader = serde_json::Deserializer::from_slice(&asked.content.bytes);
    let mut room = Room {
        open_names: MOST_OPEN_NAMES,
        kept: MOST_KEPT,
        below: watch.below.iter().map(|name| folded(name)).collect(),
        names: watch.names.iter().map(|name| folded(name)).collect(),
        is_seen: false,
    };
    let walk = Walk {
        shape: Some(shape),
        is_watched: false,
        room: &mut room,
    };
    let read = walk.deserialize(&mut reader);
    let whole = read.and_then(|json| reader.end().map(|()| json));
    let whole =
        whole.map_err(|_| "the content is not one JSON document that every reader reads alike")?;
    Ok((whole, room.is_seen))
}

/// Whether the query has a parameter with this name, in any spelling.
pub(super) fn in_query(asked: &Asked<'_>, name: &str) -> bool {
    is_named(asked.query, &[folded_parameter(name)])
}

/// How much more is read. It bounds memory whatever is sent.
struct Room {
    open_names: usize,
    kept: usize,
    /// What is watched, folded.
    below: Vec<String>,
    names: Vec<String>,
    /// Whether a watched name has come.
    is_seen: bool,
}

impl Room {
    /// Notes a name. Returns whether what is below it is watched.
    fn note(&mut self, name: &str, is_watched: bool) -> bool {
        if self.names.is_empty() {
            return false;
        }
        let spelt = folded(name);
        self.is_seen |= is_watched && self.names.contains(&spelt);
        is_watched || self.below.contains(&spelt)
    }
}

struct Walk<'r> {
    /// What is kept of the value. `None` if it is not kept at all.
    shape: Option<Shape>,
    is_watched: bool,
    room: &'r mut Room,
}

impl Walk<'_> {
    fn keep<E: Error>(self, value: impl FnOnce() -> Json) -> Result<Json, E> {
        if self.shape.is_none() {
            return Ok(Json::Other);
        }
        take(&mut self.room.kept)?;
        Ok(value())
    }
}

fn take<E: Error>(left: &mut usize) -> Result<(), E> {
    *left = left.checked_sub(1).ok_or_else(|| E::custom("too much"))?;
    Ok(())
}

impl Shape {
    /// What is kept of a member.
    ///
    /// # Errors
    /// The name is another spelling of one that is wanted, which some origins read and others not.
    fn below<E: Error>(self, name: &str) -> Result<Option<Self>, E> {
        let spelt = folded(name);
        let mut all = self.0.iter();
        match all.find(|(one, _)| folded(one) == spelt) {
            Some((one, shape)) if *one == name => Ok(Some(*shape)),
            Some(_) => Err(E::custom("another spelling")),
            None => Ok(None),
        }
    }
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = Json;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Json, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<Json, E> {
        self.keep(|| Json::Other)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Json, E> {
        self.keep(|| match of_number(number) {
            Some(FactValue::Long(number)) => Json::Number(number),
            _ => Json::Other,
        })
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Json, E> {
        self.visit_i64(i64::try_from(number).unwrap_or(i64::MAX))
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Json, E> {
        self.keep(|| Json::Other)
    }

    fn visit_unit<E: Error>(self) -> Result<Json, E> {
        self.keep(|| Json::Null)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Json, E> {
        self.keep(|| match of_string(text) {
            Some(FactValue::String(text)) => Json::Text(text),
            _ => Json::Other,
        })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Json, A::Error> {
        let mut all = Vec::new();
        let shape = self.shape;
        loop {
            let walk = Walk {
                shape,
                is_watched: self.is_watched,
                room: &mut *self.room,
            };
            match list.next_element_seed(walk)? {
                Some(value) if shape.is_some() => all.push(value),
                Some(_) => {}
                None => break,
            }
        }
        self.keep(|| Json::List(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        let mut names = Names::default();
        let mut all = Vec::new();
        while let Some(name) = next_name(&mut map)? {
            take(&mut self.room.open_names)?;
            let below = self.shape.map(|shape| shape.below(&name)).transpose()?;
            let is_watched = self.room.note(&name, self.is_watched);
            let value = map.next_value_seed(Walk {
                shape: below.flatten(),
                is_watched,
                room: &mut *self.room,
            })?;
            if self.shape.is_some() {
                take(&mut self.room.kept)?;
                all.push((name.clone().into_owned(), value));
            }
            if !names.insert(name) {
                return Err(A::Error::custom("a name occurs twice"));
            }
        }
        self.room.open_names += names.len();
        self.keep(|| Json::Object(all))
    }
}

/// The most names in all open objects together.
const MOST_OPEN_NAMES: usize = 65_536;
/// The most values and names that are kept.
const MOST_KEPT: usize = 16_384;
