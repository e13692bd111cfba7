//! A fair lock, for which ranks queue in memory that all of them may write.
//!
//! A [`Lock`] is held in a [`Mode`], by one rank, or by any number in a mode that can be shared. Who
//! cannot have it at once joins the queue: it writes who is last into its own [`Node`], then itself
//! into the lock's word as the last. So at any time the queue can be read from its end to its start.
//! Nobody overtakes another: who finds a queue joins it.
//!
//! Who leaves the lock as its last holder and finds a queue keeps the lock, in [`Mode::Exclusive`],
//! and hands it over: it notes in the nodes who comes next, as far as nobody has, takes the first, or
//! all first ones of one mode that can be shared, out of the queue, and tells them. All that is
//! between the word and the nodes is done by one rank at a time, which has the lock; nobody waits for
//! another to finish something, and each node is visited twice, once from either side.
//!
//! No wake-up is lost: who hands over says so in a node, then rings its rank's bell, at which that rank
//! waits for its node as `wait/README.md` has it for any condition.
//!
//! A rank has one node, as it waits for one lock at a time, and none while it holds a lock. Where
//! ranks live in several processes, it has one in each of them. Process
//! ranks may write anything into all this: numbers of ranks are checked, and no walk is longer than
//! the queue can be.

use crate::error::Result;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// By one rank.
    Exclusive = 1,
    /// By all that want it in this mode.
    Shared = 2,
    /// By all that want it in this mode, which is another one.
    SharedToo = 3,
}

impl Mode {
    fn is_shared(self) -> bool {
        self != Mode::Exclusive
    }

    fn of(number: u32) -> Option<Mode> {
        [Mode::Exclusive, Mode::Shared, Mode::SharedToo].into_iter().find(|it| *it as u32 == number)
    }
}

/// Which of the locks with which a part begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockKind {
    /// Of all parts together, on rank 0's.
    Window,
    /// Of the part.
    Part,
    /// Of those who change elements of several words.
    Update,
}

/// A lock. Zeros are one that nobody holds.
#[repr(C)]
pub(crate) struct Lock {
    word: AtomicU64,
    /// The first in the queue, as a number of a rank plus one; 0 if that must be looked for. Only
    /// who hands the lock over uses it.
    first: AtomicU32,
    /// A rank that holds the lock, plus one; 0 if that is not known.
    holder: AtomicU32,
}

/// A rank's place in a queue.
#[derive(Default)]
#[repr(C, align(64))]
pub(crate) struct Node {
    /// Who came before, plus one; 0 for nobody. Of the first of a queue, nothing.
    before: AtomicU32,
    /// Who comes next, plus one; 0 while nobody has noted it.
    next: AtomicU32,
    mode: AtomicU32,
    granted: AtomicU32,
}

/// The ranks that may queue.
pub(crate) trait Queue {
    /// The node of a rank.
    ///
    /// Errors: there is no such rank, as a number shows that somebody else has written.
    fn node(&self, rank: usize) -> Result<&Node>;

    /// How many ranks there are.
    fn ranks(&self) -> usize;

    /// Wakes a rank, after a change that it waits for.
    fn wake(&self, rank: usize);

    /// What a rank is told that finds what no rank would write.
    fn corrupt(&self) -> crate::error::Error;
}

/// What a lock's word says: the mode in the lowest 2 bits, how many hold it in the next 30, the last
/// in the queue, plus one, above them. There is a queue only while somebody holds the lock.
#[derive(Clone, Copy)]
struct State {
    mode: u32,
    holders: u32,
    last: u32,
}

impl State {
    fn of(word: u64) -> State {
        State { mode: word as u32 & 3, holders: word as u32 >> 2, last: (word >> 32) as u32 }
    }

    fn word(self) -> u64 {
        u64::from(self.last) << 32 | u64::from(self.holders << 2 | self.mode)
    }
}

impl Lock {
    /// Rank `me` takes the lock or, if that is impossible at once, joins the queue. Whether it has
    /// the lock; if not, it waits for [`Lock::is_granted`].
    pub(crate) fn enter(&self, me: usize, mode: Mode, queue: &impl Queue) -> Result<bool> {
        let (own, number) = (queue.node(me)?, me as u32 + 1);
        let mut word = self.word.load(Relaxed);
        loop {
            let state = State::of(word);
            let joins = state.mode == mode as u32 && mode.is_shared();
            let free = state.last == 0 && (state.holders == 0 || joins);
            let new = if free {
                State { mode: mode as u32, holders: state.holders + 1, last: 0 }
            } else {
                own.before.store(state.last, Relaxed);
                own.next.store(0, Relaxed);
                own.mode.store(mode as u32, Relaxed);
                own.granted.store(0, Relaxed);
                State { last: number, ..state }
            };
            // Acquire: what holders before have written. Release: what the node says.
            match self.word.compare_exchange_weak(word, new.word(), AcqRel, Relaxed) {
                Ok(_) if free => {
                    self.holder.store(number, Relaxed);
                    return Ok(true);
                }
                Ok(_) => return Ok(false),
                Err(now) => word = now,
            }
        }
    }

    /// Whether rank `me`, which has joined the queue, has the lock by now.
    pub(crate) fn is_granted(&self, me: usize, own: &Node) -> bool {
        let granted = own.granted.load(Acquire) != 0;
        if granted {
            self.is_held_by(me);
        }
        granted
    }

    /// Rank `me`, which has the lock, is one whom others can name.
    pub(crate) fn is_held_by(&self, me: usize) {
        self.holder.store(me as u32 + 1, Relaxed);
    }

    /// A rank that holds the lock, and so must leave it before any of the queue gets it; `None` if
    /// none is known.
    pub(crate) fn holder(&self) -> Option<usize> {
        (self.holder.load(Relaxed) as usize).checked_sub(1)
    }

    /// Rank `me`, which holds the lock, leaves it to the next. Waits for nobody.
    pub(crate) fn leave(&self, me: usize, queue: &impl Queue) -> Result<()> {
        // Before it can have another holder.
        let _ = self.holder.compare_exchange(me as u32 + 1, 0, Relaxed, Relaxed);
        let mut word = self.word.load(Relaxed);
        loop {
            let state = State::of(word);
            let hands_over = state.holders == 1 && state.last != 0;
            let new = match state.holders {
                0 => return Err(queue.corrupt()),
                1 if hands_over => State { mode: Mode::Exclusive as u32, ..state },
                1 => State { mode: 0, holders: 0, last: 0 },
                holders => State { holders: holders - 1, ..state },
            };
            match self.word.compare_exchange_weak(word, new.word(), AcqRel, Relaxed) {
                Ok(_) if hands_over => return self.hand_over(queue),
                Ok(_) => return Ok(()),
                Err(now) => word = now,
            }
        }
    }

    /// Gives the lock, which this rank has alone, to the first of the queue.
    fn hand_over(&self, queue: &impl Queue) -> Result<()> {
        let mut first = self.first.load(Relaxed);
        let mut word = self.word.load(Acquire);
        loop {
            let last = State::of(word).last;
            first = self.note_next(last, first, queue)?;
            let (mode, end, holders) = group(first, last, queue)?;
            let rest = if end == last { 0 } else { node(end, queue)?.next.load(Relaxed) };
            self.first.store(rest, Relaxed);
            let last = if rest == 0 { 0 } else { last };
            let new = State { mode: mode as u32, holders, last };
            match self.word.compare_exchange(word, new.word(), AcqRel, Acquire) {
                Ok(_) => return tell(first, holders, queue),
                // Somebody has joined the queue.
                Err(now) => word = now,
            }
        }
    }

    /// Notes in the nodes from the last to the first who comes next; gives the first. Nothing but
    /// the last ones is missing if the first is known.
    fn note_next(&self, last: u32, first: u32, queue: &impl Queue) -> Result<u32> {
        let mut at = last;
        for _ in 0..queue.ranks() {
            if at == first {
                return Ok(first);
            }
            let before = node(at, queue)?.before.load(Relaxed);
            if before == 0 {
                return Ok(at);
            }
            let next = &node(before, queue)?.next;
            if next.load(Relaxed) == at && first != 0 {
                return Ok(first);
            }
            next.store(at, Relaxed);
            at = before;
        }
        Err(queue.corrupt())
    }
}

/// The node of a rank, by its number plus one.
fn node<Q: Queue>(number: u32, queue: &Q) -> Result<&Node> {
    let rank = (number as usize).checked_sub(1).ok_or_else(|| queue.corrupt())?;
    queue.node(rank)
}

/// Those of the queue that get the lock together: their mode, the last of them, and how many.
fn group(first: u32, last: u32, queue: &impl Queue) -> Result<(Mode, u32, u32)> {
    let mode_of = |number: u32| {
        let mode = Mode::of(node(number, queue)?.mode.load(Relaxed));
        mode.ok_or_else(|| queue.corrupt())
    };
    let mode = mode_of(first)?;
    let (mut end, mut count) = (first, 1);
    while mode.is_shared() && end != last {
        let next = node(end, queue)?.next.load(Relaxed);
        if mode_of(next)? != mode {
            break;
        }
        if count as usize == queue.ranks() {
            return Err(queue.corrupt());
        }
        (end, count) = (next, count + 1);
    }
    Ok((mode, end, count))
}

/// Tells `count` ranks of the queue, from the first on, that they have the lock.
fn tell(first: u32, count: u32, queue: &impl Queue) -> Result<()> {
    let mut at = first;
    for left in (0..count).rev() {
        let told = node(at, queue)?;
        // Once it is told, its node is its own again.
        let next = if left > 0 { told.next.load(Relaxed) } else { 0 };
        told.granted.store(1, Release);
        queue.wake(at as usize - 1);
        at = next;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
