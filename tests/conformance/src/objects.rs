//! The `_object` forms: values of any length, through serialisation; and how work is divided.

use crate::prelude::*;

use super::case::{Case, Form};

/// Some bytes less or more, of a length that depends on the rank.
type Value = (usize, Option<String>, Vec<f64>);

fn value(case: &Case<'_>, rank: usize) -> Value {
    let numbers = case.values::<f64>(rank, (case.count * (rank % 3)) / 2);
    let text = (!(case.seed as usize + rank).is_multiple_of(3)).then(|| "é".repeat(rank));
    // What is not a number is not equal to itself.
    (rank, text, numbers.into_iter().filter(|number| !number.is_nan()).collect())
}

fn all(case: &Case<'_>) -> Vec<Value> {
    (0..case.n()).map(|rank| value(case, rank)).collect()
}

type Run = fn(&Case<'_>) -> Result<()>;

/// The forms, for values of any type.
pub fn forms() -> Vec<Form<Run>> {
    let form = |run: Run| Form::new(run);
    vec![
        form(broadcast).rooted(),
        form(gather).rooted(),
        form(allgather),
        form(scatter).rooted(),
        form(alltoall),
        form(reduce).rooted(),
        form(allreduce),
        form(once).single(),
        form(map_dynamic).single(),
        form(shares),
        form(ring),
    ]
}

fn check<V: PartialEq>(case: &Case<'_>, what: &str, got: V, expected: V) -> Result<()> {
    if got == expected {
        return Ok(());
    }
    let (me, count, root) = (case.me(), case.count, case.root);
    Err(Error::from(format!("{what} with count {count}, root {root}: wrong on rank {me}")))
}

fn broadcast(case: &Case<'_>) -> Result<()> {
    let given = value(case, case.root);
    let got = case.comm.broadcast_object(case.is_root().then_some(&given), case.root)?;
    check(case, "broadcast_object", got, given)
}

fn gather(case: &Case<'_>) -> Result<()> {
    let got = case.comm.gather_object(&value(case, case.me()), case.root)?;
    check(case, "gather_object", got, case.is_root().then(|| all(case)))
}

fn allgather(case: &Case<'_>) -> Result<()> {
    let got = case.comm.allgather_object(&value(case, case.me()))?;
    check(case, "allgather_object", got, all(case))
}

fn scatter(case: &Case<'_>) -> Result<()> {
    let given = all(case);
    let got = case.comm.scatter_object(case.is_root().then_some(&given[..]), case.root)?;
    check(case, "scatter_object", got, value(case, case.me()))
}

/// What a rank has for each other one depends on both.
fn alltoall(case: &Case<'_>) -> Result<()> {
    let (n, me) = (case.n(), case.me());
    let pair = |from: usize, to: usize| (from, value(case, (2 * from + to) % n));
    let given: Vec<_> = (0..n).map(|to| pair(me, to)).collect();
    let got = case.comm.alltoall_object(&given)?;
    check(case, "alltoall_object", got, (0..n).map(|from| pair(from, me)).collect())
}

/// Puts one in front of the other: associative, and not commutative.
fn join(mut one: Vec<Value>, other: Vec<Value>) -> Vec<Value> {
    one.extend(other);
    one
}

fn reduce(case: &Case<'_>) -> Result<()> {
    let got = case.comm.reduce_object(vec![value(case, case.me())], case.root, join)?;
    check(case, "reduce_object", got, case.is_root().then(|| all(case)))?;
    // The order of the folds is the canonical one, too: its brackets are.
    let text = case.me().to_string();
    let brackets = |one: String, other: String| format!("({one} {other})");
    let got = case.comm.reduce_object(text, case.root, brackets)?;
    check(case, "the order of reduce_object", got, case.is_root().then(|| canonical(0, case.n())))
}

/// The canonical order of these ranks, in brackets.
fn canonical(first: usize, ranks: usize) -> String {
    if ranks == 1 {
        return first.to_string();
    }
    let left = spmd_core::op::canonical_split(ranks);
    format!("({} {})", canonical(first, left), canonical(first + left, ranks - left))
}

fn allreduce(case: &Case<'_>) -> Result<()> {
    let got = case.comm.allreduce_object(vec![value(case, case.me())], join)?;
    check(case, "allreduce_object", got, all(case))
}

fn once(case: &Case<'_>) -> Result<()> {
    let runs = std::cell::Cell::new(0);
    let got = case.comm.once(|| {
        runs.set(runs.get() + 1);
        Ok(value(case, case.me()))
    })?;
    let runs = (runs.get() == 1) == (case.me() == 0);
    check(case, "once", (got, runs), (value(case, 0), true))?;
    let failed = case.comm.once(|| Err::<(), _>(Error::from("no such file")));
    let told = failed.is_err_and(|error| error.to_string().contains("no such file"));
    check(case, "once with an error", told, true)
}

fn map_dynamic(case: &Case<'_>) -> Result<()> {
    let tasks: Vec<usize> = (0..case.n() + case.seed as usize % 7).collect();
    let got = case.comm.map_dynamic(&tasks, |task| Ok(value(case, *task)))?;
    check(case, "map_dynamic", got, tasks.iter().map(|task| value(case, *task)).collect())?;
    let failed = case.comm.map_dynamic(&tasks, |task| match task {
        0 => Err(Error::from("no such file")),
        _ => Ok(()),
    });
    let told = failed.is_err_and(|error| error.to_string().contains("task 0: no such file"));
    check(case, "map_dynamic with an error", told, true)
}

/// Items dealt out one by one to the ranks in turn: who has how many of them, in blocks in rank order.
fn shares(case: &Case<'_>) -> Result<()> {
    let (n, comm) = (case.n(), case.comm);
    let mut lengths = vec![0; n];
    (0..case.count).for_each(|item| lengths[item % n] += 1);
    let mut blocks = Vec::new();
    let mut start = 0;
    for length in lengths {
        blocks.push([start, start + length]);
        start += length;
    }
    let bounds = |range: std::ops::Range<usize>| [range.start, range.end];
    let got = comm.allgather_value(bounds(comm.share(case.count)))?;
    check(case, "share", got, blocks.clone())?;
    let got = (0..n).map(|rank| bounds(comm.share_of(rank, case.count))).collect();
    check(case, "share_of", got, blocks)?;
    let none = comm.share_of(n, case.count);
    check(case, "share_of no rank", bounds(none), [case.count; 2])
}

/// Even ranks send first, so that large objects don't wait for each other; a ring of an odd number
/// of ranks has two even ones side by side, of which one can wait.
fn ring(case: &Case<'_>) -> Result<()> {
    let (n, me) = (case.n(), case.me());
    if n == 1 {
        return Ok(());
    }
    let (next, last) = ((me + 1) % n, (me + n - 1) % n);
    let send = || case.comm.send_object(&value(case, me), next, 5);
    let receive = || case.comm.recv_object::<Value>(last, 5);
    let (got, status) = if me.is_multiple_of(2) && me + 1 < n {
        send()?;
        receive()?
    } else {
        let got = receive()?;
        send()?;
        got
    };
    check(case, "recv_object", (got, status.source()), (value(case, last), last))
}
