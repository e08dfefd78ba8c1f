//! A description as it is written: TOML, before any of it is checked.

use std::collections::BTreeMap;

use serde::Deserialize;

/// A whole description.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRecipe {
    pub(super) name: String,
    /// The recipe's title, for its readers.
    #[serde(rename = "title")]
    _title: String,
    /// The service's own description of its signatures, for its readers.
    #[serde(rename = "source")]
    _source: String,
    #[serde(default)]
    pub(super) hosts: Vec<String>,
    #[serde(default)]
    pub(super) strip: Vec<String>,
    /// Schemes of `Authorization` whose credentials are bound to the signing key (DPoP's tokens).
    #[serde(default)]
    pub(super) beside: Vec<String>,
    /// Whether a request with the id and no signature passes (Binance's public data).
    #[serde(default)]
    pub(super) unsigned: bool,
    pub(super) part: BTreeMap<String, RawPart>,
    #[serde(default)]
    pub(super) value: BTreeMap<String, RawValue>,
    #[serde(default, rename = "let")]
    pub(super) steps: BTreeMap<String, String>,
    pub(super) sign: RawSign,
    pub(super) place: Vec<RawPlace>,
}

/// A table `part.NAME`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPart {
    pub(super) role: String,
    /// The value from which it is parsed, if it does not stand alone.
    pub(super) read: Option<String>,
    #[serde(default)]
    pub(super) optional: bool,
    pub(super) shape: Option<String>,
    #[serde(default)]
    pub(super) variables: Vec<String>,
}

/// A table `value.NAME`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawValue {
    pub(super) time: Option<String>,
    pub(super) expiry: Option<String>,
    pub(super) longest_seconds: Option<u32>,
    pub(super) back_seconds: Option<u32>,
    pub(super) nonce: Option<String>,
    pub(super) fields: Option<String>,
    pub(super) separator: Option<String>,
    pub(super) parameters: Option<String>,
    pub(super) kept: Option<Vec<String>>,
    /// The characters that a kept value may contain besides letters, digits and `-._*`.
    pub(super) letters: Option<String>,
    pub(super) made: Option<String>,
    pub(super) components: Option<String>,
    pub(super) algorithm: Option<String>,
    pub(super) read: Option<String>,
}

/// The table `sign`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSign {
    pub(super) algorithm: String,
    pub(super) key: String,
    pub(super) text: String,
}

/// A table `[[place]]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPlace {
    pub(super) at: Vec<String>,
    pub(super) value: Templates,
    #[serde(default)]
    pub(super) optional: bool,
}

/// One template, or several that clients choose from; the first is the usual one.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Templates {
    One(String),
    Several(Vec<String>),
}
