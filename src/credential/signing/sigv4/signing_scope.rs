//! The scope of a SigV4 credential: its endpoints, its pins, and the requests that may be unsigned.

use std::num::NonZeroUsize;
use std::sync::Arc;

use gateway_message::{HostPattern, Origin, OriginPattern, RequestHead, Scheme};
use gateway_session::SignatureFault;
use gateway_sigv4::{
    Action, ClientSignature, Endpoint, Lookup, OutOfScope, OwnStyle, Regions, Scope, ScopeMismatch,
    SignedFor, domains,
};
use http::{HeaderName, HeaderValue, Method};
use lru::LruCache;
use parking_lot::Mutex;

/// What a SigV4 credential may be used for.
#[derive(Debug, Clone, Default)]
pub struct SigV4Settings {
    /// The pins.
    pub scope: Scope,
    /// The pinned partitions.
    pub partitions: Vec<String>,
    /// Endpoints that are not AWS's own. If there are any, the credential is used only for them.
    pub endpoints: Vec<OwnEndpoint>,
    /// Origins to which requests may be sent unsigned.
    pub unsigned: Vec<OriginPattern>,
}

/// An endpoint that uses SigV4 and is not AWS's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnEndpoint {
    /// The origins. For an object store, the names below a domain are its buckets.
    pub origin: OriginPattern,
    /// The service's signing name, such as `s3`.
    pub service: String,
    /// The region, such as `us-east-1`.
    pub region: String,
    /// Whether its paths are signed exactly as sent, as with an object store.
    pub exact_paths: bool,
}

/// The settings, with a cache of endpoints.
#[derive(Debug)]
pub(super) struct SigningScope {
    settings: SigV4Settings,
    /// Endpoints of recent origins, cached because parsing a host costs more than a request may.
    known: Mutex<LruCache<Origin, Option<Arc<Endpoint>>>>,
}

/// The actions that a request asks for, and the endpoint.
#[derive(Debug)]
pub(super) struct Asking {
    endpoint: Arc<Endpoint>,
    reading: Lookup,
}

impl OwnEndpoint {
    /// Whether the endpoint is compatible with S3, judging by its service name.
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
    /// Returns the requested actions, named as in pins.
    pub(super) fn names(&self) -> Vec<String> {
        self.reading.names()
    }
}

impl SigningScope {
    pub(super) fn new(settings: SigV4Settings) -> Self {
        Self {
            settings,
            known: Mutex::new(LruCache::new(MOST_KNOWN)),
        }
    }

    /// Returns the origins of a credential: `named`, and those of its own endpoints. If there are
    /// none, all of AWS.
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

    /// Whether it signs only for buckets of the key's own account at AWS, because the settings do
    /// not name any buckets.
    pub(super) fn is_for_own_account(&self) -> bool {
        self.settings.endpoints.is_empty() && self.settings.scope.is_for_own_account()
    }

    /// Returns the endpoint at an origin, if the credential signs for it.
    pub(super) fn endpoint(&self, origin: &Origin) -> Option<Arc<Endpoint>> {
        let mut known = self.known.lock();
        let read = || self.read(origin).map(Arc::new);
        known.get_or_insert_ref(origin, read).clone()
    }

    fn read(&self, origin: &Origin) -> Option<Endpoint> {
        let mut own = self.settings.endpoints.iter();
        if let Some(endpoint) = own.find(|endpoint| endpoint.origin.matches(origin)) {
            return Some(endpoint.read(origin.authority.host.as_str()));
        }
        // AWS answers only over TLS on the default port.
        let usual =
            origin.scheme == Scheme::Https && origin.authority.port == Scheme::Https.default_port();
        usual
            .then(|| Endpoint::of(&origin.authority.host).ok())
            .flatten()
    }

    /// Reads the actions that a claim requests, and checks that the head is within the pins.
    ///
    /// # Errors
    /// [`SignatureFault`] if the request is outside the pins, for another service or region than
    /// its host's, or ambiguous.
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
        if let Lookup::Known(action) = &reading {
            scope.permits_action(&endpoint, head, action)?;
        }
        Ok(Asking { endpoint, reading })
    }

    /// Refuses an unsigned request to a host for which this credential signs, because no pin would
    /// apply to it.
    ///
    /// If resources are pinned, this covers every AWS host that no other credential manages (see
    /// `managed`), because AWS's customers operate servers there.
    ///
    /// # Errors
    /// [`SignatureFault`] if the request must be signed.
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
        if held && !named {
            Err(OutOfScope::NotSigned.into())
        } else {
            Ok(())
        }
    }

    /// Refuses an unsigned request whose response would be a credential, which would reach the
    /// client unchanged (J03).
    ///
    /// # Errors
    /// [`SignatureFault`] by cause.
    pub(super) fn permits_unsigned_answer(&self, head: &RequestHead) -> Result<(), SignatureFault> {
        let Some(endpoint) = self.endpoint(&head.origin) else {
            return Ok(());
        };
        // Without a signature, an object store issues credentials only at its root, where MinIO
        // answers as STS.
        if endpoint.is_object_store() && head.method != Method::POST {
            return Ok(());
        }
        let reading = Action::read(&endpoint, head)?;
        Ok(self.settings.scope.permits_unsigned(&reading)?)
    }

    /// Whether the request's content must be read before signing.
    pub(super) fn needs_content(&self, asking: &Asking, head: &RequestHead) -> bool {
        let Asking { endpoint, reading } = asking;
        matches!(reading, Lookup::Form(_))
            || self.settings.scope.needs_content(endpoint, head, reading)
    }

    /// Returns the action of a request after checking it and its content against the pins.
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
            Lookup::Known(action) => action.clone(),
            Lookup::Form(form) => {
                let action = form.clone().finish(content)?;
                scope.permits_action(endpoint, head, &action)?;
                action
            }
        };
        scope.permits_content(endpoint, head, &action, content)?;
        Ok(action)
    }

    /// Returns the fields that state the pins to the service itself.
    ///
    /// # Errors
    /// [`SignatureFault`] if the key's account is required but unknown.
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

/// Large, because each bucket in a host name makes another origin.
const MOST_KNOWN: NonZeroUsize = NonZeroUsize::new(256).expect("256 is not zero");
