//! Lengths of memory as MPI's counts, which are of 32 bits here: what is longer is counted in
//! larger units.

use std::env;
use std::ffi::c_int;
use std::sync::OnceLock;

use spmd_core::{Error, Result};

use super::types::{Count, Start};
use crate::handles::Datatype;
use crate::library::Library;

/// The most that MPI is told at a time. Tests make it small by `SPMD_MPI_COUNT`.
pub fn most() -> usize {
    static MOST: OnceLock<usize> = OnceLock::new();
    *MOST.get_or_init(|| {
        let said = env::var("SPMD_MPI_COUNT").ok().and_then(|text| text.parse().ok());
        said.unwrap_or(usize::MAX).clamp(1, c_int::MAX as usize)
    })
}

/// Bytes in a row.
pub struct Run<'a> {
    pub count: Count,
    pub of: Datatype,
    _made: Option<Made<'a>>,
}

impl<'a> Run<'a> {
    /// As bytes, or as one element of a type that is all of them.
    #[inline(always)]
    pub fn of(mpi: &'a Library, bytes: usize) -> Result<Run<'a>> {
        if bytes <= most() {
            return Ok(Run { count: bytes as Count, of: mpi.constants.byte, _made: None });
        }
        let made = Made::of(mpi, bytes)?;
        Ok(Run { count: 1, of: made.of, _made: Some(made) })
    }
}

/// Counts, one for each process, and where the blocks start.
pub struct Lists<'a> {
    pub counts: *const Count,
    pub displacements: *const Start,
    pub of: Datatype,
    numbers: KeptNumbers,
    _made: Option<Made<'a>>,
}

/// What MPI reads until a step is complete: the counts, and after them the starts.
pub type KeptNumbers = Vec<c_int>;

impl<'a> Lists<'a> {
    /// The blocks in bytes, or in the largest unit that divides all lengths and starts. The other
    /// processes may take another one: what goes between them is bytes.
    #[inline(always)]
    pub fn of(mpi: &'a Library, bytes: &[usize], displacements: &[usize]) -> Result<Lists<'a>> {
        let highest = |unit: usize| {
            let all = bytes.iter().chain(displacements);
            all.copied().max().unwrap_or(0) / unit
        };
        let all = bytes.iter().chain(displacements);
        if highest(1) <= most() {
            let numbers = all.map(|number| *number as c_int).collect();
            return Ok(Lists::with(numbers, bytes.len(), mpi.constants.byte, None));
        }
        let unit = all.clone().fold(0, |unit, number| divisor(unit, *number));
        if highest(unit) > most() {
            return Err(too_long(mpi, highest(unit)));
        }
        let numbers = all.map(|number| (*number / unit) as c_int).collect();
        let made = Made::of(mpi, unit)?;
        Ok(Lists::with(numbers, bytes.len(), made.of, Some(made)))
    }

    /// So many elements of a type, one block after the other: at most [`most`] in all.
    #[inline(always)]
    pub fn of_elements(counts: &[usize], of: Datatype) -> Lists<'static> {
        let numbers = counts.iter().map(|count| *count as c_int).collect();
        Lists::with(numbers, counts.len(), of, None)
    }

    fn with(
        numbers: KeptNumbers,
        counts: usize,
        of: Datatype,
        made: Option<Made<'a>>,
    ) -> Lists<'a> {
        let displacements = numbers[counts..].as_ptr();
        Lists { counts: numbers.as_ptr(), displacements, of, numbers, _made: made }
    }

    pub fn keep(self) -> KeptNumbers {
        self.numbers
    }
}

/// A type of so many bytes in a row. MPI keeps it for as long as something under way has it.
struct Made<'a> {
    mpi: &'a Library,
    of: Datatype,
}

impl<'a> Made<'a> {
    #[cold]
    fn of(mpi: &'a Library, bytes: usize) -> Result<Made<'a>> {
        let most = most();
        let pieces = || (0..bytes).step_by(most);
        let displacements: Vec<rsmpi::ffi::MPI_Aint> = pieces().map(|start| start as _).collect();
        let lengths: Vec<c_int> = pieces().map(|start| most.min(bytes - start) as c_int).collect();
        let mut made = Made { mpi, of: mpi.constants.byte };
        let (count, byte, new) =
            (displacements.len() as c_int, mpi.constants.byte.0, &mut made.of.0);
        // SAFETY: there are `count` lengths and starts, and `new` is writable.
        let code = unsafe {
            rsmpi::ffi::MPI_Type_create_hindexed(
                count,
                lengths.as_ptr(),
                displacements.as_ptr(),
                byte,
                new,
            )
        };
        mpi.check("MPI_Type_create_hindexed", code)?;
        // SAFETY: the type has just been made.
        mpi.check("MPI_Type_commit", unsafe { rsmpi::ffi::MPI_Type_commit(&mut made.of.0) })?;
        Ok(made)
    }
}

impl Drop for Made<'_> {
    fn drop(&mut self) {
        if self.of != self.mpi.constants.byte {
            // SAFETY: the type was made here, and nothing is begun with it any more.
            unsafe { rsmpi::ffi::MPI_Type_free(&mut self.of.0) };
        }
    }
}

/// The largest number that divides both.
fn divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { divisor(b, a % b) }
}

#[cold]
fn too_long(mpi: &Library, count: usize) -> Error {
    Error::unavailable(
        format!("blocks of different lengths that reach over {count} elements"),
        format!("{} counts {} at most", mpi.name, most()),
        "exchange them in several calls, or use an MPI with the standard ABI of MPI 5.0".to_owned(),
    )
}
