//! Canonical forms: which fields and parameters go into the text to sign, in which order and
//! format.

use std::collections::{BTreeMap, BTreeSet};

use http::HeaderName;
use serde::Deserialize;

use super::encoding::{NameAndValue, uri};
use super::name::{Name, Resolve};
use gateway_message::RequestHead;

/// Names of fields: exact ones, families (`x-ms-*`), and the list in a value (`@signed`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Selection {
    list: Option<Name>,
    exact: Vec<HeaderName>,
    families: Vec<Box<str>>,
}

impl Selection {
    pub(super) fn parse(text: &str, resolve: Resolve<'_>) -> Result<Selection, String> {
        let mut selection = Selection::default();
        for word in text.split_whitespace() {
            if let Some(list) = word.strip_prefix('@') {
                let name = resolve(list).filter(|name| matches!(name, Name::Value(_)));
                selection.list = Some(name.ok_or_else(|| format!("`{list}` names no value"))?);
            } else if let Some(family) = word.strip_suffix('*').filter(|family| family.len() > 1) {
                selection.families.push(family.to_ascii_lowercase().into());
            } else {
                let name = HeaderName::from_bytes(word.as_bytes());
                selection
                    .exact
                    .push(name.map_err(|_| format!("`{word}` is no field name"))?);
            }
        }
        Ok(selection)
    }

    pub(super) fn name(&self) -> Option<Name> {
        self.list
    }

    /// The names. A list alone is used unchanged, because it is itself signed; otherwise the names
    /// are sorted, without those of absent fields.
    pub(super) fn of(&self, head: &RequestHead, listed: &str) -> Vec<String> {
        let listed = listed
            .split([';', ',', ' '])
            .filter(|name| !name.is_empty())
            .map(str::to_ascii_lowercase);
        if self.exact.is_empty() && self.families.is_empty() {
            return listed.collect();
        }
        let has = |name: &String| name == "host" || head.fields.contains_key(name);
        let own = head.fields.keys().map(HeaderName::as_str).filter(|name| {
            self.exact.iter().any(|exact| exact == name)
                || self
                    .families
                    .iter()
                    .any(|family| name.starts_with(&**family))
        });
        let host = self
            .exact
            .iter()
            .any(|exact| exact == "host")
            .then_some("host");
        let names = listed.filter(has);
        let names: BTreeSet<String> = names.chain(own.chain(host).map(str::to_owned)).collect();
        names.into_iter().collect()
    }
}

/// The format of selected fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum FieldStyle {
    /// `name:value` and a line feed.
    Lines,
    /// The same, the value in lower case (Tencent TC3).
    LowerLines,
    /// Like [`FieldStyle::Lines`], in the order in which Azure Storage sorts names.
    AzureLines,
    /// `name=value`, escaped, joined by `&` (Tencent COS).
    UriPairs,
}

impl FieldStyle {
    pub(super) fn write(self, head: &RequestHead, names: &[String]) -> Vec<u8> {
        let mut names: Vec<&String> = names.iter().collect();
        if self == FieldStyle::AzureLines {
            names.sort_by_cached_key(|name| azure_order(name));
        }
        let mut out = Vec::new();
        for (at, name) in names.into_iter().enumerate() {
            let value = field(head, name);
            match self {
                FieldStyle::Lines | FieldStyle::AzureLines => {
                    out.extend([name.as_bytes(), b":", &value, b"\n"].concat());
                }
                FieldStyle::LowerLines => {
                    out.extend(
                        [name.as_bytes(), b":", &value.to_ascii_lowercase(), b"\n"].concat(),
                    );
                }
                FieldStyle::UriPairs => {
                    let and = if at == 0 { "" } else { "&" };
                    out.extend(
                        format!("{and}{}={}", uri(name.as_bytes()), uri(&value)).into_bytes(),
                    );
                }
            }
        }
        out
    }
}

/// The service sorts like a dictionary: hyphens count only between names that are equal without
/// them, and `_` sorts before digits (the tables of `azure-storage-blob`, which emulate it).
fn azure_order(name: &str) -> (String, String) {
    let weighed = name.chars().filter(|char| *char != '-');
    let weighed = weighed.map(|char| if char == '_' { '/' } else { char });
    (weighed.collect(), name.to_owned())
}

/// A field's value, several joined by a comma (RFC 9110 §5.3); `host` is the origin's in every
/// version of HTTP.
pub(super) fn field(head: &RequestHead, name: &str) -> Vec<u8> {
    if name == "host" {
        return head.origin.host_field().into_bytes();
    }
    let values: Vec<&[u8]> = head
        .fields
        .get_all(name)
        .iter()
        .map(|value| value.as_bytes().trim_ascii())
        .collect();
    values.join(&b',')
}

/// Which parameters to take (from the query, a form in the content, the `Authorization` field), and
/// which to leave out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Parameters {
    pub(super) query: bool,
    pub(super) form: bool,
    pub(super) authorization: bool,
    without: Vec<Box<str>>,
    /// A value that lists the names to take; without it all are taken.
    pub(super) list: Option<Box<str>>,
}

impl Parameters {
    pub(super) fn parse(text: &str) -> Result<Parameters, String> {
        let mut parameters = Parameters {
            query: false,
            form: false,
            authorization: false,
            without: Vec::new(),
            list: None,
        };
        for word in text.split_whitespace() {
            match word {
                "query" => parameters.query = true,
                "form" => parameters.form = true,
                "authorization" => parameters.authorization = true,
                word => match (word.strip_prefix('-'), word.strip_prefix('@')) {
                    (Some(without), _) => parameters.without.push(without.into()),
                    (_, Some(list)) => parameters.list = Some(list.into()),
                    _ => {
                        return Err(format!(
                            "`{word}` is none of `query`, `form`, `authorization`, `-NAME`, `@VALUE`"
                        ));
                    }
                },
            }
        }
        if !(parameters.query || parameters.form || parameters.authorization) {
            return Err("parameters need a source: `query`, `form` or `authorization`".to_owned());
        }
        Ok(parameters)
    }

    pub(super) fn takes(&self, name: &[u8], listed: Option<&str>) -> bool {
        let is_listed = |list: &str| {
            list.split(';')
                .any(|listed| listed.as_bytes().eq_ignore_ascii_case(name))
        };
        let mut without = self.without.iter();
        !without.any(|one| one.as_bytes() == name) && listed.is_none_or(is_listed)
    }
}

/// The format of parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ParameterStyle {
    /// `name=value`, escaped, in order, joined by `&`.
    Uri,
    /// The same, but a name without a value is written alone (Alibaba OSS).
    UriBare,
    /// The same as [`ParameterStyle::Uri`], names in lower case (Tencent COS).
    UriLower,
    /// A line feed, the name in lower case, `:` and its values in order, joined by commas (Azure
    /// Storage).
    AzureLines,
    /// Name and value with nothing in between (Twilio); duplicates are written once.
    Concatenated,
}

impl ParameterStyle {
    pub(super) fn write(self, pairs: Vec<NameAndValue>) -> Vec<u8> {
        match self {
            ParameterStyle::Uri | ParameterStyle::UriBare | ParameterStyle::UriLower => {
                self.escaped(pairs)
            }
            ParameterStyle::AzureLines => azure_lines(pairs),
            ParameterStyle::Concatenated => {
                let pairs: BTreeSet<NameAndValue> = pairs.into_iter().collect();
                let joined = pairs
                    .into_iter()
                    .map(|(name, value)| [name, value].concat());
                joined.collect::<Vec<_>>().concat()
            }
        }
    }

    fn escaped(self, pairs: Vec<NameAndValue>) -> Vec<u8> {
        let escaped = pairs.into_iter().map(|(name, value)| match self {
            ParameterStyle::UriLower => (uri(&name.to_ascii_lowercase()), uri(&value)),
            _ => (uri(&name), uri(&value)),
        });
        let mut escaped: Vec<(String, String)> = escaped.collect();
        escaped.sort();
        let written = escaped.into_iter().map(|(name, value)| match self {
            ParameterStyle::UriBare if value.is_empty() => name,
            _ => format!("{name}={value}"),
        });
        written.collect::<Vec<_>>().join("&").into_bytes()
    }
}

fn azure_lines(pairs: Vec<NameAndValue>) -> Vec<u8> {
    let mut by_name: BTreeMap<Vec<u8>, Vec<Vec<u8>>> = BTreeMap::new();
    for (name, value) in pairs {
        let values = by_name.entry(name.to_ascii_lowercase()).or_default();
        values.push(value);
    }
    let lines = by_name.into_iter().map(|(name, mut values)| {
        values.sort();
        [b"\n", name.as_slice(), b":", &values.join(&b',')].concat()
    });
    lines.collect::<Vec<_>>().concat()
}
