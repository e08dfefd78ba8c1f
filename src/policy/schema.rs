//! The Cedar schema, its actions and its entities, as the rest of the room needs them.

use std::str::FromStr;
use std::sync::LazyLock;

use cedar_policy::{EntityId, EntityTypeName, EntityUid, Schema};

use crate::message::Host;

/// The schema's text, as people read it.
pub const SCHEMA: &str = include_str!("../../policies/gateway.cedarschema");

/// The same in Cedar's JSON, made from [`SCHEMA`]: parsing the text took three quarters of a
/// start's instructions.
const SCHEMA_JSON: &str = include_str!("../../policies/gateway.cedarschema.json");

static PARSED: LazyLock<Schema> = LazyLock::new(|| {
    // A broken embedded schema fails every test of this room, so it cannot reach a release.
    Schema::from_json_str(SCHEMA_JSON).expect("the embedded schema parses")
});

/// The parsed schema.
pub(super) fn schema() -> &'static Schema {
    &PARSED
}

/// What is asked of a policy set: a request's method family, or the loan of a credential.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Action {
    /// `GET`.
    Get,
    /// `HEAD`.
    Head,
    /// `OPTIONS`.
    Options,
    /// `POST`.
    Post,
    /// `PUT`.
    Put,
    /// `PATCH`.
    Patch,
    /// `DELETE`.
    Delete,
    /// Any other method token; methods are case-sensitive (RFC 9110 §9.1), so `get` is one.
    Other,
    /// The loan of a credential.
    Lend,
}

impl Action {
    /// Every action, in the order of the schema.
    pub const ALL: [Self; 9] = [
        Self::Get,
        Self::Head,
        Self::Options,
        Self::Post,
        Self::Put,
        Self::Patch,
        Self::Delete,
        Self::Other,
        Self::Lend,
    ];

    /// The action that a method asks for.
    #[must_use]
    pub fn of_method(method: &str) -> Self {
        match method {
            "GET" => Self::Get,
            "HEAD" => Self::Head,
            "OPTIONS" => Self::Options,
            "POST" => Self::Post,
            "PUT" => Self::Put,
            "PATCH" => Self::Patch,
            "DELETE" => Self::Delete,
            _ => Self::Other,
        }
    }

    /// The action's name in policies.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Options => "OPTIONS",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
            Self::Other => "other",
            Self::Lend => "lend",
        }
    }

    /// The action's Cedar name.
    pub(super) fn uid(self) -> &'static EntityUid {
        static UIDS: LazyLock<[EntityUid; 9]> =
            LazyLock::new(|| Action::ALL.map(|action| uid(&ACTION, action.name())));
        &UIDS[self as usize]
    }
}

/// A set of actions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Actions(u16);

impl Actions {
    /// Every action.
    pub const ALL: Self = Self(0x1ff);
    /// Every action that asks a host for something.
    pub const ASK: Self = Self(0x0ff);
    const READ: Self = Self(0x007);
    const WRITE: Self = Self(0x0f8);
    const NONE: Self = Self(0);

    /// The actions that are `name`, which `in` reaches through groups and `==` does not.
    pub fn named(name: &str, through_groups: bool) -> Self {
        match name {
            "ask" if through_groups => Self::ASK,
            "read" if through_groups => Self::READ,
            "write" if through_groups => Self::WRITE,
            _ => Action::ALL
                .into_iter()
                .find(|action| action.name() == name)
                .map_or(Self::NONE, |action| Self(1 << action as u16)),
        }
    }

    /// The empty set with these added.
    pub fn union(all: impl IntoIterator<Item = Self>) -> Self {
        Self(all.into_iter().fold(0, |bits, one| bits | one.0))
    }

    /// Whether the action is in the set.
    pub fn holds(self, action: Action) -> bool {
        self.0 & (1 << action as u16) != 0
    }

    /// What is in both sets.
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// What is in this set and not in the other.
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether nothing is in the set.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The actions' names, in the schema's order.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Action::ALL
            .into_iter()
            .filter(move |action| self.holds(*action))
            .map(Action::name)
    }
}

/// The entity type of sessions.
pub(super) static SESSION: LazyLock<EntityTypeName> = LazyLock::new(|| type_name("Session"));
/// The entity type of groups of sessions.
pub(super) static GROUP: LazyLock<EntityTypeName> = LazyLock::new(|| type_name("Group"));
/// The entity type of hosts.
pub(super) static HOST: LazyLock<EntityTypeName> = LazyLock::new(|| type_name("Host"));
/// The entity type of domains.
pub(super) static DOMAIN: LazyLock<EntityTypeName> = LazyLock::new(|| type_name("Domain"));
/// The entity type of credentials.
pub(super) static CREDENTIAL: LazyLock<EntityTypeName> = LazyLock::new(|| type_name("Credential"));
/// The entity type of actions.
pub(super) static ACTION: LazyLock<EntityTypeName> = LazyLock::new(|| type_name("Action"));

fn type_name(name: &str) -> EntityTypeName {
    EntityTypeName::from_str(&format!("Gateway::{name}"))
        .expect("a literal name of two identifiers parses")
}

/// The Cedar name of an entity; any text is an id.
pub(super) fn uid(kind: &EntityTypeName, id: &str) -> EntityUid {
    EntityUid::from_type_name_and_id(kind.clone(), EntityId::new(id))
}

/// The domains that a host is in, itself first, the top-level domain last; an address is in none.
///
/// Label by label, so that `evilgithub.com` is not in `github.com`.
pub(super) fn domains(host: &Host) -> impl Iterator<Item = &str> {
    host.domains().filter(|_| host.ip().is_none())
}

/// Why a text is not a host's one canonical form; `None` if it is.
///
/// A rule about `API.github.com` would never match, and a forbid that never matches forbids
/// nothing.
pub(super) fn host_fault(text: &str) -> Option<String> {
    if text.starts_with("*.") {
        return Some(
            "a wildcard is written `resource in Gateway::Domain::\"…\"`, without `*.`".into(),
        );
    }
    match Host::parse(text.as_bytes()) {
        Ok(host) if host.as_str() == text => None,
        Ok(host) => Some(format!("its one form is `{host}`")),
        Err(_) if text.contains([':', '/']) => {
            Some("a host has no scheme, port or path; a port is `context.port`".into())
        }
        Err(error) => Some(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `GATEWAY_WRITE_SCHEMA=1 cargo test --lib policy::schema` makes the JSON anew.
    #[test]
    fn the_json_says_what_the_text_says() {
        let (fragment, warnings) =
            cedar_policy::SchemaFragment::from_cedarschema_str(SCHEMA).unwrap();
        assert_eq!(warnings.count(), 0);
        let json = fragment.to_json_value().unwrap();
        if std::env::var_os("GATEWAY_WRITE_SCHEMA").is_some() {
            let path = concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/policies/gateway.cedarschema.json"
            );
            std::fs::write(path, format!("{json}\n")).unwrap();
        }
        let embedded: serde_json::Value = serde_json::from_str(SCHEMA_JSON).unwrap();
        assert_eq!(
            embedded, json,
            "set GATEWAY_WRITE_SCHEMA=1 for this test, and run it twice"
        );
    }

    #[test]
    fn every_action_is_in_the_schema() {
        let known: Vec<_> = schema().actions().cloned().collect();
        for action in Action::ALL {
            assert!(known.contains(action.uid()), "{}", action.name());
        }
    }

    #[test]
    fn action_groups_are_those_of_the_schema() {
        let entities = schema().action_entities().unwrap();
        for action in Action::ALL {
            for group in ["ask", "read", "write"] {
                let in_schema = entities.is_ancestor_of(&uid(&ACTION, group), action.uid());
                assert_eq!(
                    Actions::named(group, true).holds(action),
                    in_schema,
                    "{} in {group}",
                    action.name()
                );
                assert!(!Actions::named(group, false).holds(action));
            }
        }
    }

    #[test]
    fn domains_are_whole_labels() {
        let of = |host: &str| {
            let host = Host::parse(host.as_bytes()).unwrap();
            domains(&host).map(ToOwned::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(
            of("api.github.com"),
            ["api.github.com", "github.com", "com"]
        );
        assert_eq!(of("evilgithub.com"), ["evilgithub.com", "com"]);
        assert!(of("10.0.0.1").is_empty());
        assert!(of("2001:db8::1").is_empty());
    }

    #[test]
    fn only_canonical_hosts_are_hosts() {
        for good in [
            "github.com",
            "a_b.xn--bcher-kva.example",
            "10.0.0.1",
            "2001:db8::1",
            "localhost",
        ] {
            assert_eq!(host_fault(good), None, "{good}");
        }
        for bad in [
            "",
            "API.github.com",
            "github.com.",
            ".github.com",
            "*.github.com",
            "github.com:443",
            "a..b",
            "https://a.b",
            "[::1]",
            "2001:DB8::1",
            "bücher.example",
            "a b",
            "1.2.3",
            "0x7f.1",
        ] {
            assert!(host_fault(bad).is_some(), "{bad}");
        }
    }
}
