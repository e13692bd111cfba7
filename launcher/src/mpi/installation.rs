//! The MPI library of this machine, and the launcher that belongs to it.

use std::path::{Path, PathBuf};

use spmd_mpi::find::{self, Absent, Machine};

use crate::error::Error;

use super::family::{self, Family};
use super::launchers::launchers;
use super::linked;
use super::probe::{self, Answer};
use super::slurm;

/// What to do where there is no library that can be used.
const INSTALL: &str = "install one, for instance by `pip install mpich` in a Python environment, \
                       or name its file in SPMD_MPI_LIB";

/// A library with the standard ABI, or one that the program is linked with.
#[derive(Clone, Debug)]
pub(crate) struct Library {
    pub(crate) file: PathBuf,
    pub(crate) family: Family,
    /// `MPICH 5.0.2`
    pub(crate) name: String,
    /// The version of the standard ABI by which it is loaded; none where the program is linked with
    /// it.
    pub(crate) abi: Option<(i32, i32)>,
    /// What it says of itself (`MPI_Get_library_version`).
    pub(crate) text: String,
}

/// A program that starts MPI processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Launcher {
    pub(crate) path: PathBuf,
    pub(crate) kind: Kind,
    /// `Open MPI 5.0.11`, or `Slurm 22.05.8`.
    pub(crate) name: String,
    /// Why it is not Slurm's, inside an allocation.
    pub(crate) not_slurm: Option<String>,
}

/// Whose options a launcher understands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Hydra,
    IntelHydra,
    OpenMpi {
        major: u32,
    },
    /// Slurm's, with the process management that the library is to use.
    Srun {
        pmi: String,
    },
}

impl Library {
    /// The library that programs run with: that with which they are linked, else the one with the
    /// standard ABI.
    pub(crate) fn of_programs<'a>(
        programs: impl Iterator<Item = &'a Path>,
    ) -> Result<Library, Error> {
        match linked::library(programs).map_err(Error::Usage)? {
            Some(file) => Library::linked(file),
            None => Library::find(),
        }
    }

    /// Finds the library with the standard ABI and asks it who it is.
    fn find() -> Result<Library, Error> {
        let file = find::here().map_err(|why| Error::Usage(absent(why)))?;
        let answer =
            probe::library(&file).map_err(|why| refused(&file, format!("{why}; {INSTALL}")))?;
        match answer.abi {
            Some((1, _)) => Library::of(file, answer),
            None => Err(refused(
                &file,
                format!(
                    "it has no MPI_Abi_get_version, so it does not have the ABI of MPI 5; {INSTALL}"
                ),
            )),
            Some((major, _)) if major < 0 => Err(refused(
                &file,
                format!(
                    "it has an ABI of its own, and this build needs the standard one, which {} \
                     has; {INSTALL}",
                    find::FILE
                ),
            )),
            Some((major, minor)) => Err(refused(
                &file,
                format!(
                    "its ABI is version {major}.{minor}, and this build needs version 1; {INSTALL}"
                ),
            )),
        }
    }

    /// Asks the library that a program is linked with who it is.
    fn linked(file: PathBuf) -> Result<Library, Error> {
        let answer = probe::library(&file).map_err(|why| refused(&file, why))?;
        Library::of(file, Answer { abi: None, ..answer })
    }

    fn of(file: PathBuf, answer: Answer) -> Result<Library, Error> {
        let Some(family) = Family::of(&answer.text) else {
            let first = answer.text.lines().next().unwrap_or("nothing");
            let named = match answer.abi {
                Some(_) => format!(" and SPMD_MPI_LIB={}", file.display()),
                None => String::new(),
            };
            return Err(refused(
                &file,
                format!(
                    "it calls itself `{first}`, of which spmdrun knows no launcher; start the \
                     program by that library's own, with SPMD_TRANSPORT=mpi{named}"
                ),
            ));
        };
        let name = named(family, &answer.text);
        Ok(Library { file, family, name, abi: answer.abi, text: answer.text })
    }

    /// Finds the launcher: Slurm's inside an allocation, if the library can be started so; else
    /// one of the library's family, from its own folders before others, which takes the nodes of
    /// an allocation from Slurm by itself.
    pub(crate) fn launcher(&self, machine: &dyn Machine) -> Result<Launcher, Error> {
        let not_slurm = match slurm::launcher(self, machine) {
            Some(Ok(srun)) => return Ok(srun),
            Some(Err(why)) => Some(why),
            None => None,
        };
        let mut others = Vec::new();
        for path in launchers(machine, &self.file) {
            let text = probe::launcher(&path).unwrap_or_default();
            match Family::of(&text) {
                Some(family) if family == self.family => {
                    return Ok(Launcher {
                        path,
                        kind: kind(family, &text),
                        name: named(family, &text),
                        not_slurm,
                    });
                }
                Some(family) => others.push(format!("{} is {family}'s", path.display())),
                None => others.push(format!("{} is unknown", path.display())),
            }
        }
        let seen = match others.is_empty() {
            true => "there is no mpiexec or mpirun beside it or in PATH".into(),
            false => format!("its own is missing, and {}", others.join(", ")),
        };
        let (program, other) = match self.abi {
            Some(_) => ("", "name another library in SPMD_MPI_LIB"),
            None => (", with which the program is linked", "build the program with another MPI"),
        };
        let srun = not_slurm.map(|why| format!("; in this Slurm allocation, {why}"));
        Err(Error::Usage(format!(
            "no launcher for {} ({}){program}: {seen}; put the folder with its mpiexec first in \
             PATH, or {other}{}",
            self.name,
            self.file.display(),
            srun.unwrap_or_default()
        )))
    }

    /// Whether a launcher lies in the same installation.
    pub(crate) fn beside(&self, machine: &dyn Machine, launcher: &Path) -> bool {
        let file = machine.real(&self.file);
        let launcher = machine.real(launcher);
        let prefix = launcher.parent().and_then(Path::parent);
        prefix.is_some_and(|prefix| file.starts_with(prefix))
    }
}

fn refused(file: &Path, why: String) -> Error {
    Error::Usage(format!("the MPI library {}: {why}", file.display()))
}

fn kind(family: Family, text: &str) -> Kind {
    match family {
        Family::Mpich => Kind::Hydra,
        Family::Intel => Kind::IntelHydra,
        Family::OpenMpi => {
            let major = family::version(text).and_then(|version| version.split('.').next());
            Kind::OpenMpi { major: major.and_then(|major| major.parse().ok()).unwrap_or(5) }
        }
    }
}

fn named(family: Family, text: &str) -> String {
    match family::version(text) {
        Some(version) => format!("{family} {version}"),
        None => family.to_string(),
    }
}

/// Says what was looked for, where, and what to do.
fn absent(why: Absent) -> String {
    const NAME: &str = find::FILE;
    match why {
        Absent::NotWhereSaid(path) => format!(
            "SPMD_MPI_LIB={}: it is neither a library nor a folder with {NAME}; correct it, or \
             unset it to have the library found",
            path.display()
        ),
        Absent::OtherVersion(path) => format!(
            "{} is not the library of the MPI 5 standard, which is {NAME}; its version is too \
             old; {INSTALL}",
            path.display()
        ),
        Absent::Nowhere { launcher: Some(path), .. } => {
            let text = probe::launcher(&path).unwrap_or_default();
            let who = Family::of(&text).map_or("an MPI".into(), |family| named(family, &text));
            format!(
                "the MPI found here is {who} ({}), which has no library with the standard ABI of \
                 MPI 5 ({NAME}), and the program is linked with none; build the program with the \
                 feature `mpi` of `spmd` and this MPI's mpicc, or {INSTALL}",
                path.display()
            )
        }
        Absent::Nowhere { launcher: None, .. } => format!(
            "no MPI library with the standard ABI: looked for {NAME} in the loader's folders, \
             beside mpirun and mpiexec in PATH, in VIRTUAL_ENV and in CONDA_PREFIX; {INSTALL}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds() {
        assert_eq!(kind(Family::OpenMpi, "mpirun (Open MPI) 4.1.6"), Kind::OpenMpi { major: 4 });
        assert_eq!(kind(Family::Mpich, "HYDRA build details"), Kind::Hydra);
    }
}
