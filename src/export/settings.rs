//! Where records are exported to, and in which form.

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
    /// What is sent.
    pub format: ExportFormat,
    /// What the server must be shown.
    pub token: Option<SecretRef>,
    /// The field with the token, as it stands. Without it, `authorization: Bearer TOKEN`.
    pub token_field: Option<HeaderName>,
    /// The roots to trust, instead of the system's.
    pub roots: Vec<CertificateDer<'static>>,
    /// The files of the roots.
    pub files: Vec<PathBuf>,
}

impl ExportSettings {
    /// Whether the other one sends the same to the same place.
    pub fn is_as(&self, other: &Self) -> bool {
        let key = |one: &Self| (one.server.clone(), one.path.clone(), one.format);
        key(self) == key(other)
    }
}

/// A form of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportFormat {
    /// OTLP/HTTP with JSON, to `/v1/logs` and `/v1/traces`.
    Otlp {
        /// Each record as a log.
        logs: bool,
        /// Each exchange as a span.
        traces: bool,
    },
    /// Events of OCSF, one a line.
    Ocsf,
}

impl ExportFormat {
    /// Its name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Otlp { .. } => "otlp",
            Self::Ocsf => "ocsf",
        }
    }
}
