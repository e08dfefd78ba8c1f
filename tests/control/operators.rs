//! Operators over the network: known by their certificates, judged by policy, never a session.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, SanType, SerialNumber};
use serde_json::Value;
use time::OffsetDateTime;

use crate::asks::{self, Shop};
use crate::authority::{Authority, client};
use crate::program::{Program, command, free};
use crate::sandbox::wait_for;

const ID: &str = "spiffe://example.org/ops/ada";
const ALL: &str = r#"permit(principal == Gateway::Operator::"spiffe://example.org/ops/ada", action, resource);
permit(principal, action == Gateway::Action::"status", resource) when { principal == Gateway::Operator::"cn:bob" };
permit(principal == Gateway::Operator::"uid:0", action, resource);"#;

/// A program with a control port, certificates of two operators, and those of nobody.
struct Rig {
    program: Program,
    address: SocketAddr,
    clients: Authority,
}

impl Rig {
    fn start(policy: &str) -> Self {
        Self::of(Program::start(""), policy)
    }

    /// The same of a program that runs.
    fn of(mut program: Program, policy: &str) -> Self {
        let (address, clients, server) = (free(), Authority::new(), Authority::new());
        let folder = program.folder.path().to_owned();
        let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
        write("operators.pem", &clients.1);
        write("server-root.pem", &server.1);
        write("crls.pem", &clients.list(&[66]));
        write("control.cedar", policy);
        server.issue(&folder, "server", |params| {
            let name = "gateway.test".try_into().unwrap();
            params.subject_alt_names =
                vec![SanType::IpAddress(address.ip()), SanType::DnsName(name)];
        });
        let issue = |name: &str, change: &dyn Fn(&mut CertificateParams)| {
            clients.issue(&folder, name, change);
        };
        issue("ada", &|all| client("", &[ID])(all));
        issue("bob", &|all| {
            client("bob", &[])(all);
            all.serial_number = Some(SerialNumber::from(8));
        });
        issue("nobody", &|all| client("", &[])(all));
        issue("over", &|all| {
            client("", &[ID])(all);
            all.not_after = OffsetDateTime::now_utc() - Duration::from_secs(60);
        });
        issue("revoked", &|all| {
            client("", &[ID])(all);
            all.serial_number = Some(SerialNumber::from(66));
        });
        issue("server-use", &|all| {
            client("", &[ID])(all);
            all.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        });
        Authority::new().issue(&folder, "stranger", client("", &[ID]));
        let named = if policy.is_empty() {
            ""
        } else {
            "policy = \"control.cedar\"\n"
        };
        let config = fs::read_to_string(program.path("gateway.toml")).unwrap();
        program.configure(&format!(
            "{config}\n[control]\npath = \"run/gateway/serve-1.sock\"\naddress = \"{address}\"\n{named}\
             [control.tls]\ncertificate = \"server.pem\"\nkey = \"server.key\"\n\
             client_roots = \"operators.pem\"\nclient_crls = \"crls.pem\"\n"
        ));
        Self {
            program,
            address,
            clients,
        }
    }

    /// A call by curl, which has no part in this program.
    fn curl(&self, certificate: &str, path: &str, more: &[&str]) -> Command {
        let mut curl = Command::new("curl");
        curl.current_dir(self.program.folder.path());
        curl.args(["-sS", "-m", "20", "--cacert", "server-root.pem"]);
        if !certificate.is_empty() {
            let (pem, key) = (format!("{certificate}.pem"), format!("{certificate}.key"));
            curl.args(["--cert", &pem, "--key", &key]);
        }
        curl.args(more);
        curl.arg(format!("https://{}{path}", self.address));
        curl
    }

    /// The status of a call, 0 without an answer, and what else came.
    fn call(&self, certificate: &str, path: &str, more: &[&str]) -> (u16, String) {
        let more = [&["-w", "\n%{http_code}"], more].concat();
        let output = self.curl(certificate, path, &more).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let (content, status) = said.rsplit_once('\n').unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        (status.parse().unwrap(), format!("{content}{errors}"))
    }

    /// The flags that call the port as this operator.
    fn flags(&self, certificate: &str) -> Vec<String> {
        let at = |name: &str| self.program.path(name).display().to_string();
        vec![
            "--gateway".to_owned(),
            format!("https://{}", self.address),
            "--gateway-cert".to_owned(),
            at(&format!("{certificate}.pem")),
            "--gateway-key".to_owned(),
            at(&format!("{certificate}.key")),
            "--gateway-ca".to_owned(),
            at("server-root.pem"),
        ]
    }

    /// Runs a command as an operator over the network, in a place without a gateway of its own.
    fn command(&self, certificate: &str, arguments: &[&str]) -> (i32, String) {
        let elsewhere = tempfile::tempdir().unwrap();
        let mut command = command(elsewhere.path());
        let output = command.args(arguments).args(self.flags(certificate));
        let output = output.output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        (output.status.code().unwrap(), said)
    }

    fn does(&self, arguments: &[&str]) -> String {
        let (code, said) = self.command("ada", arguments);
        assert_eq!(code, 0, "{arguments:?}: {said}");
        said
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let said = self.does(&[&["--json"], arguments].concat());
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
    }
}

#[test]
fn a_certificate_is_needed_and_a_policy_decides_what_it_may() {
    let rig = Rig::start(ALL);
    let none = ["", "stranger", "over", "revoked", "server-use", "nobody"];
    for name in none {
        for path in ["/v1/status", "/healthz", "/metrics"] {
            let (status, said) = rig.call(name, path, &[]);
            assert_eq!(status, 0, "{name} {path}: {said}");
        }
    }
    for (name, path, status) in [
        ("ada", "/v1/status", 200),
        ("ada", "/v1/sessions", 200),
        ("ada", "/metrics", 200),
        ("bob", "/v1/status", 200),
        ("bob", "/v1/sessions", 403),
        ("bob", "/metrics", 403),
        ("bob", "/healthz", 200),
    ] {
        let (got, said) = rig.call(name, path, &[]);
        assert_eq!(got, status, "{name} {path}: {said}");
    }
    let (status, said) = rig.call("bob", "/v1/sessions/agent-1/end", &["-X", "POST"]);
    assert!(
        status == 403 && said.contains("`cn:bob` may not do `session.end`"),
        "{said}"
    );
    let acts = rig.program.records("act");
    let act = acts.last().unwrap();
    assert_eq!(
        (&act["operator"], &act["decision"]),
        (&"cn:bob".into(), &"deny".into())
    );
    // Clear text and silence are no calls. Strangers have no share of the log.
    let mut clear = TcpStream::connect(rig.address).unwrap();
    clear
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: gateway\r\n\r\n")
        .unwrap();
    let mut answer = Vec::new();
    let _ = clear.read_to_end(&mut answer);
    assert!(answer.is_empty());
    let log = fs::read_to_string(rig.program.path("log")).unwrap();
    let told = log
        .matches("a call to the control port was refused")
        .count();
    assert!((6..=8).contains(&told), "{log}");
}

#[test]
fn without_a_policy_nobody_may_anything_over_the_network() {
    let rig = Rig::start("");
    let (status, said) = rig.call("ada", "/v1/status", &[]);
    assert!(
        status == 403 && said.contains(&format!("`{ID}` may not do `status`")),
        "{said}"
    );
    assert_eq!(rig.call("ada", "/healthz", &[]).0, 200);
    let (code, said) = rig.command("ada", &["session", "list"]);
    assert!(code == 1 && said.contains("[control] policy"), "{said}");
    assert_eq!(rig.program.gateway(&["session", "list"]).0, 0);
}

#[test]
fn a_web_page_and_a_name_that_is_not_the_gateways_are_refused() {
    let rig = Rig::start(ALL);
    for (field, status) in [
        ("Origin: https://evil.test", 403),
        ("Origin: null", 403),
        ("Host: evil.test", 403),
        ("Host: gateway.test", 200),
        ("Host: gateway", 200),
        ("Host: localhost:1", 200),
    ] {
        let (got, said) = rig.call("ada", "/v1/status", &["-H", field]);
        assert_eq!(got, status, "{field}: {said}");
    }
}

#[test]
fn what_strangers_hold_open_shuts_no_operator_out() {
    let rig = Rig::start(ALL);
    let silent: Vec<_> = (0..200)
        .map(|_| TcpStream::connect(rig.address).unwrap())
        .collect();
    let began = Instant::now();
    assert_eq!(rig.call("ada", "/v1/status", &[]).0, 200);
    assert!(began.elapsed() < Duration::from_secs(3));
    drop(silent);
}

#[test]
fn no_session_reaches_the_port() {
    let rig = Rig::start(ALL);
    let to = rig.address;
    let rule = format!(
        "permit(principal, action, resource == Gateway::Host::\"{}\");",
        to.ip()
    );
    fs::write(rig.program.path("rules.cedar"), rule).unwrap();
    rig.program.reload();
    let mut curl = Command::new("curl");
    let proxy = format!("http://{}", rig.program.proxy);
    curl.args(["-sk", "-m", "20", "-w", "%{http_code}", "-x", &proxy]);
    let asked = curl
        .arg(format!("https://{to}/v1/status"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&asked.stdout).into_owned();
    assert!(
        said.ends_with("403") && said.contains("ssrf_resolved_ip"),
        "{said}"
    );
    for lifted in [
        format!("connect = \"{to}\""),
        format!(
            "match = \"https://own.test:{}\"\naddresses = [\"127.0.0.0/8\"]",
            to.port()
        ),
    ] {
        let named = if lifted.contains("match") {
            ""
        } else {
            "match = \"https://own.test\"\n"
        };
        let before = rig
            .program
            .edit(|text| format!("{text}[[origin]]\n{named}{lifted}\n"));
        let said = rig.program.refuse();
        assert!(
            said.contains("a session could reach the control port"),
            "{said}"
        );
        rig.program.edit(|_| before);
    }
}

#[test]
fn each_command_works_over_the_network_as_it_does_by_the_socket() {
    let (shop, door) = (Shop::open(), free());
    let budget = "[[budget]]\nname = \"calls\"\nunit = \"requests\"\nmost = 5\nper = \"month\"\n";
    let tokens = format!(
        "[[listener]]\nkind = \"proxy\"\naddress = \"{door}\"\nsession = \"{{caller}}\"\nwho = [\"token\"]\n"
    );
    let program = Program::start("");
    program.edit(|text| text.replace("phantoms.env", "phantoms-{session}.env"));
    drop(program);
    let program = asks::gateway(&shop, budget);
    program.edit(|text| {
        text.replace("phantoms.env", "phantoms-{session}.env")
            .replace("\"agent-1\"", "\"agent-1\"\nany_user = true")
            + &tokens
    });
    let rig = Rig::of(program, ALL);
    // The same as over the socket, but for the gateway's own name.
    let name = format!("https://{}", rig.address);
    for shown in [&["session", "list"][..], &["budgets"]] {
        let by_socket = rig.program.gateway(shown).1;
        assert_eq!(
            rig.does(shown)
                .replace(&name, "serve-1")
                .split_whitespace()
                .collect::<Vec<_>>(),
            by_socket.split_whitespace().collect::<Vec<_>>()
        );
    }
    let status = rig.json(&["status"]);
    assert_eq!(
        status["gateways"][0]["control_address"],
        rig.address.to_string()
    );
    assert_eq!(status["gateways"][0]["socket"], name);
    let made = [
        "session",
        "create",
        "job",
        "--ends",
        "1h",
        "--idempotency-key",
        "k",
    ];
    let (first, again) = (rig.json(&made), rig.json(&made));
    assert!(
        first["token"]
            .as_str()
            .is_some_and(|token| token.starts_with("gwt1_")),
        "{first}"
    );
    assert_eq!(first["session"], again["session"]);
    // A key is the operator's own.
    let (code, said) = rig.program.gateway(&made);
    assert!(code == 1 && said.contains("there is or was"), "{said}");
    assert!(
        rig.does(&["session", "extend", "job", "--ends", "2h"])
            .contains("gwt1_")
    );
    let token = rig.json(&["token", "mint", "--session", "agent-1", "--for", "1h"]);
    let id = token["id"].as_str().unwrap();
    assert!(
        rig.does(&["token", "revoke", id])
            .contains("1 gateway confirmed")
    );
    assert!(
        rig.does(&["env", "--session", "agent-1"])
            .contains("BEGIN CERTIFICATE")
    );
    for (act, status) in [("pause", "paused"), ("resume", "active"), ("end", "ended")] {
        assert!(rig.does(&["session", act, "job"]).contains(status), "{act}");
    }
    assert!(rig.does(&["budgets", "add", "calls", "7"]).contains("12"));
    let revoked = rig.does(&["revoke", "key"]);
    assert!(
        revoked.contains("1 gateway that lends it confirmed"),
        "{revoked}"
    );
    assert!(rig.does(&["restore", "key"]).contains("is lent again"));
    assert!(rig.does(&["reload"]).contains("reloaded"));
    answers(&rig);
    let acts = rig.program.records("act");
    let of = |name: &str| {
        acts.iter()
            .any(|act| act["name"] == name && act["operator"] == ID)
    };
    for name in [
        "session.create",
        "token.mint",
        "budget.add",
        "credential.revoke",
        "policy.allow",
    ] {
        assert!(of(name), "{name}: {acts:#?}");
    }
    let (code, said) = rig.command("bob", &["session", "list"]);
    assert!(
        code == 1 && said.contains("`cn:bob` may not do `session.list`"),
        "{said}"
    );
    let (code, said) = rig.command("revoked", &["session", "list"]);
    assert!(code == 1 && said.contains(&name), "{said}");
    let (code, said) = rig
        .program
        .gateway(&["session", "list", "--gateway", &name]);
    assert!(code == 2 && said.contains("--gateway-cert"), "{said}");
    let into = [
        "exec",
        "--into",
        "agent-1",
        "--gateway",
        &name,
        "--",
        "true",
    ];
    assert_ne!(rig.program.gateway(&into).0, 0);
    let (code, said) = rig.command("ada", &["log"]);
    assert!(code == 2 && said.contains("log -f"), "{said}");
}

/// Asks that wait are allowed and refused over the network.
fn answers(rig: &Rig) {
    let waiting = || {
        let all = rig.json(&["grants", "proposed"]);
        let first = all["proposals"].as_array()?.first()?["id"]
            .as_str()?
            .to_owned();
        Some(first)
    };
    for (content, status) in [("amount=1", 200), ("amount=2", 403)] {
        // Who lists what waits is there to answer.
        assert_eq!(waiting(), None);
        let sent = asks::send(rig.program.proxy, "POST /v1/refunds", content);
        let until = Instant::now() + Duration::from_secs(20);
        let id = loop {
            match waiting() {
                Some(id) => break id,
                None => assert!(Instant::now() < until, "nothing waits"),
            }
        };
        match status {
            200 => rig.does(&["allow", &id, "--yes"]),
            _ => rig.does(&["deny", &id]),
        };
        assert_eq!(asks::read(&sent).0, status, "{content}");
    }
}

#[test]
fn the_variables_say_the_same_as_the_flags() {
    let rig = Rig::start(ALL);
    let elsewhere = tempfile::tempdir().unwrap();
    let flags = rig.flags("ada");
    let names = [
        "GATEWAY_CONTROL",
        "GATEWAY_CONTROL_CERT",
        "GATEWAY_CONTROL_KEY",
        "GATEWAY_CONTROL_CA",
    ];
    let values = flags.iter().skip(1).step_by(2);
    for arguments in [&["session", "list"][..], &["budgets"], &["revoke", "key"]] {
        let mut command = command(elsewhere.path());
        command
            .args(arguments)
            .envs(names.into_iter().zip(values.clone()));
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?}: {said}");
    }
    // It is revoked there, and nowhere else.
    assert_eq!(rig.json(&["status"])["gateways"][0]["revoked"][0], "key");
    assert!(!elsewhere.path().join(".local").exists());
}

/// A stream of the records, by curl.
fn follow(rig: &Rig, name: &str) -> Child {
    let child = rig.curl(name, "/v1/events", &["-N", "-m", "60"]);
    let mut command = child;
    command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn a_list_of_revoked_certificates_and_a_policy_cut_what_is_followed() {
    let rig = Rig::start(ALL);
    for cut in ["list", "policy"] {
        let mut child = follow(&rig, "ada");
        std::thread::sleep(Duration::from_millis(1500));
        assert!(child.try_wait().unwrap().is_none(), "{cut}: it follows");
        match cut {
            "list" => fs::write(rig.program.path("crls.pem"), rig.clients.list(&[7, 66])),
            _ => fs::write(
                rig.program.path("control.cedar"),
                ALL.replace("ops/ada", "ops/eve"),
            ),
        }
        .unwrap();
        // Changed files are seen by themselves.
        wait_for("the stream is cut", || child.try_wait().unwrap().is_some());
        let status = rig.call("ada", "/v1/status", &[]).0;
        assert_eq!(status, if cut == "list" { 0 } else { 403 });
        assert_eq!(rig.call("bob", "/v1/status", &[]).0, 200);
        fs::write(rig.program.path("crls.pem"), rig.clients.list(&[66])).unwrap();
        wait_for("it is taken again", || {
            rig.call("ada", "/v1/status", &[]).0 != 0
        });
    }
}
