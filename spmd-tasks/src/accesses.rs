//! What a task says of the data that it uses, and the references that it gets.

use std::sync::Arc;

use parking_lot::Mutex;
use spmd_core::{Error, Result};

use crate::data::{Data, Mode, Order};
use crate::failure::Failure;
use crate::node::{Header, Runnable, Work};

/// A task reads these data, as others may at the same time: it gets a `&T`.
#[derive(Debug)]
pub struct Read<'d, T>(pub(crate) &'d Data<T>);

/// A task writes these data, alone: it gets a `&mut T`.
#[derive(Debug)]
pub struct Write<'d, T>(pub(crate) &'d Data<T>, pub(crate) Mode);

/// How a task uses all data that it does: a tuple of up to five of [`Read`] and [`Write`]. `F` is what it
/// does with the references, `&T` and `&mut T`, in their order.
pub trait Accesses<F, T>: sealed::Sealed<F, T> {}

/// Whose order a task enters, and how.
pub type Entry<'d> = (&'d Mutex<Order>, Mode);

mod sealed {
    use super::*;

    pub trait Sealed<F, T>: Sized {
        type Work: Work<Value = T>;

        fn entries(&self) -> Vec<Entry<'_>>;
        /// What the task does once those are over that must have gone well.
        fn work(
            self,
            needed: Vec<Arc<dyn Runnable>>,
            refused: Option<Error>,
            work: F,
        ) -> Self::Work;
    }
}

impl<A: sealed::Sealed<F, T>, F, T> Accesses<F, T> for A {}

impl<T> Read<'_, T> {
    fn entry(&self) -> Entry<'_> {
        (self.0.order(), Mode::Read)
    }

    /// # Safety
    /// Nobody writes the data as long as what this gives is used.
    unsafe fn item(&self) -> &T {
        // SAFETY: this function's contract.
        unsafe { &*self.0.value() }
    }
}

impl<T> Write<'_, T> {
    fn entry(&self) -> Entry<'_> {
        (self.0.order(), self.1)
    }

    /// # Safety
    /// Nobody else uses the data as long as what this gives is used.
    #[expect(clippy::mut_from_ref, reason = "of a cell, as the contract has it")]
    unsafe fn item(&self) -> &mut T {
        // SAFETY: this function's contract.
        unsafe { &mut *self.0.value() }
    }
}

/// What is done with data.
#[expect(missing_debug_implementations, reason = "hidden: no user holds one")]
pub struct Using<A, F> {
    accesses: A,
    /// Tasks that must have gone well.
    needed: Vec<Arc<dyn Runnable>>,
    /// Why it cannot be done.
    refused: Option<Error>,
    work: F,
}

impl<A, F> Using<A, F> {
    /// Why it is not to be done, as far as that is known before.
    fn fails(&mut self, task: &Header) -> Option<Failure> {
        let refused = self.refused.take().map(|why| Failure::returned(task.described(), why));
        let failed = |task: &Arc<dyn Runnable>| task.header().failure().cloned();
        refused.or_else(|| self.needed.iter().find_map(failed))
    }
}

macro_rules! accesses {
    ($(($data:ident $value:ident $index:tt $access:ident $($reference:tt)+))*) => {
        impl<$($data: Send + Sync,)* F, T> Work for Using<($($access<'_, $data>,)*), F>
        where
            F: for<'a> FnOnce($($($reference)+ $data),*) -> Result<T> + Send,
            T: Send,
        {
            type Value = T;

            fn run(mut self, task: &Header) -> Result<T, Failure> {
                if let Some(failure) = self.fails(task) {
                    return Err(failure);
                }
                // SAFETY: all tasks are over whose turn comes before, and those whose turn comes after
                // wait until this one is: it is not before this function returns. No data are named
                // twice if this one writes them, as that is refused.
                $(let $value = unsafe { self.accesses.$index.item() };)*
                (self.work)($($value),*).map_err(|error| Failure::returned(task.described(), error))
            }
        }

        impl<'d, $($data: Send + Sync,)* F, T> sealed::Sealed<F, T> for ($($access<'d, $data>,)*)
        where
            F: for<'a> FnOnce($($($reference)+ $data),*) -> Result<T> + Send,
            T: Send,
        {
            type Work = Using<($($access<'d, $data>,)*), F>;

            fn entries(&self) -> Vec<Entry<'_>> {
                vec![$(self.$index.entry()),*]
            }

            fn work(
                self,
                needed: Vec<Arc<dyn Runnable>>,
                refused: Option<Error>,
                work: F,
            ) -> Self::Work {
                Using { accesses: self, needed, refused, work }
            }
        }
    };
}

/// Each of them read, and each of them written.
macro_rules! modes {
    ([$($done:tt)*] ($($next:tt)*) $($rest:tt)*) => {
        modes!([$($done)* ($($next)* Read &'a)] $($rest)*);
        modes!([$($done)* ($($next)* Write &'a mut)] $($rest)*);
    };
    ([$($done:tt)*]) => { accesses!($($done)*); };
}

modes!([] (A a 0));
modes!([] (A a 0) (B b 1));
modes!([] (A a 0) (B b 1) (C c 2));
modes!([] (A a 0) (B b 1) (C c 2) (D d 3));
modes!([] (A a 0) (B b 1) (C c 2) (D d 3) (E e 4));
