//! Which credentials are lent and how they are injected. Refusals are tested in `session::detect`.

use std::sync::Arc;
use std::time::Duration;

use gateway_message::RequestHead;
use gateway_names::SessionId;
use gateway_session::phantom::{KeptShapes, PhantomKey, Phantoms, Registry, Shape};
use gateway_session::stage::{
    GEMINI, GITHUB, OTHER, PADDED, SECRETS, binding, field, head, name, usual,
};
use gateway_session::{Binding, DetectedCredentials, Foreign, When};
use tokio::time::Instant;

use super::super::configured::stored;
use super::super::credentials::Credentials;
use super::super::error::IssueFailure;
use super::super::fetch::have_expired;
use super::super::store::{MemoryStore, SecretRef, Stores};
use super::*;

/// A gateway's credentials, a session of it, and the store behind them.
pub(super) struct Lender {
    store: Arc<MemoryStore>,
    pub(super) credentials: Credentials,
    stores: Stores,
    ready: Vec<ArcSwapOption<FieldValues>>,
    pub(super) phantoms: Phantoms,
}

pub(super) fn session() -> SessionId {
    SessionId::new("ours").unwrap()
}

pub(super) async fn lender(bindings: Vec<Binding>, secrets: &[(&str, &str)]) -> Lender {
    let store = Arc::new(MemoryStore::default());
    for (credential, secret) in secrets {
        store.put(&format!("env:{credential}"), secret.as_bytes(), None);
    }
    let stores = Stores::with(Arc::<MemoryStore>::clone(&store));
    let ready = bindings.iter().map(|_| ArcSwapOption::empty()).collect();
    let credentials = Credentials::new(stored(bindings), &stores).unwrap();
    let (phantoms, _) = credentials
        .issue(
            &session(),
            &PhantomKey::from_bytes([1; 32]),
            &mut KeptShapes::default(),
            |_| true,
        )
        .await
        .unwrap();
    Lender {
        store,
        credentials,
        stores,
        ready,
        phantoms,
    }
}

async fn stage() -> Lender {
    lender(usual(), &SECRETS).await
}

async fn stage_of(bindings: Vec<Binding>) -> Lender {
    lender(bindings, &SECRETS).await
}

impl Lender {
    fn of(&self, credential: &str) -> String {
        self.phantoms
            .of(&name(credential))
            .unwrap()
            .reveal()
            .to_owned()
    }

    fn detect(&self, head: &RequestHead) -> DetectedCredentials {
        let bindings = self.credentials.bindings();
        let here = Arc::new(bindings.at_origin(&head.origin));
        bindings
            .detect(head, here, &self.phantoms, &Registry::default())
            .unwrap()
    }

    /// Changes the secret in the store, so that it is used at once.
    fn rotate(&self, credential: &str, secret: &str) {
        let reference = format!("env:{credential}");
        self.store.put(&reference, secret.as_bytes(), None);
        self.stores.source(&SecretRef::env(credential)).forget();
    }

    async fn try_forward(&self, mut head: RequestHead) -> Result<RequestHead, AttachFailure> {
        let presented = self.detect(&head);
        presented.settle(&mut head);
        for lend in presented.lends() {
            let lease = self
                .credentials
                .lease(&session(), lend.index())
                .await
                .unwrap();
            inject(
                &mut head.fields,
                &mut head.target,
                lend,
                &lease.secret,
                &self.ready[lend.index()],
            )?;
        }
        Ok(head)
    }

    /// Returns the request as it would be forwarded.
    async fn forward(&self, head: RequestHead) -> RequestHead {
        self.try_forward(head).await.unwrap()
    }
}

#[tokio::test]
async fn a_phantom_in_its_place_becomes_the_secret_once_and_is_marked_sensitive() {
    let stage = stage().await;
    let (github, other) = (stage.of("github"), stage.of("other"));
    for (scheme, out) in [
        ("Bearer", "Bearer"),
        ("bearer", "Bearer"),
        ("token", "token"),
        ("TOKEN", "token"),
    ] {
        let sent = head(
            "https://good.example",
            "/x?q=1",
            &[("authorization", &format!("{scheme} {github}"))],
        );
        let sent = stage.forward(sent).await;
        assert_eq!(field(&sent, "authorization"), [format!("{out} {GITHUB}")]);
        assert!(sent.fields["authorization"].is_sensitive());
    }
    let sent = stage
        .forward(head(
            "https://a.b.wild.example:8443",
            "/",
            &[("x-api-key", &other)],
        ))
        .await;
    assert_eq!(field(&sent, "x-api-key"), [OTHER]);
    let presented = stage.detect(&head(
        "https://other.example",
        "/",
        &[("x-api-key", &other)],
    ));
    assert_eq!(
        format!("{:?}", presented.lends()),
        "[CredentialUse(other at header:x-api-key)]"
    );
}

#[tokio::test]
async fn h05_basic_is_decoded_strictly_replaced_once_and_encoded_again() {
    let stage = stage().await;
    let phantom = stage.of("github");
    for (pair, out) in [
        (
            format!("x-access-token:{phantom}"),
            format!("x-access-token:{GITHUB}"),
        ),
        (format!(":{phantom}"), format!(":{GITHUB}")),
        (
            format!("{phantom}:x-oauth-basic"),
            format!("{GITHUB}:x-oauth-basic"),
        ),
        (format!("{phantom}:"), format!("{GITHUB}:")),
    ] {
        for scheme in ["Basic", "basic"] {
            let value = format!("{scheme} {}", STANDARD.encode(&pair));
            let sent = stage
                .forward(head(
                    "https://good.example",
                    "/",
                    &[("authorization", &value)],
                ))
                .await;
            assert_eq!(
                field(&sent, "authorization"),
                [format!("Basic {}", STANDARD.encode(&out))]
            );
            assert!(sent.fields["authorization"].is_sensitive());
        }
    }
}

#[tokio::test]
async fn h08_a_secret_that_contains_a_phantom_is_put_in_as_it_is() {
    let secrets = [
        ("a", "key-CANARYcanary0123456789CANARYcanary0"),
        ("b", "CANARYcanary0123456789"),
    ];
    let both = vec![
        binding("a", &["https://good.example"], &["header:x-a"]),
        binding("b", &["https://good.example"], &["header:x-b"]),
    ];
    let stage = lender(both, &secrets).await;
    let (a, b) = (stage.of("a"), stage.of("b"));
    // The first secret now contains the second one's phantom, with the same length and punctuation.
    let recursive = format!("key-{:0<1$}{b}", "CANARY", a.len() - b.len() - 4);
    stage.rotate("a", &recursive);
    let sent = stage
        .forward(head(
            "https://good.example",
            "/",
            &[("x-a", &a), ("x-b", &b)],
        ))
        .await;
    assert_eq!(field(&sent, "x-a"), [recursive]);
    assert_eq!(field(&sent, "x-b"), [secrets[1].1]);
}

#[tokio::test]
async fn r10_a_foreign_credential_is_stripped_where_that_is_said() {
    let strip = Binding {
        foreign: Foreign::Strip,
        ..usual().remove(0)
    };
    let stage = stage_of(vec![strip]).await;
    let bearer = format!("Bearer {}", stage.of("github"));
    let fields = [
        ("authorization", "Bearer attackers"),
        ("authorization", bearer.as_str()),
        ("x-api-key", "attackers"),
    ];
    let sent = stage
        .forward(head("https://good.example", "/", &fields))
        .await;
    assert_eq!(field(&sent, "authorization"), [format!("Bearer {GITHUB}")]);
    assert!(field(&sent, "x-api-key").is_empty());
    let bare = stage
        .forward(head("https://good.example", "/", &fields[..1]))
        .await;
    assert!(field(&bare, "authorization").is_empty());
}

#[tokio::test]
async fn h19_without_a_phantom_nothing_is_lent_unless_the_credential_is_always_put_in() {
    let stage = stage().await;
    assert!(
        stage
            .detect(&head("https://good.example", "/", &[]))
            .lends()
            .is_empty()
    );
    let always = |place: &str| Binding {
        when: When::Always,
        basic_user: Some("x-access-token".into()),
        ..binding("github", &["https://good.example"], &[place])
    };
    for (place, name, value) in [
        (
            "header:authorization:Bearer",
            "authorization",
            format!("Bearer {GITHUB}"),
        ),
        (
            "basic:password",
            "authorization",
            format!(
                "Basic {}",
                STANDARD.encode(format!("x-access-token:{GITHUB}"))
            ),
        ),
        (
            "basic:user",
            "authorization",
            format!("Basic {}", STANDARD.encode(format!("{GITHUB}:"))),
        ),
        ("cookie:sid", "cookie", format!("a=b; sid={GITHUB}")),
    ] {
        let stage = stage_of(vec![always(place)]).await;
        let sent = stage
            .forward(head("https://good.example", "/", &[("cookie", "a=b")]))
            .await;
        assert_eq!(field(&sent, name), [value]);
        assert!(
            stage
                .detect(&head("https://unmanaged.example", "/", &[]))
                .lends()
                .is_empty()
        );
    }
    let stage = stage_of(vec![always("query:key")]).await;
    for (target, out) in [("/x", "/x?key="), ("/x?a=b", "/x?a=b&key=")] {
        let sent = stage
            .forward(head("https://good.example", target, &[]))
            .await;
        assert_eq!(
            sent.target.path_and_query().as_str(),
            format!("{out}{GITHUB}")
        );
    }
}

#[tokio::test]
async fn cookies_and_query_values_are_replaced_in_their_place_alone() {
    let stage = stage().await;
    let (other, gemini) = (stage.of("other"), stage.of("gemini"));
    let cookie = format!("a=b; sid={other}; c=d");
    let sent = stage
        .forward(head("https://other.example", "/", &[("cookie", &cookie)]))
        .await;
    assert_eq!(field(&sent, "cookie"), [format!("a=b; sid={OTHER}; c=d")]);
    assert!(sent.fields["cookie"].is_sensitive());
    let sent = stage
        .forward(head(
            "https://gemini.example",
            &format!("/v1/m?alt=sse&key={gemini}&x=y"),
            &[],
        ))
        .await;
    assert_eq!(
        sent.target.path_and_query().as_str(),
        format!("/v1/m?alt=sse&key={GEMINI}&x=y")
    );
}

#[tokio::test]
async fn a_phantom_with_punctuation_stands_escaped_in_a_query_and_so_does_its_secret() {
    let stage = stage().await;
    let phantom = stage.of("padded");
    let escaped = |text: &str| {
        text.replace('=', "%3D")
            .replace('+', "%2B")
            .replace('/', "%2F")
    };
    let target = format!("/?sig={}", escaped(&phantom));
    let before = head("https://padded.example", &target, &[]);
    let length = before.target.path_and_query().as_str().len();
    let sent = stage.forward(before).await;
    assert_eq!(sent.target.query_pairs().next().unwrap().1, PADDED);
    assert_eq!(sent.target.path_and_query().as_str().len(), length);
}

#[tokio::test]
async fn a_secret_of_another_length_than_its_declared_shape_is_put_in() {
    let declared = Binding {
        shape: Some(Shape::parse("ghp_[35 alnum]").unwrap()),
        ..binding("github", &["https://good.example"], &["header:x-key"])
    };
    let stage = stage_of(vec![declared]).await;
    let sent = head(
        "https://good.example",
        "/",
        &[("x-key", &stage.of("github"))],
    );
    assert_eq!(field(&stage.forward(sent).await, "x-key"), [GITHUB]);
}

#[tokio::test]
async fn a_rotated_secret_is_put_in_where_the_same_phantom_stands() {
    let stage = stage().await;
    let bearer = format!("Bearer {}", stage.of("github"));
    let long = format!("ghs_{}", "CANARY.canary_0123456789".repeat(21));
    for secret in [
        GITHUB,
        "ghp_CANARYcanary0123456789CANARYcanary01",
        &long,
        "ghp_CANARY01",
    ] {
        stage.rotate("github", secret);
        let sent = stage
            .forward(head(
                "https://good.example",
                "/",
                &[("authorization", &bearer)],
            ))
            .await;
        assert_eq!(field(&sent, "authorization"), [format!("Bearer {secret}")]);
    }
}

#[tokio::test]
async fn a_rotated_secret_of_another_length_fits_each_kind_of_place() {
    let places = ["basic:password", "cookie:sid", "query:key"];
    for secret in ["CANARY01", &"CANARY-canary.0123456789".repeat(20)] {
        for place in places {
            let stage = stage_of(vec![binding("github", &["https://good.example"], &[place])]);
            let stage = stage.await;
            let phantom = stage.of("github");
            stage.rotate("github", secret);
            let basic = |token: &str| format!("Basic {}", STANDARD.encode(format!("u:{token}")));
            let (target, name, value, expected) = match place {
                "basic:password" => ("/", "authorization", basic(&phantom), basic(secret)),
                "cookie:sid" => (
                    "/",
                    "cookie",
                    format!("a=b; sid={phantom}; c=d"),
                    format!("a=b; sid={secret}; c=d"),
                ),
                _ => (
                    &*format!("/?a=b&key={phantom}&c=d"),
                    "x",
                    "y".into(),
                    "y".into(),
                ),
            };
            let asked = head("https://good.example", target, &[(name, &value)]);
            let sent = stage.forward(asked).await;
            assert_eq!(field(&sent, name), [expected], "{place}");
            let query = target.replace(&phantom, secret);
            assert_eq!(sent.target.path_and_query().as_str(), query, "{place}");
        }
    }
}

#[tokio::test]
async fn h09_a_secret_that_its_place_cannot_hold_is_not_put_in() {
    for (secret, place) in [
        ("CANARY:CANARY", "basic:user"),
        ("CANARY;CANARY", "cookie:sid"),
        ("CANARY\"CANARY", "cookie:sid"),
    ] {
        let always = Binding {
            when: When::Always,
            basic_user: Some("u".into()),
            ..binding("x", &["https://good.example"], &[place])
        };
        let stage = lender(vec![always], &[("x", secret)]).await;
        let failed = stage
            .try_forward(head("https://good.example", "/", &[]))
            .await
            .unwrap_err();
        assert_eq!(
            failed,
            AttachFailure::Unsafe(SecretUnsafe::Place),
            "{place}"
        );
        assert!(!format!("{failed} {failed:?}").contains("CANARY"));
    }
}

#[tokio::test]
async fn a_secret_in_the_path_stays_one_segment_or_is_not_put_in() {
    let places = ["path:/bot{}/", "query:key"];
    let bindings = vec![
        binding("github", &["https://good.example"], &places),
        binding("gemini", &["https://good.example"], &["query:key"]),
    ];
    let stage = lender(bindings, &SECRETS).await;
    let (github, gemini) = (stage.of("github"), stage.of("gemini"));
    let target = format!("/bot{github}/%7B%7D?key={gemini}");
    let sent = || head("https://good.example", &target, &[]);
    let out = stage.forward(sent()).await;
    let expected = format!("/bot{GITHUB}/%7B%7D?key={GEMINI}");
    assert_eq!(out.target.path_and_query().as_str(), expected);
    for (secret, sent_as) in [
        ("7000:AA-b_c", "7000:AA-b_c"),
        ("a b;c@d=e{}f", "a%20b%3Bc@d=e%7B%7Df"),
        ("a..b!$&'()*+,", "a..b!$&'()*+,"),
    ] {
        let target = sent().target.lending(4..4 + github.len());
        let with = target.with_lent(secret).unwrap();
        assert!(
            with.path().starts_with(&format!("/bot{sent_as}/")),
            "{with:?}"
        );
    }
    for secret in ["CANARY/x", "CANARY?x", "CANARY#x", "CANARY%41", "CANARY\\x"] {
        stage.rotate("github", secret);
        let failed = stage.try_forward(sent()).await.unwrap_err();
        assert_eq!(
            failed,
            AttachFailure::Unsafe(SecretUnsafe::Place),
            "{secret}"
        );
        assert!(!format!("{failed} {failed:?}").contains("CANARY"));
    }
    let dots = head("https://good.example", "/x/y", &[])
        .target
        .lending(1..2);
    assert!(dots.with_lent("..").is_err() && dots.with_lent(".").is_err());
}

#[tokio::test]
async fn a_fetched_secret_has_expired_at_its_end_and_not_before() {
    let stage = stage().await;
    let mut lease = stage.credentials.lease(&session(), 0).await.unwrap();
    let mut has_expired = |expires| {
        lease.expires = expires;
        have_expired(&vec![(name("github"), lease.clone())])
    };
    let now = Instant::now();
    assert!(has_expired(Some(now)));
    assert!(!has_expired(Some(now + Duration::from_secs(60))));
    assert!(!has_expired(None));
}

#[tokio::test]
async fn a_session_gets_phantoms_only_for_what_it_holds_in_the_variables_that_are_named() {
    let named = |credential: &str| Binding {
        variables: vec![format!("{credential}_VAR")],
        ..binding(credential, &["https://a.example"], &["header:x-api-key"])
    };
    let declared = Binding {
        shape: Some(Shape::parse("glpat-[20 alnum]").unwrap()),
        ..named("declared")
    };
    let store = Arc::new(MemoryStore::default());
    store.put("env:github", GITHUB.as_bytes(), None);
    let bindings = stored(vec![named("github"), declared, named("absent")]);
    let credentials = Credentials::new(bindings, &Stores::with(store)).unwrap();
    let key = PhantomKey::from_bytes([1; 32]);
    let (phantoms, _) = credentials
        .issue(&session(), &key, &mut KeptShapes::default(), |name| {
            name.as_str() != "absent"
        })
        .await
        .unwrap();
    let environment: Vec<_> = credentials.bindings().environment(&phantoms).collect();
    assert_eq!(environment.len(), 2);
    assert!(environment[0].0 == "github_VAR" && environment[0].1.starts_with("ghp_"));
    assert!(environment[1].0 == "declared_VAR" && environment[1].1.starts_with("glpat-"));
    assert_ne!(environment[0].1, GITHUB);
    assert!(matches!(
        credentials
            .issue(&session(), &key, &mut KeptShapes::default(), |_| true)
            .await,
        Err(IssueFailure::Unavailable { .. })
    ));
}
