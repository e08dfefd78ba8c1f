//! A gateway outlives its lifetime and its restarts: clients go on with what they have, and what
//! was answered is kept.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gateway::names::SessionId;
use gateway::state::{
    SealingKey, SessionDecision, SessionRecord, SqliteState, StateFile, StateStore,
};
use http::{Method, StatusCode};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::client::{Client, none, read};
use crate::origin::SECRET;
use crate::{Setup, Stage, is_full, run};

const HOST: &str = "two.origin.test";
const RESTARTS: u32 = 5;

/// What the clients saw, apart from answers.
#[derive(Default)]
struct Counts {
    answered: AtomicU64,
    /// Attempts without an answer, which were repeated.
    repeated: AtomicU64,
    /// Whether the gateway is being restarted.
    away: AtomicBool,
    over: AtomicBool,
}

/// Asks again and again. A request without an answer is repeated, and each gets one in the end.
async fn ask(client: Client, http2: bool, counts: Arc<Counts>) {
    while !counts.over.load(Ordering::Relaxed) {
        let began = Instant::now();
        loop {
            let away = counts.away.load(Ordering::SeqCst);
            match once(&client, http2).await {
                Ok(status) => {
                    assert_eq!(status, StatusCode::OK);
                    break;
                }
                Err(error) => {
                    let excused = away || counts.away.load(Ordering::SeqCst);
                    assert!(excused, "the gateway was there: {error}");
                    counts.repeated.fetch_add(1, Ordering::Relaxed);
                    assert!(began.elapsed() < Duration::from_secs(60), "{error}");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }
        counts.answered.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub async fn once(client: &Client, http2: bool) -> std::io::Result<StatusCode> {
    let response = if http2 {
        let mut sender = client.try_http2(HOST).await?;
        sender
            .send_request(client.request(Method::GET, HOST, "/0", none()))
            .await
    } else {
        let mut sender = client.try_http1(HOST).await?;
        sender
            .send_request(client.request1(Method::GET, HOST, "/0", none()))
            .await
    };
    let response = response.map_err(std::io::Error::other)?;
    let status = response.status();
    let answer = read(client, response).await;
    match answer.whole {
        true => Ok(status),
        false => Err(std::io::Error::other("the answer broke off")),
    }
}

#[test]
fn a_lifetime_of_a_minute_and_five_restarts_cost_a_client_nothing_that_a_retry_does_not_mend() {
    let mut stage = Stage::new(Setup {
        lifetime: "1m",
        ..Setup::default()
    });
    let length = Duration::from_secs(if is_full() { 600 } else { 70 });
    let certificate = std::fs::read(stage.gateway.folder.join("ca.pem")).unwrap();
    let phantom = stage.gateway.phantom.clone();
    let counts = Arc::<Counts>::default();
    run(async {
        let mut clients = tokio::task::JoinSet::new();
        for n in 0..3 {
            clients.spawn(ask(stage.client.clone(), n % 2 == 0, counts.clone()));
        }
        let began = Instant::now();
        for restart in 1..=RESTARTS {
            let at = length * restart / (RESTARTS + 1);
            tokio::time::sleep_until((began + at).into()).await;
            counts.away.store(true, Ordering::SeqCst);
            match restart {
                2 => stage.gateway.kill(),
                _ => stage.gateway.stop(),
            }
            stage.gateway.restart();
            // Attempts that began while it was away have ended by now.
            tokio::time::sleep(Duration::from_secs(1)).await;
            counts.away.store(false, Ordering::SeqCst);
            let now = std::fs::read(stage.gateway.folder.join("ca.pem")).unwrap();
            assert_eq!((&now, &stage.gateway.phantom), (&certificate, &phantom));
        }
        tokio::time::sleep_until((began + length).into()).await;
        counts.over.store(true, Ordering::Relaxed);
        clients.join_all().await;
    });
    let answered = counts.answered.load(Ordering::Relaxed);
    println!(
        "{} s, {RESTARTS} restarts: {answered} answers, {} attempts repeated; one CA, one phantom",
        length.as_secs(),
        counts.repeated.load(Ordering::Relaxed)
    );
    assert!(answered > 500, "{answered}");
    let ended = |record: &&serde_json::Value| record["reason"] == "session_ended";
    assert_eq!(stage.gateway.records().iter().filter(ended).count(), 0);
    holds_nothing_in_the_clear(&stage);
}

#[test]
fn a_session_that_was_ended_says_so_to_every_client_and_after_a_restart() {
    let mut stage = Stage::new(Setup::default());
    let said = |stage: &Stage| {
        run(async {
            let mut codes = Vec::new();
            for http2 in [false, true] {
                codes.push(once(&stage.client, http2).await.unwrap());
            }
            codes
        })
    };
    assert_eq!(said(&stage), [StatusCode::OK; 2]);
    // Another process that has the state decides, as `gateway session end` does.
    let folder = stage.gateway.folder.join(".local/state/gateway/sessions");
    let store = store_in(&folder);
    let session = SessionId::new("agent-1").unwrap();
    run(store.decide(vec![SessionDecision::End {
        session,
        at: 1,
        was_idle: false,
        for_good: false,
    }]))
    .unwrap();
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(said(&stage), [StatusCode::FORBIDDEN; 2]);
    stage.gateway.stop();
    stage.gateway.restart();
    assert_eq!(said(&stage), [StatusCode::FORBIDDEN; 2]);
    assert!(
        stage
            .gateway
            .said()
            .contains("was ended and refuses every request")
    );
    let ended = |record: &&serde_json::Value| record["reason"] == "session_ended";
    assert_eq!(stage.gateway.records().iter().filter(ended).count(), 4);
    // A flag for new phantoms does not undo it.
    stage.gateway.stop();
    stage.gateway.restart_with(&["--fresh"]);
    assert_eq!(said(&stage), [StatusCode::FORBIDDEN; 2]);
    assert_eq!(stage.origin.seen.of(|seen| &seen.without_secret), 0);
}

#[test]
fn a_gateway_that_was_off_for_longer_than_a_lifetime_goes_on_with_the_same_phantoms() {
    let mut stage = Stage::new(Setup::default());
    let said = |stage: &Stage| run(async { once(&stage.client, true).await.unwrap() });
    assert_eq!(said(&stage), StatusCode::OK);
    stage.gateway.stop();
    let folder = stage.gateway.folder.join(".local/state/gateway/sessions");
    let store = store_in(&folder);
    let session = SessionId::new("agent-1").unwrap();
    // As if the machine had been off for years.
    let ends = 1_700_000_000;
    run(store.decide(vec![SessionDecision::Extend { session, ends }])).unwrap();
    stage.gateway.restart();
    // The former client: the same CA, the same phantom.
    assert_eq!(said(&stage), StatusCode::OK);
    let session = SessionId::new("agent-1").unwrap();
    let kept = run(store.session(&session)).unwrap().unwrap();
    assert!(kept.ends.unwrap() > ends, "{:?}", kept.ends);
}

/// Looks through every file of the state for what must not be there.
fn holds_nothing_in_the_clear(stage: &Stage) {
    let folder = stage.gateway.folder.join(".local/state/gateway/sessions");
    let key = std::fs::read(folder.join("key")).unwrap();
    let sealing = SealingKey::from_text(&key).unwrap();
    let store = store_in(&folder);
    let kept = run(store.session(&SessionId::new("agent-1").unwrap())).unwrap();
    let kept = kept.expect("the session is kept");
    let secrets = kept.open(&sealing).unwrap();
    let certificate = CertificateDer::from_pem_slice(kept.certificate.unwrap().pem.as_bytes());
    let published = CertificateDer::from_pem_file(stage.gateway.folder.join("ca.pem"));
    assert_eq!(certificate.unwrap(), published.unwrap());
    assert!(secrets.ca_key.len() > 64);
    let scalar = &secrets.ca_key[36..68];
    let phantom = stage.gateway.phantom.as_bytes();
    let needles: [&[u8]; 5] = [SECRET.as_bytes(), phantom, &secrets.seed[..], scalar, &key];
    let files = std::fs::read_dir(&folder).unwrap();
    let files = files.map(|file| file.unwrap().path());
    let mut looked_at = 0;
    for file in files.filter(|file| file.file_name().unwrap() != "key") {
        let content = std::fs::read(&file).unwrap();
        for needle in needles {
            let found = memchr::memmem::find(&content, needle);
            assert!(found.is_none(), "{} holds it in the clear", file.display());
        }
        looked_at += 1;
    }
    assert!(looked_at >= 2, "{looked_at}");
}

fn state_file(folder: &Path) -> PathBuf {
    let files = std::fs::read_dir(folder).unwrap();
    let mut files = files.map(|file| file.unwrap().path());
    let is_store = |file: &PathBuf| {
        let name = file.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("serve-") && name.ends_with(".db"))
    };
    files.find(is_store).expect("there is a store")
}

/// The store of a gateway, opened with the key in the file beside it.
fn store_in(folder: &Path) -> SqliteState {
    let key = std::fs::read(folder.join("key")).unwrap();
    opened(&state_file(folder), &key)
}

/// Opens a file with a key, which is the one of a new file.
fn opened(path: &Path, key: &[u8]) -> SqliteState {
    let (file, key) = (
        StateFile::open(path).unwrap(),
        SealingKey::from_text(key).unwrap(),
    );
    if run(file.key_mark()).unwrap().is_none() {
        run(file.set_key_mark(key.mark("file").unwrap())).unwrap();
    }
    let mark = run(file.key_mark()).unwrap().unwrap();
    file.unlock(key.into(), &mark)
}

const KEY: &[u8] = b"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
const CHILD: &str = "GATEWAY_TEST_STATE";

/// The process that is killed: it decides, and says each decision when it was answered.
fn decide_until_killed(path: &Path) -> ! {
    let store = opened(path, KEY);
    let id = SessionId::new("a").unwrap();
    let decide = |decision| run(store.decide(vec![decision])).unwrap();
    if run(store.session(&id)).unwrap().is_none() {
        decide(SessionDecision::Create(record("a")));
    }
    let mut ends = run(store.session(&id)).unwrap().unwrap().ends.unwrap();
    loop {
        ends += 1;
        let session = id.clone();
        decide(SessionDecision::Extend { session, ends });
        println!("decided {ends}");
        if ends.is_multiple_of(8) {
            decide(SessionDecision::Create(record(&format!("s{ends}"))));
            println!("created {ends}");
        }
    }
}

fn record(id: &str) -> SessionRecord {
    SessionRecord {
        created: None,
        version: SessionRecord::VERSION,
        id: id.to_owned(),
        parents: Vec::new(),
        made: 1,
        ends: Some(1),
        idle: None,
        was_idle: false,
        for_good: false,
        before: 0,
        paused: false,
        ended: None,
        logins: std::collections::BTreeMap::new(),
        temporary: Vec::new(),
        labels: Default::default(),
        shapes: std::collections::BTreeMap::new(),
        certificate: None,
        sealed: vec![7; 200],
    }
}

#[test]
fn what_the_store_answered_before_a_kill_is_there_at_two_hundred_points() {
    if let Some(path) = std::env::var_os(CHILD) {
        decide_until_killed(Path::new(&path));
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    let (mut answered, mut last) = (0, 0);
    for round in 0..200 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "restarts::what_the_store_answered_before_a_kill_is_there_at_two_hundred_points",
                "--exact",
                "--nocapture",
            ])
            .env(CHILD, &path)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (mut decided, mut created) = (0, None);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut hear = |lines: &mut dyn Iterator<Item = std::io::Result<String>>, most: usize| {
            for line in lines.map_while(Result::ok).take(most) {
                match line.split_once(' ') {
                    Some(("decided", number)) => decided = number.parse().unwrap(),
                    Some(("created", number)) => created = Some(number.to_owned()),
                    _ => {}
                }
            }
        };
        // Each round a little later: in, after and between the steps of a decision.
        hear(&mut lines, 6 + round % 7);
        std::thread::sleep(Duration::from_micros(37 * round as u64));
        child.kill().unwrap();
        hear(&mut lines, usize::MAX);
        child.wait().unwrap();
        let store = opened(&path, KEY);
        let session = |id: &str| run(store.session(&SessionId::new(id).unwrap())).unwrap();
        let now = session("a").unwrap().ends.unwrap();
        assert!(
            decided > last && now >= decided,
            "round {round}: {now} < {decided}"
        );
        // At most the one that was under way is there without an answer.
        assert!(now <= decided + 1, "round {round}: {now} > {decided} + 1");
        if let Some(created) = created {
            assert!(session(&format!("s{created}")).is_some(), "{round}");
        }
        let revisions = run(store.since(run(store.decide(Vec::new())).unwrap().saturating_sub(99)));
        let revisions: Vec<u64> = revisions.unwrap().into_iter().map(|(n, _)| n).collect();
        assert!(revisions.windows(2).all(|pair| pair[0] + 1 == pair[1]));
        answered += decided - last;
        last = now;
    }
    println!("200 kills, {answered} decisions answered, none lost");
}
