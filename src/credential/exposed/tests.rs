//! When the responses of a session are searched, and for which secrets.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use gateway_names::{SecretLabel, SessionId};
use gateway_session::Binding;
use gateway_session::phantom::{KeptShapes, PhantomKey, Phantoms};
use gateway_session::stage::{GITHUB, binding, head, name};
use http::HeaderMap;
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;

use super::*;
use crate::configured::{ConfiguredCredential, stored};
use crate::store::{Lease, MemoryStore, ReferenceMalformed, SecretRef};
use crate::{RevokedSecrets, Stores};

const STORED: &str = "env:github";

struct Stage {
    store: Arc<MemoryStore>,
    credentials: Credentials,
}

fn stage(bindings: Vec<Binding>) -> Stage {
    let store = Arc::new(MemoryStore::default());
    let stores = Stores::with(Arc::<MemoryStore>::clone(&store));
    Stage {
        credentials: Credentials::new(stored(bindings), &stores).unwrap(),
        store,
    }
}

fn github() -> Stage {
    let places = ["header:authorization:Bearer"];
    stage(vec![binding("github", &["https://good.example"], &places)])
}

impl Stage {
    async fn session(&self, id: &str, key: u8) -> Arc<Session> {
        let key = PhantomKey::from_bytes([key; 32]);
        let phantoms = self
            .credentials
            .issue(
                &SessionId::new(id).unwrap(),
                &key,
                &mut KeptShapes::default(),
                |_| true,
            )
            .await;
        self.with(id, phantoms.unwrap().0)
    }

    fn with(&self, id: &str, phantoms: Phantoms) -> Arc<Session> {
        let id = SessionId::new(id).unwrap();
        Arc::new(Session::new(id, Vec::new(), phantoms, None))
    }

    /// Returns the search of an origin's response to a request that is lent no secret.
    async fn asks(&self, session: &Arc<Session>, origin: &str) -> Result<Option<Redactor>, Error> {
        self.asks_with(session, origin, &Vec::new()).await
    }

    /// Returns the search of an origin's response to a request that is lent a credential's secret.
    async fn lent(&self, session: &Arc<Session>, origin: &str, credential: &str) -> Redactor {
        let name = name(credential);
        let index = self.credentials.bindings().index_of(&name).unwrap();
        let secret = self.credentials.lease(session.id(), index).await.unwrap();
        let asked = self.asks_with(session, origin, &vec![(name, secret)]).await;
        asked.unwrap().expect("it is searched")
    }

    async fn asks_with(
        &self,
        session: &Arc<Session>,
        origin: &str,
        lent: &FetchedSecrets,
    ) -> Result<Option<Redactor>, Error> {
        let origin = head(origin, "/", &[]).origin;
        let here = self.credentials.bindings().at_origin(&origin);
        let wanted = Wanted {
            bound: self.credentials.fetch_bound(&here, lent).await?,
            lent,
            strict: here.is_managed(),
            signs: false,
            signed_for: true,
        };
        self.credentials.look_for(session, &wanted)
    }

    async fn shown(&self, session: &Arc<Session>, origin: &str, text: &str) -> String {
        let lent = self
            .asks(session, origin)
            .await
            .unwrap()
            .expect("it is searched");
        let shown = lent.scrub_whole(Bytes::from(text.to_owned())).unwrap();
        String::from_utf8(shown.to_vec()).unwrap()
    }
}

#[tokio::test]
async fn an_answer_is_searched_for_all_that_is_bound_before_anything_was_lent() {
    let stage = github();
    stage.store.put(STORED, GITHUB.as_bytes(), None);
    let ours = stage.session("ours", 1).await;
    let none = stage.with("none", Phantoms::none());
    let phantom = ours
        .phantoms()
        .of(&name("github"))
        .unwrap()
        .reveal()
        .to_owned();
    assert_eq!(
        stage.shown(&ours, "https://good.example", GITHUB).await,
        phantom
    );
    // A session that does not hold the credential sees a stand-in of its shape, worthless in any
    // session.
    let shown = stage.shown(&none, "https://good.example", GITHUB).await;
    assert!(
        shown.len() == GITHUB.len() && shown.starts_with("ghp_"),
        "{shown}"
    );
    assert!(shown != phantom && shown != GITHUB);
    assert_eq!(
        stage.shown(&none, "https://good.example", GITHUB).await,
        shown
    );
    let lent = stage.asks(&ours, "https://good.example").await.unwrap();
    assert!(lent.is_some_and(|lent| lent.is_strict()));
    // No credential is bound there and none was lent, so nothing is searched for.
    assert!(
        stage
            .asks(&ours, "https://other.example")
            .await
            .unwrap()
            .is_none()
    );
}

#[tokio::test]
async fn what_a_store_gave_before_is_looked_for_in_every_session() {
    let stage = github();
    let life = Lease::of(std::time::Duration::from_millis(20));
    stage.store.put(STORED, GITHUB.as_bytes(), Some(life));
    let first = stage.session("first", 1).await;
    stage.shown(&first, "https://good.example", "x").await;
    tokio::time::sleep(std::time::Duration::from_millis(30)).await;
    let renewed = GITHUB.replace('z', "y");
    stage.store.put(STORED, renewed.as_bytes(), None);
    stage.shown(&first, "https://good.example", "x").await;
    let second = stage.session("second", 2).await;
    let shown = stage
        .shown(
            &second,
            "https://good.example",
            &format!("{GITHUB} {renewed}"),
        )
        .await;
    let phantoms = second.phantoms();
    let phantom = phantoms.of(&name("github")).unwrap().reveal();
    assert_eq!(shown, format!("{phantom} {phantom}"));
}

#[tokio::test]
async fn what_a_store_cannot_say_is_closed_and_what_it_does_not_have_is_no_secret() {
    let stage = github();
    let session = stage.with("none", Phantoms::none());
    assert!(
        stage
            .asks(&session, "https://good.example")
            .await
            .unwrap()
            .is_none()
    );
    let stage = github();
    let fault = StoreError::Unreachable("it is down");
    stage.store.fail(STORED, fault, Duration::ZERO);
    let asked = stage.asks(&session, "https://good.example").await;
    assert!(matches!(asked, Err(Error::Unavailable(_))));
    assert!(stage.asks(&session, "https://other.example").await.is_ok());
}

#[tokio::test]
async fn what_a_store_gave_is_looked_for_in_new_sessions_though_it_gives_it_no_longer() {
    let away = StoreError::Unreachable("it is down");
    let unfit = StoreError::Unsafe(crate::SecretUnsafe::Character);
    for cause in [away, StoreError::Absent, unfit] {
        let stage = github();
        let life = Lease::of(Duration::from_millis(20));
        stage.store.put(STORED, GITHUB.as_bytes(), Some(life));
        let first = stage.session("first", 1).await;
        stage.shown(&first, "https://good.example", "x").await;
        stage.store.fail(STORED, cause, Duration::ZERO);
        tokio::time::sleep(Duration::from_millis(30)).await;
        let second = stage.with("second", Phantoms::none());
        let shown = stage.shown(&second, "https://good.example", GITHUB).await;
        assert!(!shown.contains(GITHUB), "{shown}");
    }
}

/// Content that arrives line by line and does not end.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<VecDeque<String>>>);

impl Body for Lines {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.0.lock().pop_front() {
            Some(line) => Poll::Ready(Some(Ok(Frame::data(line.into())))),
            None => Poll::Pending,
        }
    }
}

#[tokio::test]
async fn a_stream_is_searched_for_what_was_renewed_while_it_lasts() {
    let stage = github();
    let life = Lease::of(Duration::from_millis(20));
    stage.store.put(STORED, GITHUB.as_bytes(), Some(life));
    let session = stage.session("ours", 1).await;
    let waits = stage.asks(&session, "https://good.example").await;
    let waits = waits.unwrap().unwrap();
    let (lines, mut frames) = (Lines::default(), waits.scrub_frames());
    let mut stream = waits.scrub(lines.clone(), &mut HeaderMap::new());
    let mut next = async |line: &str| {
        lines.0.lock().push_back(line.to_owned());
        let frame = stream.frame().await.unwrap().unwrap();
        String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap()
    };
    assert_eq!(next("first. ").await, "first. ");
    tokio::time::sleep(Duration::from_millis(30)).await;
    let renewed = GITHUB.replace('z', "y");
    stage.store.put(STORED, renewed.as_bytes(), None);
    stage.shown(&session, "https://good.example", "x").await;
    let phantoms = session.phantoms();
    let phantom = phantoms.of(&name("github")).unwrap().reveal();
    assert_eq!(next(&format!("{renewed}. ")).await, format!("{phantom}. "));
    let length = u8::try_from(renewed.len()).unwrap();
    let frame = [&[0x81, length], renewed.as_bytes()].concat();
    let frame = frames.push(frame.into()).unwrap();
    assert_eq!(&frame[2..], phantom.as_bytes());
    // A late response is searched too.
    let mut fields = HeaderMap::new();
    fields.insert("x", renewed.parse().unwrap());
    waits.scrub_fields(&mut fields).unwrap();
    assert_eq!(fields["x"], phantom);
}

#[tokio::test]
async fn a_stream_is_searched_for_what_another_session_was_given_while_it_lasts() {
    let stage = github();
    let life = Lease::of(Duration::from_millis(20));
    stage.store.put(STORED, GITHUB.as_bytes(), Some(life));
    let (ours, theirs) = (stage.session("ours", 1).await, stage.session("b", 2).await);
    let never = stage.with("never", Phantoms::none());
    let waits = stage.asks(&ours, "https://good.example").await;
    let waits = waits.unwrap().unwrap();
    tokio::time::sleep(Duration::from_millis(30)).await;
    let renewed = GITHUB.replace('z', "y");
    stage.store.put(STORED, renewed.as_bytes(), None);
    stage.shown(&theirs, "https://good.example", "x").await;
    let (phantoms, others) = (ours.phantoms(), theirs.phantoms());
    let phantom = phantoms.of(&name("github")).unwrap().reveal();
    assert_ne!(phantom, others.of(&name("github")).unwrap().reveal());
    let mut fields = HeaderMap::new();
    fields.insert("x", renewed.parse().unwrap());
    waits.scrub_fields(&mut fields).unwrap();
    assert_eq!(fields["x"], phantom);
    let shown = waits.scrub_whole(Bytes::from(renewed)).unwrap();
    assert_eq!(&shown[..], phantom.as_bytes());
    // A session that never used the credential searches for none of its secrets.
    assert!(stage.credentials.exposed(&never).unwrap().is_empty());
}

/// Returns a stage with two credentials, `x` and `y`, whose secrets are issued for each session.
fn issued() -> Stage {
    let places = ["header:authorization:Bearer"];
    let binding = |name, origin| binding(name, &[origin], &places);
    let mut all = stored(vec![
        binding("x", "https://x.example"),
        binding("y", "https://y.example"),
    ]);
    for one in &mut all {
        let name = one.binding.credential.as_str();
        one.from = SecretRef::parse::<ReferenceMalformed>(
            &format!("vault-lease:creds/{name}#password"),
            |path| Ok(path.into()),
        )
        .unwrap();
    }
    let store = Arc::new(MemoryStore::default());
    let stores = Stores::with(Arc::<MemoryStore>::clone(&store));
    Stage {
        credentials: Credentials::new(all, &stores).unwrap(),
        store,
    }
}

impl Stage {
    /// Issues this text from now on.
    fn issues(&self, credential: &str, text: &str, life: Duration) {
        let field = [("password", text.as_bytes())];
        let place = format!("vault-lease:creds/{credential}");
        self.store.put_fields(&place, &field, Some(Lease::of(life)));
    }
}

#[tokio::test]
async fn what_was_issued_in_the_background_is_told_to_all_once_it_is_lent() {
    let (stage, short) = (issued(), Duration::from_millis(20));
    stage.issues("x", "first-secret-of-x-0123456789", short);
    stage.issues("y", "first-secret-of-y-0123456789", short);
    let ours = stage.with("ours", Phantoms::none());
    let theirs = stage.with("theirs", Phantoms::none());
    let waits = stage.lent(&ours, "https://x.example", "x").await;
    stage.lent(&theirs, "https://x.example", "x").await;
    stage.lent(&theirs, "https://y.example", "y").await;
    tokio::time::sleep(short * 2).await;
    let (next_x, next_y) = (
        "second-secret-of-x-ABCDEFGHIJ",
        "second-secret-of-y-KLMNOPQRST",
    );
    stage.issues("x", next_x, Duration::from_secs(60));
    stage.issues("y", next_y, Duration::from_secs(60));
    // Refreshed in the background, before any request uses it.
    stage.credentials.lease(theirs.id(), 0).await.unwrap();
    stage.lent(&theirs, "https://y.example", "y").await;
    stage.lent(&theirs, "https://x.example", "x").await;
    let shown = waits.scrub_whole(Bytes::from_static(next_x.as_bytes()));
    assert_ne!(&shown.unwrap()[..], next_x.as_bytes());
}

#[tokio::test]
async fn an_answer_that_began_before_anything_was_issued_is_searched_for_what_is() {
    let stage = issued();
    let secret = "first-secret-of-x-0123456789";
    stage.issues("x", secret, Duration::from_secs(60));
    let ours = stage.with("ours", Phantoms::none());
    let theirs = stage.with("theirs", Phantoms::none());
    let waits = stage.asks(&ours, "https://x.example").await.unwrap();
    let waits = waits.expect("it is searched");
    assert!(waits.is_strict());
    stage.lent(&theirs, "https://x.example", "x").await;
    let shown = waits.scrub_whole(Bytes::from_static(secret.as_bytes()));
    assert_ne!(&shown.unwrap()[..], secret.as_bytes());
}

#[tokio::test]
async fn a_secret_issued_while_a_request_waits_for_another_is_searched_for_in_its_answer() {
    let stage = issued();
    let secret = "first-secret-of-x-0123456789";
    stage.issues("x", secret, Duration::from_secs(60));
    let ours = stage.with("ours", Phantoms::none());
    let theirs = stage.with("theirs", Phantoms::none());
    let origin = head("https://x.example", "/", &[]).origin;
    let (credentials, lent) = (&stage.credentials, Vec::new());
    let here = credentials.bindings().at_origin(&origin);
    let bound = credentials.fetch_bound(&here, &lent);
    let bound = bound.await.unwrap();
    stage.lent(&theirs, "https://x.example", "x").await;
    let wanted = Wanted {
        bound,
        lent: &lent,
        strict: true,
        signs: false,
        signed_for: true,
    };
    let waits = credentials.look_for(&ours, &wanted).unwrap().unwrap();
    let shown = waits.scrub_whole(Bytes::from_static(secret.as_bytes()));
    assert_ne!(&shown.unwrap()[..], secret.as_bytes());
}

#[tokio::test]
async fn what_a_session_was_lent_is_searched_for_however_much_others_are_issued() {
    let (stage, life) = (issued(), Duration::from_secs(60));
    let secret = "first-secret-of-x-0123456789";
    stage.issues("x", secret, life);
    let ours = stage.with("ours", Phantoms::none());
    let waits = stage.lent(&ours, "https://x.example", "x").await;
    // More secrets than are kept of one credential: chance decides which are dropped.
    for other in 0..40 {
        stage.issues("x", &format!("{other:016}").repeat(1 << 10), life);
        let other = SessionId::new(&format!("s{other}")).unwrap();
        stage.credentials.lease(&other, 0).await.unwrap();
    }
    let theirs = stage.with("theirs", Phantoms::none());
    stage.issues("x", "second-secret-of-x-0123456789", life);
    stage.lent(&theirs, "https://x.example", "x").await;
    let shown = waits.scrub_whole(Bytes::from_static(secret.as_bytes()));
    assert_ne!(&shown.unwrap()[..], secret.as_bytes());
}

#[tokio::test]
async fn a_session_that_guessed_is_refused_and_others_are_not() {
    let stage = github();
    stage.store.put(STORED, GITHUB.as_bytes(), None);
    let ours = stage.session("ours", 1).await;
    for length in [6, 7] {
        stage
            .shown(&ours, "https://good.example", &GITHUB[4..4 + length])
            .await;
    }
    let lent = stage
        .asks(&ours, "https://good.example")
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        lent.scrub_whole(Bytes::from_static(&GITHUB.as_bytes()[4..12])),
        Err(Guessed)
    );
    let refused = stage
        .asks(&ours, "https://good.example")
        .await
        .err()
        .unwrap();
    assert_eq!(refused.reason().as_str(), "secret_guessed");
    let others = stage.session("others", 2).await;
    assert!(stage.asks(&others, "https://good.example").await.is_ok());
}

#[tokio::test]
async fn answers_that_fail_share_a_search_until_something_is_signed() {
    let stage = github();
    stage.store.put(STORED, GITHUB.as_bytes(), None);
    let session = stage.session("ours", 1).await;
    let lent = stage
        .asks(&session, "https://good.example")
        .await
        .unwrap()
        .unwrap();
    let searched = lent.searched.load_full();
    let made = b"signature/1+=";
    let first = searched.signatures.keep(vec![made.to_vec()]);
    let one = searched.with_signatures(&first);
    assert!(Arc::ptr_eq(&one, &searched.with_signatures(&[])));
    for at in 0..100 {
        searched
            .signatures
            .keep(vec![format!("signature/{at}/+=").into_bytes()]);
    }
    let other = searched.with_signatures(&[]);
    assert!(!Arc::ptr_eq(&one, &other) && other.scrub(made).is_none());
    // A signature made for the request itself is searched for, however late the response arrives.
    let own = searched.with_signatures(&first);
    assert!(own.scrub(made).is_some());
}

/// Returns a stage whose origin was shown the secret, and the next generation of credentials.
async fn after(next: Vec<ConfiguredCredential>) -> (Stage, Arc<Session>) {
    let mut stage = github();
    stage.store.put(STORED, GITHUB.as_bytes(), None);
    let ours = stage.session("ours", 1).await;
    stage.asks(&ours, "https://good.example").await.unwrap();
    let stores = Stores::with(Arc::<MemoryStore>::clone(&stage.store));
    stage.credentials = stage.credentials.next(next, &stores).unwrap();
    (stage, ours)
}

#[tokio::test]
async fn a_secret_that_is_stored_elsewhere_now_is_still_searched_for_by_everybody() {
    const NEXT: &str = "ghp_0123456789abcdefghijABCDEFGHIJ012345";
    let places = ["header:authorization:Bearer"];
    let mut next = stored(vec![binding("github", &["https://good.example"], &places)]);
    next[0].from = SecretRef::env("other");
    let (stage, ours) = after(next).await;
    stage.store.put("env:other", NEXT.as_bytes(), None);
    let others = stage.with("others", Phantoms::none());
    for session in [&ours, &others] {
        for secret in [GITHUB, NEXT] {
            let shown = stage.shown(session, "https://good.example", secret).await;
            assert_ne!(shown, secret);
        }
    }
}

#[tokio::test]
async fn the_secret_of_a_credential_that_was_removed_is_still_searched_for_by_everybody() {
    let (stage, ours) = after(Vec::new()).await;
    let others = stage.with("others", Phantoms::none());
    for session in [&ours, &others] {
        let shown = stage.shown(session, "https://good.example", GITHUB).await;
        assert_ne!(shown, GITHUB);
    }
    let origin = head("https://good.example", "/", &[]).origin;
    assert!(stage.credentials.formerly_managed(&origin, ours.id()));
    let elsewhere = head("https://else.example", "/", &[]).origin;
    assert!(!stage.credentials.formerly_managed(&elsewhere, ours.id()));
}

#[tokio::test]
async fn a_revocation_reaches_what_was_made_with_a_secret_that_was_stored_elsewhere() {
    let places = ["header:authorization:Bearer"];
    let bindings = || vec![binding("github", &["https://good.example"], &places)];
    let mut next = stored(bindings());
    next[0].from = SecretRef::env("other");
    let before = github();
    let stores = Stores::with(Arc::<MemoryStore>::clone(&before.store));
    let former = before.credentials.bindings().at(0).unwrap();
    let former = former.revocations[0].clone();
    let credentials = before.credentials.next(next, &stores).unwrap();
    let now = || {
        let binding = credentials.bindings().at(0).unwrap();
        binding.revocations.iter().any(|one| one.is_revoked())
    };
    // The name hits both places, and each place's own label only that place.
    for (label, was, is) in [
        ("github", true, true),
        ("env:github", true, false),
        ("env:other", false, true),
        ("other", false, true),
        ("elsewhere", false, false),
    ] {
        assert_eq!(credentials.revoke(&SecretLabel::new(label).unwrap()), 0);
        assert_eq!((former.is_revoked(), now()), (was, is), "{label}");
        credentials.obey(RevokedSecrets::default());
        assert_eq!((former.is_revoked(), now()), (false, false), "{label}");
    }
}
