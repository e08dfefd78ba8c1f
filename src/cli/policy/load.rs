//! Loads the policies for a command, and prints their problems.

use std::path::PathBuf;

use clap::Args;

use crate::app::reload::generation;
use crate::app::{Failure, Paint, Terminal, safe};
use crate::config::Config;
use crate::policy::{Policies, Problem, Problems, Settings, Source};

/// The policies that a command is about.
#[derive(Args)]
pub(super) struct PolicyFiles {
    /// A policy file, or a folder of them [default: those of the configuration]
    #[arg(long = "policy", value_name = "FILE")]
    pub(super) policies: Vec<PathBuf>,
}

/// Loads the named files and folders, or else the policies that `serve` has with the configuration.
/// Prints every problem and returns `None` if there are any.
///
/// # Errors
/// Returns a [`Failure`] if the configuration cannot be served.
pub(super) fn load(
    terminal: &Terminal,
    named: &[PathBuf],
    config: Option<&Config>,
) -> Result<Option<Policies>, Failure> {
    let declared = config.map_or_else(|| Config::default().declared(), Config::declared);
    let loaded = sources(named, config)?.and_then(|sources| Policies::load(&sources, declared));
    Ok(loaded.map_err(|problems| refuse(terminal, &problems)).ok())
}

fn sources(
    named: &[PathBuf],
    config: Option<&Config>,
) -> Result<Result<Vec<Source>, Problems>, Failure> {
    let Some(config) = config.filter(|_| named.is_empty()) else {
        let (files, rules) = (named.to_vec(), None);
        return Ok(Settings { files, rules }.sources());
    };
    match config.policy.sources() {
        Ok(_) => generation::served(config).map(Ok),
        Err(problems) => Ok(Err(problems)),
    }
}

fn refuse(terminal: &Terminal, Problems(problems): &Problems) {
    if terminal.json() {
        let problems: Vec<_> = problems.iter().map(problem_json).collect();
        return terminal.document(&serde_json::json!({ "holds": false, "problems": problems }));
    }
    for problem in problems {
        tell(terminal, Paint::Red, "error", problem);
    }
}

/// Prints a problem, and how to fix it.
pub(super) fn tell(terminal: &Terminal, paint: Paint, word: &str, problem: &Problem) {
    let mut place = safe(&problem.file);
    if problem.line > 0 {
        place.push_str(&format!(":{}:{}", problem.line, problem.column));
    }
    let place = terminal.paint(Paint::Bold, &place);
    let word = terminal.paint(paint, word);
    let reason = safe(&problem.reason);
    terminal.line(format!("{place}: {word}: {reason}"));
    if let Some(help) = &problem.help {
        terminal.line(format!("    fix: {}", safe(help)));
    }
}

/// Returns a problem as JSON.
pub(super) fn problem_json(problem: &Problem) -> serde_json::Value {
    serde_json::json!({
        "file": problem.file, "line": problem.line, "column": problem.column,
        "reason": problem.reason, "help": problem.help,
    })
}
