//! The Cedar schema, generated from the table of facts and the declared facts of content. Also its
//! actions and entities.

use std::str::FromStr;
use std::sync::LazyLock;

use cedar_policy::{EntityId, EntityTypeName, EntityUid, Schema, SchemaFragment};
use gateway_message::Host;
use serde_json::{Map, Value, json};

use super::content::Declared;
use super::fact::{CedarType, FACTS, FactRow, Scope};

/// Returns the schema for policies that may read the declared facts of content.
pub(super) fn schema(declared: &Declared) -> Schema {
    Schema::from_json_value(document(declared)).expect("every name and type in it is Cedar's")
}

/// Returns the schema in Cedar's human-readable syntax.
#[must_use]
pub fn schema_text(declared: &Declared) -> String {
    let fragment = SchemaFragment::from_json_value(document(declared));
    let text = fragment.map(|fragment| fragment.to_cedarschema());
    let Ok(Ok(text)) = text else {
        unreachable!("every name and type in it is Cedar's");
    };
    let abouts = FACTS
        .iter()
        .map(|row| format!("// context.{}: {}\n", row.name, row.about));
    format!("{HEAD}{}//\n{text}", abouts.collect::<String>())
}

const HEAD: &str = "\
// The schema that every policy is validated against, strictly, when it is loaded.
// Made from the table of facts. `gateway policy schema` adds what a configuration declares.
//
";

fn document(declared: &Declared) -> Value {
    let mut actions = Map::new();
    for (group, above) in [("any", None), ("read", Some("any")), ("write", Some("any"))] {
        let above: Vec<Value> = above.iter().map(|id| json!({ "id": id })).collect();
        let nothing = json!({ "principalTypes": [], "resourceTypes": [] });
        actions.insert(
            group.into(),
            json!({ "memberOf": above, "appliesTo": nothing }),
        );
    }
    for action in Action::ALL {
        let (resource, context, group) = match action {
            Action::Lend => ("Credential", "Loan", None),
            Action::Sign => ("SigningKey", "Signing", None),
            Action::Get | Action::Head | Action::Options => ("Host", "Request", Some("read")),
            _ => ("Host", "Request", Some("write")),
        };
        let above: Vec<Value> = group.iter().map(|id| json!({ "id": id })).collect();
        let applies = json!({
            "principalTypes": ["Session"], "resourceTypes": [resource],
            "context": { "type": context },
        });
        actions.insert(
            action.as_str().into(),
            json!({ "memberOf": above, "appliesTo": applies }),
        );
    }
    json!({ "Gateway": {
        "entityTypes": {
            "Group": { "memberOfTypes": ["Group"] },
            "User": { "memberOfTypes": ["Group"] },
            "Session": { "memberOfTypes": ["User", "Group"] },
            "Domain": { "memberOfTypes": ["Domain"] },
            "Host": { "memberOfTypes": ["Domain"] },
            "Credential": {},
            "SigningKey": {},
        },
        "commonTypes": {
            "Request": record(declared, |row| !matches!(row.scope, Scope::Lend | Scope::Sign)),
            "Loan": record(declared, |row| row.scope != Scope::Sign),
            "Signing": record(declared, |row| row.scope != Scope::Lend),
        },
        "actions": actions,
    }})
}

/// Returns the type of a context with some of the facts.
fn record(declared: &Declared, has: impl Fn(&FactRow) -> bool) -> Value {
    let mut attributes = Map::new();
    for row in FACTS.iter().filter(|row| has(row)) {
        let kind = type_of(row.kind, declared);
        match row.name.split_once('.') {
            None => drop(attributes.insert(row.name.into(), kind)),
            Some((outer, inner)) => {
                let record = attributes
                    .entry(outer)
                    .or_insert_with(|| json!({ "type": "Record", "attributes": {} }));
                record["attributes"][inner] = kind;
            }
        }
    }
    json!({ "type": "Record", "attributes": attributes })
}

fn type_of(kind: CedarType, declared: &Declared) -> Value {
    let named = |name: &str| json!({ "type": "EntityOrCommon", "name": name });
    match kind {
        CedarType::String => named("String"),
        CedarType::Strings => json!({ "type": "Set", "element": named("String") }),
        CedarType::Long => named("Long"),
        CedarType::Bool => named("Bool"),
        CedarType::Datetime => named("datetime"),
        CedarType::Host => named("Host"),
        CedarType::Content => {
            let facts = declared.types().into_iter();
            let facts = facts.map(|(name, kind)| (name.to_owned(), type_of(kind.into(), declared)));
            json!({ "type": "Record", "attributes": facts.collect::<Map<_, _>>() })
        }
    }
}

gateway_names::words! {
    /// An action in a question: a kind of request, by method, the use of a credential, or a
    /// signature.
    pub enum Action {
        /// `GET`.
        Get = "GET",
        /// `HEAD`.
        Head = "HEAD",
        /// `OPTIONS`.
        Options = "OPTIONS",
        /// `POST`.
        Post = "POST",
        /// `PUT`.
        Put = "PUT",
        /// `PATCH`.
        Patch = "PATCH",
        /// `DELETE`.
        Delete = "DELETE",
        /// Any other method token. Methods are case-sensitive (RFC 9110 §9.1), so `get` is one of
        /// these.
        Other = "other",
        /// The use of a credential.
        Lend = "lend",
        /// The signature of a commit or tag.
        Sign = "commit.sign",
    }
}

impl Action {
    /// Returns the action of a method.
    #[must_use]
    pub fn of_method(method: &str) -> Self {
        match Self::named(method) {
            Some(Self::Lend | Self::Sign) | None => Self::Other,
            Some(action) => action,
        }
    }

    /// Returns the action's Cedar name.
    pub(super) fn uid(self) -> &'static EntityUid {
        static UIDS: LazyLock<[EntityUid; 10]> =
            LazyLock::new(|| Action::ALL.map(|action| uid(&ACTION, action.as_str())));
        &UIDS[self as usize]
    }
}

/// A set of actions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Actions(u16);

impl Actions {
    /// Every action.
    pub const ALL: Self = Self(0x3ff);
    /// Every action that sends a request to a host.
    pub const ANY: Self = Self(0x0ff);
    const READ: Self = Self(0x007);
    const WRITE: Self = Self(0x0f8);
    const NONE: Self = Self(0);

    /// Returns the actions that `name` matches. Groups match only `through_groups`, as `in` does.
    pub fn named(name: &str, through_groups: bool) -> Self {
        match name {
            "any" if through_groups => Self::ANY,
            "read" if through_groups => Self::READ,
            "write" if through_groups => Self::WRITE,
            _ => Action::named(name).map_or(Self::NONE, |action| Self(1 << action as u16)),
        }
    }

    /// Returns the union of these sets.
    pub fn union(all: impl IntoIterator<Item = Self>) -> Self {
        Self(all.into_iter().fold(0, |bits, one| bits | one.0))
    }

    /// Whether the action is in the set.
    pub fn holds(self, action: Action) -> bool {
        self.0 & (1 << action as u16) != 0
    }

    /// Returns the actions in both sets.
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns the actions in this set but not in the other.
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the actions' names, in schema order.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Action::ALL
            .into_iter()
            .filter(move |action| self.holds(*action))
            .map(Action::as_str)
    }
}

/// The entity type of sessions.
pub(super) static SESSION: LazyLock<EntityTypeName> = LazyLock::new(|| type_name("Session"));
/// The entity type of the users behind connections.
pub(super) static USER: LazyLock<EntityTypeName> = LazyLock::new(|| type_name("User"));
/// The entity type of groups of sessions and users.
pub(super) static GROUP: LazyLock<EntityTypeName> = LazyLock::new(|| type_name("Group"));
/// The entity type of hosts.
pub(super) static HOST: LazyLock<EntityTypeName> = LazyLock::new(|| type_name("Host"));
/// The entity type of domains.
pub(super) static DOMAIN: LazyLock<EntityTypeName> = LazyLock::new(|| type_name("Domain"));
/// The entity type of credentials.
pub(super) static CREDENTIAL: LazyLock<EntityTypeName> = LazyLock::new(|| type_name("Credential"));
/// The entity type of keys that sign commits.
pub(super) static SIGNING_KEY: LazyLock<EntityTypeName> = LazyLock::new(|| type_name("SigningKey"));
/// The entity type of actions.
pub(super) static ACTION: LazyLock<EntityTypeName> = LazyLock::new(|| type_name("Action"));

fn type_name(name: &str) -> EntityTypeName {
    EntityTypeName::from_str(&format!("Gateway::{name}"))
        .expect("a literal name of two identifiers parses")
}

/// Returns the Cedar name of an entity. Any text is a valid id.
pub(super) fn uid(kind: &EntityTypeName, id: &str) -> EntityUid {
    EntityUid::from_type_name_and_id(kind.clone(), EntityId::new(id))
}

/// Returns the domains a host is in, from the host itself up to the top-level domain. An IP address
/// is in none.
///
/// Domains are compared by whole labels, so `evilgithub.com` is not in `github.com`.
pub(super) fn domains(host: &Host) -> impl Iterator<Item = &str> + Clone {
    host.domains().filter(|_| host.ip().is_none())
}

/// Returns why a text is not the canonical form of a host. `None` if it is.
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

    /// `GATEWAY_WRITE=1 cargo test -p gateway-policy schema` writes the generated files.
    #[test]
    fn the_files_say_what_the_table_says() {
        let root = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let schema = root.join("policies/gateway.cedarschema");
        let docs = root.join("docs/policy.md");
        let page = std::fs::read_to_string(&docs).unwrap();
        let made = [
            (schema, schema_text(&Declared::default())),
            (docs, with_tables(&page)),
        ];
        for (path, text) in made {
            if std::env::var_os("GATEWAY_WRITE").is_some() {
                std::fs::write(&path, &text).unwrap();
            }
            let is = std::fs::read_to_string(&path).unwrap();
            assert!(
                is == text,
                "{}: set GATEWAY_WRITE=1 for this test",
                path.display()
            );
        }
    }

    /// Returns the page, with its tables of facts replaced by generated ones.
    fn with_tables(page: &str) -> String {
        let rows = |scopes: &[Scope]| -> String {
            let mut text = String::from("| attribute | type | what it is |\n|---|---|---|\n");
            for row in FACTS.iter().filter(|row| scopes.contains(&row.scope)) {
                let kind = match row.kind {
                    CedarType::Strings => "Set",
                    CedarType::Datetime => "datetime",
                    CedarType::Content => "Record",
                    CedarType::String => "String",
                    CedarType::Long => "Long",
                    CedarType::Bool => "Bool",
                    CedarType::Host => "Host",
                };
                text.push_str(&format!("| `{}` | {kind} | {} |\n", row.name, row.about));
            }
            text
        };
        let mut tables = [
            rows(&[Scope::Any, Scope::One]),
            rows(&[Scope::Lend]),
            rows(&[Scope::Sign]),
        ]
        .into_iter();
        let mut made = String::new();
        let mut skips = false;
        for line in page.lines() {
            if line.starts_with("| attribute |") {
                made.push_str(&tables.next().unwrap());
                skips = true;
            }
            skips &= line.starts_with('|');
            if !skips {
                made.push_str(line);
                made.push('\n');
            }
        }
        made
    }

    #[test]
    fn every_action_is_in_the_schema() {
        let known: Vec<_> = schema(&Declared::default()).actions().cloned().collect();
        for action in Action::ALL {
            assert!(known.contains(action.uid()), "{}", action.as_str());
        }
    }

    #[test]
    fn action_groups_are_those_of_the_schema() {
        let entities = schema(&Declared::default()).action_entities().unwrap();
        for action in Action::ALL {
            for group in ["any", "read", "write"] {
                let in_schema = entities.is_ancestor_of(&uid(&ACTION, group), action.uid());
                assert_eq!(
                    Actions::named(group, true).holds(action),
                    in_schema,
                    "{} in {group}",
                    action.as_str()
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
