//! The answers of token endpoints (RFC 6749 §5.1).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use percent_encoding::percent_decode_str;
use serde::Deserialize;
use zeroize::Zeroizing;

use super::Tokens;

/// The members of an answer. A doubled one is an error.
#[derive(Deserialize)]
struct GrantAnswer<'a> {
    #[serde(borrow)]
    access_token: Cow<'a, str>,
    #[serde(borrow, default)]
    refresh_token: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    id_token: Option<Cow<'a, str>>,
    #[serde(default)]
    expires_in: Option<Life>,
    #[serde(borrow, default)]
    scope: Option<Cow<'a, str>>,
}

/// How long a token lives, in seconds. Some say it as a text.
#[derive(Deserialize)]
#[serde(untagged)]
enum Life {
    Seconds(f64),
    Text(String),
}

impl Tokens {
    /// Reads an answer, in JSON or as a form. What it does not have stays as it was before.
    #[must_use]
    pub fn of_answer(content: &[u8], before: Option<&Self>) -> Option<Self> {
        let text = std::str::from_utf8(content).ok()?.trim_start();
        if text.starts_with('{') {
            return kept(serde_json::from_str(text).ok()?, before);
        }
        let mut values = BTreeMap::new();
        for pair in text.trim_end().split('&') {
            let (name, value) = pair.split_once('=')?;
            let spaced = value.replace('+', " ");
            let value = percent_decode_str(&spaced).decode_utf8().ok()?;
            if values.insert(name, value.into_owned()).is_some() {
                return None;
            }
        }
        let mut take = |name| values.remove(name).map(Cow::Owned);
        let answer = GrantAnswer {
            access_token: take("access_token")?,
            refresh_token: take("refresh_token"),
            id_token: take("id_token"),
            scope: take("scope"),
            expires_in: take("expires_in").map(|text| Life::Text(text.into_owned())),
        };
        kept(answer, before)
    }
}

/// The tokens of an answer, and those of before that it does not have.
fn kept(answer: GrantAnswer<'_>, before: Option<&Tokens>) -> Option<Tokens> {
    let text = |new: Option<Cow<'_, str>>| {
        let new = new.filter(|new| !new.is_empty());
        new.map(|new| Zeroizing::new(new.into_owned()))
    };
    let life = answer.expires_in.and_then(|life| match life {
        Life::Seconds(seconds) => Some(seconds),
        Life::Text(text) => text.parse().ok(),
    });
    let life = life.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let ends = |life| SystemTime::now().checked_add(life);
    Some(Tokens {
        access: text(Some(answer.access_token))?,
        refresh: text(answer.refresh_token).or_else(|| before?.refresh.clone()),
        id: text(answer.id_token).or_else(|| before?.id.clone()),
        expires: life.and_then(ends),
        scope: answer
            .scope
            .map(Cow::into_owned)
            .or_else(|| before?.scope.clone()),
        owner: before.and_then(|before| before.owner.clone()),
    })
}
