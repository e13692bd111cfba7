//! What a hostile process may say to a detector, for the fuzzer and a test.

use super::super::compare::differences;
use super::diagnose::{stalled, verdict};
use super::state::ProcessState;
use super::wire::{DetectorMessage, words};

/// Reads bytes as what comes from a connection, and diagnoses the states among the messages.
pub(crate) fn receive(bytes: &[u8]) {
    let mut came = bytes.to_vec();
    let Ok(words) = words(&mut came) else { return };
    assert!(came.len() <= bytes.len());
    let states = words.into_iter().filter_map(|word| match word {
        DetectorMessage::ProcessState(_, state) => Some(state),
        _ => None,
    });
    diagnose(1, &states.collect::<Vec<_>>());
}

/// Reads bytes as the states of several processes.
pub(crate) fn snapshot(bytes: &[u8]) {
    let Some((each, bytes)) = bytes.split_first() else { return };
    if let Ok(states) = postcard::from_bytes::<Vec<ProcessState>>(bytes) {
        diagnose(usize::from(each % 4) + 1, &states);
    }
}

/// Judges the first half of the states, and then the second.
fn diagnose(each: usize, states: &[ProcessState]) {
    let (before, now) = states.split_at(states.len() / 2);
    let now = &now[..before.len()];
    let _ = verdict(each, Some(before), now);
    let _ = stalled(each, before, now);
    let comms = states.iter().flat_map(|state| &state.comms);
    let calls = comms.map(|progress| (progress.leader as usize, progress.rounds.clone()));
    let _ = differences(calls, true);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words that are right, each with some bytes changed.
    #[test]
    fn changed_words_do_no_harm() {
        let states =
            vec![ProcessState { sent: vec![(1, 2)], left: vec![3], ..ProcessState::default() }; 4];
        let mut said = postcard::to_allocvec(&states).unwrap();
        said.insert(0, 1);
        let word =
            postcard::to_allocvec(&DetectorMessage::ProcessState(7, states[0].clone())).unwrap();
        let mut framed = (word.len() as u32).to_le_bytes().to_vec();
        framed.extend(word);
        for at in 0..said.len().max(framed.len()) {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                for (bytes, read) in [(&said, snapshot as fn(&[u8])), (&framed, receive)] {
                    let mut bytes = bytes.clone();
                    bytes.get_mut(at).into_iter().for_each(|byte| *byte = value);
                    read(&bytes);
                    read(&bytes[..at.min(bytes.len())]);
                }
            }
        }
    }
}
