//! What programs print where a refusal is met: `tests/control/prints.md` is made of it, by the real
//! program and real clients.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::met::{MET, SCARCE, SERVED, UNMET};
use crate::program::{CANARY, Program, free};
use crate::sandbox::{exec, folder, user_command, wait_for};
use crate::servers;

/// No program is left to guess: it prints the code or what to do, or the summary at the end says
/// it. None takes longer than a moment, and none blames the network alone.
#[test]
fn every_refusal_is_told_where_it_is_met() {
    let folder = folder(0);
    prepare(folder.path());
    let folder = folder.path();
    let mut rows = told_in(folder, "gateway.toml", MET, operate);
    rows += SCARCE_HEADING;
    rows += &told_in(folder, "scarce.toml", SCARCE, |_| {});
    rows += SERVED_HEADING;
    rows += &served();
    rows += "\n## What no program is told\n\n| codes | why |\n|---|---|\n";
    for (codes, why) in UNMET {
        rows += &format!("| `{}` | {why} |\n", codes.replace(' ', "` `"));
    }
    check_page(&rows);
    let met = [MET, SCARCE, SERVED].concat();
    let met: BTreeSet<&str> = met.iter().map(|(code, _)| *code).collect();
    let unmet: BTreeSet<&str> = UNMET
        .iter()
        .flat_map(|(codes, _)| codes.split(' '))
        .collect();
    let page = fs::read_to_string(page("docs/refusals.md")).unwrap();
    let codes = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    let coded = |rest: &str| rest.as_bytes().first().is_some_and(u8::is_ascii_digit);
    for (code, _) in codes.filter(|(_, rest)| coded(rest)) {
        let told = met.contains(code) ^ unmet.contains(code);
        assert!(
            told,
            "`{code}` needs a command that meets it, or a reason why none does"
        );
    }
}

/// Runs the commands in one sandbox, and returns their rows of the page.
fn told_in(folder: &Path, config: &str, rows: &[Met], operate: impl FnOnce(&Path)) -> String {
    let printed = together(folder, config, rows, operate);
    let told = rows.iter().zip(printed).map(|((code, script), printed)| {
        if !printed.contains(code) {
            let said = alone(folder, config, script);
            assert!(said.contains(code), "{script}: {code}\n{said}\n{printed}");
        }
        row(code, script, &printed)
    });
    told.collect()
}

/// Runs the commands against `gateway serve`, whose own lines name the code where a command does
/// not.
fn served() -> String {
    let (login, removed) = (free(), free());
    let program = Program::start(
        &SERVING
            .replace("SILENT", &servers::silent().to_string())
            .replace("LOGIN", &login.to_string()),
    );
    let rules = fs::read_to_string(program.path("rules.cedar")).unwrap();
    fs::write(program.path("rules.cedar"), rules + SLOW).unwrap();
    let without = program.edit(|config| format!("{config}{}", listener(removed)));
    program.reload();
    let mut rows = String::new();
    for (code, script) in SERVED {
        let mut command = Command::new("sh");
        command
            .args(["-c", &format!("( {script}\n) 2>&1")])
            .current_dir(program.folder.path())
            .env("PROXY", program.proxy.to_string())
            .env("LOGIN", login.to_string())
            .env("REMOVED", removed.to_string());
        let child = command.stdout(Stdio::piped()).spawn().unwrap();
        if *code == "listener_removed" {
            let asked = program.path("remove");
            wait_for("the request", || asked.exists());
            std::thread::sleep(Duration::from_millis(500));
            program.edit(|_| without.clone());
            program.reload();
        }
        let printed = child.wait_with_output().unwrap().stdout;
        let printed = String::from_utf8(printed).unwrap();
        wait_for(code, || {
            let said = fs::read_to_string(program.path("log")).unwrap();
            printed.contains(code) || said.contains(code)
        });
        rows += &row(code, script, &printed);
    }
    rows
}

fn row(code: &str, script: &str, printed: &str) -> String {
    let shown = plain(printed);
    let lower = shown.to_lowercase();
    assert!(!lower.contains("network error"), "{script}: {shown}");
    assert!(!lower.contains("could not resolve"), "{script}: {shown}");
    let command = script.replace('|', "\\|");
    format!("| `{code}` | `{command}` | {shown} |\n")
}

fn page(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// The configuration, the rules and the servers of the sandbox.
fn prepare(folder: &Path) {
    let home = folder.join("home");
    let (certificate, sound) = servers::sound();
    fs::write(home.join("sound.pem"), certificate).unwrap();
    let permit = |host: &&str| {
        format!(
            "permit(principal, action in Gateway::Action::\"any\", resource == Gateway::Host::\"{host}\");\n"
        )
    };
    let permits: Vec<String> = REACHED.iter().map(permit).collect();
    fs::write(home.join("rules.cedar"), permits.concat() + RULES).unwrap();
    let config = [BUDGETS, CONFIG].concat();
    let config = config
        .replace("PLAIN", &crate::program::origin().to_string())
        .replace("BROKEN", &servers::broken().to_string())
        .replace("SILENT", &servers::silent().to_string())
        .replace("FULL", &servers::full().to_string())
        .replace("SOUND", &sound.to_string());
    fs::write(home.join("gateway.toml"), config).unwrap();
    let scarce = [BUDGETS, SCARCE_CONFIG]
        .concat()
        .replace("SILENT", &servers::silent().to_string());
    fs::write(home.join("scarce.toml"), scarce).unwrap();
    // What another project's sandbox knows.
    fs::create_dir(home.join("other")).unwrap();
    let mut command = sandbox(folder, "gateway.toml", "printf %s \"$TOKEN\"");
    let elsewhere = command.current_dir(home.join("other")).output().unwrap();
    fs::write(home.join("project/elsewhere"), elsewhere.stdout).unwrap();
    // What should not be there.
    fs::write(home.join("project/leaked"), CANARY).unwrap();
}

fn sandbox(folder: &Path, config: &str, script: &str) -> Command {
    let mut command = user_command(folder, 0);
    command
        .args(["exec", "--config", &format!("../{config}")])
        .args([
            "--secret",
            "TOKEN@api.test=env:KEY",
            "--",
            "sh",
            "-c",
            script,
        ])
        .env("TERM", "dumb")
        .env("AWS_ACCESS_KEY_ID", "AKIAC4N4RYC4N4RYC4N4")
        .env("AWS_SECRET_ACCESS_KEY", CANARY)
        .env("SLACK_BOT_TOKEN", format!("xoxb-{CANARY}"))
        .env("AZURE_STORAGE_KEY", "A".repeat(86) + "==")
        .env("BINANCE_API_KEY", "k".repeat(64))
        .env("BINANCE_API_SECRET", "s".repeat(64));
    command
}

/// Runs all of them in one sandbox, and returns what each printed.
fn together(folder: &Path, config: &str, rows: &[Met], operate: impl FnOnce(&Path)) -> Vec<String> {
    let project = folder.join("home/project");
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(&project, everybody).unwrap();
    let one = |(n, (_, script)): (usize, &(&str, &str))| {
        format!(
            "printf '\\001{n}\\001'; began=$(date +%s%N); ( {script}\n) 2>&1; printf '\\001'; echo $(( ($(date +%s%N) - began) / 1000000 ))\n"
        )
    };
    let scripts: Vec<String> = rows.iter().enumerate().map(one).collect();
    fs::write(folder.join("home/all"), scripts.concat()).unwrap();
    fs::copy(folder.join("home/all"), project.join("all")).unwrap();
    let child = exec(folder, sandbox(folder, config, "sh ./all"));
    operate(folder);
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = text(&output.stdout);
    assert!(!said.contains(CANARY) && !text(&output.stderr).contains(CANARY));
    // No program is told where the gateway keeps its state, or where it is asked.
    let run = folder.join("run").display().to_string();
    for own in [".local/state", "user.db", &run] {
        let line = said.lines().find(|line| line.contains(own));
        assert_eq!(line, None, "{own}");
    }
    let parts: Vec<&str> = said.split('\u{1}').collect();
    let parts = parts[1..].chunks(3);
    assert_eq!(parts.len(), rows.len(), "{said}\n{}", text(&output.stderr));
    let printed = parts.enumerate().map(|(n, part)| {
        let took: u64 = part[2].trim().parse().unwrap();
        assert!(took < 60_000, "{:?}: {took} ms", rows[n]);
        part[1].to_owned()
    });
    printed.collect()
}

/// What an operator does while the commands run.
fn operate(folder: &Path) {
    let project = folder.join("home/project");
    for (asked, past, act) in [
        ("ask", "denied", &["grants", "proposed", "--json"][..]),
        ("remove", "removed", &["reload"]),
        ("revoke", "revoked", &["revoke", "SPARE"]),
        ("pause", "paused", &["session", "pause", "exec"]),
        ("end", "ended", &["session", "end", "exec"]),
    ] {
        let until = Instant::now() + Duration::from_secs(300);
        while !project.join(asked).exists() {
            assert!(Instant::now() < until, "{asked}");
            std::thread::sleep(Duration::from_millis(50));
        }
        if asked == "remove" {
            let path = folder.join("home/gateway.toml");
            let config = fs::read_to_string(&path).unwrap();
            let (kept, _) = config.rsplit_once("[[credential]]").unwrap();
            fs::write(path, kept).unwrap();
        }
        let done = user_command(folder, 0).args(act).output().unwrap();
        assert!(done.status.success(), "{done:?}");
        if asked == "ask" {
            let listed: Value = serde_json::from_slice(&done.stdout).unwrap();
            let all = listed["proposals"].as_array().unwrap();
            let content = |one: &&Value| one["ask"]["content"] == "refund=2";
            let id = all.iter().find(content).unwrap()["id"].as_str().unwrap();
            let deny = user_command(folder, 0).args(["deny", id]).output().unwrap();
            assert!(deny.status.success(), "{deny:?}");
        }
        fs::write(project.join(past), "").unwrap();
    }
}

/// Runs one in a sandbox of its own, and returns all that a person sees.
fn alone(folder: &Path, config: &str, script: &str) -> String {
    let output = sandbox(folder, config, script).output().unwrap();
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

/// What a program printed, as a cell of a table: without ids, and not too long.
fn plain(text: &str) -> String {
    let words = text.split(' ').filter(|word| !word.is_empty());
    let text: Vec<String> = words.map(without_id).collect();
    let mut text = text.join(" ");
    if let Some((at, _)) = text.char_indices().nth(420) {
        text.truncate(at);
        text += " …";
    }
    text.replace('|', "\\|").replace(['<', '\n', '\r'], " ")
}

/// Replaces 20 hexadecimal digits.
fn without_id(word: &str) -> String {
    let is_digit = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    let part = |part: &str| match part.len() == 20 && part.chars().all(is_digit) {
        true => String::from("ID"),
        false => part.to_owned(),
    };
    let mut out = String::new();
    let mut current = String::new();
    for c in word.chars() {
        if c.is_ascii_alphanumeric() {
            current.push(c);
        } else {
            out += &part(&std::mem::take(&mut current));
            out.push(c);
        }
    }
    out + &part(&current)
}

/// `GATEWAY_WRITE=1` writes what programs print into the page. Otherwise, the page must tell of the
/// same commands: what they print differs from version to version.
fn check_page(rows: &str) {
    let path = page("tests/control/prints.md");
    let page = fs::read_to_string(&path).unwrap();
    let mark = "| met | command | it prints |\n|---|---|---|\n";
    let begin = page.find(mark).expect("the page has the table") + mark.len();
    if std::env::var_os("GATEWAY_WRITE").is_some() {
        fs::write(&path, format!("{}{rows}", &page[..begin])).unwrap();
        return;
    }
    let commands = |text: &str| -> Vec<String> {
        let cells = text
            .lines()
            .map(|line| line.split(" | ").take(2).collect::<Vec<_>>());
        cells.map(|cells| cells.join(" | ")).collect()
    };
    assert_eq!(
        commands(&page[begin..]),
        commands(rows),
        "GATEWAY_WRITE=1 writes the page"
    );
}

type Met = (&'static str, &'static str);

const REACHED: [&str; 23] = [
    "asks.test",
    "spent.test",
    "soon.test",
    "allowed.test",
    "10.1.2.3",
    "100.100.100.200",
    "plain.test",
    "api.test",
    "later.test",
    "broken.test",
    "slow.test",
    "down.test",
    "behind.test",
    "under.test",
    "spare.test",
    "reader.test",
    "slack.test",
    "full.test",
    "newer.test",
    "sound.test",
    "gone.test",
    "unsafe.test",
    "files.test",
];

const CONFIG: &str = r#"
[policy]
files = ["rules.cedar"]
[limits]
head_timeout = "3s"
handshake_timeout = "3s"
progress_timeout = "5s"
connect_timeout = "3s"
exchanges_per_session = 8
max_buffered_request = "64KiB"
[[origin]]
match = "http://later.test"
connect = "PLAIN"
cleartext = true
[[origin]]
match = "http://broken.test"
connect = "BROKEN"
cleartext = true
[[origin]]
match = "https://broken.test"
connect = "BROKEN"
[[origin]]
match = "http://slow.test"
connect = "SILENT"
cleartext = true
[[origin]]
match = "https://slow.test"
connect = "SILENT"
[[origin]]
match = "http://down.test"
connect = "127.0.0.1:1"
cleartext = true
[[origin]]
match = "http://behind.test"
via = "http://127.0.0.1:1"
cleartext = true
[[origin]]
match = "https://under.test"
underscores = true
[[origin]]
match = "http://spare.test"
connect = "PLAIN"
cleartext = true
[[origin]]
match = "https://full.test"
connect = "FULL"
[[origin]]
match = "https://newer.test"
connect = "SOUND"
http = "2"
roots = ["sound.pem"]
[[origin]]
match = "https://sound.test"
connect = "SOUND"
roots = ["sound.pem"]
[[origin]]
match = "https://gone.test"
connect = "SOUND"
roots = ["sound.pem"]
[[origin]]
match = "https://unsafe.test"
connect = "SOUND"
roots = ["sound.pem"]
[[origin]]
match = "https://reports.s3.eu-central-1.amazonaws.com"
connect = "SOUND"
roots = ["sound.pem"]
[[origin]]
match = "https://sts.eu-central-1.amazonaws.com"
connect = "SOUND"
roots = ["sound.pem"]
[[fact]]
name = "amount"
type = "Long"
origins = ["https://facts.test"]
form = "amount"
[[credential]]
name = "SPARE"
from = "env:KEY"
origins = ["https://spare.test"]
[[credential]]
name = "READER"
from = "env:KEY"
origins = ["https://reader.test"]
methods = ["GET", "POST"]
[[credential]]
name = "SLACK"
preset = "slack"
from = "env:SLACK_BOT_TOKEN"
origins = ["https://slack.test"]
[[credential]]
name = "CODED"
from = "env:KEY"
origins = ["https://sound.test"]
[[credential]]
name = "GONE"
from = { command = ["/bin/false"] }
shape = "g-[26 alnum]"
origins = ["https://gone.test"]
[[credential]]
name = "UNSAFE"
from = { command = ["/usr/bin/printf", "semi;colon-6f1d2c93a7b84e05"] }
shape = "u-[26 alnum]"
places = ["cookie:session"]
origins = ["https://unsafe.test"]
[[credential]]
name = "files"
sign = "azure-shared-key"
parts = { key = "env:AZURE_STORAGE_KEY" }
origins = ["https://files.test"]
[[credential]]
name = "exchange"
sign = "binance-hmac"
parts = { key = "env:BINANCE_API_KEY", secret = "env:BINANCE_API_SECRET" }
[[credential]]
name = "aws"
sign = "sigv4"
parts = { access_key = "env:AWS_ACCESS_KEY_ID", secret_key = "env:AWS_SECRET_ACCESS_KEY" }
regions = ["eu-central-1"]
services = ["s3", "sts"]
buckets = ["reports"]
actions = ["s3:GetObject", "s3:ListObjects", "s3:PutObject", "sts:AssumeRole"]
credential_actions = ["sts:AssumeRole"]
[[origin]]
match = "http://soon.test"
connect = "PLAIN"
cleartext = true
[[credential]]
name = "LATER"
from = "env:KEY"
origins = ["https://spare.test"]
"#;

/// The budgets of both sandboxes.
const BUDGETS: &str = r#"
[[budget]]
name = "few"
unit = "bytes"
most = 10
per = "month"
[[budget]]
name = "rare"
unit = "requests"
most = 1
per = "minute"
"#;

/// What the second sandbox is left of everything.
const SCARCE_CONFIG: &str = r#"
[policy]
files = ["rules.cedar"]
[audit]
session_burst = "64KiB"
session_rate = "1KiB"
[limits]
connections_per_session = 6
progress_timeout = "3s"
max_buffered_request = "64KiB"
max_buffered_total = "128KiB"
[[origin]]
match = "http://slow.test"
connect = "SILENT"
cleartext = true
[[fact]]
name = "amount"
type = "Long"
origins = ["https://facts.test"]
form = "amount"
"#;

/// What `gateway serve` has beside its first proxy port.
const SERVING: &str = r#"
[limits]
drain_timeout = "1s"
[[listener]]
kind = "proxy"
address = "LOGIN"
session = "agent-1"
who = ["password"]
passwords = { agent = "env:KEY" }
[[origin]]
match = "http://slow.test"
connect = "SILENT"
cleartext = true
"#;

const SLOW: &str = r#"
permit(principal, action, resource == Gateway::Host::"slow.test");
"#;

fn listener(address: SocketAddr) -> String {
    format!("[[listener]]\nkind = \"proxy\"\naddress = \"{address}\"\nsession = \"agent-1\"\n")
}

const SCARCE_HEADING: &str = "
The same, in a sandbox that is left little: six connections, 128 KiB of content held for judging,
64 KiB of the log.

| met | command | it prints |
|---|---|---|
";

const SERVED_HEADING: &str = "
The same, from clients of `gateway serve`: `$PROXY` is a proxy port, `$LOGIN` one with a login,
`$REMOVED` one that its operator takes away. Where a client hides what it is told, the gateway's own
output names the code.

| met | command | it prints |
|---|---|---|
";

const RULES: &str = r#"
permit(principal, action in Gateway::Action::"any", resource in Gateway::Domain::"amazonaws.com");
permit(principal, action in Gateway::Action::"any", resource == Gateway::Host::"api.binance.com");
permit(principal, action == Gateway::Action::"lend", resource);
@id("amounts")
permit(principal, action in Gateway::Action::"any", resource == Gateway::Host::"facts.test")
when { context.content.amount <= 5000 };
permit(principal, action in Gateway::Action::"any", resource == Gateway::Host::"forbidden.test");
@id("never")
forbid(principal, action, resource == Gateway::Host::"forbidden.test");
forbid(principal, action == Gateway::Action::"POST", resource == Gateway::Host::"allowed.test")
when { context.path == "/secret" };
permit(principal, action == Gateway::Action::"POST", resource == Gateway::Host::"api.stripe.com")
when { context.path == "/v1/refunds" };
permit(principal, action == Gateway::Action::"POST", resource == Gateway::Host::"api.openai.com")
when { context.path == "/v1/responses" };
permit(principal, action == Gateway::Action::"POST", resource == Gateway::Host::"api.anthropic.com")
when { context.path == "/v1/messages" };
@id("spent") @budget("few")
forbid(principal, action in Gateway::Action::"any", resource == Gateway::Host::"spent.test");
@id("soon") @budget("rare")
forbid(principal, action in Gateway::Action::"any", resource == Gateway::Host::"soon.test");
@id("asks") @ask("Shall it?")
forbid(principal, action in Gateway::Action::"any", resource)
when {
  ["asks.test", "api.stripe.com", "api.openai.com", "api.anthropic.com"].contains(context.host) &&
  context.method != "GET"
};
@id("asks/get") @ask("Shall it be read?")
forbid(principal, action in Gateway::Action::"read", resource == Gateway::Host::"asks.test");
"#;
