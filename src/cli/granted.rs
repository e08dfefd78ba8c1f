//! The rules that a person granted for a folder or a configuration, as its file keeps them: each
//! below a comment that says since when, and until when if it ends by itself.

use std::ops::Range;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::policy::Source;

/// A rule that a person granted.
pub(super) struct RuleGrant {
    /// The rule, in Cedar.
    pub(super) rule: String,
    /// Since when; `None` if its file does not say.
    pub(super) since: Option<OffsetDateTime>,
    /// Until when, if it ends by itself.
    pub(super) until: Option<OffsetDateTime>,
    /// Where the rule stands in the text.
    place: Range<usize>,
    /// Where it stands with its comment.
    whole: Range<usize>,
}

impl RuleGrant {
    /// The grants of a file's text, in their order.
    pub(super) fn all(text: &str) -> Vec<Self> {
        let rules = Source::new("", text).rules();
        let mut all: Vec<Self> = rules.into_iter().map(|rule| Self::of(text, rule)).collect();
        all.sort_by_key(|one| one.place.start);
        all
    }

    /// Those of a text's grants that end by themselves.
    pub(super) fn all_ending(text: &str) -> Vec<Self> {
        match text.contains(UNTIL) {
            true => Self::all(text)
                .into_iter()
                .filter(|one| one.until.is_some())
                .collect(),
            false => Vec::new(),
        }
    }

    fn of(text: &str, (place, rule): (Range<usize>, String)) -> Self {
        let above = text[..place.start].trim_end();
        let line = above.rfind('\n').map_or(0, |end| end + 1);
        let told = above[line..].strip_prefix(MARK);
        let mut parts = told.into_iter().flat_map(|told| told.split(UNTIL));
        let at = |text: &str| OffsetDateTime::parse(text.trim(), &Rfc3339).ok();
        Self {
            rule,
            since: parts.next().and_then(at),
            // What cannot be read is over.
            until: parts
                .next()
                .map(|text| at(text).unwrap_or(OffsetDateTime::UNIX_EPOCH)),
            whole: if told.is_some() { line } else { place.start }..place.end,
            place,
        }
    }

    /// Whether it has ended by itself.
    pub(super) fn is_over(&self) -> bool {
        self.until
            .is_some_and(|until| until <= OffsetDateTime::now_utc())
    }

    /// The rule in a line: the method, the host with its port and path, and what it lends.
    pub(super) fn shown(&self) -> String {
        let after = |name: &str| {
            let (_, rest) = self.rule.split_once(name)?;
            rest.trim_start().strip_prefix('"')?.split('"').next()
        };
        let port = self
            .rule
            .split_once("context.port == ")
            .map(|(_, rest)| rest);
        let port = port.map(|rest| {
            rest.chars()
                .take_while(char::is_ascii_digit)
                .collect::<String>()
        });
        let host = after("Gateway::Host::").map(str::to_owned);
        let host = host.or_else(|| after("Gateway::Domain::").map(|domain| format!("*.{domain}")));
        let parts = [
            after("context.method ==").map(|method| format!("{method} ")),
            host,
            port.filter(|port| port != "443")
                .map(|port| format!(":{port}")),
            after("context.path ==")
                .or_else(|| after("context.path like"))
                .map(str::to_owned),
            after("Gateway::Credential::").map(|name| format!(", lends {name}")),
        ];
        parts.into_iter().flatten().collect()
    }
}

/// The text of a new file: whose rules they are.
pub(super) fn head(of: &str) -> String {
    format!("{HEAD}{OF}{of}\n")
}

/// Whose rules a file has, if it says so.
pub(super) fn folder(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix(OF))
}

/// Adds rules to a file's text. One that is there already stays for good if it does, else it ends
/// when it is granted to now.
pub(super) fn with(text: &str, rules: &str, until: Option<OffsetDateTime>) -> String {
    let mut text = text.to_owned();
    for added in RuleGrant::all(rules) {
        let known = RuleGrant::all(&text)
            .into_iter()
            .find(|one| one.rule == added.rule);
        match known {
            Some(known) if known.until.is_none() => continue,
            Some(known) => text = without(&text, &known),
            None => {}
        }
        let time = |at: OffsetDateTime| at.format(&Rfc3339).unwrap_or_default();
        let until = until
            .map(|at| format!("{UNTIL}{}", time(at)))
            .unwrap_or_default();
        let since = time(OffsetDateTime::now_utc());
        text.push_str(&format!("\n{MARK}{since}{until}\n{}\n", added.rule));
    }
    text
}

/// Removes a grant from the text that it was read from.
pub(super) fn without(text: &str, grant: &RuleGrant) -> String {
    let (before, after) = (&text[..grant.whole.start], &text[grant.whole.end..]);
    format!(
        "{}\n{}",
        before.trim_end(),
        after.strip_prefix('\n').unwrap_or(after)
    )
}

/// Removes from a text what has ended.
pub(super) fn pruned(text: &str) -> String {
    let ended = |text: &str| RuleGrant::all(text).into_iter().find(RuleGrant::is_over);
    let mut text = text.to_owned();
    while let Some(one) = ended(&text) {
        text = without(&text, &one);
    }
    text
}

/// Leaves out of a source what has ended. All else stays where it is.
pub(crate) fn leave_out_ended(source: &mut Source) {
    for ended in RuleGrant::all_ending(&source.text)
        .into_iter()
        .filter(RuleGrant::is_over)
    {
        source.leave_out(ended.place);
    }
}

const MARK: &str = "// granted ";
const UNTIL: &str = " until ";
const HEAD: &str =
    "// Rules that an operator granted with `gateway allow`. `gateway grants` lists them.\n";
const OF: &str = "// For ";

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str =
        "@id(\"a\")\npermit(principal, action, resource == Gateway::Host::\"a.test\");";
    const TWO: &str = "permit(principal, action, resource == Gateway::Host::\"b.test\") when { context.port == 80 };";

    #[test]
    fn what_was_added_is_read_ends_and_is_removed_alone() {
        let now = OffsetDateTime::now_utc();
        let text = with(&head("/p"), &format!("{ONE}\n{TWO}"), None);
        let text = with(&text, TWO, Some(now));
        let all = RuleGrant::all(&text);
        assert_eq!(folder(&text), Some("/p"));
        assert!(
            all.iter()
                .all(|one| one.since.is_some() && one.until.is_none()),
            "{text}"
        );
        assert_eq!(
            all.iter().map(RuleGrant::shown).collect::<Vec<_>>(),
            ["a.test", "b.test:80"]
        );
        let text = with(&without(&text, &all[1]), TWO, Some(now));
        let mut source = Source::new("x", &text);
        leave_out_ended(&mut source);
        assert_eq!(source.rules().len(), 1, "{text}");
        // Granted anew, for longer, it holds.
        let text = with(&text, TWO, Some(now + time::Duration::hours(1)));
        assert_eq!(
            RuleGrant::all(&text)
                .iter()
                .filter(|one| !one.is_over())
                .count(),
            2,
            "{text}"
        );
        let by_hand = RuleGrant::all(&format!("// mine\n{ONE}"));
        assert!(by_hand[0].since.is_none() && by_hand[0].until.is_none());
        let broken = RuleGrant::all(&format!("// granted x until y\n{ONE}"));
        assert!(broken[0].is_over());
    }
}
