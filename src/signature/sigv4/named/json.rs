//! Names and values of JSON, and the principals of policies.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use super::{Unreadable, Watch};

/// Searches every string and number together with its name; a repeated name hides nothing.
///
/// # Errors
/// [`Unreadable`] for what is not JSON.
pub(super) fn search(content: &str, watch: &mut Watch<'_>) -> Result<(), Unreadable> {
    let mut json = serde_json::Deserializer::from_str(content);
    let seed = Seed {
        watch,
        name: "",
        principal: None,
    };
    seed.deserialize(&mut json).map_err(|_| Unreadable)?;
    json.end().map_err(|_| Unreadable)
}

/// What a value means for its statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Says {
    /// `Deny`.
    Deny,
    /// As a principal: everybody, or whoever signs in at a public identity provider.
    Everybody,
    Nothing,
}

/// The role of a value within a principal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Principal {
    /// `Principal`, or `AWS` and `Service` in it.
    Named,
    /// `Federated` in it.
    Federated,
}

struct Seed<'s, 'w, 'a> {
    watch: &'s mut Watch<'a>,
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
            self.watch.value(self.name, text);
            return if text == "Deny" {
                Says::Deny
            } else {
                Says::Nothing
            };
        }
        self.watch.inner(text);
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
                watch: self.watch,
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

    /// A statement that denies may name everybody; any other object that does lets everybody in.
    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Says, A::Error> {
        let (mut everybody, mut effects, mut denials) = (false, 0, 0);
        while let Some(name) = members.next_key::<String>()? {
            let principal = match self.principal {
                Some(_) if name.eq_ignore_ascii_case("federated") => Some(Principal::Federated),
                Some(kept) => Some(kept),
                None => is_principal(&name).then_some(Principal::Named),
            };
            if self.watch.data.holds(&name) {
                members.next_value::<serde::de::IgnoredAny>()?;
                continue;
            }
            self.watch.text(&name);
            let seed = Seed {
                watch: self.watch,
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
            None if everybody && (effects == 0 || denials < effects) => self.watch.everybody(),
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
