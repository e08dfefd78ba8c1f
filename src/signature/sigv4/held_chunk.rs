//! The data of a signed chunk until it is verified.

use bytes::{Bytes, BytesMut};

/// A chunk's data until it is verified: slices of what arrived, small ones joined, so that the
/// buffer is about as long as the chunk however it was cut.
#[derive(Default)]
pub(super) struct HeldChunk {
    pieces: Vec<Bytes>,
    small: BytesMut,
    pub(super) length: usize,
}

impl HeldChunk {
    pub(super) fn push(&mut self, piece: Bytes) {
        self.length += piece.len();
        if piece.len() < SMALL {
            self.small.extend_from_slice(&piece);
        } else {
            self.join();
            self.pieces.push(piece);
        }
    }

    /// Passes the chunk on.
    pub(super) fn release(&mut self, out: &mut Vec<Bytes>) {
        self.join();
        self.length = 0;
        out.append(&mut self.pieces);
    }

    fn join(&mut self) {
        if !self.small.is_empty() {
            self.pieces.push(self.small.split().freeze());
        }
    }
}

/// Shorter pieces are copied rather than kept.
const SMALL: usize = 4 * 1024;
