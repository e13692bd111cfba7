//! Large messages.

use std::cell::Cell;
use std::thread;
use std::time::Duration;

use spmd::buffer::{View, ViewMut};
use spmd::prelude::*;
use spmd::{Buffer, BufferMut, Requests};
use spmd_conformance::beside;

use crate::{HELPED, everywhere, support};

/// Messages to and from a rank that makes no call.
#[test]
fn they_go_on_while_the_rank_computes() -> Result<()> {
    everywhere("messages::they_go_on_while_the_rank_computes", &[2, 3], beside::goes_on)
}

/// They match in the order in which they were posted, among those that go on in calls, of which there
/// are some beyond 64 and all small ones, and those that wait.
#[test]
fn they_keep_their_order() -> Result<()> {
    everywhere("messages::they_keep_their_order", &[1, 2, 3], |ctx| {
        let (n, me) = (ctx.size(), ctx.rank());
        let (left, right) = ((me + n - 1) % n, (me + 1) % n);
        let len = |number: usize| if number % 3 == 1 { 10 } else { 3_000 };
        for _ in 0..3 {
            let mut requests = Requests::new();
            for number in 0..100 {
                requests.push(ctx.irecv(vec![0usize; len(number)], left, 1)?);
            }
            let sent: Vec<_> = (0..201)
                .map(|number| ctx.isend(vec![number; len(number)], right, 1))
                .collect::<Result<_>>()?;
            let mut last = vec![0usize; 3_000];
            for number in 100..200 {
                let mut some = vec![0usize; len(number)];
                ctx.recv(&mut some, left, 1)?;
                assert!(some.iter().all(|it| *it == number), "{number}: {}", some[0]);
            }
            ctx.requests(|requests| requests.irecv(&mut last, left, 1)?.wait().map(drop))?;
            assert_eq!(last, [200; 3_000]);
            for (number, (got, _)) in requests.wait_all()?.into_iter().enumerate() {
                assert!(got.iter().all(|it| *it == number), "{number}: {}", got[0]);
            }
            spmd::wait_all(sent)?;
        }
        Ok(())
    })
}

/// Taken back, dropped, forgotten, and of messages that do not fit.
#[test]
fn they_end_as_others_do() -> Result<()> {
    everywhere("messages::they_end_as_others_do", &[2], |ctx| {
        let peer = 1 - ctx.rank();
        let (buf, status) = ctx.irecv(vec![7; 5_000], peer, 1)?.cancel()?;
        assert_eq!((buf, status.is_none()), (vec![7; 5_000], true));
        let sent = ctx.isend(vec![1; 5_000], peer, 2)?;
        let mut request = ctx.irecv(vec![0; 5_000], peer, 2)?;
        while !request.test()? {
            std::hint::spin_loop();
        }
        let (buf, status) = request.cancel()?;
        assert_eq!((buf, status.is_some()), (vec![1; 5_000], true));
        sent.wait()?;
        // Of another type: both ranks hear of it from their receives.
        let sent = ctx.isend(vec![1u8; 50_000], peer, 3)?;
        let error = ctx.irecv(vec![0i8; 50_000], peer, 3)?.wait().expect_err("it does not fit");
        assert!(error.to_string().contains("i8"), "{error}");
        sent.wait()?;
        for number in 0..100 {
            let sent = ctx.isend(vec![number; 50_000], peer, 4)?;
            let request = ctx.irecv(vec![0; 50_000], peer, 4)?;
            if number % 2 == 0 {
                drop(request)
            } else {
                std::mem::forget(request)
            }
            sent.wait()?;
        }
        // Nobody sends this; the scope takes it back.
        let mut buf = vec![0; 5_000];
        let failed = ctx.requests(|requests| {
            requests.irecv(&mut buf, peer, 5)?;
            Err::<(), _>("deliberate".into())
        });
        assert!(failed.is_err_and(|error| error.to_string().contains("deliberate")));
        // Awaited.
        let sent = ctx.isend(vec![3; 50_000], peer, 6)?;
        let request = ctx.irecv(vec![0; 50_000], peer, 6)?;
        assert_eq!(pollster::block_on(request)?.0, vec![3; 50_000]);
        sent.wait()?;
        Ok(())
    })
}

/// What can never come is told, with the line: its sender has left, or failed, or waits as well.
#[test]
fn what_never_comes_is_told() -> Result<()> {
    if support::is_process_rank() {
        return Ok(());
    }
    let run = |body: fn(&Ctx) -> Result<()>| {
        let ended = Spmd::new(2).threads().progress(HELPED).run(body);
        ended.expect_err("nothing was sent").to_string()
    };
    let left = run(|ctx| match ctx.rank() {
        0 => ctx.irecv(vec![0; 5_000], 1, 1)?.wait().map(drop),
        _ => Ok(()),
    });
    assert!(left.contains("rank 1") && left.contains(file!()), "{left}");
    let asked = run(|ctx| {
        let mut request = ctx.irecv(vec![0; 5_000], 1, 1)?;
        while ctx.rank() == 0 && !request.test()? {}
        if ctx.rank() == 0 { request.wait().map(drop) } else { request.cancel().map(drop) }
    });
    assert!(asked.contains("rank 1"), "{asked}");
    let dropped = run(|ctx| {
        if ctx.rank() == 0 {
            drop(ctx.irecv(vec![0; 5_000], 1, 1)?);
        }
        Ok(())
    });
    assert!(dropped.contains("rank 1"), "{dropped}");
    let failed = run(|ctx| match ctx.rank() {
        0 => ctx.irecv(vec![0; 5_000], 1, 1)?.wait().map(drop),
        _ => Err("deliberate".into()),
    });
    assert!(failed.contains("deliberate"), "{failed}");
    let cycle = run(|ctx| ctx.irecv(vec![0; 5_000], 1 - ctx.rank(), 1)?.wait().map(drop));
    assert!(cycle.contains("deadlock") && cycle.contains(file!()), "{cycle}");
    let beside = run(|ctx| {
        let request = ctx.irecv(vec![0; 5_000], 1 - ctx.rank(), 1)?;
        ctx.recv(&mut [0], 1 - ctx.rank(), 2)?;
        request.wait().map(drop)
    });
    assert!(beside.contains("deadlock"), "{beside}");
    Ok(())
}

/// A rank that panics with receives under way: of those whose messages have come it waits for the
/// end, the others it takes back.
#[test]
fn a_rank_that_panics() {
    let ended = Spmd::new(2).threads().progress(HELPED).run(|ctx| {
        let (mut come, mut never) = (vec![0; 3_000_000], vec![0; 5_000]);
        if ctx.rank() == 1 {
            return ctx.send(&vec![1; 3_000_000], 0, 1);
        }
        ctx.requests(|requests| {
            requests.irecv(&mut come, 1, 1)?;
            requests.irecv(&mut never, 1, 2)?;
            if ctx.size() > 1 { panic!("deliberate") } else { Ok(()) }
        })
    });
    let error = ended.expect_err("a rank has panicked").to_string();
    assert!(error.contains("deliberate"), "{error}");
}

/// They take turns with a time limit: one whose message does not come ends by it.
#[test]
fn the_time_limit_ends_them() {
    let limit = Duration::from_millis(300);
    let ended = Spmd::new(2).threads().progress(HELPED).timeout(limit).run(|ctx| {
        if ctx.rank() == 1 {
            thread::sleep(Duration::from_secs(2));
            return Ok(());
        }
        ctx.irecv(vec![0; 5_000], 1, 1)?.wait().map(drop)
    });
    let error = ended.expect_err("it waits too long").to_string();
    assert!(error.contains("300ms") && error.contains(file!()), "{error}");
}

/// A buffer whose end looks at what it borrows.
struct Looks<'a>(Vec<u8>, &'a Cell<usize>);

impl Drop for Looks<'_> {
    fn drop(&mut self) {
        self.1.set(self.1.get() + 1);
    }
}

// SAFETY: the view is the vector's.
unsafe impl Buffer for Looks<'_> {
    type Elem = u8;

    fn erased(&self) -> View<'_> {
        self.0.erased()
    }
}

// SAFETY: the view is the vector's.
unsafe impl BufferMut for Looks<'_> {
    fn erased_mut(&mut self) -> ViewMut<'_> {
        self.0.erased_mut()
    }
}

/// Whatever becomes of a request in a scope, its buffer has ended when the scope has.
#[test]
fn buffers_end_before_their_scope() -> Result<()> {
    everywhere("messages::buffers_end_before_their_scope", &[2], |ctx| {
        let peer = 1 - ctx.rank();
        let ended = Cell::new(0);
        let make = || Looks(vec![7; 50_000], &ended);
        let short = ctx.requests(|requests| {
            requests.isend(make(), peer, 1)?;
            let waited = requests.irecv(make(), peer, 1)?;
            requests.isend(vec![1u8; 60_000], peer, 2)?;
            // Too short for its message.
            requests.irecv(make(), peer, 2)?;
            waited.wait().map(drop)
        });
        assert!(matches!(short, Err(Error::Truncated(_))), "{short:?}");
        assert_eq!(ended.replace(0), 3);
        ctx.barrier()?;
        // Nobody sends this; the scope takes it back.
        let failed = ctx.requests(|requests| {
            requests.irecv(make(), peer, 3)?;
            Err::<(), _>("deliberate".into())
        });
        assert!(failed.is_err());
        assert_eq!(ended.get(), 1);
        Ok(())
    })
}
