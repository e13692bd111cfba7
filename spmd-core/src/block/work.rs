//! What the ranks of a block do, free of the types that the program does it with: all that runs a
//! block is compiled once, not once for each block of a program.

use parking_lot::Mutex;

use crate::ctx::Ctx;
use crate::error::Result;

/// The program's closure, for each rank of a block in this process.
pub(crate) trait Work: Sync {
    /// Runs it as the `index`-th of these ranks, once, and keeps what it returns.
    fn run(&self, index: usize, ctx: &Ctx) -> Result<()>;

    /// Drops what it has returned there.
    fn forget(&self, index: usize);
}

/// A closure with what each rank is given, and has returned.
pub(crate) struct Shared<A, R, F> {
    f: F,
    shares: Vec<Mutex<Option<A>>>,
    results: Vec<Mutex<Option<R>>>,
}

impl<A, R, F> Shared<A, R, F> {
    pub(crate) fn new(shares: Vec<A>, f: F) -> Shared<A, R, F> {
        let results = shares.iter().map(|_| Mutex::new(None)).collect();
        let shares = shares.into_iter().map(|share| Mutex::new(Some(share))).collect();
        Shared { f, shares, results }
    }

    /// What all ranks have returned.
    pub(crate) fn results(self) -> Vec<R> {
        let all = self.results.into_iter().map(|result| result.into_inner());
        all.map(|result| result.expect("every rank has returned a value")).collect()
    }
}

impl<A, R, F> Work for Shared<A, R, F>
where
    F: Fn(&Ctx, A) -> Result<R> + Sync,
    A: Send,
    R: Send,
{
    fn run(&self, index: usize, ctx: &Ctx) -> Result<()> {
        let share = self.shares[index].lock().take().expect("each rank starts once");
        let value = (self.f)(ctx, share)?;
        *self.results[index].lock() = Some(value);
        Ok(())
    }

    fn forget(&self, index: usize) {
        let value = self.results[index].lock().take();
        drop(value);
    }
}
