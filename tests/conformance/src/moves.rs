//! Collectives that move data, in all their forms.

use crate::prelude::*;

use super::case::{Case, Form};
use crate::element::{Sample, made_by};

type Run = fn(&Case<'_>) -> Result<()>;

/// The forms for elements of type `T`.
pub fn forms<T: Sample>() -> Vec<Form<Run>> {
    let form = |run: Run| Form::new(run);
    vec![
        form(broadcast::<T>).rooted(),
        form(broadcast_value::<T>).rooted().single(),
        form(gather::<T>).rooted(),
        form(gather_value::<T>).rooted().single(),
        form(gatherv::<T>).rooted(),
        form(gatherv_vec::<T>).rooted().gives(),
        form(gatherv_into::<T>).rooted().gives(),
        form(allgather::<T>),
        form(allgather_in_place::<T>),
        form(allgather_value::<T>).single(),
        form(allgatherv::<T>),
        form(allgatherv_vec::<T>).gives(),
        form(allgatherv_into::<T>).gives(),
        form(scatter::<T>).rooted(),
        form(scatter_value::<T>).rooted().single(),
        form(scatterv::<T>).rooted(),
        form(scatterv_vec::<T>).rooted().gives(),
        form(alltoall::<T>),
        form(alltoall_in_place::<T>),
        form(alltoallv::<T>),
        form(alltoallv_vec::<T>).gives(),
        form(alltoallv_into::<T>).gives(),
        form(exchange::<T>).gives(),
        form(|case| case.comm.barrier()).single(),
    ]
}

/// Where blocks of these lengths start, and where the last ends.
pub fn starts(counts: &[usize]) -> Vec<usize> {
    let mut starts = vec![0];
    starts.extend(counts.iter().scan(0, |end, count| {
        *end += count;
        Some(*end)
    }));
    starts
}

fn broadcast<T: Sample>(case: &Case<'_>) -> Result<()> {
    let expected = case.values::<T>(case.root, case.count);
    let mut buf = if case.is_root() { expected.clone() } else { case.blank(case.count) };
    case.with_buffer(&mut buf, &|it| case.comm.broadcast(it, case.root))?;
    case.check("broadcast", &buf, &expected)
}

fn broadcast_value<T: Sample>(case: &Case<'_>) -> Result<()> {
    let expected = case.value::<T>(case.root, 0);
    let given = case.is_root().then_some(expected);
    let got = case.comm.broadcast_value(given, case.root)?;
    case.check("broadcast_value", &[got], &[expected])
}

/// What all ranks contribute, in rank order.
fn all<T: Sample>(case: &Case<'_>, counts: &[usize]) -> Vec<T> {
    in_a_row(counts.len(), &|rank| case.values(rank, counts[rank]))
}

/// `all` on the root; what lay in the buffer before elsewhere.
fn on_root<T: Sample>(case: &Case<'_>, all: Vec<T>, before: &[T]) -> Vec<T> {
    if case.is_root() { all } else { before.to_vec() }
}

fn gather<T: Sample>(case: &Case<'_>) -> Result<()> {
    let mine = case.values::<T>(case.me(), case.count);
    let mut recv = case.root_buffer::<T>(case.n() * case.count);
    let expected = on_root(case, all(case, &vec![case.count; case.n()]), &recv);
    case.with_buffers(&mine, &mut recv, &|send, it| case.comm.gather(send, it, case.root))?;
    case.check("gather", &recv, &expected)
}

fn gather_value<T: Sample>(case: &Case<'_>) -> Result<()> {
    let got = case.comm.gather_value(case.value::<T>(case.me(), 0), case.root)?;
    let expected = case.is_root().then(|| all::<T>(case, &vec![1; case.n()]));
    case.check("gather_value", &got.unwrap_or_default(), &expected.unwrap_or_default())
}

fn gatherv<T: Sample>(case: &Case<'_>) -> Result<()> {
    let counts = case.counts();
    let mine = case.values::<T>(case.me(), counts[case.me()]);
    let mut recv = case.root_buffer::<T>(counts.iter().sum());
    let expected = on_root(case, all(case, &counts), &recv);
    let known = if case.is_root() { &counts[..] } else { &[] };
    case.with_buffers(&mine, &mut recv, &|send, it| case.comm.gatherv(send, it, known, case.root))?;
    case.check("gatherv", &recv, &expected)
}

fn gatherv_vec<T: Sample>(case: &Case<'_>) -> Result<()> {
    let counts = case.counts();
    let mine = case.values::<T>(case.me(), counts[case.me()]);
    let got = case.with_send(&mine, &mut |send| case.comm.gatherv_vec(send, case.root))?;
    if got.is_some() != case.is_root() {
        return Err(Error::from("gatherv_vec gives a result on the root, and only there"));
    }
    let Some((got, found)) = got.map(Gathered::into_parts) else { return Ok(()) };
    case.check("the starts of gatherv_vec", &found, &starts(&counts))?;
    case.check("gatherv_vec", &got, &all(case, &counts))
}

/// What an earlier call gave: another number of other elements.
fn earlier<T: Sample>(case: &Case<'_>) -> Result<Gathered<T>> {
    case.comm.allgatherv_vec(&case.blank::<T>(case.seed as usize % 3))
}

fn gatherv_into<T: Sample>(case: &Case<'_>) -> Result<()> {
    let counts = case.counts();
    let mine = case.values::<T>(case.me(), counts[case.me()]);
    let mut got = earlier::<T>(case)?;
    case.with_send(&mine, &mut |send| case.comm.gatherv_into(send, &mut got, case.root))?;
    let counts = if case.is_root() { counts } else { Vec::new() };
    case.check("the starts of gatherv_into", got.displacements(), &starts(&counts))?;
    case.check("gatherv_into", got.elements(), &all(case, &counts))
}

fn allgather<T: Sample>(case: &Case<'_>) -> Result<()> {
    let mine = case.values::<T>(case.me(), case.count);
    let mut recv = case.blank::<T>(case.n() * case.count);
    case.with_buffers(&mine, &mut recv, &|send, it| case.comm.allgather(send, it))?;
    case.check("allgather", &recv, &all(case, &vec![case.count; case.n()]))
}

fn allgather_in_place<T: Sample>(case: &Case<'_>) -> Result<()> {
    let mut buf = case.blank::<T>(case.n() * case.count);
    let mine = case.me() * case.count..(case.me() + 1) * case.count;
    buf[mine].copy_from_slice(&case.values::<T>(case.me(), case.count));
    case.with_buffer(&mut buf, &|it| case.comm.allgather_in_place(it))?;
    case.check("allgather_in_place", &buf, &all(case, &vec![case.count; case.n()]))
}

fn allgather_value<T: Sample>(case: &Case<'_>) -> Result<()> {
    let got = case.comm.allgather_value(case.value::<T>(case.me(), 0))?;
    case.check("allgather_value", &got, &all(case, &vec![1; case.n()]))
}

fn allgatherv<T: Sample>(case: &Case<'_>) -> Result<()> {
    let counts = case.counts();
    let mine = case.values::<T>(case.me(), counts[case.me()]);
    let mut recv = case.blank::<T>(counts.iter().sum());
    case.with_buffers(&mine, &mut recv, &|send, it| case.comm.allgatherv(send, it, &counts))?;
    case.check("allgatherv", &recv, &all(case, &counts))
}

fn allgatherv_vec<T: Sample>(case: &Case<'_>) -> Result<()> {
    let counts = case.counts();
    let mine = case.values::<T>(case.me(), counts[case.me()]);
    let got = case.with_send(&mine, &mut |send| case.comm.allgatherv_vec(send))?;
    let (got, found) = got.into_parts();
    case.check("the starts of allgatherv_vec", &found, &starts(&counts))?;
    case.check("allgatherv_vec", &got, &all(case, &counts))
}

fn allgatherv_into<T: Sample>(case: &Case<'_>) -> Result<()> {
    let counts = case.counts();
    let mine = case.values::<T>(case.me(), counts[case.me()]);
    let mut got = earlier::<T>(case)?;
    case.with_send(&mine, &mut |send| case.comm.allgatherv_into(send, &mut got))?;
    case.check("the starts of allgatherv_into", got.displacements(), &starts(&counts))?;
    case.check("allgatherv_into", got.elements(), &all(case, &counts))
}

/// What the root gives to all: nothing elsewhere.
fn given<T: Sample>(case: &Case<'_>, counts: &[usize]) -> Vec<T> {
    if case.is_root() { all(case, counts) } else { Vec::new() }
}

fn scatter<T: Sample>(case: &Case<'_>) -> Result<()> {
    let send = given::<T>(case, &vec![case.count; case.n()]);
    let mut recv = case.blank::<T>(case.count);
    case.with_buffers(&send, &mut recv, &|from, it| case.comm.scatter(from, it, case.root))?;
    case.check("scatter", &recv, &case.values(case.me(), case.count))
}

fn scatter_value<T: Sample>(case: &Case<'_>) -> Result<()> {
    let send = given::<T>(case, &vec![1; case.n()]);
    let got = case.comm.scatter_value(&send, case.root)?;
    case.check("scatter_value", &[got], &[case.value(case.me(), 0)])
}

fn scatterv<T: Sample>(case: &Case<'_>) -> Result<()> {
    let counts = case.counts();
    let send = given::<T>(case, &counts);
    let known = if case.is_root() { &counts[..] } else { &[] };
    let mut recv = case.blank::<T>(counts[case.me()]);
    case.with_buffers(&send, &mut recv, &|from, it| {
        case.comm.scatterv(from, known, it, case.root)
    })?;
    case.check("scatterv", &recv, &case.values(case.me(), counts[case.me()]))
}

fn scatterv_vec<T: Sample>(case: &Case<'_>) -> Result<()> {
    let counts = case.counts();
    let send = given::<T>(case, &counts);
    let known = if case.is_root() { &counts[..] } else { &[] };
    let got = case.with_send(&send, &mut |from| case.comm.scatterv_vec(from, known, case.root))?;
    case.check("scatterv_vec", &got, &case.values(case.me(), counts[case.me()]))
}

/// So many blocks, one after the other.
pub(super) fn in_a_row<T: Sample>(blocks: usize, block: &dyn Fn(usize) -> Vec<T>) -> Vec<T> {
    let mut all = Vec::new();
    for number in 0..blocks {
        all.extend_from_slice(&block(number));
    }
    all
}

/// What `from` sends to `to` in an alltoall.
fn block<T: Sample>(case: &Case<'_>, from: usize, to: usize, count: usize) -> Vec<T> {
    made_by(count, |index| case.value(from, to << 20 | index))
}

fn alltoall<T: Sample>(case: &Case<'_>) -> Result<()> {
    let (me, count) = (case.me(), case.count);
    let send: Vec<T> = in_a_row(case.n(), &|to| block(case, me, to, count));
    let expected: Vec<T> = in_a_row(case.n(), &|from| block(case, from, me, count));
    let mut recv = case.blank::<T>(send.len());
    case.with_buffers(&send, &mut recv, &|from, it| case.comm.alltoall(from, it))?;
    case.check("alltoall", &recv, &expected)
}

fn alltoall_in_place<T: Sample>(case: &Case<'_>) -> Result<()> {
    let (me, count) = (case.me(), case.count);
    let mut buf: Vec<T> = in_a_row(case.n(), &|to| block(case, me, to, count));
    let expected: Vec<T> = in_a_row(case.n(), &|from| block(case, from, me, count));
    case.with_buffer(&mut buf, &|it| case.comm.alltoall_in_place(it))?;
    case.check("alltoall_in_place", &buf, &expected)
}

/// How many elements `from` sends to `to` in an alltoallv.
fn exchanged(case: &Case<'_>, from: usize, to: usize) -> usize {
    match (from + 2 * to + case.seed as usize) % 4 {
        0 => case.count,
        1 => 0,
        2 => case.count / 3,
        _ => case.count + from % 2,
    }
}

/// The blocks that this rank sends and receives in an alltoallv, and their counts.
#[allow(clippy::type_complexity, reason = "two pairs of the same things")]
fn uneven<T: Sample>(case: &Case<'_>) -> ((Vec<T>, Vec<usize>), (Vec<T>, Vec<usize>)) {
    let me = case.me();
    let out: Vec<usize> = (0..case.n()).map(|to| exchanged(case, me, to)).collect();
    let back: Vec<usize> = (0..case.n()).map(|from| exchanged(case, from, me)).collect();
    let send = in_a_row(case.n(), &|to| block(case, me, to, out[to]));
    let recv = in_a_row(case.n(), &|from| block(case, from, me, back[from]));
    ((send, out), (recv, back))
}

fn alltoallv<T: Sample>(case: &Case<'_>) -> Result<()> {
    let ((send, out), (expected, back)) = uneven::<T>(case);
    let mut recv = case.blank::<T>(expected.len());
    case.with_buffers(&send, &mut recv, &|from, it| case.comm.alltoallv(from, it, &out, &back))?;
    case.check("alltoallv", &recv, &expected)
}

fn alltoallv_vec<T: Sample>(case: &Case<'_>) -> Result<()> {
    let ((send, out), (expected, back)) = uneven::<T>(case);
    let got = case.with_send(&send, &mut |from| case.comm.alltoallv_vec(from, &out))?;
    let (got, found) = got.into_parts();
    case.check("the starts of alltoallv_vec", &found, &starts(&back))?;
    case.check("alltoallv_vec", &got, &expected)
}

fn alltoallv_into<T: Sample>(case: &Case<'_>) -> Result<()> {
    let ((send, out), (expected, back)) = uneven::<T>(case);
    let mut got = earlier::<T>(case)?;
    case.with_send(&send, &mut |from| case.comm.alltoallv_into(from, &out, &mut got))?;
    case.check("the starts of alltoallv_into", got.displacements(), &starts(&back))?;
    case.check("alltoallv_into", got.elements(), &expected)
}

fn exchange<T: Sample>(case: &Case<'_>) -> Result<()> {
    let (me, n) = (case.me(), case.n());
    let boxes: Vec<Vec<T>> =
        (0..n).map(|to| block(case, me, to, exchanged(case, me, to))).collect();
    let got = case.comm.exchange(&boxes)?;
    for (from, got) in got.iter().enumerate() {
        case.check("exchange", got, &block(case, from, me, exchanged(case, from, me)))?;
    }
    case.check("the vectors of exchange", &[got.len()], &[n])
}
