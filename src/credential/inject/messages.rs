//! Replaces phantoms with their secrets in the WebSocket text messages of a client, and finds real
//! secrets in all its messages.

use std::sync::Arc;

use gateway_names::CredentialName;
use gateway_session::{
    CredentialRefusal, CredentialUse, Location, MessageSearch, Session, SessionStatus,
};
use gateway_wire::Cursor;
use gateway_wire::websocket::{
    BINARY, CONTINUATION, FrameHeader, FrameMalformed, FramePart, Frames, MASK, TEXT, masked,
    whole_frame,
};
use tokio::time::Instant;
use zeroize::Zeroizing;

use super::AttachFailure;
use super::content::spliced;
use crate::exposed::own::OwnSearch;
use crate::store::CachedSecret;

/// Reads the client's frames after an upgrade, without extensions.
///
/// Where the service takes credentials in messages, a text message is held until it is complete. If
/// a phantom is in its place, the message is passed on as one frame with the secret, which is never
/// searched again. All other frames are passed on byte for byte. Control frames do not wait for the
/// message that they interrupt.
pub struct InjectMessages {
    frames: Frames,
    current: Option<CurrentFrame>,
    /// The frames of the held message, as received.
    held: Vec<u8>,
    /// The payload of the held message.
    text: Vec<u8>,
    /// `None` if the service takes no credentials in messages.
    search: Option<MessageSearch>,
    /// The search for the real secrets of the session.
    own: Option<OwnSearch>,
    session: Arc<Session>,
    /// The secrets that the request was granted.
    secrets: Vec<(CredentialName, CachedSecret)>,
}

/// The frame that is being read.
struct CurrentFrame {
    mask: [u8; MASK],
    is_held: bool,
    is_control: bool,
    /// Whether it ends its message.
    last: bool,
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
        /// It has a credential in a wrong place or a real secret, or readers may disagree about it.
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

impl InjectMessages {
    /// Starts right after the head of the upgrade.
    pub(crate) fn new(
        search: Option<MessageSearch>,
        own: Option<OwnSearch>,
        session: Arc<Session>,
        secrets: Vec<(CredentialName, CachedSecret)>,
    ) -> Self {
        Self {
            frames: Frames::new(true),
            current: None,
            held: Vec::new(),
            text: Vec::new(),
            search,
            own,
            session,
            secrets,
        }
    }

    /// Takes the next bytes, and returns those to pass on.
    ///
    /// # Errors
    /// [`MessageFault`]. No part of the message is passed on.
    pub fn push(&mut self, chunk: &[u8]) -> Result<Zeroizing<Vec<u8>>, MessageFault> {
        let (mut cursor, mut out) = (Cursor::new(chunk), Zeroizing::new(Vec::new()));
        while let Some(part) = self.frames.next(&mut cursor)? {
            match (part, &mut self.current) {
                (FramePart::Header(frame), _) => self.header(frame, &mut out)?,
                (FramePart::Payload(part, _), None) => out.extend_from_slice(part),
                (FramePart::Payload(part, is_whole), Some(frame)) => {
                    let text: Vec<u8> = masked(part, frame.mask).collect();
                    frame.mask.rotate_left(part.len() % MASK);
                    if frame.is_held {
                        self.held.extend_from_slice(part);
                        self.text.extend_from_slice(&text);
                    }
                    if let Some(own) = &mut self.own {
                        own.message(&text, frame.is_control)?;
                    }
                    match frame {
                        CurrentFrame { is_held: false, .. } => out.extend_from_slice(part),
                        CurrentFrame { last: true, .. } if is_whole => {
                            self.end_message(&mut out)?
                        }
                        _ => {}
                    }
                }
            }
        }
        Ok(out)
    }

    fn header(&mut self, frame: FrameHeader, out: &mut Vec<u8>) -> Result<(), MessageFault> {
        let continues = frame.opcode == CONTINUATION && !self.held.is_empty();
        let search = self.search.as_ref();
        if frame.opcode == BINARY && search.is_some_and(MessageSearch::guards) {
            return Err(MessageFault::Binary);
        }
        let is_held = (frame.opcode == TEXT || continues) && search.is_some();
        self.current = frame.mask.map(|mask| CurrentFrame {
            mask,
            is_held,
            is_control: frame.is_control(),
            last: frame.last,
        });
        if !is_held {
            out.extend_from_slice(&frame.bytes());
            return Ok(());
        }
        self.held.extend_from_slice(&frame.bytes());
        let text = (self.text.len() as u64).saturating_add(frame.length);
        let headers = self.held.len() - self.text.len();
        if text > MOST_TEXT || headers > MOST_HEADERS {
            return Err(MessageFault::TooLong);
        }
        Ok(())
    }

    fn end_message(&mut self, out: &mut Vec<u8>) -> Result<(), MessageFault> {
        let text = std::mem::take(&mut self.text);
        let text = std::str::from_utf8(&text).map_err(|_| MessageFault::Encoding)?;
        let found = match &self.search {
            Some(search) => self.session.find_in_message(search, text)?,
            None => Vec::new(),
        };
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
        Ok(Zeroizing::new(whole_frame(TEXT, &text, Some(mask))))
    }
}

/// The longest text message that is searched.
const MOST_TEXT: u64 = 64 << 10;
/// The most bytes of frame headers in a text message.
const MOST_HEADERS: usize = 4 << 10;

#[cfg(test)]
#[path = "messages_tests.rs"]
mod tests;
