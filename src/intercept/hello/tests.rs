//! Handshakes: with rustls as the client, with raw bytes, and with strict programs (`openssl` and
//! `python3` required).

use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gateway_names::SessionId;
use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, HandshakeKind, RootCertStore};
use tokio::io::{AsyncReadExt, DuplexStream, duplex};
use tokio::net::TcpListener;
use tokio_rustls::TlsConnector;

use super::*;
use crate::CaSettings;

fn host(text: &str) -> Host {
    Host::parse(text.as_bytes()).unwrap()
}

fn ca_for(permit: impl Fn(&Host) -> bool + Send + Sync + 'static) -> SessionCa {
    let session = SessionId::new("s-1").unwrap();
    SessionCa::new(&session, &CaSettings::default(), Arc::new(permit)).unwrap()
}

fn ca() -> SessionCa {
    ca_for(|_| true)
}

fn root(ca: &SessionCa) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(ca.certificate_pem().as_bytes()).unwrap()
}

fn client(ca: &SessionCa, alpn: &[&str]) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(root(ca)).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|text| text.as_bytes().to_vec()).collect();
    config
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(5)
}

/// Does one handshake in memory: returns the server's verdict and the client's result.
async fn meet(
    ca: &SessionCa,
    destination: Destination<'_>,
    config: Arc<ClientConfig>,
    name: &str,
) -> (
    Result<TerminatedTls<DuplexStream>, HandshakeError>,
    io::Result<tokio_rustls::client::TlsStream<DuplexStream>>,
) {
    let (near, far) = duplex(16 * 1024);
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut said = None;
    tokio::join!(terminate(far, ca, destination, soon(), &mut said), async {
        let mut stream = TlsConnector::from(config).connect(name, near).await?;
        // In TLS 1.3 the ticket follows the handshake.
        let mut nothing = [0; 1];
        let _ = tokio::time::timeout(Duration::from_millis(20), stream.read(&mut nothing)).await;
        Ok(stream)
    })
}

const ANY: Destination<'static> =
    Destination::Address(IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 7)));

/// The destination for a `tls` listener: only the server name gives the host.
const NOWHERE: Destination<'static> =
    Destination::Address(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED));

/// Makes a hello with any SNI bytes, TLS 1.3 with an X25519 share, in records of `record` bytes.
fn hello(sni: Option<&[u8]>, record: usize) -> Vec<u8> {
    fn block16(bytes: &[u8]) -> Vec<u8> {
        [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat()
    }
    fn extension(kind: u16, body: &[u8]) -> Vec<u8> {
        [&kind.to_be_bytes()[..], &block16(body)].concat()
    }
    let mut extensions = Vec::new();
    if let Some(sni) = sni {
        extensions.extend(extension(0, &block16(&[&[0][..], &block16(sni)].concat())));
    }
    extensions.extend(extension(10, &block16(&[0, 29])));
    extensions.extend(extension(13, &block16(&[4, 3])));
    extensions.extend(extension(43, &[2, 3, 4]));
    extensions.extend(extension(
        51,
        &block16(&[&[0, 29][..], &block16(&[9; 32])].concat()),
    ));
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.push(0);
    body.extend(block16(&[0x13, 0x01]));
    body.extend([1, 0]);
    body.extend(block16(&extensions));
    let length = (body.len() as u32).to_be_bytes();
    let message = [&[1, length[1], length[2], length[3]][..], &body].concat();
    message
        .chunks(record)
        .flat_map(|part| [&[22, 3, 1][..], &block16(part)].concat())
        .collect()
}

/// Sends raw bytes and returns the verdict and the first bytes that come back.
async fn raw(
    ca: &SessionCa,
    destination: Destination<'_>,
    bytes: &[u8],
    segment: usize,
) -> (Option<HandshakeError>, Vec<u8>) {
    let (mut near, far) = duplex(1 << 20);
    let mut said = None;
    let server = terminate(
        far,
        ca,
        destination,
        Instant::now() + Duration::from_millis(300),
        &mut said,
    );
    let client = async {
        for part in bytes.chunks(segment) {
            if near.write_all(part).await.is_err() {
                break;
            }
            tokio::task::yield_now().await;
        }
        let mut answer = vec![0; 7];
        let read = near.read(&mut answer).await.unwrap_or(0);
        answer.truncate(read);
        // The client's side stays open: the server must not depend on it closing.
        (answer, near)
    };
    let (ended, (answer, _near)) = tokio::join!(server, client);
    (ended.err(), answer)
}

fn alert(code: u8) -> Vec<u8> {
    vec![21, 3, 3, 0, 2, 2, code]
}

#[tokio::test]
async fn the_sni_decides_the_host_and_alpn_the_protocol() {
    let ca = ca();
    for (alpn, http2) in [
        (&["h2", "http/1.1"][..], true),
        (&["http/1.1"], false),
        (&[], false),
    ] {
        let (server, client) = meet(&ca, ANY, Arc::new(client(&ca, alpn)), "API.github.com").await;
        let (server, client) = (server.unwrap(), client.unwrap());
        assert_eq!(
            (server.host, server.named_by_sni, server.http2),
            (host("api.github.com"), true, http2)
        );
        let suite = client
            .get_ref()
            .1
            .negotiated_cipher_suite()
            .unwrap()
            .suite();
        assert_eq!(suite, rustls::CipherSuite::TLS13_AES_128_GCM_SHA256);
    }
}

#[tokio::test]
async fn an_sni_other_than_the_connect_target_is_cut() {
    let ca = ca();
    let (good, address) = (host("good.test"), host("192.0.2.1"));
    for named in [&good, &address] {
        let (verdict, answer) = raw(
            &ca,
            Destination::Named(named),
            &hello(Some(b"evil.test"), 4096),
            4096,
        )
        .await;
        assert!(
            matches!(verdict, Some(HandshakeError::SniMismatch)),
            "{verdict:?}"
        );
        assert_eq!(answer, alert(112));
    }
    let (server, _) = meet(
        &ca,
        Destination::Named(&good),
        Arc::new(client(&ca, &[])),
        "good.test",
    )
    .await;
    assert_eq!(server.unwrap().host, good);
}

#[tokio::test]
async fn a_hello_without_a_name_is_cut_unless_it_has_an_address() {
    let dialled: IpAddr = "192.0.2.1".parse().unwrap();
    let ca = ca();
    let good = host("good.test");
    for (destination, sni) in [
        (NOWHERE, None),
        (NOWHERE, Some(&b"192.0.2.1"[..])),
        (Destination::Named(&good), None),
        (Destination::Named(&good), Some(&b"192.0.2.1"[..])),
    ] {
        let (verdict, answer) = raw(&ca, destination, &hello(sni, 4096), 4096).await;
        assert!(
            matches!(verdict, Some(HandshakeError::NoSni)),
            "{destination:?} {verdict:?}"
        );
        assert_eq!(answer, alert(112));
    }
    let literal = Host::from_ip(dialled);
    for destination in [Destination::Address(dialled), Destination::Named(&literal)] {
        let (server, client) =
            meet(&ca, destination, Arc::new(client(&ca, &[])), "192.0.2.1").await;
        let server = server.unwrap();
        assert_eq!((server.host, server.named_by_sni), (literal.clone(), false));
        client.unwrap();
    }
}

#[tokio::test]
async fn a_hello_decides_the_same_however_it_is_cut() {
    let (ca, good) = (ca(), host("good.test"));
    for (name, refused) in [("good.test", false), ("evil.test", true)] {
        for (record, segment) in [
            (4096, 4096),
            (4096, 1),
            (1, 4096),
            (1, 1),
            (7, 3),
            (50, 61),
            (2, 5),
        ] {
            let bytes = hello(Some(name.as_bytes()), record);
            let (verdict, answer) = raw(&ca, Destination::Named(&good), &bytes, segment).await;
            if refused {
                assert!(
                    matches!(verdict, Some(HandshakeError::SniMismatch)),
                    "{record} {segment}: {verdict:?}"
                );
                assert_eq!(answer, alert(112), "{record} {segment}");
            } else {
                // The server sends its hello, then waits for the client until the deadline.
                assert!(
                    matches!(verdict, Some(HandshakeError::Timeout)),
                    "{record} {segment}: {verdict:?}"
                );
                assert_eq!(answer[0], 22, "{record} {segment}");
            }
        }
    }
}

#[tokio::test]
async fn hostile_names_are_cut_and_the_next_good_one_works() {
    let ca = ca_for(|host| host.ip().is_none());
    let long = [b'a'; 300];
    let labels = b"a.".repeat(140);
    let corpus: &[&[u8]] = &[
        b"",
        b"good\0.test",
        b"*.test",
        b"..",
        ".a".as_bytes(),
        b"a..b",
        b".",
        b"good.test..",
        &long,
        &labels,
        b"xn--good-.example",
        b"a b.test",
        b"good.test:443",
        b"user@good.test",
        b"g\xc3\xb6\xc3\xb6d.test",
        b"\xff\xfe",
        b"-a.test",
        b"a-.test",
        b"::1",
        b"[::1]",
        b"fe80::1%25eth0",
        b"127.1",
        b"0x7f.1",
        b"2130706433",
        b"1.2.3.4.5",
        b"good.test\n",
        b"%00",
        b"a/b",
        b"http://a",
    ];
    for sni in corpus {
        let (verdict, answer) = raw(&ca, NOWHERE, &hello(Some(sni), 4096), 4096).await;
        let verdict = verdict.unwrap_or_else(|| panic!("{sni:?} was accepted"));
        assert!(!matches!(verdict, HandshakeError::Timeout), "{sni:?}");
        assert_eq!(answer.first(), Some(&21), "{sni:?}: {verdict:?}");
        assert_eq!(answer.get(5), Some(&2), "{sni:?}: the alert is fatal");
    }
    assert_eq!(ca.leaves(), (0, 0));
    let (server, _) = meet(&ca, ANY, Arc::new(client(&ca, &[])), "good.test").await;
    assert_eq!(server.unwrap().host, host("good.test"));
}

#[tokio::test]
async fn a_panic_while_a_name_is_judged_spoils_no_later_handshake() {
    let explode = Arc::new(AtomicBool::new(true));
    let lit = Arc::clone(&explode);
    let ca = Arc::new(ca_for(move |_| {
        !lit.load(Ordering::SeqCst) || panic!("a fault in policy")
    }));
    let inner = Arc::clone(&ca);
    let crashed =
        tokio::spawn(async move { raw(&inner, ANY, &hello(Some(b"good.test"), 4096), 4096).await })
            .await;
    assert!(crashed.unwrap_err().is_panic());
    explode.store(false, Ordering::SeqCst);
    let (server, _) = meet(&ca, ANY, Arc::new(client(&ca, &[])), "good.test").await;
    assert!(server.is_ok());
}

#[tokio::test]
async fn what_is_not_tls_or_never_ends_is_cut() {
    let ca = ca();
    for opening in [
        "SSH-2.0-OpenSSH_9.9\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "EHLO x\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "\0\0\0",
    ] {
        let (verdict, answer) = raw(&ca, ANY, opening.as_bytes(), 4096).await;
        assert!(
            matches!(verdict, Some(HandshakeError::Hello(HelloFault::NotTls))),
            "{opening:?} {verdict:?}"
        );
        assert!(answer.is_empty(), "{opening:?}");
    }
    let whole = hello(Some(b"good.test"), 4096);
    let (verdict, _) = raw(&ca, ANY, &whole[..whole.len() - 1], 4096).await;
    assert!(
        matches!(verdict, Some(HandshakeError::Timeout)),
        "{verdict:?}"
    );
}

#[tokio::test]
async fn a_hello_without_an_end_is_cut_at_its_bound() {
    let ca = ca();
    // A handshake message that claims almost 64 KiB, and one that claims 16 MiB, in full records.
    for claimed in [[0, 0xff, 0xff], [0xff, 0xff, 0xff]] {
        let mut bytes = Vec::new();
        let message = [&[1][..], &claimed, &vec![3; 200 * 1024]].concat();
        for part in message.chunks(16 * 1024) {
            bytes.extend([22, 3, 1]);
            bytes.extend((part.len() as u16).to_be_bytes());
            bytes.extend(part);
        }
        let (verdict, answer) = raw(&ca, ANY, &bytes, 8192).await;
        assert!(
            matches!(
                verdict,
                Some(HandshakeError::Hello(
                    HelloFault::TooLong | HelloFault::Tls(..)
                ))
            ),
            "{verdict:?}"
        );
        assert_eq!(answer.first(), Some(&21));
    }
    // Many empty records.
    let (verdict, _) = raw(&ca, ANY, &[22, 3, 1, 0, 0].repeat(40_000), 8192).await;
    assert!(
        matches!(
            verdict,
            Some(HandshakeError::Hello(
                HelloFault::TooLong | HelloFault::Tls(..)
            ))
        ),
        "{verdict:?}"
    );
}

#[tokio::test]
async fn a_foreign_application_protocol_is_cut() {
    let ca = ca();
    for alpn in [
        &["h3"][..],
        &["acme-tls/1"],
        &["http/1.0", "spdy/3"],
        &["H2"],
    ] {
        let (server, client) = meet(&ca, ANY, Arc::new(client(&ca, alpn)), "good.test").await;
        assert!(matches!(server, Err(HandshakeError::Alpn)), "{alpn:?}");
        let error = client.unwrap_err().to_string();
        assert!(error.contains("NoApplicationProtocol"), "{error}");
    }
}

fn kind(stream: &io::Result<tokio_rustls::client::TlsStream<DuplexStream>>) -> HandshakeKind {
    stream
        .as_ref()
        .unwrap()
        .get_ref()
        .1
        .handshake_kind()
        .unwrap()
}

/// A client ticket store that returns its tickets for any name, as an attacker's would.
#[derive(Debug)]
struct Careless(rustls::client::ClientSessionMemoryCache);

impl rustls::client::ClientSessionStore for Careless {
    fn set_kx_hint(&self, _: ServerName<'static>, group: rustls::NamedGroup) {
        self.0.set_kx_hint(one(), group);
    }
    fn kx_hint(&self, _: &ServerName<'_>) -> Option<rustls::NamedGroup> {
        self.0.kx_hint(&one())
    }
    fn set_tls12_session(
        &self,
        _: ServerName<'static>,
        value: rustls::client::Tls12ClientSessionValue,
    ) {
        self.0.set_tls12_session(one(), value);
    }
    fn tls12_session(&self, _: &ServerName<'_>) -> Option<rustls::client::Tls12ClientSessionValue> {
        self.0.tls12_session(&one())
    }
    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        self.0.remove_tls12_session(&one());
    }
    fn insert_tls13_ticket(
        &self,
        _: ServerName<'static>,
        value: rustls::client::Tls13ClientSessionValue,
    ) {
        self.0.insert_tls13_ticket(one(), value);
    }
    fn take_tls13_ticket(
        &self,
        _: &ServerName<'static>,
    ) -> Option<rustls::client::Tls13ClientSessionValue> {
        self.0.take_tls13_ticket(&one())
    }
}

fn one() -> ServerName<'static> {
    ServerName::try_from("one.test").unwrap()
}

fn careless(
    ca: &[&SessionCa],
    version: &'static rustls::SupportedProtocolVersion,
) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for ca in ca {
        roots.add(root(ca)).unwrap();
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.resumption = Resumption::store(Arc::new(Careless(
        rustls::client::ClientSessionMemoryCache::new(8),
    )));
    Arc::new(config)
}

#[tokio::test]
async fn a_ticket_resumes_under_its_own_name_and_session_alone() {
    let (ca, other) = (ca(), ca());
    for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
        let config = careless(&[&ca, &other], version);
        let (_, first) = meet(&ca, ANY, Arc::clone(&config), "a.test").await;
        assert_eq!(kind(&first), HandshakeKind::Full);
        let (_, same) = meet(&ca, ANY, Arc::clone(&config), "a.test").await;
        assert_eq!(kind(&same), HandshakeKind::Resumed, "{version:?}");
        let (server, under_b) = meet(&ca, ANY, Arc::clone(&config), "b.test").await;
        assert_eq!(kind(&under_b), HandshakeKind::Full, "{version:?}");
        assert_eq!(server.unwrap().host, host("b.test"));
        let (_, elsewhere) = meet(&other, ANY, Arc::clone(&config), "b.test").await;
        assert_eq!(kind(&elsewhere), HandshakeKind::Full, "{version:?}");
    }
}

#[tokio::test]
async fn a_connection_to_an_address_gets_no_ticket() {
    let ca = ca();
    let config = careless(&[&ca], &rustls::version::TLS13);
    for ip in ["192.0.2.1", "192.0.2.1", "192.0.2.2"] {
        let (_, client) = meet(
            &ca,
            Destination::Address(ip.parse().unwrap()),
            Arc::clone(&config),
            ip,
        )
        .await;
        assert_eq!(kind(&client), HandshakeKind::Full, "{ip}");
    }
}

/// Serves TLS on loopback to a program, and returns what the program printed.
async fn program(
    ca: Arc<SessionCa>,
    destination: Destination<'static>,
    program: &str,
    arguments: &[&str],
) -> String {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("ca.pem");
    std::fs::write(&root, ca.certificate_pem()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let server = tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let mut said = None;
            let ended = terminate(socket, &ca, destination, soon(), &mut said).await;
            if let Ok(mut ended) = ended {
                let mut request = [0; 1024];
                let _ = ended.stream.read(&mut request).await;
                let _ = ended
                    .stream
                    .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nyes")
                    .await;
                let _ = ended.stream.shutdown().await;
            }
        }
    });
    let output = tokio::process::Command::new(program)
        .args(arguments)
        .env("CA", &root)
        .env("PORT", &port)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(Duration::from_secs(20), output)
        .await
        .unwrap()
        .expect("the program is required");
    server.abort();
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

const PYTHON: &str = r#"
import os, socket, ssl, sys
context = ssl.create_default_context(cafile=os.environ["CA"])
context.verify_flags |= ssl.VERIFY_X509_STRICT
context.set_alpn_protocols(["http/1.1"])
try:
    raw = socket.create_connection(("127.0.0.1", int(os.environ["PORT"])), 5)
    tls = context.wrap_socket(raw, server_hostname=sys.argv[1])
    tls.sendall(b"GET / HTTP/1.1\r\n\r\n")
    data = b""
    while True:
        more = tls.recv(4096)
        if not more: break
        data += more
    print(tls.version(), data.decode().split("\r\n\r\n")[1])
except Exception as error:
    print("refused:", error)
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_in_strict_mode_accepts_names_and_addresses() {
    let constraints = Some(vec![host("good.test"), host("127.0.0.1")]);
    for constraints in [None, constraints] {
        let settings = CaSettings {
            constraints,
            ..CaSettings::default()
        };
        let session = SessionId::new("s-1").unwrap();
        let ca = Arc::new(SessionCa::new(&session, &settings, Arc::new(|_| true)).unwrap());
        let address = Destination::Address("127.0.0.1".parse().unwrap());
        for name in ["good.test", "127.0.0.1"] {
            let said = program(Arc::clone(&ca), address, "python3", &["-c", PYTHON, name]).await;
            assert_eq!(said.trim(), "TLSv1.3 yes", "{name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_refuses_the_ca_of_another_session() {
    let (used, trusted) = (Arc::new(ca()), ca());
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("other.pem");
    std::fs::write(&root, trusted.certificate_pem()).unwrap();
    let script = PYTHON.replace(
        r#"os.environ["CA"]"#,
        &format!("{:?}", root.to_str().unwrap()),
    );
    let said = program(used, ANY, "python3", &["-c", &script, "good.test"]).await;
    assert!(said.contains("CERTIFICATE_VERIFY_FAILED"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openssl_verifies_the_chain_under_both_versions() {
    for version in ["-tls1_3", "-tls1_2"] {
        let script = format!(
            "openssl s_client -connect 127.0.0.1:$PORT -servername good.test -verify_hostname good.test -x509_strict \
             -CAfile $CA -verify_return_error {version} -brief </dev/null 2>&1"
        );
        let said = program(Arc::new(ca()), ANY, "sh", &["-c", &script]).await;
        assert!(said.contains("Verification: OK"), "{said}");
        assert!(said.contains("Verified peername: good.test"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_versions_and_renegotiation_are_refused() {
    let script = "openssl s_client -connect 127.0.0.1:$PORT -servername good.test -CAfile $CA -tls1_1 \
                  -cipher DEFAULT:@SECLEVEL=0 </dev/null 2>&1";
    let said = program(Arc::new(ca()), ANY, "sh", &["-c", script]).await;
    assert!(said.contains("SSL alert number"), "{said}");
    assert!(said.contains("no peer certificate available"), "{said}");
    let script = "printf 'R\\n' | timeout 2 openssl s_client -connect 127.0.0.1:$PORT -servername good.test -CAfile $CA -tls1_2 2>&1";
    let said = program(Arc::new(ca()), ANY, "sh", &["-c", script]).await;
    // A second handshake would show the certificate again.
    assert!(said.contains("RENEGOTIATING"), "{said}");
    assert_eq!(said.matches("verify return").count(), 2, "{said}");
}

#[test]
fn keys_are_never_logged_extracted_or_used_for_early_data() {
    let config = ca().server_config();
    assert!(!config.key_log.will_log("CLIENT_TRAFFIC_SECRET_0"));
    assert!(!config.enable_secret_extraction);
    assert_eq!(config.max_early_data_size, 0);
    assert!(!config.send_half_rtt_data);
}
