//! What does it cost to read what a request does, and to find a credential's place in its content?

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use gateway_body::fact::{FactType, Location, PlainContent, spot_in_message};
use gateway_body::read::{ParsedRequest, Protocol};
use gateway_body::{Document, Questions};
use gateway_message::Place;
use gateway_wire::Cursor;
use gateway_wire::websocket::{FramePart, Frames, TEXT, masked, whole_frame};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method};

const PHANTOM: &str = "ghp_0123456789abcdefghijABCDEFGHIJ012345";

/// A chat of this many bytes of JSON, with a token behind its messages.
fn chat(length: usize) -> Vec<u8> {
    let message = r#"{"role":"user","content":"Say \"hello\" to the 2 of us, naïve as ever."},"#;
    let messages = message.repeat(length / message.len());
    let messages = messages.trim_end_matches(',');
    format!(r#"{{"model":"m","messages":[{messages}],"metadata":{{"token":"{PHANTOM}"}}}}"#).into()
}

/// A push that changes so many refs.
fn push(refs: usize) -> Vec<u8> {
    let (old, new) = ("0".repeat(40), "5".repeat(40));
    let mut content = String::new();
    for nth in 0..refs {
        let options = if nth == 0 { "\0 report-status" } else { "" };
        let line = format!("{old} {new} refs/heads/agent/{nth}{options}");
        content += &format!("{:04x}{line}", line.len() + 4);
    }
    (content + "0000").into()
}

/// GraphQL of so many bytes, with fields behind aliases and fragments.
fn document(length: usize) -> Vec<u8> {
    let field = "a: node(id: 1) { ...F id } ";
    let fields = field.repeat(length / field.len());
    let query = format!("query Q {{ {fields} }} fragment F on Node {{ id name }}");
    serde_json::json!({ "query": query }).to_string().into()
}

fn plain(content: Vec<u8>) -> PlainContent {
    PlainContent {
        bytes: content.into(),
        ..PlainContent::default()
    }
}

fn of_kind(kind: &'static str) -> HeaderMap {
    HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))])
}

fn content(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("content");
    group
        .sample_size(30)
        .measurement_time(std::time::Duration::from_secs(2));
    group.warm_up_time(std::time::Duration::from_millis(500));
    let json = of_kind("application/json");

    let asked = plain(chat(100 << 10));
    let model = Location::Json("/model".parse().unwrap());
    group.bench_function("fact/json_100k", |bench| {
        bench.iter(|| {
            let mut questions = Questions::default();
            questions.fact(&model, FactType::String);
            let document = Document::read(&json, "", black_box(&asked), &questions);
            assert!(document.fact(&model, FactType::String).is_some());
        });
    });
    let place: Place = "json:/metadata/token".parse().unwrap();
    for (name, length) in [("place/json_100k", 100 << 10), ("place/json_16m", 16 << 20)] {
        let content = plain(chat(length));
        group.bench_function(name, |bench| {
            bench.iter(|| {
                let mut questions = Questions::default();
                questions.place(&place);
                let document = Document::read(&json, "", black_box(&content), &questions);
                let spot = document.spot(&place).unwrap().unwrap();
                assert_eq!(spot.text.as_deref(), Some(PHANTOM));
            });
        });
    }
    let Place::Path(path) = "path:/bot{}/".parse().unwrap() else {
        unreachable!("it is one of the path");
    };
    let target = format!("/bot{PHANTOM}/sendMessage");
    group.bench_function("place/path", |bench| {
        bench.iter(|| assert!(path.find(black_box(&target)).is_some()));
    });
    let (mask, text) = ([0x5a, 0, 0xff, 0x17], chat(1 << 10));
    let (frame, pointer) = (
        whole_frame(TEXT, &text, Some(mask)),
        "/metadata/token".parse().unwrap(),
    );
    group.bench_function("place/websocket_1k", |bench| {
        bench.iter(|| {
            let (mut frames, mut cursor) = (Frames::new(true), Cursor::new(black_box(&frame)));
            let header = frames.next(&mut cursor).unwrap().unwrap();
            assert!(matches!(header, FramePart::Header(_)));
            let payload = frames.next(&mut cursor).unwrap().unwrap();
            let FramePart::Payload(payload, true) = payload else {
                unreachable!("the frame is whole");
            };
            let text: Vec<u8> = masked(payload, mask).collect();
            let text = String::from_utf8(text).unwrap();
            let spot = spot_in_message(text.as_bytes(), &pointer).unwrap().unwrap();
            assert_eq!(spot.text.as_deref(), Some(PHANTOM));
            whole_frame(TEXT, text.as_bytes(), Some(mask))
        });
    });
    let requests = [
        (
            "git/1000_refs",
            Protocol::Git,
            "/o/r.git/git-receive-pack",
            of_kind("application/x-git-receive-pack-request"),
            push(1_000),
        ),
        (
            "graphql/16k",
            Protocol::Graphql,
            "/graphql",
            json.clone(),
            document(16 << 10),
        ),
        (
            "model/100k",
            Protocol::Model,
            "/v1/chat/completions",
            json.clone(),
            chat(100 << 10),
        ),
    ];
    for (name, protocol, path, fields, content) in requests {
        let content = plain(content);
        let read = || {
            let mut questions = Questions::default();
            protocol.ask(&mut questions);
            protocol.read(&ParsedRequest {
                host: "api.openai.com",
                method: &Method::POST,
                path,
                upgrades: false,
                content: &Document::read(&fields, "", black_box(&content), &questions),
            })
        };
        assert!(read()[0].1.is_ok(), "{name}");
        group.bench_function(name, |bench| bench.iter(read));
    }
    group.finish();
}

criterion_group!(benches, content);
criterion_main!(benches);
