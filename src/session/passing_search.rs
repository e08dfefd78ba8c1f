//! Notes the credentials whose phantoms are in a request's content, while it is sent.

use std::sync::Arc;

use gateway_audit::SeenCredentials;

use super::phantom::Phantoms;

/// Searches content that arrives in pieces of any size. It changes nothing.
pub(super) struct PassingSearch {
    phantoms: Arc<Phantoms>,
    found: Arc<SeenCredentials>,
    text: PassingText,
}

/// A text that passes in pieces of any size, and is searched for what is shorter than a reach.
#[derive(Clone, Default)]
pub struct PassingText {
    /// The last bytes of earlier pieces: one fewer than the reach.
    tail: Vec<u8>,
}

impl PassingText {
    /// Has the next piece searched, and before it what crosses its beginning. Ends with the first
    /// finding.
    pub fn pass<F>(
        &mut self,
        piece: &[u8],
        reach: usize,
        mut find: impl FnMut(&[u8]) -> Option<F>,
    ) -> Option<F> {
        let reach = reach.saturating_sub(1);
        if !self.tail.is_empty() {
            let before = self.tail.len();
            self.tail.extend(piece.iter().take(reach));
            let found = find(&self.tail);
            self.tail.truncate(before);
            if found.is_some() {
                return found;
            }
        }
        let found = find(piece);
        let kept = &piece[piece.len().saturating_sub(reach)..];
        let surplus = (self.tail.len() + kept.len()).saturating_sub(reach);
        self.tail.drain(..surplus);
        self.tail.extend_from_slice(kept);
        found
    }
}

impl PassingSearch {
    pub(super) fn new(phantoms: Arc<Phantoms>, found: Arc<SeenCredentials>) -> Self {
        Self {
            phantoms,
            found,
            text: PassingText::default(),
        }
    }

    /// Searches the next piece.
    pub(super) fn pass(&mut self, piece: &[u8]) {
        let (phantoms, found) = (&self.phantoms, &self.found);
        let reach = phantoms.longest_passing();
        self.text.pass(piece, reach, |text| {
            note(phantoms, found, text);
            None::<()>
        });
    }
}

/// Notes each credential whose phantom is in this piece of the content.
pub(super) fn note(phantoms: &Phantoms, found: &SeenCredentials, part: &[u8]) {
    phantoms.find_passing(part).for_each(|one| found.add(one));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::super::stage::{name, stage};
    use super::*;

    /// Returns the credentials that are noted in content that is sent in these pieces.
    fn noted<'p>(pieces: impl Iterator<Item = &'p [u8]>) -> Vec<String> {
        let found = Arc::new(SeenCredentials::of(9));
        let mut search = PassingSearch::new(Arc::new(stage().phantoms), found.clone());
        pieces.for_each(|piece| search.pass(piece));
        let mut told = Vec::new();
        found.tell(&mut told, &mut None);
        told.iter().map(|one| one.credential.to_string()).collect()
    }

    #[test]
    fn a_phantom_is_noted_as_forms_and_json_write_it() {
        let phantom = stage().of("padded");
        let percent = phantom.replace('+', "%2B").replace('/', "%2F");
        let form = percent.replace('=', "%3D");
        let json = phantom.replace('/', "\\/");
        for text in [&phantom, &form, &form.replace("%2B", "%2b"), &json] {
            assert_eq!(noted([text.as_bytes()].into_iter()), ["padded"], "{text}");
        }
        assert!(noted([&phantom.as_bytes()[1..]].into_iter()).is_empty());
    }

    proptest! {
        #[test]
        fn a_phantom_is_noted_once_however_the_content_is_cut(
            lead in "[ -~]{0,200}",
            cuts in prop::collection::vec(any::<Index>(), 0..40),
        ) {
            let stage = stage();
            let (one, other) = (stage.of("github"), stage.of("padded"));
            let text = format!("{lead}{one}{lead}{other}{one}x{}", stage.theirs.of(&name("other")).unwrap().reveal());
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let found = noted(cuts.windows(2).map(|cut| &text.as_bytes()[cut[0]..cut[1]]));
            prop_assert_eq!(found, ["github", "padded"]);
        }
    }
}
