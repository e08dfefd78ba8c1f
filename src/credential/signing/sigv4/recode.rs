//! Signed content in transit: checked against the signed hash, or signed again piece by piece.

use std::time::SystemTime;

use aws_lc_rs::digest::{Context, SHA256};
use bytes::Bytes;
use gateway_body::{BodyTransform, HoldFault, Share, TransformFault};
use gateway_sigv4::{ChunkResigner, EventResigner, Fault};

/// Content with an expected hash. Its last piece is passed on only if the hash matches.
pub(super) struct CheckedContent {
    hasher: Option<Context>,
    expected: [u8; 32],
    last: Option<Bytes>,
}

/// Signed messages that are signed again; bytes buffered from a message count as held content.
pub(super) struct SignedMessages(pub(super) EventResigner, pub(super) Share);

/// aws-chunked content that is signed again; bytes buffered from a chunk count as held content.
pub(super) struct SignedChunks(pub(super) ChunkResigner, pub(super) Share);

impl CheckedContent {
    pub(super) fn new(expected: [u8; 32]) -> Self {
        Self {
            hasher: Some(Context::new(&SHA256)),
            expected,
            last: None,
        }
    }
}

impl BodyTransform for CheckedContent {
    fn piece(&mut self, piece: Bytes, out: &mut Vec<Bytes>) -> Result<(), TransformFault> {
        if let Some(hasher) = &mut self.hasher {
            hasher.update(&piece);
        }
        out.extend(self.last.replace(piece));
        Ok(())
    }

    fn end(&mut self, out: &mut Vec<Bytes>) -> Result<(), TransformFault> {
        match self.hasher.take().map(Context::finish) {
            Some(hash) if hash.as_ref() == self.expected => {
                out.extend(self.last.take());
                Ok(())
            }
            _ => Err(told(Fault::Content)),
        }
    }
}

impl BodyTransform for SignedChunks {
    fn piece(&mut self, piece: Bytes, out: &mut Vec<Bytes>) -> Result<(), TransformFault> {
        self.0.push(piece, out).map_err(told)?;
        self.1.set(self.0.held()).map_err(|fault| busy(&fault))
    }

    fn end(&mut self, _out: &mut Vec<Bytes>) -> Result<(), TransformFault> {
        self.0.finish().map_err(told)
    }
}

impl BodyTransform for SignedMessages {
    fn piece(&mut self, piece: Bytes, out: &mut Vec<Bytes>) -> Result<(), TransformFault> {
        self.0.push(&piece, SystemTime::now(), out).map_err(told)?;
        self.1.set(self.0.held()).map_err(|fault| busy(&fault))
    }

    fn end(&mut self, _out: &mut Vec<Bytes>) -> Result<(), TransformFault> {
        self.0.finish().map_err(told)
    }
}

/// Returns the SHA-256 of content in pieces.
pub(super) fn sha256<'b>(pieces: impl IntoIterator<Item = &'b Bytes>) -> [u8; 32] {
    let mut hasher = Context::new(&SHA256);
    for piece in pieces {
        hasher.update(piece);
    }
    let mut hash = [0; 32];
    hash.copy_from_slice(hasher.finish().as_ref());
    hash
}

fn busy(fault: &HoldFault) -> TransformFault {
    TransformFault {
        reason: fault.reason(),
        text: fault.to_string(),
    }
}

fn told(fault: Fault) -> TransformFault {
    TransformFault {
        reason: fault.reason(),
        text: fault.to_string(),
    }
}

/// A signed chunk is held until it is verified; clients send 64 KiB to 1 MiB.
pub(super) const LONGEST_CHUNK: usize = 1 << 20;
