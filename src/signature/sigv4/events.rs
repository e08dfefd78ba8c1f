//! Event streams: verifies each signed message with the client's key and signs it again with ours.
//!
//! Amazon Transcribe Developer Guide, "Event stream encoding" and "Setting up an HTTP/2 stream". A
//! message consists of its length, the length of its headers, a checksum of both, headers, payload
//! and a checksum of everything. A signed message has two headers, `:date` and `:chunk-signature`,
//! and carries the service's own message as its payload; one without payload ends the stream. A
//! message is buffered whole until it is verified. Its length does not change.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::{BufMut as _, Bytes, BytesMut};

use super::chain::Chain;
use super::payload::unhex;
use super::{AmzDate, Fault};

/// Verifies signed messages as they stream, and signs them again.
pub struct EventResigner {
    client: Chain,
    ours: Chain,
    /// The longest message that is buffered, in bytes.
    longest: usize,
    held: BytesMut,
    state: StreamState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum StreamState {
    Open,
    /// The message without payload has passed.
    Ended,
    /// A fault was found, after which nothing is passed on.
    Broken,
}

/// The two headers of a signed message.
struct Headers {
    /// Milliseconds since 1970, as the client wrote them.
    date: i64,
    signature: [u8; 32],
    date_first: bool,
}

impl EventResigner {
    pub(super) fn new(client: Chain, ours: Chain, longest: usize) -> EventResigner {
        EventResigner {
            client,
            ours,
            longest,
            held: BytesMut::new(),
            state: StreamState::Open,
        }
    }

    /// Takes content, however cut, and adds what may be sent to `out`; `now` is the gateway's
    /// clock.
    ///
    /// # Errors
    /// [`Fault::PartMismatch`], [`Fault::Framing`], [`Fault::PartTooLong`], and [`Fault::Date`] if
    /// either clock has left the head's day and the next. After one of them nothing more is passed
    /// on.
    pub fn push(
        &mut self,
        input: &[u8],
        now: SystemTime,
        out: &mut Vec<Bytes>,
    ) -> Result<(), Fault> {
        if self.state == StreamState::Broken {
            return Err(Fault::Framing("it was broken before"));
        }
        let ended = std::mem::replace(&mut self.state, StreamState::Broken) == StreamState::Ended;
        let done = self.messages(input, ended, now, out)?;
        self.state = if done {
            StreamState::Ended
        } else {
            StreamState::Open
        };
        Ok(())
    }

    /// How many bytes of a message are buffered until it is verified.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Whether the content may end here.
    ///
    /// # Errors
    /// [`Fault::Framing`].
    pub fn finish(&self) -> Result<(), Fault> {
        match self.state {
            StreamState::Ended => Ok(()),
            _ => Err(Fault::Framing("it ends before its last message")),
        }
    }

    /// Whether the last message has passed.
    fn messages(
        &mut self,
        mut input: &[u8],
        ended: bool,
        now: SystemTime,
        out: &mut Vec<Bytes>,
    ) -> Result<bool, Fault> {
        let mut ended = ended;
        while !input.is_empty() {
            if ended {
                return Err(Fault::Framing("bytes follow its end"));
            }
            // At most one message is buffered, whatever it says about its length.
            let missing = self.missing()?;
            let (here, rest) = input.split_at(missing.min(input.len()));
            self.held.extend_from_slice(here);
            input = rest;
            if self.missing()? == 0 {
                let message = self.held.split().freeze();
                ended = self.message(&message, now, out)?;
            }
        }
        Ok(ended)
    }

    /// How many bytes the buffered message still needs, at first to know its length.
    fn missing(&self) -> Result<usize, Fault> {
        let Some(prelude) = self.held.first_chunk::<PRELUDE>() else {
            return Ok(PRELUDE - self.held.len());
        };
        let total = usize::try_from(number(prelude, 0)).unwrap_or(usize::MAX);
        if number(prelude, 8) != crc32fast::hash(&prelude[..8]) {
            return Err(Fault::Framing("a message's first checksum is wrong"));
        }
        if total > self.longest {
            return Err(Fault::PartTooLong(self.longest));
        }
        let headers = usize::try_from(number(prelude, 4)).unwrap_or(usize::MAX);
        if headers != HEADERS || total < PRELUDE + HEADERS + CHECKSUM {
            return Err(Fault::Framing("a message is not a signed one"));
        }
        Ok(total - self.held.len())
    }

    /// Verifies one message and signs it again; returns whether it was the last.
    fn message(
        &mut self,
        message: &Bytes,
        now: SystemTime,
        out: &mut Vec<Bytes>,
    ) -> Result<bool, Fault> {
        let (body, checksum) = message.split_at(message.len() - CHECKSUM);
        if number(checksum, 0) != crc32fast::hash(body) {
            return Err(Fault::Framing("a message's checksum is wrong"));
        }
        let headers = Headers::read(&body[PRELUDE..PRELUDE + HEADERS])?;
        let payload = message.slice(PRELUDE + HEADERS..message.len() - CHECKSUM);
        self.client.verify_message(
            headers.signed_at()?,
            &date_header(headers.date),
            &payload,
            &base16ct::lower::encode_string(&headers.signature),
        )?;
        let front = self.sign_again(&body[..PRELUDE], &headers, &payload, now)?;
        let mut crc = crc32fast::Hasher::new();
        crc.update(&front);
        crc.update(&payload);
        let ended = payload.is_empty();
        out.push(front);
        if !ended {
            out.push(payload);
        }
        out.push(Bytes::copy_from_slice(&crc.finalize().to_be_bytes()));
        Ok(ended)
    }

    /// The prelude of a message and its headers, signed with our key and at our time.
    fn sign_again(
        &mut self,
        prelude: &[u8],
        headers: &Headers,
        payload: &[u8],
        now: SystemTime,
    ) -> Result<Bytes, Fault> {
        let at = AmzDate::at(now)?;
        let since = at.time().duration_since(UNIX_EPOCH);
        let since = since.map_err(|_| Fault::Date)?.as_millis();
        let date = date_header(i64::try_from(since).map_err(|_| Fault::Date)?);
        let signature = unhex(self.ours.sign_message(at, &date, payload)?).ok_or(Fault::Key)?;
        let mut front = BytesMut::with_capacity(PRELUDE + HEADERS);
        front.extend_from_slice(prelude);
        headers.write(&date, &signature, &mut front);
        Ok(front.freeze())
    }
}

impl Headers {
    /// Both headers, in either order, and nothing else.
    fn read(bytes: &[u8]) -> Result<Headers, Fault> {
        const UNSIGNED: Fault = Fault::Framing("a message is not a signed one");
        let date_first = bytes.starts_with(DATE);
        let (date, signature) = if date_first {
            bytes.split_at(DATE.len() + 8)
        } else {
            let (signature, date) = bytes.split_at(SIGNATURE.len() + 32);
            (date, signature)
        };
        let date = date
            .strip_prefix(DATE)
            .and_then(|date| date.try_into().ok());
        let signature = signature
            .strip_prefix(SIGNATURE)
            .and_then(|text| text.try_into().ok());
        Ok(Headers {
            date: i64::from_be_bytes(date.ok_or(UNSIGNED)?),
            signature: signature.ok_or(UNSIGNED)?,
            date_first,
        })
    }

    fn write(&self, date: &[u8], signature: &[u8; 32], out: &mut BytesMut) {
        if self.date_first {
            out.extend_from_slice(date);
        }
        out.extend_from_slice(SIGNATURE);
        out.extend_from_slice(signature);
        if !self.date_first {
            out.extend_from_slice(date);
        }
    }

    fn signed_at(&self) -> Result<AmzDate, Fault> {
        let since = u64::try_from(self.date).map_err(|_| Fault::Date)?;
        let at = UNIX_EPOCH
            .checked_add(Duration::from_millis(since))
            .ok_or(Fault::Date)?;
        // Dates after the year 9999 have no text, and the clock's type ends somewhere after it.
        if since > LATEST {
            return Err(Fault::Date);
        }
        AmzDate::at(at)
    }
}

// Shows no key and no content.
gateway_names::concealed!(EventResigner);

fn date_header(date: i64) -> Vec<u8> {
    let mut header = Vec::with_capacity(DATE.len() + 8);
    header.extend_from_slice(DATE);
    header.put_i64(date);
    header
}

/// The big-endian number at an offset; zero if there is none, which matches no checksum and no
/// length.
fn number(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at..)
        .and_then(|rest| rest.first_chunk())
        .map_or(0, |four| u32::from_be_bytes(*four))
}

/// Two lengths and their checksum.
const PRELUDE: usize = 12;
const CHECKSUM: usize = 4;
/// Name, and type 8: a timestamp.
const DATE: &[u8] = b"\x05:date\x08";
/// Name, type 6: bytes, and their length.
const SIGNATURE: &[u8] = b"\x10:chunk-signature\x06\x00\x20";
const HEADERS: usize = DATE.len() + 8 + SIGNATURE.len() + 32;
/// The last millisecond of the year 9999.
const LATEST: u64 = 253_402_300_799_999;
