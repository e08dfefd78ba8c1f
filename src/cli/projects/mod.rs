//! `gateway project`: a person's decisions about the project's own file, and about any other file
//! that a command in a sandbox could have written.

pub(crate) mod new_file;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;
use similar::{ChangeTag, TextDiff};

use crate::app::project::{project, working_directory};
use crate::app::settings::project_file;
use crate::app::settings::project_file::FileStanding;
use crate::app::settings::shell_secrets::SecretAnswers;
use crate::app::terminal::rows_of_peer;
use crate::app::{Code, Failure, Paint, Terminal, safe};
use crate::cli::config_summary::ConsentEffects;
use crate::cli::confirm::confirmed;
use crate::config::Config;
use crate::credential::preset;
use crate::files::{self, Choice, Consent};

/// The commands about the project's file.
#[derive(Subcommand)]
pub(crate) enum ProjectCommand {
    /// Let `gateway exec` take up the project's file: shows what it does and what changed, and asks
    Allow(AllowFile),
    /// Have `gateway exec` ignore the project's file
    Deny(OneFile),
    /// Forget what was decided about the project's file
    Forget(OneFile),
    /// Tell whether the project's file is in force
    Status(OneFile),
    /// Show, or change, which known secrets of your shell commands in this project may use
    Secrets(ProjectSecrets),
}

/// Changes what was answered.
#[derive(Args)]
pub(crate) struct ProjectSecrets {
    /// Let commands use it: a variable such as `GITHUB_TOKEN`, or `aws`
    #[arg(long, value_name = "NAME")]
    lend: Vec<String>,
    /// Do not let commands use it
    #[arg(long, value_name = "NAME")]
    withhold: Vec<String>,
    /// Forget every answer, so that the next start in a terminal asks
    #[arg(long)]
    forget: bool,
}

/// Allows the project's file.
#[derive(Args)]
pub(crate) struct AllowFile {
    #[command(flatten)]
    file: OneFile,
    /// Allow it without a question
    #[arg(long, short)]
    yes: bool,
}

/// Names the file.
#[derive(Args)]
pub(crate) struct OneFile {
    /// The file [default: `gateway.toml` of this folder, else of the nearest above]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

impl ProjectCommand {
    pub(crate) fn run(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        match self {
            Self::Allow(command) => command.run(terminal),
            Self::Deny(named) => {
                let path = named.path()?;
                let consent = Consent {
                    choice: Choice::Denied,
                    ..Consent::to(&path, "")
                };
                consent.keep()?;
                told(terminal, &path, "ignored");
                Ok(Code::Ok)
            }
            Self::Forget(named) => {
                let path = named.path()?;
                Consent::forget(&path)?;
                told(terminal, &path, "undecided");
                Ok(Code::Ok)
            }
            Self::Status(named) => status(terminal, &named.path()?),
            Self::Secrets(command) => command.run(terminal),
        }
    }
}

impl ProjectSecrets {
    fn run(self, terminal: &Terminal) -> Result<Code, Failure> {
        let mut answers = if self.forget {
            SecretAnswers::none(&project()?)
        } else {
            SecretAnswers::of(&project()?)?
        };
        for (names, is_lent) in [(&self.lend, true), (&self.withhold, false)] {
            for name in names {
                answers.set(&known_secret(name)?, is_lent);
            }
        }
        if self.forget || !self.lend.is_empty() || !self.withhold.is_empty() {
            answers.keep()?;
        }
        if terminal.json() {
            terminal.document(&answers);
            return Ok(Code::Ok);
        }
        for (name, is_lent) in answers.all() {
            let word = if is_lent { "lent" } else { "withheld" };
            let word = terminal.paint(Paint::Bold, word);
            let name = safe(name);
            terminal.line(format!("{word} {name}"));
        }
        if answers.all().next().is_none() {
            terminal.line("nothing was asked yet: `gateway exec` does, in a terminal");
        }
        Ok(Code::Ok)
    }
}

/// Returns the credential that a person names.
fn known_secret(name: &str) -> Result<String, Failure> {
    if name == "aws" || name.starts_with("AWS_") {
        return Ok("aws".to_owned());
    }
    let known = preset::of_variable(name).map(|(_, one)| one.name.to_string());
    let mut names = preset::all().flat_map(|preset| &preset.credentials);
    let mut is_name = || names.any(|one| one.name.as_str() == name);
    known
        .or_else(|| is_name().then(|| name.to_owned()))
        .ok_or_else(|| {
            Failure::usage(format!("no preset knows `{}`", safe(name)))
                .because("only of a known secret it is known where it may go")
                .next("name its host when you start: `--secret NAME@HOST`")
        })
}

impl AllowFile {
    fn run(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        let path = self.file.path()?;
        let text = project_file::read(&path)?;
        let config = match self.file.file {
            Some(_) => configuration(terminal, &path, &text),
            None => Some(Config::of_project(&text, &path)?),
        };
        if let Some(config) = &config {
            terminal.warn(&config.warnings);
        }
        let before = Consent::of(&path)?.filter(|one| one.choice == Choice::Allowed);
        if before.as_ref().is_some_and(|before| before.text == text) {
            told(terminal, &path, "allowed");
            return Ok(Code::Ok);
        }
        show(terminal, before.as_ref(), &text, |row| terminal.line(row));
        if let Some(config) = config {
            files::to_show(|| ConsentEffects::of(&config))?.print(terminal);
        }
        let file = safe(&path.display().to_string());
        let question = format!("Let the gateway obey {file}?");
        if !self.yes && !confirmed(&question)? {
            terminal.note("gateway: nothing was changed");
            return Ok(Code::Failed);
        }
        allow(&path, &text)?;
        told(terminal, &path, "allowed");
        Ok(Code::Ok)
    }
}

/// Puts exactly this text in force.
///
/// # Errors
/// Returns a [`Failure`] if this cannot be stored.
pub(crate) fn allow(path: &Path, text: &str) -> Result<(), Failure> {
    Ok(Consent::to(path, text).keep()?)
}

/// Reads a named configuration; `None` if it is another file, such as policies, a recipe or roots,
/// whose text shows all its effects.
fn configuration(terminal: &Terminal, path: &Path, text: &str) -> Option<Config> {
    if let Ok(config) = Config::of_project(text, path) {
        return Some(config);
    }
    let config = files::to_show(|| Config::from_str(text, path)).ok()?;
    let what = "this is more than a project's file may hold";
    let next = "it is in force where it is named: `--config FILE`";
    terminal.warning("careful", &format!("{what}; {next}"));
    Some(config)
}

impl OneFile {
    /// Returns the file's path, as it will be found again.
    fn path(&self) -> Result<PathBuf, Failure> {
        let unreadable = |error: std::io::Error| Failure::of("the folder cannot be read", &error);
        if let Some(file) = &self.file {
            let folder = std::path::absolute(file).map_err(unreadable)?;
            let folder = folder.parent().unwrap_or(Path::new("/"));
            let folder = folder.canonicalize().map_err(unreadable)?;
            let name = file
                .file_name()
                .ok_or_else(|| Failure::usage("it is no file").next("name the file itself"))?;
            return Ok(folder.join(name));
        }
        let here = working_directory()?;
        project_file::find(&here).ok_or_else(|| {
            Failure::new("there is no project's file here")
                .because(format!(
                    "neither `{}` nor a folder of yours above has a `{}`",
                    here.display(),
                    project_file::NAME
                ))
                .next("`gateway init` proposes one")
        })
    }
}

fn status(terminal: &Terminal, path: &Path) -> Result<Code, Failure> {
    let (word, next) = match project_file::standing(path)? {
        FileStanding::Allowed(_) => ("allowed", None),
        FileStanding::Denied => ("ignored", Some("`gateway project allow` takes it up")),
        FileStanding::Changed if project_file::is_gone(path) => (
            "gone",
            Some("put it back, or give it up: `gateway project forget`"),
        ),
        FileStanding::Changed => (
            "changed",
            Some("`gateway project allow` shows what changed"),
        ),
        FileStanding::Undecided => (
            "undecided",
            Some("`gateway project allow` shows it and asks"),
        ),
    };
    if terminal.json() {
        terminal.document(&json!({ "file": path, "standing": word, "next": next }));
        return Ok(Code::Ok);
    }
    told(terminal, path, word);
    if let Some(next) = next {
        terminal.line(format!("  {next}"));
    }
    Ok(Code::Ok)
}

fn told(terminal: &Terminal, path: &Path, word: &str) {
    if !terminal.json() {
        let shown = safe(&path.display().to_string());
        terminal.line(format!("{} {shown}", terminal.paint(Paint::Bold, word)));
    }
}

/// Shows the whole text, or its difference from the allowed one, row by row.
fn show(terminal: &Terminal, before: Option<&Consent>, text: &str, print: impl Fn(String)) {
    let before = before.map_or("", |before| &before.text);
    // A carriage return is part of a line, so that a change of line ends is seen.
    let old: Vec<&str> = before.split_terminator('\n').collect();
    let new: Vec<&str> = text.split_terminator('\n').collect();
    let diff = TextDiff::configure()
        .timeout(COMPARED_FOR)
        .diff_slices(&old, &new);
    for change in diff.iter_all_changes() {
        let (mark, paint) = match change.tag() {
            ChangeTag::Equal => (' ', Paint::Dim),
            ChangeTag::Delete => ('-', Paint::Red),
            ChangeTag::Insert => ('+', Paint::Green),
        };
        for row in rows_of_peer(&format!("{mark} {}", safe(change.value()))) {
            print(terminal.paint(paint, &row));
        }
    }
}

/// Shows at the terminal files of a configuration that a command could have written, and what a run
/// with it does. Asks about all of them at once; returns whether they are allowed now.
///
/// # Errors
/// Returns a [`Failure`] if the answer cannot be stored.
pub(super) fn ask(
    files: &BTreeMap<PathBuf, String>,
    config: &Config,
    terminal: &Terminal,
) -> Result<bool, Failure> {
    for (path, text) in files {
        let name = safe(&path.display().to_string());
        terminal.note(terminal.paint(Paint::Bold, &name));
        let before = Consent::of(path)?.filter(|one| one.choice == Choice::Allowed);
        show(terminal, before.as_ref(), text, |row| terminal.note(row));
    }
    files::to_show(|| ConsentEffects::of(config))?.note(terminal);
    let question = match files.len() {
        1 => "Let the gateway obey this file, which a command could have written?".to_owned(),
        count => {
            format!("Let the gateway obey these {count} files, which a command could have written?")
        }
    };
    if !confirmed(&question)? {
        return Ok(false);
    }
    files
        .iter()
        .try_for_each(|(path, text)| allow(path, text))?;
    Ok(true)
}

/// How long the shortest difference is looked for; after that, any will do.
const COMPARED_FOR: Duration = Duration::from_secs(1);
