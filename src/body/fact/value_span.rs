//! The places of credentials in content, found if every reader finds the same value there.

use std::ops::Range;

use gateway_message::Place;
use gateway_message::pairs::ESCAPED;
use percent_encoding::utf8_percent_encode;

/// The value at a place in content.
pub struct ValueSpan {
    /// The range of its bytes, still escaped. That of a JSON string includes the quotation marks.
    pub at: Range<usize>,
    /// The unescaped text; `None` if the value is no text.
    pub text: Option<String>,
    /// Whether its names are written as in the place.
    pub is_exact: bool,
}

/// Readers may disagree about JSON in which a credential has a place.
#[derive(Debug)]
pub struct AmbiguousJson;

impl ValueSpan {
    pub(crate) fn exact(at: Range<usize>, text: Option<String>) -> Self {
        Self {
            at,
            text,
            is_exact: true,
        }
    }
}

/// A secret as it is written at a [`ValueSpan`] of the place.
pub fn escaped(place: &Place, secret: &str) -> String {
    match place {
        Place::Form(_) => utf8_percent_encode(secret, ESCAPED).to_string(),
        Place::Json(_) | Place::WebSocket(_) => serde_json::Value::from(secret).to_string(),
        _ => secret.to_owned(),
    }
}

#[cfg(test)]
#[path = "value_span_tests.rs"]
mod tests;
