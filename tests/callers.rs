//! Who is behind a connection: each door with each evidence that it can carry, by the program.

use std::fs::{self, Permissions};
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

#[path = "rig/addresses.rs"]
mod addresses;
#[path = "rig/authority.rs"]
mod authority;
#[path = "callers/elsewhere.rs"]
mod elsewhere;
#[path = "callers/ended.rs"]
mod ended;
#[path = "callers/http2.rs"]
mod http2;
#[path = "callers/jwt.rs"]
mod jwt;
#[path = "callers/password.rs"]
mod password;
#[path = "control/program.rs"]
#[expect(dead_code, reason = "the suite of the control socket uses the rest")]
mod program;
#[path = "callers/refused.rs"]
mod refused;
#[path = "callers/tls.rs"]
mod tls;

#[path = "callers/tailnet.rs"]
mod tailnet;

use program::{Program, gateway};

fn uid() -> u32 {
    rustix::process::getuid().as_raw()
}

fn gid() -> u32 {
    rustix::process::getgid().as_raw()
}

/// A listener on a Unix socket of the folder.
fn listener(kind: &str, socket: &Path, further: &str) -> String {
    let address = socket.display();
    format!("[[listener]]\nkind = \"{kind}\"\naddress = \"unix:{address}\"\n{further}\n")
}

/// A program with such a listener, and further lines of it.
fn program(kind: &str, further: &str) -> Program {
    let program = Program::start("");
    let more = listener(kind, &program.path("agents.sock"), further);
    program.edit(|text| format!("{text}{more}"));
    program.reload();
    program
}

/// Sends bytes to a socket, and returns all that comes back.
fn send(socket: &Path, bytes: &[u8]) -> String {
    answer(UnixStream::connect(socket).unwrap(), bytes, false)
}

/// The same, and says that nothing follows: a client may answer a 407 on the same connection.
fn send_all(socket: &Path, bytes: &[u8]) -> String {
    answer(UnixStream::connect(socket).unwrap(), bytes, true)
}

fn answer(mut stream: UnixStream, bytes: &[u8], is_all: bool) -> String {
    let within = Some(Duration::from_secs(10));
    stream.set_read_timeout(within).unwrap();
    // A caller that is refused may be cut before it has sent all.
    let _ = stream.write_all(bytes);
    if is_all {
        let _ = stream.shutdown(Shutdown::Write);
    }
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

const ASKED: &[u8] =
    b"GET http://stream.test/ HTTP/1.1\r\nHost: stream.test\r\nConnection: close\r\n\r\n";
/// SOCKS5 to stream.test:80, and a request inside.
const TUNNELLED: &[u8] = b"\x05\x01\x00\x05\x01\x00\x03\x0bstream.test\x00\x50\
    GET / HTTP/1.1\r\nHost: stream.test\r\nConnection: close\r\n\r\n";
const CONNECTED: &[u8] = b"CONNECT stream.test:80 HTTP/1.1\r\nHost: stream.test:80\r\n\r\n\
    GET / HTTP/1.1\r\nHost: stream.test\r\nConnection: close\r\n\r\n";

#[test]
fn a_caller_is_taken_or_refused_at_each_door_and_the_record_names_it() {
    let other = format!("uids = [\"{}\"]", uid() + 1);
    let own = format!("uids = [\"{}\", \"{}\"]", uid() + 1, uid());
    for (who, named, is_taken) in [
        ("session = \"agent-1\"".to_owned(), false, true),
        (
            "session = \"agent-1\"\nwho = [\"listener\"]".to_owned(),
            false,
            true,
        ),
        (
            "session = \"agent-1\"\nwho = [\"unix\"]".to_owned(),
            true,
            true,
        ),
        (
            format!("session = \"agent-1\"\nwho = [\"unix\"]\n{own}"),
            true,
            true,
        ),
        (
            format!("session = \"agent-1\"\nwho = [\"unix\"]\n{other}"),
            true,
            false,
        ),
    ] {
        let program = program("proxy", &who);
        let socket = program.path("agents.sock");
        for asked in [ASKED, TUNNELLED, CONNECTED] {
            let answer = send(&socket, asked);
            assert_eq!(answer.ends_with("\r\n\r\nok"), is_taken, "{who}: {answer}");
            let is_socks = asked[0] == 5;
            assert!(
                is_taken || is_socks || answer.contains("caller_refused"),
                "{answer}"
            );
            assert!(
                is_taken || !is_socks || answer.as_bytes()[3] == 2,
                "{answer:?}"
            );
        }
        let records = program.records("exchange");
        // Refused callers have one record each: they have no share of the log.
        assert_eq!(records.len(), if is_taken { 3 } else { 1 }, "{records:#?}");
        for record in records {
            let user = named.then(|| format!("uid:{}", uid()));
            assert_eq!(record["user"].as_str(), user.as_deref(), "{record}");
            let groups = record["groups"].as_array();
            let first = groups.and_then(|all| all.first()?.as_str());
            let group = (named && is_taken).then(|| format!("gid:{}", gid()));
            assert_eq!(first, group.as_deref(), "{record}");
            let session = is_taken.then_some("agent-1");
            assert_eq!(record["session"].as_str(), session, "{record}");
            let reason = (!is_taken).then_some("caller_refused");
            assert_eq!(record["reason"].as_str(), reason, "{record}");
        }
    }
}

#[test]
fn a_base_url_leads_to_the_origin_of_its_alias_alone() {
    let further = "session = \"agent-1\"\nwho = [\"unix\"]\n\
        aliases = { stream = \"http://stream.test\", other = \"https://unlisted.test\" }";
    let program = program("base", further);
    let socket = program.path("agents.sock");
    let user = format!("uid:{}", uid());
    for (target, host, status, host_asked, path) in [
        ("/stream/", "localhost", 200, "stream.test", "/"),
        ("/stream/a/..", "127.0.0.1:8081", 200, "stream.test", "/"),
        ("/stream/../other/", "localhost", 400, "stream.test", ""),
        ("/other/a", "[::1]", 403, "unlisted.test", "/a"),
        ("/stream/", "stream.test", 403, "", ""),
        ("/none/", "localhost", 404, "", ""),
        ("/%73tream/", "localhost", 404, "", ""),
        ("http://localhost/", "localhost", 400, "localhost", ""),
    ] {
        let asked = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let answer = send(&socket, asked.as_bytes());
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{target}: {answer}"
        );
        let records = program.records("exchange");
        let last = records.last().unwrap();
        let told = |key| last[key].as_str().unwrap_or_default();
        assert_eq!((told("entry"), told("user")), ("base", &*user), "{last}");
        assert_eq!((told("host"), told("path")), (host_asked, path), "{last}");
    }
    // A reload gives the listener other origins.
    program.edit(|text| text.replace("https://unlisted.test", "http://stream.test"));
    program.reload();
    let asked = b"GET /other/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    assert!(send(&socket, asked).ends_with("\r\n\r\nok"));
}

#[test]
fn a_token_in_its_own_field_is_that_of_each_request_to_a_base_url() {
    let aliases = "aliases = { stream = \"http://stream.test\" }";
    let program = Program::start("");
    let (socket, both) = (program.path("agents.sock"), program.path("both.sock"));
    let further = ["session = \"{caller}\"\nwho = [\"token\"]\n", aliases].concat();
    let mut more = listener("base", &socket, &further);
    let further = [
        "session = \"agent-1\"\nwho = [\"token\", \"unix\"]\n",
        aliases,
    ]
    .concat();
    more += &listener("base", &both, &further);
    program.edit(|text| text.replace("phantoms.env", "phantoms-{session}.env") + &more);
    program.reload();
    let made = ["session", "create", "ci-1", "--ends", "1h"];
    let other = format!("Gateway-Token: {}\r\n", text(&program.json(&made)));
    let minted = mint(&program, &[]);
    let wide = format!("gateway-token: {}\r\n", text(&minted));
    let narrow = mint(&program, &["--path", "/elsewhere"]);
    let narrow = format!("Gateway-Token: {}\r\n", text(&narrow));
    let get = |fields: &str| format!("GET /stream/ HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n");
    let at = |socket: &Path, requests: &[String]| {
        let answer = send_all(socket, requests.concat().as_bytes());
        let all = answer.split("HTTP/1.1 ").skip(1);
        all.map(|one| one[..3].to_owned()).collect::<Vec<_>>()
    };
    let statuses = |requests: &[String]| at(&socket, requests);
    // Each of a connection is judged by its own, and none is of another session.
    let all = [&wide, &narrow, &other, "", &wide].map(get);
    assert_eq!(statuses(&all), ["200", "403", "407", "407", "200"]);
    let twice = format!("{wide}{narrow}");
    for refused in [
        "",
        &twice,
        "Gateway-Token: x\r\n",
        "Gateway-Token: gwt1_AgI\r\n",
    ] {
        assert_eq!(statuses(&[get(refused)]), ["407"], "{refused}");
        assert_eq!(
            statuses(&[get(&wide), get(refused)]),
            ["200", "407"],
            "{refused}"
        );
    }
    // In another field it is misplaced, and revoked it is none.
    let elsewhere = wide.replace("gateway-token", "Proxy-Authorization");
    assert_eq!(statuses(&[get(&elsewhere)]), ["407"]);
    let misplaced = format!("{wide}{}", wide.replace("gateway-token", "x-note"));
    assert_eq!(statuses(&[get(&misplaced)]), ["403"]);
    let id = minted["id"].as_str().unwrap();
    assert_eq!(program.gateway(&["token", "revoke", id]).0, 0);
    assert_eq!(statuses(&[get(&wide)]), ["407"]);
    // A proxy has another place, and what stands here is misplaced there.
    let token = text(&mint(&program, &[]));
    let asked = String::from_utf8_lossy(ASKED)
        .replace(CLOSE, &format!("Gateway-Token: {token}\r\n{CLOSE}"));
    let mut stream = std::net::TcpStream::connect(program.proxy).unwrap();
    stream.write_all(asked.as_bytes()).unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    assert!(said.contains("token_misplaced"), "{said}");
    for written in ["audit/log.jsonl", "log"] {
        let written = fs::read_to_string(program.path(written)).unwrap();
        assert!(!written.contains("gwt1_"), "{written}");
    }
}

#[test]
fn a_caller_who_comes_after_a_reload_is_in_the_groups_that_it_brought() {
    let further = format!(
        "session = \"{{caller}}\"\nwho = [\"unix\"]\nuids = [\"{}\"]\ngroups = [\"one\"]",
        uid()
    );
    let program = Program::start("");
    let more = listener("proxy", &program.path("agents.sock"), &further);
    program.edit(|text| text.replace("phantoms.env", "phantoms-{session}.env") + &more);
    program.reload();
    let rule = "permit(principal in Gateway::Group::\"two\", action, resource == Gateway::Host::\"stream.test\");";
    fs::write(program.path("rules.cedar"), rule).unwrap();
    program.edit(|text| text.replace("groups = [\"one\"]", "groups = [\"two\"]"));
    program.reload();
    let answer = send(&program.path("agents.sock"), ASKED);
    assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
}

#[test]
fn policy_tells_the_users_and_groups_of_one_session_apart() {
    let gid = rustix::process::getgid().as_raw();
    let (own, other) = (uid(), uid() + 1);
    let program = program("proxy", "session = \"agent-1\"\nwho = [\"unix\"]");
    let socket = program.path("agents.sock");
    for (who, is_allowed) in [
        (format!("principal in Gateway::User::\"uid:{own}\""), true),
        (
            format!("principal in Gateway::User::\"uid:{other}\""),
            false,
        ),
        (
            format!("principal is Gateway::Session in Gateway::Group::\"gid:{gid}\""),
            true,
        ),
        (
            format!("principal in Gateway::Group::\"gid:{}\"", gid + 1),
            false,
        ),
    ] {
        let rule = format!("permit({who}, action, resource == Gateway::Host::\"stream.test\");");
        fs::write(program.path("rules.cedar"), &rule).unwrap();
        program.reload();
        let answer = send(&socket, ASKED);
        assert_eq!(answer.ends_with("ok"), is_allowed, "{rule}: {answer}");
        // The same session without that evidence is not that user.
        assert_eq!(program.ask("http://stream.test/").0, 403, "{rule}");
    }
    // What was refused is judged once more with its user.
    let mut refused = program.records("exchange").into_iter();
    let last = refused.rfind(|record| record["user"].is_string()).unwrap();
    let (_, why) = program.gateway(&["why", last["id"].as_str().unwrap()]);
    assert!(
        why.contains(&format!("session agent-1 of user uid:{own}, by forward")),
        "{why}"
    );
}

#[test]
fn a_socket_is_private_replaces_the_dead_alone_and_goes_with_its_gateway() {
    let program = program("proxy", "mode = \"0660\"\nsession = \"agent-1\"");
    let socket = program.path("agents.sock");
    let about = fs::symlink_metadata(&socket).unwrap();
    assert_eq!(about.permissions().mode() & 0o777, 0o660);
    let folder = program.folder.path().to_owned();
    let text = fs::read_to_string(program.path("gateway.toml")).unwrap();
    // A second gateway does not take it, and neither is a link or a file replaced.
    let occupied = folder.join("occupied.sock");
    symlink("elsewhere", &occupied).unwrap();
    for (place, why) in [
        (&socket, "another process listens there"),
        (&occupied, "is no socket"),
    ] {
        let more = listener("proxy", place, "session = \"agent-1\"");
        fs::write(folder.join("second.toml"), &more).unwrap();
        let (code, said) = gateway(&folder, &["serve", "--config", "second.toml"]);
        assert!(code != 0 && said.contains(why), "{said}");
    }
    assert!(occupied.is_symlink() && !folder.join("elsewhere").exists());
    // Removed from the configuration, it is gone; one that nobody serves is replaced.
    program.edit(|text| {
        text.split("[[listener]]\nkind = \"proxy\"\naddress = \"unix")
            .next()
            .unwrap()
            .to_owned()
    });
    program.reload();
    let gone = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        !socket.exists()
    });
    assert!(gone);
    drop(UnixListener::bind(&socket).unwrap());
    fs::write(program.path("gateway.toml"), text).unwrap();
    program.reload();
    assert!(send(&socket, ASKED).ends_with("ok"));
    assert!(fs::metadata(&socket).unwrap().file_type().is_socket());
    drop(program);
    assert!(!socket.exists());
}

#[test]
fn evidence_that_a_door_cannot_carry_is_refused_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let tcp = "address = \"127.0.0.1:1\"";
    let unix = "address = \"unix:/run/x.sock\"";
    for (lines, line, what) in [
        (
            format!("{tcp}\nwho = [\"unix\"]"),
            4,
            "shows no user of this machine",
        ),
        (
            format!("{tcp}\nmode = \"0600\""),
            4,
            "`mode` is of a Unix socket",
        ),
        (
            format!("{unix}\nuids = [\"7\"]"),
            4,
            "nothing shows which user connects",
        ),
        (
            format!("{unix}\nmode = \"0666\""),
            4,
            "every user of this machine could connect",
        ),
        (
            format!("{unix}\nmode = \"0777\""),
            4,
            "it is no mode of a socket",
        ),
        (
            format!("{unix}\nwho = [\"header\"]"),
            4,
            "it is no kind of evidence",
        ),
        (
            format!("kind = \"transparent\"\n{unix}"),
            3,
            "a `transparent` listener cannot listen on a Unix socket",
        ),
        (
            format!("kind = \"dns\"\n{unix}"),
            3,
            "a `dns` listener cannot listen on a Unix socket",
        ),
        (
            format!("kind = \"transparent\"\n{tcp}\nwho = [\"unix\"]"),
            4,
            "shows no user of this machine",
        ),
        (
            format!("{unix}\nsession = \"{{caller}}\""),
            4,
            "nothing shows who the caller is",
        ),
        (
            format!("{unix}\nsession = \"{{caller}}\"\nwho = [\"unix\"]"),
            4,
            "every user that can connect would have a session",
        ),
        (
            format!("kind = \"tls\"\n{tcp}\nwho = [\"token\"]"),
            4,
            "a `tls` listener has no place for what a client presents",
        ),
        (
            format!(
                "kind = \"base\"\n{unix}\nwho = [\"jwt\"]\naliases = {{ a = \"https://a.test\" }}"
            ),
            4,
            "a `base` listener has no place for what a client presents",
        ),
        (
            format!("{unix}\nwho = [\"unix\", \"token\"]"),
            4,
            "what a client presents counts before all else",
        ),
        (
            format!("{unix}\nwho = [\"token\", \"listener\"]"),
            4,
            "`listener` is no evidence beside others",
        ),
        (
            format!("{tcp}\nwho = [\"token\"]\npasswords = {{ a = \"env:A\" }}"),
            5,
            "`passwords` and `\"password\"` in `who` go together",
        ),
        (
            "address = \"unix:run/x.sock\"".to_owned(),
            3,
            "absolute path",
        ),
    ] {
        let kind = if lines.starts_with("kind") {
            ""
        } else {
            "kind = \"proxy\"\n"
        };
        let text = format!("[[listener]]\n{kind}{lines}\n");
        fs::write(folder.path().join("gateway.toml"), text).unwrap();
        let (code, said) = gateway(
            folder.path(),
            &["policy", "check", "--config", "gateway.toml"],
        );
        let is_there = said.contains(&format!("gateway.toml:{line}")) && said.contains(what);
        assert!(code != 0 && is_there, "{lines}: {said}");
    }
}

/// Asks as another user of this machine, and returns the status and the content.
fn ask_as(user: u32, socket: &Path, url: &str) -> String {
    let mut command = Command::new("curl");
    command.args(["-sS", "-w", " %{http_code}", "--request-target", url]);
    command.arg("--unix-socket").arg(socket).arg(url);
    if user != uid() {
        command.uid(user).gid(user);
    }
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

const PHANTOMS: &str = "http://gateway.internal/phantoms";
const CA: &str = "http://gateway.internal/ca.pem";

#[test]
fn each_caller_has_a_session_of_its_own_that_is_the_same_after_a_restart_and_they_are_bounded() {
    let mut program = Program::start("");
    let (socket, own) = (program.path("agents.sock"), uid());
    let other = own + 4242;
    // Only root can be two users.
    let is_two = own == 0;
    fs::set_permissions(program.folder.path(), Permissions::from_mode(0o711)).unwrap();
    let lines = format!(
        "mode = \"0666\"\nsession = \"{{caller}}\"\nwho = [\"unix\"]\nuids = [\"{own}\", \"{other}\", \"{}\"]\n[sessions]\nmost = 2\n",
        other + 1
    );
    let more = listener("proxy", &socket, &lines);
    program.edit(|text| text.replace("phantoms.env", "phantoms-{session}.env") + &more);
    program.reload();
    let known = |user| [PHANTOMS, CA].map(|url| ask_as(user, &socket, url));
    let before = known(own);
    assert!(
        before[0].contains("\"key\":") && before[0].ends_with(" 200"),
        "{before:?}"
    );
    let file = fs::read_to_string(program.path(&format!("phantoms-uid%3A{own}.env"))).unwrap();
    let phantom = file.trim().split_once('=').unwrap().1;
    assert!(before[0].contains(phantom), "{file} {before:?}");
    assert!(ask_as(own, &socket, "http://stream.test/").starts_with("ok"));
    if is_two {
        let of_other = known(other);
        assert!(of_other[0] != before[0] && of_other[1] != before[1]);
        // A third is refused, and disturbs nobody.
        let refused = ask_as(other + 1, &socket, PHANTOMS);
        assert!(
            refused.contains("caller_session") && refused.ends_with(" 503"),
            "{refused}"
        );
        assert_eq!(known(own), before);
        program.restart_after_a_crash();
        assert_eq!(known(other), of_other);
    } else {
        println!("two users at once: not tried, since this is not root");
        program.restart_after_a_crash();
    }
    assert_eq!(known(own), before);
    let named = format!("uid:{own}");
    let of_own =
        |record: &serde_json::Value| record["session"] == *named && record["user"] == *named;
    assert!(program.records("exchange").iter().any(of_own));
}

/// Mints a token of `agent-1`.
fn mint(program: &Program, further: &[&str]) -> serde_json::Value {
    let mut all = vec!["token", "mint", "--session", "agent-1"];
    all.extend(further);
    if !further.contains(&"--for") {
        all.extend(["--for", "1h"]);
    }
    program.json(&all)
}

fn text(minted: &serde_json::Value) -> String {
    minted["token"].as_str().unwrap().to_owned()
}

/// A request for a path of `stream.test` in absolute form, with a token or none.
fn asked(token: &str, path: &str, further: &str) -> Vec<u8> {
    let proves = match token {
        "" => String::new(),
        token => format!("Proxy-Authorization: Bearer {token}\r\n"),
    };
    format!("GET http://stream.test{path} HTTP/1.1\r\nHost: stream.test\r\n{proves}{further}\r\n")
        .into_bytes()
}

/// What a token refuses with `token_caveat` of such a request; `None` if it is answered.
fn caveat(program: &Program, further: &[&str], path: &str, fields: &str) -> Option<String> {
    let token = text(&mint(program, further));
    let asked = asked(&token, path, &format!("{fields}{CLOSE}"));
    let mut stream = UnixStream::connect(program.path("agents.sock")).unwrap();
    stream.write_all(&asked).unwrap();
    let mut head = [0; 12];
    stream.read_exact(&mut head).unwrap();
    // What is allowed streams without an end.
    if &head == b"HTTP/1.1 200" {
        return None;
    }
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("token_caveat"), "{path}: {rest}");
    Some(rest)
}

#[test]
fn a_narrowed_token_allows_no_second_path_and_no_batch() {
    let program = program("proxy", "session = \"agent-1\"\nwho = [\"token\"]");
    for (further, path, fields, is_denied) in [
        (&["--path", "/mine"][..], "/mine/x", "", false),
        (
            &["--path", "/mine"],
            "/mine/x",
            "X-Amz-Copy-Source: /mine/y\r\n",
            false,
        ),
        (
            &["--path", "/mine"],
            "/mine/x",
            "X-Amz-Copy-Source: /others/y\r\n",
            true,
        ),
        (
            &["--path", "/mine"],
            "/mine/x",
            "Destination: http://stream.test/others\r\n",
            true,
        ),
        (
            &["--path", "/mine"],
            "/mine/x",
            "Destination: http://else.test/mine\r\n",
            true,
        ),
        (&["--path", "/mine"], "/mine/_mget", "", true),
        (&["--method", "GET"], "/$batch", "", true),
        (&["--host", "stream.test:80"], "/$batch", "", false),
        (
            &["--method", "GET"],
            "/x",
            "Destination: http://stream.test/others\r\n",
            false,
        ),
    ] {
        let denied = caveat(&program, further, path, fields);
        assert_eq!(
            denied.is_some(),
            is_denied,
            "{further:?} {path} {fields} {denied:?}"
        );
    }
    let minted = mint(&program, &["--method", "HEAD"]);
    let mut stream = UnixStream::connect(program.path("agents.sock")).unwrap();
    let asked = asked(&text(&minted), "/x", CLOSE);
    stream.write_all(&asked).unwrap();
    stream.read_to_end(&mut Vec::new()).unwrap();
    // By it an operator who reads the log can revoke the token.
    let record = program.records("exchange").pop().unwrap();
    assert_eq!(record["token_id"], minted["id"], "{record}");
}

/// The same through CONNECT.
fn connected(token: &str) -> Vec<u8> {
    let basic = STANDARD.encode(format!("gateway:{token}"));
    format!(
        "CONNECT stream.test:80 HTTP/1.1\r\nHost: stream.test:80\r\nProxy-Authorization: Basic {basic}\r\n\r\nGET / HTTP/1.1\r\nHost: stream.test\r\nConnection: close\r\n\r\n"
    )
    .into_bytes()
}

/// The same through SOCKS5, where the user and the password together are the token.
fn tunnelled(token: &str) -> Vec<u8> {
    let (user, password) = token.split_at(token.len().min(255));
    let part = |text: &str| [&[u8::try_from(text.len()).unwrap()][..], text.as_bytes()].concat();
    let login = [&b"\x05\x01\x02\x01"[..], &part(user), &part(password)].concat();
    [&login[..], &TUNNELLED[3..]].concat()
}

const CLOSE: &str = "Connection: close\r\n";

#[test]
fn a_token_is_its_session_at_each_door_and_allows_no_more_than_its_caveats() {
    let mut program = program("proxy", "session = \"agent-1\"\nwho = [\"token\"]");
    let socket = program.path("agents.sock");
    let own = format!("uid:{}", uid());
    let other = format!("uid:{}", uid() + 1);
    let (refused, caveat) = (Some("proxy_authentication"), Some("token_caveat"));
    let cases: [(&[&str], Option<&str>, &str); 11] = [
        (&[], None, ""),
        (
            &["--host", "stream.test:80", "--method", "GET", "--path", "/"],
            None,
            "",
        ),
        (
            &["--credential", "none", "--policy", "streams", "--as", &own],
            None,
            "",
        ),
        (
            &["--host", "stream.test"],
            caveat,
            "not for this host and port",
        ),
        (&["--method", "POST"], caveat, "not for this method"),
        (&["--path", "/elsewhere"], caveat, "not for this path"),
        (
            &["--policy", "others"],
            caveat,
            "not for what this policy allows",
        ),
        (
            &["--from", "10.0.0.0/8"],
            refused,
            "not for this peer's address",
        ),
        (&["--as", &other], refused, "needs other evidence"),
        // Not minted here, and none at all.
        (&["cut"], refused, "none of this gateway's"),
        (
            &["none"],
            refused,
            "nothing that the listener takes was presented",
        ),
    ];
    for (further, reason, cause) in cases {
        let token = match further {
            ["cut"] => text(&mint(&program, &[]))[..60].to_owned(),
            ["none"] => String::new(),
            further => text(&mint(&program, further)),
        };
        let before = program.records("exchange").len();
        for bytes in [
            asked(&token, "/", CLOSE),
            connected(&token),
            tunnelled(&token),
        ] {
            let is_socks = bytes[0] == 5;
            let answer = match bytes.windows(4).position(|end| end == b"\r\n\r\n") {
                Some(end) if reason == refused && !is_socks => send_all(&socket, &bytes[..end + 4]),
                _ => send(&socket, &bytes),
            };
            assert_eq!(
                answer.ends_with("\r\n\r\nok"),
                reason.is_none(),
                "{further:?}: {answer}"
            );
            match reason {
                Some("proxy_authentication") if is_socks => {
                    assert_eq!(answer.as_bytes(), [5, 2, 1, 1], "{further:?}");
                }
                Some("proxy_authentication") => {
                    let is_told = answer.starts_with("HTTP/1.1 407 ")
                        && answer.contains("proxy-authenticate: Basic")
                        && answer.contains("proxy_authentication");
                    // Why is for the operator alone.
                    assert!(is_told && !answer.contains(cause), "{further:?}: {answer}");
                }
                Some(reason) => assert!(
                    answer.contains(reason) && answer.contains(cause),
                    "{answer}"
                ),
                None => {}
            }
        }
        let records = program.records("exchange").split_off(before);
        // A token that is refused at the door is recorded once for each cause.
        let wanted = if reason == refused { 1 } else { 3 };
        assert_eq!(records.len(), wanted, "{further:?}: {records:#?}");
        for record in records {
            let session = (reason != refused).then_some("agent-1");
            assert_eq!(record["session"].as_str(), session, "{record}");
            assert_eq!(record["reason"].as_str(), reason, "{record}");
            assert!(
                record["cause"].as_str().unwrap_or_default().contains(cause),
                "{record}"
            );
        }
    }
    // The key outlives the process. No text of a token is in what is written.
    let token = text(&mint(&program, &[]));
    program.restart_after_a_crash();
    assert!(send(&socket, &asked(&token, "/", CLOSE)).ends_with("ok"));
    let misplaced = asked(&token, "/", &format!("X-Note: {token}\r\n{CLOSE}"));
    assert!(send(&socket, &misplaced).contains("token_misplaced"));
    for written in ["audit/log.jsonl", "log"] {
        let written = fs::read_to_string(program.path(written)).unwrap();
        assert!(!written.contains("gwt1_"), "{written}");
    }
}

#[test]
fn a_token_sheds_no_user_and_no_group() {
    let (own, gid) = (uid(), rustix::process::getgid().as_raw());
    let program = Program::start("");
    let (socket, callers, plain) = (
        program.path("agents.sock"),
        program.path("callers.sock"),
        program.path("plain.sock"),
    );
    let both = "session = \"agent-1\"\nwho = [\"token\", \"unix\"]";
    let each = format!("session = \"{{caller}}\"\nwho = [\"unix\"]\nuids = [\"{own}\"]");
    let by_token = "session = \"{caller}\"\nwho = [\"token\"]";
    let all = [(&socket, both), (&callers, &each), (&plain, by_token)];
    let more = all.map(|(socket, lines)| listener("proxy", socket, lines));
    let more = more.concat();
    program.edit(|text| text.replace("phantoms.env", "phantoms-{session}.env") + &more);
    program.reload();
    // The session of the caller lives from its first connection on.
    assert!(send(&callers, ASKED).ends_with("ok"));
    let session = format!("uid:{own}");
    let of_caller = ["token", "mint", "--session", &session, "--for", "1h"];
    let of_caller = text(&program.json(&of_caller));
    let (wide, other) = (
        text(&mint(&program, &[])),
        text(&mint(&program, &["--method", "GET"])),
    );
    let again = [asked(&wide, "/", ""), asked(&other, "/", CLOSE)].concat();
    for (who, denied) in [
        ("Gateway::User::\"uid:7\"".to_owned(), [false, false]),
        (format!("Gateway::User::\"uid:{own}\""), [true, true]),
        (format!("Gateway::Group::\"gid:{gid}\""), [true, false]),
    ] {
        let rules = format!(
            "{} forbid(principal in {who}, action, resource);",
            program::RULES
        );
        fs::write(program.path("rules.cedar"), &rules).unwrap();
        program.reload();
        let answers = [
            send(&socket, &again),
            send(&plain, &asked(&of_caller, "/", CLOSE)),
        ];
        for (answer, denied) in answers.iter().zip(denied) {
            assert_eq!(answer.contains("policy_forbid"), denied, "{who}: {answer}");
            assert_ne!(answer.contains("HTTP/1.1 200"), denied, "{who}: {answer}");
        }
    }
}

#[test]
fn clients_that_say_nothing_have_room_for_others() {
    let program = program(
        "proxy",
        "session = \"agent-1\"\nwho = [\"token\"]\n[limits]\nconnections_per_session = 3",
    );
    let (socket, token) = (program.path("agents.sock"), text(&mint(&program, &[])));
    let stream = || {
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.write_all(&asked(&token, "/endless", "")).unwrap();
        let mut head = [0; 12];
        let read = stream.read_exact(&mut head);
        read.is_ok_and(|()| &head == b"HTTP/1.1 200")
            .then_some(stream)
    };
    // Those that have a session count there alone.
    let known = [stream(), stream()];
    assert!(known.iter().all(Option::is_some));
    let silent = || UnixStream::connect(&socket).unwrap();
    let waiting = [silent(), silent(), silent()];
    let cut = send(&socket, &asked(&token, "/", CLOSE));
    assert_eq!(cut, "", "one more than may wait");
    assert_eq!(program.ask("http://stream.test/").0, 200);
    drop(waiting);
    let until = Instant::now() + Duration::from_secs(5);
    while !send(&socket, &asked(&token, "/", CLOSE)).ends_with("ok") {
        assert!(Instant::now() < until, "those that left still count");
    }
}

#[test]
fn a_token_is_of_its_sessions_record_and_not_of_its_name() {
    let mut program = program("proxy", "session = \"agent-1\"\nwho = [\"token\"]");
    let (socket, token) = (program.path("agents.sock"), text(&mint(&program, &[])));
    assert!(send(&socket, &asked(&token, "/", CLOSE)).ends_with("ok"));
    program.child.kill().unwrap();
    program.child.wait().unwrap();
    // The key that seals the state is the same.
    let fresh = program::command(program.folder.path())
        .args(["serve", "--config", "gateway.toml", "--fresh"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    program.follow(fresh.unwrap());
    assert!(send_all(&socket, &asked(&token, "/", "")).contains("proxy_authentication"));
    let token = text(&mint(&program, &[]));
    assert!(send(&socket, &asked(&token, "/", CLOSE)).ends_with("ok"));
}

#[test]
fn each_request_in_absolute_form_has_the_token_of_its_own() {
    let program = Program::start("");
    let socket = program.path("agents.sock");
    let more = listener(
        "proxy",
        &socket,
        "session = \"{caller}\"\nwho = [\"token\"]",
    );
    program.edit(|text| text.replace("phantoms.env", "phantoms-{session}.env") + &more);
    program.reload();
    let (wide, narrow) = (
        mint(&program, &[]),
        mint(&program, &["--path", "/elsewhere"]),
    );
    let all = [
        asked(&text(&wide), "/", ""),
        asked(&text(&narrow), "/", ""),
        asked("", "/", ""),
        asked(&text(&wide), "/", CLOSE),
    ];
    let answer = send(&socket, &all.concat());
    let statuses: Vec<&str> = answer
        .split("HTTP/1.1 ")
        .skip(1)
        .map(|one| &one[..3])
        .collect();
    assert_eq!(statuses, ["200", "403", "407", "200"], "{answer}");
    // What a client needs is for each token; what may tell of others is not.
    for (path, status) in [("phantoms", "200"), ("ca.pem", "200"), ("refused", "403")] {
        let token = text(&narrow);
        let asked = format!(
            "GET http://gateway.internal/{path} HTTP/1.1\r\nHost: gateway.internal\r\nProxy-Authorization: Bearer {token}\r\n{CLOSE}\r\n"
        );
        assert_eq!(send(&socket, asked.as_bytes())[9..12], *status, "{path}");
    }
    // Phantoms are of what the token may be lent alone.
    for (credential, is_there) in [("key", true), ("other", false), ("none", false)] {
        let token = text(&mint(&program, &["--credential", credential]));
        let asked = format!(
            "GET {PHANTOMS} HTTP/1.1\r\nHost: gateway.internal\r\nProxy-Authorization: Bearer {token}\r\n{CLOSE}\r\n"
        );
        let answer = send(&socket, asked.as_bytes());
        assert_eq!(
            answer.contains("\"key\":"),
            is_there,
            "{credential}: {answer}"
        );
    }
    // With `{caller}`, a token selects the session that it is of, if that lives.
    let sessions: Vec<_> = program.records("exchange");
    assert!(
        sessions.iter().all(|record| record["session"] == "agent-1"),
        "{sessions:#?}"
    );
    let (code, said) = program.gateway(&["token", "mint", "--session", "nobody", "--for", "1h"]);
    assert!(code != 0 && said.contains("no such session"), "{said}");
}

/// Asks for a stream, which begins.
fn stream(socket: &Path, asked: &[u8]) -> UnixStream {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.write_all(asked).unwrap();
    let mut head = [0; 12];
    stream.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
    stream
}

/// Follows a stream until it breaks off; returns after how long.
fn breaks_off(mut stream: UnixStream) -> Duration {
    let began = Instant::now();
    let within = Some(Duration::from_secs(10));
    stream.set_read_timeout(within).unwrap();
    let mut part = [0; 4096];
    while matches!(stream.read(&mut part), Ok(read) if read > 0) {
        assert!(began.elapsed() < Duration::from_secs(20), "it goes on");
    }
    began.elapsed()
}

#[test]
fn what_a_token_carries_ends_with_it_and_what_was_derived_falls_with_it() {
    let mut program = program("proxy", "session = \"agent-1\"\nwho = [\"token\"]");
    let socket = program.path("agents.sock");
    let stream = |token: &str| stream(&socket, &asked(token, "/endless", ""));
    // Its time is over while a stream runs.
    let short = text(&mint(&program, &["--for", "3s"]));
    let took = breaks_off(stream(&short));
    println!("a stream of a token for 3 s broke off after {took:?}");
    assert!(took < Duration::from_secs(6), "{took:?}");
    assert!(send(&socket, &asked(&short, "/", CLOSE)).contains("proxy_authentication"));
    // It is revoked while a stream of one that was derived from it runs.
    let (parent, other) = (mint(&program, &[]), mint(&program, &[]));
    let file = program.path("token");
    fs::write(&file, text(&parent)).unwrap();
    let child = program.json(&[
        "token",
        "attenuate",
        file.to_str().unwrap(),
        "--method",
        "GET",
    ]);
    let (under_way, unharmed) = (stream(&text(&child)), stream(&text(&other)));
    let id = parent["id"].as_str().unwrap();
    // Nothing is claimed where no gateway was told.
    let nobodys = tempfile::tempdir().unwrap();
    let (code, said) = gateway(nobodys.path(), &["token", "revoke", id]);
    assert!(code == 1 && said.contains("no gateway confirmed"), "{said}");
    let (code, said) = program.gateway(&["token", "revoke", id]);
    assert!(code == 0 && said.contains("1 gateway confirmed"), "{said}");
    let there = program.socket.to_str().unwrap();
    let again = gateway(nobodys.path(), &["token", "revoke", id, "--gateway", there]);
    assert!(
        again.0 == 0 && again.1.contains("1 gateway confirmed"),
        "{again:?}"
    );
    let took = breaks_off(under_way);
    println!("a stream of a revoked token broke off after {took:?}");
    assert!(took < Duration::from_secs(2), "{took:?}");
    // It is written once the connection has ended.
    std::thread::sleep(Duration::from_millis(500));
    let cut = program.records("end").into_iter().next_back().unwrap();
    assert_eq!(cut["reason"], "token_caveat", "{cut}");
    for again in [false, true] {
        if again {
            program.restart_after_a_crash();
        }
        for token in [&parent, &child] {
            let answer = send(&socket, &asked(&text(token), "/", CLOSE));
            assert!(answer.contains("proxy_authentication"), "{answer}");
        }
        assert!(send(&socket, &asked(&text(&other), "/", CLOSE)).ends_with("ok"));
    }
    drop(unharmed);
    let acts = program.records("act");
    let names: Vec<&str> = acts.iter().filter_map(|act| act["name"].as_str()).collect();
    assert!(
        names.contains(&"token.mint") && names.contains(&"token.revoke"),
        "{acts:#?}"
    );
}

#[test]
fn a_stream_that_only_another_policy_allows_after_a_reload_is_not_its_tokens_any_more() {
    let program = program("proxy", "session = \"agent-1\"\nwho = [\"token\"]");
    let rule = |id: &str| {
        let rule = format!("@id(\"{id}\")\npermit(principal, action, resource);\n");
        fs::write(program.path("rules.cedar"), rule).unwrap();
        program.reload();
    };
    rule("mine");
    let socket = program.path("agents.sock");
    let stream = |token: &str| stream(&socket, &asked(token, "/endless", ""));
    let narrow = stream(&text(&mint(&program, &["--policy", "mine"])));
    let mut wide = stream(&text(&mint(&program, &[])));
    rule("others");
    let took = breaks_off(narrow);
    assert!(took < Duration::from_secs(2), "{took:?}");
    let mut part = [0; 4096];
    assert!(wide.read(&mut part).unwrap() > 0, "a wide one goes on");
    std::thread::sleep(Duration::from_millis(500));
    let cut = program.records("end").into_iter().next_back().unwrap();
    assert_eq!(cut["reason"], "token_caveat", "{cut}");
}

#[test]
fn no_evidence_stands_in_a_record_wherever_a_client_put_it() {
    let program = program("proxy", "session = \"agent-1\"\nwho = [\"token\"]");
    let socket = program.path("agents.sock");
    let token = text(&mint(&program, &[]));
    let secret = &token["gwt1_".len()..][..40];
    // What is allowed streams without an end.
    let begun = |asked: &[u8]| {
        let mut stream = UnixStream::connect(&socket).unwrap();
        stream.write_all(asked).unwrap();
        stream.read_exact(&mut [0; 12]).unwrap();
    };
    let jwt = format!("eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJhIn0.{}", "c2ln".repeat(12));
    let escaped = token.replacen('_', "%5F", 1);
    for path in [
        format!("/ok/{token}"),
        format!("/ok/{token}/more?{token}&a={token}"),
        format!("/ok/x{escaped}"),
        format!("/refused%2f/{token}"),
        format!("/{jwt}?{jwt}=1"),
    ] {
        begun(&asked(&token, &path, CLOSE));
        begun(&asked("", &path, CLOSE));
    }
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
        Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n";
    begun(&asked(&token, &format!("/ws/{token}"), upgrade));
    let opening = format!("CONNECT {token}.test:443 HTTP/1.1\r\nHost: {token}.test:443\r\n\r\n");
    begun(opening.as_bytes());
    let wants = format!(r#"{{"host":"other.test","method":"GET","path":"/{jwt}","why":"{jwt}"}}"#);
    let proposal = format!(
        "POST http://gateway.internal/proposals HTTP/1.1\r\nHost: gateway.internal\r\n\
         Proxy-Authorization: Bearer {token}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n{CLOSE}\r\n{wants}",
        wants.len()
    );
    let taken = send(&socket, proposal.as_bytes());
    assert!(taken.starts_with("HTTP/1.1 2"), "{taken}");
    std::thread::sleep(Duration::from_millis(500));
    let records = program.records("exchange");
    assert!(records.len() >= 6, "{records:#?}");
    let paths: Vec<&str> = records
        .iter()
        .filter_map(|one| one["path"].as_str())
        .collect();
    assert!(paths.contains(&"/ok/[evidence]"), "{paths:#?}");
    for written in ["audit/log.jsonl", "log"] {
        let written = fs::read_to_string(program.path(written)).unwrap();
        for part in [secret, &jwt[37..80]] {
            assert!(!written.contains(part), "{part} stands in {written}");
        }
    }
}
