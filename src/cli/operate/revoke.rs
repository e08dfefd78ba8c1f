//! `gateway revoke` and `restore`: stop and resume the loans of a secret by every gateway of this
//! user.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::Path;

use clap::Args;
use serde_json::{Value, json};

use crate::app::revocations::{meant, put_aside, revoke_in, unusable};
use crate::app::{Code, Failure, Terminal, counted, safe};
use crate::cli::fleet::proven;
use crate::cli::operate::gateways::{ChosenGateway, Gateway, ShownCertificate, in_path};
use crate::cli::operate::texts;
use crate::config::literal::looks_secret;
use crate::config::state;
use crate::credential::preset;
use crate::files;
use crate::names::{SecretLabel, join};
use crate::state::RevokedFile;

/// Names a secret whose revocation changes.
#[derive(Args)]
pub(crate) struct RevokeCommand {
    /// The secret: a credential's name, a variable, or the place that it is read from, such as
    /// `env:NAME`, `file:/PATH` or `login:gh`
    #[arg(value_name = "CREDENTIAL")]
    secret: String,
    /// Ask this gateway alone, such as another user's: its process number, its name, the path of
    /// its control socket, or the URL of its control port
    #[arg(long, value_name = "PID|NAME|SOCKET|URL", env = "GATEWAY_CONTROL")]
    gateway: Option<String>,
    #[command(flatten)]
    shown: ShownCertificate,
}

/// Names a secret that is revoked.
#[derive(Args)]
pub(crate) struct RevokeSecret {
    #[command(flatten)]
    what: RevokeCommand,
    /// Let workloads get what the service says of a key that it does not know, and not that a
    /// gateway revoked it: in the gateways that run now, until they end
    #[arg(long)]
    quiet: bool,
}

/// The answers of the gateways that were called.
#[derive(Default)]
pub(crate) struct RevokeAnswers {
    pub(crate) confirmed: Vec<String>,
    /// Their answers, in the same order.
    said: Vec<Value>,
    /// Each running gateway that did not confirm, and why.
    unconfirmed: Vec<String>,
    severed: u64,
}

impl RevokeSecret {
    pub(crate) fn run(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        let how = self.quiet.then(|| json!({ "quiet": true }));
        self.what.revoke(how.as_ref(), terminal)
    }
}

impl RevokeCommand {
    /// Revokes the secret. The row is written before gateways are looked for: a gateway that starts
    /// meanwhile is found, or reads the row before it serves.
    fn revoke(self, how: Option<&Value>, terminal: &mut Terminal) -> Result<Code, Failure> {
        let label = self.label()?;
        let file = self.file()?;
        if let Some(file) = &file {
            let told = put_aside(file).and_then(|told| revoke_in(file, &label).map(|()| told));
            let told = told.map_err(|failure| {
                let what = "nothing was revoked, neither here nor for other gateways";
                unkept(what, &failure)
            })?;
            told.iter()
                .for_each(|told| terminal.note(format!("gateway: {told}")));
        }
        let path = format!("/v1/credentials/{}/revoke", in_path(label.as_str()));
        let mut known = self.known(file.as_ref())?;
        let mut answers = self.tell(&path, how)?;
        for _ in 0..ROUNDS {
            // One gateway's knowledge of the secret may hit more in another that was called before.
            let now = self.known(file.as_ref())?;
            let is_alone = self.running()?.len() < 2;
            if now == known || is_alone || answers.confirmed.is_empty() {
                break;
            }
            known = now;
            let severed = answers.severed;
            answers = self.tell(&path, how)?;
            answers.severed += severed;
        }
        let hit = answers.hit();
        let lending: BTreeSet<&str> = hit.iter().map(|(gateway, ..)| gateway.as_str()).collect();
        let (one, many) = ("connection to an origin was", "connections to origins were");
        let mut lines = vec![format!(
            "`{label}` is revoked: {} confirmed, {} ended",
            counted(
                lending.len() as u64,
                "gateway that lends it",
                "gateways that lend it"
            ),
            counted(answers.severed, one, many),
        )];
        let shown = |(gateway, name, from): &(String, String, String)| {
            format!("  {gateway}: {}, from {}", safe(name), safe(from))
        };
        lines.extend(hit.iter().map(shown));
        lines.extend(answers.proven());
        if hit.is_empty() && !is_known(label.as_str()) {
            lines.push(String::from(
                "nothing that runs, and nothing known here, has that name: is it spelled so?",
            ));
        }
        lines.push(format!(
            "it stays so, also in gateways started later, until `gateway restore {label}`"
        ));
        let hit = hit.iter().map(|(gateway, credential, from)| {
            json!({ "gateway": gateway, "credential": credential, "from": from })
        });
        let document = json!({
            "credential": label.as_str(),
            "hit": hit.collect::<Vec<_>>(),
            "confirmed": answers.confirmed,
            "unconfirmed": answers.unconfirmed,
            "connections_severed": answers.severed,
        });
        terminal.answer(&document, lines.join("\n"));
        answers.settle()
    }

    /// Undoes the revocation.
    pub(crate) fn restore(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        let label = self.label()?;
        let file = self.file()?;
        let mut restored = BTreeSet::new();
        if let Some(file) = &file {
            let of_file = file
                .restore(&label)
                .map_err(|unfit| unkept("nothing was restored", &unusable(file, &unfit)))?;
            restored.extend(of_file.iter().map(ToString::to_string));
        }
        let path = format!("/v1/credentials/{}/restore", in_path(label.as_str()));
        let answers = self.tell(&path, None)?;
        restored.extend(
            answers
                .said
                .iter()
                .flat_map(|said| texts(&said["restored"])),
        );
        let mut left = BTreeSet::new();
        for gateway in &self.running()? {
            let status = gateway.get_soon("/v1/status").unwrap_or_default();
            left.extend(texts(&status["revoked"]));
        }
        if let Some(file) = &file {
            let rows = file.read().map_err(|unfit| unusable(file, &unfit))?;
            left.extend(rows.iter().map(|row| row.label.to_string()));
        }
        let left = if left.is_empty() {
            String::from("nothing is revoked")
        } else {
            format!("revoked are: {}", safe(&join(left, ", ")))
        };
        if restored.is_empty() && answers.unconfirmed.is_empty() {
            let what = format!("nothing called `{label}` is revoked");
            return Err(Failure::new(what).because(left));
        }
        let confirmed = counted(answers.confirmed.len() as u64, "gateway", "gateways");
        let names = safe(&join(restored, ", "));
        let line = format!("`{names}` is lent again: {confirmed} confirmed\n{left}");
        let document = json!({
            "credential": label.as_str(),
            "confirmed": answers.confirmed,
            "unconfirmed": answers.unconfirmed,
        });
        terminal.answer(&document, &line);
        answers.settle()
    }

    /// Returns the label that the person gave, with a full path.
    fn label(&self) -> Result<SecretLabel, Failure> {
        let text = self.secret.as_str();
        // A file's name may look like a secret, too.
        if !text.starts_with("file:") && looks_secret(text) {
            let what = "a secret is never an argument: others see it in the list of processes";
            return Err(Failure::usage(what).next("name its variable, its credential or its place"));
        }
        let path = |path: &str| match path.strip_prefix("~/") {
            Some(rest) => files::home().map(|home| home.join(rest)),
            None => std::path::absolute(Path::new(path)).ok(),
        };
        let file = text.strip_prefix("file:").and_then(path);
        let whole = file.map(|path| format!("file:{}", path.display()));
        let label = SecretLabel::new(whole.as_deref().unwrap_or(text));
        label.ok_or_else(|| Failure::usage("that is no name, variable or place of a secret"))
    }

    /// Calls each running gateway.
    fn tell(&self, path: &str, how: Option<&Value>) -> Result<RevokeAnswers, Failure> {
        Ok(tell(&self.running()?, path, how))
    }

    /// Counts the known facts of all revocations.
    fn known(&self, file: Option<&RevokedFile>) -> Result<usize, Failure> {
        let Some(file) = file else { return Ok(0) };
        let rows = file.read().map_err(|unfit| unusable(file, &unfit))?;
        let known = rows
            .iter()
            .map(|row| row.known.places.len() + row.known.values.len());
        Ok(known.sum())
    }

    /// Returns the file that all gateways of this user share, unless one gateway is called alone.
    fn file(&self) -> Result<Option<RevokedFile>, Failure> {
        if self.gateway.is_some() {
            return Ok(None);
        }
        let none = || Failure::no_state_folder("nothing is revoked: there is no place to keep it");
        let file = RevokedFile::at(state::revoked_file().ok_or_else(none)?);
        Ok(Some(file))
    }

    fn running(&self) -> Result<Vec<Gateway>, Failure> {
        let chosen = ChosenGateway::named(self.gateway.clone(), self.shown.clone());
        if chosen.is_named() {
            chosen.one().map(|one| vec![one])
        } else {
            chosen.find()
        }
    }
}

impl RevokeAnswers {
    /// Returns each credential that was hit: its gateway, its name and its secret's reference.
    fn hit(&self) -> Vec<(String, String, String)> {
        let mut hit = Vec::new();
        for (gateway, said) in self.confirmed.iter().zip(&self.said) {
            for one in said["hit"].as_array().into_iter().flatten() {
                let text = |name: &str| one[name].as_str().unwrap_or_default().to_owned();
                hit.push((gateway.clone(), text("credential"), text("from")));
            }
        }
        hit
    }

    /// Returns a line for each replica of a fleet that knows of it.
    pub(crate) fn proven(&self) -> BTreeSet<String> {
        self.said.iter().flat_map(proven).collect()
    }

    /// Whether no running gateway was called.
    pub(crate) fn is_silent(&self) -> bool {
        self.confirmed.is_empty() && self.unconfirmed.is_empty()
    }

    /// Returns the outcome of the command, after its actions are printed.
    pub(crate) fn settle(self) -> Result<Code, Failure> {
        if self.unconfirmed.is_empty() {
            return Ok(Code::Ok);
        }
        let what = format!("not confirmed: {}", safe(&self.unconfirmed.join("; ")));
        let next = "do it again, or end that gateway: none starts whose configuration names what is \
                    revoked as its own";
        Err(Failure::new(what).next(next))
    }
}

/// Returns the failure that the row could not be changed.
fn unkept(what: &str, failure: &Failure) -> Failure {
    let why = failure.why.clone().unwrap_or_default();
    Failure::new(what)
        .because(format!("{}: {why}", failure.what))
        .next("mend that; meanwhile `--gateway PID` revokes in one until it ends")
}

/// Whether a known service has a credential, variable or login of this name, or whether it is a
/// reference or a variable of this shell.
fn is_known(label: &str) -> bool {
    let is_set = std::env::var_os(label).is_some();
    let places = meant(label);
    let is_name = places.iter().any(|place| *place != format!("env:{label}"));
    is_set || is_name || preset::of_variable(label).is_some()
}

/// How often gateways are called again while they learn more of the secret.
const ROUNDS: usize = 4;

/// Calls gateways at once, each on its own thread, so that one that hangs delays no other.
pub(crate) fn tell(gateways: &[Gateway], path: &str, how: Option<&Value>) -> RevokeAnswers {
    let mut answers = RevokeAnswers::default();
    std::thread::scope(|scope| {
        let told: Vec<_> = gateways
            .iter()
            .map(|gateway| scope.spawn(move || gateway.post(path, how)))
            .collect();
        for (gateway, told) in gateways.iter().zip(told) {
            match told.join() {
                Ok(Ok(answer)) => {
                    answers.severed += answer["connections_severed"].as_u64().unwrap_or_default();
                    for own in answer["own"].as_array().into_iter().flatten() {
                        let text = |name: &str| own[name].as_str().unwrap_or_default();
                        let (does, from) = (text("does"), text("from"));
                        let goes_on = format!("{} itself {does} with {from}", gateway.name);
                        answers.unconfirmed.push(goes_on);
                    }
                    answers.confirmed.push(gateway.name.clone());
                    answers.said.push(answer);
                }
                // It has ended, and lends nothing any more.
                _ if is_gone(gateway) => {}
                Ok(Err(failure)) => answers.unconfirmed.push(failure.to_string()),
                Err(_) => answers.unconfirmed.push(gateway.name.clone()),
            }
        }
    });
    answers
}

fn is_gone(gateway: &Gateway) -> bool {
    let connected = gateway.client.path().map(UnixStream::connect);
    let gone = [ErrorKind::ConnectionRefused, ErrorKind::NotFound];
    matches!(connected, Some(Err(error)) if gone.contains(&error.kind()))
}
