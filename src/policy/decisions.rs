//! Decision files: requests with their expected verdicts, judged by the same code that enforces
//! policy.
//!
//! ```toml
//! [request]                 # defaults for every decision; every key is optional
//! session = "ci"
//! groups = ["team"]
//!
//! [[decision]]
//! name = "reads its repository"
//! url = "GET https://api.github.com/repos/o/r?page=2"
//! fields = ["accept: application/json"]
//! expect = "allow"
//! by = ["github/read"]      # optional: exactly the policies that decide; empty: default denial
//!
//! [[decision]]
//! name = "refunds a little"
//! url = "POST https://api.stripe.com/v1/refunds"
//! content_type = "application/x-www-form-urlencoded"
//! content = "amount=500"
//! expect = "allow"
//!
//! [[decision]]
//! name = "deletes no ref"
//! url = "https://api.github.com/graphql"
//! graphql = "mutation { deleteRef(input: {}) { id } }"    # also `git`, `mcp` and `model`
//! expect = "deny"
//!
//! [[decision]]
//! name = "lends the token to the API only"
//! url = "https://example.com/"
//! lend = "github"           # asks for the credential use instead of the request
//! place = "header:authorization:Bearer"
//! expect = "deny"
//!
//! [[decision]]
//! name = "signs commits of one repository"
//! sign = "SHA256:…"         # asks for a signature by the key of this fingerprint, without `url`
//! repository = "github.com/octo/hello"
//! expect = "allow"
//! ```

use std::collections::BTreeSet;
use std::time::SystemTime;

use gateway_body::fact::PlainContent;
use gateway_body::read::Protocol;
use gateway_message::{
    Authority, EncodedSlash, Host, Origin, Place, RequestHead, RequestTarget, Scheme,
};
use gateway_names::{CredentialName, PolicyId, SessionId, User};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, Version};
use serde::Deserialize;
use serde_json::json;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use toml::Spanned;
use toml::de::DeTable;

use super::content::{ContentFacts, Declared};
use super::explain::Explanation;
use super::generation::{Generation, Policies};
use super::question::{LendQuestion, OwnedFacts};
use super::verdict::{Outcome, Verdict};

/// The result of running a decision file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DecisionReport {
    /// How many decisions were as expected.
    pub passed: usize,
    /// The decisions that were not as expected, in file order.
    pub failed: Vec<UnexpectedDecision>,
}

/// A decision that was not as expected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnexpectedDecision {
    /// The decision's name.
    pub name: String,
    /// What was expected.
    pub expected: String,
    /// What was decided, and by which policies.
    pub decided: String,
    /// The explanation of the decision.
    pub reason: String,
}

/// Why a decision file cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum Malformed {
    /// It is not valid TOML, or has an unknown key.
    #[error("{place}{what}")]
    Toml {
        /// The line, if the parser knows it.
        place: String,
        /// The parser's message.
        what: String,
    },
    /// It contains no decision, so it is probably the wrong file.
    #[error("the file has no `[[decision]]`")]
    Empty,
    /// A decision does not describe a valid request.
    #[error("decision `{name}`: {reason}")]
    Decision {
        /// The decision's name.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl Malformed {
    /// `begin` is where the parsed part begins, for an error without a position.
    fn toml(error: &toml::de::Error, text: &str, begin: Option<usize>) -> Self {
        let at = error.span().map(|span| span.start).or(begin);
        let before = at.and_then(|at| text.get(..at));
        let line = before.map(|before| 1 + before.matches('\n').count());
        Self::Toml {
            place: line.map_or_else(String::new, |line| format!("line {line}: ")),
            what: error.message().to_owned(),
        }
    }
}

/// Judges every decision of a file.
///
/// # Errors
/// [`Malformed`]. No decision is run then.
pub fn run(
    policies: &Policies,
    text: &str,
    is_batch: impl Fn(&Host, &RequestTarget) -> bool,
    slashes: impl Fn(&Origin) -> EncodedSlash,
) -> Result<DecisionReport, Malformed> {
    let file: File = toml::from_str(text).map_err(|error| Malformed::toml(&error, text, None))?;
    if file.decision.is_empty() {
        return Err(Malformed::Empty);
    }
    let cases = file.decision.into_iter().enumerate().map(|(at, decision)| {
        let begin = decision.span().start;
        let mut decision = decision.into_inner();
        for (key, value) in &file.request {
            decision.entry(key).or_insert_with(|| value.clone());
        }
        if decision.contains_key("sign") {
            decision
                .entry("url")
                .or_insert_with(|| String::new().into());
        }
        let decision: WrittenDecision = decision.try_into().map_err(|error| {
            let key = key_of(&error).and_then(|key| place_of(text, at, &key));
            Malformed::toml(&error, text, key.or(Some(begin)))
        })?;
        let name = decision.name.clone();
        DecisionCase::new(decision, policies.declared(), &slashes)
            .map_err(|reason| Malformed::Decision { name, reason })
    });
    let mut cases: Vec<DecisionCase> = cases.collect::<Result<_, _>>()?;
    for DecisionCase { request, .. } in &mut cases {
        request.batch = is_batch(&request.host, &request.target);
    }
    let generation = policies.current();
    let failed: Vec<UnexpectedDecision> = cases
        .iter()
        .filter_map(|case| case.judge(&generation))
        .collect();
    Ok(DecisionReport {
        passed: cases.len() - failed.len(),
        failed,
    })
}

/// Judges a request that was not made, written as `POST https://…` and with keys of a decision.
///
/// # Errors
/// [`Malformed`].
pub fn ask(
    policies: &Policies,
    url: &str,
    keys: toml::Table,
    is_batch: impl Fn(&Host, &RequestTarget) -> bool,
    slashes: impl Fn(&Origin) -> EncodedSlash,
) -> Result<(OwnedFacts, Verdict, Explanation), Malformed> {
    let malformed = |reason| Malformed::Decision {
        name: url.to_owned(),
        reason,
    };
    let own = ["name", "url", "expect", "by"];
    if let Some(key) = own.into_iter().find(|key| keys.contains_key(*key)) {
        return Err(malformed(format!(
            "`{key}` is a key of decision files alone"
        )));
    }
    let mut decision = keys;
    for (key, value) in [("name", url), ("url", url), ("expect", "allow")] {
        decision.insert(key.to_owned(), value.into());
    }
    let decision = decision
        .try_into()
        .map_err(|error: toml::de::Error| malformed(error.message().to_owned()))?;
    let mut case = DecisionCase::new(decision, policies.declared(), slashes).map_err(malformed)?;
    case.request.batch = is_batch(&case.request.host, &case.request.target);
    let (verdict, explanation) = case.judged(&policies.current());
    Ok((case.request, verdict, explanation))
}

/// The key that a mistake is about, if it is about one that is there.
fn key_of(error: &toml::de::Error) -> Option<String> {
    let told = error.to_string();
    let mut named = ["\nin `", "unknown field `"].into_iter();
    let (_, rest) = named.find_map(|before| told.split_once(before))?;
    rest.split(['`', '.']).next().map(str::to_owned)
}

/// Returns where a key of a decision is: in its own table, or in `[request]`.
fn place_of(text: &str, decision: usize, key: &str) -> Option<usize> {
    let file = DeTable::parse(text).ok()?;
    let file = file.get_ref();
    let own = file
        .get("decision")
        .and_then(|all| all.get_ref().as_array());
    let own = own.and_then(|all| all.get(decision)?.get_ref().as_table());
    let defaults = file
        .get("request")
        .and_then(|table| table.get_ref().as_table());
    let keys = [own, defaults]
        .into_iter()
        .flatten()
        .flat_map(DeTable::keys);
    let mut found = keys.filter(|one| one.get_ref() == key);
    found.next().map(|one| one.span().start)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// Defaults for every decision.
    #[serde(default)]
    request: toml::Table,
    #[serde(default)]
    decision: Vec<Spanned<toml::Table>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenDecision {
    name: String,
    url: String,
    /// The fingerprint of the key that is to sign a commit.
    sign: Option<String>,
    #[serde(default)]
    repository: String,
    expect: Expect,
    by: Option<Vec<String>>,
    lend: Option<String>,
    place: Option<String>,
    #[serde(default = "test_session")]
    session: String,
    user: Option<String>,
    #[serde(default)]
    groups: Vec<String>,
    /// The labels that the session has.
    #[serde(default)]
    labels: Vec<String>,
    /// The labels that the request gives it.
    gives: Option<Vec<String>>,
    entry: Option<String>,
    #[serde(default = "new_year")]
    now: String,
    method: Option<String>,
    #[serde(default)]
    fields: Vec<String>,
    content_type: Option<String>,
    content: Option<String>,
    content_length: Option<u64>,
    /// What a push changes: `update refs/heads/main`.
    git: Option<Vec<String>>,
    /// A document.
    graphql: Option<String>,
    /// The name of the tool that is called.
    mcp: Option<String>,
    /// The name of the model that is asked.
    model: Option<String>,
    #[serde(default)]
    upgrade: String,
    #[serde(default)]
    credentials: Vec<String>,
    #[serde(default)]
    actions: Vec<String>,
}

impl WrittenDecision {
    /// The content that is written in the words of its protocol, with its media type.
    fn spoken(&self) -> Result<Option<(Protocol, &'static str, String)>, String> {
        let json = |protocol, content: serde_json::Value| {
            Ok((protocol, "application/json", content.to_string()))
        };
        let call = |tool| json!({"name": tool, "arguments": {}});
        let call =
            |tool| json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call(tool)});
        let graphql = self.graphql.as_ref().map(|text| json!({"query": text}));
        let mcp = self.mcp.as_ref().map(call);
        let model = self.model.as_ref().map(|name| json!({"model": name}));
        let written = [
            self.git.as_deref().map(push),
            graphql.map(|content| json(Protocol::Graphql, content)),
            mcp.map(|content| json(Protocol::Mcp, content)),
            model.map(|content| json(Protocol::Model, content)),
        ];
        let mut written = written.into_iter().flatten();
        let first = written.next().transpose()?;
        if first.is_some() && (written.next().is_some() || self.content.is_some()) {
            return Err(
                "one of `content`, `git`, `graphql`, `mcp` and `model` says its content".into(),
            );
        }
        Ok(first)
    }

    /// The method and the URL. Either may say the method, and none contradicts the other.
    fn target(&self) -> Result<(Option<&str>, Uri), String> {
        let (first, url) = match self.url.split_once(' ') {
            Some((method, url)) => (Some(method), url),
            None => (None, self.url.as_str()),
        };
        let method = match (first, self.method.as_deref()) {
            (Some(first), Some(other)) if first != other => {
                return Err(format!(
                    "its method is `{first}` in `url` and `{other}` in `method`"
                ));
            }
            (first, other) => first.or(other),
        };
        let uri = url.parse().map_err(|error| format!("`url`: {error}"))?;
        Ok((method, uri))
    }
}

/// The content of a push that has these commands and no objects.
fn push(commands: &[String]) -> Result<(Protocol, &'static str, String), String> {
    if commands.is_empty() {
        return Err("`git` names no ref".into());
    }
    let mut content = String::new();
    for command in commands {
        let [none, some] = ["0", "5"].map(|digit| digit.repeat(40));
        let (old, new, name) = match command.split_once(' ') {
            Some(("create", name)) => (&none, &some, name),
            Some(("update", name)) => (&some, &some, name),
            Some(("delete", name)) => (&some, &none, name),
            _ => {
                return Err(format!(
                    "`git`: `{command}` is no `create`, `update` or `delete` of a ref"
                ));
            }
        };
        let asks = ["\0 report-status", ""][usize::from(!content.is_empty())];
        let line = format!("{old} {new} {name}{asks}");
        content += &format!("{:04x}{line}", line.len() + 4);
    }
    Ok((
        Protocol::Git,
        "application/x-git-receive-pack-request",
        content + "0000",
    ))
}

fn test_session() -> String {
    "test".to_owned()
}

fn new_year() -> String {
    "2026-01-01T00:00:00Z".to_owned()
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Expect {
    Allow,
    Ask,
    Budget,
    Deny,
}

impl Expect {
    fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Budget => "budget",
            Self::Deny => "deny",
        }
    }
}

/// A decision and the request it is about.
struct DecisionCase {
    name: String,
    expect: Expect,
    by: Option<Vec<String>>,
    gives: Option<Vec<String>>,
    lend: Option<(CredentialName, String)>,
    request: OwnedFacts,
}

impl DecisionCase {
    fn new(
        decision: WrittenDecision,
        declared: &Declared,
        slashes: impl Fn(&Origin) -> EncodedSlash,
    ) -> Result<Self, String> {
        let lend = match (&decision.lend, &decision.place) {
            (Some(lend), Some(place)) => {
                let place: Place = place.parse().map_err(|error| format!("`place`: {error}"))?;
                Some((credential(lend)?, place.to_string()))
            }
            (Some(_), None) | (None, Some(_)) => {
                return Err("`lend` and `place` go together".into());
            }
            (None, None) => None,
        };
        Ok(Self {
            request: request(&decision, declared, slashes)?,
            name: decision.name,
            expect: decision.expect,
            by: decision.by,
            gives: decision.gives,
            lend,
        })
    }

    /// What the policies say, and why.
    fn judged(&self, generation: &Generation) -> (Verdict, Explanation) {
        let facts = self.request.facts();
        let lend = self.lend.as_ref();
        let verdict = generation.judge(
            (&facts).into(),
            lend.map(|(credential, place)| LendQuestion { credential, place }),
        );
        let explanation = match lend {
            Some((credential, place)) => {
                generation.explain_use(&facts, credential, place, &verdict)
            }
            None => generation.explain(&facts, &verdict),
        };
        (verdict, explanation)
    }

    fn judge(&self, generation: &Generation) -> Option<UnexpectedDecision> {
        let (verdict, explanation) = self.judged(generation);
        if self.is_met_by(&verdict) {
            return None;
        }
        let decided = verdict.deciding();
        let names: Vec<&str> = decided.iter().map(PolicyId::as_str).collect();
        let expected = self.expect.as_str();
        let by = self
            .by
            .as_ref()
            .map_or_else(String::new, |by| format!(" by {by:?}"));
        let given = verdict.obligations.iter().flat_map(|all| &all.labels);
        let given: Vec<&str> = given.map(|label| &**label).collect();
        let [gives, given] = [
            self.gives
                .as_ref()
                .map(|gives| format!(", gives {gives:?}")),
            self.gives.as_ref().map(|_| format!(", gives {given:?}")),
        ]
        .map(Option::unwrap_or_default);
        Some(UnexpectedDecision {
            name: self.name.clone(),
            expected: format!("{expected}{by}{gives}"),
            decided: format!("{} by {names:?}{given}", verdict.outcome.word()),
            reason: explanation.reason,
        })
    }

    fn is_met_by(&self, verdict: &Verdict) -> bool {
        let decided = verdict.deciding();
        let outcome = match verdict.outcome {
            Outcome::Allowed => Expect::Allow,
            Outcome::Asked => Expect::Ask,
            Outcome::Budgeted => Expect::Budget,
            _ => Expect::Deny,
        };
        let by_those = self.by.as_ref().is_none_or(|by| {
            let is_named = |id: &PolicyId| by.iter().any(|one| one == id.as_str());
            by.len() == decided.len() && decided.iter().all(is_named)
        });
        let given = verdict.obligations.iter().flat_map(|all| &all.labels);
        let given: BTreeSet<&str> = given.map(|label| &**label).collect();
        let gives_those = self.gives.as_ref().is_none_or(|gives| {
            given.len() == gives.len() && gives.iter().all(|one| given.contains(one.as_str()))
        });
        outcome == self.expect && by_those && gives_those
    }
}

/// Returns the signature that a decision describes.
fn signature(decision: &WrittenDecision, key: &str) -> Result<OwnedFacts, String> {
    if !decision.url.is_empty() || decision.lend.is_some() {
        return Err("`sign` goes without `url` and `lend`".into());
    }
    let mut signing = OwnedFacts::signing(session(decision)?, key, &decision.repository);
    asker(decision, &mut signing)?;
    Ok(signing)
}

fn session(decision: &WrittenDecision) -> Result<SessionId, String> {
    SessionId::new(&decision.session).map_err(|error| format!("`session`: {error}"))
}

/// Sets who asks, and when.
fn asker(decision: &WrittenDecision, request: &mut OwnedFacts) -> Result<(), String> {
    request.user = match &decision.user {
        Some(user) => Some(User::new(user).ok_or("`user`: it is no user's name")?),
        None => None,
    };
    let groups = decision.groups.iter().map(|group| group.as_str().into());
    request.groups = groups.collect();
    let labels = decision.labels.iter().map(|label| label.as_str().into());
    request.labels = labels.collect();
    request.now = instant(&decision.now)?;
    Ok(())
}

/// Returns the request that a decision describes, canonicalised as the gateway would.
fn request(
    decision: &WrittenDecision,
    declared: &Declared,
    slashes: impl Fn(&Origin) -> EncodedSlash,
) -> Result<OwnedFacts, String> {
    if let Some(key) = &decision.sign {
        return signature(decision, key);
    }
    let (method, uri) = decision.target()?;
    let spoken = decision.spoken()?;
    let (scheme, host, port) = authority(&uri)?;
    let origin = Origin {
        scheme,
        authority: Authority {
            host: host.clone(),
            port,
        },
    };
    let target = target(&uri, slashes(&origin))?;
    let mut request = OwnedFacts::new(session(decision)?, scheme, host, target);
    asker(decision, &mut request)?;
    request.port = port;
    request.entry = decision.entry.clone().unwrap_or(request.entry);
    let usual = if spoken.is_some() { "POST" } else { "GET" };
    request.method = method.unwrap_or(usual).to_owned();
    request.fields = field_map(&decision.fields)?;
    let kind = spoken.as_ref().map(|(_, kind, _)| *kind);
    if let Some(kind) = kind.or(decision.content_type.as_deref()) {
        let kind: HeaderValue = kind
            .parse()
            .map_err(|error| format!("`content_type`: {error}"))?;
        request.fields.append(CONTENT_TYPE, kind);
    }
    let text = spoken.as_ref().map(|(.., text)| text);
    let text = text.or(decision.content.as_ref()).map(String::as_str);
    let length = text.map_or(0, str::len);
    request.content_length = Some(decision.content_length.unwrap_or(length as u64));
    request.upgrade.clone_from(&decision.upgrade);
    let said = content(&request, text, declared)?;
    if let Some((protocol, ..)) = spoken {
        said.speaks(protocol)?;
    }
    request.content = Some(said);
    request.credentials = decision
        .credentials
        .iter()
        .map(|name| credential(name))
        .collect::<Result<_, _>>()?;
    request.actions.clone_from(&decision.actions);
    Ok(request)
}

/// Returns the facts read from the content.
fn content(
    request: &OwnedFacts,
    text: Option<&str>,
    declared: &Declared,
) -> Result<ContentFacts, String> {
    let authority = Authority {
        host: request.host.clone(),
        port: request.port,
    };
    let head = RequestHead {
        method: Method::from_bytes(request.method.as_bytes())
            .map_err(|error| format!("`method`: {error}"))?,
        origin: Origin {
            scheme: request.scheme,
            authority,
        },
        target: request.target.clone(),
        fields: request.fields.clone(),
        version: Version::HTTP_11,
    };
    let content = PlainContent {
        bytes: text.unwrap_or_default().to_owned().into(),
        ..PlainContent::default()
    };
    Ok(declared.read(&head, !request.upgrade.is_empty(), &content))
}

fn credential(name: &str) -> Result<CredentialName, String> {
    CredentialName::new(name).map_err(|error| format!("`{name}`: {error}"))
}

/// Returns the scheme, host and port of a URL, canonicalised as the gateway would.
fn authority(uri: &Uri) -> Result<(Scheme, Host, u16), String> {
    let scheme = match uri.scheme_str() {
        Some("http") => Scheme::Http,
        Some("https") => Scheme::Https,
        _ => return Err("`url` is neither http nor https".into()),
    };
    let host = uri.host().ok_or("`url` has no host")?;
    let host = Host::parse(host.as_bytes()).map_err(|error| format!("`url`: {error}"))?;
    Ok((
        scheme,
        host,
        uri.port_u16().unwrap_or(scheme.default_port()),
    ))
}

fn target(uri: &Uri, slashes: EncodedSlash) -> Result<RequestTarget, String> {
    let whole = uri.path_and_query().ok_or("`url` has no path")?;
    RequestTarget::judged(whole.as_str().as_bytes(), slashes)
        .map_err(|error| format!("`url`: {error}"))
}

fn instant(text: &str) -> Result<SystemTime, String> {
    OffsetDateTime::parse(text, &Rfc3339)
        .map(Into::into)
        .map_err(|error| format!("`now`: {error}"))
}

fn field_map(lines: &[String]) -> Result<HeaderMap, String> {
    let mut map = HeaderMap::new();
    for line in lines {
        let (name, value) = line
            .split_once(':')
            .ok_or_else(|| format!("`{line}` is not `name: value`"))?;
        let name: HeaderName = name.parse().map_err(|error| format!("`{line}`: {error}"))?;
        let value: HeaderValue = value
            .trim()
            .parse()
            .map_err(|error| format!("`{line}`: {error}"))?;
        map.append(name, value);
    }
    Ok(map)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generation::tests::policies;

    const POLICY: &str = r#"@id("reads") permit(principal in Gateway::Group::"ci", action in Gateway::Action::"read",
        resource == Gateway::Host::"api.github.com") when { context.prefixes.contains("/repos/o/r") };"#;

    fn file(decision: &str) -> Result<DecisionReport, Malformed> {
        let text = format!("[request]\ngroups = [\"ci\"]\n[[decision]]\nname = \"it\"\n{decision}");
        run(
            &policies(POLICY),
            &text,
            |_, _| false,
            |_| EncodedSlash::Refuse,
        )
    }

    #[test]
    fn decisions_are_compared_with_verdict_and_policies() {
        let url = "url = \"https://api.github.com/repos/o/r/issues\"\n";
        for (rest, passes) in [
            ("expect = \"allow\"", true),
            ("expect = \"allow\"\nby = [\"reads\"]", true),
            ("expect = \"allow\"\nby = [\"other\"]", false),
            ("expect = \"deny\"", false),
            ("expect = \"deny\"\nmethod = \"POST\"\nby = []", true),
            ("expect = \"deny\"\ngroups = []", true),
            (
                "expect = \"deny\"\nlend = \"github\"\nplace = \"basic:user\"",
                true,
            ),
        ] {
            let report = file(&format!("{url}{rest}")).unwrap();
            assert_eq!(
                (report.passed, report.failed.len()),
                (usize::from(passes), usize::from(!passes)),
                "{rest}"
            );
        }
    }

    #[test]
    fn a_surprise_says_what_was_decided_and_why() {
        let report = file("url = \"https://api.github.com/x\"\nexpect = \"allow\"").unwrap();
        let surprise = &report.failed[0];
        assert_eq!(surprise.decided, "policy_default_deny by []");
        assert!(
            surprise.reason.contains("`reads` covers"),
            "{}",
            surprise.reason
        );
    }

    #[test]
    fn a_file_that_describes_no_request_is_not_run() {
        for bad in [
            "url = \"https://a b/\"\nexpect = \"allow\"",
            "url = \"/x\"\nexpect = \"allow\"",
            "url = \"https://a.b/\"\nexpect = \"maybe\"",
            "url = \"https://a.b/\"\nexpect = \"allow\"\nhots = 1",
            "url = \"https://a.b/\"\nexpect = \"allow\"\nplace = \"basic:user\"",
            "url = \"https://a.b/\"\nexpect = \"deny\"\nlend = \"c\"",
            "url = \"https://a.b/%2f\"\nexpect = \"deny\"",
            "url = \"https://a.b/\"\nexpect = \"allow\"\nnow = \"noon\"",
            "url = \"https://a.b/\"\nexpect = \"allow\"\nfields = [\"no\"]",
            "url = \"GET https://a.b/\"\nexpect = \"allow\"\nmethod = \"POST\"",
            "url = \"https://a.b/\"\nexpect = \"allow\"\ngraphql = \"{ me }\"",
        ] {
            assert!(file(bad).is_err(), "{bad}");
        }
        assert!(matches!(
            run(&policies(""), "", |_, _| false, |_| EncodedSlash::Refuse),
            Err(Malformed::Empty)
        ));
    }

    #[test]
    fn a_mistake_is_told_in_one_sentence_with_its_line() {
        let text = "# decisions\n[[test]]\nexpct = \"y\"\n";
        let told = run(
            &policies(POLICY),
            text,
            |_, _| false,
            |_| EncodedSlash::Refuse,
        );
        let told = told
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default();
        assert!(told.starts_with("line 2: unknown field `test`"), "{told}");
        assert!(!told.contains('\n'), "{told}");
        let first = "[[decision]]\nname = \"a\"\nurl = \"https://a.test/\"\nexpect = \"allow\"\n";
        for (line, what, at) in [
            (
                "mehtod = \"GET\"\nurl = \"https://a.test/\"\nexpect = \"deny\"",
                "mehtod",
                8,
            ),
            ("url = \"https://a.test/\"\nexpect = \"yes\"", "yes", 9),
            // A missing key has only the line of its table.
            ("expect = \"deny\"", "url", 6),
        ] {
            let text = format!("{first}\n[[decision]]\nname = \"b\"\n{line}\n");
            let told = run(
                &policies(POLICY),
                &text,
                |_, _| false,
                |_| EncodedSlash::Refuse,
            )
            .err()
            .unwrap();
            let told = told.to_string();
            assert!(
                told.starts_with(&format!("line {at}: ")) && told.contains(what),
                "{told}"
            );
        }
    }
}
