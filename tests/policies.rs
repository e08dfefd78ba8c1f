//! The shipped policies: each loads without a lint, and decides as its decision file says.

use std::path::{Path, PathBuf};

use gateway::config::Config;
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
        let report = decisions::run(&load(&file), &text, |_, _| false)
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
    let declared = declared(&facts.collect::<String>());
    for example in examples {
        let loaded = Policies::load(&[Source::new("policy.md", example)], declared.clone());
        let loaded = loaded.unwrap_or_else(|problems| panic!("{example}\n{problems}"));
        assert_eq!(loaded.current().lints(), [], "{example}");
    }
}
