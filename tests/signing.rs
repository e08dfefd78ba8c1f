//! Real AWS clients that sign with phantoms, before origins that verify every signature: the rig of
//! `tests/signing`, which docs/signing.md shows.
//!
//! `GATEWAY_CLIENTS` names the directory of the installed clients, as for `tests/clients.rs`.
//! Nothing is skipped: where a client or an origin is missing, this fails.

use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn the_origins_take_every_client_with_the_real_key_and_none_with_another() {
    judge(&["--direct"]);
}

#[test]
fn every_client_gets_through_with_phantoms_and_every_origin_verifies_the_real_key() {
    judge(&["--gateway", env!("CARGO_BIN_EXE_gateway")]);
}

/// The origins' own verifier before the published vectors, which stand in the source of
/// `aws-sigv4`, so that they are wherever this builds; `GATEWAY_SIGV4_VECTORS` names another copy.
#[test]
fn the_verifier_agrees_with_the_published_vectors() {
    let (rig, home) = installed();
    run(Command::new(home.join("signing/venv/bin/python"))
        .arg(rig.join("verifier.py"))
        .arg(vectors("v4")));
}

/// All of them, v4 and v4a, in the header and in the query: signed with phantoms by the client, and
/// at the origin as they are published. Both programs run at the vectors' time, by Debian's
/// `libfaketime`.
#[test]
fn the_published_vectors_go_through_the_whole_gateway() {
    let (rig, home) = installed();
    run(Command::new(home.join("signing/venv/bin/python"))
        .arg(rig.join("vectors.py"))
        .arg(env!("CARGO_BIN_EXE_gateway"))
        .args([vectors("v4"), vectors("v4a")])
        .env("LD_PRELOAD", "/usr/$LIB/faketime/libfaketimeMT.so.1")
        .env("FAKETIME", "2015-08-30 12:36:00")
        .env("TZ", "UTC")
        .env("DONT_FAKE_MONOTONIC", "1")
        .env("NO_FAKE_STAT", "1"));
}

fn vectors(kind: &str) -> PathBuf {
    if let Some(named) = std::env::var_os("GATEWAY_SIGV4_VECTORS") {
        let suite = Path::new(&named).join(kind);
        if suite.is_dir() {
            return suite;
        }
        println!("GATEWAY_SIGV4_VECTORS has no `{kind}`; the crate's own copy is used");
    }
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let folders = |path: PathBuf| {
        std::fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap().path())
    };
    folders(home.unwrap().join("registry/src"))
        .flat_map(folders)
        .map(|source| source.join("aws-signing-test-suite").join(kind))
        .find(|suite| suite.is_dir())
        .expect(
            "the vectors stand in the source of `aws-sigv4`; name another copy with GATEWAY_SIGV4_VECTORS",
        )
}

fn judge(arguments: &[&str]) {
    let (rig, home) = installed();
    run(Command::new(rig.join("judge"))
        .args(arguments)
        .env("GATEWAY_CLIENTS", home));
}

/// The rig and its clients, installed once by whichever test comes first.
fn installed() -> (PathBuf, PathBuf) {
    static ONCE: std::sync::Once = std::sync::Once::new();
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let home = std::env::var_os("GATEWAY_CLIENTS").map_or_else(
        || match rustix::process::geteuid().is_root() {
            true => PathBuf::from("/var/cache/gateway-clients"),
            false => Path::new(env!("CARGO_TARGET_TMPDIR")).join("clients"),
        },
        PathBuf::from,
    );
    ONCE.call_once(|| {
        for rig in ["clients", "signing"] {
            run(Command::new(tests.join(rig).join("setup")).env("GATEWAY_CLIENTS", &home));
        }
    });
    (tests.join("signing"), home)
}

/// Runs one of the rig's programs, whose output goes where the test's does.
#[track_caller]
fn run(command: &mut Command) {
    let status = command
        .status()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}: {status}");
}
