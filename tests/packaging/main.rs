//! What is shipped, built by `packaging/build`, and each part of it started where it is meant to
//! run: real containers, a real systemd, an empty root.
//!
//! Each row is a script in this folder. They need root, and the packages of `.ci/packages`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The folder of what `packaging/build` has made, once for all rows.
fn packages() -> &'static Path {
    static PACKAGES: OnceLock<PathBuf> = OnceLock::new();
    PACKAGES.get_or_init(|| {
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("packages");
        // The tests beside it come first.
        let mut build = Command::new("nice");
        build.args(["-n", "5", "packaging/build"]);
        build.args(["--profile", "test", "--out"]).arg(&out);
        build.args(["--glibc", env!("CARGO_BIN_EXE_gateway")]);
        // What Cargo tells its tests is not for the Cargo that they start.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("CARGO_") && name != "CARGO_HOME" {
                build.env_remove(name);
            }
        }
        let built = build.output().unwrap();
        let said = String::from_utf8_lossy(&built.stderr);
        assert!(built.status.success(), "packaging/build: {said}");
        out
    })
}

/// Runs a row. It says what is wrong, and ends with a sentence.
fn holds(row: &str) {
    let clients = std::env::var("GATEWAY_CLIENTS")
        .expect("GATEWAY_CLIENTS should be what .ci/install has printed: run .ci/test");
    let ran = Command::new("bash")
        .arg(format!("tests/packaging/{row}.sh"))
        .env("PACKAGES", packages())
        .env("KEPT", "/var/tmp/gateway-packaging")
        .env("COMPOSE", format!("{clients}/packaging/bin/podman-compose"))
        .output()
        .unwrap();
    let out = String::from_utf8_lossy(&ran.stdout);
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{row}:\n{out}\n{said}");
    let last = out.lines().last().unwrap_or_default();
    assert!(last.ends_with("holds") || last.ends_with("hold"), "{out}");
    println!("{out}");
}

#[test]
fn the_static_program_runs_in_an_empty_root() {
    holds("root");
}

#[test]
fn a_release_has_sums_and_a_bill_of_materials_and_a_result_within_a_second() {
    holds("release");
}

#[test]
fn the_image_holds_program_and_roots_alone_and_is_not_root() {
    holds("image");
}

#[test]
fn compose_starts_a_workload_whose_only_way_is_the_gateway() {
    holds("compose");
}

#[test]
fn the_pod_starts_a_workload_whose_only_way_is_the_gateway() {
    holds("pod");
}

#[test]
fn the_package_is_installed_served_by_systemd_upgraded_and_removed() {
    holds("package");
}

#[test]
fn the_action_installs_what_it_names_and_runs_a_script_in_a_sandbox() {
    holds("action");
}

#[test]
fn the_feature_installs_a_program_that_makes_sandboxes_in_the_container() {
    holds("feature");
}
