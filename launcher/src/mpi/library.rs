//! The MPI library that programs run with.

use std::path::{Path, PathBuf};

use spmd_mpi::find::{self, Absent};

use crate::error::Error;

use super::family::Family;
use super::linked;
use super::probe::{self, Answer};

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
        let name = family.named(&answer.text);
        Ok(Library { file, family, name, abi: answer.abi, text: answer.text })
    }
}

fn refused(file: &Path, why: String) -> Error {
    Error::Usage(format!("the MPI library {}: {why}", file.display()))
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
            let who = Family::of(&text).map_or("an MPI".into(), |family| family.named(&text));
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
