//! `gateway log --har`: requests as an HTTP Archive 1.2, which the tools of browsers open. No
//! value of a field or a parameter is in it, and no content: the log has none.

use http::StatusCode;
use serde_json::{Value, json};

use crate::audit::{Injection, Record};

/// Returns the archive of the requests among some records.
pub(crate) fn archive<'a>(records: impl Iterator<Item = &'a Record>) -> Value {
    let version = env!("CARGO_PKG_VERSION");
    let requests = records.filter(|record| record.kind == "exchange" && record.method.is_some());
    json!({ "log": {
        "version": "1.2",
        "creator": { "name": "gateway", "version": version },
        "entries": requests.map(entry).collect::<Vec<_>>(),
    }})
}

fn entry(record: &Record) -> Value {
    let us = &record.us;
    let ms = |us: u64| us as f64 / 1000.0;
    let since = |at: Option<u64>, before: Option<u64>| {
        let took = at.zip(before).map(|(at, before)| at.saturating_sub(before));
        took.map_or(-1.0, ms)
    };
    let total = us.total.unwrap_or_default();
    let judged = us.authorize.or(us.identify);
    let sent = us.attach.or(us.open).or(judged).unwrap_or_default();
    let mut entry = json!({
        "startedDateTime": record.time.as_deref().unwrap_or("1970-01-01T00:00:00Z"),
        "time": ms(total),
        "request": request(record),
        "response": response(record),
        "cache": {},
        "timings": {
            "blocked": judged.map_or(-1.0, ms),
            "dns": -1,
            "connect": since(us.open, judged),
            "ssl": -1,
            "send": since(us.attach, us.open).max(0.0),
            "wait": ms(us.answer.unwrap_or(total).saturating_sub(sent)),
            "receive": 0,
        },
        "_gateway": {
            "id": record.id,
            "session": record.session,
            "user": record.user,
            "decision": record.decision,
            "policies": record.policies,
            "reason": record.reason,
            "lent": lent(record),
        },
    });
    if let Some(dialled) = record.dialled {
        entry["serverIPAddress"] = json!(dialled.ip());
        entry["connection"] = json!(dialled.port().to_string());
    }
    entry
}

fn request(record: &Record) -> Value {
    let text = |part: Option<&str>| part.unwrap_or_default().to_owned();
    let query = |equals: &str| {
        let names = record.query.iter();
        let all: Vec<String> = names.map(|name| format!("{name}{equals}")).collect();
        all.join("&")
    };
    let (host, scheme) = (text(record.host.as_deref()), record.scheme.as_deref());
    let usual = [("http", 80), ("https", 443)];
    let port = record.port.filter(|port| {
        let is_usual = usual.contains(&(scheme.unwrap_or_default(), *port));
        !is_usual
    });
    let port = port.map_or_else(String::new, |port| format!(":{port}"));
    let mark = if record.query.is_empty() { "" } else { "?" };
    let (path, query_text) = (text(record.path.as_deref()), query("="));
    let scheme = scheme.unwrap_or("https");
    let names = record.query.iter();
    json!({
        "method": record.method,
        "url": format!("{scheme}://{host}{port}{path}{mark}{query_text}"),
        "httpVersion": text(record.protocol.as_deref()),
        "cookies": [],
        "headers": lent(record),
        "queryString": names.map(|name| json!({ "name": name, "value": "" })).collect::<Vec<_>>(),
        "headersSize": -1,
        "bodySize": size(record.request_bytes),
    })
}

fn response(record: &Record) -> Value {
    let status = record.status.unwrap_or_default();
    let phrase = StatusCode::from_u16(status).ok();
    let phrase = phrase.and_then(|status| status.canonical_reason());
    let bytes = record.response_bytes;
    json!({
        "status": status,
        "statusText": phrase.unwrap_or_default(),
        "httpVersion": record.origin_protocol.as_deref().unwrap_or_default(),
        "cookies": [],
        "headers": [],
        "content": { "size": bytes.unwrap_or_default(), "mimeType": "" },
        "redirectURL": "",
        "headersSize": -1,
        "bodySize": size(bytes),
    })
}

/// Returns the fields that a credential was lent in, each with the credential's name as its value.
fn lent(record: &Record) -> Vec<Value> {
    let field = |one: &Injection| {
        let name = one.place.strip_prefix("header:").unwrap_or(&one.place);
        let name = name.split(':').next().unwrap_or_default();
        json!({ "name": name, "value": format!("[{}]", one.credential) })
    };
    record.lent.iter().map(field).collect()
}

fn size(bytes: Option<u64>) -> i64 {
    bytes.map_or(-1, |bytes| i64::try_from(bytes).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_a_credential_was_lent_in_has_the_credentials_name() {
        let record = r#"{"kind":"exchange","method":"GET","scheme":"https","host":"a.test",
            "port":8443,"path":"/p","query":["q"],
            "lent":[{"credential":"key","place":"header:authorization:Bearer"}],
            "us":{"authorize":1000,"open":3000,"attach":3500,"answer":9500,"total":10000}}"#;
        let archive = archive([serde_json::from_str(record).unwrap()].iter());
        let entry = &archive["log"]["entries"][0];
        let field = json!([{ "name": "authorization", "value": "[key]" }]);
        assert_eq!(entry["request"]["headers"], field);
        assert_eq!(entry["request"]["url"], "https://a.test:8443/p?q=");
        let timings = &entry["timings"];
        let all = ["blocked", "connect", "send", "wait"].map(|name| timings[name].as_f64());
        assert_eq!(all, [1.0, 2.0, 0.5, 6.0].map(Some));
    }
}
