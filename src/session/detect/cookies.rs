//! Checks each cookie of a request, and decides which cookies go to a managed origin.

use std::sync::Arc;

use gateway_message::{AcceptedPart, Place};
use http::HeaderValue;

use super::Search;
use crate::bindings::Bound;
use crate::detected::Location;
use crate::phantom::Phantom;
use crate::refusal::{CredentialRefusal, RequestPart};

impl Search<'_> {
    /// Checks each cookie separately.
    ///
    /// A managed origin gets only the cookies of places, and cookies known not to identify an
    /// account. A session cookie of the attacker's own would be a foreign credential under any
    /// name.
    pub(super) fn cookies(&mut self, value: &[u8]) -> Result<(), CredentialRefusal> {
        let mut rest = Vec::new();
        let mut kept = Vec::with_capacity(value.len());
        for piece in value.split(|byte| *byte == b';') {
            let trimmed = piece.trim_ascii();
            let equals = memchr::memchr(b'=', trimmed).unwrap_or(trimmed.len());
            let (name, content) = (
                &trimmed[..equals],
                trimmed.get(equals + 1..).unwrap_or_default(),
            );
            let before = if kept.is_empty() { &b""[..] } else { b"; " };
            let at = kept.len() + before.len() + equals + 1;
            let goes_on = match self.bound_cookie(name, content) {
                Some((bound, place, Some(phantom))) => {
                    let spot = Location::Cookie(at..at + content.len());
                    self.lend(&bound, place, spot, phantom, RequestPart::Cookie)?;
                    true
                }
                named if !content.is_empty() && (named.is_some() || self.takes_cookie(name)) => {
                    self.clean(content, RequestPart::Cookie)?;
                    self.foreign(content, RequestPart::Cookie, None)?;
                    true
                }
                _ => {
                    rest.push(trimmed);
                    self.passes_cookie(name, content)
                }
            };
            if goes_on && !trimmed.is_empty() {
                kept.extend_from_slice(before);
                kept.extend_from_slice(trimmed);
            }
        }
        if self.is_managed() {
            // Pieces of a valid value form a valid value. If they did not, no cookie would pass.
            let kept = HeaderValue::from_bytes(&kept);
            self.found.cookies = Some(kept.unwrap_or(HeaderValue::from_static("")));
        }
        // If no credential is used, search the whole value: a phantom may be split by a semicolon.
        if rest.len() == value.split(|byte| *byte == b';').count() {
            return self.clean(value, RequestPart::Cookie);
        }
        rest.into_iter()
            .try_for_each(|piece| self.clean(piece, RequestPart::Cookie))
    }

    /// Returns the binding with this cookie as a place, and the phantom if the cookie holds it.
    fn bound_cookie(
        &self,
        name: &[u8],
        content: &[u8],
    ) -> Option<(Arc<Bound>, usize, Option<Phantom>)> {
        let mut named = None;
        for bound in self.bound {
            for (at, place) in bound.binding.places.iter().enumerate() {
                if matches!(place, Place::Cookie(cookie) if cookie.as_bytes() == name) {
                    let phantom = self.is_phantom(bound, content);
                    if phantom.is_some() {
                        return Some((Arc::clone(bound), at, phantom));
                    }
                    named = Some((Arc::clone(bound), at, None));
                }
            }
        }
        named
    }

    fn takes_cookie(&self, name: &[u8]) -> bool {
        self.takes().any(
            |taken| matches!(&taken.part, AcceptedPart::Cookie(cookie) if cookie.as_bytes() == name),
        )
    }

    /// Whether a cookie goes to a managed origin although it is not a place.
    fn passes_cookie(&self, name: &[u8], content: &[u8]) -> bool {
        let mut named = self.bound.iter().flat_map(|bound| &bound.binding.cookies);
        let named = named.any(|cookie| cookie == "*" || cookie.as_bytes() == name);
        // Some origins end a cookie at a comma and read the rest as the next cookie (RFC 6265
        // §4.1.1 does not allow a comma in a value).
        let plain = || !content.iter().any(|byte| b"\",\\ \t".contains(byte));
        let known = || {
            HARMLESS_COOKIES
                .iter()
                .any(|cookie| cookie.as_bytes() == name)
        };
        named || (known() && plain())
    }
}

/// Cookies of load balancers and bot detection. Clients that keep cookies send them back, and they
/// do not identify an account.
const HARMLESS_COOKIES: [&str; 14] = gateway_names::word_list(
    "__cf_bm _cfuvid __cfruid __cflb cf_clearance AWSALB AWSALBCORS AWSALBTG AWSALBTGCORS AWSELB \
     AWSELBCORS GCLB ARRAffinity ARRAffinitySameSite",
);
