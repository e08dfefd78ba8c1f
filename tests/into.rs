//! A further command in a running sandbox, `gateway exec --into`, by the shipped program.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::net::sockopt::Timeout;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};

/// A project, a home and a folder for the control sockets.
struct Host(tempfile::TempDir);

/// A sandbox whose first command waits for its input to end.
struct First {
    process: Child,
    said: BufReader<ChildStdout>,
}

impl Host {
    fn new() -> Self {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        for (name, mode) in [("project", 0o777), ("home", 0o755), ("run", 0o700)] {
            let path = folder.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Whoever runs the tests may ignore the keys' signals, as `&` in a script does.
    fn gateway(&self, arguments: &[&str]) -> Command {
        self.gateway_with("--default-signal=INT,QUIT", arguments)
    }

    fn gateway_with(&self, signals: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("env");
        command
            .args([signals, env!("CARGO_BIN_EXE_gateway")])
            .args(arguments)
            .current_dir(self.path("project"))
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.path("home"))
            .env("TERM", "vt100")
            .env("GITHUB_TOKEN", "ghp_0123456789012345678901234567890123Ab")
            .env("XDG_RUNTIME_DIR", self.path("run"))
            .stdin(Stdio::null());
        command
    }

    /// Starts a sandbox; the script runs once, then the command waits.
    fn first(&self, script: &str) -> First {
        self.first_with("--default-signal=INT,QUIT", script)
    }

    fn first_with(&self, signals: &str, script: &str) -> First {
        let audit = self.path("audit/log.jsonl");
        let script = format!("{script}; echo ready; read -r end; exit 0");
        let audit = audit.to_str().unwrap();
        let flags = ["-q", "--audit", audit, "--secret", "GITHUB_TOKEN"];
        let arguments = [&["exec"], &flags[..], &["--", "sh", "-c", &script]].concat();
        let mut process = self
            .gateway_with(signals, &arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(process.stdout.take().unwrap());
        First { process, said }
    }

    fn enter(&self, script: &str) -> Command {
        self.gateway(&["exec", "--into", "exec", "--", "sh", "-c", script])
    }

    /// The control socket of the only gateway.
    fn control(&self) -> PathBuf {
        let all = fs::read_dir(self.path("run/gateway")).unwrap();
        let mut all = all.map(|entry| entry.unwrap().path());
        all.find(|path| path.extension().is_some_and(|kind| kind == "sock"))
            .unwrap()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("audit/log.jsonl")).unwrap()
    }
}

impl First {
    /// What the first command wrote before it began to wait.
    fn until_ready(&mut self) -> String {
        let mut all = String::new();
        while !all.ends_with("ready\n") {
            let read = self.said.read_line(&mut all).unwrap();
            assert!(read > 0, "the first command ended: {all}");
        }
        all.trim_end_matches("ready\n").to_owned()
    }

    fn end(&mut self) -> i32 {
        drop(self.process.stdin.take());
        self.process.wait().unwrap().into_raw()
    }
}

fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr]
        .map(|text| String::from_utf8_lossy(text).into_owned())
        .concat()
}

/// Waits until something is so.
#[track_caller]
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Everything by which the kernel confines a process: identity, capabilities, filter, name spaces,
/// limits, mounts; and its variables, folder, and open files. Without `/proc/keys`, which shows the
/// key rings of every sandbox of the user for as long as they are not collected.
const FLOOR: &str = r#"
exec </dev/null 2>&1
grep -E '^(Uid|Gid|Groups|Cap.*|NoNewPrivs|Seccomp.*|Umask|SigBlk|SigIgn|SigCgt):' /proc/self/status
for name in cgroup ipc mnt net pid user uts; do readlink /proc/self/ns/$name; done
cat /proc/self/uid_map /proc/self/gid_map /proc/self/limits /proc/self/oom_score_adj
cat /proc/self/mountinfo /proc/self/cgroup
ls /proc/self/fd | grep -vx 3 | tr '\n' ' '
env | grep -v '^_=' | sort
pwd
"#;

#[test]
fn a_second_command_has_the_floor_the_variables_and_the_phantoms_of_the_first() {
    let host = Host::new();
    let mut first = host.first(&format!("({FLOOR}) 2>&1"));
    let wanted = first.until_ready();
    let output = host.enter(FLOOR).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    similar(&wanted, &said(&output));
    for fact in ["NoNewPrivs:\t1", "Seccomp:\t2", "CapEff:\t0000000000000000"] {
        assert!(wanted.contains(fact), "{fact}: {wanted}");
    }
    assert!(wanted.contains("GITHUB_TOKEN=ghp_"), "{wanted}");
    assert!(!wanted.contains("ghp_0123456789"), "{wanted}");
    let log = host.log();
    let entered = log.lines().filter(|line| line.contains("session.enter"));
    assert_eq!(entered.count(), 1, "{log}");
    assert_eq!(first.end(), 0);
}

#[track_caller]
fn similar(wanted: &str, found: &str) {
    let wanted: Vec<&str> = wanted.lines().collect();
    let found: Vec<&str> = found.lines().collect();
    for (wanted, found) in wanted.iter().zip(&found) {
        assert_eq!(wanted, found);
    }
    assert_eq!(wanted.len(), found.len(), "{wanted:?} {found:?}");
}

#[test]
fn neither_command_can_open_or_trace_the_first_process_that_starts_them() {
    let host = Host::new();
    let mut first = host.first(":");
    first.until_ready();
    let script = "exec 2>/dev/null; cd /proc/1; cat mem environ maps auxv; ls fd map_files; \
        readlink root cwd exe fd/3; kill -STOP 1; kill -KILL 1; echo still";
    let output = host.enter(script).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "still\n");
    assert!(host.enter("exit 0").status().unwrap().success());
    assert_eq!(first.end(), 0);
}

#[test]
fn it_ends_as_its_command_does_and_says_why_one_was_not_started() {
    let host = Host::new();
    let mut first = host.first(":");
    first.until_ready();
    assert_eq!(host.enter("exit 7").status().unwrap().code(), Some(7));
    let killed = host.enter("kill -KILL $$").status().unwrap();
    assert_eq!(killed.signal(), Some(9), "{killed}");
    let run = |name: &str| {
        host.gateway(&["exec", "--into", "exec", "--", name])
            .output()
            .unwrap()
    };
    let absent = run("no-such-command");
    assert_eq!(absent.status.code(), Some(127), "{}", said(&absent));
    let unfit = run("/etc/passwd");
    assert_eq!(unfit.status.code(), Some(126), "{}", said(&unfit));
    let senseless = host
        .gateway(&["exec", "--into", "exec", "--allow", "x.test", "--", "true"])
        .output()
        .unwrap();
    assert_eq!(senseless.status.code(), Some(2), "{}", said(&senseless));
    assert!(said(&senseless).contains("--into"), "{}", said(&senseless));
    let unknown = host
        .gateway(&["exec", "--into", "other", "--", "true"])
        .output()
        .unwrap();
    assert_eq!(unknown.status.code(), Some(125), "{}", said(&unknown));
    assert_eq!(first.end(), 0);
}

#[test]
fn a_paused_session_lets_nobody_in_until_it_is_resumed() {
    let host = Host::new();
    let mut first = host.first(":");
    first.until_ready();
    assert!(
        host.gateway(&["session", "pause", "exec"])
            .status()
            .unwrap()
            .success()
    );
    let refused = host.enter("true").output().unwrap();
    assert_eq!(refused.status.code(), Some(125), "{}", said(&refused));
    assert!(said(&refused).contains("paused"), "{}", said(&refused));
    assert!(
        host.gateway(&["session", "resume", "exec"])
            .status()
            .unwrap()
            .success()
    );
    assert!(host.enter("true").status().unwrap().success());
    assert_eq!(first.end(), 0);
}

#[test]
fn no_file_of_the_caller_is_a_stream_of_the_command() {
    let host = Host::new();
    let mut first = host.first(":");
    first.until_ready();
    let (input, output) = (host.path("input"), host.path("output"));
    fs::write(&input, "one\ntwo\n").unwrap();
    let script = "for fd in 0 1; do readlink /proc/self/fd/$fd >&2; done; cat";
    let mut command = host.enter(script);
    command.stdin(fs::File::open(&input).unwrap());
    command.stdout(fs::File::create(&output).unwrap());
    let ended = command.output().unwrap();
    let links = said(&ended);
    assert_eq!(links.matches("pipe:").count(), 2, "{links}");
    assert_eq!(fs::read_to_string(&output).unwrap(), "one\ntwo\n");
    assert_eq!(first.end(), 0);
}

#[test]
fn signals_reach_it_and_its_callers_death_or_the_end_of_the_sandbox_ends_it() {
    let host = Host::new();
    let mut first = host.first(":");
    first.until_ready();
    let alive = "trap 'echo told; exit 3' TERM; echo up; while :; do sleep 0.1; done";
    let start = |script: &str| {
        let mut child = host.enter(script).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert_eq!(line, "up\n");
        (child, said)
    };
    let (mut child, mut rest) = start(alive);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(3));
    let mut told = String::new();
    rest.read_to_string(&mut told).unwrap();
    assert_eq!(told, "told\n");

    let (mut gone, _) = start("echo up; exec sleep 4321");
    let sleeps = || {
        said(
            &host
                .enter("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
                .output()
                .unwrap(),
        )
    };
    assert!(sleeps().contains("sleep 4321"));
    gone.kill().unwrap();
    gone.wait().unwrap();
    eventually("it ends with its caller", || {
        !sleeps().contains("sleep 4321")
    });

    let (mut last, _) = start("echo up; exec sleep 4322");
    assert_eq!(first.end(), 0);
    assert_eq!(last.wait().unwrap().code(), Some(137));
}

#[test]
fn what_a_command_leaves_behind_does_not_hold_its_caller() {
    let host = Host::new();
    let mut first = host.first(":");
    first.until_ready();
    let mut command = host.enter("yes & echo begun; exit 3");
    let output = fs::File::create(host.path("output")).unwrap();
    let mut child = command.stdout(output).spawn().unwrap();
    eventually("it ends", || child.try_wait().unwrap().is_some());
    assert_eq!(child.wait().unwrap().code(), Some(3));
    let output = fs::read_to_string(host.path("output")).unwrap();
    assert!(output.contains("begun\n"));
    assert_eq!(first.end(), 0);
}

#[test]
fn a_command_that_takes_the_first_process_its_descriptors_shuts_out_later_ones_alone() {
    let host = Host::new();
    let mut first = host.first("prlimit --pid 1 --nofile=5:5");
    first.until_ready();
    for _ in 0..2 {
        let refused = host.enter("echo ran").output().unwrap();
        assert_eq!(refused.status.code(), Some(125), "{}", said(&refused));
        assert!(!said(&refused).contains("ran\n"), "{}", said(&refused));
    }
    assert_eq!(first.end(), 0);
}

#[test]
fn sixteen_may_be_in_it_and_one_more_is_told_so() {
    let host = Host::new();
    let mut first = host.first(":");
    first.until_ready();
    let mut enter = host.enter("echo up; read -r end");
    enter.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut inside: Vec<Child> = (0..16).map(|_| enter.spawn().unwrap()).collect();
    for child in &mut inside {
        let mut line = String::new();
        let mut said = BufReader::new(child.stdout.as_mut().unwrap());
        said.read_line(&mut line).unwrap();
        assert_eq!(line, "up\n");
    }
    let refused = host.enter("true").output().unwrap();
    assert_eq!(refused.status.code(), Some(125), "{}", said(&refused));
    assert!(said(&refused).contains("16 commands"), "{}", said(&refused));
    for child in &mut inside {
        drop(child.stdin.take());
        child.wait().unwrap();
    }
    assert!(host.enter("true").status().unwrap().success());
    assert_eq!(first.end(), 0);
}

#[test]
fn a_stopped_sandbox_is_given_up_and_lets_others_in_when_it_goes_on() {
    let host = Host::new();
    let mut first = host.first(":");
    first.until_ready();
    let launcher = rustix::process::Pid::from_child(&first.process);
    let signal = |signal| rustix::process::kill_process(launcher, signal).unwrap();
    signal(rustix::process::Signal::STOP);
    let begun = Instant::now();
    let refused = host.enter("true").output().unwrap();
    assert_eq!(refused.status.code(), Some(125), "{}", said(&refused));
    assert!(begun.elapsed() < Duration::from_secs(30));
    signal(rustix::process::Signal::CONT);
    assert!(host.enter("true").status().unwrap().success());
    assert_eq!(first.end(), 0);
}

/// Whoever may enter can also connect by hand, and say nothing.
#[test]
fn a_silent_caller_is_dropped_and_others_enter_meanwhile() {
    let host = Host::new();
    let mut first = host.first(":");
    first.until_ready();
    let path = host.path("run/silent.sock");
    let doorway = listen_at(&path);
    let control = host.control();
    let asked = Command::new("curl")
        .args(["-sS", "--unix-socket", control.to_str().unwrap()])
        .args(["--json", &format!("{{\"socket\":\"{}\"}}", path.display())])
        .arg("http://gateway/v1/sessions/exec/enter")
        .output()
        .unwrap();
    assert!(said(&asked).contains("\"session\""), "{}", said(&asked));
    let silent = rustix::net::accept(&doorway).unwrap();
    let patience = Some(Duration::from_secs(30));
    rustix::net::sockopt::set_socket_timeout(&silent, Timeout::Recv, patience).unwrap();
    let begun = Instant::now();
    assert!(host.enter("true").status().unwrap().success());
    let mut packet = [0; 4096];
    while rustix::io::read(&silent, &mut packet).is_ok_and(|read| read > 0) {}
    let held = begun.elapsed();
    assert!(
        held > Duration::from_secs(5) && held < Duration::from_secs(30),
        "{held:?}"
    );
    assert!(host.enter("true").status().unwrap().success());
    assert_eq!(first.end(), 0);
}

fn listen_at(path: &Path) -> OwnedFd {
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    rustix::net::bind(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    rustix::net::listen(&socket, 1).unwrap();
    socket
}

/// `script` gives the caller a terminal, as a person has one.
#[test]
fn with_a_terminal_it_has_one_of_its_own_with_job_control_and_the_callers_size() {
    let host = Host::new();
    // Begun in the background, where the keys' signals are ignored.
    let mut first = host.first_with("--ignore-signal=INT,QUIT", ":");
    first.until_ready();
    let inner = "tty -s && stty size && echo $TERM && ps -o tpgid=,pid= -p $$ >/dev/null; \
        (exec 3</dev/tty) && echo controlled; trap 'echo interrupted; exit 5' INT; echo up; \
        while :; do sleep 0.1; done";
    let gateway = env!("CARGO_BIN_EXE_gateway");
    let line = format!(
        "stty rows 33 cols 77; '{gateway}' exec --into exec -- sh -c \"$INNER\"; echo ended $?"
    );
    let mut command = Command::new("script");
    command
        .args(["-qfec", &line, "/dev/null"])
        .env("INNER", inner);
    for (name, value) in host.gateway(&[]).get_envs() {
        command.env(name, value.unwrap());
    }
    let mut child = command
        .env("SHELL", "/bin/sh")
        .current_dir(host.path("project"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut keys = child.stdin.take().unwrap();
    let mut seen = String::new();
    let mut screen = BufReader::new(child.stdout.take().unwrap());
    while !seen.ends_with("up\r\n") {
        assert!(screen.read_line(&mut seen).unwrap() > 0, "{seen}");
    }
    keys.write_all(b"\x03").unwrap();
    screen.read_to_string(&mut seen).unwrap();
    for wanted in ["33 77", "vt100", "controlled", "interrupted", "ended 5"] {
        assert!(seen.contains(wanted), "{wanted}: {seen}");
    }
    child.wait().unwrap();
    assert_eq!(first.end(), 0);
}
