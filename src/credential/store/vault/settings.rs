//! The namespace of a Vault, and the gateway's login to it.

use std::path::PathBuf;

use rustls::pki_types::CertificateDer;

use super::super::SecretRef;

/// What a Vault or OpenBao needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VaultSettings {
    /// The namespace of every path.
    pub namespace: Option<String>,
    /// How the gateway logs in.
    pub login: VaultLogin,
}

/// How the gateway gets its token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VaultLogin {
    /// The token is configured.
    Token(SecretRef),
    /// Through an auth method at a mount, such as `approle`.
    Method {
        /// The mount.
        mount: String,
        /// The method.
        method: LoginMethod,
    },
}

/// An auth method, with the values for its login request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoginMethod {
    /// A role id, and its secret id if the role requires one.
    AppRole {
        /// The role's id.
        role_id: String,
        /// The role's secret id.
        secret_id: Option<SecretRef>,
    },
    /// Another party's signed token, for a role.
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
        /// The file into which Kubernetes writes the token.
        token_file: PathBuf,
    },
    /// The client certificate of the connection.
    Certificate {
        /// The role; without one, the server chooses.
        role: Option<String>,
        /// The certificate chain, leaf first.
        chain: Vec<CertificateDer<'static>>,
        /// The file of its private key.
        key: PathBuf,
    },
}

impl VaultSettings {
    /// Returns references to all secrets used for the login.
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

    /// Returns the files that hold secrets, other than those in references.
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

    /// Returns the client certificate and its key file, if there is one.
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
