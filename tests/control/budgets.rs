//! Budgets of a running gateway: what is shown, added, refused, and kept over restarts and kills.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::program::{Program, command};
use crate::sandbox::{exec, folder, user_command};

const BUDGETS: &str = r#"
[[budget]]
name = "models"
unit = "usd"
most = "5.00"
per = "month"
[[budget]]
name = "calls"
unit = "requests"
most = 1000
per = "month"
by = "host"
[[budget]]
name = "run"
unit = "tokens"
most = 10
per = "session"
"#;

const STATE: &str = "[state]\npath = \"state/state.db\"\n";

fn start() -> Program {
    Program::start(&format!("{BUDGETS}{STATE}"))
}

fn rows(program: &Program) -> Vec<Value> {
    let mut all = program.json(&["budgets"]);
    all["budgets"].as_array_mut().unwrap().drain(..).collect()
}

/// Takes of a budget as a gateway does, from outside: what another process with this state holds.
fn take(program: &Program, name: &str, key: &str, amount: i64) {
    let state = program.path("state/state.db");
    let state = rusqlite::Connection::open(state).unwrap();
    let changed = state.execute(
        "UPDATE budget SET taken = taken + ?3 WHERE name = ?1 AND key = ?2",
        rusqlite::params![name, key, amount],
    );
    assert_eq!(changed, Ok(1));
}

#[test]
fn a_budget_is_shown_added_to_and_recorded_and_outlasts_kills_stops_and_reloads() {
    let mut program = start();
    // Only what all share has a row before the first request.
    let first = rows(&program);
    assert_eq!(first.len(), 1, "{first:?}");
    assert_eq!(
        (&first[0]["name"], &first[0]["left"]),
        (&"models".into(), &5_000_000_000_u64.into())
    );
    assert!(
        first[0]["begins_anew"]
            .as_str()
            .unwrap()
            .ends_with("-01T00:00:00Z")
    );
    let (code, said) = program.gateway(&["budgets", "add", "models", "10usd"]);
    assert_eq!(code, 0, "{said}");
    assert!(
        said.starts_with(
            "models  0.00 USD of 15.00 USD spent, 0.00 USD reserved, 15.00 USD left, anew "
        ),
        "{said}"
    );
    let acts = program.records("act");
    let last = acts.last().unwrap();
    assert_eq!(
        (&last["name"], &last["decision"]),
        (&"budget.add".into(), &"allow".into()),
        "{last}"
    );
    assert_eq!(last["subject"], "models 10.00 USD");
    program.json(&["budgets", "add", "calls", "500", "--of", "api.test"]);
    take(&program, "models", "", 1_000_000_000);
    take(&program, "calls", "api.test", 1_400);
    let is_kept = |program: &Program| {
        let all = rows(program);
        let amounts = all.iter().map(|row| {
            let number = |name: &str| row[name].as_u64().unwrap();
            (
                row["key"].as_str().unwrap().to_owned(),
                number("spent"),
                number("left"),
            )
        });
        let amounts: Vec<_> = amounts.collect();
        let wanted = [
            ("api.test".to_owned(), 1_400, 100),
            (String::new(), 1_000_000_000, 14_000_000_000),
        ];
        assert_eq!(amounts, wanted);
    };
    is_kept(&program);
    program.restart_after_a_crash();
    is_kept(&program);
    // A reload changes what there is, and not what is spent.
    program.edit(|config| config.replace("most = 1000", "most = 2000"));
    program.reload();
    assert_eq!(rows(&program)[0]["left"], 1_100);
    program.edit(|config| config.replace("most = 2000", "most = 1000"));
    program.reload();
    kill_process(Pid::from_child(&program.child), Signal::TERM).unwrap();
    program.child.wait().unwrap();
    let child = command(program.folder.path())
        .args(["serve", "--config", "gateway.toml"])
        .stdout(Stdio::null())
        .stderr(fs::File::create(program.path("log")).unwrap())
        .spawn();
    program.follow(child.unwrap());
    is_kept(&program);
}

#[test]
fn an_addition_that_means_nothing_is_refused_and_changes_nothing() {
    let program = start();
    for (arguments, expected) in [
        (&["add", "others", "5"][..], "there is no budget `others`"),
        (&["add", "models", "5tokens"][..], "no amount of usd"),
        (&["add", "models", "0"][..], "no amount of usd"),
        (&["add", "models", "1e9"][..], "no amount of usd"),
        (&["add", "models", "99999999999"][..], "no amount of usd"),
        (&["add", "models", "1", "--of", "alice"][..], "all share it"),
        (&["add", "calls", "1"][..], "each host has one of its own"),
        (
            &["add", "calls", "1.5", "--of", "a.test"][..],
            "no amount of requests",
        ),
    ] {
        let (code, said) = program.gateway(&[&["budgets"], arguments].concat());
        assert!(
            code != 0 && said.contains(expected),
            "{arguments:?}: {said}"
        );
    }
    let (code, said) = program.gateway(&[
        "budgets",
        "add",
        "calls",
        "9223372036854775807",
        "--of",
        "a.test",
    ]);
    assert_eq!(code, 0, "{said}");
    let (code, said) = program.gateway(&["budgets", "add", "calls", "1", "--of", "a.test"]);
    assert!(
        code != 0 && said.contains("more was added than can be counted"),
        "{said}"
    );
    assert_eq!(rows(&program).len(), 2);
    assert_eq!(program.call("POST", "/v1/budgets/models/add", "{}").0, 400);
    assert_eq!(
        program
            .call(
                "POST",
                "/v1/budgets/models/add",
                r#"{"amount":"1","more":1}"#
            )
            .0,
        400
    );
    assert_eq!(program.call("GET", "/v1/budgets/models/add", "").0, 405);
}

#[test]
fn who_may_only_read_sees_budgets_and_adds_nothing() {
    let program = start();
    let policy = "permit(principal, action in Gateway::Action::\"read\", resource);\n\
                  permit(principal, action == Gateway::Action::\"reload\", resource);";
    fs::write(program.path("operators.cedar"), policy).unwrap();
    program.edit(|config| format!("{config}[control]\npolicy = \"operators.cedar\"\n"));
    program.reload();
    assert_eq!(rows(&program)[0]["name"], "models");
    let (code, said) = program.gateway(&["budgets", "add", "models", "1"]);
    assert!(
        code != 0 && said.contains("may not do `budget.add`"),
        "{said}"
    );
    let last = program.records("act").pop().unwrap();
    assert_eq!(
        (&last["decision"], &last["subject"]),
        (&"deny".into(), &"models".into())
    );
    assert_eq!(rows(&program)[0]["added"], 0);
}

#[test]
fn what_is_spent_of_a_month_is_not_left_again_when_the_clock_is_set_back() {
    let mut program = start();
    program.json(&["budgets", "add", "models", "1"]);
    let state = program.path("state/state.db");
    let state = rusqlite::Connection::open(state).unwrap();
    // A month that this clock has not reached was seen, and all of it is spent.
    let later = "UPDATE budget SET window = 4102444800, taken = 6000000000 WHERE name = 'models'";
    assert_eq!(state.execute(later, []), Ok(1));
    program.restart_after_a_crash();
    let row = &rows(&program)[0];
    assert_eq!(
        (&row["left"], &row["spent"]),
        (&0.into(), &6_000_000_000_u64.into()),
        "{row}"
    );
    assert_eq!(row["begins_anew"], "2100-02-01T00:00:00Z");
}

/// Starts `serve`, which must refuse to.
fn refused(program: &Program, change: impl FnOnce(&mut Command)) -> String {
    let mut serve = command(program.folder.path());
    change(
        serve
            .args(["serve", "--config", "gateway.toml"])
            .stderr(Stdio::piped()),
    );
    let mut child = serve.spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    while child.try_wait().unwrap().is_none() {
        if Instant::now() >= until {
            child.kill().unwrap();
            panic!("it serves");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let ended = child.wait_with_output().unwrap();
    assert!(!ended.status.success());
    String::from_utf8(ended.stderr).unwrap()
}

#[test]
fn without_a_state_that_outlasts_it_a_gateway_with_budgets_does_not_start() {
    let mut program = Program::start("");
    kill_process(Pid::from_child(&program.child), Signal::TERM).unwrap();
    program.child.wait().unwrap();
    let without = |serve: &mut Command| {
        serve.env_remove("XDG_STATE_HOME").env_remove("HOME");
    };
    program.edit(|config| format!("{config}{BUDGETS}"));
    let said = refused(&program, without);
    assert!(said.contains("no budget can be counted"), "{said}");
    assert!(said.contains("[state] path"), "{said}");
    // Without budgets it starts so, and a reload that adds one is refused.
    program.edit(|config| config.replace(BUDGETS, ""));
    let mut serve = command(program.folder.path());
    without(serve.args(["serve", "--config", "gateway.toml"]));
    let log = fs::File::create(program.path("log")).unwrap();
    program.follow(serve.stdout(Stdio::null()).stderr(log).spawn().unwrap());
    assert_eq!(
        program.json(&["budgets"])["budgets"],
        Value::Array(Vec::new())
    );
    program.edit(|config| format!("{config}{BUDGETS}"));
    let said = program.refuse();
    assert!(said.contains("no budget can be counted"), "{said}");
}

/// A run of `exec` with budgets, which ends when the file `go` is there.
fn run(folder: &Path) -> Child {
    let script = "while [ ! -e go ]; do sleep 0.05; done";
    let mut run = user_command(folder, 0);
    run.args([
        "exec",
        "--config",
        "../../budgets.toml",
        "--",
        "sh",
        "-c",
        script,
    ]);
    exec(folder, run)
}

fn ended(folder: &Path, child: Child) -> String {
    fs::write(folder.join("home/project/go"), "").unwrap();
    let output = child.wait_with_output().unwrap();
    fs::remove_file(folder.join("home/project/go")).unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn added(folder: &Path) -> u64 {
    let budgets = ["budgets", "--json"];
    let output = user_command(folder, 0).args(budgets).output().unwrap();
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said["budgets"][0]["name"], "models", "{said}");
    said["budgets"][0]["added"].as_u64().unwrap()
}

#[test]
fn budgets_of_exec_outlast_the_run_and_the_loss_of_the_states_key() {
    let folder = folder(0);
    let folder = folder.path();
    fs::write(folder.join("budgets.toml"), BUDGETS).unwrap();
    let first = run(folder);
    let add = ["budgets", "add", "models", "10usd"];
    let output = user_command(folder, 0).args(add).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    ended(folder, first);
    let second = run(folder);
    assert_eq!(added(folder), 10_000_000_000);
    ended(folder, second);
    fs::remove_file(folder.join("home/.local/state/gateway/sessions/key")).unwrap();
    let third = run(folder);
    assert_eq!(added(folder), 10_000_000_000);
    let said = ended(folder, third);
    assert!(
        said.contains("the phantoms of this run are its own"),
        "{said}"
    );
}
