//! What MPI libraries leave in `/dev/shm` when their jobs are killed, as tests do: MPICH names its
//! memory there, and removes the name at the end of a job alone.

use std::fs;
use std::path::Path;

/// Where named memory lies, and how MPICH names its own.
const FOLDER: &str = "/dev/shm";
const PREFIX: &str = "mpich_shm_";

/// Removes memory of MPICH's that no process has mapped any more.
pub(crate) fn remove() {
    let names: Vec<String> = files(Path::new(FOLDER)).filter(|it| it.starts_with(PREFIX)).collect();
    if names.is_empty() {
        return;
    }
    let maps: Vec<String> = files(Path::new("/proc"))
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .filter_map(|process| fs::read_to_string(format!("/proc/{process}/maps")).ok())
        .collect();
    for name in names.iter().filter(|name| !maps.iter().any(|map| map.contains(name.as_str()))) {
        // Another user's stays.
        let _ = fs::remove_file(Path::new(FOLDER).join(name));
    }
}

fn files(folder: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok())
}
