//! Many connections and many names.

use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::client::none;
use crate::{Setup, Stage, is_full, run};

const HOST: &str = "two.origin.test";
/// An origin of HTTP/1.1.
const ONE: &str = "one.origin.test";

#[test]
fn five_thousand_idle_connections_cost_little_and_are_given_back() {
    const CONNECTIONS: usize = 5_000;
    let stage = Stage::new(Setup {
        limits: "connections_per_session = 6000\nidle_timeout = \"10m\"",
        ..Setup::default()
    });
    run(async {
        let (client, gateway) = (&stage.client, &stage.gateway);
        ask_on(client, &mut client.tls(HOST, b"http/1.1").await.unwrap()).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        let (resident, files, sockets) = (
            gateway.resident_kib(),
            gateway.descriptors(),
            gateway.client_sockets(),
        );
        let began = Instant::now();
        let mut idle = Vec::new();
        for _ in 0..CONNECTIONS / 20 {
            let mut few = tokio::task::JoinSet::new();
            for _ in 0..20 {
                let client = client.clone();
                few.spawn(async move {
                    let mut stream = client.tls(HOST, b"http/1.1").await.unwrap();
                    ask_on(&client, &mut stream).await;
                    stream
                });
            }
            idle.extend(few.join_all().await);
        }
        let opened = began.elapsed();
        assert!(gateway.client_sockets() >= CONNECTIONS);
        let cost = (gateway.resident_kib() - resident) as f64 / CONNECTIONS as f64;
        let began = Instant::now();
        ask_on(client, &mut client.tls(HOST, b"http/1.1").await.unwrap()).await;
        let answered = began.elapsed();
        println!(
            "{CONNECTIONS} idle connections: {cost:.1} KiB each, opened in {:.1} s; one more answered in {} ms",
            opened.as_secs_f64(),
            answered.as_millis()
        );
        assert!(answered < Duration::from_secs(1), "{answered:?}");
        assert!(cost < 64.0, "{cost} KiB");
        drop(idle);
        let began = Instant::now();
        while gateway.client_sockets() > sockets || gateway.descriptors() > files {
            assert!(
                began.elapsed() < Duration::from_secs(20),
                "{}",
                gateway.client_sockets()
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
}

/// What a request of many clients at once costs, beside one of a few, and how many connections to
/// the origin they need.
#[test]
fn a_thousand_clients_at_once_use_the_connections_to_the_origin_again() {
    let stage = Stage::new(Setup {
        limits: "idle_timeout = \"10m\"",
        ..Setup::default()
    });
    run(async {
        let (client, gateway, seen) = (&stage.client, &stage.gateway, &stage.origin.seen);
        for (clients, each) in [(16, 200), (1_000, 10)] {
            let mut open = Vec::new();
            for _ in 0..clients {
                let mut stream = client.tls(ONE, b"http/1.1").await.unwrap();
                ask_of(client, &mut stream, ONE).await;
                open.push(stream);
            }
            let made = seen.of(|seen| &seen.connections);
            let worked = gateway.worked();
            let mut asking = tokio::task::JoinSet::new();
            for mut stream in open {
                let client = client.clone();
                asking.spawn(async move {
                    for _ in 0..each {
                        ask_of(&client, &mut stream, ONE).await;
                    }
                });
            }
            asking.join_all().await;
            let worked = (gateway.worked() - worked).as_micros() / (clients * each);
            let made = seen.of(|seen| &seen.connections) - made;
            println!("{clients} clients: {worked} us of the gateway a request, {made} connections");
            assert!(u128::from(made) <= clients, "{made}");
        }
    });
}

/// Sends a request and reads a response of two bytes on a connection that then stays open.
async fn ask_on<IO: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin>(
    client: &crate::client::Client,
    stream: &mut IO,
) {
    ask_of(client, stream, HOST).await;
}

async fn ask_of<IO: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin>(
    client: &crate::client::Client,
    stream: &mut IO,
    host: &str,
) {
    let head = client.head("GET", host, "/ok", "");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\nok") {
        assert_ne!(stream.read_buf(&mut answer).await.unwrap(), 0);
    }
    assert!(answer.starts_with(b"HTTP/1.1 200"));
}

#[test]
fn a_flood_of_server_names_fills_no_memory_and_stops_nobody() {
    let stage = Stage::new(Setup::default());
    let time = Duration::from_secs(if is_full() { 20 } else { 10 });
    run(async {
        let (client, gateway) = (&stage.client, &stage.gateway);
        let mut before = 0;
        let (began, mut count, mut refused) = (Instant::now(), 0_u32, 0_u32);
        while began.elapsed() < time {
            let mut few = tokio::task::JoinSet::new();
            for n in count..count + 20 {
                let client = client.clone();
                few.spawn(async move {
                    client
                        .tls(&format!("n{n}.origin.test"), b"h2")
                        .await
                        .is_err()
                });
            }
            refused += few.join_all().await.into_iter().map(u32::from).sum::<u32>();
            count += 20;
            // A name in use is served all along, however many others are refused.
            let served = client.tls(HOST, b"h2").await;
            assert!(served.is_ok(), "behind {count} names: {:?}", served.err());
            // The cached leaves exist by now; from here on nothing may grow.
            if count == 2_000 {
                before = gateway.resident_kib();
            }
        }
        assert!(count > 2_000, "{count} handshakes are too few to tell");
        let after = gateway.resident_kib();
        let each = after.saturating_sub(before) as f64 * 1024.0 / f64::from(count - 2_000);
        println!(
            "{count} server names in {} s, {refused} refused; memory {before} to {after} KiB behind the first 2,000: \
             {each:.0} bytes a name, {:.0} MiB for a million",
            time.as_secs(),
            each * 1e6 / 1048576.0
        );
        assert!(
            after.saturating_sub(before) < 8 << 10,
            "{before} to {after} KiB"
        );
        assert!(after < 96 << 10, "{after} KiB");
    });
}

#[test]
fn a_session_at_its_limit_of_connections_is_refused_and_comes_back() {
    let stage = Stage::new(Setup {
        limits: "connections_per_session = 20",
        ..Setup::default()
    });
    run(async {
        let client = &stage.client;
        let mut held = Vec::new();
        for _ in 0..20 {
            held.push(client.http2(HOST, 1 << 20, 1 << 20).await);
        }
        assert!(client.tls(HOST, b"h2").await.is_err());
        // Open connections go on.
        let request = client.request(Method::GET, HOST, "/ok", none());
        let response = held[7].send_request(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        response.into_body().collect().await.unwrap();
        held.clear();
        let began = Instant::now();
        while client.tls(HOST, b"h2").await.is_err() {
            assert!(began.elapsed() < Duration::from_secs(2));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
}

/// Frames of nine bytes and slightly more, which ask for nothing, on many connections at once;
/// another client meanwhile.
#[test]
fn floods_of_small_frames_leave_another_client_its_turn() {
    const CONNECTIONS: usize = 200;
    let stage = Stage::new(Setup::default());
    let quiet = run(paces(&stage, Duration::from_secs(2)));
    println!("quiet: {quiet}");
    for (name, frame) in [
        ("unknown", &[0, 0, 0, 0xfe, 0, 0, 0, 0, 0][..]),
        ("PRIORITY", &[0, 0, 5, 2, 0, 0, 0, 0, 3, 0, 0, 0, 1, 7]),
        ("WINDOW_UPDATE", &[0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
        ("PING", &[0, 0, 8, 6, 1, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]),
    ] {
        let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let (told, calmed) = (
            stop.clone(),
            std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0)),
        );
        let (client, ended, frames) = (stage.client.clone(), calmed.clone(), frame.repeat(1000));
        let (ready, is_ready) = std::sync::mpsc::channel();
        let flooding = std::thread::spawn(move || {
            run(async move {
                let mut floods = tokio::task::JoinSet::new();
                let mut open = Vec::new();
                for _ in 0..CONNECTIONS {
                    open.push(client.tls(HOST, b"h2").await.unwrap());
                }
                ready.send(()).unwrap();
                for mut stream in open {
                    let (told, ended, frames) = (told.clone(), ended.clone(), frames.clone());
                    floods.spawn(async move {
                        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
                        if stream.write_all(preface).await.is_err() {
                            return;
                        }
                        while !told.load(std::sync::atomic::Ordering::Relaxed) {
                            if stream.write_all(&frames).await.is_err()
                                || stream.flush().await.is_err()
                            {
                                ended.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                                return;
                            }
                            tokio::task::yield_now().await;
                        }
                    });
                }
                floods.join_all().await;
            });
        });
        is_ready.recv().unwrap();
        let amid = run(paces(&stage, Duration::from_secs(3)));
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        flooding.join().unwrap();
        let calmed = calmed.load(std::sync::atomic::Ordering::Relaxed);
        println!("{name}: {amid}; {calmed} of {CONNECTIONS} connections ended");
        assert!(
            calmed > CONNECTIONS / 2,
            "{name}: {calmed} connections ended"
        );
        assert!(amid.p99 < Duration::from_millis(500), "{name}: {amid}");
        assert!(amid.worst < Duration::from_secs(1), "{name}: {amid}");
        // The kernel's remaining data of these connections is gone before the next flood.
        std::thread::sleep(Duration::from_millis(500));
    }
    let floods = stage.gateway.records().into_iter();
    let told = floods
        .filter(|record| record["reason"] == "http2_flood")
        .count();
    assert!(told > CONNECTIONS, "{told} records tell of it");
}

/// How long the gateway worked while requests of one client waited: how long they would take on a
/// machine without other work.
struct Paces {
    count: usize,
    median: Duration,
    p99: Duration,
    worst: Duration,
    /// By the clock, whatever else the machine does.
    slowest: Duration,
}

impl std::fmt::Display for Paces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            count,
            median,
            p99,
            worst,
            slowest,
        } = self;
        write!(
            f,
            "{count} requests, median {median:?}, p99 {p99:?}, worst {worst:?} of the gateway's work; {slowest:.1?} by the clock"
        )
    }
}

/// Sends one request after another on one connection.
async fn paces(stage: &Stage, time: Duration) -> Paces {
    let (client, gateway) = (&stage.client, &stage.gateway);
    let mut stream = client.tls(HOST, b"http/1.1").await.unwrap();
    let (began, mut took, mut slowest) = (Instant::now(), Vec::new(), Duration::ZERO);
    while began.elapsed() < time {
        let (asked, worked) = (Instant::now(), gateway.worked());
        ask_on(client, &mut stream).await;
        took.push(gateway.worked() - worked);
        slowest = slowest.max(asked.elapsed());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    took.sort();
    Paces {
        count: took.len(),
        median: took[took.len() / 2],
        p99: took[took.len() * 99 / 100],
        worst: took[took.len() - 1],
        slowest,
    }
}
