//! Why a command failed: what happened, why, and what to do next.

use std::path::Path;
use std::process::ExitCode;

use http::StatusCode;

use gateway_config::{ConfigError, Diagnostic, Severity};
use gateway_files::BadFile;
use gateway_grant::ControlRefusal;

/// Exit codes that do not come from a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// It worked.
    Ok,
    /// It failed, or a check did not pass.
    Failed,
    /// The command line or the configuration is wrong.
    Usage,
    /// The workload's own code, or 125 to 127 from the launcher.
    Exactly(u8),
}

/// A failure: what happened, why, and what to do next. It never holds a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The exit code.
    pub code: Code,
    /// What happened.
    pub what: String,
    /// Why.
    pub why: Option<String>,
    /// What to do next.
    pub next: Option<String>,
    /// The places in the configuration that are at fault.
    pub mistakes: Vec<Diagnostic>,
}

impl Failure {
    /// Creates a failure of the command's work.
    pub fn new(what: impl Into<String>) -> Self {
        Self {
            code: Code::Failed,
            what: what.into(),
            why: None,
            next: None,
            mistakes: Vec::new(),
        }
    }

    /// Creates a failure of the command line or the configuration.
    pub fn usage(what: impl Into<String>) -> Self {
        Self {
            code: Code::Usage,
            ..Self::new(what)
        }
    }

    /// Adds the reason.
    #[must_use]
    pub fn because(mut self, why: impl Into<String>) -> Self {
        self.why = Some(why.into());
        self
    }

    /// Adds the next step.
    #[must_use]
    pub fn next(mut self, next: impl Into<String>) -> Self {
        self.next = Some(next.into());
        self
    }

    /// Sets another exit code.
    #[must_use]
    pub fn coded(mut self, code: u8) -> Self {
        self.code = Code::Exactly(code);
        self
    }

    /// Creates a failure of the system's random number generator.
    pub fn no_randomness(error: getrandom::Error) -> Self {
        Self::new("the system gives no random bytes").because(error.to_string())
    }

    /// Creates a failure of an environment without a state folder.
    pub fn no_state_folder(what: &str) -> Self {
        Self::new(what)
            .because("neither HOME nor XDG_STATE_HOME names a folder")
            .next("set one of them")
    }

    /// Creates a failure from an error. The error's sources become the reason.
    pub fn of(what: impl Into<String>, error: &dyn std::error::Error) -> Self {
        Self::new(what).because(gateway_server::chain(error))
    }

    /// Begins the message with the refusal of the change, and with the generation that stays in
    /// force. The whole previous message becomes the reason.
    #[must_use]
    pub fn of_a_change(self, generation: u64) -> Self {
        let mistakes = self.mistakes.iter().map(ToString::to_string);
        let said = std::iter::once(self.what.clone()).chain(mistakes);
        let said: Vec<String> = said.chain(self.why).collect();
        Self {
            what: format!("the change is refused; what held still holds (generation {generation})"),
            why: Some(said.join("\n")),
            mistakes: Vec::new(),
            ..self
        }
    }

    /// Encodes the failure for the launcher, which shows it to the user.
    pub fn sent(&self) -> String {
        let mistakes = self
            .mistakes
            .iter()
            .map(|one| format!("; {}: {}", one.position, one.what));
        let what = self.what.clone() + &mistakes.collect::<String>();
        let is_usage = self.code == Code::Usage;
        serde_json::json!([what, self.why, self.next, is_usage]).to_string()
    }

    /// Decodes the text of [`Failure::sent`]. Any other text is the failure itself.
    pub fn received(text: &str) -> Self {
        match serde_json::from_str(text) {
            Ok((what, why, next, is_usage)) => {
                let what: String = what;
                let failure = if is_usage { Self::usage } else { Self::new };
                Self {
                    why,
                    next,
                    ..failure(what)
                }
            }
            Err(_) => Self::new(text),
        }
    }
}

/// Turns an error into a failure that says what failed. The error becomes the reason.
pub trait Context<T> {
    /// Says what happened.
    fn context(self, what: impl Into<String>) -> Result<T, Failure>;
}

impl<T, E: std::error::Error> Context<T> for Result<T, E> {
    fn context(self, what: impl Into<String>) -> Result<T, Failure> {
        self.map_err(|error| Failure::of(what, &error))
    }
}

/// Adds to the failure of a result.
pub trait Advise {
    /// As [`Failure::next`].
    fn advise(self, next: impl Into<String>) -> Self;
    /// As [`Failure::coded`].
    fn coded(self, code: u8) -> Self;
}

impl<T> Advise for Result<T, Failure> {
    fn advise(self, next: impl Into<String>) -> Self {
        self.map_err(|failure| failure.next(next))
    }

    fn coded(self, code: u8) -> Self {
        self.map_err(|failure| failure.coded(code))
    }
}

/// Formats the failure in one line, for the user of the launcher.
impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.what)?;
        for mistake in &self.mistakes {
            write!(f, "; {}: {}", mistake.position, mistake.what)?;
        }
        let mut before = self.what.as_str();
        for part in [&self.why, &self.next].into_iter().flatten() {
            let gap = if before.ends_with('.') { " " } else { ": " };
            write!(f, "{gap}{part}")?;
            before = part;
        }
        Ok(())
    }
}

impl From<ConfigError> for Failure {
    fn from(refused: ConfigError) -> Self {
        let errors = refused
            .mistakes
            .iter()
            .filter(|mistake| mistake.severity != Severity::Warning)
            .count();
        let what = match errors {
            1 => String::from("the configuration has a mistake"),
            count => format!("the configuration has {count} mistakes"),
        };
        Self {
            mistakes: refused.mistakes,
            ..Self::usage(what)
        }
    }
}

impl From<ControlRefusal> for Failure {
    fn from(error: ControlRefusal) -> Self {
        let failure = match error.status {
            StatusCode::UNPROCESSABLE_ENTITY => Self::usage(error.what),
            _ => Self::new(error.what),
        };
        Self {
            why: error.why,
            next: error.next,
            ..failure
        }
    }
}

impl From<BadFile> for Failure {
    fn from(unfit: BadFile) -> Self {
        let next = unfit.remedy(Path::new("FILE"));
        Self::new(unfit.to_string()).next(next)
    }
}

impl Code {
    /// Returns the number that the shell sees.
    pub fn number(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Exactly(code) => code,
        }
    }
}

impl From<Code> for ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code.number())
    }
}
