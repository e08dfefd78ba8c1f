//! Forms in JSON: an object, a list of objects, or several documents in a row.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::search::{FormFault, MemberSearch};

/// Whether a reader that detects the format from the content would read JSON, in any charset.
pub(crate) fn begins_as_json(content: &[u8]) -> bool {
    let skipped = |b: &&u8| !(b.is_ascii_control() || b" \xef\xbb\xbf\xfe\xff".contains(b));
    matches!(content.iter().find(skipped), Some(b'{' | b'['))
}

/// Finds the members of one document, or of several in a row.
pub(super) fn find(content: &[u8], found: &mut MemberSearch<'_>) -> Result<(), FormFault> {
    let content = content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(content);
    // Find where each document ends first. Asking the reader after each document whether it was the
    // last would make it read all earlier ones again.
    let mut documents = serde_json::Deserializer::from_slice(content).into_iter::<IgnoredAny>();
    let mut from = 0;
    while let Some(document) = documents.next() {
        document.map_err(|_| FormFault::Json)?;
        let to = documents.byte_offset();
        let members = Members {
            found,
            lists: 1,
            asked: None,
        };
        let mut reader = serde_json::Deserializer::from_slice(&content[from..to]);
        members
            .deserialize(&mut reader)
            .map_err(|_| FormFault::Json)?;
        from = to;
    }
    Ok(())
}

/// Visits the members of an object, or of the objects in a list.
struct Members<'f, 'a> {
    found: &'f mut MemberSearch<'a>,
    /// How many levels of lists are searched for objects.
    lists: u8,
    /// The name of the member that this is the value of, if it is asked for.
    asked: Option<&'f str>,
}

impl Members<'_, '_> {
    /// Handles a value that is neither an object nor a list.
    fn plain<E>(self, value: Option<&str>) -> Result<(), E> {
        if let Some(name) = self.asked {
            self.found.found(name, value.map(str::to_owned));
        }
        Ok(())
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
        if let Some(name) = self.asked {
            self.found.found(name, None);
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
                asked: Some(&name),
            })?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        if let Some(name) = self.asked {
            self.found.found(name, None);
        }
        if self.lists == 0 {
            while list.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(());
        }
        loop {
            let inner = Members {
                found: &mut *self.found,
                lists: self.lists - 1,
                asked: None,
            };
            if list.next_element_seed(inner)?.is_none() {
                return Ok(());
            }
        }
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        self.plain(None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        self.plain(None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        self.plain(None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        self.plain(None)
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.plain(Some(text))
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.plain(Some(""))
    }
}
