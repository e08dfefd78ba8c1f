//! Explains a verdict, and what to do about a denial.

use std::collections::BTreeSet;
use std::fmt;

use gateway_names::{CredentialName, PolicyId};

use super::fault::FactFault;
use super::generate;
use super::generation::Generation;
use super::question::{Facts, LendQuestion};
use super::rule::Rule;
use super::rule_set::Question;
use super::schema::Actions;
use super::verdict::{Outcome, Verdict};

/// A verdict in words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explanation {
    /// Which policies decided, or why none did, in one or two sentences.
    pub reason: String,
    /// What the operator can do next to allow it.
    pub next_step: String,
    /// A policy to paste that permits exactly this, if a permit would help.
    pub proposal: Option<String>,
}

/// Shows the reason and the next step, but not the proposal.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)?;
        match self.next_step.as_str() {
            "" => Ok(()),
            next_step => write!(f, "; {next_step}"),
        }
    }
}

impl Generation {
    /// Explains the answer to [`Self::ask`].
    pub fn explain(&self, facts: &Facts<'_>, verdict: &Verdict) -> Explanation {
        self.explained(facts, None, verdict)
    }

    /// Explains the answer to [`Self::lend`].
    pub fn explain_use(
        &self,
        facts: &Facts<'_>,
        credential: &CredentialName,
        place: &str,
        verdict: &Verdict,
    ) -> Explanation {
        self.explained(facts, Some(LendQuestion { credential, place }), verdict)
    }

    fn explained(
        &self,
        facts: &Facts<'_>,
        lend: Option<LendQuestion<'_>>,
        verdict: &Verdict,
    ) -> Explanation {
        let policies = listed(verdict.policies.iter().map(PolicyId::as_str));
        let is_unpermitted = verdict.outcome == Outcome::Unpermitted;
        // A rule for the request would permit every content.
        let by_content = is_unpermitted
            && self
                .by_content(facts.into(), lend)
                .iter()
                .any(|rule| rule.permits);
        let (reason, next_step) = match verdict.outcome {
            Outcome::Allowed => (format!("{policies} allows this"), String::new()),
            Outcome::Asked => asks(verdict),
            Outcome::Budgeted => budgeted(verdict),
            Outcome::Forbidden => forbidden(verdict, &policies),
            Outcome::PolicyError => self.failed(facts, verdict, &policies),
            Outcome::Unjudged(FactFault::ContentUnread) => (
                format!("{policies} reads the content of the request, which is not known here"),
                BY_CONTENT.to_owned(),
            ),
            Outcome::Unjudged(fault) => (
                format!("the request cannot be judged: {fault}"),
                "change the request".to_owned(),
            ),
            Outcome::Unpermitted if by_content => {
                (self.nearest(facts, lend), BY_CONTENT.to_owned())
            }
            Outcome::Unpermitted => (
                self.nearest(facts, lend),
                "if this is wanted, add the proposed policy, which permits exactly this".to_owned(),
            ),
        };
        let is_proposed = is_unpermitted && !by_content;
        let proposal = is_proposed.then(|| generate::exactly(facts, lend));
        Explanation {
            reason,
            next_step,
            proposal,
        }
    }

    /// Returns why policies failed: a fact of the content is missing, or the policies are faulty.
    fn failed(&self, facts: &Facts<'_>, verdict: &Verdict, policies: &str) -> (String, String) {
        let failed = verdict.policies.iter();
        let failed = failed.filter_map(|id| self.rules.iter().find(|rule| rule.id == *id));
        let read = failed.flat_map(|rule| &rule.reads.content);
        let missing: BTreeSet<&str> = read
            .filter(|name| facts.content.is_none_or(|content| !content.has(name)))
            .map(String::as_str)
            .collect();
        if missing.is_empty() {
            return (
                format!("{policies} failed to evaluate, and an error denies"),
                "repair it: arithmetic on a request's numbers may overflow".to_owned(),
            );
        }
        let why = |name: &&str| facts.content.and_then(|content| content.unread(name));
        let whys: BTreeSet<_> = missing.iter().filter_map(why).collect();
        let missing: Vec<String> = missing.iter().map(|name| format!("`{name}`")).collect();
        let missing = missing.join(", ");
        if !whys.is_empty() {
            let whys = Vec::from_iter(whys).join("; ");
            return (
                format!("{policies} reads {missing}, and the request does not say it: {whys}"),
                "send it in the form that docs/policy.md has".to_owned(),
            );
        }
        (
            format!(
                "{policies} reads {missing} of the content, which does not say it in exactly one way"
            ),
            "send it once, with the type that `[[fact]]` declares, as one JSON document or form in UTF-8".to_owned(),
        )
    }

    /// Returns why no policy permits it: an unmet condition, another method, or no matching policy.
    fn nearest(&self, facts: &Facts<'_>, lend: Option<LendQuestion<'_>>) -> String {
        let question = Question::new(facts, lend);
        let (action, target) = (question.action(), question.target());
        let wanted = match (lend, facts.signs) {
            (Some(lend), _) => format!("lending `{}` to `{}`", lend.credential, facts.host),
            (_, Some(signs)) => format!("signing with `{}`", signs.key),
            _ => format!("{} on `{}`", shown(facts.method), facts.host),
        };
        let mut permits: Vec<&Rule> = Vec::new();
        self.index.reaching(facts.principal(), target, |nth| {
            let rule = &self.rules[nth as usize];
            if rule.permits && permits.len() < MOST_LOOKED_AT {
                permits.push(rule);
            }
        });
        let unmet: Vec<&str> = permits
            .iter()
            .filter(|rule| rule.actions.holds(action))
            .map(|rule| rule.id.as_str())
            .collect();
        if !unmet.is_empty() {
            return format!(
                "{} covers {wanted}, but its conditions do not hold for this request",
                listed(unmet)
            );
        }
        let is_request = lend.is_none() && facts.signs.is_none();
        let asks = |rule: &&&Rule| is_request && !rule.actions.and(Actions::ANY).is_empty();
        let others: Vec<&&Rule> = permits.iter().filter(asks).collect();
        if others.is_empty() {
            let session = facts.session.as_str();
            let user = facts
                .user
                .map(|user| user.as_str())
                .filter(|user| *user != session);
            let user = user.map(|user| format!(" of user `{user}`"));
            let whom = format!("session `{session}`{}", user.unwrap_or_default());
            return format!("no policy permits {wanted} to {whom}");
        }
        let methods = Actions::union(others.iter().map(|rule| rule.actions.and(Actions::ANY)));
        format!(
            "no policy permits {wanted}; {} covers {} there",
            listed(others.iter().map(|rule| rule.id.as_str())),
            methods.names().collect::<Vec<_>>().join(", ")
        )
    }
}

/// Returns what a person is asked, and by which policies.
fn asks(verdict: &Verdict) -> (String, String) {
    let asks = || verdict.obligations.iter().flat_map(|all| &all.asks);
    let questions: Vec<_> = asks().map(|ask| format!("\"{}\"", ask.question)).collect();
    let policies = listed(asks().map(|ask| ask.policy.as_str()));
    let questions = questions.join(" ");
    (
        format!("{policies} asks a person: {questions}"),
        "a person allows one such request at a time, with `gateway allow ID` or in `gateway watch`"
            .to_owned(),
    )
}

/// Returns by which budgets it goes on.
fn budgeted(verdict: &Verdict) -> (String, String) {
    let budgets = || verdict.obligations.iter().flat_map(|all| &all.budgets);
    let policies = listed(budgets().map(|one| one.policy.as_str()));
    let names = listed(budgets().map(|one| &*one.budget));
    (
        format!("{policies} allows this while the budget {names} lasts"),
        "`gateway budgets` shows what is left of each".to_owned(),
    )
}

/// Returns why policies forbid it. A rule of a preset names the exempt group.
fn forbidden(verdict: &Verdict, policies: &str) -> (String, String) {
    let lifting: Option<Vec<_>> = verdict.policies.iter().map(generate::lifting).collect();
    let Some((group, why)) = lifting.and_then(|groups| groups.into_iter().next()) else {
        return (
            format!("{policies} forbids this"),
            "a forbid overrides every permit: narrow it, or remove it".to_owned(),
        );
    };
    (
        format!("{policies} forbids this: {why}, which a run with `--group {group}` may"),
        format!("start the run with `--group {group}`, or name it in `groups`"),
    )
}

/// The next step when the content of a request decides.
const BY_CONTENT: &str =
    "send other content, or change that policy: a rule without it would permit every content";

/// Returns a method, shortened for a refusal: a method token may have any length.
fn shown(method: &str) -> String {
    let short: String = method.chars().take(20).collect();
    let more = if short.len() < method.len() {
        "…"
    } else {
        ""
    };
    format!("`{}{more}`", short.escape_debug())
}

/// Returns up to three names, and how many more there are.
fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    let mut text = if names.len() == 1 {
        "policy "
    } else {
        "one of the policies "
    }
    .to_owned();
    for (nth, name) in names.iter().take(3).enumerate() {
        let separator = if nth > 0 { ", " } else { "" };
        text.push_str(&format!("{separator}`{name}`"));
    }
    if names.len() > 3 {
        text.push_str(&format!(" and {} more", names.len() - 3));
    }
    text
}

/// Clients decide when refusals are explained, so the search for near misses is bounded.
const MOST_LOOKED_AT: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generation::tests::{BEARER, owned, policies};
    use crate::question::OwnedFacts;

    fn explained(text: &str, request: &OwnedFacts) -> Explanation {
        let generation = policies(text).current();
        let verdict = generation.ask(&request.facts());
        generation.explain(&request.facts(), &verdict)
    }

    #[test]
    fn a_default_denial_names_the_nearest_permit() {
        let reads = r#"@id("reads") permit(principal, action in Gateway::Action::"read",
            resource == Gateway::Host::"api.github.com") when { context.port == 443 };"#;
        let posts = OwnedFacts {
            method: "POST".into(),
            ..owned()
        };
        assert_eq!(
            explained(reads, &posts).reason,
            "no policy permits `POST` on `api.github.com`; policy `reads` covers GET, HEAD, OPTIONS there"
        );
        let elsewhere = OwnedFacts {
            port: 22,
            ..owned()
        };
        assert_eq!(
            explained(reads, &elsewhere).reason,
            "policy `reads` covers `GET` on `api.github.com`, but its conditions do not hold for this request"
        );
        let other = OwnedFacts {
            host: "x.example".parse().unwrap(),
            ..owned()
        };
        assert_eq!(
            explained(reads, &other).reason,
            "no policy permits `GET` on `x.example` to session `s1`"
        );
    }

    #[test]
    fn a_proposal_turns_a_default_denial_into_an_allowance() {
        let request = OwnedFacts {
            method: "PROPFIND".into(),
            ..owned()
        };
        let proposal = explained("", &request).proposal.unwrap();
        assert!(
            policies(&proposal)
                .current()
                .ask(&request.facts())
                .allowed()
        );
        let generation = policies("").current();
        let (facts, github) = (request.facts(), CredentialName::new("github").unwrap());
        let verdict = generation.lend(&facts, &github, BEARER);
        let proposal = generation
            .explain_use(&facts, &github, BEARER, &verdict)
            .proposal
            .unwrap();
        let proposed = policies(&proposal).current();
        assert!(proposed.lend(&facts, &github, BEARER).allowed());
        assert!(!proposed.lend(&facts, &github, "cookie:sid").allowed());
    }

    #[test]
    fn a_forbid_is_named_and_no_permit_is_proposed() {
        let text = r#"@id("never") forbid(principal, action, resource); permit(principal, action, resource);"#;
        let explanation = explained(text, &owned());
        assert_eq!(explanation.reason, "policy `never` forbids this");
        assert_eq!(explanation.proposal, None);
    }
}
