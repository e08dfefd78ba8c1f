//! What `gateway watch` shows: sessions, proposals and records, as lines of a given width.

use std::collections::VecDeque;

use serde_json::Value;

use super::log::RecordLine;
use super::proposed::quoted;
use super::terminal::safe;
use super::terminal_text::folded;

/// What is shown, and which of it is chosen.
#[derive(Default)]
pub(super) struct WatchView {
    pub(super) gateway: String,
    pub(super) sessions: Vec<Value>,
    /// Those that wait.
    pub(super) proposals: Vec<Value>,
    records: VecDeque<WatchItem>,
    /// The chosen item, by what it is rather than by where: others come meanwhile.
    chosen: Option<String>,
    /// Where it was last: what is there is chosen when it has gone.
    chosen_at: usize,
    /// A question to the person: its lines, all of which must be seen.
    pub(super) question: Option<Vec<String>>,
    /// What came of the last key.
    pub(super) message: String,
    colours: bool,
}

/// One line that can be chosen.
#[derive(Clone)]
pub(super) struct WatchItem {
    key: String,
    /// The id of an exchange or a proposal.
    pub(super) id: String,
    pub(super) session: String,
    pub(super) is_proposal: bool,
    refused: bool,
    pub(super) text: String,
}

impl WatchView {
    /// A view of a gateway, without anything in it.
    pub(super) fn of(gateway: String, colours: bool) -> Self {
        Self {
            gateway,
            colours,
            ..Self::default()
        }
    }

    /// Adds a record as the latest. The oldest are forgotten.
    pub(super) fn add(&mut self, seq: u64, line: RecordLine) {
        let RecordLine {
            time,
            session,
            verdict,
            what,
            id,
            refused,
        } = line;
        self.records.push_front(WatchItem {
            key: format!("r{seq}"),
            text: format!("{time} {session:<12} {verdict:<9} {what}"),
            id,
            session,
            is_proposal: false,
            refused,
        });
        self.records.truncate(MOST_RECORDS);
    }

    fn items(&self) -> Vec<WatchItem> {
        let proposals = self.proposals.iter().take(MOST_PROPOSALS).map(proposed);
        proposals.chain(self.records.iter().cloned()).collect()
    }

    /// What is chosen, if it is still there.
    pub(super) fn chosen(&self) -> Option<WatchItem> {
        let key = self.chosen.as_deref()?;
        self.items().into_iter().find(|item| item.key == key)
    }

    /// Where the chosen item stands among these.
    fn place_of_chosen(&self, items: &[WatchItem]) -> Option<usize> {
        let chosen = self.chosen.as_ref()?;
        items.iter().position(|item| item.key == *chosen)
    }

    /// Chooses the item above or below; at first, the topmost.
    pub(super) fn choose(&mut self, down: bool) {
        let items = self.items();
        let at = self.place_of_chosen(&items);
        let last = items.len().saturating_sub(1);
        let next = match (at, down) {
            (None, _) => self.chosen_at.min(last),
            (Some(at), true) => (at + 1).min(last),
            (Some(at), false) => at.saturating_sub(1),
        };
        self.chosen = items.get(next).map(|item| item.key.clone());
        self.chosen_at = next;
    }

    /// The lines of the screen.
    pub(super) fn lines(&mut self, width: usize, height: usize) -> Vec<String> {
        let foot = self.foot(width);
        let mut lines = self.head(width);
        let room = height.saturating_sub(lines.len() + foot.len());
        let items = self.items();
        let at = self.place_of_chosen(&items);
        self.chosen_at = at.unwrap_or(self.chosen_at);
        let from = at.unwrap_or(0).saturating_sub(room.saturating_sub(1));
        let shown = items.iter().enumerate().skip(from).take(room);
        lines.extend(shown.map(|(n, item)| self.item(item, Some(n) == at, width)));
        lines.truncate(height.saturating_sub(foot.len()));
        lines.resize(height.saturating_sub(foot.len()), String::new());
        lines.extend(foot);
        lines
    }

    /// Whether all of the question can be seen.
    pub(super) fn is_seen(&self, width: usize, height: usize) -> bool {
        self.foot(width).len() <= height
    }

    fn head(&self, width: usize) -> Vec<String> {
        let waiting = self.proposals.len();
        let title = format!(
            "gateway {}  {} sessions, {waiting} proposals wait",
            self.gateway,
            self.sessions.len()
        );
        let mut lines = vec![self.paint("1", &cut(&title, width))];
        let sessions = self.sessions.iter().take(MOST_SESSIONS);
        lines.extend(sessions.map(|session| self.session(session, width)));
        lines.push(String::new());
        lines
    }

    fn session(&self, session: &Value, width: usize) -> String {
        let part = |name: &str| safe(session[name].as_str().unwrap_or_default());
        let (id, status) = (part("id"), part("status"));
        let (connections, exchanges) = (&session["connections"], &session["exchanges"]);
        let line = format!(
            "  {id:<16} {status:<7} {connections} connections, {exchanges} requests under way"
        );
        let code = if status == "active" { "32" } else { "33" };
        self.paint(code, &cut(&line, width))
    }

    fn item(&self, item: &WatchItem, chosen: bool, width: usize) -> String {
        let mark = if chosen { ">" } else { " " };
        let line = cut(&format!("{mark} {}", item.text), width);
        match (item.is_proposal, item.refused) {
            (true, _) => self.paint("33", &line),
            (false, true) => self.paint("31", &line),
            (false, false) => line,
        }
    }

    /// The question, or what came of the last key; and the keys.
    fn foot(&self, width: usize) -> Vec<String> {
        let Some(question) = &self.question else {
            let keys = self.paint("2", &cut(KEYS, width));
            return vec![cut(&self.message, width), keys];
        };
        let whole = question.iter().flat_map(|line| folded(line, width));
        whole.map(|line| self.paint("1", &line)).collect()
    }

    fn paint(&self, code: &str, text: &str) -> String {
        match self.colours {
            true => format!("\x1b[{code}m{text}\x1b[0m"),
            false => text.to_owned(),
        }
    }
}

fn proposed(one: &Value) -> WatchItem {
    let text = |name: &str| one[name].as_str().unwrap_or_default();
    let (id, session, wanted) = (
        safe(text("id")),
        safe(text("session")),
        safe(text("wanted")),
    );
    WatchItem {
        key: format!("p{id}"),
        text: format!("proposed {session:<12} {wanted}  {}", quoted(text("why"))),
        id,
        session,
        is_proposal: true,
        refused: false,
    }
}

/// The beginning of a line that is too long.
fn cut(line: &str, width: usize) -> String {
    let mut rows = folded(line, width);
    if rows.len() == 1 {
        return rows.remove(0);
    }
    match width.saturating_sub(1) {
        0 => "…".to_owned(),
        width => folded(line, width).remove(0) + "…",
    }
}

const KEYS: &str = "up/down choose  a allow  d deny  p pause  r resume  e end  q quit";
const MOST_RECORDS: usize = 500;
const MOST_PROPOSALS: usize = 8;
const MOST_SESSIONS: usize = 5;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record(what: &str) -> RecordLine {
        RecordLine {
            time: "12:00:00".to_owned(),
            session: "agent-1".to_owned(),
            verdict: "refused".to_owned(),
            what: what.to_owned(),
            id: "00".to_owned(),
            refused: true,
        }
    }

    #[test]
    fn each_line_fits_and_nothing_of_a_peer_steers_the_terminal() {
        let hostile = "\u{1b}[2J\n\u{202e}gateway: granted";
        let mut view = WatchView {
            sessions: vec![json!({"id": hostile, "status": "active"})],
            proposals: vec![json!({"id": "1", "wanted": hostile, "why": hostile})],
            ..WatchView::default()
        };
        view.add(1, record(&"x".repeat(500)));
        for (width, height) in [(80, 24), (20, 6), (1, 1), (0, 0)] {
            let lines = view.lines(width, height);
            assert!(lines.len() <= height.max(2), "{width} {height}");
            for line in &lines {
                assert!(line.chars().count() <= width.max(1), "{line}");
                assert!(!line.contains(['\u{1b}', '\n', '\u{202e}']), "{line}");
            }
        }
    }

    #[test]
    fn what_is_chosen_stays_chosen_while_others_come() {
        let mut view = WatchView::default();
        view.add(1, record("GET first.test"));
        view.choose(true);
        for seq in 2..600 {
            view.add(seq, record("GET flood.test"));
            if seq == 400 {
                assert!(view.chosen().unwrap().text.contains("first.test"));
            }
        }
        assert!(view.chosen().is_none());
    }

    #[test]
    fn when_what_is_chosen_has_gone_no_key_acts_on_another_and_its_neighbour_is_next() {
        let waits = |n: u8| json!({"id": n.to_string(), "wanted": format!("{n}.test")});
        let mut view = WatchView {
            proposals: (1..=4).map(waits).collect(),
            ..WatchView::default()
        };
        view.lines(80, 24);
        (0..3).for_each(|_| view.choose(true));
        assert_eq!(view.chosen().unwrap().id, "3");
        // Another comes above it, and then it is answered elsewhere.
        view.proposals.insert(0, waits(9));
        view.lines(80, 24);
        view.proposals.remove(3);
        view.lines(80, 24);
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
        assert!(view.is_seen(20, 7) && !view.is_seen(20, 6));
        assert_eq!(view.lines(20, 7).concat().matches('y').count(), 101);
    }
}
