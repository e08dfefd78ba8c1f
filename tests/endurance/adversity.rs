//! Slow peers, silent peers, a full disk.

use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::client::{none, read};
use crate::{Setup, Stage, run};

const HOST: &str = "two.origin.test";

fn impatient() -> Setup {
    Setup {
        limits: "head_timeout = \"1s\"\nhandshake_timeout = \"1s\"\nidle_timeout = \"2s\"\nprogress_timeout = \"2s\"",
        ..Setup::default()
    }
}

/// How long it takes until the gateway closes a connection, while something is done to it.
async fn closed_after(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> Duration {
    let began = Instant::now();
    let mut rest = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut rest)).await;
    began.elapsed()
}

#[test]
fn a_head_that_drips_is_cut_and_others_do_not_notice() {
    let stage = Stage::new(impatient());
    run(async {
        let client = &stage.client;
        let mut drips = tokio::task::JoinSet::new();
        for _ in 0..50 {
            let client = client.clone();
            drips.spawn(async move {
                let stream = client.tls(HOST, b"http/1.1").await.unwrap();
                let (mut input, mut output) = tokio::io::split(stream);
                let dripping = tokio::spawn(async move {
                    for byte in b"GET / HTTP/1.1\r\nhost: two.origin.test\r\nx-a: "
                        .iter()
                        .chain([b'a'; 500].iter())
                    {
                        if output.write_all(&[*byte]).await.is_err() {
                            return;
                        }
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                });
                let cut = closed_after(&mut input).await;
                dripping.abort();
                cut
            });
        }
        let mut sender = client.http2(HOST, 1 << 20, 1 << 20).await;
        for _ in 0..20 {
            let began = Instant::now();
            let request = client.request(Method::GET, HOST, "/ok", none());
            assert_eq!(
                sender.send_request(request).await.unwrap().status(),
                StatusCode::OK
            );
            assert!(began.elapsed() < Duration::from_secs(1));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        for cut in drips.join_all().await {
            assert!(
                cut > Duration::from_millis(500) && cut < Duration::from_secs(5),
                "{cut:?}"
            );
        }
    });
}

#[test]
fn a_handshake_that_stands_still_and_a_connection_that_says_nothing_are_closed() {
    let stage = Stage::new(impatient());
    run(async {
        for begins in [&b""[..], b"\x16\x03\x01\x02\x00\x01"] {
            let mut stream = tokio::net::TcpStream::connect(stage.gateway.address)
                .await
                .unwrap();
            stream.write_all(begins).await.unwrap();
            let closed = closed_after(&mut stream).await;
            assert!(closed < Duration::from_secs(5), "{closed:?}");
        }
        for protocol in [&b"http/1.1"[..], b"h2"] {
            let mut stream = stage.client.tls(HOST, protocol).await.unwrap();
            let closed = closed_after(&mut stream).await;
            assert!(
                closed > Duration::from_secs(1) && closed < Duration::from_secs(6),
                "{closed:?}"
            );
        }
    });
}

#[test]
fn an_origin_that_stalls_is_given_up_before_and_within_its_answer() {
    let stage = Stage::new(impatient());
    run(async {
        let client = &stage.client;
        let mut sender = client.http2(HOST, 1 << 20, 1 << 20).await;
        let began = Instant::now();
        let request = client.request(Method::GET, HOST, "/stall", none());
        let response = sender.send_request(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::GATEWAY_TIMEOUT);
        assert!(stage.origin.seen.reaches(|seen| &seen.abandoned, 1).await);
        let request = client.request(Method::GET, HOST, "/pause/1000", none());
        let response = sender.send_request(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let read = read(client, response).await;
        assert!(!read.whole && read.bytes == 1000, "{read:?}");
        assert!(stage.origin.seen.reaches(|seen| &seen.abandoned, 2).await);
        assert!(
            began.elapsed() < Duration::from_secs(12),
            "{:?}",
            began.elapsed()
        );
    });
}

#[test]
fn a_reader_that_stops_is_cut_and_one_that_is_slow_is_not() {
    let stage = Stage::new(impatient());
    run(async {
        let client = &stage.client;
        let mut sender = client.http2(HOST, 65_535, 1 << 20).await;
        let ask = |path: &str| client.request(Method::GET, HOST, path, none());
        let stopped = sender.send_request(ask("/bytes/10000000")).await.unwrap();
        let mut other = client.http2(HOST, 65_535, 1 << 20).await;
        let mut slow = other.send_request(ask("/drip")).await.unwrap();
        let mut frames = 0;
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(6) {
            frames += u32::from(slow.frame().await.unwrap().unwrap().is_data());
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        assert!(frames > 5, "{frames}");
        assert!(stage.origin.seen.of(|seen| &seen.abandoned) >= 1);
        assert!(!read(client, stopped).await.whole);
        drop(slow);
    });
}

#[test]
fn a_full_disk_stops_every_exchange_before_the_origin_and_room_lets_them_go_on() {
    let mut stage = Stage::new(Setup {
        small_disk: Some("1m"),
        ..Setup::default()
    });
    run(async {
        let client = stage.client.clone();
        let mut sender = client.http2(HOST, 1 << 20, 1 << 20).await;
        let ask = || client.request(Method::GET, HOST, "/ok", none());
        assert_eq!(
            sender.send_request(ask()).await.unwrap().status(),
            StatusCode::OK
        );
        stage.gateway.disk("fill");
        // What was set aside before is used up first.
        let mut refused = None;
        for _ in 0..5_000 {
            let seen = stage.origin.seen.of(|seen| &seen.requests);
            let response = sender.send_request(ask()).await.unwrap();
            if response.status() == StatusCode::SERVICE_UNAVAILABLE {
                let content = response.into_body().collect().await.unwrap().to_bytes();
                refused = Some((content, stage.origin.seen.of(|seen| &seen.requests) - seen));
                break;
            }
            response.into_body().collect().await.unwrap();
        }
        let (content, reached_origin) = refused.expect("a full disk refuses");
        assert!(
            String::from_utf8_lossy(&content).contains("audit_unavailable"),
            "{content:?}"
        );
        assert_eq!(reached_origin, 0);
        stage.gateway.disk("free");
        assert_eq!(
            sender.send_request(ask()).await.unwrap().status(),
            StatusCode::OK
        );
        stage.gateway.disk("copy");
        let copy = stage.gateway.folder.join("copy.jsonl");
        let (holds, said) = stage.gateway.verify_file(&copy);
        assert!(holds, "{said}");
    });
}
