//! Listeners are added, removed and changed while the gateway runs.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::chown;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::program::{Program, RULES, command, free};
use crate::sandbox::{folder, user_command};

/// A connection to a proxy port.
struct Client(BufReader<TcpStream>);

impl Client {
    fn of(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        let within = Some(Duration::from_secs(10));
        stream.set_read_timeout(within).unwrap();
        Self(BufReader::new(stream))
    }

    /// Sends a request, and returns the status and the head of the answer.
    fn send(&mut self, url: &str, fields: &str) -> (u16, String) {
        let host = url.split('/').nth(2).unwrap();
        let request = format!("GET {url} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n");
        self.0.get_mut().write_all(request.as_bytes()).unwrap();
        self.head()
    }

    fn head(&mut self) -> (u16, String) {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(self.0.read_line(&mut head).unwrap(), 0, "{head}");
        }
        (head[9..12].parse().unwrap(), head.to_lowercase())
    }

    /// Asks, and reads the whole answer.
    fn ask(&mut self, url: &str, fields: &str) -> (u16, String) {
        let (status, head) = self.send(url, fields);
        let length = head.split("content-length: ").nth(1);
        let length = length.and_then(|rest| rest.split("\r\n").next()?.parse().ok());
        let mut content = vec![0; length.unwrap_or(0)];
        self.0.read_exact(&mut content).unwrap();
        (status, head)
    }

    /// Reads until the end.
    fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        // A cut connection may be reset.
        let _ = self.0.read_to_end(&mut rest);
        rest
    }
}

fn listener(address: SocketAddr, session: &str, further: &str) -> String {
    format!(
        "[[listener]]\nkind = \"proxy\"\naddress = \"{address}\"\nsession = \"{session}\"\n{further}"
    )
}

/// A gateway whose files for workloads are one for each session.
fn program(further: &str) -> Program {
    let program = Program::start("[runtime]\nthreads = 2\n");
    program.edit(|text| {
        text.replace("phantoms.env", "phantoms-{session}.env")
            + "[ca]\ncertificate = \"ca-{session}.pem\"\n"
            + further
    });
    program.reload();
    program
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn sessions(program: &Program) -> Vec<String> {
    let all = program.json(&["session", "list"]);
    let all = all["sessions"].as_array().unwrap().clone();
    all.iter()
        .map(|one| one["id"].as_str().unwrap().to_owned())
        .collect()
}

fn read(program: &Program, name: &str) -> String {
    fs::read_to_string(program.path(name)).unwrap()
}

const ONE: &str = "http://stream.test/";
const STREAM: &str = "http://stream.test/events";

#[test]
fn an_added_listener_serves_a_new_session_and_its_files_are_there_first() {
    let program = program("");
    let mut known = Client::of(program.proxy);
    let (status, mut stream) = program.begin(STREAM);
    assert_eq!((status, known.ask(ONE, "").0), (200, 200));
    let address = free();
    program.edit(|text| text.to_owned() + &listener(address, "agent-2", ""));
    let (code, said) = program.gateway(&["reload"]);
    assert_eq!(code, 0, "{said}");
    // The files are watched too, so that it may have been applied a moment before.
    let added = format!("; listeners added: {address}\n");
    until("serve's line about it", || {
        read(&program, "log").contains(&added)
    });
    let log = read(&program, "log");
    let (before, after) = log.split_once(&added).unwrap();
    let was_applied = after.contains("configuration reloaded");
    assert!(was_applied || said.ends_with(&added), "{before}{said}");
    assert!(read(&program, "phantoms-agent-2.env").contains("key="));
    assert!(read(&program, "ca-agent-2.pem").contains("BEGIN CERTIFICATE"));
    assert_ne!(
        read(&program, "phantoms-agent-2.env"),
        read(&program, "phantoms-agent-1.env")
    );
    assert_eq!(Client::of(address).ask(ONE, "").0, 200);
    assert_eq!(sessions(&program), ["agent-1", "agent-2"]);
    let told = program.json(&["status"]);
    let told = told["gateways"][0]["listeners"].as_array().unwrap();
    assert!(told.iter().any(|one| one["address"] == address.to_string()));
    until("the record of its request", || {
        let records = program.records("exchange");
        records.iter().any(|record| record["session"] == "agent-2")
    });
    // What was open goes on.
    assert_eq!(known.ask(ONE, "").0, 200);
    let mut more = [0; 64];
    stream.read_exact(&mut more).unwrap();
    // A second listener of a session that lives has its phantoms and its CA.
    let (held, other) = (read(&program, "phantoms-agent-2.env"), free());
    program.edit(|text| text.to_owned() + &listener(other, "agent-2", ""));
    program.reload();
    assert_eq!(Client::of(other).ask(ONE, "").0, 200);
    assert_eq!(read(&program, "phantoms-agent-2.env"), held);
}

#[test]
fn a_removed_listener_ends_in_order_and_comes_back_as_the_session_that_it_was() {
    let program = program("[limits]\ndrain_timeout = \"4s\"\n");
    let address = free();
    let before = program.edit(|text| text.to_owned() + &listener(address, "agent-2", ""));
    program.reload();
    let held = read(&program, "phantoms-agent-2.env") + &read(&program, "ca-agent-2.pem");
    let (mut stream, mut next) = (Client::of(address), Client::of(address));
    let (mut rests, mut other) = (Client::of(address), Client::of(program.proxy));
    assert_eq!(stream.send(STREAM, "").0, 200);
    for client in [&mut next, &mut rests, &mut other] {
        assert_eq!(client.ask(ONE, "").0, 200);
    }
    let with = program.edit(|_| before);
    program.reload();
    let removed = Instant::now();
    // The next request of an open connection is served, and is its last.
    let (status, head) = next.ask(ONE, "");
    assert_eq!(status, 200, "{head}");
    assert!(head.contains("connection: close"), "{head}");
    assert!(next.rest().is_empty() && rests.rest().is_empty());
    assert!(
        removed.elapsed() < Duration::from_secs(4),
        "{:?}",
        removed.elapsed()
    );
    assert!(TcpStream::connect(address).is_err());
    // A stream goes on until `drain_timeout`.
    assert!(stream.rest().len() > 100);
    let took = removed.elapsed();
    assert!(
        took > Duration::from_secs(3) && took < Duration::from_secs(9),
        "{took:?}"
    );
    until("the end of the stream and of the session", || {
        let cut = |end: &serde_json::Value| end["reason"] == "listener_removed";
        let ended = |event: &serde_json::Value| {
            event["name"] == "session_ended" && event["session"] == "agent-2"
        };
        program.records("end").iter().any(cut) && program.records("event").iter().any(ended)
    });
    assert_eq!(sessions(&program), ["agent-1"]);
    let (_, head) = other.ask(ONE, "");
    assert!(!head.contains("connection: close"), "{head}");
    let without = program.edit(|_| with.clone());
    program.reload();
    assert_eq!(Client::of(address).ask(ONE, "").0, 200);
    // At once, while the socket still closes.
    program.edit(|_| without);
    program.reload();
    program.edit(|_| with);
    program.reload();
    assert_eq!(Client::of(address).ask(ONE, "").0, 200);
    assert_eq!(
        read(&program, "phantoms-agent-2.env") + &read(&program, "ca-agent-2.pem"),
        held
    );
}

#[test]
fn a_listener_that_comes_back_while_it_ends_keeps_its_session() {
    let program = program("");
    let address = free();
    let before = program.edit(|text| text.to_owned() + &listener(address, "agent-2", ""));
    program.reload();
    let mut stream = Client::of(address);
    assert_eq!(stream.send(STREAM, "").0, 200);
    let with = program.edit(|_| before);
    program.reload();
    let (other, again) = (free(), with.replace(&address.to_string(), "ADDRESS"));
    program.edit(|_| again.replace("ADDRESS", &other.to_string()));
    program.reload();
    assert_eq!(Client::of(other).ask(ONE, "").0, 200);
    drop(stream);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(Client::of(other).ask(ONE, "").0, 200);
    assert_eq!(sessions(&program), ["agent-1", "agent-2"]);
}

#[test]
fn a_listener_of_another_session_keeps_its_socket_and_ends_what_was_open() {
    let program = program("");
    let mut open = Client::of(program.proxy);
    assert_eq!(open.ask(ONE, "").0, 200);
    program.edit(|text| text.replace("session = \"agent-1\"", "session = \"agent-3\""));
    program.reload();
    let mut next = Client::of(program.proxy);
    assert_eq!(next.ask(ONE, "").0, 200);
    let (status, head) = open.ask(ONE, "");
    assert!(
        status == 200 && head.contains("connection: close"),
        "{head}"
    );
    until("both in the log", || {
        let records = program.records("exchange");
        let of: Vec<_> = records
            .iter()
            .map(|one| one["session"].as_str().unwrap())
            .collect();
        of == ["agent-1", "agent-3", "agent-1"]
    });
    until("the end of the former session", || {
        sessions(&program) == ["agent-3"]
    });
}

#[test]
fn another_password_ends_what_came_with_the_former_one() {
    let program = program("");
    let asks = |password: &str| {
        let path = program.path(password);
        fs::write(&path, password).unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        format!("who = [\"password\"]\npasswords = {{ agent = \"file:{password}\" }}\n")
    };
    let field = |password: &str| {
        use base64::Engine as _;
        let both = base64::engine::general_purpose::STANDARD.encode(format!("agent:{password}"));
        format!("Proxy-Authorization: Basic {both}\r\n")
    };
    let (old, new) = (field("old-password"), field("new-password"));
    let (address, first) = (free(), asks("old-password"));
    let plain = program.edit(|text| text.to_owned() + &listener(address, "agent-1", &first));
    program.reload();
    let mut open = Client::of(address);
    assert_eq!(open.ask(ONE, "").0, 407);
    let mut open = Client::of(address);
    assert_eq!(open.ask(ONE, &old).0, 200);
    // A tunnel, which was authenticated when it was opened.
    let mut tunnel = Client::of(address);
    let connect = format!("CONNECT stream.test:80 HTTP/1.1\r\nHost: stream.test:80\r\n{old}\r\n");
    tunnel.0.get_mut().write_all(connect.as_bytes()).unwrap();
    assert_eq!(tunnel.head().0, 200);
    let inside = |tunnel: &mut Client| {
        let request = b"GET / HTTP/1.1\r\nHost: stream.test\r\n\r\n";
        tunnel.0.get_mut().write_all(request).unwrap();
        let (status, head) = tunnel.head();
        if status == 200 {
            tunnel.0.read_exact(&mut [0; 2]).unwrap();
        }
        (status, head)
    };
    assert_eq!(inside(&mut tunnel).0, 200);
    // The same password again changes nothing.
    program.reload();
    assert_eq!(inside(&mut tunnel).0, 200);
    let second = asks("new-password");
    program.edit(|_| plain.clone() + &listener(address, "agent-1", &second));
    program.reload();
    let mut late = Client::of(address);
    assert_eq!(late.ask(ONE, &old).0, 407);
    let mut late = Client::of(address);
    assert_eq!(late.ask(ONE, &new).0, 200);
    open.rest();
    tunnel.rest();
}

#[test]
fn other_groups_judge_the_next_request_of_an_open_connection() {
    let program = program("");
    let group = "@id(\"group\")\npermit(principal in Gateway::Group::\"trusted\", action, resource == Gateway::Host::\"later.test\");\n";
    fs::write(program.path("rules.cedar"), format!("{RULES}{group}")).unwrap();
    program.reload();
    let mut open = Client::of(program.proxy);
    assert_eq!(open.ask("http://later.test/", "").0, 403);
    let before = program.edit(|text| {
        text.replace(
            "session = \"agent-1\"",
            "session = \"agent-1\"\ngroups = [\"trusted\"]",
        )
    });
    program.reload();
    assert_eq!(open.ask("http://later.test/", "").0, 200);
    assert_eq!(open.send("http://later.test/events", "").0, 200);
    let told = program.json(&["session", "list"]);
    assert_eq!(told["sessions"][0]["groups"][0], "trusted");
    program.edit(|_| before);
    program.reload();
    let changed = Instant::now();
    open.rest();
    assert!(
        changed.elapsed() < Duration::from_secs(1),
        "the stream went on"
    );
    assert_eq!(
        Client::of(program.proxy).ask("http://later.test/", "").0,
        403
    );
}

#[test]
fn an_address_in_use_refuses_the_whole_change() {
    let program = program("");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, other) = (taken.local_addr().unwrap(), free());
    let before = program.edit(|text| {
        let added = listener(other, "agent-2", "") + &listener(address, "agent-3", "");
        text.replace("http://later.test", "http://last.test") + &added
    });
    let why = program.refuse();
    assert!(
        why.contains(&address.to_string()) && why.contains("in use"),
        "{why}"
    );
    assert!(TcpStream::connect(other).is_err());
    assert_eq!(sessions(&program), ["agent-1"]);
    assert!(!program.path("phantoms-agent-2.env").exists());
    assert_eq!(program.ask(ONE).0, 200);
    program.edit(|_| before);
    program.reload();
}

#[test]
fn files_for_workloads_are_written_for_all_sessions_or_for_none() {
    let program = program("");
    let (one, two) = (free(), free());
    fs::create_dir(program.path("phantoms-agent-3.env")).unwrap();
    program.edit(|text| {
        text.to_owned() + &listener(one, "agent-2", "") + &listener(two, "agent-3", "")
    });
    fs::create_dir(program.path("ca-agent-3.pem.new")).unwrap();
    let why = program.refuse();
    assert!(why.contains("ca-agent-3.pem"), "{why}");
    for name in [
        "phantoms-agent-2.env",
        "ca-agent-2.pem",
        "ca-agent-2.pem.new",
    ] {
        assert!(!program.path(name).exists(), "{name}");
    }
    assert!(TcpStream::connect(one).is_err());
    assert_eq!(program.ask(ONE).0, 200);
}

#[test]
fn what_lies_in_place_of_a_workloads_file_keeps_no_narrowing_change_from_force() {
    let program = program("");
    let file = program.path("phantoms-agent-1.env");
    // A pipe that nobody writes to: it is replaced.
    fs::remove_file(&file).unwrap();
    let pipe = std::process::Command::new("mkfifo").arg(&file).status();
    assert!(pipe.unwrap().success());
    program.reload();
    assert!(fs::metadata(&file).unwrap().is_file());
    assert_eq!(program.ask(ONE).0, 200);
    // A folder cannot be replaced, and the rules are narrower all the same.
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    fs::write(program.path("rules.cedar"), "").unwrap();
    program.reload();
    assert_eq!(program.ask(ONE).0, 403);
    let log = fs::read_to_string(program.path("log")).unwrap();
    assert!(
        log.contains("phantoms-agent-1.env` cannot be written"),
        "{log}"
    );
}

#[test]
fn a_refused_change_keeps_nothing_of_the_sessions_that_it_would_have_opened() {
    let program = program("");
    let kept = |session: &str| {
        let log = std::process::Command::new("grep")
            .args(["-rla", "--include=*.db*", "--include=*.sqlite*", session])
            .arg(program.folder.path())
            .output()
            .unwrap();
        !log.stdout.is_empty()
    };
    assert!(kept("agent-1"));
    fs::create_dir(program.path("ca-agent-3.pem")).unwrap();
    let both = listener(free(), "agent-2", "") + &listener(free(), "agent-3", "");
    let before = program.edit(|text| text.to_owned() + &both);
    program.refuse();
    assert!(!kept("agent-2") && !kept("agent-3"));
    program.edit(|_| before + &listener(free(), "agent-2", ""));
    program.reload();
    assert!(kept("agent-2"));
}

#[test]
fn the_gateway_says_where_it_listens_while_a_reload_waits_for_a_store() {
    let program = program("");
    let mut reload = waiting_reload(&program);
    let asked = Instant::now();
    let (status, said) = program.call("GET", "/v1/status", "");
    assert!(
        status == 200 && said.contains(&program.proxy.to_string()),
        "{said}"
    );
    assert!(asked.elapsed() < Duration::from_secs(5));
    assert!(reload.try_wait().unwrap().is_none(), "it does not wait");
    reload.kill().unwrap();
    reload.wait().unwrap();
}

#[test]
fn a_file_that_only_a_refused_change_names_is_watched_and_mending_it_applies_the_change() {
    let program = program("");
    fs::write(program.path("more.cedar"), "permit(").unwrap();
    program.edit(|text| text.replace("[\"rules.cedar\"]", "[\"rules.cedar\", \"more.cedar\"]"));
    program.refuse();
    assert_eq!(program.ask("http://later.test/").0, 403);
    let more = "permit(principal, action, resource == Gateway::Host::\"later.test\");";
    fs::write(program.path("more.cedar"), more).unwrap();
    until("the mended file", || {
        program.ask("http://later.test/").0 == 200
    });
    // One that is missing is waited for as well.
    let roots = "[[origin]]\nmatch = \"https://later.test\"\nroots = [\"roots.pem\"]\n";
    let before = program
        .edit(|text| text.replace("\"more.cedar\"", "\"more.cedar\", \"last.cedar\"") + roots);
    program.refuse();
    fs::write(program.path("last.cedar"), "").unwrap();
    let why = program.refuse();
    assert!(why.contains("roots.pem"), "{why}");
    program.edit(|_| before);
    program.reload();
}

#[test]
fn a_change_that_leaves_no_listener_is_refused() {
    let program = program("");
    let before = program.edit(|text| text.replace(&listener(program.proxy, "agent-1", ""), ""));
    let why = program.refuse();
    assert!(why.contains("there is nothing to listen on"), "{why}");
    assert_eq!(program.ask(ONE).0, 200);
    program.edit(|_| before);
    program.reload();
}

#[test]
fn serve_without_a_configuration_names_the_one_that_lies_there() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("gateway.toml"), "").unwrap();
    let mut serve = command(folder.path());
    let output = serve.arg("serve").output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("name it: `--config gateway.toml`"), "{told}");
}

/// Begins a reload that waits for a store.
fn waiting_reload(program: &Program) -> std::process::Child {
    program.edit(|text| text.to_owned() + SLOW);
    let reload = command(program.folder.path())
        .arg("reload")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    std::thread::sleep(Duration::from_millis(500));
    reload.unwrap()
}

/// A credential whose program takes a minute to print its secret.
const SLOW: &str = "[[credential]]\nname = \"slow\"\norigins = [\"https://slow.test\"]\nfrom = { command = [\"/bin/sleep\", \"60\"] }\n";

#[test]
fn a_reload_that_waits_for_a_store_ends_with_the_gateway() {
    let mut program = program("");
    let mut reload = waiting_reload(&program);
    assert!(reload.try_wait().unwrap().is_none(), "it does not wait");
    let stopped = Instant::now();
    let pid = rustix::process::Pid::from_child(&program.child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let ended = program.child.wait().unwrap();
    assert_eq!(ended.code(), Some(0));
    assert!(stopped.elapsed() < Duration::from_secs(15));
    assert_eq!(program.records("stop").len(), 1);
    assert_ne!(reload.wait().unwrap().code(), Some(0));
}

#[test]
fn a_secret_at_hand_that_cannot_be_used_is_told_at_a_second_start_too() {
    let mut program = program("");
    let path = program.path("secret");
    fs::write(&path, "a-secret-of-the-test").unwrap();
    let mode = |mode: u32| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        fs::set_permissions(&path, mode).unwrap();
    };
    mode(0o600);
    let filed = "[[credential]]\nname = \"filed\"\nfrom = \"file:secret\"\norigins = [\"https://filed.test\"]\n";
    program.edit(|text| text.to_owned() + filed);
    program.reload();
    program.child.kill().unwrap();
    program.child.wait().unwrap();
    // The shape of its phantom is known by now, so that nothing else would read it.
    fs::write(&path, "").unwrap();
    let (code, said) = program.gateway(&["serve", "--config", "gateway.toml"]);
    assert!(code != 0 && said.contains("filed"), "{said}");
    fs::write(&path, "a-secret-of-the-test").unwrap();
    program.restart_after_a_crash();
    assert_eq!(program.ask(ONE).0, 200);
}

#[test]
fn doctor_names_a_folder_in_which_serve_could_make_no_socket() {
    let folder = folder(USER);
    let project = folder.path().join("home/project");
    let doctor = |socket: &str| {
        let listener = "kind = \"proxy\"\nsession = \"own\"\n";
        let text = format!("[[listener]]\n{listener}address = \"unix:{socket}\"\n");
        let file = project.join("gateway.toml");
        fs::write(&file, text).unwrap();
        chown(&file, Some(USER), Some(USER)).unwrap();
        let mut doctor = user_command(folder.path(), USER);
        let doctor = doctor.args(["doctor", "--config", "gateway.toml"]);
        let output = doctor.stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        (output.status.code(), said)
    };
    let (code, said) = doctor("/etc/gateway-of-nobody.sock");
    let told = "its folder `/etc` cannot be used: Permission denied";
    assert!(code == Some(1) && said.contains(told), "{said}");
    let (_, said) = doctor(&format!("{}/own.sock", project.display()));
    assert!(!said.contains("cannot be used"), "{said}");
}

const USER: u32 = 12345;
