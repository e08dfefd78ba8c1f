//! The location of a fact.

use gateway_message::{FormName, Pointer};

/// Where a fact is in content.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Location {
    /// At this place in a JSON document.
    Json(Pointer),
    /// Under this name in a form (`application/x-www-form-urlencoded`).
    Form(FormName),
    /// The field with this name in a form in parts (`multipart/form-data`).
    Multipart(FormName),
    /// The whole content, as text.
    Text,
}
