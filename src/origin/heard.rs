//! Notes what is read from a connection to an origin.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::Poll;

use atomic_waker::AtomicWaker;
use tokio::io::AsyncRead;
use tokio_util::io::InspectReader;

/// The most informational answers (1xx) to one request.
const MOST_INFORMATIONAL: u32 = 16;

/// What the origin said since a request was sent.
#[derive(Clone, Default)]
pub(super) struct Heard(Arc<Answers>);

#[derive(Default)]
struct Answers {
    any: AtomicBool,
    informational: AtomicU32,
    waits: AtomicWaker,
}

impl Heard {
    /// Begins again: a request is sent.
    pub(super) fn clear(&self) {
        self.0.any.store(false, Ordering::Relaxed);
        self.0.informational.store(0, Ordering::Relaxed);
    }

    /// Whether a byte came since then.
    pub(super) fn is_so(&self) -> bool {
        self.0.any.load(Ordering::Relaxed)
    }

    /// Counts an informational answer.
    pub(super) fn informational(&self) {
        if self.0.informational.fetch_add(1, Ordering::AcqRel) >= MOST_INFORMATIONAL {
            self.0.waits.wake();
        }
    }

    /// Waits until there are more informational answers than one request may get.
    pub(super) async fn flooded(&self) {
        poll_fn(|cx| {
            self.0.waits.register(cx.waker());
            match self.0.informational.load(Ordering::Acquire) > MOST_INFORMATIONAL {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }
}

/// A connection whose reads are noted in `heard`.
pub(super) fn noted<IO: AsyncRead>(
    io: IO,
    heard: &Heard,
) -> InspectReader<IO, impl FnMut(&[u8]) + use<IO>> {
    let heard = heard.clone();
    InspectReader::new(io, move |read: &[u8]| {
        if !read.is_empty() {
            heard.0.any.store(true, Ordering::Relaxed);
        }
    })
}
