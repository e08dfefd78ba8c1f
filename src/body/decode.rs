//! Decodes a body to its identity form while its reader polls it.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

use super::{Decoder, Error, Step};

/// A body whose content codings are decoded, one piece per poll. Back-pressure from the reader
/// reaches the wire.
///
/// The caller removes `Content-Encoding` and `Content-Length` from the head.
pub struct DecodeBody<B> {
    body: B,
    decoder: Decoder,
    trailers: Option<HeaderMap>,
    state: State,
    /// The unfinished block, if the output is in blocks.
    block: Option<BytesMut>,
    /// Whether an unfinished block is output when the body pauses.
    pauses: bool,
    /// A frame that was put back, and is output first.
    first: Option<Frame<Bytes>>,
}

/// The length of a block.
const BLOCK: usize = 16 * 1024;

/// Why a decoded body ended early.
#[derive(Debug, thiserror::Error)]
pub enum DecodeFault<E> {
    /// The body itself failed.
    #[error(transparent)]
    Body(E),
    /// Decoding failed.
    #[error(transparent)]
    Coding(#[from] Error),
}

#[derive(PartialEq, Eq)]
enum State {
    Reading,
    /// The wire has ended, but the decoder has not.
    Draining,
    Done,
}

impl<B> DecodeBody<B> {
    /// Wraps a body whose codings the decoder decodes.
    pub fn new(body: B, decoder: Decoder) -> Self {
        Self {
            body,
            decoder,
            trailers: None,
            state: State::Reading,
            block: None,
            pauses: false,
            first: None,
        }
    }

    /// Puts a frame that was read back in front.
    pub fn put_back(&mut self, frame: Frame<Bytes>) {
        self.first = Some(frame);
    }

    /// Makes the body output blocks of 16 KiB and one shorter at the end, so that the lengths of
    /// its frames do not reveal where the coded pieces ended. With `pauses`, a block also ends
    /// where the body pauses, as between two events.
    #[must_use]
    pub fn in_blocks(self, pauses: bool) -> Self {
        Self {
            block: Some(BytesMut::new()),
            pauses,
            ..self
        }
    }

    /// Takes a decoded piece, and returns a piece that may be output.
    fn settle(&mut self, piece: Bytes) -> Option<Bytes> {
        match &mut self.block {
            None => Some(piece),
            Some(block) => {
                block.extend_from_slice(&piece);
                self.full_block()
            }
        }
    }

    fn full_block(&mut self) -> Option<Bytes> {
        let block = self.block.as_mut()?;
        (block.len() >= BLOCK).then(|| block.split_to(BLOCK).freeze())
    }

    /// The bytes of the unfinished block at the end.
    fn rest(&mut self) -> Option<Bytes> {
        let rest = self.block.take()?;
        (!rest.is_empty()).then(|| rest.freeze())
    }

    fn drain(&mut self, trailers: Option<HeaderMap>) {
        self.trailers = trailers;
        self.state = State::Draining;
        self.decoder.end();
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for DecodeBody<B> {
    type Data = Bytes;
    type Error = DecodeFault<B::Error>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        if let Some(first) = this.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        while this.state != State::Done {
            if let Some(block) = this.full_block() {
                return Poll::Ready(Some(Ok(Frame::data(block))));
            }
            match this.decoder.step() {
                Ok(Step::Piece(piece)) => match this.settle(piece) {
                    Some(settled) => return Poll::Ready(Some(Ok(Frame::data(settled)))),
                    None => continue,
                },
                Ok(Step::Busy) => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Ok(Step::End) => {
                    if let Some(rest) = this.rest() {
                        return Poll::Ready(Some(Ok(Frame::data(rest))));
                    }
                    this.state = State::Done;
                    return Poll::Ready(
                        this.trailers
                            .take()
                            .map(|fields| Ok(Frame::trailers(fields))),
                    );
                }
                Err(error) => {
                    this.state = State::Done;
                    return Poll::Ready(Some(Err(error.into())));
                }
                Ok(Step::Starved) => {}
            }
            match Pin::new(&mut this.body).poll_frame(cx) {
                Poll::Pending => {
                    let waiting = this.block.as_mut().filter(|block| !block.is_empty());
                    return match waiting.filter(|_| this.pauses) {
                        Some(block) => Poll::Ready(Some(Ok(Frame::data(block.split().freeze())))),
                        None => Poll::Pending,
                    };
                }
                Poll::Ready(None) => this.drain(None),
                Poll::Ready(Some(Err(error))) => {
                    this.state = State::Done;
                    return Poll::Ready(Some(Err(DecodeFault::Body(error))));
                }
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(chunk) => this.decoder.feed(chunk),
                    Err(frame) => this.drain(frame.into_trailers().ok()),
                },
            }
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        // Even if the wire has ended, the end of the coded form must be checked first.
        self.state == State::Done && self.first.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http_body_util::{BodyExt, Full};

    use super::*;
    use crate::{Coding, MockBody};

    /// `hello` as gzip.
    const HELLO: &[u8] = &[
        0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0xcb, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0x86, 0xa6,
        0x10, 0x36, 5, 0, 0, 0,
    ];

    fn gunzip<B: Body<Data = Bytes>>(body: B) -> DecodeBody<B> {
        DecodeBody::new(body, Decoder::new(&[Coding::Gzip]).expect("one coding"))
    }

    fn data(bytes: &'static [u8]) -> Result<Frame<Bytes>, &'static str> {
        Ok(Frame::data(Bytes::from_static(bytes)))
    }

    #[tokio::test]
    async fn a_coded_body_reads_as_its_identity_form_with_its_trailers() {
        let fields =
            HeaderMap::from_iter([(http::header::ETAG, HeaderValue::from_static("\"x\""))]);
        let frames = HELLO
            .chunks(1)
            .map(data)
            .chain([Ok(Frame::trailers(fields.clone()))]);
        let read = gunzip(MockBody(frames.collect()))
            .collect()
            .await
            .expect("it is valid");
        assert_eq!(read.trailers(), Some(&fields));
        assert_eq!(read.to_bytes(), "hello");
    }

    #[tokio::test]
    async fn a_body_of_known_length_is_checked_to_the_end_of_its_coded_form() {
        let read = gunzip(Full::new(Bytes::from_static(HELLO)))
            .collect()
            .await
            .expect("it is valid");
        assert_eq!(read.to_bytes(), "hello");
        let short = gunzip(Full::new(Bytes::from_static(&HELLO[..HELLO.len() - 1])));
        assert!(!short.is_end_stream());
        let error = short.collect().await.expect_err("its last byte is missing");
        assert!(matches!(
            error,
            DecodeFault::Coding(Error::Truncated(Coding::Gzip))
        ));
    }

    #[tokio::test]
    async fn frames_of_blocks_do_not_tell_where_the_coded_pieces_ended() {
        use compression_codecs::core::Level;
        use compression_codecs::core::util::{PartialBuffer, WriteBuffer};
        use compression_codecs::flate::params::FlateEncoderParams;
        use compression_codecs::{EncodeV2, GzipEncoder};
        let plain: Vec<u8> = (0..40_000u32).flat_map(u32::to_le_bytes).collect();
        let mut scratch = vec![0; 1 << 20];
        let mut coded = WriteBuffer::new_initialized(&mut scratch);
        let mut encoder = GzipEncoder::new(FlateEncoderParams::from(Level::Fastest));
        let mut input = PartialBuffer::new(&plain[..]);
        encoder.encode(&mut input, &mut coded).expect("it fits");
        assert!(encoder.finish(&mut coded).expect("it fits"));
        let coded = Bytes::copy_from_slice(coded.written());
        for cut in [1, 1000, 4096, coded.len()] {
            let pieces = coded.chunks(cut).map(|piece| coded.slice_ref(piece));
            let script = pieces.map(|piece| Ok::<_, &str>(Frame::data(piece)));
            let mut body = gunzip(MockBody(script.collect())).in_blocks(false);
            let (mut lengths, mut read) = (Vec::new(), Vec::new());
            while let Some(frame) = body.frame().await {
                let data = frame.expect("it is valid").into_data().expect("data");
                lengths.push(data.len());
                read.extend_from_slice(&data);
            }
            let last = lengths.pop().expect("content");
            assert!(lengths.iter().all(|&length| length == BLOCK), "{lengths:?}");
            assert_eq!(last, plain.len() % BLOCK, "pieces of {cut}");
            assert_eq!(read, plain);
        }
    }

    #[tokio::test]
    async fn a_failing_body_fails_decoded() {
        let script = MockBody([data(&HELLO[..12]), Err("cut")].into());
        assert!(matches!(
            gunzip(script).collect().await,
            Err(DecodeFault::Body("cut"))
        ));
    }
}
