//! The promises that every store keeps.

use std::collections::BTreeMap;
use std::sync::Arc;

use gateway_names::{CredentialName, SessionId};

use super::*;

pub fn id(name: &str) -> SessionId {
    SessionId::new(name).unwrap()
}

pub fn record(name: &str) -> SessionRecord {
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

pub fn shape(session: &str, before: Option<&str>, after: &str) -> SessionDecision {
    SessionDecision::Shape {
        session: id(session),
        credential: CredentialName::new("github").unwrap(),
        before: before.map(str::to_owned),
        after: after.to_owned(),
    }
}

pub fn extend(session: &str, ends: u64) -> SessionDecision {
    let session = id(session);
    SessionDecision::Extend { session, ends }
}

pub fn end(session: &str, at: u64) -> SessionDecision {
    let session = id(session);
    SessionDecision::End {
        session,
        at,
        was_idle: false,
        for_good: false,
    }
}

pub type Test = fn(Arc<dyn StateStore>) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

/// Checks the promises that every store keeps.
pub const SUITE: [(&str, Test); 12] = [
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

pub fn budget_id(key: &str) -> BudgetId {
    BudgetId {
        name: "models".into(),
        unit: "usd",
        key: key.to_owned(),
    }
}

pub fn from(begins: u64) -> BudgetWindow {
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
            assert_eq!((revision, session), (last + 1, Subject::Session(id("a"))));
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
