//! How the path of a request ends before it reaches the origin.

use http::Response;

use super::answer_body::AnswerBody;
use super::refusal::Refusal;

/// Why a request goes no further.
pub(super) enum Ending {
    /// The gateway answers it itself.
    Answered(Box<Response<AnswerBody>>),
    /// It is refused.
    Refused(Refusal),
}

impl<R: Into<Refusal>> From<R> for Ending {
    fn from(refusal: R) -> Self {
        Self::Refused(refusal.into())
    }
}
