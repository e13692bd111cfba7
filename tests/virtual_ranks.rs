//! What virtual ranks, of which many share a thread, do otherwise than others, and what they do
//! alike.

#![cfg(target_os = "linux")]

use std::cell::{Cell, RefCell};
use std::process::Command;
use std::rc::Rc;

use spmd::prelude::*;
use spmd::{Comm, rank_local};

mod support;

use support::finish;

thread_local! {
    static SPLITTING: Cell<bool> = const { Cell::new(false) };
    /// What the virtual ranks of one worker share.
    static SHARED: RefCell<Vec<Rc<Comm>>> = const { RefCell::new(Vec::new()) };
}

fn share(comm: Comm) -> Rc<Comm> {
    let comm = Rc::new(comm);
    SHARED.with_borrow_mut(|shared| shared.push(comm.clone()));
    comm
}

/// While a rank is in a call of its communicator, another one makes each kind of call on it.
#[test]
fn a_communicator_serves_one_call_at_a_time() {
    type Try = fn(&Comm) -> Result<()>;
    let tries: [Try; 7] = [
        |comm| comm.barrier(),
        |comm| comm.send(&[1], 0, 0),
        |comm| comm.recv_vec::<u8>(ANY, ANY).map(drop),
        |comm| comm.iprobe(ANY, ANY).map(drop),
        |comm| comm.allreduce_value(1, Sum).map(drop),
        |comm| comm.dup().map(drop),
        |comm| comm.agree(1).map(drop),
    ];
    let ended = Spmd::new(2).virtual_ranks().workers(1).run(|ctx| {
        let copy = ctx.dup()?;
        if ctx.rank() == 0 {
            let copy = share(copy);
            ctx.barrier()?;
            copy.recv(&mut [0u8], 1, 0)?;
            // Whoever was refused has changed nothing.
            copy.barrier()?;
        } else {
            ctx.barrier()?;
            let theirs = SHARED.with_borrow(|shared| shared[0].clone());
            for attempt in tries {
                let error = attempt(&theirs).expect_err("rank 0 is in a call");
                assert!(matches!(error, Error::Reentrant(_)), "{error}");
                assert!(error.to_string().contains("another call of its communicator"), "{error}");
            }
            copy.send(&[1u8], 0, 0)?;
            copy.barrier()?;
            SHARED.with_borrow_mut(Vec::clear);
        }
        ctx.barrier()
    });
    ended.unwrap();
}

/// A call that is made of several keeps its communicator from the first to the last.
#[test]
fn nobody_comes_between_the_calls_of_a_split() {
    let ended = Spmd::new(4).virtual_ranks().workers(2).run(|ctx| {
        let copy = ctx.dup()?;
        // Ranks 0 and 1 live on one worker, 2 and 3 on the other.
        if ctx.rank().is_multiple_of(2) {
            let copy = share(copy);
            SPLITTING.set(true);
            copy.split(Some(0), 0).map(drop)?;
            SPLITTING.set(false);
        } else {
            while !SPLITTING.get() {
                ctx.iprobe(ANY, 9)?;
            }
            let theirs = SHARED.with_borrow(|shared| shared[0].clone());
            assert!(matches!(theirs.iprobe(ANY, 9), Err(Error::Reentrant(_))));
            // Between its calls, too, as long as this one is in its own.
            copy.split(Some(0), 0).map(drop)?;
            assert!(!SPLITTING.get() || theirs.iprobe(ANY, 9).is_err());
            SHARED.with_borrow_mut(Vec::clear);
        }
        Ok(())
    });
    ended.unwrap();
}

/// What to do instead of a join, which holds the worker (`cycles.rs`).
#[test]
fn a_thread_that_is_waited_for_in_the_library() {
    let sums = Spmd::new(2).virtual_ranks().workers(1).run(|ctx| {
        let copy = ctx.dup()?;
        let thread = std::thread::spawn(move || copy.allreduce_value(1, Sum));
        while !thread.is_finished() {
            ctx.iprobe(ANY, ANY)?;
        }
        thread.join().expect("it does not panic")
    });
    assert_eq!(sums.unwrap(), [2, 2]);
}

#[test]
fn a_block_in_drop_while_a_rank_panics() {
    struct Opens;
    thread_local! {
        static SEEN: RefCell<Option<Result<()>>> = const { RefCell::new(None) };
    }
    impl Drop for Opens {
        fn drop(&mut self) {
            let blocks = [Spmd::new(2).threads(), Spmd::new(2).virtual_ranks()];
            let ended = blocks.map(|block| block.run(|inner| inner.barrier()).map(drop));
            SEEN.set(ended.into_iter().find(Result::is_err).or(Some(Ok(()))));
        }
    }
    let ended = Spmd::new(2).virtual_ranks().workers(1).run(|ctx| {
        if ctx.rank() == 0 {
            let _opens = Opens;
            panic!("no luck");
        }
        let error = ctx.barrier().expect_err("rank 0 panics").to_string();
        let seen =
            SEEN.take().expect("it was dropped").expect_err("a block cannot wait").to_string();
        assert!(
            error.contains("no luck") && seen.contains("don't open one in Drop"),
            "{error} {seen}"
        );
        Ok(())
    });
    assert!(matches!(&ended, Err(Error::Panicked(panic)) if panic.rank == 0), "{ended:?}");
    // A thread may wait, whatever happens to it.
    let ended = Spmd::new(2).threads().run(|ctx| {
        if ctx.rank() == 0 {
            let _opens = Opens;
            panic!("no luck");
        }
        Ok(())
    });
    assert!(matches!(&ended, Err(Error::Panicked(panic)) if panic.rank == 0), "{ended:?}");
}

#[test]
fn the_world_is_entered_by_no_rank() {
    for block in [Spmd::new(2).threads(), Spmd::new(2).virtual_ranks()] {
        let ended = block.run(|_| spmd::run(|inner| Ok(inner.size())));
        let text = ended.expect_err("a rank is in a world").to_string();
        assert!(text.contains("spmd::run was called inside the world that it enters"), "{text}");
    }
}

#[test]
fn a_panic_is_told_with_its_rank() {
    const CHILD: &str = "TEST_CHILD";
    if std::env::var_os(CHILD).is_some() {
        let panics = |ctx: &spmd::Ctx| {
            if ctx.rank() == 1 { panic!("no luck") } else { ctx.barrier() }
        };
        let _ = Spmd::new(2).virtual_ranks().workers(1).run(panics);
        return;
    }
    let mut command = Command::new(std::env::current_exe().expect("a test knows its path"));
    let arguments = ["a_panic_is_told_with_its_rank", "--exact", "--nocapture"];
    let ran = finish(command.args(arguments).env(CHILD, "1"));
    let told = ran.err.find("spmd: rank 1 panics:").expect("it is told which rank");
    assert!(ran.err[told..].contains("no luck"), "{}", ran.err);
}

rank_local! {
    static TURNS: Cell<usize> = Cell::new(0);
}

#[test]
fn rank_locals_are_alike_everywhere() {
    for block in [Spmd::new(9).threads(), Spmd::new(9).virtual_ranks().workers(2)] {
        let turns = block.run(|ctx| {
            for _ in 0..=ctx.rank() {
                TURNS.with(|turns| turns.set(turns.get() + 1));
                ctx.iprobe(ANY, 5)?;
            }
            Ok(TURNS.with(Cell::get))
        });
        assert_eq!(turns.unwrap(), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
    }
    assert_eq!(TURNS.with(Cell::get), 0);
}
