//! The disk of the audit log does not answer: what narrows is done, and no call keeps others
//! waiting.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::program::Program;

/// Every write to the log of a process, and every sync, waits until this is dropped.
struct Hangs(Child);

impl Hangs {
    /// Holds them up with the fault injection of strace, as a disk does that no longer answers.
    fn of(process: u32, log: &Path) -> Self {
        let waits = "inject=write,fsync,fdatasync,fallocate:delay_enter=60s";
        let mut strace = Command::new("strace");
        strace
            .args(["-f", "-p", &process.to_string(), "-P"])
            .arg(log);
        strace.args(["-e", "trace=write,fsync,fdatasync,fallocate", "-e", waits]);
        strace.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut strace = strace.spawn().expect("strace is installed");
        let mut told = BufReader::new(strace.stderr.take().unwrap()).lines();
        let attached = told.find(|line| line.as_ref().is_ok_and(|line| line.contains("attached")));
        assert!(attached.is_some(), "strace cannot trace the gateway");
        // It tells of what it holds up, and waits where nobody reads that.
        std::thread::spawn(move || told.for_each(drop));
        Self(strace)
    }
}

impl Drop for Hangs {
    fn drop(&mut self) {
        let strace = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(strace, rustix::process::Signal::TERM).unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn an_end_does_not_wait_for_a_log_that_hangs_and_no_call_keeps_others_waiting() {
    let program = Program::start("");
    let log = program.path("audit/log.jsonl");
    let (status, mut stream) = program.begin("http://stream.test/events");
    assert_eq!(status, 200);
    let hangs = Hangs::of(program.child.id(), &log);
    let began = Instant::now();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| program.call("POST", "/v1/reload", ""));
        let scraped = scope.spawn(|| program.call("GET", "/metrics", ""));
        std::thread::sleep(Duration::from_millis(200));
        let ended = scope.spawn(|| program.call("POST", "/v1/sessions/agent-1/end", ""));
        // The stream, which has a byte every five milliseconds, falls silent while these wait.
        let within = Some(Duration::from_millis(500));
        stream.get_ref().set_read_timeout(within).unwrap();
        while stream.read(&mut [0; 4096]).is_ok_and(|count| count > 0) {
            assert!(began.elapsed() < Duration::from_secs(2), "it goes on");
        }
        assert!(began.elapsed() < Duration::from_secs(2), "it goes on");
        let (status, _) = program.call("GET", "/healthz", "");
        assert_eq!(status, 200);
        assert!(began.elapsed() < Duration::from_secs(3), "others wait");
        assert_eq!(waits.join().unwrap().0, 503);
        assert!([200, 503].contains(&scraped.join().unwrap().0));
        assert!([200, 503].contains(&ended.join().unwrap().0));
    });
    assert!(
        began.elapsed() < Duration::from_secs(28),
        "{:?}",
        began.elapsed()
    );
    drop(hangs);
    // What was not done in time was not done, and the log says so.
    let acts = || -> Vec<serde_json::Value> {
        let text = fs::read_to_string(&log).unwrap();
        let records = text.lines().map(|line| serde_json::from_str(line).unwrap());
        records
            .filter(|one: &serde_json::Value| one["kind"] == "act")
            .collect()
    };
    crate::sandbox::wait_for("the acts are not recorded", || acts().len() == 3);
    let told: Vec<_> = acts()
        .iter()
        .map(|act| (act["name"].clone(), act["outcome"].clone()))
        .collect();
    assert!(
        told.contains(&("reload".into(), "failed".into())),
        "{told:?}"
    );
    assert!(
        told.contains(&("session.end".into(), serde_json::Value::Null)),
        "{told:?}"
    );
}
