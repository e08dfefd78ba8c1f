//! `gateway policy test`: runs decision files against the policies beside them or those of the
//! configuration.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::load::{PolicyFiles, load, sources};
use crate::cli::failure::{Code, Failure};
use crate::cli::flags::ConfigFile;
use crate::cli::terminal::{Paint, Terminal, safe};
use crate::config::Config;
use crate::credential::preset;
use crate::policy::decisions::{Report, run};
use crate::policy::{Problems, Source};

/// Runs decision files.
#[derive(Args)]
pub(in crate::cli) struct PolicyTest {
    /// Decision files [default: those of policies/decisions]
    files: Vec<PathBuf>,
    #[command(flatten)]
    named: PolicyFiles,
    #[command(flatten)]
    config: ConfigFile,
}

impl PolicyTest {
    pub(in crate::cli) fn run(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        let config = self.config.find()?;
        let mut failed = 0;
        let mut documents = Vec::new();
        for file in self.files()? {
            let Some(policies) = load(
                terminal,
                self.sources(&file, config.as_ref()),
                config.as_ref(),
            ) else {
                return Ok(Code::Failed);
            };
            let cannot = |why: String| {
                Failure::usage(format!(
                    "the decision file `{}` cannot be run",
                    file.display()
                ))
                .because(why)
            };
            let text = std::fs::read_to_string(&file).map_err(|error| cannot(error.to_string()))?;
            let report = run(&policies, &text, preset::is_batch)
                .map_err(|error| cannot(error.to_string()).next("docs/policy.md has the format"))?;
            failed += report.failed.len();
            if terminal.json() {
                documents.push(document(&file, &report));
            } else {
                print(terminal, &file, &report);
            }
        }
        if terminal.json() {
            terminal.document(&json!({ "holds": failed == 0, "files": documents }));
        }
        Ok(if failed == 0 { Code::Ok } else { Code::Failed })
    }

    fn files(&self) -> Result<Vec<PathBuf>, Failure> {
        if !self.files.is_empty() {
            return Ok(self.files.clone());
        }
        let folder = Path::new("policies/decisions");
        let none = |why: String| {
            Failure::usage("there is no decision file")
                .because(why)
                .next("name one: docs/policy.md has the format")
        };
        let mut files = Vec::new();
        for entry in std::fs::read_dir(folder)
            .map_err(|error| none(format!("`{}`: {error}", folder.display())))?
        {
            let path = entry.map_err(|error| none(error.to_string()))?.path();
            if path.extension().is_some_and(|end| end == "toml") {
                files.push(path);
            }
        }
        if files.is_empty() {
            return Err(none(format!("`{}` holds none", folder.display())));
        }
        files.sort();
        Ok(files)
    }

    /// Returns the named policies; else the file of the same name beside the decisions, with the
    /// guards of the parent folder; else those of the configuration.
    fn sources(&self, file: &Path, config: Option<&Config>) -> Result<Vec<Source>, Problems> {
        if !self.named.policies.is_empty() {
            return sources(&self.named.policies, None);
        }
        let guards = file
            .parent()
            .and_then(Path::parent)
            .map(|folder| folder.join("default.cedar"));
        let beside = [guards, Some(file.with_extension("cedar"))];
        let beside: Vec<_> = beside
            .into_iter()
            .flatten()
            .filter(|path| path.exists())
            .collect();
        sources(&beside, config)
    }
}

fn print(terminal: &Terminal, file: &Path, report: &Report) {
    let name = safe(&file.display().to_string());
    for surprise in &report.failed {
        terminal.line(format!(
            "{name}: {}: {}",
            terminal.paint(Paint::Red, "failed"),
            safe(&surprise.name)
        ));
        terminal.line(format!(
            "    expected {}, decided {}",
            safe(&surprise.expected),
            safe(&surprise.decided)
        ));
        terminal.line(format!("    why: {}", safe(&surprise.reason)));
    }
    let total = report.passed + report.failed.len();
    terminal.line(format!(
        "{name}: {} of {total} decisions as expected",
        report.passed
    ));
}

fn document(file: &Path, report: &Report) -> serde_json::Value {
    let failed = report.failed.iter().map(|surprise| {
        json!({
            "name": surprise.name, "expected": surprise.expected,
            "decided": surprise.decided, "reason": surprise.reason,
        })
    });
    json!({ "file": file, "passed": report.passed, "failed": failed.collect::<Vec<_>>() })
}
