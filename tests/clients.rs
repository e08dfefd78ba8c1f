//! Real clients through the gateway: the matrix of `tests/clients`, which docs/launcher.md shows.
//!
//! `GATEWAY_CLIENTS` names the directory of the installed clients; without it they are installed
//! below the target directory (by root: in /var/cache), once (minutes, and the system's package
//! manager for what is missing). Nothing is skipped: where namespaces are refused or a client is
//! missing, this fails.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

#[test]
fn every_client_gets_through_by_every_way_with_a_phantom_alone() {
    run(Command::new(rig().join("matrix"))
        .args(["--gateway", env!("CARGO_BIN_EXE_gateway")])
        .env("GATEWAY_CLIENTS", clients()));
}

#[test]
fn everyday_commands_work_by_flags_of_the_readme_or_say_at_once_what_would_help() {
    run(Command::new(clients().join("venv/bin/python"))
        .arg(rig().join("everyday.py"))
        .arg(env!("CARGO_BIN_EXE_gateway"))
        .env("GATEWAY_CLIENTS", clients()));
}

#[test]
fn a_company_is_reached_by_its_proxy_and_its_own_roots_as_the_users_own_file_says() {
    run(Command::new(clients().join("venv/bin/python"))
        .arg(rig().join("company.py"))
        .arg(env!("CARGO_BIN_EXE_gateway"))
        .env("GATEWAY_CLIENTS", clients()));
}

#[test]
fn a_real_agent_that_is_logged_in_outside_shows_its_ready_screen_in_a_terminal_in_two_projects() {
    run(Command::new(clients().join("venv/bin/python"))
        .arg(rig().join("screen.py"))
        .arg(env!("CARGO_BIN_EXE_gateway"))
        .env("GATEWAY_CLIENTS", clients()));
}

#[test]
fn every_client_shows_a_refusal_with_its_host_and_the_command_behind_every_door() {
    run(Command::new(rig().join("refused.py"))
        .arg(env!("CARGO_BIN_EXE_gateway"))
        .env("GATEWAY_CLIENTS", clients()));
}

#[test]
fn connections_that_a_real_origin_retires_cost_no_request_and_repeat_no_post() {
    run(Command::new(clients().join("venv/bin/python"))
        .arg(rig().join("retired.py"))
        .arg(env!("CARGO_BIN_EXE_gateway")));
}

#[test]
fn policies_over_content_hold_for_the_sdks_that_send_it() {
    run(Command::new(rig().join("content/run"))
        .env("GATEWAY", env!("CARGO_BIN_EXE_gateway"))
        .env("GATEWAY_CLIENTS", clients()));
}

#[test]
fn budgets_labels_and_asks_hold_for_the_sdks_that_meet_them_and_none_repeats_a_refusal() {
    run(Command::new(rig().join("decided/run"))
        .env("GATEWAY", env!("CARGO_BIN_EXE_gateway"))
        .env("GATEWAY_CLIENTS", clients()));
}

#[test]
fn doctor_tells_a_client_that_gets_through_from_one_that_does_not_and_why() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(folder.path().join(".curlrc"), "cacert = /etc/hostname\n").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_gateway"))
        .args(["--json", "doctor"])
        .current_dir(folder.path())
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        // Elsewhere: a project that is the home is private to the sandbox, which would not see the
        // file.
        .env("HOME", "/nonexistent")
        .env("CURL_HOME", folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let findings: Vec<serde_json::Value> =
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let of = |client: &str| findings.iter().find(|one| one["client"] == client).unwrap();
    for client in ["wget", "git", "python urllib", "node"] {
        assert_eq!(of(client)["verdict"], "ok", "{said}");
    }
    assert_eq!(of("curl")["verdict"], "fails", "{said}");
    assert!(
        of("curl")["why"]
            .as_str()
            .unwrap()
            .contains("/etc/hostname"),
        "{said}"
    );
    assert!(
        of("curl")["remedy"].as_str().unwrap().contains("~/.curlrc"),
        "{said}"
    );
    assert_eq!(output.status.code(), Some(1), "{said}");
}

fn rig() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients")
}

/// The clients, installed once.
fn clients() -> &'static Path {
    static CLIENTS: OnceLock<PathBuf> = OnceLock::new();
    CLIENTS.get_or_init(|| {
        let home = std::env::var_os("GATEWAY_CLIENTS").map_or_else(installed, PathBuf::from);
        run(Command::new(rig().join("setup")).env("GATEWAY_CLIENTS", &home));
        home
    })
}

/// Where clients are installed unless somebody says otherwise: as root, where users without
/// privileges reach them.
fn installed() -> PathBuf {
    match rustix::process::geteuid().is_root() {
        true => PathBuf::from("/var/cache/gateway-clients"),
        false => Path::new(env!("CARGO_TARGET_TMPDIR")).join("clients"),
    }
}

/// Runs one of the rig's programs, whose output goes where the test's does.
#[track_caller]
fn run(command: &mut Command) {
    let status = command
        .status()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}: {status}");
}
