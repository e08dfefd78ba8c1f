//! Facts of content: those that the configuration declares, those of protocols, and their values in
//! one request.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use cedar_policy::{Expression, RestrictedExpression};
use gateway_body::fact::{FactType, FactValue, Location, PlainContent};
use gateway_body::read::{ParsedRequest, Prefix, Protocol, Unread};
use gateway_body::{Document, Questions};
use gateway_message::{FormName, Host, Origin, OriginPattern, PathPattern, RequestHead};

use super::value::{text, texts};

/// A declared fact of content: `context.content.NAME`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContentFact {
    /// Its name in policies.
    pub name: FactName,
    /// Its type in policies. A value of another type is not read.
    pub kind: FactType,
    /// The origins for whose requests it is read.
    pub origins: Vec<OriginPattern>,
    /// Where the value is in the content, or in the arguments of the MCP tool.
    pub location: Location,
    /// The MCP tool that has it as an argument, if any.
    pub tool: Option<String>,
}

impl ContentFact {
    /// Returns where the fact is in the content of a request. `None` if its tool is not called
    /// there, or is called several times.
    fn found_in(&self, asked: &ParsedRequest<'_>, spoken: &BTreeSet<Protocol>) -> Option<Location> {
        match (&self.tool, &self.location) {
            (Some(tool), Location::Json(pointer)) => {
                let mut spoken = spoken.iter();
                let members = spoken.find_map(|protocol| protocol.arguments(asked, tool))?;
                Some(Location::Json(pointer.below(members.into_iter())))
            }
            (Some(_), _) => None,
            (None, location) => Some(location.clone()),
        }
    }
}

/// The name of a fact of content: a Cedar identifier.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FactName(String);

/// A text that is not a valid name of a fact.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "a fact's name has letters, digits and `_`, does not begin with a digit, and is no word of Cedar's"
)]
pub struct FactNameMalformed(());

impl FromStr for FactName {
    type Err = FactNameMalformed;

    fn from_str(text: &str) -> Result<Self, FactNameMalformed> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let parses = || {
            format!("context.content.{text}")
                .parse::<Expression>()
                .is_ok()
        };
        if text.len() <= 64 && !text.is_empty() && text.bytes().all(plain) && parses() {
            Ok(Self(text.to_owned()))
        } else {
            Err(FactNameMalformed(()))
        }
    }
}

impl fmt::Display for FactName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Endpoints that speak a protocol, whose facts are read from requests: `context.graphql`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProtocolEndpoint {
    /// The protocol.
    pub protocol: Protocol,
    /// Their origins.
    pub origins: Vec<OriginPattern>,
    /// Their paths. Empty for all paths.
    pub routes: Vec<PathPattern>,
}

/// What policies may name: all facts that are read from content, and budgets.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Declared {
    facts: Vec<ContentFact>,
    endpoints: Vec<ProtocolEndpoint>,
    /// The budgets, each with whether it counts what the content of a request asks for.
    budgets: BTreeMap<Arc<str>, bool>,
}

/// Two declarations that conflict.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FactClash {
    /// One name is declared with two types.
    #[error("`{0}` is declared as `{1}` and as `{2}`")]
    Types(FactName, FactType, FactType),
    /// One name would be read from two places in the same content.
    #[error("`{0}` is declared twice for {1}")]
    Twice(FactName, OriginPattern),
}

impl Declared {
    /// Adds a declaration. A name may be declared several times, for different origins.
    ///
    /// # Errors
    /// `FactClash` with an earlier declaration.
    pub fn add(&mut self, fact: ContentFact) -> Result<(), FactClash> {
        for other in self.facts.iter().filter(|other| other.name == fact.name) {
            if other.kind != fact.kind {
                return Err(FactClash::Types(fact.name, other.kind, fact.kind));
            }
            let overlaps = |origin: &&OriginPattern| {
                let mut others = other.origins.iter();
                others.any(|other| other.overlaps(origin))
            };
            if let Some(origin) = fact.origins.iter().find(overlaps) {
                return Err(FactClash::Twice(fact.name, origin.clone()));
            }
        }
        self.facts.push(fact);
        Ok(())
    }

    /// Adds endpoints.
    pub fn add_endpoint(&mut self, endpoint: ProtocolEndpoint) {
        self.endpoints.push(endpoint);
    }

    /// Adds a budget, and says whether it counts what the content of a request asks for.
    pub fn add_budget(&mut self, name: Arc<str>, counts_content: bool) {
        self.budgets.insert(name, counts_content);
    }

    /// Whether the budget counts what the content of a request asks for.
    pub(super) fn counts_content(&self, budget: &str) -> bool {
        self.budgets.get(budget).is_some_and(|counts| *counts)
    }

    /// Returns the names of the budgets.
    pub(super) fn budgets(&self) -> impl Iterator<Item = &str> {
        self.budgets.keys().map(|name| &**name)
    }

    /// Whether an endpoint at the origins speaks the protocol.
    pub fn speaks(&self, protocol: Protocol, origins: &OriginPattern) -> bool {
        let mut speaking = self.endpoints.iter().filter(|one| one.protocol == protocol);
        speaking.any(|one| one.origins.iter().any(|origin| origin.overlaps(origins)))
    }

    /// Whether any declaration reads the fact from requests to the host.
    pub(super) fn reads(&self, name: &str, host: &Host) -> bool {
        let declared = self.facts.iter().filter(|fact| fact.name.0 == name);
        let speak = |one: &&ProtocolEndpoint| one.protocol.facts().contains(&name);
        let spoken = self.endpoints.iter().filter(speak);
        let mut origins = declared
            .flat_map(|fact| &fact.origins)
            .chain(spoken.flat_map(|one| &one.origins));
        origins.any(|origin| origin.hosts.matches(host))
    }

    /// The names and types of all declared facts.
    pub(super) fn types(&self) -> BTreeMap<&str, FactType> {
        let all = self.facts.iter();
        all.map(|fact| (fact.name.0.as_str(), fact.kind)).collect()
    }

    /// Adds the questions about the content of a request, before the content is read.
    pub(super) fn ask(&self, head: &RequestHead, questions: &mut Questions<'_>) {
        for fact in self.of(&head.origin) {
            match (&fact.tool, &fact.location) {
                (Some(_), Location::Json(pointer)) => {
                    Protocol::ask_argument(pointer, fact.kind, questions)
                }
                (Some(_), _) => {}
                (None, location) => questions.fact(location, fact.kind),
            }
        }
        let spoken = self.spoken(head).into_iter();
        spoken.for_each(|protocol| protocol.ask(questions));
    }

    /// Reads the facts of a request from its decoded content. `upgrades` says whether the request
    /// changes to another protocol.
    pub fn read(&self, head: &RequestHead, upgrades: bool, content: &PlainContent) -> ContentFacts {
        let mut questions = Questions::default();
        self.ask(head, &mut questions);
        let query = head.target.query().unwrap_or_default();
        let document = Document::read(&head.fields, query, content, &questions);
        self.said(head, upgrades, &document)
    }

    /// Returns the facts of a request whose content was read for its questions. A fact that could
    /// be read in more than one way is left out.
    pub(super) fn said(
        &self,
        head: &RequestHead,
        upgrades: bool,
        content: &Document<'_>,
    ) -> ContentFacts {
        let asked = ParsedRequest {
            host: head.origin.authority.host.as_str(),
            method: &head.method,
            path: head.target.path(),
            upgrades,
            content,
        };
        let spoken = self.spoken(head);
        let here = self.of(&head.origin);
        let here = here.filter_map(|fact| Some((fact, fact.found_in(&asked, &spoken)?)));
        let named = here.map(|(fact, at)| (fact, content.fact(&at, fact.kind)));
        let declared = named.filter_map(|(fact, value)| Some((fact.name.clone(), Ok(value?))));
        let said = spoken.iter().flat_map(|protocol| protocol.read(&asked));
        let said = said.map(|(name, value)| (FactName(name.to_owned()), value));
        ContentFacts(declared.chain(said).collect())
    }

    /// Returns how to read the beginning of a request's content, if no fact needs the rest.
    pub(super) fn prefix(&self, head: &RequestHead) -> Option<Prefix> {
        let path = head.target.path();
        // Declared facts are read from forms and JSON, and no request with a prefix has these.
        let mut spoken = self.spoken(head).into_iter();
        match (spoken.next(), spoken.next()) {
            (Some(only), None) => only.prefix(&head.method, path, &head.fields),
            _ => None,
        }
    }

    /// Returns the multipart fields from which facts are read, at an origin.
    pub(super) fn parts(&self, origin: &Origin) -> Vec<FormName> {
        let names = self.of(origin).filter_map(|fact| match &fact.location {
            Location::Multipart(name) => Some(name.clone()),
            _ => None,
        });
        names.collect()
    }

    fn of(&self, origin: &Origin) -> impl Iterator<Item = &ContentFact> {
        let all = self.facts.iter();
        all.filter(move |fact| fact.origins.iter().any(|one| one.matches(origin)))
    }

    /// Returns the protocols that the endpoint of a request speaks.
    fn spoken(&self, head: &RequestHead) -> BTreeSet<Protocol> {
        let path = head.target.path();
        // Hosts first: every preset has endpoints, and a request is for one host.
        let is_here = |one: &&ProtocolEndpoint| {
            let mut origins = one.origins.iter();
            origins.any(|origin| origin.matches(&head.origin))
                && (one.routes.is_empty() || one.routes.iter().any(|route| route.holds(path)))
        };
        let here = self.endpoints.iter().filter(is_here);
        here.map(|one| one.protocol).collect()
    }
}

/// The facts read from one request, and why others were not. The name of a protocol's fact begins
/// with the protocol: `graphql.fields`.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct ContentFacts(BTreeMap<FactName, Result<FactValue, Unread>>);

impl ContentFacts {
    #[cfg(test)]
    pub(super) fn say(&mut self, name: &str, value: FactValue) {
        self.0.insert(FactName(name.to_owned()), Ok(value));
    }

    /// Whether a fact with that name was read.
    pub(super) fn has(&self, name: &str) -> bool {
        self.named(name).is_some_and(Result::is_ok)
    }

    /// Checks that the protocol was spoken, and its first fact read.
    pub(super) fn speaks(&self, protocol: Protocol) -> Result<(), String> {
        let first = protocol.facts().first().and_then(|name| self.named(name));
        match first {
            Some(Ok(_)) => Ok(()),
            Some(Err(why)) => Err(format!("`{protocol}` is not read: {why}")),
            None => Err(format!(
                "`{protocol}` is not read at this address: no `[[read]]` names it"
            )),
        }
    }

    /// Why a fact was not read, if its protocol says so.
    pub(super) fn unread(&self, name: &str) -> Option<Unread> {
        self.named(name)?.as_ref().err().copied()
    }

    /// Returns the value of a protocol's fact, if it was read.
    pub(super) fn value(&self, name: &str) -> Option<RestrictedExpression> {
        self.named(name)?.as_ref().ok().map(value)
    }

    /// Returns the declared facts.
    pub(super) fn values(&self) -> Vec<(String, RestrictedExpression)> {
        let declared = self.0.iter().filter(|(name, _)| !name.0.contains('.'));
        let read = declared.filter_map(|(name, one)| Some((name.0.clone(), one.as_ref().ok()?)));
        read.map(|(name, one)| (name, value(one))).collect()
    }

    /// Returns the facts that were read, each with its value.
    pub(super) fn shown(&self) -> Vec<String> {
        let read = self
            .0
            .iter()
            .filter_map(|(name, one)| Some((name, one.as_ref().ok()?)));
        let shown = read.map(|(name, value)| match value {
            FactValue::Long(number) => format!("{name}: {number}"),
            FactValue::String(text) => format!("{name}: {text}"),
            FactValue::Bool(flag) => format!("{name}: {flag}"),
            FactValue::Strings(all) => format!("{name}: {}", all.join(", ")),
        });
        shown.collect()
    }

    fn named(&self, name: &str) -> Option<&Result<FactValue, Unread>> {
        let mut all = self.0.iter();
        all.find(|(known, _)| known.0 == name).map(|(_, one)| one)
    }
}

fn value(value: &FactValue) -> RestrictedExpression {
    match value {
        FactValue::Long(number) => RestrictedExpression::new_long(*number),
        FactValue::String(one) => text(one),
        FactValue::Bool(flag) => RestrictedExpression::new_bool(*flag),
        FactValue::Strings(all) => texts(all),
    }
}

/// Prints only the names: content must not reach logs.
impl fmt::Debug for ContentFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
