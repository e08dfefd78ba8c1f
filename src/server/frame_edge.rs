//! Follows the WebSocket frames that are written to the client, so that a cut sends a Close frame
//! if it falls between frames.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use gateway_names::delegated;
use gateway_wire::Cursor;
use gateway_wire::websocket::{CLOSE, Frames, whole_frame};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

/// The client's side of a WebSocket. Frames of a server are not masked (RFC 6455 §5.1).
pub(super) struct FrameEdge<IO> {
    io: IO,
    /// What was written; `None` after bytes that are no frame.
    frames: Option<Frames>,
}

impl<IO: AsyncWrite + Unpin> FrameEdge<IO> {
    pub(super) fn new(io: IO) -> Self {
        let frames = Some(Frames::new(false));
        Self { io, frames }
    }

    /// Sends a Close frame with this status and reason (RFC 6455 §5.5.1), unless a frame is under
    /// way.
    pub(super) async fn close(&mut self, status: u16, why: &str) -> io::Result<()> {
        if !self.frames.as_ref().is_some_and(Frames::is_between) {
            return Ok(());
        }
        let why = &why.as_bytes()[..why.floor_char_boundary(MOST_WHY)];
        let payload = [&status.to_be_bytes()[..], why].concat();
        self.io
            .write_all(&whole_frame(CLOSE, &payload, None))
            .await?;
        self.io.flush().await
    }

    fn follow(&mut self, written: &[u8]) {
        let mut cursor = Cursor::new(written);
        while let Some(frames) = &mut self.frames {
            match frames.next(&mut cursor) {
                Ok(Some(_)) => {}
                Ok(None) => return,
                Err(_) => self.frames = None,
            }
        }
    }
}

/// The payload of a control frame has at most 125 bytes, of which the status takes two.
const MOST_WHY: usize = 123;

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
            &[0x89, 0],
            &[0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0],
            &[7; 1 << 16],
        ]
        .concat();
        let borders = [0, 7, 7 + 260, 7 + 260 + 2, frames.len()];
        for end in (0..300).chain([frames.len() - 1, frames.len()]) {
            for length in [1, 9, 1 << 17] {
                let mut edge = FrameEdge::new(Vec::new());
                for piece in frames[..end].chunks(length) {
                    edge.write_all(piece).await.unwrap();
                }
                edge.close(1001, "why").await.unwrap();
                let is_told = edge.io.ends_with(b"\x88\x05\x03\xe9why") && edge.io.len() == end + 7;
                assert_eq!(is_told, borders.contains(&end), "{end}");
            }
        }
        // A frame of a client, of which the next border is not known.
        let mut edge = FrameEdge::new(Vec::new());
        edge.write_all(&[0x81, 0x80, 0, 0, 0, 0]).await.unwrap();
        edge.close(1001, "why").await.unwrap();
        assert_eq!(edge.io.len(), 6);
    }
}
