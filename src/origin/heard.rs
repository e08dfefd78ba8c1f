//! Notes whether anything was read from a connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::AsyncRead;
use tokio_util::io::InspectReader;

/// Whether a byte was read from a connection since this was last cleared.
#[derive(Clone, Default)]
pub(super) struct Heard(Arc<AtomicBool>);

impl Heard {
    /// Begins again: a request is sent.
    pub(super) fn clear(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// Whether a byte came since then.
    pub(super) fn is_so(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A connection whose reads are noted in `heard`.
pub(super) fn noted<IO: AsyncRead>(
    io: IO,
    heard: &Heard,
) -> InspectReader<IO, impl FnMut(&[u8]) + use<IO>> {
    let heard = heard.0.clone();
    InspectReader::new(io, move |read: &[u8]| {
        if !read.is_empty() {
            heard.store(true, Ordering::Relaxed);
        }
    })
}
