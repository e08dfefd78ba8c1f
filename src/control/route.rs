//! The routes of the control socket: one table for the server, the documentation and the tests.

use gateway_names::{SecretLabel, SessionId};
use gateway_policy::Operation;
use gateway_token::PrefixId;
use http::{Method, StatusCode};
use percent_encoding::percent_decode_str;

/// One route.
#[derive(Debug)]
pub struct ApiRoute {
    /// The method.
    pub method: Method,
    /// The path; `{id}` stands for a session's id, `{name}` for a secret's label, `{token}` for a
    /// token's id, `{budget}` and `{replica}` for the name of one.
    pub path: &'static str,
    /// What the route does, in a sentence.
    pub about: &'static str,
    /// The operation that the operator must be allowed; `None` if every caller that reaches the
    /// route may use it.
    pub operation: Option<Operation>,
    /// The statuses of its responses, in addition to those of every route: 400, 403, 405 and 500.
    pub statuses: &'static [u16],
    /// Whether the metrics port serves it too.
    pub on_port: bool,
    pub(super) endpoint: Endpoint,
}

/// The route of a request, with the names in its path.
pub(super) struct RouteMatch {
    pub(super) route: &'static ApiRoute,
    pub(super) session: Option<SessionId>,
    /// The label of the secret in its path.
    pub(super) secret: Option<SecretLabel>,
    /// The token whose id is in its path.
    pub(super) token: Option<PrefixId>,
    /// The name of the budget or replica in its path.
    pub(super) named: Option<String>,
}

macro_rules! routes {
    (
        $($endpoint:ident)*;
        $($method:ident $path:literal $serves:ident, $operation:expr, $statuses:expr, $about:literal;)*
    ) => {
        /// What serves a route.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Endpoint {
            $($endpoint,)*
        }

        /// Every route.
        pub static ROUTES: [ApiRoute; 28] = [$({
            const OPERATION: Option<Operation> = $operation;
            ApiRoute {
                method: Method::$method,
                path: $path,
                about: $about,
                operation: OPERATION,
                statuses: &$statuses,
                on_port: OPERATION.is_none() || matches!(Endpoint::$serves, Endpoint::Metrics),
                endpoint: Endpoint::$serves,
            }
        },)*];
    };
}

routes! {
    Health Ready Metrics Gateway Sessions Session Environment Pause Resume End Enter Reload
    CreateSession ExtendSession Revoke Restore MintToken RevokeToken Events Allow Proposals AllowAsked RefuseProposal
    Budgets AddToBudget Fleet DrainReplica;
    GET "/healthz" Health, None, [200],
        "The process lives.";
    GET "/ready" Ready, None, [200, 503],
        "The gateway serves: 200. It stops, its log takes no record, or its tailnet is away: 503.";
    GET "/readyz" Ready, None, [200, 503],
        "As `/ready`.";
    GET "/metrics" Metrics, Some(Operation::MetricsRead), [200, 503],
        "The metrics, in the text format of Prometheus.";
    GET "/v1/status" Gateway, Some(Operation::Status), [200],
        "The state of the gateway.";
    GET "/v1/sessions" Sessions, Some(Operation::SessionList), [200],
        "Every session.";
    POST "/v1/sessions" CreateSession, Some(Operation::SessionCreate), [200, 409, 422, 503],
        "Makes a session that no listener owns, and returns its token, CA and phantoms. With an `Idempotency-Key`, the same request gets the same answer for as long as the session lives.";
    GET "/v1/sessions/{id}" Session, Some(Operation::SessionShow), [200, 404],
        "One session.";
    GET "/v1/sessions/{id}/environment" Environment, Some(Operation::SessionEnter), [200, 404, 422, 503],
        "What a client of the session's proxy needs: variables, with its phantoms.";
    POST "/v1/sessions/{id}/extend" ExtendSession, Some(Operation::SessionExtend), [200, 404, 422, 503],
        "Moves the end of a session that was made so, and returns a token that lives as long.";
    POST "/v1/sessions/{id}/pause" Pause, Some(Operation::SessionPause), [200, 404, 409, 503],
        "Refuses the session's requests until it is resumed. What is under way goes on.";
    POST "/v1/sessions/{id}/resume" Resume, Some(Operation::SessionResume), [200, 404, 409, 503],
        "Lets a paused session go on.";
    POST "/v1/sessions/{id}/end" End, Some(Operation::SessionEnd), [200, 404, 503],
        "Ends the session, and cuts what is under way. `for_good` locks its caller out.";
    POST "/v1/sessions/{id}/enter" Enter, Some(Operation::SessionEnter), [200, 404, 409, 503],
        "Connects the session's sandbox with a socket of the caller, to run a further command.";
    POST "/v1/reload" Reload, Some(Operation::Reload), [200, 422, 503],
        "Applies changed files: all of them, or none.";
    POST "/v1/credentials/{name}/revoke" Revoke, Some(Operation::CredentialRevoke), [200, 503],
        "Revokes a secret, by a credential's name, a variable or the place that it is read from, for every gateway of this user, running and to come: from the answer on, no byte of its secret leaves.";
    POST "/v1/credentials/{name}/restore" Restore, Some(Operation::CredentialRestore), [200, 503],
        "Takes a revocation back.";
    POST "/v1/sessions/{id}/tokens" MintToken, Some(Operation::TokenMint), [200, 404, 422, 503],
        "Mints a token of a session that a listener has. No later answer has it.";
    POST "/v1/tokens/{token}/revoke" RevokeToken, Some(Operation::TokenRevoke), [200, 503],
        "Revokes a token, with all that was derived from it, for every gateway of this user, and cuts what is under way with it.";
    GET "/v1/events" Events, Some(Operation::AuditRead), [200, 503],
        "The records of the audit log as they are written, one a line, without an end.";
    POST "/v1/policies/allow" Allow, Some(Operation::PolicyAllow), [200, 404, 409, 422, 503],
        "Shows the narrowest rule that allows what was refused; applies it if it is repeated.";
    GET "/v1/proposals" Proposals, Some(Operation::ProposalList), [200],
        "What waits for a person: what workloads propose, and the requests that a policy asks about. Who reads it each five seconds is there to answer.";
    POST "/v1/proposals/allow" AllowAsked, Some(Operation::PolicyAllow), [200, 404, 409, 503],
        "Allows one request that a policy asks about, once.";
    POST "/v1/proposals/refuse" RefuseProposal, Some(Operation::ProposalRefuse), [200, 404, 409, 503],
        "Refuses what a workload proposes.";
    GET "/v1/budgets" Budgets, Some(Operation::BudgetList), [200, 503],
        "What is spent, reserved and left of each budget.";
    POST "/v1/budgets/{budget}/add" AddToBudget, Some(Operation::BudgetAdd), [200, 404, 422, 503],
        "Adds to what a budget has in its present window.";
    GET "/v1/fleet" Fleet, Some(Operation::Status), [200, 404, 503],
        "Every replica of the fleet: its beat, what it has applied, and the digest of its configuration.";
    POST "/v1/fleet/{replica}/drain" DrainReplica, Some(Operation::FleetDrain), [200, 404, 503],
        "Asks a replica to stop, as SIGTERM does.";
}

/// Finds the route of a request.
///
/// # Errors
/// 404 if no route has the path, 405 if none has it with this method.
pub(super) fn find(method: &Method, path: &str) -> Result<RouteMatch, StatusCode> {
    let mut missing = StatusCode::NOT_FOUND;
    for route in &ROUTES {
        let Some(routed) = matches(route, path) else {
            continue;
        };
        if route.method == *method {
            return Ok(routed);
        }
        missing = StatusCode::METHOD_NOT_ALLOWED;
    }
    Err(missing)
}

/// Returns the methods that a path allows (RFC 9110 §10.2.1).
pub(super) fn methods(path: &str) -> String {
    let fits = ROUTES.iter().filter(|route| matches(route, path).is_some());
    let methods: Vec<&str> = fits.map(|route| route.method.as_str()).collect();
    methods.join(", ")
}

/// Returns the route with the names in a path, if the path fits. A name stands there
/// percent-encoded, because it may hold `/`.
fn matches(route: &'static ApiRoute, path: &str) -> Option<RouteMatch> {
    let mut routed = RouteMatch {
        route,
        session: None,
        secret: None,
        token: None,
        named: None,
    };
    let mut parts = path.split('/');
    for wanted in route.path.split('/') {
        let part = parts.next()?;
        let name = || percent_decode_str(part).decode_utf8().ok();
        match wanted {
            "{id}" => routed.session = Some(SessionId::new(&name()?).ok()?),
            "{name}" => routed.secret = Some(SecretLabel::new(&name()?)?),
            "{budget}" | "{replica}" => routed.named = Some(name()?.into_owned()),
            "{token}" => routed.token = Some(PrefixId::named(part)?),
            _ if wanted != part => return None,
            _ => {}
        }
    }
    parts.next().is_none().then_some(routed)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Value, json};

    use super::*;

    fn found(method: Method, path: &str) -> Result<(Endpoint, Option<String>), u16> {
        find(&method, path)
            .map(|routed| {
                let session = routed.session.map(|id| id.to_string());
                (routed.route.endpoint, session)
            })
            .map_err(|status| status.as_u16())
    }

    #[test]
    fn a_path_names_one_route_and_a_session_as_it_is() {
        for (path, wanted) in [
            ("/v1/sessions", Ok((Endpoint::Sessions, None))),
            (
                "/v1/sessions/a%2Fb:1",
                Ok((Endpoint::Session, Some("a/b:1".to_owned()))),
            ),
            ("/v1/sessions/", Err(404)),
            ("/v1/sessions/a/b", Err(404)),
            ("/v1/sessions/a%00", Err(404)),
            ("/v1/sessions/a/", Err(404)),
            ("/v1/reload", Err(405)),
            ("//v1/status", Err(404)),
            ("/", Err(404)),
        ] {
            assert_eq!(found(Method::GET, path), wanted, "{path}");
        }
        let ended = found(Method::POST, "/v1/sessions/agent-1/end");
        assert_eq!(ended, Ok((Endpoint::End, Some("agent-1".to_owned()))));
    }

    #[test]
    fn the_openapi_file_has_every_route_method_and_status_and_no_other() {
        let file: Value =
            serde_json::from_str(include_str!("../../docs/openapi.json")).expect("JSON");
        let mut written = BTreeSet::new();
        for (path, methods) in file["paths"].as_object().unwrap() {
            for (method, about) in methods.as_object().unwrap() {
                for status in about["responses"].as_object().unwrap().keys() {
                    written.insert(format!("{method} {path} {status}"));
                }
            }
        }
        let mut served = BTreeSet::new();
        for route in &ROUTES {
            let everywhere = [400, 403, 405, 500];
            for status in route.statuses.iter().chain(&everywhere) {
                let method = route.method.as_str().to_ascii_lowercase();
                served.insert(format!("{method} {} {status}", route.path));
            }
            let method = route.method.as_str().to_ascii_lowercase();
            let about = &file["paths"][route.path][&method];
            assert_eq!(about["summary"], json!(route.about), "{}", route.path);
            let action = route.operation.map(Operation::as_str);
            assert_eq!(about["x-cedar-action"], json!(action), "{}", route.path);
        }
        assert_eq!(written, served);
    }
}
