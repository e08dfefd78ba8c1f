//! What workloads propose: the rule for a proposal, what became of it, and `gateway proposals` and
//! `deny`.

use clap::Args;
use serde_json::{Value, json};

use super::app::App;
use super::failure::{Code, Failure};
use super::gateways::{ChosenGateway, Gateway};
use super::terminal::{Paint, Terminal, safe};
use super::{grant, proposal};
use crate::audit::Record;
use crate::control::ControlRefusal;
use crate::gateway::{Proposal, ProposalState, Wanted};
use crate::message::Host;
use crate::names::{ReasonCode, SessionId};
use http::StatusCode;

/// List what workloads propose to be allowed
#[derive(Args)]
pub(super) struct ProposalList {
    /// What was answered too
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    chosen: ChosenGateway,
}

/// Refuse what a workload proposes; `gateway allow ID` grants it
#[derive(Args)]
pub(super) struct Deny {
    /// The proposal: its id, or the beginning of it
    id: String,
    #[command(flatten)]
    chosen: ChosenGateway,
}

/// Returns the rule for a proposal that is no refused exchange; `None` if no such proposal has an id
/// that begins like this.
///
/// # Errors
/// Returns why no rule would allow it, or that several proposals begin like this.
pub(super) fn rule(app: &App, id: &str) -> Result<Option<String>, ControlRefusal> {
    let all = app.shared.proposals.all();
    let mut found = all.iter().filter(|one| {
        matches!(one.wanted, Wanted::Request { .. }) && one.id.to_string().starts_with(id)
    });
    match (found.next(), found.next()) {
        (None, _) => Ok(None),
        (Some(one), None) if one.state == ProposalState::Refused => {
            let what = "a person has refused this proposal";
            Err(ControlRefusal::new(StatusCode::CONFLICT, what).next("name its host instead"))
        }
        (Some(one), None) => match record(one) {
            Some(record) => grant::of_record(app, &record).map(Some),
            None => Ok(None),
        },
        (Some(_), Some(_)) => {
            let what = "several proposals have an id that begins like this";
            Err(ControlRefusal::new(StatusCode::CONFLICT, what).next("write the whole id"))
        }
    }
}

/// Marks as granted what is allowed now. Call it after a rule was applied.
pub(super) fn settle(app: &App) {
    let proposals = &app.shared.proposals;
    let waiting = |one: &Proposal| one.state == ProposalState::Waiting;
    for one in proposals.all().into_iter().filter(waiting) {
        let wanted = match &one.wanted {
            Wanted::Request { .. } => record(&one),
            Wanted::Refused(id, _) => grant::refused_exchange(app, &id.to_string()).ok(),
        };
        if wanted.is_some_and(|record| allowed_now(app, &record)) {
            proposals.settle(&one.session, one.id, ProposalState::Granted);
        }
    }
}

fn allowed_now(app: &App, record: &Record) -> bool {
    let named = record.session.as_deref();
    let id = named.and_then(|named| SessionId::new(named).ok());
    let Some(session) = id.and_then(|id| app.shared.sessions.get(&id)) else {
        return false;
    };
    let generation = app.shared.current().policies.current();
    let groups = session.last_groups().to_vec();
    match proposal::request(record, Some(&app.config)) {
        Ok(mut request) => {
            request.groups = groups;
            generation.ask(&request.facts()).allowed()
        }
        // There was no request: only a name, or a tunnel.
        Err(_) => {
            let host = record.host.as_deref().unwrap_or_default();
            Host::parse(host.as_bytes())
                .is_ok_and(|host| generation.may_resolve(session.id(), &groups, &host))
        }
    }
}

/// The record that a refusal of the proposed request would have left.
fn record(one: &Proposal) -> Option<Record> {
    let Wanted::Request { to, method, path } = &one.wanted else {
        return None;
    };
    Some(Record {
        kind: "exchange".into(),
        session: Some(one.session.to_string().into()),
        entry: Some("transparent".into()),
        scheme: Some("https".into()),
        method: Some(method.clone().into()),
        host: Some(to.host.as_str().to_owned().into()),
        port: Some(to.port),
        path: Some(path.clone().into()),
        reason: Some(ReasonCode::PolicyDefaultDeny.as_str().into()),
        ..Record::default()
    })
}

/// Prints what waits for an answer at the end of `exec`.
pub(super) fn print_waiting(terminal: &Terminal, app: &App) {
    let waiting = |one: &Proposal| one.state == ProposalState::Waiting;
    for one in app.shared.proposals.all().into_iter().filter(waiting) {
        let (wanted, words) = (safe(&one.wanted.shown()), safe(&one.words));
        terminal.note(format!(
            "{} {wanted}: nobody answered the proposal. The command says: \"{words}\"",
            terminal.paint_note(Paint::Dim, "gateway  proposed")
        ));
    }
}

impl ProposalList {
    pub(super) fn run(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        let mut all = Vec::new();
        for gateway in &self.chosen.all()? {
            for mut one in proposals(gateway)? {
                one["gateway"] = json!(gateway.name);
                all.push(one);
            }
        }
        all.retain(|one| self.all || one["state"] == "waiting");
        if terminal.json() {
            terminal.document(&json!({ "proposals": all }));
        } else {
            all.iter().for_each(|one| print(terminal, one));
        }
        Ok(Code::Ok)
    }
}

/// Returns the proposals of a gateway.
pub(super) fn proposals(gateway: &Gateway) -> Result<Vec<Value>, Failure> {
    match gateway.get("/v1/proposals")?["proposals"].take() {
        Value::Array(all) => Ok(all),
        _ => Ok(Vec::new()),
    }
}

fn print(terminal: &Terminal, one: &Value) {
    let part = |name: &str| safe(one[name].as_str().unwrap_or_default());
    let (id, state) = (part("id"), part("state"));
    let (session, wanted) = (part("session"), part("wanted"));
    terminal.line(format!("{id} {state:<8} {session:<12} {wanted}"));
    terminal.line(format!("  the workload says: \"{}\"", part("why")));
}

impl Deny {
    pub(super) fn run(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        let content = json!({ "id": self.id });
        let refused = self
            .chosen
            .one()?
            .post("/v1/proposals/refuse", Some(&content))?;
        if terminal.json() {
            terminal.document(&refused);
        } else {
            let wanted = safe(refused["wanted"].as_str().unwrap_or_default());
            terminal.line(format!("refused: {wanted}"));
        }
        Ok(Code::Ok)
    }
}
