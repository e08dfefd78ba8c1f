//! Answers of origins that are not quite as HTTP has them: what is harmless passes, and what cannot
//! be passed on is refused while there is still a place to say so.

use std::time::{Duration, Instant};

use crate::echoes::{ASK, ask, coded_pieces};
use crate::rig::origin::{Seen, Step, ok};
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
    a_resumed_download_has_its_bytes_and_no_secret_across_its_border,
    an_answer_with_other_bytes_than_were_asked_for_is_refused,
    a_folded_line_a_blank_before_a_colon_and_a_length_said_twice_are_mended,
    a_refusal_names_the_line_of_an_answer_that_could_not_be_read,
    content_that_ends_with_a_connection_whose_tls_is_not_closed_is_whole,
    what_came_before_an_answer_broke_off_is_passed_on,
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
    let ended = [&coded_pieces("gzip", &[b"plain"]).concat()[..], b"\r\n"].concat();
    let damaged = [&padded[..], b"garbage"].concat();
    let cases: [(&str, &[u8], u16); 8] = [
        ("gzip", &padded, 200),
        ("gzip", &ended, 200),
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

/// How an origin with this content answers a request, a range of it or all.
fn stored(seen: &Seen, content: &[u8]) -> Vec<Step> {
    let all = content.len();
    let asked = seen.all("range");
    let Some(range) = asked.first().and_then(|range| range.strip_prefix("bytes=")) else {
        return ok("", content);
    };
    let (first, last) = range.split_once('-').unwrap();
    let (first, last) = match (first.parse::<usize>(), last.parse::<usize>()) {
        (Ok(first), last) => (first, last.map_or(all, |last| all.min(last + 1))),
        (Err(_), last) => (all.saturating_sub(last.unwrap()), all),
    };
    if first >= all {
        let head =
            format!("HTTP/1.1 416 N\r\nContent-Range: bytes */{all}\r\nContent-Length: 0\r\n\r\n");
        return vec![Step::Bytes(head.into_bytes())];
    }
    let part = &content[first..last];
    let head = format!(
        "HTTP/1.1 206 P\r\nContent-Range: bytes {first}-{}/{all}\r\nContent-Length: {}\r\n\r\n",
        last - 1,
        part.len()
    );
    vec![Step::Bytes([head.as_bytes(), part].concat())]
}

fn a_resumed_download_has_its_bytes_and_no_secret_across_its_border(rig: &Rig) {
    let secret = rig.secret("bearer").to_owned();
    let (border, rest) = (200_000, 150_000);
    for before in [0, 1, secret.len() / 2, secret.len() - 1, secret.len()] {
        let noise = |count: usize| (0..count).map(|at| b"0123456789 \n"[at * at % 12]);
        let mut content: Vec<u8> = noise(border - before).collect();
        content.extend(secret.bytes());
        content.extend(noise(rest));
        let (whole, all) = (content.clone(), content.len());
        let planted = border - before..border - before + secret.len();
        rig.origins.on("/stored", move |seen| stored(seen, &whole));
        for way in Way::SECURE {
            let part = |range: &str| {
                let ask = ASK.replace("/x ", "/stored ");
                let ask = ask.replace("\r\n\r\n", &format!("\r\nRange: bytes={range}\r\n\r\n"));
                let answer = rig.ask(way, GOOD, &ask);
                rig.record(way);
                answer
            };
            let (first, second) = (
                part(&format!("0-{}", border - 1)),
                part(&format!("{border}-")),
            );
            for (answer, told) in [(&first, (0, border - 1)), (&second, (border, all - 1))] {
                let told = format!("bytes {}-{}/{all}", told.0, told.1);
                assert_eq!(
                    (answer.status, answer.field("content-range")),
                    (206, Some(&*told)),
                    "{way:?} {before} {}",
                    answer.head
                );
            }
            let joined = [first.body, second.body].concat();
            assert_eq!(joined.len(), all, "{way:?} {before}");
            assert_eq!(joined[..planted.start], content[..planted.start]);
            assert_eq!(joined[planted.end..], content[planted.end..]);
            let tail = part("-5");
            assert_eq!((tail.status, &*tail.body), (206, &content[all - 5..]));
            // The margin alone is there, or nothing.
            for beyond in [all, all + 1_000_000] {
                let none = part(&format!("{beyond}-"));
                let told = format!("bytes */{all}");
                assert_eq!(
                    (none.status, none.field("content-range"), &*none.body),
                    (416, Some(&*told), &b""[..]),
                    "{way:?} {beyond} {}",
                    none.head
                );
            }
            let several = part("0-1,5-6");
            assert_eq!(
                (several.status, several.body.len() >= all - 64),
                (200, true)
            );
        }
    }
    rig.ends_now();
}

fn an_answer_with_other_bytes_than_were_asked_for_is_refused(rig: &Rig) {
    for told in [
        "Content-Range: bytes 200000-200001/300000\r\n",
        "Content-Range: bytes 0-1/300000\r\nContent-Range: bytes 5-6/300000\r\n",
        "Content-Type: multipart/byteranges; boundary=b\r\n",
    ] {
        rig.origins.on("/other", move |_| {
            let head = format!("HTTP/1.1 206 P\r\n{told}Content-Length: 2\r\n\r\nno");
            vec![Step::Bytes(head.into_bytes())]
        });
        for way in Way::SECURE {
            let ask = ASK.replace("/x ", "/other ");
            let ask = ask.replace("\r\n\r\n", "\r\nRange: bytes=100000-\r\n\r\n");
            let answer = rig.ask(way, GOOD, &ask);
            let told = (answer.status, answer.reason());
            assert_eq!(told, (502, "bad_response".to_owned()), "{way:?} {answer:?}");
            rig.record(way);
        }
    }
    rig.ends_now();
}

fn a_folded_line_a_blank_before_a_colon_and_a_length_said_twice_are_mended(rig: &Rig) {
    rig.origins.on("/odd", |_| {
        let head = "HTTP/1.1 200 OK\r\nX-Folded: one\r\n\ttwo\r\nX-Blank : three\r\nContent-Length: 2, 2\r\n\r\nok";
        vec![Step::Bytes(head.into())]
    });
    for way in Way::SECURE {
        let answer = rig.ask(way, OTHER, "GET /odd HTTP/1.1\r\nHost: {H}\r\n\r\n");
        let folded = answer.field("x-folded").unwrap_or_default();
        assert_eq!(
            folded.split_whitespace().collect::<Vec<_>>(),
            ["one", "two"],
            "{way:?}"
        );
        let told = (answer.field("x-blank"), answer.field("content-length"));
        assert_eq!(told, (Some("three"), Some("2")), "{way:?} {answer:?}");
        assert_eq!(answer.text(), "ok", "{way:?}");
        rig.record(way);
    }
    rig.ends_now();
}

fn a_refusal_names_the_line_of_an_answer_that_could_not_be_read(rig: &Rig) {
    for (head, line) in [
        (
            "HTTP/1.1 200 OK\r\nX-Good: 1\r\nno colon here\r\nContent-Length: 2\r\n\r\nok",
            3,
        ),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2, 3\r\n\r\nok", 2),
        (
            "HTTP/1.1 200 OK\r\nX-Bad: a\x01b\r\nContent-Length: 2\r\n\r\nok",
            2,
        ),
        ("HTTP/1.1 2OO OK\r\nContent-Length: 2\r\n\r\nok", 1),
    ] {
        rig.origins
            .on("/unreadable", move |_| vec![Step::Bytes(head.into())]);
        for way in Way::SECURE {
            let answer = rig.ask(way, OTHER, "GET /unreadable HTTP/1.1\r\nHost: {H}\r\n\r\n");
            let told = format!("line {line} of the origin's answer could not be read");
            let is_told = answer.status == 502 && answer.text().contains(&told);
            assert!(is_told, "{way:?} {head:?}: {answer:?}");
            assert!(!answer.text().contains("no colon"), "{answer:?}");
            let record = rig.record(way);
            let cause = record["cause"].as_str().unwrap_or_default();
            assert_eq!(record["reason"], "bad_response", "{way:?}");
            assert!(cause.contains(&told), "{way:?} {record}");
        }
    }
    rig.ends_now();
}

fn content_that_ends_with_a_connection_whose_tls_is_not_closed_is_whole(rig: &Rig) {
    for (closes, outcome) in [(Step::Close, "whole"), (Step::Drop, "unclosed")] {
        rig.origins.on("/closes", move |_| {
            let answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nto the end";
            vec![Step::Bytes(answer.to_vec()), closes.clone()]
        });
        for (host, way) in [(OTHER, Way::Connect), (GOOD, Way::Transparent)] {
            let answer = rig.ask(way, host, "GET /closes HTTP/1.1\r\nHost: {H}\r\n\r\n");
            assert_eq!(
                (answer.status, &*answer.text()),
                (200, "to the end"),
                "{way:?}"
            );
            let record = rig.record(way);
            let ends = rig.ends();
            assert_eq!(ends[0]["outcome"], outcome, "{way:?} {record} {ends:?}");
        }
    }
}

fn what_came_before_an_answer_broke_off_is_passed_on(rig: &Rig) {
    for framing in [
        "Transfer-Encoding: chunked\r\n\r\n6\r\nsome \n\r\n",
        "Content-Length: 9\r\n\r\nsome \n",
    ] {
        rig.origins.on("/breaks", move |_| {
            let answer = format!("HTTP/1.1 200 OK\r\n{framing}");
            vec![Step::Bytes(answer.into_bytes()), Step::Drop]
        });
        for way in Way::SECURE {
            let answer = rig.ask(way, OTHER, "GET /breaks HTTP/1.1\r\nHost: {H}\r\n\r\n");
            assert_eq!(answer.status, 200, "{way:?} {answer:?}");
            // No secret can begin at the end of it, so nothing is held back.
            assert!(answer.text().starts_with("some \n"), "{way:?} {answer:?}");
            assert!(answer.text().contains("[cut]"), "{way:?} {answer:?}");
            assert_eq!(rig.record(way)["status"], 200);
            assert!(rig.ends().iter().all(|end| end["outcome"] == "cut"));
        }
    }
}
