//! A request to read, and the result of reading it.

use std::collections::BTreeSet;

use http::Method;

use crate::Document;
use crate::fact::FactValue;

/// A request to read.
#[derive(Clone, Copy)]
pub struct ParsedRequest<'a> {
    /// The host that it is for: services of one protocol differ.
    pub host: &'a str,
    /// Its method.
    pub method: &'a Method,
    /// Its canonical path.
    pub path: &'a str,
    /// Whether it changes to another protocol, whose messages are not read.
    pub upgrades: bool,
    /// Its content, which was read for the protocol's facts.
    pub content: &'a Document<'a>,
}

/// The result of reading a request: the name of each fact, and its value or why there is none.
pub type FactResults = Vec<(&'static str, Result<FactValue, Unread>)>;

/// Why a fact was not read, in words that hold no value of the request.
pub type Unread = &'static str;

/// A set of names, as a value.
pub(super) fn names(all: BTreeSet<String>) -> Result<FactValue, Unread> {
    match all.len() {
        0..=MOST_NAMES => Ok(FactValue::Strings(all.into_iter().collect())),
        _ => Err("it has too many names"),
    }
}

/// The most names in one fact.
pub(super) const MOST_NAMES: usize = 1_024;
