//! `gateway status`, `reload`, and the commands of `session` for an existing one: operators inspect
//! and change running gateways.

pub(crate) mod ca;
pub(crate) mod env;
pub(crate) mod gateways;
pub(crate) mod revoke;

use clap::Args;
use serde_json::{Value, json};

use crate::app::{Code, Failure, Paint, Terminal, counted, safe};
use crate::cli::fleet::proven;
use crate::cli::operate::gateways::{ChosenGateway, Gateway, in_path, only};

/// Names a session of a running gateway.
#[derive(Args)]
pub(crate) struct OneSession {
    /// The session: its id
    pub(crate) session: String,
    #[command(flatten)]
    pub(crate) chosen: ChosenGateway,
}

/// Names a session that ends.
#[derive(Args)]
pub(crate) struct EndCommand {
    #[command(flatten)]
    one: OneSession,
    /// Begin no other session for the caller whose it is: it is refused from now on. Without this,
    /// its next connection begins one, with other phantoms and another CA
    #[arg(long)]
    for_good: bool,
}

/// Shows the running gateways.
pub(crate) fn status(chosen: &ChosenGateway, terminal: &Terminal) -> Result<Code, Failure> {
    let mut documents = Vec::new();
    for gateway in &chosen.all()? {
        let mut state = gateway.get("/v1/status")?;
        state["name"] = json!(gateway.name);
        state["socket"] = json!(gateway.client.to_string());
        documents.push(state);
    }
    if terminal.json() {
        terminal.document(&json!({ "gateways": documents }));
    } else {
        documents.iter().for_each(|state| print(terminal, state));
    }
    Ok(Code::Ok)
}

fn print(terminal: &Terminal, state: &Value) {
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let policies = &state["policies"];
    let drains = state["state"] == "draining";
    let state_of = if drains {
        "draining, no connection is taken; "
    } else {
        ""
    };
    terminal.line(format!(
        "{}  {state_of}up {}, generation {}, {}",
        terminal.paint(Paint::Bold, &shown(&state["name"])),
        duration(number(&state["uptime_seconds"])),
        number(&policies["generation"]),
        counted(number(&policies["count"]), "policy", "policies"),
    ));
    for name in ["directory", "config", "audit", "socket"] {
        if !state[name].is_null() {
            terminal.line(format!("  {name:<9} {}", shown(&state[name])));
        }
    }
    for listener in state["listeners"].as_array().into_iter().flatten() {
        let (address, session) = (shown(&listener["address"]), shown(&listener["session"]));
        terminal.line(format!("  listener  {address} of session {session}"));
    }
    let revoked = texts(&state["revoked"]);
    if !revoked.is_empty() {
        let revoked = revoked.join(", ");
        terminal.line(format!("  revoked   {revoked}"));
    }
    terminal.line(format!(
        "  load      {}, {}, {} under way; {} refused so far",
        counted(number(&state["sessions"]), "session", "sessions"),
        counted(number(&state["connections"]), "connection", "connections"),
        counted(number(&state["exchanges"]), "exchange", "exchanges"),
        number(&state["refused"]),
    ));
}

/// Lists the sessions of the running gateways.
pub(crate) fn list_sessions(chosen: &ChosenGateway, terminal: &Terminal) -> Result<Code, Failure> {
    let mut all = Vec::new();
    for gateway in &chosen.all()? {
        for mut session in sessions(gateway)? {
            session["gateway"] = json!(gateway.name);
            all.push(session);
        }
    }
    if terminal.json() {
        terminal.document(&json!({ "sessions": all }));
    } else {
        all.iter()
            .for_each(|session| print_session(terminal, session));
    }
    Ok(Code::Ok)
}

fn print_session(terminal: &Terminal, session: &Value) {
    let status = shown(&session["status"]);
    let paint = match status.as_str() {
        "active" => Paint::Green,
        "paused" => Paint::Yellow,
        _ => Paint::Red,
    };
    let status = terminal.paint(paint, &format!("{status:<6}"));
    let ends = match session["ends_in_seconds"].as_u64() {
        Some(seconds) => format!("ends in {}", duration(seconds)),
        None => shown(&session["ended"]),
    };
    let revoked = texts(&session["revoked"]);
    let mut credentials = texts(&session["credentials"]);
    for credential in credentials.iter_mut().filter(|one| revoked.contains(one)) {
        credential.push_str(" (revoked)");
    }
    terminal.line(format!(
        "{:<16} {status}  {:<12} {}, {} under way  {ends}  {}",
        shown(&session["id"]),
        shown(&session["gateway"]),
        counted(
            session["connections"].as_u64().unwrap_or_default(),
            "connection",
            "connections"
        ),
        session["exchanges"],
        credentials.join(", ") + &made_for(session),
    ));
}

/// Describes whom a session is for, and its limits; empty if its name says it all.
fn made_for(session: &Value) -> String {
    let (user, lend) = (&session["user"], texts(&session["lend"]));
    let is_named = user.is_null() || *user == session["id"];
    if is_named && session["lend"].is_null() {
        return String::new();
    }
    let groups = texts(&session["groups"]).join(", ");
    let is_lent_nothing = lend.is_empty() && session["lend"].is_array();
    let idle = session["idle_seconds"].as_u64();
    let parts = [
        user.as_str().map(|user| format!("; for {}", safe(user))),
        (!groups.is_empty()).then(|| format!("; in {groups}")),
        is_lent_nothing.then(|| "; lent nothing".to_owned()),
        idle.map(|idle| format!("; idle for {} at most", duration(idle))),
    ];
    parts.into_iter().flatten().collect()
}

/// Returns the sessions of a gateway.
pub(crate) fn sessions(gateway: &Gateway) -> Result<Vec<Value>, Failure> {
    let mut listed = gateway.get("/v1/sessions")?;
    match listed["sessions"].take() {
        Value::Array(sessions) => Ok(sessions),
        _ => Ok(Vec::new()),
    }
}

impl EndCommand {
    /// Ends the session.
    pub(crate) fn run(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        let how = self.for_good.then(|| json!({ "for_good": true }));
        self.one.run("end", how.as_ref(), terminal)
    }
}

impl OneSession {
    /// Pauses, resumes or ends the session.
    pub(crate) fn run(
        self,
        act: &str,
        how: Option<&Value>,
        terminal: &mut Terminal,
    ) -> Result<Code, Failure> {
        let (gateway, id) = self.find()?;
        let changed = gateway.post(&format!("/v1/sessions/{}/{act}", in_path(&id)), how)?;
        let (id, status) = (safe(&id), shown(&changed["status"]));
        let mut lines = vec![format!("session `{id}` is {status}")];
        lines.extend(proven(&changed));
        terminal.answer(&changed, lines.join("\n"));
        Ok(Code::Ok)
    }

    /// Returns the session's gateway, and its id.
    pub(crate) fn find(&self) -> Result<(Gateway, String), Failure> {
        let mut found = Vec::new();
        let mut all = self.chosen.all()?;
        if all.len() == 1 {
            // A replica of a fleet wakes one that another made.
            return Ok((all.remove(0), self.session.clone()));
        }
        for gateway in all {
            if sessions(&gateway)?
                .iter()
                .any(|one| one["id"] == self.session.as_str())
            {
                found.push(gateway);
            }
        }
        if found.is_empty() {
            let what = format!("there is no session `{}`", safe(&self.session));
            return Err(Failure::new(what).next("gateway session list"));
        }
        Ok((only(found)?, self.session.clone()))
    }
}

/// Applies changed files to a running gateway: all of them, or none.
pub(crate) fn reload(chosen: &ChosenGateway, terminal: &Terminal) -> Result<Code, Failure> {
    let reloaded = chosen.one()?.post("/v1/reload", None)?;
    let generation = reloaded["generation"].to_string();
    let parts = std::iter::once(format!("reloaded, generation {generation}"));
    let parts: Vec<String> = parts.chain(texts(&reloaded["changes"])).collect();
    terminal.answer(&reloaded, parts.join("; "));
    Ok(Code::Ok)
}

/// Returns the texts of a list.
pub(crate) fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(shown).collect()
}

fn shown(value: &Value) -> String {
    safe(value.as_str().unwrap_or_default())
}

/// Formats a time for a person.
fn duration(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h {}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}
