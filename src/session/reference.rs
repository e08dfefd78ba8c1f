//! References: where a secret is, never what it is.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;

use crate::signature::recipe::Algorithm;

/// Where a secret is kept, as configuration names it: `env:NAME`, `file:/path`, `keyring:SERVICE/NAME`, or a table.
///
/// ```toml
/// secret = "keyring:gateway/github"
/// secret = { file = "/run/secrets/token", allow_readable_by_others = true }
/// secret = { command = ["/usr/bin/pass", "show", "github"], ttl_seconds = 900, pass_env = ["GNUPGHOME"] }
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Deserialize)]
#[serde(try_from = "Raw")]
pub struct Reference {
    pub(crate) keeper: Keeper,
    pub(crate) allow_short: bool,
    /// The algorithm whose private key is kept there, where that is so.
    pub(crate) private_key: Option<Algorithm>,
}

/// Which store keeps it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) enum Keeper {
    /// A variable of the gateway's own environment.
    Env(String),
    /// A file that holds nothing else.
    File {
        path: PathBuf,
        allow_readable_by_others: bool,
    },
    /// An item of the operating system's key ring.
    Keyring { service: String, name: String },
    /// What a program prints.
    Command(CommandLine),
}

/// A program that prints a secret: no shell, an absolute path, a small environment.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct CommandLine {
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<String>,
    pub(crate) pass_env: Vec<String>,
    pub(crate) ttl: Option<Duration>,
    /// Which part of the set that it prints is meant.
    pub(crate) member: Option<Member>,
}

/// A part of the set that a `credential_process` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Member {
    /// `AccessKeyId`.
    AccessKey,
    /// `SecretAccessKey`.
    SecretKey,
    /// `SessionToken`.
    SessionToken,
}

/// Why a text or table is no reference.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceMalformed {
    /// It names no store that there is; a bare secret falls here, so its text is not shown.
    #[error(
        "a secret is referred to by `env:NAME`, `file:/path`, `keyring:SERVICE/NAME` or a table with `command`; never by its value"
    )]
    Kind,
    /// The name is empty or has a character that it cannot have.
    #[error("the reference's name is empty or has an impossible character")]
    Name,
    /// The path is relative.
    #[error("a `file:` reference needs an absolute path")]
    RelativePath,
    /// A command is written as one string.
    #[error(
        "a command is a list, so that no shell reads it: `{{ command = [\"/usr/bin/pass\", \"show\", \"github\"] }}`"
    )]
    CommandText,
    /// The program is neither absolute nor in one of the fixed directories.
    #[error(
        "the command's program is not an absolute path, and no executable of that name is in {FIXED_PATH}"
    )]
    Program,
    /// A table names none or several stores.
    #[error("a reference's table has exactly one of `env`, `file`, `keyring` and `command`")]
    Several,
    /// A key stands beside a store that has no use for it.
    #[error("`allow_readable_by_others` goes with `file`; `ttl_seconds` and `pass_env` go with `command`")]
    Misplaced,
    /// The lifetime is out of range.
    #[error("`ttl_seconds` is between 1 and 86400")]
    Ttl,
}

impl Reference {
    /// A reference to a variable of the gateway's environment.
    ///
    /// # Errors
    /// [`ReferenceMalformed::Name`] where no variable can have the name.
    pub fn env(name: &str) -> Result<Self, ReferenceMalformed> {
        let fits = !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if !fits {
            return Err(ReferenceMalformed::Name);
        }
        Ok(Self::plain(Keeper::Env(name.to_owned())))
    }

    /// A reference to an item of the key ring.
    ///
    /// # Errors
    /// [`ReferenceMalformed::Name`] where service or name is empty, too long or has a control character.
    pub fn keyring(service: &str, name: &str) -> Result<Self, ReferenceMalformed> {
        let fits = |text: &str| (1..=256).contains(&text.len()) && !text.chars().any(char::is_control);
        if !fits(service) || !fits(name) {
            return Err(ReferenceMalformed::Name);
        }
        Ok(Self::plain(Keeper::Keyring {
            service: service.to_owned(),
            name: name.to_owned(),
        }))
    }

    /// A reference to a file, which must be readable by its owner alone.
    ///
    /// # Errors
    /// [`ReferenceMalformed::RelativePath`].
    pub fn file(path: &Path) -> Result<Self, ReferenceMalformed> {
        if !path.is_absolute() {
            return Err(ReferenceMalformed::RelativePath);
        }
        Ok(Self::plain(Keeper::File {
            path: path.to_owned(),
            allow_readable_by_others: false,
        }))
    }

    /// A reference to what a program prints. A bare program name is looked up once, in directories of the system alone.
    ///
    /// `pass_env` names variables that the program gets beside its small environment; `ttl` is how long its answer serves,
    /// where it does not say so itself.
    ///
    /// # Errors
    /// [`ReferenceMalformed::Program`] and [`ReferenceMalformed::Ttl`].
    pub fn command(
        argv: Vec<String>,
        pass_env: Vec<String>,
        ttl: Option<Duration>,
    ) -> Result<Self, ReferenceMalformed> {
        Ok(Self::plain(Keeper::Command(CommandLine::new(
            argv, pass_env, ttl,
        )?)))
    }

    /// The same reference, whose secret may be shorter than [`crate::credential::MIN_BYTES`].
    #[must_use]
    pub fn allowing_short(mut self) -> Self {
        self.allow_short = true;
        self
    }

    /// The same reference, to a private key, which may have several lines and must be one that the algorithm signs with.
    #[must_use]
    pub fn to_private_key(mut self, of: Algorithm) -> Self {
        self.private_key = Some(of);
        self
    }

    /// The same reference, to one part of the set that its program prints.
    #[must_use]
    pub fn member(mut self, member: Member) -> Self {
        if let Keeper::Command(line) = &mut self.keeper {
            line.member = Some(member);
        }
        self
    }

    /// The same reference, whose file others may read; nobody else may write it even so.
    #[must_use]
    pub fn allowing_readers(mut self) -> Self {
        if let Keeper::File {
            allow_readable_by_others,
            ..
        } = &mut self.keeper
        {
            *allow_readable_by_others = true;
        }
        self
    }

    /// The program that is run for the secret, for a reference to a command.
    #[must_use]
    pub fn program(&self) -> Option<&Path> {
        match &self.keeper {
            Keeper::Command(command) => Some(&command.program),
            _ => None,
        }
    }

    /// The variable of the gateway's environment that it names, if it names one.
    #[must_use]
    pub fn env_name(&self) -> Option<&str> {
        match &self.keeper {
            Keeper::Env(name) => Some(name),
            _ => None,
        }
    }

    fn plain(keeper: Keeper) -> Self {
        Self {
            keeper,
            allow_short: false,
            private_key: None,
        }
    }
}

impl FromStr for Reference {
    type Err = ReferenceMalformed;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (kind, rest) = text.split_once(':').ok_or(ReferenceMalformed::Kind)?;
        match kind {
            "env" => Self::env(rest),
            "file" => Self::file(Path::new(rest)),
            "keyring" => {
                let (service, name) = rest.split_once('/').unwrap_or((DEFAULT_SERVICE, rest));
                Self::keyring(service, name)
            }
            "command" => Err(ReferenceMalformed::CommandText),
            _ => Err(ReferenceMalformed::Kind),
        }
    }
}

/// Shows the store and the name; of a command the program alone, for arguments can be private.
impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.keeper {
            Keeper::Env(name) => write!(f, "env:{name}"),
            Keeper::File { path, .. } => write!(f, "file:{}", path.display()),
            Keeper::Keyring { service, name } => write!(f, "keyring:{service}/{name}"),
            Keeper::Command(line) => write!(f, "command:{}", line.program.display()),
        }
    }
}

impl fmt::Debug for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl CommandLine {
    /// The program, whichever part of what it prints is meant.
    pub(crate) fn whole(&self) -> Self {
        Self {
            member: None,
            ..self.clone()
        }
    }

    fn new(
        argv: Vec<String>,
        pass_env: Vec<String>,
        ttl: Option<Duration>,
    ) -> Result<Self, ReferenceMalformed> {
        let mut argv = argv.into_iter();
        let program = argv
            .next()
            .filter(|program| !program.is_empty())
            .ok_or(ReferenceMalformed::Program)?;
        if ttl.is_some_and(|ttl| !(1..=MAX_TTL_SECONDS).contains(&ttl.as_secs())) {
            return Err(ReferenceMalformed::Ttl);
        }
        Ok(Self {
            program: resolve_program(&program).ok_or(ReferenceMalformed::Program)?,
            arguments: argv.collect(),
            pass_env,
            ttl,
            member: None,
        })
    }
}

/// The program's path, looked up once in directories that only the system's owner writes.
fn resolve_program(program: &str) -> Option<PathBuf> {
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(|path| path.is_absolute());
    }
    std::env::split_paths(FIXED_PATH)
        .map(|directory| directory.join(program))
        .find(|path| path.is_file())
}

/// What serde reads before it is checked.
#[derive(Deserialize)]
#[serde(untagged)]
enum Raw {
    Text(String),
    Table(RawTable),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTable {
    env: Option<String>,
    file: Option<PathBuf>,
    keyring: Option<String>,
    command: Option<Vec<String>>,
    #[serde(default)]
    allow_short: bool,
    #[serde(default)]
    allow_readable_by_others: bool,
    #[serde(default)]
    pass_env: Vec<String>,
    ttl_seconds: Option<u64>,
}

impl TryFrom<Raw> for Reference {
    type Error = ReferenceMalformed;

    fn try_from(raw: Raw) -> Result<Self, Self::Error> {
        let table = match raw {
            Raw::Text(text) => return text.parse(),
            Raw::Table(table) => table,
        };
        let for_command = !table.pass_env.is_empty() || table.ttl_seconds.is_some();
        if (for_command && table.command.is_none())
            || (table.allow_readable_by_others && table.file.is_none())
        {
            return Err(ReferenceMalformed::Misplaced);
        }
        let mut reference = match (table.env, table.file, table.keyring, table.command) {
            (Some(name), None, None, None) => Self::env(&name)?,
            (None, Some(path), None, None) => Self::file(&path)?,
            (None, None, Some(name), None) => format!("keyring:{name}").parse()?,
            (None, None, None, Some(argv)) => Self::plain(Keeper::Command(CommandLine::new(
                argv,
                table.pass_env,
                table.ttl_seconds.map(Duration::from_secs),
            )?)),
            _ => return Err(ReferenceMalformed::Several),
        };
        if let Keeper::File {
            allow_readable_by_others,
            ..
        } = &mut reference.keeper
        {
            *allow_readable_by_others = table.allow_readable_by_others;
        }
        reference.allow_short = table.allow_short;
        Ok(reference)
    }
}

/// The key ring's service where a reference names none.
pub const DEFAULT_SERVICE: &str = "gateway";
/// Where a command's program is looked for, and the `PATH` that it gets.
pub(crate) const FIXED_PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";
pub(crate) const MAX_TTL_SECONDS: u64 = 86_400;

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Holder {
        secret: Reference,
    }

    fn read(text: &str) -> Result<Reference, String> {
        toml::from_str::<Holder>(text)
            .map(|holder| holder.secret)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn each_store_has_its_text_and_its_table() {
        for (text, shown) in [
            (r#"secret = "env:GH_TOKEN""#, "env:GH_TOKEN"),
            (r#"secret = "file:/run/secrets/x""#, "file:/run/secrets/x"),
            (r#"secret = "keyring:github""#, "keyring:gateway/github"),
            (r#"secret = "keyring:other/github""#, "keyring:other/github"),
            (
                r#"secret = { env = "GH_TOKEN", allow_short = true }"#,
                "env:GH_TOKEN",
            ),
            (
                r#"secret = { file = "/x", allow_readable_by_others = true }"#,
                "file:/x",
            ),
            (
                r#"secret = { command = ["sh", "-c", "CANARY"], ttl_seconds = 9 }"#,
                "command:/usr/bin/sh",
            ),
        ] {
            assert_eq!(format!("{:?}", read(text).unwrap()), shown);
        }
    }

    #[test]
    fn what_is_no_reference_is_refused_with_a_remedy_and_without_its_text() {
        for (text, cause) in [
            (r#"secret = "ghp_CANARYCANARY""#, "never by its value"),
            (r#"secret = "vault:CANARY""#, "is referred to by"),
            (r#"secret = "command:/bin/echo x""#, "is a list"),
            (r#"secret = "file:relative""#, "absolute path"),
            (r#"secret = "env:A-B""#, "impossible character"),
            (r#"secret = { env = "A", file = "/x" }"#, "exactly one"),
            (r#"secret = { env = "A", ttl_seconds = 4 }"#, "go with `command`"),
            (r#"secret = { command = ["./x"] }"#, "not an absolute path"),
            (
                r#"secret = { command = ["/bin/true"], ttl_seconds = 0 }"#,
                "between 1 and 86400",
            ),
        ] {
            let error = toml::from_str::<Holder>(text).err().unwrap().message().to_owned();
            assert!(error.contains(cause), "{text}: {error}");
            assert!(!error.contains("CANARY"), "{error}");
        }
    }
}
