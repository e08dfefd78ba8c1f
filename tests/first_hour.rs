//! The first hour of a new user with the real coding agents, in a terminal: docs/first-hour.md.
//!
//! `GATEWAY_CLIENTS` names the directory of the installed clients, as for `tests/clients.rs`.
//! `GATEWAY_WRITE=1` writes the page instead of comparing it.

use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn agents_work_with_phantoms_alone_remember_and_are_told_what_allows_a_host() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let clients = std::env::var_os("GATEWAY_CLIENTS").map_or_else(
        || PathBuf::from("/var/cache/gateway-clients"),
        PathBuf::from,
    );
    let mut has = Command::new(clients.join("venv/bin/python"));
    if !has
        .args(["-c", "import pyte"])
        .status()
        .is_ok_and(|has| has.success())
    {
        let mut setup = Command::new(here.join("tests/clients/setup"));
        let ready = setup.env("GATEWAY_CLIENTS", &clients).status().unwrap();
        assert!(ready.success(), "{ready}");
    }
    let mut play = Command::new(clients.join("venv/bin/python"));
    play.arg(here.join("tests/clients/first_hour.py"))
        .arg(env!("CARGO_BIN_EXE_gateway"))
        .arg(clients.join("agents"))
        .arg(here.join("docs/first-hour.md"))
        .args(std::env::var_os("GATEWAY_WRITE").map(|_| "--write"));
    let played = play.status().unwrap();
    assert!(played.success(), "{played}");
}
