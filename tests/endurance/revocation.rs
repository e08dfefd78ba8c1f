//! Revocation on several threads: HTTP/2 on both sides, uploads among requests.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use http::{Method, StatusCode};
use http_body_util::BodyExt as _;

use crate::client::{Client, none};
use crate::origin::upload;
use crate::{Setup, Stage, run};

const HOST: &str = "two.origin.test";

/// What the clients were told.
#[derive(Default)]
struct Told {
    lent: AtomicU64,
    revoked: AtomicU64,
    over: AtomicBool,
}

#[test]
fn on_three_threads_and_over_http2_nothing_is_lent_from_the_answer_of_a_revocation_on() {
    let stage = Stage::new(Setup {
        threads: 3,
        ..Setup::default()
    });
    let told = Arc::<Told>::default();
    run(async {
        let mut clients = tokio::task::JoinSet::new();
        for nth in 0..12 {
            let (client, told) = (stage.client.clone(), told.clone());
            clients.spawn(ask(client, nth % 3 == 0, told));
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        let call = {
            let socket = stage.gateway.control_socket();
            move || revoke(&socket)
        };
        let answer = tokio::task::spawn_blocking(call).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(!answer.contains("\"connections_severed\":0"), "{answer}");
        // What had reached the origin's kernel is read by then.
        tokio::time::sleep(Duration::from_millis(20)).await;
        let seen = || {
            let seen = &stage.origin.seen;
            (
                seen.of(|seen| &seen.requests),
                seen.of(|seen| &seen.received),
            )
        };
        let (before, lent) = (seen(), told.lent.load(Ordering::SeqCst));
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(seen(), before, "requests and bytes that the origin has");
        assert_eq!(told.lent.load(Ordering::SeqCst), lent);
        told.over.store(true, Ordering::SeqCst);
        clients.join_all().await;
    });
    let count = |count: &AtomicU64| count.load(Ordering::SeqCst);
    println!(
        "{} lent, then {} refused",
        count(&told.lent),
        count(&told.revoked)
    );
    assert!(count(&told.lent) > 20 && count(&told.revoked) > 20);
    assert_eq!(stage.origin.seen.of(|seen| &seen.without_secret), 0);
    let shown = stage.gateway.command(&["status"]);
    assert!(shown.contains("revoked   TOKEN"), "{shown}");
    let shown = stage.gateway.command(&["session", "list"]);
    assert!(shown.contains("TOKEN (revoked)"), "{shown}");
}

/// Asks on one connection after the other, each with requests and, if wanted, uploads.
async fn ask(client: Client, uploads: bool, told: Arc<Told>) {
    while !told.over.load(Ordering::SeqCst) {
        let Ok(mut sender) = client.try_http2(HOST).await else {
            continue;
        };
        for _ in 0..10 {
            let request = match uploads {
                true => client.request(Method::POST, HOST, "/upload", upload(4 << 20)),
                false => client.request(Method::GET, HOST, "/ok", none()),
            };
            // What is under way at the revocation is cut.
            let Ok(response) = sender.send_request(request).await else {
                break;
            };
            let status = response.status();
            if response.into_body().collect().await.is_err() {
                break;
            }
            match status {
                StatusCode::FORBIDDEN => told.revoked.fetch_add(1, Ordering::SeqCst),
                _ => told.lent.fetch_add(1, Ordering::SeqCst),
            };
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

fn revoke(socket: &std::path::Path) -> String {
    let mut control = UnixStream::connect(socket).unwrap();
    let call = "POST /v1/credentials/TOKEN/revoke HTTP/1.1\r\nHost: gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    control.write_all(call.as_bytes()).unwrap();
    let mut answer = String::new();
    control.read_to_string(&mut answer).unwrap();
    answer
}
