//! Replaces a phantom with its secret, exactly once, in fields that are never indexed or printed.

pub(super) mod content;
pub(super) mod messages;

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gateway_message::pairs::ESCAPED;
use gateway_message::{Place, RequestTarget, TargetMalformed};
use gateway_session::{CredentialUse, Location};
use http::{HeaderMap, HeaderValue, header};
use percent_encoding::utf8_percent_encode;
use zeroize::Zeroizing;

use super::secret::{Secret, SecretUnsafe};

gateway_names::faults! {
    /// Why a secret was not inserted. Nothing is sent then.
    #[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
    pub enum AttachFailure {
        /// The secret expired between fetching and insertion.
        Expired = SecretUnavailable "the secret expired before it was put in",
        /// The secret is not valid in that place.
        Unsafe(#[from] SecretUnsafe) = SecretUnsafe transparent,
        /// The request changed after it was searched.
        Moved = PhantomPosition "the phantom is no longer where it was found",
        /// The result would not be a valid request target.
        Target(#[from] TargetMalformed) = PhantomPosition transparent,
    }
}

/// The field values built from one secret, by place. They are cached, because building is costly.
pub(super) struct FieldValues {
    secret: Arc<Secret>,
    values: Vec<Option<HeaderValue>>,
}

/// Inserts one secret. The whole field is replaced, so that exactly one credential goes out (H20).
///
/// The secret may differ in length from its phantom, which keeps the length that the secret had
/// when the session began (ADR 2).
///
/// The result is never searched again, so a secret that contains a phantom stays unchanged (H08).
///
/// # Errors
/// [`AttachFailure`] by cause. The request may be changed in part and must be dropped.
pub fn inject(
    fields: &mut HeaderMap,
    target: &mut RequestTarget,
    lend: &CredentialUse,
    secret: &Arc<Secret>,
    ready: &ArcSwapOption<FieldValues>,
) -> Result<(), AttachFailure> {
    // The session never saw a renewed secret, nor one with a declared shape. If the phantom equals
    // the secret by chance, stop here.
    if secret.is(lend.phantom().reveal().as_bytes()) {
        return Err(SecretUnsafe::Phantom.into());
    }
    match lend.place() {
        Place::Header { name, .. } => {
            let value = prepared(lend, secret, ready)?;
            fields.insert(name.clone(), value);
        }
        Place::BasicUser | Place::BasicPassword => {
            fields.insert(header::AUTHORIZATION, basic(lend, secret)?);
        }
        Place::Cookie(name) => {
            let value = cookie(fields.get(header::COOKIE), name, lend, secret)?;
            fields.insert(header::COOKIE, value);
        }
        Place::Query(name) => *target = query(target, name, lend, secret)?,
        Place::Path(_) => *target = path(target, secret)?,
        // A secret that signs is never inserted, and content is changed all at once.
        Place::Form(_)
        | Place::Json(_)
        | Place::Multipart(_)
        | Place::WebSocket(_)
        | Place::Signature(_) => return Err(AttachFailure::Moved),
    }
    Ok(())
}

/// Returns the field's value, built once per secret and place.
fn prepared(
    lend: &CredentialUse,
    secret: &Arc<Secret>,
    ready: &ArcSwapOption<FieldValues>,
) -> Result<HeaderValue, AttachFailure> {
    let place = lend.place_index();
    let known = ready.load();
    if let Some(known) = known
        .as_ref()
        .filter(|known| Arc::ptr_eq(&known.secret, secret))
    {
        return known.values[place]
            .clone()
            .ok_or(AttachFailure::Unsafe(SecretUnsafe::Place));
    }
    let values = lend.places().iter();
    let values: Vec<_> = values.map(|place| field_value(place, secret)).collect();
    let value = values[place].clone();
    ready.store(Some(Arc::new(FieldValues {
        secret: Arc::clone(secret),
        values,
    })));
    value.ok_or(AttachFailure::Unsafe(SecretUnsafe::Place))
}

fn field_value(place: &Place, secret: &Secret) -> Option<HeaderValue> {
    match place {
        Place::Header { scheme: None, .. } => sensitive(secret.expose()),
        Place::Header {
            scheme: Some(scheme),
            ..
        } => sensitive(&joined(&[scheme.as_bytes(), b" ", secret.expose()])),
        _ => None,
    }
}

/// Basic credentials (RFC 7617): the user name ends at the first colon, so it cannot contain one.
fn basic(lend: &CredentialUse, secret: &Secret) -> Result<HeaderValue, AttachFailure> {
    let given = lend.basic_user().unwrap_or_default().as_bytes();
    let other = match lend.spot() {
        Location::Basic(other) => other.as_slice(),
        Location::Absent => given,
        _ => return Err(AttachFailure::Moved),
    };
    let pair = if *lend.place() == Place::BasicUser {
        if secret.expose().contains(&b':') {
            return Err(SecretUnsafe::Place.into());
        }
        joined(&[
            secret.expose(),
            b":",
            if matches!(lend.spot(), Location::Absent) {
                b""
            } else {
                other
            },
        ])
    } else {
        joined(&[other, b":", secret.expose()])
    };
    let encoded = Zeroizing::new(STANDARD.encode(&pair));
    sensitive(&joined(&[b"Basic ", encoded.as_bytes()]))
        .ok_or(AttachFailure::Unsafe(SecretUnsafe::Place))
}

/// The cookie field (RFC 6265 §4.1.1): a value has no quotes, commas, semicolons or backslashes.
fn cookie(
    field: Option<&HeaderValue>,
    name: &str,
    lend: &CredentialUse,
    secret: &Secret,
) -> Result<HeaderValue, AttachFailure> {
    if secret.expose().iter().any(|byte| b"\",;\\".contains(byte)) {
        return Err(SecretUnsafe::Place.into());
    }
    let field = field.map_or(&b""[..], HeaderValue::as_bytes);
    let value = match lend.spot() {
        Location::Cookie(at) => {
            if field.get(at.clone()) != Some(lend.phantom().reveal().as_bytes()) {
                return Err(AttachFailure::Moved);
            }
            joined(&[&field[..at.start], secret.expose(), &field[at.end..]])
        }
        Location::Absent if field.is_empty() => joined(&[name.as_bytes(), b"=", secret.expose()]),
        Location::Absent => joined(&[field, b"; ", name.as_bytes(), b"=", secret.expose()]),
        _ => return Err(AttachFailure::Moved),
    };
    sensitive(&value).ok_or(AttachFailure::Unsafe(SecretUnsafe::Place))
}

fn query(
    target: &RequestTarget,
    name: &str,
    lend: &CredentialUse,
    secret: &Secret,
) -> Result<RequestTarget, AttachFailure> {
    // Every secret was checked to be visible ASCII when it was read.
    let text = std::str::from_utf8(secret.expose()).map_err(|_| SecretUnsafe::Character)?;
    match *lend.spot() {
        Location::Query(at) => {
            let there = target
                .query_pairs()
                .nth(at)
                .is_some_and(|(_, value)| value == lend.phantom().reveal());
            if !there {
                return Err(AttachFailure::Moved);
            }
            Ok(target.with_query_value(at, text)?)
        }
        Location::Absent => {
            let mark = if target.query().is_some() { "&" } else { "" };
            let name = utf8_percent_encode(name, ESCAPED);
            let value = utf8_percent_encode(text, ESCAPED);
            let before = target.query().unwrap_or_default();
            let query = Zeroizing::new(format!("{before}{mark}{name}={value}"));
            Ok(target.with_query(&query)?)
        }
        _ => Err(AttachFailure::Moved),
    }
}

/// Inserts the secret at `{}` in the path, which must remain the path that was judged.
fn path(target: &RequestTarget, secret: &Secret) -> Result<RequestTarget, AttachFailure> {
    let text = std::str::from_utf8(secret.expose()).map_err(|_| SecretUnsafe::Character)?;
    target.with_lent(text).map_err(|why| match why {
        TargetMalformed::NoSuchParameter => AttachFailure::Moved,
        TargetMalformed::TooLong => why.into(),
        _ => SecretUnsafe::Place.into(),
    })
}

fn joined(parts: &[&[u8]]) -> Zeroizing<Vec<u8>> {
    // Allocate the full size at once: a growing vector would leave copies behind.
    let mut whole = Zeroizing::new(Vec::with_capacity(
        parts.iter().map(|part| part.len()).sum(),
    ));
    for part in parts {
        whole.extend_from_slice(part);
    }
    whole
}

/// Makes a value that HPACK never indexes (RFC 7541 §7.1.3) and that Debug does not print.
fn sensitive(bytes: &[u8]) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_bytes(bytes).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests;
