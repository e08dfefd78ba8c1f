//! Cleans an origin's response for the client.

use std::time::Duration;

use bytes::Bytes;
use gateway_body::{Coding, DecodeBody, DecodeFault, Decoder, Share};
use gateway_credential::{self as credential, Redactor};
use gateway_message::{ByteRange, fields};
use gateway_origin::{self as origin, OriginBody};
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG, HeaderMap,
    HeaderName, HeaderValue,
};
use http::{Method, Response, StatusCode};
use http_body::Body as _;
use http_body_util::{BodyExt as _, Limited};

use super::answer_body::{AnswerBody, AnswerSource};
use super::refusal::Refusal;

/// RFC 9530: digests of the content, which scrubbing or decoding changes.
const DIGESTS: [HeaderName; 4] = [
    HeaderName::from_static("digest"),
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
    HeaderName::from_static("content-md5"),
];

/// The longest response with new credentials, and how long it may take to arrive. A session token
/// has about 2 KiB.
const LONGEST_MINTED: usize = 64 * 1024;
const MINTED_WITHIN: Duration = Duration::from_secs(30);

/// Cleans an origin's response for the client.
///
/// Removes the fields that end at this hop. Replaces every echo of a secret: in the fields now, and
/// in the content as it streams.
///
/// # Errors
/// [`origin::Error::Coding`] if the origin may know a secret and the content cannot be decoded;
/// [`origin::Error::DecodingBudget`] if the budget behind `decoding` has no room for the decoder;
/// [`credential::Error::Guessed`] if the session may not see any of the response.
pub async fn clean(
    response: Response<OriginBody>,
    (method, range): (&Method, Option<ByteRange>),
    lent: Option<&Redactor>,
    decoding: Share,
) -> Result<Response<AnswerBody>, Refusal> {
    let (mut parts, body) = response.into_parts();
    // This also removes the reason phrase, which is the origin's text (threats I02).
    parts.extensions.clear();
    fields::strip_response(&mut parts.headers);
    let Some(lent) = lent else {
        let body = AnswerBody::new(AnswerSource::Origin(body));
        return Ok(Response::from_parts(parts, body));
    };
    let echoes = lent
        .scrub_fields(&mut parts.headers)
        .map_err(credential::Error::from)?;
    let bare = *method == Method::HEAD || body.is_end_stream();
    // A successful response to a signed request stays encoded: it echoes nothing of the signature,
    // and the client may check a digest of the encoded form.
    let as_it_is = lent.is_signed() && parts.status.is_success();
    let codings = match Coding::parse_answer(&parts.headers) {
        _ if as_it_is => Vec::new(),
        Ok(codings) => codings,
        // If the origin may know a secret (`is_strict`), a response that cannot be searched is
        // refused. Otherwise it is searched as far as it is readable.
        Err(_) if !lent.is_strict() => Vec::new(),
        Err(_) => return Err(origin::Error::Coding.into()),
    };
    let partial = parts.status == StatusCode::PARTIAL_CONTENT;
    if bare && lent.is_strict() && !codings.is_empty() {
        // The length of the encoded form would show how similar an echo and the client's text are.
        as_identity(&mut parts.headers);
    }
    let part = match range.filter(|_| partial) {
        Some(range) => Some(
            range
                .of_answer(&mut parts.headers)
                .ok_or(origin::Error::Range)?,
        ),
        None => None,
    };
    if let Some(part) = part {
        DIGESTS
            .iter()
            .for_each(|name| drop(parts.headers.remove(name)));
        // The range held only the margin.
        if part.length == 0 {
            parts.status = StatusCode::RANGE_NOT_SATISFIABLE;
        }
    }
    let source = if codings.is_empty() || bare || (partial && !lent.is_strict()) {
        let mut body = lent.scrub(body, &mut parts.headers);
        body.add_replaced(echoes);
        AnswerSource::Scrubbed(Box::new(body))
    } else {
        // A part of an encoded representation cannot be decoded by itself.
        if partial {
            return Err(origin::Error::Coding.into());
        }
        let decoder = Decoder::new(&codings)
            .map_err(|_| origin::Error::Coding)?
            .within(decoding)
            .map_err(|_| origin::Error::DecodingBudget)?;
        as_identity(&mut parts.headers);
        let kind = parts.headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
        let is_events = kind.is_some_and(|kind| kind.starts_with(b"text/event-stream"));
        let body = DecodeBody::new(body, decoder);
        let body = if lent.is_strict() {
            body.in_blocks(is_events)
        } else {
            body
        };
        // Boxed because it is large and rare.
        let body = Box::pin(begun(body)).await?;
        let mut body = lent.scrub(body, &mut parts.headers);
        body.add_replaced(echoes);
        AnswerSource::Decoded(Box::new(body))
    };
    Ok(Response::from_parts(
        parts,
        AnswerBody::new(source).within(part),
    ))
}

/// Waits briefly for the first piece of decoded content: content that does not match its declared
/// coding is refused while the response head can still say so.
async fn begun(mut body: DecodeBody<OriginBody>) -> Result<DecodeBody<OriginBody>, Refusal> {
    match tokio::time::timeout(BEGUN_WITHIN, body.frame()).await {
        Ok(Some(Err(DecodeFault::Coding(_)))) => Err(origin::Error::Coding.into()),
        Ok(Some(Err(DecodeFault::Body(error)))) => Err(origin::Error::Http(error).into()),
        Ok(Some(Ok(frame))) => {
            body.put_back(frame);
            Ok(body)
        }
        Ok(None) | Err(_) => Ok(body),
    }
}

/// How long the head of a response waits for the first piece of decoded content.
const BEGUN_WITHIN: Duration = Duration::from_secs(1);

/// Buffers and decodes a response with new credentials, and replaces its content with the content
/// that `keep` returns, scrubbed by the redactor that `keep` returns.
///
/// # Errors
/// `unread` if the response cannot be buffered, or the error of `keep`. The client gets none of it.
pub async fn minted(
    response: Response<OriginBody>,
    decoding: Share,
    keep: impl AsyncFnOnce(&str, Bytes) -> Result<(Bytes, Option<Redactor>), credential::Error>,
    unread: credential::Error,
) -> Result<Response<AnswerBody>, credential::Error> {
    let (mut parts, body) = response.into_parts();
    parts.extensions.clear();
    fields::strip_response(&mut parts.headers);
    let codings = Coding::parse_answer(&parts.headers).ok();
    let decoder = codings.and_then(|codings| Decoder::new(&codings).ok());
    let Some(Ok(decoder)) = decoder.map(|decoder| decoder.within(decoding)) else {
        return Err(unread);
    };
    let collected = Limited::new(DecodeBody::new(body, decoder), LONGEST_MINTED).collect();
    let content = tokio::time::timeout(MINTED_WITHIN, collected).await;
    let Ok(Ok(content)) = content else {
        return Err(unread);
    };
    let kind = parts
        .headers
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    let (content, lent) = keep(kind.unwrap_or_default(), content.to_bytes()).await?;
    as_identity(&mut parts.headers);
    let summed = |name: &&HeaderName| {
        name.as_str() == "x-amz-crc32" || name.as_str().starts_with("x-amz-checksum-")
    };
    let sums: Vec<HeaderName> = parts.headers.keys().filter(summed).cloned().collect();
    for name in sums {
        parts.headers.remove(name);
    }
    let content = match lent {
        Some(lent) => {
            lent.scrub_fields(&mut parts.headers)?;
            lent.scrub_whole(content)?
        }
        None => content,
    };
    parts
        .headers
        .insert(CONTENT_LENGTH, HeaderValue::from(content.len()));
    parts
        .headers
        .insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(Response::from_parts(parts, AnswerBody::own(content)))
}

/// Removes the fields that describe the encoded form, and makes the entity tag weak.
///
/// RFC 9110 §8.4, §8.8.3: the decoded content is another representation, of another length.
fn as_identity(fields: &mut HeaderMap) {
    for name in [CONTENT_ENCODING, CONTENT_LENGTH, ACCEPT_RANGES] {
        fields.remove(name);
    }
    for name in DIGESTS {
        fields.remove(name);
    }
    let weak = fields.get(ETAG).and_then(|tag| {
        let tag = tag.as_bytes();
        (!tag.starts_with(b"W/"))
            .then(|| HeaderValue::from_bytes(&[b"W/", tag].concat()).ok())
            .flatten()
    });
    if let Some(weak) = weak {
        fields.insert(ETAG, weak);
    }
}
