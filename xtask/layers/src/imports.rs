//! What the code of one module names: by `use`, by paths, and within macros.

use std::collections::HashMap;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemUse, Macro, Meta, UseTree};

/// A module or what it defines: `crate`, `self`, `super` or a name, then the names down to it.
pub(crate) type Place = Vec<String>;

/// What one module names.
#[derive(Default)]
pub(crate) struct Imports {
    /// What it binds by `use`: the name, and the paths that it stands for, each in some builds.
    pub(crate) bound: HashMap<String, Vec<Place>>,
    /// Every path that it names.
    pub(crate) paths: Vec<Place>,
}

pub(crate) fn of(items: &[Item]) -> Imports {
    let mut imports = Imports::default();
    items.iter().for_each(|item| imports.visit_item(item));
    imports
}

/// Whether an item is there for tests or documentation alone.
pub(crate) fn for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => {
            let condition = list.tokens.to_string();
            ["test", "loom", "fuzzing", "doc"].contains(&condition.as_str())
                || condition.starts_with("all (test")
                || condition.starts_with("all(test")
        }
        _ => false,
    })
}

impl Imports {
    fn bind(&mut self, tree: &UseTree, mut before: Place) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.bind(&path.tree, before);
            }
            UseTree::Name(name) => {
                self.name(name.ident.to_string(), name.ident.to_string(), before)
            }
            UseTree::Rename(renamed) => {
                self.name(renamed.rename.to_string(), renamed.ident.to_string(), before);
            }
            // Which names it stands for is not known here: the module itself is meant.
            UseTree::Glob(_) => {
                before.push("*".to_owned());
                self.paths.push(before);
            }
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.bind(tree, before.clone()));
            }
        }
    }

    fn name(&mut self, bound: String, ident: String, mut before: Place) {
        let bound = match (ident.as_str(), bound.as_str()) {
            ("self", "self") => before.last().cloned().unwrap_or_default(),
            _ => bound,
        };
        if ident != "self" {
            before.push(ident);
        }
        self.paths.push(before.clone());
        if bound != "_" {
            self.bound.entry(bound).or_default().push(before);
        }
    }

    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Place = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.whole(std::mem::take(&mut path));
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Group(group) => {
                    self.whole(std::mem::take(&mut path));
                    self.tokens(group.stream());
                    colons = 0;
                }
                _ => {
                    self.whole(std::mem::take(&mut path));
                    colons = 0;
                }
            }
        }
        self.whole(path);
    }

    fn whole(&mut self, path: Place) {
        if path.len() > 1 {
            self.paths.push(path);
        }
    }
}

impl<'a> Visit<'a> for Imports {
    fn visit_item(&mut self, item: &'a Item) {
        let attributes: &[Attribute] = match item {
            // Modules are read by themselves.
            Item::Mod(_) => return,
            Item::Fn(it) => &it.attrs,
            Item::Impl(it) => &it.attrs,
            Item::Use(it) => &it.attrs,
            Item::Static(it) => &it.attrs,
            Item::Const(it) => &it.attrs,
            Item::Struct(it) => &it.attrs,
            _ => &[],
        };
        if !for_tests(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'a ItemUse) {
        if item.leading_colon.is_none() {
            self.bind(&item.tree, Vec::new());
        }
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        if path.leading_colon.is_none() {
            self.whole(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'a Macro) {
        visit::visit_macro(self, call);
        self.tokens(call.tokens.clone());
    }
}
