//! `gateway login` by the shipped program, before a stand-in of an issuer that checks what it is
//! asked.

#[path = "rig/addresses.rs"]
mod addresses;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

const ACCESS: &str = "access-CANARY-0123456789abcdef";
const REFRESH: &str = "refresh-CANARY-0123456789abcdef";
const SECRET: &str = "a-client+secret-CANARY";

/// An issuer, and a service that takes its tokens: what each was asked.
#[derive(Clone, Default)]
struct Issuer {
    asked: Arc<Mutex<Vec<(String, String)>>>,
    /// The challenge of the login under way (RFC 7636 §4.2).
    challenge: Arc<Mutex<String>>,
    /// After how many seconds its tokens end, if not after an hour.
    ends_in: Option<u32>,
}

impl Issuer {
    fn start(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let issuer = self.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let issuer = issuer.clone();
                std::thread::spawn(move || issuer.serve(stream.unwrap()));
            }
        });
        address
    }

    fn serve(&self, stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let (mut head, mut line) = (String::new(), String::new());
        while reader.read_line(&mut line).is_ok_and(|length| length > 2) {
            head.push_str(&std::mem::take(&mut line));
        }
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("content-length")
                .then(|| value.parse().unwrap())
        });
        let mut content = vec![0; length.unwrap_or(0)];
        reader.read_exact(&mut content).unwrap();
        let content = String::from_utf8(content).unwrap();
        let Some(path) = head.split(' ').nth(1).map(str::to_owned) else {
            return;
        };
        let (status, answer) = self.answer(&path, &head, &content);
        self.asked.lock().unwrap().push((path, head + &content));
        let answer = answer.to_string();
        let _ = write!(
            &stream,
            "HTTP/1.1 {status} x\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{answer}",
            answer.len()
        );
    }

    fn answer(&self, path: &str, head: &str, content: &str) -> (u16, Value) {
        let tokens = json!({
            "access_token": ACCESS, "refresh_token": REFRESH, "token_type": "Bearer",
            "expires_in": self.ends_in.unwrap_or(3600),
            "id_token": format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(r#"{"email":"me@example.org"}"#)),
        });
        let refused = |word: &str| (400, json!({ "error": word }));
        let basic = STANDARD.encode("own-client:a-client%2Bsecret-CANARY");
        // As a password, or where only its row says it.
        let has_secret = head
            .to_lowercase()
            .contains(&format!("authorization: basic {}", basic.to_lowercase()))
            || form(content, "client_secret")
                .is_some_and(|secret| path == "/revoke" && secret.contains("CANARY"));
        match (path, form(content, "grant_type").as_deref()) {
            ("/api", _) => (200, json!({})),
            _ if !has_secret => refused("invalid_client"),
            ("/device", _) if form(content, "scope").as_deref() != Some("read%20write") => {
                refused("invalid_scope")
            }
            ("/device", _) => (
                200,
                json!({
                    "device_code": "dc", "user_code": "WDJB-\u{1b}[2JMJHT", "interval": 1, "expires_in": 60,
                    "verification_uri": "https://as.test/device",
                }),
            ),
            ("/token", Some(grant)) if grant.ends_with("device_code") => {
                let before = self.asked.lock().unwrap();
                match before.iter().filter(|(path, _)| path == "/token").count() {
                    0 => refused("authorization_pending"),
                    _ => (200, tokens),
                }
            }
            ("/token", Some("authorization_code")) => {
                let verifier = form(content, "code_verifier").unwrap();
                let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(verifier));
                match form(content, "code").as_deref() {
                    Some("c1") if challenge == *self.challenge.lock().unwrap() => (200, tokens),
                    _ => refused("invalid_grant"),
                }
            }
            ("/token", Some("client_credentials" | "refresh_token")) => (200, tokens),
            ("/revoke", _) => (200, json!({})),
            _ => refused("unsupported_grant_type"),
        }
    }
}

fn form(content: &str, name: &str) -> Option<String> {
    let mut pairs = content.split('&').filter_map(|pair| pair.split_once('='));
    pairs
        .find(|(known, _)| *known == name)
        .map(|(_, value)| value.to_owned())
}

/// Writes a configuration with a login that these lines complete.
fn configure(folder: &Path, issuer: &str, lines: &str) {
    let secret = folder.join("secret");
    fs::write(&secret, SECRET).unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let text = format!(
        "[[login]]\nname = \"crm\"\ntoken_url = \"{issuer}/token\"\nclient_id = \"own-client\"\nclient_secret = \"file:secret\"\n\
         scopes = [\"read\", \"write\"]\nrevocation_url = \"{issuer}/revoke\"\norigins = [\"https://crm.test\"]\n{lines}\n"
    );
    fs::write(folder.join("gateway.toml"), text).unwrap();
}

fn gateway(folder: &Path, arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gateway"));
    let command = command.args(arguments).current_dir(folder).env_clear();
    let command = command.env("HOME", folder).stdin(Stdio::null());
    command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[track_caller]
fn ends(child: Child, code: i32) -> String {
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8(said).unwrap();
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(!said.contains("CANARY"), "{said}");
    said
}

const LOGIN: [&str; 5] = ["login", "add", "crm", "--config", "gateway.toml"];

#[test]
fn a_code_is_typed_on_another_device() {
    let (folder, issuer) = (tempfile::tempdir().unwrap(), Issuer::default());
    let address = issuer.start();
    configure(
        folder.path(),
        &address,
        &format!("device_url = \"{address}/device\""),
    );
    let said = ends(gateway(folder.path(), &LOGIN), 0);
    assert!(
        said.contains("https://as.test/device") && said.contains("WDJB-"),
        "{said}"
    );
    assert!(!said.contains('\u{1b}'), "{said}");
    assert!(said.contains("logged in: crm, as me@example.org"), "{said}");
    for entry in walk(folder.path()) {
        let text = fs::read(&entry).unwrap();
        let holds = |secret: &str| {
            text.windows(secret.len())
                .any(|part| part == secret.as_bytes())
        };
        assert!(!holds(ACCESS) && !holds(REFRESH), "{}", entry.display());
    }
    let listed = ends(gateway(folder.path(), &["login", "list", "--json"]), 0);
    let listed: Value = serde_json::from_str(listed.lines().next().unwrap()).unwrap();
    let one = &listed["logins"][0];
    let told = ["name", "account", "place"].map(|member| one[member].as_str().unwrap());
    assert_eq!(told, ["crm", "me@example.org", "state"]);
    assert_eq!(
        (&one["kept"], &one["hosts"][0]),
        (&json!(true), &json!("https://crm.test"))
    );
    let said = ends(gateway(folder.path(), &["login", "list"]), 0);
    assert!(
        said.contains("crm, as me@example.org  kept  until 2"),
        "{said}"
    );
    // What cannot be read keeps nobody from the others, and what nobody keeps is forgotten.
    let kept = walk(folder.path()).into_iter();
    let kept = kept
        .filter(|path| path.ends_with("user.db"))
        .collect::<Vec<_>>();
    let rows = rusqlite::Connection::open(&kept[0]).unwrap();
    let names = ["broken", "crm@0123456789abcdef", "crm@fedcba9876543210"].map(str::as_bytes);
    let copy = "INSERT INTO kept SELECT kind, ?1, version, written, content FROM kept \
                WHERE kind = 'login' AND name = CAST('crm' AS BLOB)";
    for name in names {
        assert_eq!(rows.execute(copy, [name]).unwrap(), 1);
    }
    let long_ago = 31 * 86_400 * 1_000_000_000_i64;
    for name in [&b"crm"[..], names[1]] {
        let age = "UPDATE kept SET written = written - ?1 WHERE kind = 'login' AND name = ?2";
        assert_eq!(rows.execute(age, (long_ago, name)).unwrap(), 1);
    }
    let said = ends(gateway(folder.path(), &["login", "list"]), 0);
    assert!(said.contains("crm, as me@example.org  kept"), "{said}");
    assert!(said.contains("the login `broken` cannot be read"), "{said}");
    let is_there = |name: &[u8]| {
        let one = "SELECT count(*) FROM kept WHERE kind = 'login' AND name = ?1";
        rows.query_row(one, [name], |row| row.get::<_, u32>(0))
            .unwrap()
            == 1
    };
    assert!(!is_there(names[1]) && is_there(names[2]) && is_there(b"crm"));
    for name in [names[0], names[2]] {
        let remove = "DELETE FROM kept WHERE kind = 'login' AND name = ?1";
        assert_eq!(rows.execute(remove, [name]).unwrap(), 1);
    }
    let said = ends(gateway(folder.path(), &["login", "keep", "crm"]), 1);
    assert!(said.contains("no login `crm` waits to be kept"), "{said}");
    let said = ends(gateway(folder.path(), &["login", "forget", "crm"]), 0);
    assert!(
        said.contains("forgotten: crm; its issuer ended it"),
        "{said}"
    );
    let asked = issuer.asked.lock().unwrap().pop().unwrap();
    assert!(
        asked.0 == "/revoke" && asked.1.contains(REFRESH),
        "{asked:?}"
    );
    let said = ends(gateway(folder.path(), &["login", "forget", "crm"]), 1);
    assert!(said.contains("no login `crm` is kept"), "{said}");
}

/// All files below a folder.
fn walk(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| {
            if path.is_dir() {
                walk(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}

/// A gateway that serves a proxy, and the phantom that its workload has.
struct Served {
    _gateway: Ended,
    proxy: SocketAddr,
    address: String,
    phantom: String,
}

impl Served {
    /// Adds what is served to these lines, and starts it.
    fn start(folder: &Path, address: &str, lines: &str) -> Self {
        let proxy = addresses::free();
        let lines = format!(
            "{lines}\nenv = [\"CRM\"]\n\
             [[origin]]\nmatch = \"{address}\"\ncleartext = true\naddresses = [\"127.0.0.1/32\"]\n\
             [[listener]]\nkind = \"proxy\"\naddress = \"{proxy}\"\nany_user = true\n\
             [policy]\nrules = \"permit(principal, action, resource);\"\n\
             [phantoms]\nenv_file = \"phantoms.env\""
        );
        configure(folder, address, &lines);
        let file = folder.join("gateway.toml");
        let text = fs::read_to_string(&file)
            .unwrap()
            .replace("https://crm.test", address);
        fs::write(&file, text).unwrap();
        let serve = gateway(folder, &["serve", "--config", "gateway.toml"]);
        let mut gateway = Ended(serve);
        let until = Instant::now() + Duration::from_secs(20);
        let phantom = loop {
            let held = fs::read_to_string(folder.join("phantoms.env")).unwrap_or_default();
            match held.lines().find_map(|line| line.strip_prefix("CRM=")) {
                Some(phantom) if TcpStream::connect(proxy).is_ok() => break phantom.to_owned(),
                _ if gateway.0.try_wait().unwrap().is_some() || Instant::now() > until => {
                    panic!("{held}")
                }
                _ => std::thread::sleep(Duration::from_millis(50)),
            }
        };
        assert!(!phantom.contains("CANARY"), "{phantom}");
        Self {
            _gateway: gateway,
            proxy,
            address: address.to_owned(),
            phantom,
        }
    }

    /// Presents the phantom, and returns the answer.
    fn ask(&self) -> String {
        let Self {
            address, phantom, ..
        } = self;
        let mut stream = TcpStream::connect(self.proxy).unwrap();
        write!(
            stream,
            "GET {address}/api HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {phantom}\r\nconnection: close\r\n\r\n",
            address.strip_prefix("http://").unwrap()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

#[test]
fn a_token_is_made_of_a_clients_secret_and_the_workload_has_its_phantom() {
    let (folder, issuer) = (tempfile::tempdir().unwrap(), Issuer::default());
    let address = issuer.start();
    let served = Served::start(folder.path(), &address, "grant = \"client_credentials\"");
    for _ in 0..3 {
        let answer = served.ask();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    let asked = issuer.asked.lock().unwrap();
    let of = |path: &'static str| asked.iter().filter(move |(known, _)| known == path);
    assert!(of("/api").all(|(_, asked)| asked.contains(&format!("Bearer {ACCESS}"))));
    assert_eq!((of("/api").count(), of("/token").count()), (3, 1));
}

#[test]
fn a_workload_whose_login_is_gone_is_told_how_its_user_logs_in_again() {
    let (folder, issuer) = (tempfile::tempdir().unwrap(), Issuer::default());
    let address = issuer.start();
    let device = format!("device_url = \"{address}/device\"");
    configure(folder.path(), &address, &device);
    ends(gateway(folder.path(), &LOGIN), 0);
    let served = Served::start(folder.path(), &address, &device);
    let answer = served.ask();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    // As one leaves: what is kept beside the logins is named, with what removes it.
    let said = ends(gateway(folder.path(), &["login", "forget", "--all"]), 0);
    let state = folder.path().join(".local/state/gateway");
    let removal = format!("`rm -r {}` removes it", state.display());
    for part in ["forgotten: crm; ", &removal, "`gateway secret list`"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(state.exists());
    let said = ends(gateway(folder.path(), &["login", "forget", "--all"]), 0);
    assert!(said.contains("no login was kept"), "{said}");
    let said = ends(gateway(folder.path(), &["login", "list"]), 0);
    assert!(said.contains("no login is kept"), "{said}");
    let until = Instant::now() + Duration::from_secs(10);
    let answer = loop {
        match served.ask() {
            answer if answer.starts_with("HTTP/1.1 503") => break answer,
            answer if Instant::now() > until => panic!("{answer}"),
            _ => std::thread::sleep(Duration::from_millis(200)),
        }
    };
    let why = "Ask your user about the login `crm`: there is no login: log in again in the sandbox, or with `gateway login add crm`.";
    assert!(answer.contains(why), "{answer}");
}

/// The database of a gateway's state.
fn database(folder: &Path) -> PathBuf {
    let mut all = walk(folder).into_iter();
    all.find(|path| path.ends_with("user.db")).unwrap()
}

#[test]
fn a_workload_is_not_told_why_the_tokens_of_a_login_could_not_be_kept() {
    let folder = tempfile::tempdir().unwrap();
    let issuer = Issuer {
        ends_in: Some(1),
        ..Issuer::default()
    };
    let address = issuer.start();
    let device = format!("device_url = \"{address}/device\"");
    configure(folder.path(), &address, &device);
    ends(gateway(folder.path(), &LOGIN), 0);
    let served = Served::start(folder.path(), &address, &device);
    let rows = rusqlite::Connection::open(database(folder.path())).unwrap();
    rows.execute_batch("BEGIN IMMEDIATE").unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    let answer = loop {
        match served.ask() {
            answer if answer.starts_with("HTTP/1.1 503") => break answer,
            answer if Instant::now() > until => panic!("{answer}"),
            _ => std::thread::sleep(Duration::from_millis(200)),
        }
    };
    for hidden in [folder.path().to_str().unwrap(), "user.db", "database"] {
        assert!(!answer.contains(hidden), "{hidden}: {answer}");
    }
    let told = "the login `crm`: what the gateway keeps of it cannot be used";
    assert!(answer.contains(told), "{answer}");
}

#[test]
fn a_login_that_cannot_be_forgotten_keeps_no_other() {
    let (folder, issuer) = (tempfile::tempdir().unwrap(), Issuer::default());
    let address = issuer.start();
    configure(
        folder.path(),
        &address,
        &format!("device_url = \"{address}/device\""),
    );
    ends(gateway(folder.path(), &LOGIN), 0);
    let file = folder.path().join("gateway.toml");
    let text = fs::read_to_string(&file)
        .unwrap()
        .replace("\"crm\"", "\"wiki\"");
    fs::write(&file, text).unwrap();
    let wiki = ["login", "add", "wiki", "--config", "gateway.toml"];
    ends(gateway(folder.path(), &wiki), 0);
    let lock = database(folder.path()).with_file_name("crm.login.lock");
    fs::remove_file(&lock).unwrap();
    fs::create_dir(&lock).unwrap();
    let all = ["login", "forget", "--all"];
    let said = ends(gateway(folder.path(), &all), 1);
    for part in [
        "not forgotten: crm; ",
        "forgotten: wiki; ",
        "still kept: crm",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    fs::remove_dir(&lock).unwrap();
    let said = ends(gateway(folder.path(), &all), 0);
    assert!(
        said.contains("forgotten: crm; ") && !said.contains("wiki"),
        "{said}"
    );
}

/// A process that ends with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends a request as a browser would, and returns what it gets.
fn browse(returns: &str, query: &str) -> String {
    let authority = returns.split('/').nth(2).unwrap();
    let mut stream = TcpStream::connect(authority).unwrap();
    write!(
        stream,
        "GET /callback?{query} HTTP/1.1\r\nhost: {authority}\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_browser_brings_a_code_back_and_another_pages_code_is_not_taken() {
    let (folder, issuer) = (tempfile::tempdir().unwrap(), Issuer::default());
    let address = issuer.start();
    let page = "authorize_url = \"https://as.test/authorize?prompt=consent\"";
    configure(folder.path(), &address, page);
    let mut child = gateway(folder.path(), &LOGIN);
    let mut said = BufReader::new(child.stderr.as_mut().unwrap()).lines();
    let shown = said.find_map(|line| {
        line.unwrap()
            .strip_prefix("https://as.test/authorize?")
            .map(str::to_owned)
    });
    let shown = shown.unwrap();
    let value = |name| {
        form(&shown, name)
            .unwrap()
            .replace("%3A", ":")
            .replace("%2F", "/")
    };
    assert_eq!(
        (value("prompt"), value("client_id")),
        ("consent".into(), "own-client".into())
    );
    assert_eq!(value("code_challenge_method"), "S256");
    *issuer.challenge.lock().unwrap() = value("code_challenge");
    let returns = value("redirect_uri");
    // A browser opens connections that it does not use, and other pages may guess the port.
    let _idle = TcpStream::connect(returns.split('/').nth(2).unwrap()).unwrap();
    assert!(browse(&returns, "code=c2&state=another").starts_with("HTTP/1.1 404"));
    let answer = browse(&returns, &format!("code=c1&state={}", value("state")));
    assert!(answer.contains("You are logged in"), "{answer}");
    let said = ends(child, 0);
    assert!(said.contains("logged in: crm"), "{said}");
}

#[test]
fn what_cannot_be_logged_in_to_is_told_with_what_to_do() {
    let (folder, issuer) = (tempfile::tempdir().unwrap(), Issuer::default());
    let address = issuer.start();
    for (lines, name, code, parts) in [
        (
            "",
            "crm",
            2,
            &["neither `device_url` nor `authorize_url`"][..],
        ),
        (
            "",
            "claude",
            2,
            &["there is no login `claude`", "the configuration has: crm"],
        ),
        (
            "grant = \"client_credentials\"",
            "crm",
            2,
            &["needs nobody to log in"],
        ),
        (
            "device_url = \"{}/nothing\"",
            "crm",
            1,
            &["unsupported_grant_type"],
        ),
        (
            "device_url = \"{}/device\"\nclient_auth = \"post\"",
            "crm",
            1,
            &["invalid_client", "check `client_id`"],
        ),
    ] {
        configure(folder.path(), &address, &lines.replace("{}", &address));
        let said = ends(
            gateway(
                folder.path(),
                &["login", "add", name, "--config", "gateway.toml"],
            ),
            code,
        );
        for part in parts {
            assert!(said.contains(part), "{part}\n{said}");
        }
    }
}
