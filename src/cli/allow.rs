//! `gateway allow`: allows a running session what it was refused, by the narrowest rule.

use clap::{ArgGroup, Args};
use serde_json::{Value, json};

use super::confirm::confirmed;
use super::failure::{Code, Failure};
use super::gateways::{ChosenGateway, Gateway};
use super::terminal::{Paint, Terminal, safe};
use crate::config::Allowed;
use crate::control::{AllowRequest, GrantedRule};

/// Allow a running session what it was refused: shows the narrowest rule, asks, and applies it
#[derive(Args)]
#[command(group = ArgGroup::new("asked").args(["what", "last"]).required(true))]
pub(super) struct Allow {
    /// A host (`api.example.com`, `api.example.com:8443`, `*.example.com`), or the id of a refused
    /// exchange or a proposal
    #[arg(value_name = "HOST|ID")]
    what: Option<String>,
    /// What was refused last
    #[arg(long)]
    last: bool,
    /// Apply the rule without a question
    #[arg(long, short)]
    yes: bool,
    /// The session that may; needed for a host if there are several
    #[arg(long, value_name = "NAME")]
    session: Option<String>,
    #[command(flatten)]
    chosen: ChosenGateway,
}

impl Allow {
    pub(super) fn run(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        let gateway = self.chosen.one().map_err(|failure| self.again(failure))?;
        let asked = self.request();
        let rule = ask(&gateway, &asked)?;
        if !terminal.json() {
            rule.policy
                .lines()
                .for_each(|line| terminal.line(safe(line)));
        }
        if rule.policy.len() > SEEN_WHOLE {
            let begins: Vec<&str> = rule.policy.lines().take(HEAD).map(str::trim).collect();
            let told = format!("the rule is long; it begins: {}", safe(&begins.join(" ")));
            terminal.warning("careful", &told);
        }
        if let Some(needs) = &rule.needs {
            terminal.warning("careful", &safe(needs));
        }
        for denied in &rule.denied {
            let told = format!("{} was refused to this session before", safe(denied));
            terminal.warning("careful", &told);
        }
        if asked.host.as_deref().is_some_and(Allowed::leaves_out_path) {
            let told = "every path of the host would be allowed: a rule for one request is that of \
                        its id, and one for some paths is a policy of your own";
            terminal.warning("careful", told);
        }
        let question = format!("Apply it now, and keep it in {}?", safe(&rule.file));
        if !self.yes && !confirmed(&question)? {
            terminal.note("gateway: nothing was changed");
            return Ok(Code::Failed);
        }
        let applied = ask(
            &gateway,
            &AllowRequest {
                policy: Some(rule.policy),
                ..asked
            },
        )?;
        let word = terminal.paint(Paint::Green, "applied");
        let (generation, file) = (applied.generation, safe(&applied.file));
        let line = format!("{word} as generation {generation}, kept in {file}");
        terminal.answer(&applied, line);
        Ok(Code::Ok)
    }

    /// Says how to allow it if no gateway runs.
    fn again(&self, failure: Failure) -> Failure {
        let runs = !self.chosen.find().unwrap_or_default().is_empty();
        if runs || self.chosen.is_named() {
            return failure;
        }
        let again = match &self.what {
            Some(host) if !is_id(host) => format!("`gateway exec --allow {} -- CMD`", safe(host)),
            _ => "`gateway exec -- CMD`, with the `--allow HOST` that its summary named".to_owned(),
        };
        let failure = failure.because("only a gateway that runs can allow it");
        failure.next(format!(
            "start it again: {again}; or `gateway serve --config FILE`"
        ))
    }

    fn request(&self) -> AllowRequest {
        let (exchange, host) = match self.what.clone() {
            Some(what) if is_id(&what) => (Some(what), None),
            what => (None, what),
        };
        AllowRequest {
            host,
            exchange,
            last: self.last,
            session: self.session.clone(),
            policy: None,
        }
    }
}

fn is_id(text: &str) -> bool {
    (4..=20).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Asks for a rule, or has it applied.
pub(super) fn ask(gateway: &Gateway, asked: &AllowRequest) -> Result<GrantedRule, Failure> {
    let content: Value = json!(asked);
    let answer = gateway.post("/v1/policies/allow", Some(&content))?;
    serde_json::from_value(answer)
        .map_err(|error| Failure::of("the gateway's answer cannot be read", &error))
}

/// A rule of so many bytes is seen whole above the question.
const SEEN_WHOLE: usize = 1000;
/// The lines that name the rule, the session, the method and the host.
const HEAD: usize = 5;
