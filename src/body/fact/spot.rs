//! Where credentials stand in content: found if every reader finds the same value there.

use std::ops::Range;

use gateway_message::Place;
use gateway_message::pairs::ESCAPED;
use percent_encoding::utf8_percent_encode;

/// A value that stands in a place of content.
pub struct Spot {
    /// Its bytes, still escaped: those of a string of JSON with its quotation marks.
    pub at: Range<usize>,
    /// What they say; `None` if that is no text.
    pub text: Option<String>,
    /// Whether its names are written as in the place.
    pub is_exact: bool,
}

/// Readers may disagree about JSON in which a credential has a place.
#[derive(Debug)]
pub struct Unclear;

impl Spot {
    pub(crate) fn exact(at: Range<usize>, text: Option<String>) -> Self {
        Self {
            at,
            text,
            is_exact: true,
        }
    }
}

/// A secret as it is written at a [`Spot`] of the place.
pub fn escaped(place: &Place, secret: &str) -> String {
    match place {
        Place::Form(_) => utf8_percent_encode(secret, ESCAPED).to_string(),
        Place::Json(_) | Place::WebSocket(_) => serde_json::Value::from(secret).to_string(),
        _ => secret.to_owned(),
    }
}

#[cfg(test)]
#[path = "spot_tests.rs"]
mod tests;
