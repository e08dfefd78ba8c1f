//! Generates Cedar policies: for `--allow` and `--secret`, and for the proposals in refusals.

use std::collections::BTreeSet;

use cedar_policy::EntityId;
use gateway_message::path_pattern::readings;
use gateway_message::{Host, Origin, Scheme};
use gateway_names::{CredentialName, PolicyId, SessionId};

use super::question::{Facts, LendQuestion, SignQuestion};
use super::schema::Action;

/// Permits a session, or every session, to send any request to a host, on one port or on all ports.
///
/// `*.example.com` means every name under `example.com`, but not `example.com` itself. Text that is
/// not a host gives a policy that does not load, never one with another meaning.
pub fn permit_host(session: Option<&SessionId>, host: &str, port: Option<u16>) -> String {
    permit_with(session, None, host, port)
}

/// Permits a session, or every session, to send a host any request that presents a credential. This
/// also suits domains where strangers can register names.
pub fn permit_with(
    session: Option<&SessionId>,
    credential: Option<&CredentialName>,
    host: &str,
    port: Option<u16>,
) -> String {
    let (resource, mut conditions) = host_named("resource", host);
    conditions.extend(port.map(|port| format!("context.port == {port}")));
    let name = credential.map(|name| quoted(name.as_str()));
    conditions.extend(name.map(|name| format!("context.credentials.contains({name})")));
    let named = credential.map_or("", CredentialName::as_str);
    let id = id(&["allow", named, host, &shown(port), name_of(session)]);
    permit(&id, &principal(session), ANY, &resource, &conditions)
}

/// Lends a credential to requests to a host over TLS, for a session or for every session.
///
/// The host is written as for [`permit_host`].
pub fn permit_lend(
    session: Option<&SessionId>,
    credential: &CredentialName,
    host: &str,
    port: Option<u16>,
) -> String {
    let (origin, mut conditions) = host_named("context.origin", host);
    conditions.insert(0, origin);
    conditions.push("context.secure".into());
    conditions.extend(port.map(|port| format!("context.port == {port}")));
    let id = id(&[
        "lend",
        credential.as_str(),
        host,
        &shown(port),
        name_of(session),
    ]);
    let resource = format!("resource == {}", entity("Credential", credential.as_str()));
    permit(&id, &principal(session), LEND, &resource, &conditions)
}

/// Which paths a rule for several requests covers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CoveredPath {
    /// This path.
    Exactly(String),
    /// Everything that begins with this text.
    Below(String),
}

/// Permits every session requests to one origin by these methods, on these paths; on all if none is
/// named.
pub fn permit_requests(origin: &Origin, methods: &[&str], paths: &[CoveredPath]) -> String {
    let mut actions: Vec<Action> = methods.iter().map(|one| Action::of_method(one)).collect();
    actions.sort_unstable_by_key(|action| *action as u8);
    actions.dedup();
    let is_other = actions.contains(&Action::Other);
    let mut conditions: Vec<String> = is_other.then(|| are_methods(methods)).into_iter().collect();
    conditions.extend(are_any_paths(paths));
    let actions: Vec<String> = actions
        .iter()
        .map(|one| entity("Action", one.as_str()))
        .collect();
    let action = format!("action in [{}]", actions.join(", "));
    permit_at("principal", &action, at(origin), None, conditions)
}

/// Lends every session a credential in one place, to requests to one origin by these methods, on
/// these paths; on all if none is named.
pub fn permit_loans(
    origin: &Origin,
    (credential, place): (&CredentialName, &str),
    methods: &[&str],
    paths: &[CoveredPath],
) -> String {
    let mut conditions = vec![are_methods(methods)];
    conditions.extend(are_any_paths(paths));
    let lend = Some(LendQuestion { credential, place });
    permit_at("principal", LEND, at(origin), lend, conditions)
}

/// Forbids the requests to a host by which a service makes credentials that outlive the session: on
/// these paths and below, where `*` stands for one segment, or exactly on a path that ends with
/// `$`. Sessions in a group are exempt.
pub fn forbid_mints(service: &str, host: &str, by_reading: bool, paths: &[&str]) -> String {
    let (action, kind) = if by_reading {
        (ANY, "reads")
    } else {
        ("action in Gateway::Action::\"write\"", "")
    };
    forbid_at((service, host, kind), action, paths, None)
}

/// Forbids requests to a GraphQL endpoint that select one of these mutations, and those whose
/// selection cannot be read: a policy fails if a fact that it reads is missing.
pub fn forbid_mutations(service: &str, host: &str, paths: &[String], names: &[&str]) -> String {
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let names = names.iter().map(|name| quoted(&format!("mutation.{name}")));
    let names = names.collect::<Vec<_>>().join(", ");
    let reads = format!("context.graphql.fields.containsAny([{names}])");
    forbid_at((service, host, "graphql"), ANY, &paths, Some(reads)) + "\n"
}

fn forbid_at(
    (service, host, kind): (&str, &str, &str),
    action: &str,
    paths: &[&str],
    further: Option<String>,
) -> String {
    let (resource, mut conditions) = host_named("resource", host);
    conditions.push(any_of(paths.iter().map(|path| is_below(path)).collect()));
    conditions.extend(further);
    let id = id(&[MINTS, service, host, kind]);
    let group = entity("Group", &making(service));
    forbid(&id, action, &resource, &conditions, &group)
}

/// Writes a policy that forbids, to all but a group.
fn forbid(id: &str, action: &str, resource: &str, when: &[String], group: &str) -> String {
    let when = when.join(" &&\n  ");
    format!(
        "{id}forbid(\n  principal,\n  {action},\n  {resource}\n) when {{\n  {when}\n}} \
         unless {{ principal in {group} }};\n"
    )
}

/// Forbids every request to a host, and to all below it if it is a name. Sessions in a group are
/// exempt.
pub fn forbid_host(kind: &str, host: &Host) -> String {
    let name = host.as_str();
    let resource = match host.ip() {
        Some(_) => host_named("resource", name).0,
        None => format!("resource in {}", entity("Domain", name)),
    };
    forbid_block((kind, name), &resource, "")
}

/// Forbids every request that has content of a media type, or asks for such an answer. Sessions in
/// a group are exempt.
pub fn forbid_media_type(kind: &str, media_type: &str) -> String {
    let (is, asked) = (quoted(media_type), quoted(&format!("accept: {media_type}")));
    let when = format!(
        " when {{\n  context.contentType == {is} ||\n  context.fields.any.contains({asked})\n}}"
    );
    let name = media_type.rsplit('/').next().unwrap_or(media_type);
    forbid_block((kind, name), "resource", &when)
}

/// What a preset's named permission leaves at a host, besides what reads by its method.
#[derive(Debug)]
pub struct LeftRequests {
    /// Requests by these methods, or by any, on these paths.
    pub requests: BTreeSet<(Option<String>, String)>,
    /// What it does not leave although it reads by its method.
    pub but: BTreeSet<String>,
    /// GraphQL endpoints. It leaves no `GET` there, and of mutations those that it names.
    pub graphql: BTreeSet<String>,
    /// The names of these mutations.
    pub mutations: Vec<String>,
}

/// Forbids, at a host, what a preset's named permission does not leave. It leaves no change of
/// protocol, whose messages may do anything. Sessions in a group are exempt.
pub fn forbid_beyond(
    (service, permission, host): (&str, &str, &str),
    left: &LeftRequests,
) -> String {
    let (resource, mut conditions) = host_named("resource", host);
    let known = left.mutations.iter();
    let known = known.map(|name| quoted(&format!("mutation.{name}")));
    let known = known.collect::<Vec<_>>().join(", ");
    let none = String::from("!context.graphql.operations.contains(\"mutation\")");
    let harmless = match known.is_empty() {
        true => none,
        false => format!("({none} ||\n    [{known}].containsAll(context.graphql.fields))"),
    };
    let endpoints: Vec<String> = left.graphql.iter().map(|path| format!("{path}$")).collect();
    let mut reads = String::from("action in Gateway::Action::\"read\"");
    for path in &endpoints {
        reads += &format!(" && !{}", is_below(path));
    }
    let requests = left.requests.iter();
    let requests = requests.map(|(method, path)| is_at(method.as_deref(), path));
    let asks = endpoints.iter();
    let asks = asks.map(|path| format!("({} && {harmless})", is_at(Some("POST"), path)));
    let allowed = std::iter::once(format!("({reads})")).chain(requests);
    let allowed = any_of(allowed.chain(asks).collect());
    let mut beyond = vec![format!("!(context.upgrade == \"\" && {allowed})")];
    beyond.extend(left.but.iter().map(|path| is_below(path)));
    conditions.push(any_of(beyond));
    let id = id(&[PERMISSIONS, service, permission, host]);
    let group = entity("Group", &self::beyond(service, permission));
    forbid(&id, ANY, &resource, &conditions, &group)
}

fn forbid_block((kind, name): (&str, &str), resource: &str, when: &str) -> String {
    let group = entity("Group", &reaching(name));
    let id = id(&[BLOCKS, kind, name]);
    format!(
        "{id}forbid(\n  principal,\n  {ANY},\n  {resource}\n){when} unless {{ principal in {group} }};\n"
    )
}

/// Returns the group that is exempt from this rule of a preset, and what others are refused.
pub fn lifting(rule: &PolicyId) -> Option<(String, &'static str)> {
    let mut parts = rule.as_str().split('/');
    match (parts.next()?, parts.next()?) {
        (MINTS, service) => Some((
            making(service),
            "it makes a credential that outlives the session",
        )),
        (BLOCKS, _) => Some((
            reaching(parts.next()?),
            "it is on the list of what data leaves by",
        )),
        (PERMISSIONS, service) => Some((
            beyond(service, parts.next()?),
            "it is beyond the permission that the preset was named with",
        )),
        _ => None,
    }
}

fn reaching(name: &str) -> String {
    format!("reaches-{name}")
}

fn beyond(service: &str, permission: &str) -> String {
    format!("beyond-{service}-{permission}")
}

fn making(service: &str) -> String {
    format!("makes-{service}-credentials")
}

/// Returns the condition for a path and all paths below it, where `*` stands for one segment; with
/// `$` at its end, for the path alone. It holds if any reading of the path matches.
fn is_below(path: &str) -> String {
    let whole = path.strip_suffix('$');
    let path = whole.unwrap_or(path);
    let named = named_segments(path);
    let most = whole.map(|path| format!("context.depth <= {} && ", path.matches('/').count()));
    let most = most.unwrap_or_default();
    format!("({most}context.anySegments.containsAll([{named}]))")
}

/// Returns the condition for the same in one reading, for what is left: a path that some servers
/// read with further slashes is none, and below `*` nor is one of an API.
fn is_at(method: Option<&str>, path: &str) -> String {
    let whole = path.strip_suffix('$');
    let path = whole.unwrap_or(path);
    let mut all: Vec<String> = method
        .map(|name| are_methods(&[name]))
        .into_iter()
        .collect();
    all.extend(whole.map(|path| format!("context.depth == {}", path.matches('/').count())));
    let named = named_segments(path);
    all.push(format!("context.segments.containsAll([{named}])"));
    let slashes = ["%2F", "%5C"].into_iter();
    all.extend(slashes.map(|one| format!("!(context.path like \"*{one}*\")")));
    if path.starts_with("/*") {
        let api = (0..path.matches('/').count()).map(|at| format!("\"{at}:api\""));
        let api = api.collect::<Vec<_>>().join(", ");
        all.push(format!("!context.anySegments.containsAny([{api}])"));
    }
    format!("({})", all.join(" && "))
}

fn named_segments(path: &str) -> String {
    let segments = path.split('/').skip(1).enumerate();
    let named = segments.filter(|(_, segment)| *segment != "*");
    let named = named.map(|(at, segment)| quoted(&format!("{at}:{segment}")));
    named.collect::<Vec<_>>().join(", ")
}

/// Changes generated rules to apply to a user or group, whatever the session; to every principal if
/// none is named. Removes their `@id`.
pub fn for_whom(rules: &str, whom: Option<(&str, &str)>) -> String {
    let whom = whom.map(|(kind, name)| format!(" in {}", entity(kind, name)));
    let whom = format!("  principal{},", whom.unwrap_or_default());
    // No literal contains a line break.
    let lines = rules.lines().filter(|line| !line.starts_with("@id("));
    let lines = lines.map(|line| {
        if line.starts_with("  principal") {
            &whom
        } else {
            line
        }
    });
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Permits a session, or all, to have commits of a repository, or of any, signed by the key of this
/// fingerprint.
pub fn permit_sign(session: Option<&SessionId>, key: &str, repository: Option<&str>) -> String {
    let action = format!("action == {}", entity("Action", Action::Sign.as_str()));
    let resource = format!("resource == {}", entity("SigningKey", key));
    let when = repository.map(|name| format!("context.repository == {}", quoted(name)));
    let when: Vec<String> = when.into_iter().collect();
    permit("", &principal(session), &action, &resource, &when)
}

/// Permits every session any request: for a watched run that learns what it needs.
pub fn permit_everything() -> String {
    permit(&id(&["learn"]), "principal", ANY, "resource", &[])
}

/// Permits exactly this request's session, host, port, method and path, with any query and content;
/// or exactly this credential use.
pub(super) fn exactly(facts: &Facts<'_>, lend: Option<LendQuestion<'_>>) -> String {
    if let Some(SignQuestion { key, repository }) = facts.signs {
        return permit_sign(Some(facts.session), key, Some(repository));
    }
    let action = lend.map_or(Action::of_method(facts.method), |_| Action::Lend);
    let is_named = matches!(action, Action::Other | Action::Lend);
    let method = is_named.then(|| are_methods(&[facts.method]));
    let mut conditions: Vec<String> = method.into_iter().collect();
    conditions.push(any_of(are_paths(facts.target.path())));
    if !facts.upgrade.is_empty() {
        conditions.push(format!("context.upgrade == {}", quoted(facts.upgrade)));
    }
    let principal = principal(Some(facts.session));
    let action = format!("action == {}", entity("Action", action.as_str()));
    let at = (facts.scheme, facts.host.as_str(), facts.port);
    permit_at(&principal, &action, at, lend, conditions)
}

fn at(origin: &Origin) -> (Scheme, &str, u16) {
    let authority = &origin.authority;
    (origin.scheme, authority.host.as_str(), authority.port)
}

/// Permits requests to one origin, or a credential use to them, on further conditions.
fn permit_at(
    principal: &str,
    action: &str,
    (scheme, host, port): (Scheme, &str, u16),
    lend: Option<LendQuestion<'_>>,
    further: Vec<String>,
) -> String {
    let host = entity("Host", host);
    let origin = lend.map(|_| format!("context.origin == {host}"));
    let mut conditions: Vec<String> = origin.into_iter().collect();
    conditions.push(format!("context.scheme == {}", quoted(scheme.as_str())));
    conditions.push(format!("context.port == {port}"));
    conditions.extend(lend.map(|lend| format!("context.place == {}", quoted(lend.place))));
    conditions.extend(further);
    let lent = lend.map(|lend| entity("Credential", lend.credential.as_str()));
    let resource = format!("resource == {}", lent.unwrap_or(host));
    permit("", principal, action, &resource, &conditions)
}

/// Writes a policy: its `@id` line, if it has one, its scope, and its conditions.
fn permit(id: &str, principal: &str, action: &str, resource: &str, when: &[String]) -> String {
    let when = match when {
        [] => String::new(),
        some => format!(" when {{\n  {}\n}}", some.join(" &&\n  ")),
    };
    format!("{id}permit(\n  {principal},\n  {action},\n  {resource}\n){when};\n")
}

/// Returns the scope for a host or for the names below a domain, and the condition that excludes
/// the domain itself. An IPv6 address has no brackets in a policy.
fn host_named(what: &str, host: &str) -> (String, Vec<String>) {
    let host = host.trim_matches(['[', ']']);
    let Some(domain) = host.strip_prefix("*.") else {
        return (format!("{what} == {}", entity("Host", host)), Vec::new());
    };
    let itself = format!("{what} != {}", entity("Host", domain));
    (
        format!("{what} in {}", entity("Domain", domain)),
        vec![itself],
    )
}

fn are_methods(methods: &[&str]) -> String {
    let are = methods.iter();
    any_of(
        are.map(|one| format!("context.method == {}", quoted(one)))
            .collect(),
    )
}

/// Returns the condition for one of these paths; `None` for every path.
fn are_any_paths(paths: &[CoveredPath]) -> Option<String> {
    let are = paths.iter().flat_map(|path| match path {
        CoveredPath::Exactly(path) => are_paths(path),
        // Other readings of a folder may be any folder: `/;x/` is `/` to some origins.
        CoveredPath::Below(path) => {
            let pattern = quoted(path).replace('*', "\\*");
            let pattern = pattern.strip_suffix('"').unwrap_or(&pattern);
            vec![format!("context.path like {pattern}*\"")]
        }
    });
    let are: Vec<String> = are.collect();
    (!are.is_empty()).then(|| any_of(are))
}

/// Returns conditions for the path and its other readings, all of which must be permitted.
fn are_paths(path: &str) -> Vec<String> {
    let is = |path: &String| format!("context.path == {}", quoted(path));
    readings(path).iter().map(is).collect()
}

fn any_of(conditions: Vec<String>) -> String {
    match conditions.len() {
        1 => conditions.concat(),
        _ => format!("({})", conditions.join(" ||\n   ")),
    }
}

fn principal(session: Option<&SessionId>) -> String {
    let is = |session: &SessionId| format!("principal == {}", entity("Session", session.as_str()));
    session.map_or_else(|| "principal".to_owned(), is)
}

fn name_of(session: Option<&SessionId>) -> &str {
    session.map_or("", SessionId::as_str)
}

fn shown(port: Option<u16>) -> String {
    port.map_or_else(String::new, |port| port.to_string())
}

/// Returns an `@id` line made from the parts that are not empty. If they do not form an id, there
/// is no line, and the policy is named by its position.
fn id(parts: &[&str]) -> String {
    let parts = parts.iter().map(|part| part.trim_matches(['[', ']']));
    let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
    let text = parts.join("/").replace('*', "any");
    let line = |id: PolicyId| format!("@id({})\n", quoted(id.as_str()));
    PolicyId::new(&text).map(line).unwrap_or_default()
}

fn entity(kind: &str, name: &str) -> String {
    format!("Gateway::{kind}::{}", quoted(name))
}

/// Quotes any text as a Cedar string literal or entity id.
fn quoted(text: &str) -> String {
    format!("\"{}\"", EntityId::new(text).escaped())
}

/// The prefix of the ids of rules that forbid the making of credentials.
const MINTS: &str = "mints";
/// The prefix of the ids of rules that forbid hosts.
const BLOCKS: &str = "blocks";
/// The prefix of the ids of rules that forbid what is beyond a preset's named permission.
const PERMISSIONS: &str = "permissions";
const ANY: &str = "action in Gateway::Action::\"any\"";
const LEND: &str = "action == Gateway::Action::\"lend\"";

#[cfg(test)]
mod tests {
    use gateway_message::{EncodedSlash, RequestTarget, Scheme};
    use proptest::prelude::*;

    use super::*;
    use crate::generation::tests::{BEARER, declared, owned, policies};
    use crate::question::OwnedFacts;
    use crate::{Policies, Source};

    fn allows(text: &str, host: &str, port: u16) -> bool {
        let request = OwnedFacts {
            host: host.parse().unwrap(),
            port,
            ..owned()
        };
        policies(text).current().ask(&request.facts()).allowed()
    }

    #[test]
    fn a_host_is_permitted_alone_and_a_wildcard_without_its_apex() {
        let one = permit_host(None, "api.example.com", Some(443));
        assert!(allows(&one, "api.example.com", 443));
        assert!(!allows(&one, "api.example.com", 22));
        assert!(!allows(&one, "x.api.example.com", 443));
        let under = permit_host(None, "*.example.com", None);
        assert!(allows(&under, "api.example.com", 22));
        assert!(!allows(&under, "example.com", 443));
        assert!(!allows(&under, "evilexample.com", 443));
        let session = SessionId::new("s2").unwrap();
        assert!(!allows(
            &permit_host(Some(&session), "api.example.com", None),
            "api.example.com",
            443
        ));
    }

    #[test]
    fn a_blocked_host_is_forbidden_with_all_below_it_but_to_the_group_of_its_name() {
        let hosts = ["webhook.site", "1.1.1.1"].map(|host| host.parse().unwrap());
        let blocks = hosts
            .map(|host| forbid_host("webhook", &host) + "\n")
            .concat();
        let all = "permit(principal, action, resource);\n";
        let text = format!(
            "{all}{blocks}{}",
            forbid_media_type("dns", "application/dns-message")
        );
        let generation = policies(&text).current();
        let asks = |host: &str, group: &str, media_type: &str, accept: &str| {
            let mut request = owned();
            request.host = host.parse().unwrap();
            request.groups = vec![group.into()];
            request
                .fields
                .insert(http::header::CONTENT_TYPE, media_type.parse().unwrap());
            if !accept.is_empty() {
                request
                    .fields
                    .insert(http::header::ACCEPT, accept.parse().unwrap());
            }
            generation.ask(&request.facts()).allowed()
        };
        let (dns, json) = ("application/dns-message", "application/json");
        for (host, group, media_type, accept, allowed) in [
            ("webhook.site", "ci", json, "", false),
            ("x.webhook.site", "ci", json, "", false),
            ("x.webhook.site", "reaches-webhook.site", json, "", true),
            ("notwebhook.site", "ci", json, "*/*", true),
            ("1.1.1.1", "reaches-webhook.site", json, "", false),
            ("1.1.1.1", "reaches-1.1.1.1", json, "", true),
            ("a.example", "ci", dns, "", false),
            (
                "a.example",
                "ci",
                "",
                "text/html, application/dns-message",
                false,
            ),
            ("a.example", "reaches-dns-message", dns, "", true),
        ] {
            let got = asks(host, group, media_type, accept);
            assert_eq!(got, allowed, "{host} {group} {media_type} {accept}");
        }
    }

    #[test]
    fn a_credential_is_lent_to_its_host_over_tls_only() {
        let github = CredentialName::new("github").unwrap();
        let text = permit_lend(None, &github, "api.github.com", Some(443));
        let generation = policies(&text).current();
        let lends =
            |request: &OwnedFacts| generation.lend(&request.facts(), &github, BEARER).allowed();
        assert!(lends(&owned()));
        assert!(!lends(&OwnedFacts {
            host: "github.com".parse().unwrap(),
            ..owned()
        }));
        assert!(!lends(&OwnedFacts {
            scheme: Scheme::Http,
            ..owned()
        }));
        assert!(!lends(&OwnedFacts {
            port: 8443,
            ..owned()
        }));
        assert!(!generation.ask(&owned().facts()).allowed());
    }

    #[test]
    fn a_hostile_host_makes_no_other_policy() {
        for host in [
            "\"); permit(principal, action, resource); //",
            "a.b\" || true || resource == Gateway::Host::\"c",
            "a.b\\\"",
            "*.\"",
            "*.com",
            "*",
            "",
            "a.b\n@id(\"x\")",
            "a.b:443",
            "A.b",
        ] {
            let text = permit_host(None, host, Some(443));
            assert!(
                Policies::load(&[Source::new("--allow", text.clone())], declared()).is_err(),
                "{host}: {text}"
            );
            let github = CredentialName::new("github").unwrap();
            let text = permit_lend(None, &github, host, None);
            assert!(
                Policies::load(&[Source::new("--secret", text.clone())], declared()).is_err(),
                "{host}: {text}"
            );
        }
    }

    #[test]
    fn learned_requests_are_permitted_by_method_and_path_and_no_others() {
        let origin = Origin {
            scheme: Scheme::Https,
            authority: gateway_message::Authority {
                host: "api.example.com".parse().unwrap(),
                port: 443,
            },
        };
        let paths = [
            CoveredPath::Exactly("/a".to_owned()),
            CoveredPath::Below("/v*\"1/".to_owned()),
        ];
        let text = permit_requests(&origin, &["GET", "PROPFIND"], &paths);
        let generation = policies(&text).current();
        let allowed = |method: &str, path: &str, port: u16| {
            let target = RequestTarget::parse(path.as_bytes(), EncodedSlash::Keep).unwrap();
            let request = OwnedFacts {
                host: "api.example.com".parse().unwrap(),
                method: method.to_owned(),
                target,
                port,
                ..owned()
            };
            generation.ask(&request.facts()).allowed()
        };
        assert!(allowed("GET", "/a", 443) && allowed("PROPFIND", "/a", 443));
        for (method, path, port) in [
            ("POST", "/a", 443),
            ("MKCOL", "/a", 443),
            ("GET", "/a/b", 443),
            ("GET", "/vX1/b", 443),
            ("GET", "/a", 8443),
        ] {
            assert!(!allowed(method, path, port), "{method} {path} {port}");
        }
        let odd = permit_requests(&origin, &["GET"], &[CoveredPath::Below("/;x/".to_owned())]);
        assert!(!odd.contains("\"/*\""), "{odd}");
        assert!(policies(&permit_everything()).current().len() == 1);
    }

    #[test]
    fn a_learned_loan_is_for_its_place_its_methods_and_its_paths() {
        let request = owned();
        let authority = gateway_message::Authority {
            host: request.host.clone(),
            port: request.port,
        };
        let scheme = request.scheme;
        let origin = Origin { scheme, authority };
        let github = CredentialName::new("github").unwrap();
        let paths = [CoveredPath::Exactly(request.target.path().to_owned())];
        let (asks, place) = ([request.method.as_str()], (&github, BEARER));
        let text = permit_loans(&origin, place, &asks, &paths);
        let generation = policies(&text).current();
        let lends = |request: &OwnedFacts, place| {
            let verdict = generation.lend(&request.facts(), &github, place);
            verdict.allowed()
        };
        assert!(lends(&request, BEARER));
        assert!(!lends(&request, "cookie:sid"));
        let target = RequestTarget::parse(b"/other", EncodedSlash::Keep).unwrap();
        let method = "DELETE".to_owned();
        let clear = Scheme::Http;
        for other in [
            OwnedFacts {
                target,
                ..request.clone()
            },
            OwnedFacts {
                method,
                ..request.clone()
            },
            OwnedFacts {
                scheme: clear,
                ..request.clone()
            },
            OwnedFacts { port: 1, ..request },
        ] {
            assert!(!lends(&other, BEARER));
        }
    }

    proptest! {
        #[test]
        fn a_proposal_for_any_text_loads_and_allows_just_that(path in "/([a-z\"'*/.=&$;(]|%2[0-9]){0,20}", method in "[!-~]{1,9}", upgrade in "(websocket)?") {
            let Ok(target) = RequestTarget::parse(path.as_bytes(), EncodedSlash::Keep) else {
                return Err(TestCaseError::reject("no target"));
            };
            let request = OwnedFacts { target, method, upgrade, ..owned() };
            let text = exactly(&request.facts(), None);
            let loaded = policies(&text);
            prop_assert_eq!(loaded.current().len(), 1);
            prop_assert!(loaded.current().ask(&request.facts()).allowed(), "{}", text);
            let longer = format!("{}x", request.target.path());
            let target = RequestTarget::parse(longer.as_bytes(), EncodedSlash::Keep).unwrap();
            let other = OwnedFacts { target, ..request };
            prop_assert!(!loaded.current().ask(&other.facts()).allowed());
        }

        #[test]
        fn any_text_stays_inside_its_quotes(text in ".*") {
            let policy = format!("permit(principal, action, resource == Gateway::Host::{});", quoted(&text));
            let parsed: cedar_policy::Policy = policy.parse().unwrap();
            let literals = parsed.entity_literals();
            prop_assert_eq!(literals[0].id().unescaped(), text);
        }
    }
}
