//! Fetches the keys of JWT issuers whose URL the configuration names.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{Request, StatusCode};
use zeroize::Zeroizing;

use crate::listen::listeners::OpenListener;
use crate::store_clients;
use crate::{App, Failure};
use gateway_config::Config;
use gateway_credential::login::TokenEndpoint;
use gateway_intercept::JwtKeys;
use gateway_server::chain;

impl App {
    /// Keeps the issuer's keys of each listener up to date, for ever.
    pub async fn ask_issuers(self: Arc<Self>) {
        loop {
            for open in self.listening.open() {
                let listener = open.slot.listener();
                let jwt = open.known.jwt.as_ref().and_then(|jwt| jwt.url());
                let Some((url, by)) = jwt
                    .zip(listener.jwts())
                    .filter(|(_, by)| by.asks(Instant::now()))
                else {
                    continue;
                };
                let config = self.reloading.latest.lock().await.read.config.clone();
                let keys = keys_at(&config, url).await;
                let why = keys.as_ref().err().map(ToString::to_string);
                if by.answered(keys.ok(), Instant::now())
                    && let Some(why) = why
                {
                    tracing::warn!(%url, why, "the keys of an issuer of JWTs cannot be had");
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// The keys that an issuer of JWTs publishes.
///
/// # Errors
/// Returns a [`Failure`] if they cannot be had.
pub async fn keys_at(config: &Config, url: &TokenEndpoint) -> Result<JwtKeys, Failure> {
    let client = store_clients::issuer(config, &url.origin)?;
    let request = Request::get(&url.path).body(Zeroizing::default());
    let request = request.map_err(|error| Failure::new(error.to_string()))?;
    let answer = client.send(&url.origin, request).await;
    let answer = answer.map_err(|error| Failure::new(chain(&error)))?;
    match answer.status {
        StatusCode::OK => JwtKeys::read(&answer.content).map_err(Failure::new),
        status => Err(Failure::new(format!("its status is {status}"))),
    }
}

/// Returns why a listener accepts no JWT now, if it accepts JWTs at all.
pub fn without_keys(open: &OpenListener) -> Option<String> {
    let listener = open.slot.listener();
    let url = open.known.jwt.as_ref()?.url()?;
    let is_without = !listener.jwts()?.has_keys();
    let address = &open.known.address;
    is_without.then(|| format!("the keys for the JWTs at {address} are not known: {url} has none"))
}

/// How often each listener is checked for a due request to its issuer.
const LOOK: Duration = Duration::from_secs(1);
