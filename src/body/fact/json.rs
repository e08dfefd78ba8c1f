//! Facts of a JSON document (RFC 8259), found by JSON Pointer (RFC 6901) in one pass.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use serde::Deserialize as _;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::form::is_named;
use super::plain::{of_number, of_string};
use super::{FactType, FactValue, Location};
use crate::form::begins_as_json;
use gateway_message::folded_parameter;

/// A JSON Pointer: the member names and list places that lead to a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pointer(Vec<String>);

/// Why a text is no pointer to a value inside a document.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "a JSON Pointer begins with `/`, as `/messages/0/role`; in a name `~` is `~0` and `/` is `~1`"
)]
pub struct PointerMalformed(());

impl FromStr for Pointer {
    type Err = PointerMalformed;

    fn from_str(text: &str) -> Result<Self, PointerMalformed> {
        let rest = text.strip_prefix('/').ok_or(PointerMalformed(()))?;
        let tokens = rest.split('/').map(|token| {
            let escapes = token.matches("~0").count() + token.matches("~1").count();
            let whole = token.matches('~').count() == escapes;
            whole.then(|| token.replace("~1", "/").replace("~0", "~"))
        });
        let tokens: Option<Vec<String>> = tokens.collect();
        tokens.map(Self).ok_or(PointerMalformed(()))
    }
}

impl Pointer {
    /// Whether a query says something under this name: Rails, for one, takes that before what the
    /// document says.
    pub(super) fn is_in_query(&self, query: &str) -> bool {
        let name: Vec<String> = self.0.iter().map(|part| folded_parameter(part)).collect();
        is_named(query, &name)
    }
}

/// Reads the wanted values of one document.
pub(super) struct JsonReader {
    root: Node,
    found: Found,
}

/// What is wanted at one place of the document, and below it.
#[derive(Default)]
struct Node {
    /// The values that are wanted here, by their place in the result.
    wanted: Vec<(usize, FactType)>,
    below: Vec<(String, Node)>,
}

struct Found {
    values: Vec<Option<FactValue>>,
    /// Names in the objects that are open now.
    open_names: usize,
}

impl JsonReader {
    pub fn new(query: &str, wanted: &[(&Location, FactType)]) -> Self {
        let mut root = Node::default();
        for (nth, (location, kind)) in wanted.iter().enumerate() {
            if let Location::Json(pointer) = location
                && !pointer.is_in_query(query)
            {
                root.at(&pointer.0).wanted.push((nth, *kind));
            }
        }
        let found = Found {
            values: vec![None; wanted.len()],
            open_names: 0,
        };
        Self { root, found }
    }

    /// The values, or nothing where the document is not exactly one that all readers read alike.
    pub fn read(mut self, content: &[u8]) -> Option<Vec<Option<FactValue>>> {
        let mut reader = serde_json::Deserializer::from_slice(content);
        let walk = Walk {
            node: Some(&self.root),
            list: None,
            found: &mut self.found,
        };
        walk.deserialize(&mut reader).ok()?;
        reader.end().ok()?;
        Some(self.found.values)
    }
}

/// Whether some reader takes the content for a document, and what may follow for another one.
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

    /// Forgets what was read here and below.
    fn clear(&self, found: &mut Found) {
        for (nth, _) in &self.wanted {
            found.values[*nth] = None;
        }
        for (_, node) in &self.below {
            node.clear(found);
        }
    }
}

/// Reads one value of the document.
struct Walk<'a> {
    /// What is wanted of it.
    node: Option<&'a Node>,
    /// The texts of the list that it is in, where those are wanted; `None` once one is no text.
    list: Option<&'a mut Option<Vec<String>>>,
    found: &'a mut Found,
}

impl Walk<'_> {
    /// Keeps a value where its type is wanted.
    fn keep(self, value: impl Fn(FactType) -> Option<FactValue>) {
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
            self.found.values[*nth] = value(*kind);
        }
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
        self.keep(|kind| (kind == FactType::Bool).then_some(FactValue::Bool(flag)));
        Ok(())
    }

    fn visit_i64<E>(self, number: i64) -> Result<(), E> {
        self.keep(|kind| match kind {
            FactType::Long => of_number(number),
            _ => None,
        });
        Ok(())
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
        self.keep(|_| None);
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.keep(|kind| match kind {
            FactType::String => of_string(text),
            _ => None,
        });
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let mut texts = self.wants_texts().then(Vec::new);
        for place in 0_usize.. {
            let walk = Walk {
                node: self.node.and_then(|node| node.below(&place.to_string())),
                list: Some(&mut texts),
                found: &mut *self.found,
            };
            if list.next_element_seed(walk)?.is_none() {
                break;
            }
        }
        self.keep(|kind| match kind {
            FactType::Strings => texts.clone().map(FactValue::Strings),
            _ => None,
        });
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut names = HashSet::new();
        while let Some(name) = map.next_key::<String>()? {
            if self.found.open_names == MOST_OPEN_NAMES {
                return Err(A::Error::custom("too many names"));
            }
            map.next_value_seed(Walk {
                node: self.node.and_then(|node| node.below(&name)),
                list: None,
                found: &mut *self.found,
            })?;
            if !names.insert(name) {
                return Err(A::Error::custom("a name stands twice"));
            }
            self.found.open_names += 1;
        }
        self.found.open_names -= names.len();
        for (wanted, node) in self.node.iter().flat_map(|node| &node.below) {
            let wanted = folded(wanted);
            if names.iter().filter(|name| folded(name) == wanted).count() > 1 {
                node.clear(self.found);
            }
        }
        self.keep(|_| None);
        Ok(())
    }
}

/// A name as readers see it that do not distinguish case, Go's `encoding/json` among them, which
/// also takes `ſ` (U+017F) for `s` and the Kelvin sign for `k`; and as those see it that keep it as
/// C does, up to NUL.
fn folded(name: &str) -> String {
    let name = name.chars().take_while(|letter| *letter != '\0');
    let upper = name.flat_map(char::to_uppercase);
    upper.flat_map(char::to_lowercase).collect()
}

/// The names of all objects that are open at once: what they take is bounded, whatever is sent.
const MOST_OPEN_NAMES: usize = 65_536;
/// The texts of one list.
const MOST_TEXTS: usize = 1_024;
