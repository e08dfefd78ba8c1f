//! The WebSocket handshake with the client and with the origin (RFC 6455 §4, RFC 8441).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{
    SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_EXTENSIONS, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
};
use http::{HeaderMap, HeaderValue};

/// The fixed GUID of the handshake (RFC 6455 §1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// What the origin's response must contain for the handshake to be valid.
pub struct ExpectedHandshake {
    accept: String,
    protocols: Vec<String>,
}

impl ExpectedHandshake {
    /// Prepares the request's fields for the origin, and returns what to expect in the response.
    ///
    /// Sets a fresh key, and removes extensions, because a compressed stream could not be scrubbed.
    #[must_use]
    pub fn prepare(fields: &mut HeaderMap, nonce: [u8; 16]) -> Self {
        let key = STANDARD.encode(nonce);
        let accept = accept_of(key.as_bytes());
        fields.insert(
            SEC_WEBSOCKET_KEY,
            HeaderValue::from_str(&key).expect("base64 is a field value"),
        );
        fields.remove(SEC_WEBSOCKET_EXTENSIONS);
        let protocols = fields
            .get_all(SEC_WEBSOCKET_PROTOCOL)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .map(|token| token.trim().to_owned())
            .collect();
        Self { accept, protocols }
    }

    /// Whether the origin's 101 matches the request (RFC 6455 §4.1): its accept value, no
    /// extension, and no subprotocol that was not offered.
    #[must_use]
    pub fn holds(&self, fields: &HeaderMap) -> bool {
        let one = |name| {
            let mut values = fields.get_all(name).iter();
            (values.next(), values.next())
        };
        let accepted = matches!(one(SEC_WEBSOCKET_ACCEPT), (Some(value), None) if value == self.accept.as_str());
        let protocol = match one(SEC_WEBSOCKET_PROTOCOL) {
            (None, _) => true,
            (Some(value), None) => self
                .protocols
                .iter()
                .any(|offered| value == offered.as_str()),
            _ => false,
        };
        accepted && protocol && !fields.contains_key(SEC_WEBSOCKET_EXTENSIONS)
    }
}

/// Returns the accept value for a key (RFC 6455 §4.2.2).
#[must_use]
pub fn accept_of(key: &[u8]) -> String {
    let mut context = aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA1_FOR_LEGACY_USE_ONLY);
    context.update(key);
    context.update(GUID);
    STANDARD.encode(context.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| {
                (
                    http::HeaderName::from_static(name),
                    HeaderValue::from_str(value).unwrap(),
                )
            })
            .collect()
    }

    #[test]
    fn the_rfcs_example_key_gives_its_accept_value() {
        assert_eq!(
            accept_of(b"dGhlIHNhbXBsZSBub25jZQ=="),
            "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        );
    }

    #[test]
    fn a_wrong_accept_value_an_extension_or_an_unoffered_protocol_does_not_hold() {
        let mut offered = fields(&[
            ("sec-websocket-protocol", "chat, superchat"),
            ("sec-websocket-extensions", "x"),
        ]);
        let expected = ExpectedHandshake::prepare(&mut offered, [7; 16]);
        assert!(!offered.contains_key("sec-websocket-extensions"));
        let accept = accept_of(offered["sec-websocket-key"].as_bytes());
        let good = [("sec-websocket-accept", accept.as_str())];
        assert!(expected.holds(&fields(&good)));
        assert!(expected.holds(&fields(&[good[0], ("sec-websocket-protocol", "chat")])));
        assert!(!expected.holds(&fields(&[good[0], ("sec-websocket-protocol", "other")])));
        assert!(!expected.holds(&fields(&[
            good[0],
            ("sec-websocket-extensions", "permessage-deflate")
        ])));
        assert!(!expected.holds(&fields(&[(
            "sec-websocket-accept",
            "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        )])));
        assert!(!expected.holds(&fields(&[])));
    }
}
