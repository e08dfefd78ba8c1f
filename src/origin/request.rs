//! Builds the request that is written to an origin.

use std::time::Duration;

use gateway_body::Outgoing;
use gateway_message::RequestHead;
use http::header::{CONNECTION, EXPECT, HOST, HeaderValue, TE, TRANSFER_ENCODING, UPGRADE};
use http::{Method, Request, StatusCode, Uri, Version};
use http_body::Body as _;

use super::Error;
use super::response_progress::ResponseProgress;
use super::sender::host_field;

/// How long a request's content waits for the origin's 100. RFC 9110 §10.1.1: a client may not wait
/// for ever.
const CONTINUE_WAIT: Duration = Duration::from_secs(1);

/// Builds the request to write. Framing and routing fields are made from the authorized request.
/// `heard` counts the informational responses.
pub(super) fn written(
    mut head: RequestHead,
    content: Outgoing,
    upgrade: bool,
    host: Option<&HeaderValue>,
    heard: &ResponseProgress,
) -> Result<Request<Outgoing>, Error> {
    let http1 = host.is_some();
    if !http1 {
        announce_trailers(&mut head);
    }
    let RequestHead {
        method,
        origin,
        target,
        mut fields,
        ..
    } = head;
    let uri = if let Some(host) = host {
        fields.insert(HOST, host.clone());
        if upgrade {
            fields.insert(CONNECTION, HeaderValue::from_static("upgrade"));
            fields.insert(UPGRADE, HeaderValue::from_static("websocket"));
        }
        if needs_chunked(&method, &content) {
            fields.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        Uri::from(target.into_path_and_query())
    } else {
        Uri::builder()
            .scheme(origin.scheme.as_str())
            .authority(host_field(&origin)?.as_bytes())
            .path_and_query(target.into_path_and_query())
            .build()
            .map_err(|_| Error::Protocol)?
    };
    let gate = fields
        .contains_key(EXPECT)
        .then(|| content.gated())
        .flatten();
    let mut request = Request::new(content);
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    *request.version_mut() = if http1 {
        Version::HTTP_11
    } else {
        Version::HTTP_2
    };
    *request.headers_mut() = fields;
    if let Some(gate) = gate.clone() {
        tokio::spawn(async move {
            tokio::time::sleep(CONTINUE_WAIT).await;
            gate.open();
        });
    }
    let heard = heard.clone();
    // hyper drops informational responses. Only the final response is passed on to clients.
    hyper::ext::on_informational(&mut request, move |answer| {
        if let Some(gate) = gate
            .as_ref()
            .filter(|_| answer.status() == StatusCode::CONTINUE)
        {
            gate.open();
        }
        heard.informational();
    });
    Ok(request)
}

/// Announces, for this hop, that the gateway accepts trailers (RFC 9110 §10.1.4). Without that,
/// gRPC origins reset the stream.
fn announce_trailers(head: &mut RequestHead) {
    if head.is_grpc() {
        head.fields.insert(TE, HeaderValue::from_static("trailers"));
    }
}

/// Whether `Transfer-Encoding` must be set by hand. Without it, hyper drops content of unknown
/// length from methods that seldom have any (threats F11).
fn needs_chunked(method: &Method, content: &Outgoing) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
        && !content.is_empty()
        && content.size_hint().exact().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gateway_message::{Authority, EncodedSlash, Origin, RequestTarget, Scheme};
    use http::header::CONTENT_TYPE;

    fn head(kind: &'static str) -> RequestHead {
        let fields = [(CONTENT_TYPE, HeaderValue::from_static(kind))];
        RequestHead {
            method: Method::POST,
            origin: Origin {
                scheme: Scheme::Https,
                authority: Authority::parse(b"grpc.test", Some(443)).unwrap(),
            },
            target: RequestTarget::parse(b"/lab.Echo/Unary", EncodedSlash::Refuse).unwrap(),
            fields: fields.into_iter().collect(),
            version: Version::HTTP_2,
        }
    }

    #[test]
    fn a_grpc_call_tells_its_origin_that_trailers_are_taken_and_no_other_request_does() {
        for (kind, announced) in [
            ("application/grpc+proto", true),
            ("application/json", false),
        ] {
            let mut head = head(kind);
            announce_trailers(&mut head);
            assert_eq!(
                head.fields.get(TE).map(HeaderValue::as_bytes),
                announced.then_some(&b"trailers"[..]),
                "{kind}"
            );
        }
    }
}
