//! Slots: where in a request a value is; read, written and removed.

use std::fmt;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, header};

use super::encoding::{decoded, pairs, uri};
use super::fault::Fault;
use super::json;
use gateway_message::{RequestHead, fields};

/// A slot. Its text form: `header:NAME`, `query:NAME`, `form:NAME`, `json:NAME` (a member of the
/// outermost object), `authorization:SCHEME:NAME` (a parameter of that field, RFC 9110 §11.6.2,
/// quoted as in OAuth 1.0a).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Slot {
    Header(HeaderName),
    Query(Box<str>),
    Form(Box<str>),
    Json(Box<str>),
    Authorization { scheme: Box<str>, name: Box<str> },
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Slot::Header(name) => write!(f, "header:{name}"),
            Slot::Query(name) => write!(f, "query:{name}"),
            Slot::Form(name) => write!(f, "form:{name}"),
            Slot::Json(name) => write!(f, "json:{name}"),
            Slot::Authorization { scheme, name } => write!(f, "authorization:{scheme}:{name}"),
        }
    }
}

impl Slot {
    pub(super) fn parse(text: &str) -> Option<Slot> {
        let (kind, name) = text.split_once(':').filter(|(_, name)| !name.is_empty())?;
        Some(match kind {
            "header" => Slot::Header(
                HeaderName::from_bytes(name.as_bytes())
                    .ok()
                    .filter(|name| !fields::frames_or_routes(name))?,
            ),
            "query" => Slot::Query(name.into()),
            "form" => Slot::Form(name.into()),
            "json" => Slot::Json(name.into()),
            "authorization" => {
                let (scheme, name) = name.split_once(':')?;
                Slot::Authorization {
                    scheme: scheme.into(),
                    name: name.into(),
                }
            }
            _ => return None,
        })
    }

    /// Whether it is in the content.
    pub(super) fn is_in_content(&self) -> bool {
        matches!(self, Slot::Form(_) | Slot::Json(_))
    }

    /// Reads its value.
    ///
    /// # Errors
    /// [`Fault::Ambiguous`] if there are two, [`Fault::Malformed`] if the surrounding text cannot
    /// be parsed.
    pub(super) fn read(
        &self,
        head: &RequestHead,
        content: Option<&[u8]>,
    ) -> Result<Option<Vec<u8>>, Fault> {
        let mut found = match self {
            Slot::Header(name) => head
                .fields
                .get_all(name)
                .iter()
                .map(|value| value.as_bytes().to_vec())
                .collect(),
            Slot::Query(name) => named(head.target.query().unwrap_or_default().as_bytes(), name),
            Slot::Form(name) if is_form(head) => named(content.unwrap_or_default(), name),
            Slot::Json(name) if is_json(head) => {
                let content = content.unwrap_or_default();
                let value = json::find(content, name).map_err(|_| self.malformed())?;
                match value {
                    Some(at) => vec![json::read(&content[at]).ok_or_else(|| self.malformed())?],
                    None => Vec::new(),
                }
            }
            Slot::Form(_) | Slot::Json(_) => Vec::new(),
            Slot::Authorization { scheme, name } => authorization(head, scheme)?
                .into_iter()
                .filter(|(known, _)| *known == **name)
                .map(|(_, value)| value)
                .collect(),
        };
        match found.len() {
            0 | 1 => Ok(found.pop()),
            _ => Err(Fault::Ambiguous(self.to_string())),
        }
    }

    /// Writes a value: replaces an existing one, otherwise appends it.
    pub(super) fn write(
        &self,
        head: &mut RequestHead,
        content: &mut Option<Bytes>,
        value: &[u8],
    ) -> Result<(), Fault> {
        match self {
            Slot::Header(name) => {
                let mut value = HeaderValue::from_bytes(value).map_err(|_| self.unfit())?;
                value.set_sensitive(true);
                head.fields.insert(name, value);
            }
            Slot::Query(name) => {
                let query = edited(
                    head.target.query().unwrap_or_default().as_bytes(),
                    name,
                    Some(value),
                );
                set_query(head, &query)?;
            }
            Slot::Form(name) if is_form(head) => {
                let edited = edited(content.as_deref().unwrap_or_default(), name, Some(value));
                set_content(head, content, edited);
            }
            Slot::Json(name) if is_json(head) => {
                let text = content.as_deref().unwrap_or_default();
                let at = json::find(text, name)
                    .ok()
                    .flatten()
                    .ok_or_else(|| self.unfit())?;
                let replaced = json::replace(text, &at, value).ok_or_else(|| self.unfit())?;
                set_content(head, content, replaced);
            }
            Slot::Form(_) | Slot::Json(_) => return Err(self.unfit()),
            Slot::Authorization { scheme, name } => {
                let mut parameters = authorization(head, scheme)?;
                match parameters.iter_mut().find(|(known, _)| *known == **name) {
                    Some((_, standing)) => *standing = value.to_vec(),
                    None => parameters.push((name.to_string(), value.to_vec())),
                }
                set_authorization(head, scheme, &parameters)?;
            }
        }
        Ok(())
    }

    /// Removes every value in it.
    pub(super) fn remove(
        &self,
        head: &mut RequestHead,
        content: &mut Option<Bytes>,
    ) -> Result<(), Fault> {
        match self {
            Slot::Header(name) => {
                head.fields.remove(name);
            }
            Slot::Query(name) => {
                let query = head.target.query().unwrap_or_default().as_bytes();
                if !named(query, name).is_empty() {
                    let query = edited(query, name, None);
                    set_query(head, &query)?;
                }
            }
            Slot::Form(name) if is_form(head) => {
                let text = content.as_deref().unwrap_or_default();
                if !named(text, name).is_empty() {
                    let edited = edited(text, name, None);
                    set_content(head, content, edited);
                }
            }
            // A member of a JSON text is replaced in place and never removed: see `load`.
            Slot::Form(_) | Slot::Json(_) => {}
            Slot::Authorization { scheme, name } => {
                let mut parameters = authorization(head, scheme)?;
                parameters.retain(|(known, _)| *known != **name);
                set_authorization(head, scheme, &parameters)?;
            }
        }
        Ok(())
    }

    pub(super) fn malformed(&self) -> Fault {
        Fault::Malformed(self.to_string())
    }

    pub(super) fn unfit(&self) -> Fault {
        Fault::Unfit(self.to_string())
    }
}

/// The pairs of a query or form without the parameters of one name, the others byte for byte.
pub(super) fn without(text: &[u8], name: &str) -> Vec<u8> {
    edited(text, name, None)
}

/// The parameters of `Authorization: SCHEME a="b", c="d"` (RFC 5849 §3.5.1), decoded; none for
/// another scheme.
pub(super) fn authorization(
    head: &RequestHead,
    scheme: &str,
) -> Result<Vec<(String, Vec<u8>)>, Fault> {
    let malformed = || Fault::Malformed(format!("authorization:{scheme}"));
    let mut values = head.fields.get_all(header::AUTHORIZATION).iter();
    let Some(value) = values.next() else {
        return Ok(Vec::new());
    };
    if values.next().is_some() {
        return Err(Fault::Ambiguous("header:authorization".to_owned()));
    }
    let value = value.to_str().map_err(|_| malformed())?;
    let (standing, rest) = value.split_once(' ').unwrap_or((value, ""));
    if !standing.eq_ignore_ascii_case(scheme) {
        return Ok(Vec::new());
    }
    let members = rest.split(',').map(str::trim);
    let members = members.filter(|member| !member.is_empty());
    members
        .map(|member| {
            let (name, value) = member.split_once('=').ok_or_else(malformed)?;
            let value = value
                .strip_prefix('"')
                .and_then(|value| value.strip_suffix('"'))
                .ok_or_else(malformed)?;
            if value.contains(['"', '\\']) {
                return Err(malformed());
            }
            Ok((
                name.to_owned(),
                percent_encoding::percent_decode(value.as_bytes()).collect(),
            ))
        })
        .collect()
}

pub(super) fn is_form(head: &RequestHead) -> bool {
    has_type(head, "application/x-www-form-urlencoded")
}

fn is_json(head: &RequestHead) -> bool {
    has_type(head, "application/json")
}

fn has_type(head: &RequestHead, kind: &str) -> bool {
    let value = head.fields.get(header::CONTENT_TYPE);
    let text = value.and_then(|value| value.to_str().ok());
    let essence = text.and_then(|text| text.split(';').next());
    let essence = essence.unwrap_or_default().trim();
    essence.eq_ignore_ascii_case(kind)
}

fn named(text: &[u8], name: &str) -> Vec<Vec<u8>> {
    pairs(text)
        .filter(|(known, _)| known == name.as_bytes())
        .map(|(_, value)| value)
        .collect()
}

fn edited(text: &[u8], name: &str, value: Option<&[u8]>) -> Vec<u8> {
    let mut written =
        value.map(|value| format!("{}={}", uri(name.as_bytes()), uri(value)).into_bytes());
    let mut kept: Vec<Vec<u8>> = Vec::new();
    for pair in text
        .split(|byte| *byte == b'&')
        .filter(|pair| !pair.is_empty())
    {
        let known = pair.split(|byte| *byte == b'=').next().unwrap_or_default();
        if decoded(known) == name.as_bytes() {
            kept.extend(written.take());
        } else {
            kept.push(pair.to_vec());
        }
    }
    kept.extend(written);
    kept.join(&b'&')
}

/// Only the edited parameter changes: every other byte of the target is what was judged, and what
/// is signed.
fn set_query(head: &mut RequestHead, query: &[u8]) -> Result<(), Fault> {
    let query = std::str::from_utf8(query).map_err(|_| Fault::Target)?;
    head.target = head.target.with_query(query).map_err(|_| Fault::Target)?;
    Ok(())
}

fn set_content(head: &mut RequestHead, content: &mut Option<Bytes>, text: Vec<u8>) {
    if head.fields.contains_key(header::CONTENT_LENGTH) {
        head.fields
            .insert(header::CONTENT_LENGTH, HeaderValue::from(text.len()));
    }
    *content = Some(text.into());
}

fn set_authorization(
    head: &mut RequestHead,
    scheme: &str,
    parameters: &[(String, Vec<u8>)],
) -> Result<(), Fault> {
    if parameters.is_empty() {
        head.fields.remove(header::AUTHORIZATION);
        return Ok(());
    }
    let written: Vec<String> = parameters
        .iter()
        .map(|(name, value)| format!("{name}=\"{}\"", uri(value)))
        .collect();
    let value = HeaderValue::from_str(&format!("{scheme} {}", written.join(", ")));
    let mut value = value.map_err(|_| Fault::Malformed(format!("authorization:{scheme}")))?;
    value.set_sensitive(true);
    head.fields.insert(header::AUTHORIZATION, value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_is_replaced_in_its_place_or_added_at_the_end() {
        assert_eq!(
            edited(b"a=1&t=2&b=%2b", "t", Some(b"9+")),
            b"a=1&t=9%2B&b=%2b"
        );
        assert_eq!(edited(b"a=1", "t", Some(b"9")), b"a=1&t=9");
        assert_eq!(edited(b"", "t", Some(b"9")), b"t=9");
        assert_eq!(
            edited(b"t=1&a=1&%74=2", "t", None),
            b"a=1",
            "an escaped name is the same name"
        );
    }

    #[test]
    fn a_slot_reads_back_what_it_writes() {
        for text in [
            "header:x-a",
            "query:a",
            "form:a:b",
            "json:nonce",
            "authorization:OAuth:oauth_nonce",
        ] {
            assert_eq!(Slot::parse(text).unwrap().to_string(), text);
        }
        for text in [
            "",
            "header",
            "header:host",
            "header:content-length",
            "cookie:a",
            "authorization:OAuth",
        ] {
            assert!(Slot::parse(text).is_none(), "{text}");
        }
    }
}
