//! 1Password: by its command `op`, or by a Connect server.
//!
//! `op read op://VAULT/ITEM/FIELD` (1Password CLI, secret references); `GET /v1/vaults`, `…/items`
//! and `…/items/ID` (1Password Connect Server REST API).

use std::collections::HashMap;
use std::sync::Arc;

use gateway_message::Origin;
use gateway_message::pairs::ESCAPED;
use parking_lot::Mutex;
use percent_encoding::utf8_percent_encode;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

use super::bearer::BearerClient;
use super::command;
use super::http::{HttpClient, Refusal, Refusals, Served, refused};
use super::json::{Text, bytes};
use super::material::Material;
use super::{ReferenceMalformed, SecretRef, SecretSource, StoreError};
use crate::secret::trim_line_end;

/// How 1Password is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpSettings {
    /// By the program `op`, which logs in itself.
    Command(SecretRef),
    /// By a Connect server, with this token.
    Connect(SecretRef),
}

/// 1Password.
pub(super) enum OpStore {
    Command(SecretRef),
    /// With the paths of the items that were found by their names.
    Connect(BearerClient, Mutex<HashMap<Box<str>, String>>),
}

#[derive(Deserialize)]
struct Named {
    id: String,
}

#[derive(Deserialize)]
struct Item {
    #[serde(default)]
    sections: Vec<Labelled>,
    #[serde(default)]
    fields: Vec<Field>,
}

#[derive(Deserialize)]
struct Labelled {
    id: String,
    label: Option<String>,
}

#[derive(Deserialize)]
struct Field {
    #[serde(flatten)]
    name: Labelled,
    section: Option<Named>,
    value: Option<Text>,
}

impl OpStore {
    pub(super) fn new(
        settings: &OpSettings,
        client: Arc<dyn HttpClient>,
        source: impl Fn(&SecretRef) -> SecretSource,
    ) -> Self {
        match settings {
            OpSettings::Command(program) => Self::Command(program.clone()),
            OpSettings::Connect(token) => {
                Self::Connect(BearerClient::kept(client, source(token)), Mutex::default())
            }
        }
    }

    /// Reads `VAULT/ITEM/FIELD` or `VAULT/ITEM/SECTION/FIELD`.
    pub(super) async fn read(&self, served: &Served, path: &str) -> Result<Material, StoreError> {
        let (vault, item, field) = parts(path).ok_or(StoreError::Place)?;
        let value = match self {
            Self::Command(line) => by_command(line, path).await?,
            Self::Connect(client, found) => {
                let ask = Connect {
                    client,
                    server: served.first()?,
                };
                let known = found.lock().get(path).cloned();
                let at = match known {
                    Some(at) => at,
                    None => ask.item(vault, item).await?,
                };
                let item = ask.get::<Item>(&at).await;
                // Another item may have the name by now.
                match item.is_err() {
                    true => drop(found.lock().remove(path)),
                    false => drop(found.lock().insert(path.into(), at)),
                }
                bytes(item?.value(field)?)
            }
        };
        Ok(Material::single(value, Some(served.lease.clone())))
    }
}

async fn by_command(program: &SecretRef, path: &str) -> Result<Zeroizing<Vec<u8>>, StoreError> {
    let arguments = ["read", "--no-newline", &format!("op://{path}")];
    let printed = command::ask(program, arguments.map(str::to_owned)).await?;
    let mut value = printed.map_err(|(cause, said)| match refused(0, &said, REFUSALS) {
        StoreError::Refused { words: "", .. } => cause,
        known => known,
    })?;
    trim_line_end(&mut value);
    Ok(value)
}

/// A Connect server that is asked.
struct Connect<'a> {
    client: &'a BearerClient,
    server: &'a Origin,
}

impl Connect<'_> {
    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, StoreError> {
        let answer = self.client.get(self.server, path, REFUSALS).await?;
        serde_json::from_slice(&answer.content).map_err(|_| StoreError::Illegible)
    }

    /// Returns the path of an item.
    async fn item(&self, vault: &str, item: &str) -> Result<String, StoreError> {
        let vault = self.id("/v1/vaults", "name", vault).await?;
        let items = format!("/v1/vaults/{vault}/items");
        let item = self.id(&items, "title", item).await?;
        Ok(format!("{items}/{item}"))
    }

    /// Returns the id of the only one with this name, which may be the id itself.
    async fn id(&self, path: &str, called: &str, name: &str) -> Result<String, StoreError> {
        if is_id(name) {
            return Ok(name.to_owned());
        }
        let filter = format!("{called} eq \"{name}\"");
        let filter = utf8_percent_encode(&filter, ESCAPED);
        let mut found: Vec<Named> = self.get(&format!("{path}?filter={filter}")).await?;
        match (found.pop(), found.is_empty()) {
            (Some(one), true) if is_id(&one.id) => Ok(one.id),
            (Some(_), true) => Err(StoreError::Illegible),
            (Some(_), false) => Err(StoreError::Unreachable(SEVERAL)),
            (None, _) => Err(StoreError::gone()),
        }
    }
}

impl Item {
    /// Returns the value of `FIELD` or `SECTION/FIELD`, each by its label or its id.
    fn value(&self, named: &str) -> Result<&str, StoreError> {
        let (section, field) = match named.split_once('/') {
            Some((section, field)) => (Some(section), field),
            None => (None, named),
        };
        let is_in = |one: &&Field| {
            section.is_none_or(|section| {
                let own = one.section.as_ref().map(|own| own.id.as_str());
                let mut known = self.sections.iter();
                own.is_some() && known.any(|known| known.is(section) && Some(&*known.id) == own)
            })
        };
        let fields = self.fields.iter().filter(|one| one.value.is_some());
        let mut found = fields
            .clone()
            .filter(|one| one.name.is(field))
            .filter(is_in);
        match (found.next(), found.next()) {
            (Some(one), None) => one
                .value
                .as_ref()
                .map(|text| &**text.0)
                .ok_or(StoreError::Absent),
            (Some(_), Some(_)) => Err(StoreError::Unreachable(SEVERAL)),
            (None, _) => {
                let names = fields.fold(Material::new(None), |names, one| {
                    let name = one.name.label.as_deref().unwrap_or(&one.name.id);
                    names.with(name, bytes(""))
                });
                Err(StoreError::NoField(named.into(), names.names().into()))
            }
        }
    }
}

impl Labelled {
    fn is(&self, name: &str) -> bool {
        self.id == name || self.label.as_deref() == Some(name)
    }
}

pub(super) fn check(path: &str) -> Result<(), ReferenceMalformed> {
    parts(path).map(drop).ok_or_else(|| {
        ReferenceMalformed::new(
            "a secret of 1Password has a vault, an item and a field, and may have a section before the field",
            "write for example `op:Work/GitHub/token`, with ids for names that have `/`, `#`, `?` or quotes",
        )
    })
}

/// Splits `VAULT/ITEM/FIELD` or `VAULT/ITEM/SECTION/FIELD`.
fn parts(path: &str) -> Option<(&str, &str, &str)> {
    let is_name = |part: &str| !matches!(part, "" | "." | "..") && !part.contains(['"', '\\', '?']);
    let all: Vec<&str> = path.split('/').collect();
    let fits = (3..=4).contains(&all.len()) && all.iter().all(|part| is_name(part));
    let (vault, rest) = path.split_once('/').filter(|_| fits)?;
    let (item, field) = rest.split_once('/')?;
    Some((vault, item, field))
}

fn is_id(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.len() == 26 && text.bytes().all(fits)
}

const SEVERAL: &str = "several have that name: write the id";
/// The words of `op`, and of Connect.
const REFUSALS: Refusals = &[
    (
        Refusal::Gone,
        "isn't a vault|isn't an item|does not have a field",
    ),
    (
        Refusal::Other,
        "More than one item matches|Too many requests",
    ),
    (Refusal::Expired, "session expired|Token expired"),
    (
        Refusal::Login,
        "not currently signed in|No accounts configured|Authentication: |(401) Unauthorized",
    ),
    (Refusal::Denied, "Authorization: |(403) Forbidden"),
];
