//! `spmd-perf`: how long collectives and messages take, on the ranks that it is started with.
//!
//! `spmdrun -n 2 spmd-perf allreduce --sizes 8,1K,1M`

mod args;
mod collectives;
mod elements;
mod measure;
mod messages;
mod report;

use std::process::ExitCode;

use clap::Parser;
use spmd::prelude::*;

use args::{Args, Bench};
use elements::Kind;
use measure::Effort;
use report::{Report, Row};

fn main() -> ExitCode {
    let args = Args::parse();
    if let Some(algorithm) = &args.algorithm {
        let calls = args.benches().into_iter().filter(|bench| !bench.is_message());
        let pairs: Vec<String> =
            calls.map(|bench| format!("{}={algorithm}", bench.name())).collect();
        // SAFETY: no other thread runs yet.
        unsafe { std::env::set_var("SPMD_FORCE", pairs.join(",")) };
    }
    match run(|ctx| measure_all(ctx, &args)) {
        Ok(wrong) if wrong.iter().all(|wrong| *wrong == 0) => ExitCode::SUCCESS,
        Ok(_) => {
            eprintln!("spmd-perf: some results are wrong (column #wrong)");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("spmd-perf: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Measures everything that was asked for; rank 0 reports. Gives the number of wrong elements.
fn measure_all(ctx: &Ctx, args: &Args) -> Result<u64> {
    let effort = Effort::new(args.seconds);
    let report = Report::new(ctx, args.json);
    let mut wrong = 0;
    for bench in args.benches() {
        report.begin(bench);
        for bytes in args.sizes_of(bench) {
            let measured = match args.element {
                _ if bench.is_message() => messages::measure(ctx, bench, bytes, effort)?,
                Kind::F64 => collectives::measure::<f64>(ctx, bench, bytes, args.op, effort)?,
                Kind::F32 => collectives::measure::<f32>(ctx, bench, bytes, args.op, effort)?,
                Kind::I32 => collectives::measure::<i32>(ctx, bench, bytes, args.op, effort)?,
                Kind::U8 => collectives::measure::<u8>(ctx, bench, bytes, args.op, effort)?,
            };
            wrong += measured.wrong;
            report.row(&Row { bench, bytes, element: args.element, op: args.op, measured });
        }
    }
    Ok(wrong)
}

/// What a bench measures, whether all ranks take part in it or two.
impl Bench {
    fn is_message(self) -> bool {
        matches!(
            self,
            Bench::Latency | Bench::Bandwidth | Bench::Bidirectional | Bench::MessageRate
        )
    }
}
