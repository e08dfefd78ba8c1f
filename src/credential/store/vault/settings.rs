//! Where a Vault is, how the gateway logs in there, and how long what it reads serves.

use std::path::PathBuf;
use std::time::Duration;

use rustls::pki_types::CertificateDer;

use super::super::SecretRef;
use crate::message::Origin;

/// The settings of a Vault or OpenBao.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VaultSettings {
    /// Its servers, asked in this order. Nothing is sent to any other.
    pub servers: Vec<Origin>,
    /// The only roots that are trusted; none: those of the system.
    pub roots: Vec<CertificateDer<'static>>,
    /// The files of the roots and of the client certificate, which the workload must not change.
    pub files: Vec<PathBuf>,
    /// The namespace of every path.
    pub namespace: Option<String>,
    /// How the gateway logs in.
    pub login: VaultLogin,
    /// After so long a secret that has no lease is read again.
    pub ttl: Duration,
    /// For so much longer it serves while the store cannot be asked.
    pub max_stale: Duration,
}

/// How the gateway comes by its token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VaultLogin {
    /// It is given one.
    Token(SecretRef),
    /// By an authentication method at a mount, such as `approle`.
    Method {
        /// The mount.
        mount: String,
        /// What is sent there.
        method: LoginMethod,
    },
}

/// What is sent to an authentication method.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoginMethod {
    /// A role's id, and its secret id where the role asks for one.
    AppRole {
        /// The role's id.
        role_id: String,
        /// The role's secret id.
        secret_id: Option<SecretRef>,
    },
    /// A signed token of somebody else, for a role.
    Jwt {
        /// The role.
        role: String,
        /// The token.
        jwt: SecretRef,
    },
    /// The token of a Kubernetes service account, for a role.
    Kubernetes {
        /// The role.
        role: String,
        /// The file in which Kubernetes puts the token.
        token_file: PathBuf,
    },
    /// The client certificate of the connection.
    Certificate {
        /// The role; without one the server chooses.
        role: Option<String>,
        /// The certificate chain, leaf first.
        chain: Vec<CertificateDer<'static>>,
        /// The file of its key.
        key: PathBuf,
    },
}

impl VaultSettings {
    /// Where all that is secret of it is kept.
    pub fn references(&self) -> impl Iterator<Item = &SecretRef> {
        let kept = match &self.login {
            VaultLogin::Token(token) => Some(token),
            VaultLogin::Method { method, .. } => match method {
                LoginMethod::AppRole { secret_id, .. } => secret_id.as_ref(),
                LoginMethod::Jwt { jwt, .. } => Some(jwt),
                LoginMethod::Kubernetes { .. } | LoginMethod::Certificate { .. } => None,
            },
        };
        kept.into_iter()
    }

    /// The files in which secrets lie, beside those of references.
    pub fn secret_files(&self) -> impl Iterator<Item = &PathBuf> {
        let file = match &self.login {
            VaultLogin::Method { method, .. } => match method {
                LoginMethod::Kubernetes { token_file, .. } => Some(token_file),
                LoginMethod::Certificate { key, .. } => Some(key),
                LoginMethod::AppRole { .. } | LoginMethod::Jwt { .. } => None,
            },
            VaultLogin::Token(_) => None,
        };
        file.into_iter()
    }

    /// The client certificate and the file of its key, where there is one.
    #[must_use]
    pub fn client_certificate(&self) -> Option<(&[CertificateDer<'static>], &PathBuf)> {
        match &self.login {
            VaultLogin::Method {
                method: LoginMethod::Certificate { chain, key, .. },
                ..
            } => Some((chain, key)),
            _ => None,
        }
    }
}
