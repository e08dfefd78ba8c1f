//! Each reader of content against somebody else's: Python's json, urllib and email, graphql-core,
//! websockets, and git itself (`second.py`).
//!
//! What the gateway reads, the other one reads too, and the same: so no policy and no loan rests on
//! a value that an origin reads otherwise. What only the other one reads is denied or left out.
//! `PROPTEST_CASES` is how many inputs each tries.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gateway::body::fact::{AmbiguousJson, FactType, FactValue, Location, PlainContent, ValueSpan};
use gateway::body::read::{ParsedRequest, Protocol};
use gateway::body::{Document, Questions};
use gateway::message::Place;
use gateway::wire::Cursor;
use gateway::wire::websocket::{FramePart, Frames, masked};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method};
use proptest::prelude::*;
use proptest::sample::{Index, select, subsequence};
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

struct Second {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Second {
    fn start() -> Self {
        let clients = std::env::var("GATEWAY_CLIENTS")
            .expect("GATEWAY_CLIENTS names the directory that `.ci/install` prints");
        let clients = Path::new(&clients);
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/content/readers/second.py");
        let mut child = Command::new(clients.join("venv/bin/python"))
            .arg(program)
            .env("PYTHONPATH", clients.join("content/python"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let from = BufReader::new(child.stdout.take().unwrap());
        let to = child.stdin.take();
        Self { child, to, from }
    }

    fn ask(&mut self, asked: &Value) -> Value {
        writeln!(self.to.as_ref().unwrap(), "{asked}").unwrap();
        let mut line = String::new();
        self.from.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("{asked}: {line:?}"))
    }

    fn read(&mut self, kind: &str, content: &[u8], mut more: Value) -> Value {
        more["kind"] = kind.into();
        more["content"] = STANDARD.encode(content).into();
        self.ask(&more)
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        // It ends with its input.
        drop(self.to.take());
        let _ = self.child.wait();
    }
}

/// Tries inputs, and some of them with bytes changed, and demands that some are read.
fn each(inputs: impl Strategy<Value = Vec<u8>>, mut is_read: impl FnMut(&[u8]) -> bool) {
    let changes = prop::collection::vec((any::<Index>(), 0..3_u8, select(BYTES)), 0..3);
    let mut runner = TestRunner::new(Config {
        failure_persistence: None,
        ..Config::default()
    });
    let count = std::cell::Cell::new((0, 0));
    let is_read = std::cell::RefCell::new(&mut is_read);
    let tried = runner.run(&(inputs, changes), |(mut input, changes)| {
        for (at, how, byte) in changes {
            let at = at.index(input.len() + 1);
            match (how, input.get_mut(at)) {
                (0, Some(old)) => *old = byte,
                (1, Some(_)) => drop(input.remove(at)),
                _ => input.insert(at, byte),
            }
        }
        let (read, all) = count.get();
        let is_read = (is_read.borrow_mut())(&input);
        count.set((read + u32::from(is_read), all + 1));
        Ok(())
    });
    tried.unwrap();
    let (read, all) = count.get();
    println!("{read} of {all} inputs are read");
    assert!(read * 50 > all, "too few of the inputs are read");
}

const BYTES: &[u8] = b"\0\t\n\r \"%&+,-./0:;=[\\]a{|}\x7f\x80\xff";

fn of_kind(kind: &str) -> HeaderMap {
    HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_str(kind).unwrap())])
}

/// The values of facts, and what stands in places, in one reading of the content.
fn read(
    fields: &HeaderMap,
    query: &str,
    content: &PlainContent,
    wanted: &[(&Location, FactType)],
) -> Vec<Option<FactValue>> {
    let mut questions = Questions::default();
    for (at, kind) in wanted {
        questions.fact(at, *kind);
    }
    let document = Document::read(fields, query, content, &questions);
    let values = wanted.iter().map(|(at, kind)| document.fact(at, *kind));
    values.collect()
}

fn spots(
    fields: &HeaderMap,
    query: &str,
    content: &PlainContent,
    places: &[&Place],
) -> Result<Vec<Option<ValueSpan>>, AmbiguousJson> {
    let mut questions = Questions::default();
    places.iter().for_each(|place| questions.place(place));
    let document = Document::read(fields, query, content, &questions);
    places.iter().map(|place| document.spot(place)).collect()
}

fn plain(content: &[u8]) -> PlainContent {
    PlainContent {
        bytes: content.to_vec().into(),
        ..PlainContent::default()
    }
}

/// Pieces, one behind the other.
fn pieces(all: &'static [&'static str], most: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(select(all), 1..most).prop_map(|all| all.concat().into_bytes())
}

fn json_text() -> impl Strategy<Value = String> {
    const LEAVES: &[&str] = &[
        "null",
        "true",
        "1",
        "-7",
        "0",
        "1.0",
        "1e3",
        "9007199254740991",
        "9007199254740993",
        r#""x""#,
        r#""a\u0062""#,
        r#""\ud83d\ude00""#,
        r#""\ud800""#,
        r#""""#,
        r#""\u0000""#,
        "[]",
    ];
    const NAMES: &[&str] = &["a", "a", "b", "b", "c", "A", r"\u0061", r"a\u0000", "é", ""];
    let leaf = select(LEAVES).prop_map(str::to_owned);
    leaf.prop_recursive(4, 24, 4, |inner| {
        let members = prop::collection::vec((select(NAMES), inner.clone()), 1..4);
        let object = members.prop_map(|all| {
            let all = all
                .iter()
                .map(|(name, value)| format!(r#""{name}": {value}"#));
            format!("{{{}}}", all.collect::<Vec<_>>().join(","))
        });
        let list = prop::collection::vec(inner, 0..3);
        prop_oneof![5 => object, 1 => list.prop_map(|all| format!("[{}]", all.join(" ,")))]
    })
}

#[test]
fn pythons_json_finds_each_fact_and_place_that_is_read() {
    let (mut second, kind) = (Second::start(), of_kind("application/json"));
    let pointers = ["/a", "/a/b", "/b/0", "/b"];
    let at = pointers.map(|at| Location::Json(at.parse().unwrap()));
    let places = pointers.map(|at| format!("json:{at}").parse::<Place>().unwrap());
    let kinds = [
        FactType::String,
        FactType::Long,
        FactType::Bool,
        FactType::Strings,
    ];
    each(json_text().prop_map(String::into_bytes), |content| {
        let shown = content.escape_ascii();
        let found = second.read("json", content, json!({"pointers": pointers}));
        let mut is_read = false;
        for kind_of in kinds {
            let wanted = at.each_ref().map(|at| (at, kind_of));
            for (nth, fact) in read(&kind, "", &plain(content), &wanted).iter().enumerate() {
                let Some(fact) = fact else { continue };
                is_read = true;
                assert_eq!(found[nth], json!([value(fact)]), "{shown}");
            }
        }
        let Ok(spots) = spots(&kind, "", &plain(content), &places.each_ref()) else {
            return is_read;
        };
        for (nth, spot) in spots.iter().enumerate() {
            match spot {
                // One of another spelling is refused.
                Some(spot) if !spot.is_exact => {}
                Some(spot) => match &spot.text {
                    Some(text) => assert_eq!(found[nth], json!([text]), "{shown}"),
                    None => assert!(!found[nth][0].is_string(), "{shown}: {found}"),
                },
                // Nothing stands there for the other one either.
                None => assert!(
                    found.get(nth).is_none_or(|all| all[0].is_null()),
                    "{shown}: {found}"
                ),
            }
        }
        is_read
    });
}

fn value(fact: &FactValue) -> Value {
    match fact {
        FactValue::Bool(value) => json!(value),
        FactValue::Long(value) => json!(value),
        FactValue::String(value) => json!(value),
        FactValue::Strings(value) => json!(value),
    }
}

#[test]
fn pythons_urllib_finds_each_member_of_a_form_that_is_read() {
    let (mut second, kind) = (
        Second::start(),
        of_kind("application/x-www-form-urlencoded"),
    );
    let (at, place) = (
        Location::Form("a".parse().unwrap()),
        "form:a".parse().unwrap(),
    );
    const PIECES: &[&str] = &[
        "a=", "a=1", "&b=2", "&", "&a=x+y", "%61=", "%C3%A9", "&A=", "b", ";", "%zz", "&a[]=",
    ];
    each(pieces(PIECES, 6), |content| {
        let shown = content.escape_ascii();
        let found = second.read("form", content, json!({"name": "a"}));
        let read = read(&kind, "", &plain(content), &[(&at, FactType::String)]).remove(0);
        let spot = spots(&kind, "", &plain(content), &[&place])
            .unwrap()
            .remove(0);
        let exact = spot.as_ref().filter(|spot| spot.is_exact);
        let text = exact.and_then(|spot| spot.text.clone());
        let is_refused = found.is_object();
        for text in read.iter().map(value).chain(text.map(Value::from)) {
            assert!(is_refused || found == json!([text]), "{shown}: {found}");
        }
        read.is_some() || spot.is_some()
    });
}

#[test]
fn pythons_email_finds_each_field_of_a_multipart_form_that_is_read() {
    let (mut second, kind) = (Second::start(), of_kind("multipart/form-data; boundary=b"));
    let at = Location::Multipart("a".parse().unwrap());
    let part = |head: &str, value: &str| format!("--b\r\n{head}\r\n\r\n{value}\r\n");
    let heads = [
        r#"Content-Disposition: form-data; name="a""#,
        r#"Content-Disposition: form-data; name="b""#,
        "content-disposition:form-data; name=a\r\nContent-Type: text/plain",
        "Content-Type: application/json\r\nContent-Disposition: form-data; name=\"b\"",
        r#"Content-Disposition: form-data; name="b"; filename="a""#,
        r#"Content-Disposition: form-data; name="A""#,
    ];
    let values = [
        "1", "", "-", "--", "\r\n", "--b", "\r\n-b", "name=a", "\r\n\r\n",
    ];
    let all = prop::collection::vec((select(heads.to_vec()), select(values.to_vec())), 1..4);
    let inputs = all.prop_map(move |all| {
        let all: String = all.iter().map(|(head, value)| part(head, value)).collect();
        (all + "--b--\r\n").into_bytes()
    });
    each(inputs, |content| {
        let shown = content.escape_ascii();
        let found = second.read("multipart", content, json!({"boundary": "b", "name": "a"}));
        let fact = read(&kind, "", &plain(content), &[(&at, FactType::String)]).remove(0);
        let Some(FactValue::String(text)) = &fact else {
            return false;
        };
        assert_eq!(found, json!([STANDARD.encode(text)]), "{shown}");
        true
    });
}

fn document() -> impl Strategy<Value = String> {
    const LEAVES: &[&str] = &[
        "a",
        r#"b: merge(i: "}")"#,
        "...F",
        "...G",
        "e @skip(if: true)",
        "i(o: {k: [1, \"\"\"x\"\"\"]})",
        "#}\n c",
    ];
    let items = prop::collection::vec(select(LEAVES), 1..3).prop_map(|all| all.join(" "));
    let items = items.prop_recursive(3, 8, 2, |inner| {
        let inside = ["f {", "... on T {", "... @include(if: true) {", "...{"];
        let one = (select(inside.to_vec()), inner.clone(), inner);
        one.prop_map(|(begin, inner, more)| format!("{begin}{inner}}}{more}"))
    });
    let begins = [
        "",
        "query Q",
        "mutation M($x: I = 1) @d",
        "subscription",
        "query",
    ];
    let ends = [
        "",
        "fragment F on T {g} fragment G on T {...F h}",
        "fragment F on T {k}",
    ];
    let operations = prop::collection::vec((select(begins.to_vec()), items), 1..3);
    (operations, select(ends.to_vec())).prop_map(|(operations, end)| {
        let all = operations
            .iter()
            .map(|(begin, items)| format!("{begin} {{{items}}}"));
        all.collect::<String>() + end
    })
}

#[test]
fn graphql_core_finds_the_operations_and_fields_that_are_read() {
    let mut second = Second::start();
    each(document().prop_map(String::into_bytes), |document| {
        let Ok(text) = std::str::from_utf8(document) else {
            return false;
        };
        let content = json!({"query": text}).to_string();
        let Some(ours) = facts(
            Protocol::Graphql,
            "/graphql",
            "application/json",
            content.as_bytes(),
        ) else {
            return false;
        };
        let found = second.read("graphql", document, json!({}));
        // A server that uses it refuses what it does not read.
        assert!(
            found.is_object() || found == json!(ours),
            "{text:?}: {ours:?}, {found}"
        );
        found.is_array()
    });
}

/// The first two facts of a request, sorted, if both are read.
fn facts(protocol: Protocol, path: &str, kind: &str, content: &[u8]) -> Option<[Vec<String>; 2]> {
    let (fields, content) = (of_kind(kind), plain(content));
    let mut questions = Questions::default();
    protocol.ask(&mut questions);
    let read = protocol.read(&ParsedRequest {
        host: "api.test",
        method: &Method::POST,
        path,
        upgrades: false,
        content: &Document::read(&fields, "", &content, &questions),
    });
    let mut read = read.into_iter().map(|(_, fact)| match fact {
        Ok(FactValue::Strings(mut all)) => {
            all.sort();
            Some(all)
        }
        _ => None,
    });
    Some([read.next()??, read.next()??])
}

#[test]
fn websockets_reads_the_frames_that_are_read() {
    let mut second = Second::start();
    let payloads = select(vec![0_usize, 1, 5, 125, 126, 300, 65_535, 65_536]);
    let firsts = [
        0x81, 0x01, 0x00, 0x80, 0x02, 0x82, 0x88, 0x89, 0x8a, 0x0a, 0x83, 0xc1,
    ];
    let frame = (select(firsts.to_vec()), payloads, any::<[u8; 4]>());
    let frame = frame.prop_map(|(first, length, mask)| {
        let mut bytes = vec![first];
        match length {
            0..126 => bytes.push(0x80 | length as u8),
            126..0x1_0000 => {
                bytes.push(0x80 | 126);
                bytes.extend((length as u16).to_be_bytes());
            }
            _ => {
                bytes.push(0x80 | 127);
                bytes.extend((length as u64).to_be_bytes());
            }
        }
        bytes.extend(mask);
        bytes.extend(masked(&vec![b'x'; length], mask));
        bytes
    });
    let all = prop::collection::vec(frame, 1..5).prop_map(|all| all.concat());
    each(all, |content| {
        let found = second.read("frames", content, json!({"masked": true}));
        let ours = frames(content);
        let theirs = found.as_array().unwrap();
        assert!(theirs.starts_with(&ours), "{ours:?}, {theirs:?}");
        !ours.is_empty()
    });
}

/// The frames that came whole, until one is malformed.
fn frames(content: &[u8]) -> Vec<Value> {
    let (mut frames, mut cursor) = (Frames::new(true), Cursor::new(content));
    let mut all = Vec::new();
    while let Ok(Some(FramePart::Header(frame))) = frames.next(&mut cursor) {
        let Ok(Some(FramePart::Payload(payload, true))) = frames.next(&mut cursor) else {
            break;
        };
        let payload: Vec<u8> = masked(payload, frame.mask.unwrap()).collect();
        all.push(json!([frame.opcode, frame.last, STANDARD.encode(payload)]));
    }
    all
}

#[test]
fn git_is_asked_for_the_refs_that_are_read() {
    const REFS: [&str; 4] = [
        "refs/heads/main",
        "refs/heads/a",
        "refs/tags/v1",
        "refs/heads/ü",
    ];
    let mut second = Second::start();
    let made = second.ask(&json!({"kind": "repository", "refs": REFS}));
    let (folder, commit) = (&made[0], made[1].as_str().unwrap().to_owned());
    let line = |text: String| format!("{:04x}{text}", text.len() + 4);
    let options = [
        "\0 report-status",
        "\0report-status delete-refs agent=git/2",
        "\0",
        "",
        "\n",
    ];
    let all = (
        subsequence(&REFS[..], 1..4),
        select(options.to_vec()),
        select(&["", "\n"][..]),
    );
    let inputs = all.prop_map(move |(refs, options, end)| {
        let mut behind = options;
        let lines = refs.iter().map(|name| {
            let text = format!("{commit} {} {name}{behind}", "0".repeat(40));
            behind = end;
            line(text)
        });
        (lines.collect::<String>() + "0000").into_bytes()
    });
    each(inputs, |content| {
        let kind = "application/x-git-receive-pack-request";
        let ours = facts(Protocol::Git, "/o/r.git/git-receive-pack", kind, content);
        let asked = second.read("push", content, json!({"folder": folder}));
        let (Some([ours, _]), Some(asked)) = (ours, asked.as_array()) else {
            return false;
        };
        for name in asked {
            let name = name.as_str().unwrap();
            let is_told = ours
                .iter()
                .any(|told| told.split_once(' ').is_some_and(|(_, at)| at == name));
            assert!(is_told, "{ours:?}, {asked:?}");
        }
        true
    });
    std::fs::remove_dir_all(folder.as_str().unwrap()).unwrap();
}
