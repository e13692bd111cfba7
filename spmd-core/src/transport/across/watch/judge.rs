//! What the states of all processes say together.
//!
//! Ranks that wait for each other only will wait for ever. From every wait the ranks are followed
//! that could end it; if all that are reached wait or have ended, it is a suspicion, and a verdict
//! if the next states say the same, and nothing was on its way in both: all packets that had been
//! sent had been taken. A payload on its way has a receiver that does not count as waiting.

use std::collections::{BTreeMap, BTreeSet};

use super::state::{On, Progress, State, Wait};
use crate::fault::{Fault, by_call};

/// The states of all processes, by process.
pub(super) type States = [State];

/// What is wrong, if this look at all processes, or the one before it and this show that something
/// is. Each process has so many ranks.
pub(super) fn verdict(each: usize, before: Option<&States>, now: &States) -> Option<Fault> {
    mismatch(now).or_else(|| {
        let waits = stuck(each, before?, now)?;
        let (sent, taken) = traffic(now);
        (sent == taken).then(|| circle(each, now, &waits))
    })
}

/// All waits of ranks that nobody outside of them can release, if the earlier look showed the same,
/// and nothing has been sent or taken since.
fn stuck(each: usize, before: &States, now: &States) -> Option<BTreeSet<Stuck>> {
    let (earlier, waits) = (closed(each, before)?, closed(each, now)?);
    (earlier == waits && traffic(before) == traffic(now)).then_some(waits)
}

/// How many packets are on their way to ranks that do nothing but wait, since the earlier look; none
/// if all goes on.
pub(super) fn stalled(each: usize, before: &States, now: &States) -> Option<u64> {
    stuck(each, before, now)?;
    let (sent, taken) = traffic(now);
    sent.checked_sub(taken).filter(|packets| *packets > 0)
}

fn traffic(states: &States) -> (u64, u64) {
    states.iter().fold((0, 0), |sum, it| (sum.0 + it.sent, sum.1 + it.taken))
}

/// The first round of a communicator in which two processes made different calls.
fn mismatch(states: &States) -> Option<Fault> {
    let mut seen: BTreeMap<u64, Vec<&Progress>> = BTreeMap::new();
    let all = states.iter().flat_map(|state| &state.comms);
    all.for_each(|progress| seen.entry(progress.context).or_default().push(progress));
    for progresses in seen.values() {
        let first = progresses[0];
        let differs = |other: &&&Progress| first.rounds.first_difference(&other.rounds).is_some();
        let Some(other) = progresses.iter().find(differs) else { continue };
        let round = first.rounds.first_difference(&other.rounds)?;
        let call = |it: &&Progress| Some((it.lead as usize, it.rounds.call(round)?));
        let calls = by_call(progresses.iter().filter_map(call));
        return Some(Fault::Mismatch { calls, what: "different calls".into() });
    }
    None
}

/// A wait that is in a circle: its rank, and which it is.
type Stuck = (u32, (u64, u64));

/// The process in which a rank lives.
fn home(each: usize, states: &States, rank: u32) -> Option<&State> {
    states.get(rank as usize / each)
}

/// All waits of ranks that nobody outside of them can release; `None` if there are none.
fn closed(each: usize, states: &States) -> Option<BTreeSet<Stuck>> {
    let ranks = states.iter().flat_map(|state| &state.waits).map(|wait| wait.rank);
    let starts: BTreeSet<u32> = ranks.collect();
    starts.into_iter().find_map(|start| closed_from(each, states, start))
}

fn closed_from(each: usize, states: &States, start: u32) -> Option<BTreeSet<Stuck>> {
    let world = (states.len() * each) as u32;
    let (mut open, mut reached, mut stuck) =
        (vec![start], BTreeSet::from([start]), BTreeSet::new());
    while let Some(rank) = open.pop() {
        let state = home(each, states, rank)?;
        if state.ended {
            continue;
        }
        let waits: Vec<&Wait> = state.waits.iter().filter(|wait| wait.rank == rank).collect();
        if state.idle.contains(&rank) || !waits.iter().any(|wait| wait.own) {
            return None;
        }
        for wait in waits {
            stuck.insert((rank, wait.which));
            let next = releasers(each, states, wait, world)?;
            open.extend(next.into_iter().filter(|next| reached.insert(*next)));
        }
    }
    Some(stuck)
}

/// The ranks that could end a wait; `None` if it may end by itself.
fn releasers(each: usize, states: &States, wait: &Wait, world: u32) -> Option<Vec<u32>> {
    match &wait.on {
        On::Rank(rank) => Some(vec![*rank]),
        On::Any => Some((0..world).filter(|rank| *rank != wait.rank).collect()),
        On::Round { context, round } => late(each, states, *context, *round),
    }
}

/// The leads that have not come to this round of a communicator; `None` if all have, as the round
/// then goes on, or it is not known of one.
fn late(each: usize, states: &States, context: u64, round: u64) -> Option<Vec<u32>> {
    let all = || states.iter().flat_map(|state| &state.comms).filter(|it| it.context == context);
    let mut late = Vec::new();
    for lead in &all().next()?.leads {
        match all().find(|it| it.lead == *lead) {
            Some(progress) if progress.rounds.last >= round => {}
            Some(_) => late.push(*lead),
            None if home(each, states, *lead)?.ended => late.push(*lead),
            None => return None,
        }
    }
    (!late.is_empty()).then_some(late)
}

/// The circle in words; where one of its waits is for a rank that has ended, that.
fn circle(each: usize, states: &States, stuck: &BTreeSet<Stuck>) -> Fault {
    let waits = || {
        let all = states.iter().flat_map(|state| &state.waits);
        all.filter(|wait| stuck.contains(&(wait.rank, wait.which)))
    };
    let world = (states.len() * each) as u32;
    let ended = |rank: &u32| home(each, states, *rank).is_some_and(|state| state.ended);
    for wait in waits().filter(|wait| wait.on != On::Any) {
        let left = releasers(each, states, wait, world).and_then(|it| it.into_iter().find(ended));
        if let Some(rank) = left {
            let waiting = format!("rank {}: {}", wait.rank, wait.call);
            return Fault::Left { rank: rank as usize, waiting };
        }
    }
    let calls = waits().map(|wait| (wait.rank as usize, wait.call.clone()));
    Fault::Deadlock { calls: by_call(calls) }
}

#[cfg(test)]
mod tests {
    use super::super::super::now::Rounds;
    use super::*;

    fn wait(rank: u32, on: On) -> Wait {
        Wait { rank, which: (0, 1), own: true, on, call: format!("call of {rank}") }
    }

    fn progress(lead: u32, round: u64, prints: [u64; 4]) -> Progress {
        let calls = prints.iter().map(|print| format!("call {print}")).collect();
        let rounds = Rounds { last: round, prints, calls };
        Progress { context: 1, lead, rounds, leads: vec![0, 1] }
    }

    fn two(waits: [Option<On>; 2]) -> Vec<State> {
        let ranks = waits.into_iter().enumerate();
        let waits = ranks.map(|(rank, on)| on.map(|on| wait(rank as u32, on)));
        waits.map(|it| State { waits: it.into_iter().collect(), ..State::default() }).collect()
    }

    #[test]
    fn ranks_that_wait_for_each_other_are_a_circle_at_the_second_look() {
        let states = two([Some(On::Rank(1)), Some(On::Rank(0))]);
        let Some(Fault::Deadlock { calls }) = verdict(1, Some(&states), &states) else {
            panic!("none")
        };
        assert_eq!(calls, ["rank 0: call of 0", "rank 1: call of 1"]);
        assert_eq!(verdict(1, Some(&two([None, None])), &states), None);
    }

    #[test]
    fn who_computes_and_what_is_on_its_way_may_end_a_wait() {
        let computes = two([Some(On::Rank(1)), None]);
        assert_eq!(verdict(1, Some(&computes), &computes), None);
        let mut underway = two([Some(On::Rank(1)), Some(On::Rank(0))]);
        underway[0].sent = 1;
        assert_eq!(verdict(1, Some(&underway), &underway), None);
        assert_eq!(stalled(1, &underway, &underway), Some(1));
        underway[1].taken = 1;
        assert_eq!(stalled(1, &underway, &underway), None);
        assert!(verdict(1, Some(&underway), &underway).is_some());
        underway[1].idle = vec![1];
        assert_eq!(verdict(1, Some(&underway), &underway), None);
    }

    #[test]
    fn whoever_waits_for_one_that_has_ended_is_told_so() {
        let mut states = two([Some(On::Rank(1)), None]);
        states[1].ended = true;
        let waiting = "rank 0: call of 0".to_owned();
        assert_eq!(verdict(1, Some(&states), &states), Some(Fault::Left { rank: 1, waiting }));
        let mut states = two([Some(On::Round { context: 1, round: 3 }), None]);
        states[0].comms = vec![progress(0, 3, [9, 8, 7, 0])];
        assert_eq!(verdict(1, Some(&states), &states), None);
        states[1].ended = true;
        assert!(matches!(verdict(1, Some(&states), &states), Some(Fault::Left { rank: 1, .. })));
    }

    #[test]
    fn different_calls_are_found_in_the_first_round_in_which_they_differ() {
        let round = |round| Some(On::Round { context: 1, round });
        let mut states = two([round(3), round(4)]);
        states[0].comms = vec![progress(0, 3, [30, 20, 10, 0])];
        states[1].comms = vec![progress(1, 4, [41, 31, 20, 10])];
        let Some(Fault::Mismatch { calls, .. }) = verdict(1, Some(&states), &states) else {
            panic!()
        };
        assert_eq!(calls, ["rank 0: call 30", "rank 1: call 31"]);
        states[1].comms = vec![progress(1, 4, [41, 30, 20, 10])];
        assert_eq!(verdict(1, Some(&states), &states), None);
    }

    #[test]
    fn circles_go_through_rounds_and_messages() {
        let mut states = two([Some(On::Round { context: 1, round: 3 }), Some(On::Rank(0))]);
        states[0].comms = vec![progress(0, 3, [3, 2, 1, 0])];
        states[1].comms = vec![progress(1, 2, [2, 1, 0, 0])];
        assert!(matches!(verdict(1, Some(&states), &states), Some(Fault::Deadlock { .. })));
        states[1].comms = vec![progress(1, 3, [3, 2, 1, 0])];
        assert_eq!(verdict(1, Some(&states), &states), None);
    }
}
