//! Parts of a device buffer.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use spmd_core::Element;
use spmd_core::buffer::{Buffer, BufferMut, View, ViewMut};

use crate::buffer::DeviceBuffer;

/// Neighbouring elements of a [`DeviceBuffer`], which calls of `spmd` take as they take the buffer.
#[derive(Clone, Copy)]
pub struct DeviceView<'a, T> {
    buffer: &'a DeviceBuffer<T>,
    start: usize,
    len: usize,
}

/// The same, to be written. Others have other elements of the buffer alone.
pub struct DeviceViewMut<'a, T> {
    part: DeviceView<'a, T>,
    unique: PhantomData<&'a mut [T]>,
}

impl<T: Element> DeviceBuffer<T> {
    /// Some of its elements. Panics if it has not so many.
    pub fn slice(&self, range: Range<usize>) -> DeviceView<'_, T> {
        DeviceView { buffer: self, start: 0, len: self.len() }.slice(range)
    }

    /// The same, to be written. Panics as [`DeviceBuffer::slice`].
    pub fn slice_mut(&mut self, range: Range<usize>) -> DeviceViewMut<'_, T> {
        DeviceViewMut { part: self.slice(range), unique: PhantomData }
    }

    /// Its first `at` elements, and the others: one part may be sent while another one is received
    /// into. Panics if it has not so many.
    pub fn split_at_mut(&mut self, at: usize) -> (DeviceViewMut<'_, T>, DeviceViewMut<'_, T>) {
        let all = self.len();
        self.slice_mut(0..all).split_at_mut(at)
    }
}

impl<'a, T: Element> DeviceViewMut<'a, T> {
    /// As [`DeviceBuffer::split_at_mut`].
    pub fn split_at_mut(self, at: usize) -> (DeviceViewMut<'a, T>, DeviceViewMut<'a, T>) {
        let DeviceView { buffer, start, len } = self.part;
        assert!(at <= len, "{at} of {len} elements");
        let part = |start, len| DeviceViewMut {
            part: DeviceView { buffer, start, len },
            unique: PhantomData,
        };
        (part(start, at), part(start + at, len - at))
    }

    /// Some of its elements, to be read. Panics as [`DeviceBuffer::slice`].
    pub fn slice(&self, range: Range<usize>) -> DeviceView<'_, T> {
        self.part.slice(range)
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.part.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.part.len == 0
    }
}

impl<'a, T: Element> DeviceView<'a, T> {
    /// Some of its elements. Panics as [`DeviceBuffer::slice`].
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> DeviceView<'a, T> {
        let (len, all) = (range.len(), self.len);
        assert!(range.start <= range.end && range.end <= all, "{range:?} of {all} elements");
        DeviceView { buffer: self.buffer, start: self.start + range.start, len }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<T: Element> fmt::Debug for DeviceView<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceView").field("start", &self.start).field("len", &self.len).finish()
    }
}

impl<T: Element> fmt::Debug for DeviceViewMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.part.fmt(f)
    }
}

// SAFETY: the view is of these elements of the buffer, always the same ones, of type `T`.
unsafe impl<T: Element> Buffer for DeviceView<'_, T> {
    type Elem = T;

    fn erased(&self) -> View<'_> {
        let (ordinal, place) = self.buffer.place(self.start);
        // SAFETY: the device holds so many values there as long as the buffer lives.
        unsafe { View::on_device(ordinal, place, self.len) }
    }
}

// SAFETY: as above.
unsafe impl<T: Element> Buffer for DeviceViewMut<'_, T> {
    type Elem = T;

    fn erased(&self) -> View<'_> {
        let (ordinal, place) = self.part.buffer.place(self.part.start);
        // SAFETY: as above.
        unsafe { View::on_device(ordinal, place, self.part.len) }
    }
}

// SAFETY: the same elements, one after another.
unsafe impl<T: Element> BufferMut for DeviceViewMut<'_, T> {
    fn erased_mut(&mut self) -> ViewMut<'_> {
        let (ordinal, place) = self.part.buffer.place(self.part.start);
        // SAFETY: as above; it was made of a unique borrow, of which others have other elements.
        unsafe { ViewMut::on_device(ordinal, place, self.part.len) }
    }
}
