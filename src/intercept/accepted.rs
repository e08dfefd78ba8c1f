//! A request as it was accepted: canonical, its claims agreed, its hop-by-hop fields gone.

use std::net::SocketAddr;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, EXPECT, HOST, SEC_WEBSOCKET_KEY};
use http::{HeaderMap, HeaderValue, Method, Request, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::ext::Protocol;
use hyper::upgrade::OnUpgrade;

use super::websocket;
use crate::body::{Content, Meter};
use crate::message::{
    self, Authority, Disagreement, FieldsMalformed, Host, Leg, MethodRefused, Origin, Reading,
    RequestHead, RequestTarget, Scheme, TargetMalformed, fields, method,
};
use crate::names::SessionId;

/// By which door a connection came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Entry {
    /// Captured in a namespace.
    Transparent,
    /// A TLS listener reached by SNI.
    Tls,
    /// `CONNECT` to the proxy port.
    Connect,
    /// Absolute-form to the proxy port.
    Forward,
    /// SOCKS5 to the proxy port.
    Socks,
}

impl Entry {
    /// The name in policy and audit.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Transparent => "transparent",
            Self::Tls => "tls",
            Self::Connect => "connect",
            Self::Forward => "forward",
            Self::Socks => "socks",
        }
    }
}

/// What is known of a connection before its first request: who, and every claim about the
/// destination.
#[derive(Debug, Clone)]
pub struct Arrival {
    /// The session, by the listener that accepted the connection.
    pub session: SessionId,
    /// The door.
    pub entry: Entry,
    /// The scheme inside: TLS was terminated or not.
    pub scheme: Scheme,
    /// The target of CONNECT or SOCKS, or the name behind a synthetic address.
    pub named: Option<Authority>,
    /// The host of the TLS handshake.
    pub sni: Option<Host>,
    /// The address that a captured connection was for.
    pub destination: Option<SocketAddr>,
}

impl Arrival {
    /// The host as the connection or the request names it; where several do, the first, unchecked.
    #[must_use]
    pub fn said_host(&self) -> &str {
        let named = self
            .sni
            .as_ref()
            .or(self.named.as_ref().map(|named| &named.host));
        named.map_or("", |host| host.as_str())
    }
}

/// What the client wants the connection to become.
pub struct Upgrade {
    /// Resolves to the client's side when the answer is a 101 (or the 200 of an extended CONNECT).
    pub on: OnUpgrade,
    /// The client's leg: the accept value that it expects, or `None` where it asked by extended
    /// CONNECT (RFC 8441).
    pub accept: Option<String>,
    /// The origin's leg: what its answer must hold.
    pub expected: websocket::Expected,
}

/// A request that may be judged.
pub struct Accepted {
    arrival: Arc<Arrival>,
    head: Box<RequestHead>,
    content: Content,
    meter: Arc<Meter>,
    upgrade: Option<Box<Upgrade>>,
}

/// Why a request was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum Rejected {
    /// The method.
    #[error(transparent)]
    Method(#[from] MethodRefused),
    /// The request target.
    #[error(transparent)]
    Target(#[from] TargetMalformed),
    /// The fields.
    #[error(transparent)]
    Fields(#[from] FieldsMalformed),
    /// The claims about the destination do not agree.
    #[error(transparent)]
    Disagreement(#[from] Disagreement),
    /// The head was malformed on the wire.
    #[error(transparent)]
    Wire(#[from] super::strict::Malformed),
    /// An upgrade to something else than WebSocket (RFC 9110 §7.8).
    #[error("only an upgrade to `websocket` is possible")]
    Upgrade,
    /// An expectation other than `100-continue` (RFC 9110 §10.1.1).
    #[error("only the expectation `100-continue` is known")]
    Expectation,
    /// The query asks the origin to read another method than the one that was judged (threats F09).
    #[error("the query overrides the method")]
    MethodOverride,
    /// The query asks the origin to read other fields than those that were judged.
    #[error("the query overrides fields")]
    FieldOverride,
}

impl Rejected {
    /// The reason code in refusals and audit.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Method(why) => why.reason(),
            Self::Target(why) => why.reason(),
            Self::Fields(why) => why.reason(),
            Self::Disagreement(why) => why.reason(),
            Self::Wire(why) => why.reason(),
            Self::Upgrade => "upgrade",
            Self::Expectation => "expectation",
            Self::MethodOverride => "method_override",
            Self::FieldOverride => "field_override",
        }
    }
}

impl Accepted {
    /// Reads one request in the light of its connection.
    ///
    /// `reads` is given the origin, and whether the request looks signed in the manner of AWS.
    ///
    /// Order matters: the destination is agreed first, then what ends at this hop is removed, so
    /// that policy judges what the origin will see.
    ///
    /// # Errors
    /// [`Rejected`] by cause; nothing was sent anywhere.
    pub fn read(
        arrival: Arc<Arrival>,
        request: Request<Incoming>,
        meter: Arc<Meter>,
        reads: impl FnOnce(&Origin, bool) -> Reading,
    ) -> Result<Self, Rejected> {
        let (mut parts, incoming) = request.into_parts();
        let extended = parts.extensions.remove::<Protocol>();
        if let Some(protocol) = &extended {
            as_websocket_get(&mut parts, protocol)?;
        }
        method::check(&parts.method)?;
        fields::check(&parts.headers, parts.version)?;
        let leg = Leg {
            scheme: arrival.scheme,
            sni: arrival.sni.as_ref(),
            tunnel: arrival.named.as_ref(),
            port: arrival.destination.map(|address| address.port()),
        };
        let origin = message::agree(
            &leg,
            parts.version,
            &parts.method,
            &parts.uri,
            &parts.headers,
        )?;
        let path = parts.uri.path_and_query().ok_or(Disagreement::TargetForm)?;
        let signed = looks_signed(&parts.headers, path.query().unwrap_or_default());
        let reading = reads(&origin, signed);
        fields::check_names(&parts.headers, reading.underscores)?;
        let target = RequestTarget::from_parsed(path, reading.slashes)?;
        if target.overrides_method() {
            return Err(Rejected::MethodOverride);
        }
        if target.overrides_fields() {
            return Err(Rejected::FieldOverride);
        }
        let hop = fields::strip_hop_by_hop(&mut parts.headers);
        let upgrade = upgrade(&mut parts, hop.upgrade.as_ref(), extended.is_some())?;
        let mut fields = parts.headers;
        fields.remove(HOST);
        fields::strip_overrides(&mut fields);
        fields::join_cookies(&mut fields);
        if fields
            .get(EXPECT)
            .is_some_and(|value| !value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
        {
            return Err(Rejected::Expectation);
        }
        // Behind one pointer from here to the origin: it is handed from stage to stage.
        let head = Box::new(RequestHead {
            method: parts.method,
            origin,
            target,
            fields,
            version: parts.version,
        });
        let content = Content::new(incoming, meter.clone(), fields::filter_request_trailers);
        Ok(Self {
            arrival,
            head,
            content,
            meter,
            upgrade,
        })
    }

    /// What is known of the connection.
    #[must_use]
    pub fn arrival(&self) -> &Arrival {
        &self.arrival
    }

    /// The canonical head.
    #[must_use]
    pub fn head(&self) -> &RequestHead {
        &self.head
    }

    /// The length of the content that the head announces, in bytes; 0 without content, `None` where
    /// its end will tell.
    #[must_use]
    pub fn content_length(&self) -> Option<u64> {
        self.content.size_hint().exact()
    }

    /// Whether the client wants to speak WebSocket.
    #[must_use]
    pub fn wants_websocket(&self) -> bool {
        self.upgrade.is_some()
    }

    /// Changes fields before policy looks at them.
    pub(crate) fn fields_mut(&mut self) -> &mut HeaderMap {
        &mut self.head.fields
    }

    /// Takes the request apart, for the next stage.
    pub(crate) fn into_parts(self) -> AcceptedParts {
        let Self {
            arrival,
            head,
            content,
            meter,
            upgrade,
        } = self;
        AcceptedParts {
            arrival,
            head,
            content,
            meter,
            upgrade,
        }
    }
}

/// The pieces of an accepted request.
pub(crate) struct AcceptedParts {
    pub(crate) arrival: Arc<Arrival>,
    pub(crate) head: Box<RequestHead>,
    pub(crate) content: Content,
    pub(crate) meter: Arc<Meter>,
    pub(crate) upgrade: Option<Box<Upgrade>>,
}

/// Whether there is a signature of AWS's kind, by its first letters; what it is worth is judged
/// later. It must be one that is judged, so a parameter is a whole one: otherwise the request went
/// on unsigned, with a path that is read as if it were.
fn looks_signed(fields: &HeaderMap, query: &str) -> bool {
    let scheme = fields
        .get(AUTHORIZATION)
        .is_some_and(|value| value.as_bytes().starts_with(b"AWS4-"));
    scheme
        || query
            .split('&')
            .any(|pair| pair.starts_with("X-Amz-Algorithm=AWS4-"))
}

/// RFC 8441 §4: an extended CONNECT for WebSocket is judged and forwarded as the GET that it stands
/// for.
fn as_websocket_get(parts: &mut http::request::Parts, protocol: &Protocol) -> Result<(), Rejected> {
    if protocol.as_str() != "websocket" || parts.method != Method::CONNECT {
        return Err(Rejected::Upgrade);
    }
    parts.method = Method::GET;
    Ok(())
}

/// What the client wants the connection to become; only one thing is possible. An `Upgrade` that
/// `Connection` does not name, or one in HTTP/1.0, is no wish at all (RFC 9110 §7.8) and was
/// removed with the other hop-by-hop fields.
fn upgrade(
    parts: &mut http::request::Parts,
    asked: Option<&HeaderValue>,
    extended: bool,
) -> Result<Option<Box<Upgrade>>, Rejected> {
    let asked = asked.filter(|_| parts.version == Version::HTTP_11);
    if asked.is_none() && !extended {
        return Ok(None);
    }
    let websocket = asked.is_none_or(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"));
    if !websocket || parts.method != Method::GET {
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
    let expected = websocket::Expected::prepare(&mut parts.headers, nonce);
    Ok(Some(Box::new(Upgrade {
        on,
        accept,
        expected,
    })))
}

/// RFC 6455 §4.2.1: exactly one key, of 16 bytes in base64.
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
