//! Tracks a connection's bytes: a head, content, or the bytes after a protocol switch.

use gateway_wire::{Chunked, Cursor, Framing, HeadReader, WireMalformed};

use super::violations::{Violation, ViolationState};

/// The position in the connection's bytes.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) phase: Phase,
    /// How many heads were passed on.
    pub(super) heads: u64,
}

#[derive(Debug)]
pub(super) enum Phase {
    Head(HeadReader),
    Length(u64),
    Chunked(Chunked),
    Switching,
    /// A head was malformed: `sent` bytes of the placeholder were read, and `drained` bytes of the
    /// client's were dropped after it.
    Placeholder {
        sent: usize,
        drained: usize,
    },
    /// Content was malformed.
    Failed,
}

impl Default for Phase {
    fn default() -> Phase {
        Phase::Head(HeadReader::default())
    }
}

impl Progress {
    /// Returns how many bytes may be passed on; the others must come again with more after them.
    pub(super) fn follow(&mut self, bytes: &[u8], shared: &ViolationState) -> usize {
        let mut at = 0;
        loop {
            let rest = &bytes[at..];
            match &mut self.phase {
                Phase::Head(reader) => match reader.read(rest) {
                    Ok(None) => return at,
                    Ok(Some(length)) => {
                        at += length;
                        self.phase = behind(reader);
                        self.heads += 1;
                    }
                    Err(malformed) => {
                        self.violated(shared, malformed, false);
                        return at;
                    }
                },
                Phase::Length(left) => {
                    at += Cursor::new(rest).payload(left).len();
                    if *left > 0 {
                        return at;
                    }
                    self.phase = Phase::default();
                }
                Phase::Chunked(chunked) => {
                    let (length, outcome) = chunked.follow(rest);
                    at += length;
                    match outcome {
                        Err(malformed) => {
                            self.violated(shared, malformed, true);
                            return at;
                        }
                        Ok(()) if chunked.is_complete() => self.phase = Phase::default(),
                        Ok(()) => return at,
                    }
                }
                Phase::Switching | Phase::Placeholder { .. } | Phase::Failed => return at,
            }
        }
    }

    fn violated(&mut self, shared: &ViolationState, malformed: WireMalformed, in_content: bool) {
        let request = if in_content {
            self.heads - 1
        } else {
            self.heads
        };
        // Nothing is followed after the first violation, so the cell is empty here.
        let _ = shared.violation.set(Violation {
            request,
            malformed,
            in_content,
        });
        self.phase = if in_content {
            Phase::Failed
        } else {
            Phase::Placeholder {
                sent: 0,
                drained: 0,
            }
        };
    }
}

/// Returns the phase that follows a head.
fn behind(reader: &HeadReader) -> Phase {
    match reader.framing() {
        _ if reader.switches() => Phase::Switching,
        Framing::None => Phase::default(),
        Framing::Length(length) => Phase::Length(length),
        Framing::Chunked => Phase::Chunked(Chunked::default()),
    }
}

/// The request that hyper reads in place of a malformed one.
pub(super) const PLACEHOLDER: &[u8] =
    b"GET / HTTP/1.1\r\nhost: malformed.invalid\r\nconnection: close\r\n\r\n";
