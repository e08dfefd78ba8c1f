//! `gateway budgets`: shows what is left of budgets, and adds to them.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::app::{Code, Failure, Terminal, safe};
use crate::cli::operate::gateways::{ChosenGateway, in_path};
use crate::spend::{Unit, shown};

/// Show what is spent, reserved and left of budgets, and add to them
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct BudgetsCommand {
    #[command(subcommand)]
    act: Option<BudgetsAct>,
    #[command(flatten)]
    chosen: ChosenGateway,
}

#[derive(Subcommand)]
enum BudgetsAct {
    /// Add to what a budget has until it begins anew
    Add {
        /// Its name, as `gateway budgets` shows it
        name: String,
        /// How much, as in `10usd` or `500`
        amount: String,
        /// Whose it is, if each has one of its own: a session, user, group, credential or host
        #[arg(long, value_name = "WHOSE")]
        of: Option<String>,
        #[command(flatten)]
        chosen: ChosenGateway,
    },
}

impl BudgetsCommand {
    pub(super) fn run(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        match self.act {
            None => list(&self.chosen, terminal)?,
            Some(BudgetsAct::Add {
                name,
                amount,
                of,
                chosen,
            }) => {
                let path = format!("/v1/budgets/{}/add", in_path(&name));
                let asked = json!({ "amount": amount, "key": of });
                let row = chosen.one()?.post(&path, Some(&asked))?;
                terminal.answer(&row, line(&row));
            }
        }
        Ok(Code::Ok)
    }
}

fn list(chosen: &ChosenGateway, terminal: &Terminal) -> Result<(), Failure> {
    let mut all = Vec::new();
    for gateway in &chosen.all()? {
        let mut answer = gateway.get("/v1/budgets")?;
        for row in answer["budgets"].as_array_mut().into_iter().flatten() {
            row["gateway"] = json!(gateway.name);
            all.push(row.take());
        }
    }
    if terminal.json() {
        terminal.document(&json!({ "budgets": all }));
    } else {
        all.iter().for_each(|row| terminal.line(line(row)));
    }
    Ok(())
}

/// One row: its name, whose it is, how much is spent, reserved and left, and when it begins anew.
pub(super) fn line(row: &Value) -> String {
    let text = |name: &str| safe(row[name].as_str().unwrap_or_default());
    let number = |name: &str| row[name].as_u64().unwrap_or_default();
    let unit = Unit::named(&text("unit"));
    let amount = |count: u64| unit.map_or_else(|| count.to_string(), |unit| shown(unit, count));
    let all = number("most").saturating_add(number("added"));
    let whose = match &text("key")[..] {
        "" => String::new(),
        key => format!(" of {key}"),
    };
    let anew = match text("begins_anew").get(..16) {
        None => format!("for the {}", text("per")),
        Some(time) => format!("anew {} UTC", time.replace('T', " ")),
    };
    format!(
        "{}{whose}  {} of {} spent, {} reserved, {} left, {anew}",
        text("name"),
        amount(number("spent")),
        amount(all),
        amount(number("reserved")),
        amount(number("left")),
    )
}
