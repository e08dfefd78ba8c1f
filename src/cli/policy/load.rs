//! Loads the policies for a command, and prints what is wrong with them.

use std::path::PathBuf;

use clap::Args;

use crate::cli::terminal::{Paint, Terminal, safe};
use crate::config::Config;
use crate::policy::{Policies, Problem, Problems, Settings, Source};

/// The policies that a command is about.
#[derive(Args)]
pub(super) struct PolicyFiles {
    /// A policy file, or a folder of them [default: those of the configuration]
    #[arg(long = "policy", value_name = "FILE")]
    pub(super) policies: Vec<PathBuf>,
}

/// Returns the sources of the named files and folders, or else of the configuration. Reports all
/// problems at once.
pub(super) fn sources(named: &[PathBuf], config: Option<&Config>) -> Result<Vec<Source>, Problems> {
    match config {
        Some(config) if named.is_empty() => config.policy.sources(),
        _ => {
            let files = named.to_vec();
            let rules = None;
            Settings { files, rules }.sources()
        }
    }
}

/// Loads the policies. Prints every problem and returns `None` if there are any.
pub(super) fn load(
    terminal: &Terminal,
    sources: Result<Vec<Source>, Problems>,
    config: Option<&Config>,
) -> Option<Policies> {
    let declared = config
        .map(|config| config.facts.clone())
        .unwrap_or_default();
    match sources.and_then(|sources| Policies::load(&sources, declared)) {
        Ok(policies) => Some(policies),
        Err(Problems(problems)) => {
            if terminal.json() {
                let problems: Vec<_> = problems.iter().map(problem_json).collect();
                terminal.document(&serde_json::json!({ "holds": false, "problems": problems }));
            } else {
                problems
                    .iter()
                    .for_each(|problem| tell(terminal, Paint::Red, "error", problem));
            }
            None
        }
    }
}

/// Prints a problem, and how to fix it.
pub(super) fn tell(terminal: &Terminal, paint: Paint, word: &str, problem: &Problem) {
    let mut place = safe(&problem.file);
    if problem.line > 0 {
        place.push_str(&format!(":{}:{}", problem.line, problem.column));
    }
    terminal.line(format!(
        "{}: {}: {}",
        terminal.paint(Paint::Bold, &place),
        terminal.paint(paint, word),
        safe(&problem.reason)
    ));
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
