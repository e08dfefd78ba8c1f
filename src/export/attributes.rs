//! What a record says, in the words of OpenTelemetry's semantic conventions where they have one.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::audit::{Injected, PhaseTimes, Record};

/// The attributes of a record, as OTLP's JSON has them.
pub(super) fn attributes(record: &Record) -> Vec<Value> {
    // Without `..`, so that a new key of the record must be given a place here.
    let Record {
        v: _,
        seq,
        prev: _,
        kind: _,
        id,
        time: _,
        session,
        user,
        traceparent: _,
        entry,
        client,
        protocol,
        method,
        scheme,
        host,
        port,
        path,
        path_bytes,
        query,
        query_more: _,
        phase,
        decision,
        policies,
        policies_more: _,
        facts,
        facts_more: _,
        generation,
        lent,
        lent_more: _,
        unlent,
        dialled,
        origin_protocol,
        outcome,
        status,
        origin_status,
        reason,
        blame,
        request_bytes,
        response_bytes,
        scrubbed,
        us,
        name: _,
        operator: _,
        subject: _,
        count: _,
        chain: _,
        version: _,
        pid: _,
        cause: _,
        torn_at: _,
        torn_bytes: _,
        torn_sha256: _,
        lost: _,
        hash,
    } = record;
    let mut list = List::default();
    list.number("gateway.audit.seq", Some(*seq));
    list.text("gateway.audit.hash", Some(hash));
    list.text("gateway.exchange.id", id.as_deref());
    list.text("gateway.session", session.as_deref());
    list.text("gateway.user", user.as_deref());
    list.text("gateway.entry", entry.as_deref());
    list.address(("client.address", "client.port"), *client);
    if protocol.is_some() {
        list.text("network.protocol.name", Some("http"));
    }
    list.text("network.protocol.version", protocol.as_deref().map(version));
    list.text("http.request.method", method.as_deref());
    list.text("url.scheme", scheme.as_deref());
    list.text("server.address", host.as_deref());
    list.number("server.port", port.map(u64::from));
    list.text("url.path", path.as_deref());
    list.number("gateway.path.bytes", *path_bytes);
    list.texts("gateway.query.names", query.iter().map(|name| &**name));
    list.text("gateway.phase", phase.as_deref());
    list.text("gateway.decision", decision.as_deref());
    list.texts("gateway.policies", policies.iter().map(|name| &**name));
    list.texts("gateway.facts", facts.iter().map(|name| &**name));
    list.number("gateway.generation", *generation);
    loans(&mut list, lent);
    let unlent = unlent.as_ref().map(|unlent| &*unlent.credential);
    list.text("gateway.unlent.credential", unlent);
    list.address(("network.peer.address", "network.peer.port"), *dialled);
    let origin = origin_protocol.as_deref().map(version);
    list.text("gateway.origin.protocol.version", origin);
    list.text("gateway.outcome", outcome.as_deref());
    list.number("http.response.status_code", status.map(u64::from));
    list.number("gateway.origin.status_code", origin_status.map(u64::from));
    list.text("error.type", reason.as_deref());
    list.text("gateway.blame", blame.as_deref());
    list.number("http.request.body.size", *request_bytes);
    list.number("http.response.body.size", *response_bytes);
    list.number("gateway.scrubbed", *scrubbed);
    happened(&mut list, record);
    times(&mut list, us);
    list.0
}

fn loans(list: &mut List, lent: &[Injected]) {
    let names = lent.iter().map(|lent| &*lent.credential);
    list.texts("gateway.lent.credentials", names);
    list.texts("gateway.lent.places", lent.iter().map(|lent| &*lent.place));
}

/// What happened apart from exchanges: events, acts of operators, and the log's own life.
fn happened(list: &mut List, record: &Record) {
    list.text("gateway.event.name", record.name.as_deref());
    list.text("gateway.operator", record.operator.as_deref());
    list.text("gateway.subject", record.subject.as_deref());
    list.number("gateway.count", record.count);
    list.text("gateway.audit.chain", record.chain.as_deref());
    list.number("process.pid", record.pid.map(u64::from));
    list.text("gateway.cause", record.cause.as_deref());
    list.number("gateway.recover.torn_bytes", record.torn_bytes);
    list.number("gateway.recover.lost", record.lost);
}

fn times(list: &mut List, us: &PhaseTimes) {
    for (name, after) in [
        ("gateway.us.identify", us.identify),
        ("gateway.us.authorize", us.authorize),
        ("gateway.us.open", us.open),
        ("gateway.us.attach", us.attach),
        ("gateway.us.answer", us.answer),
        ("gateway.us.total", us.total),
    ] {
        list.number(name, after);
    }
}

/// `network.protocol.version`: `1.1`, `2`.
fn version(protocol: &str) -> &str {
    protocol
        .strip_prefix("http/")
        .or(protocol.strip_prefix('h'))
        .unwrap_or(protocol)
}

#[derive(Default)]
struct List(Vec<Value>);

impl List {
    fn text(&mut self, key: &str, value: Option<&str>) {
        let found = value.map(|value| json!({ "key": key, "value": { "stringValue": value } }));
        self.0.extend(found);
    }

    /// A 64-bit number is a text in JSON (ProtoJSON).
    fn number(&mut self, key: &str, value: Option<u64>) {
        let number = |value: u64| json!({ "key": key, "value": { "intValue": value.to_string() } });
        self.0.extend(value.map(number));
    }

    fn address(&mut self, (ip, port): (&str, &str), value: Option<SocketAddr>) {
        self.text(ip, value.map(|value| value.ip().to_string()).as_deref());
        self.number(port, value.map(|value| value.port().into()));
    }

    fn texts<'a>(&mut self, key: &str, values: impl Iterator<Item = &'a str>) {
        let values: Vec<Value> = values.map(|one| json!({ "stringValue": one })).collect();
        if !values.is_empty() {
            let list = json!({ "key": key, "value": { "arrayValue": { "values": values } } });
            self.0.push(list);
        }
    }
}
