//! `gateway login` and `gateway logins` by the shipped program, before a stand-in of an issuer that
//! checks what it is asked.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

const ACCESS: &str = "access-CANARY-0123456789abcdef";
const REFRESH: &str = "refresh-CANARY-0123456789abcdef";
const SECRET: &str = "a-client+secret-CANARY";

/// An issuer: what it was asked, and how often a code was asked for that nobody had typed yet.
#[derive(Clone, Default)]
struct Issuer {
    asked: Arc<Mutex<Vec<(String, String)>>>,
    /// The challenge of the login under way (RFC 7636 §4.2).
    challenge: Arc<Mutex<String>>,
}

impl Issuer {
    fn start(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let issuer = self.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                issuer.serve(stream.unwrap());
            }
        });
        address
    }

    fn serve(&self, stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let (mut head, mut line) = (String::new(), String::new());
        while reader.read_line(&mut line).unwrap() > 2 {
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
        let path = head.split(' ').nth(1).unwrap().to_owned();
        let (status, answer) = self.answer(&path, &head, &content);
        self.asked.lock().unwrap().push((path, content));
        let answer = answer.to_string();
        let _ = write!(
            &stream,
            "HTTP/1.1 {status} x\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{answer}",
            answer.len()
        );
    }

    fn answer(&self, path: &str, head: &str, content: &str) -> (u16, Value) {
        let tokens = json!({
            "access_token": ACCESS, "refresh_token": REFRESH, "expires_in": 3600, "token_type": "Bearer",
            "id_token": format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(r#"{"email":"me@example.org"}"#)),
        });
        let refused = |word: &str| (400, json!({ "error": word }));
        let basic = STANDARD.encode("own-client:a-client%2Bsecret-CANARY");
        let has_secret = head
            .to_lowercase()
            .contains(&format!("authorization: basic {basic}").to_lowercase());
        match (path, form(content, "grant_type").as_deref()) {
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

const LOGIN: [&str; 4] = ["login", "crm", "--config", "gateway.toml"];

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
            gateway(folder.path(), &["login", name, "--config", "gateway.toml"]),
            code,
        );
        for part in parts {
            assert!(said.contains(part), "{part}\n{said}");
        }
    }
}
