//! Encodes a batch of records as requests.

use std::collections::VecDeque;

use gateway_audit::{ChainHead, Record};
use http::StatusCode;

use super::settings::{ExportFormat, ExportSettings};
use super::{ocsf, otlp};

/// Records under way. A request is removed once the server has accepted it or refused it for good.
pub(super) struct Batch {
    /// How many records there are.
    pub(super) records: u64,
    /// The head of the last record.
    pub(super) last: ChainHead,
    pub(super) requests: VecDeque<ExportRequest>,
    /// The status with which the server refused one of the requests for good.
    pub(super) refused: Option<StatusCode>,
}

/// One request of a batch.
#[derive(Clone)]
pub(super) struct ExportRequest {
    pub(super) path: String,
    pub(super) media_type: &'static str,
    pub(super) content: Vec<u8>,
}

impl Batch {
    /// Returns the requests for these records; `None` if there are none.
    pub(super) fn of(settings: &ExportSettings, records: &[Record]) -> Option<Self> {
        let requests = match settings.format {
            ExportFormat::Otlp { logs, traces } => {
                let logs = logs.then(|| ("/v1/logs", otlp::logs(records)));
                let traces = traces.then(|| otlp::traces(records)).flatten();
                let all = logs
                    .into_iter()
                    .chain(traces.map(|all| ("/v1/traces", all)));
                let request = |(path, content): (&str, serde_json::Value)| ExportRequest {
                    path: format!("{}{path}", settings.path),
                    media_type: "application/json",
                    content: content.to_string().into_bytes(),
                };
                all.map(request).collect()
            }
            ExportFormat::Ocsf => {
                let lines = records
                    .iter()
                    .map(|record| format!("{}\n", ocsf::event(record)));
                VecDeque::from([ExportRequest {
                    path: match settings.path.as_str() {
                        "" => "/".to_owned(),
                        path => path.to_owned(),
                    },
                    media_type: "application/x-ndjson",
                    content: lines.collect::<String>().into_bytes(),
                }])
            }
        };
        Some(Self {
            records: records.len() as u64,
            last: records.iter().rev().find_map(Record::head)?,
            requests,
            refused: None,
        })
    }
}
