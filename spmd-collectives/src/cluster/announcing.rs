//! What every rank says of a communicator that is to be made, told to all.

use std::sync::Arc;

use spmd_core::internal::{Call, ContextOffer, Leader, NativeCollective};
use spmd_core::{Comm, Error, Result};

use super::packed::{Lengths, Packed, is_even};

/// Words of what one rank says.
pub(crate) const WORDS: usize = 3;
const WORD: usize = size_of::<u64>();

/// What all ranks have said.
pub(crate) struct AllAnnouncements {
    /// What they can offer together.
    pub(crate) offer: ContextOffer,
    /// By rank.
    pub(crate) said: Vec<[u64; WORDS]>,
}

/// What a rank calls with.
struct Announcement<T> {
    offer: ContextOffer,
    words: [u64; WORDS],
    made: *mut Option<Arc<T>>,
}

impl<T> Clone for Announcement<T> {
    fn clone(&self) -> Announcement<T> {
        *self
    }
}

impl<T> Copy for Announcement<T> {}

/// Tells all ranks what each has to offer and to say. What a process makes of that, it makes once,
/// for all ranks that live there.
pub(crate) fn announce<T: Send + Sync>(
    comm: &Comm,
    call: &Call<'_>,
    words: [u64; WORDS],
    make: impl FnOnce(AllAnnouncements) -> T,
) -> Result<Arc<T>> {
    let mut made = None;
    let announcement = Announcement { offer: comm.internals().offer(), words, made: &raw mut made };
    // SAFETY: each rank's place for what is made stays where it is during the call, in which the
    // leader alone writes it.
    unsafe {
        comm.internals().collective_on_cluster(call, announcement, |leader| {
            let made = Arc::new(make(announce_on_cluster(leader)?));
            // SAFETY: as above.
            leader.parts().for_each(|part| *part.made = Some(made.clone()));
            Ok(())
        })?;
    }
    made.ok_or_else(|| {
        Error::from(format!("{call}: the rank that leads this process gave nothing"))
    })
}

fn announce_on_cluster<T>(leader: &Leader<'_, Announcement<T>>) -> Result<AllAnnouncements> {
    let own = leader.parts().map(|part| part.offer).reduce(ContextOffer::and);
    let ContextOffer(own) = own.expect("a process holds a rank at least");
    let words = leader.parts().flat_map(|part| part.words);
    let send: Vec<u8> = own.into_iter().chain(words).flat_map(u64::to_ne_bytes).collect();
    let bytes =
        |process: usize| WORD * (ContextOffer::WORDS + WORDS * leader.members(process).len());
    let mut came = Packed::of(match is_even(leader) {
        true => Lengths::Equal(bytes(0), leader.processes()),
        false => Lengths::listed((0..leader.processes()).map(bytes)),
    });
    // SAFETY: `send` holds what this process says, and `came` has room for what each does.
    unsafe {
        leader.step(NativeCollective::Allgather {
            send: (send.as_ptr(), send.len()),
            recv: came.parts(),
        })?
    };
    let mut words = came.memory.as_chunks::<WORD>().0.iter().copied().map(u64::from_ne_bytes);
    let mut announced =
        AllAnnouncements { offer: ContextOffer(own), said: vec![[0; WORDS]; leader.size()] };
    for process in 0..leader.processes() {
        let mut next = || words.next().unwrap_or(0);
        announced.offer = announced.offer.and(ContextOffer(std::array::from_fn(|_| next())));
        for rank in leader.members(process) {
            announced.said[*rank] = std::array::from_fn(|_| next());
        }
    }
    Ok(announced)
}
