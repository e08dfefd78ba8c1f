//! Signs the request again: removes every trace of the client's signature and writes ours.

use std::time::{Duration, SystemTime};

use aws_sigv4::sign::v4::{calculate_signature, generate_signing_key};
use http::header::{AUTHORIZATION, HOST};
use http::{HeaderName, HeaderValue, Request};

use super::canonical::{self, CanonicalRequest, PathRule, encoded, signed_names};
use super::chain::Chain;
use super::key::sha256;
use super::payload::CONTENT_SHA256;
use super::signed_fields::{DATE, EXPRESS_TOKEN, TOKEN};
use super::verify::hosts;
use super::{
    Algorithm, AmzDate, ChunkResigner, ClientSignature, EventResigner, Fault, Location, Payload,
    VerifiedHead, parse,
};
use gateway_message::{Origin, RequestHead};

/// The parameters for signing the request again.
pub struct SigningParams<'a> {
    /// The real access key id.
    pub access_key: &'a str,
    /// The real secret key.
    pub secret: &'a [u8],
    /// The real session token, which temporary credentials have.
    pub session_token: Option<&'a str>,
    /// The gateway's clock; the client's time is not kept.
    pub now: SystemTime,
    /// The longest life of a presigned request, at least one second.
    pub longest_life: Duration,
    /// The hash of the content, if it was buffered.
    pub content: Option<&'a [u8; 32]>,
}

/// The two chains of a signed head, which the pieces of the content continue.
pub struct SignedChains {
    signature: String,
    payload: Payload,
    client: Chain,
    ours: Chain,
}

impl SignedChains {
    /// The head's signature.
    pub fn signature(&self) -> &str {
        &self.signature
    }

    /// The transformation that verifies aws-chunked content and signs it again, if the content is
    /// that. No chunk may be longer than `longest`.
    ///
    /// # Errors
    /// [`Fault`] if the head announces no length or trailer, or a wrong one.
    pub fn rechain(
        self,
        head: &RequestHead,
        longest: usize,
    ) -> Result<Option<ChunkResigner>, Fault> {
        match self.payload {
            Payload::Streaming(streaming) => {
                ChunkResigner::new(streaming, self.client, self.ours, &head.fields, longest)
                    .map(Some)
            }
            _ => Ok(None),
        }
    }

    /// The transformation that verifies signed messages and signs them again, if the content
    /// consists of them. None may be longer than `longest`.
    #[must_use]
    pub fn events(self, longest: usize) -> Option<EventResigner> {
        (self.payload == Payload::Events)
            .then(|| EventResigner::new(self.client, self.ours, longest))
    }
}

/// Signs a verified request again, in the place of the client's signature.
///
/// Covers the client's fields that are still present, the host and every `x-amz-` field, including
/// those that the caller has added. Changes the head only on success.
///
/// # Errors
/// [`Fault::Key`] for parts that cannot be sent or derived from, [`Fault::TooLong`] for a target
/// that grew too long.
pub fn sign(
    head: &mut RequestHead,
    claim: &ClientSignature,
    verified: VerifiedHead,
    with: &SigningParams<'_>,
) -> Result<SignedChains, Fault> {
    let signed_at = AmzDate::at(with.now)?;
    let mut ours = Chain::new(claim, with.access_key, with.secret, signed_at)?;
    let mut new = head.clone();
    strip(&mut new, claim);
    let signature = match claim.location {
        Location::Fields => in_fields(&mut new, claim, with, &mut ours)?,
        Location::Query { expires } => {
            let expires = expires.min(with.longest_life).as_secs().max(1);
            in_query(&mut new, claim, &verified, with, expires, &mut ours)?
        }
    };
    *head = new;
    Ok(SignedChains {
        signature,
        payload: claim.payload,
        client: verified.chain,
        ours,
    })
}

/// Removes the rest of the client's signature from the fields, including `Date`: a service would
/// take it for the signing time.
fn strip(head: &mut RequestHead, claim: &ClientSignature) {
    for name in [&DATE, &TOKEN, &EXPRESS_TOKEN, &http::header::DATE] {
        head.fields.remove(name);
    }
    if claim.location == Location::Fields {
        head.fields.remove(AUTHORIZATION);
    }
}

fn in_fields(
    head: &mut RequestHead,
    claim: &ClientSignature,
    with: &SigningParams<'_>,
    ours: &mut Chain,
) -> Result<String, Fault> {
    head.fields
        .insert(&DATE, text_value(ours.signed_at().as_str())?);
    if let Some(token) = with.session_token {
        let mut value = text_value(token)?;
        value.set_sensitive(true);
        head.fields.insert(token_name(claim), value);
    }
    let payload = claim.payload_text(head, with.content)?;
    if claim.is_s3() && claim.payload == Payload::Absent {
        head.fields.insert(&CONTENT_SHA256, text_value(&payload)?);
    }
    let signed = signed_fields(head, claim);
    let query = canonical::query(head.target.query().unwrap_or_default(), |_| true, &[]);
    let signature = sign_head(head, claim, &signed, &query, &payload, ours)?;
    let mut value = text_value(&format!(
        "{} Credential={}/{}, SignedHeaders={}, Signature={signature}",
        claim.algorithm.name(),
        with.access_key,
        ours.scope(),
        signed_names(&signed),
    ))?;
    value.set_sensitive(true);
    head.fields.insert(AUTHORIZATION, value);
    Ok(signature)
}

fn in_query(
    head: &mut RequestHead,
    claim: &ClientSignature,
    verified: &VerifiedHead,
    with: &SigningParams<'_>,
    expires: u64,
    ours: &mut Chain,
) -> Result<String, Fault> {
    let payload = claim.payload_text(head, with.content)?;
    let signed = signed_fields(head, claim);
    let (names, expires) = (signed_names(&signed), expires.to_string());
    let credential = format!("{}/{}", with.access_key, ours.scope());
    let signed_at = ours.signed_at();
    let token_name = match token_name(claim) {
        name if *name == EXPRESS_TOKEN => "X-Amz-S3session-Token",
        _ => "X-Amz-Security-Token",
    };
    let mut more = vec![
        ("X-Amz-Algorithm", claim.algorithm.name()),
        ("X-Amz-Credential", &credential),
        ("X-Amz-Date", signed_at.as_str()),
        ("X-Amz-Expires", &expires),
        ("X-Amz-SignedHeaders", &names),
    ];
    let token = with.session_token.map(|token| (token_name, token));
    more.extend(token.filter(|_| !verified.token_apart));
    let raw = head.target.query().unwrap_or_default();
    let query = canonical::query(raw, |name| !parse::is_replaced(name), &more);
    let signature = sign_head(head, claim, &signed, &query, &payload, ours)?;
    let mut target = format!("{query}&X-Amz-Signature={signature}");
    if let Some((name, token)) = token.filter(|_| verified.token_apart) {
        target.push('&');
        target.push_str(name);
        target.push('=');
        target.push_str(&encoded(token));
    }
    head.target = head
        .target
        .with_query(&target)
        .map_err(|_| Fault::TooLong)?;
    Ok(signature)
}

fn sign_head(
    head: &RequestHead,
    claim: &ClientSignature,
    signed: &[HeaderName],
    query: &str,
    payload: &str,
    ours: &mut Chain,
) -> Result<String, Fault> {
    let [host, _] = hosts(&head.origin);
    let text = CanonicalRequest {
        method: head.method.as_str(),
        path: head.target.path(),
        rule: claim.path_rule(),
        query,
        host: &host,
        fields: &head.fields,
        signed,
        as_authority: false,
        payload,
    }
    .text()?;
    let to_sign = ours.head(&text);
    ours.sign(&to_sign).map(str::to_owned)
}

/// The client's names that are still present, the host, and every `x-amz-` field: ascending, each
/// once (J02). A session token that the client left out stays out, as required by services where it
/// is added after signing (IoT).
fn signed_fields(head: &RequestHead, claim: &ClientSignature) -> Vec<HeaderName> {
    let there = |name: &&HeaderName| **name == HOST || head.fields.contains_key(*name);
    let apart = claim.leaves_token_out().then(|| token_name(claim));
    let ours = head
        .fields
        .keys()
        .filter(|name| name.as_str().starts_with("x-amz-") && Some(*name) != apart);
    let names = claim.signed.iter().filter(there).chain(ours).cloned();
    let mut names: Vec<HeaderName> = names.collect();
    names.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
    names.dedup();
    names
}

fn token_name(claim: &ClientSignature) -> &'static HeaderName {
    match &claim.token {
        Some(token) if token.express => &EXPRESS_TOKEN,
        _ => &TOKEN,
    }
}

fn text_value(text: &str) -> Result<HeaderValue, Fault> {
    HeaderValue::from_str(text).map_err(|_| Fault::Key)
}

/// Signs a request of the gateway's own, without a query, for a server, a region and a service.
/// Covers all of its fields and its content.
///
/// # Errors
/// [`Fault::Key`] for parts that cannot be sent or derived from.
pub fn sign_own<C: AsRef<[u8]>>(
    request: &mut Request<C>,
    (server, region, service): (&Origin, &str, &str),
    with: &SigningParams<'_>,
) -> Result<(), Fault> {
    let at = AmzDate::at(with.now)?;
    let [host, _] = hosts(server);
    let payload = sha256(request.body().as_ref());
    let (path, method) = (request.uri().path().to_owned(), request.method().clone());
    let fields = request.headers_mut();
    fields.insert(&DATE, text_value(at.as_str())?);
    if let Some(token) = with.session_token {
        let mut token = text_value(token)?;
        token.set_sensitive(true);
        fields.insert(&TOKEN, token);
    }
    let mut signed: Vec<HeaderName> = fields.keys().cloned().chain([HOST]).collect();
    signed.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
    signed.dedup();
    let canonical = CanonicalRequest {
        method: method.as_str(),
        path: &path,
        rule: PathRule::OTHERS,
        query: "",
        host: &host,
        fields,
        signed: &signed,
        as_authority: false,
        payload: &payload,
    };
    let (day, stamp, name) = (at.day(), at.as_str(), Algorithm::V4.name());
    let scope = format!("{day}/{region}/{service}/aws4_request");
    let text = format!("{name}\n{stamp}\n{scope}\n{}", sha256(&canonical.text()?));
    let secret = std::str::from_utf8(with.secret).map_err(|_| Fault::Key)?;
    let key = generate_signing_key(secret, at.time(), region, service);
    let mut field = text_value(&format!(
        "{name} Credential={}/{scope}, SignedHeaders={}, Signature={}",
        with.access_key,
        signed_names(&signed),
        calculate_signature(key, text.as_bytes()),
    ))?;
    field.set_sensitive(true);
    fields.insert(AUTHORIZATION, field);
    Ok(())
}

// Shows no key.
gateway_names::concealed!(SignedChains, payload);
