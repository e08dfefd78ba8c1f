//! The program's source as syntax, without its tests: for the programs that look at its shape.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};
use quote::ToTokens;
use syn::visit_mut::{self, VisitMut};
use syn::{Attribute, Item};

use crate::tree::{every_file, top};

/// One file of `src`.
pub struct Source {
    /// The path from the top of the repository.
    pub path: String,
    /// The folder of the `lib.rs` or `main.rs` that it belongs to.
    pub root: PathBuf,
    /// The modules that lead to it from there.
    pub module: Vec<String>,
    /// Its items, without those that are for tests alone.
    pub file: syn::File,
}

/// A path as it is written, such as `crate::a::B`, and its line.
pub type Written = (Vec<String>, usize);

impl Source {
    /// Every path in the code, those of `use` and of macros' arguments too.
    pub fn paths(&self) -> Vec<Written> {
        let mut found = Vec::new();
        walk(self.file.to_token_stream(), &[], &mut found);
        found
    }

    /// A path as the crate's root would write it, without `crate`.
    pub fn absolute(&self, path: &[String]) -> Vec<String> {
        let climbs = path.iter().take_while(|word| *word == "super").count();
        let rest = &path[climbs..];
        match rest.first().map(String::as_str) {
            _ if climbs > 0 => {
                let kept = self.module.len().saturating_sub(climbs);
                [&self.module[..kept], rest].concat()
            }
            Some("crate") => rest[1..].to_vec(),
            Some("self") => [&self.module[..], &rest[1..]].concat(),
            _ => rest.to_vec(),
        }
    }
}

/// Every file of the library and the program that is not a test's.
pub fn sources() -> Vec<Source> {
    let files = every_file(&top().join("src"));
    let parsed: BTreeMap<&PathBuf, syn::File> = files
        .iter()
        .map(|path| (path, parse(&std::fs::read_to_string(path).unwrap())))
        .collect();
    let tests: BTreeSet<PathBuf> = parsed
        .iter()
        .flat_map(|(path, file)| test_modules(path, file))
        .collect();
    let of_tests = |path: &Path| {
        let stem = path.with_extension("");
        tests.iter().any(|test| stem.starts_with(test))
    };
    let kept = parsed.into_iter().filter(|(path, _)| !of_tests(path));
    kept.map(|(path, file)| source(path, file)).collect()
}

fn source(path: &Path, mut file: syn::File) -> Source {
    WithoutTests.visit_file_mut(&mut file);
    let root = path
        .ancestors()
        .skip(1)
        .find(|folder| folder.join("lib.rs").exists())
        .unwrap();
    let inside = path.strip_prefix(root).unwrap().with_extension("");
    let mut module: Vec<String> = inside
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    if matches!(&module.last().unwrap()[..], "mod" | "lib") {
        module.pop();
    }
    Source {
        path: path.strip_prefix(top()).unwrap().display().to_string(),
        root: root.to_owned(),
        module,
        file,
    }
}

/// The syntax of a file's text.
pub fn parse(text: &str) -> syn::File {
    syn::parse_file(text).unwrap()
}

/// The items without those that are for tests alone.
pub struct WithoutTests;

impl VisitMut for WithoutTests {
    fn visit_file_mut(&mut self, file: &mut syn::File) {
        file.items.retain(|item| !is_for_tests(attributes(item)));
        visit_mut::visit_file_mut(self, file);
    }

    fn visit_item_mod_mut(&mut self, module: &mut syn::ItemMod) {
        if let Some((_, items)) = &mut module.content {
            items.retain(|item| !is_for_tests(attributes(item)));
        }
        visit_mut::visit_item_mod_mut(self, module);
    }

    fn visit_item_impl_mut(&mut self, block: &mut syn::ItemImpl) {
        block.items.retain(|item| match item {
            syn::ImplItem::Fn(item) => !is_for_tests(&item.attrs),
            syn::ImplItem::Const(item) => !is_for_tests(&item.attrs),
            _ => true,
        });
        visit_mut::visit_item_impl_mut(self, block);
    }

    fn visit_block_mut(&mut self, block: &mut syn::Block) {
        block.stmts.retain(|statement| match statement {
            syn::Stmt::Item(item) => !is_for_tests(attributes(item)),
            syn::Stmt::Local(local) => !is_for_tests(&local.attrs),
            _ => true,
        });
        visit_mut::visit_block_mut(self, block);
    }
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let tokens = attribute.meta.to_token_stream().to_string();
        let tokens: String = tokens.split_whitespace().collect();
        tokens == "cfg(test)"
            || tokens.starts_with("cfg(all(test")
            || tokens == r#"cfg(any(test,feature="test-support"))"#
    })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// The files, without extension, of the modules that a file declares for tests alone.
fn test_modules(path: &Path, file: &syn::File) -> Vec<PathBuf> {
    let folder = path.parent().unwrap();
    let inside = match path.file_stem().unwrap().to_str() {
        Some("mod" | "lib" | "main") => folder.to_owned(),
        _ => path.with_extension(""),
    };
    let modules = file.items.iter().filter_map(|item| match item {
        Item::Mod(module) if module.content.is_none() && is_for_tests(&module.attrs) => {
            Some(module)
        }
        _ => None,
    });
    modules
        .map(|module| match named_file(&module.attrs) {
            Some(name) => folder.join(name).with_extension(""),
            None => inside.join(module.ident.to_string()),
        })
        .collect()
}

fn named_file(attributes: &[Attribute]) -> Option<String> {
    let named = attributes.iter().find(|one| one.path().is_ident("path"))?;
    let text = named.meta.to_token_stream().to_string();
    Some(text.split('"').nth(1)?.to_owned())
}

/// Collects `a::b::C`, and of `a::{b::C, d}` both.
fn walk(tokens: TokenStream, prefix: &[String], found: &mut Vec<Written>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while at < tokens.len() {
        match &tokens[at] {
            TokenTree::Group(group) => walk(group.stream(), &[], found),
            TokenTree::Ident(ident) => {
                let line = ident.span().start().line;
                let mut path = [prefix, &[ident.to_string()]].concat();
                while follows(&tokens, at + 1) {
                    match tokens.get(at + 3) {
                        Some(TokenTree::Ident(next)) => path.push(next.to_string()),
                        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                            walk(group.stream(), &path, found);
                            at += 3;
                            path.clear();
                            break;
                        }
                        _ => break,
                    }
                    at += 3;
                }
                if !path.is_empty() {
                    found.push((path, line));
                }
            }
            _ => {}
        }
        at += 1;
    }
}

/// Whether `::` stands here.
fn follows(tokens: &[TokenTree], at: usize) -> bool {
    let colon = |token: Option<&TokenTree>, spacing: Option<Spacing>| {
        matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == ':'
            && spacing.is_none_or(|spacing| punct.spacing() == spacing))
    };
    colon(tokens.get(at), Some(Spacing::Joint)) && colon(tokens.get(at + 1), None)
}
