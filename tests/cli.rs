//! The commands that read policies and audit logs, run as a person runs them.

#[path = "rig/addresses.rs"]
mod addresses;

use std::fs;
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use gateway::audit::{AuditDecision, Length, Log, Redact, Settings, Trail};
use gateway::names::{ExchangeId, PolicyId, ReasonCode, SessionId};
use serde_json::{Value, json};

/// Runs the program; returns its exit code and all of its output.
fn gateway(arguments: &[&str], folder: &Path) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_gateway"))
        .args(arguments)
        .current_dir(folder)
        .env_clear()
        .env("HOME", folder)
        .output()
        .unwrap();
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    (output.status.code().unwrap(), said)
}

#[track_caller]
fn ends_with(arguments: &[&str], folder: &Path, code: i32, parts: &[&str]) -> String {
    let (found, said) = gateway(arguments, folder);
    assert_eq!(found, code, "{arguments:?}\n{said}");
    for part in parts {
        assert!(
            said.contains(part),
            "{arguments:?}\nexpected {part}\nfound {said}"
        );
    }
    assert!(!said.contains('\u{1b}'), "{said}");
    said
}

const ID: [u8; 10] = [7; 10];

/// A session without phantoms.
struct Nothing;

impl Redact for Nothing {
    fn redact(&self, _: &[u8], _: &mut Vec<Range<usize>>) {}
}

/// An audit log with one denied request, whose path tries to steer the terminal.
fn log_a_denial(path: &Path) {
    log_a_denial_of(path, "/a\u{1b}[31mb\u{202e}");
}

/// An audit log with one denied request to a path.
fn log_a_denial_of(path: &Path, target: &str) {
    let log = Log::open(&Settings::at(path)).unwrap();
    let mut trail = Trail::begin(&log, ExchangeId::from_bytes(ID), "proxy");
    trail.session(&SessionId::new("agent-1").unwrap(), Arc::new(Nothing));
    trail.method("POST");
    trail.scheme("https");
    trail.authority("api.example.com", 443);
    trail.path(target);
    trail.query("page=secret-value&per=2");
    let policies = [PolicyId::new("guard/no-writes").unwrap()].into();
    trail.decide(AuditDecision::Deny, &policies, 3);
    trail.refuse(ReasonCode::PolicyForbids);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime
        .block_on(trail.answer(403, Length::Known(0)))
        .unwrap();
}

#[test]
fn why_tells_what_became_of_a_request_and_steers_no_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    log_a_denial(&at.join("logs/audit.jsonl"));
    let id = ExchangeId::from_bytes(ID).to_string();
    let arguments = ["why", &id, "--audit", "logs/audit.jsonl"];
    ends_with(
        &arguments,
        at,
        0,
        &[
            "POST https://api.example.com:443/a",
            "session agent-1",
            "refused with 403: policy_forbids",
            "decided by guard/no-writes",
            "no `permit` can override it",
        ],
    );
    let log = ["log", "--refused", "--audit", "logs/audit.jsonl"];
    ends_with(&log, at, 0, &["agent-1", "refused", "policy_forbids", &id]);
    let json = ends_with(
        &["--json", "why", &id, "--audit", "logs/audit.jsonl"],
        at,
        0,
        &["\"reason\":\"policy_forbids\""],
    );
    assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok());
    ends_with(
        &["why", "00000000000000000000", "--audit", "logs/audit.jsonl"],
        at,
        1,
        &["no record has the id", "searched logs/audit.jsonl"],
    );
}

#[test]
fn logs_are_found_by_a_named_configuration_and_in_the_state_directory() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    log_a_denial(&at.join(".local/state/gateway/audit/agent-1.jsonl"));
    let id = ExchangeId::from_bytes(ID).to_string();
    ends_with(&["why", &id], at, 0, &["policy_forbids"]);
    ends_with(
        &["log", "verify"],
        at,
        0,
        &["holds, complete: 3 records, 1 exchanges"],
    );
    fs::write(
        at.join("gateway.toml"),
        "[audit]\npath = \"logs/audit.jsonl\"\n",
    )
    .unwrap();
    let named = ["why", &id, "--config", "gateway.toml"];
    ends_with(&named, at, 1, &["logs"]);
    log_a_denial(&at.join("logs/audit.jsonl"));
    ends_with(&named, at, 0, &["logs/audit.jsonl:"]);
    ends_with(
        &["why", &id],
        at,
        0,
        &[".local/state/gateway/audit/agent-1.jsonl:"],
    );
}

/// What a workload can leave in its project, the folder in which the person then works.
fn plant(at: &Path) {
    log_a_denial_of(&at.join("forged/audit.jsonl"), "/forged");
    fs::write(
        at.join("gateway.toml"),
        "[audit]\npath = \"forged/audit.jsonl\"\n[policy]\nfiles = [\"planted.cedar\"]\n[ca]\ncertificate = \"planted.pem\"\n\
         [phantoms]\nenv_file = \"planted.env\"\n[[listener]]\nkind = \"proxy\"\naddress = \"127.0.0.1:9\"\nsession = \"agent-1\"\n\
         [[credential]]\nname = \"TOKEN\"\nfrom = \"env:TOKEN\"\norigins = [\"https://api.example.com\"]\n",
    )
    .unwrap();
    fs::write(
        at.join("planted.cedar"),
        "permit(principal, action, resource);\n",
    )
    .unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec![])
        .unwrap()
        .self_signed(&key)
        .unwrap();
    fs::write(at.join("planted.pem"), certificate.pem()).unwrap();
    fs::write(
        at.join("planted.env"),
        "TOKEN=phantom\nLD_PRELOAD=/srv/evil.so\nPATH=/srv/evil\n",
    )
    .unwrap();
}

#[test]
fn no_command_reads_a_configuration_that_lies_in_the_folder_unnamed() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    plant(at);
    let id = ExchangeId::from_bytes(ID).to_string();
    for (arguments, code) in [
        (&["why", &id][..], 1),
        (&["policy", "why", &id], 1),
        (&["policy", "check"], 2),
        (&["log", "verify"], 1),
        (&["session", "ca"], 2),
        (&["session", "ca", "--path"], 2),
        (&["env"], 1),
        (&["--json", "env"], 1),
    ] {
        let said = ends_with(arguments, at, code, &[]);
        for planted in [
            "forged",
            "planted",
            "LD_PRELOAD",
            "CERTIFICATE",
            "127.0.0.1:9",
            "permit",
        ] {
            assert!(!said.contains(planted), "{arguments:?}: {said}");
        }
    }
}

#[test]
fn env_prints_no_variable_that_the_configuration_does_not_know() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    plant(at);
    let arguments = ["env", "--config", "gateway.toml"];
    let said = ends_with(
        &arguments,
        at,
        1,
        &["`LD_PRELOAD`, which no credential has"],
    );
    assert!(!said.contains("export") && !said.contains("evil"), "{said}");
    fs::write(at.join("planted.env"), "TOKEN=phantom\n").unwrap();
    ends_with(
        &arguments,
        at,
        0,
        &["export TOKEN='phantom'", "export HTTPS_PROXY="],
    );
    let config = fs::read_to_string(at.join("gateway.toml")).unwrap();
    let login = "kind = \"proxy\"\nwho = [\"password\"]\npasswords = { ann = \"env:PW\" }\n";
    fs::write(
        at.join("gateway.toml"),
        config.replace("kind = \"proxy\"\n", login),
    )
    .unwrap();
    let noted = ["http://ann@", "the password of `ann`, which is not printed"];
    ends_with(&arguments, at, 0, &noted);
    for variable in [
        "LD_PRELOAD",
        "PATH",
        "BASH_ENV",
        "PROMPT_COMMAND",
        "GIT_SSH_COMMAND",
        "NODE_OPTIONS",
    ] {
        fs::write(
            at.join("gateway.toml"),
            format!("{config}env = [\"{variable}\"]\n"),
        )
        .unwrap();
        ends_with(&arguments, at, 2, &["steers a loader"]);
    }
}

#[test]
fn a_log_that_turned_over_is_verified_and_searched_as_a_whole_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let path = at.join("logs/audit.jsonl");
    let small = Settings {
        rotate_bytes: 64 << 10,
        ..Settings::at(&path)
    };
    let log = Log::open(&small).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    for count in 0..1000_u64 {
        let mut id = ID;
        id[..8].copy_from_slice(&count.to_be_bytes());
        let mut trail = Trail::begin(&log, ExchangeId::from_bytes(id), "proxy");
        trail.path(format!("/{count}"));
        runtime
            .block_on(trail.answer(200, Length::Known(0)))
            .unwrap();
    }
    drop(log);
    let files = fs::read_dir(at.join("logs")).unwrap().count();
    assert!(files > 3, "{files}");
    ends_with(
        &["log", "verify", "logs/audit.jsonl"],
        at,
        0,
        &[
            "holds, complete:",
            "1000 exchanges",
            "logs/audit.jsonl.00000000000000000000",
        ],
    );
    let mut first = ID;
    first[..8].fill(0);
    let first = ExchangeId::from_bytes(first).to_string();
    let why = ["why", &first, "--audit", "logs/audit.jsonl"];
    ends_with(
        &why,
        at,
        0,
        &["/0", "logs/audit.jsonl.00000000000000000000:"],
    );
    // A changed older file is noticed under the name of the newest.
    let oldest = at.join("logs/audit.jsonl.00000000000000000000");
    let text = fs::read_to_string(&oldest).unwrap();
    fs::write(&oldest, text.replace("\"path\":\"/7\"", "\"path\":\"/8\"")).unwrap();
    ends_with(
        &["log", "verify", "logs/audit.jsonl"],
        at,
        1,
        &["does not hold"],
    );
}

#[test]
fn logs_of_several_sessions_are_verified_chain_by_chain() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    for name in ["logs/one.jsonl", "logs/two.jsonl"] {
        let small = Settings {
            rotate_bytes: 64 << 10,
            ..Settings::at(&at.join(name))
        };
        let log = Log::open(&small).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        for count in 0..400_u64 {
            let mut id = ID;
            id[..8].copy_from_slice(&count.to_be_bytes());
            let mut trail = Trail::begin(&log, ExchangeId::from_bytes(id), "proxy");
            runtime
                .block_on(trail.answer(200, Length::Known(0)))
                .unwrap();
        }
    }
    let verify = ["log", "verify", "logs/two.jsonl", "logs/one.jsonl"];
    let said = ends_with(&verify, at, 0, &["2 logs, ", " records: 2 complete"]);
    assert_eq!(said.lines().count(), 1, "{said}");
    // Every file by itself, in any order, is still two chains.
    let mut files: Vec<String> = fs::read_dir(at.join("logs"))
        .unwrap()
        .map(|entry| format!("logs/{}", entry.unwrap().file_name().to_string_lossy()))
        .collect();
    files.sort_by_key(|name| name.len());
    let mut all = vec!["log", "verify"];
    all.extend(files.iter().map(String::as_str));
    ends_with(&all, at, 0, &[": 2 complete"]);
    // A change is blamed on its own chain.
    let path = at.join("logs/one.jsonl.00000000000000000000");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen("\"pid\":", "\"pid\":1", 1)).unwrap();
    let broken = ["does not hold", "one.jsonl.0", ": 1 complete, 1 broken"];
    ends_with(&verify, at, 1, &broken);
    let missing = at.join("logs/two.jsonl.00000000000000000000");
    fs::remove_file(missing).unwrap();
    ends_with(&verify, at, 1, &["earlier files are missing"]);
}

#[test]
fn logs_of_sessions_are_listed_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let prune = ["log", "prune", "--keep", "1"];
    ends_with(&prune, at, 0, &["0 logs removed"]);
    for name in ["20260101T000000-1", "20260101T000000-2"] {
        log_a_denial(&at.join(format!(".local/state/gateway/audit/{name}.jsonl")));
    }
    let listed = ends_with(
        &["log", "ls"],
        at,
        0,
        &[
            "20260101T000000-1.jsonl",
            "20260101T000000-2.jsonl",
            "2 logs, ",
            "KiB",
        ],
    );
    assert!(!listed.contains("live"), "{listed}");
    let dry = ["log", "prune", "--keep", "1", "--dry-run"];
    ends_with(
        &dry,
        at,
        0,
        &["1 logs would be removed", "20260101T000000-1.jsonl"],
    );
    let live = Log::open(&Settings::at(
        &at.join(".local/state/gateway/audit/20260101T000000-1.jsonl"),
    ))
    .unwrap();
    ends_with(&["log", "ls"], at, 0, &["20260101T000000-1.jsonl live"]);
    ends_with(
        &["log", "prune", "--keep", "0"],
        at,
        0,
        &["1 logs removed", "20260101T000000-2.jsonl"],
    );
    ends_with(
        &["log", "prune", "--older-than", "1d"],
        at,
        0,
        &["0 logs removed"],
    );
    drop(live);
    ends_with(
        &["log", "prune", "--keep", "1B"],
        at,
        0,
        &["20260101T000000-1.jsonl"],
    );
    ends_with(&["log", "prune", "--keep", "many"], at, 2, &["--keep"]);
    for n in 1..=22 {
        let name = format!(".local/state/gateway/audit/20260101T000000-{n}.jsonl");
        log_a_denial(&at.join(name));
    }
    let newest = ends_with(&["log", "ls"], at, 0, &["22 logs, ", "; 2 older: `--all`"]);
    assert_eq!(newest.lines().count(), 21, "{newest}");
    let all = ends_with(&["log", "ls", "--all"], at, 0, &["22 logs, "]);
    assert_eq!(all.lines().count(), 23, "{all}");
}

#[test]
fn the_help_of_exec_has_groups_with_an_example_each_and_no_json() {
    let at = Path::new("/");
    let help = ends_with(&["exec", "--help"], at, 0, &["Examples:"]);
    let of_flags = [
        "What it may reach:",
        "--secret",
        "--allow",
        "--dns",
        "What it may see and change:",
        "--see",
        "--here",
        "Agents:",
        "--profile",
        "--fresh-home",
        "Ports:",
        "--publish",
        "More:",
        "--into",
        "--config",
        "Examples:",
    ];
    let places: Vec<_> = of_flags
        .iter()
        .map(|part| help.find(part).unwrap())
        .collect();
    assert!(places.is_sorted(), "{help}");
    assert!(!help.contains("--json"), "{help}");
    for json in [["--json", "exec"], ["exec", "--json"]] {
        let words = [&json[..], &["--", "true"]].concat();
        ends_with(&words, at, 2, &["`exec` has no `--json`"]);
    }
}

#[test]
fn output_that_cannot_be_written_is_a_failure_unless_its_reader_has_gone() {
    for words in [
        &["secret", "presets"][..],
        &["policy", "schema"],
        &["--version"],
        &["--help"],
    ] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let (reader, closed) = std::io::pipe().unwrap();
        drop(reader);
        for (out, code) in [(Stdio::from(full), 1), (Stdio::from(closed), 0)] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_gateway"));
            let status = command
                .args(words)
                .stdout(out)
                .stderr(Stdio::null())
                .status();
            assert_eq!(status.unwrap().code(), Some(code), "{words:?}");
        }
    }
}

/// It makes no sandbox, and would ignore them.
#[test]
fn serve_has_no_flags_of_a_sandbox() {
    let folder = tempfile::tempdir().unwrap();
    for flag in [
        "group",
        "see",
        "see-home",
        "hide",
        "write",
        "pass-env",
        "publish",
        "host-port",
        "dns",
        "user",
    ] {
        let flag = format!("--{flag}");
        let said = ends_with(
            &["serve", &flag, "3000"],
            folder.path(),
            2,
            &["unexpected argument"],
        );
        assert!(said.contains(&flag), "{said}");
    }
}

#[test]
fn a_path_that_is_not_there_is_told_with_its_flag() {
    let folder = tempfile::tempdir().unwrap();
    for flag in ["--see", "--write"] {
        let told = format!("{flag} /nothere: No such file");
        let run = ["exec", "-q", flag, "/nothere", "--", "true"];
        ends_with(&run, folder.path(), 2, &[&told]);
    }
}

#[test]
fn allow_without_an_argument_names_each_that_it_takes() {
    let folder = tempfile::tempdir().unwrap();
    ends_with(&["allow"], folder.path(), 2, &["<HOST|ID|--last>"]);
}

#[test]
fn nothing_is_proposed_after_a_log_that_does_not_hold() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let path = at.join("logs/audit.jsonl");
    log_a_denial_of(&path, "/v1/things");
    fs::write(at.join("reads.cedar"), READS).unwrap();
    let id = ExchangeId::from_bytes(ID).to_string();
    let arguments = [
        "policy",
        "why",
        &id,
        "--audit",
        "logs/audit.jsonl",
        "--policy",
        "reads.cedar",
    ];
    ends_with(&arguments, at, 0, &["permit"]);
    let text = fs::read_to_string(&path).unwrap();
    // The writer died in its last line: nothing was changed.
    fs::write(&path, format!("{text}{{\"v\":1,\"seq\":")).unwrap();
    ends_with(&arguments, at, 0, &["permit"]);
    let first = text.split_inclusive('\n').next().unwrap();
    fs::write(
        &path,
        text.replacen(first, &first.replace("\"pid\":", "\"pid\":1"), 1),
    )
    .unwrap();
    let said = ends_with(&arguments, at, 1, &["does not hold", "gateway log verify"]);
    assert!(!said.contains("permit"), "{said}");
}

#[test]
fn exec_refuses_an_audit_log_that_its_command_could_reach() {
    let folder = tempfile::tempdir().unwrap();
    let at = fs::canonicalize(folder.path()).unwrap();
    for name in ["project/log", "project/deep", "shared", "home"] {
        fs::create_dir_all(at.join(name)).unwrap();
    }
    std::os::unix::fs::symlink(at.join("project/log"), at.join("link")).unwrap();
    let path = |name: &str| at.join(name).display().to_string();
    for (log, why) in [
        (path("project/log/audit.jsonl"), "is the command's"),
        (path("project/audit.jsonl"), "is the command's"),
        (
            String::from("not-there/yet/audit.jsonl"),
            "is the command's",
        ),
        (path("link/audit.jsonl"), "is the command's"),
        (
            path("shared/../project/log/audit.jsonl"),
            "is the command's",
        ),
        (path("project/deep/../log/audit.jsonl"), "is the command's"),
        (path("shared/audit.jsonl"), "could change"),
        (path("shared/new/audit.jsonl"), "could change"),
        (path("audit.jsonl"), "cannot be hidden"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_gateway"))
            .args([
                "exec",
                "--audit",
                &log,
                "--write",
                &path("shared"),
                "--",
                "true",
            ])
            .current_dir(at.join("project"))
            .env("HOME", at.join("home"))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{log}: {said}");
        assert!(said.contains(why), "{log}: {said}");
    }
    assert!(!at.join("project/not-there").exists() && !at.join("shared/new").exists());
}

#[test]
fn a_changed_or_cut_log_does_not_hold() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let log = at.join("logs/audit.jsonl");
    log_a_denial(&log);
    let said = ends_with(&["log", "verify", "logs/audit.jsonl"], at, 0, &["holds"]);
    let head = said
        .split("head ")
        .nth(1)
        .unwrap()
        .split_whitespace()
        .next()
        .unwrap()
        .to_owned();
    ends_with(
        &["log", "verify", "--head", &head, "logs/audit.jsonl"],
        at,
        0,
        &["holds"],
    );
    let whole = fs::read_to_string(&log).unwrap();
    fs::write(&log, whole.replace("\"status\":403", "\"status\":200")).unwrap();
    ends_with(
        &["log", "verify", "logs/audit.jsonl"],
        at,
        1,
        &["does not hold", "logs/audit.jsonl:2:"],
    );
    let json = ends_with(
        &["--json", "log", "verify", "logs/audit.jsonl"],
        at,
        1,
        &["\"holds\":false"],
    );
    assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok());
    let first = whole.split_inclusive('\n').next().unwrap();
    fs::write(&log, first).unwrap();
    let cut = format!("record {head} was there before");
    let said = ["a prefix: its end is not proven", &cut];
    ends_with(&["log", "verify", "logs/audit.jsonl"], at, 4, &said);
    ends_with(
        &["log", "verify", "--head", &head, "logs/audit.jsonl"],
        at,
        1,
        &["does not hold"],
    );
}

#[test]
fn a_log_is_complete_with_its_last_record_and_else_open_or_a_prefix() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let log = at.join("logs/audit.jsonl");
    let writer = Log::open(&Settings::at(&log)).unwrap();
    let verify = ["log", "verify", "logs/audit.jsonl"];
    ends_with(&verify, at, 3, &["holds, open: a gateway writes it"]);
    drop(writer);
    let whole = fs::read_to_string(&log).unwrap();
    // What a verification has not seen, nobody knows of.
    let cut = whole.split_inclusive('\n').next().unwrap();
    fs::write(&log, cut).unwrap();
    ends_with(&verify, at, 4, &["holds, a prefix"]);
    fs::write(&log, &whole).unwrap();
    ends_with(&verify, at, 0, &["holds, complete"]);
    fs::write(at.join("logs/other.jsonl"), "{}\n").unwrap();
    let both = ["log", "verify", "logs/audit.jsonl", "logs/other.jsonl"];
    ends_with(&both, at, 1, &["2 logs, 2 records: 1 complete, 1 broken"]);
}

const READS: &str = r#"@id("reads")
permit(principal, action in Gateway::Action::"read", resource == Gateway::Host::"api.example.com");
"#;

#[test]
fn policy_check_reports_every_problem_and_counts_what_holds() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::write(at.join("good.cedar"), READS).unwrap();
    ends_with(
        &["policy", "check", "good.cedar"],
        at,
        0,
        &["1 policy loads, 0 warnings"],
    );
    fs::write(
        at.join("bad.cedar"),
        "permit(principal, action, resource) when { context.nothing };\n",
    )
    .unwrap();
    fs::write(at.join("worse.cedar"), "permit(\n").unwrap();
    ends_with(
        &[
            "policy",
            "check",
            "bad.cedar",
            "worse.cedar",
            "missing.cedar",
        ],
        at,
        1,
        &["missing.cedar: error:"],
    );
    ends_with(
        &["policy", "check", "bad.cedar", "worse.cedar"],
        at,
        1,
        &["bad.cedar:1:", "worse.cedar:"],
    );
    let json = ends_with(
        &["--json", "policy", "check", "bad.cedar"],
        at,
        1,
        &["\"holds\":false"],
    );
    assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok());
    ends_with(&["policy", "check"], at, 2, &["no file is named"]);
    fs::write(at.join("gateway.toml"), "[policy]\nfiles = [\"good.cedar\"]\n[[credential]]\nname = \"A\"\norigins = [\"https://api.example.com\", \"https://other.example.com\"]\n").unwrap();
    ends_with(
        &["policy", "check", "--config", "gateway.toml"],
        at,
        0,
        &[
            "1 policy loads, 1 warning",
            "no policy permits anything on https://other.example.com, where `A` is bound to",
        ],
    );
}

#[test]
fn policy_check_tells_at_a_rule_what_servers_make_of_the_case_of_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let rule = |effect: &str, condition: &str| {
        let scope = "(principal, action in Gateway::Action::\"any\", resource == Gateway::Host::\"api.test\")";
        fs::write(
            at.join("a.cedar"),
            format!("\n{effect}{scope}\n{condition};\n"),
        )
        .unwrap();
        ends_with(
            &["policy", "check", "a.cedar"],
            at,
            0,
            &["1 policy loads, 0 warnings"],
        )
    };
    for (effect, condition, other, written) in [
        (
            "forbid",
            "when { context.path == \"/graphql\" }",
            "/GRAPHQL",
            "/graphql",
        ),
        (
            "forbid",
            "when { context.prefixes.contains(\"/Admin\") }",
            "/ADMIN",
            "/Admin",
        ),
        (
            "forbid",
            "when { context.segments.contains(\"0:ADMIN\") }",
            "0:admin",
            "0:ADMIN",
        ),
        (
            "forbid",
            "when { context.path like \"/a/*\" }",
            "/A/*",
            "/a/*",
        ),
        (
            "permit",
            "when { !context.prefixes.contains(\"/admin\") }",
            "/ADMIN",
            "/admin",
        ),
    ] {
        let said = rule(effect, condition);
        let told = format!(
            "note: a server that ignores the case of paths takes `{other}` for `{written}`"
        );
        assert!(
            said.contains("a.cedar:2:1: ") && said.contains(&told),
            "{said}"
        );
    }
    for (effect, condition) in [
        ("permit", "when { context.path == \"/graphql\" }"),
        (
            "forbid",
            "unless { context.prefixes.contains(\"/graphql\") }",
        ),
        ("forbid", "when { context.path == \"/1/2\" }"),
        (
            "forbid",
            "when { context.query.any.contains(\"mode=admin\") }",
        ),
    ] {
        let said = rule(effect, condition);
        assert!(!said.contains("note:"), "{said}");
    }
}

#[test]
fn policy_check_and_test_judge_what_serve_has_in_force_with_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let config = "[policy]\nallow = [\"allowed.example.com\"]\n[[credential]]\nname = \"A\"\n\
                  origins = [\"https://allowed.example.com\"]\n";
    fs::write(at.join("gateway.toml"), config).unwrap();
    let granted =
        "permit(principal, action, resource == Gateway::Host::\"granted.example.com\");\n";
    fs::write(at.join("gateway.granted.cedar"), granted).unwrap();
    let decisions: String = ["allowed", "granted"]
        .map(|host| {
            format!(
                "[[decision]]\nname = \"{host}\"\nurl = \"https://{host}.example.com/\"\n\
                 expect = \"allow\"\n"
            )
        })
        .concat();
    fs::write(at.join("zz.toml"), decisions).unwrap();
    fs::write(at.join("zz.cedar"), "").unwrap();
    let check = ["policy", "check", "--config", "gateway.toml"];
    let said = ends_with(&check, at, 0, &[]);
    assert!(!said.contains("no policy permits"), "{said}");
    let test = ["policy", "test", "--config", "gateway.toml", "zz.toml"];
    let passed = "2 of 2 decisions as expected, judged by gateway.toml";
    ends_with(&test, at, 0, &[passed]);
    let beside = "0 of 2 decisions as expected, judged by zz.cedar";
    ends_with(&["policy", "test", "zz.toml"], at, 1, &[beside]);
}

#[test]
fn policy_check_tells_names_that_the_configuration_lacks_and_refuses_values_that_no_fact_has() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let listener = |session: &str, more: &str| {
        format!(
            "[[listener]]\nkind = \"proxy\"\naddress = \"127.0.0.1:1\"\nsession = \"{session}\"\n{more}"
        )
    };
    let config = |listener: &str| {
        let credential = "[[credential]]\nname = \"A\"\norigins = [\"https://api.example.com\"]\n";
        // The second has rules of its own, which name the group that lifts them.
        let presets = "presets = [\"stripe\", \"anthropic\"]\n";
        let policy = format!("[policy]\nfiles = [\"names.cedar\"]\n{presets}");
        let text = format!("{policy}{credential}{listener}");
        fs::write(at.join("gateway.toml"), text).unwrap();
    };
    let rule = |principal: &str, credential: &str| {
        format!(
            "permit(principal {principal}, action == Gateway::Action::\"lend\",\n\
             resource == Gateway::Credential::\"{credential}\")\n\
             when {{ context.origin == Gateway::Host::\"api.example.com\" }};\n"
        )
    };
    let check = ["policy", "check", "--config", "gateway.toml"];
    let group = |name: &str| format!("in Gateway::Group::\"{name}\"");
    let session = |name: &str| format!("== Gateway::Session::\"{name}\"");
    let one = listener("agent-1", "groups = [\"readers\"]\n");
    let tokens = listener("{caller}", "who = [\"token\"]\n");
    for (listener, principal, credential, lacks) in [
        (&one, session("agent-1"), "A", None),
        (&one, group("readers"), "stripe", None),
        // What evidence or a login inside gives is known when it comes.
        (&one, group("groups:readers"), "mcp.example.com", None),
        (&one, group("writers"), "A", Some("group `writers`")),
        (&one, session("agent-2"), "A", Some("session `agent-2`")),
        (
            &one,
            session("agent-1"),
            "github",
            Some("credential `github`"),
        ),
        // An operator makes sessions in any group for a listener that takes tokens.
        (&tokens, group("writers"), "A", None),
        (&tokens, session("ci-1"), "A", None),
        (&tokens, session("ci-1"), "B", Some("credential `B`")),
    ] {
        config(listener);
        fs::write(at.join("names.cedar"), rule(&principal, credential)).unwrap();
        let said = ends_with(&check, at, 0, &[]);
        let told =
            lacks.map(|lacks| format!("names the {lacks}, which the configuration does not have"));
        assert_eq!(
            said.contains("names the"),
            told.is_some(),
            "{principal} {credential}: {said}"
        );
        assert!(told.is_none_or(|told| said.contains(&told)), "{said}");
    }
    // In a condition, too.
    let inside = "permit(principal, action == Gateway::Action::\"GET\", resource == Gateway::Host::\"a.example.com\")\n\
                  unless { principal in Gateway::Group::\"writers\" };\n";
    config(&one);
    fs::write(at.join("names.cedar"), inside).unwrap();
    ends_with(&check, at, 0, &["names the group `writers`"]);
    let json = [&["--json"], &check[..]].concat();
    ends_with(&json, at, 0, &["\"unknown\":[\"policy"]);
    for condition in [
        "context.method == \"get\"",
        "context.entry == \"tailnet\"",
        "context.git.refs.contains(\"update main\")",
    ] {
        let rule = format!("forbid(principal, action, resource) when {{ {condition} }};\n");
        fs::write(at.join("names.cedar"), rule).unwrap();
        ends_with(&check, at, 1, &["never matches"]);
    }
}

#[test]
fn policy_test_judges_decision_files_by_the_policies_beside_them() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::create_dir_all(at.join("policies/decisions")).unwrap();
    fs::write(at.join("policies/decisions/reads.cedar"), READS).unwrap();
    let decision = |method: &str, expect: &str| {
        format!(
            "[[decision]]\nname = \"it {method}s\"\nurl = \"https://api.example.com/\"\nmethod = \"{method}\"\nexpect = \"{expect}\"\n"
        )
    };
    let file = at.join("policies/decisions/reads.toml");
    fs::write(&file, decision("GET", "allow") + &decision("POST", "deny")).unwrap();
    ends_with(
        &["policy", "test"],
        at,
        0,
        &["2 of 2 decisions as expected"],
    );
    fs::write(&file, decision("GET", "allow") + &decision("POST", "allow")).unwrap();
    ends_with(
        &["policy", "test"],
        at,
        1,
        &["failed: it POSTs", "1 of 2 decisions as expected"],
    );
    fs::write(&file, "nothing = 1\n").unwrap();
    ends_with(&["policy", "test"], at, 2, &["cannot be run"]);
    fs::write(at.join("none.cedar"), "").unwrap();
    fs::write(&file, decision("GET", "deny")).unwrap();
    ends_with(
        &["policy", "test", "--policy", "none.cedar"],
        at,
        0,
        &["1 of 1"],
    );
}

/// Rules on what requests do, for each protocol that is read.
const DOES: &str = r#"@id("reads") permit(principal in Gateway::Group::"ci", action, resource)
when { context.path == "/graphql" && !context.graphql.operations.contains("mutation") };
@id("searches") permit(principal, action, resource)
when { context.path == "/mcp" && ["search"].containsAll(context.mcp.tools) };
@id("asks") permit(principal, action, resource)
when { context.path == "/v1/responses" && context.model.name == "small" };
@id("pushes") permit(principal, action, resource)
when { context.path == "/o/r.git/git-receive-pack" && !context.git.refs.contains("delete") };
"#;

/// A decision about a request that does something.
fn does(url: &str, what: &str, expect: &str) -> String {
    format!("[[decision]]\nname = 'it'\nurl = '{url}'\nexpect = '{expect}'\n{what}\n")
}

#[test]
fn decision_files_say_what_a_request_does_without_wire_formats() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let graphql = "POST https://api.github.com/graphql";
    let mcp = "https://mcp.linear.app/mcp";
    let model = "https://api.openai.com/v1/responses";
    let push = "https://github.com/o/r.git/git-receive-pack";
    let decisions = [
        does(graphql, "graphql = '{ viewer { id } }'", "allow"),
        does(graphql, "graphql = 'mutation { \"x\": y }'", "deny"),
        does(graphql, "graphql = 'mutation { a(x: \"\\\\\") }'", "deny"),
        does(mcp, "mcp = 'search'", "allow"),
        does(mcp, "mcp = 'delete'", "deny"),
        does(model, "model = 'small'", "allow"),
        does(model, "model = 'large'", "deny"),
        does(
            push,
            "git = ['create refs/heads/a', 'update refs/heads/b']",
            "allow",
        ),
        does(
            push,
            "git = ['update refs/heads/b', 'delete refs/heads/a']",
            "deny",
        ),
    ];
    let decisions = format!("[request]\ngroups = ['ci']\n{}", decisions.concat());
    // The second is no GraphQL: it is said, and not judged.
    fs::write(at.join("does.toml"), &decisions).unwrap();
    fs::write(at.join("does.cedar"), DOES).unwrap();
    let test = ["policy", "test", "does.toml"];
    ends_with(
        &test,
        at,
        2,
        &["`graphql` is not read: the document is not valid"],
    );
    let right = decisions.replace("{ \"x\": y }", "{ x }");
    fs::write(at.join("does.toml"), right).unwrap();
    ends_with(&test, at, 0, &["9 of 9 decisions as expected"]);
    for (url, what, told) in [
        (
            "GET https://a.test/",
            "method = 'POST'",
            "its method is `GET` in `url` and `POST`",
        ),
        (
            "https://a.test/",
            "mcp = 'search'",
            "`mcp` is not read at this address",
        ),
        (mcp, "mcp = 'a'\ncontent = '{}'", "says its content"),
        (mcp, "mcp = 'a'\nmodel = 'b'", "says its content"),
        (
            push,
            "git = ['move refs/heads/a']",
            "no `create`, `update` or `delete` of a ref",
        ),
        (push, "git = []", "`git` names no ref"),
        (
            "GET https://mcp.linear.app/mcp",
            "mcp = 'a'",
            "`mcp` is not read: ",
        ),
    ] {
        fs::write(at.join("does.toml"), does(url, what, "deny")).unwrap();
        ends_with(&test, at, 2, &["cannot be run", told]);
    }
}

#[test]
fn a_request_that_was_not_made_is_asked_about() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    fs::write(at.join("does.cedar"), DOES).unwrap();
    let why = |url: &str, more: &[&str], code, told: &[&str]| {
        let named = ["policy", "why", url, "--policy", "does.cedar"];
        ends_with(&[&named, more].concat(), at, code, told)
    };
    let graphql = "POST https://api.github.com/graphql";
    let reads = "graphql = '{ viewer { id } }'";
    let writes = "graphql = 'mutation { x }'";
    let ci = "groups = ['ci']";
    let both = |document| ["--with", document, "--with", ci];
    why(
        graphql,
        &both(reads),
        0,
        &[
            "now  allowed: policy `reads` allows this",
            "of session test",
        ],
    );
    why(
        graphql,
        &both(writes),
        0,
        &["now  policy_default_deny", "do not hold for this request"],
    );
    why(
        graphql,
        &["--with", reads],
        0,
        &["now  policy_default_deny"],
    );
    // Without its content, a rule that reads it fails.
    why(graphql, &[], 0, &["now  policy_default_deny"]);
    why(
        graphql,
        &["--with", ci],
        0,
        &["now  policy_error", "`graphql.operations`"],
    );
    // A rule for exactly this is proposed, but for what no rule lifts.
    let said = why(
        "PUT https://api.test/v1/x?y=1",
        &[],
        0,
        &["now  policy_default_deny", "next"],
    );
    assert!(
        said.contains("permit(") && said.contains("api.test"),
        "{said}"
    );
    let said = why(
        "GET http://169.254.169.254/x",
        &[],
        0,
        &["now  policy_default_deny"],
    );
    assert!(!said.contains("permit("), "{said}");
    let json = [
        "--json",
        "policy",
        "why",
        graphql,
        "--policy",
        "does.cedar",
        "--with",
        ci,
    ];
    let said = ends_with(&json, at, 0, &[]);
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(
        (&said["outcome"], &said["session"]),
        (&json!("policy_error"), &json!("test"))
    );
    for (url, more, told) in [
        (
            "POST ftp://a.test/",
            &[][..],
            "`url` is neither http nor https",
        ),
        ("POST https://a.test/%2f", &[], "`url`"),
        (graphql, &["--with", "groups = "], "cannot be judged"),
        (
            graphql,
            &["--with", "expect = 'allow'"],
            "`expect` is a key of decision files alone",
        ),
        (
            graphql,
            &["--with", "grops = ['ci']"],
            "unknown field `grops`",
        ),
        (
            "0123",
            &["--with", ci],
            "`--with` is for a request that was not made",
        ),
    ] {
        why(url, more, 2, &[told]);
    }
    // A configuration says whose it is: its first listener, with its groups.
    let config = "[policy]\nfiles = ['does.cedar']\n[[listener]]\nkind = 'proxy'\n\
                  address = '127.0.0.1:1'\nsession = 'builds'\ngroups = ['ci']\n";
    fs::write(at.join("gateway.toml"), config).unwrap();
    let named = [
        "policy",
        "why",
        graphql,
        "--config",
        "gateway.toml",
        "--with",
    ];
    ends_with(
        &[&named[..], &[reads]].concat(),
        at,
        0,
        &["allows this", "of session builds"],
    );
    let other = [&named[..], &[reads, "--with", "session = 'other'"]].concat();
    ends_with(
        &other,
        at,
        0,
        &["now  policy_default_deny", "of session other"],
    );
}

#[test]
fn policy_why_proposes_the_policy_that_would_allow_it() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    log_a_denial_of(&at.join("logs/audit.jsonl"), "/v1/things");
    fs::write(at.join("reads.cedar"), READS).unwrap();
    let id = ExchangeId::from_bytes(ID).to_string();
    let arguments = [
        "policy",
        "why",
        &id,
        "--audit",
        "logs/audit.jsonl",
        "--policy",
        "reads.cedar",
    ];
    let said = ends_with(
        &arguments,
        at,
        0,
        &[
            "guard/no-writes",
            "now  policy_default_deny",
            "`reads`",
            "permit",
        ],
    );
    log_a_denial(&at.join("odd/audit.jsonl"));
    let odd = [
        "policy",
        "why",
        &id,
        "--audit",
        "odd/audit.jsonl",
        "--policy",
        "reads.cedar",
    ];
    ends_with(&odd, at, 1, &["never came before a policy"]);
    let proposal = &said[said.find("@id").or_else(|| said.find("permit")).unwrap()..];
    assert!(proposal.contains("api.example.com"), "{said}");
}

#[test]
fn shipped_decision_files_hold_by_the_command_too() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    ends_with(&["policy", "test"], root, 0, &["decisions as expected"]);
}

/// Before the command starts; needs the launcher's namespaces.
#[test]
fn exec_says_which_buckets_a_signing_key_reaches() {
    let folder = tempfile::tempdir().unwrap();
    let lends = |id: &str, more: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_gateway"))
            .args(["exec", "--aws", "--audit", "audit.jsonl"])
            .args(more)
            .args(["--", "true"])
            .current_dir(&folder)
            .env("HOME", folder.path())
            .env("AWS_ACCESS_KEY_ID", id)
            .env("AWS_SECRET_ACCESS_KEY", "a".repeat(40))
            .env_remove("AWS_SESSION_TOKEN")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!said.contains(id), "{said}");
        let line = said
            .lines()
            .find(|line| line.contains("lends"))
            .map(str::to_owned);
        line.unwrap_or(said)
    };
    let (tells, tells_not) = ("ASIAY34FZKBOKMUTVV7A", "AKIAIOSFODNN7EXAMPLE");
    assert!(
        lends(tells, &[]).contains("buckets of S3 in account 609629065308 alone"),
        "{}",
        lends(tells, &[])
    );
    assert!(lends(tells_not, &[]).contains("EVERY bucket of S3"));
    let named = lends(
        tells_not,
        &["--bucket", "reports", "--bucket", "shared/in/"],
    );
    assert!(
        named.contains("aws (signs)") && !named.contains("S3"),
        "{named}"
    );
    let arguments = ["exec", "--bucket", "reports", "--", "true"];
    ends_with(&arguments, folder.path(), 2, &["`--bucket` needs `--aws`"]);
}

#[test]
fn the_help_names_every_command_and_no_hidden_one() {
    let folder = tempfile::tempdir().unwrap();
    let said = ends_with(
        &["--help"],
        folder.path(),
        0,
        &[
            "Run programs:",
            "policy",
            "secret",
            "why",
            "env",
            "status",
            "session",
            "reload",
            "allow",
            "log",
            "login",
            "token",
            "generate",
            "--json",
            "--color",
        ],
    );
    assert!(!said.contains("__"), "{said}");
}

#[test]
fn presets_are_listed_and_told_one_by_one() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    ends_with(
        &["secret", "presets"],
        at,
        0,
        &["github", "GITHUB_TOKEN", "anthropic"],
    );
    ends_with(
        &["secret", "presets", "github"],
        at,
        0,
        &["GH_TOKEN", "api.github.com", "header:authorization:Bearer"],
    );
    ends_with(
        &["secret", "presets", "githb"],
        at,
        2,
        &["did you mean `github`?"],
    );
    let json = ends_with(
        &["--json", "secret", "presets"],
        at,
        0,
        &["\"name\":\"github\""],
    );
    assert!(
        serde_json::from_str::<serde_json::Value>(&json)
            .unwrap()
            .as_array()
            .unwrap()
            .len()
            > 10
    );
}

/// A folder in which every user may work, and `gateway exec` in it with only these variables.
fn exec(variables: &[(&str, &str)], arguments: &[&str]) -> (tempfile::TempDir, Command) {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_gateway"));
    command
        .arg("exec")
        .args(arguments)
        .current_dir(folder.path())
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", folder.path())
        .envs(variables.iter().copied())
        .stdin(Stdio::null());
    (folder, command)
}

#[test]
fn a_pattern_passes_no_known_secret_that_is_not_lent() {
    let secrets = [
        ("GITHUB_TOKEN", "ghp_0123456789abcdefghijABCDEFGHIJ012345"),
        ("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7REALKEY"),
        (
            "AWS_SECRET_ACCESS_KEY",
            "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",
        ),
    ];
    let variables = [&secrets[..], &[("GITHUB_OTHER", "on")]].concat();
    for more in [&[][..], &["--no-lend"]] {
        let patterns = ["--pass-env", "AWS_*", "--pass-env", "GITHUB_*"];
        let arguments = [more, &patterns, &["--", "env"]].concat();
        let (_folder, mut command) = exec(&variables, &arguments);
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(said.contains("GITHUB_OTHER=on\n"), "{said}");
        for (_, secret) in secrets {
            assert!(!said.contains(secret), "{said}");
        }
    }
}

#[test]
fn the_command_gets_harmless_variables_and_those_that_are_named() {
    let variables = [
        ("LANG", "C"),
        ("EDITOR", "ghp_0123456789"),
        ("SENTRY_DSN", "https://key@sentry.test/1"),
        ("APP_KEYS", "hunter2"),
        ("MY_SETTING", "ghp_0123456789"),
        ("MY_OTHER", "on"),
        ("ODD\u{1b}[31m", "x"),
        ("SSH_AUTH_SOCK", "/run/agent"),
        ("https_proxy", "http://127.0.0.1:1"),
    ];
    let (_folder, mut command) = exec(&variables, &["--pass-env", "MY_*", "--", "env"]);
    let output = command.output().unwrap();
    let (said, noted) = (
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    );
    for passed in [
        "LANG=C\n",
        "MY_SETTING=ghp_0123456789\n",
        "MY_OTHER=on\n",
        "PATH=",
    ] {
        assert!(said.contains(passed), "{passed}: {said}{noted}");
    }
    for kept in [
        "hunter2",
        "sentry.test",
        "EDITOR",
        "SSH_AUTH_SOCK",
        "https_proxy",
        "ODD",
    ] {
        assert!(!said.contains(kept), "{kept}: {said}");
    }
    assert!(
        noted.contains(
            "not passed: APP_KEYS, EDITOR, ODD\\u{1b}[31m, SENTRY_DSN; --pass-env APP_KEYS passes it as it is"
        ),
        "{noted}"
    );
    assert!(
        !noted.contains("hunter2") && !noted.contains("SSH_AUTH_SOCK"),
        "{noted}"
    );
    let (_folder, mut command) = exec(&[("LANG", "C"), ("TMUX", "x")], &["--", "true"]);
    let noted = String::from_utf8(command.output().unwrap().stderr).unwrap();
    assert!(
        noted.contains("network") && !noted.contains("not passed"),
        "{noted}"
    );
}

#[test]
fn a_log_to_which_the_command_appends_is_out_of_its_hands() {
    let spoil =
        ": > /proc/self/fd/1; : > /dev/stderr; echo said; echo erred >&2; cat < /proc/self/fd/0";
    let (folder, mut command) = exec(&[], &["-q", "--", "sh", "-c", spoil]);
    let (log, input) = (folder.path().join("log"), folder.path().join("input"));
    for (path, content) in [(&log, "earlier\n"), (&input, "given\n")] {
        fs::write(path, content).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o666)).unwrap();
    }
    let file = fs::OpenOptions::new().append(true).open(&log).unwrap();
    command.stdin(fs::File::open(&input).unwrap());
    let status = command
        .stdout(file.try_clone().unwrap())
        .stderr(file)
        .status()
        .unwrap();
    assert_eq!(
        fs::read_to_string(&log).unwrap(),
        "earlier\nsaid\nerred\ngiven\n"
    );
    assert!(status.success());
}

#[test]
fn a_command_that_cannot_be_run_has_the_shells_exit_codes() {
    for (program, code) in [("no-such-command-anywhere", 127), ("/etc/passwd", 126)] {
        let (_folder, mut command) = exec(&[], &["-q", "--", program]);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{output:?}");
    }
}

#[test]
fn a_flag_that_exec_does_not_have_is_an_error_and_the_commands_own_are_not() {
    let folder = tempfile::tempdir().unwrap();
    for (flag, told) in [
        ("--bogus", "unexpected argument '--bogus'"),
        ("--quite", "--quiet"),
        ("-Z", "unexpected argument '-Z'"),
    ] {
        ends_with(&["exec", flag, "true"], folder.path(), 2, &[told]);
    }
    for before in [&["-q"][..], &["-q", "--"]] {
        let (_folder, mut command) = exec(&[], before);
        let output = command
            .args(["printf", "%s ", "--bogus", "-q", "--", "-Z"])
            .output()
            .unwrap();
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "--bogus -q -- -Z ",
            "{output:?}"
        );
    }
}

/// A user's home and project, and a directory of tools elsewhere; run as that user, whom no system
/// has.
struct Desk {
    folder: tempfile::TempDir,
}

impl Desk {
    const USER: u32 = 40962;

    fn new() -> Self {
        let folder = tempfile::tempdir_in("/srv").unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let desk = Self { folder };
        for (name, content) in [
            ("home/.vimrc", "vim"),
            ("home/.npmrc", "SECRET"),
            ("home/notes", "SECRET"),
            ("home/.claude/CLAUDE.md", "as told"),
            ("home/.claude/settings.json", "SECRET"),
            ("home/.cargo/bin/tool", "#!/bin/sh\necho the tool ran\n"),
            ("elsewhere/data", "data"),
            ("elsewhere/own", "#!/bin/sh\necho ours ran\n"),
            ("project/file", "project"),
            ("project/.env", "SECRET"),
        ] {
            let path = desk.at(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, content).unwrap();
            let mode = if content.starts_with("#!") {
                0o755
            } else {
                0o600
            };
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            for own in path
                .ancestors()
                .take_while(|own| *own != desk.folder.path())
            {
                std::os::unix::fs::chown(own, Some(Self::USER), Some(Self::USER)).unwrap();
            }
        }
        desk
    }

    fn at(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn exec(&self, arguments: &[&str]) -> (i32, String) {
        use std::os::unix::process::CommandExt;
        let output = Command::new(env!("CARGO_BIN_EXE_gateway"))
            .arg("exec")
            .args(arguments)
            .current_dir(self.at("project"))
            .env_clear()
            .env("HOME", self.at("home"))
            .env(
                "PATH",
                format!("{}:/usr/bin:/bin", self.at("elsewhere").display()),
            )
            .uid(Self::USER)
            .gid(Self::USER)
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        (
            output.status.code().unwrap_or(-1),
            String::from_utf8_lossy(&said).into_owned(),
        )
    }
}

#[test]
fn exec_shows_what_is_named_and_nothing_else() {
    let desk = Desk::new();
    let elsewhere = desk.at("elsewhere");
    let look = format!(
        "cat file ~/.vimrc {0}/data; ~/.cargo/bin/tool; cat ~/.npmrc ~/notes; find .. ~ /srv -type f",
        elsewhere.display()
    );
    let (_, said) = desk.exec(&["-q", "--", "sh", "-c", &look]);
    assert!(said.starts_with("projectthe tool ran\n"), "{said}");
    assert!(
        !said.contains("SECRET") && !said.contains("vimdata"),
        "{said}"
    );
    let named = [
        "-q",
        "--see",
        elsewhere.to_str().unwrap(),
        "--see-home",
        ".vimrc",
        "--",
        "sh",
        "-c",
        &look,
    ];
    let (_, said) = desk.exec(&named);
    assert!(
        said.starts_with("projectvimdatathe tool ran\n") && !said.contains("SECRET"),
        "{said}"
    );
    // The same by a file.
    let file = desk.at("gateway.toml");
    fs::write(
        &file,
        "[sandbox]\nsee = [\"elsewhere\"]\nsee_home = [\"~/.vimrc\"]\n",
    )
    .unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let (_, said) = desk.exec(&[
        "-q",
        "--config",
        file.to_str().unwrap(),
        "--",
        "sh",
        "-c",
        &look,
    ]);
    assert!(
        said.starts_with("projectvimdatathe tool ran\n") && !said.contains("SECRET"),
        "{said}"
    );
}

#[test]
fn exec_says_what_of_the_home_is_seen_and_which_flag_shows_a_program() {
    let desk = Desk::new();
    let (code, said) = desk.exec(&["--", "own"]);
    assert!(
        said.contains("of your files only rust: --see-home NAME"),
        "{said}"
    );
    let flag = format!("`--see {}`", desk.at("elsewhere").display());
    assert!(code == 127 && said.contains(&flag), "{code} {said}");
    let (code, said) = desk.exec(&["-q", "--see", "../elsewhere", "--", "own"]);
    assert_eq!((code, said.as_str()), (0, "ours ran\n"));
}

#[test]
fn exec_refuses_to_hide_a_file_in_the_project_and_a_secret_that_lies_there() {
    let desk = Desk::new();
    let file = desk.at("gateway.toml");
    let text = "[[credential]]\nname = \"A\"\nfrom = \"file:project/.env\"\norigins = [\"https://a.example.test\"]\n";
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    for arguments in [["--hide", ".env"], ["--config", file.to_str().unwrap()]] {
        let (code, said) = desk.exec(&[&arguments[..], &["--", "cat", ".env"]].concat());
        assert!(
            code == 2 && said.contains("move it out of the project"),
            "{code} {said}"
        );
        assert!(!said.contains("SECRET"), "{said}");
    }
}

#[test]
fn a_preset_shows_what_a_person_wrote_for_its_programs() {
    let desk = Desk::new();
    let look = ["--", "sh", "-c", "cat ~/.claude/*; ls ~/.claude"];
    let (_, said) = desk.exec(&[&["-q"], &look[..]].concat());
    assert!(
        said.contains("No such file") && !said.contains("as told"),
        "{said}"
    );
    let (code, said) = desk.exec(&[&["--preset", "anthropic"], &look[..]].concat());
    assert!(
        code == 0 && said.contains("as toldCLAUDE.md\n") && !said.contains("SECRET"),
        "{code} {said}"
    );
    assert!(said.contains("of your files only rust, claude"), "{said}");
}

#[test]
fn root_names_the_commands_user_by_name_or_by_numbers() {
    for (user, said) in [("nobody", "65534\n"), ("12399:12399", "12399\n")] {
        let (_folder, mut command) = exec(&[], &["-q", "--user", user, "--", "id", "-u"]);
        let output = command.output().unwrap();
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            said,
            "{user}: {output:?}"
        );
    }
}

#[test]
fn doctor_looks_at_what_each_listener_of_a_configuration_needs() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let listener = |address: &str, session: &str, more: &str| {
        format!(
            "[[listener]]\nkind = \"proxy\"\naddress = \"{address}\"\nsession = \"{session}\"\n{more}\n"
        )
    };
    let fine = listener(&addresses::free().to_string(), "fine", "");
    let jwt = "who = [\"jwt\"]\njwt = { issuer = \"https://i.test\", audience = \"gateway\", keys = \"http://127.0.0.1:1/jwks\" }";
    let tailnet = "who = [\"tailnet\"]\ntailnet_socket = \"tailscaled.sock\"";
    let each = "{caller}";
    let rest = [
        listener("192.0.2.1:3128", each, tailnet),
        listener(&format!("unix:{}/none/own.sock", at.display()), "files", ""),
        listener(&addresses::free().to_string(), each, jwt),
    ];
    let doctor = ["doctor", "--config", "gateway.toml"];
    fs::write(at.join("gateway.toml"), &fine).unwrap();
    ends_with(&doctor, at, 0, &["ok ", "session fine"]);
    fs::write(at.join("gateway.toml"), fine + &rest.concat()).unwrap();
    let told = [
        "it cannot listen there",
        "/none` cannot be used",
        "the keys at http://127.0.0.1:1/jwks cannot be had",
        "tailscaled gives no answer",
    ];
    let said = ends_with(&doctor, at, 1, &told);
    assert_eq!(said.matches("fails ").count(), 3, "{said}");
    let json = [&doctor[..], &["--json"]].concat();
    let said = ends_with(&json, at, 1, &[]);
    let all: Value = serde_json::from_str(said.lines().next().unwrap()).unwrap();
    let lacks = |one: &&Value| one["lacks"].is_string();
    assert_eq!(all.as_array().unwrap().iter().filter(lacks).count(), 3);
}

#[test]
fn a_request_that_was_not_made_is_refused_as_a_run_would_refuse_it() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let all = "@id(\"all\") permit(principal, action, resource);";
    fs::write(at.join("all.cedar"), all).unwrap();
    let config = "[policy]\nfiles = [\"all.cedar\"]\npresets = [\"gitlab\"]\n";
    fs::write(at.join("gateway.toml"), config).unwrap();
    for (asked, outcome) in [
        ("https://example.com/", "allowed"),
        ("https://169.254.169.254/", "metadata"),
        ("https://10.0.0.1/", "ssrf_resolved_ip"),
        ("https://127.0.0.1/", "ssrf_resolved_ip"),
        ("https://gateway.internal/", "self"),
        ("http://example.com/", "clear_text"),
        ("TRACE https://example.com/", "method_prohibited"),
        ("CONNECT https://example.com/", "method_prohibited"),
        ("https://example.com/?_method=DELETE", "method_override"),
        ("https://gitlab.com/api/v4/projects/g%2Fp", "allowed"),
    ] {
        let why = ["policy", "why", asked, "--config", "gateway.toml"];
        let now = format!("now  {outcome}: ");
        ends_with(
            &why,
            at,
            0,
            &[&now, "only a run sees the addresses of a name"],
        );
    }
    let other = "https://example.com/api/v4/projects/g%2Fp";
    let why = ["policy", "why", other, "--config", "gateway.toml"];
    ends_with(&why, at, 2, &["cannot be judged"]);
    let decision = "[[decision]]\nname = \"a project\"\nexpect = \"allow\"\n\
                    url = \"https://gitlab.com/api/v4/projects/g%2Fp\"\n";
    fs::write(at.join("all.toml"), decision).unwrap();
    let test = ["policy", "test", "all.toml", "--config", "gateway.toml"];
    ends_with(&test, at, 0, &["1 of 1 decisions"]);
}
