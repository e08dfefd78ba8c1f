//! Finds the running gateways of this user, and calls them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use http::{Method, StatusCode};
use hyper::body::Incoming;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use crate::app::process::serving;
use crate::app::{Code, Failure};
use crate::cli::certificates;
use crate::config::state;
use crate::control::{Client, sockets};
use crate::message::{OriginPattern, Scheme};

/// Chooses a running gateway.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ChosenGateway {
    /// The gateway: its process number, its name, the path of its control socket, or the URL of its
    /// control port [default: the only one that runs; of what is shown, all]
    #[arg(long, value_name = "PID|NAME|SOCKET|URL", env = "GATEWAY_CONTROL")]
    gateway: Option<String>,
    #[command(flatten)]
    shown: ShownCertificate,
}

/// What is shown to a gateway whose control port is called, and what it must show.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ShownCertificate {
    /// The certificate to show at a control port, as PEM
    #[arg(
        long,
        value_name = "FILE",
        env = "GATEWAY_CONTROL_CERT",
        hide_short_help = true
    )]
    gateway_cert: Option<PathBuf>,
    /// The key of that certificate, as PEM, in a file of your own
    #[arg(
        long,
        value_name = "FILE",
        env = "GATEWAY_CONTROL_KEY",
        hide_short_help = true
    )]
    gateway_key: Option<PathBuf>,
    /// The roots of the control port's own certificate [default: those of the system]
    #[arg(
        long,
        value_name = "FILE",
        env = "GATEWAY_CONTROL_CA",
        hide_short_help = true
    )]
    gateway_ca: Option<PathBuf>,
}

impl ShownCertificate {
    /// Returns the client for a control port.
    fn client(&self, url: &str) -> Result<Client, Failure> {
        let origin = url.parse::<OriginPattern>().ok();
        let origin = origin.and_then(|one| one.exact());
        let origin = origin.filter(|one| one.scheme == Scheme::Https);
        let address = origin.ok_or_else(|| {
            Failure::usage("`--gateway` is no address of a control port")
                .next("write for example `https://gateway.example.com:9443`")
        })?;
        let pair = self
            .gateway_cert
            .as_deref()
            .zip(self.gateway_key.as_deref());
        let (certificate, key) = pair.ok_or_else(|| {
            Failure::usage("a control port is called with a certificate alone").next(
                "name yours: `--gateway-cert FILE --gateway-key FILE`, or GATEWAY_CONTROL_CERT and GATEWAY_CONTROL_KEY",
            )
        })?;
        let pair = (("--gateway-cert", certificate), ("--gateway-key", key));
        let identity = certificates::identity(pair.0, pair.1)?;
        let roots = self.gateway_ca.as_deref();
        let roots = roots.map(|path| certificates::read("--gateway-ca", path));
        let roots = roots.transpose()?.unwrap_or_default();
        Ok(Client::elsewhere(address, roots, identity))
    }
}

/// A running gateway.
pub(crate) struct Gateway {
    /// The name of its socket: `serve-1234`.
    pub name: String,
    /// Its control socket or port.
    pub client: Client,
}

impl ChosenGateway {
    /// Chooses by a value of `--gateway`, and what is shown at a control port.
    pub(crate) fn named(gateway: Option<String>, shown: ShownCertificate) -> Self {
        Self { gateway, shown }
    }

    /// Returns the chosen gateways: all running ones unless one is named.
    ///
    /// # Errors
    /// Returns a [`Failure`] if none runs, or none has that name.
    pub(crate) fn all(&self) -> Result<Vec<Gateway>, Failure> {
        let found = self.find()?;
        if !found.is_empty() {
            return Ok(found);
        }
        Err(match &self.gateway {
            Some(named) => Failure::new(format!("no gateway `{named}` runs")).next("gateway status"),
            None => Failure::new("no gateway of yours runs").next(
                "start one: `gateway exec -- CMD` or `gateway serve --config FILE`; name one elsewhere: `--gateway SOCKET`",
            ),
        })
    }

    /// Returns the chosen gateways; none if none runs.
    ///
    /// # Errors
    /// Returns a [`Failure`] if the folder of the sockets is not safe to use, or what is shown at a
    /// control port cannot be.
    pub(crate) fn find(&self) -> Result<Vec<Gateway>, Failure> {
        if let Some(url) = self.gateway.as_deref().filter(|name| name.contains("://")) {
            return Ok(vec![Gateway::at(self.shown.client(url)?)]);
        }
        if let Some(path) = self.gateway.as_deref().filter(|name| name.contains('/')) {
            return Ok(vec![Gateway::at(Client::named(Path::new(path)))]);
        }
        let Some(folder) = state::run_directory() else {
            return Ok(Vec::new());
        };
        let paths = sockets(&folder)
            .map_err(|unusable| Failure::of("the running gateways cannot be found", &unusable))?;
        let all = paths.iter().map(|path| Gateway::at(Client::new(path)));
        let wanted = |gateway: &Gateway| match &self.gateway {
            None => true,
            Some(named) => {
                let pid = gateway.name.rsplit('-').next();
                gateway.name == *named || pid == Some(named.as_str())
            }
        };
        Ok(all.filter(wanted).collect())
    }

    /// Whether a gateway is named.
    pub(crate) fn is_named(&self) -> bool {
        self.gateway.is_some()
    }

    /// Returns the one chosen gateway.
    ///
    /// # Errors
    /// Returns a [`Failure`] if there is none, or more than one.
    pub(crate) fn one(&self) -> Result<Gateway, Failure> {
        only(self.all()?)
    }
}

/// Returns the only gateway of a list.
///
/// # Errors
/// Returns a [`Failure`] that names them all.
pub(crate) fn only(mut all: Vec<Gateway>) -> Result<Gateway, Failure> {
    match all.len() {
        1 => Ok(all.remove(0)),
        _ => {
            let names: Vec<&str> = all.iter().map(|gateway| gateway.name.as_str()).collect();
            Err(
                Failure::usage(format!("several gateways run: {}", names.join(", ")))
                    .next("name one: `--gateway PID`; `gateway status` tells them apart"),
            )
        }
    }
}

impl Gateway {
    fn at(client: Client) -> Self {
        let name = client
            .path()
            .map(|path| path.file_stem().unwrap_or(path.as_os_str()));
        let name = name.map(|name| name.to_string_lossy().into_owned());
        Self {
            name: name.unwrap_or_else(|| client.to_string()),
            client,
        }
    }

    /// Whether it is called over the network, perhaps on another machine.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.client.path().is_none()
    }

    /// Reads a document.
    ///
    /// # Errors
    /// Returns a [`Failure`] if there is no answer, or a refusal.
    pub(crate) fn get(&self, path: &str) -> Result<Value, Failure> {
        self.call(Method::GET, path, None)
    }

    /// Reads a document that a working gateway returns at once.
    ///
    /// # Errors
    /// As [`Gateway::get`]. The wait for a gateway that hangs is short.
    pub(crate) fn get_soon(&self, path: &str) -> Result<Value, Failure> {
        let client = self.client.clone().within(SOON);
        let name = self.name.clone();
        Self { name, client }.get(path)
    }

    /// Makes a call that changes something.
    ///
    /// # Errors
    /// As [`Gateway::get`].
    pub(crate) fn post(&self, path: &str, content: Option<&Value>) -> Result<Value, Failure> {
        self.call(Method::POST, path, content)
    }

    fn call(&self, method: Method, path: &str, content: Option<&Value>) -> Result<Value, Failure> {
        serving::runtime()?.block_on(self.ask(method, path, content))
    }

    /// Makes a call on the runtime that runs.
    ///
    /// # Errors
    /// As [`Gateway::get`].
    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        content: Option<&Value>,
    ) -> Result<Value, Failure> {
        let answered = self.client.call(method, path, content).await;
        let (status, answer) = answered.map_err(|unanswered| self.unanswered(&unanswered))?;
        if status == StatusCode::OK && answer.is_object() {
            Ok(answer)
        } else {
            Err(self.refused(status, &answer))
        }
    }

    /// Follows the new records of its log.
    ///
    /// # Errors
    /// As [`Gateway::get`].
    pub(crate) async fn follow(&self) -> Result<Incoming, Failure> {
        let following = self.client.follow().await;
        following
            .map_err(|unanswered| self.unanswered(&unanswered))?
            .map_err(|(status, answer)| self.refused(status, &answer))
    }

    fn unanswered(&self, why: &crate::control::ControlFailure) -> Failure {
        Failure::of(format!("gateway `{}` does not answer", self.name), why)
    }

    /// Turns a refusal of the gateway into a failure.
    fn refused(&self, status: StatusCode, answer: &Value) -> Failure {
        let error = &answer["error"];
        let part = |name: &str| error[name].as_str().map(str::to_owned);
        let unknown = || format!("gateway `{}` answered {status}", self.name);
        Failure {
            why: part("why"),
            next: part("next").filter(|next| !next.is_empty()),
            code: match status {
                StatusCode::UNPROCESSABLE_ENTITY | StatusCode::BAD_REQUEST => Code::Usage,
                _ => Code::Failed,
            },
            ..Failure::new(part("what").unwrap_or_else(unknown))
        }
    }
}

const SOON: Duration = Duration::from_secs(3);

/// Returns a session's id, encoded for a path.
pub(crate) fn in_path(id: &str) -> String {
    utf8_percent_encode(id, RESERVED).to_string()
}

const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'.')
    .remove(b'-')
    .remove(b'_')
    .remove(b':');
