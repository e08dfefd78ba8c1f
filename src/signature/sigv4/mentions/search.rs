//! Searches literal texts for mentions, and keeps the first finding.

use super::data::Data;
use super::text;

/// Content that may name somebody in a way that we cannot parse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is in a form in which the accounts and buckets that it names cannot be found")]
pub struct Unreadable;

/// The accounts and buckets that a request may name.
#[derive(Clone, Copy)]
pub(crate) struct AllowedMentions<'a> {
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
pub(crate) enum Mention {
    /// An account, or a number that may be one.
    Account(String),
    /// A canonical user id or an e-mail address.
    Grantee,
    /// A bucket.
    Bucket(String),
    /// Everybody, or every user of a public identity provider.
    Everybody,
}

/// Searches texts, and keeps the first finding.
pub(super) struct Search<'a> {
    allowed: AllowedMentions<'a>,
    pub(super) data: Data,
    /// How deeply the current encoding is nested.
    pub(super) depth: usize,
    /// How many bytes may still be searched: nested encodings each contain the text again, and
    /// branch.
    pub(super) left: usize,
    found: Option<Mention>,
    /// Whether something could not be searched, which refuses the request like a finding.
    pub(super) lost: bool,
}

impl<'a> Search<'a> {
    pub(super) fn new(allowed: AllowedMentions<'a>, data: Data, length: usize) -> Search<'a> {
        Search {
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

    pub(super) fn ended(self) -> Result<Option<Mention>, Unreadable> {
        if self.lost && self.found.is_none() {
            return Err(Unreadable);
        }
        Ok(self.found)
    }

    /// Whether the request is already certain to be refused.
    pub(super) fn is_over(&self) -> bool {
        self.lost || self.found.is_some()
    }

    fn note(&mut self, named: Mention) {
        self.found.get_or_insert(named);
    }

    /// Records that everybody is let in, which an account pin forbids.
    pub(super) fn everybody(&mut self) {
        if self.allowed.accounts.is_some() {
            self.note(Mention::Everybody);
        }
    }

    /// The bucket that receives another one's logs, inventory, copies or restored objects; it may
    /// be an ARN.
    pub(super) fn destination(&mut self, name: &str, value: &str) {
        if let (Some(buckets), None) = (self.allowed.buckets, self.allowed.store)
            && let Some(bucket) = text::bucket_by_name(name, value)
            && !buckets(bucket)
        {
            self.note(Mention::Bucket(bucket.to_owned()));
        }
        let bucket = value.rsplit(":::").next().unwrap_or(value);
        if matches!(name, "Bucket" | "TargetBucket" | "BucketName")
            && !bucket.is_empty()
            && self.allowed.store.is_some_and(|takes| !takes(bucket))
        {
            self.note(Mention::Bucket(bucket.to_owned()));
        }
    }

    /// Searches a value for an account without its leading zeros, if the name announces an account.
    pub(super) fn account_by_name(&mut self, name: &str, value: &str) {
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
    pub(super) fn text(&mut self, text: &str) {
        if let Some(accounts) = self.allowed.accounts {
            let mut named = text::arns(text).filter_map(|arn| text::arn_account(arn));
            let mut numbers = text::numbers(text);
            let strange = |account: &&str| !accounts(account);
            if let Some(account) = named.find(strange).or_else(|| numbers.find(strange)) {
                self.note(Mention::Account(account.to_owned()));
            }
            if let Some(account) = text::hyphenated(text).find(|account| !accounts(account)) {
                self.note(Mention::Account(account));
            }
            if text::is_group_of_all(text) {
                self.note(Mention::Everybody);
            }
            if self.allowed.store.is_some()
                && (text::grantees(text).any(|id| !accounts(id)) || text::holds_address(text))
            {
                self.note(Mention::Grantee);
            }
        }
        if let Some(buckets) = self.allowed.buckets
            && let Some(bucket) = text::buckets(text).find(|bucket| !buckets(bucket))
        {
            self.note(Mention::Bucket(bucket.to_owned()));
        }
    }
}

/// How often a text is searched, across the encodings that contain it: a policy in a template in a
/// form is searched five times.
const MOST_READINGS: usize = 8;
/// Short texts may be searched more often.
const LEAST_LOOKED_AT: usize = 64 << 10;
