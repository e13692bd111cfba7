use super::*;
use crate::error::Error;

struct Ranks {
    nodes: Vec<Node>,
    #[cfg(loom)]
    bells: Vec<loom::sync::Notify>,
}

impl Queue for Ranks {
    fn node(&self, rank: usize) -> Result<&Node> {
        self.nodes.get(rank).ok_or_else(|| self.corrupt())
    }

    fn ranks(&self) -> usize {
        self.nodes.len()
    }

    fn wake(&self, _rank: usize) {
        #[cfg(loom)]
        self.bells[_rank].notify();
    }

    fn corrupt(&self) -> Error {
        Error::corrupt(0, "a queue")
    }
}

fn lock() -> Lock {
    Lock { word: AtomicU64::new(0), first: AtomicU32::new(0), holder: AtomicU32::new(0) }
}

fn ranks(count: usize) -> Ranks {
    let word = || AtomicU32::new(0);
    let node = |_| Node { before: word(), next: word(), mode: word(), granted: word() };
    Ranks {
        nodes: (0..count).map(node).collect(),
        #[cfg(loom)]
        bells: (0..count).map(|_| loom::sync::Notify::new()).collect(),
    }
}

#[cfg(not(loom))]
mod alone {
    use super::*;

    fn has(lock: &Lock, queue: &Ranks, rank: usize) -> bool {
        lock.is_granted(rank, &queue.nodes[rank])
    }

    #[test]
    fn nobody_overtakes_another_and_neighbours_share() {
        let (lock, queue) = (lock(), ranks(7));
        let enter = |rank, mode| lock.enter(rank, mode, &queue).unwrap();
        assert!(enter(0, Mode::Shared) && enter(1, Mode::Shared));
        assert!(!enter(2, Mode::Exclusive) && !enter(3, Mode::Shared) && !enter(4, Mode::Shared));
        assert!(!enter(5, Mode::SharedToo) && !enter(6, Mode::Shared));
        assert_eq!(lock.holder(), Some(1));
        lock.leave(1, &queue).unwrap();
        assert_eq!((has(&lock, &queue, 2), lock.holder()), (false, None));
        lock.leave(0, &queue).unwrap();
        assert!(has(&lock, &queue, 2) && !has(&lock, &queue, 3));
        assert_eq!(lock.holder(), Some(2));
        // It waits behind the others.
        assert!(!enter(0, Mode::Exclusive));
        lock.leave(2, &queue).unwrap();
        assert!(has(&lock, &queue, 3) && has(&lock, &queue, 4));
        assert!(!has(&lock, &queue, 5) && !has(&lock, &queue, 6));
        lock.leave(3, &queue).unwrap();
        lock.leave(4, &queue).unwrap();
        assert!(has(&lock, &queue, 5) && !has(&lock, &queue, 6));
        lock.leave(5, &queue).unwrap();
        assert!(has(&lock, &queue, 6) && !has(&lock, &queue, 0));
        lock.leave(6, &queue).unwrap();
        assert!(has(&lock, &queue, 0));
        lock.leave(0, &queue).unwrap();
        assert_eq!((lock.word.load(Relaxed), lock.holder()), (0, None));
    }

    #[test]
    fn what_no_rank_writes_is_an_error() {
        let (lock, queue) = (lock(), ranks(3));
        assert!(lock.leave(0, &queue).is_err());
        assert!(lock.enter(0, Mode::Exclusive, &queue).unwrap());
        assert!(!lock.enter(1, Mode::Exclusive, &queue).unwrap());
        assert!(!lock.enter(2, Mode::Exclusive, &queue).unwrap());
        // A circle, then a rank that there is not.
        queue.nodes[1].before.store(3, Relaxed);
        assert!(lock.leave(0, &queue).is_err());
        queue.nodes[1].before.store(9, Relaxed);
        assert!(lock.leave(0, &queue).is_err());
    }
}

#[cfg(loom)]
mod checked {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    type Shared = (Lock, Ranks, UnsafeCell<usize>);

    /// Rank `me` takes the lock again and again, and writes if it has it alone, else reads.
    fn run((lock, queue, value): &Shared, me: usize, mode: Mode, turns: usize) {
        for _ in 0..turns {
            if !lock.enter(me, mode, queue).unwrap() {
                while !lock.is_granted(me, &queue.nodes[me]) {
                    queue.bells[me].wait();
                }
            }
            if mode == Mode::Exclusive {
                // SAFETY: the lock is this rank's alone; loom checks that nobody is here.
                value.with_mut(|value| unsafe { *value += 1 });
            } else {
                // SAFETY: the lock is shared; loom checks that nobody writes.
                value.with(|value| unsafe { *value });
            }
            lock.leave(me, queue).unwrap();
        }
    }

    /// Each rank does so in its mode. Loom sees every order in which two could be there that must not.
    fn check(modes: &'static [Mode], turns: usize) {
        let mut model = loom::model::Builder::new();
        // Three ranks take turns by waiting for each other as well.
        model.preemption_bound = Some(if modes.len() > 2 { 2 } else { 3 });
        model.check(move || {
            let shared = Arc::new((lock(), ranks(modes.len()), UnsafeCell::new(0)));
            let start = |me: usize| {
                let shared = shared.clone();
                thread::spawn(move || run(&shared, me, modes[me], turns))
            };
            let others: Vec<_> = (1..modes.len()).map(start).collect();
            run(&shared, 0, modes[0], turns);
            others.into_iter().for_each(|it| it.join().unwrap());
            let alone = modes.iter().filter(|mode| **mode == Mode::Exclusive).count();
            // SAFETY: all others have ended.
            assert_eq!(shared.2.with(|value| unsafe { *value }), alone * turns);
            assert_eq!((shared.0.word.load(Relaxed), shared.0.holder()), (0, None));
        });
    }

    #[test]
    fn loom_two_exclude_each_other_again_and_again() {
        check(&[Mode::Exclusive, Mode::Exclusive], 2);
    }

    #[test]
    fn loom_three_exclude_each_other() {
        check(&[Mode::Exclusive, Mode::Exclusive, Mode::Exclusive], 1);
    }

    #[test]
    fn loom_two_share_what_excludes_the_third() {
        check(&[Mode::Exclusive, Mode::Shared, Mode::Shared], 1);
    }

    #[test]
    fn loom_two_ways_to_share_exclude_each_other() {
        check(&[Mode::Shared, Mode::SharedToo, Mode::Exclusive], 1);
    }
}
