//! Package registries. The user's own configuration names their hosts. Only the default of cargo is
//! built in, because no command of cargo tells it.

use serde::Deserialize;

use super::user_config::UserConfig;
use crate::message::{Authority, HostPattern, OriginPattern, Scheme};

/// A package registry whose clients have their own configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PackageRegistry {
    /// npm's.
    Npm,
    /// pip's, uv's and twine's.
    Pypi,
    /// cargo's.
    Crates,
}

/// No configuration names the registry's host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no configuration of yours names the host of {0}; name it yourself: `--allow HOST`")]
pub struct RegistryUnknown(&'static str);

impl PackageRegistry {
    /// The origins that the user's configuration names for the registry, each once.
    ///
    /// Files are read first. If none names the default, npm and pip are asked for theirs, within
    /// five seconds. Only the index itself knows its download hosts, so the user must allow those.
    ///
    /// # Errors
    /// [`RegistryUnknown`] if none is named.
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

/// The addresses in the configuration of Python's tools.
#[derive(Default)]
struct PythonIndexes {
    addresses: Vec<String>,
    /// Whether they include the default.
    default: bool,
}

/// pip's `index-url` and `extra-index-url`, uv's indexes, twine's `repository`.
fn pypi(user: &UserConfig) -> Vec<String> {
    let mut found = PythonIndexes::default();
    found.take_variables(user);
    found.take_ini_files(user);
    found.take_uv_files(user);
    if !found.default {
        let asked = user.ask(&["python3", "python"], &["-I", "-c", PIP_DEFAULT]);
        found.addresses.extend(asked);
    }
    found.addresses
}

impl PythonIndexes {
    fn take_variables(&mut self, user: &UserConfig) {
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
                self.default |= is_default;
                // uv writes `name=URL`.
                let named = word.split_once('=').filter(|(name, _)| !name.contains(':'));
                let address = named.map_or(word, |(_, address)| address);
                self.addresses.push(address.to_owned());
            }
        }
    }

    fn take_ini_files(&mut self, user: &UserConfig) {
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
                self.default |= key == "index-url";
                if ["index-url", "extra-index-url", "repository"].contains(&key.as_str()) {
                    let addresses = value.split_whitespace().map(str::to_owned);
                    self.addresses.extend(addresses);
                }
            }
        }
    }

    fn take_uv_files(&mut self, user: &UserConfig) {
        let files = [
            user.home.join(".config/uv/uv.toml"),
            user.system.join("etc/uv/uv.toml"),
        ];
        let texts_of_files = files.iter().filter_map(|file| UserConfig::text(file));
        for table in texts_of_files.filter_map(|text| text.parse::<toml::Table>().ok()) {
            self.default |= table.contains_key("index-url");
            for key in ["index-url", "extra-index-url", "publish-url"] {
                self.addresses.extend(texts(table.get(key)));
            }
            let indexes = table.get("index").and_then(toml::Value::as_array);
            let indexes = indexes.into_iter().flatten();
            self.addresses
                .extend(indexes.flat_map(|index| texts(index.get("url"))));
        }
    }
}

/// cargo's `[source]`, `[registries]` and their variables, and its built-in default, unless a
/// source replaces that.
fn crates(user: &UserConfig) -> Vec<String> {
    let of_variables = user
        .variables
        .iter()
        .filter(|(name, _)| name.starts_with("CARGO_REGISTRIES_") && name.ends_with("_INDEX"))
        .map(|(_, address)| address.clone());
    let mut addresses: Vec<String> = of_variables.collect();
    addresses.sort();
    let mut is_replaced = user
        .variable("CARGO_SOURCE_CRATES_IO_REPLACE_WITH")
        .is_some();
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
        let default = table.get("source").and_then(|all| all.get("crates-io"));
        is_replaced |= default.is_some_and(|source| source.get("replace-with").is_some());
        break;
    }
    if !is_replaced {
        addresses.extend(CRATES_IO.map(str::to_owned));
    }
    addresses
}

/// cargo's own index and API.
const CRATES_IO: [&str; 2] = ["https://index.crates.io", "https://crates.io"];

/// The `key = value` lines of an INI file; an indented line continues the previous value.
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
    let text = |one: &toml::Value| one.as_str().map(str::to_owned);
    match value {
        Some(toml::Value::Array(list)) => list.iter().filter_map(text).collect(),
        Some(one) => text(one).into_iter().collect(),
        None => Vec::new(),
    }
}

fn unquoted(value: &str) -> String {
    value.trim().trim_matches(['"', '\'']).to_owned()
}

/// The origin of an address, https only. User and password, which an index's address may have, are
/// dropped.
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

/// pip prints its configuration but not its default, which is an internal constant.
const PIP_DEFAULT: &str = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)";

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::{Duration, Instant};

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

        fn origins(&self, registry: PackageRegistry) -> Vec<String> {
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
            machine.origins(PackageRegistry::Npm),
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
        let found = machine.origins(PackageRegistry::Pypi);
        let hosts = ["var", "index", "one", "two", "upload", "uv"];
        assert_eq!(found, hosts.map(|host| format!("https://{host}.example")));
        assert!(
            !format!("{:?}", PackageRegistry::Pypi.origins(&machine.user())).contains("CANARY")
        );
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
        let hosts = ["x", "mirror", "corp"].map(|host| format!("https://{host}.example"));
        let all = machine.origins(PackageRegistry::Crates);
        assert_eq!(all, [&hosts[..], &CRATES_IO.map(str::to_owned)].concat());
    }

    #[test]
    fn cargos_own_default_is_known_unless_a_source_replaces_it() {
        let replaced = "[source.crates-io]\nreplace-with = \"m\"\n[source.m]\nregistry = \"sparse+https://m.example/\"\n";
        let file = ("home/.cargo/config.toml", replaced);
        let origins = |files: &[_]| Machine::with(files, &[]).origins(PackageRegistry::Crates);
        assert_eq!(origins(&[]), CRATES_IO);
        assert_eq!(origins(&[file]), ["https://m.example"]);
    }

    #[test]
    fn where_nothing_names_a_host_the_remedy_is_said() {
        for registry in [PackageRegistry::Npm, PackageRegistry::Pypi] {
            let error = registry
                .origins(&Machine::with(&[], &[]).user())
                .unwrap_err();
            assert!(error.to_string().contains("--allow HOST"));
        }
    }

    #[test]
    fn a_program_is_asked_where_no_file_names_the_default_and_not_for_long() {
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
            let origins = PackageRegistry::Npm
                .origins(&user)
                .ok()
                .map(|origins| origins[0].to_string());
            assert_eq!(origins.as_deref(), found);
            assert!(began.elapsed() < Duration::from_secs(20));
        }
    }

    #[test]
    fn a_program_is_asked_once_a_day_and_again_when_it_is_another_one() {
        let script = "#!/bin/sh\necho x >> ../home/asked; echo https://asked.example/\n";
        let machine = Machine::with(&[("bin/npm", script), ("home/asked", "")], &[]);
        let folder = machine.root.path().join("bin");
        let (npm, asked) = (folder.join("npm"), machine.root.path().join("home/asked"));
        let script = script.replace("../home", &machine.user().home.display().to_string());
        let user = UserConfig {
            programs: vec![folder, "/bin".into(), "/usr/bin".into()],
            answers: Some(machine.root.path().join("answers")),
            ..machine.user()
        };
        let answers = || PackageRegistry::Npm.origins(&user).unwrap()[0].to_string();
        let install = |script: &str| {
            let beside = npm.with_extension("new");
            std::fs::write(&beside, script).unwrap();
            std::fs::set_permissions(&beside, std::fs::Permissions::from_mode(0o755)).unwrap();
            std::fs::rename(beside, &npm).unwrap();
        };
        install(&script);
        for _ in 0..3 {
            assert_eq!(answers(), "https://asked.example");
        }
        assert_eq!(std::fs::read_to_string(&asked).unwrap(), "x\n");
        install(&script.replace("asked.example", "other.example"));
        assert_eq!(answers(), "https://other.example");
        let kept = std::fs::File::open(machine.root.path().join("answers/npm")).unwrap();
        let long_ago = std::time::SystemTime::now() - Duration::from_secs(25 * 60 * 60);
        kept.set_modified(long_ago).unwrap();
        assert_eq!(answers(), "https://other.example");
        assert_eq!(std::fs::read_to_string(&asked).unwrap(), "x\nx\nx\n");
    }
}
