//! Everything that a reload can change is changed under load: nothing fails, nothing that is still
//! allowed is cut, and the next request is judged by what was just put in force.

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::addresses::free;
use crate::client::{Client, none};
use crate::{Setup, Stage, is_full, run};

const ONE: &str = "one.origin.test";
const TWO: &str = "two.origin.test";
/// Requests a second, half of them over HTTP/1.1 and half over HTTP/2.
const RATE: u64 = 500;
/// Clients of each protocol, each with a connection of its own.
const CLIENTS: u64 = 5;
/// From the word that a change is in force to the answer to a request that it judges.
const JUDGED_WITHIN: Duration = Duration::from_millis(match cfg!(debug_assertions) {
    true => 1000,
    false => 50,
});
/// How many of the requests must be answered, in percent. A debug build is slower.
const ANSWERED: u64 = if cfg!(debug_assertions) { 20 } else { 80 };

/// What clients saw.
#[derive(Default)]
struct Tally {
    answered: AtomicU64,
    events: AtomicU64,
    messages: AtomicU64,
    over: AtomicBool,
}

impl Tally {
    fn of(&self, count: impl Fn(&Self) -> &AtomicU64) -> u64 {
        count(self).load(Ordering::Relaxed)
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

/// One client's share of the requests, each of which must be answered with 200.
async fn requests(client: Client, http2: bool, tally: Arc<Tally>) {
    let pause = Duration::from_micros(1_000_000 * 2 * CLIENTS / RATE);
    let mut pace = tokio::time::interval(pause);
    pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Burst);
    let mut http = client.http1(ONE).await;
    let mut h2 = client.try_http2(TWO).await.unwrap();
    while !tally.is_over() {
        pace.tick().await;
        let response = if http2 {
            let request = client.request(Method::GET, TWO, "/ok", none());
            h2.send_request(request).await
        } else {
            http.ready().await.unwrap();
            let request = client.request1(Method::GET, ONE, "/ok", none());
            http.send_request(request).await
        };
        let response = response.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        response.into_body().collect().await.unwrap();
        tally.answered.fetch_add(1, Ordering::Relaxed);
    }
}

/// A stream without an end, which must not be cut.
async fn events(client: Client, http2: bool, tally: Arc<Tally>) {
    let response = if http2 {
        let request = client.request(Method::GET, TWO, "/drip", none());
        let mut sender = client.try_http2(TWO).await.unwrap();
        sender.send_request(request).await
    } else {
        let request = client.request1(Method::GET, ONE, "/drip", none());
        client.http1(ONE).await.send_request(request).await
    };
    let mut content = response.unwrap().into_body();
    while !tally.is_over() {
        content.frame().await.unwrap().unwrap();
        tally.events.fetch_add(1, Ordering::Relaxed);
    }
}

/// A WebSocket on which each message comes back, and which must not be cut.
async fn messages(client: Client, tally: Arc<Tally>) {
    let host = "raw.origin.test";
    let mut tls = client.tls(host, b"http/1.1").await.unwrap();
    let lines = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let head = client.head("GET", host, "/talk", lines);
    tls.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(tls.read_u8().await.unwrap());
    }
    assert!(answer.starts_with(b"HTTP/1.1 101"));
    // RFC 6455 §5.2: a text of one byte, masked with zeros. It comes back without a mask.
    while !tally.is_over() {
        tls.write_all(b"\x81\x81\0\0\0\0x").await.unwrap();
        let mut message = [0; 3];
        tls.read_exact(&mut message).await.unwrap();
        assert_eq!(&message, b"\x81\x01x");
        tally.messages.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What is changed, one after the other.
const KINDS: [&str; 6] = [
    "policies",
    "presets",
    "credentials",
    "origins",
    "listeners",
    "limits",
];

/// The gateway's files, and what is changed in them.
struct Changes<'a> {
    stage: &'a Stage,
    config: String,
    /// The listener that comes and goes.
    address: std::net::SocketAddr,
    reloads: usize,
}

impl Changes<'_> {
    /// Two files that form one edition, of which every second forbids a path.
    fn edition(number: u64) -> [(String, String); 2] {
        let domain = r#"Gateway::Domain::"origin.test""#;
        let ask = format!(
            "@id(\"ask/{number}\") permit(principal, action in Gateway::Action::\"any\", resource in {domain})
             unless {{ context.path == \"/edition\" && {} }};",
            number.is_multiple_of(2)
        );
        let lend = format!(
            "@id(\"lend/{number}\") permit(principal, action == Gateway::Action::\"lend\", resource == Gateway::Credential::\"TOKEN\")
             when {{ context.origin in {domain} }};"
        );
        [
            ("ask.cedar".to_owned(), ask),
            ("lend.cedar".to_owned(), lend),
        ]
    }

    fn write(&self, name: &str, text: &str) {
        let folder = &self.stage.gateway.folder;
        fs::write(folder.join("next"), text).unwrap();
        fs::rename(folder.join("next"), folder.join(name)).unwrap();
    }

    /// The configuration in which every second round has something more.
    fn text(&self, kind: &str, round: u64) -> String {
        if round.is_multiple_of(2) {
            return self.config.clone();
        }
        let (config, address) = (&self.config, self.address);
        match kind {
            "presets" => format!(
                "{config}[[credential]]\nname = \"AIRTABLE_API_KEY\"\nfrom = \"file:secret\"\npreset = \"airtable\"\n"
            ),
            "credentials" => format!(
                "{config}[[credential]]\nname = \"MORE\"\nfrom = \"file:more\"\norigins = [\"https://one.origin.test\"]\nplaces = [\"header:x-more\"]\n"
            ),
            "origins" => config.replacen("http = \"1.1\"", "http = \"1.1\"\nunderscores = true", 1),
            "listeners" => format!(
                "{config}[[listener]]\nkind = \"tls\"\naddress = \"{address}\"\nsession = \"agent-2\"\n"
            ),
            "limits" => config.replacen(
                "[limits]\n",
                "[limits]\nmax_buffered_request = \"2KiB\"\nstreams_per_connection = 64\n",
                1,
            ),
            _ => unreachable!("{kind}"),
        }
    }

    /// Makes a change, and waits for the word that it is in force.
    async fn make(&mut self, kind: &str, round: u64) -> Instant {
        match kind {
            "policies" => Self::edition(round)
                .iter()
                .for_each(|(name, text)| self.write(&format!("policies/{name}"), text)),
            _ => self.write("gateway.toml", &self.text(kind, round)),
        }
        self.stage.gateway.reload();
        let began = Instant::now();
        loop {
            let said = self.stage.gateway.said();
            let applied = said.matches("configuration reloaded").count();
            if applied > self.reloads {
                self.reloads = applied;
                return Instant::now();
            }
            assert!(began.elapsed() < Duration::from_secs(20), "{kind}: {said}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Sees that a change is in force, by the first request after the word of it.
    async fn see(&self, kind: &str, round: u64) {
        let more = !round.is_multiple_of(2);
        let variables =
            || fs::read_to_string(self.stage.gateway.folder.join("phantoms-agent-1.env")).unwrap();
        match kind {
            "policies" => {
                let expected = if more {
                    StatusCode::OK
                } else {
                    StatusCode::FORBIDDEN
                };
                assert_eq!(self.ask("/edition", &[]).await, expected);
            }
            "presets" => assert_eq!(variables().contains("AIRTABLE_API_KEY="), more),
            "credentials" => {
                assert_eq!(variables().contains("MORE="), more);
                // A value of the client's own is foreign where a credential belongs.
                let status = self.ask("/ok", &[("x-more", "mine")]).await;
                assert_eq!(status == StatusCode::OK, !more, "{status}");
            }
            "origins" => {
                let status = self.ask("/ok", &[("x_odd", "1")]).await;
                assert_eq!(status == StatusCode::OK, more, "{status}");
            }
            "listeners" if more => {
                let at = self.of_its_own();
                assert_eq!(ask(&at, "/ok", &[]).await, StatusCode::OK);
            }
            _ => assert_eq!(self.ask("/ok", &[]).await, StatusCode::OK),
        }
    }

    /// The client of the listener that comes and goes, which has a session of its own.
    fn of_its_own(&self) -> Client {
        Client::of_session(&self.stage.gateway, "agent-2", self.address)
    }

    /// Waits until a removed listener is closed: it first serves what was on its way.
    async fn is_closed(&self) {
        let began = Instant::now();
        let at = self.stage.client.clone().at(self.address);
        while at.connect().await.is_ok() {
            assert!(
                began.elapsed() < Duration::from_secs(10),
                "it still listens"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn ask(&self, path: &str, fields: &[(&'static str, &str)]) -> StatusCode {
        ask(&self.stage.client, path, fields).await
    }
}

/// Opens a connection for each request until nobody listens. Each one that is accepted is served,
/// also while its listener closes.
async fn until_refused(client: Client) {
    loop {
        let mut http = match client.try_http1(ONE).await {
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => return,
            opened => opened.unwrap(),
        };
        let request = client.request1(Method::GET, ONE, "/ok", none());
        let response = http.send_request(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
    }
}

async fn ask(client: &Client, path: &str, fields: &[(&'static str, &str)]) -> StatusCode {
    let mut request = client.request1(Method::GET, ONE, path, none());
    for (name, value) in fields {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    let response = client.http1(ONE).await.send_request(request).await.unwrap();
    response.status()
}

/// Waits until the stream and the WebSocket went on since now.
async fn still_moves(tally: &Tally, kind: &str) {
    let before = (tally.of(|t| &t.events), tally.of(|t| &t.messages));
    let began = Instant::now();
    while tally.of(|t| &t.events) == before.0 || tally.of(|t| &t.messages) == before.1 {
        let waited = began.elapsed();
        assert!(
            waited < Duration::from_secs(10),
            "{kind}: a stream stands still"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
}

#[test]
fn every_kind_of_change_under_load_fails_nothing_and_judges_the_next_request() {
    let rounds: u64 = if is_full() { 1000 } else { 36 };
    let stage = Stage::new(Setup {
        policies: Changes::edition(0).into(),
        threads: 2,
        ..Setup::default()
    });
    let folder = &stage.gateway.folder;
    crate::program::private(&folder.join("more"), "another-secret-of-the-test");
    let tally = Arc::new(Tally::default());
    let mut took: Vec<Duration> = Vec::new();
    let mut lasted = Duration::ZERO;
    run(async {
        let mut load = tokio::task::JoinSet::new();
        for n in 0..2 * CLIENTS {
            load.spawn(requests(stage.client.clone(), n % 2 == 0, tally.clone()));
        }
        for http2 in [false, true] {
            load.spawn(events(stage.client.clone(), http2, tally.clone()));
        }
        load.spawn(messages(stage.client.clone(), tally.clone()));
        let mut changes = Changes {
            config: fs::read_to_string(folder.join("gateway.toml"))
                .unwrap()
                .replace("ca.pem", "ca-{session}.pem")
                .replace("phantoms.env", "phantoms-{session}.env"),
            stage: &stage,
            address: free(),
            reloads: 0,
        };
        // Each session has files of its own from here on.
        changes.make("first", 0).await;
        let began = Instant::now();
        for round in 1..=rounds {
            // Each kind comes with something more, and then without.
            let kind = KINDS[(round as usize - 1) / 2 % KINDS.len()];
            let closes = kind == "listeners" && round.is_multiple_of(2);
            let leaving = closes.then(|| tokio::spawn(until_refused(changes.of_its_own())));
            let applied = changes.make(kind, round).await;
            changes.see(kind, round).await;
            took.push(applied.elapsed());
            if let Some(leaving) = leaving {
                leaving.await.unwrap();
                changes.is_closed().await;
            }
            still_moves(&tally, kind).await;
        }
        lasted = began.elapsed();
        tally.over.store(true, Ordering::Relaxed);
        load.join_all().await;
    });
    took.sort_unstable();
    let at = |part: usize| took[(took.len() - 1) * part / 100];
    let answered = tally.of(|t| &t.answered);
    println!(
        "{rounds} reloads in {lasted:?}: {answered} requests ({} a second), {} events, {} messages, none failed or cut; \
         the next request was judged anew and answered within {:?} (p50), {:?} (p99), {:?} (most)",
        answered / lasted.as_secs().max(1),
        tally.of(|t| &t.events),
        tally.of(|t| &t.messages),
        at(50),
        at(99),
        at(100),
    );
    assert!(at(90) < JUDGED_WITHIN, "{:?}", at(90));
    let due = RATE * lasted.as_secs() * ANSWERED / 100;
    assert!(answered >= due, "{answered} of {due}");
    let judged = one_edition_for_each_generation(&stage);
    println!("{judged} verdicts, each of one edition of the policies");
    assert!(judged > answered);
    assert!(stage.gateway.verify().0);
}

/// Checks that no generation was judged by policies of two editions, and that nothing was cut.
fn one_edition_for_each_generation(stage: &Stage) -> u64 {
    let (mut editions, mut judged) = (HashMap::<u64, String>::new(), 0);
    for record in stage.gateway.records() {
        if record["kind"] == "end" {
            let reason = record["reason"].as_str();
            assert!(
                !matches!(reason, Some("revoked" | "credential_removed")),
                "{record}"
            );
        }
        let Some(generation) = record["generation"].as_u64() else {
            continue;
        };
        judged += 1;
        for policy in record["policies"].as_array().into_iter().flatten() {
            let number = policy
                .as_str()
                .unwrap()
                .split('/')
                .nth(1)
                .unwrap()
                .to_owned();
            let known = editions.entry(generation).or_insert_with(|| number.clone());
            assert_eq!(*known, number, "generation {generation}: {record}");
        }
    }
    judged
}
