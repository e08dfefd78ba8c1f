//! The way to the `proxy` of a gateway elsewhere, by TLS: for a sidecar, whose one secret is what it
//! presents there.

use std::time::Duration;

use rustls::pki_types::CertificateDer;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use super::rule::{ClientIdentity, OriginSettings};
use super::stores::{StoreClient, StoreClientUnusable, StoreWay};
use super::upstream_failure::UpstreamFault;
use super::{Error, upstream};
use crate::credential::{LoginUnavailable, UpstreamLogin};
use crate::message::{Authority, Origin};

/// The `proxy` listener of a gateway elsewhere.
pub struct RemoteProxy {
    client: StoreClient,
    login: Option<UpstreamLogin>,
}

/// Why a gateway elsewhere opens no tunnel. Holds no text of it, and nothing that was presented.
#[derive(Debug, thiserror::Error)]
pub enum RemoteRefused {
    /// What is to be presented cannot be read.
    #[error("the token cannot be read")]
    NoToken(#[source] LoginUnavailable),
    /// There is no connection, or it cannot be trusted.
    #[error("there is no way there")]
    Unreached(#[source] Error),
    /// It does not answer, or not as a proxy does. One that wants a certificate ends TLS.
    #[error("there is no answer of a proxy")]
    Unanswered(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It asks for something that shows who asks.
    #[error("it asks who this is (407), and nothing was presented")]
    Asks,
    /// It does not take what was presented.
    #[error("it does not take the token (407): it is none of its own, was revoked, or has ended")]
    Token,
    /// It refuses for another reason.
    #[error("it refuses this caller ({0})")]
    Refuses(u16),
}

impl RemoteProxy {
    /// The proxy at an `https` origin. If there are `roots`, no others are trusted.
    ///
    /// # Errors
    /// [`StoreClientUnusable`] by cause.
    pub fn new(
        at: Origin,
        roots: Vec<CertificateDer<'static>>,
        identity: Option<ClientIdentity>,
        login: Option<UpstreamLogin>,
    ) -> Result<Self, StoreClientUnusable> {
        let servers = vec![at];
        let way = StoreWay::of(&OriginSettings::default(), &servers);
        let client = StoreClient::new(servers, roots, identity, way)?;
        Ok(Self { client, login })
    }

    /// Opens a tunnel, and sends something into it at once. Returns what came of it already.
    ///
    /// # Errors
    /// [`RemoteRefused`] by cause, within seconds.
    pub async fn open(
        &self,
        to: &Authority,
        then: &[u8],
    ) -> Result<(TlsStream<TcpStream>, Vec<u8>), RemoteRefused> {
        let login = match &self.login {
            None => None,
            Some(login) => Some(login.field().await.map_err(RemoteRefused::NoToken)?),
        };
        let stream = self.client.connect().await;
        let mut stream = stream.map_err(RemoteRefused::Unreached)?;
        let asked = upstream::ask(&mut stream, to, login.as_ref(), then);
        let asked = timeout(ANSWERS, asked).await;
        let answer = asked.unwrap_or(Err(UpstreamFault::Late));
        let (status, came) = answer.map_err(|fault| RemoteRefused::Unanswered(fault.into()))?;
        match status {
            200..300 => Ok((stream, came)),
            407 if login.is_some() => Err(RemoteRefused::Token),
            407 => Err(RemoteRefused::Asks),
            status => Err(RemoteRefused::Refuses(status)),
        }
    }
}

const ANSWERS: Duration = Duration::from_secs(5);
