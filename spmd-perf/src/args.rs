//! The command line.

use clap::{Parser, ValueEnum};

use crate::elements::{Kind, Operator};

/// Measures collectives and messages on the ranks it is started with, and checks the results:
/// `spmdrun -n 2 spmd-perf allreduce --sizes 8,1K,1M`.
#[derive(Debug, Parser)]
#[command(version)]
pub(crate) struct Args {
    /// What to measure
    #[arg(required_unless_present = "all")]
    bench: Option<Bench>,
    /// Measure everything
    #[arg(long, conflicts_with = "bench")]
    all: bool,
    /// Bytes: of each rank's contribution to a collective (to each peer in alltoall and scatter),
    /// of each message. K, M and G are powers of 1024
    #[arg(long, value_delimiter = ',', value_parser = size, default_value = "8,64,1K,8K,64K,512K,4M")]
    sizes: Vec<usize>,
    /// The element type of collectives
    #[arg(long = "type", default_value = "f64")]
    pub(crate) element: Kind,
    /// The operation of reductions
    #[arg(long, default_value = "sum")]
    pub(crate) op: Operator,
    /// The algorithm to use where it can serve a call
    #[arg(long)]
    pub(crate) algorithm: Option<String>,
    /// Seconds for each size
    #[arg(long, default_value_t = 0.2, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// One JSON object a line instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Bench {
    Barrier,
    Broadcast,
    Reduce,
    Allreduce,
    Gather,
    Allgather,
    Scatter,
    Alltoall,
    ReduceScatter,
    Scan,
    Exscan,
    /// Half of a round trip between ranks 0 and 1
    Latency,
    /// Windows of 64 messages from rank 0 to rank 1
    Bandwidth,
    /// The same in both directions at once
    Bidirectional,
    /// Windows of 64 messages from each rank of the lower half to one of the upper half
    #[value(name = "message-rate")]
    MessageRate,
}

impl Bench {
    /// As on the command line; that of a collective is the name of its method.
    pub(crate) fn name(self) -> String {
        let value = self.to_possible_value().expect("no bench is hidden");
        value.get_name().to_owned()
    }
}

impl Args {
    pub(crate) fn benches(&self) -> Vec<Bench> {
        self.bench.map_or_else(|| Bench::value_variants().to_vec(), |bench| vec![bench])
    }

    /// The sizes for a bench: a barrier has none.
    pub(crate) fn sizes_of(&self, bench: Bench) -> Vec<usize> {
        let size = self.element.size();
        match bench {
            Bench::Barrier => vec![0],
            _ if bench.is_message() => self.sizes.clone(),
            // Whole elements.
            _ => self.sizes.iter().map(|bytes| bytes.next_multiple_of(size)).collect(),
        }
    }
}

fn size(text: &str) -> Result<usize, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 1,
        "K" | "KB" | "KIB" => 1 << 10,
        "M" | "MB" | "MIB" => 1 << 20,
        "G" | "GB" | "GIB" => 1 << 30,
        other => return Err(format!("'{other}' is no unit: K, M or G")),
    };
    let number: usize = digits.parse().map_err(|_| format!("'{digits}' is no number"))?;
    number.checked_mul(unit).filter(|bytes| *bytes <= 1 << 40).ok_or("too large".to_owned())
}

fn seconds(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| format!("'{text}' is no number"))?;
    if value > 0.0 && value <= 3600.0 { Ok(value) } else { Err("between 0 and 3600".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn sizes() {
        assert_eq!(size("8"), Ok(8));
        assert_eq!(size("64K"), Ok(65_536));
        assert_eq!(size("3MiB"), Ok(3 << 20));
        assert!(size("8X").is_err() && size("K").is_err() && size("99999999G").is_err());
    }

    #[test]
    fn the_command_line_is_sound() {
        Args::command().debug_assert();
        let args = Args::parse_from(["spmd-perf", "reduce_scatter", "--sizes", "1,1K"]);
        assert_eq!(args.benches(), [Bench::ReduceScatter]);
        assert_eq!(args.sizes_of(Bench::ReduceScatter), [8, 1024]);
        assert!(Args::try_parse_from(["spmd-perf"]).is_err());
    }
}
