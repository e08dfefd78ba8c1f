//! Parses aws-chunked content strictly; verifies each chunk with the client's key and signs it
//! again with ours.
//!
//! Amazon S3 API Reference, "Signature calculations for the Authorization header: transferring
//! payload in multiple chunks" and "… chunked upload with trailing headers". A chunk's signature
//! precedes its data. So a signed chunk is buffered whole, as slices of what arrived, until it is
//! verified; nothing of it is passed on before. Unsigned chunks pass as they arrive. A new
//! signature is as long as the old one, so the content's length does not change.

use std::fmt;

use bytes::{Bytes, BytesMut};
use http::header::{HeaderMap, HeaderName};

use super::key::{Hasher, sha256};
use super::parse::one;
use super::payload::{DECODED_LENGTH, EMPTY};
use super::{Chain, Fault, Streaming};
use gateway_message::fields::is_request_trailer;

/// Verifies aws-chunked content as it streams, and signs it again.
pub struct Rechain {
    client: Chain,
    ours: Chain,
    streaming: Streaming,
    /// The longest chunk that is buffered, in bytes.
    longest: usize,
    /// How many bytes of content have not arrived yet.
    missing: u64,
    /// What `x-amz-trailer` announces.
    announced: Vec<HeaderName>,
    state: State,
    /// A line that is not complete yet.
    line: BytesMut,
    hasher: Hasher,
    held: Held,
}

/// A chunk's data until it is verified: slices of what arrived, small ones joined, so that the
/// buffer is about as long as the chunk however it was cut.
#[derive(Default)]
struct Held {
    pieces: Vec<Bytes>,
    small: BytesMut,
    length: usize,
}

enum State {
    /// In the line before a chunk.
    Size,
    /// In a chunk's data.
    Data(Chunk),
    /// In the line end after a chunk's data.
    DataEnd,
    /// In the line end that ends content without a trailer.
    LastEnd,
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

#[derive(Default)]
struct Trailer {
    /// The fields in the form that is signed.
    canonical: Vec<u8>,
    /// The fields as they arrived.
    raw: BytesMut,
    seen: Vec<HeaderName>,
    signature: Option<Box<str>>,
}

impl Rechain {
    /// Reads from the head how long the content is and what its trailer contains.
    pub(super) fn new(
        streaming: Streaming,
        client: Chain,
        ours: Chain,
        fields: &HeaderMap,
        longest: usize,
    ) -> Result<Rechain, Fault> {
        const LENGTH: &str = "x-amz-decoded-content-length";
        let text = one(fields, &DECODED_LENGTH, LENGTH)?.ok_or(Fault::Missing(LENGTH))?;
        let is_number =
            !text.is_empty() && text.len() <= 18 && text.bytes().all(|b| b.is_ascii_digit());
        let missing = text
            .parse()
            .ok()
            .filter(|_| is_number)
            .ok_or(Fault::Malformed(LENGTH))?;
        Ok(Rechain {
            client,
            ours,
            streaming,
            longest,
            missing,
            announced: announced(fields)?,
            state: State::Size,
            line: BytesMut::new(),
            hasher: Hasher::new(),
            held: Held::default(),
        })
    }

    /// Takes content, however cut, and adds what may be sent to `out`.
    ///
    /// # Errors
    /// [`Fault::PartMismatch`], [`Fault::Framing`] and [`Fault::PartTooLong`]. After one of them
    /// nothing more is passed on, and the origin must see that the content is incomplete.
    pub fn push(&mut self, mut input: Bytes, out: &mut Vec<Bytes>) -> Result<(), Fault> {
        while !input.is_empty() {
            let state = std::mem::replace(&mut self.state, State::Broken);
            self.state = self.step(state, &mut input, out)?;
        }
        Ok(())
    }

    /// How many bytes of a chunk are buffered until it is verified.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.length
    }

    /// Whether the content may end here.
    ///
    /// # Errors
    /// [`Fault::Framing`].
    pub fn finish(&self) -> Result<(), Fault> {
        match self.state {
            State::End => Ok(()),
            _ => Err(Fault::Framing("it ends before its last chunk")),
        }
    }

    fn step(
        &mut self,
        state: State,
        input: &mut Bytes,
        out: &mut Vec<Bytes>,
    ) -> Result<State, Fault> {
        Ok(match state {
            State::Data(chunk) => self.data(chunk, input, out)?,
            State::Size => match self.whole_line(input, LONGEST_LINE)? {
                Some(line) => self.size(&line, out)?,
                None => State::Size,
            },
            State::DataEnd => match self.whole_line(input, 2)? {
                Some(line) => {
                    empty(&line)?;
                    out.push(line);
                    State::Size
                }
                None => State::DataEnd,
            },
            State::LastEnd => match self.whole_line(input, 2)? {
                Some(line) => {
                    empty(&line)?;
                    out.push(line);
                    State::End
                }
                None => State::LastEnd,
            },
            State::Trailer(trailer) => match self.whole_line(input, LONGEST_TRAILER)? {
                Some(line) => self.trailer(trailer, &line, out)?,
                None => State::Trailer(trailer),
            },
            State::End => return Err(Fault::Framing("bytes follow its end")),
            State::Broken => return Err(Fault::Framing("it was broken before")),
        })
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
    fn size(&mut self, line: &Bytes, out: &mut Vec<Bytes>) -> Result<State, Fault> {
        let text = line
            .strip_suffix(b"\r\n")
            .and_then(|line| std::str::from_utf8(line).ok());
        let text = text.ok_or(Fault::Framing("a chunk's first line is not one"))?;
        let (size, signature) = match (self.streaming, text.split_once(CHUNK_SIGNATURE)) {
            (Streaming::Signed { ecdsa, .. }, Some((size, signature))) => {
                (size, unpadded(signature, ecdsa)?)
            }
            (Streaming::Signed { .. }, None) => {
                return Err(Fault::Framing("a chunk has no signature"));
            }
            (Streaming::Unsigned, _) => (text, ""),
        };
        let is_size = (1..=16).contains(&size.len()) && size.bytes().all(|b| b.is_ascii_hexdigit());
        let length = u64::from_str_radix(size, 16).ok().filter(|_| is_size);
        let length = length.ok_or(Fault::Framing("a chunk's size is no number"))?;
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
        if !self.is_signed() {
            out.push(line.clone());
        }
        let chunk = Chunk {
            size: size.into(),
            left: length,
            signature: signature.into(),
        };
        if length > 0 {
            return Ok(State::Data(chunk));
        }
        if self.is_signed() {
            self.resign(&chunk, EMPTY, out)?;
        }
        Ok(match self.streaming {
            Streaming::Signed { trailer: false, .. } => State::LastEnd,
            _ => State::Trailer(Trailer::default()),
        })
    }

    fn data(
        &mut self,
        mut chunk: Chunk,
        input: &mut Bytes,
        out: &mut Vec<Bytes>,
    ) -> Result<State, Fault> {
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
            State::DataEnd
        } else {
            State::Data(chunk)
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
        out.push(Bytes::from(format!(
            "{}{CHUNK_SIGNATURE}{signature}\r\n",
            chunk.size
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
    ) -> Result<State, Fault> {
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        let bare = !text.ends_with(b"\r");
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        if trailer.raw.len() + line.len() > LONGEST_TRAILER {
            return Err(Fault::Framing("its trailer is too long"));
        }
        if text.is_empty() && !bare {
            let is_before_signature = self.is_signed()
                && trailer.signature.is_none()
                && trailer.raw.ends_with(b"\n")
                && !trailer.raw.ends_with(b"\r\n");
            if is_before_signature {
                trailer.raw.extend_from_slice(line);
                return Ok(State::Trailer(trailer));
            }
            return self.trailer_end(trailer, out).map(|()| State::End);
        }
        let text = std::str::from_utf8(text).map_err(|_| TRAILER)?;
        let (name, value) = text.split_once(':').ok_or(TRAILER)?;
        if trailer.signature.is_some() {
            return Err(Fault::Framing("a field follows its trailer's signature"));
        }
        if name.eq_ignore_ascii_case(TRAILER_SIGNATURE) {
            if !self.is_signed() || bare {
                return Err(TRAILER);
            }
            trailer.signature = Some(unpadded(value.trim(), self.is_ecdsa())?.into());
            return Ok(State::Trailer(trailer));
        }
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| TRAILER)?;
        if !self.announced.contains(&name) || trailer.seen.contains(&name) {
            return Err(Fault::Framing(
                "its trailer holds a field that was not announced",
            ));
        }
        trailer
            .canonical
            .extend_from_slice(name.as_str().as_bytes());
        trailer.canonical.push(b':');
        trailer.canonical.extend_from_slice(value.trim().as_bytes());
        trailer.canonical.push(b'\n');
        trailer.raw.extend_from_slice(line);
        trailer.seen.push(name);
        Ok(State::Trailer(trailer))
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

impl Held {
    fn push(&mut self, piece: Bytes) {
        self.length += piece.len();
        if piece.len() < SMALL {
            self.small.extend_from_slice(&piece);
        } else {
            self.join();
            self.pieces.push(piece);
        }
    }

    fn release(&mut self, out: &mut Vec<Bytes>) {
        self.join();
        self.length = 0;
        out.append(&mut self.pieces);
    }

    fn join(&mut self) {
        if !self.small.is_empty() {
            self.pieces.push(self.small.split().freeze());
        }
    }
}

/// Shows no key and no content.
impl fmt::Debug for Rechain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rechain")
            .field("streaming", &self.streaming)
            .finish_non_exhaustive()
    }
}

fn empty(line: &[u8]) -> Result<(), Fault> {
    match line {
        b"\r\n" => Ok(()),
        _ => Err(Fault::Framing("a chunk does not end where it should")),
    }
}

/// The names that `x-amz-trailer` announces. As in HTTP's own trailers, only checksums may follow
/// the content: a server that treats a trailer as a field must not see one that no policy saw.
fn announced(fields: &HeaderMap) -> Result<Vec<HeaderName>, Fault> {
    const MALFORMED: Fault = Fault::Malformed("x-amz-trailer");
    let values = fields.get_all("x-amz-trailer");
    let names = values
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    let mut announced = Vec::new();
    for name in names.map(<[u8]>::trim_ascii) {
        if announced.len() == MOST_TRAILERS {
            return Err(MALFORMED);
        }
        let name = HeaderName::from_bytes(name).map_err(|_| MALFORMED)?;
        if !is_request_trailer(name.as_str()) || name == TRAILER_SIGNATURE {
            return Err(MALFORMED);
        }
        announced.push(name);
    }
    Ok(announced)
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

const TRAILER: Fault = Fault::Framing("its trailer is malformed");
const CHUNK_SIGNATURE: &str = ";chunk-signature=";
const TRAILER_SIGNATURE: &str = "x-amz-trailer-signature";
/// Shorter pieces are copied rather than kept.
const SMALL: usize = 4 * 1024;
/// 16 digits, the extension's name, and an ECDSA signature.
const LONGEST_LINE: usize = 16 + CHUNK_SIGNATURE.len() + LONGEST_ECDSA + 2;
const LONGEST_TRAILER: usize = 8 * 1024;
const MOST_TRAILERS: usize = 16;
/// Hexadecimal digits of the longest P-256 signature in DER.
const LONGEST_ECDSA: usize = 144;
