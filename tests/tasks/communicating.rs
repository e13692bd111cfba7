//! Tasks that use communicators of their own.

use spmd::prelude::*;

use crate::support::World;

#[test]
fn collectives_in_tasks() -> Result<()> {
    World::default().everywhere("communicating::collectives_in_tasks", &[1, 2, 4], |ctx| {
        let n = ctx.size();
        let tasks = (0..20).map(|i| {
            let comm = ctx.dup()?;
            Ok(ctx.spawn(move || comm.allreduce_value(i, Sum)))
        });
        let tasks: Vec<Task<usize>> = tasks.collect::<Result<_>>()?;
        // Beside what the rank itself does.
        for round in 0..100 {
            assert_eq!(ctx.allreduce_value(round, Max)?, round);
        }
        for (i, task) in tasks.into_iter().enumerate() {
            assert_eq!(task.take()?, n * i);
        }
        Ok(())
    })
}

/// Which task of a rank comes first is chance: messages match by communicator.
#[test]
fn a_thousand_wait_for_messages() -> Result<()> {
    World::default().everywhere("communicating::a_thousand_wait_for_messages", &[2], |ctx| {
        let other = 1 - ctx.rank();
        let comms: Vec<Comm> = (0..1000).map(|_| ctx.dup()).collect::<Result<_>>()?;
        if ctx.rank() == 0 {
            let waits = comms
                .into_iter()
                .map(|comm| ctx.spawn(move || Ok(comm.recv_vec::<usize>(other, 0)?.0[0])));
            let waits: Vec<Task<usize>> = waits.collect();
            ctx.barrier()?;
            assert_eq!(Task::wait_all(waits)?, (0..1000).collect::<Vec<_>>());
        } else {
            ctx.barrier()?;
            for (i, comm) in comms.iter().enumerate().rev() {
                comm.send(&[i], other, 0)?;
            }
        }
        Ok(())
    })
}

/// A ring of tasks, of which each waits for the one before: on as few workers as there are.
#[test]
fn a_ring_of_tasks() -> Result<()> {
    World::default().everywhere("communicating::a_ring_of_tasks", &[1, 3], |ctx| {
        let (n, me) = (ctx.size(), ctx.rank());
        let rings = (0..10).map(|_| {
            let comm = ctx.dup()?;
            Ok(ctx.spawn(move || {
                let (next, before) = ((me + 1) % n, (me + n - 1) % n);
                let mut token = [0u64];
                for _ in 0..10 {
                    if me == 0 {
                        comm.send(&[token[0] + 1], next, 0)?;
                        comm.recv(&mut token, before, 0)?;
                    } else {
                        comm.recv(&mut token, before, 0)?;
                        comm.send(&[token[0] + 1], next, 0)?;
                    }
                }
                Ok(token[0])
            }))
        });
        let rings: Vec<Task<u64>> = rings.collect::<Result<_>>()?;
        for ring in rings {
            let token = ring.take()?;
            assert!(me != 0 || token == 10 * n as u64, "{token}");
        }
        Ok(())
    })
}
