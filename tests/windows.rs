//! Windows: memory that all ranks may access, in every place.

mod support;

use spmd::prelude::*;
use spmd_conformance::windows;
use support::World;

#[test]
fn every_call() -> Result<()> {
    World::default().everywhere("every_call", &[1, 2, 3, 5], windows::all)
}

#[test]
fn with_delays() -> Result<()> {
    let delayed = World { chaos: Some(5), ..World::default() };
    delayed.everywhere("with_delays", &[2, 4], windows::all)
}

/// A thread that a rank has given a communicator makes a window of it.
#[test]
fn on_threads_of_ranks() -> Result<()> {
    World::default().everywhere("on_threads_of_ranks", &[3], |ctx| {
        if ctx.mode() == spmd::Mode::Virtual {
            return Ok(());
        }
        let comm = ctx.dup()?;
        let thread = std::thread::spawn(move || {
            let window = comm.window::<usize>(1)?;
            (0..20).try_for_each(|_| {
                window.lock(0)?;
                let mut count = [0];
                window.get(&mut count, 0, 0)?;
                window.put(&[count[0] + 1], 0, 0)?;
                window.unlock(0)
            })?;
            window.fence()?;
            Ok(window.read(..)?[0])
        });
        ctx.barrier()?;
        let counted: Result<usize> = thread.join().expect("it does not panic");
        assert_eq!(counted?, if ctx.rank() == 0 { 60 } else { 0 });
        ctx.barrier()
    })
}
