use super::super::super::rounds::Rounds;
use super::*;

/// A look at processes of one rank each, which has its number; the `count`-th.
fn snapshots(states: &[ProcessState]) -> [Vec<ProcessState>; 2] {
    let at = |clock: u64| {
        let mut states = states.to_vec();
        for state in &mut states {
            state.clock = clock;
            let seen = state.waits.iter_mut().filter(|wait| wait.confirmed != Wait::SURE);
            seen.for_each(|wait| wait.confirmed = clock);
        }
        states
    };
    [at(1), at(2)]
}

/// What one pair of looks shows.
fn verdict(each: usize, before: Option<&States>, now: &States) -> Option<Fault> {
    super::verdict(each, before, now).map(|verdict| match verdict {
        Verdict::Different(fault) | Verdict::Stuck(_, fault) => fault,
    })
}

/// The verdict if nothing happens from one look to the other.
fn diagnosed(states: &[ProcessState]) -> Option<Fault> {
    let [before, now] = snapshots(states);
    verdict(1, Some(&before), &now)
}

fn wait(rank: u32, on: WaitTarget) -> Wait {
    let confirmed = if matches!(on, WaitTarget::Round { .. }) { Wait::SURE } else { 0 };
    let call = format!("call of {rank}");
    let (which, own, takes, locks, polls) = ((0, 1), true, false, false, false);
    Wait { rank, which, own, on, takes, locks, polls, confirmed, call }
}

fn receive(rank: u32, on: WaitTarget) -> Wait {
    Wait { takes: true, ..wait(rank, on) }
}

fn poll(rank: u32, on: WaitTarget) -> Wait {
    Wait { polls: true, ..receive(rank, on) }
}

fn progress(leader: u32, round: u64, prints: [u64; 4]) -> Progress {
    let calls = prints.iter().map(|print| format!("call {print}")).collect();
    let rounds = Rounds { last: round, prints, calls };
    Progress { context: 1, leader, rounds, leaders: vec![0, 1] }
}

fn all<const N: usize>(waits: [Option<Wait>; N]) -> Vec<ProcessState> {
    let state = |wait: Option<Wait>| ProcessState {
        waits: wait.into_iter().collect(),
        ..ProcessState::default()
    };
    waits.into_iter().map(state).collect()
}

fn two(waits: [Option<WaitTarget>; 2]) -> Vec<ProcessState> {
    let mut ranks = 0..;
    all(waits.map(|on| on.map(|on| wait(ranks.next().expect("as many as are wanted"), on))))
}

const ROUND_3: WaitTarget = WaitTarget::Round { context: 1, round: 3 };

#[test]
fn ranks_that_wait_for_each_other_are_a_cycle_at_the_second_look() {
    let states = two([Some(WaitTarget::Rank(1)), Some(WaitTarget::Rank(0))]);
    let Some(Fault::Deadlock { calls }) = diagnosed(&states) else { panic!("none") };
    assert_eq!(calls, ["rank 0: call of 0", "rank 1: call of 1"]);
    let [before, now] = snapshots(&states);
    assert_eq!(verdict(1, None, &now), None);
    assert_eq!(verdict(1, Some(&snapshots(&two([None, None]))[0]), &now), None);
    // One of them has not looked again since the first look.
    let mut unsure = now.clone();
    unsure[1].waits[0].confirmed = 1;
    assert_eq!(verdict(1, Some(&before), &unsure), None);
    // One of them waited for something else then.
    let mut other = before.clone();
    other[1].waits[0].which = (0, 3);
    assert_eq!(verdict(1, Some(&other), &now), None);
}

#[test]
fn who_computes_or_may_act_besides_its_waits_may_end_a_wait() {
    assert_eq!(diagnosed(&two([Some(WaitTarget::Rank(1)), None])), None);
    let mut states = two([Some(WaitTarget::Rank(1)), Some(WaitTarget::Rank(0))]);
    states[1].idle = vec![1];
    assert_eq!(diagnosed(&states), None);
    let mut states = two([Some(WaitTarget::Rank(1)), Some(WaitTarget::Rank(0))]);
    states[1].waits[0].own = false;
    assert_eq!(diagnosed(&states), None);
}

#[test]
fn data_on_their_way_end_a_wait() {
    let states = two([Some(WaitTarget::Rank(1)), Some(WaitTarget::Nobody)]);
    assert_eq!(diagnosed(&states), None);
}

#[test]
fn a_packet_on_its_way_ends_a_receive_of_its_process() {
    let mut states =
        all([Some(wait(0, WaitTarget::Rank(1))), Some(receive(1, WaitTarget::Rank(0)))]);
    states[0].sent = vec![(1, 1)];
    assert_eq!(diagnosed(&states), None);
    let [before, now] = snapshots(&states);
    assert_eq!(stalled(1, &before, &now), Some(1));
    // It has come since the first look.
    let mut came = now.clone();
    came[1].taken = 1;
    assert_eq!(verdict(1, Some(&before), &came), None);
    assert_eq!(stalled(1, &before, &came), None);
    states[1].taken = 1;
    assert!(matches!(diagnosed(&states), Some(Fault::Deadlock { .. })));
    assert_eq!(stalled(1, &snapshots(&states)[0], &snapshots(&states)[1]), None);
}

#[test]
fn a_packet_to_whichever_process_may_end_a_wait_for_a_lock() {
    let lock = Wait { locks: true, ..wait(0, WaitTarget::Any) };
    let mut states = all([Some(lock), Some(wait(1, WaitTarget::Rank(0))), None]);
    states[2].ended = true;
    assert!(matches!(diagnosed(&states), Some(Fault::Deadlock { .. })));
    states[1].sent = vec![(2, 1)];
    assert_eq!(diagnosed(&states), None);
    let [before, now] = snapshots(&states);
    assert_eq!(stalled(1, &before, &now), Some(1));
    states[2].taken = 1;
    assert!(matches!(diagnosed(&states), Some(Fault::Deadlock { .. })));
}

#[test]
fn a_packet_to_who_does_not_receive_ends_nothing() {
    // A synchronous send to a rank that is in a round, to which the sender has not come.
    let mut states = two([Some(WaitTarget::Rank(1)), Some(ROUND_3)]);
    states[0].comms = vec![progress(0, 2, [2, 1, 0, 0])];
    states[1].comms = vec![progress(1, 3, [3, 2, 1, 0])];
    states[0].sent = vec![(1, 1)];
    assert!(matches!(diagnosed(&states), Some(Fault::Deadlock { .. })));
    // To one that has left.
    let mut states = two([Some(WaitTarget::Rank(1)), None]);
    states[0].sent = vec![(1, 1)];
    states[1].ended = true;
    assert!(matches!(diagnosed(&states), Some(Fault::Left { rank: 1, .. })));
    assert_eq!(stalled(1, &snapshots(&states)[0], &snapshots(&states)[1]), None);
}

#[test]
fn what_others_send_each_other_ends_no_wait() {
    let busy = Some(wait(3, WaitTarget::Rank(2)));
    let mut states = all([
        Some(receive(0, WaitTarget::Rank(1))),
        Some(receive(1, WaitTarget::Rank(0))),
        None,
        busy,
    ]);
    states[2].sent = vec![(3, 7)];
    let [before, mut now] = snapshots(&states);
    now[2].sent = vec![(3, 9)];
    now[3].taken = 8;
    let Some(Fault::Deadlock { calls }) = verdict(1, Some(&before), &now) else { panic!("none") };
    assert_eq!(calls, ["rank 0: call of 0", "rank 1: call of 1"]);
}

#[test]
fn whoever_waits_for_one_that_has_left_is_told_so() {
    let mut states = two([Some(WaitTarget::Rank(1)), None]);
    states[1].ended = true;
    let waiting = "rank 0: call of 0".to_owned();
    assert_eq!(diagnosed(&states), Some(Fault::Left { rank: 1, waiting: waiting.clone() }));
    // Only at the second look: it may have done something before.
    let [mut before, now] = snapshots(&states);
    before[1].ended = false;
    assert_eq!(verdict(1, Some(&before), &now), None);
    // It waits for any, and all have left.
    states[0].waits[0].on = WaitTarget::Any;
    assert_eq!(diagnosed(&states), Some(Fault::Left { rank: 1, waiting }));
    let mut states = two([Some(ROUND_3), None]);
    states[0].comms = vec![progress(0, 3, [9, 8, 7, 0])];
    assert_eq!(diagnosed(&states), None);
    states[1].ended = true;
    assert!(matches!(diagnosed(&states), Some(Fault::Left { rank: 1, .. })));
}

/// Two ranks of one process, the second of which has left, and one of another.
#[test]
fn a_rank_that_has_left_before_others_of_its_process_ends_no_wait() {
    let mut states = all([Some(wait(0, WaitTarget::Rank(2))), Some(wait(2, WaitTarget::Rank(1)))]);
    let diagnosed = |states: &[ProcessState]| {
        let [before, now] = snapshots(states);
        verdict(2, Some(&before), &now)
    };
    states[0].waits.clear();
    assert_eq!(diagnosed(&states), None);
    states[0].left = vec![1];
    assert!(matches!(diagnosed(&states), Some(Fault::Left { rank: 1, .. })));
}

#[test]
fn different_calls_are_found_in_the_first_round_in_which_they_differ() {
    let round = |round| Some(WaitTarget::Round { context: 1, round });
    let mut states = two([round(3), round(4)]);
    states[0].comms = vec![progress(0, 3, [30, 20, 10, 0])];
    states[1].comms = vec![progress(1, 4, [41, 31, 20, 10])];
    let Some(Fault::Mismatch { calls, .. }) = diagnosed(&states) else { panic!() };
    assert_eq!(calls, ["rank 0: call 30", "rank 1: call 31"]);
    states[1].comms = vec![progress(1, 4, [41, 30, 20, 10])];
    assert_eq!(diagnosed(&states), None);
}

#[test]
fn cycles_go_through_rounds_and_messages() {
    let mut states = two([Some(ROUND_3), Some(WaitTarget::Rank(0))]);
    states[0].comms = vec![progress(0, 3, [3, 2, 1, 0])];
    states[1].comms = vec![progress(1, 2, [2, 1, 0, 0])];
    assert!(matches!(diagnosed(&states), Some(Fault::Deadlock { .. })));
    states[1].comms = vec![progress(1, 3, [3, 2, 1, 0])];
    assert_eq!(diagnosed(&states), None);
    // It has dropped the communicator.
    states[1].comms.clear();
    assert!(matches!(diagnosed(&states), Some(Fault::Deadlock { .. })));
    // It computes: it may be about to make it.
    states[1].waits.clear();
    assert_eq!(diagnosed(&states), None);
}

#[test]
fn communicators_that_cross_are_a_cycle() {
    let other = WaitTarget::Round { context: 2, round: 1 };
    let mut states = two([Some(ROUND_3), Some(other)]);
    let of_other = |leader, round| Progress { context: 2, ..progress(leader, round, [0; 4]) };
    states[0].comms = vec![progress(0, 3, [3, 2, 1, 0]), of_other(0, 0)];
    states[1].comms = vec![progress(1, 2, [2, 1, 0, 0]), of_other(1, 1)];
    let Some(Fault::Deadlock { calls }) = diagnosed(&states) else { panic!("none") };
    assert_eq!(calls, ["rank 0: call of 0", "rank 1: call of 1"]);
}

/// What other processes say may be anything.
#[test]
fn nonsense_is_diagnosed() {
    let far = u64::MAX;
    let states = [
        ProcessState {
            waits: vec![receive(u32::MAX, WaitTarget::Rank(u32::MAX)), receive(7, WaitTarget::Any)],
            ..both()
        },
        ProcessState { sent: vec![(0, far), (1, far), (9, far)], taken: far, ..both() },
        ProcessState { comms: vec![progress(u32::MAX, far, [1, 2, 3, 4])], ..both() },
        ProcessState {
            comms: vec![progress(0, 3, [1, 2, 3, 4]), progress(1, far, [5; 4])],
            ..both()
        },
        ProcessState { left: vec![u32::MAX], idle: vec![u32::MAX, 1], clock: far, ..both() },
    ];
    for one in &states {
        for other in &states {
            let [before, now] = snapshots(&[one.clone(), other.clone()]);
            let _ = (verdict(1, Some(&before), &now), stalled(1, &before, &now));
        }
    }
}

fn both() -> ProcessState {
    ProcessState {
        waits: vec![receive(0, WaitTarget::Rank(1)), receive(1, WaitTarget::Rank(0))],
        ..ProcessState::default()
    }
}

/// A loop that polls may be left at any time, whatever it polls for waits for: unless that has
/// left.
#[test]
fn who_polls_waits_for_nobody_but_those_who_have_left() {
    let left = || ProcessState { ended: true, ..ProcessState::default() };
    let states = |on, rest: [ProcessState; 2]| [all([Some(poll(0, on))]), rest.into()].concat();
    let waiting =
        all([Some(receive(1, WaitTarget::Rank(0))), Some(receive(2, WaitTarget::Rank(0)))]);
    let waiting = |at: usize| waiting[at].clone();
    for on in [WaitTarget::Rank(1), WaitTarget::Any] {
        assert_eq!(diagnosed(&states(on, [waiting(0), waiting(1)])), None);
        let Some(Fault::Left { rank: 1, waiting }) = diagnosed(&states(on, [left(), left()]))
        else {
            panic!("it polls for ever");
        };
        assert_eq!(waiting, "rank 0: call of 0");
    }
    let told = diagnosed(&states(WaitTarget::Rank(1), [left(), waiting(1)]));
    assert!(matches!(told, Some(Fault::Left { rank: 1, .. })), "{told:?}");
    assert_eq!(diagnosed(&states(WaitTarget::Any, [left(), waiting(1)])), None);
    // What it polls for is on its way.
    let mut sent = states(WaitTarget::Rank(1), [left(), left()]);
    sent[1].sent = vec![(0, 1)];
    assert_eq!(diagnosed(&sent), None);
}
