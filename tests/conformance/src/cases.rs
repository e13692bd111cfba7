//! The cases of the matrix, for any world: all of them run [`cases_and`].

use crate::prelude::*;

use super::case::{Case, Form, LAYOUTS, Layout};
use super::fold::{Fold, Folds};
use super::{grids, mixed, moves, objects, reductions};
use crate::element::Sample;
use crate::full;

/// Bytes that a collective carries at most without exposing a buffer.
const PAYLOAD: usize = 4096;

/// What is chosen for the cases of one world.
#[derive(Clone, Copy)]
pub struct Choice {
    /// Every layout of buffers, or one in turn.
    pub all_layouts: bool,
    /// Every type and operation, or `f64` and `Sum` alone.
    pub all_types: bool,
}

/// What to do with each type, and with each operation on it.
pub trait Visit {
    fn of_type<T: Sample>(&mut self) -> Result<()>;
    fn of_operation<T: Sample>(&mut self, fold: &dyn Folds<T>) -> Result<()>;
}

/// Shows the plan types and operations.
type Types = fn(&mut Plan<'_>) -> Result<()>;

/// All cases, on the communicator of the world: for `f64` and `Sum`, and what `types` shows.
pub fn cases_and(ctx: &Ctx, choice: Choice, types: Types) -> Result<()> {
    let mut plan = Plan::new(Some(ctx), ctx, choice);
    plan.product(&reductions_of_f64())?;
    if choice.all_types || full() {
        types(&mut plan)?;
    }
    mixed::forms(ctx)
}

/// The full product for `f64` and `Sum` on a communicator of some ranks of the world.
pub fn cases_on(ctx: Option<&Ctx>, comm: &Comm) -> Result<()> {
    let choice = Choice { all_layouts: false, all_types: false };
    Plan::new(ctx, comm, choice).product(&reductions_of_f64())
}

/// Every collective that takes buffers alone, on buffers of the ranks' device: the full product for
/// `f64` and `Sum`, and for what `types` shows each pair of two values.
pub fn cases_on_device_and(ctx: &Ctx, all_types: bool, types: Types) -> Result<()> {
    let choice = Choice { all_layouts: true, all_types };
    let mut plan = Plan::new(Some(ctx), ctx, choice);
    plan.layouts = &[Layout::Device];
    plan.forms(&reductions_of_f64())?;
    if all_types || full() {
        types(&mut plan)?;
    }
    Ok(())
}

fn reductions_of_f64() -> Fold<f64, Sum> {
    Fold { op: Sum, oracle: |a, b| a + b }
}

/// Walks through the cases of one communicator.
pub struct Plan<'a> {
    ctx: Option<&'a Ctx>,
    comm: &'a Comm,
    choice: Choice,
    layouts: &'static [Layout],
    roots: Vec<usize>,
    /// How many cases there have been.
    seed: u64,
    /// How many types and operations there have been.
    turn: usize,
}

impl<'a> Plan<'a> {
    fn new(ctx: Option<&'a Ctx>, comm: &'a Comm, choice: Choice) -> Plan<'a> {
        let n = comm.size();
        let mut roots = vec![0, n / 2, n - 1];
        roots.dedup();
        Plan { ctx, comm, choice, layouts: &LAYOUTS, roots, seed: 0, turn: 0 }
    }

    /// Counts around every limit, for elements of this size.
    fn counts(&self, size: usize) -> Vec<usize> {
        let segment = (self.comm.internals().segment() / size).max(2);
        let room = PAYLOAD / size;
        // A sanitizer finds on one side of a limit what it would find on the other.
        if cfg!(few_types) {
            return vec![0, 1, segment - 1, 3 * segment + 5, room + 1];
        }
        vec![0, 1, 3, 1000, segment - 1, segment, segment + 1, 3 * segment + 5, room, room + 1]
    }

    fn case(&mut self, count: usize, root: usize, layout: Layout) -> Case<'a> {
        self.seed += 1;
        Case { ctx: self.ctx, comm: self.comm, count, root, layout, seed: self.seed }
    }

    /// Every count, root and layout that matters to a form.
    fn all_of(
        &mut self,
        counts: &[usize],
        (rooted, sized): (bool, bool),
        run: &dyn Fn(&Case<'_>) -> Result<()>,
    ) -> Result<()> {
        let roots = if rooted { self.roots.clone() } else { vec![0] };
        let counts = if sized { counts } else { &[1] };
        for count in counts {
            for root in &roots {
                let in_turn = self.seed as usize % self.layouts.len();
                let all = (self.choice.all_layouts || full()) && sized;
                let layouts = if all { self.layouts } else { &self.layouts[in_turn..=in_turn] };
                for layout in layouts {
                    run(&self.case(*count, *root, *layout))?;
                }
            }
        }
        Ok(())
    }

    /// One count, root and layout for a form of the type or operation whose turn it is: over all
    /// of these, each pair of two values comes up.
    fn one_of(
        &mut self,
        counts: &[usize],
        form: usize,
        run: &dyn Fn(&Case<'_>) -> Result<()>,
    ) -> Result<()> {
        let count = counts[(form + self.turn) % counts.len()];
        let root = self.roots[(form + self.turn / 2) % self.roots.len()];
        let layout = self.layouts[(form + self.turn / 5) % self.layouts.len()];
        run(&self.case(count, root, layout))
    }

    /// Whether a form can have buffers there.
    fn takes<F>(&self, form: &Form<F>) -> bool {
        form.plain || self.layouts != [Layout::Device]
    }

    /// The full product of the collectives for one type and operation.
    fn forms<T: Sample>(&mut self, fold: &dyn Folds<T>) -> Result<()> {
        let counts = self.counts(size_of::<T>());
        for form in moves::forms::<T>() {
            if self.takes(&form) {
                self.all_of(&counts, (form.rooted, form.sized), &form.run)?;
            }
        }
        for form in reductions::forms::<T>() {
            let run = |case: &Case<'_>| (form.run)(case, fold);
            if self.takes(&form) {
                self.all_of(&counts, (form.rooted, form.sized), &run)?;
            }
        }
        Ok(())
    }

    /// The same, and that of the calls on objects and grids.
    fn product<T: Sample>(&mut self, fold: &dyn Folds<T>) -> Result<()> {
        self.forms(fold)?;
        let counts = self.counts(size_of::<T>());
        for form in objects::forms() {
            self.all_of(&counts, (form.rooted, form.sized), &form.run)?;
        }
        for grid in grids::of(self.comm)? {
            for form in grids::forms::<T>() {
                self.all_of(&counts, (false, true), &|case| form(case, &grid))?;
            }
        }
        Ok(())
    }

    /// The cases of the form with this number, as many as were asked for.
    fn some_of(
        &mut self,
        size: usize,
        number: usize,
        matters: (bool, bool),
        run: &dyn Fn(&Case<'_>) -> Result<()>,
    ) -> Result<()> {
        let counts = self.counts(size);
        match full() {
            true => self.all_of(&counts, matters, run),
            false => self.one_of(&counts, number, run),
        }
    }
}

impl Visit for Plan<'_> {
    fn of_type<T: Sample>(&mut self) -> Result<()> {
        self.turn += 1;
        for (number, form) in moves::forms::<T>().iter().enumerate() {
            if !self.takes(form) {
                continue;
            }
            self.some_of(size_of::<T>(), number, (form.rooted, form.sized), &form.run)?;
        }
        Ok(())
    }

    fn of_operation<T: Sample>(&mut self, fold: &dyn Folds<T>) -> Result<()> {
        self.turn += 1;
        for (number, form) in reductions::forms::<T>().iter().enumerate() {
            if !self.takes(form) {
                continue;
            }
            let run = |case: &Case<'_>| (form.run)(case, fold);
            self.some_of(size_of::<T>(), number, (form.rooted, form.sized), &run)?;
        }
        Ok(())
    }
}
