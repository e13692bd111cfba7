//! Where memory is.

/// Where the elements of a buffer are.
///
/// ```
/// # use spmd_core::buffer::{Buffer, Place};
/// assert_eq!([1, 2].view().place(), Place::Host);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// Where the processor reads it.
    #[default]
    Host,
    /// On the device of this number, which a plane reaches.
    Device(u32),
}
