//! The floors of `docs/architecture.md`, kept true: no room uses one that stands above it, and what
//! a room may not touch it does not name. Reads the source text; tests are free to use what they
//! like.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

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
    for file in sources() {
        let allowed = allowed(&file.room);
        for (room, line) in file.rooms_used() {
            if room != file.room && !allowed.contains(&room.as_str()) {
                climbs.push(format!(
                    "{}:{line}: `{}` uses `{room}`",
                    file.path, file.room
                ));
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
    for file in sources() {
        for (number, line) in file.code.lines().enumerate() {
            for (word, rooms) in RESERVED {
                if words(line).any(|found| found == word) && !rooms.contains(&file.room.as_str()) {
                    strays.push(format!(
                        "{}:{}: `{word}` is not for `{}`",
                        file.path,
                        number + 1,
                        file.room
                    ));
                }
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
    let code = code_of(&std::fs::read_to_string(root().join("src/lib.rs")).unwrap());
    let shown: BTreeSet<String> = code
        .lines()
        .filter_map(|line| {
            line.strip_prefix("pub mod ")?
                .strip_suffix(';')
                .map(str::to_owned)
        })
        .collect();
    let known: BTreeSet<String> = ROOMS
        .iter()
        .map(|(room, _)| room.to_string())
        .filter(|room| room != "main")
        .collect();
    assert_eq!(shown, known);
    let page = std::fs::read_to_string(root().join("docs/architecture.md")).unwrap();
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
        .flat_map(|folder| every_file(&root().join(folder)))
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect();
    let page = std::fs::read_to_string(root().join("docs/threat-model.md")).unwrap();
    let named: Vec<&str> = page
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|word| word.matches('_').count() >= 3 && word.chars().all(is_word))
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
    let silent: Vec<String> = every_file(&root().join("src"))
        .into_iter()
        .chain(every_file(&root().join("tests")))
        .chain(every_file(&root().join("benches")))
        .filter(|path| !std::fs::read_to_string(path).unwrap().starts_with("//! "))
        .map(|path| path.display().to_string())
        .collect();
    assert!(silent.is_empty(), "no `//!` line opens {silent:#?}");
}

#[test]
fn the_reader_sees_through_comments_strings_and_tests() {
    let code = code_of(
        "use crate::a::X;\n/* crate::b */ // crate::c\nlet s = \"crate::d\"; let q = '\"'; let l: &'static str;\n\
         #[cfg(test)]\nmod tests {\n  use crate::e;\n  fn f() { let x = \"}\"; }\n}\nuse crate::{f::Y, g};\n\
         let r = r#\"crate::h \" \"#;\n#[cfg(test)]\nuse crate::i;\nuse super::super::j;\n",
    );
    let file = Source {
        path: "src/z/y.rs".into(),
        room: "z".into(),
        depth: 2,
        code,
    };
    let rooms: Vec<String> = file
        .rooms_used()
        .into_iter()
        .map(|(room, _)| room)
        .collect();
    assert_eq!(rooms, ["a", "f", "g", "j"]);
}

/// A source file without its comments, strings and tests; lines keep their numbers.
struct Source {
    path: String,
    room: String,
    /// How many `super` lead to the root.
    depth: usize,
    code: String,
}

impl Source {
    /// The rooms that the file names, with the lines.
    fn rooms_used(&self) -> Vec<(String, usize)> {
        let climb = "super::".repeat(self.depth);
        let mut rooms = Vec::new();
        for start in [climb.as_str(), "crate::"] {
            for (at, _) in self.code.match_indices(start) {
                let before = self.code[..at].chars().next_back().unwrap_or(' ');
                if is_word(before) || before == ':' {
                    continue;
                }
                let line = self.code[..at].matches('\n').count() + 1;
                rooms.extend(
                    firsts(&self.code[at + start.len()..])
                        .into_iter()
                        .map(|room| (room, line)),
                );
            }
        }
        rooms.retain(|(room, _)| room != "super");
        rooms.sort_by_key(|(_, line)| *line);
        rooms
    }
}

/// The first names of a path, or of each path in a group: `a::X` gives `a`, `{b::Y, c}` gives `b`
/// and `c`.
fn firsts(text: &str) -> Vec<String> {
    let name = |text: &str| {
        text.trim_start()
            .chars()
            .take_while(|c| is_word(*c))
            .collect::<String>()
    };
    let Some(group) = text.strip_prefix('{') else {
        return vec![name(text)];
    };
    let (mut depth, mut start, mut names) = (0, 0, Vec::new());
    for (at, c) in group.char_indices() {
        if depth == 0 && matches!(c, ',' | '}') {
            names.push(name(&group[start..at]));
            start = at + 1;
        }
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            _ => {}
        }
    }
    names.retain(|name| !name.is_empty());
    names
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

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Every file of the library and the program that is not a test's.
fn sources() -> Vec<Source> {
    let src = root().join("src");
    let files = every_file(&src);
    let tests: BTreeSet<PathBuf> = files.iter().flat_map(|path| test_modules(path)).collect();
    files
        .into_iter()
        .filter(|path| {
            !tests
                .iter()
                .any(|test| path.starts_with(test) || *path == test.with_extension("rs"))
        })
        .filter_map(|path| {
            let inside = path.strip_prefix(&src).unwrap().with_extension("");
            let mut parts: Vec<String> = inside
                .iter()
                .map(|part| part.to_string_lossy().into_owned())
                .collect();
            if parts == ["lib"] {
                return None;
            }
            if parts.last().is_some_and(|last| last == "mod") {
                parts.pop();
            }
            Some(Source {
                path: path.strip_prefix(root()).unwrap().display().to_string(),
                room: parts[0].clone(),
                depth: parts.len(),
                code: code_of(&std::fs::read_to_string(&path).unwrap()),
            })
        })
        .collect()
}

fn every_file(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(every_file(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// The files, without extension, of the modules that a file declares for tests alone.
fn test_modules(path: &Path) -> Vec<PathBuf> {
    let text = std::fs::read_to_string(path).unwrap();
    let inside = match path.file_stem().and_then(|stem| stem.to_str()) {
        Some("mod" | "lib" | "main") => path.parent().unwrap().to_owned(),
        _ => path.with_extension(""),
    };
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let mut modules = Vec::new();
    for (at, _) in lines
        .iter()
        .enumerate()
        .filter(|(_, line)| **line == "#[cfg(test)]")
    {
        let mut named = None;
        for line in &lines[at + 1..] {
            if let Some(file) = line.strip_prefix("#[path = \"") {
                named = Some(
                    path.parent()
                        .unwrap()
                        .join(file.trim_end_matches("\"]"))
                        .with_extension(""),
                );
            } else if !line.starts_with("#[") {
                if let Some((_, module)) = line
                    .strip_suffix(';')
                    .and_then(|line| line.split_once("mod "))
                {
                    modules.push(named.unwrap_or_else(|| inside.join(module)));
                }
                break;
            }
        }
    }
    modules
}

/// The text without comments, strings and items for tests, whose lines stay as empty ones.
fn code_of(text: &str) -> String {
    without_tests(&without_words(text))
}

fn without_words(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while at < bytes.len() {
        let rest = &text[at..];
        let end = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some(hashes) = raw_string(rest, &code) {
            let close = format!("\"{}", "#".repeat(hashes));
            let open = hashes + 2;
            rest[open..]
                .find(&close)
                .map_or(rest.len(), |end| open + end + close.len())
        } else if rest.starts_with('"') {
            string_end(rest)
        } else if rest.starts_with('\'') {
            char_end(rest)
        } else {
            0
        };
        if end == 0 {
            let c = rest.chars().next().unwrap();
            code.push(c);
            at += c.len_utf8();
        } else {
            code.extend(rest[..end].chars().filter(|c| *c == '\n'));
            at += end;
        }
    }
    code
}

/// How many `#` a raw string that begins here has.
fn raw_string(rest: &str, before: &str) -> Option<usize> {
    let after = rest.strip_prefix('r')?;
    let hashes = after.bytes().take_while(|byte| *byte == b'#').count();
    let begins = before
        .chars()
        .next_back()
        .is_none_or(|c| !is_word(c) || c == 'b');
    (begins && after[hashes..].starts_with('"')).then_some(hashes)
}

fn string_end(rest: &str) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// The end of a character, or 0 where it is a lifetime.
fn char_end(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => {
            let from = 3;
            rest[from..].find('\'').map_or(0, |end| from + end + 1)
        }
        Some(_) => match chars.next() {
            Some((at, '\'')) => at + 1,
            _ => 0,
        },
        None => 0,
    }
}

fn without_tests(code: &str) -> String {
    let mut kept = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(at) = rest.find("#[cfg(test)]") {
        kept.push_str(&rest[..at]);
        let item = &rest[at..];
        let mut depth = 0;
        let end = item
            .char_indices()
            .find(|(_, c)| {
                match c {
                    '{' => depth += 1,
                    '}' => depth -= 1,
                    _ => {}
                }
                depth == 0 && matches!(c, ';' | '}')
            })
            .map_or(item.len(), |(at, _)| at + 1);
        kept.extend(item[..end].chars().filter(|c| *c == '\n'));
        rest = &item[end..];
    }
    kept.push_str(rest);
    kept
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c| !is_word(c)).filter(|word| !word.is_empty())
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}
