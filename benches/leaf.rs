//! Leaves: what one more host name costs at its first handshake, and at each later one.
//!
//! To compare with: a P-256 signature alone (the floor of any mint), and a whole handshake
//! (benchmarks.md).

use std::hint::black_box;
use std::sync::Arc;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use criterion::{Criterion, criterion_group, criterion_main};
use gateway::intercept::dns::answer;
use gateway::intercept::{AddressPool, CaSettings, SessionCa};
use gateway::message::Host;
use gateway::names::SessionId;
use gateway::wire::dns::Transport;

fn ca() -> SessionCa {
    let settings = CaSettings {
        mint_burst: u32::MAX,
        mint_per_second: u32::MAX,
        ..CaSettings::default()
    };
    SessionCa::new(
        &SessionId::new("s-bench").expect("a valid id"),
        &settings,
        Arc::new(|_| true),
    )
    .expect("a CA")
}

fn leaf(c: &mut Criterion) {
    let mut group = c.benchmark_group("leaf");
    let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).expect("a key");
    group.bench_function("floor/p256_signature", |b| {
        b.iter(|| {
            key.sign(&SystemRandom::new(), black_box(&[7; 300]))
                .expect("a signature")
        });
    });
    let ca = ca();
    let mut n = 0_u64;
    group.bench_function("first_handshake/mint", |b| {
        b.iter(|| {
            n += 1;
            let host = Host::parse(format!("h{n}.example.test").as_bytes()).expect("a host");
            black_box(ca.leaf(&host).expect("a leaf"))
        });
    });
    let host = Host::parse(b"api.example.test").expect("a host");
    group.bench_function("later_handshake/kept", |b| {
        b.iter(|| black_box(ca.leaf(black_box(&host)).expect("a leaf")))
    });
    group.bench_function("session/new_ca", |b| b.iter(self::ca));
    group.finish();

    // A for api.example.test, as glibc asks it.
    let query = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x03api\x07example\x04test\0\0\x01\0\x01";
    let mut pool = AddressPool::default();
    c.bench_function("dns/answer/allowed", |b| {
        b.iter(|| answer(black_box(query), Transport::Udp, &|_| true, &mut pool));
    });
    c.bench_function("dns/answer/refused", |b| {
        b.iter(|| answer(black_box(query), Transport::Udp, &|_| false, &mut pool));
    });
}

criterion_group!(benches, leaf);
criterion_main!(benches);
