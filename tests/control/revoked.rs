//! A credential is revoked: after its exchange was given up, and in every gateway of a user.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustls::{ServerConfig, ServerConnection};
use socket2::{Domain, Socket, Type};

use crate::arrivals::Arrivals;
use crate::certificates::{Authority, ByName};
use crate::program::{CANARY, Program, RULES, free};
use crate::sandbox::{folder, user_command, wait_for};

/// An ordinary user. The number belongs to nobody.
const USER: u32 = 12345;

/// An origin whose kernel takes little for it.
fn narrow() -> TcpListener {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(2304).unwrap();
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    socket.bind(&any.into()).unwrap();
    socket.listen(8).unwrap();
    socket.into()
}

/// Asks with the credential, behind more than the origin's kernel takes, and gives up. Returns the
/// origin's side.
fn given_up(program: &Program, origin: &TcpListener) -> TcpStream {
    let url = format!("http://{}", origin.local_addr().unwrap());
    let origin_of = format!(
        "[[origin]]\nmatch = \"{url}\"\naddresses = [\"127.0.0.0/8\"]\ncleartext = true\n\
         [[credential]]\nname = \"doomed\"\nfrom = \"env:KEY\"\norigins = [\"{url}\"]\n\
         places = [\"header:authorization:Bearer\"]\nenv = [\"DOOMED\"]\n"
    );
    program.edit(|config| format!("{config}{origin_of}"));
    fs::write(
        program.path("rules.cedar"),
        format!("{RULES}permit(principal, action, resource);"),
    )
    .unwrap();
    program.reload();
    let phantoms = fs::read_to_string(program.path("phantoms.env")).unwrap();
    let mut lines = phantoms.lines();
    let phantom = lines.find_map(|line| line.strip_prefix("DOOMED="));
    let (phantom, long) = (phantom.unwrap(), "f".repeat(1000));
    let fill: String = (0..12).map(|i| format!("X-Fill-{i}: {long}\r\n")).collect();
    let host = url.trim_start_matches("http://");
    let mut client = TcpStream::connect(program.proxy).unwrap();
    let head = format!(
        "GET {url}/{} HTTP/1.1\r\nHost: {host}\r\n{fill}Authorization: Bearer {phantom}\r\n\r\n",
        "p".repeat(7000)
    );
    client.write_all(head.as_bytes()).unwrap();
    let (theirs, _) = origin.accept().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let (code, said) = program.gateway(&["session", "end", "agent-1"]);
    assert_eq!(code, 0, "{said}");
    std::thread::sleep(Duration::from_millis(300));
    theirs
}

fn holds_the_secret(mut theirs: TcpStream) -> bool {
    theirs
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    let mut read = Vec::new();
    let _ = theirs.read_to_end(&mut read);
    assert!(!read.is_empty());
    memchr::memmem::find(&read, CANARY.as_bytes()).is_some()
}

#[test]
fn a_revocation_reaches_what_the_kernel_has_yet_to_send_of_an_exchange_that_was_given_up() {
    let program = Program::start("");
    let origin = narrow();
    let theirs = given_up(&program, &origin);
    let (code, said) = program.gateway(&["revoke", "doomed"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("1 connection"), "{said}");
    assert!(!holds_the_secret(theirs));
}

#[test]
fn without_a_revocation_a_closed_connection_loses_no_bytes() {
    let program = Program::start("");
    let origin = narrow();
    assert!(holds_the_secret(given_up(&program, &origin)));
}

/// An origin that keeps what it gets, in clear text and over TLS, and answers each head.
pub struct Keeping(Arc<Mutex<Vec<Arc<Arrivals>>>>);

impl Arrivals {
    fn next(&self) -> Option<Vec<u8>> {
        let readable = rustix::event::PollFlags::IN;
        let mut polled = [rustix::event::PollFd::new(&self.socket, readable)];
        let _ = rustix::event::poll(&mut polled, None);
        let mut read = self.read.lock().unwrap();
        let mut bytes = vec![0; 4096];
        let count = (&self.socket)
            .read(&mut bytes)
            .ok()
            .filter(|count| *count > 0)?;
        *read += count;
        bytes.truncate(count);
        Some(bytes)
    }

    /// Keeps what came, and returns the answer to a whole head.
    fn keep(&self, plain: &[u8]) -> &'static [u8] {
        let mut known = self.plain.lock().unwrap();
        known.extend(plain);
        match !plain.is_empty() && known.ends_with(b"\r\n\r\n") {
            true => b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
            false => b"",
        }
    }

    fn serve(&self, config: Option<Arc<ServerConfig>>) -> Option<()> {
        let mut tls = config.map(|config| ServerConnection::new(config).unwrap());
        loop {
            let bytes = self.next()?;
            let Some(tls) = &mut tls else {
                (&self.socket).write_all(self.keep(&bytes)).ok()?;
                continue;
            };
            let mut left = &bytes[..];
            while !left.is_empty() {
                tls.read_tls(&mut left).ok()?;
                let state = tls.process_new_packets().ok()?;
                let mut plain = vec![0; state.plaintext_bytes_to_read()];
                tls.reader().read_exact(&mut plain).ok()?;
                tls.writer().write_all(self.keep(&plain)).ok()?;
            }
            while tls.wants_write() {
                tls.write_tls(&mut &self.socket).ok()?;
            }
        }
    }
}

impl Keeping {
    /// Returns it with its ports: in clear text, and over TLS.
    pub fn start(authority: &Arc<Authority>) -> (Self, [u16; 2]) {
        let config = ServerConfig::builder()
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(ByName(authority.clone())));
        let origin = Self(Arc::default());
        let ports = [None, Some(Arc::new(config))].map(|config| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let (port, known) = (listener.local_addr().unwrap().port(), origin.0.clone());
            std::thread::spawn(move || {
                for socket in listener.incoming().flatten() {
                    let conn = Arc::new(Arrivals::on(socket));
                    known.lock().unwrap().push(conn.clone());
                    let config = config.clone();
                    std::thread::spawn(move || conn.serve(config));
                }
            });
            port
        });
        (origin, ports)
    }

    fn all(&self) -> Vec<Arc<Arrivals>> {
        self.0.lock().unwrap().clone()
    }

    /// Which of these paths did not come with the secret since the connections were forgotten.
    pub fn left_of(&self, paths: &[&str], secret: &str) -> Vec<String> {
        let mut left: Vec<String> = paths.iter().map(|path| format!("GET {path} ")).collect();
        for conn in self.all() {
            let is_lent = conn.holds(secret);
            let plain = conn.plain.lock().unwrap();
            left.retain(|path| !is_lent || memchr::memmem::find(&plain, path.as_bytes()).is_none());
        }
        left
    }

    /// How many bytes came since the connections were forgotten.
    pub fn arrived(&self) -> usize {
        self.all().iter().map(|conn| conn.arrived()).sum()
    }

    /// The heads that came since the connections were forgotten.
    pub fn heads(&self) -> Vec<String> {
        let mut heads = Vec::new();
        for conn in self.all() {
            let plain = String::from_utf8_lossy(&conn.plain.lock().unwrap()).into_owned();
            heads.extend(plain.split("\r\n\r\n").map(str::to_owned));
        }
        heads
    }

    /// Forgets the connections.
    pub fn forget(&self) {
        self.0.lock().unwrap().clear();
    }
}

/// The five gateways of one user: two `serve` and three `exec`.
const PATHS: [&str; 5] = ["/serve-0", "/serve-1", "/exec-0", "/exec-1", "/exec-2"];

struct Gateways {
    folder: tempfile::TempDir,
    clear: String,
    proxies: [SocketAddr; 2],
    serving: [Child; 2],
    commands: Vec<Child>,
}

impl Gateways {
    fn start([clear, tls]: [u16; 2], roots: &str) -> Self {
        let folder = folder(USER);
        let home = folder.path().join("home");
        let proxies = [free(), free()];
        let clear = format!("http://127.0.0.1:{clear}");
        let lends = |origin: &str, more: &str| {
            format!(
                "[policy]\nfiles = [\"rules.cedar\"]\n[[origin]]\nmatch = \"{origin}\"\n{more}\n\
                 [[credential]]\nname = \"doomed\"\nfrom = \"env:KEY\"\norigins = [\"{origin}\"]\n\
                 places = [\"header:authorization:Bearer\"]\nenv = [\"DOOMED\"]\n"
            )
        };
        let put = |name: &str, text: &str| {
            fs::write(home.join(name), text).unwrap();
            std::os::unix::fs::chown(home.join(name), Some(USER), Some(USER)).unwrap();
        };
        put("rules.cedar", "permit(principal, action, resource);");
        put("roots.pem", roots);
        let over_tls = format!("connect = \"127.0.0.1:{tls}\"\nroots = [\"roots.pem\"]");
        put("exec.toml", &lends("https://kept.test", &over_tls));
        let in_clear = lends(&clear, "addresses = [\"127.0.0.0/8\"]\ncleartext = true");
        for (nth, proxy) in proxies.iter().enumerate() {
            put(
                &format!("serve-{nth}.toml"),
                &format!(
                    "{in_clear}[phantoms]\nenv_file = \"serve-{nth}.env\"\n[[listener]]\nkind = \"proxy\"\naddress = \"{proxy}\"\nsession = \"agent\"\n"
                ),
            );
        }
        let serving = [0, 1].map(|nth| serve(folder.path(), nth));
        let commands = (0..3).map(|nth| {
            let script = format!(
                "while [ ! -e stop ]; do curl -s --max-time 2 -H \"Authorization: Bearer $DOOMED\" https://kept.test/exec-{nth} >exec-{nth} || sleep 0.1; done"
            );
            user_command(folder.path(), USER)
                .args(["exec", "-q", "--config", "../exec.toml", "--", "sh", "-c", &script])
                .spawn()
                .unwrap()
        });
        let commands = commands.collect();
        Self {
            folder,
            clear,
            proxies,
            serving,
            commands,
        }
    }

    /// Asks through a `serve`, and returns the answer; empty if there is none.
    fn ask(&self, nth: usize) -> String {
        let phantoms = self.folder.path().join(format!("home/serve-{nth}.env"));
        let phantoms = fs::read_to_string(phantoms).unwrap_or_default();
        let phantom = phantoms
            .lines()
            .find_map(|line| line.strip_prefix("DOOMED="));
        let (Some(phantom), Ok(mut client)) = (phantom, TcpStream::connect(self.proxies[nth]))
        else {
            return String::new();
        };
        let (url, host) = (&self.clear, self.clear.trim_start_matches("http://"));
        let head = format!(
            "GET {url}/serve-{nth} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {phantom}\r\nConnection: close\r\n\r\n"
        );
        let _ = client.write_all(head.as_bytes());
        let mut answer = Vec::new();
        let _ = client.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn says(&self, arguments: &[&str]) -> (bool, String) {
        let output = user_command(self.folder.path(), USER)
            .args(arguments)
            .output()
            .unwrap();
        let said =
            String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned();
        (output.status.success(), said)
    }
}

impl Drop for Gateways {
    fn drop(&mut self) {
        let _ = fs::write(self.folder.path().join("home/project/stop"), "");
        for serving in &mut self.serving {
            let _ = serving.kill();
            let _ = serving.wait();
        }
        for command in &mut self.commands {
            let _ = command.wait();
        }
    }
}

fn serve(folder: &Path, nth: usize) -> Child {
    let log = fs::File::options()
        .create(true)
        .append(true)
        .open(folder.join("log"))
        .unwrap();
    user_command(folder, USER)
        .args(["serve", "--config", &format!("../serve-{nth}.toml")])
        .stderr(log)
        .spawn()
        .unwrap()
}

/// Must show 3 of issue 26.
#[test]
fn a_revocation_holds_in_every_gateway_of_the_user_over_a_kill_and_until_it_is_restored() {
    let full = std::env::var("GATEWAY_ENDURANCE").is_ok_and(|length| length == "full");
    let rounds: u64 = if full { 200 } else { 4 };
    let authority = Arc::new(Authority::new());
    let (origin, ports) = Keeping::start(&authority);
    let mut gateways = Gateways::start(ports, &authority.pem);
    let mut took = Vec::new();
    for round in 0..rounds {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            wait_for("each gateway lends", || {
                gateways.ask(0);
                gateways.ask(1);
                origin.left_of(&PATHS, CANARY).is_empty()
            });
            gateways.serving[1].kill().unwrap();
            gateways.serving[1].wait().unwrap();
            gateways.serving[1] = serve(gateways.folder.path(), 1);
            let gateways = &gateways;
            for nth in [0, 1, 0, 1] {
                let over = &over;
                scope.spawn(move || {
                    while !over.load(Ordering::Relaxed) {
                        if gateways.ask(nth).is_empty() {
                            std::thread::sleep(Duration::from_millis(2));
                        }
                    }
                });
            }
            // It is somewhere in its start.
            std::thread::sleep(Duration::from_millis(23 * (round % 17)));
            let began = Instant::now();
            let label = ["doomed", "KEY", "DOOMED"][round as usize % 3];
            let (done, said) = gateways.says(&["revoke", label]);
            took.push(began.elapsed());
            assert!(
                done && said.contains(&format!("until `gateway restore {label}`")),
                "{said}"
            );
            // What the kernel had on its way is there by now.
            std::thread::sleep(Duration::from_millis(2));
            let arrived: Vec<_> = origin
                .all()
                .into_iter()
                .map(|conn| (conn.arrived(), conn))
                .collect();
            wait_for("the one that was killed is there", || {
                gateways.ask(1).contains("credential_revoked")
            });
            wait_for("a command is told", || {
                let told = fs::read_to_string(gateways.folder.path().join("home/project/exec-2"));
                told.is_ok_and(|told| told.contains("credential_revoked"))
            });
            let told = gateways.ask(0);
            assert!(
                told.contains("403") && !told.contains("restore") && !told.contains("restart"),
                "{told}"
            );
            for conn in origin.all() {
                let known = arrived.iter().find(|(_, known)| Arc::ptr_eq(known, &conn));
                let read = conn.read.lock().unwrap();
                let before = known.map_or(0, |(before, _)| *before);
                let plain = conn.plain.lock().unwrap();
                let said = String::from_utf8_lossy(&plain);
                assert!(
                    *read <= before,
                    "round {round}: {before} bytes before, {read} now: {said}"
                );
            }
            let (_, shown) = gateways.says(&["status"]);
            assert_eq!(shown.matches("revoked   doomed").count(), 5, "{shown}");
            over.store(true, Ordering::Relaxed);
        });
        // All of them are cut.
        origin.forget();
        let (done, said) = gateways.says(&["restore", "doomed"]);
        assert!(done && said.contains("5 gateways confirmed"), "{said}");
    }
    took.sort();
    let at = |part: usize| took[(took.len() - 1) * part / 100];
    println!(
        "{rounds} revocations in five gateways: p50 {:?}, p99 {:?}; 0 bytes afterwards",
        at(50),
        at(99)
    );
}

#[test]
fn what_cannot_be_kept_is_not_revoked_and_what_is_unknown_is_told() {
    let mut program = Program::start("");
    let kept = program.path(".local/state/gateway/sessions/revoked.json");
    let (code, said) = program.gateway(&["restore", "key"]);
    assert!(
        code == 1 && said.contains("nothing called `key` is revoked"),
        "{said}"
    );
    assert!(!kept.exists());
    fs::create_dir_all(&kept).unwrap();
    let (code, said) = program.gateway(&["revoke", "key"]);
    assert!(
        code == 1 && said.contains("nothing was revoked, neither here nor for other gateways"),
        "{said}"
    );
    assert_eq!(
        program.json(&["status"])["gateways"][0]["revoked"],
        serde_json::json!([])
    );
    let pid = program.child.id().to_string();
    let (code, said) = program.gateway(&["revoke", "KEY", "--gateway", &pid]);
    assert!(
        code == 1 && said.contains("nothing was revoked for other gateways"),
        "{said}"
    );
    assert_eq!(
        program.json(&["status"])["gateways"][0]["revoked"],
        serde_json::json!(["key"])
    );
    // One that cannot read it does not start.
    program.child.kill().unwrap();
    program.child.wait().unwrap();
    let (code, said) = program.gateway(&["serve", "--config", "gateway.toml"]);
    assert!(
        code == 1 && said.contains("what is revoked cannot be read"),
        "{said}"
    );
    fs::remove_dir(&kept).unwrap();
    // Without any gateway, for those that start later: a known variable.
    let (code, said) = program.gateway(&["revoke", "GITHUB_TOKEN"]);
    assert!(
        code == 0 && said.contains("`GITHUB_TOKEN` is revoked: 0 gateways"),
        "{said}"
    );
    program.follow(crate::program::spawn(program.folder.path()));
    assert_eq!(
        program.json(&["status"])["gateways"][0]["revoked"],
        serde_json::json!(["GITHUB_TOKEN"])
    );
    program.json(&["restore", "GITHUB_TOKEN"]);
    assert_eq!(
        program.json(&["status"])["gateways"][0]["revoked"],
        serde_json::json!([])
    );
}

#[test]
fn of_a_quiet_revocation_the_workload_gets_what_the_service_says_of_an_unknown_key() {
    let program = Program::start("");
    let url = format!("http://{}", crate::program::origin());
    program.edit(|config| {
        format!(
            "{config}[[origin]]\nmatch = \"{url}\"\naddresses = [\"127.0.0.0/8\"]\ncleartext = true\n\
             [[credential]]\nname = \"model\"\nfrom = \"env:KEY\"\norigins = [\"{url}\"]\n\
             places = [\"header:authorization:Bearer\"]\nenv = [\"MODEL\"]\n"
        )
    });
    let rules = format!("{RULES}permit(principal, action, resource);");
    fs::write(program.path("rules.cedar"), rules).unwrap();
    program.reload();
    let phantoms = fs::read_to_string(program.path("phantoms.env")).unwrap();
    let phantom = phantoms
        .lines()
        .find_map(|line| line.strip_prefix("MODEL="))
        .unwrap();
    let ask = |path: &str| {
        let mut client = TcpStream::connect(program.proxy).unwrap();
        client
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        let host = url.trim_start_matches("http://");
        let head = format!(
            "GET {url}{path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {phantom}\r\n\
             Connection: close\r\n\r\n"
        );
        client.write_all(head.as_bytes()).unwrap();
        let mut answer = vec![0; 4096];
        let read = client.read(&mut answer).unwrap();
        String::from_utf8_lossy(&answer[..read]).into_owned()
    };
    assert!(ask("/").starts_with("HTTP/1.1 200"));
    let (code, said) = program.gateway(&["revoke", "--quiet", "model"]);
    assert_eq!(code, 0, "{said}");
    let told = ask("/v1/chat/completions");
    assert!(told.starts_with("HTTP/1.1 401 Unauthorized\r\n"), "{told}");
    assert!(told.contains("\"code\":\"invalid_api_key\""), "{told}");
    let page = program.ask("http://gateway.internal/refused").1;
    for all in [&told, &page] {
        assert!(
            !all.to_ascii_lowercase().contains("gateway-exchange"),
            "{all}"
        );
        assert!(!all.contains("revoked"), "{all}");
    }
    // Whoever reads the log knows.
    let last = program
        .records("exchange")
        .into_iter()
        .rfind(|one| one["reason"].is_string());
    assert_eq!(last.unwrap()["reason"], "credential_revoked");
    assert_eq!(program.gateway(&["restore", "model"]).0, 0);
    assert!(ask("/").starts_with("HTTP/1.1 200"));
    assert_eq!(program.gateway(&["revoke", "model"]).0, 0);
    let told = ask("/v1/chat/completions");
    assert!(
        told.starts_with("HTTP/1.1 403") && told.contains("credential_revoked"),
        "{told}"
    );
}
