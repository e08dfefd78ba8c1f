//! The content of a row: a login and its tokens, as JSON.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use gateway_state::{GrantId, unix};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::login::{ClientSecret, Login, TokenKind, Tokens};

/// A row. Its secrets are borrowed from values that are wiped.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RowText<'t> {
    login: Cow<'t, Login>,
    /// The secret of the client, if it is stored nowhere else.
    #[serde(borrow)]
    secret: Option<Cow<'t, str>>,
    #[serde(borrow)]
    access: Cow<'t, str>,
    #[serde(borrow)]
    refresh: Option<Cow<'t, str>>,
    #[serde(borrow)]
    id: Option<Cow<'t, str>>,
    expires: Option<u64>,
    scope: Option<String>,
    owner: Option<String>,
    grant: Option<GrantId>,
}

/// Encodes the content of a row; `grant` is the session's grant that the row is for, if any.
pub(super) fn write(login: &Login, tokens: &Tokens, grant: Option<&GrantId>) -> Zeroizing<Vec<u8>> {
    let secret = login.issuer.as_ref();
    let secret = secret.and_then(|issuer| issuer.secret.as_ref());
    let row = RowText {
        login: Cow::Borrowed(login),
        secret: match secret {
            Some(ClientSecret::Known(text)) => Some(text.as_str().into()),
            _ => None,
        },
        access: tokens.access.as_str().into(),
        refresh: tokens.refresh.as_ref().map(|text| text.as_str().into()),
        id: tokens.id.as_ref().map(|text| text.as_str().into()),
        expires: tokens.expires.map(unix),
        scope: tokens.scope.clone(),
        owner: tokens.owner.clone(),
        grant: grant.or(tokens.grant.as_ref()).cloned(),
    };
    // Capacity for the whole text: a growing vector would leave copies behind.
    let texts = TokenKind::ALL.iter().filter_map(|kind| tokens.of(*kind));
    let room = texts.map(|text| text.len() * 2).sum::<usize>() + ROOM;
    let mut text = Zeroizing::new(Vec::with_capacity(room));
    // Writing texts and numbers to memory cannot fail.
    let _ = serde_json::to_writer(&mut *text, &row);
    text
}

/// Decodes a row's content; `None` if it is malformed.
pub(super) fn read(content: &[u8]) -> Option<(Login, Tokens)> {
    let row: RowText<'_> = serde_json::from_slice(content).ok()?;
    let wiped = |text: Cow<'_, str>| Zeroizing::new(text.into_owned());
    let end = |at| SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(at));
    let tokens = Tokens {
        access: wiped(row.access),
        refresh: row.refresh.map(wiped),
        id: row.id.map(wiped),
        expires: row.expires.and_then(end),
        scope: row.scope,
        owner: row.owner,
        grant: row.grant,
    };
    let mut login = row.login.into_owned();
    if let Some(issuer) = &mut login.issuer {
        issuer.secret = row.secret.map(|text| ClientSecret::Known(wiped(text)));
    }
    Some((login, tokens))
}

/// Capacity for everything except the tokens.
const ROOM: usize = 16 * 1024;
