//! Puts the phantom back wherever an answer echoes a lent secret, while it streams.
//!
//! Where the phantom has the secret's shape, it is written over the echo, so that no length changes
//! and `Content-Length` stays true. A secret that was renewed may have another length: its phantom
//! replaces a whole echo where the length of the content may change, and elsewhere a mask is
//! written over it. Every whole echo is replaced, also where echoes overlap; and of secrets that
//! have a `DrawnPart` every piece of so many letters, in fields, in the first [`FINE`] bytes of a
//! content or message, and at each end.
//!
//! What could, by its shape, begin an echo is held back until more comes or the content ends,
//! however long that takes. What is held depends on nothing but what the phantoms tell, too. Were
//! it only what a secret begins with, then the workload could have any origin send it guesses, and
//! learn from what comes late how far they are right. It learns the same from pieces that are
//! replaced; therefore those are counted ([`Guesses`](super::guesses::Guesses)), and few of them
//! end what the session is shown.

mod body;
mod fault;
mod form;
mod forms;
mod frames;
mod index;
mod messages;
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

use search::{Echo, Scan};

/// Original bytes that were given out. Rare, so it is as small as can be where there are none.
type Past = Box<Zeroizing<Vec<u8>>>;

/// Gives a session's search where it is another than before: a secret may be lent, or renewed,
/// while a stream lasts.
pub(in crate::credential) type Newer = Box<dyn FnMut() -> Option<Arc<EchoSearch>> + Send + Sync>;

/// Replaces echoes in one stream of bytes, however it is cut.
///
/// Holds back only a last part that, by its shape, could begin an echo. Has no `Debug`: it may hold
/// a part of a secret.
pub struct Scrubber {
    search: Arc<EchoSearch>,
    newer: Option<Newer>,
    /// The original bytes that the search goes on from.
    held: Bytes,
    /// How many of them were given out all the same.
    shown: usize,
    /// The last of the original bytes before them, where a piece may have begun in those.
    past: Past,
    /// In how many bytes more pieces are looked for; [`usize::MAX`] for however many there are.
    fine: usize,
    /// Echoes that reach into what is held back.
    open: Vec<Echo>,
    replaced: u64,
    /// Whether the length of what passes may change.
    resizes: bool,
}

impl Scrubber {
    /// A scrubber at the start of a stream.
    pub fn new(search: Arc<EchoSearch>) -> Self {
        Self {
            search,
            newer: None,
            held: Bytes::new(),
            shown: 0,
            past: Past::default(),
            fine: FINE,
            open: Vec::new(),
            replaced: 0,
            resizes: false,
        }
    }

    /// Has echoes replaced by phantoms of another length, too. Nothing may count on the length of
    /// what passes, and nothing of it is [released](Self::release) before its end.
    pub(in crate::credential) fn resizing(mut self) -> Self {
        self.resizes = self.search.resizes();
        self
    }

    /// Has what comes later searched as the session is by then.
    pub(in crate::credential) fn following(mut self, newer: Newer) -> Self {
        self.newer = Some(newer);
        self
    }

    fn renew(&mut self) {
        // What is open is known by its number in the search that found it.
        if self.open.is_empty()
            && let Some(newer) = &mut self.newer
            && let Some(search) = newer()
        {
            self.search = search;
        }
    }

    /// Has pieces looked for however much there is: where little comes at once.
    fn look_closely(&mut self) {
        self.fine = usize::MAX;
    }

    /// Whether nothing of the stream may be given out any more.
    ///
    /// # Errors
    /// [`Guessed`].
    pub fn check(&self) -> Result<(), Guessed> {
        match self.search.guesses().are_spent() {
            true => Err(Guessed),
            false => Ok(()),
        }
    }

    /// How many echoes were replaced so far.
    pub fn replaced(&self) -> u64 {
        self.replaced
    }

    /// How many bytes are held back.
    pub fn held(&self) -> usize {
        self.held.len() - self.shown
    }

    /// Gives what is held back, whole echoes replaced: where a message ends within the stream, so
    /// that its receiver has all of it and can answer.
    ///
    /// An echo that goes on all the same is replaced from there on.
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
        // Echoes before it may reach into it.
        found.extend(&self.open);
        self.search.write(&mut found, &mut owned);
        let shown = std::mem::replace(&mut self.shown, self.held.len());
        owned.freeze().split_off(shown)
    }

    /// Forgets what is held back: the stream failed.
    fn forget(&mut self) {
        self.held.clear();
        self.past.clear();
        self.shown = 0;
    }

    /// Adds the pieces that begin in what was given out before.
    fn add_those_before(&self, bytes: &[u8], found: &mut Vec<Echo>) {
        if !self.past.is_empty() {
            self.search.scan_border(&self.past, bytes, found);
        }
    }

    /// Takes the next bytes and gives those that are settled: the same `Bytes` where nothing was to
    /// be done.
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

    /// Gives what was held back, at the end of the stream; the scrubber can then begin another.
    pub fn finish(&mut self) -> Bytes {
        let bytes = std::mem::take(&mut self.held);
        let scan = self.search.scan(&bytes, true, bytes.len());
        let settled = self.settle(bytes, scan);
        self.past.clear();
        self.fine = self.fine.max(FINE);
        self.unseen(settled)
    }

    /// What of the settled bytes was not given out before.
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

    /// Replaces the echoes before the held part and keeps the rest; `open` and `scan` count from
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
        // An echo that begins in the held part is found again with the next bytes, and the rest of
        // one that is known, too.
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
        let settled = match self.resizes {
            true => search.resized(&mut self.open, &owned),
            false => owned.freeze(),
        };
        self.open.retain_mut(|echo| echo.advance(hold));
        settled
    }

    /// Whether it is the rest of an echo that reaches into what was held back.
    fn is_open(&self, echo: &Echo) -> bool {
        self.open.iter().any(|open| open.covers(echo))
    }

    /// Keeps the last of what is given out, where a piece may go on behind it.
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

/// In so many bytes of a content or a message pieces are looked for; behind them whole echoes, and
/// pieces at its end. To look for pieces takes some ten times as long, and whoever sends more sends
/// files.
pub const FINE: usize = 256 << 10;

#[cfg(test)]
mod tests;
