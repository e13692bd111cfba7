//! The memory under measurement.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use clap::ValueEnum;
use spmd::prelude::*;
use spmd::{SharedAlloc, SharedBuf};
use spmd_gpu::{DeviceBuffer, OnDevice};

use crate::elements::Number;

/// What the buffers lie in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Memory {
    /// A plain `Vec`
    Vec,
    /// What `alloc_shared` gives, which peers on the host reach without a copy
    Shared,
    /// A plain `Vec` under `SharedAlloc`
    SharedAlloc,
    /// The memory of the rank's GPU, for collectives
    Device,
}

#[global_allocator]
static ALLOCATOR: Chosen = Chosen;

/// `SharedAlloc` where it is asked for, else the system's allocator.
struct Chosen;

static SHARES: AtomicBool = AtomicBool::new(false);

// SAFETY: each call is passed on to an allocator, with the caller's promises. What is freed or
// resized goes to `SharedAlloc`, which passes on to the system's what has come from there, as it
// does in alloc.
unsafe impl GlobalAlloc for Chosen {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises.
        unsafe {
            if SHARES.load(Relaxed) { SharedAlloc.alloc(layout) } else { System.alloc(layout) }
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises.
        unsafe {
            if SHARES.load(Relaxed) {
                SharedAlloc.alloc_zeroed(layout)
            } else {
                System.alloc_zeroed(layout)
            }
        }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises.
        unsafe { SharedAlloc.dealloc(ptr, layout) }
    }
}

impl Memory {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Memory::Vec => "vec",
            Memory::Shared => "shared",
            Memory::SharedAlloc => "shared-alloc",
            Memory::Device => "device",
        }
    }

    /// A buffer of this many zeros.
    pub(crate) fn zeros<T: Number>(self, ctx: &Ctx, count: usize) -> Result<Data<T>> {
        Ok(match self {
            Memory::Vec => Data::Vec(vec![T::of(0); count]),
            Memory::Shared => Data::Shared(ctx.alloc_shared(count)?),
            Memory::SharedAlloc => {
                SHARES.store(true, Relaxed);
                Data::Vec(vec![T::of(0); count])
            }
            Memory::Device => {
                let (host, buffer) = (vec![T::of(0); count], ctx.device()?.zeros(count)?);
                Data::Device(OnCard { host, buffer })
            }
        })
    }
}

/// A buffer, wherever it lies; a slice of it is what the host sees.
pub(crate) enum Data<T: Number> {
    Vec(Vec<T>),
    Shared(SharedBuf<T>),
    Device(OnCard<T>),
}

/// A buffer on a device, and what the host has written for it or read from it.
pub(crate) struct OnCard<T: Number> {
    host: Vec<T>,
    pub(crate) buffer: DeviceBuffer<T>,
}

impl<T: Number> Data<T> {
    /// Takes what the host has written to where the buffer lies.
    pub(crate) fn upload(&mut self) -> Result<()> {
        if let Data::Device(OnCard { host, buffer }) = self {
            buffer.copy_from(host)?;
        }
        Ok(())
    }

    /// Shows the host what the buffer holds, when all that was begun with it is done.
    pub(crate) fn download(&mut self) -> Result<()> {
        if let Data::Device(OnCard { host, buffer }) = self {
            buffer.copy_to(host)?;
        }
        Ok(())
    }

    /// Waits until all that was begun with it is done.
    pub(crate) fn finish(&self) -> Result<()> {
        if let Data::Device(OnCard { buffer, .. }) = self {
            buffer.device()?.synchronize()?;
        }
        Ok(())
    }

    pub(crate) fn is_on_device(&self) -> bool {
        matches!(self, Data::Device(_))
    }
}

impl<T: Number> Deref for Data<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Data::Vec(values) => values,
            Data::Shared(values) => values,
            Data::Device(it) => &it.host,
        }
    }
}

impl<T: Number> DerefMut for Data<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Data::Vec(values) => values,
            Data::Shared(values) => values,
            Data::Device(it) => &mut it.host,
        }
    }
}
