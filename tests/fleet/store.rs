//! The store of a fleet against a real server: the promises of every store, and what is its own.

use std::sync::Arc;

use gateway::state::*;
use tokio::runtime::Runtime;

use crate::database::Database;
use crate::replica::Way;

#[path = "../../src/state/suite_tests.rs"]
mod suite;

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

fn key() -> Arc<SealingKey> {
    Arc::new(SealingKey::from_text(SealingKey::draw().unwrap().as_bytes()).unwrap())
}

/// Opens the store of a database with a key. A new one gets this key.
async fn opened(database: &Database, key: &Arc<SealingKey>) -> Arc<PostgresState> {
    let (server, _) = PostgresServer::open(database.settings()).await.unwrap();
    if server.key_mark().await.unwrap().is_none() {
        server
            .set_key_mark(&key.mark("file").unwrap(), key)
            .await
            .unwrap();
    }
    let mark = server.key_mark().await.unwrap().unwrap();
    assert!(key.made(&mark));
    server.unlock(key.clone(), &mark)
}

#[test]
fn postgresql_is_a_store() {
    let databases = crate::databases();
    for (name, test) in suite::SUITE {
        println!("{name}");
        let database = databases.fresh();
        runtime().block_on(async {
            let store = opened(&database, &key()).await;
            test(store.clone()).await;
            store.verify().await.unwrap();
        });
    }
}

#[test]
fn a_decision_whose_answers_are_cut_at_any_point_is_applied_once() {
    let databases = crate::databases();
    let database = databases.fresh();
    let way = Way::to(database.port);
    let mut settings = database.settings();
    let url = database.url();
    let url = url.replace(
        &format!("127.0.0.1:{}", database.port),
        &way.address.to_string(),
    );
    settings.url = PostgresUrl::parse(&url).unwrap();
    runtime().block_on(async {
        let (key, id) = (key(), suite::id("a"));
        drop(opened(&database, &key).await);
        let (server, _) = PostgresServer::open(settings).await.unwrap();
        let mark = server.key_mark().await.unwrap().unwrap();
        let store = server.unlock(key.clone(), &mark);
        let made = SessionDecision::Create(suite::record("a"));
        let mut before = store.decide(vec![made]).await.unwrap();
        let mut cuts = 0;
        for answers in 0..40 {
            way.cut_after(answers);
            let ends = 1_000 + u64::try_from(answers).unwrap();
            let revision = store.decide(vec![suite::extend("a", ends)]).await.unwrap();
            way.cut_after(i64::MAX);
            assert_eq!(revision, before + 1, "after {answers} answers");
            let now = store.session(&id).await.unwrap().unwrap();
            assert_eq!(now.ends, Some(ends));
            before = revision;
            cuts += 1;
        }
        store.verify().await.unwrap();
        println!("{cuts} cuts, each applied once");
    });
}

#[test]
fn tls_is_verified() {
    let databases = crate::databases();
    let database = databases.fresh();
    let port = database.port;
    let root = databases.speak_tls();
    let mut settings = database.settings();
    settings.url = PostgresUrl::parse(&format!(
        "postgres://postgres@localhost:{port}/{}",
        database.name
    ))
    .unwrap();
    let opens = |settings: &PostgresSettings| {
        let settings = settings.clone();
        runtime().block_on(async { PostgresServer::open(settings).await.map(drop) })
    };
    // Nobody vouches for the certificate.
    let refused = opens(&settings).unwrap_err().to_string();
    assert!(refused.contains("does not answer"), "{refused}");
    settings.tls = crate::tls(Some(&root));
    opens(&settings).unwrap();
    // Another name.
    settings.url = PostgresUrl::parse(&format!(
        "postgres://postgres@127.0.0.1:{port}/{}",
        database.name
    ))
    .unwrap();
    assert!(opens(&settings).is_err());
}
