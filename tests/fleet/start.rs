//! What a replica refuses at its start, and what it says.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gateway::state::SealingKey;

use crate::replica::{Fleet, Replica, free};
use crate::server::SUPERUSER;

/// Waits until a replica ended by itself, and returns what it said.
fn refused(mut replica: Replica) -> String {
    let until = Instant::now() + Duration::from_secs(20);
    while replica.child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < until, "it serves: {}", replica.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    replica.log()
}

fn rewritten(fleet: &Fleet, name: &str, change: impl FnOnce(String) -> String) -> Replica {
    let mut replica = fleet.spawn(name);
    let _ = replica.child.kill();
    replica.child.wait().unwrap();
    let path = replica.path("gateway.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(path, change(text)).unwrap();
    replica.again();
    replica
}

#[test]
fn two_replicas_of_one_name_and_another_key_are_refused() {
    let fleet = Fleet::new();
    let [mut a] = fleet.start(["a"]);
    let said = refused(fleet.spawn("a"));
    assert!(
        said.contains("another gateway has the name of this replica"),
        "{said}"
    );
    // A process that was killed leaves its name once its lease is over.
    a.crash();
    a.wait();
    let other = rewritten(&fleet, "b", |text| text);
    std::fs::write(other.path("key"), SealingKey::draw().unwrap().as_bytes()).unwrap();
    let mut other = other;
    let _ = other.child.kill();
    other.child.wait().unwrap();
    other.again();
    let said = refused(other);
    assert!(said.contains("sealed with another key"), "{said}");
}

#[test]
fn a_server_that_may_lose_what_it_answered_is_refused() {
    let fleet = Fleet::new();
    let name = &fleet.database.name;
    fleet.database.sql(&format!(
        "ALTER DATABASE {name} SET synchronous_commit = off"
    ));
    let said = refused(fleet.spawn("a"));
    assert!(said.contains("`synchronous_commit` is off"), "{said}");
}

#[test]
fn a_password_in_the_url_and_clear_text_over_the_network_are_mistakes_of_the_file() {
    let fleet = Fleet::new();
    for (url, why) in [
        (
            "postgres://u:CANARY-password@127.0.0.1/x",
            "it holds a password",
        ),
        ("postgres://u@db.example/x?sslmode=disable", "clear text"),
        ("mysql://u@db.example/x", "no URL of PostgreSQL"),
    ] {
        let replica = rewritten(&fleet, "a", |text| {
            let lines = text.lines().map(|line| match line.starts_with("url = ") {
                true => format!("url = \"{url}\""),
                false => line.to_owned(),
            });
            lines.collect::<Vec<_>>().join("\n")
        });
        let said = refused(replica);
        assert!(
            said.contains(why) && !said.contains("CANARY-password"),
            "{said}"
        );
        assert!(said.contains("gateway.toml:"), "{said}");
    }
}

/// A pooler before the server.
struct Pooler(
    Child,
    #[expect(dead_code, reason = "kept until the end")] tempfile::TempDir,
);

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_pooler_in_transaction_mode_is_refused() {
    let fleet = Fleet::new();
    let (folder, at) = (tempfile::tempdir_in("/tmp").unwrap(), free());
    let (port, name) = (fleet.database.port, &fleet.database.name);
    let users = folder.path().join("users");
    std::fs::write(&users, format!("\"postgres\" \"{SUPERUSER}\"\n")).unwrap();
    let config = format!(
        "[databases]\n{name} = host=127.0.0.1 port={port} dbname={name} user=postgres password={SUPERUSER}\n\
         [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {}\nauth_type = plain\nauth_file = {}\n\
         pool_mode = transaction\nunix_socket_dir =\nignore_startup_parameters = extra_float_digits\n",
        at.port(),
        users.display()
    );
    let file = folder.path().join("pgbouncer.ini");
    std::fs::write(&file, config).unwrap();
    for path in [folder.path(), &users, &file] {
        let all = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755);
        std::fs::set_permissions(path, all).unwrap();
    }
    let mut command = Command::new("pgbouncer");
    if rustix::process::geteuid().is_root() {
        command.args(["-u", "postgres"]);
    }
    let child = command
        .arg(&file)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("`pgbouncer` is there: .ci/packages");
    let _pooler = Pooler(child, folder);
    let until = Instant::now() + Duration::from_secs(10);
    while std::net::TcpStream::connect(at).is_err() {
        assert!(Instant::now() < until, "the pooler does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    let replica = rewritten(&fleet, "a", |text| {
        let lines = text.lines().map(|line| match line.starts_with("url = ") {
            true => format!("url = \"postgres://postgres@{at}/{name}?sslmode=disable\""),
            false => line.to_owned(),
        });
        lines.collect::<Vec<_>>().join("\n")
    });
    let said = refused(replica);
    assert!(said.contains("a pooler stands before it"), "{said}");
}
