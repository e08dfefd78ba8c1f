//! Files with one token a host: `.npmrc`, `.pypirc`, `.netrc`, `.git-credentials`, Docker's
//! `config.json` and `hosts.yml` of GitHub's command line.

use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use zeroize::Zeroizing;

use super::unreadable::{FileFault, FileUnreadable};
use super::{FileFormat, LoginFile, json};

/// The token of one host.
pub(crate) struct HostToken {
    /// Its member: a key, a section, a machine, an origin.
    pub(crate) member: String,
    /// Its host, with the port if that is not 443.
    pub(crate) host: String,
    /// The user beside the token.
    pub(super) user: Option<String>,
    /// Its address, if the file has one beside the token.
    address: Option<String>,
    /// Where the token is.
    pub(super) at: Range<usize>,
    /// The token.
    pub(super) value: Zeroizing<String>,
}

/// The tokens of a file. Those that the file takes from a variable are left out.
///
/// # Errors
/// [`FileUnreadable`] if it has another form.
pub(crate) fn entries(file: &LoginFile, text: &str) -> Result<Vec<HostToken>, FileUnreadable> {
    let found = match file.format {
        FileFormat::Json => Ok(Vec::new()),
        FileFormat::DockerConfig => return docker(file, text),
        FileFormat::Npmrc => Ok(npmrc(text)),
        FileFormat::Pypirc => Ok(pypirc(text)),
        FileFormat::Netrc => netrc(text),
        FileFormat::GitCredentials => Ok(git_credentials(text)),
        FileFormat::GhHosts => gh_hosts(text),
    };
    let mut found = found.map_err(|fault| file.unreadable(fault))?;
    found.retain(|entry| !entry.value.is_empty() && !entry.host.is_empty());
    Ok(found)
}

/// A token as its file writes it.
pub(super) fn encoded(format: FileFormat, user: Option<&str>, token: &str) -> Zeroizing<String> {
    Zeroizing::new(match format {
        FileFormat::DockerConfig => {
            let pair = Zeroizing::new(format!("{}:{token}", user.unwrap_or_default()));
            json::quoted(&STANDARD.encode(pair.as_bytes()))
        }
        FileFormat::GitCredentials => utf8_percent_encode(token, NON_ALPHANUMERIC).to_string(),
        _ => token.to_owned(),
    })
}

/// A file with these entries, each with another token. Of the former text it has the registries of
/// `.npmrc`, and nothing else.
pub(super) fn written(
    format: FileFormat,
    text: Option<&str>,
    entries: &[(HostToken, String)],
) -> String {
    let each = entries
        .iter()
        .map(|(entry, token)| line(format, entry, token));
    let each: Vec<String> = each.collect();
    let sections = entries.iter().map(|(entry, _)| entry.member.as_str());
    match format {
        FileFormat::DockerConfig => format!("{{\"auths\":{{{}}}}}\n", each.join(",")),
        FileFormat::Npmrc => registries(text.unwrap_or_default()) + &each.concat(),
        FileFormat::Pypirc => {
            let sections: Vec<&str> = sections.collect();
            let sections = sections.join(" ");
            format!("[distutils]\nindex-servers = {sections}\n{}", each.concat())
        }
        _ => each.concat(),
    }
}

/// The lines of `.npmrc` that say where packages come from.
fn registries(text: &str) -> String {
    let registry = |(start, line)| {
        let (key, at) = assignment(text, start, line, &['='])?;
        let value = &text[at];
        let is_registry = key == "registry" || key.starts_with('@') && key.ends_with(":registry");
        (is_registry && !value.contains("${")).then(|| format!("{key}={}\n", without_login(value)))
    };
    lines(text).filter_map(registry).collect()
}

fn line(format: FileFormat, entry: &HostToken, token: &str) -> String {
    let token = encoded(format, entry.user.as_deref(), token);
    let (member, token) = (&entry.member, token.as_str());
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
            let user = utf8_percent_encode(user, NON_ALPHANUMERIC);
            format!("https://{user}:{token}@{place}\n")
        }
        // The second is for versions that know several accounts.
        FileFormat::GhHosts => format!(
            "{member}:\n    oauth_token: {token}\n    user: {user}\n    git_protocol: https\n    \
             users:\n        {user}:\n            oauth_token: {token}\n"
        ),
        FileFormat::DockerConfig | FileFormat::Json => {
            format!("{}:{{\"auth\":{token}}}", json::quoted(member))
        }
    }
}

fn docker(file: &LoginFile, text: &str) -> Result<Vec<HostToken>, FileUnreadable> {
    let auths = json::check(text).and_then(|()| json::find(text, "/auths"));
    let Some(auths) = auths.map_err(|fault| file.unreadable(fault))? else {
        return Ok(Vec::new());
    };
    let members = json::members(text, auths.start);
    let found = members.filter_map(|(member, value)| {
        let found = docker_entry(text, &member, value).map_err(|fault| file.at(&member, fault));
        found.transpose()
    });
    found.collect()
}

fn docker_entry(
    text: &str,
    member: &str,
    value: Range<usize>,
) -> Result<Option<HostToken>, FileFault> {
    let Some(auth) = json::find(&text[value.clone()], "/auth")? else {
        return Ok(None);
    };
    let at = value.start + auth.start..value.start + auth.end;
    let Some(coded) = json::scalar(&text[at.clone()])? else {
        return Ok(None);
    };
    let decoded = Zeroizing::new(STANDARD.decode(&*coded).map_err(|_| FileFault::NoPair)?);
    let pair = std::str::from_utf8(&decoded).map_err(|_| FileFault::NoPair)?;
    let (user, token) = pair.split_once(':').ok_or(FileFault::NoPair)?;
    Ok(Some(HostToken {
        host: host_of(member),
        user: Some(user.to_owned()),
        value: Zeroizing::new(token.to_owned()),
        at,
        ..HostToken::of_host(member)
    }))
}

fn npmrc(text: &str) -> Vec<HostToken> {
    let entry = |(start, line)| {
        let (key, at) = assignment(text, start, line, &['='])?;
        let registry = key.strip_suffix(":_authToken")?;
        let value = &text[at.clone()];
        (registry.starts_with("//") && !value.contains("${")).then(|| HostToken {
            host: host_of(registry),
            value: Zeroizing::new(value.to_owned()),
            at,
            ..HostToken::of_host(key)
        })
    };
    lines(text).filter_map(entry).collect()
}

fn pypirc(text: &str) -> Vec<HostToken> {
    let mut found: Vec<HostToken> = Vec::new();
    for (start, line) in lines(text) {
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
        let (Some(entry), Some((key, at))) =
            (found.last_mut(), assignment(text, start, line, &['=', ':']))
        else {
            continue;
        };
        let value = &text[at.clone()];
        match key {
            "username" => entry.user = Some(value.to_owned()),
            "password" => (entry.at, entry.value) = (at, Zeroizing::new(value.to_owned())),
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
    for (start, line) in lines(text) {
        in_macro &= !line.trim().is_empty();
        if in_macro || line.trim_start().starts_with('#') {
            continue;
        }
        for (at, word) in words(start, line) {
            let Some(key) = key.take() else {
                match word {
                    "machine" | "login" | "password" | "account" => key = Some(word),
                    // It is for any host, so it is no login.
                    "default" => found.push(HostToken::of_host("")),
                    "macdef" => in_macro = true,
                    _ if in_macro => {}
                    _ => {
                        let number = text[..start].matches('\n').count() + 1;
                        let why = format!("line {number} has a word that is no key of `.netrc`");
                        return Err(FileFault::Form(why));
                    }
                }
                continue;
            };
            match (key, found.last_mut()) {
                ("machine", _) => found.push(HostToken::of_host(word)),
                ("login", Some(entry)) => entry.user = Some(word.to_owned()),
                ("password", Some(entry)) => {
                    (entry.at, entry.value) = (at, Zeroizing::new(word.to_owned()));
                }
                _ => {}
            }
        }
    }
    Ok(found)
}

fn git_credentials(text: &str) -> Vec<HostToken> {
    let entry = |(start, line): (usize, &str)| {
        let rest = line.trim_end().strip_prefix("https://")?;
        let (login, place) = rest.rsplit_once('@')?;
        let (user, token) = login.split_once(':')?;
        let from = start + "https://".len() + user.len() + 1;
        let decoded = |text| percent_decode_str(text).decode_utf8().ok();
        Some(HostToken {
            host: host_of(place),
            user: Some(decoded(user)?.into_owned()),
            value: Zeroizing::new(decoded(token)?.into_owned()),
            at: from..from + token.len(),
            ..HostToken::of_host(&format!("https://{place}"))
        })
    };
    lines(text).filter_map(entry).collect()
}

fn gh_hosts(text: &str) -> Result<Vec<HostToken>, FileFault> {
    let mut found: Vec<HostToken> = Vec::new();
    let mut depth = None;
    for (start, line) in lines(text) {
        let indent = line.len() - line.trim_start().len();
        if line.trim().is_empty() || line.trim_start().starts_with('#') {
            continue;
        }
        let Some((key, at)) = assignment(text, start, line, &[':']) else {
            return Err(FileFault::Form(
                "it is no list of hosts in block style".to_owned(),
            ));
        };
        if indent == 0 {
            depth = None;
            found.push(HostToken::of_host(key));
        }
        // Deeper ones are of accounts that are not in use.
        let own = indent > 0 && *depth.get_or_insert(indent) == indent;
        let (Some(entry), true) = (found.last_mut(), own) else {
            continue;
        };
        match key {
            "oauth_token" => {
                (entry.value, entry.at) = (Zeroizing::new(text[at.clone()].to_owned()), at);
            }
            "user" => entry.user = Some(text[at].to_owned()),
            _ => {}
        }
    }
    Ok(found)
}

impl HostToken {
    /// An entry without a token.
    pub(super) fn of_host(host: &str) -> Self {
        Self {
            member: host.to_owned(),
            host: host.to_owned(),
            user: None,
            address: None,
            at: 0..0,
            value: Zeroizing::default(),
        }
    }
}

/// The lines of a text without their ends, and where each starts.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut start = 0;
    text.split_inclusive('\n').map(move |line| {
        let at = start;
        start += line.len();
        (at, line.trim_end_matches(['\n', '\r']))
    })
}

/// The words of a line, and where each is.
fn words(start: usize, line: &str) -> impl Iterator<Item = (Range<usize>, &str)> {
    line.split_ascii_whitespace().map(move |word| {
        let from = start + (word.as_ptr() as usize - line.as_ptr() as usize);
        let quoted = word
            .strip_prefix('"')
            .and_then(|rest| rest.strip_suffix('"'));
        let (from, inner) = quoted.map_or((from, word), |inner| (from + 1, inner));
        (from..from + inner.len(), inner)
    })
}

/// The key of a line, and where its value is, without quotes around it. `None` for a comment.
fn assignment<'t>(
    text: &str,
    start: usize,
    line: &'t str,
    signs: &[char],
) -> Option<(&'t str, Range<usize>)> {
    if line.trim_start().starts_with(['#', ';']) {
        return None;
    }
    let (key, value) = line.split_once(signs)?;
    let from = start + line.len() - value.trim_start().len();
    let mut at = from..from + value.trim().len();
    for quote in ['"', '\''] {
        let whole = &text[at.clone()];
        let inner = whole
            .strip_prefix(quote)
            .and_then(|rest| rest.strip_suffix(quote));
        if let Some(inner) = inner {
            at = at.start + 1..at.start + 1 + inner.len();
        }
    }
    Some((key.trim().trim_matches(['"', '\'']), at))
}

/// An address without a user, a password and a query.
fn without_login(address: &str) -> String {
    let (scheme, rest) = address.split_once("//").unwrap_or(("", address));
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}//{host}/{path}")
}

/// The host of an address with or without a scheme, and its port.
fn host_of(address: &str) -> String {
    let rest = address.split_once("//").map_or(address, |(_, rest)| rest);
    let authority = rest.split('/').next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    host.trim_end_matches(":443").to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::TokenKind;
    use super::super::file::{read, replace, show_all};
    use super::super::tokens::Tokens;
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
             https://me:CANARY2@b.example/x.git\n",
            &[("a.example", "CANARY/1"), ("b.example", "CANARY2")],
            "https://me%40x:P0@a.example\nhttps://me:P1@b.example/x.git\n",
        ),
        (
            FileFormat::DockerConfig,
            r#"{"auths":{"https://a.example/v1/":{"auth":"bWU6Q0FOQVJZOjE="},"b.example:5000":{"auth":
               "bWU6Q0FOQVJZMg==","identitytoken":"CANARY"},"c.example":{}},"HttpHeaders":{"x":"CANARY"}}"#,
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
    fn a_token_is_replaced_in_its_place() {
        for (format, text, expected, _) in CASES {
            let member = &entries(&of(*format, ""), text).unwrap()[1].member;
            let file = of(*format, member);
            let tokens = Tokens {
                access: Zeroizing::new("new/token".to_owned()),
                refresh: None,
                id: None,
                expires: None,
                scope: None,
            };
            let changed = replace(&file, text.as_bytes(), &tokens).unwrap();
            let changed = std::str::from_utf8(&changed).unwrap();
            assert_eq!(
                *read(&file, changed.as_bytes()).unwrap().unwrap().access,
                *"new/token"
            );
            let back = Tokens {
                access: Zeroizing::new(expected[1].1.to_owned()),
                ..tokens
            };
            let back = replace(&file, changed.as_bytes(), &back).unwrap();
            assert_eq!(std::str::from_utf8(&back).unwrap(), *text, "{format:?}");
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
                "member `a`: it is there twice",
            ),
        ] {
            let refused = read(&of(format, member), text.as_bytes()).err().unwrap();
            let shown = format!("{refused} {refused:?}");
            assert!(shown.contains(part) && !shown.contains("CANARY"), "{shown}");
        }
    }
}
