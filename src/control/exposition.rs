//! Writes the metrics in the text format of Prometheus, version 0.0.4.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};

use gateway_server::{Distribution, ExportCounts, SharedState};

/// The media type of the format.
pub(super) const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Returns every metric. Label values are words of this program and names of the configuration, so
/// their number is bounded.
pub(super) fn metrics(shared: &SharedState) -> String {
    let mut page = Page::default();
    exchanges(&mut page, shared);
    secrets(&mut page, shared);
    load(&mut page, shared);
    exports(&mut page, shared);
    changes(&mut page, shared);
    page.0
}

fn exchanges(page: &mut Page, shared: &SharedState) {
    let metrics = &shared.metrics;
    let what = "Exchanges, by how they came in and whether they were allowed.";
    let exchanges = metrics.exchanges();
    let samples = exchanges.map(|(listener, protocol, answered, count)| {
        let decision = if answered { "allow" } else { "refuse" };
        let from = [("listener", listener), ("protocol", protocol)];
        ([from[0], from[1], ("decision", decision)], count)
    });
    page.family("gateway_exchanges_total", what, samples);
    let reasons = shared.refused.reasons();
    let reasons = reasons.map(|(reason, count)| ([("reason", reason.as_str())], count));
    page.family(
        "gateway_refusals_total",
        "Refusals, by reason code.",
        reasons,
    );
    let what = "Time to an answer's head that the gateway itself took.";
    page.histogram("gateway_own_seconds", what, &metrics.own.read());
    let what = "Time to an answer's head that the origin took, with the connection.";
    page.histogram("gateway_origin_seconds", what, &metrics.origin.read());
    let bytes = ["origin", "client"].into_iter().zip(metrics.content());
    let bytes = bytes.map(|(to, bytes)| ([("to", to)], bytes));
    let what = "Bytes of content of ended exchanges.";
    page.family("gateway_content_bytes_total", what, bytes);
    let what = "Leaf certificates that were minted.";
    page.single("gateway_leaves_minted_total", what, metrics.leaves());
    let names = metrics.names();
    let names = names.map(|(verdict, count)| ([("verdict", verdict)], count));
    let what = "Questions of sandboxes for names, by verdict.";
    page.family("gateway_dns_questions_total", what, names);
}

fn secrets(page: &mut Page, shared: &SharedState) {
    let current = shared.current();
    let credentials = &current.credentials;
    let fetches = credentials.fetches();
    let fetches = fetches.flat_map(|(credential, had, failed)| {
        let of = move |result, count| {
            (
                [("credential", credential.as_str()), ("result", result)],
                count,
            )
        };
        [of("had", had), of("failed", failed)]
    });
    let what = "Secrets asked of the stores for requests, by credential and result.";
    page.family("gateway_secrets_total", what, fetches);
    let last = credentials.last_had();
    let last = last.map(|(credential, at)| ([("credential", credential.as_str())], at));
    let what = "When a store last gave the credential's secret for a request; 0 if never.";
    page.family("gateway_secret_last_success_timestamp_seconds", what, last);
}

fn load(page: &mut Page, shared: &SharedState) {
    let sessions = shared.sessions.all();
    let statuses = ["active", "paused", "ended"].map(|wanted| {
        let is_so = sessions
            .iter()
            .filter(|one| one.status().as_str() == wanted);
        ([("status", wanted)], is_so.count())
    });
    page.family(
        "gateway_sessions",
        "Sessions, by what they may do.",
        statuses,
    );
    let open = shared.open.load(Ordering::Relaxed);
    page.single("gateway_connections", "Connections of clients.", open);
    let underway: usize = sessions.iter().map(|session| session.load().1).sum();
    page.single("gateway_exchanges", "Exchanges under way.", underway);
    let what = "Records that were written and are not yet on the disk.";
    page.single("gateway_audit_backlog_records", what, shared.log.backlog());
}

/// The fate of the records for each `[[export]]`. Exports of one format to one server count as one:
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
    let places = places.into_iter();
    let places =
        places.map(|([server, format], all)| ([("server", server), ("format", format)], all));
    let places: Vec<_> = places.collect();
    let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let sum = |all: &[&ExportCounts], value: &dyn Fn(&ExportCounts) -> u64| -> u64 {
        all.iter().map(|one| value(one)).sum()
    };
    let results = places.iter().flat_map(|([server, format], all)| {
        let of = |result, count| ([*server, *format, ("result", result)], count);
        let (sent, lost) = (
            sum(all, &|one| read(&one.taken)),
            sum(all, &|one| read(&one.lost)),
        );
        [of("sent", sent), of("lost", lost)]
    });
    let what = "Records for an export, by whether the server took them or refused them for good.";
    page.family("gateway_export_records_total", what, results);
    let failures = places
        .iter()
        .map(|(place, all)| (*place, sum(all, &|one| read(&one.failures))));
    let what = "Attempts to send records that failed and are made again.";
    page.family("gateway_export_failures_total", what, failures);
    let next = shared.log.head().map_or(0, |head| head.seq() + 1);
    let behind = places
        .iter()
        .map(|(place, all)| (*place, sum(all, &|one| one.behind(next))));
    let what = "Records that wait in the log to be exported.";
    page.family("gateway_export_backlog_records", what, behind);
    let last = places.iter().map(|(place, all)| {
        let last = all.iter().map(|one| read(&one.sent_at)).min();
        (*place, last.unwrap_or(0))
    });
    let what = "When records were last taken; 0 if never.";
    page.family("gateway_export_last_success_timestamp_seconds", what, last);
}

fn changes(page: &mut Page, shared: &SharedState) {
    let generation = shared.look().number();
    let what = "The generation of policies in force.";
    page.single("gateway_policy_generation", what, generation);
    let reloads = ["refused", "applied"]
        .into_iter()
        .zip(shared.metrics.reloads());
    let reloads = reloads.map(|(result, count)| ([("result", result)], count));
    page.family("gateway_reloads_total", "Reloads, by result.", reloads);
    let version = [([("version", env!("CARGO_PKG_VERSION"))], 1)];
    page.family("gateway_build_info", "The version; always 1.", version);
}

/// Labels and their value.
type Sample<'a, const N: usize, V> = ([(&'a str, &'a str); N], V);

/// The text so far.
#[derive(Default)]
struct Page(String);

impl Page {
    /// Writes a metric with its samples. A counter's name ends in `_total`, no other's does.
    fn family<'a, const N: usize, V: Display>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = Sample<'a, N, V>>,
    ) {
        let is_counter = name.ends_with("_total");
        self.head(name, help, if is_counter { "counter" } else { "gauge" });
        for (labels, value) in samples {
            self.sample(name, &labels, value);
        }
    }

    fn single(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, help, [([], value)]);
    }

    fn histogram(&mut self, name: &str, help: &str, read: &Distribution) {
        self.head(name, help, "histogram");
        let bucket = format!("{name}_bucket");
        for (bound, count) in &read.buckets {
            self.sample(&bucket, &[("le", &bound.to_string())], count);
        }
        self.sample(&bucket, &[("le", "+Inf")], read.count);
        self.sample(&format!("{name}_sum"), &[], read.sum);
        self.sample(&format!("{name}_count"), &[], read.count);
    }

    fn head(&mut self, name: &str, help: &str, kind: &str) {
        self.line(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}"));
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let labels = labels.iter();
        let labels = labels.map(|(label, text)| format!("{label}=\"{}\"", escaped(text)));
        match labels.collect::<Vec<_>>().join(",") {
            none if none.is_empty() => self.line(format_args!("{name} {value}")),
            labels => self.line(format_args!("{name}{{{labels}}} {value}")),
        }
    }

    fn line(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{text}");
    }
}

/// Escapes a label's value. Today's names need no escaping; a later one may.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}
