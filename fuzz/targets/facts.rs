//! Facts of content: one that is read from JSON or a form is what `serde_json` or `form_urlencoded`
//! reads there, once.
#![no_main]

use gateway_body::fact::{FactType, FactValue, Location, PlainContent};
use gateway_body::{Document, Questions};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

const TYPES: [FactType; 4] = [
    FactType::Long,
    FactType::String,
    FactType::Bool,
    FactType::Strings,
];

fuzz_target!(|input: &[u8]| {
    match input.split_first() {
        Some((0..128, content)) => json(content),
        Some((_, content)) => form(content),
        None => {}
    }
});

fn json(content: &[u8]) {
    let Ok(pointer) = "/a".parse() else { return };
    let Ok(nested) = "/b/0/a".parse() else { return };
    for location in [Location::Json(pointer), Location::Json(nested)] {
        for (kind, fact) in TYPES
            .into_iter()
            .zip(facts("application/json", content, &location))
        {
            let Some(fact) = fact else { continue };
            let whole: Value = serde_json::from_slice(content).expect("serde_json reads it");
            let place = match &location {
                Location::Json(pointer) if *pointer == "/a".parse().unwrap() => "/a",
                _ => "/b/0/a",
            };
            let value = whole.pointer(place).expect("it is there");
            assert!(is(&fact, value), "{kind:?} {fact:?} {value}");
        }
    }
}

fn is(fact: &FactValue, value: &Value) -> bool {
    match fact {
        FactValue::Long(number) => value.as_i64() == Some(*number),
        FactValue::String(text) => value.as_str() == Some(text),
        FactValue::Bool(truth) => value.as_bool() == Some(*truth),
        FactValue::Strings(texts) => {
            let values = value.as_array().unwrap();
            values
                .iter()
                .map(Value::as_str)
                .eq(texts.iter().map(|text| Some(&text[..])))
        }
    }
}

fn form(content: &[u8]) {
    for name in ["a", "card[number]"] {
        let location = Location::Form(name.parse().unwrap());
        for fact in facts("application/x-www-form-urlencoded", content, &location) {
            let Some(fact) = fact else { continue };
            let mut values = form_urlencoded::parse(content).filter(|(other, _)| other == name);
            let (_, value) = values.next().expect("it is there");
            assert!(values.next().is_none(), "it is there once");
            let same = match fact {
                FactValue::Long(number) => number.to_string() == value,
                FactValue::String(text) => text == value,
                FactValue::Bool(truth) => truth.to_string() == value,
                FactValue::Strings(_) => false,
            };
            assert!(same, "{value}");
        }
    }
}

/// What is read at a place, by type.
fn facts(kind: &'static str, content: &[u8], location: &Location) -> [Option<FactValue>; 4] {
    let fields = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]);
    let plain = PlainContent {
        bytes: content.to_vec().into(),
        ..PlainContent::default()
    };
    TYPES.map(|kind| {
        let mut questions = Questions::default();
        questions.fact(location, kind);
        Document::read(&fields, "", &plain, &questions).fact(location, kind)
    })
}
