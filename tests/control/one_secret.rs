//! One secret, lent in many ways: whatever it is called when it is revoked, nobody lends it any
//! more.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::certificates::Authority;
use crate::program::{Program, free};
use crate::revoked::Keeping;
use crate::sandbox::{folder, user_command, wait_for};

/// An ordinary user. The number belongs to nobody.
const USER: u32 = 12345;
/// What every way below lends, in the form of a token of GitHub.
const SECRET: &str = "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";

/// A way to lend it: its name, which is the path of its requests, the flags of its `exec`, the
/// variable that holds its phantom, and the host.
const COMMANDS: [(&str, &[&str], &str, &str); 6] = [
    (
        "flag",
        &["--secret", "GITHUB_TOKEN@kept.test"],
        "GITHUB_TOKEN",
        "kept.test",
    ),
    (
        "known",
        &["--secret", "GITHUB_TOKEN"],
        "GITHUB_TOKEN",
        "api.github.com",
    ),
    (
        "second",
        &["--secret", "GH_TOKEN@kept.test"],
        "GH_TOKEN",
        "kept.test",
    ),
    (
        "preset",
        &["--preset", "github"],
        "GITHUB_TOKEN",
        "api.github.com",
    ),
    (
        "profile",
        &["--profile", "gh"],
        "GH_TOKEN",
        "api.github.com",
    ),
    ("login", &["--login", "gh"], "IN_FILE", "api.github.com"),
];
/// The sources of the credentials that `serve` has.
const SERVED: [(&str, &str); 3] = [
    ("variable", "env:GITHUB_TOKEN"),
    ("other", "env:GH_TOKEN"),
    ("file", "file:token"),
];

struct Ways {
    folder: tempfile::TempDir,
    origin: Keeping,
    running: Vec<Child>,
}

impl Ways {
    fn new() -> Self {
        let folder = folder(USER);
        let authority = Arc::new(Authority::new());
        let (origin, [clear, tls]) = Keeping::start(&authority);
        let ways = Self {
            folder,
            origin,
            running: Vec::new(),
        };
        for (name, ..) in COMMANDS {
            ways.put(&format!("{name}/own"), "");
        }
        ways.put("roots.pem", &authority.pem);
        ways.put("rules.cedar", "permit(principal, action, resource);");
        ways.put("token", SECRET);
        let hosts = format!(
            "github.com:\n    user: hubot\n    oauth_token: {SECRET}\n    git_protocol: https\n"
        );
        ways.put(".config/gh/hosts.yml", &hosts);
        let origins = ["kept.test", "api.github.com"].map(|host| {
            format!(
                "[[origin]]\nmatch = \"https://{host}\"\nconnect = \"127.0.0.1:{tls}\"\nroots = [\"roots.pem\"]\n"
            )
        });
        ways.put("exec.toml", &origins.concat());
        for (name, from) in SERVED {
            let clear = format!("http://127.0.0.1:{clear}");
            ways.put(
                &format!("{name}.toml"),
                &format!(
                    "[policy]\nfiles = [\"rules.cedar\"]\n[phantoms]\nenv_file = \"{name}.env\"\n\
                     [[listener]]\nkind = \"proxy\"\naddress = \"{}\"\nsession = \"agent\"\n\
                     [[origin]]\nmatch = \"{clear}\"\naddresses = [\"127.0.0.0/8\"]\ncleartext = true\n\
                     [[credential]]\nname = \"{name}\"\nfrom = \"{from}\"\norigins = [\"{clear}\"]\n\
                     places = [\"header:authorization:Bearer\"]\nenv = [\"LENT\"]\n",
                    free()
                ),
            );
            ways.put(&format!("{name}.url"), &clear);
        }
        ways
    }

    fn home(&self, name: &str) -> PathBuf {
        self.folder.path().join("home").join(name)
    }

    /// The folder of a way's requests. Each command has a project of its own.
    fn project(&self, name: &str) -> PathBuf {
        let is_served = SERVED.iter().any(|(served, _)| *served == name);
        self.home(if is_served { "project" } else { name })
    }

    fn put(&self, name: &str, text: &str) {
        let path = self.home(name);
        let own = |path: &Path| std::os::unix::fs::chown(path, Some(USER), Some(USER)).unwrap();
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        for folder in path
            .ancestors()
            .skip(1)
            .take_while(|one| **one != *self.home(""))
        {
            own(folder);
        }
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        own(&path);
    }

    fn command(&self, variables: bool) -> std::process::Command {
        let mut command = user_command(self.folder.path(), USER);
        command.env_remove("KEY");
        if variables {
            command.env("GITHUB_TOKEN", SECRET).env("GH_TOKEN", SECRET);
        }
        command
    }

    /// Starts every way, each asking over and over.
    fn start(&mut self) {
        for name in Self::names() {
            let _ = fs::remove_file(self.project(name).join("stop"));
        }
        let log = || {
            let mut log = fs::File::options();
            log.create(true)
                .append(true)
                .open(self.folder.path().join("log"))
                .unwrap()
        };
        for (name, _) in SERVED {
            let mut serve = self.command(true);
            serve.args(["serve", "--config", &format!("../{name}.toml")]);
            self.running.push(serve.stderr(log()).spawn().unwrap());
            let script = format!(
                "p=$(grep -o '[0-9.]*:[0-9]*' ../{name}.toml | head -1)\n\
                 while [ ! -e stop ]; do [ ! -e ../{name}.env ] || . ../{name}.env\n\
                 curl -s --max-time 2 -x http://$p -H \"Authorization: Bearer $LENT\" $(cat ../{name}.url)/{name} -o said-{name} || sleep 0.1; done"
            );
            let mut asks = std::process::Command::new("sh");
            asks.args(["-c", &script]).current_dir(self.home("project"));
            self.running
                .push(asks.stderr(Stdio::null()).spawn().unwrap());
        }
        for (name, flags, variable, host) in COMMANDS {
            let script = format!(
                "IN_FILE=$(sed -n 's/.*oauth_token: *//p' ~/.config/gh/hosts.yml 2>/dev/null | head -1)\n\
                 while [ ! -e stop ]; do curl -s --max-time 2 -H \"Authorization: Bearer ${variable}\" https://{host}/{name} >said-{name} || sleep 0.1; done"
            );
            let mut exec = self.command(name != "login");
            exec.current_dir(self.project(name));
            exec.args(["exec", "-q", "--config", "../exec.toml"])
                .args(flags);
            exec.args(["--", "sh", "-c", &script]).stderr(log());
            self.running.push(exec.spawn().unwrap());
        }
    }

    fn stop(&mut self) {
        for name in Self::names() {
            let _ = fs::write(self.project(name).join("stop"), "");
        }
        for child in &mut self.running {
            let pid = rustix::process::Pid::from_child(child);
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            let _ = child.wait();
        }
        self.running.clear();
        self.origin.forget();
    }

    fn names() -> impl Iterator<Item = &'static str> {
        let served = SERVED.iter().map(|one| one.0);
        COMMANDS.iter().map(|one| one.0).chain(served)
    }

    fn wait_until_all_lend(&self) {
        let paths: Vec<String> = Self::names().map(|name| format!("/{name}")).collect();
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        wait_for("each way lends", || {
            self.origin.left_of(&paths, SECRET).is_empty()
        });
    }

    /// Waits until each way was told that the secret is revoked, and asserts that nothing reached
    /// the origin meanwhile.
    fn assert_refused(&self, said: &str) {
        // What the kernel had on its way is there by now.
        std::thread::sleep(Duration::from_millis(5));
        let before = self.origin.arrived();
        for name in Self::names() {
            let told = self.project(name).join(format!("said-{name}"));
            let _ = fs::remove_file(&told);
            wait_for(&format!("{name} is told; {said}"), || {
                fs::read_to_string(&told).is_ok_and(|told| told.contains("credential_revoked"))
            });
        }
        assert_eq!(self.origin.arrived(), before, "{said}");
    }

    fn says(&self, variables: bool, arguments: &[&str]) -> (Option<i32>, String) {
        let output = self.command(variables).args(arguments).output().unwrap();
        let all = [&output.stdout[..], &output.stderr].concat();
        (
            output.status.code(),
            String::from_utf8_lossy(&all).into_owned(),
        )
    }
}

impl Drop for Ways {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What a person may call it, in a shell that has the variables or not.
fn labels(ways: &Ways) -> Vec<(String, bool)> {
    let file = format!("file:{}", ways.home("token").display());
    let labels = [
        "GITHUB_TOKEN",
        "env:GH_TOKEN",
        "variable",
        "login:gh",
        &file,
    ];
    let labels = labels.iter().enumerate();
    labels
        .map(|(nth, label)| ((*label).to_owned(), nth % 2 == 0))
        .collect()
}

#[test]
fn a_secret_that_is_revoked_by_any_of_its_names_is_lent_in_no_way_that_runs() {
    let mut ways = Ways::new();
    ways.start();
    for (label, variables) in labels(&ways) {
        ways.wait_until_all_lend();
        let (code, said) = ways.says(variables, &["revoke", &label]);
        assert_eq!(code, Some(0), "{label}: {said}");
        let lending = "9 gateways that lend it confirmed";
        assert!(
            said.contains(lending) && said.contains("from login:gh"),
            "{label}: {said}"
        );
        ways.assert_refused(&said);
        let kept = fs::read_to_string(ways.home(".local/state/gateway/sessions/revoked.json"));
        assert!(!kept.unwrap().contains(SECRET));
        // Before any is opened anew.
        ways.origin.forget();
        let (code, said) = ways.says(false, &["restore", &label]);
        assert!(
            code == Some(0) && said.contains("nothing is revoked"),
            "{label}: {said}"
        );
    }
}

#[test]
fn a_secret_that_is_revoked_while_nothing_runs_is_lent_in_no_way_that_starts_later() {
    let mut ways = Ways::new();
    for (label, _) in labels(&ways) {
        // A name of one configuration alone is known there.
        let is_name = label == "variable";
        let (code, said) = ways.says(!is_name, &["revoke", &label]);
        assert_eq!(code, Some(0), "{label}: {said}");
        assert!(
            said.contains("0 gateways that lend it confirmed"),
            "{label}: {said}"
        );
        assert_eq!(said.contains("is it spelled so?"), is_name, "{said}");
        if !is_name {
            ways.start();
            ways.assert_refused(&said);
            ways.stop();
        }
        let (code, said) = ways.says(false, &["restore", &label]);
        assert_eq!(code, Some(0), "{label}: {said}");
    }
}

/// The two keys of AWS sign together: whichever is revoked, nothing is signed.
#[test]
fn a_key_of_aws_that_is_revoked_while_nothing_runs_signs_nothing_later() {
    let ways = Ways::new();
    let (id, key) = (
        "AKIAR3ALR3ALR3ALR3AL",
        "LastingK3yLastingK3yLastingK3yLastingK40",
    );
    let host = "sts.us-east-1.amazonaws.com";
    let config = fs::read_to_string(ways.home("exec.toml")).unwrap();
    ways.put("aws.toml", &config.replace("api.github.com", host));
    let script = format!(
        "curl -sS --aws-sigv4 aws:amz:us-east-1:sts --user \"$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY\" \
         'https://{host}/?Action=GetCallerIdentity&Version=2011-06-15'"
    );
    let signed = || {
        ways.origin.forget();
        let mut exec = ways.command(false);
        exec.env("AWS_ACCESS_KEY_ID", id)
            .env("AWS_SECRET_ACCESS_KEY", key);
        let run = ["exec", "-q", "--config", "../aws.toml", "--aws", "--"];
        let output = exec.args(run).args(["sh", "-c", &script]).output().unwrap();
        (
            String::from_utf8(output.stdout).unwrap(),
            ways.origin.heads().concat(),
        )
    };
    for label in [
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "env:AWS_ACCESS_KEY_ID",
        "env:AWS_SECRET_ACCESS_KEY",
        "aws",
    ] {
        let (said, heads) = signed();
        let credential = format!("Credential={id}/");
        assert!(
            said == "ok" && heads.contains(&credential),
            "{label}: {said} {heads}"
        );
        let (code, said) = ways.says(false, &["revoke", label]);
        let none = said.contains("0 gateways that lend it confirmed");
        assert!(code == Some(0) && none, "{label}: {said}");
        let (said, heads) = signed();
        assert!(said.contains("credential_revoked"), "{label}: {said}");
        assert_eq!(heads, "", "{label}");
        let (code, said) = ways.says(false, &["restore", label]);
        assert_eq!(code, Some(0), "{label}: {said}");
    }
}

#[test]
fn each_variable_of_a_known_service_stands_for_its_own_value() {
    let ways = Ways::new();
    let wide = "ghp_0bT5GwkNqL7uXcR2eYh8SdVfJm4aPz3iKo61";
    let script = "for v in GITHUB_TOKEN GH_TOKEN; do eval p=\\$$v\n\
                  curl -s -H \"Authorization: Bearer $p\" https://api.github.com/$v; done";
    let mut exec = ways.command(true);
    exec.env("GH_TOKEN", wide);
    exec.args([
        "exec",
        "--config",
        "../exec.toml",
        "--preset",
        "github",
        "--",
        "sh",
        "-c",
        script,
    ]);
    let output = exec.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    for (variable, own, other) in [("GITHUB_TOKEN", SECRET, wide), ("GH_TOKEN", wide, SECRET)] {
        let heads = ways.origin.heads();
        let head = heads
            .iter()
            .find(|head| head.starts_with(&format!("GET /{variable} ")));
        let head = head.unwrap_or_else(|| panic!("{variable}: {heads:?} {output:?}"));
        assert!(
            head.contains(own) && !head.contains(other),
            "{variable}: {head}"
        );
    }
}

#[test]
fn what_nobody_revoked_is_not_restored_and_a_secret_is_no_name() {
    let program = Program::start("");
    let (code, said) = program.gateway(&["restore", "nonsense"]);
    assert_eq!(code, 1, "{said}");
    assert!(
        said.contains("nothing called `nonsense` is revoked")
            && said.contains("nothing is revoked"),
        "{said}"
    );
    let answer = program.json(&["revoke", "KEY"]);
    assert_eq!(answer["hit"][0]["credential"], "key", "{answer}");
    assert_eq!(answer["hit"][0]["from"], "env:KEY", "{answer}");
    assert_eq!(
        program.json(&["revoke", "other"])["hit"],
        Value::Array(Vec::new())
    );
    let (code, said) = program.gateway(&["restore", "nonsense"]);
    assert!(
        code == 1 && said.contains("revoked are: KEY, key, other"),
        "{said}"
    );
    // By what it hit, too.
    let (code, said) = program.gateway(&["restore", "key"]);
    assert!(code == 0 && said.contains("`KEY` is lent again"), "{said}");
    let (code, said) = program.gateway(&["revoke", SECRET]);
    assert!(code == 2 && !said.contains(SECRET), "{said}");
}

#[test]
fn revocations_of_the_old_form_are_put_aside_whole_and_told() {
    let program = Program::start("");
    let kept = program.path(".local/state/gateway/sessions/revoked.json");
    fs::create_dir_all(kept.parent().unwrap()).unwrap();
    fs::set_permissions(kept.parent().unwrap(), fs::Permissions::from_mode(0o700)).unwrap();
    let old = r#"{"revoked":{"github":1}}"#;
    fs::write(&kept, old).unwrap();
    fs::set_permissions(&kept, fs::Permissions::from_mode(0o600)).unwrap();
    let (code, said) = program.gateway(&["revoke", "KEY"]);
    assert!(code == 0 && said.contains("set aside in"), "{said}");
    assert_eq!(
        fs::read_to_string(kept.with_extension("json.aside")).unwrap(),
        old
    );
    assert_eq!(
        program.json(&["status"])["gateways"][0]["revoked"],
        serde_json::json!(["key"])
    );
}

/// What a gateway does itself with a secret, and the configuration that says so.
const OWN: [(&str, &str); 4] = [
    (
        "gets tokens",
        "[[login]]\nname = \"crm\"\ntoken_url = \"https://as.test/token\"\nclient_id = \"own\"\n\
         client_secret = \"file:own\"\norigins = [\"https://crm.test\"]\n",
    ),
    (
        "logs in to a proxy",
        "[[origin]]\nmatch = \"https://far.test\"\nvia = \"http://127.0.0.1:9\"\nvia_auth = \"file:own\"\n",
    ),
    (
        "logs in to a store",
        "[vault]\naddresses = [\"https://127.0.0.1:9\"]\nlogin = \"token\"\ntoken = \"file:own\"\n",
    ),
    (
        "logs in to a store",
        "[vault]\naddresses = [\"https://127.0.0.1:9\"]\nlogin = \"approle\"\nrole_id = \"one\"\n\
         secret_id = \"file:own\"\n",
    ),
];

#[test]
fn a_secret_that_a_gateway_uses_itself_is_not_said_to_be_revoked_while_it_goes_on() {
    for (does, text) in OWN {
        let mut program = Program::start("");
        for name in ["own", "same"] {
            fs::write(program.path(name), "user:OwnSecret0123456789").unwrap();
            fs::set_permissions(program.path(name), fs::Permissions::from_mode(0o600)).unwrap();
        }
        let without = program.edit(|config| format!("{config}\n{text}"));
        program.restart_after_a_crash();
        let place = |name: &str| format!("file:{}", program.path(name).display());
        let labels = [place("own"), place("same")];
        let refusal = format!(
            "`{}` is revoked, and the gateway itself {does} with it",
            labels[0]
        );
        for label in &labels {
            let (code, said) = program.gateway(&["revoke", label]);
            let goes_on = format!("itself {does} with {}", labels[0]);
            assert!(code == 1 && said.contains(&goes_on), "{label}: {said}");
            assert!(said.contains("end that gateway"), "{label}: {said}");
            // It is revoked for what comes later, and can be taken out of what runs.
            let said = program.refuse();
            assert!(said.contains(&refusal), "{said}");
            let with = program.edit(|_| without.clone());
            program.reload();
            let (code, said) = program.gateway(&["revoke", label]);
            assert_eq!(code, 0, "{label}: {said}");
            program.edit(|_| with.clone());
            program.child.kill().unwrap();
            program.child.wait().unwrap();
            // None starts, whether the row was written while one ran or while none did.
            for _ in 0..2 {
                let said = fs::read_to_string(program.path("log")).unwrap().len();
                let code = crate::program::spawn(&program.path("")).wait().unwrap();
                let log = fs::read_to_string(program.path("log")).unwrap();
                assert!(!code.success() && log[said..].contains(&refusal), "{log}");
                let (code, said) = program.gateway(&["restore", label]);
                assert_eq!(code, 0, "{said}");
                let (code, said) = program.gateway(&["revoke", label]);
                assert_eq!(code, 0, "{said}");
            }
            let (code, said) = program.gateway(&["restore", label]);
            assert_eq!(code, 0, "{said}");
            program.follow(crate::program::spawn(&program.path("")));
        }
    }
}

#[test]
fn a_gateway_that_a_revocation_does_not_find_says_that_it_goes_on_with_its_own_secret() {
    let (does, text) = OWN[0];
    let mut program = Program::start("");
    fs::write(program.path("own"), "user:OwnSecret0123456789").unwrap();
    fs::set_permissions(program.path("own"), fs::Permissions::from_mode(0o600)).unwrap();
    program.edit(|config| format!("{config}\n{text}"));
    program.restart_after_a_crash();
    let elsewhere = program.path("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let label = format!("file:{}", program.path("own").display());
    let mut revoke = crate::program::command(program.folder.path());
    revoke.env("XDG_RUNTIME_DIR", &elsewhere);
    let revoked = revoke.args(["revoke", &label]).output().unwrap();
    assert!(revoked.status.success(), "{revoked:?}");
    let says = format!("`{label}` is revoked, and this gateway goes on: it {does} with it");
    let log = program.path("log");
    crate::exports::until(&says, || fs::read_to_string(&log).unwrap().contains(&says));
}
