//! The decoder of content codings, with bounded input, output and work per step, whatever the
//! compression ratio.

use bytes::{Bytes, BytesMut};
use compression_codecs::{
    BrotliDecoder, DecodeV2, DeflateDecoder, GzipDecoder, ZlibDecoder, ZstdDecoder,
    core::util::{PartialBuffer, WriteBuffer},
    zstd::params::DParameter,
};

use super::{Coding, Error, HoldFault, Limit, Share};

/// Decodes up to [`Coding::MOST`] stacked codings as the bytes arrive.
///
/// Memory does not depend on the content. It holds the windows of the codings (32 KiB deflate,
/// 16 MiB brotli, 8 MiB zstd), one piece per coding, and the last chunk that was fed.
pub struct Decoder {
    /// In decoding order: the first one reads the wire.
    stages: Vec<Stage>,
    /// Bytes that pass through unchanged if there are no codings.
    plain: Bytes,
    ended: bool,
    limit: Option<Limit>,
    produced: u64,
    refills: u32,
    /// The decoder's share of its session's budget, held as long as the decoder exists.
    _share: Option<Share>,
}

/// The result of one [`Decoder::step`].
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// The next bytes of the identity form, at most [`Decoder::PIECE`] unless there is no coding.
    Piece(Bytes),
    /// No output yet, but more work to do. Let other tasks run, then step again.
    Busy,
    /// All input is consumed. Feed more, or declare the end.
    Starved,
    /// The content is complete.
    End,
}

impl Decoder {
    /// The most bytes in one piece.
    pub const PIECE: usize = 32 << 10;

    /// Creates a decoder for codings in the order they were applied, as returned by
    /// [`Coding::parse_list`].
    ///
    /// # Errors
    /// [`Error::TooManyCodings`] for more than [`Coding::MOST`].
    pub fn new(codings: &[Coding]) -> Result<Self, Error> {
        if codings.len() > Coding::MOST {
            return Err(Error::TooManyCodings);
        }
        Ok(Self {
            stages: codings
                .iter()
                .rev()
                .map(|&coding| Stage::new(coding))
                .collect(),
            plain: Bytes::new(),
            ended: false,
            limit: None,
            produced: 0,
            refills: 0,
            _share: None,
        })
    }

    /// Makes the decoder take its memory from its session's budget.
    ///
    /// # Errors
    /// [`HoldFault::Busy`] if the budget has no space.
    pub fn within(self, mut share: Share) -> Result<Self, HoldFault> {
        share.set(self.stages.iter().map(|stage| stage.coding.memory()).sum())?;
        Ok(Self {
            _share: Some(share),
            ..self
        })
    }

    /// Makes the decoder fail at a second member or frame, because some readers use only the
    /// first.
    #[must_use]
    pub fn once(mut self) -> Self {
        self.stages.iter_mut().for_each(|stage| stage.once = true);
        self
    }

    /// Makes the decoder fail when the identity form exceeds the limit.
    pub fn limited(self, limit: Limit) -> Self {
        Self {
            limit: Some(limit),
            ..self
        }
    }

    /// Feeds the next bytes from the wire. Call it after [`Step::Starved`].
    pub fn feed(&mut self, chunk: Bytes) {
        let input = self.stages.first_mut();
        let input = input.map_or(&mut self.plain, |stage| &mut stage.input);
        if input.is_empty() {
            *input = chunk;
        } else {
            let mut joined = BytesMut::from(&input[..]);
            joined.extend_from_slice(&chunk);
            *input = joined.freeze();
        }
    }

    /// Declares that nothing more will be fed.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// Does a bounded amount of work.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Truncated`], [`Error::Trailing`] or [`Error::TooLong`]. The
    /// decoder cannot be used afterwards.
    pub fn step(&mut self) -> Result<Step, Error> {
        self.refills = 0;
        let step = match self.stages.len() {
            0 if !self.plain.is_empty() => Step::Piece(std::mem::take(&mut self.plain)),
            0 if self.ended => Step::End,
            0 => Step::Starved,
            stages => self.produce(stages - 1)?,
        };
        if let (Step::Piece(piece), Some(limit)) = (&step, self.limit) {
            self.produced += piece.len() as u64;
            if limit.is_passed_by(self.produced) {
                return Err(Error::TooLong(limit));
            }
        }
        Ok(step)
    }

    /// Makes a stage produce its next piece from the output of the stage before it.
    fn produce(&mut self, index: usize) -> Result<Step, Error> {
        loop {
            match self.stages[index].run()? {
                Step::Starved => {}
                step => return Ok(step),
            }
            let step = match index {
                0 if self.ended => Step::End,
                0 => Step::Starved,
                // A stage can consume input endlessly without output (empty gzip members, skippable
                // zstd frames).
                _ if self.refills == REFILLS => Step::Busy,
                _ => {
                    self.refills += 1;
                    self.produce(index - 1)?
                }
            };
            match step {
                Step::Piece(piece) => self.stages[index].input = piece,
                Step::End => {
                    self.stages[index].finish()?;
                    return Ok(Step::End);
                }
                other => return Ok(other),
            }
        }
    }
}

/// The decoder of one coding.
struct Stage {
    coding: Coding,
    codec: Codec,
    input: Bytes,
    place: StagePosition,
    /// Whether nothing may follow the first member or frame.
    once: bool,
    /// Whether the last call filled its output, so that the codec may hold more.
    full: bool,
    scratch: Box<[u8]>,
}

/// The position of a stage in its coded form.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StagePosition {
    /// Before the first byte.
    Start,
    Inside,
    /// After a complete member or frame.
    Complete,
}

enum Codec {
    Gzip(GzipDecoder),
    /// `deflate`, before enough bytes are known to tell which of its two formats it is.
    Unsure(Option<u8>),
    Zlib(ZlibDecoder),
    Deflate(DeflateDecoder),
    Brotli(BrotliDecoder),
    Zstd(ZstdDecoder),
}

impl Stage {
    fn new(coding: Coding) -> Self {
        let codec = match coding {
            Coding::Gzip => Codec::Gzip(GzipDecoder::new()),
            Coding::Deflate => Codec::Unsure(None),
            Coding::Brotli => Codec::Brotli(BrotliDecoder::new()),
            // RFC 9659 §3: a decoder for the content coding needs no window above 8 MiB.
            Coding::Zstd => {
                Codec::Zstd(ZstdDecoder::new_with_params(&[DParameter::window_log_max(
                    23,
                )]))
            }
        };
        Self {
            coding,
            codec,
            input: Bytes::new(),
            place: StagePosition::Start,
            once: false,
            full: false,
            scratch: vec![0; Decoder::PIECE].into_boxed_slice(),
        }
    }

    /// Works until there is a piece, all input is consumed, or many members had no content.
    fn run(&mut self) -> Result<Step, Error> {
        let mut members = 0;
        while self.full || !self.input.is_empty() {
            if members == MEMBERS {
                return Ok(Step::Busy);
            }
            self.skip_padding();
            members += usize::from(self.place == StagePosition::Complete);
            self.enter()?;
            if self.place == StagePosition::Complete {
                return Ok(Step::Starved);
            }
            let written = self.call()?;
            if written > 0 {
                let piece = Bytes::copy_from_slice(&self.scratch[..written]);
                return Ok(Step::Piece(piece));
            }
        }
        Ok(Step::Starved)
    }

    /// Skips zeros after a whole member, as gzip does: archives are padded with them. Some origins
    /// write the end of a line there.
    fn skip_padding(&mut self) {
        if self.place == StagePosition::Complete && self.coding == Coding::Gzip && !self.once {
            let is_padding = |byte: &&u8| b"\0\r\n".contains(byte);
            let padding = self.input.iter().take_while(is_padding).count();
            let _ = self.input.split_to(padding);
        }
    }

    /// Prepares for the next byte of input: starts a new member after a complete one, and checks a
    /// first byte.
    fn enter(&mut self) -> Result<(), Error> {
        let Some(&first) = self.input.first() else {
            return Ok(());
        };
        match (self.place, &mut self.codec) {
            (StagePosition::Inside, _) => {}
            // RFC 7932 §9.1 has no window code 0010001. It starts the large-window format, whose
            // windows reach 1 GiB.
            (StagePosition::Start, Codec::Brotli(_)) if first & 0x7f == 0x11 => {
                return Err(Error::Corrupt(self.coding));
            }
            (StagePosition::Start, _) => {}
            (StagePosition::Complete, _) if self.once => return Err(Error::Trailing(self.coding)),
            (StagePosition::Complete, Codec::Gzip(codec)) => reset(codec, self.coding)?,
            (StagePosition::Complete, Codec::Zstd(codec)) => reset(codec, self.coding)?,
            (StagePosition::Complete, _) => return Err(Error::Trailing(self.coding)),
        }
        self.place = StagePosition::Inside;
        Ok(())
    }

    /// Calls the codec once. Returns the number of bytes written to the scratch buffer.
    fn call(&mut self) -> Result<usize, Error> {
        if let Codec::Unsure(held) = self.codec {
            self.sniff(held);
            return Ok(0);
        }
        let mut input = PartialBuffer::new(&self.input[..]);
        let mut output = WriteBuffer::new_initialized(&mut self.scratch);
        let drain = self.input.is_empty();
        let done = match &mut self.codec {
            // The flate decoders treat empty input as an error. `flush` makes them output what they
            // have buffered.
            Codec::Gzip(codec) if drain => codec.flush(&mut output).map(|_| false),
            Codec::Zlib(codec) if drain => codec.flush(&mut output).map(|_| false),
            Codec::Deflate(codec) if drain => codec.flush(&mut output).map(|_| false),
            Codec::Gzip(codec) => codec.decode(&mut input, &mut output),
            Codec::Zlib(codec) => codec.decode(&mut input, &mut output),
            Codec::Deflate(codec) => codec.decode(&mut input, &mut output),
            Codec::Brotli(codec) => DecodeV2::decode(codec, &mut input, &mut output),
            Codec::Zstd(codec) => codec.decode(&mut input, &mut output),
            Codec::Unsure(_) => return Ok(0),
        }
        .map_err(|_| Error::Corrupt(self.coding))?;
        let (read, written) = (input.written_len(), output.written_len());
        self.full = !done && output.has_no_spare_space();
        if done {
            self.place = StagePosition::Complete;
        } else if read == 0 && written == 0 && !drain {
            // A codec must not stall while it has both input and space for output.
            return Err(Error::Corrupt(self.coding));
        }
        let _ = self.input.split_to(read);
        Ok(written)
    }

    /// Tells zlib from raw deflate by the first two bytes (RFC 1950 §2.2), then puts them back.
    fn sniff(&mut self, held: Option<u8>) {
        let (cmf, flg) = match (held, &self.input[..]) {
            (None, &[cmf, flg, ..]) | (Some(cmf), &[flg, ..]) => (cmf, flg),
            (None, &[cmf]) => {
                self.codec = Codec::Unsure(Some(cmf));
                self.input.clear();
                return;
            }
            (_, []) => return,
        };
        let header = u16::from_be_bytes([cmf, flg]);
        let zlib = cmf & 0x0f == 8 && cmf >> 4 <= 7 && header.is_multiple_of(31) && flg & 0x20 == 0;
        self.codec = if zlib {
            Codec::Zlib(ZlibDecoder::new())
        } else {
            Codec::Deflate(DeflateDecoder::new())
        };
        if held.is_some() {
            let mut joined = BytesMut::with_capacity(1 + self.input.len());
            joined.extend_from_slice(&[cmf]);
            joined.extend_from_slice(&self.input);
            self.input = joined.freeze();
        }
    }

    /// Checks that the content did not end inside its coded form. Empty content is complete under
    /// every label.
    fn finish(&mut self) -> Result<(), Error> {
        if self.place != StagePosition::Inside {
            return Ok(());
        }
        // A flate stream may have ended during a flush, which does not report the end.
        let mut none = [0; 1];
        let mut output = WriteBuffer::new_initialized(&mut none);
        let complete = match &mut self.codec {
            Codec::Zlib(codec) => codec.finish(&mut output),
            Codec::Deflate(codec) => codec.finish(&mut output),
            _ => Ok(false),
        };
        match complete {
            Ok(true) if output.written_len() == 0 => Ok(()),
            _ => Err(Error::Truncated(self.coding)),
        }
    }
}

fn reset(codec: &mut impl DecodeV2, coding: Coding) -> Result<(), Error> {
    codec.reinit().map_err(|_| Error::Corrupt(coding))
}

/// How many pieces a stage may consume in one step before others must run.
const REFILLS: u32 = 8;

/// The most members or frames without content in one step. Each resets its codec.
const MEMBERS: usize = 32;

#[cfg(test)]
#[path = "decompress_tests.rs"]
mod tests;
