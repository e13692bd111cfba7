//! The launcher that belongs to a library.

use std::path::Path;

use spmd_mpi::find::Machine;

use crate::error::Error;

use super::family::{self, Family};
use super::launchers::{Kind, Launcher, launchers};
use super::library::Library;
use super::probe;
use super::slurm;

impl Library {
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
                        name: family.named(&text),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds() {
        assert_eq!(kind(Family::OpenMpi, "mpirun (Open MPI) 4.1.6"), Kind::OpenMpi { major: 4 });
        assert_eq!(kind(Family::Mpich, "HYDRA build details"), Kind::Hydra);
    }
}
