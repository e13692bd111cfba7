use rayon::prelude::*;
use spmd::prelude::*;

fn main() -> Result<()> {
    spmd::main(|ctx| {
        let mine = ctx.share(200_000);
        // What threads need of the rank they get as values; `ctx` stays here.
        let primes = mine.into_par_iter().filter(|n| is_prime(*n)).count();
        let all = ctx.allreduce_value(primes, Sum)?;
        if ctx.rank() == 0 {
            println!("{all} primes");
        }
        Ok(())
    })
}

fn is_prime(n: usize) -> bool {
    n > 1 && (2..).take_while(|d| d * d <= n).all(|d| !n.is_multiple_of(d))
}
