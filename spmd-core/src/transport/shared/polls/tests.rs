use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// Polls of `poll` each, with `between` between them, until the loop is to end; `None` if it is
/// not within a hundred of them.
fn polls_until_the_end(
    hopeless: &Hopeless,
    times: (Duration, Duration),
    alone: impl FnMut() -> bool,
) -> Option<u32> {
    // In which others run, for long.
    polls_beside_others(hopeless, times, 10 * SECOND, 100, alone)
}

/// The same, with others that run for so long after each poll, within so many polls.
fn polls_beside_others(
    hopeless: &Hopeless,
    (poll, between): (Duration, Duration),
    others: Duration,
    most: u32,
    mut alone: impl FnMut() -> bool,
) -> Option<u32> {
    let mut now = Instant::now();
    let ended = |number: &u32| {
        let begin = hopeless.begins().map(|_| now + between);
        let end = now + between + poll;
        let (_, found) = hopeless.polled((begin, end), false, &mut alone);
        now = end + others;
        hopeless.goes_on(now);
        assert!(*number > 1 || begin.is_none());
        found == Some(Found::Hopeless)
    };
    (1..=most).find(ended)
}

#[test]
fn a_loop_that_only_polls_ends_after_three_seconds_of_polls() {
    let poll = (SECOND / 2, SECOND / 10);
    // The first poll only tells that those asked for have gone.
    assert_eq!(polls_until_the_end(&Hopeless::default(), poll, || true), Some(7));
}

/// On a machine where others have most of the time.
#[test]
fn a_loop_that_only_polls_ends_soon_though_others_run_for_long() {
    let end = |between| {
        let times = (Duration::from_nanos(200), Duration::from_nanos(between));
        let others = Duration::from_millis(1);
        polls_beside_others(&Hopeless::default(), times, others, 100_000, || true)
    };
    assert_eq!(end(50), Some(20_001));
    assert_eq!(end(500), None);
}

#[test]
fn a_loop_that_works_between_its_polls_goes_on() {
    let poll = (SECOND / 2, SECOND * 3 / 4);
    assert_eq!(polls_until_the_end(&Hopeless::default(), poll, || true), None);
}

/// However fast a poll is, and the loop around it slow.
#[test]
fn a_loop_is_told_from_work_by_the_time_of_its_turns() {
    let now = Instant::now();
    let nanos = |turn: u64| Duration::from_nanos(1000 * turn);
    let with = |poll, between| Loop {
        polling: nanos(poll),
        between: nanos(between),
        polls: 1000,
        ..Loop::new(now)
    };
    assert!(with(50, 60).does_little_else() && with(50, 10).does_little_else());
    assert!(!with(50, 120).does_little_else() && !with(110, 120).does_little_else());
    assert!(with(130, 120).does_little_else());
}

/// What another thread did before it ended, the loop sees after it has ended.
#[test]
fn a_loop_goes_on_while_somebody_else_can_act() {
    let poll = (SECOND / 2, Duration::ZERO);
    assert_eq!(polls_until_the_end(&Hopeless::default(), poll, || false), None);
    let mut looks = 0;
    let ended = polls_until_the_end(&Hopeless::default(), poll, || {
        looks += 1;
        looks > 1
    });
    assert_eq!((ended, looks), (Some(10), 3));
    let mut looks = 0;
    let by_turns = || {
        looks += 1;
        looks % 2 == 0
    };
    assert_eq!(polls_until_the_end(&Hopeless::default(), poll, by_turns), None);
}
