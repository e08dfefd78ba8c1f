//! What a command could write in one run neither runs outside nor steers the next: `gateway exec`
//! by an ordinary user, two runs apart. Beside each way stands a control: the same, made by the
//! person in a folder that no command could ever write to.

#[path = "rig/addresses.rs"]
mod addresses;

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// An ordinary user. The number belongs to nobody.
const USER: u32 = 12345;
/// What a command in a sandbox could have written is called so.
const REFUSED: &str = "a command in a sandbox could have written";

/// A home with folders of work.
struct Desk(tempfile::TempDir);

impl Desk {
    fn new() -> Self {
        assert_eq!(rustix::process::geteuid().as_raw(), 0, "run these as root");
        let folder = tempfile::tempdir_in("/srv").unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let desk = Self(folder);
        for name in ["", "proj", "clean", "tools", "other"] {
            fs::create_dir(desk.at(name)).unwrap();
            chown(desk.at(name), Some(USER), Some(USER)).unwrap();
        }
        desk
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join("home").join(name)
    }

    fn shown(&self, name: &str) -> String {
        self.at(name).display().to_string()
    }

    /// A program of the user's, in a folder.
    fn command(&self, folder: &str, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(self.at(folder))
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.at(""))
            .env("TENCENTCLOUD_SECRET_ID", format!("AKID{}", "a1".repeat(16)))
            .env("TENCENTCLOUD_SECRET_KEY", "b2".repeat(16))
            .stdin(Stdio::null())
            .uid(USER)
            .gid(USER);
        command
    }

    /// Returns the exit code of the gateway, and what it said.
    fn gateway(&self, folder: &str, arguments: &[&str]) -> (i32, String) {
        let program = env!("CARGO_BIN_EXE_gateway");
        let output = self.command(folder, program, arguments).output().unwrap();
        (output.status.code().unwrap_or(-1), said(&output))
    }

    /// What the person does.
    #[track_caller]
    fn person(&self, folder: &str, script: &str) {
        let output = self
            .command(folder, "sh", &["-ec", script])
            .output()
            .unwrap();
        assert!(output.status.success(), "{script}: {}", said(&output));
    }

    /// What a command in a sandbox does, in an earlier run.
    #[track_caller]
    fn sandbox(&self, folder: &str, flags: &[&str], script: &str) {
        let (code, said) = self.exec(folder, flags, &["sh", "-ec", script]);
        assert_eq!(code, 0, "{script}: {said}");
    }

    fn exec(&self, folder: &str, flags: &[&str], command: &[&str]) -> (i32, String) {
        self.gateway(folder, &[&["exec", "-v"], flags, &["--"], command].concat())
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.at(name), text).unwrap();
        fs::set_permissions(self.at(name), fs::Permissions::from_mode(0o600)).unwrap();
        chown(self.at(name), Some(USER), Some(USER)).unwrap();
    }

    /// Whether the program of a secret's command ran outside, and what the run said.
    fn runs(&self, command: &[String]) -> (bool, String) {
        // A new name, so that no phantom of an earlier run tells its shape.
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let text = format!(
            "[[credential]]\nname = \"a{number}\"\nfrom = {{ command = {command:?} }}\norigins = [\"https://a.test\"]\n"
        );
        self.write("config.toml", &text);
        let (code, said) = self.exec("other", &["--config", "../config.toml"], &["true"]);
        let ran = fs::remove_file(self.at("ran")).is_ok();
        assert_eq!(ran, code == 0, "{said}");
        (ran, said)
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// Writes a program that leaves a mark and prints a secret, and puts a name of it into `$1`.
const PLANT: &str = r#"plant() { mkdir -p "$(dirname "$1")"; printf '%s\n' '#!/bin/sh' 'touch "$HOME/ran"' 'echo CANARYCANARYCANARYCANARY0001' > "$1"; chmod 755 "$1"; }
"#;

/// A way to have a program run, of a folder: what is planted there, what the person has made of it
/// in `tools` before, and what the secret's command is.
type Way = (
    &'static str,
    &'static str,
    &'static str,
    &'static [&'static str],
);

const WAYS: [Way; 12] = [
    ("the program itself", "plant get", "", &["BASE/get"]),
    ("below a folder", "plant a/b/get", "", &["BASE/a/b/get"]),
    (".venv", "plant .venv/bin/get", "", &["BASE/.venv/bin/get"]),
    (
        "node",
        "plant node_modules/x/get; mkdir -p node_modules/.bin; ln -s ../x/get node_modules/.bin/get",
        "",
        &["BASE/node_modules/.bin/get"],
    ),
    (
        "a link of the command",
        "plant get; ln -s get link",
        "",
        &["BASE/link"],
    ),
    (
        "a link of the person",
        "plant get",
        "ln -s BASE/get get",
        &["TOOLS/get"],
    ),
    (
        "a link to a folder above",
        "plant in/get",
        "ln -s BASE/in in",
        &["TOOLS/in/get"],
    ),
    (
        "an interpreter",
        "plant get",
        "printf '#!BASE/get\n' > get; chmod 755 get",
        &["TOOLS/get"],
    ),
    (
        "an interpreter of env",
        "plant get",
        "printf '#!/usr/bin/env -S BASE/get\n' > get; chmod 755 get",
        &["TOOLS/get"],
    ),
    (
        "an interpreter of an interpreter",
        "plant get",
        "printf '#!BASE/get\n' > one; printf '#!TOOLS/one\n' > get; chmod 755 one get",
        &["TOOLS/get"],
    ),
    (
        "a script of an argument",
        "plant get",
        "",
        &["/bin/sh", "BASE/get"],
    ),
    (
        "a folder of a flag",
        "plant get",
        "",
        &["/usr/bin/env", "-CBASE", "./get"],
    ),
];

#[test]
fn no_program_runs_that_an_earlier_run_could_have_written() {
    let desk = Desk::new();
    desk.sandbox("proj", &["-q"], "true");
    for (name, script, prepared, command) in WAYS {
        for (base, is_clean) in [("proj", false), ("clean", true)] {
            let place = |text: &str| {
                let text = text.replace("BASE", &desk.shown(base));
                text.replace("TOOLS", &desk.shown("tools"))
            };
            let script = format!("{PLANT}{}", place(script));
            match is_clean {
                true => desk.person(base, &script),
                false => desk.sandbox(base, &["-q"], &script),
            }
            desk.person("tools", &place(prepared));
            let command: Vec<String> = command.iter().map(|text| place(text)).collect();
            let (ran, said) = desk.runs(&command);
            assert_eq!(ran, is_clean, "{name}, {base}: {said}");
            if !is_clean {
                for told in [REFUSED, &desk.shown(base), "last run 20", "move it out of"] {
                    assert!(said.contains(told), "{name}: {told}: {said}");
                }
            }
            desk.person("tools", "rm -rf ./*");
            desk.person(base, "rm -rf ./* .venv");
        }
    }
}

#[test]
fn a_folder_is_known_again_by_another_name_in_a_run_below_and_when_a_flag_made_it_writable() {
    let desk = Desk::new();
    let get = |name: &str| [desk.shown(name) + "/get"];
    desk.person("", "mkdir shared proj/pkg");
    desk.sandbox("proj", &["-q"], &format!("{PLANT}plant get"));
    // In a run below, which may not write to it.
    let text = format!(
        "[[credential]]\nname = \"a\"\nfrom = {{ command = {:?} }}\norigins = [\"https://a.test\"]\n",
        get("proj")
    );
    desk.write("config.toml", &text);
    let (code, said) = desk.exec("proj/pkg", &["--config", "../../config.toml"], &["true"]);
    assert!(code == 2 && said.contains(REFUSED), "{said}");
    desk.person("", "mv proj moved; mkdir -p deep; mv moved deep/moved");
    let (ran, said) = desk.runs(&get("deep/moved"));
    assert!(!ran && said.contains(&desk.shown("deep/moved")), "{said}");
    let shared = desk.shown("shared");
    let script = format!("{PLANT}cd {shared}; plant get");
    desk.sandbox("other", &["-q", "--write", &shared], &script);
    assert!(!desk.runs(&get("shared")).0);
    // A file with another name there.
    desk.person("", "ln shared/get tools/get");
    let (ran, said) = desk.runs(&get("tools"));
    assert!(!ran && said.contains("another name too"), "{said}");
    // What a person moved out is the person's.
    desk.person("", "rm tools/get; cp shared/get clean/get");
    assert!(desk.runs(&get("clean")).0);
    // By `doctor`, too.
    let (_, said) = desk.gateway("", &["doctor", "--config", "config.toml"]);
    assert!(desk.at("ran").exists(), "{said}");
    fs::remove_file(desk.at("ran")).unwrap();
    desk.write("config.toml", &text.replace("/proj/", "/deep/moved/"));
    let (code, said) = desk.gateway("", &["doctor", "--config", "config.toml"]);
    assert!(code == 1 && said.contains(REFUSED), "{said}");
    assert!(!desk.at("ran").exists(), "{said}");
}

#[test]
fn without_a_note_of_what_it_may_write_no_command_starts() {
    let desk = Desk::new();
    desk.sandbox("proj", &["-q"], "true");
    let note = desk.at(".local/state/gateway/sessions/user.db");
    // Where it cannot be written, nothing starts, and the remedy is that of the cause.
    fs::set_permissions(&note, fs::Permissions::from_mode(0o400)).unwrap();
    let (code, said) = desk.exec("proj", &["-q"], &["sh", "-c", "touch ran"]);
    fs::set_permissions(&note, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(
        code != 0 && said.contains("let this user write to"),
        "{said}"
    );
    assert!(!desk.at("proj/ran").exists());
    // Nor where the command could change the note itself.
    let program = env!("CARGO_BIN_EXE_gateway");
    let mut command = desk.command("proj", program, &["exec", "-q", "--", "touch", "ran"]);
    let output = command
        .env("XDG_STATE_HOME", desk.at("proj/state"))
        .output()
        .unwrap();
    assert_ne!(output.status.code(), Some(0), "{}", self::said(&output));
    assert!(!desk.at("proj/ran").exists());
    // Runs that start at the same time forget nothing of each other.
    desk.person("", "mkdir many; cd many; mkdir 1 2 3 4 5 6");
    std::thread::scope(|scope| {
        for at in 1..=6 {
            let desk = &desk;
            scope.spawn(move || desk.sandbox(&format!("many/{at}"), &["-q"], "true"));
        }
    });
    let text = String::from_utf8_lossy(&fs::read(&note).unwrap()).into_owned();
    for at in 1..=6 {
        assert!(text.contains(&desk.shown(&format!("many/{at}"))), "{text}");
    }
}

#[test]
fn a_run_after_another_writes_no_note_anew() {
    let desk = Desk::new();
    let database = desk.at(".local/state/gateway/sessions/user.db");
    let written = || {
        desk.sandbox("proj", &["-q"], "true");
        let database = rusqlite::Connection::open(&database).unwrap();
        let newest = "SELECT max(written) FROM kept WHERE kind = 'writable'";
        database
            .query_row(newest, [], |row| row.get::<_, u64>(0))
            .unwrap()
    };
    // The first run makes folders that it could only name.
    written();
    let first = written();
    assert_eq!(written(), first);
    // One that is older than an hour is: when the last command began is told from it.
    let hours = 2 * 3_600 * 1_000_000_000_u64;
    let older = rusqlite::Connection::open(&database).unwrap();
    let changed = older
        .execute("UPDATE kept SET written = written - ?1", [hours])
        .unwrap();
    assert!(changed > 0);
    drop(older);
    assert!(written() > first);
}

#[test]
fn a_note_that_is_put_aside_is_told_and_whatever_depends_on_it_is_refused() {
    let folder = ".local/state/gateway";
    let length = |desk: &Desk| {
        let about = fs::metadata(desk.at(folder).join("sessions/user.db"));
        about.unwrap().len()
    };
    for round in 0..50_u64 {
        let desk = Desk::new();
        let [database, old] =
            ["sessions/user.db", "writable"].map(|name| desk.at(folder).join(name));
        desk.write("proj/gateway.toml", ONE);
        let (code, said) = desk.gateway("proj", &["project", "deny"]);
        assert_eq!(code, 0, "{said}");
        desk.sandbox("proj", &["-q"], "true");
        let mut random = [0; 8];
        fs::File::open("/dev/urandom")
            .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut random))
            .unwrap();
        let (named, cleared) = match round % 5 {
            // An earlier gateway wrote its own note.
            0 => {
                desk.write(&format!("{folder}/writable"), "1 2 3 4 /srv\0");
                (old.clone(), old)
            }
            // Another version. A newer one stays where it is.
            1 => {
                let kept = rusqlite::Connection::open(&database).unwrap();
                kept.execute_batch("PRAGMA user_version = 2").unwrap();
                (database.clone(), database)
            }
            _ => {
                let cut = u64::from_le_bytes(random) % length(&desk);
                let file = fs::File::options().write(true).open(&database).unwrap();
                file.set_len(cut).unwrap();
                if round % 2 == 1 {
                    fs::write(database.with_file_name("user.db-wal"), "").unwrap();
                }
                let aside = database.with_file_name("user.db.aside");
                (aside.clone(), aside)
            }
        };
        desk.write("clean/gw.toml", ONE);
        let run = || {
            desk.exec(
                "other",
                &["--config", &desk.shown("clean/gw.toml")],
                &["true"],
            )
        };
        let before = fs::read(&cleared).ok();
        for _ in 0..2 {
            let (code, said) = run();
            assert!(
                code != 0 && said.contains(&named.display().to_string()),
                "{round}: {said}"
            );
        }
        // It is whole, until the person removes it on purpose.
        assert!(cleared.exists() && before.is_none_or(|text| fs::read(&cleared).unwrap() == text));
        fs::remove_file(&cleared).unwrap();
        let (code, said) = run();
        assert_eq!(code, 0, "{round}: {said}");
    }
}

#[test]
fn no_decision_that_was_answered_is_lost_to_a_kill_at_any_moment() {
    let desk = Desk::new();
    for base in ["proj", "clean"] {
        desk.write(&format!("{base}/gateway.toml"), ONE);
    }
    assert_eq!(desk.gateway("clean", &["project", "deny"]).0, 0);
    let standing = |base: &str| desk.gateway(base, &["project", "status"]).1;
    let mut known = "undecided";
    for round in 0..50_u32 {
        let (act, word) = match round % 2 {
            0 => (&["project", "allow", "--yes"][..], "allowed"),
            _ => (&["project", "deny"][..], "ignored"),
        };
        let mut command = desk.command("proj", env!("CARGO_BIN_EXE_gateway"), act);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = child.spawn().unwrap();
        std::thread::sleep(Duration::from_micros(u64::from(round) * 700));
        child.kill().unwrap();
        let answered = child.wait_with_output().unwrap().stdout;
        let (now, is_answered) = (
            standing("proj"),
            String::from_utf8_lossy(&answered).contains(word),
        );
        assert!(
            now.starts_with(word) || !is_answered && now.starts_with(known),
            "{round}: {now}"
        );
        known = if now.starts_with(word) { word } else { known };
        assert!(standing("clean").starts_with("ignored"));
    }
    assert!(
        !desk
            .at(".local/state/gateway/sessions/user.db.aside")
            .exists()
    );
}

#[test]
fn a_full_disk_refuses_a_decision_and_loses_none() {
    let desk = Desk::new();
    desk.write("proj/gateway.toml", ONE);
    desk.person("", "mkdir -p .local/state");
    let acts = r#"cd ../../proj; s=../.local/state
        "$0" project deny
        dd if=/dev/zero of=$s/filler bs=4096 2>/dev/null; dd if=/dev/zero bs=1 count=4096 >>$s/filler 2>/dev/null
        if "$0" project allow --yes; then echo allowed on a full disk; exit 1; fi
        "$0" project status; rm $s/filler; "$0" project allow --yes; "$0" project status"#;
    let script = "mount -t tmpfs -o size=400k,mode=700,uid=12345,gid=12345 none . && exec setpriv \
        --reuid=12345 --regid=12345 --clear-groups sh -c \"$1\" \"$0\"";
    let program = env!("CARGO_BIN_EXE_gateway");
    let output = Command::new("unshare")
        .args(["-m", "sh", "-ec", script, program, acts])
        .current_dir(desk.at(".local/state"))
        .env("HOME", desk.at(""))
        .env_remove("XDG_STATE_HOME")
        .output()
        .unwrap();
    let said = said(&output);
    assert!(
        output.status.success() && said.contains("on a disk with room"),
        "{said}"
    );
    assert!(
        said.contains("ignored") && said.contains("allowed"),
        "{said}"
    );
}

const ONE: &str = "[policy]\nallow = [\"one.test\"]\n";
const TWO: &str = "[policy]\nallow = [\"two.test\"]\n";
const PERMIT: &str = "permit(principal, action in Gateway::Action::\"any\", resource == Gateway::Host::\"one.test\");\n";

#[test]
fn a_configuration_of_any_name_is_in_force_with_the_text_that_a_person_allowed_alone() {
    let desk = Desk::new();
    for base in ["proj", "clean"] {
        desk.write(&format!("{base}/gw.toml"), ONE);
        symlink(desk.at(base).join("gw.toml"), desk.at("tools").join(base)).unwrap();
    }
    let run = |config: &str| desk.exec("other", &["--config", &desk.shown(config)], &["true"]);
    desk.sandbox("proj", &["-q"], "true");
    for config in ["clean/gw.toml", "tools/clean"] {
        let (code, said) = run(config);
        assert!(code == 0 && said.contains("network  one.test"), "{said}");
    }
    let allow = format!("`gateway project allow {}`", desk.shown("proj/gw.toml"));
    for config in ["proj/gw.toml", "tools/proj"] {
        let (code, said) = run(config);
        assert_eq!(code, 2, "{said}");
        for told in [REFUSED, "nobody allowed its text", &allow] {
            assert!(said.contains(told), "{told}: {said}");
        }
    }
    let config = desk.shown("proj/gw.toml");
    for command in [&["serve"][..], &["env"], &["doctor"], &["log"]] {
        let (code, said) = desk.gateway("", &[command, &["--config", &config]].concat());
        assert!(code == 2 && said.contains(REFUSED), "{command:?}: {said}");
    }
    // Where nothing is put in force it is read.
    let (_, said) = desk.gateway("", &["policy", "check", "--config", &config]);
    assert!(!said.contains(REFUSED), "{said}");
    let (code, said) = desk.gateway("", &["project", "allow", "--yes", &config]);
    assert!(code == 0 && said.contains("reaches  one.test"), "{said}");
    for config in ["proj/gw.toml", "tools/proj"] {
        let (code, said) = run(config);
        assert!(code == 0 && said.contains("network  one.test"), "{said}");
    }
    // No command changes it, named or not, and another text is not in force.
    let evil = format!("echo '{TWO}' > new; mv -f new gw.toml || cat new >> gw.toml || true");
    desk.sandbox("proj", &["-q"], &evil);
    desk.sandbox("proj", &["-q", "--config", "gw.toml"], &evil);
    assert_eq!(fs::read_to_string(desk.at("proj/gw.toml")).unwrap(), ONE);
    desk.write("proj/gw.toml", TWO);
    let (code, said) = run("proj/gw.toml");
    assert!(
        code == 2 && said.contains("it is not the text that you allowed"),
        "{said}"
    );
    // Nor is another that was allowed, by a link that a command could have made.
    desk.person("proj", "mkdir one two; cp gw.toml two; ln -s two now");
    let two = desk.shown("proj/two/gw.toml");
    assert_eq!(desk.gateway("", &["project", "allow", "--yes", &two]).0, 0);
    assert_eq!(run("proj/two/gw.toml").0, 0);
    let (code, said) = run("proj/now/gw.toml");
    assert!(
        code == 2 && said.contains("then name it by that path"),
        "{said}"
    );
    // Nor in a folder that was moved.
    desk.person("", "mv proj moved");
    let (code, said) = run("moved/two/gw.toml");
    assert!(
        code == 2 && said.contains("nobody allowed its text"),
        "{said}"
    );
}

#[test]
fn a_configuration_in_the_commands_own_folder_needs_a_word_at_the_first_run() {
    let desk = Desk::new();
    desk.write("proj/gw.toml", ONE);
    let (code, said) = desk.exec("proj", &["--config", "gw.toml"], &["touch", "ran"]);
    assert!(
        code == 2 && said.contains("nobody allowed its text"),
        "{said}"
    );
    assert!(
        !desk.at("proj/ran").exists() && !said.contains("network"),
        "{said}"
    );
    assert_eq!(
        desk.gateway("proj", &["project", "allow", "--yes", "gw.toml"])
            .0,
        0
    );
    let (code, said) = desk.exec("proj", &["--config", "gw.toml"], &["true"]);
    assert!(code == 0 && said.contains("network  one.test"), "{said}");
}

#[test]
fn policies_are_in_force_with_the_text_that_a_person_allowed_alone() {
    let desk = Desk::new();
    let (permit, forbid) = (
        PERMIT,
        "forbid(principal, action in Gateway::Action::\"any\", resource == Gateway::Host::\"two.test\");\n",
    );
    for base in ["proj", "clean"] {
        fs::create_dir(desk.at(base).join("rules")).unwrap();
        chown(desk.at(base).join("rules"), Some(USER), Some(USER)).unwrap();
        desk.write(&format!("{base}/p.cedar"), permit);
        desk.write(&format!("{base}/rules/a.cedar"), permit);
        desk.write(&format!("{base}/rules/b.cedar"), forbid);
    }
    desk.sandbox("proj", &["-q"], "true");
    let run = |policy: &str| desk.exec("other", &["--policy", &desk.shown(policy)], &["true"]);
    for policy in ["p.cedar", "rules", "rules/*.cedar"] {
        let (code, said) = run(&format!("clean/{policy}"));
        assert_eq!(code, 0, "{said}");
        let (code, said) = run(&format!("proj/{policy}"));
        assert!(code == 2 && said.contains(REFUSED), "{said}");
        // As a configuration outside names it, and without a summary.
        let path = desk.shown(&format!("proj/{policy}"));
        desk.write("config.toml", &format!("[policy]\nfiles = [{path:?}]\n"));
        let (code, said) = desk.exec("other", &["-q", "--config", "../config.toml"], &["true"]);
        assert!(code == 2 && said.contains(REFUSED), "{said}");
    }
    for file in ["p.cedar", "rules/a.cedar", "rules/b.cedar"] {
        let file = desk.shown(&format!("proj/{file}"));
        let (code, said) = desk.gateway("", &["project", "allow", "--yes", &file]);
        assert!(code == 0 && said.contains("+ "), "{said}");
    }
    for policy in ["p.cedar", "rules", "rules/*.cedar"] {
        let (code, said) = run(&format!("proj/{policy}"));
        assert_eq!(code, 0, "{said}");
    }
    // One more of the command's.
    desk.sandbox("proj", &["-q"], "cp p.cedar rules/c.cedar");
    let (code, said) = run("proj/rules");
    assert!(code == 2 && said.contains("c.cedar"), "{said}");
    // One fewer.
    desk.person("proj", "rm rules/c.cedar rules/b.cedar");
    let (code, said) = run("proj/rules");
    assert!(code == 2 && said.contains("it is gone"), "{said}");
    desk.write("proj/rules/b.cedar", permit);
    assert_eq!(run("proj/rules").0, 2);
}

#[test]
fn what_a_configuration_names_is_judged_as_it_is_itself() {
    let desk = Desk::new();
    desk.sandbox("proj", &["-q"], "true");
    let recipe = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/policies/signers/tencent-tc3.toml"
    );
    let recipe = fs::read_to_string(recipe).unwrap();
    let certificate = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=ca -keyout ca.key -out ca.pem 2>/dev/null; chmod 600 ca.pem";
    for base in ["proj", "clean"] {
        desk.person(base, certificate);
        desk.write(&format!("{base}/sign.toml"), &recipe);
        desk.write(&format!("{base}/token"), "CANARYCANARYCANARYCANARY0001");
    }
    let of_file = "[[credential]]\nname = \"a\"\nfrom = \"file:BASE/token\"\norigins = [\"https://a.test\"]\n";
    for (name, text) in [
        (
            "roots",
            "[[origin]]\nmatch = \"https://a.test\"\nroots = [\"BASE/ca.pem\"]\n",
        ),
        (
            "recipe",
            "[[credential]]\nname = \"a\"\nsign = \"BASE/sign.toml\"\norigins = [\"https://cvm.tencentcloudapi.com\"]\n",
        ),
        ("secret", of_file),
    ] {
        for (base, is_clean) in [("proj", false), ("clean", true)] {
            desk.write("config.toml", &text.replace("BASE", &desk.shown(base)));
            let (code, said) = desk.exec("other", &["--config", "../config.toml"], &["true"]);
            assert_eq!(said.contains(REFUSED), !is_clean, "{name}: {said}");
            assert_eq!(code, if is_clean { 0 } else { 2 }, "{name}: {said}");
        }
    }
    let roots = desk.shown("proj/ca.pem");
    assert_eq!(
        desk.gateway("", &["project", "allow", "--yes", &roots]).0,
        0
    );
    let text = format!("[[origin]]\nmatch = \"https://a.test\"\nroots = [{roots:?}]\n");
    desk.write("config.toml", &text);
    let (code, said) = desk.exec("other", &["--config", "../config.toml"], &["true"]);
    assert_eq!(code, 0, "{said}");
}

#[test]
fn a_running_gateway_takes_up_no_text_that_was_not_allowed() {
    let desk = Desk::new();
    desk.write("proj/p.cedar", PERMIT);
    let policy = desk.shown("proj/p.cedar");
    let listener = addresses::free();
    let text = format!(
        "[ca]\ncertificate = \"ca.pem\"\n[policy]\nfiles = [{policy:?}]\n[[listener]]\nkind = \"proxy\"\naddress = \"{listener}\"\nsession = \"one\"\n"
    );
    desk.write("config.toml", &text);
    let program = env!("CARGO_BIN_EXE_gateway");
    let mut serve = desk.command("", program, &["serve", "--config", "config.toml"]);
    let mut serve = serve.stderr(Stdio::piped()).spawn().unwrap();
    let (tell, told) = mpsc::channel();
    let lines = BufReader::new(serve.stderr.take().unwrap()).lines();
    std::thread::spawn(move || {
        lines
            .map_while(Result::ok)
            .try_for_each(|line| tell.send(line))
    });
    let hear = |wanted: &str| {
        let mut heard = String::new();
        while !heard.contains(wanted) {
            let line = told.recv_timeout(Duration::from_secs(30));
            writeln!(
                heard,
                "{}",
                line.unwrap_or_else(|_| panic!("{wanted}: {heard}"))
            )
            .unwrap();
        }
    };
    hear("session `one` on");
    // No command could have written it: the person's word holds.
    desk.write("proj/p.cedar", &PERMIT.replace("one", "two"));
    hear("configuration reloaded, generation 2");
    desk.sandbox("proj", &["-q"], "echo '// more' >> p.cedar");
    hear("the change is refused");
    hear("nobody allowed its text");
    assert_eq!(
        desk.gateway("", &["project", "allow", "--yes", &policy]).0,
        0
    );
    hear("configuration reloaded, generation 3");
    serve.kill().unwrap();
    serve.wait().unwrap();
}

/// A small generator of numbers (SplitMix64): the same tries each time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut next = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        next = (next ^ (next >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (next ^ (next >> 31)) % most
    }
}

/// One try: a program, behind links, links to folders and interpreters, each in some folder.
/// Returns the path that leads to it, and whether a command could have written something of it.
fn built(desk: &Desk, numbers: &mut Numbers, number: u64) -> (PathBuf, bool) {
    const FOLDERS: [(&str, bool); 5] = [
        ("moved", true),
        ("shared", true),
        ("clean", false),
        ("tools", false),
        ("tools", false),
    ];
    let place = |numbers: &mut Numbers, step: u64| -> (PathBuf, bool) {
        let (folder, is_tainted) = FOLDERS[usize::try_from(numbers.below(5)).unwrap()];
        let folder = desk.at(folder).join(format!("{number}-{step}"));
        fs::create_dir_all(folder.join("in")).unwrap();
        (folder, is_tainted)
    };
    let script = "#!/bin/sh\necho CANARYCANARYCANARYCANARY0001\n";
    let write = |path: &Path, text: &str| {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    };
    let (folder, mut tainted) = place(numbers, 0);
    let mut path = folder.join("in/get");
    write(&path, script);
    let mut interpreters = 0;
    for step in 1..=numbers.below(4) {
        let (folder, is_tainted) = place(numbers, step);
        tainted |= is_tainted;
        let at = path.display().to_string();
        path = match numbers.below(5) {
            0 => {
                symlink(&path, folder.join("link")).unwrap();
                folder.join("link")
            }
            1 => {
                symlink(path.parent().unwrap(), folder.join("above")).unwrap();
                folder.join("above").join(path.file_name().unwrap())
            }
            // By `..`, through a folder that is there.
            2 => {
                symlink(folder.join("in/../to"), folder.join("in/link")).unwrap();
                symlink(&path, folder.join("to")).unwrap();
                folder.join("in/link")
            }
            kind if interpreters < 2 => {
                interpreters += 1;
                let env = if kind == 3 { "" } else { "/usr/bin/env -S " };
                write(&folder.join("script"), &format!("#!{env}{at}\n"));
                folder.join("script")
            }
            // What was before is of no account.
            _ => {
                tainted = is_tainted;
                write(&folder.join("in/script"), script);
                folder.join("in/script")
            }
        };
    }
    (path, tainted)
}

#[test]
fn the_judge_agrees_with_how_hundreds_of_programs_were_made() {
    const TRIES: u64 = 400;
    let desk = Desk::new();
    desk.person("", "mkdir shared");
    let shared = desk.shown("shared");
    desk.sandbox("proj", &["-q", "--write", &shared], "true");
    desk.person("", "mv proj moved");
    let mut numbers = Numbers(1);
    let (mut text, mut tainted) = (String::new(), Vec::new());
    for number in 0..TRIES {
        let (path, is_tainted) = built(&desk, &mut numbers, number);
        tainted.push((path.clone(), is_tainted));
        writeln!(
            text,
            "[[credential]]\nname = \"c{number}\"\nfrom = {{ command = [{:?}] }}\norigins = [\"https://c{number}.test\"]",
            path.display().to_string()
        )
        .unwrap();
    }
    let own = Command::new("chown")
        .args(["-R", &USER.to_string()])
        .arg(desk.at(""))
        .status();
    assert!(own.unwrap().success());
    desk.write("config.toml", &text);
    let program = env!("CARGO_BIN_EXE_gateway");
    let mut doctor = desk.command(
        "",
        program,
        &["doctor", "--json", "--config", "config.toml"],
    );
    let output = doctor.output().unwrap();
    let findings: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = findings.as_array().unwrap();
    assert_eq!(findings.len(), tainted.len());
    let refused = tainted.iter().filter(|(_, is_tainted)| *is_tainted).count();
    println!("{TRIES} tries, {refused} of them with something that a command could have written");
    assert!((100..350).contains(&refused), "{refused}");
    for (number, (path, is_tainted)) in tainted.iter().enumerate() {
        let name = format!("c{number}");
        let mut findings = findings.iter();
        let finding = findings.find(|one| one["credential"] == *name).unwrap();
        let lacks = finding["lacks"].as_str().unwrap_or_default();
        assert_eq!(lacks.contains(REFUSED), *is_tainted, "{path:?}: {finding}");
        assert!(*is_tainted || lacks.is_empty(), "{path:?}: {finding}");
    }
}
