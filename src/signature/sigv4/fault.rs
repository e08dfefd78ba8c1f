//! Why a signed request is refused, by cause.

use http::HeaderName;

gateway_names::faults! {
    /// A fault in a client's signature, or in the content that it covers. No variant contains a
    /// value from the request.
    #[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
    pub enum Fault {
        /// There is a signature in the fields and in the query (J05).
        Both = SigV4Ambiguous "both `Authorization` and the query hold a signature",
        /// A part of the signature appears twice, so two readers could choose differently (J05).
        Twice(&'static str) = SigV4Ambiguous "`{0}` occurs twice or in two places",
        /// A part of the signature is missing.
        Missing(&'static str) = SigV4Malformed "the signature has no `{0}`",
        /// A part of the signature is malformed.
        Malformed(&'static str) = SigV4Malformed "`{0}` is not of its form",
        /// An algorithm other than `AWS4-HMAC-SHA256` and `AWS4-ECDSA-P256-SHA256`.
        Algorithm = SigV4Algorithm
            "the signing algorithm is neither AWS4-HMAC-SHA256 nor AWS4-ECDSA-P256-SHA256; \
             update the client or turn off its older signature versions",
        /// A field that must be signed is not (J02).
        Unsigned(HeaderName) = SigV4Unsigned "the field `{0}` is not signed",
        /// A field is listed as signed but absent. Clients must not sign fields that end at a
        /// proxy.
        Absent(HeaderName) = SigV4Unsigned
            "the field `{0}` is said to be signed and is not there; cookies go on where the \
             credential's `cookies` names them",
        /// The scope's date is not the day of the signing time (J09).
        Date = SigV4Date "the date in the credential scope is not the day of `X-Amz-Date`",
        /// A region or a service contains characters other than `a-z`, `0-9` and `-` (J12).
        Scope = SigV4Scope
            "the region or service in the credential scope holds a character that it may not hold",
        /// A presigned request with a lifetime of zero or more than seven days.
        Expiry = SigV4Expiry "`X-Amz-Expires` is not from 1 second to 7 days",
        /// The request contradicts itself about its content.
        Payload = SigV4Payload
            "`x-amz-content-sha256` and the announced content coding do not fit together",
        /// The content's hash is needed but missing.
        HashNeeded = SigV4Payload "the content's hash is needed",
        /// The content has another hash than the signed one.
        Content = SigV4Content "the content is not what was signed",
        /// The signature was not made with the client's key, or not over this request (J11).
        Mismatch = SigV4Mismatch
            "the signature does not match; the client must sign with the key that it was given, \
             over what it sends",
        /// A signed chunk, trailer or message does not match.
        PartMismatch = SigV4Streaming "the signature of a part of the content does not match",
        /// The content does not have the announced framing.
        Framing(&'static str) = SigV4Streaming "the content is not of the announced framing: {0}",
        /// A chunk, trailer or message is longer than may be buffered.
        PartTooLong(usize) = SigV4Streaming "a signed part of the content is longer than {0} bytes",
        /// An S3 POST policy form.
        PostForm = SigV4PostForm
            "a signed form upload (POST policy) cannot be signed again; upload with PUT, or with \
             a presigned URL",
        /// A signature inside another credential.
        Nested(&'static str) = SigV4Nested "a signed request inside of {0} cannot be signed again",
        /// A secret or an access key that cannot be a signing key.
        Key = SigV4Key "the signing key is not of its form",
        /// The signed head would not be a valid request.
        TooLong = SigV4TooLong "the signed request would be longer than a request may be",
    }
}
