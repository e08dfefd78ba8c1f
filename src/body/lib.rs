//! Content as it streams: decodes its codings, limits and counts its length, and buffers it only if
//! a signature or a form needs that.

#![cfg_attr(not(test), deny(clippy::unwrap_used))]
#![forbid(unsafe_code)]

mod arriving;
mod budget;
mod coding;
mod content;
mod decode;
mod decompress;
pub mod digest;
mod document;
pub mod fact;
mod form;
mod hold;
mod limit;
#[cfg(any(test, feature = "test-support"))]
mod mock;
mod outgoing;
pub mod read;
mod transform;

pub use arriving::ArrivalCheck;
pub use budget::ask_for_affordable;
pub use coding::{Coding, Error};
pub use content::{Content, Meter};
pub use decode::{DecodeBody, DecodeFault};
pub use decompress::{Decoder, Step};
pub use document::{Document, Questions};
pub use form::{FormFault, FormKind, Member};
pub use hold::{HeldBody, HoldBudget, HoldFault, Share};
pub use limit::Limit;
#[cfg(any(test, feature = "test-support"))]
pub use mock::MockBody;
pub use outgoing::Outgoing;
pub use transform::{BodyTransform, ContentFault, TransformFault};
