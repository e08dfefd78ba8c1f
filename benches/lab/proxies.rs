//! The programs that are measured: the product, and its peers where they are.

use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::load::Door;
use crate::origin::{Origin, SECRET};
use crate::phases::{PHASES, Phase, World};

/// Whatever went wrong.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What every user of the proxy with passwords has.
pub const PASSWORD: &str = "laboratory-0123456789";

/// A program that runs, and ends with this.
pub struct Process {
    child: Child,
    /// Where it listens.
    pub address: SocketAddr,
    /// Its folder.
    pub folder: tempfile::TempDir,
}

impl Process {
    /// The processor's time of it and of what it started, in microseconds. The kernel tells it by
    /// the hundredth of a second.
    pub fn worked(&self) -> f64 {
        fn ticks(pid: u32) -> u64 {
            let read = |what: &str| std::fs::read_to_string(format!("/proc/{pid}/{what}"));
            let text = read("stat").unwrap_or_default();
            let fields = text.rsplit(')').next().unwrap_or_default();
            // utime and stime of proc_pid_stat(5), whose third field comes behind the name.
            let own = fields.split_whitespace().skip(14 - 3).take(2);
            let own: u64 = own.filter_map(|field| field.parse::<u64>().ok()).sum();
            let children = read(&format!("task/{pid}/children")).unwrap_or_default();
            let children = children
                .split_whitespace()
                .filter_map(|pid| pid.parse().ok());
            own + children.map(ticks).sum::<u64>()
        }
        ticks(self.child.id()) as f64 * 10_000.0
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let until = Instant::now() + Duration::from_secs(10);
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > until {
                let _ = self.child.kill();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A column of the table.
pub struct Proxy {
    /// Its name.
    pub name: &'static str,
    /// Its processes: the product's by [`World`], those of `ref-rust` by the origin's protocol.
    pub processes: Vec<Process>,
}

impl Proxy {
    /// Whether it is the product.
    pub fn is_own(&self) -> bool {
        ["gateway", "against", "counted"].contains(&self.name)
    }

    /// The process that a phase goes to.
    pub fn process(&self, phase: &Phase) -> Option<&Process> {
        let at = match self.name {
            "ref-rust" => usize::from(phase.domain != "one"),
            "gateway" | "against" => phase.world as usize,
            _ => 0,
        };
        self.processes.get(at)
    }

    /// How a client gets to the phase's origin.
    pub fn door(&self, phase: &Phase, origin: &Origin) -> Door {
        let to = match &*phase.domain {
            "one" if self.name == "direct" && phase.two => origin.two,
            "one" => origin.one,
            "two" => origin.two,
            _ => origin.far,
        };
        let address = self.process(phase).map_or(to, |process| process.address);
        let (connect, host) = match self.name {
            "direct" => (false, format!("localhost:{}", to.port())),
            "nginx" => (false, "localhost".to_owned()),
            _ if self.is_own() => (true, phase.host()),
            _ => (true, format!("localhost:{}", to.port())),
        };
        // What a proxy replaces.
        let token = self.process(phase).map_or(SECRET, |_| "client-token-xyz");
        Door {
            address,
            connect,
            host,
            token,
        }
    }

    /// What the phase presents: a phantom of the product's, and to peers what they cannot put in.
    pub fn phantom(&self, phase: &Phase) -> String {
        let held = self.process(phase).filter(|_| self.is_own());
        let held = held.map(|one| std::fs::read_to_string(one.folder.path().join("phantoms.env")));
        let held = held.and_then(Result::ok).unwrap_or_default();
        let held = held.lines().find_map(|line| line.strip_prefix("LAB_KEY="));
        held.unwrap_or(SECRET).to_owned()
    }
}

fn free() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

/// Starts a program in a folder of its own with these files.
fn start(
    mut command: Command,
    address: SocketAddr,
    files: &[(&str, &String)],
) -> Result<Process, Failure> {
    let folder = tempfile::tempdir()?;
    let path = folder.path();
    for (name, text) in files {
        std::fs::write(path.join(name), text)?;
    }
    // The audit log's folder is private, and workers of nginx, who are nobody, enter this one.
    std::fs::create_dir(path.join("audit"))?;
    std::fs::set_permissions(path.join("audit"), PermissionsExt::from_mode(0o700))?;
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o711))?;
    let secrets = [
        ("LAB_TOKEN", SECRET),
        ("LAB_KEY", SECRET),
        ("LAB_USER", PASSWORD),
    ];
    command
        .current_dir(path)
        .env("XDG_STATE_HOME", path)
        .envs(secrets);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(std::fs::File::create(path.join("log"))?);
    let child = command.spawn()?;
    let mut process = Process {
        child,
        address,
        folder,
    };
    let until = Instant::now() + Duration::from_secs(300);
    while std::net::TcpStream::connect(address).is_err() {
        let ended = process.child.try_wait()?;
        if ended.is_some() || Instant::now() > until {
            let log = std::fs::read_to_string(process.folder.path().join("log"))?;
            return Err(format!("it does not start: {command:?}\n{log}").into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(process)
}

/// A configuration of the product.
fn configuration(world: World, threads: usize, at: SocketAddr, origin: &Origin) -> String {
    let lent = PHASES.iter().filter(|phase| phase.is_lent());
    let lent: String = lent
        .map(|one| format!("\"https://{}\", ", one.host()))
        .collect();
    let users = (0..1000).map(|user| format!("user{user} = \"env:LAB_USER\""));
    let users = users.collect::<Vec<_>>().join(", ");
    let listener = match world {
        World::Sessions => {
            format!("session = \"{{caller}}\"\nwho = [\"password\"]\npasswords = {{ {users} }}\n")
        }
        _ => "session = \"lab\"\nany_user = true\n[phantoms]\nenv_file = \"phantoms.env\"\n".into(),
    };
    fill(
        include_str!("gateway.toml"),
        &[
            ("{threads}", &threads.to_string()),
            ("{lent}", &lent),
            ("{one}", &origin.one.to_string()),
            ("{two}", &origin.two.to_string()),
            ("{far}", &origin.far.to_string()),
            ("{address}", &at.to_string()),
            ("{listener}", &listener),
        ],
    )
}

fn fill(text: &str, marks: &[(&str, &str)]) -> String {
    let text = text.to_owned();
    marks
        .iter()
        .fold(text, |text, (mark, with)| text.replace(mark, with))
}

/// A policy for each phase, and rules that do not apply: nine in ten for other hosts, one in ten
/// for paths of each host of the laboratory.
fn policies(rules: usize) -> String {
    let who = "principal in Gateway::Group::\"lab\"";
    let any = "action in Gateway::Action::\"any\", resource";
    let phases = PHASES.iter().map(|phase| {
        let (name, host, condition) = (&phase.name, phase.host(), &phase.condition);
        format!(
            "@id(\"lab/{name}\") permit({who}, {any} == Gateway::Host::\"{host}\") \
             when {{ context.port == 443 && context.depth < 8 && {condition} }};\n"
        )
    });
    let places = [
        ("TOKEN", "header:authorization:Bearer"),
        ("KEY", "json:/auth/token"),
    ];
    let places = places.iter().map(|(name, place)| {
        format!(
            "@id(\"lab/lend-{name}\") permit({who}, action == Gateway::Action::\"lend\", \
             resource == Gateway::Credential::\"LAB_{name}\") when {{ context.place == \"{place}\" }};\n"
        )
    });
    let further = (0..rules).map(|nth| {
        let own = "in Gateway::Domain::\"one.test\"";
        let rule = match nth % 20 {
            0 => format!(
                "permit({who}, {any} {own}) when {{ context.prefixes.contains(\"/more/{nth}\") }}"
            ),
            1 => format!(
                "forbid({who}, {any} {own}) when {{ context.path like \"/never/{nth}/*\" }}"
            ),
            _ => format!(
                "permit({who}, {any} == Gateway::Host::\"other{}.test\") \
                 when {{ context.prefixes.contains(\"/repos/{nth}\") }}",
                nth % 1000
            ),
        };
        format!("@id(\"lab/further/{nth}\") {rule};\n")
    });
    phases.chain(places).chain(further).collect()
}

/// Starts the product, by a command in front of it where there is one.
pub fn gateway(
    before: &str,
    program: &Path,
    world: World,
    (threads, rules): (usize, usize),
    origin: &Origin,
) -> Result<Process, Failure> {
    let address = free();
    let rules = if world == World::Rules { rules } else { 0 };
    let config = configuration(world, threads, address, origin);
    let policies = policies(rules);
    let files = [
        ("ca.pem", &origin.keys.ca),
        ("policy.cedar", &policies),
        ("gateway.toml", &config),
    ];
    let mut words = before.split_whitespace().map(Path::new).chain([program]);
    let mut command = Command::new(words.next().unwrap_or(program));
    command
        .args(words)
        .args(["serve", "--config", "gateway.toml"]);
    start(command, address, &files)
}

/// Starts the peers that there are: `ref-rust` and `hudsucker-lab` in a folder, and nginx.
pub fn peers(folder: Option<&Path>, origin: &Origin) -> Vec<Proxy> {
    let keys = &origin.keys;
    let (ca, leaf) = ((&keys.ca, &keys.ca_key), (&keys.leaf, &keys.leaf_key));
    let bearer = format!("Bearer {SECRET}");
    let run = |program: &str, address: SocketAddr, words: &str, config: &String| {
        let program = match folder.map(|folder| std::fs::canonicalize(folder.join(program))) {
            Some(Ok(path)) => path,
            _ => PathBuf::from(program),
        };
        let mut command = Command::new(program);
        command.args(
            words
                .split_whitespace()
                .map(|word| word.replace("BEARER", &bearer)),
        );
        let files = [
            ("ca.pem", ca.0),
            ("ca.key", ca.1),
            ("leaf.pem", leaf.0),
            ("leaf.key", leaf.1),
        ];
        start(
            command,
            address,
            &[&files[..], &[("nginx.conf", config)]].concat(),
        )
    };
    let rust = |up| {
        let at = free();
        let words = format!("--addr {at} --ca ca.pem --ca-key ca.key --up-ca ca.pem --rt per-core");
        run(
            "ref-rust",
            at,
            &format!("{words} --secret BEARER --up {up}"),
            &String::new(),
        )
    };
    let hudsucker = || {
        let at = free();
        run(
            "hudsucker-lab",
            at,
            &format!("{at} ca.pem ca.key ca.pem BEARER"),
            &String::new(),
        )
    };
    let nginx = || {
        let (at, one) = (free(), origin.one.to_string());
        let marks = [
            ("{one}", &*one),
            ("{address}", &at.to_string()),
            ("{bearer}", &bearer),
        ];
        run(
            "nginx",
            at,
            "-p . -e log -c nginx.conf",
            &fill(include_str!("nginx.conf"), &marks),
        )
    };
    let started = [
        (
            "ref-rust",
            rust("h1").and_then(|one| Ok(vec![one, rust("h2")?])),
        ),
        ("hudsucker", hudsucker().map(|one| vec![one])),
        ("nginx", nginx().map(|one| vec![one])),
    ];
    let is_there = |(name, processes): (&'static str, Result<Vec<Process>, Failure>)| {
        let told = processes.inspect_err(|why| eprintln!("not compared with {name}: {why}"));
        Some(Proxy {
            name,
            processes: told.ok()?,
        })
    };
    started.into_iter().filter_map(is_there).collect()
}
