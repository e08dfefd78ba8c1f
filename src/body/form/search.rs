//! Members of content that were found by name, and why there are none.

/// Why content cannot be read as the form it claims to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FormFault {
    /// It has a content coding.
    #[error("it has a content coding")]
    Coded,
    /// Its characters are neither UTF-8 nor ASCII.
    #[error("it has another charset than UTF-8")]
    Charset,
    /// It is not JSON.
    #[error("it is no JSON")]
    Json,
    /// It has a credential, and readers could disagree about its place.
    #[error("readers may disagree about a credential in it")]
    Disputed,
    /// A member that may occur once occurs twice, or is not text.
    #[error("a member that may stand in it once stands in it twice, or is not text")]
    Twice,
}

/// A member that was found.
pub struct Member {
    /// Its name, in the reading that was asked for.
    pub name: String,
    /// Its value; `None` if that is not text, or is not read.
    pub value: Option<String>,
}
