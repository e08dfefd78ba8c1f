//! Notes what has been read from a connection to an origin.

use std::future::poll_fn;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::Poll;

use atomic_waker::AtomicWaker;
use httparse::{EMPTY_HEADER, ParserConfig, Status};
use parking_lot::Mutex;
use tokio::io::AsyncRead;
use tokio_util::io::InspectReader;

/// The largest number of informational responses (1xx) to one request.
const MOST_INFORMATIONAL: u32 = 16;
/// How much of a response is kept until its head was read, to name the line that cannot be.
const BEGINNING: usize = 8 << 10;
/// The most fields of a response (threats P05).
pub(super) const ANSWER_FIELDS: usize = 256;

/// What the origin has sent since the last request.
#[derive(Clone, Default)]
pub(super) struct ResponseProgress(Arc<ProgressState>);

#[derive(Default)]
struct ProgressState {
    any: AtomicBool,
    is_answered: AtomicBool,
    informational: AtomicU32,
    /// What came before the head was read, as far as it is kept.
    beginning: Mutex<Vec<u8>>,
    waits: AtomicWaker,
}

impl ResponseProgress {
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
    heard: &ResponseProgress,
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

/// Returns the number, from 1, of the first line at which hyper's parser fails, or whose length
/// hyper refuses.
fn faulty_line(beginning: &[u8]) -> Option<usize> {
    let line_of = |place: usize| memchr::memchr_iter(b'\n', &beginning[..place]).count() + 1;
    let mut begin = 0;
    loop {
        let head = &beginning[begin..];
        let mut fields = [EMPTY_HEADER; ANSWER_FIELDS];
        let mut response = httparse::Response::new(&mut fields);
        match parser().parse_response(&mut response, head) {
            Ok(Status::Complete(length)) if response.code.is_some_and(|code| code < 200) => {
                begin += length;
            }
            Ok(Status::Complete(_)) => {
                let field = wrong_length(response.headers)?;
                return Some(line_of(field.as_ptr().addr() - beginning.as_ptr().addr()));
            }
            Ok(Status::Partial) => return None,
            Err(_) => {
                let ends: Vec<_> = memchr::memchr_iter(b'\n', head).map(|at| at + 1).collect();
                let is_read = |end: &usize| {
                    let mut fields = [EMPTY_HEADER; ANSWER_FIELDS];
                    let mut response = httparse::Response::new(&mut fields);
                    parser()
                        .parse_response(&mut response, &head[..*end])
                        .is_ok()
                };
                return Some(line_of(begin) + ends.partition_point(is_read));
            }
        }
    }
}

/// Returns a parser with the settings of hyper's, in `sender.rs`.
fn parser() -> ParserConfig {
    ParserConfig::default()
        .allow_spaces_after_header_name_in_responses(true)
        .allow_obsolete_multiline_headers_in_responses(true)
        .clone()
}

/// Returns the first length that is no number, or another one than before.
fn wrong_length<'b>(fields: &[httparse::Header<'b>]) -> Option<&'b [u8]> {
    let is_length = |field: &&httparse::Header| field.name.eq_ignore_ascii_case("content-length");
    let mut lengths = fields.iter().filter(is_length).map(|field| field.value);
    let mut first = None;
    lengths.find(|value| {
        let mut all = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        all.any(|length| {
            let is_number = !length.is_empty() && length.iter().all(u8::is_ascii_digit);
            !is_number || *first.get_or_insert(length) != length
        })
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
        for forget in [ResponseProgress::clear, ResponseProgress::answered] {
            let heard = ResponseProgress::default();
            heard.0.beginning.lock().extend_from_slice(b"no head");
            assert_eq!(heard.faulty_line(), Some(1));
            forget(&heard);
            assert_eq!(heard.0.beginning.lock().capacity(), 0);
        }
    }

    #[test]
    fn a_flood_is_told_and_an_answered_request_keeps_no_task() {
        let (heard, task) = (ResponseProgress::default(), Arc::new(Task));
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
