//! Accepts a request: its claims must agree, it becomes canonical, and its hop-by-hop fields are
//! removed.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gateway_body::{Content, Meter};
use gateway_message::{
    self as message, Disagreement, FieldsMalformed, MethodRefused, Origin, OriginQuirks,
    RequestHead, RequestTarget, TargetMalformed, fields, method,
};
use http::header::{AUTHORIZATION, EXPECT, HOST, SEC_WEBSOCKET_KEY};
use http::{HeaderMap, HeaderValue, Method, Uri, Version};
use hyper::body::Incoming;
use hyper::ext::Protocol;
use hyper::upgrade::OnUpgrade;

use super::connection::ConnectionContext;
use super::request::{Request, Upgrade};
use super::websocket;

/// A request whose claims about its destination agree. The rest is not read yet, because how to
/// read the path may depend on the origin.
pub struct Addressed {
    connection: Arc<ConnectionContext>,
    request: http::Request<Incoming>,
    origin: Origin,
    extended: bool,
}

/// A request that may be judged.
pub struct Accepted(Box<Request>);

gateway_names::faults! {
    /// Why a request was not accepted.
    #[derive(Debug, thiserror::Error)]
    pub enum Rejected {
        /// The method is refused.
        Method(#[from] MethodRefused) = inner transparent,
        /// The request target is malformed.
        Target(#[from] TargetMalformed) = inner transparent,
        /// The fields are malformed.
        Fields(#[from] FieldsMalformed) = inner transparent,
        /// The claims about the destination do not agree.
        Disagreement(#[from] Disagreement) = inner transparent,
        /// The head was malformed on the wire.
        Wire(#[from] gateway_wire::WireMalformed) = inner transparent,
        /// The request for a WebSocket does not follow RFC 6455 and RFC 8441, or an extended
        /// CONNECT names another protocol.
        Upgrade = Upgrade "the request for a WebSocket is malformed, or asks for another protocol",
        /// An expectation other than `100-continue` (RFC 9110 §10.1.1).
        Expectation = Expectation "only the expectation `100-continue` is known",
        /// The query asks the origin to use a method other than the one that was judged (threats
        /// F09).
        MethodOverride = MethodOverride "the query overrides the method",
        /// The query asks the origin to use fields other than those that were judged.
        FieldOverride = FieldOverride "the query overrides fields",
    }
}

impl Addressed {
    /// Reads where a request goes, given its connection.
    ///
    /// # Errors
    /// [`Rejected`] by cause.
    pub fn read(
        connection: Arc<ConnectionContext>,
        mut request: http::Request<Incoming>,
    ) -> Result<Self, Rejected> {
        let protocol = request.extensions_mut().remove::<Protocol>();
        if let Some(protocol) = &protocol {
            as_websocket_get(&mut request, protocol)?;
        }
        method::check(request.method())?;
        fields::trim(request.headers_mut());
        fields::check(request.headers(), request.version())?;
        let (uri, fields) = (request.uri(), request.headers());
        let origin = match &connection.aliases {
            Some(aliases) => {
                let (origin, uri) = aliases.origin(uri, fields)?;
                *request.uri_mut() = uri;
                origin
            }
            None => message::agree(&connection.claims(), request.version(), uri, fields)?,
        };
        Ok(Self {
            connection,
            request,
            origin,
            extended: protocol.is_some(),
        })
    }

    /// Returns the origin that the request is for.
    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Returns the request as it was received; only its destination was checked so far.
    #[must_use]
    pub fn request(&self) -> &http::Request<Incoming> {
        &self.request
    }

    /// Whether the request seems to carry an AWS signature, by its prefix. It is verified later.
    ///
    /// A query parameter counts only in its exact spelling. Another spelling would not be verified
    /// later, so the request would go on unsigned, with its path read as if it were signed.
    #[must_use]
    pub fn looks_signed(&self) -> bool {
        let scheme = self
            .request
            .headers()
            .get(AUTHORIZATION)
            .is_some_and(|value| value.as_bytes().starts_with(b"AWS4-"));
        let query = self.request.uri().query().unwrap_or_default();
        scheme
            || query
                .split('&')
                .any(|pair| pair.starts_with("X-Amz-Algorithm=AWS4-"))
    }
}

impl Accepted {
    /// Reads the rest of a request as its origin reads it, which `reading` describes.
    ///
    /// The fields that end at this hop are removed here, so that policy judges what the origin will
    /// see.
    ///
    /// # Errors
    /// [`Rejected`] by cause; nothing was sent anywhere.
    pub fn read(
        addressed: Addressed,
        reading: OriginQuirks,
        meter: Arc<Meter>,
    ) -> Result<Self, Rejected> {
        let Addressed {
            connection,
            request,
            origin,
            extended,
        } = addressed;
        let (mut parts, incoming) = request.into_parts();
        fields::check_names(&parts.headers, reading.underscores)?;
        let target = target(&parts.uri, reading)?;
        let hop = fields::strip_hop_by_hop(&mut parts.headers);
        let upgrade = upgrade(&mut parts, hop.upgrade.as_ref(), extended)?;
        let mut fields = parts.headers;
        fields.remove(HOST);
        fields::strip_overrides(&mut fields);
        fields::join_cookies(&mut fields);
        if !expects_what_is_known(&fields) {
            return Err(Rejected::Expectation);
        }
        let head = RequestHead {
            method: parts.method,
            origin,
            target,
            fields,
            version: parts.version,
        };
        let content = Content::new(incoming, meter.clone(), fields::filter_request_trailers);
        Ok(Self(Box::new(Request {
            connection,
            head,
            content,
            meter,
            noted: None,
            upgrade,
        })))
    }

    /// Returns the request.
    #[must_use]
    pub fn request(&self) -> &Request {
        &self.0
    }

    /// Takes the request out, for the next stage.
    pub fn into_request(self) -> Box<Request> {
        self.0
    }
}

/// Returns the canonical target. It must not make the origin use another method or other fields.
fn target(uri: &Uri, reading: OriginQuirks) -> Result<RequestTarget, Rejected> {
    let path = uri.path_and_query().ok_or(Disagreement::TargetForm)?;
    let target = RequestTarget::from_parsed(path, reading.slashes)?;
    if target.overrides_method() {
        return Err(Rejected::MethodOverride);
    }
    if target.overrides_fields() {
        return Err(Rejected::FieldOverride);
    }
    Ok(target)
}

fn expects_what_is_known(fields: &HeaderMap) -> bool {
    fields
        .get(EXPECT)
        .is_none_or(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

/// Turns an extended CONNECT for WebSocket into the equivalent GET (RFC 8441 §4). It is judged and
/// forwarded as that GET.
fn as_websocket_get(
    request: &mut http::Request<Incoming>,
    protocol: &Protocol,
) -> Result<(), Rejected> {
    if protocol.as_str() != "websocket" || request.method() != Method::CONNECT {
        return Err(Rejected::Upgrade);
    }
    *request.method_mut() = Method::GET;
    Ok(())
}

/// Returns the protocol that the client wants to switch to. Only a WebSocket is possible.
///
/// Any other `Upgrade` (`TLS/1.2`, `h2c`, SPDY) counts as none, and so does one that `Connection`
/// does not name, or one in HTTP/1.0: a server may ignore it, and answers the request (RFC 9110
/// §7.8). It was removed with the other hop-by-hop fields.
fn upgrade(
    parts: &mut http::request::Parts,
    asked: Option<&HeaderValue>,
    extended: bool,
) -> Result<Option<Box<Upgrade>>, Rejected> {
    let is_asked = parts.version == Version::HTTP_11
        && asked.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"));
    if !is_asked && !extended {
        return Ok(None);
    }
    if parts.method != Method::GET {
        return Err(Rejected::Upgrade);
    }
    let on = parts
        .extensions
        .remove::<OnUpgrade>()
        .ok_or(Rejected::Upgrade)?;
    let accept = if extended {
        None
    } else {
        Some(client_accept(&parts.headers)?)
    };
    let mut nonce = [0; 16];
    getrandom::fill(&mut nonce).map_err(|_| Rejected::Upgrade)?;
    let expected = websocket::ExpectedHandshake::prepare(&mut parts.headers, nonce);
    Ok(Some(Box::new(Upgrade {
        on,
        accept,
        expected,
    })))
}

/// Returns the accept value for the client's key. RFC 6455 §4.2.1: one key, of 16 bytes in base64.
fn client_accept(fields: &HeaderMap) -> Result<String, Rejected> {
    let mut keys = fields.get_all(SEC_WEBSOCKET_KEY).iter();
    let key = keys
        .next()
        .filter(|_| keys.next().is_none())
        .ok_or(Rejected::Upgrade)?;
    let decoded = STANDARD
        .decode(key.as_bytes())
        .map_err(|_| Rejected::Upgrade)?;
    if decoded.len() == 16 {
        Ok(websocket::accept_of(key.as_bytes()))
    } else {
        Err(Rejected::Upgrade)
    }
}
