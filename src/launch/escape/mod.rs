//! A published list of escapes, which the program itself tries from inside the sandbox.
//!
//! Each probe attempts something that would be a way out and reports whether it was. Some need a
//! target on the host: the host's side of `gateway doctor --escape` creates it with [`plant()`],
//! and passes it in the variable [`TARGETS_VARIABLE`]. A probe without its target is not
//! applicable, never held.

use std::io::{self, Write};

use serde::Serialize;

mod files;
mod git;
mod inherited;
mod kernel;
mod network;
mod plant;
mod processes;
mod stores;

pub use plant::{Guard, Targets, plant};
pub use stores::STORES;

/// The variable that carries the [`Targets`] into the sandbox, as JSON.
pub const TARGETS_VARIABLE: &str = "GATEWAY_ESCAPE_TARGETS";

/// The first argument that tells `main` to act as the prober.
pub const SUBCOMMAND: &str = "__escape";

/// One way out, and how to try it.
#[derive(Clone, Copy)]
pub struct Probe {
    /// Its name: lower case, with hyphens, stable.
    pub name: &'static str,
    /// What it tries, in one sentence.
    pub tries: &'static str,
    run: fn(&Targets) -> Verdict,
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

/// Every probe, in the order in which they run.
pub fn probes() -> Vec<Probe> {
    [
        network::PROBES,
        processes::PROBES,
        inherited::PROBES,
        files::PROBES,
        git::PROBES,
        kernel::PROBES,
    ]
    .concat()
}

/// Runs every probe, writes one line for each, as text or as JSON, and returns whether all held.
///
/// Must be called by a process inside the sandbox, as the command or below it, with one thread. A
/// probe whose line cannot be written still counts.
pub fn run(out: &mut dyn Write, json: bool) -> bool {
    let targets = match std::env::var(TARGETS_VARIABLE) {
        Err(_) => Targets::default(),
        Ok(text) => match serde_json::from_str(&text) {
            Ok(targets) => targets,
            Err(_) => {
                let _ = writeln!(out, "{TARGETS_VARIABLE} is not what the host's side writes");
                return false;
            }
        },
    };
    let mut all_held = true;
    for probe in probes() {
        let verdict = (probe.run)(&targets);
        all_held &= !matches!(verdict, Verdict::Escaped(_));
        let _ = print(out, json, &probe, &verdict);
    }
    all_held
}

fn print(out: &mut dyn Write, json: bool, probe: &Probe, verdict: &Verdict) -> io::Result<()> {
    if json {
        #[derive(Serialize)]
        struct Line<'a> {
            name: &'a str,
            tries: &'a str,
            #[serde(flatten)]
            verdict: &'a Verdict,
        }
        serde_json::to_writer(
            &mut *out,
            &Line {
                name: probe.name,
                tries: probe.tries,
                verdict,
            },
        )?;
        return writeln!(out);
    }
    let (word, detail) = match verdict {
        Verdict::Held(detail) => ("held", detail),
        Verdict::Escaped(detail) => ("ESCAPED", detail),
        Verdict::NotApplicable(detail) => ("n/a", detail),
    };
    writeln!(
        out,
        "{word:<8} {:<24} {} ({detail})",
        probe.name, probe.tries
    )
}

/// Makes a system call by number; for calls that should fail.
///
/// Callers in this folder pass numbers, or addresses of values that live across the call and are as
/// large as the kernel may read or write there.
fn attempt(number: i64, arguments: [usize; 6]) -> io::Result<i64> {
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
fn all_refused<T>(
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

fn error_name(error: &io::Error) -> String {
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
    fn every_probe_has_its_own_name_and_a_sentence() {
        let mut names: Vec<_> = probes().iter().map(|probe| probe.name).collect();
        assert!(probes().iter().all(|probe| !probe.tries.is_empty()));
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }

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
