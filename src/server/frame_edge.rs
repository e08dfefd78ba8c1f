//! Follows the WebSocket frames that are written to the client, so that a cut sends a Close frame
//! if it falls between frames.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use gateway_names::delegated;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

/// The client's side of a WebSocket. Frames of a server are not masked (RFC 6455 §5.1).
pub(super) struct FrameEdge<IO> {
    io: IO,
    /// The header of the current frame, as far as it was written.
    header: Vec<u8>,
    /// How many bytes of its payload are still to be written.
    left: u64,
}

impl<IO: AsyncWrite + Unpin> FrameEdge<IO> {
    pub(super) fn new(io: IO) -> Self {
        let header = Vec::with_capacity(10);
        Self {
            io,
            header,
            left: 0,
        }
    }

    /// Sends a Close frame with this status and reason (RFC 6455 §5.5.1), unless a frame is under
    /// way.
    pub(super) async fn close(&mut self, status: u16, why: &str) -> io::Result<()> {
        if self.left > 0 || !self.header.is_empty() {
            return Ok(());
        }
        let why = &why.as_bytes()[..why.floor_char_boundary(MOST_WHY)];
        let head = [0x88, 2 + why.len() as u8];
        let frame = [&head[..], &status.to_be_bytes(), why].concat();
        self.io.write_all(&frame).await?;
        self.io.flush().await
    }

    fn follow(&mut self, mut written: &[u8]) {
        while let [first, rest @ ..] = written {
            if self.left > 0 {
                let skipped = usize::try_from(self.left).unwrap_or(usize::MAX);
                let skipped = skipped.min(written.len());
                self.left -= skipped as u64;
                written = &written[skipped..];
                continue;
            }
            self.header.push(*first);
            written = rest;
            if let Some(length) = payload(&self.header) {
                self.left = length;
                self.header.clear();
            }
        }
    }
}

/// The payload of a control frame has at most 125 bytes, of which the status takes two.
const MOST_WHY: usize = 123;

/// Returns the length of a frame's payload, once its header is whole (RFC 6455 §5.2).
fn payload(header: &[u8]) -> Option<u64> {
    let [_, length, extended @ ..] = header else {
        return None;
    };
    let extended = |bytes: usize| {
        let whole = extended.get(..bytes)?;
        Some(
            whole
                .iter()
                .fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
        )
    };
    match length & 0x7f {
        126 => extended(2),
        127 => extended(8),
        length => Some(length.into()),
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for FrameEdge<IO> {
    delegated!(poll_flush poll_shutdown);

    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, buf);
        if let Poll::Ready(Ok(count)) = &written {
            self.follow(&buf[..*count]);
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_closing_frame_stands_only_between_two_frames() {
        let frames = [
            &[0x81, 5][..],
            b"hello",
            &[0x82, 126, 1, 0],
            &[7; 256],
            &[0x82, 127, 0, 0, 0, 0, 0, 0, 0, 3],
            b"abc",
            &[0x89, 0],
        ]
        .concat();
        let borders = [0, 7, 7 + 260, 7 + 260 + 13, frames.len()];
        for end in 0..=frames.len() {
            let mut edge = FrameEdge::new(Vec::new());
            for byte in &frames[..end] {
                edge.write_all(&[*byte]).await.unwrap();
            }
            edge.close(1001, "why").await.unwrap();
            let is_told = edge.io.ends_with(b"\x88\x05\x03\xe9why") && edge.io.len() == end + 7;
            assert_eq!(is_told, borders.contains(&end), "{end}");
        }
    }
}
