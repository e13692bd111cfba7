//! Collectives that reduce, in all their forms.

use spmd::Operation;
use spmd::prelude::*;

use super::case::{Case, Form};
use crate::element::Sample;

/// An operation, and what it should do to two elements, in plain code.
pub struct Fold<T, O> {
    pub op: O,
    pub oracle: fn(T, T) -> T,
}

type Run<T, O> = fn(&Case<'_>, &Fold<T, O>) -> Result<()>;

/// The forms for elements of type `T` and an operation.
pub fn forms<T: Sample, O: Operation<T>>() -> Vec<Form<Run<T, O>>> {
    let form = |run: Run<T, O>| Form::new(run);
    vec![
        form(reduce::<T, O>).rooted(),
        form(reduce_in_place::<T, O>).rooted(),
        form(reduce_value::<T, O>).rooted().single(),
        form(allreduce::<T, O>),
        form(allreduce_in_place::<T, O>),
        form(allreduce_value::<T, O>).single(),
        form(reduce_scatter::<T, O>),
        form(reduce_scatter_in_place::<T, O>),
        form(reduce_scatterv::<T, O>),
        form(scan::<T, O>),
        form(scan_in_place::<T, O>),
        form(scan_value::<T, O>).single(),
        form(exscan::<T, O>),
        form(exscan_value::<T, O>).single(),
    ]
}

/// The canonical order, written down once more: on the left, as many ranks as the largest power of
/// two below their number.
pub fn canonical<T>(lo: usize, hi: usize, of: &impl Fn(usize) -> T, fold: fn(T, T) -> T) -> T {
    if hi - lo == 1 {
        return of(lo);
    }
    let middle = lo + (hi - lo).next_power_of_two() / 2;
    fold(canonical(lo, middle, of, fold), canonical(middle, hi, of, fold))
}

/// Elements `range` of the reduction over ranks `0..ranks`.
fn folded<T: Sample>(
    case: &Case<'_>,
    oracle: fn(T, T) -> T,
    ranks: usize,
    range: std::ops::Range<usize>,
) -> Vec<T> {
    let element = |index| canonical(0, ranks, &|rank| case.value(rank, index), oracle);
    range.map(element).collect()
}

fn reduce<T: Sample, O: Operation<T>>(case: &Case<'_>, fold: &Fold<T, O>) -> Result<()> {
    let mine = case.values::<T>(case.me(), case.count);
    let mut recv = case.root_buffer::<T>(case.count);
    let mut expected = recv.clone();
    if case.is_root() {
        expected = folded(case, fold.oracle, case.n(), 0..case.count);
    }
    case.with_buffers(&mine, &mut recv, &|send, it| {
        case.comm.reduce(send, it, &fold.op, case.root)
    })?;
    case.check_fold("reduce", O::NAME, &recv, &expected)
}

fn reduce_in_place<T: Sample, O: Operation<T>>(case: &Case<'_>, fold: &Fold<T, O>) -> Result<()> {
    let mut buf = case.values::<T>(case.me(), case.count);
    let mut expected = buf.clone();
    if case.is_root() {
        expected = folded(case, fold.oracle, case.n(), 0..case.count);
    }
    case.with_buffer(&mut buf, &|it| case.comm.reduce_in_place(it, &fold.op, case.root))?;
    case.check_fold("reduce_in_place", O::NAME, &buf, &expected)
}

fn reduce_value<T: Sample, O: Operation<T>>(case: &Case<'_>, fold: &Fold<T, O>) -> Result<()> {
    let got = case.comm.reduce_value(case.value::<T>(case.me(), 0), &fold.op, case.root)?;
    let expected = case.is_root().then(|| folded(case, fold.oracle, case.n(), 0..1));
    case.check_fold("reduce_value", O::NAME, got.as_slice(), &expected.unwrap_or_default())
}

fn allreduce<T: Sample, O: Operation<T>>(case: &Case<'_>, fold: &Fold<T, O>) -> Result<()> {
    let mine = case.values::<T>(case.me(), case.count);
    let mut recv = case.blank::<T>(case.count);
    case.with_buffers(&mine, &mut recv, &|send, it| case.comm.allreduce(send, it, &fold.op))?;
    case.check_fold(
        "allreduce",
        O::NAME,
        &recv,
        &folded(case, fold.oracle, case.n(), 0..case.count),
    )
}

fn allreduce_in_place<T: Sample, O: Operation<T>>(
    case: &Case<'_>,
    fold: &Fold<T, O>,
) -> Result<()> {
    let mut buf = case.values::<T>(case.me(), case.count);
    case.with_buffer(&mut buf, &|it| case.comm.allreduce_in_place(it, &fold.op))?;
    case.check_fold(
        "allreduce_in_place",
        O::NAME,
        &buf,
        &folded(case, fold.oracle, case.n(), 0..case.count),
    )
}

fn allreduce_value<T: Sample, O: Operation<T>>(case: &Case<'_>, fold: &Fold<T, O>) -> Result<()> {
    let got = case.comm.allreduce_value(case.value::<T>(case.me(), 0), &fold.op)?;
    case.check_fold("allreduce_value", O::NAME, &[got], &folded(case, fold.oracle, case.n(), 0..1))
}

fn reduce_scatter<T: Sample, O: Operation<T>>(case: &Case<'_>, fold: &Fold<T, O>) -> Result<()> {
    let (me, count) = (case.me(), case.count);
    let mine = case.values::<T>(me, case.n() * count);
    let mut recv = case.blank::<T>(count);
    case.with_buffers(&mine, &mut recv, &|send, it| case.comm.reduce_scatter(send, it, &fold.op))?;
    let expected = folded(case, fold.oracle, case.n(), me * count..(me + 1) * count);
    case.check_fold("reduce_scatter", O::NAME, &recv, &expected)
}

/// The rank's block of the result comes to lie in the first block; the rest is left as it was.
fn reduce_scatter_in_place<T: Sample, O: Operation<T>>(
    case: &Case<'_>,
    fold: &Fold<T, O>,
) -> Result<()> {
    let (me, count) = (case.me(), case.count);
    let mut buf = case.values::<T>(me, case.n() * count);
    let mut expected = buf.clone();
    let mine = folded(case, fold.oracle, case.n(), me * count..(me + 1) * count);
    expected[..count].copy_from_slice(&mine);
    case.with_buffer(&mut buf, &|it| case.comm.reduce_scatter_in_place(it, &fold.op))?;
    case.check_fold("reduce_scatter_in_place", O::NAME, &buf, &expected)
}

fn reduce_scatterv<T: Sample, O: Operation<T>>(case: &Case<'_>, fold: &Fold<T, O>) -> Result<()> {
    let counts = case.counts();
    let starts = super::moves::starts(&counts);
    let mine = case.values::<T>(case.me(), starts[case.n()]);
    let mut recv = case.blank::<T>(counts[case.me()]);
    case.with_buffers(&mine, &mut recv, &|send, it| {
        case.comm.reduce_scatterv(send, it, &counts, &fold.op)
    })?;
    let range = starts[case.me()]..starts[case.me() + 1];
    case.check_fold("reduce_scatterv", O::NAME, &recv, &folded(case, fold.oracle, case.n(), range))
}

/// A scan is the reduction over the ranks up to this one, to the last bit.
fn scan<T: Sample, O: Operation<T>>(case: &Case<'_>, fold: &Fold<T, O>) -> Result<()> {
    let mine = case.values::<T>(case.me(), case.count);
    let mut recv = case.blank::<T>(case.count);
    case.with_buffers(&mine, &mut recv, &|send, it| case.comm.scan(send, it, &fold.op))?;
    case.check_fold(
        "scan",
        O::NAME,
        &recv,
        &folded(case, fold.oracle, case.me() + 1, 0..case.count),
    )
}

fn scan_in_place<T: Sample, O: Operation<T>>(case: &Case<'_>, fold: &Fold<T, O>) -> Result<()> {
    let mut buf = case.values::<T>(case.me(), case.count);
    case.with_buffer(&mut buf, &|it| case.comm.scan_in_place(it, &fold.op))?;
    case.check_fold(
        "scan_in_place",
        O::NAME,
        &buf,
        &folded(case, fold.oracle, case.me() + 1, 0..case.count),
    )
}

fn scan_value<T: Sample, O: Operation<T>>(case: &Case<'_>, fold: &Fold<T, O>) -> Result<()> {
    let got = case.comm.scan_value(case.value::<T>(case.me(), 0), &fold.op)?;
    case.check_fold("scan_value", O::NAME, &[got], &folded(case, fold.oracle, case.me() + 1, 0..1))
}

fn exscan<T: Sample, O: Operation<T>>(case: &Case<'_>, fold: &Fold<T, O>) -> Result<()> {
    let mine = case.values::<T>(case.me(), case.count);
    let mut recv = case.blank::<T>(case.count);
    let mut expected = recv.clone();
    if case.me() > 0 {
        expected = folded(case, fold.oracle, case.me(), 0..case.count);
    }
    case.with_buffers(&mine, &mut recv, &|send, it| case.comm.exscan(send, it, &fold.op))?;
    case.check_fold("exscan", O::NAME, &recv, &expected)
}

fn exscan_value<T: Sample, O: Operation<T>>(case: &Case<'_>, fold: &Fold<T, O>) -> Result<()> {
    let got = case.comm.exscan_value(case.value::<T>(case.me(), 0), &fold.op)?;
    let expected = (case.me() > 0).then(|| folded(case, fold.oracle, case.me(), 0..1));
    case.check_fold("exscan_value", O::NAME, got.as_slice(), &expected.unwrap_or_default())
}
