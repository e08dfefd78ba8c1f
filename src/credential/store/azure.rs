//! Azure Key Vault.
//!
//! `GET /secrets/NAME?api-version=7.4` (Key Vault REST API, Get Secret).

use gateway_message::Origin;

use super::bearer::BearerClient;
use super::http::{Refusal, Refusals, Served};
use super::json::{SecretFields, document};
use super::material::Material;
use super::{ReferenceMalformed, StoreError};

/// Reads `VAULT/NAME`.
pub(super) async fn read(
    client: &BearerClient,
    served: &Served,
    path: &str,
) -> Result<Material, StoreError> {
    let (server, name) = place(&served.servers, path).ok_or(StoreError::Place)?;
    let path = format!("/secrets/{name}?api-version=7.4");
    let answer = client.get(server, &path, REFUSALS).await?;
    let mut fields: SecretFields =
        serde_json::from_slice(&answer.content).map_err(|_| StoreError::Illegible)?;
    // The key of a certificate, encoded.
    if fields
        .take("contentType")
        .is_some_and(|kind| *kind == "application/x-pkcs12")
    {
        return Err(StoreError::Binary);
    }
    let value = fields.take("value").ok_or(StoreError::Illegible)?;
    Ok(document(&value, served.lease.clone()))
}

pub(super) fn check(servers: &[Origin], path: &str) -> Result<(), ReferenceMalformed> {
    place(servers, path).map(drop).ok_or_else(|| {
        let vaults: Vec<&str> = servers.iter().map(vault).collect();
        ReferenceMalformed::new(
            format!("a secret of Azure has a vault and a name; the vaults of the store are {}", vaults.join(", ")),
            "write for example `azure-secret:my-vault/token`, and the vault's address into `addresses`",
        )
    })
}

fn place<'a>(servers: &'a [Origin], path: &'a str) -> Option<(&'a Origin, &'a str)> {
    let (named, name) = path.split_once('/')?;
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let is_name = (1..=127).contains(&name.len()) && name.bytes().all(fits);
    let server = servers.iter().find(|server| vault(server) == named);
    Some((server.filter(|_| is_name)?, name))
}

/// The vault of an address: the first label of its host.
fn vault(server: &Origin) -> &str {
    let host = server.authority.host.as_str();
    host.split('.').next().unwrap_or(host)
}

/// The codes of Key Vault's errors.
const REFUSALS: Refusals = &[
    (Refusal::Gone, "SecretNotFound|SecretDisabled"),
    (
        Refusal::Denied,
        "ForbiddenByRbac|ForbiddenByPolicy|ForbiddenByFirewall|Forbidden",
    ),
    (Refusal::Login, "Unauthorized"),
    (Refusal::Other, "Throttled"),
];
