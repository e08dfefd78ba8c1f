//! Finds whom a request names: accounts, grantees, buckets, and everybody (threat J06).
//!
//! An account pin says on whose resources a credential may be used, and to whom they may be opened.
//! A request can say that in many places, and no list of them is complete. So every text is
//! searched: any number of twelve digits may be an account, and any ARN names one, wherever it is
//! and however deeply one encoding is nested in another. A number that is not an account is refused
//! all the same. Only [`data`] is not searched: what a service stores or passes on without reading
//! it.

pub(super) mod data;
mod json;
mod text;
pub(super) mod xml;

use http::HeaderMap;
use percent_encoding::percent_decode_str;

pub(super) use data::Data;
pub(super) use text::arn_account;

use gateway_message::RequestTarget;

/// Content that may name somebody in a way that we cannot parse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is in a form in which the accounts and buckets that it names cannot be found")]
pub struct Unreadable;

/// Whom a request may name.
#[derive(Clone, Copy)]
pub(super) struct Allowed<'a> {
    /// Accounts of twelve digits, and canonical user ids; `None` allows all.
    pub accounts: Option<&'a dyn Fn(&str) -> bool>,
    /// Buckets; `None` allows all.
    pub buckets: Option<&'a dyn Fn(&str) -> bool>,
    /// For a request to an object store, where canonical user ids and e-mail addresses are
    /// grantees: the buckets that may receive the content of its bucket.
    pub store: Option<&'a dyn Fn(&str) -> bool>,
}

/// Something that was named and is not allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Named {
    /// An account, or a number that may be one.
    Account(String),
    /// A canonical user id or an e-mail address.
    Grantee,
    /// A bucket.
    Bucket(String),
    /// Everybody, or whoever signs in somewhere.
    Everybody,
}

/// The format of content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// As its content type says; `forms` means that the service accepts forms.
    Typed { forms: bool },
    /// XML, whatever its type is called.
    Xml,
    /// JSON, whatever its type is called.
    Json,
}

/// The first in path or query; without data it is an object store, whose paths are keys.
///
/// # Errors
/// [`Unreadable`] if encodings are nested more deeply than is searched.
pub(super) fn in_target(
    target: &RequestTarget,
    data: Option<Data>,
    allowed: Allowed<'_>,
) -> Result<Option<Named>, Unreadable> {
    let length = target.path().len() + target.query().map_or(0, str::len);
    let mut watch = Watch::new(allowed, data.unwrap_or(Data::Nothing), length);
    if data == Some(Data::Whole) {
        // The content is passed on unread; its destination is searched.
        watch.data = Data::Nothing;
    }
    for segment in target.segments().filter(|_| data.is_some()) {
        watch.value("", &percent_decode_str(segment).decode_utf8_lossy());
    }
    for (name, value) in target.query_pairs() {
        // Of a store's parameters, only those that replace fields are not keys.
        if data.is_some() || is_plain(&name.to_ascii_lowercase()) {
            watch.inner(&name);
            watch.value(&name, &value);
        }
    }
    watch.ended()
}

/// The first in AWS's own fields. What a client stores with an object means nothing to S3.
///
/// # Errors
/// As [`in_target`].
pub(super) fn in_fields(
    fields: &HeaderMap,
    allowed: Allowed<'_>,
) -> Result<Option<Named>, Unreadable> {
    let length = fields.values().map(http::HeaderValue::len).sum();
    let mut watch = Watch::new(allowed, Data::Nothing, length);
    for (name, value) in fields.iter().filter(|(name, _)| is_plain(name.as_str())) {
        watch.value(name.as_str(), &String::from_utf8_lossy(value.as_bytes()));
    }
    watch.ended()
}

/// The first in content, except in the part that is data.
///
/// # Errors
/// [`Unreadable`] for content of a type, or in a state, that cannot be searched.
pub(super) fn in_content(
    kind: Option<&str>,
    content: &[u8],
    (form, data): (Form, Data),
    allowed: Allowed<'_>,
) -> Result<Option<Named>, Unreadable> {
    let kind = kind
        .unwrap_or("")
        .split(';')
        .next()
        .unwrap_or("")
        .trim_end();
    if content.is_empty() || data == Data::Whole {
        return Ok(None);
    }
    let mut watch = Watch::new(allowed, data, content.len());
    let content = std::str::from_utf8(content).map_err(|_| Unreadable)?;
    // The client chooses the type, and a service may accept JSON under any type, so what is parsed
    // must match the type.
    match form {
        Form::Xml => xml::search(content, &mut watch)?,
        Form::Json => json::search(content, &mut watch)?,
        Form::Typed { forms } if kind == "application/x-www-form-urlencoded" && forms => {
            for pair in content.split('&') {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                let name = decoded(name);
                watch.inner(&name);
                watch.value(&name, &decoded(value));
            }
        }
        Form::Typed { .. }
            if kind == "application/json" || kind.starts_with("application/x-amz-json-") =>
        {
            json::search(content, &mut watch)?;
        }
        Form::Typed { .. } if matches!(kind, "application/xml" | "text/xml") => {
            xml::search(content, &mut watch)?;
        }
        Form::Typed { .. } => return Err(Unreadable),
    }
    watch.ended()
}

/// Searches texts, and keeps the first finding.
pub(super) struct Watch<'a> {
    allowed: Allowed<'a>,
    data: Data,
    /// How deeply the current encoding is nested.
    depth: usize,
    /// How many bytes may still be searched: nested encodings each contain the text again, and
    /// branch.
    left: usize,
    found: Option<Named>,
    /// Whether something could not be searched, which refuses the request like a finding.
    lost: bool,
}

impl<'a> Watch<'a> {
    fn new(allowed: Allowed<'a>, data: Data, length: usize) -> Watch<'a> {
        Watch {
            allowed,
            data,
            depth: 0,
            left: length
                .saturating_mul(MOST_READINGS)
                .saturating_add(LEAST_LOOKED_AT),
            found: None,
            lost: false,
        }
    }

    fn ended(self) -> Result<Option<Named>, Unreadable> {
        if self.lost && self.found.is_none() {
            return Err(Unreadable);
        }
        Ok(self.found)
    }

    /// Whether the request is refused whatever else it says.
    fn is_over(&self) -> bool {
        self.lost || self.found.is_some()
    }

    fn note(&mut self, named: Named) {
        self.found.get_or_insert(named);
    }

    /// Records that everybody is let in, which an account pin forbids.
    fn everybody(&mut self) {
        if self.allowed.accounts.is_some() {
            self.note(Named::Everybody);
        }
    }

    /// Searches a named value, decoded once: its literal text, and what is encoded in it.
    fn value(&mut self, name: &str, value: &str) {
        // A name covers many values, and a longer one has no meaning to a service.
        let name = if name.len() > LONGEST_NAME { "" } else { name };
        if self.is_over() || self.data.holds(name) {
            return;
        }
        if text::lets_everybody_in(name, value) {
            self.everybody();
        }
        self.account_by_name(name, value);
        self.destination(name, value.trim());
        self.inner(value);
    }

    /// The bucket that receives another one's logs, inventory, copies or restored objects; it may
    /// be an ARN.
    fn destination(&mut self, name: &str, value: &str) {
        if let (Some(buckets), None) = (self.allowed.buckets, self.allowed.store)
            && let Some(bucket) = text::bucket_by_name(name, value)
            && !buckets(bucket)
        {
            self.note(Named::Bucket(bucket.to_owned()));
        }
        let bucket = value.rsplit(":::").next().unwrap_or(value);
        if matches!(name, "Bucket" | "TargetBucket" | "BucketName")
            && !bucket.is_empty()
            && self.allowed.store.is_some_and(|takes| !takes(bucket))
        {
            self.note(Named::Bucket(bucket.to_owned()));
        }
    }

    /// Searches a text, and what is encoded in it: JSON in a string, escapes in a form's value.
    fn inner(&mut self, value: &str) {
        if self.is_over() {
            return;
        }
        let Some(left) = self.left.checked_sub(value.len()) else {
            self.lost = true;
            return;
        };
        self.left = left;
        self.text(value);
        let nested = value.trim_start().starts_with(['{', '[', '"']);
        let escaped = value.contains('%') || value.contains("\\u") || value.contains("&#");
        if !nested && !escaped {
            return;
        }
        if self.depth == DEEPEST {
            self.lost = true;
            return;
        }
        self.depth += 1;
        if nested && json::search(value, self).is_err() && text::speaks_of_principals(value) {
            // A service may parse it more leniently than we do.
            self.lost = true;
        }
        if escaped {
            let plain = text::unescaped(value);
            if plain != value {
                self.inner(&plain);
            }
        }
        self.depth -= 1;
    }

    /// If the name says that an account follows, a number of fewer digits has lost its leading
    /// zeros.
    fn account_by_name(&mut self, name: &str, value: &str) {
        let value = value.trim();
        let digits = !value.is_empty()
            && value.len() < 12
            && value.bytes().all(|byte| byte.is_ascii_digit());
        let name = name.to_ascii_lowercase();
        let mut says = ["account", "registryid", "catalogid", "owner"].iter();
        if digits && says.any(|part| name.contains(part)) {
            self.text(&format!("{value:0>12}"));
        }
    }

    /// Searches a literal text.
    fn text(&mut self, text: &str) {
        if let Some(accounts) = self.allowed.accounts {
            let mut named = text::arns(text).filter_map(|arn| arn_account(arn));
            let mut numbers = text::numbers(text);
            let strange = |account: &&str| !accounts(account);
            if let Some(account) = named.find(strange).or_else(|| numbers.find(strange)) {
                self.note(Named::Account(account.to_owned()));
            }
            if let Some(account) = text::hyphenated(text).find(|account| !accounts(account)) {
                self.note(Named::Account(account));
            }
            if text::is_group_of_all(text) {
                self.note(Named::Everybody);
            }
            if self.allowed.store.is_some()
                && (text::grantees(text).any(|id| !accounts(id)) || text::holds_address(text))
            {
                self.note(Named::Grantee);
            }
        }
        if let Some(buckets) = self.allowed.buckets
            && let Some(bucket) = text::buckets(text).find(|bucket| !buckets(bucket))
        {
            self.note(Named::Bucket(bucket.to_owned()));
        }
    }
}

/// Whether a field, or a parameter in its place, is AWS's own and contains neither an object's key
/// nor a part of the signature.
fn is_plain(name: &str) -> bool {
    name.starts_with("x-amz-")
        && !name.starts_with("x-amz-meta-")
        && !matches!(
            name,
            "x-amz-copy-source"
                | "x-amz-rename-source"
                | "x-amz-content-sha256"
                | "x-amz-security-token"
                | "x-amz-s3session-token"
                | "x-amz-credential"
                | "x-amz-signature"
        )
}

fn decoded(text: &str) -> String {
    let spaced = text.replace('+', " ");
    percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
}

/// No client nests forms more deeply.
const DEEPEST: usize = 6;
/// How often a text is searched, across the encodings that contain it: a policy in a template in a
/// form is searched five times.
const MOST_READINGS: usize = 8;
/// Short texts may appear in more.
const LEAST_LOOKED_AT: usize = 64 << 10;
/// Names of form members are prefixed with the names above them.
const LONGEST_NAME: usize = 256;

#[cfg(test)]
#[path = "named/tests.rs"]
mod tests;
