//! `gateway watch`: a live view of a gateway in the terminal, with allow, pause and end at a key.

use std::collections::VecDeque;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;

use super::failure::{Code, Failure};
use super::gateways::{ChosenGateway, Gateway, in_path};
use super::log::{self, LogCommand};
use super::operate::{self, OneSession};
use super::terminal::{Paint, Terminal, safe};
use super::watch_events::{WatchEvent, WatchEvents, WatchKey};
use super::watch_screen::Screen;
use super::watch_view::WatchView;
use super::{allow, proposed};
use crate::audit::Record;
use crate::control::AllowRequest;

/// Watch a running gateway: requests, refusals and why, sessions, proposals; answer at a key
#[derive(Args)]
pub(super) struct WatchCommand {
    /// Only of this session: its id
    session: Option<String>,
    #[command(flatten)]
    chosen: ChosenGateway,
}

/// A view with its gateway.
struct Watcher {
    gateway: Gateway,
    /// The only session that is shown.
    session: Option<String>,
    view: WatchView,
    pending: Option<Pending>,
    events: WatchEvents,
    /// Events that came while something else was waited for.
    put_off: VecDeque<WatchEvent>,
}

/// What happens if the person says yes.
enum Pending {
    Apply(AllowRequest),
    Deny(String),
    End(String),
}

/// Why the view ends.
enum Ends {
    Quit,
    Gone,
}

impl WatchCommand {
    pub(super) fn run(self, terminal: &mut Terminal) -> Result<Code, Failure> {
        let (gateway, session) = self.find()?;
        if terminal.json() || !Screen::is_there() {
            let following = LogCommand::following(session, self.chosen);
            return following.follow_of(&gateway, terminal);
        }
        let events = WatchEvents::start(&gateway)?;
        let mut watcher = Watcher {
            view: WatchView::of(
                safe(&gateway.name),
                !terminal.paint(Paint::Bold, "").is_empty(),
            ),
            gateway,
            session,
            pending: None,
            events,
            put_off: VecDeque::new(),
        };
        watcher.refresh()?;
        let screen = Screen::take()?;
        let ends = watcher.watch(&screen);
        drop(screen);
        if matches!(ends, Ends::Gone) {
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

impl Watcher {
    /// Shows what is, and obeys keys, until the person or the gateway ends it.
    fn watch(&mut self, screen: &Screen) -> Ends {
        let mut looked = Instant::now();
        loop {
            self.draw(screen);
            let event = self.next(LOOKS_EVERY.saturating_sub(looked.elapsed()));
            match event {
                Some(WatchEvent::Key(WatchKey::Letter(b'q' | CONTROL_C)))
                | Some(WatchEvent::Stopped) => return Ends::Quit,
                Some(WatchEvent::Gone) => return Ends::Gone,
                Some(WatchEvent::Key(key)) => {
                    self.press(key);
                    looked = Instant::now();
                }
                Some(WatchEvent::Record(record)) => self.add_all(&record),
                Some(WatchEvent::Missed(count)) => self.miss(count),
                Some(WatchEvent::Resized) | None => {}
            }
            if looked.elapsed() >= LOOKS_EVERY {
                if self.refresh().is_err() {
                    return Ends::Gone;
                }
                looked = Instant::now();
            }
        }
    }

    fn next(&mut self, within: Duration) -> Option<WatchEvent> {
        if let Some(event) = self.put_off.pop_front() {
            return Some(event);
        }
        match self.events.within(within) {
            Ok(event) => Some(event),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(WatchEvent::Gone),
        }
    }

    /// Adds a record, and those that came with it: a flood is drawn once.
    fn add_all(&mut self, first: &Record) {
        self.add(first);
        while let Some(event) = self.events.next() {
            match event {
                WatchEvent::Record(record) => self.add(&record),
                other => {
                    self.put_off.push_back(other);
                    return;
                }
            }
        }
    }

    fn add(&mut self, record: &Record) {
        let is_shown = matches!(record.kind.as_ref(), "exchange" | "end" | "event" | "act");
        let own = self.session.is_none() || record.session.as_deref() == self.session.as_deref();
        if is_shown && own {
            self.view.add(record.seq, log::line(record));
        }
    }

    /// Says that records came faster than they are shown.
    fn miss(&mut self, count: u64) {
        let told = format!("{count} records are not shown: see `gateway log`");
        self.view.message = told;
    }

    fn draw(&mut self, screen: &Screen) {
        let (width, height) = Screen::size();
        screen.show(&self.view.lines(width, height));
    }

    /// Reads sessions and proposals.
    fn refresh(&mut self) -> Result<(), Failure> {
        let own = |id: &serde_json::Value| {
            let named = self.session.as_deref();
            named.is_none_or(|named| id.as_str() == Some(named))
        };
        let mut sessions = operate::sessions(&self.gateway)?;
        sessions.retain(|session| own(&session["id"]));
        let mut proposals = proposed::proposals(&self.gateway)?;
        proposals.retain(|one| one["state"] == "waiting" && own(&one["session"]));
        (self.view.sessions, self.view.proposals) = (sessions, proposals);
        Ok(())
    }

    fn press(&mut self, key: WatchKey) {
        if let Some(pending) = self.pending.take() {
            // The terminal may have become too small for it meanwhile.
            let (width, height) = Screen::size();
            let is_seen = self.view.is_seen(width, height);
            self.view.question = None;
            let yes = is_seen && matches!(key, WatchKey::Letter(b'y' | b'Y'));
            let done = match yes {
                true => self.confirmed(pending),
                false => Ok("nothing was changed".to_owned()),
            };
            return self.tell(done);
        }
        self.view.message.clear();
        let done = match key {
            WatchKey::Up | WatchKey::Letter(b'k') => {
                self.view.choose(false);
                return;
            }
            WatchKey::Down | WatchKey::Letter(b'j') => {
                self.view.choose(true);
                return;
            }
            WatchKey::Letter(b'a') => self.ask_to_allow(),
            WatchKey::Letter(b'd') => self.ask_to_deny(),
            WatchKey::Letter(b'p') => self.change("pause"),
            WatchKey::Letter(b'r') => self.change("resume"),
            WatchKey::Letter(b'e') => self.ask_to_end(),
            WatchKey::Letter(_) => return,
        };
        self.tell(done);
    }

    /// Shows what came of a key, and what it changed.
    fn tell(&mut self, done: Result<String, Failure>) {
        self.view.message = match done {
            Ok(done) => safe(&done),
            Err(failure) => {
                let why = failure.why.map(|why| format!(": {why}"));
                safe(&format!("{}{}", failure.what, why.unwrap_or_default()))
            }
        };
        // A gateway that does not answer is noticed by its stream.
        let _ = self.refresh();
    }

    /// Shows the rule for what is chosen, and asks.
    fn ask_to_allow(&mut self) -> Result<String, Failure> {
        let nothing = || Failure::new("choose a refusal or a proposal first");
        let item = self.view.chosen().ok_or_else(nothing)?;
        let asked = AllowRequest {
            exchange: Some(item.id).filter(|id| !id.is_empty()),
            ..AllowRequest::default()
        };
        let rule = allow::ask(&self.gateway, &asked)?;
        let mut lines: Vec<String> = rule.policy.lines().map(safe).collect();
        lines.push(format!(
            "Apply it, and keep it in {}? [y/N]",
            safe(&rule.file)
        ));
        let told = |denied: &String| format!("{} was refused before.", safe(denied));
        lines.splice(0..0, rule.denied.iter().map(told));
        let policy = Some(rule.policy);
        self.ask(lines, Pending::Apply(AllowRequest { policy, ..asked }))
    }

    fn ask_to_deny(&mut self) -> Result<String, Failure> {
        let item = self.view.chosen().filter(|item| item.is_proposal);
        let item = item.ok_or_else(|| Failure::new("choose a proposal first"))?;
        let session = &item.session;
        let line = format!("Refuse it for as long as session `{session}` lives? [y/N]");
        self.ask(vec![item.text, line], Pending::Deny(item.id))
    }

    fn ask_to_end(&mut self) -> Result<String, Failure> {
        let session = self.chosen_session()?;
        let line = format!("End session `{}` for good? [y/N]", safe(&session));
        self.ask(vec![line], Pending::End(session))
    }

    /// Asks, if all of the question can be seen. Keys of before are no answer.
    fn ask(&mut self, lines: Vec<String>, pending: Pending) -> Result<String, Failure> {
        self.view.question = Some(lines);
        let (width, height) = Screen::size();
        if !self.view.is_seen(width, height) {
            self.view.question = None;
            return Err(Failure::new("the terminal is too small for the rule"));
        }
        while let Some(event) = self.events.next() {
            if !matches!(event, WatchEvent::Key(_)) {
                self.put_off.push_back(event);
            }
        }
        self.put_off
            .retain(|event| !matches!(event, WatchEvent::Key(_)));
        self.pending = Some(pending);
        Ok(String::new())
    }

    fn confirmed(&self, pending: Pending) -> Result<String, Failure> {
        match pending {
            Pending::Apply(asked) => {
                let applied = allow::ask(&self.gateway, &asked)?;
                Ok(format!("applied as generation {}", applied.generation))
            }
            Pending::Deny(id) => {
                let content = json!({ "id": id });
                self.gateway.post("/v1/proposals/refuse", Some(&content))?;
                Ok("the proposal is refused".to_owned())
            }
            Pending::End(session) => self.change_session(&session, "end"),
        }
    }

    fn change(&self, act: &str) -> Result<String, Failure> {
        self.change_session(&self.chosen_session()?, act)
    }

    fn change_session(&self, session: &str, act: &str) -> Result<String, Failure> {
        let path = format!("/v1/sessions/{}/{act}", in_path(session));
        let changed = self.gateway.post(&path, None)?;
        let status = changed["status"].as_str().unwrap_or_default();
        Ok(format!("session `{session}` is {status}"))
    }

    /// The session of what is chosen, else the only one.
    fn chosen_session(&self) -> Result<String, Failure> {
        let of_item = self.view.chosen().map(|item| item.session);
        let ids = self
            .view
            .sessions
            .iter()
            .filter_map(|one| one["id"].as_str());
        let ids: Vec<&str> = ids.collect();
        match (of_item, ids.as_slice()) {
            (Some(session), _) if !session.is_empty() => Ok(session),
            (_, [only]) => Ok((*only).to_owned()),
            _ => Err(Failure::new("choose a line of the session first")),
        }
    }
}

const LOOKS_EVERY: Duration = Duration::from_secs(2);
const CONTROL_C: u8 = 3;
