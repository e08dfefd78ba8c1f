//! Sessions that operators make at run time: reached by their tokens alone, lent what they were
//! made for, and ended when they were to.

use std::collections::HashSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use gateway::token::{Caveat, inspect};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

use crate::certificates::{Authority, ByName};
use crate::program::{CANARY, Program, RULES, free};
use crate::sandbox::wait_for;
use crate::sessions::{beside, start_with, stopped};

/// A program with a listener for tokens, two credentials and an origin over TLS for each.
pub struct Made {
    pub program: Program,
    pub door: SocketAddr,
    /// The heads that origins got.
    pub heads: Arc<Mutex<String>>,
}

impl Made {
    pub fn start(further: &str) -> Self {
        let (heads, authority) = (Arc::<Mutex<String>>::default(), Arc::new(Authority::new()));
        let (origin, door) = (origin(&authority, heads.clone()), free());
        let bound = |name: &str, more: &str| {
            format!(
                "[[origin]]\nmatch = \"https://{name}.test\"\nconnect = \"{origin}\"\nroots = [\"roots.pem\"]\n\
                 [[credential]]\nname = \"{name}\"\nfrom = \"env:KEY\"\norigins = [\"https://{name}.test\"]\n\
                 places = [\"header:authorization:Bearer\"]\n{more}\n"
            )
        };
        let issuer = format!(
            "[[origin]]\nmatch = \"https://issuer.test\"\nconnect = \"{origin}\"\nroots = [\"roots.pem\"]\n"
        );
        let more = [
            issuer,
            bound("lent", "env = [\"LENT\"]"),
            bound("other", "inject = \"always\""),
            format!(
                "[[listener]]\nkind = \"proxy\"\naddress = \"{door}\"\nsession = \"{{caller}}\"\nwho = [\"token\"]\n{further}"
            ),
        ];
        let program = Program::start("");
        fs::write(program.path("roots.pem"), &authority.pem).unwrap();
        let rules = "permit(principal in Gateway::User::\"alice\", action, resource);";
        fs::write(program.path("rules.cedar"), format!("{RULES}{rules}")).unwrap();
        program.edit(|text| {
            text.replace("phantoms.env", "phantoms-{session}.env")
                .replace("\"agent-1\"", "\"agent-1\"\nany_user = true")
                + &more.concat()
        });
        program.reload();
        Self {
            program,
            door,
            heads,
        }
    }

    /// Runs a script with `$DOOR`, and `gateway` as the program.
    pub fn script(&self, script: &str) -> String {
        let text = format!(
            "set -e; gateway() {{ '{}' \"$@\"; }}; DOOR={}; {script}",
            env!("CARGO_BIN_EXE_gateway"),
            self.door
        );
        let mut command = Command::new("sh");
        let base = crate::program::command(self.program.folder.path());
        let variables = base
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?)));
        command.env_clear().envs(variables).args(["-c", &text]);
        let output = command
            .current_dir(self.program.folder.path())
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&said).into_owned()
    }

    fn create(&self, arguments: &[&str]) -> Value {
        let all = [&["session", "create"], arguments].concat();
        self.program.json(&all)
    }

    /// Asks for a path of `stream.test` with the token of an answer.
    fn begin(&self, answer: &Value, path: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.door).unwrap();
        let within = Some(Duration::from_secs(10));
        stream.set_read_timeout(within).unwrap();
        let token = answer["token"].as_str().unwrap();
        let head = format!(
            "GET http://stream.test{path} HTTP/1.1\r\nHost: stream.test\r\nProxy-Authorization: Bearer {token}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        // The door may wait for a client that answers its refusal.
        if path == "/" {
            stream.shutdown(std::net::Shutdown::Write).unwrap();
        }
        stream
    }

    /// Asks and returns the reason of a refusal; `ok` without one.
    fn ask(&self, answer: &Value) -> String {
        let mut text = String::new();
        let _ = self.begin(answer, "/").read_to_string(&mut text);
        let reasons = [
            "session_ended",
            "session_paused",
            "proxy_authentication",
            "session_lend",
        ];
        let reason = reasons.iter().find(|reason| text.contains(**reason));
        match reason {
            Some(reason) => (*reason).to_owned(),
            None if text.ends_with("\r\n\r\nok") => "ok".to_owned(),
            None => text,
        }
    }

    fn ends(&self, name: &str) -> u64 {
        self.listed(name)["ends_in_seconds"].as_u64().unwrap()
    }

    fn listed(&self, name: &str) -> Value {
        let all = self.program.json(&["session", "list"]);
        let mut all = all["sessions"].as_array().unwrap().iter();
        all.find(|one| one["id"] == name)
            .cloned()
            .unwrap_or_default()
    }
}

const TOKENS: &str = r#"{"access_token":"CANARY-access-0123456789abcdef0123","token_type":"Bearer","expires_in":3600,"refresh_token":"CANARY-refresh-0123456789abcdef0123"}"#;

/// An origin over TLS that answers `ok` and keeps the heads that it gets. It gives tokens for a
/// code. If it is asked to renew them it is silent, or says that the login of the client `over` is.
fn origin(authority: &Arc<Authority>, heads: Arc<Mutex<String>>) -> SocketAddr {
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(ByName(authority.clone())));
    let (config, listener) = (Arc::new(config), TcpListener::bind("127.0.0.1:0").unwrap());
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let tls = ServerConnection::new(config.clone()).unwrap();
            let (mut stream, heads) = (StreamOwned::new(tls, socket), heads.clone());
            std::thread::spawn(move || {
                let mut part = [0; 4096];
                let mut asked = String::new();
                while let Ok(read @ 1..) = stream.read(&mut part) {
                    let mut heads = heads.lock().unwrap();
                    asked.push_str(&String::from_utf8_lossy(&part[..read]));
                    let is_over =
                        asked.contains("refresh_token=") && asked.contains("client_id=over");
                    let is_revoked = asked.contains("/revoke ") && asked.contains("CANARY-refresh");
                    let is_whole = asked.contains("code=c0de") || is_over || is_revoked;
                    if asked.starts_with("POST ") && !is_whole {
                        continue;
                    }
                    if is_over {
                        asked.clear();
                        let refused = "HTTP/1.1 400 No\r\nContent-Type: application/json\r\nContent-Length: 25\r\n\r\n{\"error\":\"invalid_grant\"}";
                        let _ = stream.write_all(refused.as_bytes());
                        continue;
                    }
                    let is_login = asked.contains("/token ") && !is_revoked;
                    let lives = [("short", "5"), ("over", "1")];
                    let is_it = |one: &&(&str, _)| asked.contains(&format!("client_id={}", one.0));
                    let life = lives.iter().find(is_it).map_or("3600", |(_, life)| life);
                    let tokens = TOKENS.replace("3600", life);
                    heads.push_str(&std::mem::take(&mut asked));
                    if is_login {
                        let head =
                            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length";
                        let answer = format!("{head}: {}\r\n\r\n{tokens}", tokens.len());
                        let _ = stream.write_all(answer.as_bytes());
                        continue;
                    }
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
                }
            });
        }
    });
    address
}

#[test]
fn a_created_session_is_its_user_in_policy_and_is_lent_what_it_was_made_for_alone() {
    let made = Made::start("");
    let ask = "export HTTPS_PROXY=http://gateway:$GATEWAY_TOKEN@$DOOR; printf '%s' \"$GATEWAY_CA\" >ca.pem; \
        curl -sS --cacert ca.pem -H \"Authorization: Bearer $LENT\" https://lent.test/one; \
        echo; curl -sS --cacert ca.pem https://other.test/two; echo; curl -sS --cacert ca.pem http://gateway.internal/phantoms -x $HTTPS_PROXY";
    let create = "eval \"$(gateway session create ci-1 --user alice --group ci --lend lent --ends 8h)\"; \
        echo \"$LENT\" >phantom; echo \"$GATEWAY_TOKEN\" >token";
    let said = made.script(&format!("{create}; {ask}"));
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.first(), Some(&"ok"), "{said}");
    assert!(
        said.contains("session_lend") && said.contains("may not be lent `other`"),
        "{said}"
    );
    assert!(
        !said.contains("OTHER") && said.contains("\"LENT\""),
        "{said}"
    );
    let heads = made.heads.lock().unwrap().clone();
    assert!(heads.contains(CANARY) && !heads.contains("/two"), "{heads}");
    // A token that is minted later is lent no more.
    let mint = "GATEWAY_TOKEN=$(gateway token mint --session ci-1 --for 1h); GATEWAY_CA=$(cat ca.pem); LENT=$(cat phantom)";
    let said = made.script(&format!("{mint}; {ask}"));
    assert!(
        said.starts_with("ok") && said.contains("session_lend"),
        "{said}"
    );
    let listed = made.listed("ci-1");
    let shown = json!([
        listed["user"],
        listed["groups"],
        listed["lend"],
        listed["credentials"]
    ]);
    assert_eq!(shown, json!(["alice", ["ci"], ["lent"], ["lent"]]));
    let (_, said) = made.program.gateway(&["session", "list"]);
    assert!(said.contains("lent; for alice; in ci"), "{said}");
    let records = made.program.records("exchange");
    let is_alices = |one: &Value| one["user"] == "alice" && one["session"] == "ci-1";
    assert!(
        records
            .iter()
            .any(|one| is_alices(one) && one["decision"] == "allow")
    );
    // It is narrowed as its session's is, and ends with that.
    made.create(&["ci-2", "--path", "/narrow", "--ends", "1h"]);
    let minted = [
        "token",
        "mint",
        "--session",
        "ci-2",
        "--for",
        "7d",
        "--method",
        "GET",
    ];
    let minted = made.program.json(&minted);
    let inside = inspect(minted["token"].as_str().unwrap()).unwrap();
    let ends = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap();
    let ends = ends.as_secs() + 3600;
    let texts: Vec<String> = inside.caveats.iter().map(ToString::to_string).collect();
    assert!(
        matches!(inside.caveats[0], Caveat::Before(at) if at <= ends),
        "{texts:?}"
    );
    assert!(
        texts[1].contains("/narrow") && texts[2].contains("GET"),
        "{texts:?}"
    );
    // Who made it is recorded, and nothing that opens anything.
    let acts = made.program.records("act");
    let act = acts
        .iter()
        .find(|act| act["name"] == "session.create")
        .unwrap();
    let uid = rustix::process::getuid().as_raw();
    assert_eq!(
        (&act["session"], &act["operator"]),
        (&json!("ci-1"), &json!(format!("uid:{uid}")))
    );
    assert!(act["subject"].as_str().unwrap().contains("alice"), "{act}");
    let secrets =
        ["phantom", "token"].map(|name| fs::read_to_string(made.program.path(name)).unwrap());
    for written in ["audit/log.jsonl", "log"] {
        let written = fs::read_to_string(made.program.path(written)).unwrap();
        assert!(
            !secrets.iter().any(|secret| written.contains(secret.trim())),
            "{written}"
        );
    }
    let nothing = made.create(&["--user", "alice", "--lend", "none", "--ends", "1h"]);
    assert_eq!(nothing["variables"], json!({}));
    assert_eq!(
        made.listed(nothing["session"].as_str().unwrap())["lend"],
        json!([])
    );
}

#[test]
fn a_created_session_outlives_a_kill_and_ends_when_it_is_to() {
    let mut made = Made::start("[ca]\nlifetime = \"1h\"\n[sessions]\nmost = 3\n");
    // Killed directly behind the answer.
    let body = r#"{"name":"ci-1","user":"alice","lend":["lent"],"seconds":600}"#;
    let (status, first) = made.program.call("POST", "/v1/sessions", body);
    assert_eq!(status, 200, "{first}");
    made.program.restart_after_a_crash();
    let first: Value = serde_json::from_str(&first).unwrap();
    assert_eq!(made.ask(&first), "ok");
    assert_eq!(made.listed("ci-1")["lend"], json!(["lent"]));
    assert!((500..=600).contains(&made.ends("ci-1")));
    // A reload keeps it, and its end.
    made.program.edit(|text| text.replace("\"1h\"", "\"2h\""));
    made.program.reload();
    assert!(made.ask(&first) == "ok" && made.ends("ci-1") <= 600);
    let (code, said) = made
        .program
        .gateway(&["session", "extend", "ci-1", "--ends", "3h"]);
    assert!(
        code == 2 && said.contains("ends within 2h after it was made"),
        "{said}"
    );
    let longer = made
        .program
        .json(&["session", "extend", "ci-1", "--ends", "1h"]);
    assert!(made.ask(&longer) == "ok" && made.ends("ci-1") > 3500);
    let (code, said) = made
        .program
        .gateway(&["session", "extend", "ci-1", "--ends", "1m"]);
    assert!(
        code == 2 && said.contains("it ends later already"),
        "{said}"
    );
    let (code, said) = made
        .program
        .gateway(&["session", "extend", "agent-1", "--ends", "1m"]);
    assert!(code == 2 && said.contains("renew themselves"), "{said}");
    made.program.restart_after_a_crash();
    assert!(made.ask(&longer) == "ok" && made.ends("ci-1") > 3500);
    // One that ends while a stream runs.
    let short = made.create(&["--user", "alice", "--ends", "2s"]);
    let mut stream = made.begin(&short, "/endless");
    let (began, mut part) = (Instant::now(), [0; 4096]);
    while matches!(stream.read(&mut part), Ok(read) if read > 0) {
        assert!(began.elapsed() < Duration::from_secs(8), "it goes on");
    }
    let name = short["session"].as_str().unwrap();
    wait_for("its end is not recorded", || {
        let mut events = made.program.records("event").into_iter();
        events.any(|one| one["name"] == "session_ended" && one["session"] == name)
    });
    let minted = ["token", "mint", "--session", name, "--for", "1h"];
    assert_ne!(made.program.gateway(&minted).0, 0);
    // Ended by an operator: its tokens are, and its name is used up.
    assert_eq!(made.program.gateway(&["session", "end", "ci-1"]).0, 0);
    assert_eq!(made.ask(&longer), "session_ended");
    assert_eq!(made.program.call("POST", "/v1/sessions", body).0, 409);
    made.program.restart_after_a_crash();
    assert_eq!(made.ask(&longer), "proxy_authentication");
    assert_eq!(made.program.call("POST", "/v1/sessions", body).0, 409);
    // So many live at a time.
    for nth in 0..4 {
        let (status, said) = made
            .program
            .call("POST", "/v1/sessions", "{\"seconds\":60}");
        assert_eq!(status, if nth < 3 { 200 } else { 503 }, "{said}");
    }
}

#[test]
fn what_a_fresh_start_takes_away_no_later_start_gives_back() {
    let mut made = Made::start("");
    let further = free();
    let paused = format!(
        "[[listener]]\nkind = \"proxy\"\naddress = \"{further}\"\nsession = \"agent-2\"\nany_user = true\n"
    );
    let before = made.program.edit(|text| format!("{text}{paused}"));
    made.program.reload();
    let first = made.create(&["ci-1", "--user", "alice", "--ends", "8h"]);
    let mint = |made: &Made| {
        let minted = ["token", "mint", "--session", "agent-2", "--for", "1h"];
        made.program.json(&minted)
    };
    let second = mint(&made);
    assert_eq!(
        (made.ask(&first), made.ask(&second)),
        ("ok".to_owned(), "ok".to_owned())
    );
    assert_eq!(made.program.gateway(&["session", "pause", "agent-2"]).0, 0);
    // The fresh run opens neither.
    let with_both = made.program.edit(|_| before.clone());
    stopped(&mut made.program);
    start_with(&mut made.program, &["--fresh"]);
    assert_eq!(made.ask(&first), "proxy_authentication");
    stopped(&mut made.program);
    made.program.edit(|_| with_both);
    start_with(&mut made.program, &[]);
    for old in [&first, &second] {
        assert_eq!(made.ask(old), "proxy_authentication");
    }
    assert_eq!(made.listed("agent-2")["status"], "paused");
    assert_eq!(made.program.gateway(&["session", "resume", "agent-2"]).0, 0);
    assert_eq!(made.ask(&second), "proxy_authentication");
    assert_eq!(made.ask(&mint(&made)), "ok");
    let body = r#"{"name":"ci-1","seconds":60}"#;
    assert_eq!(made.program.call("POST", "/v1/sessions", body).0, 409);
}

#[test]
fn what_one_gateway_extends_no_other_one_ends() {
    let mut made = Made::start("");
    let state = "[state]\npath = \"state/s.db\"\n";
    made.program.edit(|text| format!("{text}{state}"));
    made.program.restart_after_a_crash();
    let first = made.create(&["ci-1", "--user", "alice", "--ends", "5s"]);
    let door = made.door.to_string();
    let second = beside(&made.program, &[(door, free().to_string())]);
    let body = r#"{"seconds":3600}"#;
    let (status, longer) = second.call("POST", "/v1/sessions/ci-1/extend", body);
    assert_eq!(status, 200, "{longer}");
    let longer: Value = serde_json::from_str(&longer).unwrap();
    wait_for("the extension is not taken over", || {
        made.ask(&longer) == "ok" && made.ends("ci-1") > 3500
    });
    // The first token has ended by itself.
    wait_for("the first token never ended", || {
        made.ask(&first) == "proxy_authentication"
    });
    assert_eq!(made.ask(&longer), "ok");
}

#[test]
fn what_one_gateway_makes_is_known_at_once_to_each_that_has_its_state() {
    let mut first = Made::start("");
    let state = "[state]\npath = \"state/s.db\"\n";
    first.program.edit(|text| format!("{text}{state}"));
    first.program.restart_after_a_crash();
    let (door, heads) = (free(), first.heads.clone());
    let program = beside(
        &first.program,
        &[(first.door.to_string(), door.to_string())],
    );
    let second = Made {
        program,
        door,
        heads,
    };
    let create = |at: &Made, body: &str| -> Value {
        let (status, answer) = at.program.call("POST", "/v1/sessions", body);
        assert_eq!(status, 200, "{answer}");
        serde_json::from_str(&answer).unwrap()
    };
    let body =
        |name: &str| format!(r#"{{"name":"{name}","user":"alice","lend":["lent"],"seconds":600}}"#);
    for nth in 0..10 {
        for (at, other) in [(&first, &second), (&second, &first)] {
            let answer = create(at, &body(&format!("ci-{nth}-{}", at.door.port())));
            assert_eq!(other.ask(&answer), "ok", "{nth}");
            assert_eq!(at.ask(&answer), "ok", "{nth}");
        }
    }
    // As the user and password of SOCKS5, and by the control socket.
    let answer = create(&first, &body("socks"));
    assert!(through_socks(door, answer["token"].as_str().unwrap()).ends_with("\r\n\r\nok"));
    create(&first, &body("named"));
    let (status, shown) = second.program.call("GET", "/v1/sessions/named", "");
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((status, &shown["lend"]), (200, &json!(["lent"])));
    assert_eq!(
        second
            .program
            .call("POST", "/v1/sessions", &body("named"))
            .0,
        409
    );
    let keyed = |at: &Made| {
        let body = body("keyed");
        let answer = at.program.raw(&format!(
            "POST /v1/sessions HTTP/1.1\r\nHost: gateway\r\nContent-Type: application/json\r\nIdempotency-Key: \"key\"\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ));
        let mut answer: Value =
            serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
        // Each has a door of its own.
        assert_eq!(answer["proxy"]["at"], at.door.to_string());
        answer["proxy"].take();
        answer.to_string()
    };
    let answer = keyed(&first);
    assert!(
        answer.contains("CERTIFICATE") && keyed(&second) == answer,
        "{answer}"
    );
    // It shows one that nobody asked for.
    create(&first, &body("unasked"));
    wait_for("it is not shown", || {
        second
            .program
            .call("GET", "/v1/sessions", "")
            .1
            .contains("\"unasked\"")
    });
    // What is ended is so, wherever that was, and before another one knew it.
    let answer = create(&first, &body("ended"));
    assert_eq!(
        first.program.call("POST", "/v1/sessions/ended/end", "").0,
        200
    );
    assert_eq!(second.ask(&answer), "proxy_authentication");
    let answer = create(&first, &body("ends"));
    assert_eq!(
        second.program.call("POST", "/v1/sessions/ends/end", "").0,
        200
    );
    assert_eq!(second.ask(&answer), "session_ended");
    wait_for("its end is not followed", || {
        first.ask(&answer) == "session_ended"
    });
    // A token of nobody is one.
    let mut forged = create(&first, &body("forged"));
    let text = forged["token"].as_str().unwrap().to_owned();
    let last = if text.ends_with('A') { "B" } else { "A" };
    forged["token"] = json!(format!("{}{last}", &text[..text.len() - 1]));
    assert_eq!(second.ask(&forged), "proxy_authentication");
}

/// Asks for `stream.test` with a token in the user and the password.
fn through_socks(door: SocketAddr, token: &str) -> String {
    let (user, password) = token.split_at(token.len() / 2);
    let part = |text: &str| [&[u8::try_from(text.len()).unwrap()][..], text.as_bytes()].concat();
    let asked = b"\x05\x01\x00\x03\x0bstream.test\x00\x50\
        GET / HTTP/1.1\r\nHost: stream.test\r\nConnection: close\r\n\r\n";
    let bytes = [b"\x05\x01\x02\x01", &part(user)[..], &part(password), asked].concat();
    let mut stream = TcpStream::connect(door).unwrap();
    let within = Some(Duration::from_secs(10));
    stream.set_read_timeout(within).unwrap();
    stream.write_all(&bytes).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn a_login_of_a_session_outlives_a_kill_as_the_session_does() {
    let mut made = Made::start("");
    let rules = fs::read_to_string(made.program.path("rules.cedar")).unwrap();
    let issuer = "permit(principal, action, resource == Gateway::Host::\"issuer.test\");";
    fs::write(made.program.path("rules.cedar"), rules + issuer).unwrap();
    let password = made.program.path("one");
    fs::write(&password, "password-one").unwrap();
    fs::set_permissions(&password, fs::Permissions::from_mode(0o600)).unwrap();
    let of_callers = free();
    let listener = format!(
        "[[listener]]\nkind = \"proxy\"\naddress = \"{of_callers}\"\nsession = \"{{caller}}\"\n\
         who = [\"password\"]\npasswords = {{ alice = \"file:one\" }}\n"
    );
    made.program.edit(|text| format!("{text}{listener}"));
    made.program.reload();
    let token = made.create(&["ci-1", "--user", "alice", "--ends", "8h"]);
    let token = token["token"].as_str().unwrap();
    // One that an operator made, a listener's, and a caller's.
    let doors = [
        format!("http://gateway:{token}@$DOOR"),
        format!("http://{}", made.program.proxy),
        format!("http://alice:password-one@{of_callers}"),
    ];
    let asks = doors.map(|door| {
        let curl = format!(
            "curl -sS -x {door} http://gateway.internal/ca.pem >ca.pem; curl -sS --cacert ca.pem -x {door}"
        );
        let log_in = "https://issuer.test/token -d 'grant_type=authorization_code&code=c0de&client_id=me'";
        let said = made.script(&format!("{curl} {log_in}"));
        let tokens: Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}"));
        let access = tokens["access_token"].as_str();
        let access = access.unwrap_or_else(|| panic!("{said}"));
        assert!(!said.contains("CANARY"), "{said}");
        format!("{curl} -H 'Authorization: Bearer {access}' https://issuer.test/api")
    });
    for nth in 1..=3 {
        for ask in &asks {
            assert_eq!(made.script(ask), "ok");
        }
        let heads = made.heads.lock().unwrap().clone();
        let lent = heads.matches("Bearer CANARY-access-0123456789abcdef0123");
        assert_eq!(lent.count(), nth * asks.len(), "{heads}");
        made.program.restart_after_a_crash();
    }
    // It ends with its session: the caller's next one has nothing of it.
    assert_eq!(made.script(&asks[2]), "ok");
    let all = made.program.json(&["session", "list"]);
    let mut all = all["sessions"].as_array().unwrap().iter();
    let name = all.find_map(|one| one["id"].as_str().filter(|id| id.starts_with("caller:")));
    for name in ["ci-1", name.unwrap()] {
        assert_eq!(made.program.gateway(&["session", "end", name]).0, 0);
    }
    assert_ne!(made.script(&asks[0]), "ok");
    assert!(made.script(&asks[2]).contains("phantom_foreign_session"));
    // Later its phantom is a text as any other.
    made.program.restart_after_a_crash();
    made.script(&asks[2]);
    let heads = made.heads.lock().unwrap().clone();
    let lent = heads.matches("Bearer CANARY-access-0123456789abcdef0123");
    assert_eq!(lent.count(), 10, "{heads}");
}

/// Whether its issuer ended it or the session itself, it is refused as it was before.
#[test]
fn a_login_that_ended_is_told_as_ended_after_a_restart_too() {
    let mut made = Made::start("");
    let hosts = ["platform.claude.com", "api.anthropic.com"];
    made.program.edit(|text| {
        let (_, issuer) = text
            .split_once("match = \"https://issuer.test\"\n")
            .unwrap();
        let connect: String = issuer
            .lines()
            .take(2)
            .map(|line| format!("{line}\n"))
            .collect();
        let further =
            hosts.map(|host| format!("[[origin]]\nmatch = \"https://{host}\"\n{connect}"));
        format!("{text}{}", further.concat())
    });
    let rules = fs::read_to_string(made.program.path("rules.cedar")).unwrap();
    let permits = ["issuer.test", hosts[0], hosts[1]]
        .map(|host| format!("permit(principal, action, resource == Gateway::Host::\"{host}\");\n"));
    fs::write(made.program.path("rules.cedar"), rules + &permits.concat()).unwrap();
    made.program.reload();
    let door = format!("http://{}", made.program.proxy);
    let curl = format!(
        "curl -sS -x {door} http://gateway.internal/ca.pem >ca.pem; curl -sS --cacert ca.pem -x {door}"
    );
    let log_in = |url: &str, client: &str| -> Value {
        let code = format!("grant_type=authorization_code&code=c0de&client_id={client}");
        let said = made.script(&format!("{curl} {url} -d '{code}'"));
        assert!(!said.contains("CANARY"), "{said}");
        serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}"))
    };
    let use_of = |tokens: &Value, url: &str| {
        let access = tokens["access_token"].as_str().unwrap();
        format!("{curl} -H 'Authorization: Bearer {access}' {url}")
    };
    // Its issuer renews it no more.
    let over = use_of(
        &log_in("https://issuer.test/token", "over"),
        "https://issuer.test/api",
    );
    // The session logs out of it.
    let token_url = format!("https://{}/v1/oauth/token", hosts[0]);
    let tokens = log_in(&token_url, "9d1c250a-e61b-44d9-88ed-5944d1962f5e");
    let refresh = tokens["refresh_token"].as_str().unwrap();
    let left = use_of(&tokens, &format!("https://{}/v1/messages", hosts[1]));
    assert_eq!(made.script(&left), "ok");
    made.script(&format!("{curl} {token_url}/revoke -d 'token={refresh}'"));
    std::thread::sleep(Duration::from_millis(1200));
    for _ in 0..3 {
        let said = [&over, &left].map(|ask| made.script(ask));
        assert!(
            said[0].contains("the login is over: its issuer answers `invalid_grant`"),
            "{said:?}"
        );
        assert!(said[1].contains("credential_removed"), "{said:?}");
        made.program.restart_after_a_crash();
    }
}

#[test]
fn a_login_whose_issuer_is_silent_keeps_no_gateway_from_starting() {
    let mut made = Made::start("");
    let rules = fs::read_to_string(made.program.path("rules.cedar")).unwrap();
    let issuer = "permit(principal, action, resource == Gateway::Host::\"issuer.test\");";
    fs::write(made.program.path("rules.cedar"), rules + issuer).unwrap();
    made.program.reload();
    let door = made.program.proxy;
    let said = made.script(&format!(
        "curl -sS -x http://{door} http://gateway.internal/ca.pem >ca.pem; \
         curl -sS --cacert ca.pem -x http://{door} https://issuer.test/token \
         -d 'grant_type=authorization_code&code=c0de&client_id=short'"
    ));
    assert!(
        said.contains("access_token") && !said.contains("CANARY"),
        "{said}"
    );
    std::thread::sleep(Duration::from_secs(6));
    let began = Instant::now();
    made.program.restart_after_a_crash();
    assert_eq!(made.program.ask("http://stream.test/").0, 200);
    assert!(
        began.elapsed() < Duration::from_secs(8),
        "{:?}",
        began.elapsed()
    );
}

#[test]
fn of_requests_that_overlap_with_one_key_one_makes_a_session() {
    let mut made = Made::start("");
    let together = |key: &str, seconds: fn(usize) -> usize| {
        let call = |nth| {
            let body = format!("{{\"seconds\":{}}}", seconds(nth));
            made.program.raw(&format!(
                "POST /v1/sessions HTTP/1.1\r\nHost: gateway\r\nContent-Type: application/json\r\nIdempotency-Key: \"{key}\"\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            ))
        };
        std::thread::scope(|scope| {
            let calls: Vec<_> = (0..8).map(|nth| scope.spawn(move || call(nth))).collect();
            calls
                .into_iter()
                .map(|call| call.join().unwrap())
                .collect::<Vec<_>>()
        })
    };
    let same = together("CANARY-key", |_| 600);
    let content = |answer: &String| answer.split_once("\r\n\r\n").unwrap().1.to_owned();
    let shown: HashSet<String> = same.iter().map(content).collect();
    assert!(shown.len() == 1 && same[0].contains("200 OK"), "{shown:?}");
    let others = together("another", |nth| 600 + nth);
    let made_one = others.iter().filter(|answer| answer.contains("200 OK"));
    assert_eq!(made_one.count(), 1);
    let refused = others.iter().filter(|answer| answer.contains(" 422 "));
    assert_eq!(refused.count(), 7, "{others:?}");
    let state = rusqlite::Connection::open(stopped(&mut made.program)).unwrap();
    // The key itself is not kept.
    let kept = "SELECT group_concat(record) FROM session WHERE record ->> '$.created' IS NOT NULL";
    let kept: String = state.query_row(kept, [], |row| row.get(0)).unwrap();
    assert!(
        kept.contains("session-") && !kept.contains("CANARY"),
        "{kept}"
    );
}

#[test]
fn a_request_that_is_made_again_shows_the_same_session_and_another_one_is_refused() {
    let mut made = Made::start("");
    let keyed = [
        "--idempotency-key",
        "k 1",
        "--user",
        "alice",
        "--ends",
        "1h",
    ];
    let first = made.create(&keyed);
    assert_eq!(made.create(&keyed), first);
    made.program.restart_after_a_crash();
    assert_eq!(made.create(&keyed), first);
    assert_eq!(made.ask(&first), "ok");
    let call = |key: &str, body: &str| {
        let answer = made.program.raw(&format!(
            "POST /v1/sessions HTTP/1.1\r\nHost: gateway\r\nContent-Type: application/json\r\nIdempotency-Key: {key}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ));
        answer[9..12].to_owned()
    };
    let name = first["session"].as_str().unwrap();
    for (key, body, status) in [
        (
            "\"k 1\"",
            "{\"user\":\"bob\",\"seconds\":3600}".to_owned(),
            "422",
        ),
        (
            "\"k 2\"",
            format!("{{\"name\":\"{name}\",\"seconds\":3600}}"),
            "409",
        ),
        ("k", "{\"seconds\":3600}".to_owned(), "400"),
        ("\"k 2\"", "{\"seconds\":0}".to_owned(), "422"),
        (
            "\"k 2\"",
            "{\"seconds\":60,\"lend\":[\"unknown\"]}".to_owned(),
            "422",
        ),
        (
            "\"k 2\"",
            "{\"seconds\":60,\"groups\":[\"a b\"]}".to_owned(),
            "422",
        ),
        (
            "\"k 2\"",
            "{\"seconds\":60,\"caveats\":[\"host\"]}".to_owned(),
            "422",
        ),
        (
            "\"k 2\"",
            "{\"seconds\":60,\"name\":\"agent-1\"}".to_owned(),
            "409",
        ),
        (
            "\"k 2\"",
            "{\"seconds\":60,\"further\":1}".to_owned(),
            "400",
        ),
    ] {
        assert_eq!(call(key, &body), status, "{key} {body}");
    }
    // A file for its owner alone, and none is overwritten.
    let to = ["session", "create", "--ends", "1h", "--to", "made.env"];
    let (code, said) = made.program.gateway(&to);
    assert_eq!(code, 0, "{said}");
    let file = made.program.path("made.env");
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let text = fs::read_to_string(&file).unwrap();
    assert!(
        text.contains("export GATEWAY_TOKEN='gwt1_") && !said.contains("gwt1_"),
        "{said}"
    );
    let (code, said) = made.program.gateway(&to);
    assert!(code != 0 && said.contains("none is overwritten"), "{said}");
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
    // No other evidence selects it, whatever its name.
    let uid = rustix::process::getuid().as_raw();
    let socket = made.program.path("agents.sock");
    let unix = format!(
        "[[listener]]\nkind = \"proxy\"\naddress = \"unix:{}\"\nsession = \"{{caller}}\"\nwho = [\"unix\"]\nuids = [\"{uid}\"]\n",
        socket.display()
    );
    made.program.edit(|text| format!("{text}{unix}"));
    made.program.reload();
    made.create(&[&format!("uid:{uid}"), "--ends", "1h"]);
    let mut stream = UnixStream::connect(&socket).unwrap();
    let head = "GET http://stream.test/ HTTP/1.1\r\nHost: stream.test\r\nConnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let mut refusal = String::new();
    let _ = stream.read_to_string(&mut refusal);
    assert!(refusal.contains("caller_session"), "{refusal}");
    // No listener takes its name, and the policy for operators is asked.
    let other = free();
    let lines = format!(
        "[[listener]]\nkind = \"proxy\"\naddress = \"{other}\"\nsession = \"{name}\"\nany_user = true\n"
    );
    let before = made.program.edit(|text| format!("{text}{lines}"));
    assert!(made.program.refuse().contains("is another session's"));
    let policy = format!(
        "permit(principal == Gateway::Operator::\"uid:{uid}\", action in [Gateway::Action::\"read\", Gateway::Action::\"token.mint\", Gateway::Action::\"reload\"], resource);"
    );
    fs::write(made.program.path("operators.cedar"), policy).unwrap();
    made.program
        .edit(|_| format!("{before}[control]\npolicy = \"operators.cedar\"\n"));
    made.program.reload();
    for refused in [
        &["session", "create", "--ends", "1h"][..],
        &["session", "extend", name, "--ends", "1h"],
    ] {
        let (code, said) = made.program.gateway(refused);
        assert!(code == 1 && said.contains("may not do `session."), "{said}");
    }
    let acts = made.program.records("act");
    assert!(
        acts.iter()
            .any(|act| act["name"] == "session.create" && act["decision"] == "deny")
    );
}

#[test]
fn a_created_session_has_no_name_that_evidence_alone_gives() {
    let made = Made::start("");
    for (named, value) in [
        ("--user", "jwt:alice"),
        ("--user", "uid:1000"),
        ("--user", "spiffe://td/a"),
        ("--group", "roles:ops"),
        ("--group", "gid:0"),
        ("--group", "tag:ci"),
    ] {
        let create = ["session", "create", named, value, "--ends", "1h"];
        let (code, said) = made.program.gateway(&create);
        assert_eq!(code, 2, "{value}: {said}");
        let told = format!("`{value}` is a name that evidence alone gives");
        assert!(said.contains(&told), "{said}");
    }
    let body = r#"{"name":"ci-1","user":"jwt:alice","seconds":600}"#;
    let (status, said) = made.program.call("POST", "/v1/sessions", body);
    assert!(
        status == 422 && said.contains("evidence alone"),
        "{status} {said}"
    );
    made.create(&["--user", "alice", "--group", "ops", "--ends", "1h"]);
}
