//! Finds and masks a phantom in the path of a request.

use std::sync::Arc;

use gateway_message::{Place, RequestHead, RequestTarget};
use percent_encoding::percent_decode_str;

use super::bindings::Bound;
use super::phantom::{Phantom, Phantoms};

/// A phantom in a place of the path.
pub(super) struct PathPhantom {
    pub(super) bound: Arc<Bound>,
    pub(super) place: usize,
    pub(super) phantom: Phantom,
    /// The target with `{}` in place of the phantom.
    pub(super) target: RequestTarget,
}

/// Finds the phantom in the path. A second one stays there, and is refused.
pub(super) fn find_in_path(
    head: &RequestHead,
    all: &[Arc<Bound>],
    phantoms: &Phantoms,
) -> Option<PathPhantom> {
    let path = head.target.path();
    let found = |(bound, (place, kind)): (&Arc<Bound>, (usize, &Place))| {
        let Place::Path(kind) = kind else {
            return None;
        };
        let part = kind.find(path)?;
        let text: Vec<u8> = percent_decode_str(&path[part.clone()]).collect();
        Some(PathPhantom {
            bound: bound.clone(),
            place,
            phantom: bound.presented(phantoms, &text)?,
            target: head.target.lending(part),
        })
    };
    let places = all.iter().flat_map(|bound| {
        let places = bound.binding.places.iter().enumerate();
        places.map(move |place| (bound, place))
    });
    places.filter_map(found).next()
}
