//! Consent states exactly what the next run may reach and is lent: for generated files and shells.

use std::path::Path;
use std::process::Command;

use super::*;
use crate::message::{EncodedSlash, Host, HostPattern, RequestTarget, Scheme};
use crate::policy::OwnedFacts;

/// A generator with a fixed seed: xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33;
        usize::try_from(number).unwrap() % bound
    }

    fn one<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len())]
    }

    fn some<'a>(&mut self, all: &[&'a str]) -> Vec<&'a str> {
        let all = all.iter().copied();
        all.filter(|_| self.below(3) == 0).collect()
    }
}

const VARIABLES: [&str; 7] = [
    "GITHUB_TOKEN",
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "STRIPE_API_KEY",
    "GITLAB_TOKEN",
    "NPM_TOKEN",
    "AWS",
];
const NAMES: [&str; 5] = ["github", "openai", "anthropic", "gitlab", "aws"];
const HOSTS: [&str; 7] = [
    "api.github.com",
    "github.com",
    "api.openai.com",
    "api.anthropic.com",
    "gitlab.com",
    "s3.eu-west-1.amazonaws.com",
    "docs.example.com",
];
const DOMAINS: [&str; 3] = ["github.com", "amazonaws.com", "example.com"];
const PATHS: [&str; 3] = ["/", "/x", "/y/z"];

fn rule(random: &mut Random) -> String {
    let (host, other) = (random.one(&HOSTS), random.one(&HOSTS));
    let (name, domain) = (random.one(&NAMES), random.one(&DOMAINS));
    let path = random.one(&PATHS);
    let lend = format!(
        "principal, action == Gateway::Action::\"lend\", \
         resource == Gateway::Credential::\"{name}\""
    );
    let any = "principal, action in Gateway::Action::\"any\", resource";
    let at = format!("resource == Gateway::Host::\"{host}\"");
    let to = |host: &str| format!("context.origin == Gateway::Host::\"{host}\"");
    let (to, to_other) = (to(host), to(other));
    match random.below(12) {
        0 | 1 => format!("permit({any} == Gateway::Host::\"{host}\");"),
        2 => format!("permit({any} in Gateway::Domain::\"{domain}\");"),
        3 => format!(
            "permit(principal, action == Gateway::Action::\"POST\", {at}) \
             when {{ context.path == \"{path}\" }};"
        ),
        4 => format!("permit({lend}) when {{ {to} }};"),
        5 => format!("permit({lend}) when {{ {to} && context.method == \"GET\" }};"),
        6 => {
            format!("permit({lend}) when {{ ({to} && context.path == \"{path}\") || {to_other} }};")
        }
        7 => format!("permit({lend});"),
        8 => format!("forbid({any} == Gateway::Host::\"{host}\");"),
        9 => {
            format!("forbid({any} in Gateway::Domain::\"{domain}\") when {{ context.port == 22 }};")
        }
        10 => format!("forbid({lend}) when {{ {to} }};"),
        _ => {
            format!("permit({lend}) unless {{ context.origin in Gateway::Domain::\"{domain}\" }};")
        }
    }
}

fn file(random: &mut Random) -> String {
    let quoted = |all: Vec<&str>| {
        let all: Vec<String> = all.iter().map(|one| format!("\"{one}\"")).collect();
        all.join(", ")
    };
    let presets = quoted(random.some(&["github", "openai", "stripe"]));
    let allow = quoted(random.some(&["docs.example.com", "*.example.org"]));
    let mut text = format!("[policy]\npresets = [{presets}]\nallow = [{allow}]\n");
    if random.below(3) > 0 {
        let rules: Vec<String> = (0..=random.below(6)).map(|_| rule(random)).collect();
        text.push_str(&format!("rules = '''\n{}\n'''\n", rules.join("\n")));
    }
    if random.below(4) == 0 {
        text.push_str("[[credential]]\nname = \"own\"\nfrom = \"env:STRIPE_API_KEY\"\n");
        text.push_str("origins = [\"https://docs.example.com\"]\n");
    }
    text
}

/// Returns every request that is tried at a host, with or without a credential.
fn requests(host: &Host, credential: Option<&CredentialName>) -> Vec<OwnedFacts> {
    let mut all = Vec::new();
    for path in PATHS {
        for method in ["GET", "POST"] {
            let target = RequestTarget::parse(path.as_bytes(), EncodedSlash::Keep).unwrap();
            let session = SessionId::new(EXEC).unwrap();
            let mut one = OwnedFacts::new(session, Scheme::Https, host.clone(), target);
            one.method = method.to_owned();
            one.credentials.extend(credential.cloned());
            all.push(one);
        }
    }
    all
}

/// Returns the hosts that generated rules and credentials name.
fn hosts(bound: &[&Binding], said: &BTreeSet<HostScope>) -> Vec<Host> {
    let named = HOSTS.iter().chain(&DOMAINS).map(|host| (*host).to_owned());
    let below = DOMAINS.iter().map(|name| format!("any.{name}"));
    let origins = bound.iter().flat_map(|one| &one.origins);
    let origins = origins.map(|origin| match &origin.hosts {
        HostPattern::Exact(host) => host.as_str().to_owned(),
        HostPattern::Below(domain) => format!("any.{}", domain.as_str()),
    });
    let said = said.iter().map(|scope| match scope {
        HostScope::Host(name) => name.clone(),
        HostScope::Domain(name) => format!("any.{name}"),
    });
    let all: BTreeSet<String> = named.chain(below).chain(origins).chain(said).collect();
    all.iter().map(|host| host.parse().unwrap()).collect()
}

/// Compares the consent for a file with a run that uses it. Returns how many hosts and loans were
/// compared; `None` if both refuse the file.
fn compare(text: &str) -> Option<(usize, usize)> {
    let project = project().unwrap();
    let read = Config::of_project(text, &project.join("gateway.toml"));
    let config = read.unwrap_or_else(|refused| panic!("{text}\n{refused}"));
    // The run, as `exec` makes it.
    let run = || {
        let mut config = config.clone();
        config.granted = state::granted_for(&project, None);
        let shell = ShellLoans::of(None, &SecretAnswers::of(&project)?);
        let resolved = ResolvedConfig::of(&config, &shell)?;
        let sources = generation::sources(&config, &resolved, &generation::granted(&config)?)?;
        generation::first(&config, &resolved, (&sources, Vec::new()))
    };
    let (made, said) = match (run(), NextRun::of(&config)) {
        (Ok(made), Ok(said)) => (made, said.summary),
        (Err(_), Err(_)) => return None,
        (made, said) => panic!("{text}\n{:?} {:?}", made.err(), said.err()),
    };
    let policies = made.policies.current();
    let bound = made.credentials.bindings().all();
    let bound = bound.filter(|one| !matches!(one.role, Role::Part(_)));
    let bound: Vec<&Binding> = bound.collect();
    let said_hosts = said.reaches.clone().unwrap();
    let hosts = hosts(&bound, &said_hosts);

    let asks = |one: &OwnedFacts| policies.ask(&one.facts()).allowed();
    let names = bound.iter().map(|one| Some(&one.credential));
    let carried: Vec<Option<&CredentialName>> = std::iter::once(None).chain(names).collect();
    let mut reached: Vec<&Host> = hosts.iter().collect();
    reached.retain(|host| {
        let mut all = carried.iter().flat_map(|name| requests(host, *name));
        all.any(|one| asks(&one))
    });
    let covers = |scope: &HostScope, host: &Host| match scope {
        HostScope::Host(name) => host.as_str() == name,
        HostScope::Domain(name) => format!(".{}", host.as_str()).ends_with(&format!(".{name}")),
    };
    for host in &reached {
        let is_said = said_hosts.iter().any(|scope| covers(scope, host));
        assert!(is_said, "{host} is reached\n{text}");
    }
    for scope in &said_hosts {
        let is_so = reached.iter().any(|host| covers(scope, host));
        assert!(is_so, "{scope:?} is not reached\n{text}");
    }

    let mut lent = 0;
    for binding in bound {
        let name = &binding.credential;
        let mut said = said.lends.iter();
        let said = said.find(|(stored, _)| stored.binding.credential == *name);
        let said = said.map_or(&[][..], |(_, to)| to);
        let lends = |one: &OwnedFacts| {
            let mut places = binding.places.iter().map(ToString::to_string);
            asks(one) && places.any(|place| policies.lend(&one.facts(), name, &place).allowed())
        };
        for origin in &binding.origins {
            let at = hosts.iter().filter(|host| origin.hosts.matches(host));
            let mut tried = at.flat_map(|host| requests(host, Some(name)));
            let is_lent = tried.any(|one| lends(&one));
            assert_eq!(said.contains(origin), is_lent, "{name} to {origin}\n{text}");
            lent += usize::from(is_lent);
        }
    }
    Some((reached.len(), lent))
}

#[test]
fn consent_says_what_the_next_run_reaches_and_is_lent() {
    // Each shell needs a process of its own, which is this program.
    if let Ok(seed) = std::env::var(SEED) {
        let mut random = Random(seed.parse().unwrap());
        let mut answers = SecretAnswers::of(&project().unwrap()).unwrap();
        for name in random.some(&["github", "openai", "anthropic", "stripe", "aws"]) {
            answers.set(name, random.below(3) > 0);
        }
        answers.keep().unwrap();
        let all = (0..FILES).filter_map(|_| compare(&file(&mut random)));
        let (hosts, lent) = all.fold((0, 0), |(a, b), (c, d)| (a + c, b + d));
        println!("compared {hosts} {lent}");
        return;
    }
    let (mut hosts, mut loans) = (0, 0);
    for seed in 1..=SHELLS {
        let folder = tempfile::tempdir().unwrap();
        let (code, told) = in_shell(folder.path(), seed);
        assert!(code, "shell {seed}:\n{told}");
        let mut lines = told.lines();
        let (_, line) = lines.find_map(|line| line.split_once("compared ")).unwrap();
        let mut numbers = line.split(' ').map(|word| word.parse::<usize>().unwrap());
        hosts += numbers.next().unwrap();
        loans += numbers.next().unwrap();
    }
    println!(
        "{hosts} hosts and {loans} loans in {} files",
        SHELLS * FILES
    );
    assert!(hosts > 200 && loans > 100, "{hosts} {loans}");
}

/// Runs this test in another shell.
fn in_shell(folder: &Path, seed: u64) -> (bool, String) {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let mut command = Command::new(std::env::current_exe().unwrap());
    let test = "cli::config_summary::tests::consent_says_what_the_next_run_reaches_and_is_lent";
    let work = folder.join("work");
    std::fs::create_dir(&work).unwrap();
    command
        .args(["--exact", test, "--nocapture"])
        .current_dir(&work);
    command
        .env_clear()
        .env(SEED, seed.to_string())
        .env("HOME", folder);
    command.env("PATH", "/usr/bin:/bin");
    let mut set = VARIABLES.to_vec();
    set.retain(|_| random.below(2) == 0);
    for name in set {
        let value = format!("kq7Zp2{:016x}", random.below(usize::MAX));
        if name == "AWS" {
            command.env("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE");
            command.env("AWS_SECRET_ACCESS_KEY", format!("{value}{value}"));
        } else {
            command.env(name, value);
        }
    }
    let output = command.output().unwrap();
    let told = [output.stdout, output.stderr].concat();
    let told = String::from_utf8_lossy(&told).into_owned();
    (output.status.success(), told)
}

/// The variable that marks a process of this test as one of its shells.
const SEED: &str = "GATEWAY_TEST_SHELL";
const SHELLS: u64 = 20;
/// Files for each shell.
const FILES: u64 = 10;
