use std::collections::BTreeMap;
use std::{env, fs};

use spmd::prelude::*;

fn main() -> Result<()> {
    spmd::main(|ctx| {
        let files: Vec<String> = env::args().skip(1).collect();
        let mut words = BTreeMap::<String, u64>::new();
        for file in &files[ctx.share(files.len())] {
            for word in fs::read_to_string(file)?.split_whitespace() {
                *words.entry(word.to_lowercase()).or_default() += 1;
            }
        }
        let all = ctx.reduce_object(words, 0, |mut left, right| {
            right.into_iter().for_each(|(word, n)| *left.entry(word).or_default() += n);
            left
        })?;
        if let Some(all) = all {
            println!("{} words, {} times \"the\"", all.len(), all.get("the").unwrap_or(&0));
        }
        Ok(())
    })
}
