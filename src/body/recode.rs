//! Content that is transformed or checked in transit, piece by piece, in constant memory.

use bytes::Bytes;

use gateway_names::ReasonCode;

/// Changes or checks content as it streams.
///
/// The output must end only where [`Recode::end`] has accepted it. A fault cuts the stream, so the
/// origin never mistakes what was sent for the whole.
pub trait Recode: Send + Sync {
    /// Takes a piece, and outputs what may be forwarded now.
    ///
    /// # Errors
    /// [`RecodeFault`] by cause; nothing more is forwarded then.
    fn piece(&mut self, piece: Bytes, out: &mut Vec<Bytes>) -> Result<(), RecodeFault>;

    /// Ends the content: outputs what was withheld.
    ///
    /// # Errors
    /// [`RecodeFault`] if it ended too early or is not what was announced.
    fn end(&mut self, out: &mut Vec<Bytes>) -> Result<(), RecodeFault>;
}

/// Why content was cut. Contains no text of the content.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct RecodeFault {
    /// The reason code in refusals and audit.
    pub reason: ReasonCode,
    /// What is wrong, for a person.
    pub text: String,
}

/// Why the content of a request broke off on its way to the origin.
#[derive(Debug, thiserror::Error)]
pub enum ContentFault {
    /// The client's side failed.
    #[error("the client's content broke off")]
    Client(#[source] hyper::Error),
    /// The content is not what it must be.
    #[error(transparent)]
    Recode(#[from] RecodeFault),
}

impl RecodeFault {
    /// The fault that caused an error of the connection that carried the content, if there is one.
    #[must_use]
    pub fn behind<'e>(error: &'e (dyn std::error::Error + 'static)) -> Option<&'e Self> {
        let mut error = Some(error);
        while let Some(one) = error {
            if let Some(ContentFault::Recode(fault)) = one.downcast_ref::<ContentFault>() {
                return Some(fault);
            }
            error = one.source();
        }
        None
    }
}
