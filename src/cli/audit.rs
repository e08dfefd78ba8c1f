//! `gateway audit`: checks from its bytes alone whether an audit log is intact.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;

use crate::audit::{Expected, Head, Report, verify};

use super::archive::{ListLogs, PruneLogs};
use super::failure::{Code, Failure};
use super::flags::ConfigFile;
use super::logs;
use super::terminal::{Paint, Terminal, safe};

/// The commands about the audit log.
#[derive(Subcommand)]
pub(super) enum AuditCommand {
    /// Check that no record was changed, removed, inserted or moved
    Verify(Verify),
    Ls(ListLogs),
    Prune(PruneLogs),
}

/// Checks audit logs.
#[derive(Args)]
pub(super) struct Verify {
    /// The files of one log or of several, in any order, with what they were rotated into [default:
    /// that of `--config`, or those of the running gateways and of your state directory]
    files: Vec<PathBuf>,
    /// A record that must be there, as `gateway audit verify` printed it earlier: finds a cut end
    #[arg(long, value_name = "SEQ:HASH")]
    head: Option<String>,
    /// The last record of older files that were put away on purpose
    #[arg(long, value_name = "SEQ:HASH")]
    base: Option<String>,
    #[command(flatten)]
    config: ConfigFile,
}

impl AuditCommand {
    pub(super) fn run(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        match self {
            Self::Verify(command) => command.run(terminal),
            Self::Ls(command) => command.run(terminal),
            Self::Prune(command) => command.run(terminal),
        }
    }
}

impl Verify {
    fn run(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        let expected = Expected {
            base: head("--base", self.base.as_deref())?,
            head: head("--head", self.head.as_deref())?,
        };
        let config = if self.files.is_empty() {
            self.config.find()?
        } else {
            None
        };
        let mut is_partial = false;
        let chains = if expected.base.is_some() && !self.files.is_empty() {
            // Older files were archived on purpose, perhaps beside these.
            vec![self.files.clone()]
        } else {
            let found = logs::find(&self.files, config.as_ref(), terminal)?;
            is_partial = found.is_partial;
            found.chains
        };
        if chains.len() > 1 && (expected.base.is_some() || expected.head.is_some()) {
            return Err(Failure::usage(
                "`--head` and `--base` are about one log, and there are several",
            )
            .next("name its files"));
        }
        let mut holds = !is_partial;
        let mut documents = Vec::new();
        for chain in chains {
            let report = verify(&chain, expected)
                .map_err(|error| Failure::of("the audit log cannot be verified", &error))?;
            holds &= report.holds();
            if terminal.json() {
                documents.push(document(&chain, &report));
            } else {
                print(terminal, &chain, &report);
            }
        }
        if terminal.json() {
            terminal.document(&json!({ "holds": holds, "logs": documents }));
        }
        Ok(if holds { Code::Ok } else { Code::Failed })
    }
}

fn head(flag: &str, text: Option<&str>) -> Result<Option<Head>, Failure> {
    text.map(str::parse)
        .transpose()
        .map_err(|malformed: crate::audit::HeadMalformed| {
            Failure::usage(format!("`{flag}` cannot be read"))
                .because(malformed.to_string())
                .next("copy the head that an earlier verification printed")
        })
}

fn print(terminal: &Terminal, chain: &[PathBuf], report: &Report) {
    let files: Vec<_> = chain
        .iter()
        .map(|path| safe(&path.display().to_string()))
        .collect();
    let verdict = if report.holds() {
        terminal.paint(Paint::Green, "holds")
    } else {
        terminal.paint(Paint::Red, "does not hold")
    };
    terminal.line(format!(
        "{}: {verdict}: {} records, {} exchanges",
        files.join(" "),
        report.records,
        report.exchanges
    ));
    if let Some(last) = report.last {
        terminal.line(format!("  head {last}"));
    }
    for recovery in &report.recoveries {
        terminal.line(format!(
            "  {}:{}: recovered ({}): {} torn bytes, {} records lost",
            safe(&recovery.file.display().to_string()),
            recovery.line,
            safe(&recovery.cause),
            recovery.torn_bytes,
            recovery.lost
        ));
    }
    for problem in &report.problems {
        terminal.line(format!(
            "  {}",
            terminal.paint(Paint::Red, &safe(&problem.to_string()))
        ));
    }
    if report.more > 0 {
        terminal.line(format!("  and {} more", report.more));
    }
}

fn document(chain: &[PathBuf], report: &Report) -> serde_json::Value {
    let recoveries = report.recoveries.iter().map(|recovery| {
        json!({
            "file": recovery.file, "line": recovery.line, "cause": recovery.cause,
            "torn_bytes": recovery.torn_bytes, "lost": recovery.lost,
        })
    });
    let problems = report.problems.iter().map(
        |problem| json!({ "file": problem.file, "line": problem.line, "what": problem.fault.to_string() }),
    );
    json!({
        "files": chain, "holds": report.holds(), "chain": report.chain,
        "records": report.records, "exchanges": report.exchanges,
        "first": report.first.map(|head| head.to_string()), "last": report.last.map(|head| head.to_string()),
        "recoveries": recoveries.collect::<Vec<_>>(), "problems": problems.collect::<Vec<_>>(), "more": report.more,
    })
}
