//! Recipes: how a service wants its requests signed, as data, and the engine that verifies and signs by it.
//!
//! A recipe names its *parts* (key id, secret, passphrase), its *values* (time, nonce, list of signed fields), the *steps* from
//! them to a key and a text, the algorithm, and the *places* in which parts, values and signature stand. A place is a template
//! that is written when we sign and read backwards when a client has signed, so one description serves both ways.
//!
//! `docs/signing-recipes.md` is the reference; `policies/signers` has the presets.

mod algorithm;
mod canonical;
mod filter;
mod json;
mod load;
mod moment;
mod place;
mod preset;
mod scene;
mod template;
#[cfg(test)]
mod tests;

use std::time::SystemTime;

use bytes::Bytes;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

pub use algorithm::{Algorithm, MacName};
pub use load::Mistake;
pub use moment::{Nonce, NonceKind};
pub use preset::{preset, presets};

use crate::message::{OriginPattern, RequestHead};
use canonical::Selection;
use moment::{Form, Moment, NonceForm};
use place::Slot;
use scene::{Known, Scene};
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
    unsigned: bool,
    whole: bool,
}

/// One of the texts that a credential of this kind consists of.
#[derive(Debug, Clone)]
pub struct Part {
    /// Its name in the recipe and in configuration.
    pub name: String,
    /// What becomes of it.
    pub role: Role,
    /// Whether a credential may be without it, as a session token.
    pub optional: bool,
    /// The shape in which the service issues it, where it is known.
    pub shape: Option<String>,
    /// The variables from which clients read it.
    pub variables: Vec<String>,
    /// The algorithm whose private key it is; its phantom must be one too, see [`phantom_key`].
    pub key_of: Option<Algorithm>,
    read: Option<Template>,
}

/// What becomes of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Sent, and by it the credential is known: a key's id.
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
    /// How it is read from another value in which it stands.
    read: Option<Template>,
}

/// Where a value comes from when we sign; when a client has signed, it is read from its place.
#[derive(Debug, Clone)]
enum ValueKind {
    /// The gateway's clock.
    Time(Form),
    /// The client's end, but no later than so many seconds from now.
    Expiry {
        form: Form,
        longest: u32,
    },
    Nonce(NonceForm),
    /// What the client signed and what must be signed.
    Fields {
        wanted: Selection,
        separator: String,
    },
    /// All parameters of the query.
    Parameters {
        lower: bool,
    },
    /// The client's own, one of these where there are any.
    Kept {
        among: Vec<String>,
    },
    /// Made of the request.
    Made(Template),
}

impl ValueKind {
    /// Whether it is new with each signature and needs nothing of the client's.
    fn is_new(&self) -> bool {
        matches!(
            self,
            ValueKind::Time(_) | ValueKind::Expiry { .. } | ValueKind::Nonce(_)
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
    /// Whether it can be read back; else it is a value that follows from the request.
    readable: bool,
    signature: bool,
}

/// What must be known of the content before the head can be signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Nothing: it may stream.
    Nothing,
    /// All of it, because its hash or bytes are signed or a value stands in it; the signature goes first on the wire.
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

/// Why a request is not signed. Says nothing of what stood in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A part of the signature is missing.
    #[error("the request is signed, but nothing stands in `{0}`")]
    Incomplete(String),
    /// Two stand where one may.
    #[error("the request has more than one value in `{0}`")]
    Ambiguous(String),
    /// What stands in a place is not of the form that the service has.
    #[error("what stands in `{0}` is not of the form of this signature")]
    Malformed(String),
    /// A part is not the phantom of this credential.
    #[error("the `{0}` of the signature is another credential's")]
    Foreign(String),
    /// The signature is not one of this request with the phantom.
    #[error("the signature does not verify with the phantom key")]
    Mismatch,
    /// A value is none of those that the recipe allows.
    #[error("the `{0}` of the signature is none that is allowed")]
    Forbidden(String),
    /// The content must be held before this can be signed.
    #[error("this signature covers the content, which is not at hand")]
    Content,
    /// The credential has no such part.
    #[error("the credential has no `{0}`")]
    Part(String),
    /// A part is no key in the form that the recipe says.
    #[error("the `{0}` of the credential is not in the form of such a key")]
    Key(String),
    /// A text in the request is not in the form that the recipe decodes.
    #[error("a text of the request cannot be decoded for signing")]
    Undecodable,
    /// A place cannot take its value in this request.
    #[error("`{0}` cannot take its value in this request")]
    Unfit(String),
    /// The request target cannot take the signature.
    #[error("the request target cannot take the signature")]
    Target,
    /// The time is none that can be written.
    #[error("the time cannot be written in the form of this signature")]
    Time,
}

impl Fault {
    /// The short code for refusals and audit records.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Fault::Incomplete(_) => "signature_incomplete",
            Fault::Ambiguous(_) => "signature_ambiguous",
            Fault::Malformed(_) | Fault::Undecodable => "signature_malformed",
            Fault::Foreign(_) => "foreign_credential",
            Fault::Mismatch => "signature_mismatch",
            Fault::Forbidden(_) => "signature_scope",
            Fault::Content => "signature_content",
            Fault::Part(_) | Fault::Key(_) => "signing_key",
            Fault::Unfit(_) | Fault::Target | Fault::Time => "signing_unfit",
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Used {
    slot: usize,
    template: usize,
}

/// What a client says of its signature; nothing of it is verified yet.
pub struct Claim {
    /// For each place, the slot and the template that the client used.
    used: Vec<Option<Used>>,
    parts: Vec<Option<Vec<u8>>>,
    values: Vec<Option<Vec<u8>>>,
    signature: Option<Vec<u8>>,
    recipe: String,
    ids: Vec<usize>,
    names: Vec<String>,
}

impl Claim {
    /// The key's id, by which the credential is known; `None` where this service's requests have none (webhooks) or where it
    /// stands in the content.
    #[must_use]
    pub fn key_id(&self) -> Option<&[u8]> {
        self.ids.iter().find_map(|index| self.parts[*index].as_deref())
    }

    /// What the client says of a value that is kept (a region, a service), so that it can be held against a pin before
    /// anything is signed.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&[u8]> {
        let index = self.names.iter().position(|known| known == name)?;
        self.values[index].as_deref()
    }
}

/// A claim whose signature is the phantom's: only this can be signed again.
pub struct Verified {
    claim: Claim,
    moment: Option<Moment>,
}

impl Verified {
    /// When the client says that it signed, for recipes with a time.
    #[must_use]
    pub fn time(&self) -> Option<SystemTime> {
        self.moment.and_then(Moment::system)
    }
}

/// A signed request's content where it was rewritten.
pub struct Signed {
    /// `None`: the content is sent as it came.
    pub content: Option<Bytes>,
}

/// A new private key for a part whose [`Part::key_of`] says so: a phantom that signs, and opens nothing.
///
/// # Errors
/// [`Fault::Key`] for an algorithm whose keys are any bytes.
pub fn phantom_key(algorithm: Algorithm) -> Result<Zeroizing<String>, Fault> {
    algorithm::new_key(algorithm).map_err(|_| Fault::Key("phantom".to_owned()))
}

impl Recipe {
    /// Reads a description.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn load(text: &str) -> Result<Recipe, Vec<Mistake>> {
        load::load(text)
    }

    /// The name by which configuration refers to it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What people call it.
    #[must_use]
    pub fn title(&self) -> &str {
        &self.title
    }

    /// The service's own description.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The origins that use it; empty where they are the user's to name.
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
            _ => None,
        });
        kinds.unwrap_or(NonceKind::None)
    }

    /// What it needs of the content, to verify and to sign.
    #[must_use]
    pub fn needs(&self) -> Needs {
        if self.whole { Needs::Whole } else { Needs::Nothing }
    }

    /// The fields and query parameters in which a part stands, as `header:NAME` and `query:NAME`: a phantom is in its right
    /// place there.
    pub fn slots(&self) -> impl Iterator<Item = String> {
        let with_part = |place: &&Placement| place.names().any(|name| matches!(name, Name::Part(_)));
        self.places
            .iter()
            .filter(with_part)
            .flat_map(|place| place.slots.iter().map(Slot::to_string))
    }

    /// Finds what a client signed by this recipe; `None` where the head has nothing of it.
    ///
    /// # Errors
    /// [`Fault::Ambiguous`] and [`Fault::Malformed`]. What is missing shows in [`Recipe::verify`], which sees the content.
    pub fn claim(&self, head: &RequestHead) -> Result<Option<Claim>, Fault> {
        let mut claim = Claim {
            used: vec![None; self.places.len()],
            parts: vec![None; self.parts.len()],
            values: vec![None; self.values.len()],
            signature: None,
            recipe: self.name.clone(),
            ids: (0..self.parts.len())
                .filter(|index| self.parts[*index].role == Role::Id)
                .collect(),
            names: self.values.iter().map(|value| value.name.clone()).collect(),
        };
        self.gather(&mut claim, head, None)?;
        self.read_inside(&mut claim, head)?;
        let found = claim.signature.is_some() || claim.key_id().is_some();
        Ok(found.then_some(claim))
    }

    /// Verifies that the client signed this request with its phantoms.
    ///
    /// `content` is all of it where [`Recipe::needs`] says so, empty where there is none.
    ///
    /// # Errors
    /// By cause, see [`Fault`].
    pub fn verify(
        &self,
        mut claim: Claim,
        head: &RequestHead,
        content: Option<&[u8]>,
        phantoms: &Parts<'_>,
    ) -> Result<Verified, Fault> {
        debug_assert_eq!(
            claim.recipe, self.name,
            "a claim goes back to the recipe that made it"
        );
        if self.whole && content.is_none() {
            return Err(Fault::Content);
        }
        if content.is_some() {
            self.gather(&mut claim, head, content)?;
        }
        let unsigned = self.unsigned && claim.signature.is_none();
        for (place, used) in self.places.iter().zip(&claim.used) {
            let names_a_part = place.names().any(|name| matches!(name, Name::Part(_)));
            if place.readable && !place.optional && used.is_none() && (!unsigned || names_a_part) {
                return Err(Fault::Incomplete(place.slots[0].to_string()));
            }
        }
        for (part, claimed) in self.parts.iter().zip(&claim.parts) {
            let Some(claimed) = claimed else { continue };
            let known = phantoms
                .get(&part.name)
                .ok_or_else(|| Fault::Foreign(part.name.clone()))?;
            if !bool::from(known.ct_eq(claimed)) {
                return Err(Fault::Foreign(part.name.clone()));
            }
        }
        let moment = self.check_values(&claim.values)?;
        if unsigned {
            return Ok(Verified { claim, moment });
        }
        let known = Known {
            parts: phantoms,
            values: &claim.values,
            claimed: &claim.values,
            moment,
            signature: None,
            signing: false,
        };
        let scene = Scene::new(self, head, content, known);
        let (key, text) = (scene.write(&self.key)?, scene.write(&self.text)?);
        let signature = claim.signature.as_deref().unwrap_or_default();
        let verified = self
            .algorithm
            .verify(&key, &text, signature)
            .map_err(|_| self.key_fault())?;
        if verified {
            Ok(Verified { claim, moment })
        } else {
            Err(Fault::Mismatch)
        }
    }

    /// Signs a verified request with the secrets, at this time, with this nonce; everything of the client's signature goes.
    ///
    /// This must be the last change to the head and the content: whatever is changed after it may be signed.
    ///
    /// # Errors
    /// By cause, see [`Fault`]. The head is then of no more use, and must not be sent.
    pub fn sign(
        &self,
        verified: Verified,
        head: &mut RequestHead,
        content: Option<Bytes>,
        secrets: &Parts<'_>,
        now: SystemTime,
        nonce: &Nonce,
    ) -> Result<Signed, Fault> {
        let claim = &verified.claim;
        debug_assert_eq!(
            claim.recipe, self.name,
            "a claim goes back to the recipe that made it"
        );
        if self.whole && content.is_none() {
            return Err(Fault::Content);
        }
        let moment = Moment::of(now).ok_or(Fault::Time)?;
        let values = self.new_values(claim, moment, nonce)?;
        let original = content.clone();
        let mut content = content;
        for slot in &self.strip {
            slot.remove(head, &mut content)?;
        }
        for slot in self.signature_slots() {
            slot.remove(head, &mut content)?;
        }
        let unsigned = self.unsigned && claim.signature.is_none();
        let known = |signature| Known {
            parts: secrets,
            values: &values,
            claimed: &claim.values,
            moment: Some(moment),
            signature,
            signing: true,
        };
        for (place, used) in self
            .places
            .iter()
            .zip(&claim.used)
            .filter(|(place, _)| !place.signature)
        {
            let Used { slot, template } = used.unwrap_or_default();
            let (chosen, template) = (&place.slots[slot], &place.templates[template]);
            let written = self.is_written(place, used.is_some(), secrets) && (!unsigned || used.is_some());
            for slot in place.slots.iter().filter(|slot| !written || *slot != chosen) {
                slot.remove(head, &mut content)?;
            }
            if written {
                let value = Scene::new(self, head, content.as_deref(), known(None)).write(template)?;
                chosen.write(head, &mut content, &value)?;
            }
        }
        if !unsigned {
            let scene = Scene::new(self, head, content.as_deref(), known(None));
            let (key, text) = (scene.write(&self.key)?, scene.write(&self.text)?);
            let signature = self.algorithm.sign(&key, &text).map_err(|_| self.key_fault())?;
            for (place, used) in self
                .places
                .iter()
                .zip(&claim.used)
                .filter(|(place, _)| place.signature)
            {
                let scene = Scene::new(self, head, content.as_deref(), known(Some(&signature)));
                let Used { slot, template } = used.unwrap_or_default();
                let value = scene.write(&place.templates[template])?;
                place.slots[slot].write(head, &mut content, &value)?;
            }
        }
        Ok(Signed {
            content: if content == original { None } else { content },
        })
    }

    /// Reads the places that were not read yet: those of the head without content, those of the content with it.
    fn gather(&self, claim: &mut Claim, head: &RequestHead, content: Option<&[u8]>) -> Result<(), Fault> {
        for (at, place) in self.places.iter().enumerate() {
            for (alternative, slot) in place.slots.iter().enumerate() {
                if slot.is_in_content() != content.is_some() {
                    continue;
                }
                let Some(text) = slot.read(head, content)? else {
                    continue;
                };
                if claim.used[at].is_some() {
                    return Err(Fault::Ambiguous(slot.to_string()));
                }
                let mut template = 0;
                if place.readable {
                    let read = place
                        .templates
                        .iter()
                        .enumerate()
                        .find_map(|(at, template)| Some((at, template.read(&text)?)));
                    let Some((at, read)) = read else {
                        // Another scheme in `Authorization` is another credential's, and not a broken one of ours.
                        if content.is_none() && !begins_alike(place, &text) {
                            continue;
                        }
                        return Err(slot.malformed());
                    };
                    template = at;
                    for (name, value) in read {
                        let standing = match name {
                            Name::Part(index) => &mut claim.parts[index],
                            Name::Value(index) => &mut claim.values[index],
                            _ => &mut claim.signature,
                        };
                        if standing.as_ref().is_some_and(|standing| *standing != value) {
                            return Err(slot.malformed());
                        }
                        *standing = Some(value);
                    }
                }
                claim.used[at] = Some(Used {
                    slot: alternative,
                    template,
                });
            }
        }
        Ok(())
    }

    /// Reads the parts and values that stand inside of others.
    fn read_inside(&self, claim: &mut Claim, head: &RequestHead) -> Result<(), Fault> {
        if claim.signature.is_none() {
            return Ok(());
        }
        let none = Parts::default();
        let values = claim.values.clone();
        let scene = Scene::new(
            self,
            head,
            None,
            Known {
                parts: &none,
                values: &values,
                claimed: &values,
                moment: None,
                signature: None,
                signing: false,
            },
        );
        let read = |read: &Option<Template>| match read {
            Some(read) => scene
                .write(read)
                .map(|text| Some(text.to_vec()).filter(|text| !text.is_empty())),
            None => Ok(None),
        };
        for (standing, part) in claim.parts.iter_mut().zip(&self.parts) {
            if let Some(text) = read(&part.read)? {
                *standing = Some(text);
            }
        }
        for (standing, value) in claim.values.iter_mut().zip(&self.values) {
            if let Some(text) = read(&value.read)? {
                *standing = Some(text);
            }
        }
        Ok(())
    }

    /// Checks what the client says of time and scope; gives its time.
    fn check_values(&self, values: &[Option<Vec<u8>>]) -> Result<Option<Moment>, Fault> {
        let mut moment = None;
        for (value, claimed) in self.values.iter().zip(values) {
            let Some(claimed) = claimed else { continue };
            let text = std::str::from_utf8(claimed).map_err(|_| Fault::Malformed(value.name.clone()))?;
            match &value.kind {
                ValueKind::Time(form) => {
                    moment = Some(
                        form.read(text)
                            .ok_or_else(|| Fault::Malformed(value.name.clone()))?,
                    );
                }
                ValueKind::Expiry { form, .. } => {
                    form.read(text)
                        .ok_or_else(|| Fault::Malformed(value.name.clone()))?;
                }
                ValueKind::Kept { among }
                    if !among.is_empty() && !among.iter().any(|known| known == text) =>
                {
                    return Err(Fault::Forbidden(value.name.clone()));
                }
                _ => {}
            }
        }
        Ok(moment)
    }

    /// The values that do not depend on the request as it will be signed.
    fn new_values(&self, claim: &Claim, now: Moment, nonce: &Nonce) -> Result<Vec<Option<Vec<u8>>>, Fault> {
        let values = self.values.iter().zip(&claim.values).map(|(value, claimed)| {
            Ok(match &value.kind {
                ValueKind::Time(form) => Some(form.write(now).into_bytes()),
                ValueKind::Nonce(form) => Some(form.write(nonce).into_bytes()),
                ValueKind::Kept { .. } => claimed.clone(),
                ValueKind::Expiry { form, longest } => {
                    let longest = now.later(*longest);
                    let wanted = match claimed {
                        Some(claimed) => {
                            let text = std::str::from_utf8(claimed).map_err(|_| Fault::Time)?;
                            form.read(text).ok_or(Fault::Time)?
                        }
                        None => longest,
                    };
                    Some(form.write(wanted.min(longest)).into_bytes())
                }
                ValueKind::Fields { .. } | ValueKind::Parameters { .. } | ValueKind::Made(_) => None,
            })
        });
        values.collect()
    }

    /// Whether a place is written: always, unless it is optional. Then a part decides by being there, anything else by
    /// the client's having had it.
    fn is_written(&self, place: &Placement, used: bool, secrets: &Parts<'_>) -> bool {
        if !place.optional {
            return true;
        }
        let mut parts = place.names().filter_map(|name| match name {
            Name::Part(index) => Some(&self.parts[index]),
            _ => None,
        });
        match parts.next() {
            Some(part) => secrets.get(&part.name).is_some(),
            None => used,
        }
    }

    fn signature_slots(&self) -> impl Iterator<Item = &Slot> {
        self.places
            .iter()
            .filter(|place| place.signature)
            .flat_map(|place| &place.slots)
    }

    /// Whether a field carries the signature, and so cannot be signed itself.
    fn is_signature_field(&self, name: &str) -> bool {
        self.signature_slots()
            .any(|slot| matches!(slot, Slot::Header(field) if field == name))
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

    /// Whether a template, or a step that it rests on, satisfies a condition.
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

/// Whether a text begins as one of a place's templates does, up to the first space.
fn begins_alike(place: &Placement, text: &[u8]) -> bool {
    let first = |text: &[u8]| {
        text.split(|byte| *byte == b' ')
            .next()
            .map(<[u8]>::to_ascii_lowercase)
    };
    place.templates.iter().any(|template| match template.0.first() {
        Some(template::Piece::Text(literal)) if literal.contains(' ') => {
            first(literal.as_bytes()) == first(text)
        }
        _ => true,
    })
}
