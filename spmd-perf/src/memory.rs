//! The memory under measurement.

use std::ops::{Deref, DerefMut};

use clap::ValueEnum;
use spmd::SharedBuf;
use spmd::prelude::*;

use crate::elements::Number;

/// What the buffers lie in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Memory {
    /// A plain `Vec`
    Vec,
    /// What `alloc_shared` gives, which peers on the host reach without a copy
    Shared,
}

impl Memory {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Memory::Vec => "vec",
            Memory::Shared => "shared",
        }
    }

    /// A buffer of this many zeros.
    pub(crate) fn zeros<T: Number>(self, ctx: &Ctx, count: usize) -> Result<Data<T>> {
        Ok(match self {
            Memory::Vec => Data::Vec(vec![T::of(0); count]),
            Memory::Shared => Data::Shared(ctx.alloc_shared(count)?),
        })
    }
}

/// A buffer, wherever it lies.
pub(crate) enum Data<T: Number> {
    Vec(Vec<T>),
    Shared(SharedBuf<T>),
}

impl<T: Number> Deref for Data<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Data::Vec(values) => values,
            Data::Shared(values) => values,
        }
    }
}

impl<T: Number> DerefMut for Data<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Data::Vec(values) => values,
            Data::Shared(values) => values,
        }
    }
}
