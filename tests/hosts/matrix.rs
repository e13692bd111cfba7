//! The conformance matrix on several hosts.

use std::fs;

use spmd::prelude::*;
use spmd_matrix::{Choice, cases};

use crate::support::{is_mpi_process, launched};
use crate::world::World;

const ONE_TYPE: Choice = Choice { all_layouts: false, all_types: false };

/// Hosts, processes on each, and ranks of each.
type Place = (usize, usize, usize);

/// Bytes that a host must have sent at least when the ranks have met and talked; starting a job
/// takes a tenth.
const TALK: u64 = 100_000;

fn everywhere(
    test: &str,
    places: &[Place],
    settings: &[(&str, &str)],
    body: impl Fn(&Ctx) -> Result<()> + Sync,
) -> Result<()> {
    for &(hosts, processes, each) in places {
        for world in World::each(hosts) {
            let before = world.hosts.sent();
            let told =
                format!("{}: {hosts} hosts, {processes} processes of {each}", world.mpi.name);
            let launch = || world.spmdrun(processes, each);
            launched(test, hosts * processes, &told, launch, settings, |ctx| {
                assert_eq!(ctx.size(), hosts * processes * each);
                names_agree(ctx)?;
                body(ctx)
            })?;
            if !is_mpi_process() {
                let after = world.hosts.sent();
                let sent: Vec<u64> = before.iter().zip(&after).map(|(b, a)| a - b).collect();
                println!("{told}: bytes sent {sent:?}");
                assert!(sent.iter().all(|sent| *sent > TALK), "{told}: bytes sent {sent:?}");
                assert_eq!(world.hosts.running(), []);
            }
        }
    }
    Ok(())
}

/// The library groups ranks by host as the hosts' own names do.
fn names_agree(ctx: &Ctx) -> Result<()> {
    let mine = fs::read_to_string("/proc/sys/kernel/hostname")?;
    let all: Vec<String> = ctx.allgather_object(&mine)?;
    let here = (0..ctx.size()).filter(|rank| all[*rank] == mine).collect::<Vec<_>>();
    let host = ctx.split_host()?;
    let together = host.allgather_value(ctx.rank())?;
    assert_eq!(together, here, "{all:?}");
    Ok(())
}

#[test]
fn flat() -> Result<()> {
    let places = [(2, 2, 1), (3, 1, 1)];
    everywhere("matrix::flat", &places, &[], |ctx| cases(ctx, ONE_TYPE))
}

#[test]
fn in_the_canonical_order() -> Result<()> {
    let settings = [("SPMD_REPRODUCIBLE", "1")];
    everywhere("matrix::in_the_canonical_order", &[(3, 1, 1)], &settings, |ctx| {
        cases(ctx, ONE_TYPE)
    })
}

#[test]
fn hybrid() -> Result<()> {
    everywhere("matrix::hybrid", &[(2, 1, 2)], &[], |ctx| cases(ctx, ONE_TYPE))
}
