//! Texts of presets, parsed; a failure names the text.

use std::fmt::Display;
use std::str::FromStr;

/// Parses each text.
pub(super) fn all_parsed<T: FromStr<Err: Display>>(texts: &[String]) -> Result<Vec<T>, String> {
    let parsed = |text: &String| text.parse().map_err(|error| format!("{text}: {error}"));
    texts.iter().map(parsed).collect()
}
