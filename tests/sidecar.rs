//! Capture beside a sandbox: the shipped program and its rules in networks of the test's own, where
//! what gets out would reach an origin.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Where the origin is, beyond the router.
/// What a workload sees whose connections are captured.
const CAPTURED: &[(&[&str], &str)] = &[
    (&["get", V4, "80", V4], "200 origin"),
    (&["get", V6, "8081", V6], "200 origin"),
    (&["get", V4, "8081", V4], "403"),
    (&["get", V4, "80", "evil.test"], "403"),
    (&["dns", "9.9.9.9", "good.test"], "200 origin"),
    (&["dns", "2620:fe::fe", "good.test"], "200 origin"),
    (&["dns-tcp", "9.9.9.9", "good.test"], "200 origin"),
    (&["dns-tcp", "2620:fe::fe", "good.test"], "200 origin"),
    (&["dns", "9.9.9.9", "evil.test"], "403"),
    (&["udp", V4, "443"], "refused at once"),
    (&["udp", V6, "443"], "refused at once"),
];
const V4: &str = "93.184.216.34";
const V6: &str = "2606:2800::34";
/// The user that the gateway runs as, and the workload.
const GATEWAY: &str = "1337";
const WORKLOAD: &str = "1000";

/// A network whose processes are started by `nsenter`; it ends with its holder.
struct Network(Child);

impl Network {
    fn new() -> Self {
        let holder = Command::new("unshare")
            .args(["--net", "--", "sleep", "600"])
            .spawn()
            .unwrap();
        let network = Self(holder);
        let own = fs::read_link("/proc/self/ns/net").unwrap();
        let path = format!("/proc/{}/ns/net", network.0.id());
        while fs::read_link(&path).is_ok_and(|link| link == own) {
            std::thread::sleep(Duration::from_millis(2));
        }
        network
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args(["--net", "--target", &self.0.id().to_string(), "--"])
            .args(words);
        command
    }

    fn run(&self, line: &str) {
        succeed(self.command(&line.split(' ').collect::<Vec<_>>()));
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn succeed(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{:?}: {}",
        command.get_program(),
        said(&output)
    );
    said(&output)
}

fn said(output: &Output) -> String {
    [&output.stdout[..], &output.stderr]
        .map(String::from_utf8_lossy)
        .concat()
}

fn ip(line: &str) {
    let mut command = Command::new("ip");
    command.args(line.split(' '));
    succeed(command);
}

/// This network with a gateway, the origin's behind it, and with `--mode router` the sandbox's.
struct World {
    folder: tempfile::TempDir,
    rules: Vec<&'static str>,
    gateway: Option<Child>,
    origin: Child,
    sandbox: Option<Network>,
    out: Network,
}

impl World {
    fn new(mode: &'static str) -> Self {
        assert!(
            rustix::process::geteuid().is_root(),
            "these tests are several users"
        );
        let out = Network::new();
        ip("link set lo up");
        link(&out, "up0", "10.9.0", "fd09:");
        for address in [V4, V6] {
            out.run(&format!("ip addr add {address} dev lo"));
        }
        let mut rules = vec!["--mode", mode, "--port", "15001", "--dns-port", "15053"];
        let sandbox = (mode == "router").then(|| {
            let sandbox = inward(&out, "g0", "10.8.0", "fd08:");
            fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
            fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap();
            sandbox
        });
        rules.extend(match mode {
            "router" => ["--interface", "g0"],
            _ => ["--exempt-uid", GATEWAY],
        });
        let origin = out
            .command(&["/usr/bin/python3", "-c", ORIGIN])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let folder = tempfile::tempdir().unwrap();
        let world = Self {
            folder,
            rules,
            gateway: None,
            origin,
            sandbox,
            out,
        };
        world.wait("the origin", || {
            world.probe_as(GATEWAY, &["get", V4, "80", V4]) == "200 origin"
                || world.probe(&["get", V4, "80", V4]) == "200 origin"
        });
        world
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn wait(&self, what: &str, is_so: impl Fn() -> bool) {
        let until = Instant::now() + Duration::from_secs(20);
        while !is_so() {
            assert!(Instant::now() < until, "{what}: {}", self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.at("said")).unwrap_or_default()
    }

    fn serve(&mut self) {
        self.serve_by(CONFIG);
    }

    fn serve_by(&mut self, config: &str) {
        fs::write(self.at("gateway.toml"), config).unwrap();
        fs::set_permissions(self.folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        own(self.folder.path());
        own(&self.at("gateway.toml"));
        let said = fs::File::create(self.at("said")).unwrap();
        let mut serve = self.as_gateway(None, &["serve", "--config", "gateway.toml"]);
        let child = serve.stderr(said).spawn().unwrap();
        self.gateway = Some(child);
        self.wait("the gateway starts", || self.log().contains(":15053"));
    }

    /// The program as the gateway's user, here or in another network.
    fn as_gateway(&self, network: Option<&Network>, words: &[&str]) -> Command {
        let user = ["setpriv", "--reuid", GATEWAY, "--regid", GATEWAY];
        let may = ["--clear-groups", "--inh-caps", "+net_raw", "--ambient-caps"];
        let program = ["+net_raw", "--", env!("CARGO_BIN_EXE_gateway")];
        let words = [&user[..], &may, &program, words].concat();
        let mut command = match network {
            Some(network) => network.command(&words),
            None => Command::new(words[0]),
        };
        if network.is_none() {
            command.args(&words[1..]);
        }
        command
            .current_dir(self.folder.path())
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.folder.path())
            .env("XDG_RUNTIME_DIR", self.folder.path())
            .stdin(Stdio::null());
        command
    }

    /// Starts the gateway in a network beyond the router.
    fn serve_elsewhere(&mut self, far: &Network) {
        let said = fs::File::create(self.at("said")).unwrap();
        let serve = ["serve", "--config", "gateway.toml"];
        let mut serve = self.as_gateway(Some(far), &serve);
        self.gateway = Some(serve.stderr(said).spawn().unwrap());
        self.wait("the gateway starts", || self.log().contains(":8443"));
    }

    /// Writes what the gateway elsewhere needs.
    fn configure_elsewhere(&self) {
        let pair = rcgen::generate_simple_self_signed(["10.7.0.2".into()]).unwrap();
        let key = pair.signing_key.serialize_pem();
        let listeners = CONFIG.find("[[listener]]").unwrap()..CONFIG.find("[[origin]]").unwrap();
        let mut config = CONFIG.to_owned();
        config.replace_range(listeners, ELSEWHERE);
        fs::set_permissions(self.folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        own(self.folder.path());
        for (name, text) in [
            ("gateway.toml", config),
            ("proxy.pem", pair.cert.pem()),
            ("proxy.key", key),
        ] {
            fs::write(self.at(name), text).unwrap();
            fs::set_permissions(self.at(name), fs::Permissions::from_mode(0o600)).unwrap();
            own(&self.at(name));
        }
    }

    /// A network beyond the router.
    fn far(&self) -> Network {
        let far = Network::new();
        let id = far.0.id();
        for line in [
            &format!("ip link add far0 type veth peer name eth0 netns {id}"),
            "ip addr add 10.7.0.1/24 dev far0",
            "ip -6 addr add fd07::1/64 dev far0 nodad",
            "ip link set far0 up",
            "sh -c echo${IFS}1>/proc/sys/net/ipv4/ip_forward",
        ] {
            self.out.run(line);
        }
        behind(&far, "eth0", "10.7.0", "fd07:");
        far
    }

    /// A sidecar that leads there.
    fn sidecar(&self) -> Command {
        let to = [
            "sidecar",
            "--to",
            "https://10.7.0.2:8443",
            "--ca",
            "proxy.pem",
        ];
        let token = ["--token-from", "file:token", "--transparent", "[::]:15001"];
        let words = [&to[..], &token, &["--dns", "[::]:15053"]].concat();
        self.as_gateway(None, &words)
    }

    fn stop(&mut self) {
        let mut gateway = self.gateway.take().unwrap();
        gateway.kill().unwrap();
        gateway.wait().unwrap();
    }

    fn rules(&self, what: &str) -> (i32, String) {
        self.rules_as(&[], what)
    }

    fn rules_as(&self, before: &[&str], what: &str) -> (i32, String) {
        let words = [before, &[env!("CARGO_BIN_EXE_gateway"), "sidecar", "rules"]].concat();
        let mut command = Command::new(words[0]);
        let output = command
            .args(&words[1..])
            .args(&self.rules)
            .arg(what)
            .output()
            .unwrap();
        (output.status.code().unwrap(), said(&output))
    }

    /// What `gateway sidecar check` says as a user, after more of `setpriv`.
    fn check_as(&self, uid: &str, more: &[&str], mode: &str) -> (i32, String) {
        let user = ["setpriv", "--reuid", uid, "--regid", uid, "--clear-groups"];
        let check = [
            env!("CARGO_BIN_EXE_gateway"),
            "sidecar",
            "check",
            "--mode",
            mode,
        ];
        let words = [&user[..], more, &["--"], &check].concat();
        let mut command = match &self.sandbox {
            Some(sandbox) => sandbox.command(&words),
            None => Command::new(words[0]),
        };
        if self.sandbox.is_none() {
            command.args(&words[1..]);
        }
        let output = command.output().unwrap();
        (output.status.code().unwrap(), said(&output))
    }

    /// What the workload sees.
    fn probe(&self, words: &[&str]) -> String {
        self.probe_as(WORKLOAD, words)
    }

    fn probe_as(&self, uid: &str, words: &[&str]) -> String {
        succeed(self.probing(self.sandbox.as_ref(), uid, words))
            .trim()
            .to_owned()
    }

    fn probing(&self, network: Option<&Network>, uid: &str, words: &[&str]) -> Command {
        let user = [
            "setpriv",
            "--reuid",
            uid,
            "--clear-groups",
            "--",
            "/usr/bin/python3",
        ];
        let program = [&user[..], &["-c", PROBE], words].concat();
        let mut command = match network {
            Some(network) => network.command(&program),
            None => Command::new(program[0]),
        };
        if network.is_none() {
            command.args(&program[1..]);
        }
        command
    }

    #[track_caller]
    fn sees(&self, rows: &[(&[&str], &str)]) {
        for (words, wanted) in rows {
            assert_eq!(self.probe(words), *wanted, "{words:?}\n{}", self.log());
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for child in self.gateway.iter_mut().chain([&mut self.origin]) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn own(path: &Path) {
    let uid = GATEWAY.parse().ok();
    std::os::unix::fs::chown(path, uid, uid).unwrap();
}

/// Links this network with one that is its way out.
fn link(out: &Network, name: &str, v4: &str, v6: &str) {
    let outward = format!("link add {name} type veth peer name in0 netns");
    ip(&format!("{outward} {}", out.0.id()));
    ip(&format!("addr add {v4}.2/24 dev {name}"));
    ip(&format!("-6 addr add {v6}:2/64 dev {name} nodad"));
    ip(&format!("link set {name} up"));
    for line in [
        "ip link set lo up",
        &format!("ip addr add {v4}.1/24 dev in0"),
        &format!("ip -6 addr add {v6}:1/64 dev in0 nodad"),
        "ip link set in0 up",
    ] {
        out.run(line);
    }
    ip(&format!("route add default via {v4}.1"));
    ip(&format!("-6 route add default via {v6}:1"));
}

/// A sandbox's network, of which an interface here is the only way out.
fn inward(out: &Network, name: &str, v4: &str, v6: &str) -> Network {
    let sandbox = Network::new();
    let inward = format!("link add {name} type veth peer name eth0 netns");
    ip(&format!("{inward} {}", sandbox.0.id()));
    ip(&format!("addr add {v4}.1/24 dev {name}"));
    ip(&format!("-6 addr add {v6}:1/64 dev {name} nodad"));
    ip(&format!("link set {name} up"));
    behind(&sandbox, "eth0", v4, v6);
    // What would be forwarded finds its way back.
    out.run(&format!("ip route replace {v4}.0/24 via 10.9.0.2"));
    out.run(&format!("ip -6 route replace {v6}:/64 via fd09::2"));
    sandbox
}

/// Gives a network its addresses, and a way out by `.1`.
fn behind(network: &Network, name: &str, v4: &str, v6: &str) {
    for line in [
        "ip link set lo up",
        &format!("ip addr add {v4}.2/24 dev {name}"),
        &format!("ip -6 addr add {v6}:2/64 dev {name} nodad"),
        &format!("ip link set {name} up"),
        &format!("ip route add default via {v4}.1"),
        &format!("ip -6 route add default via {v6}:1"),
    ] {
        network.run(line);
    }
}

fn nft(arguments: &[&str]) -> String {
    let mut command = Command::new("nft");
    command.args(arguments);
    succeed(command)
}

/// Everything that capture does, from the first rule to the last.
fn captures(mode: &'static str) {
    let is_router = mode == "router";
    let mut world = World::new(mode);
    world.sees(&[
        (&["get", V4, "80", V4], "200 origin"),
        (&["get", V6, "8081", V6], "200 origin"),
    ]);
    for address in [V4, V6] {
        assert_eq!(world.probe_as("0", &["icmp", address]), "answered");
    }
    applied_twice_is_once_and_printed_is_applied(&world);
    // Nothing listens: refused at once, whatever it is.
    let refused: &[(&[&str], &str)] = &[
        (&["tcp", V4, "443"], "refused at once"),
        (&["tcp", V6, "443"], "refused at once"),
        (&["udp", V4, "443"], "refused at once"),
        (&["udp", V6, "443"], "refused at once"),
        (&["udp", "9.9.9.9", "53"], "refused at once"),
        (&["tcp", "9.9.9.9", "53"], "refused at once"),
    ];
    world.sees(refused);
    world.serve();
    world.sees(CAPTURED);
    for address in [V4, V6] {
        assert_eq!(world.probe_as("0", &["icmp", address]), "lost");
    }
    let own: &[&str] = if is_router {
        &["10.9.0.2", "10.8.0.1", "fd08::1"]
    } else {
        &["127.0.0.1", "::1", "10.9.0.2", "fd09::2"]
    };
    for (at, address) in own.iter().enumerate() {
        world.sees(&[(&["get", address, "15001", "good.test"], "closed")]);
        let log = || fs::read_to_string(world.at("audit.jsonl")).unwrap_or_default();
        world.wait("its record", || log().matches("\"self\"").count() > at);
    }
    // Whatever becomes of its route, a socket that keeps to an interface does not leave by it.
    let device = if is_router { "eth0" } else { "up0" };
    let bound = if is_router { "connected" } else { "lost" };
    world.sees(&[
        (&["bound", V4, "80", device], bound),
        (&["bound", V6, "80", device], bound),
    ]);
    // The ports are for what was captured.
    let neighbour = |address: &str, port: &str| {
        let probe = ["/usr/bin/python3", "-c", PROBE, "tcp", address, port];
        succeed(world.out.command(&probe)).trim().to_owned()
    };
    for (address, port) in [("10.9.0.2", "15001"), ("fd09::2", "15053")] {
        assert_eq!(neighbour(address, port), "TimeoutError('timed out')");
    }
    if !is_router {
        world.sees(&[(&["dns", "127.0.0.53", "good.test"], "200 origin")]);
        assert_eq!(
            world.probe_as(GATEWAY, &["get", V4, "8081", V4]),
            "200 origin"
        );
    }
    let more: &[&str] = if is_router {
        &[]
    } else {
        &["--bounding-set", "-all", "--no-new-privs"]
    };
    let told = world.check_as(if is_router { "0" } else { WORKLOAD }, more, mode);
    assert!(
        told.0 == 0 && told.1.contains("without the gateway"),
        "{told:?}"
    );
    // The listeners become another session's, with names of its own.
    let other = CONFIG.replace("[[listener]]", "[[listener]]\nsession = \"other\"");
    fs::write(world.at("gateway.toml"), other).unwrap();
    world.wait("a reload", || world.log().contains("reloaded"));
    world.sees(&[(&["dns", "9.9.9.9", "good.test"], "200 origin")]);
    world.stop();
    world.sees(refused);
    assert_eq!(world.rules("--remove").0, 0);
    assert_eq!(world.rules("--remove").0, 0);
    nothing_is_left();
    world.sees(&[
        (&["get", V4, "80", V4], "200 origin"),
        (&["get", V6, "80", V6], "200 origin"),
    ]);
}

fn applied_twice_is_once_and_printed_is_applied(world: &World) {
    let (code, text) = world.rules_as(
        &["setpriv", "--reuid", WORKLOAD, "--clear-groups", "--"],
        "--apply",
    );
    assert!(code == 1 && text.contains("CAP_NET_ADMIN"), "{text}");
    nothing_is_left();
    assert_eq!(world.rules("--check").0, 1);
    for _ in 0..2 {
        assert_eq!(world.rules("--apply").0, 0);
        assert_eq!(
            world.rules("--check"),
            (0, "the rules are installed\n".into())
        );
    }
    let applied = nft(&["list", "ruleset"]);
    let (code, text) = world.rules("--print");
    assert_eq!(code, 0, "{text}");
    assert_eq!(world.rules("--remove").0, 0);
    let file = world.at("rules.nft");
    fs::write(&file, &text).unwrap();
    nft(&["-f", file.to_str().unwrap()]);
    for line in text.lines().filter_map(|line| line.strip_prefix("# ip ")) {
        ip(line);
    }
    assert_eq!(nft(&["list", "ruleset"]), applied, "{text}");
    assert_eq!(world.rules("--check").0, 0);
    // A part of them that is missing is told.
    nft(&[
        "flush",
        "chain",
        "inet",
        "gateway_15001",
        text.split("chain ")
            .nth(1)
            .unwrap()
            .split(' ')
            .next()
            .unwrap(),
    ]);
    assert_eq!(world.rules("--check").0, 1);
    assert_eq!(world.rules("--apply").0, 0);
    assert_eq!(nft(&["list", "ruleset"]), applied);
}

fn nothing_is_left() {
    assert_eq!(nft(&["list", "ruleset"]), "");
    for family in ["-4", "-6"] {
        let mut command = Command::new("ip");
        command.args([family, "rule"]);
        assert!(!succeed(command).contains("15001"));
        let mut command = Command::new("ip");
        command.args([family, "route", "show", "table", "all"]);
        assert!(!succeed(command).contains("15001"));
    }
}

/// Inside, `check` tells a container that could leave from one that could not, and by what.
fn is_told_from_inside(mode: &'static str) {
    const NEITHER: &str = "was neither captured nor refused";
    let mut world = World::new(mode);
    let plain = [
        "--bounding-set",
        "-all",
        "--inh-caps",
        "-all",
        "--no-new-privs",
    ];
    // A program that could gain privileges, and nothing else.
    let gains = &plain[..4];
    let raw = [
        "--inh-caps",
        "+net_raw",
        "--ambient-caps",
        "+net_raw",
        "--no-new-privs",
    ];
    let told = |world: &World, (uid, more): (&str, &[&str]), code: i32, lines: &[&str]| {
        let told = world.check_as(uid, more, "redirect");
        assert_eq!(told.0, code, "{}", told.1);
        for line in lines {
            assert!(told.1.contains(line), "{line}\n{}", told.1);
        }
        // Whatever is not wrong, holds.
        let others = told
            .1
            .lines()
            .filter(|line| line.starts_with("holds "))
            .count();
        (others, told.1)
    };
    let could = "this process could leave without the gateway\n";
    let workload = (WORKLOAD, &plain[..]);
    let none = [
        could,
        "DNS by 192.0.2.1:53: was neither",
        "UDP to [2001:db8::1]:443: was neither",
    ];
    told(&world, workload, 1, &none);
    // Who was asked for then is asked for again and again.
    ip("neigh flush dev up0");
    assert_eq!(world.rules("--apply").0, 0);
    told(
        &world,
        workload,
        1,
        &[
            "cannot be known\n",
            "cannot be known  TCP to 192.0.2.1:80: connection refused, by rules here or",
            "holds            UDP to 192.0.2.1:443: refused: permission denied\n",
        ],
    );
    world.serve();
    let (all, text) = told(
        &world,
        workload,
        0,
        &[
            "nothing here leaves without the gateway\n",
            "holds            user: this is not user 1337\n",
            "holds            TCP to 192.0.2.1:22: captured: the gateway answered\n",
            "holds            TCP to [2001:db8::1]:80: captured: the gateway answered\n",
            "holds            DNS by [2001:db8::1]:53: captured",
            "holds            ICMP to 192.0.2.1: refused: permission denied\n",
            "holds            TCP to [2001:db8::1]:80 bound to up0: refused: dropped here\n",
            "holds            raw and marked packets: refused",
        ],
    );
    assert_eq!(text.lines().count(), all + 1, "{text}");
    let (others, text) = told(
        &world,
        (WORKLOAD, gains),
        1,
        &[could, "does not hold    new privileges: a setuid"],
    );
    assert_eq!(others, all - 1, "{text}");
    let lines = [
        could,
        "does not hold    capabilities: CAP_NET_RAW marks",
        "does not hold    raw and marked packets",
    ];
    let (others, _) = told(&world, (WORKLOAD, &raw), 1, &lines);
    assert_eq!(others, all - 2);
    let lines = [
        could,
        "does not hold    user: this is user 1337",
        "TCP to 192.0.2.1:80: was neither",
    ];
    told(&world, (GATEWAY, &plain), 1, &lines);
    // IPv6, forgotten.
    let of = |chain: &str, rule: &[&str], way: &str| {
        nft(&[&[way, "rule", "inet", "gateway_15001", chain], rule].concat());
    };
    for chain in ["redirected", "refused", "left"] {
        of(chain, &["meta", "nfproto", "ipv6", "accept"], "insert");
    }
    let (_, text) = told(&world, workload, 1, &[could]);
    for line in text
        .lines()
        .filter(|line| line.starts_with("does not hold"))
    {
        assert!(line.contains("::") && line.contains(NEITHER), "{line}");
    }
    for what in ["TCP", "UDP", "DNS"] {
        let line = format!("does not hold    {what} ");
        assert!(text.contains(&line), "{text}");
    }
    // What keeps to an interface, forgotten.
    assert_eq!(world.rules("--apply").0, 0);
    nft(&["flush", "chain", "inet", "gateway_15001", "left"]);
    let (others, text) = told(
        &world,
        workload,
        1,
        &["cannot be known  TCP to 192.0.2.1:80 bound to up0: "],
    );
    assert_eq!(others, all - 4, "{text}");
    // Nor does it hold because the next hop is asked for, and nothing is sent meanwhile.
    world.out.run("ip addr flush dev in0");
    ip("neigh flush dev up0");
    let lost = ["cannot be known  TCP to 192.0.2.1:80 bound to up0: "];
    told(&world, workload, 1, &lost);
    // A table that sleeps.
    assert_eq!(world.rules("--apply").0, 0);
    nft(&[
        "add",
        "table",
        "inet",
        "gateway_15001",
        "{",
        "flags",
        "dormant;",
        "}",
    ]);
    assert_eq!(world.rules("--check").0, 1);
    assert_eq!(world.rules("--apply").0, 0);
    assert_eq!(world.rules("--check").0, 0);
}

/// A network without a way out has neighbours all the same, which `check` tells.
fn neighbours_are_tried(_: &'static str) {
    let folder = tempfile::tempdir().unwrap();
    let servers = folder.path().join("resolv.conf");
    fs::write(&servers, "nameserver fe80::1%d0\n").unwrap();
    let told = |mode: &str, code: i32, lines: &[&str]| {
        let output = Command::new("unshare")
            .args(["--mount", "--", "sh", "-c"])
            .arg("mount --bind \"$0\" /etc/resolv.conf && exec setpriv \"$@\"")
            .arg(&servers)
            .args(["--reuid", WORKLOAD, "--regid", WORKLOAD, "--clear-groups"])
            .args(["--bounding-set", "-all", "--no-new-privs", "--"])
            .arg(env!("CARGO_BIN_EXE_gateway"))
            .args(["sidecar", "check", "--mode", mode])
            .output()
            .unwrap();
        let text = said(&output);
        assert_eq!(output.status.code(), Some(code), "{text}");
        for line in lines {
            assert!(text.contains(line), "{line}\n{text}");
        }
        text
    };
    let notes = || said(&relay(folder.path(), &["--", "true"]).output().unwrap());
    ip("link set lo up");
    for mode in ["redirect", "router"] {
        told(
            mode,
            0,
            &["holds            TCP to 192.0.2.1:80: refused: "],
        );
    }
    // Without a gateway the command lacks what that would tell.
    let alone = notes();
    assert!(alone.contains("gets no CA and no phantoms"), "{alone}");
    assert!(!alone.contains("not the sandbox's alone"), "{alone}");
    fs::write("/proc/sys/net/ipv4/ping_group_range", "0 65534").unwrap();
    let out = Network::new();
    fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").unwrap();
    let inward = "link add d0 type veth peer name p0 netns";
    ip(&format!("{inward} {}", out.0.id()));
    out.run("ip link set p0 up");
    ip("addr add 10.5.0.254/24 dev d0");
    ip("link set d0 up");
    assert!(notes().contains("not the sandbox's alone"), "{}", notes());
    let open = |to: &str, mark: &str| {
        let ways = [
            ("TCP to", ":80"),
            ("TCP to", ":22"),
            ("UDP to", ":443"),
            ("ICMP to", ""),
        ];
        let ways = ways.into_iter().chain([("DNS by", ":53")]);
        let lines = ways.map(|(what, port)| {
            let port = port.replace(':', &format!("{mark}:"));
            format!("does not hold    {what} {to}{port}")
        });
        lines.collect::<Vec<_>>()
    };
    let text = told(
        "redirect",
        1,
        &["holds            UDP to 192.0.2.1:443: refused: "],
    );
    for line in open("10.5.0.253", "") {
        assert!(text.contains(&line), "{line}\n{text}");
    }
    let router = ["cannot be known  UDP to 192.0.2.1:443: network unreachable, but neighbours"];
    told("router", 1, &router);
    // Rules of IPv4 alone.
    nft(&["add", "table", "ip", "v4"]);
    let chain = "{ type filter hook output priority 0; }";
    nft(&["add", "chain", "ip", "v4", "out", chain]);
    nft(&[
        "add", "rule", "ip", "v4", "out", "oif", "!=", "lo", "reject",
    ]);
    fs::write("/proc/sys/net/ipv6/conf/d0/accept_dad", "0").unwrap();
    fs::write("/proc/sys/net/ipv6/conf/d0/disable_ipv6", "0").unwrap();
    let text = told(
        "redirect",
        1,
        &["holds            UDP to 10.5.0.253:443: refused: "],
    );
    for (at, line) in text.lines().enumerate() {
        let is_v6 = line.contains(" [fe80::") || line.contains(" fe80::");
        assert!(
            at == 0 || !line.starts_with("does not hold") || is_v6,
            "{text}"
        );
    }
    assert_eq!(text.matches("\ndoes not hold ").count(), 4, "{text}");
    assert!(text.contains("DNS by [fe80::1%"), "{text}");
    assert!(text.contains("bound to d0: nothing answered"), "{text}");
}

/// Runs a fact in a network of its own.
fn apart(name: &str, mode: &'static str, fact: fn(&'static str)) {
    if std::env::var_os(APART).is_some() {
        return fact(mode);
    }
    let program = std::env::current_exe().unwrap();
    let status = Command::new("unshare")
        .args(["--net", "--"])
        .arg(program)
        .args(["--exact", name, "--nocapture"])
        .env(APART, "1")
        .status()
        .unwrap();
    assert!(status.success(), "{name}");
}

const APART: &str = "GATEWAY_TEST_APART";

#[test]
fn redirect_captures_everything_in_a_shared_namespace() {
    apart(
        "redirect_captures_everything_in_a_shared_namespace",
        "redirect",
        captures,
    );
}

#[test]
fn check_tells_from_inside_what_could_leave() {
    let name = "check_tells_from_inside_what_could_leave";
    apart(name, "redirect", is_told_from_inside);
}

#[test]
fn check_tries_neighbours_where_no_route_leads_further() {
    let name = "check_tries_neighbours_where_no_route_leads_further";
    apart(name, "redirect", neighbours_are_tried);
}

#[test]
fn tproxy_captures_everything_in_a_shared_namespace() {
    apart(
        "tproxy_captures_everything_in_a_shared_namespace",
        "tproxy",
        captures,
    );
}

#[test]
fn a_router_captures_everything_of_an_interface() {
    apart(
        "a_router_captures_everything_of_an_interface",
        "router",
        captures,
    );
}

/// Two sandboxes behind one listener: the interface is who each is, and neither is the other.
fn tells_interfaces_apart(mode: &'static str) {
    let mut world = World::new(mode);
    // The kernel refuses one in a second by itself.
    for limit in ["ipv4/icmp_ratelimit", "ipv6/icmp/ratelimit"] {
        fs::write(Path::new("/proc/sys/net").join(limit), "0").unwrap();
    }
    let mut other = inward(&world.out, "g1", "10.6.0", "fd06:");
    world.rules.extend(["--interface", "g1"]);
    applied_twice_is_once_and_printed_is_applied(&world);
    let first = world.sandbox.take().unwrap();
    let by = |world: &World, network: &Network, words: &[&str]| {
        succeed(world.probing(Some(network), "0", words))
            .trim()
            .to_owned()
    };
    let refused: &[&[&str]] = &[
        &["tcp", V4, "443"],
        &["tcp", V6, "22"],
        &["udp", V4, "443"],
        &["udp", V6, "443"],
        &["udp", "9.9.9.9", "53"],
    ];
    let is_closed = |world: &World, networks: &[&Network], without: &str| {
        for (at, network) in networks.iter().enumerate() {
            // Without those UDP ends here, where the kernel sends no refusal for others' addresses.
            let is_lost = ["taken", "names"].contains(&without);
            let is_told = |words: &&&[&str]| !is_lost || words[0] == "tcp";
            for words in refused.iter().filter(is_told) {
                let seen = by(world, network, words);
                assert_eq!(seen, "refused at once", "{at} without {without}: {words:?}");
            }
        }
    };
    is_closed(&world, &[&first, &other], "the gateway");
    world.serve_by(&marked());
    let log = |world: &World| fs::read_to_string(world.at("audit.jsonl")).unwrap_or_default();
    // Each by what its own session may, by each way in.
    let sees = |world: &World, network: &Network, own: &str, others: &str| {
        for server in ["9.9.9.9", "2620:fe::fe"] {
            for kind in ["dns", "dns-tcp"] {
                for (name, seen) in [(own, "200 origin"), (others, "403")] {
                    let words = [kind, server, name];
                    let found = by(world, network, &words);
                    assert_eq!(found, seen, "{words:?} {}\n{}", world.log(), log(world));
                }
            }
        }
        for (address, port, seen) in [
            (V4, "80", "200 origin"),
            (V6, "8081", "200 origin"),
            (V4, "8081", "403"),
        ] {
            assert_eq!(by(world, network, &["get", address, port, address]), seen);
        }
        assert!(by(world, network, &["icmp", V4]) == "lost");
        assert!(by(world, network, &["udp", V6, "443"]) == "refused at once");
    };
    sees(&world, &first, "good.test", "other.test");
    sees(&world, &other, "other.test", "good.test");
    // An answer of one session leads nowhere in the other, or to another name of that.
    let address = by(&world, &first, &["ask", "9.9.9.9", "good.test"]);
    let own = by(&world, &other, &["ask", "9.9.9.9", "other.test"]);
    assert_eq!(address, own, "each session has a pool of its own");
    assert_eq!(
        by(&world, &other, &["get", &address, "80", "good.test"]),
        "421"
    );
    // The address of a neighbour is no evidence, and gets nothing: no connection, and no answer for
    // either.
    for (address, v6) in [("10.8.0.2", false), ("fd08::2", true)] {
        let width = if v6 { "128 nodad" } else { "32" };
        other.run(&format!("ip addr add dev eth0 {address}/{width}"));
        let (to, server) = if v6 {
            (V6, "2620:fe::fe")
        } else {
            (V4, "9.9.9.9")
        };
        let words = ["from", address, to, "80", server];
        assert_eq!(by(&world, &other, &words), "nothing");
        other.run(&format!("ip addr flush to {address} dev eth0"));
    }
    // Nor is this machine, also at the address of an interface, or the port itself.
    for address in ["127.0.0.1", "::1", "10.6.0.1", "fd06::1"] {
        let words = ["get", address, "15001", "good.test"];
        assert_eq!(succeed(world.probing(None, "0", &words)).trim(), "closed");
    }
    for address in ["10.6.0.1", "fd06::1", "10.8.0.1"] {
        assert_eq!(
            by(&world, &other, &["get", address, "15001", "good.test"]),
            "closed"
        );
    }
    // A flood of one's questions leaves the other's.
    let mut flood = Ending(
        world
            .probing(Some(&other), "0", &["flood", "9.9.9.9"])
            .spawn()
            .unwrap(),
    );
    for _ in 0..5 {
        assert_eq!(
            by(&world, &first, &["dns", "9.9.9.9", "good.test"]),
            "200 origin"
        );
    }
    flood.0.wait().unwrap();
    // With an interface ends what it carried, and another one of its name goes on.
    let slow = ["get", V6, "8081", "slow"];
    let mut stream = Ending(world.probing(Some(&other), "0", &slow).spawn().unwrap());
    world.wait("a stream", || log(&world).contains("\"/slow\""));
    ip("link del g1");
    world.wait("its end", || log(&world).contains("\"caller_refused\""));
    let _ = stream.0.kill();
    other = inward(&world.out, "g1", "10.6.0", "fd06:");
    world.wait("its link", || {
        by(&world, &other, &["tcp", V4, "80"]) == "not refused"
    });
    assert_eq!(
        by(&world, &other, &["dns", "9.9.9.9", "other.test"]),
        "200 origin"
    );
    told_apart(&log(&world));
    // The gateway is gone, and then each part of the rules, which are whole between.
    world.stop();
    for chain in ["taken", "names", "forwarded", "guarded"] {
        nft(&["flush", "chain", "inet", "gateway_15001", chain]);
        is_closed(&world, &[&first, &other], chain);
        assert_eq!((world.rules("--check").0, world.rules("--apply").0), (1, 0));
    }
    for family in ["-4", "-6"] {
        ip(&format!("{family} rule del iif g1 lookup 15001"));
        is_closed(&world, &[&first, &other], "a route");
    }
    world.sandbox = Some(first);
}

/// Every record has the session and the user of one interface, whose request it was.
fn told_apart(log: &str) {
    let of = |name: &str, session: &str, verdict: &str| {
        let mut lines = log.lines();
        let is_it = |line: &str| {
            let words = [name, session, verdict];
            words
                .iter()
                .all(|word| line.contains(&format!("\"{word}\"")))
        };
        lines.any(is_it)
    };
    let [first, other] = ["interface:g0", "interface:g1"];
    for (name, session, others) in [("good.test", first, other), ("other.test", other, first)] {
        assert!(
            of(name, session, "allow") && of(name, others, "deny"),
            "{name}: {log}"
        );
        assert!(!of(name, others, "allow"), "{name}: {log}");
        let is_unlisted = |session: &str| of("dns_name", session, name);
        assert!(
            is_unlisted(others) && !is_unlisted(session),
            "{name}: {log}"
        );
    }
    let is_own = |session: &str| of("self", session, "aborted");
    assert!(is_own(other) && !is_own(first), "{log}");
    assert!(log.matches("\"caller_refused\"").count() == 1, "{log}");
}

/// The configuration for several interfaces, each with a host and a port of its own.
fn marked() -> String {
    let each = "who = [\"mark\"]\nsession = \"{caller}\"";
    let own = "permit(principal in Gateway::User::\"interface:g0\", action, \
               resource == Gateway::Host::\"good.test\");\n\
               permit(principal in Gateway::User::\"interface:g1\", action, \
               resource == Gateway::Host::\"other.test\");";
    let more = "[[origin]]\nmatch = \"http://other.test\"\nconnect = \"93.184.216.34:80\"\n\
                cleartext = true\n";
    let one = "permit(principal, action, resource == Gateway::Host::\"good.test\");";
    assert!(CONFIG.contains(one));
    let config = CONFIG.replace("[[listener]]", &format!("[[listener]]\n{each}"));
    config.replace(one, own) + more
}

#[test]
fn interfaces_on_one_listener_are_sessions_of_their_own() {
    let name = "interfaces_on_one_listener_are_sessions_of_their_own";
    apart(name, "router", tells_interfaces_apart);
}

/// The same by a sidecar without a secret or a policy, whose gateway is elsewhere.
fn leads_elsewhere(mode: &'static str) {
    let is_router = mode == "router";
    let mut world = World::new(mode);
    assert_eq!(world.rules("--apply").0, 0);
    world.sees(&[(&["tcp", V4, "80"], "refused at once")]);
    world.configure_elsewhere();
    let none = world.sidecar().output().unwrap();
    let words = said(&none);
    assert!(
        none.status.code() == Some(2) && words.contains("`--token-from`"),
        "{words}"
    );
    let far = world.far();
    world.serve_elsewhere(&far);
    let mint = ["token", "mint", "--session", "agent-1", "--for", "1h"];
    let minted = world.as_gateway(None, &mint).output().unwrap();
    fs::write(world.at("token"), minted.stdout).unwrap();
    fs::set_permissions(world.at("token"), fs::Permissions::from_mode(0o600)).unwrap();
    own(&world.at("token"));
    let told = fs::File::create(world.at("told")).unwrap();
    let mut sidecar = Ending(world.sidecar().stderr(told).spawn().unwrap());
    let tells = |words: &str| {
        fs::read_to_string(world.at("told"))
            .unwrap()
            .contains(words)
    };
    world.wait("the sidecar", || {
        tells("[::]:15001 leads to https://10.7.0.2:8443")
    });
    world.sees(CAPTURED);
    for address in if is_router {
        ["10.8.0.1", "fd08::1"]
    } else {
        ["127.0.0.1", "::1"]
    } {
        world.sees(&[(&["ended", address, "15001"], "refused at once")]);
    }
    let more: &[&str] = if is_router {
        &[]
    } else {
        &["--bounding-set", "-all", "--no-new-privs"]
    };
    let told = world.check_as(if is_router { "0" } else { WORKLOAD }, more, mode);
    assert_eq!(told.0, 0, "{told:?}");
    world.stop();
    world.sees(&[
        (&["ended", V4, "80"], "refused at once"),
        (&["ended", V6, "443"], "refused at once"),
        (&["udp", V4, "443"], "refused at once"),
    ]);
    world.serve_elsewhere(&far);
    world.wait("the gateway again", || {
        world.probe(&["get", V4, "80", V4]) == "200 origin"
    });
    world.sees(&[(&["dns", "9.9.9.9", "good.test"], "200 origin")]);
    sidecar.0.kill().unwrap();
    sidecar.0.wait().unwrap();
    world.sees(&[(&["tcp", V4, "80"], "refused at once")]);
    let log = fs::read_to_string(world.at("audit.jsonl")).unwrap();
    assert!(
        log.contains("\"good.test\"") && !log.contains("gwt1_"),
        "{log}"
    );
}

struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn what_is_redirected_leads_to_a_gateway_elsewhere() {
    let name = "what_is_redirected_leads_to_a_gateway_elsewhere";
    apart(name, "redirect", leads_elsewhere);
}

#[test]
fn what_a_router_captures_leads_to_a_gateway_elsewhere() {
    let name = "what_a_router_captures_leads_to_a_gateway_elsewhere";
    apart(name, "router", leads_elsewhere);
}

/// A relay on a port of its own, to a socket.
fn relay(socket: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gateway"));
    command.arg("sidecar").arg("--to");
    command.arg(format!("unix:{}", socket.display()));
    command.args(["--listen", "127.0.0.1:0"]).args(more);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// A gateway that answers with what it was sent, once that has ended.
fn answering(socket: &Path, connections: usize) -> std::thread::JoinHandle<()> {
    let listener = UnixListener::bind(socket).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().take(connections) {
            let (mut stream, mut sent) = (stream.unwrap(), Vec::new());
            stream.read_to_end(&mut sent).unwrap();
            // Who asked may be gone; who is not sees what comes.
            let _ = stream.write_all(&sent);
        }
    })
}

#[test]
fn a_relay_passes_bytes_as_they_are_and_refuses_without_a_gateway() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("gateway.sock");
    let mut relay = relay(&socket, &[]).spawn().unwrap();
    let mut says = BufReader::new(relay.stderr.take().unwrap()).lines();
    let mut lines = says.by_ref().map(|line| line.unwrap());
    let first = lines.find(|line| line.contains(" leads to ")).unwrap();
    let at = first
        .split(['/', ' '])
        .find(|word| word.starts_with("127.0.0.1:"))
        .unwrap();
    let exchange = |content: &[u8]| {
        let mut client = TcpStream::connect(at)?;
        client.write_all(content)?;
        client.shutdown(std::net::Shutdown::Write)?;
        let mut answer = Vec::new();
        client.read_to_end(&mut answer)?;
        std::io::Result::Ok(answer)
    };
    let refused = || {
        let start = Instant::now();
        assert!(exchange(b"x").is_err_and(|error| error.kind() != std::io::ErrorKind::TimedOut));
        assert!(
            start.elapsed() < Duration::from_secs(1),
            "{:?}",
            start.elapsed()
        );
    };
    let content: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
    for _ in 0..2 {
        refused();
        refused();
        assert!(says.next().unwrap().unwrap().contains("no gateway at /"));
        let gateway = answering(&socket, 3);
        for sent in [&content[..], b"", b"short"] {
            assert!(exchange(sent).unwrap() == sent);
        }
        gateway.join().unwrap();
        fs::remove_file(&socket).unwrap();
    }
    relay.kill().unwrap();
    relay.wait().unwrap();
}

#[test]
fn a_relay_ends_as_its_command() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("gateway.sock");
    // It is asked first what the command needs. This one does not say.
    let gateway = answering(&socket, 2);
    let asks = "import os, socket, sys, urllib.parse as u\n\
        at = u.urlparse(os.environ['https_proxy'])\n\
        to = socket.create_connection((at.hostname, at.port)); to.sendall(b'asked'); to.shutdown(1)\n\
        print(to.recv(9).decode()); sys.exit(7)";
    let output = relay(&socket, &["--", "python3", "-c", asks])
        .output()
        .unwrap();
    assert_eq!(
        (output.status.code(), &output.stdout[..]),
        (Some(7), &b"asked\n"[..]),
        "{output:?}"
    );
    gateway.join().unwrap();
    let rows: [(&[&str], i32, &str); 3] = [
        (&["--", "/nowhere"], 127, "`/nowhere` cannot be run"),
        (&["--", "/"], 126, "`/` cannot be run"),
        (&["--", "sh", "-c", "kill -9 $$"], 137, ""),
    ];
    for (more, code, words) in rows {
        let output = relay(&socket, more).output().unwrap();
        assert!(
            output.status.code() == Some(code) && said(&output).contains(words),
            "{output:?}"
        );
    }
    for (words, told) in [
        ("--to tls:gateway:443", "unix:/run/gateway.sock"),
        (
            "--to unix:/x --ca /y",
            "nothing is presented at a Unix socket",
        ),
        ("--to unix:/x --listen 0.0.0.0:1", "loopback"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_gateway"))
            .arg("sidecar")
            .args(words.split(' '))
            .output()
            .unwrap();
        assert!(
            output.status.code() == Some(2) && said(&output).contains(told),
            "{output:?}"
        );
    }
    // What asks the relay to end asks its command.
    let ends = "trap 'exit 9' TERM; echo ready; while :; do sleep 0.02; done";
    let mut relay = relay(&socket, &["--", "sh", "-c", ends]).spawn().unwrap();
    let mut ready = [0; 6];
    relay
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut ready)
        .unwrap();
    let id = rustix::process::Pid::from_child(&relay);
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    assert_eq!(relay.wait().unwrap().code(), Some(9));
}

const CONFIG: &str = r#"
[audit]
path = "audit.jsonl"
[policy]
rules = '''
permit(principal, action, resource == Gateway::Host::"good.test");
permit(principal, action, resource == Gateway::Host::"93.184.216.34") when { context.port == 80 };
permit(principal, action, resource == Gateway::Host::"2606:2800::34");
'''
[[listener]]
kind = "transparent"
address = "[::]:15001"
[[listener]]
kind = "dns"
address = "[::]:15053"
[[origin]]
match = "http://good.test"
connect = "93.184.216.34:80"
cleartext = true
[[origin]]
match = "http://93.184.216.34"
cleartext = true
[[origin]]
match = "http://93.184.216.34:8081"
cleartext = true
[[origin]]
match = "http://[2606:2800::34]:8081"
cleartext = true
"#;

const ELSEWHERE: &str = r#"
[[listener]]
kind = "proxy"
address = "10.7.0.2:8443"
session = "agent-1"
who = ["token"]
tls = { certificate = "proxy.pem", key = "proxy.key" }
"#;

const ORIGIN: &str = r#"
import http.server, socket, threading, time
class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "6")
        if self.path == "/slow":
            self.end_headers()
            time.sleep(60)
        self.end_headers()
        self.wfile.write(b"origin")
    def log_message(self, *_): pass
servers = [Server(("::", port), Answer) for port in (80, 8081, 443)]
for server in servers[1:]:
    threading.Thread(target=server.serve_forever, daemon=True).start()
servers[0].serve_forever()
"#;

const PROBE: &str = r#"
import http.client, socket, struct, sys, time

def refused(attempt):
    start = time.monotonic()
    try:
        attempt()
        return "not refused"
    except (ConnectionRefusedError, PermissionError, ConnectionResetError):
        took = time.monotonic() - start
        return "refused at once" if took < 0.05 else f"refused after {took}"
    except OSError as error:
        return repr(error)

def tcp(host, port):
    return refused(lambda: socket.create_connection((host, int(port)), 1))

def ended(host, port):
    def attempt():
        to = socket.create_connection((host, int(port)), 1)
        to.sendall(b"GET / HTTP/1.1\r\n\r\n")
        to.recv(1)
    return refused(attempt)

def udp(host, port):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sender = socket.socket(family, socket.SOCK_DGRAM)
    sender.settimeout(3)
    def attempt():
        sender.connect((host, int(port)))
        sender.send(b"\xc0" + bytes(1199))
        sender.recv(2000)
    return refused(attempt)

def get(host, port, name):
    to, path = http.client.HTTPConnection(host, int(port), timeout=60), "/"
    shown = f"[{name}]" if ":" in name else name
    shown = shown if port == "80" or not name[-1].isdigit() else f"{shown}:{port}"
    try:
        if name == "slow":
            name, shown, path = host, f"[{host}]:{port}", "/slow"
        to.request("GET", path, headers={"Host": shown})
        answer = to.getresponse()
        text = answer.read().decode()
        return f"200 {text}" if answer.status == 200 else str(answer.status)
    except (ConnectionError, http.client.RemoteDisconnected):
        return "closed"
    except OSError as error:
        return repr(error)

def question(name, kind):
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
    return struct.pack(">HHHHHH", 7, 256, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", kind, 1)

def ask(server, name, kind=1, by=socket.SOCK_DGRAM):
    asked = question(name, kind)
    family = socket.AF_INET6 if ":" in server else socket.AF_INET
    asker = socket.socket(family, by)
    asker.settimeout(3)
    asker.connect((server, 53))
    if by == socket.SOCK_STREAM:
        asker.sendall(struct.pack(">H", len(asked)) + asked)
        answer = asker.recv(2000)[2:]
    else:
        asker.send(asked)
        answer = asker.recv(2000)
    assert answer[3] & 15 == 0, answer
    length = 4 if kind == 1 else 16
    return socket.inet_ntop(socket.AF_INET if kind == 1 else socket.AF_INET6, answer[-length:])

def dns(server, name, by=socket.SOCK_DGRAM):
    got = [get(ask(server, name, kind, by), "80", name) for kind in (1, 28)]
    return got[0] if got[0] == got[1] else repr(got)

def source(address, server, by):
    socket_of = socket.socket(socket.AF_INET6 if ":" in server else socket.AF_INET, by)
    socket_of.bind((address, 0))
    socket_of.settimeout(0.5)
    return socket_of

def come(address, host, port, server):
    try:
        source(address, host, socket.SOCK_STREAM).connect((host, int(port)))
        return "a connection"
    except TimeoutError:
        pass
    asker = source(address, server, socket.SOCK_DGRAM)
    asker.connect((server, 53))
    asker.send(question("good.test", 1))
    try:
        return repr(asker.recv(2000))
    except TimeoutError:
        return "nothing"

def flood(server):
    asker, until = source("0.0.0.0", server, socket.SOCK_DGRAM), time.monotonic() + 2
    asker.setblocking(False)
    asker.connect((server, 53))
    while time.monotonic() < until:
        try:
            asker.send(question("other.test", 1))
        except OSError:
            pass

def bound(host, port, device):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sender = socket.socket(family, socket.SOCK_STREAM)
    sender.settimeout(1)
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
    try:
        sender.connect((host, int(port)))
        return "connected"
    except OSError:
        return "lost"

def icmp(host):
    of = (socket.AF_INET6, socket.IPPROTO_ICMPV6, 128, 129) if ":" in host else (socket.AF_INET, socket.IPPROTO_ICMP, 8, 0)
    sender = socket.socket(of[0], socket.SOCK_RAW, of[1])
    sender.settimeout(0.3)
    sent = struct.pack(">BBHHH", of[2], 0, (~((of[2] << 8) + 7 + 1)) & 0xffff, 7, 1)
    try:
        sender.sendto(sent, (host, 0))
        while True:
            got = sender.recv(2000)
            if (got[0] if of[0] == socket.AF_INET6 else got[20]) == of[3]:
                return "answered"
    except OSError:
        return "lost"

what, *words = sys.argv[1:]
done = {"tcp": tcp, "ended": ended, "udp": udp, "get": get, "dns": dns, "icmp": icmp, "bound": bound,
        "ask": ask, "from": come, "flood": flood,
        "dns-tcp": lambda server, name: dns(server, name, socket.SOCK_STREAM)}
print(done[what](*words))
"#;
