//! The origin that `doctor`'s clients connect to. It speaks as much of each protocol as they need.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::Full;

/// The variable that holds the secret outside and the phantom inside.
pub(crate) const VARIABLE: &str = "DOCTOR_TOKEN";
pub(crate) const HOST: &str = "doctor.gateway.test";
/// What a client's output contains if the origin accepted its credential.
pub(crate) const MARK: &str = "gateway-doctor-ok";

/// Answers a client: with the requested content if it presents the secret, and otherwise with a
/// challenge.
pub(crate) fn answer(
    secret: &str,
    request: &http::Request<hyper::body::Incoming>,
) -> Response<Full<Bytes>> {
    if !shows(secret, request.headers().get(AUTHORIZATION)) {
        let mut response = Response::new(Full::new(Bytes::from_static(
            b"no credential, or another one\n",
        )));
        *response.status_mut() = StatusCode::UNAUTHORIZED;
        let challenge = HeaderValue::from_static("Basic realm=\"doctor\"");
        response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        return response;
    }
    let (status, kind, content) = page(request.uri().path());
    let mut response = Response::new(Full::new(Bytes::from(content)));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn shows(secret: &str, field: Option<&HeaderValue>) -> bool {
    let Some(field) = field.and_then(|value| value.to_str().ok()) else {
        return false;
    };
    match field.split_once(' ') {
        None => field == secret,
        Some(("Bearer", token)) => token == secret,
        Some(("Basic", coded)) => STANDARD
            .decode(coded)
            .is_ok_and(|text| text.split(|&byte| byte == b':').nth(1) == Some(secret.as_bytes())),
        Some(_) => false,
    }
}

fn page(path: &str) -> (StatusCode, &'static str, String) {
    let json = "application/json";
    let (kind, content) = match path {
        "/token" => ("text/plain", format!("{MARK}\n")),
        "/git/info/refs" => ("application/x-git-upload-pack-advertisement", refs()),
        "/npm/-/ping" => (json, String::from("{}")),
        "/simple/gateway-doctor-ok/" => {
            let name = "gateway_doctor_ok-1.0-py3-none-any.whl";
            let link = format!("<!DOCTYPE html><a href=\"/none/{name}\">{name}</a>");
            ("text/html", link)
        }
        "/cargo/config.json" => (json, registry()),
        "/cargo/api/v1/crates" => (json, String::from("{\"crates\":[],\"meta\":{\"total\":0}}")),
        "/go/gateway.test/gateway-doctor-ok/@v/list" => ("text/plain", String::from("v1.0.0\n")),
        "/go/gateway.test/gateway-doctor-ok/@v/v1.0.0.info" => (
            json,
            String::from("{\"Version\":\"v1.0.0\",\"Time\":\"2026-01-01T00:00:00Z\"}"),
        ),
        "/go/gateway.test/gateway-doctor-ok/@v/v1.0.0.mod" => (
            "text/plain",
            String::from("module gateway.test/gateway-doctor-ok\n"),
        ),
        _ => {
            let content = String::from("there is nothing\n");
            return (StatusCode::NOT_FOUND, "text/plain", content);
        }
    };
    (StatusCode::OK, kind, content)
}

/// Returns one branch, as git's "smart" protocol version 0 advertises it.
fn refs() -> String {
    let id = "0".repeat(39) + "1";
    let line = format!("{id} refs/heads/{MARK}\0 agent=doctor\n");
    let length = line.len() + 4;
    format!("001e# service=git-upload-pack\n0000{length:04x}{line}0000")
}

/// Returns the configuration of a Cargo registry.
fn registry() -> String {
    let base = format!("https://{HOST}/cargo");
    format!("{{\"dl\":\"{base}\",\"api\":\"{base}\",\"auth-required\":true}}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_origin_takes_the_secret_in_each_usual_place_and_nothing_else() {
        let secret = "doctor_0123456789";
        let shown = |text: &str| shows(secret, Some(&HeaderValue::from_str(text).unwrap()));
        assert!(shown("doctor_0123456789"));
        assert!(shown("Bearer doctor_0123456789"));
        assert!(shown(&format!(
            "Basic {}",
            STANDARD.encode("x:doctor_0123456789")
        )));
        for other in [
            "",
            "Bearer doctor_0123456780",
            "Basic ZG9jdG9y",
            "Digest doctor_0123456789",
        ] {
            assert!(!shown(other), "{other}");
        }
        assert!(!shows(secret, None));
    }
}
