//! Workers that a rank holds although it waits: outside the library, as for a thread that it joins.
//! No other rank of the worker runs then; a thread that waits for one of them waits for ever, if
//! that thread is the one to be joined.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::{Duration, Instant};

thread_local! {
    /// The workers that this thread has seen stand still: their threads, how often each had been
    /// suspended, and since when.
    static SEEN: RefCell<HashMap<i32, (u64, Instant)>> = RefCell::default();
}

/// For how long, as far as this thread has seen, the thread of this number has been in one wait
/// that only another thread ends. The waits of this library all have an end.
pub(super) fn stands_still(thread: i32) -> Duration {
    SEEN.with_borrow_mut(|seen| {
        let Some(count) = endless_wait(thread) else {
            seen.remove(&thread);
            return Duration::ZERO;
        };
        let now = Instant::now();
        let (before, since) = seen.entry(thread).or_insert((count, now));
        if *before != count {
            (*before, *since) = (count, now);
        }
        now - *since
    })
}

/// How often the thread has gone to sleep, if it sleeps on a futex without a time limit.
#[cfg(target_os = "linux")]
fn endless_wait(thread: i32) -> Option<u64> {
    let read =
        |what: &str| std::fs::read_to_string(format!("/proc/self/task/{thread}/{what}")).ok();
    let call = read("syscall")?;
    let mut words = call.split_whitespace();
    let futex = words.next()?.parse() == Ok(libc::SYS_futex);
    // Its arguments: the word, what to do, the expected value, the time limit.
    let endless = words.nth(3)? == "0x0";
    let status = read("status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
    line.trim().parse().ok().filter(|_| futex && endless)
}

#[cfg(not(target_os = "linux"))]
fn endless_wait(_: i32) -> Option<u64> {
    None
}
