//! A login is renewed once for all gateways, no token is lost, and the end of a login is reported.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gateway_message::Origin;
use gateway_names::{CredentialName, SessionId};
use gateway_state::{LoginRows, SealingKey, unix};
use http::{Request, StatusCode};
use parking_lot::Mutex;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::super::{
    HttpAnswer, HttpClient, SecretRef, SecretSource, StoreError, StoreFuture, Stores,
};
use super::lock::LoginLock;
use super::{LoginSettings, Logins, RowLogin};
use crate::login::{
    FileFormat, Issuer, Login, LoginFile, LoginPlace, LoginToken, RequestFormat, TokenEndpoint,
    TokenGrant, TokenKind, Tokens,
};
use crate::secret::Secret;

type Hook = Box<dyn Fn() + Send + Sync>;

/// An authorization server that rotates refresh tokens, and ends the family when a used one comes.
#[derive(Default)]
struct Rotating {
    /// How many pairs it issued. The last refresh token is `REFRESH-n`; 0 if the family has ended.
    last: Mutex<Option<usize>>,
    asked: Mutex<Vec<String>>,
    /// Runs while it responds.
    meanwhile: Mutex<Option<Hook>>,
    /// The time until which it is busy.
    busy: Mutex<Option<SystemTime>>,
    /// The error with which it fails instead.
    fails: Mutex<Option<StoreError>>,
    life: Mutex<Option<u64>>,
    delay: Duration,
}

impl Rotating {
    fn answer(&self, content: &str) -> (StatusCode, Value) {
        self.asked.lock().push(content.to_owned());
        if content.starts_with("token=") {
            return (StatusCode::OK, json!({}));
        }
        if content.contains("client_credentials") {
            let answer = json!({ "access_token": access(1), "expires_in": "60" });
            return (StatusCode::OK, answer);
        }
        let mut last = self.last.lock();
        match *last {
            Some(n) if content.contains(&format!("refresh_token={}&", refresh(n))) => {
                *last = Some(n + 1);
                let (access, refresh) = (access(n + 1), refresh(n + 1));
                let mut answer = json!({ "access_token": access, "refresh_token": refresh });
                if let Some(life) = *self.life.lock() {
                    answer["expires_in"] = life.into();
                }
                (StatusCode::OK, answer)
            }
            _ => {
                *last = None;
                (StatusCode::BAD_REQUEST, json!({ "error": "invalid_grant" }))
            }
        }
    }
}

impl HttpClient for Rotating {
    fn send<'a>(
        &'a self,
        _: &'a Origin,
        request: Request<Zeroizing<Vec<u8>>>,
    ) -> StoreFuture<'a, HttpAnswer> {
        Box::pin(async move {
            tokio::time::sleep(self.delay).await;
            if let Some(cause) = self.fails.lock().clone() {
                return Err(cause);
            }
            let content = String::from_utf8(request.body().to_vec()).unwrap();
            let retry_after = *self.busy.lock();
            let (status, answer) = match retry_after {
                Some(_) => {
                    self.asked.lock().push(content);
                    (StatusCode::TOO_MANY_REQUESTS, json!({}))
                }
                None => self.answer(&content),
            };
            if let Some(hook) = self.meanwhile.lock().take() {
                hook();
            }
            let content = Zeroizing::new(answer.to_string().into_bytes());
            let location = None;
            Ok(HttpAnswer {
                status,
                location,
                retry_after,
                content,
            })
        })
    }
}

fn access(n: usize) -> String {
    format!("ACCESS-CANARY-{n:04}")
}

fn refresh(n: usize) -> String {
    format!("REFRESH-CANARY-{n:04}")
}

fn name() -> CredentialName {
    CredentialName::new("claude").unwrap()
}

fn session(text: &str) -> SessionId {
    SessionId::new(text).unwrap()
}

/// A user's folder with the file of a program, and an issuer.
struct Stage {
    folder: tempfile::TempDir,
    issuer: Arc<Rotating>,
    key: Arc<SealingKey>,
    lock: Option<PathBuf>,
}

impl Stage {
    fn new() -> Self {
        Self::with(Rotating::default())
    }

    fn with(issuer: Rotating) -> Self {
        *issuer.last.lock() = Some(1);
        *issuer.life.lock() = Some(3600);
        let key = SealingKey::from_text(SealingKey::draw().unwrap().as_bytes());
        Self {
            folder: tempfile::tempdir().unwrap(),
            issuer: Arc::new(issuer),
            key: Arc::new(key.unwrap()),
            lock: None,
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("credentials.json")
    }

    /// Writes the file with the pair of this number, which expires in this many seconds.
    fn holds(&self, n: usize, ends_in: i64) -> &Self {
        write(&self.path(), n, ends_in);
        self
    }

    fn read(&self) -> Value {
        serde_json::from_slice(&std::fs::read(self.path()).unwrap()).unwrap()
    }

    fn login(&self) -> Login {
        let pointer = |kind, at: &str| (kind, at.to_owned());
        let endpoint = |url| TokenEndpoint::parse(url).unwrap();
        let token = |kind, origin: &str| LoginToken {
            kind,
            origins: [origin].iter().filter_map(|one| one.parse().ok()).collect(),
            places: vec!["header:authorization:Bearer".parse().unwrap()],
            ..LoginToken::kept(kind)
        };
        Login {
            name: name(),
            place: LoginPlace::File(LoginFile {
                path: self.path(),
                inside: "credentials.json".into(),
                lock: self.lock.clone(),
                format: FileFormat::Json,
                members: vec![
                    pointer(TokenKind::Access, "/oauth/access"),
                    pointer(TokenKind::Refresh, "/oauth/refresh"),
                ],
                expires: Some("/oauth/expires".to_owned()),
                renewed: None,
                shown: Vec::new(),
                filled: Vec::new(),
            }),
            issuer: Some(Issuer {
                endpoint: endpoint("https://issuer.example/token"),
                revocation: Some(endpoint("https://issuer.example/revoke")),
                client: Some("client-1".to_owned()),
                secret: None,
                scopes: Vec::new(),
                grant: TokenGrant::Refresh,
                requests: RequestFormat::Form,
            }),
            tokens: vec![
                token(TokenKind::Access, "https://api.example"),
                token(TokenKind::Refresh, ""),
            ],
        }
    }

    fn settings(&self) -> LoginSettings {
        let login = self.login();
        let server = login.issuer.as_ref().unwrap().endpoint.origin.clone();
        let client: Arc<dyn HttpClient> = self.issuer.clone();
        let key = self.key.clone();
        LoginSettings {
            logins: vec![login],
            clients: vec![(server, client)],
            rows: Some((
                self.rows(),
                Arc::new(move || Box::pin(std::future::ready(Ok(key.clone())))),
            )),
        }
    }

    fn rows(&self) -> LoginRows {
        LoginRows::at(&self.folder.path().join("sessions/user.db"))
    }

    /// The stores of one more process.
    fn stores(&self) -> Stores {
        Stores::new([]).with_logins(self.settings(), None)
    }

    fn asked(&self) -> usize {
        self.issuer.asked.lock().len()
    }
}

fn write(path: &std::path::Path, n: usize, ends_in: i64) {
    let now = i64::try_from(unix(SystemTime::now())).unwrap();
    let text = json!({
        "oauth": { "access": access(n), "refresh": refresh(n), "expires": (now + ends_in) * 1000 },
        "other": { "mcp": "kept" },
    });
    std::fs::write(path, text.to_string()).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o640)).unwrap();
}

fn source(stores: &Stores) -> SecretSource {
    stores.source(&SecretRef::login(name(), TokenKind::Access))
}

async fn had(stores: &Stores, of: &str) -> Result<usize, StoreError> {
    let read = source(stores).resolve(Some(&session(of))).await;
    let read = read.map_err(|why| {
        assert!(!format!("{why} {why:?}").contains("CANARY"));
        why.cause
    })?;
    Ok((0..100)
        .find(|n| read.secret.is(access(*n).as_bytes()))
        .unwrap())
}

async fn rows(logins: &Logins) -> Vec<RowLogin> {
    let rows = logins.rows(|_| true).await.unwrap().into_iter();
    rows.map(Result::unwrap).collect()
}

fn said(had: Result<usize, StoreError>) -> String {
    had.unwrap_err().to_string()
}

#[tokio::test]
async fn a_token_that_has_ended_is_renewed_in_its_file_and_nothing_else_of_it_changes() {
    let stage = Stage::new();
    let stores = stage.holds(1, -5).stores();
    for _ in 0..3 {
        assert_eq!(had(&stores, "one").await, Ok(2));
        assert_eq!(had(&stores, "two").await, Ok(2));
    }
    assert_eq!(stage.asked(), 1);
    let now = stage.read();
    assert_eq!(now["oauth"]["refresh"], refresh(2).as_str());
    assert_eq!(now["other"]["mcp"], "kept");
    let mode = std::fs::metadata(stage.path())
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o640);
    assert!(stage.issuer.asked.lock()[0].contains("client_id=client-1"));
    // A file that another program changed is used as it is.
    stage.holds(7, 3600);
    tokio::time::sleep(Duration::from_millis(1100)).await;
    had(&stores, "one").await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(had(&stores, "one").await, Ok(7));
}

#[tokio::test]
async fn an_end_that_nobody_told_does_not_stay_the_old_one() {
    let stage = Stage::new();
    *stage.issuer.life.lock() = None;
    stage.holds(1, -5);
    for _ in 0..3 {
        assert_eq!(had(&stage.stores(), "one").await, Ok(2));
    }
    assert_eq!(stage.asked(), 1, "each start finds a token that holds");
    let end = stage.read()["oauth"]["expires"].as_u64().unwrap() / 1000;
    let assumed = unix(SystemTime::now() + Duration::from_secs(3600));
    assert!(end.abs_diff(assumed) < 60, "{end} {assumed}");
}

#[tokio::test]
async fn a_busy_issuer_is_named_and_asked_again_when_it_says() {
    let stage = Stage::new();
    let stores = stage.holds(1, -5).stores();
    *stage.issuer.busy.lock() = Some(SystemTime::now() + Duration::from_secs(600));
    for of in ["one", "two", "three"] {
        let why = said(had(&stores, of).await);
        let is_told = why.contains("`issuer.example` is busy until 2") && !why.contains("from");
        assert!(is_told, "{why}");
    }
    assert_eq!(stage.asked(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_gateways_renew_once() {
    let stage = Stage::with(Rotating {
        delay: Duration::from_millis(200),
        ..Rotating::default()
    });
    stage.holds(1, -5);
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let stores = stage.stores();
        all.spawn(async move { had(&stores, "exec").await });
    }
    assert!(all.join_all().await.iter().all(|had| *had == Ok(2)));
    assert_eq!(stage.asked(), 1);
}

#[tokio::test]
async fn a_refusal_is_believed_once_the_file_was_read_again() {
    // Another program renews while the gateway asks: its tokens are used.
    let stage = Stage::new();
    let stores = stage.holds(1, -5).stores();
    *stage.issuer.last.lock() = Some(5);
    let path = stage.path();
    *stage.issuer.meanwhile.lock() = Some(Box::new(move || write(&path, 6, 3600)));
    assert_eq!(had(&stores, "one").await, Ok(6));
    // No other program renewed: the login is over, and no further request is sent to the issuer.
    stage.holds(3, -5);
    let stores = stage.stores();
    let before = stage.asked();
    for of in ["one", "two"] {
        let why = said(had(&stores, of).await);
        assert!(
            why.contains("invalid_grant") && why.contains("log in again"),
            "{why}"
        );
        assert!(why.contains(stage.path().to_str().unwrap()), "{why}");
    }
    assert_eq!(stage.asked(), before + 1);
}

#[tokio::test]
async fn what_changed_while_the_issuer_answered_is_kept_beside_the_new_tokens() {
    let stage = Stage::new();
    let stores = stage.holds(1, -5).stores();
    let path = stage.path();
    *stage.issuer.meanwhile.lock() = Some(Box::new(move || {
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("kept", "changed")).unwrap();
    }));
    assert_eq!(had(&stores, "one").await, Ok(2));
    assert_eq!(stage.read()["other"]["mcp"], "changed");
    assert_eq!(stage.read()["oauth"]["refresh"], refresh(2).as_str());
    // A login made meanwhile is not overwritten.
    let stores = stage.holds(2, -5).stores();
    let path = stage.path();
    *stage.issuer.meanwhile.lock() = Some(Box::new(move || write(&path, 9, 3600)));
    assert_eq!(had(&stores, "one").await, Ok(9));
}

#[tokio::test]
async fn while_the_issuer_cannot_be_reached_the_held_token_serves_until_it_ends() {
    for cause in [
        StoreError::NotConnected("no way".into()),
        StoreError::BrokenOff("cut".into()),
    ] {
        let stage = Stage::new();
        *stage.issuer.fails.lock() = Some(cause.clone());
        // An end is a whole second. This second has just begun, so a token with 1 s left is valid.
        let since = || UNIX_EPOCH.elapsed().unwrap().subsec_millis();
        while since() > 200 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let stores = stage.holds(1, 1).stores();
        assert_eq!(had(&stores, "one").await, Ok(1));
        tokio::time::sleep(Duration::from_millis(1200)).await;
        assert_eq!(had(&stores, "one").await, Err(cause));
        *stage.issuer.fails.lock() = None;
        tokio::time::sleep(Duration::from_millis(1100)).await;
        assert_eq!(had(&stores, "one").await, Ok(2));
    }
}

#[tokio::test]
async fn an_answer_without_an_end_counts_an_hour() {
    let stage = Stage::new();
    *stage.issuer.life.lock() = None;
    let logins = stage.holds(1, 3600).stores();
    let tokens = Tokens {
        access: access(1).into(),
        refresh: Some(refresh(1).into()),
        expires: Some(SystemTime::now()),
        ..Tokens::default()
    };
    logins
        .logins()
        .take(&session("one"), &stage.login(), tokens)
        .await
        .unwrap();
    for _ in 0..2 {
        assert_eq!(had(&logins, "one").await, Ok(2));
    }
    assert_eq!(stage.asked(), 1);
}

#[tokio::test]
async fn a_file_that_cannot_be_used_says_why_and_what_to_do() {
    let stage = Stage::new();
    let path = stage.path();
    let shown = path.display().to_string();
    let none = said(had(&stage.stores(), "one").await);
    assert!(none.contains("no login") && none.contains(&shown), "{none}");
    stage.holds(1, 3600);
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let cut = said(had(&stage.stores(), "one").await);
    assert!(
        cut.contains(&shown) && cut.contains("log in again"),
        "{cut}"
    );
    stage.holds(1, 3600);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o622)).unwrap();
    let open = said(had(&stage.stores(), "one").await);
    assert!(open.contains(&format!("chmod go-w {shown}")), "{open}");
}

#[tokio::test]
async fn an_end_between_the_answer_and_the_disk_is_told_at_every_start() {
    let stage = Stage::new();
    stage.holds(1, -5);
    // The previous process sent this token.
    let wait = Duration::ZERO;
    let lock = LoginLock::take(&stage.rows(), &name(), None, wait).await;
    let note = super::lock::note(&super::lock::digest(&refresh(1)));
    lock.unwrap().unwrap().note(&note).unwrap();
    *stage.issuer.last.lock() = None;
    for _ in 0..2 {
        let why = said(had(&stage.stores(), "one").await);
        assert!(
            why.contains("was ended or cut off") && why.contains("log in again"),
            "{why}"
        );
    }
    // If the issuer never received it, nothing is lost.
    *stage.issuer.last.lock() = Some(1);
    assert_eq!(had(&stage.stores(), "one").await, Ok(2));
}

#[tokio::test]
async fn the_programs_own_lock_is_waited_for_unless_it_is_stale() {
    let mut stage = Stage::new();
    let lock = stage.folder.path().join("program.lock");
    stage.lock = Some(lock.clone());
    std::fs::create_dir(&lock).unwrap();
    let stores = stage.holds(1, -5).stores();
    let (released, path) = (lock.clone(), stage.path());
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(300)).await;
        write(&path, 4, 3600);
        std::fs::remove_dir(released).unwrap();
    });
    assert_eq!(had(&stores, "one").await, Ok(4));
    assert_eq!(stage.asked(), 0);
    std::fs::create_dir(&lock).unwrap();
    let folder = std::fs::File::open(&lock).unwrap();
    folder
        .set_modified(SystemTime::now() - Duration::from_secs(11))
        .unwrap();
    assert_eq!(had(&stage.holds(1, -5).stores(), "one").await, Ok(2));
    assert!(!lock.exists());
}

#[tokio::test]
async fn the_programs_lock_of_a_gateway_that_was_killed_is_taken_at_once() {
    let stage = Stage::new();
    let folder = stage.folder.path();
    let (made, aside) = (folder.join("lock"), folder.join("aside"));
    let wait = Duration::ZERO;
    let take = async || {
        let (rows, name) = (stage.rows(), name());
        let taken = LoginLock::take(&rows, &name, Some(&made), wait);
        taken.await.unwrap()
    };
    for note in ["", "sent"] {
        let mut killed = take().await.unwrap();
        killed.note(note).unwrap();
        std::fs::rename(&made, &aside).unwrap();
        drop(killed);
        std::fs::rename(&aside, &made).unwrap();
        assert_eq!(take().await.unwrap().left.unwrap_or_default(), note);
        assert!(!made.exists());
    }
    std::fs::create_dir(&made).unwrap();
    assert!(take().await.is_none(), "the program's own");
}

#[tokio::test]
async fn what_a_session_logs_in_to_is_its_own_until_it_is_kept() {
    let stage = Stage::new();
    let stores = stage.holds(8, 3600).stores();
    let logins: Logins = stores.logins();
    assert_eq!(had(&stores, "one").await, Ok(8));
    let tokens = Tokens {
        access: access(1).into(),
        refresh: Some(refresh(1).into()),
        expires: Some(SystemTime::now()),
        ..Tokens::default()
    };
    logins
        .take(&session("one"), &stage.login(), tokens)
        .await
        .unwrap();
    // It is renewed in its row, and a reload reads it from there.
    let reloaded = Stores::new([]).with_logins(stage.settings(), Some(&stores));
    assert_eq!(had(&reloaded, "one").await, Ok(2));
    assert_eq!(
        (had(&stores, "two").await, had(&stage.stores(), "one").await),
        (Ok(8), Ok(8))
    );
    assert_eq!(stage.read()["oauth"]["access"], access(8).as_str());
    let rows = rows(&logins).await;
    assert_eq!(rows.len(), 1);
    // Another process keeps it, and both continue with it.
    let other = stage.stores();
    assert_eq!(other.logins().keep(&rows[0].name).await, Ok(true));
    assert_eq!(other.logins().keep(&rows[0].name).await, Ok(false));
    assert_eq!(had(&stage.stores(), "three").await, Ok(2));
    other.logins().forget(&name()).await.unwrap();
    let revoked = stage.issuer.asked.lock().last().cloned().unwrap();
    assert!(
        revoked.starts_with(&format!("token={}", refresh(2))),
        "{revoked}"
    );
    assert_eq!(had(&stage.stores(), "four").await, Ok(8));
    let forgotten = other.logins().forget(&name()).await.unwrap();
    assert!(!forgotten.was_kept && !forgotten.is_revoked);
    // Another login that is kept under this name does not belong to the session.
    let other_tokens = Tokens {
        access: access(30).into(),
        ..Tokens::default()
    };
    let stranger = other.logins();
    stranger
        .take(&session("five"), &stage.login(), other_tokens)
        .await
        .unwrap();
    let row = self::rows(&stranger).await.remove(0);
    assert_eq!(stranger.keep(&row.name).await, Ok(true));
    assert_eq!(had(&other, "five").await, Ok(30));
    assert!(had(&reloaded, "one").await.is_err());
}

#[tokio::test]
async fn a_second_answer_without_a_refresh_token_keeps_the_first_of_the_same_account() {
    let stage = Stage::new();
    let logins = stage.holds(8, 3600).stores().logins();
    let given = |n, owner: Option<&str>, is_first: bool| Tokens {
        access: access(n).into(),
        refresh: is_first.then(|| refresh(n).into()),
        owner: owner.map(str::to_owned),
        ..Tokens::default()
    };
    for (owner, is_kept) in [(Some("ann"), true), (None, true), (Some("eve"), false)] {
        for tokens in [given(1, Some("ann"), true), given(2, owner, false)] {
            let (one, login) = (session("one"), stage.login());
            logins.take(&one, &login, tokens).await.unwrap();
        }
        let tokens = &rows(&logins).await[0].tokens;
        assert_eq!(tokens.access.as_str(), access(2));
        assert_eq!(tokens.account().as_deref(), owner);
        let kept = tokens.refresh.as_ref().map(|token| token.as_str());
        assert_eq!(kept, is_kept.then_some(refresh(1).as_str()), "{owner:?}");
    }
}

#[tokio::test]
async fn a_session_that_logs_out_ends_its_own_login_and_not_the_users() {
    let stage = Stage::new();
    let stores = stage.holds(8, 3600).stores();
    assert!(!stores.logins().end(&session("one"), &name()).await);
    assert_eq!(had(&stores, "one").await, Err(StoreError::Ended));
    assert_eq!(had(&stores, "two").await, Ok(8));
    let tokens = Tokens {
        access: access(1).into(),
        ..Tokens::default()
    };
    let logins = stores.logins();
    logins
        .take(&session("one"), &stage.login(), tokens)
        .await
        .unwrap();
    assert_eq!(had(&stores, "one").await, Ok(1));
    assert!(logins.end(&session("one"), &name()).await);
    assert!(rows(&logins).await.is_empty());
    // A login that a person has kept meanwhile belongs to the user.
    let tokens = Tokens {
        access: access(3).into(),
        ..Tokens::default()
    };
    let taken = logins.take(&session("one"), &stage.login(), tokens).await;
    taken.unwrap();
    let row = rows(&logins).await.remove(0);
    assert_eq!(logins.keep(&row.name).await, Ok(true));
    let asked = stage.asked();
    assert!(!logins.end(&session("one"), &name()).await);
    assert_eq!(stage.asked(), asked);
    assert_eq!(had(&stores, "two").await, Ok(3));
    // Another issuer's login of the same name does not replace it.
    let mut foreign = stage.login();
    let endpoint = TokenEndpoint::parse("https://other.example/token");
    foreign.issuer.as_mut().unwrap().endpoint = endpoint.unwrap();
    let tokens = Tokens {
        access: access(4).into(),
        ..Tokens::default()
    };
    let taken = logins.take(&session("one"), &foreign, tokens).await;
    taken.unwrap();
    let waiting = rows(&logins).await.remove(1);
    let why = logins.keep(&waiting.name).await.unwrap_err().to_string();
    assert!(why.contains("of another issuer"), "{why}");
    assert_eq!(had(&stores, "two").await, Ok(3));
    stores.end(&session("one")).await;
}

#[tokio::test]
async fn a_token_of_a_clients_secret_is_made_once_and_again_before_it_ends() {
    let stage = Stage::new();
    let mut settings = stage.settings();
    let issuer = settings.logins[0].issuer.as_mut().unwrap();
    issuer.grant = TokenGrant::ClientCredentials;
    let stores = Stores::new([]).with_logins(settings, None);
    for of in ["one", "two", "one"] {
        assert_eq!(had(&stores, of).await, Ok(1));
    }
    assert!(stage.issuer.asked.lock()[0].contains("grant_type=client_credentials"));
    assert_eq!(stage.asked(), 1);
}

#[tokio::test]
async fn a_token_that_its_service_refused_is_replaced_once_and_by_who_asks_for_that_alone() {
    let stage = Stage::new();
    let stores = stage.holds(1, 3600).stores();
    let (logins, one) = (stores.logins(), session("one"));
    let replace = async || logins.replace_refused(&one, &name()).await;
    let refuse = async || {
        let read = source(&stores).resolve(Some(&one)).await.ok().unwrap();
        logins.refuse(&one, &name(), &read.secret);
    };
    // No service refused it, so it is not renewed.
    assert_eq!(replace().await, Ok(()));
    refuse().await;
    assert_eq!((had(&stores, "one").await, stage.asked()), (Ok(1), 0));
    for _ in 0..3 {
        assert_eq!(replace().await, Ok(()));
        assert_eq!((had(&stores, "one").await, stage.asked()), (Ok(2), 1));
    }
    // The other session had the earlier token, which is replaced already.
    let two = session("two");
    let secret = Secret::new(access(1).into_bytes().into(), false).unwrap();
    logins.refuse(&two, &name(), &secret);
    assert_eq!(logins.replace_refused(&two, &name()).await, Ok(()));
    assert_eq!(stage.asked(), 1);
    // A workload can have any token refused: this next one is replaced only a minute later.
    refuse().await;
    assert_eq!(replace().await, Ok(()));
    assert_eq!(stage.asked(), 1);
}

#[tokio::test]
async fn a_refused_token_that_its_issuer_does_not_replace_is_over() {
    let stage = Stage::new();
    let stores = stage.holds(1, 3600).stores();
    let (logins, one) = (stores.logins(), session("one"));
    let replace = async || logins.replace_refused(&one, &name()).await;
    let refuse = async || {
        let read = source(&stores).resolve(Some(&one)).await.ok().unwrap();
        logins.refuse(&one, &name(), &read.secret);
    };
    // The user logged out elsewhere: the issuer refuses too, and gets one request.
    *stage.issuer.last.lock() = None;
    refuse().await;
    for _ in 0..3 {
        let why = replace().await.unwrap_err();
        assert!(why.is_final(), "{why}");
        assert_eq!(stage.asked(), 1);
    }
    // A token that nothing renews is over.
    let tokens = Tokens {
        access: access(30).into(),
        ..Tokens::default()
    };
    logins.take(&one, &stage.login(), tokens).await.unwrap();
    refuse().await;
    assert!(replace().await.unwrap_err().is_final());
}

#[tokio::test]
async fn a_busy_issuer_of_one_login_is_not_that_of_another() {
    let stage = Stage::new();
    let stores = stage.holds(1, -5).stores();
    let logins = stores.logins();
    *stage.issuer.busy.lock() = Some(SystemTime::now() + Duration::from_secs(600));
    assert!(had(&stores, "one").await.is_err());
    *stage.issuer.busy.lock() = None;
    let tokens = Tokens {
        access: access(1).into(),
        refresh: Some(refresh(1).into()),
        expires: Some(SystemTime::now()),
        ..Tokens::default()
    };
    let two = session("two");
    logins.take(&two, &stage.login(), tokens).await.unwrap();
    assert_eq!(had(&stores, "two").await, Ok(2));
    assert!(said(had(&stores, "three").await).contains("busy until"));
    assert_eq!(stage.asked(), 2);
}

#[tokio::test]
async fn an_issuer_is_asked_only_if_the_row_of_the_state_can_be_written() {
    let stage = Stage::new();
    let (stores, one) = (stage.stores(), session("one"));
    let (logins, login) = (stores.logins(), stage.login());
    let tokens = Tokens {
        access: access(1).into(),
        refresh: Some(refresh(1).into()),
        expires: Some(SystemTime::now()),
        ..Tokens::default()
    };
    logins.take(&one, &login, tokens).await.unwrap();
    // As a disk that takes nothing: who reads is answered, and who writes waits in vain.
    let database = stage.folder.path().join("sessions/user.db");
    let blocked = rusqlite::Connection::open(database).unwrap();
    blocked.execute_batch("BEGIN IMMEDIATE").unwrap();
    let why = said(had(&stores, "one").await);
    assert!(why.contains("its new tokens could not be kept"), "{why}");
    assert_eq!(stage.asked(), 0);
    blocked.execute_batch("ROLLBACK").unwrap();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!((had(&stores, "one").await, stage.asked()), (Ok(2), 1));
    let kept = &rows(&logins).await[0].tokens;
    assert_eq!(**kept.refresh.as_ref().unwrap(), refresh(2));
}
