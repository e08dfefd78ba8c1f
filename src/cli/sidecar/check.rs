//! `gateway sidecar check`: whether this process could leave without the gateway, tried from inside
//! the sandbox.

use std::fs;

use clap::Args;
use serde::Serialize;

use super::attempts::{self, Fate};
use super::rules::modes;
use crate::app::{Code, Failure, Paint, Terminal, safe};
use crate::launch::sidecar::SidecarMode;

/// Tell whether this process could leave without the running gateway: run it as the workload would
#[derive(Args)]
pub(crate) struct CheckCommand {
    /// The mode of the rules. With `router` they are outside, so no privilege here is a way past
    /// them
    #[arg(long, value_parser = modes(), default_value = "redirect")]
    mode: SidecarMode,
    /// The user that the gateway runs as, who is not captured
    #[arg(long, value_name = "UID", default_value_t = 1337)]
    exempt_uid: u32,
}

/// The result for one way out.
#[derive(Serialize)]
struct CheckedWay {
    way: String,
    verdict: WayVerdict,
    why: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<&'static str>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum WayVerdict {
    Holds,
    CannotBeKnown,
    DoesNotHold,
}

impl CheckCommand {
    pub(super) fn run(self, terminal: &Terminal) -> Result<Code, Failure> {
        let is_shared = self.mode != SidecarMode::Router;
        let mut found = Vec::new();
        if is_shared {
            let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
            found.extend(privileges(&status, self.exempt_uid));
        }
        found.extend(attempts::all(is_shared));
        let ways: Vec<CheckedWay> = found.into_iter().map(CheckedWay::of).collect();
        let worst = ways.iter().map(|way| way.verdict).max();
        let worst = worst.unwrap_or(WayVerdict::CannotBeKnown);
        let verdict = match worst {
            WayVerdict::Holds => "nothing here leaves without the gateway",
            WayVerdict::CannotBeKnown => {
                "whether this process could leave without the gateway cannot be known"
            }
            WayVerdict::DoesNotHold => "this process could leave without the gateway",
        };
        if terminal.json() {
            terminal.document(&serde_json::json!({ "verdict": worst, "ways": ways }));
        } else {
            terminal.line(verdict);
            ways.iter().for_each(|way| way.show(terminal));
        }
        Ok(match worst {
            WayVerdict::Holds => Code::Ok,
            _ => Code::Failed,
        })
    }
}

/// Returns what the process may do and become, by `/proc/self/status`.
fn privileges(status: &str, exempt_uid: u32) -> [(String, Fate); 3] {
    let of = |key: &str| {
        let mut lines = status.lines();
        lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(":\t"))
    };
    // The real, effective, saved and file system user: it may become each.
    let user = of("Uid").map(|all| {
        let mut users = all.split('\t');
        if users.any(|uid| uid.parse() == Ok(exempt_uid)) {
            Fate::Allowed(format!("this is user {exempt_uid}, who is not captured"))
        } else {
            Fate::Holds(format!("this is not user {exempt_uid}"))
        }
    });
    let gains = of("NoNewPrivs").map(|flag| match flag {
        "1" => Fate::Holds("no program gives it more privileges".into()),
        _ => Fate::Allowed("a setuid program may give it the privileges to leave".into()),
    });
    let held = of("CapPrm").and_then(|bits| u64::from_str_radix(bits, 16).ok());
    let held = held.map(|held| {
        let held = PAST_RULES.iter().filter(|(bit, ..)| held >> bit & 1 == 1);
        let held: Vec<String> = held.map(|(_, name, how)| format!("{name} {how}")).collect();
        if held.is_empty() {
            Fate::Holds("it has none that leads past the rules".into())
        } else {
            Fate::Allowed(held.join("; "))
        }
    });
    let all = [
        ("user", user),
        ("new privileges", gains),
        ("capabilities", held),
    ];
    let untold = || Fate::Unclear("/proc/self/status does not tell: mount /proc".into());
    all.map(|(way, fate)| (way.to_owned(), fate.unwrap_or_else(untold)))
}

impl CheckedWay {
    fn of((way, fate): (String, Fate)) -> Self {
        let (verdict, why, remedy) = match fate {
            Fate::Holds(why) => (WayVerdict::Holds, why, None),
            Fate::Leaves(why) => {
                let why = format!("was neither captured nor refused: {why}");
                (WayVerdict::DoesNotHold, why, Some(APPLY))
            }
            Fate::Allowed(why) => (WayVerdict::DoesNotHold, why, Some(RESTRICT)),
            Fate::Unclear(why) => (WayVerdict::CannotBeKnown, why, Some(AGAIN)),
            Fate::Unrouted(why) => {
                let why = format!("{why}, but neighbours may be reached");
                (WayVerdict::CannotBeKnown, why, Some(ROUTE))
            }
        };
        Self {
            way,
            verdict,
            why,
            remedy,
        }
    }

    fn show(&self, terminal: &Terminal) {
        let (paint, word) = match self.verdict {
            WayVerdict::Holds => (Paint::Green, "holds"),
            WayVerdict::CannotBeKnown => (Paint::Yellow, "cannot be known"),
            WayVerdict::DoesNotHold => (Paint::Red, "does not hold"),
        };
        let word = terminal.paint(paint, &format!("{word:<15}"));
        terminal.line(format!("{word}  {}: {}", safe(&self.way), self.why));
        if let Some(remedy) = self.remedy {
            terminal.line(format!("                   next: {remedy}"));
        }
    }
}

const APPLY: &str = "apply the rules before the workload starts: `gateway sidecar rules … --apply`";
const RESTRICT: &str = "another `runAsUser` than the gateway's, `capabilities: {drop: [ALL]}`, \
     `allowPrivilegeEscalation: false` (`--user`, `--cap-drop all`, `--security-opt \
     no-new-privileges`)";
const AGAIN: &str = "see that the gateway runs and has little to do, and try again";
const ROUTE: &str =
    "give it a default route that leads to the gateway, or no address but loopback's";
/// The capabilities that let a process bypass rules of its own network namespace.
const PAST_RULES: [(u32, &str, &str); 7] = [
    (7, "CAP_SETUID", "becomes the gateway's user"),
    (12, "CAP_NET_ADMIN", "changes the rules"),
    (
        13,
        "CAP_NET_RAW",
        "marks packets, and sends packets that no rule sees",
    ),
    (16, "CAP_SYS_MODULE", "changes the kernel"),
    (17, "CAP_SYS_RAWIO", "writes to the machine's memory"),
    (
        19,
        "CAP_SYS_PTRACE",
        "takes over processes of the gateway's user",
    ),
    (21, "CAP_SYS_ADMIN", "enters other namespaces"),
];
