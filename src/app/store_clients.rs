//! The clients of the gateway's own requests to stores.

use std::sync::Arc;

use crate::Failure;
use gateway_config::Config;
use gateway_credential::{ConfiguredStore, HttpClient, StoreSettings};
use gateway_message::Origin;
use gateway_origin::{ClientIdentity, StoreClient};

/// Creates a client for each of these stores.
pub fn stores<'s>(
    config: &Config,
    stores: impl IntoIterator<Item = &'s StoreSettings>,
) -> Result<Vec<ConfiguredStore>, Failure> {
    let client = |settings: &StoreSettings| {
        let identity = settings
            .client_certificate()
            .map(|(chain, key)| ClientIdentity {
                chain: chain.to_vec(),
                key: key.clone(),
            });
        let servers = settings.all_servers();
        let way = config.store_way(&servers);
        let client = StoreClient::new(servers, settings.roots.clone(), identity, way);
        let client = client.map_err(|error| {
            failed(&format!("the way to the store `{}`", settings.name), &error)
        })?;
        Ok((settings.clone(), Arc::new(client) as Arc<dyn HttpClient>))
    };
    stores.into_iter().map(client).collect()
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
