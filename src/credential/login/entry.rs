//! Files with one token per host: `.npmrc`, `.pypirc`, `.netrc`, `.git-credentials`, Docker's
//! `config.json` and `hosts.yml` of GitHub's command line.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gateway_names::prefixes;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use zeroize::Zeroizing;

use super::unreadable::{FileFault, FileUnreadable};
use super::{FileFormat, LoginFile, json};

/// The token of one host.
#[derive(Default)]
pub(crate) struct HostToken {
    /// The member that holds it: a key, a section, a machine, an address.
    pub(crate) member: String,
    /// The host, with the port unless that is 443.
    pub(crate) host: String,
    /// The user name that belongs to the token.
    pub(super) user: Option<String>,
    /// The address, if the file has one for the token.
    address: Option<String>,
    /// The token.
    pub(super) value: Zeroizing<String>,
}

/// Returns the tokens of a file. A token that the file takes from a variable is left out, and so is
/// one in place of the user name, which the sandbox's copy shows.
///
/// # Errors
/// [`FileUnreadable`] if the file has another form.
pub(crate) fn entries(file: &LoginFile, text: &str) -> Result<Vec<HostToken>, FileUnreadable> {
    let found = match file.format {
        FileFormat::Json => Ok(Vec::new()),
        FileFormat::DockerConfig => Ok(docker(file, text)?),
        FileFormat::Npmrc => Ok(npmrc(text)),
        FileFormat::Pypirc => Ok(pypirc(text)),
        FileFormat::Netrc => netrc(text),
        FileFormat::GitCredentials => Ok(git_credentials(text)),
        FileFormat::GhHosts => gh_hosts(text),
    };
    let mut found = found.map_err(|fault| file.unreadable(fault))?;
    let is_whole = |entry: &HostToken| !entry.value.is_empty() && !entry.host.is_empty();
    found.retain(|entry| is_whole(entry) && !entry.is_by_user());
    Ok(found)
}

/// Returns a file with these entries, each with another token. Of the former text, only the
/// registries of `.npmrc` are kept.
pub(super) fn written(
    format: FileFormat,
    text: Option<&str>,
    entries: &[(HostToken, String)],
) -> String {
    let lines = entries.iter();
    let lines: Vec<String> = lines
        .map(|(entry, token)| line(format, entry, token))
        .collect();
    let sections = entries.iter().map(|(entry, _)| entry.member.as_str());
    match format {
        FileFormat::DockerConfig => format!("{{\"auths\":{{{}}}}}\n", lines.join(",")),
        FileFormat::Npmrc => registries(text.unwrap_or_default()) + &lines.concat(),
        FileFormat::Pypirc => {
            let sections = sections.collect::<Vec<&str>>().join(" ");
            let lines = lines.concat();
            format!("[distutils]\nindex-servers = {sections}\n{lines}")
        }
        _ => lines.concat(),
    }
}

fn line(format: FileFormat, entry: &HostToken, token: &str) -> String {
    let member = &entry.member;
    let user = entry.user.as_deref().unwrap_or("x-access-token");
    match format {
        FileFormat::Npmrc => format!("{member}={token}\n"),
        FileFormat::Pypirc => {
            let address = entry.address.as_ref();
            let repository = address.map(|address| format!("repository = {address}\n"));
            let repository = repository.unwrap_or_default();
            format!("[{member}]\n{repository}username = {user}\npassword = {token}\n")
        }
        FileFormat::Netrc => format!("machine {member} login {user} password {token}\n"),
        FileFormat::GitCredentials => {
            let place = member.trim_start_matches("https://");
            let [user, token] =
                [user, token].map(|text| utf8_percent_encode(text, NON_ALPHANUMERIC));
            format!("https://{user}:{token}@{place}\n")
        }
        // The second token is for versions that support several accounts.
        FileFormat::GhHosts => format!(
            "{member}:\n    oauth_token: {token}\n    user: {user}\n    git_protocol: https\n    \
             users:\n        {user}:\n            oauth_token: {token}\n"
        ),
        FileFormat::DockerConfig | FileFormat::Json => {
            let auth = STANDARD.encode(format!("{user}:{token}"));
            format!("{}:{{\"auth\":\"{auth}\"}}", json::quoted(member))
        }
    }
}

/// Returns the lines of `.npmrc` that name registries.
fn registries(text: &str) -> String {
    let registry = |line| {
        let (key, value) = assignment(line, &['='])?;
        let is_registry = key == "registry" || key.starts_with('@') && key.ends_with(":registry");
        (is_registry && !value.contains("${")).then(|| format!("{key}={}\n", without_login(value)))
    };
    text.lines().filter_map(registry).collect()
}

fn docker(file: &LoginFile, text: &str) -> Result<Vec<HostToken>, FileUnreadable> {
    let members = json::members(text, "/auths").map_err(|fault| file.unreadable(fault))?;
    let found = members.into_iter().filter_map(|(member, value)| {
        let found = docker_entry(&text[value], &member);
        found.map_err(|fault| file.at(&member, fault)).transpose()
    });
    found.collect()
}

fn docker_entry(value: &str, member: &str) -> Result<Option<HostToken>, FileFault> {
    let Some(auth) = json::find(value, "/auth")? else {
        return Ok(None);
    };
    let Some(coded) = json::scalar(&value[auth])? else {
        return Ok(None);
    };
    let decoded = STANDARD.decode(&*coded).map_err(|_| FileFault::NoPair)?;
    let decoded = Zeroizing::new(decoded);
    let pair = std::str::from_utf8(&decoded).map_err(|_| FileFault::NoPair)?;
    let (user, token) = pair.split_once(':').ok_or(FileFault::NoPair)?;
    Ok(Some(HostToken {
        member: member.to_owned(),
        host: host_of(member),
        user: Some(user.to_owned()),
        address: None,
        value: Zeroizing::new(token.to_owned()),
    }))
}

fn npmrc(text: &str) -> Vec<HostToken> {
    let entry = |line| {
        let (key, value) = assignment(line, &['='])?;
        let registry = key.strip_suffix(":_authToken")?;
        (registry.starts_with("//") && !value.contains("${")).then(|| HostToken {
            member: key.to_owned(),
            host: host_of(registry),
            value: Zeroizing::new(value.to_owned()),
            ..HostToken::default()
        })
    };
    text.lines().filter_map(entry).collect()
}

fn pypirc(text: &str) -> Vec<HostToken> {
    let mut found: Vec<HostToken> = Vec::new();
    for line in text.lines() {
        let section = line.strip_prefix('[').and_then(|rest| rest.split_once(']'));
        if let Some((name, _)) = section {
            let host = match name {
                "pypi" => "upload.pypi.org",
                "testpypi" => "test.pypi.org",
                _ => "",
            };
            let host = host.to_owned();
            found.push(HostToken {
                host,
                ..HostToken::of_host(name)
            });
            continue;
        }
        let (Some(entry), Some((key, value))) = (found.last_mut(), assignment(line, &['=', ':']))
        else {
            continue;
        };
        match key {
            "username" => entry.user = Some(value.to_owned()),
            "password" => entry.value = Zeroizing::new(value.to_owned()),
            "repository" => {
                (entry.host, entry.address) = (host_of(value), Some(without_login(value)));
            }
            _ => {}
        }
    }
    found
}

fn netrc(text: &str) -> Result<Vec<HostToken>, FileFault> {
    let mut found: Vec<HostToken> = Vec::new();
    let mut in_macro = false;
    let mut key = None;
    for (at, line) in text.lines().enumerate() {
        in_macro &= !line.trim().is_empty();
        if in_macro || line.trim_start().starts_with('#') {
            continue;
        }
        for word in line.split_ascii_whitespace().map(unquoted) {
            match (key.take(), found.last_mut()) {
                (Some("machine"), _) => found.push(HostToken::of_host(word)),
                (Some("login"), Some(entry)) => entry.user = Some(word.to_owned()),
                (Some("password"), Some(entry)) => entry.value = Zeroizing::new(word.to_owned()),
                (Some(_), _) => {}
                (None, _) => match word {
                    "machine" | "login" | "password" | "account" => key = Some(word),
                    // It applies to any host, so it is no login.
                    "default" => found.push(HostToken::default()),
                    "macdef" => in_macro = true,
                    _ if in_macro => {}
                    _ => {
                        let why = "has a word that is no key of `.netrc`";
                        return Err(FileFault::Form(format!("line {} {why}", at + 1)));
                    }
                },
            }
        }
    }
    Ok(found)
}

fn git_credentials(text: &str) -> Vec<HostToken> {
    let entry = |line: &str| {
        let rest = line.trim_end().strip_prefix("https://")?;
        let (login, place) = rest.rsplit_once('@')?;
        let (user, token) = login.split_once(':')?;
        let decoded = |text| percent_decode_str(text).decode_utf8().ok();
        Some(HostToken {
            member: format!("https://{place}"),
            host: host_of(place),
            user: Some(decoded(user)?.into_owned()),
            address: None,
            value: Zeroizing::new(decoded(token)?.into_owned()),
        })
    };
    text.lines().filter_map(entry).collect()
}

fn gh_hosts(text: &str) -> Result<Vec<HostToken>, FileFault> {
    let mut found: Vec<HostToken> = Vec::new();
    let mut depth = None;
    let is_said = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    for line in text.lines().filter(is_said) {
        let indent = line.len() - line.trim_start().len();
        let Some((key, value)) = assignment(line, &[':']) else {
            let why = "it is no list of hosts in block style";
            return Err(FileFault::Form(why.to_owned()));
        };
        if indent == 0 {
            depth = None;
            found.push(HostToken::of_host(key));
            continue;
        }
        // Deeper members belong to accounts that are not in use.
        let is_own = *depth.get_or_insert(indent) == indent;
        match (key, found.last_mut().filter(|_| is_own)) {
            ("oauth_token", Some(entry)) => entry.value = Zeroizing::new(value.to_owned()),
            ("user", Some(entry)) => entry.user = Some(value.to_owned()),
            _ => {}
        }
    }
    Ok(found)
}

impl HostToken {
    /// Returns an entry without a token.
    pub(super) fn of_host(host: &str) -> Self {
        Self {
            member: host.to_owned(),
            host: host.to_owned(),
            ..Self::default()
        }
    }

    /// Whether the user name may be the token: services accept it there, with any password.
    fn is_by_user(&self) -> bool {
        let user = self.user.as_deref().unwrap_or_default();
        let is_random = user.len() >= LONG_USER
            && user.bytes().all(|byte| byte.is_ascii_alphanumeric())
            && user.bytes().any(|byte| byte.is_ascii_digit());
        let is_known = prefixes::matches(user.as_bytes()).any(|found| found.rest.len() >= 8);
        is_random || is_known || user == self.value.as_str() || *self.value == "x-oauth-basic"
    }
}

/// A user name of at least this many letters and digits is a token.
const LONG_USER: usize = 20;

/// Splits a line into key and value. `None` for a comment.
fn assignment<'t>(line: &'t str, signs: &[char]) -> Option<(&'t str, &'t str)> {
    let is_comment = line.trim_start().starts_with(['#', ';']);
    let (key, value) = line.split_once(signs).filter(|_| !is_comment)?;
    Some((unquoted(key), unquoted(value)))
}

/// Removes surrounding space and quotes from a text.
fn unquoted(text: &str) -> &str {
    let text = text.trim();
    let inner = |quote| text.strip_prefix(quote)?.strip_suffix(quote);
    inner('"').or_else(|| inner('\'')).unwrap_or(text)
}

/// Removes user, password and query from an address.
fn without_login(address: &str) -> String {
    let (scheme, rest) = address.split_once("//").unwrap_or(("", address));
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let path = rest.split_once('/').map_or("", |(_, path)| path);
    let host = authority(rest);
    format!("{scheme}//{host}/{path}")
}

/// Returns the host of an address with or without a scheme, and its port.
fn host_of(address: &str) -> String {
    let rest = address.split_once("//").map_or(address, |(_, rest)| rest);
    authority(rest).trim_end_matches(":443").to_owned()
}

/// Returns the host and port before a path.
fn authority(rest: &str) -> &str {
    let whole = rest.split('/').next().unwrap_or_default();
    whole.rsplit('@').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::TokenKind;
    use super::super::file::{read, show_all};
    use super::*;

    fn of(format: FileFormat, member: &str) -> LoginFile {
        LoginFile {
            path: "/home/u/file".into(),
            inside: "file".into(),
            lock: None,
            format,
            members: vec![(TokenKind::Access, member.to_owned())],
            expires: None,
            renewed: None,
            shown: Vec::new(),
            filled: Vec::new(),
        }
    }

    /// A file, its hosts with their tokens, and what the sandbox has of it.
    type Case = (
        FileFormat,
        &'static str,
        &'static [(&'static str, &'static str)],
        &'static str,
    );

    const CASES: &[Case] = &[
        (
            FileFormat::Npmrc,
            "; c\n@x:registry=https://u:CANARY@b.example:8443/x/?CANARY\nregistry=https://${R}/\n//a.example/:_authToken=CANARY1\r\n//b.example:8443/x/:_authToken = \"CANARY2\"\n\
             //v.example/:_authToken=${NPM_TOKEN}\n_auth=CANARY\n//a.example/:_password=CANARY\n",
            &[("a.example", "CANARY1"), ("b.example:8443", "CANARY2")],
            "@x:registry=https://b.example:8443/x/\n//a.example/:_authToken=P0\n//b.example:8443/x/:_authToken=P1\n",
        ),
        (
            FileFormat::Pypirc,
            "[distutils]\nindex-servers =\n  pypi\n  own\n[pypi]\nusername = __token__\npassword = CANARY1\n\
             [own]\nrepository: https://u:CANARY@p.example/legacy/\nusername=me\npassword=CANARY=2\n",
            &[("upload.pypi.org", "CANARY1"), ("p.example", "CANARY=2")],
            "[distutils]\nindex-servers = pypi own\n[pypi]\nusername = __token__\npassword = P0\n\
             [own]\nrepository = https://p.example/legacy/\nusername = me\npassword = P1\n",
        ),
        (
            FileFormat::Netrc,
            "# c\nmachine a.example login me\n  password CANARY1 account CANARY\nmacdef init\ncd /CANARY\n\n\
             machine b.example password \"CANARY2\" login you default login any password CANARY\n",
            &[("a.example", "CANARY1"), ("b.example", "CANARY2")],
            "machine a.example login me password P0\nmachine b.example login you password P1\n",
        ),
        (
            FileFormat::GitCredentials,
            "https://me%40x:CANARY%2F1@a.example\nhttps://b.example/x\nhttp://u:CANARY@a.example\n\
             https://me:CANARY2@b.example/x.git\nhttps://CANARYabc:x-oauth-basic@c.example\n\
             https://ghp_CANARYabc:x@d.example\nhttps://CANARYCANARYCANARY01:x@e.example\n",
            &[("a.example", "CANARY/1"), ("b.example", "CANARY2")],
            "https://me%40x:P0@a.example\nhttps://me:P1@b.example/x.git\n",
        ),
        (
            FileFormat::DockerConfig,
            r#"{"auths":{"https://a.example/v1/":{"auth":"bWU6Q0FOQVJZOjE="},"b.example:5000":{"auth":
               "bWU6Q0FOQVJZMg==","identitytoken":"CANARY"},"c.example":{},"d.example":{"auth":"Q0FOQVJZOkNBTkFSWQ=="}},"HttpHeaders":{"x":"CANARY"}}"#,
            &[("a.example", "CANARY:1"), ("b.example:5000", "CANARY2")],
            "{\"auths\":{\"https://a.example/v1/\":{\"auth\":\"bWU6UDA=\"},\"b.example:5000\":{\"auth\":\"bWU6UDE=\"}}}\n",
        ),
        (
            FileFormat::GhHosts,
            "github.com:\n    users:\n        me:\n            oauth_token: CANARY\n    git_protocol: ssh\n    \
             oauth_token: CANARY1\n    user: me\nghe.example:\n  oauth_token: 'CANARY2'\n  user: you\nno.example:\n  user: x\n",
            &[("github.com", "CANARY1"), ("ghe.example", "CANARY2")],
            "github.com:\n    oauth_token: P0\n    user: me\n    git_protocol: https\n    users:\n        me:\n            \
             oauth_token: P0\nghe.example:\n    oauth_token: P1\n    user: you\n    git_protocol: https\n    users:\n        \
             you:\n            oauth_token: P1\n",
        ),
    ];

    #[test]
    fn each_host_of_a_file_is_a_login_and_the_sandbox_has_its_phantom_alone() {
        for (format, text, expected, copy) in CASES {
            let found = entries(&of(*format, ""), text).unwrap();
            let hosts = found
                .iter()
                .map(|one| (one.host.as_str(), one.value.as_str()));
            assert_eq!(hosts.collect::<Vec<_>>(), *expected, "{format:?}");
            let files: Vec<LoginFile> = found.iter().map(|one| of(*format, &one.member)).collect();
            for (file, (_, token)) in files.iter().zip(*expected) {
                assert_eq!(
                    *read(file, text.as_bytes()).unwrap().unwrap().access,
                    **token
                );
            }
            let phantoms = files.iter().enumerate();
            let logins = phantoms.map(|(at, file)| (file, move |_| Some(format!("P{at}"))));
            let shown = show_all(logins, Some(text.as_bytes())).unwrap().unwrap();
            assert_eq!(String::from_utf8(shown).unwrap(), *copy, "{format:?}");
        }
    }

    #[test]
    fn a_file_of_another_form_is_refused_by_name() {
        for (format, member, text, part) in [
            (
                FileFormat::Netrc,
                "a",
                "machine a login b passwd CANARY",
                "line 1 has a word",
            ),
            (FileFormat::GhHosts, "a", "[CANARY]", "no list of hosts"),
            (
                FileFormat::DockerConfig,
                "a",
                r#"{"auths":{"a":{"auth":"CANARY!"}}}"#,
                "member `a`: it is not base64",
            ),
            (
                FileFormat::DockerConfig,
                "a",
                r#"{"auths":{"a":{"#,
                "no whole JSON",
            ),
            (
                FileFormat::Netrc,
                "a",
                "machine a password CANARY machine a password CANARY",
                "a member is there twice",
            ),
        ] {
            let refused = read(&of(format, member), text.as_bytes()).err().unwrap();
            let shown = format!("{refused} {refused:?}");
            assert!(shown.contains(part) && !shown.contains("CANARY"), "{shown}");
        }
    }
}
