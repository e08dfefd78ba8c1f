//! What is left of budgets, as operators see it, and how they add to it.

use bytes::Bytes;
use gateway_grant::ControlRefusal;
use gateway_names::SessionId;
use gateway_policy::Operation;
use gateway_server::chain;
use gateway_spend::{BudgetView, NotAdded, Period, read_amount, shown};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::api::{ApiResult, bad, document};
use super::operations::Operations;
use super::recording::OperatorAct;
use super::route::RouteMatch;
use super::server::{Control, Peer};

/// What is added to a budget.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Addition {
    /// How much, as in `10usd` or `500`.
    amount: String,
    /// Whose it is, if each has one of its own.
    #[serde(default)]
    key: Option<String>,
}

impl<O: Operations> Control<O> {
    pub(super) async fn budgets(&self) -> ApiResult {
        let mut rows = match self.shared.budgets.get() {
            None => Vec::new(),
            Some(ledger) => ledger.view().await.map_err(|error| unknown_state(&error))?,
        };
        // The rows of sessions that are over stay until others have their ids.
        rows.retain(|row| {
            let session = || SessionId::new(&row.key).ok();
            let lives = || session().and_then(|id| self.shared.sessions.get(&id));
            row.budget.per != Period::Session || lives().is_some()
        });
        let rows: Vec<Value> = rows.iter().map(view).collect();
        Ok(document(&json!({ "budgets": rows })))
    }

    /// Adds to a budget, once that is recorded.
    pub(super) async fn add_to_budget(
        &self,
        called: &RouteMatch,
        content: &Bytes,
        peer: &Peer,
    ) -> ApiResult {
        let asked: Addition = serde_json::from_slice(content)
            .map_err(|error| bad("the content names no amount").because(error.to_string()))?;
        let name = called.named.as_deref().unwrap_or_default();
        let ledger = self.shared.budgets.get().ok_or_else(|| unknown(name))?;
        let budget = ledger.budget(name).ok_or_else(|| unknown(name))?;
        let amount = read_amount(budget.unit, &asked.amount).filter(|amount| *amount > 0);
        let amount = amount.ok_or_else(|| {
            let what = format!("that is no amount of {}", budget.unit);
            ControlRefusal::new(StatusCode::UNPROCESSABLE_ENTITY, what)
                .next("write for example `500`, or of money `10usd`")
        })?;
        let whose = asked.key.as_deref().map(|key| format!(" of {key}"));
        let subject = format!(
            "{name}{} {}",
            whose.unwrap_or_default(),
            shown(budget.unit, amount)
        );
        let act = OperatorAct::new(peer, Operation::BudgetAdd, None, &subject);
        self.record(&act).await?;
        let added = ledger.add(name, asked.key.as_deref(), amount).await;
        let added = added.map_err(|why| match why {
            NotAdded::Unknown(name) => unknown(&name),
            NotAdded::State(error) => unknown_state(&error),
            other => {
                let what = format!("nothing is added to budget `{name}`");
                ControlRefusal::new(StatusCode::UNPROCESSABLE_ENTITY, what)
                    .because(other.to_string())
                    .next(format!("gateway budgets add {name} AMOUNT --of WHOSE"))
            }
        });
        let added = self.followed(&act, added).await?;
        Ok(document(&view(&added)))
    }
}

fn unknown(name: &str) -> ControlRefusal {
    let what = format!("there is no budget `{name}`");
    ControlRefusal::new(StatusCode::NOT_FOUND, what).next("gateway budgets")
}

fn unknown_state(error: &dyn std::error::Error) -> ControlRefusal {
    ControlRefusal::new(StatusCode::SERVICE_UNAVAILABLE, "the state does not answer")
        .because(chain(error))
        .next("see its disk: `[state] path`")
}

/// Returns a row as operators see it. Money is in billionths of a dollar.
fn view(row: &BudgetView) -> Value {
    let ends = row.ends.map(OffsetDateTime::from);
    json!({
        "name": &*row.budget.name,
        "unit": row.budget.unit.as_str(),
        "per": row.budget.per.as_str(),
        "by": row.budget.by.as_str(),
        "key": row.key,
        "most": row.budget.most,
        "added": row.added,
        "spent": row.spent,
        "reserved": row.reserved,
        "left": row.left,
        "begins_anew": ends.and_then(|ends| ends.format(&Rfc3339).ok()),
    })
}
