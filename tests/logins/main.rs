//! Logins: programs that are logged in by their file, and that log in inside, through the shipped
//! program as an ordinary user. Prints the figures of each row; `GATEWAY_LOGINS=full` runs as long
//! as the issue promises.
//!
//! `GATEWAY_CLIENTS` names the directory of the installed clients, as for `tests/clients.rs`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

macro_rules! rows {
    ($($test:ident: $row:literal,)*) => {
        $(#[test]
        fn $test() {
            play($row);
        })*
    };
}

rows! {
    a_crowd_of_commands_and_the_program_outside_share_a_login_that_one_renews: "crowd",
    a_program_is_logged_in_by_its_file_alone_with_phantoms: "file",
    a_login_inside_gives_phantoms_and_is_kept_once_a_person_says_so: "captured",
    a_gateway_that_is_killed_loses_a_login_only_between_answer_and_write: "killed",
    what_an_issuer_gives_is_kept_or_it_is_not_asked: "unkept",
    neither_a_workload_nor_an_issuer_gets_a_token_in_or_out: "attacks",
    a_real_server_of_openid_connect_sees_one_owner_of_its_tokens: "oidc",
    package_managers_and_git_are_logged_in_by_their_files: "registries",
    claude_code_codex_gemini_and_gh_are_logged_in_by_file_and_by_their_own_login: "programs",
}

fn play(row: &str) {
    let rows = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/logins/rows.py");
    let clients = clients();
    let mut play = Command::new(clients.join("venv/bin/python"));
    play.arg(rows)
        .arg(env!("CARGO_BIN_EXE_gateway"))
        .args([clients, Path::new(row)]);
    let played = play.status().unwrap();
    assert!(played.success(), "{row}: {played}");
}

/// The clients, installed once.
fn clients() -> &'static Path {
    static CLIENTS: OnceLock<PathBuf> = OnceLock::new();
    CLIENTS.get_or_init(|| {
        let home = std::env::var_os("GATEWAY_CLIENTS").map_or_else(
            || PathBuf::from("/var/cache/gateway-clients"),
            PathBuf::from,
        );
        let has = |name: &str| home.join(name).exists();
        if !has("oidc/node_modules/oidc-provider") || !has("venv/bin/twine") {
            let setup = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/setup");
            let ready = Command::new(setup).env("GATEWAY_CLIENTS", &home).status();
            assert!(
                ready.as_ref().is_ok_and(|ready| ready.success()),
                "{ready:?}"
            );
        }
        home
    })
}
