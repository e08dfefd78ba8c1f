//! The user's own file, `~/.config/gateway/config.toml`: what it says holds below the project's
//! file and the flags, and no command could have written it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use crate::desk::{Desk, said};

const OWN: &str = "home/.config/gateway/config.toml";

/// Runs a script in a project, and returns what was said and the exit code.
fn run(desk: &Desk, flags: &[&str], script: &str) -> (String, Option<i32>) {
    let mut command = desk.command("one", &[flags, &["--", "sh", "-c", script]].concat());
    let output = command.output().unwrap();
    let all = [output.stdout, output.stderr].concat();
    (
        String::from_utf8_lossy(&all).into_owned(),
        output.status.code(),
    )
}

fn allow(desk: &Desk) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gateway"));
    let from = desk.command("one", &[]);
    command.current_dir(desk.at("one")).env_clear();
    for (name, value) in from
        .get_envs()
        .filter_map(|(name, value)| Some((name, value?)))
    {
        command.env(name, value);
    }
    use std::os::unix::process::CommandExt as _;
    command.uid(crate::desk::USER).gid(crate::desk::USER);
    let told = said({
        command.args(["project", "allow", "--yes"]);
        command
    });
    assert!(told.contains("gateway.toml"), "{told}");
}

#[test]
fn the_project_stands_above_the_users_own_file_and_keeps_how_servers_are_reached() {
    let desk = Desk::bare();
    desk.write(
        OWN,
        "[sandbox]\npass_env = [\"MINE\"]\nhide = [\"~/file\"]\n\
         [[origin]]\nmatch = \"https://*.corp.test\"\nconnect = \"127.0.0.1:1\"\n",
    );
    let own = desk.at(OWN).display().to_string();
    let script = "curl -sS https://a.corp.test/";
    let (told, _) = run(&desk, &["--allow", "a.corp.test"], script);
    // The fixed address of the user's file, not DNS.
    assert!(
        told.contains("\"unreachable\"") && told.contains(&format!("{own}, your own")),
        "{told}"
    );
    // A project's origin of the same host, and one that is narrower, are reached so too.
    for matches in ["https://*.corp.test", "https://a.corp.test"] {
        let project = format!(
            "[policy]\nallow = [\"a.corp.test\"]\n[[origin]]\nmatch = \"{matches}\"\nunderscores = true\n"
        );
        desk.write("one/gateway.toml", &project);
        allow(&desk);
        let (told, _) = run(
            &desk,
            &[],
            &format!("curl -sS -H 'x_y: 1' {}", &script[9..]),
        );
        assert!(told.contains("\"unreachable\""), "{matches}: {told}");
        assert!(
            told.contains("as you allowed it") && told.contains("your own"),
            "{told}"
        );
    }
    // A wider one does not take over what the narrower is allowed.
    let wide = "[policy]\nallow = [\"*.corp.test\"]\n[[origin]]\nmatch = \"https://*.corp.test\"\nunderscores = true\n";
    desk.write("one/gateway.toml", wide);
    desk.write(
        OWN,
        "[[origin]]\nmatch = \"https://a.corp.test\"\nconnect = \"127.0.0.1:1\"\n",
    );
    allow(&desk);
    let (told, _) = run(
        &desk,
        &[],
        &format!("{script}; {}", script.replace("//a", "//b")),
    );
    assert!(
        told.contains("\"unreachable\"") && told.contains("\"unresolved\""),
        "{told}"
    );
    // A named file stands alone, and that is said.
    desk.write("home/named.toml", "");
    let named = desk.at("home/named.toml").display().to_string();
    let (told, _) = run(&desk, &["--config", &named], "true");
    let project = desk.at("one/gateway.toml").display().to_string();
    let line = told.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        line.contains(&format!(
            "--config stands alone, without {own} and {project}"
        )),
        "{told}"
    );
}

#[test]
fn what_the_users_own_file_may_not_hold_or_who_else_could_write_it_is_refused_with_its_place() {
    let desk = Desk::bare();
    let own = desk.at(OWN).display().to_string();
    let runs = || run(&desk, &[], "echo ran");
    for (text, at, what) in [
        (
            "[policy]\nallow = [\"a.test\"]\n",
            "1:2",
            "[policy] may not stand in your own file",
        ),
        (
            "\n[[credential]]\nname = \"T\"\norigins = [\"https://a.test\"]\n",
            "2:3",
            "[[credential]] may not stand in your own file",
        ),
        (
            "[state]\npath = \"x\"\n",
            "1:2",
            "[state] may not stand in your own file",
        ),
        (
            "[[origin]]\nmatch = \"*\"\nvia = \"proxy\"\n",
            "3:7",
            "`via` of [[origin]] is `proxy`",
        ),
        (
            "[[origin]]\nmatch = \"*\"\nvia_auth = \"file:~/none\"\nvia = \"http://p.test:1\"\n",
            "3:12",
            "`via_auth` refers to no usable secret",
        ),
        ("[origins]\n", "1:2", "unknown section or key `origins`"),
    ] {
        desk.write(OWN, text);
        let (told, code) = runs();
        let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            code == Some(2) && told.contains(&format!("{own}:{at}")) && told.contains(what),
            "{text}: {told}"
        );
        assert!(!told.contains("ran"), "{told}");
    }
    desk.write(OWN, "");
    fs::set_permissions(desk.at(OWN), fs::Permissions::from_mode(0o666)).unwrap();
    let (told, code) = runs();
    assert!(
        code == Some(2) && told.contains("everyone on this machine can change the file"),
        "{told}"
    );
    // A command that may write to its folder could have written it: from the first run on.
    let folder = desk.at("home/.config/gateway");
    fs::remove_dir_all(&folder).unwrap();
    std::os::unix::fs::symlink(desk.at("one/gateway"), &folder).unwrap();
    let forge = "mkdir gateway; printf '[[origin]]\nmatch = \"*\"\nvia = \"http://evil.test:1\"\n' > gateway/config.toml";
    let (told, code) = run(&desk, &[], forge);
    assert_eq!(code, Some(0), "{told}");
    let (told, code) = runs();
    let why = "a command in a sandbox could have written";
    assert!(code == Some(2) && told.contains(why), "{told}");
}
