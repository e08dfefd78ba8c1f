//! Operations of S3, which are distinguished by method, path, sub-resource and the source of a
//! copy.
//!
//! Sources: "Actions" of the Amazon S3 API Reference, and botocore's model of it. A key is the
//! path, decoded once: S3 neither resolves dot segments nor joins slashes.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::LazyLock;

use http::Method;
use percent_encoding::percent_decode_str;

use super::super::endpoint::{Endpoint, Style, is_bucket};
use super::super::tables::{Api, Operation, Tables, is_listed};
use super::fields;
use super::operation::{Action, ActionFault, one, only};
use super::s3_call::{CopySource, Level, S3Call};
use gateway_message::RequestHead;

/// Reads the action of a request to an object store.
pub(super) fn read(endpoint: &Endpoint, head: &RequestHead) -> Result<Action, ActionFault> {
    let path = head.target.path();
    let (bucket, raw_key) = place(endpoint, path)?;
    let names = Names::read(head);
    let mut call = S3Call {
        key: raw_key.map(decoded).transpose()?,
        key_has_plus: raw_key.is_some_and(|key| key.contains('+')),
        source: source(head, &names)?,
        prefix: names.one("prefix")?,
        owner: owner(head, &names, OWNER)?,
        source_owner: owner(head, &names, SOURCE_OWNER)?,
        bucket,
        takes_owner: false,
        strange: names.selectors()?.1,
    };
    let level = match (&call.bucket, endpoint.style()) {
        _ if call.key.is_some() => Level::Object,
        (None, Style::Path) => Level::Service,
        _ => Level::Bucket,
    };
    let found = operation(level, &head.method, &names, call.source.is_some())?;
    let first = match endpoint.style() {
        Style::Path => call.bucket.as_deref(),
        _ => call.key.as_deref().and_then(|key| key.split('/').next()),
    };
    let foreign = is_foreign(endpoint, level, head, first);
    let found = found.filter(|_| !foreign);
    let beside_minting = foreign || found.is_none() && may_mint(endpoint, head, &names, first);
    call.takes_owner =
        found.is_some_and(|found| found.route.as_ref().is_some_and(|route| route.takes_owner));
    let parameters = names.0.iter().map(|(name, _)| name);
    Ok(Action {
        operation: found.map(|found| found.name),
        beside_minting,
        implied: fields::implied(head, parameters, (level, call.source.as_ref())),
        s3: Some(Box::new(call)),
        ..Action::unknown(&["s3"])
    })
}

/// Whether a request is not one of S3's: MinIO answers STS at the root, and its own administration
/// below this name on every host.
fn is_foreign(endpoint: &Endpoint, level: Level, head: &RequestHead, first: Option<&str>) -> bool {
    level == Level::Service && head.method == Method::POST
        || endpoint.is_own() && first == Some("minio")
}

/// Whether an operation in no table may return credentials. S3 ignores parameters that it does not
/// know, so `session` with one of them still creates a session. Among other stores, MinIO accepts a
/// form for STS at every path, and Ceph's gateway returns the keys of its users below `admin`.
fn may_mint(
    endpoint: &Endpoint,
    head: &RequestHead,
    names: &Names<'_>,
    first: Option<&str>,
) -> bool {
    let of_others = || head.method == Method::POST || first == Some("admin");
    names.has_folded("session") || endpoint.is_own() && of_others()
}

/// Bucket and raw key.
fn place<'a>(
    endpoint: &Endpoint,
    path: &'a str,
) -> Result<(Option<String>, Option<&'a str>), ActionFault> {
    let inner = path.strip_prefix('/').unwrap_or(path);
    let some = |text: &'a str| (!text.is_empty()).then_some(text);
    if *endpoint.style() != Style::Path {
        let bucket = match endpoint.style() {
            Style::VirtualHost { bucket } => Some(bucket.clone()),
            _ => None,
        };
        return Ok((bucket, some(inner)));
    }
    if inner.is_empty() {
        return Ok((None, None));
    }
    let (bucket, key) = inner.split_once('/').unwrap_or((inner, ""));
    if !is_bucket(bucket) {
        return Err(ActionFault::Bucket);
    }
    Ok((Some(bucket.to_owned()), some(key)))
}

/// The query of a request to S3, by name.
struct Names<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Names<'a> {
    fn read(head: &'a RequestHead) -> Names<'a> {
        Names(head.target.query_pairs().collect())
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| known == name)
    }

    /// Whether there is a parameter with this name, in any case.
    fn has_folded(&self, name: &str) -> bool {
        self.0
            .iter()
            .any(|(known, _)| known.eq_ignore_ascii_case(name))
    }

    /// The value of a parameter that may appear once, in any case.
    fn one(&self, name: &str) -> Result<Option<String>, ActionFault> {
        let named = self.0.iter();
        let named = named.filter(|(known, _)| known.eq_ignore_ascii_case(name));
        Ok(only(named)?.map(|(_, value)| value.to_string()))
    }

    /// The sub-resources that choose the operation, each at most once, and whether there is an
    /// unknown parameter.
    fn selectors(&self) -> Result<(Vec<&str>, bool), ActionFault> {
        let mut found = Vec::new();
        let mut strange = false;
        for (name, _) in &self.0 {
            let name = &**name;
            if is_selector(name) {
                if found.contains(&name) {
                    return Err(ActionFault::Ambiguous);
                }
                found.push(name);
            } else {
                strange |= !is_parameter(name);
            }
        }
        found.sort_unstable();
        Ok((found, strange))
    }
}

/// The operation, by the table.
fn operation(
    level: Level,
    method: &Method,
    names: &Names<'_>,
    copies: bool,
) -> Result<Option<&'static Operation>, ActionFault> {
    let (selectors, strange) = names.selectors()?;
    let name = match (level, method.as_str(), &selectors[..]) {
        (Level::Object, "PUT", []) if copies => "CopyObject",
        (Level::Object, "PUT", ["partNumber", "uploadId"]) if copies => "UploadPartCopy",
        (Level::Object, "PUT", ["renameObject"]) if copies => "RenameObject",
        // A source without a copy has two readings.
        _ if copies => return Err(ActionFault::Ambiguous),
        (Level::Object, "PUT", []) => "PutObject",
        (Level::Object, "PUT", ["partNumber", "uploadId"]) => "UploadPart",
        (Level::Object, "GET", [] | ["partNumber"]) => "GetObject",
        (Level::Object, "HEAD", [] | ["partNumber"]) => "HeadObject",
        (Level::Object, "DELETE", []) => "DeleteObject",
        (Level::Object, "GET", ["uploadId"]) => "ListParts",
        (Level::Object, "POST", ["uploadId"]) => "CompleteMultipartUpload",
        // The model lists `CompleteMultipartUpload` without `uploadId`; it then means nothing.
        (Level::Object, "POST", []) => return Ok(None),
        (Level::Object, "DELETE", ["uploadId"]) => "AbortMultipartUpload",
        (Level::Bucket, "GET", ["list-type"])
            if names.one("list-type")?.as_deref() == Some("2") =>
        {
            "ListObjectsV2"
        }
        (_, _, ["list-type"]) => return Ok(None),
        (Level::Service, "GET", []) => "ListBuckets",
        (Level::Object, "POST", ["select", "select-type"]) => "SelectObjectContent",
        (_, _, [] | [_]) => {
            let found = by_table(level, method, selectors.first().copied(), !names.has("id"));
            return Ok(found.filter(|_| !strange));
        }
        // Two sub-resources: only the server knows which of them counts.
        _ => return Err(ActionFault::Ambiguous),
    };
    let found = table().and_then(|api| api.operation(name));
    Ok(found.filter(|_| !strange))
}

/// Of two names for one request (`GetBucketLifecycle` and `…Configuration`), the newer and longer
/// one. Without an id, configurations are listed.
fn by_table(
    level: Level,
    method: &Method,
    selector: Option<&str>,
    lists: bool,
) -> Option<&'static Operation> {
    let fits = |operation: &&Operation| {
        let Some(route) = &operation.route else {
            return false;
        };
        route.method == method.as_str()
            && route.path == level.route()
            && route.query.first().map(|(name, _)| *name) == selector
            && (lists || !operation.name.ends_with("Configurations"))
    };
    let found = table()?.operations().iter().filter(fits);
    found.max_by_key(|operation| operation.name.len())
}

fn table() -> Option<&'static Api> {
    Tables::get().api("s3")
}

/// The source of a copy: a field, or the parameter that S3 accepts instead in presigned requests.
fn source(head: &RequestHead, names: &Names<'_>) -> Result<Option<CopySource>, ActionFault> {
    let copied = said(head, names, SOURCE)?;
    let renamed = said(head, names, RENAME)?;
    match (copied, renamed) {
        (Some(_), Some(_)) => Err(ActionFault::Ambiguous),
        (None, None) => Ok(None),
        (Some(text), None) => copy_source(&text).map(Some),
        (None, Some(text)) => {
            let key = decoded(&text)?;
            let key = key.strip_prefix('/').unwrap_or(&key);
            Ok(Some(CopySource::SameBucket(key.to_owned())))
        }
    }
}

/// `bucket/key?versionId=…` with or without a leading slash, escaped once; or an ARN.
fn copy_source(text: &str) -> Result<CopySource, ActionFault> {
    let text = text.split('?').next().unwrap_or(text);
    let plain = decoded(text)?;
    let plain = plain.strip_prefix('/').unwrap_or(&plain);
    if plain.starts_with("arn:") {
        return Ok(CopySource::Arn(plain.to_owned()));
    }
    let (bucket, key) = plain.split_once('/').ok_or(ActionFault::Key)?;
    // Some read a bare `+` as a space, others literally; `%2B` has one reading.
    if !is_bucket(bucket) || key.is_empty() || text.contains('+') {
        return Err(ActionFault::Key);
    }
    Ok(CopySource::Object {
        bucket: bucket.to_owned(),
        key: key.to_owned(),
    })
}

/// A field's value, or that of the parameter with that name; both, or one twice, is refused.
fn said(head: &RequestHead, names: &Names<'_>, name: &str) -> Result<Option<String>, ActionFault> {
    // Every SDK escapes the keys of copies.
    let in_field = one(&head.fields, name, ActionFault::Key)?;
    match (in_field, names.one(name)?) {
        (Some(_), Some(_)) => Err(ActionFault::Ambiguous),
        (Some(text), None) => Ok(Some(text.to_owned())),
        (None, text) => Ok(text),
    }
}

/// The owner that a request names where S3 reads it: a field, or in a presigned request the
/// parameter in its place. Elsewhere a parameter has no effect on S3.
fn owner(head: &RequestHead, names: &Names<'_>, name: &str) -> Result<Option<String>, ActionFault> {
    let said = said(head, names, name)?;
    let is_taken = head.fields.contains_key(name) || names.has("X-Amz-Signature");
    Ok(said.filter(|_| is_taken))
}

fn decoded(text: &str) -> Result<String, ActionFault> {
    let plain = percent_decode_str(text).decode_utf8();
    plain.map(Cow::into_owned).map_err(|_| ActionFault::Key)
}

/// A name that chooses an operation, as in some template of the table.
fn is_selector(name: &str) -> bool {
    SELECTORS.contains(name)
}

static SELECTORS: LazyLock<HashSet<&'static str>> = LazyLock::new(|| {
    let operations = table().map_or(&[][..], Api::operations).iter();
    let routes = operations.filter_map(|operation| operation.route.as_ref());
    let named = routes.flat_map(|route| route.query.iter().map(|(name, _)| *name));
    named.chain(["uploadId", "partNumber"]).collect()
});

/// A name that chooses nothing: parameters of operations, and `x-`, which S3 leaves to clients and
/// presigned requests.
fn is_parameter(name: &str) -> bool {
    is_listed("parameters", name)
        || name.starts_with("response-")
        || name
            .as_bytes()
            .get(..2)
            .is_some_and(|start| start.eq_ignore_ascii_case(b"x-"))
}

const OWNER: &str = "x-amz-expected-bucket-owner";
const SOURCE_OWNER: &str = "x-amz-source-expected-bucket-owner";
const SOURCE: &str = "x-amz-copy-source";
const RENAME: &str = "x-amz-rename-source";
