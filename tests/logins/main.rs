//! Logins: programs that are logged in by their file, and that log in inside, through the shipped
//! program as an ordinary user. Prints the figures of each row; `GATEWAY_LOGINS=full` runs as long
//! as docs/logins.md promises.
//!
//! `GATEWAY_CLIENTS` names the directory of the installed clients, as for `tests/clients.rs`.

use std::path::{Path, PathBuf};
use std::process::Command;

macro_rules! rows {
    ($($test:ident: $row:literal,)*) => {
        $(#[test]
        fn $test() {
            play($row);
        })*
    };
}

rows! {
    twenty_commands_and_the_program_outside_share_one_login_that_one_of_them_renews: "crowd",
    a_program_is_logged_in_by_its_file_alone_with_phantoms: "file",
    a_login_inside_gives_phantoms_and_is_kept_once_a_person_says_so: "captured",
    a_gateway_that_is_killed_loses_a_login_only_between_answer_and_write: "killed",
    neither_a_workload_nor_an_issuer_gets_a_token_in_or_out: "attacks",
}

fn play(row: &str) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let clients = std::env::var_os("GATEWAY_CLIENTS").map_or_else(
        || PathBuf::from("/var/cache/gateway-clients"),
        PathBuf::from,
    );
    let mut play = Command::new("python3");
    play.arg(here.join("tests/logins/rows.py"))
        .arg(env!("CARGO_BIN_EXE_gateway"))
        .args([&clients, Path::new(row)]);
    let played = play.status().unwrap();
    assert!(played.success(), "{row}: {played}");
}
