//! What a SigV4 credential may sign: its endpoints, its pins, and what may go unsigned.

use std::num::NonZeroUsize;
use std::sync::Arc;

use http::{HeaderName, HeaderValue, Method};
use lru::LruCache;
use parking_lot::Mutex;

use crate::message::{HostPattern, Origin, OriginPattern, RequestHead, Scheme};
use crate::session::SignatureFault;
use crate::sigv4::{
    Action, ActionFault, ClientSignature, Endpoint, OutOfScope, OwnStyle, Reading, Regions, Scope,
    ScopeMismatch, SignedFor, domains,
};

/// For what a SigV4 credential may be used.
#[derive(Debug, Clone, Default)]
pub struct SigV4Settings {
    /// The pins.
    pub scope: Scope,
    /// The partitions that are pinned.
    pub partitions: Vec<String>,
    /// Endpoints that are not AWS's own. Where there are any, the credential is for them alone.
    pub endpoints: Vec<OwnEndpoint>,
    /// Origins of which requests may be made that are not signed.
    pub unsigned: Vec<OriginPattern>,
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

/// The settings at work.
#[derive(Debug)]
pub(super) struct Reach {
    settings: SigV4Settings,
    /// What the origins are that were asked lately; to read a host costs more than a request may.
    known: Mutex<LruCache<Origin, Option<Arc<Endpoint>>>>,
}

/// What a request asks for, and of whom.
#[derive(Debug)]
pub(super) struct Asking {
    endpoint: Arc<Endpoint>,
    reading: Reading,
}

impl OwnEndpoint {
    /// Whether it speaks as S3 does, by the name of its service.
    #[must_use]
    pub fn is_object_store(&self) -> bool {
        self.service.starts_with("s3")
    }

    fn read(&self, host: &str) -> Endpoint {
        let bucket = match &self.origin.hosts {
            HostPattern::Exact(_) => None,
            HostPattern::Below(domain) => host
                .strip_suffix(domain.as_str())
                .and_then(|bucket| bucket.strip_suffix('.')),
        };
        let style = match bucket {
            _ if !self.is_object_store() && self.exact_paths => OwnStyle::Exact,
            _ if !self.is_object_store() => OwnStyle::Service,
            Some(bucket) => OwnStyle::VirtualHost(bucket),
            None => OwnStyle::Path,
        };
        Endpoint::own(&self.service, &self.region, style)
    }
}

impl Asking {
    /// What is asked for, by the names that pins have.
    pub(super) fn names(&self) -> Vec<String> {
        self.reading.names()
    }
}

impl Reach {
    pub(super) fn new(settings: SigV4Settings) -> Self {
        Self {
            settings,
            known: Mutex::new(LruCache::new(MOST_KNOWN)),
        }
    }

    /// The origins of a credential for which `named` are written down: with those of its own
    /// endpoints, or all of AWS where there are none.
    pub(super) fn origins(&self, named: &[OriginPattern]) -> Vec<OriginPattern> {
        let own = self.settings.endpoints.iter();
        let mut origins = named.to_vec();
        origins.extend(own.map(|endpoint| endpoint.origin.clone()));
        if origins.is_empty() {
            let domains = domains(&self.settings.partitions).into_iter();
            origins.extend(domains.filter_map(|domain| format!("https://*.{domain}").parse().ok()));
        }
        origins
    }

    /// Whether it signs for buckets of the key's own account alone, at AWS: nothing says whose
    /// buckets are meant.
    pub(super) fn is_for_own_account(&self) -> bool {
        self.settings.endpoints.is_empty() && self.settings.scope.is_for_own_account()
    }

    /// To whom requests to an origin are, where it is one that the credential signs for.
    pub(super) fn endpoint(&self, origin: &Origin) -> Option<Arc<Endpoint>> {
        let mut known = self.known.lock();
        if let Some(found) = known.get(origin) {
            return found.clone();
        }
        let found = self.read(origin).map(Arc::new);
        known.put(origin.clone(), found.clone());
        found
    }

    fn read(&self, origin: &Origin) -> Option<Endpoint> {
        let mut own = self.settings.endpoints.iter();
        if let Some(endpoint) = own.find(|endpoint| endpoint.origin.matches(origin)) {
            return Some(endpoint.read(origin.authority.host.as_str()));
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
    /// [`SignatureFault`], where it is outside of the pins, for another service or region than its
    /// host's, or asked for in two ways.
    pub(super) fn permits(
        &self,
        head: &RequestHead,
        claim: &mut ClientSignature,
    ) -> Result<Asking, SignatureFault> {
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
        let asked = SignedFor {
            service: claim.service(),
            regions: &regions,
            set,
        };
        let scope = &self.settings.scope;
        scope.permits_place(&endpoint, &asked)?;
        let reading = Action::read(&endpoint, head)?;
        if let Reading::Known(action) = &reading {
            scope.permits_action(&endpoint, head, action)?;
        }
        Ok(Asking { endpoint, reading })
    }

    /// Refuses a request that no credential of the session signs, at a host for which this one
    /// signs: no pin holds for it. Where resources are pinned, that goes for every host of AWS at
    /// which nobody else's credential is used (`managed` says that), for its customers answer
    /// there.
    ///
    /// # Errors
    /// [`SignatureFault`], where it must be signed.
    pub(super) fn permits_unsigned(
        &self,
        origin: &Origin,
        managed: bool,
    ) -> Result<(), SignatureFault> {
        let SigV4Settings {
            scope,
            endpoints,
            unsigned,
            ..
        } = &self.settings;
        let named = unsigned.iter().any(|pattern| pattern.matches(origin));
        let of_customers = || endpoints.is_empty() && !managed && !scope.is_for_any_resource();
        let held = self.endpoint(origin).is_some() || of_customers();
        match held && !named {
            true => Err(OutOfScope::NotSigned.into()),
            false => Ok(()),
        }
    }

    /// Refuses a request without a signature whose answer would be a credential: that would come to
    /// the client as it is (J03).
    ///
    /// # Errors
    /// [`SignatureFault`] by cause.
    pub(super) fn permits_unsigned_answer(&self, head: &RequestHead) -> Result<(), SignatureFault> {
        let Some(endpoint) = self.endpoint(&head.origin) else {
            return Ok(());
        };
        // Without a signature a store has nothing to give but at its root, where MinIO answers as
        // STS.
        if endpoint.is_object_store() && head.method != Method::POST {
            return Ok(());
        }
        let reading = Action::read(&endpoint, head)?;
        Ok(self.settings.scope.permits_unsigned(&reading)?)
    }

    /// Whether the request's content must be looked at before it is signed.
    pub(super) fn needs_content(&self, asking: &Asking, head: &RequestHead) -> bool {
        let Asking { endpoint, reading } = asking;
        matches!(reading, Reading::Form(_))
            || self.settings.scope.needs_content(endpoint, head, reading)
    }

    /// The action of a request, which is within the pins with its content.
    ///
    /// # Errors
    /// [`SignatureFault`] by cause.
    pub(super) fn judge(
        &self,
        asking: &Asking,
        head: &RequestHead,
        content: &[u8],
    ) -> Result<Action, SignatureFault> {
        let (scope, endpoint) = (&self.settings.scope, &asking.endpoint);
        let action = match &asking.reading {
            Reading::Known(action) => action.clone(),
            Reading::Form(form) => {
                let action = form.clone().finish(content)?;
                scope.permits_action(endpoint, head, &action)?;
                action
            }
        };
        scope.permits_content(endpoint, head, &action, content)?;
        Ok(action)
    }

    /// The fields by which the service itself is told the pins.
    ///
    /// # Errors
    /// [`SignatureFault`], where the key's account is not known and must be.
    pub(super) fn additions(
        &self,
        asking: &Asking,
        action: &Action,
        account: Option<&str>,
    ) -> Result<Vec<(HeaderName, HeaderValue)>, SignatureFault> {
        let scope = &self.settings.scope;
        Ok(scope.additions(&asking.endpoint, action, account)?)
    }
}

impl From<OutOfScope> for SignatureFault {
    fn from(why: OutOfScope) -> Self {
        Self::new(why.reason(), &why)
    }
}

impl From<ActionFault> for SignatureFault {
    fn from(why: ActionFault) -> Self {
        Self::new(why.reason(), &why)
    }
}

/// Buckets in hosts make many origins.
const MOST_KNOWN: NonZeroUsize = NonZeroUsize::new(256).expect("256 is not zero");
