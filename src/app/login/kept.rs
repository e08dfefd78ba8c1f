//! The logins that are kept in the state, and that no preset knows.

use crate::app::failure::Failure;
use crate::app::login::stores as login_stores;
use crate::app::process::serving;
use crate::config::{Config, state};
use crate::credential::login::Login;
use crate::credential::{RowLogin, Stores, preset};
use crate::names::CredentialName;
use crate::state::{LoginRows, RowName};

/// Returns them.
///
/// # Errors
/// Returns a [`Failure`] if they cannot be read.
pub(crate) fn kept(config: &Config) -> Result<Vec<Login>, Failure> {
    let rows = state::logins_folder().map(LoginRows::at);
    // Their names need no key.
    let names = rows.map_or(Ok(Vec::new()), |rows| rows.names());
    let names = names.map_err(|error| unread(&error))?;
    let is_known = |login: &CredentialName| preset::login_named(login.as_str()).is_some();
    let is_own = |row: &RowName| row.grant.is_none() && !is_known(&row.login);
    if !names.iter().any(is_own) {
        return Ok(Vec::new());
    }
    // On a thread of its own: a reload is on a runtime already.
    let read = std::thread::scope(|scope| scope.spawn(|| rows_of(config, is_own)).join());
    let rows = read.map_err(|_| Failure::new("the kept logins cannot be read"))??;
    Ok(rows.into_iter().map(|row| row.login).collect())
}

fn rows_of(config: &Config, is_own: impl Fn(&RowName) -> bool) -> Result<Vec<RowLogin>, Failure> {
    let settings = login_stores::settings(config, &[], |_| None)?;
    let logins = Stores::new([]).with_logins(settings, None).logins();
    let rows = async { logins.rows(is_own).await };
    let rows = serving::runtime()?.block_on(rows);
    let rows = rows.map_err(|error| unread(&error))?.into_iter();
    rows.collect::<Result<_, _>>()
        .map_err(|error| unread(&error))
}

/// The cause says what to do.
fn unread(error: &dyn std::error::Error) -> Failure {
    Failure::of("the kept logins cannot be read", error).next("or run without them: `--no-lend`")
}
