//! What a run needed, as its audit log tells: the hosts, methods and paths that it asked for, and
//! the credentials.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::denials::{self, NamedLoan, ToldDenials};
use super::failure::Failure;
use super::proposal;
use crate::audit::{self, Injected, Record, Unverified, VerifiedRecord};
use crate::config::Config;
use crate::gateway::{ProposedAccess, chain, floor};
use crate::intercept::GATEWAY_NAME;
use crate::message::{Authority, Host, Origin, Scheme};
use crate::names::{CredentialName, ReasonCode};
use crate::policy::OwnedFacts;
use crate::policy::generate::{self, CoveredPath};

/// What a run needed.
#[derive(Default)]
pub(super) struct Needs {
    requests: BTreeMap<AskedOrigin, Methods>,
    lent: BTreeMap<AskedLoan, Methods>,
    unlent: BTreeMap<AskedLoan, Methods>,
    /// The refused loans, which no rule may lend.
    refused: Vec<RefusedLoan>,
    /// The credentials whose refused loans are not known whole, or too many, and to which origins.
    unclear: BTreeSet<(String, AskedOrigin)>,
    /// What a person refused to the run.
    denied: ToldDenials,
    /// Methods and origins of requests of which no part of the path is known.
    unshown: BTreeSet<(String, AskedOrigin)>,
    /// Hosts that were only looked up.
    names: BTreeSet<String>,
    /// Refusals that no rule changes, by host and code.
    unchanged: BTreeSet<(String, String)>,
    more: bool,
    /// Whether the run has ended.
    is_over: bool,
}

type Methods = BTreeMap<String, BTreeSet<CoveredPath>>;

/// Scheme, host and port.
type AskedOrigin = (String, String, u16);

/// A credential and its place, and the origin.
type AskedLoan = (String, String, AskedOrigin);

struct RefusedLoan {
    request: OwnedFacts,
    credential: CredentialName,
    place: String,
}

impl Needs {
    /// Reads what was asked for since a record of the log.
    ///
    /// # Errors
    /// Returns a [`Failure`] if the log cannot be read, or does not hold.
    pub(super) fn of(log: &Path, after: u64) -> Result<Self, Failure> {
        let read = audit::verified(log, None, |needs: &mut Self, record| {
            if record.seq >= after && !needs.is_over {
                needs.is_over = ends_a_run(&record);
                needs.read(&record);
            }
        });
        read.map_err(|why| match why {
            Unverified::Unreadable(error) => {
                Failure::new("the log of the run cannot be read").because(chain(&error))
            }
            Unverified::Fault(problem) => Failure::new("the log of the run does not hold")
                .because(format!("{problem}, so nothing is proposed after it"))
                .next("see `gateway audit verify`, move the log away, and run the command again"),
        })
    }

    fn read(&mut self, record: &VerifiedRecord) {
        if !self.is_over && asks_for_a_host(record) {
            self.add(record);
        }
        self.denied.hear(record);
    }

    fn add(&mut self, record: &Record) {
        let Some(host) = record.host.as_deref().filter(|host| is_host(host)) else {
            return;
        };
        let code = record.reason.as_deref().map(ReasonCode::named);
        match code {
            None | Some(Some(ReasonCode::PolicyDefaultDeny)) => self.ask(record, host),
            Some(Some(ReasonCode::DnsName | ReasonCode::HostNotPermitted)) => {
                if self.names.len() < MOST_HOSTS {
                    self.names.insert(host.to_owned());
                }
            }
            // A policy permitted it; what ended it is another's affair.
            Some(_) if record.decision.as_deref() == Some("allow") => self.ask(record, host),
            Some(_) => {
                let code = record.reason.clone().unwrap_or_default().into_owned();
                if self.unchanged.len() < MOST_HOSTS {
                    self.unchanged.insert((host.to_owned(), code));
                }
            }
        }
    }

    fn ask(&mut self, record: &Record, host: &str) {
        let (Some(scheme), Some(port)) = (record.scheme.as_deref(), record.port) else {
            if self.names.len() < MOST_HOSTS {
                self.names.insert(host.to_owned());
            }
            return;
        };
        let origin = (scheme.to_owned(), host.to_owned(), port);
        if self.requests.len() >= MOST_HOSTS && !self.requests.contains_key(&origin) {
            self.more = true;
            return;
        }
        let methods = self.requests.entry(origin.clone()).or_default();
        let Some(method) = record.method.as_deref() else {
            return;
        };
        let path = covered(record);
        match path.clone() {
            Some(path) => note(methods, method, path),
            None => drop(self.unshown.insert((method.to_owned(), origin.clone()))),
        }
        if let Some(loan) = &record.unlent {
            self.refuse(record, loan, &origin);
        }
        let Some(path) = path else { return };
        let named = |one: &Injected| {
            let (credential, place) = (one.credential.to_string(), one.place.to_string());
            (credential, place, origin.clone())
        };
        for loan in record.lent.iter().map(named) {
            note(self.lent.entry(loan).or_default(), method, path.clone());
        }
        for loan in record.unlent.iter().map(named) {
            note(self.unlent.entry(loan).or_default(), method, path.clone());
        }
    }

    fn refuse(&mut self, record: &Record, loan: &Injected, origin: &AskedOrigin) {
        let request = proposal::request(record, None).ok();
        let requests = request.and_then(|request| proposal::in_each_reading(&request));
        let credential = CredentialName::new(&loan.credential).ok();
        let known = requests.zip(credential);
        let Some((requests, credential)) = known.filter(|_| self.refused.len() < MOST_REFUSED)
        else {
            let unclear = (loan.credential.to_string(), origin.clone());
            self.unclear.insert(unclear);
            return;
        };
        self.refused
            .extend(requests.into_iter().map(|request| RefusedLoan {
                request,
                credential: credential.clone(),
                place: loan.place.to_string(),
            }));
    }

    /// Whether the run asked for nothing.
    pub(super) fn is_nothing(&self) -> bool {
        self.requests.is_empty() && self.names.is_empty()
    }

    /// Writes the least policies by which the run would have got all that a rule can give. What no
    /// rule gives, and what was only wanted, stands in comments.
    pub(super) fn rules(&self, config: &Config) -> String {
        let mut text = String::new();
        let settings = proposal::settings(Some(config));
        for (asked, methods) in &self.requests {
            let Some(origin) = origin(asked) else {
                continue;
            };
            if let Some(why) = floor(&origin, &settings) {
                let authority = &origin.authority;
                text.push_str(&format!("// {authority}: {}\n", why.meaning()));
                continue;
            }
            let (denied, asked) = self.parted(&origin, methods);
            for (methods, is_denied) in [(asked, false), (denied, true)] {
                for (paths, methods) in by_paths(&methods, narrowed) {
                    let methods: Vec<&str> = methods.iter().map(String::as_str).collect();
                    let rule = generate::permit_requests(&origin, &methods, &paths);
                    match is_denied || self.denied.are_permitted_by(&rule, &[]) {
                        true => commented(&mut text, "Permits what a person refused", &rule),
                        false => text.push_str(&rule),
                    }
                }
            }
        }
        for (loan, methods) in &self.lent {
            // A loan is never widened to a folder: what else is there may need another answer.
            let is_named = methods
                .values()
                .all(|paths| paths.len() <= MOST_LENT && paths.iter().all(is_exact));
            let (credential, place, asked) = loan;
            let name = CredentialName::new(credential).ok();
            let lent: Vec<NamedLoan> = name.map(|name| (name, place.clone())).into_iter().collect();
            let is_denied = origin(asked).is_some_and(|to| !self.parted(&to, methods).0.is_empty());
            for rule in lend(loan, methods, is_named) {
                if !is_named {
                    commented(&mut text, "Lent, on more paths than are named", &rule);
                } else if is_denied || self.denied.are_permitted_by(&rule, &lent) {
                    commented(&mut text, "Lent, to what a person refused", &rule);
                } else if self.lends_what_was_refused(loan, &rule) {
                    commented(&mut text, "Lent, and would lend what was refused", &rule);
                } else {
                    text.push_str(&rule);
                }
            }
        }
        for (loan, methods) in &self.unlent {
            let rules = lend(loan, methods, false);
            let wanted = |rule: &String| commented(&mut text, "Wanted, and not lent", rule);
            rules.iter().for_each(wanted);
        }
        self.comments(&mut text);
        text
    }

    /// The requests to an origin that a person refused, and the others.
    fn parted(&self, to: &Origin, methods: &Methods) -> (Methods, Methods) {
        let (mut refused, mut others) = (Methods::new(), Methods::new());
        for (method, paths) in methods {
            for path in paths {
                let wanted = ProposedAccess {
                    to: to.clone(),
                    request: Some((method.clone(), text(path).to_owned())),
                    refused: None,
                };
                let is_refused = self.denied.of(&wanted).is_some();
                let part = if is_refused {
                    &mut refused
                } else {
                    &mut others
                };
                part.entry(method.clone()).or_default().insert(path.clone());
            }
        }
        (refused, others)
    }

    /// Asks a rule, alone, about everything that was refused: it may cover more than the run was
    /// lent, since many paths become their folder.
    fn lends_what_was_refused(&self, (credential, _, origin): &AskedLoan, rule: &str) -> bool {
        if self.unclear.contains(&(credential.clone(), origin.clone())) {
            return true;
        }
        denials::alone(rule).is_some_and(|alone| {
            let lends = |one: &RefusedLoan| {
                let verdict = alone.lend(&one.request.facts(), &one.credential, &one.place);
                verdict.allowed()
            };
            self.refused.iter().any(lends)
        })
    }

    fn comments(&self, text: &mut String) {
        let asked = |name: &String| self.requests.keys().any(|(_, host, _)| host == name);
        for name in self.names.iter().filter(|name| !asked(name)) {
            text.push_str(&format!(
                "// Only looked up, or refused before a request: {name}\n"
            ));
        }
        for (host, code) in &self.unchanged {
            text.push_str(&format!(
                "// Refused, which no rule changes: {host}: {code}\n"
            ));
        }
        for wanted in self.denied.shown() {
            let wanted = wanted.escape_debug();
            text.push_str(&format!("// A person refused it to the run: {wanted}\n"));
        }
        for (method, (_, host, _)) in &self.unshown {
            text.push_str(&format!(
                "// Asked for by a path that the log does not show: {method} {host}\n"
            ));
        }
        if self.more {
            text.push_str("// Further hosts were asked for than are listed here.\n");
        }
    }
}

/// Adds a path to those of a method. Of too many methods, the rest are left out.
fn note(methods: &mut Methods, method: &str, path: CoveredPath) {
    if methods.len() >= MOST_METHODS && !methods.contains_key(method) {
        return;
    }
    let paths = methods.entry(method.to_owned()).or_default();
    paths.insert(path);
    if paths.len() > MOST_PATHS {
        *paths = narrowed(std::mem::take(paths));
    }
}

/// Writes a rule that is not in force.
fn commented(text: &mut String, what: &str, rule: &str) {
    text.push_str(&format!(
        "// {what}. Remove the slashes to put it in force:\n"
    ));
    for line in rule.lines() {
        text.push_str(&format!("// {line}\n"));
    }
}

/// The methods that need the same paths, together.
fn by_paths(
    methods: &Methods,
    kept: fn(BTreeSet<CoveredPath>) -> BTreeSet<CoveredPath>,
) -> BTreeMap<Vec<CoveredPath>, Vec<String>> {
    let mut together: BTreeMap<Vec<CoveredPath>, Vec<String>> = BTreeMap::new();
    for (method, paths) in methods {
        let paths: Vec<CoveredPath> = kept(paths.clone()).into_iter().collect();
        let all = paths.contains(&CoveredPath::Below("/".to_owned()));
        let paths = if all { Vec::new() } else { paths };
        together.entry(paths).or_default().push(method.clone());
    }
    together
}

/// Covers paths by few rules: the deepest ones are replaced by their folder, until few are left.
fn narrowed(mut paths: BTreeSet<CoveredPath>) -> BTreeSet<CoveredPath> {
    let depth = |path: &CoveredPath| text(path).matches('/').count();
    while paths.len() > FEW_PATHS {
        let deepest = paths.iter().map(depth).max().unwrap_or(0);
        let folders = paths.iter().map(|path| match depth(path) == deepest {
            true => CoveredPath::Below(folder(text(path)).to_owned()),
            false => path.clone(),
        });
        let mut next: BTreeSet<CoveredPath> = folders.collect();
        if next == paths {
            next = BTreeSet::from([CoveredPath::Below("/".to_owned())]);
        }
        paths = next;
    }
    let below: Vec<CoveredPath> = paths.iter().cloned().collect();
    paths.retain(|path| {
        let is_in = |other: &CoveredPath| {
            matches!(other, CoveredPath::Below(all) if other != path && text(path).starts_with(all))
        };
        !below.iter().any(is_in)
    });
    paths
}

fn is_exact(path: &CoveredPath) -> bool {
    matches!(path, CoveredPath::Exactly(_))
}

fn text(path: &CoveredPath) -> &str {
    match path {
        CoveredPath::Exactly(path) | CoveredPath::Below(path) => path,
    }
}

/// The folder that a path is in, with its last `/`.
fn folder(path: &str) -> &str {
    let within = path.strip_suffix('/').unwrap_or(path);
    within.rfind('/').map_or("/", |at| &path[..=at])
}

/// The path of a record. One that is not shown as a whole stands for all that begin with what is
/// shown; `None` if nothing is.
fn covered(record: &Record) -> Option<CoveredPath> {
    let path = record.path.as_deref()?;
    let shown = path
        .split_once("[phantom]")
        .map_or(path, |(before, _)| before);
    let is_whole = shown.len() == path.len() && record.path_bytes.is_none();
    match (is_whole, shown) {
        (true, _) => Some(CoveredPath::Exactly(path.to_owned())),
        (false, "" | "/") => None,
        (false, shown) => Some(CoveredPath::Below(shown.to_owned())),
    }
}

/// Whether a run's records end here: a log can hold those of several, one after the other.
fn ends_a_run(record: &Record) -> bool {
    matches!(&*record.kind, "stop" | "resume" | "start")
}

/// Connections through opened ports are granted by flags, and by no policy.
fn asks_for_a_host(record: &Record) -> bool {
    let entry = record.entry.as_deref();
    record.kind == "exchange" && !matches!(entry, Some("host_port" | "publish"))
}

/// Whether a name is that of a host, and not of the gateway itself.
fn is_host(host: &str) -> bool {
    host != GATEWAY_NAME && Host::parse(host.as_bytes()).is_ok()
}

fn origin((scheme, host, port): &AskedOrigin) -> Option<Origin> {
    let scheme = match scheme.as_str() {
        "https" => Scheme::Https,
        "http" => Scheme::Http,
        _ => return None,
    };
    let host = Host::parse(host.as_bytes()).ok()?;
    let authority = Authority { host, port: *port };
    Some(Origin { scheme, authority })
}

fn lend((credential, place, asked): &AskedLoan, methods: &Methods, each_path: bool) -> Vec<String> {
    let (Some(origin), Ok(name)) = (origin(asked), CredentialName::new(credential)) else {
        return Vec::new();
    };
    let kept = if each_path { |paths| paths } else { narrowed };
    let all = by_paths(methods, kept).into_iter();
    all.map(|(paths, methods)| {
        let methods: Vec<&str> = methods.iter().map(String::as_str).collect();
        generate::permit_loans(&origin, (&name, place), &methods, &paths)
    })
    .collect()
}

/// With more, paths are covered by their folders.
const FEW_PATHS: usize = 4;
/// How many paths of one method are kept apart while the log is read.
const MOST_PATHS: usize = 1024;
/// On how many paths of one method a loan is learned, each by its name.
const MOST_LENT: usize = 64;
const MOST_METHODS: usize = 32;
const MOST_HOSTS: usize = 512;
/// How many refused loans are asked about.
const MOST_REFUSED: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn record(host: &str, method: &str, path: &str, reason: Option<&str>) -> Record {
        Record {
            kind: "exchange".into(),
            session: Some("exec".into()),
            entry: Some("transparent".into()),
            scheme: Some("https".into()),
            host: Some(host.into()),
            port: Some(443),
            method: Some(method.into()),
            path: Some(path.into()),
            reason: reason.map(|reason| reason.to_owned().into()),
            ..Record::default()
        }
    }

    fn rules(records: &[Record]) -> String {
        let mut needs = Needs::default();
        records.iter().for_each(|record| needs.add(record));
        needs.rules(&Config::default())
    }

    #[test]
    fn a_run_ends_where_another_begins_and_opened_ports_are_no_hosts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("own/log.jsonl");
        let settings = audit::Settings::at(&path);
        let ask = |log: &audit::Log, entry: &'static str, host: &str| {
            let id = crate::names::ExchangeId::from_bytes([1; 10]);
            let mut trail = audit::Trail::begin(log, id, entry);
            trail.method("GET");
            trail.scheme("https");
            trail.authority(host, 443);
            trail.path("/one");
            trail.refuse(ReasonCode::PolicyDefaultDeny);
        };
        for host in ["first.test", "second.test"] {
            let log = audit::Log::open(&settings).unwrap();
            ask(&log, "transparent", host);
            ask(&log, "host_port", "127.0.0.1");
        }
        let needs = Needs::of(&path, 1).unwrap();
        let rules = needs.rules(&Config::default());
        assert!(rules.contains("first.test"), "{rules}");
        assert!(!rules.contains("second.test"), "{rules}");
        assert!(!rules.contains("127.0.0.1"), "{rules}");
    }

    #[test]
    fn few_paths_stay_as_they_are_and_many_become_their_folder() {
        let few = rules(&[
            record("a.test", "GET", "/one", None),
            record("a.test", "HEAD", "/one", Some("policy_default_deny")),
        ]);
        assert_eq!(few.matches("permit(").count(), 1, "{few}");
        assert!(
            few.contains("context.path == \"/one\"") && few.contains("\"HEAD\""),
            "{few}"
        );
        let many: Vec<Record> = (0..9)
            .map(|nth| record("a.test", "GET", &format!("/v1/x/{nth}"), None))
            .collect();
        assert!(
            rules(&many).contains("context.path like \"/v1/x/*\""),
            "{}",
            rules(&many)
        );
        let wide: Vec<Record> = (0..9)
            .map(|nth| record("a.test", "GET", &format!("/{nth}"), None))
            .collect();
        assert!(!rules(&wide).contains("context.path"), "{}", rules(&wide));
    }

    #[test]
    fn what_no_rule_gives_and_what_was_only_wanted_is_in_comments() {
        let mut wanted = record("a.test", "GET", "/", Some("policy_default_deny"));
        wanted.unlent = Some(Injected {
            credential: "key".into(),
            place: "header:authorization:Bearer".into(),
        });
        let text = rules(&[
            wanted,
            record("169.254.169.254", "GET", "/", Some("policy_default_deny")),
            record("b.test", "GET", "/", Some("foreign_credential")),
        ]);
        let live: Vec<&str> = text
            .lines()
            .filter(|line| !line.starts_with("//"))
            .collect();
        let live = live.join("\n");
        assert!(live.contains("a.test") && !live.contains("lend"), "{text}");
        assert!(
            !live.contains("169.254") && !live.contains("b.test"),
            "{text}"
        );
        assert!(
            text.contains("// Refused, which no rule changes: b.test"),
            "{text}"
        );
        assert!(text.contains("\"lend\""), "{text}");
    }

    #[test]
    fn a_loan_is_a_rule_for_its_requests_and_none_for_those_that_were_refused_it() {
        let key = || Injected {
            credential: "key".into(),
            place: "header:authorization:Bearer".into(),
        };
        let asks = |method: &str, path: &str, is_lent: bool| {
            let reason = (!is_lent).then_some("policy_default_deny");
            let mut one = record("a.test", method, path, reason);
            match is_lent {
                true => one.lent.push(key()),
                false => one.unlent = Some(key()),
            }
            one
        };
        let live = |records: &[Record]| {
            let text = rules(records);
            let lines = text.lines().filter(|line| !line.starts_with("//"));
            lines.collect::<Vec<_>>().join("\n")
        };
        let lent = |text: &str| text.split_once("\"lend\"").map(|(_, rule)| rule.to_owned());
        let had = asks("GET", "/v1/me", true);
        let refused = asks("POST", "/v1/tokens", false);
        let both = [had.clone(), refused];
        let rule = lent(&live(&both)).unwrap();
        for part in ["\"GET\"", "\"/v1/me\"", "header:authorization:Bearer"] {
            assert!(rule.contains(part), "{rule}");
        }
        assert!(!rule.contains("tokens"), "{rule}");
        assert!(rules(&both).contains("// Wanted, and not lent"));
        // Many paths are not their folder, in which others need another answer.
        let asked = |most: usize| -> Vec<Record> {
            let paths = (0..most).map(|n| format!("/x{n}"));
            paths.map(|path| asks("GET", &path, true)).collect()
        };
        let mut many = asked(9);
        many.push(asks("GET", "/secret", false));
        let rule = lent(&live(&many)).unwrap();
        assert!(rule.contains("\"/x8\"") && !rule.contains("like"), "{rule}");
        assert!(!rule.contains("secret"), "{rule}");
        assert_eq!(lent(&live(&asked(MOST_LENT + 1))), None);
        assert!(rules(&asked(MOST_LENT + 1)).contains("// Lent, on more paths than are named"));
        // Nor does another spelling lend what was refused.
        let spelled = [asks("GET", "/v1//me", true), asks("GET", "/v1/me", false)];
        assert_eq!(lent(&live(&spelled)), None);
        assert!(rules(&spelled).contains("// Lent, and would lend what was refused"));
        // A refusal that is not known whole may be any.
        let mut cut = asks("GET", "/v1/long", false);
        cut.path_bytes = Some(9000);
        assert_eq!(lent(&live(&[had, cut])), None);
    }

    #[test]
    fn a_path_that_is_not_shown_as_a_whole_stands_for_what_begins_alike_and_never_for_all() {
        let text = rules(&[record("a.test", "GET", "/bot[phantom]/send", None)]);
        assert!(text.contains("context.path like \"/bot*\""), "{text}");
        let mut long = record("a.test", "GET", "/long", None);
        long.path_bytes = Some(9000);
        assert!(rules(&[long]).contains("context.path like \"/long*\""));
        let text = rules(&[record("a.test", "GET", "/[phantom]/send", None)]);
        assert!(!text.contains("permit("), "{text}");
        assert!(text.contains("// Asked for by a path that the log does not show: GET a.test"));
    }
}
