//! Converts texts to Cedar values.

use cedar_policy::RestrictedExpression as Value;

/// A Cedar string.
pub(super) fn text(text: &str) -> Value {
    Value::new_string(text.to_owned())
}

/// A Cedar set of strings.
pub(super) fn texts(all: impl IntoIterator<Item = impl AsRef<str>>) -> Value {
    Value::new_set(all.into_iter().map(|one| text(one.as_ref())))
}
