//! Seals one line of the chain with its hash, and checks sealed lines.
//!
//! A line is `{"v":1,"seq":N,"prev":"H",` … `,"hash":"H"}` and a line feed. Its hash is the SHA-256
//! of all bytes of the line before `,"hash":"`. The hash therefore covers `prev`, and through it
//! every earlier record.

use std::fmt;
use std::str::FromStr;

use sha2::digest::Output;
use sha2::{Digest, Sha256};

/// The longest line written or accepted as a record, in bytes, including the line feed.
pub const MAX_LINE_BYTES: usize = 128 * 1024;

/// A SHA-256 as 64 lower-case hexadecimal digits, as the file has it.
pub(super) type HexHash = [u8; 64];

/// Identifies one record by its number and hash.
///
/// If you keep a copy elsewhere, no change to that record or an earlier one goes unnoticed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ChainHead {
    pub(super) seq: u64,
    pub(super) hash: HexHash,
}

/// The place of a sealed line in the chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ChainLink<'a> {
    /// The record's own number and hash.
    pub(super) head: ChainHead,
    /// The hash of the record before it.
    pub(super) prev: &'a [u8],
    /// The record's kind.
    pub(super) kind: &'a [u8],
}

/// Why a line is not a sealed record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LinkBroken {
    /// The line has no end: its writer died, or is still writing.
    #[error("the line has no end")]
    Unterminated,
    /// The line does not have the form of a record.
    #[error("the line is no record")]
    Malformed,
    /// The record has a later version of this format.
    #[error("the record has an unknown version")]
    Version,
    /// The content does not match the hash.
    #[error("the content does not match its hash")]
    Hash,
}

/// The error for a text that is not `SEQ:HASH`.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a head is `SEQ:HASH`, a number and 64 lower-case hexadecimal digits")]
pub struct ChainHeadMalformed(());

impl ChainHead {
    /// The head with this hash; `None` if the hash is malformed.
    pub(super) fn new(seq: u64, hash: &str) -> Option<Self> {
        let hash = hex_hash(hash.as_bytes())?;
        Some(Self { seq, hash })
    }

    /// The record's number; the first of a chain is 0.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// The record's hash, 64 lower-case hexadecimal digits.
    pub fn hash(&self) -> &str {
        std::str::from_utf8(&self.hash).expect("only hexadecimal digits are ever stored")
    }
}

impl fmt::Display for ChainHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.seq, self.hash())
    }
}

impl fmt::Debug for ChainHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for ChainHead {
    type Err = ChainHeadMalformed;

    fn from_str(text: &str) -> Result<Self, ChainHeadMalformed> {
        let (seq, hash) = text.split_once(':').ok_or(ChainHeadMalformed(()))?;
        let seq = seq.parse().map_err(|_| ChainHeadMalformed(()))?;
        Self::new(seq, hash).ok_or(ChainHeadMalformed(()))
    }
}

/// Appends one sealed line to `out` and returns its head.
///
/// `record` must be a JSON object that begins with `"kind"`.
pub(super) fn seal(out: &mut Vec<u8>, before: Option<ChainHead>, record: &[u8]) -> ChainHead {
    let seq = before.map_or(0, |head| head.seq + 1);
    let start = out.len();
    out.extend_from_slice(OPENING);
    out.extend_from_slice(seq.to_string().as_bytes());
    out.extend_from_slice(PREV);
    out.extend_from_slice(&before.map_or(GENESIS, |head| head.hash));
    out.extend_from_slice(b"\",");
    out.extend_from_slice(&record[1..record.len() - 1]);
    let hash = hex(Sha256::digest(&out[start..]));
    out.extend_from_slice(HASH);
    out.extend_from_slice(&hash);
    out.extend_from_slice(CLOSING);
    ChainHead { seq, hash }
}

/// Checks one line, including its line feed, against its own hash.
///
/// # Errors
/// [`LinkBroken`] if any byte differs from what was sealed.
pub(super) fn unseal(line: &[u8]) -> Result<ChainLink<'_>, LinkBroken> {
    if line.last() != Some(&b'\n') {
        return Err(LinkBroken::Unterminated);
    }
    let content = line.len().checked_sub(TAIL_BYTES);
    let content = content.map(|at| line.split_at(at));
    let (content, tail) = content.ok_or(LinkBroken::Malformed)?;
    let hash = tail
        .strip_prefix(HASH)
        .and_then(|rest| rest.strip_suffix(CLOSING));
    let hash = hash.ok_or(LinkBroken::Malformed)?;
    let computed = hex(Sha256::digest(content));
    if hash != computed {
        return Err(LinkBroken::Hash);
    }
    let rest = content.strip_prefix(OPENING).ok_or(LinkBroken::Version)?;
    let digits = rest.iter().position(|byte| !byte.is_ascii_digit());
    let (digits, rest) = digits
        .map(|at| rest.split_at(at))
        .ok_or(LinkBroken::Malformed)?;
    let seq = std::str::from_utf8(digits)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or(LinkBroken::Malformed)?;
    let rest = rest.strip_prefix(PREV).ok_or(LinkBroken::Malformed)?;
    let (prev, rest) = rest.split_at_checked(64).ok_or(LinkBroken::Malformed)?;
    let rest = rest.strip_prefix(KIND).ok_or(LinkBroken::Malformed)?;
    let end = rest
        .iter()
        .position(|&byte| byte == b'"')
        .ok_or(LinkBroken::Malformed)?;
    Ok(ChainLink {
        head: ChainHead {
            seq,
            hash: computed,
        },
        prev,
        kind: &rest[..end],
    })
}

/// The digest as 64 lower-case hexadecimal digits.
pub(super) fn hex(digest: Output<Sha256>) -> HexHash {
    let mut out = [0; 64];
    base16ct::lower::encode(&digest, &mut out).expect("32 bytes are 64 digits");
    out
}

fn hex_hash(text: &[u8]) -> Option<HexHash> {
    let digits = text
        .iter()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    text.try_into().ok().filter(|_| digits)
}

/// The `prev` of a chain's first record.
pub(super) const GENESIS: HexHash = [b'0'; 64];
const OPENING: &[u8] = b"{\"v\":1,\"seq\":";
const PREV: &[u8] = b",\"prev\":\"";
const KIND: &[u8] = b"\",\"kind\":\"";
const HASH: &[u8] = b",\"hash\":\"";
const CLOSING: &[u8] = b"\"}\n";
const TAIL_BYTES: usize = HASH.len() + 64 + CLOSING.len();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_line_unseals_to_the_same_head() {
        let mut line = Vec::new();
        let first = seal(&mut line, None, b"{\"kind\":\"start\"}");
        assert_eq!(unseal(&line).map(|link| link.head), Ok(first));
        let mut next = Vec::new();
        let second = seal(
            &mut next,
            Some(first),
            b"{\"kind\":\"event\",\"name\":\"x\"}",
        );
        let link = unseal(&next).expect("just sealed");
        assert_eq!(
            (link.head, link.prev, link.kind),
            (second, &first.hash[..], &b"event"[..])
        );
        assert_eq!(second.seq(), 1);
    }

    #[test]
    fn a_head_reads_back_from_its_text() {
        let head = seal(&mut Vec::new(), None, b"{\"kind\":\"start\"}");
        assert_eq!(head.to_string().parse(), Ok(head));
        for wrong in [
            "",
            "1",
            "1:",
            ":00",
            "x:y",
            &head.to_string().to_uppercase().replace('A', "G"),
        ] {
            assert!(wrong.parse::<ChainHead>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_line_of_another_version_is_told_from_a_changed_one() {
        let content = b"{\"v\":2,\"seq\":0";
        let mut line = content.to_vec();
        line.extend_from_slice(HASH);
        line.extend_from_slice(&hex(Sha256::digest(content)));
        line.extend_from_slice(CLOSING);
        assert_eq!(unseal(&line), Err(LinkBroken::Version));
    }
}
