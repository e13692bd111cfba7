//! Mistakes that ranks of several processes make, and what must be said of each.
//!
//! It is the last rank's, unless all make it. Who is through with it goes on to a barrier.

#![allow(dead_code, reason = "each test file uses a part of this")]

use spmd::prelude::*;

/// What a rank does wrong, and what must be said of it.
pub type Mistake = (&'static str, fn(&Ctx) -> Result<()>, &'static [&'static str]);

/// Goes on in a process that has this thread alone, as a program has that runs its ranks from
/// `main`; the other one ends as that does. The library takes the threads of a test's harness for
/// such as may use a communicator on which nobody waits, and then finds no cycle through it.
pub fn leave_other_threads() {
    // SAFETY: the harness has one other thread, which waits for this one and holds no lock that is
    // needed here.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "{}", std::io::Error::last_os_error());
    if child == 0 {
        // SAFETY: this call takes numbers and touches no memory.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        return;
    }
    let mut status = 0;
    // SAFETY: the child is this process's own, and `status` writable; nothing is left to be done
    // here.
    unsafe {
        libc::waitpid(child, &mut status, 0);
        libc::_exit(if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 1 })
    }
}

/// Ends such a process as `main` would.
pub fn end(outcome: Result<()>) -> ! {
    let Err(error) = outcome else { std::process::exit(0) };
    eprintln!("Error: {error:?}");
    std::process::exit(1)
}

pub fn is_last(ctx: &Ctx) -> bool {
    ctx.rank() + 1 == ctx.size()
}

pub const MISTAKES: &[Mistake] = &[
    ("a panic", |ctx| if is_last(ctx) { panic!("oh no") } else { Ok(()) }, &["panicked", "oh no"]),
    (
        "an error",
        |ctx| if is_last(ctx) { Err("no more data".into()) } else { Ok(()) },
        &["failed: it returned an error: no more data"],
    ),
    (
        "an early exit",
        |ctx| if is_last(ctx) { std::process::exit(7) } else { Ok(()) },
        &["failed: its process exited with status 7"],
    ),
    (
        "a rank that leaves",
        |ctx| if is_last(ctx) { Ok(()) } else { ctx.barrier() },
        &["ended its block while another rank waited for it", "barrier at tests/"],
    ),
    (
        "different calls",
        |ctx| if is_last(ctx) { ctx.broadcast(&mut [1], ctx.rank()) } else { ctx.barrier() },
        &["do not match", "barrier at tests/", "support/mistakes.rs", "broadcast of 1 i32"],
    ),
    (
        "different operations",
        |ctx| match is_last(ctx) {
            true => ctx.allreduce_value(1, Max).map(drop),
            false => ctx.allreduce_value(1, Sum).map(drop),
        },
        &[
            "do not match",
            "with Max at tests/",
            "support/mistakes.rs",
            "with Sum at tests/",
            "support/mistakes.rs",
        ],
    ),
    (
        "different counts",
        |ctx| {
            let count = if is_last(ctx) { 1 } else { 2 };
            ctx.allreduce(&vec![1; count], &mut vec![0; count], Sum)
        },
        &["do not match", "allreduce of 1 i32", "allreduce of 2 i32"],
    ),
    (
        "different roots",
        |ctx| ctx.broadcast(&mut [1], if is_last(ctx) { 1 } else { 0 }),
        &["do not match", "root 0", "root 1"],
    ),
    (
        "a cycle of receives",
        |ctx| ctx.recv(&mut [0], (ctx.rank() + 1) % ctx.size(), 0).map(drop),
        &["deadlock", "rank 0: recv", "rank 1: recv", "support/mistakes.rs"],
    ),
    (
        "a cycle of synchronous sends",
        |ctx| ctx.ssend(&[0], (ctx.rank() + 1) % ctx.size(), 0),
        &["deadlock", "rank 0: ssend", "rank 1: ssend", "support/mistakes.rs"],
    ),
    (
        "a receive while the others meet",
        |ctx| if is_last(ctx) { ctx.recv(&mut [0], ANY, 0).map(drop) } else { ctx.barrier() },
        &["deadlock", "recv of 1 i32 from any rank", "barrier at tests/", "support/mistakes.rs"],
    ),
    (
        "a message of another type",
        |ctx| match ctx.rank() {
            0 => ctx.recv(&mut [0i32], ctx.size() - 1, 0).map(drop),
            _ if is_last(ctx) => ctx.send(&[0f32], 0, 0),
            _ => Ok(()),
        },
        &["carries f32", "sent at tests/", "support/mistakes.rs"],
    ),
    (
        "a message that is too long",
        |ctx| match ctx.rank() {
            0 => ctx.recv(&mut [0], ctx.size() - 1, 0).map(drop),
            _ if is_last(ctx) => ctx.send(&[0; 5], 0, 0),
            _ => Ok(()),
        },
        &["has 5 elements and the buffer holds 1"],
    ),
    (
        "going on after failures",
        |ctx| ctx.shrink().map(drop),
        &["shrink at", "mistakes.rs", "is not available", "ULFM"],
    ),
    (
        "a message that nobody receives",
        |ctx| if is_last(ctx) { ctx.send(&[0], 0, 0) } else { Ok(()) },
        &["never received", "sent at tests/", "support/mistakes.rs"],
    ),
    (
        "a synchronous send over a barrier",
        |ctx| if is_last(ctx) { ctx.ssend(&[0], 0, 0) } else { ctx.barrier() },
        &[
            "deadlock",
            "ssend of 1 i32 to rank 0 with tag 0 at tests/",
            "barrier at tests/",
            "mistakes.rs",
        ],
    ),
    (
        "a receive that nobody answers over an allreduce",
        |ctx| match is_last(ctx) {
            true => ctx.recv(&mut [0], 0, 0).map(drop),
            false => ctx.allreduce_value(1, Sum).map(drop),
        },
        &["deadlock", "recv of 1 i32 from rank 0", "allreduce_value of 1 i32 with Sum"],
    ),
    (
        "a synchronous send to a rank that has left",
        |ctx| match ctx.rank() {
            0 => ctx.barrier().and_then(|()| ctx.ssend(&[0], ctx.size() - 1, 0)),
            _ => Ok(()),
        },
        &["ended its block while another rank waited for it", "rank 0: ssend of 1 i32"],
    ),
    (
        "a large send to a rank that has left",
        |ctx| match ctx.rank() {
            0 => ctx.barrier().and_then(|()| ctx.send(&vec![0u8; 1 << 20], ctx.size() - 1, 0)),
            _ => Ok(()),
        },
        &["ended its block while another rank waited for it", "rank 0: send of 1048576 u8"],
    ),
    (
        "a large send to a rank that waits for a broadcast",
        |ctx| match ctx.rank() {
            0 => {
                ctx.send(&vec![0u8; 1 << 20], ctx.size() - 1, 0)?;
                ctx.broadcast(&mut [1], 0)
            }
            _ => ctx.broadcast(&mut [1], 0),
        },
        &["deadlock", "rank 0: send of 1048576 u8", "broadcast of 1 i32, root 0, at tests/"],
    ),
    (
        "barriers of two communicators",
        |ctx| {
            let other = ctx.dup()?;
            if is_last(ctx) { other.barrier() } else { ctx.barrier() }
        },
        &["deadlock", "barrier at tests/", "support/mistakes.rs"],
    ),
    (
        "a receive over a barrier while a communicator is not used",
        |ctx| {
            let _other = ctx.dup()?;
            let _part = ctx.split(Some((ctx.rank() % 2) as u32), 0)?;
            if is_last(ctx) { ctx.recv(&mut [0], 0, 0).map(drop) } else { ctx.barrier() }
        },
        &["deadlock", "recv of 1 i32 from rank 0", "barrier at tests/", "support/mistakes.rs"],
    ),
    (
        "rows and columns",
        |ctx| {
            let half = ctx.size() / 2;
            let row = ctx.split(Some((ctx.rank() / half) as u32), 0)?.expect("a color");
            let column = ctx.split(Some((ctx.rank() % half) as u32), 0)?.expect("a color");
            // Rows of one rank would not wait.
            let row = if half == 1 { ctx.dup()? } else { row };
            match (ctx.rank() / half + ctx.rank() % half) % 2 {
                0 => row.barrier().and_then(|()| column.barrier()),
                _ => column.barrier().and_then(|()| row.barrier()),
            }
        },
        &["deadlock", "barrier at tests/", "support/mistakes.rs"],
    ),
    (
        "a communicator that one rank has dropped",
        |ctx| {
            let other = ctx.dup()?;
            if is_last(ctx) {
                drop(other);
                return ctx.barrier();
            }
            other.barrier()
        },
        &["deadlock", "barrier at tests/", "support/mistakes.rs"],
    ),
    (
        "a worker that is not dismissed",
        |ctx| match ctx.rank() {
            0 => (1..ctx.size() - 1).try_for_each(|worker| ctx.send(&[0], worker, 1)),
            _ => ctx.recv(&mut [0], 0, 1).map(drop),
        },
        &["deadlock", "recv of 1 i32 from rank 0 with tag 1", "barrier at tests/", "mistakes.rs"],
    ),
    (
        "a worker of any that is not dismissed before the others leave",
        |ctx| match is_last(ctx) {
            true => ctx.barrier().and_then(|()| ctx.recv(&mut [0], ANY, 1).map(drop)),
            false => Ok(()),
        },
        &["ended its block while another rank waited for it", "recv of 1 i32 from any rank"],
    ),
    (
        "a probe for what nobody sends",
        |ctx| if is_last(ctx) { ctx.probe(0, 3).map(drop) } else { ctx.barrier() },
        &["deadlock", "probe from rank 0 with tag 3", "barrier at tests/", "mistakes.rs"],
    ),
    (
        "large sends to each other",
        |ctx| {
            let peer = ctx.size() - 1 - ctx.rank();
            ctx.send(&vec![0u8; 1 << 20], peer, 0)?;
            ctx.recv(&mut vec![0u8; 1 << 20], peer, 0).map(drop)
        },
        &["deadlock", "send of 1048576 u8 to rank", "support/mistakes.rs"],
    ),
    (
        "neighbours of another type",
        |ctx| {
            let ring = ctx.cartesian(&[ctx.size()], &[true])?.expect("all have a place");
            match is_last(ctx) {
                true => ring.neighbor_allgather(&[1u32], &mut [0u32; 2]),
                false => ring.neighbor_allgather(&[1i32], &mut [0i32; 2]),
            }
        },
        &["do not match", "neighbor_allgather of 1 i32 at", "neighbor_allgather of 1 u32 at"],
    ),
    (
        "a started call that one rank does not start",
        |ctx| if is_last(ctx) { Ok(()) } else { ctx.barrier_start()?.wait() },
        &["deadlock", "barrier at tests/", "support/mistakes.rs"],
    ),
    (
        "started calls in another order",
        |ctx| {
            let reduce = |ctx: &Ctx| ctx.allreduce_in_place_start(vec![1], Sum);
            let (barrier, sum) = match is_last(ctx) {
                true => (ctx.barrier_start()?, reduce(ctx)?),
                false => {
                    let sum = reduce(ctx)?;
                    (ctx.barrier_start()?, sum)
                }
            };
            barrier.wait()?;
            sum.wait().map(drop)
        },
        &["do not match", "allreduce_in_place of 1 i32", "barrier at tests/"],
    ),
    (
        "a receive beside a started call",
        |ctx| {
            let barrier = ctx.dup()?.barrier_start()?;
            if is_last(ctx) {
                ctx.recv(&mut [0], 0, 0)?;
            }
            barrier.wait()
        },
        &["deadlock", "recv of 1 i32 from rank 0", "barrier at tests/", "support/mistakes.rs"],
    ),
    (
        "a panic beside started calls",
        |ctx| {
            let sum = ctx.allreduce_start(vec![1; 30_000], vec![0; 30_000], Sum)?;
            if is_last(ctx) {
                let _barrier = ctx.barrier_start()?;
                panic!("oh no");
            }
            sum.wait()?;
            ctx.barrier_start()?.wait()?;
            ctx.barrier_start()?.wait()
        },
        &["panicked", "oh no"],
    ),
    (
        "another type on a communicator that is dropped",
        |ctx| {
            let other = ctx.dup()?;
            match is_last(ctx) {
                true => other.allgather_value(1u32).map(drop),
                false => other.allgather_value(1i32).map(drop),
            }
        },
        &["do not match", "allgather_value of 1 i32", "allgather_value of 1 u32"],
    ),
    (
        "an access outside of an epoch",
        |ctx| {
            let window = ctx.window::<u32>(10)?;
            if is_last(ctx) { window.put(&[1], 0, 0) } else { Ok(()) }
        },
        &["put of 1 u32 to rank 0", "outside of an epoch", "there was none yet"],
    ),
    (
        "an access beyond the end of a part",
        |ctx| {
            let window = ctx.window::<u32>(10 + ctx.rank())?;
            window.fence()?;
            if is_last(ctx) {
                window.get(&mut [0; 4], 0, At::strided(1, 2, 2, 8))?;
            }
            window.fence()
        },
        &["get of 4 u32 from rank 0", "holds 10 elements where 11 are needed"],
    ),
    (
        "windows of different types",
        |ctx| match is_last(ctx) {
            true => ctx.window::<f32>(1).map(drop),
            false => ctx.window::<u32>(1).map(drop),
        },
        &["do not match", "window of u32 at", "window of f32 at"],
    ),
    (
        "a part without memory",
        |ctx| ctx.window::<u64>(if is_last(ctx) { 1 << 50 } else { 1 }).map(drop),
        &["window of u64 at", "there is no memory for the part of rank"],
    ),
    (
        "a fence against a barrier",
        |ctx| {
            let window = ctx.window::<u32>(1)?;
            if is_last(ctx) { ctx.barrier() } else { window.fence() }
        },
        &["deadlock", "fence at tests/", "barrier at tests/"],
    ),
    (
        "a lock over a barrier",
        |ctx| {
            let (window, last) = (ctx.window::<u32>(1)?, ctx.size() - 1);
            if ctx.rank() == 0 {
                window.lock(last)?;
                ctx.send(&[0], last, 0)?;
                ctx.barrier()?;
            } else if is_last(ctx) {
                ctx.recv(&mut [0], 0, 0)?;
                window.lock(last)?;
            }
            ctx.barrier()
        },
        &["deadlock", "rank 0: barrier at", "lock on rank", "support/mistakes.rs"],
    ),
    (
        "a lock elsewhere over a barrier",
        |ctx| {
            let window = ctx.window::<u32>(1)?;
            if ctx.rank() == 0 {
                window.lock_shared(0)?;
                ctx.send(&[0], ctx.size() - 1, 0)?;
            } else if is_last(ctx) {
                ctx.recv(&mut [0], 0, 0)?;
                window.lock(0)?;
            }
            ctx.barrier()
        },
        &["deadlock", "lock on rank 0 at", "support/mistakes.rs", "barrier at tests/"],
    ),
    (
        "an error under a lock",
        |ctx| {
            let window = ctx.window::<u32>(1)?;
            if is_last(ctx) {
                window.lock_all()?;
                ctx.send(&[0], 0, 0)?;
                return Err("no more data".into());
            }
            if ctx.rank() == 0 {
                ctx.recv(&mut [0], ctx.size() - 1, 0)?;
                window.lock(0)?;
            }
            ctx.barrier()
        },
        &["failed: it returned an error: no more data"],
    ),
    (
        "a notification that never comes",
        |ctx| {
            let window = ctx.window::<u32>(1)?;
            if is_last(ctx) { window.wait_notify(0, 5).map(drop) } else { ctx.barrier() }
        },
        &["deadlock", "wait_notify from rank 0 with tag 5", "barrier at tests/"],
    ),
];
