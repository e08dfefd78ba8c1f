//! An upstream proxy: by the real program, before proxies that do as asked and others that do not.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::{Arc, Mutex};

use crate::program::{Program, free, origin};
use crate::servers;

const LOGIN: &str = "ann:canary-91ce07d4aa";
const LOGIN_IN_BASE64: &str = "YW5uOmNhbmFyeS05MWNlMDdkNGFh";

/// A proxy that takes CONNECT alone, and notes each.
struct ConnectProxy {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
}

impl ConnectProxy {
    /// Leads all to one origin behind this answer.
    fn start(to: SocketAddr, answer: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, seen) = (
            listener.local_addr().unwrap(),
            Arc::<Mutex<Vec<_>>>::default(),
        );
        let noted = seen.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (noted, answer) = (noted.clone(), answer.clone());
                // The gateway may cut it at any time.
                std::thread::spawn(move || drop(tunnel(client, to, &answer, &noted)));
            }
        });
        Self { address, seen }
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }
}

fn tunnel(
    mut client: TcpStream,
    to: SocketAddr,
    answer: &str,
    noted: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let (mut head, mut byte) = (String::new(), [0]);
    while !head.ends_with("\r\n\r\n") {
        client.read_exact(&mut byte)?;
        head.push(char::from(byte[0]));
    }
    noted.lock().unwrap().push(head);
    client.write_all(answer.as_bytes())?;
    if !answer.starts_with("HTTP/1.1 200") {
        return Ok(());
    }
    let mut origin = TcpStream::connect(to)?;
    let (mut from, mut back) = (client.try_clone()?, origin.try_clone()?);
    std::thread::spawn(move || std::io::copy(&mut from, &mut back));
    std::io::copy(&mut origin, &mut client).map(drop)
}

const OPEN: &str = "HTTP/1.1 200 Connection established\r\nVia: 1.1 proxy\r\n\r\n";

/// A gateway that reaches all but loopback by a proxy.
fn behind(proxy: SocketAddr, further: &str) -> Program {
    let program = Program::start("");
    let login = program.path("login");
    std::fs::write(&login, LOGIN).unwrap();
    std::fs::set_permissions(&login, std::fs::Permissions::from_mode(0o600)).unwrap();
    let rules = "permit(principal, action, resource);";
    std::fs::write(program.path("rules.cedar"), rules).unwrap();
    let far = "[[origin]]\nmatch = \"http://far.test\"\ncleartext = true\n";
    program.edit(|text| {
        format!(
            "{text}[limits]\nconnect_timeout = \"1s\"\n{far}{}{further}",
            all(proxy)
        )
    });
    program.reload();
    program
}

fn all(proxy: SocketAddr) -> String {
    format!("[[origin]]\nmatch = \"*\"\nvia = \"http://{proxy}\"\nvia_auth = \"file:login\"\n")
}

#[test]
fn origins_are_reached_by_the_upstream_proxy_as_the_configuration_says_now() {
    let proxy = ConnectProxy::start(origin(), OPEN.to_owned());
    let program = behind(proxy.address, "");
    for _ in 0..2 {
        assert_eq!(program.ask("http://far.test/").0, 200);
    }
    let seen = proxy.take();
    let expected = format!(
        "CONNECT far.test:80 HTTP/1.1\r\nHost: far.test:80\r\nProxy-Authorization: Basic {LOGIN_IN_BASE64}\r\n\r\n"
    );
    assert_eq!(seen, [expected], "one connection, for both");
    // A fixed address and this machine are reached without it.
    assert_eq!(program.ask("http://stream.test/").0, 200);
    assert_eq!(program.ask("http://localhost/").0, 403);
    // What the proxy would resolve or dial, the floor still holds back as far as it is known.
    for (host, reason) in [
        ("10.1.2.3", "ssrf_resolved_ip"),
        ("127.1", "ssrf_resolved_ip"),
        ("[fd00::1]", "ssrf_resolved_ip"),
        ("169.254.169.254", "metadata"),
        ("metadata.google.internal", "metadata"),
    ] {
        let clear = format!("[[origin]]\nmatch = \"http://{host}\"\ncleartext = true\n");
        // The address of a metadata service can have no rule.
        let before = program.edit(|text| match host {
            "169.254.169.254" => text.to_owned(),
            _ => text.to_owned() + &clear,
        });
        program.reload();
        let (status, text) = program.ask(&format!("http://{host}/"));
        assert!(
            status == 403 && text.contains(&format!("\"reason\":\"{reason}\"")),
            "{host}: {status} {text}"
        );
        program.edit(|_| before);
    }
    assert!(proxy.take().is_empty());
    // The next request goes by another proxy, and no pooled connection by the one before.
    let other = ConnectProxy::start(origin(), OPEN.to_owned());
    let before = program.edit(|text| text.replace(&all(proxy.address), &all(other.address)));
    program.reload();
    assert_eq!(program.ask("http://far.test/").0, 200);
    assert_eq!((proxy.take().len(), other.take().len()), (0, 1));
    // One origin by its own, and one by none.
    let own = format!("cleartext = true\nvia = \"http://{}\"\n", other.address);
    program.edit(|_| {
        before.replace(
            "far.test\"\ncleartext = true\n",
            &format!("far.test\"\n{own}"),
        )
    });
    program.reload();
    assert_eq!(program.ask("http://far.test/").0, 200);
    let seen = other.take();
    assert!(
        seen.len() == 1 && !seen[0].contains("Proxy-Authorization"),
        "{seen:?}"
    );
    program.edit(|_| before.replace("far.test\"\n", "far.test\"\nvia = \"direct\"\n"));
    program.reload();
    let (status, text) = program.ask("http://far.test/");
    assert!(status == 502 && text.contains("unresolved"), "{text}");
    assert!(proxy.take().is_empty() && other.take().is_empty());
}

#[test]
fn what_an_upstream_proxy_does_wrong_is_told_as_its_own_and_nothing_is_sent() {
    let late = servers::silent();
    let long = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(20_000));
    let answers = [
        (
            "HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=\"p\"\r\n\r\n",
            "does not accept the login of `via_auth` (407)",
            false,
        ),
        (
            "HTTP/1.1 403 Forbidden\r\nContent-Length: 3\r\n\r\nno.",
            "refuses the way to the server (403)",
            false,
        ),
        (
            "HTTP/1.0 503 Service Unavailable\r\n\r\n",
            "cannot reach the server (503)",
            true,
        ),
        (
            "HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
            "did not answer as an HTTP proxy does",
            false,
        ),
        (
            "HTTP/1.1 2000 OK\r\n\r\n",
            "did not answer as an HTTP proxy does",
            false,
        ),
        (
            "SSH-2.0-x\r\n\r\n",
            "did not answer as an HTTP proxy does",
            false,
        ),
        ("", "did not answer as an HTTP proxy does", false),
        (&*long, "did not answer as an HTTP proxy does", false),
    ];
    let mut rows: Vec<_> = answers
        .into_iter()
        .map(|(answer, told, passes)| {
            let proxy = ConnectProxy::start(free(), answer.to_owned());
            (proxy.address, told, passes)
        })
        .collect();
    rows.push((free(), "cannot be reached", true));
    rows.push((servers::full(), "cannot be reached", true));
    rows.push((late, "did not answer in time", true));
    let program = behind(rows[0].0, "");
    let mut before = rows[0].0;
    for (proxy, told, passes) in rows {
        program.edit(|text| text.replace(&all(before), &all(proxy)));
        program.reload();
        before = proxy;
        let (status, text) = program.ask("http://far.test/");
        let told = format!("the upstream proxy {proxy} {told}");
        assert!(status == 502 && text.contains("upstream_proxy"), "{text}");
        assert!(text.contains(&told), "{told}: {text}");
        assert!(text.contains(&format!("\"retry\":{passes}")), "{text}");
    }
    // Without a login, and with one that is none.
    let asks = "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n";
    let proxy = ConnectProxy::start(free(), asks.to_owned());
    program.edit(|text| text.replace(&all(before), &all(proxy.address)));
    let none = program.edit(|text| text.replace("via_auth = \"file:login\"\n", ""));
    program.reload();
    assert!(
        program
            .ask("http://far.test/")
            .1
            .contains("asks for a login (407): name it with `via_auth`")
    );
    program.edit(|_| none.replace("file:login", "file:pair"));
    std::fs::write(program.path("pair"), "no-pair-of-both").unwrap();
    std::fs::set_permissions(program.path("pair"), std::fs::Permissions::from_mode(0o600)).unwrap();
    program.reload();
    let (_, text) = program.ask("http://far.test/");
    assert!(text.contains("needs a login that cannot be read"), "{text}");
    let all =
        ["log", "audit/log.jsonl"].map(|name| std::fs::read_to_string(program.path(name)).unwrap());
    for secret in [
        LOGIN,
        "canary-91ce07d4aa",
        LOGIN_IN_BASE64,
        "no-pair-of-both",
    ] {
        assert!(!all.concat().contains(secret), "{all:?}");
    }
}
