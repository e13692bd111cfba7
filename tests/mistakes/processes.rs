//! A selection of wrong programs on process ranks: the errors are the same as in one process.

use std::time::{Duration, Instant};

use spmd::prelude::*;

use crate::support::{finish, is_process_rank, spmdrun_self};

/// A wrong program, on how many ranks, and what the error of these ranks says.
struct Wrong {
    ranks: usize,
    program: fn(&Ctx) -> Result<()>,
    stopped: &'static [usize],
    texts: &'static [&'static str],
}

const WRONG: [(&str, Wrong); 19] = [
    (
        "another_call",
        Wrong {
            ranks: 3,
            program: |ctx| match ctx.rank() {
                1 => ctx.allreduce_value(1, Sum).map(drop),
                _ => ctx.barrier(),
            },
            stopped: &[0, 1, 2],
            texts: &[
                "different calls",
                "rank 1: allreduce_value of 1 i32 with Sum at tests/mistakes/pro",
            ],
        },
    ),
    (
        "another_type",
        Wrong {
            ranks: 2,
            program: |ctx| match ctx.rank() {
                1 => ctx.allreduce_value(1u64, Sum).map(drop),
                _ => ctx.allreduce_value(1f64, Sum).map(drop),
            },
            stopped: &[0, 1],
            texts: &["rank 1: allreduce_value of 1 u64", "rank 0: allreduce_value of 1 f64"],
        },
    ),
    (
        "another_count",
        Wrong {
            ranks: 3,
            program: |ctx| {
                let mut data = vec![0u8; if ctx.rank() == 2 { 70_000 } else { 4 }];
                ctx.allreduce_in_place(&mut data, Max)
            },
            stopped: &[0, 1, 2],
            texts: &["different counts", "rank 2: allreduce_in_place of 70000 u8 with Max"],
        },
    ),
    (
        "another_root",
        Wrong {
            ranks: 3,
            program: |ctx| {
                ctx.broadcast(&mut [0; 5], usize::from(ctx.rank() == 2))?;
                ctx.barrier()
            },
            stopped: &[0, 1, 2],
            texts: &["different roots", "rank 2: broadcast of 5 i32, root 1"],
        },
    ),
    (
        "another_count_in_a_gatherv",
        Wrong {
            ranks: 2,
            program: |ctx| {
                ctx.gatherv(&vec![0; 3 + ctx.rank()], &mut [0; 6], &[3, 3], 0)?;
                ctx.barrier()
            },
            stopped: &[0, 1],
            texts: &["different counts", "sends 4 elements where the root takes 3"],
        },
    ),
    (
        "receive_from_each_other",
        Wrong {
            ranks: 2,
            program: |ctx| ctx.recv(&mut [0], 1 - ctx.rank(), 7).map(drop),
            stopped: &[0, 1],
            texts: &["deadlock", "rank 0: recv of 1 i32 from rank 1", "rank 1: recv of 1 i32 from"],
        },
    ),
    (
        "all_receive_from_any",
        Wrong {
            ranks: 4,
            program: |ctx| ctx.recv(&mut [0], ANY, ANY).map(drop),
            stopped: &[0, 1, 2, 3],
            texts: &["deadlock", "ranks 0, 1, 2, 3: recv of 1 i32"],
        },
    ),
    (
        "receive_against_barrier",
        Wrong {
            ranks: 3,
            program: |ctx| match ctx.rank() {
                0 => ctx.recv(&mut [0], 2, 1).map(drop),
                _ => ctx.barrier(),
            },
            stopped: &[0, 1, 2],
            texts: &["deadlock", "rank 0: recv of 1 i32 from rank 2 with tag 1", "barrier at"],
        },
    ),
    (
        "large_sends_to_each_other",
        Wrong {
            ranks: 2,
            program: |ctx| ctx.send(&vec![0u64; 100_000], 1 - ctx.rank(), 0),
            stopped: &[0, 1],
            texts: &["deadlock", "rank 0: send of 100000 u64 to rank 1 with tag 0"],
        },
    ),
    (
        "truncated",
        Wrong {
            ranks: 2,
            program: |ctx| match ctx.rank() {
                0 => ctx.send(&vec![0u8; 100_000], 1, 0),
                _ => ctx.recv(&mut [0u8; 9], 0, 0).map(drop),
            },
            stopped: &[1],
            texts: &[
                "has 100000 elements and the buffer holds 9",
                "sent at tests/mistakes/processes",
            ],
        },
    ),
    (
        "mistyped",
        Wrong {
            ranks: 2,
            program: |ctx| match ctx.rank() {
                0 => ctx.send(&[1u8], 1, 0),
                _ => ctx.recv(&mut [false], 0, 0).map(drop),
            },
            stopped: &[1],
            texts: &["carries u8, and the receive is of bool"],
        },
    ),
    (
        "leaves_early",
        Wrong {
            ranks: 3,
            program: |ctx| if ctx.rank() == 1 { Ok(()) } else { ctx.barrier() },
            stopped: &[0, 2],
            texts: &["rank 1 ended its block while another rank waited for it", ": barrier at"],
        },
    ),
    (
        "never_received",
        Wrong {
            ranks: 2,
            program: |ctx| if ctx.rank() == 0 { ctx.send(&[1, 2], 1, 4) } else { Ok(()) },
            stopped: &[1],
            texts: &["1 message(s) to rank 1 were never received", "from rank 0 with tag 4"],
        },
    ),
    (
        "in_a_large_job",
        Wrong {
            ranks: 20,
            program: |ctx| match ctx.rank() {
                13 => ctx.allgather_value(1).map(drop),
                _ => ctx.allreduce_value(1, Sum).map(drop),
            },
            stopped: &[0, 1, 2, 3, 12, 13, 14, 19],
            texts: &["different calls", "rank 13: allgather_value of 1 i32"],
        },
    ),
    (
        "a_lock_over_a_barrier",
        Wrong {
            ranks: 2,
            program: |ctx| {
                let window = ctx.window::<u32>(1)?;
                if ctx.rank() == 0 {
                    window.lock(1)?;
                    ctx.send(&[0], 1, 0)?;
                } else {
                    ctx.recv(&mut [0], 0, 0)?;
                    window.lock(1)?;
                }
                ctx.barrier()
            },
            stopped: &[0, 1],
            texts: &["deadlock", "rank 0: barrier at tests/", "rank 1: lock on rank 1 at tests/"],
        },
    ),
    (
        "a_rank_killed_under_a_lock",
        Wrong {
            ranks: 3,
            program: |ctx| {
                let window = ctx.window::<u32>(1)?;
                if ctx.rank() == 0 {
                    window.lock(1)?;
                    ctx.send(&[0], 1, 0)?;
                    ctx.send(&[0], 2, 0)?;
                    std::thread::sleep(Duration::from_millis(100));
                    std::process::abort();
                }
                ctx.recv(&mut [0], 0, 0)?;
                window.lock(1)
            },
            stopped: &[1, 2],
            texts: &["lock on rank 1 at tests/", "rank 0 failed first", "signal 6 (SIGABRT)"],
        },
    ),
    (
        "a_lock_that_is_forgotten",
        Wrong {
            ranks: 2,
            program: |ctx| {
                let window = ctx.window::<u32>(1)?;
                if ctx.rank() == 0 {
                    window.lock_all()?;
                    return ctx.send(&[0], 1, 0);
                }
                ctx.recv(&mut [0], 0, 0)?;
                window.lock(1)
            },
            stopped: &[1],
            texts: &["ended its block while another rank waited", "lock on rank 1 at tests/"],
        },
    ),
    (
        "beyond_the_end_of_a_part",
        Wrong {
            ranks: 2,
            program: |ctx| {
                let window = ctx.window::<u32>(10 * ctx.rank())?;
                window.fence()?;
                window.put(&[1; 11], 1, 0)
            },
            stopped: &[0, 1],
            texts: &["put of 11 u32 to rank 1", "holds 10 elements where 11 are needed"],
        },
    ),
    (
        "windows_of_different_types",
        Wrong {
            ranks: 2,
            program: |ctx| match ctx.rank() {
                0 => ctx.window::<u32>(1).map(drop),
                _ => ctx.window::<f32>(1).map(drop),
            },
            stopped: &[0, 1],
            texts: &["do not match", "rank 0: window of u32 at", "rank 1: window of f32 at"],
        },
    ),
];

/// Which program a rank runs.
const PROGRAM: &str = "SPMD_TEST_PROGRAM";

#[test]
fn on_process_ranks() {
    if is_process_rank() {
        let name = std::env::var(PROGRAM).expect("set by the test");
        let (_, wrong) = WRONG.iter().find(|(known, _)| *known == name).expect("a program of ours");
        let start = Instant::now();
        let rank = std::env::var("SPMD_RANK").expect("set by the launcher");
        if let Err(error) = run(|ctx| (wrong.program)(ctx)) {
            println!("<rank {rank}> {error} <after {}>", start.elapsed().as_millis());
        }
        return;
    }
    for (name, wrong) in &WRONG {
        let mut job = spmdrun_self("processes::on_process_ranks", wrong.ranks);
        let ran = finish(job.arg("--quiet").env(PROGRAM, name));
        for rank in wrong.stopped {
            let line = ran.out.lines().find(|line| line.contains(&format!("<rank {rank}>")));
            let line = line.unwrap_or_else(|| panic!("{name}: rank {rank} has no error: {ran:?}"));
            for text in wrong.texts {
                assert!(line.contains(text), "{name}: {line}\nnot: {text}");
            }
            let after = line.rsplit("<after ").next().and_then(|rest| rest.strip_suffix('>'));
            let after = after.and_then(|number| number.parse().ok()).map(Duration::from_millis);
            assert!(after.is_some_and(|after| after < Duration::from_secs(2)), "{name}: {line}");
        }
    }
}
