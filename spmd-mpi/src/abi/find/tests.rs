use std::cell::RefCell;
use std::fs::{self, File};
use std::os::unix::fs::symlink;

use super::*;

/// An environment of these variables.
fn variables<'a>(all: &'a [(&str, &Path)]) -> impl Fn(&str) -> Option<OsString> + 'a {
    |name| all.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
}

/// What is found where the loader finds nothing by name, and every file can be loaded.
fn find(all: &[(&str, &Path)]) -> Result<PathBuf> {
    first(variables(all), |path| {
        if path == Path::new(FILE) { Err("no such file".to_owned()) } else { Ok(path.to_owned()) }
    })
}

fn reason(found: Result<PathBuf>) -> String {
    match found {
        Err(Error::Unavailable { reason, remedy, .. }) => format!("{reason}; {remedy}"),
        other => panic!("{other:?}"),
    }
}

/// A folder that has a library in `lib`.
fn installation() -> (tempfile::TempDir, PathBuf) {
    let root = tempfile::tempdir().expect("a folder");
    // Where the system's folder of temporary files is a link, paths are compared without it.
    let path = root.path().canonicalize().expect("it is there");
    fs::create_dir_all(path.join("lib")).expect("a folder");
    fs::create_dir_all(path.join("bin")).expect("a folder");
    File::create(path.join("lib").join(FILE)).expect("a file");
    (root, path)
}

#[test]
fn what_is_named_is_taken_whatever_else_there_is() {
    let (_root, path) = installation();
    let folder = path.join("lib");
    let file = folder.join(FILE);
    let opened = RefCell::new(Vec::new());
    for named in [&folder, &file] {
        let found = first(variables(&[(VARIABLE, named)]), |path| {
            opened.borrow_mut().push(path.to_owned());
            Ok(path.to_owned())
        });
        assert_eq!(found.unwrap(), file);
    }
    assert_eq!(*opened.borrow(), [file.clone(), file]);
}

#[test]
fn a_named_file_that_is_not_there_is_an_error() {
    let (_root, path) = installation();
    let text = reason(find(&[(VARIABLE, &path), ("VIRTUAL_ENV", &path)]));
    assert!(text.contains(&format!("{VARIABLE} is {}", path.display())), "{text}");
    assert!(text.contains(&format!("no file {}", path.join(FILE).display())), "{text}");
}

#[test]
fn the_loader_comes_before_all_folders() {
    let (_root, path) = installation();
    let found = first(variables(&[("VIRTUAL_ENV", &path)]), |path| Ok(path.to_owned()));
    assert_eq!(found.unwrap(), Path::new(FILE));
}

#[test]
fn a_library_beside_the_launcher_is_found_through_links() {
    let (_root, path) = installation();
    File::create(path.join("bin/mpiexec")).expect("a file");
    let elsewhere = tempfile::tempdir().expect("a folder");
    symlink(path.join("bin/mpiexec"), elsewhere.path().join("mpiexec")).expect("a link");
    assert_eq!(find(&[("PATH", elsewhere.path())]).unwrap(), path.join("lib").join(FILE));
}

#[test]
fn a_library_in_a_python_environment_is_found() {
    let (_root, path) = installation();
    for name in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
        assert_eq!(find(&[(name, &path)]).unwrap(), path.join("lib").join(FILE));
    }
}

#[test]
fn an_error_names_every_place() {
    let empty = tempfile::tempdir().expect("a folder");
    let text = reason(find(&[("VIRTUAL_ENV", empty.path()), ("PATH", empty.path())]));
    assert!(text.contains("no such file"), "{text}");
    assert!(text.contains(&empty.path().join("lib").display().to_string()), "{text}");
    assert!(text.contains(VARIABLE), "{text}");
}

#[test]
fn a_library_that_cannot_be_loaded_is_an_error_with_the_loaders_words() {
    let (_root, path) = installation();
    let broken = |_: &Path| Err::<(), _>("libfabric.so.1 is missing".to_owned());
    for name in [VARIABLE, "VIRTUAL_ENV"] {
        let root = if name == VARIABLE { path.join("lib") } else { path.clone() };
        let found = first(variables(&[(name, &root)]), broken);
        let text = found.unwrap_err().to_string();
        assert!(text.contains("libfabric.so.1 is missing") && text.contains(FILE), "{text}");
    }
}
