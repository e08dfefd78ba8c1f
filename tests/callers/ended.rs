//! What an operator's `end` takes from a caller: the session that it has, never that it has one.

use std::fs::{self, Permissions};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::program::{self, Program};
use super::{CA, CLOSE, PHANTOMS, asked, listener, send, send_all, text, uid};

/// A caller: what its requests present, and its session.
struct Caller {
    proves: String,
    session: String,
}

impl Caller {
    /// What it gets for a URL, with further fields.
    fn get(&self, socket: &Path, url: &str, fields: &str) -> String {
        let (proves, host) = (&self.proves, url.split('/').nth(2).unwrap());
        let head = format!("GET {url} HTTP/1.1\r\nHost: {host}\r\n{proves}{fields}{CLOSE}\r\n");
        send(socket, head.as_bytes())
    }

    /// Its phantom, and its CA.
    fn holds(&self, socket: &Path) -> (String, String) {
        let content = |url| {
            let answer = self.get(socket, url, "");
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
            answer.split_once("\r\n\r\n").unwrap().1.to_owned()
        };
        let phantoms: Value = serde_json::from_str(&content(PHANTOMS)).unwrap();
        let key = phantoms["key"].as_str().or(phantoms["KEY"].as_str());
        (key.unwrap().to_owned(), content(CA))
    }
}

/// A program that takes tokens, passwords and users of this machine, and two of its callers.
fn start() -> (Program, [Caller; 2]) {
    let program = Program::start("");
    fs::write(program.path("one"), "password-one").unwrap();
    fs::set_permissions(program.path("one"), Permissions::from_mode(0o600)).unwrap();
    let further = format!(
        "session = \"{{caller}}\"\nwho = [\"token\", \"password\", \"unix\"]\nuids = [\"{}\"]\n\
         passwords = {{ agent-1 = \"file:one\" }}",
        uid()
    );
    let more = listener("proxy", &program.path("agents.sock"), &further);
    program.edit(|text| text.replace("phantoms.env", "phantoms-{session}.env") + &more);
    program.reload();
    let both = STANDARD.encode("agent-1:password-one");
    let mut callers = [
        String::new(),
        format!("Proxy-Authorization: Basic {both}\r\n"),
    ]
    .map(|proves| {
        let session = String::new();
        Caller { proves, session }
    });
    for caller in &mut callers {
        let answer = caller.get(&program.path("agents.sock"), "http://stream.test/", "");
        assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
        let record = program.records("exchange").pop().unwrap();
        caller.session = record["session"].as_str().unwrap().to_owned();
    }
    assert_eq!(callers[0].session, format!("uid:{}", uid()));
    (program, callers)
}

fn restart_fresh(program: &mut Program) {
    program.child.kill().unwrap();
    program.child.wait().unwrap();
    let fresh = program::command(program.folder.path())
        .args(["serve", "--config", "gateway.toml", "--fresh"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    program.follow(fresh.unwrap());
}

fn opened(socket: &Path, asked: &str) -> UnixStream {
    let mut stream = UnixStream::connect(socket).unwrap();
    let within = Some(Duration::from_secs(10));
    stream.set_read_timeout(within).unwrap();
    stream.write_all(asked.as_bytes()).unwrap();
    stream
}

fn read_some(stream: &mut UnixStream) -> String {
    let mut part = [0; 16 << 10];
    let read = stream.read(&mut part).unwrap();
    String::from_utf8_lossy(&part[..read]).into_owned()
}

#[test]
fn a_connection_to_an_origin_is_never_that_of_a_session_that_followed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = listener.local_addr().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = connections.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            counted.fetch_add(1, Ordering::SeqCst);
            std::thread::spawn(move || {
                let mut part = [0; 4096];
                while let Ok(1..) = stream.read(&mut part) {
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
                }
            });
        }
    });
    let (program, [caller, _]) = start();
    let socket = program.path("agents.sock");
    let more = format!(
        "[[origin]]\nmatch = \"http://kept.test\"\nconnect = \"{origin}\"\ncleartext = true\n"
    );
    program.edit(|text| text.to_owned() + &more);
    let rule = "permit(principal, action, resource == Gateway::Host::\"kept.test\");";
    fs::write(program.path("rules.cedar"), rule).unwrap();
    program.reload();
    let ask = || {
        let answer = caller.get(&socket, "http://kept.test/", "");
        assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
        connections.load(Ordering::SeqCst)
    };
    // The pool is each thread's: there are at most as many connections as threads.
    let warm = (0..20).map(|_| ask()).reduce(|_, last| last).unwrap();
    assert!(warm < 20, "{warm}");
    assert_eq!(program.gateway(&["session", "end", &caller.session]).0, 0);
    assert!(
        ask() > warm,
        "the next session has a connection of the one before"
    );
}

#[test]
fn an_ended_session_is_used_up_and_its_caller_begins_another() {
    let (mut program, callers) = start();
    let socket = program.path("agents.sock");
    for caller in &callers {
        let name = &caller.session;
        let minted = ["token", "mint", "--session", name, "--for", "1h"];
        let (first, token) = (caller.holds(&socket), text(&program.json(&minted)));
        assert!(send(&socket, &asked(&token, "/", CLOSE)).ends_with("ok"));
        let (proves, host) = (&caller.proves, "Host: stream.test\r\n");
        let get = |path| format!("GET http://stream.test{path} HTTP/1.1\r\n{host}{proves}\r\n");
        let mut kept = opened(&socket, &get("/"));
        assert!(read_some(&mut kept).ends_with("ok"));
        let mut endless = opened(&socket, &get("/endless"));
        assert!(read_some(&mut endless).starts_with("HTTP/1.1 200 "));
        let (code, said) = program.gateway(&["session", "end", name]);
        assert_eq!(code, 0, "{said}");
        assert_ne!(program.gateway(&["session", "resume", name]).0, 0);
        // What was open is cut.
        let mut rest = Vec::new();
        let _ = endless.read_to_end(&mut rest);
        assert!(!rest.ends_with(b"0\r\n\r\n"));
        // The next sight of the same evidence begins another one.
        let second = caller.holds(&socket);
        assert!(second.0 != first.0 && second.1 != first.1, "{second:?}");
        // Its file has a name that `docker -v` takes.
        let file = format!("phantoms-{}.env", name.replace(':', "%3A"));
        let file = fs::read_to_string(program.path(&file));
        assert!(file.unwrap().contains(&second.0));
        let of_second = text(&program.json(&minted));
        // Nothing of the first one works in it: its connection, its token, its phantom.
        let _ = kept.write_all(get("/").as_bytes());
        let answer = read_some(&mut kept);
        assert!(answer.contains("session_ended"), "{answer}");
        let answer = send_all(&socket, &asked(&token, "/", ""));
        assert!(answer.contains("proxy_authentication"), "{answer}");
        assert!(send(&socket, &asked(&of_second, "/", CLOSE)).ends_with("ok"));
        let with = |key: &str| format!("Authorization: Bearer {key}\r\n");
        let answer = caller.get(&socket, "http://stream.test/", &with(&first.0));
        assert!(answer.contains("phantom_foreign_session"), "{answer}");
        // So it is over a restart, and for one that is ended while nobody sees it.
        program.restart_after_a_crash();
        assert_eq!(caller.holds(&socket), second);
        assert_eq!(program.gateway(&["session", "end", name]).0, 0);
        program.restart_after_a_crash();
        let third = caller.holds(&socket);
        assert!(third.0 != second.0 && third.1 != second.1 && third.0 != first.0);
        for old in [&token, &of_second] {
            let answer = send_all(&socket, &asked(old, "/", ""));
            assert!(answer.contains("proxy_authentication"), "{answer}");
        }
        assert_eq!(program.gateway(&["session", "end", name]).0, 0);
        restart_fresh(&mut program);
        assert!(![&first, &second, &third].contains(&&caller.holds(&socket)));
    }
}

#[test]
fn a_caller_is_locked_out_if_its_session_is_ended_for_good() {
    let (mut program, callers) = start();
    let socket = program.path("agents.sock");
    let refused = |caller: &Caller| {
        let answer = caller.get(&socket, "http://stream.test/", "");
        assert!(answer.contains("session_ended"), "{answer}");
    };
    // One while it lives, the other after it was ended.
    assert_eq!(
        program.gateway(&["session", "end", &callers[1].session]).0,
        0
    );
    for caller in &callers {
        let (code, said) = program.gateway(&["session", "end", &caller.session, "--for-good"]);
        assert_eq!(code, 0, "{said}");
        refused(caller);
    }
    let shown = program.json(&["session", "list"]);
    let all = shown["sessions"].as_array().unwrap();
    let locked = all.iter().filter(|one| one["ended"] == "for_good");
    assert_eq!(locked.count(), 2, "{shown}");
    // No later end without it takes it back.
    assert_eq!(
        program.gateway(&["session", "end", &callers[0].session]).0,
        0
    );
    program.restart_after_a_crash();
    callers.iter().for_each(refused);
    assert_ne!(
        program
            .gateway(&["session", "resume", &callers[0].session])
            .0,
        0
    );
    restart_fresh(&mut program);
    callers.iter().for_each(refused);
}

#[test]
fn what_is_paused_stays_so_in_the_session_that_follows() {
    let (program, [caller, _]) = start();
    let socket = program.path("agents.sock");
    let before = caller.holds(&socket);
    for act in ["pause", "end"] {
        assert_eq!(program.gateway(&["session", act, &caller.session]).0, 0);
    }
    let answer = caller.get(&socket, "http://stream.test/", "");
    assert!(answer.contains("session_paused"), "{answer}");
    assert_eq!(
        program.gateway(&["session", "resume", &caller.session]).0,
        0
    );
    assert_ne!(caller.holds(&socket), before);
}
