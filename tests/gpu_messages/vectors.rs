//! Calls that give a `Vec`: what this rank sends may be on its device, whatever the others bring.

use spmd::prelude::*;
use spmd_conformance::element::{Flagged, Sample};
use spmd_gpu::{Device, Local, OnDevice};

use super::{card, everywhere, same, values};

#[test]
fn calls_that_learn_counts() -> Result<()> {
    everywhere("vectors::calls_that_learn_counts", &[1, 3], |ctx| {
        gathered::<i32>(ctx)?;
        gathered::<[f32; 3]>(ctx)?;
        gathered::<Flagged>(ctx)
    })
}

fn gathered<T: Sample>(ctx: &Ctx) -> Result<()> {
    let (device, me, n) = (ctx.device()?, ctx.rank(), ctx.size());
    for most in [0, 3, 2000] {
        let of = |rank: usize| values::<T>(rank, most * rank);
        let blocks = |all: &Gathered<T>| {
            assert!(all.len() == n && all.iter().enumerate().all(|(rank, it)| same(it, &of(rank))));
        };
        let mine = device.buffer_from(&of(me))?;
        blocks(&ctx.allgatherv_vec(&mine)?);
        // Each for itself.
        let some = match me {
            0 => ctx.allgatherv_vec(&of(me))?,
            _ => ctx.allgatherv_vec(&mine.slice(0..most * me))?,
        };
        blocks(&some);
        let on_root = ctx.gatherv_vec(&mine, n - 1)?;
        assert_eq!(on_root.is_some(), me == n - 1);
        on_root.iter().for_each(blocks);
        // Into what is kept from call to call.
        let mut kept = Gathered::default();
        ctx.allgatherv_into(&mine, &mut kept)?;
        blocks(&kept);
        ctx.gatherv_into(&mine, &mut kept, 0)?;
        if me == 0 {
            blocks(&kept);
        }

        let counts: Vec<usize> = (0..n).map(|rank| most * rank).collect();
        let all = (0..n).flat_map(of).collect::<Vec<T>>();
        let all = if me == 0 { device.buffer_from(&all)? } else { device.zeros(0)? };
        assert!(same(&ctx.scatterv_vec(&all, &counts, 0)?, &of(me)));
        // Each has a block of the others' lengths for everybody.
        let from = |rank: usize, to: usize| values::<T>(10 * rank + to, most * to);
        let sent = device.buffer_from(&(0..n).flat_map(|to| from(me, to)).collect::<Vec<T>>())?;
        let came = ctx.alltoallv_vec(&sent, &counts)?;
        assert!((0..n).all(|rank| same(&came[rank], &from(rank, me))));
        ctx.alltoallv_into(&sent, &counts, &mut kept)?;
        assert!((0..n).all(|rank| same(&kept[rank], &from(rank, me))));

        let alike = device.buffer_from(&values::<T>(me, most))?;
        let expected = (0..n).flat_map(|rank| values::<T>(rank, most)).collect::<Vec<T>>();
        assert!(same(&spmd_allgather(&alike)?, &expected));
        // As what a message is received in that nobody knows the length of.
        let sent = ctx.isend(alike, me, 0)?;
        assert!(same(&ctx.recv_vec::<T>(me, 0)?.0, &values(me, most)));
        sent.wait()?;
    }
    Ok(())
}

#[test]
fn outside_of_ranks() -> Result<()> {
    if card::gpu() {
        let numbers = Device::open(0)?.buffer_from(&[1, 2, 3])?;
        assert_eq!(spmd_allgather(&numbers)?, [1, 2, 3]);
    }
    Ok(())
}

/// The buffers of a collective are in one memory, however it is made.
#[test]
fn buffers_of_a_collective_in_different_memories() {
    if !card::gpu() {
        return;
    }
    type Made = fn(&Ctx) -> Result<()>;
    let made: [Made; 4] = [
        |ctx| ctx.allreduce(&[1.0; 3], &mut ctx.device()?.zeros::<f32>(3)?, Sum),
        |ctx| ctx.allgather(&ctx.device()?.zeros::<f32>(3)?, &mut vec![0.0; 3 * ctx.size()]),
        |ctx| {
            let call = ctx.allreduce_start(vec![1.0; 3], ctx.device()?.zeros::<f32>(3)?, Sum);
            call.and_then(Request::wait).map(drop)
        },
        |ctx| {
            let mut call = ctx.allreduce_init(vec![1.0; 3], ctx.device()?.zeros::<f32>(3)?, Sum)?;
            call.start()?;
            Persistent::wait(&mut call)
        },
    ];
    for call in made {
        for block in [Spmd::new(2).threads(), Spmd::new(2).virtual_ranks()] {
            let ended = block.plane(Local::new()).run(call).expect_err("they are apart");
            let Error::MixedPlaces(mixed) = ended else { panic!("{ended}") };
            assert!(mixed.to_string().contains("vectors.rs"), "{mixed}");
        }
    }
}
