//! The audit log lies on a file system that does not answer: what narrows is done, and no call
//! keeps others waiting.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::program::Program;

/// A file system of its own that can be frozen. Needs root and a loop device.
struct Freezing(PathBuf);

impl Freezing {
    fn mount(place: &Path) -> Option<Self> {
        let image = place.with_extension("image");
        fs::create_dir(place).unwrap();
        fs::File::create(&image).unwrap().set_len(32 << 20).unwrap();
        let (image, place) = (image.to_str().unwrap(), place.to_str().unwrap());
        let mounted = run("mkfs.ext4", &["-q", "-F", image])
            && run("mount", &["-o", "loop", image, place])
            && run("chmod", &["0700", place]);
        mounted.then(|| Self(place.into()))
    }

    fn set(&self, flag: &str) -> bool {
        run("fsfreeze", &[flag, self.0.to_str().unwrap()])
    }
}

/// Thaws it, so that the gateway can end.
struct Thaws<'a>(&'a Freezing);

impl Drop for Thaws<'_> {
    fn drop(&mut self) {
        self.0.set("-u");
    }
}

impl Drop for Freezing {
    fn drop(&mut self) {
        run("umount", &["-l", self.0.to_str().unwrap()]);
    }
}

fn run(program: &str, arguments: &[&str]) -> bool {
    let done = Command::new(program).args(arguments).output();
    done.is_ok_and(|done| done.status.success())
}

#[test]
fn an_end_does_not_wait_for_a_log_that_hangs_and_no_call_keeps_others_waiting() {
    // Unmounted after the gateway has ended, which has its log there.
    let place = tempfile::tempdir().unwrap();
    let Some(frozen) = Freezing::mount(&place.path().join("log")) else {
        return println!("not tried: no file system can be mounted here");
    };
    let mut program = Program::start("");
    let log = frozen.0.join("a/log.jsonl").display().to_string();
    let config = fs::read_to_string(program.path("gateway.toml")).unwrap();
    let config = config.replace("audit/log.jsonl", &log);
    let socket = program.path("run/gateway/serve-1.sock");
    program.configure(&format!("{config}[control]\npath = {socket:?}\n"));
    let (status, mut stream) = program.begin("http://stream.test/events");
    assert_eq!(status, 200);
    let thaws = Thaws(&frozen);
    assert!(frozen.set("-f"));
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
    drop(thaws);
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
