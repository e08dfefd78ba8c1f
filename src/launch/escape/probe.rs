//! What a probe is, what it may report, and helpers for calls that should fail.

use std::io;

use serde::Serialize;

use super::targets::Targets;

/// One way out, and how to try it.
#[derive(Clone, Copy)]
pub struct Probe {
    /// Its name: lower case, with hyphens, stable.
    pub name: &'static str,
    /// What it tries, in one sentence.
    pub tries: &'static str,
    pub(super) run: fn(&Targets) -> Verdict,
}

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
/// Callers in this folder pass numbers, or addresses of values. Those values live across the call
/// and are as large as the kernel may read or write there.
pub fn attempt(number: i64, arguments: [usize; 6]) -> io::Result<i64> {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: see the doc comment; no call here hands out memory or descriptors that Rust values
    // own.
    let result = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Held if every attempt failed; otherwise escaped, by the first that succeeded.
pub fn all_refused<T>(
    attempts: impl IntoIterator<Item = (impl Into<String>, io::Result<T>)>,
) -> Verdict {
    let mut seen = Vec::new();
    for (what, result) in attempts {
        match result {
            Ok(_) => return Verdict::Escaped(what.into()),
            Err(error) => {
                let reason = error_name(&error);
                if !seen.contains(&reason) {
                    seen.push(reason);
                }
            }
        }
    }
    match seen.is_empty() {
        true => Verdict::NotApplicable("nothing there to try".into()),
        false => Verdict::Held(seen.join(", ")),
    }
}

/// The kernel's error in words.
pub fn error_name(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error")
        .next()
        .unwrap_or_default()
        .to_lowercase()
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
}
