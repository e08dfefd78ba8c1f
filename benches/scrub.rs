//! How many bytes a second pass the scrubber where nothing is found: 16 KiB chunks, 1 and 5
//! secrets, by kind of content.
//!
//! To be compared with `one_memmem` (one needle, one form, the same chunks): the scrubber looks for
//! all forms at once.

use std::{hint::black_box, sync::Arc};

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use gateway::credential::scrub::{EchoSearch, Scrubber};

const CHUNK: usize = 16 << 10;

/// Tokens of the shapes that services give out, each with a phantom; 40, 20, 51, 24 and 93 bytes.
const LENT: [(&str, &str); 5] = [
    (
        "ghp_A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8",
        "ghp_Z9y8X7w6V5u4T3s2R1q0P9o8N7m6L5k4J3i2",
    ),
    ("AKIAQ7XWV2ZPLM4T6NBR", "AKIAK3HDF8JYUC5E2SGA"),
    (
        "sk-Tb4Xk9Lw2Qz7Vm5Np8Rc3Hs6Jd1Fg0YaUeIoBtWxCvMnKlPq",
        "sk-Qw8Er3Ty6Ui1Op9As4Df7Gh2Jk5Lz0XcVbNmQaWsEdRfTgYh",
    ),
    ("xoxb-2490158713-Kd93Lmwq", "xoxb-7316204985-Zt57Yrbn"),
    (
        "github_pat_11ABCDEFG0aK3mZx8QwLr5_TnVb2YcJh7PsDf4GgUe6IoRt9WqXkMzNvBl1CyHaSdPj0FuTiEwOrGxQbLmKn",
        "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Xd",
    ),
];

fn search(count: usize) -> Arc<EchoSearch> {
    let lent = LENT[..count]
        .iter()
        .map(|(secret, phantom)| (secret.as_bytes(), phantom.as_bytes()));
    Arc::new(EchoSearch::new(lent).expect("the phantoms have the shape of their secrets"))
}

fn noise() -> impl Iterator<Item = u8> {
    let mut state = 1_u64;
    std::iter::repeat_with(move || {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 33) as u8
    })
}

fn contents() -> [(&'static str, Bytes); 3] {
    let record = br#"{"id": 1296269, "name": "Hello-World", "url": "https://api.example.test/repos/x\/y?t=ghp_", "n": "\u0067"},"#;
    let base64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    [
        ("noise", noise().take(CHUNK).collect()),
        ("json", record.iter().copied().cycle().take(CHUNK).collect()),
        (
            "base64",
            noise()
                .map(|byte| base64[usize::from(byte & 63)])
                .take(CHUNK)
                .collect(),
        ),
    ]
}

fn pass(c: &mut Criterion) {
    let mut group = c.benchmark_group("scrub");
    group.throughput(Throughput::Bytes(CHUNK as u64));
    for (kind, chunk) in contents() {
        for count in [1, 5] {
            let mut scrubber = Scrubber::new(search(count));
            group.bench_function(format!("{kind}/{count}_secrets"), |b| {
                b.iter(|| black_box(scrubber.push(black_box(chunk.clone()))));
            });
        }
        let finder = memchr::memmem::Finder::new(LENT[0].0);
        group.bench_function(format!("{kind}/one_memmem"), |b| {
            b.iter(|| black_box(finder.find(black_box(&chunk))));
        });
    }
    group.finish();
}

fn prepare(c: &mut Criterion) {
    let mut group = c.benchmark_group("scrub/prepare");
    for count in [1, 5] {
        group.bench_function(format!("{count}_secrets"), |b| {
            b.iter(|| search(black_box(count)))
        });
    }
    let search = search(1);
    let value = http::HeaderValue::from_static("max-age=63072000; includeSubdomains; preload");
    group.bench_function("field", |b| {
        b.iter(|| black_box(search.scrub_field(black_box(&value))))
    });
    group.finish();
}

criterion_group!(benches, pass, prepare);
criterion_main!(benches);
