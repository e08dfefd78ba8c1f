//! The baseline: the same stages as in `server/exchange.rs`. It must compile, which shows that the
//! violations beside it fail for the right reason.

use std::sync::Arc;

use gateway::credential::Credentials;
use gateway::intercept::Accepted;
use gateway::origin::{Forwarded, Origins};
use gateway::policy::{ContentBudget, Decision, KnownRules, Obligations, Policies};
use gateway::session::{OriginBindings, Sessions};

pub async fn exchange(
    sessions: &Sessions,
    (policies, latest): (&Policies, &Policies),
    origins: &Origins,
    credentials: &Credentials,
    accepted: Accepted,
    (here, rules): (&Arc<OriginBindings>, &KnownRules),
    budget: ContentBudget<'_>,
) -> Option<Forwarded> {
    let identified = sessions.identify(accepted, credentials.bindings(), here).ok()?;
    let gathered = policies.gather(identified, rules, budget).await.ok()?;
    let in_force = (latest.generation(), &**credentials.bindings());
    let Decision::Allow(authorized) = policies.decide(gathered, in_force) else {
        return None;
    };
    let verified = credentials.verify(authorized).await.ok()?;
    let settled = verified.settle(&Obligations::default()).ok()?;
    let channel = origins.open(&settled).await.ok()?;
    let credentialed = credentials.attach(settled).await.ok()?;
    channel.forward(credentialed).await.ok()
}
