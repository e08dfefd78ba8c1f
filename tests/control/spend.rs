//! Budgets that requests use up: by the shipped program, before an origin that counts.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::program::{Program, RULES};
use crate::sandbox::wait_for;

/// An origin that speaks to models' clients, and counts what it was asked for.
#[derive(Default)]
struct Counted {
    requests: AtomicUsize,
    /// Tokens: in and out.
    tokens: AtomicU64,
    /// How many answers wait to be let go.
    holds: AtomicUsize,
}

const HEAD: &str = "HTTP/1.1 200 OK\r\n";
/// What the origin uses for each request to a model.
const USED: (u64, u64) = (20, 100);

fn model() -> (SocketAddr, Arc<Counted>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, counted) = (listener.local_addr().unwrap(), Arc::<Counted>::default());
    let counts = counted.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let counts = counts.clone();
            // The gateway may be killed at any time.
            std::thread::spawn(move || drop(serve(stream, &counts)));
        }
    });
    (address, counted)
}

fn serve(mut stream: TcpStream, counts: &Counted) -> std::io::Result<()> {
    while let Some((head, content)) = request(&mut stream)? {
        counts.requests.fetch_add(1, Ordering::SeqCst);
        let path = head.split(' ').nth(1).unwrap_or_default();
        if path.starts_with("/hold") {
            while counts.holds.load(Ordering::SeqCst) == 0 {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        let (input, output) = USED;
        let usage = format!(
            r#""usage":{{"prompt_tokens":{input},"completion_tokens":{output},"total_tokens":{}}}"#,
            input + output
        );
        if path.starts_with("/endless") {
            stream.write_all(format!("{HEAD}Transfer-Encoding: chunked\r\n\r\n").as_bytes())?;
            loop {
                stream.write_all(b"400\r\n")?;
                stream.write_all(&[b'x'; 1024])?;
                stream.write_all(b"\r\n")?;
            }
        }
        let (kind, text) = match (path, content.contains("\"stream\"")) {
            ("/large", _) => ("text/plain", "y".repeat(300_000)),
            ("/v1/chat/completions", false) => {
                counts.tokens.fetch_add(input + output, Ordering::SeqCst);
                (
                    "application/json",
                    format!(r#"{{"id":"c","choices":[],{usage}}}"#),
                )
            }
            ("/v1/chat/completions", true) => {
                counts.tokens.fetch_add(input + output, Ordering::SeqCst);
                let word = r#"data: {"choices":[{"delta":{"content":"\"usage\":{\"prompt_tokens\":1}"}}]}"#;
                (
                    "text/event-stream",
                    format!("{word}\n\ndata: {{\"choices\":[],{usage}}}\n\ndata: [DONE]\n\n"),
                )
            }
            ("/v1/messages", _) => {
                counts.tokens.fetch_add(input + output, Ordering::SeqCst);
                let begins = format!(
                    r#"{{"type":"message_start","message":{{"usage":{{"input_tokens":{input},"output_tokens":1}}}}}}"#
                );
                let ends = format!(
                    r#"{{"type":"message_delta","delta":{{}},"usage":{{"output_tokens":{output}}}}}"#
                );
                (
                    "text/event-stream",
                    format!(
                        "event: message_start\ndata: {begins}\n\nevent: message_delta\ndata: {ends}\n\n"
                    ),
                )
            }
            _ => ("text/plain", "ok".to_owned()),
        };
        let length = text.len();
        let head = format!("{HEAD}Content-Type: {kind}\r\nContent-Length: {length}\r\n\r\n");
        stream.write_all((head + &text).as_bytes())?;
    }
    Ok(())
}

/// Reads a request with its content.
fn request(stream: &mut TcpStream) -> std::io::Result<Option<(String, String)>> {
    let (mut all, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&all).into_owned();
        if let Some((head, content)) = text.split_once("\r\n\r\n") {
            let lower = head.to_ascii_lowercase();
            let length = lower.split("content-length: ").nth(1);
            let length = length.and_then(|rest| rest.split("\r\n").next()?.parse().ok());
            if content.len() >= length.unwrap_or(0) {
                return Ok(Some((head.to_owned(), content.to_owned())));
            }
        }
        match stream.read(&mut piece)? {
            0 => return Ok(None),
            count => all.extend_from_slice(&piece[..count]),
        }
    }
}

/// A gateway with these budgets before the origin, which they all count.
fn gateway(origin: SocketAddr, budgets: &str, names: &[&str]) -> Program {
    let program = Program::start(&format!(
        "[[origin]]\nmatch = \"http://model.test\"\nconnect = \"{origin}\"\ncleartext = true\n{budgets}"
    ));
    let forbids = names.iter().map(|name| {
        format!("@id(\"by_{name}\") @budget(\"{name}\")\nforbid(principal, action, resource == Gateway::Host::\"model.test\");\n")
    });
    let forbids: String = forbids.collect();
    let permit = "permit(principal, action, resource == Gateway::Host::\"model.test\");\n";
    std::fs::write(
        program.path("rules.cedar"),
        format!("{RULES}{permit}{forbids}"),
    )
    .unwrap();
    program.reload();
    program
}

fn budget(name: &str, unit: &str, most: &str, per: &str) -> String {
    format!("[[budget]]\nname = \"{name}\"\nunit = \"{unit}\"\nmost = {most}\nper = \"{per}\"\n")
}

/// A price of a model, in USD per million tokens: a request of [`USED`] costs 0.0032 USD.
const PRICE: &str = "[[price]]\nmodel = \"m\"\ninput = 10\noutput = 30\ncontext = 128000\n[[read]]\nas = \"model\"\norigins = [\"http://model.test\"]\n";
const COST: f64 = 0.0032;

/// The status, the head and what came of the content.
fn send(proxy: SocketAddr, line: &str, content: &str) -> (u16, String) {
    let Ok(mut stream) = TcpStream::connect(proxy) else {
        return (0, String::new());
    };
    let within = Some(Duration::from_secs(60));
    stream.set_read_timeout(within).unwrap();
    let (method, path) = line.split_once(' ').unwrap();
    let request = format!(
        "{method} http://model.test{path} HTTP/1.1\r\nHost: model.test\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{content}",
        content.len()
    );
    let _ = stream.write_all(request.as_bytes());
    let mut all = Vec::new();
    let _ = stream.read_to_end(&mut all);
    let text = String::from_utf8_lossy(&all).into_owned();
    (
        text.get(9..12)
            .and_then(|text| text.parse().ok())
            .unwrap_or(0),
        text,
    )
}

fn chat(proxy: SocketAddr, more: &str) -> (u16, String) {
    let content = format!(
        r#"{{"model":"m","messages":[{{"role":"user","content":"hi"}}],"max_tokens":3000{more}}}"#
    );
    send(proxy, "POST /v1/chat/completions", &content)
}

/// What is shown of a budget without a key.
fn shown(program: &Program, name: &str) -> serde_json::Value {
    let all = program.json(&["budgets"]);
    let all = all["budgets"].as_array().unwrap();
    all.iter()
        .find(|one| one["name"] == name)
        .unwrap_or_else(|| panic!("{all:?}"))
        .clone()
}

/// Must show 2.
#[test]
fn of_many_requests_at_once_as_many_go_out_as_the_budget_has_and_a_kill_changes_nothing() {
    let (origin, counted) = model();
    let mut program = gateway(origin, &budget("hits", "requests", "100", "day"), &["hits"]);
    let proxy = program.proxy;
    let clients = (0..64).map(|_| {
        std::thread::spawn(move || (0..3).map(|_| send(proxy, "GET /", "")).collect::<Vec<_>>())
    });
    let clients: Vec<_> = clients.collect();
    let answers: Vec<_> = clients
        .into_iter()
        .flat_map(|one| one.join().unwrap())
        .collect();
    let count = |status| answers.iter().filter(|(one, _)| *one == status).count();
    assert_eq!((count(200), count(402)), (100, 92));
    assert_eq!(counted.requests.load(Ordering::SeqCst), 100);
    let (_, refused) = answers.iter().find(|(status, _)| *status == 402).unwrap();
    for part in [
        "budget_spent",
        "x-should-retry: false",
        "`hits`",
        "100 requests spent of 100 requests",
    ] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
    program.restart_after_a_crash();
    assert_eq!(send(program.proxy, "GET /", "").0, 402);
    let (code, said) = program.gateway(&["budgets", "add", "hits", "5"]);
    assert_eq!(code, 0, "{said}");
    let answers: Vec<_> = (0..8).map(|_| send(program.proxy, "GET /", "").0).collect();
    assert_eq!(answers, [200, 200, 200, 200, 200, 402, 402, 402]);
    assert_eq!(counted.requests.load(Ordering::SeqCst), 105);
}

/// Must show 2.
#[test]
fn an_agent_that_reserves_thirty_times_what_it_uses_gets_its_moneys_worth() {
    let (origin, counted) = model();
    let money = budget("money", "usd", "\"0.50\"", "month");
    let program = gateway(origin, &format!("{money}{PRICE}"), &["money"]);
    let proxy = program.proxy;
    let clients = (0..16).map(|nth| {
        std::thread::spawn(move || {
            let more = if nth % 2 == 0 {
                ""
            } else {
                r#","stream":true"#
            };
            (0..20)
                .map(|_| chat(proxy, more))
                .take_while(|(status, _)| *status == 200)
                .count()
        })
    });
    let clients: Vec<_> = clients.collect();
    let went: usize = clients.into_iter().map(|one| one.join().unwrap()).sum();
    let used = went as f64 * COST;
    println!("{went} requests for {used:.4} USD of 0.50, each of which reserved 0.10");
    assert!((0.398..=0.50).contains(&used), "{used}");
    assert_eq!(counted.requests.load(Ordering::SeqCst), went);
    let (status, text) = chat(proxy, "");
    assert!(status == 402 && text.contains("USD"), "{text}");
    let one = shown(&program, "money");
    assert_eq!(one["reserved"], 0, "{one}");
}

#[test]
fn what_others_reserve_makes_a_request_wait_and_its_answer_lets_it_go() {
    let (origin, counted) = model();
    let program = gateway(origin, &budget("hits", "bytes", "200", "day"), &["hits"]);
    let proxy = program.proxy;
    let first = std::thread::spawn(move || send(proxy, "POST /hold", &"a".repeat(95)));
    wait_for("it is not sent", || {
        counted.requests.load(Ordering::SeqCst) == 1
    });
    // Most of the bytes are reserved: this waits, and is refused once they are spent.
    let second = std::thread::spawn(move || {
        let began = Instant::now();
        (send(proxy, "POST /x", &"b".repeat(90)), began.elapsed())
    });
    std::thread::sleep(Duration::from_millis(600));
    assert!(!second.is_finished());
    counted.holds.store(1, Ordering::SeqCst);
    assert_eq!(first.join().unwrap().0, 200);
    let ((status, text), waited) = second.join().unwrap();
    assert_eq!(status, 402, "{text}");
    assert!(waited >= Duration::from_millis(500), "{waited:?}");
}

#[test]
fn bytes_are_counted_both_ways_and_an_answer_without_an_end_is_cut() {
    let (origin, counted) = model();
    let program = gateway(
        origin,
        &budget("traffic", "bytes", "250000", "day"),
        &["traffic"],
    );
    // It says that it is longer than what is left.
    let (status, text) = send(program.proxy, "GET /large", "");
    assert!(status == 402 && text.contains("budget_spent"), "{text}");
    let (status, text) = send(program.proxy, "GET /endless", "");
    assert_eq!(status, 200);
    let bytes = text.bytes().filter(|byte| *byte == b'x').count();
    println!("{bytes} of 250,000 bytes of an endless answer came");
    assert!(bytes <= 250_000 && bytes > 240_000, "{bytes}");
    assert_eq!(send(program.proxy, "POST /x", &"z".repeat(200)).0, 402);
    // A request without content has a head.
    let before = counted.requests.load(Ordering::SeqCst);
    for method in ["GET", "DELETE"] {
        let path = format!("{method} /{}", "a".repeat(2_000));
        assert_eq!(send(program.proxy, &path, "").0, 402, "{method}");
    }
    assert_eq!(counted.requests.load(Ordering::SeqCst), before);
    // Nothing bounds these.
    let (status, text) = {
        let mut stream = TcpStream::connect(program.proxy).unwrap();
        let request = "POST http://model.test/x HTTP/1.1\r\nHost: model.test\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text);
        (text.get(9..12).unwrap_or("0").parse::<u16>().unwrap(), text)
    };
    assert!(status == 403 && text.contains("budget_unbounded"), "{text}");
}

#[test]
fn what_cannot_be_bounded_is_refused_and_usage_is_read_from_each_shape_of_answer() {
    let (origin, counted) = model();
    let tokens = budget("tokens", "tokens", "100000", "day");
    let money = budget("money", "usd", "1", "day");
    let program = gateway(
        origin,
        &format!("{tokens}{money}{PRICE}"),
        &["tokens", "money"],
    );
    let proxy = program.proxy;
    for (more, why) in [
        (
            r#","tools":[{"type":"web_search"}]"#,
            "may ask the model again",
        ),
        (r#","service_tier":"priority""#, "may cost more"),
    ] {
        let (status, text) = chat(proxy, more);
        assert!(status == 403 && text.contains(why), "{more}: {text}");
    }
    let other = r#"{"model":"unheard-of","messages":[],"max_tokens":5}"#;
    let (status, text) = send(proxy, "POST /v1/chat/completions", other);
    assert!(status == 403 && text.contains("[[price]]"), "{text}");
    let (status, text) = send(proxy, "POST /v1/chat/completions", "a=b");
    assert!(status == 403 && text.contains("budget_unbounded"), "{text}");
    assert_eq!(counted.requests.load(Ordering::SeqCst), 0);
    // What only looks something up asks no model.
    assert_eq!(send(proxy, "GET /v1/models", "").0, 200);
    let message = r#"{"model":"m","messages":[],"max_tokens":3000,"stream":true}"#;
    for (status, text) in [
        chat(proxy, ""),
        chat(proxy, r#","stream":true"#),
        send(proxy, "POST /v1/messages", message),
    ] {
        assert_eq!(status, 200, "{text}");
    }
    wait_for("it is not settled", || {
        shown(&program, "tokens")["reserved"] == 0
    });
    assert_eq!(shown(&program, "tokens")["spent"], 360);
    assert_eq!(shown(&program, "money")["spent"], 9_600_000);
}

/// Must show 2.
#[test]
fn thirty_kills_under_load_let_no_request_more_through_and_lose_little() {
    let (origin, counted) = model();
    let most = 1000;
    let mut program = gateway(
        origin,
        &budget("hits", "requests", "1000", "month"),
        &["hits"],
    );
    let proxy = program.proxy;
    let ends = Arc::new(AtomicUsize::new(0));
    let clients = (0..16).map(|_| {
        let ends = ends.clone();
        std::thread::spawn(move || {
            while ends.load(Ordering::SeqCst) == 0 {
                if send(proxy, "GET /", "").0 != 200 {
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
        })
    });
    let clients: Vec<_> = clients.collect();
    for _ in 0..30 {
        let before = counted.requests.load(Ordering::SeqCst);
        let until = Instant::now() + Duration::from_secs(2);
        while counted.requests.load(Ordering::SeqCst) < before + 12 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
        program.restart_after_a_crash();
    }
    wait_for("it is not used up", || shown(&program, "hits")["left"] == 0);
    ends.store(1, Ordering::SeqCst);
    clients.into_iter().for_each(|one| one.join().unwrap());
    let went = counted.requests.load(Ordering::SeqCst);
    println!("{went} of {most} requests went out over 30 kills");
    assert!(went <= most, "{went}");
    assert!(went * 100 >= most * 95, "{went}");
}

/// A proxy port for tokens, beside the one of the session.
fn doors(port: SocketAddr) -> String {
    format!(
        "[[listener]]\nkind = \"proxy\"\naddress = \"{port}\"\nsession = \"agent-1\"\nwho = [\"token\"]\n"
    )
}

fn minted(program: &Program, narrowed: &[&str]) -> String {
    let mut arguments = vec!["token", "mint", "--session", "agent-1", "--for", "1h"];
    arguments.extend(narrowed);
    program.json(&arguments)["token"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// Sends a request with a token, and returns its status and the answer.
fn with_token(port: SocketAddr, token: &str, line: &str, content: &str) -> (u16, String) {
    use base64::Engine as _;
    let login = base64::engine::general_purpose::STANDARD.encode(format!("gateway:{token}"));
    let mut stream = TcpStream::connect(port).unwrap();
    let within = Some(Duration::from_secs(20));
    stream.set_read_timeout(within).unwrap();
    let (method, path) = line.split_once(' ').unwrap();
    let request = format!(
        "{method} http://model.test{path} HTTP/1.1\r\nHost: model.test\r\nProxy-Authorization: Basic {login}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{content}",
        content.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text);
    (
        text.get(9..12)
            .and_then(|text| text.parse().ok())
            .unwrap_or(0),
        text,
    )
}

#[test]
fn a_tokens_budget_is_shared_with_all_that_is_derived_from_it_and_holds_over_a_restart() {
    let (origin, counted) = model();
    let port = crate::program::free();
    let mut program = gateway(origin, &doors(port), &[]);
    let parent = minted(&program, &["--budget", "requests 3"]);
    let narrowed = ["--json", "token", "attenuate", "--once"];
    let child = {
        use std::process::Stdio;
        let mut command = crate::program::command(program.folder.path());
        let child = command
            .args(narrowed)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = child.spawn().unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(parent.as_bytes())
            .unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let text: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        text["token"].as_str().unwrap().to_owned()
    };
    let ask = |token: &str| with_token(port, token, "GET /", "");
    assert_eq!(ask(&child).0, 200);
    let (status, text) = ask(&child);
    assert!(status == 402 && text.contains("budget_spent"), "{text}");
    assert_eq!(ask(&parent).0, 200);
    program.restart_after_a_crash();
    assert_eq!(ask(&child).0, 402);
    assert_eq!(ask(&parent).0, 200);
    assert_eq!(ask(&parent).0, 402);
    // Another token of the session has its own.
    let other = minted(&program, &["--once"]);
    assert_eq!([ask(&other).0, ask(&other).0], [200, 402]);
    assert_eq!(counted.requests.load(Ordering::SeqCst), 4);
}

#[test]
fn a_token_for_one_request_lets_no_other_byte_through() {
    use sha2::Digest as _;
    let (origin, counted) = model();
    let port = crate::program::free();
    let program = gateway(origin, &doors(port), &[]);
    let hash = sha2::Sha256::digest(b"POST http://model.test/pay?to=a\namount=5");
    let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    let token = minted(&program, &["--request", &format!("sha256:{hex}")]);
    for (line, content) in [
        ("POST /pay?to=a", "amount=6"),
        ("POST /pay?to=b", "amount=5"),
        ("POST /pay", "amount=5"),
        ("PUT /pay?to=a", "amount=5"),
        ("POST /pay?to=a", ""),
    ] {
        let (status, text) = with_token(port, &token, line, content);
        assert!(
            status == 403 && text.contains("token_caveat"),
            "{line}: {text}"
        );
    }
    assert_eq!(counted.requests.load(Ordering::SeqCst), 0);
    assert_eq!(
        with_token(port, &token, "POST /pay?to=a", "amount=5").0,
        200
    );
}

#[test]
fn what_is_sent_is_spent_where_requests_are_counted() {
    let (origin, counted) = model();
    let program = gateway(origin, &budget("hits", "requests", "1", "day"), &["hits"]);
    let proxy = program.proxy;
    let first = std::thread::spawn(move || send(proxy, "GET /hold", ""));
    wait_for("it is not sent", || {
        counted.requests.load(Ordering::SeqCst) == 1
    });
    // No answer of the first could give it back.
    let began = Instant::now();
    assert_eq!(send(proxy, "GET /", "").0, 402);
    assert!(began.elapsed() < Duration::from_secs(5));
    counted.holds.store(1, Ordering::SeqCst);
    assert_eq!(first.join().unwrap().0, 200);
}
