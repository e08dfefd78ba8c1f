//! `gateway env`: the variables that make a client use a running `gateway serve`, trust it and hold its phantoms.

use std::path::Path;

use clap::{Args, ValueEnum};

use crate::config::{Config, Listener, ListenerKind};
use crate::launch::trust;

use super::ca;
use super::failure::{Code, Failure};
use super::flags::ConfigFile;
use super::screen::Screen;

/// Prints variables.
#[derive(Args)]
pub(super) struct Env {
    /// The session whose listener and phantoms are meant [default: the only one]
    #[arg(long, value_name = "NAME")]
    session: Option<String>,
    /// How to write them
    #[arg(long, value_enum, default_value_t = Form::Sh)]
    form: Form,
    #[command(flatten)]
    config: ConfigFile,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// `export NAME='value'`, for `eval`
    Sh,
    /// `set -gx NAME 'value'`
    Fish,
    /// `NAME=value`, for `--env-file`
    Dotenv,
}

impl Env {
    pub(super) fn run(self, screen: &mut Screen) -> Result<Code, Failure> {
        let config = self.config.read(screen)?;
        let listener = self.listener(&config)?;
        let (certificate, _) = ca::certificate(&config, &listener.session)?;
        let mut variables = proxy(listener);
        variables.extend(trusting(&certificate));
        if let Some(file) = config.phantoms.file_of(&listener.session) {
            variables.extend(phantoms(&file)?);
        }
        if screen.json() {
            let map: serde_json::Map<_, _> = variables
                .into_iter()
                .map(|(name, value)| (name, value.into()))
                .collect();
            screen.document(&map);
            return Ok(Code::Ok);
        }
        for (name, value) in variables {
            screen.line(self.form.line(&name, &value)?);
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
            [first, ..] if proxies.iter().all(|listener| listener.session == first.session) => Ok(first),
            _ => {
                let names: Vec<_> = proxies.iter().map(|listener| listener.session.as_str()).collect();
                Err(Failure::usage("several sessions have a listener")
                    .next(format!("name one: `--session` {}", names.join(" or "))))
            }
        }
    }
}

/// The variables that point to the proxy. The password is not printed: it is in the store that the configuration names.
fn proxy(listener: &Listener) -> Vec<(String, String)> {
    let address = listener.address;
    let user = match &listener.kind {
        ListenerKind::Proxy {
            authentication: Some(authentication),
        } => format!("{}@", authentication.user),
        _ => String::new(),
    };
    let url = format!("http://{user}{address}");
    let names = ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"];
    let mut variables: Vec<_> = names
        .into_iter()
        .map(|name| (name.to_owned(), url.clone()))
        .collect();
    variables.push((String::from("ALL_PROXY"), format!("socks5h://{user}{address}")));
    // Node reads the proxy's variables from version 24 on, and only where this is set.
    variables.push((String::from("NODE_USE_ENV_PROXY"), String::from("1")));
    variables
}

/// The variables that make clients trust the CA. It may stand alone: no connection passes the gateway untouched. Java takes
/// no such file.
fn trusting(certificate: &Path) -> impl Iterator<Item = (String, String)> {
    let path = certificate.display().to_string();
    trust::VARIABLES
        .iter()
        .filter(|variable| variable.form != trust::Form::JavaOptions)
        .map(move |variable| (variable.name.to_owned(), path.clone()))
}

fn phantoms(file: &Path) -> Result<Vec<(String, String)>, Failure> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        Failure::new(format!("the phantoms in `{}` cannot be read", file.display()))
            .because(error.to_string())
            .next("`gateway serve` writes them when it starts: is it running?")
    })?;
    let lines = text.lines().filter_map(|line| line.split_once('='));
    Ok(lines
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect())
}

impl Form {
    fn line(self, name: &str, value: &str) -> Result<String, Failure> {
        let plain = name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if !plain || value.chars().any(char::is_control) {
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
    use super::*;

    #[test]
    fn a_value_stays_one_word_in_every_shell() {
        let value = "a'b\\c $(x) `y` \"z\"";
        assert_eq!(
            Form::Sh.line("N", value).unwrap(),
            "export N='a'\\''b\\c $(x) `y` \"z\"'"
        );
        assert_eq!(
            Form::Fish.line("N", value).unwrap(),
            "set -gx N 'a\\'b\\\\c $(x) `y` \"z\"'"
        );
        assert!(Form::Sh.line("N;x", "v").is_err());
        assert!(Form::Dotenv.line("N", "a\nB=c").is_err());
    }
}
