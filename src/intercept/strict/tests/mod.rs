//! Raw bytes against the strict parser, alone and in front of hyper: group E of the threat
//! catalogue.

mod framing;
mod heads;
mod in_front_of_hyper;
mod switching;

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use gateway_wire::{WireMalformed, parse_head};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::*;

/// A connection on which the client's bytes arrive in these pieces and then end.
struct Pieces {
    pieces: VecDeque<Vec<u8>>,
    written: Arc<Mutex<Vec<u8>>>,
}

impl Pieces {
    fn new(bytes: &[u8], cuts: &[usize]) -> Pieces {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
        cuts.sort_unstable();
        let ends = cuts.iter().copied().chain([bytes.len()]);
        let starts = [0].into_iter().chain(cuts.iter().copied());
        let pieces = starts
            .zip(ends)
            .map(|(start, end)| bytes[start..end].to_vec())
            .filter(|p| !p.is_empty())
            .collect();
        Pieces {
            pieces,
            written: Arc::default(),
        }
    }

    fn one_by_one(bytes: &[u8]) -> Pieces {
        Pieces::new(bytes, &(0..bytes.len()).collect::<Vec<_>>())
    }
}

impl AsyncRead for Pieces {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.pieces.front_mut() {
            Some(piece) => {
                let length = piece.len().min(buf.remaining());
                buf.put_slice(&piece[..length]);
                piece.drain(..length);
                if piece.is_empty() {
                    self.pieces.pop_front();
                }
                Poll::Ready(Ok(()))
            }
            None => Poll::Ready(Ok(())),
        }
    }
}

impl AsyncWrite for Pieces {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.written.lock().unwrap().extend_from_slice(buf);
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[derive(Debug, PartialEq, Eq)]
enum End {
    Eof,
    Pending,
    Failed,
}

/// Returns what a reader behind `strict` gets now, through a buffer of this size.
fn passed(strict: &mut StrictStream<Pieces>, room: usize) -> (Vec<u8>, End) {
    let mut all = Vec::new();
    let mut cx = Context::from_waker(Waker::noop());
    loop {
        let mut space = vec![0; room];
        let mut buf = ReadBuf::new(&mut space);
        match Pin::new(&mut *strict).poll_read(&mut cx, &mut buf) {
            Poll::Ready(Ok(())) if buf.filled().is_empty() => return (all, End::Eof),
            Poll::Ready(Ok(())) => all.extend_from_slice(buf.filled()),
            Poll::Ready(Err(_)) => return (all, End::Failed),
            Poll::Pending => return (all, End::Pending),
        }
    }
}

/// Returns what a reader gets from a whole connection, and which request was malformed, and how.
fn whole(bytes: &[u8]) -> (Vec<u8>, End, Option<(u64, WireMalformed)>) {
    let mut strict = StrictStream::new(Pieces::new(bytes, &[]));
    let (all, end) = passed(&mut strict, 4096);
    (
        all,
        end,
        strict
            .shared
            .violation
            .get()
            .map(|v| (v.request, v.malformed)),
    )
}

fn violation(bytes: &[u8]) -> Option<WireMalformed> {
    whole(bytes).2.map(|(_, malformed)| malformed)
}

fn with_fields(fields: &str) -> String {
    format!("POST /x HTTP/1.1\r\nHost: good\r\n{fields}\r\n\r\n")
}

/// Asserts that a request is refused at its head: after a good request, only the placeholder
/// follows.
#[track_caller]
fn refused(bytes: &[u8], malformed: WireMalformed) {
    const GOOD: &[u8] = b"GET /good HTTP/1.1\r\nHost: good\r\n\r\n";
    assert_eq!(
        whole(bytes),
        (PLACEHOLDER.to_vec(), End::Pending, Some((0, malformed))),
        "{}",
        bytes.escape_ascii()
    );
    let second = whole(&[GOOD, bytes, GOOD].concat());
    assert_eq!(
        second,
        (
            [GOOD, PLACEHOLDER].concat(),
            End::Pending,
            Some((1, malformed))
        ),
        "{}",
        bytes.escape_ascii()
    );
    let strict = StrictStream::new(Pieces::one_by_one(&[GOOD, bytes].concat()));
    let violations = strict.violations();
    let mut strict = strict;
    passed(&mut strict, 64);
    assert_eq!(violations.begin(), Ok(()));
    assert_eq!(violations.begin(), Err(malformed));
}

#[track_caller]
fn accepted(bytes: &[u8]) {
    assert_eq!(
        whole(bytes),
        (bytes.to_vec(), End::Eof, None),
        "{}",
        bytes.escape_ascii()
    );
}
