//! Finds valid policies that cannot be what their author meant. A policy that never matches, or
//! matches names that anyone can register, is refused. A policy that is only likely to be wrong
//! gets a warning.

use cedar_policy::pst::{
    BinaryOp, Clause, EntityUID, Expr, Literal, PatternElem, Template, UnaryOp, Var,
};
use gateway_message::{Host, SuffixOwner, shared};
use gateway_names::CredentialName;

use super::content::Declared;
use super::fact::{Fact, OF_PATH};
use super::literal::literal_fault;
use super::rule::{Resources, Rule, scope_entity};
use super::schema::{Action, Actions, host_fault};

/// The findings about one policy.
#[derive(Default, Debug)]
pub(super) struct Findings {
    /// Reason and help. The policy must not be loaded.
    pub problems: Vec<(String, Option<String>)>,
    /// Reason and help. The policy may do something other than intended.
    pub lints: Vec<(String, Option<String>)>,
    /// Reason and help. It depends on the server whether the policy does what is intended.
    pub notes: Vec<(String, Option<String>)>,
    permits: bool,
}

/// The effect on the policy if an expression is true.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sense {
    /// More requests are allowed.
    Grants,
    /// Fewer requests are allowed.
    Restrains,
    /// Either, or unknown.
    Unclear,
}

impl Sense {
    fn flipped(self) -> Self {
        match self {
            Self::Grants => Self::Restrains,
            Self::Restrains => Self::Grants,
            Self::Unclear => Self::Unclear,
        }
    }
}

/// Inspects one policy.
pub(super) fn inspect(
    rule: &Rule,
    policy: &cedar_policy::Policy,
    body: &Template,
    declared: &Declared,
) -> Findings {
    let mut findings = Findings {
        permits: rule.permits,
        ..Findings::default()
    };
    findings.scope(rule, body);
    for clause in body.clauses() {
        let sense = if rule.permits {
            Sense::Grants
        } else {
            Sense::Restrains
        };
        match clause {
            Clause::When(condition) => findings.walk(condition, sense),
            Clause::Unless(condition) => findings.walk(condition, sense.flipped()),
        }
    }
    findings.entities(policy);
    findings.lift(rule);
    findings.content(rule, declared);
    findings
}

impl Findings {
    fn refuse(&mut self, reason: impl Into<String>, help: impl Into<String>) {
        let found = (reason.into(), Some(help.into()));
        if !self.problems.contains(&found) {
            self.problems.push(found);
        }
    }

    fn warn(&mut self, reason: impl Into<String>, help: impl Into<String>) {
        let found = (reason.into(), Some(help.into()));
        if !self.lints.contains(&found) {
            self.lints.push(found);
        }
    }

    /// What forbids a path forbids one spelling of it.
    fn spelling(&mut self, path: &str) {
        let swapped = match path.to_ascii_uppercase() {
            upper if upper == path => path.to_ascii_lowercase(),
            upper => upper,
        };
        // What a server makes of a path without letters depends on no case.
        if swapped == path || !self.notes.is_empty() {
            return;
        }
        self.notes.push((
            format!("a server that ignores the case of paths takes `{swapped}` for `{path}`, and this rule does not"),
            Some("if it is such a server, permit known paths instead of forbidding".into()),
        ));
    }

    fn scope(&mut self, rule: &Rule, body: &Template) {
        if !rule.permits {
            return;
        }
        if let Some(entity) = scope_entity(&body.resource) {
            self.wide_domain(entity, Sense::Grants);
        }
        let lends = rule.actions.holds(Action::Lend);
        if rule.resource == Resources::Anything {
            if lends {
                self.warn(
                    "this permit lends every credential",
                    "name one: `resource == Gateway::Credential::\"NAME\"`",
                );
            }
            if !rule.actions.and(Actions::ANY).is_empty() {
                self.warn(
                    "this permit reaches every host",
                    "name hosts: `resource == Gateway::Host::\"…\"` or `resource in Gateway::Domain::\"…\"`",
                );
            }
        }
        let reads = |fact| rule.reads.facts.contains(&fact);
        if lends && !reads(Fact::Origin) && !reads(Fact::Host) {
            self.warn(
                "this permit lends a credential to every host that the session may ask",
                "add `when { context.origin == Gateway::Host::\"…\" }`",
            );
        }
    }

    fn walk(&mut self, expr: &Expr, sense: Sense) {
        self.visit(expr, sense);
        match expr {
            Expr::UnaryOp {
                op: UnaryOp::Not | UnaryOp::IsEmpty,
                expr,
            } => self.walk(expr, sense.flipped()),
            Expr::BinaryOp { op, left, right } => {
                let (left_sense, right_sense) = match op {
                    BinaryOp::And | BinaryOp::Or | BinaryOp::Contains | BinaryOp::ContainsAny => {
                        (sense, sense)
                    }
                    // The more elements the right side has, the less often it is true.
                    BinaryOp::ContainsAll => (sense, sense.flipped()),
                    BinaryOp::In => (sense, sense),
                    _ => (Sense::Unclear, Sense::Unclear),
                };
                self.walk(left, left_sense);
                self.walk(right, right_sense);
            }
            Expr::IfThenElse {
                cond,
                then_expr,
                else_expr,
            } => {
                self.walk(cond, Sense::Unclear);
                self.walk(then_expr, sense);
                self.walk(else_expr, sense);
            }
            Expr::Is { expr, in_expr, .. } => {
                self.walk(expr, sense);
                if let Some(inner) = in_expr {
                    self.walk(inner, sense);
                }
            }
            Expr::UnaryOp { expr, .. }
            | Expr::GetAttr { expr, .. }
            | Expr::HasAttr { expr, .. }
            | Expr::Like { expr, .. } => self.walk(expr, sense),
            Expr::Set(members) => members.iter().for_each(|member| self.walk(member, sense)),
            Expr::Record(members) => members
                .values()
                .for_each(|member| self.walk(member, Sense::Unclear)),
            _ => {}
        }
    }

    fn visit(&mut self, expr: &Expr, sense: Sense) {
        match expr {
            Expr::Literal(Literal::EntityUID(entity)) => self.wide_domain(entity, sense),
            Expr::Like { expr, pattern } => self.pattern(expr, pattern, sense),
            Expr::BinaryOp { op, left, right } => self.comparison(*op, left, right, sense),
            Expr::GetAttr { .. } => self.multiplicity(expr, sense),
            _ => {}
        }
    }

    // A permit for `com` or `co.uk` covers every name that anyone may register. A forbid for such a
    // domain is fine.
    fn wide_domain(&mut self, entity: &EntityUID, sense: Sense) {
        if !self.permits || sense == Sense::Restrains || !is_kind(entity, "Domain") {
            return;
        }
        let help = "name the hosts, or the domain that is yours";
        match shared(&entity.eid) {
            Some(SuffixOwner::Registry) => self.refuse(
                format!("`{}` covers domains that anyone can register", entity.eid),
                help,
            ),
            Some(SuffixOwner::Service) => self.warn(
                format!("anyone may have a name under `{}`", entity.eid),
                help,
            ),
            None => {}
        }
    }

    fn pattern(&mut self, subject: &Expr, pattern: &[PatternElem], sense: Sense) {
        match subject_of(subject) {
            Some(Subject::HostName) => self.host_pattern(pattern, sense),
            Some(Subject::Context(Fact::Path)) if sense != Sense::Restrains => {
                self.path_pattern(pattern)
            }
            Some(Subject::Context(Fact::Path)) => {
                let written: String = pattern
                    .iter()
                    .map(|element| character(element).unwrap_or('*'))
                    .collect();
                self.spelling(&written);
            }
            _ => {}
        }
    }

    fn host_pattern(&mut self, pattern: &[PatternElem], sense: Sense) {
        if sense == Sense::Restrains || !pattern.contains(&PatternElem::Wildcard) {
            return;
        }
        let tail: String = pattern
            .iter()
            .rev()
            .map_while(character)
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
            .collect();
        let labels = tail
            .trim_start_matches('.')
            .split('.')
            .filter(|label| !label.is_empty())
            .count();
        let registry = shared(tail.trim_start_matches('.')) == Some(SuffixOwner::Registry);
        if (labels < 2 || registry) && self.permits {
            self.refuse(
                "this pattern matches domains that anyone can register",
                "write `resource in Gateway::Domain::\"…\"`: it compares whole labels",
            );
        } else if !tail.starts_with('.') {
            self.warn(
                format!("`*{tail}` also matches hosts such as `evil{tail}`"),
                "write `resource in Gateway::Domain::\"…\"`: it compares whole labels",
            );
        }
    }

    fn path_pattern(&mut self, pattern: &[PatternElem]) {
        let last = pattern.len().saturating_sub(1);
        let crosses = pattern.iter().enumerate().any(|(place, element)| {
            let after_slash = place > 0 && pattern[place - 1] == PatternElem::Char('/');
            *element == PatternElem::Wildcard && !(place == last && after_slash)
        });
        if crosses {
            self.warn(
                "`*` in a path crosses `/` and the ends of segments: `/a*` matches `/a-evil` and `/a/b/c`",
                "write `context.prefixes.contains(\"/a\")`, or `context.segments.containsAll([\"0:a\", \"2:c\"])`",
            );
        }
    }

    fn comparison(&mut self, op: BinaryOp, left: &Expr, right: &Expr, sense: Sense) {
        let pairs: Vec<(&Expr, &str)> = match op {
            BinaryOp::Eq | BinaryOp::NotEq => [(left, right), (right, left)]
                .into_iter()
                .filter_map(|(a, b)| Some((a, text(b)?)))
                .collect(),
            BinaryOp::Contains | BinaryOp::ContainsAll | BinaryOp::ContainsAny => {
                let forwards = texts(right).into_iter().map(|literal| (left, literal));
                let backwards = texts(left).into_iter().map(|literal| (right, literal));
                forwards.chain(backwards).collect()
            }
            _ => Vec::new(),
        };
        for (subject, literal) in pairs {
            let subject = subject_of(subject);
            if let Some(Subject::Context(fact)) = &subject
                && OF_PATH.contains(fact)
                && sense == Sense::Restrains
            {
                self.spelling(literal);
            }
            let fault = match subject {
                Some(Subject::HostName) => host_fault(literal),
                Some(Subject::Context(attribute)) => literal_fault(attribute, literal),
                None => None,
            };
            if let Some(fault) = fault {
                self.refuse(format!("`{}` never matches", literal.escape_debug()), fault);
            }
        }
    }

    // `any` has every reading of every value, so a forbid sees a bad value wherever it hides. But a
    // client can also add the value that a permit requires.
    fn multiplicity(&mut self, expr: &Expr, sense: Sense) {
        let Some(Subject::Context(fact)) = subject_of(expr) else {
            return;
        };
        let map = match fact {
            Fact::QueryAny | Fact::QueryUnique => "query",
            Fact::FieldsAny | Fact::FieldsUnique => "fields",
            _ => return,
        };
        match (fact, sense) {
            (Fact::QueryAny | Fact::FieldsAny, Sense::Grants) => self.warn(
                format!("the client can satisfy `context.{map}.any` beside another value of the same name"),
                format!("a permit asks `context.{map}.unique`, which holds values of fields that occur once"),
            ),
            (Fact::QueryUnique | Fact::FieldsUnique, Sense::Restrains) => self.warn(
                format!("the client can escape `context.{map}.unique` by sending the name twice"),
                format!("a forbid asks `context.{map}.any`, which holds every reading of every value"),
            ),
            _ => {}
        }
    }

    // Without a declaration the fact is never read, and every request that reaches this policy is
    // denied.
    fn content(&mut self, rule: &Rule, declared: &Declared) {
        let Resources::Host(host) = &rule.resource else {
            return;
        };
        let Ok(host) = Host::parse(host.as_bytes()) else {
            return;
        };
        for name in &rule.reads.content {
            if declared.reads(name, &host) {
                continue;
            }
            let section = if name.contains('.') { "read" } else { "fact" };
            self.warn(
                format!("no `[[{section}]]` reads `{name}` from requests to `{host}`, so this policy denies what reaches it"),
                format!("add the origin to the `origins` of a `[[{section}]]`, or name another host"),
            );
        }
    }

    // A signature is one answer to a program that waits for it, and uses up nothing.
    fn lift(&mut self, rule: &Rule) {
        let is_for_signatures = rule.actions == Actions::named(Action::Sign.as_str(), false);
        if is_for_signatures && (rule.lift.is_some() || rule.label.is_some()) {
            self.refuse(
                "`@ask`, `@budget` and `@label` are for requests, and this policy is for signatures",
                "leave the annotation out; `ssh-add -c` has the agent ask before each signature",
            );
        }
    }

    fn entities(&mut self, policy: &cedar_policy::Policy) {
        for entity in policy.entity_literals() {
            let id = entity.id().unescaped();
            let fault = match entity.type_name().basename() {
                "Host" => host_fault(id),
                "Domain" if id.parse::<std::net::IpAddr>().is_ok() => {
                    Some("an address is in no domain".into())
                }
                "Domain" => host_fault(id),
                "Credential" => CredentialName::new(id).err().map(|error| error.to_string()),
                "SigningKey" if !is_fingerprint(id) => Some(
                    "a key is named by what `ssh-keygen -lf FILE.pub` prints: `SHA256:…`".into(),
                ),
                _ => None,
            };
            if let Some(fault) = fault {
                self.refuse(format!("`{entity}` never matches"), fault);
            }
        }
    }
}

/// Whether a text is the fingerprint of a key: a SHA-256 in base64 without padding.
fn is_fingerprint(text: &str) -> bool {
    let digits = text.strip_prefix("SHA256:").unwrap_or_default();
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || b"+/".contains(&byte);
    digits.len() == 43 && digits.bytes().all(is_digit)
}

/// The part of the context that an expression reads, as far as the lints need it.
enum Subject {
    HostName,
    Context(Fact),
}

fn subject_of(expr: &Expr) -> Option<Subject> {
    let Expr::GetAttr { expr: of, attr } = expr else {
        return None;
    };
    let name = match &**of {
        Expr::Var(Var::Context) => attr.to_string(),
        Expr::GetAttr { expr, attr: record } if matches!(&**expr, Expr::Var(Var::Context)) => {
            format!("{record}.{attr}")
        }
        _ => return None,
    };
    let fact = Fact::named(&name).find(|fact| fact.row().name == name)?;
    Some(match fact {
        Fact::Host => Subject::HostName,
        fact => Subject::Context(fact),
    })
}

fn is_kind(entity: &EntityUID, kind: &str) -> bool {
    entity.ty.0.id.as_str() == kind
}

fn character(element: &PatternElem) -> Option<char> {
    match element {
        PatternElem::Char(character) => Some(*character),
        PatternElem::Wildcard => None,
    }
}

fn text(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Literal(Literal::String(text)) => Some(text),
        _ => None,
    }
}

fn texts(expr: &Expr) -> Vec<&str> {
    match expr {
        Expr::Set(members) => members.iter().filter_map(|member| text(member)).collect(),
        other => text(other).into_iter().collect(),
    }
}
