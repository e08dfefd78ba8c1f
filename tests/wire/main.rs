//! The attack matrix: rows of the threat catalogue, sent byte by byte to the real program on every
//! listener.
//!
//! docs/threats.md maps rows to tests. Each row is followed by the invariants of `Rig::settle`.

#[path = "../rig/addresses.rs"]
mod addresses;
#[path = "../rig/arrivals.rs"]
mod arrivals;
#[path = "../rig/mod.rs"]
mod rig;

mod answers;
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
mod kept;
mod logins;
mod own_secrets;
mod paths;
mod pauses;
mod phantoms;
mod places;
mod policy;
mod pushes;
mod reach;
mod reload;
mod renewed;
mod repeats;
mod review;
mod revoke;
mod shares;
mod shown;
mod signing;
mod verdicts;
mod websockets;

use std::collections::VecDeque;
use std::process::ExitCode;
use std::sync::{Mutex, RwLock};

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
        answers::ROWS,
        aws::ROWS,
        dial::ROWS,
        shown::ROWS,
        echoes::ROWS,
        foreign::ROWS,
        framing::ROWS,
        http2::ROWS,
        identity::ROWS,
        kept::ROWS,
        logins::ROWS,
        own_secrets::ROWS,
        paths::ROWS,
        pauses::ROWS,
        bounds::ROWS,
        change::ROWS,
        content::ROWS,
        phantoms::ROWS,
        places::ROWS,
        policy::ROWS,
        pushes::ROWS,
        websockets::ROWS,
        reach::ROWS,
        reload::ROWS,
        renewed::ROWS,
        repeats::ROWS,
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

/// Runs the rows on several rigs at once, since most rows wait more than they compute.
fn run(rows: Vec<Row>) -> ExitCode {
    let count = rows.len();
    let rigs = RIGS.min(count.max(1));
    let waiting = Mutex::new(VecDeque::from(rows));
    let ended: Vec<Ended> = std::thread::scope(|scope| {
        let rigs: Vec<_> = (0..rigs)
            .map(|_| scope.spawn(|| on_a_rig(&waiting)))
            .collect();
        let ended = rigs.into_iter().map(|rig| rig.join());
        ended.map(|ended| ended.expect("a rig ends")).collect()
    });
    let failed: Vec<&str> = ended
        .iter()
        .flat_map(|ended| &ended.failed)
        .copied()
        .collect();
    println!(
        "\ntest result: {} passed; {} failed",
        count - failed.len(),
        failed.len()
    );
    failed.iter().for_each(|name| println!("    {name}"));
    if failed.is_empty() && ended.iter().all(|ended| ended.is_bounded) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// How many rigs there are. Each has a name server, origins, and two gateways of its own.
const RIGS: usize = 3;

/// What the rows on one rig came to.
struct Ended {
    failed: Vec<&'static str>,
    /// I4: what thousands of hostile connections have left behind is within bounds.
    is_bounded: bool,
}

/// Held to read by each row that others may run beside.
static BESIDE: RwLock<()> = RwLock::new(());

/// Takes rows, one after another, until none waits.
fn on_a_rig(waiting: &Mutex<VecDeque<Row>>) -> Ended {
    let rig = Rig::start();
    let before = [&rig.served, &rig.sandboxed].map(rig::gate::Gate::burden);
    let mut failed = Vec::new();
    let next = || waiting.lock().expect("nobody panics with it").pop_front();
    while let Some((name, row)) = next() {
        // What measures moments has the machine for itself.
        let by_itself = name.contains("_within_") || name.contains("_without_a_wait");
        let _beside = (!by_itself).then(|| BESIDE.read().expect("nobody panics with it"));
        let _alone = by_itself.then(|| BESIDE.write().expect("nobody panics with it"));
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
    println!("descriptors and KiB before {before:?}, after {after:?}");
    keep(&rig);
    // One session's tokens of 16 KiB alone are searched for in forms of some 70 MiB, and rows of
    // compressed answers leave some 50 MiB each with the allocator. They may meet on one rig.
    let is_bounded = (before.iter().zip(&after))
        .all(|(before, after)| after.0 < before.0 + 200 && after.1 < before.1 + 224 * 1024);
    Ended { failed, is_bounded }
}

/// Copies the logs to the folder `RIG_KEEP`, if it is set.
fn keep(rig: &Rig) {
    let Some(kept) = std::env::var_os("RIG_KEEP") else {
        return;
    };
    for gate in [&rig.served, &rig.sandboxed] {
        for file in [&gate.log, &gate.audit] {
            let name = file.file_name().expect("the rig named it").display();
            let pid = gate.child.lock().expect("nobody panics with it").id();
            let name = format!("{pid}-{name}");
            std::fs::copy(file, std::path::Path::new(&kept).join(name))
                .expect("RIG_KEEP is a folder");
        }
    }
}
