//! Held content without its coding.

use bytes::{Bytes, BytesMut};
use http::HeaderMap;

use crate::{Coding, Decoder, Held, HoldFault, Limit, Share, Step};

/// Content as its readers may see it.
#[derive(Clone, Default)]
pub struct Plain {
    /// Without its coding.
    pub bytes: Bytes,
    /// In its coding, as readers see it that undo none; empty where it has none.
    pub coded: Bytes,
}

/// Held content without its coding; `None` where that is not a single one that every reader undoes
/// alike.
///
/// `deflate` is not read: it names two formats, and bytes can be valid in both. Nor are several
/// members of gzip or frames of zstd, of which some readers take the first alone.
///
/// `share` is taken for the plain form, and `decoding` for the decoder.
///
/// # Errors
/// [`HoldFault::TooLong`] and [`HoldFault::Busy`]: the plain form is bounded as held content is.
pub async fn plain(
    fields: &HeaderMap,
    held: &Held,
    limit: Limit,
    share: &mut Share,
    decoding: Share,
) -> Result<Option<Plain>, HoldFault> {
    // A copy where there are several pieces.
    let copied = if held.pieces().count() > 1 {
        held.len()
    } else {
        0
    };
    share.set(copied)?;
    let coding = match Coding::parse_list(fields).as_deref() {
        Ok([]) => {
            let bytes = held.whole();
            return Ok(Some(Plain {
                bytes,
                ..Plain::default()
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
                return Ok(Some(Plain { bytes, coded }));
            }
            Err(crate::Error::TooLong(limit)) => return Err(HoldFault::TooLong(limit)),
            Err(_) => return Ok(None),
        }
        // Other exchanges run on this thread.
        tokio::task::yield_now().await;
    }
}
