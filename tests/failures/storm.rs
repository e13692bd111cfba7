//! Kills at random times: 200 of them, or as many as `SPMD_TEST_KILLS` says.

use std::time::Duration;

use fastrand::Rng;
use rustix::process::{Signal, getpid, kill_process};
use spmd::prelude::*;

use crate::job::{BOUND, DEED, Job, exit_with, now, say};
use crate::support::is_process_rank;

/// The victim and the microseconds that it lives, as `1 20000`.
fn doom() -> (usize, Duration) {
    let text = std::env::var(DEED).expect("set by the test");
    let (victim, micros) = text.split_once(' ').expect("two numbers");
    let micros = micros.parse().expect("a number");
    (victim.parse().expect("a rank"), Duration::from_micros(micros))
}

/// Every kind of wait, over and over, until an error ends it.
fn work(ctx: &Ctx) -> Result<()> {
    let (me, n) = (ctx.rank(), ctx.size());
    let (right, left) = ((me + 1) % n, (me + n - 1) % n);
    let mut large = vec![1u64; 60_000];
    let mut other = large.clone();
    loop {
        ctx.barrier()?;
        ctx.allreduce_value(me, Sum)?;
        ctx.allreduce_in_place(&mut large, Max)?;
        ctx.sendrecv(&[me], right, 0, &mut [0usize], left, 0)?;
        ctx.sendrecv(&large, right, 1, &mut other, left, 1)?;
        if me % 2 == 0 && me + 1 < n {
            ctx.send(&large, me + 1, 2)?;
        } else if me % 2 == 1 {
            ctx.recv(&mut other, me - 1, 2)?;
        }
        ctx.broadcast(&mut large, n - 1)?;
        ctx.gather_value(me, 0)?;
        let copy = ctx.dup()?;
        copy.alltoall(&vec![1u8; n], &mut vec![0; n])?;
        if me == 0 {
            (1..n).try_for_each(|_| ctx.recv(&mut [0u8], ANY, 3).map(drop))?;
        } else {
            ctx.send(&[7u8], 0, 3)?;
        }
    }
}

/// Blocks that the kernel copies, so long that a rank reads one while the owner of the next dies.
fn read(ctx: &Ctx) -> Result<()> {
    let mine = vec![ctx.rank() as u64; 1 << 20];
    let mut all = vec![0; ctx.size() * mine.len()];
    loop {
        ctx.allgather(&mine, &mut all)?;
    }
}

#[test]
#[ignore = "the program of the other tests"]
fn program() {
    die_while(work);
}

#[test]
#[ignore = "the program of another test"]
fn reader() {
    die_while(read);
}

fn die_while(work: impl Fn(&Ctx) -> Result<()> + Sync) {
    if !is_process_rank() {
        return;
    }
    let (victim, lives) = doom();
    if std::env::var("SPMD_RANK").is_ok_and(|rank| rank == victim.to_string()) {
        std::thread::spawn(move || {
            std::thread::sleep(lives);
            say("killed");
            kill_process(getpid(), Signal::KILL)
        });
    }
    exit_with(run(work).map(drop));
}

#[test]
fn random_kills() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let kills = number("SPMD_TEST_KILLS").unwrap_or(200);
    let seed = number("SPMD_TEST_SEED").unwrap_or(now() as u64);
    let mut random = Rng::with_seed(seed);
    let mut slowest = Duration::ZERO;
    for kill in 0..kills {
        let ranks = 2 + random.u64(..4);
        let (victim, lives) = (random.u64(..ranks), random.u64(..30_000));
        let case = format!("kill {kill} of seed {seed}: rank {victim} of {ranks} after {lives} µs");
        let doom = format!("{victim} {lives}");
        let ended =
            Job::start("storm::program", &["-n", &ranks.to_string()], &[(DEED, &doom)]).end();
        assert_eq!(ended.code, Some(137), "{case}: {ended:?}");
        let cause = "its process was killed by signal 9 (SIGKILL)";
        let last = format!("spmdrun: rank {victim} failed first: {cause}");
        assert_eq!(ended.last_line(), last, "{case}: {ended:?}");
        let said = ended.said();
        let killed = said.iter().find(|said| said.rank as u64 == victim);
        let killed = killed.unwrap_or_else(|| panic!("{case}: {ended:?}")).at;
        // Those that had not started yet were ended by the launcher.
        for said in said.iter().filter(|said| said.rank as u64 != victim) {
            let words = format!("rank {victim} failed first: {cause}");
            assert!(said.text.ends_with(&words), "{case}: {said:?}");
            let after = Duration::from_millis(said.at.saturating_sub(killed) as u64);
            assert!(after < BOUND, "{case}: {after:?}: {said:?}");
            slowest = slowest.max(after);
        }
    }
    println!("{kills} kills: the slowest survivor ended after {slowest:?}");
}

#[test]
fn kills_while_the_kernel_copies() {
    let mut random = Rng::with_seed(now() as u64);
    for _ in 0..20 {
        let lives = 200_000 + random.u64(..50_000);
        let variables = [(DEED, &*format!("2 {lives}")), ("SPMD_FORCE", "allgather=single_copy")];
        let ended = Job::start("storm::reader", &["-n", "3"], &variables).end();
        let cause = "rank 2 failed first: its process was killed by signal 9 (SIGKILL)";
        assert_eq!(ended.last_line(), format!("spmdrun: {cause}"), "{lives} µs: {ended:?}");
        for said in ended.said().iter().filter(|said| said.rank != 2) {
            assert!(said.text.ends_with(cause), "{lives} µs: {said:?}");
        }
    }
}
