//! Parses aws-chunked content strictly; verifies each chunk with the client's key and signs it
//! again with ours.
//!
//! Amazon S3 API Reference, "Signature calculations for the Authorization header: transferring
//! payload in multiple chunks" and "… chunked upload with trailing headers". A chunk's signature
//! precedes its data. So a signed chunk is buffered whole, as slices of what arrived, until it is
//! verified; nothing of it is passed on before. Unsigned chunks pass as they arrive. A new
//! signature is as long as the old one, so the content's length does not change.

use bytes::{Bytes, BytesMut};
use http::header::{HeaderMap, HeaderName};

use super::chain::Chain;
use super::held_chunk::HeldChunk;
use super::key::{Hasher, sha256};
use super::parse::one;
use super::payload::{DECODED_LENGTH, EMPTY};
use super::trailer::{MALFORMED_TRAILER, TRAILER_SIGNATURE, Trailer, announced};
use super::{Fault, Streaming};

/// Verifies aws-chunked content as it streams, and signs it again.
pub struct ChunkResigner {
    client: Chain,
    ours: Chain,
    streaming: Streaming,
    /// The longest chunk that is buffered, in bytes.
    longest: usize,
    /// How many bytes of content have not arrived yet.
    missing: u64,
    /// The names that `x-amz-trailer` announces.
    announced: Vec<HeaderName>,
    state: ChunkState,
    /// A line that is not complete yet.
    line: BytesMut,
    hasher: Hasher,
    held: HeldChunk,
}

enum ChunkState {
    /// In the line before a chunk.
    Size,
    /// In a chunk's data.
    Data(Chunk),
    /// In the line end after a chunk's data, or of the last chunk of content without a trailer.
    LineEnd { is_last: bool },
    /// In the trailer's lines, with those read so far.
    Trailer(Trailer),
    /// Nothing may follow.
    End,
    /// A fault was found, after which nothing is passed on.
    Broken,
}

struct Chunk {
    /// As the client wrote it, so that the length does not change.
    size: Box<str>,
    left: u64,
    signature: Box<str>,
}

impl ChunkResigner {
    /// Reads from the head how long the content is and what its trailer contains.
    pub(super) fn new(
        streaming: Streaming,
        client: Chain,
        ours: Chain,
        fields: &HeaderMap,
        longest: usize,
    ) -> Result<ChunkResigner, Fault> {
        const LENGTH: &str = "x-amz-decoded-content-length";
        let text = one(fields, &DECODED_LENGTH, LENGTH)?.ok_or(Fault::Missing(LENGTH))?;
        let is_number =
            !text.is_empty() && text.len() <= 18 && text.bytes().all(|b| b.is_ascii_digit());
        let missing = text
            .parse()
            .ok()
            .filter(|_| is_number)
            .ok_or(Fault::Malformed(LENGTH))?;
        Ok(ChunkResigner {
            client,
            ours,
            streaming,
            longest,
            missing,
            announced: announced(fields)?,
            state: ChunkState::Size,
            line: BytesMut::new(),
            hasher: Hasher::new(),
            held: HeldChunk::default(),
        })
    }

    /// Takes content, however cut, and adds what may be sent to `out`.
    ///
    /// # Errors
    /// [`Fault::PartMismatch`], [`Fault::Framing`] and [`Fault::PartTooLong`]. After one of them
    /// nothing more is passed on, and the origin must see that the content is incomplete.
    pub fn push(&mut self, mut input: Bytes, out: &mut Vec<Bytes>) -> Result<(), Fault> {
        while !input.is_empty() {
            let state = std::mem::replace(&mut self.state, ChunkState::Broken);
            self.state = self.step(state, &mut input, out)?;
        }
        Ok(())
    }

    /// How many bytes of a chunk are buffered until it is verified.
    pub fn held(&self) -> usize {
        self.held.length
    }

    /// Whether the content may end here.
    ///
    /// # Errors
    /// [`Fault::Framing`].
    pub fn finish(&self) -> Result<(), Fault> {
        match self.state {
            ChunkState::End => Ok(()),
            _ => Err(Fault::Framing("it ends before its last chunk")),
        }
    }

    fn step(
        &mut self,
        state: ChunkState,
        input: &mut Bytes,
        out: &mut Vec<Bytes>,
    ) -> Result<ChunkState, Fault> {
        let most = match state {
            ChunkState::Size => LONGEST_LINE,
            ChunkState::LineEnd { .. } => 2,
            ChunkState::Trailer(_) => LONGEST_TRAILER,
            ChunkState::Data(chunk) => return self.data(chunk, input, out),
            ChunkState::End => return Err(Fault::Framing("bytes follow its end")),
            ChunkState::Broken => return Err(Fault::Framing("it was broken before")),
        };
        let Some(line) = self.whole_line(input, most)? else {
            return Ok(state);
        };
        match state {
            ChunkState::Trailer(trailer) => self.trailer(trailer, &line, out),
            ChunkState::LineEnd { is_last } => {
                empty(&line)?;
                out.push(line);
                Ok(if is_last {
                    ChunkState::End
                } else {
                    ChunkState::Size
                })
            }
            _ => self.size(&line, out),
        }
    }

    /// A line with its end, once that has arrived; buffers at most `most` bytes of it.
    fn whole_line(&mut self, input: &mut Bytes, most: usize) -> Result<Option<Bytes>, Fault> {
        const TOO_LONG: Fault = Fault::Framing("a line is too long");
        let Some(end) = memchr::memchr(b'\n', input) else {
            if self.line.len() + input.len() >= most {
                return Err(TOO_LONG);
            }
            self.line.extend_from_slice(input);
            input.clear();
            return Ok(None);
        };
        let rest = input.split_to(end + 1);
        if self.line.len() + rest.len() > most {
            return Err(TOO_LONG);
        }
        if self.line.is_empty() {
            return Ok(Some(rest));
        }
        self.line.extend_from_slice(&rest);
        Ok(Some(self.line.split().freeze()))
    }

    /// `400;chunk-signature=…` or, without signatures, `400`.
    fn size(&mut self, line: &Bytes, out: &mut Vec<Bytes>) -> Result<ChunkState, Fault> {
        let text = line
            .strip_suffix(b"\r\n")
            .and_then(|line| std::str::from_utf8(line).ok());
        let text = text.ok_or(Fault::Framing("a chunk's first line is not one"))?;
        let (size, signature) = self.signed_size(text)?;
        let is_size = (1..=16).contains(&size.len()) && size.bytes().all(|b| b.is_ascii_hexdigit());
        let length = u64::from_str_radix(size, 16).ok().filter(|_| is_size);
        let length = length.ok_or(Fault::Framing("a chunk's size is no number"))?;
        self.count(length)?;
        if !self.is_signed() {
            out.push(line.clone());
        }
        let chunk = Chunk {
            size: size.into(),
            left: length,
            signature: signature.into(),
        };
        if length > 0 {
            return Ok(ChunkState::Data(chunk));
        }
        if self.is_signed() {
            self.resign(&chunk, EMPTY, out)?;
        }
        Ok(match self.streaming {
            Streaming::Signed { trailer: false, .. } => ChunkState::LineEnd { is_last: true },
            _ => ChunkState::Trailer(Trailer::default()),
        })
    }

    /// The size of a chunk in digits, and its signature.
    fn signed_size<'t>(&self, text: &'t str) -> Result<(&'t str, &'t str), Fault> {
        match (self.streaming, text.split_once(CHUNK_SIGNATURE)) {
            (Streaming::Signed { ecdsa, .. }, Some((size, signature))) => {
                Ok((size, unpadded(signature, ecdsa)?))
            }
            (Streaming::Signed { .. }, None) => Err(Fault::Framing("a chunk has no signature")),
            (Streaming::Unsigned, _) => Ok((text, "")),
        }
    }

    /// Counts a chunk towards the announced length; the last one has no length.
    fn count(&mut self, length: u64) -> Result<(), Fault> {
        self.missing = self
            .missing
            .checked_sub(length)
            .ok_or(Fault::Framing("it is longer than its decoded length"))?;
        if length > self.longest as u64 && self.is_signed() {
            return Err(Fault::PartTooLong(self.longest));
        }
        if length == 0 && self.missing > 0 {
            return Err(Fault::Framing("it is shorter than its decoded length"));
        }
        Ok(())
    }

    fn data(
        &mut self,
        mut chunk: Chunk,
        input: &mut Bytes,
        out: &mut Vec<Bytes>,
    ) -> Result<ChunkState, Fault> {
        let here = usize::try_from(chunk.left)
            .unwrap_or(usize::MAX)
            .min(input.len());
        let data = input.split_to(here);
        chunk.left -= here as u64;
        if !self.is_signed() {
            out.push(data);
        } else {
            self.hasher.update(&data);
            self.held.push(data);
            if chunk.left == 0 {
                let hash = std::mem::replace(&mut self.hasher, Hasher::new()).finish();
                self.resign(&chunk, &hash, out)?;
                self.held.release(out);
            }
        }
        Ok(if chunk.left == 0 {
            ChunkState::LineEnd { is_last: false }
        } else {
            ChunkState::Data(chunk)
        })
    }

    /// Verifies a chunk's signature and writes its line with ours.
    fn resign(&mut self, chunk: &Chunk, hash: &str, out: &mut Vec<Bytes>) -> Result<(), Fault> {
        if !self
            .client
            .verify(&self.client.chunk(hash), &chunk.signature)
        {
            return Err(Fault::PartMismatch);
        }
        let to_sign = self.ours.chunk(hash);
        let ecdsa = self.is_ecdsa();
        let signature = padded(self.ours.sign(&to_sign)?, ecdsa);
        let size = &chunk.size;
        out.push(Bytes::from(format!(
            "{size}{CHUNK_SIGNATURE}{signature}\r\n"
        )));
        Ok(())
    }

    /// Reads a line of the trailer; an empty one ends it.
    ///
    /// minio-go ends the fields with a bare line feed and writes an empty line before the
    /// signature. Both forms are unambiguous, so both are accepted.
    fn trailer(
        &mut self,
        mut trailer: Trailer,
        line: &Bytes,
        out: &mut Vec<Bytes>,
    ) -> Result<ChunkState, Fault> {
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        let bare = !text.ends_with(b"\r");
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        if trailer.raw.len() + line.len() > LONGEST_TRAILER {
            return Err(Fault::Framing("its trailer is too long"));
        }
        if text.is_empty() && !bare {
            if self.is_signed() && trailer.awaits_signature() {
                trailer.raw.extend_from_slice(line);
                return Ok(ChunkState::Trailer(trailer));
            }
            return self.trailer_end(trailer, out).map(|()| ChunkState::End);
        }
        let text = std::str::from_utf8(text).map_err(|_| MALFORMED_TRAILER)?;
        let (name, value) = text.split_once(':').ok_or(MALFORMED_TRAILER)?;
        if trailer.signature.is_some() {
            return Err(Fault::Framing("a field follows its trailer's signature"));
        }
        if name.eq_ignore_ascii_case(TRAILER_SIGNATURE) {
            if !self.is_signed() || bare {
                return Err(MALFORMED_TRAILER);
            }
            trailer.signature = Some(unpadded(value.trim(), self.is_ecdsa())?.into());
        } else {
            trailer.add(name, value.trim(), &self.announced)?;
            trailer.raw.extend_from_slice(line);
        }
        Ok(ChunkState::Trailer(trailer))
    }

    /// Verifies the trailer and writes it with our signature.
    fn trailer_end(&mut self, mut trailer: Trailer, out: &mut Vec<Bytes>) -> Result<(), Fault> {
        if self.is_signed() {
            let signature = trailer
                .signature
                .ok_or(Fault::Framing("its trailer has no signature"))?;
            let hash = sha256(&trailer.canonical);
            if !self.client.verify(&self.client.trailer(&hash), &signature) {
                return Err(Fault::PartMismatch);
            }
            let to_sign = self.ours.trailer(&hash);
            let ecdsa = self.is_ecdsa();
            let signature = padded(self.ours.sign(&to_sign)?, ecdsa);
            trailer.raw.extend_from_slice(TRAILER_SIGNATURE.as_bytes());
            trailer.raw.extend_from_slice(b":");
            trailer.raw.extend_from_slice(signature.as_bytes());
            trailer.raw.extend_from_slice(b"\r\n");
        }
        trailer.raw.extend_from_slice(b"\r\n");
        out.push(trailer.raw.freeze());
        Ok(())
    }

    fn is_signed(&self) -> bool {
        self.streaming != Streaming::Unsigned
    }

    fn is_ecdsa(&self) -> bool {
        matches!(self.streaming, Streaming::Signed { ecdsa: true, .. })
    }
}

// Shows no key and no content.
gateway_names::concealed!(ChunkResigner, streaming);

fn empty(line: &[u8]) -> Result<(), Fault> {
    match line {
        b"\r\n" => Ok(()),
        _ => Err(Fault::Framing("a chunk does not end where it should")),
    }
}

/// Pads an ECDSA signature, whose length varies, with asterisks, so that the content's length is
/// known in advance.
fn padded(signature: &str, ecdsa: bool) -> String {
    if ecdsa {
        format!("{signature:*<LONGEST_ECDSA$}")
    } else {
        signature.to_owned()
    }
}

fn unpadded(signature: &str, ecdsa: bool) -> Result<&str, Fault> {
    let length = if ecdsa { LONGEST_ECDSA } else { 64 };
    if signature.len() != length {
        return Err(Fault::Framing("a signature has a wrong length"));
    }
    Ok(if ecdsa {
        signature.trim_end_matches('*')
    } else {
        signature
    })
}

const CHUNK_SIGNATURE: &str = ";chunk-signature=";
/// 16 digits, the extension's name, and an ECDSA signature.
const LONGEST_LINE: usize = 16 + CHUNK_SIGNATURE.len() + LONGEST_ECDSA + 2;
const LONGEST_TRAILER: usize = 8 * 1024;
/// Hexadecimal digits of the longest P-256 signature in DER.
const LONGEST_ECDSA: usize = 144;
