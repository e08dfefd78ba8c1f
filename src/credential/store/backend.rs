//! Where a secret is stored, by kind of store.

use std::fmt;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gateway_files::{self as files, Replaceable};
use gateway_names::CredentialName;

use super::error::{ReferenceMalformed, StoreError};
use crate::login::TokenKind;

/// Where a secret is stored, in its store's terms.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Backend {
    /// A variable of the gateway's own environment.
    Env(String),
    /// A file with nothing else in it, readable only by its owner.
    File(SecretFile),
    /// An item of the operating system's key ring.
    Keyring(KeyringItem),
    /// The output of a program.
    Command(CommandLine),
    /// A key of the kernel, of the type `user`, by its description.
    Kernel(Box<str>),
    /// A credential that systemd passes to the gateway.
    Systemd(Box<str>),
    /// A secret that a store of the configuration keeps or issues.
    Store(StorePlace),
    /// A login that the gateway renews, by its name.
    Login(CredentialName),
}

impl Backend {
    /// Whether each session gets a secret of its own there, which ends with the session.
    pub(super) fn is_issued(&self) -> bool {
        match self {
            Self::Store(place) => place.issued,
            // A session may have logged in itself.
            Self::Login(_) => true,
            Self::Env(_)
            | Self::File(_)
            | Self::Keyring(_)
            | Self::Command(_)
            | Self::Kernel(_)
            | Self::Systemd(_) => false,
        }
    }

    /// Parses the part of a reference after its scheme, and returns the field too; `path` turns
    /// text into a path.
    pub(super) fn parse<E: From<ReferenceMalformed>>(
        scheme: &str,
        rest: &str,
        path: impl FnOnce(&str) -> Result<PathBuf, E>,
    ) -> Result<(Self, Option<Box<str>>), E> {
        let whole = match scheme {
            "login" => {
                let login = Self::Login(login_name(rest)?);
                return Ok((login, Some(TokenKind::Access.as_str().into())));
            }
            "env" => Self::Env(variable_name(rest)?.to_owned()),
            "file" => Self::File(SecretFile::at(path(rest)?)),
            "keyring" => Self::Keyring(KeyringItem::parse(rest)?),
            "kernel" => Self::Kernel(simple_name(rest)?),
            "systemd" => Self::Systemd(simple_name(rest)?),
            "command" => return Err(CommandLine::not_a_text().into()),
            _ => {
                let (place, field) = StorePlace::parse(scheme, rest)?;
                return Ok((Self::Store(place), field));
            }
        };
        Ok((whole, None))
    }
}

/// Shows the store and the name. For a command, shows only the program, since arguments can be
/// private.
impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(name) => write!(f, "env:{name}"),
            Self::File(file) => write!(f, "file:{file}"),
            Self::Keyring(item) => write!(f, "keyring:{item}"),
            Self::Command(line) => write!(f, "command:{line}"),
            Self::Kernel(name) => write!(f, "kernel:{name}"),
            Self::Systemd(name) => write!(f, "systemd:{name}"),
            Self::Store(place) => place.fmt(f),
            Self::Login(name) => write!(f, "login:{name}"),
        }
    }
}

/// A file that holds one secret, by its absolute path.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct SecretFile(PathBuf);

impl SecretFile {
    pub(super) fn at(path: PathBuf) -> Self {
        Self(path)
    }

    /// Checks the file's owner and permissions, so that a reference that no fetch could use is
    /// reported at once.
    ///
    /// # Errors
    /// [`ReferenceMalformed`] if it is missing, not a regular file, owned by another user, or
    /// accessible to others.
    pub(super) fn check(&self) -> Result<(), ReferenceMalformed> {
        let path = &self.0;
        let about = std::fs::metadata(path).map_err(|error| {
            let why = format!("the file cannot be looked at: {error}");
            ReferenceMalformed::new(why, "create it, or correct the path")
        })?;
        let checked = check_private(&about);
        let replaceable = || files::check_folders(path).and_then(|()| files::check_written(path));
        match checked.and_then(|()| Ok(replaceable()?)) {
            Ok(()) => Ok(()),
            Err(why) => {
                let remedy = match why {
                    StoreError::Permissions => format!("run `chmod 600 {}`", path.display()),
                    StoreError::Owner => String::from("own the file yourself"),
                    StoreError::Replaceable(ref why) => why.remedy(),
                    _ => String::from("name the file that holds the secret"),
                };
                Err(ReferenceMalformed::new(why.to_string(), remedy))
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl fmt::Display for SecretFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.display().fmt(f)
    }
}

/// Checks that a file is regular, belongs to this user or root, and is not accessible to others. A
/// group of this process may read it, because orchestrators mount secrets that way.
pub(super) fn check_private(about: &Metadata) -> Result<(), StoreError> {
    if !about.is_file() {
        return Err(StoreError::NotRegular);
    }
    if !files::trusted(about.uid()) {
        return Err(StoreError::Owner);
    }
    let of_others = if is_own_group(about.gid()) {
        0o037
    } else {
        0o077
    };
    match about.mode() & of_others {
        0 => Ok(()),
        _ => Err(StoreError::Permissions),
    }
}

fn is_own_group(group: u32) -> bool {
    let groups = rustix::process::getgroups().unwrap_or_default();
    let mut own = groups.into_iter().chain([rustix::process::getegid()]);
    own.any(|own| own.as_raw() == group)
}

/// An item of the key ring.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct KeyringItem {
    pub(super) service: String,
    pub(super) name: String,
}

impl KeyringItem {
    /// Parses `SERVICE/NAME`.
    pub(super) fn parse(text: &str) -> Result<Self, ReferenceMalformed> {
        let fits = |part: &str| {
            (1..=128).contains(&part.len())
                && part.bytes().all(|c| c.is_ascii_graphic() && c != b'/')
        };
        match text.split_once('/') {
            Some((service, name)) if fits(service) && fits(name) => Ok(Self {
                service: service.to_owned(),
                name: name.to_owned(),
            }),
            _ => Err(ReferenceMalformed::new(
                "an entry of the key ring has a service and a name",
                "write `keyring:gateway/NAME`",
            )),
        }
    }
}

impl fmt::Display for KeyringItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.service, self.name)
    }
}

/// A secret in a store of the configuration: `NAME:PATH`, or `NAME-lease:PATH` if the store issues
/// it to each session.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct StorePlace {
    /// The name of the store.
    pub(super) store: Box<str>,
    /// Where the secret is, in the store's own terms, which its settings check.
    pub(super) path: Box<str>,
    /// Whether it is issued per session, with its own lease.
    pub(super) issued: bool,
}

impl StorePlace {
    /// Parses the two parts of a reference, and returns the field too: `PATH`, `PATH#FIELD`.
    fn parse(scheme: &str, rest: &str) -> Result<(Self, Option<Box<str>>), ReferenceMalformed> {
        let (store, issued) = match scheme.strip_suffix("-lease") {
            Some(store) => (store, true),
            None => (scheme, false),
        };
        let is_text = |text: &str, most| {
            (1..=most).contains(&text.len()) && !text.chars().any(char::is_control)
        };
        let (path, field) = match rest.split_once('#') {
            Some((path, field)) => (path, Some(field)),
            None => (rest, None),
        };
        if !is_store_name(store) {
            return Err(unknown_scheme());
        }
        if !is_text(path, 512) || field.is_some_and(|field| !is_text(field, 128)) {
            return Err(ReferenceMalformed::new(
                "the place of a secret in a store has 1 to 512 characters, its field 1 to 128",
                "write for example `vault:secret/app#token` or `aws-parameter:/app/token`",
            ));
        }
        let (store, path) = (store.into(), path.into());
        let place = Self {
            store,
            path,
            issued,
        };
        Ok((place, field.map(Into::into)))
    }
}

impl fmt::Display for StorePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.issued { "-lease" } else { "" };
        write!(f, "{}{what}:{}", self.store, self.path)
    }
}

/// Whether a store can have this name: it begins references, and no kind of them does already.
pub fn is_store_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let begins = name
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_lowercase());
    begins
        && name.len() <= 32
        && name.bytes().all(fits)
        && !name.ends_with("-lease")
        && !TAKEN.contains(&name)
}

/// A program that prints a secret: no shell, an absolute path, a small environment.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct CommandLine {
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
    /// The lifetime of its output, if the output does not state one.
    pub(super) ttl: Option<Duration>,
    /// The variables of the gateway's environment that it gets, besides the usual ones.
    pub(super) pass: Vec<String>,
}

impl CommandLine {
    /// Checks that no command in a sandbox could have written the program or any file it names.
    ///
    /// # Errors
    /// [`Replaceable`] with the entry that such a command could have written.
    pub(super) fn check(&self) -> Result<(), Replaceable> {
        files::check_program(&self.program, &self.arguments, FIXED_PATH.as_ref())
    }

    /// Returns the error for a command that is written as text.
    pub(super) fn not_a_text() -> ReferenceMalformed {
        ReferenceMalformed::new(
            "a command is a list of arguments: no shell takes it apart",
            "write `{ command = [\"/usr/bin/pass\", \"show\", \"x\"], ttl = \"5m\" }`",
        )
    }
}

/// Shows only the program, since arguments can be private.
impl fmt::Display for CommandLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.program.display().fmt(f)
    }
}

/// Checks the name of an environment variable.
///
/// # Errors
/// [`ReferenceMalformed`] if it has a character other than `A-Z a-z 0-9 _`, begins with a digit, is
/// empty, or has more than 128 characters.
pub fn variable_name(name: &str) -> Result<&str, ReferenceMalformed> {
    let begins = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    let goes_on = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if name.bytes().next().is_some_and(begins) && name.bytes().all(goes_on) && name.len() <= 128 {
        return Ok(name);
    }
    Err(ReferenceMalformed::new(
        "a variable has the characters A-Z, a-z, 0-9 and `_` and starts with no digit",
        "write for example `GITHUB_TOKEN`",
    ))
}

/// Checks the name of a key of the kernel, or of a credential of systemd, which is a file's name.
fn simple_name(name: &str) -> Result<Box<str>, ReferenceMalformed> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:@".contains(&byte);
    if (1..=255).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(fits) {
        return Ok(name.into());
    }
    Err(ReferenceMalformed::new(
        "such a name has the characters A-Z, a-z, 0-9 and `-_.:@`",
        "write for example `kernel:github-token` or `systemd:github-token`",
    ))
}

/// Parses `NAME#access`. The other tokens of a login cannot be lent.
fn login_name(text: &str) -> Result<CredentialName, ReferenceMalformed> {
    let name = text.strip_suffix("#access");
    let name = name.and_then(|name| CredentialName::new(name).ok());
    name.ok_or_else(|| {
        let why = "of a login, the access token alone is lent";
        ReferenceMalformed::new(why, "write for example `login:claude#access`")
    })
}

/// Returns the error for a text with an unknown scheme.
pub(super) fn unknown_scheme() -> ReferenceMalformed {
    ReferenceMalformed::new("a reference starts with its kind", REFERENCES)
}

/// The `PATH` that a command gets.
pub(super) const FIXED_PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";
const REFERENCES: &str = "write `env:NAME`, `file:/path`, `keyring:gateway/NAME`, `vault:secret/app#FIELD` (`STORE:PLACE` of a [[store]]), \
     `login:claude#access` or `{ command = [\"/path\"], ttl = \"5m\" }`";
/// The kinds of references to what is no store of the configuration.
const TAKEN: [&str; 7] = gateway_names::word_list("env file keyring command login kernel systemd");
