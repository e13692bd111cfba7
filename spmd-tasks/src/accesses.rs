//! What a task does with all that it uses.

use spmd_core::{Error, Result};

use crate::access::{Access, Gives};
use crate::failure::Failure;
use crate::header::Header;
use crate::inner::{AnyTask, first_failure};
use crate::node::Work;
use crate::place::Place;

/// How a task uses all data that it does: a tuple of up to eight of [`Read`](crate::Read),
/// [`Write`](crate::Write), [`ReadAll`](crate::ReadAll), [`WriteAll`](crate::WriteAll) and
/// [`Reduce`](crate::Reduce). `F` is what it does with what it gets, in their order.
pub trait Accesses<'d, F, T>: sealed::Sealed<'d, F, T> {}

mod sealed {
    use super::*;

    pub trait Sealed<'d, F, T>: Sized {
        type Work: Work<Value = T>;

        /// All places, once.
        fn places(&mut self) -> Vec<Place<'d>>;
        /// What the task does once those are over that must have gone well.
        fn work(self, well: Vec<AnyTask>, refused: Option<Error>, work: F) -> Self::Work;
    }
}

impl<'d, A: sealed::Sealed<'d, F, T>, F, T> Accesses<'d, F, T> for A {}

/// What is done with data.
#[expect(missing_debug_implementations, reason = "hidden: no user holds one")]
pub struct Using<A, F> {
    accesses: A,
    /// Tasks that must have gone well.
    well: Vec<AnyTask>,
    /// Why it cannot be done.
    refused: Option<Error>,
    work: F,
}

impl<A, F> Using<A, F> {
    /// Why it is not to be done, as far as that is known before.
    fn fails(&mut self, task: &Header) -> Option<Failure> {
        let refused = self.refused.take().map(|why| Failure::returned(task.described(), why));
        let failed = refused.or_else(|| first_failure(&self.well));
        failed.or_else(|| task.turn()?.failure())
    }
}

macro_rules! accesses {
    ($($access:ident $index:tt),*) => {
        impl<'d, $($access: Access<'d>,)* F, T> sealed::Sealed<'d, F, T> for ($($access,)*)
        where
            F: for<'a> FnOnce($(<$access as Gives<'a>>::Item),*) -> Result<T> + Send,
            T: Send,
        {
            type Work = Using<($($access,)*), F>;

            fn places(&mut self) -> Vec<Place<'d>> {
                let mut places = Vec::new();
                $(self.$index.places(&mut places);)*
                places
            }

            fn work(self, well: Vec<AnyTask>, refused: Option<Error>, work: F) -> Self::Work {
                Using { accesses: self, well, refused, work }
            }
        }

        impl<$($access,)* F, T> Work for Using<($($access,)*), F>
        where
            $($access: for<'a> Gives<'a> + Send,)*
            F: for<'a> FnOnce($(<$access as Gives<'a>>::Item),*) -> Result<T> + Send,
            T: Send,
        {
            type Value = T;

            fn run(mut self, task: &Header) -> Result<T, Failure> {
                if let Some(failure) = self.fails(task) {
                    return Err(failure);
                }
                let Using { mut accesses, work, .. } = self;
                // SAFETY: all tasks are over whose turn comes before, and those whose turn comes after
                // wait until this one is: it is not before this function returns. No data are named
                // twice if this one writes them, as that is refused. Each is called once.
                let result = work($(unsafe { accesses.$index.give() }),*);
                let value = result.map_err(|error| Failure::returned(task.described(), error))?;
                $(Gives::keep(accesses.$index);)*
                Ok(value)
            }
        }
    };
}

accesses!(A 0);
accesses!(A 0, B 1);
accesses!(A 0, B 1, C 2);
accesses!(A 0, B 1, C 2, D 3);
accesses!(A 0, B 1, C 2, D 3, E 4);
accesses!(A 0, B 1, C 2, D 3, E 4, G 5);
accesses!(A 0, B 1, C 2, D 3, E 4, G 5, H 6);
accesses!(A 0, B 1, C 2, D 3, E 4, G 5, H 6, I 7);
