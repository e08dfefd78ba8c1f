//! Why a signed request is refused, by cause.

use gateway_names::ReasonCode;
use http::HeaderName;

/// What is wrong with a client's signature, or with the content that it covers. No variant contains
/// a value from the request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// There is a signature in the fields and in the query (J05).
    #[error("both `Authorization` and the query hold a signature")]
    Both,
    /// A part of the signature appears twice, so two readers could choose differently (J05).
    #[error("`{0}` occurs twice or in two places")]
    Twice(&'static str),
    /// A part of the signature is missing.
    #[error("the signature has no `{0}`")]
    Missing(&'static str),
    /// A part of the signature is malformed.
    #[error("`{0}` is not of its form")]
    Malformed(&'static str),
    /// An algorithm other than `AWS4-HMAC-SHA256` and `AWS4-ECDSA-P256-SHA256`.
    #[error(
        "the signing algorithm is neither AWS4-HMAC-SHA256 nor AWS4-ECDSA-P256-SHA256; update the client or turn off \
         its older signature versions"
    )]
    Algorithm,
    /// A field that must be signed is not (J02).
    #[error("the field `{0}` is not signed")]
    Unsigned(HeaderName),
    /// A field is listed as signed but absent. Clients must not sign fields that end at a proxy.
    #[error(
        "the field `{0}` is said to be signed and is not there; cookies go on where the credential's `cookies` names them"
    )]
    Absent(HeaderName),
    /// The scope's date is not the day of the signing time (J09).
    #[error("the date in the credential scope is not the day of `X-Amz-Date`")]
    Date,
    /// A region or a service contains characters other than `a-z`, `0-9` and `-` (J12).
    #[error("the region or service in the credential scope holds a character that it may not hold")]
    Scope,
    /// A presigned request with a lifetime of zero or more than seven days.
    #[error("`X-Amz-Expires` is not from 1 second to 7 days")]
    Expiry,
    /// The request contradicts itself about its content.
    #[error("`x-amz-content-sha256` and the announced content coding do not fit together")]
    Payload,
    /// The content's hash is needed but missing.
    #[error("the content's hash is needed")]
    HashNeeded,
    /// The content has another hash than the signed one.
    #[error("the content is not what was signed")]
    Content,
    /// The signature was not made with the client's key, or not over this request (J11).
    #[error(
        "the signature does not match; the client must sign with the key that it was given, over what it sends"
    )]
    Mismatch,
    /// A signed chunk, trailer or message does not match.
    #[error("the signature of a part of the content does not match")]
    PartMismatch,
    /// The content does not have the announced framing.
    #[error("the content is not of the announced framing: {0}")]
    Framing(&'static str),
    /// A chunk, trailer or message is longer than may be buffered.
    #[error("a signed part of the content is longer than {0} bytes")]
    PartTooLong(usize),
    /// An S3 POST policy form.
    #[error(
        "a signed form upload (POST policy) cannot be signed again; upload with PUT, or with a presigned URL"
    )]
    PostForm,
    /// A signature inside another credential.
    #[error("a signed request inside of {0} cannot be signed again")]
    Nested(&'static str),
    /// A secret or an access key that cannot be a signing key.
    #[error("the signing key is not of its form")]
    Key,
    /// The signed head would not be a valid request.
    #[error("the signed request would be longer than a request may be")]
    TooLong,
}

impl Fault {
    /// The short code for refusals and audit records.
    pub fn reason(&self) -> ReasonCode {
        match self {
            Fault::Both | Fault::Twice(_) => ReasonCode::SigV4Ambiguous,
            Fault::Missing(_) | Fault::Malformed(_) => ReasonCode::SigV4Malformed,
            Fault::Algorithm => ReasonCode::SigV4Algorithm,
            Fault::Unsigned(_) | Fault::Absent(_) => ReasonCode::SigV4Unsigned,
            Fault::Date => ReasonCode::SigV4Date,
            Fault::Scope => ReasonCode::SigV4Scope,
            Fault::Expiry => ReasonCode::SigV4Expiry,
            Fault::Payload | Fault::HashNeeded => ReasonCode::SigV4Payload,
            Fault::Content => ReasonCode::SigV4Content,
            Fault::Mismatch => ReasonCode::SigV4Mismatch,
            Fault::PartMismatch | Fault::Framing(_) | Fault::PartTooLong(_) => {
                ReasonCode::SigV4Streaming
            }
            Fault::PostForm => ReasonCode::SigV4PostForm,
            Fault::Nested(_) => ReasonCode::SigV4Nested,
            Fault::Key => ReasonCode::SigV4Key,
            Fault::TooLong => ReasonCode::SigV4TooLong,
        }
    }
}
