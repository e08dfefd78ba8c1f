//! Puts the phantom back wherever an answer echoes a lent secret, in place, while it streams.
//!
//! Phantoms are as long as their secrets and of the same character classes, so no length changes and `Content-Length` stays
//! true. Every whole echo is replaced, also where echoes overlap. One that the end of the content cuts short is not, nor one
//! that is cut over several `data:` lines of an event stream, or over several WebSocket messages.
//!
//! What could, by its shape, begin an echo is held back until more comes or the content ends, however long that takes. What is
//! held depends on nothing but what the phantoms tell, too. Were it only what a secret begins with, or were a cut echo
//! replaced, then the workload could have any origin send it guesses, and learn from what comes late or changed how far they
//! are right.

mod beginnings;
mod body;
mod echoes;
mod frames;
mod messages;

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

pub use body::ScrubBody;
pub use echoes::Echoes;
use echoes::{Echo, Scan};
pub use frames::{FrameFault, ScrubFrames};

/// Says why a secret's echoes could not be replaced in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unscrubbable {
    /// Too short to be told from chance in content.
    #[error("secret is shorter than {} bytes", super::echo::SHORTEST)]
    TooShort,
    /// Secret and phantom differ in length, or in where their special characters stand.
    #[error("phantom has not the shape of its secret")]
    ShapeDiffers,
    /// There would be nothing to hide behind.
    #[error("phantom is the secret itself")]
    PhantomIsSecret,
}

/// Replaces echoes in one stream of bytes, however it is cut.
///
/// Holds back only a last part that, by its shape, could begin an echo. Has no `Debug`: it may hold a part of a secret.
pub struct Scrubber {
    echoes: Arc<Echoes>,
    /// The original bytes that the search goes on from.
    held: Bytes,
    /// How many of them were given out all the same.
    shown: usize,
    /// Echoes that reach into what is held back.
    open: Vec<Echo>,
    replaced: u64,
}

impl Scrubber {
    /// A scrubber at the start of a stream.
    pub fn new(echoes: Arc<Echoes>) -> Self {
        Self {
            echoes,
            held: Bytes::new(),
            shown: 0,
            open: Vec::new(),
            replaced: 0,
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

    /// Gives what is held back, whole echoes replaced: where a message ends within the stream, so that its receiver has all of
    /// it and can answer.
    ///
    /// An echo that goes on all the same is replaced from there on.
    fn release(&mut self) -> Bytes {
        if self.held() == 0 {
            return Bytes::new();
        }
        let mut owned = BytesMut::from(&self.held[..]);
        // Echoes before it may reach into it.
        let mut echoes = self.open.clone();
        echoes.extend(self.echoes.scan(&self.held, true).found);
        self.echoes.write(&mut echoes, &mut owned);
        let shown = std::mem::replace(&mut self.shown, self.held.len());
        owned.freeze().split_off(shown)
    }

    /// Forgets what is held back: the stream failed.
    fn forget(&mut self) {
        self.held.clear();
        self.shown = 0;
    }

    /// Takes the next bytes and gives those that are settled: the same `Bytes` where nothing was to be done.
    pub fn push(&mut self, chunk: Bytes) -> Bytes {
        let bytes = if self.held.is_empty() {
            chunk
        } else {
            self.join(chunk)
        };
        let scan = self.echoes.scan(&bytes, false);
        let settled = self.settle(bytes, scan);
        self.unseen(settled)
    }

    /// Gives what was held back, at the end of the stream; the scrubber can then begin another.
    pub fn finish(&mut self) -> Bytes {
        let bytes = std::mem::take(&mut self.held);
        let scan = self.echoes.scan(&bytes, true);
        let settled = self.settle(bytes, scan);
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

    /// Replaces the echoes before the held part and keeps the rest; `open` and `scan` count from the start of `bytes`.
    fn settle(&mut self, mut bytes: Bytes, scan: Scan) -> Bytes {
        if scan.hold < bytes.len() {
            self.held = bytes.split_off(scan.hold);
        }
        // An echo that begins in the held part is found again with the next bytes.
        let begun = self.open.len();
        self.open.extend(
            scan.found
                .into_iter()
                .filter(|echo| echo.start < scan.hold as isize),
        );
        if self.open.is_empty() {
            return bytes;
        }
        self.replaced += (self.open.len() - begun) as u64;
        let mut owned = bytes
            .try_into_mut()
            .unwrap_or_else(|shared| BytesMut::from(&shared[..]));
        self.echoes.write(&mut self.open, &mut owned);
        self.open.retain_mut(|echo| echo.advance(scan.hold));
        owned.freeze()
    }
}

#[cfg(test)]
mod tests;
