//! Why a request is not verified, or not signed.

use gateway_names::ReasonCode;

/// Why a request is not verified, or not signed. Contains no value from the request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A part of the signature is missing.
    #[error("the request is signed, but `{0}` is empty or missing")]
    Incomplete(String),
    /// There are two values where one is allowed.
    #[error("the request has more than one value in `{0}`")]
    Ambiguous(String),
    /// The value in a place does not have the form of this signature.
    #[error("`{0}` does not have the form of this signature")]
    Malformed(String),
    /// A part is not the phantom of this credential.
    #[error("the `{0}` of the signature is another credential's")]
    Foreign(String),
    /// The signature is not one of this request with the phantom.
    #[error("the signature does not verify with the phantom key")]
    Mismatch,
    /// A value is not one that the recipe allows.
    #[error("the `{0}` of the signature is not an allowed one")]
    Forbidden(String),
    /// The signature covers the content, which was not buffered.
    #[error("this signature covers the content, which is not at hand")]
    Content,
    /// The credential has no such part.
    #[error("the credential has no `{0}`")]
    Part(String),
    /// A part is not a key in the form that the recipe describes.
    #[error("the `{0}` of the credential is not in the form of such a key")]
    Key(String),
    /// A text in the request is not in the form that the recipe decodes.
    #[error("a text of the request cannot be decoded for signing")]
    Undecodable,
    /// A place cannot take its value in this request.
    #[error("`{0}` cannot take its value in this request")]
    Unfit(String),
    /// The request target cannot take the signature.
    #[error("the request target cannot take the signature")]
    Target,
    /// The time cannot be written in this form.
    #[error("the time cannot be written in the form of this signature")]
    Time,
}

impl Fault {
    /// The short code for refusals and audit records.
    pub fn reason(&self) -> ReasonCode {
        match self {
            Fault::Incomplete(_) => ReasonCode::SignatureIncomplete,
            Fault::Ambiguous(_) => ReasonCode::SignatureAmbiguous,
            Fault::Malformed(_) | Fault::Undecodable => ReasonCode::SignatureMalformed,
            Fault::Foreign(_) => ReasonCode::ForeignCredential,
            Fault::Mismatch => ReasonCode::SignatureMismatch,
            Fault::Forbidden(_) => ReasonCode::SignatureScope,
            Fault::Content => ReasonCode::SignatureContent,
            Fault::Part(_) | Fault::Key(_) => ReasonCode::SigningKey,
            Fault::Unfit(_) | Fault::Target | Fault::Time => ReasonCode::SigningUnfit,
        }
    }
}
