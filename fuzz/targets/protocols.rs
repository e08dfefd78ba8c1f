//! What requests do: the operations and fields that are read of a document are what another parser
//! of GraphQL finds there, and the methods and tools of MCP are those of every frame.
#![no_main]

use std::collections::BTreeSet;

use gateway_body::fact::{FactValue, PlainContent};
use gateway_body::read::{ParsedRequest, Protocol};
use gateway_body::{Document, Questions};
use graphql_parser::query::{self, Definition, OperationDefinition, Selection, SelectionSet};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|input: &[u8]| {
    match input.split_first() {
        Some((0..128, document)) => graphql(document),
        Some((128..192, content)) => mcp(content),
        Some((_, content)) => {
            for protocol in ["graphql", "model"] {
                facts(protocol, &Method::POST, "", content);
            }
            if let Ok(query) = std::str::from_utf8(content) {
                facts("graphql", &Method::GET, query, b"");
            }
        }
        None => {}
    }
});

fn graphql(document: &[u8]) {
    let Ok(text) = std::str::from_utf8(document) else {
        return;
    };
    let content = serde_json::json!({ "query": text }).to_string();
    let Some([operations, fields]) = sets("graphql", content.as_bytes()) else {
        return;
    };
    // It knows less of the grammar.
    let Ok(other) = graphql_parser::parse_query::<String>(text) else {
        return;
    };
    let (mut kinds, mut found) = (BTreeSet::new(), BTreeSet::new());
    for definition in &other.definitions {
        let Definition::Operation(operation) = definition else {
            continue;
        };
        let (kind, name, set) = match operation {
            OperationDefinition::SelectionSet(set) => ("query", None, set),
            OperationDefinition::Query(one) => ("query", one.name.as_ref(), &one.selection_set),
            OperationDefinition::Mutation(one) => {
                ("mutation", one.name.as_ref(), &one.selection_set)
            }
            OperationDefinition::Subscription(one) => {
                ("subscription", one.name.as_ref(), &one.selection_set)
            }
        };
        kinds.insert(kind.to_owned());
        kinds.extend(name.map(|name| format!("{kind} {name}")));
        select(&other, kind, set, &mut BTreeSet::new(), &mut found);
    }
    assert_eq!((&operations, &fields), (&kinds, &found), "{text:?}");
}

fn select<'d>(
    document: &'d query::Document<'_, String>,
    kind: &str,
    set: &'d SelectionSet<'_, String>,
    seen: &mut BTreeSet<&'d str>,
    found: &mut BTreeSet<String>,
) {
    for item in &set.items {
        match item {
            Selection::Field(field) => drop(found.insert(format!("{kind}.{}", field.name))),
            Selection::InlineFragment(inner) => {
                select(document, kind, &inner.selection_set, seen, found);
            }
            Selection::FragmentSpread(spread) if seen.insert(&spread.fragment_name) => {
                let mut all = document.definitions.iter();
                let fragment = all.find_map(|one| match one {
                    Definition::Fragment(one) if one.name == spread.fragment_name => Some(one),
                    _ => None,
                });
                let fragment = fragment.expect("it is there");
                select(document, kind, &fragment.selection_set, seen, found);
            }
            Selection::FragmentSpread(_) => {}
        }
    }
}

fn mcp(content: &[u8]) {
    let Some([methods, tools]) = sets("mcp", content) else {
        return;
    };
    let whole: Value = serde_json::from_slice(content).expect("serde_json reads it");
    let frames = whole.as_array().cloned().unwrap_or_else(|| vec![whole]);
    let (mut called, mut used) = (BTreeSet::new(), BTreeSet::new());
    for frame in &frames {
        let Some(method) = frame["method"].as_str() else {
            assert!(frame.get("result").or(frame.get("error")).is_some());
            continue;
        };
        called.insert(method.to_owned());
        if method == "tools/call" {
            used.insert(frame["params"]["name"].as_str().unwrap().to_owned());
        }
    }
    assert_eq!((methods, tools), (called, used));
}

/// The two sets that are read of JSON, if both are.
fn sets(protocol: &str, content: &[u8]) -> Option<[BTreeSet<String>; 2]> {
    let read = facts(protocol, &Method::POST, "", content);
    let mut sets = read.into_iter().map(|value| match value? {
        FactValue::Strings(all) => Some(all.into_iter().collect()),
        other => panic!("{other:?}"),
    });
    Some([sets.next()??, sets.next()??])
}

fn facts(protocol: &str, method: &Method, query: &str, content: &[u8]) -> Vec<Option<FactValue>> {
    let json = HeaderValue::from_static("application/json");
    let fields = HeaderMap::from_iter([(CONTENT_TYPE, json)]);
    let content = PlainContent {
        bytes: content.to_vec().into(),
        ..PlainContent::default()
    };
    let protocol: Protocol = protocol.parse().unwrap();
    let mut questions = Questions::default();
    protocol.ask(&mut questions);
    let found = protocol.read(&ParsedRequest {
        host: "api.openai.com",
        method,
        path: "/v1/models/m:x",
        upgrades: false,
        content: &Document::read(&fields, query, &content, &questions),
    });
    found.into_iter().map(|(_, value)| value.ok()).collect()
}
