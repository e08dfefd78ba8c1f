//! Checks the path of a request.

use gateway_message::{AcceptedPart, Place};
use percent_encoding::percent_decode_str;

use super::Search;
use crate::detected::Location;
use crate::path_phantom::PathPhantom;
use crate::refusal::{CredentialRefusal, RequestPart};

impl Search<'_> {
    /// Lends the credential of a phantom in the path, and refuses any other credential there.
    pub(super) fn path(&mut self, lent: Option<PathPhantom>) -> Result<(), CredentialRefusal> {
        let part = RequestPart::Path;
        let is_lent = lent.is_some();
        if let Some(PathPhantom {
            bound,
            place,
            phantom,
            ..
        }) = lent
        {
            self.lend(&bound, place, Location::Path, phantom, part.clone())?;
        }
        let path = self.target.path();
        self.clean(path.as_bytes(), part.clone())?;
        for place in self.bound.iter().flat_map(|bound| &bound.binding.places) {
            if let Place::Path(kind) = place
                && let Some(other) = kind.loosely(path)
            {
                let text: Vec<u8> = percent_decode_str(&path[other]).collect();
                self.foreign(&text, part.clone(), None)?;
            }
        }
        if !is_lent && self.takes().any(|taken| taken.part == AcceptedPart::Path) {
            return Err(CredentialRefusal::Foreign { part });
        }
        Ok(())
    }
}
