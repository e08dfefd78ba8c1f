//! Dials origins: resolves, vets, connects and verifies TLS. Keeps idle connections.

use std::net::SocketAddr;
use std::sync::Arc;

use gateway_message::Scheme;
use gateway_session::Revocation;

use super::ignore_write_errors::IgnoreWriteErrors;
use super::pool::{Pool, PoolKey};
use super::resolve::Resolve;
use super::rule::OriginSettings;
use super::sender::{Sender, http1_over, http2_over};
use super::severable_socket::SeverableSocket;
use super::tls::{AlpnOffer, Configurations, UsableVersions};
use super::{Error, dial};

/// The dialer of one runtime thread.
pub(super) struct Dialer {
    pub(super) settings: Arc<OriginSettings>,
    pub(super) resolver: Arc<dyn Resolve>,
    pub(super) configurations: Configurations,
    pub(super) pool: Pool,
}

impl Dialer {
    /// Opens a new connection, and returns the dialled address. A revocation of any of the
    /// credentials ends it. With `shared`, other exchanges may use an HTTP/2 connection at once.
    pub(super) async fn dial(
        &self,
        key: &Arc<PoolKey>,
        carried: UsableVersions,
        revocations: &[Arc<Revocation>],
        shared: bool,
    ) -> Result<(Sender, SocketAddr), Error> {
        let index = self.settings.index(&key.origin);
        let rule = index.map(|index| self.settings.at(index).0);
        let resolver = self.resolver.as_ref();
        let stream = dial::connect(&key.origin, rule, resolver, &self.settings).await?;
        let remote = stream
            .peer_addr()
            .map_err(|error| Error::Unreachable(Some(error)))?;
        let stream = SeverableSocket::new(stream, revocations)?;
        let sender = match key.origin.scheme {
            Scheme::Http => http1_over(IgnoreWriteErrors::new(stream), &key.origin, remote).await?,
            Scheme::Https => self.secure(stream, remote, key, carried, index).await?,
        };
        if let (Sender::Http2(sender, stream), true) = (&sender, shared) {
            let (sender, stream) = (sender.clone(), stream.clone());
            self.pool.add(key.clone(), sender, stream, remote);
        }
        Ok((sender, remote))
    }

    /// Returns the protocols to offer for an exchange, under the rule at this index.
    fn offer(&self, rule: Option<usize>, carried: UsableVersions) -> AlpnOffer {
        let protocol = rule.map(|index| self.settings.at(index).0.protocol);
        AlpnOffer::choose(protocol.unwrap_or_default(), carried)
    }

    /// Whether other exchanges can use a connection that is dialled for this exchange.
    pub(super) fn is_shared(&self, key: &PoolKey, carried: UsableVersions) -> bool {
        self.offer(self.settings.index(&key.origin), carried) != AlpnOffer::Http1
    }

    async fn secure(
        &self,
        stream: SeverableSocket,
        remote: SocketAddr,
        key: &PoolKey,
        carried: UsableVersions,
        rule: Option<usize>,
    ) -> Result<Sender, Error> {
        let offer = self.offer(rule, carried);
        let config = self
            .configurations
            .of(&self.settings, &key.identity, rule, offer)?;
        let stream = IgnoreWriteErrors::new(stream);
        let stream =
            dial::handshake(stream, &key.origin.authority.host, config, &self.settings).await?;
        match (stream.get_ref().1.alpn_protocol(), offer) {
            (Some(b"h2"), AlpnOffer::Http2 | AlpnOffer::Both) => {
                let (sender, stream) = http2_over(stream).await?;
                Ok(Sender::Http2(sender, stream))
            }
            (Some(b"http/1.1") | None, AlpnOffer::Http1 | AlpnOffer::Both) => {
                http1_over(stream, &key.origin, remote).await
            }
            _ => Err(Error::Protocol),
        }
    }
}
