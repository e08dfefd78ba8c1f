//! The facts by which a request was judged. They are kept while the request is in progress, so that
//! new policies can judge it again.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock, OnceLock};

use gateway_audit::Text;
use gateway_intercept::{Caller, HeldToken, PrefixId, Request, TokenDenied, TokenLimit, TokenUse};
use gateway_message::{named_paths, names_path};
use gateway_names::{CredentialName, PolicyId, User};
use gateway_session::{Bindings, DetectedCredentials, Revocation, Session};
use http::HeaderMap;

use super::applicable::{ApplicableRules, AskedFacts};
use super::content::ContentFacts;
use super::fact::{Fact, OF_FIELDS, bits};
use super::fault::FactFault;
use super::generation::Generation;
use super::question::{Facts, KeptFacts, LendQuestion, Standing};
use super::schema::Action;
use super::verdict::{Obligations, Outcome, Verdict};

/// Everything policies can read from one request.
///
/// Fields are kept only if one names a path, or if a rule read them when the request was first
/// judged: they alone keep the client's read buffer in memory.
pub struct JudgedRequest {
    kept: KeptFacts,
    /// The rules that can apply in the generation that judged it first.
    rules: Option<Arc<ApplicableRules>>,
    decided: OnceLock<Box<KeptOfDecision>>,
}

/// What is kept of the decision, where anything is.
struct KeptOfDecision {
    fields: Option<HeaderMap>,
    /// What is met before the request is sent.
    obligations: Option<Arc<Obligations>>,
}

static NONE: LazyLock<HeaderMap> = LazyLock::new(HeaderMap::new);

/// A question that was answered with a denial.
pub(super) struct RefusedQuestion {
    pub(super) verdict: Verdict,
    /// The index of the credential in question. `None` for the request itself.
    pub(super) credential: Option<usize>,
}

impl RefusedQuestion {
    /// Whether the verdict depends on content that has not been read.
    pub(super) fn is_for_content(&self) -> bool {
        self.verdict.outcome == Outcome::Unjudged(FactFault::ContentUnread)
    }
}

impl JudgedRequest {
    pub(super) fn new(
        request: &Request,
        session: Arc<Session>,
        rules: Arc<ApplicableRules>,
        presented: &DetectedCredentials,
    ) -> Self {
        Self {
            kept: KeptFacts::new(request, session, presented),
            rules: Some(rules),
            decided: OnceLock::new(),
        }
    }

    /// Keeps the obligations, and the fields, if one names a path, or if rules of
    /// `generation` that can apply to the request read any field.
    pub(super) fn keep(
        &self,
        generation: &Generation,
        fields: &HeaderMap,
        obligations: Option<Arc<Obligations>>,
    ) {
        let is_read = names_path(fields) || self.is_read_by(generation, &OF_FIELDS);
        if is_read || obligations.is_some() {
            let kept = KeptOfDecision {
                fields: is_read.then(|| fields.clone()),
                obligations,
            };
            self.decided.get_or_init(|| Box::new(kept));
        }
    }

    /// Adds the credentials that were found in the request's content.
    pub(super) fn present(&mut self, presented: &DetectedCredentials) {
        self.kept.present(presented);
    }

    /// Keeps the facts read from the content.
    pub(super) fn keep_content(&self, content: ContentFacts) {
        self.kept.content.get_or_init(|| content);
    }

    /// Returns the session that the request belongs to.
    pub fn session(&self) -> &Arc<Session> {
        &self.kept.session
    }

    /// Returns the credentials that the request is lent.
    pub fn credentials(&self) -> &Arc<[CredentialName]> {
        &self.kept.credentials
    }

    /// Returns the revocations of its credentials. Connections for the request register there.
    pub fn revocations(&self) -> &[Arc<Revocation>] {
        &self.kept.revocations
    }

    /// Whether a credential that the request is lent is revoked.
    pub fn is_revoked(&self) -> bool {
        self.revocations().iter().any(|one| one.is_revoked())
    }

    /// Whether the request is lent a credential.
    pub fn lends(&self) -> bool {
        !self.revocations().is_empty()
    }

    /// Whether a credential that it is lent is revoked, and its workload is not to know.
    pub fn is_quiet(&self) -> bool {
        self.revocations().iter().any(|one| one.is_quiet())
    }

    /// Returns the fields that were kept.
    pub(super) fn kept_fields(&self) -> &HeaderMap {
        let decided = self.decided.get();
        let fields = decided.and_then(|decided| decided.fields.as_ref());
        fields.unwrap_or(&NONE)
    }

    /// Returns the policies of another generation that allow the request with its credentials;
    /// `None` if they deny it, oblige it to more, or read a part of it that was not kept.
    pub(super) fn still_allowed_by(&self, generation: &Generation) -> Option<Arc<[PolicyId]>> {
        let has_fields = self.decided.get().is_some_and(|kept| kept.fields.is_some());
        let is_unkept = !has_fields && self.is_read_by(generation, &OF_FIELDS);
        let verdict = || generation.judge_request(self, self.kept_fields()).ok();
        let verdict = (!is_unkept).then(verdict)??;
        let met = |all: &Arc<Obligations>| self.obligations().is_some_and(|own| own.include(all));
        let are_met = verdict.obligations.as_ref().is_none_or(met);
        are_met.then_some(verdict.policies)
    }

    /// Whether it may be sent once only.
    pub fn is_for_once(&self) -> bool {
        self.obligations().is_some_and(|all| all.are_for_once())
    }

    /// Returns what the token of its caller may use up, or be used for.
    pub(super) fn token_limits(&self) -> Vec<(PrefixId, TokenLimit)> {
        let Some(token) = self.caller().and_then(|caller| caller.token.as_ref()) else {
            return Vec::new();
        };
        let limits = token.limits();
        limits.map(|(id, limit)| (id, limit.clone())).collect()
    }

    /// Whether one of these counts what its content asks for.
    pub(super) fn is_counted_by_content(&self) -> bool {
        let counts = |limit: &TokenLimit| match limit {
            TokenLimit::Budget(unit, ..) => unit.is_of_models(),
            TokenLimit::Request(_) => true,
            TokenLimit::Once => false,
        };
        let token = self.caller().and_then(|caller| caller.token.as_ref());
        token.is_some_and(|token| token.limits().any(|(_, limit)| counts(limit)))
    }

    /// Returns what is met before it is sent, if there is anything.
    pub fn obligations(&self) -> Option<&Arc<Obligations>> {
        self.decided.get()?.obligations.as_ref()
    }

    /// Checks that its caller's token allows what these policies allow.
    pub(super) fn allowed_by(
        &self,
        token: &HeldToken,
        policies: &[PolicyId],
        fields: &HeaderMap,
    ) -> Result<(), TokenDenied> {
        let kept = &self.kept;
        let named: Vec<_> = named_paths(fields, kept.origin.parts()).collect();
        token.allows(|now| TokenUse {
            host: &kept.origin.authority.host,
            port: kept.origin.authority.port,
            method: &kept.method,
            path: kept.target.path(),
            named: &named,
            is_batch: kept.batch,
            credentials: kept.credentials.iter(),
            policies: policies.iter(),
            now,
        })
    }

    /// Whether these bindings also allow each of its credentials, in the same places.
    pub(super) fn is_bound_by(&self, bindings: &Bindings, fields: &HeaderMap) -> bool {
        self.credential_uses().all(|(credential, place)| {
            bindings.still_lends(
                &self.kept.origin,
                &self.kept.method,
                (self.kept.target.path(), fields),
                (credential, place),
            )
        })
    }

    /// Returns the credential uses that policy judges: each credential, with the place where it
    /// would appear.
    pub(super) fn credential_uses(&self) -> impl Iterator<Item = (&CredentialName, &str)> {
        let places = self.kept.places.iter().map(Text::as_str);
        self.kept.credentials.iter().zip(places)
    }

    /// Whether a rule that can apply to the request, or to one of its credentials, reads any of
    /// these facts.
    fn is_read_by(&self, generation: &Generation, wanted: &[Fact]) -> bool {
        if !generation.reads_any(wanted) {
            return false;
        }
        let rules = self.rules.as_ref().filter(|rules| {
            // Of a batch, every method is asked about.
            rules.generation == generation.number() && !self.kept.batch
        });
        let action = (Action::of_method(self.kept.method.as_str()), None);
        let lends = self.kept.credentials.iter();
        let lends = lends.map(|credential| (Action::Lend, Some(credential)));
        let known = rules.and_then(|rules| rules.bits(std::iter::once(action).chain(lends)));
        if let Some(known) = known {
            return known & bits(wanted) != 0;
        }
        let standing = self.standing(generation);
        let facts = self.facts(&standing, &NONE);
        let mut credential_uses = self.credential_uses();
        let asked = self.asked(&facts);
        generation.reads(asked, None, wanted)
            || credential_uses.any(|(credential, place)| {
                generation.reads(asked, Some(LendQuestion { credential, place }), wanted)
            })
    }

    /// Returns the user of its caller.
    pub fn user(&self) -> Option<&User> {
        self.caller()?.user.as_ref()
    }

    /// Returns the facts that were read from the content, each with its value, for a person.
    pub fn content_facts(&self) -> Vec<String> {
        self.kept
            .content
            .get()
            .map_or_else(Vec::new, ContentFacts::shown)
    }

    /// Returns the caller of its connection.
    pub fn caller(&self) -> Option<&Caller> {
        self.rules.as_ref()?.caller.as_deref()
    }

    /// Returns the groups of its session and its caller in a generation, and the session's labels.
    pub(super) fn standing(&self, generation: &Generation) -> Standing {
        let number = generation.number();
        let groups = match &self.rules {
            Some(rules) if rules.generation == number => rules.groups.clone(),
            _ => Caller::with_groups(self.caller(), self.kept.session.groups(number)),
        };
        let labels = self.kept.session.labels();
        Standing { groups, labels }
    }

    fn asked<'a>(&'a self, facts: &'a Facts<'a>) -> AskedFacts<'a> {
        let rules = self.rules.as_deref();
        AskedFacts { facts, rules }
    }

    pub(super) fn facts<'a>(&'a self, of: &'a Standing, fields: &'a HeaderMap) -> Facts<'a> {
        let user = self.caller().and_then(|caller| caller.user.as_ref());
        self.kept.facts((user, of), fields)
    }
}

impl Generation {
    /// Returns the verdict on a request by its head, if its content may be needed: because it is
    /// searched, or because a policy that can apply reads it.
    pub(super) fn asks_for_content(
        &self,
        judged: &JudgedRequest,
        is_searched: bool,
        fields: &HeaderMap,
    ) -> Option<Result<Verdict, RefusedQuestion>> {
        let is_asked = is_searched || judged.is_read_by(self, &[Fact::Content]);
        is_asked.then(|| self.judge_request(judged, fields))
    }

    /// Returns the names of the facts of content that were read to judge a request. For a refused
    /// request, only those read up to the refusal.
    pub(super) fn facts_read(
        &self,
        judged: &JudgedRequest,
        fields: &HeaderMap,
        refused: Option<&RefusedQuestion>,
    ) -> Vec<String> {
        if !self.reads_any(&[Fact::Content]) {
            return Vec::new();
        }
        let standing = judged.standing(self);
        let facts = judged.facts(&standing, fields);
        let credential_uses = judged.credential_uses();
        let credential_uses =
            credential_uses.map(|(credential, place)| Some(LendQuestion { credential, place }));
        let asked = match refused.map(|refused| refused.credential) {
            None => usize::MAX,
            Some(None) => 1,
            Some(Some(nth)) => nth + 2,
        };
        let questions = std::iter::once(None).chain(credential_uses).take(asked);
        let names = questions.flat_map(|lend| self.content_read(judged.asked(&facts), lend));
        let names: BTreeSet<&str> = names.collect();
        names.into_iter().map(str::to_owned).collect()
    }

    /// Judges whether the request may be sent, and whether each of its credentials may be lent to
    /// it, if the verdict's obligations are met.
    pub(super) fn judge_request(
        &self,
        judged: &JudgedRequest,
        fields: &HeaderMap,
    ) -> Result<Verdict, RefusedQuestion> {
        let standing = judged.standing(self);
        let facts = judged.facts(&standing, fields);
        let known = judged.asked(&facts);
        let mut asked = self.judge(known, None);
        if !asked.may_be_lifted() {
            return Err(RefusedQuestion {
                verdict: asked,
                credential: None,
            });
        }
        for (nth, (credential, place)) in judged.credential_uses().enumerate() {
            let lent = self.judge(known, Some(LendQuestion { credential, place }));
            if !lent.may_be_lifted() {
                return Err(RefusedQuestion {
                    verdict: lent,
                    credential: Some(nth),
                });
            }
            asked.join(lent);
        }
        Ok(asked)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::generation::tests::policies;
    use crate::question::tests::kept;

    fn judged(path: &str) -> JudgedRequest {
        judged_of(kept(path))
    }

    pub(crate) fn judged_of(kept: KeptFacts) -> JudgedRequest {
        JudgedRequest {
            kept,
            rules: None,
            decided: OnceLock::new(),
        }
    }

    const ASK: &str = "permit(principal, action in Gateway::Action::\"any\", resource);";
    const LEND: &str = "permit(principal, action == Gateway::Action::\"lend\", resource);";

    fn allows(text: &str, judged: &JudgedRequest) -> bool {
        judged.still_allowed_by(&policies(text).current()).is_some()
    }

    #[test]
    fn request_and_loans_are_judged_again() {
        let one = judged("/repos/one");
        assert!(allows(&format!("{ASK}{LEND}"), &one));
        assert!(!allows(LEND, &one), "the request itself is not allowed");
        assert!(!allows(ASK, &one), "the loan is not allowed");
        let narrow = format!("{LEND}{ASK}").replace(
            "resource);permit",
            "resource);forbid(principal, action, resource) when { context has path && context.path == \"/repos/two\" };permit",
        );
        assert!(allows(&narrow, &one) && !allows(&narrow, &judged("/repos/two")));
    }

    #[test]
    fn rules_that_read_fields_which_were_not_kept_do_not_allow() {
        let reads = "forbid(principal, action, resource) when { context.fields.any.contains(\"x-role: admin\") };";
        let one = judged("/");
        assert!(!allows(&format!("{ASK}{LEND}{reads}"), &one));
        let fields = HeaderMap::new();
        let generation = policies(&format!("{ASK}{LEND}{reads}")).current();
        one.keep(&generation, &fields, None);
        assert!(one.decided.get().is_some() && one.still_allowed_by(&generation).is_some());
        let other = judged("/");
        other.keep(&policies(&format!("{ASK}{LEND}")).current(), &fields, None);
        assert!(other.decided.get().is_none());
    }

    #[test]
    fn a_request_whose_content_was_not_read_is_judged_by_its_head() {
        let reads = "forbid(principal, action, resource) when { context.path == \"/pay\" && context.content.amount > 5 };";
        let mut one = judged("/pay");
        one.kept.content = OnceLock::new();
        assert!(!allows(&format!("{ASK}{LEND}{reads}"), &one));
        let mut other = judged("/");
        other.kept.content = OnceLock::new();
        assert!(allows(&format!("{ASK}{LEND}{reads}"), &other));
    }

    #[test]
    fn what_is_kept_of_a_request_is_small() {
        let size = std::mem::size_of::<JudgedRequest>();
        assert!(size <= 288, "{size}");
    }
}
