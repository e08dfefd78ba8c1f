//! The project of a folder, and its contents that a person may not want the command to use: files
//! of secrets, and sockets of programs outside.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::detect;
use super::identity::User;
use super::mount_plan::{MountPlan, why_no_project};
use super::mount_request::host_sockets;

/// Returns the project of a folder: the working tree of the repository that it is in, if both
/// belong to the caller, else the folder alone.
///
/// As for git, a repository ends at the border of its file system. A repository at the home
/// directory or above it makes no project of the folders below.
pub fn project_of(folder: &Path, home: Option<&Path>) -> PathBuf {
    let home = home.unwrap_or(Path::new("/"));
    let Ok(start) = fs::metadata(folder) else {
        return folder.to_owned();
    };
    let is_own = |about: &fs::Metadata| about.dev() == start.dev() && owns(about.uid());
    let may_be = |above: &&Path| {
        !home.starts_with(above) && fs::metadata(above).is_ok_and(|about| is_own(&about))
    };
    let mut above = folder.ancestors().take_while(may_be);
    let root = above.find(|above| is_working_tree(above));
    let root = root.filter(|root| why_no_project(home, root).is_none());
    root.unwrap_or(folder).to_owned()
}

/// Whether a folder has a repository's directory, or the file of a worktree or submodule.
fn is_working_tree(folder: &Path) -> bool {
    let git = folder.join(".git");
    let Ok(about) = git.symlink_metadata() else {
        return false;
    };
    let directory = if about.is_file() && about.len() < LONGEST {
        fs::read_to_string(&git)
            .ok()
            .and_then(|text| Some(folder.join(text.strip_prefix("gitdir:")?.trim())))
    } else {
        Some(git).filter(|_| about.is_dir())
    };
    let has_head = |directory: PathBuf| directory.join("HEAD").symlink_metadata().is_ok();
    owns(about.uid()) && directory.is_some_and(has_head)
}

/// Whether the caller owns a repository of this user, as git decides: root also owns those of the
/// user who called `sudo`.
fn owns(uid: u32) -> bool {
    let own = rustix::process::geteuid().as_raw();
    uid == own || own == 0 && User::who_called_sudo().is_some_and(|user| user.uid == uid)
}

/// Returns the settings files in a project and two levels below that seem to hold a credential, or
/// are named like one: `.env` and similar, files that git and package managers read, keys. Each has
/// the name to which the credential is assigned, if any. The number of folders is limited, and
/// those that tools fill are left out.
pub(super) fn secrets(project: &Path) -> Vec<(PathBuf, Option<String>)> {
    let mut found = Vec::new();
    let mut folders = VecDeque::from([(project.to_owned(), 0)]);
    for _ in 0..MOST_FOLDERS {
        let Some((folder, depth)) = folders.pop_front() else {
            break;
        };
        let mut files = 0;
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let (name, kind) = (entry.file_name(), entry.file_type());
            let name = name.to_string_lossy();
            let is_named = name.starts_with(".env.") || has_settings(&name);
            let below = BELOW.iter().find(|(folder, _)| name == *folder);
            let is_own = !name.starts_with('.') && !FILLED.contains(&&*name);
            match kind {
                Ok(kind) if kind.is_dir() && is_own && depth < 2 => {
                    folders.push_back((entry.path(), depth + 1));
                }
                Ok(kind) if kind.is_dir() => {
                    found.extend(below.and_then(|(_, file)| secret_in(entry.path().join(file))));
                }
                Ok(kind) if kind.is_file() && is_named && files < MOST_FILES => {
                    files += 1;
                    found.extend(secret_in(entry.path()));
                }
                _ => {}
            }
        }
    }
    found.sort();
    found
}

/// Returns the sockets in the projects that a program serves.
pub(super) fn sockets(plan: &MountPlan) -> Vec<PathBuf> {
    let table = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let sockets = host_sockets(&table).into_iter();
    let sockets = sockets.filter(|path| plan.in_project(path) && path.exists());
    sockets.collect()
}

/// Returns the file with the name of a credential in it; `None` if it holds none.
fn secret_in(path: PathBuf) -> Option<(PathBuf, Option<String>)> {
    let opened = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW)
        .open(&path);
    let mut text = Vec::new();
    let read = opened.and_then(|file| file.take(LONGEST).read_to_end(&mut text));
    read.ok()?;
    let is_example = path
        .extension()
        .is_some_and(|end| EXAMPLES.iter().any(|one| end == *one));
    let mut lines = text.split(|byte| *byte == b'\n').filter_map(assigned);
    let is_secret = |(name, value): (&[u8], &[u8])| {
        let is_value = value.len() >= SHORTEST && !value.starts_with(b"$") && !is_example;
        detect::holds_credential(value)
            || is_header(value)
            || is_value && detect::is_secret_name(name)
    };
    let is_plain = path
        .file_name()
        .is_some_and(|name| name.as_encoded_bytes().starts_with(b".env"));
    let line = lines.find(|line| is_secret(*line));
    if line.is_none() && (is_plain || !is_credential(&text)) {
        return None;
    }
    let name = line.and_then(|(name, _)| shown_name(name));
    Some((path, name))
}

/// Returns a name that may be shown: a line of another format may have a credential in its place.
fn shown_name(name: &[u8]) -> Option<String> {
    let name = name.strip_prefix(b"export ").unwrap_or(name);
    let is_usual = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-.:/".contains(byte);
    let is_name = name.iter().all(is_usual)
        && !detect::holds_credential(name)
        && !detect::holds_issued_credential(name);
    String::from_utf8(name.to_owned()).ok().filter(|_| is_name)
}

/// Whether programs read a credential from a file of this name.
fn has_settings(name: &str) -> bool {
    let (_, end) = name.rsplit_once('.').unwrap_or_default();
    let is_account = || ACCOUNTS.iter().any(|part| name.contains(part));
    SETTINGS.contains(&name) || KEYS.contains(&end) || end == "json" && is_account()
}

/// Whether a text other than a list of variables holds a credential: a key, a token, a URL with a
/// user, a password of `.netrc` or of JSON.
fn is_credential(text: &[u8]) -> bool {
    let is_between = |byte: &u8| byte.is_ascii_whitespace() || b"\"':,{}".contains(byte);
    let mut words = text.split(is_between).filter(|word| !word.is_empty());
    detect::holds_issued_credential(text)
        || text
            .split(|byte| *byte == b'\n')
            .any(detect::holds_userinfo)
        || words.any(|word| word == b"password") && words.any(|word| word.len() >= SHORTEST)
}

/// Whether git sends this value as a field: `http.URL.extraheader`.
fn is_header(value: &[u8]) -> bool {
    let lower = value.to_ascii_lowercase();
    lower.starts_with(b"authorization:") && lower.len() > b"authorization: basic ".len()
}

/// Returns the name that a line assigns to, and the value without its quotes.
fn assigned(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let line = line.trim_ascii();
    let at = line.iter().position(|byte| *byte == b'=')?;
    let value = line[at + 1..].trim_ascii();
    let quoted = |quote: &[u8]| value.strip_prefix(quote)?.strip_suffix(quote);
    let value = quoted(b"\"").or_else(|| quoted(b"'")).unwrap_or(value);
    (!line.starts_with(b"#")).then_some((line[..at].trim_ascii(), value))
}

/// Settings files, by name.
const SETTINGS: [&str; 13] = [
    ".env",
    ".envrc",
    ".dev.vars",
    ".npmrc",
    ".yarnrc.yml",
    ".netrc",
    "_netrc",
    ".pypirc",
    "pip.conf",
    ".git-credentials",
    "auth.json",
    "id_rsa",
    "id_ed25519",
];
/// Settings files in folders that are not searched.
const BELOW: [(&str, &str); 4] = [
    (".git", "config"),
    (".cargo", "credentials.toml"),
    (".docker", "config.json"),
    (".aws", "credentials"),
];
/// The extensions of key files.
const KEYS: [&str; 3] = ["pem", "key", "p8"];
/// Parts of the names of service account files.
const ACCOUNTS: [&str; 3] = ["service-account", "service_account", "credentials"];
/// How many files of a folder are looked at.
const MOST_FILES: usize = 32;
/// How many folders are looked at.
const MOST_FOLDERS: usize = 256;
/// Folders that tools fill.
const FILLED: [&str; 4] = ["node_modules", "target", "venv", "vendor"];
/// Extensions of files whose values are only examples.
const EXAMPLES: [&str; 4] = ["dist", "example", "sample", "template"];
/// A shorter value is not a secret.
const SHORTEST: usize = 4;
/// How many bytes of a file are looked at.
const LONGEST: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_settings_is_told_by_the_shape_of_a_value() {
        let project = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(project.path().join(name), text).unwrap();
        write(
            ".env",
            "# a comment\nSTRIPE_KEY=\"sk_live_0123456789abcdefghij\"\n",
        );
        write(
            ".env.local",
            "DATABASE_URL='postgres://app:hunter2@db/app'\n",
        );
        write(
            ".env.example",
            "STRIPE_KEY=\nLANG=C\n# sk_live_0123456789abcdefghij\n",
        );
        write(".env.sample", "DB_PASSWORD=changeme\n");
        write(
            ".env.dev",
            "DB_PASSWORD=$ELSEWHERE\nPUBLIC_KEY=abcdef\nAPI_TOKEN=\n",
        );
        write("notes", "sk_live_0123456789abcdefghij");
        write(
            ".npmrc",
            "//registry.npmjs.org/:_authToken=npm_Ab0123456789abcdefghijABCDEFGH\n",
        );
        write(".yarnrc.yml", "nodeLinker: node-modules\n");
        write(".netrc", "machine a.test login me password hunter22\n");
        write(
            "auth.json",
            "{\"http-basic\": {\"a.test\": {\"password\": \"hunter22\"}}}",
        );
        write("tls.key", "-----BEGIN PRIVATE KEY-----\nMIGH\n");
        write("ca.pem", "-----BEGIN CERTIFICATE-----\nMIGH\n");
        fs::create_dir(project.path().join(".git")).unwrap();
        write(
            ".git/config",
            "[http \"https://github.com/\"]\n\textraheader = AUTHORIZATION: basic eDp5enp6enp6\n",
        );
        fs::create_dir_all(project.path().join("app/.git")).unwrap();
        write(
            "app/.git/config",
            "[remote \"origin\"]\n\turl = https://a.test/x.git\n",
        );
        for folder in ["app/api", "node_modules/x", "a/b/c"] {
            fs::create_dir_all(project.path().join(folder)).unwrap();
            write(&format!("{folder}/.env"), "export BOT_TOKEN=hunter22\n");
        }
        write("app/pip.conf", "https://me:hunter22/x?api_token=hunter22\n");
        let found = secrets(project.path());
        let expected = [
            (".env", Some("STRIPE_KEY")),
            (".env.local", Some("DATABASE_URL")),
            (".git/config", Some("extraheader")),
            (".netrc", None),
            (".npmrc", Some("//registry.npmjs.org/:_authToken")),
            ("app/api/.env", Some("BOT_TOKEN")),
            ("app/pip.conf", None),
            ("auth.json", None),
            ("tls.key", None),
        ];
        let expected = expected.map(|(name, key)| (project.path().join(name), key.map(Into::into)));
        assert_eq!(found, expected);
    }
}
