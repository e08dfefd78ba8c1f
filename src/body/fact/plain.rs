//! Single values, and content without its coding.

use bytes::{Bytes, BytesMut};
use http::HeaderMap;

use super::{FactType, FactValue};
use crate::{Coding, Decoder, Held, HoldFault, Limit, Share, Step};

/// The value of a text in a form, where everything is text.
pub(super) fn of_text(text: &str, wanted: FactType) -> Option<FactValue> {
    match wanted {
        FactType::Long => canonical(text).and_then(of_number),
        FactType::Bool => text.parse().ok().map(FactValue::Bool),
        FactType::String => of_string(text),
        FactType::Strings => None,
    }
}

/// A text; none that is very long, and none with NUL, at which some readers stop.
pub(super) fn of_string(text: &str) -> Option<FactValue> {
    let is_read = text.len() <= LONGEST_TEXT && !text.contains('\0');
    is_read.then(|| FactValue::String(text.to_owned()))
}

/// A number in the one form that it has: `0`, `5`, `-5`.
fn canonical(text: &str) -> Option<i64> {
    let number: i64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

/// A number that all readers hold: beyond 2^53 some round it (RFC 7493 §2.2).
pub(super) fn of_number(number: i64) -> Option<FactValue> {
    (number.unsigned_abs() < 1 << 53).then_some(FactValue::Long(number))
}

/// What patterns are matched against is bounded.
const LONGEST_TEXT: usize = 64 << 10;

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
/// `room` is taken for the plain form, and `decoding` for the decoder.
///
/// # Errors
/// [`HoldFault::TooLong`] and [`HoldFault::Busy`]: the plain form is bounded as held content is.
pub async fn plain(
    fields: &HeaderMap,
    held: &Held,
    limit: Limit,
    room: &mut Share,
    decoding: Share,
) -> Result<Option<Plain>, HoldFault> {
    // A copy where there are several pieces.
    let copied = if held.pieces().count() > 1 {
        held.len()
    } else {
        0
    };
    room.set(copied)?;
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
                room.set(copied + plain.len() + piece.len())?;
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
