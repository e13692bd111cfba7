//! The MPI library that a program is linked with, as the system's loader finds it: that of programs
//! built with the feature `mpi`, which use no other.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What the files of MPI libraries are called before their `.so`: Open MPI's, MPICH's and Intel's,
/// that of older MPICHs, IBM's.
const NAMES: [&str; 3] = ["libmpi", "libmpich", "libmpi_ibm"];

/// Cray's begin like this; what follows is the compiler's version.
const BEGINNINGS: [&str; 7] = [
    "libmpi_cray",
    "libmpi_gnu",
    "libmpi_intel",
    "libmpi_nvidia",
    "libmpi_amd",
    "libmpi_aocc",
    "libmpi_pgi",
];

/// The library that all of these programs are linked with; none where they are linked with none, or
/// just with one that has the standard ABI.
///
/// Errors: it is not found, or is not the same for all; in words.
pub(crate) fn library<'a>(
    mut programs: impl Iterator<Item = &'a Path>,
) -> Result<Option<PathBuf>, String> {
    let Some(first) = programs.next() else { return Ok(None) };
    let library = of(first)?;
    for program in programs {
        let its = of(program)?;
        if its != library {
            let shown = |library: &Option<PathBuf>| {
                library.as_ref().map_or("no MPI".into(), |file| file.display().to_string())
            };
            return Err(format!(
                "{} is linked with {}, and {} with {}: all programs of a job need the same",
                first.display(),
                shown(&library),
                program.display(),
                shown(&its)
            ));
        }
    }
    Ok(library)
}

/// Whether the system's loader starts this program; not a script, or one that is linked statically.
pub(crate) fn is_loaded(program: &Path) -> bool {
    File::open(program).and_then(|file| loader(&file)).is_ok()
}

/// The library that one program is linked with.
///
/// Errors: it is not found; in words.
pub(crate) fn of(program: &Path) -> Result<Option<PathBuf>, String> {
    let loader = File::open(program).and_then(|file| loader(&file));
    // No program for a loader, as a script, is linked with nothing.
    let Ok(loader) = loader else { return Ok(None) };
    let mut list = Command::new(loader);
    list.arg("--list").arg(program).stdin(Stdio::null());
    let Ok(output) = list.output() else { return Ok(None) };
    if let Some(file) = listed(&String::from_utf8_lossy(&output.stdout)) {
        return Ok(Some(file));
    }
    match missing(&String::from_utf8_lossy(&output.stderr)) {
        None => Ok(None),
        Some(name) => Err(format!(
            "{} is linked with {name}, which the system's loader does not find; put the folder \
             that it lies in into LD_LIBRARY_PATH",
            program.display()
        )),
    }
}

/// The library of MPI in the loader's list: `libmpi.so.40 => /usr/lib/libmpi.so.40 (0x0123)`.
fn listed(list: &str) -> Option<PathBuf> {
    let mut pairs = list.lines().filter_map(|line| line.trim().split_once(" => "));
    let (_, rest) = pairs.find(|(name, _)| is_mpi(name))?;
    let file = rest.rsplit_once(" (").map_or(rest, |(file, _)| file);
    Some(PathBuf::from(file))
}

/// The library of MPI that the loader misses: `./app: error while loading shared libraries:
/// libmpi.so.40: cannot open shared object file: No such file or directory`.
fn missing(error: &str) -> Option<&str> {
    error.split(": ").find(|word| is_mpi(word))
}

fn is_mpi(name: &str) -> bool {
    let Some((stem, _)) = name.split_once(".so") else { return false };
    NAMES.contains(&stem) || BEGINNINGS.iter().any(|beginning| stem.starts_with(beginning))
}

/// The loader that a program names, in the ELF format of 64 bits.
fn loader(mut file: &File) -> io::Result<PathBuf> {
    let other = || io::Error::from(io::ErrorKind::InvalidData);
    let mut bytes = |place: u64, count: usize| -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; count];
        file.seek(SeekFrom::Start(place))?;
        file.read_exact(&mut bytes).map(|()| bytes)
    };
    let head = bytes(0, 64)?;
    if head[..6] != [0x7f, b'E', b'L', b'F', 2, cfg!(target_endian = "big") as u8 + 1] {
        return Err(other());
    }
    let half = |at: usize| u16::from_ne_bytes([head[at], head[at + 1]]);
    let (table, size, count) = (long(&head, 32), half(54), half(56));
    for entry in 0..u64::from(count) {
        let entry = bytes(table.saturating_add(entry * u64::from(size)), 56)?;
        let is_interpreter = entry[..4] == 3u32.to_ne_bytes();
        let (place, length) = (long(&entry, 8), long(&entry, 32));
        // No path is longer than this.
        if is_interpreter && length <= 4096 {
            let text = String::from_utf8(bytes(place, length as usize)?).map_err(|_| other())?;
            return Ok(PathBuf::from(text.trim_end_matches('\0')));
        }
    }
    Err(other())
}

fn long(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].try_into().map_or(0, u64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_loader_lists() {
        let list = "\tlinux-vdso.so.1 (0x00007ff)\n\tlibm.so.6 => /lib/libm.so.6 (0x00007f0)\n\
                    \tlibmpi_mpifh.so.40 => /x/libmpi_mpifh.so.40 (0x00007f1)\n\
                    \tlibmpi.so.40 => /opt/my mpi (2)/libmpi.so.40 (0x00007f2)\n";
        assert_eq!(listed(list), Some(PathBuf::from("/opt/my mpi (2)/libmpi.so.40")));
        assert_eq!(listed("\tlibmpi_abi.so.1 => /x/libmpi_abi.so.1 (0x1)\n"), None);
        let error = "./app: error while loading shared libraries: libmpi_gnu_123.so.12: cannot \
                     open shared object file: No such file or directory";
        assert_eq!(missing(error), Some("libmpi_gnu_123.so.12"));
        assert_eq!(missing("./app: error while loading shared libraries: libm.so.6: .."), None);
    }

    #[test]
    fn programs_without_an_mpi() {
        let this = std::env::current_exe().unwrap();
        assert!(loader(&File::open(&this).unwrap()).unwrap().is_file());
        assert!(is_loaded(&this) && !is_loaded(Path::new("/etc/passwd")));
        for program in [this.as_path(), Path::new("/etc/passwd"), Path::new("/no/such/program")] {
            assert_eq!(library([program].into_iter()), Ok(None));
        }
    }
}
