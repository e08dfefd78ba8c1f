//! `gateway policy test`: runs decision files against named policies, those of a configuration, or
//! those next to the decision files.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::load::{PolicyFiles, load};
use crate::app::{Code, ConfigFile, Failure, Paint, Terminal, safe};
use crate::cli::remedy;
use crate::credential::preset;
use crate::message::Origin;
use crate::policy::decisions::{DecisionReport, run};

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
        let origins = remedy::origins(config.as_ref());
        let mut failed = 0;
        let mut documents = Vec::new();
        for file in self.files()? {
            let judged = self.judged(&file, config.is_some());
            let Some(policies) = load(terminal, &judged, config.as_ref())? else {
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
            let slashes = |origin: &Origin| remedy::slashes(&origins, origin);
            let report = run(&policies, &text, preset::is_batch, slashes)
                .map_err(|error| cannot(error.to_string()).next("docs/policy.md has the format"))?;
            failed += report.failed.len();
            let by = self.judges(&judged);
            if terminal.json() {
                documents.push(document(&file, &by, &report));
            } else {
                print(terminal, &file, &by, &report);
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

    /// Returns the named policies; none if a configuration is named, whose own apply; else the file
    /// of the same name next to the decisions, with the guards of the parent folder.
    fn judged(&self, file: &Path, names_config: bool) -> Vec<PathBuf> {
        if names_config || !self.named.policies.is_empty() {
            return self.named.policies.clone();
        }
        let guards = file
            .parent()
            .and_then(Path::parent)
            .map(|folder| folder.join("default.cedar"));
        let beside = [guards, Some(file.with_extension("cedar"))];
        let beside = beside.into_iter().flatten();
        beside.filter(|path| path.exists()).collect()
    }

    /// Names the judging policies: the configuration if no file was chosen.
    fn judges(&self, judged: &[PathBuf]) -> Vec<String> {
        let config = self.config.path().filter(|_| judged.is_empty());
        let judged = judged.iter().map(PathBuf::as_path).chain(config);
        judged.map(|path| path.display().to_string()).collect()
    }
}

fn print(terminal: &Terminal, file: &Path, by: &[String], report: &DecisionReport) {
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
    let by = match by {
        [] => String::from("no policy"),
        by => by.join(", "),
    };
    terminal.line(format!(
        "{name}: {} of {total} decisions as expected, judged by {}",
        report.passed,
        safe(&by)
    ));
}

fn document(file: &Path, by: &[String], report: &DecisionReport) -> serde_json::Value {
    let failed = report.failed.iter().map(|surprise| {
        json!({
            "name": surprise.name, "expected": surprise.expected,
            "decided": surprise.decided, "reason": surprise.reason,
        })
    });
    json!({
        "file": file, "policies": by, "passed": report.passed,
        "failed": failed.collect::<Vec<_>>(),
    })
}
