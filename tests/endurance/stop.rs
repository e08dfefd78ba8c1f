//! The gateway is told to stop under load: what it has accepted is answered, and what lasts too
//! long is cut with a record.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use http_body_util::BodyExt;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::client::{Client, Content, none};
use crate::{Setup, Stage, is_full, run};

const HOST: &str = "two.origin.test";

/// What the clients of one round have seen.
#[derive(Default)]
struct Tally {
    answered: AtomicU64,
    /// Answers that said that the connection closes.
    closing: AtomicU64,
    over: AtomicBool,
}

/// How a client uses its connections.
#[derive(Clone, Copy)]
enum Habit {
    /// HTTP/1.1, one request after the other.
    Keep,
    /// HTTP/1.1, with a pause after each answer.
    Muse,
    /// HTTP/1.1, a connection for each request.
    Once,
    /// HTTP/2, eight requests at a time.
    Streams,
}

/// Sends requests until nobody accepts a connection. It tries again only where no byte was sent;
/// anything else that goes wrong fails the test.
async fn load(client: Client, habit: Habit, tally: Arc<Tally>) {
    loop {
        let Ok(stream) = client.connect().await else {
            if tally.over.load(Ordering::SeqCst) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
            continue;
        };
        let protocol: &[u8] = match habit {
            Habit::Streams => b"h2",
            _ => b"http/1.1",
        };
        let tls = client.over(stream, HOST, protocol).await;
        let tls = TokioIo::new(tls.expect("an accepted connection is served"));
        if let Habit::Streams = habit {
            let (sender, connection) = http2::handshake(TokioExecutor::new(), tls).await.unwrap();
            tokio::spawn(connection);
            let many = (0..8).map(|n| streams(client.clone(), sender.clone(), n, tally.clone()));
            tokio::task::JoinSet::from_iter(many).join_all().await;
        } else {
            let (sender, connection) = http1::handshake(tls).await.unwrap();
            tokio::spawn(connection);
            keep(&client, sender, habit, &tally).await;
        }
    }
}

async fn keep(
    client: &Client,
    mut sender: http1::SendRequest<Content>,
    habit: Habit,
    tally: &Tally,
) {
    for number in 0_u64.. {
        if sender.ready().await.is_err() {
            return;
        }
        let path = format!("/wait/{}", number % 7);
        let asked = sender.send_request(client.request1(Method::GET, HOST, &path, none()));
        let response = match asked.await {
            Ok(response) => response,
            // The connection closed at rest, and the request was not written.
            Err(error) if error.is_canceled() => return,
            Err(error) => panic!("{path} was accepted, and failed: {error:?}"),
        };
        let closes = response.headers().contains_key("connection");
        answered(response, tally).await;
        if closes {
            tally.closing.fetch_add(1, Ordering::SeqCst);
            return;
        }
        match habit {
            Habit::Once => return,
            Habit::Muse => tokio::time::sleep(Duration::from_millis(30)).await,
            _ => {}
        }
    }
}

async fn streams(
    client: Client,
    mut sender: http2::SendRequest<Content>,
    first: u64,
    tally: Arc<Tally>,
) {
    for number in first.. {
        if sender.ready().await.is_err() {
            return;
        }
        let path = format!("/wait/{}", number % 7);
        match sender
            .send_request(client.request(Method::GET, HOST, &path, none()))
            .await
        {
            Ok(response) => answered(response, &tally).await,
            Err(error) if error.is_canceled() || error.is_closed() => return,
            Err(error) if is_not_processed(&error) => return,
            Err(error) => panic!("{path} was accepted, and failed: {error:?}"),
        }
    }
}

/// Whether GOAWAY came before the request, which the gateway then has not processed (RFC 9113
/// §6.8). One that it has processed and not answered stands in the audit log, and is counted there.
fn is_not_processed(error: &hyper::Error) -> bool {
    let source = std::error::Error::source(error);
    source
        .and_then(|source| source.downcast_ref::<h2::Error>())
        .is_some_and(|error| error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR))
}

async fn answered(response: http::Response<hyper::body::Incoming>, tally: &Tally) {
    assert_eq!(response.status(), StatusCode::OK);
    let content = response.into_body().collect().await;
    let content = content.expect("an answer that began comes whole");
    assert_eq!(content.to_bytes(), "ok");
    tally.answered.fetch_add(1, Ordering::SeqCst);
}

#[test]
fn sigterm_under_load_fails_no_request_that_was_accepted() {
    for threads in [1, 3] {
        rounds(threads);
    }
}

fn rounds(threads: usize) {
    let mut stage = Stage::new(Setup {
        threads,
        ..Setup::default()
    });
    let rounds = if is_full() { 40 } else { 6 };
    let (mut answered, mut closing) = (0, 0);
    for round in 0..rounds {
        if round > 0 {
            stage.gateway.restart();
            stage.client = Client::of(&stage.gateway);
        }
        let tally = Arc::new(Tally::default());
        run(async {
            let mut clients = tokio::task::JoinSet::new();
            let habits = [Habit::Keep, Habit::Muse, Habit::Once, Habit::Streams];
            for habit in [habits, habits].concat() {
                for client in [
                    stage.client.clone(),
                    stage.client.clone().proxied(&stage.gateway),
                ] {
                    clients.spawn(load(client, habit, tally.clone()));
                }
            }
            let mut random = [0];
            getrandom::fill(&mut random).unwrap();
            tokio::time::sleep(Duration::from_millis(200 + u64::from(random[0]))).await;
            stage.gateway.terminate();
            let began = Instant::now();
            let code = stage.gateway.ended().await;
            assert_eq!(code, Some(0), "{}", stage.gateway.said());
            assert!(
                began.elapsed() < Duration::from_secs(15),
                "{:?}",
                began.elapsed()
            );
            tally.over.store(true, Ordering::SeqCst);
            while let Some(client) = clients.join_next().await {
                client.unwrap();
            }
        });
        let (holds, said) = stage.gateway.verify();
        assert!(holds, "round {round}: {said}");
        answered += tally.answered.load(Ordering::SeqCst);
        closing += tally.closing.load(Ordering::SeqCst);
    }
    let records = stage.gateway.records();
    let kinds = |kind: &str| {
        records
            .iter()
            .filter(|record| record["kind"] == kind)
            .count()
    };
    let exchanges = kinds("exchange") as u64;
    assert_eq!((kinds("stop"), kinds("end")), (rounds, 0));
    assert_eq!(exchanges, answered);
    assert!(closing > 0);
    println!(
        "{rounds} stops with {threads} threads: {answered} answers, none failed; {closing} said that the connection closes"
    );
}

/// Opens a stream that never ends, and waits for its first bytes.
async fn endless(client: &Client, protocol: &[u8]) -> hyper::body::Incoming {
    let path = "/drip";
    let response = if protocol == b"h2" {
        let mut sender = client.try_http2(HOST).await.unwrap();
        let request = client.request(Method::GET, HOST, path, none());
        sender.send_request(request).await.unwrap()
    } else {
        let mut sender = client.try_http1(HOST).await.unwrap();
        let request = client.request1(Method::GET, HOST, path, none());
        sender.send_request(request).await.unwrap()
    };
    let mut content = response.into_body();
    content.frame().await.unwrap().unwrap();
    content
}

/// Opens a WebSocket on which nobody says anything.
async fn web_socket(client: &Client) -> impl tokio::io::AsyncRead + Unpin + use<> {
    let host = "raw.origin.test";
    let mut tls = client.tls(host, b"http/1.1").await.unwrap();
    let lines = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let head = client.head("GET", host, "/socket", lines);
    tls.write_all(head.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    tls.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 101");
    tls
}

#[test]
fn what_outlasts_the_drain_is_cut_with_a_record_and_a_second_signal_does_not_wait() {
    for (limits, signals) in [("drain_timeout = \"2s\"", 1), ("drain_timeout = \"1h\"", 2)] {
        let mut stage = Stage::new(Setup {
            limits,
            ..Setup::default()
        });
        run(async {
            let client = &stage.client;
            let mut contents = [
                endless(client, b"h2").await,
                endless(client, b"http/1.1").await,
            ];
            let mut socket = web_socket(client).await;
            // A head that is never finished, and a connection that sends nothing.
            let mut slow = client.tls(HOST, b"http/1.1").await.unwrap();
            slow.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
            let _silent = client.connect().await.unwrap();
            let began = Instant::now();
            stage.gateway.terminate();
            tokio::time::sleep(Duration::from_millis(1200)).await;
            assert!(client.connect().await.is_err());
            for content in &mut contents {
                content
                    .frame()
                    .await
                    .unwrap()
                    .expect("the stream still runs");
            }
            if signals == 2 {
                stage.gateway.terminate();
            }
            for content in &mut contents {
                while let Some(Ok(_)) = content.frame().await {}
            }
            let _ = socket.read_to_end(&mut Vec::new()).await;
            let _ = slow.read_to_end(&mut Vec::new()).await;
            assert_eq!(stage.gateway.ended().await, Some(0));
            let least = Duration::from_secs(if signals == 1 { 2 } else { 1 });
            assert!(began.elapsed() >= least && began.elapsed() < least * 4);
        });
        let records = stage.gateway.records();
        let cut: Vec<_> = records
            .iter()
            .filter(|record| record["kind"] == "end" && record["reason"] == "gateway_stopping")
            .collect();
        assert_eq!(cut.len(), 3, "{records:#?}");
        assert_eq!(records.last().unwrap()["kind"], "stop");
        assert!(stage.gateway.verify().0);
        let said = stage.gateway.said();
        assert!(said.contains("gateway: draining: 3 exchanges"), "{said}");
        assert!(said.contains("gateway: cut 3 exchanges"), "{said}");
    }
}
