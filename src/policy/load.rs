//! Loads policies from text: parses, names, validates strictly and lints them, and reports every
//! problem at once.

use std::collections::{BTreeMap, HashMap};

use cedar_policy::{PolicySet, ValidationMode, ValidationWarning, Validator};
use gateway_names::PolicyId;
use miette::Diagnostic;

use super::content::Declared;
use super::lint;
use super::rule::Rule;
use super::schema::schema;
use super::source::{Lines, Lint, Problem, Problems, Source};

/// Parses and checks every source.
///
/// # Errors
/// Every problem of every source. Nothing is loaded then, because a policy left out may be a
/// forbid.
pub(super) fn load(
    sources: &[Source],
    declared: &Declared,
) -> Result<(Vec<Rule>, Vec<Lint>), Problems> {
    let mut loading = Loading {
        sources,
        lines: sources.iter().map(Lines::of).collect(),
        declared,
        places: HashMap::new(),
        rules: Vec::new(),
        policies: Vec::new(),
        problems: Vec::new(),
        lints: Vec::new(),
    };
    for (nth, source) in sources.iter().enumerate() {
        loading.parse(nth, source);
    }
    loading.validate();
    loading.inspect();
    if loading.problems.is_empty() {
        Ok((loading.rules, loading.lints))
    } else {
        loading
            .problems
            .sort_by(|a, b| (&a.file, a.line, a.column).cmp(&(&b.file, b.line, b.column)));
        loading.problems.dedup();
        Err(Problems(loading.problems))
    }
}

struct Loading<'a> {
    sources: &'a [Source],
    lines: Vec<Lines<'a>>,
    declared: &'a Declared,
    /// The position of each policy: source and byte offset.
    places: HashMap<PolicyId, (usize, usize)>,
    rules: Vec<Rule>,
    /// The policies as written, under their ids.
    policies: Vec<(cedar_policy::Policy, cedar_policy::pst::Policy)>,
    problems: Vec<Problem>,
    lints: Vec<Lint>,
}

impl Loading<'_> {
    fn parse(&mut self, nth: usize, source: &Source) {
        let set = match source.text.parse::<PolicySet>() {
            Ok(set) => set,
            Err(errors) => {
                self.problems
                    .extend(errors.iter().map(|error| from_diagnostic(source, 0, error)));
                return;
            }
        };
        for template in set.templates() {
            let at = template.as_ref().loc().map_or(0, |loc| loc.start());
            let help = "write the entity in place of the slot".to_owned();
            self.problems
                .push(source.problem(at, "templates are not supported", Some(help)));
        }
        let mut policies: Vec<_> = set
            .policies()
            .map(|policy| (policy.as_ref().loc().map_or(0, |loc| loc.start()), policy))
            .collect();
        policies.sort_by_key(|(at, _)| *at);
        for (at, policy) in policies {
            if let Err(problem) = self.take(nth, source, at, policy) {
                self.problems.push(problem);
            }
        }
    }

    fn take(
        &mut self,
        nth: usize,
        source: &Source,
        at: usize,
        policy: &cedar_policy::Policy,
    ) -> Result<(), Problem> {
        if let Some(problem) = source.unread_annotation(at, policy, Some(self.declared)) {
            return Err(problem);
        }
        let id = self.name((nth, source), at, policy.annotation("id"))?;
        if let Some((other, offset)) = self.places.get(&id) {
            let (line, _) = self.lines[*other].position(*offset);
            let name = &self.sources[*other].name;
            let reason = format!("the id `{id}` is already the one of {name}:{line}");
            return Err(source.problem(
                at,
                reason,
                Some("give each policy an id of its own".into()),
            ));
        }
        // Cleared of its source text, which would be parsed once more.
        let body = cedar_policy::Policy::from(policy.as_ref().clone())
            .to_pst()
            .map_err(|error| source.problem(at, error.to_string(), None))?;
        let counts = |budget: &str| self.declared.counts_content(budget);
        let rule = Rule::new(self.rules.len(), id.clone(), policy, body.body(), counts);
        let rule = rule.map_err(|not_read| {
            source.problem(at, not_read.reason, Some(not_read.help.to_owned()))
        })?;
        let renamed = policy.new_id(cedar_policy::PolicyId::new(id.as_str()));
        self.places.insert(id, (nth, at));
        self.rules.push(rule);
        self.policies.push((renamed, body));
        Ok(())
    }

    /// Returns the `@id`, else `file:line`. A second policy on a line also gets its column.
    fn name(
        &self,
        (nth, source): (usize, &Source),
        at: usize,
        annotation: Option<&str>,
    ) -> Result<PolicyId, Problem> {
        if let Some(id) = annotation {
            return PolicyId::new(id).map_err(|error| {
                source.problem(
                    at,
                    format!("`@id(\"{}\")`: {error}", id.escape_debug()),
                    None,
                )
            });
        }
        let (line, column) = self.lines[nth].position(at);
        let by_line = place_name(&source.name, &format!("{line}"));
        let free = by_line.filter(|id| !self.places.contains_key(id));
        free.or_else(|| place_name(&source.name, &format!("{line}:{column}")))
            .ok_or_else(|| {
                source.problem(
                    at,
                    "this policy has no name",
                    Some("give it one: `@id(\"…\")`".into()),
                )
            })
    }

    fn validate(&mut self) {
        if self.rules.is_empty() {
            return;
        }
        let set = match PolicySet::from_policies(
            self.policies.iter().map(|(policy, _)| policy.clone()),
        ) {
            Ok(set) => set,
            Err(error) => {
                let reason = error.to_string();
                self.problems.push(Problem {
                    file: String::new(),
                    line: 0,
                    column: 0,
                    reason,
                    help: None,
                });
                return;
            }
        };
        let result = Validator::new(schema(self.declared)).validate(&set, ValidationMode::Strict);
        let errors = result.validation_errors().map(|error| {
            let (source, at) = self.place(error.policy_id());
            from_diagnostic(source, at, error)
        });
        self.problems.extend(once_a_place(errors.collect()));
        let permits: BTreeMap<&str, bool> = self
            .rules
            .iter()
            .map(|rule| (rule.id.as_str(), rule.permits))
            .collect();
        for warning in result.validation_warnings() {
            let id: &str = warning.policy_id().as_ref();
            let (source, at) = self.place(warning.policy_id());
            let problem = from_diagnostic(source, at, warning);
            // A permit that never applies permits nothing. A forbid that never applies is a hole.
            if permits.get(id) == Some(&true) && !deceives(warning) {
                self.lints.push(Lint {
                    policy: id.to_owned(),
                    at: problem,
                    is_note: false,
                });
            } else {
                self.problems.push(problem);
            }
        }
    }

    fn inspect(&mut self) {
        for (rule, (policy, body)) in self.rules.iter().zip(&self.policies) {
            let (nth, at) = self.places[&rule.id];
            let lines = &self.lines[nth];
            let found = lint::inspect(rule, policy, body.body(), self.declared);
            self.problems.extend(
                found
                    .problems
                    .into_iter()
                    .map(|(reason, help)| lines.problem(at, reason, help)),
            );
            let policy = rule.id.as_str();
            for (all, is_note) in [(found.lints, false), (found.notes, true)] {
                self.lints
                    .extend(all.into_iter().map(|(reason, help)| Lint {
                        policy: policy.to_owned(),
                        at: lines.problem(at, reason, help),
                        is_note,
                    }));
            }
        }
    }

    fn place(&self, id: &cedar_policy::PolicyId) -> (&Source, usize) {
        let id: &str = id.as_ref();
        let (nth, at) = PolicyId::new(id)
            .ok()
            .and_then(|id| self.places.get(&id).copied())
            .expect("the validator names only policies that it was given, and those have places");
        (&self.sources[nth], at)
    }
}

/// Sorts the validator's problems, and merges those of one mistake: the validator reports it once
/// for each action that the policy covers, in any order.
fn once_a_place(mut found: Vec<Problem>) -> Vec<Problem> {
    found.sort_by(|one, other| {
        let key = |of: &Problem| (of.file.clone(), of.line, of.column, of.reason.clone());
        key(one).cmp(&key(other))
    });
    let mut told: Vec<(Problem, Vec<String>)> = Vec::new();
    for mut problem in found {
        let Some((reason, action)) = without_action(&problem.reason) else {
            told.push((problem, Vec::new()));
            continue;
        };
        problem.reason = reason;
        match told.last_mut().filter(|(last, _)| *last == problem) {
            Some((_, actions)) => actions.push(action),
            None => told.push((problem, vec![action])),
        }
    }
    let told = told.into_iter().map(|(mut problem, actions)| {
        problem.reason = problem.reason.replace(ACTION, &actions.join(", "));
        problem
    });
    told.collect()
}

/// Returns a reason with its action replaced by [`ACTION`], and the action.
fn without_action(reason: &str) -> Option<(String, String)> {
    let (before, rest) = reason.split_once(ACTION)?;
    let (name, after) = rest.strip_prefix('"')?.split_once('"')?;
    let reason = format!("{before}{ACTION}{after}");
    Some((reason, format!("{ACTION}\"{name}\"")))
}

/// The prefix of the names of actions.
const ACTION: &str = "Gateway::Action::";

/// The former name of `any`, which stands for any request.
const FORMER_ANY: &str = "Gateway::Action::\"ask\"";

/// Whether a warning is about text that displays differently from how it is compared.
fn deceives(warning: &ValidationWarning) -> bool {
    matches!(
        warning,
        ValidationWarning::BidiCharsInString(_) | ValidationWarning::BidiCharsInIdentifier(_)
    )
}

/// Returns a policy id made from a position. Characters not allowed in an id are replaced, and the
/// start is cut off if it is too long.
fn place_name(file: &str, place: &str) -> Option<PolicyId> {
    let fits = |character: char| character.is_ascii_alphanumeric() || "._:/-".contains(character);
    // The text is now ASCII, so a character is a byte.
    let file = file.replace(|character| !fits(character), "_");
    let room = 127_usize.checked_sub(place.len())?;
    let kept = &file[file.len().saturating_sub(room)..];
    PolicyId::new(&format!("{kept}:{place}")).ok()
}

fn from_diagnostic(source: &Source, fallback: usize, diagnostic: &impl Diagnostic) -> Problem {
    let label = diagnostic.labels().and_then(|mut labels| labels.next());
    let at = label.as_ref().map_or(fallback, |label| label.offset());
    let mut reason = diagnostic.to_string();
    if let Some(text) = label.as_ref().and_then(|label| label.label()) {
        reason = format!("{reason}: {text}");
    }
    let help = if reason.contains(FORMER_ANY) {
        Some(format!("any request is `{ACTION}\"any\"`"))
    } else {
        diagnostic.help().map(|help| help.to_string())
    };
    source.problem(at, reason, help)
}

#[cfg(test)]
#[path = "load_tests.rs"]
mod tests;
