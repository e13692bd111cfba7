use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::*};

use super::*;
use crate::Spmd;
use crate::wait::relax;

/// Ends a wait when it is put on record.
struct OnRecord;

impl WaitHooks for OnRecord {
    fn interrupted(&self) -> Option<Error> {
        None
    }
    fn awake(&mut self) {}
    fn overdue(&mut self, _: Duration, _: &mut dyn FnMut() -> bool) -> Result<()> {
        Err(Error::argument("it is on record".into()))
    }
}

#[test]
fn a_wait_of_long_looks_is_soon_on_record() {
    // An MPI library lets others run whenever it has nothing to do.
    let mut looks = 0;
    let look = || {
        looks += 1;
        std::thread::sleep(Duration::from_millis(5));
        None::<()>
    };
    let word = AtomicU32::new(0);
    let bell = Bell::new(&word, None).polled(true);
    until(|| bell, &Policy::new(1, 3), &mut OnRecord, look).expect_err("it never comes");
    assert!(looks < 50, "{looks}");
}

#[test]
fn others_run_on_the_worker_of_a_rank_that_pauses() {
    let (pauses, went_on) = (AtomicBool::new(false), AtomicBool::new(false));
    let one_worker = Spmd::new(2).virtual_ranks().workers(1);
    let done = one_worker.run(|ctx| {
        if ctx.rank() == 1 {
            while !pauses.load(Acquire) {
                relax();
            }
            went_on.store(true, Release);
            return Ok(());
        }
        pauses.store(true, Release);
        let start = Instant::now();
        pause(Duration::from_millis(50));
        assert!(start.elapsed() >= Duration::from_millis(50));
        assert!(went_on.load(Acquire), "its worker stood still");
        Ok(())
    });
    done.expect("no rank fails");
}
