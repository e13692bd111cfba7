//! What collectives over the arena are made of: every rank of a communicator shows the call it
//! is in on its own area, and reads those of the others.
//!
//! A *round* is one collective call; its number is the same on all ranks. The owner fills its
//! slot (`round % SLOTS`), then writes the stamp `round, stage`; peers that see the stamp may
//! read what the slot says, after comparing fingerprints. Stages order the steps within a round;
//! in stage 0 the rank has entered the round, and its slot shows the call and no more. A rank that
//! does not wait before stage 1 leaves stage 0 out: peers poll the line that it would write twice.
//!
//! A fingerprint covers all calls of the communicator so far: not all calls make all ranks meet
//! (a broadcast and a reduce may pass by each other), and what differs in one of these is found
//! when the ranks do meet.
//!
//! A slot is used again only when every peer has left the round that used it last
//! ([`Round::run`]). A rank that gives up takes its exposed buffers back and waits until no peer
//! can be reading them ([`Round`]'s `Drop`): a peer announces itself (its own stamp, then a
//! fence) before it looks whether the buffers were withdrawn, and the owner withdraws, then a
//! fence, before it looks whether the peer is there, so one of the two sees the other.

pub(crate) mod agreement;
mod combined;
mod exposure;
mod grace;
mod meeting;
mod place;
pub(crate) mod proposal;
mod report;
mod round;
mod single_copy;
pub(crate) mod split;
pub(crate) mod stage;

pub(crate) use place::{CollectiveArea, Moment};
pub use round::Round;
pub(crate) use stage::stamp;
pub use stage::{FLAT, LAST_STAGE};
