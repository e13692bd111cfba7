//! The examples, unchanged in threads, virtual ranks and processes.

use std::process::Command;

use crate::count::Count;
use crate::steps::Outcome;
use crate::tools::{self, built, cargo};

/// Name and arguments; small enough for a build without all optimisations.
const EXAMPLES: [(&str, &[&str]); 32] = [
    ("hello", &[]),
    ("pi", &[]),
    ("digits", &[]),
    ("conjugate_gradient", &[]),
    ("conjugate_gradient", &["--hidden"]),
    ("sample_sort", &[]),
    ("heat", &["240", "200"]),
    ("heat", &["--hidden", "240", "200"]),
    ("histogram", &["200000", "50000"]),
    ("mandelbrot", &["120", "200"]),
    ("index_gather", &["200000", "50000"]),
    ("cholesky", &["200", "32"]),
    ("lu", &["200", "32"]),
    ("tree_sum", &["300", "300"]),
    ("sum_anywhere", &["8", "1000"]),
    ("quick_sum", &[]),
    ("quick_scatter", &[]),
    ("quick_halo", &[]),
    ("quick_master", &[]),
    ("quick_words", &["README.md", "docs/guide.md", "docs/design.md"]),
    ("quick_groups", &[]),
    ("quick_statistics", &[]),
    ("quick_arrays", &[]),
    ("quick_with_rayon", &[]),
    ("quick_anywhere", &[]),
    ("prk_stencil", &["10", "1000"]),
    ("prk_transpose", &["10", "2000", "64"]),
    ("prk_p2p", &["10", "1000", "100"]),
    ("prk_reduce", &["10", "2000000"]),
    ("prk_nstream", &["10", "2000000"]),
    ("prk_sparse", &["10", "10", "4"]),
    ("prk_dgemm", &["10", "500", "32"]),
];

pub(crate) fn run() -> Outcome {
    let build = cargo(&["build", "--workspace", "--bins", "--examples"]);
    if let Some(wrong) = tools::watch(build).wrong {
        return Outcome::Failed(Count::FAILED, wrong);
    }
    let mut count = Count::default();
    let mut failed = Vec::new();
    for (name, arguments) in EXAMPLES {
        let mut results = Vec::new();
        for mode in ["threads", "virtual", "processes"] {
            println!("\n--- {}, four ranks as {mode}", told(name, arguments));
            let ran = tools::watch(example(name, arguments, mode));
            // The kernels say whether they have checked what they measure.
            let valid = !name.starts_with("prk_") || ran.text.contains("Solution validates");
            if ran.wrong.is_none() && valid {
                count += Count::PASSED;
            } else {
                count += Count::FAILED;
                failed.push(format!("{} as {mode}", told(name, arguments)));
            }
            results.push(ran.text);
        }
        // The loss of the training, with all its bits; what the ten tasks find.
        if name == "digits" || name.starts_with("quick_") {
            let same = results.windows(2).all(|pair| pair[0] == pair[1]);
            count += if same { Count::PASSED } else { Count::FAILED };
            failed.extend((!same).then(|| format!("{name}: the modes differ")));
        }
    }
    if failed.is_empty() {
        return Outcome::Passed(count);
    }
    Outcome::Failed(count, failed.join(", "))
}

fn told(name: &str, arguments: &[&str]) -> String {
    [&[name], arguments].concat().join(" ")
}

fn example(name: &str, arguments: &[&str], mode: &str) -> Command {
    let debug = built("debug");
    let program = debug.join("examples").join(name);
    let mut command = tools::command(debug.join("spmdrun"), &["--ranks", "4", "--as", mode]);
    command.arg(program).args(arguments);
    if name == "heat" {
        command.arg(debug.with_file_name("heat-test.png"));
    }
    command
}
