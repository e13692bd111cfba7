//! What a value of the host is on a GPU.

use crate::error::Result;

/// The form that a value of the type `H` has on a GPU, which tasks copy there and back as they need it:
/// `DeviceBuffer<T>` for a `Vec<T>`. For a type of your own it says how the copies are made.
pub trait Mirror<H>: Sized + Send + Sync {
    /// Copies the value to the GPU of this number among those of the process.
    ///
    /// Errors: those of the copy, and of memory for it.
    fn to_gpu(host: &H, gpu: u32) -> Result<Self>;

    /// Copies the value back.
    ///
    /// Errors: those of the copy, and of what was to be done before it.
    fn to_host(&self) -> Result<H>;

    /// How many bytes a copy moves, either way.
    fn bytes(host: &H) -> usize;
}
