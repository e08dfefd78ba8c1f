//! The destinations of exported records, and their format.

use std::path::PathBuf;

use gateway_credential::SecretRef;
use gateway_message::Origin;
use http::HeaderName;
use rustls::pki_types::CertificateDer;

/// One destination of the audit log's records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportSettings {
    /// The server.
    pub server: Origin,
    /// The path of its URL, without a slash at the end.
    pub path: String,
    /// The format of the records.
    pub format: ExportFormat,
    /// The secret that the server requires.
    pub token: Option<SecretRef>,
    /// The field that holds the bare token. Without it, `authorization: Bearer TOKEN`.
    pub token_field: Option<HeaderName>,
    /// The roots to trust, instead of the system's.
    pub roots: Vec<CertificateDer<'static>>,
    /// The files that hold the roots.
    pub files: Vec<PathBuf>,
}

impl ExportSettings {
    /// Whether the other settings have the same format and the same destination.
    pub fn is_as(&self, other: &Self) -> bool {
        let key = |one: &Self| (one.server.clone(), one.path.clone(), one.format);
        key(self) == key(other)
    }
}

/// A format of exported records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportFormat {
    /// OTLP/HTTP with JSON, to `/v1/logs` and `/v1/traces`.
    Otlp {
        /// Each record as a log.
        logs: bool,
        /// Each exchange as a span.
        traces: bool,
    },
    /// Events of OCSF, one per line.
    Ocsf,
}

impl ExportFormat {
    /// The format's name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Otlp { .. } => "otlp",
            Self::Ocsf => "ocsf",
        }
    }
}
