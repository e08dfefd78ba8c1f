//! Pausing, resuming and ending a session while it works.

use std::fs;
use std::io::Read as _;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::program::{Program, command, free};
use crate::sandbox::wait_for;

#[test]
fn a_paused_session_is_refused_while_its_streams_go_on_and_a_resumed_one_is_served() {
    let program = Program::start("");
    let (status, mut stream) = program.begin("http://stream.test/endless");
    assert_eq!(status, 200);
    let (code, said) = program.gateway(&["session", "pause", "agent-1"]);
    assert_eq!((code, said.as_str()), (0, "session `agent-1` is paused\n"));
    let (status, refusal) = program.ask("http://stream.test/");
    assert_eq!(status, 503);
    assert!(
        refusal.contains("session_paused") && refusal.contains("gateway session resume"),
        "{refusal}"
    );
    stream.read_exact(&mut [0; 100]).unwrap();
    assert_eq!(
        program.json(&["session", "resume", "agent-1"])["status"],
        "active"
    );
    assert_eq!(program.ask("http://stream.test/").0, 200);
}

#[test]
fn the_end_of_a_session_cuts_its_streams_within_50_ms_and_its_requests_get_the_reason() {
    let program = Program::start("");
    let mut streams: Vec<_> = (0..20)
        .map(|_| program.begin("http://stream.test/endless").1)
        .collect();
    // One of them reads nothing.
    let (_, deaf) = program.begin("http://stream.test/endless");
    let (status, ended) = program.call("POST", "/v1/sessions/agent-1/end", "");
    let answered = Instant::now();
    assert_eq!(status, 200, "{ended}");
    assert!(ended.contains(r#""ended":"operator""#), "{ended}");
    for stream in &mut streams {
        let mut rest = Vec::new();
        // A cut of chunked content is an end without its last chunk, or a reset.
        let _ = stream.read_to_end(&mut rest);
        assert!(!rest.ends_with(b"0\r\n\r\n"));
    }
    let took = answered.elapsed();
    assert!(took < Duration::from_millis(50), "{took:?}");
    let (status, refusal) = program.ask("http://stream.test/");
    assert_eq!(status, 403);
    assert!(refusal.contains("session_ended"), "{refusal}");
    for act in ["pause", "resume"] {
        let (code, said) = program.gateway(&["session", act, "agent-1"]);
        assert_eq!(code, 1);
        assert!(said.contains("an ended session stays so"), "{said}");
    }
    drop(deaf);
    let until = Instant::now() + Duration::from_secs(5);
    let cut = || {
        let ends = program.records("end");
        ends.iter()
            .filter(|end| end["reason"] == "session_ended")
            .count()
    };
    while cut() < 21 {
        assert!(Instant::now() < until, "{} of 21", cut());
        std::thread::sleep(Duration::from_millis(20));
    }
    // Nothing of them was refused.
    let (_, log) = program.gateway(&["log"]);
    let is_cut = |line: &str| line.contains(" cut  ") && line.contains("GET stream.test:80/");
    assert!(log.lines().any(is_cut), "{log}");
    wait_for("serve tells of no cut", || {
        let told = fs::read_to_string(program.path("log")).unwrap();
        told.contains("gateway: cut agent-1 stream.test:80: session_ended (GET /")
    });
}

#[test]
fn each_act_of_an_operator_is_in_the_chain() {
    let program = Program::start("");
    for act in ["pause", "resume", "end"] {
        program.json(&["session", act, "agent-1"]);
    }
    program.json(&["reload"]);
    program.json(&["revoke", "key"]);
    let acts = program.records("act");
    let told: Vec<(&str, &str)> = acts
        .iter()
        .map(|act| {
            (
                act["name"].as_str().unwrap(),
                act["decision"].as_str().unwrap(),
            )
        })
        .collect();
    let wanted = [
        "session.pause",
        "session.resume",
        "session.end",
        "reload",
        "credential.revoke",
    ];
    assert_eq!(told, wanted.map(|name| (name, "allow")));
    let uid = rustix::process::getuid().as_raw();
    assert!(
        acts.iter()
            .all(|act| act["operator"] == format!("uid:{uid}"))
    );
    assert_eq!(acts[0]["session"], "agent-1");
    let (_, log) = program.gateway(&["log"]);
    assert!(
        log.contains(&format!("act       uid:{uid} credential.revoke key")),
        "{log}"
    );
    let (code, said) = program.gateway(&["log", "verify", "audit/log.jsonl"]);
    assert_eq!(code, 3, "{said}");
}

/// Starts a second gateway with the state, the home and the session of the first.
pub fn beside(first: &Program, further: &[(String, String)]) -> Program {
    let proxy = free();
    let own = [
        (first.proxy.to_string(), proxy.to_string()),
        ("audit/log".to_owned(), "other/log".to_owned()),
        ("\"phantoms".to_owned(), "\"other".to_owned()),
    ];
    let mut config = fs::read_to_string(first.path("gateway.toml")).unwrap();
    for (from, to) in own.iter().chain(further) {
        assert!(config.contains(from));
        config = config.replace(from, to);
    }
    fs::write(first.path("other.toml"), config).unwrap();
    let child = command(first.folder.path())
        .args(["serve", "--config", "other.toml"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let name = format!("serve-{}.sock", child.id());
    let second = Program {
        folder: tempfile::tempdir().unwrap(),
        socket: first.socket.with_file_name(name),
        child,
        proxy,
    };
    wait_for("no second gateway", || {
        second.socket.exists() && TcpStream::connect(proxy).is_ok()
    });
    second
}

#[test]
fn a_session_that_one_gateway_uses_does_not_end_because_another_one_idles() {
    let mut used = Program::start("[ca]\nidle = \"1m\"\n");
    let idle = beside(&used, &[]);
    assert_eq!(idle.ask("http://stream.test/").0, 200);
    let until = Instant::now() + Duration::from_secs(50);
    while Instant::now() < until {
        assert_eq!(used.ask("http://stream.test/").0, 200);
        std::thread::sleep(Duration::from_millis(500));
    }
    // Stopped, it cannot take the end back before this test has seen it.
    let signal = |signal| {
        let pid = rustix::process::Pid::from_child(&used.child);
        rustix::process::kill_process(pid, signal).unwrap();
    };
    signal(rustix::process::Signal::STOP);
    wait_for("the idle one never ended it", || {
        let (status, sessions) = idle.call("GET", "/v1/sessions", "");
        assert_eq!(status, 200);
        sessions.contains(r#""ended":"idle""#)
    });
    signal(rustix::process::Signal::CONT);
    // The end was kept. The one that is used goes on, and takes it back.
    let until = Instant::now() + Duration::from_secs(3);
    while Instant::now() < until {
        assert_eq!(used.ask("http://stream.test/").0, 200);
        std::thread::sleep(Duration::from_millis(100));
    }
    wait_for("the end has no record", || {
        let log = fs::read_to_string(used.path("other/log.jsonl")).unwrap();
        log.contains(r#""subject":"it was not used for too long""#)
    });
    let (status, told) = idle.call("POST", "/v1/sessions/agent-1/pause", "");
    assert!(
        status == 409 && told.contains("gateway session resume agent-1"),
        "{told}"
    );
    assert!(told.contains("not used for too long"), "{told}");
    // Where it was idle it stays ended until an operator resumes it there.
    assert_eq!(idle.ask("http://stream.test/").0, 403);
    let resumed = idle.call("POST", "/v1/sessions/agent-1/resume", "");
    assert_eq!(resumed.0, 200, "{}", resumed.1);
    assert_eq!(idle.ask("http://stream.test/").0, 200);
    drop(idle);
    used.restart_after_a_crash();
    assert_eq!(used.ask("http://stream.test/").0, 200);
}

/// Ends the gateway, and returns its store of sessions.
pub fn stopped(program: &mut Program) -> std::path::PathBuf {
    let pid = rustix::process::Pid::from_child(&program.child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    program.child.wait().unwrap();
    let mut files = fs::read_dir(program.path(".local/state/gateway/sessions")).unwrap();
    let is_store = |path: &std::path::PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.starts_with("serve-") && name.ends_with(".db"))
    };
    files
        .find_map(|file| Some(file.unwrap().path()).filter(is_store))
        .unwrap()
}

/// Starts the gateway again with these flags. What it says is in a file.
pub fn start_with(program: &mut Program, flags: &[&str]) -> std::path::PathBuf {
    let said = program.path("said");
    let mut serve = command(program.folder.path());
    let serve = serve
        .args([&["serve", "--config", "gateway.toml"], flags].concat())
        .stdout(Stdio::null())
        .stderr(fs::File::create(&said).unwrap());
    program.follow(serve.spawn().unwrap());
    said
}

#[test]
fn fresh_phantoms_undo_no_pause_and_no_end() {
    let mut program = Program::start("");
    assert_eq!(program.gateway(&["session", "pause", "agent-1"]).0, 0);
    let before = fs::read_to_string(program.path("phantoms.env")).unwrap();
    stopped(&mut program);
    let said = start_with(&mut program, &["--fresh"]);
    let (code, answer) = program.ask("http://stream.test/");
    assert_eq!(code, 503, "{answer}");
    assert_ne!(
        fs::read_to_string(program.path("phantoms.env")).unwrap(),
        before
    );
    let said = fs::read_to_string(said).unwrap();
    assert!(
        said.contains("session `agent-1` is paused, as it was"),
        "{said}"
    );
    assert_eq!(program.gateway(&["session", "resume", "agent-1"]).0, 0);
    assert_eq!(program.ask("http://stream.test/").0, 200);
    assert_eq!(program.gateway(&["session", "end", "agent-1"]).0, 0);
    stopped(&mut program);
    let said = start_with(&mut program, &["--fresh"]);
    assert_eq!(program.ask("http://stream.test/").0, 403);
    let said = fs::read_to_string(said).unwrap();
    assert!(
        said.contains("was ended") && said.contains("another name"),
        "{said}"
    );
}

/// Makes a store one of version 1, which had no proofs.
fn make_older(path: &std::path::Path) {
    let state = rusqlite::Connection::open(path).unwrap();
    let older = "ALTER TABLE session DROP COLUMN proof; PRAGMA user_version = 1;";
    state.execute_batch(older).unwrap();
}

#[test]
fn sessions_of_an_earlier_version_are_set_aside_unless_one_was_paused_or_ended() {
    let mut program = Program::start("");
    let store = stopped(&mut program);
    make_older(&store);
    let said = start_with(&mut program, &[]);
    assert_eq!(program.ask("http://stream.test/").0, 200);
    let said = fs::read_to_string(said).unwrap();
    let aside = format!("{}.aside", store.display());
    assert!(said.contains(&format!("set aside in {aside}")), "{said}");
    let mode = fs::metadata(&aside).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    fs::remove_file(&aside).unwrap();
    assert_eq!(program.gateway(&["session", "pause", "agent-1"]).0, 0);
    stopped(&mut program);
    make_older(&store);
    let mut serve = command(program.folder.path());
    let refused = serve.args(["serve", "--config", "gateway.toml"]).output();
    let refused = refused.unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success(), "{said}");
    assert!(said.contains("ended or paused begin anew"), "{said}");
    assert!(store.exists() && !std::path::Path::new(&aside).exists());
}

#[test]
fn a_state_of_an_earlier_version_stops_no_command() {
    let folder = crate::sandbox::folder(0);
    let run = || {
        let mut command = crate::sandbox::user_command(folder.path(), 0);
        command.args(["exec", "-v", "--", "true"]).output().unwrap()
    };
    assert!(run().status.success());
    let store = folder
        .path()
        .join("home/.local/state/gateway/sessions/exec.db");
    make_older(&store);
    let output = run();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("set aside in"), "{said}");
    let said = String::from_utf8_lossy(&run().stderr).into_owned();
    assert!(!said.contains("set aside in"), "{said}");
}

/// Whoever can write the state, and has not its key.
#[test]
fn a_session_that_was_paused_is_resumed_by_no_change_of_the_state_file() {
    let mut program = Program::start("");
    let (code, said) = program.gateway(&["session", "pause", "agent-1"]);
    assert_eq!(code, 0, "{said}");
    let state = rusqlite::Connection::open(stopped(&mut program)).unwrap();
    let resumed =
        r#"UPDATE session SET record = replace(record, '"paused":true', '"paused":false')"#;
    assert_eq!(state.execute(resumed, []).unwrap(), 1);
    drop(state);
    let mut serve = command(program.folder.path());
    let refused = serve
        .args(["serve", "--config", "gateway.toml"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success(), "{said}");
    assert!(
        said.contains("changed or moved") && said.contains("--fresh"),
        "{said}"
    );
    let mut serve = command(program.folder.path());
    let fresh = serve
        .args(["serve", "--config", "gateway.toml", "--fresh"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    program.follow(fresh.spawn().unwrap());
    assert_eq!(program.ask("http://stream.test/").0, 200);
}

/// Starts the gateway, which must refuse. Returns what it says.
fn refused_start(program: &Program) -> String {
    let mut serve = command(program.folder.path());
    let serve = serve.args(["serve", "--config", "gateway.toml"]);
    let mut serve = serve.stderr(Stdio::piped()).spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(10);
    let ended = loop {
        match serve.try_wait().unwrap() {
            None if Instant::now() < until => std::thread::sleep(Duration::from_millis(20)),
            ended => break ended,
        }
    };
    serve.kill().unwrap();
    assert!(ended.is_some_and(|ended| !ended.success()), "it serves");
    let mut said = String::new();
    serve.stderr.unwrap().read_to_string(&mut said).unwrap();
    said
}

/// Runs a test's part while this user may not use a file or folder.
fn without(path: &std::path::Path, run: impl FnOnce()) {
    let change = |owner, mode| {
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(path, Some(owner), None).unwrap();
        } else {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        }
    };
    let mode = fs::metadata(path).unwrap().permissions().mode();
    change(12345, 0);
    run();
    change(0, mode);
}

#[test]
fn a_session_that_was_ended_stays_so_where_the_state_cannot_be_used() {
    let mut program = Program::start("");
    assert_eq!(program.gateway(&["session", "end", "agent-1"]).0, 0);
    let store = stopped(&mut program);
    for place in [store.as_path(), store.parent().unwrap()] {
        without(place, || {
            let said = refused_start(&program);
            // Each cause has its own remedy: who reads the folder names the folder.
            let (cause, remedy) = match place == store {
                true => (
                    "the state in".to_owned(),
                    "name a folder of this user".to_owned(),
                ),
                false => {
                    let place = place.display();
                    let remedy = format!("`chown` {place} to your own");
                    (format!("its folder `{place}` may not be used"), remedy)
                }
            };
            let is_root = rustix::process::geteuid().is_root();
            assert!(said.contains(&cause) || !is_root, "{said}");
            assert!(said.contains(&remedy) || !is_root, "{said}");
        });
    }
    start_with(&mut program, &[]);
    assert_eq!(program.ask("http://stream.test/").0, 403);
}

#[test]
fn without_a_place_for_the_state_an_end_is_said_to_hold_for_the_process_alone() {
    let mut program = Program::start("");
    stopped(&mut program);
    let serve = |program: &mut Program| {
        let mut serve = command(program.folder.path());
        let serve = serve.args(["serve", "--config", "gateway.toml"]);
        let audit = ["--audit", "audit/log.jsonl"];
        let child = serve.args(audit).env_remove("HOME").spawn().unwrap();
        program.follow(child);
    };
    serve(&mut program);
    for (act, status) in [("pause", 503), ("end", 403)] {
        let (code, said) = program.gateway(&["session", act, "agent-1"]);
        assert_eq!(code, 1, "{said}");
        assert!(said.contains("for this process alone"), "{said}");
        assert_eq!(program.ask("http://stream.test/").0, status);
        if act == "pause" {
            assert_eq!(program.gateway(&["session", "resume", "agent-1"]).0, 0);
            assert_eq!(program.ask("http://stream.test/").0, 200);
        }
    }
}

/// An operator may have ended it meanwhile: it is not trusted for longer than it lives.
#[test]
fn a_session_whose_state_fails_while_it_is_renewed_ends_in_time_and_goes_on_with_its_state() {
    let state = "[state]\npath = \"state/s.db\"\n";
    let program = Program::start(&format!("[ca]\nlifetime = \"1m\"\n{state}"));
    let state = rusqlite::Connection::open(program.path("state/s.db")).unwrap();
    // As a disk that takes nothing: who reads is answered, and who writes waits in vain.
    state.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert_eq!(program.ask("http://stream.test/").0, 200);
    let until = Instant::now() + Duration::from_secs(120);
    let refusal = loop {
        let (status, refusal) = program.ask("http://stream.test/");
        if status != 200 {
            break refusal;
        }
        assert!(Instant::now() < until, "it goes on");
        std::thread::sleep(Duration::from_millis(500));
    };
    assert!(refusal.contains("session_ended"), "{refusal}");
    let log = fs::read_to_string(program.path("log")).unwrap();
    assert!(log.contains("the session could not be renewed"), "{log}");
    state.execute_batch("ROLLBACK").unwrap();
    wait_for("it is not renewed", || {
        program.ask("http://stream.test/").0 == 200
    });
}
