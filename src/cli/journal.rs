//! Where the program tells what goes on inside it: standard error, as much of it as `RUST_LOG` asks for.
//!
//! This is for the operator who looks for a fault. What was asked, decided and answered is in the audit log.

use tracing_subscriber::EnvFilter;

/// Begins to write events to standard error; `unless_asked` is the filter where `RUST_LOG` is not set, or is no filter.
///
/// A second call changes nothing.
pub fn start(unless_asked: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(unless_asked));
    // Fails only where events are written already, and then the first filter holds.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .try_init();
}
