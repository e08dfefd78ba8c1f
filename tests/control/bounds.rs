//! What callers can use up: nothing that the data path or another caller needs.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};

use crate::program::{Program, command, free};

fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.unwrap().trim().trim_end_matches(" kB");
    number.trim().parse().unwrap()
}

/// A connection that may not come about at once: the listener's queue has an end.
fn connect(program: &Program) -> UnixStream {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        match UnixStream::connect(&program.socket) {
            Ok(stream) => return stream,
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
    }
}

/// Waits until a call has a place again.
fn healthy_again(program: &Program) {
    let until = Instant::now() + Duration::from_secs(15);
    while program.call("GET", "/healthz", "").0 != 200 {
        assert!(Instant::now() < until, "there is no place for a call");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn ten_thousand_connections_are_bounded_and_disturb_neither_requests_nor_memory() {
    let limit = getrlimit(Resource::Nofile);
    let most = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, most).unwrap();
    let program = Program::start("");
    let (_, mut stream) = program.begin("http://stream.test/endless");
    let before = resident_kib(program.child.id());
    let mut open = Vec::new();
    for nth in 0..10_000 {
        open.push(connect(&program));
        if nth % 2_500 == 0 {
            let asked = Instant::now();
            assert_eq!(program.ask("http://stream.test/").0, 200);
            assert!(asked.elapsed() < Duration::from_secs(1));
        }
    }
    stream.read_exact(&mut [0; 100]).unwrap();
    let descriptors = std::fs::read_dir(format!("/proc/{}/fd", program.child.id()));
    assert!(descriptors.unwrap().count() < 200);
    let grown = resident_kib(program.child.id()).saturating_sub(before);
    assert!(grown < 8 << 10, "{grown} KiB");
    // All but 64 were closed at once, and those 64 say nothing for longer than they may.
    drop(open);
    healthy_again(&program);
}

#[test]
fn a_caller_who_says_nothing_or_too_much_is_cut_and_keeps_nobody_away() {
    let program = Program::start("");
    let mut silent: Vec<UnixStream> = (0..64).map(|_| connect(&program)).collect();
    for stream in &mut silent {
        stream.write_all(b"GET /v1/status HTTP/1.1\r\nHo").unwrap();
    }
    healthy_again(&program);
    let long = "x".repeat(100 << 10);
    let answer = program.raw(&format!(
        "GET /healthz HTTP/1.1\r\nHost: gateway\r\nX: {long}\r\n\r\n"
    ));
    assert!(!answer.starts_with("HTTP/1.1 200"), "{answer}");
    let (status, _) = program.call(
        "POST",
        "/v1/policies/allow",
        &format!("{{\"host\":\"{long}\"}}"),
    );
    assert!([0, 400].contains(&status), "{status}");
    assert_eq!(program.call("GET", "/healthz", "").0, 200);
}

#[test]
fn slow_readers_of_the_records_are_few_and_hold_no_memory() {
    let program = Program::start("");
    let before = resident_kib(program.child.id());
    let mut readers: Vec<UnixStream> = (0..20)
        .map(|_| {
            let mut stream = connect(&program);
            let call = b"GET /v1/events HTTP/1.1\r\nHost: gateway\r\n\r\n";
            stream.write_all(call).unwrap();
            stream
        })
        .collect();
    let mut served = 0;
    for reader in &mut readers {
        let mut head = [0; 12];
        reader.read_exact(&mut head).unwrap();
        served += usize::from(&head == b"HTTP/1.1 200");
    }
    assert_eq!(served, 16);
    for nth in 0..2_000 {
        program.ask(&format!("http://evil-{nth}.test/"));
    }
    assert_eq!(program.call("GET", "/healthz", "").0, 200);
    let grown = resident_kib(program.child.id()).saturating_sub(before);
    assert!(grown < 16 << 10, "{grown} KiB");
}

/// A pager that waits, a terminal that was stopped, a journal that hangs. Workloads cause lines.
#[test]
fn a_reader_of_standard_error_that_stops_holds_up_neither_requests_nor_the_end() {
    let mut program = Program::start("");
    let (unread, stderr) = std::io::pipe().unwrap();
    rustix::pipe::fcntl_setpipe_size(&stderr, 4096).unwrap();
    program.child.kill().unwrap();
    program.child.wait().unwrap();
    let mut serve = command(program.folder.path());
    serve.env("RUST_LOG", "gateway=debug");
    serve.args(["serve", "--config", "gateway.toml"]);
    program.follow(serve.stderr(stderr).spawn().unwrap());
    drop(serve);
    let patience = Some(Duration::from_secs(5));
    for nth in 0..200 {
        // One is refused, and is a line of `serve`. The other breaks off, and is one of debugging.
        let host = format!("refused-{nth}.test");
        for (host, more) in [
            (host.as_str(), "\r\n"),
            ("stream.test", "Content-Length: 9\r\n\r\n"),
        ] {
            let mut stream = TcpStream::connect(program.proxy).unwrap();
            stream.set_read_timeout(patience).unwrap();
            let head = format!("POST http://{host}/ HTTP/1.1\r\nHost: {host}\r\n{more}");
            stream.write_all(head.as_bytes()).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let ended = stream.read_to_end(&mut Vec::new());
            assert!(ended.is_ok(), "{nth} {ended:?}");
        }
    }
    assert_eq!(program.ask("http://stream.test/").0, 200);
    let pid = Pid::from_raw(program.child.id().cast_signed()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    let begun = Instant::now();
    while program.child.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < Duration::from_secs(10), "it does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(unread);
}

#[test]
fn silent_callers_of_the_metrics_port_keep_no_probe_of_the_health_away() {
    let port = free();
    let program = Program::start(&format!("[control]\nmetrics_address = \"{port}\"\n"));
    let silent = || {
        let mut stream = TcpStream::connect(port).unwrap();
        stream.write_all(b"G").unwrap();
        stream
    };
    let mut held: Vec<TcpStream> = (0..70).map(|_| silent()).collect();
    for _ in 0..20 {
        let mut probe = TcpStream::connect(port).unwrap();
        let head = format!("GET /healthz HTTP/1.1\r\nHost: {port}\r\n\r\n");
        probe.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        probe.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        held.extend((0..10).map(|_| silent()));
    }
    assert_eq!(program.ask("http://stream.test/").0, 200);
}
