//! Members of forms: what the `form_urlencoded` and `serde_json` crates read by a name, or a plain
//! reader in a multipart form, is found.
#![no_main]

use gateway_body::{FormKind, Member};
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
        let found = FormKind::Parts.members(content, |asked| asked == name);
        assert!(found.is_err() || !found.unwrap().is_empty(), "{name:?}");
    }
});

fn pairs(content: &[u8]) {
    // Bytes that are not UTF-8 stay escapes here, and `%u0061` is read as ASP does.
    let is_odd =
        |text: &str| text.contains("%u") || text.contains("%U") || text.contains('\u{fffd}');
    for (name, value) in form_urlencoded::parse(content).take(50) {
        if is_odd(&name) || is_odd(&value) {
            continue;
        }
        let found = FormKind::Pairs.members(content, |asked| asked == name);
        let is_found = |found: Vec<Member>| {
            let mut values = found.iter().filter_map(|one| one.value.as_deref());
            found.len() > 64 || values.any(|other| other == value)
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
    let Ok(serde_json::Value::Object(members)) = serde_json::from_slice(content) else {
        return;
    };
    for (name, value) in members.iter().take(50) {
        let found = FormKind::Json.members(content, |asked| asked == name);
        let found = found.expect("it is JSON");
        // Nothing is an empty text.
        let text = if value.is_null() { Some("") } else { value.as_str() };
        let mut values = found.iter().map(|one| one.value.as_deref());
        assert!(found.len() > 64 || values.any(|one| one == text), "{name:?}");
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
