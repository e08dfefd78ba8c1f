//! `gateway grants proposed` and `deny`: the proposals of workloads, and their refusal by a person.

use clap::Args;
use serde_json::{Value, json};

use crate::app::{App, Code, Failure, Terminal, safe};
use crate::cli::operate::gateways::{ChosenGateway, Gateway};
use crate::server::ProposalState;

/// List what workloads propose to be allowed
#[derive(Args)]
pub(super) struct ProposalList {
    /// What was answered too
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    chosen: ChosenGateway,
}

/// Refuse what a workload proposes
///
/// It stays refused for as long as its session lives; `gateway allow ID` grants it.
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

/// Prints the proposals that still wait at the end of `exec`.
pub(super) fn print_waiting(terminal: &Terminal, app: &App) {
    let mut all = app.shared.proposals.all();
    all.retain(|one| one.state == ProposalState::Waiting);
    for one in all {
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

/// Quotes a workload's words, so that they cannot end the quotation and are safe for a terminal.
/// Repeated spaces are collapsed: they could move words to the start of a line.
pub(super) fn quoted(words: &str) -> String {
    let words: Vec<&str> = words.split(' ').filter(|word| !word.is_empty()).collect();
    let words = words.join(" ").replace('\\', r"\\").replace('"', "\\\"");
    format!("\"{}\"", safe(&words))
}

fn print(terminal: &Terminal, one: &Value) {
    let text = |name: &str| one[name].as_str().unwrap_or_default();
    let shown = |name| safe(text(name));
    let (id, state, session) = (shown("id"), shown("state"), shown("session"));
    let wanted = shown("wanted");
    terminal.line_of_peer(&format!("{id} {state:<8} {session:<12} {wanted}"));
    terminal.line_of_peer(&format!("  the workload says: {}", quoted(text("why"))));
}

impl Deny {
    pub(super) fn run(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        let content = json!({ "id": self.id, "undo": self.undo });
        let gateway = self.chosen.one()?;
        let refused = gateway.post("/v1/proposals/refuse", Some(&content))?;
        let wanted = safe(refused["wanted"].as_str().unwrap_or_default());
        let word = if self.undo { "waits again" } else { "refused" };
        terminal.answer(&refused, format!("{word}: {wanted}"));
        Ok(Code::Ok)
    }
}
