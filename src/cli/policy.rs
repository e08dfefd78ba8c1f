//! `gateway policy`: checks policies, runs their decision files, and explains a recorded refusal,
//! by the code that enforces.

mod check;
mod schema;
mod test;
mod why;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::config::Config;
use crate::policy::{Policies, Problem, Problems, Settings, Source};

use super::failure::{Code, Failure};
use super::screen::{Paint, Screen, safe};

/// The commands about policies.
#[derive(Subcommand)]
pub(super) enum Policy {
    /// Load policies under strict validation and say what is doubtful in them
    Check(check::Check),
    /// Print what policies can read, with the facts that the configuration declares
    Schema(schema::Schema),
    /// Judge the requests of decision files and compare with what they expect
    Test(test::Test),
    /// Tell which policy decided a recorded request, and which one would allow it
    Why(why::Why),
}

/// The policies that a command is about.
#[derive(Args)]
struct Named {
    /// A policy file, or a folder of them [default: those of the configuration]
    #[arg(long = "policy", value_name = "FILE")]
    policies: Vec<PathBuf>,
}

impl Policy {
    pub(super) fn run(self, screen: &mut Screen) -> Result<Code, Failure> {
        match self {
            Self::Check(command) => command.run(screen),
            Self::Schema(command) => command.run(screen),
            Self::Test(command) => command.run(screen),
            Self::Why(command) => command.run(screen),
        }
    }
}

/// The sources of named files and folders, or else those of the configuration; all problems at
/// once.
fn sources(named: &[PathBuf], config: Option<&Config>) -> Result<Vec<Source>, Problems> {
    match config {
        Some(config) if named.is_empty() => config.policy.sources(),
        _ => {
            let files = named.to_vec();
            Settings { files }.sources()
        }
    }
}

/// Loads the policies, or prints every problem; `None` where there are some.
fn load(
    screen: &Screen,
    sources: Result<Vec<Source>, Problems>,
    config: Option<&Config>,
) -> Option<Policies> {
    let declared = config
        .map(|config| config.facts.clone())
        .unwrap_or_default();
    match sources.and_then(|sources| Policies::load(&sources, declared)) {
        Ok(policies) => Some(policies),
        Err(Problems(problems)) => {
            if screen.json() {
                let problems: Vec<_> = problems.iter().map(problem_json).collect();
                screen.document(&serde_json::json!({ "holds": false, "problems": problems }));
            } else {
                problems
                    .iter()
                    .for_each(|problem| tell(screen, Paint::Red, "error", problem));
            }
            None
        }
    }
}

fn tell(screen: &Screen, paint: Paint, word: &str, problem: &Problem) {
    let mut place = safe(&problem.file);
    if problem.line > 0 {
        place.push_str(&format!(":{}:{}", problem.line, problem.column));
    }
    screen.line(format!(
        "{}: {}: {}",
        screen.paint(Paint::Bold, &place),
        screen.paint(paint, word),
        safe(&problem.reason)
    ));
    if let Some(help) = &problem.help {
        screen.line(format!("    fix: {}", safe(help)));
    }
}

fn problem_json(problem: &Problem) -> serde_json::Value {
    serde_json::json!({
        "file": problem.file, "line": problem.line, "column": problem.column,
        "reason": problem.reason, "help": problem.help,
    })
}
