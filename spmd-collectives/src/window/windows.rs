//! Windows, and how they are made.

use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;

use spmd_core::internal::{Call, Kind, RawWindow};
use spmd_core::{Comm, DType, Element, Error, Result};

use super::epochs::Epochs;
use crate::cluster::announcing::{AllAnnouncements, announce};
use crate::sealed::Sealed;
use crate::split;

/// Making windows (MPI 5.0 section 12.2).
///
/// ```
/// use spmd::prelude::*;
///
/// let counts = spmd(3, |ctx| {
///     let window = ctx.window::<u64>(1)?;
///     window.fence()?;
///     window.accumulate(&[ctx.rank() as u64], 0, 0, Sum)?;
///     window.fence()?;
///     Ok(window.read(..)?[0])
/// })?;
/// assert_eq!(counts, [3, 0, 0]);
/// # Ok::<(), Error>(())
/// ```
pub trait Windows: Sealed {
    /// Gives each rank a part of `n` elements, all bytes zero at first, that all ranks may access.
    /// All ranks call it; `n` may differ, and be 0.
    ///
    /// Cost: as [`dup`](crate::Split::dup), two meetings more, and n reads a process. A window takes
    /// one of the areas that communicators have.
    ///
    /// Errors: the ranks give different types; zero is no value of `T`; `T` is aligned to more than
    /// 128 bytes; there is no memory for a part (an error on all ranks), or too many communicators
    /// and windows are in use; a rank has failed, left, or makes another call.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// spmd(3, |ctx| {
    ///     let window = ctx.window::<f64>(10 * ctx.rank())?;
    ///     assert_eq!((window.len(), window.len_of(2)?), (10 * ctx.rank(), 20));
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn window<T: Element>(&self, n: usize) -> Result<Window<T>>;
}

impl Windows for Comm {
    fn window<T: Element>(&self, n: usize) -> Result<Window<T>> {
        Window::new(self, n, Location::caller())
    }
}

/// Memory of all ranks of a communicator that each of them may read and change, without the others
/// doing anything for it (MPI 5.0 chapter 12).
///
/// # Epochs
/// A rank accesses the parts of others between two [`fence`](Window::fence)s, or while it has them
/// locked ([`lock`](Window::lock), [`lock_shared`](Window::lock_shared),
/// [`lock_all`](Window::lock_all)). An access at any other time is [`Error::Epoch`]. Its own part a
/// rank may also [`read`](Window::read) and [`write`](Window::write) at any time.
///
/// What a rank has done to a part, others see after the call that ends the epoch or
/// [`flush`](Window::flush)es it and a call of theirs that follows: the same fence, their lock of the
/// part, a message or a [notification](Window::put_notify).
///
/// # What is atomic
/// Each access of an element of 1, 2, 4 or 8 bytes is: whoever reads one that others write gets a
/// value that somebody has written. An element of another size is accessed by words of the greatest
/// of these sizes that divides its own, so that one that is read while it is written may be of both
/// values, word by word. [`accumulate`](Window::accumulate) and the calls like it are atomic on
/// elements of any size with regard to each other, not to [`put`](Window::put). In what order those
/// of several ranks take effect is not defined: sums of floating-point numbers may differ in their
/// last bits from run to run.
///
/// # Its end
/// A window is dropped by each rank for itself, whenever it likes. The memory of a part goes when all
/// ranks have dropped the window or failed. One that is forgotten ([`std::mem::forget`]) keeps the
/// memory of all parts. A window that is dropped, or forgotten, while its rank has a part locked keeps
/// the lock, as what it protects may be half done: those who wait for it get an error when the rank
/// has left its block, with what it has failed of, or waits for them.
///
/// A window belongs to the rank that has made it, and stays on its thread. It cannot be sent:
///
/// ```compile_fail,E0277
/// fn send_away(window: spmd::Window<f64>) {
///     std::thread::spawn(move || window.len());
/// }
/// ```
///
/// # Over several processes
/// The ranks of a host access each other's parts directly, whether `spmdrun` or MPI joins their
/// processes; over MPI, locks are asked for. To parts of other hosts, and to those that the system does
/// not let a process map, go requests. What is asked for, a process does while any of its ranks is in a
/// call of this library, whatever it waits for, or polls: one whose ranks compute holds up whoever
/// asks it, and a loop in which one looks at a part of the same host must call
/// [`flush`](Window::flush). [`put`](Window::put) and [`accumulate`](Window::accumulate) that are
/// requests return when what they write is on its way, of which a rank has at most 1 MiB to each
/// process; beyond that they wait.
///
/// # Limits
/// Locks are fair, so a rank that has one part locked, shared or not, and locks another, is told of a
/// deadlock where others do so in another order. A loop that calls nothing but `get` never lets other
/// virtual ranks run: call `flush` in it.
pub struct Window<T: Element> {
    pub(super) raw: RawWindow,
    pub(super) epochs: Epochs,
    /// It is used by one rank, on its thread.
    _elements: PhantomData<*const T>,
}

impl<T: Element> fmt::Debug for Window<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("Window");
        fields.field("dtype", &T::DTYPE).field("len", &self.len()).finish_non_exhaustive()
    }
}

/// The alignment of the elements of a part.
const ALIGN: usize = 128;

/// Makes a window of ranks in several processes, once all know the lengths of its parts.
fn make_over_processes(comm: Comm, call: &Call<'_>, n: usize, dtype: &DType) -> Result<RawWindow> {
    let lens = |all: AllAnnouncements| all.said.iter().map(|said| said[0]).collect::<Vec<u64>>();
    let lens = announce(&comm, call, [n as u64, 0, 0], lens)?;
    let (raw, lacking) = RawWindow::over_processes(comm, call, &lens, dtype)?;
    let lacking = lacking.map_or(0, |rank| rank as u64 + 1);
    let [place, number] = raw.key();
    // By then all processes serve it.
    let said = announce(raw.comm(), call, [lacking, place, number], |all| all.said)?;
    let lacking = said.iter().map(|said| said[0]).max().unwrap_or(0);
    RawWindow::no_memory(call, (lacking as usize).checked_sub(1))?;
    raw.find(|rank| [said[rank][1], said[rank][2]]);
    Ok(raw)
}

impl<T: Element> Window<T> {
    fn new(comm: &Comm, n: usize, site: &'static Location<'static>) -> Result<Window<T>> {
        let call = Call::new(Kind::Window, site).data(&T::DTYPE, Call::UNEQUAL);
        if align_of::<T>() > ALIGN {
            let why = format!("it is aligned to more than {ALIGN} bytes");
            return Err(Error::argument(format!("{call}: {why}")));
        }
        if !T::DTYPE.zero_is_value() {
            return Err(Error::argument(format!("{call}: zero is no value of {}", T::DTYPE)));
        }
        let own = split::dup(comm, &call)?;
        let raw = match own.internals().spans_processes() {
            true => make_over_processes(own, &call, n, &T::DTYPE)?,
            false => RawWindow::new(own, &call, n, &T::DTYPE)?,
        };
        Ok(Window { raw, epochs: Epochs::new(), _elements: PhantomData })
    }

    /// How many elements this rank's part has.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// assert_eq!(spmd(2, |ctx| Ok(ctx.window::<u8>(7)?.len()))?, [7, 7]);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.raw.len_of(self.rank()).unwrap_or(0)
    }

    /// Whether this rank's part has no elements.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// assert_eq!(spmd(2, |ctx| Ok(ctx.window::<u8>(ctx.rank())?.is_empty()))?, [true, false]);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many elements the part of a rank has.
    ///
    /// Errors: there is no such rank.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// assert_eq!(spmd(2, |ctx| ctx.window::<u8>(ctx.rank())?.len_of(1))?, [1, 1]);
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    pub fn len_of(&self, rank: usize) -> Result<usize> {
        let site = Location::caller();
        self.raw.len_of(rank).ok_or_else(|| self.no_rank(&Call::new(Kind::Window, site), rank))
    }

    /// This rank, in the communicator that the window was made of.
    pub(super) fn rank(&self) -> usize {
        self.raw.comm().rank()
    }

    #[cold]
    fn no_rank(&self, call: &Call<'_>, rank: usize) -> Error {
        let check = self.raw.comm().internals().check_target(call, rank);
        check.err().unwrap_or_else(|| self.epochs.outside(call, rank))
    }
}
