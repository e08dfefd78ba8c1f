//! Replaces phantoms with their secrets in the WebSocket text messages of a client.

use std::sync::Arc;

use bytes::Bytes;
use gateway_names::CredentialName;
use gateway_session::{
    CredentialRefusal, CredentialUse, Location, MessageSearch, Session, SessionStatus,
};
use gateway_wire::websocket::{
    BINARY, CONTINUATION, FrameHeaders, FrameMalformed, MASK, TEXT, masked, text_frame,
};
use tokio::time::Instant;
use zeroize::Zeroizing;

use super::AttachFailure;
use super::content::spliced;
use crate::store::CachedSecret;

/// Reads the client's frames after an upgrade, without extensions.
///
/// A text message is held until it is complete. If a phantom is in its place, the message is passed
/// on as one frame with the secret, which is never searched again. All other frames are passed on
/// byte for byte. Control frames do not wait for the message that they interrupt.
pub struct InjectMessages {
    headers: FrameHeaders,
    reading: Reading,
    /// The frames of the held message, as received.
    held: Vec<u8>,
    /// The payload of the held message.
    text: Vec<u8>,
    search: MessageSearch,
    session: Arc<Session>,
    /// The secrets that the request was granted.
    secrets: Vec<(CredentialName, CachedSecret)>,
}

gateway_names::faults! {
    /// Why a client's message does not go on. The caller must close the connection.
    #[derive(Debug, thiserror::Error)]
    pub enum MessageFault {
        /// Its frames violate RFC 6455.
        Malformed(#[from] FrameMalformed) = WebsocketMessage "the client's frames: {0}",
        /// It is not UTF-8 (RFC 6455 §8.1).
        Encoding = WebsocketMessage "a text message of a WebSocket is not UTF-8",
        /// It is binary, so a credential in it could not be read.
        Binary = WebsocketMessage
            "a binary message of a WebSocket, where the service takes credentials in messages",
        /// The session is paused or has ended.
        Inactive = SessionPaused "the session lends nothing now: it is paused, or has ended",
        /// It is longer than the limit for a search.
        TooLong = WebsocketMessage
            "a text message of a WebSocket is longer than 64 KiB, or in too many frames",
        /// It has a credential in a wrong place, or readers may disagree about it.
        Refused(#[from] CredentialRefusal) = inner "in a message of a WebSocket: {0}",
        /// The secret cannot be inserted.
        Unfit(#[from] AttachFailure) = inner transparent,
    }
}

impl MessageFault {
    /// Returns the status of the close frame that the client gets (RFC 6455 §7.4.1).
    pub fn close_status(&self) -> u16 {
        match self {
            Self::Malformed(_) => 1002,
            Self::Binary => 1003,
            Self::Encoding => 1007,
            Self::TooLong => 1009,
            Self::Refused(_) | Self::Unfit(_) | Self::Inactive => 1008,
        }
    }
}

#[derive(Clone, Copy)]
enum Reading {
    Header,
    /// The payload of a frame that is passed on as received.
    Passing {
        left: u64,
    },
    /// The payload of a frame of a text message; `last` ends the message.
    Text {
        left: u64,
        mask: [u8; MASK],
        last: bool,
    },
}

impl InjectMessages {
    /// Starts right after the head of the upgrade.
    pub(crate) fn new(
        search: MessageSearch,
        session: Arc<Session>,
        secrets: Vec<(CredentialName, CachedSecret)>,
    ) -> Self {
        Self {
            headers: FrameHeaders::new(true),
            reading: Reading::Header,
            held: Vec::new(),
            text: Vec::new(),
            search,
            session,
            secrets,
        }
    }

    /// Takes the next bytes, and returns those to pass on.
    ///
    /// # Errors
    /// [`MessageFault`]. No part of the message is passed on.
    pub fn push(&mut self, chunk: &[u8]) -> Result<Zeroizing<Vec<u8>>, MessageFault> {
        let (mut rest, mut out) = (Bytes::copy_from_slice(chunk), Zeroizing::new(Vec::new()));
        while !rest.is_empty() {
            match self.reading {
                Reading::Header => self.read_header(&mut rest, &mut out)?,
                Reading::Passing { left } => {
                    let part = take(&mut rest, left);
                    out.extend_from_slice(&part);
                    self.passing(left - part.len() as u64);
                }
                Reading::Text { left, mask, last } => {
                    let part = take(&mut rest, left);
                    self.held.extend_from_slice(&part);
                    self.text.extend(masked(&part, mask));
                    let mut mask = mask;
                    mask.rotate_left(part.len() % MASK);
                    let left = left - part.len() as u64;
                    self.reading = Reading::Text { left, mask, last };
                    self.end_frame(&mut out)?;
                }
            }
        }
        Ok(out)
    }

    fn read_header(&mut self, rest: &mut Bytes, out: &mut Vec<u8>) -> Result<(), MessageFault> {
        let Some(frame) = self.headers.read(rest)? else {
            return Ok(());
        };
        let continues = frame.opcode == CONTINUATION && !self.held.is_empty();
        if frame.opcode == BINARY && self.search.guards() {
            return Err(MessageFault::Binary);
        }
        if frame.opcode != TEXT && !continues {
            out.extend_from_slice(&frame.raw);
            self.passing(frame.length);
            return Ok(());
        }
        self.held.extend_from_slice(&frame.raw);
        let text = (self.text.len() as u64).saturating_add(frame.length);
        let headers = self.held.len() - self.text.len();
        if text > MOST_TEXT || headers > MOST_HEADERS {
            return Err(MessageFault::TooLong);
        }
        self.reading = Reading::Text {
            left: frame.length,
            mask: frame.mask(),
            last: frame.last,
        };
        self.end_frame(out)
    }

    fn passing(&mut self, left: u64) {
        self.reading = match left {
            0 => Reading::Header,
            left => Reading::Passing { left },
        };
    }

    /// Ends a frame of the held message, and the message after its last frame.
    fn end_frame(&mut self, out: &mut Vec<u8>) -> Result<(), MessageFault> {
        let Reading::Text { left: 0, last, .. } = self.reading else {
            return Ok(());
        };
        self.reading = Reading::Header;
        if !last {
            return Ok(());
        }
        let text = std::mem::take(&mut self.text);
        let text = std::str::from_utf8(&text).map_err(|_| MessageFault::Encoding)?;
        let found = self.session.find_in_message(&self.search, text)?;
        if found.is_empty() {
            out.append(&mut self.held)
        } else {
            out.extend_from_slice(&self.replaced(text, &found)?)
        }
        // Most WebSockets are idle for long, so the buffer is freed.
        self.held = Vec::new();
        Ok(())
    }

    /// Returns the frame of the message with the secrets.
    fn replaced(
        &self,
        text: &str,
        found: &[CredentialUse],
    ) -> Result<Zeroizing<Vec<u8>>, MessageFault> {
        if self.session.status() != SessionStatus::Active {
            return Err(MessageFault::Inactive);
        }
        let mut put_in = Vec::new();
        for one in found {
            let credential = one.credential();
            let mut secrets = self.secrets.iter();
            let granted = secrets.find(|(name, _)| name == credential);
            // The phantom was in the request itself, or the session gained it since.
            let count = || CredentialRefusal::Count {
                credential: credential.clone(),
            };
            let (_, lease) = granted.ok_or_else(count)?;
            if lease.expires.is_some_and(|end| Instant::now() >= end) {
                return Err(AttachFailure::Expired.into());
            }
            let Location::Content(at) = one.spot() else {
                return Err(AttachFailure::Moved.into());
            };
            put_in.push((at.clone(), one, &*lease.secret));
        }
        let text = Zeroizing::new(spliced(text.as_bytes(), put_in)?);
        let mut mask = [0; MASK];
        getrandom::fill(&mut mask).map_err(|_| AttachFailure::Moved)?;
        Ok(Zeroizing::new(text_frame(&text, mask)))
    }
}

fn take(rest: &mut Bytes, most: u64) -> Bytes {
    rest.split_to(usize::try_from(most).map_or(rest.len(), |most| most.min(rest.len())))
}

/// The longest text message that is searched.
const MOST_TEXT: u64 = 64 << 10;
/// The most bytes of frame headers in a text message.
const MOST_HEADERS: usize = 4 << 10;

#[cfg(test)]
#[path = "messages_tests.rs"]
mod tests;
