//! The signatures made for a session. For some minutes, each authorizes its request for any sender.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use zeroize::Zeroizing;

use super::scrub::{SHORTEST, SecretForms};
use super::secret::mask;

/// A signature as text.
pub(super) struct Signature {
    text: Zeroizing<Vec<u8>>,
    /// Built only when a response is searched for it, which is rare.
    forms: OnceLock<Option<Arc<SecretForms>>>,
}

impl Signature {
    /// Returns the forms in which services repeat it.
    pub(super) fn forms(&self) -> Option<Arc<SecretForms>> {
        let made = || SecretForms::of_text(&self.text, &mask(&self.text)).ok();
        self.forms.get_or_init(|| made().map(Arc::new)).clone()
    }
}

/// The latest signatures of a session.
#[derive(Default)]
pub(super) struct Signatures(Mutex<RecentSignatures>);

#[derive(Default)]
struct RecentSignatures {
    signatures: VecDeque<(Instant, Arc<Signature>)>,
    /// The number of all signatures so far.
    number: u64,
}

impl Signatures {
    /// Keeps a signature's texts while it is valid, and returns the ones that can be searched for.
    pub(super) fn keep(&self, texts: Vec<Vec<u8>>) -> Vec<Arc<Signature>> {
        // Masking a text that looks like a mask would change nothing.
        let hides = |text: &Vec<u8>| text.len() >= SHORTEST && mask(text)[..] != text[..];
        let signature = |text| {
            Arc::new(Signature {
                text: Zeroizing::new(text),
                forms: OnceLock::new(),
            })
        };
        let kept: Vec<_> = texts.into_iter().filter(hides).map(signature).collect();
        let mut late = self.0.lock();
        late.number += kept.len() as u64;
        let now = Instant::now();
        late.signatures
            .extend(kept.iter().map(|one| (now, one.clone())));
        let surplus = late.signatures.len().saturating_sub(MOST_SIGNATURES);
        late.signatures.drain(..surplus);
        kept
    }

    pub(super) fn are_none(&self) -> bool {
        let late = self.0.lock();
        late.signatures.is_empty()
    }

    /// Returns the latest signatures that are still valid, and the number of all so far.
    pub(super) fn that_hold(&self) -> (u64, Vec<Arc<Signature>>) {
        let late = self.0.lock();
        let holds = |made: &Instant| made.elapsed() < HOLDS_FOR;
        let hold = late.signatures.iter().filter(|(made, _)| holds(made));
        (late.number, hold.map(|(_, one)| one.clone()).collect())
    }
}

/// The number of a session's latest signatures that are searched for.
const MOST_SIGNATURES: usize = 32;

/// AWS accepts a signature for 15 minutes, other services for less.
const HOLDS_FOR: Duration = Duration::from_secs(15 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_kept_so_many_and_none_that_hides_nothing() {
        let signatures = Signatures::default();
        assert!(signatures.are_none());
        for at in 0..100 {
            signatures.keep(vec![format!("signature/{at}+=").into_bytes()]);
        }
        assert_eq!(signatures.that_hold().1.len(), MOST_SIGNATURES);
        let none = signatures.keep(vec![b"xxxxxxxxxx".to_vec(), b"short".to_vec()]);
        assert!(none.is_empty() && signatures.that_hold().0 == 100);
    }
}
