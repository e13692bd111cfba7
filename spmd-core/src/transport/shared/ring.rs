//! Messages between processes or threads: a byte ring from each sender to each receiver that it has
//! written to, in the sender's segment, made at the first message.
//!
//! A record is a header line and its data, on 64-byte boundaries. The header's first word, its
//! stamp, is the record's position plus one, written last; before that, the stamp of the next
//! record is cleared, so that old data there are never taken for one. A message of up to 8 bytes that is
//! otherwise as the one before it is a *repeat*: a stamp and the data, a quarter of a line, since a line
//! takes longer from core to core than all else of such a message. A stamp of another distance from its position tells it, or that
//! the rest of a line is empty. The receiver says in its
//! own segment ([`super::layout::Ack`]) how far it has read: after each sixteenth of the ring, and
//! where the sender asks.
//!
//! Data above [`EAGER`] do not go through the ring: the record names one of some *rendezvous*, in
//! which the sender shows where the data are (in its segment, or in the memory of the same
//! process: read there; in private memory: through a staging area, piece after piece, or by
//! `process_vm_readv`).

mod acks;
pub(super) mod format;
#[cfg(any(fuzzing, test))]
pub(crate) mod hostile;
mod reader;
mod writer;

pub(super) use self::acks::{own_ack, with_ack};
pub(crate) use self::format::{EAGER, Header};
pub(super) use self::format::{PIECE, RENDEZVOUS, RING, RendezvousAck, STAGING, staged_at};
pub(crate) use self::reader::RendezvousReceive;
pub(super) use self::reader::{DataPlace, RingMessage, RingReader};
pub(super) use self::writer::RingWriter;
