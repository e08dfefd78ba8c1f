//! The process that serves: its runtime, threads, signals and end.

pub(crate) mod drain;
pub(crate) mod logging;
pub(crate) mod service_manager;
pub(crate) mod serving;
pub(crate) mod signals;
pub(crate) mod thread;
