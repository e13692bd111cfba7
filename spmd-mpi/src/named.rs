//! What a library is called, for people.

use std::ffi::{CStr, OsStr, c_void};
use std::mem;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use crate::functions::Functions;
use crate::library::text;

/// Product and version: the first line of what `MPI_Get_library_version` says, as far as its first
/// comma.
pub fn product(functions: &Functions) -> String {
    let all = text(|buffer, length| {
        // SAFETY: it may be called at any time; the buffer has the length that it asks for.
        unsafe { (functions.get_library_version)(buffer, length) }
    });
    let all = all.unwrap_or_default();
    let first = all.lines().next().unwrap_or("MPI").split(',').next().unwrap_or("MPI");
    let words: Vec<&str> = first.split_whitespace().filter(|word| *word != "Version:").collect();
    words.join(" ")
}

/// The file that a function came from.
pub fn file_of(function: NonNull<c_void>) -> Option<PathBuf> {
    // SAFETY: plain data, of which zero is a value.
    let mut info: libc::Dl_info = unsafe { mem::zeroed() };
    // SAFETY: any address may be asked about; `info` is writable.
    let known = unsafe { libc::dladdr(function.as_ptr(), &mut info) } != 0;
    if !known || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's own text, which stays while the library is loaded.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    let file = Path::new(OsStr::from_bytes(name.to_bytes()));
    Some(file.canonicalize().unwrap_or_else(|_| file.to_owned()))
}

/// A file by its name, with its folder behind.
pub fn place(file: &Path) -> String {
    let name = file.file_name().unwrap_or(file.as_os_str()).display();
    match file.parent() {
        Some(folder) => format!("{name} ({})", folder.display()),
        None => name.to_string(),
    }
}
