//! The access that a run asked for, read from its audit log: hosts, methods, paths and credentials;
//! and the narrowest rules that would have permitted it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use gateway_audit::{self as audit, Injection, LogUnverified, Record, VerifiedRecord};
use gateway_intercept::GATEWAY_NAME;
use gateway_message::{Host, Origin};
use gateway_names::{CredentialName, ReasonCode};
use gateway_origin::OriginSettings;
use gateway_policy::OwnedFacts;
use gateway_policy::generate::{self, CoveredPath};
use gateway_server::{RequestedAccess, chain, floor};

use super::denials::{NamedLoan, RecordedDenials, alone};
use super::error::ControlRefusal;
use super::request;

/// The access that a run asked for.
#[derive(Default)]
pub struct ObservedAccess {
    requests: BTreeMap<Origin, Methods>,
    lent: BTreeMap<ObservedLoan, Methods>,
    unlent: BTreeMap<ObservedLoan, Methods>,
    /// The requests that were refused a loan. No learned rule may lend to them.
    refused: Vec<(OwnedFacts, NamedLoan)>,
    /// Credentials, by origin, with refused loans that are cut short or too many to keep.
    unclear: BTreeSet<(String, Origin)>,
    /// The access that a person refused to the run.
    denied: RecordedDenials,
    /// Methods and origins of requests whose paths the log does not show.
    unshown: BTreeSet<(String, Origin)>,
    /// Hosts that were only looked up.
    names: BTreeSet<String>,
    /// Refusals that no rule changes, by host and code.
    unchanged: BTreeSet<(String, String)>,
    more: bool,
    /// Whether the run has ended.
    is_over: bool,
}

type Methods = BTreeMap<String, BTreeSet<CoveredPath>>;

/// A credential and its place, and the origin.
type ObservedLoan = (String, String, Origin);

impl ObservedAccess {
    /// Reads the access that was asked for since a record of the log.
    ///
    /// # Errors
    /// Returns an error if the log cannot be read, or fails verification.
    pub fn of(log: &Path, after: u64) -> Result<Self, ControlRefusal> {
        let read = audit::verified(log, None, |observed: &mut Self, record| {
            if record.seq >= after && !observed.is_over {
                // A log can hold the records of several runs, one after the other.
                observed.is_over = matches!(&*record.kind, "stop" | "resume" | "start");
                observed.read(&record);
            }
        });
        read.map_err(|why| match why {
            LogUnverified::Unreadable(error) => {
                ControlRefusal::unavailable("the log of the run cannot be read")
                    .because(chain(&error))
            }
            LogUnverified::Fault(problem) => {
                ControlRefusal::unavailable("the log of the run does not hold")
                    .because(format!("{problem}, so nothing is proposed after it"))
                    .next("see `gateway log verify`, move the log away, and run the command again")
            }
        })
    }

    fn read(&mut self, record: &VerifiedRecord) {
        // Connections through opened ports are granted by flags, and by no policy.
        let is_opened = matches!(record.entry.as_deref(), Some("host_port" | "publish"));
        if !self.is_over && record.kind == "exchange" && !is_opened {
            self.add(record);
        }
        self.denied.note(record);
    }

    fn add(&mut self, record: &Record) {
        let host = record.host.as_deref().filter(|host| *host != GATEWAY_NAME);
        let Some(host) = host.and_then(|host| Host::parse(host.as_bytes()).ok()) else {
            return;
        };
        match record.reason.as_deref().map(ReasonCode::named) {
            None | Some(Some(ReasonCode::PolicyDefaultDeny)) => self.ask(record, host),
            Some(Some(ReasonCode::DnsName | ReasonCode::HostNotPermitted)) => {
                put(&mut self.names, host.to_string());
            }
            // A policy permitted the request; its later failure does not concern rules.
            Some(_) if record.decision.as_deref() == Some("allow") => self.ask(record, host),
            Some(_) => {
                let code = record.reason.as_deref().unwrap_or_default();
                put(&mut self.unchanged, (host.to_string(), code.to_owned()));
            }
        }
    }

    fn ask(&mut self, record: &Record, host: Host) {
        let name = host.to_string();
        let Some(origin) = request::to(record, host) else {
            return put(&mut self.names, name);
        };
        if self.requests.len() >= MOST_HOSTS && !self.requests.contains_key(&origin) {
            self.more = true;
            return;
        }
        let methods = self.requests.entry(origin.clone()).or_default();
        let Some(method) = record.method.as_deref() else {
            return;
        };
        if let Some(loan) = &record.unlent {
            refuse(
                &mut self.refused,
                &mut self.unclear,
                (record, loan, &origin),
            );
        }
        let Some(path) = covered(record) else {
            self.unshown.insert((method.to_owned(), origin));
            return;
        };
        note(methods, method, path.clone());
        for (all, loans) in [
            (&mut self.lent, &record.lent[..]),
            (&mut self.unlent, record.unlent.as_slice()),
        ] {
            for one in loans {
                let (credential, place) = (one.credential.to_string(), one.place.to_string());
                let loan = (credential, place, origin.clone());
                note(all.entry(loan).or_default(), method, path.clone());
            }
        }
    }

    /// Whether the run asked for nothing.
    pub fn is_nothing(&self) -> bool {
        self.requests.is_empty() && self.names.is_empty()
    }

    /// Writes the narrowest policies that would have given the run everything that a rule can give.
    /// Access that no rule gives, and loans that were only wanted, stand in comments.
    pub fn rules(&self, settings: &OriginSettings) -> String {
        let mut text = String::new();
        for (origin, methods) in &self.requests {
            if let Some(why) = floor(origin, settings) {
                let authority = &origin.authority;
                text.push_str(&format!("// {authority}: {}\n", why.meaning()));
                continue;
            }
            let (denied, asked) = self.parted(origin, methods);
            for (methods, is_denied) in [(asked, false), (denied, true)] {
                for (paths, methods) in by_paths(&methods, narrowed) {
                    let rule = generate::permit_requests(origin, &methods, &paths);
                    let is_denied = is_denied || self.denied.are_permitted_by(&rule, &[]);
                    put_rule(
                        &mut text,
                        is_denied.then_some("Permits what a person refused"),
                        &rule,
                    );
                }
            }
        }
        for (loan, methods) in &self.lent {
            // A loan is never widened to a folder: other paths there may need another decision.
            let is_named = methods
                .values()
                .all(|paths| paths.len() <= MOST_LENT && paths.iter().all(is_exact));
            let is_denied = !self.parted(&loan.2, methods).0.is_empty();
            for rule in lend(loan, methods, is_named) {
                let why_not = if is_named {
                    self.why_not(loan, &rule, is_denied)
                } else {
                    Some("Lent, on more paths than are named")
                };
                put_rule(&mut text, why_not, &rule);
            }
        }
        for (loan, methods) in &self.unlent {
            for rule in lend(loan, methods, false) {
                put_rule(&mut text, Some("Wanted, and not lent"), &rule);
            }
        }
        self.comments(&mut text);
        text
    }

    /// Splits the requests to an origin into those that a person refused, and the others.
    fn parted(&self, to: &Origin, methods: &Methods) -> (Methods, Methods) {
        let (mut refused, mut others) = (Methods::new(), Methods::new());
        for (method, path) in methods
            .iter()
            .flat_map(|(method, paths)| paths.iter().map(move |path| (method, path)))
        {
            let wanted = RequestedAccess {
                to: to.clone(),
                request: Some((method.clone(), text(path).to_owned())),
                refused: None,
            };
            let part = match self.denied.of(&wanted) {
                Some(_) => &mut refused,
                None => &mut others,
            };
            part.entry(method.clone()).or_default().insert(path.clone());
        }
        (refused, others)
    }

    /// Returns why a rule for a loan is not in force. The rule, alone, is tried on every refused
    /// request.
    fn why_not(
        &self,
        (credential, place, origin): &ObservedLoan,
        rule: &str,
        is_denied: bool,
    ) -> Option<&'static str> {
        let loan = CredentialName::new(credential).ok();
        let loan: Vec<NamedLoan> = loan.map(|name| (name, place.clone())).into_iter().collect();
        if is_denied || self.denied.are_permitted_by(rule, &loan) {
            return Some("Lent, to what a person refused");
        }
        let alone = alone(rule);
        let lends = |(request, (name, place)): &(OwnedFacts, NamedLoan)| {
            let rule = alone.as_ref();
            rule.is_some_and(|rule| rule.lend(&request.facts(), name, place).allowed())
        };
        let is_unclear = self.unclear.contains(&(credential.clone(), origin.clone()));
        let is_refused = is_unclear || self.refused.iter().any(lends);
        is_refused.then_some("Lent, and would lend what was refused")
    }

    fn comments(&self, text: &mut String) {
        let asked = |name: &str| {
            let mut all = self.requests.keys();
            all.any(|to| to.authority.host.as_str() == name)
        };
        let mut tell = |what: &str, about: &str| text.push_str(&format!("// {what}: {about}\n"));
        for name in self.names.iter().filter(|name| !asked(name)) {
            tell("Only looked up, or refused before a request", name);
        }
        for (host, code) in &self.unchanged {
            tell("Refused, which no rule changes", &format!("{host}: {code}"));
        }
        for wanted in self.denied.shown() {
            let wanted = wanted.escape_debug().to_string();
            tell("A person refused it to the run", &wanted);
        }
        for (method, to) in &self.unshown {
            let what = "Asked for by a path that the log does not show";
            tell(what, &format!("{method} {}", to.authority.host));
        }
        if self.more {
            text.push_str("// Further hosts were asked for than are listed here.\n");
        }
    }
}

/// Adds an entry to a set of bounded size, for things that are only listed.
fn put<T: Ord>(all: &mut BTreeSet<T>, one: T) {
    if all.len() < MOST_HOSTS {
        all.insert(one);
    }
}

/// Notes a refused loan, in each spelling of its path; as unclear if its path is cut short.
fn refuse(
    refused: &mut Vec<(OwnedFacts, NamedLoan)>,
    unclear: &mut BTreeSet<(String, Origin)>,
    (record, loan, origin): (&Record, &Injection, &Origin),
) {
    let request = request::of_record(record);
    let requests = request.and_then(|request| request::in_each_spelling(&request));
    let known = requests.zip(CredentialName::new(&loan.credential).ok());
    let Some((requests, name)) = known.filter(|_| refused.len() < MOST_REFUSED) else {
        unclear.insert((loan.credential.to_string(), origin.clone()));
        return;
    };
    let named = requests.into_iter();
    refused.extend(named.map(|request| (request, (name.clone(), loan.place.to_string()))));
}

/// Adds a path to those of a method. Beyond the limit, further methods are left out.
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

/// Writes a rule, commented out if it is not in force.
fn put_rule(text: &mut String, why_not: Option<&str>, rule: &str) {
    let Some(why) = why_not else {
        return text.push_str(rule);
    };
    text.push_str(&format!(
        "// {why}. Remove the slashes to put it in force:\n"
    ));
    for line in rule.lines() {
        text.push_str(&format!("// {line}\n"));
    }
}

/// Groups the methods that need the same paths.
fn by_paths(
    methods: &Methods,
    kept: fn(BTreeSet<CoveredPath>) -> BTreeSet<CoveredPath>,
) -> BTreeMap<Vec<CoveredPath>, Vec<&str>> {
    let mut together: BTreeMap<Vec<CoveredPath>, Vec<&str>> = BTreeMap::new();
    for (method, paths) in methods {
        let mut paths: Vec<CoveredPath> = kept(paths.clone()).into_iter().collect();
        if paths.contains(&CoveredPath::Below("/".to_owned())) {
            paths.clear();
        }
        together.entry(paths).or_default().push(method);
    }
    together
}

/// Narrows paths to few rules: the deepest paths are replaced by their folders, until few are left.
fn narrowed(mut paths: BTreeSet<CoveredPath>) -> BTreeSet<CoveredPath> {
    let depth = |path: &CoveredPath| text(path).matches('/').count();
    while paths.len() > FEW_PATHS {
        let deepest = paths.iter().map(depth).max().unwrap_or(0);
        let folders = paths.iter().map(|path| {
            if depth(path) == deepest {
                CoveredPath::Below(folder(text(path)).to_owned())
            } else {
                path.clone()
            }
        });
        let mut next: BTreeSet<CoveredPath> = folders.collect();
        if next == paths {
            next = BTreeSet::from([CoveredPath::Below("/".to_owned())]);
        }
        paths = next;
    }
    let all = paths.clone();
    paths.retain(|path| {
        let is_in = |other: &CoveredPath| {
            matches!(other, CoveredPath::Below(all) if other != path && text(path).starts_with(all))
        };
        !all.iter().any(is_in)
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

/// Returns the folder of a path, with its last `/`.
fn folder(path: &str) -> &str {
    let within = path.strip_suffix('/').unwrap_or(path);
    within.rfind('/').map_or("/", |at| &path[..=at])
}

/// Returns the path of a record. A path that is cut short stands for all paths that begin with the
/// shown part; `None` if nothing is shown.
fn covered(record: &Record) -> Option<CoveredPath> {
    let path = record.path.as_deref()?;
    let shown = path.split("[phantom]").next().unwrap_or(path);
    let is_whole = shown.len() == path.len() && record.path_bytes.is_none();
    match (is_whole, shown) {
        (true, _) => Some(CoveredPath::Exactly(path.to_owned())),
        (false, "" | "/") => None,
        (false, shown) => Some(CoveredPath::Below(shown.to_owned())),
    }
}

fn lend((name, place, origin): &ObservedLoan, methods: &Methods, each_path: bool) -> Vec<String> {
    let Ok(name) = CredentialName::new(name) else {
        return Vec::new();
    };
    let kept = if each_path { |paths| paths } else { narrowed };
    let all = by_paths(methods, kept).into_iter();
    all.map(|(paths, methods)| generate::permit_loans(origin, (&name, place), &methods, &paths))
        .collect()
}

/// If a method has more paths, their folders stand for them.
const FEW_PATHS: usize = 4;
/// How many paths of one method are kept apart while the log is read.
const MOST_PATHS: usize = 1024;
/// How many paths of one method a loan is learned for, each by name.
const MOST_LENT: usize = 64;
const MOST_METHODS: usize = 32;
const MOST_HOSTS: usize = 512;
/// How many refused loans are kept.
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
        let mut observed = ObservedAccess::default();
        records.iter().for_each(|record| observed.add(record));
        observed.rules(&OriginSettings::default())
    }

    #[test]
    fn a_run_ends_where_another_begins_and_opened_ports_are_no_hosts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("own/log.jsonl");
        let settings = audit::Settings::at(&path);
        let ask = |log: &audit::Log, entry: &'static str, host: &str| {
            let id = gateway_names::ExchangeId::from_bytes([1; 10]);
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
        let observed = ObservedAccess::of(&path, 1).unwrap();
        let rules = observed.rules(&OriginSettings::default());
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
        wanted.unlent = Some(Injection {
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
        let key = || Injection {
            credential: "key".into(),
            place: "header:authorization:Bearer".into(),
        };
        let asks = |method: &str, path: &str, is_lent: bool| {
            let reason = (!is_lent).then_some("policy_default_deny");
            let mut one = record("a.test", method, path, reason);
            if is_lent {
                one.lent.push(key())
            } else {
                one.unlent = Some(key())
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
