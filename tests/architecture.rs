//! The floors of `docs/architecture.md`, kept true: no room uses one that stands above it, and what
//! a room may not touch it does not name. Reads the source text; tests are free to use what they
//! like.

#[path = "rig/source.rs"]
mod source;

use std::collections::BTreeSet;

use source::{Source, WithoutTests, every_file, parse, sources, top};
use syn::visit_mut::VisitMut;

/// Each room and the rooms that it may use. One that stands in no list is used by nobody.
const ROOMS: [(&str, &[&str]); 18] = [
    ("names", &[]),
    ("prefixes", &[]),
    ("files", &[]),
    ("message", &["names"]),
    ("body", &["names", "message"]),
    ("enroll", &[]),
    ("signature", &["names", "message"]),
    ("audit", &["names", "message", "body"]),
    ("intercept", &["names", "message", "body", "audit"]),
    (
        "session",
        &[
            "names",
            "signature",
            "message",
            "body",
            "audit",
            "intercept",
            "prefixes",
        ],
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
            "signature",
            "message",
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
        ],
    ),
    (
        "gateway",
        &[
            "names",
            "signature",
            "message",
            "body",
            "audit",
            "intercept",
            "session",
            "policy",
            "credential",
            "origin",
        ],
    ),
    (
        "config",
        &[
            "names",
            "files",
            "prefixes",
            "signature",
            "message",
            "body",
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
        "cli",
        &[
            "names",
            "message",
            "body",
            "enroll",
            "audit",
            "intercept",
            "session",
            "policy",
            "credential",
            "origin",
            "gateway",
            "config",
            "launch",
        ],
    ),
    ("launch", &["names", "prefixes", "enroll"]),
    ("main", &["cli"]),
];

/// What only some rooms may name: a crate or a word, and those rooms.
const RESERVED: [(&str, &[&str]); 10] = [
    ("cedar_policy", &["policy"]),
    ("rcgen", &["intercept", "launch", "cli"]),
    ("hickory_resolver", &["origin"]),
    ("hickory_proto", &["intercept", "origin"]),
    ("hyper", &["body", "intercept", "origin", "gateway", "cli"]),
    ("hyper_util", &["intercept", "origin", "gateway", "cli"]),
    ("tokio_rustls", &["intercept", "origin", "gateway", "cli"]),
    ("keyring_core", &["credential", "cli"]),
    ("expose", &["credential"]),
    ("unsafe", &["launch"]),
];

#[test]
fn no_room_uses_one_above_it() {
    let mut climbs = Vec::new();
    for (file, room) in rooms() {
        let (file, room) = (&file, &room);
        let allowed = allowed(room);
        for (used, line) in rooms_used(file) {
            if used != *room && !allowed.contains(&used.as_str()) {
                climbs.push(format!("{}:{line}: `{room}` uses `{used}`", file.path));
            }
        }
    }
    assert!(
        climbs.is_empty(),
        "these climb a floor:\n{}",
        climbs.join("\n")
    );
}

#[test]
fn what_belongs_to_a_room_is_named_there_only() {
    let mut strays = Vec::new();
    for (file, room) in rooms() {
        for (found, line) in file.words() {
            let reserved = RESERVED.iter().find(|(word, _)| *word == found);
            if reserved.is_some_and(|(_, rooms)| !rooms.contains(&room.as_str())) {
                strays.push(format!(
                    "{}:{line}: `{found}` is not for `{room}`",
                    file.path
                ));
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
fn the_map_of_the_house_shows_every_room() {
    let root = sources()
        .into_iter()
        .find(|file| file.path == "src/lib.rs")
        .unwrap();
    let modules = root.file.items.iter().filter_map(|item| match item {
        syn::Item::Mod(module) => Some(module.ident.to_string()),
        _ => None,
    });
    let shown: BTreeSet<String> = modules.collect();
    let known: BTreeSet<String> = ROOMS
        .iter()
        .map(|(room, _)| room.to_string())
        .filter(|room| room != "main")
        .collect();
    assert_eq!(shown, known);
    let page = std::fs::read_to_string(top().join("docs/architecture.md")).unwrap();
    for room in known {
        assert!(
            page.contains(&format!("`{room}`")),
            "docs/architecture.md does not tell of `{room}`"
        );
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
    let rooms: Vec<String> = rooms_used(&file)
        .into_iter()
        .map(|(room, _)| room)
        .collect();
    assert_eq!(rooms, ["a", "f", "g", "j", "k"]);
}

/// Every file with its room: the first folder or file below `src`.
fn rooms() -> Vec<(Source, String)> {
    let room = |file: &Source| {
        let below = file.root.strip_prefix(top().join("src")).unwrap();
        let folder = below.iter().next();
        let own = folder.map(|name| name.to_string_lossy().into_owned());
        own.or_else(|| file.module.first().cloned())
    };
    let files = sources().into_iter();
    files
        .filter_map(|file| room(&file).map(|room| (file, room)))
        .collect()
}

/// The rooms that a file names, with the lines.
fn rooms_used(file: &Source) -> Vec<(String, usize)> {
    let climbs_out = |path: &[String]| {
        path[0] == "crate" || path.iter().take_while(|word| *word == "super").count() > 0
    };
    file.paths()
        .into_iter()
        .filter(|(path, _)| path.len() > 1 && climbs_out(path))
        .filter_map(|(path, line)| Some((file.absolute(&path).first()?.clone(), line)))
        .collect()
}

fn allowed(room: &str) -> &'static [&'static str] {
    ROOMS
        .iter()
        .find(|(name, _)| *name == room)
        .unwrap_or_else(|| {
            panic!("`{room}` stands on no floor: add it here and to docs/architecture.md")
        })
        .1
}
