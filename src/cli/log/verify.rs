//! `gateway log verify`: checks whether an audit log is intact, by its bytes alone.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;

use crate::audit::{self, ChainHead, ExpectedHeads, LocatedFault, LogFault, VerifyReport, verify};

use crate::app::{Code, ConfigFile, Failure, Paint, Terminal, audit_heads, safe};
use crate::cli::log::archive::{ListLogs, PruneLogs};
use crate::cli::log::logs;
use crate::cli::operate::gateways::ChosenGateway;

/// The commands about the files of audit logs.
#[derive(Subcommand)]
pub(crate) enum FilesCommand {
    /// Check that no record was changed, removed, inserted or moved
    #[command(
        after_help = "Ends with 0 if every log is complete, 3 if a gateway still writes one, 4 if the end of one is not proven, 1 if one does not hold."
    )]
    Verify(Verify),
    Ls(ListLogs),
    Prune(PruneLogs),
}

/// Checks audit logs.
#[derive(Args)]
pub(crate) struct Verify {
    /// The files of one log or of several, in any order, with what they were rotated into [default:
    /// that of `--config`, or those of the running gateways and of your state directory]
    files: Vec<PathBuf>,
    /// A record that must be there, as `gateway log verify` printed it earlier: finds a cut end
    #[arg(long, value_name = "SEQ:HASH")]
    head: Option<String>,
    /// The last record of older files that were put away on purpose
    #[arg(long, value_name = "SEQ:HASH")]
    base: Option<String>,
    /// Also check that no log lacks what its replica of the fleet had told the state, which the
    /// running gateway is asked for: finds a disk that was lost
    #[arg(long)]
    fleet: bool,
    #[command(flatten)]
    config: ConfigFile,
}

impl FilesCommand {
    pub(crate) fn run(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        match self {
            Self::Verify(command) => command.run(terminal),
            Self::Ls(command) => command.run(terminal),
            Self::Prune(command) => command.run(terminal),
        }
    }
}

impl Verify {
    fn run(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        let expected = ExpectedHeads {
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
            // Older files were archived on purpose, and may lie next to these.
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
        let lost = if self.fleet {
            lost(&chains)?
        } else {
            Vec::new()
        };
        let mut logs = Vec::new();
        for chain in chains {
            logs.push(VerifiedLog::of(chain, expected)?);
        }
        let worst = logs.iter().map(|log| log.verdict).max();
        let is_whole = !is_partial && lost.is_empty();
        let worst = worst.filter(|_| is_whole).unwrap_or(LogVerdict::Broken);
        if terminal.json() {
            let documents: Vec<_> = logs.iter().map(VerifiedLog::document).collect();
            let holds = worst != LogVerdict::Broken;
            terminal.document(
                &json!({ "holds": holds, "verdict": worst.parts().1, "logs": documents, "lost": lost }),
            );
        } else {
            let is_told =
                |log: &&VerifiedLog| logs.len() == 1 || log.verdict != LogVerdict::Complete;
            logs.iter()
                .filter(is_told)
                .for_each(|log| log.print(terminal));
            print_sum(terminal, &logs);
            for text in &lost {
                terminal.line(terminal.paint(Paint::Red, text));
            }
        }
        Ok(worst.parts().0)
    }
}

/// The verdict on a log, the best first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum LogVerdict {
    /// It ends with the record of its gateway's stop.
    Complete,
    /// A gateway is writing it.
    Open,
    /// The records that are there verify, and nothing shows that they are all.
    Prefix,
    /// Something was changed, removed, inserted or moved.
    Broken,
}

impl LogVerdict {
    const ALL: [Self; 4] = [Self::Complete, Self::Open, Self::Prefix, Self::Broken];

    /// Returns the exit code, the word for it, the sentence, and its colour.
    fn parts(self) -> (Code, &'static str, &'static str, Paint) {
        match self {
            Self::Complete => (Code::Ok, "complete", "holds, complete", Paint::Green),
            Self::Open => {
                let sentence = "holds, open: a gateway writes it";
                (Code::Exactly(3), "open", sentence, Paint::Green)
            }
            Self::Prefix => {
                let sentence = "holds, a prefix: its end is not proven";
                (Code::Exactly(4), "prefix", sentence, Paint::Yellow)
            }
            Self::Broken => (Code::Failed, "broken", "does not hold", Paint::Red),
        }
    }
}

/// A log after its verification.
struct VerifiedLog {
    chain: Vec<PathBuf>,
    report: VerifyReport,
    verdict: LogVerdict,
    /// A record later than the last, which the state knows of.
    missing: Option<ChainHead>,
}

impl VerifiedLog {
    /// Verifies a log, and stores its last record for the next time.
    fn of(chain: Vec<PathBuf>, expected: ExpectedHeads) -> Result<Self, Failure> {
        let unreadable = |error| Failure::of("the audit log cannot be verified", &error);
        let is_live = chain.last().is_some_and(|own| audit::is_live(own));
        let id = chain
            .iter()
            .rev()
            .find_map(|file| audit::chain_of(file).ok()?);
        let known = id.as_deref().map(audit_heads::of).transpose()?.flatten();
        let known = known.filter(|known| expected.base.is_none_or(|base| base.seq() < known.seq()));
        let head = expected.head.or(known);
        let mut report = verify(&chain, ExpectedHeads { head, ..expected }).map_err(unreadable)?;
        let missing = known.filter(|known| report.last.is_none_or(|last| last.seq() < known.seq()));
        let is_fault = |problem: &LocatedFault| match problem.fault {
            LogFault::HeadMissing(head) => expected.head.is_some() || missing != Some(head),
            LogFault::TornEnd => !is_live,
            _ => true,
        };
        report.problems.retain(is_fault);
        let verdict = match report.holds() {
            false => LogVerdict::Broken,
            true if missing.is_some() => LogVerdict::Prefix,
            true if is_live => LogVerdict::Open,
            true if report.stopped => LogVerdict::Complete,
            true => LogVerdict::Prefix,
        };
        if let (Some(id), Some(last), true) = (id, report.last, report.holds() && missing.is_none())
        {
            audit_heads::keep(&id, last);
        }
        Ok(Self {
            chain,
            report,
            verdict,
            missing,
        })
    }

    fn print(&self, terminal: &Terminal) {
        let shown = |path: &PathBuf| safe(&path.display().to_string());
        let files: Vec<_> = self.chain.iter().map(shown).collect();
        let (report, (_, _, sentence, paint)) = (&self.report, self.verdict.parts());
        let head = report.last.map(|last| format!(", head {last}"));
        terminal.line(format!(
            "{}: {}: {} records, {} exchanges{}",
            files.join(" "),
            terminal.paint(paint, sentence),
            report.records,
            report.exchanges,
            head.unwrap_or_default()
        ));
        if let Some(missing) = self.missing {
            let what = format!("record {missing} was there before, and is not now");
            terminal.line(format!("  {}", terminal.paint(Paint::Red, &what)));
        }
        for recovery in &report.recoveries {
            terminal.line(format!(
                "  {}:{}: recovered ({}): {} torn bytes, {} records lost",
                shown(&recovery.file),
                recovery.line,
                safe(&recovery.cause),
                recovery.torn_bytes,
                recovery.lost
            ));
        }
        for problem in &report.problems {
            let problem = safe(&problem.to_string());
            terminal.line(format!("  {}", terminal.paint(Paint::Red, &problem)));
        }
        if report.more > 0 {
            terminal.line(format!("  and {} more", report.more));
        }
    }

    fn document(&self) -> serde_json::Value {
        let report = &self.report;
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
            "files": self.chain, "holds": report.holds(), "verdict": self.verdict.parts().1,
            "chain": report.chain, "records": report.records, "exchanges": report.exchanges,
            "first": report.first.map(|head| head.to_string()),
            "last": report.last.map(|head| head.to_string()),
            "missing": self.missing.map(|head| head.to_string()),
            "recoveries": recoveries.collect::<Vec<_>>(), "problems": problems.collect::<Vec<_>>(),
            "more": report.more,
        })
    }
}

/// Returns the replicas of which a record is in none of these logs, each in a sentence.
fn lost(chains: &[Vec<PathBuf>]) -> Result<Vec<String>, Failure> {
    let unreadable = |error| Failure::of("the audit log cannot be verified", &error);
    let fleet = ChosenGateway::default().one()?.get("/v1/fleet")?;
    let mut lost = Vec::new();
    for replica in fleet["replicas"].as_array().into_iter().flatten() {
        let text = replica["head"].as_str().filter(|head| !head.is_empty());
        let Some(told) = head("head of a replica", text)? else {
            continue;
        };
        let mut is_here = false;
        for chain in chains {
            let head = Some(told);
            let report = verify(chain, ExpectedHeads { base: None, head }).map_err(unreadable)?;
            let mut faults = report.problems.iter().map(|problem| &problem.fault);
            is_here |= !faults.any(|fault| matches!(fault, LogFault::HeadMissing(_)));
        }
        if !is_here {
            let name = safe(replica["name"].as_str().unwrap_or_default());
            lost.push(format!(
                "replica {name}: its record {told} is in none of these logs"
            ));
        }
    }
    Ok(lost)
}

/// Prints how many logs have each verdict.
fn print_sum(terminal: &Terminal, logs: &[VerifiedLog]) {
    let count = |verdict| logs.iter().filter(|log| log.verdict == verdict).count();
    let counts = LogVerdict::ALL.map(|verdict| (count(verdict), verdict.parts().1));
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let counts = counts.map(|(count, word)| format!("{count} {word}"));
    let records: u64 = logs.iter().map(|log| log.report.records).sum();
    let (count, counts) = (logs.len(), crate::names::join(counts, ", "));
    let what = format!("{count} logs, {records} records: {counts}");
    if logs.len() > 1 {
        terminal.line(what);
    }
}

fn head(flag: &str, text: Option<&str>) -> Result<Option<ChainHead>, Failure> {
    text.map(str::parse)
        .transpose()
        .map_err(|malformed: crate::audit::ChainHeadMalformed| {
            Failure::usage(format!("`{flag}` cannot be read"))
                .because(malformed.to_string())
                .next("copy the head that an earlier verification printed")
        })
}
