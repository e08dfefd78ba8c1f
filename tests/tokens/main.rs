//! Tokens as other libraries of macaroons read, verify, make and narrow them, and as the program
//! does.
//!
//! `GATEWAY_CLIENTS` names the directory of the installed libraries, as for `tests/clients.rs`.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::SystemTime;

use gateway::names::SessionId;
use gateway::token::{Caveat, PrefixId, Token, TokenKey, inspect, verify};
use libmacaroon::{Format, Macaroon, MacaroonKey, Verifier};
use serde_json::{Value, json};

const KEY: [u8; 32] = [42; 32];
/// In ASCII: macaroons.js takes texts alone.
const RANDOM: [u8; 12] = *b"0123456789ab";
const CAVEATS: [&str; 5] = [
    "before 2027-01-15T08:00:00Z",
    "host in api.github.com *.example.com:8443 [2001:db8::1]",
    "method in GET HEAD",
    "path under /repos/octo /user",
    "credential none",
];
const ADDED: &str = "from 100.64.0.0/10";

fn session() -> SessionId {
    SessionId::new("team/agent-1").unwrap()
}

fn key(number: u8, session: &SessionId) -> Option<TokenKey> {
    Some(TokenKey::derive(&KEY, number, session))
}

fn caveats(texts: &[&str]) -> Vec<Caveat> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn minted() -> Token {
    let key = key(1, &session()).unwrap();
    key.mint(RANDOM, &caveats(&CAVEATS)).unwrap()
}

/// A text as the library has it, in another format.
fn recoded(text: &str, format: Format) -> String {
    let text = text.strip_prefix("gwt1_").unwrap_or(text);
    let encoded = Macaroon::deserialize(text)
        .unwrap()
        .serialize(format)
        .unwrap();
    encoded.trim_end_matches('=').to_owned()
}

/// Whether a text verifies, and falls with a token.
fn falls_with(text: &str, token: &str) -> bool {
    let revoked = inspect(token).unwrap().id;
    verify(text, key)
        .unwrap()
        .is_revoked(&|id: &PrefixId| *id == revoked)
}

#[test]
fn pymacaroons_verifies_makes_and_narrows_tokens() {
    let python = clients().join("venv/bin/python");
    let mut command = Command::new(python);
    command
        .arg(here("python.py"))
        .env("PYTHONPATH", clients().join("macaroons/python"));
    agrees(command, "0.13.0", || Format::V2);
}

#[test]
fn macaroons_js_verifies_makes_and_narrows_tokens() {
    let mut command = Command::new("node");
    command
        .arg(here("node.js"))
        .env("NODE_PATH", clients().join("macaroons/node_modules"));
    agrees(command, "0.3.9", || Format::V1);
}

#[test]
fn libmacaroon_verifies_tokens() {
    let token = Macaroon::deserialize(&minted().as_str()[5..]).unwrap();
    let mut verifier = Verifier::default();
    let root = |seed: &[u8]| MacaroonKey::generate(seed);
    let seed = session_key();
    for caveat in CAVEATS {
        assert!(verifier.verify(&token, &root(&seed), &[]).is_err());
        verifier.satisfy_exact(caveat);
    }
    assert!(verifier.verify(&token, &root(&seed), &[]).is_ok());
    assert!(verifier.verify(&token, &root(&[7; 32]), &[]).is_err());
}

#[test]
fn the_program_narrows_a_token_and_shows_what_it_says_without_a_gateway() {
    let token = minted();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, format!("{}\n", token.as_str())).unwrap();
    let file = file.to_str().unwrap();
    let narrowing = [
        "token",
        "attenuate",
        file,
        "--host",
        "api.github.com",
        "--host",
        "*.example.com:8443",
        "--method",
        "GET",
        "--path",
        "/repos/octo/one",
        "--credential",
        "none",
        "--from",
        "10.0.0.0/8",
        "--for",
        "8h",
    ];
    let narrowed = succeeds(&narrowing, "");
    let inside = inspect(narrowed.trim_end()).unwrap();
    let before = now() + 8 * 3600;
    let ends =
        |caveat: &Caveat| matches!(caveat, Caveat::Before(end) if before.abs_diff(*end) < 60);
    let (last, rest) = inside.caveats.split_last().unwrap();
    assert!(ends(last), "{last}");
    let added = [
        "host in api.github.com *.example.com:8443",
        "method in GET",
        "path under /repos/octo/one",
        "credential none",
        "from 10.0.0.0/8",
    ];
    assert_eq!(rest, caveats(&[&CAVEATS[..], &added].concat()));

    let said = succeeds(&["token", "inspect"], &narrowed);
    for part in [
        "session team/agent-1",
        "caveat  path under /repos/octo/one",
        &inside.id.to_string(),
    ] {
        assert!(said.contains(part), "{part}\n{said}");
    }
    assert!(!said.contains("gwt1_"), "{said}");
    let document = succeeds(&["--json", "token", "inspect", file], "");
    let document: Value = serde_json::from_str(&document).unwrap();
    assert_eq!(document["caveats"], json!(CAVEATS));
    let document = succeeds(
        &["--json", "token", "attenuate", file, "--method", "GET"],
        "",
    );
    let document: Value = serde_json::from_str(&document).unwrap();
    let id = inspect(document["token"].as_str().unwrap()).unwrap().id;
    assert_eq!(document["id"], id.to_string());
}

#[test]
fn what_cannot_be_narrowed_is_refused_and_no_token_is_repeated() {
    let token = minted();
    let text = token.as_str();
    let cut = &text[..text.len() - 4];
    for (arguments, input, code, part) in [
        (&["attenuate"][..], text, 2, "--host"),
        (
            &["attenuate", "--host", "API.github.com"],
            text,
            2,
            "its one spelling is `host in api.github.com`",
        ),
        (
            &["attenuate", "--method", "get"],
            text,
            2,
            "\"get\" is not a method",
        ),
        (
            &["attenuate", "--from", "10.0.0.1"],
            text,
            2,
            "a network such as",
        ),
        (&["attenuate", "--for", "8"], text, 2, "needs its unit"),
        (&["attenuate", "--method", "GET"], cut, 1, "it is not whole"),
        (
            &["attenuate", "--method", "GET"],
            "secret",
            1,
            "begins with `gwt1_`",
        ),
        (&["inspect", text], "", 2, "a token is never an argument"),
        (
            &["attenuate", text, "--method", "GET"],
            "",
            2,
            "a token is never an argument",
        ),
        (&["inspect", "/absent"], "", 1, "/absent cannot be read"),
        (
            &["inspect"],
            &"gwt1_A".repeat(9_000),
            1,
            "no token was read",
        ),
        (&["inspect"], "", 1, "begins with `gwt1_`"),
    ] {
        let output = ran(&[&["token"], arguments].concat(), input);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(part), "{arguments:?}: {said}");
        assert!(
            !said.contains(&text[20..]) && output.stdout.is_empty(),
            "{said}"
        );
    }
}

/// Sends a token to another library, and takes back what that made of it. What it narrowed the
/// program narrows further, and it verifies that too.
#[track_caller]
fn agrees(mut library: Command, version: &str, format: fn() -> Format) {
    let token = minted();
    let answer = said(&mut library, token.as_str(), &CAVEATS, format);
    assert_eq!(answer["version"], version);
    assert_eq!(answer["verified"], true);
    assert_eq!(answer["by_another_key"], false);
    assert_eq!(answer["without_a_caveat"], false);
    let text = |name: &str| {
        format!(
            "gwt1_{}",
            recoded(answer[name].as_str().unwrap(), Format::V2)
        )
    };
    if matches!(format(), Format::V2) {
        let minted = answer["minted"].as_str().unwrap();
        assert_eq!(
            format!("gwt1_{minted}"),
            token.as_str(),
            "as it was written"
        );
    }
    assert_eq!(text("minted"), token.as_str());
    let narrowed = text("narrowed");
    assert!(falls_with(&narrowed, token.as_str()) && !falls_with(token.as_str(), &narrowed));
    let mut expected = [&CAVEATS[..], &[ADDED]].concat();
    assert_eq!(inspect(&narrowed).unwrap().caveats[..], caveats(&expected));

    let further = attenuated_by_the_program(&narrowed);
    let again = inspect(&further).unwrap();
    expected.push("method in GET");
    assert_eq!(again.caveats[..], caveats(&expected));
    assert!(falls_with(&further, token.as_str()) && falls_with(&further, &further));
    assert_eq!(
        said(&mut library, &further, &expected, format)["verified"],
        true
    );
}

fn said(library: &mut Command, token: &str, caveats: &[&str], format: fn() -> Format) -> Value {
    let identifier = Macaroon::deserialize(&token["gwt1_".len()..]).unwrap();
    let hex = |bytes: &[u8]| -> String { bytes.iter().map(|byte| format!("{byte:02x}")).collect() };
    let case = json!({
        "key": hex(&KEY),
        "session": session().as_str(),
        "identifier": hex(identifier.identifier()),
        "token": recoded(token, format()),
        "caveats": caveats,
        "added": ADDED,
    });
    let output = with_input(library, &case.to_string());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{library:?}: {said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn attenuated_by_the_program(token: &str) -> String {
    let arguments = ["token", "attenuate", "--method", "GET"];
    succeeds(&arguments, &format!("{token}\n"))
        .trim_end()
        .to_owned()
}

#[track_caller]
fn succeeds(arguments: &[&str], input: &str) -> String {
    let output = ran(arguments, input);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

fn ran(arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gateway"));
    with_input(command.args(arguments), input)
}

fn with_input(command: &mut Command, input: &str) -> Output {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    // It may have ended before it reads.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap().as_secs()
}

/// The key of a session as the documentation of [`TokenKey::derive`] has it.
fn session_key() -> [u8; 32] {
    use hmac::{Hmac, KeyInit as _, Mac as _};
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(&KEY).unwrap();
    mac.update(&[b"macaroon", session().as_str().as_bytes(), &[1]].concat());
    mac.finalize().into_bytes().into()
}

fn here(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/tokens")
        .join(name)
}

/// The libraries, installed once.
fn clients() -> &'static Path {
    static CLIENTS: OnceLock<PathBuf> = OnceLock::new();
    CLIENTS.get_or_init(|| {
        let home = std::env::var_os("GATEWAY_CLIENTS");
        let home = home.map_or_else(|| "/var/cache/gateway-clients".into(), PathBuf::from);
        if !home.join("macaroons/whole-1").exists() {
            let setup = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/setup");
            let ready = Command::new(setup).env("GATEWAY_CLIENTS", &home).status();
            assert!(
                ready.as_ref().is_ok_and(|ready| ready.success()),
                "{ready:?}"
            );
        }
        home
    })
}
