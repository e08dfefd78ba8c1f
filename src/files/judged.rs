//! Reads the texts that the gateway obeys.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gateway_launch::program;

use super::consent::{Choice, Consent};
use super::text::shown;
use super::unfit::{Replaceable, Unfit};
use super::written::check_written;

thread_local! {
    /// Whether nothing that this thread reads is put in force.
    static ONLY_SHOWN: Cell<bool> = const { Cell::new(false) };
}

/// Does something that puts nothing in force of what it reads, such as checking policies. A file is
/// read then though a command could have written it.
pub fn to_show<T>(done: impl FnOnce() -> T) -> T {
    let before = ONLY_SHOWN.replace(true);
    let done = done();
    ONLY_SHOWN.set(before);
    done
}

/// Reads a text file as [`shown`] does, to obey it. If a command in a sandbox could ever have
/// written it, it must be the very text that a person allowed.
///
/// # Errors
/// Returns the cause as [`Unfit`].
pub fn read(path: &Path, most_mib: u64) -> Result<String, Unfit> {
    let text = shown(path, most_mib)?;
    if !ONLY_SHOWN.get() {
        judge(path, &text)?;
    }
    Ok(text)
}

/// Those of some files that a command in a sandbox could have written, and whose text nobody
/// allowed: where each is, and its text.
pub fn unallowed(paths: impl IntoIterator<Item = PathBuf>) -> BTreeMap<PathBuf, String> {
    let found = paths.into_iter().filter_map(|path| {
        let text = shown(&path, LARGEST_MIB).ok()?;
        match judge(&path, &text) {
            Err(Unfit::NotAllowed { real, .. }) => Some((real, text)),
            _ => None,
        }
    });
    found.collect()
}

/// As large as a policy file may be.
const LARGEST_MIB: u64 = 16;

fn judge(path: &Path, text: &str) -> Result<(), Unfit> {
    let path = std::path::absolute(path)?;
    let Err(why) = check_written(&path) else {
        return Ok(());
    };
    let real = program::real(&path);
    // A link that a command could change may lead to any other text that was allowed.
    let is_led = match &why {
        Replaceable::Command(written) => written.entry != real,
        Replaceable::Untold { .. } => path != real,
        _ => false,
    };
    let consent = Consent::of(&real)?;
    match consent.filter(|_| !is_led) {
        Some(consent) if consent.allows(text) => Ok(()),
        consent => Err(Unfit::NotAllowed {
            why,
            real,
            changed: consent.is_some_and(|one| one.choice == Choice::Allowed),
        }),
    }
}
