//! The values of a recipe: the texts that differ from request to request.

use super::canonical::Selection;
use super::components::Components;
use super::nonce::NonceFormat;
use super::template::Template;
use super::timestamp::TimeFormat;

/// A text that is written into a request, or read from one that a client signed.
#[derive(Debug, Clone)]
pub(super) struct Value {
    pub(super) name: String,
    pub(super) kind: ValueKind,
    /// How to parse it from another value that contains it.
    pub(super) read: Option<Template>,
}

/// Where a value comes from when we sign; when a client has signed, it is parsed from its place.
#[derive(Debug, Clone)]
pub(super) enum ValueKind {
    /// The gateway's clock, set back by this many seconds for services that accept no time ahead of
    /// their own.
    Time {
        form: TimeFormat,
        back: u32,
    },
    /// The client's expiry, but at most this many seconds from now.
    Expiry {
        form: TimeFormat,
        longest: u32,
    },
    Nonce(NonceFormat),
    /// The fields that the client signed, and the fields that must be signed.
    Fields {
        wanted: Selection,
        separator: String,
    },
    /// All parameters of the query.
    Parameters {
        lower: bool,
    },
    /// The client's own: one of these, or, if there are none, a word that may also contain these
    /// characters.
    Kept {
        among: Vec<String>,
        letters: String,
    },
    /// Computed from the request.
    Made(Template),
    /// The components that an RFC 9421 signature covers, with its parameters.
    Components(Components),
}

impl ValueKind {
    /// Whether it is new in each signature and needs nothing from the client.
    pub(super) fn is_new(&self) -> bool {
        matches!(
            self,
            ValueKind::Time { .. } | ValueKind::Expiry { .. } | ValueKind::Nonce(_)
        )
    }
}
