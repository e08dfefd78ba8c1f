//! What the gateway asks for itself, at the operator's word and before any session: a package
//! index's own page. No session's request comes this way, and no credential: a session's requests
//! need an authorized channel.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, HOST, HeaderValue};
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::time::timeout;

use super::channel::Inner;
use super::tls::Offer;
use super::{Error, Origins, dial};
use crate::message::{Origin, RequestTarget, Scheme};
use crate::names::{Identity, SessionId};

/// For one question, from the name to the end of the answer.
const DEADLINE: Duration = Duration::from_secs(5);
/// The longest answer that is read, in bytes.
const LONGEST: usize = 8 << 20;

impl Origins {
    /// Asks an origin for a page, over TLS and HTTP/1.1, its address vetted as any other; nothing
    /// is followed.
    ///
    /// # Errors
    /// [`Error`] by cause; [`Error::Protocol`] for an answer that is not 200 or longer than 8 MiB.
    pub async fn page(&self, origin: &Origin, target: RequestTarget) -> Result<Bytes, Error> {
        timeout(DEADLINE, ask(self.inner(), origin, target))
            .await
            .map_err(|_| Error::ConnectTimeout)?
    }
}

async fn ask(inner: &Inner, origin: &Origin, target: RequestTarget) -> Result<Bytes, Error> {
    if origin.scheme != Scheme::Https {
        return Err(Error::Protocol);
    }
    let rule = inner
        .settings
        .rule(origin)
        .map(|index| (index, &inner.settings.rules[index]));
    let addresses =
        dial::addresses(origin, rule.map(|(_, rule)| rule), inner.resolver.as_ref()).await?;
    let stream = dial::connect(addresses, &inner.settings).await?;
    let session = SessionId::new("gateway").map_err(|_| Error::Protocol)?;
    let identity = Identity {
        session,
        credentials: [].into(),
    };
    let config = inner.configurations.of(&identity, rule, Offer::Http1)?;
    let stream = dial::handshake(stream, &origin.authority.host, config, &inner.settings).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(Error::Http)?;
    let request = Request::get(Uri::from(target.into_path_and_query()))
        .header(HOST, super::channel::host_field(origin)?)
        .header(ACCEPT, HeaderValue::from_static("*/*"))
        .body(Empty::<Bytes>::new())
        .map_err(|_| Error::Protocol)?;
    let answer = async move {
        let response = sender.send_request(request).await.map_err(Error::Http)?;
        if response.status() != StatusCode::OK {
            return Err(Error::Protocol);
        }
        let content = Limited::new(response.into_body(), LONGEST)
            .collect()
            .await
            .map_err(|_| Error::Protocol)?;
        Ok(content.to_bytes())
    };
    // The connection is driven beside the question and ends with it.
    tokio::select! {
        answer = answer => answer,
        ended = connection => Err(ended.err().map_or(Error::Protocol, Error::Http)),
    }
}
