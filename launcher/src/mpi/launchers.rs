//! Launchers, and where that of an MPI library may lie.

use std::path::{Path, PathBuf};

use spmd_mpi::find::{Machine, programs};

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

/// Every launcher that may belong to a library: first those of its own installation, then those in
/// `PATH`. Whether one does is for its `--version` to say.
pub(crate) fn launchers(machine: &dyn Machine, library: &Path) -> Vec<PathBuf> {
    const NAMES: [&str; 5] =
        ["mpiexec.hydra", "mpiexec", "mpirun", "mpiexec.mpich", "mpirun.openmpi"];
    let mut found: Vec<PathBuf> = Vec::new();
    for path in [library.to_path_buf(), machine.real(library)] {
        // A library lies in lib, or in lib/x86_64-linux-gnu or the like.
        for prefix in path.ancestors().skip(2).take(2) {
            // `/bin` is mostly another name of `/usr/bin`; Open MPI's launcher takes the folder
            // above that by which it is called for where it is installed, and refuses to be in `/`.
            let bin = machine.real(&prefix.join("bin"));
            found.extend(NAMES.map(|name| bin.join(name)));
        }
    }
    found.retain(|path| machine.is_file(path));
    found.extend(programs(machine, &NAMES));
    let mut seen = Vec::new();
    found.retain(|path| {
        let new = !seen.contains(path);
        seen.push(path.clone());
        new
    });
    found
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    /// A machine with these files, and this `PATH`.
    struct Files(&'static str, Vec<&'static str>);

    impl Machine for Files {
        fn variable(&self, name: &str) -> Option<OsString> {
            (name == "PATH").then(|| self.0.into())
        }

        fn is_file(&self, path: &Path) -> bool {
            self.1.iter().any(|file| Path::new(file) == path)
        }

        fn real(&self, path: &Path) -> PathBuf {
            if path == Path::new("/bin") { "/usr/bin".into() } else { path.to_path_buf() }
        }

        fn loader_cache(&self) -> Vec<PathBuf> {
            Vec::new()
        }
    }

    #[test]
    fn those_of_the_librarys_own_installation_come_first() {
        let files = vec![
            "/bin/mpirun",
            "/usr/bin/mpirun",
            "/opt/a/bin/mpiexec",
            "/opt/a/bin/mpiexec.hydra",
            "/opt/a/lib/libmpi_abi.so.1",
            "/usr/lib/x86_64-linux-gnu/libmpi_abi.so.1",
        ];
        let machine = Files("/usr/bin:/opt/a/bin", files);
        let found = |library: &str| -> Vec<String> {
            let found = launchers(&machine, Path::new(library));
            found.iter().map(|path| path.display().to_string()).collect()
        };
        let own = ["/opt/a/bin/mpiexec.hydra", "/opt/a/bin/mpiexec", "/usr/bin/mpirun"];
        assert_eq!(found("/opt/a/lib/libmpi_abi.so.1"), own);
        assert_eq!(found("/usr/lib/x86_64-linux-gnu/libmpi_abi.so.1")[0], "/usr/bin/mpirun");
        assert_eq!(found("/lib/x86_64-linux-gnu/libmpi.so.40")[0], "/usr/bin/mpirun");
    }
}
