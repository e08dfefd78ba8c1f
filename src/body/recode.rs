//! Content that is changed or checked on its way, piece by piece, in flat memory.

use bytes::Bytes;

use crate::names::ReasonCode;

/// Changes or checks content as it streams.
///
/// What is given out must end only where [`Recode::end`] has agreed: a fault cuts the stream, so
/// that the origin never takes what was sent for the whole.
pub trait Recode: Send + Sync {
    /// Takes a piece, and gives out what may go on by now.
    ///
    /// # Errors
    /// [`RecodeFault`] by cause; nothing more goes on then.
    fn piece(&mut self, piece: Bytes, out: &mut Vec<Bytes>) -> Result<(), RecodeFault>;

    /// The content is over: gives out what was held back.
    ///
    /// # Errors
    /// [`RecodeFault`] where it ended too early or is not what was announced.
    fn end(&mut self, out: &mut Vec<Bytes>) -> Result<(), RecodeFault>;
}

/// Why content went no further. No text of the content's is in it.
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
    /// The fault behind an error of the connection that was to carry the content, if there is one.
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
