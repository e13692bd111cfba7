//! Grids of ranks, and exchanges with neighbours in every placement and by every algorithm.

mod common;

use common::{Sample, buffer, everywhere};
use spmd_collectives::{Allreduce, Barrier, Cartesian, Neighbor, Split, Topology, dims_create};
use spmd_core::algorithm::{Algorithm, Kind};
use spmd_core::{Ctx, Error, Result, Spmd, Sum, strided, strided_mut};

/// What `from` sends to its side `side`.
fn sent<T: Sample>(from: usize, side: usize, index: usize) -> T {
    T::of(10 * from + side, index)
}

fn exchanges<T: Sample>(grid: &Cartesian, block: usize) -> Result<()> {
    let (me, around) = (grid.rank(), grid.neighbors());
    let sides = around.len();
    let untouched = |at: usize| T::of(99, at);

    let mut recv = buffer::<T>(99, sides * block);
    grid.neighbor_allgather(&buffer::<T>(me, block), &mut recv)?;
    for (at, got) in recv.iter().enumerate() {
        let from = around[at / block];
        assert_eq!(*got, from.map_or(untouched(at), |from| T::of(from, at % block)));
    }

    let send: Vec<T> = (0..sides * block).map(|i| sent(me, i / block, i % block)).collect();
    let mut recv = buffer::<T>(99, sides * block);
    grid.neighbor_alltoall(&send, &mut recv)?;
    for (at, got) in recv.iter().enumerate() {
        let side = at / block;
        let expected = |from| sent(from, side ^ 1, at % block);
        assert_eq!(*got, around[side].map_or(untouched(at), expected));
    }

    let count = |from: usize, side: usize| (from + side) % 3 * block;
    let send_counts: Vec<usize> = (0..sides).map(|side| count(me, side)).collect();
    let from = |side: usize| around[side].map_or(2, |from| count(from, side ^ 1));
    let recv_counts: Vec<usize> = (0..sides).map(from).collect();
    let blocks = send_counts.iter().enumerate();
    let send: Vec<T> =
        blocks.flat_map(|(side, count)| (0..*count).map(move |i| sent(me, side, i))).collect();
    let mut recv = buffer::<T>(99, recv_counts.iter().sum());
    grid.neighbor_alltoallv(&send, &mut recv, &send_counts, &recv_counts)?;
    let mut at = 0;
    for (side, count) in recv_counts.iter().enumerate() {
        for index in 0..*count {
            let expected = |from| sent(from, side ^ 1, index);
            assert_eq!(recv[at], around[side].map_or(untouched(at), expected));
            at += 1;
        }
    }
    Ok(())
}

fn all_grids(ctx: &Ctx, counts: &[usize]) -> Result<()> {
    let n = ctx.size();
    for periodic in [[false, false, true], [true, true, false]] {
        for axes in 0..=3 {
            let dims = if axes == 0 { Vec::new() } else { dims_create(n - n / 5, axes) };
            let Some(grid) = ctx.cartesian(&dims, &periodic[..axes])? else { continue };
            for count in counts {
                exchanges::<f64>(&grid, *count)?;
                exchanges::<bool>(&grid, *count)?;
                exchanges::<[f32; 3]>(&grid, *count)?;
            }
        }
    }
    ctx.barrier()
}

#[test]
fn neighbors_exchange() -> Result<()> {
    everywhere(|block| block, |ctx| all_grids(ctx, &[0, 1, 3, 700]))?;
    Spmd::new(7).threads().run(|ctx| all_grids(ctx, &[40_000]))?;
    let calls = [Kind::NeighborAllgather, Kind::NeighborAlltoall, Kind::NeighborAlltoallv];
    let forced =
        |block| calls.iter().fold(block, |b: Spmd, call| b.force(*call, Algorithm::Chunked));
    everywhere(forced, |ctx| all_grids(ctx, &[0, 1, 50]))
}

#[test]
fn coordinates_and_shifts() -> Result<()> {
    everywhere(
        |block| block,
        |ctx| {
            let dims = dims_create(ctx.size(), 2);
            let grid = ctx.cartesian(&dims, &[true, false])?.expect("all have a place");
            assert_eq!(grid.allreduce_value(1, Sum)?, ctx.size());
            assert_eq!((grid.dims(), grid.periodic()), (&dims[..], &[true, false][..]));
            let coords = grid.coords();
            assert_eq!(coords, [grid.rank() / dims[1], grid.rank() % dims[1]]);
            for rank in 0..grid.size() {
                assert_eq!(grid.rank_of(&grid.coords_of(rank)?)?, rank);
            }
            assert!(grid.coords_of(grid.size()).is_err() && grid.rank_of(&[0]).is_err());
            assert!(grid.shift(2, 1).is_err());
            for by in [-3isize, -1, 0, 1, 2, 100, isize::MIN] {
                let there = |axis: usize, by: i128| {
                    let mut to: Vec<i128> = coords.iter().map(|c| *c as i128).collect();
                    to[axis] += by;
                    if axis == 0 {
                        to[0] = to[0].rem_euclid(dims[0] as i128);
                    }
                    let to: Option<Vec<usize>> =
                        to.iter().map(|coord| usize::try_from(*coord).ok()).collect();
                    to.and_then(|to| grid.rank_of(&to).ok())
                };
                for axis in [0, 1] {
                    let expected = (there(axis, -(by as i128)), there(axis, by as i128));
                    assert_eq!(grid.shift(axis, by)?, expected);
                }
            }
            Ok(())
        },
    )
}

#[test]
fn a_halo_of_columns() -> Result<()> {
    Spmd::new(4).threads().run(|ctx| {
        let ring = ctx.cartesian(&[4], &[true])?.expect("four places");
        // Three rows of four columns; the outer columns are the halo.
        let mut field = [ring.rank() as f64; 12];
        let (left, right) = (1, 2);
        let mut halo = [0.0; 6];
        let send = [left, right].map(|c| [field[c], field[c + 4], field[c + 8]]).concat();
        ring.neighbor_alltoall(&send, &mut halo)?;
        let before = ((ring.rank() + 3) % 4) as f64;
        assert_eq!(halo[..3], [before; 3]);
        let behind = ((ring.rank() + 1) % 4) as f64;
        ring.neighbor_allgather(
            &strided(&send, 3, 1, 1)?,
            &mut strided_mut(&mut field[3..], 3, 2, 3)?,
        )?;
        assert_eq!((field[3], field[10]), (before, behind));
        Ok(())
    })?;
    Ok(())
}

#[test]
fn dims_are_balanced() {
    let cases: [(usize, usize, &[usize]); 9] = [
        (1, 3, &[1, 1, 1]),
        (6, 1, &[6]),
        (6, 2, &[3, 2]),
        (16, 2, &[4, 4]),
        (24, 3, &[4, 3, 2]),
        (36, 2, &[6, 6]),
        (100, 3, &[5, 5, 4]),
        (97, 2, &[97, 1]),
        (4096, 4, &[8, 8, 8, 8]),
    ];
    for (size, ndims, dims) in cases {
        assert_eq!(dims_create(size, ndims), dims);
    }
}

#[test]
fn grids_that_cannot_be() -> Result<()> {
    Spmd::new(2).threads().run(|ctx| {
        let refused = |dims: &[usize], periodic: &[bool]| {
            assert!(matches!(ctx.cartesian(dims, periodic), Err(Error::Argument(_))));
        };
        refused(&[3], &[true]);
        refused(&[2], &[]);
        refused(&[2, 0], &[true, true]);
        refused(&[usize::MAX, 2], &[true, true]);
        Ok(())
    })?;
    let different = Spmd::new(2).threads().run(|ctx| {
        ctx.cartesian(&[2], &[ctx.rank() == 0])?;
        Ok(())
    });
    let text = different.unwrap_err().to_string();
    assert!(text.contains("different grids") && text.contains("cartesian at"), "{text}");
    let different = Spmd::new(2).threads().run(|ctx| {
        let grid = ctx.cartesian(&[2], &[true])?.expect("two places");
        let counts = [[1, 1], [2, 1]][ctx.rank()];
        grid.neighbor_alltoallv(&vec![0; counts[0] + 1], &mut [0; 2], &counts, &[1, 1])
    });
    let text = different.unwrap_err().to_string();
    assert!(text.contains("different counts") && text.contains("neighbor_alltoallv"), "{text}");
    Ok(())
}

#[cfg(target_os = "linux")]
#[test]
fn processes() -> Result<()> {
    let settings = [("SPMD_SEGMENT", "256"), ("SPMD_TIMEOUT", "60")];
    common::processes("processes", 3, &settings, |ctx| {
        all_grids(ctx, &[0, 1, 3, 700])?;
        for turn in 0..50 {
            let part = ctx.split(Some(turn % 2 * ctx.rank() as u32), 0)?.expect("all have a color");
            let copy = part.dup()?;
            assert_eq!(copy.allreduce_value(1, Sum)?, if turn % 2 == 0 { 3 } else { 1 });
        }
        Ok(())
    })
}

/// What no rank can do is told before ranks meet; faces that do not fit, on all of them.
#[test]
fn halos_that_do_not_fit() {
    let ended = Spmd::new(4).run(|ctx| {
        let grid = ctx.cartesian(&[2, 2], &[false; 2])?.expect("a place for each");
        let mut field = vec![0.0; 5 * 6];
        let wrong = [
            (grid.exchange_halo(&mut field, &[30], 1), "`shape` has 1 axes, the grid has 2"),
            (grid.exchange_halo(&mut field, &[5, 6], 2), "axis 0 has 5 cells"),
            (grid.exchange_halo(&mut field, &[5, 6], usize::MAX), "axis 0 has 5 cells"),
        ];
        for (ended, told) in wrong {
            assert!(ended.is_err_and(|error| error.to_string().contains(told)), "{told}");
        }
        let less = grid.exchange_halo(&mut field[..29], &[5, 6], 1);
        assert!(less.is_err_and(|error| error.to_string().contains("the slice has 29")));
        grid.exchange_halo(&mut field, &[5, 6], 1)?;
        // Rank 3 has one column more than rank 1, above it.
        let columns = if grid.rank() == 3 { 7 } else { 6 };
        grid.exchange_halo(&mut vec![0.0; 5 * columns], &[5, columns], 1)
    });
    let told = ended.expect_err("rank 3 has longer faces").to_string();
    assert!(told.contains("different counts"), "{told}");
}
