//! `gateway secret`: stores secrets in the key ring, lists their names, and removes them; lists the
//! services whose secrets are known by name. It never prints a secret.

use std::io::IsTerminal as _;

use clap::{Args, Subcommand};
use serde_json::json;

use crate::config::literal::{looks_secret, shown};
use crate::credential::ring::{self, RingError};
use crate::credential::{MIN_BYTES, SecretUnsafe, StoreError, preset};
use crate::names::CredentialName;

use crate::app::{Code, Failure, Terminal, safe};
use crate::cli::confirm::confirmed;
use crate::cli::credential::presets::Presets;

/// The commands about stored secrets.
#[derive(Subcommand)]
pub(crate) enum SecretCommand {
    /// Store a secret, read from standard input or typed without echo
    Set(SecretName),
    /// Remove a secret
    Rm(SecretName),
    /// List the names of the stored secrets
    List,
    /// List the services that are known by name: their variables, origins and places
    Presets(Presets),
}

/// Names a secret.
#[derive(Args)]
pub(crate) struct SecretName {
    /// The name, as in `keyring:gateway/NAME`
    name: String,
    /// What follows the name is refused: an argument is seen by every process of the machine
    #[arg(hide = true)]
    rest: Vec<String>,
}

impl SecretCommand {
    /// Runs it. Returns the name too of a key that the person wants checked.
    pub(crate) fn run(
        self,
        terminal: &mut Terminal,
    ) -> Result<(Code, Option<CredentialName>), Failure> {
        match self {
            Self::Set(named) => {
                let name = named.check()?;
                let value = ring::read_secret(&format!("{name}: "))
                    .map_err(|error| failed("nothing was stored", &error))?;
                ring::set(&name, value).map_err(|error| failed("nothing was stored", &error))?;
                done(
                    terminal,
                    &name,
                    "stored",
                    "write `from = \"keyring:gateway/NAME\"`, or `--secret NAME@HOST=keyring:gateway/NAME`",
                );
                return Ok((Code::Ok, is_asked(&name, terminal)?.then_some(name)));
            }
            Self::Rm(named) => {
                let name = named.check()?;
                ring::delete(&name).map_err(|error| failed("nothing was removed", &error))?;
                done(
                    terminal,
                    &name,
                    "removed",
                    "revoke it where it was issued, too",
                );
            }
            Self::List => {
                let names = ring::list()
                    .map_err(|error| failed("the key ring cannot be listed", &error))?;
                if terminal.json() {
                    terminal.document(&names);
                } else {
                    names.iter().for_each(|name| terminal.line(safe(name)));
                }
            }
            Self::Presets(command) => return Ok((command.run(terminal)?, None)),
        }
        Ok((Code::Ok, None))
    }
}

impl SecretName {
    fn check(&self) -> Result<CredentialName, Failure> {
        if !self.rest.is_empty() || looks_secret(&self.name) {
            return Err(Failure::usage("a secret is never an argument")
                .because("every process of this machine can read the arguments of another, and the shell keeps them")
                .next("give it on standard input: `gateway secret set NAME`; and rotate the one that was typed"));
        }
        CredentialName::new(&self.name).map_err(|malformed| {
            Failure::usage(format!("the name is {}", shown(&self.name)))
                .because(malformed.to_string())
                .next("write for example `GITHUB_TOKEN`")
        })
    }
}

/// Asks whether the key that was typed is to be checked, if a preset says how.
fn is_asked(name: &CredentialName, terminal: &Terminal) -> Result<bool, Failure> {
    let known = preset::of_variable(name.as_str());
    let Some(verify) = known.and_then(|(_, known)| known.verify.as_ref()) else {
        return Ok(false);
    };
    let host = &verify.host;
    let question = format!("Ask {host} now whether it works? It reads, and changes nothing.");
    Ok(!terminal.json() && std::io::stdin().is_terminal() && confirmed(&question)?)
}

fn done(terminal: &Terminal, name: &CredentialName, what: &str, next: &str) {
    if terminal.json() {
        terminal.document(&json!({ "name": name.as_str(), "done": what }));
    } else {
        terminal.line(format!("{what} `keyring:gateway/{name}`"));
        terminal.note(format!("  next: {}", next.replace("NAME", name.as_str())));
    }
}

fn failed(what: &str, error: &RingError) -> Failure {
    let failure = Failure::of(what, error);
    if let RingError::Unsafe(SecretUnsafe::TooShort) = error {
        let why = format!("the secret has fewer than {MIN_BYTES} characters");
        let next = "use a longer one; the key ring takes no other, and a file does: `allow_short = true` in its `[[credential]]`";
        return failure.because(why).next(next);
    }
    match error {
        RingError::Store(StoreError::Absent) => failure.next("`gateway secret list` lists them"),
        RingError::Store(_) => failure
            .next("is a Secret Service (GNOME Keyring, KWallet) running and unlocked? A file serves too: `file:/path`, mode 0600"),
        _ => failure,
    }
}
