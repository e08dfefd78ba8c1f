//! Checks each field of a request, and both halves of Basic credentials.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use gateway_message::fields::reads_as;
use gateway_message::{Place, credential_protocol, sounds_like_credential};
use http::{HeaderName, HeaderValue, header};
use zeroize::Zeroizing;

use super::Search;
use crate::bindings::Bound;
use crate::detected::Location;
use crate::phantom::{Form, PhantomMatch};
use crate::refusal::{CredentialRefusal, RequestPart};

impl Search<'_> {
    pub(super) fn field(
        &mut self,
        name: &HeaderName,
        value: &HeaderValue,
    ) -> Result<(), CredentialRefusal> {
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
                    return self.lend(bound, place, Location::Field, phantom, RequestPart::Field);
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

    /// Checks `Authorization: Basic` (RFC 7617), decoded strictly. Each half is a place (H05).
    fn basic(&mut self, name: &HeaderName, encoded: &[u8]) -> Result<(), CredentialRefusal> {
        let Ok(decoded) = STANDARD.decode(encoded).map(Zeroizing::new) else {
            self.clean(encoded, RequestPart::Basic)?;
            let lenient = LENIENT
                .decode(encoded)
                .map(Zeroizing::new)
                .unwrap_or_default();
            if let Some(sighting) = self.phantoms.find(&lenient).next() {
                return Err(self.misplaced(
                    &PhantomMatch {
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
                        Location::Basic(other),
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

    /// Whether a field carries credentials: by its usual meaning, or because a binding of the
    /// origin has a place in it. `_` counts as `-`, since CGI and WSGI origins read it so (E20,
    /// H20).
    fn carries_credentials(&self, name: &HeaderName) -> bool {
        sounds_like_credential(name.as_str())
            || self
                .bound
                .iter()
                .flat_map(|bound| &bound.fields)
                .any(|field| field == name || reads_as(name, field))
    }
}

/// The text after an authentication scheme and its spaces, of which there may be several (RFC 9110
/// §11.4). The scheme is compared case-insensitively (§11.1).
fn after_scheme<'v>(value: &'v [u8], scheme: &str) -> Option<&'v [u8]> {
    let (word, rest) = value.split_at_checked(scheme.len())?;
    let token = rest.trim_ascii_start();
    let spaces = &rest[..rest.len() - token.len()];
    let is_it = word.eq_ignore_ascii_case(scheme.as_bytes());
    let is_split = !spaces.is_empty() && spaces.iter().all(|byte| *byte == b' ');
    (is_it && is_split).then_some(token)
}

/// Returns the token that each of a binding's places would find in the field.
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

/// Decodes base64 that a strict decoder refuses, to find phantoms in it.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);
