use crate::{ANY, Result, Spmd};

#[test]
fn what_the_rank_does_besides_is_seen() -> Result<()> {
    Spmd::new(3).virtual_ranks().workers(1).run(|ctx| {
        let hopeless = &ctx.endpoint.hopeless;
        if ctx.rank() == 1 {
            return Ok(());
        }
        let poll_in_vain = || -> Result<()> {
            while hopeless.begins().is_none() {
                ctx.iprobe(1, 0)?;
            }
            Ok(())
        };
        if ctx.rank() == 0 {
            ctx.send(&[1], 0, 0)?;
            poll_in_vain()?;
            assert!(ctx.iprobe(2, 0)?.is_none() && hopeless.begins().is_none());
            poll_in_vain()?;
            assert!(ctx.iprobe(ANY, 1)?.is_none() && hopeless.begins().is_none());
            poll_in_vain()?;
            assert!(ctx.iprobe(ANY, 0)?.is_some() && hopeless.begins().is_none());
            poll_in_vain()?;
            assert!(ctx.iprobe(1, 0)?.is_none() && hopeless.begins().is_some());
            ctx.recv(&mut [0], 0, 0)?;
            assert!(hopeless.begins().is_none());
            return ctx.send(&[1], 2, 0);
        }
        ctx.recv(&mut [0], 0, 0).map(drop)
    })?;
    Ok(())
}
