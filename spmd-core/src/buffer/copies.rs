//! Copies between views with gaps and memory in one piece.

use std::panic::Location;

use super::stage::on_host;
use super::strided::{Strided, StridedMut};
use super::subarray::{Subarray, SubarrayMut};
use super::traits::{Buffer, BufferMut};
use crate::element::Element;
use crate::error::{Error, Result};

/// The elements of a buffer of the host, one after another.
fn to_vec<B: Buffer>(buffer: &B) -> Vec<B::Elem> {
    let view = buffer.erased();
    let mut values = Vec::<B::Elem>::with_capacity(view.len());
    // SAFETY: the vector has room for all elements, which are values of its type, and is apart from
    // them.
    unsafe {
        view.pack(values.as_mut_ptr().cast());
        values.set_len(view.len());
    }
    values
}

/// Copies the elements of `from` into those of `to`.
#[track_caller]
fn copy<B, F>(to: &mut B, from: &F) -> Result<()>
where
    B: BufferMut,
    F: Buffer<Elem = B::Elem> + ?Sized,
{
    let site = Location::caller();
    let wrong = |why: String| Error::misuse("copy_from", site, why);
    let mut stage = None;
    let unreachable = || wrong("nothing here reaches the device that `from` is on".into());
    let (from, mut to) = (on_host(from.erased(), &mut stage, &unreachable)?, to.erased_mut());
    if from.len() != to.len() {
        let why = format!("{} elements are copied into {}", from.len(), to.len());
        return Err(wrong(why));
    }
    let packed = from.contiguous().is_none().then(|| {
        let mut bytes = vec![0; from.bytes()];
        // SAFETY: there is room for all bytes, apart from the elements.
        unsafe { from.pack(bytes.as_mut_ptr()) };
        bytes
    });
    let source = packed.as_ref().map(|bytes| bytes.as_ptr()).or(from.contiguous());
    // SAFETY: the elements lie there one after another, as many as there is room for and of the same
    // type; `to` is borrowed uniquely, and so apart from them.
    source.into_iter().for_each(|source| unsafe { to.unpack(source) });
    Ok(())
}

macro_rules! with_gaps {
    ($($view:ident $make:literal;)*) => {$(
        impl<T: Element> $view<'_, T> {
            /// Its elements, one after another.
            ///
            /// ```
            /// use spmd::prelude::*;
            ///
            /// let matrix = [1, 2, 3, 4, 5, 6]; // two rows
            #[doc = $make]
            /// assert_eq!(column.to_vec(), [2, 5]);
            /// # Ok::<(), Error>(())
            /// ```
            #[must_use]
            pub fn to_vec(&self) -> Vec<T> {
                to_vec(self)
            }
        }
    )*};
}

with_gaps! {
    Strided "let column = strided(&matrix[1..], 2, 1, 3)?;";
    Subarray "let column = subarray(&matrix, &[2, 3], &[0..2, 1..2])?;";
}

macro_rules! with_gaps_mut {
    ($($view:ident $make:literal;)*) => {$(
        impl<T: Element> $view<'_, T> {
            /// Copies the elements of `from`, as many, into its own.
            ///
            /// Errors: `from` has another number of elements, or is on a device that nothing reaches.
            ///
            /// ```
            /// use spmd::prelude::*;
            ///
            /// let mut matrix = [1, 2, 3, 4, 5, 6]; // two rows
            #[doc = $make]
            /// column.copy_from(&[8, 9])?;
            /// assert_eq!(matrix, [1, 8, 3, 4, 9, 6]);
            /// # Ok::<(), Error>(())
            /// ```
            #[track_caller]
            pub fn copy_from<F: Buffer<Elem = T> + ?Sized>(&mut self, from: &F) -> Result<()> {
                copy(self, from)
            }
        }
    )*};
}

with_gaps_mut! {
    StridedMut "let mut column = strided_mut(&mut matrix[1..], 2, 1, 3)?;";
    SubarrayMut "let mut column = subarray_mut(&mut matrix, &[2, 3], &[0..2, 1..2])?;";
}
