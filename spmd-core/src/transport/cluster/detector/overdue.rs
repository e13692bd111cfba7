//! The time limit of native calls, which cannot see for themselves how long they wait.

use std::time::{Duration, Instant};

use super::shared::LOOK;
use super::state::{ProcessState, Wait, WaitTarget};
use crate::error::{Error, Timeout};
use crate::fault::{Cause, Fault};

/// The waits of this process's leaders for other processes, and when each was first seen.
#[derive(Default)]
pub(super) struct Overdue(Vec<(Wait, Instant)>);

impl Overdue {
    /// The failure of a rank that has waited longer than the limit, and a little more, in which
    /// waits that look at the clock themselves have come to their end.
    pub(super) fn snapshot(
        &mut self,
        state: &ProcessState,
        limit: Option<Duration>,
    ) -> Option<Fault> {
        let limit = limit?;
        let rounds = state.waits.iter().filter(|wait| matches!(wait.on, WaitTarget::Round { .. }));
        let seen = |wait: &Wait| self.0.iter().find(|(known, _)| known == wait).map(|it| it.1);
        let since = |wait: &Wait| (wait.clone(), seen(wait).unwrap_or_else(Instant::now));
        let waits: Vec<(Wait, Instant)> = rounds.map(since).collect();
        self.0 = waits;
        let late = |(_, since): &&(Wait, Instant)| since.elapsed() > limit + LOOK;
        let (wait, _) = self.0.iter().find(late)?;
        let (call, waiting_for) = (wait.call.clone(), "ranks of other processes".into());
        let cause = Cause::Returned(
            Error::Timeout(Box::new(Timeout { call, waiting_for, limit })).to_string(),
        );
        Some(Fault::Rank { rank: wait.rank as usize, cause })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_overdue_when_it_has_been_the_same_for_the_limit_and_a_look() {
        let on = WaitTarget::Round { context: 1, round: 3 };
        let which = (1, 3);
        let (takes, locks, polls) = (false, false, false);
        let (confirmed, call) = (Wait::SURE, "barrier at a.rs:1".into());
        let wait = Wait { rank: 2, which, own: true, on, takes, locks, polls, confirmed, call };
        let state = ProcessState { waits: vec![wait], ..ProcessState::default() };
        let mut overdue = Overdue::default();
        let limit = Some(Duration::ZERO);
        assert_eq!(overdue.snapshot(&state, None), None);
        assert_eq!(overdue.snapshot(&state, limit), None);
        std::thread::sleep(LOOK + Duration::from_millis(1));
        assert_eq!(overdue.snapshot(&state, Some(Duration::from_secs(3600))), None);
        let fault = overdue.snapshot(&state, limit).expect("it has waited for longer");
        assert!(fault.to_string().contains("rank 2") && fault.to_string().contains("a.rs:1"));
        // It went on.
        assert_eq!(overdue.snapshot(&ProcessState::default(), limit), None);
        assert_eq!(overdue.snapshot(&state, limit), None);
    }
}
