//! Finds whom a request mentions: accounts, grantees, buckets, and everybody (threat J06).
//!
//! An account pin says on whose resources a credential may be used, and to whom they may be opened.
//! A request can say that in many places, and no list of them is complete. So every text is
//! searched: any number of twelve digits may be an account, and any ARN names one, wherever it is
//! and however deeply one encoding is nested in another. A number that is not an account is refused
//! all the same. Only [`data`] is not searched: content that a service stores or passes on without
//! reading it.

pub(super) mod data;
mod nested;
mod search;
mod text;
pub(super) mod xml;

use http::HeaderMap;
use percent_encoding::percent_decode_str;

pub(super) use data::Data;
use nested::search_json;
use search::Search;
pub use search::Unreadable;
pub(super) use search::{AllowedMentions, Mention};
pub(super) use text::arn_account;
use xml::search_xml;

use super::tables::is_listed;
use gateway_message::RequestTarget;
use gateway_message::pairs::form_text;

/// The format of content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// As its content type says; `forms` means that the service accepts forms.
    Typed { forms: bool },
    /// XML, under any content type.
    Xml,
    /// JSON, under any content type.
    Json,
}

/// The first mention in path or query. Without `data`, it is an object store, whose paths are keys.
///
/// # Errors
/// [`Unreadable`] if encodings are nested more deeply than is searched.
pub(super) fn in_target(
    target: &RequestTarget,
    data: Option<Data>,
    allowed: AllowedMentions<'_>,
) -> Result<Option<Mention>, Unreadable> {
    let length = target.path().len() + target.query().map_or(0, str::len);
    let mut search = Search::new(allowed, data.unwrap_or(Data::Nothing), length);
    if data == Some(Data::Whole) {
        // The content is passed on unread; its destination is searched.
        search.data = Data::Nothing;
    }
    for segment in target.segments().filter(|_| data.is_some()) {
        search.value("", &percent_decode_str(segment).decode_utf8_lossy());
    }
    for (name, value) in target.query_pairs() {
        // Of a store's parameters, only those that replace fields are not keys.
        if data.is_some() || is_plain(&name.to_ascii_lowercase()) {
            search.inner(&name);
            search.value(&name, &value);
        }
    }
    search.ended()
}

/// The first mention in AWS's own fields. A client's metadata of an object means nothing to S3.
///
/// # Errors
/// As [`in_target`].
pub(super) fn in_fields(
    fields: &HeaderMap,
    allowed: AllowedMentions<'_>,
) -> Result<Option<Mention>, Unreadable> {
    let length = fields.values().map(http::HeaderValue::len).sum();
    let mut search = Search::new(allowed, Data::Nothing, length);
    for (name, value) in fields.iter().filter(|(name, _)| is_plain(name.as_str())) {
        search.value(name.as_str(), &String::from_utf8_lossy(value.as_bytes()));
    }
    search.ended()
}

/// The first mention in content, except in the part that is data.
///
/// # Errors
/// [`Unreadable`] for content of a type, or in a state, that cannot be searched.
pub(super) fn in_content(
    kind: Option<&str>,
    content: &[u8],
    (format, data): (Format, Data),
    allowed: AllowedMentions<'_>,
) -> Result<Option<Mention>, Unreadable> {
    let kind = kind
        .unwrap_or("")
        .split(';')
        .next()
        .unwrap_or("")
        .trim_end();
    if content.is_empty() || data == Data::Whole {
        return Ok(None);
    }
    let mut search = Search::new(allowed, data, content.len());
    let content = std::str::from_utf8(content).map_err(|_| Unreadable)?;
    match format {
        Format::Xml => search_xml(content, &mut search)?,
        Format::Json => search_json(content, &mut search)?,
        Format::Typed { forms } => search_typed(kind, forms, content, &mut search)?,
    }
    search.ended()
}

/// Searches content by its type. The client chooses the type, and a service may accept JSON under
/// any type, so content must be what its type says.
fn search_typed(
    kind: &str,
    forms: bool,
    content: &str,
    search: &mut Search<'_>,
) -> Result<(), Unreadable> {
    match kind {
        "application/x-www-form-urlencoded" if forms => {
            for pair in content.split('&') {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                let name = form_text(name);
                search.inner(&name);
                search.value(&name, &form_text(value));
            }
            Ok(())
        }
        "application/json" => search_json(content, search),
        _ if kind.starts_with("application/x-amz-json-") => search_json(content, search),
        "application/xml" | "text/xml" => search_xml(content, search),
        _ => Err(Unreadable),
    }
}

/// Whether a field, or a parameter in its place, is AWS's own and contains neither an object's key
/// nor a part of the signature.
fn is_plain(name: &str) -> bool {
    name.starts_with("x-amz-")
        && !name.starts_with("x-amz-meta-")
        && !is_listed("keys-and-signatures", name)
}

#[cfg(test)]
#[path = "mentions/tests.rs"]
mod tests;
