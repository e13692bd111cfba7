use std::cell::RefCell;

use crate::{Mode, Result, Spmd, spmd};

rank_local! {
    static OWN: RefCell<Vec<usize>> = RefCell::new(vec![100]);
    static FIRST: Noisy = Noisy("first");
    static SECOND: Noisy = Noisy("second");
}

static DROPPED: parking_lot::Mutex<Vec<&str>> = parking_lot::Mutex::new(Vec::new());

struct Noisy(&'static str);

impl Drop for Noisy {
    fn drop(&mut self) {
        DROPPED.lock().push(self.0);
        assert_eq!(OWN.try_with(|_| ()), None);
    }
}

fn own() -> Vec<usize> {
    OWN.with(|own| own.borrow().clone())
}

#[test]
fn every_rank_and_thread_has_its_own() {
    OWN.with(|own| own.borrow_mut().push(7));
    for mode in [Mode::Threads, Mode::Virtual] {
        let block = match mode {
            Mode::Threads => Spmd::new(5).threads(),
            _ => Spmd::new(5).virtual_ranks().workers(2),
        };
        let seen = block.run(|ctx| {
            let (me, n) = (ctx.rank(), ctx.size());
            OWN.with(|own| own.borrow_mut().push(me));
            // Others run on this thread meanwhile, also while the value is in use.
            OWN.with(|_| ctx.send(&[me], (me + 1) % n, 0))?;
            OWN.with(|_| ctx.recv(&mut [0usize], (me + n - 1) % n, 0).map(drop))?;
            assert_eq!(own(), [100, me]);
            let nested = spmd(2, |_| Ok(own()))?;
            assert_eq!(nested, [[100], [100]]);
            let thread = std::thread::scope(|scope| scope.spawn(own).join());
            assert_eq!(thread.expect("it does not panic"), [100]);
            Ok(own())
        });
        let expected: Vec<_> = (0..5).map(|rank| vec![100, rank]).collect();
        assert_eq!(seen.expect("all fits"), expected);
    }
    assert_eq!(own(), [100, 7]);
}

#[test]
fn values_are_dropped_when_their_rank_ends() -> Result<()> {
    Spmd::new(1).virtual_ranks().run(|_| {
        SECOND.with(|_| ());
        FIRST.with(|_| ());
        Ok(())
    })?;
    assert_eq!(*DROPPED.lock(), ["first", "second"]);
    std::thread::scope(|scope| scope.spawn(|| FIRST.with(|_| ())).join()).expect("it ends well");
    assert_eq!(*DROPPED.lock(), ["first", "second", "first"]);
    Ok(())
}

#[test]
fn a_panic_while_they_are_dropped_is_the_ranks() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            OWN.with(|_| ());
        }
    }
    rank_local! {
        static BOMB: Bomb = Bomb;
    }
    let ended = Spmd::new(2).virtual_ranks().run(|ctx| {
        if ctx.rank() == 1 {
            BOMB.with(|_| ());
        }
        Ok(())
    });
    let text = ended.expect_err("rank 1 panics").to_string();
    assert!(text.contains("being dropped"), "{text}");
}

/// What is dropped because of a panic panics, too: the others still learn that the rank has
/// ended.
#[test]
fn panics_without_end_while_they_are_dropped() {
    /// Panics with another one.
    struct Bomb(&'static str);
    impl Drop for Bomb {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                std::panic::panic_any(Bomb(self.0));
            }
        }
    }
    rank_local! {
        static FIRST_BOMB: Bomb = Bomb("first");
        static SECOND_BOMB: Bomb = Bomb("second");
    }
    for block in [Spmd::new(2).threads(), Spmd::new(2).virtual_ranks().workers(1)] {
        let ended = block.run(|ctx| {
            if ctx.rank() == 0 {
                return ctx.recv(&mut [0], 1, 0).map(|_| None);
            }
            FIRST_BOMB.with(|_| ());
            SECOND_BOMB.with(|_| ());
            Ok(Some(Bomb("value")))
        });
        let ended = ended.map(|values| values.len());
        assert!(
            matches!(&ended, Err(crate::Error::Panicked(panic)) if panic.rank == 1),
            "{ended:?}"
        );
    }
}
