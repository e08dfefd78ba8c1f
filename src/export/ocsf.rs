//! Records as events of OCSF, version 1.3.0: HTTP Activity, DNS Activity, API Activity and
//! Application Lifecycle.

use gateway_audit::Record;
use serde_json::{Map, Value, json};

use super::otlp::nanoseconds;

/// Converts a record to an event. Members that have no attribute in OCSF go to `unmapped`.
pub fn event(record: &Record) -> Value {
    let class = Class::of(record);
    let refused = record.reason.is_some() || record.decision.as_deref() == Some("deny");
    let (severity, severity_name) = if refused {
        (3, "Medium")
    } else {
        (1, "Informational")
    };
    let (status, status_name) = if refused {
        (2, "Failure")
    } else {
        (1, "Success")
    };
    let (activity, activity_name) = class.activity(record);
    let mut event = json!({
        "class_uid": class.uid, "class_name": class.name,
        "category_uid": class.category, "category_name": class.category_name,
        "activity_id": activity, "activity_name": activity_name,
        "type_uid": class.uid * 100 + activity,
        "type_name": format!("{}: {activity_name}", class.name),
        "time": u64::try_from(nanoseconds(record) / 1_000_000).unwrap_or(0),
        "severity_id": severity, "severity": severity_name,
        "status_id": status, "status": status_name,
        "metadata": metadata(record),
        "unmapped": unmapped(record),
    });
    if let Some(reason) = &record.reason {
        event["status_detail"] = json!(reason);
    }
    if let Some(total) = record.us.total {
        event["duration"] = (total / 1_000).into();
    }
    if class.category == NETWORK.0 {
        judged(refused, &mut event);
    }
    class.details(record, &mut event);
    event
}

/// Adds the decision, in the attributes of OCSF's security control profile.
fn judged(refused: bool, event: &mut Value) {
    event["metadata"]["profiles"] = json!(["security_control"]);
    (event["action_id"], event["action"], event["disposition"]) = if refused {
        (json!(2), json!("Denied"), json!("Blocked"))
    } else {
        (json!(1), json!("Allowed"), json!("Allowed"))
    };
    event["disposition_id"] = event["action_id"].clone();
}

fn metadata(record: &Record) -> Value {
    let mut metadata = json!({
        "version": "1.3.0", "log_name": "audit",
        "product": {
            "name": "gateway", "vendor_name": "gateway", "version": env!("CARGO_PKG_VERSION"),
        },
        "uid": record.hash, "sequence": record.seq,
    });
    if let Some(id) = &record.id {
        metadata["correlation_uid"] = json!(id);
    }
    if let Some(time) = &record.time {
        metadata["original_time"] = json!(time);
    }
    metadata
}

/// A class of events, with its category.
struct Class {
    uid: u64,
    name: &'static str,
    category: u64,
    category_name: &'static str,
}

const NETWORK: (u64, &str) = (4, "Network Activity");
const APPLICATION: (u64, &str) = (6, "Application Activity");

impl Class {
    fn of(record: &Record) -> Self {
        let (uid, name, (category, category_name)) = match &*record.kind {
            "exchange" | "end" => (4002, "HTTP Activity", NETWORK),
            "event" if record.name.as_deref() == Some("dns_refused") => {
                (4003, "DNS Activity", NETWORK)
            }
            "act" => (6003, "API Activity", APPLICATION),
            _ => (6002, "Application Lifecycle", APPLICATION),
        };
        Self {
            uid,
            name,
            category,
            category_name,
        }
    }

    fn activity(&self, record: &Record) -> (u64, &'static str) {
        let method = record.method.as_deref().unwrap_or_default();
        match (self.uid, &*record.kind) {
            (4002, _) => METHODS
                .into_iter()
                .zip(1..)
                .find(|((known, _), _)| *known == method)
                .map_or((99, "Other"), |((_, name), id)| (id, name)),
            (4003, _) => (1, "Query"),
            (6003, _) => (99, "Other"),
            (_, "start" | "resume") => (3, "Start"),
            (_, "stop") => (4, "Stop"),
            _ => (99, "Other"),
        }
    }

    fn details(&self, record: &Record, event: &mut Value) {
        if self.category == NETWORK.0 {
            event["app_name"] = "gateway".into();
        }
        match self.uid {
            4002 => http(record, event),
            4003 => {
                event["query"] = json!({ "hostname": record.subject });
                event["src_endpoint"] = json!({ "name": record.session });
            }
            6003 => {
                event["api"] = json!({ "operation": record.name });
                event["actor"] = json!({ "user": { "name": record.operator } });
                event["src_endpoint"] = json!({ "name": "localhost" });
            }
            _ => event["app"] = json!({ "name": "gateway", "vendor_name": "gateway" }),
        }
    }
}

fn http(record: &Record, event: &mut Value) {
    let url = present([
        ("scheme", json!(record.scheme)),
        ("hostname", json!(record.host)),
        ("port", json!(record.port)),
        ("path", json!(record.path)),
    ]);
    let protocol = record.protocol.as_deref();
    event["http_request"] = present([
        ("http_method", json!(record.method)),
        ("version", json!(protocol)),
        ("url", url),
    ]);
    if let Some(status) = record.status {
        event["http_response"] = json!({ "code": status });
        event["status_code"] = status.to_string().into();
    }
    let from = record.client;
    event["src_endpoint"] = present([
        ("name", json!(record.session)),
        ("ip", json!(from.map(|client| client.ip().to_string()))),
        ("port", json!(from.map(|client| client.port()))),
        (
            "owner",
            json!(record.user.as_ref().map(|user| json!({ "name": user }))),
        ),
    ]);
    event["dst_endpoint"] = present([
        ("hostname", json!(record.host)),
        ("port", json!(record.port)),
        (
            "ip",
            json!(record.dialled.map(|peer| peer.ip().to_string())),
        ),
    ]);
    event["traffic"] = present([
        ("bytes_out", json!(record.request_bytes)),
        ("bytes_in", json!(record.response_bytes)),
    ]);
    let policies = record.policies.iter();
    let decided =
        policies.map(|one| json!({ "decision": record.decision, "policy": { "name": one } }));
    event["authorizations"] = decided.collect();
}

/// Makes an object of the values that are not null.
fn present<const N: usize>(members: [(&str, Value); N]) -> Value {
    let there = members.into_iter().filter(|(_, value)| !value.is_null());
    let there: Map<String, Value> = there.map(|(key, value)| (key.to_owned(), value)).collect();
    Value::Object(there)
}

/// The members of the record that have no attribute of their own in the event.
fn unmapped(record: &Record) -> Value {
    let mut all = serde_json::to_value(record).unwrap_or_default();
    if let Some(all) = all.as_object_mut() {
        all.retain(|key, _| !MAPPED.contains(&key.as_str()));
    }
    all
}

const MAPPED: [&str; 22] = gateway_names::word_list(
    "v seq prev hash id time method scheme host port path protocol status reason request_bytes \
     response_bytes policies session user client operator us",
);

/// The methods of HTTP Activity, in the order of their activities.
const METHODS: [(&str, &str); 8] = [
    ("CONNECT", "Connect"),
    ("DELETE", "Delete"),
    ("GET", "Get"),
    ("HEAD", "Head"),
    ("OPTIONS", "Options"),
    ("POST", "Post"),
    ("PUT", "Put"),
    ("TRACE", "Trace"),
];
