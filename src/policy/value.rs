//! Converts texts to Cedar values.

use cedar_policy::RestrictedExpression as Value;

/// Returns a Cedar string.
pub(super) fn text(text: &str) -> Value {
    Value::new_string(text.to_owned())
}

/// Returns a Cedar set of strings.
pub(super) fn texts(all: impl IntoIterator<Item = impl AsRef<str>>) -> Value {
    Value::new_set(all.into_iter().map(|one| text(one.as_ref())))
}
