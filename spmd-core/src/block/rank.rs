//! What every rank does at the start and the end of a block.

use std::any::Any;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::Arc;

use super::Work;
use crate::comm::beyond::Beyond;
use crate::ctx::Present;
use crate::error::{Error, Result, Unreceived};
use crate::fault::{Cause, Fault};
use crate::mode::Mode;
use crate::panics::{discard, error_text, note_panics, panic_text};
use crate::tasks;
use crate::transport::shared::{Endpoint, FaultScope, state};

/// What a rank does, the `index`-th of this process: enter the block, run the program's closure,
/// leave the block, telling the others how it went. A panic is given back as the error side.
pub(crate) fn run_rank(
    endpoint: &Arc<Endpoint>,
    beyond: &Arc<Beyond>,
    block: u32,
    work: &dyn Work,
    index: usize,
    site: &'static Location<'static>,
) -> std::thread::Result<Result<()>> {
    let (world, rank) = (&endpoint.world, endpoint.rank);
    world.set_home(rank);
    endpoint.enter(block);
    note_panics();
    let present = Present::new(endpoint.clone(), block, beyond.clone());
    let entered = present.enter();
    let mut outcome = catch_unwind(AssertUnwindSafe(|| {
        tasks::begin(&present.ctx)?;
        work.run(index, &present.ctx)
    }));
    if let Ok(Ok(())) = outcome
        && let Some(failed) = endpoint.end_started(block, site)
    {
        outcome = match catch_unwind(AssertUnwindSafe(|| work.forget(index))) {
            Ok(()) => failed,
            Err(panic) => Err(panic),
        };
    }
    let own = |cause| Some(Fault::Rank { rank, cause });
    let fault_of = |outcome: &std::thread::Result<Result<()>>| match outcome {
        Ok(Ok(())) => None,
        // What stopped this rank also stops those that wait for it on other communicators.
        Ok(Err(error)) => error
            .fault()
            .filter(|fault| endpoint.was_told(fault))
            .cloned()
            .or_else(|| own(Cause::Returned(error_text(&error.with_causes())))),
        Err(panic) => own(Cause::Panicked(panic_text(&**panic))),
    };
    let raise = |fault: &Fault| world.raise(FaultScope::Rank { rank, block }, fault);
    let first = fault_of(&outcome);
    // Before what it has started gives up because of it.
    first.iter().for_each(raise);
    endpoint.give_up_started();
    // Whichever of them panics, all are dropped.
    while let Err(panic) = catch_unwind(AssertUnwindSafe(|| present.current.locals.close())) {
        outcome = Err(first_panic(outcome, panic, &|| work.forget(index)));
    }
    // What was dropped may have started more.
    endpoint.give_up_started();
    endpoint.end_helper();
    drop(entered);
    drop(present);
    let fault = match first {
        Some(first) => Some(first),
        None => fault_of(&outcome).inspect(raise),
    };
    let left = if let Some(fault) = fault {
        beyond.cluster.iter().for_each(|cluster| cluster.fail(&fault));
        state::FAILED
    } else {
        state::LEFT
    };
    if world.mode == Mode::Processes {
        // The area of the next block, which was that of the one before the last: all are through
        // with it, as they have entered the last.
        endpoint.clear_for(block + 1);
    }
    endpoint.leave(block, left);
    outcome
}

/// The first panic of a rank with this outcome, which has panicked once more. What comes of
/// dropping the rest does not matter, but must not pass the end of the block by.
fn first_panic(
    outcome: std::thread::Result<Result<()>>,
    again: Box<dyn Any + Send>,
    forget: &dyn Fn(),
) -> Box<dyn Any + Send> {
    if let Err(first) = outcome {
        discard(again);
        return first;
    }
    let dropped = catch_unwind(AssertUnwindSafe(|| {
        forget();
        drop(outcome);
    }));
    dropped.err().into_iter().for_each(discard);
    again
}

/// Complains about messages that nobody has received.
pub(crate) fn check_all_received(endpoint: &Endpoint, block: u32) -> Result<()> {
    let Some((count, first)) = endpoint.unreceived(block)? else { return Ok(()) };
    let table = endpoint.world.memory.text(first.source as usize);
    Err(Error::Unreceived(Box::new(Unreceived {
        rank: endpoint.rank,
        count,
        from: first.source as usize,
        tag: first.tag,
        len: first.count as usize,
        sent_at: format!("{}:{}", table.get(first.file), first.line),
    })))
}
