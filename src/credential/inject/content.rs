//! Replaces phantoms with their secrets in held content, each exactly once.

use std::ops::Range;

use gateway_body::HeldBody;
use gateway_body::fact::escaped;
use gateway_intercept::Request;
use gateway_message::Place;
use gateway_session::CredentialUse;
use zeroize::Zeroizing;

use super::AttachFailure;
use crate::secret::{Secret, SecretUnsafe};

/// Inserts each secret at the position of its phantom, escaped for its place. Every other byte is
/// unchanged.
///
/// The result is never searched again, so a secret that contains a phantom stays unchanged.
///
/// # Errors
/// [`AttachFailure`] by cause. Nothing is changed then.
pub fn inject_in_content(
    request: &mut Request,
    found: Vec<(Range<usize>, &CredentialUse, &Secret)>,
) -> Result<(), AttachFailure> {
    let held = request.content.ahead().map(HeldBody::whole);
    let content = spliced(&held.ok_or(AttachFailure::Moved)?, found)?;
    request.replace_content(content.into());
    Ok(())
}

/// Returns the text with the secrets in place of their phantoms.
///
/// # Errors
/// [`AttachFailure`] by cause.
pub(super) fn spliced(
    text: &[u8],
    mut found: Vec<(Range<usize>, &CredentialUse, &Secret)>,
) -> Result<Vec<u8>, AttachFailure> {
    found.sort_by_key(|(at, ..)| at.start);
    let written = found.iter().map(|(_, lend, secret)| written(lend, secret));
    let written: Vec<_> = written.collect::<Result<_, _>>()?;
    // Allocate the full size at once: a growing vector would leave copies behind.
    let more: usize = written.iter().map(|text| text.len()).sum();
    let (mut content, mut from) = (Vec::with_capacity(text.len() + more), 0);
    for ((at, ..), secret) in found.iter().zip(&written) {
        content.extend_from_slice(text.get(from..at.start).ok_or(AttachFailure::Moved)?);
        content.extend_from_slice(secret.as_bytes());
        from = at.end;
    }
    content.extend_from_slice(text.get(from..).ok_or(AttachFailure::Moved)?);
    Ok(content)
}

/// Returns the secret as it is encoded in its place.
fn written(lend: &CredentialUse, secret: &Secret) -> Result<Zeroizing<String>, SecretUnsafe> {
    if secret.is(lend.phantom().reveal().as_bytes()) {
        return Err(SecretUnsafe::Phantom);
    }
    let text = std::str::from_utf8(secret.expose()).map_err(|_| SecretUnsafe::Character)?;
    // Some readers end a part at any `--BOUNDARY`, and the client chose the boundary.
    if matches!(lend.place(), Place::Multipart(_)) && text.contains("--") {
        return Err(SecretUnsafe::Place);
    }
    Ok(Zeroizing::new(escaped(lend.place(), text)))
}
