//! The life of a gateway, from outside: how it starts, what a service manager hears of it, which
//! signals it obeys, and what is left when it is killed.

#[path = "rig/addresses.rs"]
mod addresses;

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use addresses::free;

const GATEWAY: &str = env!("CARGO_BIN_EXE_gateway");

/// A folder with the configuration of a `serve`.
struct Place {
    folder: tempfile::TempDir,
    address: SocketAddr,
}

impl Place {
    fn new(more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let address = free();
        let place = Self { folder, address };
        place.private("secret", "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");
        fs::create_dir(place.at("log")).unwrap();
        fs::set_permissions(place.at("log"), fs::Permissions::from_mode(0o700)).unwrap();
        place.allow("one.example.test");
        place.configure("gateway.toml", "log/audit.jsonl", more);
        place
    }

    fn configure(&self, name: &str, log: &str, more: &str) {
        let text = format!(
            "[ca]\ncertificate = \"ca.pem\"\n[audit]\npath = \"{log}\"\n[policy]\nfiles = [\"policy.cedar\"]\n\
             [phantoms]\nenv_file = \"phantoms.env\"\n[[listener]]\nkind = \"proxy\"\naddress = \"{}\"\nsession = \"agent-1\"\n\
             [[credential]]\nname = \"TOKEN\"\nfrom = \"file:secret\"\norigins = [\"https://one.example.test\"]\n\
             places = [\"header:authorization:Bearer\"]\n{more}",
            self.address
        );
        fs::write(self.at(name), text).unwrap();
    }

    /// Lets the sessions reach these hosts.
    fn allow(&self, host: &str) {
        let text = format!(
            "@id(\"ask/{host}\")\npermit(principal, action in Gateway::Action::\"any\", resource == Gateway::Host::\"{host}\");\n"
        );
        fs::write(self.at("policy.cedar"), text).unwrap();
    }

    fn private(&self, name: &str, text: &str) {
        let mut options = fs::File::options();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(self.at(name))
            .unwrap();
        std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.folder.path())
            .env_clear()
            .env("HOME", self.folder.path())
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(self.log_file());
        command
    }

    fn log_file(&self) -> fs::File {
        let mut options = fs::File::options();
        options
            .create(true)
            .append(true)
            .open(self.at("said"))
            .unwrap()
    }

    fn serve(&self) -> Serving {
        let child = self
            .command(GATEWAY)
            .args(["serve", "--config", "gateway.toml"])
            .spawn();
        Serving(child.unwrap())
    }

    /// Starts it as a service manager does: the sockets as descriptors from 3 on, and a socket for
    /// what it tells.
    fn activate(&self, socket: &TcpListener, names: &str, more: &str) -> Serving {
        let socket = OwnedFd::from(socket.try_clone().unwrap());
        let script = format!(
            "export LISTEN_PID=$$ WATCHDOG_PID=$$ {more}\nexec \"$0\" serve --config gateway.toml 3<&0 0</dev/null"
        );
        let child = self
            .command("sh")
            .args(["-c", &script, GATEWAY])
            .env("LISTEN_FDS", "1")
            .env("LISTEN_FDNAMES", names)
            .env("NOTIFY_SOCKET", self.at("notify"))
            .stdin(Stdio::from(socket))
            .spawn();
        Serving(child.unwrap())
    }

    fn said(&self) -> String {
        fs::read_to_string(self.at("said")).unwrap_or_default()
    }

    fn await_said(&self, what: &str, times: usize) {
        within(Duration::from_secs(30), || {
            self.said().matches(what).count() >= times
        });
    }

    /// Every file by its name, with what tells one version of it from another.
    fn files(&self) -> Vec<(PathBuf, u64, Vec<u8>)> {
        let mut files = Vec::new();
        for folder in [self.folder.path().to_owned(), self.at("log")] {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_file() && !path.ends_with("said") {
                    let inode = path.metadata().unwrap().ino();
                    files.push((path.clone(), inode, fs::read(path).unwrap()));
                }
            }
        }
        files.sort();
        files
    }

    fn names(&self) -> Vec<PathBuf> {
        let files = self.files().into_iter();
        files.map(|(path, ..)| path).collect()
    }
}

/// A running gateway; it is killed when the test ends.
struct Serving(Child);

impl Serving {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    fn ended(&mut self) -> Option<i32> {
        let began = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.code();
            }
            assert!(began.elapsed() < Duration::from_secs(40), "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn is_alive(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn within(most: Duration, holds: impl Fn() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < most, "it did not come to that");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_second_start_on_the_same_address_fails_and_changes_nothing() {
    for threads in [1, 3] {
        let place = Place::new(&format!("[runtime]\nthreads = {threads}\n"));
        let mut first = place.serve();
        place.await_said("gateway: session `agent-1` on", 1);
        // The second would write another log, so that the first one's lock is not in its way.
        let runtime = format!("[runtime]\nthreads = {threads}\n");
        place.configure("second.toml", "log/second.jsonl", &runtime);
        let before = place.files();
        let second = place
            .command(GATEWAY)
            .args(["serve", "--config", "second.toml"])
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&second.stderr).into_owned();
        assert_eq!(second.status.code(), Some(1), "{said}");
        for part in [
            format!("cannot listen on {}", place.address),
            "address already in use; is another gateway running?".to_owned(),
            format!("ss -ltnp 'sport = :{}'", place.address.port()),
        ] {
            assert!(said.contains(&part), "{part}: {said}");
        }
        assert_eq!(place.files(), before);
        assert!(first.is_alive());
        first.signal(Signal::TERM);
        assert_eq!(first.ended(), Some(0));
    }
}

#[test]
fn a_start_that_fails_publishes_nothing() {
    let other = free();
    let place = Place::new(&format!(
        "[[listener]]\nkind = \"proxy\"\naddress = \"{other}\"\nsession = \"agent-1\"\n\
         who = [\"password\"]\npasswords = {{ agent = \"env:NOT_THERE\" }}\n"
    ));
    let mut failing = place.serve();
    assert_eq!(failing.ended(), Some(1), "{}", place.said());
    assert!(
        place
            .said()
            .contains("the password of `agent` cannot be had")
    );
    assert!(!place.at("ca.pem").exists() && !place.at("phantoms.env").exists());
}

/// What the service manager of a test hears.
struct Manager(UnixDatagram);

impl Manager {
    fn of(place: &Place) -> Self {
        let socket = UnixDatagram::bind(place.at("notify")).unwrap();
        let patience = Some(Duration::from_secs(30));
        socket.set_read_timeout(patience).unwrap();
        Self(socket)
    }

    /// The next notification but those of the watchdog.
    fn hears(&self) -> String {
        loop {
            let state = self.hears_any();
            if state != "WATCHDOG=1" {
                return state;
            }
        }
    }

    fn hears_any(&self) -> String {
        let mut state = [0; 4096];
        let count = self.0.recv(&mut state).expect("it tells something");
        String::from_utf8(state[..count].to_vec()).unwrap()
    }
}

fn answers(address: SocketAddr) -> bool {
    use std::io::{Read as _, Write as _};
    let mut stream = TcpStream::connect(address).unwrap();
    let patience = Some(Duration::from_secs(30));
    stream.set_read_timeout(patience).unwrap();
    stream
        .write_all(
            b"GET http://other.example.test/ HTTP/1.1\r\nhost: other.example.test\r\nconnection: close\r\n\r\n",
        )
        .unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer.starts_with("HTTP/1.1 403")
}

#[test]
fn a_service_manager_passes_the_socket_and_hears_of_every_step() {
    for threads in [1, 2] {
        let place = Place::new(&format!("[runtime]\nthreads = {threads}\n"));
        let manager = Manager::of(&place);
        let socket = TcpListener::bind(place.address).unwrap();
        let mut gateway = place.activate(&socket, "agent-1", "WATCHDOG_USEC=400000");
        assert_eq!(manager.hears(), "READY=1");
        assert!(answers(place.address));
        let beats = Instant::now();
        for _ in 0..5 {
            assert_eq!(manager.hears_any(), "WATCHDOG=1");
        }
        assert!(
            beats.elapsed() < Duration::from_secs(3),
            "{:?}",
            beats.elapsed()
        );

        // A reload, and one that is refused: both are over in the end.
        for (policy, told) in [
            ("", "configuration reloaded, generation"),
            ("permit(", "the new policies are refused"),
        ] {
            let text = fs::read_to_string(place.at("policy.cedar")).unwrap();
            fs::write(place.at("policy.cedar"), text + policy).unwrap();
            gateway.signal(Signal::HUP);
            let reloading = manager.hears();
            let since = reloading
                .strip_prefix("RELOADING=1\nMONOTONIC_USEC=")
                .unwrap();
            let uptime = fs::read_to_string("/proc/uptime").unwrap();
            let uptime: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
            let since = since.parse::<f64>().unwrap() / 1e6;
            assert!((since - uptime).abs() < 60.0, "{since} {uptime}");
            assert_eq!(manager.hears(), "READY=1");
            place.await_said(told, 1);
        }

        // It stops; a connection that comes meanwhile waits for the next one.
        gateway.signal(Signal::TERM);
        assert_eq!(manager.hears(), "STOPPING=1");
        assert_eq!(gateway.ended(), Some(0));
        let waits = std::thread::spawn({
            let address = place.address;
            move || answers(address)
        });
        place.allow("one.example.test");
        let mut next = place.activate(&socket, "gateway.socket", "");
        assert_eq!(manager.hears(), "READY=1");
        assert!(waits.join().unwrap());
        next.signal(Signal::INT);
        assert_eq!(next.ended(), Some(0));
    }
}

#[test]
fn systemd_itself_activates_it() {
    let place = Place::new("");
    let manager = Manager::of(&place);
    let activator = place
        .command("systemd-socket-activate")
        .args([
            "--fdname=agent-1",
            "-E",
            "HOME",
            "-E",
            "NOTIFY_SOCKET",
            "-l",
        ])
        .arg(place.address.to_string())
        .args([GATEWAY, "serve", "--config", "gateway.toml"])
        .env("NOTIFY_SOCKET", place.at("notify"))
        .spawn();
    let mut activator = Serving(activator.expect("systemd is installed (.ci/install)"));
    // It becomes the gateway at the first connection, which the gateway then answers.
    within(Duration::from_secs(10), || {
        TcpStream::connect(place.address).is_ok()
    });
    assert!(answers(place.address), "{}", place.said());
    assert_eq!(manager.hears(), "READY=1");
    activator.signal(Signal::TERM);
    assert_eq!(manager.hears(), "STOPPING=1");
    assert_eq!(activator.ended(), Some(0));
}

#[test]
fn sockets_that_no_listener_wants_are_refused_before_anything_is_published() {
    let place = Place::new("");
    let _manager = Manager::of(&place);
    let elsewhere = TcpListener::bind("127.0.0.1:0").unwrap();
    let right = TcpListener::bind(place.address).unwrap();
    for (socket, name, more, told) in [
        (&elsewhere, "agent-1", "", "where no `[[listener]]` listens"),
        (
            &right,
            "agent-2",
            "",
            "the listener there is of session `agent-1`",
        ),
        (
            &right,
            "agent-1",
            "LISTEN_FDS=2",
            "what the service manager passed",
        ),
        (
            &right,
            "agent-1",
            "LISTEN_FDS=x",
            "what the service manager passed",
        ),
        (
            &right,
            "agent-1",
            "NOTIFY_SOCKET=/nowhere",
            "the service manager cannot be told",
        ),
    ] {
        fs::write(place.at("said"), "").unwrap();
        let mut gateway = place.activate(socket, name, more);
        assert_ne!(gateway.ended(), Some(0));
        assert!(place.said().contains(told), "{told}: {}", place.said());
        assert!(!place.at("ca.pem").exists() && !place.at("log/audit.jsonl").exists());
    }
    // Variables for another process mean nothing: the address is bound anew, which fails here.
    let mut gateway = place.activate(&right, "agent-1", "LISTEN_PID=1");
    assert_eq!(gateway.ended(), Some(1));
    assert!(
        place.said().contains("address already in use"),
        "{}",
        place.said()
    );
}

/// Whether a process catches SIGHUP.
fn catches_hangup(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status
        .lines()
        .find_map(|line| line.strip_prefix("SigCgt:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_some_and(|mask| mask & 1 != 0)
}

#[test]
fn no_signal_but_those_that_mean_so_ends_a_serve_at_any_time_of_its_start() {
    for pause in [0, 1, 2, 4, 8, 16, 32, 64] {
        let place = Place::new("");
        let mut gateway = place.serve();
        within(Duration::from_secs(10), || catches_hangup(gateway.0.id()));
        std::thread::sleep(Duration::from_millis(pause));
        for _ in 0..20 {
            for signal in [Signal::HUP, Signal::USR1, Signal::USR2, Signal::PIPE] {
                gateway.signal(signal);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        place.await_said("gateway: session `agent-1` on", 1);
        assert!(gateway.is_alive(), "{}", place.said());
        gateway.signal(Signal::TERM);
        assert_eq!(gateway.ended(), Some(0));
    }
}

#[test]
fn twenty_kills_at_any_time_leave_nothing_behind_and_the_next_start_works() {
    let place = Place::new("");
    let mut after_first = None;
    for kill in 0..20_u64 {
        let mut gateway = place.serve();
        let mut random = [0; 2];
        getrandom::fill(&mut random).unwrap();
        // Half of them in the middle of their start.
        let pause = u64::from(u16::from_ne_bytes(random)) % if kill % 2 == 0 { 60 } else { 400 };
        std::thread::sleep(Duration::from_millis(pause));
        gateway.0.kill().unwrap();
        gateway.0.wait().unwrap();
        if after_first.is_none() && place.at("phantoms.env").exists() {
            after_first = Some(place.names().len());
        }
    }
    fs::write(place.at("said"), "").unwrap();
    let mut gateway = place.serve();
    place.await_said("gateway: session `agent-1` on", 1);
    assert!(answers(place.address));
    let names = place.names();
    assert!(
        !names
            .iter()
            .any(|name| name.extension().is_some_and(|end| end == "new")),
        "{names:?}"
    );
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.ended(), Some(0));
    let most = after_first.map_or(usize::MAX, |first| first + 1);
    assert!(place.names().len() <= most, "{names:?}");
    let verified = place
        .command(GATEWAY)
        .args(["log", "verify", "log/audit.jsonl"])
        .output()
        .unwrap();
    assert!(verified.status.success(), "{verified:?}");
}

/// A running `gateway exec`.
struct Sandbox {
    place: Place,
    launcher: Child,
    _project: tempfile::TempDir,
}

impl Sandbox {
    /// Runs a script of the shell, which says `ready` when it is.
    fn run(script: &str) -> Self {
        use std::io::{BufRead as _, BufReader};
        let place = Place::new("");
        let text = "[audit]\npath = \"log/exec.jsonl\"\n[policy]\nfiles = [\"policy.cedar\"]\n";
        fs::write(place.at("exec.toml"), text).unwrap();
        let project = tempfile::tempdir().unwrap();
        fs::set_permissions(project.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let mut launcher = place
            .command(GATEWAY)
            .args(["exec", "-q", "--config"])
            .arg(place.at("exec.toml"))
            // What no policy reaches does not resolve then.
            .args(["--dns", "strict", "--", "sh", "-c", script])
            .current_dir(project.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::with_capacity(1, launcher.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert_eq!(line, "ready\n", "{}", place.said());
        Self {
            place,
            launcher,
            _project: project,
        }
    }

    /// The gateway process: a child of the launcher, with a session of its own.
    fn gateway(&self) -> Pid {
        let launcher = self.launcher.id();
        let children = format!("/proc/{launcher}/task/{launcher}/children");
        let children = fs::read_to_string(children).unwrap();
        let own = rustix::process::getpgid(Pid::from_raw(launcher.cast_signed())).unwrap();
        let pid = children.split_whitespace().find(|pid| {
            let pid = Pid::from_raw(pid.parse().unwrap());
            rustix::process::getsid(pid).is_ok_and(|session| Some(session) == pid && session != own)
        });
        Pid::from_raw(pid.unwrap().parse().unwrap()).unwrap()
    }

    /// Lets the script go on, and returns how it ended.
    fn finish(mut self) -> (Output, String) {
        drop(self.launcher.stdin.take());
        let output = self.launcher.wait_with_output().unwrap();
        (output, self.place.said())
    }
}

#[test]
fn exec_starts_no_program_but_the_command_and_asks_for_few_links() {
    let place = Place::new("");
    let project = tempfile::tempdir().unwrap();
    let trace = place.at("trace");
    // The first run of a user makes the folders and the key of the state.
    let mut first = place.command(GATEWAY);
    first.args(["exec", "-q", "--", "/bin/true"]);
    assert!(
        first
            .current_dir(project.path())
            .status()
            .unwrap()
            .success()
    );
    let status = place
        .command("strace")
        .args(["-f", "-qq", "-e", "trace=execve,readlink,readlinkat", "-o"])
        .arg(&trace)
        .args([GATEWAY, "exec", "-q", "--", "/bin/true"])
        .current_dir(project.path())
        .status()
        .unwrap();
    assert!(status.success(), "{}", place.said());
    let trace = fs::read_to_string(&trace).unwrap();
    let programs = trace
        .lines()
        .filter_map(|line| line.split_once("execve(\"")?.1.split_once('"'));
    let programs: Vec<&str> = programs.map(|(program, _)| program).collect();
    // The process that the user starts, the launcher, the command.
    assert_eq!(programs, [GATEWAY, "/proc/self/exe", "/bin/true"]);
    let links = trace.matches("readlink(").count() + trace.matches("readlinkat(").count();
    assert!(links <= 400, "{links} links");
}

#[test]
fn signals_to_the_gateway_process_of_exec_reload_and_never_end_it() {
    let sandbox = Sandbox::run(
        "getent hosts two.example.test && echo early; echo ready; read x; getent hosts two.example.test >&2 && echo late",
    );
    let gateway = sandbox.gateway();
    for process in [
        gateway.as_raw_nonzero().get().cast_unsigned(),
        sandbox.launcher.id(),
    ] {
        let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap();
        assert_eq!(name, "gateway\n");
    }
    for signal in [Signal::TERM, Signal::INT, Signal::USR1, Signal::PIPE] {
        kill_process(gateway, signal).unwrap();
    }
    sandbox.place.allow("two.example.test");
    kill_process(gateway, Signal::HUP).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    // A reload that is refused leaves what holds.
    fs::write(sandbox.place.at("policy.cedar"), "permit(").unwrap();
    kill_process(gateway, Signal::HUP).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let (output, said) = sandbox.finish();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        (output.status.code(), printed.as_str()),
        (Some(0), "late\n"),
        "{said}"
    );
    assert!(said.contains("the policies are refused"), "{said}");
}

#[test]
fn exec_says_in_one_line_that_its_gateway_died_and_ends_the_command_in_time() {
    for (script, most) in [
        // One obeys SIGTERM, and can tidy up; the other does not hear it.
        (
            "trap 'echo tidied; exit 0' TERM; echo ready; while :; do sleep 0.1; done",
            2,
        ),
        ("trap '' TERM; echo ready; while :; do sleep 0.1; done", 8),
    ] {
        let sandbox = Sandbox::run(script);
        let killed = Instant::now();
        kill_process(sandbox.gateway(), Signal::KILL).unwrap();
        let (output, said) = sandbox.finish();
        assert!(
            killed.elapsed() < Duration::from_secs(most),
            "{:?}",
            killed.elapsed()
        );
        assert_eq!(output.status.code(), Some(125), "{said}");
        let line =
            "gateway: the gateway process ended (killed by signal 9); the command was stopped";
        assert_eq!(said.lines().filter(|one| *one == line).count(), 1, "{said}");
        let tidied = String::from_utf8_lossy(&output.stdout).contains("tidied");
        assert_eq!(tidied, most == 2);
    }
}

/// Nobody has looked through what the command left then.
#[test]
fn exec_says_in_one_line_that_its_gateway_died_at_the_end() {
    let sandbox = Sandbox::run("echo ready; sleep 1");
    let gateway = sandbox.gateway();
    kill_process(gateway, Signal::STOP).unwrap();
    std::thread::sleep(Duration::from_secs(3));
    kill_process(gateway, Signal::KILL).unwrap();
    let (output, said) = sandbox.finish();
    assert_eq!(output.status.code(), Some(125), "{said}");
    let line =
        "gateway: the gateway process ended (killed by signal 9); its last records may be missing";
    assert_eq!(said.lines().filter(|one| *one == line).count(), 1, "{said}");
}

/// `exec` removes old logs of sandboxes, which lie in the same folder.
#[test]
fn the_log_of_a_serve_that_names_none_is_not_removed_with_the_logs_of_sandboxes() {
    let place = Place::new("");
    let config = fs::read_to_string(place.at("gateway.toml")).unwrap();
    let unnamed = config.replace("[audit]\npath = \"log/audit.jsonl\"\n", "");
    fs::write(place.at("gateway.toml"), unnamed).unwrap();
    let mut serving = place.serve();
    place.await_said("session `agent-1` on", 1);
    serving.signal(Signal::TERM);
    assert_eq!(serving.ended(), Some(0));
    let folder = place.at(".local/state/gateway/audit");
    let [log] = &fs::read_dir(folder).unwrap().collect::<Vec<_>>()[..] else {
        panic!("one log")
    };
    let log = log.as_ref().unwrap().path();
    let old = std::time::SystemTime::now() - Duration::from_secs(100 * 86_400);
    let file = fs::File::options().append(true).open(&log).unwrap();
    file.set_modified(old).unwrap();
    drop(file);
    let pruned = place.command(GATEWAY).args(["log", "prune"]).status();
    assert!(pruned.unwrap().success());
    assert!(log.exists(), "{}", place.said());
}

/// Q02, Q06.
#[test]
fn a_process_of_the_same_user_reads_no_memory_of_a_gateway_and_none_is_left_in_a_core() {
    const ANN: u32 = 12345;
    const SECRET: &str = "ghp_environment4A9spHcVY5ncnsDkxkJ0mLq17";
    let place = Place::new(
        "[[credential]]\nname = \"OTHER\"\nfrom = \"env:OTHER\"\norigins = [\"https://two.example.test\"]\n",
    );
    let own = |path: &Path| std::os::unix::fs::chown(path, Some(ANN), Some(ANN)).unwrap();
    let all = fs::read_dir(place.folder.path()).unwrap();
    all.for_each(|entry| own(&entry.unwrap().path()));
    own(place.folder.path());
    let serving = place
        .command(GATEWAY)
        .args(["serve", "--config", "gateway.toml"])
        .env("OTHER", SECRET)
        .uid(ANN)
        .gid(ANN)
        .spawn();
    let mut serving = Serving(serving.unwrap());
    place.await_said("agent-1", 1);
    let of_it = format!("/proc/{}", serving.0.id());
    let read = |name: &str| {
        let mut command = place.command("cat");
        command.arg(format!("{of_it}/{name}")).uid(ANN).gid(ANN);
        command.stdout(Stdio::piped()).output().unwrap()
    };
    for closed in ["environ", "mem", "maps", "auxv"] {
        let output = read(closed);
        assert!(
            !output.status.success() && output.stdout.is_empty(),
            "{closed}"
        );
    }
    let readable = ["cmdline", "status", "limits"].map(read);
    let readable = readable.map(|output| String::from_utf8(output.stdout).unwrap());
    assert!(!readable.concat().contains(&SECRET[4..12]));
    let of_cores = readable[2]
        .lines()
        .find(|line| line.starts_with("Max core file size"));
    let words: Vec<&str> = of_cores.unwrap().split_whitespace().collect();
    assert_eq!(words[4..6], ["0", "0"], "{words:?}");
    serving.signal(Signal::ABORT);
    assert_eq!(serving.ended(), None);
    let names = place.names();
    let is_core = |path: &PathBuf| {
        path.file_name()
            .unwrap()
            .as_encoded_bytes()
            .starts_with(b"core")
    };
    assert!(!names.iter().any(is_core), "{names:?}");
}

/// What `exec` was started with ends with it, and a container without an init keeps no zombie.
#[test]
fn a_run_leaves_neither_a_descriptor_nor_a_zombie() {
    let place = Place::new("");
    let script =
        "for i in 1 2 3 4 5; do flock -n lock \"$0\" exec -q --no-sign -- true || exit 7; done";
    let ended = place.command("sh").args(["-c", script, GATEWAY]).status();
    assert!(
        ended.unwrap().success(),
        "{}",
        fs::read_to_string(place.at("said")).unwrap()
    );
    let script = "for i in 1 2 3; do \"$0\" exec -q --no-sign -- true || exit 7; done; \
                  ! grep -h '^State:.*Z' /proc/[0-9]*/status";
    let apart = [
        "--pid",
        "--fork",
        "--mount-proc",
        "sh",
        "-c",
        script,
        GATEWAY,
    ];
    let ended = place.command("unshare").args(apart).status();
    assert!(
        ended.unwrap().success(),
        "{}",
        fs::read_to_string(place.at("said")).unwrap()
    );
}
