//! Decodes held content.

use bytes::{Bytes, BytesMut};
use http::HeaderMap;

use crate::{Coding, Decoder, HeldBody, HoldFault, Limit, Share, Step};

/// Content as different readers may see it.
#[derive(Clone, Default)]
pub struct PlainContent {
    /// The decoded content.
    pub bytes: Bytes,
    /// Still encoded, as seen by readers that do not decode it. Empty if there is no content
    /// coding.
    pub coded: Bytes,
    /// Whether this is the beginning, and the rest streams.
    pub streams: bool,
}

/// Decodes held content. `None` unless it has no coding, or a single one that every reader decodes
/// the same way.
///
/// `deflate` is not read, because it names two formats and the bytes may be valid in both. Several
/// gzip members or zstd frames are not read either, because some readers use only the first, and a
/// gzip header with reserved flags is an error to some.
///
/// `share` is charged for the decoded content, and `decoding` for the decoder.
///
/// # Errors
/// [`HoldFault::TooLong`] and [`HoldFault::Busy`]: decoded content has the same bounds as held
/// content.
pub async fn plain(
    fields: &HeaderMap,
    held: &HeldBody,
    limit: Limit,
    share: &mut Share,
    decoding: Share,
) -> Result<Option<PlainContent>, HoldFault> {
    // Joining several pieces copies them.
    let copied = if held.pieces().count() > 1 {
        held.len()
    } else {
        0
    };
    share.set(copied)?;
    let coding = match Coding::parse_list(fields).as_deref() {
        Ok([]) => {
            let bytes = held.whole();
            return Ok(Some(PlainContent {
                bytes,
                ..PlainContent::default()
            }));
        }
        Ok([coding]) if *coding != Coding::Deflate => *coding,
        _ => return Ok(None),
    };
    let Ok(decoder) = Decoder::new(&[coding]) else {
        return Ok(None);
    };
    let mut decoder = decoder.once().within(decoding)?.limited(limit);
    let coded = held.whole();
    if coding == Coding::Gzip && has_reserved_flags(&coded) {
        return Ok(None);
    }
    decoder.feed(coded.clone());
    let mut plain = BytesMut::new();
    loop {
        match decoder.step() {
            Ok(Step::Piece(piece)) => {
                share.set(copied + plain.len() + piece.len())?;
                plain.extend_from_slice(&piece);
            }
            Ok(Step::Starved) => decoder.end(),
            Ok(Step::Busy) => {}
            Ok(Step::End) => {
                let bytes = plain.freeze();
                return Ok(Some(PlainContent {
                    bytes,
                    coded,
                    streams: false,
                }));
            }
            Err(crate::Error::TooLong(limit)) => return Err(HoldFault::TooLong(limit)),
            Err(_) => return Ok(None),
        }
        // Other exchanges run on this thread.
        tokio::task::yield_now().await;
    }
}

/// RFC 1952 §2.3.1.2: a decompressor must not accept them.
fn has_reserved_flags(coded: &[u8]) -> bool {
    coded.get(3).is_some_and(|flags| flags & 0xe0 != 0)
}
