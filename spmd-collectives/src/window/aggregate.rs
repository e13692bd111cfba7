//! Many small accesses at random places, several of which are on the way at a time.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::panic::Location;
use std::ptr::NonNull;

use spmd_core::internal::words;
use spmd_core::internal::{Answer, Call, Kind};
use spmd_core::{Buffer, Element, Operation, Result};

use super::access::{Access, is_word};
use super::at::At;
use super::atomic::{change, value};
use super::windows::Window;

/// How many accesses are gathered.
const GATHERED: usize = 64;

/// Gathers accesses of single elements for [`Window::aggregate`].
pub struct Aggregate<'a, T: Element> {
    window: &'a Window<T>,
    gathered: Vec<Gathered<'a, T>>,
    /// Where elements that are read go.
    _into: PhantomData<&'a mut T>,
}

impl<T: Element> std::fmt::Debug for Aggregate<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut fields = f.debug_struct("Aggregate");
        fields.field("gathered", &self.gathered.len()).finish_non_exhaustive()
    }
}

/// An access that is to be carried out.
struct Gathered<'a, T> {
    at: *mut u8,
    target: usize,
    what: What<'a, T>,
}

enum What<'a, T> {
    Put(T),
    Get(*mut T),
    /// Of a part in another process.
    Asked(*mut T, Answer<'a>, Access),
    /// `None` if what is there is no value.
    Change(T, unsafe fn(*mut u8, T) -> Option<T>),
}

impl<T: Element> Window<T> {
    /// Many accesses of single elements, at random places, as in a histogram or a gather by indexes:
    /// `f` makes them with the methods of [`Aggregate`]. The processor is told of each place at once,
    /// and up to 64 accesses wait until their places have come from the other cores, or memory, all
    /// together. This rank alone calls it, in an epoch; all accesses are carried out when it returns,
    /// whether `f` gives an error or not, unless it panics.
    ///
    /// Errors: those of `f` and of the accesses; calls of the window that begin or end epochs, within
    /// `f`.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let table = ctx.window::<u64>(100)?;
    ///     table.lock_all()?;
    ///     table.aggregate(|updates| {
    ///         (0..300).try_for_each(|i: usize| updates.accumulate(1, i % 3, i * 7 % 100, Sum))
    ///     })?;
    ///     ctx.barrier()?;
    ///     let mut counts = vec![0; 100];
    ///     table.aggregate(|reads| {
    ///         let all = counts.iter_mut().enumerate();
    ///         all.rev().try_for_each(|(i, count)| reads.get(count, 1, i))
    ///     })?;
    ///     assert_eq!(counts.iter().sum::<u64>(), 300);
    ///     table.unlock_all()
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn aggregate<'a, R>(
        &'a self,
        f: impl FnOnce(&mut Aggregate<'a, T>) -> Result<R>,
    ) -> Result<R> {
        let call = Call::new(Kind::Aggregate, Location::caller());
        let _gathering = self.epochs.gather(&call)?;
        let gathered = Vec::with_capacity(GATHERED);
        let mut aggregate = Aggregate { window: self, gathered, _into: PhantomData };
        let result = f(&mut aggregate);
        aggregate.carry_out()?;
        result
    }
}

impl<'a, T: Element> Aggregate<'a, T> {
    /// [`Window::put`] of one element.
    ///
    /// Errors: as [`Window::put`]; what was gathered before cannot be carried out.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(2, |ctx| {
    ///     let window = ctx.window::<u64>(10)?;
    ///     window.fence()?;
    ///     window.aggregate(|a| (0..10).try_for_each(|i| a.put(i as u64, 1 - ctx.rank(), i)))?;
    ///     window.fence()?;
    ///     assert_eq!(window.read(8..)?, [8, 9]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    #[inline]
    pub fn put(&mut self, x: T, target: usize, offset: usize) -> Result<()> {
        self.gather(Kind::Put, target, offset, What::Put(x), Location::caller())
    }

    /// [`Window::get`] of one element; `into` holds it when [`Window::aggregate`] has returned.
    ///
    /// Errors: as [`Window::get`]; what was gathered before cannot be carried out.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(2, |ctx| {
    ///     let window = ctx.window::<u64>(3)?;
    ///     window.write(0, &[5, 6, 7])?;
    ///     window.fence()?;
    ///     let (mut first, mut last) = (0, 0);
    ///     window.aggregate(|a| {
    ///         a.get(&mut last, 1, 2)?;
    ///         a.get(&mut first, 1, 0)
    ///     })?;
    ///     assert_eq!((first, last), (5, 7));
    ///     window.fence()
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    #[inline]
    pub fn get(&mut self, into: &'a mut T, target: usize, offset: usize) -> Result<()> {
        self.gather(Kind::Get, target, offset, What::Get(into), Location::caller())
    }

    /// [`Window::accumulate`] of one element. `op` has no state, as [`Sum`](struct@spmd_core::Sum) and the
    /// library's other operations. Elements of other sizes than 1, 2, 4 and 8 bytes are changed at
    /// once.
    ///
    /// Errors: as [`Window::accumulate`]; what was gathered before cannot be carried out.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(2, |ctx| {
    ///     let window = ctx.window::<i64>(2)?;
    ///     window.fence()?;
    ///     window.aggregate(|a| {
    ///         a.accumulate(1, 0, 0, Sum)?;
    ///         a.accumulate(ctx.rank() as i64, 0, 1, Max)
    ///     })?;
    ///     window.fence()?;
    ///     if ctx.rank() == 0 {
    ///         assert_eq!(window.read(..)?, [2, 1]);
    ///     }
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    #[inline]
    pub fn accumulate<O>(&mut self, x: T, target: usize, offset: usize, op: O) -> Result<()>
    where
        O: Operation<T> + Copy,
    {
        const { assert!(size_of::<O>() == 0, "an operation with state cannot be gathered") };
        if !is_word::<T>() || self.window.raw.part(target).is_none() {
            return self.window.accumulate(&[x], target, offset, op);
        }
        /// # Safety
        /// As [`change`]; there is a value of `O`.
        unsafe fn by<T: Element, O: Operation<T> + Copy>(at: *mut u8, x: T) -> Option<T> {
            // SAFETY: `O` is `Copy` and has no bytes: any pointer that is not null and aligned leads
            // to a copy of the value that there is.
            let op = unsafe { NonNull::<O>::dangling().as_ref() };
            // SAFETY: this function's contract.
            unsafe { change(at, x, op) }
        }
        let what = What::Change(x, by::<T, O>);
        self.gather(Kind::Accumulate, target, offset, what, Location::caller())
    }

    #[inline(always)]
    fn gather(
        &mut self,
        kind: Kind,
        target: usize,
        offset: usize,
        what: What<'a, T>,
        site: &'static Location<'static>,
    ) -> Result<()> {
        let access = Access { kind, target, count: 1, site };
        let reached = self.window.reach(&access, At::from(offset))?;
        let (at, what) = match (reached.is_elsewhere(), what) {
            (true, What::Put(x)) => {
                return self.window.put_as(kind, [x].erased(), target, offset.into(), site);
            }
            (true, What::Get(into)) => {
                let answer = self.window.raw.ask_elsewhere(&access.call::<T>(), target, offset)?;
                (into.cast(), What::Asked(into, answer, access))
            }
            (_, what) => (reached.element::<T>(offset), what),
        };
        match &what {
            What::Get(_) | What::Asked(..) => words::prefetch(at),
            _ => words::prefetch_to_change(at),
        }
        self.gathered.push(Gathered { at, target, what });
        if self.gathered.len() == GATHERED { self.carry_out() } else { Ok(()) }
    }

    fn carry_out(&mut self) -> Result<()> {
        for Gathered { at, target, what } in self.gathered.drain(..) {
            let what = match what {
                What::Asked(into, answer, access) => {
                    let bytes = self.window.raw.answered(&access.call::<T>(), answer)?;
                    // SAFETY: the element is borrowed for `'a`, which has not ended.
                    unsafe { into.write(self.window.value_of(&bytes, target)?) };
                    continue;
                }
                what => what,
            };
            // SAFETY: each place is an element of a part that was open when it was gathered, and
            // stays mapped as long as the window, which `'a` borrows. What is read goes to an element
            // that is borrowed for `'a`, which has not ended, once it is seen to be a value. Changes
            // are of one word, and were made from a value of their operation.
            let valid = unsafe {
                match what {
                    What::Put(x) => {
                        words::store(at, x);
                        true
                    }
                    What::Get(into) => {
                        let read: MaybeUninit<T> = words::load(at);
                        value(read).map(|value| into.write(value)).is_some()
                    }
                    What::Change(x, by) => by(at, x).is_some(),
                    What::Asked(..) => true,
                }
            };
            if !valid {
                return Err(self.window.no_value(target));
            }
        }
        Ok(())
    }
}
