//! Transforms or checks content in transit, piece by piece, in constant memory.

use bytes::Bytes;

use gateway_names::ReasonCode;

/// Changes or checks content as it streams.
///
/// The output must end only after [`BodyTransform::end`] has accepted it. A fault cuts the stream,
/// so the origin never mistakes a part for the whole.
pub trait BodyTransform: Send + Sync {
    /// Takes a piece, and outputs what may be forwarded now.
    ///
    /// # Errors
    /// [`TransformFault`] by cause. Nothing more is forwarded then.
    fn piece(&mut self, piece: Bytes, out: &mut Vec<Bytes>) -> Result<(), TransformFault>;

    /// Ends the content, and outputs the withheld bytes.
    ///
    /// # Errors
    /// [`TransformFault`] if the content ended too early, or is not what was announced.
    fn end(&mut self, out: &mut Vec<Bytes>) -> Result<(), TransformFault>;
}

/// Why content was cut off. Quotes none of the content.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct TransformFault {
    /// The reason code in refusals and audit.
    pub reason: ReasonCode,
    /// The fault, for a person.
    pub text: String,
}

impl TransformFault {
    pub(super) fn reason(&self) -> ReasonCode {
        self.reason
    }
}

/// Why the content of a request was cut off on its way to the origin.
#[derive(Debug, thiserror::Error)]
pub enum ContentFault {
    /// The client's side failed.
    #[error("the client's content broke off")]
    Client(#[source] hyper::Error),
    /// It was taken back from a connection that failed.
    #[error("the content is sent on another connection")]
    TakenBack,
    /// The content failed a check.
    #[error(transparent)]
    Transform(#[from] TransformFault),
}
