//! The attributes of a record, with the names of OpenTelemetry's semantic conventions if possible.

use std::net::SocketAddr;

use gateway_audit::Record;
use serde_json::{Value, json};

/// The attributes of a record, as OTLP's JSON has them.
pub(super) fn attributes(record: &Record) -> Vec<Value> {
    let mut members = serde_json::to_value(record).unwrap_or_default();
    // The record leaves out a `seq` of zero.
    members["seq"] = record.seq.into();
    let attribute = |(name, member, read): &Attribute| {
        let value = read(members.pointer(member)?)?;
        Some(json!({ "key": name, "value": value }))
    };
    ATTRIBUTES.iter().filter_map(attribute).collect()
}

/// Encodes a value as it stands. ProtoJSON writes a 64-bit number as a string.
fn same(value: &Value) -> Option<Value> {
    Some(match value {
        Value::String(text) => json!({ "stringValue": text }),
        Value::Number(number) => json!({ "intValue": number.to_string() }),
        Value::Array(all) => {
            let all: Vec<_> = all.iter().filter_map(same).collect();
            json!({ "arrayValue": { "values": all } })
        }
        _ => return None,
    })
}

fn address(value: &Value) -> Option<SocketAddr> {
    value.as_str()?.parse().ok()
}

fn ip(value: &Value) -> Option<Value> {
    same(&json!(address(value)?.ip()))
}

fn port(value: &Value) -> Option<Value> {
    same(&address(value)?.port().into())
}

fn http(_: &Value) -> Option<Value> {
    same(&"http".into())
}

/// `network.protocol.version`: `1.1`, `2`.
fn version(protocol: &Value) -> Option<Value> {
    let protocol = protocol.as_str()?;
    let version = protocol.strip_prefix("http/");
    let version = version.or(protocol.strip_prefix('h'));
    same(&version.unwrap_or(protocol).into())
}

fn each(listed: &Value, member: &str) -> Option<Value> {
    let all = listed.as_array()?.iter();
    same(&all.map(|one| one[member].clone()).collect())
}

/// An attribute's name, the pointer to the record's member, and the function that encodes it.
type Attribute = (&'static str, &'static str, fn(&Value) -> Option<Value>);

const ATTRIBUTES: &[Attribute] = &[
    ("gateway.audit.seq", "/seq", same),
    ("gateway.audit.hash", "/hash", same),
    ("gateway.exchange.id", "/id", same),
    ("gateway.session", "/session", same),
    ("gateway.user", "/user", same),
    ("gateway.token.id", "/token_id", same),
    ("gateway.groups", "/groups", same),
    ("gateway.entry", "/entry", same),
    ("client.address", "/client", ip),
    ("client.port", "/client", port),
    ("network.protocol.name", "/protocol", http),
    ("network.protocol.version", "/protocol", version),
    ("http.request.method", "/method", same),
    ("url.scheme", "/scheme", same),
    ("server.address", "/host", same),
    ("server.port", "/port", same),
    ("url.path", "/path", same),
    ("gateway.path.bytes", "/path_bytes", same),
    ("gateway.query.names", "/query", same),
    ("gateway.phase", "/phase", same),
    ("gateway.decision", "/decision", same),
    ("gateway.policies", "/policies", same),
    ("gateway.facts", "/facts", same),
    ("gateway.generation", "/generation", same),
    ("gateway.lent.credentials", "/lent", |lent| {
        each(lent, "credential")
    }),
    ("gateway.lent.places", "/lent", |lent| each(lent, "place")),
    ("gateway.unlent.credential", "/unlent/credential", same),
    (
        "gateway.misplaced.credential",
        "/misplaced/credential",
        same,
    ),
    ("gateway.misplaced.place", "/misplaced/place", same),
    ("gateway.noted.credentials", "/noted", |noted| {
        each(noted, "credential")
    }),
    ("network.peer.address", "/dialled", ip),
    ("network.peer.port", "/dialled", port),
    (
        "gateway.origin.protocol.version",
        "/origin_protocol",
        version,
    ),
    ("gateway.outcome", "/outcome", same),
    ("http.response.status_code", "/status", same),
    ("gateway.origin.status_code", "/origin_status", same),
    ("error.type", "/reason", same),
    ("gateway.blame", "/blame", same),
    ("http.request.body.size", "/request_bytes", same),
    ("http.response.body.size", "/response_bytes", same),
    ("gateway.scrubbed", "/scrubbed", same),
    // Records other than exchanges: events, acts of operators, and the start and end of the log.
    ("gateway.event.name", "/name", same),
    ("gateway.operator", "/operator", same),
    ("gateway.subject", "/subject", same),
    ("gateway.count", "/count", same),
    ("gateway.audit.chain", "/chain", same),
    ("process.pid", "/pid", same),
    ("gateway.cause", "/cause", same),
    ("gateway.recover.torn_bytes", "/torn_bytes", same),
    ("gateway.recover.lost", "/lost", same),
    ("gateway.us.identify", "/us/identify", same),
    ("gateway.us.authorize", "/us/authorize", same),
    ("gateway.us.open", "/us/open", same),
    ("gateway.us.attach", "/us/attach", same),
    ("gateway.us.answer", "/us/answer", same),
    ("gateway.us.total", "/us/total", same),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Members that stand elsewhere in what is exported, or say nothing by themselves.
    const OTHERS: &str = "v prev kind time traceparent groups_more query_more policies_more facts_more \
                          lent_more noted_more version torn_at torn_sha256";

    #[test]
    fn every_member_of_a_record_has_its_place() {
        let unknown = serde_json::from_str::<Record>(r#"{ "none": 1 }"#).unwrap_err();
        let unknown = unknown.to_string();
        let (_, members) = unknown.split_once("expected one of ").unwrap();
        let members: Vec<&str> = members.split('`').skip(1).step_by(2).collect();
        assert!(members.len() > 40);
        for member in members {
            let mut named = ATTRIBUTES
                .iter()
                .map(|(_, named, _)| named.split('/').nth(1));
            let is_there = named.any(|named| named == Some(member));
            let is_other = OTHERS.split(' ').any(|other| other == member);
            assert!(is_there != is_other, "{member}");
        }
    }
}
