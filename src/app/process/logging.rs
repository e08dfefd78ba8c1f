//! Writes the program's internal events to standard error, filtered by `RUST_LOG`.
//!
//! This is for operators who look for a fault. The audit log records what was requested, decided
//! and answered.

use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::app::terminal::standard_error::StandardError;

/// Starts to write events to standard error.
///
/// `unless_asked` is the level of the gateway's own events if `RUST_LOG` is not set or is invalid.
/// A second call changes nothing.
pub fn start(unless_asked: tracing::Level) {
    let asked = std::env::var("RUST_LOG").ok();
    let asked = asked.and_then(|asked| asked.parse::<Targets>().ok());
    let filter = asked.unwrap_or_else(|| Targets::new().with_target("gateway", unless_asked));
    let events = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .with_writer(|| StandardError);
    // Fails only if logging has already started. The first filter then stays.
    let _ = tracing_subscriber::registry()
        .with(filter)
        .with(events)
        .try_init();
}
