//! What agents meet in `gateway exec`: their profiles, the home that they keep, what flags add, and
//! what the summary says. Run as an ordinary user, whom no system has.

#[path = "../rig/addresses.rs"]
mod addresses;
mod desk;
mod kept_home;
mod kept_logins;
mod logins;
mod mints;
mod own_file;
mod own_presets;
mod permissions;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use desk::{Desk, LOGIN, USER, said};

const REMEMBER: &str = "cd $CLAUDE_CONFIG_DIR; echo trusted > .claude.json.tmp; mv .claude.json.tmp .claude.json; mkdir -p projects; echo asked > projects/log";
const RECALL: &str = "cat ~/.claude/.claude.json ~/.claude/projects/log 2>&1 || true";

#[test]
fn an_agent_finds_its_home_again_in_its_project_and_nowhere_else() {
    let desk = Desk::new();
    let first = desk.agent("one", &[], REMEMBER);
    assert!(
        first.contains("agent    Claude Code, by its profile `claude`"),
        "{first}"
    );
    assert!(
        first.contains("keeps ~/.claude for this project: --fresh-home forgets it"),
        "{first}"
    );
    assert_eq!(desk.agent("one", &["-q"], RECALL), "trusted\nasked\n");
    for (project, flags) in [
        ("two", &["-q"][..]),
        ("one", &["-q", "--profile", "none"]),
        ("one", &["-q", "--profile", "codex"]),
    ] {
        let said = desk.agent(project, flags, RECALL);
        assert!(!said.contains("trusted"), "{project} {flags:?}: {said}");
    }
    assert!(!desk.at("home/.claude/.claude.json").exists());
    let state = desk.at("home/.local/state/gateway/projects");
    assert_eq!(
        fs::metadata(&state).unwrap().permissions().mode() & 0o777,
        0o700
    );
    let look = format!("ls {} 2>&1 || true", state.display());
    assert!(desk.agent("one", &["-q"], &look).contains("No such file"));
    let fresh = desk.agent("one", &["-q", "--fresh-home"], RECALL);
    assert!(!fresh.contains("trusted"), "{fresh}");
    let after = desk.agent("one", &["-q"], RECALL);
    assert!(!after.contains("trusted"), "{after}");
}

#[test]
fn what_looks_like_a_credential_does_not_outlive_the_sandbox_and_a_phantom_does() {
    let desk = Desk::new();
    let leave = format!(
        "echo '{{\"token\":\"{LOGIN}\"}}' > ~/.claude/.credentials.json; printenv GITHUB_TOKEN > ~/.claude/phantom"
    );
    let said = desk.agent("one", &["--secret", "GITHUB_TOKEN"], &leave);
    let told = "not kept ~/.claude/.credentials.json, which holds what looks like a credential";
    assert!(said.contains(told) && !said.contains(LOGIN), "{said}");
    let left = desk.agent("one", &["-q"], "ls -A ~/.claude; cat ~/.claude/phantom");
    assert!(left.contains("phantom\nskills\nghp_"), "{left}");
    assert!(!left.contains("credentials"), "{left}");
}

#[test]
fn what_a_killed_run_left_is_looked_through_before_the_next_one() {
    let desk = Desk::new();
    let tools = desk.at("tools");
    let leave = format!("echo {LOGIN} > ~/.claude/log; sleep 60");
    let flags = [
        "-q",
        "--see",
        tools.to_str().unwrap(),
        "--",
        "claude",
        &leave,
    ];
    let mut running = desk.command("one", &flags).spawn().unwrap();
    let home = desk.at("home/.local/state/gateway/projects");
    let find = || {
        let projects = fs::read_dir(&home).into_iter().flatten().flatten();
        let mut logs = projects.map(|one| one.path().join("home/.claude/log"));
        logs.find(|log| fs::metadata(log).is_ok_and(|found| found.len() > 0))
    };
    let began = Instant::now();
    let log = loop {
        if let Some(log) = find() {
            break log;
        }
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "the agent wrote nothing"
        );
        std::thread::sleep(Duration::from_millis(20));
    };
    // Both the launcher's children and the launcher: nobody is left to look.
    let children = format!("/proc/{0}/task/{0}/children", running.id());
    let children = fs::read_to_string(children).unwrap();
    for child in children
        .split_whitespace()
        .chain([running.id().to_string().as_str()])
    {
        let process = rustix::process::Pid::from_raw(child.parse().unwrap()).unwrap();
        rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
    }
    running.wait().unwrap();
    assert!(log.exists());
    let said = desk.agent("one", &["-q"], "ls -A ~/.claude");
    assert!(!said.contains("log") && !log.exists(), "{said}");
}

#[test]
fn links_that_an_agent_leaves_in_its_home_lead_nowhere() {
    let desk = Desk::new();
    let victim = desk.at("home/victim");
    let plant = format!(
        "cd ~/.claude; rm CLAUDE.md; ln -s {0} CLAUDE.md; rm -rf skills 2>/dev/null || true; ln -sfn {1} agents; ln -s {0} notes",
        victim.display(),
        desk.at("home").display()
    );
    desk.agent("one", &["-q"], &plant);
    desk.write("home/.claude/agents/own", "an agent of the user");
    let seen = desk.agent(
        "one",
        &["-q"],
        "cat ~/.claude/CLAUDE.md ~/.claude/skills/one ~/.claude/agents/own",
    );
    assert_eq!(seen, "as tolda skillan agent of the user");
    assert_eq!(fs::read_to_string(victim).unwrap(), "untouched");
    assert!(!desk.at("home/own").exists());
    assert_eq!(
        fs::read_to_string(desk.at("home/.claude/CLAUDE.md")).unwrap(),
        "as told"
    );
}

#[test]
fn a_state_folder_that_the_agent_could_change_keeps_nothing() {
    let desk = Desk::new();
    let tools = desk.at("tools");
    let flags = ["--see", tools.to_str().unwrap(), "--", "claude", REMEMBER];
    let mut command = desk.command("one", &flags);
    command.env("XDG_STATE_HOME", desk.at("one/state"));
    let said = said(command);
    assert!(!said.contains("keeps ~/.claude"), "{said}");
}

#[test]
fn a_flag_adds_to_what_is_lent_and_takes_nothing_away() {
    let desk = Desk::new();
    desk.write("home/empty.toml", "");
    desk.write(
        "home/guard.cedar",
        "forbid(principal, action, resource) when { context.port == 1 };\n",
    );
    let (config, policy) = (desk.at("home/empty.toml"), desk.at("home/guard.cedar"));
    let show = ["--", "printenv", "GITHUB_TOKEN"];
    for flags in [
        &[][..],
        &["--allow", "a.example.test"],
        &["--preset", "npm"],
        &["--config", config.to_str().unwrap()],
        &["--policy", policy.to_str().unwrap()],
        &["--secret", "OTHER@b.example.test"],
    ] {
        let lent = ["--secret", "GITHUB_TOKEN"];
        let mut command = desk.command("one", &[flags, &lent, &show].concat());
        command.env("OTHER", "some-secret-of-another-service");
        let said = said(command);
        assert!(said.starts_with("ghp_"), "{flags:?}: {said}");
        let told = "GITHUB_TOKEN (phantom) to api.github.com";
        assert!(said.contains(told), "{flags:?}: {said}");
    }
    let without = said(desk.command("one", &["--no-lend", "--", "printenv", "GITHUB_TOKEN"]));
    assert!(
        without.contains("lends    no credential") && !without.contains("ghp_"),
        "{without}"
    );
}

#[test]
fn flags_and_a_profile_permit_what_they_name_whatever_rules_permit() {
    let desk = Desk::new();
    desk.write(
        "home/.config/gh/hosts.yml",
        "github.com:\n    oauth_token: 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\n",
    );
    // As a run that learned leaves it.
    let curl = ["--", "curl", "-s", "https://example.com/"];
    let learned = said(desk.command("one", &[&["--learn", "--yes"][..], &curl].concat()));
    assert!(desk.at("one/gateway.toml").exists(), "{learned}");
    let consent = said(desk.gateway("one", &["project", "allow", "--yes"]));
    assert!(consent.contains("reaches  example.com"), "{consent}");
    assert!(
        consent.contains("an agent that is known by its name, and flags"),
        "{consent}"
    );
    let rules = "permit(principal, action, resource == Gateway::Host::\"example.com\");\n";
    desk.write("home/rules.cedar", rules);
    desk.write("home/rules.toml", "[policy]\nfiles = [\"rules.cedar\"]\n");
    let (policy, config) = (desk.at("home/rules.cedar"), desk.at("home/rules.toml"));
    let files: [&[&str]; 3] = [
        &[],
        &["--policy", policy.to_str().unwrap()],
        &["--config", config.to_str().unwrap()],
    ];
    let ways: [(&[&str], &str, &str); 7] = [
        (
            &["--secret", "GITHUB_TOKEN"],
            "GITHUB_TOKEN (phantom) to",
            "api.github.com",
        ),
        (
            &["--secret", "GITHUB_TOKEN@own.test"],
            "GITHUB_TOKEN (phantom) to own.test",
            "own.test",
        ),
        (
            &["--preset", "github"],
            "GITHUB_TOKEN (phantom) to",
            "api.github.com",
        ),
        (
            &["--login", "gh"],
            "login gh (phantom) to",
            "api.github.com",
        ),
        (
            &["--profile", "gh"],
            "GITHUB_TOKEN (phantom) to",
            "api.github.com",
        ),
        (&["--aws"], "aws (signs) for", "s3.amazonaws.com"),
        (&["--allow", "other.test"], "", "other.test"),
    ];
    for file in files {
        for (flags, lends, host) in ways {
            let ask = format!("curl -sS -X POST https://{host}/");
            let command = ["--", "sh", "-c", &ask];
            let mut run = desk.command("one", &[file, flags, &command].concat());
            run.env("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE");
            run.env(
                "AWS_SECRET_ACCESS_KEY",
                "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",
            );
            let told = said(run);
            assert!(told.contains(lends), "{file:?} {flags:?}: {told}");
            let is_aws = flags == ["--aws"];
            assert!(
                is_aws || told.contains("unresolved"),
                "{file:?} {flags:?}: {told}"
            );
        }
        // What nobody names is not lent, and a rule's own `forbid` holds.
        let told = said(desk.command(
            "one",
            &[file, &["--", "curl", "-s", "https://api.github.com/"]].concat(),
        ));
        assert!(told.contains("policy_default_deny"), "{file:?}: {told}");
    }
    desk.write(
        "home/forbid.cedar",
        "forbid(principal, action, resource == Gateway::Host::\"api.github.com\");\n",
    );
    let forbid = desk.at("home/forbid.cedar").display().to_string();
    let flags = [
        "--profile",
        "gh",
        "--policy",
        &forbid,
        "--",
        "curl",
        "-s",
        "https://api.github.com/",
    ];
    let told = said(desk.command("one", &flags));
    assert!(told.contains("policy_forbids"), "{told}");
}

#[test]
fn policies_decide_about_the_hosts_of_a_files_presets_and_a_flag_permits_them() {
    let desk = Desk::bare();
    let rules = "permit(principal, action, resource == Gateway::Host::\"example.com\");\n";
    desk.write("home/rules.cedar", rules);
    let presets = "presets = [\"github\", \"npm\"]\nallow = [\"own.test\"]\n";
    let with_files = format!("[policy]\nfiles = [\"rules.cedar\"]\n{presets}");
    desk.write("home/files.toml", &with_files);
    let with_rules = format!("[policy]\nrules = '''\n{rules}'''\n{presets}");
    desk.write("home/rules.toml", &with_rules);
    desk.write("home/none.toml", &format!("[policy]\n{presets}"));
    let of_presets = [
        "codeload.github.com",
        "registry.npmjs.org",
        "api.github.com",
    ];
    let denied = |name: &str, flags: &[&str], host: &str| {
        let file = desk.at(name).display().to_string();
        let url = format!("https://{host}/");
        let ask = ["--config", &file, "--", "curl", "-sS", &url];
        let told = said(desk.command("one", &[flags, &ask].concat()));
        let is_denied = told.contains("policy_default_deny");
        // Its name or its address: policy allowed it, and nothing left the machine.
        let refused = format!("refused  {host}: ");
        assert!(
            is_denied || told.contains(&refused),
            "{name} {host}: {told}"
        );
        is_denied
    };
    for host in of_presets {
        assert!(denied("home/files.toml", &[], host), "{host}");
        assert!(denied("home/rules.toml", &[], host), "{host}");
        assert!(!denied("home/none.toml", &[], host), "{host}");
        let flags = ["--preset", "github", "--preset", "npm"];
        assert!(!denied("home/files.toml", &flags, host), "{host}");
    }
    assert!(!denied("home/files.toml", &[], "own.test"));
}

#[test]
fn a_consent_names_what_stops_and_a_login_that_a_rule_lends() {
    let desk = Desk::new();
    let rule = "permit(principal, action == Gateway::Action::\"lend\", resource == Gateway::Credential::\"claude\");\n\
                permit(principal, action, resource == Gateway::Host::\"api.anthropic.com\");";
    desk.write(
        "one/gateway.toml",
        &format!("[policy]\nrules = '''\n{rule}\n'''\n"),
    );
    let project = |arguments: &[&str]| said(desk.gateway("one", arguments));
    project(&["project", "secrets", "--lend", "GITHUB_TOKEN"]);
    let told = project(&["project", "allow", "--yes"]);
    assert!(
        told.contains("login claude to https://api.anthropic.com, by `--login claude`"),
        "{told}"
    );
    assert!(
        told.contains("stops    github: no rule lends it any more"),
        "{told}"
    );
}

#[test]
fn a_folder_shown_from_the_users_own_home_is_not_kept_beside_it() {
    let desk = Desk::new();
    let show = "cat ~/.claude/CLAUDE.md; echo mine > ~/.claude/own";
    let first = desk.agent("one", &["-q", "--see-home", ".claude"], show);
    assert!(first.contains("as told"), "{first}");
    let second = desk.agent("one", &["-q"], "ls ~/.claude");
    assert!(!second.contains("own"), "{second}");
}

#[test]
fn what_lies_in_the_kept_home_stops_no_later_start() {
    let desk = Desk::new();
    let script = "cd ~/.claude; rm -f CLAUDE.md; mkdir CLAUDE.md; truncate -s 1T huge; echo kept > small; \
                  d=.; for i in $(seq 100); do d=$d/x; done; mkdir -p $d";
    desk.agent("one", &["-q"], script);
    // Too deep: all of it is forgotten.
    let second = desk.agent(
        "one",
        &["-q"],
        "ls ~/.claude; echo kept > ~/.claude/small; truncate -s 1T ~/.claude/huge",
    );
    assert!(
        !second.contains("small") && !second.contains("huge"),
        "{second}"
    );
    let third = desk.agent("one", &["-q"], "ls ~/.claude");
    assert!(
        third.contains("small") && !third.contains("huge"),
        "{third}"
    );
}

#[test]
fn a_program_of_the_project_has_no_profile_by_its_name() {
    let desk = Desk::new();
    desk.write("one/claude", "#!/bin/sh\necho \"$CLAUDE_CONFIG_DIR\"\n");
    let program = desk.at("one/claude");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    for command in ["./claude", "claude"] {
        let mut exec = desk.command("one", &["-q", "--", command]);
        let path = std::env::var("PATH").unwrap();
        exec.env("PATH", format!("{}:{path}", desk.at("one").display()));
        let said = said(exec);
        assert!(!said.contains(".claude"), "{command}: {said}");
    }
}

#[test]
fn without_lending_a_profile_lends_nothing_either() {
    let desk = Desk::new();
    let flags = [
        "--no-lend",
        "--profile",
        "gh",
        "--",
        "printenv",
        "GITHUB_TOKEN",
    ];
    let said = said(desk.command("one", &flags));
    assert!(
        said.contains("lends    no credential") && !said.contains("ghp_"),
        "{said}"
    );
    assert!(said.contains("api.github.com"), "{said}");
}

#[test]
fn a_configured_credential_stays_alone_at_its_host() {
    let desk = Desk::new();
    let text = "[[credential]]\nname = \"mine\"\nfrom = \"env:MINE\"\norigins = [\"https://api.github.com\"]\nenv = [\"MINE\"]\n";
    desk.write("home/gateway.toml", text);
    let config = desk.at("home/gateway.toml");
    let flags = [
        "--config",
        config.to_str().unwrap(),
        "--",
        "printenv",
        "GITHUB_TOKEN",
    ];
    let mut command = desk.command("one", &flags);
    command.env("MINE", "some-secret-of-another-kind");
    let said = said(command);
    assert!(
        said.contains("MINE (phantom)") && !said.contains("ghp_"),
        "{said}"
    );
}

#[test]
fn a_preset_allows_its_hosts_and_says_what_it_would_lend() {
    let desk = Desk::new();
    let output = desk
        .command("one", &["--preset", "github", "--", "true"])
        .output();
    let said = String::from_utf8(output.unwrap().stderr).unwrap();
    let unset = "not lent none of GH_TOKEN, GITHUB_TOKEN, GITHUB_PERSONAL_ACCESS_TOKEN is set; `--login gh` uses a login instead";
    assert!(said.contains(unset), "{said}");
    assert!(
        said.contains("codeload.github.com, github.com, raw.githubusercontent.com"),
        "{said}"
    );
}

#[test]
fn a_companys_ca_that_the_shell_names_is_told_with_the_lines_that_use_it() {
    let desk = Desk::new();
    let ca = desk.at("company.pem");
    std::fs::write(&ca, "").unwrap();
    let run = |name: &str, value: &str| {
        let mut command = desk.command("one", &["--allow", "a.test", "--", "true"]);
        command.env(name, value);
        said(command)
    };
    let ca = ca.to_str().unwrap();
    let lines =
        format!("is set and not used: `[[origin]]`, `match = \"*\"`, `roots = [\"{ca}\"]` in ");
    for name in ["SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE"] {
        let told = run(name, ca);
        assert!(told.contains(&format!("{name} {lines}")), "{told}");
    }
    // What is the system's own is trusted in any case.
    let told = run("SSL_CERT_FILE", "/etc/ssl/certs");
    assert!(!told.contains("is set and not used"), "{told}");
}

/// Servers of one's own machine are often given a word for a key.
#[test]
fn a_variable_that_holds_no_credential_is_not_lent_and_stops_nothing() {
    let desk = Desk::new();
    let flags = ["--secret", "GITHUB_TOKEN", "--", "printenv", "GITHUB_TOKEN"];
    let mut command = desk.command("one", &flags);
    command.env("OPENAI_API_KEY", "EMPTY");
    command.env("AWS_ACCESS_KEY_ID", "test");
    command.env("AWS_SECRET_ACCESS_KEY", "test");
    command.env("GITHUB_TOKEN", "a-token-of-some-length-0123456789");
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        output.status.success() && !output.stdout.is_empty(),
        "{said}"
    );
    assert!(
        said.contains("not lent AWS_ACCESS_KEY_ID: the secret has fewer than 8 characters"),
        "{said}"
    );
    assert!(
        said.contains("OPENAI_API_KEY: the secret has fewer"),
        "{said}"
    );
}

#[test]
fn what_is_named_and_holds_no_credential_is_told_with_its_variable() {
    let desk = Desk::new();
    for value in [None, Some("short")] {
        let mut command = desk.command("one", &["--secret", "FOO@api.example.test", "--", "true"]);
        command.envs(value.map(|value| ("FOO", value)));
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(125), "{said}");
        let told = match value {
            None => "next: set the variable `FOO` to the credential alone, and start anew",
            Some(_) => "fewer than 8 characters; use a longer one",
        };
        assert!(said.contains(told), "{said}");
        assert_eq!(said.contains("set the variable"), value.is_none(), "{said}");
    }
}

#[test]
fn the_summary_says_what_policies_allow_and_what_the_project_shows() {
    let desk = Desk::new();
    let permit = "permit(principal, action, resource == Gateway::Host::\"api.example.test\");\n";
    desk.write("home/own.cedar", permit);
    desk.write("one/.env", "KEY=sk_live_0123456789abcdefghij\n");
    desk.write("one/.git/config", "");
    let _socket = std::os::unix::net::UnixListener::bind(desk.at("one/dev.sock")).unwrap();
    let policy = desk.at("home/own.cedar");
    let flags = [
        "--no-lend",
        "--policy",
        policy.to_str().unwrap(),
        "--allow",
        "localhost:5432",
        "--allow",
        "github.com:22",
        "--allow",
        "10.0.0.1",
        "--hide",
        "/nosuch",
        "--",
        "true",
    ];
    let said = said(desk.command("one", &flags));
    for part in [
        "network  10.0.0.1, api.example.test, github.com:22, localhost:5432\n",
        "git's settings and hooks read-only: --writable-git",
        "holds what looks like a secret, and the command can read it",
        "/one/dev.sock, which the command can reach",
        "--hide /nosuch: there is nothing to hide",
        "--allow localhost:5432: in the sandbox that is the sandbox itself; `--host-port`",
        "--allow 10.0.0.1:443: The host has a private, loopback or reserved address. It needs",
        "--allow github.com:22: SSH does not pass",
    ] {
        assert!(said.contains(part), "{part}\n{said}");
    }
    assert!(
        !said.contains("sk_live") && !said.contains("user     uid"),
        "{said}"
    );
    let of_a_group = r#"permit(principal in Gateway::Group::"agents", action in Gateway::Action::"any",
        resource == Gateway::Host::"group.test");"#;
    desk.write("home/group.cedar", of_a_group);
    let policy = desk.at("home/group.cedar");
    let in_it = [
        "--policy",
        policy.to_str().unwrap(),
        "--group",
        "agents",
        "--",
        "true",
    ];
    let member = self::said(desk.command("one", &in_it));
    assert!(member.contains("network  group.test\n"), "{member}");
    let without = [&in_it[..2], &in_it[4..]].concat();
    let stranger = self::said(desk.command("one", &without));
    assert!(
        stranger.contains("network  nothing: the policies are about other"),
        "{stranger}"
    );
    let nothing = desk
        .command("two", &["--no-lend", "--", "true"])
        .output()
        .unwrap();
    let nothing = String::from_utf8(nothing.stderr).unwrap();
    assert!(
        nothing.lines().count() <= 4 && !nothing.contains("careful"),
        "{nothing}"
    );
}

#[test]
fn a_command_ends_also_where_its_starter_ignores_the_end_of_children() {
    let desk = Desk::bare();
    let ended = Command::new("timeout")
        .args(["20", "env", "--ignore-signal=CHLD"])
        .args([
            env!("CARGO_BIN_EXE_gateway"),
            "exec",
            "-q",
            "--",
            "sh",
            "-c",
            "exit 3",
        ])
        .current_dir(desk.at("one"))
        .env_clear()
        .env("HOME", desk.at("home"))
        .env("PATH", "/usr/bin:/bin")
        .stdin(Stdio::null())
        .uid(USER)
        .gid(USER)
        .output()
        .unwrap();
    assert_eq!(ended.status.code(), Some(3), "{ended:?}");
}

#[test]
fn what_is_wrong_with_the_line_is_told_with_one_cause_and_one_remedy() {
    let desk = Desk::new();
    for (flags, code, parts) in [
        (
            &["--write", "/etc", "--", "true"][..],
            2,
            &["`/etc` belongs to the system"][..],
        ),
        (
            &["--see", "/nosuch", "--", "true"],
            2,
            &["/nosuch", "No such file"],
        ),
        (&["--alow", "x", "true"], 2, &["--allow"]),
        (
            &["--preset", "github,npm", "--", "true"],
            2,
            &["name each by its own flag"],
        ),
        (
            &["--preset", "./x.toml", "--", "true"],
            2,
            &["x.toml", "the file cannot be read"],
        ),
        (
            &["--profile", "claud", "--", "true"],
            2,
            &["did you mean `claude`?"],
        ),
        (
            &["--secret", "UNSET@a.example.test", "--", "true"],
            125,
            &["why: credential `UNSET`", "next: "],
        ),
        (&["--", "nosuchprogram"], 127, &["command not found"]),
        (&["--", "/etc/passwd"], 126, &["cannot be run"]),
    ] {
        let output = desk.command("one", flags).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{flags:?}: {said}");
        for part in parts {
            assert!(said.contains(part), "{flags:?}: {part}\n{said}");
        }
        let colons = said.lines().filter(|line| line.matches(": ").count() > 4);
        assert_eq!(colons.count(), 0, "{flags:?}: {said}");
    }
}

#[test]
fn a_scoped_package_passes_by_the_preset_of_npm_alone() {
    let desk = Desk::new();
    desk.certify("packages.test");
    let port = addresses::free().port();
    let mut server = Command::new("python3")
        .args(["-c", REGISTRY, &port.to_string()])
        .current_dir(desk.folder.path())
        .spawn()
        .unwrap();
    let began = Instant::now();
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(began.elapsed() < Duration::from_secs(30), "no registry");
        std::thread::sleep(Duration::from_millis(20));
    }
    desk.write("home/.npmrc", "registry=https://packages.test/\n");
    let origin = format!(
        "[[origin]]\nmatch = \"https://packages.test\"\nroots = [\"{}\"]\nreplace_system_roots = true\nconnect = \"127.0.0.1:{port}\"\n",
        desk.at("origin.pem").display()
    );
    desk.write("home/gateway.toml", &origin);
    let config = desk.at("home/gateway.toml");
    let get = [
        "--",
        "curl",
        "-sS",
        "--path-as-is",
        "https://packages.test/@types%2fnode",
    ];
    let common = ["-q", "--config", config.to_str().unwrap()];
    let with = said(desk.command("one", &[&common, &["--preset", "npm"][..], &get].concat()));
    // However the user's registry is allowed; but policies may judge its paths.
    let allowed = ["--allow", "packages.test"];
    let allowed = said(desk.command("one", &[&common, &allowed[..], &get].concat()));
    let permit = "permit(principal, action, resource == Gateway::Host::\"packages.test\");\n";
    desk.write("home/own.cedar", permit);
    let policy = desk.at("home/own.cedar");
    let judged = ["--policy", policy.to_str().unwrap()];
    let judged = said(desk.command("one", &[&common, &judged[..], &get].concat()));
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(with.starts_with("/@types%2Fnode"), "{with}");
    assert!(allowed.starts_with("/@types%2Fnode"), "{allowed}");
    assert!(judged.contains("path"), "{judged}");
}

#[test]
fn a_slash_that_a_services_own_library_escapes_is_data() {
    let desk = Desk::new();
    // As the libraries of the services write them, one for each preset that has such paths.
    let services = [
        (
            "bitbucket",
            "https://api.bitbucket.org/2.0/repositories/w/r/src/a%2Fb/x",
        ),
        (
            "cloudflare",
            "https://api.cloudflare.com/client/v4/accounts/a/r2/buckets/b/objects/a%2Fb",
        ),
        (
            "github",
            "https://api.github.com/repos/o/r/git/ref/heads%2Fmain",
        ),
        (
            "gitlab",
            "https://gitlab.com/api/v4/projects/group%2Fproject",
        ),
        (
            "google",
            "https://storage.googleapis.com/storage/v1/b/b/o/a%2Fb",
        ),
        (
            "huggingface",
            "https://huggingface.co/api/models/o/r/tree/refs%2Fpr%2F1",
        ),
        (
            "netlify",
            "https://api.netlify.com/api/v1/sites/s/files/a%2Fb",
        ),
        ("npm", "https://registry.npmjs.org/@types%2Fnode"),
        (
            "sentry",
            "https://sentry.io/api/0/projects/o/p/releases/a%2Fb/",
        ),
    ];
    let presets = Path::new(env!("CARGO_MANIFEST_DIR")).join("policies/services");
    let has_slashes = |path: &PathBuf| {
        let text = fs::read_to_string(path).unwrap();
        text.contains("encoded_slash = ")
    };
    let presets = fs::read_dir(presets)
        .unwrap()
        .map(|one| one.unwrap().path());
    let known = presets.filter(has_slashes);
    let known = known.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned());
    let mut known: Vec<String> = known.collect();
    known.sort();
    assert_eq!(known, services.map(|(name, _)| name));
    // Nothing answers there: what passes is refused for that.
    let hosts = services.map(|(_, url)| url.split('/').nth(2).unwrap());
    let origins = hosts
        .map(|host| format!("[[origin]]\nmatch = \"https://{host}\"\nconnect = \"127.0.0.1:1\"\n"));
    desk.write("home/gateway.toml", &origins.concat());
    let config = desk.at("home/gateway.toml");
    let ask = |flags: &[&str], script: &str| {
        let common = ["-q", "--config", config.to_str().unwrap()];
        let run = ["--", "sh", "-c", script];
        said(desk.command("one", &[&common, flags, &run].concat()))
    };
    for (name, url) in services {
        let host = url.split('/').nth(2).unwrap();
        let kept = ask(
            &["--preset", name, "--allow", host],
            &format!("curl -sS --path-as-is '{url}'"),
        );
        let is_kept = kept.contains("unreachable") && !kept.contains("[path");
        assert!(is_kept, "{name}: {kept}");
    }
    // Where pushes are known by their paths, no other spelling of them passes.
    let push = "curl -sS --path-as-is https://github.com/o%2Fr/git-receive-pack";
    let pushed = ask(&["--preset", "github"], push);
    assert!(pushed.contains("\"reason\":\"path\""), "{pushed}");
    // What is data there no rule says: a setting of the origin does, which is named.
    let id = pushed.split_once("\"request_id\":\"").unwrap().1;
    let allow = said(desk.gateway("one", &["allow", &id[..20], "--yes"]));
    for part in [
        "no rule would allow it",
        "refused for `path`",
        "encoded_slash = true",
    ] {
        assert!(allow.contains(part), "{allow}");
    }
}

#[test]
fn registries_are_named_by_files_and_no_program_is_asked() {
    let desk = Desk::new();
    let asked = desk.at("home/asked");
    let script = format!("#!/bin/sh\necho x >> {}\n", asked.display());
    for name in ["npm", "python3", "python", "pip"] {
        desk.write(&format!("tools/{name}"), &script);
    }
    let with = |flags: &[&str]| {
        let mut command = desk.command("one", &[flags, &["--", "true"]].concat());
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), said)
    };
    let (code, said) = with(&["--preset", "npm", "--preset", "pypi"]);
    assert_eq!((code, asked.exists()), (Some(0), false), "{said}");
    for host in ["registry.npmjs.org", "files.pythonhosted.org"] {
        assert!(said.contains(host), "{said}");
    }
    desk.write("home/.npmrc", "\n@corp:registry=nonsense\n");
    let (code, said) = with(&["--preset", "npm"]);
    assert_eq!(code, Some(2), "{said}");
    for part in [".npmrc`, line 2: ", "next: mend it"] {
        assert!(said.contains(part), "{said}");
    }
    assert_eq!(with(&[]).0, Some(0));
    // Where the command could write it, the file is not the user's word.
    desk.write("one/dotfiles/npmrc", "registry=https://evil.test/\n");
    fs::remove_file(desk.at("home/.npmrc")).unwrap();
    symlink(desk.at("one/dotfiles/npmrc"), desk.at("home/.npmrc")).unwrap();
    let (code, said) = with(&["--preset", "npm"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("a command in a sandbox could have written"),
        "{said}"
    );
}

const REGISTRY: &str = "
import http.server, ssl, sys
class Registry(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header('content-length', str(len(self.path)))
        self.end_headers()
        self.wfile.write(self.path.encode())
server = http.server.ThreadingHTTPServer(('127.0.0.1', int(sys.argv[1])), Registry)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain('leaf.pem', 'key.pem')
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
";

#[test]
fn a_home_that_leads_elsewhere_is_not_written_through() {
    let desk = Desk::new();
    // The user's own link: what the agent keeps does not go where it leads.
    fs::remove_dir_all(desk.at("home/.claude")).unwrap();
    symlink(desk.at("two"), desk.at("home/.claude")).unwrap();
    desk.agent("one", &["-q"], REMEMBER);
    assert!(!desk.at("two/.claude.json").exists());
    assert_eq!(desk.agent("one", &["-q"], RECALL), "trusted\nasked\n");
}

#[test]
fn git_takes_the_lent_token_over_https_and_turns_ssh_remotes_into_it() {
    let desk = Desk::new();
    let ask = "git ls-remote --get-url git@github.com:o/r.git; git ls-remote --get-url ssh://git@github.com/o/r; \
               printf 'protocol=https\\nhost=github.com\\n\\n' | git credential fill; printenv GITHUB_TOKEN";
    let lent = ["-q", "--secret", "GITHUB_TOKEN", "--", "sh", "-c", ask];
    let told = said(desk.command("one", &lent));
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(
        &lines[..2],
        ["https://github.com/o/r.git", "https://github.com/o/r"],
        "{told}"
    );
    let password = lines.iter().find_map(|line| line.strip_prefix("password="));
    assert!(lines.contains(&"username=x-access-token"), "{told}");
    assert!(
        password.is_some_and(|one| one.starts_with("ghp_") && lines.contains(&one)),
        "{told}"
    );
    // Where nothing is allowed, git meets the refusal that says what would allow it.
    let ask = "git ls-remote git@gitlab.com:o/r.git";
    let told = said(desk.command("one", &["-q", "--no-lend", "--", "sh", "-c", ask]));
    assert!(told.contains("`gateway allow gitlab.com`"), "{told}");
}

#[test]
fn a_value_of_which_a_part_is_secret_is_not_lent_as_a_whole() {
    let desk = Desk::new();
    for value in [
        "https://user:C4n4ryC4n4ry@index.example.test/simple",
        "redis://:C4n4ryC4n4ry@cache.example.test:6379/0",
        r#"{"auths":{"registry.example.test":{"auth":"QzRuNHJ5QzRuNHJ5"}}}"#,
    ] {
        let flags = ["--secret", "COMPOSED@index.example.test", "--", "true"];
        let mut command = desk.command("one", &flags);
        let output = command.env("COMPOSED", value).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(125), "{value}: {told}");
        let why = "the secret is a URL or JSON, of which only a part is secret: put that part";
        assert!(told.contains(why) && !told.contains("C4n4ry"), "{told}");
    }
    // As WordPress shows an application password, for reading: it takes it without the blanks.
    let flags = ["--secret", "COMPOSED@wp.example.test", "--", "true"];
    let mut command = desk.command("one", &flags);
    let spaced = command.env("COMPOSED", "C4n4 ryC4 n4ry C4n4 ryC4 n4ry");
    let output = spaced.output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(125), "{told}");
    let why = "an application password without the blanks that it is shown with";
    assert!(told.contains(why) && !told.contains("ryC4"), "{told}");
}

#[test]
fn the_short_line_of_the_summary_says_no_more_than_there_is_and_what_is_missing_each_time() {
    let desk = Desk::new();
    desk.write("tools/opencode", "#!/bin/sh\nexit 0\n");
    let tools = desk.at("tools").display().to_string();
    let run = |flags: &[&str]| {
        let run = ["exec", "--see", &tools];
        let mut command = desk.gateway("one", &[&run, flags].concat());
        command.env("MY_OWN_TOKEN", "some-secret-of-a-service-0123");
        said(command)
    };
    let first = run(&["--", "opencode"]);
    let lends = "not passed: MY_OWN_TOKEN; --secret MY_OWN_TOKEN@HOST lends a phantom of it\n";
    assert!(
        first.contains(lends) && !first.contains("--pass-env"),
        "{first}"
    );
    for _ in 0..2 {
        let told = run(&["--", "opencode"]);
        let missing =
            "lends nothing yet (login opencode-anthropic, once the command has logged in)";
        assert!(told.contains(missing), "{told}");
    }
    // The keys of its model providers are lent where the shell has them, and no others.
    let mut command = desk.gateway("one", &["exec", "--see", &tools, "--", "opencode"]);
    command.env(
        "OPENROUTER_API_KEY",
        "sk-or-v1-0bT5GwkNqL7uXcR2eYh8SdVfJm4aPz3iKo61",
    );
    let told = said(command);
    println!("{told}");
    assert!(
        told.contains("OPENROUTER_API_KEY (phantom) to openrouter.ai"),
        "{told}"
    );
    assert!(!told.contains("groq"), "{told}");
    // A rule that is kept is taken back by the command that lists it.
    let rule = ["allow", "--yes", "example.com"];
    let kept = said(desk.gateway("one", &rule));
    assert!(kept.contains("kept for commands in"), "{kept}");
    let told = run(&["--", "true"]);
    assert!(
        told.contains("`gateway grants remove N` takes it back"),
        "{told}"
    );
    let removed = said(desk.gateway("one", &["grants", "remove", "1"]));
    assert!(!run(&["--", "true"]).contains("example.com"), "{removed}");
    let none = said(desk.gateway("one", &["login", "list"]));
    assert!(none.contains("no login is kept"), "{none}");
    // Below the project's root, it is the project that is named.
    for part in ["HEAD", "config", "objects/info/x", "refs/heads/x"] {
        desk.write(&format!("one/.git/{part}"), "");
    }
    desk.write("one/.git/HEAD", "ref: refs/heads/main\n");
    desk.write("one/below/file", "");
    let below = || said(desk.gateway("one/below", &["exec", "--", "true"]));
    let told = [below(), below()].concat();
    let project = format!("{}, in below; -v tells all", desk.at("one").display());
    assert!(told.contains(&project), "{told}");
}

#[test]
fn what_git_and_package_managers_read_in_the_project_is_named_where_it_holds_a_credential() {
    let desk = Desk::new();
    desk.write(
        "one/.npmrc",
        "//registry.npmjs.org/:_authToken=npm_Ab0123456789abcdefghijABCDEFGH\n",
    );
    desk.write("one/.git/HEAD", "ref: refs/heads/main\n");
    // As actions/checkout leaves it.
    let header = "[http \"https://github.com/\"]\n\textraheader = AUTHORIZATION: basic eC1hY2Nlc3MtdG9rZW46Z2hz\n";
    desk.write(
        "one/.git/config",
        &format!("[core]\n\tbare = false\n{header}"),
    );
    for _ in 0..2 {
        let told = said(desk.command("one", &["--", "true"]));
        let line = told
            .lines()
            .find(|line| line.contains("holds what looks like a secret"));
        let line = line.unwrap_or_else(|| panic!("{told}"));
        assert!(
            line.contains("/one/.npmrc (`//registry.npmjs.org/:_authToken`)")
                && line.contains("/one/.git/config (`extraheader`)"),
            "{told}"
        );
        assert!(
            !told.contains("npm_Ab") && !told.contains("eC1hY2"),
            "{told}"
        );
    }
    // In a URL of git's, a password, a key: each is named, and none is shown.
    desk.write("two/.git/HEAD", "ref: refs/heads/main\n");
    let url = "https://me:hunter22hunter22@github.com/x/y.git";
    let remote = format!("[core]\n\tbare = false\n[remote \"origin\"]\n\turl = {url}\n");
    desk.write("two/.git/config", &remote);
    desk.write("two/.netrc", "machine a.test login me password hunter22\n");
    desk.write(
        "two/.pypirc",
        "[pypi]\nusername = me\npassword = hunter22\n",
    );
    desk.write("two/tls.key", "-----BEGIN PRIVATE KEY-----\nMIGHhunter22\n");
    let told = said(desk.command("two", &["--", "true"]));
    let mut lines = told.lines();
    let line = lines.find(|line| line.contains("holds what looks like a secret"));
    let line = line.unwrap_or_else(|| panic!("{told}"));
    for file in [
        "/two/.git/config (`url`)",
        "/two/.netrc",
        "/two/.pypirc (`password`)",
        "/two/tls.key",
    ] {
        assert!(line.contains(file), "{file}: {told}");
    }
    assert!(!told.contains("hunter22"), "{told}");
}

#[test]
fn an_agents_own_sandbox_is_told_by_its_name() {
    let desk = Desk::new();
    desk.write("tools/codex", "#!/bin/sh\nexec true\n");
    let tools = desk.at("tools").display().to_string();
    let told = |flags: &[&str], program: &str| {
        let shown = [flags, &["--see", &tools, "--", program]].concat();
        let told = said(desk.command("one", &shown));
        let line = told.lines().find(|line| line.contains("careful"));
        line.unwrap_or_default().to_owned()
    };
    let line = told(&[], "codex");
    for wanted in [
        "codex: its own sandbox",
        "`--allow-userns`",
        "danger-full-access",
    ] {
        assert!(line.contains(wanted), "{line}");
    }
    assert_eq!(told(&["--allow-userns"], "codex"), "");
    assert_eq!(told(&[], "true"), "");
}

#[test]
fn what_the_gateway_itself_could_not_do_is_told_beside_a_command_as_a_line_like_all_others() {
    let desk = Desk::new();
    desk.write(
        "home/dead.toml",
        "[[export]]\nurl = \"http://127.0.0.1:1\"\n",
    );
    let config = desk.at("home/dead.toml").display().to_string();
    let told = said(desk.command("one", &["-q", "--config", &config, "--", "true"]));
    let line = "gateway: records were not exported before the end server=127.0.0.1:1";
    assert!(told.contains(line), "{told}");
    assert!(
        !["ERROR", "gateway::", "gateway_"]
            .iter()
            .any(|word| told.contains(word)),
        "{told}"
    );
}

#[test]
fn the_variables_of_agents_and_of_bedrock_are_lent_as_phantoms_by_their_own_presets() {
    let desk = Desk::new();
    for (variable, value, host) in [
        (
            "CURSOR_API_KEY",
            "key_0bT5GwkNqL7uXcR2eYh8SdVfJm4aPz3iKo610bT5GwkNqL7uXcR2eYh8SdVfJm4a",
            "api.cursor.com",
        ),
        (
            "AWS_BEARER_TOKEN_BEDROCK",
            "ABSKQmVkcm9ja0FQSUtleS0bT5GwkNqL7uXcR2eYh8SdVfJm4aPz3iKo61",
            "bedrock-runtime.us-east-1.amazonaws.com",
        ),
    ] {
        let show = ["--secret", variable, "--", "printenv", variable];
        let mut command = desk.command("one", &show);
        command.env(variable, value);
        let told = said(command);
        let lends = told
            .lines()
            .find(|line| line.contains("lends"))
            .unwrap_or_default();
        assert!(
            lends.contains(&format!("{variable} (phantom) to")),
            "{told}"
        );
        assert!(told.contains(host) && !told.contains(value), "{told}");
        // Nobody asked for it: it is no plain variable either, and the offer is a phantom.
        let mut command = desk.gateway("one", &["exec", "--", "printenv"]);
        command.env(variable, value);
        let told = said(command);
        assert!(
            !told.contains(value) && !told.contains("--pass-env"),
            "{told}"
        );
        assert!(told.contains(variable), "{told}");
    }
}

/// Beside a command and of `serve`: the cause names the place, and no event of the program's own
/// stands before it.
#[test]
fn a_secret_that_cannot_be_read_is_told_once_and_by_its_place() {
    let desk = Desk::new();
    let vault = "[vault]\naddresses = [\"https://127.0.0.1:9\"]\nlogin = \"token\"\ntoken = \"env:NOT_SET_TOKEN\"\n";
    desk.write("home/unfit", "two words of a secret");
    let unfit = format!("file:{}", desk.at("home/unfit").display());
    for (sections, from, names) in [
        ("", "env:NOT_SET", "`env:NOT_SET`"),
        ("", "keyring:gateway/one", "`keyring:gateway/one`"),
        ("", &*unfit, "the secret has a line break, space"),
        (vault, "vault:kv/app#one", "`env:NOT_SET_TOKEN`"),
    ] {
        let credential = format!(
            "{sections}[[credential]]\nname = \"one\"\nfrom = \"{from}\"\norigins = [\"https://one.test\"]\nenv = [\"ONE\"]\n"
        );
        desk.write("home/exec.toml", &credential);
        let listener = "[phantoms]\nenv_file = \"one.env\"\n[[listener]]\nkind = \"proxy\"\naddress = \"127.0.0.1:0\"\n";
        desk.write("home/serve.toml", &format!("{credential}{listener}"));
        let [exec, serve] = ["exec", "serve"].map(|name| {
            let file = desk.at(&format!("home/{name}.toml"));
            file.display().to_string()
        });
        for arguments in [
            &["exec", "-q", "--config", &exec, "--", "true"][..],
            &["serve", "--config", &serve],
        ] {
            let output = desk.gateway("one", arguments).output().unwrap();
            let told = String::from_utf8(output.stderr).unwrap();
            assert!(!output.status.success(), "{told}");
            let causes: Vec<&str> = told
                .lines()
                .filter(|line| line.contains("  why: "))
                .collect();
            assert!(causes.len() == 1 && causes[0].contains(names), "{told}");
            assert_eq!(
                told.matches("credential `one` cannot be had").count(),
                1,
                "{told}"
            );
            let is_event = told.contains("WARN") || told.contains("could not be read");
            assert!(!is_event && !told.contains("two words"), "{told}");
        }
    }
}
