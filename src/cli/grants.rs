//! `gateway grants`: lists the rules that a person granted, and takes them back.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::json;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::app::process::serving;
use crate::app::{Code, Failure, Terminal, safe};
use crate::cli::operate::gateways::{ChosenGateway, Gateway};
use crate::cli::proposals::ProposalList;
use crate::config::state;
use crate::grant::{GrantedFile, GrantedRule};

/// List what was granted, take it back, and see what is proposed
#[derive(Args)]
pub(super) struct GrantsCommand {
    #[command(subcommand)]
    act: Option<GrantsAct>,
}

#[derive(Subcommand)]
enum GrantsAct {
    Proposed(ProposalList),
    /// Take a grant back, also in the gateways that run
    Remove {
        /// Its number, as `gateway grants` shows it
        number: usize,
    },
}

/// A grant that is kept, and where.
struct KeptGrant {
    file: GrantedFile,
    folder: String,
    grant: GrantedRule,
}

impl GrantsCommand {
    pub(super) fn run(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        match self.act {
            None => list(&kept()?, terminal),
            Some(GrantsAct::Proposed(command)) => return command.run(terminal),
            Some(GrantsAct::Remove { number }) => {
                let all = kept()?;
                let one = number.checked_sub(1).and_then(|at| all.get(at));
                let none = || Failure::new(format!("there is no grant {number}"));
                remove(one.ok_or_else(|| none().next("gateway grants"))?, terminal)?;
            }
        }
        Ok(Code::Ok)
    }
}

fn list(all: &[KeptGrant], terminal: &mut Terminal) {
    let time = |at: Option<OffsetDateTime>| at.and_then(|at| at.format(&Rfc3339).ok());
    if terminal.json() {
        let documents = all.iter().enumerate().map(|(at, one)| {
            json!({
                "number": at + 1, "folder": one.folder, "file": one.file.path(),
                "what": one.grant.shown(), "for": one.grant.whom(), "policy": one.grant.rule,
                "since": time(one.grant.since), "until": time(one.grant.until),
            })
        });
        let documents: Vec<_> = documents.collect();
        return terminal.document(&json!({ "grants": documents }));
    }
    let minute = |word: &str, at| {
        let text = time(at).map(|text| format!("  {word} {}", text[..16].replace('T', " ")));
        text.unwrap_or_default()
    };
    for (at, one) in all.iter().enumerate() {
        let (number, what, folder) = (at + 1, safe(&one.grant.shown()), safe(&one.folder));
        let whom = one
            .grant
            .whom()
            .map(|whom| format!("  for {}", safe(&whom)));
        let whom = whom.unwrap_or_default();
        let since = minute("since", one.grant.since);
        let until = minute("until", one.grant.until);
        terminal.line(format!(
            "{number:>3}  {what}{whom}  in {folder}{since}{until}"
        ));
    }
}

/// Returns every grant in force, the oldest first.
fn kept() -> Result<Vec<KeptGrant>, Failure> {
    let folders = state::granted_directory().and_then(|all| std::fs::read_dir(all).ok());
    let folders = folders.into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = folders
        .map(|one| one.path().join("granted.cedar"))
        .collect();
    files.extend(ChosenGateway::default().find()?.iter().filter_map(file_of));
    files.retain(|file| file.exists());
    files.sort();
    files.dedup();
    let mut all = Vec::new();
    for file in files.into_iter().map(GrantedFile::new) {
        let (folder, grants) = file.read()?;
        let folder = folder.unwrap_or_else(|| file.path().display().to_string());
        let grants = grants.into_iter().filter(|grant| !grant.is_over());
        all.extend(grants.map(|grant| KeptGrant {
            file: file.clone(),
            folder: folder.clone(),
            grant,
        }));
    }
    // The sort is stable: grants of one file keep their order.
    all.sort_by_key(|one| one.grant.since);
    Ok(all)
}

/// Returns the file of granted rules of a running gateway.
fn file_of(gateway: &Gateway) -> Option<PathBuf> {
    let status = gateway.get_soon("/v1/status").ok()?;
    status["granted"].as_str().map(PathBuf::from)
}

fn remove(one: &KeptGrant, terminal: &mut Terminal) -> Result<(), Failure> {
    serving::runtime()?.block_on(one.file.remove(&one.grant.rule))?;
    let (what, folder) = (safe(&one.grant.shown()), safe(&one.folder));
    let line = format!("taken back: {what} in {folder}");
    let (rule, file) = (&one.grant.rule, one.file.path());
    let document = json!({ "removed": rule, "folder": one.folder, "file": file });
    terminal.answer(&document, line);
    reload(file)
}

/// Reloads every running gateway that shares a file of grants.
fn reload(file: &Path) -> Result<(), Failure> {
    for gateway in ChosenGateway::default().find()? {
        if file_of(&gateway).as_deref() == Some(file) {
            gateway.post("/v1/reload", None)?;
        }
    }
    Ok(())
}
