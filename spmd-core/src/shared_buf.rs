//! Memory of a rank that its peers on the host can reach.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::sync::Arc;

use crate::buffer::{Buffer, BufferMut, View, ViewMut};
use crate::element::Element;
use crate::error::{Error, Result};
use crate::transport::shared::Endpoint;
use crate::transport::shared::heap::{self, Block};

/// A buffer made by [`crate::Ctx::alloc_shared`]; derefs to a slice.
///
/// ```
/// use spmd::prelude::*;
/// use spmd::SharedBuf;
///
/// spmd(1, |ctx| {
///     let mut field: SharedBuf<f32> = ctx.alloc_shared(4)?;
///     field[1..3].fill(2.5);
///     assert_eq!(field[..], [0.0, 2.5, 2.5, 0.0]);
///     Ok(())
/// })?;
/// # Ok::<(), Error>(())
/// ```
pub struct SharedBuf<T: Element> {
    memory: Memory<T>,
    len: usize,
}

/// As a slice.
impl<T: Element + fmt::Debug> fmt::Debug for SharedBuf<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&**self).finish()
    }
}

enum Memory<T> {
    /// Ranks of one process reach any memory.
    Private(Vec<T>),
    Arena(Block, PhantomData<T>),
}

// SAFETY: the block is memory that this value alone owns; peers read it only while a call that
// borrows it is under way, and `T: Element` is `Send`.
unsafe impl<T: Element> Send for SharedBuf<T> {}
// SAFETY: as above; shared references only read.
unsafe impl<T: Element> Sync for SharedBuf<T> {}

impl<T: Element> SharedBuf<T> {
    pub(crate) fn new(
        endpoint: &Arc<Endpoint>,
        len: usize,
        site: &Location<'_>,
    ) -> Result<SharedBuf<T>> {
        let misuse = |why: String| Error::misuse("alloc_shared", site, why);
        let lacking = |reason: String| {
            Error::unavailable(
                format!("alloc_shared of {len} {} at {}:{}", T::DTYPE, site.file(), site.line()),
                reason,
                "share less at once".into(),
            )
        };
        if !T::DTYPE.zero_is_value() {
            let name = T::DTYPE;
            return Err(misuse(format!("zero is no value of {name}")));
        }
        let memory = if !endpoint.world.one_address_space() {
            if align_of::<T>() > heap::ALIGN {
                let (name, align) = (T::DTYPE, heap::ALIGN);
                return Err(misuse(format!("{name} is aligned to more than {align} bytes")));
            }
            let bytes = len.checked_mul(size_of::<T>());
            let bytes = bytes.ok_or_else(|| lacking("its size in bytes is no number".into()))?;
            let block = endpoint.heap.allocate(bytes).map_err(|error| match error {
                Error::Unavailable(heap) => lacking(heap.reason),
                other => other,
            })?;
            Memory::Arena(block, PhantomData)
        } else {
            let mut values = Vec::<T>::new();
            values.try_reserve_exact(len).map_err(|error| lacking(error.to_string()))?;
            // SAFETY: the vector has room for `len` values, and zeros are values of `T`.
            unsafe {
                std::ptr::write_bytes(values.as_mut_ptr(), 0, len);
                values.set_len(len);
            }
            Memory::Private(values)
        };
        Ok(SharedBuf { memory, len })
    }
}

impl<T: Element> Deref for SharedBuf<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match &self.memory {
            Memory::Private(values) => values,
            // SAFETY: the block is aligned to `heap::ALIGN`, which is enough for `T`, and has room
            // for `len` elements, fewer bytes than a segment, in one mapping that lives as long
            // as the block. Their bytes are zeros, which are values, or what this rank has
            // written through `&mut`; nobody else writes them, the segment being mapped
            // read-only elsewhere.
            Memory::Arena(block, _) => unsafe {
                std::slice::from_raw_parts(block.pointer().cast(), self.len)
            },
        }
    }
}

impl<T: Element> DerefMut for SharedBuf<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.memory {
            Memory::Private(values) => values,
            // SAFETY: as in `deref`; and `&mut self` is the only way to it here, peers reading it
            // only during calls that borrow it.
            Memory::Arena(block, _) => unsafe {
                std::slice::from_raw_parts_mut(block.pointer().cast(), self.len)
            },
        }
    }
}

// SAFETY: the view is that of the slice.
unsafe impl<T: Element> Buffer for SharedBuf<T> {
    type Elem = T;

    #[inline]
    fn view(&self) -> View<'_> {
        View::new(self)
    }
}

// SAFETY: the view is that of the slice.
unsafe impl<T: Element> BufferMut for SharedBuf<T> {
    #[inline]
    fn view_mut(&mut self) -> ViewMut<'_> {
        ViewMut::new(self)
    }
}
