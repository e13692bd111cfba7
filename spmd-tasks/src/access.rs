//! What a task says of data that it uses, and what it gets.

use crate::place::{Mode, Place};
use crate::view::sealed::{Lends, View};

/// A task reads this, as others may at the same time: it gets a `&T`, a `&[T]` or a `Vec<&[T]>`.
#[derive(Debug)]
pub struct Read<V>(pub(crate) V);

/// A task writes this, alone: it gets a `&mut T`, a `&mut [T]` or a `Vec<&mut [T]>`.
#[derive(Debug)]
pub struct Write<V>(pub(crate) V, pub(crate) Mode);

/// A task reads all of these: it gets a `Vec` of what [`Read`] gives.
#[derive(Debug)]
pub struct ReadAll<V>(pub(crate) Vec<V>);

/// A task writes all of these, alone: it gets a `Vec` of what [`Write`] gives.
#[derive(Debug)]
pub struct WriteAll<V>(pub(crate) Vec<V>, pub(crate) Mode);

/// One of the things that a task says.
pub trait Access<'d>: Send + for<'a> Gives<'a> {
    /// Adds the places of what it uses, once.
    fn places(&mut self, places: &mut Vec<Place<'d>>);
}

/// What the task gets, for a lifetime that the access outlives (`Outlived`).
pub trait Gives<'a, Outlived = &'a Self> {
    type Item;

    /// # Safety
    /// As long as what this gives is used, nobody else uses what the task writes, and nobody writes what
    /// it reads. It is called once.
    unsafe fn give(&'a mut self) -> Self::Item;

    /// The task has gone well.
    fn keep(self)
    where
        Self: Sized,
    {
    }
}

impl<'d, V: View<'d>> Access<'d> for Read<V> {
    fn places(&mut self, places: &mut Vec<Place<'d>>) {
        places.push(self.0.place(Mode::Read));
    }
}

impl<'a, V: for<'b> Lends<'b>> Gives<'a> for Read<V> {
    type Item = <V as Lends<'a>>::Shared;

    unsafe fn give(&'a mut self) -> Self::Item {
        // SAFETY: this function's contract.
        unsafe { self.0.shared() }
    }
}

impl<'d, V: View<'d>> Access<'d> for Write<V> {
    fn places(&mut self, places: &mut Vec<Place<'d>>) {
        places.push(self.0.place(self.1));
    }
}

impl<'a, V: for<'b> Lends<'b>> Gives<'a> for Write<V> {
    type Item = <V as Lends<'a>>::Exclusive;

    unsafe fn give(&'a mut self) -> Self::Item {
        // SAFETY: this function's contract.
        unsafe { self.0.exclusive() }
    }
}

impl<'d, V: View<'d>> Access<'d> for ReadAll<V> {
    fn places(&mut self, places: &mut Vec<Place<'d>>) {
        places.extend(self.0.iter().map(|view| view.place(Mode::Read)));
    }
}

impl<'a, V: for<'b> Lends<'b>> Gives<'a> for ReadAll<V> {
    type Item = Vec<<V as Lends<'a>>::Shared>;

    unsafe fn give(&'a mut self) -> Self::Item {
        // SAFETY: this function's contract.
        self.0.iter().map(|view| unsafe { view.shared() }).collect()
    }
}

impl<'d, V: View<'d>> Access<'d> for WriteAll<V> {
    fn places(&mut self, places: &mut Vec<Place<'d>>) {
        places.extend(self.0.iter().map(|view| view.place(self.1)));
    }
}

impl<'a, V: for<'b> Lends<'b>> Gives<'a> for WriteAll<V> {
    type Item = Vec<<V as Lends<'a>>::Exclusive>;

    unsafe fn give(&'a mut self) -> Self::Item {
        // SAFETY: this function's contract; no two of them have anything in common, as that is refused.
        self.0.iter().map(|view| unsafe { view.exclusive() }).collect()
    }
}
