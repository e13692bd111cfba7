//! An operation beside what it should do: the calls that fold by it.

use crate::prelude::*;
use spmd_core::{Buffer, BufferMut, Operation};

use crate::element::Sample;

/// An operation, and what it should do to two elements, in plain code.
pub struct Fold<T, O> {
    pub op: O,
    pub oracle: fn(T, T) -> T,
}

type Send<'a, T> = &'a dyn Buffer<Elem = T>;
type Recv<'a, T> = &'a mut dyn BufferMut<Elem = T>;

/// Every call that reduces, by one operation. This alone is compiled for each pair of a type and an
/// operation; what calls it, for each type.
pub trait Folds<T> {
    fn name(&self) -> &'static str;
    fn oracle(&self) -> fn(T, T) -> T;
    fn reduce(&self, at: &Comm, send: Send<'_, T>, recv: Recv<'_, T>, root: usize) -> Result<()>;
    fn reduce_in_place(&self, at: &Comm, buf: Recv<'_, T>, root: usize) -> Result<()>;
    fn reduce_value(&self, at: &Comm, value: T, root: usize) -> Result<Option<T>>;
    fn allreduce(&self, at: &Comm, send: Send<'_, T>, recv: Recv<'_, T>) -> Result<()>;
    fn allreduce_in_place(&self, at: &Comm, buf: Recv<'_, T>) -> Result<()>;
    fn allreduce_value(&self, at: &Comm, value: T) -> Result<T>;
    fn reduce_scatter(&self, at: &Comm, send: Send<'_, T>, recv: Recv<'_, T>) -> Result<()>;
    fn reduce_scatter_in_place(&self, at: &Comm, buf: Recv<'_, T>) -> Result<()>;
    fn reduce_scatterv(
        &self,
        at: &Comm,
        send: Send<'_, T>,
        recv: Recv<'_, T>,
        counts: &[usize],
    ) -> Result<()>;
    fn scan(&self, at: &Comm, send: Send<'_, T>, recv: Recv<'_, T>) -> Result<()>;
    fn scan_in_place(&self, at: &Comm, buf: Recv<'_, T>) -> Result<()>;
    fn scan_value(&self, at: &Comm, value: T) -> Result<T>;
    fn exscan(&self, at: &Comm, send: Send<'_, T>, recv: Recv<'_, T>) -> Result<()>;
    fn exscan_value(&self, at: &Comm, value: T) -> Result<Option<T>>;
}

impl<T: Sample, O: Operation<T>> Folds<T> for Fold<T, O> {
    fn name(&self) -> &'static str {
        O::NAME
    }

    fn oracle(&self) -> fn(T, T) -> T {
        self.oracle
    }

    fn reduce(&self, at: &Comm, send: Send<'_, T>, recv: Recv<'_, T>, root: usize) -> Result<()> {
        at.reduce(send, recv, &self.op, root)
    }

    fn reduce_in_place(&self, at: &Comm, buf: Recv<'_, T>, root: usize) -> Result<()> {
        at.reduce_in_place(buf, &self.op, root)
    }

    fn reduce_value(&self, at: &Comm, value: T, root: usize) -> Result<Option<T>> {
        at.reduce_value(value, &self.op, root)
    }

    fn allreduce(&self, at: &Comm, send: Send<'_, T>, recv: Recv<'_, T>) -> Result<()> {
        at.allreduce(send, recv, &self.op)
    }

    fn allreduce_in_place(&self, at: &Comm, buf: Recv<'_, T>) -> Result<()> {
        at.allreduce_in_place(buf, &self.op)
    }

    fn allreduce_value(&self, at: &Comm, value: T) -> Result<T> {
        at.allreduce_value(value, &self.op)
    }

    fn reduce_scatter(&self, at: &Comm, send: Send<'_, T>, recv: Recv<'_, T>) -> Result<()> {
        at.reduce_scatter(send, recv, &self.op)
    }

    fn reduce_scatter_in_place(&self, at: &Comm, buf: Recv<'_, T>) -> Result<()> {
        at.reduce_scatter_in_place(buf, &self.op)
    }

    fn reduce_scatterv(
        &self,
        at: &Comm,
        send: Send<'_, T>,
        recv: Recv<'_, T>,
        counts: &[usize],
    ) -> Result<()> {
        at.reduce_scatterv(send, recv, counts, &self.op)
    }

    fn scan(&self, at: &Comm, send: Send<'_, T>, recv: Recv<'_, T>) -> Result<()> {
        at.scan(send, recv, &self.op)
    }

    fn scan_in_place(&self, at: &Comm, buf: Recv<'_, T>) -> Result<()> {
        at.scan_in_place(buf, &self.op)
    }

    fn scan_value(&self, at: &Comm, value: T) -> Result<T> {
        at.scan_value(value, &self.op)
    }

    fn exscan(&self, at: &Comm, send: Send<'_, T>, recv: Recv<'_, T>) -> Result<()> {
        at.exscan(send, recv, &self.op)
    }

    fn exscan_value(&self, at: &Comm, value: T) -> Result<Option<T>> {
        at.exscan_value(value, &self.op)
    }
}
