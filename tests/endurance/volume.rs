//! Much content: how much of it the gateway buffers, however slow a side is.

use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use http_body_util::BodyExt;

use crate::client::{none, read};
use crate::origin::upload;
use crate::{Setup, Stage, is_full, run};

const MIB: u64 = 1 << 20;

/// 116 responses of 8 MiB on one connection of a client that reads nothing for seconds. `origin` is
/// the origin's version of HTTP; the windows are those that the client grants.
fn parallel_downloads(origin: &str, stream: u32, connection: u32) {
    let stage = Stage::new(Setup::default());
    let before = stage.gateway.peak_kib();
    let began = Instant::now();
    let host = format!("{origin}.origin.test");
    run(async {
        let late = Duration::from_secs(4);
        let sender = stage
            .client
            .http2_late(&host, stream, connection, late)
            .await;
        let downloads: Vec<_> = (0..116)
            .map(|n| {
                let (client, mut sender) = (stage.client.clone(), sender.clone());
                let host = host.clone();
                tokio::spawn(async move {
                    let path = format!("/bytes/{}/{n}", 8 * MIB);
                    let request = client.request(Method::GET, &host, &path, none());
                    let response = sender.send_request(request).await.unwrap();
                    assert_eq!(response.status(), StatusCode::OK);
                    // The other kind of slow: the client has the bytes, and does not read them.
                    tokio::time::sleep(Duration::from_millis(n * 5)).await;
                    read(&client, response).await
                })
            })
            .collect();
        for download in downloads {
            let read = download.await.unwrap();
            assert!(read.whole && read.bytes == 8 * MIB, "{read:?}");
            assert_eq!(read.phantoms, 128, "{read:?}");
        }
    });
    let peak = stage.gateway.peak_kib();
    println!(
        "116 x 8 MiB from {host} to windows of {stream}/{connection}: peak {} MiB (idle {} MiB), {:.1} s",
        peak / 1024,
        before / 1024,
        began.elapsed().as_secs_f64()
    );
    assert_eq!(stage.origin.seen.of(|seen| &seen.without_secret), 0);
    assert!(peak < 256 << 10, "{peak} KiB");
}

#[test]
fn parallel_downloads_from_http2_to_a_slow_reader_with_large_windows_are_not_held() {
    parallel_downloads("two", 16 << 20, 1 << 30);
}

#[test]
fn parallel_downloads_from_http1_to_a_slow_reader_with_large_windows_are_not_held() {
    parallel_downloads("one", 16 << 20, 1 << 30);
}

#[test]
fn parallel_downloads_to_a_slow_reader_with_small_windows_are_not_held() {
    parallel_downloads("two", 65_535, 65_535);
}

#[test]
fn large_contents_pass_both_ways_in_little_memory() {
    let size = if is_full() { 10 << 10 } else { 512 } * MIB;
    let stage = Stage::new(Setup::default());
    for (host, http2) in [("two.origin.test", true), ("one.origin.test", false)] {
        // The default length runs the second version with half.
        let size = if http2 || is_full() { size } else { size / 2 };
        let client = &stage.client;
        let began = Instant::now();
        let received = stage.origin.seen.of(|seen| &seen.received);
        let answer = run(async {
            let request = |path: &str, content| client.request(Method::POST, host, path, content);
            let response = if http2 {
                let mut sender = client.http2(host, 1 << 20, 4 << 20).await;
                sender.send_request(request("/sink", upload(size))).await
            } else {
                let mut sender = client.http1(host).await;
                let request = client.request1(Method::POST, host, "/sink", upload(size));
                sender.send_request(request).await
            };
            response
                .unwrap()
                .into_body()
                .collect()
                .await
                .unwrap()
                .to_bytes()
        });
        assert_eq!(answer, size.to_string());
        assert_eq!(stage.origin.seen.of(|seen| &seen.received) - received, size);
        report(&stage, host, "upload", size, began);

        let began = Instant::now();
        let path = format!("/bytes/{size}");
        let read = run(async {
            let response = if http2 {
                let mut sender = client.http2(host, 1 << 20, 4 << 20).await;
                let request = client.request(Method::GET, host, &path, none());
                sender.send_request(request).await
            } else {
                let mut sender = client.http1(host).await;
                let request = client.request1(Method::GET, host, &path, none());
                sender.send_request(request).await
            };
            read(client, response.unwrap()).await
        });
        assert!(read.whole && read.bytes == size, "{read:?}");
        assert!(read.phantoms == size / (64 << 10), "{read:?}");
        report(&stage, host, "download", size, began);
    }
}

fn report(stage: &Stage, host: &str, way: &str, size: u64, began: Instant) {
    let (peak, seconds) = (stage.gateway.peak_kib(), began.elapsed().as_secs_f64());
    println!(
        "{way} of {} MiB, {host}: {seconds:.1} s, {:.0} MiB/s, peak {} MiB",
        size / MIB,
        size as f64 / MIB as f64 / seconds,
        peak / 1024
    );
    assert!(peak < 128 << 10, "{peak} KiB");
}

#[test]
fn streams_that_nobody_reads_do_not_stop_the_others_of_their_session() {
    let stage = Stage::new(Setup::default());
    run(async {
        let (client, host) = (&stage.client, "two.origin.test");
        let mut sender = client.http2(host, 4 << 20, 1 << 30).await;
        // Ten responses are started and left unread, on two connections of one session; the origin
        // has one connection for all.
        let mut left = Vec::new();
        for n in 0..10 {
            let request = client.request(
                Method::GET,
                host,
                &format!("/bytes/{}/{n}", 64 * MIB),
                none(),
            );
            left.push(sender.send_request(request).await.unwrap());
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        let mut other = client.http2(host, 4 << 20, 1 << 30).await;
        for sender in [&mut sender, &mut other] {
            let request = client.request(Method::GET, host, &format!("/bytes/{}", 8 * MIB), none());
            let reads = async { read(client, sender.send_request(request).await.unwrap()).await };
            let read = tokio::time::timeout(Duration::from_secs(20), reads).await;
            assert!(read.expect("it is not stopped").whole);
        }
        for response in left {
            assert!(read(client, response).await.whole);
        }
    });
}

#[test]
fn uploads_that_an_origin_does_not_read_do_not_stop_the_others_of_their_connection() {
    let stage = Stage::new(Setup::default());
    run(async {
        let (client, host) = (&stage.client, "two.origin.test");
        let sender = client.http2(host, 4 << 20, 1 << 30).await;
        let left: Vec<_> = (0..6)
            .map(|_| {
                let mut sender = sender.clone();
                let request = client.request(Method::POST, host, "/stall", upload(64 * MIB));
                tokio::spawn(async move { sender.send_request(request).await.map(drop) })
            })
            .collect();
        assert!(stage.origin.seen.reaches(|seen| &seen.requests, 6).await);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let mut other = sender.clone();
        let request = client.request(Method::POST, host, "/sink", upload(8 * MIB));
        let answered =
            tokio::time::timeout(Duration::from_secs(20), other.send_request(request)).await;
        assert_eq!(
            answered.expect("it is not stopped").unwrap().status(),
            StatusCode::OK
        );
        left.iter().for_each(|left| left.abort());
    });
}

#[test]
fn more_streams_than_an_origins_connection_takes_are_answered() {
    let stage = Stage::new(Setup::default());
    run(async {
        let (client, host) = (&stage.client, "two.origin.test");
        // A connection to share, so that those that follow do not each open their own.
        let mut sender = client.http2(host, 1 << 20, 1 << 30).await;
        let request = client.request(Method::GET, host, "/ok", none());
        let opened = sender.send_request(request).await.unwrap();
        assert_eq!(opened.into_body().collect().await.unwrap().to_bytes(), "ok");
        // The origin accepts 256 streams per connection, and a stream that is never answered keeps
        // its place.
        let mut left = Vec::new();
        for _ in 0..3 {
            let sender = client.http2(host, 1 << 20, 1 << 30).await;
            for _ in 0..100 {
                let mut sender = sender.clone();
                let request = client.request(Method::GET, host, "/stall", none());
                left.push(tokio::spawn(async move {
                    sender.send_request(request).await.map(drop)
                }));
            }
        }
        assert!(stage.origin.seen.reaches(|seen| &seen.requests, 301).await);
        println!(
            "{} of 301 requests reached the origin, on {} connections",
            stage.origin.seen.of(|seen| &seen.requests),
            stage.origin.seen.of(|seen| &seen.connections)
        );
        let mut sender = client.http2(host, 1 << 20, 1 << 30).await;
        let request = client.request(Method::GET, host, "/ok", none());
        let answered =
            tokio::time::timeout(Duration::from_secs(10), sender.send_request(request)).await;
        assert_eq!(
            answered.expect("there is room").unwrap().status(),
            StatusCode::OK
        );
        left.iter().for_each(|left| left.abort());
    });
}
