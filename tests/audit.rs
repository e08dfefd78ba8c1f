//! The log as processes meet it: killed in mid-write, on a full disk, two at once, rotated, moved
//! away, checked by Python.
//!
//! A test that needs its own process starts this program again for the same test, with
//! `AUDIT_CHILD` set.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gateway::audit::{
    Durability, Error, Event, ExpectedHeads, Length, Log, Retention, Settings, StoredLog, Trail,
    VerifyReport, find, prune, stored, verify,
};
use gateway::names::ExchangeId;
use tokio::task::JoinSet;

fn wait<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime")
        .block_on(work)
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).expect("ours");
    folder
}

fn id(number: u64) -> ExchangeId {
    let mut bytes = [0; 10];
    bytes[2..].copy_from_slice(&number.to_be_bytes());
    ExchangeId::from_bytes(bytes)
}

fn begin(log: &Log, number: u64) -> Trail {
    let mut trail = Trail::begin(log, id(number), "transparent");
    trail.authority("api.example.test", 443);
    trail.path("/v1/things");
    trail
}

/// Answers one exchange; returns whether the log took its record.
fn answer(log: &Log, number: u64) -> Result<(), Error> {
    wait(begin(log, number).answer(200, Length::Known(0)))
}

fn files(path: &Path) -> Vec<PathBuf> {
    gateway::audit::files(path).expect("readable")
}

fn checked(path: &Path) -> VerifyReport {
    let report = verify(&files(path), ExpectedHeads::default()).expect("readable");
    assert!(report.holds(), "{:?}", report.problems);
    report
}

/// Starts this program again for one test, as the child's side of it.
fn again(test: &str, path: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env("AUDIT_CHILD", path);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit());
    command
}

fn child_path() -> Option<PathBuf> {
    std::env::var_os("AUDIT_CHILD").map(PathBuf::from)
}

fn kill(mut child: Child) {
    child.kill().expect("our child");
    child.wait().expect("our child");
}

/// Answers six clients at once on each of four threads, and prints an exchange's number only after
/// its response was allowed.
fn write_and_acknowledge(path: &Path) {
    let settings = Settings {
        rotate_bytes: 64 << 10,
        ..Settings::at(path)
    };
    let log = Log::open(&settings).expect("a log");
    let round = u64::from(std::process::id()) << 32;
    let client = |client: u64| {
        let log = log.clone();
        async move {
            for number in 0..1_000_000 {
                let number = round | client << 24 | number;
                let mut trail = begin(&log, number);
                trail.answer(200, Length::Known(0)).await.expect("room");
                println!("ack {number}");
            }
        }
    };
    let threads = (0..4u64).map(|thread| {
        let clients: Vec<_> = (0..6).map(|n| client(thread * 6 + n)).collect();
        std::thread::spawn(|| {
            wait(async { clients.into_iter().collect::<JoinSet<_>>().join_all().await })
        })
    });
    let threads: Vec<_> = threads.collect();
    threads
        .into_iter()
        .for_each(|thread| drop(thread.join().expect("no panic")));
}

#[test]
fn whatever_was_acknowledged_survives_kill_9() {
    if let Some(path) = child_path() {
        return write_and_acknowledge(&path);
    }
    let folder = folder();
    let path = folder.path().join("audit.jsonl");
    let mut acknowledged = Vec::new();
    for round in 0..20u64 {
        let mut child = again("whatever_was_acknowledged_survives_kill_9", &path)
            .spawn()
            .expect("a child");
        let out = child.stdout.take().expect("a pipe");
        let reader = std::thread::spawn(move || {
            let lines = BufReader::new(out).split(b'\n').map_while(Result::ok);
            // A line cut by the kill lost its end, including its number; its length shows that.
            let numbers = lines.filter_map(|line| {
                String::from_utf8(line)
                    .ok()?
                    .strip_prefix("ack ")?
                    .parse()
                    .ok()
            });
            numbers.collect::<Vec<u64>>()
        });
        std::thread::sleep(Duration::from_micros(40_000 + round * 7919 % 61_000));
        kill(child);
        let mut held = reader.join().expect("no panic");
        // The last line may be cut within its number.
        held.pop();
        acknowledged.extend(held);
    }
    assert!(
        acknowledged.len() > 1000,
        "only {} answers",
        acknowledged.len()
    );
    let log =
        Log::open(&Settings::at(&path)).expect("the log opens again, healed where it was torn");
    let head = log.head();
    drop(log);
    let report = verify(&files(&path), ExpectedHeads { base: None, head }).expect("readable");
    assert!(report.holds(), "{:?}", report.problems);
    let mut text = String::new();
    files(&path)
        .iter()
        .for_each(|path| text.push_str(&fs::read_to_string(path).expect("ASCII")));
    let recorded: std::collections::HashSet<&str> = text
        .lines()
        .filter_map(|line| line.split_once("\"id\":\"").map(|(_, rest)| &rest[..20]))
        .collect();
    for number in &acknowledged {
        assert!(
            recorded.contains(id(*number).to_string().as_str()),
            "exchange {number} was answered and is not recorded"
        );
    }
}

#[test]
fn a_full_disk_refuses_and_recovers_when_space_returns() {
    if let Some(path) = child_path() {
        return fill_and_free(&path);
    }
    on_a_small_disk(
        "a_full_disk_refuses_and_recovers_when_space_returns",
        "256k",
        "refused and recovered",
    );
}

/// Runs the test again where `AUDIT_CHILD` is a disk of that size; there it prints these words.
fn on_a_small_disk(test: &str, size: &str, words: &str) {
    let folder = folder();
    let disk = folder.path().join("disk");
    fs::create_dir(&disk).expect("room");
    let test = again(test, &disk);
    let namespaces = if rustix::process::geteuid().is_root() {
        "-m"
    } else {
        "-rm"
    };
    let script = format!(
        "mount -t tmpfs -o size={size},mode=700 none \"$AUDIT_CHILD\" && exec \"$0\" \"$@\""
    );
    let done = Command::new("unshare")
        .args([namespaces, "sh", "-c", &script])
        .arg(test.get_program())
        .args(test.get_args())
        .env("AUDIT_CHILD", &disk)
        .output()
        .expect("unshare");
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    assert!(
        String::from_utf8_lossy(&done.stdout).contains(words),
        "the child did its part"
    );
}

/// Fills the small disk with another file, and sees the log refuse, then recover.
fn fill_and_free(disk: &Path) {
    let path = disk.join("logs/audit.jsonl");
    let log = Log::open(&Settings::at(&path)).expect("a log");
    answer(&log, 1).expect("room");
    let ballast = disk.join("ballast");
    let mut filling = fs::File::create(&ballast).expect("room");
    while filling.write(&[0; 512]).is_ok_and(|taken| taken > 0) {}
    let mut refused = 0;
    for number in 2..100 {
        refused += u64::from(matches!(answer(&log, number), Err(Error::Full(_))));
    }
    assert!(refused > 50, "only {refused} refused");
    let clients = (90..96).map(|number| {
        let mut trail = begin(&log, number);
        async move { trail.answer(200, Length::Known(0)).await }
    });
    let clients: Vec<_> = clients.collect();
    let done = wait(async { clients.into_iter().collect::<JoinSet<_>>().join_all().await });
    assert!(done.iter().all(Result::is_err), "all of a turn are refused");
    assert!(
        Trail::begin(&log, id(100), "t").reserve().is_err(),
        "no room is known before sending"
    );
    fs::remove_file(&ballast).expect("ours");
    drop(filling);
    answer(&log, 101).expect("room again");
    Trail::begin(&log, id(102), "t")
        .reserve()
        .expect("room again");
    drop(log);
    let report = checked(&path);
    assert!(
        !report.recoveries.is_empty() && report.recoveries.iter().any(|recovery| recovery.lost > 0)
    );
    assert!(find(&[path], id(101)).expect("readable").is_some());
    println!("refused and recovered");
}

#[test]
fn room_that_was_reserved_stays_when_the_disk_fills() {
    if let Some(path) = child_path() {
        return reserve_then_fill(&path);
    }
    on_a_small_disk(
        "room_that_was_reserved_stays_when_the_disk_fills",
        "2m",
        "kept its room",
    );
}

fn reserve_then_fill(disk: &Path) {
    let path = disk.join("logs/audit.jsonl");
    let log = Log::open(&Settings::at(&path)).expect("a log");
    let mut trail = Trail::begin(&log, id(1), "t");
    trail.path("/sent");
    trail.reserve().expect("room");
    let mut filling = fs::File::create(disk.join("ballast")).expect("room");
    while filling.write(&[0; 512]).is_ok_and(|taken| taken > 0) {}
    wait(trail.answer(200, Length::Known(0))).expect("the room that was promised");
    println!("kept its room");
}

#[test]
fn a_second_process_is_refused() {
    if let Some(path) = child_path() {
        let refused = Log::open(&Settings::at(&path)).expect_err("it is in use");
        println!("child: {refused}");
        return;
    }
    let folder = folder();
    let path = folder.path().join("audit.jsonl");
    let log = Log::open(&Settings::at(&path)).expect("a log");
    let done = again("a_second_process_is_refused", &path)
        .output()
        .expect("a child");
    let told = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(
        told.contains("child: the audit log `")
            && told.contains("belongs to another running process"),
        "{told}"
    );
    drop(log);
    Log::open(&Settings::at(&path)).expect("free again");
}

#[test]
fn a_torn_end_is_healed_and_told() {
    let folder = folder();
    let path = folder.path().join("audit.jsonl");
    let whole = {
        let log = Log::open(&Settings::at(&path)).expect("a log");
        answer(&log, 1).expect("room");
        drop(log);
        fs::read(&path).expect("readable")
    };
    let last = whole[..whole.len() - 1]
        .iter()
        .rposition(|&byte| byte == b'\n')
        .expect("several lines")
        + 1;
    for cut in [last + 1, last + 40, whole.len() - 1] {
        for tail in [
            &b""[..],
            &[0; 5000],
            &[0; 300_000],
            b"\n\n",
            b"\xff\n{\"v\":1,\"seq\":3",
        ] {
            let torn = [&whole[..cut], tail].concat();
            fs::write(&path, &torn).expect("room");
            let good = if torn.starts_with(&whole) {
                whole.len()
            } else {
                last
            };
            let unhealed = verify(&files(&path), ExpectedHeads::default()).expect("readable");
            assert!(!unhealed.holds());
            let log = Log::open(&Settings::at(&path)).expect("a healed log");
            answer(&log, 2).expect("room");
            drop(log);
            let report = checked(&path);
            assert_eq!(report.recoveries.len(), 1);
            assert_eq!(report.recoveries[0].cause, "unclean");
            assert_eq!(report.recoveries[0].torn_bytes, (torn.len() - good) as u64);
            assert!(
                fs::read(&path).expect("readable").starts_with(&torn),
                "nothing is ever cut off"
            );
        }
    }
}

#[test]
fn a_log_whose_first_record_is_torn_is_healed() {
    let folder = folder();
    let path = folder.path().join("audit.jsonl");
    for torn in [&b"{"[..], b"{\"v\":1,\"seq\":0,\"prev\":\"0000", &[0; 4096]] {
        fs::write(&path, torn).expect("room");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("ours");
        let log = Log::open(&Settings::at(&path)).expect("a healed log");
        answer(&log, 1).expect("room");
        drop(log);
        assert_eq!(checked(&path).recoveries.len(), 1);
    }
}

#[test]
fn a_chain_goes_on_over_restarts_and_rotations() {
    let folder = folder();
    let path = folder.path().join("audit.jsonl");
    let settings = Settings {
        rotate_bytes: 64 << 10,
        ..Settings::at(&path)
    };
    for round in 0..3 {
        let log = Log::open(&settings).expect("a log");
        for number in 0..300 {
            answer(&log, round << 32 | number).expect("room");
        }
    }
    let report = checked(&path);
    assert_eq!(report.exchanges, 900);
    assert!(files(&path).len() > 3, "{:?}", files(&path));
    let first = path.with_extension(format!("jsonl.{:020}", 0));
    let found = find(&files(&path), id(2 << 32 | 299))
        .expect("readable")
        .expect("the last exchange");
    assert_eq!(found.file, path);
    fs::remove_file(first).expect("ours");
    assert!(
        !verify(&files(&path), ExpectedHeads::default())
            .expect("readable")
            .holds(),
        "a missing file is noticed"
    );
}

#[test]
fn a_chain_goes_on_where_the_process_ended_between_two_files() {
    for tear in [0, 30] {
        let folder = folder();
        let path = folder.path().join("audit.jsonl");
        let log = Log::open(&Settings::at(&path)).expect("a log");
        answer(&log, 1).expect("room");
        drop(log);
        let older = path.with_extension(format!("jsonl.{:020}", 0));
        fs::rename(&path, &older).expect("ours");
        let held = fs::OpenOptions::new()
            .write(true)
            .open(&older)
            .expect("ours");
        held.set_len(held.metadata().expect("ours").len() - tear)
            .expect("ours");
        let log = Log::open(&Settings::at(&path)).expect("a log");
        answer(&log, 2).expect("room");
        drop(log);
        let report = checked(&path);
        assert_eq!(
            (report.exchanges, report.recoveries.len()),
            (2, usize::from(tear > 0))
        );
    }
}

#[test]
fn a_file_that_is_taken_away_is_replaced() {
    let folder = folder();
    let path = folder.path().join("audit.jsonl");
    let log = Log::open(&Settings::at(&path)).expect("a log");
    answer(&log, 1).expect("room");
    let aside = folder.path().join("audit.jsonl.aside");
    fs::rename(&path, &aside).expect("ours");
    let began = Instant::now();
    let mut number = 2;
    while !path.exists() {
        answer(&log, number).expect("room");
        number += 1;
        assert!(began.elapsed() < Duration::from_secs(10), "nobody noticed");
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(log);
    let report = verify(&[path, aside], ExpectedHeads::default()).expect("readable");
    assert!(report.holds(), "{:?}", report.problems);
    assert_eq!(report.exchanges, number - 1);
}

#[test]
fn a_log_that_others_can_reach_is_refused() {
    let folder = folder();
    let inside = folder.path().join("inside");
    let path = inside.join("audit.jsonl");
    drop(Log::open(&Settings::at(&path)).expect("a log in a new folder"));
    let mode = |path: &Path| fs::metadata(path).expect("ours").permissions().mode() & 0o777;
    assert_eq!((mode(&inside), mode(&path)), (0o700, 0o600));
    let open = |path: &Path| Log::open(&Settings::at(path)).map(drop);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("ours");
    assert!(matches!(open(&path), Err(Error::Exposed { .. })));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("ours");
    fs::set_permissions(&inside, fs::Permissions::from_mode(0o755)).expect("ours");
    assert!(matches!(open(&path), Err(Error::Exposed { .. })));
    fs::set_permissions(&inside, fs::Permissions::from_mode(0o700)).expect("ours");
    open(&path).expect("private again");
    let second = inside.join("second");
    fs::hard_link(&path, &second).expect("ours");
    assert!(matches!(open(&path), Err(Error::Exposed { .. })));
    fs::remove_file(&second).expect("ours");
    let link = inside.join("link");
    symlink(&path, &link).expect("ours");
    assert!(open(&link).is_err(), "never through a symbolic link");
    assert!(open(Path::new("/dev/full")).is_err());
}

#[test]
fn a_file_that_is_no_log_is_left_alone() {
    let folder = folder();
    let path = folder.path().join("notes.txt");
    for content in ["my notes", "my notes\nof two lines\n"] {
        fs::write(&path, content).expect("room");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("ours");
        assert!(matches!(
            Log::open(&Settings::at(&path)),
            Err(Error::Foreign { .. })
        ));
        assert_eq!(fs::read_to_string(&path).expect("readable"), content);
    }
}

#[test]
fn an_answer_on_a_synced_log_is_shared_by_threads() {
    let folder = folder();
    let path = folder.path().join("audit.jsonl");
    let log = Log::open(&Settings {
        sync: Durability::Always,
        ..Settings::at(&path)
    })
    .expect("a log");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let log = log.clone();
            scope.spawn(move || {
                (0..25).for_each(|number| answer(&log, thread << 32 | number).expect("room"))
            });
        }
    });
    drop(log);
    assert_eq!(checked(&path).exchanges, 100);
}

#[test]
fn verifying_and_finding_keep_their_memory_flat() {
    if let Some(path) = child_path() {
        let before = peak_kib();
        assert_eq!(checked(&path).exchanges, 60_000);
        assert!(find(&files(&path), id(59_999)).expect("readable").is_some());
        println!("grown by {} KiB", peak_kib() - before);
        return;
    }
    let folder = folder();
    let path = folder.path().join("audit.jsonl");
    let log = Log::open(&Settings::at(&path)).expect("a log");
    for number in 0..60_000 {
        answer(&log, number).expect("room");
    }
    drop(log);
    let done = again("verifying_and_finding_keep_their_memory_flat", &path)
        .output()
        .expect("a child");
    let told = String::from_utf8_lossy(&done.stdout).into_owned();
    let grown = told
        .split_once("grown by ")
        .and_then(|(_, rest)| rest.split(' ').next())
        .expect("the child measured");
    let grown: u64 = grown.parse().expect("a number");
    let bytes = fs::metadata(&path).expect("ours").len();
    assert!(
        bytes > 20 << 20 && grown < 4096,
        "{grown} KiB more for {bytes} bytes"
    );
}

fn peak_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("proc");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .expect("a peak");
    line.trim()
        .trim_end_matches(" kB")
        .parse()
        .expect("a number")
}

#[test]
fn an_event_is_recorded_in_the_chain() {
    let folder = folder();
    let path = folder.path().join("audit.jsonl");
    let log = Log::open(&Settings::at(&path)).expect("a log");
    let hostile = "evil\u{1b}[2J\r\n\u{202e}".as_bytes();
    log.event(Event {
        name: "dns_refused",
        session: None,
        subject: hostile,
        reason: Some("not_allowed"),
        count: 3,
    })
    .expect("room");
    drop(log);
    checked(&path);
    let text = fs::read_to_string(&path).expect("ASCII");
    assert!(
        text.bytes()
            .all(|byte| byte == b'\n' || (b' '..=b'~').contains(&byte))
    );
    for part in [
        r#""name":"dns_refused""#,
        r#""subject":"evil\u001b[2J\r\n\u202e""#,
        r#""reason":"not_allowed""#,
        r#""count":3"#,
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

/// The script between the fences of `docs/audit.md`.
fn python_verifier() -> String {
    let text = include_str!("../docs/audit.md");
    let (_, rest) = text
        .split_once("```python\n")
        .expect("a script in the document");
    rest.split_once("```")
        .expect("an end of the script")
        .0
        .to_owned()
}

fn python(script: &Path, files: &[PathBuf]) -> (bool, String) {
    let done = Command::new("python3")
        .arg(script)
        .args(files)
        .output()
        .expect("python3 must be installed for this test");
    (
        done.status.success(),
        String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr),
    )
}

/// Writes one log as a session does, and returns what its folder takes on the disk afterwards.
fn one_session(path: &Path) -> u64 {
    let log = Log::open(&Settings::at(path)).expect("a log");
    let mut trail = Trail::begin(&log, id(1), "transparent");
    trail.reserve().expect("room");
    wait(trail.answer(200, Length::Known(0))).expect("room");
    drop(trail);
    let blocks = |path: &Path| fs::metadata(path).expect("ours").blocks() * 512;
    assert!(blocks(path) >= 1 << 20, "nothing was reserved");
    drop(log);
    let entries = fs::read_dir(path.parent().expect("a folder")).expect("ours");
    entries
        .map(|entry| blocks(&entry.expect("ours").path()))
        .sum()
}

#[test]
fn a_closed_log_takes_what_its_records_take_and_leaves_no_other_file() {
    let folder = folder();
    let path = folder.path().join("audit.jsonl");
    let taken = one_session(&path);
    assert!(taken <= 16 << 10, "{taken} bytes");
    let count = fs::read_dir(folder.path()).expect("ours").count();
    assert_eq!(count, 1);
    // The next start reserves anew, and gives back anew.
    let taken = one_session(&path);
    assert!(taken <= 16 << 10, "{taken} bytes");
    checked(&path);
}

#[test]
fn what_a_killed_process_left_reserved_is_given_back_and_its_log_keeps_its_age() {
    if let Some(path) = child_path() {
        let log = Log::open(&Settings::at(&path)).expect("a log");
        let mut trail = Trail::begin(&log, id(1), "transparent");
        trail.reserve().expect("room");
        println!("reserved");
        std::thread::sleep(Duration::from_secs(60));
    }
    for name in ["20260101T000000-1.jsonl", "serve-20260101T000000-1.jsonl"] {
        let folder = folder();
        let path = folder.path().join(name);
        let this = "what_a_killed_process_left_reserved_is_given_back_and_its_log_keeps_its_age";
        let mut child = again(this, &path).spawn().expect("a child");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("reserved")));
        let about = || fs::metadata(&path).expect("ours");
        // It is in use: nothing is touched.
        let whole = prune(folder.path(), Retention::default(), false).expect("readable");
        assert_eq!((whole.given_back, about().blocks() >= 2048), (0, true));
        kill(child);
        let before = about().modified().expect("a time");
        let pruned = prune(folder.path(), Retention::default(), false).expect("readable");
        assert!(pruned.given_back >= 1 << 20, "{pruned:?}");
        assert!(about().blocks() <= 32);
        assert_eq!(about().modified().expect("a time"), before);
        checked(&path);
    }
}

#[test]
fn prune_removes_whole_closed_logs_and_nothing_else() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    let small = |name: &str| Settings {
        rotate_bytes: 64 << 10,
        ..Settings::at(&at(name))
    };
    for name in [
        "20260101T000000-1.jsonl",
        "20260101T000000-2.jsonl",
        "20260101T000000-3.jsonl",
    ] {
        let log = Log::open(&small(name)).expect("a log");
        for number in 0..400 {
            answer(&log, number).expect("room");
        }
    }
    let live = Log::open(&small("20260101T000000-2.jsonl")).expect("a log");
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(3 * 86_400);
    for log in ["20260101T000000-1.jsonl", "20260101T000000-2.jsonl"] {
        for file in files(&at(log)) {
            let file = fs::File::options().append(true).open(file).expect("ours");
            file.set_modified(long_ago).expect("ours");
        }
    }
    let outside = tempfile::tempdir().expect("a folder");
    let victim = outside.path().join("victim.jsonl");
    fs::write(&victim, "precious").expect("room");
    symlink(&victim, at("link.jsonl")).expect("room");
    symlink(&victim, at("20260101T000000-1.jsonl.00000000000000000999")).expect("room");
    fs::write(at("notes.txt"), "mine").expect("room");
    let keep = Retention {
        within: Some(Duration::from_secs(86_400)),
        ..Retention::default()
    };
    let names = |logs: &[StoredLog]| -> Vec<String> {
        let name = |log: &StoredLog| log.path.file_name().unwrap().to_string_lossy().into_owned();
        logs.iter().map(name).collect()
    };
    let told = prune(folder.path(), keep, true).expect("readable");
    assert_eq!(names(&told.removed), ["20260101T000000-1.jsonl"]);
    assert!(
        at("20260101T000000-1.jsonl").exists(),
        "a dry run removes nothing"
    );
    let done = prune(folder.path(), keep, false).expect("readable");
    assert_eq!(names(&done.removed), ["20260101T000000-1.jsonl"]);
    assert_eq!(done.failed, []);
    let left = fs::read_dir(folder.path()).expect("ours");
    let mut left: Vec<String> = left
        .map(|entry| {
            entry
                .expect("ours")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .filter(|name| !name.contains(".jsonl.0"))
        .collect();
    left.sort();
    assert_eq!(
        left,
        [
            "20260101T000000-2.jsonl",
            "20260101T000000-3.jsonl",
            "link.jsonl",
            "notes.txt"
        ]
    );
    assert_eq!(fs::read_to_string(&victim).expect("ours"), "precious");
    answer(&live, 1 << 40).expect("room");
    drop(live);
    checked(&at("20260101T000000-2.jsonl"));
    checked(&at("20260101T000000-3.jsonl"));
    let all = stored(folder.path()).expect("readable");
    assert_eq!(
        names(&all),
        ["20260101T000000-2.jsonl", "20260101T000000-3.jsonl"]
    );
    let one = Retention {
        logs: Some(1),
        ..Retention::default()
    };
    let done = prune(folder.path(), one, false).expect("readable");
    assert_eq!(names(&done.removed), ["20260101T000000-3.jsonl"]);
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("ours");
    assert!(
        prune(folder.path(), one, false).is_err(),
        "others may write"
    );
}

#[test]
fn a_log_between_two_files_belongs_to_its_writer() {
    let folder = folder();
    let path = folder.path().join("audit.jsonl");
    let log = Log::open(&Settings::at(&path)).expect("a log");
    answer(&log, 1).expect("room");
    let older = path.with_extension(format!("jsonl.{:020}", 0));
    // As its writer does when it rotates, the moment before it makes the new file.
    fs::rename(&path, &older).expect("ours");
    let other = Log::open(&Settings::at(&path));
    assert!(matches!(other, Err(Error::Locked { .. })), "{other:?}");
}

#[test]
fn the_documented_python_script_agrees() {
    let folder = folder();
    let script = folder.path().join("verify.py");
    fs::write(&script, python_verifier()).expect("room");
    let path = folder.path().join("audit.jsonl");
    let settings = Settings {
        rotate_bytes: 64 << 10,
        ..Settings::at(&path)
    };
    for number in 0..150 {
        let log = Log::open(&settings).expect("a log");
        answer(&log, number).expect("room");
        drop(log);
        if number % 50 == 10 {
            let file = fs::OpenOptions::new()
                .append(true)
                .open(&path)
                .expect("ours");
            (&file)
                .write_all(b"{\"v\":1,\"seq\":\xff\n torn")
                .expect("room");
        }
    }
    let files = files(&path);
    let report = checked(&path);
    assert!(files.len() > 1 && report.recoveries.len() == 3);
    let (holds, told) = python(&script, &files);
    assert!(holds, "{told}");
    assert!(
        told.contains(&report.last.expect("records").to_string()),
        "{told}"
    );
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .expect("ours");
    let len = file.metadata().expect("ours").len();
    for at in (0..len).step_by(usize::try_from(len / 20).expect("small")) {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).expect("in the file");
        file.write_all_at(&[byte[0] ^ 1], at).expect("in the file");
        assert!(!python(&script, &files).0, "byte {at} changed");
        file.write_all_at(&byte, at).expect("in the file");
    }
    assert!(python(&script, &files).0, "whole again");
}

#[test]
fn the_document_names_every_key() {
    let text = include_str!("../docs/audit.md");
    let mut source = String::new();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/audit/record.rs");
    fs::File::open(path)
        .and_then(|mut file| file.read_to_string(&mut source))
        .expect("readable");
    let (_, rest) = source.split_once("\nRecord {").expect("the record");
    let (keys, _) = rest.split_once("\n}").expect("its end");
    let keys: Vec<&str> = keys
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with("///"))
        .filter_map(|line| Some(line.split_once(':')?.0))
        .collect();
    assert!(keys.len() > 40);
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    let named: Vec<&str> = rows.filter_map(|row| row.split(" | ").next()).collect();
    for key in keys {
        let key = format!("`{key}`");
        let has = named.iter().any(|cell| cell.contains(&key));
        assert!(has, "{key} is not in docs/audit.md");
    }
}
