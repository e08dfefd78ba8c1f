//! Policies over content: what was judged is what is sent, and what does not read in one way is
//! denied.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::echoes::coded_pieces;
use crate::rig::frames::{DATA, END_STREAM};
use crate::rig::origin::ok;
use crate::rig::way::Way;
use crate::rig::{GOOD, MODEL, MONEY, OTHER, Rig};
use crate::rows;

rows![
    a_refund_above_an_amount_is_refused,
    a_model_and_its_tokens_are_bounded,
    content_that_reads_two_ways_is_not_judged,
    content_behind_a_coding_is_judged_as_the_origin_reads_it,
    content_too_long_to_be_judged_is_refused,
    what_was_judged_is_what_is_sent,
    only_content_that_a_verdict_depends_on_is_held,
    a_credential_is_lent_by_what_the_content_says,
    the_record_names_the_facts_that_were_read_and_no_value,
    no_rule_is_proposed_where_the_content_decides,
    a_mutation_is_found_behind_aliases_fragments_and_batches,
    a_document_in_the_query_is_judged_without_content,
    a_push_to_another_branch_is_refused,
    a_push_is_judged_before_its_objects_which_stream,
    a_tool_that_is_not_allowed_is_not_called,
    an_argument_of_a_tool_is_bounded,
    a_refused_call_is_answered_in_json_rpc,
    a_field_of_a_multipart_form_is_judged_before_a_file_streams,
    content_that_is_text_is_judged,
    a_model_gets_no_tool_that_its_provider_runs,
];

const FORM: &str = "application/x-www-form-urlencoded";
const JSON: &str = "application/json";

/// One request with content, over HTTP/1.1 and over HTTP/2.
pub struct Post<'a> {
    pub host: &'a str,
    pub path: &'a str,
    pub fields: Vec<(&'a str, &'a str)>,
    pub content: &'a [u8],
}

impl<'a> Post<'a> {
    pub fn new(host: &'a str, path: &'a str, kind: &'a str, content: &'a [u8]) -> Self {
        let fields = vec![("content-type", kind)];
        Self {
            host,
            path,
            fields,
            content,
        }
    }

    pub fn with(mut self, name: &'a str, value: &'a str) -> Self {
        self.fields.push((name, value));
        self
    }

    /// Sends it, and gives the audit record.
    pub fn record(&self, rig: &Rig, way: Way, http2: bool) -> Value {
        if http2 {
            let mut frames = rig.frames(way, self.host);
            let mut fields = vec![
                (":method", "POST"),
                (":scheme", "https"),
                (":authority", self.host),
                (":path", self.path),
            ];
            fields.extend(&self.fields);
            frames.headers(1, &fields, false);
            frames.content(1, self.content);
            frames.frame(DATA, END_STREAM, 1, b"");
            let fate = frames.fate(1);
            assert!(fate.answered, "{way:?} {} {fate:?}", self.host);
        } else {
            let mut head = format!("POST {} HTTP/1.1\r\nHost: {}\r\n", self.path, self.host);
            for (name, value) in &self.fields {
                head.push_str(&format!("{name}: {value}\r\n"));
            }
            head.push_str(&format!("Content-Length: {}\r\n\r\n", self.content.len()));
            let mut wire = rig.open(way, self.host);
            wire.ask(&[head.as_bytes(), self.content].concat());
        }
        rig.record(way)
    }

    /// Sends it, and gives the reason of the refusal, or nothing.
    fn send(&self, rig: &Rig, way: Way, http2: bool) -> String {
        let record = self.record(rig, way, http2);
        record["reason"].as_str().unwrap_or_default().to_owned()
    }

    /// Sends it by every listener, in both protocols, and expects this reason, or that the origin
    /// gets the very bytes.
    fn expect(&self, rig: &Rig, reason: &str) {
        let shown = String::from_utf8_lossy(&self.content[..self.content.len().min(200)]);
        for way in Way::SECURE {
            for http2 in [false, true] {
                let got = self.send(rig, way, http2);
                assert_eq!(got, reason, "{way:?} h2 {http2}: {:?} {shown}", self.fields);
                let seen = rig.seen();
                assert_eq!(
                    seen.len(),
                    usize::from(reason.is_empty()),
                    "{way:?} {shown}"
                );
                if let Some(seen) = seen.first() {
                    assert_eq!(seen.body, self.content, "{way:?} {shown}");
                }
            }
        }
    }
}

fn refund(content: &str) -> Post<'_> {
    Post::new(MONEY, "/v1/refunds", FORM, content.as_bytes())
}

fn chat(content: &str) -> Post<'_> {
    Post::new(MODEL, "/v1/chat/completions", JSON, content.as_bytes())
}

/// A form as Stripe's SDK sends it.
fn a_refund_above_an_amount_is_refused(rig: &Rig) {
    refund("amount=500&charge=ch_3Nx").expect(rig, "");
    refund("charge=ch_3Nx&amount=5000&metadata%5Border%5D=6000").expect(rig, "");
    refund("amount=6000&charge=ch_3Nx").expect(rig, "policy_forbids");
    refund("charge=ch_3Nx&amount=5001").expect(rig, "policy_forbids");
    // A refund of everything says no amount.
    refund("charge=ch_3Nx").expect(rig, "policy_error");
    for twice in [
        "amount=500&amount=6000",
        "amount=6000&amount=500",
        "amount=500&amount[]=6000",
        "amount=500&%61mount=6000",
        "amount=500&Amount=6000",
        "amount=500;amount=6000",
        "amount=500&amount",
        "?amount=6000&amount=500",
        "%3Famount=6000&amount=500",
        "amount=500&amo\u{200b}unt=6000",
    ] {
        refund(twice).expect(rig, "policy_error");
    }
    for no_number in [
        "amount=",
        "amount=500.0",
        "amount=5e2",
        "amount=0500",
        "amount=+500",
    ] {
        refund(no_number).expect(rig, "policy_error");
    }
    for query in ["?amount=6000", "??amount=6000"] {
        let path = format!("/v1/refunds{query}");
        Post::new(MONEY, &path, FORM, b"amount=500").expect(rig, "policy_error");
    }
    // Another type than the declared one.
    Post::new(MONEY, "/v1/refunds", JSON, b"{\"amount\":500}").expect(rig, "policy_error");
    let part = b"--b\r\nContent-Disposition: form-data; name=\"amount\"\r\n\r\n6000\r\n--b--\r\n";
    Post::new(
        MONEY,
        "/v1/refunds",
        "multipart/form-data; boundary=b",
        part,
    )
    .expect(rig, "policy_error");
    // Elsewhere nothing depends on it.
    Post::new(MONEY, "/v1/charges", FORM, b"amount=6000").expect(rig, "");
}

/// JSON as OpenAI's and Anthropic's SDKs send it.
fn a_model_and_its_tokens_are_bounded(rig: &Rig) {
    let messages = r#""messages":[{"role":"user","content":"say \"max_tokens\":999999"}]"#;
    chat(&format!(
        r#"{{{messages},"model":"gpt-4o-mini","max_tokens":1024}}"#
    ))
    .expect(rig, "");
    let claude = format!(r#"{{"max_tokens":16,{messages},"model":"claude-haiku-4-5"}}"#);
    Post::new(MODEL, "/v1/messages", JSON, claude.as_bytes()).expect(rig, "");
    chat(&format!(
        r#"{{{messages},"model":"gpt-4o-mini","max_tokens":1025}}"#
    ))
    .expect(rig, "policy_default_deny");
    chat(&format!(
        r#"{{{messages},"model":"o3-pro","max_tokens":1}}"#
    ))
    .expect(rig, "policy_default_deny");
    for unread in [
        format!(r#"{{{messages},"model":"gpt-4o-mini"}}"#),
        format!(r#"{{{messages},"max_tokens":1}}"#),
        format!(r#"{{{messages},"model":["gpt-4o-mini"],"max_tokens":1}}"#),
        format!(r#"{{{messages},"model":"gpt-4o-mini","max_tokens":"1"}}"#),
        format!(r#"{{{messages},"model":"gpt-4o-mini","max_tokens":1.0}}"#),
        format!(r#"{{{messages},"model":"gpt-4o-mini","max_tokens":18446744073709551617}}"#),
    ] {
        chat(&unread).expect(rig, "policy_error");
    }
    let elsewhere = format!(r#"{{{messages},"model":"gpt-4o-mini","max_tokens":1}}"#);
    Post::new(MODEL, "/v1/images", JSON, elsewhere.as_bytes()).expect(rig, "policy_default_deny");
}

fn content_that_reads_two_ways_is_not_judged(rig: &Rig) {
    let good = r#"{"model":"gpt-4o-mini","max_tokens":1}"#;
    chat(good).expect(rig, "");
    for bad in [
        r#"{"model":"gpt-4o-mini","max_tokens":1,"max_tokens":9}"#,
        r#"{"model":"gpt-4o-mini","max_tokens":1,"MAX_TOKENS":9}"#,
        r#"{"model":"gpt-4o-mini","max_tokens":1,"x":{"y":1,"y":2}}"#,
        "\u{feff}{\"model\":\"gpt-4o-mini\",\"max_tokens\":1}",
        r#"{"model":"gpt-4o-mini","max_tokens":1}{"max_tokens":9}"#,
        r#"{"model":"gpt-4o-mini","max_tokens":1,"x":"\udc00"}"#,
        r#"{"model":"gpt-4o-mini","max_tokens":1,"x":1e999}"#,
        r#"{"model":"gpt-4o-mini","max_tokens":1"#,
        "model=gpt-4o-mini&max_tokens=1",
        "",
        &"[".repeat(50_000),
        &"{\"a\":".repeat(10_000),
    ] {
        chat(bad).expect(rig, "policy_error");
    }
    // An origin may take what the query says before what the content says.
    for query in ["max_tokens=9000", "max%5Ftokens[]=9000", "Max_Tokens"] {
        let path = format!("/v1/messages?{query}");
        Post::new(MODEL, &path, JSON, good.as_bytes()).expect(rig, "policy_error");
    }
    let latin = [good.as_bytes(), b" \xff"].concat();
    Post::new(MODEL, "/v1/messages", JSON, &latin).expect(rig, "policy_error");
    let utf16: Vec<u8> = good.encode_utf16().flat_map(u16::to_le_bytes).collect();
    Post::new(MODEL, "/v1/messages", JSON, &utf16).expect(rig, "policy_error");
    for kind in [
        "text/plain",
        "application/json; charset=utf-16",
        "application/json, text/plain",
        "multipart/mixed; boundary=x",
    ] {
        Post::new(MODEL, "/v1/messages", kind, good.as_bytes()).expect(rig, "policy_error");
    }
    chat(good)
        .with("content-type", JSON)
        .expect(rig, "field_duplicate");
}

fn content_behind_a_coding_is_judged_as_the_origin_reads_it(rig: &Rig) {
    let (small, large) = (&b"amount=500"[..], &b"amount=6000"[..]);
    for coding in ["gzip", "br", "zstd"] {
        let coded = |content: &[u8]| coded_pieces(coding, &[content]).concat();
        for (content, reason) in [(small, ""), (large, "policy_forbids")] {
            Post::new(MONEY, "/v1/refunds", FORM, &coded(content))
                .with("content-encoding", coding)
                .expect(rig, reason);
        }
        // The end is missing; other bytes follow; it is not what it says; it is coded twice.
        let whole = coded(small);
        let damaged = [
            (&whole[..whole.len() - 1], "policy_error"),
            (&[&whole[..], b"x"].concat(), "content_unreadable"),
            // As brotli, this has no end.
            (
                small,
                if coding == "br" {
                    "policy_error"
                } else {
                    "content_unreadable"
                },
            ),
        ];
        for (content, reason) in damaged {
            Post::new(MONEY, "/v1/refunds", FORM, content)
                .with("content-encoding", coding)
                .expect(rig, reason);
        }
        Post::new(MONEY, "/v1/refunds", FORM, &coded(&whole))
            .with("content-encoding", &format!("{coding}, {coding}"))
            .expect(rig, "policy_error");
    }
    // Gzip has room for the name of a file, where an origin that undoes no coding finds a pair.
    let mut named = coded_pieces("gzip", &[small]).concat();
    named[3] |= 8;
    named.splice(10..10, *b"&amount=6000&\0");
    Post::new(MONEY, "/v1/refunds", FORM, &named)
        .with("content-encoding", "gzip")
        .expect(rig, "policy_error");
    // Reserved flags are an error to some readers, who may then take the bytes as they are.
    let mut reserved = coded_pieces("gzip", &[small]).concat();
    reserved[3] |= 0x20;
    Post::new(MONEY, "/v1/refunds", FORM, &reserved)
        .with("content-encoding", "gzip")
        .expect(rig, "policy_error");
    // Some readers take the first member alone, and of `deflate` there are two kinds.
    let members = ["amount=6000", "&amount=500"]
        .map(|part| coded_pieces("gzip", &[part.as_bytes()]).concat());
    let deflated = coded_pieces("deflate", &[small]).concat();
    for (coding, content) in [
        ("gzip", members.concat()),
        ("deflate", deflated),
        ("compress", small.to_vec()),
    ] {
        Post::new(MONEY, "/v1/refunds", FORM, &content)
            .with("content-encoding", coding)
            .expect(rig, "policy_error");
    }
}

/// 17 MiB: as it comes, in pieces of unknown number, and out of a few bytes in gzip.
fn content_too_long_to_be_judged_is_refused(rig: &Rig) {
    let long = format!("{{\"amount\":1,\"x\":\"{}\"}}", " ".repeat(17 << 20));
    let coded = coded_pieces("zstd", &[long.as_bytes()]).concat();
    assert!(coded.len() < 60_000, "{}", coded.len());
    for way in Way::SECURE {
        let head = format!(
            "POST /v1/refunds HTTP/1.1\r\nHost: {MONEY}\r\nContent-Type: {FORM}\r\nContent-Length: {}\r\n\r\n",
            long.len()
        );
        let mut wire = rig.open(way, MONEY);
        let answer = wire.ask(head.as_bytes());
        assert_eq!(
            (answer.status, answer.reason().as_str()),
            (413, "content_too_long"),
            "{way:?}"
        );
        rig.record(way);
        let mut frames = rig.frames(way, MONEY);
        let length = long.len().to_string();
        let fields = [
            (":method", "POST"),
            (":scheme", "https"),
            (":authority", MONEY),
            (":path", "/v1/refunds"),
            ("content-type", FORM),
            ("content-length", &length),
        ];
        frames.headers(1, &fields, false);
        assert!(frames.fate(1).answered, "{way:?}");
        assert_eq!(rig.record(way)["reason"], "content_too_long", "{way:?}");
    }
    Post::new(MODEL, "/v1/messages", JSON, &coded)
        .with("content-encoding", "zstd")
        .expect(rig, "content_too_long");
    // Where no verdict depends on it, it streams.
    Post::new(MONEY, "/v1/charges", JSON, &coded)
        .with("content-encoding", "zstd")
        .expect(rig, "");
}

/// Chunks, a client that waits to be asked, and trailers.
fn what_was_judged_is_what_is_sent(rig: &Rig) {
    let fill = |way, template: &str| rig.ask(way, MONEY, template);
    for way in Way::SECURE {
        let chunked = "POST /v1/refunds HTTP/1.1\r\nHost: {H}\r\nContent-Type: application/x-www-form-urlencoded\r\nTransfer-Encoding: chunked\r\n\r\n5\r\namoun\r\n6\r\nt=5000\r\n0\r\nx-after: 1\r\n\r\n";
        assert_eq!(fill(way, chunked).status, 200, "{way:?}");
        rig.record(way);
        assert_eq!(rig.seen().remove(0).body, b"amount=5000", "{way:?}");
        let bytes: String = "amount=5001"
            .chars()
            .map(|c| format!("1\r\n{c}\r\n"))
            .collect();
        let head = chunked.split("5\r\namoun").next().unwrap();
        let one_by_one = format!("{head}{bytes}0\r\n\r\n");
        assert_eq!(fill(way, &one_by_one).reason(), "policy_forbids", "{way:?}");
        rig.record(way);
        let large = chunked.replace("t=5000", "t=5001");
        assert_eq!(fill(way, &large).reason(), "policy_forbids", "{way:?}");
        rig.record(way);
        assert!(rig.seen().is_empty());
        for (amount, status) in [("500", 200), ("600", 200), ("5001", 403)] {
            let content = format!("amount={amount}");
            let head = format!(
                "POST /v1/refunds HTTP/1.1\r\nHost: {MONEY}\r\nContent-Type: {FORM}\r\nExpect: 100-continue\r\nContent-Length: {}\r\n\r\n",
                content.len()
            );
            let mut wire = rig.open(way, MONEY);
            wire.send(head.as_bytes());
            let asked = wire.line(b"\r\n\r\n").unwrap();
            assert!(asked.starts_with(b"HTTP/1.1 100"), "{way:?}");
            let answer = wire.ask(content.as_bytes());
            assert_eq!(answer.status, status, "{way:?} {amount} {answer:?}");
            rig.record(way);
            let seen = rig.seen();
            assert_eq!(seen.len(), usize::from(status == 200), "{way:?} {amount}");
            seen.iter()
                .for_each(|seen| assert_eq!(seen.body, content.as_bytes()));
        }
    }
    // Over clear text nothing is declared, so that nothing is read.
    for way in Way::CLEAR {
        let template = "POST {T}/v1/refunds HTTP/1.1\r\nHost: {H}\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 10\r\n\r\namount=500";
        assert_eq!(fill(way, template).reason(), "policy_error", "{way:?}");
        rig.record(way);
        assert!(rig.seen().is_empty());
    }
}

/// An origin that answers before the content is whole shows that it came piece by piece.
fn only_content_that_a_verdict_depends_on_is_held(rig: &Rig) {
    rig.origins.on("/v1/early", |_| ok("", b"early"));
    for way in Way::SECURE {
        for (host, path) in [(MONEY, "/v1/early"), (OTHER, "/v1/early")] {
            let half = format!(
                "POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: {FORM}\r\nContent-Length: 1000\r\n\r\namount=1"
            );
            let mut wire = rig.open(way, host);
            wire.send(half.as_bytes());
            let rest = "x".repeat(1000 - 8);
            let answer = wire.ask(rest.as_bytes());
            assert_eq!(answer.status, 200, "{way:?} {host} {answer:?}");
            rig.record(way);
            rig.seen();
        }
        // What a rule on the head forbids is refused before its content has come.
        let denied = format!(
            "POST /secret/v1/refunds HTTP/1.1\r\nHost: {MONEY}\r\nContent-Type: {FORM}\r\nContent-Length: 1000\r\n\r\n"
        );
        let mut wire = rig.open(way, MONEY);
        assert_eq!(
            wire.ask(denied.as_bytes()).reason(),
            "policy_forbids",
            "{way:?}"
        );
        rig.record(way);
        assert!(rig.seen().is_empty());
    }
}

fn a_credential_is_lent_by_what_the_content_says(rig: &Rig) {
    for way in Way::SECURE {
        let bearer = format!("Bearer {}", rig.phantom(way, "bearer"));
        for (content, reason) in [
            ("{\"amount\":5}", ""),
            ("{\"amount\":6000}", "policy_forbids"),
            ("{\"amount\":\"5\"}", "policy_error"),
            ("", "policy_error"),
        ] {
            for http2 in [false, true] {
                let post = Post::new(GOOD, "/pay", JSON, content.as_bytes())
                    .with("authorization", &bearer);
                assert_eq!(
                    post.send(rig, way, http2),
                    reason,
                    "{way:?} {http2} {content}"
                );
                let seen = rig.seen();
                assert_eq!(seen.len(), usize::from(reason.is_empty()));
                if let Some(seen) = seen.first() {
                    let secret = format!("Bearer {}", rig.secret("bearer"));
                    assert_eq!(seen.all("authorization"), [secret]);
                }
            }
        }
        // Without the credential nobody asks what it says.
        let post = Post::new(GOOD, "/pay", JSON, b"{\"amount\":6000}");
        assert_eq!(post.send(rig, way, false), "");
        rig.seen();
    }
}

/// A rule for the request would permit every content.
fn no_rule_is_proposed_where_the_content_decides(rig: &Rig) {
    let content = r#"{"model":"unheard-of","max_tokens":1}"#;
    for (path, is_proposed) in [("/v1/chat/completions", false), ("/v1/other", true)] {
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: {MODEL}\r\nContent-Type: {JSON}\r\nContent-Length: {}\r\n\r\n{content}",
            content.len()
        );
        let way = Way::SECURE[0];
        let answer = rig.open(way, MODEL).ask(request.as_bytes());
        assert_eq!(rig.record(way)["reason"], "policy_default_deny");
        let told = String::from_utf8(answer.body).unwrap();
        assert_eq!(told.contains("gateway allow"), is_proposed, "{told}");
        assert_eq!(told.contains("change that policy"), !is_proposed, "{told}");
    }
}

fn the_record_names_the_facts_that_were_read_and_no_value(rig: &Rig) {
    let model = |name: &str| format!(r#"{{"model":"{name}","max_tokens":1}}"#);
    let (known, unknown) = (model("gpt-4o-mini"), model("unheard-of"));
    for way in Way::SECURE {
        let bearer = format!("Bearer {}", rig.phantom(way, "bearer"));
        let pay = || Post::new(GOOD, "/pay", JSON, b"{\"amount\":5}");
        for (post, facts) in [
            (chat(&known), json!(["max_tokens", "model"])),
            (chat(&unknown), json!(["max_tokens", "model"])),
            (refund("charge=ch_3Nx"), json!(["amount"])),
            (refund(""), json!(["amount"])),
            (pay().with("authorization", &bearer), json!(["amount"])),
            // The head alone decides these.
            (pay(), Value::Null),
            (
                Post::new(MONEY, "/v1/charges", FORM, b"amount=1"),
                Value::Null,
            ),
            (Post::new(MONEY, "/v1/charges", FORM, b""), Value::Null),
        ] {
            let record = post.record(rig, way, false);
            assert_eq!(record["facts"], facts, "{way:?} {record}");
            let cause = record["cause"].as_str().unwrap_or_default();
            let is_error = record["reason"] == "policy_error";
            assert_eq!(cause.contains("reads `amount` of the content"), is_error);
            let shown = record.to_string();
            assert!(
                !shown.contains("unheard-of") && !shown.contains("ch_3Nx"),
                "{shown}"
            );
            rig.seen();
        }
    }
}

fn speak<'a>(path: &'a str, content: &'a str) -> Post<'a> {
    Post::new(OTHER, path, JSON, content.as_bytes())
}

fn a_mutation_is_found_behind_aliases_fragments_and_batches(rig: &Rig) {
    let graphql = |content: &Value| content.to_string();
    let good =
        graphql(&json!({ "query": "mutation { a: addComment(x: \"mergePullRequest\") { id } }" }));
    speak("/graphql", &good).expect(rig, "");
    let merge =
        "mutation M { ...F } fragment F on Mutation { ... { ok: mergePullRequest { id } } }";
    let also =
        json!({ "query": format!("query Q {{ viewer {{ id }} }} {merge}"), "operationName": "Q" });
    for bad in [
        json!({ "query": merge }),
        json!([{ "query": "{ a }" }, { "query": merge }]),
        also,
    ] {
        speak("/graphql", &graphql(&bad)).expect(rig, "policy_forbids");
    }
    for unread in [
        json!({ "extensions": { "persistedQuery": { "version": 1, "sha256Hash": "00" } } }),
        json!({ "query": "{ a" }),
        // Argument and field without a colon.
        json!({ "query": "{ a(x) { id } }" }),
        json!({ "query": "{ a(x: { y }) { id } }" }),
        json!({ "query": "{ a }", "id": "1" }),
        json!([]),
    ] {
        speak("/graphql", &graphql(&unread)).expect(rig, "policy_error");
    }
    speak("/graphql?query=%7Ba%7D", &good).expect(rig, "policy_error");
    Post::new(OTHER, "/graphql", "application/graphql", b"{a}").expect(rig, "policy_error");
    let way = Way::SECURE[0];
    let unread = graphql(&json!({ "query": "{ secretName" }));
    let record = speak("/graphql", &unread).record(rig, way, false);
    assert_eq!(record["facts"], json!(["graphql.fields"]));
    let cause = record["cause"].as_str().unwrap();
    let told = "reads `graphql.fields`, and the request does not say it: the document is not valid";
    assert!(
        cause.contains(told) && !cause.contains("secretName"),
        "{cause}"
    );
}

fn a_document_in_the_query_is_judged_without_content(rig: &Rig) {
    for way in Way::SECURE {
        for (query, reason) in [
            ("query=%7Bviewer%7Bid%7D%7D", ""),
            ("query=mutation%7Bx:mergePullRequest%7D", "policy_forbids"),
            ("query=%7Ba%7D&query=%7Bb%7D", "policy_error"),
            ("", "policy_error"),
        ] {
            let request = format!("GET /graphql?{query} HTTP/1.1\r\nHost: {OTHER}\r\n\r\n");
            let mut wire = rig.open(way, OTHER);
            wire.ask(request.as_bytes());
            let record = rig.record(way);
            assert_eq!(
                record["reason"].as_str().unwrap_or_default(),
                reason,
                "{way:?} {query}"
            );
            assert_eq!(rig.seen().len(), usize::from(reason.is_empty()));
        }
        // What is sent by WebSockets afterwards would not be read.
        let upgrade = format!(
            "GET /graphql?query=%7Ba%7D HTTP/1.1\r\nHost: {OTHER}\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        rig.open(way, OTHER).ask(upgrade.as_bytes());
        assert_eq!(rig.record(way)["reason"], "policy_error", "{way:?}");
        assert!(rig.seen().is_empty());
    }
}

const PUSH: &str = "application/x-git-receive-pack-request";
const PUSHED_TO: &str = "/o/r.git/git-receive-pack";

fn line(text: &str) -> String {
    format!("{:04x}{text}", text.len() + 4)
}

/// The command that creates a ref, with what the client can do.
fn create(name: &str, capabilities: &str) -> String {
    let (none, one) = ("0".repeat(40), "5".repeat(40));
    line(&format!("{none} {one} {name}\0 {capabilities}"))
}

fn a_push_to_another_branch_is_refused(rig: &Rig) {
    let (none, one) = ("0".repeat(40), "5".repeat(40));
    let create = |name: &str| create(name, "agent=git/2.47");
    let more = line(&format!("{one} {one} refs/heads/main"));
    let delete = line(&format!("{one} {none} refs/heads/agent/x\0"));
    for (commands, reason) in [
        (create("refs/heads/agent/x"), ""),
        (create("refs/heads/main"), "policy_forbids"),
        (create("refs/heads/agent/x") + &more, "policy_forbids"),
        (create("refs/heads/agent-x/y"), "policy_forbids"),
        (delete, "policy_forbids"),
        (line("push-cert\0"), "policy_error"),
    ] {
        let content = [commands.as_bytes(), b"0000PACK\0\0\0\x02\xff"].concat();
        Post::new(OTHER, PUSHED_TO, PUSH, &content).expect(rig, reason);
    }
}

/// The origin has the first objects before the client has sent the last, of more than is held.
fn a_push_is_judged_before_its_objects_which_stream(rig: &Rig) {
    let begun = |name: &str| create(name, "agent=git/2.47") + "0000PACK";
    let (agents, main) = (begun("refs/heads/agent/x"), begun("refs/heads/main"));
    let head = format!(
        "POST {PUSHED_TO} HTTP/1.1\r\nHost: {OTHER}\r\nContent-Type: {PUSH}\r\nTransfer-Encoding: chunked\r\n\r\n"
    );
    let chunk = |bytes: &str| format!("{:x}\r\n{bytes}\r\n", bytes.len());
    let fields = [
        (":method", "POST"),
        (":scheme", "https"),
        (":authority", OTHER),
        (":path", PUSHED_TO),
        ("content-type", PUSH),
    ];
    let more = "x".repeat(17 << 20);
    for way in Way::SECURE {
        rig.origins.take_raw();
        let mut wire = rig.open(way, OTHER);
        wire.send(format!("{head}{}", chunk(&agents)).as_bytes());
        arrives(rig, "PACK");
        let answer = wire.ask(format!("{}0\r\n\r\n", chunk(&more)).as_bytes());
        assert_eq!(answer.status, 200, "{way:?}");
        rig.record(way);
        let whole = [&agents, &more[..]].concat();
        assert!(rig.seen().remove(0).body == whole.as_bytes(), "{way:?}");
        let mut frames = rig.frames(way, OTHER);
        frames.headers(1, &fields, false);
        let (first, second) = agents.split_at(60);
        frames.frame(DATA, 0, 1, first.as_bytes());
        frames.frame(DATA, 0, 1, second.as_bytes());
        arrives(rig, "PACK");
        frames.frame(DATA, END_STREAM, 1, b"more");
        assert!(frames.fate(1).answered, "{way:?}");
        rig.record(way);
        let whole = [&agents, "more"].concat();
        assert_eq!(rig.seen().remove(0).body, whole.as_bytes(), "{way:?}");
        // Refused while the client still sends; and so is a list that is too long to be held.
        let mut wire = rig.open(way, OTHER);
        let answer = wire.ask(format!("{head}{}", chunk(&main)).as_bytes());
        assert_eq!(answer.reason(), "policy_forbids", "{way:?}");
        rig.record(way);
        let mut frames = rig.frames(way, OTHER);
        frames.headers(1, &fields, false);
        frames.frame(DATA, 0, 1, main.as_bytes());
        assert!(frames.fate(1).answered, "{way:?}");
        assert_eq!(rig.record(way)["reason"], "policy_forbids", "{way:?}");
        let ids = format!("{} {}", "0".repeat(40), "5".repeat(40));
        let long = line(&format!("{ids} refs/heads/{}", "x".repeat(65_000)));
        let list = create("refs/heads/x", "") + &long.repeat((17 << 20) / long.len());
        let mut wire = rig.open(way, OTHER);
        let answer = wire.ask(format!("{head}{}", chunk(&list)).as_bytes());
        assert_eq!(answer.reason(), "content_too_long", "{way:?}");
        rig.record(way);
        assert!(rig.seen().is_empty());
        // A client that breaks off: the origin never has a whole request.
        let mut wire = rig.open(way, OTHER);
        wire.send(format!("{head}{}", chunk(&agents)).as_bytes());
        arrives(rig, "PACK");
        drop(wire);
        rig.abandon_records(way);
        assert!(rig.seen().is_empty());
    }
    rig.ends_now();
}

/// Waits until the origin has received these bytes.
fn arrives(rig: &Rig, what: &str) {
    let until = Instant::now() + Duration::from_secs(6);
    let mut raw = Vec::new();
    while memchr::memmem::find(&raw, what.as_bytes()).is_none() {
        assert!(Instant::now() < until, "`{what}` did not arrive");
        std::thread::sleep(Duration::from_millis(5));
        raw.extend(rig.origins.take_raw());
    }
}

fn a_tool_that_is_not_allowed_is_not_called(rig: &Rig) {
    let call = |tool: &str| json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": tool, "arguments": {} } });
    let list = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" });
    for (content, reason) in [
        (call("echo"), ""),
        (list.clone(), ""),
        (
            json!({ "jsonrpc": "2.0", "id": 3, "result": { "name": "delete" } }),
            "",
        ),
        (call("delete"), "policy_forbids"),
        (json!([list, call("delete")]), "policy_forbids"),
        (json!({ "id": 1, "method": "tools/call" }), "policy_error"),
        (json!({ "id": 1 }), "policy_error"),
    ] {
        speak("/mcp", &content.to_string()).expect(rig, reason);
    }
}

fn an_argument_of_a_tool_is_bounded(rig: &Rig) {
    let call = |tool: &str, given: Value| json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": tool, "arguments": given } });
    let sum = |n: u8| call("sum", json!({ "n": n }));
    for (content, reason) in [
        (sum(5), ""),
        (sum(6), "policy_forbids"),
        (call("sum", json!({})), "policy_error"),
        (call("sum", json!({ "n": 5, "N": 6 })), "policy_error"),
        (call("echo", json!({ "n": 6 })), ""),
        (json!([call("echo", json!({ "n": 6 })), sum(5)]), ""),
        (
            json!([call("echo", json!({ "n": 5 })), sum(6)]),
            "policy_forbids",
        ),
        // It would be one of two.
        (json!([sum(5), sum(5)]), "policy_error"),
    ] {
        speak("/mcp", &content.to_string()).expect(rig, reason);
    }
}

fn a_refused_call_is_answered_in_json_rpc(rig: &Rig) {
    let ask = |content: &str| {
        let head = "POST {T}/mcp HTTP/1.1\r\nHost: {H}\r\nContent-Type: application/json";
        let length = content.len();
        format!("{head}\r\nContent-Length: {length}\r\n\r\n{content}")
    };
    for way in Way::SECURE {
        for id in ["7", "\"a\\u00e9\"", "-1"] {
            let call = format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"delete"}}}}"#
            );
            let answer = rig.ask(way, OTHER, &ask(&call));
            let record = rig.record(way);
            assert_eq!(
                (answer.status, &record["status"]),
                (200, &403.into()),
                "{way:?} {answer:?}"
            );
            let told: Value = serde_json::from_slice(&answer.body).unwrap();
            assert!(
                answer.text().contains(&format!("\"id\":{id},")),
                "{way:?} {answer:?}"
            );
            let data = &told["error"]["data"];
            assert_eq!(data["reason"], "policy_forbids", "{told}");
            assert_eq!(data["request_id"], record["id"], "{told}");
            let message = told["error"]["message"].as_str().unwrap();
            assert!(
                message.contains(record["id"].as_str().unwrap()),
                "{message}"
            );
        }
        // Nobody waits for the answer to a notification, and a batch has many.
        let call = r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"delete"}}"#;
        for content in [call, &format!("[{call}]")] {
            assert_eq!(
                rig.ask(way, OTHER, &ask(content)).status,
                403,
                "{way:?} {content}"
            );
            rig.record(way);
        }
    }
}

fn a_field_of_a_multipart_form_is_judged_before_a_file_streams(rig: &Rig) {
    const PARTS: &str = "multipart/form-data; boundary=b";
    let part = |head: &str, value: &str| {
        format!("--b\r\nContent-Disposition: form-data; {head}\r\n\r\n{value}\r\n")
    };
    let form = |parts: &[String]| parts.concat() + "--b--\r\n";
    let title = |value: &str| part("name=\"title\"", value);
    let file = part("name=\"f\"; filename=\"title.txt\"", "title");
    let typed = title("one").replace("title\"", "title\"\r\nContent-Type: text/plain; charset=X");
    for (content, reason) in [
        (form(&[title("one"), file.clone()]), ""),
        (form(&[file.clone(), title("two")]), ""),
        (form(&[title("three")]), "policy_forbids"),
        (form(std::slice::from_ref(&file)), "policy_error"),
        (form(&[title("one"), title("two")]), "policy_error"),
        (
            form(&[title("one"), part("name=\"Title[]\"", "two")]),
            "policy_error",
        ),
        (
            form(&[title("one"), part("name=\"_charset_\"", "utf-7")]),
            "policy_error",
        ),
        (
            form(&[part("name=\"title\"; filename=\"f\"", "one")]),
            "policy_error",
        ),
        (form(&[typed.replace('X', "utf-8")]), ""),
        (form(&[typed.replace('X', "utf-16")]), "policy_error"),
        (title("one"), "policy_error"),
        ("title=one".to_owned(), "policy_error"),
    ] {
        Post::new(OTHER, "/titles", PARTS, content.as_bytes()).expect(rig, reason);
    }
    let query = form(&[title("one")]);
    Post::new(OTHER, "/titles?title=two", PARTS, query.as_bytes()).expect(rig, "policy_error");
    let large = part("name=\"f\"; filename=\"f\"", &"x".repeat(1200 << 10));
    for (content, reason) in [
        (form(&[title("one"), large.clone(), file]), ""),
        (
            form(&[title("one"), large.clone(), title("one")]),
            "content_unreadable",
        ),
        (form(&[large, title("one")]), "policy_error"),
    ] {
        let post = Post::new(OTHER, "/titles", PARTS, content.as_bytes());
        assert_eq!(post.send(rig, Way::Tls, true), reason);
        let seen = rig.seen().pop();
        assert_eq!(
            seen.is_some_and(|seen| seen.body == content.as_bytes()),
            reason.is_empty()
        );
    }
}

fn content_that_is_text_is_judged(rig: &Rig) {
    let text = "text/plain; charset=utf-8";
    for (kind, content, reason) in [
        (text, "good", ""),
        ("text/plain", "good", ""),
        (text, "bad", "policy_forbids"),
        (text, "good\0", "policy_error"),
        (text, "\u{feff}good", "policy_error"),
        ("text/plain; charset=utf-16", "good", "policy_error"),
        ("application/octet-stream", "good", "policy_error"),
        (JSON, "good", "policy_error"),
    ] {
        Post::new(OTHER, "/notes", kind, content.as_bytes()).expect(rig, reason);
    }
    let mut untyped = Post::new(OTHER, "/notes", text, b"good");
    untyped.fields.clear();
    untyped.expect(rig, "");
    let coded = coded_pieces("gzip", &[b"good"]).concat();
    let coded = Post::new(OTHER, "/notes", text, &coded).with("content-encoding", "gzip");
    coded.expect(rig, "policy_error");
}

fn a_model_gets_no_tool_that_its_provider_runs(rig: &Rig) {
    let ask = |more: Value| {
        let mut content = json!({ "model": "m", "input": "x", "max_output_tokens": 100 });
        content
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        content
    };
    for (content, reason) in [
        (
            ask(json!({ "tools": [{ "type": "function", "name": "f" }] })),
            "",
        ),
        (
            ask(json!({ "tools": [{ "type": "web_search" }] })),
            "policy_forbids",
        ),
        (ask(json!({ "unheard_of": true })), "policy_forbids"),
        (ask(json!({ "max_output_tokens": 101 })), "policy_forbids"),
        (ask(json!({ "tools": [{ "name": 1 }] })), "policy_error"),
        (json!({ "model": "m" }), "policy_error"),
    ] {
        speak("/v1/responses", &content.to_string()).expect(rig, reason);
    }
}
