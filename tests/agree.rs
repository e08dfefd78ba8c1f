//! One rule, one place: what checks a file or a setting refuses what the running program refuses,
//! in the same words.

use std::fs;
use std::io::{ErrorKind, Read as _};
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use gateway::config::{Config, literal};
use gateway::launch::environment::VariableRules;
use gateway::session::phantom::Shape;

/// The program in a folder, with the home there and no other variable.
fn program(arguments: &[&str], folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gateway"));
    command
        .args(arguments)
        .current_dir(folder)
        .env_clear()
        .env("HOME", folder);
    command
}

/// Runs it to its end; gives its exit code and all that it said.
fn run(arguments: &[&str], folder: &Path) -> (i32, String) {
    let output = program(arguments, folder).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (
        output.status.code().unwrap(),
        String::from_utf8_lossy(&said).into_owned(),
    )
}

#[track_caller]
fn refuses(arguments: &[&str], folder: &Path, part: &str) {
    let (code, said) = run(arguments, folder);
    assert!(
        matches!(code, 1 | 2),
        "{arguments:?} ends with {code}\n{said}"
    );
    assert!(
        said.contains(part),
        "{arguments:?}\nexpected {part}\nfound {said}"
    );
}

const LISTENER: &str = "[[listener]]\nkind = \"proxy\"\naddress = \"127.0.0.1:0\"\n";
const PERMIT: &str = "permit(principal, action, resource == Gateway::Host::\"a.test\");\n";

#[test]
fn no_setting_names_a_metadata_service() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    for address in [
        "169.254.169.254",
        "169.254.170.2",
        "169.254.170.23",
        "169.254.169.253",
        "100.100.100.200",
        "192.0.0.192",
        "169.254.42.42",
        "169.254.0.23",
        "168.63.129.16",
        "fd00:ec2::254",
        "fd00:ec2::23",
        "fd20:ce::254",
        "fd00:42::42",
        "fe80::a9fe:a9fe",
    ] {
        let host = match address.contains(':') {
            true => format!("[{address}]"),
            false => address.to_owned(),
        };
        for (setting, place) in [
            (format!("addresses = [\"{address}\"]"), "3:14"),
            (format!("connect = \"{host}:443\""), "3:11"),
        ] {
            let text = format!("[[origin]]\nmatch = \"https://a.test\"\n{setting}\n");
            fs::write(at.join("gateway.toml"), text).unwrap();
            let check = ["policy", "check", "--config", "gateway.toml"];
            refuses(&check, at, &format!("gateway.toml:{place}: error:"));
            refuses(&check, at, "a cloud's metadata service");
        }
        refuses(&["exec", "--allow", &host, "true"], at, "metadata service");
    }
}

#[test]
fn policy_check_and_serve_refuse_the_same_files() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let file = |name: &str, mode: u32| {
        fs::write(at.join(name), PERMIT).unwrap();
        fs::set_permissions(at.join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    file("open.cedar", 0o666);
    file("good.cedar", 0o644);
    fs::create_dir(at.join("empty")).unwrap();
    fs::write(at.join("binary.cedar"), [0xff, 0xfe]).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        at.join("pipe.cedar"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    let mut cases = vec![
        ("open.cedar", "everyone on this machine can change the file"),
        ("empty", "no file matches `*.cedar`"),
        ("*.none", "no file matches `*.none`"),
        ("binary.cedar", "the file cannot be read"),
        ("pipe.cedar", "it is no regular file"),
        ("missing.cedar", "the file cannot be read"),
    ];
    if rustix::process::geteuid().is_root() {
        file("theirs.cedar", 0o644);
        chown(at.join("theirs.cedar"), Some(12_345), None).unwrap();
        cases.push(("theirs.cedar", "it belongs to user 12345"));
    }
    fs::write(at.join("listener.toml"), LISTENER).unwrap();
    for (name, why) in cases {
        refuses(&["policy", "check", name], at, why);
        let config = format!("{LISTENER}[policy]\nfiles = [\"{name}\"]\n");
        fs::write(at.join("gateway.toml"), config).unwrap();
        refuses(&["policy", "check", "--config", "gateway.toml"], at, why);
        refuses(&["serve", "--config", "gateway.toml"], at, why);
        let flag = ["serve", "--config", "listener.toml", "--policy", name];
        refuses(&flag, at, why);
    }
    let (code, said) = run(&["policy", "check", "good.cedar"], at);
    assert_eq!(code, 0, "{said}");
    // What a change of it permits is named.
    let more = "@id(\"more\") permit(principal, action == Gateway::Action::\"PUT\", \
                resource == Gateway::Host::\"new.test\") when { context.path == \"/a\" };";
    fs::write(at.join("more.cedar"), more).unwrap();
    let (code, said) = run(&["policy", "diff", "good.cedar", "more.cedar"], at);
    let told = "newly allowed by `more`: PUT https://new.test:443/a\n";
    assert_eq!((code, &*said), (0, told));
    let (code, said) = run(&["policy", "diff", "more.cedar", "more.cedar"], at);
    assert_eq!((code, &*said), (0, "nothing more is permitted\n"));
}

#[test]
fn what_a_session_would_not_bind_is_refused_where_it_stands_and_all_of_it_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let credential = |name: &str, more: &str| {
        format!(
            "[[credential]]\nname = \"{name}\"\norigins = [\"https://a.test\"]\nplaces = [\"header:authorization:Bearer\"]\n{more}\n"
        )
    };
    let text = [
        credential("A", "inject = \"always\"\npath = \"/a\""),
        credential("B", "inject = \"always\"\npath = \"/a/b\""),
        credential("C", "path = \"/c\""),
        credential("D", "inject = \"always\"\npath = \"/d\"").replace("header:authorization:Bearer", "basic:password"),
        "[[credential]]\nname = \"E\"\norigins = [\"http://b.test\"]\nplaces = [\"header:x-key\"]\n\
         [[origin]]\nmatch = \"http://b.test\"\nconnect = \"127.0.0.1:1\"\ncleartext = true\n".to_owned(),
        "[[credential]]\nname = \"F\"\npreset = \"npm\"\n".to_owned(),
    ]
    .concat();
    fs::write(at.join("gateway.toml"), text).unwrap();
    for part in [
        "gateway.toml:7:1: error: the credential `B` is refused",
        "credentials `A` and `B` share `authorization`, and one is always put there",
        "gateway.toml:18:1: error: the credential `D` is refused",
        "credential `D` is always put in at a Basic place",
        "gateway.toml:24:1: error: the credential `E` is refused",
        "credential `E` would travel in clear text",
        "[[credential]] has no `origins`",
    ] {
        refuses(&["serve", "--config", "gateway.toml"], at, part);
        refuses(&["policy", "check", "--config", "gateway.toml"], at, part);
    }
}

#[test]
fn whatever_a_registry_sells_is_refused_in_settings_flags_and_policies() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    for domain in ["com", "co.uk", "gov.in", "kobe.jp", "xn--55qx5d.cn"] {
        let why = "covers domains that anyone can register";
        refuses(
            &["exec", "--allow", &format!("*.{domain}"), "true"],
            at,
            why,
        );
        let text = format!("[[credential]]\nname = \"A\"\norigins = [\"https://*.{domain}\"]\n");
        fs::write(at.join("gateway.toml"), text).unwrap();
        refuses(&["policy", "check", "--config", "gateway.toml"], at, why);
        let scope = format!("resource in Gateway::Domain::\"{domain}\"");
        fs::write(
            at.join("a.cedar"),
            format!("permit(principal, action, {scope});\n"),
        )
        .unwrap();
        refuses(&["policy", "check", "a.cedar"], at, why);
        fs::write(
            at.join("a.cedar"),
            format!("forbid(principal, action, {scope});\n"),
        )
        .unwrap();
        assert_eq!(run(&["policy", "check", "a.cedar"], at).0, 0);
    }
    for domain in ["github.io", "amazonaws.com", "s3.eu-west-1.amazonaws.com"] {
        let scope = format!("resource in Gateway::Domain::\"{domain}\"");
        fs::write(
            at.join("a.cedar"),
            format!("permit(principal, action, {scope});\n"),
        )
        .unwrap();
        let (code, said) = run(&["policy", "check", "a.cedar"], at);
        assert_eq!(code, 0, "{said}");
        assert!(said.contains("anyone may have a name under"), "{said}");
    }
}

#[test]
fn what_begins_like_a_credential_does_so_for_settings_variables_and_phantoms() {
    for prefix in [
        "ghp_",
        "glrt-",
        "hvb.",
        "hvr.",
        "pk_live_",
        "sk-or-v1-",
        "whsec_",
        "xoxa-",
        "dp.st.",
        "pat-na1-",
        "HRKU-",
        "cfut_",
    ] {
        let secret = format!("{prefix}QZ7XK2MWQZ7XK2MWQZ7XK2MW");
        assert!(literal::known_prefix(&secret), "{prefix}");
        let value = std::ffi::OsStr::from_bytes(secret.as_bytes());
        assert!(
            !VariableRules::default().admit("EDITOR".as_ref(), value),
            "{prefix}"
        );
        // The prefix stays as it is: nothing of it is drawn.
        let shape = Shape::of(secret.as_bytes());
        let other = Shape::of(secret.replacen(prefix, "sk-", 1).as_bytes());
        assert_eq!(shape.entropy_bits(), other.entropy_bits(), "{prefix}");
    }
}

#[test]
fn the_defaults_that_are_documented_are_those_that_hold() {
    let mut text = String::new();
    for part in gateway::config::keys::SECTIONS {
        let keys = || gateway::config::keys::of(part.name);
        // Such a section has no default as a whole.
        if part.repeats || keys().any(|key| key.default == "required") {
            continue;
        }
        text.push_str(&format!("[{}]\n", part.name));
        for key in keys() {
            let value = key.default;
            let bare = value == "true" || value == "false" || value.parse::<u64>().is_ok();
            let word = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_alphanumeric());
            // A default that is told in words, such as `half of the memory`, is none to write.
            match (bare, word) {
                (true, _) => text.push_str(&format!("{} = {value}\n", key.name)),
                (false, true) if !["none", "never", "DNS"].contains(&value) => {
                    text.push_str(&format!("{} = \"{value}\"\n", key.name));
                }
                _ => {}
            }
        }
    }
    assert!(text.contains("idle_timeout = \"60s\"") && text.contains("hosts_file = true"));
    let file = Path::new("/nonexistent/gateway.toml");
    let mut written = Config::from_str(&text, file).unwrap();
    let empty = Config::from_str("", file).unwrap();
    // The launcher's own bound, which the settings need not repeat.
    assert_eq!(written.sandbox.processes.take(), Some(4096));
    assert_eq!(format!("{written:?}"), format!("{empty:?}"));
}

#[test]
fn no_index_is_asked_at_start() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let index = TcpListener::bind("127.0.0.1:0").unwrap();
    index.set_nonblocking(true).unwrap();
    fs::write(at.join("a.cedar"), PERMIT).unwrap();
    let text = format!(
        "{LISTENER}[policy]\nfiles = [\"a.cedar\"]\n[audit]\npath = \"logs/audit.jsonl\"\n[[origin]]\nmatch = \"https://index.test\"\nconnect = \"{}\"\n",
        index.local_addr().unwrap()
    );
    fs::write(at.join("gateway.toml"), text).unwrap();
    let serve = ["serve", "--config", "gateway.toml", "--preset", "pypi"];
    let mut child = program(&serve, at)
        .env("PIP_INDEX_URL", "https://index.test/simple")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let mut stderr = child.stderr.take().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut byte = [0];
    while !said.contains("session `default` on") && Instant::now() < deadline {
        match stderr.read(&mut byte) {
            Ok(1) => said.push(char::from(byte[0])),
            _ => break,
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(said.contains("session `default` on"), "{said}");
    let asked = index.accept().map(|_| ()).map_err(|error| error.kind());
    assert_eq!(asked, Err(ErrorKind::WouldBlock), "{said}");
}
