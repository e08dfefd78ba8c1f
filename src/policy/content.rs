//! Facts of content: what the configuration declares, and what was read from one request.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use cedar_policy::{Expression, RestrictedExpression};
use http::HeaderMap;

use super::value::{text, texts};
use crate::body::fact::{FactType, FactValue, Location, Plain, read};
use crate::message::{Host, Origin, OriginPattern};

/// A declared fact of content: `context.content.NAME`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContentFact {
    /// Its name in policies.
    pub name: FactName,
    /// Its type in policies. A value of another type is not read.
    pub kind: FactType,
    /// The origins for which it is read from requests.
    pub origins: Vec<OriginPattern>,
    /// Where the value is in the content.
    pub location: Location,
}

/// The name of a fact of content: a Cedar identifier.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FactName(String);

/// A text that cannot be the name of a fact.
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

/// Every declared fact.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Declared(Vec<ContentFact>);

/// Two declarations that conflict.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Clash {
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
    /// `Clash` with an earlier declaration.
    pub fn add(&mut self, fact: ContentFact) -> Result<(), Clash> {
        for other in self.0.iter().filter(|other| other.name == fact.name) {
            if other.kind != fact.kind {
                return Err(Clash::Types(fact.name, other.kind, fact.kind));
            }
            let overlaps = |origin: &&OriginPattern| {
                let mut others = other.origins.iter();
                others.any(|other| other.overlaps(origin))
            };
            if let Some(origin) = fact.origins.iter().find(overlaps) {
                return Err(Clash::Twice(fact.name, origin.clone()));
            }
        }
        self.0.push(fact);
        Ok(())
    }

    /// Whether any declaration reads the fact from requests to the host.
    pub(super) fn reads(&self, name: &str, host: &Host) -> bool {
        let mut named = self.0.iter().filter(|fact| fact.name.0 == name);
        named.any(|fact| fact.origins.iter().any(|origin| origin.hosts.matches(host)))
    }

    /// The names and types of all facts.
    pub(super) fn types(&self) -> BTreeMap<&str, FactType> {
        let all = self.0.iter();
        all.map(|fact| (fact.name.0.as_str(), fact.kind)).collect()
    }

    /// Reads the facts declared for an origin from the content of a request. A fact that could be
    /// read in more than one way is left out.
    pub fn read(
        &self,
        origin: &Origin,
        fields: &HeaderMap,
        query: &str,
        content: &Plain,
    ) -> ContentFacts {
        let here: Vec<&ContentFact> = self.of(origin).collect();
        if here.is_empty() {
            return ContentFacts::default();
        }
        let wanted: Vec<_> = here
            .iter()
            .map(|fact| (&fact.location, fact.kind))
            .collect();
        let values = read(fields, query, content, &wanted);
        let named = here.iter().zip(values);
        ContentFacts(
            named
                .filter_map(|(fact, value)| Some((fact.name.clone(), value?)))
                .collect(),
        )
    }

    fn of(&self, origin: &Origin) -> impl Iterator<Item = &ContentFact> {
        let all = self.0.iter();
        all.filter(move |fact| fact.origins.iter().any(|one| one.matches(origin)))
    }
}

/// The facts read from the content of one request. Empty if the request has no content.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct ContentFacts(BTreeMap<FactName, FactValue>);

impl ContentFacts {
    /// Whether a fact with that name was read.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.keys().any(|known| known.0 == name)
    }

    /// The facts as Cedar values.
    pub(super) fn values(&self) -> Vec<(String, RestrictedExpression)> {
        let value = |value: &FactValue| match value {
            FactValue::Long(number) => RestrictedExpression::new_long(*number),
            FactValue::String(one) => text(one),
            FactValue::Bool(flag) => RestrictedExpression::new_bool(*flag),
            FactValue::Strings(all) => texts(all),
        };
        let all = self.0.iter();
        all.map(|(name, one)| (name.0.clone(), value(one)))
            .collect()
    }
}

/// Prints only the names: content must not reach logs.
impl fmt::Debug for ContentFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
