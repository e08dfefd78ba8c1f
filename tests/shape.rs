//! The shape of the code: what `just shape` prints and checks.
//!
//! A limit of code lines is a budget: a new feature adds its own to the room's, and whoever brings
//! a number down lowers its limit. `SHAPE_DETAILS=1` prints what makes each number.

#[path = "rig/circles.rs"]
mod circles;
#[path = "rig/source.rs"]
mod source;
#[path = "rig/tree.rs"]
mod tree;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;

use circles::{circles, name_of};
use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use source::{Source, WithoutTests, parse, sources};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::visit_mut::VisitMut;
use syn::{Item, Visibility};
use tree::{every_file, top};

/// What is measured, and what it may be at most.
const LIMITS: [(&str, usize); 10] = [
    ("files that use each other in a circle", 0),
    ("folders that use each other in a circle", 5),
    ("lines of the path: `run` in src/server/exchange.rs", 19),
    ("lines of a function outside tests: 90 %", 25),
    ("lines of a function outside tests: longest", 100),
    ("public items that nothing uses", 0),
    ("public items that only tests and benchmarks use", 0),
    ("lines of profiles in Cargo.toml", 5),
    ("lines of prose over 100 columns", 0),
    ("files that set another width than rustfmt's 100", 0),
];

/// The most code lines of each room, a folder of `src`.
const ROOMS: [(&str, usize); 27] = [
    ("all", 117_898),
    ("app", 9_776),
    ("audit", 3_371),
    ("body", 3_808),
    ("cli", 13_709),
    ("commits", 322),
    ("config", 6_178),
    ("control", 2_269),
    ("credential", 15_440),
    ("escape", 1_657),
    ("export", 1_048),
    ("files", 1_240),
    ("server", 8_025),
    ("grant", 1_455),
    ("intercept", 4_622),
    ("launch", 9_750),
    ("message", 2_995),
    ("names", 1_008),
    ("origin", 3_637),
    ("policy", 7_208),
    ("session", 4_597),
    ("signature", 8_995),
    ("spend", 1_756),
    ("src", 45),
    ("state", 3_265),
    ("token", 599),
    ("wire", 1_123),
];

/// The most files of a folder below `src`, and the folders that have more: to be brought down.
const FILES: usize = 25;
const FULL: [(&str, usize); 8] = [
    ("src/audit", 28),
    ("src/config", 38),
    ("src/server", 39),
    ("src/intercept", 26),
    ("src/launch", 56),
    ("src/policy", 36),
    ("src/signature/recipe", 32),
    ("src/signature/sigv4", 28),
];

/// A number, and what makes it so large.
struct Measured(usize, Vec<String>);

#[test]
fn the_shape_holds() {
    let sources = sources();
    let (files, folders) = circles(&sources);
    let functions = functions(&sources);
    let (longest, place) = functions.last().unwrap();
    let (unused, tests_only) = unused(&sources);
    let widths = ["rustfmt.toml", ".rustfmt.toml"].map(str::to_owned);
    let measured = [
        of_list(files.concat()),
        of_list(folders.concat()),
        path_lines(&functions),
        Measured(functions[functions.len() * 9 / 10].0, Vec::new()),
        Measured(*longest, vec![place.clone()]),
        of_list(unused),
        of_list(tests_only),
        Measured(profile_lines(), Vec::new()),
        of_list(wide_prose()),
        of_list(
            widths
                .into_iter()
                .filter(|name| top().join(name).exists())
                .collect(),
        ),
    ];
    let mut broken = Vec::new();
    for ((what, most), Measured(found, details)) in LIMITS.iter().zip(measured) {
        println!("{found:>6}  {what} (at most {most})");
        if found > *most || std::env::var_os("SHAPE_DETAILS").is_some() {
            details
                .iter()
                .for_each(|detail| println!("          {detail}"));
        }
        if found > *most {
            broken.push((*what).to_owned());
        }
    }
    broken.extend(rooms(&sources));
    broken.extend(full_folders());
    let map = std::fs::read_to_string(top().join("docs/architecture.md")).unwrap();
    let (_, list) = map.split_once("## The mechanisms\n").unwrap();
    let (list, _) = list.split_once("\n## ").unwrap();
    let rows = list.lines().filter(|line| line.starts_with("| "));
    rows.for_each(|row| println!("        {}", row.trim_matches(['|', ' '])));
    assert!(broken.is_empty(), "too many or too long: {broken:#?}");
}

/// Prints the code lines of each room, without tests, comments and blanks. Returns the rooms that
/// have more than they may, and those without a row.
fn rooms(sources: &[Source]) -> Vec<String> {
    let mut rooms: BTreeMap<&str, usize> = BTreeMap::new();
    for source in sources {
        let room = source.path.strip_prefix("src/").unwrap_or(&source.path);
        let room = room.split_once('/').map_or("src", |(room, _)| room);
        let lines = code_lines(source);
        *rooms.entry(room).or_default() += lines;
        *rooms.entry("all").or_default() += lines;
    }
    let judged = rooms.into_iter().filter_map(|(room, lines)| {
        let most = ROOMS.iter().find(|(name, _)| *name == room);
        let most = most.map_or(0, |(_, most)| *most);
        println!("{lines:>6}  code lines of {room} (at most {most})");
        (lines > most).then(|| format!("code lines of {room}: {lines}, at most {most}"))
    });
    judged.collect()
}

/// The folders that have more files than they may. Who brings one down lowers or removes its row.
fn full_folders() -> Vec<String> {
    let mut files: BTreeMap<String, usize> = BTreeMap::new();
    for path in every_file(&top().join("src")) {
        let folder = path.parent().unwrap().strip_prefix(top()).unwrap();
        *files.entry(folder.display().to_string()).or_default() += 1;
    }
    let judged = files.into_iter().filter_map(|(folder, count)| {
        let most = FULL.iter().find(|(name, _)| *name == folder);
        let most = most.map_or(FILES, |(_, most)| *most);
        (count > most).then(|| format!("files of {folder}: {count}, at most {most}"))
    });
    judged.collect()
}

fn code_lines(source: &Source) -> usize {
    let text = std::fs::read_to_string(top().join(&source.path)).unwrap_or_default();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let items = source.file.items.iter().map(Spanned::span);
    let items = items.flat_map(|span| span.start().line..=span.end().line);
    let is_code = |line: &&str| !line.is_empty() && !line.starts_with("//");
    let items: HashSet<usize> = items.collect();
    let code = items.iter().filter_map(|line| lines.get(line - 1));
    code.filter(|line| is_code(line)).count()
}

fn of_list(list: Vec<String>) -> Measured {
    Measured(list.len(), list)
}

/// The lines of each function, with its place; the shortest first.
fn functions(sources: &[Source]) -> Vec<(usize, String)> {
    struct Functions<'a>(&'a str, Vec<(usize, String)>);

    impl Functions<'_> {
        fn note(&mut self, signature: &syn::Signature, block: &syn::Block) {
            let (first, last) = (signature.span().start().line, block.span().end().line);
            let place = format!("{}:{first}: {}", self.0, signature.ident);
            self.1.push((last - first + 1, place));
        }
    }

    impl<'ast> Visit<'ast> for Functions<'_> {
        fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
            self.note(&item.sig, &item.block);
            visit::visit_item_fn(self, item);
        }

        fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
            self.note(&item.sig, &item.block);
            visit::visit_impl_item_fn(self, item);
        }

        fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
            if let Some(block) = &item.default {
                self.note(&item.sig, block);
            }
            visit::visit_trait_item_fn(self, item);
        }
    }

    let mut found = Vec::new();
    for source in sources {
        let mut functions = Functions(&source.path, Vec::new());
        functions.visit_file(&source.file);
        found.extend(functions.1);
    }
    found.sort();
    found
}

fn path_lines(functions: &[(usize, String)]) -> Measured {
    let path = functions.iter().find(|(_, place)| {
        place.starts_with("src/server/exchange.rs:") && place.ends_with(": run")
    });
    let (lines, place) = path.expect("src/server/exchange.rs has a function `run`");
    Measured(*lines, vec![place.clone()])
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
    let is_inside = |path: &[String]| path.len() > 1 && ["crate", "super"].contains(&&path[0][..]);
    let paths = file.paths().into_iter().filter(|(path, _)| is_inside(path));
    let named = paths.map(|(path, _)| file.absolute(&path)[0].clone());
    assert_eq!(named.collect::<Vec<_>>(), ["a", "f", "g", "j", "k"]);
}

/// Counts each word of the code.
fn count_words(tokens: TokenStream, counts: &mut HashMap<String, isize>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => count_words(group.stream(), counts),
            TokenTree::Ident(word) => *counts.entry(word.to_string()).or_default() += 1,
            _ => {}
        }
    }
}

/// The public items that no code uses, and those that only the programs in `tests` and `benches`
/// do. By name: one that shares its name with something used is not found.
fn unused(sources: &[Source]) -> (Vec<String>, Vec<String>) {
    let mut used: HashMap<String, isize> = HashMap::new();
    let mut public: Vec<(String, String)> = Vec::new();
    for source in sources {
        let mut file = source.file.clone();
        file.items.retain(
            |item| !matches!(item, Item::Use(import) if !matches!(import.vis, Visibility::Inherited)),
        );
        count_words(file.to_token_stream(), &mut used);
        for (name, line, is_public) in definitions(&source.file) {
            *used.entry(name.clone()).or_default() -= 1;
            if is_public {
                public.push((name, format!("{}:{line}", source.path)));
            }
        }
    }
    let outside: String = ["tests", "benches"]
        .iter()
        .flat_map(|folder| every_file(&top().join(folder)))
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect();
    let outside: HashSet<&str> = outside
        .split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .collect();
    let unused = public.into_iter().filter(|(name, _)| used[name] <= 0);
    let (tests_only, unused): (Vec<_>, Vec<_>) =
        unused.partition(|(name, _)| outside.contains(name.as_str()));
    let shown = |list: Vec<(String, String)>| {
        list.into_iter()
            .map(|(name, place)| format!("{place}: {name}"))
            .collect()
    };
    (shown(unused), shown(tests_only))
}

/// The functions, types and constants that a file defines: name, line, and whether it is `pub`.
fn definitions(file: &syn::File) -> Vec<(String, usize, bool)> {
    let mut found = Vec::new();
    for item in &file.items {
        if let Some(name) = name_of(item) {
            let is_public = item
                .to_token_stream()
                .into_iter()
                .any(|token| token.to_string() == "pub")
                && matches!(visibility(item), Some(Visibility::Public(_)));
            found.push((name, item.span().start().line, is_public));
        }
        if let Item::Impl(block) = item {
            for member in &block.items {
                if let syn::ImplItem::Fn(function) = member {
                    let is_public = matches!(function.vis, Visibility::Public(_));
                    let line = function.sig.span().start().line;
                    found.push((function.sig.ident.to_string(), line, is_public));
                }
            }
        }
    }
    found
}

fn visibility(item: &Item) -> Option<&Visibility> {
    Some(match item {
        Item::Const(item) => &item.vis,
        Item::Enum(item) => &item.vis,
        Item::Fn(item) => &item.vis,
        Item::Static(item) => &item.vis,
        Item::Struct(item) => &item.vis,
        Item::Trait(item) => &item.vis,
        Item::Type(item) => &item.vis,
        Item::Union(item) => &item.vis,
        _ => return None,
    })
}

fn profile_lines() -> usize {
    let manifest = std::fs::read_to_string(top().join("Cargo.toml")).unwrap();
    let mut inside = false;
    let mut lines = 0;
    for line in manifest.lines() {
        if line.starts_with('[') {
            inside = line.starts_with("[profile");
        }
        lines += usize::from(inside && !line.trim().is_empty());
    }
    lines
}

/// Lines of prose over 100 columns, in the documents and in comments. Tables, links and code may be
/// longer.
fn wide_prose() -> Vec<String> {
    let pages = every_page();
    let code = ["src", "tests", "benches", "fuzz"]
        .iter()
        .flat_map(|folder| every_file(&top().join(folder)));
    let mut wide = Vec::new();
    for path in code {
        let is_prose = |line: &str| line.trim_start().starts_with("//");
        wide.extend(wide_lines(&path, is_prose));
    }
    for path in pages {
        let mut fenced = false;
        let is_prose = |line: &str| {
            fenced ^= line.trim_start().starts_with("```");
            !fenced && !line.starts_with("    ")
        };
        wide.extend(wide_lines(&path, is_prose));
    }
    wide
}

fn wide_lines(path: &std::path::Path, mut is_prose: impl FnMut(&str) -> bool) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap();
    let shown = path.strip_prefix(top()).unwrap().display();
    let is_wide = |line: &str| {
        let free = ["](", "]: ", "http", "|"]
            .iter()
            .all(|mark| !line.contains(mark));
        free && line.chars().count() > 100
    };
    let lines = text.lines().enumerate();
    lines
        .filter(|(_, line)| is_prose(line) && is_wide(line))
        .map(|(at, _)| format!("{shown}:{}", at + 1))
        .collect()
}

fn every_page() -> Vec<PathBuf> {
    let folders = ["", "docs", "docs/adr"].map(|folder| top().join(folder));
    let entries = folders
        .iter()
        .flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let pages = entries.map(|entry| entry.unwrap().path());
    pages
        .filter(|path| path.extension().is_some_and(|end| end == "md"))
        .collect()
}
