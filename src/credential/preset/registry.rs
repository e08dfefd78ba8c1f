//! Package registries: their hosts stand nowhere in this program; the user's own configuration
//! names them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::message::{Authority, HostPattern, OriginPattern, Scheme};

/// A package registry whose clients have a configuration of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Registry {
    /// npm's.
    Npm,
    /// pip's, uv's and twine's.
    Pypi,
    /// cargo's.
    Crates,
}

/// Nothing names the registry's host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no configuration of yours names the host of {0}; name it yourself: `--allow HOST`")]
pub struct RegistryUnknown(&'static str);

/// Whose configuration is read: the user's and the system's, never the project's.
///
/// A project's `.npmrc`, `.cargo/config.toml` or virtual environment is the workload's to write:
/// read from there, a host of its own choice would be allowed and lent credentials.
#[derive(Debug, Clone)]
pub struct UserConfig {
    home: PathBuf,
    system: PathBuf,
    variables: HashMap<String, String>,
    /// Directories in which the registry's own program is looked for when no file names a host.
    programs: Vec<PathBuf>,
}

impl UserConfig {
    /// The configuration of the user who runs the gateway; programs are looked for in `PATH`,
    /// outside the working directory.
    #[must_use]
    pub fn of_this_user() -> Option<Self> {
        let home = PathBuf::from(std::env::var_os("HOME")?);
        let project = std::env::current_dir().ok()?;
        let path = std::env::var_os("PATH").unwrap_or_default();
        // Where the project is an ancestor of everything, it still may not name the programs inside
        // it; `/` is no project.
        let inside = |directory: &Path| {
            project != Path::new("/") && project != home && directory.starts_with(&project)
        };
        let programs = std::env::split_paths(&path)
            .filter(|directory| directory.is_absolute() && !inside(directory))
            .collect();
        let variables = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        Some(Self {
            home,
            system: PathBuf::from("/"),
            variables: variables.collect(),
            programs,
        })
    }

    /// A configuration below other roots, with these variables and without programs.
    #[must_use]
    pub fn below(home: &Path, system: &Path, variables: HashMap<String, String>) -> Self {
        Self {
            home: home.to_owned(),
            system: system.to_owned(),
            variables,
            programs: Vec::new(),
        }
    }

    fn variable(&self, name: &str) -> Option<&str> {
        self.variables
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// The text of a configuration file; one that is absent, unreadable or huge says nothing.
    fn text(path: &Path) -> Option<String> {
        let about = std::fs::metadata(path).ok()?;
        (about.is_file() && about.len() <= MAX_FILE_BYTES)
            .then(|| std::fs::read_to_string(path).ok())?
    }

    fn named_file(&self, variable: &str) -> Option<PathBuf> {
        self.variable(variable)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    }

    /// What the registry's own program says, run in `/`, where no project's file applies.
    fn ask(&self, programs: &[&str], arguments: &[&str]) -> Option<String> {
        let found = programs.iter().find_map(|program| {
            self.programs
                .iter()
                .map(|directory| directory.join(program))
                .find(|path| path.is_file())
        })?;
        let mut command = Command::new(found);
        command
            .args(arguments)
            .current_dir("/")
            .env_clear()
            .env("HOME", &self.home);
        command.env("PATH", std::env::join_paths(&self.programs).ok()?);
        answer(command)
    }
}

impl Registry {
    /// The origins that the user's configuration names for the registry, each once.
    ///
    /// Files first; where none names the default, npm and pip are asked for theirs, within five
    /// seconds. Hosts from which an index has packages downloaded are known to the index alone:
    /// they are the user's to allow.
    ///
    /// # Errors
    /// [`RegistryUnknown`] where nothing names any.
    pub fn origins(self, user: &UserConfig) -> Result<Vec<OriginPattern>, RegistryUnknown> {
        let mut found: Vec<OriginPattern> = Vec::new();
        for origin in self
            .addresses(user)
            .iter()
            .filter_map(|address| origin_of(address))
        {
            if !found.contains(&origin) {
                found.push(origin);
            }
        }
        if found.is_empty() {
            Err(RegistryUnknown(self.title()))
        } else {
            Ok(found)
        }
    }

    fn addresses(self, user: &UserConfig) -> Vec<String> {
        match self {
            Self::Npm => npm(user),
            Self::Pypi => pypi(user),
            Self::Crates => crates(user),
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Npm => "the npm registry",
            Self::Pypi => "the Python package index",
            Self::Crates => "the crates registry",
        }
    }
}

/// `.npmrc`: `registry = URL` and `@scope:registry = URL`.
fn npm(user: &UserConfig) -> Vec<String> {
    let mut addresses = Vec::new();
    let mut default = false;
    for name in ["npm_config_registry", "NPM_CONFIG_REGISTRY"] {
        if let Some(address) = user.variable(name) {
            addresses.push(address.to_owned());
            default = true;
        }
    }
    let files = [
        user.named_file("NPM_CONFIG_USERCONFIG")
            .unwrap_or_else(|| user.home.join(".npmrc")),
        user.named_file("NPM_CONFIG_GLOBALCONFIG")
            .unwrap_or_else(|| user.system.join("usr/etc/npmrc")),
        user.system.join("usr/local/etc/npmrc"),
        user.system.join("etc/npmrc"),
    ];
    for text in files.iter().filter_map(|file| UserConfig::text(file)) {
        for (key, value) in text.lines().filter_map(|line| line.split_once('=')) {
            let key = key.trim();
            if key == "registry" || (key.starts_with('@') && key.ends_with(":registry")) {
                default |= key == "registry";
                addresses.push(unquoted(value));
            }
        }
    }
    if !default {
        addresses.extend(user.ask(&["npm"], &["config", "get", "registry"]));
    }
    addresses
}

/// pip's `index-url` and `extra-index-url`, uv's indexes, twine's `repository`.
fn pypi(user: &UserConfig) -> Vec<String> {
    let mut addresses: Vec<String> = Vec::new();
    let mut default = false;
    for (name, is_default) in [
        ("PIP_INDEX_URL", true),
        ("UV_INDEX_URL", true),
        ("UV_DEFAULT_INDEX", true),
        ("PIP_EXTRA_INDEX_URL", false),
        ("UV_EXTRA_INDEX_URL", false),
        ("UV_INDEX", false),
        ("TWINE_REPOSITORY_URL", false),
        ("UV_PUBLISH_URL", false),
    ] {
        for word in user
            .variable(name)
            .into_iter()
            .flat_map(str::split_whitespace)
        {
            default |= is_default;
            // uv writes `name=URL`.
            let named = word.split_once('=').filter(|(name, _)| !name.contains(':'));
            addresses.push(named.map_or(word, |(_, address)| address).to_owned());
        }
    }
    let files = [
        user.named_file("PIP_CONFIG_FILE")
            .unwrap_or_else(|| user.system.join("etc/pip.conf")),
        user.system.join("etc/xdg/pip/pip.conf"),
        user.home.join(".pip/pip.conf"),
        user.home.join(".config/pip/pip.conf"),
        user.home.join(".pypirc"),
    ];
    for text in files.iter().filter_map(|file| UserConfig::text(file)) {
        for (key, value) in ini(&text) {
            let known = ["index-url", "extra-index-url", "repository"].contains(&key.as_str());
            default |= key == "index-url";
            addresses.extend(
                value
                    .split_whitespace()
                    .filter(|_| known)
                    .map(str::to_owned),
            );
        }
    }
    for file in [
        user.home.join(".config/uv/uv.toml"),
        user.system.join("etc/uv/uv.toml"),
    ] {
        let Some(table) = UserConfig::text(&file).and_then(|text| text.parse::<toml::Table>().ok())
        else {
            continue;
        };
        default |= table.contains_key("index-url");
        addresses.extend(
            ["index-url", "extra-index-url", "publish-url"]
                .iter()
                .flat_map(|key| texts(table.get(*key))),
        );
        let indexes = table
            .get("index")
            .and_then(toml::Value::as_array)
            .into_iter()
            .flatten();
        addresses.extend(indexes.flat_map(|index| texts(index.get("url"))));
    }
    if !default {
        addresses.extend(user.ask(&["python3", "python"], &["-I", "-c", PIP_DEFAULT]));
    }
    addresses
}

/// cargo's `[source]`, `[registries]` and their variables. cargo does not tell its built-in
/// default.
fn crates(user: &UserConfig) -> Vec<String> {
    let of_variables = user
        .variables
        .iter()
        .filter(|(name, _)| name.starts_with("CARGO_REGISTRIES_") && name.ends_with("_INDEX"))
        .map(|(_, address)| address.clone());
    let mut addresses: Vec<String> = of_variables.collect();
    addresses.sort();
    let folder = user
        .named_file("CARGO_HOME")
        .unwrap_or_else(|| user.home.join(".cargo"));
    for file in ["config.toml", "config"] {
        let Some(table) =
            UserConfig::text(&folder.join(file)).and_then(|text| text.parse::<toml::Table>().ok())
        else {
            continue;
        };
        for (section, key) in [("source", "registry"), ("registries", "index")] {
            let entries = table
                .get(section)
                .and_then(toml::Value::as_table)
                .into_iter()
                .flatten();
            addresses.extend(entries.flat_map(|(_, entry)| texts(entry.get(key))));
        }
        break;
    }
    addresses
}

/// The `key = value` lines of an INI file; an indented line goes on with the value before.
fn ini(text: &str) -> Vec<(String, String)> {
    let mut pairs: Vec<(String, String)> = Vec::new();
    for line in text
        .lines()
        .filter(|line| !line.trim_start().starts_with(['#', ';', '[']))
    {
        if line.starts_with([' ', '\t']) {
            if let Some((_, value)) = pairs.last_mut() {
                value.push(' ');
                value.push_str(line.trim());
            }
        } else if let Some((key, value)) = line.split_once(['=', ':']) {
            pairs.push((
                key.trim().to_ascii_lowercase().replace('_', "-"),
                value.trim().to_owned(),
            ));
        }
    }
    pairs
}

fn texts(value: Option<&toml::Value>) -> Vec<String> {
    match value {
        Some(toml::Value::String(text)) => vec![text.clone()],
        Some(toml::Value::Array(list)) => list
            .iter()
            .filter_map(|text| Some(text.as_str()?.to_owned()))
            .collect(),
        _ => Vec::new(),
    }
}

fn unquoted(value: &str) -> String {
    value.trim().trim_matches(['"', '\'']).to_owned()
}

/// The origin of an address: https alone; user and password, which an index's address may hold, are
/// left out.
fn origin_of(address: &str) -> Option<OriginPattern> {
    let address = address.trim();
    let address = ["sparse+", "registry+"]
        .iter()
        .find_map(|kind| address.strip_prefix(kind))
        .unwrap_or(address);
    let rest = address.strip_prefix("https://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let authority = authority.rsplit('@').next()?;
    let authority = Authority::parse(authority.as_bytes(), Some(443)).ok()?;
    Some(OriginPattern {
        scheme: Scheme::Https,
        hosts: HostPattern::Exact(authority.host),
        port: authority.port,
    })
}

/// The first line that a program prints, if it ends well and soon.
fn answer(mut command: Command) -> Option<String> {
    use std::io::Read as _;
    use std::os::unix::process::CommandExt as _;
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0);
    let mut child = command.spawn().ok()?;
    let deadline = Instant::now() + ANSWER_WITHIN;
    let status = loop {
        match child.try_wait().ok()? {
            Some(status) => break status,
            None if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(10)),
            None => {
                let group = i32::try_from(child.id())
                    .ok()
                    .and_then(rustix::process::Pid::from_raw);
                if let Some(group) = group {
                    // It may have ended by itself meanwhile, which is as good.
                    let _ =
                        rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
                }
                child.wait().ok()?;
                return None;
            }
        }
    };
    let mut printed = Vec::new();
    // An address fits a pipe, so a program that ended has printed it; a child of its own that holds
    // the pipe is not waited for.
    let stdout = child.stdout.take()?;
    rustix::io::ioctl_fionbio(&stdout, true).ok()?;
    // A pipe that is still open ends the reading with `WouldBlock`, after everything that was
    // printed.
    let _ = stdout.take(MAX_ANSWER_BYTES).read_to_end(&mut printed);
    let line = String::from_utf8(printed)
        .ok()?
        .lines()
        .next()?
        .trim()
        .to_owned();
    status.success().then_some(line)
}

/// pip prints its configuration but not its default, which is a constant of its own.
const PIP_DEFAULT: &str = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)";
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
const MAX_ANSWER_BYTES: u64 = 4096;
const MAX_FILE_BYTES: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    struct Machine {
        root: tempfile::TempDir,
        variables: HashMap<String, String>,
    }

    impl Machine {
        fn with(files: &[(&str, &str)], variables: &[(&str, &str)]) -> Self {
            let root = tempfile::tempdir().unwrap();
            for (path, text) in files {
                let path = root.path().join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            }
            let variables = variables
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect();
            Self { root, variables }
        }

        fn user(&self) -> UserConfig {
            UserConfig::below(
                &self.root.path().join("home"),
                &self.root.path().join("system"),
                self.variables.clone(),
            )
        }

        fn origins(&self, registry: Registry) -> Vec<String> {
            registry
                .origins(&self.user())
                .unwrap()
                .iter()
                .map(ToString::to_string)
                .collect()
        }
    }

    #[test]
    fn npm_reads_the_users_and_the_systems_file_and_every_scope() {
        let machine = Machine::with(
            &[
                (
                    "home/.npmrc",
                    "; comment\nregistry = \"https://npm.example/path/\"\n@corp:registry=https://corp.example:8443/\n//npm.example/:_authToken=CANARY\n",
                ),
                ("system/etc/npmrc", "registry=http://cleartext.example/\n"),
            ],
            &[],
        );
        assert_eq!(
            machine.origins(Registry::Npm),
            ["https://npm.example", "https://corp.example:8443"]
        );
    }

    #[test]
    fn pip_reads_continued_lines_and_drops_user_and_password() {
        let machine = Machine::with(
            &[
                (
                    "home/.config/pip/pip.conf",
                    "[global]\nindex-url = https://user:CANARY@index.example/simple\nextra-index-url =\n    https://one.example/simple\n    https://two.example/simple\n",
                ),
                (
                    "home/.pypirc",
                    "[distutils]\nindex-servers = corp\n[corp]\nrepository: https://upload.example/legacy/\npassword = CANARY\n",
                ),
                (
                    "home/.config/uv/uv.toml",
                    "[[index]]\nname = \"x\"\nurl = \"https://uv.example/simple\"\n",
                ),
            ],
            &[("UV_INDEX", "corp=https://var.example/simple")],
        );
        let found = machine.origins(Registry::Pypi);
        let hosts = ["var", "index", "one", "two", "upload", "uv"];
        assert_eq!(found, hosts.map(|host| format!("https://{host}.example")));
        assert!(!format!("{:?}", Registry::Pypi.origins(&machine.user())).contains("CANARY"));
    }

    #[test]
    fn cargo_reads_sources_registries_and_variables() {
        let machine = Machine::with(
            &[(
                "home/.cargo/config.toml",
                "[source.mirror]\nregistry = \"sparse+https://mirror.example/index/\"\n[registries.corp]\nindex = \"https://corp.example/git\"\n[registries.local]\nindex = \"file:///x\"\n",
            )],
            &[("CARGO_REGISTRIES_X_INDEX", "sparse+https://x.example/")],
        );
        let hosts = ["x", "mirror", "corp"];
        assert_eq!(
            machine.origins(Registry::Crates),
            hosts.map(|host| format!("https://{host}.example"))
        );
    }

    #[test]
    fn where_nothing_names_a_host_the_remedy_is_said() {
        for registry in [Registry::Npm, Registry::Pypi, Registry::Crates] {
            let error = registry
                .origins(&Machine::with(&[], &[]).user())
                .unwrap_err();
            assert!(error.to_string().contains("--allow HOST"));
        }
    }

    #[test]
    fn a_program_is_asked_where_no_file_names_the_default_and_not_for_long() {
        use std::os::unix::fs::PermissionsExt as _;
        let machine = Machine::with(
            &[
                (
                    "bin/npm",
                    "#!/bin/sh\n[ \"$PWD\" = / ] && echo https://asked.example/\n",
                ),
                ("slow/npm", "#!/bin/sh\nsleep 60\n"),
            ],
            &[],
        );
        for (folder, found) in [("bin", Some("https://asked.example")), ("slow", None)] {
            let folder = machine.root.path().join(folder);
            std::fs::set_permissions(folder.join("npm"), std::fs::Permissions::from_mode(0o755))
                .unwrap();
            let user = UserConfig {
                programs: vec![folder, "/bin".into(), "/usr/bin".into()],
                ..machine.user()
            };
            let began = Instant::now();
            let origins = Registry::Npm
                .origins(&user)
                .ok()
                .map(|origins| origins[0].to_string());
            assert_eq!(origins.as_deref(), found);
            assert!(began.elapsed() < Duration::from_secs(20));
        }
    }
}
