//! Real AWS clients that sign with phantoms, before origins that verify every signature: the rig of `tests/signing`, which
//! docs/signing.md shows.
//!
//! `GATEWAY_CLIENTS` names the directory of the installed clients, as for `tests/clients.rs`. Nothing is skipped: where a client or
//! an origin is missing, this fails.

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

/// The origins' own verifier, before the published vectors. They are no part of this repository.
#[test]
fn the_verifier_agrees_with_the_published_vectors() {
    let Some(vectors) = std::env::var_os("GATEWAY_SIGV4_VECTORS") else {
        println!(
            "!! NOT CHECKED against the published vectors: GATEWAY_SIGV4_VECTORS names no directory of them"
        );
        return;
    };
    let (rig, home) = installed();
    run(Command::new(home.join("signing/venv/bin/python"))
        .arg(rig.join("verifier.py"))
        .arg(vectors));
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
