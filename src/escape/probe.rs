//! What a probe may report, and helpers for attempts that should fail.

use std::fs::{self, FileType};
use std::io;
use std::path::Path;

use serde::Serialize;

/// The result of a probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", content = "detail", rename_all = "snake_case")]
pub enum Verdict {
    /// The sandbox held, and how that was seen.
    Held(String),
    /// It did not, and what got out.
    Escaped(String),
    /// There was nothing to try here, and why.
    NotApplicable(String),
}

/// Makes a system call by number; for calls that should fail.
///
/// The arguments are numbers, or addresses of values. Those values live across the call and are as
/// large as the kernel may read or write there.
pub fn call(number: i64, arguments: &[usize]) -> io::Result<i64> {
    let mut all = [0; 6];
    all[..arguments.len()].copy_from_slice(arguments);
    let [a, b, c, d, e, f] = all;
    // SAFETY: see the doc comment; no call here hands out memory or descriptors that Rust values
    // own.
    let result = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// The address of a value, for [`call`].
pub fn address<T: ?Sized>(value: &T) -> usize {
    std::ptr::from_ref(value).cast::<()>() as usize
}

/// Held if every one of these calls fails.
pub fn calls_refused(calls: &[(&str, i64, &[usize])]) -> Verdict {
    let calls = calls.iter();
    all_refused(calls.map(|(name, number, arguments)| (*name, call(*number, arguments))))
}

/// Held if the attempt fails on every path.
pub fn paths_refused<P: AsRef<Path>, T>(
    paths: impl IntoIterator<Item = P>,
    attempt: impl Fn(&Path) -> io::Result<T>,
) -> Verdict {
    let attempts = paths.into_iter().map(|path| {
        let path = path.as_ref();
        (path.display().to_string(), attempt(path))
    });
    all_refused(attempts)
}

/// Held if every attempt failed; otherwise escaped, by the first that succeeded.
pub fn all_refused<T>(
    attempts: impl IntoIterator<Item = (impl Into<String>, io::Result<T>)>,
) -> Verdict {
    let mut seen = Vec::new();
    for (what, result) in attempts {
        match result.map_err(|error| error_name(&error)) {
            Ok(_) => return Verdict::Escaped(what.into()),
            Err(reason) if !seen.contains(&reason) => seen.push(reason),
            Err(_) => {}
        }
    }
    if seen.is_empty() {
        not_applicable("nothing there to try")
    } else {
        Verdict::Held(seen.join(", "))
    }
}

/// There was nothing to try.
pub fn not_applicable(why: impl Into<String>) -> Verdict {
    Verdict::NotApplicable(why.into())
}

/// The kernel's error in words.
pub fn error_name(error: &io::Error) -> String {
    let text = error.to_string().to_lowercase();
    text.split(" (os error").next().unwrap_or_default().into()
}

/// Succeeds where something was found.
pub fn found(is_found: bool) -> io::Result<()> {
    let absent = || io::Error::other("not there");
    is_found.then_some(()).ok_or_else(absent)
}

/// Finds a text in a file.
pub fn contains(path: &Path, text: &str) -> io::Result<()> {
    let content = fs::read(path)?;
    let mut places = content.windows(text.len().max(1));
    found(places.any(|place| place == text.as_bytes()))
}

/// Opens a file to write to it.
pub fn open_for_writing(path: &Path) -> io::Result<fs::File> {
    fs::OpenOptions::new().append(true).open(path)
}

/// The words of a list.
pub fn words(list: &'static str) -> impl Iterator<Item = &'static str> {
    list.split_ascii_whitespace()
}

/// Calls `visit` for each entry below `root`, up to a depth and number that a probe has time for.
pub fn walk(root: &Path, visit: &mut dyn FnMut(&Path, FileType)) {
    let mut left = 20_000_usize;
    let mut stack = vec![(root.to_owned(), 0)];
    while let Some((directory, depth)) = stack.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            left = left.saturating_sub(1);
            if left == 0 {
                return;
            }
            if kind.is_dir() && depth < 5 {
                stack.push((entry.path(), depth + 1));
            }
            visit(&entry.path(), kind);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_success_among_refusals_is_an_escape() {
        let refused = || Err(io::Error::from_raw_os_error(libc::EPERM));
        let verdict = all_refused([("a", refused()), ("b", Ok(())), ("c", refused())]);
        assert_eq!(verdict, Verdict::Escaped("b".into()));
        assert!(matches!(all_refused([("a", refused())]), Verdict::Held(_)));
        assert!(matches!(
            all_refused(std::iter::empty::<(String, io::Result<()>)>()),
            Verdict::NotApplicable(_)
        ));
    }

    #[test]
    fn a_text_is_found_in_a_file_that_has_it_and_in_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "before nonce after").unwrap();
        assert!(contains(&path, "nonce").is_ok());
        assert!(contains(&path, "other").is_err());
        assert!(contains(&folder.path().join("none"), "nonce").is_err());
    }
}
