//! Tells persons that a policy asks one, as `[[notify]]` says. What a webhook answers decides.

use std::collections::HashMap;
use std::fmt;
use std::io::IsTerminal as _;
use std::sync::{Arc, Weak};
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{Request, StatusCode};
use serde::Deserialize;
use serde_json::Value;
use time::OffsetDateTime;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use zbus::zvariant;
use zeroize::Zeroizing;

use crate::store_clients::failed;
use crate::{Failure, Terminal, safe};
use gateway_config::{Config, NotifySettings, WebhookSettings};
use gateway_control::{Control, Operations};
use gateway_credential::{HttpClient as _, SecretRef, Stores, tell};
use gateway_names::ExchangeId;
use gateway_origin::StoreClient;
use gateway_server::{Notifier, chain};

/// One who is told.
enum Notice {
    Program(SecretRef),
    Webhook(Box<Webhook>),
    Desktop,
    /// A line where a command runs.
    Terminal(Terminal),
}

/// A server that is asked.
struct Webhook {
    settings: WebhookSettings,
    client: StoreClient,
    stores: Stores,
}

/// The answer of a webhook. Other members are refused.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WebhookAnswer {
    decision: String,
    id: Option<String>,
    reason: Option<String>,
}

/// Returns what tells everybody whom the configuration names, and the terminal in which a command
/// runs. Webhooks answer through `control`, as operators do.
///
/// # Errors
/// Returns a [`Failure`] if the connection to a webhook cannot be set up.
pub fn notifier<O: Operations>(
    config: &Config,
    terminal: Option<Terminal>,
    control: &Arc<Control<O>>,
) -> Result<Option<Notifier>, Failure> {
    let all = config.notify.iter().map(|one| Notice::of(config, one));
    let mut all = all.collect::<Result<Vec<_>, _>>()?;
    let terminal = terminal.filter(|_| std::io::stderr().is_terminal());
    all.extend(terminal.map(Notice::Terminal));
    if all.is_empty() {
        return Ok(None);
    }
    let with_places = |one| (Arc::new(one), Arc::new(Semaphore::new(AT_ONCE)));
    let all: Vec<_> = all.into_iter().map(with_places).collect();
    let (control, main) = (Arc::downgrade(control), Handle::current());
    Ok(Some(Box::new(move |id, question: Value, left| {
        let question = Arc::new(question);
        for (one, places) in &all {
            let (one, places, control) = (one.clone(), places.clone(), control.clone());
            let (question, left) = (question.clone(), left.clone());
            main.spawn(async move {
                let telling = async {
                    let _place = places.acquire().await;
                    one.tell(id, &question).await
                };
                // Nobody waits for the answer any more: others need the place.
                let Some(told) = left.run_until_cancelled(timeout(WITHIN, telling)).await else {
                    return;
                };
                let told = told.unwrap_or_else(|_| Err("it did not end in time".into()));
                let done = match told {
                    Ok(Some(true)) if question["ask"]["cut"] != false => Err(CUT.to_owned()),
                    Ok(Some(is_allowed)) => answer(&control, id, is_allowed, &one).await,
                    told => told.map(drop),
                };
                if let Err(why) = done {
                    tracing::warn!(by = %one, %id, why, "a person is asked, and this was no help");
                }
            });
        }
    })))
}

/// Answers as an operator does. What waits no longer is not answered.
async fn answer<O: Operations>(
    control: &Weak<Control<O>>,
    id: ExchangeId,
    is_allowed: bool,
    by: &Notice,
) -> Result<(), String> {
    let control = control.upgrade().ok_or("the gateway stops")?;
    let (id, by) = (id.to_string(), by.to_string());
    let answered = control.decide(&id, is_allowed, &by).await;
    answered.map(drop).map_err(|refusal| refusal.what)
}

impl Notice {
    fn of(config: &Config, settings: &NotifySettings) -> Result<Self, Failure> {
        Ok(match settings.clone() {
            NotifySettings::Command(program) => Self::Program(program),
            NotifySettings::Desktop => Self::Desktop,
            NotifySettings::Webhook(settings) => Self::Webhook(Box::new(Webhook {
                client: client(config, &settings)?,
                stores: Stores::new([&settings.key]),
                settings,
            })),
        })
    }

    /// Tells one, and returns whether it allows the request, if it says so.
    async fn tell(&self, id: ExchangeId, question: &Value) -> Result<Option<bool>, String> {
        let told = match self {
            Self::Program(program) => {
                let told = tell(program, question.to_string().into()).await;
                told.map_err(|error| chain(&error))
            }
            Self::Webhook(webhook) => {
                return webhook.ask(&id.to_string(), &question.to_string()).await;
            }
            Self::Desktop => {
                let shown = show(&summary(question), &next_step(id)).await;
                shown.map_err(|error| error.to_string())
            }
            Self::Terminal(terminal) => {
                let (terminal, line) = (*terminal, summary(question));
                let line = format!("{}: {line}", next_step(id));
                let shown = spawn_blocking(move || terminal.entry_of_peer("asks", &line));
                shown.await.map_err(|error| error.to_string())
            }
        };
        told.map(|()| None)
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program(program) => program.fmt(f),
            Self::Webhook(webhook) => {
                let authority = &webhook.settings.server.authority;
                write!(f, "webhook:{}", authority.shown())
            }
            Self::Desktop => f.write_str("desktop"),
            Self::Terminal(_) => f.write_str("terminal"),
        }
    }
}

impl Webhook {
    /// Sends the question, signed as Standard Webhooks says. An error decides nothing, and nor does
    /// an answer that a person will come.
    async fn ask(&self, id: &str, question: &str) -> Result<Option<bool>, String> {
        let WebhookSettings {
            server, path, key, ..
        } = &self.settings;
        let lease = self.stores.source(key).resolve(None).await;
        let lease = lease.map_err(|error| format!("its key cannot be had: {}", chain(&error)))?;
        let now = OffsetDateTime::now_utc().unix_timestamp().to_string();
        let signed = format!("{id}.{now}.{question}");
        let signature = lease.secret.webhook_signature(signed.as_bytes());
        let signature = signature.ok_or("its key is not 24 to 64 bytes in base64")?;
        let path = if path.is_empty() { "/" } else { path };
        let request = Request::post(path)
            .header(CONTENT_TYPE, "application/json")
            .header("webhook-id", id)
            .header("webhook-timestamp", now)
            .header("webhook-signature", signature)
            .body(Zeroizing::new(question.as_bytes().to_vec()))
            .map_err(|error| error.to_string())?;
        let answer = self.client.send(server, request).await;
        let answer = answer.map_err(|error| chain(&error))?;
        match answer.status {
            StatusCode::ACCEPTED | StatusCode::NO_CONTENT => Ok(None),
            StatusCode::OK => read(&answer.content, id),
            status => Err(format!("it answered {status}")),
        }
    }
}

/// Returns whether an answer allows the request with this id, if it says so.
fn read(content: &[u8], id: &str) -> Result<Option<bool>, String> {
    const UNREAD: &str = "its answer is no short object with `decision`";
    // A list would be read as the members in order.
    if content.len() > LONGEST || !content.trim_ascii_start().starts_with(b"{") {
        return Err(UNREAD.into());
    }
    let answer: WebhookAnswer = serde_json::from_slice(content).map_err(|_| UNREAD)?;
    if answer.id.is_some_and(|of| of != id) {
        return Err("its answer is to another question".into());
    }
    if let Some(reason) = answer.reason {
        tracing::info!(id, reason, "a webhook says why");
    }
    match &*answer.decision {
        "allow" => Ok(Some(true)),
        "deny" => Ok(Some(false)),
        "pending" => Ok(None),
        _ => Err("its decision is not `allow`, `deny` or `pending`".into()),
    }
}

/// Returns what waits as one line: whatever a workload wrote cannot steer what shows it.
fn summary(question: &Value) -> String {
    let text = |name: &str| safe(question[name].as_str().unwrap_or_default());
    let (session, wanted, why) = (text("session"), text("wanted"), text("why"));
    let mut line = format!("{why} {session} wants {wanted}");
    if let Some((end, _)) = line.char_indices().nth(LONGEST_LINE) {
        line.truncate(end);
        line.push('…');
    }
    line
}

fn next_step(id: ExchangeId) -> String {
    format!("gateway allow {id}")
}

/// Shows a note by the Desktop Notifications Specification. Its text is markup.
async fn show(summary: &str, next: &str) -> zbus::Result<()> {
    let marked = summary
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    let (title, body) = ("A request waits for you", format!("{marked}\n{next}"));
    let (actions, hints): (&[&str], _) = (&[], HashMap::<&str, zvariant::Value<'_>>::new());
    let lasts = i32::try_from(WITHIN.as_millis()).unwrap_or(-1);
    let note = ("gateway", 0_u32, "", title, body, actions, hints, lasts);
    let bus = zbus::Connection::session().await?;
    let (name, path) = (
        "org.freedesktop.Notifications",
        "/org/freedesktop/Notifications",
    );
    let called = bus.call_method(Some(name), path, Some(name), "Notify", &note);
    called.await.map(drop)
}

fn client(config: &Config, settings: &WebhookSettings) -> Result<StoreClient, Failure> {
    let servers = vec![settings.server.clone()];
    let way = config.store_way(&servers);
    let client = StoreClient::new(servers, settings.roots.clone(), None, way);
    let client = client.map_err(|error| failed("the way to a webhook", &error))?;
    Ok(client.within(WITHIN))
}

/// How long one may take. A request waits as long for a person.
const WITHIN: Duration = Duration::from_secs(45);
/// How many questions one is told at the same time. At most 8 of a session wait.
const AT_ONCE: usize = 64;
/// Why an answer is left to a person, who can look elsewhere.
const CUT: &str = "it allows a request of which it was shown a part, so a person is to answer";
/// The longest answer, in bytes.
const LONGEST: usize = 4 << 10;
/// The longest line for a person, in characters.
const LONGEST_LINE: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_strictly_and_whatever_is_else_decides_nothing() {
        let id = "0123456789abcdefghjk";
        let read = |text: &str| read(text.as_bytes(), id);
        assert_eq!(read(r#"{"decision":"allow"}"#), Ok(Some(true)));
        let denied = r#" {"decision": "deny", "reason": "too much", "id": "0123456789abcdefghjk"}"#;
        assert_eq!(read(denied), Ok(Some(false)));
        assert_eq!(read(r#"{"decision":"pending"}"#), Ok(None));
        for text in [
            "",
            "allow",
            "true",
            r#""allow""#,
            r#"["allow", null, null]"#,
            "{}",
            r#"{"decision":"ALLOW"}"#,
            r#"{"decision":"allow "}"#,
            r#"{"decision":{"allow":null}}"#,
            r#"{"decision":["allow"]}"#,
            r#"{"decision":true}"#,
            r#"{"decision":"deny","decision":"allow"}"#,
            r#"{"decision":"allow"}{"decision":"deny"}"#,
            r#"{"decision":"allow"},"#,
            r#"{"decision":"allow","Decision":"deny"}"#,
            r#"{"decision":"allow","for":"1h"}"#,
            r#"{"decision":"allow","id":"0123456789abcdefghjj"}"#,
            r#"{"decision":"allow","id":7}"#,
            r#"{"decision":"allow","reason":7}"#,
            &format!(
                r#"{{"decision":"allow","reason":"{}"}}"#,
                "a".repeat(LONGEST)
            ),
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_line_for_a_person_is_one_line_however_long_and_whatever_is_in_it() {
        let question = |wanted: &str| {
            serde_json::json!({
                "session": "agent-1", "why": "Refund?", "wanted": wanted,
            })
        };
        let line = summary(&question("POST a.test/\n\r\u{1b}[2J\u{202e}x"));
        assert_eq!(
            line,
            "Refund? agent-1 wants POST a.test/\\u{a}\\u{d}\\u{1b}[2J\\u{202e}x"
        );
        let long = summary(&question(&"\u{1b}".repeat(5000)));
        assert_eq!(long.chars().count(), LONGEST_LINE + 1);
    }
}
