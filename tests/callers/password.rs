//! Proxies whose clients present a user and a password.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::program::Program;
use super::{CLOSE, TUNNELLED, breaks_off, listener, send, send_all, stream};

/// `Proxy-Authorization` with a user and a password.
fn field(user: &str, password: &str) -> String {
    let both = STANDARD.encode(format!("{user}:{password}"));
    format!("Proxy-Authorization: Basic {both}\r\n")
}

/// The same request in absolute form, through CONNECT, and through SOCKS5.
fn ways(user: &str, password: &str) -> [Vec<u8>; 3] {
    let proves = field(user, password);
    let part = |text: &str| [&[u8::try_from(text.len()).unwrap()][..], text.as_bytes()].concat();
    [
        format!("GET http://stream.test/ HTTP/1.1\r\nHost: stream.test\r\n{proves}{CLOSE}\r\n")
            .into_bytes(),
        format!(
            "CONNECT stream.test:80 HTTP/1.1\r\nHost: stream.test:80\r\n{proves}\r\n\
             GET / HTTP/1.1\r\nHost: stream.test\r\n{CLOSE}\r\n"
        )
        .into_bytes(),
        [
            b"\x05\x01\x02\x01",
            &part(user)[..],
            &part(password),
            &TUNNELLED[3..],
        ]
        .concat(),
    ]
}

/// A program whose proxy takes the passwords `one` of `agent-1` and `two` of `agent-2`.
fn program(who: &str) -> Program {
    let program = Program::start("");
    for password in ["one", "two", "three"] {
        let path = program.path(password);
        fs::write(&path, format!("password-{password}")).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    }
    let further =
        format!("{who}\npasswords = {{ agent-1 = \"file:one\", agent-2 = \"file:two\" }}");
    let more = listener("proxy", &program.path("agents.sock"), &further);
    program.edit(|text| text.replace("phantoms.env", "phantoms-{session}.env") + &more);
    program.reload();
    program
}

#[test]
fn a_user_with_a_password_is_itself_at_each_door_and_has_a_session_of_its_own() {
    for (session, of_one, of_two) in [
        ("agent-1", "agent-1", "agent-1"),
        ("{caller}", "caller:", "caller:"),
    ] {
        let program = program(&format!(
            "session = \"{session}\"\nwho = [\"password\"]\nmode = \"0666\""
        ));
        let socket = program.path("agents.sock");
        for (user, password) in [("agent-1", "password-one"), ("agent-2", "password-two")] {
            for bytes in ways(user, password) {
                let answer = send(&socket, &bytes);
                assert!(answer.ends_with("\r\n\r\nok"), "{user}: {answer}");
            }
        }
        let records = program.records("exchange");
        let told = |of: &str, key| -> Vec<String> {
            let of = records.iter().filter(|record| record["user"] == of);
            of.map(|record| record[key].as_str().unwrap().to_owned())
                .collect()
        };
        let (one, two) = (
            told("user:agent-1", "session"),
            told("user:agent-2", "session"),
        );
        assert_eq!(
            (one.len(), two.len(), records.len()),
            (3, 3, 6),
            "{records:#?}"
        );
        assert!(one.iter().all(|id| id.starts_with(of_one)), "{one:?}");
        assert!(two.iter().all(|id| id.starts_with(of_two)), "{two:?}");
        assert_eq!(one == two, session == "agent-1");
        for (user, password) in [
            ("agent-1", "password-two"),
            ("agent-1", ""),
            ("agent-3", "password-one"),
            ("gateway", "password-one"),
            ("user:agent-1", "password-one"),
        ] {
            let [request, connect, socks] = ways(user, password);
            let head = connect
                .windows(4)
                .position(|end| end == b"\r\n\r\n")
                .unwrap();
            for bytes in [&request[..], &connect[..head + 4]] {
                let answer = send_all(&socket, bytes);
                let is_told = answer.starts_with("HTTP/1.1 407 ")
                    && answer.contains("proxy-authenticate: Basic")
                    && answer.contains("proxy_authentication");
                assert!(
                    is_told && !answer.contains(password) || password.is_empty(),
                    "{answer}"
                );
            }
            assert_eq!(send(&socket, &socks).as_bytes(), [5, 2, 1, 1], "{user}");
        }
        let refused = program.records("exchange").split_off(6);
        let [refused] = &refused[..] else {
            panic!("one for the one cause: {refused:#?}");
        };
        assert_eq!(refused["reason"], "proxy_authentication");
        let written = fs::read_to_string(program.path("audit/log.jsonl")).unwrap();
        assert!(!written.contains("password-"), "{written}");
    }
}

#[test]
fn policy_tells_users_apart_and_each_request_in_absolute_form_is_of_the_same_one() {
    let program = program("session = \"agent-1\"\nwho = [\"token\", \"password\", \"unix\"]");
    let socket = program.path("agents.sock");
    let rule = "permit(principal in Gateway::User::\"user:agent-2\", action, resource);";
    fs::write(program.path("rules.cedar"), rule).unwrap();
    program.reload();
    let get = |fields: String| {
        format!("GET http://stream.test/ HTTP/1.1\r\nHost: stream.test\r\n{fields}\r\n")
    };
    let one = || field("agent-1", "password-one");
    let two = || field("agent-2", "password-two");
    let close = |fields: String| get(fields + CLOSE);
    for (asked, statuses) in [
        (get(two()) + &close(two()), &["200", "200"][..]),
        (get(two()) + &close(one()), &["200", "407"]),
        (get(two()) + &close(String::new()), &["200", "407"]),
        // Who presents nothing is whom the kernel says, and stays so.
        (get(one()) + &close(one()), &["403", "403"]),
        (get(String::new()) + &close(two()), &["403", "407"]),
        (
            get(field("agent-2", "password-one")) + &close(two()),
            &["407", "200"],
        ),
    ] {
        let answer = send(&socket, asked.as_bytes());
        let found: Vec<&str> = answer
            .split("HTTP/1.1 ")
            .skip(1)
            .map(|one| &one[..3])
            .collect();
        assert_eq!(found, statuses, "{asked}: {answer}");
    }
}

#[test]
fn what_a_password_carries_ends_with_it_and_that_of_others_goes_on() {
    let program = program("session = \"agent-1\"\nwho = [\"password\"]");
    let socket = program.path("agents.sock");
    let endless = |user, password| {
        let proves = field(user, password);
        let asked =
            format!("GET http://stream.test/endless HTTP/1.1\r\nHost: stream.test\r\n{proves}\r\n");
        stream(&socket, asked.as_bytes())
    };
    let one = endless("agent-1", "password-one");
    let two = endless("agent-2", "password-two");
    program.edit(|text| text.replace("file:one", "file:three"));
    program.reload();
    let took = breaks_off(one);
    assert!(took.as_secs() < 3, "{took:?}");
    assert_eq!(
        program.records("end").last().unwrap()["reason"],
        "caller_refused"
    );
    for (user, password, is_taken) in [
        ("agent-1", "password-one", false),
        ("agent-1", "password-three", true),
        ("agent-2", "password-two", true),
    ] {
        let answer = send(&socket, &ways(user, password)[0]);
        assert_eq!(answer.ends_with("\r\n\r\nok"), is_taken, "{user}: {answer}");
    }
    // It still streams.
    use std::io::Read as _;
    let mut two = two;
    two.read_exact(&mut [0; 64]).unwrap();
}

/// What the gateway's own page has for each of so many users, who ask 200 at once.
fn of_each(program: &Program, users: usize, page: &str) -> Vec<String> {
    let asked = |user: usize| {
        let mut stream = UnixStream::connect(program.path("agents.sock")).unwrap();
        let proves = field(&format!("agent-{user}"), "password-one");
        let within = Some(Duration::from_secs(60));
        stream.set_read_timeout(within).unwrap();
        let head = format!("GET http://gateway.internal/{page} HTTP/1.1\r\nHost: gateway.internal");
        write!(stream, "{head}\r\n{proves}{CLOSE}\r\n").unwrap();
        stream
    };
    let answer = |mut stream: UnixStream| {
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, content) = text
            .split_once("\r\n\r\n")
            .unwrap_or_else(|| panic!("{text:?}"));
        assert!(head.starts_with("HTTP/1.1 200 "), "{text}");
        content.to_owned()
    };
    // A connection waits 10 s at most, and this machine may be busy with other tests.
    let all: Vec<_> = (0..users).collect();
    let of_some = |some: &[usize]| -> Vec<UnixStream> { some.iter().copied().map(asked).collect() };
    let waves = all.chunks(200).map(of_some);
    waves.flatten().map(answer).collect()
}

#[test]
fn of_a_thousand_callers_each_has_its_own_and_has_it_after_a_crash() {
    const USERS: usize = 1_000;
    let mut program = program("session = \"agent-1\"\nwho = [\"password\"]");
    let users: Vec<_> = (0..USERS)
        .map(|user| format!("agent-{user} = \"file:one\""))
        .collect();
    let users = format!("passwords = {{ {} }}", users.join(", "));
    program.edit(|text| {
        let old = "passwords = { agent-1 = \"file:one\", agent-2 = \"file:two\" }";
        let text = text.replace(old, &users);
        let at = text.rfind("session = \"agent-1\"").unwrap();
        let (before, after) = text.split_at(at);
        before.to_owned() + &after.replacen("agent-1", "{caller}", 1)
    });
    program.reload();
    let began = Instant::now();
    let phantoms = of_each(&program, USERS, "phantoms");
    let came = began.elapsed();
    let cas = of_each(&program, USERS, "ca.pem");
    for all in [&phantoms, &cas] {
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), USERS);
    }
    program.restart_after_a_crash();
    let began = Instant::now();
    assert_eq!(of_each(&program, USERS, "phantoms"), phantoms);
    let woken = began.elapsed();
    assert_eq!(of_each(&program, USERS, "ca.pem"), cas);
    println!("1,000 callers, 200 at once: made in {came:.2?}, woken after a crash in {woken:.2?}");
}
