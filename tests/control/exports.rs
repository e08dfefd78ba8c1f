//! Exports of the audit log's records: to a collector of the test's own, held to the schemas that
//! OpenTelemetry and OCSF publish.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::program::{CANARY, Program, free};

/// What a collector got: the path, the head and the content.
pub type Taken = (String, String, String);

/// A server that takes requests with a status, or hangs.
#[derive(Clone, Default)]
pub struct Collector {
    taken: Arc<Mutex<Vec<Taken>>>,
    pub status: Arc<AtomicU16>,
    pub hangs: Arc<AtomicBool>,
}

impl Collector {
    pub fn start(address: SocketAddr) -> Self {
        let collector = Self::default();
        collector.status.store(200, Ordering::SeqCst);
        let listener = TcpListener::bind(address).unwrap();
        let server = collector.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let server = server.clone();
                std::thread::spawn(move || drop(server.take(stream)));
            }
        });
        collector
    }

    fn take(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            reader.read_line(&mut head)?;
        }
        let length = head.to_lowercase();
        let (_, length) = length.split_once("content-length: ").unwrap();
        let length = length.split("\r\n").next().unwrap().parse().unwrap();
        let mut content = vec![0; length];
        reader.read_exact(&mut content)?;
        if self.hangs.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_secs(60));
        }
        let status = self.status.load(Ordering::SeqCst);
        if status == 200 {
            let path = head.split(' ').nth(1).unwrap().to_owned();
            let content = String::from_utf8(content).unwrap();
            self.taken.lock().unwrap().push((path, head, content));
        }
        let answer = format!("HTTP/1.1 {status} So\r\nContent-Length: 2\r\n\r\n{{}}");
        stream.write_all(answer.as_bytes())
    }

    pub fn taken(&self) -> Vec<Taken> {
        self.taken.lock().unwrap().clone()
    }

    /// Every log or span so far.
    fn all(&self, path: &str, pointer: [&str; 3]) -> Vec<Value> {
        let of_path = self.taken().into_iter().filter(|(to, ..)| to == path);
        let documents = of_path.map(|(.., content)| serde_json::from_str::<Value>(&content));
        let [resource, scope, list] = pointer;
        documents
            .flat_map(|one| {
                one.unwrap()[resource][0][scope][0][list]
                    .as_array()
                    .unwrap()
                    .clone()
            })
            .collect()
    }

    pub fn logs(&self) -> Vec<Value> {
        self.all("/v1/logs", ["resourceLogs", "scopeLogs", "logRecords"])
    }

    pub fn spans(&self) -> Vec<Value> {
        self.all("/v1/traces", ["resourceSpans", "scopeSpans", "spans"])
    }
}

#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < limit, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Sends a request with further fields through the proxy, and reads all of its answer.
pub fn ask(program: &Program, url: &str, fields: &str) -> String {
    let mut stream = TcpStream::connect(program.proxy).unwrap();
    let host = url.split('/').nth(2).unwrap();
    let head = format!("GET {url} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{fields}\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

/// Has the published schemas judge what was exported.
fn judge(documents: &[(String, Value)]) {
    let clients = std::env::var("GATEWAY_CLIENTS").unwrap_or("/var/cache/gateway-clients".into());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/export/judge.py");
    let mut judge = Command::new("python3")
        .arg(script)
        .env("GATEWAY_CLIENTS", clients)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = judge.stdin.take().unwrap();
    for (path, content) in documents {
        writeln!(input, "{}", json!({ "path": path, "content": content })).unwrap();
    }
    drop(input);
    let judged = judge.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&judged.stderr);
    let fit = String::from_utf8_lossy(&judged.stdout).lines().count();
    assert!(judged.status.success(), "{said}");
    assert_eq!(fit, documents.len(), "{said}");
}

pub fn attribute<'a>(one: &'a Value, key: &str) -> Option<&'a Value> {
    let attributes = one["attributes"].as_array()?;
    let found = attributes
        .iter()
        .find(|attribute| attribute["key"] == key)?;
    found["value"].as_object()?.values().next()
}

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

#[test]
fn records_arrive_as_logs_and_spans_that_fit_opentelemetrys_schema() {
    let port = free();
    let collector = Collector::start(port);
    let further = format!("[[export]]\nurl = \"http://{port}\"\ntoken = \"env:KEY\"\n");
    let program = Program::start(&further);
    let parent = format!("traceparent: 00-{TRACE}-00f067aa0ba902b7-01\r\n");
    assert!(ask(&program, "http://stream.test/", &parent).contains("200 OK"));
    assert!(
        ask(
            &program,
            "http://evil.test/a",
            "traceparent: 00-nonsense\r\n"
        )
        .contains(" 403 ")
    );
    let phantom = fs::read_to_string(program.path("phantoms.env")).unwrap();
    let phantom = phantom
        .split('=')
        .nth(1)
        .unwrap()
        .trim()
        .trim_matches('\'')
        .to_owned();
    ask(&program, &format!("http://evil.test/{phantom}"), "");
    program.json(&["session", "pause", "agent-1"]);
    until("three spans and an act", || {
        let is_act = |log: &Value| log["eventName"] == "gateway.act";
        collector.spans().len() >= 3 && collector.logs().iter().any(is_act)
    });
    let spans = collector.spans();
    let continued = spans.iter().find(|span| span["traceId"] == TRACE).unwrap();
    assert_eq!(continued["parentSpanId"], "00f067aa0ba902b7");
    assert_eq!(continued["status"], json!({}));
    assert_eq!(
        attribute(continued, "server.address").unwrap(),
        "stream.test"
    );
    assert_eq!(attribute(continued, "client.address").unwrap(), "127.0.0.1");
    assert_eq!(
        attribute(continued, "http.response.status_code").unwrap(),
        "200"
    );
    let refused = spans
        .iter()
        .find(|span| span["status"]["code"] == 2)
        .unwrap();
    assert_eq!(refused.get("parentSpanId"), None);
    assert_eq!(refused["status"]["message"], "policy_default_deny");
    // A log and its span meet in one trace, and the log names the record.
    let logs = collector.logs();
    let log = logs.iter().find(|log| log["traceId"] == TRACE).unwrap();
    assert_eq!(log["spanId"], continued["spanId"]);
    let records = program.records("exchange");
    let hash = attribute(log, "gateway.audit.hash").unwrap();
    assert!(records.iter().any(|record| record["hash"] == *hash));
    let taken = collector.taken();
    for (_, head, content) in &taken {
        assert!(
            head.contains(&format!("authorization: Bearer {CANARY}\r\n")),
            "{head}"
        );
        for hidden in [CANARY, &phantom] {
            assert!(!content.contains(hidden), "{content}");
        }
    }
    let said = fs::read_to_string(program.path("log")).unwrap();
    assert!(!said.contains(CANARY), "{said}");
    let parsed = taken.into_iter().map(|(path, _, content)| (path, content));
    let documents: Vec<_> = parsed
        .map(|(path, content)| (path, serde_json::from_str(&content).unwrap()))
        .collect();
    judge(&documents);
}

#[test]
fn events_arrive_and_are_printed_as_ocsf() {
    let port = free();
    let collector = Collector::start(port);
    let further = format!("[[export]]\nurl = \"http://{port}/in/gateway/\"\nformat = \"ocsf\"\n");
    let program = Program::start(&further);
    ask(&program, "http://stream.test/", "");
    ask(&program, "http://evil.test/a", "");
    program.json(&["session", "pause", "agent-1"]);
    let events = || -> Vec<Value> {
        let lines = collector
            .taken()
            .into_iter()
            .flat_map(|(path, _, content)| {
                assert_eq!(path, "/in/gateway");
                content.lines().map(str::to_owned).collect::<Vec<_>>()
            });
        lines
            .map(|line| serde_json::from_str(&line).unwrap())
            .collect()
    };
    until("an API activity", || {
        events().iter().any(|event| event["class_uid"] == 6003)
    });
    let sent = events();
    let (code, printed) =
        program.gateway(&["log", "--format", "ocsf", "--audit", "audit/log.jsonl"]);
    assert_eq!(code, 0, "{printed}");
    let printed: Vec<Value> = printed
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let http = |event: &&Value| event["class_uid"] == 4002;
    let (sent_http, printed_http): (Vec<_>, Vec<_>) = (
        sent.iter().filter(http).collect(),
        printed.iter().filter(http).collect(),
    );
    assert_eq!(sent_http, printed_http);
    let refused = sent
        .iter()
        .find(|event| event["disposition"] == "Blocked")
        .unwrap();
    assert_eq!(refused["status_detail"], "policy_default_deny");
    assert_eq!(refused["http_request"]["url"]["hostname"], "evil.test");
    assert_eq!(
        (&refused["type_uid"], &refused["action_id"]),
        (&json!(400_203), &json!(2))
    );
    let all = sent.into_iter().chain(printed);
    judge(
        &all.map(|event| ("ocsf".to_owned(), event))
            .collect::<Vec<_>>(),
    );
}

#[test]
fn a_collector_that_is_not_there_slows_nothing_and_misses_nothing() {
    let (port, metrics) = (free(), free());
    let further = format!(
        "[control]\nmetrics_address = \"{metrics}\"\n[[export]]\nurl = \"http://{port}\"\n"
    );
    let program = Program::start(&further);
    let began = Instant::now();
    for _ in 0..50 {
        assert!(ask(&program, "http://stream.test/", "").contains("200 OK"));
    }
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "{:?}",
        began.elapsed()
    );
    let page = || {
        let mut stream = TcpStream::connect(metrics).unwrap();
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            .unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        page
    };
    let value = |name: &str| -> u64 {
        let page = page();
        let line = page
            .lines()
            .find(|line| line.starts_with(name))
            .unwrap_or("0 0");
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    until("a failure", || value("gateway_export_failures_total") > 0);
    assert!(value("gateway_export_backlog_records") >= 50);
    let collector = Collector::start(port);
    let spans = || collector.spans().len();
    until("fifty spans", || spans() >= 50);
    assert_eq!(spans(), 50);
    until("no backlog", || {
        value("gateway_export_backlog_records") == 0
    });
    let sent = "gateway_export_records_total{server=\"127.0.0.1:";
    assert!(page().contains(sent), "{}", page());
    // It is told once that it failed, and once that it works again.
    let said = fs::read_to_string(program.path("log")).unwrap();
    assert_eq!(said.matches("not exported for now").count(), 1, "{said}");
    assert_eq!(said.matches("exported again").count(), 1, "{said}");
    // What a collector will never take is not sent for ever, and counted.
    collector.status.store(400, Ordering::SeqCst);
    ask(&program, "http://stream.test/", "");
    let lost = format!(
        "gateway_export_records_total{{server=\"{port}\",format=\"otlp\",result=\"lost\"}}"
    );
    until("a lost record", || value(&lost) > 0);
    collector.status.store(200, Ordering::SeqCst);
    ask(&program, "http://stream.test/", "");
    until("the next one", || spans() >= 51);
}

#[test]
fn no_series_of_metrics_is_there_twice_if_exports_have_one_server() {
    let (port, metrics) = (free(), free());
    let export = |path: &str, format: &str| {
        format!("[[export]]\nurl = \"http://{port}{path}\"\nformat = \"{format}\"\n")
    };
    let exports = [export("", "otlp"), export("/b", "otlp"), export("", "ocsf")].concat();
    let control = format!("[control]\nmetrics_address = \"{metrics}\"\n");
    let _program = Program::start(&(control + &exports));
    let mut stream = TcpStream::connect(metrics).unwrap();
    let asked = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    asked.unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    let lines = page.lines().filter(|line| line.starts_with("gateway_"));
    let mut all: Vec<_> = lines.filter_map(|line| line.rsplit_once(' ')).collect();
    let count = all.len();
    all.sort_unstable();
    all.dedup_by_key(|(series, _)| *series);
    assert!(
        all.len() == count && page.contains("format=\"ocsf\""),
        "{page}"
    );
}

#[test]
fn a_collector_that_hangs_does_not_hold_up_the_end_and_gets_the_rest_after_the_next_start() {
    let port = free();
    let collector = Collector::start(port);
    collector.hangs.store(true, Ordering::SeqCst);
    let mut program = Program::start(&format!("[[export]]\nurl = \"http://{port}\"\n"));
    assert!(ask(&program, "http://stream.test/", "").contains("200 OK"));
    std::thread::sleep(Duration::from_millis(1_500));
    let pid = rustix::process::Pid::from_child(&program.child);
    let began = Instant::now();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(program.child.wait().unwrap().success());
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "{:?}",
        began.elapsed()
    );
    let said = fs::read_to_string(program.path("log")).unwrap();
    assert!(said.contains("not exported before the end"), "{said}");
    // The log has everything in any case, and the next start goes on where this one came to.
    let taken = collector.spans().len();
    let (code, said) = program.gateway(&["log", "verify", "audit/log.jsonl"]);
    assert_eq!(code, 0, "{said}");
    collector.hangs.store(false, Ordering::SeqCst);
    program.child = crate::program::spawn(program.folder.path());
    let name = format!("serve-{}.sock", program.child.id());
    program.socket = program.socket.with_file_name(name);
    program.wait();
    until("the unsent span", || collector.spans().len() > taken);
    let is_stop = |log: &Value| log["eventName"] == "gateway.stop";
    until("the end of the first", || {
        collector.logs().iter().any(is_stop)
    });
    ask(&program, "http://stream.test/", "");
    until("another span", || collector.spans().len() > taken + 1);
}

/// What an earlier version kept, a number alone, names no log.
#[test]
fn where_the_position_cannot_be_read_records_are_sent_again_and_none_is_missed() {
    let port = free();
    let collector = Collector::start(port);
    let mut program = Program::start(&format!("[[export]]\nurl = \"http://{port}\"\n"));
    assert!(ask(&program, "http://stream.test/", "").contains("200 OK"));
    until("a span", || collector.spans().len() == 1);
    for (times, unreadable) in [(2, ""), (3, "2\n")] {
        end(&mut program);
        let files = fs::read_dir(program.path("audit")).unwrap().flatten();
        let positions: Vec<_> = files
            .map(|file| file.path())
            .filter(|path| path.to_string_lossy().contains(".export-"))
            .collect();
        assert_eq!(positions.len(), 1, "{positions:?}");
        fs::write(&positions[0], unreadable).unwrap();
        again(&mut program);
        until("the span once more", || collector.spans().len() == times);
        let said = fs::read_to_string(program.path("log")).unwrap();
        let told = said.matches("how far the export came cannot be read");
        assert_eq!(told.count(), times - 1, "{said}");
    }
}

/// The log is another one, and has grown past the number to which the old one was exported.
#[test]
fn a_log_that_was_replaced_is_exported_from_its_start_however_far_it_has_grown() {
    let port = free();
    let collector = Collector::start(port);
    let export = format!("[[export]]\nurl = \"http://{port}\"\n");
    let mut program = Program::start(&export);
    ask(&program, "http://evil.test/old", "");
    end(&mut program);
    assert_eq!(collector.spans().len(), 1);
    fs::remove_file(program.path("audit/log.jsonl")).unwrap();
    let with_export = program.edit(|text| text.replace(&export, ""));
    again(&mut program);
    for number in 0..20 {
        ask(&program, &format!("http://evil.test/new/{number}"), "");
    }
    end(&mut program);
    program.edit(|_| with_export);
    again(&mut program);
    until("all of the new log", || collector.spans().len() >= 21);
    let wanted = (0..20).map(|number| format!("/new/{number}"));
    let wanted: Vec<String> = std::iter::once("/old".to_owned()).chain(wanted).collect();
    assert_eq!(paths(&collector), wanted);
    let said = fs::read_to_string(program.path("log")).unwrap();
    assert!(
        said.contains("the log lacks the record that was sent last"),
        "{said}"
    );
    // From then on it goes on where it came to.
    end(&mut program);
    again(&mut program);
    ask(&program, "http://evil.test/last", "");
    until("the last", || {
        paths(&collector).last().is_some_and(|last| last == "/last")
    });
    assert_eq!(collector.spans().len(), 22);
    let said = fs::read_to_string(program.path("log")).unwrap();
    assert_eq!(said.matches("all of it is exported").count(), 1, "{said}");
}

/// The files of the log, with those that it was rotated into.
fn files(program: &Program) -> usize {
    let files = fs::read_dir(program.path("audit")).unwrap().flatten();
    let names = files.map(|file| file.file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("log.jsonl")).count()
}

#[test]
fn each_record_arrives_once_and_in_order_although_the_log_is_rotated_meanwhile() {
    let port = free();
    let collector = Collector::start(port);
    let mut program = Program::start(&format!("[[export]]\nurl = \"http://{port}\"\n"));
    program.edit(|text| text.replace("[audit]\n", "[audit]\nrotate = \"1MiB\"\n"));
    program.reload();
    let mut asked: Vec<String> = Vec::new();
    let long = "x".repeat(4_000);
    let mut rotate = |program: &Program, times: usize| {
        let wanted = files(program) + times;
        while files(program) < wanted {
            assert!(asked.len() < 20_000, "the log is not rotated");
            let path = format!("/{}/{long}", asked.len());
            ask(program, &format!("http://evil.test{path}"), "");
            asked.push(path);
        }
        asked.clone()
    };
    // While it is sent, while the collector takes nothing, and in the next run.
    rotate(&program, 1);
    collector.status.store(503, Ordering::SeqCst);
    let before = rotate(&program, 2);
    assert!(paths(&collector).len() < before.len());
    collector.status.store(200, Ordering::SeqCst);
    until("what was written meanwhile", || {
        paths(&collector).len() >= before.len()
    });
    collector.status.store(503, Ordering::SeqCst);
    rotate(&program, 1);
    program.child.kill().unwrap();
    program.child.wait().unwrap();
    collector.status.store(200, Ordering::SeqCst);
    again(&mut program);
    let all = rotate(&program, 1);
    until("everything", || paths(&collector).len() >= all.len());
    end(&mut program);
    // A record holds the first bytes of a long path.
    let came = paths(&collector);
    let mut pairs = came.iter().zip(&all);
    let differs = pairs.position(|(came, asked)| !asked.starts_with(&came[..200]));
    assert_eq!((came.len(), differs), (all.len(), None));
}

/// The path of each span, in the order in which they came.
pub fn paths(collector: &Collector) -> Vec<String> {
    let spans = collector.spans();
    let paths = spans
        .iter()
        .filter_map(|span| attribute(span, "url.path")?.as_str());
    paths.map(str::to_owned).collect()
}

/// Ends the gateway in order.
pub fn end(program: &mut Program) {
    let pid = rustix::process::Pid::from_child(&program.child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(program.child.wait().unwrap().success());
}

/// Starts it again.
pub fn again(program: &mut Program) {
    program.child = crate::program::spawn(program.folder.path());
    let name = format!("serve-{}.sock", program.child.id());
    program.socket = program.socket.with_file_name(name);
    program.wait();
}

#[test]
fn what_is_written_just_before_the_end_is_exported_with_the_end_itself() {
    let port = free();
    let collector = Collector::start(port);
    let mut program = Program::start(&format!("[[export]]\nurl = \"http://{port}\"\n"));
    for _ in 0..20 {
        ask(&program, "http://stream.test/", "");
    }
    let pid = rustix::process::Pid::from_child(&program.child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(program.child.wait().unwrap().success());
    assert_eq!(collector.spans().len(), 20);
    let last = collector.logs().last().map(|log| log["eventName"].clone());
    assert_eq!(last, Some("gateway.stop".into()));
}

#[test]
fn each_kind_of_refusal_is_one_line_of_serve_and_repeats_are_counted() {
    let mut program = Program::start("");
    for at in 0..30 {
        ask(&program, &format!("http://evil.test/{at}"), "");
    }
    ask(
        &program,
        "http://forbidden.test/\\\u{202e}%1b%5b2J%0agateway:%20fine",
        "",
    );
    ask(&program, "http://forbidden.test/b", "");
    ask(&program, "http://stream.test/", "");
    let said = || fs::read_to_string(program.folder.path().join("log")).unwrap();
    until("the last line", || {
        said().contains("forbidden.test:80: policy_forbids")
    });
    let first = "gateway: refused agent-1 evil.test:80: policy_default_deny (GET /0); gateway why ";
    assert_eq!(said().matches("evil.test").count(), 1, "{}", said());
    assert!(said().contains(first), "{}", said());
    assert!(
        said().matches("gateway: refused agent-1 ").count() >= 3,
        "{}",
        said()
    );
    assert!(!said().contains(['\u{1b}', '\r', '\u{202e}']) && !said().contains("\ngateway: fine"));
    assert!(!said().contains("stream.test"), "{}", said());
    let pid = rustix::process::Pid::from_child(&program.child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    program.child.wait().unwrap();
    let said = fs::read_to_string(program.path("log")).unwrap();
    let again = "refused agent-1 evil.test:80: policy_default_deny, 29 more times\n";
    assert!(said.contains(again), "{said}");
}

/// The place is on the disk, or it is told: each sync of the process fails from some moment on.
#[test]
fn how_far_an_export_came_is_synchronised_with_the_disk_or_told() {
    let port = free();
    let program = Program::start(&format!("[[export]]\nurl = \"http://{port}\"\n"));
    assert!(ask(&program, "http://stream.test/", "").contains("200 OK"));
    let position = || {
        let files = fs::read_dir(program.path("audit")).unwrap().flatten();
        let mut files = files.map(|file| file.path());
        let found = files.find(|path| path.to_string_lossy().contains(".export-"));
        found.map(|path| fs::read_to_string(path).unwrap())
    };
    let before = position();
    let mut strace = Command::new("strace");
    strace.args(["-f", "-p", &program.child.id().to_string()]);
    strace.args(["-e", "trace=fsync", "-e", "inject=fsync:error=EIO"]);
    let strace = strace.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut strace = strace.expect("strace is installed");
    let mut told = BufReader::new(strace.stderr.take().unwrap()).lines();
    let attached = told.find(|line| line.as_ref().is_ok_and(|line| line.contains("attached")));
    assert!(attached.is_some(), "strace cannot trace the gateway");
    std::thread::spawn(move || told.for_each(drop));
    let collector = Collector::start(port);
    until("a span", || !collector.spans().is_empty());
    let said = || fs::read_to_string(program.path("log")).unwrap();
    until("that it is not kept", || {
        said().contains("how far the export has come cannot be kept")
    });
    let pid = rustix::process::Pid::from_child(&strace);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    strace.wait().unwrap();
    assert_eq!(position(), before, "what is not on the disk has no name");
    ask(&program, "http://stream.test/", "");
    until("that it is kept again", || position() != before);
}
