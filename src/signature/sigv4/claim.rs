//! What a client claims with its signature, before any of it is proven.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, Method};

use super::parse::{Parts, Presigned, authorization, one};
use super::payload::CONTENT_SHA256;
use super::{Fault, Payload, Stamp, Streaming};
use gateway_message::RequestHead;

/// The signing algorithm of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// `AWS4-HMAC-SHA256`, for one region.
    V4,
    /// `AWS4-ECDSA-P256-SHA256` (SigV4a), for a set of regions.
    V4a,
}

/// Where the signature is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Location {
    /// In `Authorization`.
    Fields,
    /// In the query: a presigned URL, and its lifetime.
    Query {
        /// `X-Amz-Expires`, 1 second to 7 days.
        expires: Duration,
    },
}

/// The regions for which the signature claims to be valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Regions<'a> {
    /// The region of a SigV4 scope.
    One(&'a str),
    /// SigV4a's `*`, which multi-region access points use: all of them (J13).
    Any,
    /// SigV4a's list, at least one.
    Set(&'a [Box<str>]),
}

/// A client's signature, parsed and well-formed. It proves nothing before [`Claim::verify`].
#[derive(Clone)]
pub struct Claim {
    pub(super) algorithm: Algorithm,
    pub(super) location: Location,
    pub(super) access_key: Box<str>,
    /// Empty for SigV4a.
    region: Box<str>,
    pub(super) service: Box<str>,
    /// Empty for SigV4; for SigV4a empty means any.
    regions: Box<[Box<str>]>,
    /// In ascending order.
    pub(super) signed: Vec<HeaderName>,
    /// The host is signed under the name `:authority`, as AWS's SDK for JavaScript does over
    /// HTTP/2.
    pub(super) as_authority: bool,
    pub(super) stamp: Stamp,
    pub(super) token: Option<SessionToken>,
    pub(super) payload: Payload,
    pub(super) signature: Box<str>,
    /// Whether the endpoint treats paths as S3 does, whatever the service is called.
    pub(super) exact: bool,
}

/// The session token of temporary credentials.
#[derive(Clone)]
pub(super) struct SessionToken {
    /// S3 Express has its own (`x-amz-s3session-token`).
    pub(super) express: bool,
    value: Box<str>,
}

impl Claim {
    /// Parses the signature of a head for a signing origin; `None` if there is none.
    ///
    /// # Errors
    /// [`Fault`] by cause: every form that is not one clear signature over the host and all
    /// `x-amz-` fields.
    pub fn read(head: &RequestHead) -> Result<Option<Claim>, Fault> {
        let presigned = Presigned::read(head.target.query().unwrap_or_default())?;
        let field = one(&head.fields, &AUTHORIZATION, "Authorization")?;
        if let Some(text) = field
            && let Some((algorithm, rest)) = scheme(text)?
        {
            if presigned.is_any() {
                return Err(Fault::Both);
            }
            let parts = authorization(algorithm, rest)?;
            return Claim::in_fields(parts, &head.fields).map(Some);
        }
        if presigned.is_any() {
            if field.is_some() || FIELDS.iter().any(|name| head.fields.contains_key(name)) {
                return Err(Fault::Both);
            }
            return Claim::in_query(presigned, &head.fields).map(Some);
        }
        if field.is_none() && is_form_upload(head) {
            return Err(Fault::PostForm);
        }
        Ok(None)
    }

    fn in_fields(parts: Parts<'_>, fields: &HeaderMap) -> Result<Claim, Fault> {
        let date = one(fields, &DATE, "X-Amz-Date")?.ok_or(Fault::Missing("X-Amz-Date"))?;
        let tokens = [
            one(fields, &TOKEN, "X-Amz-Security-Token")?,
            one(fields, &EXPRESS_TOKEN, "X-Amz-S3session-Token")?,
        ];
        let regions = one(fields, &REGION_SET, "X-Amz-Region-Set")?;
        let payload = one(fields, &CONTENT_SHA256, "x-amz-content-sha256")?;
        let payload = payload.map_or(Ok(Payload::Absent), Payload::parse)?;
        Claim::new(
            Location::Fields,
            parts,
            date,
            tokens.map(|t| t.map(Cow::Borrowed)),
            regions,
            payload,
            fields,
        )
    }

    fn in_query(mut query: Presigned<'_>, fields: &HeaderMap) -> Result<Claim, Fault> {
        let parts = query.parts()?;
        let date = query.date.ok_or(Fault::Missing("X-Amz-Date"))?;
        let expires = query.expires.ok_or(Fault::Missing("X-Amz-Expires"))?;
        let location = Location::Query {
            expires: lifetime(&expires)?,
        };
        let in_field = one(fields, &CONTENT_SHA256, "x-amz-content-sha256")?;
        let payload = match (in_field, query.payload.as_deref()) {
            (Some(a), Some(b)) if a != b => return Err(Fault::Twice("x-amz-content-sha256")),
            (Some(text), _) | (None, Some(text)) => Payload::parse(text)?,
            (None, None) => Payload::Absent,
        };
        let tokens = [query.token, query.express_token];
        let mut claim = Claim::new(
            location,
            parts,
            &date,
            tokens,
            query.regions.as_deref(),
            payload,
            fields,
        )?;
        // S3 does not check the content of presigned requests ("Authenticating Requests: Using
        // Query Parameters").
        if claim.is_s3() && claim.payload == Payload::Absent {
            claim.payload = Payload::Unsigned;
        }
        Ok(claim)
    }

    fn new(
        location: Location,
        parts: Parts<'_>,
        date: &str,
        tokens: [Option<Cow<'_, str>>; 2],
        regions: Option<&str>,
        payload: Payload,
        fields: &HeaderMap,
    ) -> Result<Claim, Fault> {
        let stamp = Stamp::parse(date)?;
        let scope = Scope::parse(&parts.credential, parts.algorithm)?;
        if scope.day != stamp.day() {
            return Err(Fault::Date);
        }
        let (signed, as_authority) = signed_names(&parts.signed)?;
        check_signed(&signed, fields, location)?;
        payload.check(fields)?;
        check_fit(parts.algorithm, payload)?;
        let is_hex = |text: &str| text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let length = match parts.algorithm {
            Algorithm::V4 => 64..=64,
            // DER of two numbers of at most 33 bytes.
            Algorithm::V4a => 16..=144,
        };
        if !is_hex(&parts.signature) || !length.contains(&parts.signature.len()) {
            return Err(Fault::Malformed("Signature"));
        }
        let token = match tokens {
            [Some(_), Some(_)] => return Err(Fault::Twice("X-Amz-Security-Token")),
            [Some(value), None] => Some((false, value)),
            [None, Some(value)] => Some((true, value)),
            [None, None] => None,
        };
        Ok(Claim {
            algorithm: parts.algorithm,
            location,
            access_key: scope.access_key.into(),
            region: scope.region.into(),
            service: scope.service.into(),
            regions: region_set(parts.algorithm, regions)?,
            signed,
            as_authority,
            stamp,
            token: token.map(|(express, value)| SessionToken {
                express,
                value: value.into(),
            }),
            payload,
            signature: parts.signature.into(),
            exact: false,
        })
    }

    /// The signing algorithm.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Where the signature is.
    #[must_use]
    pub fn location(&self) -> Location {
        self.location
    }

    /// The access key id, by which the caller finds the binding.
    #[must_use]
    pub fn access_key(&self) -> &str {
        &self.access_key
    }

    /// The session token, which must be the phantom of the same binding.
    #[must_use]
    pub fn session_token(&self) -> Option<&str> {
        self.token.as_ref().map(|token| &*token.value)
    }

    /// The regions of the scope, for the caller to check against its pins.
    #[must_use]
    pub fn regions(&self) -> Regions<'_> {
        match (self.algorithm, &*self.regions) {
            (Algorithm::V4, _) => Regions::One(&self.region),
            (Algorithm::V4a, []) => Regions::Any,
            (Algorithm::V4a, set) => Regions::Set(set),
        }
    }

    /// The service's signing name.
    #[must_use]
    pub fn service(&self) -> &str {
        &self.service
    }

    /// The client's clock when it signed; the caller decides how far it may be off.
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// The names of the signed fields, ascending.
    #[must_use]
    pub fn signed(&self) -> &[HeaderName] {
        &self.signed
    }

    /// What the signature covers of the content.
    #[must_use]
    pub fn payload(&self) -> Payload {
        self.payload
    }

    /// Whether the service treats paths as S3 does: encoded once, never normalised.
    #[must_use]
    pub fn is_s3(&self) -> bool {
        matches!(
            &*self.service,
            "s3" | "s3express" | "s3-outposts" | "s3-object-lambda"
        )
    }

    /// Declares that the endpoint treats paths as S3 does: the canonical path is the target's,
    /// escaped once.
    pub fn take_path_exactly(&mut self) {
        self.exact = true;
    }

    /// Whether a session token is in a field that is not signed.
    pub(super) fn leaves_token_out(&self) -> bool {
        let name = match &self.token {
            Some(token) if token.express => &EXPRESS_TOKEN,
            Some(_) => &TOKEN,
            None => return false,
        };
        self.location == Location::Fields && !self.signed.contains(name)
    }

    /// The credential scope for a day: `20150830/us-east-1/s3/aws4_request`; for SigV4a without the
    /// region.
    pub(super) fn scope(&self, day: &str) -> String {
        match self.algorithm {
            Algorithm::V4 => format!("{day}/{}/{}/aws4_request", self.region, self.service),
            Algorithm::V4a => format!("{day}/{}/aws4_request", self.service),
        }
    }

    pub(super) fn region(&self) -> &str {
        &self.region
    }
}

/// Shows neither token nor signature.
impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim")
            .field("algorithm", &self.algorithm)
            .field("location", &self.location)
            .field("regions", &self.regions())
            .field("service", &self.service)
            .field("stamp", &self.stamp)
            .field("signed", &self.signed)
            .field("payload", &self.payload)
            .finish_non_exhaustive()
    }
}

impl Algorithm {
    /// The name in `Authorization` and `X-Amz-Algorithm`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::V4 => "AWS4-HMAC-SHA256",
            Algorithm::V4a => "AWS4-ECDSA-P256-SHA256",
        }
    }

    pub(super) fn named(name: &str) -> Result<Algorithm, Fault> {
        [Algorithm::V4, Algorithm::V4a]
            .into_iter()
            .find(|algorithm| algorithm.name() == name)
            .ok_or(Fault::Algorithm)
    }
}

/// The scheme of an `Authorization` field and the rest; `None` for schemes that are not AWS's.
fn scheme(text: &str) -> Result<Option<(Algorithm, &str)>, Fault> {
    let (name, rest) = text.split_once(' ').unwrap_or((text, ""));
    if name.eq_ignore_ascii_case("bearer") && rest.trim_start().starts_with("k8s-aws-v1.") {
        return Err(Fault::Nested("an EKS bearer token"));
    }
    // `AWS key:signature` is version 2, `AWS3-HTTPS` version 3.
    let is_aws = name
        .get(..3)
        .is_some_and(|start| start.eq_ignore_ascii_case("aws"));
    if !is_aws {
        return Ok(None);
    }
    Algorithm::named(name).map(|algorithm| Some((algorithm, rest)))
}

/// `KEY/20150830/us-east-1/s3/aws4_request`, parsed from its end.
struct Scope<'a> {
    access_key: &'a str,
    day: &'a str,
    region: &'a str,
    service: &'a str,
}

impl<'a> Scope<'a> {
    fn parse(text: &'a str, algorithm: Algorithm) -> Result<Scope<'a>, Fault> {
        const MALFORMED: Fault = Fault::Malformed("Credential");
        let mut pieces = text.rsplit('/');
        let mut next = || pieces.next().ok_or(MALFORMED);
        if next()? != "aws4_request" {
            return Err(MALFORMED);
        }
        let service = next()?;
        let region = match algorithm {
            Algorithm::V4 => next()?,
            Algorithm::V4a => "",
        };
        let day = next()?;
        let access_key = next()?;
        // Nothing may be left: a slash in an access key would let two readers see two scopes.
        if pieces.next().is_some() || !is_access_key(access_key) {
            return Err(MALFORMED);
        }
        if !is_label(service) || (algorithm == Algorithm::V4 && !is_label(region)) {
            return Err(Fault::Scope);
        }
        Ok(Scope {
            access_key,
            day,
            region,
            service,
        })
    }
}

fn is_access_key(text: &str) -> bool {
    (1..=LONGEST_ACCESS_KEY).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_graphic() && b != b',')
}

/// The name of a region or a service (J12).
fn is_label(text: &str) -> bool {
    (1..=LONGEST_LABEL).contains(&text.len())
        && text
            .bytes()
            .all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-'))
}

fn region_set(algorithm: Algorithm, text: Option<&str>) -> Result<Box<[Box<str>]>, Fault> {
    match (algorithm, text) {
        (Algorithm::V4, None) | (Algorithm::V4a, Some("*")) => Ok(Box::default()),
        (Algorithm::V4, Some(_)) => Err(Fault::Scope),
        (Algorithm::V4a, None) => Err(Fault::Missing("X-Amz-Region-Set")),
        (Algorithm::V4a, Some(text)) => text
            .split(',')
            .map(|region| {
                if is_label(region) {
                    Ok(region.into())
                } else {
                    Err(Fault::Scope)
                }
            })
            .collect(),
    }
}

/// The names, with `host` for `:authority`, and whether that was there. Both together are refused.
fn signed_names(text: &str) -> Result<(Vec<HeaderName>, bool), Fault> {
    const MALFORMED: Fault = Fault::Malformed("SignedHeaders");
    let mut names: Vec<HeaderName> = Vec::with_capacity(8);
    let rest = text.strip_prefix(":authority;");
    for name in rest.unwrap_or(text).split(';') {
        let is_token = name.bytes().all(|b| !b.is_ascii_uppercase());
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| MALFORMED)?;
        if !is_token
            || names
                .last()
                .is_some_and(|last| last.as_str() >= name.as_str())
        {
            return Err(MALFORMED);
        }
        names.push(name);
    }
    if rest.is_some() {
        match names.binary_search_by(|name| name.as_str().cmp("host")) {
            Ok(_) => return Err(MALFORMED),
            Err(at) => names.insert(at, http::header::HOST),
        }
    }
    Ok((names, rest.is_some()))
}

/// Checks that the host and every `x-amz-` field are signed (J02).
///
/// The session token may be outside the signature (IoT requires that). It is replaced in any case,
/// and stays outside. AWS's own clients leave two names unsigned in presigned requests.
fn check_signed(
    signed: &[HeaderName],
    fields: &HeaderMap,
    location: Location,
) -> Result<(), Fault> {
    let is_signed = |name: &HeaderName| {
        signed
            .binary_search_by(|s| s.as_str().cmp(name.as_str()))
            .is_ok()
    };
    if !is_signed(&http::header::HOST) {
        return Err(Fault::Unsigned(http::header::HOST));
    }
    let presigned = matches!(location, Location::Query { .. });
    let may_miss = |name: &HeaderName| {
        name == TOKEN
            || name == EXPRESS_TOKEN
            || (presigned && matches!(name.as_str(), "x-amz-user-agent" | "x-amz-checksum-mode"))
    };
    match fields
        .keys()
        .find(|name| name.as_str().starts_with("x-amz-") && !is_signed(name) && !may_miss(name))
    {
        Some(name) => Err(Fault::Unsigned(name.clone())),
        None => Ok(()),
    }
}

fn check_fit(algorithm: Algorithm, payload: Payload) -> Result<(), Fault> {
    match (algorithm, payload) {
        (Algorithm::V4, Payload::Streaming(Streaming::Signed { ecdsa: true, .. }))
        | (
            Algorithm::V4a,
            Payload::Streaming(Streaming::Signed { ecdsa: false, .. }) | Payload::Events,
        ) => Err(Fault::Payload),
        _ => Ok(()),
    }
}

/// Seconds in plain digits, 1 to 604,800.
fn lifetime(text: &str) -> Result<Duration, Fault> {
    if text.is_empty() || text.len() > 6 || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Fault::Expiry);
    }
    match text.parse() {
        Ok(seconds @ 1..=604_800) => Ok(Duration::from_secs(seconds)),
        _ => Err(Fault::Expiry),
    }
}

/// "Browser-Based Uploads Using POST": the signature covers a policy inside the form, which no head
/// shows.
fn is_form_upload(head: &RequestHead) -> bool {
    head.method == Method::POST
        && head.fields.get(CONTENT_TYPE).is_some_and(|value| {
            let kind = value.as_bytes();
            kind.get(..FORM.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(FORM))
        })
}

const FORM: &[u8] = b"multipart/form-data";
const LONGEST_ACCESS_KEY: usize = 128;
const LONGEST_LABEL: usize = 64;

pub(super) static DATE: HeaderName = HeaderName::from_static("x-amz-date");
pub(super) static TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");
pub(super) static EXPRESS_TOKEN: HeaderName = HeaderName::from_static("x-amz-s3session-token");
pub(super) static REGION_SET: HeaderName = HeaderName::from_static("x-amz-region-set");
/// Fields that a presigned request may not have as well.
static FIELDS: [HeaderName; 4] = [
    HeaderName::from_static("x-amz-date"),
    HeaderName::from_static("x-amz-security-token"),
    HeaderName::from_static("x-amz-s3session-token"),
    HeaderName::from_static("x-amz-region-set"),
];
