//! The process that serves: its runtime, threads, signals and end.

pub mod drain;
pub mod logging;
pub mod service_manager;
pub mod serving;
pub mod signals;
pub mod thread;
