//! Every key of the configuration, changed while the program runs: what docs/config.md says in the
//! column "reloads" is what happens.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::program::{Program, RULES, free, origin};

/// A table of the fixture: its header and its lines.
type Table = (String, Vec<String>);

/// The fixture: the configuration before, and what to change of it for each key.
struct Fixture {
    tables: Vec<Table>,
    /// By section and key: the table, and the lines to set or to remove.
    changes: BTreeMap<(String, String), (usize, Vec<String>)>,
}

impl Fixture {
    fn read(fill: impl Fn(&str) -> String) -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/control/keys.toml");
        let text = fill(&fs::read_to_string(path).unwrap());
        let (mut tables, mut changes) = (Vec::<Table>::new(), BTreeMap::new());
        for line in text.lines() {
            if line.starts_with('[') {
                tables.push((line.to_owned(), Vec::new()));
                continue;
            }
            let Some(at) = tables.len().checked_sub(1) else {
                continue;
            };
            let section = section(&tables[at].0);
            let (before, after) = match (line.strip_prefix("#+ "), line.split_once(" #> ")) {
                (Some(added), _) => (None, Some(added.to_owned())),
                (None, Some((before, after))) => {
                    (Some(before), Some(format!("{} = {after}", key(before))))
                }
                (None, None) => (Some(line), None),
            };
            tables[at]
                .1
                .extend(before.filter(|line| !line.is_empty()).map(str::to_owned));
            if let Some(after) = after {
                let lines: Vec<String> = after.split(" ;; ").map(str::to_owned).collect();
                let known = (section, key(&lines[0]).to_owned());
                changes.entry(known).or_insert((at, lines));
            }
        }
        Self { tables, changes }
    }

    fn text(tables: &[Table]) -> String {
        let tables = tables.iter();
        let tables = tables.map(|(header, lines)| format!("{header}\n{}\n", lines.join("\n")));
        tables.collect()
    }

    fn before(&self) -> String {
        Self::text(&self.tables)
    }

    fn after(&self, change: &(usize, Vec<String>)) -> String {
        let mut tables = self.tables.clone();
        let lines = &mut tables[change.0].1;
        for line in &change.1 {
            let name = line.strip_prefix('-').unwrap_or(key(line));
            lines.retain(|known| key(known) != name);
            lines.extend(Some(line.clone()).filter(|line| !line.starts_with('-')));
        }
        Self::text(&tables)
    }
}

fn key(line: &str) -> &str {
    line.split(" = ").next().unwrap()
}

fn section(header: &str) -> String {
    header.trim_matches(['[', ']']).to_owned()
}

/// The rows of the documentation: section, key, and whether it says that the key reloads.
fn documented() -> Vec<(String, String, bool)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/config.md");
    let (mut rows, mut at) = (Vec::new(), String::new());
    for line in fs::read_to_string(path).unwrap().lines() {
        if line.starts_with('#') {
            let names: Vec<&str> = line.split('`').skip(1).step_by(2).collect();
            let names = names.iter().rev().map(|name| section(name));
            at = names.collect::<Vec<_>>().join(".");
        }
        let cells: Vec<&str> = line.split(" | ").collect();
        if let ([first, .., last], true) = (&cells[..], cells.len() == 4) {
            let reloads = last.trim_end_matches([' ', '|']);
            let key = first.trim_matches(['|', ' ', '`']);
            if key != "key" {
                assert!(["yes", "no"].contains(&reloads), "{line}");
                rows.push((at.clone(), key.to_owned(), reloads == "yes"));
            }
        }
    }
    assert!(rows.len() > 100, "{}", rows.len());
    rows
}

/// The files that the fixture names.
fn write_files(program: &Program) {
    let write = |name: &str, text: &str, mode: u32| {
        fs::write(program.path(name), text).unwrap();
        fs::set_permissions(program.path(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    write("secret", "a-secret-of-the-test-one", 0o600);
    write("secret2", "a-secret-of-the-test-two", 0o600);
    write("id", "AKIAIOSFODNN7EXAMPLE", 0o600);
    write("account.json", ACCOUNT, 0o600);
    write("program", "#!/bin/sh\necho a-secret-of-a-program\n", 0o700);
    write("more.cedar", MORE, 0o644);
    write("rules.cedar", &format!("{RULES}{NAME}"), 0o644);
    write("control.cedar", OPERATORS, 0o644);
    let own = rcgen::generate_simple_self_signed(vec!["client.test".to_owned()]).unwrap();
    write("roots.pem", &own.cert.pem(), 0o644);
    write("client.pem", &own.cert.pem(), 0o644);
    write("client.key", &own.signing_key.serialize_pem(), 0o600);
    let other = rcgen::generate_simple_self_signed(vec!["other.test".to_owned()]).unwrap();
    write("other.pem", &other.cert.pem(), 0o644);
    write("other.key", &other.signing_key.serialize_pem(), 0o600);
    write("crls.pem", &list_of_revoked(), 0o644);
    write("jwks.json", JWKS, 0o644);
    write("jwks2.json", &JWKS.replace("one", "two"), 0o644);
    fs::create_dir_all(program.path("state")).unwrap();
    fs::set_permissions(program.path("state"), fs::Permissions::from_mode(0o700)).unwrap();
}

/// A list of no revoked certificates.
fn list_of_revoked() -> String {
    let mut params = rcgen::CertificateParams::default();
    params.key_usages = vec![rcgen::KeyUsagePurpose::CrlSign];
    let issuer = rcgen::Issuer::new(params, rcgen::KeyPair::generate().unwrap());
    let list = rcgen::CertificateRevocationListParams {
        this_update: rcgen::date_time_ymd(2026, 1, 1),
        next_update: rcgen::date_time_ymd(2100, 1, 1),
        crl_number: 1.into(),
        issuing_distribution_point: None,
        revoked_certs: Vec::new(),
        key_identifier_method: rcgen::KeyIdMethod::Sha256,
    };
    list.signed_by(&issuer).unwrap().pem().unwrap()
}

const MORE: &str =
    "@id(\"more\")\npermit(principal, action, resource == Gateway::Host::\"later.test\");\n";
const JWKS: &str = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"one","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;
const ACCOUNT: &str = r#"{"type":"service_account","client_email":"a@b.test","private_key":"","token_uri":"https://127.0.0.1:4000/token"}"#;
const NAME: &str =
    "@id(\"name\")\npermit(principal, action, resource == Gateway::Host::\"name.test\");\n";
const OPERATORS: &str =
    "permit(principal, action, resource) unless { action == Gateway::Action::\"session.pause\" };";

#[test]
fn every_key_reloads_as_the_documentation_says_and_a_refused_one_leaves_all_as_it_was() {
    let mut program = Program::start("");
    write_files(&program);
    let (dns, dns2) = (names(), names());
    let (second, spare) = (free(), free());
    let names = [
        ("proxy", program.proxy.to_string()),
        ("second", second.to_string()),
        ("third", free().to_string()),
        ("fourth", free().to_string()),
        ("fifth", free().to_string()),
        ("sixth", free().to_string()),
        ("seventh", free().to_string()),
        ("eighth", free().to_string()),
        ("ninth", free().to_string()),
        ("free", spare.to_string()),
        ("dns", dns.local_addr().unwrap().to_string()),
        ("dns2", dns2.local_addr().unwrap().to_string()),
        ("origin", origin().to_string()),
        ("origin2", origin().to_string()),
        ("program", program.path("program").display().to_string()),
        ("base", program.path("base.sock").display().to_string()),
        ("socket", program.path("agents.sock").display().to_string()),
    ];
    let fixture = Fixture::read(|text| {
        let fill = |text: String, (name, value): &(&str, String)| {
            text.replace(&format!("{{{name}}}"), value)
        };
        names.iter().fold(text.to_owned(), fill)
    });
    program.configure(&fixture.before());
    let probe = Probe {
        program: &program,
        second,
        spare,
        dns2,
    };
    let mut tried = 0;
    for (section, key, reloads) in documented() {
        let known = (section.clone(), key.clone());
        let change = fixture.changes.get(&known);
        // The keys of this table are changed one by one.
        if known == ("control".to_owned(), "tls".to_owned()) {
            continue;
        }
        // A profile is printed by the AWS CLI, which the tests do not install.
        if known == ("store".to_owned(), "profile".to_owned()) {
            continue;
        }
        let change = change.unwrap_or_else(|| panic!("the fixture lacks `{key}` of {section}"));
        // `serve` makes no sandbox: tests/control/sandbox.rs.
        if section == "sandbox" {
            assert!(!reloads);
            continue;
        }
        let after = fixture.after(change);
        program.edit(|_| after.clone());
        let before = probe.generation();
        match reloads {
            true => {
                let (code, said) = program.gateway(&["reload"]);
                assert_eq!(code, 0, "`{key}` of {section}: {said}\n{after}");
                probe.is_judged_anew(before, &known);
                probe.effect(&known);
            }
            false => {
                let why = program.refuse();
                let named = [format!("`[{section}] {key}`"), format!("`[[{section}]]`")];
                assert!(
                    named.iter().any(|named| why.contains(named)),
                    "`{key}` of {section}: {why}"
                );
                assert_eq!(program.ask("http://stream.test/").0, 200);
            }
        }
        program.edit(|_| fixture.before());
        program.reload();
        assert_eq!(program.ask("http://stream.test/").0, 200);
        tried += 1;
    }
    println!("{tried} keys were changed");
}

/// Sees what a change does.
struct Probe<'a> {
    program: &'a Program,
    second: SocketAddr,
    spare: SocketAddr,
    dns2: UdpSocket,
}

impl Probe<'_> {
    fn generation(&self) -> u64 {
        let told = self.program.json(&["status"]);
        told["gateways"][0]["policies"]["generation"]
            .as_u64()
            .unwrap()
    }

    /// The next request is judged by the new generation, and its record says so.
    fn is_judged_anew(&self, before: u64, known: &(String, String)) {
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            // With one connection at a time, the last one may still be open.
            self.program.ask("http://stream.test/");
            let last = self.program.records("exchange").pop();
            let generation = last.and_then(|record| record["generation"].as_u64());
            if generation.is_some_and(|generation| generation > before) {
                return;
            }
            assert!(Instant::now() < until, "{known:?} {generation:?} {before}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What this key alone does.
    fn effect(&self, (section, key): &(String, String)) {
        let program = self.program;
        let file = |name: &str| fs::read_to_string(program.path(name)).unwrap_or_default();
        let status = |url: &str| program.ask(url).0;
        let (later, held) = ("http://later.test/", file("phantoms-agent-1.env"));
        match (section.as_str(), key.as_str()) {
            ("ca", "certificate") => assert!(file("other-ca-agent-1.pem").contains("BEGIN")),
            ("ca", "lifetime") => {
                let all = program.json(&["session", "list"]);
                let ends = all["sessions"][0]["ends_in_seconds"].as_u64().unwrap();
                assert!((7000..=7200).contains(&ends), "{ends}");
            }
            ("audit", "rotate") => {
                let files = || fs::read_dir(program.path("audit")).unwrap().count();
                let before = files();
                // A long path makes a long record: a thousand are far more than one file holds.
                let rotated = (0..1000).any(|_| {
                    status(&format!("http://stream.test/?{}", "x".repeat(4000)));
                    files() > before
                });
                assert!(rotated, "no new file of the log");
            }
            ("audit", "session_burst") => {
                let until = Instant::now() + Duration::from_secs(20);
                while program.ask("http://forbidden.test/").0 != 429 {
                    assert!(Instant::now() < until, "no refusal by the budget");
                }
            }
            ("policy", "files") => assert_eq!(status(later), 200),
            ("resolver", "servers") => {
                // Nobody answers the question, so the answer is not waited for.
                let mut asks = TcpStream::connect(program.proxy).unwrap();
                let request = b"GET http://name.test/ HTTP/1.1\r\nHost: name.test\r\n\r\n";
                asks.write_all(request).unwrap();
                assert!(self.dns2.recv(&mut [0; 512]).is_ok(), "no question");
            }
            ("control", "policy") => {
                let (code, said) = program.gateway(&["session", "pause", "agent-1"]);
                assert!(code != 0 && said.contains("session.pause"), "{said}");
            }
            ("phantoms", "env_file") => assert_eq!(file("other-agent-1.env"), held),
            ("limits", "connections_per_session" | "connections") => {
                let first = TcpStream::connect(program.proxy).unwrap();
                let mut second = TcpStream::connect(program.proxy).unwrap();
                let read = second.read(&mut [0; 64]);
                assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
                drop(first);
                std::thread::sleep(Duration::from_millis(100));
            }
            ("limits", "exchanges_per_session") => {
                let (_, stream) = program.begin("http://stream.test/events");
                assert_eq!(status("http://stream.test/"), 503);
                drop(stream);
                std::thread::sleep(Duration::from_millis(200));
            }
            ("limits", "head_timeout" | "idle_timeout" | "handshake_timeout") => {
                let mut open = TcpStream::connect(program.proxy).unwrap();
                if key == "head_timeout" {
                    open.write_all(b"GET http://stream.test/ HTTP/1.1\r\nHost:")
                        .unwrap();
                }
                open.set_read_timeout(Some(Duration::from_secs(8))).unwrap();
                if key != "idle_timeout" {
                    let _ = open.read(&mut [0; 512]).unwrap();
                }
            }
            ("listener", "address") => {
                assert!(TcpStream::connect(self.spare).is_ok());
                assert!(TcpStream::connect(self.second).is_err());
            }
            ("listener", "session") => assert!(!file("phantoms-agent-4.env").is_empty()),
            ("listener", "mode") => {
                let about = fs::metadata(program.path("agents.sock")).unwrap();
                assert_eq!(about.permissions().mode() & 0o777, 0o660);
            }
            ("listener", "groups") => {
                let all = program.json(&["session", "list"]);
                assert_eq!(all["sessions"][1]["groups"][0], "two");
            }
            ("credential", "name") => {
                let all = program.json(&["session", "list"]);
                assert_eq!(all["sessions"][0]["credentials"][0], "BETA");
            }
            ("credential", "env") => assert!(held.contains("ALPHA_TWO="), "{held}"),
            ("login", "env") => assert!(held.contains("GAMMA_TWO="), "{held}"),
            ("login", "shape") => assert!(held.contains("GAMMA=gamma-"), "{held}"),
            ("credential", "preset") => assert!(held.contains("AIRTABLE_API_KEY="), "{held}"),
            ("credential", "shape") => assert!(held.contains("ALPHA=alpha-"), "{held}"),
            _ => {}
        }
    }
}

/// A name server that does not answer.
fn names() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    socket
}

#[test]
fn no_key_of_the_sandbox_changes_while_its_command_runs() {
    let fixture = Fixture::read(str::to_owned);
    for (section, key, reloads) in documented() {
        if section == "sandbox" {
            assert!(!reloads && fixture.changes.contains_key(&(section, key)));
        }
    }
    let keys = fixture.changes.iter();
    let lines = keys.filter(|((section, _), _)| section == "sandbox");
    let lines: Vec<String> = lines.map(|(_, (_, lines))| lines[0].clone()).collect();
    crate::sandbox::refuses_to_reload("[sandbox]\n", &lines);
}
