//! The clients that `doctor` checks, and the result of each.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::origin::{HOST, MARK};
use crate::app::{Code, Context as _, Failure, Paint, Terminal, safe};

/// One client.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClientCheck {
    name: String,
    /// The program to find in `PATH`.
    program: String,
    /// A shell command that fails if the client is not installed, although the program is.
    #[serde(default)]
    installed: String,
    /// A shell command whose output holds [`MARK`] if the client gets through. `$U` is the origin's
    /// URL.
    script: String,
    /// The words of its output if it does not trust the session's CA.
    distrust: String,
}

static CHECKS: LazyLock<Vec<ClientCheck>> = LazyLock::new(|| {
    let text = include_str!("../../../policies/clients.toml");
    let mut tables: BTreeMap<String, Vec<ClientCheck>> =
        toml::from_str(text).expect("it is part of the program, and a test reads it");
    tables.remove("client").unwrap_or_default()
});

/// The result for a client.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum ClientVerdict {
    /// It works.
    Ok,
    /// It does not work.
    Fails,
    /// It exists outside, but the sandbox's user may not run it.
    Closed,
    /// It is missing or incomplete.
    Absent,
}

#[derive(Serialize)]
struct ClientFinding {
    client: &'static str,
    program: Option<PathBuf>,
    verdict: ClientVerdict,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<&'static str>,
}

/// Returns the names of the clients whose programs are in `PATH`.
pub(crate) fn found() -> Vec<&'static str> {
    let here = CHECKS
        .iter()
        .filter(|check| program(&check.program).is_some());
    here.map(|check| &*check.name).collect()
}

/// Checks each client and prints one line for it. `outside` names those found outside the sandbox.
///
/// # Errors
/// Returns a [`Failure`] if there is no space for a client's files.
pub(crate) fn run(terminal: &Terminal, outside: &[&str]) -> Result<Code, Failure> {
    let folder = std::env::temp_dir().join(format!("gateway-doctor-{}", std::process::id()));
    std::fs::create_dir(&folder).context("there is no room for the clients' files")?;
    let mut findings = Vec::new();
    for check in &*CHECKS {
        let finding = examine(check, outside.contains(&&*check.name), &folder);
        if !terminal.json() {
            show(terminal, &finding);
        }
        findings.push(finding);
    }
    // Anything left there is removed with the sandbox.
    let _ = std::fs::remove_dir_all(&folder);
    if terminal.json() {
        terminal.document(&findings);
    } else {
        let absent = findings
            .iter()
            .filter(|finding| finding.verdict == ClientVerdict::Absent);
        let absent: Vec<_> = absent.map(|finding| finding.client).collect();
        if !absent.is_empty() {
            let text = format!("absent  {}", absent.join(", "));
            terminal.line(terminal.paint(Paint::Dim, &text));
        }
    }
    let failed = findings
        .iter()
        .any(|finding| finding.verdict == ClientVerdict::Fails);
    Ok(if failed { Code::Failed } else { Code::Ok })
}

fn examine(check: &'static ClientCheck, outside: bool, folder: &Path) -> ClientFinding {
    let finding = |program, verdict, why, remedy| ClientFinding {
        client: &check.name,
        program,
        verdict,
        why,
        remedy,
    };
    let Some(program) = program(&check.program) else {
        return if outside {
            finding(None, ClientVerdict::Closed, None, Some(CLOSED))
        } else {
            finding(None, ClientVerdict::Absent, None, None)
        };
    };
    let installed =
        check.installed.is_empty() || shell(&check.installed, folder).is_ok_and(|(ended, _)| ended);
    if !installed {
        return finding(Some(program), ClientVerdict::Absent, None, None);
    }
    match shell(&check.script, folder) {
        Ok((true, output)) if output.contains(MARK) => {
            finding(Some(program), ClientVerdict::Ok, None, None)
        }
        Ok((_, output)) => {
            let (why, remedy) = diagnose(check, &output);
            finding(Some(program), ClientVerdict::Fails, Some(why), Some(remedy))
        }
        Err(error) => finding(
            Some(program),
            ClientVerdict::Fails,
            Some(error.to_string()),
            Some(STUCK),
        ),
    }
}

fn show(terminal: &Terminal, finding: &ClientFinding) {
    let (paint, word) = match finding.verdict {
        ClientVerdict::Ok => (Paint::Green, "ok    "),
        ClientVerdict::Fails => (Paint::Red, "fails "),
        ClientVerdict::Closed => (Paint::Yellow, "closed"),
        ClientVerdict::Absent => return,
    };
    let program = finding.program.as_ref();
    let program = program.map(|path| path.display().to_string());
    let word = terminal.paint(paint, word);
    let client = &finding.client;
    let program = safe(&program.unwrap_or_default());
    let line = format!("{word}  {client:<16} {program}");
    terminal.line(line.trim_end());
    if let Some(why) = &finding.why {
        terminal.line(format!("        why: {}", safe(why)));
    }
    if let Some(remedy) = finding.remedy {
        terminal.line(format!("        fix: {remedy}"));
    }
}

/// Returns the last line of a client's output, and a remedy.
fn diagnose(check: &'static ClientCheck, output: &str) -> (String, &'static str) {
    let low = output.to_ascii_lowercase();
    let says = |words: &str| words.split('|').any(|word| low.contains(word));
    let why = output.lines().rev().find(|line| !line.trim().is_empty());
    let why: String = why
        .unwrap_or("it said nothing")
        .trim()
        .chars()
        .take(200)
        .collect();
    let remedies: [(&str, &'static str); 3] = [
        (
            "certificate|pkix|x509|ssl|unable_to_|self_signed",
            &*check.distrust,
        ),
        (
            "401|unauthorized|authentication|no credential|error: 400|403",
            UNLENT,
        ),
        (
            "resolve|enotfound|eai_again|name or service|no such host",
            UNRESOLVED,
        ),
    ];
    let remedy = remedies.into_iter().find(|(words, _)| says(words));
    (why, remedy.map_or(STUCK, |(_, remedy)| remedy))
}

/// Runs a command for at most [`LONGEST`]. Returns whether it succeeded, and its output.
fn shell(script: &str, folder: &Path) -> std::io::Result<(bool, String)> {
    let said = folder.join("said");
    let file = File::create(&said)?;
    let mut child = Command::new("/bin/sh")
        .args(["-c", script])
        .env("U", format!("https://{HOST}"))
        .env("T", folder)
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .spawn()?;
    let until = Instant::now() + LONGEST;
    let ended = loop {
        match child.try_wait()? {
            Some(status) => break status.success(),
            None if Instant::now() < until => std::thread::sleep(Duration::from_millis(10)),
            None => {
                child.kill()?;
                child.wait()?;
                break false;
            }
        }
    };
    let mut output = Vec::new();
    File::open(&said)?
        .take(MOST_SAID)
        .read_to_end(&mut output)?;
    Ok((ended, String::from_utf8_lossy(&output).into_owned()))
}

/// Returns the first program of this name in `PATH` that this user may run.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| {
            let known = file
                .metadata()
                .is_ok_and(|known| known.is_file() && known.permissions().mode() & 0o111 != 0);
            known && rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok()
        })
}

const LONGEST: Duration = Duration::from_secs(30);
/// The most output that is read from a client, in bytes.
const MOST_SAID: u64 = 64 << 10;

const CLOSED: &str = "its folder is closed to the sandbox's user: run `gateway doctor` as an ordinary user, or `exec --user`";
const UNLENT: &str = "it changed or left out the phantom: look for a credential of its own (netrc, key ring, configuration)";
const UNRESOLVED: &str = "it does not ask the system's resolver: look for DNS settings of its own";
const STUCK: &str = "run it by hand: `gateway exec --allow HOST -- CMD`, then `gateway why ID` for what was refused";

#[cfg(test)]
mod tests {
    use super::super::origin::VARIABLE;
    use super::*;

    #[test]
    fn every_check_shows_the_phantom_and_asks_the_doctors_origin() {
        for check in &*CHECKS {
            assert!(check.script.contains(VARIABLE), "{}", check.name);
            assert!(check.script.contains("U"), "{}", check.name);
            assert!(check.script.contains(&check.program), "{}", check.name);
        }
    }

    #[test]
    fn a_clients_words_lead_to_a_remedy() {
        let remedy = |output| diagnose(&CHECKS[0], output).1;
        assert_eq!(
            remedy("curl: (60) SSL certificate problem"),
            CHECKS[0].distrust
        );
        assert_eq!(remedy("The requested URL returned error: 401"), UNLENT);
        assert_eq!(remedy("curl: (6) Could not resolve host"), UNRESOLVED);
        assert_eq!(remedy(""), STUCK);
    }

    #[test]
    fn a_command_that_goes_wrong_is_told_by_its_end_and_its_words() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(
            shell("echo $U; echo no >&2; false", folder.path()).unwrap(),
            (false, format!("https://{HOST}\nno\n"))
        );
        assert_eq!(
            shell("echo yes", folder.path()).unwrap(),
            (true, String::from("yes\n"))
        );
    }
}
