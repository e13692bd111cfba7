//! Ranks that the launcher gives cards of their own, on a machine of several.

use spmd::prelude::*;
use spmd_gpu::{Device, OnDevice, Staged};

use crate::card::{gpu, stand_in};
use crate::support;

#[test]
#[ignore = "run by ranks_with_gpus_of_their_own, as one of them"]
fn rank_with_a_gpu() -> Result<()> {
    spmd::run_on_planes(&[Staged::new()], |ctx| {
        let (device, shown) = (ctx.device()?, std::env::var("CUDA_VISIBLE_DEVICES"));
        let mut sum = device.buffer_from(&[ctx.rank(); 1000])?;
        ctx.allreduce_in_place(&mut sum, Sum)?;
        assert_eq!(sum.to_vec()?, [ctx.size() * (ctx.size() - 1) / 2; 1000]);
        let shown = shown.map_err(|error| error.to_string())?;
        println!("rank {} has {} of {}: {shown}", ctx.rank(), device.name()?, Device::count()?);
        Ok(())
    })
    .map(drop)
}

/// On a machine of several cards, which the stand-in is.
#[test]
fn ranks_with_gpus_of_their_own() {
    if !gpu() || !stand_in() {
        return;
    }
    let run = |options: &[&str]| {
        let mut job = support::spmdrun(options);
        job.arg(std::env::current_exe().expect("a test knows its own path"));
        job.args([
            "cards::rank_with_a_gpu",
            "--exact",
            "--include-ignored",
            "--nocapture",
            "--quiet",
        ]);
        support::finish(job.env("SPMD_STANDIN_CARDS", "3"))
    };
    let card = |rank: usize, card: usize| {
        let uuid = format!("GPU-00000000-0000-0000-0000-0000000000{card:02x}");
        format!("rank {rank} has stand-in card {card} (no GPU) of 1: {uuid}")
    };
    // As many ranks as there are cards; those that were named; some a card.
    let cases: [(&[&str], &[usize]); 3] = [
        (&["--as", "gpus"], &[0, 1, 2]),
        (&["--as", "gpus", "--gpus", "0,2"], &[0, 2]),
        (&["--as", "gpus", "--ranks-per-gpu", "2", "-n", "5"], &[0, 0, 1, 1, 2]),
    ];
    for (options, cards) in cases {
        let ran = run(options);
        let all = cards.iter().enumerate().all(|(rank, at)| ran.out.contains(&card(rank, *at)));
        assert!(ran.code == Some(0) && all, "{options:?}: {ran:?}");
        assert_eq!(ran.out.matches(" has stand-in").count(), cards.len(), "{options:?}: {ran:?}");
    }
    let few = run(&["--as", "gpus", "-n", "4"]);
    assert_eq!(few.code, Some(2), "{few:?}");
    assert!(few.err.contains("4 ranks need 4 GPUs, and there are 3"), "{few:?}");
    assert!(few.err.contains("--ranks-per-gpu 2"), "{few:?}");
    let none = run(&["--as", "gpus", "--gpus", "3"]);
    assert!(none.code == Some(2) && none.err.contains("0 to 2"), "{none:?}");
    let doctor = support::finish(support::spmdrun(&["--doctor"]).env("SPMD_STANDIN_CARDS", "2"));
    for text in ["CUDA driver", "NVRTC", "NCCL", "0: stand-in card 0", "1: stand-in card 1"] {
        assert!(doctor.out.contains(text), "{text}: {doctor:?}");
    }
    let none = support::finish(support::spmdrun(&["--doctor"]).env("SPMD_STANDIN_CARDS", "0"));
    assert!(none.out.contains("there is no device 0: the driver shows 0"), "{none:?}");
}
