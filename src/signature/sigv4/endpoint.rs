//! Endpoints: what an AWS host is, and for which service and region a request to it may be signed.
//!
//! A client chooses the scope of its signature freely, so the gateway never believes it. The host,
//! on which every claim of the connection agreed, determines the service and the region by closed
//! tables (threat J01). Hosts under AWS's suffixes that serve customers' own code (`execute-api`,
//! function URLs, load balancers, search domains, websites) are not first-party: nothing is signed
//! for them unless the operator names them.

use std::borrow::Cow;

use super::tables::{Api, Partition, Row, Tables};
use gateway_message::Host;

/// A place that accepts signed requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    signings: Vec<Signing>,
    apis: Apis,
    style: Style,
    /// Whether paths are signed as written although it is not an object store.
    exact: bool,
    account: Option<Box<str>>,
}

/// One service and region for which an endpoint accepts a signature.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Signing {
    service: Cow<'static, str>,
    regions: Regions,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Regions {
    One(Cow<'static, str>),
    /// Any of a partition: the old global hosts of S3, where the bucket determines the region.
    Any(&'static str),
    /// A set, which only SigV4a supports: multi-region access points.
    Set,
}

/// Which APIs answer.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Apis {
    /// These, separated by commas.
    Listed(&'static str),
    /// All that sign as the service: an operator's own endpoint.
    OfService,
}

/// How a request to an endpoint names its resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Style {
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

/// What the operator declares about an endpoint that is not AWS's own.
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

/// Why a host is not one of AWS's own endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotFirstParty {
    /// Under none of AWS's suffixes.
    #[error("the host is not one of AWS's")]
    Elsewhere,
    /// The host names a region that is in no table.
    #[error("the host names a region that is not known here")]
    Region,
    /// A website of S3, which accepts no signature.
    #[error("the host is a website of S3, which takes no signature")]
    Website,
    /// A host under AWS's suffixes that serves customers' own code, or a service that is in no
    /// table.
    #[error(
        "the host is no endpoint of a service that AWS itself answers; name it with service and region to sign for it"
    )]
    Service,
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
    /// The endpoint of a host by AWS's own tables.
    ///
    /// Sources: botocore's partitions and endpoint rules; for S3, "Methods for accessing a bucket"
    /// and "Amazon S3 endpoints and quotas" of AWS's documentation.
    ///
    /// # Errors
    /// [`NotFirstParty`], with the reason; nothing is signed then.
    pub fn of(host: &Host) -> Result<Endpoint, NotFirstParty> {
        let tables = Tables::get();
        let exact = tables.exact(host.as_str());
        if !exact.is_empty() {
            return Ok(Endpoint::from_rows(exact, None));
        }
        let (labels, suffix) = before_suffix(host).ok_or(NotFirstParty::Elsewhere)?;
        let of_suffix = |region: &str| {
            tables
                .partition_of(region)
                .filter(|partition| partition.suffix == suffix || partition.dual == suffix)
                .and_then(|partition| {
                    Some((
                        partition,
                        *partition.regions.iter().find(|r| **r == region)?,
                    ))
                })
        };
        let is_dual = tables
            .partitions
            .iter()
            .any(|partition| partition.dual == suffix);
        let (front, region) = match labels.split_last() {
            Some((last, front)) if of_suffix(last).is_some() => (front, of_suffix(last)),
            _ => (&labels[..], None),
        };
        if let Some(found) = (!is_dual).then(|| s3(front, region, of_suffix)).flatten() {
            return Ok(found);
        }
        match region {
            Some((partition, region)) => regional(front, region, partition.suffix == suffix),
            None => legacy_queue(front, of_suffix),
        }
        .ok_or_else(|| refusal(front, region.is_some()))
    }

    /// An endpoint that the operator named with its service and region: MinIO, R2, a customer's own
    /// API.
    pub fn own(service: &str, region: &str, style: OwnStyle<'_>) -> Endpoint {
        Endpoint {
            signings: vec![Signing {
                service: Cow::Owned(service.to_owned()),
                regions: Regions::One(Cow::Owned(region.to_owned())),
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
    pub fn style(&self) -> &Style {
        &self.style
    }

    /// Whether the operator named it, so that AWS does not answer there.
    pub fn is_own(&self) -> bool {
        self.apis == Apis::OfService
    }

    /// The account that the host itself names.
    pub fn account(&self) -> Option<&str> {
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
        let mut of_service = self
            .signings
            .iter()
            .filter(|s| s.service == service)
            .peekable();
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
        let service = self
            .signings
            .first()
            .map_or("", |signing| &*signing.service);
        let mut found: Vec<_> = match self.apis {
            Apis::Listed(ids) => ids.split(',').filter_map(|id| tables.api(id)).collect(),
            Apis::OfService => tables.apis().filter(|api| api.signing == service).collect(),
        };
        // If several have an operation of one name, the API whose name is the signing name is
        // meant.
        found.sort_by_key(|api| (api.id != service, api.id));
        found
    }

    fn from_rows(rows: &[Row], region: Option<&'static str>) -> Endpoint {
        let signing = |row: &Row| {
            Some(Signing {
                service: Cow::Borrowed(row.signing),
                regions: Regions::One(Cow::Borrowed(row.region.or(region)?)),
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

    fn listed(
        service: &'static str,
        regions: Regions,
        apis: &'static str,
        style: Style,
    ) -> Endpoint {
        Endpoint {
            signings: vec![Signing {
                service: Cow::Borrowed(service),
                regions,
            }],
            apis: Apis::Listed(apis),
            style,
            exact: false,
            account: None,
        }
    }

    fn of_account(self, account: &str) -> Endpoint {
        Endpoint {
            account: Some(account.into()),
            ..self
        }
    }
}

impl Regions {
    fn check(&self, regions: &[&str], set: bool) -> Result<(), ScopeMismatch> {
        let fits = |region: &str| match self {
            Regions::One(one) => region == one,
            Regions::Any(partition) => Tables::get()
                .partition_of(region)
                .is_some_and(|p| p.id == *partition),
            Regions::Set => region == "*" || Tables::get().partition_of(region).is_some(),
        };
        if matches!(self, Regions::Set) && !set {
            return Err(ScopeMismatch::RegionSet);
        }
        let all = regions.iter().all(|region| fits(region));
        all.then_some(()).ok_or(ScopeMismatch::Region)
    }
}

/// The domains below which AWS answers in these partitions; by default those of `aws`.
#[must_use]
pub fn domains(partitions: &[String]) -> Vec<&'static str> {
    let wanted = |id: &str| match partitions {
        [] => id == "aws",
        named => named.iter().any(|name| name == id),
    };
    let partitions = Tables::get()
        .partitions
        .iter()
        .filter(|partition| wanted(partition.id));
    let mut domains: Vec<_> = partitions
        .flat_map(|partition| [partition.suffix, partition.dual])
        .collect();
    domains.sort_unstable();
    domains.dedup();
    domains
}

type Found<'a> = Option<(&'a Partition, &'static str)>;

/// The labels before the longest partition suffix, and the suffix.
fn before_suffix(host: &Host) -> Option<(Vec<&str>, &'static str)> {
    let partitions = &Tables::get().partitions;
    let suffixes = partitions.iter().flat_map(|p| [p.suffix, p.dual]);
    let longest = suffixes
        .filter(|suffix| host.domains().any(|domain| domain == *suffix))
        .max_by_key(|suffix| suffix.len())?;
    let front = host.as_str().strip_suffix(longest)?.strip_suffix('.')?;
    Some((front.split('.').collect(), longest))
}

fn regional(front: &[&str], region: &'static str, plain_suffix: bool) -> Option<Endpoint> {
    // An account's own host of DynamoDB ("Account-based endpoints" of the SDK reference guide).
    if let ([account, "ddb" | "ddb-fips"], true) = (front, plain_suffix)
        && is_account(account)
    {
        let regions = Regions::One(Cow::Borrowed(region));
        let found = Endpoint::listed("dynamodb", regions, "dynamodb", Style::Service);
        return Some(found.of_account(account));
    }
    let rows = Tables::get().regional(&front.join("."));
    (!rows.is_empty()).then(|| Endpoint::from_rows(rows, Some(region)))
}

/// `queue.amazonaws.com` and `REGION.queue.amazonaws.com`, where SQS still answers ("Amazon SQS
/// endpoints and quotas").
fn legacy_queue<'a>(front: &[&str], of_suffix: impl Fn(&str) -> Found<'a>) -> Option<Endpoint> {
    let region = match front {
        ["queue"] => of_suffix("us-east-1")?.1,
        [region, "queue"] => of_suffix(region)?.1,
        _ => return None,
    };
    let regions = Regions::One(Cow::Borrowed(region));
    Some(Endpoint::listed("sqs", regions, "sqs", Style::Service))
}

/// Parses the hosts of S3 from the right: region, `dualstack`, the kind, and then the part of a
/// bucket or an account.
fn s3<'a>(
    front: &[&str],
    region: Found<'a>,
    of_suffix: impl Fn(&str) -> Found<'a>,
) -> Option<Endpoint> {
    let front = match front {
        [front @ .., "dualstack"] => front,
        front => front,
    };
    let (kind, rest) = front.split_last()?;
    let one = |region: &'static str| Regions::One(Cow::Borrowed(region));
    let Some((_, region)) = region else {
        let regions = match *kind {
            "s3" => Regions::Any(of_suffix("us-east-1")?.0.id),
            "s3-accelerate" if !rest.is_empty() => Regions::Any(of_suffix("us-east-1")?.0.id),
            "s3-external-1" => one(of_suffix("us-east-1")?.1),
            "s3-global" => return multi_region(rest),
            dashed => one(of_suffix(
                dashed
                    .strip_prefix("s3-fips-")
                    .or(dashed.strip_prefix("s3-"))?,
            )?
            .1),
        };
        return Some(Endpoint::listed("s3", regions, "s3", bucket_style(rest)?));
    };
    if let Some(zone) = kind.strip_prefix("s3express-")
        && !zone.starts_with("control")
    {
        let zone = zone.strip_prefix("fips-").unwrap_or(zone);
        let [bucket] = rest else { return None };
        let of_zone = bucket
            .strip_suffix("--x-s3")?
            .strip_suffix(zone)?
            .ends_with("--");
        let style = bucket_style(rest).filter(|_| of_zone)?;
        return Some(Endpoint::listed("s3express", one(region), "s3", style));
    }
    let plain = kind.strip_suffix("-fips").unwrap_or(kind);
    match (plain, rest) {
        ("s3", rest) => Some(Endpoint::listed(
            "s3",
            one(region),
            "s3",
            bucket_style(rest)?,
        )),
        ("s3express-control", rest) => {
            let style = bucket_style(rest)?;
            Some(Endpoint::listed("s3express", one(region), "s3", style))
        }
        ("s3-control", []) => Some(Endpoint::listed(
            "s3",
            one(region),
            "s3control",
            Style::Service,
        )),
        ("s3-control", [account]) if is_account(account) => {
            let found = Endpoint::listed("s3", one(region), "s3control", Style::Service);
            Some(found.of_account(account))
        }
        ("s3-outposts", []) => {
            let apis = "s3control,s3outposts";
            Some(Endpoint::listed(
                "s3-outposts",
                one(region),
                apis,
                Style::Service,
            ))
        }
        ("s3-accesspoint", [point]) => access_point("s3", one(region), point, rest),
        ("s3-object-lambda", [point]) => access_point("s3-object-lambda", one(region), point, rest),
        ("s3-outposts", [point, _]) => access_point("s3-outposts", one(region), point, rest),
        _ => None,
    }
}

/// `NAME-ACCOUNT` at the start of an access point's host.
fn access_point(
    service: &'static str,
    regions: Regions,
    point: &str,
    labels: &[&str],
) -> Option<Endpoint> {
    let (name, account) = point.rsplit_once('-')?;
    if name.is_empty() || !is_account(account) {
        return None;
    }
    let name = labels.join(".");
    let found = Endpoint::listed(service, regions, "s3", Style::AccessPoint { name });
    Some(found.of_account(account))
}

/// `ALIAS.mrap.accesspoint.s3-global`: signed with SigV4a for a set of regions; the host does not
/// name its account.
fn multi_region(labels: &[&str]) -> Option<Endpoint> {
    match labels {
        [_, "accesspoint"] | [_, "mrap", "accesspoint"] => {
            let name = labels.join(".");
            let style = Style::AccessPoint { name };
            Some(Endpoint::listed("s3", Regions::Set, "s3", style))
        }
        _ => None,
    }
}

fn bucket_style(labels: &[&str]) -> Option<Style> {
    if labels.is_empty() {
        return Some(Style::Path);
    }
    let bucket = labels.join(".");
    is_bucket(&bucket).then_some(Style::VirtualHost { bucket })
}

/// "General purpose bucket naming rules", plus the upper case and underscores of the oldest
/// buckets.
pub(super) fn is_bucket(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    (3..=255).contains(&name.len())
        && name.bytes().all(allowed)
        && name
            .bytes()
            .next()
            .is_some_and(|b| b.is_ascii_alphanumeric())
        && !name.contains("..")
}

/// Twelve digits ("View AWS account identifiers").
pub(super) fn is_account(text: &str) -> bool {
    text.len() == 12 && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn refusal(front: &[&str], region_known: bool) -> NotFirstParty {
    let last = front.last().copied().unwrap_or("");
    let looks_like_region = |label: &str| {
        let (head, number) = label.rsplit_once('-').unwrap_or((label, ""));
        head.contains('-')
            && (1..=2).contains(&number.len())
            && number.bytes().all(|b| b.is_ascii_digit())
    };
    if front.iter().any(|label| label.starts_with("s3-website")) {
        NotFirstParty::Website
    } else if !region_known && looks_like_region(last) {
        NotFirstParty::Region
    } else {
        NotFirstParty::Service
    }
}

#[cfg(test)]
#[path = "endpoint_tests.rs"]
mod tests;
