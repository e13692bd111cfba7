//! The collectives under measurement: what each rank sends, and what it must get.

use std::hint::black_box;

use spmd::prelude::*;
use spmd_core::algorithm::Algorithm;

use crate::bench::Bench;
use crate::elements::{Number, Operator, folded, value};
use crate::measure::{Effort, Measured, REWRITE, Subject, looks, measure};
use crate::memory::{Data, Memory};

/// µs of a call, the median, each rank having written its data anew: a rank sends what it has just
/// made. To read where it lies what has never changed would look too cheap.
///
/// Errors: that of the call; a result is wrong.
pub(crate) fn time_fresh(ctx: &Ctx, bench: Bench, bytes: usize, effort: Effort) -> Result<f64> {
    let mut subject = Collective::<f64>::new(ctx, bench, bytes, Operator::Sum, Memory::Vec)?;
    subject.fresh = true;
    let measured = measure(ctx, effort, &mut subject)?;
    if measured.wrong > 0 {
        return Err(format!("{} of {bytes} bytes gives wrong results", bench.name()).into());
    }
    Ok(measured.p50)
}

/// The algorithm that a collective of this size takes now.
pub(crate) fn choice(ctx: &Ctx, bench: Bench, bytes: usize) -> Result<Option<Algorithm>> {
    let mut subject = Collective::<f64>::new(ctx, bench, bytes, Operator::Sum, Memory::Vec)?;
    subject.call(ctx, 0)?;
    Ok(ctx.internals().last_choice())
}

/// What no rank sends; where there are more than 238, one element in eleven may be it.
const NO_VALUE: u64 = 255;

/// A collective under measurement.
pub(crate) struct Collective<T: Number> {
    pub(crate) bench: Bench,
    pub(crate) op: Operator,
    rank: usize,
    ranks: usize,
    /// Elements a rank contributes (to each peer, in alltoall, scatter and reduce_scatter), or gets
    /// as its part.
    count: usize,
    pub(crate) send: Data<T>,
    pub(crate) recv: Data<T>,
    /// The turn for which `send` was made.
    prepared: usize,
    /// The calls since then.
    calls: usize,
    /// Whether each call includes that what is sent is written.
    fresh: bool,
    /// Whether what is sent is in `recv`, too.
    in_place: bool,
}

impl<T: Number> Collective<T>
where
    Sum: Operation<T>,
    Min: Operation<T>,
    Max: Operation<T>,
{
    pub(crate) fn new(
        ctx: &Ctx,
        bench: Bench,
        bytes: usize,
        op: Operator,
        memory: Memory,
    ) -> Result<Collective<T>> {
        let (n, count) = (ctx.size(), bytes / size_of::<T>());
        let (send, recv) = match bench {
            Bench::Gather | Bench::Allgather => (count, n * count),
            Bench::Scatter | Bench::ReduceScatter => (n * count, count),
            Bench::Alltoall => (n * count, n * count),
            _ => (count, count),
        };
        Ok(Collective {
            bench,
            op,
            rank: ctx.rank(),
            ranks: n,
            count,
            send: memory.zeros(ctx, send)?,
            recv: memory.zeros(ctx, recv)?,
            prepared: 0,
            calls: 0,
            fresh: false,
            in_place: false,
        })
    }

    /// The form that sends from where it receives.
    pub(crate) fn in_place(mut self, ctx: &Ctx, memory: Memory) -> Result<Collective<T>> {
        let len = self.send.len().max(self.recv.len());
        (self.send, self.recv) = (memory.zeros(ctx, 0)?, memory.zeros(ctx, 0)?);
        self.recv = memory.zeros(ctx, len)?;
        self.in_place = true;
        Ok(self)
    }

    /// Writes every cache line of what is sent, each with what it holds.
    fn write_anew(&mut self, root: usize) {
        const LINE: usize = 64;
        let data = match self.bench {
            Bench::Broadcast if self.rank == root => &mut *self.recv,
            Bench::Scatter if self.rank != root => return,
            _ => &mut *self.send,
        };
        data.iter_mut().step_by(LINE / size_of::<T>()).for_each(|it| *it = black_box(*it));
    }

    /// The root of a turn: each rank in turn.
    pub(crate) fn root(&self, turn: usize) -> usize {
        turn % self.ranks
    }

    /// What the result of `turn` must hold at `index`, if anything.
    fn expected(&self, turn: usize, index: usize) -> Option<u64> {
        let (root, sent, rank) = (self.root(turn), self.prepared, self.rank);
        let block = index.checked_div(self.count).unwrap_or(0);
        match self.bench {
            // Of those since the data were made, each passes on what it got.
            Bench::Broadcast => Some(value(self.root(sent), sent, index)),
            Bench::Reduce if rank != root => None,
            Bench::Reduce | Bench::Allreduce => Some(folded(self.op, self.ranks, sent, index)),
            Bench::ReduceScatter => {
                Some(folded(self.op, self.ranks, sent, rank * self.count + index))
            }
            Bench::Scan => Some(folded(self.op, rank + 1, sent, index)),
            Bench::Exscan if rank == 0 => None,
            Bench::Exscan => Some(folded(self.op, rank, sent, index)),
            Bench::Gather if rank != root => None,
            Bench::Gather | Bench::Allgather => Some(value(block, sent, index % self.count)),
            Bench::Scatter => Some(value(root, sent, rank * self.count + index)),
            Bench::Alltoall => Some(value(block, sent, rank * self.count + index % self.count)),
            _ => None,
        }
    }
}

impl<T: Number> Subject for Collective<T>
where
    Sum: Operation<T>,
    Min: Operation<T>,
    Max: Operation<T>,
{
    fn rewrites(&self) -> bool {
        // A device's caches are no measure of what its memory does: the buffers are larger.
        let sent = if self.in_place { &self.recv } else { &self.send };
        !sent.is_on_device() && sent.len() * size_of::<T>() >= REWRITE
    }

    fn prepare(&mut self, turn: usize) -> Result<()> {
        (self.prepared, self.calls) = (turn, 0);
        let (root, rank) = (self.root(turn), self.rank);
        if self.bench == Bench::Broadcast && rank != root {
            return Ok(());
        }
        let received = self.in_place || self.bench == Bench::Broadcast;
        let into = if received { &mut self.recv } else { &mut self.send };
        let mut sent = 0..into.len();
        if self.in_place && self.bench == Bench::Allgather {
            // A rank brings its own block; elsewhere nothing stands that another one could have sent.
            into.iter_mut().for_each(|x| *x = T::of(NO_VALUE));
            sent = rank * self.count..(rank + 1) * self.count;
        }
        let sent = into[sent].iter_mut().enumerate();
        sent.for_each(|(i, x)| *x = T::of(value(rank, turn, i)));
        into.upload()
    }

    fn call(&mut self, ctx: &Ctx, turn: usize) -> Result<()> {
        let root = self.root(turn);
        if self.fresh {
            self.write_anew(root);
        }
        self.calls += 1;
        let what = (self.bench, self.op, root);
        if self.in_place {
            return match &mut self.recv {
                Data::Device(buf) => call_in_place(ctx, what, &mut buf.buffer),
                buf => call_in_place(ctx, what, &mut **buf),
            };
        }
        match (&self.send, &mut self.recv) {
            (Data::Device(send), Data::Device(recv)) => {
                call(ctx, what, &send.buffer, &mut recv.buffer)
            }
            (send, recv) => call(ctx, what, &**send, &mut **recv),
        }
    }

    fn finish(&mut self) -> Result<()> {
        self.recv.finish()
    }

    fn wrong(&mut self, turn: usize) -> Result<u64> {
        // What a second call in place makes of the first one's result grows with each.
        if self.in_place && self.calls != 1 {
            return Ok(0);
        }
        self.recv.download()?;
        let wrong = |index: &usize| {
            let expected = self.expected(turn, *index);
            expected.is_some_and(|number| self.recv[*index] != T::of(number))
        };
        let parts = self.in_place && self.bench == Bench::ReduceScatter;
        let results = if parts { self.count } else { self.recv.len() };
        Ok(looks(results).filter(wrong).count() as u64)
    }
}

/// Measures the form in place: before and after that, it looks at what a call makes of new data.
pub(crate) fn measure_in_place<T: Number>(
    ctx: &Ctx,
    effort: Effort,
    mut subject: Collective<T>,
) -> Result<Measured>
where
    Sum: Operation<T>,
    Min: Operation<T>,
    Max: Operation<T>,
{
    let before = wrong_of_one(ctx, &mut subject, 0)?;
    let measured = measure(ctx, effort, &mut subject)?;
    let wrong = before + measured.wrong + wrong_of_one(ctx, &mut subject, 1)?;
    Ok(Measured { wrong, ..measured })
}

/// The wrong elements on all ranks after one call on new data.
fn wrong_of_one(ctx: &Ctx, subject: &mut impl Subject, turn: usize) -> Result<u64> {
    subject.prepare(turn)?;
    subject.call(ctx, turn)?;
    subject.finish()?;
    ctx.allreduce_value(subject.wrong(turn)?, Sum)
}

/// Makes the call, on buffers wherever they lie.
fn call<T, S, R>(
    ctx: &Ctx,
    (bench, op, root): (Bench, Operator, usize),
    send: &S,
    recv: &mut R,
) -> Result<()>
where
    T: Number,
    S: Buffer<Elem = T> + ?Sized,
    R: BufferMut<Elem = T> + ?Sized,
    Sum: Operation<T>,
    Min: Operation<T>,
    Max: Operation<T>,
{
    match bench {
        Bench::Barrier => ctx.barrier(),
        Bench::Broadcast => ctx.broadcast(recv, root),
        Bench::Gather => ctx.gather(send, recv, root),
        Bench::Allgather => ctx.allgather(send, recv),
        Bench::Scatter => ctx.scatter(send, recv, root),
        Bench::Alltoall => ctx.alltoall(send, recv),
        _ => match op {
            Operator::Sum => reduce(ctx, bench, send, recv, Sum, root),
            Operator::Min => reduce(ctx, bench, send, recv, Min, root),
            Operator::Max => reduce(ctx, bench, send, recv, Max, root),
        },
    }
}

fn reduce<T, S, R, O>(
    ctx: &Ctx,
    bench: Bench,
    send: &S,
    recv: &mut R,
    op: O,
    root: usize,
) -> Result<()>
where
    T: Number,
    S: Buffer<Elem = T> + ?Sized,
    R: BufferMut<Elem = T> + ?Sized,
    O: Operation<T>,
{
    match bench {
        Bench::Reduce => ctx.reduce(send, recv, op, root),
        Bench::ReduceScatter => ctx.reduce_scatter(send, recv, op),
        Bench::Scan => ctx.scan(send, recv, op),
        Bench::Exscan => ctx.exscan(send, recv, op),
        _ => ctx.allreduce(send, recv, op),
    }
}

fn call_in_place<T, B>(
    ctx: &Ctx,
    (bench, op, root): (Bench, Operator, usize),
    buf: &mut B,
) -> Result<()>
where
    T: Number,
    B: BufferMut<Elem = T> + ?Sized,
    Sum: Operation<T>,
    Min: Operation<T>,
    Max: Operation<T>,
{
    match (bench, op) {
        (Bench::Allgather, _) => ctx.allgather_in_place(buf),
        (Bench::Alltoall, _) => ctx.alltoall_in_place(buf),
        (_, Operator::Sum) => reduce_in_place(ctx, bench, buf, Sum, root),
        (_, Operator::Min) => reduce_in_place(ctx, bench, buf, Min, root),
        (_, Operator::Max) => reduce_in_place(ctx, bench, buf, Max, root),
    }
}

fn reduce_in_place<T, B, O>(ctx: &Ctx, bench: Bench, buf: &mut B, op: O, root: usize) -> Result<()>
where
    T: Number,
    B: BufferMut<Elem = T> + ?Sized,
    O: Operation<T>,
{
    match bench {
        Bench::Reduce => ctx.reduce_in_place(buf, op, root),
        Bench::ReduceScatter => ctx.reduce_scatter_in_place(buf, op),
        Bench::Scan => ctx.scan_in_place(buf, op),
        _ => ctx.allreduce_in_place(buf, op),
    }
}
