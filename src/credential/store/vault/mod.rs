//! Vault and OpenBao: secrets of the KV engine, and secrets that other engines issue with a lease.
//!
//! HashiCorp Vault, "HTTP API": `/v1/PATH`, `X-Vault-Token`, `X-Vault-Namespace`. Tokens and leases
//! are renewed while possible. Both end with the gateway.

mod api;
mod path;
mod reply;
mod settings;
mod token;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use tokio::time::Instant;

use super::http::{HttpClient, within};
use super::json::{SecretFields, bytes};
use super::leased::Held;
use super::material::{Lease, LeaseId, Material};
use super::{Backend, SecretRef, SecretSource, SecretStore, StoreError, StoreFuture};
use api::{Api, VaultRequest};
use gateway_message::Origin;
use gateway_names::SessionId;
pub use path::VaultPath;
use reply::{Mount, OwnToken, VaultReply, Versioned};
pub use settings::{LoginMethod, VaultLogin, VaultSettings};
use token::{Token, VaultTokens};

/// A Vault or OpenBao.
pub(super) struct VaultStore {
    api: Api,
    tokens: VaultTokens,
    ttl: Duration,
    max_stale: Duration,
    /// The engine at the path of each KV secret.
    known: Mutex<HashMap<Box<str>, Engine>>,
}

/// The kind of engine that is mounted at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Engine {
    /// KV version 2, with the length of its mount path.
    Versioned(usize),
    /// Any other engine; the path is read as given.
    Plain,
}

#[derive(Serialize)]
struct LeaseRequest<'l> {
    lease_id: &'l str,
    #[serde(skip_serializing_if = "Option::is_none")]
    increment: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sync: Option<bool>,
}

impl VaultStore {
    /// Creates a Vault with these servers and settings; `source` provides its login secrets.
    pub(super) fn new(
        (client, servers): (Arc<dyn HttpClient>, Vec<Origin>),
        vault: &VaultSettings,
        (ttl, max_stale): (Duration, Duration),
        source: impl Fn(&SecretRef) -> SecretSource,
    ) -> Self {
        let secret = vault.references().next().map(source);
        Self {
            api: Api::new(client, servers, vault.namespace.clone()),
            tokens: VaultTokens::new(vault.login.clone(), secret),
            ttl,
            max_stale,
            known: Mutex::default(),
        }
    }

    /// Sends a request with the gateway's token. If the server no longer accepts the token, logs in
    /// again and repeats the request.
    async fn ask<T: DeserializeOwned>(
        &self,
        question: impl Fn() -> VaultRequest<'static>,
    ) -> Result<(T, Arc<Held<Token>>), StoreError> {
        let token = self.tokens.token(&self.api).await?;
        let answer = self.ask_with(&token, question()).await;
        let Err(cause @ StoreError::Refused { status: 403, .. }) = answer else {
            return answer.map(|answer| (answer, token));
        };
        // Either the path or the token was refused.
        let own = VaultRequest::get("auth/token/lookup-self");
        match self.ask_with::<VaultReply<OwnToken>>(&token, own).await {
            Err(StoreError::Refused { status: 403, .. }) => self.tokens.reject(&token),
            _ => return Err(cause),
        }
        let token = self.tokens.token(&self.api).await?;
        let answer = self.ask_with(&token, question()).await?;
        Ok((answer, token))
    }

    async fn ask_with<T: DeserializeOwned>(
        &self,
        token: &Token,
        question: VaultRequest<'_>,
    ) -> Result<T, StoreError> {
        self.api.ask(&question.with_token(&token.text)).await
    }

    /// Reads a secret that all sessions share.
    async fn read(&self, path: &VaultPath) -> Result<Material, StoreError> {
        let engine = self.engine(path).await?;
        let read = match &engine {
            Engine::Versioned(mount) => self.read_version(path, *mount).await,
            Engine::Plain if path.version.is_some() => Err(StoreError::Unreachable(
                "its path is not in a KV engine of version 2, which alone has versions",
            )),
            Engine::Plain => self.read_plain(path).await,
        };
        if read.as_ref().is_err_and(StoreError::is_absent) {
            // Another engine may be mounted there by now.
            self.known().remove(&path.path);
        }
        read
    }

    async fn read_version(&self, path: &VaultPath, mount: usize) -> Result<Material, StoreError> {
        let (mount, name) = path.path.split_at(mount);
        let version = path.version.map(|number| format!("?version={number}"));
        let asked = format!("{mount}data/{name}{}", version.unwrap_or_default());
        let (reply, _) = self
            .ask::<VaultReply<Versioned>>(|| VaultRequest::get(asked.clone()))
            .await?;
        let data = reply.data.and_then(|version| version.data);
        Ok(material(
            data.ok_or_else(StoreError::gone)?,
            Lease::kept(self.ttl, self.max_stale),
        ))
    }

    async fn read_plain(&self, path: &VaultPath) -> Result<Material, StoreError> {
        let (reply, token) = self
            .ask::<VaultReply<SecretFields>>(|| VaultRequest::get(&*path.path))
            .await?;
        if !reply.lease_id.is_empty() {
            // Otherwise the lease would never be revoked.
            self.end_lease(&token, &reply.lease_id).await?;
            return Err(StoreError::Unreachable(
                "it issues secrets under a lease: write `vault-lease:` for `vault:`",
            ));
        }
        let fields = reply.data.ok_or(StoreError::Illegible)?;
        let ends = [reply.lease_duration, fields.ttl.unwrap_or_default()];
        let ends = ends.into_iter().filter(|seconds| *seconds > 0);
        let ttl = ends.map(Duration::from_secs).chain([self.ttl]).min();
        let lease = Lease::kept(ttl.unwrap_or(self.ttl), self.max_stale);
        Ok(material(fields, lease))
    }

    /// Issues a secret for a session, with its own lease.
    async fn issue(&self, path: &VaultPath) -> Result<Material, StoreError> {
        let (reply, token) = self
            .ask::<VaultReply<SecretFields>>(|| VaultRequest::get(&*path.path))
            .await?;
        if reply.lease_id.is_empty() {
            return Err(StoreError::Unreachable(
                "it issues no lease: write `vault:` for `vault-lease:`",
            ));
        }
        let id = LeaseId {
            text: reply.lease_id.into(),
            renewable: reply.renewable,
            login: token.login,
        };
        let Some(fields) = reply.data else {
            self.end_lease(&token, &id.text).await?;
            return Err(StoreError::Illegible);
        };
        Ok(material(fields, issued(reply.lease_duration, &token, id)))
    }

    /// Finds the engine at a path, once per path. `vault kv get` uses the same endpoint.
    async fn engine(&self, path: &VaultPath) -> Result<Engine, StoreError> {
        if let Some(known) = self.known().get(&path.path) {
            return Ok(known.clone());
        }
        let asked = format!("sys/internal/ui/mounts/{}", path.path);
        let (reply, _) = self
            .ask::<VaultReply<Mount>>(|| VaultRequest::get(asked.clone()))
            .await?;
        let engine = engine_of(path, &reply.data.ok_or(StoreError::Illegible)?)?;
        self.known().insert(path.path.clone(), engine.clone());
        Ok(engine)
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Box<str>, Engine>> {
        self.known.lock()
    }

    async fn extend(&self, lease: &Lease) -> Result<Lease, StoreError> {
        let id = lease.id.as_ref().ok_or(StoreError::NotRenewable)?;
        let token = self.tokens.token(&self.api).await?;
        // A lease ends with the token that requested it.
        if id.login != token.login {
            return Err(StoreError::NotRenewable);
        }
        let content = LeaseRequest {
            lease_id: &id.text,
            increment: Some(lease.expires_after.as_secs()),
            sync: None,
        };
        let question = VaultRequest::post("sys/leases/renew", &content);
        let reply: VaultReply<IgnoredAny> = self.ask_with(&token, question).await?;
        let granted = Duration::from_secs(reply.lease_duration);
        // Near the maximum lifetime, less and less is granted; a new lease gives more.
        if granted < lease.expires_after / 2 {
            return Err(StoreError::NotRenewable);
        }
        let id = LeaseId {
            renewable: reply.renewable,
            ..id.clone()
        };
        Ok(issued(reply.lease_duration, &token, id))
    }

    async fn end_lease(&self, token: &Token, lease_id: &str) -> Result<(), StoreError> {
        let content = LeaseRequest {
            lease_id,
            increment: None,
            // The server responds only once the secret is revoked.
            sync: Some(true),
        };
        let question = VaultRequest::post("sys/leases/revoke", &content).with_token(&token.text);
        self.api.tell(&question).await
    }
}

impl SecretStore for VaultStore {
    fn fetch<'a>(
        &'a self,
        from: &'a Backend,
        _: Option<&'a SessionId>,
    ) -> StoreFuture<'a, Material> {
        within(async move {
            let Backend::Store(place) = from else {
                return Err(StoreError::Absent);
            };
            let path = VaultPath::parse(&place.path, place.issued);
            let path = path.map_err(|_| StoreError::Place)?;
            if place.issued {
                self.issue(&path).await
            } else {
                self.read(&path).await
            }
        })
    }

    fn renew<'a>(&'a self, lease: &'a Lease) -> StoreFuture<'a, Lease> {
        within(self.extend(lease))
    }

    fn revoke<'a>(&'a self, lease: &'a Lease) -> StoreFuture<'a, ()> {
        within(async move {
            let id = lease.id.as_ref().ok_or(StoreError::Absent)?;
            let token = self.tokens.token(&self.api).await?;
            self.end_lease(&token, &id.text).await
        })
    }

    fn tend(&self) -> StoreFuture<'_, ()> {
        within(self.tokens.tend(&self.api))
    }

    fn close(&self) -> StoreFuture<'_, ()> {
        within(self.tokens.close(&self.api))
    }
}

fn engine_of(path: &VaultPath, mount: &Mount) -> Result<Engine, StoreError> {
    let version = mount.options.as_ref().and_then(|all| all.get("version"));
    if mount.kind != "kv" || version.is_none_or(|version| version != "2") {
        return Ok(Engine::Plain);
    }
    if path.path.starts_with(&mount.path) && mount.path.ends_with('/') {
        Ok(Engine::Versioned(mount.path.len()))
    } else {
        Err(StoreError::Illegible)
    }
}

/// Returns the lease of an issued secret. It ends no later than its token.
fn issued(seconds: u64, token: &Held<Token>, id: LeaseId) -> Lease {
    let left = |end: Instant| end.saturating_duration_since(Instant::now());
    let own = Duration::from_secs(seconds);
    let ends = token.ends().map_or(own, |end| own.min(left(end)));
    Lease {
        id: Some(id),
        ..Lease::of(ends)
    }
}

fn material(fields: SecretFields, lease: Lease) -> Material {
    let texts = fields.texts.into_iter();
    texts.fold(Material::new(Some(lease)), |material, (name, text)| {
        material.with(&name, bytes(&text))
    })
}
