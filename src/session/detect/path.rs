//! Checks the path of a request, and masks the phantom that is lent there.

use std::sync::Arc;

use percent_encoding::percent_decode_str;

use super::{Search, phantom_of};
use crate::message::{Place, RequestHead, RequestTarget, TakenPart};
use crate::session::bindings::Bound;
use crate::session::detected::Location;
use crate::session::phantom::{Phantom, Phantoms};
use crate::session::refusal::{CredentialRefusal, RequestPart};

/// A phantom that stands in a place of the path.
pub(super) struct InPath {
    bound: Arc<Bound>,
    place: usize,
    phantom: Phantom,
    /// The target with `{}` in its place.
    pub(super) target: RequestTarget,
}

/// Finds the phantom in the path. A second one stays there, and is refused.
pub(super) fn find(head: &RequestHead, all: &[Arc<Bound>], phantoms: &Phantoms) -> Option<InPath> {
    let path = head.target.path();
    let found = |(bound, (place, kind)): (&Arc<Bound>, (usize, &Place))| {
        let Place::Path(kind) = kind else {
            return None;
        };
        let part = kind.find(path)?;
        let text: Vec<u8> = percent_decode_str(&path[part.clone()]).collect();
        Some(InPath {
            bound: bound.clone(),
            place,
            phantom: phantom_of(phantoms, bound, &text)?,
            target: head.target.lending(part),
        })
    };
    let places = all.iter().flat_map(|bound| {
        let places = bound.binding.places.iter().enumerate();
        places.map(move |place| (bound, place))
    });
    places.filter_map(found).next()
}

impl Search<'_> {
    /// Lends what stands in the path, and refuses any other credential there.
    pub(super) fn path(&mut self, lent: Option<InPath>) -> Result<(), CredentialRefusal> {
        let part = RequestPart::Path;
        let is_lent = lent.is_some();
        if let Some(InPath {
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
        if !is_lent && self.takes().any(|taken| taken.part == TakenPart::Path) {
            return Err(CredentialRefusal::Foreign { part });
        }
        Ok(())
    }
}
