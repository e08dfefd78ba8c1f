//! What waits for a person, as operators see and answer it: the proposals of workloads, which a
//! rule grants, and the requests that a policy asks about.

use bytes::Bytes;
use gateway_grant::ControlRefusal;
use gateway_policy::Operation;
use gateway_server::{Proposal, ProposalState, SharedState};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::api::{ApiResult, bad, document};
use super::operations::Operations;
use super::recording::OperatorAct;
use super::server::{Control, Peer};

/// Names what is answered.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnsweredProposal {
    /// Its id.
    id: String,
    /// Whether to undo its refusal, so that it waits again.
    #[serde(default)]
    undo: bool,
}

impl<O: Operations> Control<O> {
    pub(super) async fn proposals(&self) -> ApiResult {
        let shared = self.shared.clone();
        let views = self.beside(move || {
            let (asked, all) = (shared.proposals.asked(), shared.proposals.all());
            shared.proposals.look();
            asked
                .iter()
                .chain(&all)
                .map(|one| view(one, &shared))
                .collect()
        });
        let views: Vec<Value> = views.await?;
        Ok(document(&json!({ "proposals": views })))
    }

    /// Allows one request that a policy asks about, once.
    pub(super) async fn allow_asked(&self, content: &Bytes, peer: &Peer) -> ApiResult {
        let asked = read(content)?;
        let allowed = self.decide(&asked.id, true, &peer.to_string()).await?;
        Ok(document(&view(&allowed, &self.shared)))
    }

    /// Answers one request that a policy asks about, in the name of who answers.
    ///
    /// # Errors
    /// A refusal if no such request waits, or the answer cannot be recorded.
    pub async fn decide(
        &self,
        id: &str,
        is_allowed: bool,
        by: &str,
    ) -> Result<Proposal, ControlRefusal> {
        let (to, act) = if is_allowed {
            (ProposalState::Granted, ("once ", Operation::PolicyAllow))
        } else {
            (ProposalState::Refused, ("", Operation::ProposalRefuse))
        };
        let shared = self.shared.clone();
        let all = self.beside(move || shared.proposals.asked()).await?;
        self.settle((all, id), (ProposalState::Waiting, to), act, by)
            .await
    }

    pub(super) async fn refuse_proposal(&self, content: &Bytes, peer: &Peer) -> ApiResult {
        let asked = read(content)?;
        let (to, word) = if asked.undo {
            ((ProposalState::Refused, ProposalState::Waiting), "undo ")
        } else {
            ((ProposalState::Waiting, ProposalState::Refused), "")
        };
        let shared = self.shared.clone();
        let all = move || [shared.proposals.asked(), shared.proposals.all()].concat();
        let all = self.beside(all).await?;
        let act = (word, Operation::ProposalRefuse);
        let by = peer.to_string();
        let settled = self.settle((all, &asked.id), to, act, &by).await?;
        Ok(document(&view(&settled, &self.shared)))
    }

    /// Records an answer, then changes the state of what is answered.
    async fn settle(
        &self,
        (all, id): (Vec<Proposal>, &str),
        (from, to): (ProposalState, ProposalState),
        (word, operation): (&str, Operation),
        by: &str,
    ) -> Result<Proposal, ControlRefusal> {
        // A yes that is not used yet can be taken back.
        let may = |one: &Proposal| {
            let is_unused = one.ask.is_some() && one.state == ProposalState::Granted;
            one.state == from || to == ProposalState::Refused && is_unused
        };
        let is_it = |one: &Proposal| may(one) && one.id.to_string() == id;
        let one = all.into_iter().find(is_it).ok_or_else(|| unknown(from))?;
        let from = one.state;
        let subject = format!("{word}{} {}", one.id, one.wanted.shown());
        let act = OperatorAct::new(by, operation, Some(&one.session), &subject);
        self.record(&act).await?;
        let shared = self.shared.clone();
        let by = by.to_owned();
        let key = (one.session, one.id);
        let settle = move || {
            shared
                .proposals
                .settle((&key.0, key.1), (from, to), Some(&by))
        };
        // Another operator may have answered it meanwhile.
        let settled = self.beside(settle).await;
        let settled = settled.and_then(|one| one.ok_or_else(|| unknown(from)));
        self.followed(&act, settled).await
    }
}

fn read(content: &Bytes) -> Result<AnsweredProposal, ControlRefusal> {
    let read = serde_json::from_slice(content);
    read.map_err(|error| bad("the content names no proposal").because(error.to_string()))
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
    let mut view = one.view();
    view["state"] = state.into();
    view
}
