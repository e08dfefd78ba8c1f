//! The screen of `gateway watch`: sessions, proposals and records, details, and the keys.

use std::collections::{HashMap, VecDeque};

use ratatui::Frame;
use ratatui::crossterm::event::KeyCode;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{HighlightSpacing, List, ListState};
use serde_json::{Value, json};

use crate::app::terminal::text::folded;
use crate::app::{counted, safe};
use crate::audit::Record;
use crate::cli::log::story::{Story, StoryRow, line};
use crate::cli::proposals::{proposal_rows, quoted};
use crate::names::ReasonCode;

/// The content of the screen, and the chosen item.
#[derive(Default)]
pub(crate) struct WatchView {
    pub(crate) gateway: String,
    pub(crate) sessions: Vec<Value>,
    /// The waiting proposals.
    proposals: Vec<WatchItem>,
    records: VecDeque<WatchItem>,
    /// The key of the chosen item, not its position: others arrive meanwhile.
    chosen: Option<String>,
    /// Its last position. When it has gone, the item at that position is chosen.
    chosen_at: Option<usize>,
    pub(crate) pane: Pane,
    /// Only lines with this text are shown.
    pub(crate) filter: String,
    /// A question to the person: its lines, all of which must be seen.
    pub(crate) question: Option<Vec<String>>,
    /// The outcome of the last key.
    pub(crate) message: String,
    colours: bool,
}

/// The middle of the screen.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pane {
    #[default]
    List,
    /// The list, while a filter is typed.
    Filter,
    Details,
    Help,
}

/// One line that can be chosen.
pub(crate) struct WatchItem {
    key: String,
    /// The id of an exchange or a proposal.
    pub(crate) id: String,
    pub(crate) session: String,
    pub(crate) is_proposal: bool,
    pub(crate) refused: bool,
    pub(crate) text: String,
    /// Everything known of it, for a person.
    rows: Vec<StoryRow>,
    /// The full record or proposal.
    pub(crate) about: Value,
}

impl WatchItem {
    /// Whether it is a request that a policy asks about.
    pub(crate) fn is_asked(&self) -> bool {
        !self.about["ask"].is_null()
    }
}

impl WatchView {
    /// Creates an empty view of a gateway.
    pub(crate) fn of(gateway: String, colours: bool) -> Self {
        Self {
            gateway,
            colours,
            ..Self::default()
        }
    }

    /// Adds a record as the latest. Forgets the oldest, and the lookup of a host whose request was
    /// refused too.
    pub(crate) fn add(&mut self, record: &Record) {
        let about = json!(record);
        let line = line(record);
        let refused = line.refused;
        let is_twin = |one: &WatchItem| {
            one.about["reason"] == ReasonCode::DnsName.as_str()
                && ["session", "host"].map(|part| &one.about[part])
                    == ["session", "host"].map(|part| &about[part])
        };
        let key = format!("r{}", about["seq"]);
        while let Some(twin) = self.records.iter().position(|one| refused && is_twin(one)) {
            let twin = self.records.remove(twin);
            if self.chosen == twin.map(|twin| twin.key) {
                self.chosen = Some(key.clone());
            }
        }
        self.records.push_front(WatchItem {
            key,
            text: format!(
                "{} {:<12} {:<9} {}",
                line.time,
                line.who,
                line.verdict,
                line.whole()
            ),
            id: line.id,
            session: line.session,
            is_proposal: false,
            refused,
            rows: Story::of(record).rows(),
            about,
        });
        self.records.truncate(MOST_RECORDS);
    }

    /// Chooses the newest refusal, unless something was chosen before.
    pub(crate) fn begin(&mut self) {
        let at = self.items().iter().position(|item| item.refused);
        if let (None, Some(at)) = (self.chosen_at, at) {
            self.choose_at(at);
        }
    }

    /// Shows the waiting proposals, those of each session in turn.
    pub(crate) fn set_proposals(&mut self, all: Vec<Value>) {
        let mut counts = HashMap::<String, usize>::new();
        let mut all: Vec<(usize, WatchItem)> = (all.into_iter().map(proposed))
            .map(|item| {
                let count = counts.entry(item.session.clone()).or_default();
                *count += 1;
                (*count, item)
            })
            .collect();
        all.sort_by_key(|(nth, _)| *nth);
        self.proposals = all.into_iter().map(|(_, item)| item).collect();
    }

    fn items(&self) -> Vec<&WatchItem> {
        let filter = self.filter.to_lowercase();
        let is_wanted = |item: &&WatchItem| item.text.to_lowercase().contains(&filter);
        let all = self.proposals.iter().filter(is_wanted).take(MOST_PROPOSALS);
        all.chain(self.records.iter().filter(is_wanted)).collect()
    }

    /// Returns the chosen item, if it is still there.
    pub(crate) fn chosen(&self) -> Option<&WatchItem> {
        let at = self.place_of_chosen()?;
        Some(self.items()[at])
    }

    fn place_of_chosen(&self) -> Option<usize> {
        let key = self.chosen.as_deref()?;
        self.items().iter().position(|item| item.key == key)
    }

    fn choose_at(&mut self, at: usize) {
        self.chosen = self.items().get(at).map(|item| item.key.clone());
        self.chosen_at = Some(at);
    }

    /// Chooses the item above or below; at first, the topmost.
    pub(crate) fn choose(&mut self, down: bool) {
        let last = self.items().len().saturating_sub(1);
        self.choose_at(match (self.place_of_chosen(), down) {
            (None, _) => self.chosen_at.unwrap_or(0).min(last),
            (Some(at), true) => (at + 1).min(last),
            (Some(at), false) => at.saturating_sub(1),
        });
    }

    /// Handles a key that only changes the view. Returns whether it was one.
    pub(crate) fn press(&mut self, key: KeyCode) -> bool {
        match (self.pane, key) {
            (Pane::Filter, KeyCode::Char(letter)) => self.filter.push(letter),
            (Pane::Filter, KeyCode::Backspace) => drop(self.filter.pop()),
            (Pane::Filter | Pane::List, KeyCode::Esc) => {
                (self.pane, self.filter) = (Pane::List, String::new());
            }
            (_, KeyCode::Up | KeyCode::Char('k')) => self.choose(false),
            (_, KeyCode::Down | KeyCode::Char('j')) => self.choose(true),
            (Pane::List, KeyCode::Enter) => self.pane = Pane::Details,
            (_, KeyCode::Enter | KeyCode::Esc) | (Pane::Help, KeyCode::Char('?')) => {
                self.pane = Pane::List;
            }
            (_, KeyCode::Char('/')) => (self.pane, self.filter) = (Pane::Filter, String::new()),
            (_, KeyCode::Char('?')) => self.pane = Pane::Help,
            _ => return false,
        }
        self.message.clear();
        true
    }

    /// Draws the screen. A question gets its space first.
    pub(crate) fn draw(&mut self, frame: &mut Frame<'_>) {
        let (width, height) = (frame.area().width, frame.area().height);
        let foot = self.foot(width.into());
        let under = u16::try_from(foot.len()).unwrap_or(height).min(height);
        let mut head = self.head(width.into());
        head.truncate((height - under).into());
        let over = u16::try_from(head.len()).unwrap_or(0);
        let rows = [over, height - under - over, under].map(Constraint::Length);
        let [top, middle, bottom] = Layout::vertical(rows).areas(frame.area());
        frame.render_widget(Text::from(head), top);
        frame.render_widget(Text::from(foot), bottom);
        match self.pane {
            Pane::Help => frame.render_widget(Text::raw(HELP), middle),
            Pane::Details => frame.render_widget(self.details(width.into()), middle),
            Pane::List | Pane::Filter => self.draw_list(frame, middle),
        }
    }

    fn draw_list(&mut self, frame: &mut Frame<'_>, area: Rect) {
        let at = self.place_of_chosen();
        self.chosen_at = at.or(self.chosen_at);
        let room = usize::from(area.width).saturating_sub(MARK.len());
        let items = self.items();
        let rows = items.iter().map(|item| {
            let colour = match (item.is_proposal, item.refused) {
                (true, _) => Color::Yellow,
                (false, true) => Color::Red,
                (false, false) => Color::Reset,
            };
            self.painted(colour, cut(&item.text, room))
        });
        let list = List::new(rows)
            .highlight_symbol(MARK)
            .highlight_spacing(HighlightSpacing::Always);
        let mut state = ListState::default().with_selected(at);
        frame.render_stateful_widget(list, area, &mut state);
    }

    /// Returns the meaning of the chosen item's reason, and its full record.
    fn details(&self, width: usize) -> Text<'static> {
        let Some(item) = self.chosen() else {
            return Text::default();
        };
        let mut lines = Vec::new();
        if let Some(reason) = item.about["reason"].as_str().and_then(ReasonCode::named) {
            let host = item.about["host"].as_str().unwrap_or_default();
            let (meaning, next) = (reason.meaning(), reason.next_step_for(host, &item.id));
            lines.extend([meaning.to_owned(), next, String::new()]);
        }
        let rows = item.rows.iter();
        lines.extend(rows.map(|row| format!("{:<8} {}{}", row.name, row.verdict, row.text)));
        let rows = lines.iter().flat_map(|line| folded(&safe(line), width));
        Text::from_iter(rows)
    }

    /// Whether the whole question can be seen.
    pub(crate) fn is_seen(&self, (width, height): (u16, u16)) -> bool {
        self.foot(width.into()).len() <= height.into()
    }

    fn head(&self, width: usize) -> Vec<Line<'static>> {
        let (sessions, waiting) = (self.sessions.len() as u64, self.proposals.len() as u64);
        let gateway = &self.gateway;
        let sessions = counted(sessions, "session", "sessions");
        let proposals = counted(waiting, "proposal waits", "proposals wait");
        let title = format!("gateway {gateway}  {sessions}, {proposals}");
        let mut lines = vec![self.painted(BOLD, cut(&title, width))];
        let sessions = self.sessions.iter().take(MOST_SESSIONS);
        lines.extend(sessions.map(|session| self.session(session, width)));
        lines.push(Line::default());
        lines
    }

    fn session(&self, session: &Value, width: usize) -> Line<'static> {
        let part = |name: &str| safe(session[name].as_str().unwrap_or_default());
        let (id, status) = (part("id"), part("status"));
        let number = |name: &str| session[name].as_u64().unwrap_or_default();
        let connections = counted(number("connections"), "connection", "connections");
        let exchanges = counted(number("exchanges"), "request", "requests");
        let line = format!("  {id:<16} {status:<7} {connections}, {exchanges} under way");
        let colour = match &*status {
            "active" => Color::Green,
            _ => Color::Yellow,
        };
        self.painted(colour, cut(&line, width))
    }

    /// Returns the question, or the outcome of the last key; and the keys.
    fn foot(&self, width: usize) -> Vec<Line<'static>> {
        if let Some(question) = &self.question {
            let whole = question.iter().flat_map(|line| folded(line, width));
            return whole.map(|line| self.painted(BOLD, line)).collect();
        }
        let told = match (self.pane, &*self.filter) {
            (Pane::Filter, typed) => format!("/{}_", safe(typed)),
            (_, "") => self.message.clone(),
            (_, typed) => format!("/{}  {}", safe(typed), self.message),
        };
        let keys = self.painted(Color::DarkGray, cut(KEYS, width));
        vec![Line::raw(cut(&told, width)), keys]
    }

    fn painted(&self, style: impl Into<Style>, text: String) -> Line<'static> {
        let style = self.colours.then(|| style.into());
        Line::styled(text, style.unwrap_or_default())
    }
}

fn proposed(about: Value) -> WatchItem {
    let text = |name: &str| about[name].as_str().unwrap_or_default();
    let (id, session, wanted) = (
        safe(text("id")),
        safe(text("session")),
        safe(text("wanted")),
    );
    let word = if about["ask"].is_null() {
        "proposed"
    } else {
        "asks"
    };
    WatchItem {
        key: format!("p{id}"),
        text: format!("{word:<8} {session:<12} {wanted}  {}", quoted(text("why"))),
        id,
        session,
        is_proposal: true,
        refused: false,
        rows: proposal_rows(&about),
        about,
    }
}

/// Returns the beginning of a line that is too long.
fn cut(line: &str, width: usize) -> String {
    match folded(line, width).len() {
        1 => line.to_owned(),
        _ => folded(line, width.saturating_sub(1)).swap_remove(0) + "…",
    }
}

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const MARK: &str = "> ";
const KEYS: &str =
    "enter more  / filter  a allow  d deny  p pause  r resume  e end  ? help  q quit";
const HELP: &str = "\
up, down, k, j   choose a line; it stays chosen while others come
enter            all that is known of the line; enter again, or esc: the list
/                show only lines with a text: enter keeps it, esc takes it away
a                the rule that would allow what was refused, and a question
d                refuse the chosen proposal, after a question
p, r             pause or resume the session of the line, else the only one
e                end that session for good, after a question
?                this page
ctrl-z           stop, until `fg`
q, ctrl-c        leave";
const MOST_RECORDS: usize = 500;
const MOST_PROPOSALS: usize = 8;
const MOST_SESSIONS: usize = 5;

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    fn add(view: &mut WatchView, seq: u64, what: &str) {
        let record = json!({
            "kind": "exchange", "seq": seq, "host": what, "path": what, "session": "agent-1",
            "reason": "policy_default_deny",
        });
        view.add(&serde_json::from_value(record).unwrap());
    }

    fn shown(view: &mut WatchView, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| view.draw(frame)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn nothing_of_a_peer_steers_the_terminal_in_any_pane_and_size() {
        let hostile = "\u{1b}[2J\u{202e}gateway: granted";
        let mut view = WatchView {
            sessions: vec![json!({"id": hostile, "status": "active"})],
            ..WatchView::default()
        };
        view.set_proposals(vec![json!({"id": "1", "wanted": hostile, "why": hostile})]);
        add(&mut view, 1, hostile);
        view.choose(true);
        for pane in [Pane::List, Pane::Details, Pane::Filter, Pane::Help] {
            view.pane = pane;
            for (width, height) in [(80, 24), (20, 6), (1, 1)] {
                let screen = shown(&mut view, width, height);
                assert!(!screen.contains(['\u{1b}', '\u{202e}']), "{screen}");
            }
        }
    }

    #[test]
    fn the_newest_refusal_is_chosen_first_and_stays_chosen_while_others_come() {
        let mut view = WatchView::default();
        add(&mut view, 0, "GET older.test");
        add(&mut view, 1, "GET first.test");
        view.begin();
        for seq in 2..600 {
            add(&mut view, seq, "GET flood.test");
            view.begin();
            if seq == 400 {
                assert!(view.chosen().unwrap().text.contains("first.test"));
            }
        }
        assert!(view.chosen().is_none());
    }

    #[test]
    fn when_what_is_chosen_has_gone_no_key_acts_on_another_and_its_neighbour_is_next() {
        let set = |view: &mut WatchView, all: &[u8]| {
            let waits = |n: &u8| json!({"id": n.to_string(), "wanted": format!("{n}.test")});
            view.set_proposals(all.iter().map(waits).collect());
            shown(view, 80, 24);
        };
        let mut view = WatchView::default();
        set(&mut view, &[1, 2, 3, 4]);
        (0..3).for_each(|_| view.choose(true));
        assert_eq!(view.chosen().unwrap().id, "3");
        // Another comes above it, and then it is answered elsewhere.
        set(&mut view, &[9, 1, 2, 3, 4]);
        set(&mut view, &[9, 1, 2, 4]);
        assert!(view.chosen().is_none());
        view.choose(true);
        assert_eq!(view.chosen().unwrap().id, "4");
    }

    #[test]
    fn a_question_is_seen_whole_or_not_asked() {
        let mut view = WatchView {
            question: Some(vec!["y".repeat(100), "apply?".to_owned()]),
            ..WatchView::default()
        };
        assert_eq!(cut("漢字かな", 5), "漢字…");
        assert!(view.is_seen((20, 7)) && !view.is_seen((20, 6)));
        assert_eq!(shown(&mut view, 20, 7).matches('y').count(), 101);
    }
}
