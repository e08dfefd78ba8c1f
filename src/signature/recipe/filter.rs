//! Filters: the transformations of a value in a template, in order, and their inverses for parsing.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, PAD, STANDARD, URL_SAFE_NO_PAD};
use percent_encoding::percent_decode;

use super::components::parameter;
use super::encoding::{uri, uri_path};
use super::hash::{Hash, MacHash};
use super::name::{Name, Resolve, named_variant};

/// One transformation of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Filter {
    Hash(Hash),
    /// The value is the text, the name refers to the key: a step of a derivation.
    Mac(MacHash, Name),
    Hex,
    Base64,
    /// RFC 4648 §5 without padding.
    Base64Url,
    Unhex,
    Unbase64,
    Unbase64Url,
    /// Escapes all except `A-Z a-z 0-9 - . _ ~` (RFC 3986 §2.3).
    Uri,
    /// The same, but keeps slashes.
    UriPath,
    Unuri,
    Lower,
    Upper,
    Trim,
    /// A JSON string with its quotes.
    Json,
    /// The text of a member of a JSON object: a string, a number as written, a list or object as
    /// JSON without spaces; empty if there is no such member.
    Member(Box<str>),
    /// The text of a parameter of a `Signature-Input` (RFC 9421 §2.3); empty if there is no such
    /// parameter.
    Parameter(Box<str>),
    /// This text if the value is empty.
    Default(Box<str>),
    /// Empty if the value is this text.
    Blank(Box<str>),
    /// This text before the value, unless the value is empty.
    Before(Box<str>),
    /// This text after the value, unless it already ends with it.
    Ending(Box<str>),
    /// The label of a host name, counted from 0.
    Label(usize),
    /// The first bytes, up to this many.
    First(usize),
    /// The first segments of a path, up to this many.
    Segments(usize),
    /// The rest of a value that starts with this text, otherwise empty.
    After(Box<str>),
    /// Empty unless the method is one of these.
    Only(Vec<Box<str>>),
    /// Empty if the named value is empty.
    If(Name),
    /// Empty if the named value is not empty.
    Unless(Name),
    /// Empty unless the named value is this text.
    When(Name, Box<str>),
}

impl Filter {
    /// Parses a filter; the error says what is wrong.
    pub(super) fn parse(
        name: &str,
        arguments: &[String],
        resolve: Resolve<'_>,
    ) -> Result<Filter, String> {
        let plain = |filter: Filter| match arguments {
            [] => Ok(filter),
            _ => Err(format!("`{name}` takes no argument")),
        };
        let one = || match arguments {
            [argument] => Ok(argument.as_str()),
            _ => Err(format!("`{name}` takes one argument")),
        };
        let known = |argument: &str| {
            resolve(argument).ok_or_else(|| format!("`{argument}` names no part, value or step"))
        };
        let named = || known(one()?);
        let count = || {
            one()?
                .parse::<usize>()
                .map_err(|_| format!("`{name}` takes a number"))
        };
        if let Some(hash) = named_variant::<Hash>(name) {
            return plain(Filter::Hash(hash));
        }
        if let Some(mac) = MacHash::named(name) {
            return Ok(Filter::Mac(mac, named()?));
        }
        match name {
            "hex" => plain(Filter::Hex),
            "base64" => plain(Filter::Base64),
            "base64url" => plain(Filter::Base64Url),
            "unhex" => plain(Filter::Unhex),
            "unbase64" => plain(Filter::Unbase64),
            "unbase64url" => plain(Filter::Unbase64Url),
            "uri" => plain(Filter::Uri),
            "uri-path" => plain(Filter::UriPath),
            "unuri" => plain(Filter::Unuri),
            "lower" => plain(Filter::Lower),
            "upper" => plain(Filter::Upper),
            "trim" => plain(Filter::Trim),
            "json" => plain(Filter::Json),
            "member" => Ok(Filter::Member(one()?.into())),
            "parameter" => Ok(Filter::Parameter(one()?.into())),
            "default" => Ok(Filter::Default(one()?.into())),
            "blank" => Ok(Filter::Blank(one()?.into())),
            "before" => Ok(Filter::Before(one()?.into())),
            "ending" => Ok(Filter::Ending(one()?.into())),
            "label" => Ok(Filter::Label(count()?)),
            "first" => Ok(Filter::First(count()?)),
            "segments" => Ok(Filter::Segments(count()?)),
            "after" => Ok(Filter::After(one()?.into())),
            "only" => Ok(Filter::Only(
                arguments
                    .iter()
                    .map(|method| method.as_str().into())
                    .collect(),
            )),
            "if" => Ok(Filter::If(named()?)),
            "unless" => Ok(Filter::Unless(named()?)),
            "when" => match arguments {
                [name, text] => Ok(Filter::When(known(name)?, text.as_str().into())),
                _ => Err("`when` takes a name and a text".to_owned()),
            },
            _ => Err(format!("there is no filter `{name}`")),
        }
    }

    /// The value on which this filter depends.
    pub(super) fn name(&self) -> Option<Name> {
        match self {
            Filter::Mac(_, name)
            | Filter::If(name)
            | Filter::Unless(name)
            | Filter::When(name, _) => Some(*name),
            _ => None,
        }
    }

    /// Applies a filter that needs no other value; `None` if the value does not fit it.
    pub(super) fn apply(&self, value: &[u8], method: &str) -> Option<Vec<u8>> {
        Some(match self {
            Filter::Hash(hash) => hash.of(value),
            Filter::Hex => base16ct::lower::encode_string(value).into_bytes(),
            Filter::Base64 => STANDARD.encode(value).into_bytes(),
            Filter::Base64Url => URL_SAFE_NO_PAD.encode(value).into_bytes(),
            Filter::Unhex => base16ct::mixed::decode_vec(value).ok()?,
            Filter::Unbase64 => LENIENT.decode(value).ok()?,
            Filter::Unbase64Url => URL_SAFE_NO_PAD.decode(value).ok()?,
            Filter::Uri => uri(value).into_bytes(),
            Filter::UriPath => uri_path(value).into_bytes(),
            Filter::Unuri => percent_decode(value).collect(),
            Filter::Lower => value.to_ascii_lowercase(),
            Filter::Upper => value.to_ascii_uppercase(),
            Filter::Trim => value.trim_ascii().to_vec(),
            Filter::Json => serde_json::to_vec(std::str::from_utf8(value).ok()?).ok()?,
            Filter::Member(name) => member(value, name)?,
            Filter::Parameter(name) => parameter(value, name)?,
            Filter::Default(text) if value.is_empty() => text.as_bytes().to_vec(),
            Filter::Blank(text) if *value == *text.as_bytes() => Vec::new(),
            Filter::Before(text) if !value.is_empty() => [text.as_bytes(), value].concat(),
            Filter::Ending(text) if !value.ends_with(text.as_bytes()) => {
                [value, text.as_bytes()].concat()
            }
            Filter::Label(index) => value.split(|byte| *byte == b'.').nth(*index)?.to_vec(),
            Filter::First(count) => value[..value.len().min(*count)].to_vec(),
            Filter::Segments(count) => {
                let slashes = value.iter().enumerate().filter(|(_, byte)| **byte == b'/');
                let end = slashes.map(|(at, _)| at).nth(*count).unwrap_or(value.len());
                value[..end].to_vec()
            }
            Filter::After(text) => value
                .strip_prefix(text.as_bytes())
                .unwrap_or_default()
                .to_vec(),
            Filter::Only(methods) if !methods.iter().any(|known| **known == *method) => Vec::new(),
            _ => value.to_vec(),
        })
    }

    /// Whether [`Filter::invert`] restores the input, so that a place written with it can be
    /// parsed.
    pub(super) fn is_invertible(&self) -> bool {
        matches!(
            self,
            Filter::Hex | Filter::Base64 | Filter::Base64Url | Filter::Uri
        )
    }

    pub(super) fn invert(&self, value: Vec<u8>) -> Option<Vec<u8>> {
        match self {
            Filter::Hex => base16ct::mixed::decode_vec(value).ok(),
            Filter::Base64 => STANDARD.decode(value).ok(),
            Filter::Base64Url => URL_SAFE_NO_PAD.decode(value).ok(),
            Filter::Uri => Some(percent_decode(&value).collect()),
            _ => None,
        }
    }
}

fn member(object: &[u8], name: &str) -> Option<Vec<u8>> {
    let object: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(object).ok()?;
    let Some(value) = object.get(name) else {
        return Some(Vec::new());
    };
    match value {
        serde_json::Value::String(text) => Some(text.clone().into_bytes()),
        serde_json::Value::Number(number) => Some(number.to_string().into_bytes()),
        serde_json::Value::Null => Some(Vec::new()),
        list @ (serde_json::Value::Array(_) | serde_json::Value::Object(_)) => {
            serde_json::to_vec(list).ok()
        }
        serde_json::Value::Bool(_) => None,
    }
}

/// A key's phantom is drawn character by character, so the bits after its last byte need not be
/// zero; clients accept that.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    PAD.with_decode_allow_trailing_bits(true),
);

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(filter: &str, arguments: &[&str], value: &str) -> Option<String> {
        let arguments: Vec<String> = arguments
            .iter()
            .map(|argument| (*argument).to_owned())
            .collect();
        let filter = Filter::parse(filter, &arguments, &|_| None).unwrap();
        let value = filter.apply(value.as_bytes(), "GET")?;
        Some(String::from_utf8_lossy(&value).into_owned())
    }

    #[test]
    fn a_filter_does_one_thing() {
        for (filter, arguments, value, result) in [
            ("hex", &[][..], "a\u{7f}", "617f"),
            ("unhex", &[], "6A", "j"),
            ("uri", &[], "a/b c~", "a%2Fb%20c~"),
            ("uri-path", &[], "a/b c~", "a/b%20c~"),
            ("blank", &["0"], "0", ""),
            ("blank", &["0"], "10", "10"),
            ("before", &["?"], "", ""),
            ("before", &["?"], "a", "?a"),
            ("ending", &["/"], "/a", "/a/"),
            ("ending", &["/"], "/a/", "/a/"),
            ("label", &["1"], "a.b.c", "b"),
            ("unbase64", &[], "aGl=", "hi"),
            ("first", &["2"], "abc", "ab"),
            ("segments", &["1"], "/a/b/c", "/a"),
            ("segments", &["2"], "/a", "/a"),
            ("after", &["DPoP "], "DPoP x", "x"),
            ("after", &["DPoP "], "Bearer x", ""),
            ("member", &["c"], "{\"a\":1}", ""),
            ("only", &["POST"], "abc", ""),
            ("json", &[], "a\"b", "\"a\\\"b\""),
            ("member", &["b"], "{\"a\":1,\"b\":\"x\"}", "x"),
        ] {
            assert_eq!(
                applied(filter, arguments, value).as_deref(),
                Some(result),
                "{filter} of {value}"
            );
        }
        for (filter, value) in [
            ("unhex", "6"),
            ("unhex", "6g"),
            ("unbase64", "a"),
            ("label", "a"),
        ] {
            let arguments = if filter == "label" { &["1"][..] } else { &[] };
            assert_eq!(
                applied(filter, arguments, value),
                None,
                "{filter} of {value}"
            );
        }
    }
}
