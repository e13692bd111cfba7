//! Where memory is.

use std::fmt;

/// Where the elements of a buffer are.
///
/// ```
/// use spmd::prelude::*;
/// use spmd::buffer::Place;
///
/// assert_eq!([1, 2].erased().place(), Place::Host);
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

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Host => f.write_str("the host"),
            Place::Device(ordinal) => write!(f, "device {ordinal}"),
        }
    }
}
