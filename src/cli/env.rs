//! `gateway env`: prints the variables that make a client use a running `gateway serve`, trust it
//! and send its phantoms.

use std::path::Path;

use clap::{Args, ValueEnum};

use crate::config::{Config, Listener, ListenerKind, ProxyLogin};
use crate::launch::trust;

use super::ca;
use super::failure::{Code, Failure};
use super::flags::ConfigFile;
use super::resolve::ResolvedConfig;
use super::shell_loans::ShellLoans;
use super::terminal::Terminal;

/// Prints variables.
#[derive(Args)]
pub(super) struct Env {
    /// The session whose listener and phantoms are meant [default: the only one]
    #[arg(long, value_name = "NAME")]
    session: Option<String>,
    /// How to write them
    #[arg(long, value_enum, default_value_t = EnvFormat::Sh)]
    form: EnvFormat,
    #[command(flatten)]
    config: ConfigFile,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum EnvFormat {
    /// `export NAME='value'`, for `eval`
    Sh,
    /// `set -gx NAME 'value'`
    Fish,
    /// `NAME=value`, for `--env-file`
    Dotenv,
}

impl Env {
    pub(super) fn run(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        let config = self.config.read(terminal)?;
        let listener = self.listener(&config)?;
        let (certificate, _) = ca::certificate(&config, &listener.session)?;
        note_password(listener, terminal);
        let mut variables = proxy(listener);
        variables.extend(trusting(&certificate));
        if let Some(file) = config.phantoms.file_of(&listener.session) {
            let resolved = ResolvedConfig::of(&config, &ShellLoans::default())?;
            variables.extend(phantoms(&file, &resolved.variables())?);
        }
        if terminal.json() {
            let map: serde_json::Map<_, _> = variables
                .into_iter()
                .map(|(name, value)| (name, value.into()))
                .collect();
            terminal.document(&map);
            return Ok(Code::Ok);
        }
        for (name, value) in variables {
            terminal.line(self.form.line(&name, &value)?);
        }
        Ok(Code::Ok)
    }

    fn listener<'a>(&self, config: &'a Config) -> Result<&'a Listener, Failure> {
        let wanted = |listener: &&Listener| {
            self.session
                .as_deref()
                .is_none_or(|name| name == listener.session.as_str())
        };
        let proxies: Vec<&Listener> = config
            .listeners
            .iter()
            .filter(|listener| matches!(listener.kind, ListenerKind::Proxy { .. }))
            .filter(wanted)
            .collect();
        match proxies[..] {
            [listener] => Ok(listener),
            [] => Err(Failure::usage("no proxy listener fits")
                .next("add a [[listener]] with `kind = \"proxy\"`, or name another `--session`")),
            [first, ..]
                if proxies
                    .iter()
                    .all(|listener| listener.session == first.session) =>
            {
                Ok(first)
            }
            _ => {
                let names: Vec<_> = proxies
                    .iter()
                    .map(|listener| listener.session.as_str())
                    .collect();
                Err(Failure::usage("several sessions have a listener")
                    .next(format!("name one: `--session` {}", names.join(" or "))))
            }
        }
    }
}

/// Says that a proxy which asks for a password is not reached with these variables alone.
fn note_password(listener: &Listener, terminal: &Terminal) {
    if let Some(ProxyLogin { user, .. }) = listener.login() {
        terminal.note(format!(
            "gateway: the proxy asks for the password of `{user}`, which is not printed: put it into the URLs, behind the name and a colon"
        ));
    }
}

/// Returns the variables that point to the proxy. The password is not printed; it is in the store
/// that the configuration names.
fn proxy(listener: &Listener) -> Vec<(String, String)> {
    let address = listener.address;
    let user = listener.login().map(|login| format!("{}@", login.user));
    let user = user.unwrap_or_default();
    let url = format!("http://{user}{address}");
    let names = ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"];
    let mut variables: Vec<_> = names
        .into_iter()
        .map(|name| (name.to_owned(), url.clone()))
        .collect();
    variables.push((
        String::from("ALL_PROXY"),
        format!("socks5h://{user}{address}"),
    ));
    // Node reads the proxy variables from version 24 on, and only if this is set.
    variables.push((String::from("NODE_USE_ENV_PROXY"), String::from("1")));
    variables
}

/// Returns the variables that make clients trust the CA. The CA alone is enough, because every
/// connection goes through the gateway. Java does not accept such a file.
fn trusting(certificate: &Path) -> impl Iterator<Item = (String, String)> {
    let path = certificate.display().to_string();
    trust::variables().map(move |(name, _)| (name.to_owned(), path.clone()))
}

/// Reads the phantoms from a file. The output becomes part of a shell, so a line is refused if the
/// configuration does not know its variable. No known variable steers a shell or a program.
fn phantoms(file: &Path, known: &[&str]) -> Result<Vec<(String, String)>, Failure> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        Failure::new(format!(
            "the phantoms in `{}` cannot be read",
            file.display()
        ))
        .because(error.to_string())
        .next("`gateway serve` writes them when it starts: is it running?")
    })?;
    let lines = text.lines().filter_map(|line| line.split_once('='));
    let line = |(name, value): (&str, &str)| {
        if known.contains(&name) {
            return Ok((name.to_owned(), unquoted(value)));
        }
        Err(Failure::new(format!(
            "`{}` holds the variable `{name}`, which no credential has",
            file.display()
        ))
        .because("the file is not what `gateway serve` wrote by this configuration")
        .next("look who wrote it; `gateway serve` writes it anew when it starts"))
    };
    lines.map(line).collect()
}

/// Returns one line for the phantom file. The value is written as it is, except a multi-line
/// private key: it is in double quotes, with `\n` for each line end, as readers of such files
/// expect.
pub(super) fn quoted(name: &str, value: &str) -> String {
    if !value.starts_with('"') && !value.contains(char::is_control) {
        return format!("{name}={value}\n");
    }
    let escaped: String = value
        .chars()
        .map(|char| match char {
            '\n' => String::from("\\n"),
            '\r' => String::from("\\r"),
            '\\' | '"' => format!("\\{char}"),
            other => String::from(other),
        })
        .collect();
    format!("{name}=\"{escaped}\"\n")
}

fn unquoted(value: &str) -> String {
    let Some(inner) = value
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
    else {
        return value.to_owned();
    };
    let mut chars = inner.chars();
    let mut text = String::with_capacity(inner.len());
    while let Some(char) = chars.next() {
        let char = match char {
            '\\' => match chars.next() {
                Some('n') => '\n',
                Some('r') => '\r',
                Some(other) => other,
                None => '\\',
            },
            other => other,
        };
        text.push(char);
    }
    text
}

impl EnvFormat {
    fn line(self, name: &str, value: &str) -> Result<String, Failure> {
        let plain = name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        // A private key has several lines, which shells keep in quotes.
        let odd = |char: char| {
            char.is_control() && !(self != Self::Dotenv && matches!(char, '\n' | '\r'))
        };
        if self == Self::Dotenv && plain && value.contains(['\n', '\r']) {
            return Err(Failure::new(format!("`{name}` cannot be written for an env file"))
                .because("it is a private key of several lines, and such files have one line a variable")
                .next("use `--form sh`; or keep the real key on one line, its line breaks written as `\\n`: its phantom is written so, too"));
        }
        if !plain || value.contains(odd) {
            return Err(Failure::new("a variable cannot be written for a shell")
                .because("its name or value holds an odd character"));
        }
        Ok(match self {
            Self::Sh => format!("export {name}='{}'", value.replace('\'', r"'\''")),
            Self::Fish => format!(
                "set -gx {name} '{}'",
                value.replace('\\', r"\\").replace('\'', r"\'")
            ),
            Self::Dotenv => format!("{name}={value}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_value_stays_one_word_in_every_shell() {
        let value = "a'b\\c $(x) `y` \"z\"";
        assert_eq!(
            EnvFormat::Sh.line("N", value).unwrap(),
            "export N='a'\\''b\\c $(x) `y` \"z\"'"
        );
        assert_eq!(
            EnvFormat::Fish.line("N", value).unwrap(),
            "set -gx N 'a\\'b\\\\c $(x) `y` \"z\"'"
        );
        assert!(EnvFormat::Sh.line("N;x", "v").is_err());
        assert!(EnvFormat::Dotenv.line("N", "a\nB=c").is_err());
        assert!(EnvFormat::Sh.line("N", "a\0b").is_err());
    }

    #[test]
    fn no_credential_takes_a_variable_by_which_a_client_is_told_whom_to_trust_or_what_to_run() {
        let trusting = trust::variables().map(|(name, _)| name);
        let running = [
            "LD_PRELOAD",
            "path",
            "BASH_ENV",
            "PROMPT_COMMAND",
            "PS1",
            "NODE_OPTIONS",
            "PYTHONSTARTUP",
            "PERL5OPT",
            "JAVA_TOOL_OPTIONS",
            "GIT_SSH_COMMAND",
            "GIT_ASKPASS",
            "EDITOR",
            "https_proxy",
        ];
        for name in trusting.chain(running) {
            assert!(crate::config::sandbox_variable(name).is_err(), "{name}");
        }
        for known in [
            "GITHUB_TOKEN",
            "AWS_ACCESS_KEY_ID",
            "NPM_TOKEN",
            "GIT_TOKEN",
            "PGPASSWORD",
        ] {
            assert!(crate::config::sandbox_variable(known).is_ok(), "{known}");
        }
    }

    #[test]
    fn a_shell_reads_a_value_of_several_lines_as_it_is() {
        let value = "-----BEGIN PRIVATE KEY-----\r\nMC4'$(x)\\n\n-----END PRIVATE KEY-----\n";
        let line = EnvFormat::Sh.line("KEY", value).unwrap();
        // As the documentation says: `eval "$(gateway env --config FILE)"`.
        let script = r#"eval "$(cat)"; printf '%s.' "$KEY""#;
        let mut shell = Command::new("sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        shell
            .stdin
            .take()
            .unwrap()
            .write_all(format!("{line}\n").as_bytes())
            .unwrap();
        let output = shell.wait_with_output().unwrap();
        assert_eq!(
            String::from_utf8(output.stdout).unwrap(),
            format!("{value}.")
        );
    }

    #[test]
    fn a_line_of_the_file_of_phantoms_reads_as_it_was_written() {
        for (value, wanted) in [
            ("ghp_x\\n", "N=ghp_x\\n\n"),
            ("a\n\\\"b\r\n", "N=\"a\\n\\\\\\\"b\\r\\n\"\n"),
            ("\"", "N=\"\\\"\"\n"),
        ] {
            let line = quoted("N", value);
            assert_eq!(line, wanted);
            let (_, read) = line.trim_end().split_once('=').unwrap();
            assert_eq!(unquoted(read), value);
        }
    }
}
