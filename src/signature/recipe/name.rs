//! Names in a template: what they refer to, and how they are looked up.

use serde::de::DeserializeOwned;
use serde::de::IntoDeserializer;
use serde::de::value::Error;

/// The variant of an enum by its name in descriptions.
pub(super) fn named_variant<T: DeserializeOwned>(name: &str) -> Option<T> {
    let name: serde::de::value::StrDeserializer<'_, Error> = name.into_deserializer();
    T::deserialize(name).ok()
}

/// What a name in a template refers to; a number is its index in the recipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Name {
    Part(usize),
    Value(usize),
    Step(usize),
    Signature,
}

/// Looks up a name that a description uses; `None` if it names nothing.
pub(super) type Resolve<'a> = &'a dyn Fn(&str) -> Option<Name>;
