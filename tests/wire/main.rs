//! The attack matrix: rows of the threat catalogue, sent byte by byte to the real program on every
//! listener.
//!
//! docs/threats.md maps rows to tests. The tests share one rig and run one after another, each
//! followed by the invariants of `Rig::settle`.

#[path = "../rig/mod.rs"]
mod rig;

mod aws;
mod bounds;
mod change;
mod content;
mod dial;
mod echoes;
mod foreign;
mod framing;
mod http2;
mod identity;
mod paths;
mod pauses;
mod phantoms;
mod policy;
mod reach;
mod reload;
mod renewed;
mod review;
mod revoke;
mod shares;
mod shown;
mod signing;
mod verdicts;

use std::process::ExitCode;

use rig::Rig;

/// A named case.
type Row = (&'static str, fn(&Rig));

/// Names the cases of a file.
macro_rules! rows {
    ($($name:ident),* $(,)?) => {
        pub const ROWS: &[crate::Row] = &[$((stringify!($name), $name)),*];
    };
}
pub(crate) use rows;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "__relay") {
        return rig::relay::run();
    }
    let all = [
        aws::ROWS,
        dial::ROWS,
        shown::ROWS,
        echoes::ROWS,
        foreign::ROWS,
        framing::ROWS,
        http2::ROWS,
        identity::ROWS,
        paths::ROWS,
        pauses::ROWS,
        bounds::ROWS,
        change::ROWS,
        content::ROWS,
        phantoms::ROWS,
        policy::ROWS,
        reach::ROWS,
        reload::ROWS,
        renewed::ROWS,
        review::ROWS,
        revoke::ROWS,
        shares::ROWS,
        signing::ROWS,
    ]
    .concat();
    if arguments.iter().any(|one| one == "--list") {
        all.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let exact = arguments.iter().any(|one| one == "--exact");
    let filters: Vec<&String> = arguments
        .iter()
        .filter(|one| !one.starts_with('-'))
        .collect();
    let wanted = |name: &str| {
        filters.is_empty()
            || filters.iter().any(|f| {
                if exact {
                    *f == name
                } else {
                    name.contains(f.as_str())
                }
            })
    };
    run(all.into_iter().filter(|(name, _)| wanted(name)).collect())
}

fn run(rows: Vec<Row>) -> ExitCode {
    let rig = Rig::start();
    let before = [&rig.served, &rig.sandboxed].map(rig::gate::Gate::burden);
    let mut failed = Vec::new();
    let count = rows.len();
    for (name, row) in rows {
        let started = std::time::Instant::now();
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            row(&rig);
            rig.settle();
        }));
        let took = started.elapsed().as_millis();
        match ended {
            Ok(()) => println!("test {name} ... ok ({took} ms)"),
            Err(_) => {
                println!("test {name} ... FAILED ({took} ms)");
                failed.push(name);
                rig.abandon();
            }
        }
    }
    let after = [&rig.served, &rig.sandboxed].map(rig::gate::Gate::burden);
    println!("\ndescriptors and KiB before {before:?}, after {after:?}");
    println!(
        "test result: {} passed; {} failed",
        count - failed.len(),
        failed.len()
    );
    failed.iter().for_each(|name| println!("    {name}"));
    if let Some(kept) = std::env::var_os("RIG_KEEP") {
        for gate in [&rig.served, &rig.sandboxed] {
            for file in [&gate.log, &gate.audit] {
                let name = file.file_name().expect("the rig named it");
                std::fs::copy(file, std::path::Path::new(&kept).join(name))
                    .expect("RIG_KEEP is a folder");
            }
        }
    }
    // I4: what thousands of hostile connections have left behind is within bounds.
    let is_bounded = (before.iter().zip(&after))
        .all(|(before, after)| after.0 < before.0 + 200 && after.1 < before.1 + 100 * 1024);
    if failed.is_empty() && is_bounded {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
