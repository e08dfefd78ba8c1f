//! Decision files: requests and the verdicts that are expected of them, judged by the very code
//! that enforces.
//!
//! ```toml
//! [request]                 # what every decision begins with; every key is optional
//! session = "ci"
//! groups = ["team"]
//!
//! [[decision]]
//! name = "reads its repository"
//! url = "https://api.github.com/repos/o/r?page=2"
//! method = "GET"
//! fields = ["accept: application/json"]
//! expect = "allow"
//! by = ["github/read"]      # optional: exactly the policies that decide; none: default denial
//!
//! [[decision]]
//! name = "lends the token to the API only"
//! url = "https://example.com/"
//! lend = "github"           # asks for the loan instead of the request
//! place = "header:authorization:Bearer"
//! expect = "deny"
//! ```

use std::sync::Arc;
use std::time::SystemTime;

use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use serde::Deserialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::facts::{Facts, Loan};
use super::generation::Generation;
use super::verdict::Verdict;
use crate::message::{EncodedSlash, Host, Place, RequestTarget, Scheme, is_batch};
use crate::names::{CredentialName, PolicyId, SessionId};

/// What came of a decision file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// Decisions that were as expected.
    pub passed: usize,
    /// Decisions that were not, in the file's order.
    pub failed: Vec<Surprise>,
}

/// A decision that was not as expected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Surprise {
    /// The decision's name.
    pub name: String,
    /// What was expected.
    pub expected: String,
    /// What was decided, and by which policies.
    pub decided: String,
    /// Why.
    pub reason: String,
}

/// A decision file cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum Malformed {
    /// It is no TOML, or has a key that does not exist.
    #[error("{0}")]
    Toml(#[from] toml::de::Error),
    /// It decides nothing: probably not the file that was meant.
    #[error("the file has no `[[decision]]`")]
    Empty,
    /// A decision describes no request.
    #[error("decision `{name}`: {reason}")]
    Decision {
        /// The decision's name.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// Judges every decision of a file.
///
/// # Errors
/// [`Malformed`]; no decision is run then.
pub fn run(generation: &Generation, text: &str) -> Result<Report, Malformed> {
    let file: File = toml::from_str(text)?;
    if file.decision.is_empty() {
        return Err(Malformed::Empty);
    }
    let mut report = Report {
        passed: 0,
        failed: Vec::new(),
    };
    let cases: Vec<Case> = file
        .decision
        .into_iter()
        .map(|decision| {
            let name = decision.name.clone();
            Case::new(decision, &file.request)
                .map_err(|reason| Malformed::Decision { name, reason })
        })
        .collect::<Result<_, _>>()?;
    for case in cases {
        match case.judge(generation) {
            None => report.passed += 1,
            Some(surprise) => report.failed.push(surprise),
        }
    }
    Ok(report)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    request: Defaults,
    #[serde(default)]
    decision: Vec<Decision>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Defaults {
    session: Option<String>,
    groups: Option<Vec<String>>,
    labels: Option<Vec<String>>,
    entry: Option<String>,
    now: Option<String>,
    method: Option<String>,
    fields: Option<Vec<String>>,
    content_length: Option<u64>,
    upgrade: Option<String>,
    credentials: Option<Vec<String>>,
    actions: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Decision {
    name: String,
    url: String,
    expect: Expect,
    by: Option<Vec<String>>,
    lend: Option<String>,
    place: Option<String>,
    session: Option<String>,
    groups: Option<Vec<String>>,
    labels: Option<Vec<String>>,
    entry: Option<String>,
    now: Option<String>,
    method: Option<String>,
    fields: Option<Vec<String>>,
    content_length: Option<u64>,
    upgrade: Option<String>,
    credentials: Option<Vec<String>>,
    actions: Option<Vec<String>>,
}

#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Expect {
    Allow,
    Deny,
}

/// A decision with everything that its facts borrow from.
struct Case {
    name: String,
    expect: Expect,
    by: Option<Vec<String>>,
    loan: Option<(CredentialName, String)>,
    session: SessionId,
    groups: Vec<Arc<str>>,
    labels: Vec<Arc<str>>,
    entry: String,
    now: SystemTime,
    scheme: Scheme,
    host: Host,
    port: u16,
    method: String,
    target: RequestTarget,
    fields: HeaderMap,
    content_length: Option<u64>,
    upgrade: String,
    credentials: Vec<CredentialName>,
    actions: Vec<String>,
}

impl Case {
    fn new(decision: Decision, defaults: &Defaults) -> Result<Self, String> {
        let or = |own: Option<String>, default: &Option<String>, last: &str| {
            own.or_else(|| default.clone())
                .unwrap_or_else(|| last.to_owned())
        };
        let all = |own: Option<Vec<String>>, default: &Option<Vec<String>>| {
            own.or_else(|| default.clone()).unwrap_or_default()
        };
        let uri: Uri = decision
            .url
            .parse()
            .map_err(|error| format!("`url`: {error}"))?;
        let (scheme, host, port) = authority(&uri)?;
        let credential =
            |name: &String| CredentialName::new(name).map_err(|error| format!("`{name}`: {error}"));
        let loan = match (decision.lend, decision.place) {
            (Some(lend), Some(place)) => {
                let place: Place = place.parse().map_err(|error| format!("`place`: {error}"))?;
                Some((credential(&lend)?, place.to_string()))
            }
            (Some(_), None) | (None, Some(_)) => {
                return Err("`lend` and `place` go together".into());
            }
            (None, None) => None,
        };
        let session = or(decision.session, &defaults.session, "test");
        Ok(Self {
            name: decision.name,
            expect: decision.expect,
            by: decision.by,
            loan,
            session: SessionId::new(&session).map_err(|error| format!("`session`: {error}"))?,
            groups: all(decision.groups, &defaults.groups)
                .into_iter()
                .map(Arc::from)
                .collect(),
            labels: all(decision.labels, &defaults.labels)
                .into_iter()
                .map(Arc::from)
                .collect(),
            entry: or(decision.entry, &defaults.entry, "exec"),
            now: instant(&or(decision.now, &defaults.now, "2026-01-01T00:00:00Z"))?,
            scheme,
            host,
            port,
            method: or(decision.method, &defaults.method, "GET"),
            target: target(&uri)?,
            fields: field_map(&all(decision.fields, &defaults.fields))?,
            content_length: decision
                .content_length
                .or(defaults.content_length)
                .or(Some(0)),
            upgrade: or(decision.upgrade, &defaults.upgrade, ""),
            credentials: all(decision.credentials, &defaults.credentials)
                .iter()
                .map(credential)
                .collect::<Result<_, _>>()?,
            actions: all(decision.actions, &defaults.actions),
        })
    }

    fn facts(&self) -> Facts<'_> {
        Facts {
            session: &self.session,
            groups: &self.groups,
            labels: &self.labels,
            entry: &self.entry,
            now: self.now,
            scheme: self.scheme,
            host: &self.host,
            port: self.port,
            method: &self.method,
            target: &self.target,
            fields: &self.fields,
            content_length: self.content_length,
            upgrade: &self.upgrade,
            credentials: &self.credentials,
            batch: is_batch(&self.host, &self.target),
            actions: &self.actions,
        }
    }

    fn judge(&self, generation: &Generation) -> Option<Surprise> {
        let facts = self.facts();
        let loan = self.loan.as_ref();
        let verdict = generation.judge(
            &facts,
            loan.map(|(credential, place)| Loan { credential, place }),
        );
        if self.is_met_by(&verdict) {
            return None;
        }
        let explanation = match loan {
            Some((credential, place)) => {
                generation.explain_loan(&facts, credential, place, &verdict)
            }
            None => generation.explain(&facts, &verdict),
        };
        let names: Vec<&str> = verdict.policies.iter().map(PolicyId::as_str).collect();
        let expected = if self.expect == Expect::Allow {
            "allow"
        } else {
            "deny"
        };
        let by = self
            .by
            .as_ref()
            .map_or_else(String::new, |by| format!(" by {by:?}"));
        Some(Surprise {
            name: self.name.clone(),
            expected: format!("{expected}{by}"),
            decided: format!("{} by {names:?}", verdict.outcome.word()),
            reason: explanation.reason,
        })
    }

    fn is_met_by(&self, verdict: &Verdict) -> bool {
        let by_those = self.by.as_ref().is_none_or(|by| {
            by.len() == verdict.policies.len()
                && verdict
                    .policies
                    .iter()
                    .all(|id| by.iter().any(|one| one == id.as_str()))
        });
        verdict.allowed() == (self.expect == Expect::Allow) && by_those
    }
}

/// Host and path in their canonical form, as the gateway makes it.
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

fn target(uri: &Uri) -> Result<RequestTarget, String> {
    let whole = uri.path_and_query().ok_or("`url` has no path")?;
    RequestTarget::from_parsed(whole, EncodedSlash::default())
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
    use crate::policy::generation::tests::policies;

    const POLICY: &str = r#"@id("reads") permit(principal in Gateway::Group::"ci", action in Gateway::Action::"read",
        resource == Gateway::Host::"api.github.com") when { context.prefixes.contains("/repos/o/r") };"#;

    fn file(decision: &str) -> Result<Report, Malformed> {
        let text = format!("[request]\ngroups = [\"ci\"]\n[[decision]]\nname = \"it\"\n{decision}");
        run(&policies(POLICY).current(), &text)
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
        ] {
            assert!(file(bad).is_err(), "{bad}");
        }
        assert!(matches!(
            run(&policies("").current(), ""),
            Err(Malformed::Empty)
        ));
    }
}
