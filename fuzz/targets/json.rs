//! JSON: what is read whole is what `serde_json` reads, and what that writes is read alike; what is
//! refused, it refuses too, but for names that occur twice.
#![no_main]

use gateway_message::json::{Json, JsonFault, Value as Read, JsonParts};
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value};

fuzz_target!(|bytes: &[u8]| {
    let other: Result<Value, _> = serde_json::from_slice(bytes);
    match Json::read(bytes, &JsonParts::whole()) {
        Ok(json) => {
            let value = value(json.root());
            assert_eq!(Ok(&value), other.as_ref().map_err(|_| ()));
            let written = value.to_string();
            let again = Json::read(written.as_bytes(), &JsonParts::whole());
            assert_eq!(self::value(again.expect("it is JSON").root()), value);
        }
        // Of numbers at the border of what is finite, `serde_json` reads some as the border.
        Err(JsonFault::Malformed(_)) => {
            let has_exponent = bytes.iter().any(|byte| b"eE".contains(byte));
            assert!(other.is_err() || has_exponent || bytes.len() > 300);
        }
        Err(JsonFault::Doubled | JsonFault::Excess) => {}
    }
});

fn value(read: Read<'_>) -> Value {
    if read.is_object() {
        let members = read.members();
        let count = members.len();
        let all = members.map(|(name, value)| (name.to_owned(), self::value(value)));
        let all: Map<String, Value> = all.collect();
        assert_eq!(all.len(), count);
        Value::Object(all)
    } else if read.is_list() {
        let elements = read.elements().enumerate();
        let all = elements.map(|(nth, (index, element))| {
            assert_eq!(nth, index);
            value(element)
        });
        Value::Array(all.collect())
    } else if let Some(text) = read.text() {
        Value::from(&*text)
    } else if let Some(flag) = read.flag() {
        Value::from(flag)
    } else if read.is_null() {
        Value::Null
    } else {
        assert!(read.is_number());
        let number = serde_json::from_str(read.raw()).expect("it is a number");
        let integer = read.number();
        assert!(integer.is_none_or(|integer| number == Value::from(integer)));
        number
    }
}
