//! What a generation permits that an earlier one did not: requests are made from the texts of the
//! rules that changed, and both generations judge them as they judge every request.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gateway_message::{EncodedSlash, Host, RequestTarget, Scheme};
use gateway_names::{CredentialName, SessionId, User};
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue};

use super::fact::{Fact, OF_FIELDS, OF_PATH};
use super::generation::{Generation, METHODS};
use super::question::{Input, OwnedFacts};
use super::rule::{Principals, Resources, Rule};
use super::schema::{Action, Actions};
use super::verdict::Verdict;

/// One value of a part of a request.
type Choice = Box<dyn Fn(&mut OwnedFacts)>;
/// The credential and the place that a request asks for, or the request itself.
type Use = Option<(CredentialName, String)>;

/// The requests that show what one rule changed.
struct Witnesses {
    parts: Vec<Vec<Choice>>,
    uses: Vec<Use>,
    /// How many are tried, spread over all.
    tried: usize,
    /// Whether they differ in all that the rule, and those that it meets, can read.
    are_all: bool,
}

impl Generation {
    /// Tells what this permits and `before` did not, a line each: requests that are newly allowed,
    /// credentials that are newly lent, private addresses, and rules whose change no such request
    /// shows. Groups of sessions, and what credentials are bound to, are not compared.
    ///
    /// Requests are tried for as long as `within`; what would need more is told to be unjudged.
    #[must_use]
    pub fn widened(&self, before: &Self, within: Duration) -> Vec<String> {
        let until = Instant::now() + within;
        let [new, old] = [self, before].map(|one| one.rules.iter().map(identity).collect());
        let (new, old): (HashSet<_>, HashSet<_>) = (new, old);
        let gains = |rule: &&Rule| rule.permits && !old.contains(&identity(rule));
        // An error denies: of a permit that reads content, the errors are lost, too.
        let loses = |rule: &&Rule| {
            (!rule.permits || rule.reads_content()) && !new.contains(&identity(rule))
        };
        let gained = self.rules.iter().filter(gains).map(|rule| (rule, "by"));
        let lost = before.rules.iter().filter(loses);
        let changed: Vec<_> = gained.chain(lost.map(|rule| (rule, "without"))).collect();
        let most = (MOST / changed.len().max(1)).max(FEWEST);
        let all = self.rules.iter().chain(&before.rules);
        let all: Vec<Texts<'_>> = match changed.is_empty() {
            true => Vec::new(),
            false => all.map(Texts::of).collect(),
        };
        let told = changed.into_iter().flat_map(|(rule, word)| {
            if Instant::now() > until {
                return vec![unjudged(rule)];
            }
            let near = all.iter().filter(|other| meet(rule, other.rule));
            let near: Vec<&Texts<'_>> = near.collect();
            self.widened_by(
                before,
                (rule, word),
                (&Witnesses::of(rule, &near, most), until),
            )
        });
        told.collect()
    }

    fn widened_by(
        &self,
        before: &Self,
        (rule, word): (&Rule, &str),
        (all, until): (&Witnesses, Instant),
    ) -> Vec<String> {
        let mut allowed = BTreeMap::<String, [BTreeSet<String>; 2]>::new();
        let (mut lent, mut private) = (BTreeSet::new(), BTreeSet::new());
        let (mut is_met, mut tried) = (false, 0);
        let lends = |rule: &&Rule| rule.permits && rule.actions.holds(Action::Lend);
        let lends: Vec<Use> = self.rules.iter().filter(lends).flat_map(lent_by).collect();
        for nth in 0..all.tried {
            if nth % 64 == 0 && Instant::now() > until {
                break;
            }
            tried += 1;
            let (request, lend) = all.nth(nth);
            let (facts, host) = (request.facts(), &request.host);
            let judge = |of: &Self| match lend {
                None => of.ask(&facts),
                Some((name, place)) => of.lend(&facts, name, place),
            };
            let (new, old) = (judge(self), judge(before));
            let met = if rule.permits { &new } else { &old };
            is_met |= (new.may_be_lifted() || !rule.permits)
                && met
                    .policies
                    .iter()
                    .chain(&*met.deciding())
                    .any(|id| *id == rule.id);
            match lend {
                _ if !is_wider(&new, &old) => {}
                Some((name, place)) => drop(lent.insert(format!("`{name}` at {place} to {host}"))),
                None => {
                    let (scheme, port) = (request.scheme.as_str(), request.port);
                    let [methods, paths] = allowed
                        .entry(format!("{scheme}://{host}:{port}"))
                        .or_default();
                    methods.insert(request.method.clone());
                    paths.insert(request.target.path_and_query().to_string());
                    private.extend(host.ip().filter(is_private).map(|ip| ip.to_string()));
                    let gets = |(name, place): &&(CredentialName, String)| {
                        !old.may_be_lifted() && self.lend(&facts, name, place).may_be_lifted()
                    };
                    let gets = lends.iter().flatten().filter(gets);
                    lent.extend(gets.map(|(name, _)| format!("`{name}` to {host}")));
                }
            }
        }
        // What a label permits elsewhere is not tried.
        let scope = |one: &Rule| (one.actions, one.principal.clone(), one.resource.clone());
        let gave = |one: &Rule| one.label == rule.label && scope(one) == scope(rule);
        let is_labelled = rule.permits && rule.label.is_some() && !before.rules.iter().any(gave);
        let is_tried = is_met && !is_labelled && all.are_all && tried == all.count();
        if allowed.is_empty() && lent.is_empty() && !is_tried {
            return vec![unjudged(rule)];
        }
        let origins = allowed.into_iter().map(|(origin, [methods, paths])| {
            format!(
                "{} {origin}{}",
                Vec::from_iter(methods).join(" "),
                first(&paths)
            )
        });
        let found = [
            ("allowed", origins.collect()),
            ("lent", lent),
            ("reached at a private address", private),
        ];
        let found = found.into_iter().filter(|(_, all)| !all.is_empty());
        let line = |(kind, all)| format!("newly {kind} {word} `{}`: {}", rule.id, first(&all));
        found.map(line).collect()
    }
}

fn unjudged(rule: &Rule) -> String {
    let why = "no request that is made from the policies shows what it changes";
    format!("cannot be judged: {why}: `{}`", rule.id)
}

/// Returns the uses of credentials that a rule may permit: each credential and place that it names.
fn lent_by(rule: &Rule) -> Vec<Use> {
    uses(rule, &Texts::of(rule).all)
        .into_iter()
        .flatten()
        .map(Some)
        .collect()
}

/// Everything by which rules differ, but for their names.
fn identity(rule: &Rule) -> String {
    let scope = (rule.permits, rule.actions, &rule.principal, &rule.resource);
    format!("{scope:?} {:?} {:?} {}", rule.lift, rule.label, rule.judged)
}

/// Whether some request is about both rules.
fn meet(one: &Rule, other: &Rule) -> bool {
    let is_within = |name: &str, domain: &str| {
        let rest = name.strip_suffix(domain);
        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    use Resources::{Anything, Domain, Host};
    let resources = match (&one.resource, &other.resource) {
        (Anything, _) | (_, Anything) => true,
        (Domain(one), Domain(other)) => is_within(one, other) || is_within(other, one),
        (Host(name), Domain(of)) | (Domain(of), Host(name)) => is_within(name, of),
        (one, other) => one == other,
    };
    resources && one.actions.and(other.actions) != Actions::union([])
}

/// Whether one verdict lets a request go on that the other does not, or with less to be met.
fn is_wider(new: &Verdict, old: &Verdict) -> bool {
    let needs = |verdict: &Verdict| -> BTreeSet<(u8, Arc<str>)> {
        let all = verdict.obligations.as_deref().cloned().unwrap_or_default();
        let labels = all.labels.into_iter().map(|label| (0, label));
        let budgets = all.budgets.into_iter().map(|one| (1, one.budget));
        let asks = all.asks.into_iter().map(|ask| (2, ask.question));
        labels.chain(budgets).chain(asks).collect()
    };
    new.may_be_lifted() && (!old.may_be_lifted() || !needs(new).is_superset(&needs(old)))
}

/// Whether the requests here can meet, and can miss, whatever a rule reads.
fn is_tried(rule: &Rule) -> bool {
    let Rule { reads, lift, .. } = rule;
    let is_tried = |fact: &Fact| match fact.row().input {
        // What an answer is for is the content, whether or not its conditions read that.
        Input::Content => *fact == Fact::Content && lift.is_some() && reads.content.is_empty(),
        Input::Session | Input::User | Input::Groups | Input::Clock | Input::ContentLength => false,
        _ => !UNTRIED.contains(fact),
    };
    let looks_at_principal = reads.session || reads.user || reads.hierarchy.principal;
    // A path that ends in a text, and begins with another.
    let ends = rule.judged.to_string().contains("like \"*");
    reads.facts.iter().all(is_tried) && !looks_at_principal && !ends
}

/// The facts of which not all values that tell rules apart are tried.
const UNTRIED: [Fact; 5] = {
    use Fact::*;
    [Segments, AnySegments, QueryNames, Depth, Entry]
};

/// The texts of one rule.
struct Texts<'r> {
    rule: &'r Rule,
    /// All of them, also of its scope.
    all: BTreeSet<String>,
    /// Those of facts that have several texts at once.
    several: BTreeSet<String>,
    numbers: BTreeSet<u16>,
}

impl<'r> Texts<'r> {
    fn of(rule: &'r Rule) -> Self {
        let mut texts = Self {
            rule,
            all: BTreeSet::new(),
            several: BTreeSet::new(),
            numbers: BTreeSet::new(),
        };
        let (judged, mut numbers) = (rule.judged.to_string(), BTreeSet::new());
        literals(&judged, &mut texts.all, &mut texts.numbers);
        for said in judged.split("context.").skip(1) {
            if SEVERAL.iter().any(|fact| said.starts_with(fact)) {
                literals(said, &mut texts.several, &mut numbers);
            }
        }
        match &rule.resource {
            Resources::Host(name) | Resources::Domain(name) | Resources::Credential(name) => {
                texts.all.insert(name.to_string());
            }
            _ => {}
        }
        if let Resources::Domain(name) = &rule.resource {
            texts.all.insert(format!("any.{name}"));
        }
        texts
    }
}

/// The beginnings of facts that have several texts at once.
const SEVERAL: [&str; 5] = ["labels", "query", "fields", "credentials", "actions"];

/// Returns the first of several texts, and how many more there are.
fn first(all: &BTreeSet<String>) -> String {
    let shown = Vec::from_iter(all.iter().take(SHOWN).map(String::as_str)).join(", ");
    match all.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown}, and {more} more"),
    }
}

fn is_private(ip: &IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => ip.is_private() || ip.is_loopback() || ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unique_local() || ip.is_loopback() || ip.is_unicast_link_local(),
    }
}

impl Witnesses {
    /// Makes requests that a rule may be about, by its own texts and those of the rules that it
    /// meets, and by others that no rule has.
    fn of(rule: &Rule, near: &[&Texts<'_>], most: usize) -> Self {
        let (mut texts, mut several) = (BTreeSet::new(), BTreeSet::new());
        for one in near {
            texts.extend(one.all.iter().cloned());
            several.extend(one.several.iter().cloned());
        }
        let are_few = texts.len() <= MOST_TEXTS && several.len() <= MOST_SEVERAL;
        let texts: BTreeSet<String> = texts.into_iter().take(MOST_TEXTS).collect();
        let mut ports = BTreeSet::from([80, 443, 8443]);
        near.iter().for_each(|one| ports.extend(&one.numbers));
        let reads = |facts: &[Fact]| {
            let mut near = near.iter().map(|one| &one.rule.reads.facts);
            near.any(|read| facts.iter().any(|fact| read.contains(fact)))
        };
        if !reads(&[Fact::Scheme, Fact::Secure, Fact::Port]) {
            ports = BTreeSet::from([443]);
        }
        let mut methods = METHODS.map(str::to_owned).to_vec();
        let is_method = |text: &&String| text.bytes().all(|byte| byte.is_ascii_uppercase());
        methods.extend(texts.iter().filter(is_method).cloned());
        methods.retain(|method| !method.is_empty());
        let mut fills = vec![BTreeSet::new()];
        if reads(&OF_TEXTS) || reads(&OF_FIELDS) {
            let one = texts.iter().map(String::as_str).chain(["websocket"]);
            fills.extend(one.map(|text| BTreeSet::from([text.to_owned()])));
            fills.push(texts.clone());
        }
        if are_few {
            let several: Vec<_> = several.into_iter().collect();
            let of = |bits: u32| {
                let has = |(nth, _): &(usize, &String)| bits >> nth & 1 == 1;
                several
                    .iter()
                    .enumerate()
                    .filter(has)
                    .map(|(_, text)| text.clone())
                    .collect()
            };
            fills.extend((1..1 << several.len()).map(of));
        }
        let targets = targets(&texts, (reads(&OF_PATH), reads(&OF_QUERY)));
        let mut schemes = vec![Scheme::Https, Scheme::Http];
        if !reads(&[Fact::Scheme, Fact::Secure]) {
            schemes.truncate(1);
        }
        let parts = vec![
            choices(methods, |request, method| request.method = method),
            choices(targets, |request, target| request.target = target),
            choices(hosts(rule, &texts), |request, host| request.host = host),
            choices(ports, |request, port| request.port = port),
            choices(schemes, |request, scheme| request.scheme = scheme),
            askers(rule, near),
            choices(fills, |request, texts| {
                texts.iter().for_each(|text| fill(request, text))
            }),
        ];
        let mut all = Self {
            parts,
            uses: uses(rule, &texts),
            tried: 0,
            are_all: are_few && near.iter().all(|one| is_tried(one.rule)),
        };
        all.tried = all.count().min(most);
        all
    }

    fn count(&self) -> usize {
        let all = self.parts.iter().map(Vec::len);
        all.fold(self.uses.len(), usize::saturating_mul)
    }

    fn nth(&self, nth: usize) -> (OwnedFacts, &Use) {
        let session = SessionId::new("any").expect("it is a name");
        let host = "any.example".parse().expect("it is a host");
        let target = RequestTarget::parse(b"/", EncodedSlash::Keep).expect("it is a target");
        let mut request = OwnedFacts::new(session, Scheme::Https, host, target);
        let spread = nth as u128 * self.count() as u128 / self.tried as u128;
        let mut rest = usize::try_from(spread).unwrap_or(nth);
        for choices in &self.parts {
            choices[rest % choices.len()](&mut request);
            rest /= choices.len();
        }
        (request, &self.uses[rest % self.uses.len()])
    }
}

fn choices<T: Clone + 'static>(
    all: impl IntoIterator<Item = T>,
    set: fn(&mut OwnedFacts, T),
) -> Vec<Choice> {
    let choice = |one: T| -> Choice { Box::new(move |request| set(request, one.clone())) };
    all.into_iter().map(choice).collect()
}

/// Makes a request one of those that a rule is for: also one that another rule is for, or all are.
fn askers(rule: &Rule, near: &[&Texts<'_>]) -> Vec<Choice> {
    let own = &rule.principal;
    let mut others: Vec<&Principals> = Vec::new();
    for other in near.iter().map(|one| &one.rule.principal) {
        if other != own && !others.contains(&other) {
            others.push(other);
        }
    }
    let alone = others.iter().map(|other| vec![(*other).clone()]);
    let every = others.iter().map(|other| (*other).clone()).collect();
    let all = alone.chain([Vec::new(), every]).map(|mut all: Vec<_>| {
        all.push(own.clone());
        all
    });
    choices(all, |request, all| {
        for one in all {
            match &one {
                Principals::Session(name) => {
                    request.session = SessionId::new(name).unwrap_or(request.session.clone());
                }
                Principals::User(name) => request.user = User::new(name),
                Principals::Group(name) => request.groups.push(name.as_str().into()),
                Principals::Anyone | Principals::Nobody => {}
            }
        }
    })
}

/// Returns the hosts that a rule is about.
fn hosts(rule: &Rule, texts: &BTreeSet<String>) -> Vec<Host> {
    let below = |name: &str| format!("any.{name}");
    let named = texts
        .iter()
        .filter(|text| text.contains(['.', ':']) && !text.contains('/'));
    let named = named.map(|text| text.replace('*', "any").trim_start_matches('.').to_owned());
    let all = match &rule.resource {
        Resources::Host(name) => vec![name.clone()],
        Resources::Domain(name) => {
            let named = named.filter(|text| text.ends_with(&**name));
            [name.clone(), below(name)]
                .into_iter()
                .chain(named)
                .collect()
        }
        _ => named.chain([below("example")]).collect(),
    };
    let all: BTreeSet<Host> = all.iter().filter_map(|text| text.parse().ok()).collect();
    all.into_iter().collect()
}

/// Returns what a rule decides: requests, the uses of credentials, or both.
fn uses(rule: &Rule, texts: &BTreeSet<String>) -> Vec<Use> {
    let is_asked = |one: &Action| *one != Action::Lend && rule.actions.holds(*one);
    let mut all = Vec::from_iter(Action::ALL.iter().any(is_asked).then_some(None));
    let names = match &rule.resource {
        Resources::Credential(name) => vec![&**name],
        _ => texts.iter().map(String::as_str).chain(["any"]).collect(),
    };
    let names = names
        .into_iter()
        .filter(|_| rule.actions.holds(Action::Lend));
    for name in names.filter_map(|name| CredentialName::new(name).ok()) {
        let places = texts
            .iter()
            .filter(|text| text.contains(':') && !text.contains('/'));
        let places = places.map(String::as_str).chain(PLACES);
        all.extend(places.map(|place| Some((name.clone(), place.to_owned()))));
    }
    all
}

/// Returns paths and queries by what rules say of them.
fn targets(texts: &BTreeSet<String>, (paths, queries): (bool, bool)) -> Vec<RequestTarget> {
    let all = if paths {
        &["/", "/any", "/any/any", "/any/any/any"][..]
    } else {
        &["/"]
    };
    let mut all: BTreeSet<String> = all.iter().map(|path| (*path).to_owned()).collect();
    let texts = texts.iter().map(|text| text.replace('*', "any"));
    let (named, other): (Vec<_>, Vec<_>) = texts.partition(|text| text.starts_with('/'));
    for path in named.into_iter().filter(|_| paths) {
        all.insert(format!("{}/any", path.trim_end_matches('/')));
        all.insert(path);
    }
    let mut said: Vec<_> = other
        .into_iter()
        .filter(|text| queries && text.contains('='))
        .collect();
    said.push(said.join("&"));
    said.extend(queries.then(|| "any=any".to_owned()));
    let with = |query: &String| Vec::from_iter(all.iter().map(|path| format!("{path}?{query}")));
    let with: Vec<_> = said
        .iter()
        .filter(|query| !query.is_empty())
        .flat_map(with)
        .collect();
    let read = |text: &String| RequestTarget::parse(text.as_bytes(), EncodedSlash::Keep).ok();
    all.iter().chain(&with).filter_map(read).collect()
}

/// Gives a request a text wherever it could have one of several.
fn fill(request: &mut OwnedFacts, text: &str) {
    request.labels.push(text.into());
    request.credentials.extend(CredentialName::new(text).ok());
    request.actions.push(text.to_owned());
    let (name, value) = text.split_once(": ").unwrap_or((text, "any"));
    if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), value.parse()) {
        request.fields.append(name, value);
    }
    match text {
        "websocket" => request.upgrade = text.to_owned(),
        "tls" | "connect" | "forward" | "socks" | "base" => request.entry = text.to_owned(),
        _ if text.find('/').is_some_and(|at| at > 0) => {
            let value = HeaderValue::from_str(text).ok();
            value.map(|value| request.fields.insert(CONTENT_TYPE, value));
        }
        _ => {}
    }
}

/// Takes the texts and the numbers of a part of a rule.
fn literals(text: &str, texts: &mut BTreeSet<String>, numbers: &mut BTreeSet<u16>) {
    let text = text.replace("\\\"", "\u{1a}");
    let text = text.replace("\\*", "*").replace("\\\\", "\\");
    for (nth, part) in text.split('"').enumerate() {
        if nth % 2 == 1 {
            texts.insert(part.replace('\u{1a}', "\""));
        } else {
            let words = part.split(|c: char| !c.is_ascii_alphanumeric());
            numbers.extend(words.filter_map(|word| word.parse::<u16>().ok()));
        }
    }
}

const OF_QUERY: [Fact; 3] = [Fact::QueryAny, Fact::QueryUnique, Fact::QueryNames];
/// The facts that are one of several texts, but for fields.
const OF_TEXTS: [Fact; 5] = {
    use Fact::*;
    [Labels, Entry, Upgrade, Credentials, Actions]
};
/// The usual place of a credential, and one that no rule names.
const PLACES: [&str; 2] = ["header:authorization:Bearer", "header:x-any"];
/// How many requests are judged for all rules, and at least for each.
const MOST: usize = 40_000;
const FEWEST: usize = 400;
/// How many texts are tried, and of facts with several at once, in every combination.
const MOST_TEXTS: usize = 64;
const MOST_SEVERAL: usize = 4;
/// How many origins, and how many paths of each, a line shows.
const SHOWN: usize = 4;
