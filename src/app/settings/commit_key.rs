//! The key that the user's git signs commits with, and the repository: git's own settings outside.
//!
//! The repository's own file of settings names no key here, because an earlier command may have
//! written it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::process::serving;
use gateway_commits::{Agent, AgentFailure, PublicKey};
use gateway_config::state;
use gateway_files as files;
use gateway_launch::program::root_owned_program;
use tokio::runtime::Runtime;

/// How the user's git signs with a key of SSH.
#[derive(Debug)]
pub struct SshSigning {
    /// The key.
    pub key: PublicKey,
    /// The repository, for policies.
    pub repository: String,
    /// What the user set of `commit.gpgSign` and `tag.gpgSign`.
    always: Vec<(String, String)>,
    /// Why the user's own agent would not sign now.
    pub unready: Option<AgentFailure>,
}

impl SshSigning {
    /// Returns how git signs in a project; `None` if it signs nothing.
    ///
    /// # Errors
    /// What to change, if it signs in a way that a sandbox does not have.
    pub fn of(project: &Path) -> Result<Option<Self>, String> {
        // Otherwise git need not run.
        let git = may_sign().then(|| root_owned_program("git")).flatten();
        let settings = git.map(|git| GitSettings::read(&git, project));
        let found = settings.map(|settings| Self::by(settings, project));
        let mut found = found.transpose()?.flatten();
        if let Some(signing) = &mut found {
            let ask = |runtime: Runtime| runtime.block_on(own_agent().has(&signing.key)).err();
            signing.unready = serving::runtime().map_or(Some(AgentFailure::Gone), ask);
        }
        Ok(found)
    }

    fn by(settings: GitSettings, project: &Path) -> Result<Option<Self>, String> {
        let format = settings.user("gpg.format").unwrap_or("openpgp");
        let always = settings
            .user
            .iter()
            .filter(|(key, _)| key.ends_with(".gpgsign"));
        let always: Vec<_> = always.cloned().collect();
        let is_on = |(_, value): &(String, String)| !OFF.contains(&&*value.to_ascii_lowercase());
        if format != "ssh" && !always.iter().any(is_on) {
            return Ok(None);
        }
        if format != "ssh" {
            return Err(format!(
                "git signs by `gpg.format = {format}`, which a sandbox does not have; by your SSH \
                 agent it does: `git config --global gpg.format ssh`, {NAME_KEY}"
            ));
        }
        if settings.has_own_key {
            return Err(String::from(OWN_KEY));
        }
        let named = settings.user("user.signingkey");
        let named = named.ok_or_else(|| format!("git's settings name no key: {NAME_KEY}"))?;
        let key = key(named).map_err(|why| format!("`user.signingKey = {named}`: {why}"))?;
        let repository = repository(settings.origin.as_deref(), project);
        Ok(Some(Self {
            key,
            repository,
            always,
            unready: None,
        }))
    }

    /// Returns git's settings for the inside, where the user's own are not shown. Commits that
    /// nobody wanted signed do not fail for want of the agent.
    pub fn settings(&self) -> Vec<(String, String)> {
        let key = format!("key::{}", self.key);
        let own = [
            ("gpg.format", "ssh"),
            ("gpg.ssh.program", "ssh-keygen"),
            ("user.signingKey", &key),
        ];
        let own = own.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let always = self.always.iter().filter(|_| self.unready.is_none());
        own.into_iter().chain(always.cloned()).collect()
    }
}

/// Returns the user's own agent, outside.
pub fn own_agent() -> Agent {
    Agent::at(std::env::var_os("SSH_AUTH_SOCK").map(PathBuf::from))
}

/// Git's settings about signatures.
#[derive(Debug, Default)]
struct GitSettings {
    /// The user's and the system's, by key, in the order in which they hold.
    user: Vec<(String, String)>,
    /// Whether the repository itself names a key.
    has_own_key: bool,
    /// The address of the remote `origin`.
    origin: Option<String>,
}

impl GitSettings {
    /// Has git read them. If it cannot, it signs nothing either.
    fn read(git: &Path, project: &Path) -> Self {
        let mut command = Command::new(git);
        let listed = command
            .args(["config", "--show-scope", "-z", "--get-regexp", KEYS])
            .current_dir(project)
            .stdin(Stdio::null())
            .output();
        let listed = listed.map(|output| output.stdout).unwrap_or_default();
        Self::listed(&String::from_utf8_lossy(&listed))
    }

    /// Reads git's list: a scope, then a key and a value, each with a zero byte at its end.
    fn listed(text: &str) -> Self {
        let mut settings = Self::default();
        let mut parts = text.split('\0');
        while let (Some(scope), Some(setting)) = (parts.next(), parts.next()) {
            // A key without a value is `true`.
            let (key, value) = setting.split_once('\n').unwrap_or((setting, "true"));
            let is_users = ["global", "system", "command"].contains(&scope);
            match key {
                // Of several, git fetches from the first.
                "remote.origin.url" => {
                    settings.origin.get_or_insert_with(|| value.to_owned());
                }
                "user.signingkey" if !is_users => settings.has_own_key = true,
                _ if is_users => settings.user.push((key.to_owned(), value.to_owned())),
                _ => {}
            }
        }
        settings
    }

    /// Returns the setting that holds, of the user and the system.
    fn user(&self, key: &str) -> Option<&str> {
        let mut settings = self.user.iter().rev();
        let found = settings.find(|(known, _)| known == key);
        found.map(|(_, value)| value.as_str())
    }
}

/// Whether git's settings could be about signatures.
fn may_sign() -> bool {
    let home = state::home().unwrap_or_default();
    let config = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
    let config = config.unwrap_or_else(|| home.join(".config"));
    let system = PathBuf::from("/etc/gitconfig");
    let files = [home.join(".gitconfig"), config.join("git/config"), system];
    files.iter().any(|file| {
        let text = std::fs::read(file).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).to_ascii_lowercase();
        let mut words = ["signingkey", "gpgsign", "[include"].iter();
        words.any(|word| text.contains(word))
    })
}

/// Returns the key that `user.signingKey` names, as git reads it: literally, or by the file of its
/// public or private part.
fn key(named: &str) -> Result<PublicKey, String> {
    let literal = named.strip_prefix("key::");
    let literal = literal.or_else(|| Some(named).filter(|text| text.starts_with("ssh-")));
    let text = match literal {
        Some(text) => text.to_owned(),
        None => {
            let path = match (named.strip_prefix("~/"), state::home()) {
                (Some(below), Some(home)) => home.join(below),
                _ => PathBuf::from(named),
            };
            if !path.is_absolute() {
                return Err("name it by its whole path, or as `key::ssh-…`".to_owned());
            }
            let public = match path.extension() {
                Some(end) if end == "pub" => path,
                _ => PathBuf::from(format!("{}.pub", path.display())),
            };
            files::read(&public, 1).map_err(|bad| format!("{}: {bad}", public.display()))?
        }
    };
    PublicKey::parse(&text).map_err(|fault| fault.to_string())
}

/// Returns `host/owner/name` of a remote, else the name of the project's folder.
fn repository(origin: Option<&str>, project: &Path) -> String {
    let remote = origin.and_then(remote);
    remote.unwrap_or_else(|| {
        let name = project.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    })
}

/// Takes apart `https://user@host:port/path.git`, `ssh://…` and `user@host:path`.
fn remote(url: &str) -> Option<String> {
    let (host, path) = match url.split_once("://") {
        Some((scheme, rest)) if scheme != "file" => rest.split_once('/')?,
        Some(_) => return None,
        None => url
            .split_once(':')
            .filter(|(host, _)| !host.contains('/'))?,
    };
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    let host = host.split_once(':').map_or(host, |(host, _)| host);
    let path = path.trim_matches('/');
    let path = path.strip_suffix(".git").unwrap_or(path);
    let is_plain =
        |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    (is_plain(host) && is_plain(path)).then(|| format!("{}/{path}", host.to_ascii_lowercase()))
}

/// What is read, in git's own spelling of keys.
const KEYS: &str =
    r"^(user\.signingkey|gpg\.format|commit\.gpgsign|tag\.gpgsign|remote\.origin\.url)$";
/// How git writes `false`.
const OFF: [&str; 5] = ["false", "no", "off", "0", ""];
const NAME_KEY: &str = "`git config --global user.signingKey ~/.ssh/id_ed25519.pub`";
const OWN_KEY: &str = "the repository's own `user.signingKey` is not obeyed, since a command may \
                       write it: name it in your own settings, for the folder by \
                       `[includeIf \"gitdir:…\"]`";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remote_is_named_without_its_user_its_port_and_its_ending() {
        for (url, name) in [
            (
                "https://github.com/octo/hello.git",
                Some("github.com/octo/hello"),
            ),
            (
                "https://ann:secret@GitHub.com:8443/octo/hello/",
                Some("github.com/octo/hello"),
            ),
            (
                "git@github.com:octo/hello.git",
                Some("github.com/octo/hello"),
            ),
            ("ssh://git@git.example:22/a/b/c", Some("git.example/a/b/c")),
            ("file:///srv/octo/hello", None),
            ("/srv/octo/hello", None),
            ("../hello", None),
            ("https://github.com", None),
            ("https://github.com/\u{202e}x", None),
        ] {
            assert_eq!(remote(url).as_deref(), name, "{url}");
        }
        assert_eq!(repository(None, Path::new("/work/hello")), "hello");
    }

    #[test]
    fn the_repositorys_own_settings_name_no_key_and_later_settings_hold() {
        let text = "system\0user.signingkey\nold\0global\0user.signingkey\nkey::new\0\
                    global\0commit.gpgsign\0local\0gpg.format\nssh\0\
                    local\0remote.origin.url\nhttps://a.example/b\0";
        let settings = GitSettings::listed(text);
        assert_eq!(settings.user("user.signingkey"), Some("key::new"));
        assert_eq!(settings.user("commit.gpgsign"), Some("true"));
        assert_eq!(settings.user("gpg.format"), None);
        assert_eq!(settings.origin.as_deref(), Some("https://a.example/b"));
        assert!(!settings.has_own_key);
        assert!(GitSettings::listed("local\0user.signingkey\nx\0").has_own_key);
    }

    #[test]
    fn a_key_that_cannot_be_read_says_why() {
        assert!(key("relative/id.pub").unwrap_err().contains("key::ssh-"));
        assert!(key("ABCDEF0123456789").is_err());
        assert!(key("key::ssh-dss AAAA").unwrap_err().contains("type"));
        assert!(
            key("/nonexistent/id")
                .unwrap_err()
                .contains("/nonexistent/id.pub")
        );
    }
}
