//! Hosts: the endpoint of each of AWS's hosts.

use super::endpoint::{Endpoint, EndpointRegions, Style, is_account, is_bucket};
use super::tables::{Partition, Tables};
use gateway_message::Host;

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
        let mut is_dual = tables.partitions.iter();
        let is_dual = is_dual.any(|partition| partition.dual == suffix);
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
}

/// The domains below which AWS answers in these partitions; by default those of `aws`.
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

type KnownRegion<'a> = Option<(&'a Partition, &'static str)>;

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
        let regions = EndpointRegions::one(region);
        let found = Endpoint::listed("dynamodb", regions, "dynamodb", Style::Service);
        return Some(found.of_account(account));
    }
    let rows = Tables::get().regional(&front.join("."));
    (!rows.is_empty()).then(|| Endpoint::from_rows(rows, Some(region)))
}

/// `queue.amazonaws.com` and `REGION.queue.amazonaws.com`, where SQS still answers ("Amazon SQS
/// endpoints and quotas").
fn legacy_queue<'a>(
    front: &[&str],
    of_suffix: impl Fn(&str) -> KnownRegion<'a>,
) -> Option<Endpoint> {
    let region = match front {
        ["queue"] => of_suffix("us-east-1")?.1,
        [region, "queue"] => of_suffix(region)?.1,
        _ => return None,
    };
    let regions = EndpointRegions::one(region);
    Some(Endpoint::listed("sqs", regions, "sqs", Style::Service))
}

/// Parses the hosts of S3 from the right: region, `dualstack`, the kind, and then the part of a
/// bucket or an account.
fn s3<'a>(
    front: &[&str],
    region: KnownRegion<'a>,
    of_suffix: impl Fn(&str) -> KnownRegion<'a>,
) -> Option<Endpoint> {
    let front = match front {
        [front @ .., "dualstack"] => front,
        front => front,
    };
    let (kind, rest) = front.split_last()?;
    let Some((_, region)) = region else {
        return s3_without_region(kind, rest, of_suffix);
    };
    match kind.strip_prefix("s3express-") {
        Some(zone) if !zone.starts_with("control") => s3_express(zone, rest, region),
        _ => s3_in_region(kind, rest, region),
    }
}

/// The old hosts of S3, whose region is in their kind, in the bucket, or in none.
fn s3_without_region<'a>(
    kind: &str,
    rest: &[&str],
    of_suffix: impl Fn(&str) -> KnownRegion<'a>,
) -> Option<Endpoint> {
    let regions = match kind {
        "s3" => EndpointRegions::Any(of_suffix("us-east-1")?.0.id),
        "s3-accelerate" if !rest.is_empty() => EndpointRegions::Any(of_suffix("us-east-1")?.0.id),
        "s3-external-1" => EndpointRegions::one(of_suffix("us-east-1")?.1),
        "s3-global" => return multi_region(rest),
        dashed => {
            let region = dashed.strip_prefix("s3-fips-");
            let region = region.or(dashed.strip_prefix("s3-"))?;
            EndpointRegions::one(of_suffix(region)?.1)
        }
    };
    Some(Endpoint::listed("s3", regions, "s3", bucket_style(rest)?))
}

/// A bucket of S3 Express, whose name ends with its zone, as the host does.
fn s3_express(zone: &str, rest: &[&str], region: &'static str) -> Option<Endpoint> {
    let zone = zone.strip_prefix("fips-").unwrap_or(zone);
    let [bucket] = rest else { return None };
    let of_zone = bucket
        .strip_suffix("--x-s3")?
        .strip_suffix(zone)?
        .ends_with("--");
    let style = bucket_style(rest).filter(|_| of_zone)?;
    let regions = EndpointRegions::one(region);
    Some(Endpoint::listed("s3express", regions, "s3", style))
}

fn s3_in_region(kind: &str, rest: &[&str], region: &'static str) -> Option<Endpoint> {
    let region = EndpointRegions::one(region);
    let plain = kind.strip_suffix("-fips").unwrap_or(kind);
    let (service, apis, style) = match (plain, rest) {
        ("s3", rest) => ("s3", "s3", bucket_style(rest)?),
        ("s3express-control", rest) => ("s3express", "s3", bucket_style(rest)?),
        ("s3-control", []) => ("s3", "s3control", Style::Service),
        ("s3-control", [account]) if is_account(account) => {
            let found = Endpoint::listed("s3", region, "s3control", Style::Service);
            return Some(found.of_account(account));
        }
        ("s3-outposts", []) => ("s3-outposts", "s3control,s3outposts", Style::Service),
        ("s3-accesspoint", [point]) => return access_point("s3", region, point, rest),
        ("s3-object-lambda", [point]) => {
            return access_point("s3-object-lambda", region, point, rest);
        }
        ("s3-outposts", [point, _]) => return access_point("s3-outposts", region, point, rest),
        _ => return None,
    };
    Some(Endpoint::listed(service, region, apis, style))
}

/// `NAME-ACCOUNT` at the start of an access point's host.
fn access_point(
    service: &'static str,
    regions: EndpointRegions,
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
    let ([_, "accesspoint"] | [_, "mrap", "accesspoint"]) = labels else {
        return None;
    };
    let name = labels.join(".");
    let style = Style::AccessPoint { name };
    Some(Endpoint::listed("s3", EndpointRegions::Set, "s3", style))
}

fn bucket_style(labels: &[&str]) -> Option<Style> {
    if labels.is_empty() {
        return Some(Style::Path);
    }
    let bucket = labels.join(".");
    is_bucket(&bucket).then_some(Style::VirtualHost { bucket })
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
