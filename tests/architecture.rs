//! The map of `docs/architecture.md`, kept true where Cargo does not: which crates may depend on
//! what belongs to some, and that the map shows every crate. What a crate may use of the others its
//! `Cargo.toml` says. Reads the source text; tests are free to use what they like.

#[path = "rig/tree.rs"]
mod tree;

use std::collections::BTreeSet;

use tree::{every_file, top};

/// What only some crates may use: a dependency, and the packages that may name it.
const RESERVED: [(&str, &[&str]); 10] = [
    ("cedar-policy", &["gateway-policy"]),
    ("rcgen", &["gateway", "gateway-launch", "gateway-intercept"]),
    ("hickory-resolver", &["gateway-origin"]),
    ("hickory-proto", &["gateway-wire", "gateway-intercept"]),
    (
        "hyper",
        &[
            "gateway",
            "gateway-body",
            "gateway-intercept",
            "gateway-origin",
            "gateway-server",
            "gateway-control",
        ],
    ),
    (
        "hyper-util",
        &[
            "gateway",
            "gateway-intercept",
            "gateway-origin",
            "gateway-server",
            "gateway-control",
        ],
    ),
    (
        "tokio-rustls",
        &[
            "gateway",
            "gateway-intercept",
            "gateway-origin",
            "gateway-state",
        ],
    ),
    (
        "rusqlite",
        &["gateway-files", "gateway-state", "gateway-intercept"],
    ),
    ("keyring-core", &["gateway-credential"]),
    ("tokio-postgres", &["gateway-state"]),
];

#[test]
fn every_crate_but_the_launcher_and_its_probes_forbids_unsafe_code() {
    let roots = members().into_iter().map(|(folder, _)| match &folder[..] {
        "." => "src/lib.rs".to_owned(),
        _ => format!("{folder}/lib.rs"),
    });
    for path in roots.chain(["src/main.rs".to_owned()]) {
        let forbids = read(&path).contains("#![forbid(unsafe_code)]");
        let may = ["src/launch/lib.rs", "src/escape/lib.rs"].contains(&&path[..]);
        assert_eq!(forbids, !may, "{path}");
    }
}

#[test]
fn what_belongs_to_some_is_a_dependency_of_theirs_only() {
    for (dependency, those) in RESERVED {
        let users: BTreeSet<String> = members()
            .into_iter()
            .filter(|(_, manifest)| manifest["dependencies"].get(dependency).is_some())
            .map(|(_, manifest)| manifest["package"]["name"].as_str().unwrap().to_owned())
            .collect();
        let may = those.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(users, may, "{dependency}");
    }
}

/// The folder and the manifest of each crate that is built.
fn members() -> Vec<(String, toml::Table)> {
    let manifest = |folder: &str| read(&format!("{folder}/Cargo.toml")).parse().unwrap();
    let top: toml::Table = manifest(".");
    let folders = top["workspace"]["default-members"].as_array().unwrap();
    let folders = folders.iter().map(|folder| folder.as_str().unwrap());
    folders
        .map(|folder| (folder.to_owned(), manifest(folder)))
        .collect()
}

#[test]
fn the_map_shows_every_crate() {
    let page = read("docs/architecture.md");
    let folders = members().into_iter().map(|(folder, _)| folder);
    for folder in folders.filter(|folder| folder != ".") {
        let name = folder.strip_prefix("src/").unwrap();
        let told = page.contains(&format!("`{name}`"));
        assert!(told, "docs/architecture.md does not tell of `{name}`");
    }
}

#[test]
fn the_map_says_of_each_mechanism_in_which_file_it_lives() {
    let page = read("docs/architecture.md");
    let paths = |text: &str| -> Vec<String> {
        let words = text.split('`').skip(1).step_by(2);
        let is_path = |word: &&str| {
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_/.".contains(c);
            word.trim_end_matches('/').contains('/') && word.chars().all(plain)
        };
        words.filter(is_path).map(str::to_owned).collect()
    };
    for path in paths(&page) {
        let places = [top().join("src").join(&path), top().join(&path)];
        assert!(places.iter().any(|place| place.exists()), "{path}");
    }
    let (_, list) = page.split_once("## The mechanisms\n").unwrap();
    let (list, _) = list.split_once("\n## ").unwrap();
    let rows: Vec<&str> = list.lines().filter(|line| line.starts_with("| ")).collect();
    assert!(rows.len() > 25, "{} mechanisms", rows.len());
    // The first row is the table's head; `(there)` is the file of the row above.
    for row in &rows[1..] {
        assert!(row.contains("(there)") || !paths(row).is_empty(), "{row}");
    }
}

#[test]
fn every_file_says_in_its_first_line_what_it_is() {
    let silent: Vec<String> = every_file(&top().join("src"))
        .into_iter()
        .chain(every_file(&top().join("tests")))
        .chain(every_file(&top().join("benches")))
        .filter(|path| !std::fs::read_to_string(path).unwrap().starts_with("//! "))
        .map(|path| path.display().to_string())
        .collect();
    assert!(silent.is_empty(), "no `//!` line opens {silent:#?}");
}

fn read(path: &str) -> String {
    std::fs::read_to_string(top().join(path)).unwrap()
}
