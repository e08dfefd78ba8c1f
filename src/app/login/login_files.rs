//! The files that log programs in: copies of the user's files, with phantoms.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use crate::Failure;
use crate::login::run_logins;
use crate::login::run_logins::MOST_MIB;
use gateway_credential::login::{Login, LoginFile, LoginPlace, TokenKind, file};
use gateway_files as files;
use gateway_launch::home_files::HomeFile;
use gateway_session::phantom::Phantoms;

/// Returns a session's copies of these logins' files, for a home. A program without a login outside
/// gets no file.
///
/// # Errors
/// Returns a [`Failure`] that names the file that cannot be read.
pub fn of(logins: &[Login], phantoms: &Phantoms) -> Result<Vec<HomeFile>, Failure> {
    let mut by_file: BTreeMap<&Path, Vec<(&Login, &LoginFile)>> = BTreeMap::new();
    for login in logins {
        if let LoginPlace::File(file) = &login.place {
            by_file.entry(&file.path).or_default().push((login, file));
        }
    }
    let mut copies = Vec::new();
    for (path, mut logins) in by_file {
        let text = if path.exists() {
            let text = files::shown(path, MOST_MIB).map_err(|error| unread(path, &error))?;
            Some(Zeroizing::new(text))
        } else {
            None
        };
        let text = text.as_ref().map(|text| text.as_bytes());
        let mut unreadable = None;
        let mut is_in = |of| match text.map(|text| file::read(of, text)) {
            Some(Ok(tokens)) => tokens.is_some(),
            Some(Err(error)) => unreadable.replace(error).is_some(),
            None => false,
        };
        logins.retain(|(login, of)| is_in(of) || run_logins::is_kept(login));
        if let Some(error) = unreadable {
            return Err(unread(path, &error));
        }
        let inside = logins.first().map(|(_, file)| file.inside.clone());
        let shown = logins.iter().map(|(login, file)| {
            let phantom = |kind: TokenKind| {
                let phantom = phantoms.of(&login.credential(kind))?;
                Some(phantom.reveal().to_owned())
            };
            (*file, phantom)
        });
        let shown = file::show_all(shown, text);
        let shown = shown.map_err(|error| unread(path, &error))?;
        copies.extend(
            inside
                .zip(shown)
                .map(|(path, content)| HomeFile { path, content }),
        );
    }
    Ok(copies)
}

/// Returns where `serve` writes the copy of a file of the home: next to the phantom file, as
/// `phantoms.env.claude-.credentials.json`. It makes no folder there, which may be the workload's.
pub fn beside(env_file: &Path, of_home: &Path) -> PathBuf {
    let name = of_home.to_string_lossy().replace('/', "-");
    let mut beside = env_file.as_os_str().to_owned();
    beside.push(".");
    beside.push(name.trim_start_matches('.'));
    beside.into()
}

fn unread(path: &Path, error: &dyn std::error::Error) -> Failure {
    Failure::of(
        format!("the login in `{}` cannot be used", path.display()),
        error,
    )
    .next("or run without it: `--no-lend`")
}
