//! Vault: the shipped program against a real OpenBao server, and PostgreSQL for what it issues.

#[path = "../rig/addresses.rs"]
mod addresses;
mod gate;
mod logins;
mod server;

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use addresses::free;
use gate::{GATEWAY, Gate, Origin, api_token, cleartext, configure, credential, private};
use serde_json::{Value, json};
use server::{Postgres, SUPERUSER, Server, unique};

/// The section of a server, by a token that stands in a file.
fn by_token(server: &Server, folder: &std::path::Path, token: &str, more: &str) -> String {
    let file = folder.join("token");
    private(&file, token);
    let roots = match server.ca().exists() {
        true => format!("roots = [\"{}\"]\n", server.ca().display()),
        false => String::new(),
    };
    format!(
        "[vault]\naddresses = [\"{}\"]\n{roots}login = \"token\"\ntoken = \"file:{}\"\n{more}",
        server.address,
        file.display()
    )
}

/// Waits until something is so.
#[track_caller]
fn eventually(within: u64, what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(within), "{what}");
        sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_value_that_is_rotated_under_load_is_taken_without_a_failure_and_phantoms_stay() {
    let server = Server::any();
    for version in [1, 2] {
        let (origin, mount) = (Origin::start(), server.kv(version));
        server.put(&mount, version, "CANARY-value-0000");
        let folder = tempfile::tempdir().unwrap();
        let token = server.token_of(&server.policy(&mount), "1h");
        let vault = by_token(&server, folder.path(), &token, "ttl = \"1s\"\n");
        let gate = Gate::start(&(vault + &api_token(&origin, &format!("vault:{mount}/app#token"))));
        let phantom = gate.phantom("API_TOKEN");
        assert!(phantom.len() == "CANARY-value-0000".len() && !phantom.contains("CANARY"));
        let end = Instant::now() + Duration::from_millis(5000);
        let mut written = 0;
        let mut next = Instant::now() + Duration::from_millis(500);
        while Instant::now() < end {
            assert_eq!(gate.bearer(&origin), 200, "{}", gate.said());
            if Instant::now() > next && written < 3 {
                written += 1;
                server.put(&mount, version, &format!("CANARY-value-000{written}"));
                next += Duration::from_millis(1200);
            }
        }
        let seen: BTreeSet<String> = origin.take("authorization").into_iter().collect();
        let all = (0..=3).map(|number| format!("Bearer CANARY-value-000{number}"));
        assert_eq!(seen, all.collect(), "KV {version}");
        assert_eq!(gate.phantom("API_TOKEN"), phantom);
        let said = gate.end();
        assert!(!said.contains("CANARY") && !said.contains(&token), "{said}");
    }
}

#[test]
fn a_rotated_value_is_taken_within_its_ttl_although_nothing_was_asked_meanwhile() {
    let server = Server::any();
    let (origin, mount, folder) = (Origin::start(), server.kv(2), tempfile::tempdir().unwrap());
    server.put(&mount, 2, "CANARY-value-0001");
    let vault = by_token(&server, folder.path(), &server.token, "ttl = \"1s\"\n");
    let from = format!("vault:{mount}/app#token");
    let pinned = format!("vault:{mount}/app?version=1#token");
    let sections = vault
        + &api_token(&origin, &from)
        + &credential(&origin, "PINNED", &pinned, "header:x-pinned");
    let gate = Gate::start(&sections);
    let (bearer, pinned) = (
        format!("Bearer {}", gate.phantom("API_TOKEN")),
        gate.phantom("PINNED"),
    );
    let fields = [
        ("authorization", bearer.as_str()),
        ("x-pinned", pinned.as_str()),
    ];
    assert_eq!(gate.ask(&origin, &fields).0, 200);
    server.put(&mount, 2, "CANARY-value-0002");
    sleep(Duration::from_millis(1500));
    assert_eq!(gate.ask(&origin, &fields).0, 200);
    assert_eq!(
        origin.last("authorization").unwrap(),
        "Bearer CANARY-value-0002"
    );
    // A version that is named stays that version.
    assert_eq!(origin.last("x-pinned").unwrap(), "CANARY-value-0001");
    // What is deleted at the store serves no longer than its ttl, however long a store that is away
    // could be waited for.
    server.must("DELETE", &format!("{mount}/metadata/app"), &Value::Null);
    sleep(Duration::from_millis(1500));
    let (status, answer) = gate.ask(&origin, &fields);
    assert_eq!(status, 503, "{answer}");
    assert!(!answer.contains(&mount), "{answer}");
    let said = gate.end();
    assert!(said.contains("404") && !said.contains("CANARY"), "{said}");
}

/// A database engine over PostgreSQL, with a role whose leases are short; gives the path of its
/// credentials.
fn database(server: &Server, postgres: &Postgres, ttl: &str) -> String {
    let mount = unique("database");
    server.must(
        "POST",
        &format!("sys/mounts/{mount}"),
        &json!({"type": "database"}),
    );
    let connection = format!(
        "postgresql://{{{{username}}}}:{{{{password}}}}@127.0.0.1:{}/postgres?sslmode=disable",
        postgres.port
    );
    let config = json!({
        "plugin_name": "postgresql-database-plugin", "allowed_roles": ["*"],
        "connection_url": connection, "username": "postgres", "password": SUPERUSER,
    });
    server.must("POST", &format!("{mount}/config/pg"), &config);
    let create =
        "CREATE ROLE \"{{name}}\" WITH LOGIN PASSWORD '{{password}}' VALID UNTIL '{{expiration}}';";
    let role = json!({
        "db_name": "pg", "creation_statements": [create], "default_ttl": ttl, "max_ttl": "10m",
    });
    server.must("POST", &format!("{mount}/roles/app"), &role);
    format!("{mount}/creds/app")
}

fn of_database(origin: &Origin, path: &str) -> String {
    let from = |field: &str| format!("vault-lease:{path}#{field}");
    credential(origin, "DB_USER", &from("username"), "header:x-user")
        + &credential(
            origin,
            "DB_PASSWORD",
            &from("password"),
            "header:x-password",
        )
        + &cleartext(origin)
}

/// The user and the password of the database that the origin is shown.
fn shown(gate: &Gate, origin: &Origin) -> (String, String) {
    let (user, password) = (gate.phantom("DB_USER"), gate.phantom("DB_PASSWORD"));
    let fields = [("x-user", user.as_str()), ("x-password", password.as_str())];
    let (status, answer) = gate.ask(origin, &fields);
    assert_eq!(status, 200, "{answer}\n{}", gate.said());
    (
        origin.last("x-user").unwrap(),
        origin.last("x-password").unwrap(),
    )
}

fn leases(server: &Server, path: &str) -> usize {
    names_of_leases(server, path).len()
}

fn names_of_leases(server: &Server, path: &str) -> Vec<Value> {
    let listed = server.api("LIST", &format!("sys/leases/lookup/{path}"), &Value::Null);
    listed["data"]["keys"]
        .as_array()
        .cloned()
        .unwrap_or_default()
}

#[test]
fn what_is_issued_works_is_renewed_and_is_gone_when_its_session_ends() {
    // The database is on this machine, where a foreign server could not reach it.
    let (server, postgres) = (Server::in_memory(), Postgres::start());
    let (origin, folder) = (Origin::start(), tempfile::tempdir().unwrap());
    let path = database(&server, &postgres, "6s");
    let mount = path.split('/').next().unwrap();
    let token = server.token_of(&server.policy(mount), "1h");
    let vault = by_token(&server, folder.path(), &token, "");
    let gate = Gate::start(&(vault + &of_database(&origin, &path)));
    let (user, password) = shown(&gate, &origin);
    assert!(postgres.lets_in(&user, &password));
    assert!(!postgres.lets_in(&user, &gate.phantom("DB_PASSWORD")));
    assert_eq!(leases(&server, &path), 1);
    // Far beyond the lease, and nothing was asked meanwhile.
    sleep(Duration::from_secs(9));
    assert_eq!(shown(&gate, &origin), (user.clone(), password.clone()));
    assert!(postgres.lets_in(&user, &password));
    let said = gate.end();
    eventually(5, "it is revoked", || !postgres.lets_in(&user, &password));
    eventually(5, "no lease is left", || leases(&server, &path) == 0);
    assert!(
        !said.contains(&password) && !said.contains(&token),
        "{said}"
    );
}

#[test]
fn a_session_that_was_idle_is_issued_anew_when_it_is_resumed() {
    let (server, postgres) = (Server::in_memory(), Postgres::start());
    let (origin, folder) = (Origin::start(), tempfile::tempdir().unwrap());
    let path = database(&server, &postgres, "1h");
    let vault = by_token(&server, folder.path(), &server.token, "");
    let sections = vault + "[ca]\nidle = \"1m\"\n" + &of_database(&origin, &path);
    let gate = Gate::start(&sections);
    let (user, _) = shown(&gate, &origin);
    eventually(90, "it is given back", || leases(&server, &path) == 0);
    let resumed = Command::new(GATEWAY)
        .args(["session", "resume", "default"])
        .env("HOME", gate.folder.path())
        .env_remove("XDG_RUNTIME_DIR")
        .env_remove("XDG_STATE_HOME")
        .output()
        .unwrap();
    assert!(resumed.status.success(), "{resumed:?}");
    let (anew, password) = shown(&gate, &origin);
    assert_ne!(anew, user);
    assert!(postgres.lets_in(&anew, &password));
    assert_eq!(leases(&server, &path), 1);
}

#[test]
fn a_command_in_the_sandbox_has_a_lease_as_long_as_it_runs() {
    let (server, postgres) = (Server::in_memory(), Postgres::start());
    let (origin, folder) = (Origin::start(), tempfile::tempdir().unwrap());
    let path = database(&server, &postgres, "1h");
    let vault = by_token(&server, folder.path(), &server.token, "");
    let project = tempfile::tempdir().unwrap();
    configure(
        folder.path(),
        free().port(),
        &(vault + &of_database(&origin, &path)),
    );
    let mut child = Command::new(GATEWAY)
        .args(["exec", "--quiet", "--config"])
        .arg(folder.path().join("gateway.toml"))
        .args(["--", "sleep", "3"])
        .current_dir(project.path())
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    eventually(20, "a lease is issued", || leases(&server, &path) == 1);
    assert!(child.wait().unwrap().success());
    eventually(5, "it is revoked", || leases(&server, &path) == 0);
}

#[test]
fn sessions_have_leases_of_their_own() {
    let (server, postgres) = (Server::in_memory(), Postgres::start());
    let (origin, folder) = (Origin::start(), tempfile::tempdir().unwrap());
    let path = database(&server, &postgres, "1h");
    let vault = by_token(&server, folder.path(), &server.token, "");
    let second = format!(
        "[[listener]]\nkind = \"proxy\"\naddress = \"127.0.0.1:{}\"\nsession = \"second\"\n[ca]\nlifetime = \"1h\"\n",
        free().port()
    );
    let gate = Gate::start(&(vault + &of_database(&origin, &path) + &second));
    eventually(20, "each has its own", || leases(&server, &path) == 2);
    let issued = names_of_leases(&server, &path);
    // What the start issued is what a request uses.
    shown(&gate, &origin);
    assert_eq!(names_of_leases(&server, &path), issued);
    drop(gate);
    eventually(5, "both are revoked", || leases(&server, &path) == 0);
}

#[test]
fn a_sealed_server_stops_nothing_that_serves_and_is_asked_again_when_it_opens() {
    let server = Server::on_disk();
    let (origin, mount, folder) = (Origin::start(), server.kv(2), tempfile::tempdir().unwrap());
    server.put(&mount, 2, "CANARY-value-0001");
    let more = "ttl = \"1s\"\nmax_stale = \"6s\"\n";
    let vault = by_token(&server, folder.path(), &server.token, more);
    let gate = Gate::start(&(vault + &api_token(&origin, &format!("vault:{mount}/app#token"))));
    assert_eq!(gate.bearer(&origin), 200);
    server.seal();
    let sealed = Instant::now();
    while sealed.elapsed() < Duration::from_secs(4) {
        assert_eq!(gate.bearer(&origin), 200, "{}", gate.said());
        sleep(Duration::from_millis(100));
    }
    eventually(8, "it is closed in the end", || gate.bearer(&origin) == 503);
    assert!(gate.said().contains("sealed"), "{}", gate.said());
    server.unseal();
    server.put(&mount, 2, "CANARY-value-0002");
    eventually(5, "it serves again", || gate.bearer(&origin) == 200);
    assert_eq!(
        origin.last("authorization").unwrap(),
        "Bearer CANARY-value-0002"
    );
    assert!(!gate.end().contains("CANARY"));
}

#[test]
fn a_server_that_is_killed_and_started_again_goes_on_where_it_was() {
    let mut server = Server::on_disk();
    let (origin, mount, folder) = (Origin::start(), server.kv(2), tempfile::tempdir().unwrap());
    server.put(&mount, 2, "CANARY-value-0001");
    let vault = by_token(&server, folder.path(), &server.token, "ttl = \"1s\"\n");
    let gate = Gate::start(&(vault + &api_token(&origin, &format!("vault:{mount}/app#token"))));
    server.kill();
    let killed = Instant::now();
    while killed.elapsed() < Duration::from_secs(3) {
        assert_eq!(gate.bearer(&origin), 200, "{}", gate.said());
        sleep(Duration::from_millis(100));
    }
    server.start();
    server.unseal();
    server.put(&mount, 2, "CANARY-value-0002");
    eventually(8, "the new value is taken", || {
        assert_eq!(gate.bearer(&origin), 200, "{}", gate.said());
        origin.last("authorization").unwrap() == "Bearer CANARY-value-0002"
    });
}

#[test]
fn a_secret_of_a_namespace_is_read_in_that_namespace_alone() {
    let server = Server::in_memory();
    let name = unique("team");
    server.must("POST", &format!("sys/namespaces/{name}"), &json!({}));
    let inside = |method: &str, path: &str, content: &Value| {
        let said = server.api_in(Some(&name), method, path, content);
        assert!(said["errors"].is_null(), "{said}");
    };
    inside(
        "POST",
        "sys/mounts/kv",
        &json!({"type": "kv", "options": {"version": "1"}}),
    );
    inside("POST", "kv/app", &json!({"token": "CANARY-value-0001"}));
    for (namespace, status) in [
        (format!("namespace = \"{name}\"\n"), true),
        (String::new(), false),
    ] {
        let (origin, folder) = (Origin::start(), tempfile::tempdir().unwrap());
        let vault = by_token(&server, folder.path(), &server.token, &namespace);
        let started = Gate::try_start(&(vault + &api_token(&origin, "vault:kv/app#token")));
        assert_eq!(started.is_ok(), status, "{namespace}");
        if let Ok(gate) = started {
            assert_eq!(gate.bearer(&origin), 200);
            assert_eq!(
                origin.last("authorization").unwrap(),
                "Bearer CANARY-value-0001"
            );
        }
    }
}

#[test]
fn a_server_is_trusted_by_its_own_ca_alone() {
    let server = Server::on_disk();
    let (origin, mount) = (Origin::start(), server.kv(2));
    server.put(&mount, 2, "CANARY-value-0001");
    let from = format!("vault:{mount}/app#token");
    let folder = tempfile::tempdir().unwrap();
    let ours = by_token(&server, folder.path(), &server.token, "");
    let gate = Gate::start(&(ours.clone() + &api_token(&origin, &from)));
    assert_eq!(gate.bearer(&origin), 200);
    let roots = format!("roots = [\"{}\"]\n", server.ca().display());
    let other = format!(
        "roots = [\"{}\"]\n",
        server.folder.path().join("other.pem").display()
    );
    for trusted in [String::new(), other] {
        let vault = ours.replace(&roots, &trusted);
        let said = Gate::try_start(&(vault + &api_token(&origin, &from)))
            .err()
            .unwrap();
        assert!(said.contains("certificate"), "{said}");
        assert!(!said.contains(&server.token), "{said}");
    }
}

#[test]
fn a_store_that_takes_long_does_not_cost_a_request_the_secret_of_another() {
    let (origin, stores) = (Origin::start(), tempfile::tempdir().unwrap());
    let file = stores.path().join("fast");
    private(&file, "the-secret-of-the-file");
    let file = format!("file:{}", file.display());
    let program = "{ command = [\"/bin/sh\", \"-c\", \"sleep 2; echo the-secret-of-the-program\"], ttl = \"3s\" }";
    let slow = credential(&origin, "SLOW", "PROGRAM", "header:x-slow");
    let slow = slow.replace("\"PROGRAM\"", program);
    let fast = credential(&origin, "FAST", &file, "header:x-fast");
    let gate = Gate::start(&(cleartext(&origin) + &fast + &slow));
    let phantoms = [
        ("x-fast", gate.phantom("FAST")),
        ("x-slow", gate.phantom("SLOW")),
    ];
    let fields = phantoms
        .each_ref()
        .map(|(name, phantom)| (*name, phantom.as_str()));
    // What was read of the file when the last request began ends while the program runs, whether
    // its secret is lent, too, or only searched for.
    for lent in [1, 1, 1, 2, 2] {
        let (status, answer) = gate.ask(&origin, &fields[..lent]);
        assert_eq!(status, 200, "{answer}");
        assert_eq!(origin.take("x-fast"), ["the-secret-of-the-file"]);
        sleep(Duration::from_millis(2200));
    }
}

#[test]
fn a_store_that_hangs_holds_up_no_request_that_is_not_lent_its_secret() {
    let (origin, stores) = (Origin::start(), tempfile::tempdir().unwrap());
    let hangs = stores.path().join("hangs");
    let file = stores.path().join("fast");
    private(&file, "the-secret-of-the-file");
    let script = format!(
        "test -e {} && sleep 20; echo the-secret-of-the-program",
        hangs.display()
    );
    let program = format!("{{ command = [\"/bin/sh\", \"-c\", \"{script}\"], ttl = \"1s\" }}");
    let slow = credential(&origin, "SLOW", "PROGRAM", "header:x-slow");
    let slow = slow.replace("\"PROGRAM\"", &program);
    let file = format!("file:{}", file.display());
    let fast = credential(&origin, "FAST", &file, "header:x-fast");
    let gate = Gate::start(&(cleartext(&origin) + &fast + &slow));
    let (fast, slow) = (gate.phantom("FAST"), gate.phantom("SLOW"));
    let asks = || {
        let begun = Instant::now();
        let (status, answer) = gate.ask(&origin, &[("x-fast", &fast)]);
        assert_eq!(status, 200, "{answer}");
        begun.elapsed().as_secs()
    };
    asks();
    let (status, _) = gate.ask(&origin, &[("x-slow", &slow)]);
    assert_eq!(status, 200);
    private(&hangs, "");
    sleep(Duration::from_millis(1200));
    let took = [asks(), asks(), asks()];
    // Each would wait 20 s, or 2 s where it waited anew.
    assert!(
        took[0] < 10 && took[1..].iter().all(|took| *took < 2),
        "{took:?}"
    );
}

#[test]
fn another_server_is_asked_where_one_cannot_be_reached() {
    let server = Server::any();
    let (origin, mount, folder) = (Origin::start(), server.kv(1), tempfile::tempdir().unwrap());
    server.put(&mount, 1, "CANARY-value-0001");
    let vault = by_token(&server, folder.path(), &server.token, "");
    let two = format!("addresses = [\"http://127.0.0.1:{}\", \"", free().port());
    let vault = vault.replace("addresses = [\"", &two);
    let gate = Gate::start(&(vault + &api_token(&origin, &format!("vault:{mount}/app#token"))));
    assert_eq!(gate.bearer(&origin), 200);
}

#[test]
fn a_token_goes_to_no_server_that_the_configuration_does_not_name() {
    let stranger = TcpListener::bind("127.0.0.1:0").unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let (counted, elsewhere) = (asked.clone(), stranger.local_addr().unwrap());
    spawn(move || {
        stranger
            .incoming()
            .for_each(|_| _ = counted.fetch_add(1, Ordering::SeqCst))
    });
    let standby = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = standby.local_addr().unwrap();
    spawn(move || {
        for mut stream in standby.incoming().flatten() {
            let _ = stream.read(&mut [0; 8192]);
            let answer = format!(
                "HTTP/1.1 307 Temporary Redirect\r\nlocation: http://{elsewhere}/v1/x\r\ncontent-length: 0\r\n\r\n"
            );
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    let folder = tempfile::tempdir().unwrap();
    private(&folder.path().join("token"), "s.CANARY-token");
    let vault = format!(
        "[vault]\naddresses = [\"http://{address}\"]\nlogin = \"token\"\ntoken = \"file:{}\"\n",
        folder.path().join("token").display()
    );
    let origin = Origin::start();
    let started = Gate::try_start(&(vault + &api_token(&origin, "vault:kv/app#token")));
    let said = started.err().unwrap();
    assert!(
        said.contains("does not name") && !said.contains("CANARY"),
        "{said}"
    );
    assert_eq!(asked.load(Ordering::SeqCst), 0);
}

#[test]
fn doctor_says_what_can_be_read_and_what_not_and_leaves_no_lease() {
    let (server, postgres) = (Server::in_memory(), Postgres::start());
    let (origin, mount, folder) = (Origin::start(), server.kv(2), tempfile::tempdir().unwrap());
    server.put(&mount, 2, "CANARY-value-0001");
    let path = database(&server, &postgres, "1h");
    let header = "header:x-other";
    let from = |field: &str| format!("vault:{mount}/{field}");
    let sections = by_token(&server, folder.path(), &server.token, "")
        + &api_token(&origin, &from("app#token"))
        + &credential(&origin, "NONE", &from("none#token"), header)
        + &credential(&origin, "FIELD", &from("app#number"), header)
        + &credential(&origin, "LEASED", &format!("vault:{path}#password"), header)
        + &credential(
            &origin,
            "UNLEASED",
            &format!("vault-lease:{mount}/data/app#token"),
            header,
        )
        + &credential(
            &origin,
            "ISSUED",
            &format!("vault-lease:{path}#password"),
            header,
        );
    configure(folder.path(), free().port(), &sections);
    let output = Command::new(GATEWAY)
        .args(["doctor", "--config", "gateway.toml"])
        .current_dir(folder.path())
        .env_clear()
        .env("HOME", folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let line = |name: &str| {
        said.lines()
            .skip_while(|line| !line.contains(&format!("  {name} ")))
            .take(2)
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert!(line("API_TOKEN").starts_with("ok"), "{said}");
    assert!(line("ISSUED").starts_with("ok"), "{said}");
    for (name, why) in [
        ("NONE", "404"),
        ("FIELD", "no text in the field `number`"),
        ("LEASED", "write `vault-lease:`"),
        ("UNLEASED", "write `vault:`"),
    ] {
        assert!(
            line(name).starts_with("fails") && line(name).contains(why),
            "{name}\n{said}"
        );
    }
    assert!(!said.contains("CANARY"), "{said}");
    eventually(5, "no lease is left", || leases(&server, &path) == 0);
}
