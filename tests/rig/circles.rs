//! Files and folders that use each other.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::PathBuf;

use syn::{Item, UseTree, Visibility};

use super::source::Source;
use super::tree::top;

/// Files that use each other, directly or through others, and folders that do. `pub use` is no use.
pub fn circles(sources: &[Source]) -> (Vec<Vec<String>>, Vec<Vec<String>>) {
    let roots: BTreeSet<&PathBuf> = sources.iter().map(|source| &source.root).collect();
    let mut uses: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); sources.len()];
    for root in roots {
        let own = || {
            sources
                .iter()
                .enumerate()
                .filter(|(_, source)| source.root == *root)
        };
        let names = Names::of(own());
        for (at, source) in own() {
            uses[at] = used(source, &names);
            uses[at].remove(&at);
        }
    }
    let (folders, folder_uses) = folders(sources, &uses);
    let named = |names: &dyn Fn(usize) -> String, circles: Vec<Vec<usize>>| {
        let circles = circles.into_iter();
        circles
            .map(|circle| circle.into_iter().map(names).collect())
            .collect()
    };
    (
        named(&|at| sources[at].path.clone(), closed(&uses)),
        named(&|at| folders[at].clone(), closed(&folder_uses)),
    )
}

/// The folders, each with the folders beside it that its files use. A file `a.rs` counts to `a/`.
fn folders(sources: &[Source], uses: &[BTreeSet<usize>]) -> (Vec<String>, Vec<BTreeSet<usize>>) {
    let path = |source: &Source, depth: usize| {
        let folder = source.root.join(source.module[..depth].join("/"));
        folder.strip_prefix(top()).unwrap().display().to_string()
    };
    let all: BTreeSet<String> = sources
        .iter()
        .flat_map(|source| (1..source.module.len()).map(move |depth| path(source, depth)))
        .collect();
    let all: Vec<String> = all.into_iter().collect();
    let mut found = vec![BTreeSet::new(); all.len()];
    for (from, used) in uses.iter().enumerate() {
        for to in used {
            let (from, to) = (&sources[from], &sources[*to]);
            let (a, b) = (&from.module, &to.module);
            let common = a.iter().zip(b).take_while(|(a, b)| a == b).count();
            if common < a.len().min(b.len()) {
                let sides = [from, to].map(|side| all.binary_search(&path(side, common + 1)));
                if let [Ok(from), Ok(to)] = sides {
                    found[from].insert(to);
                }
            }
        }
    }
    (all, found)
}

/// The sets of more than one that reach each other.
fn closed(uses: &[BTreeSet<usize>]) -> Vec<Vec<usize>> {
    let reached: Vec<BTreeSet<usize>> = (0..uses.len()).map(|at| reach(uses, at)).collect();
    let circles: BTreeSet<Vec<usize>> = (0..uses.len())
        .map(|at| {
            let others = reached[at].iter().copied();
            others
                .filter(|other| reached[*other].contains(&at))
                .collect()
        })
        .collect();
    circles.into_iter().filter(|set| set.len() > 1).collect()
}

/// The files whose items a file names.
fn used(source: &Source, names: &Names) -> BTreeSet<usize> {
    let imports: HashMap<String, Vec<String>> = imports(source).into_iter().collect();
    let mut code = Source {
        path: source.path.clone(),
        root: source.root.clone(),
        module: source.module.clone(),
        file: source.file.clone(),
    };
    code.file.items.retain(|item| {
        !matches!(item, Item::Use(import) if !matches!(import.vis, Visibility::Inherited))
            && !matches!(item, Item::Mod(module) if module.content.is_none())
    });
    let mut found = BTreeSet::new();
    for (path, _) in code.paths() {
        let path: Vec<String> = path.into_iter().filter(|word| word != "as").collect();
        let path = match path.first().map(String::as_str) {
            None => continue,
            Some("crate" | "super" | "self") => code.absolute(&path),
            // What the file itself defines.
            Some(first) if names.defined[&code.module].contains(first) => continue,
            Some(first) => match imports.get(first) {
                Some(target) => [&names.within(&code.module, target)[..], &path[1..]].concat(),
                None if path.len() > 1 => names.within(&code.module, &path),
                None => continue,
            },
        };
        let path = match path.last().map(String::as_str) {
            Some("self") => &path[..path.len() - 1],
            _ => &path[..],
        };
        // A module by itself is a way to its items, which are found where they are named.
        if !names.modules.contains_key(path) {
            found.extend(names.resolve(path, 0));
        }
    }
    found
}

fn reach(uses: &[BTreeSet<usize>], from: usize) -> BTreeSet<usize> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<usize> = uses[from].iter().copied().collect();
    while let Some(next) = open.pop() {
        if reached.insert(next) {
            open.extend(&uses[next]);
        }
    }
    reached
}

/// The names of every module: what it defines, and what it takes in with `use`.
#[derive(Default)]
struct Names {
    modules: HashMap<Vec<String>, usize>,
    defined: HashMap<Vec<String>, HashSet<String>>,
    imported: HashMap<Vec<String>, Vec<(String, Vec<String>)>>,
}

impl Names {
    fn of<'a>(sources: impl Iterator<Item = (usize, &'a Source)>) -> Self {
        let mut names = Self::default();
        for (at, source) in sources {
            names.modules.insert(source.module.clone(), at);
            let defined = source.file.items.iter().filter_map(name_of);
            names
                .defined
                .insert(source.module.clone(), defined.collect());
            names
                .imported
                .insert(source.module.clone(), imports(source));
        }
        names
    }

    /// The file that defines what a path from the root names; a module's own is its file.
    fn resolve(&self, path: &[String], depth: usize) -> Option<usize> {
        let mut module = Vec::new();
        for (at, word) in path.iter().enumerate() {
            let child = [&module[..], std::slice::from_ref(word)].concat();
            if self.modules.contains_key(&child) {
                module = child;
                continue;
            }
            if self.defined.get(&module)?.contains(word) {
                return self.modules.get(&module).copied();
            }
            if depth > 8 {
                return None;
            }
            let rest = &path[at + 1..];
            return self.imported[&module].iter().find_map(|(name, target)| {
                let target = match name.as_str() {
                    "*" => [&self.within(&module, target)[..], &path[at..]].concat(),
                    name if name == word => [&self.within(&module, target)[..], rest].concat(),
                    _ => return None,
                };
                self.resolve(&target, depth + 1)
            });
        }
        self.modules.get(&module).copied()
    }

    /// A path that begins with a child of the module, from the root.
    fn within(&self, module: &[String], path: &[String]) -> Vec<String> {
        let below = [module, &path[..1]].concat();
        match self.modules.contains_key(&below) {
            true => [module, path].concat(),
            false => path.to_vec(),
        }
    }
}

/// The names that `use` brings in, each with its path from the crate's root.
fn imports(source: &Source) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    for item in &source.file.items {
        if let Item::Use(import) = item {
            flatten(&import.tree, Vec::new(), &mut found);
        }
    }
    for (_, path) in &mut found {
        *path = source.absolute(path);
    }
    found
}

/// The names of a `use`, with their paths; a glob has the name `*`.
fn flatten(tree: &UseTree, mut path: Vec<String>, found: &mut Vec<(String, Vec<String>)>) {
    let (name, last) = match tree {
        UseTree::Path(step) => {
            path.push(step.ident.to_string());
            return flatten(&step.tree, path, found);
        }
        UseTree::Group(group) => {
            let trees = group.items.iter();
            return trees.for_each(|tree| flatten(tree, path.clone(), found));
        }
        UseTree::Name(name) => (name.ident.to_string(), name.ident.to_string()),
        UseTree::Rename(name) => (name.rename.to_string(), name.ident.to_string()),
        UseTree::Glob(_) => return found.push(("*".to_owned(), path)),
    };
    if last == "self" {
        let module = path.last().cloned().unwrap_or_default();
        let name = if name == "self" { module } else { name };
        return found.push((name, path));
    }
    path.push(last);
    found.push((name, path));
}

/// The name of a function, a type or a constant.
pub fn name_of(item: &Item) -> Option<String> {
    Some(match item {
        Item::Const(item) => item.ident.to_string(),
        Item::Enum(item) => item.ident.to_string(),
        Item::Fn(item) => item.sig.ident.to_string(),
        Item::Static(item) => item.ident.to_string(),
        Item::Struct(item) => item.ident.to_string(),
        Item::Trait(item) => item.ident.to_string(),
        Item::Type(item) => item.ident.to_string(),
        Item::Union(item) => item.ident.to_string(),
        _ => return None,
    })
}
