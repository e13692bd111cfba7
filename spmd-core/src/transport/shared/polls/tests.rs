use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// Polls of `poll` each, with `between` between them, until the loop is to end; `None` if it is
/// not within a hundred of them.
fn polls_until_the_end(
    hopeless: &Hopeless,
    (poll, between): (Duration, Duration),
    mut alone: impl FnMut() -> bool,
) -> Option<u32> {
    let mut now = Instant::now();
    let ended = |number: &u32| {
        let begin = hopeless.begins().map(|_| now + between);
        let end = now + between + poll;
        let (_, found) = hopeless.polled((begin, end), false, &mut alone);
        // In which others run, for long.
        now = end + 10 * SECOND;
        hopeless.goes_on(now);
        assert!(*number > 1 || begin.is_none());
        found == Some(Found::Hopeless)
    };
    (1..=100).find(ended)
}

#[test]
fn a_loop_that_only_polls_ends_after_three_seconds_of_polls() {
    let poll = (SECOND / 2, SECOND / 10);
    // The first poll only tells that those asked for have gone.
    assert_eq!(polls_until_the_end(&Hopeless::default(), poll, || true), Some(7));
}

#[test]
fn a_loop_that_works_between_its_polls_goes_on() {
    let poll = (SECOND / 2, SECOND / 4);
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
    assert!(!with(50, 120).does_little_else() && !with(300, 120).does_little_else());
    assert!(with(400, 120).does_little_else());
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
