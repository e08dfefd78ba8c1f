//! The clients of the gateway's own requests to stores.

use std::sync::Arc;

use crate::Failure;
use gateway_config::Config;
use gateway_credential::{HttpClient, Vault, VaultSettings};
use gateway_message::Origin;
use gateway_origin::{ClientIdentity, StoreClient};

/// Creates the Vault client and its connection settings.
pub fn vault(config: &Config, settings: &VaultSettings) -> Result<Vault, Failure> {
    let identity = settings
        .client_certificate()
        .map(|(chain, key)| ClientIdentity {
            chain: chain.to_vec(),
            key: key.clone(),
        });
    let client = StoreClient::new(
        settings.servers.clone(),
        settings.roots.clone(),
        identity,
        config.store_way(&settings.servers),
    )
    .map_err(|error| failed("the way to the vault", &error))?;
    Ok((settings.clone(), Arc::new(client)))
}

/// Returns the failure that a part cannot be set up.
pub fn failed(what: &str, error: &dyn std::error::Error) -> Failure {
    Failure::of(format!("{what} cannot be set up"), error)
}

/// Creates the client for a server of an issuer.
pub fn issuer(config: &Config, server: &Origin) -> Result<Arc<dyn HttpClient>, Failure> {
    let servers = vec![server.clone()];
    let way = config.store_way(&servers);
    let client = StoreClient::new(servers, Vec::new(), None, way);
    Ok(Arc::new(client.map_err(|error| {
        failed("the way to the issuer of a login", &error)
    })?))
}
