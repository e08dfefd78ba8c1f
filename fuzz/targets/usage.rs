//! Usage of an answer: where its pieces end changes nothing, and what is read of JSON is no less
//! than what another parser finds at the places where it counts.
#![no_main]

use gateway_spend::{Usage, UsageReader};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|input: &[u8]| {
    let [kind, length, answer @ ..] = input else {
        return;
    };
    let kind: &[u8] = match kind {
        0 => b"application/json",
        _ => b"text/event-stream",
    };
    let whole = read(kind, &[answer]);
    let pieces: Vec<&[u8]> = answer.chunks(usize::from(*length).max(1)).collect();
    assert_eq!(read(kind, &pieces), whole);
    let Some(usage) = whole else { return };
    let input = usage.input + usage.cache_read + usage.cache_written + usage.cache_written_long;
    assert!(input <= 4 << 40 && usage.output <= 2 << 40);
    if kind == b"application/json" {
        let other: Value = serde_json::from_slice(answer).expect("serde_json reads it");
        let all = other.as_array().cloned().unwrap_or_else(|| vec![other]);
        for place in all
            .iter()
            .flat_map(|one| [&one["usage"], &one["response"]["usage"]])
        {
            let said = |name: &str| place[name].as_u64().unwrap_or(0);
            assert!(input >= said("prompt_tokens").max(said("input_tokens")));
            assert!(usage.output >= said("completion_tokens").max(said("output_tokens")));
        }
    }
});

fn read(kind: &[u8], pieces: &[&[u8]]) -> Option<Usage> {
    let mut reader = UsageReader::of(Some(kind));
    pieces.iter().for_each(|piece| reader.feed(piece));
    reader.finish()
}
