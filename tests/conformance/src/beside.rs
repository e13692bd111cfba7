//! Large messages that a thread beside a rank carries out.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

use crate::prelude::*;

/// More than a message that comes without its sender; less and more than two ranks stage at a time.
const LENGTHS: [usize; 3] = [5_000, 100_000, 3_000_000];

/// A file by which the peers of a rank tell it something without a call; the same on all ranks.
struct Told(PathBuf);

impl Told {
    fn new(ctx: &Ctx) -> Result<Told> {
        let name = || env::temp_dir().join(format!("spmd-beside-{}", process::id()));
        ctx.broadcast_object((ctx.rank() == 0).then(name).as_ref(), 0).map(Told)
    }

    fn tell(&self) -> Result<()> {
        fs::write(&self.0, "done").map_err(|error| error.to_string().into())
    }

    /// Computes until that was told.
    fn compute(&self, what: &str) -> Result<()> {
        let (start, path): (_, &Path) = (Instant::now(), &self.0);
        while !path.exists() {
            assert!(start.elapsed() < Duration::from_secs(60), "{what} stands still");
            thread::yield_now();
        }
        fs::remove_file(path).map_err(|error| error.to_string().into())
    }
}

/// Rank 0 makes no call, and gets messages of rank 1 that were sent before the receive was posted and
/// after it; and sends some.
pub fn goes_on(ctx: &Ctx) -> Result<()> {
    let told = Told::new(ctx)?;
    for len in LENGTHS {
        for late in [false, true] {
            ctx.barrier()?;
            match ctx.rank() {
                0 => receive(ctx, len, late, &told)?,
                1 => {
                    if late {
                        thread::sleep(Duration::from_millis(50));
                    }
                    ctx.ssend(&vec![len; len], 0, 7)?;
                    told.tell()?;
                }
                _ => {}
            }
        }
        ctx.barrier()?;
        match ctx.rank() {
            0 => send(ctx, len, &told)?,
            1 => {
                assert_eq!(ctx.recv_vec::<usize>(0, 7)?.0, vec![len; len]);
                told.tell()?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn receive(ctx: &Ctx, len: usize, late: bool, told: &Told) -> Result<()> {
    if !late {
        thread::sleep(Duration::from_millis(50));
    }
    let request = ctx.irecv(vec![9; len + 1], ANY, 7)?;
    told.compute(&format!("a receive of {len} elements"))?;
    let (got, status) = request.wait()?;
    assert_eq!((status.source(), status.tag(), status.len()), (1, 7, len));
    assert_eq!(got, [vec![len; len], vec![9]].concat());
    Ok(())
}

fn send(ctx: &Ctx, len: usize, told: &Told) -> Result<()> {
    let request = ctx.isend(vec![len; len], 1, 7)?;
    told.compute(&format!("a send of {len} elements"))?;
    assert_eq!(request.wait()?, vec![len; len]);
    Ok(())
}
