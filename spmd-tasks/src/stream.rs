//! Streams between ranks: channels of which each end is on a rank of its own.
//!
//! Each of the two ranks has a task that carries values between the channel of its end and the other rank.
//! The receiver says how many it has taken, by which the sender knows how many are on the way.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use spmd_collectives::{Allreduce, Split};
use spmd_core::{ANY, Comm, Ctx, Error, Max, Result};

use crate::about::About;
use crate::channel::{Receiver, Sender, channel_of};
use crate::rank::group_of;
use crate::remote::function::{from_bytes, to_bytes};
use crate::task::Task;
use crate::work::Once;

/// A value's bytes; that there are no more; that there are none, for this reason.
const VALUE: u32 = 0;
const END: u32 = 1;
const BROKEN: u32 = 2;
/// So many values have been taken; none of them: nobody takes any more.
const TAKEN: u32 = 3;

/// Where values go into a stream: see [`Tasks::stream`](crate::Tasks::stream). It may be cloned, and moved into
/// tasks of its rank; the stream ends when all are gone.
pub struct StreamSender<T> {
    values: Sender<T>,
    /// None within one rank.
    carrier: Option<Arc<Task<()>>>,
}

/// Where they come out. It may be cloned, and moved into tasks of its rank; each value comes to one.
pub struct StreamReceiver<T> {
    values: Receiver<T>,
    carrier: Option<Arc<Task<()>>>,
}

/// The ends of a stream that a rank has: where values go in, and where they come out.
pub type StreamEnds<T> = (Option<StreamSender<T>>, Option<StreamReceiver<T>>);

impl<T: Send> StreamSender<T> {
    /// Sends a value, once there is room for it; a task is suspended meanwhile.
    ///
    /// Errors: all receivers are gone, of which a sender may hear some values later; a value cannot be
    /// serialized, which is told by the next call; what the receiving rank could not make of the bytes; a rank has
    /// failed, or waits in a cycle.
    #[track_caller]
    pub fn send(&self, value: T) -> Result<()> {
        let sent = self.values.send(value);
        sent.or_else(|error| end_of(&self.carrier).and(Err(error)))
    }
}

impl<T: Send> StreamReceiver<T> {
    /// Receives the value that was sent first; `None` if there is none any more, and all senders are gone.
    ///
    /// Errors: what the sending rank could not serialize, or this one make of the bytes; a rank has failed,
    /// or waits in a cycle.
    #[track_caller]
    pub fn recv(&self) -> Result<Option<T>> {
        match self.values.recv()? {
            None => end_of(&self.carrier).map(|()| None),
            value => Ok(value),
        }
    }

    /// What is received, until the end, or the first error.
    #[track_caller]
    pub fn iter(&self) -> impl Iterator<Item = Result<T>> {
        let mut failed = false;
        std::iter::from_fn(move || {
            let next = (!failed).then(|| self.recv().transpose()).flatten();
            failed = matches!(next, Some(Err(_)));
            next
        })
    }
}

/// How it has come to an end.
fn end_of(carrier: &Option<Arc<Task<()>>>) -> Result<()> {
    carrier.as_ref().map_or(Ok(()), |carrier| carrier.fetch().copied())
}

/// [`Tasks::stream`](crate::Tasks::stream) of this rank.
#[track_caller]
pub(crate) fn make_stream<T>(
    ctx: &Ctx,
    (from, to, depth): (usize, usize, usize),
    site: &'static Location<'static>,
) -> Result<StreamEnds<T>>
where
    T: Serialize + DeserializeOwned + Send + 'static,
{
    let (me, n) = (ctx.rank(), ctx.size());
    let refused = |why: String| Error::argument(format!("stream at {site}: {why}"));
    // What is too large is said by all, and so is what only some say.
    let mut said = [from, to, depth, !from, !to, !depth];
    ctx.allreduce_in_place(&mut said, Max)?;
    if (0..3).any(|word| said[word] != !said[word + 3]) {
        return Err(refused("the ranks name different ends, or depths".into()));
    }
    if let Some(end) = [from, to].into_iter().find(|end| *end >= n) {
        return Err(refused(format!("there is no rank {end} among {n}")));
    }
    let ends = (from != to && (me == from || me == to)).then_some(0);
    let Some(comm) = ctx.split(ends, i32::from(me == to))? else {
        let both = (me == from && me == to).then(|| channel_of("the stream", depth, site));
        let ends = both.map(|(sender, receiver)| {
            let sender = StreamSender { values: sender, carrier: None };
            (sender, StreamReceiver { values: receiver, carrier: None })
        });
        return Ok(ends.unzip());
    };
    let about =
        |name: String| Some(Box::new(About { name: Some(name.into()), ..About::default() }));
    let (group, depth) = (group_of(ctx.internals()), depth.max(1));
    let (put, take) = channel_of("the stream", 1, site);
    if me == from {
        let carry = Once(move || send(&take, &comm, depth));
        let carrier = Task::put(group, (site, about(format!("stream to rank {to}"))), carry);
        return Ok((Some(StreamSender { values: put, carrier: Some(Arc::new(carrier)) }), None));
    }
    let carry = Once(move || receive(put, &comm, depth));
    let carrier = Task::put(group, (site, about(format!("stream from rank {from}"))), carry);
    Ok((None, Some(StreamReceiver { values: take, carrier: Some(Arc::new(carrier)) })))
}

/// Carries values to the other rank, of which so many are on the way at most.
fn send<T: Serialize + Send>(values: &Receiver<T>, comm: &Comm, depth: usize) -> Result<()> {
    let to = comm.size() - 1;
    let mut on_the_way = 0;
    loop {
        // Before it takes one: what waits here is in the channel.
        if on_the_way == depth {
            match taken(comm, to)? {
                0 => return comm.send::<[u8]>(&[], to, END),
                taken => on_the_way -= taken.min(on_the_way),
            }
        }
        let Some(value) = values.recv()? else { break };
        let bytes = match to_bytes(&value) {
            Ok(bytes) => bytes,
            Err(why) => {
                comm.send(why.to_string().as_bytes(), to, BROKEN)?;
                all_taken(comm, to, on_the_way)?;
                return Err(why);
            }
        };
        comm.send(&bytes, to, VALUE)?;
        on_the_way += 1;
    }
    comm.send::<[u8]>(&[], to, END)?;
    all_taken(comm, to, on_the_way)
}

/// Waits until the other rank has taken all.
fn all_taken(comm: &Comm, to: usize, mut on_the_way: usize) -> Result<()> {
    while on_the_way > 0 {
        match taken(comm, to)? {
            0 => return Ok(()),
            taken => on_the_way -= taken.min(on_the_way),
        }
    }
    Ok(())
}

/// How many values the other rank has taken since it last said so.
fn taken(comm: &Comm, to: usize) -> Result<usize> {
    let mut taken = [0u64];
    comm.recv(&mut taken, to, TAKEN)?;
    Ok(taken[0] as usize)
}

/// Carries values from the other rank to who takes them here.
fn receive<T: DeserializeOwned + Send>(values: Sender<T>, comm: &Comm, depth: usize) -> Result<()> {
    let mut values = Some(values);
    let mut outcome = Ok(());
    let (mut taken, some) = (0, depth.div_ceil(2) as u64);
    loop {
        let (bytes, status) = comm.recv_vec::<u8>(0, ANY)?;
        match status.tag() {
            VALUE => {
                // Nobody has them: they come, and go.
                let Some(takers) = &values else { continue };
                let put = from_bytes(&bytes).map(|value| takers.send(value));
                taken += 1;
                match put {
                    Ok(Ok(())) if taken < some => continue,
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => (values, taken) = (None, 0),
                    Err(why) => (values, taken, outcome) = (None, 0, Err(why)),
                }
                comm.send(&[taken], 0, TAKEN)?;
                taken = 0;
            }
            BROKEN => {
                outcome = Err(String::from_utf8_lossy(&bytes).into_owned().into());
                break;
            }
            _ => break,
        }
    }
    if taken > 0 {
        comm.send(&[taken], 0, TAKEN)?;
    }
    outcome
}

impl<T> Clone for StreamSender<T> {
    fn clone(&self) -> StreamSender<T> {
        StreamSender { values: self.values.clone(), carrier: self.carrier.clone() }
    }
}

impl<T> Clone for StreamReceiver<T> {
    fn clone(&self) -> StreamReceiver<T> {
        StreamReceiver { values: self.values.clone(), carrier: self.carrier.clone() }
    }
}

impl<T> fmt::Debug for StreamSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamSender").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for StreamReceiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamReceiver").finish_non_exhaustive()
    }
}
