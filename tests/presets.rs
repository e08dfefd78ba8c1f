//! Whether keys work: `gateway doctor --keys` over every preset that says how, against an origin
//! that takes the good key at the right place and nothing else.

#[path = "rig/addresses.rs"]
mod addresses;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::spawn;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, KeyUsagePurpose};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::Value;

const GATEWAY: &str = env!("CARGO_BIN_EXE_gateway");
const GOOD: &str = "good-CANARY-0123456789abcdefABCDEF0123456789";

/// A credential of a preset, and how it is checked.
#[derive(Clone, Debug)]
struct Row {
    preset: String,
    name: String,
    host: String,
    path: String,
    /// The line of the field that the good key stands in, or none if that is the path.
    field: Option<String>,
    fields: Vec<String>,
    revoked: u64,
}

/// Every preset with its place, by `gateway secret presets`.
fn rows() -> (Vec<Row>, usize) {
    let shown = Command::new(GATEWAY)
        .args(["--json", "secret", "presets"])
        .output()
        .unwrap();
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    let all = shown.as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let mut rows = Vec::new();
    for preset in all {
        for one in preset["credentials"].as_array().unwrap() {
            let verify = &one["verify"];
            if verify.is_null() {
                continue;
            }
            let place = text(&one["places"][0]);
            let parts: Vec<&str> = place.split(':').collect();
            let field = match parts[..] {
                ["header", name] => Some(format!("{name}: {GOOD}")),
                ["header", name, scheme] => Some(format!("{name}: {scheme} {GOOD}")),
                _ => None,
            };
            let origin = text(&verify["origin"]);
            let hosts: Vec<String> = one["origins"]
                .as_array()
                .unwrap()
                .iter()
                .map(text)
                .collect();
            assert!(hosts.contains(&origin), "{origin} is one of {hosts:?}");
            assert_eq!(verify["method"], "GET");
            rows.push(Row {
                preset: text(&preset["name"]),
                name: text(&one["variables"][0]),
                host: origin.trim_start_matches("https://").to_owned(),
                path: text(&verify["path"]),
                field,
                fields: verify["fields"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(text)
                    .collect(),
                revoked: verify["revoked"][0].as_u64().unwrap(),
            });
        }
    }
    (rows, all.len())
}

/// An origin of all of these hosts, and the heads that it was sent.
struct Origin {
    port: u16,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Origin {
    /// Answers `other` to whatever is not the good key in its place; 0 stands for what the service
    /// says of a revoked one.
    fn start(rows: &[Row], folder: &Path, other: u64) -> Self {
        let mut root = CertificateParams::new(Vec::new()).unwrap();
        root.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        root.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let issuer = CertifiedIssuer::self_signed(root, KeyPair::generate().unwrap()).unwrap();
        fs::write(folder.join("ca.pem"), issuer.pem()).unwrap();
        let key = KeyPair::generate().unwrap();
        let hosts: Vec<String> = rows.iter().map(|row| row.host.clone()).collect();
        let leaf = CertificateParams::new(hosts)
            .unwrap()
            .signed_by(&key, &issuer)
            .unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![leaf.der().clone()],
                PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
            )
            .unwrap();
        let (config, rows) = (Arc::new(config), rows.to_vec());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let noted = seen.clone();
        spawn(move || {
            for stream in listener.incoming().flatten() {
                let (config, rows, noted) = (config.clone(), rows.clone(), noted.clone());
                spawn(move || {
                    let connection = ServerConnection::new(config).unwrap();
                    let mut stream = StreamOwned::new(connection, stream);
                    let mut head = Vec::new();
                    let mut byte = [0];
                    while !head.ends_with(b"\r\n\r\n") {
                        if stream.read(&mut byte).unwrap_or(0) == 0 {
                            return;
                        }
                        head.push(byte[0]);
                    }
                    let head = String::from_utf8(head).unwrap();
                    let status = status(&rows, &head, other);
                    noted.lock().unwrap().push(head);
                    let answer = format!("HTTP/1.1 {status} x\r\ncontent-length: 2\r\n\r\n{{}}");
                    let _ = stream.write_all(answer.as_bytes());
                    let _ = stream.flush();
                });
            }
        });
        Self { port, seen }
    }
}

/// The origin's answer to a head.
fn status(rows: &[Row], head: &str, other: u64) -> u64 {
    let field = |name: &str| {
        let mut lines = head.lines().filter_map(|line| line.split_once(": "));
        lines.find_map(|(known, value)| known.eq_ignore_ascii_case(name).then_some(value))
    };
    let has = |line: &String| {
        let (name, value) = line.split_once(": ").unwrap();
        field(name) == Some(value)
    };
    let row = rows.iter().find(|row| field("host") == Some(&*row.host));
    let Some(row) = row.filter(|row| row.fields.iter().all(has)) else {
        return 418;
    };
    let target = format!("GET {} HTTP/1.1", row.path.replace("{}", GOOD));
    let is_asked = head.lines().next() == Some(&*target);
    let is_good = is_asked && row.field.as_ref().is_none_or(has);
    match (is_good, other) {
        (true, _) => 200,
        (false, 0) => row.revoked,
        (false, other) => other,
    }
}

/// Runs `gateway doctor --keys` with this key in each place; gives the verdict by credential.
fn doctor(rows: &[Row], folder: &Path, port: u16, key: &str) -> BTreeMap<String, String> {
    let secret = folder.join("secret");
    fs::write(&secret, key).unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let mut text = String::new();
    for row in rows {
        let Row {
            preset, name, host, ..
        } = row;
        write!(
            text,
            "[[credential]]\nname = \"{name}\"\nfrom = \"file:secret\"\npreset = \"{preset}\"\n\
             [[origin]]\nmatch = \"https://{host}\"\nconnect = \"127.0.0.1:{port}\"\nroots = [\"ca.pem\"]\n"
        )
        .unwrap();
    }
    fs::write(folder.join("gateway.toml"), text).unwrap();
    let out = Command::new(GATEWAY)
        .args(["--json", "doctor", "--keys", "--config", "gateway.toml"])
        .current_dir(folder)
        .env("HOME", folder)
        .env_remove("XDG_STATE_HOME")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let (said, errors) = (
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr),
    );
    assert!(
        !said.contains("CANARY") && !errors.contains("CANARY"),
        "{said}{errors}"
    );
    let found: Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}{errors}"));
    let found = found.as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let found: BTreeMap<_, _> = found
        .map(|one| (text(&one["credential"]), text(&one["verdict"])))
        .collect();
    let is_good = found.values().all(|verdict| verdict == "good");
    assert_eq!(out.status.success(), is_good, "{said}{errors}");
    found
}

#[test]
fn a_key_is_good_revoked_wrong_or_not_reached_at_every_service_whose_preset_says_how() {
    let (rows, presets) = rows();
    assert!(rows.len() >= 25, "{}", rows.len());
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let mut table = BTreeMap::<String, Vec<String>>::new();
    let bad = "bad-CANARY-0123456789abcdefABCDEF01234567890";
    for (key, other, verdict) in [
        (GOOD, 418, "good"),
        (bad, 0, "revoked"),
        (bad, 418, "wrong"),
        (bad, 503, "not reached"),
    ] {
        let origin = Origin::start(&rows, at, other);
        let found = doctor(&rows, at, origin.port, key);
        for row in &rows {
            assert_eq!(found[&row.name], verdict, "{row:?}");
            table
                .entry(row.preset.clone())
                .or_default()
                .push(verdict.to_owned());
        }
        // One request each, with the real key at one place, and no phantom.
        let seen = origin.seen.lock().unwrap();
        assert_eq!(seen.len(), rows.len());
        for head in seen.iter() {
            assert_eq!(head.matches(key).count(), 1, "{head}");
        }
    }
    let closed = addresses::free().port();
    let found = doctor(&rows, at, closed, GOOD);
    assert!(
        found.values().all(|verdict| verdict == "not reached"),
        "{found:?}"
    );
    for row in &rows {
        println!(
            "{:14} GET https://{}{}: {}",
            row.preset,
            row.host,
            row.path,
            table[&row.preset].join(", ")
        );
    }
    println!("{} presets, {} of their keys checked", presets, rows.len());
}

#[test]
fn a_key_for_another_host_than_its_services_is_not_sent_there() {
    let folder = tempfile::tempdir().unwrap();
    let text = "[[credential]]\nname = \"GITHUB_TOKEN\"\nfrom = \"env:X\"\npreset = \"github\"\norigins = [\"https://github.example\"]\n";
    fs::write(folder.path().join("gateway.toml"), text).unwrap();
    let out = Command::new(GATEWAY)
        .args(["doctor", "--keys", "--config", "gateway.toml"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(
        !out.status.success() && said.contains("there is no key to check"),
        "{said}"
    );
}

#[test]
fn a_key_of_the_key_ring_is_checked_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let (rows, _) = rows();
    let origin = Origin::start(&rows, folder.path(), 0);
    let own = folder.path().join(".config/gateway");
    fs::create_dir_all(&own).unwrap();
    let ca = folder.path().join("ca.pem").display().to_string();
    let text = format!(
        "[[origin]]\nmatch = \"https://api.github.com\"\nconnect = \"127.0.0.1:{}\"\nroots = [\"{ca}\"]\n",
        origin.port
    );
    fs::write(own.join("config.toml"), text).unwrap();
    let script = r#"
        printf password | gnome-keyring-daemon --foreground --unlock --components=secrets >/dev/null 2>&1 &
        ring=$!
        until "$0" secret list >/dev/null 2>&1; do sleep 0.1; done
        printf %s "$1" | "$0" secret set GITHUB_TOKEN
        "$0" doctor --key GITHUB_TOKEN
        "$0" doctor --key NOTHING
        printf %s "bad-$1" | "$0" secret set GITHUB_TOKEN
        "$0" doctor --key GITHUB_TOKEN
        kill $ring
    "#;
    let out = Command::new("dbus-run-session")
        .args(["--", "timeout", "60", "sh", "-c", script, GATEWAY, GOOD])
        .env("HOME", folder.path())
        .env("XDG_DATA_HOME", folder.path())
        .env("XDG_RUNTIME_DIR", folder.path())
        .env_remove("XDG_STATE_HOME")
        .env_remove("XDG_CONFIG_HOME")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
    for words in [
        "good         GITHUB_TOKEN         api.github.com: the service answers 200",
        "no preset knows a secret of that name",
        "revoked      GITHUB_TOKEN         api.github.com: the service answers 401",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(!said.contains("CANARY"), "{said}");
}
