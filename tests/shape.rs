//! The shape of the code: what `just shape` prints and checks.
//!
//! Each line has a limit and, where it does not hold yet, a goal. A limit is what the code has now:
//! whoever brings a number down lowers its limit, and nobody raises one.

#[path = "rig/circles.rs"]
mod circles;
#[path = "rig/source.rs"]
mod source;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;

use circles::{circles, name_of};
use quote::ToTokens;
use source::{Source, every_file, sources, top};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Item, Visibility};

/// What is measured, what it may be at most, and what it is to become.
const LIMITS: [Limit; 12] = [
    limit("files that use each other in a circle", 0, 0),
    limit("files in the largest circle", 0, 0),
    limit(
        "lines of the path: `run` in src/gateway/exchange.rs",
        18,
        18,
    ),
    limit("lines of a function outside tests: median", 8, 8),
    limit("lines of a function outside tests: 90 %", 25, 25),
    limit("lines of a function outside tests: longest", 100, 100),
    limit("names that two types of one crate have, but `Error`", 0, 0),
    limit("public items that nothing uses", 0, 0),
    limit("public items that only tests and benchmarks use", 0, 0),
    limit("lines of profiles in Cargo.toml", 5, 5),
    limit("lines of prose over 100 columns", 0, 0),
    limit("files that set another width than rustfmt's 100", 0, 0),
];

struct Limit {
    what: &'static str,
    most: usize,
    goal: usize,
}

const fn limit(what: &'static str, most: usize, goal: usize) -> Limit {
    Limit { what, most, goal }
}

/// A number, and what makes it so large.
struct Measured(usize, Vec<String>);

#[test]
fn the_shape_holds() {
    let sources = sources();
    let circles = circles(&sources);
    let functions = functions(&sources);
    let lengths: Vec<usize> = functions.iter().map(|(lines, _)| *lines).collect();
    let (unused, tests_only) = unused(&sources);
    let measured = [
        of_list(circles.iter().flatten().cloned().collect()),
        Measured(
            circles.iter().map(Vec::len).max().unwrap_or(0),
            joined(&circles),
        ),
        path_lines(&functions),
        Measured(
            lengths[lengths.len() / 2],
            vec![format!(
                "{} of {} have at most 8",
                lengths.partition_point(|lines| *lines <= 8),
                lengths.len()
            )],
        ),
        Measured(lengths[lengths.len() * 9 / 10], Vec::new()),
        Measured(
            *lengths.last().unwrap(),
            vec![functions.last().unwrap().1.clone()],
        ),
        of_list(doubles(&sources)),
        of_list(unused),
        of_list(tests_only),
        Measured(profile_lines(), Vec::new()),
        of_list(wide_prose()),
        of_list(
            ["rustfmt.toml", ".rustfmt.toml"]
                .map(str::to_owned)
                .into_iter()
                .filter(|name| top().join(name).exists())
                .collect(),
        ),
    ];
    let mut broken = Vec::new();
    for (limit, Measured(found, details)) in LIMITS.iter().zip(measured) {
        let goal = match limit.goal {
            goal if limit.most > goal => format!(", goal {goal}"),
            _ => String::new(),
        };
        println!("{found:>6}  {} (at most {}{goal})", limit.what, limit.most);
        if found > limit.most || std::env::var_os("SHAPE_DETAILS").is_some() {
            details
                .iter()
                .for_each(|detail| println!("          {detail}"));
        }
        if found > limit.most {
            broken.push(limit.what);
        }
    }
    broken.extend(rooms(&sources));
    assert!(broken.is_empty(), "too many or too long: {broken:#?}");
}

/// Prints the code lines of each room, without tests, comments and blanks. Returns those that have
/// more than they may.
fn rooms(sources: &[Source]) -> Vec<&'static str> {
    let mut rooms: BTreeMap<&str, usize> = BTreeMap::new();
    for source in sources {
        let room = source.path.strip_prefix("src/").unwrap_or(&source.path);
        let room = room.split_once('/').map_or("the rest", |(room, _)| room);
        let lines = code_lines(source);
        *rooms.entry(room).or_default() += lines;
        *rooms.entry("all").or_default() += lines;
    }
    for (room, lines) in &rooms {
        let most = ROOMS.iter().find(|(name, _)| name == room);
        let most = most.map_or(String::new(), |(_, most)| format!(" (at most {most})"));
        println!("{lines:>6}  code lines of {room}{most}");
    }
    let over = ROOMS
        .iter()
        .filter(|(room, most)| rooms.get(room).is_some_and(|lines| lines > most));
    over.map(|(room, _)| *room).collect()
}

/// Rooms with a limit of code lines.
const ROOMS: [(&str, usize); 3] = [("all", 89_500), ("escape", 1_800), ("launch", 8_647)];

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

fn joined(circles: &[Vec<String>]) -> Vec<String> {
    circles.iter().map(|files| files.join(" ")).collect()
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
        place.starts_with("src/gateway/exchange.rs:") && place.ends_with(": run")
    });
    let (lines, place) = path.expect("src/gateway/exchange.rs has a function `run`");
    Measured(*lines, vec![place.clone()])
}

/// The names of types of which a crate has more than one.
fn doubles(sources: &[Source]) -> Vec<String> {
    let mut places: BTreeMap<(&PathBuf, String), Vec<&str>> = BTreeMap::new();
    for source in sources {
        for item in &source.file.items {
            let is_type = matches!(
                item,
                Item::Struct(_) | Item::Enum(_) | Item::Union(_) | Item::Trait(_) | Item::Type(_)
            );
            if let Some(name) = name_of(item).filter(|_| is_type) {
                places
                    .entry((&source.root, name))
                    .or_default()
                    .push(&source.path);
            }
        }
    }
    let doubles = places
        .into_iter()
        .filter(|((_, name), at)| at.len() > 1 && name != "Error");
    doubles
        .map(|((_, name), at)| format!("{name}: {}", at.join(" ")))
        .collect()
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
        let words = Source {
            file,
            path: String::new(),
            root: PathBuf::new(),
            module: Vec::new(),
        };
        for (word, _) in words.words() {
            *used.entry(word).or_default() += 1;
        }
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
