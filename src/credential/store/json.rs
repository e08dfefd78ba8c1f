//! JSON with secrets, read into memory that is wiped.

use std::fmt;

use serde::de::{Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use zeroize::{Zeroize as _, Zeroizing};

use super::material::{Lease, Material};

/// A text that is wiped on drop.
pub(super) struct Text(pub(super) Zeroizing<String>);

/// The text fields of a secret, and `ttl` if it is a number.
pub(super) struct SecretFields {
    pub(super) texts: Vec<(String, Zeroizing<String>)>,
    /// In seconds.
    pub(super) ttl: Option<u64>,
}

/// The value of a field.
enum Value {
    Text(Zeroizing<String>),
    Number(u64),
    Other,
}

impl SecretFields {
    /// Takes a member that is text.
    pub(super) fn take(&mut self, name: &str) -> Option<Zeroizing<String>> {
        let at = self.texts.iter().position(|(known, _)| known == name)?;
        Some(self.texts.swap_remove(at).1)
    }
}

/// Returns what a text is: the unnamed value, and if it is a JSON object, its members as fields.
pub(super) fn document(text: &str, lease: Lease) -> Material {
    let fields = serde_json::from_str::<SecretFields>(text).map(|read| read.texts);
    let whole = Material::single(bytes(text), Some(lease));
    let fields = fields.into_iter().flatten();
    fields.fold(whole, |material, (name, value)| {
        material.with(&name, bytes(&value))
    })
}

pub(super) fn bytes(text: &str) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(text.as_bytes().to_vec())
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match Value::deserialize(from)? {
            Value::Text(text) => Ok(Self(text)),
            _ => Err(D::Error::custom("it is no text")),
        }
    }
}

impl<'de> Deserialize<'de> for SecretFields {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(FieldsVisitor)
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(ValueVisitor)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = SecretFields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the fields of a secret")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<SecretFields, A::Error> {
        let mut fields = SecretFields {
            texts: Vec::new(),
            ttl: None,
        };
        let mut names = Vec::new();
        while let Some((name, value)) = map.next_entry::<String, Value>()? {
            if names.contains(&name) {
                return Err(A::Error::custom("a field occurs twice"));
            }
            names.push(name.clone());
            match value {
                Value::Text(text) => fields.texts.push((name, text)),
                Value::Number(seconds) if name == "ttl" => fields.ttl = Some(seconds),
                Value::Number(_) | Value::Other => {}
            }
        }
        Ok(fields)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(Zeroizing::new(text.to_owned())))
    }

    fn visit_string<E>(self, mut text: String) -> Result<Value, E> {
        let value = Zeroizing::new(text.clone());
        text.zeroize();
        Ok(Value::Text(value))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(Value::Number(number))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Value, E> {
        Ok(Value::Other)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Value, E> {
        Ok(Value::Other)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Value, E> {
        Ok(Value::Other)
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Value::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value::Other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_are_texts_are_read_and_others_are_passed_over() {
        let text =
            r#"{"a":"x\u0041","ttl":7,"n":-1,"f":1.5,"b":true,"z":null,"m":{"a":[1]},"s":[]}"#;
        let fields: SecretFields = serde_json::from_str(text).unwrap();
        assert_eq!(fields.ttl, Some(7));
        let texts: Vec<_> = fields
            .texts
            .iter()
            .map(|(n, v)| (n.as_str(), v.as_str()))
            .collect();
        assert_eq!(texts, [("a", "xA")]);
    }

    #[test]
    fn a_field_that_stands_twice_is_refused() {
        for text in [r#"{"a":"x","a":"y"}"#, r#"{"a":1,"a":"y"}"#, "[]", "\"a\""] {
            assert!(
                serde_json::from_str::<SecretFields>(text).is_err(),
                "{text}"
            );
        }
    }
}
