//! The data of a recipe, and the properties that callers query.

use super::algorithm::Algorithm;
use super::fault::Fault;
use super::name::Name;
use super::nonce::NonceKind;
use super::part::{Part, Role};
use super::place::Slot;
use super::template::{Template, Term};
use super::value::{Value, ValueKind};
use gateway_message::OriginPattern;

/// A checked description of how one service's requests are signed.
#[derive(Debug, Clone)]
pub struct Recipe {
    pub(super) name: String,
    pub(super) hosts: Vec<OriginPattern>,
    pub(super) parts: Vec<Part>,
    pub(super) values: Vec<Value>,
    pub(super) steps: Vec<(String, Template)>,
    pub(super) algorithm: Algorithm,
    pub(super) key: Template,
    pub(super) text: Template,
    pub(super) places: Vec<Placement>,
    pub(super) strip: Vec<Slot>,
    pub(super) beside: Vec<String>,
    pub(super) unsigned: bool,
    pub(super) whole: bool,
}

/// A place where a part, a value or the signature is written, and read from a client's request.
#[derive(Debug, Clone)]
pub(super) struct Placement {
    /// Alternatives; a client uses one.
    pub(super) slots: Vec<Slot>,
    /// Alternatives, too.
    pub(super) templates: Vec<Template>,
    pub(super) optional: bool,
    /// Whether it can be parsed; otherwise its value follows from the request.
    pub(super) readable: bool,
    pub(super) signature: bool,
}

/// How much of the content must be known before the head can be signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentNeed {
    /// Nothing: it may stream.
    Nothing,
    /// All of it, because its hash or bytes are signed, or a value is in it. The signature precedes
    /// it on the wire.
    Whole,
}

impl Recipe {
    /// The name by which configuration refers to it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The origins that use it; empty if the user must name them.
    pub fn hosts(&self) -> &[OriginPattern] {
        &self.hosts
    }

    /// The parts of a credential of this kind.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The kind of [`Nonce`](super::Nonce) that it needs.
    pub fn nonce(&self) -> NonceKind {
        let kinds = self.values.iter().find_map(|value| match value.kind {
            ValueKind::Nonce(form) => Some(form.kind()),
            ValueKind::Components(_) => Some(NonceKind::Random),
            _ => None,
        });
        kinds.unwrap_or(NonceKind::None)
    }

    /// How much of the content it needs, to verify and to sign.
    pub fn needs(&self) -> ContentNeed {
        if self.whole {
            ContentNeed::Whole
        } else {
            ContentNeed::Nothing
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
        let slots = self.places.iter().filter(with_part);
        let slots = slots.flat_map(|place| &place.slots);
        slots.map(|slot| match slot {
            Slot::Authorization { .. } => "header:authorization".to_owned(),
            slot => slot.to_string(),
        })
    }

    pub(super) fn signature_slots(&self) -> impl Iterator<Item = &Slot> {
        self.places
            .iter()
            .filter(|place| place.signature)
            .flat_map(|place| &place.slots)
    }

    /// Whether a field carries the signature, and so cannot be signed itself.
    pub fn is_signature_field(&self, name: &str) -> bool {
        self.signature_slots()
            .any(|slot| matches!(slot, Slot::Header(field) if field == name))
    }

    /// Whether a query parameter carries the signature.
    pub fn is_signature_parameter(&self, name: &str) -> bool {
        self.signature_slots()
            .any(|slot| matches!(slot, Slot::Query(parameter) if **parameter == *name))
    }

    /// Whether a field contains a credential that may stay beside the signature, because it is
    /// bound to the signing key and worth nothing without it.
    pub fn goes_with(&self, name: &str, value: &[u8]) -> bool {
        let scheme = value.split(|byte| *byte == b' ').next().unwrap_or_default();
        let known = |beside: &String| beside.as_bytes().eq_ignore_ascii_case(scheme);
        name == "authorization" && self.beside.iter().any(known)
    }

    pub(super) fn authorization_schemes(&self) -> impl Iterator<Item = &str> {
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

    pub(super) fn key_fault(&self) -> Fault {
        let secret = self.parts.iter().find(|part| part.role == Role::Secret);
        Fault::Key(secret.map(|part| part.name.clone()).unwrap_or_default())
    }

    /// Whether a template, or a step on which it depends, satisfies a condition.
    pub(super) fn reaches(&self, template: &Template, condition: &dyn Fn(&Term) -> bool) -> bool {
        template.values().any(|(term, _)| condition(term))
            || template.names().any(|name| {
                let made = self.made(name);
                made.is_some_and(|template| self.reaches(template, condition))
            })
    }

    /// The template of a step or a computed value.
    pub(super) fn made(&self, name: Name) -> Option<&Template> {
        match name {
            Name::Step(index) => Some(&self.steps[index].1),
            Name::Value(index) => match &self.values[index].kind {
                ValueKind::Made(template) => Some(template),
                _ => None,
            },
            Name::Part(_) | Name::Signature => None,
        }
    }
}

impl Placement {
    pub(super) fn names(&self) -> impl Iterator<Item = Name> {
        self.templates.iter().flat_map(Template::names)
    }
}
