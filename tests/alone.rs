//! Collectives of one rank: nobody to wait for, nothing to fold, nothing to stage.

mod support;

use spmd::prelude::*;
use support::World;

/// More elements than fit into rooms, in many segments.
const MANY: usize = 10_000;

/// Runs `body` on a world of one rank of every kind, and on communicators of one rank that others
/// stand beside.
fn everywhere(test: &str, body: impl Fn(&Comm) -> Result<()> + Sync) -> Result<()> {
    let world = World { segment: Some(64), ..World::default() };
    world.everywhere(test, &[1, 2], |ctx| {
        let own = ctx.split(Some(ctx.rank() as u32), 0)?.expect("every rank gives a color");
        assert_eq!(own.size(), 1);
        body(&own)?;
        if ctx.size() == 1 { body(ctx) } else { Ok(()) }
    })
}

fn never() -> Op<impl Fn(u8, u8) -> u8 + Sync> {
    Op::new(|_: u8, _: u8| -> u8 { panic!("there is nothing to fold") })
}

#[test]
fn reductions_call_no_operation() -> Result<()> {
    everywhere("reductions_call_no_operation", |comm| {
        for count in [0, 1, MANY] {
            let send: Vec<u8> = (0..count).map(|i| i as u8).collect();
            type Form = fn(&Comm, &[u8], &mut [u8]) -> Result<()>;
            let forms: [Form; 5] = [
                |comm, send, recv| comm.reduce(send, recv, never(), 0),
                |comm, send, recv| comm.allreduce(send, recv, never()),
                |comm, send, recv| comm.scan(send, recv, never()),
                |comm, send, recv| comm.reduce_scatter(send, recv, never()),
                |comm, send, recv| comm.reduce_scatterv(send, recv, &[send.len()], never()),
            ];
            for form in forms {
                let mut recv = vec![9; count];
                form(comm, &send, &mut recv)?;
                assert!(recv == send);
            }
            let mut before = vec![9; count];
            comm.exscan(&send, &mut before, never())?;
            assert!(before.iter().all(|value| *value == 9));
            let mut same = send.clone();
            comm.reduce_in_place(&mut same, never(), 0)?;
            comm.allreduce_in_place(&mut same, never())?;
            comm.scan_in_place(&mut same, never())?;
            comm.reduce_scatter_in_place(&mut same, never())?;
            assert!(same == send);
        }
        assert_eq!(comm.allreduce_value(7, never())?, 7);
        assert_eq!(comm.reduce_value(7, never(), 0)?, Some(7));
        assert_eq!(comm.scan_value(7, never())?, 7);
        assert_eq!(comm.exscan_value(7, never())?, None);
        Ok(())
    })
}

#[test]
fn data_come_back() -> Result<()> {
    everywhere("data_come_back", |comm| {
        for count in [0, 1, MANY] {
            let send: Vec<u8> = (0..count).map(|i| i as u8).collect();
            type Form = fn(&Comm, &[u8], &mut [u8]) -> Result<()>;
            let forms: [Form; 8] = [
                |comm, send, recv| comm.gather(send, recv, 0),
                |comm, send, recv| comm.gatherv(send, recv, &[send.len()], 0),
                |comm, send, recv| comm.allgather(send, recv),
                |comm, send, recv| comm.allgatherv(send, recv, &[send.len()]),
                |comm, send, recv| comm.scatter(send, recv, 0),
                |comm, send, recv| comm.scatterv(send, &[send.len()], recv, 0),
                |comm, send, recv| comm.alltoall(send, recv),
                |comm, send, recv| comm.alltoallv(send, recv, &[send.len()], &[send.len()]),
            ];
            for form in forms {
                let mut recv = vec![9; count];
                form(comm, &send, &mut recv)?;
                assert!(recv == send);
            }
            let both = (send.clone(), vec![0, count]);
            let root = comm.gatherv_vec(&send, 0)?.map(Gathered::into_parts);
            assert!(root.as_ref() == Some(&both));
            assert!(comm.allgatherv_vec(&send)?.into_parts() == both);
            assert!(comm.alltoallv_vec(&send, &[count])?.into_parts() == both);
            assert!(comm.scatterv_vec(&send, &[count], 0)? == send);
            let mut same = send.clone();
            comm.broadcast(&mut same, 0)?;
            comm.allgather_in_place(&mut same)?;
            comm.alltoall_in_place(&mut same)?;
            assert!(same == send);
        }
        Ok(())
    })
}

#[test]
fn bad_arguments_are_refused() -> Result<()> {
    everywhere("bad_arguments_are_refused", |comm| {
        let (two, three, none) = ([1u8, 2], &mut [9u8; 3], [0u8; 0]);
        let refused = [
            comm.reduce(&two, three, Sum, 0),
            comm.reduce(&two, three, Sum, 1),
            comm.reduce_in_place(three, Sum, 1),
            comm.reduce_value(1, Sum, 1).map(drop),
            comm.allreduce(&two, three, Sum),
            comm.scan(&two, three, Sum),
            comm.exscan(&two, three, Sum),
            comm.reduce_scatter(&two, three, Sum),
            comm.reduce_scatterv(&two, three, &[2], Sum),
            comm.broadcast(three, 1),
            comm.broadcast_value(None::<u8>, 0).map(drop),
            comm.gather(&two, three, 0),
            comm.gather(&two, three, 1),
            comm.gatherv(&two, three, &[2], 0),
            comm.gatherv(&two, three, &[3], 0),
            comm.gatherv_vec(&two, 1).map(drop),
            comm.allgather(&two, three),
            comm.allgatherv(&two, three, &[3]),
            comm.scatter(&two, three, 0),
            comm.scatter(&two, three, 1),
            comm.scatterv(&two, &[2], three, 0),
            comm.scatterv_vec(&two, &[2], 1).map(drop),
            comm.scatterv_vec(&two, &[1], 0).map(drop),
            comm.alltoall(&two, three),
            comm.alltoallv(&two, three, &[2], &[2]),
            comm.alltoallv(&two, three, &[1, 1], &[3]),
            comm.alltoallv_vec(&none, &[1]).map(drop),
        ];
        for (number, result) in refused.into_iter().enumerate() {
            assert!(result.is_err(), "number {number}");
        }
        assert_eq!(*three, [9; 3]);
        Ok(())
    })
}

/// A count that differs from what the rank itself sends is its own mistake, which stops it.
#[test]
fn counts_that_differ() {
    let result = spmd(1, |ctx| ctx.alltoallv(&[1, 2], &mut [0; 3], &[2], &[3]));
    assert!(result.unwrap_err().to_string().contains("different counts"));
}
