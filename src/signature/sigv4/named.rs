//! Whom a request names: accounts, grantees, buckets, and everybody (threat J06).
//!
//! An account pin says whose resources a credential may be used on, and to whom they may be opened.
//! A request says that in many places, and no list of them is complete. So every text is searched:
//! any number of twelve digits may be an account, any ARN names one, wherever it stands, and
//! however deep one form is written inside of another. A number that is no account is refused all
//! the same. Only [`data`] is not searched: what a service keeps or passes on without reading it.

pub(super) mod data;
mod json;
mod text;
pub(super) mod xml;

use http::HeaderMap;
use percent_encoding::percent_decode_str;

pub(super) use data::Data;
pub(super) use text::arn_account;

use crate::message::RequestTarget;

/// A request that says whom it names only to who can read it, and we cannot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is in a form in which the accounts and buckets that it names cannot be found")]
pub struct Unreadable;

/// Whom a request may name.
#[derive(Clone, Copy)]
pub(super) struct Allowed<'a> {
    /// Accounts of twelve digits, and canonical user ids; `None` is all.
    pub accounts: Option<&'a dyn Fn(&str) -> bool>,
    /// Buckets; `None` is all.
    pub buckets: Option<&'a dyn Fn(&str) -> bool>,
    /// Of a request to an object store, to which canonical user ids and e-mail addresses are
    /// grantees: the buckets to which what is in its bucket may go.
    pub store: Option<&'a dyn Fn(&str) -> bool>,
}

/// What was named and is not allowed.
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

/// How content is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// As its content type says; `forms` says that the service takes forms.
    Typed { forms: bool },
    /// XML, whatever its type is called.
    Xml,
    /// JSON, whatever its type is called.
    Json,
}

/// The first in path or query; without data it is an object store, whose paths are keys.
///
/// # Errors
/// [`Unreadable`] where one form stands inside of another more often than is looked through.
pub(super) fn in_target(
    target: &RequestTarget,
    data: Option<Data>,
    allowed: Allowed<'_>,
) -> Result<Option<Named>, Unreadable> {
    let length = target.path().len() + target.query().map_or(0, str::len);
    let mut watch = Watch::new(allowed, data.unwrap_or(Data::Nothing), length);
    if data == Some(Data::Whole) {
        // Its content is what is passed on; where it goes is searched.
        watch.data = Data::Nothing;
    }
    for segment in target.segments().filter(|_| data.is_some()) {
        watch.value("", &percent_decode_str(segment).decode_utf8_lossy());
    }
    for (name, value) in target.query_pairs() {
        // Of a store's parameters only those that stand for fields are no keys.
        if data.is_some() || is_plain(&name.to_ascii_lowercase()) {
            watch.inner(&name);
            watch.value(&name, &value);
        }
    }
    watch.ended()
}

/// The first in AWS's own fields. What a client keeps with an object says nothing to S3.
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

/// The first in content, but for what is data in it.
///
/// # Errors
/// [`Unreadable`] for content of a type, or in a state, that cannot be looked through.
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
    // The type is the client's word, and a service may take JSON whatever it is called: what is
    // read must be of the type.
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

/// Looks at texts, and keeps the first that it finds.
pub(super) struct Watch<'a> {
    allowed: Allowed<'a>,
    data: Data,
    /// How deep one form stands inside of another.
    depth: usize,
    /// How many bytes may still be looked at: the forms in a form each hold the text again, and
    /// branch.
    left: usize,
    found: Option<Named>,
    /// Whether something could not be looked at, which refuses the request as what is found does.
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

    /// Whether it is refused whatever else it says.
    fn is_over(&self) -> bool {
        self.lost || self.found.is_some()
    }

    fn note(&mut self, named: Named) {
        self.found.get_or_insert(named);
    }

    /// Says that everybody is let in, which an account pin forbids.
    fn everybody(&mut self) {
        if self.allowed.accounts.is_some() {
            self.note(Named::Everybody);
        }
    }

    /// A value under a name, decoded once: what it says as it stands, and what is written inside of
    /// it.
    fn value(&mut self, name: &str, value: &str) {
        // One name stands over many values, and a longer one is none that says anything.
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

    /// The bucket that gets another one's logs, inventory, copies or restored objects; it may be
    /// written as an ARN.
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

    /// A text, and what is written inside of it: JSON in a string, escapes in a form's value.
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
            // A service may be more lenient with it than we are.
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

    /// Where the name says that an account follows, a number of fewer digits has lost its zeros.
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

    /// A text as it stands.
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

/// Whether a field, or a parameter in its place, is AWS's own and holds no key of an object and no
/// part of the signature.
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

/// No client writes a form in a form in a form more often.
const DEEPEST: usize = 6;
/// How often a text is looked at, in the forms in which it stands: a policy of a template in a form
/// is looked at five times.
const MOST_READINGS: usize = 8;
/// Short texts may stand in more.
const LEAST_LOOKED_AT: usize = 64 << 10;
/// Those of forms have the names above them in front.
const LONGEST_NAME: usize = 256;

#[cfg(test)]
#[path = "named/tests.rs"]
mod tests;
