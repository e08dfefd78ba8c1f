//! Sets up the store of logins: its clients, its rows and their key.

use std::sync::Arc;

use crate::Failure;
use crate::session::key::KeyPlaces;
use crate::store_clients as clients;
use gateway_config::{Config, state};
use gateway_credential::login::Login;
use gateway_credential::{HttpClient, KeySource, LoginSettings};
use gateway_message::Origin;
use gateway_state::LoginRows;

/// Returns the settings of these logins. A client that is `known` for a server is reused.
///
/// # Errors
/// Returns a [`Failure`] if an issuer cannot be reached as the configuration requires.
pub fn settings(
    config: &Config,
    logins: &[Login],
    known: impl Fn(&Origin) -> Option<Arc<dyn HttpClient>>,
) -> Result<LoginSettings, Failure> {
    let mut clients: Vec<(Origin, Arc<dyn HttpClient>)> = Vec::new();
    let issuers = logins.iter().filter_map(|login| login.issuer.as_ref());
    for endpoint in
        issuers.flat_map(|issuer| [&issuer.endpoint].into_iter().chain(&issuer.revocation))
    {
        let server = &endpoint.origin;
        if clients.iter().any(|(client, _)| client == server) {
            continue;
        }
        let client = match known(server) {
            Some(client) => client,
            None => clients::issuer(config, server)?,
        };
        clients.push((server.clone(), client));
    }
    Ok(LoginSettings {
        logins: logins.to_vec(),
        clients,
        rows: rows(config),
    })
}

/// Returns the rows, and the source of their key, which is read at the first use of a row.
fn rows(config: &Config) -> Option<(LoginRows, KeySource)> {
    let rows = LoginRows::at(&state::logins_database()?);
    let (config, of) = (Arc::new(config.clone()), rows.clone());
    let key: KeySource = Arc::new(move || {
        let (config, rows) = (config.clone(), of.clone());
        // A key ring may block.
        let runtime = tokio::runtime::Handle::current();
        let find = tokio::task::spawn_blocking(move || {
            let places = KeyPlaces::new(&config, rows.folder());
            runtime.block_on(places.of_logins(&rows))
        });
        Box::pin(async move {
            match find.await {
                Ok(Ok(key)) => Ok(Arc::new(key)),
                Ok(Err(failure)) => Err(failure.to_string()),
                Err(_) => Err("the task ended".to_owned()),
            }
        })
    });
    Some((rows, key))
}
