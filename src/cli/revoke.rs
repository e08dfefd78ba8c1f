//! `gateway revoke` and `restore`: what no gateway of this user lends any more, and what again.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::os::unix::net::UnixStream;

use clap::Args;
use serde_json::{Value, json};

use super::failure::{Code, Failure};
use super::gateways::{ChosenGateway, Gateway, in_path};
use super::operate::texts;
use super::revoking::unusable;
use super::terminal::{Terminal, counted, safe};
use crate::config::state;
use crate::credential::preset;
use crate::names::CredentialName;
use crate::state::RevokedFile;

/// Names a credential whose revocation changes.
#[derive(Args)]
pub(super) struct Revocation {
    /// The credential, or a variable that it is lent from or stands in
    credential: String,
    /// Ask this gateway alone, such as another user's: its process number, its name, or the path
    /// of its control socket
    #[arg(long, value_name = "PID|NAME|SOCKET")]
    gateway: Option<String>,
}

/// What the gateways that were told answered.
#[derive(Default)]
struct Answers {
    confirmed: Vec<String>,
    /// Each gateway that runs and did not confirm, and why.
    unconfirmed: Vec<(String, String)>,
    severed: u64,
}

impl Revocation {
    /// Revokes the credential. The row is written first, and then the gateways are looked for: one
    /// that starts meanwhile is found, or it reads the row before it serves.
    pub(super) fn revoke(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        let names = self.names(|text, found| match (found.is_empty(), known(text)) {
            (true, Some(name)) => BTreeSet::from([name]),
            _ => found,
        })?;
        if names.is_empty() {
            let text = safe(&self.credential);
            return Err(Failure::new(format!("there is no credential `{text}`"))
                .because("no gateway of yours that runs has one of that name or variable, and it is no known one")
                .next("see `gateway sessions`, or start the gateway that has it"));
        }
        self.keep(&names, true)?;
        let answers = tell(&self.running()?, &names, "revoke");
        let confirmed = answers.confirmed.len() as u64;
        let line = format!(
            "credential {} is revoked: {} confirmed, {} ended\nit stays so, also in gateways started later, until `gateway restore {}`",
            quoted(&names),
            counted(confirmed, "gateway", "gateways"),
            counted(
                answers.severed,
                "connection to an origin was",
                "connections to origins were"
            ),
            listed(&names),
        );
        self.end(answers, &names, &line, terminal)
    }

    /// Takes the revocation back.
    pub(super) fn restore(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        let mut revoked = BTreeSet::new();
        for gateway in &self.running()? {
            let status = gateway.get_soon("/v1/status").unwrap_or_default();
            revoked.extend(texts(&status["revoked"]));
        }
        if let Some(file) = self.file()? {
            let rows = file.read().map_err(|unfit| unusable(&file, &unfit))?;
            revoked.extend(rows.into_keys().map(|name| name.to_string()));
        }
        let names = self.names(|text, mut found| {
            found.extend(known(text));
            let found = found.into_iter().chain([text.to_owned()]);
            found.filter(|name| revoked.contains(name)).collect()
        })?;
        if names.is_empty() {
            let revoked: Vec<String> = revoked.into_iter().collect();
            let what = format!("credential `{}` is not revoked", safe(&self.credential));
            return Err(match revoked.is_empty() {
                true => Failure::new(what).because("none is"),
                false => Failure::new(what).next(format!("revoked are {}", revoked.join(", "))),
            });
        }
        self.keep(&names, false)?;
        let answers = tell(&self.running()?, &names, "restore");
        let confirmed = counted(answers.confirmed.len() as u64, "gateway", "gateways");
        let line = format!(
            "credential {} is lent again: {confirmed} confirmed",
            quoted(&names)
        );
        self.end(answers, &names, &line, terminal)
    }

    /// The credentials that are meant: of that name, else of that variable, as `chosen` says.
    fn names(
        &self,
        chosen: impl Fn(&str, BTreeSet<String>) -> BTreeSet<String>,
    ) -> Result<BTreeSet<String>, Failure> {
        let text = self.credential.as_str();
        let mut found = BTreeSet::new();
        for gateway in &self.running()? {
            let mut status = gateway.get_soon("/v1/status").unwrap_or_default();
            let Value::Array(credentials) = status["credentials"].take() else {
                continue;
            };
            for one in credentials {
                let variables = one["variables"].as_array().into_iter().flatten();
                let is_named =
                    one["name"] == text || variables.into_iter().any(|name| name == text);
                found.extend(one["name"].as_str().filter(|_| is_named).map(str::to_owned));
            }
        }
        Ok(match found.contains(text) {
            true => chosen(text, BTreeSet::from([text.to_owned()])),
            false => chosen(text, found),
        })
    }

    /// Writes the rows for gateways that start later. One that is asked alone writes its own.
    fn keep(&self, names: &BTreeSet<String>, is_revoked: bool) -> Result<(), Failure> {
        let Some(file) = self.file()? else {
            return Ok(());
        };
        for name in names {
            let name = CredentialName::new(name);
            let name = name.map_err(|error| Failure::usage(error.to_string()))?;
            file.set(&name, is_revoked).map_err(|unfit| {
                let failure = unusable(&file, &unfit);
                let what = match is_revoked {
                    true => "nothing was revoked, neither here nor for other gateways",
                    false => "nothing was restored",
                };
                let why = failure.why.unwrap_or_default();
                Failure::new(what)
                    .because(format!("{}: {why}", failure.what))
                    .next(
                        "mend that; meanwhile `--gateway PID` revokes in one gateway until it ends",
                    )
            })?;
        }
        Ok(())
    }

    /// The file that all gateways of this user share, unless one is asked alone.
    fn file(&self) -> Result<Option<RevokedFile>, Failure> {
        if self.gateway.is_some() {
            return Ok(None);
        }
        let none = || Failure::no_state_folder("nothing is revoked: there is no place to keep it");
        Ok(Some(RevokedFile::at(
            state::revoked_file().ok_or_else(none)?,
        )))
    }

    fn running(&self) -> Result<Vec<Gateway>, Failure> {
        let chosen = ChosenGateway::named(self.gateway.clone());
        match chosen.is_named() {
            true => chosen.one().map(|one| vec![one]),
            false => chosen.find(),
        }
    }

    fn end(
        &self,
        answers: Answers,
        names: &BTreeSet<String>,
        line: &str,
        terminal: &mut Terminal,
    ) -> Result<Code, Failure> {
        let unconfirmed: Vec<String> = answers
            .unconfirmed
            .iter()
            .map(|(name, why)| format!("`{}` ({})", safe(name), safe(why)))
            .collect();
        let document = json!({
            "credentials": names,
            "confirmed": answers.confirmed,
            "unconfirmed": answers.unconfirmed,
            "connections_severed": answers.severed,
        });
        terminal.answer(&document, line);
        if unconfirmed.is_empty() {
            return Ok(Code::Ok);
        }
        let what = format!("not confirmed by {}", unconfirmed.join(", "));
        Err(Failure::new(what).next("do it again, or end that gateway"))
    }
}

/// The credential that a known variable is lent as, or a known credential.
fn known(text: &str) -> Option<String> {
    let of_variable = preset::of_variable(text).map(|(_, known)| known.name.to_string());
    let mut all = preset::all().flat_map(|preset| &preset.credentials);
    of_variable.or_else(|| {
        all.find(|known| known.name.to_string() == text)
            .map(|_| text.to_owned())
    })
}

/// Tells gateways at once, each on a thread of its own: one that hangs keeps no other waiting.
fn tell(gateways: &[Gateway], names: &BTreeSet<String>, act: &str) -> Answers {
    let told = std::thread::scope(|scope| {
        let all: Vec<_> = gateways
            .iter()
            .map(|gateway| scope.spawn(move || tell_one(gateway, names, act)))
            .collect();
        all.into_iter().map(|one| one.join()).collect::<Vec<_>>()
    });
    let mut answers = Answers::default();
    for (gateway, told) in gateways.iter().zip(told) {
        match told.unwrap_or_else(|_| Err(Failure::new("it could not be asked"))) {
            Ok(severed) => {
                answers.severed += severed;
                answers.confirmed.push(gateway.name.clone());
            }
            // It lends nothing any more.
            Err(_) if is_gone(gateway) => {}
            Err(failure) => {
                let why = failure.why.map_or(failure.what.clone(), |why| {
                    format!("{}: {why}", failure.what)
                });
                answers.unconfirmed.push((gateway.name.clone(), why));
            }
        }
    }
    answers
}

fn tell_one(gateway: &Gateway, names: &BTreeSet<String>, act: &str) -> Result<u64, Failure> {
    let mut severed = 0;
    for name in names {
        let answer = gateway.post(&format!("/v1/credentials/{}/{act}", in_path(name)), None)?;
        severed += answer["connections_severed"].as_u64().unwrap_or_default();
    }
    Ok(severed)
}

fn is_gone(gateway: &Gateway) -> bool {
    let kind = UnixStream::connect(gateway.client.path()).map_err(|error| error.kind());
    matches!(
        kind,
        Err(ErrorKind::ConnectionRefused | ErrorKind::NotFound)
    )
}

fn quoted(names: &BTreeSet<String>) -> String {
    let quoted: Vec<_> = names
        .iter()
        .map(|name| format!("`{}`", safe(name)))
        .collect();
    quoted.join(" and ")
}

fn listed(names: &BTreeSet<String>) -> String {
    names
        .iter()
        .map(|name| safe(name))
        .collect::<Vec<_>>()
        .join("`, `gateway restore ")
}
