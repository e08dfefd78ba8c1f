//! What programs print where a refusal is met: `docs/refusals.md` is made of it, by the real
//! program and real clients.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::met::{MET, UNMET};
use crate::program::CANARY;
use crate::sandbox::{exec, folder, user_command};
use crate::servers;

/// No program is left to guess: it prints the code or what to do, or the summary at the end says
/// it. None takes longer than a moment, and none blames the network alone.
#[test]
fn every_refusal_is_told_where_it_is_met() {
    let folder = folder(0);
    prepare(folder.path());
    let printed = together(folder.path());
    let mut rows = String::new();
    for (n, (code, script)) in MET.iter().enumerate() {
        let inside = &printed[n];
        if !inside.contains(code) {
            let said = alone(folder.path(), script);
            assert!(
                said.contains(code),
                "{script}: {code}
{said}
{inside}"
            );
        }
        let shown = plain(inside);
        let lower = shown.to_lowercase();
        assert!(!lower.contains("network error"), "{script}: {shown}");
        assert!(!lower.contains("could not resolve"), "{script}: {shown}");
        let command = script.replace('|', "\\|");
        rows += &format!("| `{code}` | `{command}` | {shown} |\n");
    }
    rows += "\n## What no program of a sandbox is told\n\n| codes | why |\n|---|---|\n";
    for (codes, why) in UNMET {
        rows += &format!("| `{}` | {why} |\n", codes.replace(' ', "` `"));
    }
    check_page(&rows);
    let met: BTreeSet<&str> = MET.iter().map(|(code, _)| *code).collect();
    let unmet: BTreeSet<&str> = UNMET
        .iter()
        .flat_map(|(codes, _)| codes.split(' '))
        .collect();
    let page = fs::read_to_string(page()).unwrap();
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

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/refusals.md")
}

/// The configuration, the rules and the servers of the sandbox.
fn prepare(folder: &Path) {
    let home = folder.join("home");
    let (certificate, sound) = servers::sound();
    fs::write(home.join("sound.pem"), certificate).unwrap();
    let permit = |host: &&str| {
        format!(
            "permit(principal, action in Gateway::Action::\"ask\", resource == Gateway::Host::\"{host}\");\n"
        )
    };
    let permits: Vec<String> = REACHED.iter().map(permit).collect();
    fs::write(home.join("rules.cedar"), permits.concat() + RULES).unwrap();
    let config = CONFIG
        .replace("PLAIN", &crate::program::origin().to_string())
        .replace("BROKEN", &servers::broken().to_string())
        .replace("SILENT", &servers::silent().to_string())
        .replace("FULL", &servers::full().to_string())
        .replace("SOUND", &sound.to_string());
    fs::write(home.join("gateway.toml"), config).unwrap();
    // What another project's sandbox knows.
    fs::create_dir(home.join("other")).unwrap();
    let mut command = sandbox(folder, "printf %s \"$TOKEN\"");
    let elsewhere = command.current_dir(home.join("other")).output().unwrap();
    fs::write(home.join("project/elsewhere"), elsewhere.stdout).unwrap();
}

fn sandbox(folder: &Path, script: &str) -> Command {
    let mut command = user_command(folder, 0);
    command
        .args(["exec", "--config", "../gateway.toml"])
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
        .env("BINANCE_API_KEY", "k".repeat(64))
        .env("BINANCE_API_SECRET", "s".repeat(64));
    command
}

/// Runs all of them in one sandbox, and returns what each printed.
fn together(folder: &Path) -> Vec<String> {
    let project = folder.join("home/project");
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    fs::set_permissions(&project, everybody).unwrap();
    let one = |(n, (_, script)): (usize, &(&str, &str))| {
        format!(
            "printf '\\001{n}\\001'; began=$(date +%s%N); ( {script}\n) 2>&1; printf '\\001'; echo $(( ($(date +%s%N) - began) / 1000000 ))\n"
        )
    };
    let scripts: Vec<String> = MET.iter().enumerate().map(one).collect();
    fs::write(folder.join("home/all"), scripts.concat()).unwrap();
    fs::copy(folder.join("home/all"), project.join("all")).unwrap();
    let child = exec(folder, sandbox(folder, "sh ./all"));
    for (asked, past, act) in [
        ("remove", "removed", &["reload"][..]),
        ("revoke", "revoked", &["revoke", "SPARE"]),
        ("pause", "paused", &["pause", "exec"]),
        ("end", "ended", &["end", "exec"]),
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
        fs::write(project.join(past), "").unwrap();
    }
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = text(&output.stdout);
    assert!(!said.contains(CANARY) && !text(&output.stderr).contains(CANARY));
    let parts: Vec<&str> = said.split('\u{1}').collect();
    let parts = parts[1..].chunks(3);
    assert_eq!(parts.len(), MET.len(), "{said}\n{}", text(&output.stderr));
    let printed = parts.enumerate().map(|(n, part)| {
        let took: u64 = part[2].trim().parse().unwrap();
        assert!(took < 20_000, "{:?}: {took} ms", MET[n]);
        part[1].to_owned()
    });
    printed.collect()
}

/// Runs one in a sandbox of its own, and returns all that a person sees.
fn alone(folder: &Path, script: &str) -> String {
    let output = sandbox(folder, script).output().unwrap();
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
    let path = page();
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

const REACHED: [&str; 17] = [
    "allowed.test",
    "10.1.2.3",
    "100.100.100.200",
    "plain.test",
    "api.test",
    "later.test",
    "broken.test",
    "slow.test",
    "down.test",
    "under.test",
    "spare.test",
    "reader.test",
    "slack.test",
    "full.test",
    "newer.test",
    "sound.test",
    "gone.test",
];

const CONFIG: &str = r#"
[policy]
files = ["rules.cedar"]
[limits]
head_timeout = "3s"
handshake_timeout = "3s"
progress_timeout = "3s"
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
match = "https://reports.s3.eu-central-1.amazonaws.com"
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
name = "exchange"
sign = "binance-hmac"
parts = { key = "env:BINANCE_API_KEY", secret = "env:BINANCE_API_SECRET" }
[[credential]]
name = "aws"
sign = "sigv4"
parts = { access_key = "env:AWS_ACCESS_KEY_ID", secret_key = "env:AWS_SECRET_ACCESS_KEY" }
regions = ["eu-central-1"]
services = ["s3"]
buckets = ["reports"]
actions = ["s3:GetObject", "s3:ListObjects", "s3:PutObject"]
[[credential]]
name = "LATER"
from = "env:KEY"
origins = ["https://spare.test"]
"#;

const RULES: &str = r#"
permit(principal, action in Gateway::Action::"ask", resource in Gateway::Domain::"amazonaws.com");
permit(principal, action in Gateway::Action::"ask", resource == Gateway::Host::"api.binance.com");
permit(principal, action == Gateway::Action::"lend", resource);
@id("amounts")
permit(principal, action in Gateway::Action::"ask", resource == Gateway::Host::"facts.test")
when { context.content.amount <= 5000 };
permit(principal, action in Gateway::Action::"ask", resource == Gateway::Host::"forbidden.test");
@id("never")
forbid(principal, action, resource == Gateway::Host::"forbidden.test");
forbid(principal, action == Gateway::Action::"POST", resource == Gateway::Host::"allowed.test")
when { context.path == "/secret" };
"#;
