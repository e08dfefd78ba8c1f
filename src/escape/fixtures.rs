//! The host's side of the probes: creates targets, and watches whether any was hit.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use gateway_launch::hide;
use gateway_launch::program::root_owned_program;
use gateway_names::hex;
use rustix::process::{Pid, getpriority_process};

use super::git;
use super::probe::{address, call, words};
use super::stores::stores;
use super::targets::{CANARY_VARIABLE, LATE, OpenedPorts, PLANTED, TARGETS_VARIABLE, Targets};

/// Owns the planted files; removes them when dropped.
#[derive(Default)]
pub struct Fixtures {
    targets: Targets,
    /// Each possible hit and the check for it, which owns the thing that it watches.
    watches: Vec<(String, Watch)>,
    /// The file that becomes the sandbox's standard input.
    input: PathBuf,
    files: Vec<PathBuf>,
    folders: Vec<PathBuf>,
}

type Watch = Box<dyn FnOnce() -> bool>;

impl Fixtures {
    /// Plants targets for the probes: sockets, a process, a terminal and files. The files are under
    /// `/tmp` and in the gateway's own state directory under `home`. Also plants a folder next to
    /// `project` that everybody may write to.
    ///
    /// # Errors
    /// The error of creating one of them.
    pub fn plant(home: Option<&Path>, project: &Path) -> io::Result<Self> {
        let mut bytes = [0_u8; 16];
        getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
        let mut fixtures = Self::default();
        fixtures.targets.nonce = hex(&bytes);
        fixtures.targets.variables = words(VARIABLES).map(str::to_owned).collect();
        fixtures.plant_network()?;
        fixtures.plant_sockets()?;
        fixtures.plant_files(home)?;
        fixtures.plant_input()?;
        fixtures.plant_folder(project)?;
        fixtures.plant_process()?;
        fixtures.plant_terminal()?;
        if let Some(home) = home {
            let known = stores().chain(hide::IN_HOME.iter().copied());
            let mut hidden: Vec<PathBuf> = known.map(|name| home.join(name)).collect();
            hidden.retain(|path| path.exists());
            hidden.sort();
            hidden.dedup();
            fixtures.targets.hidden = hidden;
        }
        Ok(fixtures)
    }

    /// Plants a server that the sandbox may reach, and chooses a port to publish.
    ///
    /// # Errors
    /// The error of listening.
    pub fn plant_ports(&mut self) -> io::Result<()> {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        // Another process could take the port before the gateway does; the gateway then says so.
        let published = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let ports = OpenedPorts {
            host: server.local_addr()?.port(),
            greeting: format!("opened-{}", self.targets.nonce),
            published: published.port(),
            inside: INSIDE,
        };
        // The server is meant to be reached, and ends with this process.
        drop(greet(server, ports.greeting.clone())?);
        self.targets.ports = Some(ports);
        Ok(())
    }

    /// Plants repositories in a project, for `owner` if that is another user; the git probes need
    /// them.
    ///
    /// # Errors
    /// The error of creating one of them.
    pub fn plant_repositories(&mut self, project: &Path, owner: Option<u32>) -> io::Result<()> {
        let folder = git::plant(project, &self.targets.nonce, owner)?;
        self.folders.push(folder.clone());
        self.targets.repositories = Some(folder.clone());
        if let Some(program) = root_owned_program("git") {
            self.targets.git = true;
            for name in git::WAYS {
                let (program, folder) = (program.clone(), folder.clone());
                self.watch(format!("a program by git ({name})"), move || {
                    git::runs_what_was_planted(&program, &folder, name)
                });
            }
        }
        Ok(())
    }

    /// Passes the targets to the command that starts the sandbox: in variables, and as its standard
    /// input.
    ///
    /// # Errors
    /// The error of opening the file for the standard input.
    pub fn tell(&self, command: &mut Command) -> io::Result<()> {
        let secrets = self.targets.variables.iter();
        command
            .envs(secrets.map(|name| (name, &self.targets.nonce)))
            .env(TARGETS_VARIABLE, serde_json::to_string(&self.targets)?)
            .stdin(fs::File::open(&self.input)?);
        Ok(())
    }

    /// The fixtures that were hit, as seen from the host; empty if the sandbox held. Nothing is
    /// watched afterwards.
    pub fn breaches(&mut self) -> Vec<String> {
        let watches = self.watches.drain(..);
        let hit = watches.filter_map(|(what, was_hit)| was_hit().then_some(what));
        hit.collect()
    }

    fn watch(&mut self, what: impl Into<String>, was_hit: impl FnOnce() -> bool + 'static) {
        self.watches.push((what.into(), Box::new(was_hit)));
    }

    fn plant_network(&mut self) -> io::Result<()> {
        let mut addresses: Vec<IpAddr> =
            vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        // The address from which the host would reach the world; connecting sends nothing.
        let outward = UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
            socket.connect("192.0.2.1:9")?;
            socket.local_addr()
        });
        let outward = outward.map(|address| address.ip());
        addresses.extend(outward.ok().filter(|ip| !ip.is_unspecified()));
        for ip in addresses {
            // A host without IPv6 has no such target.
            let (Ok(server), Ok(socket)) = (TcpListener::bind((ip, 0)), UdpSocket::bind((ip, 0)))
            else {
                continue;
            };
            socket.set_nonblocking(true)?;
            self.targets.tcp.push(server.local_addr()?);
            self.targets.udp.push(socket.local_addr()?);
            let nonce = self.targets.nonce.clone();
            let was_reached = greet(server, nonce.clone())?;
            self.watch(format!("a TCP connection to {ip}"), was_reached);
            self.watch(format!("a datagram to {ip}"), move || {
                let mut content = [0; 64];
                let mut datagrams = std::iter::from_fn(|| {
                    let (bytes, _) = socket.recv_from(&mut content).ok()?;
                    Some(content[..bytes] == *nonce.as_bytes())
                });
                datagrams.any(|is_ours| is_ours)
            });
        }
        Ok(())
    }

    fn plant_sockets(&mut self) -> io::Result<()> {
        let name = self.name("");
        let by_name = UnixListener::bind_addr(&UnixAddr::from_abstract_name(&name)?)?;
        self.targets.abstract_socket = Some(name);
        let path = std::env::temp_dir().join(self.name(".sock"));
        let by_path = listen(&path)?;
        self.files.push(path.clone());
        self.targets.sockets.push(path);
        for listener in [by_name, by_path] {
            self.watch("a connection to a Unix socket", move || {
                was_reached(&listener)
            });
        }
        Ok(())
    }

    fn plant_files(&mut self, home: Option<&Path>) -> io::Result<()> {
        let state = home.map(|home| home.join(".local/state/gateway"));
        if let Some(state) = &state {
            fs::create_dir_all(state)?;
        }
        let places = ["/tmp", "/var/tmp"].map(PathBuf::from).into_iter();
        for place in places.chain(state).filter(|place| place.is_dir()) {
            let file = self.write_nonce(place.join(self.name("")), 0o644)?;
            self.targets.files.push(file);
        }
        Ok(())
    }

    fn plant_input(&mut self) -> io::Result<()> {
        let path = std::env::temp_dir().join(self.name(".input"));
        // Mode 0666, so that a sandbox with another user could write the file if it could open it.
        self.input = self.write_nonce(path.clone(), 0o666)?;
        self.targets.input = true;
        self.watch_text(path, "the file of a standard stream was changed");
        Ok(())
    }

    /// Outside the project: a folder such as `/tmp`, with a file that everybody may read and
    /// change, and a socket that is created later.
    fn plant_folder(&mut self, project: &Path) -> io::Result<()> {
        let Some(beside) = project.parent() else {
            return Ok(());
        };
        // Not the name of a planted file: the project may be in `/tmp` itself.
        let folder = beside.join(self.name("-folder"));
        match fs::create_dir(&folder) {
            // Then no user that the command could run as may write there either.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(()),
            made => made?,
        }
        self.folders.push(folder.clone());
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o1777))?;
        let file = self.write_nonce(folder.join(PLANTED), 0o666)?;
        self.watch_text(file.clone(), format!("text in {}", file.display()));
        self.targets.files.push(file);
        let socket = folder.join(LATE_SOCKET);
        self.targets.late_sockets.push(socket.clone());
        self.targets.folders.push(folder.clone());
        let late = std::thread::spawn(move || {
            std::thread::sleep(LATE);
            listen(&socket)
        });
        self.watch(
            "a connection to a Unix socket that was made later",
            move || matches!(late.join(), Ok(Ok(listener)) if was_reached(&listener)),
        );
        self.watch(format!("a file in {}", folder.display()), move || {
            let mut entries = fs::read_dir(folder).into_iter().flatten().flatten();
            entries.any(|entry| entry.file_name() != PLANTED && entry.file_name() != LATE_SOCKET)
        });
        Ok(())
    }

    fn plant_process(&mut self) -> io::Result<()> {
        let Some(program) = root_owned_program("sleep") else {
            return Ok(());
        };
        let mut process = Command::new(program)
            .arg("3600")
            .env(CANARY_VARIABLE, &self.targets.nonce)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        self.targets.pid = Some(process.id());
        let id = Pid::from_raw(process.id().cast_signed());
        let before = getpriority_process(id);
        self.watch("a process was killed, or its priority changed", move || {
            let is_as_before =
                matches!(process.try_wait(), Ok(None)) && getpriority_process(id) == before;
            // It may have ended already.
            let _ = process.kill();
            let _ = process.wait();
            !is_as_before
        });
        Ok(())
    }

    fn plant_terminal(&mut self) -> io::Result<()> {
        let open = |path: &str| fs::OpenOptions::new().read(true).write(true).open(path);
        let Ok(mut master) = open("/dev/ptmx") else {
            return Ok(());
        };
        let (fd, unlocked, mut number) = (master.as_raw_fd() as usize, 0_i32, 0_i32);
        let ioctl = |request, at| call(libc::SYS_ioctl, &[fd, request as usize, at]);
        ioctl(libc::TIOCSPTLCK, address(&unlocked))?;
        ioctl(libc::TIOCGPTN, (&raw mut number) as usize)?;
        let path = format!("/dev/pts/{number}");
        let slave = open(&path)?;
        rustix::io::ioctl_fionbio(&master, true)?;
        self.targets.terminal = Some(path.into());
        let nonce = self.targets.nonce.clone();
        self.watch("text on another terminal", move || {
            let mut content = [0; 256];
            let bytes = master.read(&mut content).unwrap_or(0);
            drop(slave);
            String::from_utf8_lossy(&content[..bytes]).contains(&nonce)
        });
        Ok(())
    }

    fn name(&self, end: &str) -> String {
        format!("gateway-escape-{}{end}", self.targets.nonce)
    }

    /// Creates a file that holds the nonce, and is removed with the others.
    fn write_nonce(&mut self, path: PathBuf, mode: u32) -> io::Result<PathBuf> {
        let mut options = fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).open(&path)?;
        self.files.push(path.clone());
        file.write_all(self.targets.nonce.as_bytes())?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
        Ok(path)
    }

    fn watch_text(&mut self, path: PathBuf, what: impl Into<String>) {
        let nonce = self.targets.nonce.clone();
        self.watch(what, move || fs::read_to_string(path).ok() != Some(nonce));
    }
}

impl Drop for Fixtures {
    fn drop(&mut self) {
        // Also ends the servers whose watches did not run.
        self.breaches();
        for path in &self.files {
            let _ = fs::remove_file(path);
        }
        for folder in &self.folders {
            let _ = fs::remove_dir_all(folder);
        }
    }
}

/// Greets every client, in a thread. The result ends the thread and returns whether one came.
fn greet(server: TcpListener, greeting: String) -> io::Result<impl FnOnce() -> bool + 'static> {
    let own = server.try_clone()?;
    let thread = std::thread::spawn(move || {
        let mut clients = 0;
        while let Ok((mut client, _)) = server.accept() {
            clients += 1;
            // The probe decides whether the greeting arrives.
            let _ = client.write_all(greeting.as_bytes());
        }
        clients
    });
    Ok(move || {
        let stopped = rustix::net::shutdown(own, rustix::net::Shutdown::Both);
        stopped.is_ok() && thread.join().is_ok_and(|clients| clients > 0)
    })
}

/// Listens where everybody may connect.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
    Ok(listener)
}

fn was_reached(listener: &UnixListener) -> bool {
    listener.set_nonblocking(true).is_ok() && listener.accept().is_ok()
}

/// The port of the sandbox that is published.
const INSIDE: u16 = 3000;
const LATE_SOCKET: &str = "late.sock";

/// Variables in which people customarily keep secrets, in each form that lists of forbidden names
/// miss.
const VARIABLES: &str = "
    GITHUB_TOKEN GH_TOKEN GITLAB_PRIVATE_TOKEN CI_JOB_JWT NPM_TOKEN AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN
    AZURE_STORAGE_CONNECTION_STRING APPLICATIONINSIGHTS_CONNECTION_STRING GOOGLE_API_KEY OPENAI_API_KEY
    ANTHROPIC_API_KEY HF_TOKEN SLACK_WEBHOOK_URL SENTRY_DSN DATABASE_URL DB_PW BIND_PW ADMIN_PIN APP_KEYS
    AUTH_HEADER CURL_USER BASIC_AUTH_USERPASS AGE_IDENTITY BORG_PASSCOMMAND TS_AUTHKEY PRIVATEKEY
    JDBC_DATABASE_URL VAULT_TOKEN PGPASSWORD SSH_AUTH_SOCK GIT_CONFIG_VALUE_0
";
