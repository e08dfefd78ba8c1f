//! Phantoms: the texts that a session holds in place of its secrets, with the same prefix, length,
//! alphabet and shape.

mod draw;
mod finder;
mod issue;
mod jwt;
mod kept;
mod known;
mod phantoms;
mod registry;
mod shape;
mod slots;
mod temporary;
mod text;
mod written;

pub use draw::PhantomKey;
pub use finder::{Form, PhantomMatch};
pub use issue::{Issue, PhantomFailure};
pub use kept::{ChangedShape, KeptShapes};
pub use phantoms::Phantoms;
pub use registry::Registry;
pub use shape::{Shape, ShapeMalformed};
pub use temporary::TemporaryPhantoms;
pub use text::Phantom;

#[cfg(test)]
mod tests;
