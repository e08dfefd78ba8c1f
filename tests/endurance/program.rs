//! The real program: its configuration, its process, what the kernel says about it, and its log.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::addresses::free;
use crate::origin::{Origin, SECRET};

/// What differs from test to test.
#[derive(Clone)]
pub struct Setup {
    /// Lines of `[limits]`.
    pub limits: &'static str,
    /// `lifetime` of `[ca]`.
    pub lifetime: &'static str,
    /// `idle` of `[ca]`.
    pub idle: &'static str,
    /// `sync` of `[audit]`.
    pub sync: &'static str,
    /// Policy files by name, instead of one that permits everything.
    pub policies: Vec<(String, String)>,
    /// How many threads serve.
    pub threads: usize,
    /// A small file system for the audit log: its size, for `mount -o size=`.
    pub small_disk: Option<&'static str>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            limits: "",
            lifetime: "24h",
            idle: "200d",
            sync: "batch",
            policies: vec![("all.cedar".to_owned(), permit_all())],
            threads: 1,
            small_disk: None,
        }
    }
}

fn permit_all() -> String {
    let host = r#"Gateway::Domain::"origin.test""#;
    format!(
        "@id(\"t/ask\") permit(principal, action in Gateway::Action::\"any\", resource in {host});
         @id(\"t/lend\") permit(principal, action == Gateway::Action::\"lend\", resource == Gateway::Credential::\"TOKEN\")
         when {{ context.origin in {host} }};"
    )
}

/// A running `gateway serve`.
pub struct Program {
    pub folder: PathBuf,
    pub address: SocketAddr,
    /// The explicit proxy of the same session.
    pub proxy: SocketAddr,
    /// The phantom that the workload has instead of the secret.
    pub phantom: String,
    process: Child,
    starts: usize,
    small_disk: bool,
    _kept: tempfile::TempDir,
}

impl Program {
    pub fn start(origin: &Origin, setup: Setup) -> Self {
        let kept = tempfile::tempdir().unwrap();
        let folder = kept.path().to_owned();
        fs::create_dir(folder.join("policies")).unwrap();
        for (name, text) in &setup.policies {
            fs::write(folder.join("policies").join(name), text).unwrap();
        }
        private(&folder.join("secret"), SECRET);
        fs::create_dir(folder.join("log")).unwrap();
        fs::set_permissions(folder.join("log"), fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(folder.join("origin.pem"), &origin.authority).unwrap();
        let [address, proxy] = [free(), free()];
        let text = config([address, proxy], origin, &setup);
        fs::write(folder.join("gateway.toml"), text).unwrap();
        let process = match setup.small_disk {
            None => launch(&folder, &[]),
            Some(size) => launch_on_small_disk(&folder, size),
        };
        let mut program = Self {
            folder,
            address,
            proxy,
            phantom: String::new(),
            process,
            starts: 1,
            small_disk: setup.small_disk.is_some(),
            _kept: kept,
        };
        program.await_service();
        program
    }

    /// Ends the process in the middle of its work, as `kill -9` does.
    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Ends the process as a service manager does.
    pub fn stop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.process.wait().unwrap();
    }

    /// Starts it anew in the same folder.
    pub fn restart(&mut self) {
        self.restart_with(&[]);
    }

    /// The same with further flags.
    pub fn restart_with(&mut self, flags: &[&str]) {
        self.process = launch(&self.folder, flags);
        self.starts += 1;
        self.await_service();
    }

    /// Its control socket.
    pub fn control_socket(&self) -> PathBuf {
        let name = format!("serve-{}.sock", self.process.id());
        self.folder.join(".local/state/gateway/run").join(name)
    }

    /// Runs a command of the operator, and returns what it prints.
    pub fn command(&self, arguments: &[&str]) -> String {
        let output = command(env!("CARGO_BIN_EXE_gateway"), &self.folder)
            .args(arguments)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }

    /// Waits until the process has ended, and returns its exit code.
    pub async fn ended(&mut self) -> Option<i32> {
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status.code();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until it says that it serves; by then the CA's certificate and the phantoms are
    /// written. It accepts connections earlier.
    fn await_service(&mut self) {
        let began = Instant::now();
        while self.said().matches("gateway: session `agent-1` on").count() < 2 * self.starts {
            let ended = self.process.try_wait().unwrap();
            assert!(
                ended.is_none() && began.elapsed() < Duration::from_secs(30),
                "the gateway did not come up: {}",
                self.said()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        let phantoms = fs::read_to_string(self.folder.join("phantoms.env")).unwrap();
        self.phantom = phantoms.trim().strip_prefix("TOKEN=").unwrap().to_owned();
        assert_ne!(self.phantom, SECRET);
    }

    /// What it wrote on standard error.
    pub fn said(&self) -> String {
        fs::read_to_string(self.folder.join("stderr")).unwrap_or_default()
    }

    pub fn reload(&self) {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    }

    fn status(&self, field: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(field))
            .unwrap();
        line.trim_start_matches(':')
            .trim()
            .trim_end_matches(" kB")
            .parse()
            .unwrap()
    }

    /// The memory that it uses now, in KiB.
    pub fn resident_kib(&self) -> u64 {
        self.status("VmRSS")
    }

    /// The most memory that it ever used, in KiB.
    pub fn peak_kib(&self) -> u64 {
        self.status("VmHWM")
    }

    /// The processor time that it has used, to the hundredth of a second.
    pub fn worked(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process.id())).unwrap();
        let fields: Vec<&str> = stat
            .rsplit(')')
            .next()
            .unwrap()
            .split_whitespace()
            .collect();
        // proc_pid_stat(5): utime and stime; the third field is the first after the name.
        let ticks = |at: usize| fields[at - 3].parse::<u64>().unwrap();
        Duration::from_millis(10 * (ticks(14) + ticks(15)))
    }

    /// Its open descriptors. Only root can count them, because the process is closed to its own
    /// user.
    pub fn descriptors(&self) -> Option<usize> {
        let listed = fs::read_dir(format!("/proc/{}/fd", self.process.id())).ok()?;
        Some(listed.count())
    }

    /// Its ends of clients' connections that the kernel still has, which anybody can count.
    pub fn client_sockets(&self) -> usize {
        let port = format!(":{:04X}", self.address.port());
        let table = fs::read_to_string("/proc/net/tcp").unwrap();
        let open = ["01", "08"]; // ESTABLISHED, CLOSE_WAIT
        table
            .lines()
            .filter(|line| {
                let columns: Vec<&str> = line.split_whitespace().collect();
                columns[1].ends_with(&port) && open.contains(&columns[3])
            })
            .count()
    }

    pub fn log(&self) -> PathBuf {
        self.folder.join("log/audit.jsonl")
    }

    /// The records of the log, oldest first; every line is JSON or the mark of a torn one.
    pub fn records(&self) -> Vec<Value> {
        let text = fs::read(self.log()).unwrap();
        text.split(|byte| *byte == b'\n')
            .filter_map(|line| serde_json::from_slice(line).ok())
            .collect()
    }

    /// Runs `gateway log verify` and returns whether the chain verifies, and the output.
    pub fn verify(&self) -> (bool, String) {
        self.verify_file(&self.log())
    }

    /// The same for a copy.
    pub fn verify_file(&self, log: &Path) -> (bool, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_gateway"))
            .args(["log", "verify"])
            .arg(log)
            .output()
            .unwrap();
        (
            matches!(output.status.code(), Some(0 | 3 | 4)),
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned(),
        )
    }

    /// Fills or frees the small disk, and waits until that is done.
    pub fn disk(&mut self, order: &str) {
        use std::io::{BufRead, BufReader, Write};
        assert!(self.small_disk);
        writeln!(self.process.stdin.as_mut().unwrap(), "{order}").unwrap();
        let mut done = String::new();
        // Each order produces one line, so the reader's buffer loses nothing.
        BufReader::new(self.process.stdout.as_mut().unwrap())
            .read_line(&mut done)
            .unwrap();
        assert_eq!(done.trim(), order, "{}", self.said());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // If a test failed, the gateway's output is part of the finding.
        if std::thread::panicking() {
            eprintln!("gateway: {}", self.said());
        }
        drop(self.process.stdin.take());
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn config([address, proxy]: [SocketAddr; 2], origin: &Origin, setup: &Setup) -> String {
    let hosts: String = [
        ("one", origin.port, "1.1"),
        ("two", origin.port, "2"),
        ("raw", origin.raw_port, "1.1"),
    ]
    .map(|(host, port, version)| {
        format!(
            "[[origin]]\nmatch = \"https://{host}.origin.test\"\nroots = [\"origin.pem\"]\nreplace_system_roots = true
                 connect = \"127.0.0.1:{port}\"\nhttp = \"{version}\"\n"
        )
    })
    .concat();
    format!(
        "[ca]\ncertificate = \"ca.pem\"\nlifetime = \"{}\"\nidle = \"{}\"\n[audit]\npath = \"log/audit.jsonl\"\nsync = \"{}\"\n[policy]\nfiles = [\"policies/*.cedar\"]
         [phantoms]\nenv_file = \"phantoms.env\"\n[limits]\n{}\n[runtime]\nthreads = {}\n[[listener]]\nkind = \"tls\"\naddress = \"{address}\"\nsession = \"agent-1\"
         [[listener]]\nkind = \"proxy\"\naddress = \"{proxy}\"\nsession = \"agent-1\"
         [[credential]]\nname = \"TOKEN\"\nfrom = \"file:secret\"\norigins = [\"https://*.origin.test\"]
         places = [\"header:authorization:Bearer\"]\n{hosts}",
        setup.lifetime, setup.idle, setup.sync, setup.limits, setup.threads
    )
}

fn command(program: &str, folder: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .current_dir(folder)
        .env_clear()
        .env("HOME", folder)
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .stderr(
            File::options()
                .create(true)
                .append(true)
                .open(folder.join("stderr"))
                .unwrap(),
        );
    command
}

fn launch(folder: &Path, flags: &[&str]) -> Child {
    command(env!("CARGO_BIN_EXE_gateway"), folder)
        .args(["serve", "--config", "gateway.toml"])
        .args(flags)
        .stdin(Stdio::null())
        .spawn()
        .unwrap()
}

/// The same with the log on its own tmpfs, which a helper inside the mount namespace fills and
/// frees.
fn launch_on_small_disk(folder: &Path, size: &str) -> Child {
    let script = format!(
        "exec 3<&0
         mount -t tmpfs -o size={size},mode=0700 tmpfs log || exit 1
         while read order; do
           case $order in
             fill) dd if=/dev/zero of=log/filler bs=4096 2>/dev/null; dd if=/dev/zero bs=1 count=4096 >>log/filler 2>/dev/null;;
             free) rm log/filler;;
             copy) cp log/audit.jsonl copy.jsonl;;
           esac
           echo $order
         done <&3 3<&- &
         exec {} serve --config gateway.toml </dev/null >/dev/null",
        env!("CARGO_BIN_EXE_gateway")
    );
    let mut command = command("unshare", folder);
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command
        .args(["--mount", "sh", "-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

pub fn private(path: &Path, text: &str) {
    use std::io::Write;
    let mut file = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .unwrap();
    file.write_all(text.as_bytes()).unwrap();
}
