//! What `--transport mpi` would use: the library, what it is and over which network it goes, and
//! the launcher that belongs to it; for the programs that are named, if any.

use std::path::PathBuf;

use spmd_mpi::find::Here;

use super::finding::{Finding, broken, good, limited};
use crate::error::Error;
use crate::mpi::{Kind, Library, linked, network};

/// One for each program, and those of the library that all of them would run with.
pub(super) fn findings(programs: &[Result<PathBuf, Error>]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = programs.iter().map(program).collect();
    let found = programs.iter().filter_map(|program| program.as_deref().ok());
    match Library::of_programs(found) {
        Ok(library) => findings.extend(about(&library)),
        Err(why) => {
            findings.push(limited("MPI library", why.to_string()));
            findings.push(limited("MPI launcher", "none sought".into()));
        }
    }
    findings
}

/// Whether it can be started, and with which MPI.
fn program(found: &Result<PathBuf, Error>) -> Finding {
    let what = "program";
    let path = match found {
        Ok(path) => path,
        Err(why) => return broken(what, why.to_string()),
    };
    let shown = path.display();
    match linked::of(path) {
        Err(why) => broken(what, why),
        Ok(Some(library)) => good(what, format!("{shown}, linked with {}", library.display())),
        Ok(None) if linked::is_loaded(path) => good(
            what,
            format!(
                "{shown}, linked with no MPI: under MPI a program of spmd loads the library that \
                 follows"
            ),
        ),
        Ok(None) => limited(
            what,
            format!(
                "{shown}, a script or another file that the system's loader does not start: what \
                 it starts is not looked at"
            ),
        ),
    }
}

fn about(library: &Library) -> [Finding; 5] {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let network = match network(library.family, &library.text, variable) {
        Some(network) => good("MPI network", network),
        None => limited("MPI network", "the library does not say for which one it is built".into()),
    };
    let provider = match library.abi {
        Some((major, minor)) => {
            format!("abi: loaded when a program starts, by the standard ABI {major}.{minor}")
        }
        None => "linked: the program is linked with it, and loads no other".into(),
    };
    [
        good("MPI library", format!("{}: {}", library.name, library.file.display())),
        good("MPI version", library.text.lines().next().unwrap_or_default().into()),
        good("MPI provider", provider),
        network,
        launcher(library),
    ]
}

fn launcher(library: &Library) -> Finding {
    let what = "MPI launcher";
    let launcher = match library.launcher(&Here) {
        Ok(launcher) => launcher,
        Err(why) => return limited(what, why.to_string()),
    };
    let found = format!("{}: {}", launcher.name, launcher.path.display());
    match (launcher.kind, launcher.not_slurm) {
        (Kind::Srun { pmi }, _) => {
            good(what, format!("{found}, as this is an allocation, with --mpi={pmi}"))
        }
        (_, Some(why)) => {
            limited(what, format!("{found}, and not Slurm's in this allocation: {why}"))
        }
        _ if library.beside(&Here, &launcher.path) => {
            good(what, format!("{found}, of the library's installation"))
        }
        _ => limited(
            what,
            format!(
                "{found}, of the library's kind but of another installation; if every process \
                 finds itself alone, put the library's own first in PATH"
            ),
        ),
    }
}
