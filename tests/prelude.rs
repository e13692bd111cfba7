//! A program that needs the prelude and nothing else.

use spmd::prelude::*;

#[derive(Clone, Copy, Debug, PartialEq, Element)]
#[repr(C)]
struct Particle {
    position: [f64; 2],
    mass: f64,
}

#[test]
fn a_struct_travels() -> Result<()> {
    let heaviest = Op::new(|a: Particle, b: Particle| if b.mass > a.mass { b } else { a });
    let found = spmd(3, |ctx| {
        let mine = Particle { position: [ctx.rank() as f64; 2], mass: (ctx.rank() % 2) as f64 };
        rank_println!("{mine:?}");
        let all = ctx.allgather_value(mine)?;
        assert_eq!(all[ctx.rank()], mine);
        ctx.allreduce_value(mine, heaviest)
    })?;
    assert_eq!(found, [Particle { position: [1.0; 2], mass: 1.0 }; 3]);
    Ok(())
}

#[test]
fn code_without_a_ctx_knows_its_rank() -> Result<()> {
    fn deep_inside() -> Result<(usize, Vec<usize>, Vec<u8>)> {
        spmd_barrier()?;
        let mut sum = [spmd_rank(), 1];
        spmd_reduce(&mut sum, Sum)?;
        assert_eq!(sum[1], spmd_size());
        Ok((sum[0], spmd_exchange(spmd_rank())?, spmd_allgather(&vec![7u8; 2])?))
    }
    assert_eq!(deep_inside()?, (0, vec![0], vec![7; 2]));
    let inside = (3, vec![0, 1, 2], vec![7; 6]);
    assert_eq!(spmd(3, |_| deep_inside())?, vec![inside.clone(); 3]);
    assert_eq!(Spmd::new(3).virtual_ranks().run(|_| deep_inside())?, vec![inside; 3]);
    assert_eq!(spmd_rank(), 0);
    Ok(())
}

#[test]
fn errors_of_free_functions_name_their_callers() {
    let text = spmd(2, |ctx| if ctx.rank() == 0 { spmd_barrier() } else { Ok(()) });
    let text = text.unwrap_err().to_string();
    assert!(text.contains("prelude.rs"), "{text}");
}
