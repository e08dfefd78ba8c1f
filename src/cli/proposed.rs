//! What workloads propose: `gateway proposals` and `deny`, and the request of a proposal.

use clap::Args;
use serde_json::{Value, json};

use super::app::App;
use super::failure::{Code, Failure};
use super::gateways::{ChosenGateway, Gateway};
use super::terminal::{Terminal, safe};
use crate::audit::Record;
use crate::gateway::{Proposal, ProposalState, ProposedAccess};
use crate::message::Origin;
use crate::names::{ReasonCode, SessionId};

/// List what workloads propose to be allowed
#[derive(Args)]
pub(super) struct ProposalList {
    /// What was answered too
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    chosen: ChosenGateway,
}

/// Refuse what a workload proposes, for as long as its session lives; `gateway allow ID` grants it
#[derive(Args)]
pub(super) struct Deny {
    /// The proposal: its id
    id: String,
    /// Undo the refusal, so that the proposal waits again
    #[arg(long)]
    undo: bool,
    #[command(flatten)]
    chosen: ChosenGateway,
}

/// Returns the request of a proposal that is no refused exchange, as the record of its refusal;
/// `None` if no such proposal has this id.
pub(super) fn requested(app: &App, id: &str) -> Option<Record> {
    let all = app.shared.proposals.all();
    let named = |one: &&Proposal| one.wanted.refused.is_none() && one.id.to_string() == id;
    all.iter().find(named).and_then(record)
}

/// The record that a refusal of the proposed request would have left.
pub(super) fn record(one: &Proposal) -> Option<Record> {
    record_of(&one.session, &one.wanted)
}

/// The record that a refusal of this request would leave.
pub(super) fn record_of(session: &SessionId, wanted: &ProposedAccess) -> Option<Record> {
    let Origin { scheme, authority } = &wanted.to;
    let (method, path) = wanted.request.as_ref()?;
    Some(Record {
        kind: "exchange".into(),
        session: Some(session.to_string().into()),
        entry: Some("transparent".into()),
        scheme: Some(scheme.as_str().into()),
        method: Some(method.clone().into()),
        host: Some(authority.host.as_str().to_owned().into()),
        port: Some(authority.port),
        path: Some(path.clone().into()),
        reason: Some(ReasonCode::PolicyDefaultDeny.as_str().into()),
        ..Record::default()
    })
}

/// Prints what waits for an answer at the end of `exec`.
pub(super) fn print_waiting(terminal: &Terminal, app: &App) {
    let waiting = |one: &Proposal| one.state == ProposalState::Waiting;
    for one in app.shared.proposals.all().into_iter().filter(waiting) {
        let (wanted, words) = (safe(&one.wanted.shown()), quoted(&one.words));
        let told = format!("{wanted}: nobody answered the proposal. The command says: {words}");
        terminal.entry_of_peer("proposed", &told);
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

/// Quotes a workload's words, which cannot end the quotation, and are safe for a terminal. Of many
/// spaces one is left: they could move words to where a line begins.
pub(super) fn quoted(words: &str) -> String {
    let words: Vec<&str> = words.split(' ').filter(|word| !word.is_empty()).collect();
    let words = words.join(" ");
    let words = words.replace('\\', r"\\").replace('"', "\\\"");
    format!("\"{}\"", safe(&words))
}

fn print(terminal: &Terminal, one: &Value) {
    let text = |name: &str| one[name].as_str().unwrap_or_default();
    let (id, state) = (safe(text("id")), safe(text("state")));
    let (session, wanted) = (safe(text("session")), safe(text("wanted")));
    terminal.line_of_peer(&format!("{id} {state:<8} {session:<12} {wanted}"));
    terminal.line_of_peer(&format!("  the workload says: {}", quoted(text("why"))));
}

impl Deny {
    pub(super) fn run(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        let content = json!({ "id": self.id, "undo": self.undo });
        let refused = self
            .chosen
            .one()?
            .post("/v1/proposals/refuse", Some(&content))?;
        if terminal.json() {
            terminal.document(&refused);
        } else {
            let wanted = safe(refused["wanted"].as_str().unwrap_or_default());
            let word = if self.undo { "waits again" } else { "refused" };
            terminal.line(format!("{word}: {wanted}"));
        }
        Ok(Code::Ok)
    }
}
