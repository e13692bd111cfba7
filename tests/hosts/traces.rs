//! One trace of several hosts, whose clocks nobody knows to be the same.

use spmd::prelude::*;

use crate::events::Trace;
use crate::support::{is_mpi_process, launched};
use crate::world::World;

#[test]
fn in_one_file_and_one_time() -> Result<()> {
    for world in World::each(2) {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("trace.json");
        let launch = || {
            let mut job = world.spmdrun(2, 1);
            job.arg("--trace").arg(&path);
            job
        };
        launched("traces::in_one_file_and_one_time", 4, world.mpi.name, launch, &[], |ctx| {
            (0..100).try_for_each(|_| ctx.barrier())
        })?;
        if is_mpi_process() {
            continue;
        }
        let trace = Trace::read(&path);
        assert_eq!((trace.processes.len(), trace.rows.len()), (4, 4), "{:?}", trace.rows);
        for rank in 0..4 {
            assert_eq!(trace.calls(&format!("rank {rank}")).len(), 100);
        }
        // Those of the second host, whose clock is that of the first.
        assert_eq!(trace.errors.len(), 2, "{:?}", trace.errors);
        for (process, shift) in &trace.shifts {
            let error = trace.errors[process];
            println!("{}: {shift} ns, within {error} ns", world.mpi.name);
            assert!(shift.unsigned_abs() <= error, "{shift} {error}");
        }
        assert_eq!(folder.path().read_dir()?.count(), 1, "a part is left");
    }
    Ok(())
}
