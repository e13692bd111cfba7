//! Reading and writing parts.

use std::mem::MaybeUninit;
use std::ops::{Bound, RangeBounds};
use std::panic::Location;

use spmd_core::internal::words::{self, WordSize};
use spmd_core::internal::{Call, Kind, View, ViewMut, by_host, on_host};
use spmd_core::{Buffer, BufferMut, Element, Error, Result};

use super::at::{At, Run};
use super::windows::Window;
use crate::blocks::room_for;

/// Bytes that are packed or unpacked at a time, where the memory of the rank that calls has gaps; one
/// element at least.
const CHUNK: usize = 32 << 10;

/// The first element of a part that is open, and in which the elements of a call lie; null if that is
/// reached by requests.
#[derive(Clone, Copy)]
pub(super) struct Reached(*mut u8);

/// Whether elements of type `T` are words, which a processor changes at once.
pub(super) const fn is_word<T>() -> bool {
    matches!(size_of::<T>(), 1 | 2 | 4 | 8)
}

/// Which call an access belongs to; made only when it is told.
#[derive(Clone, Copy)]
pub(super) struct Access {
    pub(super) kind: Kind,
    pub(super) target: usize,
    pub(super) count: usize,
    pub(super) site: &'static Location<'static>,
}

impl Access {
    /// Whether it writes by other means than atomic changes.
    #[inline(always)]
    fn writes<T>(&self) -> bool {
        match self.kind {
            Kind::Get | Kind::Read => false,
            Kind::FetchAndOp | Kind::CompareAndSwap => !is_word::<T>(),
            _ => true,
        }
    }

    #[cold]
    pub(super) fn call<T: Element>(&self) -> Call<'static> {
        let call = Call::new(self.kind, self.site).data(&T::DTYPE, self.count);
        call.message(Some(self.target), None)
    }

    /// Nobody knows how to copy what is on a device.
    #[cold]
    pub(super) fn out_of_reach<T: Element>(&self) -> Error {
        Error::out_of_reach(&self.call::<T>(), &[])
    }
}

impl<T: Element> Window<T> {
    /// Writes the elements of `src` to the part of rank `target`, from `at` on: an offset in elements
    /// or an [`At`] (MPI 5.0 section 12.3.1). This rank alone calls it, in an epoch. `src` can be used
    /// again at once; others see the elements after the end of the epoch. Buffers on a device go by way
    /// of the host, here and in the window's other calls, which wait for the device.
    ///
    /// Errors: `target` is no rank; it is outside of an epoch; the part is shorter; a rank has failed.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(2, |ctx| {
    ///     let window = ctx.window::<f64>(4)?;
    ///     window.fence()?;
    ///     window.put(&[1.5, 2.5], 1 - ctx.rank(), 2 * ctx.rank())?;
    ///     window.fence()?;
    ///     let expected = [[0.0, 0.0, 1.5, 2.5], [1.5, 2.5, 0.0, 0.0]];
    ///     assert_eq!(window.read(..)?, expected[ctx.rank()]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    #[inline]
    pub fn put<B>(&self, src: &B, target: usize, at: impl Into<At>) -> Result<()>
    where
        B: Buffer<Elem = T> + ?Sized,
    {
        let (view, site) = (src.erased(), Location::caller());
        self.put_as(Kind::Put, view, target, at.into(), site)
    }

    #[inline(always)]
    pub(super) fn put_as(
        &self,
        kind: Kind,
        view: View<'_>,
        target: usize,
        at: At,
        site: &'static Location<'static>,
    ) -> Result<()> {
        let (access, mut stage) = (Access { kind, target, count: view.len(), site }, None);
        let view = on_host(view, &mut stage, &|| access.out_of_reach::<T>())?;
        let reached = self.reach(&access, at)?;
        if reached.is_elsewhere() {
            return self.put_elsewhere(&access, at, view);
        }
        // One element is what many programs write most.
        if let (Some(from), true, Some(first)) =
            (view.contiguous(), view.bytes() == size_of::<T>(), at.first())
        {
            // SAFETY: the view is of one element at `from`; the first of the call is one of the part.
            unsafe { words::store(reached.element::<T>(first), from.cast::<T>().read_unaligned()) };
            return Ok(());
        }
        self.put_view(reached, at, &view)
    }

    fn put_view(&self, reached: Reached, at: At, view: &View<'_>) -> Result<()> {
        let (size, word) = (size_of::<T>(), const { WordSize::of(size_of::<T>()) });
        let chunk = (CHUNK / size).max(1);
        let mut packed = Vec::<u8>::new();
        for Run { at, from, len } in at.runs(view.len()) {
            let into = reached.element::<T>(at);
            if let Some(all) = view.contiguous() {
                // SAFETY: the run lies within the view and within the part (`reach`).
                unsafe { words::write(all.add(from * size), into, len * size, word) };
                continue;
            }
            packed.resize(chunk.min(view.len()) * size, 0);
            for done in (0..len).step_by(chunk) {
                let count = chunk.min(len - done);
                // SAFETY: as above; the vector has room for a chunk.
                unsafe {
                    view.pack_range(from + done, count, packed.as_mut_ptr());
                    words::write(packed.as_ptr(), into.add(done * size), count * size, word);
                }
            }
        }
        Ok(())
    }

    /// Reads elements of the part of rank `target`, from `at` on (an offset in elements or an [`At`]),
    /// into `dst`, which says how many (MPI 5.0 section 12.3.2). This rank alone calls it, in an
    /// epoch. They are there when it returns.
    ///
    /// Errors: as [`Window::put`]; a process has written what is no value of `T`.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(2, |ctx| {
    ///     let window = ctx.window::<usize>(6)?;
    ///     window.write(0, &[0, 1, 2, 3, 4, 5])?;
    ///     window.fence()?;
    ///     let mut column = [0; 3];
    ///     window.get(&mut column, 1, At::strided(1, 3, 1, 2))?;
    ///     assert_eq!(column, [1, 3, 5]);
    ///     window.fence()
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    #[inline]
    pub fn get<B>(&self, dst: &mut B, target: usize, at: impl Into<At>) -> Result<()>
    where
        B: BufferMut<Elem = T> + ?Sized,
    {
        let (view, at, site) = (dst.erased_mut(), at.into(), Location::caller());
        let access = Access { kind: Kind::Get, target, count: view.len(), site };
        let get = |view: ViewMut<'_>| self.get_into(&access, at, view);
        // SAFETY: without an error, as many elements as the view has were read.
        unsafe { by_host(view, &|| access.out_of_reach::<T>(), get, |()| access.count) }
    }

    #[inline(always)]
    fn get_into(&self, access: &Access, at: At, mut view: ViewMut<'_>) -> Result<()> {
        let Access { target, count, .. } = *access;
        let reached = self.reach(access, at)?;
        if reached.is_elsewhere() {
            return self.get_elsewhere(access, at, &mut view);
        }
        if let (Some(into), true, Some(first)) = (view.contiguous_mut(), count == 1, at.first()) {
            // SAFETY: the first of the call is one element of the part.
            let value = unsafe { words::load::<T>(reached.element::<T>(first)) };
            // SAFETY: `into` is one element of the view; it is a value.
            unsafe { into.cast::<T>().write_unaligned(self.value(value, target)?) };
            return Ok(());
        }
        self.get_view(reached, at, &mut view, target)
    }

    fn get_view(
        &self,
        reached: Reached,
        at: At,
        view: &mut ViewMut<'_>,
        target: usize,
    ) -> Result<()> {
        let (size, word) = (size_of::<T>(), const { WordSize::of(size_of::<T>()) });
        let checked = T::DTYPE.valid.is_some();
        let chunk = (CHUNK / size).max(1);
        let count = view.len();
        let mut packed = Vec::<u8>::new();
        for Run { at, from, len } in at.runs(count) {
            let place = reached.element::<T>(at);
            if let Some(all) = view.contiguous_mut().filter(|_| !checked) {
                // SAFETY: the run lies within the view and within the part (`reach`), and all bytes
                // are values.
                unsafe { words::read(place, all.add(from * size), len * size, word) };
                continue;
            }
            packed.resize(chunk.min(count) * size, 0);
            for done in (0..len).step_by(chunk) {
                let count = chunk.min(len - done);
                // SAFETY: as above; the vector has room for a chunk, and what it holds is checked to
                // be values before it goes to the view.
                unsafe {
                    words::read(place.add(done * size), packed.as_mut_ptr(), count * size, word);
                    if !T::DTYPE.all_valid(packed.as_ptr(), count) {
                        return Err(self.no_value(target));
                    }
                    view.unpack_range(from + done, count, packed.as_ptr());
                }
            }
        }
        Ok(())
    }

    /// Reads elements of this rank's own part, at any time.
    ///
    /// Errors: the range is not within the part; there is no memory for the elements; a process has
    /// written what is no value of `T`.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(2, |ctx| {
    ///     let window = ctx.window::<u16>(3)?;
    ///     window.write(1, &[5])?;
    ///     assert_eq!((window.read(..)?, window.read(1..2)?), (vec![0, 5, 0], vec![5]));
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn read(&self, range: impl RangeBounds<usize>) -> Result<Vec<T>> {
        let first = match range.start_bound() {
            Bound::Included(first) => *first,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(last) => last.saturating_add(1),
            Bound::Excluded(end) => *end,
            Bound::Unbounded => self.len(),
        };
        let (target, site) = (self.rank(), Location::caller());
        let access = Access { kind: Kind::Read, target, count: end.saturating_sub(first), site };
        let reached = self.own(&access, At::from(first))?;
        let mut values = room_for::<T>(&access.call::<T>(), access.count)?;
        let bytes = access.count * size_of::<T>();
        let into = values.as_mut_ptr().cast::<u8>();
        let word = const { WordSize::of(size_of::<T>()) };
        // SAFETY: the elements lie within the part; the vector has room for them, and holds them once
        // they are checked to be values.
        unsafe {
            words::read(reached.element::<T>(first), into, bytes, word);
            if !T::DTYPE.all_valid(into, access.count) {
                return Err(self.no_value(target));
            }
            values.set_len(access.count);
        }
        Ok(values)
    }

    /// Writes the elements of `src` to this rank's own part, from `offset` on, at any time.
    ///
    /// Errors: the part is shorter.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(2, |ctx| {
    ///     let window = ctx.window::<u16>(3)?;
    ///     window.write(1, &strided(&[1, 2, 3], 2, 1, 2)?)?;
    ///     assert_eq!(window.read(..)?, [0, 1, 3]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn write<B: Buffer<Elem = T> + ?Sized>(&self, offset: usize, src: &B) -> Result<()> {
        let (view, target) = (src.erased(), self.rank());
        let (kind, site) = (Kind::Write, Location::caller());
        let (access, mut stage) = (Access { kind, target, count: view.len(), site }, None);
        let view = on_host(view, &mut stage, &|| access.out_of_reach::<T>())?;
        let reached = self.own(&access, At::from(offset))?;
        self.put_view(reached, At::from(offset), &view)
    }

    /// The elements that a call is for, if there is an epoch for it.
    #[inline(always)]
    pub(super) fn reach(&self, access: &Access, at: At) -> Result<Reached> {
        if access.writes::<T>() {
            self.raw.writes();
        }
        if self.epochs.permit(access.target)
            && !self.raw.may_be_stopped()
            && let Some((start, len)) = self.raw.part(access.target)
            && at.is_within(access.count, len)
        {
            return Ok(Reached(start));
        }
        self.reach_slowly(access, at)
    }

    #[cold]
    #[inline(never)]
    fn reach_slowly(&self, access: &Access, at: At) -> Result<Reached> {
        let call = access.call::<T>();
        self.raw.comm().internals().check_target(&call, access.target)?;
        if !self.epochs.permit(access.target) {
            return Err(self.epochs.outside(&call, access.target));
        }
        self.raw.check(&call)?;
        let elsewhere = || (std::ptr::null_mut(), self.raw.len_of(access.target).unwrap_or(0));
        let (start, len) = self.raw.open(access.target)?.unwrap_or_else(elsewhere);
        at.check(&call, access.count, len)?;
        Ok(Reached(start))
    }

    /// The same of this rank's own part, at any time.
    fn own(&self, access: &Access, at: At) -> Result<Reached> {
        if access.writes::<T>() {
            self.raw.writes();
        }
        let part = self.raw.open(access.target)?;
        let (start, len) = part.expect("a rank's own part lies in its process");
        at.check(&access.call::<T>(), access.count, len)?;
        Ok(Reached(start))
    }

    /// What was read from the part of a rank, if it is a value.
    #[inline(always)]
    pub(super) fn value(&self, read: MaybeUninit<T>, target: usize) -> Result<T> {
        // SAFETY: all bytes were read, and nobody else has them.
        if T::DTYPE.valid.is_some() && !unsafe { T::DTYPE.all_valid(read.as_ptr().cast(), 1) } {
            return Err(self.no_value(target));
        }
        // SAFETY: all bytes are initialised, and are a value.
        Ok(unsafe { read.assume_init() })
    }

    #[cold]
    pub(super) fn no_value(&self, target: usize) -> Error {
        let what = "an element of its part of a window is no value of its type";
        Error::corrupt(self.raw.comm().world_rank(target), what)
    }
}

impl Reached {
    /// Whether the part lies in another process, which is asked for what is done to it.
    #[inline(always)]
    pub(super) fn is_elsewhere(self) -> bool {
        self.0.is_null()
    }

    /// The element with this number of the part.
    #[inline(always)]
    pub(super) fn element<T>(&self, at: usize) -> *mut u8 {
        self.0.wrapping_add(at * size_of::<T>())
    }
}
