//! `gateway fleet`: the replicas that share a state.

use clap::Subcommand;
use serde_json::Value;

use super::operate::gateways::{ChosenGateway, in_path};
use crate::app::{Code, Failure, Paint, Terminal, safe};

/// The commands about a fleet.
#[derive(Subcommand)]
pub(crate) enum FleetCommand {
    /// Show every replica: whether its lease lasts, what it has applied, and who differs
    Status(ChosenGateway),
    /// Ask a replica to stop, as SIGTERM does: what is under way ends first
    Drain {
        /// The replica, by its name
        replica: String,
        #[command(flatten)]
        chosen: ChosenGateway,
    },
}

impl FleetCommand {
    pub(super) fn run(self, terminal: &Terminal) -> Result<Code, Failure> {
        match self {
            Self::Status(chosen) => {
                let fleet = chosen.one()?.get("/v1/fleet")?;
                if terminal.json() {
                    terminal.document(&fleet);
                } else {
                    print(&fleet, terminal);
                }
                let all = fleet["replicas"].as_array().into_iter().flatten();
                let is_live = all.clone().any(|one| one["live"] == true);
                Ok(if is_live { Code::Ok } else { Code::Failed })
            }
            Self::Drain { replica, chosen } => {
                let path = format!("/v1/fleet/{}/drain", in_path(&replica));
                let answer = chosen.one()?.post(&path, None)?;
                let line = format!("replica `{}` was asked to stop", safe(&replica));
                terminal.answer(&answer, line);
                Ok(Code::Ok)
            }
        }
    }
}

fn print(fleet: &Value, terminal: &Terminal) {
    let all = || fleet["replicas"].as_array().into_iter().flatten();
    let here = all().find(|one| one["here"] == true);
    for one in all() {
        let text = |name: &str| safe(one[name].as_str().unwrap_or_default());
        let (paint, state) = match (one["live"] == true, one["drains"] == true) {
            (true, false) => (Paint::Green, "live"),
            (true, true) => (Paint::Yellow, "drains"),
            (false, _) => (Paint::Red, "gone"),
        };
        let differs = here.is_some_and(|here| here["in_force"] != one["in_force"]);
        let differs = if differs && one["live"] == true {
            "  other configuration or policies than here"
        } else {
            ""
        };
        let digest = text("in_force");
        terminal.line(format!(
            "{:<16} {}  applied {}, beat {} ms ago, version {}, in force {}{differs}",
            text("name"),
            terminal.paint(paint, &format!("{state:<6}")),
            one["applied"],
            one["beat_ms"],
            text("version"),
            digest.get(..12).unwrap_or("nothing yet"),
        ));
    }
}

/// Returns a line for each replica that a decision was told.
pub(crate) fn proven(answer: &Value) -> Vec<String> {
    let all = answer["fleet"].as_array().into_iter().flatten();
    let line = |one: &Value| {
        let name = safe(one["replica"].as_str().unwrap_or_default());
        match one["applied_ms"].as_f64() {
            Some(took) => format!("  replica {name}: applied after {took} ms"),
            None => format!("  replica {name}: its lease is over, so it lends nothing"),
        }
    };
    all.map(line).collect()
}
