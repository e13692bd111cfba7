//! New communicators from old ones (MPI 5.0 section 7.4).

use std::panic::Location;

use spmd_core::algorithm::{Call, ErasedOp, Kind, Round, Turn};
use spmd_core::{Comm, Element, Error, Op, Result};

use crate::large::take;
use crate::reducing::{Reduction, tell_down_tree};

/// Making communicators.
pub trait Split {
    /// Makes one communicator of all ranks that give the same `color`. Its ranks are ordered by
    /// `key`, and by their rank here where keys are equal. A rank that gives no color gets none.
    /// All ranks call it.
    ///
    /// The new communicator matches its calls and messages apart from this one's, and frees
    /// itself when dropped.
    ///
    /// Cost: two meetings, and n reads a rank.
    ///
    /// Errors: too many communicators are in use; a rank has failed, left, or makes another call.
    ///
    /// ```
    /// # use spmd_collectives::{Allreduce, Split};
    /// # use spmd_core::{spmd, Result, Sum};
    /// let sums = spmd(4, |ctx| {
    ///     let row = ctx.split(Some(ctx.rank() as u32 / 2), 0)?.expect("every rank gives a color");
    ///     row.allreduce_value(ctx.rank(), Sum)
    /// })?;
    /// assert_eq!(sums, [1, 1, 5, 5]);
    /// # Ok::<(), spmd_core::Error>(())
    /// ```
    #[track_caller]
    fn split(&self, color: Option<u32>, key: i32) -> Result<Option<Comm>>;

    /// Makes one communicator of the ranks on each host, in the order that they have here. All
    /// ranks call it.
    ///
    /// Errors: as [`Split::split`].
    ///
    /// ```
    /// # use spmd_collectives::Split;
    /// # use spmd_core::{spmd, Result};
    /// let sizes = spmd(3, |ctx| Ok(ctx.split_host()?.size()))?;
    /// assert_eq!(sizes, [3, 3, 3]);
    /// # Ok::<(), spmd_core::Error>(())
    /// ```
    #[track_caller]
    fn split_host(&self) -> Result<Comm>;

    /// Makes a communicator of the same ranks: for a library that wants messages of its own, or
    /// a task that communicates while this one is in use. All ranks call it.
    ///
    /// Errors: as [`Split::split`].
    ///
    /// ```
    /// # use spmd_collectives::{Allreduce, Split};
    /// # use spmd_core::{spmd, Result, Sum};
    /// spmd(2, |ctx| {
    ///     let other = ctx.dup()?;
    ///     std::thread::spawn(move || other.allreduce_value(1, Sum)).join().unwrap()?;
    ///     Ok(())
    /// })?;
    /// # Ok::<(), spmd_core::Error>(())
    /// ```
    #[track_caller]
    fn dup(&self) -> Result<Comm>;
}

impl Split for Comm {
    fn split(&self, color: Option<u32>, key: i32) -> Result<Option<Comm>> {
        split(self, &Call::new(Kind::Split, Location::caller()), color, key, 0)
    }

    fn split_host(&self) -> Result<Comm> {
        let call = Call::new(Kind::Split, Location::caller());
        let own = split(self, &call, Some(self.host_color()), 0, 0)?;
        Ok(own.expect("a rank with a color is in a communicator"))
    }

    fn dup(&self) -> Result<Comm> {
        let call = Call::new(Kind::Dup, Location::caller());
        let turn = self.turn();
        let agreed = in_turn(&turn, || self.collective(&call, |round| agree(&turn, round)))?;
        let members: Vec<usize> = (0..self.size()).collect();
        agreed.make(self, &call, &members, self.rank(), turn)
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
    let turn = comm.turn();
    let mut members = Vec::new();
    let mut meet = |round: &Round<'_>| {
        round.set_number(COLOR, color.map_or(0, |color| u64::from(color) + 1));
        round.set_number(KEY, key as u32 as u64);
        round.set_number(DIGEST, digest);
        let agreed = agree(&turn, round)?;
        // Whoever passes waits for the others in the next round.
        if round.number_of(0, DIGEST) != digest {
            return Err(round.disagree("different grids"));
        }
        members.clear();
        if let Some(color) = color {
            let same = |rank: &usize| round.number_of(*rank, COLOR) == u64::from(color) + 1;
            let with_key = |rank| (round.number_of(rank, KEY) as u32 as i32, rank);
            members.extend((0..round.size()).filter(same).map(with_key));
        }
        Ok(agreed)
    };
    let agreed = in_turn(&turn, || comm.collective(call, &mut meet))?;
    members.sort_unstable();
    let members: Vec<usize> = members.into_iter().map(|(_, rank)| rank).collect();
    match members.iter().position(|rank| *rank == comm.rank()) {
        Some(me) => agreed.make(comm, call, &members, me, turn).map(Some),
        None => {
            agreed.board(call)?;
            comm.skip_contexts(agreed.next());
            drop(turn);
            comm.collective(call, |round| round.arrive(1))?;
            Ok(None)
        }
    }
}

/// The number under which a rank says its color plus one, or 0.
const COLOR: usize = 1;
/// The number under which a rank says its key.
const KEY: usize = 2;
/// The number under which a rank says what it makes.
const DIGEST: usize = 3;

/// Boards that one rank can have.
const BOARDS: usize = 1024;
/// Communicators made by one call share a context but for these low bits, which hold the lowest
/// world rank in them: no two in the world are ever alike, whoever makes them.
const STEP: u64 = 1 << 20;

/// What a rank can offer, and after [`agree`], what all can: the words of the mask of free
/// boards, then the least context, then a number that is 0 if it is not this communicator's turn.
#[derive(Clone, Copy)]
struct Offer(Words);

type Words = [u64; BOARDS / 64 + 2];

impl Offer {
    fn of(turn: &Turn<'_>) -> Offer {
        let mut words = [0; BOARDS / 64 + 2];
        if let Some((free, next)) = turn.offer() {
            words[..free.len()].copy_from_slice(&free);
            words[BOARDS / 64..].copy_from_slice(&[next, 1]);
        }
        Offer(words)
    }

    fn is_in_turn(&self) -> bool {
        self.0[BOARDS / 64 + 1] != 0
    }

    fn context(&self) -> u64 {
        self.0[BOARDS / 64]
    }

    /// The least context for later communicators.
    fn next(&self) -> u64 {
        self.context() + STEP
    }

    /// The lowest board that is free on all ranks.
    fn board(&self, call: &Call<'_>) -> Result<usize> {
        let words = &self.0[..BOARDS / 64];
        let word = words.iter().position(|word| *word != 0).ok_or_else(|| Error::Unavailable {
            what: format!("a new communicator ({call})"),
            reason: "every board is in use by a communicator of at least one rank".into(),
            remedy: "drop communicators that are no longer needed, on all their ranks".into(),
        })?;
        Ok(word * 64 + words[word].trailing_zeros() as usize)
    }

    /// Makes the communicator of these ranks, of which this one is number `me`; every rank of
    /// `comm` is in this call.
    fn make(
        &self,
        comm: &Comm,
        call: &Call<'_>,
        members: &[usize],
        me: usize,
        turn: Turn<'_>,
    ) -> Result<Comm> {
        let board = self.board(call)?;
        let lowest = members.iter().map(|rank| comm.world_rank(*rank)).min().unwrap_or(0) as u64;
        let child = comm.child(members, me, board, self.context() + lowest, self.next());
        drop(turn);
        // Nobody looks at a page of the board before its owner has cleared it.
        comm.collective(call, |round| round.arrive(1))?;
        Ok(child)
    }
}

/// Tries until it is this communicator's turn on all its ranks.
fn in_turn(turn: &Turn<'_>, mut attempt: impl FnMut() -> Result<Offer>) -> Result<Offer> {
    loop {
        let agreed = attempt()?;
        if agreed.is_in_turn() {
            return Ok(agreed);
        }
        turn.pass();
    }
}

/// Finds what all ranks can offer: one fold up and down a tree.
fn agree(turn: &Turn<'_>, round: &Round<'_>) -> Result<Offer> {
    let common = Op::new(|a: Words, b: Words| {
        let mut both: Words = std::array::from_fn(|word| a[word] & b[word]);
        both[BOARDS / 64] = a[BOARDS / 64].max(b[BOARDS / 64]);
        both
    });
    let mut words = Offer::of(turn).0;
    let op = ErasedOp::new::<Words, _>(&common);
    let reduction = Reduction { dtype: Words::DTYPE, op, count: 1 };
    let (bytes, last) = (reduction.bytes(), round.size() - 1);
    // SAFETY: the room has that many bytes, and so have the words, which any bytes are values
    // of; the fold is over when everybody has been told, and the last rank's room is written no
    // more.
    unsafe {
        std::ptr::copy_nonoverlapping(words.as_ptr().cast(), round.room(bytes), bytes);
        reduction.fold_up_tree(round)?;
        tell_down_tree(round)?;
        let (from, into) = (round.room_of(last, bytes), words.as_mut_ptr().cast());
        take(round, reduction.dtype, last, from, into, 1)?;
    }
    Ok(Offer(words))
}
