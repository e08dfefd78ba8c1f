//! What a workload proposes from inside, and a person answers outside: by the real program.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::sandbox::{exec, folder, user_command, wait_for};
use crate::watch::Terminal;

fn outside(folder: &Path, arguments: &[&str]) -> Output {
    let output = user_command(folder, 0).args(arguments).output();
    output.unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a script in a sandbox of a user, whose project it may write.
fn inside(folder: &tempfile::TempDir, script: &str) -> std::process::Child {
    inside_with(folder, &[], script)
}

fn inside_with(folder: &tempfile::TempDir, flags: &[&str], script: &str) -> std::process::Child {
    let project = folder.path().join("home/project");
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(&project, everybody).unwrap();
    let mut command = user_command(folder.path(), 0);
    command.args(["exec", "-v"]).args(flags);
    command.args(["--", "sh", "-c", script]);
    exec(folder.path(), command)
}

const PROPOSE: &str = "curl -sS -w '%{http_code}' http://gateway.internal/proposals";

#[test]
fn a_person_grants_or_refuses_what_the_workload_proposes_and_it_sees_which() {
    let folder = folder(0);
    let project = folder.path().join("home/project");
    let script = format!(
        "curl -sS http://unlisted.test/ >/dev/null; \
         {PROPOSE} -d 'host=api.example.com&method=GET&path=/v1/models&why=to+list+models'; \
         {PROPOSE} -H 'Content-Type: application/json' \
           -d '{{\"host\":\"other.example.com:8443\",\"method\":\"POST\",\"path\":\"/x\",\"why\":\"\\u202egnp\"}}'; \
         touch sent; while [ ! -e go ]; do sleep 0.05; done; \
         curl -sS http://gateway.internal/proposals"
    );
    let child = inside(&folder, &script);
    wait_for("no proposal", || project.join("sent").exists());
    let listed = outside(folder.path(), &["grants", "proposed", "--json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let all = listed["proposals"].as_array().unwrap();
    assert_eq!(all.len(), 2, "{listed}");
    let of = |wanted: &str| {
        let one = all.iter().find(|one| one["wanted"] == wanted).unwrap();
        one["id"].as_str().unwrap().to_owned()
    };
    let (get, post) = (
        of("GET api.example.com/v1/models"),
        of("POST other.example.com:8443/x"),
    );
    // Nothing was changed by proposing, and nothing in the words steers a terminal.
    let plain = text(&outside(folder.path(), &["grants", "proposed"]).stdout);
    assert!(plain.contains("\"to list models\""), "{plain}");
    assert!(plain.contains("\\u{202e}gnp"), "{plain}");
    let allowed = outside(folder.path(), &["allow", &get, "--yes"]);
    let rule = text(&allowed.stdout);
    for part in [
        "\"api.example.com\"",
        "\"GET\"",
        "\"/v1/models\"",
        "applied",
    ] {
        assert!(rule.contains(part), "{part}: {allowed:?}");
    }
    for too_short in ["", &post[..12]] {
        let unclear = outside(folder.path(), &["deny", too_short]);
        assert!(!unclear.status.success(), "{unclear:?}");
    }
    let denied = outside(folder.path(), &["deny", &post]);
    assert!(denied.status.success(), "{denied:?}");
    let again = outside(folder.path(), &["deny", &post]);
    assert!(!again.status.success(), "{again:?}");
    let log = text(&outside(folder.path(), &["log"]).stdout);
    assert!(log.contains(&format!("proposed  {get} GET")), "{log}");
    let refused = format!("denied    uid:0 refuses {post} POST other.example.com:8443/x");
    assert!(log.contains(&refused), "{log}");
    assert!(!log.contains("allow     uid:0 refuses"), "{log}");
    assert!(!log.contains("to list models"), "{log}");
    fs::write(project.join("go"), "").unwrap();
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stdout);
    assert_eq!(said.matches("\n202{").count(), 1, "{said}");
    for part in [
        "granted GET api.example.com",
        "refused POST other.example.com",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // Who learns from the run is told.
    let learned = text(&outside(folder.path(), &["init", "--from-last-run"]).stderr);
    let told = "// A person refused it to the run: POST other.example.com:8443/x";
    assert!(learned.contains(told), "{learned}");
}

#[test]
fn a_refusal_is_proposed_by_its_id_and_what_waits_at_the_end_is_told() {
    let folder = folder(0);
    let script = format!(
        "curl -sS https://unlisted.test/a >/dev/null; \
         id=$(curl -sS http://gateway.internal/refused | grep -o '[0-9a-f]\\{{20\\}}' | head -1); \
         {PROPOSE} -d \"id=$id&why=please\"; {PROPOSE} -d \"id=$id&why=please\"; \
         {PROPOSE} -d 'id=00000000000000000000&why=guessed'; curl -sS http://gateway.internal/proposals"
    );
    let output = inside(&folder, &script).wait_with_output().unwrap();
    let (said, noted) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(said.matches("\n202{").count(), 2, "{said}");
    assert!(said.contains("404"), "{said}");
    assert_eq!(
        said.matches(" waiting GET unlisted.test/a ").count(),
        1,
        "{said}"
    );
    assert!(noted.contains("nobody answered the proposal"), "{noted}");
    assert!(noted.contains("\"please\""), "{noted}");
}

/// The ids of what waits, by what is wanted.
fn waiting(folder: &Path, wanted: &str) -> Option<String> {
    let listed = outside(folder, &["grants", "proposed", "--json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let all = listed["proposals"].as_array()?;
    let one = all.iter().find(|one| one["wanted"] == wanted)?;
    Some(one["id"].as_str().unwrap().to_owned())
}

/// A client that trusts no CA: it asks for a name, and makes no request.
const NAMELESS: &str = "import socket, ssl
try:
    stream = socket.create_connection((\"unlisted.test\", 443))
    ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).wrap_socket(stream, server_hostname=\"unlisted.test\")
except ssl.SSLError:
    pass
";

/// Refused twice, so that there are two ids of the same, of which the first is proposed.
#[test]
fn what_a_person_refused_stays_refused_by_every_id_until_it_is_undone() {
    let folder = folder(0);
    let project = folder.path().join("home/project");
    let ask = "curl -sS https://unlisted.test/a >/dev/null; \
               id=$(curl -sS http://gateway.internal/refused | grep -o '[0-9a-f]\\{20\\}' | head -1)";
    let script = format!(
        "{ask}; {PROPOSE} -d \"id=$id&why=say+%22yes%22%5c%22+e%cc%81+%d7%90\"; touch sent; \
         while [ ! -e denied ]; do sleep 0.05; done; \
         {ask}; echo again=$id; {PROPOSE} -d \"id=$id&why=please\"; echo $id > other; mv other second; \
         while [ ! -e nameless ]; do sleep 0.05; done; python3 -c '{NAMELESS}'; touch met; \
         while [ ! -e undone ]; do sleep 0.05; done; \
         {PROPOSE} -d \"id=$id&why=please\"; curl -sS http://gateway.internal/proposals"
    );
    let child = inside(&folder, &script);
    wait_for("no proposal", || project.join("sent").exists());
    let first = waiting(folder.path(), "GET unlisted.test/a").unwrap();
    // The words neither end their quotation, nor hide, nor run backwards.
    let plain = text(&outside(folder.path(), &["grants", "proposed"]).stdout);
    let words = r#""say \"yes\"\\\" e\u{301} \u{5d0}""#;
    assert!(plain.contains(words), "{plain}");
    assert!(outside(folder.path(), &["deny", &first]).status.success());
    fs::write(project.join("denied"), "").unwrap();
    wait_for("no second refusal", || project.join("second").exists());
    let second = fs::read_to_string(project.join("second")).unwrap();
    assert_ne!(first, second.trim());
    for named in [
        &["allow", first.as_str()][..],
        &["allow", second.trim()],
        &["allow", "--last"],
    ] {
        let allowed = outside(folder.path(), &[named, &["--yes"]].concat());
        let said = text(&allowed.stderr);
        assert!(!allowed.status.success(), "{named:?} {allowed:?}");
        assert!(
            said.contains("a person has refused `GET unlisted.test/a`"),
            "{said}"
        );
        assert!(
            said.contains(&format!("gateway deny --undo {first}")),
            "{said}"
        );
    }
    assert!(waiting(folder.path(), "GET unlisted.test/a").is_none());
    // Who names the host is told, and decides: without an answer, nothing is changed.
    let by_host = outside(folder.path(), &["allow", "unlisted.test"]);
    let said = text(&by_host.stderr);
    assert!(!by_host.status.success(), "{by_host:?}");
    assert!(
        said.contains("GET unlisted.test/a was refused to this session before"),
        "{said}"
    );
    // A refusal that had no request names the host too, and not by a person: it is refused.
    fs::write(project.join("nameless"), "").unwrap();
    wait_for("no nameless refusal", || project.join("met").exists());
    let by_name = outside(folder.path(), &["allow", "--last", "--yes"]);
    let said = text(&by_name.stderr);
    assert!(!by_name.status.success(), "{by_name:?}");
    assert!(said.contains("GET unlisted.test/a"), "{said}");
    assert!(!text(&by_name.stdout).contains("generation"), "{by_name:?}");
    let undone = outside(folder.path(), &["deny", "--undo", &first]);
    assert!(undone.status.success(), "{undone:?}");
    assert_eq!(
        waiting(folder.path(), "GET unlisted.test/a").unwrap(),
        first
    );
    fs::write(project.join("undone"), "").unwrap();
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stdout);
    // Taken, refused, and taken once it was undone: as the one that waits.
    for part in ["\n202again=", "\n409{", "\n202Proposed"] {
        assert!(said.contains(part), "{part} {said}");
    }
    assert_eq!(
        said.matches(" waiting GET unlisted.test/a ").count(),
        1,
        "{said}"
    );
}

/// A connection to an address in clear text, in which each request names its own host.
#[test]
fn a_refusal_is_proposed_and_denied_by_the_host_that_it_named_and_not_by_the_address() {
    let folder = folder(0);
    let project = folder.path().join("home/project");
    let config = "[[origin]]\nmatch = \"http://late.test\"\ncleartext = true\n";
    fs::write(folder.path().join("home/gateway.toml"), config).unwrap();
    let ask = "curl -sS -H 'Host: late.test' http://93.184.216.34/a >/dev/null; \
               curl -sS http://gateway.internal/refused > refused; \
               id=$(grep -o '[0-9a-f]\\{20\\}' refused | head -1)";
    let script = format!(
        "{ask}; {PROPOSE} -d \"id=$id\" > sent.part; mv sent.part sent; \
         while [ ! -e denied ]; do sleep 0.05; done; {ask}; {PROPOSE} -d \"id=$id\"; \
         {PROPOSE} -d 'host=late.test:80&method=GET&path=/b'; echo $id > other; mv other second; \
         while [ ! -e go ]; do sleep 0.05; done"
    );
    let child = inside_with(&folder, &["--config", "../gateway.toml"], &script);
    wait_for("no proposal", || project.join("sent").exists());
    let refused = fs::read_to_string(project.join("refused")).unwrap();
    assert!(refused.contains(" late.test:80 "), "{refused}");
    assert!(!refused.contains("93.184"), "{refused}");
    let first = waiting(folder.path(), "GET late.test:80/a").unwrap();
    assert!(outside(folder.path(), &["deny", &first]).status.success());
    fs::write(project.join("denied"), "").unwrap();
    wait_for("no second refusal", || project.join("second").exists());
    let second = fs::read_to_string(project.join("second")).unwrap();
    for named in [first.trim(), second.trim()] {
        let allowed = outside(folder.path(), &["allow", named, "--yes"]);
        let said = text(&allowed.stderr);
        assert!(!allowed.status.success(), "{named} {allowed:?}");
        assert!(said.contains("a person has refused"), "{said}");
    }
    let by_host = outside(folder.path(), &["allow", "late.test:80"]);
    let said = text(&by_host.stderr);
    assert!(
        said.contains("was refused to this session before"),
        "{said}"
    );
    fs::write(project.join("go"), "").unwrap();
    let output = child.wait_with_output().unwrap();
    let (said, noted) = (text(&output.stdout), text(&output.stderr));
    // The same was refused, and a port of http is not one of https.
    assert!(said.contains("409") && said.contains("400"), "{said}");
    assert!(
        noted.contains("late.test:80: policy_default_deny")
            && noted.contains("a person refused GET late.test:80/a"),
        "{noted}"
    );
}

#[test]
fn the_summary_names_the_port_of_a_connection_that_came_to_no_request() {
    let folder = folder(0);
    let script = format!("python3 -c '{}'", NAMELESS.replace("443", "8443"));
    let output = inside(&folder, &script).wait_with_output().unwrap();
    let noted = text(&output.stderr);
    let advice = "`gateway allow unlisted.test:8443` permits it";
    assert!(noted.contains(advice), "{noted}");
}

#[test]
fn what_a_person_refused_is_granted_by_no_other_spelling_of_its_path() {
    let folder = folder(0);
    let project = folder.path().join("home/project");
    let ask = |path: &str| {
        format!(
            "curl -sS --path-as-is 'https://unlisted.test{path}' >/dev/null; \
             id=$(curl -sS http://gateway.internal/refused | grep -o '[0-9a-f]\\{{20\\}}' | head -1); \
             echo $id >> ids; {PROPOSE} -d id=$id"
        )
    };
    let script = format!(
        "{PROPOSE} -d 'host=unlisted.test&method=GET&path=/admin/keys'; touch sent; \
         while [ ! -e denied ]; do sleep 0.05; done; {}; {}; touch asked; \
         while [ ! -e go ]; do sleep 0.05; done",
        ask("/admin//keys"),
        ask("/admin;v=1/keys/")
    );
    let child = inside(&folder, &script);
    wait_for("no proposal", || project.join("sent").exists());
    let first = waiting(folder.path(), "GET unlisted.test/admin/keys").unwrap();
    assert!(outside(folder.path(), &["deny", &first]).status.success());
    fs::write(project.join("denied"), "").unwrap();
    wait_for("nothing was asked", || project.join("asked").exists());
    let ids = fs::read_to_string(project.join("ids")).unwrap();
    assert_eq!(ids.lines().count(), 2, "{ids}");
    for id in ids.lines() {
        let allowed = outside(folder.path(), &["allow", id, "--yes"]);
        let said = text(&allowed.stderr);
        assert!(!allowed.status.success(), "{id} {allowed:?}");
        let why = "a person has refused `GET unlisted.test/admin/keys`";
        assert!(said.contains(why), "{said}");
    }
    let by_host = outside(folder.path(), &["allow", "unlisted.test"]);
    let said = text(&by_host.stderr);
    assert!(
        said.contains("was refused to this session before"),
        "{said}"
    );
    // Once it is undone, each path that the rule covers is shown.
    assert!(
        outside(folder.path(), &["deny", "--undo", &first])
            .status
            .success()
    );
    let shown = outside(folder.path(), &["allow", ids.lines().next().unwrap()]);
    let said = text(&shown.stdout);
    assert!(
        said.contains("\"/admin//keys\"") && said.contains("\"/admin/keys\""),
        "{said}"
    );
    fs::write(project.join("go"), "").unwrap();
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stdout);
    assert_eq!(said.matches("\n409").count(), 2, "{said}");
}

#[test]
fn what_a_person_refused_here_is_not_permitted_by_a_rule_that_was_granted_elsewhere() {
    let folder = folder(0);
    let project = folder.path().join("home/project");
    let ask = |path: &str| format!("curl -sS https://unlisted.test{path} >/dev/null");
    let here = format!(
        "{PROPOSE} -d 'host=unlisted.test&method=GET&path=/a'; touch sent; \
         while [ ! -e go ]; do sleep 0.05; done; \
         curl -sS https://unlisted.test/a; curl -sS https://unlisted.test/b"
    );
    let here = inside(&folder, &here);
    wait_for("no proposal", || project.join("sent").exists());
    let id = waiting(folder.path(), "GET unlisted.test/a").unwrap();
    assert!(outside(folder.path(), &["deny", &id]).status.success());
    let elsewhere = format!(
        "{}; touch asked; while [ ! -e go ]; do sleep 0.05; done",
        ask("/a")
    );
    let elsewhere = inside(&folder, &elsewhere);
    wait_for("nothing was asked", || project.join("asked").exists());
    let sockets = || fs::read_dir(folder.path().join("run/gateway")).unwrap();
    let names = sockets().map(|one| one.unwrap().file_name().into_string().unwrap());
    let names: Vec<String> = names.filter(|name| name.ends_with(".sock")).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    let denies = |name: &String| {
        let name = name.trim_end_matches(".sock");
        let all = outside(
            folder.path(),
            &["grants", "proposed", "--all", "--gateway", name],
        );
        text(&all.stdout).contains("refused")
    };
    let named = |is_here: bool| {
        let mut names = names.iter().filter(|name| denies(name) == is_here);
        names.next().unwrap().trim_end_matches(".sock").to_owned()
    };
    let (first, second) = (named(true), named(false));
    for granted in ["--last", "unlisted.test"] {
        let allowed = ["allow", granted, "--yes", "--gateway", &second];
        let allowed = outside(folder.path(), &allowed);
        assert!(allowed.status.success(), "{allowed:?}");
    }
    let reloaded = outside(folder.path(), &["reload", "--gateway", &first]);
    assert!(reloaded.status.success(), "{reloaded:?}");
    fs::write(project.join("go"), "").unwrap();
    let output = here.wait_with_output().unwrap();
    let (said, noted) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(
        said.matches("policy_default_deny").count(),
        2,
        "{said} {noted}"
    );
    elsewhere.wait_with_output().unwrap();
}

/// The file of the rules that were granted to `exec`.
fn granted(folder: &Path) -> std::path::PathBuf {
    let state = folder.join("home/.local/state/gateway");
    let found = Command::new("find")
        .arg(state)
        .args(["-name", "*.cedar"])
        .output();
    text(&found.unwrap().stdout).trim().into()
}

/// A rule is granted in vain, or taken back. Then a person refuses what it permits, and another
/// gateway grants it.
#[test]
fn only_a_rule_that_is_in_force_stands_against_what_a_person_refuses() {
    let mut both = String::new();
    for in_vain in [false, true] {
        let folder = folder(0);
        let project = folder.path().join("home/project");
        let config = folder.path().join("home/gateway.toml");
        fs::write(&config, "[limits]\n").unwrap();
        let script = format!(
            "while [ ! -e begin ]; do sleep 0.05; done; \
             {PROPOSE} -d 'host=unlisted.test&method=GET&path=/a'; touch sent; \
             while [ ! -e go ]; do sleep 0.05; done; curl -sS https://unlisted.test/a"
        );
        let child = inside_with(&folder, &["--config", "../gateway.toml"], &script);
        let done = |arguments: &[&str]| {
            let output = outside(folder.path(), arguments);
            (output.status.success(), text(&output.stderr))
        };
        assert!(done(&["allow", "other.test", "--yes"]).0);
        let file = granted(folder.path());
        let before = fs::read_to_string(&file).unwrap();
        if in_vain {
            fs::write(&config, "broken =").unwrap();
            assert!(!done(&["allow", "unlisted.test", "--yes"]).0);
            fs::write(&config, "[limits]\n").unwrap();
        } else {
            assert!(done(&["allow", "unlisted.test", "--yes"]).0);
            both = fs::read_to_string(&file).unwrap();
            fs::write(&file, &before).unwrap();
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), before);
        assert!(done(&["reload"]).0);
        fs::write(project.join("begin"), "").unwrap();
        wait_for("no proposal", || project.join("sent").exists());
        let id = waiting(folder.path(), "GET unlisted.test/a").unwrap();
        assert!(done(&["deny", &id]).0);
        fs::write(&file, &both).unwrap();
        assert!(done(&["reload"]).0);
        fs::write(project.join("go"), "").unwrap();
        let output = child.wait_with_output().unwrap();
        let (said, noted) = (text(&output.stdout), text(&output.stderr));
        assert!(
            said.contains("policy_default_deny"),
            "{in_vain}: {said} {noted}"
        );
    }
}

#[test]
fn after_a_refusal_nothing_advises_to_allow_it() {
    let folder = folder(0);
    let project = folder.path().join("home/project");
    let script = format!(
        "{PROPOSE} -d 'host=unlisted.test&method=GET&path=/a'; touch sent; \
         while [ ! -e denied ]; do sleep 0.05; done; \
         curl -isS https://unlisted.test/a > answer; curl -sS http://gateway.internal/refused > page; \
         touch asked; while [ ! -e go ]; do sleep 0.05; done"
    );
    let child = inside(&folder, &script);
    wait_for("no proposal", || project.join("sent").exists());
    let id = waiting(folder.path(), "GET unlisted.test/a").unwrap();
    assert!(outside(folder.path(), &["deny", &id]).status.success());
    fs::write(project.join("denied"), "").unwrap();
    wait_for("nothing was asked", || project.join("asked").exists());
    let read = |name: &str| fs::read_to_string(project.join(name)).unwrap();
    let why = text(&outside(folder.path(), &["why", "--last"]).stdout);
    let undo = format!("gateway deny --undo {id}");
    for said in [read("answer"), read("page"), why] {
        assert!(!said.contains("gateway allow"), "{said}");
        assert!(said.contains(&undo), "{said}");
    }
    fs::write(project.join("go"), "").unwrap();
    let noted = text(&child.wait_with_output().unwrap().stderr);
    assert!(
        noted.contains("a person refused GET unlisted.test/a"),
        "{noted}"
    );
    assert!(!noted.contains("`--allow unlisted.test`"), "{noted}");
    let why = text(&outside(folder.path(), &["why", "--last"]).stdout);
    assert!(
        why.contains("a person refused `GET unlisted.test/a` to that session"),
        "{why}"
    );
    assert!(
        !why.contains("--allow") && !why.contains("permit("),
        "{why}"
    );
}

#[test]
fn what_a_person_refused_to_a_run_is_learned_from_it_as_a_comment_alone() {
    let folder = folder(0);
    let project = folder.path().join("home/project");
    let script = format!(
        "for path in a a/ b c; do curl -sS https://unlisted.test/$path >/dev/null; done; \
         {PROPOSE} -d 'host=unlisted.test&method=GET&path=/a'; touch sent; \
         while [ ! -e go ]; do sleep 0.05; done"
    );
    let child = inside(&folder, &script);
    wait_for("no proposal", || project.join("sent").exists());
    let id = waiting(folder.path(), "GET unlisted.test/a").unwrap();
    assert!(outside(folder.path(), &["deny", &id]).status.success());
    fs::write(project.join("go"), "").unwrap();
    child.wait_with_output().unwrap();
    let learned = text(&outside(folder.path(), &["init", "--from-last-run"]).stderr);
    let (comments, live): (Vec<&str>, Vec<&str>) = learned
        .lines()
        .partition(|line| line.trim().starts_with("//"));
    let (comments, live) = (comments.concat(), live.concat());
    assert!(
        comments.contains("Permits what a person refused"),
        "{learned}"
    );
    assert!(
        comments.contains("\"/a\"") && comments.contains("\"/a/\""),
        "{learned}"
    );
    assert!(
        live.contains("\"/b\"") && live.contains("\"/c\""),
        "{learned}"
    );
    assert!(!live.contains("\"/a"), "{learned}");
    assert!(!learned.contains("gateway.internal"), "{learned}");
}

#[test]
fn in_the_view_a_proposal_is_refused_after_a_question_alone() {
    let folder = folder(0);
    let project = folder.path().join("home/project");
    let script = format!(
        "{PROPOSE} -d 'host=a.test&method=GET&path=/&why=so{}%e2%a0%80gateway'; touch sent; \
         while [ ! -e go ]; do sleep 0.05; done",
        "+".repeat(100)
    );
    let child = inside(&folder, &script);
    wait_for("no proposal", || project.join("sent").exists());
    let mut terminal = Terminal::of(&user_command(folder.path(), 0), ("NO_COLOR", "1"));
    // Neither spaces nor what looks like them move the words to a line of their own.
    terminal.shows("proposed exec         GET a.test/  \"so \\u{2800}gateway\"");
    terminal.press("jd");
    terminal.shows("Refuse it for as long as session `exec` lives? [y/N]");
    terminal.press("n");
    terminal.shows("nothing was changed");
    assert!(waiting(folder.path(), "GET a.test/").is_some());
    terminal.press("d");
    terminal.shows("[y/N]");
    terminal.press("y");
    terminal.shows("the proposal is refused");
    assert!(waiting(folder.path(), "GET a.test/").is_none());
    terminal.press("q");
    terminal.restored();
    fs::write(project.join("go"), "").unwrap();
    assert!(child.wait_with_output().unwrap().status.success());
}

#[test]
fn what_no_rule_would_allow_what_is_malformed_and_what_is_too_much_is_refused_at_once() {
    let folder = folder(0);
    let request = |host: &str, path: &str, why: &str| {
        format!("-d 'host={host}&method=GET&path={path}&why={why}'")
    };
    let refused = [
        (request("169.254.169.254", "/latest", ""), "409"),
        (request("metadata.google.internal", "/", ""), "409"),
        (request("10.0.0.1", "/", ""), "409"),
        (request("gateway.internal", "/", ""), "409"),
        (request("a.test\") || true; //", "/", ""), "400"),
        (request("a.test", "/a/../b", ""), "400"),
        (request("a.test", "/", "%1b[31m%0agateway: granted"), "400"),
        (request("a.test", "/", &"x".repeat(300)), "400"),
        (format!("-d 'host=a.test&why={}'", "x".repeat(5000)), "413"),
        (
            "-d 'host=a.test&method=GET&path=/&policy=permit'".to_owned(),
            "400",
        ),
    ];
    let lines: Vec<String> = refused
        .iter()
        .map(|(flags, _)| format!("{PROPOSE} {flags}; echo"))
        .collect();
    let script = format!(
        "{}; {PROPOSE} {}; echo; curl -sS http://gateway.internal/proposals",
        lines.join("; "),
        request("a.test", "/", "")
    );
    let output = inside(&folder, &script).wait_with_output().unwrap();
    let said = text(&output.stdout);
    // Each answer is a line of JSON, and its status.
    let codes: Vec<&str> = said.lines().filter(|line| line.len() == 3).collect();
    let wanted = refused.iter().map(|(_, code)| *code).chain(["429"]);
    assert_eq!(
        codes,
        wanted.collect::<Vec<_>>(),
        "{said}\n{}",
        text(&output.stderr)
    );
    assert!(said.contains("Nothing was proposed."), "{said}");
}

#[test]
fn a_web_page_and_bytes_that_break_off_propose_nothing() {
    let folder = folder(0);
    let form = "Content-Type: application/x-www-form-urlencoded";
    let raw = "import socket; s = socket.create_connection((\"gateway.internal\", 80)); \
               s.sendall(b\"POST /proposals HTTP/1.1\\r\\nHost: gateway.internal\\r\\n\
Content-Type: application/json\\r\\nContent-Length: 100\\r\\n\\r\\n{\"); \
               s.shutdown(1); print(s.recv(99)[9:12].decode())";
    let script = format!(
        "{PROPOSE} -H 'Origin: https://evil.test' -H '{form}' -d 'host=a.test&method=GET&path=/'; echo; \
         {PROPOSE} -H 'Content-Type: text/plain' -d 'host=a.test&method=GET&path=/'; echo; \
         python3 -c '{raw}'; curl -sS http://gateway.internal/proposals"
    );
    let output = inside(&folder, &script).wait_with_output().unwrap();
    let said = text(&output.stdout);
    assert!(said.contains("403") && said.contains("415"), "{said}");
    assert!(
        said.contains("Nothing was proposed."),
        "{said} {}",
        text(&output.stderr)
    );
}
