//! A process rank that writes random bytes over all memory of the arena that it can write, while
//! the others compute: they end with errors or right results, never by a signal, a panic or a
//! wrong result. `SPMD_TEST_SEEDS` says how many times, each with another seed.

#![cfg(target_os = "linux")]

use std::fs::{File, read_to_string};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use spmd::prelude::*;

#[path = "failures/job.rs"]
#[allow(dead_code, reason = "this file uses a part of it")]
mod job;
mod support;

use fastrand::Rng;
use job::{DEED, Job, exit_with, now, say, say_arena};
use support::is_process_rank;

/// The rank that is hostile.
const HOSTILE: usize = 1;
/// How long the honest ranks go on.
const TIME: Duration = Duration::from_millis(500);
/// What ends a wait for somebody whom the hostile rank has led astray: it can also wipe out the
/// news of failures.
const LIMIT: (&str, &str) = ("SPMD_TIMEOUT", "2");
const PAGE: u64 = 4096;
/// How far into a mapping the interesting parts go: records, rings, staging areas.
const REACH: u64 = 32 << 20;

#[test]
#[ignore = "the program of the other test"]
fn program() {
    if !is_process_rank() {
        return;
    }
    let seed: u64 = std::env::var(DEED).ok().and_then(|text| text.parse().ok()).expect("a seed");
    let outcome = run(|ctx| {
        if ctx.rank() == 0 {
            say_arena();
        }
        let honest = ctx.split(Some(u32::from(ctx.rank() == HOSTILE)), 0)?.expect("it has a color");
        if ctx.rank() == HOSTILE {
            let scribbler = std::thread::spawn(move || scribble(seed));
            // It takes part all the while, so that its lies are listened to.
            let mut turn = 0;
            while !scribbler.is_finished() && with_everybody(ctx, turn).is_ok() {
                turn += 1;
            }
            scribbler.join().expect("it does not panic");
            std::process::exit(3);
        }
        let start = Instant::now();
        let (mut trusting, mut turn) = (Ok(()), 0);
        while start.elapsed() < TIME {
            if trusting.is_ok() {
                trusting = with_everybody(ctx, turn);
            }
            among_the_honest(&honest, turn)?;
            turn += 1;
        }
        trusting
    });
    exit_with(outcome.map(drop));
}

/// Calls in which the hostile rank has a part. What it contributes may be anything, but a value.
fn with_everybody(ctx: &Ctx, turn: usize) -> Result<()> {
    let (me, n) = (ctx.rank(), ctx.size());
    let (right, left) = ((me + 1) % n, (me + n - 1) % n);
    ctx.allreduce_value(me as f64, Sum)?;
    for value in ctx.allgather_value('x')? {
        assert!(char::from_u32(value as u32).is_some());
    }
    let flags = ctx.allgatherv_vec(&vec![true; 10 + me])?.into_parts().0;
    assert!(flags.iter().all(|flag| (*flag as u8) < 2));
    let mut large = vec![me as u64; 30_000];
    ctx.allreduce_in_place(&mut large, Max)?;
    ctx.sendrecv(&large, right, 0, &mut vec![0u64; 30_000], left, 0)?;
    ctx.sendrecv(&[me], right, 1, &mut [0usize], left, 1)?;
    ctx.broadcast(&mut large, turn % n)?;
    ctx.alltoall(&vec![1u8; n], &mut vec![0u8; n])?;
    ctx.gatherv_vec(&vec![me; turn % 50], turn % n)?;
    let texts = ctx.allgather_object(&format!("rank {me}"))?;
    assert_eq!(texts.len(), n);
    let row = ctx.split(Some(me as u32 % 2), 0)?.expect("it has a color");
    row.allreduce_value(me, Sum)?;
    let window = ctx.window::<char>(100)?;
    window.fence()?;
    window.put(&vec!['y'; 50 + turn % 50], right, 0)?;
    window.accumulate(&['z'; 20], left, 80, Max)?;
    window.fence()?;
    let mut letters = vec!['x'; 100];
    window.get(&mut letters, right, 0)?;
    letters.extend(window.read(..)?);
    assert!(letters.iter().all(|letter| char::from_u32(*letter as u32).is_some()));
    window.fence()?;
    window.lock(right)?;
    window.put(&['q'], right, 50)?;
    window.unlock(right)?;
    window.lock_all()?;
    window.compare_and_swap('q', 'r', left, 50)?;
    window.unlock_all()?;
    let long = ctx.window::<[u64; 4]>(1)?;
    long.lock_all()?;
    long.fetch_and_op([1; 4], turn % n, 0, Sum)?;
    long.unlock_all()?;
    if me > 0 {
        ctx.send(&vec![me as u32; 100 * me], 0, 2)?;
    } else {
        for _ in 1..n {
            ctx.recv_vec::<u32>(ANY, 2)?;
        }
    }
    Ok(())
}

/// Calls in which it has none: their results are right.
fn among_the_honest(comm: &Comm, turn: usize) -> Result<()> {
    let (me, n) = (comm.rank(), comm.size());
    let (right, left) = ((me + 1) % n, (me + n - 1) % n);
    let expect = |right: bool, what: &str| {
        if !right {
            say(&format!("WRONG: {what} in turn {turn}"));
            std::process::exit(42);
        }
    };
    expect(comm.allreduce_value(me + turn, Sum)? == n * (n - 1) / 2 + n * turn, "a sum");
    let mut large = vec![(me + turn) as u64; 40_000];
    comm.allreduce_in_place(&mut large, Max)?;
    expect(large.iter().all(|x| *x == (n - 1 + turn) as u64), "a large maximum");
    let mine: Vec<u32> = (0..30_000).map(|i| i ^ (me + turn) as u32).collect();
    let mut theirs = vec![0u32; 30_000];
    comm.sendrecv(&mine, right, 5, &mut theirs, left, 5)?;
    let same = theirs.iter().enumerate().all(|(i, x)| *x == i as u32 ^ (left + turn) as u32);
    expect(same, "a large message");
    let mut small = [0usize; 3];
    comm.sendrecv(&[me, turn, 7], right, 6, &mut small, left, 6)?;
    expect(small == [left, turn, 7], "a small message");
    let all = comm.allgather_object(&(me, turn))?;
    expect(all.iter().enumerate().all(|(rank, it)| *it == (rank, turn)), "objects");
    Ok(())
}

/// Writes nonsense over what this process may write of the arena, page by page of those that it
/// has used: by turns over all of it in a hurry, over all now and then, or over a few pages. It
/// goes through the kernel, which writes as any hostile program could.
fn scribble(seed: u64) {
    let memory = File::options().write(true).open("/proc/self/mem").expect("one's own memory");
    let mut random = Rng::with_seed(seed);
    let (start, manner) = (Instant::now(), seed % 3);
    let chosen: Vec<u64> = (0..3).map(|_| random.u64(..)).collect();
    let mut used = used_pages();
    let mut turn = 0;
    while start.elapsed() < TIME / 2 {
        if turn % 500 == 0 {
            used = used_pages();
        }
        turn += 1;
        let page = match manner {
            2 => chosen[random.usize(..3)] % used.len() as u64,
            _ => random.u64(..used.len() as u64),
        };
        let within = random.u64(..PAGE) / 8 * 8;
        let len = 8 * (1 + random.u64(..[64, 1, 8][manner as usize]));
        let words = (0..len.min(PAGE - within) / 8).map(|_| nonsense(&mut random));
        let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        // A part of a window may be closed by now.
        let _ = memory.write_at(&bytes, used[page as usize] + within);
        match manner {
            0 if random.u64(..50) != 0 => {}
            _ => std::thread::sleep(Duration::from_micros(random.u64(..1000))),
        }
    }
}

/// The pages of the arena that this process may write and has used.
fn used_pages() -> Vec<u64> {
    let maps = read_to_string("/proc/self/maps").expect("/proc is there");
    let map = File::open("/proc/self/pagemap").expect("one's own pages");
    let mut pages = Vec::new();
    for (from, to) in maps.lines().filter_map(writable_part) {
        let count = (to - from).min(REACH) / PAGE;
        let mut entries = vec![0u8; count as usize * 8];
        map.read_exact_at(&mut entries, from / PAGE * 8).expect("one's own pages");
        let present = |index: &u64| entries[*index as usize * 8 + 7] & 0x80 != 0;
        pages.extend((0..count).filter(present).map(|index| from + index * PAGE));
    }
    assert!(!pages.is_empty(), "a rank uses the arena");
    pages
}

/// Random bits, and numbers that may pass for offsets, lengths, ranks or states.
fn nonsense(random: &mut Rng) -> u64 {
    match random.u64(..6) {
        0 => random.u64(..4),
        1 => random.u64(..1 << 20),
        2 => random.u64(..1 << 36),
        3 => u64::MAX - random.u64(..4),
        4 => random.u64(..300) << 20 | random.u64(..8),
        _ => random.u64(..),
    }
}

/// The bounds of a writable mapping of the arena.
fn writable_part(line: &str) -> Option<(u64, u64)> {
    let mut fields = line.split_whitespace();
    let (range, permissions) = (fields.next()?, fields.next()?);
    if !permissions.starts_with("rw") || !line.contains("/memfd:spmd") {
        return None;
    }
    let (from, to) = range.split_once('-')?;
    Some((u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?))
}

#[test]
fn random_bytes_over_the_arena() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("SPMD_TEST_SEED").unwrap_or(now() as u64);
    for seed in first..first + number("SPMD_TEST_SEEDS").unwrap_or(8) {
        let arguments = ["-n", "4", "--timeout", "20", "--grace", "4"];
        let ended = Job::start("program", &arguments, &[(DEED, &seed.to_string()), LIMIT]).end();
        assert_ne!(ended.code, Some(124), "seed {seed} hangs: {ended:?}");
        let said = ended.said();
        for rank in (0..4).filter(|rank| *rank != HOSTILE) {
            let said = said.iter().find(|said| said.rank == rank);
            let said = said.unwrap_or_else(|| panic!("seed {seed}: rank {rank} died: {ended:?}"));
            assert!(!said.text.contains("WRONG"), "seed {seed}: {said:?}");
        }
    }
}
