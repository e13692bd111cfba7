//! What the states of all processes say together.
//!
//! Two looks at all processes, of which the second was asked for when the first was complete, have
//! an instant between them, T. A rank is *stuck* at T if nothing can make it act again:
//!
//! 1. All its agents waited at T: both looks show the same waits, one of its own agent among them,
//!    and no agent beside them. Each has seen its condition to be false after T, or is a round, of
//!    which others' rounds say for certain whether it can go on. A process only knows when it gave
//!    its own answers, of which the first may be older than T; so a verdict needs the same set from
//!    two pairs of looks in a row: what the later pair confirms is after the T of the earlier one.
//! 2. Nothing on its way can end one of these waits. Only a packet could, or data. A packet changes
//!    nothing but the mailboxes of the process to which it was sent, and of all waits only a
//!    receive or a probe looks there. So packets count where a stuck rank receives or probes, and
//!    there alone: a process of which all agents are in the library's collectives, wait to be
//!    received from, or have left never takes a packet, and would gain nothing by it. Where they
//!    count, as many had been sent to the process as it had taken, in both looks; what it has taken
//!    lay in the mailboxes before the waits looked again. Data on their way have a receiver whose
//!    wait is for [`WaitTarget::Nobody`], so that it is not stuck. So has what is done to a part of a
//!    window in another process, which serves that whatever its ranks wait for. A lock of a window is
//!    left by a packet to the process where it lies, which then sends one to whoever gets it: there
//!    packets to all processes count.
//! 3. All ranks that could end its waits are stuck too, or have left the block. A round waits for
//!    the leaders that have not begun it. One that does not know the communicator has not begun it
//!    either: it has dropped it, or is about to make it, which the call that it is in tells. A loop
//!    that polls may be left at any time, and so is a wait only if all who could send have left.
//!
//! By induction over what happens after T, a stuck rank waits for ever: the first thing that any of
//! them did would need a wait of its own to end first. So the set is found from the other side: who
//! may act at T, and then whoever may be released by them; the rest is stuck (`Snapshot::stuck`).

use std::collections::{BTreeMap, BTreeSet};

use super::state::{ProcessState, Progress, Wait, WaitTarget};
use crate::fault::{Fault, by_call};

/// The states of all processes, by process.
pub(super) type States = [ProcessState];

/// What is wrong.
pub(super) enum Verdict {
    /// Calls differ.
    Different(Fault),
    /// These ranks are stuck, if the next pair of looks shows the same.
    Stuck(Vec<bool>, Fault),
}

/// What is wrong, if this look at all processes, or the one before it and this show that something
/// is. Each process has so many ranks.
pub(super) fn verdict(each: usize, before: Option<&States>, now: &States) -> Option<Verdict> {
    mismatch(now).map(Verdict::Different).or_else(|| {
        let snapshot = Snapshot::new(each, before?, now);
        let stuck = snapshot.stuck(|process| snapshot.traffic[process].settled());
        let first = stuck.iter().position(|stuck| *stuck)?;
        let fault = snapshot.cycle(first, &stuck);
        Some(Verdict::Stuck(stuck, fault))
    })
}

/// How many packets are on their way to ranks that do nothing but wait, since the earlier look;
/// none if all goes on.
pub(super) fn stalled(each: usize, before: &States, now: &States) -> Option<u64> {
    let snapshot = Snapshot::new(each, before, now);
    let stuck = snapshot.stuck(|process| snapshot.traffic[process].rests());
    let is_stuck = |wait: &&Wait| stuck.get(wait.rank as usize) == Some(&true);
    let mut waits = snapshot.now.iter().flat_map(|state| &state.waits);
    let locks = waits.any(|wait| wait.locks && is_stuck(&wait));
    let receives = |process: &usize| {
        let waits = &snapshot.now[*process].waits;
        locks || waits.iter().filter(|wait| wait.takes).any(|wait| is_stuck(&wait))
    };
    let packets =
        (0..now.len()).filter(receives).map(|process| snapshot.traffic[process].missing());
    Some(packets.sum()).filter(|packets| *packets > 0)
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
        let call = |it: &&Progress| Some((it.leader as usize, it.rounds.call(round)?));
        let calls = by_call(progresses.iter().filter_map(call));
        return Some(Fault::Mismatch { calls, what: "different calls".into() });
    }
    None
}

/// Packets to one process.
#[derive(Clone, Default)]
struct Traffic {
    /// Sent and taken at the first look, and at the second.
    sent: [u64; 2],
    taken: [u64; 2],
}

impl Traffic {
    /// None was sent or taken between the looks.
    fn rests(&self) -> bool {
        self.sent[0] == self.sent[1] && self.taken[0] == self.taken[1]
    }

    fn missing(&self) -> u64 {
        self.sent[1].saturating_sub(self.taken[1])
    }

    /// Nor was one on its way.
    fn settled(&self) -> bool {
        self.rests() && self.sent[1] == self.taken[1]
    }
}

/// Two looks at all processes, and what is asked of them again and again.
struct Snapshot<'a> {
    each: usize,
    now: &'a States,
    /// To each process.
    traffic: Vec<Traffic>,
    /// Of each rank: whether it has left the block, as seen at both looks.
    gone: Vec<bool>,
    /// How many have not.
    inside: usize,
    /// Of each rank: its waits, if both looks show that it did nothing but wait.
    waits: Vec<Vec<&'a Wait>>,
    /// The leaders that have not come to the rounds in which others wait; none where all have.
    late: BTreeMap<(u64, u64), Vec<u32>>,
}

impl<'a> Snapshot<'a> {
    fn new(each: usize, before: &'a States, now: &'a States) -> Snapshot<'a> {
        let mut traffic = vec![Traffic::default(); now.len()];
        for (at, states) in [before, now].into_iter().enumerate() {
            for (process, state) in states.iter().enumerate() {
                traffic[process].taken[at] = state.taken;
                let known = |(to, _): &&(u32, u64)| (*to as usize) < now.len();
                state.sent.iter().filter(known).for_each(|(to, packets)| {
                    let sent = &mut traffic[*to as usize].sent[at];
                    *sent = sent.wrapping_add(*packets);
                });
            }
        }
        let left = |states: &States| {
            let mut left: Vec<bool> =
                states.iter().flat_map(|state| std::iter::repeat_n(state.ended, each)).collect();
            for rank in states.iter().flat_map(|state| &state.left) {
                left.get_mut(*rank as usize).into_iter().for_each(|left| *left = true);
            }
            left
        };
        let gone = left(before).into_iter().zip(left(now)).map(|(one, other)| one && other);
        let gone: Vec<bool> = gone.collect();
        let inside = gone.iter().filter(|gone| !**gone).count();
        let mut waits = vec![Vec::new(); now.len() * each];
        let processes = waits.chunks_mut(each).zip(before.iter().zip(now)).enumerate();
        for (process, (waits, (before, now))) in processes {
            keep_steady((process * each) as u32, before, now, waits);
        }
        Snapshot { each, now, traffic, gone, inside, waits, late: late(now) }
    }

    /// The ranks of which none can act any more unless another one of them does, where `quiet` says
    /// to which processes no packet is on its way.
    fn stuck(&self, quiet: impl Fn(usize) -> bool) -> Vec<bool> {
        let ranks = self.waits.len();
        // Whom a rank may release, directly or as the last that some round waits for.
        let mut by_rank: Vec<Vec<usize>> = vec![Vec::new(); ranks];
        let mut by_round: BTreeMap<(u64, u64), Vec<usize>> = BTreeMap::new();
        let mut by_any = Vec::new();
        let (mut stuck, mut free) = (vec![true; ranks], Vec::new());
        for rank in (0..ranks).filter(|rank| !self.gone[*rank]) {
            let waits = &self.waits[rank];
            let ends = |wait: &&Wait| match wait.on {
                WaitTarget::Nobody => true,
                WaitTarget::Rank(on) if on as usize >= ranks => true,
                WaitTarget::Round { context, round } => !self.late.contains_key(&(context, round)),
                _ if wait.polls && !self.is_for_gone(wait) => true,
                _ if wait.locks => !(0..self.traffic.len()).all(&quiet),
                _ => wait.takes && !quiet(rank / self.each),
            };
            if waits.is_empty() || waits.iter().any(ends) {
                stuck[rank] = false;
                free.push(rank);
            }
            for wait in waits {
                match wait.on {
                    WaitTarget::Rank(on) => {
                        by_rank.get_mut(on as usize).into_iter().for_each(|released| {
                            released.push(rank);
                        })
                    }
                    WaitTarget::Any => by_any.push(rank),
                    WaitTarget::Round { context, round } => {
                        by_round.entry((context, round)).or_default().push(rank);
                    }
                    WaitTarget::Nobody => {}
                }
            }
        }
        let mut late_in: BTreeMap<u32, Vec<(u64, u64)>> = BTreeMap::new();
        for round in by_round.keys() {
            let late = self.late.get(round).into_iter().flatten();
            late.for_each(|leader| late_in.entry(*leader).or_default().push(*round));
        }
        while let Some(rank) = free.pop() {
            let mut released = std::mem::take(&mut by_rank[rank]);
            released.append(&mut by_any);
            for round in late_in.remove(&(rank as u32)).unwrap_or_default() {
                released.append(&mut by_round.remove(&round).unwrap_or_default());
            }
            free.extend(released.into_iter().filter(|it| std::mem::take(&mut stuck[*it])));
        }
        stuck.iter().zip(&self.gone).map(|(stuck, gone)| *stuck && !gone).collect()
    }

    /// Whether all who could send what a rank polls for have left.
    fn is_for_gone(&self, wait: &Wait) -> bool {
        match wait.on {
            WaitTarget::Rank(rank) => self.gone.get(rank as usize) == Some(&true),
            _ => self.inside == 1,
        }
    }

    /// The ranks that could end a wait.
    fn releasers(&self, wait: &Wait) -> Vec<u32> {
        match wait.on {
            WaitTarget::Rank(rank) => vec![rank],
            WaitTarget::Any => {
                (0..self.waits.len() as u32).filter(|rank| *rank != wait.rank).collect()
            }
            WaitTarget::Round { context, round } => {
                self.late.get(&(context, round)).cloned().unwrap_or_default()
            }
            WaitTarget::Nobody => Vec::new(),
        }
    }

    /// In words, why the first of the stuck ranks waits; where one of the waits on which that
    /// depends is for a rank that has left, that.
    fn cycle(&self, first: usize, stuck: &[bool]) -> Fault {
        let (mut open, mut reached) = (vec![first as u32], BTreeSet::from([first as u32]));
        let mut any = false;
        while let Some(rank) = open.pop() {
            for wait in &self.waits[rank as usize] {
                // All are reached by the first wait for any.
                if wait.on == WaitTarget::Any && std::mem::replace(&mut any, true) {
                    continue;
                }
                let releasers = self.releasers(wait);
                let gone = |rank: &u32| self.gone.get(*rank as usize).is_some_and(|gone| *gone);
                let left = match wait.on {
                    WaitTarget::Any if !releasers.iter().all(gone) => None,
                    _ => releasers.iter().copied().find(gone),
                };
                if let Some(rank) = left {
                    let waiting = format!("rank {}: {}", wait.rank, wait.call);
                    return Fault::Left { rank: rank as usize, waiting };
                }
                let next = releasers.into_iter().filter(|next| {
                    stuck.get(*next as usize).is_some_and(|stuck| *stuck) && reached.insert(*next)
                });
                open.extend(next);
            }
        }
        let waits = reached.iter().flat_map(|rank| &self.waits[*rank as usize]);
        let calls = waits.map(|wait| (wait.rank as usize, wait.call.clone()));
        Fault::Deadlock { calls: by_call(calls) }
    }
}

/// Of each rank of a process, the first of which is `first`, its waits, if it did nothing but wait
/// from the one look to the other.
fn keep_steady<'a>(
    first: u32,
    before: &ProcessState,
    now: &'a ProcessState,
    waits: &mut [Vec<&'a Wait>],
) {
    let known: BTreeSet<_> = before.waits.iter().map(Wait::identity).collect();
    let mut counts = vec![(0usize, 0usize); waits.len()];
    let at = |wait: &Wait| wait.rank.checked_sub(first).map_or(usize::MAX, |at| at as usize);
    for wait in &before.waits {
        counts.get_mut(at(wait)).into_iter().for_each(|(before, _)| *before += 1);
    }
    let lasts = |wait: &Wait| wait.confirmed > before.clock && known.contains(&wait.identity());
    for wait in &now.waits {
        let Some(waits) = waits.get_mut(at(wait)) else { continue };
        waits.push(wait);
        counts[at(wait)].1 += usize::from(lasts(wait));
    }
    let idle: BTreeSet<u32> = before.idle.iter().chain(&now.idle).copied().collect();
    for (rank, (waits, counts)) in (first..).zip(waits.iter_mut().zip(counts)) {
        let all = counts == (waits.len(), waits.len());
        if !all || idle.contains(&rank) || !waits.iter().any(|wait| wait.own) {
            waits.clear();
        }
    }
}

/// The leaders that have not come to the rounds in which others wait; none of those to which all
/// have.
fn late(states: &States) -> BTreeMap<(u64, u64), Vec<u32>> {
    let mut progress: BTreeMap<(u64, u32), u64> = BTreeMap::new();
    let mut leaders: BTreeMap<u64, &[u32]> = BTreeMap::new();
    for it in states.iter().flat_map(|state| &state.comms) {
        progress.insert((it.context, it.leader), it.rounds.last);
        leaders.insert(it.context, &it.leaders);
    }
    let mut late = BTreeMap::new();
    for wait in states.iter().flat_map(|state| &state.waits) {
        let WaitTarget::Round { context, round } = wait.on else { continue };
        late.entry((context, round)).or_insert_with(|| {
            let leaders = leaders.get(&context).copied().unwrap_or_default().iter().copied();
            let has_come = |leader: &u32| progress.get(&(context, *leader)) >= Some(&round);
            leaders.filter(|leader| !has_come(leader)).collect::<Vec<u32>>()
        });
    }
    late.retain(|_, leaders| !leaders.is_empty());
    late
}

#[cfg(test)]
mod tests;
