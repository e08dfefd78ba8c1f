//! moto, and the stand-ins of `standin.py`.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::addresses::free;
use crate::gate::private;

/// A moto that checks signatures and IAM.
pub struct Moto {
    pub address: String,
    port: u16,
    folder: TempDir,
    child: Child,
}

impl Moto {
    pub fn start() -> Self {
        let (folder, port) = (tempfile::tempdir().unwrap(), free().port());
        let mut command = python();
        let module = ["-m", "moto.server", "-H", "127.0.0.1", "-p"];
        let child = command
            .args(module)
            .arg(port.to_string())
            // An administrator is made before anything is checked.
            .env("INITIAL_NO_AUTH_ACTION_COUNT", "3")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let begin = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(begin.elapsed() < Duration::from_secs(60), "moto starts");
            std::thread::sleep(Duration::from_millis(100));
        }
        let moto = Self {
            address: format!("http://127.0.0.1:{port}"),
            port,
            folder,
            child,
        };
        moto.step("begin");
        moto
    }

    /// Has `aws.py` do something.
    pub fn step(&self, step: &str) {
        let mut command = python();
        let command = command.arg(here("aws.py")).arg(self.port.to_string());
        run(command.arg(self.folder.path()).arg(step));
    }

    /// The key of a user.
    pub fn keys(&self, user: &str) -> (String, String) {
        let text = fs::read(self.folder.path().join("keys.json")).unwrap();
        let keys: Value = serde_json::from_slice(&text).unwrap();
        let key = |at: usize| keys[user][at].as_str().unwrap().to_owned();
        (key(0), key(1))
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The servers of `standin.py`.
pub struct StandIn {
    folder: TempDir,
    tls: u16,
    plain: u16,
    child: Child,
}

/// The hosts that it stands in for.
const HOSTS: [&str; 6] = [
    "secretsmanager.eu-west-1.amazonaws.com",
    "ssm.eu-west-1.amazonaws.com",
    "secretmanager.googleapis.com",
    "oauth2.googleapis.com",
    "team.vault.azure.net",
    "login.microsoftonline.com",
];

impl StandIn {
    pub fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let names = HOSTS.map(|host| format!("DNS:{host}")).join(",");
        let script = format!(
            "set -e; key='-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes'
             for ca in ca other; do openssl req -x509 $key -days 2 -addext keyUsage=critical,keyCertSign -subj \"/CN=$ca\" -keyout $ca.key -out $ca.pem; done
             openssl req $key -subj /CN=stores -keyout server.key -out server.csr
             printf 'subjectAltName={names}\\nextendedKeyUsage=serverAuth\\n' > server.ext
             openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -days 1 -extfile server.ext -out server.pem
             openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out account.key
             openssl pkey -in account.key -pubout -out account.pub"
        );
        run(Command::new("sh")
            .args(["-c", &script])
            .current_dir(&folder));
        let key = fs::read_to_string(folder.path().join("account.key")).unwrap();
        let account = json!({
            "type": "service_account", "project_id": "app", "private_key_id": "1", "private_key": key,
            "client_email": "gateway@app.iam.gserviceaccount.com", "client_id": "1",
            "token_uri": "https://oauth2.googleapis.com/token",
        });
        private(&folder.path().join("account.json"), &account.to_string());
        private(&folder.path().join("client-secret"), "CANARY-client-secret");
        private(&folder.path().join("connect-token"), "CANARY-connect-token");
        let mut command = python();
        let mut child = command
            .arg(here("standin.py"))
            .arg(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ports = String::new();
        let out = child.stdout.as_mut().unwrap();
        BufReader::new(out).read_line(&mut ports).unwrap();
        let mut ports = ports.split_whitespace().map(|port| port.parse().unwrap());
        let (tls, plain) = (ports.next().unwrap(), ports.next().unwrap());
        Self {
            folder,
            tls,
            plain,
            child,
        }
    }

    /// Has each vendor's own client read this value from it.
    pub fn driven_by_vendors(&self, value: &str) {
        let mut command = python();
        let command = command.arg(here("vendors.py")).arg(self.folder.path());
        let said = run(command.args([
            self.tls.to_string(),
            self.plain.to_string(),
            value.to_owned(),
        ]));
        assert!(said.contains("vendors: all"), "{said}");
    }

    /// Sets how it answers, and its secret.
    pub fn set(&self, mode: &str, value: &str) {
        let content = json!({ "mode": mode, "value": value }).to_string();
        let url = format!("http://127.0.0.1:{}/_set", self.plain);
        run(Command::new("curl").args(["-sSf", "--data", &content, &url]));
    }

    /// The sections of a store of each kind, and of the origins that lead to it.
    pub fn stores(&self, ca: &str, more: &str) -> String {
        let at = |name: &str| self.folder.path().join(name).display().to_string();
        let roots = format!("roots = [\"{}\"]\n{more}", at(ca));
        let origins = HOSTS.map(|host| {
            format!(
                "[[origin]]\nmatch = \"https://{host}\"\nconnect = \"127.0.0.1:{}\"\n",
                self.tls
            )
        });
        origins.concat()
            + &format!(
                "[[store]]\nkind = \"aws-secret\"\nregion = \"eu-west-1\"\n{roots}\
                 [[store]]\nkind = \"aws-parameter\"\nregion = \"eu-west-1\"\n{roots}\
                 [[store]]\nkind = \"gcp-secret\"\nfile = \"{}\"\n{roots}\
                 [[store]]\nkind = \"azure-secret\"\naddresses = [\"https://team.vault.azure.net\"]\n\
                 token_url = \"https://login.microsoftonline.com/tenant/oauth2/v2.0/token\"\n\
                 client_id = \"app\"\nclient_secret = \"file:{}\"\n{roots}",
                at("account.json"),
                at("client-secret"),
            )
            + &self.connect(more)
    }

    /// The section of a store by a Connect server.
    pub fn connect(&self, more: &str) -> String {
        let token = self.folder.path().join("connect-token");
        format!(
            "[[store]]\nkind = \"op\"\naddresses = [\"http://127.0.0.1:{}\"]\ntoken = \"file:{}\"\n{more}",
            self.plain,
            token.display()
        )
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The Python of `tests/stores/setup`.
pub fn python() -> Command {
    let clients = std::env::var("GATEWAY_CLIENTS")
        .unwrap_or_else(|_| "/var/cache/gateway-clients".to_owned());
    let program = Path::new(&clients).join("stores/venv/bin/python");
    assert!(
        program.exists(),
        "{} is there: .ci/install",
        program.display()
    );
    Command::new(program)
}

fn here(name: &str) -> String {
    format!("{}/tests/stores/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn run(command: &mut Command) -> String {
    let out = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&[&*out.stdout, &*out.stderr].concat()).into_owned();
    assert!(out.status.success(), "{command:?}\n{said}");
    said
}
