//! Names and values of XML.

use super::search::{Search, Unreadable};

/// Searches the text of every element together with the element's name, and the contents of tags.
///
/// # Errors
/// [`Unreadable`] for XML whose text need not be literal: with its own entities, CDATA, comments,
/// processing instructions other than the declaration, or an encoding other than UTF-8.
pub(super) fn search_xml(content: &str, search: &mut Search<'_>) -> Result<(), Unreadable> {
    let content = without_declaration(content.trim_ascii_start())?;
    if !content.starts_with('<') || content.contains("<!") || content.contains("<?") {
        return Err(Unreadable);
    }
    for piece in content.split('<').skip(1) {
        let (tag, value) = piece.split_once('>').ok_or(Unreadable)?;
        let tag = plain(tag)?;
        let (name, attributes) = tag
            .split_once(|c: char| c.is_ascii_whitespace())
            .unwrap_or((&tag, ""));
        search.inner(name);
        search.inner(attributes);
        let local = name.rsplit(':').next().unwrap_or(name);
        search.value(local, plain(value)?.trim());
    }
    Ok(())
}

/// Whether each of these elements appears once, and says `true`.
pub(crate) fn all_true(content: &str, names: &[&str]) -> bool {
    names.iter().all(|name| {
        let (open, close) = (format!("<{name}>"), format!("</{name}>"));
        let mut values = content.split(&open).skip(1);
        let value = values.next().and_then(|rest| rest.split(&close).next());
        values.next().is_none()
            && value.is_some_and(|value| value.trim().eq_ignore_ascii_case("true"))
    })
}

/// The text after `<?xml …?>`, whose encoding must be the one in which it was parsed.
fn without_declaration(content: &str) -> Result<&str, Unreadable> {
    let Some(rest) = content.strip_prefix("<?xml") else {
        return Ok(content);
    };
    let (declaration, rest) = rest.split_once("?>").ok_or(Unreadable)?;
    let declared = declaration.to_ascii_lowercase();
    let other = declared.contains("encoding")
        && !declared.contains("utf-8")
        && !declared.contains("us-ascii");
    if other {
        Err(Unreadable)
    } else {
        Ok(rest.trim_ascii_start())
    }
}

/// Replaces references with characters.
fn plain(text: &str) -> Result<String, Unreadable> {
    let mut pieces = text.split('&');
    let mut out = pieces.next().unwrap_or("").to_owned();
    for piece in pieces {
        let (name, rest) = piece.split_once(';').ok_or(Unreadable)?;
        out.push(character(name).ok_or(Unreadable)?);
        out.push_str(rest);
    }
    Ok(out)
}

fn character(name: &str) -> Option<char> {
    let code = match name.strip_prefix('#') {
        Some(number) => match number.strip_prefix('x') {
            Some(hex) => u32::from_str_radix(hex, 16).ok()?,
            None => number.parse().ok()?,
        },
        None => {
            return match name {
                "amp" => Some('&'),
                "lt" => Some('<'),
                "gt" => Some('>'),
                "quot" => Some('"'),
                "apos" => Some('\''),
                _ => None,
            };
        }
    };
    char::from_u32(code)
}
