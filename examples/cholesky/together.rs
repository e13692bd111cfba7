//! The factor of a matrix whose tiles are dealt out over ranks.

use std::sync::Mutex;

use spmd::prelude::*;
use spmd::tasks::DataDeps;

use crate::kernels::{gemm, potrf, syrk, trsm};
use crate::tile::Tile;
use crate::tiles::{Layout, Tiles};

/// A communicator that tasks use in the order in which they are spawned: it is data that they write, so
/// that the ranks' calls meet.
struct Line(Data<Mutex<Comm>>);

/// Tiles of a column of L, where they are on their way through the grid of ranks.
struct Panel {
    /// Its tile on the diagonal.
    diagonal: Data<Tile>,
    /// Those of the rows that this rank has.
    left: Vec<Data<Tile>>,
    /// Those that, transposed, stand above the columns that this rank has.
    above: Vec<Data<Tile>>,
}

impl Panel {
    fn new(steps: usize) -> Panel {
        let tiles = || (0..steps).map(|_| Data::default()).collect();
        Panel { diagonal: Data::default(), left: tiles(), above: tiles() }
    }
}

/// As `alone` does it, with a column of L sent to whom it concerns. All ranks spawn all their tasks at
/// once; two panels are on their way at a time, as tasks that fill one wait for those that read what
/// was there.
pub fn factor(ctx: &Ctx, layout: &Layout, tiles: &Tiles) -> Result<()> {
    let [p, q] = layout.mine;
    let line = |color: usize, key: usize| -> Result<Line> {
        let comm = ctx.split(Some(color as u32), key as i32)?.ok_or("each rank is in a line")?;
        Ok(Line(Data::new(Mutex::new(comm))))
    };
    let (row, column) = (line(p, q)?, line(q, p)?);
    let steps = layout.steps();
    let panels = [Panel::new(steps), Panel::new(steps)];
    let [rows, columns] = layout.ranks;
    ctx.datadeps(|d| {
        for k in 0..steps {
            let panel = &panels[k % 2];
            let below = |i: &usize| layout.has_row(*i);
            let extent = |i: usize| [layout.extent(i), layout.extent(k)];
            if layout.has_column(k) {
                let own = layout.has_row(k).then(|| tiles.at(k, k));
                if let Some(own) = own {
                    d.spawn((d.write(own),), potrf);
                }
                column.broadcast(d, own, (&panel.diagonal, extent(k)), k % rows);
                for i in (k + 1..steps).filter(below) {
                    d.spawn((d.read(&panel.diagonal), d.write(tiles.at(i, k))), trsm);
                }
            }
            for i in (k + 1..steps).filter(below) {
                let own = layout.has_column(k).then(|| tiles.at(i, k));
                row.broadcast(d, own, (&panel.left[i], extent(i)), k % columns);
            }
            for j in (k + 1..steps).filter(|j| layout.has_column(*j)) {
                let own = layout.has_row(j).then(|| &panel.left[j]);
                column.broadcast(d, own, (&panel.above[j], extent(j)), j % rows);
            }
            for i in (k + 1..steps).filter(below) {
                for j in (k + 1..=i).filter(|j| layout.has_column(*j)) {
                    let (left, tile) = (d.read(&panel.left[i]), d.write(tiles.at(i, j)));
                    if i == j {
                        d.spawn((left, tile), syrk);
                    } else {
                        d.spawn((left, d.read(&panel.above[j]), tile), gemm);
                    }
                }
            }
        }
        Ok(())
    })
}

impl Line {
    /// Spawns a task that sends a tile along the line: from `own` on the root, to `place` on all.
    fn broadcast<'s>(
        &'s self,
        d: &'s DataDeps<'s, '_>,
        own: Option<&'s Data<Tile>>,
        (place, extent): (&'s Data<Tile>, [usize; 2]),
        root: usize,
    ) {
        let send = move |comm: &mut Mutex<Comm>, tile: &mut Tile| {
            let comm = comm.get_mut().map_err(|_| "a task has panicked in a call")?;
            comm.broadcast(&mut tile.values[..], root)
        };
        let (line, place) = (d.write(&self.0), d.overwrite(place));
        match own {
            Some(own) => drop(d.spawn((line, d.read(own), place), move |comm, own, tile| {
                tile.copy_from(own);
                send(comm, tile)
            })),
            None => drop(d.spawn((line, place), move |comm, tile| {
                let [rows, columns] = extent;
                tile.rows = rows;
                tile.values.resize(rows * columns, 0.0);
                send(comm, tile)
            })),
        }
    }
}

/// All tiles, row after row, on rank 0.
pub fn gather(comm: &Comm, layout: &Layout, tiles: Tiles) -> Result<Vec<Tile>> {
    let mut all = Vec::new();
    for (at, tile) in layout.lower().zip(tiles.into_tiles()) {
        let owner = layout.owner(at);
        match (tile, comm.rank()) {
            (Some(tile), 0) => all.push(tile),
            (Some(tile), _) => comm.send(&tile.values, 0, 0)?,
            (None, 0) => {
                let (values, _) = comm.recv_vec::<f64>(owner, 0)?;
                all.push(Tile { rows: layout.extent(at.0), values });
            }
            (None, _) => {}
        }
    }
    Ok(all)
}
