//! Mistakes on device buffers, and ranks that fail.

use spmd::prelude::*;
use spmd_gpu::{Local, OnDevice, Staged};

use super::everywhere;
use crate::card::{gpu, on_one_card};
use crate::on_device::{MISTAKE, MISTAKES, assert_told, make_named};

const HERE: &str = "tests/gpu/mistakes.rs";

#[test]
fn mistakes_on_device_buffers_are_reported() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    let refused = |block: Spmd, f: fn(&Ctx) -> Result<()>, texts: &[&str]| {
        let error = block.run(f).expect_err("they do not fit together").to_string();
        assert!(texts.iter().all(|text| error.contains(text)), "{error}");
    };
    let by_the_host = [Spmd::new(3).threads(), Spmd::new(3).virtual_ranks()];
    let by_the_host = by_the_host.map(|block| block.plane(Staged::new()).segment(1024));
    for block in everywhere(3).into_iter().chain(by_the_host) {
        let other_count = |ctx: &Ctx| {
            let mut buffer = ctx.device()?.zeros::<f32>(10 + ctx.rank() / 2)?;
            ctx.allreduce_in_place(&mut buffer, Sum)
        };
        refused(block.clone(), other_count, &["do not match", HERE]);
        let other_type = |ctx: &Ctx| {
            let device = ctx.device()?;
            match ctx.rank() {
                1 => ctx.allreduce_in_place(&mut device.zeros::<i32>(10)?, Sum),
                _ => ctx.allreduce_in_place(&mut device.zeros::<f32>(10)?, Sum),
            }
        };
        refused(block.clone(), other_type, &["do not match", "10 i32", "10 f32", HERE]);
        let other_operation = |ctx: &Ctx| {
            let mut buffer = ctx.device()?.zeros::<f32>(10)?;
            match ctx.rank() {
                1 => ctx.allreduce_in_place(&mut buffer, Prod),
                _ => ctx.allreduce_in_place(&mut buffer, Sum),
            }
        };
        refused(block.clone(), other_operation, &["do not match", "with Prod", "with Sum", HERE]);
        let other_root = |ctx: &Ctx| {
            let mut buffer = ctx.device()?.zeros::<f32>(10)?;
            ctx.broadcast(&mut buffer, ctx.rank() / 2)
        };
        refused(block.clone(), other_root, &["do not match", HERE]);
        let other_place = |ctx: &Ctx| match ctx.rank() {
            1 => ctx.allreduce_in_place(&mut [1.0f32; 10], Sum),
            _ => ctx.allreduce_in_place(&mut ctx.device()?.zeros::<f32>(10)?, Sum),
        };
        refused(block.clone(), other_place, &["do not match", HERE]);
        let both_places =
            |ctx: &Ctx| ctx.allreduce(&[1.0f32; 10], &mut ctx.device()?.zeros::<f32>(10)?, Sum);
        let told = "the send buffer is on the host, the receive buffer on device 0";
        refused(block.clone(), both_places, &[told, HERE]);
        let blocks = |ctx: &Ctx| {
            let device = ctx.device()?;
            let mut all = device.zeros::<u8>(9)?;
            ctx.gatherv(&device.zeros::<u8>(3 - ctx.rank() / 2)?, &mut all, &[3, 3, 3], 0)
        };
        refused(block, blocks, &["different counts: rank 2", HERE]);
    }
    for block in everywhere(3) {
        let own_operation = |ctx: &Ctx| {
            let mut buffer = ctx.device()?.zeros::<f32>(10)?;
            ctx.allreduce_in_place(&mut buffer, Op::new(|a: f32, b: f32| a - b))
        };
        refused(block, own_operation, &["the device that its memory is on"]);
    }
    Ok(())
}

#[test]
#[ignore = "run by mistakes_of_processes_are_reported, as one of them"]
fn process_that_makes_a_mistake() -> Result<()> {
    make_named(&[Local::new(), Staged::new()])
}

/// On a device that they share.
#[test]
fn mistakes_of_processes_are_reported() {
    if !gpu() {
        return;
    }
    for (mistake, texts) in MISTAKES {
        let test = "mistakes::process_that_makes_a_mistake";
        let (status, said) = on_one_card(test, 3, &[(MISTAKE, mistake)]);
        assert_told(mistake, texts, (status, &said));
    }
}

/// A rank that leaves in the middle stops the others, and what they share stays usable.
#[test]
fn a_rank_that_fails_stops_the_others() -> Result<()> {
    if !gpu() {
        return Ok(());
    }
    for block in everywhere(4) {
        let ended = block.clone().run(|ctx| {
            let device = ctx.device()?;
            for turn in 0..100 {
                if (turn, ctx.rank()) == (50, 2) {
                    return Err("enough".into());
                }
                let mine = device.buffer_from(&vec![1u32; 1 << 16])?;
                let mut sum = device.zeros::<u32>(1 << 16)?;
                ctx.allreduce(&mine, &mut sum, Sum)?;
            }
            Ok(())
        });
        assert_eq!(ended.unwrap_err().to_string(), "enough");
        block.run(|ctx| {
            let mut one = ctx.device()?.buffer_from(&[1u32])?;
            ctx.allreduce_in_place(&mut one, Sum)?;
            assert_eq!(one.to_vec()?, [4]);
            Ok(())
        })?;
    }
    Ok(())
}
