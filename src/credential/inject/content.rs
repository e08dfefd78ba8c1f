//! Replaces phantoms with their secrets in held content, each exactly once.

use std::ops::Range;

use super::AttachFailure;
use crate::body::Held;
use crate::body::fact::escaped;
use crate::credential::secret::{Secret, SecretUnsafe};
use crate::intercept::Request;
use crate::message::Place;
use crate::session::CredentialUse;

/// Inserts each secret, escaped as its place demands, where its phantom was found. Every other byte
/// stays.
///
/// The result is never searched again, so a secret that contains a phantom stays unchanged.
///
/// # Errors
/// [`AttachFailure`] by cause. Nothing is changed then.
pub fn inject_in_content(
    request: &mut Request,
    mut found: Vec<(Range<usize>, &CredentialUse, &Secret)>,
) -> Result<(), AttachFailure> {
    found.sort_by_key(|(at, ..)| at.start);
    let held = request.content.held().map(Held::whole);
    let held = held.ok_or(AttachFailure::Moved)?;
    let (mut pieces, mut from) = (Vec::new(), 0);
    for (at, lend, secret) in found {
        if secret.is(lend.phantom().reveal().as_bytes()) {
            return Err(SecretUnsafe::Phantom.into());
        }
        let text = std::str::from_utf8(secret.expose()).map_err(|_| SecretUnsafe::Character)?;
        // Some readers end a part at any `--BOUNDARY`, and the client chose the boundary.
        if matches!(lend.place(), Place::Multipart(_)) && text.contains("--") {
            return Err(SecretUnsafe::Place.into());
        }
        let before = held.get(from..at.start).ok_or(AttachFailure::Moved)?;
        let text = escaped(lend.place(), text).into_bytes();
        pieces.extend([before.to_vec(), text]);
        from = at.end;
    }
    pieces.push(held.get(from..).ok_or(AttachFailure::Moved)?.to_vec());
    request.replace_content(pieces.concat().into());
    Ok(())
}
