//! Content as it streams: decodes its codings, limits and counts its length, and buffers it only if
//! a signature or a form needs that.

mod budget;
mod coding;
mod content;
mod decode;
mod decompress;
pub mod fact;
mod form;
mod hold;
mod limit;
#[cfg(test)]
mod mock;
mod transform;

pub use budget::ask_for_affordable;
pub use coding::{Coding, Error};
pub use content::{Content, Meter};
pub use decode::{DecodeBody, DecodeFault};
pub use decompress::{Decoder, Step};
pub use form::{FormFault, FormKind};
pub use hold::{Held, HoldBudget, HoldFault, Share};
pub use limit::Limit;
#[cfg(test)]
pub(crate) use mock::MockBody;
pub use transform::{BodyTransform, ContentFault, TransformFault};
