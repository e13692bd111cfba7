//! Comparing the calls of different processes.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::rounds::Rounds;
use crate::error::Result;
use crate::fault::{Fault, by_call};
use crate::transport::fabric::{BlockLayout, NativeCollective, ProcessBlocks};
use crate::transport::shared::layout::SLOTS;

/// What a process tells all others at once, at most.
const BYTES: usize = 1024;

/// Tells the leaders of other processes the calls of this one, and hears theirs.
pub(super) fn allgather(
    processes: usize,
    rounds: &Rounds,
    step: impl FnOnce(NativeCollective<'_>) -> Result<()>,
) -> Result<Vec<Rounds>> {
    let mut told = rounds.clone();
    cut_calls(&mut told);
    exchange(processes, &told, step)
}

/// Tells the other processes something, and hears what they tell; what is too long is not heard.
pub(super) fn exchange<T: Serialize + DeserializeOwned + Default>(
    processes: usize,
    told: &T,
    step: impl FnOnce(NativeCollective<'_>) -> Result<()>,
) -> Result<Vec<T>> {
    let mut said = [0u8; BYTES];
    let _ = postcard::to_slice(told, &mut said);
    let mut heard = vec![0u8; BYTES * processes];
    let recv = ProcessBlocks { memory: heard.as_mut_ptr(), layout: BlockLayout::Equal(BYTES) };
    step(NativeCollective::Allgather { send: (said.as_ptr(), BYTES), recv })?;
    let read = |bytes| postcard::take_from_bytes(bytes).map_or(T::default(), |it| it.0);
    Ok(heard.chunks(BYTES).map(read).collect())
}

/// Cuts the calls to what can be told.
pub(super) fn cut_calls(rounds: &mut Rounds) {
    rounds.calls.iter_mut().for_each(|call| cut(call, BYTES / SLOTS - 32));
}

/// The same of two calls that differ.
pub(super) fn cut_fault(fault: &mut Fault) {
    if let Fault::Mismatch { calls, .. } = fault {
        calls.truncate(2);
        calls.iter_mut().for_each(|call| cut(call, BYTES / 2 - 64));
    }
}

/// In what the calls of ranks of different processes differ; with `to_the_end`, they have made all.
pub(super) fn differences(
    ranks: impl Iterator<Item = (usize, Rounds)>,
    to_the_end: bool,
) -> Option<Fault> {
    let all: Vec<(usize, Rounds)> = ranks.collect();
    let (_, first) = all.first()?;
    let different = all.iter().find_map(|(_, other)| first.first_difference(other));
    let shorter = || {
        let least = all.iter().map(|(_, rounds)| rounds.last).min()?;
        (to_the_end && all.iter().any(|(_, rounds)| rounds.last != least))
            .then_some(least.saturating_add(1))
    };
    let (round, what) = match different {
        Some(round) => (round, "different calls"),
        None => (shorter()?, "one rank made more calls than another"),
    };
    let calls = all.iter().filter_map(|(rank, rounds)| Some((*rank, rounds.call(round)?)));
    Some(Fault::Mismatch { calls: by_call(calls), what: what.into() })
}

/// Cuts a text to so many bytes.
fn cut(text: &mut String, most: usize) {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
}
