//! `gateway env`: prints the variables that make a client use a running `gateway serve`, trust it
//! and send its phantoms, or writes them with its CA and login files into a folder. They come from
//! the running gateway, or from its files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde_json::Value;

use crate::config::{Config, Listener};
use crate::files::create_private;
use crate::intercept::PRESENTED_USER;
use crate::server::ClientEnvironment;

use crate::app::client_environment::{self, no_proxy};
use crate::app::listen::publish::unquoted;
use crate::app::settings::resolve::ResolvedConfig;
use crate::app::settings::shell_secrets::ShellLoans;
use crate::app::{Advise as _, Code, ConfigFile, Context as _, Failure, Terminal};
use crate::cli::operate::gateways::{ChosenGateway, in_path};

/// Prints variables.
#[derive(Args)]
pub(crate) struct Env {
    /// The session whose listener and phantoms are meant [default: the only one]
    #[arg(long, value_name = "NAME")]
    session: Option<String>,
    /// How to write them [default: `sh`; in a folder `dotenv`]
    #[arg(long, value_enum)]
    form: Option<EnvFormat>,
    /// Write them into a new folder, as `env`, with the CA, and in `home` the files of logins
    #[arg(long, value_name = "DIR", conflicts_with = "config")]
    into: Option<PathBuf>,
    /// Where clients will have that folder, such as `/gateway` in a container [default: DIR]
    #[arg(long, value_name = "PATH", requires = "into")]
    at: Option<PathBuf>,
    #[command(flatten)]
    gateway: ChosenGateway,
    #[command(flatten)]
    config: ConfigFile,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum EnvFormat {
    /// `export NAME='value'`, for `eval`
    Sh,
    /// `set -gx NAME 'value'`
    Fish,
    /// `NAME=value`, for `--env-file`
    Dotenv,
}

impl Env {
    pub(crate) fn run(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        if let Some(into) = &self.into {
            return self.write(into, self.of_running()?, terminal);
        }
        let form = self.form.unwrap_or(EnvFormat::Sh);
        let environment = match self.config.path() {
            Some(_) => self.of_file(&self.config.read(terminal)?)?,
            None => self.of_running()?,
        };
        let Some(certificate) = &environment.certificate_file else {
            // No file here holds its CA.
            if terminal.json() || form != EnvFormat::Sh {
                return Err(Failure::usage("the session's CA is in no file")
                    .next("write one: `gateway env --session SESSION --into DIR`"));
            }
            terminal.line(client_environment::script(&environment).trim_end());
            return Ok(Code::Ok);
        };
        note_password(&environment, terminal);
        let files = client_environment::trust_in(certificate);
        let variables = client_environment::variables(&environment, &files);
        if terminal.json() {
            terminal.document(&variables);
            return Ok(Code::Ok);
        }
        for (name, value) in variables {
            terminal.line(form.line(&name, &value)?);
        }
        Ok(Code::Ok)
    }

    /// Writes everything that clients need into a new folder.
    fn write(
        &self,
        into: &Path,
        mut needs: ClientEnvironment,
        terminal: &Terminal,
    ) -> Result<Code, Failure> {
        let proxy = needs.proxy.as_mut();
        if let Some(user) = proxy.and_then(|proxy| proxy.user.as_mut()) {
            match std::env::var("GATEWAY_TOKEN") {
                Ok(token) if user == PRESENTED_USER => *user = format!("{user}:{token}"),
                _ => note_password(&needs, terminal),
            }
        }
        let shown = into.display();
        self.write_folder(into, &needs)
            .context(format!("`{shown}` cannot be written"))??;
        terminal.note(format!("written to {shown}, which is for its owner alone"));
        Ok(Code::Ok)
    }

    fn write_folder(
        &self,
        into: &Path,
        needs: &ClientEnvironment,
    ) -> std::io::Result<Result<(), Failure>> {
        let private = || {
            let mut folders = DirBuilder::new();
            folders.mode(0o700);
            folders
        };
        // An existing folder is refused, so no link in it is followed and nothing is replaced.
        private().create(into)?;
        let into = std::path::absolute(into)?;
        let files = client_environment::write_trust(
            &into,
            self.at.as_deref().unwrap_or(&into),
            &needs.certificate,
        )?;
        let form = self.form.unwrap_or(EnvFormat::Dotenv);
        let mut text = String::new();
        for (name, value) in client_environment::variables(needs, &files) {
            match form.line(&name, &value) {
                Ok(line) => text += &(line + "\n"),
                Err(failure) => return Ok(Err(failure)),
            }
        }
        create_private(&into.join("env"), text.as_bytes())?;
        for (path, content) in &needs.files {
            let path = into.join(format!("home/{path}"));
            private()
                .recursive(true)
                .create(path.parent().unwrap_or(&into))?;
            create_private(&path, content.as_bytes())?;
        }
        Ok(Ok(()))
    }

    /// Asks the running gateways, of which exactly one session may match.
    fn of_running(&self) -> Result<ClientEnvironment, Failure> {
        let mut found = Vec::new();
        let mut first = None;
        for gateway in self.gateway.all()? {
            let status = gateway.get_soon("/v1/status")?;
            let listeners = status["listeners"].as_array().into_iter().flatten();
            let sessions = listeners.filter_map(|one| one["session"].as_str());
            let named = self.session.as_deref();
            // A session of a token or a caller belongs to no listener.
            let sessions: BTreeSet<&str> = match named {
                Some(named) => [named].into(),
                None => sessions.collect(),
            };
            for session in sessions {
                let path = format!("/v1/sessions/{}/environment", in_path(session));
                match gateway.get(&path) {
                    Ok(mut answer) => {
                        if gateway.is_elsewhere() {
                            // It is a path of the gateway's machine.
                            answer["certificate_file"] = Value::Null;
                        }
                        found.push((format!("{session} of {}", gateway.name), answer));
                    }
                    Err(failure) => first = first.or(Some(failure)),
                }
            }
        }
        let unreadable = |error| Failure::of("the gateway's answer cannot be read", &error);
        match (found.pop(), first) {
            (Some((_, answer)), _) if found.is_empty() => {
                serde_json::from_value(answer).map_err(unreadable)
            }
            (Some((name, _)), _) => {
                let others = found.into_iter().map(|(name, _)| name);
                let names: Vec<String> = others.chain([name]).collect();
                Err(Failure::usage(format!(
                    "several sessions have a proxy: {}",
                    names.join(", ")
                ))
                .next("name one: `--session NAME`, and its gateway: `--gateway NAME`"))
            }
            // A missing session that was named is a mistake of the command line.
            (None, Some(failure)) => Err(Failure {
                code: Code::Usage,
                ..failure
            }),
            (None, None) => Err(no_proxy()),
        }
    }

    /// Reads the files that a gateway with this configuration has written.
    fn of_file(&self, config: &Config) -> Result<ClientEnvironment, Failure> {
        let listener = listener(config, self.session.as_deref(), Listener::has_proxy_url)?;
        let listener = listener.ok_or_else(no_proxy)?;
        let session = listener.session.one().ok_or_else(no_proxy)?;
        let (certificate, _) = client_environment::certificate(config, session)?;
        let resolved = ResolvedConfig::of(config, &ShellLoans::default())?;
        let phantoms = match config.phantoms.file_of(session) {
            Some(file) => phantoms(&file, &resolved.variables())?,
            None => BTreeMap::new(),
        };
        let certificate = std::path::absolute(certificate);
        let certificate = certificate.context("the certificate's path cannot be told")?;
        Ok(ClientEnvironment {
            proxy: Some(client_environment::proxy(listener)),
            certificate_file: Some(certificate),
            git: client_environment::git(resolved.bindings(), &phantoms),
            variables: phantoms,
            ..ClientEnvironment::default()
        })
    }
}

/// Returns the listener of a session: the named one, or the only one that fits.
pub(super) fn listener<'a>(
    config: &'a Config,
    named: Option<&str>,
    fits: impl Fn(&Listener) -> bool,
) -> Result<Option<&'a Listener>, Failure> {
    let is_named = |one: &Listener| named.is_none_or(|name| name == one.session.as_str());
    let listeners = config.listeners.iter();
    let found: Vec<&Listener> = listeners.filter(|one| fits(one) && is_named(one)).collect();
    if found.iter().all(|one| one.session == found[0].session) {
        return Ok(found.first().copied());
    }
    let names = crate::names::join(found.iter().map(|one| &one.session), " or ");
    Err(Failure::usage("several sessions have a listener")
        .next(format!("name one: `--session` {names}")))
}

/// Reports that a proxy which asks for a password is not reached with these variables alone.
fn note_password(environment: &ClientEnvironment, terminal: &Terminal) {
    let proxy = environment.proxy.as_ref();
    if let Some(user) = proxy.and_then(|proxy| proxy.user.as_ref()) {
        terminal.note(format!(
            "gateway: the proxy asks for the password of `{user}`, which is not printed: put it into the URLs, behind the name and a colon"
        ));
    }
}

/// Reads the phantoms from a file. The output becomes part of a shell, so a line is refused if the
/// configuration does not know its variable. No known variable steers a shell or a program.
fn phantoms(file: &Path, known: &[&str]) -> Result<BTreeMap<String, String>, Failure> {
    let text = std::fs::read_to_string(file)
        .context(format!(
            "the phantoms in `{}` cannot be read",
            file.display()
        ))
        .advise("`gateway serve` writes them when it starts: is it running?")?;
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

impl EnvFormat {
    /// Writes a variable.
    ///
    /// # Errors
    /// Returns a [`Failure`] if its name or value cannot be written so.
    pub(crate) fn line(self, name: &str, value: &str) -> Result<String, Failure> {
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
    use crate::launch::trust;

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
}
