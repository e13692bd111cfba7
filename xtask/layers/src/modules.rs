//! The modules of a crate, and the files in which they lie.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use syn::{Attribute, Expr, Item, ItemMod, Lit, Meta};

use crate::imports::{self, Imports, Place};

/// A crate, file by file.
#[derive(Default)]
pub(crate) struct Tree {
    /// The file of each module, as an index into `files`; modules within a file have that file.
    modules: HashMap<Place, usize>,
    /// What each module binds by `use`: the name, and the path that it stands for, or those where
    /// that depends on what is built.
    bound: HashMap<Place, HashMap<String, Vec<Place>>>,
    pub(crate) files: Vec<File>,
}

/// A file, by its path, and what it imports.
pub(crate) struct File {
    pub(crate) path: PathBuf,
    pub(crate) imports: Vec<Import>,
}

/// A path that the code of a module names.
pub(crate) struct Import {
    pub(crate) within: Place,
    pub(crate) path: Place,
}

impl Tree {
    pub(crate) fn read(root: &Path) -> Result<Tree, String> {
        let mut tree = Tree::default();
        let folder = root.parent().unwrap_or(Path::new("")).to_owned();
        tree.file(root.to_owned(), folder, vec!["crate".to_owned()])?;
        Ok(tree)
    }

    /// The module at `place`, which is this file; the files of its own modules lie in `folder`.
    fn file(&mut self, path: PathBuf, folder: PathBuf, place: Place) -> Result<(), String> {
        let wrong = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
        let text = std::fs::read_to_string(&path).map_err(|error| wrong(&error))?;
        let parsed = syn::parse_file(&text).map_err(|error| wrong(&error))?;
        let file = self.files.len();
        self.files.push(File { path, imports: Vec::new() });
        self.items(file, &parsed.items, &folder, place)
    }

    fn items(
        &mut self,
        file: usize,
        items: &[Item],
        folder: &Path,
        at: Place,
    ) -> Result<(), String> {
        self.modules.insert(at.clone(), file);
        let Imports { bound, paths } = imports::of(items);
        self.bound.insert(at.clone(), bound);
        let import = |path| Import { within: at.clone(), path };
        self.files[file].imports.extend(paths.into_iter().map(import));
        for module in items.iter().filter_map(module) {
            let name = module.ident.to_string();
            let mut place = at.clone();
            place.push(name.clone());
            let inner = folder.join(&name);
            if let Some((_, items)) = &module.content {
                self.items(file, items, &inner, place)?;
                continue;
            }
            let beside = match path_attribute(&module.attrs) {
                Some(path) => self.files[file].path.with_file_name(path),
                None => folder.join(format!("{name}.rs")),
            };
            let path = if beside.exists() { beside } else { inner.join("mod.rs") };
            self.file(path, inner, place)?;
        }
        Ok(())
    }

    /// The files that define what `path` names within the module `within`; none where that is not
    /// of this crate, or is a module itself.
    pub(crate) fn defines(&self, within: &[String], path: &[String]) -> Vec<usize> {
        let mut files = Vec::new();
        self.resolve(within, path, 0, &mut files);
        files
    }

    fn resolve(
        &self,
        within: &[String],
        path: &[String],
        depth: usize,
        files: &mut Vec<usize>,
    ) -> Option<()> {
        // Names that stand for each other in turn are no program.
        if depth > 32 {
            return None;
        }
        let (mut at, mut rest) = match path.first()?.as_str() {
            "crate" => (vec!["crate".to_owned()], &path[1..]),
            "self" => (within.to_vec(), &path[1..]),
            "super" => (within[..within.len().checked_sub(1)?].to_vec(), &path[1..]),
            first => {
                let known =
                    self.child(within, first).is_some() || self.bound[within].contains_key(first);
                if !known {
                    return None;
                }
                (within.to_vec(), path)
            }
        };
        loop {
            let next = rest.first()?;
            if next == "super" {
                at.pop()?;
            } else if let Some(child) = self.child(&at, next) {
                at = child;
            } else if let Some(stands_for) = self.bound.get(&at)?.get(next) {
                for start in stands_for {
                    let whole: Place = start.iter().chain(&rest[1..]).cloned().collect();
                    // Not a name of another crate, or of an item beside it.
                    let own = ["crate", "self", "super"].contains(&whole[0].as_str())
                        || whole[0] != *next && self.resolves(&at, &whole[0]);
                    if own {
                        self.resolve(&at, &whole, depth + 1, files);
                    }
                }
                return Some(());
            } else {
                files.extend(self.modules.get(&at));
                return Some(());
            }
            rest = &rest[1..];
        }
    }

    fn resolves(&self, at: &[String], first: &str) -> bool {
        self.child(at, first).is_some() || self.bound[at].contains_key(first)
    }

    fn child(&self, at: &[String], name: &str) -> Option<Place> {
        let place: Place = at.iter().cloned().chain([name.to_owned()]).collect();
        self.modules.contains_key(&place).then_some(place)
    }
}

fn module(item: &Item) -> Option<&ItemMod> {
    match item {
        Item::Mod(module) if !imports::for_tests(&module.attrs) => Some(module),
        _ => None,
    }
}

fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Str(path) => Some(path.value()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    })
}
