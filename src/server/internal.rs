//! `http://gateway.internal/`: a workload's pages about its own session alone. They hold no secret.
//! Phantoms are shown only to a caller that evidence identifies.

use bytes::Bytes;
use gateway_intercept::{Entry, GATEWAY_NAME, TokenDenied, TokenUse};
use gateway_message::{Host, RequestHead};
use gateway_names::{Blame, CredentialName, ReasonCode};
use gateway_policy::{HostScope, Objection, Requester};
use gateway_session::{Identified, Session};
use http::header::{ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Method, Response, StatusCode};
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::answer_body::AnswerBody;
use super::callers::ClientProxy;
use super::ending::Ending;
use super::exchange::Exchange;
use super::floor::floor;
use super::proposals::RequestedAccess;
use super::propose;
use super::recent::RecentRefusal;
use super::respond::shown;

/// A page's status, type and content.
type OwnPage = (StatusCode, &'static str, String);

impl Exchange {
    /// Answers a request to the gateway itself.
    pub(super) async fn own_page(&self, identified: Identified) -> Result<Identified, Ending> {
        let host = &identified.request().head.origin.authority.host;
        if host.as_str() != GATEWAY_NAME {
            return Ok(identified);
        }
        let shown = self.token_shows(&identified.request().head);
        shown.map_err(Objection::Caveat)?;
        // Boxed because it is large and rare.
        let page = Box::pin(self.page_for(identified)).await;
        Err(Ending::Answered(Box::new(page)))
    }

    /// Checks that the caller's token, if there is one, allows a page. The pages that every client
    /// needs are for each token; the others may show other clients of the session.
    fn token_shows(&self, head: &RequestHead) -> Result<(), TokenDenied> {
        let is_needed = matches!(
            head.target.path(),
            "/ca.pem" | "/phantoms" | "/env" | "/home"
        );
        match self.guard.token() {
            Some(token) if !is_needed => token.allows(|now| TokenUse {
                host: &head.origin.authority.host,
                port: head.origin.authority.port,
                method: &head.method,
                path: head.target.path(),
                named: &[],
                is_batch: false,
                credentials: [].iter(),
                policies: [].iter(),
                now,
            }),
            _ => Ok(()),
        }
    }

    /// Returns the page that a workload asks for.
    async fn page_for(&self, identified: Identified) -> Response<AnswerBody> {
        let head = &identified.request().head;
        let wants_json = head.fields.get(ACCEPT).is_some_and(|accept| {
            memchr::memmem::find(accept.as_bytes(), b"application/json").is_some()
        });
        let is_read = matches!(head.method, Method::GET | Method::HEAD);
        let session = identified.session();
        let connection = &identified.request().connection;
        // Identified by evidence or by the capture: no other client comes in that way.
        let is_known = connection.caller.is_some() || connection.entry == Entry::Transparent;
        let path = head.target.path();
        let page = match path {
            "/proposals" if head.method == Method::POST => {
                let (status, answer) = propose::answer(self.propose(identified).await);
                return response((status, JSON, format!("{answer}\n")));
            }
            _ if !is_read => {
                let takes = match path {
                    "/proposals" => "GET, HEAD, POST",
                    _ => "GET, HEAD",
                };
                let page = (StatusCode::METHOD_NOT_ALLOWED, TEXT, String::from(PAGES));
                let mut refused = response(page);
                let fields = refused.headers_mut();
                fields.insert(ALLOW, HeaderValue::from_static(takes));
                return refused;
            }
            "/" => self.about(&identified, wants_json),
            "/skill.md" => (StatusCode::OK, MARKDOWN, self.skill(&identified)),
            "/refused" => self.refused(session, wants_json),
            "/proposals" => self.proposals(session, wants_json),
            "/ca.pem" => (StatusCode::OK, PEM, self.ca.certificate_pem()),
            "/phantoms" if is_known => (StatusCode::OK, JSON, self.phantoms(session)),
            "/phantoms" => (StatusCode::FORBIDDEN, TEXT, String::from(UNKNOWN)),
            path @ ("/env" | "/home") => self.needs(&identified, (path, is_known, wants_json)),
            _ => (StatusCode::NOT_FOUND, TEXT, String::from(PAGES)),
        };
        response(page)
    }

    /// Returns the session's phantoms by variable, as far as the caller's token may be lent them.
    fn phantoms(&self, session: &Session) -> String {
        let bindings = self.snapshot.credentials.bindings();
        let token = self.guard.token();
        let is_lent = |name: &CredentialName| token.is_none_or(|token| token.lends(name));
        json!(session.environment(bindings, is_lent)).to_string() + "\n"
    }

    /// Returns what this caller's clients need: as JSON, or as commands for a shell.
    fn needs(
        &self,
        identified: &Identified,
        (path, is_known, wants_json): (&str, bool, bool),
    ) -> OwnPage {
        let Some(pages) = self.worker.shared.pages.get() else {
            return (StatusCode::NOT_FOUND, TEXT, String::from(PAGES));
        };
        let token = self.guard.token();
        let is_lent =
            |name: &CredentialName| is_known && token.is_none_or(|token| token.lends(name));
        let mut needs = match pages.needs(&self.snapshot, identified.session(), &is_lent) {
            Ok(needs) => needs,
            Err(why) => {
                tracing::warn!(%why, "a workload cannot have the files of its logins");
                let told = "A login cannot be read: the gateway's own log says why.\n";
                return (StatusCode::BAD_GATEWAY, TEXT, told.to_owned());
            }
        };
        let connection = &identified.request().connection;
        // A base URL leads to the gateway itself, in clear text.
        if connection.entry != Entry::Base {
            needs.certificate = self.ca.certificate_pem();
        }
        needs.proxy = ClientProxy::of(connection);
        match (wants_json, path) {
            (true, _) => (StatusCode::OK, JSON, json!(needs).to_string() + "\n"),
            (false, "/home") => (StatusCode::OK, TEXT, pages.files(&needs)),
            (false, _) => (StatusCode::OK, TEXT, pages.variables(&needs)),
        }
    }

    fn about(&self, identified: &Identified, wants_json: bool) -> OwnPage {
        let session = identified.session();
        let credentials: Vec<Value> = self.credentials(session);
        let refused = self.worker.shared.recent.of(session.id());
        let about = json!({
            "session": session.id().as_str(),
            "groups": session.last_groups().iter().map(|group| &**group).collect::<Vec<_>>(),
            "reaches": self.reaches(identified),
            "credentials": credentials,
            "refused": refused.iter().map(|one| self.refusal(session, one)).collect::<Vec<_>>(),
            "pages": ["/", "/skill.md", "/env", "/home", "/refused", "/proposals", "/ca.pem", "/phantoms"],
        });
        page(&about, wants_json, text_of_session)
    }

    /// Returns the session's page as words for an agent, with what policies' refusals mean.
    fn skill(&self, identified: &Identified) -> String {
        let (_, _, about) = self.about(identified, false);
        let by_policy = |code: &ReasonCode| code.blame() == Blame::Policy;
        let codes = ReasonCode::ALL.iter().copied().filter(by_policy);
        let codes = codes.map(|code| {
            let (name, meaning, next) = (code.as_str(), code.meaning(), code.next_step());
            format!("- `{name}`: {meaning} {next}\n")
        });
        format!("{SKILL}{about}{REFUSALS}{}", codes.collect::<String>())
    }

    fn refused(&self, session: &Session, wants_json: bool) -> OwnPage {
        let refused = self.worker.shared.recent.of(session.id());
        let all: Vec<Value> = refused
            .iter()
            .map(|one| self.refusal(session, one))
            .collect();
        page(&json!({ "refused": all }), wants_json, text_of_refused)
    }

    fn refusal(&self, session: &Session, one: &RecentRefusal) -> Value {
        let (id, to) = (one.id.to_string(), shown(one.to.as_ref()));
        let time = OffsetDateTime::from(one.time).format(&Rfc3339);
        let asked = one.to.clone().map(|to| RequestedAccess {
            to,
            request: one.request.clone(),
            refused: None,
        });
        let proposals = &self.worker.shared.proposals;
        let refused = asked.and_then(|asked| proposals.refusal(session.id(), &asked));
        let is_policys = one.reason == ReasonCode::PolicyDefaultDeny;
        let origin = one.to.as_ref().filter(|_| is_policys);
        let below = origin.and_then(|origin| floor(origin, &self.snapshot.origins));
        let next = match refused {
            Some(refused) => propose::after_refusal(&refused),
            None => below.unwrap_or(one.reason).next_step_for(&to, &id),
        };
        json!({
            "id": id,
            "time": time.unwrap_or_default(),
            "to": to,
            "reason": one.reason.as_str(),
            "what": one.reason.meaning(),
            "next": next,
        })
    }

    fn proposals(&self, session: &Session, wants_json: bool) -> OwnPage {
        let own = self.worker.shared.proposals.of(session.id());
        let all: Vec<Value> = own.iter().map(propose::shown).collect();
        page(&json!({ "proposals": all }), wants_json, text_of_proposals)
    }

    /// Returns the hosts that policies let the workload reach; `null` if one is for every host.
    fn reaches(&self, identified: &Identified) -> Option<Vec<String>> {
        let policies = self.snapshot.policies.generation();
        let caller = identified.request().connection.caller.as_deref();
        let asker = Requester::of(identified.session(), caller, policies.number());
        let may = |host: &str| {
            let host = Host::parse(host.as_bytes());
            host.is_ok_and(|host| policies.may_resolve(asker.principal(), &host))
        };
        let shown = |scope: HostScope| match scope {
            HostScope::Host(host) => may(&host).then_some(host),
            HostScope::Domain(domain) => {
                may(&format!("any.{domain}")).then(|| format!("*.{domain}"))
            }
        };
        let scopes = policies.hosts_of(asker.principal())?;
        Some(scopes.into_iter().filter_map(shown).collect())
    }

    /// Returns the names of the credentials of which the session has a phantom.
    fn credentials(&self, session: &Session) -> Vec<Value> {
        let (phantoms, bindings) = (session.phantoms(), self.snapshot.credentials.bindings());
        let own = |name| phantoms.of(name).is_some();
        let all = bindings
            .all()
            .filter(|one| own(&one.credential) && session.may_hold(one));
        all.map(|binding| {
            let hosts = binding
                .origins
                .iter()
                .map(|origin| origin.hosts.to_string());
            json!({
                "name": binding.credential.as_str(),
                "variables": binding.variables,
                "hosts": hosts.collect::<Vec<_>>(),
            })
        })
        .collect()
    }
}

fn text_of_proposals(about: &Value) -> String {
    let all = about["proposals"].as_array().into_iter().flatten();
    let line = |one: &Value| {
        let part = |name: &str| one[name].as_str().unwrap_or_default().to_owned();
        format!(
            "{} {} {} {}\n",
            part("time"),
            part("state"),
            part("wanted"),
            part("id")
        )
    };
    let lines: Vec<String> = all.map(line).collect();
    if lines.is_empty() {
        String::from("Nothing was proposed.\n")
    } else {
        format!("Proposed, the latest first:\n{}", lines.concat())
    }
}

fn page(about: &Value, wants_json: bool, text: fn(&Value) -> String) -> OwnPage {
    if wants_json {
        (StatusCode::OK, JSON, format!("{about}\n"))
    } else {
        (StatusCode::OK, TEXT, text(about))
    }
}

fn text_of_session(about: &Value) -> String {
    let words = |value: &Value| {
        let all = value.as_array().into_iter().flatten();
        let all: Vec<&str> = all.filter_map(Value::as_str).collect();
        all.join(", ")
    };
    let session = about["session"].as_str().unwrap_or_default();
    let mut text = format!("You are in session `{session}` of a gateway.\n\n");
    text += &match (&about["reaches"], words(&about["reaches"])) {
        (Value::Null, _) => String::from("Policies decide about every host.\n"),
        (_, none) if none.is_empty() => String::from("No host can be reached.\n"),
        (_, some) => format!("Reached: {some}\n"),
    };
    for credential in about["credentials"].as_array().into_iter().flatten() {
        let name = credential["name"].as_str().unwrap_or_default();
        let (variables, hosts) = (words(&credential["variables"]), words(&credential["hosts"]));
        text += &format!("Lent: {name} ({variables}) to {hosts}\n");
    }
    text + "\n" + &text_of_refused(about) + PAGES
}

fn text_of_refused(about: &Value) -> String {
    let all = about["refused"].as_array().into_iter().flatten();
    let line = |one: &Value| {
        let part = |name: &str| one[name].as_str().unwrap_or_default().to_owned();
        let (time, to, reason) = (part("time"), part("to"), part("reason"));
        format!(
            "{time} {to} {reason} {}\n  {} {}\n",
            part("id"),
            part("what"),
            part("next")
        )
    };
    let lines: Vec<String> = all.map(line).collect();
    if lines.is_empty() {
        String::from("Nothing was refused.\n")
    } else {
        format!("Refused, the latest first:\n{}", lines.concat())
    }
}

fn response((status, kind, content): OwnPage) -> Response<AnswerBody> {
    let mut response = Response::new(AnswerBody::own(Bytes::from(content)));
    *response.status_mut() = status;
    let fields = response.headers_mut();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    fields.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // A browser in the sandbox shows none of it to a page of another site.
    fields.insert(
        "cross-origin-resource-policy",
        HeaderValue::from_static("same-origin"),
    );
    response
}

const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";
const MARKDOWN: &str = "text/markdown; charset=utf-8";
const PEM: &str = "application/x-pem-file";
const PAGES: &str = "
Pages: / (this session), /skill.md (the same for an agent), /env (what clients need, for `eval`), /home (files of
logins, for `| sh`), /refused (what was refused, and why), /proposals, /ca.pem (the CA to trust),
/phantoms. With `Accept: application/json`, all but the CA are JSON.
To propose what you need, POST to /proposals, as JSON or a form: `id` of a refusal (or `host`,
`method` and `path`), and `why` in a line. A person outside grants it, and nothing else does.
";
const SKILL: &str = "\
---
name: gateway
description: What this session may reach, what a refusal by its gateway means, and how to ask for more.
---

# Behind a gateway

Every request of this session goes through a gateway. What stands in variables and files for a key is
worthless outside: send it as it is, and the gateway puts the real one in where it is lent.

";
const REFUSALS: &str = "
# What a refusal means

The gateway answered, and not the service: as JSON with `reason`, or in the service's own shape. The
field `Gateway-Exchange` is the id to propose it by. Another tool, encoding or way out is refused as
well. Repeat the request only where `retry` is true, or once a person has allowed it. Policies refuse
with these codes; for others do as the message says.

";
const UNKNOWN: &str = "Nothing shows here who asks, so no phantom is shown: they are in the file of \
     `[phantoms] env_file`, or come with evidence (`who` of the listener).\n";
