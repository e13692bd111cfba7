//! The files of `--output-dir`.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

use crate::error::Error;
use crate::plan::Plan;

/// Makes the folder.
pub(super) fn folder(plan: &Plan) -> Result<(), Error> {
    let Some(dir) = &plan.output_dir else { return Ok(()) };
    fs::create_dir_all(dir).map_err(|error| unwritable(dir, error))
}

/// Makes the files of a process: before it is started, so that what cannot be written stops
/// the job before it begins.
pub(crate) fn of(plan: &Plan, rank: usize) -> Result<[Option<File>; 2], Error> {
    let Some(dir) = &plan.output_dir else { return Ok([None, None]) };
    let width = plan.digits();
    let who = if plan.one_process() { "ranks".into() } else { format!("rank-{rank:0width$}") };
    let open = |stream: &str| {
        let path = dir.join(format!("{who}.{stream}"));
        create(&path).map(Some).map_err(|error| unwritable(&path, error))
    };
    Ok([open("stdout")?, open("stderr")?])
}

/// Makes or empties a file of output. What is there may be a device, too, but no pipe: that would
/// hold up the launcher, here until somebody reads it, and later where nobody does.
fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    let no_file = || io::Error::other("what is there is no file");
    let file = match options.custom_flags(OFlags::NONBLOCK.bits() as i32).open(path) {
        Err(error) if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => {
            return Err(no_file());
        }
        opened => opened?,
    };
    let kind = file.metadata()?.file_type();
    if !kind.is_file() && !kind.is_char_device() {
        return Err(no_file());
    }
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

fn unwritable(path: &Path, error: io::Error) -> Error {
    Error::Usage(format!("--output-dir: cannot write {}: {error}", path.display()))
}
