//! The requests of a page, and the story of one.

use maud::{Markup, html};
use percent_encoding::percent_decode_str;

use crate::app::safe;
use crate::cli::console::feed::{Entry, Feed, SHOWN, Wanted};
use crate::cli::log::story::{StoryRow, WordsOf, line};
use crate::cli::operate::gateways::in_path;

/// Reads the fields of a form or of a query.
pub(super) fn fields(text: &str) -> impl Iterator<Item = (String, String)> {
    let decoded = |part: &str| {
        let part = part.replace('+', " ");
        percent_decode_str(&part).decode_utf8_lossy().into_owned()
    };
    let pairs = text.split('&').filter(|pair| !pair.is_empty());
    pairs.map(move |pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decoded(name), decoded(value))
    })
}

impl Wanted {
    /// Reads what a page asks for.
    pub(super) fn of(query: &str) -> Self {
        let mut wanted = Self::default();
        for (name, value) in fields(query) {
            let value = value.trim().to_owned();
            match &*name {
                "host" => wanted.host = value,
                "session" => wanted.session = value,
                "user" => wanted.user = value,
                "verdict" => wanted.verdict = value,
                "secret" => wanted.secret = value,
                "before" => wanted.before = value.parse().ok(),
                _ => {}
            }
        }
        wanted
    }

    /// Returns the link to older requests.
    fn older(&self, before: u64) -> String {
        let named = self.parts().into_iter();
        let named = named.filter(|(_, value)| !value.is_empty());
        let named = named.map(|(name, value)| format!("{name}={}&", in_path(value)));
        format!("/?{}before={before}#requests", named.collect::<String>())
    }

    fn parts(&self) -> [(&'static str, &str); 5] {
        [
            ("host", &self.host),
            ("session", &self.session),
            ("user", &self.user),
            ("secret", &self.secret),
            ("verdict", &self.verdict),
        ]
    }
}

/// Shows the requests, and what chooses among them.
pub(super) fn requests(feed: &Feed, wanted: &Wanted) -> Markup {
    let shown: Vec<&Entry> = feed.latest(wanted, 0).collect();
    let last = shown.last().filter(|_| shown.len() == SHOWN);
    let texts = wanted.parts().into_iter().take(4);
    html! {
        section #requests data-live[wanted.before.is_none()] {
            h2 { "Requests" }
            form #filter action="/" {
                @for (name, value) in texts {
                    label { (name) " " input name=(name) value=(value) autocomplete="off"; }
                }
                label { "verdict " select name="verdict" {
                    @for word in ["", "allowed", "refused", "cut", "event"] {
                        option value=(word) selected[wanted.verdict == word] {
                            (if word.is_empty() { "all" } else { word })
                        }
                    }
                } }
                button { "Show" }
            }
            ol #rows { (rows(shown.iter().copied())) }
            @if let Some(last) = last {
                p { a href=(wanted.older(last.number)) { "Older" } }
            }
            @if wanted.before.is_some() { p { a href="/" { "The latest" } } }
        }
    }
}

/// Shows a line for each entry.
pub(super) fn rows<'a>(entries: impl Iterator<Item = &'a Entry>) -> Markup {
    html! { @for entry in entries { (row(entry)) } }
}

fn row(entry: &Entry) -> Markup {
    let line = line(&entry.record);
    let verdict = entry.verdict();
    let is_operators = matches!(&*entry.record.kind, "act" | "signature");
    let is_story = entry.record.kind == "exchange" && !line.id.is_empty();
    let word = match verdict {
        "cut" => "cut".to_owned(),
        _ => line.verdict,
    };
    let whole = html! {
        time { (line.time) } " "
        span.who { (line.who) } " "
        b.verdict { (word) } " "
        @if is_operators { span { (cut(&line.what, LINE)) } }
        @else { (of_workload(&cut(&line.what, LINE))) }
        " " code { (line.told) }
    };
    html! {
        li id={ "r" (entry.number) } class=(verdict) {
            @if is_story { a data-item href={ "/why/" (line.id) } { (whole) } }
            @else { (whole) }
        }
    }
}

/// Shows the rows of a story, each with a mark of whose words it has.
pub(super) fn story(rows: &[StoryRow]) -> Markup {
    html! {
        dl.story {
            @for row in rows {
                dt { (row.name) }
                dd {
                    @if !row.verdict.is_empty() { b class={ "verdict " (row.verdict) } { (row.verdict) } }
                    @match row.words_of {
                        WordsOf::Workload => (of_workload(&cut(&row.text, WHOLE))),
                        WordsOf::Gateway => (cut(&row.text, WHOLE)),
                    }
                }
            }
        }
    }
}

/// Marks words of a workload: nothing of them is the gateway's, or a person's.
fn of_workload(text: &str) -> Markup {
    html! { bdi.workload title="words of the workload" { (text) } }
}

/// Returns the beginning of a text that is too long, and says how much of it is missing.
pub(super) fn cut(text: &str, most: usize) -> String {
    let end = text.floor_char_boundary(most);
    match text.len() - end {
        0 => text.to_owned(),
        more => format!("{}… ({more} more bytes)", &text[..end]),
    }
}

/// Returns a text of a document, to be shown.
pub(super) fn text(value: &serde_json::Value) -> String {
    cut(&safe(value.as_str().unwrap_or_default()), WHOLE)
}

/// How many bytes of a text a line has, and a story.
const LINE: usize = 300;
const WHOLE: usize = 6000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_read_and_a_filter_is_kept_in_the_link_to_older_requests() {
        let all: Vec<_> = fields("a=1+2&b=%26%3d&&c").collect();
        let all: Vec<(&str, &str)> = all.iter().map(|(a, b)| (&**a, &**b)).collect();
        assert_eq!(all, [("a", "1 2"), ("b", "&="), ("c", "")]);
        let wanted = Wanted::of("host=a%26b&verdict=refused&before=x&other=1");
        assert_eq!(wanted.before, None);
        assert_eq!(
            wanted.older(7),
            "/?host=a%26b&verdict=refused&before=7#requests"
        );
    }

    #[test]
    fn no_words_of_a_workload_are_markup_and_a_long_text_says_that_it_goes_on() {
        let hostile = format!("<script>\u{202e}\0{}", "é".repeat(40_000));
        let row = StoryRow::of_workload("request", safe(&hostile));
        let shown = story(&[row]).into_string();
        assert!(shown.contains("&lt;script&gt;\\u{202e}\\u{0}"), "{shown}");
        assert!(!shown.contains(['\u{202e}', '\0']) && !shown.contains("<script"));
        assert!(shown.len() < 7000 && shown.contains("more bytes)"));
        assert!(shown.contains("words of the workload"));
    }
}
