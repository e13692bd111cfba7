//! Large blocks that the kernel copies from one process to another: from when on, what arrives,
//! and what happens where a rank must not.

#![cfg(target_os = "linux")]

mod support;

use spmd::prelude::*;
use spmd_core::internal::{Algorithm, Trial};

use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use support::processes;

/// Elements of a block that is large enough, and of one that is not.
const LARGE: usize = 64 << 10;
const SMALL: usize = 2_000;

fn block(rank: usize, turn: usize, count: usize) -> impl Iterator<Item = f64> {
    (0..count).map(move |index| (rank * 1000 + turn * 10) as f64 + index as f64)
}

/// Allgathers and alltoalls, also of a type whose bytes must be looked at. Gives how many took a
/// single copy.
fn exchange(ctx: &Comm, count: usize) -> Result<usize> {
    let (n, me) = (ctx.size(), ctx.rank());
    let mut single = 0;
    let mut note =
        || single += usize::from(ctx.internals().last_choice() == Some(Algorithm::SingleCopy));
    for turn in 0..6 {
        let mine: Vec<f64> = block(me, turn, count).collect();
        let mut all = vec![0.0; n * count];
        ctx.allgather(&mine, &mut all)?;
        note();
        assert!((0..n).flat_map(|peer| block(peer, turn, count)).eq(all.iter().copied()));

        let send: Vec<f64> = (0..n).flat_map(|peer| block(me * n + peer, turn, count)).collect();
        ctx.alltoall(&send, &mut all)?;
        note();
        assert!((0..n).flat_map(|peer| block(peer * n + me, turn, count)).eq(all.iter().copied()));

        let even =
            |rank: usize| (0..8 * count).map(move |index| (index + rank + turn).is_multiple_of(3));
        let mut flags = vec![false; n * 8 * count];
        ctx.allgather(&even(me).collect::<Vec<_>>(), &mut flags)?;
        note();
        assert!((0..n).flat_map(even).eq(flags));
    }
    Ok(single)
}

#[test]
fn from_the_third_call_on() -> Result<()> {
    processes("from_the_third_call_on", 2, &[("SPMD_SINGLE_COPY", "1")], |ctx| {
        // Nothing is tried out, but what is chosen is noted.
        ctx.internals().try_out(Some(Trial::default()));
        assert_eq!(exchange(ctx, SMALL)?, 0);
        // Ranks that share a core allgather through staging areas.
        let all = std::thread::available_parallelism()?.get() > 1;
        assert_eq!(exchange(ctx, LARGE)?, if all { 18 } else { 6 });
        // A communicator finds out anew.
        let copy = ctx.dup()?;
        copy.internals().try_out(Some(Trial::default()));
        assert_eq!(exchange(&copy, LARGE)?, if all { 16 } else { 5 });
        Ok(())
    })
}

/// Messages whose places in their pages differ by a few bytes come another way, as those copies are slow.
#[test]
fn wherever_it_lies() -> Result<()> {
    for forced in [None, Some(("SPMD_SINGLE_COPY", "1")), Some(("SPMD_SINGLE_COPY", "0"))] {
        let settings = forced.as_slice();
        processes("wherever_it_lies", 2, settings, |ctx| {
            const PAGE: usize = 4096;
            let (me, bytes) = (ctx.rank(), 300_001);
            let mut memory = vec![0u8; bytes + 3 * PAGE];
            let page = memory.as_ptr().align_offset(PAGE) + PAGE;
            for (turn, behind) in [0, 1, 16, 31, 32, PAGE - 16].into_iter().enumerate() {
                let byte = |i: usize| (i % 251) as u8 + turn as u8;
                if me == 0 {
                    let data = &mut memory[page..page + bytes];
                    data.iter_mut().enumerate().for_each(|(i, place)| *place = byte(i));
                    ctx.send(data, 1, 0)?;
                    ctx.ssend(data, 1, 1)?;
                    continue;
                }
                for tag in 0..2 {
                    memory.fill(255);
                    let start = page + behind;
                    ctx.recv(&mut memory[start..start + bytes], 0, tag)?;
                    let (before, rest) = memory.split_at(start);
                    let (data, after) = rest.split_at(bytes);
                    assert!(before.iter().chain(after).all(|place| *place == 255));
                    assert!(data.iter().copied().eq((0..bytes).map(byte)), "{behind} bytes behind");
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Which is a matter of the machine: all ranks find the same.
#[test]
fn where_it_is_faster() -> Result<()> {
    processes("where_it_is_faster", 2, &[], |ctx| {
        ctx.internals().try_out(Some(Trial::default()));
        assert_eq!(exchange(ctx, SMALL)?, 0);
        let taken = exchange(ctx, LARGE)?;
        let shares_cores = std::thread::available_parallelism()?.get() == 1;
        let expected = if shares_cores { [6, 6] } else { [0, 18] };
        assert!(expected.contains(&taken), "{taken}");
        assert_eq!(ctx.allgather_value(taken)?, [taken; 2]);
        Ok(())
    })
}

#[test]
fn where_it_is_forced() -> Result<()> {
    let forced = [("SPMD_FORCE", "allgather=single_copy,alltoall=single_copy")];
    processes("where_it_is_forced", 3, &forced, |ctx| {
        assert_eq!(exchange(ctx, SMALL)?, 16);
        Ok(())
    })
}

#[test]
fn not_where_it_is_denied() -> Result<()> {
    processes("not_where_it_is_denied", 2, &[("SPMD_SINGLE_COPY", "0")], |ctx| {
        ctx.internals().try_out(Some(Trial::default()));
        assert_eq!(exchange(ctx, LARGE)?, 0);
        Ok(())
    })
}

#[test]
fn not_where_one_rank_denies_it() -> Result<()> {
    if std::env::var("SPMD_RANK").is_ok_and(|rank| rank == "1") {
        // SAFETY: this process is one rank of one test; nothing else of it looks at variables now.
        unsafe { std::env::set_var("SPMD_SINGLE_COPY", "0") };
    }
    processes("not_where_one_rank_denies_it", 2, &[], |ctx| {
        ctx.internals().try_out(Some(Trial::default()));
        assert_eq!(exchange(ctx, LARGE)?, 0);
        Ok(())
    })
}

/// What is in shared memory is read there, whatever holds for the rest.
#[test]
fn beside_shared_memory() -> Result<()> {
    let forced = [("SPMD_FORCE", "allgather=single_copy,alltoall=single_copy")];
    processes("beside_shared_memory", 2, &forced, |ctx| {
        assert_eq!(exchange(ctx, LARGE)?, 16);
        let mut shared = ctx.alloc_shared::<f64>(LARGE)?;
        let mut private = vec![0.0; LARGE];
        let value = ctx.rank() as f64 + 1.0;
        shared.fill(value);
        private.fill(value);
        let mut all = vec![0.0; 2 * LARGE];
        match ctx.rank() {
            0 => ctx.allgather(&shared, &mut all)?,
            _ => ctx.allgather(&private, &mut all)?,
        }
        assert!(all[..LARGE].iter().all(|value| *value == 1.0));
        assert!(all[LARGE..].iter().all(|value| *value == 2.0));
        Ok(())
    })
}

/// Windows of messages both ways as requests, and one after the other: in order, and whole.
fn messages(ctx: &Comm) -> Result<()> {
    let (me, other) = (ctx.rank(), 1 - ctx.rank());
    for (turn, count) in [SMALL, LARGE - 1, LARGE, 3 * LARGE + 5, LARGE].into_iter().enumerate() {
        let of = |rank: usize, number: usize| block(rank, 10 * turn + number, count);
        let sent: Vec<Vec<f64>> = (0..5).map(|number| of(me, number).collect()).collect();
        let mut got = vec![vec![0.0; count]; 5];
        ctx.requests(|requests| {
            for place in &mut got {
                requests.irecv(place, other, 0)?;
            }
            sent.iter().try_for_each(|data| requests.isend(data, other, 0).map(drop))
        })?;
        assert!(
            got.iter().enumerate().all(|(number, data)| of(other, number).eq(data.iter().copied()))
        );
        for (number, data) in sent.iter().enumerate() {
            if me == 0 {
                ctx.send(data, other, 1)?;
            } else {
                let (data, _) = ctx.recv_vec::<f64>(other, 1)?;
                assert!(of(other, number).eq(data));
            }
        }
    }
    Ok(())
}

#[test]
fn long_messages() -> Result<()> {
    processes("long_messages", 2, &[], |ctx| messages(ctx))
}

#[test]
fn long_messages_that_are_all_read() -> Result<()> {
    processes("long_messages_that_are_all_read", 2, &[("SPMD_SINGLE_COPY", "1")], |ctx| {
        messages(ctx)
    })
}

#[test]
fn long_messages_that_one_rank_stages() -> Result<()> {
    if std::env::var("SPMD_RANK").is_ok_and(|rank| rank == "1") {
        // SAFETY: this process is one rank of one test; nothing else of it looks at variables now.
        unsafe { std::env::set_var("SPMD_SINGLE_COPY", "0") };
    }
    processes("long_messages_that_one_rank_stages", 2, &[], |ctx| messages(ctx))
}

/// The kernel reads for those alone who may trace the other.
#[test]
fn long_messages_that_the_kernel_does_not_read() -> Result<()> {
    processes("long_messages_that_the_kernel_does_not_read", 2, &[], |ctx| {
        set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(Error::user)?;
        let mut sets = capabilities(None).map_err(Error::user)?;
        sets.effective.remove(CapabilitySet::SYS_PTRACE);
        set_capabilities(None, sets).map_err(Error::user)?;
        ctx.barrier()?;
        ctx.internals().try_out(Some(Trial::default()));
        assert_eq!(exchange(ctx, LARGE)?, 0);
        messages(ctx)
    })
}
