//! Who is behind a connection: each door with each evidence that it can carry, by the program.

use std::fs::{self, Permissions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

#[path = "control/program.rs"]
#[expect(dead_code, reason = "the suite of the control socket uses the rest")]
mod program;

use program::{Program, gateway};

fn uid() -> u32 {
    rustix::process::getuid().as_raw()
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
    let mut stream = UnixStream::connect(socket).unwrap();
    let within = Some(Duration::from_secs(10));
    stream.set_read_timeout(within).unwrap();
    // A caller that is refused may be cut before it has sent all.
    let _ = stream.write_all(bytes);
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
            let session = is_taken.then_some("agent-1");
            assert_eq!(record["session"].as_str(), session, "{record}");
            let reason = (!is_taken).then_some("caller_refused");
            assert_eq!(record["reason"].as_str(), reason, "{record}");
        }
    }
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
    let file = fs::read_to_string(program.path(&format!("phantoms-uid:{own}.env"))).unwrap();
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
    // An operator ends it for good, as every session.
    let (code, said) = program.gateway(&["end", &named]);
    assert_eq!(code, 0, "{said}");
    assert!(ask_as(own, &socket, PHANTOMS).contains("session_ended"));
    program.restart_after_a_crash();
    assert!(ask_as(own, &socket, PHANTOMS).contains("session_ended"));
}
