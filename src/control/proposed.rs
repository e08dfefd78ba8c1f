//! The proposals of workloads, as operators see and refuse them. To grant one, they allow its id.

use bytes::Bytes;
use gateway_grant::ControlRefusal;
use gateway_policy::Operation;
use gateway_server::{Proposal, ProposalState, SharedState};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::api::{Answered, bad, document};
use super::operations::Operations;
use super::recording::OperatorAct;
use super::server::{Control, Peer};

/// Names the proposal that is refused.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RefusedProposal {
    /// Its id.
    id: String,
    /// Whether to undo its refusal, so that it waits again.
    #[serde(default)]
    undo: bool,
}

impl<O: Operations> Control<O> {
    pub(super) async fn proposals(&self) -> Answered {
        let shared = self.shared.clone();
        let views = self.beside(move || {
            let all = shared.proposals.all();
            all.iter().map(|one| view(one, &shared)).collect()
        });
        let views: Vec<Value> = views.await?;
        Ok(document(&json!({ "proposals": views })))
    }

    pub(super) async fn refuse_proposal(&self, content: &Bytes, peer: Peer) -> Answered {
        let asked: RefusedProposal = serde_json::from_slice(content)
            .map_err(|error| bad("the content names no proposal").because(error.to_string()))?;
        let (from, to, word) = if asked.undo {
            (ProposalState::Refused, ProposalState::Waiting, "undo ")
        } else {
            (ProposalState::Waiting, ProposalState::Refused, "")
        };
        let shared = self.shared.clone();
        let all = self.beside(move || shared.proposals.all()).await?;
        let is_it = |one: &Proposal| one.state == from && one.id.to_string() == asked.id;
        let one = all.into_iter().find(is_it).ok_or_else(|| unknown(from))?;
        let subject = format!("{word}{} {}", one.id, one.wanted.shown());
        let operation = Operation::ProposalRefuse;
        let act = OperatorAct::new(peer, operation, Some(&one.session), &subject);
        self.record(&act).await?;
        let shared = self.shared.clone();
        let settle = move || shared.proposals.settle((&one.session, one.id), (from, to));
        // Another operator may have answered it meanwhile.
        let settled = self.beside(settle).await;
        let settled = settled.and_then(|one| one.ok_or_else(|| unknown(from)));
        let settled = self.followed(&act, settled).await?;
        Ok(document(&view(&settled, &self.shared)))
    }
}

fn unknown(state: ProposalState) -> ControlRefusal {
    let what = format!("no such proposal is {}", state.as_str());
    ControlRefusal::new(StatusCode::NOT_FOUND, what).next("gateway grants proposed --all")
}

/// Returns a proposal as an operator sees it. Without an answer, it ends with its session.
fn view(one: &Proposal, shared: &SharedState) -> Value {
    let session = shared.sessions.get(&one.session);
    let over = session.is_none_or(|session| session.is_over());
    let state = match one.state {
        ProposalState::Waiting if over => "ended",
        state => state.as_str(),
    };
    json!({
        "id": one.id.to_string(),
        "session": one.session.as_str(),
        "time": OffsetDateTime::from(one.time).format(&Rfc3339).ok(),
        "wanted": one.wanted.shown(),
        "why": one.words,
        "state": state,
    })
}
