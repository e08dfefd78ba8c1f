//! HTTP/2 by hand: frames as an attacker writes them, and what comes back.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::time::Instant;

use super::way::Wire;

/// Frame types of RFC 9113 §6.
pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

/// What became of a stream.
#[derive(Debug, Default, Clone)]
pub struct Fate {
    /// Content of DATA frames.
    pub body: Vec<u8>,
    /// The code of its RST_STREAM.
    pub reset: Option<u32>,
    /// The code of the connection's GOAWAY.
    pub goaway: Option<u32>,
    /// A field section arrived.
    pub answered: bool,
    /// The connection was closed.
    pub closed: bool,
}

impl Fate {
    /// Whether the protocol was enforced: the stream or the connection ended with an error,
    /// unanswered.
    pub fn is_refused_as_malformed(&self) -> bool {
        !self.answered
            && (self.reset.is_some() || self.goaway.is_some_and(|code| code != 0) || self.closed)
    }
}

/// One connection.
pub struct Frames {
    /// The bytes below.
    pub io: Wire,
    kept: VecDeque<Frame>,
}

/// Type, flags, stream and content.
type Frame = (u8, u8, u32, Vec<u8>);

impl Frames {
    /// Begins a connection: preface and empty SETTINGS.
    pub fn begin(mut io: Wire) -> Self {
        io.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        let kept = VecDeque::new();
        let mut frames = Self { io, kept };
        frames.frame(SETTINGS, 0, 0, b"");
        frames
    }

    /// Writes a frame; ignores a connection that the gateway has already closed.
    pub fn frame(&mut self, kind: u8, flags: u8, stream: u32, content: &[u8]) -> bool {
        let length = u32::try_from(content.len()).unwrap().to_be_bytes();
        let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
        self.io
            .write_all(&[&head, content].concat())
            .and_then(|()| self.io.flush())
            .is_ok()
    }

    /// Writes a field section in one frame.
    pub fn headers(&mut self, stream: u32, fields: &[(&str, &str)], ends: bool) -> bool {
        let flags = END_HEADERS | if ends { END_STREAM } else { 0 };
        self.frame(HEADERS, flags, stream, &block(fields))
    }

    /// Writes a GET.
    pub fn get(
        &mut self,
        stream: u32,
        authority: &str,
        path: &str,
        fields: &[(&str, &str)],
    ) -> bool {
        let pseudo = [
            (":method", "GET"),
            (":scheme", "https"),
            (":authority", authority),
            (":path", path),
        ];
        self.headers(stream, &[&pseudo, fields].concat(), true)
    }

    /// Writes content on a connection's only stream, in two frames at least, as far as its windows
    /// are opened, unless an answer comes.
    pub fn content(&mut self, stream: u32, content: &[u8]) {
        let number = |bytes: &[u8]| i64::from(u32::from_be_bytes(bytes.try_into().unwrap()));
        let mut free = [65_535; 2];
        for piece in content.chunks((content.len() / 2).clamp(1, 1 << 14)) {
            while free.iter().any(|free| *free < 1 << 14) {
                let Some(frame) = self.come() else { return };
                match &frame {
                    (WINDOW_UPDATE, _, of, by) => free[usize::from(*of != 0)] += number(by),
                    (SETTINGS, 0, _, all) => {
                        let mut windows = all.chunks(6).filter(|one| one[..2] == [0, 4]);
                        free[1] += windows.next().map_or(0, |one| number(&one[2..]) - 65_535);
                        self.frame(SETTINGS, 1, 0, b"");
                    }
                    (HEADERS | RST_STREAM, ..) => return self.kept.push_back(frame),
                    _ => {}
                }
            }
            self.frame(DATA, 0, stream, piece);
            free.iter_mut().for_each(|free| *free -= piece.len() as i64);
        }
    }

    fn read(&mut self) -> Option<Frame> {
        self.kept.pop_front().or_else(|| self.come())
    }

    fn come(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.io.read_exact(&mut head).ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let mut content = vec![0; length];
        self.io.read_exact(&mut content).ok()?;
        let stream = u32::from_be_bytes(head[5..].try_into().unwrap()) & 0x7fff_ffff;
        Some((head[3], head[4], stream, content))
    }

    /// Reads until so many streams were answered, and opens no window: the statuses, where they are
    /// among those of RFC 7541's table.
    pub fn statuses(&mut self, count: usize) -> Vec<Option<u16>> {
        const TABLE: [u16; 7] = [200, 204, 206, 304, 400, 404, 500];
        let mut statuses = Vec::new();
        while statuses.len() < count {
            let Some((kind, _, _, content)) = self.read() else {
                break;
            };
            if kind == HEADERS {
                let first = usize::from(content[0]);
                statuses.push(
                    first
                        .checked_sub(0x88)
                        .and_then(|at| TABLE.get(at).copied()),
                );
            }
        }
        statuses
    }

    /// Reads until the stream has ended, or nothing comes for the stream's time limit.
    pub fn fate(&mut self, stream: u32) -> Fate {
        self.fates(&[stream]).remove(0)
    }

    /// Reads until all the streams have ended.
    pub fn fates(&mut self, streams: &[u32]) -> Vec<Fate> {
        let mut fates = vec![Fate::default(); streams.len()];
        // A stream may be answered completely and then reset (RFC 9113 §8.1: a response before the
        // content was read).
        let mut ended = vec![false; streams.len()];
        let started = Instant::now();
        while ended.contains(&false) && started.elapsed().as_secs() < 10 {
            let Some((kind, flags, number, content)) = self.read() else {
                fates.iter_mut().for_each(|fate| fate.closed = true);
                break;
            };
            let code = |at: usize| {
                content
                    .get(at..at + 4)
                    .map(|b| u32::from_be_bytes(b.try_into().unwrap()))
            };
            match kind {
                SETTINGS if flags == 0 => {
                    self.frame(SETTINGS, 1, 0, b"");
                }
                PING if flags == 0 => {
                    self.frame(PING, 1, 0, &content);
                }
                GOAWAY => fates.iter_mut().for_each(|fate| fate.goaway = code(4)),
                DATA | HEADERS | RST_STREAM => {
                    let Some(at) = streams.iter().position(|one| *one == number) else {
                        continue;
                    };
                    match kind {
                        DATA => fates[at].body.extend_from_slice(&content),
                        HEADERS => fates[at].answered = true,
                        _ => fates[at].reset = code(0),
                    }
                    if kind == DATA && !content.is_empty() {
                        let count = u32::try_from(content.len()).unwrap().to_be_bytes();
                        self.frame(WINDOW_UPDATE, 0, 0, &count);
                        self.frame(WINDOW_UPDATE, 0, number, &count);
                    }
                    if kind == RST_STREAM || flags & END_STREAM != 0 {
                        ended[at] = true;
                    }
                }
                _ => {}
            }
        }
        fates
    }
}

/// A field section without compression (RFC 7541 §6.2.2).
pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        raw_field(&mut block, name.as_bytes(), value.as_bytes());
    }
    block
}

/// One literal field with arbitrary bytes.
pub fn raw_field(block: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    block.push(0);
    for text in [name, value] {
        let mut length = text.len();
        if length < 127 {
            block.push(length as u8);
        } else {
            block.push(127);
            length -= 127;
            while length >= 128 {
                block.push((length % 128 + 128) as u8);
                length /= 128;
            }
            block.push(length as u8);
        }
        block.extend_from_slice(text);
    }
}
