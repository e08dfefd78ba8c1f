//! Where the program tells what goes on inside it: standard error, as much of it as `RUST_LOG` asks
//! for.
//!
//! This is for the operator who looks for a fault. What was asked, decided and answered is in the
//! audit log.

use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Begins to write events to standard error; `unless_asked` is the level of our own where
/// `RUST_LOG` is not set, or is no list of targets and levels.
///
/// A second call changes nothing.
pub fn start(unless_asked: tracing::Level) {
    let asked = std::env::var("RUST_LOG").ok();
    let asked = asked.and_then(|asked| asked.parse::<Targets>().ok());
    let filter = asked.unwrap_or_else(|| Targets::new().with_target("gateway", unless_asked));
    let events = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_writer(std::io::stderr);
    // Fails only where events are written already, and then the first filter holds.
    let _ = tracing_subscriber::registry()
        .with(filter)
        .with(events)
        .try_init();
}
