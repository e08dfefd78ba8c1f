//! The services' own libraries, live: what they sign now verifies, and what we sign they verify.
//!
//! `GATEWAY_CLIENTS` names the directory into which `tests/signing_recipes/setup` installed them;
//! `.ci/install` does that.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

use bytes::Bytes;
use gateway::message::{Authority, EncodedSlash, Origin, RequestHead, RequestTarget, Scheme};
use gateway::recipe::{self, ContentNeed, KeyForm, Nonce, Parts};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version};
use serde::{Deserialize, Serialize};

/// A signed request, as `judge.py` prints it and `verdict.py` reads it.
#[derive(Clone, Serialize, Deserialize)]
struct Record {
    recipe: String,
    judge: String,
    method: String,
    url: String,
    headers: BTreeMap<String, String>,
    content: String,
    #[serde(default = "once")]
    repeat: usize,
    parts: BTreeMap<String, String>,
}

fn once() -> usize {
    1
}

impl Record {
    fn head(&self) -> RequestHead {
        let (_, rest) = self.url.split_once("://").unwrap();
        let (authority, target) = rest.split_at(rest.find('/').unwrap());
        let mut fields = HeaderMap::new();
        for (name, value) in &self.headers {
            let name: HeaderName = name.parse().unwrap();
            if name != "host" {
                fields.insert(name, HeaderValue::from_str(value).unwrap());
            }
        }
        RequestHead {
            method: Method::from_bytes(self.method.as_bytes()).unwrap(),
            origin: Origin {
                scheme: Scheme::Https,
                authority: Authority::parse(authority.as_bytes(), Some(443)).unwrap(),
            },
            target: RequestTarget::parse(target.as_bytes(), EncodedSlash::Keep).unwrap(),
            fields,
            version: Version::HTTP_11,
        }
    }

    /// Verifies with its own parts and signs with others; gives the request that would be sent.
    fn signed_again(&self, others: &BTreeMap<String, String>) -> Record {
        let recipe = recipe::preset(&self.recipe).unwrap();
        let (phantoms, secrets) = (texts(&self.parts), texts(others));
        let mut head = self.head();
        let content = Bytes::from(self.content.repeat(self.repeat).into_bytes());
        let held = (recipe.needs() == ContentNeed::Whole).then(|| content.clone());
        let claim = recipe
            .claim(&head)
            .unwrap()
            .unwrap_or_else(|| panic!("{}: no claim", self.judge));
        let verified = recipe
            .verify(claim, &head, held.as_deref(), &phantoms)
            .unwrap_or_else(|fault| panic!("{}: {fault}", self.judge));
        let nonce = Nonce {
            random: [0x39; 32],
            counter: 1 << 52,
        };
        let signed = recipe
            .sign(
                verified,
                &mut head,
                held,
                &secrets,
                SystemTime::now(),
                &nonce,
            )
            .unwrap_or_else(|fault| panic!("{}: {fault}", self.judge));
        let content = signed.content.unwrap_or(content);
        let host = self.url.split('/').nth(2).unwrap();
        let headers = head
            .fields
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()));
        Record {
            url: format!("https://{host}{}", head.target.path_and_query()),
            headers: headers.collect(),
            content: String::from_utf8(content.to_vec()).unwrap(),
            repeat: 1,
            parts: others.clone(),
            ..self.clone()
        }
    }
}

#[test]
fn what_the_services_libraries_sign_now_verifies_and_what_we_sign_they_verify() {
    let dir = installed();
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/signing_recipes");
    let python = dir.join("venv/bin/python");
    let mut records: Vec<Record> = json(Command::new(&python).arg(here.join("judge.py")), &[]);
    std::fs::copy(here.join("judge.mjs"), dir.join("judge.mjs")).unwrap();
    records.extend::<Vec<Record>>(json(Command::new("node").arg(dir.join("judge.mjs")), &[]));
    let recipes: std::collections::BTreeSet<&str> = records
        .iter()
        .map(|record| record.recipe.as_str())
        .collect();
    assert!(recipes.len() >= 33, "{recipes:?}");
    let mut ours: Vec<Record> = Vec::new();
    for record in &records {
        let signed = record.signed_again(&others(record, &records));
        if VERIFIED.contains(&record.recipe.as_str()) {
            ours.push(signed);
        }
    }
    let input = serde_json::to_vec(&ours).unwrap();
    let verdict: BTreeMap<String, usize> =
        json(Command::new(&python).arg(here.join("verdict.py")), &input);
    assert_eq!(verdict.values().sum::<usize>(), ours.len());
    let verified: Vec<&str> = verdict.keys().map(String::as_str).collect();
    assert_eq!(verified, VERIFIED);
}

#[test]
fn libraries_sign_with_phantom_keys_through_the_gateway_and_others_verify_what_arrives() {
    let dir = installed();
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/signing_recipes");
    std::fs::copy(here.join("proof.mjs"), dir.join("proof.mjs")).unwrap();
    let mut through = Command::new(dir.join("venv/bin/python"));
    through
        .arg(here.join("through.py"))
        .args(["--gateway", env!("CARGO_BIN_EXE_gateway")])
        .env("RECIPES", &dir)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    let status = through.status().unwrap();
    assert!(status.success(), "{through:?}: {status}");
}

fn texts(parts: &BTreeMap<String, String>) -> Parts<'_> {
    Parts::new(
        parts
            .iter()
            .map(|(name, text)| (name.as_str(), text.as_bytes())),
    )
}

/// The same credential with other texts: letters moved, keys of other seeds, another record's RSA
/// key.
fn others(record: &Record, records: &[Record]) -> BTreeMap<String, String> {
    let recipe = recipe::preset(&record.recipe).unwrap();
    let moved = |text: &str| {
        text.replace(['a', 'b', 'c', 'd'], "e")
            .replace(['A', 'B', 'C', 'D'], "E")
    };
    let parts = record.parts.iter().map(|(name, text)| {
        let part = recipe
            .parts()
            .iter()
            .find(|part| part.name == *name)
            .unwrap();
        let other = match part.key_of {
            None => moved(text),
            Some(_) if record.recipe.contains("rsa") => {
                let mut rsa = records.iter().filter(|other| other.recipe.contains("rsa"));
                rsa.find_map(|other| Some(other.parts["secret"].clone()).filter(|key| key != text))
                    .unwrap()
            }
            Some(algorithm) => {
                let form = KeyForm::of(algorithm, text.as_bytes()).unwrap();
                form.phantom(&[0x42; 32]).unwrap().to_string()
            }
        };
        (name.clone(), other)
    });
    parts.collect()
}

fn json<T: for<'a> Deserialize<'a>>(command: &mut Command, input: &[u8]) -> T {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}: run tests/signing_recipes/setup"));
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", output.status);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// Where the libraries are; they are installed where they are not yet.
fn installed() -> PathBuf {
    let home = std::env::var_os("GATEWAY_CLIENTS").map_or_else(
        || match rustix::process::geteuid().is_root() {
            true => PathBuf::from("/var/cache/gateway-clients"),
            false => Path::new(env!("CARGO_TARGET_TMPDIR")).join("clients"),
        },
        PathBuf::from,
    );
    let setup = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/signing_recipes/setup");
    let status = Command::new(setup)
        .env("GATEWAY_CLIENTS", &home)
        .status()
        .unwrap();
    assert!(status.success(), "tests/signing_recipes/setup: {status}");
    home.join("recipes")
}

/// The recipes for which `verdict.py` has a verifier that is not ours.
const VERIFIED: [&str; 16] = [
    "akamai-edgegrid",
    "binance-ed25519",
    "binance-rsa",
    "coinbase-cdp-ecdsa",
    "coinbase-cdp-ed25519",
    "dpop-es256",
    "http-signature-ecdsa-p256",
    "http-signature-ecdsa-p384",
    "http-signature-ed25519",
    "http-signature-hmac",
    "http-signature-rsa-pss",
    "http-signature-rsa-v15",
    "oauth1",
    "slack-webhook",
    "stripe-webhook",
    "twilio-webhook",
];
