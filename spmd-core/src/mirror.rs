//! What a value of the host is on a GPU.

use std::time::Duration;

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

    /// What a short and a long copy to this GPU, or back, take now: so many bytes each, and the times. A process
    /// asks for that when a task is first to run on the host or with a GPU, and learns from each copy after that;
    /// without an answer from them alone.
    fn measure(gpu: u32) -> Option<[(usize, Duration); 2]> {
        let _ = gpu;
        None
    }
}
