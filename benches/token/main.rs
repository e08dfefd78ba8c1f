//! What a token costs: verifying one with four caveats, which a connection pays once, and judging a
//! request by it.

use std::hint::black_box;
use std::net::IpAddr;

use criterion::{Criterion, criterion_group, criterion_main};
use gateway_message::Host;
use gateway_names::{CredentialName, PolicyId, SessionId};
use gateway_token::{Caveat, ConnectionEvidence, TokenKey, TokenUse, verify};
use http::Method;

const CAVEATS: [&str; 4] = [
    "before 2027-01-15T08:00:00Z",
    "host in api.github.com *.example.com",
    "method in GET HEAD",
    "path under /repos/octo /user",
];

fn a_token_with_four_caveats(criterion: &mut Criterion) {
    let session = SessionId::new("agent-1").unwrap();
    let derive = |number: u8, session: &SessionId| TokenKey::derive(&[7; 32], number, session);
    let caveats = CAVEATS.map(|text| text.parse::<Caveat>().unwrap());
    let token = derive(1, &session).mint([9; 12], &caveats).unwrap();
    let read = || {
        verify(black_box(token.as_str()), |number, session| {
            Some(derive(number, session))
        })
    };
    criterion.bench_function("token/verify", |bencher| bencher.iter(|| read().unwrap()));

    let verified = read().unwrap();
    let now = 1_790_000_000;
    let peer: Option<IpAddr> = Some("10.0.0.1".parse().unwrap());
    let door = ConnectionEvidence {
        peer,
        evidence: &[],
        now,
    };
    criterion.bench_function("token/at_connection", |bencher| {
        bencher.iter(|| verified.at_connection(black_box(&door)).unwrap());
    });
    let host = Host::parse(b"api.github.com").unwrap();
    let credentials = [CredentialName::new("github").unwrap()];
    let policies = [PolicyId::new("github/read").unwrap()];
    let asked = TokenUse {
        host: &host,
        port: 443,
        method: &Method::GET,
        path: "/repos/octo/one/issues/17",
        named: &[],
        is_batch: false,
        credentials: credentials.iter(),
        policies: policies.iter(),
        now,
    };
    criterion.bench_function("token/allows", |bencher| {
        bencher.iter(|| verified.allows(black_box(&asked)).unwrap());
    });
}

criterion_group!(benches, a_token_with_four_caveats);
criterion_main!(benches);
