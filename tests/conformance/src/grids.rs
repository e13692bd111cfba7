//! Exchanges with neighbours in grids.

use crate::prelude::*;

use super::case::Case;
use super::moves::in_a_row;
use crate::element::{Sample, made_by};

type Form = fn(&Case<'_>, &Cartesian) -> Result<()>;

/// A line, and a grid of two axes one of which is closed.
pub fn of(comm: &Comm) -> Result<Vec<Cartesian>> {
    let n = comm.size();
    let line = comm.cartesian(&[n], &[false])?;
    let grid = comm.cartesian(&dims_create(n, 2), &[true, false])?;
    Ok(line.into_iter().chain(grid).collect())
}

/// The exchanges, for elements of type `T`.
pub fn forms<T: Sample>() -> [Form; 4] {
    [allgather::<T>, alltoall::<T>, alltoallv::<T>, exchange_halo::<T>]
}

/// What `from` sends over its side `side`: a function of the two ends alone.
fn block<T: Sample>(case: &Case<'_>, from: usize, side: usize, count: usize) -> Vec<T> {
    made_by(count, |index| case.value(from, side << 20 | index))
}

/// The side by which a message arrives that left by `side`: the opposite one of the same axis.
fn opposite(side: usize) -> usize {
    side ^ 1
}

fn allgather<T: Sample>(case: &Case<'_>, grid: &Cartesian) -> Result<()> {
    let neighbors = grid.neighbors();
    let mine = case.values::<T>(grid.rank(), case.count);
    let mut recv = case.blank::<T>(neighbors.len() * case.count);
    let mut expected = recv.clone();
    for (side, neighbor) in neighbors.iter().enumerate() {
        if let Some(neighbor) = neighbor {
            expected[side * case.count..][..case.count]
                .copy_from_slice(&case.values::<T>(*neighbor, case.count));
        }
    }
    case.with_buffers(&mine, &mut recv, &|send, it| grid.neighbor_allgather(send, it))?;
    case.check("neighbor_allgather", &recv, &expected)
}

fn alltoall<T: Sample>(case: &Case<'_>, grid: &Cartesian) -> Result<()> {
    let neighbors = grid.neighbors();
    let (me, count) = (grid.rank(), case.count);
    let send: Vec<T> = in_a_row(neighbors.len(), &|side| block(case, me, side, count));
    let mut recv = case.blank::<T>(neighbors.len() * count);
    let mut expected = recv.clone();
    for (side, neighbor) in neighbors.iter().enumerate() {
        if let Some(neighbor) = neighbor {
            let came = block::<T>(case, *neighbor, opposite(side), count);
            expected[side * count..][..count].copy_from_slice(&came);
        }
    }
    case.with_buffers(&send, &mut recv, &|from, it| grid.neighbor_alltoall(from, it))?;
    case.check("neighbor_alltoall", &recv, &expected)
}

fn alltoallv<T: Sample>(case: &Case<'_>, grid: &Cartesian) -> Result<()> {
    let neighbors = grid.neighbors();
    let me = grid.rank();
    let count = |from: usize, side: usize| match (from + side) % 3 {
        0 => case.count,
        1 => case.count / 2,
        _ => from % 2,
    };
    let out: Vec<usize> = (0..neighbors.len()).map(|side| count(me, side)).collect();
    let send: Vec<T> = in_a_row(neighbors.len(), &|side| block(case, me, side, out[side]));
    let mut expected = Vec::<T>::new();
    let mut back = Vec::new();
    for (side, neighbor) in neighbors.iter().enumerate() {
        let came = match neighbor {
            Some(from) => block::<T>(case, *from, opposite(side), count(*from, opposite(side))),
            // Nobody sends it: what lies there stays.
            None => case.blank::<T>(2),
        };
        back.push(came.len());
        expected.extend(came);
    }
    let mut recv: Vec<T> = Vec::new();
    for (side, neighbor) in neighbors.iter().enumerate() {
        recv.extend(case.blank::<T>(if neighbor.is_some() { back[side] } else { 2 }));
    }
    case.with_buffers(&send, &mut recv, &|from, it| {
        grid.neighbor_alltoallv(from, it, &out, &back)
    })?;
    case.check("neighbor_alltoallv", &recv, &expected)
}

/// Cells with a halo of one or two on each side, and two components each. Every cell is known by its
/// place in the field of all ranks, whose lengths along an axis differ by one.
fn exchange_halo<T: Sample>(case: &Case<'_>, grid: &Cartesian) -> Result<()> {
    let (dims, width) = (grid.dims(), 1 + case.seed as usize % 2);
    let least = 2 + case.count.min(40) / dims.len().pow(2);
    let own = |place: usize| least + place % 2;
    let start = |place: usize| (0..place).map(own).sum::<usize>();
    let coords = grid.coords();
    let shape: Vec<usize> = (0..dims.len()).map(|axis| own(coords[axis]) + 2 * width).collect();
    let shape = [shape, vec![2]].concat();
    let blank: Vec<T> = case.blank(shape.iter().product());
    // The cell at a place of this rank's field; none in a halo that nobody fills.
    let cell = |index: usize, with_halo: bool| {
        let (mut rest, mut id) = (index / 2, index % 2);
        for axis in (0..dims.len()).rev() {
            let (place, len) = (rest % shape[axis], own(coords[axis]));
            rest /= shape[axis];
            let all = start(dims[axis]);
            let at = (start(coords[axis]) + all + place).checked_sub(width)?;
            let inside = (width..width + len).contains(&place);
            let beyond = !grid.periodic()[axis] && !(all..2 * all).contains(&at);
            if !inside && (!with_halo || beyond) {
                return None;
            }
            id = 1000 * id + at % all;
        }
        Some(case.value::<T>(0, id))
    };
    let filled = |with_halo: bool| {
        let values = blank.iter().enumerate();
        values.map(|(index, blank)| cell(index, with_halo).unwrap_or(*blank)).collect::<Vec<T>>()
    };
    let mut field = filled(false);
    case.with_buffer(&mut field, &|it| grid.exchange_halo(it, &shape, width))?;
    case.check("exchange_halo", &field, &filled(true))
}
