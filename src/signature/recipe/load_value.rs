//! Loads one value of a description.

use super::canonical::Selection;
use super::components::Components;
use super::loader::Loader;
use super::nonce::NonceFormat;
use super::raw::RawValue;
use super::timestamp::TimeFormat;
use super::value::ValueKind;

/// Loads the kind of a value.
pub(super) fn value(at: &str, raw: &RawValue, loader: &mut Loader) -> ValueKind {
    for mistake in mistakes_in(raw) {
        loader.wrong(at, mistake);
    }
    if let (Some(wanted), Some(algorithm), Some(longest)) =
        (&raw.components, &raw.algorithm, raw.longest_seconds)
    {
        return ValueKind::Components(Components {
            wanted: wanted.split_whitespace().map(str::to_owned).collect(),
            algorithm: algorithm.clone(),
            longest,
        });
    }
    if raw.separator.is_some() != raw.fields.is_some() {
        loader.wrong(at, "`fields` and `separator` go together");
    }
    if let Some(form) = raw.time.as_deref().or(raw.expiry.as_deref()) {
        return time(at, form, raw, loader);
    }
    if let Some(form) = &raw.nonce {
        if let Some(form) = NonceFormat::parse(form) {
            return ValueKind::Nonce(form);
        }
        loader.wrong(
            at,
            "a nonce is `hex N`, `alphanumeric N` (16 or more), `uuid`, `milliseconds` or `microseconds`",
        );
    }
    if let Some(fields) = &raw.fields {
        let wanted = loader.selection(at, fields);
        if wanted == Selection::default() {
            loader.wrong(at, "name the fields that must be signed");
        }
        let separator = raw.separator.clone().unwrap_or_default();
        return ValueKind::Fields { wanted, separator };
    }
    if let Some(parameters) = &raw.parameters {
        if !matches!(parameters.as_str(), "query" | "query-lower") {
            loader.wrong(at, "`parameters` is `query` or `query-lower`");
        }
        let lower = parameters == "query-lower";
        return ValueKind::Parameters { lower };
    }
    if let Some(made) = &raw.made {
        return ValueKind::Made(loader.template(at, made));
    }
    kept(at, raw, loader)
}

fn kept(at: &str, raw: &RawValue, loader: &mut Loader) -> ValueKind {
    let takes_letters = raw.kept.as_ref().is_some_and(Vec::is_empty);
    if raw.letters.is_some() && !takes_letters {
        loader.wrong(at, "`letters` goes with `kept = []`");
    }
    ValueKind::Kept {
        among: raw.kept.clone().unwrap_or_default(),
        letters: raw.letters.clone().unwrap_or_default(),
    }
}

fn time(at: &str, form: &str, raw: &RawValue, loader: &mut Loader) -> ValueKind {
    let Some(form) = TimeFormat::parse(form).filter(TimeFormat::is_readable) else {
        loader.wrong(
            at,
            "this is no form of time from which a moment can be read",
        );
        return ValueKind::Kept {
            among: Vec::new(),
            letters: String::new(),
        };
    };
    match raw.longest_seconds {
        Some(longest) => ValueKind::Expiry { form, longest },
        None => ValueKind::Time {
            form,
            back: raw.back_seconds.unwrap_or_default(),
        },
    }
}

/// The mistakes in the keys of a value: in the keys present, and in the keys that they require.
fn mistakes_in(raw: &RawValue) -> impl Iterator<Item = &'static str> {
    let kinds = [
        raw.time.is_some(),
        raw.expiry.is_some(),
        raw.nonce.is_some(),
        raw.fields.is_some(),
        raw.parameters.is_some(),
        raw.kept.is_some(),
        raw.made.is_some(),
        raw.components.is_some(),
    ];
    [
        (
            kinds.iter().filter(|kind| **kind).count() != 1,
            "a value is one of `time`, `expiry`, `nonce`, `fields`, `parameters`, `kept`, `made`, `components`",
        ),
        (
            raw.longest_seconds.is_some() != (raw.expiry.is_some() || raw.components.is_some()),
            "`longest_seconds` goes with `expiry` or `components`, and they with it",
        ),
        (
            raw.back_seconds.is_some() && raw.time.is_none(),
            "`back_seconds` goes with `time`",
        ),
        (
            raw.algorithm.is_some() != raw.components.is_some(),
            "`components` and `algorithm` go together",
        ),
    ]
    .into_iter()
    .filter_map(|(wrong, what)| wrong.then_some(what))
}
