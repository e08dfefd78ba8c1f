//! Signing credentials: secrets that are never sent, and for which requests one may be used.

use std::sync::Arc;

use crate::message::{Origin, OriginPattern};
use crate::names::CredentialName;
use crate::signature::sigv4::{Claim, Regions};

/// What a binding is for.
#[derive(Debug, Clone, Default)]
pub enum Role {
    /// Its secret is put where its phantom stands.
    #[default]
    Place,
    /// It is the first part of a signing credential, by which signed requests are known. Requests are signed with all of
    /// its parts.
    Signs(Arc<Signing>),
    /// It is another part of a signing credential, and is never lent by itself.
    Part(Arc<Signing>),
}

/// A signing credential: the way it signs, and its parts.
#[derive(Debug, Clone)]
pub struct Signing {
    /// How it signs, and what may be signed.
    pub signer: Signer,
    /// The parts beside the first: each part's name, and that of the binding that keeps it.
    pub parts: Vec<(&'static str, CredentialName)>,
}

/// A way of signing.
#[derive(Debug, Clone)]
pub enum Signer {
    /// AWS Signature Version 4 and its kin.
    SigV4(SigV4),
}

/// What a SigV4 credential may sign.
#[derive(Debug, Clone, Default)]
pub struct SigV4 {
    /// Origins that are no endpoints of AWS itself, with the service and region that they sign for.
    pub endpoints: Vec<OwnEndpoint>,
}

/// An endpoint that speaks SigV4 and is not AWS's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnEndpoint {
    /// The origins.
    pub origin: OriginPattern,
    /// The service's signing name, such as `s3`.
    pub service: String,
    /// The region, such as `us-east-1`.
    pub region: String,
}

/// Why a signed request is outside of what its credential may sign.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OutOfScope {
    /// The signature is for another service than the host's (J01).
    #[error(
        "the signature is for another service or region than the host's, which is `{service}` in `{region}`"
    )]
    Endpoint {
        /// The host's service.
        service: String,
        /// The host's region.
        region: String,
    },
}

impl OutOfScope {
    /// The reason code in refusals and audit.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Endpoint { .. } => "sigv4_scope",
        }
    }
}

impl Signing {
    /// The binding that keeps a part.
    #[must_use]
    pub fn part(&self, name: &str) -> Option<&CredentialName> {
        self.parts
            .iter()
            .find(|(part, _)| *part == name)
            .map(|(_, credential)| credential)
    }

    /// Whether the credential may be used at an origin at all.
    pub(super) fn holds(&self, origin: &Origin) -> bool {
        match &self.signer {
            Signer::SigV4(sigv4) => sigv4.endpoint(origin).is_some(),
        }
    }

    /// The service behind an origin.
    pub(super) fn service(&self, origin: &Origin) -> Option<String> {
        match &self.signer {
            Signer::SigV4(sigv4) => Some(sigv4.endpoint(origin)?.service.clone()),
        }
    }

    /// Whether the origin takes its paths as keys of objects.
    pub(super) fn keeps_paths(&self, origin: &Origin) -> bool {
        match &self.signer {
            Signer::SigV4(sigv4) => sigv4
                .endpoint(origin)
                .is_some_and(|endpoint| endpoint.service.starts_with("s3")),
        }
    }
}

impl SigV4 {
    fn endpoint(&self, origin: &Origin) -> Option<&OwnEndpoint> {
        self.endpoints
            .iter()
            .find(|endpoint| endpoint.origin.matches(origin))
    }

    /// Whether a claim is one that the credential may sign at the origin.
    ///
    /// # Errors
    /// [`OutOfScope`] by cause.
    pub(super) fn permits(&self, origin: &Origin, claim: &Claim) -> Result<(), OutOfScope> {
        let Some(endpoint) = self.endpoint(origin) else {
            return Ok(());
        };
        let region = match claim.regions() {
            Regions::One(region) => region == endpoint.region,
            Regions::Set([only]) => **only == *endpoint.region,
            Regions::Set(_) | Regions::Any => false,
        };
        if claim.service() != endpoint.service || !region {
            return Err(OutOfScope::Endpoint {
                service: endpoint.service.clone(),
                region: endpoint.region.clone(),
            });
        }
        Ok(())
    }
}

/// The names of a SigV4 credential's parts, the first of which is the access key id.
pub const SIGV4_PARTS: [&str; 3] = ["access_key", "secret_key", "session_token"];
