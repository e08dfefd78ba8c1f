//! The names under which origins read a parameter of a query or a form.

use std::borrow::Cow;

/// What some origins drop at the start of a name: PHP and Rack spaces, Rack and qs brackets.
const DROPPED: [char; 5] = [' ', '\t', '+', '[', ']'];

/// Every name under which some origin reads a parameter, beginning with the name as it is.
///
/// PHP reads `a.b`, `a b` and `a[b` as `a_b`. PHP, Rack and qs read `a[]`, `a[x]` and `a[x]y` as a
/// member of `a`, and drop spaces or brackets at the start. Readers that use C strings stop at NUL.
/// A policy that restricts must see all of these, and one that permits must see no second.
#[must_use]
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
    for from in [
        until_nul,
        until_nul.trim_start_matches([' ', '\t', '+']),
        until_nul.trim_start_matches(DROPPED),
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
#[must_use]
pub fn folded_parameters(name: &str) -> Vec<String> {
    if is_plain(name) {
        return vec![folded_parameter(name)];
    }
    let mut all: Vec<String> = parameter_names(name)
        .iter()
        .map(|name| folded_parameter(name))
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Folds a parameter name so that most spellings become one: origins read `Token`, `token[]`,
/// `$token` and `private.token` as `token` and `private_token`.
#[must_use]
pub fn folded_parameter(name: &str) -> String {
    let name = name.trim_start_matches(|c| DROPPED.contains(&c) || "$.".contains(c));
    let name = name
        .split(['[', ']', '\0'])
        .next()
        .unwrap_or_default()
        .trim_end();
    let fold = |c: char| match c {
        '-' | '.' | ' ' | '+' => '_',
        c => c.to_ascii_lowercase(),
    };
    name.chars().map(fold).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_parameter_is_one_name() {
        for name in [
            "token", "Token", "token[]", "token[0]", "$token", "$.token", " token ", "token\0x",
            "[token]", "]token", "+token", " [token",
        ] {
            assert_eq!(folded_parameter(name), "token", "{name}");
        }
        for name in [
            "private_token",
            "private.token",
            "private token",
            "PRIVATE-TOKEN",
        ] {
            assert_eq!(folded_parameter(name), "private_token", "{name}");
        }
        assert!(folded_parameters("private[token").contains(&"private_token".to_owned()));
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
