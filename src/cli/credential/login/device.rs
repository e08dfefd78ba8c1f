//! A login with a code that is typed on another device (RFC 8628).

use std::time::Duration;

use http::StatusCode;
use serde::Deserialize;
use tokio::time::{Instant, sleep};
use zeroize::Zeroizing;

use super::{IssuerError, LoginIssuer, refused};
use crate::app::{Failure, safe};
use crate::credential::login::{TokenEndpoint, Tokens};
use crate::message::OriginPattern;

/// The issuer's first response (RFC 8628 §3.2).
#[derive(Deserialize)]
struct DeviceAuthorization {
    device_code: String,
    user_code: String,
    #[serde(alias = "verification_url")]
    verification_uri: String,
    expires_in: u64,
    interval: Option<u64>,
}

impl LoginIssuer<'_> {
    pub(crate) async fn on_another_device(&self, at: &TokenEndpoint) -> Result<Tokens, Failure> {
        let answer = self
            .ask(at, self.issuer.scope().into_iter().collect())
            .await?;
        if let Ok(said) = serde_json::from_slice::<IssuerError>(&answer.content) {
            return Err(refused(&said.error));
        }
        let begun = serde_json::from_slice::<DeviceAuthorization>(&answer.content).ok();
        let begun = begun.filter(|one| answer.status == StatusCode::OK && leads(one));
        let begun = begun.ok_or_else(|| self.illegible(&answer, "a code and where to type it"))?;
        let (page, code) = (safe(&begun.verification_uri), safe(&begun.user_code));
        self.terminal
            .note(format!("open {page} on any device, and type {code}"));
        let end = Instant::now() + Duration::from_secs(begun.expires_in).min(LONGEST);
        let mut pause = Duration::from_secs(begun.interval.unwrap_or(5).clamp(1, 60));
        while Instant::now() < end {
            sleep(pause).await;
            let members = vec![
                ("grant_type", Zeroizing::new(DEVICE_CODE.to_owned())),
                ("device_code", Zeroizing::new(begun.device_code.clone())),
            ];
            let answer = self.ask(&self.issuer.endpoint, members).await?;
            match self.tokens(&answer)? {
                Ok(tokens) => return Ok(tokens),
                Err(word) if word == "authorization_pending" => {}
                Err(word) if word == "slow_down" => pause += SLOWER,
                Err(word) => return Err(refused(&word)),
            }
        }
        Err(Failure::new("the code was not typed in time").next("begin again: `gateway login add`"))
    }
}

/// Whether a person can be sent to the page: the network can neither read nor change it.
fn leads(begun: &DeviceAuthorization) -> bool {
    let page = &begun.verification_uri;
    let end = page.find("://").map_or(0, |at| at + 3);
    let end = page[end..]
        .find(['/', '?', '#'])
        .map_or(page.len(), |at| end + at);
    let origin: Result<OriginPattern, _> = page[..end].parse();
    origin.is_ok_and(|origin| page.starts_with("https://") || origin.is_loopback())
}

const DEVICE_CODE: &str = "urn:ietf:params:oauth:grant-type:device_code";
const LONGEST: Duration = Duration::from_secs(30 * 60);
/// RFC 8628 §3.5.
const SLOWER: Duration = Duration::from_secs(5);
