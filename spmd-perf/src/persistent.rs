//! An allreduce that is made once and started again and again.

use spmd::prelude::*;

use crate::collectives::Collective;
use crate::elements::{Number, Operator};
use crate::measure::{Effort, Measured, Subject, measure as measure_subject};

/// Measures it: start and wait, with nothing in between.
pub(crate) fn measure<T: Number>(
    ctx: &Ctx,
    effort: Effort,
    collective: Collective<T>,
) -> Result<Measured>
where
    Sum: Operation<T>,
    Min: Operation<T>,
    Max: Operation<T>,
{
    let (send, recv) = (collective.send.to_vec(), collective.recv.to_vec());
    let call = match collective.op {
        Operator::Sum => ctx.allreduce_init(send, recv, Sum)?,
        Operator::Min => ctx.allreduce_init(send, recv, Min)?,
        Operator::Max => ctx.allreduce_init(send, recv, Max)?,
    };
    measure_subject(ctx, effort, &mut Repeated { collective, call })
}

struct Repeated<T: Number> {
    collective: Collective<T>,
    call: Persistent<(Vec<T>, Vec<T>)>,
}

impl<T: Number> Subject for Repeated<T>
where
    Sum: Operation<T>,
    Min: Operation<T>,
    Max: Operation<T>,
{
    fn rewrites(&self) -> bool {
        self.collective.rewrites()
    }

    fn prepare(&mut self, turn: usize) -> Result<()> {
        self.collective.prepare(turn)?;
        self.call.send_mut()?.copy_from_slice(&self.collective.send);
        Ok(())
    }

    fn call(&mut self, _: &Ctx, _: usize) -> Result<()> {
        self.call.start()?;
        self.call.wait()
    }

    fn wrong(&mut self, turn: usize) -> Result<u64> {
        self.collective.recv.copy_from_slice(self.call.recv()?);
        self.collective.wrong(turn)
    }
}
