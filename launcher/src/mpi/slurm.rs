//! Slurm's `srun`, inside an allocation: by which process management it can start the processes of
//! a library, if by any.

use std::path::Path;

use spmd_mpi::find::{self, Machine};

use super::family::{self, Family};
use super::launchers::{Kind, Launcher};
use super::library::Library;
use super::probe;

/// Slurm's own variable by which a user chooses the process management.
const CHOICE: &str = "SLURM_MPI_TYPE";

/// `srun`, or why it cannot start this library's processes, in words; none outside of allocations.
pub(super) fn launcher(
    library: &Library,
    machine: &dyn Machine,
) -> Option<Result<Launcher, String>> {
    machine.variable("SLURM_JOB_ID")?;
    let path = find::programs(machine, &["srun"]).into_iter().next();
    let path = match path.ok_or("there is no srun in PATH") {
        Ok(path) => path,
        Err(why) => return Some(Err(why.into())),
    };
    let pmi = match machine.variable(CHOICE) {
        Some(chosen) => Ok(chosen.to_string_lossy().into_owned()),
        None => offered(&path).and_then(|offered| fitting(library, &offered)),
    };
    Some(pmi.map(|pmi| {
        let said = probe::launcher(&path).unwrap_or_default();
        let version = family::version(&said).map(|version| format!(" {version}"));
        let name = format!("Slurm{}", version.unwrap_or_default());
        Launcher { path, kind: Kind::Srun { pmi }, name, not_slurm: None }
    }))
}

/// What `srun --mpi=list` says.
fn offered(srun: &Path) -> Result<String, String> {
    probe::slurm(srun).ok_or_else(|| format!("`{} --mpi=list` fails", srun.display()))
}

fn fitting(library: &Library, list: &str) -> Result<String, String> {
    let (offered, usable) = (names(list), usable(library));
    let found = usable.iter().find(|name| offered.contains(name));
    found.map(|name| name.to_string()).ok_or_else(|| {
        format!(
            "srun offers {} (--mpi=list), and {} needs {}; if it can use another one of these, name \
             that in {CHOICE}",
            if offered.is_empty() { "nothing".into() } else { offered.join(", ") },
            library.name,
            usable.join(" or ")
        )
    })
}

/// The names in such a list, which are alone in their lines.
fn names(list: &str) -> Vec<&str> {
    let lines = list.lines().map(|line| line.strip_prefix("srun:").unwrap_or(line).trim());
    lines.filter(|line| !line.is_empty() && !line.contains([' ', '.'])).collect()
}

/// The kinds of process management that a library can use, the best first.
fn usable(library: &Library) -> &'static [&'static str] {
    match library.family {
        Family::OpenMpi => &["pmix"],
        Family::Intel => &["pmi2", "pmix"],
        Family::Mpich if library.text.contains("CRAY") => &["cray_shasta", "pmi2"],
        // Said by the options that it was configured with. All others have PMI 1 and 2 alone.
        Family::Mpich if library.text.contains("pmix") => &["pmix", "pmi2"],
        Family::Mpich => &["pmi2"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "MPI plugin types are...\n\tnone\n\tcray_shasta\n\tpmi2\n\tpmix\n\
                        specific pmix plugin versions available: pmix_v4\n";

    fn library(family: Family, text: &str) -> Library {
        let name = format!("{family} 5.0");
        Library { file: "/lib/libmpi.so".into(), family, name, abi: None, text: text.into() }
    }

    #[test]
    fn what_fits_is_chosen() {
        let mpich =
            library(Family::Mpich, "MPICH Version: 5.0.2\nMPICH configure: --with-pm=hydra");
        let pmix = library(Family::Mpich, "MPICH Version: 4.3\nMPICH configure: --with-pmi=pmix");
        let cray = library(Family::Mpich, "MPI VERSION    : CRAY MPICH version 8.1.29");
        let (intel, open) = (library(Family::Intel, ""), library(Family::OpenMpi, ""));
        let chosen = |library: &Library, list: &str| fitting(library, list).ok();
        for (library, name) in [
            (&mpich, "pmi2"),
            (&pmix, "pmix"),
            (&cray, "cray_shasta"),
            (&intel, "pmi2"),
            (&open, "pmix"),
        ] {
            assert_eq!(chosen(library, LIST).as_deref(), Some(name), "{}", library.text);
        }
        let old = "srun: MPI types are...\nsrun: none\nsrun: pmix\n";
        assert_eq!(chosen(&intel, old).as_deref(), Some("pmix"));
        assert_eq!((chosen(&mpich, old), chosen(&open, "none\npmi2\n")), (None, None));
    }

    #[test]
    fn what_does_not_fit_is_told() {
        let open = library(Family::OpenMpi, "Open MPI v5.0");
        let why = fitting(&open, "MPI plugin types are...\n\tnone\n\tpmi2\n").unwrap_err();
        let words = "srun offers none, pmi2 (--mpi=list), and Open MPI 5.0 needs pmix; if";
        assert!(why.starts_with(words) && why.contains(CHOICE), "{why}");
        let why = fitting(&open, "").unwrap_err();
        assert!(why.contains("offers nothing"), "{why}");
    }
}
