//! Text of peers, made safe for a terminal: it cannot steer the terminal, hide, cover other letters
//! or change their order.

use std::fmt::Write as _;
use std::path::Path;

use icu_properties::props::{
    BidiClass, DefaultIgnorableCodePoint, EastAsianWidth, GeneralCategory, GeneralCategoryGroup,
    HangulSyllableType,
};
use icu_properties::{CodePointMapData, CodePointSetData};

/// Makes a peer's text safe for a terminal. Misleading characters are shown by number: control and
/// format characters, right-to-left letters, and combining marks.
pub fn safe(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if misleads(c) {
            write!(shown, "\\u{{{:x}}}", u32::from(c)).unwrap_or(());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Returns how many columns a character takes that [`safe`] shows.
pub fn width_of(c: char) -> usize {
    let wide = [EastAsianWidth::Wide, EastAsianWidth::Fullwidth];
    let is_wide = !c.is_ascii() && wide.contains(&CodePointMapData::new().get(c));
    1 + usize::from(is_wide)
}

/// Whether a character could steer a terminal, or change how others are read.
fn misleads(c: char) -> bool {
    if c.is_ascii() {
        return c.is_control();
    }
    let category: GeneralCategory = CodePointMapData::new().get(c);
    let is_unseen = GeneralCategoryGroup::Other
        .union(GeneralCategoryGroup::Mark)
        .contains(category)
        || GeneralCategoryGroup::Separator.contains(category)
        || BLANK.contains(&c)
        || CodePointSetData::new::<DefaultIgnorableCodePoint>().contains(c);
    let leftward = [
        BidiClass::RightToLeft,
        BidiClass::ArabicLetter,
        BidiClass::ArabicNumber,
    ];
    // These are drawn into the letter before them.
    let joined = [
        HangulSyllableType::VowelJamo,
        HangulSyllableType::TrailingJamo,
    ];
    is_unseen
        || leftward.contains(&CodePointMapData::new().get(c))
        || joined.contains(&CodePointMapData::new().get(c))
}

/// Letters and signs that are drawn as nothing, although no property says so: of Braille, of music
/// and of hieroglyphs.
const BLANK: [char; 4] = ['\u{2800}', '\u{1d159}', '\u{13441}', '\u{13442}'];

/// Formats a path as an argument of a command that a person may copy into a shell.
pub fn as_argument(path: &Path) -> String {
    let path = path.display().to_string();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+:@%".contains(&byte);
    if path.bytes().all(plain) {
        path
    } else {
        format!("'{}'", path.replace('\'', r"'\''"))
    }
}

/// Returns a whole line, in rows of so many columns. Each row but the first begins with a mark, so
/// that no text of a peer looks like a line of its own.
pub fn folded(line: &str, width: usize) -> Vec<String> {
    let mark = if width > NARROW { MARK } else { "" };
    let (mut rows, mut row, mut columns) = (Vec::new(), String::new(), 0);
    for letter in line.chars() {
        let wide = width_of(letter);
        if columns + wide > width && columns > 0 {
            // A word goes to the next row as a whole, unless it is the only one in this row.
            let begins = if rows.is_empty() { 0 } else { mark.len() };
            let word = row[begins..].rfind(' ').filter(|_| letter != ' ');
            let rest = row.split_off(word.map_or(row.len(), |at| begins + at + 1));
            rows.push(std::mem::replace(&mut row, format!("{mark}{rest}")));
            columns = row.chars().map(width_of).sum();
        }
        row.push(letter);
        columns += wide;
    }
    rows.push(row);
    rows
}

const MARK: &str = "\u{2026} ";
/// A width without room for the mark.
const NARROW: usize = 8;

/// Returns the same JSON on one line, with escapes for every character that could mislead.
pub fn harmless(json: String) -> String {
    if !json.contains(misleads) {
        return json;
    }
    let mut out = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if misleads(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(out, "\\u{unit:04x}").unwrap_or(());
            }
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_steers_no_terminal_and_stays_the_same_json() {
        let hostile = "a\u{9b}31m\u{202e}\u{e0041}\u{2028}é\n";
        let shown = harmless(serde_json::to_string(hostile).unwrap());
        assert!(!shown.contains(misleads), "{shown}");
        assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), hostile);
    }

    #[test]
    fn nothing_that_steers_a_terminal_is_printed() {
        let shown = safe("a\u{1b}[31m\r\n\u{202e}\u{200b}\u{9b}é\u{e0041}");
        assert_eq!(
            shown,
            "a\\u{1b}[31m\\u{d}\\u{a}\\u{202e}\\u{200b}\\u{9b}é\\u{e0041}"
        );
    }

    #[test]
    fn letters_that_hide_cover_or_run_backwards_are_shown_by_number() {
        for hidden in [
            // Marks, which stack over the rows above, and what joins letters before it.
            "\u{300}",
            "\u{336}",
            "\u{20dd}",
            "\u{fe0f}",
            "\u{903}",
            "\u{1161}",
            "\u{d7b0}",
            // What is not seen at all.
            "\u{ad}",
            "\u{34f}",
            "\u{115f}",
            "\u{3164}",
            "\u{180e}",
            "\u{fff9}",
            "\u{2028}",
            // What looks like nothing, or like a space.
            "\u{a0}",
            "\u{1680}",
            "\u{2003}",
            "\u{202f}",
            "\u{205f}",
            "\u{3000}",
            "\u{2800}",
            "\u{ffa0}",
            "\u{1d159}",
            "\u{13441}",
            // Right to left: Hebrew, Arabic, Syriac, Adlam, digits, and what turns letters around.
            "\u{5d0}",
            "\u{627}",
            "\u{710}",
            "\u{1e900}",
            "\u{661}",
            "\u{200f}",
            "\u{2067}",
            // Letters that only a font of the peer's knows.
            "\u{e000}",
            "\u{378}",
            "\u{10fffd}",
        ] {
            let number = u32::from(hidden.chars().next().unwrap());
            assert_eq!(safe(&format!("a{hidden}b")), format!("a\\u{{{number:x}}}b"));
        }
        let plain = "grüße Ελλάδα привет 漢字 かな 한국어 ก ✓ … 😀";
        assert_eq!(safe(plain), plain);
    }

    #[test]
    fn a_row_that_goes_on_begins_with_a_mark() {
        let rows = folded("the workload says this", 12);
        assert_eq!(rows, ["the workload", "\u{2026}  says this"]);
        let rows = folded("run `gateway allow --last` or not", 20);
        assert_eq!(rows, ["run `gateway allow ", "\u{2026} --last` or not"]);
        let rows = folded(&"x".repeat(25), 10);
        assert_eq!(
            rows,
            [
                "x".repeat(10),
                format!("\u{2026} {}", "x".repeat(8)),
                format!("\u{2026} {}", "x".repeat(7))
            ]
        );
        assert_eq!(folded("漢字かな", 5), ["漢字", "かな"]);
        assert_eq!(folded("short", usize::MAX), ["short"]);
    }

    #[test]
    fn wide_letters_take_two_columns() {
        let widths: Vec<usize> = "aé漢한😀ｆ".chars().map(width_of).collect();
        assert_eq!(widths, [1, 1, 2, 2, 2, 2]);
    }
}
