//! Reads the texts that configure the gateway.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gateway_launch::program;

use super::bad_file::{BadFile, Replaceable};
use super::consent::{Choice, Consent};
use super::text::shown;
use super::written::check_written;

thread_local! {
    /// Whether no text that this thread reads takes effect.
    static ONLY_SHOWN: Cell<bool> = const { Cell::new(false) };
}

/// Runs `done`, which puts no text that it reads in force, such as checking policies. Files that a
/// command could have written are readable meanwhile.
pub fn to_show<T>(done: impl FnOnce() -> T) -> T {
    let before = ONLY_SHOWN.replace(true);
    let done = done();
    ONLY_SHOWN.set(before);
    done
}

/// Reads a text file as [`shown`] does, to put it in force. If a command in a sandbox could have
/// written the file, its text must be exactly the text that a person allowed.
///
/// # Errors
/// Returns the cause as [`BadFile`].
pub fn read(path: &Path, most_mib: u64) -> Result<String, BadFile> {
    let text = shown(path, most_mib)?;
    if !ONLY_SHOWN.get() {
        judge(path, &text)?;
    }
    Ok(text)
}

/// Returns those files that a command in a sandbox could have written and whose text no person
/// allowed: the resolved path and the text of each.
pub fn unallowed(paths: impl IntoIterator<Item = PathBuf>) -> BTreeMap<PathBuf, String> {
    let found = paths.into_iter().filter_map(|path| {
        let text = shown(&path, LARGEST_MIB).ok()?;
        match judge(&path, &text) {
            Err(BadFile::NotAllowed { real, .. }) => Some((real, text)),
            _ => None,
        }
    });
    found.collect()
}

/// The largest size of a policy file.
const LARGEST_MIB: u64 = 16;

fn judge(path: &Path, text: &str) -> Result<(), BadFile> {
    let path = std::path::absolute(path)?;
    let Err(why) = check_written(&path) else {
        return Ok(());
    };
    let real = program::real(&path);
    // A link that a command could change may lead to any other file with an allowed text.
    let is_led = match &why {
        Replaceable::Command(written) => written.entry != real,
        Replaceable::Untold { .. } => path != real,
        _ => false,
    };
    let consent = Consent::of(&real)?;
    match consent.filter(|_| !is_led) {
        Some(consent) if consent.allows(text) => Ok(()),
        consent => Err(BadFile::NotAllowed {
            why,
            real,
            changed: consent.is_some_and(|one| one.choice == Choice::Allowed),
        }),
    }
}
