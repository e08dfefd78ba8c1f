//! The suite of stores in memory and in a SQLite file, and what is SQLite's own.

use std::sync::Arc;

use gateway_files::BadFile;
use zeroize::Zeroizing;

use super::suite_tests::*;
use super::*;

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
    assert_eq!(
        one.since(1).await.unwrap(),
        [(2, Subject::Session(id("a")))]
    );
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
