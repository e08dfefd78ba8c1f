//! The names of one JSON object, which may come once each.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};

/// The names of one object. The few that most objects have are compared one by one.
#[derive(Default)]
pub(crate) struct Names<'de> {
    few: Vec<Cow<'de, str>>,
    many: HashSet<Cow<'de, str>>,
}

impl<'de> Names<'de> {
    /// Adds a name. Returns whether it is the first with these letters.
    pub fn insert(&mut self, name: Cow<'de, str>) -> bool {
        if self.few.len() < FEW {
            let is_first = !self.few.contains(&name);
            self.few.push(name);
            return is_first;
        }
        !self.few.contains(&name) && self.many.insert(name)
    }

    pub fn len(&self) -> usize {
        self.few.len() + self.many.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.few.iter().chain(&self.many).map(AsRef::as_ref)
    }
}

const FEW: usize = 16;

/// The next name of an object, borrowed from the document where it has no escape.
pub(crate) fn next_name<'de, A: MapAccess<'de>>(
    map: &mut A,
) -> Result<Option<Cow<'de, str>>, A::Error> {
    map.next_key_seed(Name)
}

struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Self::Value, D::Error> {
        reader.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Name {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_borrowed_str<E: Error>(self, name: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(name))
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_told_once_among_few_and_among_many() {
        for count in [0, 1, FEW - 1, FEW, FEW + 1, 3 * FEW] {
            let mut names = Names::default();
            for nth in 0..count {
                assert!(names.insert(format!("n{nth}").into()), "{nth} of {count}");
            }
            assert_eq!((names.len(), names.iter().count()), (count, count));
            for nth in 0..count {
                assert!(!names.insert(format!("n{nth}").into()), "{nth} of {count}");
            }
            assert!(names.insert("m".into()));
        }
    }
}
