//! Policies are reloaded under load: one set, old or new, judges a request, and what the old one
//! allowed ends.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use http_body_util::BodyExt;

use crate::client::{Client, none, read};
use crate::{Setup, Stage, run};

const HOST: &str = "two.origin.test";
const RELOADS: u64 = 200;

/// Two files that form one edition: one permits requests, the other credentials. Every second
/// edition forbids `/even`, the others `/odd`, and each permits only its own stream.
fn edition(number: u64) -> Vec<(String, String)> {
    let forbidden = if number.is_multiple_of(2) {
        "/odd"
    } else {
        "/even"
    };
    let domain = r#"Gateway::Domain::"origin.test""#;
    let ask = format!(
        "@id(\"ask/{number}\") permit(principal, action in Gateway::Action::\"any\", resource in {domain})
         unless {{ context.path == \"{forbidden}\" || (context.path == \"/drip\" && !context.query.any.contains(\"of={number}\")) }};"
    );
    let lend = format!(
        "@id(\"lend/{number}\") permit(principal, action == Gateway::Action::\"lend\", resource == Gateway::Credential::\"TOKEN\")
         when {{ context.origin in {domain} }};"
    );
    vec![
        ("ask.cedar".to_owned(), ask),
        ("lend.cedar".to_owned(), lend),
    ]
}

fn write(folder: &Path, number: u64) {
    for (name, text) in edition(number) {
        let beside = folder.join(format!("{name}.new"));
        fs::write(&beside, text).unwrap();
        fs::rename(beside, folder.join("policies").join(name)).unwrap();
    }
}

/// The generation that the gateway last reported.
fn said_generation(stage: &Stage) -> u64 {
    let said = stage.gateway.said();
    said.lines()
        .filter_map(|line| line.split("generation ").nth(1))
        .filter_map(|number| number.trim().parse().ok())
        .next_back()
        .unwrap_or(0)
}

async fn load(client: Client, http2: bool, over: Arc<AtomicBool>, judged: Arc<AtomicU64>) {
    for count in 0_u64.. {
        if over.load(Ordering::Relaxed) {
            return;
        }
        let mut sender = client.try_http2(HOST).await.unwrap();
        let mut sender1 = client.try_http1(HOST).await.unwrap();
        for _ in 0..20 {
            let path = if count.is_multiple_of(2) {
                "/odd"
            } else {
                "/even"
            };
            let response = if http2 {
                sender
                    .send_request(client.request(Method::GET, HOST, path, none()))
                    .await
            } else {
                sender1
                    .send_request(client.request1(Method::GET, HOST, path, none()))
                    .await
            };
            // A response whose head has not been read when its policy goes is reset with it.
            let Ok(response) = response else { break };
            assert!([StatusCode::OK, StatusCode::FORBIDDEN].contains(&response.status()));
            if response.into_body().collect().await.is_err() {
                break;
            }
            judged.fetch_add(1, Ordering::Relaxed);
            if !http2 && sender1.ready().await.is_err() {
                break;
            }
        }
    }
}

#[test]
fn two_hundred_reloads_under_load_mix_no_verdict_and_cut_what_the_old_policies_allowed() {
    let stage = Stage::new(Setup {
        policies: edition(0),
        ..Setup::default()
    });
    let mut slowest = Duration::ZERO;
    run(async {
        let (over, judged) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let mut clients = tokio::task::JoinSet::new();
        for n in 0..3 {
            clients.spawn(load(
                stage.client.clone(),
                n % 2 == 0,
                over.clone(),
                judged.clone(),
            ));
        }
        let first = said_generation(&stage);
        for number in 1..=RELOADS {
            let mut sender = stage.client.http2(HOST, 1 << 20, 1 << 20).await;
            let path = format!("/drip?of={}", number - 1);
            let request = stage.client.request(Method::GET, HOST, &path, none());
            let response = sender.send_request(request).await.unwrap();
            assert_eq!(response.status(), StatusCode::OK);
            let client = stage.client.clone();
            let stream =
                tokio::spawn(async move { (read(&client, response).await, Instant::now()) });
            tokio::time::sleep(Duration::from_millis(10)).await;
            write(&stage.gateway.folder, number);
            let began = Instant::now();
            stage.gateway.reload();
            let (read, ended) = tokio::time::timeout(Duration::from_secs(5), stream)
                .await
                .expect("the stream is cut")
                .unwrap();
            assert!(!read.whole, "{read:?}");
            slowest = slowest.max(ended - began);
        }
        over.store(true, Ordering::Relaxed);
        clients.join_all().await;
        println!(
            "{RELOADS} reloads, {} requests, generations {first} to {}; a stream was cut after at most {} ms",
            judged.load(Ordering::Relaxed),
            said_generation(&stage),
            slowest.as_millis()
        );
        assert!(judged.load(Ordering::Relaxed) > RELOADS);
    });
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
    let records = stage.gateway.records();
    let mut editions: HashMap<u64, String> = HashMap::new();
    let (mut allowed, mut denied) = (0, 0);
    for record in records.iter().filter(|record| record["kind"] == "exchange") {
        let Some(generation) = record["generation"].as_u64() else {
            continue;
        };
        for policy in record["policies"].as_array().into_iter().flatten() {
            let number = policy
                .as_str()
                .unwrap()
                .split('/')
                .nth(1)
                .unwrap()
                .to_owned();
            let known = editions.entry(generation).or_insert_with(|| number.clone());
            assert_eq!(
                *known, number,
                "generation {generation} judged by two editions: {record}"
            );
        }
        let path = record["path"].as_str().unwrap_or_default();
        if record["decision"] == "allow" {
            allowed += 1;
            let even = editions[&generation]
                .parse::<u64>()
                .unwrap()
                .is_multiple_of(2);
            assert_ne!(path, if even { "/odd" } else { "/even" }, "{record}");
        } else {
            denied += 1;
        }
    }
    assert!(allowed > 0 && denied > 0, "{allowed} {denied}");
    let revoked = records
        .iter()
        .filter(|record| record["kind"] == "end" && record["reason"] == "revoked")
        .count() as u64;
    assert!(
        revoked >= RELOADS,
        "{revoked} streams are recorded as revoked"
    );
    assert!(stage.gateway.verify().0);
    // Connections of old generations are closed.
    assert!(stage.gateway.descriptors().is_none_or(|files| files < 400));
}
