//! One program, byte for byte, on everything that can run its ranks: threads, virtual ranks and
//! processes of this host, each MPI library, several ranks in each of its processes. What the ranks
//! compute has the same bits everywhere.

#![cfg(target_os = "linux")]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use spmd::prelude::*;
use spmd_conformance::element::{bytes, random};
use support::{Mpi, again, finish, spmdrun};

const RANKS: usize = 6;

/// FNV-1a.
fn digest(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Numbers of very different sizes, so that the order of additions shows.
fn numbers(rank: usize, count: usize) -> Vec<f64> {
    let number = |index| {
        let random = random(7, rank, index);
        (random as f64 / u64::MAX as f64 - 0.5) * 2f64.powi((random % 40) as i32)
    };
    (0..count).map(number).collect()
}

/// A digest of what this rank has computed with the others.
fn computed(ctx: &Ctx) -> Result<u64> {
    let (me, size) = (ctx.rank(), ctx.size());
    let mut hash = 0xcbf2_9ce4_8422_2325;
    let half = Op::new(|a: f64, b: f64| a / 2.0 + b).non_commutative();
    for count in [1, 1000, 40_000] {
        let mine = numbers(me, count * size);
        let mut all = vec![0.0; count * size];
        ctx.allreduce(&mine, &mut all, Sum)?;
        hash = digest(hash, bytes(&all));
        ctx.reduce(&mine, &mut all, &half, count % size)?;
        hash = digest(hash, bytes(&all));
        ctx.scan(&mine, &mut all, Sum)?;
        hash = digest(hash, bytes(&all));
        let mut part = vec![0.0; count];
        ctx.reduce_scatter(&mine, &mut part, Sum)?;
        ctx.alltoall(&mine, &mut all)?;
        hash = digest(digest(hash, bytes(&part)), bytes(&all));
        let parity = ctx.split(Some((me % 2) as u32), 0)?.expect("each rank has a color");
        parity.allreduce(&mine, &mut all, Sum)?;
        let (right, left) = ((me + 1) % size, (me + size - 1) % size);
        let mut from_left = vec![0.0; count * size];
        ctx.sendrecv(&all, right, 3, &mut from_left, left, 3)?;
        hash = digest(hash, bytes(&from_left));
    }
    Ok(hash)
}

#[test]
#[ignore = "the program of other tests"]
fn program() -> Result<()> {
    spmd::run(|ctx| {
        assert_eq!(ctx.size(), RANKS);
        let own = digest(0xcbf2_9ce4_8422_2325, &fs::read("/proc/self/exe")?);
        let all = ctx.allgather_value([own, computed(ctx)?])?;
        if ctx.rank() == 0 {
            assert!(all.iter().all(|[program, _]| *program == own), "{all:x?}");
            let results = all.iter().map(|[_, result]| result).copied().collect::<Vec<_>>();
            println!("the file {own:016x} computed {:016x}", digest(0, bytes(&results)));
        }
        Ok(())
    })
    .map(drop)
}

#[test]
fn the_same_bytes_run_everywhere_and_compute_the_same_bits() {
    let here = ["threads", "virtual", "processes"];
    let mut commands: Vec<(String, Command)> = Vec::new();
    for mode in here {
        let ranks = RANKS.to_string();
        commands.push((mode.to_owned(), spmdrun(&["--ranks", &ranks, "--as", mode])));
    }
    for mpi in Mpi::all() {
        for (processes, each, mode) in
            [(RANKS, 1, "threads"), (2, RANKS / 2, "threads"), (3, RANKS / 3, "virtual")]
        {
            let place = format!("{}, {processes} processes of {each} {mode}", mpi.name);
            commands.push((place, mpi.launch(processes, each, mode)));
        }
    }
    let mut said = BTreeMap::<String, Vec<String>>::new();
    for (place, command) in commands {
        let ran = finish(again(command, "program").env("SPMD_REPRODUCIBLE", "1"));
        assert_eq!(ran.code, Some(0), "{place}: {ran:?}");
        let line = ran.out.lines().find_map(|line| Some(&line[line.find("the file ")?..]));
        said.entry(line.unwrap_or(&ran.out).to_owned()).or_default().push(place);
    }
    println!("{said:#?}");
    assert_eq!(said.len(), 1, "{said:#?}");
}
