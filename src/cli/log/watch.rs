//! `gateway watch`: a live view of a gateway in the terminal, with keys to allow, pause and end.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use clap::Args;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::KeyCode;
use rustix::process::{Signal, getpid, kill_process};
use serde_json::json;

use crate::app::{Code, Context as _, Failure, Paint, Terminal, safe};
use crate::audit::Record;
use crate::cli::log::LogCommand;
use crate::cli::log::watch_events::{WatchEvent, WatchEvents};
use crate::cli::log::watch_view::{Pane, WatchView};
use crate::cli::operate::OneSession;
use crate::cli::operate::gateways::{ChosenGateway, Gateway, in_path};
use crate::cli::{allow, operate, proposals};
use crate::grant::AllowRequest;

/// Watch a running gateway, and answer proposals at a key
///
/// Shows requests, refusals and why, sessions and proposals.
#[derive(Args)]
pub(crate) struct WatchCommand {
    /// Only of this session: its id
    session: Option<String>,
    #[command(flatten)]
    chosen: ChosenGateway,
}

/// A view with its gateway.
struct Watcher {
    gateway: Gateway,
    /// The filter on the log's records.
    log: LogCommand,
    terminal: Terminal,
    view: WatchView,
    pending: Option<PendingAction>,
    events: WatchEvents,
    screen: DefaultTerminal,
}

/// The action that waits for a yes. It returns its outcome.
type PendingAction = Box<dyn FnOnce(&Gateway) -> Result<String, Failure>>;

impl WatchCommand {
    pub(crate) fn run(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        let (gateway, session) = self.find()?;
        let log = LogCommand::following(session, self.chosen);
        if terminal.json() || !is_screen() {
            return log.follow_of(&gateway, terminal);
        }
        let colours = !terminal.paint(Paint::Bold, "").is_empty();
        let events = WatchEvents::start(&gateway)?;
        let (past, last) = log.past(&gateway, terminal)?;
        let mut watcher = Watcher {
            view: WatchView::of(safe(&gateway.name), colours),
            gateway,
            log,
            terminal: *terminal,
            pending: None,
            events,
            // A panic restores the terminal too.
            screen: ratatui::try_init().context("the terminal cannot be set")?,
        };
        watcher.add(past.into_iter().map(|(_, record)| record));
        let ends = watcher.refresh().map(|()| watcher.watch(last));
        ratatui::restore();
        if ends? {
            terminal.note(format!("gateway: `{}` has ended", watcher.view.gateway));
        }
        Ok(Code::Ok)
    }

    fn find(&self) -> Result<(Gateway, Option<String>), Failure> {
        let Some(session) = self.session.clone() else {
            return Ok((self.chosen.one()?, None));
        };
        let chosen = self.chosen.clone();
        let (gateway, id) = OneSession { session, chosen }.find()?;
        Ok((gateway, Some(id)))
    }
}

/// Whether keys and output both belong to a terminal.
fn is_screen() -> bool {
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb" || term.is_empty());
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal() && !dumb
}

impl Watcher {
    /// Draws the view and handles keys, until the end. Returns whether the gateway ended.
    fn watch(&mut self, past: Option<u64>) -> bool {
        let mut looked = Instant::now();
        loop {
            // This fails if the terminal has gone.
            if self.draw().is_err() {
                return false;
            }
            let wait = LOOKS_EVERY.saturating_sub(looked.elapsed());
            match self.events.within(wait) {
                Some(WatchEvent::Key(KeyCode::Char('q'))) if self.view.pane != Pane::Filter => {
                    return false;
                }
                Some(WatchEvent::Stopped) => return false,
                Some(WatchEvent::Gone) => return true,
                Some(WatchEvent::Suspended) if self.suspend().is_err() => return false,
                Some(WatchEvent::Suspended | WatchEvent::Resized) | None => {}
                Some(WatchEvent::Records(records)) => {
                    let is_new = |one: &Record| past.is_none_or(|past| one.seq > past);
                    self.add(records.into_iter().filter(is_new));
                }
                Some(WatchEvent::Key(key)) => self.press(key),
            }
            if looked.elapsed() >= LOOKS_EVERY {
                if self.refresh().is_err() {
                    return true;
                }
                looked = Instant::now();
            }
        }
    }

    fn draw(&mut self) -> std::io::Result<()> {
        self.screen.draw(|frame| self.view.draw(frame)).map(drop)
    }

    /// Releases the terminal, and takes it again when the person continues.
    fn suspend(&mut self) -> std::io::Result<()> {
        ratatui::restore();
        kill_process(getpid(), Signal::TSTP)?;
        self.screen = ratatui::try_init()?;
        self.screen.clear()
    }

    fn add(&mut self, records: impl Iterator<Item = Record>) {
        for record in records.filter(|one| self.log.wants(one, &self.terminal)) {
            self.view.add(&record);
        }
        self.view.begin();
    }

    /// Reads sessions and proposals.
    fn refresh(&mut self) -> Result<(), Failure> {
        let own = |id: &serde_json::Value| {
            let named = self.log.filter.session.as_deref();
            named.is_none_or(|named| id.as_str() == Some(named))
        };
        let mut sessions = operate::sessions(&self.gateway)?;
        sessions.retain(|session| own(&session["id"]));
        let mut proposals = proposals::proposals(&self.gateway)?;
        proposals.retain(|one| one["state"] == "waiting" && own(&one["session"]));
        self.view.sessions = sessions;
        self.view.set_proposals(proposals);
        Ok(())
    }

    fn press(&mut self, key: KeyCode) {
        if let Some(pending) = self.pending.take() {
            // The terminal may have become too small for the question meanwhile.
            let is_seen = self.is_seen();
            self.view.question = None;
            let yes = is_seen && matches!(key, KeyCode::Char('y' | 'Y'));
            return self.tell(if yes {
                pending(&self.gateway)
            } else {
                Ok("nothing was changed".to_owned())
            });
        }
        if self.view.press(key) {
            return;
        }
        self.view.message.clear();
        let done = match key {
            KeyCode::Char('a') => self.ask_to_allow(),
            KeyCode::Char('d') => self.ask_to_deny(),
            KeyCode::Char('p') => self.set("pause"),
            KeyCode::Char('r') => self.set("resume"),
            KeyCode::Char('e') => self.ask_to_end(),
            _ => return,
        };
        self.tell(done);
    }

    fn is_seen(&self) -> bool {
        let size = self.screen.size();
        size.is_ok_and(|size| self.view.is_seen((size.width, size.height)))
    }

    /// Shows the outcome of a key, and the new state.
    fn tell(&mut self, done: Result<String, Failure>) {
        self.view.message = safe(&done.unwrap_or_else(|failure| failure.to_string()));
        // The stream shows it if the gateway does not answer.
        let _ = self.refresh();
    }

    /// Shows the rule for the chosen item, and asks.
    fn ask_to_allow(&mut self) -> Result<String, Failure> {
        let nothing = || Failure::new("choose a refusal or a proposal first");
        let item = self.view.chosen().ok_or_else(nothing)?;
        if !item.refused && !item.is_proposal {
            return Err(Failure::new(
                "there is nothing to allow: this was not refused",
            ));
        }
        if item.is_asked() {
            let (mut lines, asked) = (proposals::ask_lines(&item.about), json!({ "id": item.id }));
            lines.push("Allow this one request, once? [y/N]".to_owned());
            return self.ask(lines, move |gateway| {
                gateway.post("/v1/proposals/allow", Some(&asked))?;
                Ok("the request is allowed, once".to_owned())
            });
        }
        let asked = AllowRequest {
            exchange: Some(item.id.clone()).filter(|id| !id.is_empty()),
            ..AllowRequest::default()
        };
        let rule = allow::ask(&self.gateway, &asked)?;
        let mut lines: Vec<String> = rule.policy.lines().map(safe).collect();
        let file = safe(&rule.file);
        lines.push(format!("Apply it, and keep it in {file}? [y/N]"));
        let told = |denied: &String| format!("{} was refused before.", safe(denied));
        lines.splice(0..0, rule.denied.iter().map(told));
        let asked = AllowRequest {
            policy: Some(rule.policy),
            ..asked
        };
        self.ask(lines, move |gateway| {
            let applied = allow::ask(gateway, &asked)?;
            Ok(format!("applied as generation {}", applied.generation))
        })
    }

    fn ask_to_deny(&mut self) -> Result<String, Failure> {
        let item = self.view.chosen().filter(|item| item.is_proposal);
        let item = item.ok_or_else(|| Failure::new("choose a proposal first"))?;
        let session = &item.session;
        let (line, done) = if item.is_asked() {
            let line = "Refuse this request for ten minutes? [y/N]".to_owned();
            (line, "the request is refused")
        } else {
            let line = format!("Refuse it for as long as session `{session}` lives? [y/N]");
            (line, "the proposal is refused")
        };
        let (text, asked) = (item.text.clone(), json!({ "id": item.id }));
        self.ask(vec![text, line], move |gateway| {
            gateway.post("/v1/proposals/refuse", Some(&asked))?;
            Ok(done.to_owned())
        })
    }

    fn ask_to_end(&mut self) -> Result<String, Failure> {
        let session = self.chosen_session()?;
        let line = format!("End session `{}` for good? [y/N]", safe(&session));
        self.ask(vec![line], move |gateway| change(gateway, &session, "end"))
    }

    fn set(&self, act: &str) -> Result<String, Failure> {
        change(&self.gateway, &self.chosen_session()?, act)
    }

    /// Asks, if the whole question can be seen. Earlier keys are not an answer.
    fn ask(
        &mut self,
        lines: Vec<String>,
        yes: impl FnOnce(&Gateway) -> Result<String, Failure> + 'static,
    ) -> Result<String, Failure> {
        self.view.question = Some(lines);
        if !self.is_seen() {
            self.view.question = None;
            return Err(Failure::new("the terminal is too small for the rule"));
        }
        self.events.forget_keys();
        self.pending = Some(Box::new(yes));
        Ok(String::new())
    }

    /// Returns the session of the chosen item, else the only one.
    fn chosen_session(&self) -> Result<String, Failure> {
        let chosen = self.view.chosen().map(|item| &*item.session);
        let only = match &*self.view.sessions {
            [only] => only["id"].as_str(),
            _ => None,
        };
        let session = chosen.filter(|session| !session.is_empty()).or(only);
        let none = || Failure::new("choose a line of the session first");
        session.map(str::to_owned).ok_or_else(none)
    }
}

fn change(gateway: &Gateway, session: &str, act: &str) -> Result<String, Failure> {
    let path = format!("/v1/sessions/{}/{act}", in_path(session));
    let changed = gateway.post(&path, None)?;
    let status = changed["status"].as_str().unwrap_or_default();
    Ok(format!("session `{session}` is {status}"))
}

const LOOKS_EVERY: Duration = Duration::from_secs(2);
