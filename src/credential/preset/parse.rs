//! Parses texts of presets. An error names the text.

use std::fmt::Display;
use std::str::FromStr;

use gateway_names::CredentialName;
use gateway_session::phantom::Shape;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// Reads each text of a list.
pub(super) fn each<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(
    data: D,
) -> Result<Vec<T>, D::Error> {
    all(data, str::parse)
}

/// Reads a text.
pub(super) fn one<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(
    data: D,
) -> Result<T, D::Error> {
    let text = String::deserialize(data)?;
    text.parse()
        .map_err(|error| D::Error::custom(format!("{text}: {error}")))
}

/// Reads each shape of a list.
pub(super) fn shapes<'de, D: Deserializer<'de>>(data: D) -> Result<Vec<Shape>, D::Error> {
    all(data, Shape::parse)
}

/// Reads a name.
pub(super) fn name<'de, D: Deserializer<'de>>(data: D) -> Result<CredentialName, D::Error> {
    CredentialName::new(&String::deserialize(data)?).map_err(D::Error::custom)
}

fn all<'de, D: Deserializer<'de>, T, E: Display>(
    data: D,
    read: impl Fn(&str) -> Result<T, E>,
) -> Result<Vec<T>, D::Error> {
    let texts = Vec::<String>::deserialize(data)?;
    let read =
        |text: &String| read(text).map_err(|error| D::Error::custom(format!("{text}: {error}")));
    texts.iter().map(read).collect()
}
