//! Notices: whose fault has which number, for those that look at each fault once.

use std::cmp::Ordering::{Equal, Greater, Less};
use std::ops::RangeInclusive;

use crate::sync::atomic::{AtomicU64, Ordering::*};

/// In notices, instead of a rank: the fault stops everything.
pub(super) const EVERYBODY: u32 = u32::MAX;

/// Announces fault `number` of `by`. A later one may have taken its place: then it stays.
pub(super) fn announce(notice: &AtomicU64, number: u32, by: u32) {
    notice.fetch_max(u64::from(number) << 32 | u64::from(by), AcqRel);
}

/// Whose fault has this number.
enum Whose {
    Of(u32),
    /// It is being written.
    Open,
    /// It was too long ago.
    Forgotten,
}

fn whose(notice: &AtomicU64, number: u32, patience: &mut u32) -> Whose {
    loop {
        let notice = notice.load(Acquire);
        match ((notice >> 32) as u32).cmp(&number) {
            Equal => return Whose::Of(notice as u32),
            Greater => return Whose::Forgotten,
            Less if *patience == 0 => return Whose::Open,
            Less => *patience -= 1,
        }
        crate::sync::spin();
    }
}

/// What a look at the faults gives that nobody has looked at before.
pub(super) enum Look<T> {
    Found(T),
    /// There are more than notices.
    TooMany,
    /// Nothing up to this number.
    Nothing(u32),
}

pub(super) fn look_at<'a, T>(
    numbers: RangeInclusive<u32>,
    mut patience: u32,
    notice: impl Fn(u32) -> &'a AtomicU64,
    mut see: impl FnMut(u32, u32) -> Option<T>,
) -> Look<T> {
    let mut done = numbers.start() - 1;
    for number in numbers {
        match whose(notice(number), number, &mut patience) {
            Whose::Forgotten => return Look::TooMany,
            Whose::Open => {}
            Whose::Of(by) => {
                if let Some(found) = see(number, by) {
                    return Look::Found(found);
                }
                if done + 1 == number {
                    done = number;
                }
            }
        }
    }
    Look::Nothing(done)
}

#[cfg(all(test, not(loom)))]
mod tests_of_nonsense {
    use super::super::place::next_number;
    use super::*;
    use crate::sync::atomic::AtomicU32;

    /// A hostile process can write any number over the count and the notices.
    #[test]
    fn any_count_and_any_notice_can_be_read() {
        for count in [0, 1, u32::MAX / 2, u32::MAX - 2, u32::MAX - 1, u32::MAX] {
            let claimed = AtomicU32::new(count);
            for _ in 0..4 {
                let number = next_number(&claimed);
                assert!((1..u32::MAX).contains(&number), "{number} after {count}");
            }
            for notice in [0, 1 << 32, u64::from(count) << 32, u64::MAX] {
                let notice = AtomicU64::new(notice);
                let from = count.saturating_add(1);
                for to in [0, from, from.saturating_add(2)] {
                    look_at(from..=to, 2, |_| &notice, |_, _| None::<()>);
                }
            }
        }
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::super::place::{next_number, tests::place};
    use super::*;
    use crate::sync::atomic::AtomicU32;
    use crate::transport::shared::layout::FaultPlace;
    use loom::sync::Arc;
    use loom::thread;

    struct NoticeLog {
        claimed: AtomicU32,
        ready: AtomicU32,
        notices: [AtomicU64; 2],
        places: [FaultPlace<1>; 2],
    }

    impl NoticeLog {
        fn raise(&self, by: usize) {
            let number = || next_number(&self.claimed);
            let number = self.places[by].put(0, &[by as u8], number).unwrap();
            announce(&self.notices[number as usize % 2], number, by as u32);
            self.ready.fetch_add(1, AcqRel);
        }

        /// What is found after `examined`, and how far that is.
        fn look(&self, examined: u32, seen: &mut Vec<(u32, u32)>) -> u32 {
            let notice = |number: u32| &self.notices[number as usize % 2];
            let see = |number, by: u32| {
                let written = self.places[by as usize].get().expect("it is complete");
                assert_eq!((written.number, written.text[0] as u32), (number, by));
                seen.push((number, by));
                None::<()>
            };
            let claimed = self.claimed.load(Acquire);
            match look_at(examined + 1..=claimed, 1, notice, see) {
                Look::Nothing(done) => done,
                _ => panic!("there are no more faults than notices"),
            }
        }
    }

    /// Who looks again whenever `ready` has moved on sees every fault, however late its writer is.
    #[test]
    fn loom_no_fault_is_missed() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let word = || AtomicU32::new(0);
            let log = Arc::new(NoticeLog {
                claimed: word(),
                ready: word(),
                notices: [AtomicU64::new(0), AtomicU64::new(0)],
                places: [place(), place()],
            });
            let theirs = log.clone();
            let other = thread::spawn(move || theirs.raise(1));
            let late = log.clone();
            let another = thread::spawn(move || late.raise(0));
            let (mut seen, mut examined, mut ready) = (Vec::new(), 0, 0);
            while ready < 2 {
                let now = log.ready.load(Acquire);
                if now == ready {
                    thread::yield_now();
                    continue;
                }
                ready = now;
                examined = log.look(examined, &mut seen);
            }
            assert_eq!(examined, 2);
            assert!([0, 1].iter().all(|by| seen.iter().any(|(_, seen)| seen == by)));
            other.join().unwrap();
            another.join().unwrap();
        });
    }
}
