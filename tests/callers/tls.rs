//! Proxies that speak TLS to their clients, and take certificates of them.

use std::collections::HashSet;
use std::fs::{self, Permissions};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, SanType, SerialNumber,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore, StreamOwned, version};
use time::OffsetDateTime;

pub use super::authority::{Authority, client};
use super::program::{Program, free, gateway};
use super::{ASKED, CLOSE, CONNECTED, TUNNELLED, asked, mint, text};

/// A program whose proxy has a certificate of `server` and takes those of `clients`.
pub struct Rig {
    pub program: Program,
    pub address: SocketAddr,
    server: Authority,
    pub clients: Authority,
}

impl Rig {
    pub fn start(tls: &str, further: &str) -> Self {
        let (program, address) = (Program::start(""), free());
        let rig = Self {
            program,
            address,
            server: Authority::new(),
            clients: Authority::new(),
        };
        rig.write("clients.pem", &rig.clients.1);
        rig.write("server-root.pem", &rig.server.1);
        rig.write("crls.pem", &rig.clients.list(&[66]));
        rig.issue_proxy();
        let more = format!(
            "[ca]\ncertificate = \"ca-{{session}}.pem\"\n[[listener]]\nkind = \"proxy\"\naddress = \"{address}\"\n\
             tls = {{ certificate = \"proxy.pem\", key = \"proxy.key\"{tls} }}\n{further}\n"
        );
        let edited = |text: &str| text.replace("phantoms.env", "phantoms-{session}.env") + &more;
        rig.program.edit(edited);
        rig.program.reload();
        rig
    }

    /// Lists the client certificates of these serial numbers as revoked.
    pub fn list(&self, serials: &[u64]) {
        self.write("crls.pem", &self.clients.list(serials));
    }

    fn issue_proxy(&self) {
        self.server
            .issue(self.program.folder.path(), "proxy", |params| {
                params.subject_alt_names = vec![SanType::IpAddress(self.address.ip())];
            });
    }

    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.program.path(name), text).unwrap();
    }

    /// Connects with the certificate of this name, if it is one.
    fn connect(&self, certificate: &str) -> io::Result<Tls> {
        self.connect_by(certificate, &[])
    }

    fn connect_by(&self, certificate: &str, protocols: &[&str]) -> io::Result<Tls> {
        let config = self.config(certificate, protocols);
        connect(self.address, Arc::new(config))
    }

    pub fn config(&self, certificate: &str, protocols: &[&str]) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        let root = CertificateDer::from_pem_slice(self.server.1.as_bytes()).unwrap();
        roots.add(root).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let versions: &[_] = match protocols {
            ["1.2"] => &[&version::TLS12],
            _ => &[&version::TLS13],
        };
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match certificate {
            "" => config.with_no_client_auth(),
            name => {
                let at = |end: &str| self.program.path(&format!("{name}.{end}"));
                let chain = CertificateDer::pem_file_iter(at("pem")).unwrap();
                let chain = chain.collect::<Result<_, _>>().unwrap();
                let key = PrivateKeyDer::from_pem_file(at("key")).unwrap();
                config.with_client_auth_cert(chain, key).unwrap()
            }
        };
        let protocols = protocols.iter().filter(|one| **one != "1.2");
        config.alpn_protocols = protocols.map(|one| one.as_bytes().to_vec()).collect();
        config
    }

    /// Sends bytes inside TLS, and returns all that comes back.
    fn send(&self, certificate: &str, bytes: &[u8]) -> String {
        self.connect(certificate)
            .map(|tls| answer(tls, bytes))
            .unwrap_or_default()
    }

    /// The records of what was refused or answered, but for the first so many.
    fn records(&self, before: usize) -> Vec<serde_json::Value> {
        self.program.records("exchange").split_off(before)
    }
}

type Tls = StreamOwned<ClientConnection, TcpStream>;

fn connect(address: SocketAddr, config: Arc<ClientConfig>) -> io::Result<Tls> {
    let mut tcp = TcpStream::connect(address)?;
    tcp.set_read_timeout(Some(Duration::from_secs(10)))?;
    let name = ServerName::from(address.ip());
    let mut tls = ClientConnection::new(config, name).unwrap();
    tls.complete_io(&mut tcp)?;
    Ok(StreamOwned::new(tls, tcp))
}

fn answer(mut stream: impl Read + Write, bytes: &[u8]) -> String {
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn a_proxy_with_tls_takes_each_protocol_inside_it_and_nothing_outside() {
    let rig = Rig::start("", "session = \"agent-1\"");
    let began = Instant::now();
    for protocols in [&[][..], &["1.2"], &["http/1.1", "other"], &["http/1.1"]] {
        for asked in [ASKED, TUNNELLED, CONNECTED] {
            let tls = rig.connect_by("", protocols).unwrap();
            let alpn = tls.conn.alpn_protocol().map(<[u8]>::to_vec);
            let wanted = protocols
                .contains(&"http/1.1")
                .then(|| b"http/1.1".to_vec());
            assert_eq!(alpn, wanted, "{protocols:?}");
            let answer = answer(tls, asked);
            assert!(answer.ends_with("\r\n\r\nok"), "{protocols:?}: {answer}");
        }
    }
    let tls = rig.connect_by("", &["http/1.1", "h2"]).unwrap();
    assert_eq!(tls.conn.alpn_protocol(), Some(&b"h2"[..]));
    assert!(rig.connect_by("", &["other"]).is_err());
    // Nothing is resumed.
    let config = Arc::new(rig.config("", &[]));
    for _ in 0..2 {
        let mut tls = connect(rig.address, config.clone()).unwrap();
        tls.write_all(ASKED).unwrap();
        let _ = tls.read_to_end(&mut Vec::new());
        assert_eq!(tls.conn.handshake_kind(), Some(HandshakeKind::Full));
    }
    let before = rig.records(0).len();
    for (clear, told) in [
        (ASKED, "HTTP/1.1 400 "),
        (CONNECTED, "HTTP/1.1 400 "),
        (TUNNELLED, ""),
        (b"\x16\x03\x01\x00\x05hello", ""),
    ] {
        let answer = answer(TcpStream::connect(rig.address).unwrap(), clear);
        let is_told = answer.starts_with(told) && answer.is_empty() == told.is_empty();
        assert!(is_told || clear[0] == 22, "{answer}");
        assert!(told.is_empty() || answer.contains("proxy_tls"), "{answer}");
    }
    println!("all took {:?}", began.elapsed());
    assert!(began.elapsed() < Duration::from_secs(8));
    // Strangers have no share of the log: each cause is recorded once.
    let until = Instant::now() + Duration::from_secs(5);
    while rig.records(before).len() < 2 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    let records = rig.records(before);
    let reasons = records.iter().filter_map(|one| one["reason"].as_str());
    let reasons: Vec<_> = reasons.collect();
    assert_eq!(reasons, ["proxy_tls", "tls_handshake"]);
}

#[test]
fn curl_reaches_an_origin_by_tls_within_tls_and_a_renewed_certificate_cuts_nothing() {
    let rig = Rig::start("", "session = \"agent-1\"");
    let curl = |url: &str| {
        let mut command = Command::new("curl");
        command.args([
            "-sS",
            "--proxy",
            &format!("https://{}", rig.address),
            "--cacert",
        ]);
        command
            .arg(rig.program.path("ca-agent-1.pem"))
            .arg("--proxy-cacert");
        command.arg(rig.program.path("server-root.pem")).arg(url);
        let output = command.output().unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    assert_eq!(curl("http://stream.test/"), "ok");
    assert!(curl("https://gateway.internal/ca.pem").contains("BEGIN CERTIFICATE"));
    let (_, env) = rig.program.gateway(&["env", "--session", "agent-1"]);
    println!("{env}");
    let mut stream = rig.connect("").unwrap();
    stream.write_all(&asked("", "/endless", "")).unwrap();
    stream.read_exact(&mut [0; 100]).unwrap();
    let shown = |tls: &Tls| {
        tls.conn.peer_certificates().unwrap()[0]
            .clone()
            .into_owned()
    };
    rig.issue_proxy();
    rig.program.reload();
    let renewed = rig.connect("").unwrap();
    assert_ne!(shown(&renewed), shown(&stream));
    // Longer than a sweep.
    let until = Instant::now() + Duration::from_millis(1500);
    while Instant::now() < until {
        stream.read_exact(&mut [0; 100]).unwrap();
    }
    assert_eq!(curl("http://stream.test/"), "ok");
}

const ID: &str = "spiffe://example.org/ns/ci/sa/build";
const GROUP: &str = "spiffe://example.org";
pub const TRUST: &str = ", client_roots = \"clients.pem\", client_crls = \"crls.pem\"";

#[test]
fn a_certificate_names_the_user_of_a_proxy_or_is_refused() {
    let tls = format!("{TRUST}, trust_domain = \"example.org\"");
    let rig = Rig::start(&tls, "session = \"agent-1\"\nwho = [\"certificate\"]");
    let folder = rig.program.folder.path();
    let stranger = Authority::new();
    let now = OffsetDateTime::now_utc();
    let issue = |name: &str, change: &dyn Fn(&mut CertificateParams)| {
        rig.clients.issue(folder, name, change);
    };
    issue("good", &|all| client("ignored", &[ID])(all));
    stranger.issue(folder, "stranger", client("", &[ID]));
    issue("over", &|all| {
        client("", &[ID])(all);
        all.not_after = now - Duration::from_secs(60);
    });
    issue("early", &|all| {
        client("", &[ID])(all);
        all.not_before = now + Duration::from_secs(600);
    });
    issue("server", &|all| {
        client("", &[ID])(all);
        all.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    });
    issue("revoked", &|all| {
        client("", &[ID])(all);
        all.serial_number = Some(SerialNumber::from(66));
    });
    issue("authority", &|all| {
        client("", &[ID])(all);
        all.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    });
    issue("two", &|all| {
        client("", &[ID, "spiffe://example.org/b"])(all)
    });
    issue("other", &|all| client("", &["spiffe://example.com/a"])(all));
    issue("url", &|all| client("", &["https://example.org/a"])(all));
    issue("name", &|all| client("agent", &[])(all));
    issue("nobody", &|all| client("", &[])(all));
    let mut known = HashSet::new();
    for (name, cause) in [
        ("good", None),
        ("", Some("no certificate was presented")),
        ("stranger", Some("no root of `client_roots` signed")),
        ("over", Some("time of its certificate is over")),
        ("early", Some("not valid yet")),
        ("server", Some("not for clients")),
        ("revoked", Some("is revoked")),
        ("authority", Some("cannot be verified")),
        ("two", Some("several URIs")),
        ("other", Some("another trust domain")),
        ("url", Some("no SPIFFE id")),
        // With a trust domain, a common name is of none.
        ("name", Some("another trust domain")),
        ("nobody", Some("neither a SPIFFE id nor one common name")),
    ] {
        let before = rig.records(0).len();
        for asked in [ASKED, TUNNELLED, CONNECTED] {
            let answer = rig.send(name, asked);
            let is_taken = answer.ends_with("\r\n\r\nok");
            assert_eq!(is_taken, cause.is_none(), "{name}: {answer}");
        }
        let records = rig.records(before);
        // One for each cause: strangers have no share of the log.
        let wanted = match cause {
            None => 3,
            Some(cause) => usize::from(known.insert(cause)),
        };
        assert_eq!(records.len(), wanted, "{name}: {records:#?}");
        for record in records {
            let (user, session) = (record["user"].as_str(), record["session"].as_str());
            let wanted = cause.is_none().then_some((ID, "agent-1")).unzip();
            assert_eq!((user, session), wanted, "{name}: {record}");
            let reason = cause.map(|_| "caller_refused");
            assert_eq!(record["reason"].as_str(), reason, "{name}: {record}");
            let said = record["cause"].as_str().unwrap_or_default();
            assert!(said.contains(cause.unwrap_or_default()), "{name}: {record}");
        }
    }
    for (who, is_allowed) in [
        (format!("principal in Gateway::User::\"{ID}\""), true),
        (format!("principal in Gateway::Group::\"{GROUP}\""), true),
        (
            "principal in Gateway::User::\"cn:ignored\"".to_owned(),
            false,
        ),
        (
            "principal in Gateway::Group::\"spiffe://example.com\"".to_owned(),
            false,
        ),
    ] {
        let rule = format!("permit({who}, action, resource == Gateway::Host::\"stream.test\");");
        rig.write("rules.cedar", &rule);
        rig.program.reload();
        let answer = rig.send("good", ASKED);
        assert_eq!(answer.ends_with("ok"), is_allowed, "{rule}: {answer}");
    }
}

#[test]
fn the_first_of_token_and_certificate_that_is_there_selects_the_session() {
    let further = "session = \"{caller}\"\nwho = [\"token\", \"certificate\"]";
    let rig = Rig::start(", client_roots = \"clients.pem\"", further);
    let folder = rig.program.folder.path();
    rig.clients.issue(folder, "build", client("", &[ID]));
    rig.clients.issue(folder, "agent", client("agent", &[]));
    Authority::new().issue(folder, "stranger", client("", &[ID]));
    let any = text(&mint(&rig.program, &[]));
    let bound = text(&mint(&rig.program, &["--as", ID]));
    for (name, token, status, session) in [
        (
            "build",
            "",
            "200",
            Some("caller:d28842f3637fbf5010638e0093c6b0b4"),
        ),
        ("agent", "", "200", Some("caller:")),
        ("", "", "407", None),
        ("", &any, "200", Some("agent-1")),
        ("build", &any, "200", Some("agent-1")),
        ("build", &bound, "200", Some("agent-1")),
        ("agent", &bound, "407", None),
        ("", &bound, "407", None),
        // One that is there must be good, also beside a token.
        ("stranger", &any, "", None),
    ] {
        let before = rig.records(0).len();
        let answer = rig.send(name, &asked(token, "/", CLOSE));
        let got = answer.get(9..12).unwrap_or_default();
        assert_eq!(got, status, "{name}: {answer}");
        let record = rig.records(before).pop();
        let of = record
            .as_ref()
            .and_then(|record| record["session"].as_str());
        assert_eq!(of.is_some(), session.is_some(), "{name} {token}");
        assert!(
            of.unwrap_or_default()
                .starts_with(session.unwrap_or_default())
        );
    }
    let of = |name| {
        rig.send(name, b"GET http://gateway.internal/ca.pem HTTP/1.1\r\nHost: gateway.internal\r\nConnection: close\r\n\r\n")
    };
    assert!(of("build").contains("BEGIN") && of("build") != of("agent"));
}

#[test]
fn what_a_certificate_carries_ends_with_it_with_its_roots_and_by_a_list() {
    let rig = Rig::start(TRUST, "session = \"agent-1\"\nwho = [\"certificate\"]");
    let folder = rig.program.folder.path();
    let stream = |name: &str, serial: u64, lasts: u64| {
        rig.clients.issue(folder, name, |all| {
            client(name, &[])(all);
            all.serial_number = Some(SerialNumber::from(serial));
            all.not_after = OffsetDateTime::now_utc() + Duration::from_secs(lasts);
        });
        let mut tls = rig.connect(name).unwrap();
        tls.write_all(&asked("", "/endless", "")).unwrap();
        let mut head = [0; 12];
        tls.read_exact(&mut head).unwrap();
        assert_eq!(&head, b"HTTP/1.1 200");
        tls
    };
    let breaks_off = |mut tls: Tls, within: u64| {
        let (began, mut part) = (Instant::now(), [0; 4096]);
        while matches!(tls.read(&mut part), Ok(read) if read > 0) {
            assert!(began.elapsed() < Duration::from_secs(within), "it goes on");
        }
        println!("it broke off after {:?}", began.elapsed());
    };
    let (short, listed, other) = (
        stream("short", 1, 3),
        stream("listed", 2, 600),
        stream("other", 3, 600),
    );
    let mut rests = rig.connect("listed").unwrap();
    let mut ask = || {
        let mut head = [0; 12];
        rests.write_all(&asked("", "/", "")).unwrap();
        rests.read_exact(&mut head).unwrap();
        let _ = rests.read(&mut [0; 4096]);
        String::from_utf8(head[9..].to_vec()).unwrap()
    };
    assert_eq!(ask(), "200");
    breaks_off(short, 6);
    rig.write("crls.pem", &rig.clients.list(&[2]));
    rig.program.reload();
    breaks_off(listed, 2);
    assert_eq!(ask(), "403");
    // A certificate that is taken as before stays.
    let mut other = other;
    let until = Instant::now() + Duration::from_millis(1200);
    while Instant::now() < until {
        other.read_exact(&mut [0; 100]).unwrap();
    }
    rig.write("clients.pem", &Authority::new().1);
    rig.write("crls.pem", &rig.clients.list(&[]));
    rig.program.reload();
    breaks_off(other, 2);
    for name in ["short", "listed", "other"] {
        assert_eq!(rig.send(name, ASKED), "", "{name}");
    }
    std::thread::sleep(Duration::from_millis(300));
    let ends = rig.program.records("end");
    let reasons: Vec<_> = ends
        .iter()
        .filter_map(|end| end["reason"].as_str())
        .collect();
    assert_eq!(reasons, ["caller_refused"; 3]);
}

#[test]
fn tls_that_cannot_be_is_refused_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let authority = Authority::new();
    let year = Duration::from_secs(365 * 86400);
    for (name, is_over) in [("a", false), ("b", false), ("over", true)] {
        authority.issue(at, name, |all| {
            if is_over {
                all.not_before = OffsetDateTime::now_utc() - year;
                all.not_after = OffsetDateTime::now_utc() - Duration::from_secs(60);
            }
        });
    }
    fs::write(at.join("roots.pem"), &authority.1).unwrap();
    fs::copy(at.join("a.key"), at.join("open.key")).unwrap();
    fs::set_permissions(at.join("open.key"), Permissions::from_mode(0o644)).unwrap();
    let good = "certificate = \"a.pem\", key = \"a.key\"";
    let roots = ", client_roots = \"roots.pem\"";
    let proxy = "kind = \"proxy\"\naddress = \"127.0.0.1:1\"\n";
    let open = "kind = \"proxy\"\naddress = \"0.0.0.0:1\"\n";
    let with = |tls: &str, more: &str| format!("{proxy}tls = {{ {tls} }}\n{more}");
    let taken = [
        with(good, ""),
        with(
            &format!("{good}{roots}"),
            "who = [\"certificate\"]\nsession = \"{caller}\"",
        ),
        format!("{open}tls = {{ {good} }}\nwho = [\"token\"]"),
        format!("{open}tls = {{ {good}{roots} }}\nwho = [\"token\", \"certificate\"]"),
    ];
    let refused = [
        (with("key = \"a.key\"", ""), 4, "has no `certificate`"),
        (with("certificate = \"a.pem\"", ""), 4, "has no `key`"),
        (
            with("certificate = \"a.pem\", key = \"b.key\"", ""),
            4,
            "it is not the key of the certificate",
        ),
        (
            with("certificate = \"a.pem\", key = \"none\"", ""),
            4,
            "cannot be looked at",
        ),
        (
            with("certificate = \"a.pem\", key = \"a.pem\"", ""),
            4,
            "a.pem",
        ),
        (
            with("certificate = \"a.pem\", key = \"open.key\"", ""),
            4,
            "open.key",
        ),
        (
            with("certificate = \"a.key\", key = \"a.key\"", ""),
            4,
            "the file holds no certificate",
        ),
        (
            with(&format!("{good}{roots}"), ""),
            4,
            "the listener asks for none",
        ),
        (
            with(good, "who = [\"certificate\"]"),
            4,
            "has no `client_roots`",
        ),
        (
            with(
                &format!("{good}{roots}, client_crls = \"roots.pem\""),
                "who = [\"certificate\"]",
            ),
            4,
            "holds no list",
        ),
        (
            with(
                &format!("{good}{roots}, trust_domain = \"Example.org\""),
                "who = [\"certificate\"]",
            ),
            4,
            "it is no trust domain",
        ),
        (
            format!("{proxy}who = [\"certificate\"]"),
            4,
            "nobody could present a certificate",
        ),
        (
            with(
                &format!("{good}{roots}"),
                "who = [\"certificate\", \"token\"]",
            ),
            5,
            "what a client presents counts before all else",
        ),
        (
            format!(
                "kind = \"proxy\"\naddress = \"unix:/run/x.sock\"\ntls = {{ {good}{roots} }}\nwho = [\"unix\", \"certificate\"]"
            ),
            5,
            "no certificate would count",
        ),
        (
            format!("{open}tls = {{ {good}{roots} }}\nwho = [\"tailnet\", \"certificate\"]"),
            5,
            "no certificate would count",
        ),
        (
            format!("{open}tls = {{ {good} }}"),
            3,
            "asks nobody who it is listens beyond loopback",
        ),
        (
            format!("kind = \"tls\"\naddress = \"127.0.0.1:1\"\ntls = {{ {good} }}"),
            4,
            "`tls` contradicts `kind = \"tls\"`",
        ),
        (
            format!("kind = \"transparent\"\naddress = \"127.0.0.1:1\"\ntls = {{ {good} }}"),
            4,
            "`tls` contradicts `kind = \"transparent\"`",
        ),
        (
            format!("kind = \"dns\"\naddress = \"127.0.0.1:1\"\ntls = {{ {good} }}"),
            4,
            "`tls` contradicts `kind = \"dns\"`",
        ),
    ];
    let check = |lines: &str| {
        fs::write(at.join("gateway.toml"), format!("[[listener]]\n{lines}\n")).unwrap();
        gateway(at, &["policy", "check", "--config", "gateway.toml"])
    };
    for lines in taken {
        let (code, said) = check(&lines);
        assert!(code == 0 && !said.contains("clear text"), "{lines}: {said}");
    }
    for (lines, line, what) in refused {
        let (code, said) = check(&lines);
        let is_there = said.contains(&format!("gateway.toml:{line}")) && said.contains(what);
        assert!(code != 0 && is_there, "{lines}: {said}");
    }
    let (code, said) = check(&with("certificate = \"over.pem\", key = \"over.key\"", ""));
    assert!(
        code == 0 && said.contains("the time of the certificate is over"),
        "{said}"
    );
}
