//! One read at a time, the age of a read, and the leases that end with a session.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use zeroize::Zeroizing;

use super::super::leased::RETRY_AFTER;
use super::super::material::LeaseId;
use super::super::{Lease, Material, MemoryStore, ReferenceMalformed, StoreError, StoreFuture};
use super::place::WAIT;
use super::*;

const NAME: &str = "env:TOKEN";

fn stage() -> (Arc<MemoryStore>, SecretSource) {
    let store = Arc::new(MemoryStore::default());
    let stores = Stores::with(Arc::<MemoryStore>::clone(&store));
    let source = stores.source(&SecretRef::env("TOKEN"));
    (store, source)
}

fn millis(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

async fn holds(source: &SecretSource, value: &[u8]) -> bool {
    source.resolve(None).await.ok().unwrap().secret.is(value)
}

#[tokio::test]
async fn a_hundred_at_once_are_one_fetch() {
    let (store, source) = stage();
    store.put(NAME, b"CANARY-0001", None);
    store.slow(NAME, millis(50));
    let asked: Vec<_> = (0..100)
        .map(|_| {
            let source = source.clone();
            tokio::spawn(async move { holds(&source, b"CANARY-0001").await })
        })
        .collect();
    for one in asked {
        assert!(one.await.unwrap());
    }
    assert_eq!(store.fetches(), 1);
}

#[tokio::test]
async fn a_secret_is_never_used_past_its_end() {
    let (store, source) = stage();
    store.put(NAME, b"CANARY-0001", Some(Lease::of(millis(100))));
    assert!(holds(&source, b"CANARY-0001").await);
    store.fail(NAME, StoreError::Absent, Duration::ZERO);
    assert!(holds(&source, b"CANARY-0001").await);
    tokio::time::sleep(millis(120)).await;
    let unavailable = source.resolve(None).await.err().unwrap();
    assert_eq!(unavailable.cause, StoreError::Absent);
    assert!(!format!("{unavailable} {unavailable:?}").contains("CANARY"));
}

#[tokio::test]
async fn a_rotated_secret_is_taken_before_the_old_one_ends_and_nobody_waits() {
    let (store, source) = stage();
    let life = Lease {
        refresh_after: millis(20),
        stale_after: Duration::from_secs(60),
        expires_after: Duration::from_secs(60),
        id: None,
    };
    store.put(NAME, b"CANARY-0001", Some(life.clone()));
    assert!(holds(&source, b"CANARY-0001").await);
    store.put(NAME, b"CANARY-0002", Some(life.clone()));
    store.slow(NAME, millis(50));
    tokio::time::sleep(millis(30)).await;
    let before = Instant::now();
    assert!(holds(&source, b"CANARY-0001").await);
    assert!(before.elapsed() < millis(40));
    tokio::time::sleep(millis(80)).await;
    assert!(holds(&source, b"CANARY-0002").await);
}

#[tokio::test]
async fn an_unchanged_secret_stays_the_same_object() {
    let (store, source) = stage();
    let life = Lease {
        refresh_after: millis(5),
        stale_after: millis(10),
        expires_after: millis(10),
        id: None,
    };
    store.put(NAME, b"CANARY-0001", Some(life.clone()));
    let first = source.resolve(None).await.ok().unwrap();
    tokio::time::sleep(millis(20)).await;
    store.put(NAME, b"CANARY-0001", Some(life.clone()));
    let second = source.resolve(None).await.ok().unwrap();
    assert!(Arc::ptr_eq(&first.secret, &second.secret));
    assert_eq!(store.fetches(), 2);
}

#[tokio::test]
async fn a_broken_store_is_asked_once_a_second() {
    let (store, source) = stage();
    for _ in 0..50 {
        assert_eq!(
            source.resolve(None).await.err().unwrap().cause,
            StoreError::Absent
        );
    }
    assert_eq!(store.fetches(), 1);
    store.put(NAME, b"CANARY-0001", None);
    tokio::time::sleep(RETRY_AFTER).await;
    assert!(holds(&source, b"CANARY-0001").await);
}

#[tokio::test]
async fn a_dropped_call_leaves_the_fetch_to_the_next() {
    let (store, source) = stage();
    store.put(NAME, b"CANARY-0001", None);
    store.slow(NAME, millis(200));
    assert!(
        tokio::time::timeout(millis(20), source.resolve(None))
            .await
            .is_err()
    );
    store.slow(NAME, Duration::ZERO);
    assert!(holds(&source, b"CANARY-0001").await);
}

#[tokio::test]
async fn a_forgotten_secret_is_fetched_anew() {
    let (store, source) = stage();
    store.put(NAME, b"CANARY-0001", None);
    assert!(holds(&source, b"CANARY-0001").await);
    store.put(NAME, b"CANARY-0002", None);
    assert!(holds(&source, b"CANARY-0001").await);
    source.forget();
    assert!(holds(&source, b"CANARY-0002").await);
}

#[tokio::test]
async fn a_rotated_file_is_seen_without_a_restart() {
    use std::os::unix::fs::PermissionsExt as _;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(file.path(), "CANARY-0001\n").unwrap();
    let reference = SecretRef::file(file.path());
    let source = Stores::new([&reference]).source(&reference);
    assert!(holds(&source, b"CANARY-0001").await);
    std::fs::write(file.path(), "CANARY-0002\n").unwrap();
    tokio::time::sleep(millis(1050)).await;
    source.resolve(None).await.ok().unwrap();
    tokio::time::sleep(millis(100)).await;
    assert!(holds(&source, b"CANARY-0002").await);
}

/// A store that issues secrets. It counts issues, renewals and revocations.
#[derive(Default)]
struct Issuing {
    issued: AtomicU64,
    renewed: AtomicU64,
    revoked: Mutex<Vec<u64>>,
    life: Duration,
    /// The value that it issues; if empty, the number of the issue.
    value: &'static str,
}

impl Issuing {
    fn lease(&self, login: u64) -> Lease {
        let text = format!("lease/{login}").into();
        let id = LeaseId {
            text,
            renewable: self.renewed.load(Ordering::SeqCst) < 2,
            login,
        };
        Lease {
            id: Some(id),
            ..Lease::of(self.life)
        }
    }
}

impl SecretStore for Issuing {
    fn fetch<'a>(&'a self, _: &'a Backend, _: Option<&'a SessionId>) -> StoreFuture<'a, Material> {
        Box::pin(async move {
            tokio::time::sleep(millis(20)).await;
            let number = self.issued.fetch_add(1, Ordering::SeqCst);
            let value = match self.value {
                "" => format!("CANARY-{number:04}"),
                value => value.to_owned(),
            };
            let value = Zeroizing::new(value.into_bytes());
            Ok(Material::new(Some(self.lease(number))).with("password", value))
        })
    }

    fn renew<'a>(&'a self, lease: &'a Lease) -> StoreFuture<'a, Lease> {
        self.renewed.fetch_add(1, Ordering::SeqCst);
        let login = lease.id.as_ref().map(|id| id.login);
        let lease = self.lease(login.unwrap_or_default());
        Box::pin(std::future::ready(Ok(lease)))
    }

    fn revoke<'a>(&'a self, lease: &'a Lease) -> StoreFuture<'a, ()> {
        let login = lease.id.as_ref().map(|id| id.login);
        self.revoked.lock().extend(login);
        Box::pin(std::future::ready(Ok(())))
    }
}

fn issuing(life: Duration) -> (Arc<Issuing>, Stores, SecretSource) {
    issuing_as("", life)
}

fn issuing_as(value: &'static str, life: Duration) -> (Arc<Issuing>, Stores, SecretSource) {
    let store = Arc::new(Issuing {
        life,
        value,
        ..Issuing::default()
    });
    let stores = Stores::with(store.clone());
    let text = "vault-lease:database/creds/app#password";
    let parsed = SecretRef::parse(text, |_| Err(ReferenceMalformed::new("", "")));
    let source = stores.source(&parsed.unwrap());
    (store, stores, source)
}

#[tokio::test]
async fn each_session_has_a_lease_of_its_own_until_it_ends_and_none_after() {
    let (store, stores, source) = issuing(Duration::from_secs(60));
    let [one, two] = ["one", "two"].map(|id| SessionId::new(id).unwrap());
    for session in [&one, &two, &one] {
        source.resolve(Some(session)).await.ok().unwrap();
    }
    assert_eq!(store.issued.load(Ordering::SeqCst), 2);
    let nobody = source.resolve(None).await.err().unwrap();
    assert_eq!(nobody.cause, StoreError::NoSession);
    stores.end(&one).await;
    assert_eq!(*store.revoked.lock(), [0]);
    let over = source.resolve(Some(&one)).await.err().unwrap();
    assert_eq!(over.cause, StoreError::Ended);
    source.resolve(Some(&two)).await.ok().unwrap();
    stores.close().await;
    assert_eq!(*store.revoked.lock(), [0, 1]);
}

#[tokio::test]
async fn a_session_that_ended_before_anything_was_issued_to_it_is_issued_nothing() {
    let (store, stores, source) = issuing(Duration::from_secs(60));
    let session = SessionId::new("one").unwrap();
    stores.end(&session).await;
    let over = source.resolve(Some(&session)).await.err().unwrap();
    assert_eq!(over.cause, StoreError::Ended);
    assert_eq!(store.issued.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_session_that_comes_back_is_issued_anew_and_what_it_had_is_revoked() {
    let (store, stores, source) = issuing(Duration::from_secs(60));
    let session = SessionId::new("one").unwrap();
    source.resolve(Some(&session)).await.ok().unwrap();
    stores.end(&session).await;
    stores.begin(&session);
    source.resolve(Some(&session)).await.ok().unwrap();
    // The session came back before its end was noticed.
    stores.begin(&session);
    source.resolve(Some(&session)).await.ok().unwrap();
    assert_eq!(store.issued.load(Ordering::SeqCst), 3);
    assert_eq!(*store.revoked.lock(), [0, 1]);
}

#[tokio::test]
async fn what_is_issued_and_cannot_be_used_is_revoked_at_once() {
    let session = SessionId::new("one").unwrap();
    // A value too short to be searched for in responses; and a lease that ends as it begins.
    for (value, life) in [("short", 60), ("CANARY-0001", 0)] {
        let (store, _stores, source) = issuing_as(value, Duration::from_secs(life));
        for _ in 0..3 {
            assert!(source.resolve(Some(&session)).await.is_err(), "{value}");
        }
        assert_eq!(store.issued.load(Ordering::SeqCst), 1);
        assert_eq!(*store.revoked.lock(), [0]);
    }
}

#[tokio::test]
async fn a_lease_is_renewed_while_it_can_be_and_then_replaced_and_all_are_revoked() {
    let (store, stores, source) = issuing(millis(500));
    let session = SessionId::new("one").unwrap();
    let first = source.resolve(Some(&session)).await.ok().unwrap();
    for _ in 0..2 {
        tokio::time::sleep(millis(420)).await;
        stores.tend().await;
        tokio::time::sleep(millis(10)).await;
        let same = source.resolve(Some(&session)).await.ok().unwrap();
        assert!(Arc::ptr_eq(&first.secret, &same.secret));
    }
    assert_eq!(store.renewed.load(Ordering::SeqCst), 2);
    tokio::time::sleep(millis(420)).await;
    stores.tend().await;
    tokio::time::sleep(millis(50)).await;
    let next = source.resolve(Some(&session)).await.ok().unwrap();
    assert!(next.secret.is(b"CANARY-0001"));
    stores.end(&session).await;
    assert_eq!(*store.revoked.lock(), [0, 1]);
}

#[tokio::test]
async fn a_field_that_is_named_later_is_read_anew_and_a_name_that_nobody_has_fails_nothing() {
    let (store, stores, source) = issuing(Duration::from_secs(60));
    let session = SessionId::new("one").unwrap();
    source.resolve(Some(&session)).await.ok().unwrap();
    let text = "vault-lease:database/creds/app#username";
    let named = SecretRef::parse(text, |_| Err(ReferenceMalformed::new("", ""))).unwrap();
    let later = stores.source(&named);
    // The store has no such field, and says so instead of renewing the earlier read.
    let lacking = later.resolve(Some(&session)).await.err().unwrap();
    assert_eq!(
        lacking.cause,
        StoreError::NoField("username".into(), ": it has password".into())
    );
    assert_eq!(store.renewed.load(Ordering::SeqCst), 0);
    assert_eq!(store.issued.load(Ordering::SeqCst), 2);
    drop(later);
    source.resolve(Some(&session)).await.ok().unwrap();
}

#[tokio::test]
async fn a_client_that_goes_away_loses_no_lease() {
    let (store, stores, source) = issuing(Duration::from_secs(60));
    let session = SessionId::new("one").unwrap();
    let asked = tokio::time::timeout(millis(5), source.resolve(Some(&session)));
    assert!(asked.await.is_err());
    stores.end(&session).await;
    assert_eq!(store.issued.load(Ordering::SeqCst), 1);
    assert_eq!(*store.revoked.lock(), [0]);
}

#[tokio::test]
async fn what_is_stale_serves_while_the_store_is_away_and_not_once_it_refuses() {
    let (store, source) = stage();
    let lease = Lease {
        refresh_after: millis(20),
        stale_after: millis(30),
        expires_after: Duration::from_secs(60),
        id: None,
    };
    store.put(NAME, b"CANARY-0001", Some(lease.clone()));
    assert!(holds(&source, b"CANARY-0001").await);
    // After the lease's end, the read waits for the newer secret.
    store.put(NAME, b"CANARY-0002", Some(lease));
    store.slow(NAME, millis(50));
    tokio::time::sleep(millis(40)).await;
    assert!(holds(&source, b"CANARY-0002").await);
    store.fail(NAME, StoreError::Sealed, Duration::ZERO);
    tokio::time::sleep(millis(40)).await;
    assert!(holds(&source, b"CANARY-0002").await);
    tokio::time::sleep(RETRY_AFTER).await;
    let refused = StoreError::Login(Box::new(StoreError::gone()));
    store.fail(NAME, refused.clone(), Duration::ZERO);
    assert!(holds(&source, b"CANARY-0002").await);
    tokio::time::sleep(millis(20)).await;
    assert_eq!(source.resolve(None).await.err().unwrap().cause, refused);
}

#[tokio::test]
async fn where_something_else_suffices_a_store_that_refused_and_hangs_is_waited_for_once() {
    let (store, source) = stage();
    store.put(NAME, b"CANARY-0001", Some(Lease::of(millis(20))));
    assert!(source.resolve_soon(|| true).await.is_ok());
    store.fail(NAME, StoreError::gone(), Duration::ZERO);
    tokio::time::sleep(millis(40)).await;
    let refused = source.resolve(None).await.err().unwrap();
    assert_eq!(refused.cause, StoreError::gone());
    tokio::time::sleep(RETRY_AFTER).await;
    store.slow(NAME, Duration::from_secs(60));
    let begun = Instant::now();
    for _ in 0..3 {
        assert!(source.resolve_soon(|| true).await.is_err());
    }
    let waited = begun.elapsed();
    assert!(waited < WAIT + Duration::from_secs(1), "{waited:?}");
}

#[tokio::test]
async fn fields_of_one_place_are_of_one_reading_and_a_bad_field_fails_it_whole() {
    let (store, user) = stage();
    let stores = Stores::with(store.clone());
    let field = |name| stores.source(&user.reference().clone().field(name));
    let (user, password, absent) = (field("user"), field("password"), field("other"));
    fn both<'f>(user: &'f [u8], password: &'f [u8]) -> [(&'f str, &'f [u8]); 2] {
        [("user", user), ("password", password)]
    }
    let short = Lease::of(millis(50));
    store.put_fields(NAME, &both(b"CANARY-u1", b"CANARY-p1"), Some(short.clone()));
    let first = user.resolve(None).await.ok().unwrap();
    tokio::time::sleep(millis(60)).await;
    store.put_fields(NAME, &both(b"CANARY-u2", b"CANARY-p2"), Some(short.clone()));
    assert!(holds(&password, b"CANARY-p2").await);
    let beside = password.beside(&first).unwrap().ok().unwrap();
    assert!(beside.secret.is(b"CANARY-p1"));
    store.put_fields(NAME, &both(b"CANARY-u3", b"with\nbreak"), Some(short));
    tokio::time::sleep(millis(60)).await;
    let cause = user.resolve(None).await.err().unwrap().cause;
    assert_eq!(cause, StoreError::Unsafe(crate::SecretUnsafe::Character));
    tokio::time::sleep(RETRY_AFTER).await;
    store.put_fields(NAME, &both(b"CANARY-u4", b"CANARY-p4"), None);
    let cause = absent.resolve(None).await.err().unwrap().cause;
    assert_eq!(
        cause,
        StoreError::NoField("other".into(), ": it has user, password".into())
    );
    assert!(cause.is_absent() && holds(&user, b"CANARY-u4").await);
}
