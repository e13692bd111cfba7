//! What a task can name: data, or a part of an array.

/// What a task can name to read or write it: `&`[`Data`](crate::Data), a range of a
/// [`DataSlice`](crate::DataSlice), a tile of a [`DataMatrix`](crate::DataMatrix).
pub trait View<'d>: sealed::View<'d> {}

impl<'d, V: sealed::View<'d>> View<'d> for V {}

pub(crate) mod sealed {
    use crate::place::{Mode, Place};

    pub trait View<'d>: Send + for<'a> Lends<'a> {
        fn place(&self, mode: Mode) -> Place<'d>;
    }

    /// What tasks get, for a lifetime that the view outlives (`Outlived`).
    pub trait Lends<'a, Outlived = &'a Self> {
        type Shared;
        type Exclusive;

        /// # Safety
        /// Nobody writes what is named as long as what this gives is used.
        unsafe fn shared(&'a self) -> Self::Shared;

        /// # Safety
        /// Nobody else uses what is named as long as what this gives is used.
        unsafe fn exclusive(&'a self) -> Self::Exclusive;
    }
}
