//! Reads from its content what a request does, at endpoints whose protocol is known.
//!
//! A request that two origins could read differently is not read at all.

mod document;
mod git;
mod graphql;
mod mcp;
mod model;
mod model_call;
mod parsed_request;

use std::str::FromStr;

use http::{HeaderMap, Method};

use gateway_message::Pointer;

use crate::fact::{FactType, Location, Parts};
use crate::{Limit, Questions, digest};
use document::is_plain;

pub use git::Push;
pub use mcp::Call;
pub use model_call::ModelCall;
pub use parsed_request::{FactResults, ParsedRequest, Unread};

gateway_names::words! {
    /// A protocol whose requests are read.
    pub enum Protocol {
        /// Pushes by git.
        Git = "git",
        /// GraphQL over HTTP.
        Graphql = "graphql",
        /// The Model Context Protocol over Streamable HTTP.
        Mcp = "mcp",
        /// Requests to models.
        Model = "model",
    }
}

/// The beginning of content, followed as it arrives until it is enough for the reader.
pub struct Prefix(PrefixState);

enum PrefixState {
    Git(git::PushPrefix),
    /// A multipart form that all readers split alike so far, and how many bytes are still needed.
    Parts(Option<Parts>, usize),
}

impl Prefix {
    /// Follows a multipart form until a file streams. Reads the fields before it, and all after a
    /// short file. `None` if the whole form is read, of at most `limit`.
    pub fn of_parts(fields: &HeaderMap, limit: Limit) -> Option<Self> {
        let limit = usize::try_from(limit.as_bytes() / 2).unwrap_or(usize::MAX);
        let parts = Parts::of(fields).filter(|_| is_plain(fields) && !digest::is_stated(fields));
        let follow = |parts| Self(PrefixState::Parts(Some(parts), limit.min(MOST_AHEAD)));
        parts.map(follow)
    }

    /// Takes more of the content. Returns whether the beginning is enough.
    pub fn take(&mut self, piece: &[u8]) -> bool {
        match &mut self.0 {
            PrefixState::Git(beginning) => beginning.take(piece),
            PrefixState::Parts(parts, left) => {
                parts.take_if(|parts| parts.push(piece).is_err());
                *left = left.saturating_sub(piece.len());
                *left == 0 && parts.as_ref().is_some_and(Parts::is_in_file)
            }
        }
    }
}

/// How many bytes of a multipart form are read before a file streams.
const MOST_AHEAD: usize = 1 << 20;

/// A text that does not name a [`Protocol`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a protocol is {}", Protocol::listed())]
pub struct ProtocolUnknown(());

impl Protocol {
    /// The facts of the protocol.
    pub fn facts(self) -> &'static [&'static str] {
        match self {
            Self::Git => &git::FACTS,
            Self::Graphql => &graphql::FACTS,
            Self::Mcp => &mcp::FACTS,
            Self::Model => &model::FACTS,
        }
    }

    /// Asks for the protocol's facts.
    pub fn ask(self, questions: &mut Questions<'_>) {
        let wanted = questions.json();
        match self {
            Self::Git => {}
            Self::Graphql => graphql::SHAPE.want(wanted),
            Self::Mcp => mcp::SHAPE.want(wanted),
            Self::Model => model::want(wanted),
        }
    }

    /// Asks for a fact among the arguments of a tool.
    pub fn ask_argument(pointer: &Pointer, kind: FactType, questions: &mut Questions<'_>) {
        let below = pointer.below(mcp::ARGUMENTS.map(String::from).into_iter());
        questions.json().each();
        questions.fact(&Location::Json(below), kind);
    }

    /// Reads what a request does.
    pub fn read(self, asked: &ParsedRequest<'_>) -> FactResults {
        let found = match self {
            _ if asked.upgrades => Err("what follows in another protocol is not read"),
            Self::Git => git::read(asked),
            Self::Graphql => graphql::read(asked),
            Self::Mcp => mcp::read(asked),
            Self::Model => model::read(asked),
        };
        let none = |why| self.facts().iter().map(|name| (*name, Err(why))).collect();
        found.unwrap_or_else(none)
    }

    /// The members that lead to the arguments of a tool in the content of a request. `None` unless
    /// the request calls the tool exactly once.
    pub fn arguments(self, asked: &ParsedRequest<'_>, tool: &str) -> Option<Vec<String>> {
        let is_read = self == Self::Mcp && !asked.upgrades;
        is_read.then(|| mcp::arguments(asked, tool)).flatten()
    }

    /// Follows the beginning of a request's content, if nothing after it is read. `None` if the
    /// whole is read.
    pub fn prefix(self, method: &Method, path: &str, fields: &HeaderMap) -> Option<Prefix> {
        let is_push = self == Self::Git && git::is_push(method, path, fields);
        (is_push && is_plain(fields)).then(|| Prefix(PrefixState::Git(git::PushPrefix::default())))
    }

    fn listed() -> String {
        Self::ALL.map(|one| format!("`{one}`")).join(", ")
    }
}

impl FromStr for Protocol {
    type Err = ProtocolUnknown;

    fn from_str(text: &str) -> Result<Self, ProtocolUnknown> {
        Self::named(text).ok_or(ProtocolUnknown(()))
    }
}

#[cfg(test)]
mod tests {
    use http::header::CONTENT_TYPE;
    use http::{HeaderMap, HeaderValue, Method};

    use super::*;
    use crate::Document;
    use crate::fact::{FactValue, PlainContent};

    /// The facts that a request with this JSON gives, joined, or why it does not give one of them.
    pub(super) fn ask(
        protocol: Protocol,
        method: &Method,
        target: &str,
        content: &str,
    ) -> Result<String, Unread> {
        asked(protocol, method, target, "application/json", content)
    }

    /// As [`ask`], with another content type.
    pub(super) fn asked(
        protocol: Protocol,
        method: &Method,
        target: &str,
        kind: &str,
        content: &str,
    ) -> Result<String, Unread> {
        let each = each(protocol, method, target, kind, content);
        Ok(each.into_iter().collect::<Result<Vec<_>, _>>()?.join("; "))
    }

    /// Each of the facts.
    pub(super) fn each(
        protocol: Protocol,
        method: &Method,
        target: &str,
        kind: &str,
        content: &str,
    ) -> Vec<Result<String, Unread>> {
        let kind = HeaderValue::from_str(kind).unwrap();
        let fields = HeaderMap::from_iter([(CONTENT_TYPE, kind)]);
        let content = PlainContent {
            bytes: content.to_owned().into(),
            ..PlainContent::default()
        };
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut questions = Questions::default();
        protocol.ask(&mut questions);
        let found = protocol.read(&ParsedRequest {
            host: "api.openai.com",
            method,
            path,
            upgrades: false,
            content: &Document::read(&fields, query, &content, &questions),
        });
        let names: Vec<_> = found.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, protocol.facts());
        let texts = found.into_iter().map(|(_, value)| match value {
            Ok(FactValue::Strings(names)) => Ok(names.join(", ")),
            Ok(FactValue::String(text)) => Ok(text),
            Ok(FactValue::Long(number)) => Ok(number.to_string()),
            Ok(FactValue::Bool(flag)) => Ok(flag.to_string()),
            Err(why) => Err(why),
        });
        texts.collect()
    }
}
