//! Decides which operations an operator may request of the gateway.

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use cedar_policy::{
    Authorizer, Context, Decision, Entities, EntityId, EntityTypeName, EntityUid, PolicySet,
    Request, Schema, ValidationMode, Validator,
};
use gateway_names::{SessionId, User};

use super::source::{Problem, Problems, Source};

gateway_names::words! {
    /// The operations of an operator: the actions of `policies/control.cedarschema`.
    pub enum Operation {
        /// See the state of the gateway.
        Status = "status",
        /// Read its metrics.
        MetricsRead = "metrics.read",
        /// List its sessions.
        SessionList = "session.list",
        /// Create a session at run time.
        SessionCreate = "session.create",
        /// Extend the life of a session that was created at run time.
        SessionExtend = "session.extend",
        /// See one session.
        SessionShow = "session.show",
        /// Pause a session.
        SessionPause = "session.pause",
        /// Resume a session.
        SessionResume = "session.resume",
        /// End a session.
        SessionEnd = "session.end",
        /// Run a further command in a session's sandbox.
        SessionEnter = "session.enter",
        /// Read records of the audit log.
        AuditRead = "audit.read",
        /// Apply changed files.
        Reload = "reload",
        /// Allow a refused request.
        PolicyAllow = "policy.allow",
        /// List the proposals of workloads.
        ProposalList = "proposal.list",
        /// Refuse a workload's proposal.
        ProposalRefuse = "proposal.refuse",
        /// See what is left of budgets.
        BudgetList = "budget.list",
        /// Add to a budget.
        BudgetAdd = "budget.add",
        /// Ask a replica of the fleet to stop.
        FleetDrain = "fleet.drain",
        /// Revoke a credential.
        CredentialRevoke = "credential.revoke",
        /// Undo a revocation.
        CredentialRestore = "credential.restore",
        /// Mint a token of a session.
        TokenMint = "token.mint",
        /// Revoke a token.
        TokenRevoke = "token.revoke",
    }
}

/// An operator, as policies name it.
#[derive(Debug, Clone, Copy)]
pub enum Operator<'a> {
    /// A user of this machine, whom the control socket admits: `uid:1000`.
    User(u32),
    /// The holder of a client certificate: its SPIFFE id, or `cn:` and its common name.
    Certificate(&'a User),
}

impl fmt::Display for Operator<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(uid) => write!(f, "uid:{uid}"),
            Self::Certificate(name) => f.write_str(name.as_str()),
        }
    }
}

/// The policies for operators, if there are any.
#[derive(Debug)]
pub struct Operators(Option<PolicySet>);

impl Operators {
    /// Permits everything to the users whom the socket admits, the gateway's own and root, and
    /// nothing to others.
    pub fn of_socket() -> Self {
        Self(None)
    }

    /// Loads and validates a text of policies. Operations that it does not permit are refused.
    ///
    /// # Errors
    /// Every problem of the text.
    pub fn load(source: &Source) -> Result<Self, Problems> {
        let problems = |texts: Vec<String>| {
            let problem = |reason| source.problem(0, reason, Some(HELP.to_owned()));
            Problems(texts.into_iter().map(problem).collect::<Vec<Problem>>())
        };
        let set = PolicySet::from_str(&source.text)
            .map_err(|errors| problems(errors.iter().map(ToString::to_string).collect()))?;
        if set.templates().next().is_some() {
            return Err(problems(vec!["templates are not supported".to_owned()]));
        }
        let unread = set.policies().find_map(|policy| {
            let at = policy.as_ref().loc().map_or(0, |at| at.start());
            source.unread_annotation(at, policy, None)
        });
        if let Some(unread) = unread {
            return Err(Problems(vec![unread]));
        }
        let found = Validator::new(SCHEMA.clone()).validate(&set, ValidationMode::Strict);
        let errors: Vec<String> = found
            .validation_errors()
            .map(ToString::to_string)
            .chain(found.validation_warnings().map(ToString::to_string))
            .collect();
        if errors.is_empty() {
            Ok(Self(Some(set)))
        } else {
            Err(problems(errors))
        }
    }

    /// Whether the operator may do this, to a session or the gateway as a whole. Any error denies
    /// it.
    #[must_use]
    pub fn permit(
        &self,
        operator: Operator<'_>,
        operation: Operation,
        session: Option<&SessionId>,
    ) -> bool {
        let Some(policies) = &self.0 else {
            return matches!(operator, Operator::User(_));
        };
        let resource = match session {
            Some(id) => uid_of("Session", id.as_str()),
            None => uid_of("Process", "gateway"),
        };
        let request = Request::new(
            uid_of("Operator", &operator.to_string()),
            uid_of("Action", operation.as_str()),
            resource,
            Context::empty(),
            Some(&SCHEMA),
        );
        let Ok(request) = request else {
            return false;
        };
        let answer = Authorizer::new().is_authorized(&request, policies, &ENTITIES);
        answer.decision() == Decision::Allow && answer.diagnostics().errors().next().is_none()
    }
}

fn uid_of(kind: &str, id: &str) -> EntityUid {
    let kind = EntityTypeName::from_str(&format!("Gateway::{kind}"));
    EntityUid::from_type_name_and_id(kind.expect("a type of the schema"), EntityId::new(id))
}

static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
    let text = include_str!("../../policies/control.cedarschema");
    let (schema, _) = Schema::from_cedarschema_str(text).expect("a constant that a test reads");
    schema
});

/// The groups that actions are in.
static ENTITIES: LazyLock<Entities> = LazyLock::new(|| {
    SCHEMA
        .action_entities()
        .expect("the schema has its actions")
});

const HELP: &str = "the schema is policies/control.cedarschema; see docs/control.md";

#[cfg(test)]
mod tests {
    use super::*;

    fn target(operation: Operation) -> Option<SessionId> {
        let of_a_session = matches!(
            operation,
            Operation::SessionShow
                | Operation::SessionPause
                | Operation::SessionResume
                | Operation::SessionEnd
                | Operation::SessionEnter
                | Operation::SessionExtend
                | Operation::TokenMint
        );
        of_a_session.then(|| SessionId::new("agent-1").unwrap())
    }

    fn allowed(operators: &Operators, uid: u32) -> Vec<&'static str> {
        let may = |operation: &&Operation| {
            let user = Operator::User(uid);
            operators.permit(user, **operation, target(**operation).as_ref())
        };
        Operation::ALL
            .iter()
            .filter(may)
            .map(|one| one.as_str())
            .collect()
    }

    #[test]
    fn every_operation_is_an_action_of_the_schema() {
        let text = "permit(principal, action, resource);";
        let operators = Operators::load(&Source::new("operators.cedar", text)).unwrap();
        assert_eq!(allowed(&operators, 1000).len(), Operation::ALL.len());
    }

    #[test]
    fn a_policy_narrows_by_user_action_and_session() {
        let text = r#"
            permit(principal == Gateway::Operator::"uid:7", action in Gateway::Action::"read", resource);
            permit(principal == Gateway::Operator::"uid:7", action == Gateway::Action::"session.end",
                resource == Gateway::Session::"agent-1");
        "#;
        let operators = Operators::load(&Source::new("operators.cedar", text)).unwrap();
        let wanted = [
            "status",
            "metrics.read",
            "session.list",
            "session.show",
            "session.end",
            "audit.read",
            "proposal.list",
            "budget.list",
        ];
        assert_eq!(allowed(&operators, 7), wanted);
        assert!(allowed(&operators, 8).is_empty());
        let other = SessionId::new("agent-2").unwrap();
        let user = Operator::User(7);
        assert!(!operators.permit(user, Operation::SessionEnd, Some(&other)));
    }

    #[test]
    fn a_certificate_permits_what_a_policy_says_of_its_name_and_nothing_without_one() {
        let name = User::new("spiffe://example.org/ops/ada").unwrap();
        let may = |operators: &Operators, name: &User| {
            operators.permit(Operator::Certificate(name), Operation::Status, None)
        };
        let without = Operators::of_socket();
        assert!(!may(&without, &name));
        assert_eq!(allowed(&without, 7).len(), Operation::ALL.len());
        let text = r#"permit(principal == Gateway::Operator::"spiffe://example.org/ops/ada", action, resource);"#;
        let operators = Operators::load(&Source::new("operators.cedar", text)).unwrap();
        assert!(may(&operators, &name));
        assert!(!may(&operators, &User::new("cn:ada").unwrap()));
        assert!(allowed(&operators, 0).is_empty());
    }

    #[test]
    fn a_policy_that_can_never_apply_or_that_is_no_cedar_is_refused() {
        for text in [
            "permit(principal, action == Gateway::Action::\"session.stop\", resource);",
            "permit(principal == Gateway::Session::\"a\", action, resource);",
            "permit(principal, action, resource",
            "permit(principal == ?principal, action, resource);",
            "permit(principal, action, resource) when { principal.name == \"x\" };",
        ] {
            assert!(Operators::load(&Source::new("x", text)).is_err(), "{text}");
        }
    }

    #[test]
    fn an_annotation_that_nothing_reads_is_refused() {
        let load = |text: &str| Operators::load(&Source::new("control.cedar", text));
        assert!(load("@id(\"a\") permit(principal, action, resource);").is_ok());
        let refused = load("\n@until(\"noon\") permit(principal, action, resource);");
        let problems = refused.unwrap_err().0;
        assert_eq!(
            (problems[0].line, problems[0].column),
            (2, 1),
            "{problems:?}"
        );
        assert!(problems[0].reason.contains("`@until`"), "{problems:?}");
    }
}
