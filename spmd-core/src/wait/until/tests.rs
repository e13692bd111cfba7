use std::sync::atomic::AtomicU32;

use super::*;

/// Ends a wait when it is put on record.
struct OnRecord;

impl Watch for OnRecord {
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
    until(bell, &Policy::new(1, 3), &mut OnRecord, look).expect_err("it never comes");
    assert!(looks < 50, "{looks}");
}
