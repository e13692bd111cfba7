//! Calls that change elements of a part depending on what is there, each at once.

use std::mem::MaybeUninit;
use std::panic::Location;
use std::sync::atomic::Ordering::Acquire;

use spmd_core::internal::words::{self, Word};
use spmd_core::internal::{
    Call, Kind, LockOf, Mode, Native, View, ViewMut, by_host, in_operation, on_host,
};
use spmd_core::{Buffer, BufferMut, Element, Error, Operation, Result};

use super::access::{Access, Reached, is_word};
use super::at::{At, Run};
use super::windows::Window;
use crate::data::{Input, Output};

/// Runs an expression in which `$word` is the word that elements of type `$element` are.
macro_rules! as_word {
    ($element:ty, $word:ident => $run:expr) => {
        match size_of::<$element>() {
            8 => {
                type $word = u64;
                $run
            }
            4 => {
                type $word = u32;
                $run
            }
            2 => {
                type $word = u16;
                $run
            }
            _ => {
                type $word = u8;
                $run
            }
        }
    };
}

impl<T: Element> Window<T> {
    /// Changes elements of the part of rank `target`, from `at` on: `op` combines each of them with
    /// that of `src` (MPI 5.0 section 12.3.4). What is there is the left argument. This rank alone
    /// calls it, in an epoch.
    ///
    /// Each element is changed at once with regard to other such calls: `accumulate`,
    /// [`Window::get_accumulate`], [`Window::fetch_and_op`], [`Window::compare_and_swap`]. Integer
    /// sums, bitwise operations, [`Replace`](spmd_core::Replace) and [`NoOp`](spmd_core::NoOp) on
    /// elements of up to 8 bytes are one instruction; other operations on them may be carried out
    /// several times. For elements of other sizes the call takes a lock of the part, which such calls
    /// take in turn.
    ///
    /// Errors: as [`Window::put`] and [`Window::get`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let window = ctx.window::<f64>(2)?;
    ///     window.fence()?;
    ///     window.accumulate(&[ctx.rank() as f64, -1.0], 0, 0, Max)?;
    ///     window.fence()?;
    ///     if ctx.rank() == 0 {
    ///         assert_eq!(window.read(..)?, [2.0, 0.0]);
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn accumulate<B, O>(&self, src: &B, target: usize, at: impl Into<At>, op: O) -> Result<()>
    where
        B: Buffer<Elem = T> + ?Sized,
        O: Operation<T>,
    {
        let (view, at, site) = (src.erased(), at.into(), Location::caller());
        let access = Access { kind: Kind::Accumulate, target, count: view.len(), site };
        let mut stage = None;
        let view = on_host(view, &mut stage, &|| access.out_of_reach::<T>())?;
        let reached = self.reach(&access, at)?;
        let input = Input::new(view)?;
        self.change_each(&access, (reached, at), input.ptr().cast(), &op, |_, _| {})
    }

    /// [`Window::accumulate`] that gives what was there before in `result`, which is as long as `src`
    /// (MPI 5.0 section 12.3.4). With [`NoOp`](spmd_core::NoOp) it reads elements, each at once.
    ///
    /// Errors: as [`Window::accumulate`]; `result` has another length.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(2, |ctx| {
    ///     let window = ctx.window::<u8>(2)?;
    ///     window.write(0, &[1, 2])?;
    ///     window.fence()?;
    ///     let mut before = [0; 2];
    ///     window.get_accumulate(&[8, 9], &mut before, 1 - ctx.rank(), 0, Replace)?;
    ///     window.fence()?;
    ///     assert_eq!((before, window.read(..)?), ([1, 2], vec![8, 9]));
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn get_accumulate<B, R, O>(
        &self,
        src: &B,
        result: &mut R,
        target: usize,
        at: impl Into<At>,
        op: O,
    ) -> Result<()>
    where
        B: Buffer<Elem = T> + ?Sized,
        R: BufferMut<Elem = T> + ?Sized,
        O: Operation<T>,
    {
        let (view, room, site) = (src.erased(), result.erased_mut(), Location::caller());
        let access = Access { kind: Kind::GetAccumulate, target, count: view.len(), site };
        if room.len() != view.len() {
            let call = access.call::<T>();
            return Err(Error::length(&call, "result", room.len(), view.len()));
        }
        let (at, mut stage, unknown) = (at.into(), None, || access.out_of_reach::<T>());
        let view = on_host(view, &mut stage, &unknown)?;
        let exchange = |room: ViewMut<'_>| self.exchange(&access, at, (view, room), &op);
        // SAFETY: without an error, as many elements as the result has were written.
        unsafe { by_host(room, &unknown, exchange, |()| access.count) }
    }

    #[inline(always)]
    fn exchange<O: Operation<T>>(
        &self,
        access: &Access,
        at: At,
        (view, room): (View<'_>, ViewMut<'_>),
        op: &O,
    ) -> Result<()> {
        let reached = self.reach(access, at)?;
        let (input, mut output) = (Input::new(view)?, Output::new(room)?);
        let into = output.ptr().cast::<T>();
        self.change_each(access, (reached, at), input.ptr().cast(), op, |index, before| {
            // SAFETY: the output has room for as many elements as the input has, of any alignment.
            unsafe { into.add(index).write_unaligned(before) };
        })?;
        output.commit();
        Ok(())
    }

    /// Combines element `offset` of the part of rank `target` with `x` by `op`, and gives what was
    /// there before (MPI 5.0 section 12.3.4): [`Window::get_accumulate`] of one element. This rank
    /// alone calls it, in an epoch.
    ///
    /// Errors: as [`Window::accumulate`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let mut tickets = spmd(3, |ctx| {
    ///     let window = ctx.window::<u64>(1)?;
    ///     window.lock_all()?;
    ///     let ticket = window.fetch_and_op(1, 0, 0, Sum)?;
    ///     window.unlock_all()?;
    ///     Ok(ticket)
    /// })?;
    /// tickets.sort();
    /// assert_eq!(tickets, [0, 1, 2]);
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    #[inline]
    pub fn fetch_and_op<O>(&self, x: T, target: usize, offset: usize, op: O) -> Result<T>
    where
        O: Operation<T>,
    {
        let site = Location::caller();
        let access = Access { kind: Kind::FetchAndOp, target, count: 1, site };
        let reached = self.reach(&access, At::from(offset))?;
        if reached.is_elsewhere() {
            let (mut before, from) = (None, (At::from(offset), &raw const x, true));
            self.change_elsewhere(&access, from, &op, |_, was| before = Some(was))?;
            return before.ok_or_else(|| self.no_value(target));
        }
        let at = reached.element::<T>(offset);
        let _turn = self.turn(&access)?;
        // SAFETY: an element of the part; it is this rank's turn.
        unsafe { change(at, x, &op) }.ok_or_else(|| self.no_value(target))
    }

    /// Writes `new` to element `offset` of the part of rank `target` if `old` is there, and gives what
    /// was there (MPI 5.0 section 12.3.4). Elements are the same if their bytes are. This rank alone
    /// calls it, in an epoch.
    ///
    /// Errors: as [`Window::accumulate`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let winners = spmd(3, |ctx| {
    ///     let window = ctx.window::<u32>(1)?;
    ///     window.lock_all()?;
    ///     let before = window.compare_and_swap(0, 1 + ctx.rank() as u32, 0, 0)?;
    ///     window.unlock_all()?;
    ///     Ok(u32::from(before == 0))
    /// })?;
    /// assert_eq!(winners.iter().sum::<u32>(), 1);
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    #[inline]
    pub fn compare_and_swap(&self, old: T, new: T, target: usize, offset: usize) -> Result<T> {
        let site = Location::caller();
        let access = Access { kind: Kind::CompareAndSwap, target, count: 1, site };
        let reached = self.reach(&access, At::from(offset))?;
        if reached.is_elsewhere() {
            return self.swap_if_elsewhere(&access, offset, (old, new));
        }
        let at = reached.element::<T>(offset);
        let _turn = self.turn(&access)?;
        // SAFETY: an element of the part; it is this rank's turn.
        self.value(unsafe { swap_if(at, old, new) }, target)
    }

    /// Combines each element of a call with that of `src`; gives `each` its number and what was there.
    fn change_each<O: Operation<T>>(
        &self,
        access: &Access,
        (reached, at): (Reached, At),
        src: *const T,
        op: &O,
        mut each: impl FnMut(usize, T),
    ) -> Result<()> {
        if reached.is_elsewhere() {
            let told = access.kind != Kind::Accumulate;
            return self.change_elsewhere(access, (at, src, told), op, each);
        }
        let _turn = self.turn(access)?;
        for Run { at, from, len } in at.runs(access.count) {
            for index in 0..len {
                // SAFETY: the element lies within the part, and that of `src` among as many as the
                // call has; it is this rank's turn.
                let before = unsafe {
                    let given = src.add(from + index).read_unaligned();
                    change(reached.element::<T>(at + index), given, op)
                };
                each(from + index, before.ok_or_else(|| self.no_value(access.target))?);
            }
        }
        Ok(())
    }

    /// The turn to change elements of a part, which lasts as long as what this gives: of elements of
    /// one word it is everybody's.
    #[inline(always)]
    pub(super) fn turn(&self, access: &Access) -> Result<Option<Turn<'_, T>>> {
        if is_word::<T>() { Ok(None) } else { self.take_turn(access).map(Some) }
    }

    #[cold]
    fn take_turn(&self, access: &Access) -> Result<Turn<'_, T>> {
        let (call, which) = (access.call::<T>(), LockOf::Update(access.target));
        self.raw.lock(&call, which, Mode::Exclusive)?;
        Ok(Turn { window: self, which, call })
    }
}

/// This rank has the lock under which elements of several words are changed.
pub(super) struct Turn<'a, T: Element> {
    window: &'a Window<T>,
    which: LockOf,
    call: Call<'static>,
}

impl<T: Element> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        // What is wrong with the queue, those in it are told.
        let _ = self.window.raw.unlock(&self.call, self.which);
    }
}

/// Combines an element with `x`; gives what was there, if it is a value.
///
/// # Safety
/// `at` is an element in a part, as `words::load` needs it; one of several words nobody else changes
/// meanwhile but by writing it.
#[inline(always)]
pub(super) unsafe fn change<T, O>(at: *mut u8, x: T, op: &O) -> Option<T>
where
    T: Element,
    O: Operation<T>,
{
    if !is_word::<T>() {
        // SAFETY: this function's contract.
        let before = value(unsafe { words::load::<T>(at) })?;
        // SAFETY: as above.
        unsafe { words::store(at, combine(op, before, x)) };
        return Some(before);
    }
    // SAFETY: the element is one word of this size.
    as_word!(T, W => unsafe { change_word::<T, W, O>(at, x, op) })
}

/// # Safety
/// As [`change`], of an element of one word `W`.
#[inline(always)]
unsafe fn change_word<T: Element, W: Word, O: Operation<T>>(
    at: *mut u8,
    x: T,
    op: &O,
) -> Option<T> {
    let given = word_of::<T, W>(x);
    // SAFETY: this function's contract; a native operation gives the bits of a value where `op` does.
    let before = unsafe {
        match Native::of::<T, O>(op) {
            Some(how) => words::change(at, how, given),
            None => {
                let mut now = W::load(at, Acquire);
                loop {
                    let before = value(bytes_of::<T, W>(now))?;
                    let after = word_of::<T, W>(combine(op, before, x));
                    match W::compare_and_swap(at, now, after) {
                        Ok(_) => return Some(before),
                        Err(other) => now = other,
                    }
                }
            }
        }
    };
    value(bytes_of::<T, W>(before))
}

/// Writes `new` to an element if `old` is there; gives what was there.
///
/// # Safety
/// As [`change`].
#[inline(always)]
unsafe fn swap_if<T: Element>(at: *mut u8, old: T, new: T) -> MaybeUninit<T> {
    if is_word::<T>() {
        return as_word!(T, W => {
            let (old, new) = (word_of::<T, W>(old), word_of::<T, W>(new));
            // SAFETY: this function's contract; the element is one word of this size.
            let (Ok(before) | Err(before)) = unsafe { W::compare_and_swap(at, old, new) };
            bytes_of::<T, W>(before)
        });
    }
    // SAFETY: this function's contract.
    let before = unsafe { words::load::<T>(at) };
    // SAFETY: all bytes of both are initialised.
    let same = unsafe {
        let bytes =
            |value: *const T| std::slice::from_raw_parts(value.cast::<u8>(), size_of::<T>());
        bytes(before.as_ptr()) == bytes(&raw const old)
    };
    if same {
        // SAFETY: this function's contract.
        unsafe { words::store(at, new) };
    }
    before
}

/// `op` of two elements; code of the program's own must not call the library.
#[inline(always)]
pub(super) fn combine<T: Element, O: Operation<T>>(op: &O, before: T, x: T) -> T {
    if O::TRUST.is_trusted() {
        return op.combine(before, x);
    }
    in_operation(|| op.combine(before, x))
}

/// What was read, if it is a value.
#[inline(always)]
pub(super) fn value<T: Element>(read: MaybeUninit<T>) -> Option<T> {
    // SAFETY: all bytes are initialised, as they were read, and nobody else has them.
    let valid = T::DTYPE.valid.is_none() || unsafe { T::DTYPE.all_valid(read.as_ptr().cast(), 1) };
    // SAFETY: all bytes are initialised, and are a value.
    valid.then(|| unsafe { read.assume_init() })
}

/// The bytes of an element as a word of the same size.
#[inline(always)]
fn word_of<T: Element, W: Word>(value: T) -> W {
    assert!(size_of::<T>() == size_of::<W>());
    // SAFETY: they have the same size; all bytes of an element are initialised, and any are a word.
    unsafe { (&raw const value).cast::<W>().read_unaligned() }
}

/// The other way round; they may be no value.
#[inline(always)]
fn bytes_of<T: Element, W: Word>(word: W) -> MaybeUninit<T> {
    assert!(size_of::<T>() == size_of::<W>());
    // SAFETY: they have the same size, and any bytes may be there.
    unsafe { (&raw const word).cast::<MaybeUninit<T>>().read_unaligned() }
}
