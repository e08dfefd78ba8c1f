//! The key ring against a real Secret Service: gnome-keyring on a bus of its own. Fails where they
//! are not installed.

#[path = "rig/addresses.rs"]
mod addresses;

use std::process::Command;

use gateway::credential::{SecretRef, SecretUnsafe, StoreError, Stores, ring};
use gateway::names::CredentialName;
use zeroize::Zeroizing;

const INNER: &str = "GATEWAY_TEST_INSIDE_BUS";

/// Runs one test of this program again, on a private bus with an unlocked, empty key ring.
fn on_a_private_bus(test: &str) {
    let home = tempfile::tempdir().unwrap();
    let script = r#"
        printf password | gnome-keyring-daemon --foreground --unlock --components=secrets >/dev/null 2>&1 &
        ring=$!
        "$0" --exact "$1" --nocapture
        status=$?
        kill $ring
        exit $status
    "#;
    let output = Command::new("dbus-run-session")
        .args(["--", "sh", "-c", script])
        .arg(std::env::current_exe().unwrap())
        .arg(test)
        .env(INNER, "1")
        .env("HOME", home.path())
        .env("XDG_DATA_HOME", home.path())
        .env("XDG_RUNTIME_DIR", home.path())
        .output()
        .expect("dbus-run-session is needed: install dbus and gnome-keyring");
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}"
    );
    assert!(!text.contains("CANARY"), "{text}");
}

fn value(text: &str) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(text.as_bytes().to_vec())
}

#[test]
fn what_is_set_in_the_key_ring_is_what_its_reference_yields() {
    if std::env::var_os(INNER).is_none() {
        return on_a_private_bus("what_is_set_in_the_key_ring_is_what_its_reference_yields");
    }
    let name = CredentialName::new("github").unwrap();
    // The daemon takes a moment to own its name on the bus.
    let listed = (0..100).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        ring::list().ok()
    });
    assert_eq!(listed, Some(vec![]));
    let mut remove = Command::new(env!("CARGO_BIN_EXE_gateway"));
    let removed = remove.args(["secret", "rm", "nothing"]).output().unwrap();
    let told = String::from_utf8_lossy(&removed.stderr);
    assert_eq!(removed.status.code(), Some(1), "{told}");
    assert!(told.contains("next: `gateway secret list`"), "{told}");
    ring::set(&name, value("CANARY-0001")).unwrap();
    ring::set(&name, value("CANARY-0002")).unwrap();
    assert_eq!(ring::list().unwrap(), ["github"]);
    assert!(matches!(
        ring::set(&name, value("CAN\r\nARY-0003")),
        Err(ring::RingError::Unsafe(SecretUnsafe::Character))
    ));

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let reference = SecretRef::keyring("gateway", "github");
        let source = |reference| Stores::new([]).source(reference);
        let lease = source(&reference)
            .resolve(None)
            .await
            .unwrap_or_else(|error| panic!("{error}"));
        assert!(lease.secret.is(b"CANARY-0002"));
        assert!(lease.expires.is_some());
        let cause = |reference| async move {
            let unavailable = source(reference).resolve(None).await.err();
            unavailable.unwrap().cause
        };
        let absent = SecretRef::keyring("gateway", "none");
        assert_eq!(cause(&absent).await, StoreError::Absent);
        ring::delete(&name).unwrap();
        assert_eq!(cause(&reference).await, StoreError::Absent);
    });
    assert!(matches!(
        ring::delete(&name),
        Err(ring::RingError::Store(StoreError::Absent))
    ));
}

#[test]
fn without_a_bus_the_key_ring_is_unreachable_and_says_so() {
    if std::env::var_os(INNER).is_some() {
        assert!(matches!(
            ring::list(),
            Err(ring::RingError::Store(StoreError::Unreachable(_)))
        ));
        return;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "without_a_bus_the_key_ring_is_unreachable_and_says_so",
        ])
        .env(INNER, "1")
        .env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent/bus")
        .output()
        .unwrap();
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("1 passed"),
        "{output:?}"
    );
}

#[test]
fn the_key_that_seals_sessions_is_in_the_key_ring_if_there_is_one() {
    let own = "the_key_that_seals_sessions_is_in_the_key_ring_if_there_is_one";
    if std::env::var_os(INNER).is_none() {
        return on_a_private_bus(own);
    }
    let ready = (0..100).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(100));
        ring::list().is_ok()
    });
    assert!(ready);
    let folder = tempfile::tempdir().unwrap();
    let config = format!(
        "[audit]\npath = \"audit.jsonl\"\n[phantoms]\nenv_file = \"phantoms.env\"\n[state]\npath = \"state/s.db\"\n\
         [[listener]]\nkind = \"proxy\"\naddress = \"{}\"\nsession = \"s\"\n\
         [[credential]]\nname = \"TOKEN\"\nfrom = \"env:TOKEN\"\norigins = [\"https://a.test\"]\n\
         places = [\"header:authorization:Bearer\"]\n",
        addresses::free()
    );
    std::fs::write(folder.path().join("gateway.toml"), config).unwrap();
    let own = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(folder.path(), own).unwrap();
    let phantoms = || {
        let file = folder.path().join("phantoms.env");
        let _ = std::fs::remove_file(&file);
        let mut serve = Command::new(env!("CARGO_BIN_EXE_gateway"))
            .args(["serve", "-q", "--config", "gateway.toml"])
            .current_dir(folder.path())
            .env("TOKEN", "CANARY-0123456789")
            .spawn()
            .unwrap();
        let written = (0..200).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(100));
            std::fs::read_to_string(&file).ok()
        });
        serve.kill().unwrap();
        serve.wait().unwrap();
        written.expect("it starts")
    };
    assert_eq!(phantoms(), phantoms());
    assert_eq!(ring::list().unwrap(), ["gateway-state"]);
    let state = std::fs::read_dir(folder.path().join("state")).unwrap();
    let names: Vec<_> = state.map(|file| file.unwrap().file_name()).collect();
    assert!(!names.iter().any(|name| name == "key"), "{names:?}");
    // Whoever removes it is told at the next start.
    ring::delete(&CredentialName::new("gateway-state").unwrap()).unwrap();
    let refused = Command::new(env!("CARGO_BIN_EXE_gateway"))
        .args(["serve", "-q", "--config", "gateway.toml"])
        .current_dir(folder.path())
        .env("TOKEN", "CANARY-0123456789")
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && told.contains("--fresh"),
        "{told}"
    );
}
