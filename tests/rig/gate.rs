//! A running gateway: its process, its audit log, its own log.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Child;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::Value;

/// One process of the program under test.
pub struct Gate {
    /// The process.
    pub child: Mutex<Child>,
    /// The audit log.
    pub audit: PathBuf,
    /// Standard error, at `RUST_LOG=trace`.
    pub log: PathBuf,
    /// The workload's phantoms, by credential.
    pub phantoms: HashMap<String, String>,
    read: Mutex<(usize, usize)>,
}

impl Gate {
    /// A gateway with these files.
    pub fn new(child: Child, audit: PathBuf, log: PathBuf) -> Self {
        Self {
            child: Mutex::new(child),
            audit,
            log,
            phantoms: HashMap::new(),
            read: Mutex::new((0, 0)),
        }
    }

    /// Records of exchanges, ends and events since the last call.
    pub fn take_records(&self) -> Vec<Value> {
        let mut read = self.read.lock().unwrap();
        let all = std::fs::read(&self.audit).unwrap_or_default();
        let new = &all[read.0..];
        let whole = new
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        read.0 += whole;
        String::from_utf8(new[..whole].to_vec())
            .expect("records are ASCII")
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).expect("a record is JSON"))
            .filter(|record| {
                ["exchange", "end", "event"].contains(&record["kind"].as_str().unwrap())
            })
            .collect()
    }

    /// Bytes of the log since the last call.
    pub fn take_log(&self) -> Vec<u8> {
        let mut read = self.read.lock().unwrap();
        let all = std::fs::read(&self.log).unwrap_or_default();
        let new = all[read.1..].to_vec();
        read.1 = all.len();
        new
    }

    /// Waits until the log contains a text.
    pub fn wait_for_log(&self, what: &str) {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            if log.contains(what) {
                return;
            }
            let ended = self.child.lock().unwrap().try_wait().unwrap();
            assert!(
                ended.is_none() && Instant::now() < until,
                "no `{what}` in the log ({ended:?}):\n{log}"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Whether the process is alive.
    pub fn is_alive(&self) -> bool {
        self.child.lock().unwrap().try_wait().unwrap().is_none()
    }

    /// Sends a signal to this process only.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child.lock().unwrap());
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Its processes of the program under test: `exec` becomes a launcher, beside the gateway
    /// process that it started.
    fn processes(&self) -> Vec<u32> {
        let mut all = vec![self.child.lock().unwrap().id()];
        let started = |at: &std::fs::DirEntry| -> Option<u32> {
            let pid = at.file_name().to_str()?.parse().ok()?;
            let parent: u32 = stat(pid)?.get(4 - FIRST)?.parse().ok()?;
            let program = std::fs::read_link(at.path().join("exe")).ok()?;
            (parent == all[0] && program.ends_with(GATEWAY)).then_some(pid)
        };
        let found: Vec<u32> = std::fs::read_dir("/proc")
            .unwrap()
            .filter_map(|at| started(&at.ok()?))
            .collect();
        all.extend(found);
        all
    }

    /// Open descriptors, and resident memory in KiB.
    pub fn burden(&self) -> (usize, u64) {
        let each = self.processes().into_iter().map(|pid| {
            let open = std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
            let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
            let resident = resident.unwrap().trim().trim_end_matches(" kB");
            (open, resident.trim().parse::<u64>().unwrap())
        });
        each.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// The processor's time that it has used, to the hundredth of a second.
    pub fn worked(&self) -> Duration {
        let ticks = self.processes().into_iter().map(|pid| {
            let fields = stat(pid).unwrap();
            // proc_pid_stat(5): utime and stime.
            let ticks = |at: usize| fields[at - FIRST].parse::<u64>().unwrap();
            ticks(14) + ticks(15)
        });
        Duration::from_millis(10 * ticks.sum::<u64>())
    }
}

const GATEWAY: &str = env!("CARGO_BIN_EXE_gateway");

/// Number of the first field behind the name in proc_pid_stat(5).
const FIRST: usize = 3;

/// What `/proc/PID/stat` says behind the name.
fn stat(pid: u32) -> Option<Vec<String>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields = text.rsplit(')').next()?.split_whitespace();
    Some(fields.map(str::to_owned).collect())
}

impl Drop for Gate {
    fn drop(&mut self) {
        let mut child = self.child.lock().unwrap();
        let _ = rustix::process::kill_process(
            rustix::process::Pid::from_child(&child),
            rustix::process::Signal::TERM,
        );
        let until = Instant::now() + Duration::from_secs(3);
        while matches!(child.try_wait(), Ok(None)) {
            if Instant::now() > until {
                let _ = child.kill();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
