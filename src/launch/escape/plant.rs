//! The host's side of the probes: creates targets, and watches whether any was hit.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::Pid;
use serde::{Deserialize, Serialize};

use super::{STORES, git};
use crate::hide;

/// What the probes aim at. All of it is on the host, and none of it is a secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Targets {
    /// The text of the planted things, so that nothing else is mistaken for them.
    pub nonce: String,
    /// Servers that greet with the nonce.
    pub tcp: Vec<SocketAddr>,
    /// Sockets that wait for the nonce.
    pub udp: Vec<SocketAddr>,
    /// An abstract Unix socket.
    pub abstract_socket: Option<String>,
    /// Unix sockets by path.
    pub sockets: Vec<PathBuf>,
    /// Unix sockets that are created a moment after the planting.
    pub late_sockets: Vec<PathBuf>,
    /// Folders that everybody may write to, each with a file `planted` that everybody may write.
    pub folders: Vec<PathBuf>,
    /// Files that contain the nonce.
    pub files: Vec<PathBuf>,
    /// The customary credential stores that the home directory really has; not planted.
    pub hidden: Vec<PathBuf>,
    /// A process with the nonce in its environment.
    pub pid: Option<u32>,
    /// A terminal.
    pub terminal: Option<PathBuf>,
    /// A folder of the project with repositories.
    pub repositories: Option<PathBuf>,
    /// Variables that contain the nonce where the sandbox is started.
    pub variables: Vec<String>,
    /// Whether the standard input is a file, [`Guard::input`].
    pub input: bool,
}

impl Targets {
    /// The variables with which to start the sandbox: secrets under their customary names.
    pub fn environment(&self) -> impl Iterator<Item = (&str, &str)> {
        self.variables
            .iter()
            .map(|name| (name.as_str(), self.nonce.as_str()))
    }
}

/// Owns what was planted; removes it when dropped.
#[derive(Debug)]
pub struct Guard {
    nonce: String,
    servers: Vec<Greeter>,
    datagrams: Vec<UdpSocket>,
    streams: Vec<UnixListener>,
    process: Option<Child>,
    terminal: Option<(fs::File, fs::File)>,
    repositories: Option<PathBuf>,
    input: Option<PathBuf>,
    priority: i32,
    paths: Vec<PathBuf>,
    folders: Vec<PathBuf>,
    late: Vec<JoinHandle<io::Result<UnixListener>>>,
}

/// A server that greets whoever connects with the nonce, and counts them.
#[derive(Debug)]
struct Greeter {
    address: SocketAddr,
    hits: Arc<AtomicUsize>,
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Greeter {
    fn start(server: TcpListener, nonce: String) -> io::Result<Self> {
        let address = server.local_addr()?;
        let (hits, stopping) = (
            Arc::new(AtomicUsize::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let (counted, stop) = (Arc::clone(&hits), Arc::clone(&stopping));
        let thread = std::thread::spawn(move || {
            for stream in server.incoming() {
                if stop.load(Ordering::Acquire) {
                    return;
                }
                counted.fetch_add(1, Ordering::AcqRel);
                // The probe decides whether the greeting arrives.
                let _ = stream.and_then(|mut stream| stream.write_all(nonce.as_bytes()));
            }
        });
        Ok(Self {
            address,
            hits,
            stopping,
            thread: Some(thread),
        })
    }
}

impl Drop for Greeter {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        // Wakes it from `accept`.
        let woken = TcpStream::connect(self.address).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
    }
}

/// Plants targets for the probes: sockets, a process, a terminal, files under `/tmp` and in the
/// gateway's own state directory under `home`, and a folder beside `project` that everybody may
/// write to.
///
/// # Errors
/// The error of creating one of them.
pub fn plant(home: Option<&Path>, project: &Path) -> io::Result<(Targets, Guard)> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    let nonce: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut guard = Guard {
        nonce: nonce.clone(),
        servers: Vec::new(),
        datagrams: Vec::new(),
        streams: Vec::new(),
        process: None,
        terminal: None,
        repositories: None,
        input: None,
        priority: 0,
        paths: Vec::new(),
        folders: Vec::new(),
        late: Vec::new(),
    };
    let mut targets = Targets {
        nonce: nonce.clone(),
        variables: VARIABLES.split_whitespace().map(str::to_owned).collect(),
        ..Targets::default()
    };
    guard.plant_network(&mut targets)?;
    guard.plant_unix(&mut targets)?;
    guard.plant_files(&mut targets, home)?;
    guard.plant_input(&mut targets)?;
    guard.plant_folder(&mut targets, project)?;
    guard.plant_process(&mut targets)?;
    guard.plant_terminal(&mut targets)?;
    if let Some(home) = home {
        targets.hidden = STORES
            .iter()
            .chain(hide::IN_HOME)
            .map(|name| home.join(name))
            .filter(|path| path.exists())
            .collect();
        targets.hidden.sort();
        targets.hidden.dedup();
    }
    Ok((targets, guard))
}

impl Guard {
    /// Plants repositories in a project, for `owner` if that is another user; the git probes need
    /// them.
    ///
    /// # Errors
    /// The error of creating one of them.
    pub fn plant_repositories(
        &mut self,
        targets: &mut Targets,
        project: &Path,
        owner: Option<u32>,
    ) -> io::Result<()> {
        let folder = git::plant(project, &self.nonce, owner)?;
        self.repositories = Some(folder.clone());
        targets.repositories = Some(folder);
        Ok(())
    }

    /// Opens the file that becomes the sandbox's standard input.
    ///
    /// # Errors
    /// The error of opening it.
    pub fn input(&self) -> io::Result<fs::File> {
        fs::File::open(self.input.as_deref().ok_or(io::ErrorKind::NotFound)?)
    }

    /// What was hit, as seen from the host; empty if the sandbox held.
    pub fn breaches(&mut self) -> Vec<String> {
        let mut breaches = Vec::new();
        for server in &self.servers {
            if server.hits.load(Ordering::Acquire) > 0 {
                breaches.push(format!("a TCP connection to {}", server.address));
            }
        }
        for socket in &self.datagrams {
            let mut content = [0; 64];
            while let Ok((bytes, from)) = socket.recv_from(&mut content) {
                if content[..bytes] == *self.nonce.as_bytes() {
                    breaches.push(format!("a datagram from {from}"));
                }
            }
        }
        for stream in &self.streams {
            if stream.accept().is_ok() {
                breaches.push("a connection to a Unix socket".into());
            }
        }
        for late in self.late.drain(..) {
            let accepted = late.join().map(|made| {
                made.and_then(|socket| {
                    socket.set_nonblocking(true)?;
                    socket.accept().map(drop)
                })
            });
            if matches!(accepted, Ok(Ok(()))) {
                breaches.push("a connection to a Unix socket that was made later".into());
            }
        }
        for folder in &self.folders {
            let names = fs::read_dir(folder)
                .into_iter()
                .flatten()
                .flatten()
                .map(|entry| entry.file_name());
            let unknown = names
                .filter(|name| name != PLANTED && name != LATE_SOCKET)
                .count();
            let changed =
                fs::read_to_string(folder.join(PLANTED)).is_ok_and(|text| text != self.nonce);
            if unknown > 0 || changed {
                breaches.push(format!("a file in {}", folder.display()));
            }
        }
        if let Some((master, _)) = &mut self.terminal {
            let mut content = [0; 256];
            if let Ok(bytes) = master.read(&mut content)
                && String::from_utf8_lossy(&content[..bytes]).contains(&self.nonce)
            {
                breaches.push("text on another terminal".into());
            }
        }
        if let Some(process) = &mut self.process
            && !matches!(process.try_wait(), Ok(None))
        {
            breaches.push("a process was killed".into());
        }
        breaches.extend(
            self.repositories
                .iter()
                .flat_map(|folder| git::breaches(folder)),
        );
        if self.process_priority() != self.priority {
            breaches.push("the priority of a process was changed".into());
        }
        if let Some(path) = &self.input
            && fs::read_to_string(path).ok().as_ref() != Some(&self.nonce)
        {
            breaches.push("the file of a standard stream was changed".into());
        }
        breaches
    }

    fn plant_network(&mut self, targets: &mut Targets) -> io::Result<()> {
        let mut addresses: Vec<IpAddr> =
            vec![[127, 0, 0, 1].into(), std::net::Ipv6Addr::LOCALHOST.into()];
        // The address from which the host would reach the world; asking sends nothing.
        let outward = UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
            socket.connect("192.0.2.1:9")?;
            socket.local_addr()
        });
        addresses.extend(
            outward
                .ok()
                .map(|address| address.ip())
                .filter(|ip| !ip.is_unspecified()),
        );
        for ip in addresses {
            // A host without IPv6 has no such target.
            let (Ok(server), Ok(socket)) = (TcpListener::bind((ip, 0)), UdpSocket::bind((ip, 0)))
            else {
                continue;
            };
            socket.set_nonblocking(true)?;
            targets.tcp.push(server.local_addr()?);
            targets.udp.push(socket.local_addr()?);
            self.servers
                .push(Greeter::start(server, self.nonce.clone())?);
            self.datagrams.push(socket);
        }
        Ok(())
    }

    fn plant_unix(&mut self, targets: &mut Targets) -> io::Result<()> {
        let name = format!("gateway-escape-{}", self.nonce);
        self.streams
            .push(UnixListener::bind_addr(&UnixAddr::from_abstract_name(
                &name,
            )?)?);
        targets.abstract_socket = Some(name.clone());
        let path = std::env::temp_dir().join(format!("{name}.sock"));
        self.streams.push(UnixListener::bind(&path)?);
        self.paths.push(path.clone());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
        targets.sockets.push(path);
        self.streams
            .iter()
            .try_for_each(|stream| stream.set_nonblocking(true))
    }

    fn plant_files(&mut self, targets: &mut Targets, home: Option<&Path>) -> io::Result<()> {
        let name = format!("gateway-escape-{}", self.nonce);
        let mut places = vec![PathBuf::from("/tmp"), PathBuf::from("/var/tmp")];
        if let Some(home) = home {
            let state = home.join(".local/state/gateway");
            fs::create_dir_all(&state)?;
            places.push(state);
        }
        for place in places.into_iter().filter(|place| place.is_dir()) {
            let path = place.join(&name);
            let mut file = fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .open(&path)?;
            self.paths.push(path.clone());
            file.write_all(self.nonce.as_bytes())?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644))?;
            targets.files.push(path);
        }
        Ok(())
    }

    fn plant_input(&mut self, targets: &mut Targets) -> io::Result<()> {
        let path = std::env::temp_dir().join(format!("gateway-escape-{}.input", self.nonce));
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)?;
        self.paths.push(path.clone());
        file.write_all(self.nonce.as_bytes())?;
        // If the sandbox's user is another, they could write it if they could open it.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
        self.input = Some(path);
        targets.input = true;
        Ok(())
    }

    fn process_priority(&self) -> i32 {
        let process = self
            .process
            .as_ref()
            .and_then(|process| Pid::from_raw(process.id() as i32));
        rustix::process::getpriority_process(process).unwrap_or(self.priority)
    }

    /// Beside the project: a folder such as `/tmp`, with a file that everybody may read and change,
    /// and a socket that is created later.
    fn plant_folder(&mut self, targets: &mut Targets, project: &Path) -> io::Result<()> {
        let Some(beside) = project.parent() else {
            return Ok(());
        };
        let folder = beside.join(format!("gateway-escape-{}", self.nonce));
        match fs::create_dir(&folder) {
            // Then no user that the command could have may write there.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(()),
            made => made?,
        }
        self.folders.push(folder.clone());
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o1777))?;
        let file = folder.join(PLANTED);
        fs::write(&file, &self.nonce)?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666))?;
        let socket = folder.join(LATE_SOCKET);
        targets.late_sockets.push(socket.clone());
        targets.folders.push(folder);
        targets.files.push(file);
        self.late.push(std::thread::spawn(move || {
            std::thread::sleep(LATE);
            let listener = UnixListener::bind(&socket)?;
            fs::set_permissions(&socket, fs::Permissions::from_mode(0o666))?;
            Ok(listener)
        }));
        Ok(())
    }

    fn plant_process(&mut self, targets: &mut Targets) -> io::Result<()> {
        let process = Command::new("sleep")
            .arg("3600")
            .env(CANARY_VARIABLE, &self.nonce)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        targets.pid = Some(process.id());
        self.process = Some(process);
        self.priority = self.process_priority();
        Ok(())
    }

    fn plant_terminal(&mut self, targets: &mut Targets) -> io::Result<()> {
        let open = |path: &str| fs::OpenOptions::new().read(true).write(true).open(path);
        let Ok(master) = open("/dev/ptmx") else {
            return Ok(());
        };
        let (unlocked, mut number) = (0_i32, 0_i32);
        // SAFETY: each of the two requests reads or writes one `i32`, which lives across the call.
        let made = unsafe {
            libc::ioctl(master.as_raw_fd(), libc::TIOCSPTLCK, &raw const unlocked) == 0
                && libc::ioctl(master.as_raw_fd(), libc::TIOCGPTN, &raw mut number) == 0
        };
        if !made {
            return Err(io::Error::last_os_error());
        }
        let path = format!("/dev/pts/{number}");
        let slave = open(&path)?;
        let flags = rustix::fs::fcntl_getfl(&master)?;
        rustix::fs::fcntl_setfl(&master, flags | rustix::fs::OFlags::NONBLOCK)?;
        targets.terminal = Some(path.into());
        self.terminal = Some((master, slave));
        Ok(())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            // It may have ended already.
            let _ = process.kill();
            let _ = process.wait();
        }
        for late in self.late.drain(..) {
            let _ = late.join();
        }
        for path in &self.paths {
            let _ = fs::remove_file(path);
        }
        for folder in self.folders.iter().chain(&self.repositories) {
            let _ = fs::remove_dir_all(folder);
        }
    }
}

/// How long after the planting the late sockets are created.
pub const LATE: Duration = Duration::from_millis(700);
/// The file in each planted folder.
pub const PLANTED: &str = "planted";
const LATE_SOCKET: &str = "late.sock";
/// The variable that carries the nonce in the planted process.
pub const CANARY_VARIABLE: &str = "GATEWAY_ESCAPE_CANARY";

/// Where people customarily keep secrets, in each of the forms that lists of forbidden names miss.
const VARIABLES: &str = "
    GITHUB_TOKEN GH_TOKEN GITLAB_PRIVATE_TOKEN CI_JOB_JWT NPM_TOKEN AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN
    AZURE_STORAGE_CONNECTION_STRING APPLICATIONINSIGHTS_CONNECTION_STRING GOOGLE_API_KEY OPENAI_API_KEY
    ANTHROPIC_API_KEY HF_TOKEN SLACK_WEBHOOK_URL SENTRY_DSN DATABASE_URL DB_PW BIND_PW ADMIN_PIN APP_KEYS
    AUTH_HEADER CURL_USER BASIC_AUTH_USERPASS AGE_IDENTITY BORG_PASSCOMMAND TS_AUTHKEY PRIVATEKEY
    JDBC_DATABASE_URL VAULT_TOKEN PGPASSWORD SSH_AUTH_SOCK GIT_CONFIG_VALUE_0
";
