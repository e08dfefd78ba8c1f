//! The settings of a store of the configuration: where it is, how long what it gives stays usable,
//! and what its kind needs.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gateway_message::Origin;
use gateway_names::SessionId;
use rustls::pki_types::CertificateDer;

use super::aws::{AwsSettings, AwsStore};
use super::bearer::BearerClient;
use super::http::{Served, within};
use super::material::{Lease, Material};
use super::op::{OpSettings, OpStore};
use super::vault::{VaultPath, VaultSettings, VaultStore};
use super::{
    Backend, HttpClient, ReferenceMalformed, SecretRef, SecretSource, SecretStore, StoreError,
    StoreFuture, azure, gcp, op,
};
use crate::login::Issuer;

/// One store of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreSettings {
    /// The name by which references select it.
    pub name: Box<str>,
    /// Its servers, in the order in which they are tried. Nothing is sent to any other server.
    pub servers: Vec<Origin>,
    /// The only trusted roots; if empty, the system's.
    pub roots: Vec<CertificateDer<'static>>,
    /// The files of the roots and the client certificate, which the workload must not change.
    pub files: Vec<PathBuf>,
    /// The time after which a secret without a lease is read again.
    pub ttl: Duration,
    /// How much longer such a secret stays usable while the store is unreachable.
    pub max_stale: Duration,
    /// What it is, and how the gateway logs in.
    pub kind: StoreKind,
}

/// The kind of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreKind {
    /// A HashiCorp Vault or OpenBao.
    Vault(VaultSettings),
    /// 1Password.
    Op(OpSettings),
    /// A service of AWS.
    Aws(AwsSettings),
    /// Google Cloud's Secret Manager, with the tokens of this issuer.
    Gcp(Issuer),
    /// Azure Key Vault, each server a vault, with the tokens of this issuer.
    Azure(Issuer),
}

/// The settings of a store, and the client that reaches its servers.
pub type ConfiguredStore = (StoreSettings, Arc<dyn HttpClient>);

impl StoreSettings {
    /// Returns every server that it or the gateway's login there may be asked at.
    pub fn all_servers(&self) -> Vec<Origin> {
        let mut servers = self.servers.clone();
        if let StoreKind::Gcp(issuer) | StoreKind::Azure(issuer) = &self.kind {
            servers.push(issuer.endpoint.origin.clone());
        }
        servers
    }

    /// Returns references to all secrets used for the login.
    pub fn references(&self) -> Vec<&SecretRef> {
        match &self.kind {
            StoreKind::Vault(vault) => vault.references().collect(),
            StoreKind::Op(OpSettings::Connect(token)) => vec![token],
            StoreKind::Op(OpSettings::Command(_)) => Vec::new(),
            StoreKind::Aws(aws) => aws.keys.iter().collect(),
            StoreKind::Gcp(issuer) | StoreKind::Azure(issuer) => issuer.references().collect(),
        }
    }

    /// Returns the files that hold secrets, other than those in references.
    pub fn secret_files(&self) -> impl Iterator<Item = &PathBuf> {
        self.vault()
            .into_iter()
            .flat_map(VaultSettings::secret_files)
    }

    /// Returns the client certificate and its key file, if there is one.
    pub fn client_certificate(&self) -> Option<(&[CertificateDer<'static>], &PathBuf)> {
        self.vault()?.client_certificate()
    }

    fn vault(&self) -> Option<&VaultSettings> {
        match &self.kind {
            StoreKind::Vault(vault) => Some(vault),
            _ => None,
        }
    }

    /// Checks that a reference names a place that such a store can have.
    ///
    /// # Errors
    /// [`ReferenceMalformed`] if it does not.
    pub fn check(&self, reference: &SecretRef) -> Result<(), ReferenceMalformed> {
        let Backend::Store(place) = &reference.backend else {
            return Ok(());
        };
        let refuse = |why, remedy| Err(ReferenceMalformed::new(why, remedy));
        let (path, has_field) = (&*place.path, reference.field.is_some());
        match &self.kind {
            StoreKind::Vault(_) if has_field => VaultPath::parse(path, place.issued).map(drop),
            StoreKind::Vault(_) => refuse(
                "a reference to a Vault names a field",
                "write for example `vault:secret/app#token`",
            ),
            _ if place.issued => refuse(
                "this store issues no secret to a session",
                "write the store's name without `-lease`",
            ),
            StoreKind::Op(_) if has_field => refuse(
                "a field of 1Password is the last part of its path",
                "write for example `op:Work/GitHub/token`",
            ),
            StoreKind::Op(_) => op::check(path),
            StoreKind::Aws(aws) => aws.check(path),
            StoreKind::Gcp(_) => gcp::check(path),
            StoreKind::Azure(_) => azure::check(&self.servers, path),
        }
    }

    /// Creates the store; `source` provides the secrets of the gateway's login.
    pub(super) fn store(
        &self,
        client: Arc<dyn HttpClient>,
        source: impl Fn(&SecretRef) -> SecretSource,
    ) -> Arc<dyn SecretStore> {
        let (ttl, servers) = ((self.ttl, self.max_stale), self.servers.clone());
        let reader = match &self.kind {
            StoreKind::Vault(vault) => {
                return Arc::new(VaultStore::new((client, servers), vault, ttl, source));
            }
            StoreKind::Op(op) => Reader::Op(OpStore::new(op, client.clone(), source)),
            StoreKind::Aws(aws) => Reader::Aws(AwsStore::new(aws, source)),
            StoreKind::Gcp(issuer) => {
                Reader::Gcp(BearerClient::issued(client.clone(), issuer, source))
            }
            StoreKind::Azure(issuer) => {
                Reader::Azure(BearerClient::issued(client.clone(), issuer, source))
            }
        };
        let lease = Lease::kept(self.ttl, self.max_stale);
        let served = Served {
            client,
            servers,
            lease,
        };
        Arc::new(ReadStore { reader, served })
    }
}

/// A store that gives secrets and nothing under a lease of its own.
struct ReadStore {
    reader: Reader,
    served: Served,
}

enum Reader {
    Op(OpStore),
    Aws(AwsStore),
    Gcp(BearerClient),
    Azure(BearerClient),
}

impl SecretStore for ReadStore {
    fn fetch<'a>(
        &'a self,
        from: &'a Backend,
        _: Option<&'a SessionId>,
    ) -> StoreFuture<'a, Material> {
        within(async move {
            let Backend::Store(place) = from else {
                return Err(StoreError::Absent);
            };
            let (served, path) = (&self.served, &*place.path);
            match &self.reader {
                Reader::Op(op) => op.read(served, path).await,
                Reader::Aws(aws) => aws.read(served, path).await,
                Reader::Gcp(client) => gcp::read(client, served, path).await,
                Reader::Azure(client) => azure::read(client, served, path).await,
            }
        })
    }
}
