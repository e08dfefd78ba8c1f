//! Endpoints: the kind of an AWS host, and the service and region to sign a request to it for.
//!
//! A client chooses the scope of its signature freely, so the gateway never believes it. The host,
//! on which every claim of the connection agreed, determines the service and the region by closed
//! tables (threat J01). Hosts under AWS's suffixes that serve customers' own code (`execute-api`,
//! function URLs, load balancers, search domains, websites) are not first-party: nothing is signed
//! for them unless the operator names them.

use std::borrow::Cow;

use super::tables::{Api, HostRow, Tables};

/// A place that accepts signed requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    signings: Vec<SigningScope>,
    apis: Apis,
    style: Style,
    /// Whether paths are signed as written although it is not an object store.
    exact: bool,
    account: Option<Box<str>>,
}

/// One service and region for which an endpoint accepts a signature.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SigningScope {
    service: Cow<'static, str>,
    regions: EndpointRegions,
}

/// The regions for which an endpoint accepts a signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EndpointRegions {
    One(Cow<'static, str>),
    /// Any of a partition: the old global hosts of S3, where the bucket determines the region.
    Any(&'static str),
    /// A set, which only SigV4a supports: multi-region access points.
    Set,
}

/// The APIs that answer at an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Apis {
    /// These, separated by commas.
    Listed(&'static str),
    /// All that sign as the service: an operator's own endpoint.
    OfService,
}

/// How a request to an endpoint names its resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Style {
    /// Not an object store.
    Service,
    /// An object store; the bucket is the first segment of the path.
    Path,
    /// An object store; the bucket is in the host, the whole path is the key.
    VirtualHost {
        /// The bucket.
        bucket: String,
    },
    /// An access point of S3, of Outposts or of Object Lambda, or a multi-region one. The whole
    /// path is the key, and the bucket behind it is unknown.
    AccessPoint {
        /// The labels of the host that name it.
        name: String,
    },
}

/// The operator's declaration of an endpoint that is not AWS's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnStyle<'a> {
    /// Not an object store.
    Service,
    /// Not an object store, but its paths are read and signed like an object store's.
    Exact,
    /// An object store with the bucket in the path.
    Path,
    /// An object store, with this bucket in the host.
    VirtualHost(&'a str),
}

/// Why a scope does not match the endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ScopeMismatch {
    /// Another service than the host's.
    #[error("the signature's scope names another service than the host")]
    Service,
    /// Another region than the host's.
    #[error("the signature's scope names another region than the host")]
    Region,
    /// A set of regions where one is required, or one where a set is.
    #[error(
        "the signature is for a set of regions where the host takes one, or the other way round"
    )]
    RegionSet,
}

impl Endpoint {
    /// An endpoint that the operator named with its service and region: MinIO, R2, a customer's own
    /// API.
    pub fn own(service: &str, region: &str, style: OwnStyle<'_>) -> Endpoint {
        Endpoint {
            signings: vec![SigningScope {
                service: Cow::Owned(service.to_owned()),
                regions: EndpointRegions::One(Cow::Owned(region.to_owned())),
            }],
            apis: Apis::OfService,
            exact: style == OwnStyle::Exact,
            style: match style {
                OwnStyle::Service | OwnStyle::Exact => Style::Service,
                OwnStyle::Path => Style::Path,
                OwnStyle::VirtualHost(bucket) => Style::VirtualHost {
                    bucket: bucket.to_owned(),
                },
            },
            account: None,
        }
    }

    /// How a request names its resource.
    pub(super) fn style(&self) -> &Style {
        &self.style
    }

    /// Whether the operator named it, so that AWS does not answer there.
    pub(super) fn is_own(&self) -> bool {
        self.apis == Apis::OfService
    }

    /// The account that the host itself names.
    pub(super) fn account(&self) -> Option<&str> {
        self.account.as_deref()
    }

    /// Whether it is an object store, whose target is signed as sent and whose keys may contain
    /// anything.
    pub fn is_object_store(&self) -> bool {
        self.style != Style::Service
    }

    /// Whether a path is literal: not resolved, and escaped once for signing.
    pub fn takes_exact_paths(&self) -> bool {
        self.exact || self.is_object_store()
    }

    /// Checks that a signature for this service and these regions is one for this endpoint.
    ///
    /// `set` means that the signature is SigV4a's, whose scope has a set of regions.
    ///
    /// # Errors
    /// [`ScopeMismatch`]: the client chose another scope than the host's.
    pub fn check(&self, service: &str, regions: &[&str], set: bool) -> Result<(), ScopeMismatch> {
        let of_service = self.signings.iter().filter(|s| s.service == service);
        let mut of_service = of_service.peekable();
        if of_service.peek().is_none() {
            return Err(ScopeMismatch::Service);
        }
        if regions.is_empty() || (!set && regions.len() > 1) {
            return Err(ScopeMismatch::RegionSet);
        }
        let mut failure = ScopeMismatch::Region;
        for signing in of_service {
            match signing.regions.check(regions, set) {
                Ok(()) => return Ok(()),
                Err(mismatch) => failure = mismatch,
            }
        }
        Err(failure)
    }

    /// The APIs that answer here, in the order in which they are searched for an operation.
    pub(super) fn apis(&self) -> Vec<&'static Api> {
        let tables = Tables::get();
        let service = self.signings.first();
        let service = service.map_or("", |signing| &*signing.service);
        let mut found: Vec<_> = match self.apis {
            Apis::Listed(ids) => ids.split(',').filter_map(|id| tables.api(id)).collect(),
            Apis::OfService => tables.apis().filter(|api| api.signing == service).collect(),
        };
        // If several have an operation of one name, the API whose name is the signing name is
        // meant.
        found.sort_by_key(|api| (api.id != service, api.id));
        found
    }

    pub(super) fn from_rows(rows: &[HostRow], region: Option<&'static str>) -> Endpoint {
        let signing = |row: &HostRow| {
            Some(SigningScope {
                service: Cow::Borrowed(row.signing),
                regions: EndpointRegions::One(Cow::Borrowed(row.region.or(region)?)),
            })
        };
        Endpoint {
            signings: rows.iter().filter_map(signing).collect(),
            apis: Apis::Listed(rows.first().map_or("", |row| row.apis)),
            style: Style::Service,
            exact: false,
            account: None,
        }
    }

    /// An endpoint of these APIs, which sign as one service.
    pub(super) fn listed(
        service: &'static str,
        regions: EndpointRegions,
        apis: &'static str,
        style: Style,
    ) -> Endpoint {
        Endpoint {
            signings: vec![SigningScope {
                service: Cow::Borrowed(service),
                regions,
            }],
            apis: Apis::Listed(apis),
            style,
            exact: false,
            account: None,
        }
    }

    pub(super) fn of_account(self, account: &str) -> Endpoint {
        Endpoint {
            account: Some(account.into()),
            ..self
        }
    }
}

impl EndpointRegions {
    pub(super) fn one(region: &'static str) -> EndpointRegions {
        EndpointRegions::One(Cow::Borrowed(region))
    }

    fn check(&self, regions: &[&str], set: bool) -> Result<(), ScopeMismatch> {
        let fits = |region: &str| match self {
            EndpointRegions::One(one) => region == one,
            EndpointRegions::Any(partition) => Tables::get()
                .partition_of(region)
                .is_some_and(|p| p.id == *partition),
            EndpointRegions::Set => region == "*" || Tables::get().partition_of(region).is_some(),
        };
        if matches!(self, EndpointRegions::Set) && !set {
            return Err(ScopeMismatch::RegionSet);
        }
        let all = regions.iter().all(|region| fits(region));
        all.then_some(()).ok_or(ScopeMismatch::Region)
    }
}

/// "General purpose bucket naming rules", plus the upper case and underscores of the oldest
/// buckets.
pub(super) fn is_bucket(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    (3..=255).contains(&name.len())
        && name.bytes().all(allowed)
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && !name.contains("..")
}

/// Twelve digits ("View AWS account identifiers").
pub(super) fn is_account(text: &str) -> bool {
    text.len() == 12 && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
#[path = "endpoint_tests.rs"]
mod tests;
