//! `gateway revoke` and `restore`: what no gateway of this user lends any more, and what again.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::os::unix::net::UnixStream;

use clap::Args;
use serde_json::json;

use crate::app::revocations::unusable;
use crate::app::{Code, Failure, Terminal, counted, safe};
use crate::cli::operate::gateways::{ChosenGateway, Gateway, in_path};
use crate::cli::operate::texts;
use crate::config::state;
use crate::credential::preset;
use crate::names::{CredentialName, join};
use crate::state::RevokedFile;

/// Names a credential whose revocation changes.
#[derive(Args)]
pub(crate) struct RevokeCommand {
    /// The credential, or a variable that it is lent from or stands in
    credential: String,
    /// Ask this gateway alone, such as another user's: its process number, its name, or the path
    /// of its control socket
    #[arg(long, value_name = "PID|NAME|SOCKET")]
    gateway: Option<String>,
}

/// What the gateways that were told answered.
#[derive(Default)]
pub(crate) struct RevokeAnswers {
    pub(crate) confirmed: Vec<String>,
    /// Each gateway that runs and did not confirm, and why.
    unconfirmed: Vec<String>,
    severed: u64,
}

impl RevokeCommand {
    /// Revokes the credential. The row is written first, and then the gateways are looked for: one
    /// that starts meanwhile is found, or it reads the row before it serves.
    pub(crate) fn revoke(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        let none = || {
            Failure::new(format!("there is no credential `{}`", safe(&self.credential)))
                .because("no gateway of yours that runs has one of that name or variable, and it is no known one")
                .next("see `gateway sessions`, or start the gateway that has it")
        };
        let name = self.name()?.ok_or_else(none)?;
        let answers = self.tell(&name, true)?;
        let (one, many) = ("connection to an origin was", "connections to origins were");
        let line = format!(
            "credential `{name}` is revoked: {} confirmed, {} ended\n\
             it stays so, also in gateways started later, until `gateway restore {name}`",
            counted(answers.confirmed.len() as u64, "gateway", "gateways"),
            counted(answers.severed, one, many),
        );
        answers.print(&name, &line, terminal)
    }

    /// Takes the revocation back.
    pub(crate) fn restore(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        let mut revoked = BTreeSet::new();
        for gateway in &self.running()? {
            let status = gateway.get_soon("/v1/status").unwrap_or_default();
            revoked.extend(texts(&status["revoked"]));
        }
        if let Some(file) = self.file()? {
            let rows = file.read().map_err(|unfit| unusable(&file, &unfit))?;
            revoked.extend(rows.into_keys().map(|name| name.to_string()));
        }
        let named = Some(self.credential.clone()).filter(|name| revoked.contains(name));
        let named = named.map_or_else(|| self.name(), |name| Ok(Some(name)))?;
        let name = named.filter(|name| revoked.contains(name)).ok_or_else(|| {
            let name = safe(&self.credential);
            Failure::new(format!("credential `{name}` is not revoked"))
                .because(format!("revoked are: {}", join(revoked, ", ")))
        })?;
        let answers = self.tell(&name, false)?;
        let confirmed = counted(answers.confirmed.len() as u64, "gateway", "gateways");
        let line = format!("credential `{name}` is lent again: {confirmed} confirmed");
        answers.print(&name, &line, terminal)
    }

    /// The credential that is meant: of that name, else of that variable, else a known one.
    fn name(&self) -> Result<Option<String>, Failure> {
        let text = self.credential.as_str();
        let mut found = BTreeSet::new();
        for gateway in &self.running()? {
            let status = gateway.get_soon("/v1/status").unwrap_or_default();
            for one in status["credentials"].as_array().into_iter().flatten() {
                let mut variables = one["variables"].as_array().into_iter().flatten();
                let name = one["name"].as_str().unwrap_or_default();
                if name == text {
                    return Ok(Some(name.to_owned()));
                }
                if variables.any(|variable| variable == text) {
                    found.insert(name.to_owned());
                }
            }
        }
        if found.len() > 1 {
            let found = join(found, ", ");
            let what = format!("several credentials have that variable: {found}");
            return Err(Failure::usage(what).next("name the credential; each is revoked alone"));
        }
        Ok(found.pop_first().or_else(|| known(text)))
    }

    /// Keeps the row for gateways that start later, and tells those that run. One that is asked
    /// alone writes its own.
    fn tell(&self, name: &str, is_revoked: bool) -> Result<RevokeAnswers, Failure> {
        let credential = CredentialName::new(name);
        let credential = credential.map_err(|error| Failure::usage(error.to_string()))?;
        if let Some(file) = self.file()? {
            file.set(&credential, is_revoked).map_err(|unfit| {
                let failure = unusable(&file, &unfit);
                let why = failure.why.unwrap_or_default();
                let what = match is_revoked {
                    true => "nothing was revoked, neither here nor for other gateways",
                    false => "nothing was restored",
                };
                let failure = Failure::new(what).because(format!("{}: {why}", failure.what));
                failure.next("mend that; meanwhile `--gateway PID` revokes in one until it ends")
            })?;
        }
        let act = if is_revoked { "revoke" } else { "restore" };
        let path = format!("/v1/credentials/{}/{act}", in_path(name));
        Ok(tell(&self.running()?, &path))
    }

    /// The file that all gateways of this user share, unless one is asked alone.
    fn file(&self) -> Result<Option<RevokedFile>, Failure> {
        let none = || Failure::no_state_folder("nothing is revoked: there is no place to keep it");
        match self.gateway {
            Some(_) => Ok(None),
            None => Ok(Some(RevokedFile::at(
                state::revoked_file().ok_or_else(none)?,
            ))),
        }
    }

    fn running(&self) -> Result<Vec<Gateway>, Failure> {
        let chosen = ChosenGateway::named(self.gateway.clone());
        match chosen.is_named() {
            true => chosen.one().map(|one| vec![one]),
            false => chosen.find(),
        }
    }
}

impl RevokeAnswers {
    fn print(self, name: &str, line: &str, terminal: &mut Terminal) -> Result<Code, Failure> {
        let document = json!({
            "credential": name,
            "confirmed": self.confirmed,
            "unconfirmed": self.unconfirmed,
            "connections_severed": self.severed,
        });
        terminal.answer(&document, line);
        self.settle()
    }

    /// Whether no gateway that runs was told.
    pub(crate) fn is_silent(&self) -> bool {
        self.confirmed.is_empty() && self.unconfirmed.is_empty()
    }

    /// Says what the command comes to, once what was done is printed.
    pub(crate) fn settle(self) -> Result<Code, Failure> {
        if self.unconfirmed.is_empty() {
            return Ok(Code::Ok);
        }
        let what = format!("not confirmed: {}", safe(&self.unconfirmed.join("; ")));
        Err(Failure::new(what).next("do it again, or end that gateway"))
    }
}

/// The credential that a known variable is lent as, or a known credential.
fn known(text: &str) -> Option<String> {
    let mut all = preset::all().flat_map(|preset| &preset.credentials);
    let named = || all.find(|known| known.name.as_str() == text);
    let known = preset::of_variable(text)
        .map(|(_, known)| known)
        .or_else(named);
    known.map(|known| known.name.to_string())
}

/// Tells gateways at once, each on a thread of its own: one that hangs keeps no other waiting.
pub(crate) fn tell(gateways: &[Gateway], path: &str) -> RevokeAnswers {
    let mut answers = RevokeAnswers::default();
    std::thread::scope(|scope| {
        let told: Vec<_> = gateways
            .iter()
            .map(|gateway| scope.spawn(move || gateway.post(path, None)))
            .collect();
        for (gateway, told) in gateways.iter().zip(told) {
            match told.join() {
                Ok(Ok(answer)) => {
                    answers.severed += answer["connections_severed"].as_u64().unwrap_or_default();
                    answers.confirmed.push(gateway.name.clone());
                }
                // It lends nothing any more.
                _ if is_gone(gateway) => {}
                Ok(Err(failure)) => answers.unconfirmed.push(failure.to_string()),
                Err(_) => answers.unconfirmed.push(gateway.name.clone()),
            }
        }
    });
    answers
}

fn is_gone(gateway: &Gateway) -> bool {
    let connected = UnixStream::connect(gateway.client.path());
    let gone = [ErrorKind::ConnectionRefused, ErrorKind::NotFound];
    connected.is_err_and(|error| gone.contains(&error.kind()))
}
