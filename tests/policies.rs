//! The shipped policies: each loads without a lint, and decides as its decision file says.

use std::path::{Path, PathBuf};

use gateway::config::Config;
use gateway::message::EncodedSlash;
use gateway::policy::{Declared, Policies, Source, decisions};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("policies")
}

/// What a text of configuration declares of content.
fn declared(text: &str) -> Declared {
    let config = Config::from_str(text, Path::new("gateway.toml"));
    config
        .unwrap_or_else(|refused| panic!("{refused}"))
        .declared()
}

/// The default policies, and the ones beside a decision file.
fn load(decisions: &Path) -> Policies {
    let mut sources = Source::read(&folder().join("default.cedar")).unwrap();
    let policies = decisions.with_extension("cedar");
    if policies.exists() {
        sources.extend(Source::read(&policies).unwrap());
    }
    Policies::load(&sources, declared(""))
        .unwrap_or_else(|problems| panic!("{}:\n{problems}", policies.display()))
}

fn decision_files() -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder().join("decisions"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "toml"))
        .collect();
    files.sort();
    files
}

#[test]
fn shipped_policies_decide_as_their_decision_files_say() {
    let files = decision_files();
    assert!(files.len() >= 4, "{files:?}");
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let report = decisions::run(&load(&file), &text, |_, _| false, |_| EncodedSlash::Refuse)
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        assert!(
            report.failed.is_empty(),
            "{}: {:#?}",
            file.display(),
            report.failed
        );
        assert!(report.passed > 0, "{}", file.display());
    }
}

#[test]
fn shipped_policies_have_no_lint() {
    for file in decision_files() {
        let policies = load(&file);
        assert!(
            policies.current().lints().is_empty(),
            "{}: {:#?}",
            file.display(),
            policies.current().lints()
        );
    }
}

#[test]
fn each_shipped_policy_file_has_decisions() {
    for entry in std::fs::read_dir(folder().join("decisions")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "cedar") {
            assert!(path.with_extension("toml").exists(), "{}", path.display());
        }
    }
}

#[test]
fn the_examples_in_the_documentation_load() {
    let docs = std::fs::read_to_string(folder().parent().unwrap().join("docs/policy.md")).unwrap();
    let blocks = |kind: &str| -> Vec<&str> {
        let blocks = docs.split(kind).skip(1);
        blocks
            .map(|rest| rest.split("```").next().unwrap())
            .collect()
    };
    let examples = blocks("```cedar\n");
    assert!(examples.len() >= 3);
    let configuration = blocks("```toml\n");
    let facts = configuration
        .into_iter()
        .filter(|text| text.contains("[[fact]]") || text.contains("[[read]]"));
    let budget = "[[budget]]\nname = \"models\"\nunit = \"usd\"\nmost = 5\nper = \"day\"\n";
    let declared = declared(&(facts.collect::<String>() + budget));
    for example in examples {
        let loaded = Policies::load(&[Source::new("policy.md", example)], declared.clone());
        let loaded = loaded.unwrap_or_else(|problems| panic!("{example}\n{problems}"));
        assert_eq!(loaded.current().lints(), [], "{example}");
    }
}

/// The hosts that presets and profiles allow or read, and to which nothing of theirs is lent: why.
const UNBOUND: &[(&str, &str)] = &[
    (
        "codeload.github.com",
        "takes the signed address to which an API leads",
    ),
    (
        "*.githubusercontent.com",
        "takes signed addresses; the one that takes a token is bound by name",
    ),
    ("*.hf.co", "takes signed addresses of files"),
    ("wss-primary.slack.com", "takes the ticket in its address"),
    ("wss-backup.slack.com", "takes the ticket in its address"),
    (
        "*.githubcopilot.com",
        "hosts of plans are bound by the login",
    ),
    (
        "copilot-proxy.githubusercontent.com",
        "takes the session's token of Copilot, which is in no variable",
    ),
    (
        "origin-tracker.githubusercontent.com",
        "takes the session's token of Copilot, which is in no variable",
    ),
    (
        "*.cursor.sh",
        "takes the tokens for which a key is exchanged at the bound one",
    ),
    (
        "*.myshopify.com",
        "the shop is named with the preset, and bound",
    ),
    (
        "mcp.notion.com",
        "takes the tokens of a login at its own issuer",
    ),
    (
        "mcp.sentry.dev",
        "takes the tokens of a login at its own issuer",
    ),
    (
        "mcp.linear.app",
        "takes the tokens of a login at its own issuer",
    ),
    (
        "platform.claude.com",
        "the issuer: the gateway itself asks it",
    ),
    ("claude.ai", "where a person logs in; takes the code"),
    ("downloads.claude.ai", "public; takes no token"),
    ("auth.openai.com", "the issuer: the gateway itself asks it"),
    (
        "opencode.ai",
        "its own key has no preset: `--secret NAME@opencode.ai`",
    ),
    ("models.dev", "public; takes no token"),
];

#[test]
fn each_host_that_a_preset_or_profile_allows_or_reads_is_bound_or_says_why_not() {
    type Table = toml::Table;
    let read = |kind: &str| -> Vec<Table> {
        let files = std::fs::read_dir(folder().join(kind)).unwrap();
        let texts = files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
        texts.map(|text| text.parse().unwrap()).collect()
    };
    fn texts<'t>(table: &'t Table, key: &str) -> Vec<&'t str> {
        let all = table.get(key).and_then(toml::Value::as_array);
        let all = all.into_iter().flatten();
        all.filter_map(toml::Value::as_str).collect()
    }
    fn below<'t>(table: &'t Table, section: &str, key: &str) -> Vec<&'t str> {
        let rows = table.get(section).and_then(toml::Value::as_array);
        let rows = rows.into_iter().flatten().filter_map(toml::Value::as_table);
        rows.flat_map(|row| texts(row, key)).collect()
    }
    let (services, profiles) = (read("services"), read("agents"));
    let name = |table: &Table| table["name"].as_str().unwrap().to_owned();
    let (mut missing, mut told) = (Vec::new(), Vec::new());
    for table in services.iter().chain(&profiles) {
        // Without a credential, all of its hosts are public.
        if !["credential", "login", "registry", "presets", "logins"]
            .iter()
            .any(|key| table.contains_key(*key))
        {
            continue;
        }
        let (presets, logins) = (texts(table, "presets"), texts(table, "logins"));
        let is_its_own = |one: &&Table| {
            presets.contains(&&*name(one))
                || below_names(one).iter().any(|login| logins.contains(login))
        };
        let own = services.iter().filter(is_its_own).chain([table]);
        let bound: Vec<&str> = own
            .flat_map(|one| {
                [
                    below(one, "credential", "hosts"),
                    below(one, "login", "hosts"),
                ]
                .concat()
            })
            .collect();
        for host in [texts(table, "allow"), below(table, "read", "hosts")].concat() {
            match UNBOUND.iter().find(|(unbound, _)| *unbound == host) {
                _ if bound.contains(&host) => {}
                Some((unbound, _)) => told.push(*unbound),
                None => missing.push(format!("{host} of {}", name(table))),
            }
        }
    }
    assert_eq!(missing, [""; 0]);
    let gone = UNBOUND.iter().filter(|(host, _)| !told.contains(host));
    assert_eq!(gone.count(), 0, "bound by now, or gone: {told:?}");

    fn below_names(table: &Table) -> Vec<&str> {
        let rows = table.get("login").and_then(toml::Value::as_array);
        let rows = rows.into_iter().flatten();
        rows.filter_map(|row| row["name"].as_str()).collect()
    }
}
