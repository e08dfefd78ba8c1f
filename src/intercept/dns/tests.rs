//! Answers to good, odd and hostile queries, on raw bytes where the wire format matters.

use std::cell::Cell;

use hickory_proto::op::{Edns, MessageType, OpCode, Query};
use hickory_proto::rr::Name;
use hickory_proto::rr::rdata::OPT;
use hickory_proto::rr::rdata::opt::EdnsOption;
use proptest::prelude::*;

use super::*;

fn host_of(text: &str) -> Host {
    Host::parse(text.as_bytes()).unwrap()
}

/// Policy allows `*.good.test`, `good.test` and an IP address.
fn allowed(host: &Host) -> bool {
    host.domains().any(|domain| domain == "good.test") || host.ip().is_some()
}

fn ask(query: &[u8]) -> Answer {
    answer(query, Transport::Udp, &allowed, &mut AddressPool::default())
}

fn message(name: &str, kind: RecordType) -> Message {
    let mut message = Message::new(0x1234, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
    message
}

fn asked(name: &str, kind: RecordType) -> (Message, Answer) {
    let answer = ask(&message(name, kind).to_vec().unwrap());
    let reply = answer.reply.as_deref().expect("an answer");
    (Message::from_vec(reply).unwrap(), answer)
}

/// A handmade query: header counts, then a raw question section and the rest.
fn raw(flags: u16, counts: [u16; 4], rest: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x12, 0x34];
    bytes.extend(flags.to_be_bytes());
    bytes.extend(counts.iter().flat_map(|count| count.to_be_bytes()));
    bytes.extend(rest);
    bytes
}

const GOOD: &[u8] = b"\x04good\x04test\0\0\x01\0\x01";

/// The response code in the header.
fn code(answer: &Answer) -> u8 {
    answer.reply.as_ref().expect("an answer")[3] & 15
}

#[test]
fn an_allowed_name_gets_its_synthetic_addresses() {
    let mut pool = AddressPool::default();
    let expected = pool.addresses(&host_of("api.good.test")).unwrap();
    for (kind, data) in [
        (RecordType::A, RData::A(A(expected.v4))),
        (RecordType::AAAA, RData::AAAA(AAAA(expected.v6))),
    ] {
        let query = message("api.good.test.", kind).to_vec().unwrap();
        let answer = answer(&query, Transport::Udp, &allowed, &mut pool);
        assert_eq!(
            (answer.verdict, answer.host),
            (DnsVerdict::Synthetic, Some(host_of("api.good.test")))
        );
        let reply = Message::from_vec(&answer.reply.unwrap()).unwrap();
        assert_eq!(reply.metadata.id, 0x1234);
        assert!(
            reply.metadata.recursion_desired
                && reply.metadata.recursion_available
                && !reply.metadata.truncation
        );
        assert_eq!(reply.metadata.response_code, ResponseCode::NoError);
        assert_eq!(reply.answers.len(), 1);
        assert_eq!((&reply.answers[0].data, reply.answers[0].ttl), (&data, 30));
    }
}

#[test]
fn the_question_comes_back_with_its_case() {
    let (reply, answer) = asked("ApI.gOOd.TEST.", RecordType::A);
    assert_eq!(reply.queries[0].name().to_ascii(), "ApI.gOOd.TEST.");
    assert_eq!(answer.host, Some(host_of("api.good.test")));
}

#[test]
fn a_name_out_of_policy_does_not_exist_for_any_type() {
    let tunnel = format!("{}.{}.evil.test.", "x".repeat(63), "y".repeat(63));
    for name in [
        "evil.test.",
        "evilgood.test.",
        "good.test.evil.",
        "test.",
        "use-application-dns.net.",
        &tunnel,
    ] {
        for kind in [
            RecordType::A,
            RecordType::AAAA,
            RecordType::TXT,
            RecordType::NULL,
            RecordType::CNAME,
            RecordType::MX,
        ] {
            let (reply, answer) = asked(name, kind);
            assert_eq!(answer.verdict, DnsVerdict::NameRefused, "{name} {kind}");
            assert_eq!(
                reply.metadata.response_code,
                ResponseCode::NXDomain,
                "{name} {kind}"
            );
            assert!(reply.answers.is_empty());
            assert_eq!(reply.authorities[0].ttl, 1, "forgotten within a second");
        }
    }
}

#[test]
fn a_name_that_no_policy_reaches_has_an_address_and_no_other_data() {
    let mut pool = AddressPool::default().explaining();
    let expected = pool.unlisted(&host_of("evil.test")).unwrap();
    for (kind, data) in [
        (RecordType::A, Some(RData::A(A(expected.v4)))),
        (RecordType::AAAA, Some(RData::AAAA(AAAA(expected.v6)))),
        (RecordType::TXT, None),
        (RecordType::SRV, None),
        (RecordType::HTTPS, None),
        (RecordType::NULL, None),
    ] {
        let query = message("evil.test.", kind).to_vec().unwrap();
        let answer = answer(&query, Transport::Udp, &allowed, &mut pool);
        assert_eq!(answer.verdict, DnsVerdict::Unlisted, "{kind}");
        let reply = Message::from_vec(&answer.reply.unwrap()).unwrap();
        assert_eq!(reply.metadata.response_code, ResponseCode::NoError);
        assert_eq!(reply.answers.first().map(|one| &one.data), data.as_ref());
    }
}

#[test]
fn reverse_names_and_names_that_never_exist_have_no_address() {
    for name in [
        "1.0.18.198.in-addr.arpa.",
        "x.invalid.",
        "x.onion.",
        "use-application-dns.net.",
    ] {
        for kind in [RecordType::A, RecordType::PTR] {
            let query = message(name, kind).to_vec().unwrap();
            let mut pool = AddressPool::default().explaining();
            let answer = answer(&query, Transport::Udp, &allowed, &mut pool);
            assert_eq!(answer.verdict, DnsVerdict::NameRefused, "{name}");
            assert_eq!(code(&answer), 3, "{name}");
        }
    }
}

#[test]
fn the_canary_of_dns_over_https_is_refused_even_if_policy_allows_all() {
    let query = message("use-application-dns.net.", RecordType::A)
        .to_vec()
        .unwrap();
    let answer = answer(
        &query,
        Transport::Udp,
        &|_| true,
        &mut AddressPool::default(),
    );
    assert_eq!(code(&answer), 3);
}

#[test]
fn other_types_of_an_allowed_name_have_no_data() {
    for kind in [
        RecordType::HTTPS,
        RecordType::SVCB,
        RecordType::TXT,
        RecordType::MX,
        RecordType::CNAME,
        RecordType::NS,
        RecordType::SOA,
    ] {
        let (reply, answer) = asked("good.test.", kind);
        assert_eq!(answer.verdict, DnsVerdict::NoData, "{kind}");
        assert_eq!(
            reply.metadata.response_code,
            ResponseCode::NoError,
            "{kind}"
        );
        assert!(
            reply.answers.is_empty() && reply.additionals.is_empty(),
            "{kind}"
        );
    }
}

#[test]
fn localhost_and_the_gateway_are_known_to_all() {
    for (name, v4, v6) in [
        ("localhost.", "127.0.0.1", "::1"),
        ("db.LOCALHOST.", "127.0.0.1", "::1"),
        ("gateway.internal.", "198.18.0.1", "fd65::1"),
    ] {
        assert_eq!(
            asked(name, RecordType::A).0.answers[0].data,
            RData::A(A(v4.parse().unwrap())),
            "{name}"
        );
        assert_eq!(
            asked(name, RecordType::AAAA).0.answers[0].data,
            RData::AAAA(AAAA(v6.parse().unwrap())),
            "{name}"
        );
        assert_eq!(
            asked(name, RecordType::HTTPS).1.verdict,
            DnsVerdict::NoData,
            "{name}"
        );
    }
    assert_eq!(
        asked("notlocalhost.", RecordType::A).1.verdict,
        DnsVerdict::NameRefused
    );
}

#[test]
fn an_address_spelt_as_a_name_does_not_exist() {
    for name in ["192.0.2.1.", "127.1.", "0x7f.1.", "2130706433."] {
        assert_eq!(
            asked(name, RecordType::A).1.verdict,
            DnsVerdict::NameRefused,
            "{name}"
        );
    }
}

#[test]
fn a_dot_inside_a_label_is_no_border() {
    // One label `evil.good` and one label `good.test`: neither is one of our names.
    for question in [
        &b"\x09evil.good\x04test\0\0\x01\0\x01"[..],
        b"\x09good.test\0\0\x01\0\x01",
        b"\x03a\0b\x04good\x04test\0\0\x01\0\x01",
    ] {
        let answer = ask(&raw(0x0100, [1, 0, 0, 0], question));
        assert_eq!(
            (answer.verdict, code(&answer)),
            (DnsVerdict::NameRefused, 3),
            "{question:?}"
        );
        assert_eq!(answer.host, None);
    }
}

#[test]
fn transfers_any_other_classes_and_other_operations_are_refused() {
    for (kind, expected) in [
        (252_u16, 5),
        (251, 5),
        (255, 4),
        (253, 4),
        (254, 4),
        (249, 4),
    ] {
        let question = [&b"\x04good\x04test\0"[..], &kind.to_be_bytes(), &[0, 1]].concat();
        let answer = ask(&raw(0x0100, [1, 0, 0, 0], &question));
        assert_eq!(
            (answer.verdict, code(&answer)),
            (DnsVerdict::Refused, expected),
            "{kind}"
        );
    }
    for class in [3_u16, 4, 254, 255] {
        let question = [&b"\x07version\x04bind\0\0\x10"[..], &class.to_be_bytes()].concat();
        let answer = ask(&raw(0x0100, [1, 0, 0, 0], &question));
        assert_eq!(
            (answer.verdict, code(&answer)),
            (DnsVerdict::Refused, 5),
            "{class}"
        );
    }
    for operation in (1..16_u16).filter(|operation| *operation != 0) {
        let answer = ask(&raw(operation << 11, [1, 0, 0, 0], GOOD));
        assert_eq!(
            (answer.verdict, code(&answer)),
            (DnsVerdict::Refused, 4),
            "{operation}"
        );
        let reply = answer.reply.unwrap();
        assert_eq!(
            (reply.len(), &reply[..2], (reply[2] >> 3) & 15),
            (12, &[0x12, 0x34][..], operation as u8)
        );
    }
    let answer = ask(&raw(0x0100, [1, 0, 0, 0], b"\0\0\x02\0\x01"));
    assert_eq!(
        (answer.verdict, code(&answer)),
        (DnsVerdict::Refused, 5),
        "the root"
    );
}

#[test]
fn what_is_no_question_is_malformed_or_dropped() {
    let looping = b"\xc0\x0c\0\x01\0\x01";
    let pair = b"\x01a\xc0\x10\x01b\xc0\x0c\0\x01\0\x01";
    let forward = b"\xc0\x20\0\x01\0\x01aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\0";
    let long: Vec<u8> = [b"\x3f".to_vec(), vec![b'a'; 63]].concat().repeat(5);
    let opt = b"\0\0\x29\x04\xd0\0\0\0\0\0\0";
    let twice = [GOOD, opt, opt].concat();
    let lying = [GOOD, &b"\0\0\x29\x04\xd0\0\0\0\0\xff\xff"[..]].concat();
    let trailing = [GOOD, b"garbage"].concat();
    let question = [&long[..], b"\0\0\x01\0\x01"].concat();
    let cases: &[(&str, [u16; 4], &[u8])] = &[
        ("no question", [0, 0, 0, 0], b""),
        ("two questions", [2, 0, 0, 0], &[GOOD, GOOD].concat()),
        ("65,535 questions", [65_535, 0, 0, 0], GOOD),
        ("answers in a question", [1, 1, 0, 0], GOOD),
        ("65,535 answers", [1, 65_535, 0, 0], GOOD),
        ("65,535 additionals", [1, 0, 0, 65_535], GOOD),
        ("a missing additional", [1, 0, 0, 1], GOOD),
        ("a question cut short", [1, 0, 0, 0], &GOOD[..9]),
        ("a type cut short", [1, 0, 0, 0], &GOOD[..GOOD.len() - 3]),
        ("a pointer to itself", [1, 0, 0, 0], looping),
        ("two pointers in a ring", [1, 0, 0, 0], pair),
        ("a pointer forward", [1, 0, 0, 0], forward),
        (
            "a reserved label type",
            [1, 0, 0, 0],
            b"\x80good\0\0\x01\0\x01",
        ),
        ("a name over 255 bytes", [1, 0, 0, 0], &question),
        ("two OPT records", [1, 0, 0, 2], &twice),
        ("an OPT that lies about its length", [1, 0, 0, 1], &lying),
        ("bytes behind the end", [1, 0, 0, 0], &trailing),
    ];
    for (what, counts, rest) in cases {
        let answer = ask(&raw(0x0100, *counts, rest));
        assert_eq!(
            (answer.verdict, code(&answer)),
            (DnsVerdict::Malformed, 1),
            "{what}"
        );
        assert_eq!(answer.reply.unwrap().len(), 12, "{what}: no amplification");
    }
    for dropped in [&b""[..], b"\x12", &raw(0, [1, 0, 0, 0], b"")[..11]] {
        assert_eq!(ask(dropped).reply, None, "{dropped:?}");
    }
    let answer = ask(&raw(0x8180, [1, 0, 0, 0], GOOD));
    assert_eq!(
        (answer.reply, answer.verdict),
        (None, DnsVerdict::Malformed),
        "an answer is not answered"
    );
}

#[test]
fn edns_is_answered_with_edns_and_never_grows_the_answer() {
    let mut query = message("good.test.", RecordType::A);
    let mut edns = Edns::new();
    edns.set_max_payload(4096).set_dnssec_ok(true);
    edns.options_mut()
        .insert(EdnsOption::Unknown(10, vec![1; 8]));
    query.set_edns(edns);
    let answer = ask(&query.to_vec().unwrap());
    let reply = Message::from_vec(answer.reply.as_ref().unwrap()).unwrap();
    let edns = reply.edns.unwrap();
    assert_eq!(
        (edns.max_payload(), edns.version(), edns.flags().dnssec_ok),
        (1232, 0, true)
    );
    assert_eq!(edns.options(), &OPT::default(), "no option is reflected");
    assert!(!reply.metadata.truncation);

    let mut query = message("good.test.", RecordType::A);
    let mut edns = Edns::new();
    edns.set_version(1);
    query.set_edns(edns);
    let answer = ask(&query.to_vec().unwrap());
    let reply = Message::from_vec(answer.reply.as_ref().unwrap()).unwrap();
    assert_eq!(u16::from(reply.metadata.response_code), 16, "BADVERS");
    assert!(reply.answers.is_empty());
}

#[test]
fn an_over_long_question_is_malformed_by_transport() {
    let mut query = message("good.test.", RecordType::A);
    let mut edns = Edns::new();
    edns.options_mut()
        .insert(EdnsOption::Unknown(12, vec![0; 1500]));
    query.set_edns(edns);
    let query = query.to_vec().unwrap();
    let pool = &mut AddressPool::default();
    assert_eq!(
        answer(&query, Transport::Udp, &allowed, pool).verdict,
        DnsVerdict::Malformed
    );
    assert_eq!(
        answer(&query, Transport::Tcp, &allowed, pool).verdict,
        DnsVerdict::Synthetic
    );
    let over = [query, vec![0; 3000]].concat();
    assert_eq!(
        answer(&over, Transport::Tcp, &allowed, pool).verdict,
        DnsVerdict::Malformed
    );
}

#[test]
fn a_full_pool_fails_for_new_names_only() {
    let mut pool = AddressPool::new(1);
    let mut ask = |name: &str| {
        answer(
            &message(name, RecordType::A).to_vec().unwrap(),
            Transport::Udp,
            &allowed,
            &mut pool,
        )
    };
    assert_eq!(ask("a.good.test.").verdict, DnsVerdict::Synthetic);
    let full = ask("b.good.test.");
    assert_eq!((full.verdict, code(&full)), (DnsVerdict::Full, 2));
    assert_eq!(ask("a.good.test.").verdict, DnsVerdict::Synthetic);
}

#[test]
fn policy_is_asked_once_and_for_the_canonical_host_alone() {
    let times = Cell::new(0);
    let allowed = |host: &Host| {
        times.set(times.get() + 1);
        host.as_str() == "good.test"
    };
    let query = message("GOOD.test.", RecordType::A).to_vec().unwrap();
    assert_eq!(
        answer(
            &query,
            Transport::Udp,
            &allowed,
            &mut AddressPool::default()
        )
        .verdict,
        DnsVerdict::Synthetic
    );
    assert_eq!(times.get(), 1);
}

#[test]
fn the_longest_answers_fit_into_512_bytes() {
    let name = format!(
        "{}.{}.{}.{}.good.test.",
        "a".repeat(63),
        "b".repeat(63),
        "c".repeat(63),
        "d".repeat(49)
    );
    for (name, kind) in [
        (name.clone(), RecordType::AAAA),
        (name.clone(), RecordType::TXT),
        (name.replace("good", "evil"), RecordType::A),
    ] {
        let mut query = message(&name, kind);
        query.set_edns(Edns::new());
        let answer = ask(&query.to_vec().unwrap());
        assert_ne!(answer.verdict, DnsVerdict::Malformed, "{kind}");
        assert!(answer.reply.unwrap().len() <= 512, "{kind}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic_or_amplify(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let answer = ask(&bytes);
        prop_assert!(answer.reply.is_none_or(|reply| reply.len() <= 512));
    }

    #[test]
    fn a_mutated_question_is_answered_within_bounds_and_to_its_sender(
        at in 2_usize..60, to: u8, cut in 0_usize..60, insert in proptest::collection::vec(any::<u8>(), 0..20),
    ) {
        let mut query = message("api.good.test.", RecordType::A);
        query.set_edns(Edns::new());
        let mut bytes = query.to_vec().unwrap();
        let at = at.min(bytes.len() - 1);
        bytes[at] = to;
        bytes.splice(at..at, insert);
        bytes.truncate(bytes.len().saturating_sub(cut % 20));
        let answer = ask(&bytes);
        if let Some(reply) = answer.reply {
            prop_assert!(reply.len() <= 512);
            prop_assert_eq!(&reply[..2], &bytes[..2]);
            prop_assert_eq!(reply[2] & 0x80, 0x80);
        }
    }
}
