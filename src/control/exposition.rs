//! Writes the metrics in the text format of Prometheus, version 0.0.4.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::gateway::{Distribution, ExportCounts, SharedState};
use crate::session::SessionStatus;

/// The media type of the format.
pub(super) const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Returns every metric. The values of labels are words of this program and names of the
/// configuration, so their number is bounded.
pub(super) fn metrics(shared: &SharedState) -> String {
    let mut page = Page::default();
    exchanges(&mut page, shared);
    load(&mut page, shared);
    exports(&mut page, shared);
    changes(&mut page, shared);
    page.0
}

fn exchanges(page: &mut Page, shared: &SharedState) {
    let metrics = &shared.metrics;
    page.family(
        "gateway_exchanges_total",
        "counter",
        "Exchanges, by how they came in and whether they were allowed.",
    );
    for (listener, protocol, answered, count) in metrics.exchanges() {
        let decision = if answered { "allow" } else { "refuse" };
        let labels = [
            ("listener", listener),
            ("protocol", protocol),
            ("decision", decision),
        ];
        page.sample("gateway_exchanges_total", &labels, count);
    }
    page.family(
        "gateway_refusals_total",
        "counter",
        "Refusals, by reason code.",
    );
    for (reason, count) in shared.refused.reasons() {
        let labels = [("reason", reason.as_str())];
        page.sample("gateway_refusals_total", &labels, count);
    }
    page.histogram(
        "gateway_own_seconds",
        "Time to an answer's head that the gateway itself took.",
        &metrics.own.read(),
    );
    page.histogram(
        "gateway_origin_seconds",
        "Time to an answer's head that the origin took, with the connection.",
        &metrics.origin.read(),
    );
    page.family(
        "gateway_content_bytes_total",
        "counter",
        "Bytes of content of ended exchanges.",
    );
    for (to, bytes) in ["origin", "client"].into_iter().zip(metrics.content()) {
        page.sample("gateway_content_bytes_total", &[("to", to)], bytes);
    }
    page.family(
        "gateway_leaves_minted_total",
        "counter",
        "Leaf certificates that were minted.",
    );
    page.sample("gateway_leaves_minted_total", &[], metrics.leaves());
    page.family(
        "gateway_dns_questions_total",
        "counter",
        "Questions of sandboxes for names, by verdict.",
    );
    for (verdict, count) in metrics.names() {
        page.sample(
            "gateway_dns_questions_total",
            &[("verdict", verdict)],
            count,
        );
    }
    page.family(
        "gateway_secrets_total",
        "counter",
        "Secrets asked of the stores for requests, by credential and result.",
    );
    for (credential, had, failed) in shared.current().credentials.fetches() {
        for (result, count) in [("had", had), ("failed", failed)] {
            let labels = [("credential", credential.as_str()), ("result", result)];
            page.sample("gateway_secrets_total", &labels, count);
        }
    }
    let last = "gateway_secret_last_success_timestamp_seconds";
    let help = "When a store last gave the credential's secret for a request; 0 if never.";
    page.family(last, "gauge", help);
    for (credential, at) in shared.current().credentials.last_had() {
        page.sample(last, &[("credential", credential.as_str())], at);
    }
}

fn load(page: &mut Page, shared: &SharedState) {
    let sessions = shared.sessions.all();
    page.family(
        "gateway_sessions",
        "gauge",
        "Sessions, by what they may do.",
    );
    for wanted in ["active", "paused", "ended"] {
        let of_it = |status: SessionStatus| status.as_str() == wanted;
        let count = sessions.iter().filter(|one| of_it(one.status())).count();
        page.sample("gateway_sessions", &[("status", wanted)], count);
    }
    let open = shared.open.load(std::sync::atomic::Ordering::Relaxed);
    page.single("gateway_connections", "Connections of clients.", open);
    let underway: usize = sessions.iter().map(|session| session.load().1).sum();
    page.single("gateway_exchanges", "Exchanges under way.", underway);
    page.single(
        "gateway_audit_backlog_records",
        "Records that were written and are not yet on the disk.",
        shared.log.backlog(),
    );
}

/// What became of the records for each `[[export]]`. Those of one form to one server count as one:
/// a path may be a secret.
fn exports(page: &mut Page, shared: &SharedState) {
    let all = shared.exports.lock().clone();
    let mut places: BTreeMap<[&str; 2], Vec<&ExportCounts>> = BTreeMap::new();
    for one in &all {
        let place = places.entry([&one.server, one.format]).or_default();
        place.push(one);
    }
    if places.is_empty() {
        return;
    }
    page.family(
        "gateway_export_records_total",
        "counter",
        "Records for an export, by whether the server took them or refused them for good.",
    );
    for ([server, format], all) in &places {
        let taken: u64 = all.iter().map(|one| one.taken()).sum();
        let lost: u64 = all.iter().map(|one| one.lost()).sum();
        for (result, count) in [("sent", taken), ("lost", lost)] {
            let labels = [("server", *server), ("format", *format), ("result", result)];
            page.sample("gateway_export_records_total", &labels, count);
        }
    }
    let next = shared.log.head().map_or(0, |head| head.seq() + 1);
    let mut series = |name, kind, help, value: fn(&[&ExportCounts], u64) -> u64| {
        page.family(name, kind, help);
        for ([server, format], all) in &places {
            let labels = [("server", *server), ("format", *format)];
            page.sample(name, &labels, value(all, next));
        }
    };
    series(
        "gateway_export_failures_total",
        "counter",
        "Attempts to send records that failed and are made again.",
        |all, _| all.iter().map(|one| one.failures()).sum(),
    );
    series(
        "gateway_export_backlog_records",
        "gauge",
        "Records that wait in the log to be exported.",
        |all, next| all.iter().map(|one| one.behind(next)).sum(),
    );
    series(
        "gateway_export_last_success_timestamp_seconds",
        "gauge",
        "When records were last taken; 0 if never.",
        |all, _| all.iter().map(|one| one.sent_at()).min().unwrap_or(0),
    );
}

fn changes(page: &mut Page, shared: &SharedState) {
    let generation = shared.look().number();
    page.single(
        "gateway_policy_generation",
        "The generation of policies in force.",
        generation,
    );
    page.family("gateway_reloads_total", "counter", "Reloads, by result.");
    let results = ["refused", "applied"];
    for (result, count) in results.into_iter().zip(shared.metrics.reloads()) {
        page.sample("gateway_reloads_total", &[("result", result)], count);
    }
    page.family("gateway_build_info", "gauge", "The version; always 1.");
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    page.sample("gateway_build_info", &version, 1);
}

/// The text so far.
#[derive(Default)]
struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    fn single(&mut self, name: &str, help: &str, value: impl std::fmt::Display) {
        self.family(name, "gauge", help);
        self.sample(name, &[], value);
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        self.0.push_str(name);
        for (at, (label, text)) in labels.iter().enumerate() {
            let before = if at == 0 { '{' } else { ',' };
            let text = escaped(text);
            // A string takes whatever is written to it.
            let _ = write!(self.0, "{before}{label}=\"{text}\"");
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        self.line(format_args!(" {value}"));
    }

    fn histogram(&mut self, name: &str, help: &str, read: &Distribution) {
        self.family(name, "histogram", help);
        let bucket = format!("{name}_bucket");
        for (bound, count) in &read.buckets {
            self.sample(&bucket, &[("le", &bound.to_string())], count);
        }
        self.sample(&bucket, &[("le", "+Inf")], read.count);
        self.sample(&format!("{name}_sum"), &[], read.sum);
        self.sample(&format!("{name}_count"), &[], read.count);
    }

    fn line(&mut self, text: std::fmt::Arguments<'_>) {
        let _ = writeln!(self.0, "{text}");
    }
}

/// Escapes a label's value. A name of this program needs none, and a later one may.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}
