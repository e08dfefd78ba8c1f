//! Answers of origins that are not quite as HTTP has them: what is harmless passes, and what cannot
//! be passed on is refused while there is still a place to say so.

use std::time::{Duration, Instant};

use crate::echoes::{ASK, ask, coded_pieces};
use crate::rig::origin::{Step, ok};
use crate::rig::way::Way;
use crate::rig::{GOOD, OTHER, Rig};
use crate::rows;

rows![
    content_that_is_not_what_its_label_says_is_refused_before_the_head,
    names_of_no_coding_and_padding_after_gzip_are_no_fault,
    events_in_a_content_coding_come_when_the_origin_pauses,
    a_length_beside_another_transfer_coding_is_refused_at_once,
    informational_answers_are_counted,
    a_long_head_of_an_answer_passes_and_a_longer_one_is_named,
];

fn content_that_is_not_what_its_label_says_is_refused_before_the_head(rig: &Rig) {
    for coding in ["gzip", "br", "zstd"] {
        let label = format!("Content-Encoding: {coding}\r\n");
        rig.origins
            .on("/mislabelled", move |_| ok(&label, b"This is plain text."));
        for way in Way::SECURE {
            let answer = ask(rig, way, "/mislabelled");
            assert_eq!(
                (answer.status, answer.reason().as_str()),
                (502, "encoding"),
                "{way:?} {coding} {answer:?}"
            );
        }
    }
}

fn names_of_no_coding_and_padding_after_gzip_are_no_fault(rig: &Rig) {
    let padded = [&coded_pieces("gzip", &[b"plain"]).concat()[..], &[0; 700]].concat();
    let damaged = [&padded[..], b"garbage"].concat();
    let cases: [(&str, &[u8], u16); 7] = [
        ("gzip", &padded, 200),
        ("aws-chunked", b"plain", 200),
        ("utf-8", b"plain", 200),
        ("none", b"plain", 200),
        ("Identity, UTF-8", b"plain", 200),
        ("compress", b"plain", 502),
        ("gzip", &damaged, 0),
    ];
    for (label, content, status) in cases {
        let (label, content) = (label.to_owned(), content.to_vec());
        let head = format!("Content-Encoding: {label}\r\n");
        rig.origins.on("/named", move |_| ok(&head, &content));
        for way in Way::SECURE {
            let answer = ask(rig, way, "/named");
            if status == 0 {
                // What came before it is whole, and the end is not clean.
                assert!(
                    answer.status == 502 || answer.text().contains("[cut]"),
                    "{answer:?}"
                );
                continue;
            }
            assert_eq!(answer.status, status, "{way:?} {label} {answer:?}");
            assert_eq!(
                answer.text() == "plain",
                status == 200,
                "{label} {answer:?}"
            );
        }
    }
    rig.ends_now();
}

fn events_in_a_content_coding_come_when_the_origin_pauses(rig: &Rig) {
    const SILENCE: Duration = Duration::from_millis(3000);
    for coding in ["gzip", "br", "zstd"] {
        rig.origins.on("/events", move |_| {
            let pieces = coded_pieces(coding, &[b"data: one\n\n", b"data: two\n\n"]);
            let chunk = |bytes: &[u8]| {
                Step::Bytes([format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat())
            };
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: {coding}\r\nTransfer-Encoding: chunked\r\n\r\n"
            );
            vec![
                Step::Bytes(head.into_bytes()),
                chunk(&pieces[0]),
                Step::Pause(SILENCE.as_millis() as u64),
                chunk(&pieces[1]),
                Step::Bytes(b"0\r\n\r\n".to_vec()),
            ]
        });
        let way = Way::Connect;
        let mut wire = rig.open(way, GOOD);
        let started = Instant::now();
        wire.send(&rig.fill(way, GOOD, &ASK.replace("/x ", "/events ")));
        assert!(wire.line(b"data: one\n\n").is_some(), "{coding}");
        assert!(started.elapsed() < SILENCE, "{coding}");
        assert!(wire.line(b"data: two\n\n").is_some(), "{coding}");
        rig.record(way);
    }
    rig.ends_now();
}

fn a_length_beside_another_transfer_coding_is_refused_at_once(rig: &Rig) {
    rig.origins.on("/identity", |_| {
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\nContent-Length: 2\r\n\r\nok";
        vec![Step::Bytes(head.to_vec()), Step::Pause(5000)]
    });
    for way in Way::SECURE {
        let started = Instant::now();
        let answer = rig.ask(way, OTHER, "GET /identity HTTP/1.1\r\nHost: {H}\r\n\r\n");
        let told = (answer.status, answer.reason());
        assert_eq!(told, (502, "bad_response".to_owned()), "{way:?} {answer:?}");
        assert!(started.elapsed() < Duration::from_secs(3), "{way:?}");
        rig.record(way);
    }
}

fn informational_answers_are_counted(rig: &Rig) {
    for (count, status) in [(16, 200), (17, 502), (100_000, 502)] {
        rig.origins.on("/hints", move |_| {
            let hint = b"HTTP/1.1 103 Early Hints\r\nLink: </x>; rel=preload\r\n\r\n";
            [
                vec![Step::Bytes(hint.repeat(count)), Step::Pause(300)],
                ok("", b"late"),
            ]
            .concat()
        });
        for way in Way::SECURE {
            let answer = rig.ask(way, OTHER, "GET /hints HTTP/1.1\r\nHost: {H}\r\n\r\n");
            assert_eq!(answer.status, status, "{way:?} {count} {answer:?}");
            if status == 502 {
                assert!(answer.text().contains("16 informational"), "{answer:?}");
            }
            rig.record(way);
        }
    }
    rig.ends_now();
}

fn a_long_head_of_an_answer_passes_and_a_longer_one_is_named(rig: &Rig) {
    for (fields, length, status) in [
        (200, 10, 200),
        (100, 1000, 200),
        (300, 10, 502),
        (200, 1000, 502),
    ] {
        rig.origins.on("/head", move |_| {
            let one = |at| format!("X-{at}: {}\r\n", "y".repeat(length));
            ok(&(0..fields).map(one).collect::<String>(), b"whole")
        });
        for way in [Way::Connect, Way::Transparent] {
            let answer = rig.ask(way, OTHER, "GET /head HTTP/1.1\r\nHost: {H}\r\n\r\n");
            assert_eq!(
                answer.status, status,
                "{way:?} {fields} {length} {answer:?}"
            );
            if status == 502 {
                assert_eq!(answer.reason(), "answer_head", "{answer:?}");
                assert!(answer.text().contains("256 fields"), "{answer:?}");
            }
            rig.record(way);
        }
    }
    rig.ends_now();
}
