//! Messages that fail.

use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use spmd::Progress;
use spmd::prelude::*;
use spmd_gpu::OnDevice;

use super::support::{finish, is_process_rank, spmdrun_self};
use super::{card, everywhere, holds};

/// Longer ones, and those of another type: an error, and what was on the device stays there.
#[test]
fn messages_that_do_not_fit() -> Result<()> {
    everywhere("failures::messages_that_do_not_fit", &[1, 2], |ctx| {
        let (device, other) = (ctx.device()?, ctx.size() - 1 - ctx.rank());
        for count in [4, 40_000] {
            let old = vec![7u32; count];
            for early in [false, true] {
                let long = || ctx.isend(device.buffer_from(&vec![1u32; count + 1])?, other, 1);
                let letters = || ctx.isend(device.buffer_from(&vec!['x'; count])?, other, 2);
                let sent = if early { Some((long()?, letters()?)) } else { None };
                let mut receive = ctx.recv_init(device.buffer_from(&old)?, other, 1)?;
                let mut room = device.buffer_from(&old)?;
                // It may have come by then.
                let started = receive.start();
                let refused = ctx.requests(|requests| {
                    let received = requests.irecv(&mut room, other, 2);
                    let late = if early { None } else { Some((long()?, letters()?)) };
                    let (long, letters) = sent.or(late).expect("it is sent first or last");
                    // They are taken, and not received.
                    long.wait()?;
                    letters.wait()?;
                    received.map(drop)
                });
                let waited = started.and_then(|()| receive.wait());
                for error in [waited, refused] {
                    let error = error.expect_err("it does not fit").to_string();
                    assert!(error.contains("gpu_messages"), "{error}");
                }
                assert!(holds(receive.get()?, &old)? && holds(&room, &old)?);
                // The next one does.
                let sent = ctx.isend(device.buffer_from(&vec![2u32; count])?, other, 1)?;
                receive.start()?;
                receive.wait()?;
                assert!(holds(receive.get()?, &vec![2; count])?);
                sent.wait()?;
            }
        }
        Ok(())
    })
}

/// What a rank is told whose peer fails while receives wait, which leave their buffers as they are.
fn pending(ctx: &Ctx, fail: fn() -> Result<()>) -> Result<()> {
    let (device, count) = (ctx.device()?, 20_000);
    if ctx.rank() == 1 {
        // The others wait by then.
        ctx.recv(&mut [0u8], 0, 0)?;
        return fail();
    }
    let mut room = device.buffer_from(&vec![7u64; count])?;
    let kept = ctx.irecv(device.zeros::<u64>(count)?, 1, 0)?;
    std::mem::forget(ctx.irecv(device.zeros::<u64>(3)?, 1, 0)?);
    let refused = ctx.requests(|requests| {
        requests.irecv(&mut room, 1, 1)?;
        ctx.send(&[0u8], 1, 0)
    });
    let (refused, error) = (refused.expect_err("it fails"), kept.wait().expect_err("it fails"));
    assert!(holds(&room, &vec![7; count])?);
    println!("told: {refused}");
    Err(error)
}

#[test]
fn a_peer_that_fails() {
    if !card::gpu() {
        return;
    }
    for progress in [Progress::Calls, Progress::Thread] {
        for block in [Spmd::new(2).threads(), Spmd::new(2).virtual_ranks()] {
            let told = Mutex::new(String::new());
            let ended = block.progress(progress).run(|ctx| {
                let ended = pending(ctx, || Err("enough".into()));
                if let (0, Err(error)) = (ctx.rank(), &ended) {
                    *told.lock().unwrap() = error.to_string();
                }
                ended
            });
            assert_eq!(ended.expect_err("it has had enough").to_string(), "enough");
            let told = told.into_inner().unwrap();
            assert!(told.contains("rank 1 failed first") && told.contains("enough"), "{told}");
        }
    }
}

#[test]
fn a_process_that_dies() {
    if !card::gpu() {
        return;
    }
    if is_process_rank() {
        spmd::run(|ctx| pending(ctx, || std::process::abort())).expect_err("rank 1 dies");
        return;
    }
    for progress in ["calls", "thread"] {
        let mut job = spmdrun_self("failures::a_process_that_dies", 2);
        let ran = finish(job.env("SPMD_PROGRESS", progress));
        assert!(ran.code != Some(0) && ran.out.contains("told: "), "{progress}: {ran:?}");
        assert!(ran.out.contains("rank 1"), "{progress}: {ran:?}");
    }
}

/// Ranks that wait for each other.
#[test]
fn a_deadlock() {
    if !card::gpu() {
        return;
    }
    for block in [Spmd::new(2).threads(), Spmd::new(2).virtual_ranks()] {
        let ended = block.timeout(Duration::from_secs(60)).run(|ctx| {
            let room = ctx.device()?.zeros::<u8>(10)?;
            ctx.irecv(room, 1 - ctx.rank(), 0)?.wait().map(drop)
        });
        let error = ended.expect_err("nobody sends").to_string();
        assert!(error.contains("deadlock") && error.contains("irecv"), "{error}");
    }
}

#[test]
#[ignore = "run by a_card_that_fails, on a card that does"]
fn on_a_card_that_fails() {
    let progress = match std::env::var("SPMD_TEST_PROGRESS").is_ok_and(|how| how == "thread") {
        true => Progress::Thread,
        false => Progress::Calls,
    };
    let ended = Spmd::new(1).progress(progress).run(|ctx| {
        let sent = ctx.isend(vec![1u8; 20_000], 0, 0)?;
        let request = ctx.irecv(ctx.device()?.zeros::<u8>(20_000)?, 0, 0)?;
        match std::env::var("SPMD_TEST_DROP") {
            Ok(_) => drop(request),
            Err(_) => println!("told: {}", request.wait().expect_err("the copy fails")),
        }
        sent.wait().map(drop)
    });
    match ended {
        Ok(_) => println!("all is well"),
        Err(error) => println!("at the end: {error}"),
    }
}

/// A copy to the device that fails is the failure of the receive, whoever waits for that.
#[test]
fn a_card_that_fails() {
    if !card::stand_in() {
        return;
    }
    let cases: [(&[(&str, &str)], &str); 4] = [
        (&[], "told: "),
        (&[("SPMD_TEST_PROGRESS", "thread")], "told: "),
        (&[("SPMD_TEST_DROP", "1")], "at the end: "),
        (&[("SPMD_TEST_DROP", "1"), ("SPMD_TEST_PROGRESS", "thread")], "at the end: "),
    ];
    for (changes, told) in cases {
        let mut child = Command::new(std::env::current_exe().expect("a test knows its own path"));
        child.args(["failures::on_a_card_that_fails", "--exact", "--ignored", "--nocapture"]);
        // Its first copy there, which is that of the receive.
        child.env("SPMD_STANDIN_FAIL", "cuMemcpyHtoDAsync_v2:1:1").envs(changes.iter().copied());
        let ran = finish(&mut child);
        let told = format!("{told}the CUDA driver refused cuMemcpyHtoDAsync: invalid argument");
        assert!(ran.out.contains(&told), "{changes:?}: {ran:?}");
    }
}
