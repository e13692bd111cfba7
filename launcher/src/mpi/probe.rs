//! Asking a library and a launcher who they are.
//!
//! A library is loaded in a process of its own: what its initialisers do (threads, signal
//! handlers, or a crash) is then no matter of the launcher's.

use std::ffi::{OsStr, c_char, c_int};
use std::io;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

const FLAG: &str = "--mpi-library";

/// `MPI_MAX_LIBRARY_VERSION_STRING` of the standard ABI.
const LONGEST: usize = 8192;

/// What a library says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The version of the standard ABI, major and minor, if it has a function for that.
    pub(crate) abi: Option<(i32, i32)>,
    /// The text of `MPI_Get_library_version`.
    pub(crate) text: String,
}

/// Asks a library, in another process.
///
/// Errors: why it cannot be used, in words.
pub(crate) fn library(file: &Path) -> Result<Answer, String> {
    let failed = |error: io::Error| format!("it could not be tried: {error}");
    let program = std::env::current_exe().map_err(failed)?;
    let mut command = Command::new(program);
    command.arg(FLAG).arg(file).stdin(Stdio::null());
    let output = command.output().map_err(failed)?;
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if !output.status.success() {
        return Err(match said.is_empty() {
            true => format!("loading it failed: {}", crate::report::ending(output.status)),
            false => said,
        });
    }
    read(&said).ok_or_else(|| "it does not say its version".into())
}

/// What is said in place of a version.
const NONE: &str = "none";

/// Reads `MAJOR MINOR` and, after the first line, the library's text.
fn read(said: &str) -> Option<Answer> {
    let (abi, text) = said.split_once('\n')?;
    let abi = match abi.split_once(' ') {
        Some((major, minor)) => Some((major.parse().ok()?, minor.parse().ok()?)),
        None if abi == NONE => None,
        None => return None,
    };
    Some(Answer { abi, text: text.into() })
}

/// What a launcher answers to `--version`; nothing where it cannot be run.
pub(crate) fn launcher(path: &Path) -> Option<String> {
    said_by(Command::new(path).arg("--version"))
}

/// The kinds of process management that Slurm's `srun` offers to MPI libraries.
pub(crate) fn slurm(srun: &Path) -> Option<String> {
    said_by(Command::new(srun).arg("--mpi=list"))
}

fn said_by(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    output.status.success().then(|| String::from_utf8_lossy(&text).into_owned())
}

/// If this process was started to try a library, does so and gives its exit status.
pub(crate) fn main() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != FLAG {
        return None;
    }
    let answer = ask(&arguments.next()?);
    let (text, code) = match answer {
        Ok(Answer { abi: Some((major, minor)), text }) => (format!("{major} {minor}\n{text}"), 0),
        Ok(Answer { abi: None, text }) => (format!("{NONE}\n{text}"), 0),
        Err(error) => (error, 1),
    };
    let printed = crate::report::print(&text);
    Some(ExitCode::from(if printed.is_ok() { code } else { 1 }))
}

fn ask(file: &OsStr) -> Result<Answer, String> {
    type AbiVersion = unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int;
    type LibraryVersion = unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int;

    // SAFETY: loading runs the library's initialisers, which may do anything; this process exists
    // to bear that and does nothing else. The library is never unloaded while its functions are
    // used, as `library` outlives both symbols.
    let library = unsafe { libloading::Library::new(file) };
    let library = library.map_err(|error| {
        // Which file is missing or wrong, the loader's own words say.
        let loader = std::error::Error::source(&error).map(ToString::to_string);
        format!("it cannot be loaded: {}", loader.unwrap_or_else(|| error.to_string()))
    })?;
    // SAFETY: the standard gives the function of this name this C signature.
    let abi = unsafe { library.get::<AbiVersion>("MPI_Abi_get_version") }.ok();
    // SAFETY: as above.
    let version = unsafe { library.get::<LibraryVersion>("MPI_Get_library_version") };
    let version = version.map_err(|_| "it has no MPI_Get_library_version, so it is no MPI")?;

    let (mut major, mut minor, mut length) = (0, 0, 0);
    // SAFETY: it may be called before MPI_Init and writes through both pointers, which are to
    // integers of this frame.
    let first = abi.as_ref().map_or(0, |abi| unsafe { abi(&mut major, &mut minor) });
    let mut text = vec![0u8; LONGEST + 1];
    // SAFETY: it may be called before MPI_Init; it writes at most LONGEST bytes, for which `text`
    // has room, and the length into an integer of this frame.
    let second = unsafe { version(text.as_mut_ptr().cast(), &mut length) };
    if first != 0 || second != 0 {
        return Err("it does not say its version".into());
    }
    text.truncate(usize::try_from(length).unwrap_or(0).min(LONGEST));
    let text = String::from_utf8_lossy(&text).trim_end_matches('\0').trim().to_owned();
    Ok(Answer { abi: abi.map(|_| (major, minor)), text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers() {
        let answer = read("1 0\nMPICH Version: 5.0.2\nmore").unwrap();
        assert_eq!(
            (answer.abi, answer.text.as_str()),
            (Some((1, 0)), "MPICH Version: 5.0.2\nmore")
        );
        assert_eq!(read("none\nOpen MPI v5.0.11").map(|answer| answer.abi), Some(None));
        assert_eq!(read("crashed"), None);
        assert!(ask(OsStr::new("/no/such/library.so")).unwrap_err().contains("cannot be loaded"));
    }
}
