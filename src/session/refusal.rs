//! Why a request's credentials are refused: causes and codes, without any text from the request.

use std::fmt;

use gateway_body::FormFault;
use gateway_names::{CredentialName, ReasonCode, SessionId};
use http::HeaderName;

/// A part of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestPart {
    /// The host.
    Host,
    /// The path.
    Path,
    /// The query.
    Query,
    /// The name of a field.
    FieldName,
    /// The value of a field.
    Field,
    /// The value of this field.
    Named(HeaderName),
    /// The user or password of `Authorization: Basic`.
    Basic,
    /// A cookie.
    Cookie,
    /// A form or a JSON object.
    Content,
}

/// A fault of a signature or of the request it covers, as described by its signing scheme.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct SignatureFault {
    reason: ReasonCode,
    text: String,
}

impl SignatureFault {
    /// Returns a fault with this code and description, which must not quote the request.
    pub fn new(reason: ReasonCode, words: &dyn fmt::Display) -> Self {
        Self {
            reason,
            text: words.to_string(),
        }
    }

    /// Returns the reason code for refusals and the audit log.
    pub fn reason(&self) -> ReasonCode {
        self.reason
    }
}

impl From<gateway_recipe::Fault> for SignatureFault {
    fn from(fault: gateway_recipe::Fault) -> Self {
        Self::new(fault.reason(), &fault)
    }
}

impl From<gateway_sigv4::Fault> for SignatureFault {
    fn from(fault: gateway_sigv4::Fault) -> Self {
        Self::new(fault.reason(), &fault)
    }
}

impl From<gateway_sigv4::OutOfScope> for SignatureFault {
    fn from(why: gateway_sigv4::OutOfScope) -> Self {
        Self::new(why.reason(), &why)
    }
}

impl From<gateway_sigv4::ActionFault> for SignatureFault {
    fn from(why: gateway_sigv4::ActionFault) -> Self {
        Self::new(why.reason(), &why)
    }
}

gateway_names::faults! {
    /// Why a request is refused because of the credentials it carries.
    #[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
    pub enum CredentialRefusal {
        /// A phantom is sent to an origin, method or path its credential is not bound to (H01,
        /// H02).
        OutOfScope {
            /// The credential.
            credential: CredentialName,
            /// Where the phantom is.
            part: RequestPart,
        } = PhantomOutOfScope
            "the phantom of `{credential}` is in {part} of a request to which that credential is \
             not bound",
        /// A phantom is in a place that is not one of its credential's (H03, H07, H10).
        Position {
            /// The credential.
            credential: CredentialName,
            /// Where the phantom is.
            part: RequestPart,
        } = PhantomPosition
            "the phantom of `{credential}` is in {part}, where that credential may not be",
        /// A phantom is encoded or escaped (H04, H05).
        Disguised {
            /// The credential.
            credential: CredentialName,
            /// Where the phantom is.
            part: RequestPart,
        } = PhantomDisguised "the phantom of `{credential}` is in {part} in an encoded form",
        /// A phantom appears more than once (H06).
        Count {
            /// The credential.
            credential: CredentialName,
        } = PhantomCount "the phantom of `{credential}` appears more than once",
        /// A phantom would be replaced in cleartext (C13).
        Cleartext {
            /// The credential.
            credential: CredentialName,
        } = CleartextInjection "credential `{credential}` is bound to https and the request is not",
        /// A phantom stands in for a credential that the session may no longer use.
        Removed {
            /// The credential.
            credential: CredentialName,
            /// Where the phantom is.
            part: RequestPart,
        } = CredentialRemoved
            "the phantom of `{credential}` stands in {part}, and that credential was removed",
        /// A phantom belongs to another session, live or ended (H11).
        ForeignSession {
            /// The session it was issued to. For the audit record, not for the client.
            owner: SessionId,
            /// Where the phantom is.
            part: RequestPart,
        } = PhantomForeignSession "a phantom of another session is in {part}",
        /// A foreign credential is in a credential place of a managed origin (H13, E20).
        Foreign {
            /// The part that holds the credential.
            part: RequestPart,
        } = ForeignCredential
            "a credential that this gateway did not issue is in {part} of a request to a managed \
             origin",
        /// A secret that the session has a phantom for is in what the workload sends.
        Secret {
            /// The credential.
            credential: CredentialName,
            /// Where the secret is.
            part: RequestPart,
        } = SecretFound "the secret of `{credential}` itself is in {part}",
        /// A gateway token would leave with the request.
        Token {
            /// The part that holds the token.
            part: RequestPart,
        } = TokenMisplaced "a token of a gateway is in {part}",
        /// Content that may contain a foreign credential cannot be read.
        Unreadable {
            /// The fault of the content.
            why: FormFault,
        } = ContentUnreadable
            "content in which the service takes credentials cannot be read: {why}",
        /// The content would be changed, but a digest or a signature covers it.
        Digest = ContentDigest
            "the content would be sent with other bytes, and a digest or a signature of the \
             request covers it",
        /// A credential limited to some requests would be used for a batch, whose requests are not
        /// judged one by one (F14).
        Batch {
            /// The credential.
            credential: CredentialName,
        } = Batch "`{credential}` is for some methods or paths alone, and the request holds many",
        /// The signature cannot be read in exactly one way, at an origin for which a credential
        /// signs (J02, J05, J09, J12).
        Signature {
            /// The fault of the signature.
            fault: SignatureFault,
        } = .fault "the request's signature is refused: {fault}",
        /// The credential may not sign such a request (J01, J06).
        Unsignable {
            /// The credential.
            credential: CredentialName,
            /// The fault that puts the request out of scope.
            why: SignatureFault,
        } = .why "credential `{credential}` may not sign this request: {why}",
    }
}

impl CredentialRefusal {
    /// Returns the same refusal, with the name of the field that the credential was found in.
    pub(super) fn in_field(mut self, name: &HeaderName) -> Self {
        if let Self::OutOfScope { part, .. }
        | Self::Position { part, .. }
        | Self::Disguised { part, .. }
        | Self::Removed { part, .. }
        | Self::ForeignSession { part, .. }
        | Self::Foreign { part }
        | Self::Token { part } = &mut self
            && *part == RequestPart::Field
        {
            *part = RequestPart::Named(name.clone());
        }
        self
    }

    /// Returns the part of the request that the refusal is about.
    pub fn part(&self) -> Option<&RequestPart> {
        match self {
            Self::OutOfScope { part, .. }
            | Self::Position { part, .. }
            | Self::Disguised { part, .. }
            | Self::Removed { part, .. }
            | Self::ForeignSession { part, .. }
            | Self::Foreign { part }
            | Self::Secret { part, .. }
            | Self::Token { part } => Some(part),
            Self::Count { .. }
            | Self::Cleartext { .. }
            | Self::Unreadable { .. }
            | Self::Digest
            | Self::Batch { .. }
            | Self::Signature { .. }
            | Self::Unsignable { .. } => None,
        }
    }

    /// Returns the credential that the refusal is about, if it is one of the session's.
    pub fn credential(&self) -> Option<&CredentialName> {
        match self {
            Self::OutOfScope { credential, .. }
            | Self::Position { credential, .. }
            | Self::Disguised { credential, .. }
            | Self::Count { credential }
            | Self::Cleartext { credential }
            | Self::Removed { credential, .. }
            | Self::Secret { credential, .. }
            | Self::Batch { credential }
            | Self::Unsignable { credential, .. } => Some(credential),
            Self::ForeignSession { .. }
            | Self::Foreign { .. }
            | Self::Token { .. }
            | Self::Unreadable { .. }
            | Self::Digest
            | Self::Signature { .. } => None,
        }
    }
}

impl RequestPart {
    /// Returns the name of the part in a record.
    pub fn place(&self) -> String {
        let name = match self {
            Self::Host => "host",
            Self::Path => "path",
            Self::Query => "query",
            Self::FieldName => "header_name",
            Self::Named(name) if name.as_str().len() <= LONGEST_SHOWN => {
                return format!("header:{name}");
            }
            Self::Field | Self::Named(_) => "header",
            Self::Basic => "basic",
            Self::Cookie => "cookie",
            Self::Content => "content",
        };
        name.to_owned()
    }
}

impl fmt::Display for RequestPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "the host",
            Self::Path => "the path",
            Self::Query => "the query",
            Self::FieldName => "a field's name",
            Self::Named(name) if name.as_str().len() <= LONGEST_SHOWN => {
                return write!(f, "the field `{name}`");
            }
            Self::Field | Self::Named(_) => "a field",
            Self::Basic => "the Basic credentials",
            Self::Cookie => "a cookie",
            Self::Content => "the content",
        })
    }
}

/// The longest field name that is shown.
const LONGEST_SHOWN: usize = 64;
