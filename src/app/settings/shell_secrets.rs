//! The shell's known secrets that a run may lend: those of its agent's profile, those that a rule
//! names, and those that a person agreed to, once per project.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::settings::profile::Profile;
use crate::{Failure, Terminal, safe};
use gateway_config::Config;
use gateway_files::{UserKind, UserTable};
use gateway_names::CredentialName;
use gateway_policy::Policies;

/// The known secrets of the shell that may be lent, in addition to those of flags and files.
#[derive(Clone, Debug, Default)]
pub struct ShellLoans {
    named: BTreeSet<CredentialName>,
    /// Whether any may be lent. If so, rules of policy files can name more.
    is_on: bool,
    /// Whether a person is asked about secrets that were not named.
    pub is_asked: bool,
}

impl ShellLoans {
    /// An agent gets those of its profile's services. Any other command, and an agent of no
    /// service of its own, gets those of the answers, too. None gets what a person withheld.
    pub fn of(profile: Option<&Profile>, answers: &SecretAnswers) -> Self {
        let services = profile.into_iter().flat_map(Profile::services);
        let own = services.flat_map(|preset| &preset.credentials);
        let mut named: BTreeSet<_> = own.map(|one| one.name.clone()).collect();
        let is_asked = profile.is_none_or(|profile| profile.presets.is_empty());
        if is_asked {
            named.extend(answers.lent());
        }
        named.retain(|name| answers.secrets.get(name.as_str()) != Some(&false));
        Self {
            named,
            is_on: true,
            is_asked,
        }
    }

    /// Returns the names, given a configuration; `None` if none is lent at all.
    ///
    /// # Errors
    /// Returns a [`Failure`] if its policies are refused.
    pub fn names(&self, config: &Config) -> Result<Option<BTreeSet<CredentialName>>, Failure> {
        let mut names = self.named.clone();
        if self.is_on && config.policy.decide() {
            let sources = config.policy.sources();
            let loaded = sources.and_then(|all| Policies::load(&all, config.declared()));
            let policies = loaded.map_err(|problems| {
                Failure::usage("the policies are refused").because(problems.to_string())
            })?;
            let named = policies.current().lent_by_name();
            names.extend(named.iter().filter_map(|one| CredentialName::new(one).ok()));
        }
        Ok(self.is_on.then_some(names))
    }
}

/// A known secret of the shell that is not lent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Withheld {
    /// The name of the credential that it would become.
    pub name: CredentialName,
    /// The variables that hold it.
    pub variables: Vec<String>,
    /// The service that it would open.
    pub opens: String,
    /// Whether it signs requests to AWS.
    pub is_aws: bool,
}

impl Withheld {
    /// Returns the flag that lends it.
    pub fn flag(&self) -> String {
        if self.is_aws {
            String::from("--aws")
        } else {
            format!("--secret {}", self.variables[0])
        }
    }
}

/// A person's answers about a project: which of the known secrets its commands may use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretAnswers {
    /// The project.
    project: PathBuf,
    /// The answers, by the credential's name.
    secrets: BTreeMap<String, bool>,
}

impl SecretAnswers {
    /// Reads the answers about a project.
    ///
    /// # Errors
    /// Returns a [`Failure`] if they cannot be read: they may refuse something.
    pub fn of(project: &Path) -> Result<Self, Failure> {
        let read = answers().read(project)?;
        Ok(read.unwrap_or_else(|| Self::none(project)))
    }

    /// Returns no answers about a project.
    pub fn none(project: &Path) -> Self {
        let project = project.to_owned();
        Self {
            project,
            ..Self::default()
        }
    }

    /// Returns the credentials that may be lent.
    pub fn lent(&self) -> impl Iterator<Item = CredentialName> {
        let yes = self.all().filter(|(_, is_lent)| *is_lent);
        yes.filter_map(|(name, _)| CredentialName::new(name).ok())
    }

    /// Returns each credential, and whether it may be lent.
    pub fn all(&self) -> impl Iterator<Item = (&str, bool)> {
        let all = self.secrets.iter();
        all.map(|(name, is_lent)| (name.as_str(), *is_lent))
    }

    /// Notes an answer.
    pub fn set(&mut self, name: &str, is_lent: bool) {
        self.secrets.insert(name.to_owned(), is_lent);
    }

    /// Stores the answers where no command can change them.
    ///
    /// # Errors
    /// Returns a [`Failure`] if they cannot be written.
    pub fn keep(&self) -> Result<(), Failure> {
        Ok(answers().keep(&self.project, self)?)
    }

    /// Asks at the terminal about secrets without an answer, and stores the answers. Returns
    /// whether it asked anything.
    ///
    /// # Errors
    /// As [`Self::keep`].
    pub fn ask(&mut self, withheld: &[Withheld], terminal: &Terminal) -> Result<bool, Failure> {
        let is_new = |one: &&Withheld| !self.secrets.contains_key(one.name.as_str());
        let new: Vec<&Withheld> = withheld.iter().filter(is_new).collect();
        let is_there = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        if new.is_empty() || !is_there {
            return Ok(false);
        }
        let (aws, known): (Vec<_>, Vec<_>) = new.into_iter().partition(|one| one.is_aws);
        let project = safe(&self.project.display().to_string());
        let mut answers = BTreeMap::new();
        if !known.is_empty() {
            terminal.note(format!(
                "gateway: commands in {project} may use which secrets of your shell, as phantoms?"
            ));
            for (nth, one) in (1..).zip(&known) {
                let names = one.variables.join(", ");
                terminal.note(format!("  {nth}  {names}: opens {}", safe(&one.opens)));
            }
            let Some(chosen) = asked("Numbers, `all` or `none`: ", |text| chosen(text, &known))
            else {
                return Ok(false);
            };
            let named = known.iter().zip(chosen);
            answers.extend(named.map(|(one, is_lent)| (one.name.to_string(), is_lent)));
        }
        for one in aws {
            let names = one.variables.join(", ");
            terminal.note(format!(
                "gateway: may they sign requests to AWS with {names}? That opens {}",
                safe(&one.opens)
            ));
            let Some(is_lent) = asked("`yes` or `no`: ", yes_or_no) else {
                return Ok(false);
            };
            answers.insert(one.name.to_string(), is_lent);
        }
        self.secrets.extend(answers);
        self.keep()?;
        terminal.note("gateway: kept; `gateway project secrets` shows and changes it");
        Ok(true)
    }
}

/// Asks until the answer is clear. `None` if there is none.
fn asked<T>(question: &str, read: impl Fn(&str) -> Option<T>) -> Option<T> {
    loop {
        let mut error = std::io::stderr();
        write!(error, "{question}")
            .and_then(|()| error.flush())
            .ok()?;
        let mut line = String::new();
        match std::io::stdin().lock().read_line(&mut line) {
            Ok(0) | Err(_) => return None,
            Ok(_) => {}
        }
        let line = line.trim();
        if let Some(answer) = read(line) {
            return Some(answer);
        }
        let line = match line {
            "" => String::from("an empty line"),
            line => format!("`{}`", safe(line)),
        };
        writeln!(error, "gateway: {line} is none of the answers").ok()?;
    }
}

/// Reads which secrets were chosen, by number or name.
fn chosen(text: &str, all: &[&Withheld]) -> Option<Vec<bool>> {
    let words = text.split([' ', ',']).filter(|word| !word.is_empty());
    let words: Vec<&str> = words.collect();
    let is_named = |word: &str, (nth, one): (usize, &&Withheld)| {
        word == (nth + 1).to_string() || one.variables.iter().any(|name| name == word)
    };
    match words[..] {
        [] => None,
        ["all"] => Some(vec![true; all.len()]),
        ["none"] => Some(vec![false; all.len()]),
        _ => {
            let is_known = |word: &&str| all.iter().enumerate().any(|one| is_named(word, one));
            let chosen = all.iter().enumerate();
            let chosen = chosen.map(|one| words.iter().any(|word| is_named(word, one)));
            words.iter().all(is_known).then(|| chosen.collect())
        }
    }
}

fn yes_or_no(text: &str) -> Option<bool> {
    match text {
        "y" | "yes" => Some(true),
        "n" | "no" => Some(false),
        _ => None,
    }
}

fn answers() -> UserTable {
    UserTable::of_user(&UserKind {
        name: "secrets",
        version: 1,
        what: "what this project may use of your shell's secrets",
        anew: "answer anew: `gateway project secrets --forget`",
    })
}
