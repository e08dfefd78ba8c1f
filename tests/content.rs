//! Credentials where services take them, and policies on what requests do, with the services' own
//! SDKs and with real servers: `tests/content`.
//!
//! `GATEWAY_CLIENTS` names the directory of the installed clients, which `.ci/install` prints.
//! Without it, or without a client, these fail.

#[path = "content/readers/mod.rs"]
mod readers;

use std::path::Path;
use std::process::Command;

#[test]
fn each_services_sdk_has_its_credential_put_in_where_the_service_takes_it_and_there_alone() {
    run("places/run");
}

#[test]
fn what_requests_do_is_judged_before_real_servers_with_their_sdks() {
    run("protocols/run");
}

#[track_caller]
fn run(program: &str) {
    let rig = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/content");
    let clients = std::env::var("GATEWAY_CLIENTS")
        .expect("GATEWAY_CLIENTS names the directory that `.ci/install` prints");
    let status = Command::new(rig.join(program))
        .env("GATEWAY", env!("CARGO_BIN_EXE_gateway"))
        .env("GATEWAY_CLIENTS", clients)
        .status();
    assert!(status.is_ok_and(|status| status.success()), "{program}");
}
