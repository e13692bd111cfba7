//! New communicators from old ones (MPI 5.0 section 7.4).

mod color;
mod groups;

use std::panic::Location;

use spmd_core::internal::{
    Call, Common, ContextOffer, ErasedOp, Form, Kind, Part, Round, copy_bytes,
};
use spmd_core::{Comm, Element, Error, Op, Result};

use crate::cluster::announcing::{AllAnnouncements, WORDS, announce};
use crate::cluster::moving;
use crate::large::take;
use crate::reducing::Reduction;
use crate::reducing::tree::tell_down_tree;
use crate::sealed::Sealed;
pub use color::Color;
use groups::Groups;

/// Making communicators (MPI 5.0 section 7.4).
///
/// ```
/// use spmd::prelude::*;
///
/// let sizes = spmd(3, |ctx| {
///     let half = ctx.split(ctx.rank() % 2, 0)?.expect("every rank gives a color");
///     Ok(half.size())
/// })?;
/// assert_eq!(sizes, [2, 1, 2]);
/// # Ok::<(), Error>(())
/// ```
pub trait Split: Sealed {
    /// Makes one communicator of all ranks that give the same `color`. Its ranks are ordered by
    /// `key`, an `i32` or whatever becomes one, and by their rank here where keys are equal. A rank that
    /// gives no color, `None`, gets none. All ranks call it.
    ///
    /// The new communicator matches its calls and messages apart from this one's, and frees
    /// itself when dropped.
    ///
    /// Cost: two meetings, and n reads a process. If a plane has joined the devices of all ranks, as
    /// `spmd_gpu::Nccl` does in the first call on device buffers, it joins those of the new ones here: then
    /// each rank waits for its device before.
    ///
    /// Errors: too many communicators are in use; the color is negative or above `u32::MAX`, or the key
    /// no `i32`; a rank has failed, left, or makes another call; a plane fails to join devices, which
    /// leaves this communicator's apart as well.
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let sums = spmd(4, |ctx| {
    ///     let row = ctx.split(ctx.rank() / 2, 0)?.expect("every rank gives a color");
    ///     row.allreduce_value(ctx.rank(), Sum)
    /// })?;
    /// assert_eq!(sums, [1, 1, 5, 5]);
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn split(&self, color: impl Color, key: impl TryInto<i32>) -> Result<Option<Comm>>;

    /// Makes one communicator of the ranks on each host, in the order that they have here. All
    /// ranks call it.
    ///
    /// Errors: as [`Split::split`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// let sizes = spmd(3, |ctx| Ok(ctx.split_host()?.size()))?;
    /// assert_eq!(sizes, [3, 3, 3]);
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn split_host(&self) -> Result<Comm>;

    /// Makes a communicator of the same ranks: for a library that wants messages of its own, or
    /// a thread that communicates while this one is in use. All ranks call it.
    ///
    /// A virtual rank must not join such a thread while that may still wait for another rank:
    /// `join` holds the worker, on which that rank may have to run. The thread's call is an error
    /// then, after two seconds. Keep in the library until it has finished, as here.
    ///
    /// Errors: as [`Split::split`].
    ///
    /// ```
    /// use spmd::prelude::*;
    ///
    /// Spmd::new(2).virtual_ranks().run(|ctx| {
    ///     let comm = ctx.dup()?;
    ///     let other = std::thread::spawn(move || comm.allreduce_value(1, Sum));
    ///     while !other.is_finished() {
    ///         ctx.iprobe(ANY, ANY)?; // lets other ranks run
    ///     }
    ///     assert_eq!(other.join().unwrap()?, 2);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Error>(())
    /// ```
    #[track_caller]
    fn dup(&self) -> Result<Comm>;
}

impl Split for Comm {
    fn split(&self, color: impl Color, key: impl TryInto<i32>) -> Result<Option<Comm>> {
        let call = Call::new(Kind::Split, Location::caller());
        let wrong = |why: String| Error::argument(format!("{call}: {why}"));
        let color = color.color().map_err(wrong)?;
        let key = key.try_into().map_err(|_| wrong("the key is no `i32`".into()))?;
        split(self, &call, said(color, key, 0), true)
    }

    fn split_host(&self) -> Result<Comm> {
        let call = Call::new(Kind::Split, Location::caller()).form(Form::SplitHost);
        let own = split(self, &call, said(Some(self.internals().host_color()), 0, 0), true)?;
        Ok(own.expect("a rank with a color is in a communicator"))
    }

    fn dup(&self) -> Result<Comm> {
        dup(self, &Call::new(Kind::Dup, Location::caller()))
    }
}

/// [`Split::split`] for messages alone: planes have no part in it.
#[track_caller]
pub fn split_for_messages(comm: &Comm, color: Option<u32>, key: i32) -> Result<Option<Comm>> {
    split(comm, &Call::new(Kind::Split, Location::caller()), said(color, key, 0), false)
}

/// [`Split::dup`] as a part of any call. Planes have no part in it: most communicators that it makes are
/// for messages, windows and started calls.
pub(crate) fn dup(comm: &Comm, call: &Call<'_>) -> Result<Comm> {
    let _held = comm.internals().hold(call)?;
    loop {
        let child = if comm.internals().spans_processes() {
            make_on_cluster(comm, call, said(Some(0), 0, 0), false)?
        } else {
            let (agreed, part) = comm.internals().collective(call, |round| {
                let agreed = agree(comm, round)?;
                Ok((agreed, round.common(|| comm.internals().part_of_all())))
            })?;
            make(&agreed, comm, call, (Some((&part, comm.rank())), &[]), false)?
        };
        if let Some(Some(child)) = child {
            return Ok(child);
        }
    }
}

/// What a rank says in a split: its color plus one, or 0, its key, and a digest of what it makes, which
/// all ranks give alike.
pub(crate) fn said(color: Option<u32>, key: i32, digest: u64) -> [u64; WORDS] {
    [color.map_or(0, |color| u64::from(color) + 1), key as u32 as u64, digest]
}

/// [`Split::split`] as a part of any call, and whether planes split what they keep as well.
pub(crate) fn split(
    comm: &Comm,
    call: &Call<'_>,
    said: [u64; WORDS],
    planes: bool,
) -> Result<Option<Comm>> {
    let _held = comm.internals().hold(call)?;
    loop {
        let child = if comm.internals().spans_processes() {
            make_on_cluster(comm, call, said, planes)?
        } else {
            let groups = |round: &Round<'_>| groups(comm, round, said);
            let (agreed, groups) = comm.internals().collective(call, groups)?;
            make(&agreed, comm, call, (groups.part(comm), &[]), planes)?
        };
        if let Some(child) = child {
            return Ok(child);
        }
    }
}

/// What all ranks can offer, and which of them give the same color.
fn groups(
    comm: &Comm,
    round: &Round<'_>,
    own @ [.., digest]: [u64; WORDS],
) -> Result<(ContextOffer, Common<Groups>)> {
    for (word, which) in own.into_iter().zip([COLOR, KEY, DIGEST]) {
        round.set_number(which, word);
    }
    let agreed = agree(comm, round)?;
    // Whoever passes waits for the others in the next round.
    if round.number_of(0, DIGEST) != digest {
        return Err(round.disagree(&format!("different {}", grids(round.rank(), 0))));
    }
    let said = |rank| [COLOR, KEY].map(|which| round.number_of(rank, which));
    Ok((agreed, round.common(|| Groups::new(comm, (0..round.size()).map(said)))))
}

fn grids(one: usize, other: usize) -> String {
    format!("grids: rank {one} of the communicator makes another one than rank {other}")
}

/// [`groups`] and [`make`] where ranks live in several processes: everybody tells all.
fn make_on_cluster(
    comm: &Comm,
    call: &Call<'_>,
    own @ [.., digest]: [u64; WORDS],
    planes: bool,
) -> Result<Option<Option<Comm>>> {
    let made = announce(comm, call, own, |AllAnnouncements { offer, said }| {
        let first = said[0][2];
        let other = said.iter().position(|[.., digest]| *digest != first);
        let groups = Groups::new(comm, said.iter().map(|[color, key, _]| [*color, *key]));
        (offer, groups, first, other)
    })?;
    let (offer, groups, first, other) = &*made;
    if let Some(other) = other {
        let other = if digest == *first { *other } else { 0 };
        let grids = grids(other, comm.rank());
        return Err(Error::argument(format!("{call}: the ranks make different {grids}")));
    }
    make(offer, comm, call, (groups.part(comm), groups.ranks(comm)), planes)
}

/// The number under which a rank says its color plus one, or 0.
const COLOR: usize = 1;
/// The number under which a rank says its key.
const KEY: usize = 2;
/// The number under which a rank says what it makes.
const DIGEST: usize = 3;

/// Makes the communicator of a part in which this rank has a number; every rank of `comm` is in
/// this call. `ranks` are those of the part, where `comm` spans processes. If `planes`, these split what
/// they keep with `comm`, where all ranks have it. No answer: another thread has taken some rank's
/// area meanwhile; try again.
fn make(
    offer: &ContextOffer,
    comm: &Comm,
    call: &Call<'_>,
    (part, ranks): (Option<(&Part, usize)>, &[usize]),
    planes: bool,
) -> Result<Option<Option<Comm>>> {
    let area = offer.area(comm, call)?;
    let processes = comm.internals().processes_of(call, ranks)?;
    let child = part.and_then(|part| {
        // SAFETY: all members have the same list, area and context from the agreement, in which
        // all ranks took part. What one of them has got is dropped unless all have.
        unsafe { comm.internals().child(call, part, (area, offer.context()), processes) }
    });
    if part.is_none() {
        comm.internals().skip_contexts(offer.context());
    }
    // Nobody looks at a page of the area before its owner has cleared it.
    let ok = u64::from(child.is_some() || part.is_none());
    let splitting = if planes { comm.internals().splitting_planes() } else { 0 };
    let mine = ok | splitting << 1;
    let all = match comm.internals().spans_processes() {
        true => moving::agree(comm, call, mine)?,
        false => {
            let all = |round: &Round<'_>| fold_words(round, [mine], |[a], [b]| [a & b]);
            comm.internals().collective(call, all)?[0]
        }
    };
    if all & 1 == 0 {
        return Ok(None);
    }
    comm.internals().split_planes(call, (all & mine) >> 1, child.as_ref())?;
    Ok(Some(child))
}

/// Finds what all ranks can offer.
fn agree(comm: &Comm, round: &Round<'_>) -> Result<ContextOffer> {
    let own = comm.internals().offer();
    let common =
        ContextOffer(fold_words(round, own.0, |a, b| ContextOffer(a).and(ContextOffer(b)).0)?);
    if !common.can_include(&own) {
        return Err(round.lied(round.size() - 1));
    }
    Ok(common)
}

/// Folds the words of all ranks, up a tree and down it.
fn fold_words<const N: usize>(
    round: &Round<'_>,
    mut words: [u64; N],
    op: impl Fn([u64; N], [u64; N]) -> [u64; N] + Sync,
) -> Result<[u64; N]> {
    let op = Op::new(op);
    let op = &ErasedOp::new::<[u64; N], _>(&op);
    let reduction = Reduction { dtype: &<[u64; N]>::DTYPE, op, count: 1 };
    let (bytes, last) = (reduction.bytes(), round.size() - 1);
    // SAFETY: the payload has that many bytes, and so have the words, which any bytes are values
    // of; the fold is over when everybody has been told, and the last rank's payload is written no
    // more.
    unsafe {
        copy_bytes(words.as_ptr().cast(), round.payload(bytes), bytes);
        reduction.fold_up_tree(round)?;
        tell_down_tree(round)?;
        let (from, into) = (round.payload_of(last, bytes), words.as_mut_ptr().cast());
        take(round, reduction.dtype, last, from, into, 1)?;
    }
    Ok(words)
}

#[cfg(test)]
mod tests;
