//! Signing credentials: secrets that are never sent, and for which requests one may be used.

use std::num::NonZeroUsize;
use std::sync::Arc;

use http::Method;
use lru::LruCache;
use parking_lot::Mutex;

use crate::message::{EncodedSlash, HostPattern, Origin, OriginPattern, RequestHead, Scheme};
use crate::names::{CredentialName, ReasonCode};
use crate::session::phantom::Minted;
use crate::signature::recipe::Recipe;
use crate::signature::sigv4::{
    Action, ActionFault, Asked, Claim, Endpoint, OutOfScope, OwnStyle, Reading, Regions, Scope,
    ScopeMismatch,
};

/// What a binding is for.
#[derive(Debug, Clone, Default)]
pub enum Role {
    /// Its secret is put where its phantom stands.
    #[default]
    Place,
    /// It is the first part of a signing credential, by which signed requests are known. Requests
    /// are signed with all of its parts.
    Signs(Arc<Signing>),
    /// It is another part of a signing credential, and is never lent by itself.
    Part(Arc<Signing>),
}

/// A signing credential: the way it signs, and its parts.
#[derive(Debug)]
pub struct Signing {
    /// How it signs, and what may be signed.
    pub signer: Signer,
    /// The parts beside the first.
    pub parts: Vec<SigningPart>,
}

/// A part of a signing credential beside its first.
#[derive(Debug, Clone)]
pub struct SigningPart {
    /// What it is to the way of signing.
    pub name: String,
    /// The binding that keeps it.
    pub credential: CredentialName,
    /// Whether the credential may be without it, as a session token.
    pub optional: bool,
}

/// A way of signing.
#[derive(Debug)]
pub enum Signer {
    /// AWS Signature Version 4 and its kin.
    SigV4(Box<SigV4>),
    /// As a recipe says.
    Recipe(Arc<Recipe>),
}

/// What a SigV4 credential may sign.
#[derive(Debug)]
pub struct SigV4 {
    scope: Scope,
    endpoints: Vec<OwnEndpoint>,
    /// Origins of which requests may be made that are not signed.
    unsigned: Vec<OriginPattern>,
    /// What the origins are that were asked lately; to read a host costs more than a request may.
    known: Mutex<LruCache<Origin, Option<Arc<Endpoint>>>>,
}

/// An endpoint that speaks SigV4 and is not AWS's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnEndpoint {
    /// The origins. Of an object store, the names below a domain are its buckets.
    pub origin: OriginPattern,
    /// The service's signing name, such as `s3`.
    pub service: String,
    /// The region, such as `us-east-1`.
    pub region: String,
    /// Whether its paths are taken and signed as those of an object store are.
    pub exact_paths: bool,
}

impl OwnEndpoint {
    /// Whether it speaks as S3 does, by the name of its service.
    #[must_use]
    pub fn is_object_store(&self) -> bool {
        self.service.starts_with("s3")
    }
}

/// A signed request to an endpoint, whose place is within the credential's pins.
#[derive(Debug)]
pub struct SigV4Request {
    /// The client's signature.
    pub claim: Claim,
    /// To whom it is.
    pub endpoint: Arc<Endpoint>,
    /// What it asks for, which may stand in its content.
    pub reading: Reading,
    /// The temporary credentials that it is signed with, if it is not signed with the credential
    /// itself.
    pub minted: Option<Arc<Minted>>,
}

/// Why a signed request is outside of what its credential may sign.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unsignable {
    /// It is outside of the pins, or for another service or region than its host's.
    #[error(transparent)]
    Scope(#[from] OutOfScope),
    /// It asks for something in two ways.
    #[error(transparent)]
    Action(#[from] ActionFault),
}

impl Unsignable {
    /// The reason code in refusals and audit.
    #[must_use]
    pub fn reason(&self) -> ReasonCode {
        match self {
            Self::Scope(why) => why.reason(),
            Self::Action(why) => why.reason(),
        }
    }
}

impl Signing {
    /// The binding that keeps a part.
    #[must_use]
    pub fn part(&self, name: &str) -> Option<&CredentialName> {
        self.parts
            .iter()
            .find(|part| part.name == name)
            .map(|part| &part.credential)
    }

    /// Whether the credential may be used at an origin at all.
    pub(super) fn holds(&self, origin: &Origin) -> bool {
        match &self.signer {
            Signer::SigV4(sigv4) => sigv4.endpoint(origin).is_some(),
            Signer::Recipe(_) => true,
        }
    }

    /// How the path of a request that is signed in the manner of AWS is read; `None` where this
    /// does not sign so.
    pub(super) fn paths(&self, origin: &Origin) -> Option<EncodedSlash> {
        match &self.signer {
            Signer::SigV4(sigv4) => Some(match sigv4.endpoint(origin)?.takes_exact_paths() {
                true => EncodedSlash::Key,
                // ARNs in paths have their slashes encoded.
                false => EncodedSlash::Keep,
            }),
            Signer::Recipe(_) => None,
        }
    }
}

impl SigV4 {
    /// A credential for AWS's own endpoints or the ones that are named, within pins; `unsigned` are
    /// the origins of which requests without a signature may be made, too.
    #[must_use]
    pub fn new(scope: Scope, endpoints: Vec<OwnEndpoint>, unsigned: Vec<OriginPattern>) -> Self {
        Self {
            scope,
            endpoints,
            unsigned,
            known: Mutex::new(LruCache::new(MOST_KNOWN)),
        }
    }

    /// Its pins.
    #[must_use]
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Whether it signs for buckets of the key's own account alone, at AWS: nothing says whose
    /// buckets are meant.
    #[must_use]
    pub fn is_for_own_account(&self) -> bool {
        self.endpoints.is_empty() && self.scope.is_for_own_account()
    }

    fn endpoint(&self, origin: &Origin) -> Option<Arc<Endpoint>> {
        let mut known = self.known.lock();
        if let Some(found) = known.get(origin) {
            return found.clone();
        }
        let found = self.read(origin).map(Arc::new);
        known.put(origin.clone(), found.clone());
        found
    }

    fn read(&self, origin: &Origin) -> Option<Endpoint> {
        let own = |endpoint: &&OwnEndpoint| endpoint.origin.matches(origin);
        if let Some(endpoint) = self.endpoints.iter().find(own) {
            let host = origin.authority.host.as_str();
            let bucket = match &endpoint.origin.hosts {
                HostPattern::Exact(_) => None,
                HostPattern::Below(domain) => host
                    .strip_suffix(domain.as_str())
                    .and_then(|bucket| bucket.strip_suffix('.')),
            };
            let style = match bucket {
                _ if !endpoint.is_object_store() && endpoint.exact_paths => OwnStyle::Exact,
                _ if !endpoint.is_object_store() => OwnStyle::Service,
                Some(bucket) => OwnStyle::VirtualHost(bucket),
                None => OwnStyle::Path,
            };
            return Some(Endpoint::own(&endpoint.service, &endpoint.region, style));
        }
        // AWS answers over TLS on the usual port alone.
        let usual =
            origin.scheme == Scheme::Https && origin.authority.port == Scheme::Https.default_port();
        usual
            .then(|| Endpoint::of(&origin.authority.host).ok())
            .flatten()
    }

    /// Reads what a claim asks for, if that is within the pins as far as the head tells.
    ///
    /// # Errors
    /// [`Unsignable`] by cause.
    pub(super) fn permits(
        &self,
        head: &RequestHead,
        mut claim: Claim,
        minted: Option<Arc<Minted>>,
    ) -> Result<SigV4Request, Unsignable> {
        let endpoint = self
            .endpoint(&head.origin)
            .ok_or(OutOfScope::Scope(ScopeMismatch::Service))?;
        if endpoint.takes_exact_paths() {
            claim.take_path_exactly();
        }
        let (regions, set): (Vec<&str>, bool) = match claim.regions() {
            Regions::One(region) => (vec![region], false),
            Regions::Set(set) => (set.iter().map(|region| &**region).collect(), true),
            Regions::Any => (vec!["*"], true),
        };
        let asked = Asked {
            service: claim.service(),
            regions: &regions,
            set,
        };
        self.scope.permits_place(&endpoint, &asked)?;
        let reading = Action::read(&endpoint, head)?;
        if let Reading::Known(action) = &reading {
            self.scope.permits_action(&endpoint, head, action)?;
        }
        Ok(SigV4Request {
            claim,
            endpoint,
            reading,
            minted,
        })
    }

    /// Refuses a request that no credential of the session signs, at a host for which this one
    /// signs: no pin holds for it. Where resources are pinned, that goes for every host of AWS at
    /// which nobody else's credential is used (`managed` says that), for its customers answer
    /// there.
    ///
    /// # Errors
    /// [`OutOfScope::NotSigned`].
    pub(super) fn permits_unsigned_by_any(
        &self,
        origin: &Origin,
        managed: bool,
    ) -> Result<(), Unsignable> {
        let named = self.unsigned.iter().any(|pattern| pattern.matches(origin));
        let of_customers =
            || self.endpoints.is_empty() && !managed && !self.scope.is_for_any_resource();
        let held = self.endpoint(origin).is_some() || of_customers();
        match held && !named {
            true => Err(OutOfScope::NotSigned.into()),
            false => Ok(()),
        }
    }

    /// Refuses a request without a signature whose answer would be a credential.
    ///
    /// # Errors
    /// [`Unsignable`] by cause.
    pub(super) fn permits_unsigned(&self, head: &RequestHead) -> Result<(), Unsignable> {
        let Some(endpoint) = self.endpoint(&head.origin) else {
            return Ok(());
        };
        // Without a signature a store has nothing to give but at its root, where MinIO answers as
        // STS.
        if endpoint.is_object_store() && head.method != Method::POST {
            return Ok(());
        }
        let reading = Action::read(&endpoint, head)?;
        Ok(self.scope.permits_unsigned(&reading)?)
    }

    /// Whether the request's content must be looked at before it is signed.
    #[must_use]
    pub fn needs_content(&self, request: &SigV4Request, head: &RequestHead) -> bool {
        matches!(request.reading, Reading::Form(_))
            || self
                .scope
                .needs_content(&request.endpoint, head, &request.reading)
    }

    /// The action of a request, which is within the pins with its content.
    ///
    /// # Errors
    /// [`Unsignable`] by cause.
    pub fn judge(
        &self,
        request: &SigV4Request,
        head: &RequestHead,
        content: &[u8],
    ) -> Result<Action, Unsignable> {
        let action = match &request.reading {
            Reading::Known(action) => action.clone(),
            Reading::Form(form) => {
                let action = form.clone().finish(content)?;
                self.scope
                    .permits_action(&request.endpoint, head, &action)?;
                action
            }
        };
        self.scope
            .permits_content(&request.endpoint, head, &action, content)?;
        Ok(action)
    }
}

/// The names of a SigV4 credential's parts, the first of which is the access key id.
pub const SIGV4_PARTS: [&str; 3] = ["access_key", "secret_key", "session_token"];
/// Buckets in hosts make many origins.
const MOST_KNOWN: NonZeroUsize = NonZeroUsize::new(256).expect("256 is not zero");
