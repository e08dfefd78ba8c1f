//! Requests that a policy asks a person about: by the shipped program and its commands.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::program::{Program, RULES};
use crate::sandbox::wait_for;
use crate::watch::Terminal;

/// An origin that answers 200, and keeps the first line and the content of each request.
pub struct Shop {
    pub address: SocketAddr,
    sent: Arc<Mutex<Vec<String>>>,
}

impl Shop {
    pub fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, sent) = (
            listener.local_addr().unwrap(),
            Arc::<Mutex<Vec<_>>>::default(),
        );
        let keeps = sent.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let keeps = keeps.clone();
                std::thread::spawn(move || serve(stream, &keeps));
            }
        });
        Self { address, sent }
    }

    pub fn sent(&self) -> Vec<String> {
        self.sent.lock().unwrap().clone()
    }
}

fn serve(mut stream: TcpStream, keeps: &Mutex<Vec<String>>) {
    let mut all = Vec::new();
    let mut piece = [0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut piece) {
        all.extend_from_slice(&piece[..count]);
        let text = String::from_utf8_lossy(&all).into_owned();
        let Some((head, content)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let length = head.to_ascii_lowercase();
        let length = length.split("content-length: ").nth(1).map_or(0, |rest| {
            rest.split("\r\n")
                .next()
                .unwrap()
                .trim()
                .parse::<usize>()
                .unwrap()
        });
        if content.len() < length {
            continue;
        }
        let line = head.split(" HTTP/").next().unwrap();
        keeps.lock().unwrap().push(format!("{line} {content}"));
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nsent");
        all.clear();
    }
}

/// A gateway before a shop, whose refunds a policy asks about.
pub fn gateway(shop: &Shop, more: &str) -> Program {
    let program = Program::start(&format!(
        "[[origin]]\nmatch = \"http://pay.test\"\nconnect = \"{}\"\ncleartext = true\n{more}",
        shop.address
    ));
    rules(&program, ASKS);
    program
}

fn rules(program: &Program, more: &str) {
    std::fs::write(program.path("rules.cedar"), format!("{RULES}{SHOP}{more}")).unwrap();
    program.reload();
}

pub const SHOP: &str = r#"
@id("shop")
permit(principal, action, resource == Gateway::Host::"pay.test");
"#;
pub const ASKS: &str = r#"
@id("refunds") @ask("Refund the customer?")
forbid(principal, action == Gateway::Action::"POST", resource == Gateway::Host::"pay.test")
when { context.path == "/v1/refunds" };
"#;

/// Sends a request through the proxy, on a connection of its own.
pub fn send(proxy: SocketAddr, line: &str, content: &str) -> TcpStream {
    send_with(proxy, line, "", content)
}

pub fn send_with(proxy: SocketAddr, line: &str, fields: &str, content: &str) -> TcpStream {
    let mut stream = TcpStream::connect(proxy).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let (method, path) = line.split_once(' ').unwrap();
    let request = format!(
        "{method} http://pay.test{path} HTTP/1.1\r\nHost: pay.test\r\n{fields}Content-Length: {}\r\n\r\n{content}",
        content.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

/// The status and the whole text of an answer.
pub fn read(mut stream: &TcpStream) -> (u16, String) {
    let (mut all, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&all).into_owned();
        if let Some((head, content)) = text.split_once("\r\n\r\n") {
            let head = head.to_ascii_lowercase();
            let length = head.split("content-length: ").nth(1).unwrap();
            let length: usize = length.split("\r\n").next().unwrap().parse().unwrap();
            if content.len() >= length {
                return (head[9..12].parse().unwrap(), text);
            }
        }
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => return (0, text),
            Ok(count) => all.extend_from_slice(&piece[..count]),
        }
    }
}

fn ask(program: &Program, content: &str) -> (u16, String) {
    read(&send(program.proxy, REFUND, content))
}

/// The id by which a refused request is answered.
fn id_of(text: &str) -> String {
    let id = text
        .split("gateway allow ")
        .nth(1)
        .unwrap_or_else(|| panic!("{text}"));
    id[..20].to_owned()
}

/// What waits for a person, by the command.
pub fn waiting(program: &Program) -> Vec<Value> {
    let listed = program.json(&["grants", "proposed"]);
    listed["proposals"].as_array().unwrap().clone()
}

fn waits_for(program: &Program, count: usize) -> Vec<String> {
    wait_for("it is not asked", || waiting(program).len() == count);
    let all = waiting(program);
    all.iter()
        .map(|one| one["id"].as_str().unwrap().to_owned())
        .collect()
}

/// A person who watches, as the list shows it.
struct Watching(Arc<AtomicBool>, Option<JoinHandle<()>>);

impl Watching {
    fn of(program: &Program) -> Self {
        let (ends, socket) = (Arc::<AtomicBool>::default(), program.socket.clone());
        let (ended, folder) = (ends.clone(), program.folder.path().to_owned());
        assert!(socket.exists());
        crate::program::gateway(&folder, &["grants", "proposed"]);
        let looks = std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                crate::program::gateway(&folder, &["grants", "proposed"]);
                std::thread::sleep(Duration::from_millis(500));
            }
        });
        Self(ends, Some(looks))
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        let _ = self.1.take().unwrap().join();
    }
}

const REFUND: &str = "POST /v1/refunds";
const CONTENT: &str = r#"{"charge":"ch_1","amount":42000}"#;

#[test]
fn where_nobody_watches_a_request_is_refused_at_once_and_a_late_yes_sends_it_once() {
    let shop = Shop::open();
    let program = gateway(&shop, "");
    let began = Instant::now();
    let (status, text) = ask(&program, CONTENT);
    assert_eq!(status, 403, "{text}");
    assert!(began.elapsed() < Duration::from_secs(5));
    for part in [
        "policy_asks",
        "nobody watches the gateway",
        "within ten minutes",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(
        text.to_ascii_lowercase().contains("x-should-retry: false"),
        "{text}"
    );
    let id = id_of(&text);
    // Everything that an answer is for is shown, and the question first.
    let (_, shown) = program.gateway(&["grants", "proposed"]);
    for part in [
        "refunds asks: Refund the customer?",
        "POST pay.test:80/v1/refunds, by session agent-1",
        "32 bytes, SHA-256 ",
        r#""{\"charge\":\"ch_1\",\"amount\":42000}""#,
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    // The same request is the same question.
    assert_eq!(id_of(&ask(&program, CONTENT).1), id);
    // An answer is no rule: nothing widens it.
    for wider in [["--for", "1h"], ["--session", "agent-1"]] {
        let (code, said) = program.gateway(&[&["allow", &id, "--yes"], &wider[..]].concat());
        assert!(code != 0 && said.contains("one request alone"), "{said}");
    }
    let (code, said) = program.gateway(&["allow", &id, "--yes"]);
    assert_eq!(code, 0, "{said}");
    assert!(
        said.contains("allowed once: POST pay.test:80/v1/refunds"),
        "{said}"
    );
    // Not with another byte, another path, another method, another query, nor another field.
    let proxy = program.proxy;
    for (stream, code) in [
        (
            send(proxy, REFUND, &CONTENT.replace("42000", "92000")),
            "policy_asks",
        ),
        (
            send(proxy, "POST /v1/refunds?expand=x", CONTENT),
            "policy_asks",
        ),
        (
            send_with(proxy, REFUND, "Stripe-Account: acct_2\r\n", CONTENT),
            "policy_asks",
        ),
    ] {
        let (status, text) = read(&stream);
        assert!(status == 403 && text.contains(code), "{text}");
    }
    assert!(shop.sent().is_empty());
    let (status, text) = ask(&program, CONTENT);
    assert_eq!(status, 200, "{text}");
    // Once: the same request is asked about anew.
    let (status, text) = ask(&program, CONTENT);
    assert_eq!(status, 403, "{text}");
    assert_ne!(id_of(&text), id);
    assert_eq!(shop.sent(), [format!("{REFUND} {CONTENT}")]);
    // What no policy asks about goes on as before.
    assert_eq!(read(&send(proxy, "GET /v1/refunds", "")).0, 200);
    // The records say who allowed it, and that it was allowed then.
    let acts = program.records("act");
    let act = acts
        .iter()
        .find(|one| {
            one["subject"]
                .as_str()
                .is_some_and(|text| text.contains(&id))
        })
        .unwrap();
    assert!(
        act["subject"].as_str().unwrap().starts_with("once "),
        "{act}"
    );
    let sent = program.records("exchange");
    let sent = sent
        .iter()
        .find(|one| one["method"] == "POST" && one["status"] == 200)
        .unwrap();
    assert_eq!(
        (&sent["decision"], &sent["policies"][0]),
        (&"allow".into(), &"shop".into()),
        "{sent}"
    );
}

#[test]
fn where_somebody_watches_a_request_waits_and_goes_on_at_a_yes() {
    let shop = Shop::open();
    let program = gateway(&shop, "");
    let _watching = Watching::of(&program);
    let waits = send(program.proxy, REFUND, CONTENT);
    let ids = waits_for(&program, 1);
    // A client that gave up and repeats it joins what waits.
    let again = send(program.proxy, REFUND, CONTENT);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(waits_for(&program, 1), ids);
    drop(waits);
    assert!(shop.sent().is_empty());
    let (code, said) = program.gateway(&["allow", &ids[0], "--yes"]);
    assert_eq!(code, 0, "{said}");
    let (status, text) = read(&again);
    assert_eq!(status, 200, "{text}");
    assert_eq!(shop.sent().len(), 1);
    // A no, and the same again at once, until a person takes it back.
    let waits = send(program.proxy, REFUND, CONTENT);
    let ids = waits_for(&program, 1);
    let (code, said) = program.gateway(&["deny", &ids[0]]);
    assert_eq!(code, 0, "{said}");
    for stream in [waits, send(program.proxy, REFUND, CONTENT)] {
        let (status, text) = read(&stream);
        assert!(status == 403 && text.contains("ask_refused"), "{text}");
        assert!(
            text.contains(&format!("gateway deny --undo {}", ids[0])),
            "{text}"
        );
    }
    let (code, said) = program.gateway(&["deny", "--undo", &ids[0]]);
    assert_eq!(code, 0, "{said}");
    let waits = send(program.proxy, REFUND, CONTENT);
    assert_eq!(waits_for(&program, 1), ids);
    let (code, said) = program.gateway(&["allow", &ids[0], "--yes"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(read(&waits).0, 200);
    assert_eq!(shop.sent().len(), 2);
}

#[test]
fn everything_that_decides_is_bound_and_shown() {
    let shop = Shop::open();
    let program = gateway(&shop, "");
    let basic = |user: &str| {
        format!(
            "Authorization: Basic {}\r\n",
            STANDARD.encode(format!("{user}:x"))
        )
    };
    let many: String = (0..13).map(|_| "X-An: v\r\n").collect();
    let (alice, ceo) = (basic("alice"), basic("ceo"));
    let cases = [
        (alice.as_str(), ceo.as_str(), "user alice"),
        (
            "Accept-Account: one\r\n",
            "Accept-Account: two\r\n",
            "accept-account: one",
        ),
        (
            "Content-Type: text/one\r\n",
            "Content-Type: text/two\r\n",
            "content-type: text/one",
        ),
        (
            &format!("{many}Stripe-Account: one\r\n"),
            &format!("{many}Stripe-Account: two\r\n"),
            "stripe-account: one",
        ),
        // A row is not faked by spaces.
        (
            "X-Note: ok          content  12 bytes\r\n",
            "X-Note: ok\r\n",
            "x-note: ok content 12 bytes\"",
        ),
    ];
    for (asked, other, shown) in cases {
        let (status, text) = read(&send_with(program.proxy, REFUND, asked, CONTENT));
        assert_eq!(status, 403, "{text}");
        let id = id_of(&text);
        let (_, said) = program.gateway(&["grants", "proposed"]);
        assert!(said.contains(shown), "{shown}: {said}");
        program.gateway(&["allow", &id, "--yes"]);
        let (status, text) = read(&send_with(program.proxy, REFUND, other, CONTENT));
        assert_eq!(status, 403, "{other}: {text}");
        assert_eq!(
            read(&send_with(program.proxy, REFUND, asked, CONTENT)).0,
            200,
            "{asked}"
        );
    }
    assert_eq!(shop.sent().len(), cases.len());
}

#[test]
fn bytes_that_are_no_text_are_bound_as_they_are_and_long_texts_are_shown_in_part() {
    let shop = Shop::open();
    let program = gateway(&shop, "");
    let raw = |last: u8| {
        let mut stream = TcpStream::connect(program.proxy).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        let head = [
            b"POST http://pay.test/v1/refunds HTTP/1.1\r\nHost: pay.test\r\nX-To: caf",
            &[last][..],
            b"\r\nContent-Length: 0\r\n\r\n",
        ];
        stream.write_all(&head.concat()).unwrap();
        read(&stream)
    };
    let (_, text) = raw(0xe9);
    program.gateway(&["allow", &id_of(&text), "--yes"]);
    assert_eq!(raw(0xe8).0, 403);
    assert_eq!(raw(0xe9).0, 200);
    let long = format!("Authorization: Own one\r\nX-Long: {}\r\n", "y".repeat(4000));
    let (status, text) = read(&send_with(
        program.proxy,
        REFUND,
        &long,
        &"z".repeat(1 << 20),
    ));
    assert_eq!(status, 403, "{text}");
    let (code, listed) = program.call("GET", "/v1/proposals", "");
    assert!(code == 200 && listed.len() < 32 << 10, "{}", listed.len());
    assert!(
        listed.contains(&format!("{} …", "y".repeat(292))),
        "{listed}"
    );
    assert!(listed.contains("authorization: Own one"), "{listed}");
    let path = format!("POST /v1/{}/../refunds", "p".repeat(2000));
    let (status, text) = read(&send(program.proxy, &path, ""));
    assert!(status == 403 || status == 400, "{text}");
}

#[test]
fn a_push_is_bound_by_its_commands_and_what_is_no_push_is_not() {
    let shop = Shop::open();
    let program = gateway(
        &shop,
        "[[read]]\nas = \"git\"\norigins = [\"http://pay.test\"]\n",
    );
    rules(
        &program,
        &ASKS.replace("/v1/refunds", "/r.git/git-receive-pack"),
    );
    let kind = "Content-Type: application/x-git-receive-pack-request\r\n";
    let line = |text: String| format!("{:04x}{text}", text.len() + 4);
    let id = |digit: &str| digit.repeat(40);
    let command = line(format!(
        "{} {} refs/heads/main\0 report-status",
        id("a"),
        id("b")
    ));
    let pushed = |behind: &str| {
        let content = format!("{command}0000{behind}");
        read(&send_with(
            program.proxy,
            "POST /r.git/git-receive-pack",
            kind,
            &content,
        ))
    };
    let objects = format!("PACK{}", "x".repeat(40_000));
    // git shows the report of a refused push alone.
    let (status, text) = pushed(&objects);
    assert!(shop.sent().is_empty(), "{text}");
    assert!(
        status == 200 && text.contains("ng refs/heads/main"),
        "{text}"
    );
    assert!(text.contains("policy_asks"), "{text}");
    let one = waiting(&program).remove(0);
    assert_eq!(
        one["ask"]["beyond"], "the objects that these commands name",
        "{one}"
    );
    assert_eq!(one["ask"]["content_bytes"], command.len() + 4, "{one}");
    program.gateway(&["allow", one["id"].as_str().unwrap(), "--yes"]);
    let (status, text) = pushed(&objects);
    assert_eq!((status, shop.sent().len()), (200, 1), "{text}");
    // A flush alone, with something else behind it, is content like any other: bound whole.
    let odd = |behind: &str| {
        let content = format!("0000{behind}");
        read(&send_with(
            program.proxy,
            "POST /r.git/git-receive-pack",
            kind,
            &content,
        ))
    };
    odd("&to=friend");
    let all = waiting(&program);
    if let Some(one) = all.first() {
        program.gateway(&["allow", one["id"].as_str().unwrap(), "--yes"]);
    }
    odd("&to=mallory");
    let sent = shop.sent();
    assert!(!sent.iter().any(|one| one.contains("mallory")), "{sent:?}");
}

#[test]
fn a_call_of_mcp_that_waits_in_vain_is_answered_in_json_rpc() {
    let shop = Shop::open();
    let program = gateway(&shop, "");
    let kind = "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n";
    let call = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"refund","arguments":{}}}"#;
    let (_, text) = read(&send_with(program.proxy, REFUND, kind, call));
    assert!(
        text.contains(r#""id":7"#) && text.contains("policy_asks"),
        "{text}"
    );
    assert!(text.contains("gateway allow "), "{text}");
}

#[test]
fn a_yes_can_be_taken_back_and_a_paused_session_uses_none() {
    let shop = Shop::open();
    let program = gateway(&shop, "");
    let id = id_of(&ask(&program, CONTENT).1);
    program.gateway(&["allow", &id, "--yes"]);
    let (code, said) = program.gateway(&["deny", &id]);
    assert_eq!(code, 0, "{said}");
    let (status, text) = ask(&program, CONTENT);
    assert!(status == 403 && text.contains("ask_refused"), "{text}");
    let _watching = Watching::of(&program);
    let other = CONTENT.replace("ch_1", "ch_2");
    let waits = send(program.proxy, REFUND, &other);
    let ids = waits_for(&program, 1);
    let (code, said) = program.gateway(&["session", "pause", "agent-1"]);
    assert_eq!(code, 0, "{said}");
    program.gateway(&["allow", &ids[0], "--yes"]);
    let (status, text) = read(&waits);
    assert!(status == 503 && text.contains("session_paused"), "{text}");
    assert!(shop.sent().is_empty());
}

/// An origin that keeps a connection after its first answer, and ends it at the second request.
#[test]
fn one_yes_is_not_sent_again_when_an_origin_ends_the_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let sent = Arc::<Mutex<Vec<String>>>::default();
    let keeps = sent.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            for nth in 0.. {
                let (mut all, mut piece) = (Vec::new(), [0; 4096]);
                while !all.windows(4).any(|end| end == b"\r\n\r\n") {
                    match stream.read(&mut piece) {
                        Ok(count @ 1..) => all.extend_from_slice(&piece[..count]),
                        _ => break,
                    }
                }
                let text = String::from_utf8_lossy(&all).into_owned();
                if text.is_empty() || nth == 1 {
                    keeps.lock().unwrap().push(text);
                    break;
                }
                keeps.lock().unwrap().push(text);
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nsent");
            }
        }
    });
    let shop = Shop {
        address,
        sent: sent.clone(),
    };
    let program = gateway(&shop, "");
    rules(&program, &ASKS.replace("\"POST\"", "\"PUT\""));
    let (_, text) = read(&send(program.proxy, "PUT /v1/refunds", ""));
    let id = id_of(&text);
    assert_eq!(read(&send(program.proxy, "GET /first", "")).0, 200);
    program.gateway(&["allow", &id, "--yes"]);
    let (status, text) = read(&send(program.proxy, "PUT /v1/refunds", ""));
    assert!(status == 502 && text.contains("no_answer"), "{text}");
    let puts = sent
        .lock()
        .unwrap()
        .iter()
        .filter(|one| one.starts_with("PUT"))
        .count();
    assert_eq!(puts, 1);
}

#[test]
fn a_program_tells_a_person_who_then_has_time_to_answer() {
    let shop = Shop::open();
    let told = std::env::temp_dir().join(format!("gateway-told-{}", std::process::id()));
    let line = format!("cat >> {}", told.display());
    let notify = format!("[[notify]]\ncommand = [\"/bin/sh\", \"-c\", \"{line}\"]\n");
    let program = gateway(&shop, &notify);
    let waits = send(program.proxy, REFUND, CONTENT);
    let read_told = || std::fs::read_to_string(&told).unwrap_or_default();
    wait_for("nobody is told", || read_told().ends_with('}'));
    let one: Value = serde_json::from_str(&read_told()).unwrap();
    std::fs::remove_file(&told).unwrap();
    assert_eq!(
        one["ask"]["asks"][0]["question"], "Refund the customer?",
        "{one}"
    );
    assert_eq!(
        (&one["wanted"], &one["ask"]["content"]),
        (&"POST pay.test:80/v1/refunds".into(), &CONTENT.into())
    );
    let (code, said) = program.gateway(&["allow", one["id"].as_str().unwrap(), "--yes"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(read(&waits).0, 200);
    // It holds as long as the process runs.
    program.edit(|config| config.replace(&notify, ""));
    assert!(program.refuse().contains("`[[notify]]` cannot change"));
}

#[test]
fn a_person_in_a_terminal_sees_all_that_the_answer_is_for_and_says_yes_at_a_key() {
    let shop = Shop::open();
    let program = gateway(&shop, "");
    let mut terminal = Terminal::watch(&program, ("NO_COLOR", "1"));
    terminal.shows("agent-1          active");
    let waits = send_with(
        program.proxy,
        REFUND,
        "Stripe-Account: acct_7\r\n",
        &format!("{CONTENT}\u{1b}[2J"),
    );
    terminal.shows("asks     agent-1      POST pay.test:80/v1/refunds  \"Refund the customer?\"");
    terminal.press("k");
    terminal.press("a");
    for part in [
        "refunds asks: Refund the customer?",
        "stripe-account: acct_7",
        "\\u{1b}[2J",
        "amount",
        "once? [y/N]",
    ] {
        terminal.shows(part);
    }
    // Anything but yes changes nothing.
    terminal.press("n");
    terminal.shows("nothing was changed");
    assert!(shop.sent().is_empty());
    terminal.press("a");
    terminal.shows("once? [y/N]");
    terminal.press("y");
    terminal.shows("the request is allowed, once");
    assert_eq!(read(&waits).0, 200);
    let waits = send(program.proxy, REFUND, CONTENT);
    terminal.shows("asks     agent-1");
    terminal.press("k");
    terminal.press("d");
    terminal.shows("Refuse this request for ten minutes? [y/N]");
    terminal.press("y");
    let (status, text) = read(&waits);
    assert!(status == 403 && text.contains("ask_refused"), "{text}");
    terminal.press("q");
    terminal.restored();
}

#[test]
fn of_many_equal_requests_one_yes_sends_one() {
    let shop = Shop::open();
    let program = gateway(&shop, "");
    let watching = Watching::of(&program);
    let all: Vec<TcpStream> = (0..16)
        .map(|_| send(program.proxy, REFUND, CONTENT))
        .collect();
    let ids = waits_for(&program, 1);
    let (code, said) = program.gateway(&["allow", &ids[0], "--yes"]);
    assert_eq!(code, 0, "{said}");
    let answers: Vec<(u16, String)> = all.iter().map(read).collect();
    let sent = answers.iter().filter(|(status, _)| *status == 200).count();
    assert_eq!((sent, shop.sent().len()), (1, 1), "{answers:?}");
    let told = answers
        .iter()
        .filter(|(_, text)| text.contains("let an equal one go on"));
    assert_eq!(told.count(), 15, "{answers:?}");
    // The next is asked about anew.
    drop(watching);
    std::thread::sleep(Duration::from_secs(6));
    let (status, text) = ask(&program, CONTENT);
    assert!(status == 403 && id_of(&text) != ids[0], "{text}");
}

#[test]
fn what_changes_while_a_request_waits_decides_before_it_is_sent() {
    let shop = Shop::open();
    let program = gateway(&shop, "");
    let _watching = Watching::of(&program);
    // A rule that no person lifts.
    let waits = send(program.proxy, REFUND, CONTENT);
    waits_for(&program, 1);
    rules(
        &program,
        &format!(
            "{ASKS}@id(\"closed\") forbid(principal, action, resource == Gateway::Host::\"pay.test\");"
        ),
    );
    let (status, text) = read(&waits);
    assert!(status == 403 && text.contains("revoked"), "{text}");
    // Another question is not the one that was answered.
    rules(&program, ASKS);
    let waits = send(program.proxy, REFUND, &CONTENT.replace('1', "2"));
    waits_for(&program, 2);
    rules(
        &program,
        &ASKS.replace("Refund the customer?", "Refund all?"),
    );
    let (status, text) = read(&waits);
    assert!(status == 403 && text.contains("revoked"), "{text}");
    // A rule that asks no more lets what waits go on once it is answered, and the next at once.
    rules(&program, "");
    assert_eq!(ask(&program, CONTENT).0, 200);
    // A session that ends.
    rules(&program, ASKS);
    let waits = send(program.proxy, REFUND, &CONTENT.replace('1', "3"));
    wait_for("it is not asked", || waiting(&program).len() == 3);
    let (code, said) = program.gateway(&["session", "end", "agent-1"]);
    assert_eq!(code, 0, "{said}");
    let (status, text) = read(&waits);
    assert!(status == 403 && text.contains("session_ended"), "{text}");
    assert_eq!(shop.sent().len(), 1);
}

#[test]
fn asks_lift_each_itself_alone_and_no_forbid_beside_them() {
    let shop = Shop::open();
    let program = gateway(&shop, "");
    let two = format!(
        "{ASKS}@id(\"large\") @ask(\"So much?\")
        forbid(principal, action, resource) when {{ context.path like \"/v1/*\" && context.method == \"POST\" }};"
    );
    rules(&program, &two);
    let (_, text) = ask(&program, CONTENT);
    let id = id_of(&text);
    let (_, shown) = program.gateway(&["grants", "proposed"]);
    assert!(
        shown.contains("refunds asks") && shown.contains("large asks"),
        "{shown}"
    );
    program.gateway(&["allow", &id, "--yes"]);
    // What was answered was both. With a third, it is another question.
    rules(
        &program,
        &format!(
            "{two}@id(\"third\") @ask(\"Now?\") forbid(principal, action, resource == Gateway::Host::\"pay.test\");"
        ),
    );
    let (status, text) = ask(&program, CONTENT);
    assert!(status == 403 && id_of(&text) != id, "{text}");
    rules(
        &program,
        &format!(
            "{two}@id(\"firm\") forbid(principal, action, resource == Gateway::Host::\"pay.test\");"
        ),
    );
    let (status, text) = ask(&program, CONTENT);
    assert!(status == 403 && text.contains("policy_forbids"), "{text}");
    rules(&program, &two);
    assert_eq!(ask(&program, CONTENT).0, 200);
    // Without a permit, nobody is asked.
    std::fs::write(program.path("rules.cedar"), format!("{RULES}{two}")).unwrap();
    program.reload();
    let (status, text) = ask(&program, CONTENT);
    assert!(
        status == 403 && text.contains("policy_default_deny"),
        "{text}"
    );
    assert_eq!(shop.sent().len(), 1);
}

#[test]
fn what_cannot_be_bound_whole_is_not_asked_about_and_floods_are_bounded() {
    let shop = Shop::open();
    let program = gateway(&shop, "[limits]\nmax_buffered_request = \"64KiB\"\n");
    let (status, text) = ask(&program, &"x".repeat(100_000));
    assert!(status == 413 && text.contains("content_too_long"), "{text}");
    let asked = AtomicUsize::new(0);
    for nth in 0..20 {
        let (status, text) = ask(&program, &format!("{nth}"));
        match status {
            403 => drop(asked.fetch_add(1, Ordering::Relaxed)),
            429 => assert!(text.contains("ask_limit"), "{text}"),
            _ => panic!("{text}"),
        }
    }
    assert_eq!(asked.load(Ordering::Relaxed), 10);
    assert!(waiting(&program).len() <= 8);
    assert!(shop.sent().is_empty());
}

#[test]
fn an_annotation_that_asks_nothing_or_stands_on_a_permit_does_not_load() {
    let shop = Shop::open();
    let program = gateway(&shop, "");
    for (rule, why) in [
        (
            "@ask(\"Sure?\") permit(principal, action, resource);",
            "is on a permit",
        ),
        (
            "@ask(\"\") forbid(principal, action, resource);",
            "has no question",
        ),
        (
            "@ask forbid(principal, action, resource);",
            "has no question",
        ),
        (
            "@ask(\"a\\u{202e}b\") forbid(principal, action, resource);",
            "has no question",
        ),
        (
            "@asq(\"Sure?\") forbid(principal, action, resource);",
            "nothing reads",
        ),
    ] {
        std::fs::write(program.path("rules.cedar"), format!("{RULES}{rule}")).unwrap();
        let said = program.refuse();
        assert!(said.contains(why), "{rule}: {said}");
        assert!(said.contains("rules.cedar:"), "{said}");
    }
}
