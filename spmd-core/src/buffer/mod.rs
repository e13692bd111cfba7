//! What verbs send and receive: slices, arrays, `Vec`, and views with gaps.
//!
//! Typed code ends here. A [`Buffer`] hands out a [`View`], which knows where its elements lie
//! but not their type; the code below the typed methods takes views. Elements in one piece are
//! used in place, others are packed into one piece and unpacked from it.
//!
//! [`strided()`] and [`subarray()`] make buffers of the columns and blocks of an array, so that a
//! halo is exchanged without packing by hand.

#[cfg(feature = "ndarray")]
mod arrays;
mod copies;
mod layout;
mod pattern;
mod place;
mod stage;
mod strided;
mod subarray;
mod traits;
mod view;
mod view_mut;

#[doc(hidden)]
pub use layout::SubarrayLayout;
#[doc(hidden)]
pub use pattern::Rows;
pub use place::Place;
#[doc(hidden)]
pub use stage::{
    DeviceCopies, Room, StagedView, by_host, in_one_piece, on_host, set_device_copies,
};
pub(crate) use stage::{StagedRoom, is_reached};
pub use strided::{Strided, StridedMut, strided, strided_mut};
pub use subarray::{Subarray, SubarrayMut, subarray, subarray_mut};
pub use traits::{Buffer, BufferMut};
pub use view::View;
pub use view_mut::ViewMut;

#[cfg(test)]
mod tests;
