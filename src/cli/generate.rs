//! `gateway generate`: shell completions for this program's commands and flags, and the manual
//! pages, made from the text of `--help`.

use std::io::{ErrorKind, Write as _, stdout};
use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use clap::{Subcommand, ValueEnum, ValueHint};
use clap_complete::{Shell, generate};
use serde_json::Value;

use crate::app::{Advise as _, Code, Context as _, Failure, Terminal};
use crate::cli::operate::gateways::ChosenGateway;
use crate::cli::operate::sessions;
use crate::credential::{preset, ring};

/// The names that a shell asks for while it completes.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum NameKind {
    Sessions,
    Credentials,
    Secrets,
}

/// What is made from the commands and flags.
#[derive(Subcommand)]
pub(super) enum GenerateCommand {
    /// Print the completions for a shell
    #[command(after_help = COMPLETIONS)]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the manual pages into a folder, one for each command
    #[command(
        after_help = "For yourself: gateway generate man ~/.local/share/man/man1, then `man gateway-exec`."
    )]
    Man {
        /// The folder, which is made if it does not exist
        #[arg(value_hint = ValueHint::DirPath)]
        folder: PathBuf,
    },
    /// Print names, one a line, for completions
    #[command(hide = true)]
    Names {
        /// Of what
        kind: NameKind,
    },
}

impl GenerateCommand {
    pub(super) fn run(self, commands: clap::Command, terminal: &Terminal) -> Result<Code, Failure> {
        match self {
            Self::Completions { shell } => completions(shell, commands),
            Self::Man { folder } => manual(&folder, commands, terminal),
            Self::Names { kind } => {
                kind.names().iter().for_each(|name| terminal.line(name));
                Ok(Code::Ok)
            }
        }
    }
}

impl NameKind {
    /// Returns the kind of the names that an argument of a command takes.
    fn of(command: &str, argument: &str) -> Option<Self> {
        match (command, argument) {
            ("exec", "into") | (_, "session") => Some(Self::Sessions),
            ("revoke" | "restore", "secret") => Some(Self::Credentials),
            ("rm", "name") => Some(Self::Secrets),
            _ => None,
        }
    }

    /// Returns the word that stands for the names until a script is complete.
    fn word(self) -> &'static str {
        match self {
            Self::Sessions => "__sessions__",
            Self::Credentials => "__credentials__",
            Self::Secrets => "__secrets__",
        }
    }

    /// Returns the names that exist now; none if they cannot be told. A shell expands what it is
    /// given, so names with other characters are left out.
    fn names(self) -> Vec<String> {
        let of_gateways = || ChosenGateway::default().find().unwrap_or_default();
        let mut names: Vec<String> = match self {
            Self::Sessions => {
                let all = of_gateways();
                let all = all.iter().flat_map(|one| sessions(one).unwrap_or_default());
                all.filter_map(|one| Some(one["id"].as_str()?.to_owned()))
                    .collect()
            }
            Self::Credentials => {
                let all = of_gateways();
                let all = all.iter().filter_map(|one| one.get_soon("/v1/status").ok());
                let name = |one: &Value| Some(one["name"].as_str()?.to_owned());
                let names = |status: Value| {
                    let all = status["credentials"].as_array().into_iter().flatten();
                    all.filter_map(name).collect::<Vec<_>>()
                };
                all.flat_map(names).collect()
            }
            Self::Secrets => ring::list().unwrap_or_default(),
        };
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:@/".contains(&byte);
        names.retain(|name| name.bytes().all(is_plain));
        names.sort();
        names.dedup();
        names
    }
}

/// Says of each argument which names it takes.
fn named(command: clap::Command) -> clap::Command {
    let name = command.get_name().to_owned();
    let command = command.mut_args(|argument| {
        let words = match (name.as_str(), argument.get_id().as_str()) {
            (_, "presets") | ("presets", "name") => preset::names().collect(),
            (name, id) => NameKind::of(name, id).map_or_else(Vec::new, |kind| vec![kind.word()]),
        };
        match words.is_empty() {
            true => argument,
            false => argument.value_parser(PossibleValuesParser::new(words)),
        }
    });
    command.mut_subcommands(named)
}

fn completions(shell: Shell, commands: clap::Command) -> Result<Code, Failure> {
    let mut script = Vec::new();
    generate(shell, &mut named(commands), "gateway", &mut script);
    let mut script = String::from_utf8_lossy(&script).into_owned();
    for kind in NameKind::value_variants() {
        let value = kind.to_possible_value();
        let name = value.as_ref().map_or("", |value| value.get_name());
        let asks = format!("(gateway generate names {name} 2>/dev/null)");
        // fish evaluates what it completes with, and the others the script.
        let asks = if shell == Shell::Fish {
            asks
        } else {
            format!("${asks}")
        };
        script = script.replace(kind.word(), &asks);
    }
    match stdout().lock().write_all(script.as_bytes()) {
        // A reader may have had enough.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::of("the completions cannot be printed", &error))
        }
        _ => Ok(Code::Ok),
    }
}

fn manual(folder: &Path, commands: clap::Command, terminal: &Terminal) -> Result<Code, Failure> {
    let shown = folder.display();
    std::fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(commands, folder))
        .context(format!("the manual pages cannot be written into {shown}"))
        .advise("name a folder that you can write to")?;
    terminal.note(format!(
        "the manual pages are in {shown}: man -l {shown}/gateway.1"
    ));
    Ok(Code::Ok)
}

const COMPLETIONS: &str =
    "bash: gateway generate completions bash > ~/.local/share/bash-completion/completions/gateway
zsh:  gateway generate completions zsh > ~/.zfunc/_gateway   (with `fpath+=~/.zfunc` before `compinit`)
fish: gateway generate completions fish > ~/.config/fish/completions/gateway.fish";
