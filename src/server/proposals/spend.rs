//! `@budget`: the most that a request can use is reserved before it is sent, and settled by what
//! its answer says that it used.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use gateway_body::read::ModelCall;
use gateway_credential::Verified;
use gateway_intercept::{PrefixId, TokenLimit};
use gateway_message::RequestHead;
use gateway_policy::{Grant, Obligations};
use gateway_spend::{Amount, Budget, Charge, Period, Sharing, Unit, worst_case};

use http::Method;

use super::settle::Unmet;
use super::spending::{Asked, SpendFault, Spending};
use crate::exchange::Exchange;

impl Exchange {
    /// Reserves the most that the request can use of every budget that counts it.
    pub(super) async fn spend(
        &mut self,
        verified: &Verified,
        all: &Obligations,
    ) -> Result<(), Unmet> {
        let shared = self.worker.shared.clone();
        let gone = |name: &str| SpendFault::Unbounded(format!("there is no budget `{name}`"));
        let unkept = || SpendFault::Unbounded("no state outlasts the gateway to count it".into());
        let ledger = shared.budgets.get().ok_or_else(unkept)?;
        let names: BTreeSet<&str> = all.budgets.iter().map(|one| &*one.budget).collect();
        let mut counted: Vec<_> = all.token.iter().filter_map(of_token).collect();
        for name in names {
            let budget = ledger.budget(name).ok_or_else(|| gone(name))?;
            let keys = self.keys(verified, budget.by).into_iter();
            counted.extend(keys.map(|key| (budget.clone(), key)));
        }
        let asked = match counted.iter().any(|(budget, _)| budget.unit.is_of_models()) {
            true => self.asked(verified)?,
            false => None,
        };
        let mut charges = Vec::new();
        for (budget, key) in counted {
            let amount = most(verified, budget.unit, asked.as_ref())?;
            charges.push(Charge {
                budget,
                key,
                amount,
            });
        }
        let head = head_bytes(verified.authorized().head());
        let counts_bytes = charges.iter().any(|one| one.budget.unit == Unit::Bytes);
        let reservation = tokio::select! {
            reserved = ledger.reserve(charges, WAITS) => reserved.map_err(SpendFault::from)?,
            () = self.stops() => return Err(SpendFault::Stopping.into()),
        };
        self.spending = Some(Box::new(Spending::new(
            reservation,
            counts_bytes.then_some(head),
            asked,
        )));
        Ok(())
    }

    /// Completes when the gateway stops. Until then the exchange is not taken for stalled.
    async fn stops(&self) {
        let draining = &self.worker.shared.draining;
        while !draining.is_cancelled() {
            self.guard.meter.add_up(0);
            let _ = tokio::time::timeout(TICK, draining.cancelled()).await;
        }
    }

    /// Returns whose budgets count the request.
    fn keys(&self, verified: &Verified, by: Sharing) -> Vec<String> {
        let authorized = verified.authorized();
        let judged = authorized.judged();
        let mut keys: Vec<String> = match by {
            Sharing::All => Vec::new(),
            Sharing::Session => vec![judged.session().id().to_string()],
            Sharing::User => judged
                .user()
                .map(|user| user.as_str().to_owned())
                .into_iter()
                .collect(),
            Sharing::Group => {
                let generation = self.snapshot.policies.generation();
                authorized
                    .groups(generation)
                    .iter()
                    .map(ToString::to_string)
                    .collect()
            }
            Sharing::Secret => {
                let grants = authorized.grants().iter().map(Grant::lend);
                grants.map(|lend| lend.credential().to_string()).collect()
            }
            Sharing::Host => vec![authorized.head().origin.authority.host.as_str().to_owned()],
        };
        keys.sort();
        keys.dedup();
        if keys.is_empty() {
            // Those without one share one.
            keys.push(String::new());
        }
        keys
    }

    /// Reads what a request asks of a model; `None` if it only looks something up.
    fn asked(&self, verified: &Verified) -> Result<Option<Asked>, SpendFault> {
        let authorized = verified.authorized();
        let (head, content) = (authorized.head(), authorized.content());
        let looks_up = [Method::GET, Method::HEAD].contains(&head.method) && content.is_empty();
        if looks_up && !authorized.is_upgrade() {
            return Ok(None);
        }
        let unbounded = |why: &str| SpendFault::Unbounded(format!("a budget counts it, and {why}"));
        let Some(held) = content.held().filter(|_| !authorized.is_upgrade()) else {
            return Err(unbounded("what it asks of a model is not held whole"));
        };
        let call = ModelCall::of(head, held).map_err(unbounded)?;
        let host = head.origin.authority.host.as_str();
        let price = self
            .snapshot
            .prices
            .of(host, &call.model, SystemTime::now());
        Ok(Some(Asked { call, price }))
    }
}

/// Returns the bytes of a request's head that its client chooses.
fn head_bytes(head: &RequestHead) -> u64 {
    let fields = head.fields.iter();
    let fields: usize = fields
        .map(|(name, value)| name.as_str().len() + value.len())
        .sum();
    let query = head.target.query().map_or(0, str::len);
    (head.method.as_str().len() + head.target.path().len() + query + fields) as u64
}

/// Returns the budget that a token has, and whose it is: the tokens' that share the caveat.
fn of_token((id, limit): &(PrefixId, TokenLimit)) -> Option<(Arc<Budget>, String)> {
    let (unit, most, per) = match limit {
        TokenLimit::Budget(unit, most, per) => (*unit, *most, per.unwrap_or(Period::Session)),
        TokenLimit::Once => (Unit::Requests, 1, Period::Session),
        TokenLimit::Request(_) => return None,
    };
    let name = OF_TOKENS.into();
    let by = Sharing::All;
    Some((
        Arc::new(Budget {
            name,
            unit,
            most,
            per,
            by,
        }),
        id.to_string(),
    ))
}

/// Returns the most that a request can use. Of the bytes of its answer, more is reserved as they
/// come.
fn most(verified: &Verified, unit: Unit, asked: Option<&Asked>) -> Result<Amount, SpendFault> {
    let unbounded = |why: String| SpendFault::Unbounded(format!("a budget counts it, and {why}"));
    let authorized = verified.authorized();
    match (unit, asked) {
        (Unit::Requests, _) => Ok(1),
        (Unit::Bytes, _) if authorized.is_upgrade() => {
            Err(unbounded("nothing bounds what a WebSocket carries".into()))
        }
        (Unit::Bytes, _) => {
            let length = authorized.content_length();
            let length =
                length.ok_or_else(|| unbounded("it does not say how long it is".into()))?;
            Ok(length.saturating_add(head_bytes(authorized.head())))
        }
        (Unit::Tokens | Unit::Usd, Some(Asked { call, price })) => {
            worst_case(unit, call, price.as_ref()).map_err(|why| unbounded(why.to_string()))
        }
        (Unit::Tokens | Unit::Usd, None) => Ok(0),
    }
}

/// The name of the budgets that tokens have. No `[[budget]]` has it.
const OF_TOKENS: &str = "of a token";
/// How long a request waits for what others have reserved.
const WAITS: Duration = Duration::from_secs(45);
/// How often a waiting exchange says that it is alive.
const TICK: Duration = Duration::from_secs(1);
