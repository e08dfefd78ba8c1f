//! The host's side of the probes: creates targets, and watches whether any was hit.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

use gateway_names::hex;
use rustix::process::Pid;

use super::git;
use super::greeter::Greeter;
use super::stores::STORES;
use super::targets::{CANARY_VARIABLE, LATE, OpenedPorts, PLANTED, Targets};
use crate::hide;

/// Owns what was planted; removes it when dropped.
#[derive(Debug, Default)]
pub struct Fixtures {
    nonce: String,
    servers: Vec<Greeter>,
    /// The one that the sandbox may reach.
    opened: Option<Greeter>,
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

impl Fixtures {
    /// Plants targets for the probes: sockets, a process, a terminal and files. The files are under
    /// `/tmp` and in the gateway's own state directory under `home`. Also plants a folder beside
    /// `project` that everybody may write to.
    ///
    /// # Errors
    /// The error of creating one of them.
    pub fn plant(home: Option<&Path>, project: &Path) -> io::Result<(Targets, Self)> {
        let mut bytes = [0_u8; 16];
        getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
        let nonce = hex(&bytes);
        let mut fixtures = Self::default();
        fixtures.nonce.clone_from(&nonce);
        let mut targets = Targets {
            nonce,
            variables: VARIABLES.split_whitespace().map(str::to_owned).collect(),
            ..Targets::default()
        };
        fixtures.plant_network(&mut targets)?;
        fixtures.plant_unix(&mut targets)?;
        fixtures.plant_files(&mut targets, home)?;
        fixtures.plant_input(&mut targets)?;
        fixtures.plant_folder(&mut targets, project)?;
        fixtures.plant_process(&mut targets)?;
        fixtures.plant_terminal(&mut targets)?;
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
        Ok((targets, fixtures))
    }

    /// Plants a server that the sandbox may reach, and chooses a port to publish.
    ///
    /// # Errors
    /// The error of listening.
    pub fn plant_ports(&mut self, targets: &mut Targets) -> io::Result<()> {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        // Another process could take it until the gateway does, which then says so.
        let published = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let greeting = format!("opened-{}", self.nonce);
        targets.ports = Some(OpenedPorts {
            host: server.local_addr()?.port(),
            greeting: greeting.clone(),
            published: published.port(),
            inside: INSIDE,
        });
        self.opened = Some(Greeter::start(server, greeting)?);
        Ok(())
    }

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
        let mut breaches = self.connections();
        breaches.extend(self.late_connections());
        breaches.extend(self.changed_folders());
        if self.terminal_was_written() {
            breaches.push("text on another terminal".into());
        }
        if let Some(process) = &mut self.process
            && !matches!(process.try_wait(), Ok(None))
        {
            breaches.push("a process was killed".into());
        }
        let repositories = self.repositories.iter();
        breaches.extend(repositories.flat_map(|folder| git::breaches(folder)));
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

    fn connections(&self) -> Vec<String> {
        let mut breaches = Vec::new();
        for server in &self.servers {
            if server.was_reached() {
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
        breaches
    }

    fn late_connections(&mut self) -> Vec<String> {
        let was_reached = |late: JoinHandle<io::Result<UnixListener>>| {
            let accepted = late.join().map(|made| {
                made.and_then(|socket| {
                    socket.set_nonblocking(true)?;
                    socket.accept().map(drop)
                })
            });
            matches!(accepted, Ok(Ok(())))
        };
        let reached = self.late.drain(..).filter_map(|late| {
            was_reached(late).then(|| "a connection to a Unix socket that was made later".into())
        });
        reached.collect()
    }

    fn changed_folders(&self) -> Vec<String> {
        let is_changed = |folder: &&PathBuf| {
            let mut names = fs::read_dir(folder)
                .into_iter()
                .flatten()
                .flatten()
                .map(|entry| entry.file_name());
            let planted = fs::read_to_string(folder.join(PLANTED));
            names.any(|name| name != PLANTED && name != LATE_SOCKET)
                || planted.is_ok_and(|text| text != self.nonce)
        };
        let changed = self.folders.iter().filter(is_changed);
        changed
            .map(|folder| format!("a file in {}", folder.display()))
            .collect()
    }

    fn terminal_was_written(&mut self) -> bool {
        let Some((master, _)) = &mut self.terminal else {
            return false;
        };
        let mut content = [0; 256];
        let Ok(bytes) = master.read(&mut content) else {
            return false;
        };
        String::from_utf8_lossy(&content[..bytes]).contains(&self.nonce)
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
            targets
                .files
                .push(self.write_nonce(place.join(&name), 0o644)?);
        }
        Ok(())
    }

    fn plant_input(&mut self, targets: &mut Targets) -> io::Result<()> {
        let path = std::env::temp_dir().join(format!("gateway-escape-{}.input", self.nonce));
        // If the sandbox's user is another, they could write it if they could open it.
        self.input = Some(self.write_nonce(path, 0o666)?);
        targets.input = true;
        Ok(())
    }

    /// Creates a file that holds the nonce, and is removed with the others.
    fn write_nonce(&mut self, path: PathBuf, mode: u32) -> io::Result<PathBuf> {
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)?;
        self.paths.push(path.clone());
        file.write_all(self.nonce.as_bytes())?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
        Ok(path)
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
        // Not the name of a file of ours: the project may lie in `/tmp` itself.
        let folder = beside.join(format!("gateway-escape-folder-{}", self.nonce));
        match fs::create_dir(&folder) {
            // In this case, no user that the command could have may write there.
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

impl Drop for Fixtures {
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
