//! How the gateway logs in, and how long it stays so.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::thread::{sleep, spawn};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::gate::{Gate, Origin, api_token, private};
use crate::server::{Server, path_of_tests, unique};
use crate::{by_token, eventually};

const VALUE: &str = "CANARY-value-0001";

/// A server with a secret, and a policy that lets its holder read it.
struct Stage {
    server: Server,
    origin: Origin,
    folder: tempfile::TempDir,
    mount: String,
    policy: String,
}

impl Stage {
    fn on(server: Server) -> Self {
        let mount = server.kv(2);
        server.put(&mount, 2, VALUE);
        let policy = server.policy(&mount);
        Self {
            origin: Origin::start(),
            folder: tempfile::tempdir().unwrap(),
            server,
            mount,
            policy,
        }
    }

    /// Mounts an authentication method; gives where.
    fn auth(&self, kind: &str) -> String {
        let mount = unique(kind);
        let path = format!("sys/auth/{mount}");
        self.server.must("POST", &path, &json!({"type": kind}));
        mount
    }

    fn sections(&self, login: &str) -> String {
        let roots = match self.server.ca().exists() {
            true => format!("roots = [\"{}\"]\n", self.server.ca().display()),
            false => String::new(),
        };
        format!(
            "[vault]\naddresses = [\"{}\"]\n{roots}ttl = \"1s\"\n{login}{}",
            self.server.address,
            api_token(&self.origin, &format!("vault:{}/app#token", self.mount))
        )
    }

    /// Logs in and reads the secret; gives the gateway as it serves.
    fn reads(&self, login: &str) -> Gate {
        let gate = Gate::start(&self.sections(login));
        assert_eq!(gate.bearer(&self.origin), 200, "{}", gate.said());
        let seen = self.origin.last("authorization").unwrap();
        assert_eq!(seen, format!("Bearer {VALUE}"));
        gate
    }

    /// What it says where it cannot log in.
    fn fails(&self, login: &str) -> String {
        Gate::try_start(&self.sections(login)).err().unwrap()
    }

    /// A role of AppRole by these settings, with its id and a secret id in a file.
    fn approle(&self, settings: &Value) -> (String, String) {
        let mount = self.auth("approle");
        let role = format!("auth/{mount}/role/gateway");
        let mut all = json!({"token_policies": [self.policy]});
        all.as_object_mut()
            .unwrap()
            .extend(settings.as_object().unwrap().clone());
        self.server.must("POST", &role, &all);
        let id = self
            .server
            .must("GET", &format!("{role}/role-id"), &Value::Null);
        let secret = self
            .server
            .must("POST", &format!("{role}/secret-id"), &json!({}));
        let secret = secret["data"]["secret_id"].as_str().unwrap().to_owned();
        let file = self.folder.path().join("secret-id");
        private(&file, &secret);
        let login = format!(
            "login = \"approle\"\nmount = \"{mount}\"\nrole_id = \"{}\"\nsecret_id = \"file:{}\"\n",
            id["data"]["role_id"].as_str().unwrap(),
            file.display()
        );
        (login, secret)
    }
}

#[test]
fn by_a_token_that_is_renewed_and_may_be_replaced_where_it_is_kept() {
    let stage = Stage::on(Server::any());
    let token = stage.server.token_of(&stage.policy, "4s");
    let file = stage.folder.path().join("token");
    private(&file, &token);
    let login = format!("login = \"token\"\ntoken = \"file:{}\"\n", file.display());
    let gate = stage.reads(&login);
    sleep(Duration::from_secs(6));
    stage.server.put(&stage.mount, 2, "CANARY-value-0002");
    let reads = |value: &str| {
        eventually(5, value, || {
            assert_eq!(gate.bearer(&stage.origin), 200, "{}", gate.said());
            stage.origin.last("authorization").unwrap() == format!("Bearer {value}")
        });
    };
    reads("CANARY-value-0002");
    let next = stage.server.token_of(&stage.policy, "1h");
    private(&file, &next);
    sleep(Duration::from_millis(1500));
    let gone = json!({"token": token});
    stage.server.must("POST", "auth/token/revoke", &gone);
    stage.server.put(&stage.mount, 2, "CANARY-value-0003");
    reads("CANARY-value-0003");
    let said = gate.end();
    for secret in ["CANARY", token.as_str(), next.as_str()] {
        assert!(!said.contains(secret), "{said}");
    }
    // A token that was given is not the gateway's to revoke.
    let own = json!({"token": next});
    let known = stage.server.must("POST", "auth/token/lookup", &own);
    assert_eq!(known["data"]["id"], next.as_str());
}

#[test]
fn by_a_secret_id_that_serves_once_and_a_token_that_is_renewed_and_ends_with_the_gateway() {
    // It counts all tokens of the server.
    let stage = Stage::on(Server::in_memory());
    let once = json!({"secret_id_num_uses": 1, "token_ttl": "3s", "token_max_ttl": "10m"});
    let (login, secret) = stage.approle(&once);
    let gate = stage.reads(&login);
    // Beyond the token's life: there could be no second login.
    for _ in 0..14 {
        sleep(Duration::from_millis(500));
        assert_eq!(gate.bearer(&stage.origin), 200, "{}", gate.said());
    }
    let counted = || {
        let listed = stage
            .server
            .api("LIST", "auth/token/accessors", &Value::Null);
        listed["data"]["keys"].as_array().map_or(0, Vec::len)
    };
    let before = counted();
    let said = gate.end();
    assert!(
        !said.contains(&secret) && !said.contains("CANARY"),
        "{said}"
    );
    eventually(5, "the token is revoked", || counted() < before);
    let said = stage.fails(&login);
    assert!(
        said.contains("login failed") && said.contains("400"),
        "{said}"
    );
    assert!(!said.contains(&secret), "{said}");
}

#[test]
fn anew_where_the_token_is_at_the_end_of_its_longest_life_or_was_revoked() {
    let stage = Stage::on(Server::any());
    let short = json!({"token_ttl": "2s", "token_max_ttl": "4s"});
    let (login, _) = stage.approle(&short);
    let gate = stage.reads(&login);
    for round in 0..16 {
        sleep(Duration::from_millis(500));
        stage
            .server
            .put(&stage.mount, 2, &format!("CANARY-value-{round:04}"));
        assert_eq!(gate.bearer(&stage.origin), 200, "{}", gate.said());
    }
    let auth = login
        .lines()
        .find_map(|line| line.strip_prefix("mount = "))
        .unwrap();
    let prefix = format!("sys/leases/revoke-prefix/auth/{}", auth.trim_matches('"'));
    stage.server.must("PUT", &prefix, &json!({}));
    stage.server.put(&stage.mount, 2, "CANARY-value-last");
    eventually(5, "it logs in anew", || {
        assert_eq!(gate.bearer(&stage.origin), 200, "{}", gate.said());
        stage.origin.last("authorization").unwrap() == "Bearer CANARY-value-last"
    });
}

/// A key pair of RSA in files, and the public half.
fn key_pair(folder: &Path) -> String {
    let script = "openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out jwt.key && openssl pkey -in jwt.key -pubout";
    let output = Command::new("sh")
        .args(["-c", script])
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A token of these claims, with times of now.
fn jwt(folder: &Path, claims: &Value) -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let mut all = json!({"iat": now - 5, "nbf": now - 5, "exp": now + 600});
    all.as_object_mut()
        .unwrap()
        .extend(claims.as_object().unwrap().clone());
    let header = json!({"alg": "RS256", "typ": "JWT"});
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", part(&header), part(&all));
    std::fs::write(folder.join("signed"), &signed).unwrap();
    let output = Command::new("openssl")
        .args(["dgst", "-sha256", "-sign", "jwt.key", "signed"])
        .current_dir(folder)
        .output()
        .unwrap();
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(output.stdout))
}

#[test]
fn by_a_signed_token_of_somebody_else() {
    let stage = Stage::on(Server::any());
    let (folder, mount) = (stage.folder.path(), stage.auth("jwt"));
    let key = json!({"jwt_validation_pubkeys": [key_pair(folder)]});
    stage
        .server
        .must("POST", &format!("auth/{mount}/config"), &key);
    let role = json!({
        "role_type": "jwt", "user_claim": "sub", "bound_audiences": ["gateway"],
        "token_policies": [stage.policy],
    });
    stage
        .server
        .must("POST", &format!("auth/{mount}/role/gateway"), &role);
    let file = folder.join("jwt");
    let login = format!(
        "login = \"jwt\"\nmount = \"{mount}\"\nrole = \"gateway\"\njwt = \"file:{}\"\n",
        file.display()
    );
    private(
        &file,
        &jwt(folder, &json!({"sub": "agent", "aud": "gateway"})),
    );
    drop(stage.reads(&login));
    let strangers = jwt(folder, &json!({"sub": "agent", "aud": "another"}));
    private(&file, &strangers);
    let said = stage.fails(&login);
    assert!(
        said.contains("login failed") && !said.contains(&strangers),
        "{said}"
    );
}

/// What a Kubernetes API server says of every service account's token.
fn reviewer() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 16384]);
            let user = json!({"username": "system:serviceaccount:agents:gateway", "uid": "1", "groups": []});
            let review = json!({
                "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
                "status": {"authenticated": true, "user": user},
            });
            let content = review.to_string();
            let answer = format!(
                "HTTP/1.1 201 Created\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{content}",
                content.len()
            );
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    format!("http://{address}")
}

#[test]
fn by_the_token_of_a_kubernetes_service_account() {
    // The server asks the reviewer, which is on this machine.
    let stage = Stage::on(Server::in_memory());
    let (folder, mount) = (stage.folder.path(), stage.auth("kubernetes"));
    key_pair(folder);
    let config = json!({
        "kubernetes_host": reviewer(), "disable_local_ca_jwt": true,
        "kubernetes_ca_cert": std::fs::read_to_string(ca_of(folder)).unwrap(),
    });
    stage
        .server
        .must("POST", &format!("auth/{mount}/config"), &config);
    let role = json!({
        "bound_service_account_names": ["gateway"], "bound_service_account_namespaces": ["agents"],
        "token_policies": [stage.policy],
    });
    stage
        .server
        .must("POST", &format!("auth/{mount}/role/gateway"), &role);
    let claims = json!({
        "iss": "kubernetes/serviceaccount",
        "sub": "system:serviceaccount:agents:gateway",
        "kubernetes.io/serviceaccount/namespace": "agents",
        "kubernetes.io/serviceaccount/secret.name": "gateway-token",
        "kubernetes.io/serviceaccount/service-account.name": "gateway",
        "kubernetes.io/serviceaccount/service-account.uid": "1",
    });
    // As Kubernetes mounts it: others may read it.
    let file = folder.join("service-account");
    std::fs::write(&file, jwt(folder, &claims)).unwrap();
    let login = format!(
        "login = \"kubernetes\"\nmount = \"{mount}\"\nrole = \"gateway\"\ntoken_file = \"{}\"\n",
        file.display()
    );
    drop(stage.reads(&login));
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).unwrap();
    assert!(stage.fails(&login).contains("others may read or write"));
}

fn ca_of(folder: &Path) -> std::path::PathBuf {
    let script = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=cluster -keyout cluster.key -out cluster.pem";
    let made = Command::new("sh")
        .args(["-c", script])
        .env("PATH", path_of_tests())
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    folder.join("cluster.pem")
}

#[test]
fn by_a_client_certificate() {
    let stage = Stage::on(Server::on_disk());
    let (at, mount) = (stage.server.folder.path(), stage.auth("cert"));
    let certificate = std::fs::read_to_string(at.join("ca.pem")).unwrap();
    let role = json!({"certificate": certificate, "token_policies": [stage.policy]});
    stage
        .server
        .must("POST", &format!("auth/{mount}/certs/gateway"), &role);
    let login = |name: &str| {
        let file = |kind: &str| at.join(format!("{name}.{kind}")).display().to_string();
        format!(
            "login = \"cert\"\nmount = \"{mount}\"\nrole = \"gateway\"\nclient_certificate = \"{}\"\nclient_key = \"file:{}\"\n",
            file("pem"),
            file("key")
        )
    };
    drop(stage.reads(&login("client")));
    let said = stage.fails(&login("other"));
    assert!(said.contains("login failed"), "{said}");
}

#[test]
fn a_token_that_the_server_does_not_know_lends_nothing_and_is_not_repeated() {
    let stage = Stage::on(Server::any());
    let wrong = "s.CANARYwrongCANARYwrong";
    let vault = by_token(&stage.server, stage.folder.path(), wrong, "");
    let from = format!("vault:{}/app#token", stage.mount);
    let said = Gate::try_start(&(vault + &api_token(&stage.origin, &from)));
    let said = said.err().unwrap();
    assert!(said.contains("403") && !said.contains("CANARY"), "{said}");
    // What its policy does not let it read, either.
    let other = stage.server.policy("another");
    let token = stage.server.token_of(&other, "1h");
    let vault = by_token(&stage.server, stage.folder.path(), &token, "");
    let said = Gate::try_start(&(vault + &api_token(&stage.origin, &from)));
    let said = said.err().unwrap();
    assert!(said.contains("403") && !said.contains(&token), "{said}");
}
