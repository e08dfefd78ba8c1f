//! One suite of tests for every store: in memory, and in a SQLite file.

use std::collections::BTreeMap;
use std::sync::Arc;

use gateway_files::BadFile;
use gateway_names::{CredentialName, SessionId};
use zeroize::Zeroizing;

use super::*;

fn id(name: &str) -> SessionId {
    SessionId::new(name).unwrap()
}

fn record(name: &str) -> SessionRecord {
    SessionRecord {
        version: SessionRecord::VERSION,
        id: name.to_owned(),
        parents: vec!["ci".to_owned()],
        made: 100,
        ends: Some(200),
        idle: None,
        was_idle: false,
        for_good: false,
        before: 0,
        paused: false,
        ended: None,
        created: None,
        logins: BTreeMap::new(),
        temporary: Vec::new(),
        labels: Default::default(),
        shapes: BTreeMap::new(),
        certificate: None,
        sealed: b"sealed".to_vec(),
    }
}

fn shape(session: &str, before: Option<&str>, after: &str) -> SessionDecision {
    SessionDecision::Shape {
        session: id(session),
        credential: CredentialName::new("github").unwrap(),
        before: before.map(str::to_owned),
        after: after.to_owned(),
    }
}

fn extend(session: &str, ends: u64) -> SessionDecision {
    let session = id(session);
    SessionDecision::Extend { session, ends }
}

fn end(session: &str, at: u64) -> SessionDecision {
    let session = id(session);
    SessionDecision::End {
        session,
        at,
        was_idle: false,
        for_good: false,
    }
}

type Test = fn(Arc<dyn StateStore>) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

/// Checks the promises that every store keeps.
const SUITE: [(&str, Test); 12] = [
    ("one follows another that is used up", |store| {
        Box::pin(follow(store))
    }),
    ("records come back as they were put in", |store| {
        Box::pin(come_back(store))
    }),
    ("decisions need what they say", |store| {
        Box::pin(need(store))
    }),
    ("an end is for good", |store| Box::pin(end_for_good(store))),
    ("an idle end is taken back", |store| {
        Box::pin(idle_end(store))
    }),
    ("its time ends no session that was extended", |store| {
        Box::pin(expire(store))
    }),
    ("all of them or none", |store| Box::pin(all_or_none(store))),
    ("a budget gives what it has and no more", |store| {
        Box::pin(budget(store))
    }),
    ("no window of a budget comes back", |store| {
        Box::pin(budget_windows(store))
    }),
    ("a session's budget ends with it", |store| {
        Box::pin(budget_of_a_session(store))
    }),
    ("revisions have no gap", |store| Box::pin(no_gap(store))),
    ("of two that create one session, one wins", |store| {
        Box::pin(one_wins(store))
    }),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_is_a_store() {
    for (name, test) in SUITE {
        println!("{name}");
        test(Arc::new(SqliteState::in_memory().unwrap().0)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_is_a_store() {
    for (name, test) in SUITE {
        println!("{name}");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/state.db");
        test(Arc::new(opened(&path, &key()).await)).await;
    }
}

#[tokio::test]
async fn what_no_decision_ended_for_good_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let store = opened(&folder.path().join("state.db"), &key()).await;
    let made = |name| SessionRecord {
        created: Some("how".to_owned()),
        ..record(name)
    };
    let mut idle = end("idle", 150);
    if let SessionDecision::End { was_idle, .. } = &mut idle {
        *was_idle = true;
    }
    let all = ["ended", "idle", "lives"].map(|name| SessionDecision::Create(made(name)));
    let further = [
        SessionDecision::Create(record("another")),
        end("ended", 150),
        idle,
    ];
    store.decide([&all[..], &further].concat()).await.unwrap();
    let ids = |all: Vec<SessionRecord>| {
        let mut ids: Vec<_> = all.into_iter().map(|one| one.id).collect();
        ids.sort();
        ids
    };
    let unended = ids(store.unended().await.unwrap());
    assert_eq!(unended, ["another", "idle", "lives"]);
}

fn key() -> Arc<SealingKey> {
    Arc::new(SealingKey::from_text(SealingKey::draw().unwrap().as_bytes()).unwrap())
}

/// Opens a file with a key. A new file gets this key.
async fn opened(path: &std::path::Path, key: &Arc<SealingKey>) -> SqliteState {
    let file = StateFile::open(path).unwrap();
    if file.key_mark().await.unwrap().is_none() {
        let mark = key.mark("file").unwrap();
        file.set_key_mark(mark).await.unwrap();
    }
    let mark = file.key_mark().await.unwrap().unwrap();
    file.unlock(key.clone(), &mark)
}

async fn come_back(store: Arc<dyn StateStore>) {
    assert_eq!(store.session(&id("a")).await.unwrap(), None);
    let kept = SessionRecord {
        shapes: [("github".to_owned(), "=ghp%5F 36alnum".to_owned())].into(),
        certificate: Some(KeptCertificate {
            pem: "a certificate".to_owned(),
            from: -5,
            to: 5,
        }),
        sealed: vec![0, 255, 10],
        ..record("a")
    };
    store
        .decide(vec![SessionDecision::Create(kept.clone())])
        .await
        .unwrap();
    assert_eq!(store.session(&id("a")).await.unwrap(), Some(kept));
    for (name, made) in [("b", 300), ("c", 50)] {
        let one = SessionRecord {
            made,
            ..record(name)
        };
        store
            .decide(vec![SessionDecision::Create(one)])
            .await
            .unwrap();
    }
    let ids = |all: Vec<SessionRecord>| all.into_iter().map(|one| one.id).collect::<Vec<_>>();
    assert_eq!(ids(store.sessions(9).await.unwrap()), ["b", "a", "c"]);
    assert_eq!(ids(store.sessions(2).await.unwrap()), ["b", "a"]);
}

async fn need(store: Arc<dyn StateStore>) {
    let refused = async |decision| {
        let decided = store.decide(vec![decision]).await;
        matches!(decided, Err(StateError::Refused(_)))
    };
    assert!(refused(extend("a", 1)).await);
    assert!(refused(SessionDecision::Pause(id("a"))).await);
    assert!(refused(SessionDecision::Reissue(record("a"))).await);
    store
        .decide(vec![SessionDecision::Create(record("a"))])
        .await
        .unwrap();
    assert!(refused(SessionDecision::Create(record("a"))).await);
    store
        .decide(vec![
            extend("a", 500),
            SessionDecision::Pause(id("a")),
            shape("a", None, "8alnum"),
        ])
        .await
        .unwrap();
    assert!(refused(shape("a", None, "9alnum")).await);
    store
        .decide(vec![shape("a", Some("8alnum"), "9alnum")])
        .await
        .unwrap();
    let now = store.session(&id("a")).await.unwrap().unwrap();
    assert_eq!((now.ends, now.paused), (Some(500), true));
    assert_eq!(now.shapes["github"], "9alnum");
    let other = SessionRecord {
        parents: vec![],
        made: 999,
        sealed: b"other".to_vec(),
        ..record("a")
    };
    let again = vec![
        SessionDecision::Reissue(other.clone()),
        SessionDecision::Resume(id("a")),
    ];
    store.decide(again).await.unwrap();
    let now = store.session(&id("a")).await.unwrap().unwrap();
    assert_eq!((now.made, now.ends, now.paused), (100, Some(500), false));
    assert_eq!((now.parents.len(), &now.sealed[..]), (0, &b"other"[..]));
    store
        .decide(vec![SessionDecision::Replace(other.clone())])
        .await
        .unwrap();
    assert_eq!(store.session(&id("a")).await.unwrap(), Some(other));
}

async fn end_for_good(store: Arc<dyn StateStore>) {
    store
        .decide(vec![SessionDecision::Create(record("a"))])
        .await
        .unwrap();
    store.decide(vec![end("a", 150)]).await.unwrap();
    store.decide(vec![end("a", 160)]).await.unwrap();
    for decision in [
        extend("a", 900),
        SessionDecision::Pause(id("a")),
        SessionDecision::Resume(id("a")),
        SessionDecision::Reissue(record("a")),
        SessionDecision::Create(record("a")),
        shape("a", None, "8alnum"),
    ] {
        assert!(store.decide(vec![decision]).await.is_err());
    }
    let now = store.session(&id("a")).await.unwrap().unwrap();
    assert_eq!((now.ended, now.ends), (Some(150), Some(200)));
}

async fn follow(store: Arc<dyn StateStore>) {
    let next = |before| {
        let record = SessionRecord {
            before,
            ..record("a")
        };
        vec![SessionDecision::Create(record)]
    };
    let idle_end = SessionDecision::End {
        session: id("a"),
        at: 140,
        was_idle: true,
        for_good: false,
    };
    store.decide(next(0)).await.unwrap();
    assert!(store.decide(next(1)).await.is_err());
    store.decide(vec![idle_end]).await.unwrap();
    assert!(store.decide(next(1)).await.is_err());
    store.decide(vec![end("a", 150)]).await.unwrap();
    // Of two attempts to create it, one succeeds.
    store.decide(next(1)).await.unwrap();
    assert!(store.decide(next(1)).await.is_err());
    let now = store.session(&id("a")).await.unwrap().unwrap();
    assert_eq!((now.ended, now.before), (None, 1));
    let for_good = SessionDecision::End {
        session: id("a"),
        at: 160,
        was_idle: false,
        for_good: true,
    };
    store.decide(vec![end("a", 150), for_good]).await.unwrap();
    store.decide(vec![end("a", 170)]).await.unwrap();
    assert!(store.decide(next(2)).await.is_err());
    let made = SessionRecord {
        created: Some(String::new()),
        ..record("b")
    };
    let made = SessionDecision::Create(made);
    store.decide(vec![made, end("b", 150)]).await.unwrap();
    let again = SessionRecord {
        before: 1,
        ..record("b")
    };
    let again = SessionDecision::Create(again);
    assert!(store.decide(vec![again]).await.is_err());
}

async fn idle_end(store: Arc<dyn StateStore>) {
    let idle_end = SessionDecision::End {
        session: id("a"),
        at: 150,
        was_idle: true,
        for_good: false,
    };
    let create = SessionDecision::Create(record("a"));
    store.decide(vec![create, idle_end.clone()]).await.unwrap();
    assert!(store.decide(vec![extend("a", 900)]).await.is_err());
    // The session may come back, with the phantoms of later configurations.
    let shape = SessionDecision::Shape {
        session: id("a"),
        credential: CredentialName::new("NEW_TOKEN").unwrap(),
        before: None,
        after: "shape".to_owned(),
    };
    let reissue = SessionDecision::Reissue(record("a"));
    store.decide(vec![shape, reissue]).await.unwrap();
    let resume = || vec![SessionDecision::Resume(id("a"))];
    store.decide(resume()).await.unwrap();
    let now = store.session(&id("a")).await.unwrap().unwrap();
    assert_eq!((now.ended, now.was_idle), (None, false));
    // A use of the session reverts its idle end, but no decision of an operator.
    let take_back = || vec![SessionDecision::TakeBack(id("a"))];
    store.decide(take_back()).await.unwrap();
    store.decide(vec![idle_end.clone()]).await.unwrap();
    store.decide(take_back()).await.unwrap();
    let pause = SessionDecision::Pause(id("a"));
    store.decide(vec![pause, idle_end.clone()]).await.unwrap();
    assert!(store.decide(take_back()).await.is_err());
    let now = store.session(&id("a")).await.unwrap().unwrap();
    assert_eq!((now.ended, now.paused), (Some(150), true));
    store.decide(vec![end("a", 160)]).await.unwrap();
    assert!(store.decide(resume()).await.is_err());
    assert!(store.decide(take_back()).await.is_err());
    // An end by an operator is final, whether it comes before or after an end for being idle.
    store.decide(vec![idle_end.clone()]).await.unwrap();
    assert!(store.decide(resume()).await.is_err());
    let again = SessionDecision::Replace(record("a"));
    let both = vec![again, idle_end, end("a", 170)];
    store.decide(both).await.unwrap();
    let now = store.session(&id("a")).await.unwrap().unwrap();
    assert_eq!((now.ended, now.was_idle), (Some(170), false));
    assert!(store.decide(resume()).await.is_err());
}

async fn expire(store: Arc<dyn StateStore>) {
    let expire = |at| {
        let session = id("a");
        vec![SessionDecision::Expire { session, at }]
    };
    let ended = async || store.session(&id("a")).await.unwrap().unwrap().ended;
    store
        .decide(vec![SessionDecision::Create(record("a")), extend("a", 300)])
        .await
        .unwrap();
    assert!(store.decide(expire(200)).await.is_err());
    assert_eq!(ended().await, None);
    store.decide(expire(300)).await.unwrap();
    assert_eq!(ended().await, Some(300));
    // A session that has ended keeps the time of its end.
    store.decide(expire(200)).await.unwrap();
    assert_eq!(ended().await, Some(300));
    assert!(store.decide(vec![extend("a", 900)]).await.is_err());
}

async fn all_or_none(store: Arc<dyn StateStore>) {
    let before = store
        .decide(vec![SessionDecision::Create(record("a"))])
        .await
        .unwrap();
    let mixed = vec![SessionDecision::Create(record("b")), extend("none", 1)];
    assert!(store.decide(mixed).await.is_err());
    assert_eq!(store.session(&id("b")).await.unwrap(), None);
    assert_eq!(store.since(before).await.unwrap(), []);
    assert_eq!(store.decide(Vec::new()).await.unwrap(), before);
}

fn budget_id(key: &str) -> BudgetId {
    BudgetId {
        name: "models".into(),
        unit: "usd",
        key: key.to_owned(),
    }
}

fn from(begins: u64) -> BudgetWindow {
    BudgetWindow {
        begins,
        lasts: false,
    }
}

async fn budget(store: Arc<dyn StateStore>) {
    let id = budget_id("");
    let mut takers = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (store, id) = (store.clone(), id.clone());
        takers.spawn(async move {
            let mut taken = 0;
            for _ in 0..20 {
                taken += store.take(&id, from(60), 1_000, 1..=7).await.unwrap().0;
            }
            taken
        });
    }
    assert_eq!(takers.join_all().await.into_iter().sum::<u64>(), 1_000);
    let (got, counts) = store.take(&id, from(60), 1_000, 0..=7).await.unwrap();
    assert_eq!((got, counts.taken), (0, 1_000));
    store.settle(&id, 60, 30).await.unwrap();
    // Less than is needed is not taken.
    let take = async |wanted| store.take(&id, from(60), 1_000, wanted).await.unwrap().0;
    assert_eq!(take(31..=40).await, 0);
    assert_eq!(take(30..=40).await, 30);
    assert_eq!(take(0..=0).await, 0);
    let counts = store.add(&id, from(60), 50).await.unwrap();
    assert_eq!((counts.taken, counts.added), (1_000, 50));
    assert_eq!(take(1..=1_000).await, 50);
    assert!(store.add(&id, from(60), i64::MAX as u64).await.is_err());
    // Nobody gives back more than was taken.
    store.settle(&id, 60, 5_000).await.unwrap();
    assert_eq!(take(1..=5_000).await, 1_050);
    // With less than before, what was taken is more than there is.
    let less = store.take(&id, from(60), 10, 0..=5).await.unwrap();
    assert_eq!(less.0, 0);
    let other = BudgetId {
        unit: "tokens",
        ..id
    };
    assert_eq!(store.take(&other, from(60), 9, 0..=20).await.unwrap().0, 9);
}

async fn budget_windows(store: Arc<dyn StateStore>) {
    let take = async |key, window| {
        let taken = store.take(&budget_id(key), window, 10, 1..=10).await;
        let (got, counts) = taken.unwrap();
        (got, counts.window)
    };
    assert_eq!(take("alice", from(60)).await, (10, 60));
    assert_eq!(take("bob", from(60)).await, (10, 60));
    assert_eq!(take("alice", from(120)).await, (10, 120));
    let keys = |rows: Vec<BudgetRow>| {
        let rows = rows.into_iter().map(|row| (row.key, row.counts.window));
        rows.collect::<Vec<_>>()
    };
    let alone = [("alice".to_owned(), 120)];
    assert_eq!(keys(store.budgets().await.unwrap()), alone);
    // The clock was set back: the latest window goes on, for everyone.
    assert_eq!(take("alice", from(60)).await, (0, 120));
    assert_eq!(take("bob", from(60)).await, (10, 120));
    assert_eq!(take("bob", from(119)).await, (0, 120));
    // What was taken in an earlier window gives nothing to a later one.
    store.settle(&budget_id("alice"), 60, 10).await.unwrap();
    assert_eq!(take("alice", from(120)).await, (0, 120));
}

async fn budget_of_a_session(store: Arc<dyn StateStore>) {
    let lasting = |begins| BudgetWindow {
        begins,
        lasts: true,
    };
    let take = async |begins| {
        let taken = store.take(&budget_id("a"), lasting(begins), 10, 1..=10);
        let (got, counts) = taken.await.unwrap();
        (got, counts.window)
    };
    let create = SessionDecision::Create(record("a"));
    store.decide(vec![create]).await.unwrap();
    assert_eq!(take(100).await, (10, 100));
    let year = 400 * 86_400;
    assert_eq!(take(year).await, (0, 100));
    // Another session's row does not end that of one that lives.
    let other = store.take(&budget_id("b"), lasting(year), 10, 1..=10);
    assert_eq!(other.await.unwrap().0, 10);
    assert_eq!(take(year).await, (0, 100));
    store.decide(vec![end("a", 150)]).await.unwrap();
    assert_eq!(take(year).await, (0, 100));
    let next = SessionRecord {
        before: 1,
        ..record("a")
    };
    let next = SessionDecision::Create(next);
    store.decide(vec![next]).await.unwrap();
    assert_eq!(take(year).await, (10, year));
}

async fn no_gap(store: Arc<dyn StateStore>) {
    assert_eq!(store.since(0).await.unwrap(), []);
    store
        .decide(vec![SessionDecision::Create(record("a"))])
        .await
        .unwrap();
    let mut writers = tokio::task::JoinSet::new();
    for n in 0..4 {
        let store = store.clone();
        writers.spawn(async move {
            for step in 0..10 {
                store
                    .decide(vec![extend("a", n * 100 + step)])
                    .await
                    .unwrap();
            }
        });
    }
    let (mut seen, mut last) = (0, 0);
    while seen < 41 {
        for (revision, session) in store.since(last).await.unwrap() {
            assert_eq!((revision, &session), (last + 1, &id("a")));
            last = revision;
            seen += 1;
        }
        tokio::task::yield_now().await;
    }
    writers.join_all().await;
    assert_eq!(store.since(last).await.unwrap(), []);
    assert!(matches!(
        store.since(last + 1).await,
        Err(StateError::Forgotten)
    ));
    for _ in 0..3 {
        let many = (0..2_000).map(|n| extend("a", n)).collect();
        store.decide(many).await.unwrap();
    }
    assert!(matches!(store.since(1).await, Err(StateError::Forgotten)));
    let last = store.decide(Vec::new()).await.unwrap();
    assert_eq!(last, 6_041);
    assert_eq!(store.since(last - 4_000).await.unwrap().len(), 4_000);
}

#[tokio::test]
async fn the_keys_mark_is_set_once_and_all_is_forgotten_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    let (file, key) = (StateFile::open(&path).unwrap(), key());
    assert_eq!(file.key_mark().await.unwrap(), None);
    let mark = key.mark("file").unwrap();
    file.set_key_mark(mark.clone()).await.unwrap();
    assert!(file.set_key_mark(key.mark("ring").unwrap()).await.is_err());
    assert_eq!(file.key_mark().await.unwrap(), Some(mark));
    let store = opened(&path, &key).await;
    let create = SessionDecision::Create(record("a"));
    store.decide(vec![create]).await.unwrap();
    let take = async || {
        let taken = store.take(&budget_id(""), from(60), 10, 1..=10).await;
        taken.unwrap().0
    };
    assert_eq!(take().await, 10);
    file.forget().await.unwrap();
    // A budget counts on.
    assert_eq!(take().await, 0);
    assert_eq!(file.key_mark().await.unwrap(), None);
    assert_eq!(store.session(&id("a")).await.unwrap(), None);
}

async fn one_wins(store: Arc<dyn StateStore>) {
    let mut creators = tokio::task::JoinSet::new();
    for n in 0..8 {
        let store = store.clone();
        let made = SessionRecord {
            made: n,
            ..record("a")
        };
        creators.spawn(async move {
            let created = store.decide(vec![SessionDecision::Create(made)]).await;
            created.is_ok().then_some(n)
        });
    }
    let won: Vec<u64> = creators.join_all().await.into_iter().flatten().collect();
    let now = store.session(&id("a")).await.unwrap().unwrap();
    assert_eq!(won, [now.made]);
}

#[tokio::test]
async fn two_processes_on_one_file_see_each_others_decisions() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    let key = key();
    let (one, other) = (opened(&path, &key).await, opened(&path, &key).await);
    one.decide(vec![SessionDecision::Create(record("a"))])
        .await
        .unwrap();
    assert_eq!(other.session(&id("a")).await.unwrap(), Some(record("a")));
    other.decide(vec![end("a", 7)]).await.unwrap();
    assert_eq!(one.since(1).await.unwrap(), [(2, id("a"))]);
    assert!(one.decide(vec![extend("a", 9)]).await.is_err());
}

#[tokio::test]
async fn what_a_newer_or_an_earlier_gateway_wrote_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    let store = opened(&path, &key()).await;
    for (name, version) in [("newer", 7), ("before", 2), ("earlier", 1)] {
        let record = SessionRecord {
            version,
            ..record(name)
        };
        let create = SessionDecision::Create(record);
        store.decide(vec![create]).await.unwrap();
    }
    let of = async |name| store.session(&id(name)).await.unwrap_err();
    assert!(matches!(
        of("newer").await,
        StateError::Unfit(BadFile::Version {
            found: 7,
            known: 6,
            ..
        })
    ));
    assert!(matches!(
        of("earlier").await,
        StateError::Unfit(BadFile::Version {
            found: 1,
            known: 6,
            ..
        })
    ));
    assert!(store.session(&id("before")).await.unwrap().is_some());
    let schema = rusqlite::Connection::open(&path).unwrap();
    schema.execute_batch("PRAGMA user_version = 4").unwrap();
    let newer = StateFile::open(&path).err().unwrap();
    assert!(matches!(
        newer,
        StateError::Unfit(BadFile::Version {
            found: 4,
            known: 3,
            ..
        })
    ));
    schema.execute_batch("PRAGMA user_version = 1").unwrap();
    let older = StateFile::open(&path).err().unwrap();
    assert!(matches!(
        older,
        StateError::Unfit(BadFile::Version {
            found: 1,
            known: 3,
            ..
        })
    ));
    assert!(older.remedy(&path).contains("move"));
}

#[tokio::test]
async fn a_file_of_the_version_before_keeps_its_sessions_and_gets_the_table_of_budgets() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    let key = key();
    let store = opened(&path, &key).await;
    let create = SessionDecision::Create(record("a"));
    store.decide(vec![create]).await.unwrap();
    drop(store);
    let schema = rusqlite::Connection::open(&path).unwrap();
    let before = "DROP TABLE budget; PRAGMA user_version = 2";
    schema.execute_batch(before).unwrap();
    let store = opened(&path, &key).await;
    assert_eq!(store.session(&id("a")).await.unwrap(), Some(record("a")));
    let taken = store.take(&budget_id(""), from(60), 10, 1..=10).await;
    assert_eq!(taken.unwrap().0, 10);
    drop(store);
    // One with a table that no gateway made is refused, and stays as it was.
    let before = "DROP TABLE budget; PRAGMA user_version = 2; CREATE TABLE more (a INTEGER)";
    schema.execute_batch(before).unwrap();
    let again = StateFile::open(&path);
    assert!(again.is_err_and(|error| error.to_string().contains("tables")));
    let found = schema.query_row("PRAGMA user_version", [], |row| row.get(0));
    assert_eq!(found, Ok(2));
}

/// A process that can write the file still lacks the key.
#[tokio::test]
async fn what_somebody_put_into_the_file_drops_no_decision() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    let key = key();
    let store = opened(&path, &key).await;
    let create = SessionDecision::Create(record("a"));
    store.decide(vec![create]).await.unwrap();
    let writer = rusqlite::Connection::open(&path).unwrap();
    let trigger = "CREATE TRIGGER t BEFORE UPDATE ON session BEGIN SELECT raise(ignore); END";
    writer.execute_batch(trigger).unwrap();
    let pause = SessionDecision::Pause(id("a"));
    store.decide(vec![pause]).await.unwrap();
    assert!(store.session(&id("a")).await.unwrap().unwrap().paused);
    // A gateway that starts refuses tables that it does not know.
    let again = StateFile::open(&path);
    assert!(again.is_err_and(|error| error.to_string().contains("tables")));
}

#[tokio::test]
async fn a_record_that_was_changed_or_moved_in_the_file_is_refused_and_can_be_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let (path, elsewhere) = (folder.path().join("state.db"), folder.path().join("b.db"));
    let key = key();
    let store = opened(&path, &key).await;
    let create = |name| SessionDecision::Create(record(name));
    store.decide(vec![create("a"), create("b")]).await.unwrap();
    store
        .decide(vec![SessionDecision::Pause(id("a"))])
        .await
        .unwrap();
    // Another store with the same key has a session of the same name.
    let other = opened(&elsewhere, &key).await;
    other.decide(vec![create("a")]).await.unwrap();
    let writer = rusqlite::Connection::open(&path).unwrap();
    let attach = format!("ATTACH '{}' AS other", elsewhere.display());
    writer.execute_batch(&attach).unwrap();
    for change in [
        r#"UPDATE session SET record = replace(record, '"paused":true', '"paused":false')"#,
        r#"UPDATE session SET record = replace(record, '["ci"]', '["admin"]')"#,
        r#"UPDATE session SET record = replace(record, '"ends":200', '"ends":9999999999')"#,
        "UPDATE session SET sealed = x'00'",
        "UPDATE session SET version = 1",
        "UPDATE session SET (record, sealed, proof) = \
         (SELECT record, sealed, proof FROM session WHERE id = 'b')",
        "UPDATE session SET (record, sealed, proof) = \
         (SELECT record, sealed, proof FROM other.session WHERE id = 'a')",
        "UPDATE session SET proof = x''",
    ] {
        let kept = "CREATE TEMP TABLE kept AS SELECT * FROM session WHERE id = 'a'";
        writer.execute_batch(kept).unwrap();
        writer
            .execute_batch(&format!("{change} WHERE id = 'a'"))
            .unwrap();
        let read = store.session(&id("a")).await;
        assert!(read.is_err(), "{change}");
        let decided = store.decide(vec![extend("a", 900)]).await;
        assert!(decided.is_err(), "{change}");
        let back = "DELETE FROM session WHERE id = 'a'; INSERT INTO session SELECT * FROM kept; \
                    DROP TABLE kept";
        writer.execute_batch(back).unwrap();
        assert!(store.session(&id("a")).await.unwrap().unwrap().paused);
    }
    writer
        .execute_batch("UPDATE session SET proof = x''")
        .unwrap();
    let anew = SessionDecision::Replace(record("a"));
    store.decide(vec![anew]).await.unwrap();
    assert!(store.session(&id("a")).await.unwrap().is_some());
}

#[test]
fn a_file_that_others_may_read_a_link_and_a_damaged_one_are_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    drop(StateFile::open(&path).unwrap());
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&path) & 0o777, 0o600);
    let link = folder.path().join("link.db");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert!(matches!(StateFile::open(&link), Err(StateError::Unfit(_))));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    let refused = StateFile::open(&path).err().unwrap();
    assert!(!refused.is_no_place() && refused.remedy(&path).contains("chmod go="));
    let damaged = folder.path().join("damaged.db");
    gateway_files::create_private(&damaged, &[7; 5000]).unwrap();
    let refused = StateFile::open(&damaged).err().unwrap();
    assert!(refused.remedy(&damaged).contains("move"), "{refused}");
}

#[test]
fn a_records_secrets_open_with_its_key_under_its_id_alone() {
    let key = key();
    let secrets = KeptSecrets {
        seed: Zeroizing::new(*b"CANARY-seed-CANARY-seed-CANARY-s"),
        ca_key: Zeroizing::new(b"CANARY-key".to_vec()),
    };
    let mut kept = record("a");
    kept.seal(&key, &secrets).unwrap();
    let shown = format!("{kept:?}") + &String::from_utf8_lossy(&kept.sealed);
    assert!(!shown.contains("CANARY"));
    let opened = kept.open(&key).unwrap();
    assert_eq!((opened.seed, opened.ca_key), (secrets.seed, secrets.ca_key));
    assert!(kept.open(&self::key()).is_err());
    let moved = SessionRecord {
        id: "b".to_owned(),
        ..kept
    };
    assert!(moved.open(&key).is_err());
}
