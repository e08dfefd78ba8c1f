//! A published list of escapes, which the program itself tries from inside the sandbox.
//!
//! Each probe attempts something that would be a way out and reports whether it was. Some need a
//! target on the host. The host's side of `gateway doctor --escape` creates it with
//! [`Fixtures::plant`], and passes it in the variable [`TARGETS_VARIABLE`]. A probe without its
//! target counts as not applicable, never as held.

use std::io::{self, Write};

use serde::Serialize;

mod files;
mod fixtures;
mod git;
mod greeter;
mod inherited;
mod kernel;
mod network;
mod ports;
mod probe;
mod processes;
mod sockets;
mod stores;
mod targets;
mod unix_sockets;

pub use fixtures::Fixtures;
pub use probe::{Probe, Verdict};
pub use stores::STORES;
pub use targets::{OpenedPorts, Targets};

/// The variable that carries the [`Targets`] into the sandbox, as JSON.
pub const TARGETS_VARIABLE: &str = "GATEWAY_ESCAPE_TARGETS";

/// The first argument that tells `main` to act as the prober.
pub const SUBCOMMAND: &str = "__escape";

/// Every probe, in the order in which they run.
pub fn probes() -> Vec<Probe> {
    [
        network::PROBES,
        ports::PROBES,
        sockets::PROBES,
        unix_sockets::PROBES,
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
}
