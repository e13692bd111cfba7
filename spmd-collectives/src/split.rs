//! New communicators from old ones (MPI 5.0 section 7.4).

mod color;

use std::ops::Range;
use std::panic::Location;

use spmd_core::internal::{
    Call, Common, ContextOffer, ErasedOp, Form, Kind, Part, Round, copy_bytes,
};
use spmd_core::{Comm, Element, Error, Op, Result};

use crate::cluster::announcing::{AllAnnouncements, announce};
use crate::cluster::moving;
use crate::large::take;
use crate::reducing::Reduction;
use crate::reducing::tree::tell_down_tree;
use crate::sealed::Sealed;
pub use color::Color;

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
    /// gives no color, `None::<u32>`, gets none. All ranks call it.
    ///
    /// The new communicator matches its calls and messages apart from this one's, and frees
    /// itself when dropped.
    ///
    /// Cost: two meetings, and n reads a process.
    ///
    /// Errors: too many communicators are in use; the color is negative or above `u32::MAX`, or the key
    /// no `i32`; a rank has failed, left, or makes another call.
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
        split(self, &call, color, key, 0)
    }

    fn split_host(&self) -> Result<Comm> {
        let call = Call::new(Kind::Split, Location::caller()).form(Form::SplitHost);
        let own = split(self, &call, Some(self.internals().host_color()), 0, 0)?;
        Ok(own.expect("a rank with a color is in a communicator"))
    }

    fn dup(&self) -> Result<Comm> {
        dup(self, &Call::new(Kind::Dup, Location::caller()))
    }
}

/// [`Split::dup`] as a part of any call.
pub(crate) fn dup(comm: &Comm, call: &Call<'_>) -> Result<Comm> {
    let _held = comm.internals().hold(call)?;
    loop {
        let child = if comm.internals().spans_processes() {
            make_on_cluster(comm, call, Some(0), 0, 0)?
        } else {
            let (agreed, part) = comm.internals().collective(call, |round| {
                let agreed = agree(comm, round)?;
                Ok((agreed, round.common(|| comm.internals().part_of_all())))
            })?;
            make(&agreed, comm, call, Some((&part, comm.rank())), &[])?
        };
        if let Some(Some(child)) = child {
            return Ok(child);
        }
    }
}

/// [`Split::split`] as a part of any call, of which all ranks give the same digest of what they
/// make.
pub(crate) fn split(
    comm: &Comm,
    call: &Call<'_>,
    color: Option<u32>,
    key: i32,
    digest: u64,
) -> Result<Option<Comm>> {
    let _held = comm.internals().hold(call)?;
    loop {
        let child = if comm.internals().spans_processes() {
            make_on_cluster(comm, call, color, key, digest)?
        } else {
            let groups = |round: &Round<'_>| groups(comm, round, color, key, digest);
            let (agreed, groups) = comm.internals().collective(call, groups)?;
            make(&agreed, comm, call, groups.part(comm), &[])?
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
    color: Option<u32>,
    key: i32,
    digest: u64,
) -> Result<(ContextOffer, Common<Groups>)> {
    round.set_number(COLOR, color.map_or(0, |color| u64::from(color) + 1));
    round.set_number(KEY, key as u32 as u64);
    round.set_number(DIGEST, digest);
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

/// The groups into which a communicator is split.
struct Groups {
    /// All ranks that are in one, group by group, each in its new order.
    ranks: Vec<usize>,
    /// Of each group its part of `ranks`, and the same for what is made of it.
    groups: Vec<(Range<usize>, Part)>,
    /// Of each rank its group, and its number there.
    places: Vec<Option<(usize, usize)>>,
}

impl Groups {
    /// What each rank says is its color plus one, or 0, and its key.
    fn new(comm: &Comm, said: impl Iterator<Item = [u64; 2]>) -> Groups {
        let with_rank = |(rank, [color, key]): (usize, [u64; 2])| (color, key as u32 as i32, rank);
        let mut order: Vec<_> = said.enumerate().map(with_rank).collect();
        order.retain(|(color, ..)| *color != 0);
        order.sort_unstable();
        let ranks: Vec<usize> = order.iter().map(|(.., rank)| *rank).collect();
        let (mut groups, mut places) = (Vec::new(), vec![None; comm.size()]);
        let mut start = 0;
        for same in order.chunk_by(|(one, ..), (next, ..)| one == next) {
            let range = start..start + same.len();
            for (number, rank) in ranks[range.clone()].iter().enumerate() {
                places[*rank] = Some((groups.len(), number));
            }
            start = range.end;
            groups.push((range.clone(), comm.internals().part_of(&ranks[range])));
        }
        Groups { ranks, groups, places }
    }

    /// The group of this rank, and its number there, if it gave a color.
    fn part(&self, comm: &Comm) -> Option<(&Part, usize)> {
        self.places[comm.rank()].map(|(group, number)| (&self.groups[group].1, number))
    }

    /// The ranks of that group.
    fn ranks(&self, comm: &Comm) -> &[usize] {
        let group = self.places[comm.rank()];
        group.map_or(&[], |(group, _)| &self.ranks[self.groups[group].0.clone()])
    }
}

/// [`groups`] and [`make`] where ranks live in several processes: everybody tells all.
fn make_on_cluster(
    comm: &Comm,
    call: &Call<'_>,
    color: Option<u32>,
    key: i32,
    digest: u64,
) -> Result<Option<Option<Comm>>> {
    let words = [color.map_or(0, |color| u64::from(color) + 1), key as u32 as u64, digest];
    let made = announce(comm, call, words, |AllAnnouncements { offer, said }| {
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
    make(offer, comm, call, groups.part(comm), groups.ranks(comm))
}

/// The number under which a rank says its color plus one, or 0.
const COLOR: usize = 1;
/// The number under which a rank says its key.
const KEY: usize = 2;
/// The number under which a rank says what it makes.
const DIGEST: usize = 3;

/// Makes the communicator of a part in which this rank has a number; every rank of `comm` is in
/// this call. `ranks` are those of the part, where `comm` spans processes. No answer: another
/// thread has taken some rank's area meanwhile; try again.
fn make(
    offer: &ContextOffer,
    comm: &Comm,
    call: &Call<'_>,
    part: Option<(&Part, usize)>,
    ranks: &[usize],
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
    let all = match comm.internals().spans_processes() {
        true => moving::agree(comm, call, ok == 1)?,
        false => {
            let all = |round: &Round<'_>| fold_words(round, [ok], |[a], [b]| [a & b]);
            comm.internals().collective(call, all)? == [1]
        }
    };
    Ok(all.then_some(child))
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
