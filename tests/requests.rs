//! Messages that go on while their ranks do something else, in every place.

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use spmd::prelude::*;
use spmd_conformance::requests;
use support::World;

#[test]
fn every_kind() -> Result<()> {
    World::default().everywhere("every_kind", &[1, 2, 3, 5], requests::all)
}

#[test]
fn sets_of_calls_and_messages() -> Result<()> {
    let body = requests::sets_of_calls_and_messages;
    World::default().everywhere("sets_of_calls_and_messages", &[1, 2, 3], body)
}

/// Exchanges with neighbours that borrow, in a scope of another communicator than the grid's.
#[test]
fn neighbours_in_a_scope() -> Result<()> {
    World::default().everywhere("neighbours_in_a_scope", &[1, 3, 6], |ctx| {
        let n = ctx.size();
        let ring = ctx.cartesian(&[n], &[true])?.ok_or("there is a place for each")?;
        let (me, left, right) = (ring.rank(), (ring.rank() + n - 1) % n, (ring.rank() + 1) % n);
        for count in [1, 20_000] {
            let (mine, both) = (vec![me; count], [vec![me; count], vec![n + me; count]].concat());
            let (mut all, mut each) = (vec![9; 2 * count], vec![9; 2 * count]);
            let mut packed = vec![9; 2 * count];
            ctx.requests(|requests| {
                requests.neighbor_allgather(&ring, &mine, &mut all)?;
                let counts = [count, count];
                requests.neighbor_alltoallv(&ring, &both, &mut packed, &counts, &counts)?;
                requests.neighbor_alltoall(&ring, &both, &mut each)?.wait().map(drop)
            })?;
            assert_eq!(all, [vec![left; count], vec![right; count]].concat());
            assert_eq!(each, [vec![n + left; count], vec![right; count]].concat());
            assert_eq!(packed, each);
        }
        Ok(())
    })
}

#[test]
fn with_delays() -> Result<()> {
    let delayed = World { chaos: Some(3), ..World::default() };
    delayed.everywhere("with_delays", &[2, 4], requests::all)
}

/// Many receives wait at a time, for messages that come in another order.
#[test]
fn a_hundred_thousand_receives() -> Result<()> {
    World::default().everywhere("a_hundred_thousand_receives", &[2], |ctx| {
        let many = 100_000;
        if ctx.rank() == 0 {
            let receives = (0..many).map(|tag| ctx.irecv([0], 1, tag));
            let requests = receives.collect::<Result<Vec<_>>>()?;
            ctx.barrier()?;
            for (tag, (got, status)) in wait_all(requests)?.into_iter().enumerate() {
                assert_eq!((got, status.tag()), ([tag as u32], tag as u32));
            }
        } else {
            ctx.barrier()?;
            // 7 and 100,000 have no common factor.
            (0..many).try_for_each(|turn| ctx.send(&[turn * 7 % many], 0, turn * 7 % many))?;
        }
        Ok(())
    })
}

/// To find the next one that is over costs no look at all.
#[test]
fn ten_thousand_in_order_of_completion() -> Result<()> {
    World::default().everywhere("ten_thousand_in_order_of_completion", &[2], |ctx| {
        let (other, many) = (1 - ctx.rank(), 10_000);
        // Small messages, and those whose data are taken from their sender.
        for count in [1, 3000] {
            let receives = (0..many).map(|tag| ctx.irecv(vec![0; count], other, tag));
            let mut receives = receives.collect::<Result<Requests<_>>>()?;
            ctx.barrier()?;
            // 7 and 10,000 have no common factor.
            let sends = (0..many).map(|turn| ctx.isend(vec![turn; count], other, turn * 7 % many));
            let sends = sends.collect::<Result<Requests<_>>>()?;
            let start = Instant::now();
            for (turn, (number, received)) in receives.by_ref().enumerate() {
                let sent = received?.0[0];
                assert_eq!(number as u32, sent * 7 % many);
                assert!(count > 1 || sent == turn as u32);
            }
            sends.map(|(_, sent)| sent).collect::<Result<Vec<_>>>()?;
            // With a look at each of the others for each of them it was many times that.
            let took = start.elapsed();
            assert!(took < Duration::from_secs(20), "{took:?}");
            ctx.barrier()?;
        }
        Ok(())
    })
}

/// Sets that wait for each other are a cycle as single receives are.
#[test]
fn sets_that_wait_for_each_other() {
    if support::is_process_rank() {
        return;
    }
    for block in [Spmd::new(2).threads(), Spmd::new(2).virtual_ranks()] {
        let ended = block.run(|ctx| {
            let receives = (0..3).map(|tag| ctx.irecv([0], 1 - ctx.rank(), tag));
            let mut requests = receives.collect::<Result<Requests<_>>>()?;
            requests.try_for_each(|(_, received)| received.map(drop))
        });
        let error = ended.expect_err("nobody sends").to_string();
        assert!(error.contains("deadlock") && error.contains("requests.rs"), "{error}");
    }
}

/// A set gives the errors, too, one by one, with the numbers of the requests.
#[test]
fn a_sender_that_fails_a_set() {
    where_ranks_share_a_process(3, |ctx| {
        if ctx.rank() == 0 {
            return;
        }
        let many = 100;
        let receives = (0..many).map(|tag| ctx.irecv([0], 0, tag).unwrap());
        let ended: Vec<_> = receives.collect::<Requests<_>>().collect();
        assert_eq!(ended.len(), many as usize);
        for (number, outcome) in ended {
            let error = outcome.expect_err("rank 0 has left").to_string();
            assert!(error.contains("rank 0") && error.contains("irecv"), "{number}: {error}");
        }
    });
}

/// A message that was matched and dropped, or forgotten, is one that nobody has received; who waits
/// for its end is told that this rank has left.
#[test]
fn matched_and_not_received() {
    for virtual_ranks in [false, true] {
        for (count, forgets) in [(1, false), (1, true), (100_000, false), (100_000, true)] {
            let block = Spmd::new(2).timeout(Duration::from_secs(30));
            let block = if virtual_ranks { block.virtual_ranks() } else { block.threads() };
            let ended = block.run(|ctx| {
                if ctx.rank() == 0 {
                    return ctx.send(&vec![1u16; count], 1, 5);
                }
                let message = ctx.mprobe(0, 5)?;
                if forgets {
                    std::mem::forget(message);
                }
                Ok(())
            });
            let error = ended.expect_err("it was not received").to_string();
            assert!(error.contains("requests.rs:"), "{error}");
        }
    }
}

/// Runs on threads and virtual ranks what each of these ends with an error on.
fn where_ranks_share_a_process(ranks: usize, body: impl Fn(&Ctx) + Sync) {
    if support::is_process_rank() {
        return;
    }
    let blocks: [fn(Spmd) -> Spmd; 3] =
        [Spmd::threads, Spmd::virtual_ranks, |block| block.virtual_ranks().workers(1)];
    for block in blocks {
        let block = block(Spmd::new(ranks)).timeout(Duration::from_secs(30));
        drop(block.run(|ctx| {
            body(ctx);
            Ok(())
        }));
    }
}

#[test]
fn a_sender_that_fails() {
    where_ranks_share_a_process(3, |ctx| {
        if ctx.rank() == 0 {
            return;
        }
        let requests = [ctx.irecv([0], 0, 0).unwrap(), ctx.irecv([0], 0, 1).unwrap()];
        let [first, second] = requests;
        let error = first.wait().expect_err("rank 0 has left").to_string();
        assert!(error.contains("rank 0") && error.contains("irecv"), "{error}");
        drop(second);
    });
}

#[test]
fn scopes_that_end_early() {
    where_ranks_share_a_process(2, |ctx| {
        let mut room = vec![0u64; 5000];
        let ended = catch_unwind(AssertUnwindSafe(|| {
            ctx.requests(|requests| -> Result<()> {
                std::mem::forget(requests.irecv(&mut room, 1 - ctx.rank(), 0)?);
                panic!("deliberate")
            })
        }));
        assert_eq!(ended.expect_err("it panics").downcast_ref(), Some(&"deliberate"));
        room.fill(1);
        // What an error ends gives its buffer back, and takes no message.
        let ended = ctx.requests(|requests| -> Result<()> {
            drop(requests.irecv(&mut room, 1 - ctx.rank(), 0)?);
            Err("deliberate".into())
        });
        assert!(ended.unwrap_err().to_string().contains("deliberate"));
        ctx.sendrecv(&[5u64], 1 - ctx.rank(), 0, &mut room, 1 - ctx.rank(), 0).unwrap();
        assert_eq!(room[..2], [5, 1]);
    });
}

/// A buffer with an end of its own.
struct Ending<F: FnMut()>([u64; 1], F);

// SAFETY: the view is that of the array.
unsafe impl<F: FnMut()> spmd::Buffer for Ending<F> {
    type Elem = u64;

    fn erased(&self) -> spmd::buffer::View<'_> {
        self.0.erased()
    }
}

// SAFETY: as above.
unsafe impl<F: FnMut()> spmd::BufferMut for Ending<F> {
    fn erased_mut(&mut self) -> spmd::buffer::ViewMut<'_> {
        self.0.erased_mut()
    }
}

impl<F: FnMut()> Drop for Ending<F> {
    fn drop(&mut self) {
        (self.1)();
    }
}

/// The end of a buffer waits, while its rank starts the next receive.
#[test]
fn a_buffer_whose_end_waits() -> Result<()> {
    for block in [Spmd::new(2).threads(), Spmd::new(2).virtual_ranks()] {
        block.timeout(Duration::from_secs(30)).run(|ctx| {
            let other = 1 - ctx.rank();
            let beside = std::rc::Rc::new(ctx.dup()?);
            let its = beside.clone();
            drop(ctx.irecv(Ending([0], move || its.barrier().expect("all come")), other, 1)?);
            // It is posted before its message comes, which is there before the next one is.
            ctx.barrier()?;
            ctx.send(&[4u64], other, 1)?;
            std::thread::sleep(Duration::from_millis(20));
            let next = ctx.irecv([0u64], other, 2)?;
            ctx.send(&[5u64], other, 2)?;
            assert_eq!(next.wait()?.0, [5]);
            Ok(())
        })?;
    }
    Ok(())
}

/// The end of a buffer waits for the receive whose message came right behind its own.
#[test]
fn a_buffer_whose_end_waits_for_the_next_one() -> Result<()> {
    for block in [Spmd::new(2).threads(), Spmd::new(2).virtual_ranks()] {
        block.timeout(Duration::from_secs(30)).run(|ctx| {
            let other = 1 - ctx.rank();
            let next = std::rc::Rc::new(std::cell::Cell::new(None::<Request<([u64; 1], _)>>));
            let got = std::rc::Rc::new(std::cell::Cell::new(0));
            let (its, into) = (next.clone(), got.clone());
            let ending = Ending([0], move || {
                let next = its.take().expect("it is the first");
                into.set(next.wait().expect("it has come").0[0]);
            });
            drop(ctx.irecv(ending, other, 1)?);
            next.set(Some(ctx.irecv([0u64], other, 2)?));
            ctx.barrier()?;
            ctx.send(&[4u64], other, 1)?;
            ctx.send(&[5u64], other, 2)?;
            // Both have come before the next look.
            std::thread::sleep(Duration::from_millis(20));
            let last = ctx.irecv([0u64], other, 3)?;
            ctx.send(&[6u64], other, 3)?;
            assert_eq!((last.wait()?.0, got.get()), ([6], 5));
            Ok(())
        })?;
    }
    Ok(())
}

/// One that panics ends after its message could not be received, too, and with a persistent call
/// that is gone.
#[test]
fn a_buffer_whose_end_panics_after_a_failure() {
    for block in [Spmd::new(2).threads(), Spmd::new(2).virtual_ranks()] {
        let outcome = block.timeout(Duration::from_secs(30)).run(|ctx| {
            let other = 1 - ctx.rank();
            let ending = || Ending([0], || panic!("deliberate"));
            let mut again = ctx.recv_init(ending(), other, 1)?;
            again.start()?;
            drop(again);
            drop(ctx.irecv(ending(), other, 2)?);
            ctx.barrier()?;
            ctx.send(&[1u64], other, 1)?;
            ctx.send(&[1u64, 2], other, 2)?;
            ctx.barrier()?;
            let next = ctx.irecv([0u64], other, 3)?;
            ctx.send(&[5u64], other, 3)?;
            assert_eq!(next.wait()?.0, [5]);
            Ok(())
        });
        let told = outcome.expect_err("a message was too long").to_string();
        assert!(told.contains("holds 1"), "{told}");
    }
}

/// The end of a buffer in a scope starts another request there, which the scope waits for, too.
#[test]
fn a_buffer_whose_end_starts_a_request() -> Result<()> {
    for block in [Spmd::new(2).threads(), Spmd::new(2).virtual_ranks()] {
        block.timeout(Duration::from_secs(30)).run(|ctx| {
            let other = 1 - ctx.rank();
            let mut late = [0u64];
            ctx.requests(|requests| {
                let mut room = Some(&mut late);
                let ending = Ending([0], move || {
                    if let Some(room) = room.take() {
                        drop(requests.irecv(room, other, 9));
                    }
                });
                drop(requests.irecv(ending, other, 1)?);
                ctx.send(&[4u64], other, 1)?;
                ctx.send(&[5u64], other, 9)
            })?;
            assert_eq!(late, [5]);
            ctx.barrier()
        })?;
    }
    Ok(())
}

#[test]
fn a_buffer_whose_end_panics() -> Result<()> {
    for block in [Spmd::new(2).threads(), Spmd::new(2).virtual_ranks()] {
        block.timeout(Duration::from_secs(30)).run(|ctx| {
            let other = 1 - ctx.rank();
            for tag in 0..20 {
                drop(ctx.irecv(Ending([0], || panic!("deliberate")), other, tag)?);
            }
            // None has come before it was posted.
            ctx.barrier()?;
            (0..20).try_for_each(|tag| ctx.send(&[4u64], other, tag))?;
            ctx.barrier()?;
            let (got, _) = ctx.irecv([0], other, 30).and_then(|request| {
                ctx.send(&[5], other, 30)?;
                request.wait()
            })?;
            assert_eq!(got, [5]);
            Ok(())
        })?;
    }
    Ok(())
}

/// A thread that ends does not wait for what cannot come.
#[test]
fn a_thread_that_forgets_a_receive() {
    let block = Spmd::new(2).threads().timeout(Duration::from_secs(30));
    let ended = block.run(|ctx| {
        if ctx.rank() == 0 {
            let comm = ctx.dup()?;
            let thread = std::thread::spawn(move || drop(comm.irecv([0u8], 1, 0)));
            thread.join().expect("it does not panic");
        } else {
            drop(ctx.dup()?);
        }
        Ok(())
    });
    drop(ended);
}

/// A virtual rank of a nested block leaves nothing behind on a communicator of the block around.
#[test]
fn what_a_nested_rank_has_started() -> Result<()> {
    Spmd::new(2).threads().timeout(Duration::from_secs(30)).run(|ctx| {
        let comm = std::sync::Mutex::new(Some(ctx.dup()?));
        Spmd::new(2).virtual_ranks().run(|inner| {
            if inner.rank() == 0 {
                let comm = comm.lock().unwrap().take().expect("one rank takes it");
                drop(comm.allreduce_in_place_start(vec![1.0; 100_000], Sum)?);
                drop(comm.isend(vec![1.0; 100_000], 1 - comm.rank(), 0)?);
                drop(comm.irecv(vec![1.0; 100_000], 1 - comm.rank(), 0)?);
            }
            Ok(())
        })?;
        ctx.barrier()
    })?;
    Ok(())
}

/// What a scope's panic takes back is told to whoever waits for it.
#[test]
fn sends_that_are_taken_back() {
    where_ranks_share_a_process(2, |ctx| {
        let data = vec![1u64; 100_000];
        if ctx.rank() == 0 {
            let ended = catch_unwind(AssertUnwindSafe(|| {
                ctx.requests(|requests| -> Result<()> {
                    requests.isend(&data, 1, 0)?;
                    requests.isend(&data, 1, 1)?;
                    panic!("deliberate")
                })
            }));
            assert!(ended.is_err());
            assert!(ctx.recv(&mut [0], 1, 5).is_err());
        } else {
            let mut room = data;
            let mut received = || {
                ctx.recv(&mut room, 0, 7)?;
                ctx.recv(&mut room, 0, 0)
            };
            received().expect_err("it was taken back");
        }
    });
}

/// Each of those that a scope's panic takes back is an error where it is received.
#[test]
fn a_thousand_that_are_taken_back() {
    where_ranks_share_a_process(2, |ctx| {
        let mut room = vec![1u64; 100_000];
        if ctx.rank() == 0 {
            let ended = catch_unwind(AssertUnwindSafe(|| {
                ctx.requests(|requests| -> Result<()> {
                    (0..1000).try_for_each(|tag| requests.isend(&room, 1, tag).map(drop))?;
                    panic!("deliberate")
                })
            }));
            assert!(ended.is_err());
            return;
        }
        assert!(ctx.recv(&mut room, 0, 1000).is_err());
        for tag in 0..1000 {
            let received = ctx.irecv(vec![0u64; 100_000], 0, tag).and_then(Request::wait);
            assert!(received.is_err(), "{tag}");
        }
    });
}

/// Nobody waits for receives whose messages cannot come: their rank tells of it.
#[test]
fn a_thousand_without_an_end() {
    if support::is_process_rank() {
        return;
    }
    for block in [Spmd::new(2).threads(), Spmd::new(2).virtual_ranks()] {
        let ended = block.timeout(Duration::from_secs(30)).run(|ctx| {
            for tag in (0..1000).filter(|_| ctx.rank() == 1) {
                let received = ctx.irecv([0u8; 10], 0, tag)?;
                if tag % 2 == 0 { drop(received) } else { std::mem::forget(received) }
            }
            Ok(())
        });
        let error = ended.expect_err("rank 0 has left").to_string();
        assert!(error.contains("irecv") && error.contains("requests.rs"), "{error}");
    }
}
