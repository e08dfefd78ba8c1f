//! Finds the parts of a signature: the `Authorization` field, and the `X-Amz-` parameters of a
//! query.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName};
use percent_encoding::percent_decode_str;

use super::algorithm::Algorithm;
use super::fault::Fault;

/// The texts of a signature, wherever they were.
pub(super) struct SignatureTexts<'a> {
    pub(super) algorithm: Algorithm,
    pub(super) credential: Cow<'a, str>,
    pub(super) signed: Cow<'a, str>,
    pub(super) signature: Cow<'a, str>,
}

/// The parameters of a presigned request that belong to the signature and not to the request.
pub(super) struct Presigned<'a>(Vec<(&'static str, Cow<'a, str>)>);

impl<'a> Presigned<'a> {
    /// Collects them from a raw query. Refuses a name in another case than AWS writes it, because
    /// servers differ there.
    pub(super) fn read(query: &'a str) -> Result<Self, Fault> {
        let mut found = Presigned(Vec::new());
        for pair in query.split('&').filter(|pair| is_candidate(pair)) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = decoded(name, "X-Amz-Signature")?;
            let Some(known) = PARAMETERS
                .iter()
                .find(|known| known.eq_ignore_ascii_case(&name))
            else {
                continue;
            };
            if *known != name {
                return Err(Fault::Malformed(known));
            }
            if found.0.iter().any(|(other, _)| other == known) {
                return Err(Fault::Twice(known));
            }
            found.0.push((known, decoded(value, known)?));
        }
        Ok(found)
    }

    /// Whether any part of a signature is present; the payload's hash alone does not count.
    pub(super) fn is_any(&self) -> bool {
        self.0
            .iter()
            .any(|(name, _)| *name != "X-Amz-Content-Sha256")
    }

    /// The four texts that every signature has.
    pub(super) fn parts(&mut self) -> Result<SignatureTexts<'a>, Fault> {
        Ok(SignatureTexts {
            algorithm: Algorithm::named(&self.need("X-Amz-Algorithm")?)?,
            credential: self.need("X-Amz-Credential")?,
            signed: self.need("X-Amz-SignedHeaders")?,
            signature: self.need("X-Amz-Signature")?,
        })
    }

    /// Takes a parameter out, if it is there.
    pub(super) fn take(&mut self, name: &str) -> Option<Cow<'a, str>> {
        let at = self.0.iter().position(|(known, _)| *known == name)?;
        Some(self.0.swap_remove(at).1)
    }

    /// Takes out a parameter that must be there.
    pub(super) fn need(&mut self, name: &'static str) -> Result<Cow<'a, str>, Fault> {
        self.take(name).ok_or(Fault::Missing(name))
    }
}

/// Parses `Credential=…, SignedHeaders=…, Signature=…`, the rest of `Authorization` after the
/// algorithm.
pub(super) fn authorization(algorithm: Algorithm, text: &str) -> Result<SignatureTexts<'_>, Fault> {
    let (mut credential, mut signed, mut signature) = (None, None, None);
    for piece in text.split(',') {
        let (name, value) = piece
            .trim_matches([' ', '\t'])
            .split_once('=')
            .ok_or(Fault::Malformed("Authorization"))?;
        let slot = match name {
            "Credential" => &mut credential,
            "SignedHeaders" => &mut signed,
            "Signature" => &mut signature,
            _ => return Err(Fault::Malformed("Authorization")),
        };
        if slot.replace(Cow::Borrowed(value)).is_some() {
            return Err(Fault::Twice("Authorization"));
        }
    }
    Ok(SignatureTexts {
        algorithm,
        credential: credential.ok_or(Fault::Missing("Credential"))?,
        signed: signed.ok_or(Fault::Missing("SignedHeaders"))?,
        signature: signature.ok_or(Fault::Missing("Signature"))?,
    })
}

/// The single value of a field.
pub(super) fn one<'a>(
    fields: &'a HeaderMap,
    name: &HeaderName,
    said: &'static str,
) -> Result<Option<&'a str>, Fault> {
    let mut values = fields.get_all(name).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(Fault::Twice(said));
    }
    value.to_str().map(Some).map_err(|_| Fault::Malformed(said))
}

/// Whether a pair of a query may belong to the signature once its name is decoded; saves decoding
/// the rest.
fn is_candidate(pair: &str) -> bool {
    let name = pair.split_once('=').map_or(pair, |(name, _)| name);
    name.contains('%')
        || name
            .get(..6)
            .is_some_and(|start| start.eq_ignore_ascii_case("x-amz-"))
}

/// Whether a query parameter belongs to the signature, so that a new signature replaces it.
pub(super) fn is_replaced(name: &str) -> bool {
    is_candidate(name)
        && percent_decode_str(name)
            .decode_utf8()
            .is_ok_and(|name| REPLACED.contains(&name.as_ref()))
}

/// A `+` in a query is a space, here as for every server.
fn decoded<'a>(text: &'a str, said: &'static str) -> Result<Cow<'a, str>, Fault> {
    if !text.contains(['%', '+']) {
        return Ok(Cow::Borrowed(text));
    }
    let spaced = text.replace('+', " ");
    let decoded = percent_decode_str(&spaced).decode_utf8();
    decoded
        .map(|text| Cow::Owned(text.into_owned()))
        .map_err(|_| Fault::Malformed(said))
}

const REPLACED: &[&str] = PARAMETERS.split_at(8).0;
const PARAMETERS: &[&str] = &gateway_names::word_list::<10>(
    "X-Amz-Algorithm X-Amz-Credential X-Amz-Date X-Amz-Expires X-Amz-SignedHeaders \
     X-Amz-Signature X-Amz-Security-Token X-Amz-S3session-Token X-Amz-Region-Set \
     X-Amz-Content-Sha256",
);
