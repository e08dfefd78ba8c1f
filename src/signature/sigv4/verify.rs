//! Proves that a signature was made with the key that the client was given.

use super::canonical::{self, CanonicalRequest, PathRule};
use super::chain::Chain;
use super::payload::{CONTENT_SHA256, UNSIGNED};
use super::{ClientSignature, Fault, Location, Payload};
use gateway_message::{Origin, RequestHead};

/// A verified signature: made with the given key, over this head and, if it covers content, over
/// that hash.
pub struct VerifiedHead {
    pub(super) chain: Chain,
    /// Whether the session token is in the query and outside the signature, as IoT requires.
    pub(super) token_apart: bool,
}

impl ClientSignature {
    /// Proves that the head was signed with `secret`.
    ///
    /// `content` is the hash of the content, if known. It is required for [`Payload::Absent`], and
    /// must be the signed one for [`Payload::Hash`]. The client's clock is in
    /// [`ClientSignature::signed_at`] and not checked here.
    ///
    /// # Errors
    /// [`Fault::Mismatch`], [`Fault::HashNeeded`], [`Fault::Content`], [`Fault::Absent`] and
    /// [`Fault::Key`].
    pub fn verify(
        &self,
        head: &RequestHead,
        secret: &[u8],
        content: Option<&[u8; 32]>,
    ) -> Result<VerifiedHead, Fault> {
        let payload = self.payload_text(head, content)?;
        let mut chain = Chain::new(self, &self.access_key, secret, self.signed_at)?;
        // A token outside the signature is only in the query, and an optional port may have been
        // written.
        let in_query = matches!(self.location, Location::Query { .. });
        for host in hosts(&head.origin) {
            for token_apart in [false, true] {
                if token_apart && !(in_query && self.token.is_some()) {
                    continue;
                }
                let text = self.canonical(head, &host, token_apart, &payload)?;
                let to_sign = chain.head(&text);
                if chain.verify(&to_sign, &self.signature) {
                    return Ok(VerifiedHead { chain, token_apart });
                }
            }
        }
        Err(Fault::Mismatch)
    }

    /// The canonical request as the client signed it.
    fn canonical(
        &self,
        head: &RequestHead,
        host: &str,
        token_apart: bool,
        payload: &str,
    ) -> Result<Vec<u8>, Fault> {
        let in_query = matches!(self.location, Location::Query { .. });
        let keep = |name: &str| {
            let out: &[&str] = match (in_query, token_apart) {
                (false, _) => return true,
                (true, false) => &["X-Amz-Signature"],
                (true, true) => &[
                    "X-Amz-Signature",
                    "X-Amz-Security-Token",
                    "X-Amz-S3session-Token",
                ],
            };
            let name = percent_encoding::percent_decode_str(name).decode_utf8_lossy();
            !out.contains(&&*name)
        };
        let query = canonical::query(head.target.query().unwrap_or_default(), keep, &[]);
        CanonicalRequest {
            method: head.method.as_str(),
            path: head.target.path(),
            rule: self.path_rule(),
            query: &query,
            host,
            fields: &head.fields,
            signed: &self.signed,
            as_authority: self.as_authority,
            payload,
        }
        .text()
    }

    /// The last line of the canonical request.
    pub(super) fn payload_text(
        &self,
        head: &RequestHead,
        content: Option<&[u8; 32]>,
    ) -> Result<String, Fault> {
        match (self.payload, content) {
            (Payload::Absent, None) => Err(Fault::HashNeeded),
            (Payload::Absent, Some(hash)) => Ok(base16ct::lower::encode_string(hash)),
            (Payload::Hash(said), Some(hash)) if said != *hash => Err(Fault::Content),
            (Payload::Hash(said), _) => Ok(base16ct::lower::encode_string(&said)),
            (Payload::Unsigned, _) => Ok(UNSIGNED.to_owned()),
            (Payload::Streaming(_) | Payload::Events, _) => {
                let said = head.fields.get(&CONTENT_SHA256);
                let said = said.and_then(|value| value.to_str().ok());
                said.map(str::to_owned)
                    .ok_or(Fault::Missing("x-amz-content-sha256"))
            }
        }
    }

    pub(super) fn path_rule(&self) -> PathRule {
        if self.exact || self.is_s3() {
            PathRule::S3
        } else {
            PathRule::OTHERS
        }
    }
}

/// The possible values of `Host`; the first is the one that the gateway writes.
pub(super) fn hosts(origin: &Origin) -> [String; 2] {
    let authority = &origin.authority;
    let bare = authority.host.to_uri();
    if authority.port == origin.scheme.default_port() {
        [bare, authority.to_string()]
    } else {
        [authority.to_string(), bare]
    }
}

// Shows no key.
gateway_names::concealed!(VerifiedHead);
