//! Answers in the shapes of the providers' documentation, and what an origin could make of them.

use proptest::prelude::*;

use super::*;

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream; charset=utf-8";

fn read(kind: &str, answer: &str) -> Option<Usage> {
    let mut reader = UsageReader::of(Some(kind.as_bytes()));
    reader.feed(answer.as_bytes());
    reader.finish()
}

/// Input, cache read, cache written, for longer, output.
fn counts(kind: &str, answer: &str) -> Option<[u64; 5]> {
    let found = read(kind, answer)?;
    let Usage {
        input,
        cache_read,
        cache_written,
        cache_written_long,
        output,
        ..
    } = found;
    Some([input, cache_read, cache_written, cache_written_long, output])
}

const CHAT: &str = r#"{"id":"chatcmpl-1","object":"chat.completion","model":"gpt-5","service_tier":"default",
    "choices":[{"index":0,"message":{"role":"assistant","content":"\"usage\":{\"prompt_tokens\":1}"},"finish_reason":"stop"}],
    "usage":{"prompt_tokens":2006,"completion_tokens":300,"total_tokens":2306,
        "prompt_tokens_details":{"cached_tokens":1920,"audio_tokens":0},
        "completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0,"accepted_prediction_tokens":0}}}"#;
const RESPONSE: &str = r#"{"id":"resp_1","object":"response","status":"completed","output":[{"type":"message","content":[]}],
    "usage":{"input_tokens":328,"input_tokens_details":{"cached_tokens":100},"output_tokens":52,
        "output_tokens_details":{"reasoning_tokens":10},"total_tokens":380}}"#;
const MESSAGE: &str = r#"{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"text","text":"Hi"}],"stop_reason":"end_turn",
    "usage":{"input_tokens":50,"cache_creation_input_tokens":300,"cache_read_input_tokens":700,
        "cache_creation":{"ephemeral_5m_input_tokens":200,"ephemeral_1h_input_tokens":100},
        "output_tokens":503,"service_tier":"standard","inference_geo":"not_available"}}"#;
const GEMINI: &str = r#"{"candidates":[{"content":{"parts":[{"text":"Hi"}],"role":"model"},"finishReason":"STOP"}],
    "usageMetadata":{"promptTokenCount":100,"candidatesTokenCount":20,"thoughtsTokenCount":30,"totalTokenCount":150,
        "cachedContentTokenCount":40,"promptTokensDetails":[{"modality":"TEXT","tokenCount":100}]},"modelVersion":"gemini-3-pro"}"#;
const EMBEDDING: &str = r#"{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.1,-2.5e-3]}],
    "model":"text-embedding-3-small","usage":{"prompt_tokens":8,"total_tokens":8}}"#;

const CHAT_EVENTS: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}],\"usage\":null}\n\n\
    data: {\"choices\":[],\"usage\":{\"prompt_tokens\":19,\"completion_tokens\":10,\"total_tokens\":29}}\n\n\
    data: [DONE]\n\n";
const RESPONSE_EVENTS: &str = "event: response.created\r\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"r\",\"usage\":null}}\r\n\r\n\
    event: response.output_text.delta\r\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"Hi\"}\r\n\r\n\
    event: response.completed\r\ndata: {\"type\":\"response.completed\",\"response\":{\"id\":\"r\",\"usage\":{\"input_tokens\":36,\
    \"input_tokens_details\":{\"cached_tokens\":6},\"output_tokens\":87,\"total_tokens\":123}}}\r\n\r\n";
const MESSAGE_EVENTS: &str = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"content\":[],\
    \"usage\":{\"input_tokens\":25,\"cache_creation_input_tokens\":30,\"cache_read_input_tokens\":40,\
    \"cache_creation\":{\"ephemeral_5m_input_tokens\":30,\"ephemeral_1h_input_tokens\":0},\"output_tokens\":1}}}\n\n\
    event: ping\ndata: {\"type\": \"ping\"}\n\n\
    event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Hello\"}}\n\n\
    event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":15}}\n\n\
    event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
const GEMINI_EVENTS: &str = "data: {\"candidates\":[{}],\"usageMetadata\":{\"promptTokenCount\":9,\"candidatesTokenCount\":2,\"totalTokenCount\":11}}\r\n\r\n\
    data: {\"candidates\":[{\"finishReason\":\"STOP\"}],\"usageMetadata\":{\"promptTokenCount\":9,\"candidatesTokenCount\":20,\"thoughtsTokenCount\":5}}\r\n\r\n";

#[test]
fn the_answers_of_each_provider_say_what_was_used() {
    for (kind, answer, expected) in [
        (JSON, CHAT, [86, 1_920, 0, 0, 300]),
        (JSON, RESPONSE, [228, 100, 0, 0, 52]),
        (JSON, MESSAGE, [50, 700, 200, 100, 503]),
        (JSON, GEMINI, [60, 40, 0, 0, 50]),
        (JSON, EMBEDDING, [8, 0, 0, 0, 0]),
        (EVENTS, CHAT_EVENTS, [19, 0, 0, 0, 10]),
        (EVENTS, RESPONSE_EVENTS, [30, 6, 0, 0, 87]),
        (EVENTS, MESSAGE_EVENTS, [25, 40, 30, 0, 15]),
        (EVENTS, GEMINI_EVENTS, [9, 0, 0, 0, 25]),
    ] {
        assert_eq!(counts(kind, answer), Some(expected), "{answer}");
        let usage = read(kind, answer).unwrap();
        assert!(!usage.is_dearer && !usage.has_other_kinds, "{answer}");
    }
    let list = format!("[{},\n{}]", GEMINI.replace("20", "2"), GEMINI);
    assert_eq!(counts(JSON, &list), Some([60, 40, 0, 0, 50]));
}

#[test]
fn what_a_provider_writes_to_its_cache_counts_once() {
    let usage = r#"{"usage":{"prompt_tokens":100,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":10,"cache_write_tokens":20}}}"#;
    assert_eq!(counts(JSON, usage), Some([70, 10, 0, 20, 1]));
    // For how long it is written is not said: the longer, which is dearer, counts.
    let usage =
        r#"{"usage":{"input_tokens":1,"output_tokens":1,"cache_creation_input_tokens":20}}"#;
    assert_eq!(counts(JSON, usage), Some([1, 0, 0, 20, 1]));
}

fn chat(usage: &str) -> String {
    format!(r#"{{"usage":{usage}}}"#)
}

#[test]
fn what_is_negative_broken_absurd_or_in_two_ways_does_not_count() {
    for usage in [
        r#"{"prompt_tokens":-1,"completion_tokens":1}"#,
        r#"{"prompt_tokens":-0,"completion_tokens":1}"#,
        r#"{"prompt_tokens":1.5,"completion_tokens":1}"#,
        r#"{"prompt_tokens":1e2,"completion_tokens":1}"#,
        r#"{"prompt_tokens":"1","completion_tokens":1}"#,
        r#"{"prompt_tokens":[1],"completion_tokens":1}"#,
        r#"{"prompt_tokens":1099511627777,"completion_tokens":1}"#,
        r#"{"prompt_tokens":99999999999999999999999,"completion_tokens":1}"#,
        r#"{"prompt_tokens":1}"#,
        r#"{"completion_tokens":1}"#,
        r#"{"prompt_tokens":1,"total_tokens":2}"#,
        r#"{"prompt_tokens":null,"completion_tokens":1}"#,
        r#"{"prompt_tokens":1,"prompt_tokens":1,"completion_tokens":1}"#,
        r#"{"prompt_tokens":1,"input_tokens":1,"completion_tokens":1}"#,
        r#"{"prompt_tokens":1,"completion_tokens":1,"output_tokens":1}"#,
        r#"{"Prompt_Tokens":1,"completion_tokens":1}"#,
        r#"{"prompt_tokens":1,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":2}}"#,
        r#"{"prompt_tokens":1,"completion_tokens":1,"prompt_tokens_details":[]}"#,
        r#"{"input_tokens":9,"output_tokens":1,"input_tokens_details":{"cached_tokens":2},"cache_read_input_tokens":2}"#,
        r#"{"input_tokens":9,"output_tokens":1,"cache_creation_input_tokens":2,"cache_creation":{"ephemeral_1h_input_tokens":3}}"#,
        r#"{"prompt_tokens":1,"completion_tokens":1,"service_tier":1}"#,
        "{}",
        "[]",
        "7",
        "null",
    ] {
        assert_eq!(read(JSON, &chat(usage)), None, "{usage}");
        let event = format!("data: {}\n\n", chat(usage));
        assert_eq!(read(EVENTS, &event), None, "{usage}");
    }
    let largest = r#"{"prompt_tokens":1099511627776,"completion_tokens":0}"#;
    assert_eq!(counts(JSON, &chat(largest)), Some([1 << 40, 0, 0, 0, 0]));
}

#[test]
fn only_the_member_at_its_place_counts() {
    let good = r#"{"prompt_tokens":1,"completion_tokens":1}"#;
    for answer in [
        format!(r#"{{"choices":[{{"usage":{good}}}]}}"#),
        format!(r#"{{"response":{{"output":[{{"usage":{good}}}]}}}}"#),
        format!(r#"{{"metadata":{{"usage":{good}}}}}"#),
        format!(r#"{{"Usage":{good}}}"#),
        format!(r#"{{"text":"{}"}}"#, chat(good).replace('"', "\\\"")),
        format!(r#"{{"usage":{good},"usage":{good}}}"#),
        format!(r#"{{"usage":{good},"\u0075sage":{good}}}"#),
        format!(r#"{{"usage":{good}}} {{}}"#),
        format!(r#"{{"usage":{good}"#),
        format!(r#"{{"usage":{good},"text":"{}"}}"#, '\u{1}'),
    ] {
        assert_eq!(read(JSON, &answer), None, "{answer}");
    }
    assert!(read(JSON, &chat(good)).is_some());
    for kind in [
        "",
        "text/plain",
        "application/jsonl",
        "application/octet-stream",
    ] {
        assert_eq!(read(kind, &chat(good)), None, "{kind}");
    }
    assert_eq!(UsageReader::of(None).finish(), None);
    assert!(read("Application/JSON ; charset=utf-8", &chat(good)).is_some());
}

#[test]
fn of_a_stream_the_largest_counts_and_one_bad_event_loses_it() {
    let one = |input: u64, output: u64| {
        format!(
            "data: {{\"usage\":{{\"prompt_tokens\":{input},\"completion_tokens\":{output}}}}}\n\n"
        )
    };
    let shrinking = [one(5, 90), one(7, 3), one(0, 0)].concat();
    assert_eq!(counts(EVENTS, &shrinking), Some([7, 0, 0, 0, 90]));
    for bad in [
        "data: {\"usage\":{\"prompt_tokens\":-1}}\n\n",
        "data: {\"usage\":{\n\n",
        "data: {\"usage\":\n\n",
    ] {
        for stream in [
            [one(1, 1).as_str(), bad].concat(),
            [bad, &one(1, 1)].concat(),
        ] {
            assert_eq!(read(EVENTS, &stream), None, "{stream}");
        }
    }
    let two_ways = [MESSAGE_EVENTS, RESPONSE_EVENTS].concat();
    assert_eq!(read(EVENTS, &two_ways), None);
}

#[test]
fn an_answer_that_has_only_begun_has_no_usage() {
    let (begun, _) = MESSAGE_EVENTS.split_once("event: message_delta").unwrap();
    assert_eq!(read(EVENTS, begun), None);
    let (begun, _) = RESPONSE_EVENTS
        .split_once("event: response.completed")
        .unwrap();
    assert_eq!(read(EVENTS, begun), None);
    let (begun, _) = CHAT_EVENTS.split_once("data: {\"choices\":[],").unwrap();
    assert_eq!(read(EVENTS, begun), None);
}

#[test]
fn an_event_is_what_the_lines_say() {
    let usage = "{\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}";
    let (front, back) = usage.split_at(20);
    for stream in [
        format!("data: {usage}\n\n"),
        format!("data:{usage}\r\r"),
        format!("id: 1\r\ndata: {front}\r\ndata: {back}\r\n\r\n"),
        format!(":{usage}\ndata: {usage}"),
        format!("data: {usage}\n"),
    ] {
        // A line ends a text of JSON nowhere but between its values.
        let is_cut = stream.contains("id: 1");
        let found = counts(EVENTS, &stream);
        assert_eq!(found, (!is_cut).then_some([1, 0, 0, 0, 2]), "{stream:?}");
    }
    for stream in [
        format!(":data: {usage}\n\n"),
        format!("event: {usage}\n\n"),
        format!("Data: {usage}\n\n"),
        format!(" data: {usage}\n\n"),
    ] {
        assert_eq!(counts(EVENTS, &stream), None, "{stream:?}");
    }
    let (front, back) = usage.split_once(',').unwrap();
    let stream = format!("data: {front},\r\ndata: {back}\r\n\r\n");
    assert_eq!(counts(EVENTS, &stream), Some([1, 0, 0, 0, 2]));
}

#[test]
fn sound_pictures_and_dearer_tiers_are_told() {
    for (usage, kinds, dearer) in [
        (
            CHAT.replace(
                r#""cached_tokens":1920,"audio_tokens":0"#,
                r#""audio_tokens":3"#,
            ),
            true,
            false,
        ),
        (
            CHAT.replace(
                r#""service_tier":"default""#,
                r#""service_tier":"priority""#,
            ),
            false,
            true,
        ),
        (MESSAGE.replace("not_available", "us"), false, true),
        (
            MESSAGE.replace(r#""standard""#, r#""priority""#),
            false,
            true,
        ),
        (GEMINI.replace("TEXT", "AUDIO"), true, false),
        (GEMINI.replace(r#""modality":"TEXT","#, ""), true, false),
    ] {
        let found = read(JSON, &usage).unwrap();
        assert_eq!(
            (found.has_other_kinds, found.is_dearer),
            (kinds, dearer),
            "{usage}"
        );
    }
}

#[test]
fn what_is_held_is_bounded() {
    let usage = chat(r#"{"prompt_tokens":1,"completion_tokens":2}"#);
    let padded = |most: usize| format!("{}{usage}", " ".repeat(most - usage.len()));
    assert!(read(JSON, &padded(MOST_JSON)).is_some());
    assert_eq!(read(JSON, &padded(MOST_JSON + 1)), None);
    for (name, fits) in [("data:", true), ("event:", true)] {
        let line = |length: usize| format!("{name}{}\n\ndata: {usage}\n\n", " ".repeat(length));
        assert_eq!(read(EVENTS, &line(MOST_EVENT / 2)).is_some(), fits);
        assert_eq!(read(EVENTS, &line(MOST_EVENT)), None, "{name}");
    }
    let lines = "data:\n".repeat(MOST_EVENT + 1);
    assert_eq!(read(EVENTS, &format!("{lines}\ndata: {usage}\n\n")), None);
    let mut reader = UsageReader::of(Some(EVENTS.as_bytes()));
    for _ in 0..64 {
        reader.feed(&[b'x'; 1 << 16]);
    }
    assert!(reader.is_lost && matches!(reader.content, Content::Other));
}

/// A member of a usage, mostly one that counts.
fn usage_member() -> impl Strategy<Value = String> {
    let names = prop::sample::select(vec![
        "prompt_tokens",
        "completion_tokens",
        "input_tokens",
        "output_tokens",
        "cache_read_input_tokens",
        "cache_creation_input_tokens",
        "promptTokenCount",
        "candidatesTokenCount",
        "total_tokens",
    ]);
    let values = prop::sample::select(vec![
        "0",
        "1",
        "77",
        "-3",
        "2.5",
        "null",
        "1099511627776",
        "{}",
    ]);
    (names, values).prop_map(|(name, value)| format!("\"{name}\":{value}"))
}

fn stream() -> impl Strategy<Value = String> {
    let usage = prop::collection::vec(usage_member(), 0..5);
    let place = prop::sample::select(vec![
        "{\"usage\":{}}",
        "{\"response\":{\"usage\":{}}}",
        "{\"message\":{\"usage\":{}}}",
        "{\"usageMetadata\":{}}",
        "[{\"usage\":{}}]",
        "{\"x\":\"\\\"usage{}\"}",
    ]);
    let end = prop::sample::select(vec!["\n\n", "\r\n\r\n", "\r\r", "\n", "\r\n", ""]);
    let event = (usage, place, end).prop_map(|(usage, place, end)| {
        let usage = format!("{{{}}}", usage.join(","));
        format!("data: {}{end}", place.replacen("{}", &usage, 1))
    });
    prop::collection::vec(event, 0..4).prop_map(|events| events.concat())
}

proptest! {
    #[test]
    fn where_the_pieces_of_an_answer_end_changes_nothing(
        stream in stream(),
        kind in prop::sample::select(vec![JSON, EVENTS]),
        cuts in prop::collection::vec(1_usize..9, 1..9),
    ) {
        let whole = read(kind, &stream);
        for at in 0..=stream.len() {
            let mut reader = UsageReader::of(Some(kind.as_bytes()));
            let (front, back) = stream.as_bytes().split_at(at);
            reader.feed(front);
            reader.feed(back);
            prop_assert_eq!(reader.finish(), whole);
        }
        let mut reader = UsageReader::of(Some(kind.as_bytes()));
        let (mut rest, mut cuts) = (stream.as_bytes(), cuts.into_iter().cycle());
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(cuts.next().unwrap().min(rest.len()));
            reader.feed(piece);
            rest = after;
        }
        prop_assert_eq!(reader.finish(), whole);
    }

    #[test]
    fn no_answer_is_too_strange(bytes in prop::collection::vec(any::<u8>(), 0..200), is_json: bool) {
        let mut reader = UsageReader::of(Some(if is_json { JSON } else { EVENTS }.as_bytes()));
        reader.feed(&bytes);
        let _ = reader.finish();
    }
}

#[test]
fn what_stands_in_the_total_alone_counts_as_output() {
    let chat = |usage: &str| counts(JSON, &format!("{{\"usage\":{{{usage}}}}}"));
    let grok = r#""prompt_tokens":32,"completion_tokens":9,"total_tokens":8041"#;
    assert_eq!(chat(grok), Some([32, 0, 0, 0, 8009]));
    let less = r#""prompt_tokens":32,"completion_tokens":9,"total_tokens":40"#;
    assert_eq!(chat(less), None);
    let paused = r#""input_tokens":9,"output_tokens":9,"iterations":[{"output_tokens":9000}]"#;
    assert_eq!(chat(paused), None);
    assert_eq!(chat(r#""prompt_tokens":0,"completion_tokens":0"#), None);
    let gemini = r#"{"usageMetadata":{"promptTokenCount":100,"candidatesTokenCount":20,"totalTokenCount":150}}"#;
    assert_eq!(counts(JSON, gemini), Some([100, 0, 0, 0, 50]));
}
