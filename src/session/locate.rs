//! Finds what a request presents: each phantom in its place, and everything that must not be there.

mod cookies;
mod signed;

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use http::{HeaderName, HeaderValue, header};
use zeroize::Zeroizing;

use super::binding::{Bindings, Bound, Foreign, When};
use super::phantom::{Form, Phantom, Phantoms, Registry, Sighting};
use super::presented::{FormWatch, Lend, Presented, Spot};
use super::refusal::{CredentialRefusal, RequestPart};
use super::signing::Claimed;
use crate::message::fields::reads_as;
use crate::message::{
    Place, RequestHead, Scheme, Taken, TakenPart, credential_protocol, folded_parameter, is_batch,
    is_credential_parameter, sounds_like_credential,
};
use crate::names::CredentialName;

impl Bindings {
    /// Finds what a request presents, in one pass over host, target and fields.
    ///
    /// A phantom that is exactly the value of a place of its credential, at an origin, method and
    /// path to which that is bound, is to be lent. A phantom anywhere else, in whatever form, and a
    /// foreign credential at a managed origin refuse the request. Content is not looked at here: a
    /// phantom is inert there, and what else may not stand there is said for later ([`FormWatch`]).
    /// `Cookie` fields must have been joined before.
    ///
    /// # Errors
    /// [`CredentialRefusal`] by cause; the first that is met.
    pub fn locate(
        &self,
        head: &RequestHead,
        phantoms: &Phantoms,
        registry: &Registry,
    ) -> Result<Presented, CredentialRefusal> {
        let bound = self.of(&head.origin);
        let mut search = Search {
            bindings: self,
            head,
            phantoms,
            registry,
            bound: &bound,
            signed: None,
            found: Presented {
                batch: is_batch(&head.origin.authority.host, &head.target)
                    || bound.iter().any(|bound| bound.batches(head.target.path())),
                ..Presented::default()
            },
        };
        search.host()?;
        search.signature()?;
        for (name, value) in &head.fields {
            search.field(name, value)?;
        }
        search.target()?;
        search.always()?;
        search.unsigned()?;
        search.found.watch = search.form();
        Ok(search.found)
    }
}

/// One request being searched.
struct Search<'a> {
    bindings: &'a Bindings,
    head: &'a RequestHead,
    phantoms: &'a Phantoms,
    registry: &'a Registry,
    /// The bindings that hold for the origin; it is managed if there is one.
    bound: &'a [&'a Arc<Bound>],
    /// The signature that was found. What belongs to it was judged with it.
    signed: Option<Arc<dyn Claimed>>,
    found: Presented,
}

impl<'a> Search<'a> {
    /// Whether there is a signature of which this is so.
    fn signature_has(&self, what: impl Fn(&dyn Claimed) -> bool) -> bool {
        self.signed.as_deref().is_some_and(what)
    }

    fn host(&self) -> Result<(), CredentialRefusal> {
        self.folded(self.head.origin.authority.host.as_str(), RequestPart::Host)
    }

    /// Host and field names lose their case on the way, so phantoms are looked for without it
    /// (H10).
    fn folded(&self, text: &str, part: RequestPart) -> Result<(), CredentialRefusal> {
        if text.len() < self.phantoms.shortest() {
            return Ok(());
        }
        match self.phantoms.find_folded(text.as_bytes()) {
            Some(sighting) => Err(self.misplaced(&sighting, part)),
            None => self.clean(text.as_bytes(), part),
        }
    }

    fn field(&mut self, name: &HeaderName, value: &HeaderValue) -> Result<(), CredentialRefusal> {
        self.folded(name.as_str(), RequestPart::FieldName)?;
        if self.signature_has(|signed| signed.has_field(name)) {
            return Ok(());
        }
        let value = value.as_bytes();
        if *name == header::COOKIE {
            return self.cookies(value);
        }
        if *name == header::SEC_WEBSOCKET_PROTOCOL {
            self.clean(value, RequestPart::Field)?;
            let text = String::from_utf8_lossy(value);
            return match credential_protocol(&text) {
                Some(token) => self.foreign(token.as_bytes(), RequestPart::Field, Some(name)),
                None => Ok(()),
            };
        }
        if !self.carries_credentials(name)
            || self.signature_has(|signed| signed.is_signature_field(name))
        {
            return self.clean(value, RequestPart::Field);
        }
        if let Some(encoded) = after_scheme(value, "Basic")
            && *name == header::AUTHORIZATION
        {
            return self.basic(name, encoded);
        }
        for bound in self.bound {
            for (place, token) in tokens(bound, name, value) {
                if let Some(phantom) = self.is_phantom(bound, token) {
                    return self.lend(bound, place, Spot::Field, phantom, RequestPart::Field);
                }
            }
        }
        self.clean(value, RequestPart::Field)?;
        let token = value.rsplit(|byte| *byte == b' ').next().unwrap_or(value);
        if self.signature_has(|signed| signed.goes_with(name, value)) {
            return self.other_session(token, RequestPart::Field);
        }
        self.foreign(token, RequestPart::Field, Some(name))
    }

    /// `Authorization: Basic` (RFC 7617): decoded strictly; each half is a place of its own (H05).
    fn basic(&mut self, name: &HeaderName, encoded: &[u8]) -> Result<(), CredentialRefusal> {
        let Ok(decoded) = STANDARD.decode(encoded).map(Zeroizing::new) else {
            self.clean(encoded, RequestPart::Basic)?;
            let lenient = LENIENT
                .decode(encoded)
                .map(Zeroizing::new)
                .unwrap_or_default();
            if let Some(sighting) = self.phantoms.find(&lenient).next() {
                return Err(self.misplaced(
                    &Sighting {
                        form: Form::Base64,
                        ..sighting
                    },
                    RequestPart::Basic,
                ));
            }
            return self.foreign(encoded, RequestPart::Basic, Some(name));
        };
        let colon = memchr::memchr(b':', &decoded).unwrap_or(decoded.len());
        let (user, password) = (
            &decoded[..colon],
            decoded.get(colon + 1..).unwrap_or_default(),
        );
        for bound in self.bound {
            for (place, half, other) in
                bound
                    .binding
                    .places
                    .iter()
                    .enumerate()
                    .filter_map(|(at, place)| match place {
                        Place::BasicUser => Some((at, user, password)),
                        Place::BasicPassword => Some((at, password, user)),
                        _ => None,
                    })
            {
                if let Some(phantom) = self.is_phantom(bound, half) {
                    if self
                        .phantoms
                        .find(other)
                        .any(|sighting| sighting.form == Form::Plain)
                    {
                        return Err(CredentialRefusal::Count {
                            credential: phantom.credential().clone(),
                        });
                    }
                    self.clean(other, RequestPart::Basic)?;
                    let other = Zeroizing::new(other.to_vec());
                    return self.lend(
                        bound,
                        place,
                        Spot::Basic(other),
                        phantom,
                        RequestPart::Basic,
                    );
                }
            }
        }
        self.clean(&decoded, RequestPart::Basic)?;
        for half in [user, password] {
            self.other_session(half, RequestPart::Basic)?;
        }
        self.foreign(encoded, RequestPart::Basic, Some(name))
    }

    fn takes(&self) -> impl Iterator<Item = &'a Taken> {
        let path = self.head.target.path();
        self.bound
            .iter()
            .flat_map(|bound| &bound.binding.takes)
            .filter(move |taken| taken.is_at(path))
    }

    /// What the content may not hold, where its service takes credentials there.
    fn form(&self) -> Option<FormWatch> {
        let names = self.takes().filter_map(|taken| match &taken.part {
            TakenPart::Form(name) => Some(name.as_str().into()),
            _ => None,
        });
        let names: Vec<Box<str>> = names.collect();
        (!names.is_empty()).then_some(FormWatch { names })
    }

    fn target(&mut self) -> Result<(), CredentialRefusal> {
        let target = &self.head.target;
        let lent = if !self.bound.is_empty() && target.query().is_some() {
            self.query()?
        } else {
            Vec::new()
        };
        self.clean(target.path().as_bytes(), RequestPart::Path)?;
        if self.takes().any(|taken| taken.part == TakenPart::Path) {
            return Err(CredentialRefusal::Foreign {
                part: RequestPart::Path,
            });
        }
        if lent.is_empty() {
            return target.query().map_or(Ok(()), |query| {
                self.clean(query.as_bytes(), RequestPart::Query)
            });
        }
        for (at, (name, value)) in target.query_pairs().enumerate() {
            self.clean(name.as_bytes(), RequestPart::Query)?;
            if lent.binary_search(&at).is_err() {
                self.clean(value.as_bytes(), RequestPart::Query)?;
            }
        }
        Ok(())
    }

    /// Lends what stands in query places; returns the indices of the parameters that were lent.
    fn query(&mut self) -> Result<Vec<usize>, CredentialRefusal> {
        let mut lent = Vec::new();
        let head = self.head;
        for (at, (name, value)) in head.target.query_pairs().enumerate() {
            if self.signature_has(|signed| signed.has_parameter(&name)) {
                lent.push(at);
                continue;
            }
            if self.signature_has(|signed| signed.is_signature_parameter(&name)) {
                continue;
            }
            let mut credential_name = self.is_credential_parameter(&folded_parameter(&name));
            let mut presented = None;
            for bound in self.bound {
                for (index, place) in bound.binding.places.iter().enumerate() {
                    let Place::Query(parameter) = place else {
                        continue;
                    };
                    credential_name |= folded_parameter(parameter) == folded_parameter(&name);
                    if *parameter == name {
                        presented = presented.or(self
                            .is_phantom(bound, value.as_bytes())
                            .map(|phantom| (bound, index, phantom)));
                    }
                }
            }
            if let Some((bound, index, phantom)) = presented {
                self.lend(bound, index, Spot::Query(at), phantom, RequestPart::Query)?;
                lent.push(at);
            } else if credential_name && !value.is_empty() {
                self.clean(value.as_bytes(), RequestPart::Query)?;
                self.foreign(value.as_bytes(), RequestPart::Query, None)?;
            }
        }
        Ok(lent)
    }

    /// Whether a parameter of this folded name holds a credential: by its general meaning, or at
    /// one of these origins.
    fn is_credential_parameter(&self, folded: &str) -> bool {
        // Google's own name for an API key, at each of its services (Cloud APIs, "System
        // parameters").
        let google = || {
            folded == "key"
                && self
                    .head
                    .origin
                    .authority
                    .host
                    .as_str()
                    .ends_with(".googleapis.com")
        };
        let told = self
            .bound
            .iter()
            .any(|bound| !bound.binding.takes.is_empty());
        is_credential_parameter(folded, !told)
            || google()
            || self
                .takes()
                .any(|taken| matches!(&taken.part, TakenPart::Query(name) if name == folded))
    }

    /// Adds the credentials that are put in without being asked for, where the session holds them.
    fn always(&mut self) -> Result<(), CredentialRefusal> {
        let path = self.head.target.path();
        for bound in self.bound {
            let due = bound.binding.when == When::Always && bound.lends(&self.head.method, path);
            let name = &bound.binding.credential;
            if due
                && let Some(phantom) = self.phantoms.of(name)
                && !self
                    .found
                    .lends
                    .iter()
                    .any(|lend| lend.credential() == name)
            {
                let phantom = phantom.clone();
                self.judged(bound)?;
                self.found.lends.push(Lend {
                    bound: Arc::clone(bound),
                    place: 0,
                    spot: Spot::Absent,
                    phantom,
                });
            }
        }
        Ok(())
    }

    /// Refuses to lend what is for some requests alone to one that holds many (F14).
    fn judged(&self, bound: &Bound) -> Result<(), CredentialRefusal> {
        if self.found.batch && bound.is_narrow() {
            return Err(CredentialRefusal::Batch {
                credential: bound.binding.credential.clone(),
            });
        }
        Ok(())
    }

    fn lend(
        &mut self,
        bound: &Arc<Bound>,
        place: usize,
        spot: Spot,
        phantom: Phantom,
        part: RequestPart,
    ) -> Result<(), CredentialRefusal> {
        let credential = phantom.credential();
        if !bound.lends(&self.head.method, self.head.target.path()) {
            return Err(CredentialRefusal::OutOfScope {
                credential: credential.clone(),
                part,
            });
        }
        self.judged(bound)?;
        if self
            .found
            .lends
            .iter()
            .any(|lend| lend.credential() == credential)
        {
            return Err(CredentialRefusal::Count {
                credential: credential.clone(),
            });
        }
        self.found.lends.push(Lend {
            bound: Arc::clone(bound),
            place,
            spot,
            phantom,
        });
        Ok(())
    }

    fn is_phantom(&self, bound: &Bound, token: &[u8]) -> Option<Phantom> {
        let phantom = self.phantoms.of(&bound.binding.credential)?;
        (phantom.reveal().as_bytes() == token).then(|| phantom.clone())
    }

    /// Whether a field carries credentials: by its general meaning, or because a binding of the
    /// origin has a place in it. `_` reads as `-`, as CGI and WSGI origins read it (E20, H20).
    fn carries_credentials(&self, name: &HeaderName) -> bool {
        sounds_like_credential(name.as_str())
            || self
                .bound
                .iter()
                .flat_map(|bound| &bound.fields)
                .any(|field| field == name || reads_as(name, field))
    }

    /// Refuses a text in which any phantom stands, in any form.
    fn clean(&self, text: &[u8], part: RequestPart) -> Result<(), CredentialRefusal> {
        if text.len() < self.phantoms.shortest() {
            return Ok(());
        }
        let mut sightings = self.phantoms.find(text);
        let Some(first) = sightings.next() else {
            return match self.phantoms.find_unescaped(text) {
                Some(sighting) => Err(self.misplaced(&sighting, part)),
                None => Ok(()),
            };
        };
        let again = sightings.any(|next| next.index == first.index && next.form == Form::Plain);
        let credential = self.phantoms.at(&first).credential();
        if again && first.form == Form::Plain && self.is_bound(credential) {
            return Err(CredentialRefusal::Count {
                credential: credential.clone(),
            });
        }
        Err(self.misplaced(&first, part))
    }

    /// The refusal for a phantom that stands where it must not.
    fn misplaced(&self, sighting: &Sighting, part: RequestPart) -> CredentialRefusal {
        let credential = self.phantoms.at(sighting).credential().clone();
        let origin = &self.head.origin;
        let cleartext = origin.scheme == Scheme::Http
            && self
                .bindings
                .of_host(&origin.authority.host)
                .iter()
                .any(|bound| bound.binding.credential == credential);
        match sighting.form {
            Form::Base64 | Form::Hex | Form::Escaped => {
                CredentialRefusal::Disguised { credential, part }
            }
            Form::Plain | Form::Folded if self.is_bound(&credential) => {
                CredentialRefusal::Position { credential, part }
            }
            Form::Plain | Form::Folded if cleartext => CredentialRefusal::Cleartext { credential },
            Form::Plain | Form::Folded => CredentialRefusal::OutOfScope { credential, part },
        }
    }

    fn is_bound(&self, credential: &CredentialName) -> bool {
        self.bound
            .iter()
            .any(|bound| bound.binding.credential == *credential)
    }

    /// Judges a credential that is none of the session's: another session's phantom is refused
    /// everywhere, anything else at managed origins alone, unless each binding there has it
    /// stripped (R10, H13).
    fn foreign(
        &mut self,
        token: &[u8],
        part: RequestPart,
        field: Option<&HeaderName>,
    ) -> Result<(), CredentialRefusal> {
        self.other_session(token, part)?;
        if self.bound.is_empty() {
            return Ok(());
        }
        let stripped = self
            .bound
            .iter()
            .all(|bound| bound.binding.foreign == Foreign::Strip);
        match field.filter(|_| stripped) {
            Some(name) => {
                self.found.strip.push(name.clone());
                Ok(())
            }
            None => Err(CredentialRefusal::Foreign { part }),
        }
    }

    fn other_session(&self, token: &[u8], part: RequestPart) -> Result<(), CredentialRefusal> {
        match self.registry.owner(token) {
            Some(owner) => Err(CredentialRefusal::ForeignSession { owner, part }),
            None => Ok(()),
        }
    }
}

/// What follows an authentication scheme and one space; the scheme is compared without case (RFC
/// 9110 §11.1).
fn after_scheme<'v>(value: &'v [u8], scheme: &str) -> Option<&'v [u8]> {
    let (word, rest) = value.split_at_checked(scheme.len())?;
    word.eq_ignore_ascii_case(scheme.as_bytes())
        .then(|| rest.strip_prefix(b" "))?
}

/// The token that each of a binding's places would find in the field.
fn tokens<'v>(
    bound: &'v Bound,
    field: &HeaderName,
    value: &'v [u8],
) -> impl Iterator<Item = (usize, &'v [u8])> {
    bound
        .binding
        .places
        .iter()
        .enumerate()
        .filter_map(move |(at, place)| match place {
            Place::Header { name, scheme: None } if name == field => Some((at, value)),
            Place::Header {
                name,
                scheme: Some(scheme),
            } if name == field => Some((at, after_scheme(value, scheme)?)),
            _ => None,
        })
}

/// Reads base64 that a strict reader refuses, to see what was meant to be hidden in it.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

#[cfg(test)]
mod tests;
