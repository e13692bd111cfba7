//! Tasks whose values another one needs.

use std::panic::Location;
use std::sync::Arc;

use spmd_core::Result;

use crate::about::About;
use crate::failure::Failure;
use crate::graph::Need;
use crate::group::Group;
use crate::header::{Header, depends};
use crate::input::Input;
use crate::node::{Node, Work};
use crate::placing::placed;
use crate::task::Task;

/// The tasks that a task needs: a tuple of up to eight `&Task`, or a slice of tasks of one type. `F` is
/// what is carried out with their values, as so many references, or as a slice of them.
pub trait Inputs<F, T>: sealed::Sealed<F, T> {}

mod sealed {
    use super::*;

    pub trait Sealed<F, T> {
        type Work: Work<Value = T> + 'static;

        /// What is done once the values are there.
        fn work(&self, work: F) -> Self::Work;
        /// Each of the tasks.
        fn each(&self, see: &mut dyn FnMut(&Header));
    }
}

impl<I: sealed::Sealed<F, T>, F, T> Inputs<F, T> for I {}

/// Spawns a task that needs others.
pub(crate) fn put_after<I: Inputs<F, T>, F, T: Send + 'static>(
    group: &Arc<Group>,
    (site, about): (&'static Location<'static>, Option<Box<About>>),
    inputs: I,
    work: F,
) -> Task<T> {
    let about = placed(group, about);
    let task = Arc::new(Node::new(Header::new(group, site, about), inputs.work(work)));
    if group.refusal().is_none() {
        inputs.each(&mut |input| depends(task.clone(), input, Need::Value));
        group.waits(|| task.clone());
    }
    task.asks(group, || task.clone());
    task.is_made(group);
    Task::new(task)
}

/// What is done with the values of other tasks.
#[expect(missing_debug_implementations, reason = "hidden: no user holds one")]
pub struct After<I, F> {
    inputs: I,
    work: F,
}

macro_rules! tuples {
    ($($input:ident $value:ident $index:tt),*) => {
        impl<$($input,)* F, T> Work for After<($(Input<$input>,)*), F>
        where
            $($input: Send + Sync + 'static,)*
            F: for<'a> FnOnce($(&'a $input),*) -> Result<T> + Send,
            T: Send,
        {
            type Value = T;

            fn run(self, task: &Header) -> Result<T, Failure> {
                $(let $value = self.inputs.$index.value()?;)*
                (self.work)($($value),*)
                    .map_err(|error| Failure::returned(task.described(), error))
            }
        }

        impl<$($input,)* F, T> sealed::Sealed<F, T> for ($(&Task<$input>,)*)
        where
            $($input: Send + Sync + 'static,)*
            F: for<'a> FnOnce($(&'a $input),*) -> Result<T> + Send + 'static,
            T: Send + 'static,
        {
            type Work = After<($(Input<$input>,)*), F>;

            fn work(&self, work: F) -> Self::Work {
                After { inputs: ($(self.$index.input(),)*), work }
            }

            fn each(&self, see: &mut dyn FnMut(&Header)) {
                $(see(self.$index.header());)*
            }
        }
    };
}

tuples!(A a 0);
tuples!(A a 0, B b 1);
tuples!(A a 0, B b 1, C c 2);
tuples!(A a 0, B b 1, C c 2, D d 3);
tuples!(A a 0, B b 1, C c 2, D d 3, E e 4);
tuples!(A a 0, B b 1, C c 2, D d 3, E e 4, G g 5);
tuples!(A a 0, B b 1, C c 2, D d 3, E e 4, G g 5, H h 6);
tuples!(A a 0, B b 1, C c 2, D d 3, E e 4, G g 5, H h 6, I i 7);

impl<A, F, T> Work for After<Box<[Input<A>]>, F>
where
    A: Send + Sync + 'static,
    F: for<'a> FnOnce(&'a [&'a A]) -> Result<T> + Send,
    T: Send,
{
    type Value = T;

    fn run(self, task: &Header) -> Result<T, Failure> {
        let values: Result<Vec<&A>, Failure> = self.inputs.iter().map(Input::value).collect();
        (self.work)(&values?).map_err(|error| Failure::returned(task.described(), error))
    }
}

macro_rules! slices {
    ($($slice:ty),*) => {
        $(impl<A, F, T> sealed::Sealed<F, T> for $slice
        where
            A: Send + Sync + 'static,
            F: for<'a> FnOnce(&'a [&'a A]) -> Result<T> + Send + 'static,
            T: Send + 'static,
        {
            type Work = After<Box<[Input<A>]>, F>;

            fn work(&self, work: F) -> Self::Work {
                After { inputs: self.iter().map(|task| task.input()).collect(), work }
            }

            fn each(&self, see: &mut dyn FnMut(&Header)) {
                self.iter().for_each(|task| see(task.header()));
            }
        })*
    };
}

slices!(&[Task<A>], &[&Task<A>], &Vec<Task<A>>);
