//! Exports the audit log's records as they are written: to OpenTelemetry (OTLP) as logs and traces,
//! and as events of OCSF.
//!
//! The log's file is the queue: a slow or dead collector blocks nothing, and receives the records
//! it missed once it is back.

#![cfg_attr(not(test), deny(clippy::unwrap_used))]
#![forbid(unsafe_code)]

mod attributes;
mod batch;
mod exporter;
mod ocsf;
mod otlp;
mod position;
mod sender;
mod settings;

pub use exporter::{ExportFailure, Exporter};
pub use ocsf::event;
pub use settings::{ExportFormat, ExportSettings};
