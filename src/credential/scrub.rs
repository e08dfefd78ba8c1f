//! Replaces every echo of a lent secret in a streamed response with its phantom.
//!
//! If the phantom has the secret's shape, it overwrites the echo, so no length changes and
//! `Content-Length` stays true. A renewed secret may have another length. Its phantom then replaces
//! a whole echo if the content's length may change; otherwise a mask overwrites the echo.
//!
//! Every whole echo is replaced, even where echoes overlap. For secrets with a `DrawnPart`, every
//! piece of a given length is replaced too: in fields, in the first [`FINE`] bytes of content or of
//! a message, and at each end.
//!
//! Bytes whose shape could begin an echo are held back until more arrives or the content ends,
//! however long that takes. The held length depends only on facts that phantoms reveal as well. If
//! only the beginning of a real secret were held, a workload could make an origin send guesses, and
//! learn from the delay how much of each is right. Replaced pieces reveal the same, so they are
//! counted ([`Guesses`](super::guesses::Guesses)); after a few, the session is shown no more.

mod body;
mod fault;
mod form;
mod forms;
mod frames;
mod index;
mod messages;
mod needles;
mod partial;
mod piece;
mod search;
mod sextets;
mod spelling;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use zeroize::Zeroizing;

pub use body::{ScrubBody, ScrubFault};
pub use fault::{Guessed, Unscrubbable};
pub use forms::SecretForms;
pub use frames::{FrameFault, ScrubFrames};
pub use search::EchoSearch;

pub(super) use fault::SHORTEST;
pub(super) use form::alike;
pub(super) use needles::SharedNeedles;

use search::{Echo, Scan};

/// Original bytes that were already passed on. Rarely used, so it is small when empty.
type PassedBytes = Box<Zeroizing<Vec<u8>>>;

/// Returns the session's search if it has changed. A secret may be lent or renewed during a stream.
pub(crate) type SearchUpdate = Box<dyn FnMut() -> Option<Arc<EchoSearch>> + Send + Sync>;

/// Replaces echoes in one stream of bytes, however it is split.
///
/// Holds back only a tail whose shape could begin an echo. Has no `Debug`, because it may hold part
/// of a secret.
pub struct Scrubber {
    search: Arc<EchoSearch>,
    newer: Option<SearchUpdate>,
    /// The original bytes from which the search continues.
    held: Bytes,
    /// How many of the held bytes were passed on anyway.
    shown: usize,
    /// The original bytes just before the held ones, in case a piece began there.
    past: PassedBytes,
    /// For how many more bytes pieces are searched for; [`usize::MAX`] means no limit.
    fine: usize,
    /// Echoes that extend into the held bytes.
    open: Vec<Echo>,
    replaced: u64,
    /// Whether the length of the stream may change.
    resizes: bool,
}

impl Scrubber {
    /// Creates a scrubber for the start of a stream.
    pub fn new(search: Arc<EchoSearch>) -> Self {
        Self {
            search,
            newer: None,
            held: Bytes::new(),
            shown: 0,
            past: PassedBytes::default(),
            fine: FINE,
            open: Vec::new(),
            replaced: 0,
            resizes: false,
        }
    }

    /// Also replaces echoes with phantoms of another length.
    ///
    /// Nothing may rely on the length of the stream, and nothing is [released](Self::release)
    /// before its end.
    pub(crate) fn resizing(mut self) -> Self {
        self.resizes = self.search.resizes();
        self
    }

    /// Searches later bytes with the session's search at that time.
    pub(crate) fn following(mut self, newer: SearchUpdate) -> Self {
        self.newer = Some(newer);
        self
    }

    fn renew(&mut self) {
        // Open echoes refer to the search that found them by number.
        if self.open.is_empty()
            && let Some(newer) = &mut self.newer
            && let Some(search) = newer()
        {
            self.search = search;
        }
    }

    /// Searches for pieces without a byte limit, for streams that deliver little at a time.
    fn look_closely(&mut self) {
        self.fine = usize::MAX;
    }

    /// Returns an error if no more of the stream may be passed on.
    ///
    /// # Errors
    /// [`Guessed`].
    pub fn check(&self) -> Result<(), Guessed> {
        if self.search.guesses().are_spent() {
            Err(Guessed)
        } else {
            Ok(())
        }
    }

    /// Returns how many echoes have been replaced so far.
    pub fn replaced(&self) -> u64 {
        self.replaced
    }

    /// Returns how many bytes are held back.
    pub fn held(&self) -> usize {
        self.held.len() - self.shown
    }

    /// Releases the held bytes, with whole echoes replaced, at the end of a message within the
    /// stream.
    ///
    /// The receiver then has the whole message and can answer. If an echo continues after this
    /// point, only its rest is replaced.
    fn release(&mut self) -> Bytes {
        if self.held() == 0 {
            return Bytes::new();
        }
        self.fine = self.fine.max(FINE);
        let mut owned = BytesMut::from(&self.held[..]);
        let mut found = self.search.scan(&self.held, true, self.held.len()).found;
        self.add_those_before(&self.held, &mut found);
        found.retain(|echo| !self.is_open(echo));
        self.search.count(&found);
        self.search.name_whole(&mut found, &self.open, false);
        // Earlier echoes may extend into it.
        found.extend(&self.open);
        self.search.write(&mut found, &mut owned);
        let shown = std::mem::replace(&mut self.shown, self.held.len());
        owned.freeze().split_off(shown)
    }

    /// Discards the held bytes after the stream failed.
    fn forget(&mut self) {
        self.held.clear();
        self.past.clear();
        self.shown = 0;
    }

    /// Adds the pieces that begin in bytes already passed on.
    fn add_those_before(&self, bytes: &[u8], found: &mut Vec<Echo>) {
        if !self.past.is_empty() {
            self.search.scan_border(&self.past, bytes, found);
        }
    }

    /// Takes the next bytes and returns the settled ones; the same `Bytes` if nothing was replaced.
    pub fn push(&mut self, chunk: Bytes) -> Bytes {
        self.renew();
        let bytes = if self.held.is_empty() {
            chunk
        } else {
            self.join(chunk)
        };
        let scan = self.search.scan(&bytes, false, self.fine);
        let settled = self.settle(bytes, scan);
        self.unseen(settled)
    }

    /// Returns the held bytes at the end of the stream. The scrubber can then be reused.
    pub fn finish(&mut self) -> Bytes {
        let bytes = std::mem::take(&mut self.held);
        let scan = self.search.scan(&bytes, true, bytes.len());
        let settled = self.settle(bytes, scan);
        self.past.clear();
        self.fine = self.fine.max(FINE);
        self.unseen(settled)
    }

    /// Returns the settled bytes that were not passed on before.
    fn unseen(&mut self, mut settled: Bytes) -> Bytes {
        let shown = self.shown.min(settled.len());
        self.shown -= shown;
        settled.split_off(shown)
    }

    fn join(&mut self, chunk: Bytes) -> Bytes {
        let held = std::mem::take(&mut self.held);
        let mut joined = BytesMut::with_capacity(held.len() + chunk.len());
        joined.extend_from_slice(&held);
        joined.extend_from_slice(&chunk);
        joined.freeze()
    }

    /// Replaces the echoes before the held part and keeps the rest. `open` and `scan` count from
    /// the start of `bytes`.
    fn settle(&mut self, mut bytes: Bytes, scan: Scan) -> Bytes {
        let Scan { mut found, hold } = scan;
        if hold > 0 {
            self.add_those_before(&bytes, &mut found);
        }
        self.remember(&bytes[..hold]);
        if hold < bytes.len() {
            self.held = bytes.split_off(hold);
        }
        // The next bytes will reveal again an echo that begins in the held part, and the rest of a
        // known one.
        found.retain(|echo| echo.start < hold as isize && !self.is_open(echo));
        if self.fine != usize::MAX {
            self.fine = self.fine.saturating_sub(bytes.len());
        }
        if found.is_empty() && self.open.is_empty() {
            return bytes;
        }
        self.search.count(&found);
        self.replaced += found.len() as u64;
        let search = &self.search;
        search.name_whole(&mut found, &self.open, self.resizes);
        self.open.append(&mut found);
        let mut owned = bytes
            .try_into_mut()
            .unwrap_or_else(|shared| BytesMut::from(&shared[..]));
        search.write(&mut self.open, &mut owned);
        let settled = if self.resizes {
            search.resized(&mut self.open, &owned)
        } else {
            owned.freeze()
        };
        self.open.retain_mut(|echo| echo.advance(hold));
        settled
    }

    /// Whether this is the rest of an echo that extended into the held bytes.
    fn is_open(&self, echo: &Echo) -> bool {
        self.open.iter().any(|open| open.covers(echo))
    }

    /// Keeps the last bytes passed on, in case a piece continues after them.
    fn remember(&mut self, given: &[u8]) {
        let kept = self.search.past(given);
        if kept.len() == given.len() && !self.past.is_empty() {
            self.past.extend_from_slice(kept);
            let surplus = self.past.len().saturating_sub(self.search.reach());
            self.past.drain(..surplus);
        } else if !kept.is_empty() || !given.is_empty() {
            self.past.clear();
            self.past.extend_from_slice(kept);
        }
    }
}

/// For how many bytes of content or a message pieces are searched for. After that, only whole
/// echoes are searched for, and pieces at the end. Searching for pieces takes about ten times as
/// long, and long content is usually a file.
pub const FINE: usize = 256 << 10;

#[cfg(test)]
mod tests;
