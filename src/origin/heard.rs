//! Notes what has been read from a connection to an origin.

use std::future::poll_fn;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::Poll;

use atomic_waker::AtomicWaker;
use parking_lot::Mutex;
use tokio::io::AsyncRead;
use tokio_util::io::InspectReader;

/// The largest number of informational responses (1xx) to one request.
const MOST_INFORMATIONAL: u32 = 16;
/// How much of an answer is kept until its head was read, to name the line that cannot be.
const BEGINNING: usize = 8 << 10;

/// What the origin has sent since the last request.
#[derive(Clone, Default)]
pub(super) struct Heard(Arc<Answers>);

#[derive(Default)]
struct Answers {
    any: AtomicBool,
    is_answered: AtomicBool,
    informational: AtomicU32,
    /// What came before the head was read, as far as it is kept.
    beginning: Mutex<Vec<u8>>,
    waits: AtomicWaker,
}

impl Heard {
    /// Resets the notes: a new request is sent.
    pub(super) fn clear(&self) {
        self.0.any.store(false, Ordering::Relaxed);
        self.0.informational.store(0, Ordering::Relaxed);
        self.0.is_answered.store(false, Ordering::Relaxed);
        mem::take(&mut *self.0.beginning.lock());
    }

    /// Whether a byte was read since the request was sent.
    pub(super) fn is_so(&self) -> bool {
        self.0.any.load(Ordering::Relaxed)
    }

    /// Counts an informational response.
    pub(super) fn informational(&self) {
        if self.0.informational.fetch_add(1, Ordering::AcqRel) >= MOST_INFORMATIONAL {
            self.0.waits.wake();
        }
    }

    /// Forgets who waited, and the head: a connection that rests must not keep the task of its last
    /// client.
    pub(super) fn answered(&self) {
        self.0.is_answered.store(true, Ordering::Relaxed);
        mem::take(&mut *self.0.beginning.lock());
        self.0.waits.take();
    }

    /// The number of the line that cannot be read, of an answer whose head could not be.
    pub(super) fn faulty_line(&self) -> Option<usize> {
        faulty_line(&self.0.beginning.lock())
    }

    /// Waits until there are more informational answers than one request may get.
    pub(super) async fn flooded(&self) {
        poll_fn(|cx| {
            self.0.waits.register(cx.waker());
            if self.0.informational.load(Ordering::Acquire) > MOST_INFORMATIONAL {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }
}

/// Wraps a connection whose reads are noted in `heard`.
pub(super) fn noted<IO: AsyncRead>(
    io: IO,
    heard: &Heard,
) -> InspectReader<IO, impl FnMut(&[u8]) + use<IO>> {
    let heard = heard.clone();
    InspectReader::new(io, move |read: &[u8]| {
        if read.is_empty() {
            return;
        }
        heard.0.any.store(true, Ordering::Relaxed);
        if !heard.0.is_answered.load(Ordering::Relaxed) {
            let mut kept = heard.0.beginning.lock();
            let room = BEGINNING.saturating_sub(kept.len()).min(read.len());
            kept.extend_from_slice(&read[..room]);
        }
    })
}

/// The number of the first line, from 1, that is none of a head, as clients read heads: also
/// folded, and with blanks before a colon. Else it is the one that did not come whole.
fn faulty_line(beginning: &[u8]) -> Option<usize> {
    let mut lines = beginning.split_inclusive(|byte| *byte == b'\n').enumerate();
    let (mut first, mut length) = (0, None);
    let faulty = lines.find_map(|(nth, line)| {
        let Some(line) = line.strip_suffix(b"\n") else {
            return Some(Some(nth));
        };
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let is_read = match (nth - first, line) {
            (0, line) => line.starts_with(b"HTTP/1.") && has_status(line),
            (_, []) if beginning[..].starts_with(b"HTTP/1.1 1") && first == 0 => {
                first = nth + 1;
                true
            }
            (_, []) => return Some(None),
            (1, [b' ' | b'\t', ..]) => false,
            (_, [b' ' | b'\t', ..]) => true,
            (_, line) => is_field(line, &mut length),
        };
        let is_text = line
            .iter()
            .all(|byte| *byte == b'\t' || *byte >= b' ' && *byte != 0x7f);
        (!is_read || !is_text).then_some(Some(nth))
    });
    faulty.flatten().map(|nth| nth + 1)
}

fn has_status(line: &[u8]) -> bool {
    let status = line.get(8..12);
    status.is_some_and(|status| status[0] == b' ' && status[1..].iter().all(u8::is_ascii_digit))
        && line.get(12).is_none_or(|byte| *byte == b' ')
}

/// Whether it is a field, and its length, if it is one, the same as before.
fn is_field<'l>(line: &'l [u8], length: &mut Option<&'l [u8]>) -> bool {
    let Some(colon) = memchr::memchr(b':', line) else {
        return false;
    };
    let (name, value) = (
        line[..colon].trim_ascii_end(),
        line[colon + 1..].trim_ascii(),
    );
    let is_same = !name.eq_ignore_ascii_case(b"content-length")
        || value
            .split(|byte| *byte == b',')
            .map(<[u8]>::trim_ascii)
            .all(|one| {
                let is_number = !one.is_empty() && one.iter().all(u8::is_ascii_digit);
                is_number && *length.get_or_insert(one) == one
            });
    is_same && http::HeaderName::from_bytes(name).is_ok()
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
    fn the_line_of_a_head_that_cannot_be_read_is_found() {
        for (head, line) in [
            ("HTTP/1.1 200 OK\r\nA: 1\r\nno colon\r\n\r\n", Some(3)),
            ("HTTP/1.1 200 OK\r\nA b: 1\r\n\r\n", Some(2)),
            ("HTTP/1.1 200 OK\r\nA : 1\r\n 2\nB: x\x01\r\n\r\n", Some(4)),
            ("HTTP/1.1 200 OK\r\n A: 1\r\n\r\n", Some(2)),
            ("HTTP/1.1 200 OK\r\nA: 1\r\nno colon", Some(3)),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\nContent-Length: 3\r\n\r\n",
                Some(3),
            ),
            ("HTTP/1.1 200 OK\r\nContent-Length: 2x\r\n\r\n", Some(2)),
            (
                "HTTP/1.1 100 Go on\r\n\r\nHTTP/1.1 200 OK\r\n: x\r\n\r\n",
                Some(4),
            ),
            ("HTTP/1.1 2x0 OK\r\n\r\n", Some(1)),
            ("SSH-2.0-x\r\n", Some(1)),
            ("HTTP/1.1 200\r\nA:\r\n\r\nno colon\r\n", None),
            ("", None),
        ] {
            assert_eq!(faulty_line(head.as_bytes()), line, "{head:?}");
        }
    }

    #[test]
    fn nothing_is_held_of_an_earlier_answer() {
        for forget in [Heard::clear, Heard::answered] {
            let heard = Heard::default();
            heard.0.beginning.lock().extend_from_slice(b"no head");
            assert_eq!(heard.faulty_line(), Some(1));
            forget(&heard);
            assert_eq!(heard.0.beginning.lock().capacity(), 0);
        }
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
