//! Searches values, and texts encoded in them: JSON with the principals of policies, and escapes.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::search::{Search, Unreadable};
use super::text;

impl Search<'_> {
    /// Searches a named value, decoded once: its literal text, and the texts encoded in it.
    pub(super) fn value(&mut self, name: &str, value: &str) {
        // A name covers many values, and a longer one has no meaning to a service.
        let name = if name.len() > LONGEST_NAME { "" } else { name };
        if self.is_over() || self.data.holds(name) {
            return;
        }
        if text::lets_everybody_in(name, value) {
            self.everybody();
        }
        self.account_by_name(name, value);
        self.destination(name, value.trim());
        self.inner(value);
    }

    /// Searches a text, and the texts encoded in it: JSON in a string, escapes in a form's value.
    pub(super) fn inner(&mut self, value: &str) {
        if self.is_over() {
            return;
        }
        let Some(left) = self.left.checked_sub(value.len()) else {
            self.lost = true;
            return;
        };
        self.left = left;
        self.text(value);
        let nested = value.trim_start().starts_with(['{', '[', '"']);
        let escaped = value.contains('%') || value.contains("\\u") || value.contains("&#");
        if !nested && !escaped {
            return;
        }
        if self.depth == DEEPEST {
            self.lost = true;
            return;
        }
        self.depth += 1;
        if nested && search_json(value, self).is_err() && text::speaks_of_principals(value) {
            // A service may parse it more leniently than we do.
            self.lost = true;
        }
        if escaped {
            let plain = text::unescaped(value);
            if plain != value {
                self.inner(&plain);
            }
        }
        self.depth -= 1;
    }
}

/// Searches every string and number together with its name; a repeated name hides nothing.
///
/// # Errors
/// [`Unreadable`] for text that is not JSON.
pub(super) fn search_json(content: &str, search: &mut Search<'_>) -> Result<(), Unreadable> {
    let mut json = serde_json::Deserializer::from_str(content);
    let seed = Seed {
        search,
        name: "",
        principal: None,
    };
    seed.deserialize(&mut json).map_err(|_| Unreadable)?;
    json.end().map_err(|_| Unreadable)
}

/// The meaning of a value for its statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Says {
    /// `Deny`.
    Deny,
    /// As a principal: everybody, or every user of a public identity provider.
    Everybody,
    Nothing,
}

/// The role of a value within a principal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Principal {
    /// `Principal`, or `AWS` and `Service` in it.
    Whole,
    /// `Federated` in it.
    Federated,
}

struct Seed<'s, 'w, 'a> {
    search: &'s mut Search<'a>,
    name: &'w str,
    principal: Option<Principal>,
}

impl<'de> DeserializeSeed<'de> for Seed<'_, '_, '_> {
    type Value = Says;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Says, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Seed<'_, '_, '_> {
    fn text(self, text: &str) -> Says {
        if self.principal.is_none() {
            self.search.value(self.name, text);
            return if text == "Deny" {
                Says::Deny
            } else {
                Says::Nothing
            };
        }
        self.search.inner(text);
        match self.principal {
            Some(Principal::Federated) if !text.trim_start().starts_with("arn:") => Says::Everybody,
            _ if text.contains('*') => Says::Everybody,
            _ => Says::Nothing,
        }
    }
}

impl<'de> Visitor<'de> for Seed<'_, '_, '_> {
    type Value = Says;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Says, E> {
        Ok(Says::Nothing)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Says, E> {
        Ok(Says::Nothing)
    }

    fn visit_u64<E>(self, number: u64) -> Result<Says, E> {
        Ok(self.text(&number.to_string()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Says, E> {
        Ok(self.text(&format!("{number:.0}")))
    }

    fn visit_unit<E>(self) -> Result<Says, E> {
        Ok(Says::Nothing)
    }

    fn visit_str<E>(self, text: &str) -> Result<Says, E> {
        Ok(self.text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Says, A::Error> {
        let mut says = Says::Nothing;
        loop {
            let seed = Seed {
                search: self.search,
                name: self.name,
                principal: self.principal,
            };
            match items.next_element_seed(seed)? {
                Some(Says::Everybody) => says = Says::Everybody,
                Some(_) => {}
                None => return Ok(says),
            }
        }
    }

    /// A `Deny` statement may name everybody; any other object that names everybody lets them in.
    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Says, A::Error> {
        let (mut everybody, mut effects, mut denials) = (false, 0, 0);
        while let Some(name) = members.next_key::<String>()? {
            let principal = match self.principal {
                Some(_) if name.eq_ignore_ascii_case("federated") => Some(Principal::Federated),
                Some(kept) => Some(kept),
                None => is_principal(&name).then_some(Principal::Whole),
            };
            if self.search.data.holds(&name) {
                members.next_value::<serde::de::IgnoredAny>()?;
                continue;
            }
            self.search.text(&name);
            let seed = Seed {
                search: self.search,
                name: &name,
                principal,
            };
            let says = members.next_value_seed(seed)?;
            everybody |= says == Says::Everybody || name.eq_ignore_ascii_case("notprincipal");
            if name.eq_ignore_ascii_case("effect") {
                effects += 1;
                denials += usize::from(says == Says::Deny);
            }
        }
        match self.principal {
            Some(_) if everybody => return Ok(Says::Everybody),
            None if everybody && (effects == 0 || denials < effects) => self.search.everybody(),
            _ => {}
        }
        Ok(Says::Nothing)
    }
}

/// Matches `Principal`, `NotPrincipal`, `principals`, `GranteePrincipal`, …; not the keys of
/// conditions (`aws:PrincipalArn`).
fn is_principal(name: &str) -> bool {
    name.to_ascii_lowercase().contains("principal") && !name.contains(':')
}

/// No client nests forms more deeply.
const DEEPEST: usize = 6;
/// Names of form members are prefixed with the names above them.
const LONGEST_NAME: usize = 256;
