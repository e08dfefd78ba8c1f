//! The logins of a run: those that flags, files and references name, and those of its agent.

use std::collections::BTreeSet;
use std::path::PathBuf;

use zeroize::Zeroizing;

use crate::login::stores;
use crate::process::serving;
use crate::{Failure, safe};
use gateway_config::{Config, keys, state};
use gateway_credential::login::{Login, LoginFile, LoginPlace, file};
use gateway_credential::{ConfiguredCredential, RowLogin, Stores, preset};
use gateway_files as files;
use gateway_message::OriginPattern;
use gateway_names::CredentialName;
use gateway_state::{LoginRows, RowName};

/// A login of the agent's profile that is not used, and the credential that replaces it.
pub struct UnusedLogin {
    /// The login.
    pub login: CredentialName,
    /// The credential that is bound to its hosts.
    pub instead: CredentialName,
}

/// Returns the logins that flags and the file name.
///
/// # Errors
/// Returns a [`Failure`] if there is no such login, or a credential is bound to its hosts.
pub fn named(config: &Config, stored: &[ConfiguredCredential]) -> Result<Vec<Login>, Failure> {
    let mut bound = stored.to_vec();
    let mut named = Vec::new();
    let is_own = |name: &&String| {
        config
            .logins
            .iter()
            .any(|own| own.login.name.as_str() == *name)
    };
    for name in config.named_logins.iter().filter(|name| !is_own(name)) {
        for login in known(config, name)? {
            if let Some(other) = beside(&bound, &login) {
                return Err(two(&login.name, &other));
            }
            bound.extend(login.stored());
            named.push(login);
        }
    }
    Ok(named)
}

/// Returns further logins whose tokens credentials refer to.
///
/// # Errors
/// Returns a [`Failure`] if there is no such login.
pub fn referred(config: &Config, others: &[Login]) -> Result<Vec<Login>, Failure> {
    let references = config.credentials.iter().flat_map(|one| one.references());
    let names: BTreeSet<&str> = references
        .filter_map(|reference| Some(reference.login_name()?.as_str()))
        .filter(|name| others.iter().all(|other| other.name.as_str() != *name))
        .collect();
    let found: Result<Vec<_>, _> = names.into_iter().map(|name| known(config, name)).collect();
    Ok(found?.concat())
}

/// Returns the logins of an agent, except those for hosts of a named or set credential. A login
/// counts before it exists: the agent may log in inside.
///
/// # Errors
/// Returns a [`Failure`] if there is no such login.
pub fn offered(
    config: &Config,
    stored: &[ConfiguredCredential],
) -> Result<(Vec<Login>, Vec<UnusedLogin>), Failure> {
    let mut bound = stored.to_vec();
    let (mut offered, mut unused) = (Vec::new(), Vec::new());
    let mut logins = Vec::new();
    for name in &config.offered_logins {
        logins.extend(known(config, name)?);
    }
    for login in logins {
        match beside(&bound, &login) {
            None => {
                bound.extend(login.stored());
                offered.push(login);
            }
            Some(instead) if instead != login.name && is_there(&login) => {
                let login = login.name;
                unused.push(UnusedLogin { login, instead });
            }
            Some(_) => {}
        }
    }
    Ok((offered, unused))
}

/// Returns the credentials of a login that the session may hold. If no file of a program shows a
/// login, a variable holds its phantom: `MCP_EXAMPLE_COM_TOKEN` for `mcp.example.com`.
pub fn stored(login: &Login) -> Vec<ConfiguredCredential> {
    let mut stored = login.stored();
    let mut access = stored.iter_mut();
    let access = access.find(|one| one.binding.credential == login.name);
    if let (LoginPlace::State, Some(access)) = (&login.place, access) {
        let name = login.name.as_str().to_ascii_uppercase();
        let name = name.replace(|letter: char| !letter.is_ascii_alphanumeric(), "_");
        access.binding.variables.push(format!("{name}_TOKEN"));
    }
    stored
}

/// Whether one of these logins is bound to one of these origins.
pub fn are_at(logins: &[Login], origins: &[OriginPattern]) -> bool {
    let mut tokens = logins.iter().flat_map(|login| &login.tokens);
    tokens.any(|token| {
        let mut bound = token.origins.iter();
        bound.any(|bound| origins.iter().any(|origin| origin.overlaps(bound)))
    })
}

/// Returns a credential that has a login's name, or is bound to one of its hosts.
fn beside(stored: &[ConfiguredCredential], login: &Login) -> Option<CredentialName> {
    let mut bindings = stored.iter().map(|one| &one.binding);
    let found = bindings.find(|binding| {
        let is_named_so = binding.credential == login.name;
        is_named_so || are_at(std::slice::from_ref(login), &binding.origins)
    });
    found.map(|binding| binding.credential.clone())
}

/// Whether a person has logged in.
pub fn is_there(login: &Login) -> bool {
    match &login.place {
        LoginPlace::File(file) => holds_tokens(file) || is_kept(login),
        LoginPlace::State => true,
    }
}

fn holds_tokens(of: &LoginFile) -> bool {
    let text = files::shown(&of.path, MOST_MIB).map(Zeroizing::new);
    let tokens = text.map(|text| file::read(of, text.as_bytes()));
    matches!(tokens, Ok(Ok(Some(_))))
}

/// Returns the files of these logins that are not at their usual places in the home. The usual
/// places are hidden anyway.
pub fn moved_files(logins: &[Login]) -> impl Iterator<Item = PathBuf> {
    let home = state::home().unwrap_or_default();
    let files = logins.iter().filter_map(|login| match &login.place {
        LoginPlace::File(file) => Some(file),
        LoginPlace::State => None,
    });
    let files = files.filter(move |file| file.path != home.join(&file.inside));
    files.map(|file| file.path.clone())
}

/// The largest file of a login that is read.
pub const MOST_MIB: u64 = 1;

/// Whether the gateway's state has the login. The state precedes the file of its program.
pub fn is_kept(login: &Login) -> bool {
    let rows = state::logins_database().map(|at| LoginRows::at(&at));
    rows.is_some_and(|rows| rows.has(&RowName::kept(login.name.clone())))
}

/// Returns the logins of a name: a program may be logged in at several hosts, with a login
/// `NAME-HOST` for each.
fn known(config: &Config, name: &str) -> Result<Vec<Login>, Failure> {
    let home = state::home().ok_or_else(|| {
        let what = format!("the login `{}` needs your home directory", safe(name));
        Failure::new(what).because("HOME is not set")
    })?;
    let at_home = |one: &preset::PresetLogin| {
        let what = || format!("the login `{}` cannot be used", one.name);
        one.at_home(&home).map_err(|error| {
            Failure::usage(what())
                .because(error.to_string())
                .next("or run without it: `--no-lend`")
        })
    };
    if let Some(preset) = preset::login_named(name) {
        return at_home(preset);
    }
    let mut found = Vec::new();
    for preset in preset::logins() {
        let rest = name.strip_prefix(preset.name.as_str());
        if rest.is_some_and(|rest| rest.starts_with('-')) {
            found.extend(at_home(preset)?);
        }
    }
    found.extend(kept(config)?);
    found.retain(|login| login.name.as_str() == name);
    if found.is_empty() {
        Err(unknown(name))
    } else {
        Ok(found)
    }
}

/// Returns the logins in the state that no preset knows.
///
/// # Errors
/// Returns a [`Failure`] if they cannot be read.
fn kept(config: &Config) -> Result<Vec<Login>, Failure> {
    let rows = state::logins_database().map(|at| LoginRows::at(&at));
    // The names of rows are readable without a key.
    let names = rows.map_or(Ok(Vec::new()), |rows| rows.names());
    let names = names.map_err(|error| unread(&error))?;
    let is_known = |login: &CredentialName| preset::login_named(login.as_str()).is_some();
    let is_own = |row: &RowName| row.grant.is_none() && !is_known(&row.login);
    if !names.iter().any(is_own) {
        return Ok(Vec::new());
    }
    // This needs a thread: a reload is on a runtime already.
    let read = std::thread::scope(|scope| scope.spawn(|| rows_of(config, is_own)).join());
    let rows = read.map_err(|_| Failure::new("the kept logins cannot be read"))??;
    Ok(rows.into_iter().map(|row| row.login).collect())
}

fn rows_of(config: &Config, is_own: impl Fn(&RowName) -> bool) -> Result<Vec<RowLogin>, Failure> {
    let settings = stores::settings(config, &[], |_| None)?;
    let logins = Stores::new([]).with_logins(settings, None).logins();
    let rows = async { logins.rows(is_own).await };
    let rows = serving::runtime()?.block_on(rows);
    let rows = rows.map_err(|error| unread(&error))?.into_iter();
    rows.collect::<Result<_, _>>()
        .map_err(|error| unread(&error))
}

/// Returns the failure to read stored logins. Its cause says what to do.
fn unread(error: &dyn std::error::Error) -> Failure {
    Failure::of("the kept logins cannot be read", error).next("or run without them: `--no-lend`")
}

fn unknown(name: &str) -> Failure {
    let names = || preset::logins().map(|login| login.name.as_str());
    let failure = Failure::usage(format!("there is no login `{}`", safe(name)))
        .because(format!("there are {}", gateway_names::join(names(), ", ")));
    match keys::nearest(name, names()) {
        Some(near) => failure.next(format!("did you mean `{near}`?")),
        None => failure,
    }
}

fn two(login: &CredentialName, other: &CredentialName) -> Failure {
    Failure::usage(format!(
        "the login `{login}` and `{other}` are for the same host"
    ))
    .because("the command would have two credentials for one request")
    .next("leave one of them out, or limit `origins` of the `[[credential]]`")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use gateway_launch::hide;

    #[test]
    fn the_file_of_every_login_is_hidden_where_it_is() {
        let home = Path::new("/nonexistent");
        for login in preset::logins().flat_map(|one| one.at_home(home).unwrap()) {
            let LoginPlace::File(file) = &login.place else {
                continue;
            };
            let mut hidden = hide::IN_HOME.iter();
            let is_hidden = hidden.any(|name| file.inside.starts_with(name));
            assert!(is_hidden, "{}", file.inside.display());
        }
    }
}
