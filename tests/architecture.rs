//! The map of `docs/architecture.md`, kept true: no module uses one below it, and what a module may
//! not touch it does not name. Reads the source text; tests are free to use what they like.

#[path = "rig/source.rs"]
mod source;
#[path = "rig/tree.rs"]
mod tree;

use std::collections::BTreeSet;

use source::{Source, WithoutTests, parse, sources};
use syn::visit_mut::VisitMut;
use tree::{every_file, top};

/// The crates under `src`, by the folder of each, and those among them that it may use.
const LEAVES: [(&str, &[&str]); 10] = [
    ("names", &[]),
    ("message", &["names"]),
    ("body", &["names", "message"]),
    ("wire", &["names", "message"]),
    ("signature/sigv4", &["names", "message"]),
    ("signature/recipe", &["names", "message"]),
    ("token", &["names", "message"]),
    ("audit", &["names"]),
    ("launch", &["names"]),
    ("escape", &["names", "launch"]),
];

/// The modules of the program, each with what it may use: of its modules, and of the crates.
const MODULES: [(&str, &[&str]); 15] = [
    ("files", &["names", "launch"]),
    ("state", &["names", "files", "token"]),
    (
        "intercept",
        &["names", "message", "wire", "body", "audit", "token"],
    ),
    (
        "session",
        &["names", "recipe", "message", "body", "audit", "intercept"],
    ),
    (
        "policy",
        &[
            "names",
            "files",
            "message",
            "body",
            "audit",
            "intercept",
            "session",
        ],
    ),
    (
        "credential",
        &[
            "names",
            "files",
            "state",
            "recipe",
            "sigv4",
            "message",
            "wire",
            "body",
            "audit",
            "intercept",
            "session",
            "policy",
        ],
    ),
    (
        "origin",
        &[
            "names",
            "message",
            "body",
            "audit",
            "session",
            "policy",
            "credential",
            "launch",
        ],
    ),
    (
        "gateway",
        &[
            "names",
            "message",
            "wire",
            "body",
            "audit",
            "intercept",
            "session",
            "policy",
            "credential",
            "origin",
            "token",
        ],
    ),
    (
        "grant",
        &[
            "names",
            "files",
            "message",
            "audit",
            "intercept",
            "session",
            "policy",
            "credential",
            "origin",
            "gateway",
        ],
    ),
    (
        "control",
        &[
            "names", "files", "audit", "policy", "session", "gateway", "grant", "token",
        ],
    ),
    (
        "export",
        &[
            "names",
            "files",
            "audit",
            "message",
            "credential",
            "origin",
            "gateway",
        ],
    ),
    (
        "config",
        &[
            "names",
            "files",
            "recipe",
            "sigv4",
            "message",
            "body",
            "audit",
            "intercept",
            "session",
            "policy",
            "credential",
            "origin",
            "gateway",
            "export",
            "token",
        ],
    ),
    (
        "app",
        &[
            "names",
            "files",
            "state",
            "message",
            "body",
            "audit",
            "intercept",
            "session",
            "policy",
            "credential",
            "origin",
            "gateway",
            "grant",
            "control",
            "export",
            "config",
            "launch",
            "token",
        ],
    ),
    (
        "cli",
        &[
            "names",
            "files",
            "state",
            "message",
            "body",
            "audit",
            "intercept",
            "session",
            "policy",
            "credential",
            "origin",
            "gateway",
            "grant",
            "control",
            "export",
            "config",
            "app",
            "token",
            "launch",
            "escape",
        ],
    ),
    ("main", &["cli"]),
];

/// What only some modules and crates may name: a crate or a word, and those modules and crates.
const RESERVED: [(&str, &[&str]); 11] = [
    ("cedar_policy", &["policy"]),
    ("rcgen", &["intercept", "launch", "cli"]),
    ("hickory_resolver", &["origin"]),
    ("hickory_proto", &["wire", "intercept", "origin"]),
    (
        "hyper",
        &["body", "intercept", "origin", "gateway", "control", "cli"],
    ),
    (
        "hyper_util",
        &["intercept", "origin", "gateway", "control", "cli"],
    ),
    ("tokio_rustls", &["intercept", "origin", "gateway", "cli"]),
    ("rusqlite", &["files", "state", "intercept"]),
    ("keyring_core", &["credential", "cli"]),
    ("expose", &["credential"]),
    ("unsafe", &["launch", "escape"]),
];

#[test]
fn no_module_uses_one_below_it_in_the_map() {
    let mut climbs = Vec::new();
    for (file, module) in placed().iter().filter(|(file, _)| is_of_the_program(file)) {
        let allowed = allowed(module);
        for (used, line) in used(file) {
            if used != *module && !allowed.contains(&used.as_str()) {
                climbs.push(format!("{}:{line}: `{module}` uses `{used}`", file.path));
            }
        }
    }
    assert!(climbs.is_empty(), "these climb:\n{}", climbs.join("\n"));
}

#[test]
fn a_crate_under_src_uses_only_those_below_it() {
    for (folder, allowed) in LEAVES {
        let page = read(&format!("src/{folder}/Cargo.toml"));
        let manifest: toml::Table = page.parse().unwrap();
        let used: BTreeSet<&str> = manifest["dependencies"]
            .as_table()
            .unwrap()
            .keys()
            .filter_map(|name| name.strip_prefix("gateway-"))
            .collect();
        assert_eq!(used, allowed.iter().copied().collect(), "src/{folder}");
    }
}

#[test]
fn every_crate_but_the_launcher_and_its_probes_forbids_unsafe_code() {
    let leaves = LEAVES
        .iter()
        .map(|(folder, _)| format!("src/{folder}/lib.rs"));
    for path in leaves.chain(["src/lib.rs", "src/main.rs"].map(str::to_owned)) {
        let forbids = read(&path).contains("#![forbid(unsafe_code)]");
        let may = ["src/launch/lib.rs", "src/escape/lib.rs"].contains(&&path[..]);
        assert_eq!(forbids, !may, "{path}");
    }
}

#[test]
fn what_belongs_to_some_is_named_there_only() {
    let mut strays = Vec::new();
    for (file, module) in placed() {
        for (found, line) in file.words() {
            let reserved = RESERVED.iter().find(|(word, _)| *word == found);
            if reserved.is_some_and(|(_, those)| !those.contains(&module.as_str())) {
                let path = &file.path;
                strays.push(format!("{path}:{line}: `{found}` is not for `{module}`"));
            }
        }
    }
    assert!(
        strays.is_empty(),
        "these do not belong there:\n{}",
        strays.join("\n")
    );
}

#[test]
fn the_map_shows_every_module_and_crate() {
    let root = sources()
        .into_iter()
        .find(|file| file.path == "src/lib.rs")
        .unwrap();
    let modules = root.file.items.iter().filter_map(|item| match item {
        syn::Item::Mod(module) => Some(module.ident.to_string()),
        _ => None,
    });
    let shown: BTreeSet<String> = modules.collect();
    let known = MODULES.iter().map(|(module, _)| (*module).to_owned());
    let known: BTreeSet<String> = known.filter(|module| module != "main").collect();
    assert_eq!(shown, known);
    let page = read("docs/architecture.md");
    let leaves = LEAVES.iter().map(|(folder, _)| (*folder).to_owned());
    for name in known.into_iter().chain(leaves) {
        let told = page.contains(&format!("`{name}`"));
        assert!(told, "docs/architecture.md does not tell of `{name}`");
    }
}

#[test]
fn every_test_that_the_documents_name_exists() {
    let code: String = ["src", "tests"]
        .iter()
        .flat_map(|folder| every_file(&top().join(folder)))
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect();
    let page = std::fs::read_to_string(top().join("docs/threat-model.md")).unwrap();
    let named: Vec<&str> = page
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|word| {
            word.matches('_').count() >= 3 && word.chars().all(|c| c.is_alphanumeric() || c == '_')
        })
        .collect();
    assert!(named.len() > 40, "the page names its tests");
    let missing: Vec<&&str> = named
        .iter()
        .filter(|name| !code.contains(&format!("fn {name}(")))
        .collect();
    assert!(
        missing.is_empty(),
        "docs/threat-model.md names tests that do not exist: {missing:#?}"
    );
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

#[test]
fn the_reader_sees_through_comments_strings_and_tests() {
    let mut file = parse(
        "use crate::a::X;\n/* crate::b */ // crate::c\nconst S: &'static str = \"crate::d\"; const Q: char = '\"';\n\
         #[cfg(test)]\nmod tests {\n  use crate::e;\n  fn f() { let x = \"}\"; }\n}\nuse crate::{f::Y, g};\n\
         const R: &str = r#\"crate::h \" \"#;\n#[cfg(test)]\nuse crate::i;\nuse super::super::j;\n\
         fn k() { assert!(crate::k::l()); #[cfg(test)] let m = crate::m::n(); }",
    );
    WithoutTests.visit_file_mut(&mut file);
    let file = Source {
        path: "src/z/y.rs".into(),
        root: top().join("src"),
        module: vec!["z".into(), "y".into()],
        file,
    };
    let modules: Vec<String> = used(&file).into_iter().map(|(module, _)| module).collect();
    assert_eq!(modules, ["a", "f", "g", "j", "k"]);
}

/// Every file with its module or crate: the first folder or file below `src`.
fn placed() -> Vec<(Source, String)> {
    let place = |file: &Source| {
        let below = file.root.strip_prefix(top().join("src")).unwrap();
        let folder = below.iter().next();
        let own = folder.map(|name| name.to_string_lossy().into_owned());
        own.or_else(|| file.module.first().cloned())
    };
    let files = sources().into_iter();
    files
        .filter_map(|file| place(&file).map(|place| (file, place)))
        .collect()
}

fn is_of_the_program(file: &Source) -> bool {
    file.root == top().join("src")
}

/// The modules of the program that a file names, and the crates by their names there, with the
/// lines.
fn used(file: &Source) -> Vec<(String, usize)> {
    let climbs_out = |path: &[String]| {
        path[0] == "crate" || path.iter().take_while(|word| *word == "super").count() > 0
    };
    file.paths()
        .into_iter()
        .filter(|(path, _)| path.len() > 1 && climbs_out(path))
        .filter_map(|(path, line)| Some((file.absolute(&path).first()?.clone(), line)))
        .collect()
}

fn allowed(module: &str) -> &'static [&'static str] {
    let known = MODULES.iter().find(|(name, _)| *name == module);
    let Some((_, allowed)) = known else {
        panic!("`{module}` is not in the map: add it here and to docs/architecture.md")
    };
    allowed
}

fn read(path: &str) -> String {
    std::fs::read_to_string(top().join(path)).unwrap()
}
