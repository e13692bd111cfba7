//! Collectives that reduce, in all their forms.

use crate::prelude::*;

use super::case::{Case, Form};
use crate::element::{Sample, made_by};
use crate::fold::Folds;

type Run<T> = fn(&Case<'_>, &dyn Folds<T>) -> Result<()>;

/// The forms for elements of type `T` and an operation on them.
pub fn forms<T: Sample>() -> Vec<Form<Run<T>>> {
    let form = |run: Run<T>| Form::new(run);
    vec![
        form(reduce::<T>).rooted(),
        form(reduce_in_place::<T>).rooted(),
        form(reduce_value::<T>).rooted().single(),
        form(allreduce::<T>),
        form(allreduce_in_place::<T>),
        form(allreduce_value::<T>).single(),
        form(reduce_scatter::<T>),
        form(reduce_scatter_in_place::<T>),
        form(reduce_scatterv::<T>),
        form(scan::<T>),
        form(scan_in_place::<T>),
        form(scan_value::<T>).single(),
        form(exscan::<T>),
        form(exscan_value::<T>).single(),
    ]
}

/// The canonical order, written down once more: on the left, as many ranks as the largest power of
/// two below their number.
pub fn canonical<T>(
    lo: usize,
    hi: usize,
    of: &impl Fn(usize) -> T,
    fold: &impl Fn(T, T) -> T,
) -> T {
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
    let of = |rank| made_by(range.len(), |at| case.value(rank, range.start + at));
    let fold = |mut left: Vec<T>, right: Vec<T>| {
        let (out, right, mut index) = (&mut left[..], &right[..], 0);
        while index < out.len() {
            out[index] = oracle(out[index], right[index]);
            index += 1;
        }
        left
    };
    canonical(0, ranks, &of, &fold)
}

fn reduce<T: Sample>(case: &Case<'_>, fold: &dyn Folds<T>) -> Result<()> {
    let mine = case.values::<T>(case.me(), case.count);
    let mut recv = case.root_buffer::<T>(case.count);
    let mut expected = recv.clone();
    if case.is_root() {
        expected = folded(case, fold.oracle(), case.n(), 0..case.count);
    }
    case.with_buffers(&mine, &mut recv, &|send, it| fold.reduce(case.comm, send, it, case.root))?;
    case.check_fold("reduce", fold.name(), &recv, &expected)
}

fn reduce_in_place<T: Sample>(case: &Case<'_>, fold: &dyn Folds<T>) -> Result<()> {
    let mut buf = case.values::<T>(case.me(), case.count);
    let mut expected = buf.clone();
    if case.is_root() {
        expected = folded(case, fold.oracle(), case.n(), 0..case.count);
    }
    case.with_buffer(&mut buf, &|it| fold.reduce_in_place(case.comm, it, case.root))?;
    case.check_fold("reduce_in_place", fold.name(), &buf, &expected)
}

fn reduce_value<T: Sample>(case: &Case<'_>, fold: &dyn Folds<T>) -> Result<()> {
    let got = fold.reduce_value(case.comm, case.value(case.me(), 0), case.root)?;
    let expected = case.is_root().then(|| folded(case, fold.oracle(), case.n(), 0..1));
    case.check_fold("reduce_value", fold.name(), got.as_slice(), &expected.unwrap_or_default())
}

fn allreduce<T: Sample>(case: &Case<'_>, fold: &dyn Folds<T>) -> Result<()> {
    let mine = case.values::<T>(case.me(), case.count);
    let mut recv = case.blank::<T>(case.count);
    case.with_buffers(&mine, &mut recv, &|send, it| fold.allreduce(case.comm, send, it))?;
    case.check_fold(
        "allreduce",
        fold.name(),
        &recv,
        &folded(case, fold.oracle(), case.n(), 0..case.count),
    )
}

fn allreduce_in_place<T: Sample>(case: &Case<'_>, fold: &dyn Folds<T>) -> Result<()> {
    let mut buf = case.values::<T>(case.me(), case.count);
    case.with_buffer(&mut buf, &|it| fold.allreduce_in_place(case.comm, it))?;
    case.check_fold(
        "allreduce_in_place",
        fold.name(),
        &buf,
        &folded(case, fold.oracle(), case.n(), 0..case.count),
    )
}

fn allreduce_value<T: Sample>(case: &Case<'_>, fold: &dyn Folds<T>) -> Result<()> {
    let got = fold.allreduce_value(case.comm, case.value(case.me(), 0))?;
    case.check_fold(
        "allreduce_value",
        fold.name(),
        &[got],
        &folded(case, fold.oracle(), case.n(), 0..1),
    )
}

fn reduce_scatter<T: Sample>(case: &Case<'_>, fold: &dyn Folds<T>) -> Result<()> {
    let (me, count) = (case.me(), case.count);
    let mine = case.values::<T>(me, case.n() * count);
    let mut recv = case.blank::<T>(count);
    case.with_buffers(&mine, &mut recv, &|send, it| fold.reduce_scatter(case.comm, send, it))?;
    let expected = folded(case, fold.oracle(), case.n(), me * count..(me + 1) * count);
    case.check_fold("reduce_scatter", fold.name(), &recv, &expected)
}

/// The rank's block of the result comes to lie in the first block; the rest is left as it was.
fn reduce_scatter_in_place<T: Sample>(case: &Case<'_>, fold: &dyn Folds<T>) -> Result<()> {
    let (me, count) = (case.me(), case.count);
    let mut buf = case.values::<T>(me, case.n() * count);
    let mut expected = buf.clone();
    let mine = folded(case, fold.oracle(), case.n(), me * count..(me + 1) * count);
    expected[..count].copy_from_slice(&mine);
    case.with_buffer(&mut buf, &|it| fold.reduce_scatter_in_place(case.comm, it))?;
    case.check_fold("reduce_scatter_in_place", fold.name(), &buf, &expected)
}

fn reduce_scatterv<T: Sample>(case: &Case<'_>, fold: &dyn Folds<T>) -> Result<()> {
    let counts = case.counts();
    let starts = super::moves::starts(&counts);
    let mine = case.values::<T>(case.me(), starts[case.n()]);
    let mut recv = case.blank::<T>(counts[case.me()]);
    case.with_buffers(&mine, &mut recv, &|send, it| {
        fold.reduce_scatterv(case.comm, send, it, &counts)
    })?;
    let range = starts[case.me()]..starts[case.me() + 1];
    case.check_fold(
        "reduce_scatterv",
        fold.name(),
        &recv,
        &folded(case, fold.oracle(), case.n(), range),
    )
}

/// A scan is the reduction over the ranks up to this one, to the last bit.
fn scan<T: Sample>(case: &Case<'_>, fold: &dyn Folds<T>) -> Result<()> {
    let mine = case.values::<T>(case.me(), case.count);
    let mut recv = case.blank::<T>(case.count);
    case.with_buffers(&mine, &mut recv, &|send, it| fold.scan(case.comm, send, it))?;
    case.check_fold(
        "scan",
        fold.name(),
        &recv,
        &folded(case, fold.oracle(), case.me() + 1, 0..case.count),
    )
}

fn scan_in_place<T: Sample>(case: &Case<'_>, fold: &dyn Folds<T>) -> Result<()> {
    let mut buf = case.values::<T>(case.me(), case.count);
    case.with_buffer(&mut buf, &|it| fold.scan_in_place(case.comm, it))?;
    case.check_fold(
        "scan_in_place",
        fold.name(),
        &buf,
        &folded(case, fold.oracle(), case.me() + 1, 0..case.count),
    )
}

fn scan_value<T: Sample>(case: &Case<'_>, fold: &dyn Folds<T>) -> Result<()> {
    let got = fold.scan_value(case.comm, case.value(case.me(), 0))?;
    case.check_fold(
        "scan_value",
        fold.name(),
        &[got],
        &folded(case, fold.oracle(), case.me() + 1, 0..1),
    )
}

fn exscan<T: Sample>(case: &Case<'_>, fold: &dyn Folds<T>) -> Result<()> {
    let mine = case.values::<T>(case.me(), case.count);
    let mut recv = case.blank::<T>(case.count);
    let mut expected = recv.clone();
    if case.me() > 0 {
        expected = folded(case, fold.oracle(), case.me(), 0..case.count);
    }
    case.with_buffers(&mine, &mut recv, &|send, it| fold.exscan(case.comm, send, it))?;
    case.check_fold("exscan", fold.name(), &recv, &expected)
}

fn exscan_value<T: Sample>(case: &Case<'_>, fold: &dyn Folds<T>) -> Result<()> {
    let got = fold.exscan_value(case.comm, case.value(case.me(), 0))?;
    let expected = (case.me() > 0).then(|| folded(case, fold.oracle(), case.me(), 0..1));
    case.check_fold("exscan_value", fold.name(), got.as_slice(), &expected.unwrap_or_default())
}
