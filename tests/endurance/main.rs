//! What happens to the real program under load, over time, and when something breaks;
//! docs/benchmarks.md has the figures.
//!
//! Each test starts `gateway serve` as an operator would, with policy, an injected credential,
//! scrubbing and the audit log, and is its client and its origin. They run one after the other,
//! since they measure, but for `absence`, which waits. `GATEWAY_ENDURANCE=full` makes them longer.

mod absence;
#[path = "../rig/addresses.rs"]
mod addresses;
mod adversity;
mod change;
mod client;
mod crash;
mod crowd;
mod fidelity;
mod origin;
mod program;
mod reload;
mod restarts;
mod revocation;
mod sessions;
mod stop;
mod volume;

use std::sync::{Mutex, MutexGuard, PoisonError};

use client::Client;
use origin::Origin;
use program::{Program, Setup};

static ALONE: Mutex<()> = Mutex::new(());

/// A gateway, an origin behind it, and a client in front of it.
struct Stage {
    gateway: Program,
    origin: Origin,
    client: Client,
    _alone: Option<MutexGuard<'static, ()>>,
}

impl Stage {
    fn new(setup: Setup) -> Self {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        Self {
            _alone: Some(alone),
            ..Self::beside_others(setup)
        }
    }

    /// For what measures nothing, and costs those that do next to nothing.
    fn beside_others(setup: Setup) -> Self {
        raise_open_files();
        let origin = Origin::start();
        let gateway = Program::start(&origin, setup);
        let client = Client::of(&gateway);
        Self {
            gateway,
            origin,
            client,
            _alone: None,
        }
    }
}

/// Runs one side of a test on a runtime of its own, for at most three minutes (fifteen in full
/// length).
fn run<T>(side: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let most = std::time::Duration::from_secs(if is_full() { 900 } else { 180 });
    runtime
        .block_on(async { tokio::time::timeout(most, side).await })
        .expect("the test came to its end in time")
}

fn is_full() -> bool {
    std::env::var("GATEWAY_ENDURANCE").is_ok_and(|length| length == "full")
}

fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: most,
            maximum: most,
        },
    )
    .unwrap();
}
