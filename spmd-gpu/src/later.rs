//! What ranks compare of calls on devices while these carry them out.
//!
//! A rank starts such a meeting with each call, and goes on. It looks at those that are over with
//! its next call, and waits for all before it waits for the device: so it waits for ranks where that is on
//! record, and what they do wrong is found, before it waits for what no host sees.

use std::cell::RefCell;
use std::collections::VecDeque;

use spmd_core::element::DType;
use spmd_core::internal::{Args, Call, ErasedOp, Starts};
use spmd_core::{Comm, Max, Min, Prod, Request, Result, Sum, rank_local};

/// So many meetings of a rank are under way at most.
const MOST: usize = 64;

rank_local! {
    /// The meetings of this rank, the oldest first.
    static UNDER_WAY: RefCell<VecDeque<Request<()>>> = RefCell::default();
}

/// Starts the meeting of a call, which `meet` carries out on a communicator of the same ranks.
///
/// Errors: it cannot be started.
pub(crate) fn start(
    comm: &Comm,
    call: &Call<'_>,
    args: &Args<'_>,
    meet: impl FnOnce(&Comm, &Call<'_>) -> Result<()> + Send + 'static,
) -> Result<()> {
    let (told, dtype) = (call.without_borrows(), call.dtype.copied());
    let op = args.op.and_then(of_the_library);
    let carried_out = told.clone();
    let meeting = comm.internals().start(told, move |comm| {
        meet(comm, &described(carried_out, dtype.as_ref(), op.as_ref()))
    })?;
    UNDER_WAY.with(|all| all.borrow_mut().push_back(meeting));
    Ok(())
}

/// Waits until the ranks have met in all calls of this rank.
///
/// Errors: they have not called the same; the rank cannot wait.
pub(crate) fn end_all() -> Result<()> {
    let mut first = Ok(());
    // When the values of a rank are dropped, all that it has started is over.
    let next = || UNDER_WAY.try_with(|all| all.borrow_mut().pop_front()).flatten();
    while let Some(oldest) = next() {
        first = first.and(oldest.wait());
    }
    first
}

/// Ends those that are over, and others until there is room for one more.
///
/// Errors: that of the first, in order, that has failed.
pub(crate) fn end_some() -> Result<()> {
    let mut first = Ok(());
    loop {
        let oldest = UNDER_WAY.with(|all| all.borrow_mut().pop_front());
        let Some(mut oldest) = oldest else { return first };
        let many = UNDER_WAY.with(|all| all.borrow().len()) >= MOST - 1;
        if !many && matches!(oldest.test(), Ok(false)) {
            UNDER_WAY.with(|all| all.borrow_mut().push_front(oldest));
            return first;
        }
        first = first.and(oldest.wait());
    }
}

/// The same call, with words for its type and operation.
fn described<'a>(
    mut call: Call<'a>,
    dtype: Option<&'a DType>,
    op: Option<&'a ErasedOp<'a>>,
) -> Call<'a> {
    (call.dtype, call.op) = (dtype, op);
    call
}

/// The operation of the library's own that has this one's name, whatever it is on.
fn of_the_library(op: &ErasedOp<'_>) -> Option<ErasedOp<'static>> {
    let all = [
        ErasedOp::new::<f64, _>(&Sum),
        ErasedOp::new::<f64, _>(&Prod),
        ErasedOp::new::<f64, _>(&Max),
        ErasedOp::new::<f64, _>(&Min),
    ];
    all.into_iter().find(|it| it.id() == op.id())
}
