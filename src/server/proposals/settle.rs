//! The stage that meets what policies oblige a request to, before anything of it is sent.

use std::sync::Arc;

use bytes::Bytes;
use gateway_audit::AuditDecision;
use gateway_credential::{Settled, Verified};
use gateway_intercept::TokenLimit;
use gateway_message::{Origin, names_path};
use gateway_policy::{JudgeInput, Objection, Obligations, Ruling};
use gateway_session::{Session, SessionStatus};
use gateway_token::CaveatDenied;
use sha2::{Digest as _, Sha256};

use super::AskFault;
use super::spending::SpendFault;
use crate::exchange::Exchange;
use crate::refusal::Refusal;

gateway_names::faults! {
    /// Why a request is not sent, though its policies would allow it.
    #[derive(Debug, thiserror::Error)]
    pub enum Unmet {
        /// No person lets it go on.
        Asked(#[from] AskFault) = inner transparent,
        /// A budget has not enough left.
        Spent(#[from] SpendFault) = inner transparent,
        /// The label that it gives its session cannot be kept.
        Unkept = StateUnavailable "what the request gives its session cannot be kept",
        /// It has obligations that were not met.
        Open = PolicyError "it has obligations that were not met",
    }
}

impl Exchange {
    /// Meets what the policies oblige the request to: first the labels of its session, then the
    /// budgets, then what a person is asked.
    pub(crate) async fn settle(&mut self, verified: Verified) -> Result<Settled, Refusal> {
        let Some(all) = verified.authorized().obligations().cloned() else {
            let none = Obligations::default();
            return Ok(verified.settle(&none).map_err(|_| Unmet::Open)?);
        };
        // Boxed because it is large and rare.
        match Box::pin(self.meet(&verified, &all)).await {
            Ok(()) => Ok(verified.settle(&all).map_err(|_| Unmet::Open)?),
            Err(Refusal::Unmet { why, .. }) => {
                let client = Some(Box::new(verified.refused()));
                Err(Refusal::Unmet { why, client })
            }
            Err(other) => Err(other),
        }
    }

    async fn meet(&mut self, verified: &Verified, all: &Obligations) -> Result<(), Refusal> {
        let judged = verified.authorized().judged().clone();
        is_the_one(verified, all)?;
        self.label(judged.session(), all).await?;
        if !all.budgets.is_empty() || !all.token.is_empty() {
            self.spend(verified, all).await?;
        }
        if !all.asks.is_empty() {
            self.ask(verified, &all.asks).await.map_err(Unmet::from)?;
        }
        // What is in force may have changed meanwhile, and two requests that label one session are
        // each judged with both labels.
        if judged.session().status() == SessionStatus::Paused {
            return Err(gateway_session::Error::Paused.into());
        }
        let latest = self.worker.shared.look();
        let bindings = latest.credentials.bindings();
        let case = JudgeInput {
            session: Some(judged.session()),
            caller: judged.caller(),
            request: Some(&judged),
            ruling: Some(Ruling::later(
                &judged,
                latest.policies.generation(),
                bindings,
            )),
        };
        case.hear()?;
        let verdict = verified.authorized().verdict();
        let (policies, generation) = (&verdict.policies, verdict.generation);
        self.trail
            .decide(AuditDecision::Allow, policies, generation);
        Ok(())
    }

    /// Gives the session the labels of the permits that allow the request. They are kept before
    /// anything is sent, and what is under way is judged again.
    async fn label(&self, session: &Arc<Session>, all: &Obligations) -> Result<(), Unmet> {
        if session.has_labels(&all.labels) {
            return Ok(());
        }
        let shared = &self.worker.shared;
        let texts = all.labels.iter().map(ToString::to_string).collect();
        let captures = shared.captures.get().ok_or(Unmet::Unkept)?;
        if !captures.label(session.id(), texts).await {
            return Err(Unmet::Unkept);
        }
        session.add_labels(&all.labels);
        shared.announce();
        Ok(())
    }
}

/// Fields by which services are told what to do, beside the URL.
const OPERATIONS: [&str; 2] = ["soapaction", "x-amz-target"];

/// Checks that a token for one request is for this one.
fn is_the_one(verified: &Verified, all: &Obligations) -> Result<(), Objection> {
    let mut limits = all.token.iter().map(|(_, limit)| limit);
    if !limits
        .clone()
        .any(|limit| matches!(limit, TokenLimit::Request(_)))
    {
        return Ok(());
    }
    let authorized = verified.authorized();
    let (head, content) = (authorized.head(), authorized.content());
    let denied = || Objection::Caveat(CaveatDenied::Request.into());
    let names_more = || {
        OPERATIONS
            .iter()
            .any(|name| head.fields.contains_key(*name))
    };
    if authorized.is_upgrade() || names_path(&head.fields) || names_more() {
        return Err(denied());
    }
    let whole = match content.held() {
        Some(held) if held.trailers().is_none_or(http::HeaderMap::is_empty) => held.whole(),
        None if content.is_empty() => Bytes::new(),
        _ => return Err(denied()),
    };
    let query = head.target.query().map(|query| format!("?{query}"));
    let (path, query) = (head.target.path(), query.unwrap_or_default());
    let Origin { scheme, authority } = &head.origin;
    let port = match authority.port {
        port if port == scheme.default_port() => String::new(),
        port => format!(":{port}"),
    };
    let (method, scheme, host) = (&head.method, scheme.as_str(), &authority.host);
    let line = format!("{method} {scheme}://{host}{port}{path}{query}\n");
    let hash = Sha256::new()
        .chain_update(line)
        .chain_update(&whole)
        .finalize();
    let is_for =
        |limit: &TokenLimit| !matches!(limit, TokenLimit::Request(one) if *one != hash[..]);
    limits.all(is_for).then_some(()).ok_or_else(denied)
}
