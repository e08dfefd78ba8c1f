//! Records as OTLP's JSON: each as a log, each exchange as a span.
//!
//! OTLP 1.x, <https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding>: ids are
//! hexadecimal, 64-bit numbers are strings, enums are numbers.

use gateway_audit::Record;
use gateway_names::hex;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::attributes::attributes;

/// The request to `/v1/logs`.
pub(super) fn logs(records: &[Record]) -> Value {
    let logs: Vec<Value> = records.iter().map(log).collect();
    let scope = json!({ "scope": scope(), "logRecords": logs });
    json!({ "resourceLogs": [{ "resource": resource(), "scopeLogs": [scope] }] })
}

/// The request to `/v1/traces`; `None` if none of the records is an exchange.
pub(super) fn traces(records: &[Record]) -> Option<Value> {
    let spans: Vec<Value> = records.iter().filter_map(span).collect();
    let scope = json!({ "scope": scope(), "spans": spans });
    let request = json!({ "resourceSpans": [{ "resource": resource(), "scopeSpans": [scope] }] });
    (!spans.is_empty()).then_some(request)
}

fn resource() -> Value {
    json!({ "attributes": [
        { "key": "service.name", "value": { "stringValue": "gateway" } },
        { "key": "service.version", "value": { "stringValue": env!("CARGO_PKG_VERSION") } },
    ] })
}

fn scope() -> Value {
    json!({ "name": "gateway.audit", "version": "1" })
}

fn log(record: &Record) -> Value {
    let refused = is_refused(record);
    let (severity, text) = if refused { (13, "WARN") } else { (9, "INFO") };
    let time = nanoseconds(record).to_string();
    let mut log = json!({
        "timeUnixNano": time, "observedTimeUnixNano": time,
        "severityNumber": severity, "severityText": text,
        "eventName": format!("gateway.{}", record.kind),
        "body": { "stringValue": sentence(record) },
        "attributes": attributes(record),
    });
    if let Some(trace) = Trace::of(record) {
        log["traceId"] = trace.trace.into();
        log["spanId"] = trace.span.into();
    }
    log
}

/// A one-line summary of a record.
fn sentence(record: &Record) -> String {
    let parts = [
        Some(&*record.kind),
        record.name.as_deref(),
        record.method.as_deref(),
        record.host.as_deref(),
        record.path.as_deref(),
        record.subject.as_deref(),
        record.reason.as_deref(),
    ];
    let parts: Vec<&str> = parts.into_iter().flatten().collect();
    parts.join(" ")
}

fn span(record: &Record) -> Option<Value> {
    let trace = Trace::of(record).filter(|_| record.kind == "exchange")?;
    let begins = nanoseconds(record);
    let ends = begins + u128::from(record.us.total.unwrap_or(0)) * 1_000;
    let mut span = json!({
        "traceId": trace.trace, "spanId": trace.span,
        // The name has few values: the method alone (semantic conventions for HTTP spans).
        "name": method(record),
        "kind": SERVER,
        "startTimeUnixNano": begins.to_string(), "endTimeUnixNano": ends.to_string(),
        "attributes": attributes(record),
        "status": {},
    });
    if is_refused(record) {
        span["status"] = json!({ "code": ERROR, "message": record.reason });
    }
    if let Some(parent) = trace.parent {
        span["parentSpanId"] = parent.into();
        span["flags"] = trace.flags.into();
    }
    Some(span)
}

fn method(record: &Record) -> &str {
    let method = record.method.as_deref().unwrap_or_default();
    METHODS
        .into_iter()
        .find(|known| *known == method)
        .unwrap_or("HTTP")
}

fn is_refused(record: &Record) -> bool {
    record.reason.is_some() || record.decision.as_deref() == Some("deny")
}

/// The wall-clock time of a record in nanoseconds since 1970; 0 if it has no readable time.
pub(super) fn nanoseconds(record: &Record) -> u128 {
    let time = record.time.as_deref().unwrap_or_default();
    let time = OffsetDateTime::parse(time, &Rfc3339).ok();
    time.map_or(0, |time| {
        u128::try_from(time.unix_timestamp_nanos()).unwrap_or(0)
    })
}

/// An exchange's place in a trace.
struct Trace {
    trace: String,
    span: String,
    parent: Option<String>,
    /// The client's trace flags, with the bits that say that the parent is remote.
    flags: u32,
}

impl Trace {
    /// Continues the client's trace if it sent one, else begins a new one. The ids are derived from
    /// the exchange's id, so that all its records share one span.
    fn of(record: &Record) -> Option<Self> {
        let id = record.id.as_deref()?;
        let digest = Sha256::digest(id.as_bytes());
        let span = hex(&digest[16..24]);
        let field = record.traceparent.as_deref().unwrap_or_default();
        let parts: Vec<&str> = field.split('-').collect();
        Some(match parts[..] {
            ["00", trace, parent, flags] if trace.len() == 32 && parent.len() == 16 => Self {
                trace: trace.to_owned(),
                span,
                parent: Some(parent.to_owned()),
                flags: u32::from_str_radix(flags, 16).unwrap_or(0) | IS_REMOTE,
            },
            _ => Self {
                trace: hex(&digest[..16]),
                span,
                parent: None,
                flags: 0,
            },
        })
    }
}

/// The methods that the semantic conventions for HTTP know (RFC 9110 and RFC 5789).
const METHODS: [&str; 9] = [
    "CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE",
];
/// `SPAN_KIND_SERVER`.
const SERVER: u32 = 2;
/// `STATUS_CODE_ERROR`.
const ERROR: u32 = 2;
/// `SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK` and `SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK`.
const IS_REMOTE: u32 = 0x300;
