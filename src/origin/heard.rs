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

    /// Forgets who waited: a connection that rests must not keep the task of its last client.
    pub(super) fn answered(&self) {
        self.0.waits.take();
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

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Wake, Waker};

    use super::*;

    struct Task;

    impl Wake for Task {
        fn wake(self: Arc<Self>) {}
    }

    #[test]
    fn a_flood_is_told_and_an_answered_request_keeps_no_task() {
        let (heard, task) = (Heard::default(), Arc::new(Task));
        let waker = Waker::from(task.clone());
        let mut cx = Context::from_waker(&waker);
        {
            let mut flooded = pin!(heard.flooded());
            for _ in 0..MOST_INFORMATIONAL {
                heard.informational();
            }
            assert!(flooded.as_mut().poll(&mut cx).is_pending());
            heard.informational();
            assert!(flooded.as_mut().poll(&mut cx).is_ready());
        }
        heard.answered();
        assert_eq!(Arc::strong_count(&task), 2);
    }
}
