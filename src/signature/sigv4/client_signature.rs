//! The claims of a client's signature, before any of them is proven.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, Method};

use super::algorithm::Algorithm;
use super::amz_date::AmzDate;
use super::credential_scope::{CredentialScope, Regions, region_set};
use super::fault::Fault;
use super::parse::{Presigned, SignatureTexts, authorization, one};
use super::payload::{CONTENT_SHA256, Payload, Streaming};
use super::signed_fields::{DATE, EXPRESS_TOKEN, REGION_SET, TOKEN, check_signed, signed_names};
use gateway_message::RequestHead;

/// The location of the signature.
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

/// A client's signature, parsed and well-formed. It proves nothing before
/// [`ClientSignature::verify`].
#[derive(Clone)]
pub struct ClientSignature {
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
    pub(super) signed_at: AmzDate,
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

impl SessionToken {
    /// The token, of which there may be one: the ordinary one or that of S3 Express.
    fn one_of(tokens: [Option<Cow<'_, str>>; 2]) -> Result<Option<SessionToken>, Fault> {
        let (express, value) = match tokens {
            [Some(_), Some(_)] => return Err(Fault::Twice("X-Amz-Security-Token")),
            [Some(value), None] => (false, value),
            [None, Some(value)] => (true, value),
            [None, None] => return Ok(None),
        };
        let value = value.into();
        Ok(Some(SessionToken { express, value }))
    }
}

impl ClientSignature {
    /// Parses the signature of a head for a signing origin; `None` if there is none.
    ///
    /// # Errors
    /// [`Fault`] by cause: every form that is not one clear signature over the host and all
    /// `x-amz-` fields.
    pub fn read(head: &RequestHead) -> Result<Option<ClientSignature>, Fault> {
        let presigned = Presigned::read(head.target.query().unwrap_or_default())?;
        let field = one(&head.fields, &AUTHORIZATION, "Authorization")?;
        if let Some(text) = field
            && let Some((algorithm, rest)) = scheme(text)?
        {
            if presigned.is_any() {
                return Err(Fault::Both);
            }
            let parts = authorization(algorithm, rest)?;
            return ClientSignature::in_fields(parts, &head.fields).map(Some);
        }
        if presigned.is_any() {
            let parts = [&DATE, &TOKEN, &EXPRESS_TOKEN, &REGION_SET];
            if field.is_some() || parts.iter().any(|name| head.fields.contains_key(*name)) {
                return Err(Fault::Both);
            }
            return ClientSignature::in_query(presigned, &head.fields).map(Some);
        }
        if field.is_none() && is_form_upload(head) {
            return Err(Fault::PostForm);
        }
        Ok(None)
    }

    fn in_fields(parts: SignatureTexts<'_>, fields: &HeaderMap) -> Result<ClientSignature, Fault> {
        let date = one(fields, &DATE, "X-Amz-Date")?.ok_or(Fault::Missing("X-Amz-Date"))?;
        let tokens = [
            one(fields, &TOKEN, "X-Amz-Security-Token")?,
            one(fields, &EXPRESS_TOKEN, "X-Amz-S3session-Token")?,
        ];
        let regions = one(fields, &REGION_SET, "X-Amz-Region-Set")?;
        let payload = one(fields, &CONTENT_SHA256, "x-amz-content-sha256")?;
        let payload = payload.map_or(Ok(Payload::Absent), Payload::parse)?;
        ClientSignature::new(
            Location::Fields,
            parts,
            date,
            tokens.map(|t| t.map(Cow::Borrowed)),
            regions,
            payload,
            fields,
        )
    }

    fn in_query(mut query: Presigned<'_>, fields: &HeaderMap) -> Result<ClientSignature, Fault> {
        let parts = query.parts()?;
        let date = query.need("X-Amz-Date")?;
        let expires = query.need("X-Amz-Expires")?;
        let location = Location::Query {
            expires: lifetime(&expires)?,
        };
        let in_field = one(fields, &CONTENT_SHA256, "x-amz-content-sha256")?;
        let payload = match (in_field, query.take("X-Amz-Content-Sha256").as_deref()) {
            (Some(a), Some(b)) if a != b => return Err(Fault::Twice("x-amz-content-sha256")),
            (Some(text), _) | (None, Some(text)) => Payload::parse(text)?,
            (None, None) => Payload::Absent,
        };
        let tokens = ["X-Amz-Security-Token", "X-Amz-S3session-Token"].map(|name| query.take(name));
        let mut claim = ClientSignature::new(
            location,
            parts,
            &date,
            tokens,
            query.take("X-Amz-Region-Set").as_deref(),
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
        parts: SignatureTexts<'_>,
        date: &str,
        tokens: [Option<Cow<'_, str>>; 2],
        regions: Option<&str>,
        payload: Payload,
        fields: &HeaderMap,
    ) -> Result<ClientSignature, Fault> {
        let signed_at = AmzDate::parse(date)?;
        let scope = CredentialScope::parse(&parts.credential, parts.algorithm)?;
        if scope.day != signed_at.day() {
            return Err(Fault::Date);
        }
        let (signed, as_authority) = signed_names(&parts.signed)?;
        let presigned = matches!(location, Location::Query { .. });
        check_signed(&signed, fields, presigned)?;
        payload.check(fields)?;
        check_fit(parts.algorithm, payload)?;
        check_form(parts.algorithm, &parts.signature)?;
        Ok(ClientSignature {
            algorithm: parts.algorithm,
            location,
            access_key: scope.access_key.into(),
            region: scope.region.into(),
            service: scope.service.into(),
            regions: region_set(parts.algorithm, regions)?,
            signed,
            as_authority,
            signed_at,
            token: SessionToken::one_of(tokens)?,
            payload,
            signature: parts.signature.into(),
            exact: false,
        })
    }

    /// The signing algorithm.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The location of the signature.
    pub fn location(&self) -> Location {
        self.location
    }

    /// The access key id, by which the caller finds the binding.
    pub fn access_key(&self) -> &str {
        &self.access_key
    }

    /// The session token, which must be the phantom of the same binding.
    pub fn session_token(&self) -> Option<&str> {
        self.token.as_ref().map(|token| &*token.value)
    }

    /// The regions of the scope, for the caller to check against its pins.
    pub fn regions(&self) -> Regions<'_> {
        match (self.algorithm, &*self.regions) {
            (Algorithm::V4, _) => Regions::One(&self.region),
            (Algorithm::V4a, []) => Regions::Any,
            (Algorithm::V4a, set) => Regions::Set(set),
        }
    }

    /// The service's signing name.
    pub fn service(&self) -> &str {
        &self.service
    }

    /// The client's clock when it signed; the caller decides how far it may be off.
    pub fn signed_at(&self) -> AmzDate {
        self.signed_at
    }

    /// The names of the signed fields, ascending.
    pub fn signed(&self) -> &[HeaderName] {
        &self.signed
    }

    /// How the signature covers the content.
    pub fn payload(&self) -> Payload {
        self.payload
    }

    /// Whether the service treats paths as S3 does: encoded once, never normalised.
    pub(super) fn is_s3(&self) -> bool {
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
impl fmt::Debug for ClientSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientSignature")
            .field("algorithm", &self.algorithm)
            .field("location", &self.location)
            .field("regions", &self.regions())
            .field("service", &self.service)
            .field("signed_at", &self.signed_at)
            .field("signed", &self.signed)
            .field("payload", &self.payload)
            .finish_non_exhaustive()
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

/// Checks that the signature is hexadecimal, and of a length that the algorithm makes.
fn check_form(algorithm: Algorithm, signature: &str) -> Result<(), Fault> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let length = match algorithm {
        Algorithm::V4 => 64..=64,
        // DER of two numbers of at most 33 bytes.
        Algorithm::V4a => 16..=144,
    };
    if signature.bytes().all(is_digit) && length.contains(&signature.len()) {
        Ok(())
    } else {
        Err(Fault::Malformed("Signature"))
    }
}

/// Checks that the content is signed by the algorithm of the head.
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
