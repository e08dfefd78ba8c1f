//! The process is killed in the middle of its work, again and again: what was answered is in the
//! log, and the chain goes on.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Method, StatusCode};

use crate::client::{Client, none};
use crate::{Setup, Stage, is_full, run};

const CLIENTS: usize = 6;

#[test]
fn what_was_answered_before_a_kill_is_in_the_log_when_records_are_batched() {
    rounds("batch");
}

#[test]
fn what_was_answered_before_a_kill_is_in_the_log_when_each_is_made_durable() {
    rounds("always");
}

fn rounds(sync: &'static str) {
    let mut stage = Stage::new(Setup {
        sync,
        ..Setup::default()
    });
    let rounds = if is_full() { 20 } else { 10 };
    let answered: Arc<Mutex<Vec<String>>> = Arc::default();
    for round in 0..rounds {
        if round > 0 {
            stage.gateway.restart();
            stage.client = Client::of(&stage.gateway);
        }
        let before = answered.lock().unwrap().len();
        run(async {
            let mut clients = tokio::task::JoinSet::new();
            for n in 0..CLIENTS {
                let (client, answered) = (stage.client.clone(), answered.clone());
                clients.spawn(async move {
                    ask(&client, &format!("/k/{round}/{n}"), n % 2 == 0, &answered).await
                });
            }
            while answered.lock().unwrap().len() < before + CLIENTS {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let mut random = [0];
            getrandom::fill(&mut random).unwrap();
            tokio::time::sleep(Duration::from_millis(u64::from(random[0]))).await;
            stage.gateway.kill();
            // Each client finds its connection gone, and stops; it has counted what it received
            // until then.
            clients.join_all().await;
        });
        let (holds, said) = stage.gateway.verify();
        assert!(holds, "round {round}: {said}");
        let logged: HashSet<String> = stage
            .gateway
            .records()
            .iter()
            .filter(|record| record["kind"] == "exchange")
            .filter_map(|record| record["path"].as_str().map(str::to_owned))
            .collect();
        for path in answered.lock().unwrap().iter() {
            assert!(
                logged.contains(path),
                "round {round}: {path} was answered and is not in the log"
            );
        }
    }
    let records = stage.gateway.records();
    let chains: HashSet<&str> = records
        .iter()
        .filter_map(|record| record["chain"].as_str())
        .collect();
    let resumed = records
        .iter()
        .filter(|record| record["kind"] == "resume")
        .count();
    assert_eq!((chains.len(), resumed), (1, rounds - 1));
    let answered = answered.lock().unwrap().len();
    println!(
        "{rounds} kills, sync = {sync}: {answered} answers, {} records, the chain holds",
        records.len()
    );
    assert_eq!(stage.origin.seen.of(|seen| &seen.without_secret), 0);
}

/// Sends requests until the gateway is gone, and notes each path that was answered.
async fn ask(client: &Client, prefix: &str, http2: bool, answered: &Mutex<Vec<String>>) {
    let host = "two.origin.test";
    for count in 0.. {
        let path = format!("{prefix}/{count}");
        let asks = async {
            let asked = if http2 {
                // A new connection after every few, so that handshakes are in progress, too.
                let mut sender = client.try_http2(host).await?;
                sender
                    .send_request(client.request(Method::GET, host, &path, none()))
                    .await
            } else {
                let mut sender = client.try_http1(host).await?;
                sender
                    .send_request(client.request1(Method::GET, host, &path, none()))
                    .await
            };
            asked.map_err(std::io::Error::other)
        };
        match asks.await {
            Ok(response) => {
                assert_eq!(response.status(), StatusCode::OK);
                answered.lock().unwrap().push(path);
            }
            Err(_) => return,
        }
    }
}
