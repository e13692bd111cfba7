//! The scheduler as a whole. Conditions are awaited by hand here: set it, then wake.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use super::*;

fn run_simply(ranks: usize, workers: usize, body: &(dyn Fn(usize) + Sync)) {
    let panics = run(&SchedulerOptions::new(ranks, workers), body, &|| (), |_| ()).unwrap();
    assert_eq!(panics.len(), ranks);
    assert!(panics.iter().all(Option::is_none));
}

const SHAPES: [(usize, usize); 9] =
    [(1, 1), (2, 1), (7, 1), (1000, 1), (4096, 1), (2, 2), (7, 2), (1000, 2), (4096, 2)];

/// A place where one rank waits for a value.
#[derive(Default)]
struct Cell {
    full: AtomicBool,
    waiter: Mutex<Option<Home>>,
}

impl Cell {
    fn fill(&self) {
        self.full.store(true, SeqCst);
        let waiter = self.waiter.lock().unwrap().take();
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }

    fn wait(&self) {
        while !self.full.swap(false, SeqCst) {
            *self.waiter.lock().unwrap() = current();
            if self.full.load(SeqCst) {
                continue;
            }
            suspend();
        }
    }
}

fn cells(count: usize) -> Vec<Cell> {
    (0..count).map(|_| Cell::default()).collect()
}

/// All wait until the last has come, in rounds.
#[derive(Default)]
struct Barrier {
    arrived: AtomicUsize,
    waiters: Mutex<Vec<Home>>,
}

impl Barrier {
    fn wait(&self, ranks: usize) {
        let mut waiters = self.waiters.lock().unwrap();
        let ticket = self.arrived.fetch_add(1, SeqCst) + 1;
        let complete = ticket.next_multiple_of(ranks);
        if ticket == complete {
            waiters.drain(..).for_each(|waiter| waiter.wake());
            return;
        }
        waiters.push(current().unwrap());
        drop(waiters);
        while self.arrived.load(SeqCst) < complete {
            suspend();
        }
    }
}

#[test]
fn every_rank_runs_once() {
    for (ranks, workers) in SHAPES.into_iter().chain([(0, 1), (3, 8)]) {
        let runs: Vec<AtomicUsize> = (0..ranks).map(|_| AtomicUsize::new(0)).collect();
        run_simply(ranks, workers, &|rank| {
            assert!(in_coroutine());
            runs[rank].fetch_add(1, SeqCst);
        });
        assert!(runs.iter().all(|runs| runs.load(SeqCst) == 1));
    }
    assert!(!in_coroutine());
    assert!(current().is_none());
    assert_eq!(suspend(), Resumed::Refused);
}

#[test]
fn token_goes_round() {
    for (ranks, workers) in SHAPES {
        let cells = cells(ranks);
        run_simply(ranks, workers, &|rank| {
            for _ in 0..3 {
                if rank > 0 {
                    cells[rank].wait();
                }
                cells[(rank + 1) % ranks].fill();
                if rank == 0 {
                    cells[0].wait();
                }
            }
        });
    }
}

#[test]
fn barriers_hold() {
    for (ranks, workers) in SHAPES {
        let barrier = Barrier::default();
        let round = AtomicUsize::new(0);
        run_simply(ranks, workers, &|_| {
            for expected in 0..4 {
                assert_eq!(round.load(SeqCst) / ranks, expected);
                barrier.wait(ranks);
                round.fetch_add(1, SeqCst);
                barrier.wait(ranks);
            }
        });
    }
}

#[test]
fn homes_are_their_own() {
    let homes = Mutex::new(Vec::new());
    run_simply(3, 2, &|_| {
        let home = current().unwrap();
        assert!(home.is_current());
        assert!(homes.lock().unwrap().iter().all(|other: &Home| !other.is_current()));
        homes.lock().unwrap().push(home);
    });
    // To wake what has ended is allowed.
    homes.lock().unwrap().iter().for_each(Home::wake);
}

/// Outside threads answer each rank as fast as they can. A rank looks at its answer only when
/// it is woken, so that a lost wake is not made good by a sweep.
#[test]
fn no_wake_from_outside_is_lost() {
    const RANKS: usize = 130;
    const ROUNDS: usize = 300;
    for spins in [0, 50] {
        let asked: Vec<AtomicBool> = (0..RANKS).map(|_| AtomicBool::new(false)).collect();
        let answers = cells(RANKS);
        let done = AtomicBool::new(false);
        let body = |rank: usize| {
            for _ in 0..ROUNDS {
                *answers[rank].waiter.lock().unwrap() = current();
                let start = Instant::now();
                asked[rank].store(true, SeqCst);
                while suspend() != Resumed::Woken || !answers[rank].full.swap(false, SeqCst) {
                    assert!(start.elapsed() < Duration::from_secs(20), "a wake was lost");
                }
            }
        };
        thread::scope(|scope| {
            for half in 0..2 {
                let (asked, answers, done) = (&asked, &answers, &done);
                scope.spawn(move || {
                    while !done.load(SeqCst) {
                        for rank in (half..RANKS).step_by(2) {
                            if asked[rank].swap(false, SeqCst) {
                                answers[rank].fill();
                            }
                        }
                        thread::yield_now();
                    }
                });
            }
            let options = SchedulerOptions { spins, ..SchedulerOptions::new(RANKS, 2) };
            let panics = run(&options, &body, &|| done.store(true, SeqCst), |_| ()).unwrap();
            assert!(panics.iter().all(Option::is_none));
        });
    }
}

#[test]
fn a_scheduler_within_a_scheduler() {
    let total = AtomicUsize::new(0);
    run_simply(4, 2, &|_| {
        let outer = current().unwrap();
        let barrier = Barrier::default();
        let inner = |rank| {
            assert!(!outer.is_current());
            barrier.wait(5);
            total.fetch_add(rank, SeqCst);
        };
        let panics = run(&SchedulerOptions::new(5, 2), &inner, &|| outer.wake(), |done| {
            while !done() {
                suspend();
            }
        });
        assert!(panics.unwrap().iter().all(Option::is_none));
        assert!(outer.is_current());
    });
    assert_eq!(total.load(SeqCst), 4 * 10);
}

#[test]
fn panics_come_back_by_rank() {
    let refusals = AtomicUsize::new(0);
    struct WaitsInDrop<'a>(&'a AtomicUsize);
    impl Drop for WaitsInDrop<'_> {
        fn drop(&mut self) {
            if suspend() == Resumed::Refused
                && suspend_for(Suspension::Poll { again: true }) == Resumed::Refused
            {
                self.0.fetch_add(1, SeqCst);
            }
        }
    }
    let body = |rank: usize| {
        suspend_for(Suspension::Poll { again: true });
        if rank % 3 == 1 {
            let _waits = WaitsInDrop(&refusals);
            panic::resume_unwind(Box::new(rank));
        }
        suspend_for(Suspension::Poll { again: true });
        assert!(!thread::panicking());
    };
    let panics = run(&SchedulerOptions::new(8, 2), &body, &|| (), |_| ()).unwrap();
    for (rank, panic) in panics.into_iter().enumerate() {
        let payload = panic.map(|payload| *payload.downcast::<usize>().unwrap());
        assert_eq!(payload, (rank % 3 == 1).then_some(rank));
    }
    assert_eq!(refusals.load(SeqCst), 3);
}

#[test]
fn a_panic_in_bind_reaches_the_caller() {
    let bind = |worker| {
        if worker == 1 {
            panic::resume_unwind(Box::new("no such core"));
        }
        Box::new(()) as Box<dyn Any>
    };
    let options = SchedulerOptions { bind: Box::new(bind), ..SchedulerOptions::new(4, 2) };
    let ran = AtomicUsize::new(0);
    let result = panic::catch_unwind(panic::AssertUnwindSafe(|| {
        run(&options, &|_| _ = ran.fetch_add(1, SeqCst), &|| (), |_| ())
    }));
    assert_eq!(*result.err().unwrap().downcast::<&str>().unwrap(), "no such core");
    assert_eq!(ran.load(SeqCst), 2);
}

#[test]
fn threads_are_named_and_the_end_is_told_once() {
    let ends = AtomicUsize::new(0);
    let options = SchedulerOptions { name: "vr".into(), ..SchedulerOptions::new(2, 2) };
    let body = |rank: usize| assert_eq!(thread::current().name(), Some(&*format!("vr{rank}")));
    let wait = |done: &dyn Fn() -> bool| {
        while !done() {
            thread::yield_now();
        }
    };
    let panics = run(&options, &body, &|| _ = ends.fetch_add(1, SeqCst), wait).unwrap();
    assert!(panics.iter().all(Option::is_none));
    assert_eq!(ends.load(SeqCst), 1);
}

#[test]
fn an_impossible_stack_is_an_error() {
    let options = SchedulerOptions { stack_size: usize::MAX / 2, ..SchedulerOptions::new(4, 1) };
    let error = run(&options, &|_| (), &|| (), |_| ()).err().unwrap();
    assert!(error.to_string().starts_with("reserving the stacks of virtual ranks"), "{error}");
}

#[test]
fn an_idle_worker_sweeps() {
    run_simply(3, 1, &|_| {
        let start = Instant::now();
        while suspend() != Resumed::Sweep {}
        assert!(start.elapsed() < Duration::from_secs(2));
        assert!(coarse_now() >= start);
    });
}

#[test]
fn a_busy_worker_sweeps() {
    let swept = AtomicBool::new(false);
    run_simply(2, 1, &|rank| {
        if rank == 0 {
            while suspend() != Resumed::Sweep {}
            swept.store(true, SeqCst);
        } else {
            let start = Instant::now();
            while !swept.load(SeqCst) {
                assert!(start.elapsed() < Duration::from_secs(5));
                current().unwrap().wake();
                suspend();
            }
        }
    });
}

/// A hundred looks take some 10 ms, and 20 s if only the sweeps brought them about.
#[test]
fn polling_sees_what_no_wake_tells() {
    let flags: Vec<AtomicBool> = (0..3).map(|_| AtomicBool::new(false)).collect();
    let polls = AtomicUsize::new(0);
    let start = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            while polls.load(SeqCst) < 3 * 100 {
                thread::sleep(Duration::from_millis(1));
            }
            flags.iter().for_each(|flag| flag.store(true, SeqCst));
        });
        run_simply(3, 1, &|rank| {
            while !flags[rank].load(SeqCst) {
                polls.fetch_add(1, SeqCst);
                suspend_for(Suspension::Poll { again: true });
            }
        });
    });
    assert!(start.elapsed() < Duration::from_secs(10));
}

/// Without waiting, the next rank uses the stack of the last.
#[test]
fn ranks_that_never_wait_share_a_stack() {
    let places = Mutex::new(Vec::new());
    run_simply(4096, 2, &|_| {
        let local = 0u8;
        let place = &raw const local as usize;
        let mut places = places.lock().unwrap();
        if !places.contains(&place) {
            places.push(place);
        }
    });
    assert!(places.into_inner().unwrap().len() <= 2);
}

/// What a rank of a debug build commonly does fits the default stack, and thousands at a time
/// fit a laptop.
#[test]
#[cfg(target_os = "linux")]
fn started_coroutines_take_little_memory() {
    const RANKS: usize = 4096;
    fn resident_kib() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
    let barrier = Barrier::default();
    let resident = AtomicUsize::new(0);
    let before = resident_kib();
    run_simply(RANKS, 1, &|rank| {
        let text = format!("{rank} {:.3e} {:?}", rank as f64 / 7.0, Some(vec![rank; 3]));
        let map: std::collections::HashMap<usize, &str> = [(rank, text.as_str())].into();
        barrier.wait(RANKS);
        resident.fetch_max(if rank == 0 { resident_kib() } else { 0 }, SeqCst);
        barrier.wait(RANKS);
        assert!(map[&rank].len() > 10);
    });
    let taken = resident.load(SeqCst).saturating_sub(before);
    assert!(taken < 200 << 10, "{taken} KiB");
}

#[cfg(target_os = "linux")]
mod overflow {
    use std::hint;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Output};

    use super::*;

    /// Runs one of the ignored tests below in a process of its own.
    fn child(test: &str) -> (Output, String) {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--nocapture", "--test-threads=1", "--exact"])
            .arg(format!("{}::{test}", module_path!().split_once("::").unwrap().1))
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        (output, stderr)
    }

    fn recurse(depth: usize) -> usize {
        let frame = hint::black_box([depth; 32]);
        if depth == 0 { 0 } else { recurse(hint::black_box(depth - 1)) + frame[7] }
    }

    #[test]
    fn is_reported_with_its_rank() {
        let (output, stderr) = child("child_overflows_in_a_rank");
        assert!(
            stderr.contains(
                "virtual rank 17 overflowed its stack of 1048576 bytes; enlarge it with \
                 Spmd::new(n).stack_size(bytes) or SPMD_STACK_SIZE=bytes\n"
            ),
            "{stderr}"
        );
        assert_eq!(output.status.signal(), Some(libc::SIGABRT));
    }

    #[test]
    #[ignore = "dies; run by is_reported_with_its_rank"]
    fn child_overflows_in_a_rank() {
        let barrier = Barrier::default();
        run_simply(4, 1, &|rank| {
            if rank == 0 {
                run_simply(30, 2, &|rank| {
                    barrier.wait(30);
                    if rank == 17 {
                        hint::black_box(recurse(usize::MAX));
                    }
                    barrier.wait(30);
                });
            }
        });
    }

    #[test]
    fn of_a_thread_is_left_to_the_standard_library() {
        let (output, stderr) = child("child_overflows_in_a_thread");
        assert!(stderr.contains("has overflowed its stack"), "{stderr}");
        assert!(!stderr.contains("virtual rank"), "{stderr}");
        assert_eq!(output.status.signal(), Some(libc::SIGABRT));
    }

    #[test]
    #[ignore = "dies; run by of_a_thread_is_left_to_the_standard_library"]
    fn child_overflows_in_a_thread() {
        run_simply(2, 1, &|_| ());
        hint::black_box(recurse(usize::MAX));
    }

    #[test]
    fn wild_accesses_end_by_sigsegv() {
        let (output, stderr) = child("child_reads_address_8");
        assert!(!stderr.contains("overflowed"), "{stderr}");
        assert_eq!(output.status.signal(), Some(libc::SIGSEGV));
    }

    #[test]
    #[ignore = "dies; run by wild_accesses_end_by_sigsegv"]
    fn child_reads_address_8() {
        run_simply(2, 1, &|_| {
            // SAFETY: not sound, as the test is about what happens then.
            unsafe { hint::black_box(std::ptr::without_provenance::<u64>(8).read_volatile()) };
        });
    }
}
