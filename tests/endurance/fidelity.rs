//! How an exchange ends on one side is how it ends on the other: nothing that was cut looks whole.

use std::time::Duration;

use http::{Method, StatusCode};
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::client::{Read, none, read};
use crate::origin::{broken_upload, upload};
use crate::{Setup, Stage, run};

const HOSTS: [&str; 2] = ["one.origin.test", "two.origin.test"];

/// Sends a request over HTTP/1.1 or HTTP/2 and reads everything.
async fn get(stage: &Stage, http2: bool, host: &str, path: &str) -> (StatusCode, Read) {
    let client = &stage.client;
    let response = if http2 {
        let mut sender = client.http2(host, 1 << 20, 4 << 20).await;
        sender
            .send_request(client.request(Method::GET, host, path, none()))
            .await
    } else {
        let mut sender = client.http1(host).await;
        sender
            .send_request(client.request1(Method::GET, host, path, none()))
            .await
    };
    let response = response.unwrap();
    (response.status(), read(client, response).await)
}

#[test]
fn content_that_the_origin_cuts_never_ends_cleanly_at_the_client() {
    let stage = Stage::new(Setup::default());
    run(async {
        for host in HOSTS {
            for http2 in [false, true] {
                for path in [
                    "/cut/300000",
                    "/cut-open/300000",
                    "/cut/100",
                    "/cut-open/100",
                ] {
                    let (status, read) = get(&stage, http2, host, path).await;
                    assert_eq!(status, StatusCode::OK);
                    assert!(!read.whole, "{host} {path} to h2={http2}: {read:?}");
                }
                for path in ["/bytes/300000", "/open/300000"] {
                    let (_, read) = get(&stage, http2, host, path).await;
                    assert!(
                        read.whole && read.bytes == 300_000,
                        "{host} {path}: {read:?}"
                    );
                }
            }
        }
        for http2 in [false, true] {
            // RFC 9112 §9.8: content that ends with the connection is incomplete without
            // `close_notify`. Clients take it all the same, so the record alone says so.
            let (_, read) = get(&stage, http2, "raw.origin.test", "/until-cut").await;
            assert!(read.whole, "{read:?}");
            let (_, read) = get(&stage, http2, "raw.origin.test", "/until-close").await;
            assert!(read.whole && read.bytes == 9, "{read:?}");
        }
    });
    let records = stage.gateway.records();
    let ended = |outcome: &str, reason: Option<&str>| {
        let ends = records.iter().filter(|record| record["kind"] == "end");
        let same = |record: &&serde_json::Value| {
            record["outcome"] == outcome && record["reason"].as_str() == reason
        };
        ends.filter(same).count()
    };
    assert_eq!(ended("cut", Some("bad_response")), 16);
    assert_eq!(ended("unclosed", None), 2);
}

#[test]
fn trailers_pass_behind_content_with_replaced_echoes() {
    let stage = Stage::new(Setup::default());
    run(async {
        let (_, read) = get(&stage, true, "two.origin.test", "/trailers/1000000").await;
        assert!(read.whole && read.phantoms > 0);
        assert_eq!(read.trailers.unwrap()["x-check"], "whole");
    });
}

#[test]
fn a_client_that_leaves_takes_its_exchange_from_the_origin() {
    let stage = Stage::new(Setup::default());
    run(async {
        let (client, mut gone) = (&stage.client, 0);
        for host in HOSTS {
            for http2 in [false, true] {
                for path in ["/drip", "/stall"] {
                    let asks = async {
                        // A client's connection is closed when its sender is dropped, its stream
                        // when the response is.
                        if http2 {
                            let mut sender = client.http2(host, 1 << 20, 4 << 20).await;
                            let request = client.request(Method::GET, host, path, none());
                            let mut response = sender.send_request(request).await.unwrap();
                            response.frame().await;
                        } else {
                            let mut stream = client.tls(host, b"http/1.1").await.unwrap();
                            let head = client.head("GET", host, path, "");
                            stream.write_all(head.as_bytes()).await.unwrap();
                            let mut some = [0; 64];
                            stream.read_exact(&mut some).await.unwrap();
                            // It closes at once, with unread data.
                        }
                    };
                    let _ = tokio::time::timeout(Duration::from_millis(500), asks).await;
                    let left_in_silence = !http2 && path == "/stall";
                    if left_in_silence {
                        // RFC 9112 §9.6: a client may close its side and still read. Only a
                        // response shows that it is gone.
                        continue;
                    }
                    gone += 1;
                    assert!(
                        stage
                            .origin
                            .seen
                            .reaches(|seen| &seen.abandoned, gone)
                            .await,
                        "{host} {path} h2={http2}"
                    );
                }
            }
        }
    });
}

#[test]
fn an_upload_that_the_client_breaks_off_never_ends_cleanly_at_the_origin() {
    let stage = Stage::new(Setup::default());
    run(async {
        let (client, mut broken) = (&stage.client, 0);
        for host in HOSTS {
            for lines in [
                "content-length: 100000\r\n",
                "transfer-encoding: chunked\r\n",
            ] {
                let mut stream = client.tls(host, b"http/1.1").await.unwrap();
                let head = client.head("POST", host, "/sink", lines);
                let content = if lines.starts_with('c') {
                    "0123456789"
                } else {
                    "a\r\n0123456789\r\n"
                };
                stream.write_all((head + content).as_bytes()).await.unwrap();
                assert!(
                    stage
                        .origin
                        .seen
                        .reaches(|seen| &seen.received, 10 * (broken + 1))
                        .await
                );
                stream.shutdown().await.unwrap();
                drop(stream);
                broken += 1;
                assert!(
                    stage
                        .origin
                        .seen
                        .reaches(|seen| &seen.broken_requests, broken)
                        .await,
                    "{host} {lines}"
                );
            }
            let received = stage.origin.seen.of(|seen| &seen.received);
            let mut sender = client.http2(host, 1 << 20, 4 << 20).await;
            let content = broken_upload(&stage.origin.seen);
            let request = client.request(Method::POST, host, "/sink", content);
            let asks = tokio::spawn(async move { sender.send_request(request).await.map(drop) });
            assert!(
                stage
                    .origin
                    .seen
                    .reaches(|seen| &seen.received, received + 10)
                    .await
            );
            broken += 1;
            assert!(
                stage
                    .origin
                    .seen
                    .reaches(|seen| &seen.broken_requests, broken)
                    .await,
                "{host} h2"
            );
            let _ = asks.await;
        }
    });
}

#[test]
fn an_answer_before_the_content_was_read_reaches_the_client() {
    let stage = Stage::new(Setup::default());
    run(async {
        let client = &stage.client;
        for host in HOSTS {
            for size in [100_u64, 64 << 20] {
                let mut sender = client.http2(host, 1 << 20, 4 << 20).await;
                let request = client.request(Method::POST, host, "/early", upload(size));
                let answered =
                    tokio::time::timeout(Duration::from_secs(10), sender.send_request(request))
                        .await;
                assert_eq!(
                    answered.unwrap().unwrap().status(),
                    StatusCode::PAYLOAD_TOO_LARGE,
                    "{host} {size}"
                );

                let mut sender = client.http1(host).await;
                let request = client.request1(Method::POST, host, "/early", upload(size));
                let answered =
                    tokio::time::timeout(Duration::from_secs(10), sender.send_request(request))
                        .await;
                assert_eq!(
                    answered.unwrap().unwrap().status(),
                    StatusCode::PAYLOAD_TOO_LARGE,
                    "{host} {size}"
                );
            }
        }
        // The origin that closes at once, like servers that will not read on.
        for _ in 0..10 {
            let host = "raw.origin.test";
            let mut sender = client.http2(host, 1 << 20, 4 << 20).await;
            let request = client.request(Method::POST, host, "/refuse-content", upload(64 << 20));
            let answered =
                tokio::time::timeout(Duration::from_secs(10), sender.send_request(request)).await;
            assert_eq!(
                answered.unwrap().unwrap().status(),
                StatusCode::PAYLOAD_TOO_LARGE
            );
        }
    });
}

#[test]
fn content_waits_for_the_origins_100_and_an_early_answer_spares_it() {
    let stage = Stage::new(Setup::default());
    run(async {
        let (client, host) = (&stage.client, "raw.origin.test");
        let mut stream = client.tls(host, b"http/1.1").await.unwrap();
        let lines = "content-length: 5\r\nexpect: 100-continue\r\n";
        let head = client.head("POST", host, "/continue", lines);
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut said = [0; 25];
        stream.read_exact(&mut said).await.unwrap();
        assert_eq!(&said, b"HTTP/1.1 100 Continue\r\n\r\n");
        stream.write_all(b"hello").await.unwrap();
        let mut answer = vec![0; 512];
        let length = stream.read(&mut answer).await.unwrap();
        let answer = String::from_utf8_lossy(&answer[..length]).into_owned();
        assert!(
            answer.starts_with("HTTP/1.1 200") && answer.ends_with("hello"),
            "{answer}"
        );

        let received = stage.origin.seen.of(|seen| &seen.received);
        let mut stream = client.tls(host, b"http/1.1").await.unwrap();
        // Shorter content is read for a request for tokens before it goes on.
        let lines = "content-length: 65537\r\nexpect: 100-continue\r\n";
        let head = client.head("POST", host, "/refuse-content", lines);
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = vec![0; 512];
        let length = stream.read(&mut answer).await.unwrap();
        let answer = String::from_utf8_lossy(&answer[..length]).into_owned();
        assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
        tokio::time::sleep(Duration::from_millis(700)).await;
        assert_eq!(stage.origin.seen.of(|seen| &seen.received), received);
    });
}

#[test]
fn an_early_hint_does_not_disturb_the_answer() {
    let stage = Stage::new(Setup::default());
    run(async {
        for http2 in [false, true] {
            let (status, read) = get(&stage, http2, "raw.origin.test", "/early-hints").await;
            assert_eq!((status, read.bytes, read.whole), (StatusCode::OK, 2, true));
        }
    });
}

#[test]
fn a_client_that_closes_its_side_still_gets_its_answer() {
    let stage = Stage::new(Setup::default());
    run(async {
        let (client, host) = (&stage.client, "one.origin.test");
        let mut stream = client.tls(host, b"http/1.1").await.unwrap();
        let head = client.head("GET", host, "/bytes/200000", "");
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        assert!(
            answer.starts_with(b"HTTP/1.1 200") && answer.len() > 200_000,
            "{}",
            answer.len()
        );
    });
}

#[test]
fn an_endless_answer_head_is_refused_in_little_memory() {
    let stage = Stage::new(Setup::default());
    let before = stage.gateway.peak_kib();
    run(async {
        let (status, _) = get(&stage, true, "raw.origin.test", "/endless-head").await;
        assert_eq!(status, StatusCode::BAD_GATEWAY);
    });
    // The program and its start are not the head's: most is an image that is not optimised.
    let more = stage.gateway.peak_kib() - before;
    println!("an endless head: {more} KiB more than {before}");
    assert!(more < 16 << 10, "{more} more than {before}");
}
