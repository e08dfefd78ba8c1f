//! The names under which origins read a parameter of a query or a form.

use std::borrow::Cow;

/// Whether some origin drops the character at the start of a name: PHP and Rack drop white space,
/// Rack and qs brackets, `URLSearchParams` one `?`, and many invisible ones.
fn is_dropped(letter: char) -> bool {
    letter.is_whitespace() || letter.is_control() || "+[]?\u{feff}\u{200b}".contains(letter)
}

/// Every name under which some origin reads a parameter, beginning with the name as it is.
///
/// PHP reads `a.b`, `a b` and `a[b` as `a_b`. PHP, Rack and qs read `a[]`, `a[x]` and `a[x]y` as a
/// member of `a`. Some drop characters before it (`is_dropped`). Readers that use C strings stop at
/// NUL. A policy that restricts must see all of these, one that permits only single readings.
pub fn parameter_names(name: &str) -> Vec<Cow<'_, str>> {
    let mut all = vec![Cow::Borrowed(name)];
    if is_plain(name) {
        return all;
    }
    let mut add = |name: String| {
        let name: Cow<'_, str> = Cow::Owned(name);
        if !name.is_empty() && !all.contains(&name) {
            all.push(name);
        }
    };
    let until_nul = name.split('\0').next().unwrap_or_default();
    let is_dropped_alone = |letter: char| !"[]".contains(letter) && is_dropped(letter);
    for from in [
        until_nul,
        until_nul.trim_start_matches(is_dropped_alone),
        until_nul.trim_start_matches(is_dropped),
    ] {
        let base = from.split(['[', ']']).next().unwrap_or_default();
        for text in [from, base, base.trim_end()] {
            add(text.to_owned());
            add(with_underscores(text));
        }
    }
    all
}

/// Whether every origin reads the name alike.
fn is_plain(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    name.bytes().all(is_plain)
}

/// The name as PHP reads it: a dot, a space and a bracket that is not closed become underscores.
fn with_underscores(name: &str) -> String {
    let member = name.find('[').filter(|open| name[*open..].contains(']'));
    let (base, member) = name.split_at(member.unwrap_or(name.len()));
    let base = base.replace(['.', ' ', '+', '['], "_").replace(']', "");
    base + member
}

/// [`parameter_names`], each folded by [`folded_parameter`].
pub fn folded_parameters(name: &str) -> Vec<String> {
    if is_plain(name) {
        return vec![folded_parameter(name)];
    }
    let names = parameter_names(name);
    let mut all: Vec<String> = names.iter().map(|name| folded_parameter(name)).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Folds the name of a parameter, so that all names that some origin treats as one become equal.
/// Keeps its letters and digits, [`folded`]. Origins read `Token`, `$token` and ` token` as
/// `token`, `private.token` and `privateToken` as `private_token`.
pub fn folded_parameter(name: &str) -> String {
    let mut name = folded(name);
    name.retain(char::is_alphanumeric);
    name
}

/// Folds the name of a JSON member, so that names that some origin treats as one become equal.
///
/// Readers without case distinction, such as Go's `encoding/json`, also read `ſ` (U+017F) as `s`
/// and the Kelvin sign as `k`. Readers that use C strings stop at NUL. The JSON form of Protocol
/// Buffers has two spellings of each name, `max_amount` and `maxAmount`.
pub fn folded(name: &str) -> String {
    let name = name.split('\0').next().unwrap_or_default();
    let letters = name.chars().filter(|letter| !matches!(letter, '_' | '-'));
    letters.flat_map(in_one_case).collect()
}

/// Folds the letter case of a name alone.
pub fn in_lower_case(name: &str) -> String {
    name.chars().flat_map(in_one_case).collect()
}

fn in_one_case(letter: char) -> impl Iterator<Item = char> {
    letter.to_uppercase().flat_map(char::to_lowercase)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_parameter_is_one_name() {
        for name in [
            "token",
            "Token",
            "token[]",
            "token[0]",
            "$token",
            "$.token",
            " token ",
            "token\0x",
            "[token]",
            "]token",
            "+token",
            " [token",
            "?token",
            "\u{feff}token",
            "to\u{212a}en",
        ] {
            assert!(folded_parameters(name).contains(&"token".into()), "{name}");
        }
        for name in [
            "private_token",
            "private.token",
            "private token",
            "PRIVATE-TOKEN",
            "privateToken",
            "private[token",
        ] {
            assert!(
                folded_parameters(name).contains(&"privatetoken".into()),
                "{name}"
            );
        }
        assert_eq!(folded_parameter("Acce\u{17f}s"), "access");
        assert_ne!(folded_parameter("tokens"), "token");
        assert_ne!(folded_parameter("page_token"), "token");
    }

    #[test]
    fn a_name_has_all_its_readings() {
        for name in [
            "max_amount",
            "max.amount",
            "max amount",
            "max[amount",
            " max_amount",
            "+max_amount",
            "[max_amount]",
            "]max_amount",
            "max_amount[]",
            "max_amount[x]y",
            "max.amount[x]",
            "[max.amount",
            "max_amount\0[",
            "?max_amount",
            "?[max.amount]",
            "\u{feff}max_amount",
        ] {
            let names = parameter_names(name);
            assert_eq!(names[0], name);
            assert!(names.contains(&"max_amount".into()), "{name}: {names:?}");
        }
        assert_eq!(parameter_names("max-amount"), ["max-amount"]);
        assert_eq!(parameter_names("created[gte]"), ["created[gte]", "created"]);
        assert_eq!(parameter_names("Tag.1"), ["Tag.1", "Tag_1"]);
        assert!(parameter_names(".method").contains(&"_method".into()));
    }
}
