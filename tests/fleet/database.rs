//! A real PostgreSQL with TLS, and databases in it.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use gateway::state::{PostgresSettings, PostgresUrl};
use zeroize::Zeroizing;

use crate::server::{Postgres, SUPERUSER, path_of_tests};

/// A server, and how many databases it has.
pub struct Databases {
    pub server: Postgres,
    made: AtomicU32,
}

/// A database of its own.
pub struct Database {
    pub name: String,
    pub port: u16,
}

impl Databases {
    pub fn start() -> Self {
        Self {
            server: Postgres::start(),
            made: AtomicU32::new(0),
        }
    }

    /// Has the server speak TLS as `localhost`, beside clear text. Returns its certificate.
    pub fn speak_tls(&self) -> String {
        let own = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let (chain, key) = (own.cert.pem(), own.signing_key.serialize_pem());
        let admin = self.admin();
        let folder = admin.sql("SHOW data_directory");
        for (name, text) in [("own.pem", chain.clone()), ("own.key", key)] {
            let path = std::path::Path::new(&folder).join(name);
            std::fs::write(&path, text).unwrap();
            let own = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(&folder).unwrap());
            std::os::unix::fs::chown(&path, Some(own), None).unwrap();
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
            std::fs::set_permissions(&path, mode).unwrap();
        }
        for set in [
            "ssl_cert_file = 'own.pem'",
            "ssl_key_file = 'own.key'",
            "ssl = on",
        ] {
            admin.sql(&format!("ALTER SYSTEM SET {set}"));
        }
        admin.sql("SELECT pg_reload_conf()");
        let until = std::time::Instant::now() + std::time::Duration::from_secs(5);
        while admin.sql("SHOW ssl") != "on" {
            assert!(
                std::time::Instant::now() < until,
                "the server speaks no TLS"
            );
        }
        chain
    }

    fn admin(&self) -> Database {
        Database {
            name: "postgres".to_owned(),
            port: self.server.port,
        }
    }

    pub fn fresh(&self) -> Database {
        let made = self.made.fetch_add(1, Ordering::Relaxed);
        self.admin().sql(&format!("CREATE DATABASE fleet{made}"));
        Database {
            name: format!("fleet{made}"),
            port: self.server.port,
        }
    }
}

impl Database {
    /// The URL without the password.
    pub fn url(&self) -> String {
        let Self { name, port } = self;
        format!("postgres://postgres@127.0.0.1:{port}/{name}?sslmode=disable")
    }

    pub fn settings(&self) -> PostgresSettings {
        let password = || Zeroizing::new(SUPERUSER.as_bytes().to_vec());
        PostgresSettings {
            url: PostgresUrl::parse(&self.url()).unwrap(),
            password: Some(Arc::new(move || Box::pin(async move { Some(password()) }))),
            tls: crate::tls(None),
        }
    }

    /// Runs statements by the server's own client, and returns what they answered.
    pub fn sql(&self, text: &str) -> String {
        let output = Command::new("psql")
            .args([
                "-h",
                "127.0.0.1",
                "-U",
                "postgres",
                "-XAtq",
                "-v",
                "ON_ERROR_STOP=1",
            ])
            .args(["-d", &self.name, "-p", &self.port.to_string(), "-c", text])
            .env("PGPASSWORD", SUPERUSER)
            .env("PATH", path_of_tests())
            .output()
            .expect("`psql` is there: .ci/packages");
        assert!(output.status.success(), "{text}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Puts the database back to what a dump says, under the eyes of those that use it.
    pub fn restore(&self, dump: &[u8]) {
        let text = std::str::from_utf8(dump).unwrap();
        let tables = "gateway_store, gateway_clock, gateway_row, gateway_decision, gateway_budget";
        // The replicas stay: they beat meanwhile.
        let mut data = String::from("BEGIN;\n");
        data += &format!("TRUNCATE {tables};\n");
        let mut copies = false;
        for line in text.lines() {
            copies |= line.starts_with("COPY ") && !line.contains("gateway_replica");
            if copies {
                data.push_str(line);
                data.push('\n');
            }
            copies &= line != "\\.";
        }
        data.push_str("COMMIT;\n");
        let mut child = Command::new("psql")
            .args([
                "-h",
                "127.0.0.1",
                "-U",
                "postgres",
                "-XAtq",
                "-v",
                "ON_ERROR_STOP=1",
            ])
            .args(["-d", &self.name, "-p", &self.port.to_string()])
            .env("PGPASSWORD", SUPERUSER)
            .env("PATH", path_of_tests())
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        std::io::Write::write_all(&mut input, data.as_bytes()).unwrap();
        drop(input);
        assert!(child.wait().unwrap().success());
    }

    /// What `pg_dump` says of it.
    pub fn dump(&self) -> Vec<u8> {
        let output = Command::new("pg_dump")
            .args([
                "-h",
                "127.0.0.1",
                "-U",
                "postgres",
                "-p",
                &self.port.to_string(),
                &self.name,
            ])
            .env("PGPASSWORD", SUPERUSER)
            .env("PATH", path_of_tests())
            .output()
            .expect("`pg_dump` is there: .ci/packages");
        assert!(output.status.success(), "{output:?}");
        output.stdout
    }
}
