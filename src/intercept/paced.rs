//! A client's HTTP/2 connection that takes turns with the others, and ends if it sends too many
//! idle frames: frames that carry no request.
//!
//! The parser above it reads for as long as bytes arrive, so a client could occupy the thread with
//! frames that cost it nine bytes each. Here, each read uses up part of the turn that the runtime
//! gives a task, by its bytes and its frames.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use gateway_names::delegated;
use gateway_wire::{Cursor, Pending, ReadError};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::coop::consume_budget;

use super::budget::Budget;

/// The connection underneath HTTP/2.
pub struct PacedStream<IO> {
    io: IO,
    frames: Frames,
    idle: Budget,
    /// How many more idle frames it may send, earned by what it received and requested.
    earned: u32,
    /// The most bytes of the next read. Small if frames are small, so that a turn handles few of
    /// them.
    piece: usize,
    /// Whether the last write was complete, so that a frame of our own may follow.
    between_frames: bool,
    /// Whether too many frames have arrived.
    over: bool,
    flooded: FloodFlag,
}

/// Whether the connection was ended because of idle frames.
#[derive(Debug, Clone, Default)]
pub struct FloodFlag(Arc<AtomicBool>);

impl FloodFlag {
    /// Whether the connection was ended.
    #[must_use]
    pub fn is_so(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl<IO> PacedStream<IO> {
    /// Wraps a connection from its first byte, the client's preface; `flooded` later tells whether
    /// it was ended.
    pub fn new(io: IO, flooded: FloodFlag) -> Self {
        Self {
            io,
            frames: Frames::default(),
            idle: Budget::new(IDLE_BURST, IDLE_PER_SECOND, Instant::now()),
            earned: 0,
            piece: SMALL_PIECE,
            between_frames: true,
            over: false,
            flooded,
        }
    }
}

impl<IO: AsyncWrite + Unpin> PacedStream<IO> {
    /// Sends GOAWAY, if the connection accepts it at once, and ends the connection.
    fn end(&mut self, cx: &mut Context<'_>) -> io::Error {
        if !self.flooded.0.swap(true, Ordering::Relaxed) && self.between_frames {
            // This is a courtesy: the connection ends either way.
            let _ = Pin::new(&mut self.io).poll_write(cx, GOAWAY);
            let _ = Pin::new(&mut self.io).poll_flush(cx);
        }
        io::Error::new(
            io::ErrorKind::ConnectionAborted,
            "the client sent too many frames that ask for nothing",
        )
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncRead for PacedStream<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        // Once the turn is over, the task is woken for its next one.
        ready!(pin!(consume_budget()).poll(cx));
        if this.over {
            return Poll::Ready(Err(this.end(cx)));
        }
        let new = ready!(read_up_to(&mut this.io, cx, out, this.piece))?;
        let seen = this.frames.see(new);
        this.piece = if new.len() < SMALL_FRAME * seen.frames as usize {
            SMALL_PIECE
        } else {
            usize::MAX
        };
        this.earn(seen.requests * IDLE_FOR_A_REQUEST);
        let unearned = seen.idle.saturating_sub(this.earned);
        this.earned = this.earned.saturating_sub(seen.idle);
        // The bytes that were read are passed on. The next read ends the connection.
        this.over = !this.idle.take_many(unearned, Instant::now());
        // A short read may have been expensive: each byte may come in a TLS record of its own.
        let little = if new.len() < SMALL_PIECE / 2 {
            SMALL_READ
        } else {
            0
        };
        for _ in 0..little + new.len() / BYTES_A_UNIT + seen.frames as usize {
            if pin!(consume_budget()).poll(cx).is_pending() {
                break;
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// Reads at most this many bytes, and returns them.
fn read_up_to<'a>(
    io: &mut (impl AsyncRead + Unpin),
    cx: &mut Context<'_>,
    out: &'a mut ReadBuf<'_>,
    most: usize,
) -> Poll<io::Result<&'a [u8]>> {
    let before = out.filled().len();
    if most >= out.remaining() {
        ready!(Pin::new(io).poll_read(cx, out))?;
    } else {
        let mut part = ReadBuf::new(out.initialize_unfilled_to(most));
        ready!(Pin::new(io).poll_read(cx, &mut part))?;
        let count = part.filled().len();
        out.advance(count);
    }
    Poll::Ready(Ok(&out.filled()[before..]))
}

impl<IO> PacedStream<IO> {
    fn earn(&mut self, frames: u32) {
        self.earned = self.earned.saturating_add(frames).min(MOST_EARNED);
    }

    fn wrote(&mut self, count: usize, all: usize) {
        self.between_frames = count == all;
        // A client responds to received bytes with window updates.
        self.earn(
            u32::try_from(count)
                .unwrap_or(u32::MAX)
                .div_ceil(BYTES_FOR_AN_UPDATE),
        );
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for PacedStream<IO> {
    delegated!(is_vectored poll_flush poll_shutdown);

    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let count = ready!(Pin::new(&mut self.io).poll_write(cx, bytes))?;
        self.wrote(count, bytes.len());
        Poll::Ready(Ok(count))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let count = ready!(Pin::new(&mut self.io).poll_write_vectored(cx, slices))?;
        self.wrote(count, slices.iter().map(|slice| slice.len()).sum());
        Poll::Ready(Ok(count))
    }
}

/// The position in the client's frames. Only their heads are read (RFC 9113 §4.1).
struct Frames {
    head: Pending<HEAD>,
    /// How many bytes are left until the next head.
    skip: u64,
}

/// The frames that a piece of the client's bytes contained.
#[derive(Debug, Default, PartialEq, Eq)]
struct FrameCounts {
    frames: u32,
    requests: u32,
    /// How many idle frames there were.
    idle: u32,
}

impl Default for Frames {
    fn default() -> Self {
        Self {
            head: Pending::default(),
            skip: PREFACE as u64,
        }
    }
}

impl Frames {
    fn see(&mut self, bytes: &[u8]) -> FrameCounts {
        let (mut seen, mut cursor) = (FrameCounts::default(), Cursor::new(bytes));
        while !cursor.rest().is_empty() {
            cursor.payload(&mut self.skip);
            let head =
                |cursor: &mut Cursor<'_>| Ok::<_, ReadError<Infallible>>(cursor.array::<HEAD>()?);
            let Ok(head) = self.head.read(&mut cursor, head);
            if let Some([a, b, c, kind, flags, ..]) = head {
                self.skip = u32::from_be_bytes([0, a, b, c]).into();
                seen.frames += 1;
                match kind {
                    DATA if self.skip > 0 || flags & END_STREAM != 0 => {}
                    // The parser limits how many of these there may be. It counts resets only of
                    // open streams.
                    CONTINUATION => {}
                    HEADERS => seen.requests += 1,
                    _ => seen.idle += 1,
                }
            }
        }
        seen
    }
}

/// The length of the client's preface, in bytes (RFC 9113 §3.4).
const PREFACE: usize = 24;
const HEAD: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
/// A GOAWAY with ENHANCE_YOUR_CALM (RFC 9113 §6.8). It marks no stream as safe to retry.
const GOAWAY: &[u8] = &[
    0, 0, 8, 7, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0x0b,
];
/// How many idle frames a connection may send: at once, per second, and more for what it receives
/// and requests.
const IDLE_BURST: u32 = 512;
const IDLE_PER_SECOND: u32 = 200;
const IDLE_FOR_A_REQUEST: u32 = 8;
const BYTES_FOR_AN_UPDATE: u32 = 32;
const MOST_EARNED: u32 = 1 << 20;
/// How many bytes one unit of a task's turn pays for. A frame also costs one unit, and a turn has
/// 128.
const BYTES_A_UNIT: usize = 4096;
/// Frames are small if they have fewer bytes on average; a read then has at most `SMALL_PIECE`.
const SMALL_FRAME: usize = 128;
const SMALL_PIECE: usize = 2048;
/// What a read shorter than half of `SMALL_PIECE` costs, in units.
const SMALL_READ: usize = 16;

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn frame(kind: u8, flags: u8, length: u8) -> Vec<u8> {
        let mut frame = vec![0, 0, length, kind, flags, 0, 0, 0, 1];
        frame.resize(HEAD + usize::from(length), 7);
        frame
    }

    fn connection(frames: &[Vec<u8>]) -> Vec<u8> {
        [vec![7; PREFACE], frames.concat()].concat()
    }

    #[test]
    fn frames_are_counted_however_they_are_cut() {
        let bytes = connection(&[
            frame(4, 0, 6),
            frame(HEADERS, 4, 20),
            frame(DATA, 0, 1),
            frame(DATA, 0, 0),
            frame(DATA, END_STREAM, 0),
            frame(2, 0, 5),
            frame(0xfe, 0, 0),
            frame(3, 0, 4),
        ]);
        for size in 1..bytes.len() {
            let mut frames = Frames::default();
            let mut all = FrameCounts::default();
            for piece in bytes.chunks(size) {
                let seen = frames.see(piece);
                all.frames += seen.frames;
                all.requests += seen.requests;
                all.idle += seen.idle;
            }
            let wanted = FrameCounts {
                frames: 8,
                requests: 1,
                idle: 5,
            };
            assert_eq!(all, wanted, "in pieces of {size}");
        }
    }

    #[tokio::test]
    async fn a_connection_of_frames_that_ask_for_nothing_is_told_to_calm_down_and_ends() {
        // PRIORITY, and RST_STREAM of closed streams, which the parser does not count.
        for idle in [frame(2, 0, 5), frame(3, 0, 4)] {
            let (mut client, ours) = tokio::io::duplex(1 << 20);
            let flooded = FloodFlag::default();
            let mut paced = PacedStream::new(ours, flooded.clone());
            client
                .write_all(&connection(&vec![idle; 10_000]))
                .await
                .unwrap();
            let mut read = Vec::new();
            let ended = paced.read_to_end(&mut read).await.unwrap_err();
            assert_eq!(ended.kind(), io::ErrorKind::ConnectionAborted);
            assert!(flooded.is_so() && read.len() < 1024 * 14, "{}", read.len());
            drop(paced);
            let mut told = Vec::new();
            client.read_to_end(&mut told).await.unwrap();
            assert_eq!(told, GOAWAY);
        }
    }

    #[tokio::test]
    async fn a_client_that_answers_what_it_gets_by_updates_of_its_windows_goes_on() {
        let (mut client, ours) = tokio::io::duplex(1 << 20);
        let mut paced = PacedStream::new(ours, FloodFlag::default());
        client.write_all(&connection(&[])).await.unwrap();
        paced.read_exact(&mut [0; PREFACE]).await.unwrap();
        for _ in 0..10_000 {
            // A small event, and the two window updates with which the simplest clients respond.
            paced.write_all(&[0; 59]).await.unwrap();
            client.read_exact(&mut [0; 59]).await.unwrap();
            client.write_all(&frame(8, 0, 4).repeat(2)).await.unwrap();
            paced.read_exact(&mut [0; 26]).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_connection_of_small_frames_leaves_others_their_turn() {
        let (mut client, ours) = tokio::io::duplex(1 << 20);
        let mut paced = PacedStream::new(ours, FloodFlag::default());
        client
            .write_all(&connection(&vec![frame(DATA, 0, 1); 100_000]))
            .await
            .unwrap();
        drop(client);
        let mut turns = 0;
        let mut reading = pin!(async {
            let mut piece = vec![0; 16 << 10];
            while paced.read(&mut piece).await.unwrap() > 0 {}
        });
        std::future::poll_fn(|cx| {
            turns += 1;
            reading.as_mut().poll(cx)
        })
        .await;
        assert!(turns > 400, "100,000 frames in {turns} turns");
    }
}
