//! Guards git repositories: the command cannot write what the user's own git reads and obeys
//! outside.
//!
//! git runs programs that its settings and hooks name, even at a mere `git status`. Each such name
//! in each repository of the projects becomes a read-only mount. Where the name does not exist yet,
//! an empty placeholder is created as the mount point, which [`super::after`] removes again. What a
//! commit writes stays writable.

mod guard;
mod index;
mod lookout;
mod named;
mod places;
mod repository;
mod seal;
mod settings;
mod words;

pub use guard::guard;
pub use lookout::{Aside, Lookout, set_forged_aside};
pub use named::{absent, own_words, present_above, present_in, used};
pub use places::{absent_submodules, is_bar, place_of_a_new_one};
pub use repository::{APART, GUARDED, Guarded, WRITTEN, is_placeholder, is_set_apart, outside};
pub use words::Word;
