//! The pieces of a form that count as echoed.

use std::ops::Range;

use super::spelling::SpelledText;
use crate::part::{DrawnPart, LEAST_DIGITS};

/// The pieces of a form that are searched for.
#[derive(Clone)]
pub(super) struct Piece {
    /// The range of the letters that count.
    pub(super) within: Range<usize>,
    /// How many of their bytes make a piece.
    pub(super) least: usize,
    /// How many of those must differ from the stand-in.
    pub(super) differing: usize,
    /// Ranges in which every whole letter is a digit.
    digits: Vec<Range<usize>>,
    /// How many bytes make a piece in those ranges.
    least_of_digits: usize,
}

impl Piece {
    /// Returns the pieces of a form that is spelled byte by byte.
    pub(super) fn of_spelling(text: &SpelledText, part: &DrawnPart) -> Self {
        let bytes = &text.bytes[part.letters.clone()];
        let length = |row: &[Range<usize>]| row[row.len() - 1].end - row[0].start;
        let least = |bytes: &[Range<usize>], count: usize| bytes.windows(count).map(length).min();
        // Extends to the point where the neighbouring letters would be complete.
        let alone = |row: &Range<usize>| {
            let before = row.start.checked_sub(1);
            let before = before.map_or(0, |at| text.bytes[at].start + 1);
            let behind = text.bytes.get(row.end);
            let behind = behind.map_or(text.text.len(), |byte| byte.end - 1);
            before..behind
        };
        let digits = part.digits.iter();
        let least_of_digits = digits
            .clone()
            .filter_map(|row| least(&text.bytes[row.clone()], LEAST_DIGITS));
        Self {
            within: bytes[0].start..bytes[bytes.len() - 1].end,
            least: least(bytes, part.least).unwrap_or(text.text.len()),
            least_of_digits: least_of_digits.min().unwrap_or(text.text.len()),
            digits: digits.map(alone).collect(),
            differing: part.least_differing(),
        }
    }

    /// Returns the pieces of a form in base64: the characters made only of a part's letters.
    pub(super) fn of_sextets(part: &DrawnPart, shift: usize, length: usize) -> Self {
        let first = (8 * shift).div_ceil(6);
        let at = |letter: usize| 8 * (shift + letter);
        let start = at(part.letters.start).div_ceil(6).saturating_sub(first);
        let end = (at(part.letters.end) / 6).saturating_sub(first);
        let touched = |row: &Range<usize>| {
            at(row.start).div_ceil(6).saturating_sub(first)..(at(row.end) / 6).saturating_sub(first)
        };
        Self {
            within: start..end.min(length),
            // One fewer if the letters begin inside a character.
            least: 8 * part.least / 6 - 1,
            differing: part.least_differing(),
            digits: part.digits.iter().map(touched).collect(),
            least_of_digits: 8 * LEAST_DIGITS / 6,
        }
    }

    /// Returns the length of the longest run that is too short to be a piece.
    pub(super) fn longest_that_is_none(&self) -> usize {
        if self.digits.is_empty() {
            self.least - 1
        } else {
            self.least.max(self.least_of_digits) - 1
        }
    }

    /// Returns how many bytes a run in this range needs to count.
    pub(super) fn least_in(&self, row: &Range<usize>) -> usize {
        let holds = |digits: &Range<usize>| digits.start <= row.start && row.end <= digits.end;
        if self.digits.iter().any(holds) {
            self.least_of_digits
        } else {
            self.least
        }
    }
}
