//! `gateway grants`: lists the rules that a person granted, and takes them back.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::json;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::failure::{Code, Failure};
use super::gateways::{ChosenGateway, Gateway};
use super::granted::{self, RuleGrant};
use super::granting::{LARGEST_MIB, hold, unread, write_allowed};
use super::serving;
use super::terminal::{Terminal, safe};
use crate::config::state;
use crate::files;

/// List what was granted with `gateway allow`, and take it back
#[derive(Args)]
pub(super) struct GrantsCommand {
    #[command(subcommand)]
    act: Option<GrantsAct>,
}

#[derive(Subcommand)]
enum GrantsAct {
    /// Take a grant back, also in the gateways that run
    Remove {
        /// Its number, as `gateway grants` shows it
        number: usize,
    },
}

/// A grant that is kept, and where.
struct KeptGrant {
    file: PathBuf,
    folder: String,
    grant: RuleGrant,
}

impl GrantsCommand {
    pub(super) fn run(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        let all = kept(&files_of_grants()?)?;
        match self.act {
            None => list(&all, terminal),
            Some(GrantsAct::Remove { number }) => {
                let none =
                    || Failure::new(format!("there is no grant {number}")).next("gateway grants");
                let one = number
                    .checked_sub(1)
                    .and_then(|at| all.get(at))
                    .ok_or_else(none)?;
                remove(one, terminal)?;
            }
        }
        Ok(Code::Ok)
    }
}

fn list(all: &[KeptGrant], terminal: &mut Terminal) {
    let time = |at: Option<OffsetDateTime>| at.and_then(|at| at.format(&Rfc3339).ok());
    let minute = |at: Option<OffsetDateTime>| time(at).map(|text| text[..16].replace('T', " "));
    let documents = all.iter().enumerate().map(|(at, one)| json!({
        "number": at + 1, "folder": one.folder, "file": one.file, "what": one.grant.shown(),
        "policy": one.grant.rule, "since": time(one.grant.since), "until": time(one.grant.until),
    }));
    let documents = documents.collect::<Vec<_>>();
    if terminal.json() {
        return terminal.document(&json!({ "grants": documents }));
    }
    for (at, one) in all.iter().enumerate() {
        let since = minute(one.grant.since).map(|text| format!("  since {text}"));
        let until = minute(one.grant.until).map(|text| format!("  until {text}"));
        terminal.line(format!(
            "{:>3}  {}  in {}{}{}",
            at + 1,
            safe(&one.grant.shown()),
            safe(&one.folder),
            since.unwrap_or_default(),
            until.unwrap_or_default(),
        ));
    }
}

/// Returns every grant that holds, the oldest first.
fn kept(files: &[PathBuf]) -> Result<Vec<KeptGrant>, Failure> {
    let mut all = Vec::new();
    for file in files {
        let text = read(file)?;
        let folder =
            granted::folder(&text).map_or_else(|| file.display().to_string(), str::to_owned);
        let grants = RuleGrant::all(&text)
            .into_iter()
            .filter(|grant| !grant.is_over());
        all.extend(grants.map(|grant| KeptGrant {
            file: file.clone(),
            folder: folder.clone(),
            grant,
        }));
    }
    // One after the other of a file, as they stand there.
    all.sort_by_key(|one| one.grant.since);
    Ok(all)
}

fn read(file: &Path) -> Result<String, Failure> {
    files::read(file, LARGEST_MIB).map_err(|unfit| unread(file, &unfit))
}

/// The files of grants: those of folders, and those of the gateways that run.
fn files_of_grants() -> Result<Vec<PathBuf>, Failure> {
    let folders = state::granted_directory().and_then(|all| std::fs::read_dir(all).ok());
    let folders = folders.into_iter().flatten().flatten();
    let mut all: Vec<PathBuf> = folders
        .map(|one| one.path().join("granted.cedar"))
        .collect();
    all.extend(ChosenGateway::default().find()?.iter().filter_map(file_of));
    all.retain(|file| file.exists());
    all.sort();
    all.dedup();
    Ok(all)
}

/// The file of what is granted in a running gateway.
pub(super) fn file_of(gateway: &Gateway) -> Option<PathBuf> {
    let status = gateway.get_soon("/v1/status").ok()?;
    status["granted"].as_str().map(PathBuf::from)
}

fn remove(one: &KeptGrant, terminal: &mut Terminal) -> Result<(), Failure> {
    {
        let _held = serving::runtime()?.block_on(hold(&one.file))?;
        let text = read(&one.file)?;
        let found = RuleGrant::all(&text)
            .into_iter()
            .find(|grant| grant.rule == one.grant.rule);
        let gone = || Failure::new("it was taken back meanwhile").next("gateway grants");
        write_allowed(
            &one.file,
            &granted::without(&text, &found.ok_or_else(gone)?),
        )?;
    }
    let (what, folder) = (safe(&one.grant.shown()), safe(&one.folder));
    let line = format!("taken back: {what} in {folder}");
    let document = json!({ "removed": one.grant.rule, "folder": one.folder, "file": one.file });
    terminal.answer(&document, line);
    reload(&one.file)
}

/// Has every running gateway that shares a file of grants read it.
fn reload(file: &Path) -> Result<(), Failure> {
    for gateway in ChosenGateway::default().find()? {
        if file_of(&gateway).as_deref() == Some(file) {
            gateway.post("/v1/reload", None)?;
        }
    }
    Ok(())
}
