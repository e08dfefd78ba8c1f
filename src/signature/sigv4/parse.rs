//! Finds the parts of a signature: the `Authorization` field, and the `X-Amz-` parameters of a
//! query.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName};
use percent_encoding::percent_decode_str;

use super::algorithm::Algorithm;
use super::fault::Fault;

/// The texts of a signature, wherever they were.
pub(super) struct Parts<'a> {
    pub(super) algorithm: Algorithm,
    pub(super) credential: Cow<'a, str>,
    pub(super) signed: Cow<'a, str>,
    pub(super) signature: Cow<'a, str>,
}

/// The parameters of a presigned request that belong to the signature and not to the request.
#[derive(Default)]
pub(super) struct Presigned<'a> {
    pub(super) algorithm: Option<Cow<'a, str>>,
    pub(super) credential: Option<Cow<'a, str>>,
    pub(super) date: Option<Cow<'a, str>>,
    pub(super) expires: Option<Cow<'a, str>>,
    pub(super) signed: Option<Cow<'a, str>>,
    pub(super) signature: Option<Cow<'a, str>>,
    pub(super) token: Option<Cow<'a, str>>,
    pub(super) express_token: Option<Cow<'a, str>>,
    pub(super) regions: Option<Cow<'a, str>>,
    pub(super) payload: Option<Cow<'a, str>>,
}

impl<'a> Presigned<'a> {
    /// Collects them from a raw query. Refuses a name in another case than AWS writes it, because
    /// servers differ there.
    pub(super) fn read(query: &'a str) -> Result<Self, Fault> {
        let mut found = Presigned::default();
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
            let slot = found.slot(known);
            if slot.is_some() {
                return Err(Fault::Twice(known));
            }
            *slot = Some(decoded(value, known)?);
        }
        Ok(found)
    }

    /// Whether any part of a signature is present; the payload's hash alone does not count.
    pub(super) fn is_any(&self) -> bool {
        self.algorithm.is_some()
            || self.credential.is_some()
            || self.date.is_some()
            || self.expires.is_some()
            || self.signed.is_some()
            || self.signature.is_some()
            || self.token.is_some()
            || self.express_token.is_some()
            || self.regions.is_some()
    }

    /// The four texts that every signature has.
    pub(super) fn parts(&mut self) -> Result<Parts<'a>, Fault> {
        let algorithm = self
            .algorithm
            .take()
            .ok_or(Fault::Missing("X-Amz-Algorithm"))?;
        Ok(Parts {
            algorithm: Algorithm::named(&algorithm)?,
            credential: self
                .credential
                .take()
                .ok_or(Fault::Missing("X-Amz-Credential"))?,
            signed: self
                .signed
                .take()
                .ok_or(Fault::Missing("X-Amz-SignedHeaders"))?,
            signature: self
                .signature
                .take()
                .ok_or(Fault::Missing("X-Amz-Signature"))?,
        })
    }

    fn slot(&mut self, name: &str) -> &mut Option<Cow<'a, str>> {
        match name {
            "X-Amz-Algorithm" => &mut self.algorithm,
            "X-Amz-Credential" => &mut self.credential,
            "X-Amz-Date" => &mut self.date,
            "X-Amz-Expires" => &mut self.expires,
            "X-Amz-SignedHeaders" => &mut self.signed,
            "X-Amz-Signature" => &mut self.signature,
            "X-Amz-Security-Token" => &mut self.token,
            "X-Amz-S3session-Token" => &mut self.express_token,
            "X-Amz-Region-Set" => &mut self.regions,
            _ => &mut self.payload,
        }
    }
}

/// Parses `Credential=…, SignedHeaders=…, Signature=…`, the rest of `Authorization` after the
/// algorithm.
pub(super) fn authorization(algorithm: Algorithm, text: &str) -> Result<Parts<'_>, Fault> {
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
    Ok(Parts {
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
const PARAMETERS: &[&str] = &[
    "X-Amz-Algorithm",
    "X-Amz-Credential",
    "X-Amz-Date",
    "X-Amz-Expires",
    "X-Amz-SignedHeaders",
    "X-Amz-Signature",
    "X-Amz-Security-Token",
    "X-Amz-S3session-Token",
    "X-Amz-Region-Set",
    "X-Amz-Content-Sha256",
];
