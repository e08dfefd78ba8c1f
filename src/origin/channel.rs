//! From an authorized exchange to the origin's response: opens a channel, and forwards on it.

use std::net::SocketAddr;
use std::sync::Arc;

use http::{Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;

use super::Error;
use super::dialer::Dialer;
use super::origin_body::{OriginBody, Return};
use super::pool::{Pool, PoolKey, StreamSlot};
use super::request::written;
use super::resolve::{Resolve, ResolverUnusable, StubResolver};
use super::rule::OriginSettings;
use super::sender::Sender;
use super::tls::Configurations;
use super::vet::vet;
use crate::credential::{AnswerPlan, Credentialed, Revocation, Verified};
use crate::message::{Authority, Origin, Scheme};

/// The origin side of one runtime thread, with the settings of one generation.
pub struct Origins(Arc<Dialer>);

/// A connection to exactly the authorized origin, for exactly one identity.
pub struct Channel {
    key: PoolKey,
    sender: Sender,
    dialer: Arc<Dialer>,
    remote: SocketAddr,
    reused: bool,
}

/// The origin's response.
pub struct Forwarded {
    response: Response<OriginBody>,
    upgrade: Option<OnUpgrade>,
    plan: AnswerPlan,
}

impl Forwarded {
    /// Returns the response, the upgraded connection (after a 101), and how to handle the response.
    #[must_use]
    pub fn into_parts(self) -> (Response<OriginBody>, Option<OnUpgrade>, AnswerPlan) {
        (self.response, self.upgrade, self.plan)
    }
}

impl Origins {
    /// The origin side with these settings and the stub resolver.
    ///
    /// # Errors
    /// [`ResolverUnusable`] if the system's resolver configuration cannot be read.
    pub fn new(settings: Arc<OriginSettings>) -> Result<Self, ResolverUnusable> {
        let resolver = Arc::new(StubResolver::new(&settings.resolver)?);
        Ok(Self::with_resolver(settings, resolver))
    }

    /// The origin side with other settings. What the resolver knows is kept, unless its own
    /// settings differ.
    ///
    /// # Errors
    /// As [`Origins::new`].
    pub fn with_settings(&self, settings: Arc<OriginSettings>) -> Result<Self, ResolverUnusable> {
        if settings.resolver != self.0.settings.resolver {
            return Self::new(settings);
        }
        Ok(Self::with_resolver(settings, self.0.resolver.clone()))
    }

    /// Whether it has these settings.
    #[must_use]
    pub fn has(&self, settings: &Arc<OriginSettings>) -> bool {
        Arc::ptr_eq(&self.0.settings, settings)
    }

    fn with_resolver(settings: Arc<OriginSettings>, resolver: Arc<dyn Resolve>) -> Self {
        let pool = Pool::new(settings.idle_connections, settings.idle_timeout);
        Self(Arc::new(Dialer {
            settings,
            resolver,
            configurations: Configurations::new(),
            pool,
        }))
    }

    /// Drops connections that were idle for too long, and those of earlier generations.
    pub fn sweep(&self, generation: u64) {
        self.0.pool.sweep(generation);
    }

    /// Opens a channel for an authorized and verified exchange: a pooled one, or a new one to a
    /// vetted address.
    ///
    /// An http origin is reached only if the operator's rule for it says so. No name is resolved
    /// and no packet is sent before this. Cancelling it closes what it opened.
    ///
    /// # Errors
    /// [`Error`] by cause. Nothing of the exchange was sent then.
    pub async fn open(&self, verified: &Verified) -> Result<Channel, Error> {
        let key = PoolKey {
            identity: verified.identity().clone(),
            origin: verified.head().origin.clone(),
            generation: verified.generation(),
            needs_http2: verified.head().needs_http2(),
        };
        if key.origin.scheme == Scheme::Http {
            self.may_be_clear(&key.origin)?;
        }
        self.channel(key, verified.revocations()).await
    }

    /// Refuses an http origin that the operator's rules do not name. If it is a prohibited address,
    /// the refusal says that.
    fn may_be_clear(&self, origin: &Origin) -> Result<(), Error> {
        let rule = self.0.settings.rule(origin);
        if rule.is_some_and(|rule| rule.cleartext) {
            return Ok(());
        }
        let exceptions = rule.map_or(&[][..], |rule| &rule.addresses);
        let Authority { host, port } = &origin.authority;
        if let Some(address) = host.ip() {
            vet(address, *port, exceptions).map_err(Error::Prohibited)?;
        }
        Err(Error::ClearText)
    }

    async fn channel(
        &self,
        key: PoolKey,
        revocations: &[Arc<Revocation>],
    ) -> Result<Channel, Error> {
        let dialer = &self.0;
        while let Some(mut idle) = dialer.pool.take(&key) {
            if idle.sender.ready().await.is_ok() {
                return Ok(Channel {
                    key,
                    sender: Sender::Http1(idle.sender, idle.host),
                    dialer: self.0.clone(),
                    remote: idle.remote,
                    reused: true,
                });
            }
        }
        if let Some((sender, stream, remote)) = dialer.pool.share(&key) {
            return Ok(Channel {
                key,
                sender: Sender::Http2(sender, stream),
                dialer: self.0.clone(),
                remote,
                reused: true,
            });
        }
        // Rare and large: boxed, so that the usual exchange does not reserve memory for a
        // handshake.
        let (sender, remote) = Box::pin(dialer.dial(&key, revocations)).await?;
        Ok(Channel {
            key,
            sender,
            dialer: self.0.clone(),
            remote,
            reused: false,
        })
    }
}

impl Channel {
    /// The address that was dialled.
    #[must_use]
    pub fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// The HTTP version spoken on the channel.
    #[must_use]
    pub fn version(&self) -> Version {
        self.sender.version()
    }

    /// Sends the credentialed request, and returns the origin's response once its head has arrived.
    ///
    /// A pooled connection that the origin had already closed is replaced once, if no byte of the
    /// request had been written to it. Dropping the future resets the exchange on the origin's
    /// side.
    ///
    /// # Errors
    /// [`Error::WrongChannel`] if the channel was opened for another exchange; otherwise by cause.
    pub async fn forward(self, credentialed: Credentialed) -> Result<Forwarded, Error> {
        if *credentialed.origin() != self.key.origin
            || *credentialed.identity() != self.key.identity
        {
            return Err(Error::WrongChannel);
        }
        let Self {
            key,
            mut sender,
            dialer,
            mut remote,
            mut reused,
        } = self;
        let (request, plan, revocations) = credentialed.into_parts();
        let (content, meter) = (request.content, request.meter);
        let had_content = !content.is_empty();
        let upgrade = plan.upgrade.is_some();
        let mut request = written(request.head, content, upgrade, sender.host())?;
        loop {
            let sent = match &mut sender {
                Sender::Http1(sender, _) => sender.try_send_request(request).await,
                Sender::Http2(sender, _) => sender.try_send_request(request).await,
            };
            match sent {
                Ok(response) => {
                    let (back, stream) = match sender {
                        Sender::Http1(sender, host) => {
                            let back = Return {
                                sender,
                                host,
                                remote,
                                key,
                                dialer,
                                meter,
                                had_content,
                            };
                            (Some(back), None)
                        }
                        Sender::Http2(_, stream) => (None, Some(stream)),
                    };
                    return answered(response, back, stream, plan);
                }
                Err(mut failed) => {
                    let unsent = failed.take_message();
                    match unsent {
                        Some(unsent) if reused => {
                            (sender, remote) = Box::pin(dialer.dial(&key, &revocations)).await?;
                            if unsent.version() != sender.version() {
                                return Err(Error::Protocol);
                            }
                            request = unsent;
                            reused = false;
                        }
                        _ => return Err(Error::Http(failed.into_error())),
                    }
                }
            }
        }
    }
}

fn answered(
    mut response: Response<Incoming>,
    back: Option<Return>,
    stream: Option<StreamSlot>,
    plan: AnswerPlan,
) -> Result<Forwarded, Error> {
    let switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    if switched && plan.upgrade.is_none() {
        return Err(Error::BadUpgrade);
    }
    let on_upgrade = switched.then(|| hyper::upgrade::on(&mut response));
    // An upgraded connection never returns to the pool.
    let back = if switched { None } else { back };
    Ok(Forwarded {
        response: response.map(|inner| OriginBody::new(inner, back, stream)),
        upgrade: on_upgrade,
        plan,
    })
}
