//! `spmd-perf`: how long collectives and messages take, on the ranks that it is started with.
//!
//! `spmdrun -n 2 spmd-perf allreduce --sizes 8,1K,1M`

mod allocation;
mod args;
mod bench;
mod card;
mod collectives;
mod describe;
mod elements;
mod list;
mod machine;
mod measure;
mod memory;
mod messages;
mod one_sided;
mod overlap;
mod persistent;
mod plot;
mod report;
mod sweep;
mod tune;

use std::process::ExitCode;

use spmd::prelude::*;
use spmd_core::algorithm::find;

use args::{Args, Command, Task};
use collectives::Collective;
use elements::{Kind, Number, Operator};
use measure::Measured;
use memory::Memory;
use report::Line;

fn main() -> ExitCode {
    let args = Args::of_process();
    let done = match &args.command {
        Some(Command::Plot { results, output }) => plot::draw_files(results, output),
        Some(Command::Machine) => run(machine::measure).map(drop).map_err(|e| e.to_string()),
        Some(Command::Empty) => run(|_| Ok(())).map(drop).map_err(|e| e.to_string()),
        Some(Command::Allocation) => run(allocation::measure).map(drop).map_err(|e| e.to_string()),
        Some(Command::Sweep(args)) => sweep::sweep(args),
        Some(Command::Compare { sweeps, out }) => sweep::compare(sweeps, out),
        Some(Command::Tune(args)) => {
            run(|ctx| tune::tune(ctx, args)).map(drop).map_err(|e| e.to_string())
        }
        None if args.list_algorithms => {
            print!("{}", list::list());
            Ok(())
        }
        None => measure(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("spmd-perf: {text}");
            ExitCode::FAILURE
        }
    }
}

fn measure(args: &Args) -> std::result::Result<(), String> {
    if let Some(algorithm) = &args.algorithm {
        let forced = forced(&args.tasks(), algorithm)?;
        // SAFETY: no other thread runs yet.
        unsafe { std::env::set_var("SPMD_FORCE", forced) };
    }
    let planes = match args.memory {
        Memory::Device => spmd_gpu::planes().to_vec(),
        _ => vec![],
    };
    let wrong = spmd::run_on_planes(&planes, |ctx| measure_all(ctx, args))
        .map_err(|error| error.to_string())?;
    if wrong.iter().any(|wrong| *wrong > 0) {
        return Err("some results are wrong (column #wrong)".into());
    }
    Ok(())
}

/// `SPMD_FORCE` for the collectives among the tasks that know this algorithm.
///
/// Errors: none does.
fn forced(tasks: &[Task], algorithm: &str) -> std::result::Result<String, String> {
    let named = tasks.iter().map(|task| task.bench.name());
    let found = named.map(|name| find(&name, algorithm).map(|_| format!("{name}={algorithm}")));
    let (found, wrong): (Vec<_>, Vec<_>) = found.partition(|found| found.is_ok());
    let mut pairs: Vec<String> = found.into_iter().flatten().collect();
    if let (true, Some(Err(why))) = (pairs.is_empty(), wrong.into_iter().next()) {
        return Err(format!("--algorithm {algorithm}: {why}; --list-algorithms names them all"));
    }
    pairs.dedup();
    Ok(pairs.join(","))
}

/// Measures everything that was asked for; rank 0 reports. Gives the number of wrong elements.
fn measure_all(ctx: &Ctx, args: &Args) -> Result<u64> {
    let mut lines: Vec<Line> = Vec::new();
    let mut wrong = 0;
    if let (Some(algorithm), true) = (&args.algorithm, ctx.internals().spans_processes()) {
        return Err(format!(
            "--algorithm {algorithm}: between these processes the MPI library chooses how; drop it, or \
             measure ranks that share memory (spmdrun --transport shm)"
        )
        .into());
    }
    let begun = args.describe.then(|| describe::begin(ctx)).transpose()?;
    measure::settle(ctx)?;
    let card = match args.memory {
        Memory::Device => Some(card::Card::new(ctx)?),
        _ => None,
    };
    for task in args.tasks() {
        let measured = measure_one(ctx, args, &task)?;
        wrong += measured.wrong + measured.in_place.as_ref().map_or(0, |it| it.wrong);
        if ctx.rank() != 0 {
            continue;
        }
        let line = Line::new(ctx, args, &task, &measured, card.as_ref());
        if args.json {
            print_json(&line)?;
        } else {
            if lines.last().is_none_or(|last| last.collective != line.collective) {
                line.print_heading();
            }
            line.print(args, task.bench);
        }
        lines.push(line);
    }
    if let Some(begun) = begun
        && let Some(machine) = begun.end(ctx)?
    {
        print_json(&describe::Description { machine })?;
    }
    if let (Some(file), 0) = (&args.plot, ctx.rank()) {
        plot::draw(&lines, file)?;
    }
    Ok(wrong)
}

fn print_json(it: &impl serde::Serialize) -> Result<()> {
    println!("{}", serde_json::to_string(it).map_err(|error| error.to_string())?);
    Ok(())
}

fn measure_one(ctx: &Ctx, args: &Args, task: &Task) -> Result<Measured> {
    let Task { bench, bytes, effort } = *task;
    let (op, memory) = (args.op, args.memory);
    if memory == Memory::Device && !bench.is_plain() {
        let name = bench.name();
        return Err(format!("{name}: --memory device is for collectives; leave it out").into());
    }
    match args.element {
        _ if bench.is_one_sided() => one_sided::measure(ctx, bench, bytes, effort),
        _ if bench.is_message() => messages::measure(ctx, bench, bytes, memory, effort),
        Kind::F64 => measure_of::<f64>(ctx, task, op, memory),
        Kind::F32 => measure_of::<f32>(ctx, task, op, memory),
        Kind::I32 => measure_of::<i32>(ctx, task, op, memory),
        Kind::U8 => measure_of::<u8>(ctx, task, op, memory),
    }
}

/// Measures a collective, by itself or beside a computation.
fn measure_of<T: Number>(ctx: &Ctx, task: &Task, op: Operator, memory: Memory) -> Result<Measured>
where
    Sum: Operation<T>,
    Min: Operation<T>,
    Max: Operation<T>,
{
    let Task { bench, bytes, effort } = *task;
    let collective = Collective::new(ctx, bench.call(), bytes, op, memory)?;
    if bench == bench::Bench::PersistentAllreduce {
        return persistent::measure(ctx, effort, collective);
    }
    match bench.overlap() {
        Some((_, tests)) => overlap::measure(ctx, effort, collective, tests),
        None => {
            let mut measured = measure::measure(ctx, effort, &mut { collective })?;
            // As nccl-tests does.
            if memory == Memory::Device && bench.has_in_place() {
                let again =
                    Collective::new(ctx, bench, bytes, op, memory)?.in_place(ctx, memory)?;
                let again = collectives::measure_in_place::<T>(ctx, effort, again)?;
                measured.in_place = Some(Box::new(again));
            }
            Ok(measured)
        }
    }
}
