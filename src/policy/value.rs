//! Texts, as Cedar takes them.

use cedar_policy::RestrictedExpression as Value;

/// A text.
pub(super) fn text(text: &str) -> Value {
    Value::new_string(text.to_owned())
}

/// A set of texts.
pub(super) fn texts(all: impl IntoIterator<Item = impl AsRef<str>>) -> Value {
    Value::new_set(all.into_iter().map(|one| text(one.as_ref())))
}
