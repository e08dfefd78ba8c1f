//! Recipes: how a service wants its requests signed, as data, and the engine that verifies and
//! signs by them.
//!
//! A recipe names its *parts* (key id, secret, passphrase), its *values* (time, nonce, list of
//! signed fields), the *steps* from them to a key and a text, the algorithm, and the *places* for
//! parts, values and signature. A place is a template that is written when we sign and parsed when
//! a client has signed, so one description serves both directions.
//!
//! `docs/signing-recipes.md` is the reference; `policies/signers` has the presets.

#![cfg_attr(not(test), deny(clippy::unwrap_used))]
#![forbid(unsafe_code)]

mod algorithm;
mod canonical;
mod check;
mod claim;
mod components;
mod fault;
mod filter;
mod json;
mod key;
mod keytext;
mod load;
mod moment;
mod place;
mod preset;
mod rsa;
mod scene;
mod sign;
mod template;
#[cfg(test)]
mod tests;
mod verify;

pub use algorithm::{Algorithm, MacName};
pub use claim::Claim;
pub use fault::Fault;
pub use key::{KeyFault, KeyForm};
pub use load::Mistake;
pub use moment::{Nonce, NonceKind};
pub use preset::{preset, presets};
pub use sign::Signed;
pub use verify::Verified;

use canonical::Selection;
use components::Components;
use gateway_message::OriginPattern;
use moment::{Form, NonceForm};
use place::Slot;
use template::{Name, Template, Term};

/// A checked description of how one service's requests are signed.
#[derive(Debug, Clone)]
pub struct Recipe {
    name: String,
    title: String,
    source: String,
    hosts: Vec<OriginPattern>,
    parts: Vec<Part>,
    values: Vec<Value>,
    steps: Vec<(String, Template)>,
    algorithm: Algorithm,
    key: Template,
    text: Template,
    places: Vec<Placement>,
    strip: Vec<Slot>,
    beside: Vec<String>,
    unsigned: bool,
    whole: bool,
}

/// One of the texts of a credential of this kind.
#[derive(Debug, Clone)]
pub struct Part {
    /// Its name in the recipe and in configuration.
    pub name: String,
    /// How it is used.
    pub role: Role,
    /// Whether a credential may lack it, such as a session token.
    pub optional: bool,
    /// The shape in which the service issues it, where it is known.
    pub shape: Option<String>,
    /// The variables from which clients read it.
    pub variables: Vec<String>,
    /// The algorithm whose private key it is, if it is one; its phantom is a key too, see
    /// [`KeyForm`].
    pub key_of: Option<Algorithm>,
    read: Option<Template>,
}

/// How a part is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Sent; identifies the credential: a key's id.
    Id,
    /// Sent beside the signature: a passphrase, a session token.
    Sent,
    /// Signs, and is never sent.
    Secret,
}

#[derive(Debug, Clone)]
struct Value {
    name: String,
    kind: ValueKind,
    /// How to parse it from another value that contains it.
    read: Option<Template>,
}

/// Where a value comes from when we sign; when a client has signed, it is parsed from its place.
#[derive(Debug, Clone)]
enum ValueKind {
    /// The gateway's clock, set back by this many seconds for services that accept no time ahead of
    /// their own.
    Time {
        form: Form,
        back: u32,
    },
    /// The client's expiry, but at most this many seconds from now.
    Expiry {
        form: Form,
        longest: u32,
    },
    Nonce(NonceForm),
    /// The fields that the client signed and those that must be signed.
    Fields {
        wanted: Selection,
        separator: String,
    },
    /// All parameters of the query.
    Parameters {
        lower: bool,
    },
    /// The client's own: one of these, or, if there are none, a word that may also contain these
    /// characters.
    Kept {
        among: Vec<String>,
        letters: String,
    },
    /// Computed from the request.
    Made(Template),
    /// What a signature of RFC 9421 covers, with its parameters.
    Components(Components),
}

impl ValueKind {
    /// Whether it is new in each signature and needs nothing from the client.
    fn is_new(&self) -> bool {
        matches!(
            self,
            ValueKind::Time { .. } | ValueKind::Expiry { .. } | ValueKind::Nonce(_)
        )
    }
}

#[derive(Debug, Clone)]
struct Placement {
    /// Alternatives; a client uses one.
    slots: Vec<Slot>,
    /// Alternatives, too.
    templates: Vec<Template>,
    optional: bool,
    /// Whether it can be parsed; otherwise its value follows from the request.
    readable: bool,
    signature: bool,
}

/// How much of the content must be known before the head can be signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Nothing: it may stream.
    Nothing,
    /// All of it, because its hash or bytes are signed, or a value is in it. The signature precedes
    /// it on the wire.
    Whole,
}

/// A credential's texts by the names of the recipe's parts.
#[derive(Default)]
pub struct Parts<'a>(Vec<(&'a str, &'a [u8])>);

impl<'a> Parts<'a> {
    /// Takes the texts.
    pub fn new(parts: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Self {
        Self(parts.into_iter().collect())
    }

    fn get(&self, name: &str) -> Option<&'a [u8]> {
        self.0
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, bytes)| *bytes)
    }
}

impl Recipe {
    /// Loads a description.
    ///
    /// # Errors
    /// Every mistake in it.
    pub fn load(text: &str) -> Result<Recipe, Vec<Mistake>> {
        load::load(text)
    }

    /// The name by which configuration refers to it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its display name.
    #[must_use]
    pub fn title(&self) -> &str {
        &self.title
    }

    /// The service's own description.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The origins that use it; empty if the user must name them.
    #[must_use]
    pub fn hosts(&self) -> &[OriginPattern] {
        &self.hosts
    }

    /// The parts of a credential of this kind.
    #[must_use]
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// What it needs of [`Nonce`].
    #[must_use]
    pub fn nonce(&self) -> NonceKind {
        let kinds = self.values.iter().find_map(|value| match value.kind {
            ValueKind::Nonce(form) => Some(form.kind()),
            ValueKind::Components(_) => Some(NonceKind::Random),
            _ => None,
        });
        kinds.unwrap_or(NonceKind::None)
    }

    /// How much of the content it needs, to verify and to sign.
    #[must_use]
    pub fn needs(&self) -> Needs {
        if self.whole {
            Needs::Whole
        } else {
            Needs::Nothing
        }
    }

    /// The fields and query parameters that contain a part, as `header:NAME` and `query:NAME`: a
    /// phantom is allowed there.
    pub fn slots(&self) -> impl Iterator<Item = String> {
        let inside = |name: Name| {
            let mut read = self.parts.iter().filter_map(|part| part.read.as_ref());
            read.any(|template| template.names().any(|found| found == name))
        };
        let with_part = move |place: &&Placement| {
            place
                .names()
                .any(|name| matches!(name, Name::Part(_)) || inside(name))
        };
        let slots = self
            .places
            .iter()
            .filter(with_part)
            .flat_map(|place| &place.slots);
        slots.map(|slot| match slot {
            Slot::Authorization { .. } => "header:authorization".to_owned(),
            slot => slot.to_string(),
        })
    }

    fn signature_slots(&self) -> impl Iterator<Item = &Slot> {
        self.places
            .iter()
            .filter(|place| place.signature)
            .flat_map(|place| &place.slots)
    }

    /// Whether a field carries the signature, and so cannot be signed itself.
    #[must_use]
    pub fn is_signature_field(&self, name: &str) -> bool {
        self.signature_slots()
            .any(|slot| matches!(slot, Slot::Header(field) if field == name))
    }

    /// Whether a query parameter carries the signature.
    #[must_use]
    pub fn is_signature_parameter(&self, name: &str) -> bool {
        self.signature_slots()
            .any(|slot| matches!(slot, Slot::Query(parameter) if **parameter == *name))
    }

    /// Whether a field contains a credential that may stay beside the signature, because it is
    /// bound to the signing key and worth nothing without it.
    #[must_use]
    pub fn goes_with(&self, name: &str, value: &[u8]) -> bool {
        let scheme = value.split(|byte| *byte == b' ').next().unwrap_or_default();
        let known = |beside: &String| beside.as_bytes().eq_ignore_ascii_case(scheme);
        name == "authorization" && self.beside.iter().any(known)
    }

    fn authorization_schemes(&self) -> impl Iterator<Item = &str> {
        let mut schemes: Vec<&str> = self
            .places
            .iter()
            .flat_map(|place| &place.slots)
            .filter_map(|slot| match slot {
                Slot::Authorization { scheme, .. } => Some(&**scheme),
                _ => None,
            })
            .collect();
        schemes.dedup();
        schemes.into_iter()
    }

    fn key_fault(&self) -> Fault {
        let secret = self.parts.iter().find(|part| part.role == Role::Secret);
        Fault::Key(secret.map(|part| part.name.clone()).unwrap_or_default())
    }

    /// Whether a template, or a step on which it depends, satisfies a condition.
    fn reaches(&self, template: &Template, condition: &dyn Fn(&Term) -> bool) -> bool {
        template.values().any(|(term, _)| condition(term))
            || template.names().any(|name| match name {
                Name::Step(index) => self.reaches(&self.steps[index].1, condition),
                Name::Value(index) => match &self.values[index].kind {
                    ValueKind::Made(template) => self.reaches(template, condition),
                    _ => false,
                },
                _ => false,
            })
    }
}

impl Placement {
    fn names(&self) -> impl Iterator<Item = Name> {
        self.templates.iter().flat_map(Template::names)
    }
}
