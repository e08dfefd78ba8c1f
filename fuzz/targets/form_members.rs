//! Members of forms: what the `form_urlencoded` and `serde_json` crates read by a name, or a plain
//! reader in a multipart form, is found.
#![no_main]

use gateway_body::fact::PlainContent;
use gateway_body::{Document, FormFault, Member, Questions};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((kind, content)) = input.split_first() else {
        return;
    };
    let names = match kind % 3 {
        0 => return pairs(content),
        1 => return json(content),
        _ => disposed(content),
    };
    for name in names {
        let found = members("multipart/form-data; boundary=b", content, &name);
        assert!(found.is_err() || !found.unwrap().is_empty(), "{name:?}");
    }
});

/// The members of this name.
fn members(kind: &'static str, content: &[u8], name: &str) -> Result<Vec<Member>, FormFault> {
    let fields = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]);
    let is_asked = |asked: &str| asked == name;
    let mut questions = Questions::default();
    questions.members(&is_asked);
    let content = PlainContent {
        bytes: content.to_vec().into(),
        ..PlainContent::default()
    };
    Document::read(&fields, "", &content, &questions).members()
}

fn pairs(content: &[u8]) {
    // Bytes that are not UTF-8 stay escapes here, and `%u0061` is read as ASP does.
    let is_odd =
        |text: &str| text.contains("%u") || text.contains("%U") || text.contains('\u{fffd}');
    for (name, value) in form_urlencoded::parse(content).take(50) {
        if is_odd(&name) || is_odd(&value) {
            continue;
        }
        let found = members("text/plain", content, &name);
        let is_found = |found: Vec<Member>| {
            let mut values = found.iter().filter_map(|one| one.value.as_deref());
            found.len() > 1_000 || values.any(|other| other == value)
        };
        assert!(
            found.is_err() || is_found(found.unwrap()) || clipped(content),
            "{name:?}"
        );
    }
}

/// Whether readers disagree about where a pair ends, so that values differ.
fn clipped(content: &[u8]) -> bool {
    content.iter().any(|byte| b";\r\n".contains(byte))
}

fn json(content: &[u8]) {
    let Ok(serde_json::Value::Object(read)) = serde_json::from_slice(content) else {
        return;
    };
    for (name, value) in read.iter().take(50) {
        // A name that occurs twice is a doubt.
        let Ok(found) = members("application/json", content, name) else {
            continue;
        };
        // Nothing is an empty text.
        let text = if value.is_null() {
            Some("")
        } else {
            value.as_str()
        };
        let mut values = found.iter().map(|one| one.value.as_deref());
        assert!(values.any(|one| one == text), "{name:?}");
    }
}

/// The quoted names of plain parts.
fn disposed(content: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(content);
    let lines = text.split("\r\n").filter_map(|line| {
        let name = line.strip_prefix("Content-Disposition: form-data; name=\"")?;
        name.strip_suffix('"')
    });
    let is_plain = |name: &&str| name.bytes().all(|b| b.is_ascii_alphanumeric());
    lines.filter(is_plain).take(50).map(str::to_owned).collect()
}
