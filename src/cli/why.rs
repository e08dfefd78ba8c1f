//! `gateway why ID`: what became of one request, and why, from the audit log.

use std::path::PathBuf;

use clap::Args;

use crate::audit::{Expected, Found, Record, find, verify};
use crate::config::Config;
use crate::names::ExchangeId;

use super::failure::{Code, Failure};
use super::flags::ConfigFile;
use super::logs::{self, Chain};
use super::screen::{Paint, Screen, safe};

/// Tells what became of a request.
#[derive(Args)]
pub(super) struct Why {
    /// The id in the response: 20 hexadecimal digits
    id: String,
    /// An audit log, with what it was rotated into [default: that of `--config`, or those of your
    /// state directory]
    #[arg(long, value_name = "FILE")]
    audit: Vec<PathBuf>,
    #[command(flatten)]
    config: ConfigFile,
}

impl Why {
    pub(super) fn run(self, screen: &mut Screen) -> Result<Code, Failure> {
        let found = self.find()?;
        if screen.json() {
            screen.document(&found);
        } else {
            print(screen, &found);
        }
        Ok(Code::Ok)
    }

    /// The configuration, if there is one.
    pub(super) fn config(&self) -> Result<Option<Config>, Failure> {
        self.config.find()
    }

    /// The record of the exchange, from a log whose chain holds: what is proposed after it, a
    /// person may put into a policy.
    ///
    /// # Errors
    /// A [`Failure`] where the id is none, no log holds it, or the log does not hold.
    pub(super) fn find_in_whole_log(&self) -> Result<Found, Failure> {
        let (found, chain) = self.search()?;
        let report = verify(&chain, Expected::default())
            .map_err(|error| Failure::of("the audit log cannot be verified", &error))?;
        if report.holds() {
            return Ok(found);
        }
        Err(Failure::new(format!(
            "the audit log `{}` does not hold",
            found.file.display()
        ))
        .because("records were changed, removed or put in, so nothing is proposed after it")
        .next("see `gateway audit verify`"))
    }

    /// The record of the exchange.
    ///
    /// # Errors
    /// A [`Failure`] where the id is none, or no log holds it.
    fn find(&self) -> Result<Found, Failure> {
        self.search().map(|(found, _)| found)
    }

    /// The record of the exchange, and the log that holds it.
    fn search(&self) -> Result<(Found, Chain), Failure> {
        let id = exchange_id(&self.id)?;
        let config = if self.audit.is_empty() {
            self.config.find()?
        } else {
            None
        };
        let chains = logs::chains(&self.audit, config.as_ref())?;
        let mut files = Vec::new();
        for chain in chains {
            let found = find(&chain, id)
                .map_err(|error| Failure::of("the audit log cannot be read", &error))?;
            if let Some(found) = found {
                return Ok((found, chain));
            }
            files.extend(chain.iter().map(|path| path.display().to_string()));
        }
        Err(Failure::new(format!("no record has the id {id}"))
            .because(format!("searched {}", files.join(", ")))
            .next("name the audit log of that gateway: `--audit FILE`"))
    }
}

/// Reads an id as it stands in a response.
pub(super) fn exchange_id(text: &str) -> Result<ExchangeId, Failure> {
    let mut bytes = [0; 10];
    let fits = text.len() == 20 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    for (byte, pair) in bytes
        .iter_mut()
        .zip(text.as_bytes().chunks(2))
        .filter(|_| fits)
    {
        let digits = std::str::from_utf8(pair)
            .ok()
            .and_then(|pair| u8::from_str_radix(pair, 16).ok());
        *byte = digits.unwrap_or(0);
    }
    if fits {
        return Ok(ExchangeId::from_bytes(bytes));
    }
    Err(Failure::usage("the id cannot be read")
        .because("an id has 20 hexadecimal digits")
        .next("copy it from the response: `request_id` in the JSON, or the `Proxy-Status` field"))
}

fn print(screen: &Screen, found: &Found) {
    let record = &found.exchange;
    let text = |part: &Option<String>| part.as_deref().map_or_else(|| String::from("-"), safe);
    let bold = |part: &str| screen.paint(Paint::Bold, part);
    let port = record
        .port
        .map(|port| format!(":{port}"))
        .unwrap_or_default();
    let target = format!(
        "{} {}://{}{port}{}",
        text(&record.method),
        text(&record.scheme),
        text(&record.host),
        record.path.as_deref().map(safe).unwrap_or_default()
    );
    screen.line(format!("{} {target}", bold("request")));
    screen.line(format!(
        "  session {}, by {}, {}",
        text(&record.session),
        text(&record.entry),
        text(&record.time)
    ));
    screen.line(format!("{} {}", bold("verdict"), verdict(screen, record)));
    if !record.policies.is_empty() {
        let policies: Vec<_> = record.policies.iter().map(|policy| safe(policy)).collect();
        screen.line(format!("  decided by {}", policies.join(", ")));
    }
    for lent in &record.lent {
        screen.line(format!(
            "  lent {} in {}",
            safe(&lent.credential),
            safe(&lent.place)
        ));
    }
    for note in &record.notes {
        let about = note
            .credential
            .as_deref()
            .map(|name| format!(" of {}", safe(name)))
            .unwrap_or_default();
        let place = note
            .place
            .as_deref()
            .map(|place| format!(" in {}", safe(place)))
            .unwrap_or_default();
        screen.line(format!("  noticed {}{about}{place}", safe(&note.note)));
    }
    if let Some(address) = &record.dialled {
        screen.line(format!("  connected to {}", safe(address)));
    }
    if let Some(end) = &found.end {
        let reason = end
            .reason
            .as_deref()
            .map(|reason| format!(" ({})", safe(reason)))
            .unwrap_or_default();
        screen.line(format!("{} {}{reason}", bold("ended"), text(&end.outcome)));
    }
    if let Some(reason) = &record.reason {
        screen.line(format!("{} {}", bold("next"), next_step(reason)));
    }
    screen.line(format!(
        "  {}:{}",
        safe(&found.file.display().to_string()),
        found.line
    ));
}

fn verdict(screen: &Screen, record: &Record) -> String {
    let status = record
        .status
        .map(|status| format!(" with {status}"))
        .unwrap_or_default();
    match (&record.reason, &record.blame) {
        (Some(reason), blame) => {
            let blame = blame
                .as_deref()
                .map(|side| format!(", side: {}", safe(side)))
                .unwrap_or_default();
            let came = record
                .phase
                .as_deref()
                .map(|phase| format!(", at {}", safe(phase)))
                .unwrap_or_default();
            format!(
                "{}{status}: {}{blame}{came}",
                screen.paint(Paint::Red, "refused"),
                safe(reason)
            )
        }
        (None, _) => format!(
            "{}{status}",
            screen.paint(
                Paint::Green,
                record.outcome.as_deref().unwrap_or("answered")
            )
        ),
    }
}

/// What a person can do about a refusal, by its code.
fn next_step(reason: &str) -> &'static str {
    match reason {
        "policy_default_deny" => "`gateway policy why ID` prints the policy that would allow it",
        "policy_forbids" => {
            "a forbid decided, which no permit lifts: narrow it, or leave the request away"
        }
        "policy_error" | "policy_unjudged" => {
            "a policy could not be evaluated for it, so it is denied; a fact of the content that does not read in one way is the usual cause: `gateway policy why ID`"
        }
        "phantom_out_of_scope" => {
            "the credential is for other origins: add this one to its `origins`, or use another credential"
        }
        "phantom_foreign_session" => {
            "the phantom belongs to another session: start the client with the variables of its own"
        }
        "phantom_position" | "phantom_count" | "phantom_disguised" => {
            "the phantom stands where its credential does not go: see its `places`"
        }
        "foreign_credential" => {
            "the workload sent a key of its own to an origin that has a credential: `foreign = \"strip\"` removes one from a \
             field; where it is none, see `takes`"
        }
        "content_unreadable" => {
            "the service takes credentials in such content, and this cannot be looked through: see `takes`"
        }
        "batch" => {
            "the credential is for some methods or paths, and the request holds many others: send them one by one, or leave \
             `methods` and `path` away"
        }
        "field_name" => {
            "origins read such a name in several ways: another name, or `underscores` in the [[origin]] that needs it"
        }
        "sigv4_scope" => {
            "the signature is for another service, region or partition than the host or the credential's pins: see `regions`, \
             `services` and `endpoints`"
        }
        "sigv4_action" => {
            "the action is none that the credential is for: see `actions`; what returns credentials needs `credential_actions`"
        }
        "sigv4_resource" => {
            "a bucket or account is none that the credential is for, or something would be open to everybody: see `buckets` and `accounts`"
        }
        "sigv4_absent" => {
            "the request was not signed with the session's key: sign it, or name its origin in `unsigned`"
        }
        "sigv4_mismatch" | "signature_mismatch" => {
            "the client signed with another key than its environment holds, or changed the request afterwards"
        }
        "signature_skew" => "the client's clock is off: set it",
        "signature_expired" => "the presigned request's time is over: presign it again",
        "content_too_long" | "content_budget" => {
            "more content had to be held than [limits] `hold` and `hold_all` allow"
        }
        "cleartext_injection" => "a secret goes over TLS only: use https",
        "ssrf_resolved_ip" => {
            "the host lies in a private network: add an [[origin]] with `addresses`, if that is meant"
        }
        "origin_tls" => {
            "the origin's certificate does not hold: add its CA to `roots` of an [[origin]], if it is a private one"
        }
        "origin_tls_settings" | "no_roots" => {
            "the gateway's own settings for that origin do not hold: see [[origin]]"
        }
        "connect_timeout" | "handshake_timeout" => {
            "the origin did not answer in time: see [limits]"
        }
        "audit_unavailable" => "the audit log takes no record: see its disk",
        "audit_budget" => {
            "the session wrote too much to the audit log: see `session_burst` and `session_rate` of [audit]"
        }
        "decoding_budget" => {
            "the session has too many answers in compressed form under way: see [limits]"
        }
        "http2_flood" => "the client sent frames that ask for nothing, too many of them",
        "session_limit" => "the session has too many exchanges under way: see [limits]",
        "proxy_authentication" => {
            "the client presented no password of the listener: see `authentication`"
        }
        _ => "the client's request is at fault: docs/threat-model.md explains the code",
    }
}
