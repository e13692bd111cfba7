//! What every rank says of a communicator that is to be made, told to all.

use std::sync::Arc;

use spmd_core::internal::{Call, Lead, Offer, Step};
use spmd_core::{Comm, Error, Result};

use super::packed::{Lengths, Packed, is_even};

/// Words of what one rank says.
pub(crate) const WORDS: usize = 3;
const WORD: usize = size_of::<u64>();

/// What all ranks have said.
pub(crate) struct Told {
    /// What they can offer together.
    pub(crate) offer: Offer,
    /// By rank.
    pub(crate) said: Vec<[u64; WORDS]>,
}

/// What a rank calls with.
struct Says<T> {
    offer: Offer,
    words: [u64; WORDS],
    made: *mut Option<Arc<T>>,
}

impl<T> Clone for Says<T> {
    fn clone(&self) -> Says<T> {
        *self
    }
}

impl<T> Copy for Says<T> {}

/// Tells all ranks what each has to offer and to say. What a process makes of that, it makes once, for
/// all ranks that live there.
pub(crate) fn tell<T: Send + Sync>(
    comm: &Comm,
    call: &Call<'_>,
    words: [u64; WORDS],
    make: impl FnOnce(Told) -> T,
) -> Result<Arc<T>> {
    let mut made = None;
    let says = Says { offer: comm.offer(), words, made: &raw mut made };
    // SAFETY: each rank's place for what is made stays where it is during the call, in which the lead
    // alone writes it.
    unsafe {
        comm.collective_across(call, says, |lead| {
            let made = Arc::new(make(tell_across(lead)?));
            // SAFETY: as above.
            lead.parts().for_each(|part| *part.made = Some(made.clone()));
            Ok(())
        })?;
    }
    made.ok_or_else(|| {
        Error::from(format!("{call}: the rank that leads this process gave nothing"))
    })
}

fn tell_across<T>(lead: &Lead<'_, Says<T>>) -> Result<Told> {
    let own = lead.parts().map(|part| part.offer).reduce(Offer::and);
    let Offer(own) = own.expect("a process holds a rank at least");
    let words = lead.parts().flat_map(|part| part.words);
    let send: Vec<u8> = own.into_iter().chain(words).flat_map(u64::to_ne_bytes).collect();
    let bytes = |process: usize| WORD * (Offer::WORDS + WORDS * lead.members(process).len());
    let mut came = Packed::of(match is_even(lead) {
        true => Lengths::Equal(bytes(0), lead.processes()),
        false => Lengths::listed((0..lead.processes()).map(bytes)),
    });
    // SAFETY: `send` holds what this process says, and `came` has room for what each does.
    unsafe {
        lead.step(Step::Allgather { send: (send.as_ptr(), send.len()), recv: came.parts() })?
    };
    let mut words = came.memory.as_chunks::<WORD>().0.iter().copied().map(u64::from_ne_bytes);
    let mut told = Told { offer: Offer(own), said: vec![[0; WORDS]; lead.size()] };
    for process in 0..lead.processes() {
        let mut next = || words.next().unwrap_or(0);
        told.offer = told.offer.and(Offer(std::array::from_fn(|_| next())));
        for rank in lead.members(process) {
            told.said[*rank] = std::array::from_fn(|_| next());
        }
    }
    Ok(told)
}
