//! Content as it streams: decodes its codings, limits and counts its length, and buffers it only if
//! a signature or a form needs that.

#![cfg_attr(not(test), deny(clippy::unwrap_used))]
#![forbid(unsafe_code)]

mod budget;
mod coding;
mod content;
mod decode;
pub mod fact;
mod form;
mod hold;
mod limit;
mod recode;
#[cfg(any(test, feature = "test-support"))]
mod script;
mod undo;

pub use budget::ask_for_affordable;
pub use coding::Coding;
pub use content::{Content, Gate, Meter, TrailerFilter};
pub use decode::{DecodeBody, DecodeFault};
pub use form::{FormFault, FormKind};
pub use hold::{Held, HoldBudget, HoldFault, Share};
pub use limit::Limit;
pub use recode::{ContentFault, Recode, RecodeFault};
#[cfg(any(test, feature = "test-support"))]
pub use script::Script;
pub use undo::{Decoder, Step};

/// Why content could not be decoded to its identity form.
///
/// No variant contains bytes of the message: a label may itself be a reflected secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// `Content-Encoding` names a coding that cannot be decoded here, or is not a list of tokens.
    #[error("content coding is not one of gzip, deflate, br, zstd")]
    UnknownCoding,
    /// More codings are stacked than are decoded ([`Coding::MOST`]).
    #[error("more than {} content codings are stacked", Coding::MOST)]
    TooManyCodings,
    /// The content does not match its label, is damaged, or needs a window above the coding's
    /// bound.
    #[error("content is not valid {0}")]
    Corrupt(Coding),
    /// The content ended inside the coded form.
    #[error("content ended inside its {0} form")]
    Truncated(Coding),
    /// Bytes follow the end of the coded form.
    #[error("bytes follow the end of the {0} form")]
    Trailing(Coding),
    /// The identity form is longer than the limit.
    #[error("content is longer than {0}")]
    TooLong(Limit),
}
