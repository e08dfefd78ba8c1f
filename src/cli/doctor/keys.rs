//! `gateway doctor --keys`: whether the credentials of presets work, by a harmless request of each
//! one's service, made through the gateway from a sandbox that holds phantoms alone.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::app::{Code, Failure, Paint, Terminal, safe};
use crate::cli::doctor::demo::{exchange, status};
use crate::cli::doctor::embedded;
use crate::cli::exec::launching;
use crate::cli::log;
use crate::config::{Config, Credential};
use crate::credential::{DEFAULT_SERVICE, SecretRef, preset};
use crate::launch::Launch;
use crate::message::{OriginPattern, Place};
use crate::names::CredentialName;
use crate::policy::Source;
use crate::policy::generate::{CoveredPath, permit_loans, permit_requests};

/// The first argument of the client in the sandbox.
pub const CLIENT: &str = "__doctor-keys";

/// One request, as the client in the sandbox makes it.
#[derive(Serialize, Deserialize)]
struct KeyCheck {
    credential: String,
    /// The variable that holds the phantom.
    variable: String,
    host: String,
    port: u16,
    /// The path and the lines of fields, each with `{}` for the phantom.
    path: String,
    fields: String,
    revoked: Vec<u16>,
}

crate::names::words! {
    /// What a request showed.
    enum KeyVerdict {
        /// The service knows it.
        Good = "good",
        /// The service does not know it, or no longer.
        Revoked = "revoked",
        /// The service refuses the request for another reason.
        Wrong = "wrong",
        /// The service did not answer.
        NotReached = "not reached",
    }
}

#[derive(Serialize)]
struct KeyFinding {
    credential: String,
    host: String,
    verdict: &'static str,
    why: String,
}

/// Returns a configuration with one secret of the key ring, beside the user's own file.
///
/// # Errors
/// Returns a [`Failure`] if no preset knows the name, or the file is refused.
pub(crate) fn of_ring(name: &str) -> Result<Config, Failure> {
    let known = CredentialName::new(name)
        .ok()
        .zip(preset::of_variable(name));
    let Some((name, (preset, _))) = known else {
        return Err(Failure::usage("no preset knows a secret of that name")
            .next("`gateway secret presets` lists the variables by which they are known"));
    };
    let mut config = Config::of_user()?.unwrap_or_default();
    let from = SecretRef::keyring(DEFAULT_SERVICE, name.as_str());
    config.credentials = vec![Credential {
        preset: Some(preset.name.clone()),
        env: vec![name.to_string()],
        ..Credential::named(name, from)
    }];
    Ok(config)
}

/// Becomes the check of a secret of the key ring, as a fresh process: the ring's client has threads
/// here, and a sandbox is started by a process that has one.
///
/// # Errors
/// Returns a [`Failure`] if this program cannot be started.
pub(crate) fn anew(name: &CredentialName) -> Result<Code, Failure> {
    let mut command = Command::new("/proc/self/exe");
    let command = command
        .arg0("gateway")
        .args(["doctor", "--key", name.as_str()]);
    Err(Failure::of("the check cannot be started", &command.exec()))
}

/// Checks every credential whose preset says how. Returns only if it cannot be done.
///
/// # Errors
/// Returns a [`Failure`] if nothing can be checked.
pub(crate) fn run(config: &Config, json: bool) -> Result<Code, Failure> {
    let mut checks = Vec::new();
    let (mut credentials, mut rules) = (Vec::new(), String::new());
    for credential in &config.credentials {
        let variable = format!("GATEWAY_KEY_{}", checks.len());
        if let Some((check, rule)) = check(credential, &variable) {
            checks.push(check);
            rules += &rule;
            credentials.push(Credential {
                env: vec![variable],
                // A secret that cannot be had is told by its own line.
                shape: Some("[40 alnum]".to_owned()),
                ..credential.clone()
            });
        }
    }
    if checks.is_empty() {
        return Err(Failure::usage("there is no key to check")
            .because("no credential has a preset that says how, at its service's own host")
            .next("`gateway secret presets NAME` shows how a preset's key is checked"));
    }
    let mut own = Config::default();
    own.policy.rules = Some(Source::new("doctor", rules));
    own.credentials = credentials;
    own.stores.clone_from(&config.stores);
    own.origins.clone_from(&config.origins);
    own.defaults.clone_from(&config.defaults);
    own.resolver.clone_from(&config.resolver);
    let checks = serde_json::to_string(&checks)
        .map_err(|error| Failure::of("the checks cannot be written", &error))?;
    let arguments = [CLIENT, &checks];
    launching::start_own(
        Launch::default(),
        &arguments,
        json,
        &[],
        |runtime, gateway| {
            embedded::serve_configured(runtime, gateway, log::DOCTOR, Ok((own, None)))
        },
    )
}

/// Returns the check of a credential, and the policies that permit it and nothing else.
fn check(credential: &Credential, variable: &str) -> Option<(KeyCheck, String)> {
    let known = credential.known()?.verify.as_ref()?;
    let origin = known.host.exact()?;
    let is_lent = |own: &OriginPattern| own.matches(&origin);
    if !credential.origins.is_empty() && !credential.origins.iter().any(is_lent) {
        return None;
    }
    let place = credential.places_or_common().into_iter().next()?;
    let own = match &place {
        Place::Header { name, scheme } => {
            let scheme = scheme.as_ref().map(|scheme| format!("{scheme} "));
            format!("{name}: {}{{}}", scheme.unwrap_or_default())
        }
        Place::Path(_) => String::from("accept: */*"),
        _ => return None,
    };
    let fields = known.fields.iter().chain([&own]);
    let paths = [CoveredPath::Exactly(known.path.clone())];
    let loan = (&credential.name, &*place.to_string());
    let rules = permit_requests(&origin, &["GET"], &paths)
        + "\n"
        + &permit_loans(&origin, loan, &["GET"], &paths)
        + "\n";
    let check = KeyCheck {
        credential: credential.name.to_string(),
        variable: variable.to_owned(),
        host: origin.authority.host.to_string(),
        port: origin.authority.port,
        path: known.path.clone(),
        fields: fields.map(|field| format!("{field}\r\n")).collect(),
        revoked: known.revoked.clone(),
    };
    Some((check, rules))
}

/// Makes the requests, as the sandbox's command, and prints a line for each.
///
/// # Errors
/// Returns a [`Failure`] if `doctor` did not start it.
pub fn client(terminal: &Terminal, checks: &str) -> Result<Code, Failure> {
    let checks: Vec<KeyCheck> = serde_json::from_str(checks)
        .map_err(|_| Failure::usage(format!("`{CLIENT}` is for `doctor` itself")))?;
    let findings: Vec<KeyFinding> = checks.iter().map(KeyCheck::made).collect();
    if terminal.json() {
        terminal.document(&findings);
    } else {
        findings.iter().for_each(|finding| show(terminal, finding));
    }
    let is_good = |finding: &KeyFinding| finding.verdict == KeyVerdict::Good.as_str();
    Ok(match findings.iter().all(is_good) {
        true => Code::Ok,
        false => Code::Failed,
    })
}

impl KeyCheck {
    fn made(&self) -> KeyFinding {
        let phantom = std::env::var(&self.variable).unwrap_or_default();
        let with = |text: &str| text.replace("{}", &phantom);
        let fields = with(&self.fields) + "user-agent: gateway-doctor\r\n";
        let path = with(&self.path);
        let (verdict, why) = match exchange((&self.host, self.port), &path, &fields) {
            Ok((head, _)) => self.verdict(&head),
            Err(error) => (KeyVerdict::NotReached, error.to_string()),
        };
        KeyFinding {
            credential: self.credential.clone(),
            host: self.host.clone(),
            verdict: verdict.as_str(),
            why,
        }
    }

    /// Reads the head of an answer. What the gateway itself answers says so.
    fn verdict(&self, head: &str) -> (KeyVerdict, String) {
        let first = head.lines().next().unwrap_or_default();
        if let Some((_, reason)) = first.split_once(" by gateway: ") {
            return (
                KeyVerdict::NotReached,
                format!("the gateway answers {reason}"),
            );
        }
        let status = status(head);
        let verdict = match status {
            200..=299 => KeyVerdict::Good,
            429 => KeyVerdict::NotReached,
            status if self.revoked.contains(&status) => KeyVerdict::Revoked,
            300..=499 => KeyVerdict::Wrong,
            _ => KeyVerdict::NotReached,
        };
        (verdict, format!("the service answers {status}"))
    }
}

fn show(terminal: &Terminal, finding: &KeyFinding) {
    let is_good = finding.verdict == KeyVerdict::Good.as_str();
    let paint = if is_good { Paint::Green } else { Paint::Red };
    let word = terminal.paint(paint, &format!("{:<11}", finding.verdict));
    let (credential, why) = (safe(&finding.credential), safe(&finding.why));
    terminal.line(format!("{word}  {credential:<20} {}: {why}", finding.host));
}
